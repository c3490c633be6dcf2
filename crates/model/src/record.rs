//! The versioned records of the result file: JSON Lines, one record a line.
//!
//! Field names carry their unit. What was not measured is absent, never zero.
//! `docs/results.md` describes every field for readers of the file; a field is
//! added there in the same commit. These types are the file's format and
//! nothing else: workers fold into shared pages of their own layout.

use crate::calibrated::{Calibrated, Specimens};
use crate::connect::{self, Closing, Connections};
use crate::hosts::{HostCeiling, HostHere, HostPart};
use crate::open_loop::OpenLoop;
use crate::plan::{Plan, Workload};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version that this build writes and reads.
pub const SCHEMA: &str = "jostle/1";

/// One line of a result file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase")]
pub enum Record {
    /// Opens an experiment; everything up to its `end` belongs to it.
    Experiment(Box<Experiment>),
    /// One run of one point.
    Point(Box<Point>),
    /// How the connections of a point were closed.
    Closing(Box<Closing>),
    /// How a figure grows over a sweep; after its points.
    Fit(Box<Fit>),
    /// Closes an experiment.
    End(End),
    /// What a calibration found, after the experiments on which it rests.
    Calibrated(Box<Calibrated>),
}

/// What was asked for, where, and how good the tool itself is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// [`SCHEMA`].
    pub schema: String,
    /// The resolved plan; it can be run again as it is.
    pub plan: Plan,
    /// The machine and what bends a measurement on it.
    pub environment: Environment,
    /// What the tool found out about itself before the first run.
    pub calibration: Calibration,
    /// Wall-clock start, RFC 3339 in UTC: a label, never part of a measurement.
    pub started_at: String,
}

/// The machine on which an experiment ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Host name.
    pub host: String,
    /// `uname -sr`.
    pub kernel: String,
    /// CPU model as the kernel names it.
    pub cpu_model: String,
    /// CPUs that this process may use.
    pub cores: u64,
    /// Frequency governor of the first CPU, where the kernel offers one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// The kernel's clock source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_clock_source: Option<String>,
    /// Clock ticks that CPU accounting is sampled with, or `exact`.
    pub cpu_accounting: String,
    /// Whether soft interrupts count as CPU time of the task that they interrupt;
    /// absent where that could not be told.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub softirq_in_tasks: Option<bool>,
    /// Physical memory.
    pub memory_bytes: u64,
    /// Memory available at the start.
    pub memory_available_bytes: u64,
    /// Share of CPU time stolen by the hypervisor since boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steal_share_since_boot: Option<f64>,
    /// Limits that matter, by name (`RLIMIT_NOFILE soft`, `pids.max`, ...).
    pub limits: BTreeMap<String, String>,
    /// cgroup of this process, `v1` or `v2` with its path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// File system of each target's path, by target as typed.
    pub file_systems: BTreeMap<String, String>,
    /// Entries of the kernel's hash tables for sockets, by the kernel's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub hash_sizes: BTreeMap<String, u64>,
    /// All hosts by rank, where there are several; everything else here is rank 0's.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub hosts: Vec<HostHere>,
    /// jostle's version and commit.
    pub jostle: String,
    /// Which C library the locks of `pthread*` and `posix-sem` come from.
    pub libc: String,
}

/// What the tool measured of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// `rdtscp` or `CLOCK_MONOTONIC`.
    pub clock: String,
    /// Cost of one stamp, median.
    pub stamp_ns: f64,
    /// Half-width of the offset between any two CPUs' clocks; absent with one CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_uncertainty_ns: Option<f64>,
    /// The tool's cost beside each target's own, by target as typed.
    pub own_cost: BTreeMap<String, OwnCost>,
    /// The last `jostle calibrate` with this build on this machine; absent where
    /// there was none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub specimens: Option<Specimens>,
    /// What each host could do by itself, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub host_ceilings: Vec<HostCeiling>,
}

/// One interleaved block: one uncontended worker, no hold, no idle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnCost {
    /// Acquire and release with counting alone.
    pub pair_ns: f64,
    /// With stamps, histograms and witness.
    pub full_ns: f64,
    /// With the witness, without stamps and histograms.
    pub no_stamps_ns: f64,
    /// With stamps and histograms, without the witness.
    pub no_witness_ns: f64,
    /// What `full` adds to a cycle: the median over blocks of full - pair.
    pub added_ns: f64,
    /// Lowest and highest of that over the blocks.
    pub added_range_ns: [f64; 2],
    /// One operation in this many is stamped, so that the cost stays small.
    pub stamp_every: u64,
}

/// The swept values of a point; what is not swept is absent.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct At {
    /// Contending workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u64>,
    /// Operations of each worker.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub operations: Option<u64>,
    /// Locks that each worker holds at the peak.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub keys: Option<u64>,
    /// Connections that are open.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub open: Option<u64>,
    /// Other sockets that listen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub listeners: Option<u64>,
    /// Source addresses of the connections.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sources: Option<u64>,
    /// Requests a second that are offered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate: Option<u64>,
    /// Generators over which the requests in flight are spread.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub generators: Option<u64>,
}

impl At {
    /// The points that a resolved plan asks of each target, in its order.
    pub fn swept(plan: &Plan) -> Vec<At> {
        if plan.workload == Workload::Connect {
            return connect::swept(plan);
        }
        let of = |list: &Option<crate::List>| list.as_ref().map_or(Vec::new(), |l| l.0.clone());
        if plan.workload == Workload::Spread {
            let at = |generators| At {
                generators: Some(generators),
                ..At::default()
            };
            return of(&plan.generators).into_iter().map(at).collect();
        }
        let workers = of(&plan.workers);
        let second = match plan.workload {
            Workload::Contend | Workload::Connect | Workload::Spread => vec![None],
            Workload::Stream => of(&plan.operations).into_iter().map(Some).collect(),
            Workload::Hold => of(&plan.keys).into_iter().map(Some).collect(),
            Workload::Rate => of(&plan.rate).into_iter().map(Some).collect(),
        };
        let at = |workers: u64, second: Option<u64>| At {
            workers: Some(workers),
            operations: second.filter(|_| plan.workload == Workload::Stream),
            keys: second.filter(|_| plan.workload == Workload::Hold),
            rate: second.filter(|_| plan.workload == Workload::Rate),
            ..At::default()
        };
        workers
            .iter()
            .flat_map(|workers| second.iter().map(move |second| at(*workers, *second)))
            .collect()
    }
}

/// One run of one point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The target as typed.
    pub target: String,
    /// The verb.
    pub workload: String,
    /// The swept values.
    pub at: At,
    /// Which repeat, from 1.
    pub run: u32,
    /// In which block it ran, from 1; runs of one block are pairs.
    pub block: u32,
    /// The window, as it was.
    pub window_s: f64,
    /// From the last arrival to the window.
    pub warmup_s: f64,
    /// From the first fork to the last worker ready.
    pub ramp_s: f64,
    /// From the end of the window to the last worker reaped.
    pub drain_s: f64,
    /// From the first arrival at the common start to the last.
    pub start_spread_ns: u64,
    /// Acquisitions granted within the window.
    pub operations: u64,
    /// operations / window_s.
    pub throughput_per_s: f64,
    /// What an ideal lock would reach; absent where nothing bounds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling_per_s: Option<f64>,
    /// throughput_per_s / ceiling_per_s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_ideal: Option<f64>,
    /// CPU time of the workers within the window, exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
    /// User part of `cpu_s`; see `cpu_split`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_user_s: Option<f64>,
    /// System part of `cpu_s`; see `cpu_split`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_system_s: Option<f64>,
    /// How the split was obtained: `sampled` by the tick, or `exact`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_split: Option<String>,
    /// cpu_s per operation, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_operation: Option<f64>,
    /// Share of the window that reading the CPU clocks took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_read_share: Option<f64>,
    /// Times that a worker was put on a CPU within the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_switches: Option<u64>,
    /// Time that workers were runnable but not running, summed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runqueue_wait_s: Option<f64>,
    /// As typed: `none`, `same`, `cross`, `cpus:...`.
    pub placement: String,
    /// What the whole machine did meanwhile.
    pub machine: Machine,
    /// How the operations were shared out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_worker: Option<PerWorker>,
    /// One value a worker, in the order of their numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<Workers>,
    /// Wait of the granted acquisitions, censored attempts accounted for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquire_ns: Option<Waits>,
    /// Time for which the lock was really held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_ns: Option<Distribution>,
    /// From the previous owner's release to the grant, contended ones only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handoff_ns: Option<Distribution>,
    /// The same, of those where both owners ran on one CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handoff_same_cpu_ns: Option<Distribution>,
    /// The same, of those where the owners ran on two CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handoff_cross_cpu_ns: Option<Distribution>,
    /// Time in the release call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_ns: Option<Distribution>,
    /// Time of a whole batch of pipelined requests, from its sending to its
    /// last reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_ns: Option<Distribution>,
    /// The same of releases, where they stand by themselves (`hold`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_batch_ns: Option<Distribution>,
    /// Which lock each worker took: `one` for all, or its `own`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<String>,
    /// From the common start until all locks were held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquire_phase_s: Option<f64>,
    /// From the first release to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_phase_s: Option<f64>,
    /// How hard each generator thread worked, or else the busiest worker.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub generators: Vec<Generator>,
    /// Time of the tries that were refused (`--try`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_try_ns: Option<Distribution>,
    /// Attempts that their own timeout ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<u64>,
    /// Share of the stamped grants that were contended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_share: Option<f64>,
    /// One operation in this many was stamped (1: every one); absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stamp_every: Option<u64>,
    /// Grants that were stamped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stamped: Option<u64>,
    /// What the witness saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclusion: Option<Exclusion>,
    /// Time in connect(), of the connections that this point adds (`connect`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connect_ns: Option<Distribution>,
    /// The same, of those to which the kernel gave an even port.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connect_even_ns: Option<Distribution>,
    /// The same, of those to which the kernel gave an odd port.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connect_odd_ns: Option<Distribution>,
    /// From the intended start to the end of connect() or of the request, where
    /// these come at a rate.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub response_ns: Option<Distribution>,
    /// Time in bind(), where an address is bound.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bind_ns: Option<Distribution>,
    /// Time in accept4() of a connection that was there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub accept_ns: Option<Distribution>,
    /// Time in close() of the side that closes first.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub close_ns: Option<Distribution>,
    /// Time in close() of the server's side, afterwards.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_close_ns: Option<Distribution>,
    /// What having so many connections open is like.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connections: Option<Box<Connections>>,
    /// The profiler or tracer that ran along, as started.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub during: Option<String>,
    /// From the sending of a request to its answer, successful ones only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub service_ns: Option<Distribution>,
    /// The parts of these, in the order in which they follow each other.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub phases: Vec<Phase>,
    /// The same as `service_ns`, of requests that failed or were answered with
    /// another code.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failed_ns: Option<Distribution>,
    /// Answers by their code: exit codes and signals, result codes, statuses.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub codes: BTreeMap<String, u64>,
    /// CPU time of the processes that were started for requests, user.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub children_user_s: Option<f64>,
    /// CPU time of the processes that were started for requests, system.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub children_system_s: Option<f64>,
    /// What became of the requests that were planned, where they come at a rate.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub open_loop: Option<Box<OpenLoop>>,
    /// Requests that do nothing, made beside this run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub null: Option<Null>,
    /// What keeping so many requests in flight was like (`spread`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spread: Option<Box<Spread>>,
    /// What the server of a lock service did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
    /// Failures by the system's name for them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub errors: BTreeMap<String, u64>,
    /// The first failure of each kind, in words.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub messages: Vec<String>,
    /// Workers that ended before their time, in words.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub deaths: Vec<String>,
    /// Ten equal slices of the window.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub series: Vec<Slice>,
    /// What a specimen recorded about itself, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub truth: BTreeMap<String, f64>,
    /// Facts about the target's set-up (hash collisions, slots, ...), by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub setup: BTreeMap<String, f64>,
    /// What the machine itself took for its simplest acts, just before the run
    /// and just after it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub anchor: Option<Anchor>,
    /// What each host did that took part, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub hosts: Vec<HostPart>,
    /// Merged over the workers, by the name of the figure.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub histograms: BTreeMap<String, Buckets>,
    /// Whether these numbers may be believed.
    pub verdict: Verdict,
}

/// Bare acts of the machine, by which runs of two sessions are compared. The
/// medians over several short passes on either side of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Anchor {
    /// One step of a loop that stays in the CPU's registers.
    pub step_ns: f64,
    /// A system call that does nothing (getppid).
    pub call_ns: f64,
    /// Waking a process that sleeps on a futex, until it runs.
    pub wake_ns: f64,
    /// A cache line's way from one CPU to the other; absent with one CPU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line_ns: Option<f64>,
}

/// A generator thread, or the busiest of workers that have each their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// (CPU time + time runnable but not running) / its wall time.
    pub busy_share: f64,
    /// Time runnable but not running / its wall time.
    pub runqueue_share: f64,
    /// What else is known of a generator that is a process (`spread`).
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub process: Option<GeneratorProcess>,
}

/// A generator of `spread`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorProcess {
    /// Rank of its host, where there are several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rank: Option<u64>,
    /// Requests that it keeps in flight.
    pub workers: u64,
    /// Requests that it completed within the window.
    pub operations: u64,
    /// Its CPU time within the window.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu_s: Option<f64>,
    /// Share of the periods within the window in which its own quota ran out;
    /// absent without a quota.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub throttled_share: Option<f64>,
    /// Share of the window in which it stood still: it neither ran nor waited for
    /// a CPU, though it was due.
    pub still_share: f64,
}

/// What keeping so many requests in flight was like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many there should have been at any time.
    pub in_flight: u64,
    /// How many there were, on average over the window: the time that requests
    /// were in flight within it, less that of generators that stood still, over
    /// its length.
    pub effective: f64,
    /// How many of them, on average, were not in their own worker's hands: less its
    /// CPU time and its time runnable but not running.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at_server: Option<f64>,
    /// CPUs' worth of time that each generator was given; absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub generator_cpu: Option<f64>,
    /// Response of all requests, with those that the window's end cut off.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub response_ns: Option<Waits>,
    /// Whether generators and server can take CPU time from each other; absent
    /// where that is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub disjoint: Option<bool>,
    /// How that is known, or why not, in words.
    pub budgets: String,
    /// It is known by the server's address alone: that is none of the hosts', so that
    /// the server is on another machine, unless CPU time here is accounted for by
    /// nobody.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub by_address: bool,
}

/// CPU time of the whole machine within the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Ticks of CPU time in all, over all CPUs.
    pub ticks: u64,
    /// Ticks that were neither idle nor stolen.
    pub busy_ticks: u64,
    /// Ticks that the hypervisor took.
    pub stolen_ticks: u64,
    /// Ticks in soft interrupts (part of busy).
    pub softirq_ticks: u64,
    /// Ticks a second.
    pub ticks_per_s: u64,
    /// CPUs of the whole machine, whether jostle may use them or not.
    pub cores: u64,
    /// CPU time of the tool's own other processes.
    pub harness_cpu_s: f64,
    /// Time between the two readings of the ticks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub between_s: Option<f64>,
    /// stolen / (busy + stolen); absent under 200 ticks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steal_share: Option<f64>,
    /// Periods in which the cgroup's CPU quota stopped us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_periods: Option<u64>,
    /// Looks of the keeper at which a worker process had been stopped
    /// (SIGSTOP) or continued since the look before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub halts: Option<u64>,
}

/// Fairness: workers without an acquisition count everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerWorker {
    /// Fewest acquisitions of one worker.
    pub min: u64,
    /// Most acquisitions of one worker.
    pub max: u64,
    /// Mean.
    pub mean: f64,
    /// Sample standard deviation.
    pub stddev: f64,
    /// Jain's index: (sum x)^2 / (n sum x^2).
    pub jain: f64,
    /// Variance over mean: near 0 a queue, near 1 a lottery, above favouritism.
    pub dispersion: f64,
    /// Share that the better-served half of the workers got.
    pub top_half_share: f64,
    /// Workers that got nothing.
    pub none: u64,
    /// Window over the time in which each worker could have had one turn.
    pub rotations: f64,
    /// Longest wait, attempts still pending at the end of the window included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_wait_ns: Option<u64>,
    /// Which worker that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_wait_worker: Option<u64>,
    /// Most consecutive acquisitions of one worker on one key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_streak: Option<u64>,
    /// The same while the worker that ended it was already waiting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_streak_while_waited: Option<u64>,
}

/// Columns with one value for each worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Workers {
    /// Acquisitions within the window.
    pub operations: Vec<u64>,
    /// Longest wait, in microseconds, rounded up.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub longest_wait_us: Vec<u64>,
    /// From the common start to the worker's own end, where it has one.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub elapsed_ns: Vec<u64>,
    /// operations / elapsed_ns, by the second.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub throughput_per_s: Vec<f64>,
}

/// A distribution's summary. Its histogram stands among the point's histograms;
/// `docs/results.md` says under which name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Values.
    pub count: u64,
    /// Exact smallest.
    pub min: u64,
    /// Exact largest.
    pub max: u64,
    /// Exact mean.
    pub mean: f64,
    /// Percentiles by name (`p50`, `p90`, `p99`, `p999`); one without at least
    /// ten values beyond it is absent.
    #[serde(flatten)]
    pub percentiles: BTreeMap<String, u64>,
    /// Share of the values above each time asked for with `--over`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub over: BTreeMap<String, f64>,
}

/// Waits: some attempts had not ended when the window did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// The granted ones.
    #[serde(flatten)]
    pub granted: Distribution,
    /// Attempts that ended without a grant or not at all within the window.
    pub censored: u64,
    /// Kaplan-Meier percentiles over granted and censored attempts; one that
    /// the data do not reach is absent here and stands in `at_least`.
    pub kaplan_meier: BTreeMap<String, u64>,
    /// Percentiles known only to lie above this.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub at_least: BTreeMap<String, u64>,
}

/// What the witness of exclusion saw, over the whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exclusion {
    /// Acquisitions that the witness checked.
    pub checked: u64,
    /// Acquisitions that found another owner inside.
    pub violations: u64,
    /// Acquisitions that found the mark of an owner that died while holding.
    pub holder_died: u64,
    /// Acquisitions that the holder's counter lost.
    pub lost_updates: u64,
    /// Share of the readers that writers looked at, where not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reader_coverage: Option<f64>,
    /// Median of the interval in which an overlap could be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inner_interval_ns: Option<u64>,
    /// The first few, in words.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub examples: Vec<String>,
    /// Owners on different hosts, where there were several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub across: Option<Box<Across>>,
}

/// What the logs of several hosts say of owners on different ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Across {
    /// Hosts whose logs were compared.
    pub hosts: u64,
    /// Grants that were compared with those of the other hosts: of a lock that
    /// several used, while all logs were complete.
    pub checked: u64,
    /// These by all grants of the window.
    pub coverage: f64,
    /// Grants that overlapped with one of another host wherever the clocks may stand.
    pub violations: u64,
    /// Grants with a fencing token that another had had.
    pub tokens_repeated: u64,
    /// Grants with an older fencing token than that of a hold that was over by then.
    pub tokens_out_of_order: u64,
    /// Grants that overlapped only with what no lease certainly gave any more.
    pub lapsed_overlap: u64,
    /// Grants that may have overlapped with one of another host, or not.
    pub undecided: u64,
    /// The same where fencing tokens say who came later.
    pub ordered_by_token: u64,
    /// By how much two hosts' clocks may be off each other, together: no shorter
    /// overlap is certain.
    pub within_ns: u64,
    /// The first few faults, in words.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub examples: Vec<String>,
}

/// A part of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Its name, such as `spawn`. Its histogram is called `spawn_ns`.
    pub phase: String,
    /// How long it took, in nanoseconds.
    #[serde(flatten)]
    pub span: Distribution,
}

/// Requests that do nothing, by as many workers, immediately before or after a
/// run: what remains of its requests without theirs is the target's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Null {
    /// The target that does nothing, as typed.
    pub target: String,
    /// From sending to answer.
    pub service_ns: Distribution,
    /// CPU time of worker and children for each request, in microseconds.
    pub cpu_us_per_operation: f64,
}

/// A lock service's own figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Locks that it granted from before the first worker joined until after
    /// the last one left; absent where it does not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<u64>,
    /// counted less the grants that the workers received in that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<i64>,
    /// CPU time of its process within the window; absent on another host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
    /// cpu_s per operation, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_operation: Option<f64>,
    /// Connections that said who they are, as a directory server counts them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub binds: Option<u64>,
    /// Connections that took their leave, as a directory server counts them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unbinds: Option<u64>,
    /// Memory that it counts, with all locks held less before the first, for
    /// each of them; absent where it does not count.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes_per_held_lock: Option<f64>,
}

/// A tenth of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// Acquisitions granted in it.
    pub operations: u64,
    /// Mean wait of the stamped ones among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_wait_ns: Option<f64>,
    /// Mean time of their releases (`hold`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mean_release_ns: Option<f64>,
}

/// A log-linear histogram: the smallest value of each bucket that is not
/// empty, and its count. Buckets are 1 wide up to 256, then 128 to an octave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Buckets(pub Vec<(u64, u64)>);

/// Whether a number may be believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Is {
    /// Nothing speaks against it.
    #[default]
    #[serde(rename = "VALID")]
    Valid,
    /// Something may have bent it.
    #[serde(rename = "SUSPECT")]
    Suspect,
    /// It must not be used.
    #[serde(rename = "INVALID")]
    Invalid,
}

impl std::fmt::Display for Is {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Is::Valid => "VALID",
            Is::Suspect => "SUSPECT",
            Is::Invalid => "INVALID",
        })
    }
}

/// The kind of statement that a reason touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Claim {
    /// A figure by itself: acquisitions per second.
    Absolute,
    /// One figure against another of the same blocks.
    Ratio,
    /// Percentiles, fairness.
    Distribution,
}

/// One reason for a verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The check that found it; METHOD.md has its threshold and source.
    pub check: String,
    /// How bad it is.
    pub is: Is,
    /// The claims that it touches.
    pub claims: Vec<Claim>,
    /// One sentence with the figures, and what to do about it.
    pub text: String,
}

/// What bounds a throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitedBy {
    /// What was measured.
    Target,
    /// The tool's own workers.
    Generator,
    /// The way between them and the client's share of it: a server that only
    /// answers does hardly better.
    Path,
    /// A limit of the machine.
    Machine,
    /// The data cannot tell.
    Undecided,
}

/// The worst of its reasons.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Over all claims.
    pub is: Is,
    /// Why; empty when VALID.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub reasons: Vec<Reason>,
    /// What bounds the throughput, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<LimitedBy>,
}

impl Verdict {
    /// The verdict that these reasons make.
    pub fn of(reasons: Vec<Reason>) -> Verdict {
        Verdict {
            is: reasons.iter().map(|r| r.is).max().unwrap_or_default(),
            reasons,
            limited_by: None,
        }
    }
}

/// How one figure of one target grows with one swept value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// The target as typed.
    pub target: String,
    /// The figure by its name.
    pub figure: String,
    /// The swept value by its name in `at`.
    pub over: String,
    /// The other swept values, which are the same for all its points.
    pub at: At,
    /// Distinct values of `over` that have figures.
    pub values: u64,
    /// Fewest runs of one of them.
    pub runs: u64,
    /// Smallest value.
    pub from: u64,
    /// Largest value.
    pub to: u64,
    /// What may be said: `too_few`, `constant`, `laws`, `power`, `falls`,
    /// `bends`, `no_law`.
    pub finding: String,
    /// The figure at the largest value over that at the smallest, by block.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio: Option<Interval>,
    /// The laws that the data allow and cannot tell apart.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub laws: Vec<FitLaw>,
    /// The exponent of a + b N^exponent, where something surely grows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exponent: Option<Interval>,
    /// Where it changes its course.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub bends: Vec<FitBend>,
    /// What lies between, where that is enough points for laws of its own.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub parts: Vec<FitPart>,
    /// The universal scalability law, where it applies.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub usl: Option<Usl>,
    /// The value at which throughput was highest, where it surely was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peak: Option<u64>,
    /// All of it in one sentence.
    pub text: String,
}

/// An estimate and where the truth lies with 95 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The estimate.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// t = a + b f(N).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FitLaw {
    /// f: `1`, `log N`, `sqrt N`, `N`, `N log N`, `N^2`.
    pub law: String,
    /// In the figure's unit.
    pub a: f64,
    /// In the figure's unit for each f(N).
    pub b: f64,
    /// Probability of so bad a fit if the law were true.
    pub p: f64,
}

/// A bend lies between two values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FitBend {
    /// The last value that surely lies before it.
    pub after: u64,
    /// The first value that surely lies beyond it.
    pub before: u64,
}

/// One part of a sweep between bends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FitPart {
    /// Smallest value.
    pub from: u64,
    /// Largest value.
    pub to: u64,
    /// The figure at the largest value over that at the smallest, by block.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio: Option<Interval>,
    /// What the data allow there.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub laws: Vec<FitLaw>,
}

/// X = rate_per_s N / (1 + contention (N - 1) + coherence N (N - 1)).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usl {
    /// Throughput of one worker alone.
    pub rate_per_s: f64,
    /// Share of the work that only one can do at a time.
    pub contention: f64,
    /// Cost of agreement between each two.
    pub coherence: f64,
    /// What speaks against it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub suspect: Option<String>,
}

/// How an experiment ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The exit code.
    pub exit: u8,
    /// Why it ended early, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Wall time of the whole experiment, monotonic.
    pub elapsed_s: f64,
}
