//! The witness of exclusion: does the lock do what it is for, on every
//! acquisition?
//!
//! Each lock has a line in shared memory that only its holder may write. The
//! holder marks it by compare-and-swap after the grant, and removes the mark
//! before the release. A mark that is already there belongs to another owner.
//! The entrant then records both and leaves the line alone, so that one overlap
//! is counted once, and not once for each owner that it confuses. Beside the
//! mark is a counter. Every exclusive owner, marked or not, loads it when it
//! enters and stores it increased when it leaves: what the counter lacks
//! against the sum of the workers' own counts was lost by the lock.
//!
//! It proves overlap, not memory ordering, and sees no overlap shorter than the
//! interval between its two marks. Whether a recorded owner had died while
//! holding is decided later, when all workers are reaped.

use crate::page::{Page, Word};
use jostle_model::plan::Range;
use jostle_stats::rng::Rng;
use jostle_sys::shared::{LINE, Region};
use jostle_targets::Mode;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, SeqCst},
};

/// Readers that a writer looks at, at most; above, as many that follow one drawn at random.
const LOOK_AT: usize = 64;

/// The words of a lock's line.
#[repr(usize)]
enum LineWord {
    /// Worker + 1 of the exclusive owner; zero: free.
    Owner,
    /// Incremented by owners with a load, an addition and a store.
    Counter,
    /// Worker + 1 of the last exclusive owner.
    LastWorker,
    /// Its release stamp.
    LastRelease,
    /// The CPU it released on.
    LastCpu,
    /// Its streak: how many, and the stamps of its first and last grant.
    Streak,
    StreakFirst,
    StreakLast,
    /// On the line after: the latest release stamp of a reader.
    ReaderRelease = LINE / 8,
    /// The greatest fencing token of an exclusive grant.
    Token,
}

/// Bytes of a lock's two lines.
const LOCK_BYTES: usize = 2 * LINE;

/// The lines that an acquisition covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cover {
    /// One for each key.
    Key,
    /// One for each worker and key: nobody excludes anybody.
    Own,
    /// Each worker shares one line with either neighbour.
    Neighbours,
}

/// The lines of all locks of a run.
#[derive(Debug)]
pub struct Witness {
    region: Region,
    cover: Cover,
    keys: usize,
    workers: usize,
    /// Where the readers' marks begin; None without shared mode.
    readers_at: Option<usize>,
}

impl Witness {
    /// Lines for `keys` locks and `workers`.
    ///
    /// # Errors
    /// The system's, where memory is short.
    pub fn new(
        keys: usize,
        workers: usize,
        range: Range,
        excludes: bool,
        shared: bool,
    ) -> std::io::Result<Witness> {
        let cover = match range {
            _ if !excludes => Cover::Own,
            Range::Same => Cover::Key,
            Range::Disjoint => Cover::Own,
            Range::Overlap => Cover::Neighbours,
        };
        let lines = match cover {
            Cover::Key => keys,
            Cover::Own => keys * workers,
            Cover::Neighbours => keys * (workers + 1),
        };
        let readers = if shared { lines * workers * LINE } else { 0 };
        Ok(Witness {
            region: Region::new(lines * LOCK_BYTES + readers)?,
            cover,
            keys,
            workers,
            readers_at: shared.then_some(lines * LOCK_BYTES),
        })
    }

    /// The exclusive owners that are inside now, by their marks.
    pub fn inside(&self) -> Vec<usize> {
        /// Of many lines the first ones.
        const LINES: usize = 4096;
        let lines = (self.readers_at.unwrap_or(self.region.len()) / LOCK_BYTES).min(LINES);
        let owner = |line: usize| {
            let words = self.region.words64(line * LOCK_BYTES, LOCK_BYTES / 8);
            words[LineWord::Owner as usize].load(Relaxed)
        };
        let owners = (0..lines).map(owner);
        owners
            .filter_map(|mark| (mark as usize).checked_sub(1))
            .collect()
    }

    /// Maps the lines into the calling process, of many the first ones.
    pub(crate) fn populate(&self) {
        const AT_MOST: usize = 64 * 1024;
        self.region.populate(0, self.region.len().min(AT_MOST));
    }

    /// The lines that worker `worker` covers with lock `key`.
    fn lines(&self, worker: usize, key: usize) -> std::ops::RangeInclusive<usize> {
        match self.cover {
            Cover::Key => key..=key,
            Cover::Own => key * self.workers + worker..=key * self.workers + worker,
            Cover::Neighbours => {
                let first = key * (self.workers + 1) + worker;
                first..=first + 1
            }
        }
    }

    /// One worker's view.
    pub(crate) fn guard<'a>(&'a self, worker: usize, page: Page<'a>, seed: u64) -> Guard<'a> {
        Guard {
            witness: self,
            worker,
            page,
            // The workload draws from the streams below.
            rng: Rng::stream(seed, u64::from(u32::MAX) + worker as u64),
            marked: [false; 2],
            counted: [0; 2],
            trespassing: false,
        }
    }

    /// Grants that the counters of all lines kept.
    pub fn counted(&self) -> u64 {
        let lines = match self.cover {
            Cover::Key => self.keys,
            Cover::Own => self.keys * self.workers,
            Cover::Neighbours => self.keys * (self.workers + 1),
        };
        (0..lines)
            .map(|line| {
                Line(self.region.words64(line * LOCK_BYTES, LOCK_BYTES / 8)).get(LineWord::Counter)
            })
            .sum()
    }
}

/// One lock's line.
#[derive(Clone, Copy)]
struct Line<'a>(&'a [AtomicU64]);

impl Line<'_> {
    #[inline(always)]
    fn get(&self, word: LineWord) -> u64 {
        self.0[word as usize].load(Relaxed)
    }

    #[inline(always)]
    fn set(&self, word: LineWord, value: u64) {
        self.0[word as usize].store(value, Relaxed);
    }
}

/// The line's traces of the owner before us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    /// Stamp of the latest incompatible release; zero: none yet.
    pub release: u64,
    /// The CPU it happened on.
    pub cpu: u32,
}

/// One worker's access to the witness.
#[derive(Debug)]
pub(crate) struct Guard<'a> {
    witness: &'a Witness,
    worker: usize,
    page: Page<'a>,
    rng: Rng,
    /// Whether each of the (at most two) lines carries our mark.
    marked: [bool; 2],
    /// The values of their counters when we entered.
    counted: [u64; 2],
    /// Our last entry met another owner: the lines are not ours to write.
    trespassing: bool,
}

impl<'a> Guard<'a> {
    #[inline(always)]
    fn line(&self, index: usize) -> Line<'a> {
        Line(
            self.witness
                .region
                .words64(index * LOCK_BYTES, LOCK_BYTES / 8),
        )
    }

    fn reader(&self, line: usize, worker: usize) -> &'a AtomicU64 {
        let base = self.witness.readers_at.unwrap_or(0);
        &self
            .witness
            .region
            .words64(base + (line * self.witness.workers + worker) * LINE, 1)[0]
    }

    /// Marks the lock as ours, after the grant.
    #[inline(always)]
    pub(crate) fn enter(&mut self, key: usize, mode: Mode) {
        self.trespassing = false;
        for (nth, index) in self.witness.lines(self.worker, key).enumerate() {
            let clear = match mode {
                Mode::Exclusive => {
                    self.counted[nth] = self.line(index).get(LineWord::Counter);
                    self.enter_exclusive(index)
                }
                Mode::Shared => self.enter_shared(index),
            };
            self.marked[nth] = clear;
            self.trespassing |= !clear;
        }
        self.page.add(Word::Checked, 1);
    }

    #[inline(always)]
    fn enter_exclusive(&mut self, index: usize) -> bool {
        let line = self.line(index);
        let own = self.worker as u64 + 1;
        if let Err(other) =
            line.0[LineWord::Owner as usize].compare_exchange(0, own, AcqRel, Acquire)
        {
            self.page.overlap_with(other - 1);
            return false;
        }
        if self.witness.readers_at.is_some() {
            self.look_for_readers(index);
        }
        true
    }

    /// Looks for readers once the writer's word is set. A fence orders that
    /// word against the readers' marks, as each reader's fence orders its mark
    /// against the writer's word. Of two that overlap, at least one therefore
    /// sees the other (Dekker).
    #[cold]
    fn look_for_readers(&mut self, index: usize) {
        std::sync::atomic::fence(SeqCst);
        let all = self.witness.workers;
        let looks = all.min(LOOK_AT);
        self.page.add(Word::ReadersAll, all as u64);
        self.page.add(Word::ReadersSeen, looks as u64);
        let mut met = None;
        // Each reader is looked at once at most: 64 that are drawn one by one from 65 are only
        // 41 different ones.
        let first = match all <= LOOK_AT {
            true => 0,
            false => self.rng.below(all as u64) as usize,
        };
        for look in 0..looks {
            let reader = (first + look) % all;
            if self.reader(index, reader).load(Acquire) != 0 {
                met = Some(reader);
            }
        }
        // One acquisition that met other owners, however many they were.
        if let Some(reader) = met {
            self.page.overlap_with(reader as u64);
        }
    }

    fn enter_shared(&self, index: usize) -> bool {
        self.reader(index, self.worker).store(1, Relaxed);
        std::sync::atomic::fence(SeqCst);
        match self.line(index).0[LineWord::Owner as usize].load(Acquire) {
            0 => {}
            other => self.page.overlap_with(other - 1),
        }
        true
    }

    /// Compares the fencing token of an exclusive grant with those before it; called while
    /// we hold.
    #[inline(always)]
    pub(crate) fn look_at_token(&self, key: usize, mode: Mode, token: u64) {
        if mode == Mode::Shared || self.trespassing || self.witness.cover != Cover::Key {
            return;
        }
        let line = self.line(key);
        let before = line.get(LineWord::Token);
        self.page.add(Word::Tokens, 1);
        if token <= before {
            self.page.add(Word::TokensBehind, 1);
        }
        line.set(LineWord::Token, token.max(before));
    }

    /// Takes our mark away, before the release.
    #[inline(always)]
    pub(crate) fn leave(&mut self, key: usize, mode: Mode) {
        for (nth, index) in self.witness.lines(self.worker, key).enumerate() {
            if mode == Mode::Exclusive {
                self.line(index)
                    .set(LineWord::Counter, self.counted[nth] + 1);
                self.page.add(Word::Witnessed, 1);
            }
            if !std::mem::take(&mut self.marked[nth]) {
                continue;
            }
            match mode {
                Mode::Exclusive => {
                    let own = self.worker as u64 + 1;
                    let owner = &self.line(index).0[LineWord::Owner as usize];
                    if let Err(other) = owner.compare_exchange(own, 0, AcqRel, Acquire) {
                        self.page.overlap_with(other.saturating_sub(1));
                    }
                }
                Mode::Shared => {
                    self.reader(index, self.worker)
                        .store(0, std::sync::atomic::Ordering::Release);
                }
            }
        }
    }

    /// The traces of the latest incompatible owner. Our own last release comes before our attempt,
    /// so that it never looks like another's.
    #[inline(always)]
    pub(crate) fn before(&self, key: usize, mode: Mode) -> Before {
        let mut before = Before::default();
        for index in self.witness.lines(self.worker, key) {
            let line = self.line(index);
            let release = line.get(LineWord::LastRelease);
            if release > before.release {
                before = Before {
                    release,
                    cpu: line.get(LineWord::LastCpu) as u32,
                };
            }
            if mode == Mode::Exclusive && self.witness.readers_at.is_some() {
                let release = line.get(LineWord::ReaderRelease);
                if release > before.release {
                    // Which CPU the last of many readers ran on is not kept.
                    before = Before {
                        release,
                        cpu: jostle_sys::clock::UNKNOWN_CPU,
                    };
                }
            }
        }
        before
    }

    /// Publishes the stamp of the release that follows; we still hold.
    #[inline(always)]
    pub(crate) fn releasing(&self, key: usize, mode: Mode, stamp: u64, cpu: u32) {
        if self.trespassing {
            return;
        }
        for index in self.witness.lines(self.worker, key) {
            let line = self.line(index);
            match mode {
                Mode::Exclusive => {
                    line.set(LineWord::LastRelease, stamp);
                    line.set(LineWord::LastCpu, cpu.into());
                }
                Mode::Shared => {
                    line.0[LineWord::ReaderRelease as usize].fetch_max(stamp, Relaxed);
                }
            }
        }
    }

    /// Continues or begins our streak on this lock and returns its length.
    /// `attempt` and `grant` are stamps, zero where this operation has none;
    /// a streak that began before `opens` begins anew. True if another owned the lock before.
    #[inline(always)]
    pub(crate) fn streak(&self, key: usize, attempt: u64, grant: u64, opens: u64) -> bool {
        if self.trespassing || self.witness.cover == Cover::Neighbours {
            return false;
        }
        let line = self.line(*self.witness.lines(self.worker, key).start());
        let own = self.worker as u64 + 1;
        let (length, first) = (line.get(LineWord::Streak), line.get(LineWord::StreakFirst));
        let changed = line.get(LineWord::LastWorker) != own;
        if !changed && first >= opens {
            line.set(LineWord::Streak, length + 1);
            self.page.raise(Word::Streak, length + 1);
        } else {
            if changed && attempt > 0 && first >= opens {
                let waited = waited_through(length, first, line.get(LineWord::StreakLast), attempt);
                self.page.raise(Word::StreakWaited, waited);
            }
            line.set(LineWord::LastWorker, own);
            line.set(LineWord::Streak, 1);
            line.set(LineWord::StreakFirst, grant);
            self.page.raise(Word::Streak, 1);
        }
        line.set(LineWord::StreakLast, grant);
        changed
    }
}

/// How many grants of a streak came after `attempt`, taking them as evenly
/// spread from the first to the last: only the ends are kept.
fn waited_through(length: u64, first: u64, last: u64, attempt: u64) -> u64 {
    match attempt {
        a if a <= first => length,
        a if a >= last => 0,
        a => (u128::from(length - 1) * u128::from(last - a) / u128::from(last - first)) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Shared;

    fn run(range: Range, shared: bool, body: impl FnOnce(&Witness, &Shared)) {
        let shared_memory = Shared::new(3).unwrap();
        let witness = Witness::new(1, 3, range, true, shared).unwrap();
        body(&witness, &shared_memory);
    }

    #[test]
    fn a_fencing_token_that_does_not_grow_is_counted() {
        run(Range::Same, false, |witness, shared| {
            let tokens = [(0, 5), (1, 6), (0, 6), (1, 2), (0, 7)];
            for (worker, token) in tokens {
                let page = shared.page(worker);
                let mut guard = witness.guard(worker, page, 1);
                guard.enter(0, Mode::Exclusive);
                guard.look_at_token(0, Mode::Exclusive, token);
                guard.leave(0, Mode::Exclusive);
                // Readers share one.
                guard.look_at_token(0, Mode::Shared, 1);
            }
            let sum = |word| shared.page(0).get(word) + shared.page(1).get(word);
            assert_eq!((sum(Word::Tokens), sum(Word::TokensBehind)), (5, 2));
        });
    }

    #[test]
    fn a_second_owner_records_the_first_and_leaves_its_mark() {
        run(Range::Same, false, |witness, shared| {
            let (mut first, mut second) = (
                witness.guard(0, shared.page(0), 1),
                witness.guard(1, shared.page(1), 1),
            );
            first.enter(0, Mode::Exclusive);
            second.enter(0, Mode::Exclusive);
            second.leave(0, Mode::Exclusive);
            first.leave(0, Mode::Exclusive);
            assert_eq!(shared.page(1).overlaps_with(), [(0, 1)]);
            assert_eq!(shared.page(0).overlaps_with(), []);
            // Both loaded zero, so that one of the two updates is lost.
            let witnessed = [0, 1].map(|w| shared.page(w).get(Word::Witnessed));
            assert_eq!((witness.counted(), witnessed), (1, [1, 1]));
        });
    }

    #[test]
    fn one_after_the_other_is_no_overlap() {
        run(Range::Same, true, |witness, shared| {
            for (worker, mode) in [
                (0, Mode::Exclusive),
                (1, Mode::Shared),
                (2, Mode::Exclusive),
            ] {
                let mut guard = witness.guard(worker, shared.page(worker), 1);
                guard.enter(0, mode);
                guard.leave(0, mode);
                assert_eq!(shared.page(worker).get(Word::Overlaps), 0);
            }
            assert_eq!(witness.counted(), 2);
        });
    }

    #[test]
    fn readers_share_but_not_with_a_writer() {
        run(Range::Same, true, |witness, shared| {
            let mut guards: Vec<_> = (0..3)
                .map(|w| witness.guard(w, shared.page(w), 1))
                .collect();
            guards[0].enter(0, Mode::Shared);
            guards[1].enter(0, Mode::Shared);
            assert_eq!(shared.page(1).get(Word::Overlaps), 0);
            // One entry that met others, although it sees both readers. Each
            // one counted by itself made 163 of the 128 that `busted:1e-2` had noted.
            guards[2].enter(0, Mode::Exclusive);
            assert_eq!(shared.page(2).get(Word::Overlaps), 1);
            guards[0].leave(0, Mode::Shared);
            guards[0].enter(0, Mode::Shared); // sees the writer
            assert_eq!(shared.page(0).overlaps_with(), [(2, 1)]);
        });
    }

    /// 98 % were printed of 65 workers where 63 % were looked at.
    #[test]
    fn of_many_readers_a_writer_sees_the_share_that_is_stated() {
        const ALL: usize = 65;
        let shared = Shared::new(ALL).unwrap();
        let witness = Witness::new(1, ALL, Range::Same, true, true).unwrap();
        let mut reader = witness.guard(7, shared.page(7), 1);
        reader.enter(0, Mode::Shared);
        let page = shared.page(0);
        let mut writer = witness.guard(0, page, 1);
        for _ in 0..1_000 {
            writer.enter(0, Mode::Exclusive);
            writer.leave(0, Mode::Exclusive);
        }
        let [seen, all, met] = [Word::ReadersSeen, Word::ReadersAll, Word::Overlaps]
            .map(|word| shared.page(0).get(word) as f64);
        assert!(
            (seen / all - met / 1_000.0).abs() < 0.02,
            "{seen} {all} {met}"
        );
    }

    #[test]
    fn neighbours_collide_where_ranges_overlap_and_others_do_not() {
        run(Range::Overlap, false, |witness, shared| {
            let mut guards: Vec<_> = (0..3)
                .map(|w| witness.guard(w, shared.page(w), 1))
                .collect();
            guards[0].enter(0, Mode::Exclusive);
            guards[2].enter(0, Mode::Exclusive);
            assert_eq!(shared.page(2).get(Word::Overlaps), 0);
            guards[1].enter(0, Mode::Exclusive); // touches both
            assert_eq!(shared.page(1).overlaps_with(), [(0, 1), (2, 1)]);
        });
    }

    #[test]
    fn streaks_grow_break_and_begin_anew_with_the_window() {
        run(Range::Same, false, |witness, shared| {
            let (first, second) = (
                witness.guard(0, shared.page(0), 1),
                witness.guard(1, shared.page(1), 1),
            );
            first.streak(0, 5, 10, 15); // before the window
            first.streak(0, 15, 20, 15); // clipped: a new one
            assert!(!first.streak(0, 25, 30, 15));
            first.streak(0, 35, 40, 15);
            assert_eq!(shared.page(0).get(Word::Streak), 3);
            assert!(second.streak(0, 18, 50, 15)); // waited through all three
            assert_eq!(shared.page(1).get(Word::StreakWaited), 3);
            first.streak(0, 45, 60, 15);
            assert_eq!(shared.page(0).get(Word::StreakWaited), 1);
        });
    }

    #[test]
    fn a_streak_is_shared_out_between_its_ends() {
        // length, first, last, attempt -> grants after the attempt
        for (length, first, last, attempt, after) in [
            (1, 10, 10, 5, 1),
            (1, 10, 10, 10, 1),
            (11, 0, 100, 50, 5),
            (11, 0, 100, 100, 0),
            (11, 0, 100, 120, 0),
        ] {
            assert_eq!(waited_through(length, first, last, attempt), after);
        }
    }
}
