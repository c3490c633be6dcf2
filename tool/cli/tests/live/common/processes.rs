//! Processes as /proc shows them: whose children they are, what they are
//! called, what they sleep on, and which run they belong to.

use rustix::process::{Pid, kill_process, kill_process_group};
use std::fs;

pub(crate) use rustix::process::Signal;

/// The variable that every process of a run inherits, with a value of its own.
pub(crate) const MARK: &str = "JOSTLE_TEST_RUN";

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub pid: u32,
    parent: u32,
    pub name: String,
    state: char,
}

impl Process {
    fn read(pid: u32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in parentheses and may contain some.
        let (head, rest) = stat.rsplit_once(')')?;
        let mut rest = rest.split_whitespace();
        Some(Process {
            pid,
            name: head.split_once('(')?.1.to_owned(),
            state: rest.next()?.chars().next()?,
            parent: rest.next()?.parse().ok()?,
        })
    }

    /// Whether it is in nanosleep(2) or its like.
    pub(crate) fn sleeps_on_a_timer(&self) -> bool {
        let waits_in = fs::read_to_string(format!("/proc/{}/wchan", self.pid)).unwrap_or_default();
        waits_in.contains("nanosleep")
    }

    pub(crate) fn lives(&self) -> bool {
        Process::read(self.pid).is_some_and(|now| now.state != 'Z')
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "process {} ({}, {}, child of {})",
            self.pid, self.name, self.state, self.parent
        )
    }
}

/// Whether there is one that has not ended.
pub(crate) fn lives(pid: u32) -> bool {
    Process::read(pid).is_some_and(|process| process.lives())
}

/// Waits until killed processes have ended. On a busy machine that takes a while.
pub(crate) fn until_gone(pids: &[u32]) {
    super::until("the end of killed processes", super::LIMIT, || {
        let lives = pids.iter().any(|pid| lives(*pid));
        (!lives).then_some(())
    });
}

/// Whether SIGSTOP has taken effect.
pub(crate) fn is_stopped(pid: u32) -> bool {
    Process::read(pid).is_some_and(|process| process.state == 'T')
}

/// Whether it has a handler for the signal (proc_pid_status(5), `SigCgt`).
pub(crate) fn catches(pid: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::read).collect()
}

/// The children of a process that live. Tests look every few milliseconds: only its own
/// children are read, and not all processes of the machine.
pub(crate) fn children(pid: u32) -> Vec<Process> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let listed = threads.map(|thread| fs::read_to_string(thread.path().join("children")));
    let pids: Vec<u32> = listed
        .flat_map(|text| {
            text.unwrap_or_default()
                .split(' ')
                .map(str::parse)
                .collect::<Vec<_>>()
        })
        .flatten()
        .collect();
    let children = pids.into_iter().filter_map(Process::read);
    children
        .filter(|process| process.parent == pid && process.state != 'Z')
        .collect()
}

/// Every process of a run, whoever adopted it. What has ended and waits to be
/// reaped has no environment any more.
pub(crate) fn marked(mark: &str) -> Vec<Process> {
    let line = format!("{MARK}={mark}");
    let has_it = |process: &Process| {
        let variables = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        variables
            .split(|byte| *byte == 0)
            .any(|variable| variable == line.as_bytes())
    };
    all().into_iter().filter(has_it).collect()
}

/// One that has ended in the meantime is no error.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), signal);
}

/// To every process of the group that this one leads.
pub(crate) fn signal_group(pid: u32, signal: Signal) {
    let _ = kill_process_group(Pid::from_raw(pid as i32).unwrap(), signal);
}
