//! A thread that serves the page, its events and the metrics. It sleeps until a request
//! arrives or the state changes, about once a second, and never waits for a reader. A slow
//! reader misses states between; a reader that reads nothing is disconnected.

use super::http::{self, HEAD_BYTES, Serves, Wanted};
use super::state::{Seen, State};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections at a time; further ones are closed at once.
const CONNECTIONS: usize = 64;
/// How long a request may take to arrive, and a reader may read nothing.
const PATIENCE: Duration = Duration::from_secs(20);
/// After a connection that could not be taken.
const REST: Duration = Duration::from_millis(100);
/// How long the end of the run waits for readers to take the last event.
const FAREWELL: Duration = Duration::from_millis(500);

/// What the measuring side and the server share.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    bell: UnixStream,
}

impl Shared {
    /// What is known so far.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the server. If the bell's buffer is full, a wake-up is already pending.
    pub(super) fn ring(&self) {
        let _ = (&self.bell).write_all(&[1]);
    }
}

/// The thread.
#[derive(Debug)]
pub(super) struct LiveServer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// A port and what it serves.
#[derive(Debug)]
pub(super) struct Port {
    listener: TcpListener,
    serves: Serves,
}

impl Port {
    /// Binds an address.
    ///
    /// # Errors
    /// The system's: it is in use, or not of this machine.
    pub(super) fn bind(address: SocketAddr, serves: Serves) -> io::Result<Port> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Port { listener, serves })
    }

    /// Where it is.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl LiveServer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's: no threads, no descriptors.
    pub(super) fn start(ports: Vec<Port>) -> io::Result<LiveServer> {
        let (bell, ears) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ears.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State::default()),
            bell,
        });
        let serving = ServerThread {
            shared: Arc::clone(&shared),
            ports,
            ears,
            guests: Vec::new(),
            name: hostname(),
        };
        let thread = std::thread::Builder::new()
            .name("jostle-live".to_owned())
            .spawn(move || serving.serve())?;
        Ok(LiveServer {
            shared,
            thread: Some(thread),
        })
    }

    /// What it shares with the measuring side.
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl Drop for LiveServer {
    /// Lets readers have the last event, for a moment.
    fn drop(&mut self) {
        self.shared.state().close();
        self.shared.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn hostname() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

/// A connection.
struct Guest {
    stream: TcpStream,
    /// Which port it came to.
    port: usize,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Of `output`, what is sent.
    sent: usize,
    phase: Phase,
    /// When something was last read or sent.
    moved: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The request is not whole yet.
    Asks,
    /// It ends when `output` is sent.
    Hears,
    /// It gets events.
    Follows(Seen),
}

struct ServerThread {
    shared: Arc<Shared>,
    ports: Vec<Port>,
    ears: UnixStream,
    guests: Vec<Guest>,
    name: String,
}

impl ServerThread {
    fn serve(mut self) {
        let mut ends = None;
        loop {
            if self.wait(ends.is_some()).is_err() {
                return;
            }
            self.listen();
            let closed = self.shared.state().is_closed();
            if closed {
                ends.get_or_insert_with(|| Instant::now() + FAREWELL);
            }
            self.accept();
            self.work();
            let done = |guest: &Guest| guest.sent == guest.output.len();
            let late = ends.is_some_and(|ends| Instant::now() >= ends);
            if closed && (late || self.guests.iter().all(done)) {
                return;
            }
        }
    }

    /// Until somebody asks, can be sent more, or rings.
    fn wait(&self, closing: bool) -> io::Result<()> {
        let listeners = self.ports.iter().map(|port| &port.listener);
        let mut fds = vec![PollFd::new(&self.ears, PollFlags::IN)];
        fds.extend(listeners.map(|listener| PollFd::new(listener, PollFlags::IN)));
        for guest in &self.guests {
            let wanted = match guest.sent < guest.output.len() {
                true => PollFlags::IN | PollFlags::OUT,
                false => PollFlags::IN,
            };
            fds.push(PollFd::new(&guest.stream, wanted));
        }
        // Wakes up at intervals to check for idle connections.
        let patience = match (closing, self.guests.is_empty()) {
            (true, _) => Some(Timespec {
                tv_sec: 0,
                tv_nsec: 20_000_000,
            }),
            (false, false) => Some(Timespec {
                tv_sec: 5,
                tv_nsec: 0,
            }),
            (false, true) => None,
        };
        match poll(&mut fds, patience.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Empties the bell.
    fn listen(&self) {
        let mut rings = [0; 256];
        while matches!((&self.ears).read(&mut rings), Ok(1..)) {}
    }

    fn accept(&mut self) {
        for (nth, port) in self.ports.iter().enumerate() {
            loop {
                let stream = match port.listener.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => {
                        // For example no descriptors: without a pause this would loop at
                        // once.
                        std::thread::sleep(REST);
                        break;
                    }
                };
                let full = self.guests.len() >= CONNECTIONS;
                if full || stream.set_nonblocking(true).is_err() {
                    continue;
                }
                self.guests.push(Guest {
                    stream,
                    port: nth,
                    input: Vec::new(),
                    output: Vec::new(),
                    sent: 0,
                    phase: Phase::Asks,
                    moved: Instant::now(),
                });
            }
        }
    }

    fn work(&mut self) {
        let mut guests = std::mem::take(&mut self.guests);
        guests.retain_mut(|guest| self.attend(guest).is_ok());
        self.guests = guests;
    }

    /// What can be done for a guest without waiting. An error ends the connection.
    fn attend(&self, guest: &mut Guest) -> io::Result<()> {
        guest.read()?;
        if guest.phase == Phase::Asks {
            let port = &self.ports[guest.port];
            if let Some(wanted) = http::wanted(&guest.input, &port.serves, &self.name) {
                self.answer(guest, wanted);
            }
        }
        if let Phase::Follows(seen) = guest.phase
            && guest.sent == guest.output.len()
        {
            let (text, now) = self.shared.state().since(seen);
            guest.say(text.into_bytes());
            guest.phase = Phase::Follows(now);
        }
        guest.write()
    }

    fn answer(&self, guest: &mut Guest, wanted: Wanted) {
        guest.input = Vec::new();
        guest.phase = Phase::Hears;
        let plain = "text/plain; charset=utf-8";
        match wanted {
            Wanted::Page => {
                let nonce = super::random_hex();
                let policy = format!(
                    "Content-Security-Policy: {}\r\n",
                    jostle_report::live::policy(&nonce)
                );
                let page = jostle_report::live::page(&nonce);
                guest.say(http::answer(
                    200,
                    "text/html; charset=utf-8",
                    &policy,
                    &page,
                ));
            }
            Wanted::Events => {
                // The first events go with the head.
                let (text, now) = self.shared.state().since(Seen::NOTHING);
                guest.say([http::stream(), text.into_bytes()].concat());
                guest.phase = Phase::Follows(now);
            }
            Wanted::Metrics => {
                let text = self.shared.state().metrics();
                let kind = jostle_report::openmetrics::CONTENT_TYPE;
                guest.say(http::answer(200, kind, "", &text));
            }
            Wanted::Refused(status, why) => {
                guest.say(http::answer(status, plain, "", &format!("{why}\n")));
            }
        }
    }
}

impl Guest {
    /// Takes what has come. What comes after the request is not read into memory.
    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        // Limited, so that a guest that never stops sending does not delay the others.
        for _ in 0..8 {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) if self.phase == Phase::Asks => {
                    self.moved = Instant::now();
                    let room = HEAD_BYTES - self.input.len().min(HEAD_BYTES);
                    self.input.extend(&buffer[..length.min(room)]);
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        match self.phase == Phase::Asks && self.moved.elapsed() > PATIENCE {
            true => Err(ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }

    /// Replaces what has been sent.
    fn say(&mut self, output: Vec<u8>) {
        if self.sent == self.output.len() && !output.is_empty() {
            self.moved = Instant::now();
        }
        (self.output, self.sent) = (output, 0);
    }

    fn write(&mut self) -> io::Result<()> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => {
                    self.sent += length;
                    self.moved = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return match self.moved.elapsed() > PATIENCE {
                        true => Err(ErrorKind::TimedOut.into()),
                        false => Ok(()),
                    };
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        match self.phase {
            // Done: the connection ends.
            Phase::Hears => Err(ErrorKind::ConnectionAborted.into()),
            Phase::Asks | Phase::Follows(_) => Ok(()),
        }
    }
}
