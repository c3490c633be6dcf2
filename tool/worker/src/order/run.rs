//! The order for one run: what the workers of one host do, and which part of a run over
//! several hosts that is.

use super::{WorkloadOrder, cpus};
use jostle_model::ServerAt;
use jostle_model::plan::{Carrier, Measure, Place, Range};
use jostle_model::time::Nanos;
use serde::{Deserialize, Serialize};
use std::ops::Range as Span;

/// One run of one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunOrder {
    /// The target as typed.
    pub target: String,
    /// The work of the workers.
    pub workload: WorkloadOrder,
    /// Workers.
    pub workers: usize,
    /// The workers' carriers.
    pub carrier: Carrier,
    /// Threads that carry tasks.
    pub generator_threads: usize,
    /// The CPUs they are dealt round robin; empty: wherever they like.
    pub cpus: Vec<usize>,
    /// The CPUs of servers that targets bring along; empty: wherever they like.
    pub server_cpus: Vec<usize>,
    /// From the last arrival to the window.
    pub warmup: Nanos,
    /// The window, or the most that a run may take that ends with its operations.
    pub window: Nanos,
    /// How much is recorded.
    pub measure: Measure,
    /// One operation in this many is stamped.
    pub stamp_every: u64,
    /// Locks.
    pub keys: usize,
    /// Semaphores for several keys.
    pub slots: usize,
    /// Servers of a cluster that is launched.
    pub members: usize,
    /// Replicas that must have a lock before it counts as granted.
    pub wait_replicas: usize,
    /// The file with name and password for servers of the user's.
    #[serde(default)]
    pub credentials: Option<String>,
    /// Slack of each worker's timers.
    pub timer_slack: Nanos,
    /// A profiler or tracer that runs along.
    pub during: Option<String>,
    /// The server's processes, where they cannot be found behind our connections.
    #[serde(default)]
    pub server: Option<ServerAt>,
    /// Bound on the offset between CPUs' clocks; earlier hand-offs are faults.
    pub clock_uncertainty: Nanos,
    /// Grants that each worker logs at most, to be compared with those of other
    /// hosts; zero: none.
    #[serde(default)]
    pub log_grants: u32,
    /// Whether somebody watches, so that the keeper tells how far the run is.
    #[serde(default)]
    pub watched: bool,
    /// Other hosts do their part of the same run.
    #[serde(default)]
    pub together: Option<Together>,
    /// The placement that `cpus` were taken from; another host has others.
    pub place: Place,
    /// This host's share of a run over several hosts; None: all of it.
    pub share: Option<Share>,
    /// The seed of this run.
    pub seed: u64,
}

/// How a host takes part in a run of many: it answers `Prepared`, begins at the
/// time that `Go` names, answers `Drained`, and concludes when it is told to. In a
/// sweep it answers `Reached`, and either goes on at the time of another `Go`, or
/// closes everything and concludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Together {
    /// Whether this host asks the server for its counts, in the name of all.
    pub asks_server: bool,
    /// Whether it takes the machine's own pulse: of several on one machine, one.
    pub takes_anchor: bool,
}

/// One host's part of a run in which several take part. The order's `workers` are
/// then this host's, its `keys` those of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Its place among those who take part.
    pub nth: usize,
    /// How many take part.
    pub hosts: usize,
    /// Workers of those before it.
    pub first_worker: usize,
    /// Workers of all.
    pub workers: usize,
    /// The seed of the names of locks, the same on all hosts.
    pub names: u64,
}

impl RunOrder {
    /// The number of a worker of this host among those of all hosts.
    pub fn number(&self, worker: usize) -> usize {
        worker + self.share.map_or(0, |share| share.first_worker)
    }

    /// Workers of all hosts.
    pub(crate) fn workers_in_all(&self) -> usize {
        self.share.map_or(self.workers, |share| share.workers)
    }

    /// On the host that is to do it: with CPUs of its own, where the order comes
    /// from another host.
    pub fn here(mut self, allowed: &[usize]) -> RunOrder {
        if self.share.is_some() {
            self.cpus = cpus(&self.place, allowed);
        }
        self
    }

    /// Whether workers of several hosts want the same locks, so that one host alone
    /// does not see who had a lock before.
    pub fn meets_others(&self) -> bool {
        let several = self.share.is_some_and(|share| share.hosts > 1);
        several && self.workload.meets()
    }

    /// Whether a number of operations ends the run, and not a time.
    pub fn is_counted(&self) -> bool {
        !self.workload.has_window()
    }

    /// Whether the plan limits the CPU time of each generator.
    pub fn limits_generators(&self) -> bool {
        matches!(&self.workload, WorkloadOrder::Spread(spread) if spread.generator_cpu.is_some())
    }

    /// The workers that stand for the threads of all: each its own, or the first
    /// of each generator thread.
    pub fn threads(&self) -> Vec<usize> {
        match self.carrier {
            Carrier::Processes | Carrier::Threads => (0..self.workers).collect(),
            Carrier::Tasks => (0..self.generator_threads)
                .map(|nth| self.tasks_of(nth).start)
                .collect(),
        }
    }

    /// The workers that generator thread number `nth` carries as tasks.
    pub fn tasks_of(&self, nth: usize) -> Span<usize> {
        self.dealt(nth, self.generator_threads)
    }

    /// The workers of part number `nth` of so many about equal ones.
    pub fn dealt(&self, nth: usize, parts: usize) -> Span<usize> {
        let edge = |nth: usize| nth * self.workers / parts.max(1);
        edge(nth)..edge(nth + 1)
    }

    /// How many pipelined requests of a task are sent together. A connection that is alone
    /// on its thread sends a quarter of them at a time, so that server and client work at
    /// the same time; with several connections on a thread they do so anyway. Small parts
    /// cost more than they gain.
    pub(crate) fn sent_together(&self) -> u64 {
        const LEAST: u64 = 25;
        let depth = self.workload.pipeline() as u64;
        match self.workers.div_ceil(self.generator_threads.max(1)) {
            0 | 1 => depth.div_ceil(4).max(LEAST).min(depth),
            _ => depth,
        }
    }

    /// Whether workers log their grants: where owners exclude each other one by one,
    /// and each grant is stamped by itself.
    pub(crate) fn logs_grants(&self) -> bool {
        let one_by_one = self.workload.meets() && self.workload.wants().range == Range::Same;
        self.log_grants > 0 && one_by_one && self.measure == Measure::Full
    }

    /// Whether it is a stream whose workers wait for each other, one request at
    /// a time, so that there are hand-offs to be seen.
    pub fn is_contended_stream(&self) -> bool {
        let stream = matches!(self.workload, WorkloadOrder::Stream(_));
        stream && self.workload.meets() && self.workers > 1
    }

    /// Whether readers take the lock beside writers.
    pub fn has_readers(&self) -> bool {
        matches!(&self.workload, WorkloadOrder::Contend(contend) if contend.shared > 0.0)
    }

    /// The longest that a worker may need after the window's end: it finishes
    /// its hold.
    pub fn patience(&self) -> Nanos {
        let (hold, grace) = (self.workload.longest_hold(), self.workload.grace());
        Nanos(2_000_000_000 + 2 * hold.0 + grace.0)
    }
}

/// An order for the tool's cost on one target: interleaved blocks of one worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostOrder {
    /// The run that it stands for, as one of `contend` with one worker and without hold
    /// and idle.
    pub run: RunOrder,
    /// Blocks.
    pub blocks: usize,
}
