//! The versioned records of the result file: JSON Lines, one record a line.
//!
//! Field names carry their unit. What was not measured is absent, never zero.
//! The comments on fields are for readers of the file: `jostle explain FIELD` prints them.
//! Their links start in `tool/docs`.
//! These types are the file's format and nothing else: workers fold into shared pages of
//! their own layout.

mod accounts;
mod at;
mod causes;
mod count;
mod distribution;
mod environment;
mod exclusion;
mod facts;
mod fit;
mod interference;
mod judged;
mod kept;
mod parts;
mod recovery;
mod resume;
mod run;
mod spread;
mod times;
mod verdict;
mod verified;
mod waiting;

pub use accounts::{Accounts, Latencies, Neighbour, Readings};
pub use at::At;
pub use causes::{Came, Causes, Look, LookedAt, Process, Sign, Signs, When, sign};
pub use count::{Count, Counts};
pub use distribution::{Buckets, Distribution, Percentiles, Waits};
pub use environment::{Calibration, Environment, OwnCost};
pub use exclusion::{Across, Exclusion};
pub use facts::{SERVER_VERSION, TargetFacts};
pub use fit::{Fit, FitBend, FitLaw, FitPart, Interval, Usl};
pub use interference::{Interference, Interrupts};
pub use judged::{Judged, MainFigure};
pub use kept::Kept;
pub use parts::{BROKE_OFF, Circumstances, Cpu, Stood, Window};
pub use recovery::{Delays, Event, Recovery, Struck, ToldBy, What};
pub use resume::{Resumed, RunTimes, Scheduled};
pub use run::{
    Anchor, Machine, Null, PerWorker, Phase, Run, Server, ServerTraffic, Slice, TcpCounts,
    TcpQueues, Workers,
};
pub use spread::{GeneratorProcess, Spread, ThreadLoad};
pub use times::Times;
pub use verdict::{Bound, Claim, LimitedBy, Reason, Status, Verdict};
pub use verified::{Belongs, Excerpt, ExcerptLine, FaultSeen, Promise, Verified, Violation};

use crate::calibrated::Calibrated;
use crate::connect::Closing;
use crate::judged::{Doubled, Watched};
use crate::plan::Plan;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version that this build writes.
pub const SCHEMA: &str = "jostle/3";

/// The versions that this build reads. Before `jostle/3` the record of a run is called
/// `point`. In `jostle/1` a run's own verdict is called `verdict`, reasons have a text and
/// no data, and points have no verdict of their own.
pub const READS: [&str; 3] = ["jostle/1", "jostle/2", SCHEMA];

/// One line of a result file. [`crate::serial`] reads and writes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "record", rename_all = "lowercase")]
pub enum Record {
    /// Opens an experiment; everything up to its `end` belongs to it.
    Experiment(Box<Experiment>),
    /// The decisions before the first run; after the experiment.
    Scheduled(Box<Scheduled>),
    /// The experiment was resumed after a break.
    Resumed(Box<Resumed>),
    /// One run of one point.
    Run(Box<Run>),
    /// How the connections of a point were closed.
    Closing(Box<Closing>),
    /// The verdict of a point over all its runs; after its points.
    Verdict(Box<Judged>),
    /// How a figure grows over a sweep; after its points.
    Fit(Box<Fit>),
    /// Closes an experiment.
    End(End),
    /// A calibration's findings, after the experiments on which it rests.
    Calibrated(Box<Calibrated>),
    /// A foreign load generator that `jostle judge` watched; it stands for itself.
    Judged(Box<Watched>),
    /// The result of pairs of a load and its double; after the runs of the pairs.
    Doubled(Box<Doubled>),
}

/// The plan, the machine, and the tool's calibration on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// The version, `jostle/3`.
    pub schema: String,
    /// The resolved plan; it can be run again as it is.
    pub plan: Plan,
    /// The machine and what bends a measurement on it.
    pub environment: Environment,
    /// The tool's calibration before the first run.
    pub calibration: Calibration,
    /// Facts by target as typed. A target without facts is absent; older files have none, and
    /// their targets are known by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub target_facts: BTreeMap<String, TargetFacts>,
    /// Wall-clock start, RFC 3339 in UTC: a label, never part of a measurement.
    pub started_at: String,
}

/// How an experiment ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The exit code: 0 done, 1 the experiment failed, 3 a point is INVALID (over all its
    /// runs), 130 interrupted, 143 terminated.
    pub exit: u8,
    /// Why it ended early, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Wall time of the whole experiment, monotonic.
    pub elapsed_s: f64,
}
