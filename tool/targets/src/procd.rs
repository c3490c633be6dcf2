//! `procd` and `procd-call`: the procedure engine, called over kept connections or by its
//! thin client, a process for each call. The two differ in nothing else, so that their
//! difference is the cost of the process.
//!
//! Without an address the keeper launches an engine for the run. It has the example
//! procedures, and a spool with one file of 1000 bytes.

use crate::caller::{Answer, Caller, Phases, RequestSetup, RequestTarget, Requests};
use crate::exec::Exec;
use crate::http_head::{Foreign, Head};
use crate::prelude::*;
use crate::stream::Stream;
use crate::surplus;
use jostle_sys::files::Errno;
use jostle_sys::signal;
use jostle_sys::spawn::{self, Word};
use jostle_sys::waited::Patience;
use serde_json::Value;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Over connections that are kept.
pub(crate) static TARGET: RequestTarget = RequestTarget {
    entry: Entry {
        name: "procd",
        argument: Some("[//HOST:PORT]/PROCEDURE?ARGS"),
        check_argument: |argument| Place::read(argument).map(drop),
        reach: |argument, _| reach(argument),
        family: Family::Server,
        summary: "the procedure engine procd, over one connection for each worker; without an \
                  address, one launched for the run",
        details: "`GET` over HTTP/1.1 on a connection that is kept; the code is that of the \
                  answer's `Exit-Code`, or the status where there is none, which is an error \
                  (`HTTP 404`). `{n}` and `{worker}` are filled in. Phases: `connect` (only after \
                  the engine has closed the connection), `send` and `reply`. The engine that is \
                  launched is the program `procd` beside jostle, else that in $PATH, of the same \
                  build. It serves the example procedures, over TCP; its spool holds \
                  `message.1000`, of 1000 bytes, and without a procedure `/sizecheck?file=message.1000&max=1000` is \
                  called. A token is taken from $JOSTLE_CALL_TOKEN. The engine's count of calls is \
                  reconciled with the workers'.",
        ..Entry::PLAIN
    },
    prepare: |setup| Kept::prepare(setup).map(|kept| Box::new(kept) as Box<dyn Requests>),
    null: None,
    usual_ns: |_| 7_500,
    usual_port: None,
};

/// By a process for each call.
pub(crate) static THIN: RequestTarget = RequestTarget {
    entry: Entry {
        name: "procd-call",
        argument: TARGET.entry.argument,
        check_argument: TARGET.entry.check_argument,
        reach: |argument, _| reach(argument).and_then(|()| thin_client().map(drop)),
        family: Family::Server,
        summary: "the same engine by a process for each call, its thin client jostle-call",
        details: "As `exec` starts it: phases `spawn`, `run` and `reap`, and its exit code, which \
                  is the procedure's, or its own where there is none (69: no engine, 70: no \
                  answer with a code). The program is the one beside jostle, else that in $PATH. \
                  Where no address is given it calls the launched engine over a Unix socket, as \
                  it does by default.",
        ..Entry::PLAIN
    },
    prepare: |setup| Thin::prepare(setup).map(|thin| Box::new(thin) as Box<dyn Requests>),
    null: None,
    usual_ns: |_| 45_000,
    usual_port: None,
};

/// The procedure that is called by default, that of the original system.
const USUAL: &str = "/sizecheck?file=message.1000&max=1000";

/// The message in the spool of a launched engine. Names in a ledger have a dot.
const MESSAGE: (&str, [u8; 1000]) = ("message.1000", [b'm'; 1000]);

/// Codes from here on are statuses; exit codes end below.
const STATUSES: u32 = 1000;

/// The procedure that is called, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// None: an engine is launched.
    address: Option<Address>,
    /// With what stands behind the `?`.
    procedure: String,
}

impl Place {
    fn read(argument: Option<&str>) -> Result<Place, String> {
        let Some(argument) = argument else {
            return Ok(Place {
                address: None,
                procedure: USUAL.to_owned(),
            });
        };
        let (address, procedure) = match argument.strip_prefix("//") {
            None => (None, argument),
            Some(rest) => {
                let (place, _) = rest.split_once('/').unwrap_or((rest, ""));
                (Some(Address::tcp(place)?), &rest[place.len()..])
            }
        };
        if procedure.len() < 2 || !procedure.starts_with('/') {
            return Err(
                "write /PROCEDURE?ARGS, with //HOST:PORT before it where an engine runs already"
                    .to_owned(),
            );
        }
        if !procedure.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("percent-encode what is not a printable ASCII character".to_owned());
        }
        Ok(Place {
            address,
            procedure: procedure.to_owned(),
        })
    }

    /// Where the engine listens, launched for the run as `server` if there is none.
    fn engine(&self, server: &str, setup: &RequestSetup<'_>) -> Result<Address> {
        if let Some(address) = &self.address {
            return Ok(address.clone());
        }
        let spool = setup.base.ledger.path();
        let (name, text) = MESSAGE;
        let path = spool.join(name);
        std::fs::write(&path, text)
            .map_err(|error| SetupError(format!("cannot write {}: {error}", path.display())))?;
        let server = format!("{server}:{}", spool.display());
        let place = setup.base.launcher.launch(&server)?;
        Ok(match place.starts_with('/') {
            true => Address::Unix(place.into()),
            false => Address::Tcp(place),
        })
    }
}

fn reach(argument: &str) -> Result<()> {
    let argument = Some(argument).filter(|argument| !argument.is_empty());
    match Place::read(argument).map_err(SetupError)?.address {
        Some(address) => figures(&address, token().as_deref()).map(drop),
        None => Ok(()),
    }
}

fn token() -> Option<String> {
    std::env::var("JOSTLE_CALL_TOKEN").ok()
}

/// The engine's counts.
fn figures(address: &Address, token: Option<&str>) -> Result<ServerFigures> {
    let bad = |what: &str| SetupError(format!("the engine at {address}: {what}"));
    let mut client = Client::connect_plainly(address)?;
    write_request(&mut client.request, b"/stats", token);
    let page = client.asked("stats", |input, call| {
        let head = Head::read(input).map_err(|Foreign| nonsense(call))?;
        Ok(head.map(|head| match head.status {
            401 => (Reply::Error(UNAUTHORISED), head.length),
            _ => (Reply::Text(&input[head.head..head.length]), head.length),
        }))
    });
    let page = page.map_err(|said| bad(&said))?.unwrap_or_default();
    let page: Value = serde_json::from_slice(&page).unwrap_or_default();
    let figure = |name: &str| page.get(name).and_then(Value::as_u64);
    let Some(answered) = answered(&page) else {
        return Err(bad("this is not procd: /stats counts no calls"));
    };
    Ok(ServerFigures {
        grants: Some(answered),
        pid: figure("process_id")
            .and_then(|pid| u32::try_from(pid).ok())
            .filter(|_| address.is_local()),
        ..ServerFigures::default()
    })
}

/// The number of requests from callers: executed calls and refused ones.
fn answered(page: &Value) -> Option<u64> {
    let figure = |name: &str| page.get(name)?.as_u64();
    let busy = |procedure: &Value| procedure.pointer("/errors/busy")?.as_u64();
    let refused = ["unknown", "malformed", "unauthorized"].map(|name| figure(name).unwrap_or(0));
    let procedures = page.get("procedures").and_then(|all| all.as_object());
    let busy: u64 = procedures.map_or(0, |all| all.values().filter_map(busy).sum());
    Some(figure("calls")? + refused.iter().sum::<u64>() + busy)
}

/// A whole request.
fn write_request(into: &mut Vec<u8>, target: &[u8], token: Option<&str>) {
    into.extend_from_slice(b"GET ");
    into.extend_from_slice(target);
    into.extend_from_slice(b" HTTP/1.1\r\nHost: procd\r\n");
    if let Some(token) = token {
        into.extend_from_slice(b"Authorization: Bearer ");
        into.extend_from_slice(token.as_bytes());
        into.extend_from_slice(b"\r\n");
    }
    into.extend_from_slice(b"\r\n");
}

/// The call's code: its exit code, or the HTTP status if it has none.
fn code(answer: &Head) -> u32 {
    match (answer.status, answer.exit_code) {
        (200, Some(code)) => code.into(),
        (status, _) => STATUSES + u32::from(status),
    }
}

const UNAUTHORISED: &[u8] = b"its token is wanted; set JOSTLE_CALL_TOKEN";

#[cold]
fn nonsense(call: &'static str) -> CallError {
    CallError::saying(call, Errno::PROTO, "this is not procd")
}

/// An engine asked over connections that are kept.
#[derive(Debug)]
struct Kept {
    address: Address,
    procedure: Word,
    token: Option<String>,
    timeout: Duration,
}

impl Kept {
    fn prepare(setup: &RequestSetup<'_>) -> Result<Kept> {
        let place = Place::read(setup.base.argument).map_err(SetupError)?;
        Ok(Kept {
            address: place.engine("procd", setup)?,
            procedure: Word::from_text(&place.procedure),
            token: token(),
            timeout: setup.timeout,
        })
    }

    fn connect(&self) -> io::Result<Stream> {
        let stream = self.address.open()?;
        stream.set_patience(Some(Patience::look(self.timeout)))?;
        Ok(stream)
    }
}

const CONNECT: usize = 0;
const SEND: usize = 1;
const REPLY: usize = 2;

impl Requests for Kept {
    fn phases(&self) -> &'static [&'static str] {
        &["connect", "send", "reply"]
    }

    fn join(&self, worker: usize) -> Result<Box<dyn Caller + '_>> {
        let stream = self.connect();
        let stream = stream.map_err(|error| {
            SetupError(format!(
                "cannot connect to {}: {error}; is procd running there?",
                self.address
            ))
        })?;
        Ok(Box::new(KeptCaller {
            of: self,
            worker: worker as u64,
            stream: Some(stream),
            target: Vec::new(),
            request: Vec::new(),
            input: vec![0; 4096],
        }))
    }

    fn code_name(&self, code: u32) -> String {
        match code.checked_sub(STATUSES) {
            None => code.to_string(),
            Some(status) => format!("HTTP {status}"),
        }
    }

    fn server(&self) -> Result<Option<ServerFigures>> {
        figures(&self.address, self.token.as_deref()).map(Some)
    }
}

struct KeptCaller<'a> {
    of: &'a Kept,
    worker: u64,
    /// None after a failure, or once the engine has closed it.
    stream: Option<Stream>,
    target: Vec<u8>,
    request: Vec<u8>,
    input: Vec<u8>,
}

impl Caller for KeptCaller<'_> {
    fn call(&mut self, nth: u64, phases: &mut Phases) -> Result<Answer, CallError> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = self.of.connect();
                let stream = stream.map_err(|error| failed("connect", &error))?;
                phases.end(CONNECT);
                stream
            }
        };
        self.target.clear();
        self.of.procedure.write(&mut self.target, nth, self.worker);
        self.request.clear();
        write_request(&mut self.request, &self.target, self.of.token.as_deref());
        (&stream)
            .write_all(&self.request)
            .map_err(|error| failed("send", &error))?;
        phases.end(SEND);
        let reply = self.receive(&stream)?;
        phases.end(REPLY);
        if !reply.closes {
            self.stream = Some(stream);
        }
        Ok(Answer {
            code: code(&reply),
            ..Answer::default()
        })
    }

    fn part(&mut self) -> Result<(), CallError> {
        let stream = self.stream.take();
        stream.map_or(Ok(()), |stream| stream.part("recv"))
    }
}

impl KeptCaller<'_> {
    fn receive(&mut self, mut stream: &Stream) -> Result<Head, CallError> {
        let (mut filled, mut patience) = (0, Patience::of(self.of.timeout));
        loop {
            if filled == self.input.len() {
                self.input.resize(2 * filled, 0);
            }
            match stream.read(&mut self.input[filled..]) {
                Ok(0) => return Err(CallError::new("recv", Errno::CONNRESET)),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if signal::interrupted() {
                        return Err(CallError::new("recv", Errno::INTR));
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !patience.is_over() => {}
                Err(error) => return Err(failed("recv", &error)),
            }
            let reply = Head::read(&self.input[..filled]);
            match reply.map_err(|Foreign| nonsense("recv"))? {
                Some(reply) if reply.length < filled => return Err(surplus::error("recv")),
                Some(reply) => return Ok(reply),
                None => {}
            }
        }
    }
}

#[cold]
fn failed(call: &'static str, error: &io::Error) -> CallError {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            let said = "the engine did not answer within --call-timeout";
            CallError::saying(call, Errno::TIMEDOUT, said)
        }
        _ => CallError::from_system(call, error),
    }
}

/// An engine asked by a process for each call.
#[derive(Debug)]
struct Thin {
    exec: Exec,
    address: Address,
}

impl Thin {
    fn prepare(setup: &RequestSetup<'_>) -> Result<Thin> {
        let place = Place::read(setup.base.argument).map_err(SetupError)?;
        let address = place.engine("procd+unix", setup)?;
        let given = match &address {
            Address::Unix(path) => format!("unix:{}", path.display()),
            named => named.to_string(),
        };
        // The thin client's own time limit is longer, so that ours ends the call and
        // reports the cause.
        let patience = setup.timeout.as_millis() + 1000;
        let words = [
            thin_client()?.display().to_string(),
            "-a".to_owned(),
            given,
            "-t".to_owned(),
            patience.min(3_600_000).to_string(),
            place.procedure,
        ];
        Ok(Thin {
            exec: Exec::new(words.into(), setup)?,
            address,
        })
    }
}

impl Requests for Thin {
    fn phases(&self) -> &'static [&'static str] {
        self.exec.phases()
    }

    fn join(&self, worker: usize) -> Result<Box<dyn Caller + '_>> {
        self.exec.join(worker)
    }

    fn code_name(&self, code: u32) -> String {
        self.exec.code_name(code)
    }

    fn server(&self) -> Result<Option<ServerFigures>> {
        figures(&self.address, token().as_deref()).map(Some)
    }
}

/// The program beside this one, else that in $PATH.
fn thin_client() -> Result<PathBuf> {
    const NAME: &str = "jostle-call";
    spawn::beside_or_in_path(NAME).map_err(|_| {
        SetupError(format!(
            "there is no {NAME} beside jostle nor in $PATH; `cargo build --release` makes both"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_sys::clock::Clock;

    #[test]
    fn engine_and_procedure_are_read_as_typed() {
        let tcp = |place: &str| Some(Address::Tcp(place.to_owned()));
        let table = [
            (None, None, USUAL),
            (Some("/accept"), None, "/accept"),
            (Some("/a?x=1&{n}"), None, "/a?x=1&{n}"),
            (Some("//h:1/a?x=/"), tcp("h:1"), "/a?x=/"),
        ];
        for (argument, address, procedure) in table {
            let place = Place::read(argument).unwrap();
            assert_eq!(
                (place.address, place.procedure.as_str()),
                (address, procedure)
            );
        }
        for argument in ["", "/", "accept", "//h:1", "//h:1/", "//h/a", "/a b", "/ä"] {
            assert!(Place::read(Some(argument)).is_err(), "{argument}");
        }
    }

    #[test]
    fn a_call_has_the_code_of_its_process_or_of_the_answer() {
        for (head, expected) in [
            ("200 OK\r\nExit-Code: 7", 7),
            ("503 X\r\nConnection: close", STATUSES + 503),
            ("500 X\r\nExit-Code: 0", STATUSES + 500),
        ] {
            let text = format!("HTTP/1.1 {head}\r\nContent-Length: 0\r\n\r\n");
            let answer = Head::read(text.as_bytes());
            assert_eq!(code(&answer.unwrap().unwrap()), expected, "{head}");
        }
    }

    mod live_tests {
        use super::*;

        #[test]
        fn an_engine_that_closes_the_connection_is_connected_to_again() {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = Address::Tcp(listener.local_addr().unwrap().to_string());
            let served = std::thread::spawn(move || {
                let mut asked = Vec::new();
                for end in ["Connection: close\r\n", ""] {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut buffer = [0; 1024];
                    let count = stream.read(&mut buffer).unwrap();
                    asked.push(String::from_utf8_lossy(&buffer[..count]).into_owned());
                    let head = "HTTP/1.1 200 OK\r\nExit-Code: 3\r\nContent-Length: 0\r\n";
                    write!(stream, "{head}{end}\r\n").unwrap();
                }
                asked
            });
            let kept = Kept {
                address,
                procedure: Word::from_text("/a?{n}&{worker}"),
                token: Some("s3cret".to_owned()),
                timeout: Duration::from_secs(120),
            };
            let mut caller = kept.join(5).unwrap();
            for (nth, connects) in [(8, false), (9, true)] {
                let mut phases = Phases::begin(Clock::new());
                let answer = caller.call(nth, &mut phases).unwrap();
                assert_eq!(answer.code, 3);
                assert_eq!(phases.span(CONNECT).is_some(), connects);
                assert!(phases.span(SEND).is_some() && phases.span(REPLY).is_some());
            }
            // Nobody listens any more.
            let asked = served.join().unwrap();
            let error = caller
                .call(10, &mut Phases::begin(Clock::new()))
                .unwrap_err();
            assert_eq!(error.call, "recv");
            let error = caller
                .call(11, &mut Phases::begin(Clock::new()))
                .unwrap_err();
            assert_eq!(error, CallError::new("connect", Errno::CONNREFUSED));
            for (request, target) in asked.iter().zip(["/a?8&5", "/a?9&5"]) {
                let expected = format!("GET {target} HTTP/1.1\r\n");
                assert!(request.starts_with(&expected), "{request}");
                assert!(request.contains("\r\nAuthorization: Bearer s3cret\r\n"));
            }
        }
    }
}
