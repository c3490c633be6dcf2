//! Threads that serve the page, its events and the metrics: one for each port, and one for each
//! connection. They sleep until a request arrives or the state changes, about once a second.
//! Nobody waits for a reader: a slow one misses states between, and one that reads nothing is
//! disconnected.

use super::http::{self, Serves, Wanted};
use super::state::{Seen, State};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Connections at a time; further ones are closed at once.
const CONNECTIONS: usize = 64;
/// How long a request may take to arrive, and a reader may read nothing.
const PATIENCE: Duration = Duration::from_secs(20);
/// After a connection that could not be taken.
const REST: Duration = Duration::from_millis(100);
/// How long the end of the run waits for readers to take the last event.
const FAREWELL: Duration = Duration::from_millis(500);
/// Stack of a thread.
const STACK: usize = 256 << 10;

/// State that the measuring side and the server share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    connections: AtomicUsize,
    followers: AtomicUsize,
}

impl Shared {
    /// The state so far.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those who follow the state.
    pub(super) fn ring(&self) {
        self.changed.notify_all();
    }

    /// Waits for what a page has not seen. None after the last of it.
    fn news(&self, seen: Seen) -> Option<(String, Seen)> {
        let is_known = |state: &mut State| !state.closed && state.latest == seen;
        let state = self.changed.wait_while(self.state(), is_known);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        Some(state.since(seen)).filter(|(_, now)| *now != seen)
    }
}

/// One of those that a counter counts.
struct Counted(Arc<Shared>, fn(&Shared) -> &AtomicUsize);

impl Counted {
    fn new(shared: &Arc<Shared>, counter: fn(&Shared) -> &AtomicUsize) -> Counted {
        counter(shared).fetch_add(1, SeqCst);
        Counted(Arc::clone(shared), counter)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.1)(&self.0).fetch_sub(1, SeqCst);
        self.0.ring();
    }
}

/// The threads, which end with the process.
#[derive(Debug)]
pub(super) struct LiveServer(Arc<Shared>);

/// A port and what it serves.
#[derive(Debug)]
pub(super) struct Port {
    listener: TcpListener,
    serves: Serves,
}

fn thread(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("jostle-live".to_owned());
    thread.stack_size(STACK).spawn(run).map(drop)
}

impl Port {
    /// Binds an address.
    ///
    /// # Errors
    /// The system's: it is in use, or not of this machine.
    pub(super) fn bind(address: SocketAddr, serves: Serves) -> io::Result<Port> {
        let listener = TcpListener::bind(address)?;
        Ok(Port { listener, serves })
    }

    /// Where it is.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    fn serve(&self, shared: &Arc<Shared>) {
        loop {
            // For example no descriptors: without a pause this would loop at once.
            let Ok((stream, _)) = self.listener.accept() else {
                std::thread::sleep(REST);
                continue;
            };
            if shared.connections.load(SeqCst) >= CONNECTIONS {
                continue;
            }
            let one = Counted::new(shared, |shared| &shared.connections);
            let serves = self.serves.clone();
            // One that is refused or cut off ends, and nobody needs to know why.
            let _ = thread(move || drop(attend(&stream, &serves, &one.0)));
        }
    }
}

impl LiveServer {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system's: no threads.
    pub(super) fn start(ports: Vec<Port>) -> io::Result<LiveServer> {
        let server = LiveServer(Arc::default());
        for port in ports {
            let shared = Arc::clone(&server.0);
            thread(move || port.serve(&shared))?;
        }
        Ok(server)
    }

    /// The state that they share with the measuring side.
    pub(super) fn shared(&self) -> &Shared {
        &self.0
    }
}

impl Drop for LiveServer {
    /// Lets readers have the last event, for a moment.
    fn drop(&mut self) {
        let shared = &self.0;
        shared.state().close();
        shared.ring();
        let ends = Instant::now() + FAREWELL;
        while shared.followers.load(SeqCst) > 0 && Instant::now() < ends {
            let left = ends.saturating_duration_since(Instant::now());
            let waited = shared.changed.wait_timeout(shared.state(), left);
            drop(waited);
        }
    }
}

/// Answers a connection's request. An error ends the connection.
fn attend(mut stream: &TcpStream, serves: &Serves, shared: &Arc<Shared>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let name = rustix::system::uname();
    let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
    let wanted = loop {
        if let Some(wanted) = http::wanted(&head, serves, &name.nodename().to_string_lossy()) {
            break wanted;
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => head.extend(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    };
    let answer = match wanted {
        Wanted::Page => {
            let nonce = super::random_hex();
            let policy = jostle_report::live::policy(&nonce);
            let policy = format!("Content-Security-Policy: {policy}\r\n");
            let page = jostle_report::live::page(&nonce);
            http::answer(200, "text/html; charset=utf-8", &policy, &page)
        }
        Wanted::Events => return follow(stream, shared),
        Wanted::Metrics => {
            let text = shared.state().metrics();
            let kind = jostle_report::openmetrics::CONTENT_TYPE;
            http::answer(200, kind, "", &text)
        }
        Wanted::Refused(status, why) => {
            http::answer(status, "text/plain; charset=utf-8", "", &format!("{why}\n"))
        }
    };
    stream.write_all(&answer)?;
    // Bytes that were not read would reset the connection before the answer is read.
    stream.shutdown(Shutdown::Write)?;
    for _ in 0..8 {
        if stream.read(&mut buffer)? == 0 {
            break;
        }
    }
    Ok(())
}

/// Sends events until the run is over.
fn follow(mut stream: &TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    let _one = Counted::new(shared, |shared| &shared.followers);
    stream.write_all(&http::stream())?;
    let mut seen = Seen::NOTHING;
    while let Some((text, now)) = shared.news(seen) {
        stream.write_all(text.as_bytes())?;
        seen = now;
    }
    Ok(())
}
