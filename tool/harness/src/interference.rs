//! Influences that may slow our own threads without using CPU time of their own, interrupts and
//! tracers, or distort their times, a clock that is slewed.
//!
//! Interrupts are counted between readings: at the edges of the window, and around the passes of
//! the anchor, while no worker works. Tracers are looked for outside of the window alone, since
//! that takes milliseconds.

use crate::Context;
use crate::anchor::{self, Passes};
use jostle_model::record::{Interference, Interrupts};
use jostle_sys::census::Identity;
use jostle_sys::interrupts::{self, Kind};
use jostle_sys::{clock, tracing};
use std::collections::BTreeSet;
use std::time::Duration;

/// For each of two looks at the descriptors of all processes.
const PATIENCE: Duration = Duration::from_millis(20);

/// Who has a socket, where that may not be seen.
const UNSEEN: &str = "a program that may not be seen";

/// Tracers of a kind that are named.
const NAMED: usize = 3;

/// Interrupts since boot.
pub struct Reading {
    at_ns: u64,
    each: interrupts::Interrupts,
}

impl Reading {
    /// None where the kernel does not tell.
    pub fn take() -> Option<Reading> {
        let each = interrupts::read().ok().filter(|each| !each.is_empty())?;
        Some(Reading {
            at_ns: clock::monotonic(),
            each,
        })
    }

    /// The interrupts until a later reading, on these CPUs; empty: on all.
    pub fn until(&self, later: &Reading, cpus: &[usize]) -> Interrupts {
        let ours = later.each.iter();
        let ours = ours.filter(|(cpu, _)| cpus.is_empty() || cpus.contains(cpu));
        let of = |kind: Kind| {
            let each = ours.clone().map(|(cpu, to)| {
                let from = self.each.get(cpu).map_or(0, |from| from[kind as usize]);
                to[kind as usize].saturating_sub(from)
            });
            each.collect()
        };
        Interrupts {
            between_s: later.at_ns.saturating_sub(self.at_ns) as f64 / 1e9,
            timer: of(Kind::Timer),
            monitor: of(Kind::Monitor),
            call: of(Kind::Call),
        }
    }
}

/// How long one reading takes, in nanoseconds; None where it cannot be read.
pub fn cost_ns() -> Option<u64> {
    let from = clock::monotonic();
    let read = Reading::take()?;
    Some(read.at_ns.saturating_sub(from))
}

/// Outside influences, read before a run and after it.
#[derive(Default)]
pub struct Outside {
    passes: Vec<Passes>,
    interrupts: Option<Interrupts>,
    tracers: Vec<Look>,
    traced: Vec<Look>,
    captures: Vec<Look>,
    clocks: Vec<Clocks>,
}

/// CLOCK_MONOTONIC and CLOCK_MONOTONIC_RAW at a moment, in nanoseconds.
type Clocks = [u64; 2];

/// Names, and whether these are all.
type Look = (Vec<String>, bool);

impl Outside {
    /// On one side of a run: the anchor on its CPUs, the interrupts of those of workers and
    /// server beside it, and who traces.
    pub fn look(&mut self, context: &Context, anchor_cpus: &[usize], cpus: &[usize]) {
        let from = Reading::take();
        self.passes.push(anchor::passes(context, anchor_cpus));
        if let Some((from, to)) = from.zip(Reading::take()) {
            let new = from.until(&to, cpus);
            self.interrupts = Some(match &self.interrupts {
                Some(earlier) => together(earlier, &new),
                None => new,
            });
        }
        self.tracers.push(named(tracing::programs(PATIENCE)));
        let on = tracing::switched_on();
        let is_complete = on.is_ok();
        self.traced.push((on.unwrap_or_default(), is_complete));
        self.captures.push(match tracing::captures() {
            Err(_) => (Vec::new(), false),
            Ok(sockets) if sockets.is_empty() => (Vec::new(), true),
            Ok(sockets) => match named(tracing::owners(&sockets, PATIENCE)) {
                // Another user's, or in a container: it is there all the same.
                (names, _) if names.is_empty() => (vec![UNSEEN.to_owned()], true),
                found => found,
            },
        });
        self.clocks.push(clock::monotonic_and_raw());
    }

    /// The passes of the anchor on each side, and all else, to which the window's interrupts
    /// belong.
    pub fn tell(self, window: Option<Interrupts>) -> (Vec<Passes>, Interference) {
        let interference = Interference {
            window,
            anchor: self.interrupts,
            tracers: told(self.tracers),
            traced: told(self.traced),
            captures: told(self.captures),
            clock_rate: rate(&self.clocks),
        };
        (self.passes, interference)
    }
}

fn named((pids, is_complete): (Vec<u32>, bool)) -> Look {
    let names = pids.into_iter().filter_map(|pid| {
        let name = Identity::of(pid)?.name;
        Some(format!("{name} ({pid})"))
    });
    (names.collect(), is_complete)
}

/// How far the first clock went by the second.
fn rate(clocks: &[Clocks]) -> Option<f64> {
    let (first, last) = (clocks.first()?, clocks.last()?);
    let passed = |nth: usize| last[nth].saturating_sub(first[nth]) as f64;
    (passed(1) > 0.0).then(|| passed(0) / passed(1))
}

/// None where nothing was found and not all was seen.
fn told(looks: Vec<Look>) -> Option<Vec<String>> {
    let is_complete = looks.iter().all(|(_, is_complete)| *is_complete);
    let names: BTreeSet<String> = looks.into_iter().flat_map(|(names, _)| names).collect();
    (is_complete || !names.is_empty()).then(|| names.into_iter().take(NAMED).collect())
}

fn together(one: &Interrupts, other: &Interrupts) -> Interrupts {
    let add = |one: &[u64], other: &[u64]| one.iter().zip(other).map(|(a, b)| a + b).collect();
    Interrupts {
        between_s: one.between_s + other.between_s,
        timer: add(&one.timer, &other.timer),
        monitor: add(&one.monitor, &other.monitor),
        call: add(&one.call, &other.call),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_those_of_our_cpus_between_two_readings() {
        let reading = |at_ns, each: [(usize, [u64; 3]); 2]| Reading {
            at_ns,
            each: each.into(),
        };
        let from = reading(1_000_000_000, [(0, [10, 0, 5]), (1, [7, 1, 6])]);
        let to = reading(1_500_000_000, [(0, [110, 0, 6]), (1, [9, 4, 8])]);
        let all = from.until(&to, &[]);
        assert_eq!((all.between_s, &all.timer[..]), (0.5, &[100, 2][..]));
        assert_eq!((all.monitor, all.call), (vec![0, 3], vec![1, 2]));
        let second = from.until(&to, &[1]);
        let both = together(&second, &second);
        assert_eq!((both.between_s, both.timer), (1.0, vec![4]));
    }

    #[test]
    fn a_clock_that_runs_a_tenth_too_fast_is_seen() {
        let slewed = [[5_000, 70], [6_100, 1_070]];
        assert_eq!(rate(&slewed), Some(1.1));
        assert_eq!((rate(&slewed[..1]), rate(&[])), (None, None));
    }

    #[test]
    fn what_could_not_be_looked_at_is_absent_unless_something_was_found() {
        let look = |name: &str, is_complete| {
            let names = name.split_terminator(' ').map(str::to_owned);
            (names.collect(), is_complete)
        };
        let names = |looks: [Look; 2]| told(looks.into()).map(|names| names.join(" "));
        assert_eq!(names([look("", true), look("", true)]), Some(String::new()));
        assert_eq!(names([look("", true), look("", false)]), None);
        let perf = || look("perf", false);
        assert_eq!(names([perf(), perf()]).as_deref(), Some("perf"));
        let many = look("a b c d", true);
        assert_eq!(names([many, perf()]).as_deref(), Some("a b c"));
    }
}
