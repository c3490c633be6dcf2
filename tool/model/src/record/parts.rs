//! Parts of a run: its window, what its workers used of the CPUs, and what surrounded it. In
//! the file their fields are fields of the run.

use super::{Accounts, Anchor, Causes, Counts, Interference, Look, Machine};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// The window of a run, and the time around it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Length of the window; for `stream` from the common start to the end of the last worker.
    pub window_s: f64,
    /// From the last arrival to the window.
    pub warmup_s: f64,
    /// From the first fork to the last worker ready.
    pub ramp_s: f64,
    /// From the end of the window to the last worker reaped.
    pub drain_s: f64,
    /// From the first arrival at the common start to the last.
    pub start_spread_ns: u64,
}

impl Window {
    /// Its length in nanoseconds.
    pub fn window_ns(&self) -> u64 {
        (self.window_s * 1e9).round() as u64
    }

    /// The longest of each that two hosts saw in one run.
    pub fn join(&mut self, other: &Window) {
        self.window_s = self.window_s.max(other.window_s);
        self.warmup_s = self.warmup_s.max(other.warmup_s);
        self.ramp_s = self.ramp_s.max(other.ramp_s);
        self.drain_s = self.drain_s.max(other.drain_s);
        self.start_spread_ns = self.start_spread_ns.max(other.start_spread_ns);
    }
}

/// The use of the CPUs by a run's workers.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// CPU time of the workers in the window, exact; absent if a clock could not be read at
    /// both edges (a worker died). For `connect` that of the client processes.
    pub cpu_s: Option<f64>,
    /// User part of `cpu_s`; see `cpu_split`.
    pub cpu_user_s: Option<f64>,
    /// System part of `cpu_s`; see `cpu_split`.
    pub cpu_system_s: Option<f64>,
    /// How the parts were obtained: `sampled`, or `exact`.
    pub cpu_split: Option<String>,
    /// The part of cpu_s that workers spun so that sleeping holds end on time; absent
    /// where none did.
    pub spun_s: Option<f64>,
    /// (cpu_s - spun_s) / operations; for requests (cpu_s + children_user_s +
    /// children_system_s) / all requests made, failed ones included.
    pub cpu_us_per_operation: Option<f64>,
    /// Share of the window that one reading of all CPU clocks took.
    pub cpu_read_share: Option<f64>,
    /// Times that a worker was put on a CPU within the window; absent without the kernel's
    /// schedstat, or where reading it would take over 1 % of the window.
    pub context_switches: Option<u64>,
    /// Time that workers were runnable but not running, summed.
    pub runqueue_wait_s: Option<f64>,
    /// CPU time of the processes that were started for requests, user.
    pub children_user_s: Option<f64>,
    /// CPU time of the processes that were started for requests, system.
    pub children_system_s: Option<f64>,
}

/// The name, among [`Circumstances::errors`], of a run that could not be made, or at whose end
/// the server failed what belongs to it.
pub const BROKE_OFF: &str = "broke_off";

/// The circumstances of a run, what went wrong in it, and what was planted. The keeper fills it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Circumstances {
    /// The kernel's counts of the workers' threads, from their arrival to their end (warm-up
    /// included): `preempted` (times that one lost its CPU although it could have gone on),
    /// `page_faults` (pages of memory that one waited for).
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub counts: Counts,
    /// The whole machine's work meanwhile.
    pub machine: Machine,
    /// How the looks at the server found it; absent where none of its processes is known, and in
    /// older files.
    pub server_stood: Option<Stood>,
    /// Who used the CPUs meanwhile, by the scheduler's clocks.
    pub accounts: Option<Box<Accounts>>,
    /// The profiler or tracer that ran along, as started, and whether it ended early.
    pub during: Option<String>,
    /// Failed calls by errno, answers that are not a success (`code 3`), `stuck_at_end`
    /// (workers that had to be killed), `handoff_before_release` (hand-offs that ended before
    /// they began by more than the clock's uncertainty), `broke_off` (the run could not be made,
    /// or its end failed on the server).
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub errors: BTreeMap<String, u64>,
    /// The first failure of each kind in words: which call, and the error of the system or the
    /// server.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub messages: Vec<String>,
    /// Looks outside the lock; empty where nothing went wrong.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub looks: Vec<Look>,
    /// The findings of an older version in its looks; newer files have the looks.
    pub causes: Option<Box<Causes>>,
    /// Workers, and servers that jostle launched, that ended too early, in words.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub deaths: Vec<String>,
    /// A specimen's own record of the whole run, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub truth: BTreeMap<String, f64>,
    /// Facts about the set-up, by name: `server_version` (each part behind the first in three
    /// digits: 3.004023 is 3.4.23, 15.018 is 15.18; older files have no third part), `slots`,
    /// `collisions`, `poll_interval_ns`, `poll_ns`, `refused_tries`, `lease_ns`,
    /// `lease_step_ns`, `lease_lag_ns` (by so much a lease may end late, since the service
    /// looks at its clock in steps: ZooKeeper's tickTime).
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub setup: BTreeMap<String, f64>,
    /// Times of the machine's own simplest acts, just before the run and just after it.
    pub anchor: Option<Anchor>,
    /// Interrupts and tracers that may have slowed our own threads; absent for `connect` and
    /// `recover`, and in older files.
    pub interference: Option<Box<Interference>>,
}

/// How looks at the server's processes while workers worked found them, every 20 ms.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stood {
    /// Looks.
    pub looks: u64,
    /// Those at which all of its processes stood still: stopped, traced or frozen.
    pub still: u64,
    /// Those of them at which a tracer held one.
    pub traced: u64,
    /// For how long the CPU quota of its control group kept that from running, summed over CPUs.
    pub throttled_s: Option<f64>,
}
