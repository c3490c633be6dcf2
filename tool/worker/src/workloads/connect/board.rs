//! The memory that keeper, clients and servers of one sweep share: who is to do
//! what, how far they are, and the histograms.
//!
//! Each histogram has one writer at a time: clients take turns, and each lane of
//! acceptors has histograms of its own.

use jostle_stats::histogram;
use jostle_sys::futex;
use jostle_sys::shared::{LINE, Region};
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A process's orders: a word.
pub mod order {
    /// Wait.
    pub const WAIT: u32 = 0;
    /// Open connections, or accept them.
    pub const WORK: u32 = 1;
    /// Close them and end. Above every other order: a process sleeps until its
    /// orders are above the last one that it has carried out.
    pub const CLOSE: u32 = u32::MAX;

    /// The `nth` time, from 1: count the connections that the peer has closed.
    pub const fn look(nth: u32) -> u32 {
        2 * nth
    }

    /// After look number `nth`: open connections up to the next listed number.
    pub const fn go_on(nth: u32) -> u32 {
        2 * nth + 1
    }

    /// Whether this order is one to look.
    pub(crate) const fn is_look(order: u32) -> bool {
        order > WORK && order < CLOSE && order.is_multiple_of(2)
    }
}

/// One line of words for each of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Processes that are ready.
    Ready,
    /// Rung when something has happened that the keeper wants to know.
    Bell,
    /// Listed numbers that have been reached.
    Reached,
    /// The client opens no further.
    Stop,
    /// The next server that takes over from a full one.
    Standby,
    /// Servers write their usage whenever this changes.
    Report,
    /// Connections open.
    Opened,
    /// Connections accepted.
    Accepted,
    /// Connections closed by the side that closes first.
    Closed,
    /// Connections closed by the other side.
    ServerClosed,
    /// From the start of the stretch between two listed numbers to its end, in
    /// nanoseconds of the clock.
    Began,
    /// See `Began`.
    Ended,
    /// Lateness of the intended starts, greatest so far.
    Lag,
}

const COUNTS: usize = 13;

/// The words that each process writes about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// Its orders.
    Order,
    /// Its number for the system.
    Pid,
    /// The lane of acceptors that it is in.
    Lane,
    /// Connections that it carries.
    Carries,
    /// CPU time as sampled, user.
    User,
    /// CPU time as sampled, system.
    System,
    /// The last change of `Report` that its usage belongs to.
    Reported,
    /// One more than the number of the call that failed.
    Call,
    /// Its errno.
    Errno,
    /// The connection that it was for.
    For,
    /// Not zero while it connects or accepts.
    Working,
    /// The last order to look at its connections that it has carried out.
    Looked,
    /// How many of them the peer had closed or reset; [`UNKNOWN`] where that
    /// could not be told.
    Lost,
    /// The number, in the order of opening, of the first one of these; zero: none.
    FirstLost,
}

/// A count that could not be taken.
pub const UNKNOWN: u64 = u64::MAX;

const OWN: usize = 16;

/// Histograms of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoardHistogram {
    /// connect() that found an even port, or a family without ports.
    Even,
    /// connect() that found an odd port.
    Odd,
    /// bind().
    Bind,
    /// From the intended start to the end of connect().
    Response,
    /// The first close().
    Close,
    /// accept4(), by lane.
    Accept(usize),
    /// The server's close(), by lane.
    ServerClose(usize),
}

const CLIENT_FIGURES: usize = 5;
/// Sum, least, greatest, count; then the buckets.
const HEAD: usize = 4 * 8;
const HISTOGRAM: usize = (HEAD + histogram::LEN * 4).next_multiple_of(LINE);

/// The board.
#[derive(Debug)]
pub struct Board {
    region: Region,
    processes: usize,
    lanes: usize,
    /// Where stretches end.
    ends: Vec<u64>,
}

/// A finished histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Count by bucket.
    pub buckets: std::collections::BTreeMap<usize, u64>,
    /// Exact sum.
    pub sum: u64,
    /// Exact least.
    pub min: u64,
    /// Exact greatest.
    pub max: u64,
    /// Values.
    pub count: u64,
}

impl Tally {
    /// Adds another.
    pub fn add(&mut self, other: &Tally) {
        if other.count == 0 {
            return;
        }
        self.min = match self.count {
            0 => other.min,
            _ => self.min.min(other.min),
        };
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.count += other.count;
        for (bucket, count) in &other.buckets {
            *self.buckets.entry(*bucket).or_default() += count;
        }
    }
}

impl Board {
    /// For so many processes and lanes of acceptors; stretches end at `ends`.
    ///
    /// # Errors
    /// The system's: no memory.
    pub fn new(processes: usize, lanes: usize, ends: Vec<u64>) -> io::Result<Board> {
        let figures = CLIENT_FIGURES + 2 * lanes;
        let bytes = (COUNTS + processes) * LINE + ends.len() * figures * HISTOGRAM;
        Ok(Board {
            region: Region::new(bytes)?,
            processes,
            lanes,
            ends,
        })
    }

    /// Where stretches end.
    pub fn ends(&self) -> &[u64] {
        &self.ends
    }

    /// The stretch of connection number `nth`, from 1.
    pub(crate) fn stretch(&self, nth: u64) -> usize {
        self.ends
            .partition_point(|end| *end < nth)
            .min(self.ends.len() - 1)
    }

    fn word(&self, line: usize) -> &AtomicU64 {
        &self.region.words64(line * LINE, 1)[0]
    }

    /// A count.
    #[inline]
    pub fn count(&self, count: Count) -> &AtomicU64 {
        self.word(count as usize)
    }

    /// The low half of a count, to sleep on.
    fn sleeper(&self, count: Count) -> &AtomicU32 {
        &self.region.words32(count as usize * LINE, 1)[0]
    }

    /// Its present value.
    #[inline]
    pub fn get(&self, count: Count) -> u64 {
        self.count(count).load(Acquire)
    }

    /// Sets it and wakes who sleeps on it.
    pub fn set(&self, count: Count, value: u64) {
        self.count(count).store(value, Release);
        futex::wake(self.sleeper(count), futex::ALL);
    }

    /// Sleeps until the count is not `seen` any more, or until a time of
    /// `CLOCK_MONOTONIC`, or a signal.
    pub fn await_change(&self, count: Count, seen: u64, until: Option<u64>) {
        let _ = futex::wait(self.sleeper(count), seen as u32, until);
    }

    /// Tells the keeper that there is something to see.
    pub fn ring(&self) {
        self.count(Count::Bell).fetch_add(1, AcqRel);
        futex::wake(self.sleeper(Count::Bell), 1);
    }

    fn own_line(&self, process: usize) -> &[AtomicU64] {
        assert!(process < self.processes, "no such process");
        self.region.words64((COUNTS + process) * LINE, OWN)
    }

    /// A process's own word.
    pub fn own(&self, process: usize, own: Own) -> u64 {
        self.own_line(process)[own as usize].load(Acquire)
    }

    /// Writes it.
    pub fn set_own(&self, process: usize, own: Own, value: u64) {
        self.own_line(process)[own as usize].store(value, Release);
    }

    /// Orders a process to do something.
    pub fn order(&self, process: usize, order: u32) {
        self.set_own(process, Own::Order, u64::from(order));
        let at = (COUNTS + process) * LINE + Own::Order as usize * 8;
        futex::wake(&self.region.words32(at, 1)[0], futex::ALL);
    }

    /// Sleeps until a process's orders are above `order`, and gives them.
    pub(crate) fn await_order(&self, process: usize, order: u32) -> u32 {
        let at = (COUNTS + process) * LINE + Own::Order as usize * 8;
        let word = &self.region.words32(at, 1)[0];
        loop {
            let now = word.load(Acquire);
            if now > order {
                return now;
            }
            let _ = futex::wait(word, now, None);
        }
    }

    fn histogram(&self, stretch: usize, figure: BoardHistogram) -> (&[AtomicU64], &[AtomicU32]) {
        let figures = CLIENT_FIGURES + 2 * self.lanes;
        let nth = match figure {
            BoardHistogram::Even => 0,
            BoardHistogram::Odd => 1,
            BoardHistogram::Bind => 2,
            BoardHistogram::Response => 3,
            BoardHistogram::Close => 4,
            BoardHistogram::Accept(lane) => CLIENT_FIGURES + 2 * lane,
            BoardHistogram::ServerClose(lane) => CLIENT_FIGURES + 2 * lane + 1,
        };
        let at = (COUNTS + self.processes) * LINE + (stretch * figures + nth) * HISTOGRAM;
        (
            self.region.words64(at, 4),
            self.region.words32(at + HEAD, histogram::LEN),
        )
    }

    /// Notes one value. Its only writer calls this.
    #[inline]
    pub(crate) fn note(&self, stretch: usize, figure: BoardHistogram, ns: u64) {
        let (head, buckets) = self.histogram(stretch, figure);
        let bump = |word: &AtomicU64, by: u64| word.store(word.load(Relaxed) + by, Relaxed);
        bump(&head[0], ns);
        let count = head[3].load(Relaxed);
        if count == 0 || ns < head[1].load(Relaxed) {
            head[1].store(ns, Relaxed);
        }
        if ns > head[2].load(Relaxed) {
            head[2].store(ns, Relaxed);
        }
        head[3].store(count + 1, Relaxed);
        let bucket = &buckets[histogram::index(ns)];
        bucket.store(bucket.load(Relaxed).saturating_add(1), Relaxed);
    }

    /// The notes of one stretch.
    pub fn tally(&self, stretch: usize, figure: BoardHistogram) -> Tally {
        let (head, buckets) = self.histogram(stretch, figure);
        let of = |at: usize| head[at].load(Acquire);
        let mut tally = Tally {
            sum: of(0),
            min: of(1),
            max: of(2),
            count: of(3),
            ..Tally::default()
        };
        if tally.count > 0 {
            for (at, bucket) in buckets.iter().enumerate() {
                let count = u64::from(bucket.load(Relaxed));
                if count > 0 {
                    tally.buckets.insert(at, count);
                }
            }
        }
        tally
    }

    /// The notes of several stretches together.
    pub fn tallies(&self, stretches: impl Iterator<Item = usize>, figure: BoardHistogram) -> Tally {
        let mut sum = Tally::default();
        stretches.for_each(|stretch| sum.add(&self.tally(stretch, figure)));
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_found_in_its_stretch_and_nowhere_else() {
        let board = Board::new(3, 2, vec![10, 100, 140]).unwrap();
        for (nth, stretch) in [(1, 0), (10, 0), (11, 1), (100, 1), (101, 2), (999, 2)] {
            assert_eq!(board.stretch(nth), stretch, "{nth}");
        }
        board.note(1, BoardHistogram::Odd, 500);
        board.note(1, BoardHistogram::Odd, 300);
        board.note(2, BoardHistogram::ServerClose(1), 7);
        let tally = board.tally(1, BoardHistogram::Odd);
        assert_eq!(
            (tally.sum, tally.min, tally.max, tally.count),
            (800, 300, 500, 2)
        );
        assert_eq!(tally.buckets.len(), 2);
        for other in [
            BoardHistogram::Even,
            BoardHistogram::Bind,
            BoardHistogram::Response,
            BoardHistogram::Close,
        ] {
            assert_eq!(board.tally(1, other).count, 0);
        }
        assert_eq!(board.tally(2, BoardHistogram::ServerClose(1)).count, 1);
        assert_eq!(board.tallies(0..3, BoardHistogram::ServerClose(1)).count, 1);
    }

    #[test]
    fn orders_reach_one_process() {
        let board = Board::new(2, 1, vec![1]).unwrap();
        board.order(1, order::WORK);
        assert_eq!(board.await_order(1, order::WAIT), order::WORK);
        assert_eq!(board.own(0, Own::Order), 0);
    }
}
