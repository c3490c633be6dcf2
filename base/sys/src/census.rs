//! All processes of the machine: their identity, and the CPU time that each has used by the
//! scheduler's clock.
//!
//! Any user may read any process's CPU clock (clock_getcpuclockid(3)); its name, its
//! parent and its CPUs stand in /proc. A census costs about a microsecond a process.
//! Not for threads: those of the workers are read through `stat`.

use crate::limits::text::field;
use crate::stat::CpuClock;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

/// CPU time used so far, in nanoseconds, by process.
pub type Census = BTreeMap<u32, u64>;

/// Reads the CPU clocks of all processes that /proc shows.
pub fn take() -> Census {
    let pids = processes().into_iter();
    pids.filter_map(|pid| Some((pid, CpuClock::of(pid).ok()?.read()?)))
        .collect()
}

/// The processes that /proc shows.
pub fn processes() -> Vec<u32> {
    numbers_in("/proc")
}

/// The numbers in a directory of /proc; none where it is gone or may not be read.
pub(crate) fn numbers_in(directory: &str) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The text of /proc/PID/stat (proc_pid_stat(5)).
pub(crate) fn stat(pid: u32) -> io::Result<String> {
    let text = fs::read(format!("/proc/{pid}/stat"))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A field of such a text by its number in the manual, 3 or more. The second, a name in
/// parentheses, may hold anything.
pub(crate) fn stat_field<T: FromStr>(text: &str, nth: usize) -> Option<T> {
    let (_, after_name) = text.rsplit_once(") ")?;
    field(after_name, nth - 3)
}

/// The identity of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// As the kernel names it (comm), at most 15 bytes. Characters that would move a
    /// terminal's cursor are question marks: any process may choose its name.
    pub name: String,
    /// Its parent.
    pub parent: u32,
    /// A thread of the kernel.
    pub is_kernel: bool,
    /// CPU time of the children that it has waited for, in nanoseconds, to a tick.
    pub reaped_ns: u64,
}

impl Identity {
    /// Reads /proc/PID/stat; None if the process is gone or hidden.
    pub fn of(pid: u32) -> Option<Identity> {
        Identity::parse(&stat(pid).ok()?)
    }

    fn parse(text: &str) -> Option<Identity> {
        /// PF_KTHREAD of the kernel's include/linux/sched.h.
        const KERNEL_THREAD: u64 = 0x0020_0000;
        let (before, _) = text.rsplit_once(") ")?;
        let (_, name) = before.split_once(" (")?;
        let tick_ns = 1_000_000_000 / crate::stat::ticks_per_second().max(1);
        let printed = |c: char| if c.is_control() { '?' } else { c };
        // The CPU time of children: user's, system's.
        let reaped: u64 = stat_field::<u64>(text, 16)? + stat_field::<u64>(text, 17)?;
        Some(Identity {
            name: name.chars().map(printed).collect(),
            parent: stat_field(text, 4)?,
            is_kernel: stat_field::<u64>(text, 9)? & KERNEL_THREAD != 0,
            reaped_ns: reaped * tick_ns,
        })
    }
}

/// Whether a process is `ancestor`, or was started by it or its descendants. At most 64
/// generations are looked at.
pub fn descends_from(pid: u32, ancestor: u32) -> bool {
    let mut at = pid;
    for _ in 0..64 {
        if at == ancestor {
            return true;
        }
        match Identity::of(at) {
            Some(identity) if identity.parent > 0 => at = identity.parent,
            _ => return false,
        }
    }
    false
}

/// The names of the machine's first namespaces (PROC_PID_INIT_INO and
/// PROC_CGROUP_INIT_INO of the kernel's include/linux/proc_ns.h).
const FIRST_PIDS: &str = "pid:[4026531836]";
const FIRST_GROUPS: &str = "cgroup:[4026531835]";

/// Whether /proc shows all processes of the machine: not in a container, and not where
/// those of other users are hidden (hidepid).
pub fn is_complete() -> bool {
    is_first_pids() && fs::read_dir("/proc/1").is_ok()
}

/// Whether this is the machine's first PID namespace, which has numbers for all processes.
pub fn is_first_pids() -> bool {
    is_namespace("pid", FIRST_PIDS)
}

/// How long ago a process or thread was started, to a tick.
pub fn age(pid: u32) -> Option<Duration> {
    let ticks: u64 = stat_field(&stat(pid).ok()?, 22)?;
    let began = Duration::from_millis(ticks * 1_000 / crate::stat::ticks_per_second().max(1));
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
    Some(now.saturating_sub(began))
}

fn is_namespace(kind: &str, first: &str) -> bool {
    fs::read_link(format!("/proc/self/ns/{kind}")).is_ok_and(|found| found == Path::new(first))
}

/// Where the kernel counts the CPU time of all tasks of each CPU, to the nanosecond.
#[derive(Debug)]
pub struct Whole(File);

impl Whole {
    /// The root of the `cpuacct` hierarchy (control groups of version 1); None where
    /// there is none, or where it is a container's. Version 2 counts its root by ticks.
    pub fn find() -> Option<Whole> {
        if !is_namespace("cgroup", FIRST_GROUPS) || !is_namespace("pid", FIRST_PIDS) {
            return None;
        }
        let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mounts = crate::limits::cgroup::mounts(&text);
        let mounts = mounts.into_iter();
        let mut files = mounts.map(|mount| mount.point.join("cpuacct.usage_percpu"));
        files.find_map(|file| File::open(file).ok()).map(Whole)
    }

    /// CPU time since boot, in nanoseconds: of all tasks, and of those on these CPUs, which
    /// are all if none are named.
    pub fn read(&self, cpus: &[usize]) -> Option<[u64; 2]> {
        // Enough for 780 CPUs with 20 digits each.
        let mut buffer = [0; 16_384];
        let read = self.0.read_at(&mut buffer, 0).ok()?;
        let text = std::str::from_utf8(&buffer[..read]).ok()?;
        let whole = text.ends_with(['\n', ' ']) && read < buffer.len();
        let each = text.split_ascii_whitespace().enumerate();
        let sum = each.fold([0; 2], |[all, ours], (cpu, ns)| {
            let ns = ns.parse().unwrap_or(0);
            let is_ours = cpus.is_empty() || cpus.contains(&cpu);
            [all + ns, ours + if is_ours { ns } else { 0 }]
        });
        whole.then_some(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_and_threads_of_the_kernel_are_told() {
        let worker = "31 (kworker/0:1-(x)) I 2 0 0 0 -1 69238880 0 0 0 0 0 4 0 0 20 0 1 0 30";
        let identity = Identity::parse(worker).unwrap();
        assert_eq!(identity.name, "kworker/0:1-(x)");
        assert_eq!((identity.parent, identity.is_kernel), (2, true));
        let make = "812 (make) S 40 812 40 0 -1 4194304 0 0 0 0 1 2 30 5 20 0 1 0 30";
        let identity = Identity::parse(make).unwrap();
        let tick_ns = 1_000_000_000 / crate::stat::ticks_per_second();
        assert!(!identity.is_kernel);
        assert_eq!(identity.reaped_ns, 35 * tick_ns);
        assert_eq!(Identity::parse("812 (make"), None);
        let tricky = "812 (ma\n\u{1b}[2Jke) S 40 812 40 0 -1 4194304 0 0 0 0 1 2 30 5 20 0 1";
        assert_eq!(Identity::parse(tricky).unwrap().name, "ma??[2Jke");
    }

    #[test]
    fn a_census_holds_this_process_and_its_time_grows() {
        let own = std::process::id();
        let before = take()[&own];
        let mut x = 1u64;
        for i in 0..2_000_000u64 {
            x = std::hint::black_box(x.wrapping_mul(i | 1));
        }
        assert!(take()[&own] > before);
        let identity = Identity::of(own).unwrap();
        assert!(!identity.is_kernel && !identity.name.is_empty());
        assert!(descends_from(own, identity.parent));
        assert!(!descends_from(identity.parent, own));
        // One above the largest number that Linux ever gives a process.
        assert_eq!(Identity::of(4 << 20 | 1), None);
    }

    #[test]
    fn the_whole_holds_at_least_what_this_process_used() {
        // Absent in containers and under version 2 alone.
        let Some(whole) = Whole::find() else { return };
        let (own, [all, ours]) = (crate::stat::own_cpu_ns(), whole.read(&[]).unwrap());
        assert!(all >= own && all == ours, "{all} {own}");
        assert!(whole.read(&[0]).unwrap()[1] <= all * 2);
    }
}
