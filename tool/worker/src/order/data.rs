//! The results of a run on one host, in parts. Each part that can be known without the others adds
//! up over hosts by its own `join`.

use super::{RequestData, SpreadData};
use jostle_model::joined;
use jostle_model::record::{
    Buckets, Circumstances, Exclusion, Kept, Server, ServerTraffic, Slice, ThreadLoad, Window,
};
use jostle_stats::histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::iter::Sum;
use std::ops::AddAssign;

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

impl Merged {
    /// Adds so many values of this size.
    pub fn add(&mut self, value: u64, count: u64) {
        let floor = histogram::floor(histogram::index(value));
        let one = Merged {
            buckets: Buckets((count > 0).then_some((floor, count)).into_iter().collect()),
            sum: value * count,
            min: value,
            max: value,
        };
        self.join(&one);
    }

    /// Adds all values of another one, bucket by bucket.
    pub fn join(&mut self, other: &Merged) {
        let buckets = &mut self.buckets.0;
        if other.buckets.0.is_empty() {
            return;
        }
        if buckets.is_empty() {
            self.clone_from(other);
            return;
        }
        for (floor, count) in &other.buckets.0 {
            match buckets.binary_search_by_key(floor, |(floor, _)| *floor) {
                Ok(at) => buckets[at].1 += count,
                Err(at) => buckets.insert(at, (*floor, *count)),
            }
        }
        self.sum += other.sum;
        (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
    }
}

impl<'a> Sum<&'a Merged> for Merged {
    fn sum<I: Iterator<Item = &'a Merged>>(parts: I) -> Merged {
        let mut all = Merged::default();
        parts.for_each(|part| all.join(part));
        all
    }
}

/// The work of one generator's workers in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunData {
    /// The failure of the server when the workers had ended: no pilot may rest on such a run.
    pub broke_off: Option<String>,
    /// The window as it was, and the time around it.
    pub window: Window,
    /// When the first worker began, by `CLOCK_MONOTONIC` of its host; zero: none did.
    pub began_ns: u64,
    /// One value for each worker.
    pub workers: EachWorker,
    /// Grants that the workers received in the run, warm-up and drain included.
    pub received: u64,
    /// The outcomes of attempts.
    pub attempts: Attempts,
    /// Distributions by the figure's name.
    pub figures: BTreeMap<String, Merged>,
    /// Spans of the attempts that had no grant by the end of the window, or
    /// that their timeout ended.
    pub censored: Merged,
    /// The spans of readers, and of writers, where both take the lock.
    pub censored_by_mode: Option<Box<[Merged; 2]>>,
    /// Sleeping idles that ended within the window.
    pub idles: Total,
    /// Equal parts of the window, or of the operations.
    pub slices: Vec<SliceData>,
    /// The phases of `hold`.
    pub phases: Option<HoldPhases>,
    /// Whether the target is a lock at all; specimens that grant all are not.
    pub excludes: bool,
    /// The witness's report, and the comparison with other hosts, once the hosts are one.
    pub exclusion: Exclusion,
    /// The workers' use of the CPUs.
    pub cpu: CpuData,
    /// Load of each generator thread, or else of the busiest worker; of `spread` that of each
    /// generator.
    pub thread_loads: Vec<ThreadLoad>,
    /// The circumstances of the run, what went wrong in it, and what was planted.
    pub around: Circumstances,
    /// The server, where one does the work or a process of one was found, without what the grants
    /// and operations of all hosts tell of it.
    pub server: Option<Server>,
    /// The traffic with the server of a lock service.
    pub traffic: Option<ServerTraffic>,
    /// The record of keeping all locks for a time, without the lateness of renewals.
    pub kept: Option<Box<Kept>>,
    /// The generators over which requests were spread.
    pub spread: Option<Box<SpreadData>>,
    /// The results of requests, where workers made any.
    pub requests: Option<Box<RequestData>>,
    /// When its workers were owners, for the comparison with other hosts.
    #[serde(default, skip_serializing_if = "GrantLog::is_empty")]
    pub grants: GrantLog,
}

impl RunData {
    /// Adds what the workers of another host did in the same run, who follow its own. The
    /// texts and whatever depends on which hosts these are stay as they were.
    pub fn join(&mut self, other: &RunData) {
        self.window.join(&other.window);
        self.workers.join(&other.workers);
        self.received += other.received;
        self.attempts.join(&other.attempts);
        for (name, figure) in &other.figures {
            self.figures.entry(name.clone()).or_default().join(figure);
        }
        self.censored.join(&other.censored);
        join_any(
            &mut self.censored_by_mode,
            &other.censored_by_mode,
            |all, one| {
                let modes = all.iter_mut().zip(one.iter());
                modes.for_each(|(all, one)| all.join(one));
            },
        );
        self.idles += other.idles;
        let slices = self.slices.len().max(other.slices.len());
        self.slices.resize(slices, SliceData::default());
        let each = self.slices.iter_mut().zip(&other.slices);
        each.for_each(|(all, one)| all.join(one));
        let phases = self.phases.zip(other.phases);
        self.phases = phases.map(|(all, one)| all.longest(one));
        self.excludes |= other.excludes;
        self.exclusion.join(&other.exclusion);
        self.cpu.join(&other.cpu);
        self.thread_loads.extend_from_slice(&other.thread_loads);
        join_any(&mut self.server, &other.server, Server::join);
        join_any(&mut self.traffic, &other.traffic, ServerTraffic::join);
        join_any(&mut self.requests, &other.requests, |all, one| {
            all.join(one);
        });
    }
}

/// Joins what only some hosts know, or have.
pub(super) fn join_any<V: Clone>(
    all: &mut Option<V>,
    one: &Option<V>,
    join: impl FnOnce(&mut V, &V),
) {
    match (&mut *all, one) {
        (Some(all), Some(one)) => join(all, one),
        (None, Some(_)) => all.clone_from(one),
        (_, None) => {}
    }
}

/// Values of each worker, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EachWorker {
    /// Grants within the window.
    pub operations: Vec<u64>,
    /// From the common start to the worker's end, where a number of operations ends the run.
    pub elapsed_ns: Vec<u64>,
    /// Longest wait, the attempt pending at the end included.
    pub longest_wait_ns: Vec<u64>,
}

impl EachWorker {
    fn join(&mut self, other: &EachWorker) {
        self.operations.extend(&other.operations);
        self.elapsed_ns.extend(&other.elapsed_ns);
        self.longest_wait_ns.extend(&other.longest_wait_ns);
    }
}

/// The outcomes of the attempts to take a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    /// Workers whose attempt was pending at the end, whether or not its start was stamped.
    pub pending: u64,
    /// Stamped grants.
    pub stamped: u64,
    /// Those of them that were contended.
    pub contended: u64,
    /// Time within the window that all workers were blocked, weighted by the sampling.
    pub blocked_ns: u64,
    /// Grants to another worker than the one before.
    pub owner_changes: u64,
    /// Longest streak of one worker.
    pub streak: u64,
    /// The longest of which another worker waited.
    pub streak_waited: u64,
    /// Attempts that their timeout ended.
    pub timeouts: u64,
    /// Tries that were refused.
    pub refusals: u64,
}

impl Attempts {
    fn join(&mut self, other: &Attempts) {
        joined!(self, other: pending stamped contended blocked_ns owner_changes timeouts refusals;
            streak streak_waited);
    }
}

/// So many times of one kind, and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// How many.
    pub count: u64,
    /// Their time together.
    pub ns: u64,
}

impl Total {
    /// The mean time of one of them; None without any.
    pub fn mean_ns(self) -> Option<f64> {
        (self.count > 0).then(|| self.ns as f64 / self.count as f64)
    }
}

impl AddAssign for Total {
    fn add_assign(&mut self, other: Total) {
        self.count += other.count;
        self.ns += other.ns;
    }
}

/// One of ten equal parts of a window, or of the operations of each worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceData {
    /// Operations in it.
    pub operations: u64,
    /// The waits of the stamped ones.
    pub waits: Total,
    /// Their releases.
    pub releases: Total,
}

impl SliceData {
    /// Adds the same part of another worker, or of other workers.
    pub fn join(&mut self, other: &SliceData) {
        joined!(self, other: operations waits releases);
    }

    /// As a result has it.
    pub fn record(&self) -> Slice {
        Slice {
            operations: self.operations,
            mean_wait_ns: self.waits.mean_ns(),
            mean_release_ns: self.releases.mean_ns(),
        }
    }
}

/// The times of acquiring and of releasing all locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldPhases {
    /// From the common start until all locks were held.
    pub acquiring_ns: u64,
    /// From the first release to the end.
    pub releasing_ns: u64,
}

impl HoldPhases {
    fn longest(self, other: HoldPhases) -> HoldPhases {
        HoldPhases {
            acquiring_ns: self.acquiring_ns.max(other.acquiring_ns),
            releasing_ns: self.releasing_ns.max(other.releasing_ns),
        }
    }
}

/// CPU time in user mode and in the kernel, as sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTimes {
    /// In user mode.
    pub user_ns: u64,
    /// In the kernel.
    pub system_ns: u64,
}

impl CpuTimes {
    /// Both.
    pub fn all_ns(self) -> u64 {
        self.user_ns + self.system_ns
    }

    /// Without a part of it.
    pub fn less(self, part: CpuTimes) -> CpuTimes {
        CpuTimes {
            user_ns: self.user_ns.saturating_sub(part.user_ns),
            system_ns: self.system_ns.saturating_sub(part.system_ns),
        }
    }

    /// Divides exact CPU time in the same proportion: user, system. None of no usage.
    pub fn split(self, cpu_s: f64) -> Option<[f64; 2]> {
        let all = self.all_ns() as f64;
        let part = |ns: u64| cpu_s * ns as f64 / all;
        (all > 0.0).then(|| [self.user_ns, self.system_ns].map(part))
    }
}

impl AddAssign for CpuTimes {
    fn add_assign(&mut self, other: CpuTimes) {
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
    }
}

/// The CPU use of workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuData {
    /// CPU time within the window; None if one of their clocks could not be read.
    pub used_ns: Option<u64>,
    /// The part of it that they spun at the ends of sleeping holds.
    pub spun_ns: u64,
    /// User and system time of their lives after the start.
    pub usage: CpuTimes,
    /// Time on the run queue within the window.
    pub runqueue_wait_ns: Option<u64>,
    /// Times that one was put on a CPU within the window.
    pub switches: Option<u64>,
    /// Time that one reading of all CPU clocks took.
    pub read_ns: u64,
}

impl CpuData {
    /// Adds another host's: a value that one host lacks is lacking in the whole.
    fn join(&mut self, other: &CpuData) {
        let known = |all: &mut Option<u64>, one: Option<u64>| {
            *all = all.zip(one).map(|(all, one)| all + one);
        };
        known(&mut self.used_ns, other.used_ns);
        self.spun_ns += other.spun_ns;
        self.usage += other.usage;
        known(&mut self.runqueue_wait_ns, other.runqueue_wait_ns);
        known(&mut self.switches, other.switches);
        self.read_ns = self.read_ns.max(other.read_ns);
    }
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
