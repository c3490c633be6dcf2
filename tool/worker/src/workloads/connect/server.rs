//! The side that accepts: waits on its listening sockets, accepts whatever is
//! there, hands its place to another process when it is full, and closes when
//! told to.

use super::board::{Board, BoardHistogram, Count, Own, order};
use jostle_model::connect::Accept;
use jostle_sys::clock::Clock;
use jostle_sys::process;
use jostle_targets::endpoint::{Failed, call};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

/// How often it looks up from waiting: at its orders, and at whether the keeper
/// wants to know its usage.
const LOOK_UP_NS: i64 = 10_000_000;

/// The task of one server process.
#[derive(Debug)]
pub struct Server<'a> {
    /// The board that all share.
    pub board: &'a Board,
    /// Listening sockets, by lane; one lane where all share.
    pub listening: &'a [Vec<OwnedFd>],
    /// How they are shared.
    pub accept: Accept,
    /// For stamps.
    pub clock: Clock,
    /// Its number among all processes.
    pub number: usize,
    /// The number of the first server, and how many there are.
    pub first: usize,
    /// See `first`.
    pub servers: usize,
    /// Connections that it can carry.
    pub each: u64,
}

impl Server<'_> {
    /// Its whole life. Returns its exit code.
    pub fn live(&self) -> i32 {
        let mut fds = Vec::new();
        if self.board.await_order(self.number, order::WAIT) == order::WORK {
            match self.accept_all(&mut fds) {
                Ok(()) => {}
                Err(failed) => self.fail(failed),
            }
            self.board.set_own(self.number, Own::Working, 0);
            self.board.await_order(self.number, order::WORK);
        }
        self.close(fds);
        0
    }

    fn lane(&self) -> usize {
        self.board.own(self.number, Own::Lane) as usize
    }

    /// Until it is full or told to close.
    fn accept_all(&self, fds: &mut Vec<OwnedFd>) -> Result<(), Failed> {
        let system = |errno| Failed {
            call: call::ACCEPT,
            errno,
        };
        let lane = self.lane();
        let listening = &self.listening[lane.min(self.listening.len() - 1)];
        let watch = self.watch(listening).map_err(system)?;
        self.board.set_own(self.number, Own::Working, 1);
        let mut events = Vec::with_capacity(listening.len());
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK_UP_NS,
        };
        let mut reported = 0;
        while self.board.own(self.number, Own::Order) == u64::from(order::WORK) {
            events.clear();
            match epoll::wait(
                &watch,
                rustix::buffer::spare_capacity(&mut events),
                Some(&timeout),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(system(errno)),
            }
            for event in &events {
                self.drain(&listening[event.data.u64() as usize], lane, fds)
                    .map_err(system)?;
            }
            self.report_if_asked(&mut reported, fds.len());
            if fds.len() as u64 >= self.each {
                // Before the successor looks: it must not be woken in our place.
                drop(watch);
                self.report(fds.len());
                self.hand_over(lane);
                return Ok(());
            }
        }
        self.report(fds.len());
        Ok(())
    }

    fn watch(&self, listening: &[OwnedFd]) -> Result<OwnedFd, Errno> {
        let watch = epoll::create(CreateFlags::CLOEXEC)?;
        let how = match self.accept {
            Accept::EpollExclusive => EventFlags::IN | EventFlags::EXCLUSIVE,
            Accept::Shared | Accept::ReusePort => EventFlags::IN,
        };
        for (nth, fd) in listening.iter().enumerate() {
            epoll::add(&watch, fd, EventData::new_u64(nth as u64), how)?;
        }
        Ok(watch)
    }

    /// Whatever waits on one socket.
    #[inline]
    fn drain(&self, listening: &OwnedFd, lane: usize, fds: &mut Vec<OwnedFd>) -> Result<(), Errno> {
        while (fds.len() as u64) < self.each {
            let before = self.clock.now();
            match accept_with(listening, SocketFlags::CLOEXEC) {
                Ok(fd) => {
                    let took = self.clock.now() - before;
                    let nth = self.board.count(Count::Accepted).fetch_add(1, AcqRel) + 1;
                    self.board
                        .note(self.board.stretch(nth), BoardHistogram::Accept(lane), took);
                    fds.push(fd);
                }
                Err(Errno::AGAIN) => return Ok(()),
                // The client gave up; a signal woke us.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn hand_over(&self, lane: usize) {
        let next = self.board.count(Count::Standby).fetch_add(1, AcqRel) as usize;
        if next < self.servers {
            self.board
                .set_own(self.first + next, Own::Lane, lane as u64);
            self.board.order(self.first + next, order::WORK);
        }
    }

    fn report_if_asked(&self, reported: &mut u64, carries: usize) {
        let asked = self.board.get(Count::Report);
        if asked != *reported {
            *reported = asked;
            self.report(carries);
            self.board.set_own(self.number, Own::Reported, asked);
        }
    }

    fn report(&self, carries: usize) {
        let usage = process::own_usage();
        self.board.set_own(self.number, Own::User, usage.user_ns);
        self.board
            .set_own(self.number, Own::System, usage.system_ns);
        self.board
            .set_own(self.number, Own::Carries, carries as u64);
    }

    fn fail(&self, failed: Failed) {
        let nth = self.board.get(Count::Accepted) + 1;
        self.board.set_own(self.number, Own::For, nth);
        self.board
            .set_own(self.number, Own::Errno, failed.errno.raw_os_error() as u64);
        self.board
            .set_own(self.number, Own::Call, failed.call as u64 + 1);
        self.board.set(Count::Stop, 1);
        self.board.ring();
    }

    fn close(&self, fds: Vec<OwnedFd>) {
        let lane = self.lane();
        let accepted = self.board.get(Count::Accepted);
        for fd in fds {
            let open = accepted - self.board.count(Count::ServerClosed).load(Relaxed);
            let stretch = self.board.stretch(open.max(1));
            let before = self.clock.now();
            drop(fd);
            let took = self.clock.now() - before;
            self.board
                .note(stretch, BoardHistogram::ServerClose(lane), took);
            self.board.count(Count::ServerClosed).fetch_add(1, Relaxed);
        }
        let next = self.number + 1;
        if next < self.first + self.servers {
            self.board.order(next, order::CLOSE);
        }
        self.board.ring();
    }
}
