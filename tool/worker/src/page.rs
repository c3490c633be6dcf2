//! The layout of the memory that a run's processes share: one control block,
//! and one page for each worker.
//!
//! Everything is 64-bit words that one side writes and the other reads; a
//! relaxed store compiles to a plain one. Workers fold what they measure into
//! their own page as they go, so that the data of a worker that is killed is
//! not lost, and nothing has to be sent at the end. This layout is the working
//! memory, not the file's format.

mod control;
mod last_words;

pub use control::{Shared, phase};

use crate::order::{Merged, SliceData, Total};
use jostle_model::record::{Buckets, Count};
use jostle_stats::histogram;
use jostle_sys::shared::{LINE, Region};
use jostle_targets::Traffic;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Slices of the window.
pub const SLICES: usize = 10;

/// Distinct owners whose overlap with this worker is told apart.
pub(crate) const CULPRITS: usize = 8;

/// Words for the message of a worker that failed.
const MESSAGE_WORDS: usize = 48;

/// The distributions that a worker keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum PageHistogram {
    /// Wait of a granted attempt.
    Acquire,
    /// Time held.
    Hold,
    /// Hand-off between owners on one CPU (or on CPUs unknown).
    HandoffSame,
    /// Hand-off between owners on two CPUs.
    HandoffCross,
    /// The release call.
    Release,
    /// Attempts that ended without a grant.
    Refused,
    /// From when a renewal was due until the server had confirmed it.
    Renewal,
}

/// Waits of writers, where readers and writers take the lock (`--shared`): such runs renew
/// nothing within the window. `Acquire` has those of readers then.
pub const WRITERS: PageHistogram = PageHistogram::Renewal;

impl PageHistogram {
    /// All, in the order of the page.
    pub const ALL: [PageHistogram; 7] = [
        PageHistogram::Acquire,
        PageHistogram::Hold,
        PageHistogram::HandoffSame,
        PageHistogram::HandoffCross,
        PageHistogram::Release,
        PageHistogram::Refused,
        PageHistogram::Renewal,
    ];

    /// As results name it.
    pub const fn name(self) -> &'static str {
        match self {
            PageHistogram::Acquire => "acquire_ns",
            PageHistogram::Hold => "hold_ns",
            PageHistogram::HandoffSame => "handoff_same_cpu_ns",
            PageHistogram::HandoffCross => "handoff_cross_cpu_ns",
            PageHistogram::Release => "release_ns",
            PageHistogram::Refused => "refused_ns",
            PageHistogram::Renewal => "renewal_late_ns",
        }
    }
}

/// The words of a worker's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Word {
    /// A [`Stage`].
    Stage,
    /// Process and thread, for signals and /proc.
    Pid,
    /// See `Pid`.
    Tid,
    /// Stamp at the common start.
    Arrived,
    /// Stamp of the attempt in progress; zero: none; one: it has no stamp.
    PendingSince,
    /// Stamp of the worker's release before an attempt that has no stamp.
    PendingAfter,
    /// Stamp of the attempt that had no grant when the window closed; one: it has none.
    CensoredAt,
    /// One while its latest attempt is a writer's among readers.
    Writes,
    /// Attempts of a writer among readers that ended without a grant, and their time.
    WritesFailed,
    /// See `WritesFailed`.
    WritesFailedNs,
    /// One while asleep between two operations.
    Idling,
    /// Grants since the start.
    Total,
    /// Grants within the window.
    Operations,
    /// Total when the window opened (`--measure counts`).
    Base,
    /// Updates of the counters that owners increment.
    Witnessed,
    /// Acquisitions that the witness looked at.
    Checked,
    /// Acquisitions that found another inside.
    Overlaps,
    /// Grants within the window that were stamped.
    Stamped,
    /// Stamped grants that were contended.
    Contended,
    /// Time within the window from their attempts to the releases that made way for them.
    BlockedNs,
    /// Grants within the window to another worker than the one before.
    OwnerChanges,
    /// Attempts that their timeout ended.
    Timeouts,
    /// Tries that were refused.
    Refusals,
    /// Grants stamped before the previous release, beyond the clock's error.
    BeforeRelease,
    /// Longest wait of a grant within the window.
    LongestWait,
    /// Longest streak.
    Streak,
    /// Longest part of a streak during which this worker waited.
    StreakWaited,
    /// Readers that a writer could have looked at, and those it did.
    ReadersSeen,
    /// See `ReadersSeen`.
    ReadersAll,
    /// Stamp of its latest grant; zero: it has none.
    GrantedAt,
    /// Stamp of the failure that ended it.
    FailedAt,
    /// Time from its latest grant to a release that failed; zero: no release did, or the grant
    /// has no stamp.
    HeldFor,
    /// One if that release found the lock lost.
    FoundLost,
    /// Errno of the call that failed.
    Errno,
    /// Bytes of the failure's own name, which stands before the message; zero: it has none.
    NameBytes,
    /// Bytes of the message.
    MessageBytes,
    /// Stamp at which all locks were held (`hold`).
    HeldAt,
    /// Stamp of the worker's own end, where it has one.
    Finished,
    /// Its CPU time from the start to that end.
    Cpu,
    /// Its time on the run queue meanwhile.
    Runqueue,
    /// Times it was put on a CPU meanwhile.
    Switches,
    /// CPU time used before the start, user.
    StartUser,
    /// CPU time used before the start, system.
    StartSystem,
    /// Time within the window in which a request of its was in flight.
    InFlight,
    /// Time within the window in which the generator stood still, and stamp of the latest
    /// look that found it running. A thread of the generator writes both, to the page of
    /// the generator's first worker.
    Still,
    /// See `Still`.
    Attended,
    /// Time within the window that was spun at the ends of sleeping holds.
    Spun,
    /// Time together of the sleeping idles that ended within the window.
    Idled,
    /// How many they were.
    Idles,
    /// Fencing tokens that were compared with those before them.
    Tokens,
    /// Those that were not greater.
    TokensBehind,
    /// Times that it asked its server, over its whole life.
    RoundTrips,
    /// Bytes that it and its server have sent each other meanwhile.
    Carried,
    /// How often its session went on at another server.
    Failovers,
    /// The lease of its locks, where there is one to be renewed.
    Lease,
    /// Between two renewals of it.
    RenewedEvery,
    /// One where a renewal keeps all its locks.
    OneSession,
    /// Renewals that the server has confirmed.
    Renewals,
    /// Those of them that it confirmed when the lease was over by our clock.
    RenewedLate,
    /// Locks whose lease ended while they were to be held.
    Lapsed,
    /// Time for which it kept its locks, and its CPU time, its time on the run queue, and
    /// the times it was put on a CPU meanwhile.
    KeptFor,
    /// See `KeptFor`.
    KeptCpu,
    /// See `KeptFor`.
    KeptRunqueue,
    /// See `KeptFor`.
    KeptSwitches,
    /// How many there are.
    End,
}

/// Where a worker is in its life. A page begins with zero: forked, not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum Stage {
    /// Waits for the common start.
    Ready = 1,
    /// At work.
    Working = 2,
    /// Done, in good order.
    Done = 3,
    /// Gave up; its message says why.
    Failed = 4,
}

/// Words of each figure: sum, least, greatest, octaves in use.
const FIGURE_WORDS: usize = 4;
const FIGURES_AT: usize = Word::End as usize;
/// Words of each count: what it was at the worker's arrival, and one more than what has come
/// to it since; zero while that is not known.
const COUNT_WORDS: usize = 2;
const COUNTS_AT: usize = FIGURES_AT + FIGURE_WORDS * PageHistogram::ALL.len();
const SLICES_AT: usize = COUNTS_AT + COUNT_WORDS * Count::ALL.len();
/// Words of each slice: operations, stamped ones, their waits, releases, their times.
const SLICE_ROWS: usize = 5;
const CULPRITS_AT: usize = SLICES_AT + SLICE_ROWS * SLICES;
const MESSAGE_AT: usize = CULPRITS_AT + 2 * CULPRITS;
const WORDS: usize = MESSAGE_AT + MESSAGE_WORDS;
const HEAD_BYTES: usize = (WORDS * 8).next_multiple_of(LINE);
const HISTOGRAM_BYTES: usize = histogram::LEN * 4;
/// One histogram octave.
pub(crate) const OCTAVE: usize = 128;

/// Memory that workers make beforehand, all together, at most; beyond, pages are
/// made on first touch.
pub(crate) const POPULATE_AT_MOST: usize = 32 << 20;

/// Bytes of one worker's page.
pub const PAGE_BYTES: usize = HEAD_BYTES + HISTOGRAM_BYTES * PageHistogram::ALL.len();

/// One worker's page.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    words: &'a [AtomicU64; WORDS],
    counts: [&'a [AtomicU32; histogram::LEN]; PageHistogram::ALL.len()],
}

/// The distribution of these figures over these pages.
pub fn merged<'a>(pages: impl IntoIterator<Item = Page<'a>>, figures: &[PageHistogram]) -> Merged {
    let mut all = Gathered::default();
    for page in pages {
        for figure in figures {
            let at = FIGURES_AT + *figure as usize * FIGURE_WORDS;
            let head = &page.words[at..at + FIGURE_WORDS];
            all.add(head, page.counts[*figure as usize]);
        }
    }
    all.merged()
}

/// A distribution that is gathered from the memory of several workers. The table is one and
/// no tree, since this is done while workers work, too.
pub(crate) struct Gathered {
    counts: Vec<u64>,
    all: Merged,
}

impl Default for Gathered {
    fn default() -> Gathered {
        Gathered {
            counts: vec![0; histogram::LEN],
            all: Merged {
                min: u64::MAX,
                ..Merged::default()
            },
        }
    }
}

impl Gathered {
    /// Adds the values of a worker: sum, least, greatest and octaves in use, and how many
    /// are in each bucket. What no worker touched is not read, since reading a hole would
    /// make a page of it.
    pub(crate) fn add(&mut self, head: &[AtomicU64], counts: &[AtomicU32]) {
        let [sum, min, max, used] = std::array::from_fn(|n| head[n].load(Relaxed));
        if used == 0 {
            return;
        }
        for octave in (0..u64::BITS as usize).filter(|octave| used >> octave & 1 == 1) {
            let buckets = octave * OCTAVE..(octave + 1) * OCTAVE;
            let sums = self.counts[buckets.clone()].iter_mut();
            for (sum, count) in sums.zip(&counts[buckets]) {
                *sum += u64::from(count.load(Relaxed));
            }
        }
        let all = &mut self.all;
        (all.sum, all.min, all.max) = (all.sum + sum, all.min.min(min), all.max.max(max));
    }

    /// Those of all workers.
    pub(crate) fn merged(self) -> Merged {
        let used = self.counts.into_iter().enumerate().filter(|(_, n)| *n > 0);
        let buckets: Vec<_> = used.map(|(at, n)| (histogram::floor(at), n)).collect();
        match buckets.is_empty() {
            true => Merged::default(),
            false => Merged {
                buckets: Buckets(buckets),
                ..self.all
            },
        }
    }
}

impl<'a> Page<'a> {
    fn new(region: &'a Region, at: usize) -> Page<'a> {
        let words = region.words64(at, WORDS);
        let counts = std::array::from_fn(|figure| {
            let from = at + HEAD_BYTES + figure * HISTOGRAM_BYTES;
            let counts = region.words32(from, histogram::LEN);
            <&[AtomicU32; histogram::LEN]>::try_from(counts).expect("asked for as many")
        });
        Page {
            words: words.try_into().expect("asked for as many"),
            counts,
        }
    }

    /// A word's value.
    #[inline(always)]
    pub fn get(&self, word: Word) -> u64 {
        self.words[word as usize].load(Relaxed)
    }

    /// Writes a word. Only the page's own worker does.
    #[inline(always)]
    pub fn set(&self, word: Word, value: u64) {
        self.words[word as usize].store(value, Relaxed);
    }

    /// A count as it is when the worker arrives.
    pub(crate) fn begin_count(&self, count: Count, so_far: u64) {
        self.own(COUNTS_AT + count as usize * COUNT_WORDS)
            .store(so_far, Relaxed);
    }

    /// That count when the worker has done its work.
    pub(crate) fn end_count(&self, count: Count, so_far: u64) {
        let at = COUNTS_AT + count as usize * COUNT_WORDS;
        let since = so_far.saturating_sub(self.own(at).load(Relaxed));
        self.own(at + 1).store(since + 1, Relaxed);
    }

    /// The growth of the count in between; None of a worker that did not come to its end.
    pub fn counted(&self, count: Count) -> Option<u64> {
        let at = COUNTS_AT + count as usize * COUNT_WORDS;
        self.own(at + 1).load(Relaxed).checked_sub(1)
    }

    /// Adds to a word of our own: a load and a store, not a locked addition.
    #[inline(always)]
    pub fn add(&self, word: Word, value: u64) {
        self.set(word, self.get(word) + value);
    }

    /// Raises a word of our own to at least `value`.
    #[inline(always)]
    pub(crate) fn raise(&self, word: Word, value: u64) {
        if value > self.get(word) {
            self.set(word, value);
        }
    }

    /// Writes what the worker and its server have said to each other.
    pub(crate) fn note_traffic(&self, traffic: Traffic) {
        self.set(Word::RoundTrips, traffic.round_trips);
        self.set(Word::Carried, traffic.bytes);
        self.set(Word::Failovers, traffic.failovers);
    }

    fn own(&self, index: usize) -> &AtomicU64 {
        &self.words[index]
    }

    /// Folds one value into a figure.
    #[inline(always)]
    pub fn fold(&self, figure: PageHistogram, value: u64) {
        let bucket = histogram::index(value);
        let count = &self.counts[figure as usize][bucket];
        count.store(count.load(Relaxed).saturating_add(1), Relaxed);
        let at = FIGURES_AT + figure as usize * FIGURE_WORDS;
        let (sum, min, max, used) = (
            self.own(at),
            self.own(at + 1),
            self.own(at + 2),
            self.own(at + 3),
        );
        sum.store(sum.load(Relaxed) + value, Relaxed);
        let octaves = used.load(Relaxed);
        // No octave in use means no value yet, so that `min` is still zero.
        if octaves == 0 || value < min.load(Relaxed) {
            min.store(value, Relaxed);
        }
        if value > max.load(Relaxed) {
            max.store(value, Relaxed);
        }
        let octave = 1 << (bucket / OCTAVE);
        if octaves & octave == 0 {
            used.store(octaves | octave, Relaxed);
        }
    }

    /// Writes to the word that would count this value, without changing it: the memory is
    /// made before values count.
    #[cold]
    pub(crate) fn touch(&self, figure: PageHistogram, value: u64) {
        let count = &self.counts[figure as usize][histogram::index(value)];
        count.store(count.load(Relaxed), Relaxed);
    }

    /// Counts an operation, and its wait where stamped, in its slice.
    #[inline(always)]
    pub(crate) fn slice(&self, slice: usize, wait: Option<u64>) {
        self.bump(0, slice, 1);
        if let Some(wait) = wait {
            self.bump(1, slice, 1);
            self.bump(2, slice, wait);
        }
    }

    /// Counts so many operations that took so long together.
    pub(crate) fn slice_batch(&self, slice: usize, operations: u64, took: u64) {
        self.bump(0, slice, operations);
        self.bump(1, slice, operations);
        self.bump(2, slice, took);
    }

    /// Counts so many releases that took so long together.
    #[inline(always)]
    pub(crate) fn slice_releases(&self, slice: usize, releases: u64, took: u64) {
        self.bump(3, slice, releases);
        self.bump(4, slice, took);
    }

    #[inline(always)]
    fn bump(&self, row: usize, slice: usize, by: u64) {
        let word = self.own(SLICES_AT + row * SLICES + slice.min(SLICES - 1));
        word.store(word.load(Relaxed) + by, Relaxed);
    }

    /// The notes of a slice.
    pub fn sliced(&self, slice: usize) -> SliceData {
        let read = |row: usize| self.own(SLICES_AT + row * SLICES + slice).load(Relaxed);
        let total = |row: usize| Total {
            count: read(row),
            ns: read(row + 1),
        };
        SliceData {
            operations: read(0),
            waits: total(1),
            releases: total(3),
        }
    }

    /// Notes that `owner` was inside when we entered. The last place also counts the owners
    /// for which there is no place left.
    pub(crate) fn overlap_with(&self, owner: u64) {
        self.add(Word::Overlaps, 1);
        for culprit in 0..CULPRITS {
            let at = CULPRITS_AT + 2 * culprit;
            let known = self.own(at).load(Relaxed);
            if known == 0 || known == owner + 1 || culprit == CULPRITS - 1 {
                self.own(at).store(owner + 1, Relaxed);
                let count = self.own(at + 1);
                count.store(count.load(Relaxed) + 1, Relaxed);
                return;
            }
        }
    }

    /// The owners that this worker found inside, and how often.
    pub fn overlaps_with(&self) -> Vec<(u64, u64)> {
        (0..CULPRITS)
            .map(|culprit| CULPRITS_AT + 2 * culprit)
            .map(|at| (self.own(at).load(Relaxed), self.own(at + 1).load(Relaxed)))
            .filter(|(owner, _)| *owner > 0)
            .map(|(owner, count)| (owner - 1, count))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_do_not_touch_each_other() {
        let shared = Shared::new(3).unwrap();
        shared.page(1).set(Word::Total, 7);
        shared.page(1).fold(PageHistogram::Refused, u64::MAX);
        for other in [0, 2] {
            assert_eq!(shared.page(other).get(Word::Total), 0);
            let counted = merged([shared.page(other)], &[PageHistogram::Refused]);
            assert_eq!(counted, Merged::default());
        }
        assert_eq!(shared.opens().load(Relaxed), u64::MAX);
    }

    #[test]
    fn a_figure_keeps_its_exact_sum_and_ends() {
        let shared = Shared::new(1).unwrap();
        let page = shared.page(0);
        for value in [500, 3, 70_000] {
            page.fold(PageHistogram::Hold, value);
        }
        let expected = [3, 500, 70_000].map(|v| (histogram::floor(histogram::index(v)), 1));
        assert_eq!(
            merged([page], &[PageHistogram::Hold]),
            Merged {
                buckets: Buckets(expected.into()),
                sum: 70_503,
                min: 3,
                max: 70_000
            }
        );
    }

    #[test]
    fn what_is_only_touched_is_not_counted() {
        let shared = Shared::new(1).unwrap();
        shared.populate(0);
        let page = shared.page(0);
        page.fold(PageHistogram::Hold, 500);
        page.touch(PageHistogram::Hold, 500);
        page.touch(PageHistogram::Hold, 70_000);
        let found = merged([page], &[PageHistogram::Hold]);
        assert_eq!((found.buckets.0.len(), found.sum), (1, 500));
    }

    #[test]
    fn many_culprits_are_still_counted() {
        let shared = Shared::new(1).unwrap();
        let page = shared.page(0);
        (0..20).for_each(|owner| page.overlap_with(owner));
        assert_eq!(page.get(Word::Overlaps), 20);
        assert_eq!(
            page.overlaps_with()
                .iter()
                .map(|(_, count)| count)
                .sum::<u64>(),
            20
        );
    }
}
