//! How long the threads of workers were runnable and not running, through descriptors
//! that are opened before the window.

use jostle_sys::stat::{Scheduled, SchedulerClock};

/// The most that reading one clock takes, so that a window of many workers is not spent on reading:
/// 1.1 to 1.5 us were measured.
const READING_NS: u64 = 3_000;

/// Reading may take one part in so many of the window.
const OF_WINDOW: u64 = 100;

/// Descriptors that are kept, at most and at least.
const MOST: u64 = 4_096;
const LEAST: u64 = 64;

/// The clocks of the workers' threads, or of an even sample of them.
#[derive(Default)]
pub struct Queues {
    clocks: Vec<SchedulerClock>,
    threads: usize,
}

impl Queues {
    /// Opens those of these threads (process, thread) for such a window. Empty where
    /// the kernel does not count.
    pub fn open(threads: &[(u32, u32)], window_ns: u64) -> Queues {
        let most = (window_ns / OF_WINDOW / READING_NS).clamp(LEAST, MOST) as usize;
        let sample = every(threads.len(), most).map(|nth| threads[nth]);
        let clocks = sample.map(|(pid, tid)| SchedulerClock::of(pid, tid));
        let clocks: Option<Vec<_>> = clocks.collect();
        Queues {
            clocks: clocks.unwrap_or_default(),
            threads: threads.len(),
        }
    }

    /// One value a thread that is looked at; None where a thread is gone, or where the
    /// kernel counts nothing.
    pub fn read(&self) -> Option<Vec<Scheduled>> {
        if self.clocks.is_empty() {
            return None;
        }
        self.clocks.iter().map(SchedulerClock::read).collect()
    }

    /// Share of the threads that is looked at.
    pub fn coverage(&self) -> f64 {
        self.clocks.len() as f64 / self.threads.max(1) as f64
    }
}

/// Numbers under `all`, at most `most` of them, evenly spread.
fn every(all: usize, most: usize) -> impl Iterator<Item = usize> {
    let taken = all.min(most);
    (0..taken).map(move |nth| nth * all / taken.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_threads_an_even_sample_is_looked_at() {
        assert_eq!(every(3, 10).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(every(10, 4).collect::<Vec<_>>(), [0, 2, 5, 7]);
        assert_eq!(every(0, 4).count(), 0);
    }

    #[test]
    fn our_own_thread_is_counted_and_one_that_is_gone_is_not() {
        let own = std::process::id();
        let queues = Queues::open(&[(own, own)], 1_000_000_000);
        assert_eq!(queues.read().map(|each| each.len()), Some(1));
        assert_eq!(queues.coverage(), 1.0);
        // One above the largest number that Linux ever gives a process.
        let gone = Queues::open(&[(own, own), (4 << 20 | 1, 4 << 20 | 1)], 1);
        assert_eq!(gone.read(), None);
    }
}
