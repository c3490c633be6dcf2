//! The side that connects: opens its share, rests at each listed number, hands
//! over to the next process, and closes when told to.

use super::board::{Board, BoardHistogram, Count, Own, UNKNOWN, order};
use jostle_sys::clock::{self, Clock};
use jostle_sys::{process, signal};
use jostle_targets::endpoint::{Failed, Plug, call, lost};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

/// Between two looks at whether the server has caught up.
const CATCH_UP: Duration = Duration::from_micros(100);

/// The task of one client process.
#[derive(Debug)]
pub struct Client<'a> {
    /// The board that all share.
    pub board: &'a Board,
    /// Makes the connections.
    pub plug: Plug<'a>,
    /// For stamps.
    pub clock: Clock,
    /// Its number among all processes, and of its kind.
    pub number: usize,
    /// Client processes.
    pub clients: usize,
    /// Connections that it can carry.
    pub each: u64,
    /// Numbers at which it rests, ascending; the last is where it ends.
    pub listed: &'a [u64],
    /// Connections that may wait to be accepted; None where nobody tells.
    pub backlog: Option<u64>,
    /// Time between two intended starts; None: one after the other.
    pub interval_ns: Option<f64>,
    /// Sockets are bound and not connected.
    pub bind_only: bool,
}

/// The resources of a client process.
struct Held {
    /// Its connections, in the order of opening.
    fds: Vec<OwnedFd>,
    /// Connections that others had opened before its first one.
    before: u64,
    /// The last order that it has seen.
    order: u32,
}

impl Client<'_> {
    /// Its whole life. Returns its exit code.
    pub fn live(&self) -> i32 {
        let mut held = Held {
            fds: Vec::new(),
            before: 0,
            order: self.board.await_order(self.number, order::WAIT),
        };
        if held.order == order::WORK {
            self.open(&mut held);
        }
        while held.order != order::CLOSE {
            self.await_order(&mut held);
        }
        self.close(held.fds);
        0
    }

    fn open(&self, held: &mut Held) {
        self.board.set_own(self.number, Own::Working, 1);
        let most = self.listed.last().copied().unwrap_or(0);
        let first = self.board.get(Count::Opened);
        let share = self.each.min(most - first) as usize;
        held.fds.reserve_exact(share);
        held.before = first;
        let mut stretch = self.board.stretch(first + 1);
        if first == 0 {
            self.board
                .count(Count::Began)
                .store(self.clock.now(), Relaxed);
        }
        let mut accepted = first;
        let mut base = self.listed.iter().rev().find(|n| **n <= first).copied();
        for nth in first + 1..=first + share as u64 {
            if self.board.count(Count::Stop).load(Relaxed) != 0 {
                break;
            }
            match self.one(nth, stretch, nth - 1 - base.unwrap_or(0), &mut accepted) {
                Ok(fd) => held.fds.push(fd),
                Err(failed) => {
                    self.fail(nth, failed);
                    break;
                }
            }
            self.board.count(Count::Opened).store(nth, Release);
            if nth == self.board.ends()[stretch] {
                stretch += 1;
                if self.listed.binary_search(&nth).is_ok() {
                    self.rest(held);
                    if held.order == order::CLOSE {
                        break;
                    }
                    base = Some(nth);
                }
            }
        }
        self.report(held.fds.len());
        if self
            .listed
            .binary_search(&self.board.get(Count::Opened))
            .is_err()
        {
            self.board
                .count(Count::Ended)
                .store(self.clock.now(), Relaxed);
        }
        let full = held.fds.len() == share && first + (share as u64) < most;
        if full && self.number + 1 < self.clients {
            self.board.order(self.number + 1, order::WORK);
        }
        self.board.set_own(self.number, Own::Working, 0);
        self.board.ring();
    }

    /// One connection, `since` after the last rest; what is measured lies between stamps, one call each.
    #[inline]
    fn one(
        &self,
        nth: u64,
        stretch: usize,
        since: u64,
        accepted: &mut u64,
    ) -> Result<OwnedFd, Failed> {
        self.let_catch_up(nth, accepted)?;
        let intended = self.keep_pace(since);
        let fd = self.plug.socket(nth)?;
        if self.plug.binds() {
            let before = self.clock.now();
            self.plug.bind(&fd, nth)?;
            let took = self.clock.now() - before;
            self.board.note(stretch, BoardHistogram::Bind, took);
        }
        if self.bind_only {
            return Ok(fd);
        }
        let before = self.clock.now();
        self.plug.connect(&fd, nth)?;
        let after = self.clock.now();
        let figure = match self.plug.port(&fd)? {
            Some(port) if port % 2 == 1 => BoardHistogram::Odd,
            _ => BoardHistogram::Even,
        };
        self.board.note(stretch, figure, after - before);
        if let Some(intended) = intended {
            self.board.note(
                stretch,
                BoardHistogram::Response,
                after.saturating_sub(intended),
            );
        }
        Ok(fd)
    }

    /// Connections that the server has not accepted fill its backlog, and one
    /// too many would be dropped and sent again a second later. The server's
    /// count is looked at only when what was seen last no longer suffices: each
    /// look takes its cache line away from the server.
    #[inline]
    fn let_catch_up(&self, nth: u64, accepted: &mut u64) -> Result<(), Failed> {
        let Some(backlog) = self.backlog else {
            return Ok(());
        };
        while nth - *accepted > backlog {
            *accepted = self.board.count(Count::Accepted).load(Relaxed);
            if nth - *accepted <= backlog {
                break;
            }
            if signal::interrupted() {
                return Err(Failed {
                    call: call::ACCEPT,
                    errno: Errno::TIMEDOUT,
                });
            }
            std::thread::sleep(CATCH_UP);
        }
        Ok(())
    }

    /// Waits for the intended start of a connection, and gives it.
    #[inline]
    fn keep_pace(&self, since: u64) -> Option<u64> {
        let interval = self.interval_ns?;
        let began = self.board.count(Count::Began).load(Relaxed);
        let intended = began + (since as f64 * interval) as u64;
        let now = self.clock.now();
        if intended > now {
            clock::sleep(intended - now, signal::interrupted);
        } else {
            let lag = self.board.count(Count::Lag);
            lag.store(lag.load(Relaxed).max(now - intended), Relaxed);
        }
        Some(intended)
    }

    /// At a listed number: the keeper reads its figures before we go on.
    fn rest(&self, held: &mut Held) {
        self.report(held.fds.len());
        self.board
            .count(Count::Ended)
            .store(self.clock.now(), Relaxed);
        let reached = self.board.get(Count::Reached) + 1;
        self.board.set(Count::Reached, reached);
        self.board.ring();
        self.await_order(held);
        self.board
            .count(Count::Began)
            .store(self.clock.now(), Relaxed);
    }

    /// Sleeps until the next order that is not to look; carries out orders to look.
    fn await_order(&self, held: &mut Held) {
        loop {
            held.order = self.board.await_order(self.number, held.order);
            if !order::is_look(held.order) {
                return;
            }
            self.look(held);
        }
    }

    /// Counts the connections that the peer has closed or reset.
    fn look(&self, held: &Held) {
        let (count, first) = match lost(&held.fds) {
            Ok(lost) => {
                let number = |index| held.before + index as u64 + 1;
                (lost.count, lost.first.map_or(0, number))
            }
            Err(_) => (UNKNOWN, 0),
        };
        self.board.set_own(self.number, Own::Lost, count);
        self.board.set_own(self.number, Own::FirstLost, first);
        // What looking takes is of no listed number.
        self.report(held.fds.len());
        self.board
            .set_own(self.number, Own::Looked, u64::from(held.order));
        self.board.ring();
    }

    fn report(&self, carries: usize) {
        let usage = process::own_usage();
        self.board.set_own(self.number, Own::User, usage.user_ns);
        self.board
            .set_own(self.number, Own::System, usage.system_ns);
        self.board
            .set_own(self.number, Own::Carries, carries as u64);
    }

    fn fail(&self, nth: u64, failed: Failed) {
        // Only the keeper interrupts, when nothing has moved for long.
        let errno = match failed.errno {
            Errno::INTR if signal::interrupted() => Errno::TIMEDOUT,
            errno => errno,
        };
        self.board.set_own(self.number, Own::For, nth);
        self.board
            .set_own(self.number, Own::Errno, errno.raw_os_error() as u64);
        self.board
            .set_own(self.number, Own::Call, failed.call as u64 + 1);
        self.board.ring();
    }

    /// Closes all, the first ones first, and passes the turn on.
    fn close(&self, fds: Vec<OwnedFd>) {
        let mut open = self.board.get(Count::Opened) - self.board.get(Count::Closed);
        for fd in fds {
            let stretch = self.board.stretch(open.max(1));
            let before = self.clock.now();
            drop(fd);
            self.board
                .note(stretch, BoardHistogram::Close, self.clock.now() - before);
            open -= 1;
            self.board.count(Count::Closed).fetch_add(1, Relaxed);
        }
        if self.number + 1 < self.clients {
            self.board.order(self.number + 1, order::CLOSE);
        }
        self.board.ring();
    }
}
