//! Where workers note their requests: a sheet for each, in memory that the keeper
//! shares, beside the page that every worker has.
//!
//! As there, one side writes and the other reads, and what a worker that is
//! killed has noted is not lost.

use crate::order::{CpuTimes, Merged};
use crate::page::{Gathered, OCTAVE, POPULATE_AT_MOST};
use jostle_stats::histogram;
use jostle_sys::process::Usage;
use jostle_sys::shared::{LINE, Region};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A distribution of a sheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// From sending to answer, successes.
    Service,
    /// From sending to answer, of failed requests.
    Failed,
    /// From the intended start to the answer, successes.
    Response,
    /// From the intended start to the end of the run, or to being dropped.
    Unanswered,
    /// The generator's lateness.
    GeneratorLag,
    /// The target's lateness.
    TargetLag,
    /// The canary's lateness.
    CanaryLag,
    /// A phase of the successes, by its number.
    Phase(usize),
}

/// Parts that are no phases.
const FIXED: usize = 7;

impl Part {
    fn index(self) -> usize {
        match self {
            Part::Service => 0,
            Part::Failed => 1,
            Part::Response => 2,
            Part::Unanswered => 3,
            Part::GeneratorLag => 4,
            Part::TargetLag => 5,
            Part::CanaryLag => 6,
            Part::Phase(nth) => FIXED + nth,
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// Answered with a code that counts as a success.
    Success(u32),
    /// Answered with another.
    Unexpected(u32),
    /// Not answered: the errno.
    Failed(i32),
}

impl Outcome {
    /// Never zero, which is an empty place.
    fn key(self) -> u64 {
        match self {
            Outcome::Success(code) | Outcome::Unexpected(code) => 1 << 32 | u64::from(code),
            Outcome::Failed(errno) => 2 << 32 | u64::from(errno.unsigned_abs()),
        }
    }
}

/// The fate of requests that were due in the window (open loop).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Fate {
    /// Answered as expected.
    Done,
    /// Answered otherwise, or not in time.
    Failed,
    /// Not sent: no slot came free in time.
    Dropped,
    /// Not sent: there was a slot, and the generator was late.
    DroppedWithSlot,
    /// Not sent in one of these two ways, and the window had closed meanwhile.
    DroppedAtEnd,
}

const FATES: usize = 5;

/// Where a request is that a worker has taken from the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// None, or what became of it is counted.
    Nothing,
    /// It is not sent yet.
    Waits(u64),
    /// It is sent.
    Sent(u64),
}

/// Kinds of outcome that are told apart; a server has some dozen codes, and a
/// program that ends with more is no benchmark.
const KINDS: usize = 64;

/// Kinds of failure whose first one is kept in words, and how long these are.
const TOLD: usize = 4;
const TOLD_BYTES: usize = 248;

/// Words of each distribution: sum, least, greatest, octaves in use.
const HEAD: usize = 4;
/// User and system time of started processes, outcomes beyond `KINDS`, and the
/// request that was taken.
const CHILD_USER: usize = 0;
const CHILD_SYSTEM: usize = 1;
const BEYOND: usize = 2;
const TAKEN: usize = 3;
const FATES_AT: usize = 4;
const KINDS_AT: usize = FATES_AT + FATES;
const TOLD_AT: usize = KINDS_AT + 2 * KINDS;
/// Words of each failure in words: which kind, how many bytes, and these.
const TOLD_WORDS: usize = 2 + TOLD_BYTES / 8;
const HEADS_AT: usize = TOLD_AT + TOLD * TOLD_WORDS;

/// The sheets of all workers.
#[derive(Debug)]
pub(super) struct Sheets {
    region: Region,
    workers: usize,
    phases: usize,
}

/// One worker's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sheet<'a> {
    words: &'a [AtomicU64],
    counts: &'a [AtomicU32],
    phases: usize,
}

/// The outcomes of all requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcomes {
    /// By code.
    pub answered: BTreeMap<u32, u64>,
    /// By errno.
    pub failed: BTreeMap<i32, u64>,
    /// Outcomes of kinds for which there was no place left.
    pub beyond: u64,
    /// The first failure of each kind, in words; by errno.
    pub told: BTreeMap<i32, String>,
    /// CPU time of started processes.
    pub children: CpuTimes,
}

impl Sheets {
    /// Maps zeroed memory.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn new(workers: usize, phases: usize) -> std::io::Result<Sheets> {
        let region = Region::new(workers * bytes(phases))?;
        Ok(Sheets {
            region,
            workers,
            phases,
        })
    }

    /// Maps a worker's sheet into the calling process; of many workers nothing, since
    /// most of their histograms stay empty.
    pub(super) fn populate(&self, worker: usize) {
        let each = bytes(self.phases);
        if self.workers * each <= POPULATE_AT_MOST {
            self.region.populate(worker * each, each);
        }
    }

    /// The sheet of worker number `worker`.
    pub(super) fn sheet(&self, worker: usize) -> Sheet<'_> {
        let at = worker * bytes(self.phases);
        let parts = FIXED + self.phases;
        Sheet {
            words: self.region.words64(at, words(self.phases)),
            counts: self
                .region
                .words32(at + head_bytes(self.phases), parts * histogram::LEN),
            phases: self.phases,
        }
    }

    /// The sheet of every worker.
    pub(super) fn all(&self) -> impl Iterator<Item = Sheet<'_>> {
        (0..self.workers).map(|worker| self.sheet(worker))
    }

    /// A distribution over all workers.
    pub(super) fn merged(&self, part: Part) -> Merged {
        let mut all = Gathered::default();
        for sheet in self.all() {
            let counts = &sheet.counts[part.index() * histogram::LEN..];
            all.add(sheet.head(part), &counts[..histogram::LEN]);
        }
        all.merged()
    }

    /// The outcomes of the requests of all workers.
    pub(super) fn outcomes(&self) -> Outcomes {
        let mut all = Outcomes::default();
        for sheet in self.all() {
            sheet.add_to(&mut all);
        }
        all
    }
}

fn words(phases: usize) -> usize {
    HEADS_AT + HEAD * (FIXED + phases)
}

fn head_bytes(phases: usize) -> usize {
    (words(phases) * 8).next_multiple_of(LINE)
}

/// Bytes of one worker's sheet.
fn bytes(phases: usize) -> usize {
    head_bytes(phases) + (FIXED + phases) * histogram::LEN * 4
}

/// Only the sheet's own worker writes: a load and a store do.
fn add(word: &AtomicU64, value: u64) {
    word.store(word.load(Relaxed) + value, Relaxed);
}

impl Sheet<'_> {
    /// How many phases a request has.
    pub(super) fn phases(&self) -> usize {
        self.phases
    }

    /// Counts how a request ended.
    pub(super) fn count(&self, outcome: Outcome) {
        let key = outcome.key();
        for kind in 0..KINDS {
            let at = KINDS_AT + 2 * kind;
            let known = self.words[at].load(Relaxed);
            if known == 0 || known == key {
                self.words[at].store(key, Relaxed);
                add(&self.words[at + 1], 1);
                return;
            }
        }
        add(&self.words[BEYOND], 1);
    }

    /// Keeps in words how a request failed, the first time it did so.
    #[cold]
    pub(super) fn tell(&self, errno: i32, text: &str) {
        let key = Outcome::Failed(errno).key();
        for place in 0..TOLD {
            let words = self.told_at(place);
            match words[0].load(Relaxed) {
                0 => {}
                known if known == key => return,
                _ => continue,
            }
            let bytes = &text.as_bytes()[..text.floor_char_boundary(TOLD_BYTES)];
            for (word, chunk) in words[2..].iter().zip(bytes.chunks(8)) {
                let mut raw = [0; 8];
                raw[..chunk.len()].copy_from_slice(chunk);
                word.store(u64::from_le_bytes(raw), Relaxed);
            }
            words[1].store(bytes.len() as u64, Relaxed);
            // Last, so that a worker that is killed here leaves no half a text.
            words[0].store(key, Release);
            return;
        }
    }

    fn told_at(&self, place: usize) -> &[AtomicU64] {
        let at = TOLD_AT + place * TOLD_WORDS;
        &self.words[at..at + TOLD_WORDS]
    }

    fn gather_told(&self, told: &mut BTreeMap<i32, String>) {
        for place in 0..TOLD {
            let words = self.told_at(place);
            let key = words[0].load(Acquire);
            if key == 0 {
                break;
            }
            let bytes = words[2..]
                .iter()
                .flat_map(|word| word.load(Relaxed).to_le_bytes());
            let bytes: Vec<u8> = bytes.take(words[1].load(Relaxed) as usize).collect();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            told.entry(key as u32 as i32).or_insert(text);
        }
    }

    /// Adds what a process used that was started for a request.
    pub(super) fn add_child(&self, usage: Usage) {
        add(&self.words[CHILD_USER], usage.user_ns);
        add(&self.words[CHILD_SYSTEM], usage.system_ns);
    }

    /// Folds one value into a distribution.
    pub(super) fn fold(&self, part: Part, value: u64) {
        let bucket = histogram::index(value);
        let count = &self.counts[part.index() * histogram::LEN + bucket];
        count.store(count.load(Relaxed).saturating_add(1), Relaxed);
        let head = self.head(part);
        let [sum, min, max, used] = std::array::from_fn(|n| &head[n]);
        let octaves = used.load(Relaxed);
        // No octave in use means no value yet, so that `min` is still zero.
        if octaves == 0 || value < min.load(Relaxed) {
            min.store(value, Relaxed);
        }
        add(sum, value);
        max.fetch_max(value, Relaxed);
        used.store(octaves | 1 << (bucket / OCTAVE), Relaxed);
    }

    /// Counts what became of a planned request.
    pub(super) fn count_fate(&self, fate: Fate) {
        add(&self.words[FATES_AT + fate as usize], 1);
    }

    /// How many came to this.
    pub(super) fn fates(&self, fate: Fate) -> u64 {
        self.words[FATES_AT + fate as usize].load(Relaxed)
    }

    /// Notes where the request is that this worker has taken.
    pub(super) fn take(&self, taken: Taken) {
        let word = match taken {
            Taken::Nothing => 0,
            Taken::Waits(nth) => (nth + 1) << 1,
            Taken::Sent(nth) => (nth + 1) << 1 | 1,
        };
        self.words[TAKEN].store(word, Relaxed);
    }

    /// Where it was left.
    pub(super) fn taken(&self) -> Taken {
        match self.words[TAKEN].load(Relaxed) {
            0 => Taken::Nothing,
            word if word & 1 == 1 => Taken::Sent((word >> 1) - 1),
            word => Taken::Waits((word >> 1) - 1),
        }
    }

    fn head(&self, part: Part) -> &[AtomicU64] {
        let at = HEADS_AT + HEAD * part.index();
        &self.words[at..at + HEAD]
    }

    fn add_to(&self, all: &mut Outcomes) {
        for kind in 0..KINDS {
            let at = KINDS_AT + 2 * kind;
            let (key, count) = (
                self.words[at].load(Relaxed),
                self.words[at + 1].load(Relaxed),
            );
            match (key >> 32, key as u32) {
                (0, _) => break,
                (1, code) => *all.answered.entry(code).or_default() += count,
                (_, errno) => *all.failed.entry(errno as i32).or_default() += count,
            }
        }
        self.gather_told(&mut all.told);
        all.beyond += self.words[BEYOND].load(Relaxed);
        all.children += CpuTimes {
            user_ns: self.words[CHILD_USER].load(Relaxed),
            system_ns: self.words[CHILD_SYSTEM].load(Relaxed),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_workers_note_is_added_up() {
        let sheets = Sheets::new(2, 3).unwrap();
        for (worker, values) in [(0, [5, 700, 700]), (1, [3, 9, 40_000])] {
            let sheet = sheets.sheet(worker);
            for value in values {
                sheet.fold(Part::Phase(2), value);
            }
            sheet.count(Outcome::Success(0));
            sheet.count(Outcome::Unexpected(3));
            sheet.count(Outcome::Failed(110));
            sheet.add_child(Usage {
                user_ns: 10,
                system_ns: 20,
            });
        }
        sheets.sheet(1).count(Outcome::Unexpected(3));
        let merged = sheets.merged(Part::Phase(2));
        let counts: Vec<u64> = merged.buckets.0.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [1, 1, 1, 2, 1]);
        assert_eq!((merged.sum, merged.min, merged.max), (41_417, 3, 40_000));
        assert_eq!(sheets.merged(Part::Service), Merged::default());
        let outcomes = sheets.outcomes();
        assert_eq!(outcomes.answered, [(0, 2), (3, 3)].into());
        assert_eq!(outcomes.failed, [(110, 2)].into());
        let CpuTimes { user_ns, system_ns } = outcomes.children;
        assert_eq!((user_ns, system_ns), (20, 40));
        assert_eq!(outcomes.beyond, 0);
    }

    #[test]
    fn the_first_failure_of_each_kind_is_kept_in_words() {
        let sheets = Sheets::new(2, 1).unwrap();
        let long = "ä".repeat(TOLD_BYTES);
        sheets.sheet(0).tell(110, "late");
        sheets.sheet(0).tell(110, "late again");
        sheets.sheet(1).tell(71, &long);
        sheets.sheet(1).tell(110, "late elsewhere");
        // Kinds for which there is no place, and what stands behind them.
        (1..10).for_each(|errno| sheets.sheet(1).tell(errno, "many"));
        sheets.sheet(1).fold(Part::Service, 1);
        let told = sheets.outcomes().told;
        let expected = [
            (1, "many".to_owned()),
            (2, "many".to_owned()),
            (71, "ä".repeat(TOLD_BYTES / 2)),
            (110, "late".to_owned()),
        ];
        assert_eq!(told, expected.into());
        assert_eq!(sheets.merged(Part::Service).max, 1);
    }

    #[test]
    fn more_kinds_than_there_is_room_for_are_counted_all_the_same() {
        let sheets = Sheets::new(1, 0).unwrap();
        for code in 0..100 {
            sheets.sheet(0).count(Outcome::Unexpected(code));
        }
        let outcomes = sheets.outcomes();
        assert_eq!(outcomes.answered.len(), KINDS);
        assert_eq!(outcomes.beyond, 100 - KINDS as u64);
    }
}
