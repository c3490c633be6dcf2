//! `stall`: a lock that costs nothing, except during stalls of a known length, in which
//! nobody gets it. It excludes nobody, and records how long each stall really was.
//!
//! In a closed loop each stall delays one operation of each worker: one slow operation
//! among many. In an open loop it delays every request that is due during the stall. The
//! specimen shows this difference.

use crate::specimen::Random;
use crate::table::{Entry, LockCapabilities};
use crate::{
    CallError, Facts, Lock, Mode, Outcome, Setup, SetupError, Target, Wait, facts, no_memory,
};
use jostle_model::Nanos;
use jostle_model::time::Unit;
use jostle_sys::shared::Region;
use jostle_sys::{clock, signal};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// Without an argument.
const DEFAULT: Stalls = Stalls {
    each_ns: 200_000_000,
    every_ns: 1_000_000_000,
};

/// Stalls that are noted; at one a second more than an hour of them.
const NOTED: usize = 4_096;

/// When the first acquisition was, then for each stall: how many waited for its
/// end, and when the last of these went on.
const FIRST: usize = 0;
const STALLS_AT: usize = 2;
const WORDS_EACH: usize = 2;

/// How long, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stalls {
    each_ns: u64,
    every_ns: u64,
}

impl Stalls {
    /// The start of stall number `nth`, counted from the first acquisition. It is random
    /// within the stall's period, so that no schedule of requests can miss all stalls.
    fn begins(&self, seed: u64, nth: u64) -> u64 {
        let room = self.every_ns - self.each_ns + 1;
        nth * self.every_ns + Random::new(seed, nth as usize).below(room)
    }

    /// The stall in progress at this time, and its end.
    fn during(&self, seed: u64, now: u64) -> Option<(u64, u64)> {
        let nth = now / self.every_ns;
        let begins = self.begins(seed, nth);
        let ends = begins + self.each_ns;
        (begins..ends).contains(&now).then_some((nth, ends))
    }
}

/// The stalls, and what was noted of them.
#[derive(Clone, Debug)]
pub struct Stall {
    stalls: Stalls,
    seed: u64,
    notes: Arc<Region>,
}

impl Target for Stall {
    type Lock = Stall;

    const ENTRY: Entry = Entry {
        name: "stall",
        argument: Some("TIME/EVERY"),
        check_argument: |argument| parse(argument).map(drop),
        summary: "nobody gets it for TIME, once in EVERY (default 200ms/1s); else it is free",
        details: "Each stall begins at a random moment of its period, by the seed. It notes what \
                  they really were: `stalls`, `held_up` (acquisitions that waited for the end \
                  of one), `stall_min_ns`, `stall_max_ns` (from the beginning to the last \
                  that went on).",
        lock: LockCapabilities::GRANTS_ALL,
        ..Entry::PLAIN
    };

    fn prepare(setup: &Setup<'_>) -> Result<Stall, SetupError> {
        let words = STALLS_AT + WORDS_EACH * NOTED;
        Ok(Stall {
            stalls: parse(setup.argument).map_err(SetupError)?,
            seed: setup.seed,
            notes: Arc::new(Region::new(words * 8).map_err(no_memory)?),
        })
    }

    fn join(&self, _worker: usize) -> Result<Stall, SetupError> {
        Ok(self.clone())
    }

    fn truth(&self) -> Facts {
        let mut lengths = Vec::new();
        let mut held_up = 0;
        for nth in 0..NOTED {
            let [waited, last] = self.notes.words64((STALLS_AT + WORDS_EACH * nth) * 8, 2) else {
                break;
            };
            if waited.load(Relaxed) > 0 {
                held_up += waited.load(Relaxed);
                let begins = self.stalls.begins(self.seed, nth as u64);
                lengths.push(last.load(Relaxed).saturating_sub(begins));
            }
        }
        let [least, most] = [lengths.iter().min(), lengths.iter().max()];
        facts([
            ("stall_min_ns", least.map(|ns| *ns as f64)),
            ("stall_max_ns", most.map(|ns| *ns as f64)),
            ("stalls", Some(lengths.len() as f64)),
            ("held_up", Some(held_up as f64)),
        ])
    }
}

fn parse(argument: Option<&str>) -> Result<Stalls, String> {
    let Some(text) = argument else {
        return Ok(DEFAULT);
    };
    let time = |text: &str| match text.ends_with(|c: char| c.is_ascii_digit()) {
        // A bare number is refused, because its unit would be a guess.
        true => Err(format!(
            "`{text}` has no unit; write times such as 200ms/1s"
        )),
        false => Nanos::parse(text, Unit::Micros),
    };
    let (each, every) = match text.split_once('/') {
        Some((each, every)) => (time(each)?.0, time(every)?.0),
        None => (time(text)?.0, DEFAULT.every_ns),
    };
    if each == 0 || each >= every {
        return Err(format!(
            "`{text}`: a stall is longer than nothing and shorter than what it comes once in, \
             such as 200ms/1s"
        ));
    }
    Ok(Stalls {
        each_ns: each,
        every_ns: every,
    })
}

impl Stall {
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.notes.words64(at * 8, 1)[0]
    }

    /// Nanoseconds since the first acquisition of any worker; this call may be that
    /// acquisition.
    fn since_first(&self, now: u64) -> u64 {
        let first = self.word(FIRST);
        match first.load(Acquire) {
            0 => match first.compare_exchange(0, now, AcqRel, Acquire) {
                Ok(_) => 0,
                Err(known) => now.saturating_sub(known),
            },
            known => now.saturating_sub(known),
        }
    }
}

impl Lock for Stall {
    #[inline]
    fn acquire(&mut self, _key: usize, _mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        if let Wait::Until(_) = wait {
            return Err(CallError::unsupported("stall"));
        }
        let now = self.since_first(clock::monotonic());
        let Some((nth, ends)) = self.stalls.during(self.seed, now) else {
            return Ok(Outcome::Granted);
        };
        if wait == Wait::Try {
            return Ok(Outcome::Refused);
        }
        clock::sleep(ends - now, signal::interrupted);
        if signal::interrupted() {
            return Ok(Outcome::Interrupted);
        }
        if (nth as usize) < NOTED {
            let went_on = self.since_first(clock::monotonic());
            let at = STALLS_AT + WORDS_EACH * nth as usize;
            self.word(at).fetch_add(1, Relaxed);
            self.word(at + 1).fetch_max(went_on, Relaxed);
        }
        Ok(Outcome::Granted)
    }

    #[inline]
    fn release(&mut self, _key: usize, _mode: Mode) -> Result<(), CallError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_stall_in_each_period_and_it_has_its_length() {
        let (seed, ms) = (7, 1_000_000);
        let mut begun = Vec::new();
        for nth in 0..20 {
            let stalled = (0..1_000)
                .map(|at| (nth * 1_000 + at) * ms)
                .filter(|now| DEFAULT.during(seed, *now).is_some())
                .count();
            assert!((200..=201).contains(&stalled), "{nth}: {stalled}");
            begun.push(DEFAULT.begins(seed, nth) % DEFAULT.every_ns);
        }
        begun.dedup();
        assert!(begun.len() > 15, "they do not keep step");
    }

    #[test]
    fn times_have_units_and_a_stall_is_shorter_than_its_period() {
        assert_eq!(parse(None), Ok(DEFAULT));
        assert_eq!(
            parse(Some("5ms/50ms")),
            Ok(Stalls {
                each_ns: 5_000_000,
                every_ns: 50_000_000
            })
        );
        for (text, part) in [
            ("200", "no unit"),
            ("2s", "shorter"),
            ("0ms", "longer than nothing"),
        ] {
            let error = parse(Some(text)).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
