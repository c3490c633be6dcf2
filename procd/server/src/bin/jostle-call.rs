//! The thin client: calls a procedure of procd and exits with its code. It lives for a
//! fraction of a millisecond, so it starts without the C library (see
//! `jostle_sys::bare`). Its options, request and reply are in `call.rs`.

#![no_main]
#![no_builtins]

#[allow(
    dead_code,
    unreachable_pub,
    reason = "compiled in as it is; the library uses all of it"
)]
#[path = "../call.rs"]
mod call;

use call::{
    FAILED, Given, Head, Input, Options, SocketAddress, UNREACHABLE, USAGE, Wanted, Writer,
};
use jostle_sys::bare::{self, Errno, Start};

jostle_sys::bare_main!(run);

const STDOUT: i32 = 1;
const STDERR: i32 = 2;

/// How often the client looks for the reply before it sleeps: waking up takes longer
/// than most replies.
const LOOKS: u32 = 64;

struct Process(Start);

impl Given for Process {
    fn arguments(&self) -> usize {
        self.0.arguments()
    }
    fn argument(&self, index: usize) -> &[u8] {
        self.0.argument(index)
    }
    fn variable(&self, name: &[u8]) -> Option<&[u8]> {
        self.0.variable(name)
    }
}

/// A failure of the call: the client's own exit code, and the reason.
struct Failure(u8, &'static str);

fn run(start: Start) -> u8 {
    let process = Process(start);
    let options = match call::options(&process) {
        Ok(Wanted::Call(options)) => options,
        Ok(Wanted::Help) => return print(call::HELP),
        Ok(Wanted::Version) => {
            return print(concat!("jostle-call ", env!("CARGO_PKG_VERSION"), "\n"));
        }
        Err(why) => return complain(USAGE, why),
    };
    match exchange(&process, &options) {
        Ok(code) => code,
        Err(Failure(USAGE, why)) => complain(USAGE, why),
        Err(Failure(code, why)) => {
            if !options.quiet {
                complain(code, why);
            }
            options.failure.unwrap_or(code)
        }
    }
}

fn print(text: &str) -> u8 {
    write(STDOUT, text.as_bytes());
    0
}

fn complain(code: u8, why: &str) -> u8 {
    write(STDERR, b"jostle-call: ");
    write(STDERR, why.as_bytes());
    // The engine's own messages end with a newline.
    if !why.ends_with('\n') {
        write(STDERR, b"\n");
    }
    code
}

/// A failure is not reported: the exit code is what counts.
fn write(fd: i32, mut bytes: &[u8]) {
    while let Ok(count @ 1..) = bare::write(fd, bytes) {
        bytes = bytes.get(count..).unwrap_or_default();
        if bytes.is_empty() {
            return;
        }
    }
}

fn exchange(process: &Process, options: &Options<'_>) -> Result<u8, Failure> {
    if !options.input {
        return answer(process, options, None);
    }
    let (mut directory, mut terminal) = ([0; 4096], [0; 64]);
    let input = input(&mut directory, &mut terminal)?;
    answer(process, options, Some(&input))
}

#[inline(never)]
fn answer(
    process: &Process,
    options: &Options<'_>,
    input: Option<&Input<'_>>,
) -> Result<u8, Failure> {
    let Some(address) = SocketAddress::parse(options.address) else {
        return Err(Failure(
            USAGE,
            "the address is neither HOST:PORT with a numeric host nor unix:PATH",
        ));
    };
    let silent = |why| move |_: Errno| Failure(UNREACHABLE, why);
    let deadline_ms = bare::monotonic_ms().wrapping_add(options.timeout_ms.into());
    let fd = bare::stream_socket(address.family()).map_err(silent("no socket can be had"))?;
    prepare(fd, &address, options).map_err(silent("the socket cannot be set up"))?;
    bare::connect(fd, address.as_bytes()).map_err(silent("the engine cannot be reached"))?;
    if address.is_abstract() {
        trust(fd, options.user)?;
    }
    let socket = Socket {
        fd,
        deadline_ms,
        timeout_ms: options.timeout_ms.into(),
    };
    let mut writer = Writer::new(|bytes: &[u8], more| socket.send(bytes, more));
    let sent = writer.request(process, options, input);
    // An engine may refuse a request before all of it is sent. Its answer counts more
    // than the failed send.
    let reply = receive(&socket, options);
    match (sent, reply) {
        (Err(_), Err(_)) => Err(Failure(UNREACHABLE, "the engine does not take the request")),
        (_, reply) => reply,
    }
}

/// The most that an engine takes (`--max-body`).
const MOST_INPUT: usize = 1 << 30;

fn input<'a>(directory: &'a mut [u8], terminal: &'a mut [u8]) -> Result<Input<'a>, Failure> {
    let body = bare::read_to_end(0, MOST_INPUT)
        .map_err(|_| Failure(USAGE, "standard input cannot be read"))?;
    let is_terminal = |path| {
        bare::read_link(path, &mut [0; 64])
            .is_ok_and(|name| name.starts_with(b"/dev/pts/") || name.starts_with(b"/dev/tty"))
    };
    let streams = [c"/proc/self/fd/2", c"/proc/self/fd/1", c"/proc/self/fd/0"];
    let stream = streams.into_iter().find(|path| is_terminal(path));
    Ok(Input {
        body,
        directory: bare::read_link(c"/proc/self/cwd", directory).unwrap_or_default(),
        user: bare::user(),
        terminal: match stream {
            Some(stream) => bare::read_link(stream, terminal).unwrap_or_default(),
            None => b"",
        },
    })
}

/// Checks the process behind an abstract name, which any process can take first. Nothing is sent
/// to a stranger, least of all the token, and nothing that it sends is believed.
fn trust(fd: i32, user: Option<u32>) -> Result<(), Failure> {
    let peer = bare::peer_user(fd).ok();
    let trusted = match user {
        Some(user) => peer == Some(user),
        None => peer == Some(0) || peer == Some(bare::user()),
    };
    if trusted {
        return Ok(());
    }
    Err(Failure(
        UNREACHABLE,
        "what listens there runs as another user; name it with -u if it is the engine",
    ))
}

const RECEIVE_TIMEOUT: i32 = 20;
const SEND_TIMEOUT: i32 = 21;

/// Limits how long a socket operation may wait; 0 would mean for ever.
fn limit(fd: i32, option: i32, ms: u64) -> Result<(), Errno> {
    let mut time = [0; 2 * size_of::<isize>()];
    let (seconds, micros) = time.split_at_mut(size_of::<isize>());
    seconds.copy_from_slice(&((ms / 1000) as isize).to_ne_bytes());
    micros.copy_from_slice(&((ms % 1000 * 1000) as isize).to_ne_bytes());
    bare::set_socket_option(fd, option, &time)
}

fn prepare(fd: i32, address: &SocketAddress, options: &Options<'_>) -> Result<(), Errno> {
    const LINGER: i32 = 13;
    // It bounds connect(2) too.
    limit(fd, SEND_TIMEOUT, options.timeout_ms.into())?;
    if address.is_unix() {
        return Ok(());
    }
    // The socket is closed by a reset, when everything has been received. So no port is
    // left in TIME_WAIT on either side; a busy mail server would run out of ports.
    bare::set_socket_option(fd, LINGER, &[1, 0, 0, 0, 0, 0, 0, 0])
}

/// A connection, and when the call must be over.
struct Socket {
    fd: i32,
    deadline_ms: u64,
    /// The time limit at the beginning, which sending has already.
    timeout_ms: u64,
}

const LATE: Failure = Failure(UNREACHABLE, "the engine did not answer in time");

impl Socket {
    /// Milliseconds that are left, 0 if the call must be over.
    fn left_ms(&self) -> u64 {
        self.deadline_ms.saturating_sub(bare::monotonic_ms())
    }

    fn send(&self, mut bytes: &[u8], more: bool) -> Result<(), Errno> {
        const TIMEDOUT: Errno = Errno(110);
        while !bytes.is_empty() {
            match self.left_ms() {
                0 => return Err(TIMEDOUT),
                left if left < self.timeout_ms => limit(self.fd, SEND_TIMEOUT, left)?,
                _ => {}
            }
            match bare::send(self.fd, bytes, more) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(Errno(4)) => {} // EINTR
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// The next bytes; an error if none come in time.
    fn read(&self, buffer: &mut [u8]) -> Result<usize, Failure> {
        let mut looks = 0;
        loop {
            let wait = looks == LOOKS;
            if wait {
                let left = self.left_ms();
                if left == 0 || limit(self.fd, RECEIVE_TIMEOUT, left).is_err() {
                    return Err(LATE);
                }
            }
            match bare::receive(self.fd, buffer, wait) {
                Ok(0) => return Err(Failure(UNREACHABLE, "the engine closed the connection")),
                Ok(count) => return Ok(count),
                Err(Errno(11)) if !wait => {
                    looks += 1;
                    bare::let_others_run();
                }
                Err(Errno(4)) => {} // EINTR
                Err(Errno(11)) => return Err(LATE),
                Err(_) => return Err(Failure(UNREACHABLE, "the connection broke")),
            }
        }
    }
}

fn receive(socket: &Socket, options: &Options<'_>) -> Result<u8, Failure> {
    let mut buffer = [0; 1024];
    let mut filled = 0;
    let head = loop {
        let space = buffer.get_mut(filled..).unwrap_or_default();
        if space.is_empty() {
            return Err(Failure(UNREACHABLE, "the reply's head is too long"));
        }
        filled += socket.read(space)?;
        let bytes = buffer.get(..filled).unwrap_or_default();
        if let Some(head) = call::head(bytes).map_err(|why| Failure(UNREACHABLE, why))? {
            break head;
        }
    };
    let code = match head {
        Head {
            status: 200,
            exit_code: Some(code),
            ..
        } => Ok(code),
        Head { status: 200, .. } => Err(Failure(FAILED, "the reply has no exit code")),
        Head { status: 401, .. } => Err(Failure(FAILED, "the token is missing or wrong")),
        Head { status: 404, .. } => Err(Failure(FAILED, "not found")),
        Head { status: 503, .. } => Err(Failure(FAILED, "the engine is busy")),
        _ => Err(Failure(FAILED, "the procedure failed")),
    };
    let to = match code {
        Ok(_) => Some(STDOUT),
        Err(_) if options.quiet => None,
        Err(_) => Some(STDERR),
    };
    copy(socket, head, &mut buffer, filled, to)?;
    code
}

/// Passes the body on.
fn copy(
    socket: &Socket,
    head: Head,
    buffer: &mut [u8],
    filled: usize,
    to: Option<i32>,
) -> Result<(), Failure> {
    let mut left = head.body;
    let (mut from, mut until) = (head.length, filled);
    loop {
        let bytes = buffer.get(from..until).unwrap_or_default();
        if let Some(to) = to.filter(|_| !bytes.is_empty()) {
            write(to, bytes);
        }
        left = left.saturating_sub(bytes.len() as u64);
        if left == 0 {
            return Ok(());
        }
        if socket.left_ms() == 0 {
            return Err(LATE);
        }
        (from, until) = (0, socket.read(buffer)?);
    }
}
