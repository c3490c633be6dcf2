//! The disturbances of `calibrate`: busy threads on the workers' CPU, stopped workers, or a
//! killed owner of a lock. It runs as `--during` does: started by the keeper when the
//! workers are ready, ended with the run, and killed with the keeper.

use crate::Failure;
use crate::signals::Signals;
use anyhow::{Context, anyhow};
use rustix::process::{Pid, Signal, kill_process};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// A disturbance ends after this time by itself, in case nothing ended it.
const LIFE: Duration = Duration::from_secs(120);

/// Between two looks for an owner.
const LOOK: Duration = Duration::from_millis(1);

/// `burn THREADS CPU`, `pause STOPPED_MS RUNNING_MS PIDS`, `kill TIMES EVERY_MS PIDS`.
pub(crate) fn disturb(words: &[String]) -> Result<u8, Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["burn", threads, cpu] => burn(number(threads)?, number(cpu)? as usize)?,
        ["pause", stopped, running, pids] => {
            let cycle = [stopped, running].map(|ms| number(ms).map(Duration::from_millis));
            let [stopped, running] = cycle;
            pause(stopped?, running?, &processes(pids)?)?;
        }
        ["kill", times, every, pids] => {
            let every = Duration::from_millis(number(every)?);
            kill(number(times)?, every, processes(pids)?)?;
        }
        _ => {
            return Err(Failure::Usage(format!(
                "`{}` is no disturbance",
                words.join(" ")
            )));
        }
    }
    Ok(0)
}

fn number(text: &str) -> anyhow::Result<u64> {
    text.parse()
        .with_context(|| format!("`{text}` is no number"))
}

fn process(text: &str) -> anyhow::Result<Pid> {
    let pid = i32::try_from(number(text)?).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| anyhow!("`{text}` is no process"))
}

fn processes(list: &str) -> anyhow::Result<Vec<Pid>> {
    list.split(',').map(process).collect()
}

/// Threads that never sleep, on one CPU.
fn burn(threads: u64, cpu: usize) -> anyhow::Result<()> {
    jostle_sys::cpu::pin(&[cpu])?;
    let end = Instant::now() + LIFE;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut sum = 0u64;
                while Instant::now() < end {
                    (0..10_000).for_each(|n| sum = black_box(sum.wrapping_add(n)));
                }
            });
        }
    });
    Ok(())
}

/// Stops and continues these processes alternately, and ends with all of them continued.
fn pause(stopped: Duration, running: Duration, pids: &[Pid]) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let end = Instant::now() + LIFE;
    // Sends a signal to all; false if none of them exists any more.
    let tell = |signal| {
        let told = pids.iter().map(|pid| kill_process(*pid, signal).is_ok());
        told.fold(false, |any, told| any | told)
    };
    while signals.exit_code().is_none() && Instant::now() < end {
        std::thread::sleep(running);
        if signals.exit_code().is_some() || !tell(Signal::STOP) {
            break;
        }
        std::thread::sleep(stopped);
        tell(Signal::CONT);
    }
    Ok(())
}

/// Kills the owner of the lock. Among workers that only wait for a kernel lock, and sleep
/// while they hold it, the owner is the one that sleeps on a timer.
fn kill(times: u64, every: Duration, mut pids: Vec<Pid>) -> anyhow::Result<()> {
    for _ in 0..times {
        std::thread::sleep(every);
        let end = Instant::now() + every;
        let owner = loop {
            let owner = pids.iter().position(|pid| sleeps_on_a_timer(*pid));
            if owner.is_some() || Instant::now() > end {
                break owner;
            }
            std::thread::sleep(LOOK);
        };
        if let Some(owner) = owner {
            let _ = kill_process(pids.swap_remove(owner), Signal::KILL);
        }
    }
    // Stays until the run ends, because a disturbance that ends earlier is reported as
    // failed.
    std::thread::sleep(LIFE);
    Ok(())
}

fn sleeps_on_a_timer(pid: Pid) -> bool {
    let path = format!("/proc/{}/wchan", pid.as_raw_nonzero());
    std::fs::read_to_string(path).is_ok_and(|waits_in| waits_in.contains("nanosleep"))
}
