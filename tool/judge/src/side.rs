//! One side of the load, the generator or the server, in each interval: its CPU time,
//! its waiting, and what kept it from running.

use super::kin::{Kin, Member};
use super::rounded;
use super::threads::{self, Threads};
use jostle_model::judged::{Process, Side};
use jostle_sys::limits::cgroup::{self, Quota};
use jostle_sys::{cpu, process, stat, waits};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Processes that are looked at for being stopped.
const LOOKED_AT: usize = 16;

/// Processes whose CPUs are kept.
const PROCESSES: usize = 256;

/// Threads that are looked at for a wait for a lock of a file.
const AT_FILES: usize = 16;

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
    gone_s: Vec<f64>,
    /// The bytes that each process had read and written at the first look that met a thread of its
    /// that waited for a disk, and at the latest.
    disk_bytes: BTreeMap<u32, [u64; 2]>,
    /// By number; the time and the threads of each.
    processes: BTreeMap<u32, Process>,
    /// Processes that waited for a lock, as of the latest look at their titles.
    waiting: usize,
    at_locks: Vec<f64>,
    /// Threads that waited for a lock of a file, as of the latest look at them.
    at_files: usize,
    at_file_locks: Vec<f64>,
}

impl Watch {
    /// The watch of a side whose waits for disks matter.
    pub(super) fn of_server() -> Watch {
        let mut watch = Watch::default();
        watch.threads.on_disk = Some(Default::default());
        watch
    }

    /// That of a server that was not watched in so many intervals.
    pub(super) fn of_server_after(intervals: usize) -> Watch {
        let mut watch = Watch::of_server();
        (0..intervals).for_each(|_| watch.look(&Kin::default(), &[], 0, 0.0));
        watch
    }

    /// Books its CPU time as that of other programs.
    pub(super) fn give_back(self, others_s: &mut [f64]) {
        for (others, own) in others_s.iter_mut().zip(self.side.cpu_s) {
            *others = rounded(*others + own);
        }
    }

    /// At the start of the first interval, or when the processes are found.
    pub(super) fn begin(&mut self, pids: &[u32]) {
        self.threads.begin(pids);
        self.look_at_limits(pids);
    }

    /// At the end of an interval.
    pub(super) fn look(&mut self, kin: &Kin, pids: &[u32], used_ns: u64, span_s: f64) {
        for pid in pids {
            if let Some(member) = kin.members.get(pid) {
                self.follow(*pid, member);
            }
        }
        self.side.processes = self.side.processes.max(pids.len() as u64);
        self.side.cpu_s.push(rounded(used_ns as f64 / 1e9));
        self.queued_s.push(rounded(self.threads.look(pids)));
        self.look_at_disk();
        let stopped_s = if is_stopped(kin, pids) { span_s } else { 0.0 };
        self.side.stopped_s.push(rounded(stopped_s));
        self.at_locks.push(self.waiting as f64);
        self.at_file_locks.push(self.at_files as f64);
        let throttled_s = self.throttled_s();
        self.throttled_s.push(rounded(throttled_s));
        self.look_at_limits(pids);
    }

    fn look_at_disk(&mut self) {
        let Some((waiting, faults)) = &self.threads.on_disk else {
            return;
        };
        for pid in waiting.keys() {
            if let Some(bytes) = stat::disk_bytes(*pid) {
                self.disk_bytes.entry(*pid).or_insert([bytes; 2])[1] = bytes;
            }
        }
        let waiting: u32 = waiting.values().sum();
        let on_disk = self.side.on_disk.get_or_insert_default();
        on_disk.push(waiting.into());
        let major_faults = self.side.major_faults.get_or_insert_default();
        major_faults.push(*faults as f64);
    }

    fn follow(&mut self, pid: u32, member: &Member) {
        let interval = self.side.cpu_s.len();
        if self.processes.len() >= PROCESSES && !self.processes.contains_key(&pid) {
            return;
        }
        let process = self.processes.entry(pid).or_insert_with(|| Process {
            pid: pid.into(),
            gomaxprocs: gomaxprocs(pid),
            ..Process::default()
        });
        if process.cpu_s.len().is_power_of_two() {
            // Programs are executed after they were forked.
            process.name = threads::name(pid, pid).unwrap_or_else(|| member.name.clone());
            if let Some(program) = program(pid) {
                process.program = Some(program).filter(|name| !name.starts_with(&process.name));
            }
            process.threads = process.threads.max(stat::threads_of(pid).len() as u64);
            process.gomaxprocs = process.gomaxprocs.or_else(|| gomaxprocs(pid));
        }
        process.cpu_s.resize(interval, 0.0);
        process.cpu_s.push(rounded(member.latest_ns as f64 / 1e9));
    }

    /// How many of its processes say that they wait for a lock: only those of PostgreSQL do. And how
    /// many of its threads wait for that of a file.
    pub(super) fn look_at_locks(&mut self, kin: &Kin, pids: &[u32]) {
        let member = |pid: &&u32| kin.members.get(pid);
        let speaks = |pid: &&u32| member(pid).is_some_and(|member| member.name == "postgres");
        let titles = pids.iter().filter(speaks).take(PROCESSES);
        let titles = titles.map(|pid| title(*pid));
        self.waiting = titles.filter(|title| waits_for_lock(title)).count();
        let threads = pids.iter().flat_map(|pid| {
            let threads = stat::threads_of(*pid).into_iter();
            threads.map(move |tid| (*pid, tid))
        });
        let threads = threads.take(AT_FILES);
        self.at_files = threads.filter(|of| waits::for_file_lock(*of)).count();
    }

    /// Hands what was followed of these processes to another side: to that of the server, which the
    /// command had started.
    pub(super) fn hand_over(&mut self, pids: &[u32], to: &mut Watch) {
        for pid in pids {
            self.allowed.remove(pid);
            let Some(process) = self.processes.remove(pid) else {
                continue;
            };
            let both = self.side.cpu_s.iter_mut().zip(&mut to.side.cpu_s);
            for ((own, other), used) in both.zip(&process.cpu_s) {
                *own = rounded((*own - used).max(0.0));
                *other = rounded(*other + used);
            }
            to.processes.insert(*pid, process);
        }
        let moved = self.threads.hand_over(pids, &mut to.threads);
        let both = self.queued_s.iter_mut().zip(&mut to.queued_s);
        for ((own, other), queued) in both.zip(moved) {
            *own = rounded((*own - queued).max(0.0));
            *other = rounded(*other + queued);
        }
        // They are no part of this side's greatest numbers, nor are their limits.
        self.side.processes = 0;
        self.threads.most = 0;
        self.ages.clear();
        self.throttled.clear();
        self.quota = None;
    }

    /// All its processes had ended at the latest look.
    pub(super) fn gone(&mut self, span_s: f64) {
        self.gone_s
            .resize(self.side.cpu_s.len().saturating_sub(1), 0.0);
        self.gone_s.push(rounded(span_s));
    }

    /// CPU time of the latest interval.
    pub(super) fn latest_s(&self) -> f64 {
        self.side.cpu_s.last().copied().unwrap_or(0.0)
    }

    /// CPU time of the latest interval that belongs to processes which had ended by its end;
    /// their threads ran as in the interval before.
    pub(super) fn credit(&mut self, missing_s: f64, span_s: f64) {
        self.threads.credit(missing_s, span_s);
        if let Some(last) = self.side.cpu_s.last_mut() {
            *last = rounded(*last + missing_s);
        }
    }

    /// Takes over CPU time of earlier intervals, which was booked as that of other programs.
    pub(super) fn take_over(&mut self, ns: u64, others_s: &mut [f64]) {
        take_over(&mut self.side.cpu_s, ns, others_s);
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
            let quotas = [self.quota.take(), cgroup::cpu_quota_of(*pid)].into_iter();
            self.quota = quotas.flatten().min_by(|a, b| a.cpus.total_cmp(&b.cpus));
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
        let group = |quota: &Quota| quota.group.display().to_string();
        let allowed: BTreeSet<usize> = self.allowed.into_values().flatten().collect();
        let total = |process: &Process| process.cpu_s.iter().sum::<f64>();
        let processes = self.processes.into_values();
        let mut largest = processes.max_by(|a, b| total(a).total_cmp(&total(b)));
        if let Some(process) = &mut largest {
            process.cpu_s.resize(intervals, 0.0);
        }
        let mut gone_s = self.gone_s;
        let is_gone = !gone_s.is_empty();
        let any = |waiting: Vec<f64>| waiting.iter().any(|of| *of > 0.0).then_some(waiting);
        gone_s.resize(intervals, 0.0);
        let mut throttled_s = self.throttled_s;
        throttled_s.resize(intervals, 0.0);
        let disk_bytes = self.disk_bytes.values().map(|[first, last]| last - first);
        Side {
            disk_bytes: (!self.disk_bytes.is_empty()).then(|| disk_bytes.sum()),
            threads: self.threads.most,
            queued_s: self.threads.counted.then_some(self.queued_s),
            throttled_s: self.quota.is_some().then_some(throttled_s),
            quota_cpus: self.quota.as_ref().map(|quota| rounded(quota.cpus)),
            quota_group: self.quota.as_ref().map(group),
            allowed_cpus: Some(allowed.len() as u64).filter(|cpus| *cpus > 0),
            busiest: self.threads.busiest(),
            gone_s: is_gone.then_some(gone_s),
            at_locks: any(self.at_locks),
            at_file_locks: any(self.at_file_locks),
            largest,
            ..self.side
        }
    }
}

/// Moves CPU time of earlier intervals from `others_s`, the latest first, where it was booked before
/// the processes were known.
pub(super) fn take_over(own_s: &mut [f64], ns: u64, others_s: &mut [f64]) {
    let mut left_s = ns as f64 / 1e9;
    for (own, others) in own_s.iter_mut().zip(others_s).rev() {
        let moved = left_s.min(*others);
        (*own, *others) = (rounded(*own + moved), rounded(*others - moved));
        left_s -= moved;
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

fn title(pid: u32) -> Vec<u8> {
    std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// A process of PostgreSQL ends its title with `waiting` as long as it waits for a lock of the
/// database (update_process_title, which is on unless it was turned off).
fn waits_for_lock(title: &[u8]) -> bool {
    let is_text = |byte: &u8| !matches!(byte, 0 | b' ');
    let end = title.iter().rposition(is_text);
    let text = &title[..end.map_or(0, |last| last + 1)];
    text.starts_with(b"postgres: ") && text.ends_with(b" waiting")
}

/// The file name of its program; none where that may not be read.
fn program(pid: u32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    Some(path.file_name()?.to_string_lossy().into_owned())
}

/// GOMAXPROCS of its environment.
fn gomaxprocs(pid: u32) -> Option<u64> {
    let text = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut words = text.split(|byte| *byte == 0);
    let value = words.find_map(|word| word.strip_prefix(b"GOMAXPROCS="))?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    mod live_tests {
        use super::*;

        #[test]
        fn a_script_s_program_is_its_interpreter() {
            let directory = tempfile::tempdir().unwrap();
            let script = directory.path().join("load");
            std::fs::write(&script, "#!/bin/sh\nread line\n").unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&script, mode).unwrap();
            let mut child = std::process::Command::new(&script)
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            // spawn() may return shortly before the kernel has given the name.
            let is_named = || threads::name(child.id(), child.id()).as_deref() == Some("load");
            assert!((0..60_000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                is_named()
            }));
            let shell = std::fs::canonicalize("/bin/sh").unwrap();
            let shell = shell.file_name().unwrap().to_str();
            assert_eq!(program(child.id()).as_deref(), shell);
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    #[test]
    fn a_title_tells_a_wait_for_a_lock() {
        let own = b"postgres: 15/main: app shop 127.0.0.1(41234) UPDATE waiting\0\0\0";
        assert!(waits_for_lock(own));
        assert!(waits_for_lock(b"postgres: a b [local] SELECT waiting  "));
        assert!(!waits_for_lock(b"postgres: a b [local] SELECT\0"));
        assert!(!waits_for_lock(b"agent\0waiting\0") && !waits_for_lock(b"\0"));
    }
}
