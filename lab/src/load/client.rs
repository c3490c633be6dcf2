//! One thread, one epoll, many connections, and on each a window of commands in
//! flight that is filled up again as replies come.
//!
//! It sends whole pieces of a window: with one piece the next commands leave
//! when all are answered (what redis-benchmark does), with several the server
//! finds the next piece while the last one's replies are read.

use super::source::Source;
use anyhow::{Context, bail, ensure};
use jostle_resp::Token;
use jostle_resp::token::Framer;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::Timespec;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const BUFFER: usize = 256 * 1024;
/// No reply to a lock command has a part as long as this.
const PART_MAX: usize = 4096;

struct Connection {
    stream: TcpStream,
    source: Source,
    framer: Framer,
    in_flight: usize,
    /// Start of a reply whose rest has not come.
    partial: Vec<u8>,
    /// What the socket would not take.
    unsent: Vec<u8>,
}

/// Many connections, driven by the thread that calls it.
pub struct Client {
    epoll: OwnedFd,
    events: Vec<Event>,
    connections: Vec<Connection>,
    depth: usize,
    piece: usize,
    buffer: Vec<u8>,
    replies: u64,
    last_reply: Instant,
    longest_gap: Duration,
}

/// Raises the limit of open files as far as is allowed.
pub fn allow_files(wanted: u64) {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted.min(most)),
            maximum: limit.maximum,
        };
        // If it stays, connect() will tell.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

impl Client {
    /// Without connections; each will have `depth` commands in flight, sent
    /// `piece` at a time.
    pub fn new(depth: usize, piece: usize) -> anyhow::Result<Client> {
        Ok(Client {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(1024),
            connections: Vec::new(),
            depth,
            piece,
            buffer: vec![0; BUFFER],
            replies: 0,
            last_reply: Instant::now(),
            longest_gap: Duration::ZERO,
        })
    }

    /// Adds a connection. `first`, if it is not empty, is one command that is
    /// sent alone.
    pub fn add(&mut self, stream: TcpStream, first: &[u8], source: Source) -> anyhow::Result<()> {
        stream.set_nonblocking(true)?;
        let index = self.connections.len();
        // Edge-triggered, so that waiting for room to write costs nothing while
        // there is room; each read takes all that is there.
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
        epoll::add(
            &self.epoll,
            &stream,
            EventData::new_u64(index as u64),
            interest,
        )?;
        let mut connection = Connection {
            stream,
            source,
            framer: Framer::default(),
            in_flight: 0,
            partial: Vec::new(),
            unsent: Vec::new(),
        };
        if !first.is_empty() {
            send(&mut connection.stream, &mut connection.unsent, first)?;
            connection.in_flight = 1;
        }
        connection.fill(self.depth, self.piece)?;
        self.connections.push(connection);
        Ok(())
    }

    /// Counts replies and gaps from now on.
    pub fn begin_count(&mut self) {
        self.replies = 0;
        self.longest_gap = Duration::ZERO;
        self.last_reply = Instant::now();
    }

    /// Replies since the count began.
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// The longest time without a reply since the count began.
    pub fn longest_gap(&self) -> Duration {
        self.longest_gap
    }

    /// Keeps the windows filled until then.
    pub fn run_until(&mut self, end: Instant) -> anyhow::Result<()> {
        while self.last_turn(end)? < end {}
        Ok(())
    }

    /// Gives the only connection these commands, and waits for all replies.
    pub fn run_out(&mut self, source: Source, patience: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + patience;
        let [connection] = &mut self.connections[..] else {
            bail!("not one connection");
        };
        connection.source = source;
        connection.fill(self.depth, self.piece)?;
        while self.connections[0].in_flight > 0 {
            let now = self.last_turn(end)?;
            ensure!(now < end, "no reply to all commands in {patience:?}");
        }
        Ok(())
    }

    /// Waits for events, serves them, and gives the time.
    fn last_turn(&mut self, end: Instant) -> anyhow::Result<Instant> {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        self.events.clear();
        match epoll::wait(
            &self.epoll,
            spare_capacity(&mut self.events),
            Some(&timeout),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno).context("epoll_wait"),
        }
        let before = self.replies;
        for at in 0..self.events.len() {
            let Event { flags, data } = self.events[at];
            let connection = &mut self.connections[data.u64() as usize];
            if flags.contains(EventFlags::OUT) && !connection.unsent.is_empty() {
                let bytes = std::mem::take(&mut connection.unsent);
                send(&mut connection.stream, &mut connection.unsent, &bytes)?;
            }
            if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                let replies = connection.receive(&mut self.buffer)?;
                self.replies += replies as u64;
                connection.in_flight = connection
                    .in_flight
                    .checked_sub(replies)
                    .context("more replies than commands")?;
                connection.fill(self.depth, self.piece)?;
            }
        }
        let now = Instant::now();
        if self.replies > before {
            self.longest_gap = self.longest_gap.max(now - self.last_reply);
            self.last_reply = now;
        }
        Ok(now)
    }
}

impl Connection {
    /// Sends pieces while the window has room for them.
    fn fill(&mut self, depth: usize, piece: usize) -> anyhow::Result<()> {
        while depth - self.in_flight >= piece {
            let (bytes, commands) = self.source.next();
            if commands == 0 {
                break;
            }
            send(&mut self.stream, &mut self.unsent, bytes)?;
            self.in_flight += commands;
        }
        Ok(())
    }

    /// Reads all that is there and counts whole replies.
    fn receive(&mut self, buffer: &mut [u8]) -> anyhow::Result<usize> {
        let mut replies = 0;
        loop {
            let kept = self.partial.len();
            buffer[..kept].copy_from_slice(&self.partial);
            self.partial.clear();
            let read = match self.stream.read(&mut buffer[kept..]) {
                Ok(0) => bail!("the server closed the connection"),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error.into()),
            };
            let filled = kept + read;
            let mut at = 0;
            while let Some((token, used, whole)) =
                self.framer.step(&buffer[at..filled], PART_MAX)?
            {
                at += used;
                replies += usize::from(whole);
                // Each command of a load succeeds: a lock that is refused, or
                // was not there to release, makes figures of something else.
                match token {
                    Token::Error(text) => bail!("the server says: {}", text.escape_ascii()),
                    Token::Nil | Token::Integer(0) => bail!("a lock was refused or not held"),
                    _ => {}
                }
            }
            self.partial.extend_from_slice(&buffer[at..filled]);
            // Less than there was room for: the socket is empty.
            if filled < buffer.len() {
                return Ok(replies);
            }
        }
    }
}

/// Writes what the socket takes and keeps the rest, in order.
fn send(stream: &mut TcpStream, unsent: &mut Vec<u8>, bytes: &[u8]) -> anyhow::Result<()> {
    let mut rest = bytes;
    while unsent.is_empty() && !rest.is_empty() {
        match stream.write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error.into()),
        }
    }
    unsent.extend_from_slice(rest);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn numbered(piece: usize) -> Source {
        Source::cycle(piece, 4 * piece, |command, out| {
            out.extend_from_slice(format!("{command} ").as_bytes());
        })
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(30)
    }

    fn arrived(server: &mut TcpStream) -> String {
        let mut buffer = [0; 4096];
        let read = server.read(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..read]).into_owned()
    }

    #[test]
    fn a_window_is_filled_in_pieces_as_replies_come() {
        let (ours, mut server) = pair();
        let mut client = Client::new(4, 2).unwrap();
        client.add(ours, b"", numbered(2)).unwrap();
        client.run_until(soon()).unwrap();
        assert_eq!(arrived(&mut server), "0 1 2 3 ");
        // One reply, cut in two, leaves no room for a piece; the second does.
        for (bytes, replies, commands) in [("+a", 0, ""), ("\r\n", 1, ""), (":7\r\n", 2, "4 5 ")] {
            server.write_all(bytes.as_bytes()).unwrap();
            client.run_until(soon()).unwrap();
            assert_eq!(client.replies(), replies);
            if !commands.is_empty() {
                assert_eq!(arrived(&mut server), commands);
            }
        }
        server.set_nonblocking(true).unwrap();
        assert_eq!(
            server.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
    }

    #[test]
    fn the_first_command_goes_alone() {
        let (ours, mut server) = pair();
        let mut client = Client::new(2, 2).unwrap();
        client.add(ours, b"first ", numbered(2)).unwrap();
        client.run_until(soon()).unwrap();
        assert_eq!(arrived(&mut server), "first ");
        server.write_all(b"+a\r\n").unwrap();
        client.run_until(soon()).unwrap();
        assert_eq!(arrived(&mut server), "0 1 ");
    }

    #[test]
    fn what_the_socket_does_not_take_is_sent_later() {
        let (ours, mut server) = pair();
        let mut client = Client::new(1, 1).unwrap();
        const LARGE: usize = 16 << 20;
        let large = Source::cycle(1, 1, |_, out| out.resize(LARGE, b'x'));
        client.add(ours, b"", large).unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = vec![0; LARGE];
            server.read_exact(&mut bytes).unwrap();
            server.write_all(b"+a\r\n").unwrap();
            server
        });
        let end = Instant::now() + Duration::from_secs(20);
        while client.replies() == 0 && Instant::now() < end {
            client.run_until(soon()).unwrap();
        }
        assert_eq!(client.replies(), 1);
        drop(reader.join().unwrap());
    }

    #[test]
    fn a_refusal_an_error_and_an_end_are_failures() {
        for (bytes, expected) in [
            ("$-1\r\n", "a lock was refused or not held"),
            (":0\r\n", "a lock was refused or not held"),
            ("-NOTHELD x\r\n", "the server says: NOTHELD x"),
            ("+a\r\n+b\r\n", "more replies than commands"),
            ("", "the server closed the connection"),
        ] {
            let (ours, mut server) = pair();
            let mut client = Client::new(1, 1).unwrap();
            client.add(ours, b"", numbered(1)).unwrap();
            arrived(&mut server);
            server.write_all(bytes.as_bytes()).unwrap();
            drop(server);
            let error = client.run_until(Instant::now() + Duration::from_secs(20));
            assert_eq!(error.unwrap_err().to_string(), expected, "{bytes:?}");
        }
    }
}
