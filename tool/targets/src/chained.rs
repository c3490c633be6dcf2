//! `chained`: locks in a hash table of few buckets, whose chains are searched from their
//! beginning. Its cost grows with the number of locks held, like that of the 3000-bucket
//! table in the Open Lock Daemon (2003). A measurement of growth must find this.

use crate::prelude::*;
use jostle_sys::clock;
use jostle_sys::files::Errno;
use jostle_sys::shared::Region;
use jostle_sys::signal;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The Open Lock Daemon's.
const BUCKETS: usize = 3000;

const MOST_BUCKETS: usize = 1_000_000;

/// Words of a lock that is held: the next one in its chain, by number plus one.
/// A bucket is a word as well (the first of its chain), and a spin lock beside it.
const BUCKET_WORDS: usize = 2;

/// The specimen's own counts, at the region's end.
const NOTED_WORDS: usize = 2;

/// The table: the buckets, then one link for each lock that there could be.
#[derive(Clone, Debug)]
pub(crate) struct Chained {
    region: Arc<Region>,
    buckets: usize,
    keys: usize,
}

impl Target for Chained {
    type Lock = Chained;

    const ENTRY: Entry = Entry {
        name: "chained",
        argument: Some("BUCKETS"),
        check_argument: |argument| buckets(argument).map(drop),
        summary: "a table of BUCKETS (default 3000) chains: its cost grows with the locks held",
        details: "A hash table in shared memory whose chains are searched from their beginning, \
                  and grow at their end: with N locks held, an acquisition looks at N / BUCKETS \
                  of them. `jostle hold` must find that growth. Who finds the lock taken asks \
                  again. It notes how many locks it has looked at (`looks`) in how many searches \
                  (`searches`).",
        lock: LockCapabilities::TIMED,
        ..Entry::PLAIN
    };

    fn prepare(setup: &Setup<'_>) -> Result<Chained> {
        let buckets = buckets(setup.argument).map_err(SetupError)?;
        Chained::new(buckets, setup.keys).map_err(no_memory)
    }

    fn join(&self, _worker: usize) -> Result<Chained> {
        Ok(self.clone())
    }

    fn truth(&self) -> Facts {
        let [searches, looks] = self.noted().map(|word| Some(word.load(Relaxed) as f64));
        facts([("searches", searches), ("looks", looks)])
    }
}

fn buckets(argument: Option<&str>) -> Result<usize, String> {
    let Some(text) = argument else {
        return Ok(BUCKETS);
    };
    match text.parse() {
        Ok(count) if (1..=MOST_BUCKETS).contains(&count) => Ok(count),
        _ => Err(format!(
            "`{text}` is no number of buckets from 1 to {MOST_BUCKETS}"
        )),
    }
}

impl Chained {
    fn new(buckets: usize, keys: usize) -> std::io::Result<Chained> {
        let words = BUCKET_WORDS * buckets + keys + NOTED_WORDS;
        Ok(Chained {
            region: Arc::new(Region::new(8 * words)?),
            buckets,
            keys,
        })
    }

    /// Searches, and looks at locks in them.
    fn noted(&self) -> [&AtomicU64; NOTED_WORDS] {
        let at = BUCKET_WORDS * self.buckets + self.keys;
        let words = self.region.words64(8 * at, NOTED_WORDS);
        [&words[0], &words[1]]
    }

    /// The bucket's spin lock and the first of its chain.
    fn bucket(&self, key: usize) -> (&AtomicU64, &AtomicU64) {
        let at = BUCKET_WORDS * (key % self.buckets);
        let words = self.region.words64(8 * at, BUCKET_WORDS);
        (&words[0], &words[1])
    }

    fn link(&self, key: usize) -> &AtomicU64 {
        let at = BUCKET_WORDS * self.buckets + key;
        &self.region.words64(8 * at, 1)[0]
    }

    /// Finds the word that names `key`, or the last word of the chain if `key` is not in
    /// it. The caller holds the bucket's spin lock.
    fn find<'a>(&'a self, first: &'a AtomicU64, key: usize) -> (&'a AtomicU64, bool) {
        let (mut word, mut looks) = (first, 0);
        let found = loop {
            match word.load(Relaxed) as usize {
                0 => break false,
                held if held == key + 1 => break true,
                held => word = self.link(held - 1),
            }
            looks += 1;
        };
        // Counted once per search, so that following links dominates the cost.
        let [searches, seen] = self.noted();
        searches.fetch_add(1, Relaxed);
        seen.fetch_add(looks + u64::from(found), Relaxed);
        (word, found)
    }

    /// Runs `act` while it holds the bucket's spin lock.
    fn alone<R>(&self, key: usize, act: impl FnOnce(&AtomicU64) -> R) -> R {
        let (lock, first) = self.bucket(key);
        while lock.swap(1, Acquire) != 0 {
            std::hint::spin_loop();
        }
        let done = act(first);
        lock.store(0, Release);
        done
    }

    fn try_once(&self, key: usize) -> bool {
        self.alone(key, |first| {
            let (end, held) = self.find(first, key);
            if !held {
                self.link(key).store(0, Relaxed);
                end.store(key as u64 + 1, Relaxed);
            }
            !held
        })
    }
}

impl Lock for Chained {
    fn acquire(&mut self, key: usize, _mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        loop {
            if self.try_once(key) {
                return Ok(Outcome::Granted);
            }
            let (until, late) = match wait {
                Wait::Try => return Ok(Outcome::Refused),
                Wait::Until(until) => (until, Outcome::Refused),
                Wait::Block { last_resort_ns } => (last_resort_ns, Outcome::Interrupted),
            };
            if signal::interrupted() {
                return Ok(Outcome::Interrupted);
            }
            if clock::monotonic() >= until {
                return Ok(late);
            }
            std::thread::yield_now();
        }
    }

    fn release(&mut self, key: usize, _mode: Mode) -> Result<(), CallError> {
        let found = self.alone(key, |first| {
            let (word, held) = self.find(first, key);
            if held {
                word.store(self.link(key).load(Relaxed), Relaxed);
            }
            held
        });
        match found {
            true => Ok(()),
            false => Err(CallError::new("release", Errno::PERM)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(buckets: usize, keys: usize) -> Chained {
        Chained::new(buckets, keys).unwrap()
    }

    #[test]
    fn what_is_held_is_refused_and_what_is_released_is_free() {
        // One chain for all, from which the first, the middle and the last go.
        for released in 0..3 {
            let mut table = table(1, 3);
            (0..3).for_each(|key| assert!(table.try_once(key)));
            table.release(released, Mode::Exclusive).unwrap();
            let free: Vec<bool> = (0..3).map(|key| table.try_once(key)).collect();
            let expected: Vec<bool> = (0..3).map(|key| key == released).collect();
            assert_eq!(free, expected);
        }
    }

    #[test]
    fn every_look_at_a_lock_is_noted() {
        let mut table = table(1, 3);
        let noted = |table: &Chained| table.noted().map(|word| word.load(Relaxed));
        assert!((0..3).all(|key| table.try_once(key)));
        // Past none, one and two to the end of the chain.
        assert_eq!(noted(&table), [3, 3]);
        table.release(2, Mode::Exclusive).unwrap();
        assert_eq!(noted(&table), [4, 6]);
    }

    #[test]
    fn what_is_not_held_cannot_be_released() {
        assert!(table(1, 3).release(1, Mode::Exclusive).is_err());
    }

    #[test]
    fn buckets_are_a_number() {
        assert_eq!(buckets(None), Ok(3000));
        assert_eq!(buckets(Some("7")), Ok(7));
        for sad in ["", "0", "x", "-1", "9999999"] {
            assert!(buckets(Some(sad)).is_err(), "{sad}");
        }
    }
}
