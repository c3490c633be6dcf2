//! One side of the load, the generator or the server, in each interval: its CPU time,
//! its waiting, and what kept it from running.

use super::kin::Kin;
use super::rounded;
use super::threads::Threads;
use jostle_model::judged::Side;
use jostle_sys::limits::cgroup::{self, Quota};
use jostle_sys::{cpu, process};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Processes that are looked at for being stopped.
const LOOKED_AT: usize = 16;

/// Processes whose CPUs are kept.
const PROCESSES: usize = 256;

/// Share of its side's CPU time from which a process counts as one that does the work.
const WORKS: f64 = 0.1;

/// A side in the making.
#[derive(Debug, Default)]
pub(super) struct Watch {
    threads: Threads,
    side: Side,
    /// Looks at which each process was there.
    ages: BTreeMap<u32, u32>,
    /// By the file that tells, how long a quota kept its group from running so far.
    throttled: BTreeMap<PathBuf, u64>,
    quota: Option<Quota>,
    /// The CPUs that each process may run on, as far as they are kept.
    allowed: BTreeMap<u32, Vec<usize>>,
    queued_s: Vec<f64>,
    throttled_s: Vec<f64>,
}

impl Watch {
    /// At the start of the first interval, or when the processes are found.
    pub(super) fn begin(&mut self, pids: &[u32]) {
        self.threads.begin(pids);
        self.look_at_limits(pids);
    }

    /// At the end of an interval.
    pub(super) fn look(&mut self, kin: &Kin, pids: &[u32], used_ns: u64, span_s: f64) {
        self.side.processes = self.side.processes.max(pids.len() as u64);
        self.side.cpu_s.push(rounded(used_ns as f64 / 1e9));
        self.queued_s.push(rounded(self.threads.look(pids)));
        let stopped_s = if is_stopped(kin, pids) { span_s } else { 0.0 };
        self.side.stopped_s.push(rounded(stopped_s));
        let throttled_s = self.throttled_s();
        self.throttled_s.push(rounded(throttled_s));
        self.look_at_limits(pids);
    }

    /// Corrects the stopped time of the latest interval: the guard has recorded each time
    /// that the command was stopped, however briefly.
    pub(super) fn stopped_for(&mut self, stopped_s: f64) {
        if stopped_s > 0.0
            && let Some(last) = self.side.stopped_s.last_mut()
        {
            *last = rounded(stopped_s);
        }
    }

    /// A process may enter a group at any time, mostly soon after it was started; and be
    /// bound to CPUs.
    fn look_at_limits(&mut self, pids: &[u32]) {
        self.ages.retain(|pid, _| pids.contains(pid));
        for pid in pids {
            let age = self.ages.entry(*pid).or_default();
            *age += 1;
            if !age.is_power_of_two() {
                continue;
            }
            if self.allowed.len() < PROCESSES || self.allowed.contains_key(pid) {
                let cpus = cpu::allowed_of(*pid).filter(|cpus| !cpus.is_empty());
                cpus.map(|cpus| self.allowed.insert(*pid, cpus));
            }
            for file in cgroup::cpu_stats_of(*pid) {
                let now = cgroup::throttled_ns(&file).unwrap_or(0);
                self.throttled.entry(file).or_insert(now);
            }
            if let Some(quota) = cgroup::cpu_quota_of(*pid)
                && self
                    .quota
                    .as_ref()
                    .is_none_or(|known| quota.cpus < known.cpus)
            {
                self.quota = Some(quota);
            }
        }
    }

    /// How long the group was stopped, in seconds; the longest among nested groups.
    fn throttled_s(&mut self) -> f64 {
        let mut longest = 0;
        for (file, before) in &mut self.throttled {
            let now = cgroup::throttled_ns(file).unwrap_or(*before);
            longest = longest.max(now.saturating_sub(*before));
            *before = now;
        }
        longest as f64 / 1e9
    }

    /// The columns.
    pub(super) fn finish(self, intervals: usize) -> Side {
        let limited = self.quota.is_some();
        let group = self
            .quota
            .as_ref()
            .map(|quota| quota.group.display().to_string());
        let allowed: BTreeSet<usize> = self.allowed.into_values().flatten().collect();
        let mut throttled_s = self.throttled_s;
        throttled_s.resize(intervals, 0.0);
        Side {
            threads: self.threads.most,
            queued_s: self.threads.counted.then_some(self.queued_s),
            throttled_s: limited.then_some(throttled_s),
            quota_cpus: self.quota.map(|quota| rounded(quota.cpus)),
            quota_group: group,
            allowed_cpus: Some(allowed.len() as u64).filter(|cpus| *cpus > 0),
            busiest: self.threads.busiest(),
            ..self.side
        }
    }
}

/// Whether a process that does the work is stopped by a signal.
fn is_stopped(kin: &Kin, pids: &[u32]) -> bool {
    let used = |pid: &u32| kin.members.get(pid).map_or(0, |member| member.total_ns);
    let all: u64 = pids.iter().map(used).sum();
    let works = |pid: &&u32| used(pid) as f64 >= WORKS * all as f64;
    let mut working = pids.iter().filter(works).take(LOOKED_AT);
    working.any(|pid| process::is_halted(*pid))
}
