//! Requests: the capability of targets that answer requests. The target is a server, or a
//! program that is started for each call.
//!
//! A target makes what all workers share ([`RequestTarget::prepare`]), each worker makes
//! its own [`Caller`] ([`Requests::join`]), and [`Caller::call`] is the measured call. It
//! stamps the end of each phase into [`Phases`] and returns the code of the answer.
//! Counting, checking the code and scheduling the next request are up to the workload.
//!
//! A new target is a file with a [`RequestTarget`] and its name in `REQUESTS` of
//! `jostle-targets`.

use crate::{CallError, Entry, Locks, ServerFigures, Setup, SetupError};
use jostle_model::plan::Connection;
use jostle_sys::clock::Clock;
use jostle_sys::process::Usage;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// The parts that a request may have at most.
pub const MOST_PHASES: usize = 6;

/// The stamps of one request.
#[derive(Clone, Copy, Debug)]
pub struct Phases {
    clock: Clock,
    began: u64,
    last: u64,
    spans: [Option<u64>; MOST_PHASES],
}

impl Phases {
    /// A request begins now, and with it its first phase.
    #[inline]
    pub fn begin(clock: Clock) -> Phases {
        let now = clock.now();
        Phases {
            clock,
            began: now,
            last: now,
            spans: [None; MOST_PHASES],
        }
    }

    /// This phase has ended, and the one that follows begins. A phase that a
    /// request does not have (a connection that is there already) is left out.
    #[inline]
    pub fn end(&mut self, phase: usize) {
        self.end_at(phase, self.clock.now());
    }

    /// This phase ended at this stamp, which is not older than the end of the phase before.
    #[inline]
    pub fn end_at(&mut self, phase: usize, stamp: u64) {
        if let Some(span) = self.spans.get_mut(phase) {
            *span = Some(span.unwrap_or(0) + stamp.saturating_sub(self.last));
        }
        self.last = stamp.max(self.last);
    }

    /// Where stamps come from.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Stamp of the beginning.
    pub fn began(&self) -> u64 {
        self.began
    }

    /// Stamp of the end of the latest phase.
    pub fn ended(&self) -> u64 {
        self.last
    }

    /// Nanoseconds of a phase, if the request had it.
    pub fn span(&self, phase: usize) -> Option<u64> {
        self.spans.get(phase).copied().flatten()
    }
}

/// The result of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Exit code, result code or status, as the target numbers them.
    pub code: u32,
    /// CPU time of a process that was started for it.
    pub child: Usage,
}

/// One worker's side of the requests.
pub trait Caller {
    /// Makes one request and waits for its answer. `nth` replaces `{n}`.
    ///
    /// # Errors
    /// The call that failed; ETIMEDOUT where no answer came in time; EINTR where
    /// the keeper ended the wait, which is no failure of the target.
    fn call(&mut self, nth: u64, phases: &mut Phases) -> Result<Answer, CallError>;

    /// As [`Lock::part`](crate::Lock::part).
    ///
    /// # Errors
    /// EPROTO where an answer came that no request had asked for.
    fn part(&mut self) -> Result<(), CallError> {
        Ok(())
    }
}

/// Something that answers requests of many workers.
pub trait Requests: fmt::Debug + Sync {
    /// The names of a request's phases, in their order, at most [`MOST_PHASES`].
    fn phases(&self) -> &'static [&'static str];

    /// The side of worker number `worker`, made by the worker itself.
    ///
    /// # Errors
    /// In words for the user, with the remedy.
    fn join(&self, worker: usize) -> Result<Box<dyn Caller + '_>, SetupError>;

    /// Whether a server answers, so that the server can be the bottleneck; false where this
    /// machine does the work of a call itself.
    fn is_remote(&self) -> bool {
        true
    }

    /// Whether an answer with this code is a success, unless the user states the expected
    /// codes.
    fn is_success(&self, code: u32) -> bool {
        code == 0
    }

    /// A code as results name it.
    fn code_name(&self, code: u32) -> String {
        code.to_string()
    }

    /// The server's counts, asked before and after a run; None where there is no server, or none
    /// that counts.
    ///
    /// # Errors
    /// In words for the user, where it cannot be asked.
    fn server(&self) -> Result<Option<ServerFigures>, SetupError> {
        Ok(None)
    }

    /// The locks behind them, where a request is an acquisition and a release.
    fn locks(&self) -> Option<&dyn Locks> {
        None
    }
}

/// The setup of a target of requests.
#[derive(Clone, Copy, Debug)]
pub struct RequestSetup<'a> {
    /// The setup that every target gets.
    pub base: &'a Setup<'a>,
    /// How long one request may take.
    pub timeout: Duration,
    /// Where the output of started programs goes; None: nowhere.
    pub output: Option<&'a Path>,
    /// The connections that requests use; None: the target's default.
    pub connection: Option<Connection>,
    /// The log in which the server's own counts are read.
    pub server_log: Option<&'a Path>,
}

/// A line of `REQUESTS`.
#[derive(Debug)]
pub struct RequestTarget {
    /// As in the table of locks.
    pub entry: Entry,
    /// Makes what all workers share. Everything that could outlive the run is
    /// recorded in the ledger.
    pub prepare: fn(&RequestSetup<'_>) -> Result<Box<dyn Requests>, SetupError>,
    /// A request that does nothing, as typed. Subtracting its cost from a request's leaves the
    /// target's own cost.
    pub null: Option<&'static str>,
    /// The usual time of a request on two virtual CPUs, in nanoseconds, for the text after the
    /// colon. It is an estimate for use before anything is measured.
    pub usual_ns: fn(Option<&str>) -> u64,
    /// Where its server listens if the address names no port.
    pub usual_port: Option<u16>,
}

#[cfg(test)]
mod live_tests {
    use super::*;

    #[test]
    fn phases_follow_each_other_and_some_are_left_out() {
        let mut phases = Phases::begin(Clock::new());
        phases.end(0);
        std::thread::sleep(Duration::from_millis(2));
        phases.end(2);
        assert_eq!(phases.span(1), None);
        assert!(phases.span(2).unwrap() >= 1_900_000);
        let sum = phases.span(0).unwrap() + phases.span(2).unwrap();
        assert_eq!(sum, phases.ended() - phases.began());
        phases.end(MOST_PHASES); // no such phase: time passes all the same
        assert!(phases.ended() > phases.began() + sum);
    }
}
