//! `busted`: a correct lock, except that it grants a known share of its acquisitions while
//! an incompatible owner may hold it. It counts the grants that did overlap with such an
//! owner. (Named after the kernel's lock_busted, with which locktorture tests itself.)
//!
//! The word counts the owners inside: readers in its low half, writers in its high half. A
//! normal acquisition waits until no incompatible owner is inside; a busted one adds itself
//! without waiting. Every overlap was therefore caused by a busted acquisition: later
//! acquisitions wait for all owners inside, busted ones included.

use crate::prelude::*;
use crate::specimen::{Random, Tallies, add};
use jostle_sys::files::Errno;
use jostle_sys::shared::{LINE, Region};
use jostle_sys::{futex, signal};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

/// Without an argument.
const DEFAULT: f64 = 1e-3;

const READER: u32 = 1;
const WRITER: u32 = 1 << 16;

/// The only counter: entries granted while another owner was inside.
const PLANTED: usize = 0;

/// The memory that the workers share.
#[derive(Debug)]
struct Shared {
    /// Two words for each key: who is inside, and how many sleep.
    words: Region,
    tallies: Tallies,
}

/// The lock and its fault.
#[derive(Debug)]
pub struct Busted {
    shared: Arc<Shared>,
    probability: f64,
    seed: u64,
}

/// One worker's view.
#[derive(Debug)]
pub struct BustedLock {
    shared: Arc<Shared>,
    /// A draw below this is busted.
    threshold: u64,
    random: Random,
    worker: usize,
}

impl Target for Busted {
    type Lock = BustedLock;

    const ENTRY: Entry = Entry {
        name: "busted",
        argument: Some("PROBABILITY"),
        check_argument: |argument| parse(argument).map(drop),
        summary: "a futex lock that lets the caller in regardless, with PROBABILITY (default 1e-3)",
        details: "A correct lock for readers and writers on a futex, except that each acquisition \
                  is, with the given probability, granted at once whoever is inside. It notes how \
                  many it so let in while an owner was inside that excludes them: `planted`.",
        // Exclusion is declared although there is none: the witness has to find the violations.
        lock: capabilities!(LockCapabilities::TIMED; shared),
        ..Entry::PLAIN
    };

    fn prepare(setup: &Setup<'_>) -> Result<Busted> {
        let shared = Shared {
            words: Region::new(setup.keys * LINE).map_err(no_memory)?,
            tallies: Tallies::new(setup.workers).map_err(no_memory)?,
        };
        Ok(Busted {
            shared: Arc::new(shared),
            probability: parse(setup.argument).map_err(SetupError)?,
            seed: setup.seed,
        })
    }

    fn join(&self, worker: usize) -> Result<BustedLock> {
        let place = self.shared.tallies.place(worker);
        self.shared.tallies.touch(place);
        Ok(BustedLock {
            shared: Arc::clone(&self.shared),
            // The conversion saturates, so that 1 is nearly always.
            threshold: (self.probability * 2f64.powi(64)) as u64,
            random: Random::new(self.seed, worker),
            worker: place,
        })
    }

    fn truth(&self) -> Facts {
        let planted: u64 = self.shared.tallies.column(PLANTED).sum();
        facts([("planted", Some(planted as f64))])
    }
}

fn parse(argument: Option<&str>) -> Result<f64, String> {
    let Some(text) = argument else {
        return Ok(DEFAULT);
    };
    match text.parse::<f64>() {
        Ok(probability) if (0.0..=1.0).contains(&probability) => Ok(probability),
        _ => Err(format!(
            "`{text}` is not a probability; write one from 0 to 1, such as 1e-3"
        )),
    }
}

/// The amount that an owner adds to the word.
fn weight(mode: Mode) -> u32 {
    match mode {
        Mode::Exclusive => WRITER,
        Mode::Shared => READER,
    }
}

/// Whether the owners inside exclude an owner in this mode.
fn excluded(inside: u32, mode: Mode) -> bool {
    match mode {
        Mode::Exclusive => inside > 0,
        Mode::Shared => inside >= WRITER,
    }
}

impl BustedLock {
    #[inline]
    fn words(&self, key: usize) -> (&AtomicU32, &AtomicU32) {
        let words = self.shared.words.words32(key * LINE, 2);
        (&words[0], &words[1])
    }

    fn intrude(&self, key: usize, mode: Mode) {
        let (inside, _) = self.words(key);
        if excluded(inside.fetch_add(weight(mode), SeqCst), mode) {
            add(&self.shared.tallies.of_worker(self.worker)[PLANTED], 1);
        }
    }

    fn enter(&self, key: usize, mode: Mode) -> bool {
        let (inside, _) = self.words(key);
        let step = |now| (!excluded(now, mode)).then(|| now + weight(mode));
        inside.fetch_update(SeqCst, SeqCst, step).is_ok()
    }

    #[cold]
    fn wait(&self, key: usize, mode: Mode, until: Option<u64>) -> Result<Outcome, CallError> {
        let (_, sleepers) = self.words(key);
        // This precedes our check of the owners inside: if we miss a release, that release
        // finds us counted here and wakes us.
        sleepers.fetch_add(1, SeqCst);
        let outcome = self.sleep(key, mode, until);
        let others = sleepers.fetch_sub(1, SeqCst) > 1;
        if outcome == Ok(Outcome::Granted) && mode == Mode::Shared && others {
            // A release wakes one; a reader lets the next one try as well.
            futex::wake(self.words(key).0, 1);
        }
        outcome
    }

    fn sleep(&self, key: usize, mode: Mode, until: Option<u64>) -> Result<Outcome, CallError> {
        let (inside, _) = self.words(key);
        loop {
            let now = inside.load(SeqCst);
            if !excluded(now, mode) {
                if self.enter(key, mode) {
                    return Ok(Outcome::Granted);
                }
                continue;
            }
            if signal::interrupted() {
                return Ok(Outcome::Interrupted);
            }
            match futex::wait(inside, now, until) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::TIMEDOUT) => return Ok(Outcome::Refused),
                Err(errno) => return Err(CallError::new("futex", errno)),
            }
        }
    }
}

impl Lock for BustedLock {
    #[inline]
    fn acquire(&mut self, key: usize, mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        if self.random.draw() < self.threshold {
            self.intrude(key, mode);
            return Ok(Outcome::Granted);
        }
        if self.enter(key, mode) {
            return Ok(Outcome::Granted);
        }
        match wait {
            Wait::Try => Ok(Outcome::Refused),
            Wait::Block { .. } => self.wait(key, mode, None),
            Wait::Until(time) => self.wait(key, mode, Some(time)),
        }
    }

    #[inline]
    fn release(&mut self, key: usize, mode: Mode) -> Result<(), CallError> {
        let (inside, sleepers) = self.words(key);
        let left = inside.fetch_sub(weight(mode), SeqCst) - weight(mode);
        if left < WRITER && sleepers.load(SeqCst) > 0 {
            futex::wake(inside, 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_of_a_later_host_counts_what_it_planted() {
        let shared = Shared {
            words: Region::new(LINE).unwrap(),
            tallies: Tallies::new(2).unwrap(),
        };
        let lock = Busted {
            shared: Arc::new(shared),
            probability: 1.0,
            seed: 7,
        };
        for worker in [4, 5] {
            lock.join(worker).unwrap().intrude(0, Mode::Exclusive);
        }
        // The first was alone.
        let planted: Vec<u64> = lock.shared.tallies.column(PLANTED).collect();
        assert_eq!(planted, [0, 1]);
    }

    #[test]
    fn probabilities_are_read() {
        for (text, probability) in [(None, 1e-3), (Some("0"), 0.0), (Some("1e-5"), 1e-5)] {
            assert_eq!(parse(text), Ok(probability));
        }
        for sad in ["", "-1", "1.1", "NaN", "often"] {
            assert!(parse(Some(sad)).is_err(), "{sad}");
        }
    }

    #[test]
    fn readers_meet_readers_and_nobody_else_meets_anybody() {
        let table = [
            (0, Mode::Exclusive, false),
            (0, Mode::Shared, false),
            (READER, Mode::Shared, false),
            (READER, Mode::Exclusive, true),
            (WRITER, Mode::Shared, true),
            (WRITER + 3 * READER, Mode::Shared, true),
            (2 * WRITER, Mode::Exclusive, true),
        ];
        for (inside, mode, out) in table {
            assert_eq!(excluded(inside, mode), out, "{inside:x} {mode:?}");
        }
    }
}
