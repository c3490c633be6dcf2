//! What the parent asks of the keeper and what it gets back: plain data, so
//! that it can be sent to a process here and, later, to other hosts.

use jostle_model::plan::{Carrier, Measure, Names, Range, Workload};
use jostle_model::record::{Anchor, Buckets, Machine};
use jostle_model::time::{Busy, Nanos};
use jostle_targets::Requests;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One run of one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunOrder {
    /// The target as typed.
    pub target: String,
    /// What the workers do.
    pub workload: Workload,
    /// Contending workers.
    pub workers: usize,
    /// Operations of each worker, where their number ends the run: pairs of a
    /// stream, locks that each holds.
    pub operations: u64,
    /// Whether the workers of a stream share one lock.
    pub names: Names,
    /// Pairs or locks that are sent at once.
    pub pipeline: usize,
    /// What carries them.
    pub carrier: Carrier,
    /// Threads that carry tasks.
    pub generators: usize,
    /// The CPUs they are dealt round robin; empty: wherever they like.
    pub cpus: Vec<usize>,
    /// While holding.
    pub hold: Busy,
    /// Between operations.
    pub idle: Busy,
    /// From the last arrival to the window.
    pub warmup: Nanos,
    /// The window.
    pub window: Nanos,
    /// How much is recorded.
    pub measure: Measure,
    /// One operation in this many is stamped.
    pub stamp_every: u64,
    /// Locks.
    pub keys: usize,
    /// Share of shared acquisitions.
    pub shared: f64,
    /// Byte ranges.
    pub range: Range,
    /// Try instead of waiting.
    pub try_only: bool,
    /// Give up after.
    pub acquire_timeout: Option<Nanos>,
    /// Open the file for each acquisition.
    pub open_each: bool,
    /// Semaphores for several keys.
    pub slots: usize,
    /// Of each worker.
    pub timer_slack: Nanos,
    /// Bound on the offset between CPUs' clocks; earlier hand-offs are faults.
    pub clock_uncertainty: Nanos,
    /// Workers send requests instead of taking locks.
    pub requests: Option<RequestOrder>,
    /// Of this run.
    pub seed: u64,
}

/// What there is to say about requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestOrder {
    /// Codes that are a success; None: the target's own.
    pub expect: Option<Vec<u64>>,
    /// How long one may take.
    pub timeout: Nanos,
    /// Where the output of started programs goes.
    pub output: Option<String>,
    /// `{n}` runs over so many numbers; None: over all requests.
    pub numbers: Option<u64>,
}

impl RunOrder {
    /// Whether an answer with this code is a success.
    pub fn expects(&self, target: &dyn Requests, code: u32) -> bool {
        let request = self.requests.as_ref();
        match request.and_then(|request| request.expect.as_ref()) {
            Some(codes) => codes.contains(&u64::from(code)),
            None => target.is_success(code),
        }
    }

    /// How long a worker may be at one request.
    pub fn call_timeout(&self) -> Nanos {
        let request = self.requests.as_ref();
        request.map_or(Nanos::ZERO, |request| request.timeout)
    }

    /// Whether a number of operations ends the run, and not a time.
    pub fn is_counted(&self) -> bool {
        self.workload != Workload::Contend
    }

    /// The workers that stand for the threads of all: each its own, or the first
    /// of each generator thread.
    pub fn threads(&self) -> Vec<usize> {
        match self.carrier {
            Carrier::Processes | Carrier::Threads => (0..self.workers).collect(),
            Carrier::Tasks => (0..self.generators)
                .map(|nth| self.generator(nth).start)
                .collect(),
        }
    }

    /// The workers that generator thread number `nth` carries.
    pub fn generator(&self, nth: usize) -> std::ops::Range<usize> {
        let edge = |nth: usize| nth * self.workers / self.generators.max(1);
        edge(nth)..edge(nth + 1)
    }

    /// Of the pipelined requests of a task: how many are sent together. A
    /// connection that is alone on its thread sends a quarter of them at a time,
    /// so that server and client work at the same time; among several the others
    /// see to that. Small parts cost more than they bring.
    pub fn sent_together(&self) -> u64 {
        const LEAST: u64 = 25;
        let depth = self.pipeline as u64;
        match self.workers.div_ceil(self.generators.max(1)) {
            0 | 1 => depth.div_ceil(4).max(LEAST).min(depth),
            _ => depth,
        }
    }

    /// Whether it is a stream whose workers wait for each other, one request at
    /// a time, so that there are hand-offs to be seen.
    pub fn is_contended_stream(&self) -> bool {
        let stream = self.workload == Workload::Stream && self.pipeline <= 1;
        stream && self.names == Names::One && self.workers > 1
    }

    /// The longest that a worker may need after the window's end: it finishes
    /// its hold.
    pub fn patience(&self) -> Nanos {
        Nanos(2_000_000_000 + 2 * self.hold.span().0)
    }
}

/// What the tool costs on one target: interleaved blocks of one worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostOrder {
    /// The run that it stands for, with one worker and without hold and idle.
    pub run: RunOrder,
    /// Blocks.
    pub blocks: usize,
}

/// From the parent to the keeper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Do this and answer with `Ran`.
    Run(Box<RunOrder>),
    /// Do this and answer with `Cost`.
    Cost(Box<CostOrder>),
    /// End what is in progress and answer it with `Failed`.
    Abort,
}

/// From the keeper to the parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The keeper is ready.
    Ready,
    /// The run's data.
    Ran(Box<Yield>),
    /// For each block: nanoseconds a pair with counting alone, in full, without
    /// stamps, without witness.
    Cost(Vec<[f64; 4]>),
    /// Nothing came of it, and why, in words for the user.
    Failed(String),
}

/// One distribution, merged over the workers of a generator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Merged {
    /// Counts by bucket.
    pub buckets: Buckets,
    /// Exact sum.
    pub sum: u64,
    /// Exact least.
    pub min: u64,
    /// Exact greatest.
    pub max: u64,
}

/// What one generator's workers did in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Yield {
    /// The window as it was.
    pub window_ns: u64,
    /// From the last arrival to the window.
    pub warmup_ns: u64,
    /// From the first fork to the last worker ready.
    pub ramp_ns: u64,
    /// From the window's end to the last worker reaped.
    pub drain_ns: u64,
    /// From the first arrival to the last.
    pub start_spread_ns: u64,
    /// Grants of each worker within the window.
    pub operations: Vec<u64>,
    /// From the common start to the end of each worker, where a number of
    /// operations ends the run.
    pub elapsed_ns: Vec<u64>,
    /// Of each generator thread, or else of the busiest worker: CPU time with
    /// time on the run queue, and the latter alone, as shares of its wall time.
    pub generators: Vec<(f64, f64)>,
    /// Until all locks were held, and from the first release to the end.
    pub phases_ns: Option<(u64, u64)>,
    /// What the server's memory grew by until all locks were held.
    pub held_bytes: Option<i64>,
    /// Releases and the sum of their times, for each slice.
    pub release_slices: Vec<(u64, u64)>,
    /// Longest wait of each worker, the attempt pending at the end included.
    pub longest_wait_ns: Vec<u64>,
    /// By the figure's name.
    pub figures: BTreeMap<String, Merged>,
    /// Spans of the attempts that had no grant by the end of the window, or
    /// that their timeout ended.
    pub censored: Merged,
    /// Stamped grants, and those of them that were contended.
    pub stamped: u64,
    /// See `stamped`.
    pub contended: u64,
    /// Longest streak, and the longest of which another worker waited.
    pub streak: u64,
    /// See `streak`.
    pub streak_waited: u64,
    /// Attempts that their timeout ended.
    pub timeouts: u64,
    /// Tries that were refused.
    pub refusals: u64,
    /// Acquisitions that the witness looked at.
    pub checked: u64,
    /// Overlaps with owners that lived.
    pub violations: u64,
    /// Overlaps with the marks of owners that died.
    pub holder_died: u64,
    /// What the holder's counter lost.
    pub lost_updates: u64,
    /// Share of the readers that writers looked at.
    pub reader_coverage: Option<f64>,
    /// The first few overlaps, in words.
    pub examples: Vec<String>,
    /// Operations, stamped ones and the sum of their waits, for each slice.
    pub slices: Vec<(u64, u64, u64)>,
    /// CPU time of the workers within the window.
    pub cpu_ns: Option<u64>,
    /// Of the workers' lives after the start: user and system, as sampled.
    pub usage_ns: (u64, u64),
    /// Time on the run queue, and times put on a CPU, within the window.
    pub runqueue_wait_ns: Option<u64>,
    /// See `runqueue_wait_ns`.
    pub switches: Option<u64>,
    /// Whether the target is a lock at all; specimens that grant all are not.
    pub excludes: bool,
    /// Time that one reading of all CPU clocks took.
    pub cpu_read_ns: u64,
    /// The machine within the window.
    pub machine: Machine,
    /// Locks that the server granted during the run, where it counts them.
    pub server_counted: Option<u64>,
    /// Grants that the workers received in the run, warm-up and drain included.
    pub received: u64,
    /// CPU time of the server within the window, where its process is ours to
    /// look at.
    pub server_cpu_ns: Option<u64>,
    /// Failures by name.
    pub errors: BTreeMap<String, u64>,
    /// The first failure of each kind, in words.
    pub messages: Vec<String>,
    /// Workers that ended before their time, in words.
    pub deaths: Vec<String>,
    /// What a specimen knows.
    pub truth: BTreeMap<String, f64>,
    /// Facts about the target's set-up.
    pub setup: BTreeMap<String, f64>,
    /// What the machine itself took, before and after.
    pub anchor: Option<Anchor>,
    /// What requests came to, where workers made any.
    pub requests: Option<Box<RequestYield>>,
}

/// What requests came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestYield {
    /// Their parts, in order.
    pub phases: Vec<(String, Merged)>,
    /// From sending to answer, successes.
    pub service: Merged,
    /// The same, of others.
    pub failed: Merged,
    /// Answers by their code.
    pub codes: BTreeMap<String, u64>,
    /// User and system time of the processes that were started.
    pub children_ns: (u64, u64),
}
