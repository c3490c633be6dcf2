//! Processes: forked workers, how they end, and what the keeper may do to them.

use crate::census;
use crate::errno::done;
use crate::limits::cgroup;
use crate::waited;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open};
use rustix::time::Timespec;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The right to fork: proof that this process had a single thread.
///
/// A forked child of a process with threads may find any lock of the C library
/// or the allocator taken forever. The holder must not start threads.
#[derive(Debug)]
pub struct Forker(());

impl Forker {
    /// Looks at /proc/self/task.
    ///
    /// # Errors
    /// If there are several threads, or /proc is not mounted.
    pub fn new() -> io::Result<Forker> {
        match std::fs::read_dir("/proc/self/task")?.count() {
            1 => Ok(Forker(())),
            n => Err(io::Error::other(format!(
                "fork refused: this process has {n} threads"
            ))),
        }
    }

    /// Forks. The child runs `body` and leaves with its code, without running
    /// destructors or exit handlers; a panic leaves with 101.
    ///
    /// # Errors
    /// EAGAIN where a limit on processes is reached, ENOMEM.
    pub fn fork(&self, body: impl FnOnce() -> i32) -> io::Result<Pid> {
        // SAFETY: one thread (see `Forker`), so that the child may do whatever
        // the parent could.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let code = catch_unwind(AssertUnwindSafe(body)).unwrap_or(101);
                // SAFETY: ends this process without touching what it shares
                // with its parent.
                unsafe { libc::_exit(code) }
            }
            pid => Pid::from_raw(pid).ok_or_else(|| io::Error::other("fork returned no process")),
        }
    }
}

/// Sets a variable of this process's environment, or removes it (None): what it starts from now on
/// inherits that.
pub fn set_variable(_one_thread: &Forker, name: &str, value: Option<&str>) {
    // SAFETY: `Forker` is the proof that this process has a single thread, so that
    // nobody reads the environment meanwhile.
    unsafe {
        match value {
            Some(value) => std::env::set_var(name, value),
            None => std::env::remove_var(name),
        }
    }
}

/// Kills this process as soon as its parent ends, and at once if that is
/// already not `parent` (prctl(2), PR_SET_PDEATHSIG).
///
/// # Errors
/// If the parent is gone, or the system's.
pub fn die_with(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    match rustix::process::getppid() {
        Some(now) if now == parent => Ok(()),
        _ => Err(io::Error::other("the parent process is gone")),
    }
}

/// Puts this process into a group of its own, away from the terminal's signals.
///
/// # Errors
/// The system's.
pub fn leave_group() -> io::Result<()> {
    Ok(rustix::process::setpgid(None, None)?)
}

/// Becomes the parent of every descendant that loses its own (prctl(2),
/// PR_SET_CHILD_SUBREAPER), so that [`end_children`] finds them all.
///
/// # Errors
/// The system's.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(
        rustix::process::getpid(),
    ))?)
}

/// Kills every child of this process, and those that come to it as their parents
/// end, until none is left or `patience` is over. True if none is left.
///
/// Call it only where no child has to survive.
pub fn end_children(patience: Duration) -> bool {
    let is_none_left = || {
        let is_left = any_child();
        is_left.then(|| children().into_iter().for_each(kill));
        (!is_left).then_some(())
    };
    waited::within(patience, Duration::from_millis(1), is_none_left).is_some()
}

/// Kills a child, and takes its end if that comes within `patience`. A child whose end was taken
/// before is asked for first: its number may be another's by now.
pub fn end_child(pid: u32, patience: Duration) {
    waited::within(patience, Duration::from_micros(100), || {
        let is_gone = is_gone(pid);
        (!is_gone).then(|| kill(pid));
        is_gone.then_some(())
    });
}

/// Takes all children that have ended, and says whether there are others.
fn any_child() -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// The processes whose parent this one is, from /proc.
fn children() -> Vec<u32> {
    let own = std::process::id();
    let mut pids = census::processes();
    pids.retain(|pid| parent_of(*pid) == Some(own));
    pids
}

fn parent_of(pid: u32) -> Option<u32> {
    census::stat_field(&census::stat(pid).ok()?, 4)
}

/// Gives this process System V objects of its own, which vanish with the last
/// process that sees them (unshare(2), CLONE_NEWIPC).
///
/// # Errors
/// EPERM without the right to.
pub fn private_ipc() -> io::Result<()> {
    crate::namespaces::leave(libc::CLONE_NEWIPC)
}

/// Sends what this process prints on standard output to standard error from now on:
/// standard output carries jostle's results.
///
/// # Errors
/// The system's.
pub fn print_to_stderr() -> io::Result<()> {
    // SAFETY: a system call with plain numbers; the owner of descriptor 1 keeps a valid
    // one, which refers to another file.
    Ok(done(unsafe { libc::dup2(2, 1) })?)
}

/// Closes all files of this process but one; 0, 1 and 2 become /dev/null. For a process
/// that is forked only to wait: other processes must not wait for it at the end of one of
/// these files.
pub fn close_all_but(kept: &OwnedFd) {
    if let Ok(null) = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
    {
        for standard in 0..3 {
            // SAFETY: a system call with plain numbers; the owner of the descriptor keeps a
            // valid one, which refers to another file.
            unsafe { libc::dup2(null.as_raw_fd(), standard) };
        }
    }
    let kept = kept.as_raw_fd() as u32;
    for (first, last) in [(3, kept.saturating_sub(1)), (kept.max(2) + 1, u32::MAX)] {
        if first <= last {
            // SAFETY: plain numbers (close_range(2), Linux 5.9); not by the C library's
            // function, which an old one lacks. Whoever owns these descriptors in this
            // process must not use them again: it only waits.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}

/// Names this process as `ps` shows it, at most 15 bytes.
pub fn set_name(name: &str) {
    if let Ok(name) = std::ffi::CString::new(name) {
        let _ = rustix::thread::set_name(&name);
    }
}

/// How a child ended, and what it cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its number.
    pub pid: u32,
    /// Its exit code, or
    pub code: Option<i32>,
    /// the signal that killed it.
    pub signal: Option<i32>,
    /// The CPU time and faults of its life.
    pub usage: Usage,
}

/// CPU time, as getrusage(2) splits it: the sum is exact, the split sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User CPU time.
    pub user_ns: u64,
    /// System CPU time.
    pub system_ns: u64,
}

fn usage_of(raw: &libc::rusage) -> Usage {
    let nanos = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1_000;
    Usage {
        user_ns: nanos(raw.ru_utime),
        system_ns: nanos(raw.ru_stime),
    }
}

/// The use of this process so far.
pub fn own_usage() -> Usage {
    usage_of(&usage_so_far(libc::RUSAGE_SELF))
}

/// The use of children of this process that have ended and were waited for.
pub fn children_usage() -> Usage {
    usage_of(&usage_so_far(libc::RUSAGE_CHILDREN))
}

fn usage_so_far(of: libc::c_int) -> libc::rusage {
    // SAFETY: all-zero is a valid rusage, and the call fills it.
    unsafe {
        let mut raw: libc::rusage = std::mem::zeroed();
        libc::getrusage(of, &mut raw);
        raw
    }
}

/// The kernel's counts of the calling thread so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadCounts {
    /// Times that it lost its CPU although it could have gone on.
    pub involuntary_switches: u64,
    /// Pages that it waited for: those that the kernel had, and those that it read.
    pub page_faults: u64,
}

/// The kernel's counts of the calling thread (getrusage(2), RUSAGE_THREAD).
pub fn thread_counts() -> ThreadCounts {
    let raw = usage_so_far(libc::RUSAGE_THREAD);
    ThreadCounts {
        involuntary_switches: raw.ru_nivcsw as u64,
        page_faults: raw.ru_minflt as u64 + raw.ru_majflt as u64,
    }
}

/// Takes one child that has ended, if there is one.
pub fn reap() -> Option<Ended> {
    wait_for(-1, libc::WNOHANG).ok()?
}

/// wait4(2) of one child, or of any (-1): how it ended, if it has.
pub(crate) fn wait_for(which: libc::pid_t, options: libc::c_int) -> Result<Option<Ended>, Errno> {
    let mut status = 0;
    // SAFETY: all-zero is a valid rusage; both pointers are to live locals.
    let (pid, raw) = unsafe {
        let mut raw: libc::rusage = std::mem::zeroed();
        (libc::wait4(which, &mut status, options, &mut raw), raw)
    };
    done(pid)?;
    Ok((pid > 0).then(|| Ended {
        pid: pid as u32,
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        usage: usage_of(&raw),
    }))
}

/// Takes one report of a child that was stopped (SIGSTOP) or continued since it
/// was last asked for, if there is one. However often both happened in between,
/// the kernel keeps one report for each child.
pub fn halted() -> Option<u32> {
    let which = libc::WSTOPPED | libc::WCONTINUED | libc::WNOHANG;
    // SAFETY: all-zero is a valid siginfo, which the call fills; si_pid is valid
    // to read of a siginfo that waitid filled, and stays 0 where it found nobody.
    let pid = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        match libc::waitid(libc::P_ALL, 0, &mut info, which) {
            0 => info.si_pid(),
            _ => 0,
        }
    };
    u32::try_from(pid).ok().filter(|pid| *pid > 0)
}

/// Takes this child if it has ended.
pub fn reap_one(pid: u32) -> Option<Ended> {
    wait_for(pid as libc::pid_t, libc::WNOHANG).ok()?
}

/// Waits for the end of a child without taking it. False if it was not over in time, or a
/// signal came.
pub(crate) fn ends_within(pid: Pid, time: Duration) -> io::Result<bool> {
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let time = Timespec::try_from(time).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&time)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Sleeps until this child has ended, and no longer than `at_most`; takes nothing. It sleeps
/// for all of that time where the kernel has no pidfd_open(2) (before Linux 5.3).
pub fn until_over(pid: u32, at_most: Duration) {
    let ended = Pid::from_raw(pid as i32).map(|pid| ends_within(pid, at_most));
    if !matches!(ended, Some(Ok(_))) {
        std::thread::sleep(at_most);
    }
}

/// Whether this child has ended; takes it if it has and nobody did before.
pub fn is_gone(pid: u32) -> bool {
    let ended = rustix::process::waitpid(Pid::from_raw(pid as i32), WaitOptions::NOHANG);
    !matches!(ended, Ok(None))
}

/// Whether a process is stopped, by a signal or a tracer, as /proc/PID/stat has it.
pub fn is_halted(pid: u32) -> bool {
    matches!(state(pid), Some('T' | 't'))
}

/// How a process is kept from running: `stopped` by a signal, `traced`, or `frozen` by its
/// control group, of which its state tells nothing. None if it is not, or has ended.
pub fn stands_still(pid: u32) -> Option<&'static str> {
    match state(pid)? {
        'T' => Some("stopped"),
        't' => Some("traced"),
        _ => cgroup::is_frozen(pid).then_some("frozen"),
    }
}

/// Whether a process has ended, reaped or not.
pub fn is_over(pid: u32) -> bool {
    matches!(state(pid), None | Some('Z' | 'X'))
}

/// The letter of /proc/PID/stat; None once the process is reaped.
fn state(pid: u32) -> Option<char> {
    census::stat_field(&census::stat(pid).ok()?, 3)
}

/// Whether a process has ended or is about to: its program runs no more (`PF_EXITING`).
pub fn is_exiting(pid: u32) -> bool {
    const PF_EXITING: u64 = 0x4;
    let flags = census::stat(pid)
        .ok()
        .and_then(|text| census::stat_field::<u64>(&text, 9));
    flags.is_none_or(|flags| flags & PF_EXITING != 0)
}

/// Kills a process at once; one that is gone is no error.
pub fn kill(pid: u32) {
    signal_to(pid, Signal::KILL);
}

/// Stops a process (SIGSTOP) until [`go_on`]; one that is gone is no error.
pub fn stop(pid: u32) {
    signal_to(pid, Signal::STOP);
}

/// Lets a process go on that was stopped; one that is gone is no error.
pub fn go_on(pid: u32) {
    signal_to(pid, Signal::CONT);
}

fn signal_to(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// A process and all that descend from it, itself first, as /proc has them.
pub fn with_descendants(pid: u32) -> Vec<u32> {
    let all = census::processes().into_iter();
    let parents: Vec<(u32, u32)> = all.filter_map(|pid| Some((pid, parent_of(pid)?))).collect();
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        let children = parents.iter().filter(|(_, of)| *of == parent);
        let new: Vec<u32> = children
            .map(|(child, _)| *child)
            .filter(|child| !found.contains(child))
            .collect();
        found.extend(new);
    }
    found
}

/// The children that a process's main thread has forked; empty where the kernel does not
/// list them (`CONFIG_PROC_CHILDREN`). Cheaper than [`with_descendants`], which reads all of
/// /proc.
pub fn forked_by(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Asks a process to quit (SIGQUIT); one that is gone is no error.
pub fn quit(pid: u32) {
    signal_to(pid, Signal::QUIT);
}

/// Kills all processes of a group at once; one that is gone is no error.
pub fn kill_group(leader: u32) {
    signal_to_group(leader, Signal::KILL);
}

/// Stops all processes of a group (SIGSTOP) until [`go_on_group`]; one that is gone is no
/// error.
pub fn stop_group(leader: u32) {
    signal_to_group(leader, Signal::STOP);
}

/// Lets all processes of a group go on that were stopped; one that is gone is no error.
pub fn go_on_group(leader: u32) {
    signal_to_group(leader, Signal::CONT);
}

fn signal_to_group(leader: u32, signal: Signal) {
    if let Some(leader) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process_group(leader, signal);
    }
}

/// A signal's name, such as `SIGKILL`; a real-time signal has its number.
pub fn signal_name(signal: i32) -> String {
    let name = signal_hook::low_level::signal_name(signal);
    name.map_or_else(|| format!("signal {signal}"), str::to_owned)
}
