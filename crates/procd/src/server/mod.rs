//! The server around the procedures: some threads and one epoll.
//!
//! Every thread takes one event at a time, and does all that follows from it by
//! itself: accept, read, run the procedure, answer. A call costs one wake-up and
//! no hand-over, and a procedure that hangs holds up one thread alone, while its
//! gate ([`gate`]) keeps it from taking them all. Descriptors are armed for one
//! event (EPOLLONESHOT), so no two threads ever work on one connection.
//!
//! HTTP is `httparse` and this loop rather than a framework: the round trip of a
//! small request is what the engine exists for.

mod conn;
pub mod gate;
mod net;
mod work;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify;
use rustix::io::Errno;

use crate::catalog::{Catalog, Procedure};
use crate::config::Config;
use crate::http::{self, Answer, Progress};
use crate::spool::Spool;
use crate::stats::{ServerStats, count};
use conn::{Awaits, Came, Conn, Slots};
use gate::Entry;
use net::Listener;
use work::{Desk, Done};

/// Descriptors for other things than clients: each thread may open 16 files for
/// a procedure.
const SPARE_FILES: usize = 64;
/// Answers gathered before they are sent although more requests are there.
const OUT_BATCH: usize = 64 << 10;
/// How often timeouts are looked at, and the folder, should the kernel not tell
/// of its changes (network file systems).
const SWEEP: Duration = Duration::from_secs(1);
/// After which a changed file is looked at once more.
const SETTLE: Duration = Duration::from_millis(50);
/// How long accepting pauses when no more files can be opened.
const NO_FILES: Duration = Duration::from_millis(10);

// What an epoll event belongs to: connections use their places as they are.
const LISTENER: u64 = 1 << 32;
const STOP: u64 = 1 << 33;

/// Where log lines go.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address or socket path cannot be listened on.
    #[error("cannot listen on {place}: {error}")]
    Listen {
        /// Which.
        place: String,
        /// Why.
        error: io::Error,
    },
    /// A folder cannot be used.
    #[error("{}: {error}", path.display())]
    Folder {
        /// Which.
        path: std::path::PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A call that should not fail.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

impl From<Errno> for StartError {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// What all threads share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) catalog: Catalog,
    pub(crate) spool: Option<Arc<Spool>>,
    pub(crate) stats: ServerStats,
    pub(crate) log: Log,
    epoll: OwnedFd,
    /// Readable once the threads are to end.
    stop: OwnedFd,
    listeners: Vec<Listener>,
    slots: Slots,
    draining: AtomicBool,
}

/// A procedure engine that listens.
pub struct Server {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Server {
    /// Loads the procedures and opens everything that is listened on. From here
    /// on clients can connect; they are served by [`Server::run`].
    ///
    /// # Errors
    /// [`StartError`].
    pub fn bind(config: Config, log: Log) -> Result<Self, StartError> {
        let at = |path: &std::path::Path| {
            let path = path.to_owned();
            move |error| StartError::Folder { path, error }
        };
        let spool = match &config.spool {
            Some(path) => Some(Arc::new(Spool::open(path).map_err(at(path))?)),
            None => None,
        };
        let folder = match &config.procedures {
            crate::config::Procedures::Folder(path) => path.clone(),
            _ => std::path::PathBuf::new(),
        };
        let (catalog, look) = Catalog::load(config.procedures.clone()).map_err(at(&folder))?;
        look.news.iter().for_each(|line| log(line));
        let spare = SPARE_FILES + 16 * config.threads;
        let shared = Shared {
            slots: Slots::new(net::connections_that_fit(config.max_connections, spare)),
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            stop: eventfd(0, EventfdFlags::CLOEXEC)?,
            listeners: listen(&config)?,
            stats: ServerStats::default(),
            draining: AtomicBool::new(false),
            catalog,
            config,
            spool,
            log,
        };
        let once = EventFlags::IN | EventFlags::ONESHOT;
        for (index, listener) in shared.listeners.iter().enumerate() {
            let data = EventData::new_u64(LISTENER | index as u64);
            epoll::add(&shared.epoll, &listener.fd, data, once)?;
        }
        let data = EventData::new_u64(STOP);
        epoll::add(&shared.epoll, &shared.stop, data, EventFlags::IN)?;
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// The addresses that clients can connect to, with the ports that port 0
    /// became.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.shared.listeners.iter().filter_map(|l| l.address)
    }

    /// Connections that are allowed: fewer than configured where the limit of
    /// open files does not allow more.
    #[must_use]
    pub fn max_connections(&self) -> usize {
        self.shared.slots.len()
    }

    /// Serves until `stop` becomes readable, then drains: nobody is let in any
    /// more, calls that were begun are answered, for as long as
    /// [`Config::drain_timeout`] allows.
    ///
    /// # Errors
    /// Of the threads' start and of poll; no client can cause one.
    pub fn run(&mut self, stop: impl AsFd) -> io::Result<()> {
        let mut threads = Vec::new();
        for index in 0..self.shared.config.threads {
            let shared = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name(format!("procd-{index}"));
            threads.push(builder.spawn(move || Worker::new(&shared).work())?);
        }
        let watch = self.watch_folder();
        let served = self.supervise(stop.as_fd(), watch.as_ref());
        self.drain(threads);
        served
    }

    /// Tells of changes in the folder; without it the regular look must do.
    fn watch_folder(&self) -> Option<OwnedFd> {
        use inotify::{CreateFlags, WatchFlags};
        let folder = self.shared.catalog.folder()?;
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        let changes = WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::ATTRIB;
        inotify::add_watch(&fd, folder, changes).ok()?;
        Some(fd)
    }

    /// What nobody waits for: timeouts, and procedures that change.
    fn supervise(&self, stop: BorrowedFd<'_>, watch: Option<&OwnedFd>) -> io::Result<()> {
        let (mut unsettled, mut swept) = (false, Instant::now());
        loop {
            let mut fds = vec![PollFd::from_borrowed_fd(stop, PollFlags::IN)];
            fds.extend(watch.map(|fd| PollFd::new(fd, PollFlags::IN)));
            let pause = if unsettled { SETTLE } else { SWEEP };
            match poll(&mut fds, Some(&timespec(pause))) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !fds[0].revents().is_empty() {
                return Ok(());
            }
            let told = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
            if told {
                // What changed does not matter: the look finds out.
                let mut events = [0; 4096];
                while watch.is_some_and(|fd| rustix::io::read(fd, &mut events).is_ok()) {}
            }
            let due = swept.elapsed() >= SWEEP;
            if told || unsettled || due {
                let look = self.shared.catalog.refresh();
                look.news.iter().for_each(|line| (self.shared.log)(line));
                unsettled = look.unsettled;
                if told && unsettled {
                    // A busy folder must not be looked at without a pause.
                    thread::sleep(SETTLE);
                }
            }
            if due {
                swept = Instant::now();
                self.shared.sweep();
            }
        }
    }

    fn drain(&self, threads: Vec<thread::JoinHandle<()>>) {
        let shared = &self.shared;
        shared.draining.store(true, Release);
        shared.listeners.iter().for_each(Listener::close);
        let end = Instant::now() + shared.config.drain_timeout;
        loop {
            shared.close_idle();
            if shared.stats.open.load(Relaxed) == 0 || Instant::now() >= end {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        // If it fails, the process ends without them.
        let _ = rustix::io::write(&shared.stop, &1u64.to_ne_bytes());
        while Instant::now() < end && !threads.iter().all(thread::JoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(1));
        }
        // One that is still in a procedure ends with it, or with the process.
        for thread in threads.into_iter().filter(thread::JoinHandle::is_finished) {
            let _ = thread.join();
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    }
}

fn listen(config: &Config) -> Result<Vec<Listener>, StartError> {
    let failed = |place: String| move |error| StartError::Listen { place, error };
    let mut listeners = Vec::new();
    for address in &config.listen {
        let listener = Listener::tcp(*address, config.request_timeout);
        listeners.push(listener.map_err(failed(address.to_string()))?);
    }
    if let Some((path, mode)) = &config.unix {
        let listener = Listener::unix(path, *mode);
        listeners.push(listener.map_err(failed(path.display().to_string()))?);
    }
    Ok(listeners)
}

impl Shared {
    /// The engine is ending.
    fn draining(&self) -> bool {
        self.draining.load(Acquire)
    }

    /// A call has ended: the next one that waits may try.
    fn leave(&self, procedure: &Procedure) {
        let mut next = procedure.gate.leave();
        while let Some(slot) = next {
            if self.resume(slot) {
                return;
            }
            next = procedure.gate.next();
        }
    }

    /// Lets a connection go on that waits for its turn. It is made ready to be
    /// taken up by whichever thread is free: sockets can nearly always be
    /// written to.
    fn resume(&self, slot: u32) -> bool {
        let place = self.slots.lock(slot);
        let Some(conn) = place.as_ref().filter(|c| c.awaits == Awaits::Turn) else {
            return false;
        };
        self.arm(conn, slot, EventFlags::IN | EventFlags::OUT)
            .is_ok()
    }

    fn arm(&self, conn: &Conn, slot: u32, flags: EventFlags) -> Result<(), Errno> {
        let data = EventData::new_u64(slot.into());
        let flags = flags | EventFlags::ONESHOT;
        match epoll::modify(&self.epoll, &conn.fd, data, flags) {
            Err(Errno::NOENT) => epoll::add(&self.epoll, &conn.fd, data, flags),
            other => other,
        }
    }

    /// A connection has ended.
    fn close(&self, conn: Box<Conn>) {
        let slot = conn.slot;
        drop(conn);
        if let Some(slot) = slot {
            self.slots.release(slot);
        }
        self.stats.open.fetch_sub(1, Relaxed);
    }

    /// Closes connections that wait for too long.
    fn sweep(&self) {
        for slot in 0..self.slots.len() as u32 {
            let mut place = self.slots.lock(slot);
            let late = place.as_ref().is_some_and(|conn| {
                let patience = match conn.awaits {
                    Awaits::Request => self.config.idle_timeout,
                    _ => self.config.request_timeout,
                };
                conn.since.elapsed() > patience
            });
            if !late {
                continue;
            }
            let Some(mut conn) = place.take() else {
                continue;
            };
            drop(place);
            match conn.awaits {
                Awaits::Request => count(&self.stats.idle),
                // It is told, if it listens.
                Awaits::Turn => {
                    let _ = conn.transmit(&mut busy());
                }
                Awaits::Rest | Awaits::Reader => count(&self.stats.slow),
            }
            self.close(conn);
        }
        self.nudge();
    }

    /// Whoever was to go on may just have been closed: then the next one's turn
    /// has come, though nobody left.
    fn nudge(&self) {
        for procedure in self.catalog.snapshot().values() {
            let (running, waiting) = procedure.gate.load();
            if waiting > 0 && running < self.config.max_running {
                while procedure.gate.next().is_some_and(|slot| !self.resume(slot)) {}
            }
        }
    }

    /// Closes connections that wait for nothing but a next request.
    fn close_idle(&self) {
        for slot in 0..self.slots.len() as u32 {
            let mut place = self.slots.lock(slot);
            if place.as_ref().is_some_and(|c| c.awaits == Awaits::Request)
                && let Some(conn) = place.take()
            {
                drop(place);
                self.close(conn);
            }
        }
    }
}

/// What a call is told for which there is no time.
fn busy() -> Vec<u8> {
    let mut out = Vec::new();
    Answer {
        status: "503 Service Unavailable",
        exit_code: None,
        headers: "Failure: busy\r\nRetry-After: 1\r\n",
        body: b"too many calls of this procedure\n",
        head_only: false,
        close: true,
    }
    .write(&mut out);
    out
}

/// One thread.
struct Worker<'a> {
    shared: &'a Shared,
    desk: Desk,
    /// Buffers that connections need only while they are worked on.
    input: Vec<u8>,
    out: Vec<u8>,
}

/// What becomes of a connection after its turn.
enum Next {
    Close,
    Wait(Awaits),
    Line(Arc<Procedure>),
}

/// Takes leave of a client that was refused.
fn part(conn: &Conn) -> Next {
    match conn.discard() {
        Came::End => Next::Close,
        _ => Next::Wait(Awaits::Rest),
    }
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared) -> Worker<'a> {
        Worker {
            shared,
            desk: Desk::new(shared),
            input: Vec::new(),
            out: Vec::new(),
        }
    }

    fn work(mut self) {
        // One event at a time: a second one would wait for the first one's call.
        let mut events: Vec<epoll::Event> = Vec::with_capacity(1);
        loop {
            events.clear();
            let buffer = rustix::buffer::spare_capacity(&mut events);
            if epoll::wait(&self.shared.epoll, buffer, None).is_err() {
                continue;
            }
            for event in &events {
                match event.data.u64() {
                    STOP => return,
                    data if data & LISTENER != 0 => self.accept((data & !LISTENER) as usize),
                    slot => {
                        let conn = self.shared.slots.lock(slot as u32).take();
                        if let Some(conn) = conn {
                            self.turn(conn);
                        }
                    }
                }
            }
        }
    }

    fn accept(&mut self, index: usize) {
        let shared = self.shared;
        if shared.draining() {
            return;
        }
        let listener = &shared.listeners[index];
        let accepted = listener.accept();
        if matches!(
            accepted,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
        ) {
            thread::sleep(NO_FILES);
        }
        // Somebody else may accept while this thread is busy with this one.
        let data = EventData::new_u64(LISTENER | index as u64);
        let once = EventFlags::IN | EventFlags::ONESHOT;
        let _ = epoll::modify(&shared.epoll, &listener.fd, data, once);
        let Ok(fd) = accepted else {
            return;
        };
        let mut conn = Box::new(Conn::new(fd));
        if shared.stats.open.fetch_add(1, Relaxed) >= shared.slots.len() as u64 {
            count(&shared.stats.turned_away);
            let _ = conn.transmit(&mut busy());
            return shared.close(conn);
        }
        count(&shared.stats.connections);
        self.turn(conn);
    }

    /// Does what can be done for a connection, and puts it where it then belongs.
    fn turn(&mut self, mut conn: Box<Conn>) {
        let shared = self.shared;
        loop {
            let next = self.advance(&mut conn);
            let place = match next {
                Next::Close => None,
                _ => shared.slots.place_of(&mut conn),
            };
            let (Some(mut place), Some(slot)) = (place, conn.slot) else {
                return shared.close(conn);
            };
            let flags = match next {
                Next::Line(procedure) => {
                    conn.await_now(Awaits::Turn);
                    let config = &shared.config;
                    let (gate, stats) = (&procedure.gate, &procedure.stats);
                    match gate.wait(config.max_running, config.max_waiting, slot) {
                        Entry::Wait => {
                            *place = Some(conn);
                            return;
                        }
                        Entry::Run => {
                            // It became free just now: try again.
                            drop(place);
                            shared.leave(&procedure);
                            continue;
                        }
                        Entry::Refused => {
                            count(&stats.busy);
                            let _ = conn.transmit(&mut busy());
                            drop(place);
                            return shared.close(conn);
                        }
                    }
                }
                Next::Wait(Awaits::Reader) => EventFlags::OUT,
                _ => EventFlags::IN,
            };
            // Under the lock: whoever is told of the event finds it in place.
            if shared.arm(&conn, slot, flags).is_err() {
                drop(place);
                return shared.close(conn);
            }
            *place = Some(conn);
            return;
        }
    }

    fn advance(&mut self, conn: &mut Conn) -> Next {
        if !conn.output.is_empty() {
            if !conn.flush() {
                return Next::Close;
            }
            if !conn.output.is_empty() {
                return Next::Wait(Awaits::Reader);
            }
            if conn.closing && !conn.deaf {
                return Next::Close;
            }
        }
        if conn.deaf {
            return part(conn);
        }
        let mut input = if conn.input.is_empty() {
            std::mem::take(&mut self.input)
        } else {
            std::mem::take(&mut conn.input)
        };
        // What came before its wait is answered before more is read.
        let held_back = matches!(conn.awaits, Awaits::Turn | Awaits::Reader);
        let came = if held_back && !input.is_empty() {
            Came::Something
        } else {
            conn.receive(&mut input)
        };
        let next = match came {
            Came::Something => self.serve(conn, &mut input),
            Came::End => Next::Close,
            Came::Nothing if input.is_empty() => Next::Wait(Awaits::Request),
            Came::Nothing => Next::Wait(Awaits::Rest),
        };
        if input.is_empty() {
            self.input = input;
        } else {
            conn.input = input;
        }
        if let Next::Wait(what) = next {
            conn.await_now(what);
        }
        next
    }

    /// Answers the requests that `input` holds, and takes them out.
    fn serve(&mut self, conn: &mut Conn, input: &mut Vec<u8>) -> Next {
        let mut used = 0;
        let mut next = self.requests(conn, input, &mut used);
        input.drain(..used);
        if used > 0 {
            // The next request's time starts anew.
            conn.awaits = Awaits::Request;
            conn.since = Instant::now();
            conn.continued = false;
        }
        let mut out = std::mem::take(&mut self.out);
        if !out.is_empty() && !conn.transmit(&mut out) {
            out.clear();
            next = Next::Close;
        }
        self.out = out;
        if conn.output.is_empty() {
            return if conn.deaf { part(conn) } else { next };
        }
        // What it has not read keeps it from all else.
        match next {
            Next::Close if !conn.closing => Next::Close,
            _ => Next::Wait(Awaits::Reader),
        }
    }

    fn requests(&mut self, conn: &mut Conn, input: &[u8], used: &mut usize) -> Next {
        let shared = self.shared;
        while *used < input.len() {
            let rest = &input[*used..];
            let (request, length) = match http::parse(rest, shared.config.request) {
                Ok(Progress::Whole(request, length)) => (request, length),
                Ok(Progress::Partial { expects_continue }) => {
                    if expects_continue && !std::mem::replace(&mut conn.continued, true) {
                        self.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                    }
                    return Next::Wait(Awaits::Rest);
                }
                Err(refusal) => {
                    self.refuse(refusal);
                    conn.closing = true;
                    conn.deaf = true;
                    *used = input.len();
                    return Next::Wait(Awaits::Rest);
                }
            };
            let bytes = (&rest[..length], &request);
            match self.desk.answer(shared, bytes, &mut self.out) {
                Done::Busy(procedure) => return Next::Line(procedure),
                Done::Answered { close: false } => *used += length,
                Done::Answered { close: true } => {
                    conn.closing = true;
                    *used = input.len();
                    return Next::Close;
                }
            }
            if self.out.len() > OUT_BATCH {
                if !conn.transmit(&mut self.out) {
                    self.out.clear();
                    return Next::Close;
                }
                if !conn.output.is_empty() {
                    return Next::Wait(Awaits::Reader);
                }
            }
        }
        Next::Wait(Awaits::Request)
    }

    fn refuse(&mut self, refusal: http::Refusal) {
        count(&self.shared.stats.malformed);
        let (status, why) = refusal.status();
        Answer {
            status,
            exit_code: None,
            headers: "Content-Type: text/plain\r\n",
            body: format!("{why}\n").as_bytes(),
            head_only: false,
            close: true,
        }
        .write(&mut self.out);
    }
}
