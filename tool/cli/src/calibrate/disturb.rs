//! The disturbances that are planted: threads that use a CPU, stopped processes, or a killed
//! owner of a lock. `calibrate` starts them as `--during` does: by the keeper when the workers
//! are ready, ended with the run, and killed with the keeper. `cargo xtask validate` starts them
//! beside jostle, as programs that jostle knows nothing of.

use crate::Failure;
use crate::signals::Signals;
use anyhow::{Context, anyhow};
use jostle_sys::clock::{monotonic, sleep_until};
use rustix::process::{Pid, Signal, kill_process, nice};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A disturbance ends after this time by itself, in case nothing ended it.
const LIFE: Duration = Duration::from_secs(120);

/// Between two looks for an owner.
const LOOK: Duration = Duration::from_millis(1);

/// One turn of a duty cycle, much shorter than a run.
const TURN_NS: u64 = 10_000_000;

/// `burn THREADS CPU [PERCENT NICENESS]`, `pause STOPPED_MS RUNNING_MS PIDS|GROUP`,
/// `kill TIMES EVERY_MS PIDS`. GROUP is the directory of a control group.
pub(crate) fn disturb(words: &[String]) -> Result<u8, Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["burn", threads, cpu] => burn(number(threads)?, number(cpu)?, 100, 0)?,
        ["burn", threads, cpu, percent, niceness] => burn(
            number(threads)?,
            number(cpu)?,
            number(percent)?,
            number(niceness)?,
        )?,
        ["pause", stopped, running, whom] => {
            let cycle = [stopped, running].map(|ms| number(ms).map(Duration::from_millis));
            let [stopped, running] = cycle;
            pause(stopped?, running?, &Paused::read(whom)?)?;
        }
        ["kill", times, every, pids] => {
            let every = Duration::from_millis(number(every)?);
            kill(number(times)?, every, processes(pids)?)?;
        }
        _ => {
            return Err(Failure::Usage(format!(
                "`{}` is not a disturbance",
                words.join(" ")
            )));
        }
    }
    Ok(0)
}

fn number<T: std::str::FromStr>(text: &str) -> anyhow::Result<T> {
    let number = text.parse().ok();
    number.with_context(|| format!("`{text}` is not a number"))
}

fn process(text: &str) -> anyhow::Result<Pid> {
    let pid = Pid::from_raw(number(text)?);
    pid.ok_or_else(|| anyhow!("`{text}` is not a process"))
}

fn processes(list: &str) -> anyhow::Result<Vec<Pid>> {
    list.split(',').map(process).collect()
}

/// Threads on one CPU that use this share of their turns, and sleep for the rest.
fn burn(threads: u64, cpu: usize, percent: u64, niceness: i32) -> anyhow::Result<()> {
    jostle_sys::process::set_name("hog");
    jostle_sys::cpu::pin(&[cpu])?;
    nice(niceness).context("cannot set the niceness")?;
    let end = monotonic() + LIFE.as_nanos() as u64;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| burn_in_turns(percent, end, &Real));
        }
    });
    Ok(())
}

/// The clock of a thread that burns; a test has one that it turns itself.
trait Clock {
    /// CPU time of this thread.
    fn used_ns(&self) -> u64;
    fn now_ns(&self) -> u64;
    /// Uses the CPU for some microseconds.
    fn work(&self);
    fn sleep_until(&self, ns: u64);
}

/// The system's clock.
struct Real;

impl Clock for Real {
    fn used_ns(&self) -> u64 {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    fn now_ns(&self) -> u64 {
        monotonic()
    }

    fn work(&self) {
        black_box((0..1_000).fold(0u64, |sum, n| black_box(sum.wrapping_add(n))));
    }

    fn sleep_until(&self, ns: u64) {
        sleep_until(ns);
    }
}

fn burn_in_turns(percent: u64, end: u64, clock: &impl Clock) {
    let share_ns = match percent {
        // Not even for a moment, in which others would be favoured.
        100.. => u64::MAX,
        _ => TURN_NS * percent / 100,
    };
    let mut edge = clock.now_ns();
    while edge < end {
        edge += TURN_NS;
        // It gives up at the edge: what others kept it from is not made up for, so that
        // the dose never exceeds what was asked for.
        let enough = clock.used_ns().saturating_add(share_ns);
        while clock.used_ns() < enough && clock.now_ns() < edge {
            clock.work();
        }
        clock.sleep_until(edge);
    }
}

/// Who is stopped.
enum Paused {
    Processes(Vec<Pid>),
    /// Whatever this control group has at the time.
    Group(PathBuf),
}

impl Paused {
    fn read(word: &str) -> anyhow::Result<Paused> {
        match word.starts_with('/') {
            true => Ok(Paused::Group(PathBuf::from(word).join("cgroup.procs"))),
            false => processes(word).map(Paused::Processes),
        }
    }

    /// Sends a signal to all; false if nobody will be there any more.
    fn tell(&self, signal: Signal) -> anyhow::Result<bool> {
        match self {
            Paused::Processes(pids) => {
                let told = pids.iter().map(|pid| kill_process(*pid, signal).is_ok());
                Ok(told.fold(false, |any, told| any | told))
            }
            Paused::Group(file) => {
                let text = std::fs::read_to_string(file);
                let text = text.with_context(|| format!("cannot read {}", file.display()))?;
                let pids = text.lines().filter_map(|line| process(line).ok());
                // One that is gone is no error.
                pids.for_each(|pid| {
                    let _ = kill_process(pid, signal);
                });
                Ok(true)
            }
        }
    }
}

/// Stops and continues these processes alternately, and ends with all of them continued.
fn pause(stopped: Duration, running: Duration, whom: &Paused) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let end = Instant::now() + LIFE;
    pause_until(stopped, running, whom, || {
        signals.exit_code().is_some() || Instant::now() >= end
    })
}

fn pause_until(
    stopped: Duration,
    running: Duration,
    whom: &Paused,
    is_over: impl Fn() -> bool,
) -> anyhow::Result<()> {
    while !is_over() {
        std::thread::sleep(running);
        if is_over() || !whom.tell(Signal::STOP)? {
            break;
        }
        std::thread::sleep(stopped);
        whom.tell(Signal::CONT)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A machine that leaves the thread one in so many of its microseconds.
    struct Turned {
        one_in: u64,
        used: Cell<u64>,
        now: Cell<u64>,
    }

    impl Clock for Turned {
        fn used_ns(&self) -> u64 {
            self.used.get()
        }

        fn now_ns(&self) -> u64 {
            self.now.get()
        }

        fn work(&self) {
            assert!(self.now.get() < 20 * TURN_NS, "it does not end");
            self.used.update(|used| used + 1_000);
            self.now.update(|now| now + 1_000 * self.one_in);
        }

        fn sleep_until(&self, ns: u64) {
            self.now.update(|now| now.max(ns));
        }
    }

    #[test]
    fn threads_use_their_share_and_no_more() {
        let used = |percent, one_in| {
            let [used, now] = [0, 0].map(Cell::new);
            let clock = Turned { one_in, used, now };
            burn_in_turns(percent, 10 * TURN_NS, &clock);
            assert_eq!(clock.now_ns(), 10 * TURN_NS);
            clock.used_ns() * 100 / (10 * TURN_NS)
        };
        // Others can only take from it.
        assert_eq!([used(10, 1), used(60, 1), used(100, 1)], [10, 60, 100]);
        assert_eq!([used(10, 2), used(60, 2), used(100, 2)], [10, 50, 50]);
    }

    #[test]
    fn a_thread_s_cpu_time_grows_while_it_works() {
        let before = Real.used_ns();
        while Real.used_ns() == before {
            Real.work();
        }
    }

    #[test]
    fn unknown_disturbances_are_refused() {
        for words in ["burn 1", "burn one 0", "pause 20 20 x", "slow 1 2 3"] {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            assert!(disturb(&words).is_err(), "{words:?}");
        }
    }

    mod live_tests {
        use super::*;
        use jostle_sys::process;
        use std::process::Command;
        use std::sync::atomic::{AtomicBool, Ordering};

        #[test]
        fn a_group_is_stopped_in_turns_and_runs_at_the_end() {
            let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
            let pid = sleeper.id();
            let group = tempfile::tempdir().unwrap();
            std::fs::write(group.path().join("cgroup.procs"), format!("{pid}\n")).unwrap();
            let whom = Paused::read(group.path().to_str().unwrap()).unwrap();
            let over = AtomicBool::new(false);
            let turn = Duration::from_millis(20);
            let was_stopped = std::thread::scope(|scope| {
                let turns =
                    scope.spawn(|| pause_until(turn, turn, &whom, || over.load(Ordering::Relaxed)));
                let deadline = Instant::now() + Duration::from_secs(20);
                while !process::is_halted(pid) && Instant::now() < deadline {
                    std::thread::yield_now();
                }
                let was_stopped = process::is_halted(pid);
                over.store(true, Ordering::Relaxed);
                turns.join().unwrap().unwrap();
                was_stopped
            });
            let is_stopped = process::is_halted(pid);
            sleeper.kill().unwrap();
            sleeper.wait().unwrap();
            assert!(was_stopped && !is_stopped);
        }
    }
}
