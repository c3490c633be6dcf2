//! The workloads: a row for each, with the facts that the rest of the program needs.
//!
//! Workloads with the same kind of run share a [`Shape`]; a workload needs its own match
//! arm only where it differs.

use crate::plan::{Plan, words};
use crate::record::At;
use crate::swept::{self, Swept};
use serde::{Deserialize, Serialize};

words! {
    /// The pattern of operations.
    Workload {
        /// Workers contend for a lock: acquire, hold, release, idle.
        Contend = "contend",
        /// Each worker does so many operations back to back.
        Stream = "stream",
        /// Each worker acquires so many locks, holding all, then releases them.
        Hold = "hold",
        /// Opens so many connections and keeps them open.
        Connect = "connect",
        /// Sends requests at so many a second, whatever becomes of those before.
        Rate = "rate",
        /// Keeps so many requests in flight, spread over several generators.
        Spread = "spread",
        /// Strikes a fault while one owns the lock and others wait for it.
        Recover = "recover",
        /// Each worker opens a session, takes its lock once, and closes the session, so many
        /// times.
        Churn = "churn",
        /// Clients call a lock for a time while faults strike at random; is its promise kept?
        Verify = "verify",
    }
}

/// The kind of a workload's runs: what is swept, what ends them, and which processes work
/// in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Workers contend for a time.
    Contend,
    /// Workers do a number of operations, one after the other.
    Stream,
    /// Workers acquire a number of locks, and then release them.
    Hold,
    /// Connections grow from none to the greatest number.
    Connect,
    /// Requests come at times that were fixed before.
    Rate,
    /// Generators keep requests in flight for a time.
    Spread,
    /// A fault strikes.
    Recover,
    /// Many faults strike, for a time.
    Verify,
}

impl Shape {
    /// Whether a run has a window of time; else it ends with its operations.
    const fn has_window(self) -> bool {
        matches!(self, Shape::Contend | Shape::Rate | Shape::Spread)
    }

    /// The value that points of the sweep differ in, beside the number of workers.
    const fn swept(self) -> &'static Swept {
        match self {
            Shape::Contend => swept::WORKERS,
            Shape::Stream => swept::OPERATIONS,
            Shape::Hold => swept::KEYS,
            Shape::Connect => swept::OPEN,
            Shape::Rate => swept::RATE,
            Shape::Spread => swept::GENERATORS,
            // The points of `verify` differ in nothing.
            Shape::Recover | Shape::Verify => swept::FAULT,
        }
    }
}

/// A row of `FACTS`.
#[derive(Debug)]
pub struct Facts {
    /// Whose row it is.
    workload: Workload,
    /// How its runs go.
    shape: Shape,
    /// The default targets: for contention, the two kernel locks that differ most in their
    /// order of service; for operations, the daemon, beside a target without a server or
    /// one like the daemon's predecessor.
    pub targets: &'static [&'static str],
    /// Targets that make a useful comparison: for faults, a lock that survives them and one
    /// that does not.
    pub contrasts: &'static [&'static str],
    /// The word after "per" in sentences.
    pub per: &'static str,
    /// The page's name for an operation.
    pub drawn: &'static str,
    /// As throughput counts them there.
    pub per_second: &'static str,
    /// Whether each operation opens a session of its own and closes it; else each worker
    /// keeps one.
    pub session_each: bool,
    /// Whether `--quick` may leave out values that the plan does not name.
    pub may_drop: bool,
    /// The effect of `--quick`, for the help.
    pub quick: &'static str,
}

/// The values that most rows share.
const ROW: Facts = Facts {
    workload: Workload::Contend,
    shape: Shape::Contend,
    targets: &[],
    contrasts: &[],
    per: "lock",
    drawn: "lock",
    per_second: "locks/s",
    session_each: false,
    may_drop: false,
    quick: "Three runs of each point, and as many points as fit into a minute: a first look",
};

/// `WORKLOAD { field: value, ... }`, each a row whose other fields are those of [`ROW`].
macro_rules! facts {
    ($($workload:ident { $($field:ident: $value:expr),+ $(,)? })+) => {
        /// One row for each workload.
        const FACTS: &[Facts] =
            &[$(Facts { workload: Workload::$workload, $($field: $value,)+ ..ROW }),+];
    };
}

facts! {
    Contend {
        targets: &["flock", "sysv"],
        may_drop: true,
        quick: "Three runs of a quarter of a second for each point, and as many points as fit into \
                a minute: a first look",
    }
    Stream {
        shape: Shape::Stream, targets: &["lockd", "flock"],
        per: "operation", drawn: "operation", per_second: "ops/s", may_drop: true,
    }
    Hold {
        shape: Shape::Hold, targets: &["lockd", "chained"],
        drawn: "operation", per_second: "ops/s", may_drop: true,
    }
    Connect {
        shape: Shape::Connect, targets: &["tcp"],
        per: "connection", drawn: "connection", per_second: "connections/s",
        quick: "Three sweeps of each curve, as far as fits into a minute: a first look",
    }
    Rate {
        shape: Shape::Rate, targets: &["lockd"],
        per: "request", drawn: "request", per_second: "requests/s",
        quick: "Three runs of a second for each point, and as many points as fit into a \
                minute: a first look",
    }
    Spread {
        shape: Shape::Spread, targets: &["lockd"],
        per: "request", drawn: "request", per_second: "requests/s",
    }
    Recover {
        shape: Shape::Recover, targets: &["flock", "lockd"], contrasts: &["lockd", "redis"],
        quick: "Three runs of each target and fault: a first look",
    }
    Churn {
        shape: Shape::Stream, targets: &["lockd", "flock"],
        per: "cycle", drawn: "cycle", session_each: true, may_drop: true,
    }
    Verify {
        shape: Shape::Verify, targets: &["flock", "lockd"], contrasts: &["lockd", "redis"],
        quick: "Ten seconds for each target: a first look",
    }
}

// A row stands at the place of its workload.
const _: () = {
    assert!(FACTS.len() == Workload::ALL.len());
    let mut at = 0;
    while at < FACTS.len() {
        assert!(FACTS[at].workload as usize == at);
        at += 1;
    }
};

impl Plan {
    /// Sessions that the largest run opens and closes at its server, and those of one run of
    /// each point; None where each worker keeps one for a run.
    pub fn sessions(&self) -> Option<(u64, u64)> {
        let each = |at: At| at.workers.unwrap_or(1) * at.operations.unwrap_or(1);
        let one_by_one = self.workload.facts().session_each;
        let runs: Vec<u64> = At::swept(self).into_iter().map(each).collect();
        let largest = runs.iter().max().copied().filter(|_| one_by_one)?;
        Some((largest, runs.iter().sum()))
    }
}

impl Workload {
    /// Its row.
    pub const fn facts(self) -> &'static Facts {
        &FACTS[self as usize]
    }

    /// How its runs go.
    pub const fn shape(self) -> Shape {
        self.facts().shape
    }

    /// Whether a run has a window of time; else it ends with its operations.
    pub const fn has_window(self) -> bool {
        self.shape().has_window()
    }

    /// The value that points of the sweep differ in, beside the number of workers.
    pub const fn swept(self) -> &'static Swept {
        self.shape().swept()
    }
}
