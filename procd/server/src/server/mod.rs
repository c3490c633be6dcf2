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
mod shared;
mod work;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::thread;
use std::time::{Duration, Instant};

use jostle_daemon::limits;
use jostle_daemon::log::one_line;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify;
use rustix::io::Errno;

use crate::catalog::Catalog;
use crate::config::Config;
use crate::spool::Spool;
use crate::stats::ServerStats;
use conn::Slots;
use net::Listener;
use worker::Worker;

/// Descriptors for other things than clients: each thread may open 16 files for
/// a procedure.
const SPARE_FILES: usize = 64;
/// How often timeouts are checked. The folder is checked as well, in case the kernel
/// does not report its changes (network file systems).
const SWEEP: Duration = Duration::from_secs(1);
/// How long after a change a file is checked once more.
const SETTLE: Duration = Duration::from_millis(50);

// What an epoll event belongs to: connections use their places as they are.
const LISTENER: u64 = 1 << 32;
const STOP: u64 = 1 << 33;

/// The function that takes log lines.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address or socket path cannot be listened on.
    #[error("cannot listen on {place}: {error}")]
    Listen {
        /// The address or path.
        place: String,
        /// The system's error.
        error: io::Error,
    },
    /// A folder cannot be used.
    #[error("{}: {error}", path.display())]
    Folder {
        /// The folder.
        path: std::path::PathBuf,
        /// The system's error.
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

/// State that all threads share.
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
        let log: Log = Arc::new(move |line| log(&one_line(line)));
        let (catalog, look) = Catalog::load(config.procedures.clone()).map_err(at(&folder))?;
        look.news.iter().for_each(|line| log(line));
        let spare = SPARE_FILES + 16 * config.threads;
        let shared = Shared {
            slots: Slots::new(limits::connections_that_fit(config.max_connections, spare)),
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
    /// The system's, for the threads' start and for poll; no client can cause one.
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

    /// A descriptor that reports changes in the folder; without it only the regular
    /// checks find them.
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

    /// Work that no call waits for: timeouts, and procedures that change.
    fn supervise(&self, stop: BorrowedFd<'_>, watch: Option<&OwnedFd>) -> io::Result<()> {
        let (mut unsettled, mut swept) = (false, Instant::now());
        loop {
            let mut fds = vec![PollFd::from_borrowed_fd(stop, PollFlags::IN)];
            fds.extend(watch.map(|fd| PollFd::new(fd, PollFlags::IN)));
            let pause = if unsettled { SETTLE } else { SWEEP };
            let pause = Timespec::try_from(pause).map_err(io::Error::other)?;
            match poll(&mut fds, Some(&pause)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !fds[0].revents().is_empty() {
                return Ok(());
            }
            let told = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
            if told {
                // The events themselves do not matter: the refresh finds the changes.
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
            if shared.stats.connections_open.load(Relaxed) == 0 || Instant::now() >= end {
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
