//! The common part of the specimens: random numbers from the seed, and counters of what each worker
//! really got, in memory that outlives the workers.

use jostle_sys::shared::{LINE, Region};
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// SplitMix64 (Steele, Lea, Flood 2014): one addition and a mix for each draw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(pub u64);

impl Random {
    /// A stream of its own for each `number`.
    pub(crate) fn new(seed: u64, number: usize) -> Random {
        let mut root = Random(seed ^ (number as u64).wrapping_mul(0xd6e8_feb8_6659_fd93));
        Random(root.draw())
    }

    /// 64 random bits.
    #[inline]
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..end`, but for a bias below `end` in 2^64.
    #[inline]
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(end)) >> 64) as u64
    }
}

/// A few counters for each worker, written by that worker alone.
#[derive(Debug)]
pub(crate) struct Tallies {
    region: Region,
    workers: usize,
}

/// Counters that one worker may have.
pub(crate) const COUNTERS: usize = 5;

impl Tallies {
    /// All zero.
    pub(crate) fn new(workers: usize) -> io::Result<Tallies> {
        Ok(Tallies {
            region: Region::new(workers * LINE)?,
            workers,
        })
    }

    /// The counters of one worker.
    #[inline]
    pub(crate) fn of_worker(&self, worker: usize) -> &[AtomicU64] {
        self.region.words64(worker * LINE, COUNTERS)
    }

    /// The number on this host of a worker whose number counts the workers of all hosts.
    /// Those of one host are consecutive, so that no two share a place.
    pub(crate) fn place(&self, worker: usize) -> usize {
        worker % self.workers.max(1)
    }

    /// Maps one worker's counters into the calling process. Otherwise the first count would
    /// cause a page fault within the measured loop.
    pub(crate) fn touch(&self, worker: usize) {
        add(&self.of_worker(worker)[0], 0);
    }

    /// Counter number `index` of each worker, in order.
    pub(crate) fn column(&self, index: usize) -> impl Iterator<Item = u64> {
        (0..self.workers).map(move |worker| self.of_worker(worker)[index].load(Relaxed))
    }
}

/// Adds to a counter that nobody else writes.
#[inline]
pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Relaxed) + amount, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_published_stream() {
        // The first values of SplitMix64 for seed 0, as Vigna's splitmix64.c
        // prints them.
        let mut random = Random(0);
        assert_eq!(random.draw(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.draw(), 0x6e78_9e6a_a1b9_65f4);
        let mut counts = [0u32; 5];
        (0..50_000).for_each(|_| counts[random.below(5) as usize] += 1);
        assert!(
            counts.iter().all(|n| n.abs_diff(10_000) < 400),
            "{counts:?}"
        );
    }

    #[test]
    fn workers_count_apart() {
        let tallies = Tallies::new(3).unwrap();
        add(&tallies.of_worker(2)[1], 5);
        add(&tallies.of_worker(2)[1], 1);
        add(&tallies.of_worker(0)[1], 7);
        assert_eq!(tallies.column(1).collect::<Vec<_>>(), [7, 0, 6]);
        assert_eq!(tallies.column(0).sum::<u64>(), 0);
    }

    #[test]
    fn workers_of_a_later_host_have_places_of_their_own() {
        let tallies = Tallies::new(3).unwrap();
        for worker in 7..10 {
            let place = tallies.place(worker);
            add(&tallies.of_worker(place)[1], worker as u64);
        }
        assert_eq!(tallies.column(1).collect::<Vec<_>>(), [9, 7, 8]);
        assert_eq!(tallies.place(2), 2);
    }
}
