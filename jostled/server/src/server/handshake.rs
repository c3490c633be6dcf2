//! TLS handshakes, in a thread of their own.
//!
//! A signature takes up to some milliseconds, and any client can ask for one before it
//! gives a password. On the event loop, a few hundred of them would stop all clients.
//! Connections come back to the server once they are encrypted.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustls::{ServerConfig, ServerConnection};

use super::stream::Socket;

/// A client that has connected.
pub(crate) struct Guest {
    /// Its place in the order of all connections.
    pub(crate) number: u64,
    pub(crate) fd: OwnedFd,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) tls: ServerConnection,
}

/// State shared by both threads.
struct Common {
    /// Wakes the thread: there are new clients, or the server is gone.
    wake: OwnedFd,
    /// Wakes the server: handshakes are done.
    bell: OwnedFd,
    /// Clients not yet given back to the server.
    pending: AtomicUsize,
    failed: AtomicU64,
    /// The number of the client that has shaken hands for the longest time.
    oldest: AtomicU64,
    /// How many of the oldest are to be closed, since newcomers need their places.
    surplus: AtomicUsize,
}

/// The server's side.
pub(crate) struct Handshakes {
    /// For the clients that come from now on.
    pub(crate) tls: Arc<ServerConfig>,
    hand: Option<Sender<Guest>>,
    done: Receiver<Guest>,
    common: Arc<Common>,
}

impl Handshakes {
    /// Starts the thread. Clients have `patience` for the whole handshake.
    pub(crate) fn start(tls: Arc<ServerConfig>, patience: Option<Duration>) -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let common = Arc::new(Common {
            wake: eventfd(0, flags)?,
            bell: eventfd(0, flags)?,
            pending: AtomicUsize::new(0),
            failed: AtomicU64::new(0),
            oldest: AtomicU64::new(u64::MAX),
            surplus: AtomicUsize::new(0),
        });
        let (hand, arrivals) = channel();
        let (give, done) = channel();
        let worker = Worker {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            arrivals,
            give,
            common: Arc::clone(&common),
            guests: BTreeMap::new(),
            patience,
        };
        let data = EventData::new_u64(WAKE);
        epoll::add(&worker.epoll, &common.wake, data, EventFlags::IN)?;
        std::thread::Builder::new()
            .name("handshakes".into())
            .spawn(move || worker.work())?;
        Ok(Self {
            tls,
            hand: Some(hand),
            done,
            common,
        })
    }

    /// Begins a handshake.
    pub(crate) fn begin(&self, number: u64, fd: OwnedFd, peer: Option<SocketAddr>) -> Option<()> {
        let tls = ServerConnection::new(self.tls.clone()).ok()?;
        self.common.pending.fetch_add(1, Relaxed);
        let guest = Guest {
            number,
            fd,
            peer,
            tls,
        };
        self.hand.as_ref()?.send(guest).ok()?;
        ring(&self.common.wake);
        Some(())
    }

    /// The number of the oldest client whose handshake is not done; `u64::MAX`: none.
    pub(crate) fn oldest(&self) -> u64 {
        self.common.oldest.load(Relaxed)
    }

    /// Lets the oldest one go.
    pub(crate) fn close_oldest(&self) {
        self.common.surplus.fetch_add(1, Relaxed);
        ring(&self.common.wake);
    }

    /// Becomes readable when a handshake is done.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.common.bell.as_fd()
    }

    /// Clients whose handshakes are not done.
    pub(crate) fn pending(&self) -> usize {
        self.common.pending.load(Relaxed)
    }

    /// Handshakes that failed, or took too long.
    pub(crate) fn failed(&self) -> u64 {
        self.common.failed.load(Relaxed)
    }

    /// The next one that is done.
    pub(crate) fn take(&self) -> Option<Guest> {
        let guest = self.done.try_recv().ok()?;
        self.common.pending.fetch_sub(1, Relaxed);
        Some(guest)
    }

    /// Clears the bell. Call it before [`Self::take`]: a later ring is for other clients.
    pub(crate) fn hush(&self) {
        hush(&self.common.bell);
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        self.hand = None;
        ring(&self.common.wake);
    }
}

fn ring(bell: &OwnedFd) {
    // It cannot fail: nobody rings 2^64 times.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

fn hush(bell: &OwnedFd) {
    let _ = rustix::io::read(bell, &mut [0; 8]);
}

const WAKE: u64 = 0;
/// How often clients that are too slow are closed.
const SWEEP: Duration = Duration::from_secs(1);

/// The thread.
struct Worker {
    epoll: OwnedFd,
    arrivals: Receiver<Guest>,
    give: Sender<Guest>,
    common: Arc<Common>,
    guests: BTreeMap<u64, (Guest, Instant)>,
    patience: Option<Duration>,
}

/// How far a handshake has come.
enum Progress {
    Done,
    Waits,
    Failed,
}

impl Worker {
    fn work(mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        let mut swept = Instant::now();
        loop {
            events.clear();
            let pause = (!self.guests.is_empty()).then_some(SWEEP);
            let pause = pause.and_then(|pause| Timespec::try_from(pause).ok());
            let buffer = rustix::buffer::spare_capacity(&mut events);
            if epoll::wait(&self.epoll, buffer, pause.as_ref()).is_err() {
                continue;
            }
            for event in &events {
                match event.data.u64() {
                    WAKE => {
                        if !self.welcome() {
                            return;
                        }
                    }
                    id => self.step(id),
                }
            }
            if swept.elapsed() >= SWEEP {
                swept = Instant::now();
                self.sweep();
            }
            for _ in 0..self.common.surplus.swap(0, Relaxed) {
                let closed = self.guests.pop_first();
                self.lose(closed.map_or(0, |_| 1));
            }
            let oldest = self.guests.first_key_value();
            let oldest = oldest.map_or(u64::MAX, |(number, _)| *number);
            self.common.oldest.store(oldest, Relaxed);
        }
    }

    /// Takes in new clients; false: there is no server any more.
    fn welcome(&mut self) -> bool {
        hush(&self.common.wake);
        loop {
            let guest = match self.arrivals.try_recv() {
                Ok(guest) => guest,
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            };
            let id = guest.number;
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
            let data = EventData::new_u64(id);
            if epoll::add(&self.epoll, &guest.fd, data, flags).is_err() {
                self.lose(1);
                continue;
            }
            self.guests.insert(id, (guest, Instant::now()));
        }
    }

    fn step(&mut self, id: u64) {
        let Some((guest, _)) = self.guests.get_mut(&id) else {
            return;
        };
        let progress = advance(guest);
        if matches!(progress, Progress::Waits) {
            return;
        }
        let Some((guest, _)) = self.guests.remove(&id) else {
            return;
        };
        let _ = epoll::delete(&self.epoll, &guest.fd);
        let sent = matches!(progress, Progress::Done) && self.give.send(guest).is_ok();
        if sent {
            ring(&self.common.bell);
        } else {
            self.lose(1);
        }
    }

    fn sweep(&mut self) {
        let before = self.guests.len();
        if let Some(patience) = self.patience {
            self.guests
                .retain(|_, (_, since)| since.elapsed() <= patience);
        }
        self.lose(before - self.guests.len());
    }

    fn lose(&self, count: usize) {
        self.common.pending.fetch_sub(count, Relaxed);
        self.common.failed.fetch_add(count as u64, Relaxed);
    }
}

/// Continues a handshake as far as the received bytes allow. Bytes behind it are left
/// to the server.
fn advance(guest: &mut Guest) -> Progress {
    let Guest { fd, tls, .. } = guest;
    match tls.complete_io(&mut Socket(fd)) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Progress::Failed,
        // The client may have gone as soon as it had said all.
        _ if !tls.is_handshaking() => Progress::Done,
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Progress::Failed,
        _ => Progress::Waits,
    }
}
