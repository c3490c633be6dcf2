//! The watcher's end: looks at one server for one client at a time, and never runs a command.

use super::lines::{Lines, after_ns, send};
use super::{Answer, PROTOCOL, Request, Seen, Wanted, link, token};
use crate::kin::Kin;
use crate::{Order, Sampler};
use jostle_model::ServerAt;
use jostle_model::record::Environment;
use jostle_sys::limits::net::Counted;
use jostle_sys::sock_diag::{SockDiag, Tcp, Wanted as Sought};
use jostle_sys::{clock, files};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The longest line that is taken.
const LONGEST: usize = 1 << 16;

/// How long the first line may take.
const OPENED_NS: u64 = 10_000_000_000;

/// A client that was not heard for so long is gone.
const QUIET_NS: u64 = 6 * link::BEAT_NS;

/// The times between two looks that may be asked for.
const EVERY_NS: [u64; 2] = [10_000_000, 60_000_000_000];

/// Which clients of the server are meant, on its machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// Their addresses; empty where these are others here.
    clients: BTreeSet<IpAddr>,
    /// Connections that this network namespace had accepted when the session began.
    pub(crate) accepted: u64,
}

impl Told {
    /// Whether this end of the server's is one of a client that is meant.
    pub(crate) fn means(&self, socket: &Tcp) -> bool {
        self.clients.is_empty() || self.clients.contains(&socket.addresses()[1].ip())
    }
}

/// One session over the standard streams, as ssh starts it.
///
/// # Errors
/// That the client is gone, or speaks otherwise.
pub fn attend_here(build: &str) -> io::Result<()> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    attend(input, &output, build, None)
}

/// A socket for [`serve`]: on the loopback, or elsewhere with a token.
///
/// # Errors
/// What is wrong with the address, and what to do.
pub fn listen(at: &str, has_token: bool) -> Result<TcpListener, String> {
    let address = at.parse::<SocketAddr>();
    let address = address.map_err(|_| {
        format!("`{at}` is no address; write ADDRESS:PORT, or - for standard input")
    })?;
    if !address.ip().is_loopback() && !has_token {
        return Err(format!(
            "{address} can be reached by others: add --token-file FILE, or listen on 127.0.0.1"
        ));
    }
    TcpListener::bind(address).map_err(|error| format!("cannot listen on {address}: {error}"))
}

/// Serves clients, one session at a time, until the process ends.
pub fn serve(listener: &TcpListener, token: Option<&[u8]>, build: &str) {
    let session = Arc::new(());
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Such as that there are too many descriptors.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let mine = Arc::clone(&session);
        if Arc::strong_count(&session) > 2 {
            let why = "it is in another session, and has one at a time";
            let _ = send(&stream.into(), &Answer::Refused(why.to_owned()));
            continue;
        }
        let (token, build) = (token.map(<[u8]>::to_vec), build.to_owned());
        std::thread::spawn(move || {
            let _ = over_tcp(stream, &build, token.as_deref());
            drop(mine);
        });
    }
}

fn over_tcp(stream: TcpStream, build: &str, token: Option<&[u8]>) -> io::Result<()> {
    let input = stream.try_clone()?;
    attend(input.into(), &stream.into(), build, token)
}

fn attend(input: OwnedFd, output: &OwnedFd, build: &str, token: Option<&[u8]>) -> io::Result<()> {
    let accepted = Counted::read().map_or(0, |counted| counted.accepted);
    let mut requests = Requests {
        lines: Lines::new(input, LONGEST),
        quiet_ns: after_ns(OPENED_NS),
    };
    let nonce = token::nonce()?;
    let hello = Answer::Hello {
        protocol: PROTOCOL,
        build: build.to_owned(),
        nonce: nonce.clone(),
    };
    send(output, &hello)?;
    let refused = match requests.next(u64::MAX)? {
        Some(Request::Open {
            protocol,
            build: theirs,
            ..
        }) if protocol != PROTOCOL || theirs != build => {
            Some(format!("here is {build}; the client is {theirs}"))
        }
        Some(Request::Open { proof, .. }) if !token::is_proof(&proof, token, &nonce) => {
            Some("the client has another token, or none: give it the same --token-file".to_owned())
        }
        Some(Request::Open { .. }) => None,
        _ => Some("a session begins with its build and its token".to_owned()),
    };
    if let Some(why) = refused {
        return send(output, &Answer::Refused(why));
    }
    send(output, &Answer::Ready)?;
    let wanted = loop {
        match requests.next(u64::MAX)? {
            Some(Request::Watch(wanted)) => break wanted,
            Some(_) => return send(output, &Answer::Seen(None)),
            None => {}
        }
    };
    let seen = watch(&wanted, accepted, &mut requests)?;
    send(output, &Answer::Seen(Some(Box::new(seen))))
}

/// Looks until the client says that its run is over.
fn watch(wanted: &Wanted, accepted: u64, requests: &mut Requests) -> io::Result<Seen> {
    files::raise_descriptor_limit();
    let (port, same) = place(wanted)?;
    let clients = wanted.clients.iter().filter(|_| same);
    let told = Told {
        clients: clients.map(SocketAddr::ip).collect(),
        accepted,
    };
    let order = Order {
        command: Vec::new(),
        start_server: None,
        server: Some(ServerAt::Port(port)),
        every_ns: wanted.every_ns.clamp(EVERY_NS[0], EVERY_NS[1]),
        environment: Environment::default(),
        started_at: String::new(),
        pair: None,
        parse: false,
        remote: None,
    };
    let mut sampler = Sampler::new(&order, Kin::new(None), None, None, Some(told));
    loop {
        match requests.next(sampler.next_ns)? {
            Some(Request::End) => break,
            Some(_) => return Err(io::Error::other("the client asks out of turn")),
            None => sampler.look_if_due(),
        }
    }
    sampler.look(clock::monotonic().max(sampler.last_ns + 1));
    let ends = sampler.sockets.as_mut();
    Ok(Seen {
        began_ns: sampler.began_ns,
        asked: wanted.server,
        same,
        ends: ends
            .map(|sockets| std::mem::take(&mut sockets.ends))
            .unwrap_or_default(),
        watched: sampler.finish(),
    })
}

/// The server's port here, and whether clients of these addresses are connected to it. A rewritten
/// destination (DNAT) leaves the client's address as it was.
fn place(wanted: &Wanted) -> io::Result<(u16, bool)> {
    let all = SockDiag::open()?.tcp(Sought::default())?;
    let port = wanted.server.port();
    let is_client = |socket: &Tcp| wanted.clients.contains(&socket.addresses()[1]);
    if let Some(socket) = all.iter().find(|socket| is_client(socket)) {
        return Ok((socket.own_port, true));
    }
    // Those that were named are closed by now, where each request has its own.
    let host = |socket: &Tcp| {
        let from = socket.addresses()[1].ip();
        wanted.clients.iter().any(|client| client.ip() == from)
    };
    let same = all
        .iter()
        .any(|socket| socket.own_port == port && host(socket));
    Ok((port, same))
}

/// What a client asks, as long as it is heard.
struct Requests {
    lines: Lines,
    quiet_ns: u64,
}

impl Requests {
    /// The next request, if it comes by then.
    fn next(&mut self, until_ns: u64) -> io::Result<Option<Request>> {
        let line = self.lines.next(until_ns.min(self.quiet_ns))?;
        if line.is_some() {
            self.quiet_ns = after_ns(QUIET_NS);
        } else if clock::monotonic() >= self.quiet_ns {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let line = line.filter(|line| !line.is_empty());
        line.map(|line| serde_json::from_str(&line).map_err(io::Error::other))
            .transpose()
    }
}
