//! The work of the workers of a run: one variant for each workload that has workers, with what only
//! this workload has.
//!
//! `connect` and `recover` have no workers, and orders of their own.

use super::{AskOrder, ContendOrder, HoldOrder, RateOrder, RequestOrder, SpreadOrder, StreamOrder};
use jostle_model::plan::{Names, Range};
use jostle_model::time::Nanos;
use serde::{Deserialize, Serialize};

/// By workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum WorkloadOrder {
    /// `contend`.
    Contend(ContendOrder),
    /// `stream` of a lock.
    Stream(StreamOrder),
    /// `stream` of what is asked.
    Ask(AskOrder),
    /// `hold`.
    Hold(HoldOrder),
    /// `rate`.
    Rate(RateOrder),
    /// `spread`.
    Spread(SpreadOrder),
}

/// A workload's requirements on a lock, so that it is prepared for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wants {
    /// Shared acquisitions.
    pub shared: bool,
    /// Acquisitions that give up after a time.
    pub timed: bool,
    /// Byte ranges.
    pub range: Range,
    /// The file opened for each acquisition.
    pub open_each: bool,
    /// Several locks held by one worker.
    pub holds_many: bool,
    /// Locks whose leases workers renew.
    pub kept: bool,
    /// With this lease; None: the target's usual one.
    pub lease: Option<Nanos>,
}

impl Wants {
    /// One exclusive lock, waited for.
    const PLAIN: Wants = Wants {
        shared: false,
        timed: false,
        range: Range::Same,
        open_each: false,
        holds_many: false,
        kept: false,
        lease: None,
    };
}

impl WorkloadOrder {
    /// Whether a run has a window of time; else it ends with its operations.
    pub fn has_window(&self) -> bool {
        self.operations().is_none()
    }

    /// Operations of each worker, where their number ends the run, and not a time.
    pub fn operations(&self) -> Option<u64> {
        match self {
            WorkloadOrder::Stream(stream) => Some(stream.operations),
            WorkloadOrder::Ask(ask) => Some(ask.operations),
            WorkloadOrder::Hold(hold) => Some(hold.operations),
            WorkloadOrder::Contend(_) | WorkloadOrder::Rate(_) | WorkloadOrder::Spread(_) => None,
        }
    }

    /// This order with no more than so many operations of each worker.
    pub fn of_at_most(mut self, most: u64) -> WorkloadOrder {
        let operations = match &mut self {
            WorkloadOrder::Stream(stream) => &mut stream.operations,
            WorkloadOrder::Ask(ask) => &mut ask.operations,
            WorkloadOrder::Hold(hold) => &mut hold.operations,
            WorkloadOrder::Contend(_) | WorkloadOrder::Rate(_) | WorkloadOrder::Spread(_) => {
                return self;
            }
        };
        *operations = most.min(*operations);
        self
    }

    /// How long locks are kept in the middle of a run.
    pub fn keeps(&self) -> Nanos {
        match self {
            WorkloadOrder::Hold(hold) => hold.keep,
            WorkloadOrder::Contend(_)
            | WorkloadOrder::Stream(_)
            | WorkloadOrder::Ask(_)
            | WorkloadOrder::Rate(_)
            | WorkloadOrder::Spread(_) => Nanos::ZERO,
        }
    }

    /// This order without keeping, for runs that only tell how long an operation takes.
    pub fn without_keeping(mut self) -> WorkloadOrder {
        if let WorkloadOrder::Hold(hold) = &mut self {
            (hold.keep, hold.lease) = (Nanos::ZERO, None);
        }
        self
    }

    /// Requests of a lock's protocol that are sent at once.
    pub fn pipeline(&self) -> usize {
        match self {
            WorkloadOrder::Stream(stream) => stream.pipeline,
            WorkloadOrder::Hold(hold) => hold.pipeline,
            WorkloadOrder::Contend(_)
            | WorkloadOrder::Ask(_)
            | WorkloadOrder::Rate(_)
            | WorkloadOrder::Spread(_) => 1,
        }
    }

    /// The requests; None where workers take locks instead of sending requests.
    pub fn requests(&self) -> Option<&RequestOrder> {
        match self {
            WorkloadOrder::Ask(ask) => Some(&ask.requests),
            WorkloadOrder::Rate(rate) => Some(&rate.requests),
            WorkloadOrder::Spread(spread) => Some(&spread.requests),
            WorkloadOrder::Contend(_) | WorkloadOrder::Stream(_) | WorkloadOrder::Hold(_) => None,
        }
    }

    /// Its requirements on a lock.
    pub fn wants(&self) -> Wants {
        match self {
            WorkloadOrder::Contend(contend) => Wants {
                shared: contend.shared > 0.0,
                timed: contend.acquire_timeout.is_some(),
                range: contend.range,
                open_each: contend.open_each,
                ..Wants::PLAIN
            },
            WorkloadOrder::Hold(hold) => Wants {
                holds_many: hold.operations > 1,
                kept: hold.keep > Nanos::ZERO,
                lease: hold.lease,
                ..Wants::PLAIN
            },
            WorkloadOrder::Stream(_)
            | WorkloadOrder::Ask(_)
            | WorkloadOrder::Rate(_)
            | WorkloadOrder::Spread(_) => Wants::PLAIN,
        }
    }

    /// Whether all workers want the same locks, one owner after the other, with a grant
    /// that is known by itself.
    pub fn meets(&self) -> bool {
        match self {
            WorkloadOrder::Contend(_) => true,
            WorkloadOrder::Stream(stream) => stream.names == Names::One && stream.pipeline <= 1,
            WorkloadOrder::Ask(_)
            | WorkloadOrder::Hold(_)
            | WorkloadOrder::Rate(_)
            | WorkloadOrder::Spread(_) => false,
        }
    }

    /// How long workers may finish what they are at, after the window's end, before
    /// their waits are ended. A request that is cut off may have been served all the
    /// same, and counted.
    pub fn grace(&self) -> Nanos {
        match self {
            WorkloadOrder::Rate(_) | WorkloadOrder::Spread(_) => Nanos::from_millis(1_000),
            WorkloadOrder::Contend(_)
            | WorkloadOrder::Stream(_)
            | WorkloadOrder::Ask(_)
            | WorkloadOrder::Hold(_) => Nanos::ZERO,
        }
    }

    /// The longest that an owner keeps its lock.
    pub(crate) fn longest_hold(&self) -> Nanos {
        match self {
            WorkloadOrder::Contend(contend) => contend.hold.span(),
            WorkloadOrder::Stream(_)
            | WorkloadOrder::Ask(_)
            | WorkloadOrder::Hold(_)
            | WorkloadOrder::Rate(_)
            | WorkloadOrder::Spread(_) => Nanos::ZERO,
        }
    }
}
