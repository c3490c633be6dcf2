//! `stall`: a lock that costs nothing, except during stalls of a known length, in which
//! nobody gets it. It excludes nobody, and records how long each stall really was.
//!
//! In a closed loop each stall delays one operation of each worker: one slow operation
//! among many. In an open loop it delays every request that is due during the stall. The
//! specimen shows this difference.

use crate::delay::{STALL, Timed, time};
use crate::specimen::Random;
use crate::table::{Entry, LockCapabilities};
use crate::{Facts, Outcome, Setup, SetupError, Wait, facts, no_memory};
use jostle_sys::shared::Region;
use jostle_sys::{clock, signal};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// A lock that stalls.
pub type Stall = Timed<STALL>;

/// Its line in the table.
pub(crate) const ENTRY: Entry = Entry {
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

/// How long, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    each_ns: u64,
    every_ns: u64,
}

/// Without an argument.
const DEFAULT: Span = Span {
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

/// The stalls, and what was noted of them.
#[derive(Clone, Debug)]
pub(crate) struct Stalls {
    span: Span,
    seed: u64,
    notes: Arc<Region>,
}

fn parse(argument: Option<&str>) -> Result<Span, String> {
    const SUCH_AS: &str = "times such as 200ms/1s";
    let Some(text) = argument else {
        return Ok(DEFAULT);
    };
    let (each, every) = match text.split_once('/') {
        Some((each, every)) => (time(each, SUCH_AS)?.0, time(every, SUCH_AS)?.0),
        None => (time(text, SUCH_AS)?.0, DEFAULT.every_ns),
    };
    if each == 0 || each >= every {
        return Err(format!(
            "`{text}`: a stall is longer than nothing and shorter than what it comes once in, \
             such as 200ms/1s"
        ));
    }
    Ok(Span {
        each_ns: each,
        every_ns: every,
    })
}

impl Stalls {
    /// The stalls of a run.
    pub(crate) fn prepare(setup: &Setup<'_>) -> Result<Stalls, SetupError> {
        let words = STALLS_AT + WORDS_EACH * NOTED;
        Ok(Stalls {
            span: parse(setup.argument).map_err(SetupError)?,
            seed: setup.seed,
            notes: Arc::new(Region::new(words * 8).map_err(no_memory)?),
        })
    }

    /// The start of stall number `nth`, counted from the first acquisition. It is random
    /// within the stall's period, so that no schedule of requests can miss all stalls.
    fn begins(&self, nth: u64) -> u64 {
        let Span { each_ns, every_ns } = self.span;
        nth * every_ns + Random::new(self.seed, nth as usize).below(every_ns - each_ns + 1)
    }

    /// The stall in progress at this time, and its end.
    fn during(&self, now: u64) -> Option<(u64, u64)> {
        let nth = now / self.span.every_ns;
        let begins = self.begins(nth);
        let ends = begins + self.span.each_ns;
        (begins..ends).contains(&now).then_some((nth, ends))
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.notes.words64(at * 8, 1)[0]
    }

    /// How many waited for the end of a stall, and when the last of them went on.
    fn noted(&self, nth: usize) -> [&AtomicU64; WORDS_EACH] {
        let at = STALLS_AT + WORDS_EACH * nth;
        [self.word(at), self.word(at + 1)]
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

    /// Waits for the end of the stall in progress, if there is one.
    pub(crate) fn wait(&self, wait: Wait) -> Outcome {
        let now = self.since_first(clock::monotonic());
        let Some((nth, ends)) = self.during(now) else {
            return Outcome::Granted;
        };
        if wait == Wait::Try {
            return Outcome::Refused;
        }
        clock::sleep(ends - now, signal::interrupted);
        if signal::interrupted() {
            return Outcome::Interrupted;
        }
        if (nth as usize) < NOTED {
            let [waited, last] = self.noted(nth as usize);
            waited.fetch_add(1, Relaxed);
            last.fetch_max(self.since_first(clock::monotonic()), Relaxed);
        }
        Outcome::Granted
    }

    /// The stalls as they really were.
    pub(crate) fn truth(&self) -> Facts {
        let mut lengths = Vec::new();
        let mut held_up = 0;
        for nth in 0..NOTED {
            let [waited, last] = self.noted(nth).map(|word| word.load(Relaxed));
            if waited > 0 {
                held_up += waited;
                lengths.push(last.saturating_sub(self.begins(nth as u64)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_stall_in_each_period_and_it_has_its_length() {
        let ms = 1_000_000;
        let stalls = Stalls {
            span: DEFAULT,
            seed: 7,
            notes: Arc::new(Region::new(8).unwrap()),
        };
        let mut begun = Vec::new();
        for nth in 0..20 {
            let stalled = (0..1_000)
                .map(|at| (nth * 1_000 + at) * ms)
                .filter(|now| stalls.during(*now).is_some())
                .count();
            assert!((200..=201).contains(&stalled), "{nth}: {stalled}");
            begun.push(stalls.begins(nth) % DEFAULT.every_ns);
        }
        begun.dedup();
        assert!(begun.len() > 15, "they do not keep step");
    }

    #[test]
    fn times_have_units_and_a_stall_is_shorter_than_its_period() {
        assert_eq!(parse(None), Ok(DEFAULT));
        assert_eq!(
            parse(Some("5ms/50ms")),
            Ok(Span {
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
