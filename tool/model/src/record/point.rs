//! One run of a point, and its parts without a module of their own: the machine, the
//! workers' shares, the server, parts of requests, slices of the window.

use super::{
    Accounts, At, Buckets, Causes, Counts, Distribution, Exclusion, Kept, Recovery, Spread,
    ThreadLoad, Verdict, Waits,
};
use crate::connect::Connections;
use crate::hosts::HostPart;
use crate::open_loop::OpenLoop;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// Mean time of a sleeping idle, because sleeps end late. The ideal is computed with
    /// it. Absent if none ended within the window.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idle_mean_ns: Option<f64>,
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
    /// The part of cpu_s that workers spun so that sleeping holds end on time; absent
    /// where none did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spun_s: Option<f64>,
    /// (cpu_s - spun_s) per operation, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_operation: Option<f64>,
    /// Share of the window that reading the CPU clocks took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_read_share: Option<f64>,
    /// Times that a worker was put on a CPU within the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_switches: Option<u64>,
    /// What the kernel counted of the workers, from their arrival to their end.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub counts: Counts,
    /// Time that workers were runnable but not running, summed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runqueue_wait_s: Option<f64>,
    /// As typed: `none`, `same`, `cross`, `cpus:...`.
    pub placement: String,
    /// What the whole machine did meanwhile.
    pub machine: Machine,
    /// Who used the CPUs meanwhile, by the scheduler's clocks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub accounts: Option<Box<Accounts>>,
    /// Another program used so much of the CPUs that the block was run again.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub spoilt: bool,
    /// How the operations were shared out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_worker: Option<PerWorker>,
    /// One value a worker, in the order of their numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<Workers>,
    /// Wait of the granted acquisitions, censored attempts accounted for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquire_ns: Option<Waits>,
    /// The same of readers alone, where readers and writers take the lock (`--shared`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reader_wait_ns: Option<Box<Waits>>,
    /// The same of writers alone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub writer_wait_ns: Option<Box<Waits>>,
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
    /// How hard each generator thread worked, or else the busiest worker; in `spread` each
    /// generator. Written as `generators`.
    #[serde(rename = "generators", skip_serializing_if = "Vec::is_empty", default)]
    pub thread_loads: Vec<ThreadLoad>,
    /// Time of the attempts that ended without a grant: refused tries (`--try`), and those that
    /// their own timeout ended (`--acquire-timeout`).
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
    /// The same of the last hundred before the listed number; absent where that is all of them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connect_last_ns: Option<Distribution>,
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
    /// What keeping all locks for a time came to (`hold --for`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kept: Option<Box<Kept>>,
    /// What a fault led to (`recover`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recovery: Option<Box<Recovery>>,
    /// The traffic between workers and the server of a lock service.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub traffic: Option<ServerTraffic>,
    /// What the server of a lock service did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
    /// Failures by the system's name for them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub errors: BTreeMap<String, u64>,
    /// The first failure of each kind, in words.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub messages: Vec<String>,
    /// What was looked at outside the lock; absent where nothing went wrong.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub causes: Option<Box<Causes>>,
    /// Workers and launched servers that ended before their time, in words.
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
    /// Whether these numbers may be believed, by this run alone; that of the point is
    /// the record `verdict`. Schema `jostle/1` called it `verdict`.
    #[serde(rename = "run_verdict", alias = "verdict")]
    pub verdict: Verdict,
}

/// The machine's own speed in a few basic operations, by which runs of two sessions are
/// compared: medians over several short passes before and after a run.
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
    /// Hard interrupts of devices; absent in files of before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interrupts: Option<u64>,
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
    /// What TCP counted meanwhile; absent where no server is asked, and in older files.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tcp: Option<TcpCounts>,
}

/// What TCP counted in this network namespace, by whomever it was caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpCounts {
    /// Connections that a full accept queue refused (ListenOverflows).
    pub overflows: u64,
    /// First segments of connections that were sent again (TCPSynRetrans).
    pub syn_again: u64,
    /// Acknowledgements that their timer sent (DelayedACKs).
    pub delayed_acks: u64,
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
    /// Workers whose attempt was pending at the end of the window, stamped or not. The
    /// distribution of waits has only the stamped ones.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pending: Option<u64>,
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
    /// Binds, as a directory server counts them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub binds: Option<u64>,
    /// Unbinds, as a directory server counts them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unbinds: Option<u64>,
    /// Memory that it counts, with all locks held less before the first, for
    /// each of them; absent where it does not count.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes_per_held_lock: Option<f64>,
}

/// The traffic between workers and a server over the whole run, from the start of the
/// workers to their end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerTraffic {
    /// Grants in that time.
    pub grants: u64,
    /// Times that a worker sent something, to be answered.
    pub round_trips: u64,
    /// Bytes of both directions, without the headers of TCP and below.
    pub bytes: u64,
    /// How often a worker's session went on at another server of the service; absent where
    /// that is never.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failovers: Option<u64>,
}

impl ServerTraffic {
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
