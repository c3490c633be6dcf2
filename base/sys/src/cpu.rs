//! The CPUs that a thread may use, and how exact its timers are.

pub use rustix::thread::CpuSet;
use rustix::thread::{Pid, sched_getaffinity, sched_setaffinity, set_current_timer_slack};
use std::io;
use std::num::NonZeroU64;

/// The CPUs that this thread may use, in order.
pub fn allowed() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU)
            .filter(|cpu| set.is_set(*cpu))
            .collect(),
        Err(_) => vec![0],
    }
}

/// The CPUs that the threads of another process may use, in order; None where it
/// cannot be looked at.
pub fn allowed_of(pid: u32) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for thread in crate::stat::threads_of(pid) {
        // A thread that has ended since it was listed has none to tell.
        let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")) else {
            continue;
        };
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        cpus.extend(crate::limits::text::cpu_list(line)?);
    }
    cpus.sort_unstable();
    cpus.dedup();
    (!cpus.is_empty()).then_some(cpus)
}

/// The CPUs that a thread may use, as one value to compare; None if it has ended.
pub fn mask_of(thread: u32) -> Option<CpuSet> {
    sched_getaffinity(Pid::from_raw(i32::try_from(thread).ok()?)).ok()
}

/// Binds this thread to these CPUs.
///
/// # Errors
/// EINVAL if none of them exists or is allowed.
pub fn pin(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Runs `work` so that a process that it wakes (by a signal, for example) does not run
/// before it on the same CPU. The policy SCHED_FIFO ensures this where this thread may have
/// it (root and CAP_SYS_NICE may); otherwise `work` runs under the present policy. `work`
/// is short and never waits.
pub fn undisturbed<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: a structure of plain numbers, of which musl has more than this one.
    let plain: libc::sched_param = unsafe { std::mem::zeroed() };
    let mut first = plain;
    first.sched_priority = 1;
    // SAFETY: plain numbers, and a structure of one that is only read.
    let is_first = unsafe {
        libc::sched_getscheduler(0) == libc::SCHED_OTHER
            && libc::sched_setscheduler(0, libc::SCHED_FIFO, &first) == 0
    };
    let done = work();
    if is_first {
        // SAFETY: as above. To give priority up is always allowed.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &plain) };
    }
    done
}

/// Sets how late the kernel may end this thread's sleeps (prctl(2),
/// PR_SET_TIMERSLACK); at least 1 ns, since zero means the default of 50 us.
///
/// # Errors
/// The system's.
pub fn set_timer_slack(nanos: u64) -> io::Result<()> {
    let nanos = NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN);
    Ok(set_current_timer_slack(Some(nanos))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_is_given_up_after_the_work() {
        // SAFETY: a plain number.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let within = undisturbed(policy);
        let may = rustix::process::geteuid().is_root();
        // A container may withhold it from root, too.
        assert!(within == libc::SCHED_OTHER || may && within == libc::SCHED_FIFO);
        assert_eq!(policy(), libc::SCHED_OTHER);
    }

    #[test]
    fn another_process_is_looked_at_as_it_looks_at_itself() {
        assert_eq!(allowed_of(std::process::id()), Some(allowed()));
        // One above the largest number that Linux ever gives a process.
        assert_eq!(allowed_of(4 << 20 | 1), None);
    }
}
