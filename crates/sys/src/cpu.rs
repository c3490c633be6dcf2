//! Which CPUs a thread may use, and how exact its timers are.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// The CPUs that this thread may use, in order.
pub fn allowed() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU)
            .filter(|cpu| set.is_set(*cpu))
            .collect(),
        Err(_) => vec![0],
    }
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

/// Sets how late the kernel may end this thread's sleeps (prctl(2),
/// PR_SET_TIMERSLACK); at least 1 ns, since zero means the default of 50 us.
///
/// # Errors
/// The system's.
pub fn set_timer_slack(nanos: u64) -> io::Result<()> {
    // SAFETY: plain numbers.
    let done = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanos.max(1), 0, 0, 0) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
