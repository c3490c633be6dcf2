//! The log of grants: when each worker was an owner, so that exclusion can be
//! judged between hosts, who share no memory.
//!
//! A worker writes into shared memory that was made beforehand, so that nothing is
//! lost with it. The log begins with the window and ends when it is full: an overlap
//! has two sides, and two samples of grants would hardly ever hold both. It travels
//! as differences of a few bytes each.
//!
//! The logs of several hosts are compared by `jostle_stats::across`.

use crate::order::{GrantLog, RunOrder};
use crate::page::Shared;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use jostle_stats::across::Grant;
use jostle_sys::shared::{LINE, Region};
use jostle_targets::Mode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Grants that all hosts together log: some megabytes to gather, and to compare in a
/// fraction of a second.
const IN_ALL: usize = 1 << 18;

/// Grants that one host logs.
const OF_A_HOST: usize = 1 << 16;

/// Words of a grant in shared memory: grant, release, lock and bits, token.
const WORDS: usize = 4;

/// Words before a worker's grants: how many there are, how many more there would
/// have been, and when the first of these was.
const HEAD: usize = LINE / 8;

/// Beside the number of the lock.
const SHARED: u64 = 1 << 32;
const HAS_TOKEN: u64 = 1 << 33;

/// The order with which `hosts` hosts log as much as they should, where workers of
/// several want the same locks.
pub fn asked(order: &RunOrder, hosts: usize) -> RunOrder {
    let mut order = order.clone();
    if hosts > 1 {
        let on_one = order.workers.div_ceil(hosts);
        order.log_grants = most_per_worker(order.workers, on_one);
    }
    order
}

/// Grants that each worker logs at most, of so many on all hosts and so many on the
/// one that has most.
fn most_per_worker(in_all: usize, on_one: usize) -> u32 {
    let share = (IN_ALL / in_all.max(1)).min(OF_A_HOST / on_one.max(1));
    u32::try_from(share.max(1)).unwrap_or(u32::MAX)
}

/// The memory of a run's logs.
#[derive(Debug)]
pub struct Logs {
    region: Region,
    workers: usize,
    /// Grants that each worker can log.
    most: usize,
}

impl Logs {
    /// For the workers of this order; of no size where they log nothing. Grants of a
    /// target that lets everybody in mean nothing.
    ///
    /// # Errors
    /// The system's, where memory is short.
    pub fn new(order: &RunOrder, excludes: bool) -> std::io::Result<Logs> {
        let logs = excludes && order.logs_grants();
        let most = if logs { order.log_grants as usize } else { 0 };
        let logs = Logs {
            region: Region::new(order.workers * bytes(most))?,
            workers: order.workers,
            most,
        };
        if most > 0 {
            logs.region.populate(0, logs.region.len());
        }
        Ok(logs)
    }

    /// Maps a worker's log into the calling process.
    pub(crate) fn populate(&self, worker: usize) {
        if self.most > 0 {
            let each = bytes(self.most);
            self.region.populate(worker * each, each);
        }
    }

    /// The log of one worker, for writing.
    pub(crate) fn of_worker(&self, worker: usize) -> WorkerLog<'_> {
        WorkerLog {
            words: self.words(worker),
        }
    }

    fn words(&self, worker: usize) -> &[AtomicU64] {
        match self.most {
            0 => &[],
            most => self
                .region
                .words64(worker * bytes(most), HEAD + most * WORDS),
        }
    }

    /// The logs of all workers, when they are gone.
    pub fn gather(&self, shared: &Shared) -> GrantLog {
        if self.most == 0 {
            return GrantLog::default();
        }
        let to_monotonic = shared.to_monotonic().load(Relaxed);
        let mut log = GrantLog {
            from_ns: shared.opens().load(Relaxed).wrapping_add(to_monotonic),
            until_ns: shared.closes().load(Relaxed).wrapping_add(to_monotonic),
            ..GrantLog::default()
        };
        let mut packed = Packed(Vec::new());
        for worker in 0..self.workers {
            let words = self.words(worker);
            let head = |nth: usize| words[nth].load(Relaxed);
            let (logged, missed) = (head(0), head(1));
            log.made += logged + missed;
            if missed > 0 {
                log.until_ns = log.until_ns.min(head(2));
            }
            packed.worker(worker, &words[HEAD..][..logged as usize * WORDS]);
        }
        log.packed = STANDARD_NO_PAD.encode(packed.0);
        log
    }
}

fn bytes(most: usize) -> usize {
    match most {
        0 => 0,
        most => (HEAD * 8 + most * WORDS * 8).next_multiple_of(LINE),
    }
}

/// A worker's means of logging its grants.
#[derive(Clone, Copy, Debug)]
pub struct WorkerLog<'a> {
    words: &'a [AtomicU64],
}

impl WorkerLog<'_> {
    /// The time if it writes at all, otherwise zero. It is the kernel's time: the scale of
    /// stamps is not accurate enough for comparison with other hosts.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        match self.is_on() {
            true => jostle_sys::clock::monotonic(),
            false => 0,
        }
    }

    /// Whether it writes at all.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        !self.words.is_empty()
    }

    /// Adds a grant of lock number `key` that lasted from `g_ns` to `r_ns`.
    #[inline]
    pub fn log(&mut self, key: usize, mode: Mode, (g_ns, r_ns): (u64, u64), token: Option<u64>) {
        let logged = self.words[0].load(Relaxed);
        let at = HEAD + logged as usize * WORDS;
        let Some([g, r, of, with]) = self.words.get(at..at + WORDS) else {
            if self.words[1].load(Relaxed) == 0 {
                self.words[2].store(g_ns, Relaxed);
            }
            self.words[1].store(self.words[1].load(Relaxed) + 1, Relaxed);
            return;
        };
        let shared = if mode == Mode::Shared { SHARED } else { 0 };
        let has_token = token.map_or(0, |_| HAS_TOKEN);
        g.store(g_ns, Relaxed);
        r.store(r_ns, Relaxed);
        of.store(
            key as u64 & u64::from(u32::MAX) | shared | has_token,
            Relaxed,
        );
        with.store(token.unwrap_or(0), Relaxed);
        // A worker that is killed in between has not logged it.
        self.words[0].store(logged + 1, std::sync::atomic::Ordering::Release);
    }
}

/// A log that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a host's log of grants is damaged")]
pub struct Damaged;

/// The grants of a log, by worker and time.
///
/// # Errors
/// Where it was not written by this version.
pub fn unpacked(log: &GrantLog) -> Result<Vec<Grant>, Damaged> {
    let bytes = STANDARD_NO_PAD.decode(&log.packed).map_err(|_| Damaged)?;
    let mut packed = Unpacked(&bytes);
    let mut grants = Vec::new();
    while !packed.0.is_empty() {
        packed.worker(&mut grants)?;
    }
    Ok(grants)
}

/// Bytes that grow.
struct Packed(Vec<u8>);

impl Packed {
    fn worker(&mut self, worker: usize, words: &[AtomicU64]) {
        if words.is_empty() {
            return;
        }
        self.number(worker as u64);
        self.number((words.len() / WORDS) as u64);
        let (mut released, mut last) = (0, 0);
        for grant in words.chunks_exact(WORDS) {
            let [g, r, of, token] = [0, 1, 2, 3].map(|nth| grant[nth].load(Relaxed));
            self.number(g.wrapping_sub(released));
            self.number(r.wrapping_sub(g));
            // The bits first: most locks have small numbers.
            self.number((of & u64::from(u32::MAX)) << 2 | of >> 32);
            if of & HAS_TOKEN != 0 {
                self.number(zigzag(token.wrapping_sub(last)));
                last = token;
            }
            released = r;
        }
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}

/// Bytes that are left.
struct Unpacked<'a>(&'a [u8]);

impl Unpacked<'_> {
    fn worker(&mut self, into: &mut Vec<Grant>) -> Result<(), Damaged> {
        let worker = u32::try_from(self.number()?).map_err(|_| Damaged)?;
        let count = self.number()?;
        let (mut released, mut last) = (0u64, 0u64);
        for _ in 0..count {
            let g_ns = released.wrapping_add(self.number()?);
            released = g_ns.wrapping_add(self.number()?);
            let of = self.number()?;
            let bits = of << 32;
            if bits & HAS_TOKEN != 0 {
                last = last.wrapping_add(unzigzag(self.number()?));
            }
            into.push(Grant {
                key: u32::try_from(of >> 2).map_err(|_| Damaged)?,
                g_ns,
                r_ns: released,
                worker,
                token: (bits & HAS_TOKEN != 0).then_some(last),
                shared: bits & SHARED != 0,
            });
        }
        Ok(())
    }

    fn number(&mut self) -> Result<u64, Damaged> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(Damaged)?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Damaged)
    }
}

/// Small numbers of either sign as small numbers.
fn zigzag(difference: u64) -> u64 {
    difference << 1 ^ ((difference as i64) >> 63) as u64
}

fn unzigzag(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs(workers: usize, most: u32) -> Logs {
        let mut order = crate::order::tests::contend("lockd");
        (order.workers, order.log_grants) = (workers, most);
        Logs::new(&order, true).unwrap()
    }

    /// A window from 1000 to 9000 by the kernel's clock.
    fn window() -> Shared {
        let shared = Shared::new(1).unwrap();
        shared.opens().store(500, Relaxed);
        shared.closes().store(8_500, Relaxed);
        shared.to_monotonic().store(500, Relaxed);
        shared
    }

    #[test]
    fn what_is_written_is_read() {
        let logs = logs(3, 10);
        let written = [
            // worker, lock, mode, grant, release, token
            (0, 0, Mode::Exclusive, 1_000, 1_001, Some(u64::MAX)),
            (0, 7, Mode::Shared, 2_000, 900_000, Some(3)),
            (2, u32::MAX, Mode::Exclusive, u64::MAX - 5, u64::MAX, None),
            (2, 1, Mode::Exclusive, 4, 4, Some(0)), // an earlier one: only a fault could
        ];
        for (worker, key, mode, g, r, token) in written {
            logs.of_worker(worker)
                .log(key as usize, mode, (g, r), token);
        }
        let log = logs.gather(&window());
        let read: Vec<_> = unpacked(&log).unwrap();
        let expected = written.map(|(worker, key, mode, g_ns, r_ns, token)| Grant {
            key,
            g_ns,
            r_ns,
            worker: worker as u32,
            token,
            shared: mode == Mode::Shared,
        });
        assert_eq!(read, expected);
        assert_eq!((log.made, log.from_ns, log.until_ns), (4, 1_000, 9_000));
    }

    #[test]
    fn what_finds_no_place_is_counted_and_ends_what_is_covered() {
        let logs = logs(2, 2);
        for at in [1_500, 2_500, 3_500, 4_500] {
            let inner = (at, at + 10);
            logs.of_worker(1).log(0, Mode::Exclusive, inner, None);
        }
        logs.of_worker(0)
            .log(0, Mode::Exclusive, (5_000, 5_001), None);
        let log = logs.gather(&window());
        assert_eq!(unpacked(&log).unwrap().len(), 3);
        assert_eq!((log.made, log.until_ns), (5, 3_500));
    }

    #[test]
    fn a_grant_takes_some_ten_bytes() {
        let logs = logs(1, 1_000);
        for nth in 0..1_000 {
            // 100 workers of one lock of 20 us: a turn in 2 ms.
            let at = 123_456_789_000_000 + nth * 2_000_000;
            let token = Some((1 << 40) + 100 * nth);
            logs.of_worker(0)
                .log(0, Mode::Exclusive, (at, at + 20_000), token);
        }
        let bytes = logs.gather(&window()).packed.len();
        assert!((9_000..12_500).contains(&bytes), "{bytes}");
    }

    #[test]
    fn what_is_not_logged_takes_no_memory_and_is_not_sent() {
        let order = crate::order::tests::contend("lockd");
        let logs = Logs::new(&order, true).unwrap();
        assert!(!logs.of_worker(0).is_on());
        let log = logs.gather(&window());
        assert!(log.is_empty());
        let data = crate::order::RunData::default();
        assert!(!serde_json::to_string(&data).unwrap().contains("grants"));
    }

    #[test]
    fn a_damaged_log_is_refused() {
        for packed in ["?", "gA", "AAE"] {
            let log = GrantLog {
                packed: packed.to_owned(),
                ..GrantLog::default()
            };
            assert_eq!(unpacked(&log), Err(Damaged), "{packed}");
        }
    }

    #[test]
    fn the_logs_of_all_hosts_are_bounded() {
        // workers in all, most on one host -> each
        for (in_all, on_one, most) in [
            (2, 1, 65_536),
            (90, 5, 2_912),
            (64, 1, 4_096),
            (20_000, 10_000, 6),
            (1_000_000, 500_000, 1),
        ] {
            assert_eq!(most_per_worker(in_all, on_one), most);
        }
    }
}
