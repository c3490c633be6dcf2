//! The server around the lock table: one thread, one epoll, no locks.
//!
//! Each turn of the loop (`turn`) takes the connections that are readable. It executes
//! what each has sent with one read, delivers the resulting grants to other clients at
//! once (`connections`), and answers with one write (`exchange`). When several
//! connections are ready, replies are kept back until the next ones have been executed.
//! The clock is read after each read: the bytes were sent before that time, so that a
//! lease never ends earlier than its client expects.

mod accounts;
mod audit;
#[cfg(feature = "tls")]
mod certificate;
mod commands;
mod conn;
mod connections;
mod drain;
pub(crate) mod errors;
mod exchange;
mod gate;
mod guesses;
#[cfg(feature = "ha")]
mod ha;
mod handover;
#[cfg(feature = "tls")]
mod handshake;
pub(crate) mod http;
pub(crate) mod info;
mod leases;
mod life;
pub(crate) mod net;
mod parts;
mod poll;
mod reload;
mod replies;
mod reserver;
mod rounds;
mod scrape;
mod setup;
pub(crate) mod stats;
mod storer;
mod stream;
mod sweep;
mod turn;

use std::os::fd::OwnedFd;

use rustix::time::{ClockId, clock_gettime};

use crate::config::Config;
use crate::table::{Table, Time};
use conn::Conn;
use gate::Gate;
use guesses::Failures;
use http::HttpConn;
use life::Life;
use parts::{Doors, Leases, Numbers, Turn, Workspace};
use poll::BusyPoll;
use reserver::Reserver;
use stats::Stats;

pub use errors::StartError;
#[cfg(feature = "ha")]
pub(crate) use ha::ORPHAN_MS;
#[cfg(feature = "ha")]
pub use ha::{Candidate, init};
pub use handover::prove;
pub use life::{Reload, Successor};
#[cfg(feature = "ha")]
pub(crate) use storer::{Answer, Ask};

// What an epoll event belongs to: clients use their numbers as they are.
const KIND_SHIFT: u32 = 60;
const LISTENER: u64 = 1 << KIND_SHIFT;
const HTTP: u64 = 2 << KIND_SHIFT;
const STOP: u64 = 3 << KIND_SHIFT;
const BELL: u64 = 4 << KIND_SHIFT;
const RELOAD: u64 = 5 << KIND_SHIFT;
#[cfg(feature = "tls")]
const SHAKEN: u64 = 6 << KIND_SHIFT;
const ASKED: u64 = 7 << KIND_SHIFT;
const CHECKED: u64 = 8 << KIND_SHIFT;
const READ: u64 = 9 << KIND_SHIFT;
const STORED: u64 = 10 << KIND_SHIFT;

/// A lock daemon that listens.
pub struct Server {
    config: Config,
    table: Table,
    epoll: OwnedFd,
    /// By client slot.
    conns: Vec<Option<Box<Conn>>>,
    http: Vec<Option<HttpConn>>,
    doors: Doors,
    turn: Turn,
    work: Workspace,
    life: Life,
    reserver: Option<Reserver>,
    leases: Leases,
    gate: Option<Box<Gate>>,
    /// The group that it serves.
    #[cfg(feature = "ha")]
    ha: Option<Box<ha::Ha>>,
    stats: Stats,
    numbers: Numbers,
    failures: Failures,
    /// Lines of `--audit` of this turn.
    audited: Vec<String>,
    /// Bytes in all clients' buffers, as of each client's last turn.
    buffered: usize,
    /// Bytes of buffers freed since the last call of [`jostle_sys::heap::trim`].
    freed: usize,
    /// The time that was read last.
    clock: Time,
    busy_poll: BusyPoll,
    next_sweep: Time,
}

impl Server {
    /// Nanoseconds of the system's monotonic clock.
    #[inline]
    fn now(&mut self) -> Time {
        self.clock = now();
        self.clock
    }
}

fn now() -> Time {
    let time = clock_gettime(ClockId::Monotonic);
    Time(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
