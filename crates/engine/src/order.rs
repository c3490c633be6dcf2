//! What the parent asks of the keeper and what it gets back: plain data, so
//! that it can be sent to a process here, and to other hosts.

mod running;

pub use running::{Running, SHARES, Used, shares};

use jostle_model::ServerAt;
use jostle_model::connect::{Accept, Close, Only, PortRange, Stopped};
use jostle_model::plan::{
    Arrivals, Carrier, Connection, Fault, Measure, Names, Place, Range, Workload,
};
use jostle_model::record::{Accounts, Across, Anchor, Buckets, Event, Latencies, Machine};
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
    /// Threads that carry tasks, or, where requests are spread, processes that
    /// carry threads.
    pub generators: usize,
    /// CPUs' worth of time that each of these processes gets; None: no limit.
    pub generator_cpu: Option<f64>,
    /// The CPUs they are dealt round robin; empty: wherever they like.
    pub cpus: Vec<usize>,
    /// The CPUs of servers that targets bring along; empty: wherever they like.
    pub server_cpus: Vec<usize>,
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
    /// Slack of each worker's timers.
    pub timer_slack: Nanos,
    /// By how much the sleep of a hold is cut short; the rest is spun.
    #[serde(default)]
    pub wake_early: Nanos,
    /// A profiler or tracer that runs along.
    pub during: Option<String>,
    /// The server's processes, where they cannot be found behind our connections.
    #[serde(default)]
    pub server: Option<ServerAt>,
    /// Bound on the offset between CPUs' clocks; earlier hand-offs are faults.
    pub clock_uncertainty: Nanos,
    /// Workers send requests instead of taking locks.
    pub requests: Option<RequestOrder>,
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
    /// What `cpus` were taken from; another host has others.
    pub place: Place,
    /// Which part of a run over several hosts this is; None: all of it.
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
    /// What the names of locks are made of, the same on all hosts.
    pub names: u64,
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
    /// They come at a rate; None: each worker's as soon as it has the last answer.
    pub open_loop: Option<OpenLoopOrder>,
    /// What connections they have; None: as the target does by itself.
    pub connection: Option<Connection>,
    /// The file with name and password.
    pub credentials: Option<String>,
    /// The log in which the server's own counts are read.
    pub server_log: Option<String>,
}

/// Requests that come at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenLoopOrder {
    /// So many a second.
    pub per_s: u64,
    /// How they follow each other.
    pub arrivals: Arrivals,
    /// One that finds no free slot for so long is not sent.
    pub drop_after: Nanos,
    /// When the first one is due, where requests follow at equal distances: those
    /// of several hosts take turns.
    pub first_after: Nanos,
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

    /// The number of a worker of this host among those of all hosts.
    pub fn number(&self, worker: usize) -> usize {
        worker + self.share.map_or(0, |share| share.first_worker)
    }

    /// Workers of all hosts.
    pub fn workers_in_all(&self) -> usize {
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
        several && (self.workload == Workload::Contend || self.names == Names::One)
    }

    /// Whether a number of operations ends the run, and not a time.
    pub fn is_counted(&self) -> bool {
        !self.workload.has_window()
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

    /// The workers that generator number `nth` carries.
    pub fn generator(&self, nth: usize) -> std::ops::Range<usize> {
        let edge = |nth: usize| nth * self.workers / self.generators.max(1);
        edge(nth)..edge(nth + 1)
    }

    /// How many pipelined requests of a task are sent together. A connection that is
    /// alone on its thread sends a quarter of them at a time, so that server and client
    /// work at the same time; among several connections the others see to that. Small
    /// parts cost more than they bring.
    pub fn sent_together(&self) -> u64 {
        const LEAST: u64 = 25;
        let depth = self.pipeline as u64;
        match self.workers.div_ceil(self.generators.max(1)) {
            0 | 1 => depth.div_ceil(4).max(LEAST).min(depth),
            _ => depth,
        }
    }

    /// Whether workers log their grants: where owners exclude each other one by one,
    /// and each grant is stamped by itself.
    pub fn logs_grants(&self) -> bool {
        let one_by_one = match self.workload {
            Workload::Contend => true,
            Workload::Stream => self.names == Names::One && self.pipeline <= 1,
            Workload::Hold
            | Workload::Connect
            | Workload::Rate
            | Workload::Spread
            | Workload::Recover => false,
        };
        let full = self.measure == Measure::Full && self.range == Range::Same;
        self.log_grants > 0 && one_by_one && full && self.requests.is_none()
    }

    /// Whether it is a stream whose workers wait for each other, one request at
    /// a time, so that there are hand-offs to be seen.
    pub fn is_contended_stream(&self) -> bool {
        let stream = self.workload == Workload::Stream && self.pipeline <= 1;
        stream && self.names == Names::One && self.workers > 1
    }

    /// How long workers may finish what they are at, after the window's end, before
    /// their waits are ended. A request that is cut off may have been served all the
    /// same, and counted.
    pub fn grace(&self) -> Nanos {
        match self.workload {
            Workload::Rate | Workload::Spread => Nanos::from_millis(1_000),
            _ => Nanos::ZERO,
        }
    }

    /// The longest that a worker may need after the window's end: it finishes
    /// its hold.
    pub fn patience(&self) -> Nanos {
        Nanos(2_000_000_000 + 2 * self.hold.span().0 + self.grace().0)
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

/// One sweep of `connect`: connections grow to each of the listed numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepOrder {
    /// The target as typed.
    pub target: String,
    /// Numbers of connections, ascending.
    pub open: Vec<u64>,
    /// Other sockets that listen.
    pub listeners: u64,
    /// Source addresses.
    pub sources: u64,
    /// Which sweep of the experiment this is, so that no source address is used
    /// twice.
    pub sweep: u64,
    /// Destination ports.
    pub ports: u64,
    /// How acceptors share.
    pub accept: Accept,
    /// Processes that accept at the same time.
    pub acceptors: u64,
    /// Bind the source address, with its port or without; None: bind nothing.
    pub bind_no_port: Option<bool>,
    /// Ports that the kernel may choose.
    pub port_range: Option<PortRange>,
    /// How connections end.
    pub close: Close,
    /// Connections a second that are offered.
    pub rate: Option<u64>,
    /// Send buffer of each socket.
    pub sndbuf: Option<u64>,
    /// Receive buffer of each socket.
    pub rcvbuf: Option<u64>,
    /// The one step that is measured.
    pub only: Option<Only>,
    /// The CPUs: the first for clients, the others for servers; empty: any.
    pub cpus: Vec<usize>,
    /// What these CPUs were chosen by; each of several hosts has its own.
    pub place: Place,
    /// Slack of each process's timers.
    pub timer_slack: Nanos,
    /// What it asks of the machine.
    pub load: Demand,
    /// How long nothing may move before that is called a timeout.
    pub patience: Nanos,
    /// Runs along.
    pub during: Option<String>,
    /// The server's processes, where they cannot be found behind our connections.
    #[serde(default)]
    pub server: Option<ServerAt>,
    /// Whether somebody watches, so that the keeper tells how far the sweep is.
    #[serde(default)]
    pub watched: bool,
    /// With other hosts at the same time, which wait for each other at each listed
    /// number.
    pub together: Option<Together>,
    /// The seed of this sweep.
    pub seed: u64,
}

impl SweepOrder {
    /// As it is for this host, which may use these CPUs.
    pub fn here(mut self, allowed: &[usize]) -> SweepOrder {
        if self.together.is_some() {
            self.cpus = cpus(&self.place, allowed);
        }
        self
    }
}

/// What one of several hosts is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Assignment {
    /// A run.
    Run(Box<RunOrder>),
    /// A sweep of connections.
    Sweep(Box<SweepOrder>),
}

/// One fault, struck while one process owns a lock and others wait for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecoverOrder {
    /// As typed.
    pub target: String,
    /// What strikes.
    pub fault: Fault,
    /// Processes that wait.
    pub waiters: usize,
    /// How long the next grant is waited for.
    pub within: Nanos,
    /// How long what is stopped stays so.
    pub pause: Nanos,
    /// The lease of locks that have one.
    pub lease: Nanos,
    /// Slack of each process's timers.
    pub timer_slack: Nanos,
    /// The seed of the time at which the fault strikes.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecoverYield {
    /// In the order of time, without the ends of leases.
    pub history: Vec<Event>,
    /// The lease that locks had.
    pub lease_ns: Option<u64>,
    /// By so much it may end early.
    pub lease_step_ns: Option<u64>,
    /// When the owner asked for its lease.
    pub leased_at_ns: Option<u64>,
    /// Around the call that struck.
    pub struck_ns: (u64, u64),
    /// When what was struck went on.
    pub returned_ns: Option<u64>,
    /// From the first fork until all were ready.
    pub ramp_ns: u64,
    /// From the first acquisition to the last process's end.
    pub took_ns: u64,
    /// Processes that ended otherwise than they should, in words.
    pub deaths: Vec<String>,
    /// Facts about the target's set-up, by name.
    pub setup: BTreeMap<String, f64>,
}

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
    Ran(Box<Yield>),
    /// For each block: nanoseconds a pair with counting alone, in full, without
    /// stamps, without witness.
    Cost(Vec<[f64; 4]>),
    /// What became of a lock after a fault.
    Recovered(Box<RecoverYield>),
    /// What the machine's simplest acts take, if it could be measured.
    Latencies(Option<Latencies>),
    /// A listed number of connections is open, or as many as there can be.
    Reached(Box<Reached>),
    /// All are closed again.
    Closed(Box<Closed>),
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
    /// When the first worker began, by `CLOCK_MONOTONIC` of its host; zero: none did.
    #[serde(default)]
    pub began_ns: u64,
    /// Grants of each worker within the window.
    pub operations: Vec<u64>,
    /// From the common start to the end of each worker, where a number of
    /// operations ends the run.
    pub elapsed_ns: Vec<u64>,
    /// Load of each generator thread, or else of the busiest worker: CPU time with time
    /// on the run queue, and the latter alone, as shares of its wall time.
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
    /// The part of `cpu_ns` that workers spun at the ends of sleeping holds.
    #[serde(default)]
    pub spun_ns: u64,
    /// What sleeping idles that ended within the window took together, and how many
    /// they were.
    #[serde(default)]
    pub idled: (u64, u64),
    /// User and system time of the workers' lives after the start, as sampled.
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
    /// Who used the CPUs between the readings.
    #[serde(default)]
    pub accounts: Option<Box<Accounts>>,
    /// Locks that the server granted during the run, where it counts them.
    pub server_counted: Option<u64>,
    /// Binds that a directory server completed during the run.
    pub server_binds: Option<u64>,
    /// Unbinds that it completed.
    pub server_unbinds: Option<u64>,
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
    /// What ran along, and how it ended.
    pub during: Option<String>,
    /// What the machine itself took, before and after.
    pub anchor: Option<Anchor>,
    /// The generators over which requests were spread.
    pub spread: Option<Box<SpreadYield>>,
    /// What requests came to, where workers made any.
    pub requests: Option<Box<RequestYield>>,
    /// When its workers were owners, for the comparison with other hosts.
    #[serde(default, skip_serializing_if = "GrantLog::is_empty")]
    pub grants: GrantLog,
    /// What came of that comparison, once the hosts are one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub across: Option<Box<Across>>,
}

/// The generators over which requests were spread, within the window. Those of
/// several hosts follow each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpreadYield {
    /// One after the other.
    pub generators: Vec<GeneratorYield>,
    /// Time that requests were in flight, all workers together.
    pub in_flight_ns: u64,
    /// What is known of the CPUs of generators and server, of each machine with
    /// generators.
    pub sides: Vec<Sides>,
}

/// What is known on one machine of the CPUs of generators and server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sides {
    /// Whether a server answers at all.
    pub remote: bool,
    /// Whether its address is another machine's, by all that can be seen.
    pub elsewhere: bool,
    /// CPUs of the generators.
    pub generators: Vec<usize>,
    /// CPUs of the server; None: its process is not known, or not here.
    pub server: Option<Vec<usize>>,
    /// CPUs' worth of time that the generators have together, at most.
    pub generators_quota: Option<f64>,
    /// The same of the server.
    pub server_quota: Option<f64>,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorYield {
    /// Rank of its host, where there are several.
    pub rank: Option<u64>,
    /// Share of their CPUs that all generators of its machine used together; None:
    /// those of this yield are all.
    pub of_cpus: Option<f64>,
    /// Its workers.
    pub workers: u64,
    /// Requests that they completed.
    pub operations: u64,
    /// CPU time of its process.
    pub cpu_ns: Option<u64>,
    /// Load of its busiest thread: CPU time with time on the run queue, and the latter
    /// alone, as shares of the window.
    pub busiest: Option<(f64, f64)>,
    /// Periods of its quota, and those in which it ran out.
    pub periods: Option<(u64, u64)>,
    /// Time in which it stood still.
    pub still_ns: u64,
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
    /// What became of requests that came at a rate.
    pub open_loop: Option<Box<OpenLoopYield>>,
}

/// What became of the requests that were due in the window, and how late they
/// were: see [`jostle_model::open_loop::OpenLoop`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpenLoopYield {
    /// By the schedule.
    pub planned: u64,
    /// Answered as expected.
    pub done: u64,
    /// Answered otherwise, or not in time.
    pub failed: u64,
    /// Never sent.
    pub dropped: u64,
    /// The part of `dropped` for want of the generator and not of a slot.
    pub dropped_with_slot: u64,
    /// The part of `dropped` that still waited when the window closed.
    pub dropped_at_end: u64,
    /// Sent and not answered.
    pub in_flight: u64,
    /// From the intended start to the answer.
    pub response: Merged,
    /// From the intended start to the end of the run, or to being dropped.
    pub unanswered: Merged,
    /// What the generator was late by.
    pub generator_lag: Merged,
    /// What the target was late by.
    pub target_lag: Merged,
    /// What the canary was late by.
    pub canary_lag: Merged,
}

/// What opening connections up to a listed number was like. Figures are of those
/// beyond the number before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reached {
    /// The listed number.
    pub listed: u64,
    /// Open at the beginning.
    pub from: u64,
    /// Open at the end.
    pub opened: u64,
    /// Accepted at the end, all of the sweep.
    pub accepted: Option<u64>,
    /// From beginning to end.
    pub took_ns: u64,
    /// The same of all listed numbers so far.
    pub total_ns: u64,
    /// From the first fork to the last process ready.
    pub ramp_ns: u64,
    /// Distributions by name.
    pub figures: BTreeMap<String, Merged>,
    /// The side that connects.
    pub client: SideYield,
    /// The side that accepts.
    pub server: Option<SideYield>,
    /// Connections accepted by each lane.
    pub accepted_by: Vec<u64>,
    /// The greatest lateness of an intended start, of all so far.
    pub lag_ns: Option<u64>,
    /// The machine meanwhile.
    pub machine: Machine,
    /// Who used the CPUs meanwhile.
    #[serde(default)]
    pub accounts: Option<Box<Accounts>>,
    /// What the kernel's slab grew by since the sweep began.
    pub slab_bytes: i64,
    /// What available memory fell by since the sweep began.
    pub memory_bytes: i64,
    /// By cache, since the sweep began.
    pub caches: BTreeMap<String, i64>,
    /// TCP sockets by state.
    pub sockstat: BTreeMap<String, u64>,
    /// Descriptors that each process may have.
    pub descriptors: Option<u64>,
    /// Connections that the peer had closed or reset; None where nothing is
    /// connected.
    #[serde(default)]
    pub lost: Option<Lost>,
    /// What ended the sweep here.
    pub stopped: Option<Stopped>,
    /// When the first connection of these began, by `CLOCK_MONOTONIC` of its host;
    /// zero: there was none.
    #[serde(default)]
    pub began_ns: u64,
    /// Processes that ended before their time, in words.
    pub deaths: Vec<String>,
    /// Medians of connecting and accepting by decade; with the last number.
    pub decades: BTreeMap<String, [Option<u64>; 2]>,
    /// What ran along, and how it ended; with the last number.
    pub during: Option<String>,
}

/// Connections that one side holds and the other does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// How many.
    pub count: u64,
    /// The number of the first one, in the order of opening on one host.
    pub first: Option<u64>,
}

/// One side of the connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideYield {
    /// Processes.
    pub processes: u64,
    /// CPU time.
    pub cpu_ns: u64,
    /// User and system time, as sampled.
    pub usage_ns: (u64, u64),
    /// Memory of its processes, by all connections so far.
    pub own_bytes: Option<u64>,
}

/// How the connections were closed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Closed {
    /// For each number that was reached: distributions by name.
    pub figures: Vec<(u64, BTreeMap<String, Merged>)>,
    /// Medians of the first close() by decade of connections still open.
    pub decades: BTreeMap<String, u64>,
    /// TCP sockets in TIME_WAIT afterwards less those before.
    pub time_wait_left: Option<u64>,
    /// What the machine itself took, before and after the sweep.
    pub anchor: Option<Anchor>,
}

/// The grants of one host's workers within its window. Times are its
/// `CLOCK_MONOTONIC`'s.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GrantLog {
    /// Grants of the window, logged or not.
    pub made: u64,
    /// From the window's opening to `until_ns` no grant is missing.
    pub from_ns: u64,
    /// The window's end, or the first grant that some worker's log had no place for.
    pub until_ns: u64,
    /// The logs of all workers, each with its number and how many grants follow. A grant
    /// is the time since the release before, time held, lock and bits, and growth of the
    /// token. LEB128, in base64.
    pub packed: String,
}

impl GrantLog {
    /// Whether nothing was logged, and nobody asked for it.
    pub fn is_empty(&self) -> bool {
        *self == GrantLog::default()
    }
}

/// What a sweep asks of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// Whether the family has ports.
    pub has_ports: bool,
    /// Whether the server is ours.
    pub embedded: bool,
    /// Source addresses.
    pub sources: u64,
    /// Destination ports.
    pub ports: u64,
    /// Ports that the plan narrows to.
    pub port_range: Option<PortRange>,
    /// Whether sockets are bound and no more.
    pub alone: bool,
    /// Whether a port is taken before its destination is known, by bind().
    pub binds_port: bool,
    /// Processes that accept at the same time.
    pub acceptors: u64,
    /// Other sockets that listen.
    pub listeners: u64,
    /// Memory of one connection.
    pub bytes_each: u64,
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
