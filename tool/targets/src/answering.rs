//! A server that only answers: the other half of the specimen `echo`.
//!
//! It reads requests as a lock service does, on the same sockets and in the same framing,
//! and replies at once as if every lock were free. It keeps no state except a count of its
//! grants. Its rate is therefore the upper bound for every real service on this path with
//! this client.

use crate::stream::Stream;
use jostle_model::Nanos;
use jostle_model::time::Unit;
use jostle_resp::reply::{Protocol, Writer};
use jostle_resp::request::{self, Args, Limits, Progress};
use jostle_sys::clock;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// The most bytes that one read may return.
const ROOM: usize = 64 * 1024;
const EVENTS: usize = 256;
/// Event numbers of the listener and of the stop signal. The numbers of connections follow
/// them.
const LISTENER: u64 = 0;
const STOP: u64 = 1;
const FIRST: u64 = 2;

/// The server, bound.
#[derive(Debug)]
pub struct Answering {
    listener: Listener,
    epoll: OwnedFd,
    clients: Vec<Option<Client>>,
    free: Vec<usize>,
    room: Vec<u8>,
    args: Args,
    counted: Counted,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// The fault that the server injects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Each grant takes so long.
    Slow(Nanos),
    /// One in so many grants is answered and not counted.
    Lose(u64),
    /// One in so many grants is answered once and counted twice.
    Double(u64),
}

impl Fault {
    /// `slow=200us`, `lose=100` or `double=100`; nothing is no fault.
    ///
    /// # Errors
    /// In words for the user.
    pub fn parse(argument: Option<&str>) -> Result<Fault, String> {
        let Some(text) = argument else {
            return Ok(Fault::None);
        };
        let every = |number: &str| match number.parse() {
            Ok(every) if every > 0 => Ok(every),
            _ => Err(format!("`{number}` is not a number from 1 on")),
        };
        match text.split_once('=') {
            Some(("slow", time)) => Nanos::parse(time, Unit::Micros).map(Fault::Slow),
            Some(("lose", number)) => every(number).map(Fault::Lose),
            Some(("double", number)) => every(number).map(Fault::Double),
            _ => Err(format!(
                "`{text}` is no fault; write slow=TIME, lose=N or double=N"
            )),
        }
    }
}

/// The server's fault and its counts. INFO reports the counts, including what the fault did.
#[derive(Debug, Default)]
struct Counted {
    fault: Fault,
    grants: i64,
    answered: u64,
    slowed_ns: u64,
    lost: u64,
    doubled: u64,
}

impl Counted {
    /// A grant, with its fault; gives the token.
    fn grant(&mut self) -> i64 {
        self.answered += 1;
        let falls_on = |every: u64| self.answered.is_multiple_of(every);
        match self.fault {
            Fault::Slow(time) => {
                let start = clock::monotonic();
                clock::sleep(time.0, || false);
                self.slowed_ns += clock::monotonic() - start;
                self.grants += 1;
            }
            Fault::Lose(every) if falls_on(every) => self.lost += 1,
            Fault::Double(every) if falls_on(every) => {
                self.doubled += 1;
                self.grants += 2;
            }
            _ => self.grants += 1,
        }
        self.answered as i64
    }

    fn info(&self) -> String {
        format!(
            "process_id:{}\r\ngrants:{}\r\nanswered:{}\r\nslowed_ns:{}\r\nlost:{}\r\ndoubled:{}\r\n",
            std::process::id(),
            self.grants,
            self.answered,
            self.slowed_ns,
            self.lost,
            self.doubled
        )
    }
}

#[derive(Debug)]
struct Client {
    stream: Stream,
    /// The beginning of a request.
    kept: Vec<u8>,
    out: Vec<u8>,
    sent: usize,
    /// The client does not read.
    full: bool,
}

impl Answering {
    /// Binds it to a free port of the loopback address, and returns that address.
    ///
    /// # Errors
    /// The system's.
    pub fn bind() -> io::Result<(Answering, SocketAddr)> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        Ok((Answering::new(Listener::Tcp(listener))?, address))
    }

    /// Binds it to a Unix socket at this path. The path must not exist.
    ///
    /// # Errors
    /// The system's.
    pub fn bind_unix(path: &Path) -> io::Result<Answering> {
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Answering::new(Listener::Unix(listener))
    }

    fn new(listener: Listener) -> io::Result<Answering> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        match &listener {
            Listener::Tcp(listener) => watch(&epoll, listener, LISTENER)?,
            Listener::Unix(listener) => watch(&epoll, listener, LISTENER)?,
        }
        Ok(Answering {
            listener,
            epoll,
            clients: Vec::new(),
            free: Vec::new(),
            room: Vec::new(),
            args: Args::new(),
            counted: Counted::default(),
        })
    }

    /// With this fault.
    #[must_use]
    pub fn with(mut self, fault: Fault) -> Answering {
        self.counted.fault = fault;
        self
    }

    /// Answers until `stop` can be read or closes.
    ///
    /// # Errors
    /// The system's, of the server itself; a client's end its connection.
    pub fn run(&mut self, stop: impl AsFd) -> io::Result<()> {
        watch(&self.epoll, &stop, STOP)?;
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    STOP => return Ok(()),
                    LISTENER => self.accept()?,
                    number => self.serve((number - FIRST) as usize),
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok(stream) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // A client that has gone again.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            let place = self.free.pop().unwrap_or(self.clients.len());
            watch(&self.epoll, &stream, place as u64 + FIRST)?;
            let client = Some(Client {
                stream,
                kept: Vec::new(),
                out: Vec::new(),
                sent: 0,
                full: false,
            });
            match self.clients.get_mut(place) {
                Some(old) => *old = client,
                None => self.clients.push(client),
            }
        }
    }

    fn serve(&mut self, place: usize) {
        let Some(Some(client)) = self.clients.get_mut(place) else {
            return;
        };
        let served = client
            .hear(&mut self.room, &mut self.args, &mut self.counted)
            .and_then(|open| match open {
                true => client.send(&self.epoll, place),
                false => Err(ErrorKind::UnexpectedEof.into()),
            });
        if served.is_err() {
            // Its descriptor leaves epoll by being closed.
            self.clients[place] = None;
            self.free.push(place);
        }
    }
}

impl Listener {
    /// The next connection, which never waits.
    fn accept(&self) -> io::Result<Stream> {
        let stream = match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
            Listener::Unix(listener) => Stream::Unix(listener.accept()?.0),
        };
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}

fn watch(epoll: &OwnedFd, who: impl AsFd, number: u64) -> io::Result<()> {
    let data = epoll::EventData::new_u64(number);
    epoll::add(epoll, who, data, epoll::EventFlags::IN)?;
    Ok(())
}

impl Client {
    /// Answers what has come. False at the end of the connection.
    fn hear(
        &mut self,
        room: &mut Vec<u8>,
        args: &mut Args,
        counted: &mut Counted,
    ) -> io::Result<bool> {
        // A client that does not read its replies gets no more of them: its requests wait
        // in its socket.
        if self.full {
            return Ok(true);
        }
        let kept = self.kept.len();
        if room.len() < kept + ROOM {
            room.resize(kept + ROOM, 0);
        }
        room[..kept].copy_from_slice(&self.kept);
        let filled = match (&self.stream).read(&mut room[kept..]) {
            Ok(0) => return Ok(false),
            Ok(count) => kept + count,
            Err(error) if is_passing(&error) => return Ok(true),
            Err(error) => return Err(error),
        };
        let mut at = 0;
        while at < filled {
            match request::decode(&room[at..filled], Limits::default(), args) {
                Ok(Progress::Complete { used }) => {
                    answer(&room[at..filled], args, counted, &mut self.out);
                    at += used;
                }
                Ok(Progress::Incomplete { .. }) => break,
                Err(_) => return Err(ErrorKind::InvalidData.into()),
            }
        }
        self.kept.clear();
        self.kept.extend_from_slice(&room[at..filled]);
        Ok(true)
    }

    fn send(&mut self, epoll: &OwnedFd, place: usize) -> io::Result<()> {
        while self.sent < self.out.len() {
            match (&self.stream).write(&self.out[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if is_passing(&error) => break,
                Err(error) => return Err(error),
            }
        }
        let full = self.sent < self.out.len();
        if !full {
            self.out.clear();
            self.sent = 0;
        }
        if full != self.full {
            self.full = full;
            let flags = match full {
                true => epoll::EventFlags::OUT,
                false => epoll::EventFlags::IN,
            };
            let data = epoll::EventData::new_u64(place as u64 + FIRST);
            epoll::modify(epoll, &self.stream, data, flags)?;
        }
        Ok(())
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Answers a request as if every lock were free.
fn answer(request: &[u8], args: &Args, counted: &mut Counted, out: &mut Vec<u8>) {
    let mut writer = Writer::new(out, Protocol::Resp2);
    match args.get(request, 0).unwrap_or_default() {
        b"LOCK" | b"TRYLOCK" => writer.integer(counted.grant()),
        b"UNLOCK" | b"EVALSHA" | b"DEL" | b"UNLINK" => writer.integer(1),
        b"INFO" => writer.bulk(counted.info().as_bytes()),
        _ => writer.simple("OK"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    #[test]
    fn faults_are_read() {
        for (text, fault) in [
            (None, Fault::None),
            (Some("slow=200us"), Fault::Slow(Nanos::from_micros(200))),
            (Some("lose=100"), Fault::Lose(100)),
            (Some("double=1"), Fault::Double(1)),
        ] {
            assert_eq!(Fault::parse(text), Ok(fault));
        }
        for sad in ["", "slow", "lose=0", "double=x", "mean=3"] {
            assert!(Fault::parse(Some(sad)).is_err(), "{sad}");
        }
    }

    #[test]
    fn every_fault_is_noted_and_every_grant_is_answered() {
        let after = |fault, grants: u32| {
            let mut counted = Counted {
                fault,
                ..Counted::default()
            };
            let tokens: Vec<i64> = (0..grants).map(|_| counted.grant()).collect();
            assert_eq!(tokens, (1..=i64::from(grants)).collect::<Vec<_>>());
            counted
        };
        assert_eq!(after(Fault::None, 7).grants, 7);
        let lossy = after(Fault::Lose(3), 7);
        assert_eq!((lossy.grants, lossy.lost), (5, 2));
        let double = after(Fault::Double(3), 7);
        assert_eq!((double.grants, double.doubled), (9, 2));
        let slow = after(Fault::Slow(Nanos::from_micros(50)), 7);
        assert_eq!(slow.grants, 7);
        assert!(slow.slowed_ns >= 7 * 50_000);
    }

    mod live_tests {
        use super::*;

        /// The server's answers to these bytes, sent in such pieces.
        fn answers(pieces: &[&[u8]], length: usize) -> String {
            let (mut server, address) = Answering::bind().unwrap();
            let (stop, end) = UnixStream::pair().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| server.run(&end).unwrap());
                let mut client = TcpStream::connect(address).unwrap();
                for piece in pieces {
                    client.write_all(piece).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                let mut answer = vec![0; length];
                client.read_exact(&mut answer).unwrap();
                drop(stop);
                String::from_utf8(answer).unwrap()
            })
        }

        #[test]
        fn every_lock_is_free() {
            let requests: &[u8] =
                b"*2\r\n$4\r\nLOCK\r\n$1\r\na\r\n*2\r\n$4\r\nLOCK\r\n$1\r\na\r\n*2\r\n$6\r\nUNLOCK\r\n$1\r\na\r\nPING\r\n";
            let expected = ":1\r\n:2\r\n:1\r\n+OK\r\n";
            assert_eq!(answers(&[requests], expected.len()), expected);
            // Whatever it comes in.
            let (head, tail) = requests.split_at(40);
            assert_eq!(answers(&[head, tail], expected.len()), expected);
        }

        #[test]
        fn a_client_that_does_not_read_loses_no_answer() {
            let (mut server, address) = Answering::bind().unwrap();
            let (stop, end) = UnixStream::pair().unwrap();
            const ASKED: usize = 2_000_000;
            std::thread::scope(|scope| {
                scope.spawn(|| server.run(&end).unwrap());
                let client = TcpStream::connect(address).unwrap();
                let mut writer = client.try_clone().unwrap();
                // The replies fill the sockets long before all has been asked.
                scope.spawn(move || writer.write_all(&b"PING\r\n".repeat(ASKED)).unwrap());
                std::thread::sleep(std::time::Duration::from_millis(100));
                let mut answers = vec![0; ASKED * 5];
                (&client).read_exact(&mut answers).unwrap();
                assert!(answers.chunks(5).all(|answer| answer == b"+OK\r\n"));
                drop(stop);
            });
        }
    }
}
