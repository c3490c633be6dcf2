//! The guard: a process that only waits. It ends the command where the wrapper does not: in
//! time if the lock was not renewed, and if the wrapper is gone.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, test_kill_process_group,
};

use crate::link::readable;
use crate::say;
use crate::term::{Page, Timer, Times, now};

/// How often it looks whether a group that was told to end is gone.
const LOOK: Duration = Duration::from_millis(10);

/// The command's process group, once it has one.
pub(crate) fn group(page: &Page) -> Option<Pid> {
    Pid::from_raw(page.group().load(SeqCst) as i32)
}

/// Tells a group to end.
pub(crate) fn ask(group: Pid) {
    let _ = kill_process_group(group, Signal::TERM);
    // One that is stopped would not hear.
    let _ = kill_process_group(group, Signal::CONT);
}

/// Watches over the command of `wrapper`, for a lock that lasts until `end`; the exit code,
/// when there is nothing to watch.
pub(crate) fn watch(page: &Page, times: &Times, wrapper: Pid, end: u64) -> i32 {
    // Signals to the wrapper's group, and its terminal's, are not for this process.
    let _ = rustix::process::setpgid(None, None);
    jostle_sys::process::set_name("jostle-guard");
    match guard(page, times, wrapper, end) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

fn guard(page: &Page, times: &Times, wrapper: Pid, mut last: u64) -> std::io::Result<()> {
    let watched = pidfd_open(wrapper, PidfdFlags::empty())?;
    let timer = Timer::new()?;
    loop {
        let gone = rustix::process::getppid() != Some(wrapper);
        let end = page.end().load(SeqCst);
        if end != 0 {
            last = end;
        }
        let by = times.gone_by(last);
        if gone {
            let by = by.min(now() + times.grace);
            finish(page, by, "its wrapper was killed");
            return Ok(());
        }
        if let Some(end) = page.give_up(times, now()) {
            finish(
                page,
                times.gone_by(end),
                "the lock could not be renewed in time",
            );
            return Ok(());
        }
        // The wrapper has told the command to end; if it is stopped, it does not see to that.
        if end == 0 && now() >= by {
            if let Some(group) = group(page) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            return Ok(());
        }
        timer.set(if end == 0 { by } else { times.last_call(end) })?;
        readable([watched.as_fd(), timer.as_fd()], None)?;
    }
}

/// Ends the command's group: it has until `by`.
fn finish(page: &Page, by: u64, why: &str) {
    let Some(group) = group(page) else { return };
    say(&format!("{why}: ends the command"));
    ask(group);
    while now() < by && test_kill_process_group(group).is_ok() {
        std::thread::sleep(LOOK);
    }
    let _ = kill_process_group(group, Signal::KILL);
}
