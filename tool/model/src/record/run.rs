//! One run of a point, and its parts without a module of their own: the machine, the
//! workers' shares, the server, parts of requests, slices of the window.

use super::{
    At, Buckets, Circumstances, Cpu, Distribution, Exclusion, Kept, Recovery, Spread, ThreadLoad,
    Times, Verdict, Verified, Waits, Window,
};
use crate::connect::Connections;
use crate::hosts::HostPart;
use crate::open_loop::OpenLoop;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// One run of one point.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The target as typed.
    pub target: String,
    /// The workload: `contend`, `stream`, ...
    pub workload: String,
    /// The swept values.
    pub at: At,
    /// Number of the repeat, from 1.
    pub run: u32,
    /// In which block it ran, from 1; runs of one block are pairs.
    pub block: u32,
    /// Its window, and the time around that.
    #[serde(flatten)]
    pub window: Window,
    /// Acquisitions granted in the window; for requests the successes, for `connect` the
    /// connections that the point adds.
    pub operations: u64,
    /// operations / window_s.
    pub throughput_per_s: f64,
    /// The rate of a lock without any cost; absent where nothing bounds it (no hold, shared
    /// mode, overlapping ranges).
    pub ceiling_per_s: Option<f64>,
    /// Mean length of the idles that slept and ended in the window; sleeps end late. The ideal
    /// is computed with it.
    pub idle_mean_ns: Option<f64>,
    /// throughput_per_s / ceiling_per_s.
    pub of_ideal: Option<f64>,
    /// The workers' use of the CPUs.
    #[serde(flatten)]
    pub cpu: Cpu,
    /// Its circumstances, and what went wrong.
    #[serde(flatten)]
    pub around: Circumstances,
    /// `place` of the plan: `none`, `same`, `cross`, `cpus:...`.
    pub placement: String,
    /// Other programs or the hypervisor used so much of the CPUs that the whole block was run
    /// again.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub spoilt: bool,
    /// How the operations were shared out.
    pub per_worker: Option<PerWorker>,
    /// One value for each worker, in the order of their numbers.
    pub workers: Option<Workers>,
    /// How long its calls took, and what lies between them.
    #[serde(flatten)]
    pub times: Times,
    /// Waits; full measuring only, as all distributions of a lock.
    pub acquire_ns: Option<Waits>,
    /// Waits of readers alone (`--shared`). Attempts that timed out are censored at the mean of
    /// their mode.
    pub reader_wait_ns: Option<Box<Waits>>,
    /// Waits of writers alone.
    pub writer_wait_ns: Option<Box<Waits>>,
    /// `stream` and `churn`: whether the workers contended: `one` lock for all, or each its
    /// `own`.
    pub names: Option<String>,
    /// `hold`: from the common start until all locks were held.
    pub acquire_phase_s: Option<f64>,
    /// `hold`: from the first release to the end. `window_s` is the sum of both phases.
    pub release_phase_s: Option<f64>,
    /// `stream`, `hold`, `spread`, and `contend` of lock services: the load of each generator
    /// thread of tasks; for other carriers that of the busiest worker, for `spread` of each
    /// generator in order.
    #[serde(rename = "generators", skip_serializing_if = "Vec::is_empty", default)]
    pub thread_loads: Vec<ThreadLoad>,
    /// Attempts that their timeout ended; only with `acquire-timeout`.
    pub timeouts: Option<u64>,
    /// Contended grants / stamped grants; for `stream` only where several workers take one
    /// lock, one request at a time.
    pub blocked_share: Option<f64>,
    /// `contend`: time in the window that workers were blocked, over all their time: from an
    /// attempt to the release that made way for it, or to the end of the attempt or the window
    /// without a grant. Sampled attempts stand for the others. Absent as `blocked_share`.
    pub blocked_time_share: Option<f64>,
    /// One operation in this many was stamped; absent with `--measure counts`.
    pub stamp_every: Option<u64>,
    /// Grants that were stamped.
    pub stamped: Option<u64>,
    /// The witness's report.
    pub exclusion: Option<Exclusion>,
    /// Figures of having so many connections open.
    pub connections: Option<Box<Connections>>,
    /// Requests and `churn`: the parts of an operation in their order.
    /// [targets.md](targets.md#what-answers-requests) has those of each target. A lock of
    /// `churn` has `open` (until its session is ready), `close` (from the release until the
    /// session has ended) and `cycle`, which is all of it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub phases: Vec<Phase>,
    /// Answers by code, successes included: exit codes or names of signals, statuses.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub codes: BTreeMap<String, u64>,
    /// `rate`: what became of the planned requests.
    pub open_loop: Option<Box<OpenLoop>>,
    /// Requests that do nothing, [made beside this
    /// run](method/requests.md#what-does-a-request-cost-that-does-nothing); absent if one of
    /// them failed.
    pub null: Option<Null>,
    /// Figures of keeping so many requests in flight (`spread`).
    pub spread: Option<Box<Spread>>,
    /// Cost of keeping all locks for a time (`hold --for`).
    pub kept: Option<Box<Kept>>,
    /// Consequences of a fault (`recover`).
    pub recovery: Option<Box<Recovery>>,
    /// The findings of a long time of random faults (`verify`).
    pub verified: Option<Box<Verified>>,
    /// The traffic between workers and the server of a lock service.
    pub traffic: Option<ServerTraffic>,
    /// Servers only: what the server counted and used; without fields if nothing is known about
    /// it, as on another machine.
    pub server: Option<Server>,
    /// Ten equal slices of the window, full measuring only. For `stream` and `hold`: tenths of
    /// the operations of each worker; for requests the successes, with their times from sending
    /// to answer.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub series: Vec<Slice>,
    /// With several hosts, what each host that took part did, by rank. The run's own figures
    /// are [those of all hosts together](method/hosts.md#how-do-the-hosts-figures-become-one);
    /// [some are absent](method/hosts.md#which-figures-are-absent-with-several-hosts).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub hosts: Vec<HostPart>,
    /// Buckets merged over the workers, by the name of the
    /// [figure](results.md#how-are-histograms-read).
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub histograms: BTreeMap<String, Buckets>,
    /// The verdict of this run alone; that of the point is the record `verdict`. Schema
    /// `jostle/1` called it `verdict`.
    #[serde(rename = "run_verdict", alias = "verdict")]
    pub verdict: Verdict,
}

/// The machine's own speed: medians over seven short passes before the run and seven after it.
/// Two processes make them, pinned to the first and the last CPU of the workers, while no
/// worker exists. `jostle compare` measures two sessions by them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Anchor {
    /// One step of a loop that stays in the CPU's registers.
    pub step_ns: f64,
    /// A system call that does nothing (getppid).
    pub call_ns: f64,
    /// Waking a process that sleeps on a futex, until it runs: half of a round trip.
    pub wake_ns: f64,
    /// A cache line's way from the first CPU to the last, both spinning; absent with one CPU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line_ns: Option<f64>,
}

/// The whole machine between the two readings at the edges of the window.
#[skip_serializing_none]
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
    /// Hard interrupts of devices (`intr` of /proc/stat without its sum); absent in older
    /// files.
    pub interrupts: Option<u64>,
    /// Ticks a second for each CPU.
    pub ticks_per_s: u64,
    /// CPUs of the whole machine, whether jostle may use them or not.
    pub cores: u64,
    /// CPU time of keeper and parent.
    pub harness_cpu_s: f64,
    /// Time between the two readings of the ticks.
    pub between_s: Option<f64>,
    /// stolen / (busy + stolen); absent under 200 ticks.
    pub steal_share: Option<f64>,
    /// Periods in which a CPU quota stopped jostle.
    pub throttled_periods: Option<u64>,
    /// Threads of workers and server that may use other CPUs when the window closes than when all
    /// were ready, since somebody changed that; absent where none did.
    pub repinned: Option<u64>,
    /// Looks of the keeper at which a worker process had been stopped
    /// (SIGSTOP) or continued since the look before.
    pub halts: Option<u64>,
    /// TCP's counts meanwhile; absent where no server is asked, and in older files.
    pub tcp: Option<TcpCounts>,
    /// Findings of looks at the connections to the server; absent where it is not asked over TCP,
    /// for locks that are waited for, and in older files.
    pub tcp_queues: Option<TcpQueues>,
}

/// Connections to the server's ports, summed over the looks of the keeper while workers work:
/// five a second, or fewer where a look takes longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpQueues {
    /// Looks that met connections.
    pub looks: u64,
    /// Clients' ends.
    pub connections: u64,
    /// Server's ends on which something had arrived that it had not read.
    pub unread: u64,
    /// Looks that met two such ends or more.
    pub looks_unread: u64,
    /// Clients' ends at which something was written that no segment had carried yet.
    pub unsent: u64,
}

/// TCP's counts in this network namespace, whoever caused them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpCounts {
    /// Connections that a full accept queue refused (ListenOverflows).
    pub overflows: u64,
    /// First segments of connections that were sent again (TCPSynRetrans).
    pub syn_again: u64,
    /// Acknowledgements that their timer sent (DelayedACKs).
    pub delayed_acks: u64,
}

/// Fairness. Workers without an acquisition count in all of these figures.
#[skip_serializing_none]
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
    /// Turns that each worker could have had: operations / workers.
    pub rotations: f64,
    /// Longest wait, attempts pending at the end included; full measuring only, as the fields
    /// below.
    pub longest_wait_ns: Option<u64>,
    /// The worker that waited; workers count from 0.
    pub longest_wait_worker: Option<u64>,
    /// Workers whose attempt was pending at the end of the window, stamped or not. The
    /// distribution of waits has only the stamped ones.
    pub pending: Option<u64>,
    /// Most consecutive grants of a lock to one worker; absent for one worker, shared mode and
    /// ranges that differ; a lower bound if `stamp_every` > 1.
    pub longest_streak: Option<u64>,
    /// Most consecutive grants of a lock to one worker while the worker that ended them was
    /// waiting; absent as `longest_streak`, and if `stamp_every` > 1.
    pub longest_streak_while_waited: Option<u64>,
    /// Grants of a lock to another worker than the one before; absent as `longest_streak`.
    pub owner_changes: Option<u64>,
}

/// Columns with one value for each worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Workers {
    /// Acquisitions within the window.
    pub operations: Vec<u64>,
    /// Longest wait, rounded up; full measuring only.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub longest_wait_us: Vec<u64>,
    /// `stream` and `hold`: from the common start to the worker's own end; 0: it did not get
    /// there.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub elapsed_ns: Vec<u64>,
    /// operations / elapsed_ns, by the second.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub throughput_per_s: Vec<f64>,
}

/// A lock service's own figures.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Locks that it granted, or requests (`ldap`: searches) that it answered, from before the
    /// first worker joined until after the last one left, without the requests for these
    /// counts. `connect`: connections accepted so far.
    pub counted: Option<u64>,
    /// counted less the grants that the workers received, or the requests that they made, in
    /// that time. `connect`: less all opened.
    pub difference: Option<i64>,
    /// CPU time of its process within the window; absent on another host.
    pub cpu_s: Option<f64>,
    /// cpu_s per operation, in microseconds.
    pub cpu_us_per_operation: Option<f64>,
    /// `ldap`: connections that authenticated, counted in the same way.
    pub binds: Option<u64>,
    /// `ldap`: connections that ended with an unbind.
    pub unbinds: Option<u64>,
    /// `hold`: how much its memory grew until all locks were held, divided by their number:
    /// `table_memory` of jostled, `used_memory` of Redis, which also holds connections.
    pub bytes_per_held_lock: Option<f64>,
}

impl Server {
    /// Adds what another host knows of the same server. Each host that asks it is told what
    /// all hosts did, and its CPU time is seen only where it is.
    pub fn join(&mut self, other: &Server) {
        self.counted = self.counted.or(other.counted);
        self.binds = self.binds.or(other.binds);
        self.unbinds = self.unbinds.or(other.unbinds);
        let seen = [self.cpu_s, other.cpu_s].into_iter().flatten();
        self.cpu_s = seen.reduce(f64::max);
    }
}

/// The traffic between workers and a server over the whole run, from the start of the
/// workers to their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerTraffic {
    /// Grants in that time.
    pub grants: u64,
    /// Times that a worker sent something, to be answered; of pipelined requests one for each
    /// batch.
    pub round_trips: u64,
    /// Bytes of both directions, without the headers of TCP and below.
    pub bytes: u64,
    /// How often a worker's session went on at another server of the service; absent where
    /// that is never.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failovers: Option<u64>,
}

impl ServerTraffic {
    /// Adds the traffic of another host's workers.
    pub fn join(&mut self, other: &ServerTraffic) {
        crate::joined!(self, other: grants round_trips bytes);
        let failovers = [self.failovers, other.failovers].into_iter().flatten();
        self.failovers = failovers.reduce(|all, one| all + one);
    }

    /// Round trips and bytes for each grant.
    pub fn for_each_grant(&self) -> Option<(f64, f64)> {
        let each = |total: u64| total as f64 / self.grants as f64;
        (self.grants > 0).then(|| (each(self.round_trips), each(self.bytes)))
    }
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

/// Null requests, by as many workers, immediately before or after a run. Subtracting their
/// time from that of the run's requests leaves the target's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Null {
    /// The target that does nothing, as typed.
    pub target: String,
    /// From sending to answer.
    pub service_ns: Distribution,
    /// CPU time of worker and children for each request, in microseconds.
    pub cpu_us_per_operation: f64,
}

/// A tenth of the window.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// Acquisitions granted in it.
    pub operations: u64,
    /// Mean wait of those stamped; absent without one. With pipelining the mean of single
    /// locks; for `rate` the response, by intended start.
    pub mean_wait_ns: Option<f64>,
    /// Mean time of their releases (`hold`).
    pub mean_release_ns: Option<f64>,
}
