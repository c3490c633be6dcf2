//! The anchor: what this machine takes for a bare loop, a bare system call, a bare
//! wake-up and a cache line's way from CPU to CPU, just before and just after a
//! run.
//!
//! Results of two sessions differ by what the machine did in between (clock
//! frequency, neighbours, where the hypervisor puts its CPUs) as well as by what
//! was changed. A lock's time is made of these four, in a mix that we do not
//! know; where the machine moved, they move with it. `jostle compare` divides
//! them out.
//!
//! Two processes of the keeper's do it, pinned, while no worker exists: one
//! loops and calls, and wakes the other one, which wakes it back. Not for the
//! tool's own cost, which is the calibration's business.

use crate::Context;
use jostle_model::record::Anchor;
use jostle_stats::intervals;
use jostle_sys::clock::Clock;
use jostle_sys::futex::{self, Words};
use jostle_sys::shared::Region;
use jostle_sys::{clock, cpu, process};
use rustix::process::Pid;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

/// Passes on one side of a run; their median stands, so that a burst of some
/// milliseconds leaves it alone.
const PASSES: usize = 7;
/// Each part of a pass is long against a stamp, short against a scheduler's
/// slice. Without optimisation a step takes ten times as long.
const STEPS: u32 = if cfg!(debug_assertions) {
    10_000
} else {
    100_000
};
const CALLS: u32 = 1_000;
const WAKES: u32 = 20;
const ROUNDS: u32 = 300;
/// Loop, call, wake-up, line.
const PARTS: usize = 4;

/// If the passes take longer than this, the run goes without an anchor.
const PATIENCE_NS: u64 = 500_000_000;

/// How often the keeper looks whether they are late. It sleeps meanwhile: what it does then
/// disturbs what they measure.
const LOOK_UP: Duration = Duration::from_millis(4);

/// The passes on one side of a run, each in nanoseconds a step, a call, a
/// wake-up and a line's way; the last is 0 with a single CPU.
pub type Passes = Vec<[f64; PARTS]>;

/// One side. Empty where processes or memory for it are not to be had: a run is
/// worth more than its anchor.
pub fn passes(context: &Context, cpus: &[usize]) -> Passes {
    let allowed = cpu::allowed();
    let cpus = if cpus.is_empty() { &allowed } else { cpus };
    let results = Region::new(PASSES * PARTS * 8);
    let (Ok(results), Some(near), Some(far)) = (results, cpus.first(), cpus.last()) else {
        return Passes::new();
    };
    let cells = results.words64(0, PASSES * PARTS);
    if !pair(context, (*near, *far), PATIENCE_NS, |pair| pair.call(cells)) {
        return Passes::new();
    }
    let pass = |cells: &[AtomicU64]| {
        let value = |part: usize| f64::from_bits(cells[part].load(Relaxed));
        std::array::from_fn(value)
    };
    cells.chunks_exact(PARTS).map(pass).collect()
}

/// Runs `caller` in a process on the first of these CPUs, with an echo on the
/// second. True if it returned true within `patience_ns`.
pub fn pair(
    context: &Context,
    (near, far): (usize, usize),
    patience_ns: u64,
    caller: impl FnOnce(&Pair<'_>) -> bool,
) -> bool {
    let Ok(words) = Words::new(3) else {
        return false;
    };
    let pair = Pair {
        keeper: rustix::process::getpid(),
        clock: context.clock,
        words: &words,
        until: clock::monotonic() + patience_ns,
        apart: near != far,
    };
    let Ok(echo) = context.forker.fork(|| pair.echo(far)) else {
        return false;
    };
    let calling = || i32::from(!(pair.settle(near) && caller(&pair)));
    let done = context.forker.fork(calling);
    let whole = done.is_ok_and(|pid| pair.await_end(pid));
    pair.ask(END);
    pair.await_end(echo);
    whole
}

/// The medians over the passes on both sides of a run; None where a side is
/// empty.
pub fn anchor(before: &Passes, after: &Passes) -> Option<Anchor> {
    if before.is_empty() || after.is_empty() {
        return None;
    }
    let column = |part: usize| {
        let all = before.iter().chain(after).map(|pass| pass[part]);
        intervals::median(all).filter(|ns| *ns > 0.0)
    };
    Some(Anchor {
        step_ns: column(0)?,
        call_ns: column(1)?,
        wake_ns: column(2)?,
        line_ns: column(3),
    })
}

/// Words that the two share: what the echo is asked for, what it answers, and
/// the line that goes to and fro.
const ASK: usize = 0;
const ANSWER: usize = 1;
const LINE: usize = 2;

/// The orders that the echo takes.
const NOTHING: u32 = 0;
const WAKE: u32 = 1;
const SPIN: u32 = 2;
const END: u32 = 3;

/// The memory that both processes share.
pub struct Pair<'a> {
    keeper: Pid,
    /// For stamps.
    pub clock: Clock,
    words: &'a Words,
    /// When they give up, on the kernel's monotonic clock.
    until: u64,
    /// Whether each has a CPU of its own.
    apart: bool,
}

impl Pair<'_> {
    /// True if it came to its end by itself, and well.
    fn await_end(&self, pid: Pid) -> bool {
        let pid = pid.as_raw_nonzero().get() as u32;
        loop {
            if let Some(ended) = process::reap_one(pid) {
                return ended.code == Some(0);
            }
            if self.is_late() {
                process::kill(pid);
            }
            process::until_over(pid, LOOK_UP);
        }
    }

    fn is_late(&self) -> bool {
        clock::monotonic() > self.until
    }

    fn settle(&self, at: usize) -> bool {
        process::set_name("jostle-anchor");
        process::die_with(self.keeper).is_ok()
            && process::leave_group().is_ok()
            && cpu::pin(&[at]).is_ok()
    }

    fn ask(&self, what: u32) {
        let word = self.words.word(ASK);
        word.store(what, Release);
        futex::wake(word, futex::ALL);
    }

    /// False if it took too long.
    fn sleep_while(&self, word: usize, value: u32) -> bool {
        let word = self.words.word(word);
        while word.load(Acquire) == value {
            let _ = futex::wait(word, value, Some(self.until));
            if self.is_late() {
                return false;
            }
        }
        true
    }

    /// False if it took too long.
    fn spin_until(&self, value: u32) -> bool {
        const BETWEEN_LOOKS: u32 = 10_000;
        let line = self.words.word(LINE);
        loop {
            for _ in 0..BETWEEN_LOOKS {
                if line.load(Acquire) == value {
                    return true;
                }
                std::hint::spin_loop();
            }
            if self.is_late() {
                return false;
            }
        }
    }

    /// The second process. Returns its exit code.
    fn echo(&self, at: usize) -> i32 {
        if !self.settle(at) {
            return 1;
        }
        let (ask, answer) = (self.words.word(ASK), self.words.word(ANSWER));
        while self.sleep_while(ASK, NOTHING) {
            let asked = ask.load(Acquire);
            if asked == END {
                return 0;
            }
            // The caller asks for more only after this one is answered.
            ask.store(NOTHING, Relaxed);
            if asked == SPIN && !self.answer_rounds() {
                return 1;
            }
            answer.store(1, Release);
            futex::wake(answer, 1);
        }
        1
    }

    /// The first process. False if a pass took too long.
    fn call(&self, cells: &[AtomicU64]) -> bool {
        // The first pass warms caches and brings the other one to its place.
        let warm = &cells[..PARTS];
        for pass in std::iter::once(warm).chain(cells.chunks_exact(PARTS)) {
            let Some(measured) = self.pass() else {
                return false;
            };
            for (cell, ns) in pass.iter().zip(measured) {
                cell.store(ns.to_bits(), Relaxed);
            }
        }
        true
    }

    fn pass(&self) -> Option<[f64; PARTS]> {
        let stepping = self.clock.now();
        std::hint::black_box(steps(stepping));
        let calling = self.clock.now();
        for _ in 0..CALLS {
            std::hint::black_box(rustix::process::getppid());
        }
        let called = self.clock.now();
        let each = |ns: u64, count: u32| ns as f64 / f64::from(count);
        Some([
            each(calling - stepping, STEPS),
            each(called - calling, CALLS),
            self.wake()?,
            if self.apart { self.line()? } else { 0.0 },
        ])
    }

    /// Nanoseconds from a wake-up to the woken process running. None if it took
    /// too long.
    pub fn wake(&self) -> Option<f64> {
        let waking = self.clock.now();
        let well = (0..WAKES).all(|_| self.round_trip(WAKE));
        let woken = self.clock.now();
        well.then(|| (woken - waking) as f64 / f64::from(2 * WAKES))
    }

    fn round_trip(&self, what: u32) -> bool {
        self.words.word(ANSWER).store(0, Relaxed);
        self.ask(what);
        self.sleep_while(ANSWER, 0)
    }

    /// Nanoseconds of one way, both spinning. On one CPU they would wait for
    /// the scheduler instead.
    fn line(&self) -> Option<f64> {
        let line = self.words.word(LINE);
        line.store(0, Relaxed);
        self.words.word(ANSWER).store(0, Relaxed);
        self.ask(SPIN);
        // The first round waits for the other one to wake up.
        line.store(1, Release);
        if !self.spin_until(2) {
            return None;
        }
        let started = self.clock.now();
        let well = (1..ROUNDS).all(|round| {
            line.store(2 * round + 1, Release);
            self.spin_until(2 * round + 2)
        });
        let ended = self.clock.now();
        let done = well && self.sleep_while(ANSWER, 0);
        done.then(|| (ended - started) as f64 / f64::from(2 * (ROUNDS - 1)))
    }

    /// The line comes with odd numbers and goes back with even ones.
    fn answer_rounds(&self) -> bool {
        (0..ROUNDS).all(|round| {
            let came = self.spin_until(2 * round + 1);
            self.words.word(LINE).store(2 * round + 2, Release);
            came
        })
    }
}

/// Steps that depend on each other, so that no compiler and no CPU skips any
/// (xorshift64: Marsaglia, J. Stat. Softw. 8, 2003).
fn steps(seed: u64) -> u64 {
    (0..STEPS).fold(seed | 1, |mut x, _| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^ (x << 17)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_is_the_median_of_both_sides() {
        let side = vec![[3.0, 30.0, 300.0, 0.0]; 3];
        let mut after = side.clone();
        after[1] = [1e9; 4];
        let found = anchor(&side, &after).unwrap();
        let expected = Anchor {
            step_ns: 3.0,
            call_ns: 30.0,
            wake_ns: 300.0,
            line_ns: None,
        };
        assert_eq!(found, expected);
        assert_eq!(anchor(&side, &Passes::new()), None);
    }
}
