//! Orders of the parent to the keeper, and the replies: plain data, so that it can be sent to a
//! process here, and to other hosts.

mod connect;
mod contend;
mod data;
mod hold;
mod rate;
mod recover;
mod requests;
mod run;
mod running;
mod spread;
mod stream;
mod verify;
mod workload;

pub use connect::{Closed, Demand, Lost, Reached, SideData, SweepOrder};
pub use contend::ContendOrder;
pub use contend::NO_TIME;
pub use data::{
    Attempts, CpuData, CpuTimes, EachWorker, GrantLog, HoldPhases, Merged, RunData, SliceData,
    Total,
};
pub use hold::{HoldOrder, LEASES, idle_ns};
pub use rate::{OpenLoopData, OpenLoopOrder, RateOrder};
pub use recover::{RecoverData, RecoverOrder};
pub use requests::{PhaseData, RequestData, RequestOrder};
pub use run::{CostOrder, RunOrder, Share, Together};
pub use running::{Running, SHARES, Used, shares};
pub use spread::{Sides, SpreadData, SpreadOrder};
pub use stream::{AskOrder, StreamOrder};
pub use verify::{VerifyData, VerifyOrder};
pub use workload::{Wants, WorkloadOrder};

use jostle_model::plan::Place;
use jostle_model::record::Latencies;
use jostle_model::time::Nanos;
use serde::{Deserialize, Serialize};

/// From the parent to the keeper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Do this and answer with `Ran`.
    Run(Box<RunOrder>),
    /// Do this and answer with `Cost`.
    Cost(Box<CostOrder>),
    /// Do this, answer with `Reached` for each listed number and with `Closed` at
    /// the end.
    Sweep(Box<SweepOrder>),
    /// Do this and answer with `Recovered`.
    Recover(Box<RecoverOrder>),
    /// Do this and answer with `Verified`.
    Verify(Box<VerifyOrder>),
    /// Measure what the machine's simplest acts take, and answer with `Latencies`.
    Latencies {
        /// The process that sleeps.
        timer_slack: Nanos,
    },
    /// The workers of a run together begin at this time of `CLOCK_MONOTONIC`; those
    /// of a sweep do so after each listed number too.
    Go {
        /// In nanoseconds.
        at_ns: u64,
    },
    /// All hosts have drained, or none opens more: finish, and answer with `Ran`, or
    /// with `Closed`.
    Conclude,
    /// End what is in progress and answer it with `Failed`.
    Abort,
}

/// From the keeper to the parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The keeper is ready.
    Ready,
    /// The workers of a run or sweep together are ready.
    Prepared,
    /// They have all ended.
    Drained,
    /// How far a run or sweep is that somebody watches. The reply that it is over follows.
    Running(Box<Running>),
    /// The run's data.
    Ran(Box<RunData>),
    /// For each block: nanoseconds a pair with counting alone, in full, without
    /// stamps, without witness.
    Cost(Vec<[f64; 4]>),
    /// The fate of a lock after a fault.
    Recovered(Box<RecoverData>),
    /// The findings of a long time of faults.
    Verified(Box<VerifyData>),
    /// The times of the machine's simplest acts, if they could be measured.
    Latencies(Option<Latencies>),
    /// A listed number of connections is open, or as many as there can be.
    Reached(Box<Reached>),
    /// All are closed again.
    Closed(Box<Closed>),
    /// The run failed; the message is for the user.
    Failed(String),
}

/// The CPUs that workers are dealt; empty: wherever they like.
pub fn cpus(place: &Place, allowed: &[usize]) -> Vec<usize> {
    match place {
        Place::None => Vec::new(),
        Place::Same => allowed.iter().take(1).copied().collect(),
        Place::Cross => allowed.to_vec(),
        Place::Cpus(cpus) => cpus.clone(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use jostle_model::plan::{Carrier, Measure};

    /// One worker of `contend`.
    pub(crate) fn contend(target: &str) -> RunOrder {
        RunOrder {
            target: target.to_owned(),
            workload: WorkloadOrder::Contend(ContendOrder::bare()),
            workers: 1,
            carrier: Carrier::Processes,
            generator_threads: 1,
            cpus: Vec::new(),
            server_cpus: Vec::new(),
            warmup: Nanos::ZERO,
            window: Nanos::from_millis(1_000),
            measure: Measure::Full,
            stamp_every: 1,
            keys: 1,
            slots: 1,
            members: 1,
            wait_replicas: 0,
            credentials: None,
            timer_slack: Nanos::from_micros(1),
            during: None,
            server: None,
            clock_uncertainty: Nanos::ZERO,
            log_grants: 0,
            watched: false,
            together: None,
            place: Place::None,
            share: None,
            seed: 1,
        }
    }
}
