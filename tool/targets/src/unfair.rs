//! `unfair`: a lock that picks the next owner among the waiters by a known policy, and
//! counts the grants of each worker.
//!
//! Each key has a list of its waiting workers, in order of arrival, under a short futex
//! lock, and each worker a word to sleep on. A release hands the lock to the worker that
//! the policy picks; a newcomer never gets it while another worker waits.

use crate::prelude::*;
use crate::specimen::{Random, Tallies, add};
use jostle_sys::clock;
use jostle_sys::files::Errno;
use jostle_sys::futex::{self, Waited};
use jostle_sys::shared::{LINE, Region};
use jostle_sys::signal;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Who is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// Who came first.
    Queue,
    /// Anybody, with equal chances.
    Lottery,
    /// Anybody; even numbers have twice the chances.
    TwoToOne,
    /// Who came first, but worker 0 only when nobody else waits.
    Starve,
}

const POLICIES: [(&str, Policy); 4] = [
    ("queue", Policy::Queue),
    ("lottery", Policy::Lottery),
    ("2to1", Policy::TwoToOne),
    ("starve", Policy::Starve),
];

impl Policy {
    fn parse(argument: Option<&str>) -> Result<Policy, String> {
        let Some(text) = argument else {
            return Ok(Policy::Lottery);
        };
        let found = POLICIES.iter().find(|(name, _)| *name == text);
        found.map(|(_, policy)| *policy).ok_or_else(|| {
            let names = POLICIES.map(|(name, _)| name).join(", ");
            format!("`{text}` is no policy; write one of {names}")
        })
    }

    /// The place in `waiting`, which is not empty, of the next owner.
    fn pick(self, waiting: &[AtomicU32], random: &mut Random) -> usize {
        let workers = || waiting.iter().map(|w| w.load(Relaxed));
        match self {
            Policy::Queue => 0,
            Policy::Lottery => random.below(waiting.len() as u64) as usize,
            Policy::Starve => workers().position(|worker| worker != 0).unwrap_or(0),
            Policy::TwoToOne => {
                let weight = |worker: u32| if worker.is_multiple_of(2) { 2 } else { 1 };
                let mut left = random.below(workers().map(weight).sum());
                workers()
                    .position(|worker| match left.checked_sub(weight(worker)) {
                        Some(rest) => {
                            left = rest;
                            false
                        }
                        None => true,
                    })
                    .unwrap_or(0)
            }
        }
    }
}

/// Counters of each worker: its grants, its releases that handed the lock to a waiter, and
/// the number and total time of hand-offs to it.
const GRANTED: usize = 0;
const HANDED: usize = 1;
const HANDOFFS: usize = 2;
const HANDOFFS_NS: usize = 3;

/// The memory that the workers share.
#[derive(Debug)]
struct Shared {
    policy: Policy,
    workers: usize,
    keys: Region,
    /// For each worker the word that it sleeps on: 0 while it waits.
    sleepers: Region,
    tallies: Tallies,
}

/// One key's memory, reached under `inner` alone.
struct Key<'a> {
    /// The short lock.
    inner: &'a AtomicU32,
    /// Whether somebody owns the key.
    owned: &'a AtomicU32,
    /// How many wait.
    count: &'a AtomicU32,
    random: &'a AtomicU64,
    /// When the release began that handed the key on.
    released_ns: &'a AtomicU64,
    /// Room for every worker.
    waiting: &'a [AtomicU32],
}

impl Shared {
    fn stride(workers: usize) -> usize {
        LINE + (workers * size_of::<u32>()).next_multiple_of(LINE)
    }

    fn key(&self, key: usize) -> Key<'_> {
        let at = key * Shared::stride(self.workers);
        let words = self.keys.words32(at, 3);
        Key {
            inner: &words[0],
            owned: &words[1],
            count: &words[2],
            random: &self.keys.words64(at + 16, 1)[0],
            released_ns: &self.keys.words64(at + 24, 1)[0],
            waiting: self.keys.words32(at + LINE, self.workers),
        }
    }

    fn sleeper(&self, worker: usize) -> &AtomicU32 {
        &self.sleepers.words32(worker * LINE, 1)[0]
    }
}

impl Key<'_> {
    fn join(&self, worker: usize) {
        let count = self.count.load(Relaxed);
        self.waiting[count as usize].store(worker as u32, Relaxed);
        self.count.store(count + 1, Relaxed);
    }

    /// Takes the worker at a place out of the list; the others keep their order.
    fn take(&self, place: usize) -> usize {
        let count = self.count.load(Relaxed) as usize;
        let worker = self.waiting[place].load(Relaxed);
        for i in place + 1..count {
            self.waiting[i - 1].store(self.waiting[i].load(Relaxed), Relaxed);
        }
        self.count.store(count as u32 - 1, Relaxed);
        worker as usize
    }

    fn leave(&self, worker: usize) {
        let count = self.count.load(Relaxed) as usize;
        let is_me = |w: &AtomicU32| w.load(Relaxed) == worker as u32;
        if let Some(place) = self.waiting[..count].iter().position(is_me) {
            self.take(place);
        }
    }
}

/// The lock.
#[derive(Debug)]
pub struct Unfair(Arc<Shared>);

/// One worker's view of it.
#[derive(Debug)]
pub struct UnfairLock {
    shared: Arc<Shared>,
    worker: usize,
    last_handoff_ns: Cell<Option<u64>>,
}

impl Target for Unfair {
    type Lock = UnfairLock;

    const ENTRY: Entry = Entry {
        name: "unfair",
        argument: Some("POLICY"),
        check_argument: |argument| Policy::parse(argument).map(drop),
        summary: "a lock that hands itself on by queue, lottery (default), 2to1 or starve",
        details: "queue: in order of arrival. lottery: to any waiter with equal chances. 2to1: \
                  even-numbered workers have twice the chances. starve: worker 0 only when nobody \
                  else waits. A newcomer never passes a waiter. It notes the fewest and the most \
                  grants of a worker (`granted_min`, `granted_max`), those of worker 0 \
                  (`granted_worker_0`), the share of the even-numbered ones (`even_share`), all \
                  of them (`granted`), how many were handed to a waiter (`handed`), and, by \
                  CLOCK_MONOTONIC, how long that took from the start of the release to the \
                  waiter's going on (`handoffs`, `handoff_sum_ns`; without each worker's last, \
                  which may come after the window).",
        lock: LockCapabilities::TIMED,
        ..Entry::PLAIN
    };

    fn prepare(setup: &Setup<'_>) -> Result<Unfair> {
        let bytes = setup.keys * Shared::stride(setup.workers);
        let shared = Shared {
            policy: Policy::parse(setup.argument).map_err(SetupError)?,
            workers: setup.workers,
            keys: Region::new(bytes).map_err(no_memory)?,
            sleepers: Region::new(setup.workers * LINE).map_err(no_memory)?,
            tallies: Tallies::new(setup.workers).map_err(no_memory)?,
        };
        for key in 0..setup.keys {
            let random = Random::new(setup.seed, key);
            shared.key(key).random.store(random.0, Relaxed);
        }
        Ok(Unfair(Arc::new(shared)))
    }

    fn join(&self, worker: usize) -> Result<UnfairLock> {
        Ok(UnfairLock {
            shared: Arc::clone(&self.0),
            worker: self.0.tallies.place(worker),
            last_handoff_ns: Cell::new(None),
        })
    }

    fn truth(&self) -> Facts {
        let granted: Vec<u64> = self.0.tallies.column(GRANTED).collect();
        let even: u64 = granted.iter().step_by(2).sum();
        let total = |index| self.0.tallies.column(index).sum::<u64>() as f64;
        let one = |worker: Option<&u64>| worker.map(|grants| *grants as f64);
        let sum = total(GRANTED);
        facts([
            ("granted", Some(sum)),
            ("handed", Some(total(HANDED))),
            ("handoffs", Some(total(HANDOFFS))),
            ("handoff_sum_ns", Some(total(HANDOFFS_NS))),
            ("granted_min", one(granted.iter().min())),
            ("granted_max", one(granted.iter().max())),
            ("granted_worker_0", one(granted.first())),
            ("even_share", (sum > 0.0).then(|| even as f64 / sum)),
        ])
    }
}

/// How long a worker waits for the short lock when it has been interrupted or has to
/// release: if the owner of the short lock was killed, it stays locked.
const INNER_PATIENCE_NS: u64 = 1_000_000_000;

impl UnfairLock {
    /// Locks the key's list; `Ended` only if the run is over and `may_end`.
    fn lock_inner(&self, inner: &AtomicU32, may_end: bool) -> Result<Waited, CallError> {
        if futex::try_lock(inner) {
            return Ok(Waited::Acquired);
        }
        let patience = Some(clock::monotonic() + INNER_PATIENCE_NS);
        let ended = || may_end && signal::interrupted();
        loop {
            let waited = futex::lock_contended(inner, patience, ended)
                .map_err(|errno| CallError::new("futex", errno))?;
            match waited {
                Waited::TimedOut if signal::interrupted() => {
                    return Err(CallError::new("futex", Errno::TIMEDOUT));
                }
                Waited::TimedOut => {}
                _ => return Ok(waited),
            }
        }
    }

    fn granted(&self) -> Outcome {
        add(&self.shared.tallies.of_worker(self.worker)[GRANTED], 1);
        Outcome::Granted
    }

    /// Counts the previous hand-off, not this one: the last one may happen after the
    /// window, where it is not measured. After this grant only this worker's own release
    /// writes the key's time.
    fn note_handoff(&self, key: usize) {
        let began = self.shared.key(key).released_ns.load(Relaxed);
        let took_ns = clock::monotonic().saturating_sub(began);
        if let Some(took_ns) = self.last_handoff_ns.replace(Some(took_ns)) {
            let tally = self.shared.tallies.of_worker(self.worker);
            add(&tally[HANDOFFS], 1);
            add(&tally[HANDOFFS_NS], took_ns);
        }
    }

    /// Sleeps until a release picks this worker.
    fn wait(&self, key: usize, until: Option<u64>) -> Result<Outcome, CallError> {
        let word = self.shared.sleeper(self.worker);
        loop {
            if word.load(Acquire) == 1 {
                self.note_handoff(key);
                return Ok(self.granted());
            }
            if signal::interrupted() {
                return self.give_up(key, Outcome::Interrupted);
            }
            match futex::wait(word, 0, until) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::TIMEDOUT) => return self.give_up(key, Outcome::Refused),
                Err(errno) => return Err(CallError::new("futex", errno)),
            }
        }
    }

    /// Leaves the list, unless a release has picked this worker meanwhile.
    fn give_up(&self, key: usize, outcome: Outcome) -> Result<Outcome, CallError> {
        let memory = self.shared.key(key);
        self.lock_inner(memory.inner, false)?;
        let picked = self.shared.sleeper(self.worker).load(Relaxed) == 1;
        if !picked {
            memory.leave(self.worker);
        }
        futex::unlock(memory.inner);
        Ok(if picked { self.granted() } else { outcome })
    }

    /// Picks the next owner and takes it out of the list.
    fn next(&self, memory: &Key<'_>) -> Option<usize> {
        let count = memory.count.load(Relaxed) as usize;
        if count == 0 {
            return None;
        }
        let mut random = Random(memory.random.load(Relaxed));
        let place = self
            .shared
            .policy
            .pick(&memory.waiting[..count], &mut random);
        memory.random.store(random.0, Relaxed);
        Some(memory.take(place))
    }
}

impl Lock for UnfairLock {
    fn acquire(&mut self, key: usize, _mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        let memory = self.shared.key(key);
        if self.lock_inner(memory.inner, true)? == Waited::Ended {
            return Ok(Outcome::Interrupted);
        }
        let free = memory.owned.load(Relaxed) == 0;
        if free {
            memory.owned.store(1, Relaxed);
        } else if wait != Wait::Try {
            self.shared.sleeper(self.worker).store(0, Relaxed);
            memory.join(self.worker);
        }
        futex::unlock(memory.inner);
        match (free, wait) {
            (true, _) => Ok(self.granted()),
            (false, Wait::Try) => Ok(Outcome::Refused),
            (false, Wait::Block { .. }) => self.wait(key, None),
            (false, Wait::Until(time)) => self.wait(key, Some(time)),
        }
    }

    fn release(&mut self, key: usize, _mode: Mode) -> Result<(), CallError> {
        let began = clock::monotonic();
        let memory = self.shared.key(key);
        self.lock_inner(memory.inner, false)?;
        let next = self.next(&memory);
        memory.released_ns.store(began, Relaxed);
        match next {
            // It stays owned: the next owner has it from here on.
            Some(worker) => self.shared.sleeper(worker).store(1, Release),
            None => memory.owned.store(0, Relaxed),
        }
        futex::unlock(memory.inner);
        if let Some(worker) = next {
            add(&self.shared.tallies.of_worker(self.worker)[HANDED], 1);
            futex::wake(self.shared.sleeper(worker), 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_of_a_later_host_waits_and_counts_in_its_own_place() {
        const WORKERS: usize = 2;
        let shared = Shared {
            policy: Policy::Queue,
            workers: WORKERS,
            keys: Region::new(Shared::stride(WORKERS)).unwrap(),
            sleepers: Region::new(WORKERS * LINE).unwrap(),
            tallies: Tallies::new(WORKERS).unwrap(),
        };
        let lock = Unfair(Arc::new(shared));
        let mut workers = [4, 5].map(|worker| lock.join(worker).unwrap());
        let take = |worker: &mut UnfairLock, wait| worker.acquire(0, Mode::Exclusive, wait);
        assert_eq!(take(&mut workers[1], Wait::Try), Ok(Outcome::Granted));
        assert_eq!(take(&mut workers[0], Wait::Until(1)), Ok(Outcome::Refused));
        workers[1].release(0, Mode::Exclusive).unwrap();
        let granted: Vec<u64> = lock.0.tallies.column(GRANTED).collect();
        assert_eq!(granted, [0, 1]);
    }

    fn shares(policy: Policy, waiting: &[u32]) -> Vec<f64> {
        const DRAWS: u32 = 60_000;
        let waiting: Vec<AtomicU32> = waiting.iter().map(|w| AtomicU32::new(*w)).collect();
        let mut random = Random::new(7, 0);
        let mut counts = vec![0u32; waiting.len()];
        (0..DRAWS).for_each(|_| counts[policy.pick(&waiting, &mut random)] += 1);
        counts
            .iter()
            .map(|n| f64::from(*n) / f64::from(DRAWS))
            .collect()
    }

    #[test]
    fn each_policy_picks_as_it_says() {
        let table: &[(Policy, &[u32], &[f64])] = &[
            (Policy::Queue, &[5, 0, 2], &[1.0, 0.0, 0.0]),
            (Policy::Lottery, &[5, 0, 2, 1], &[0.25; 4]),
            (
                Policy::TwoToOne,
                &[1, 2, 3, 4],
                &[1. / 6., 2. / 6., 1. / 6., 2. / 6.],
            ),
            (Policy::TwoToOne, &[3, 5], &[0.5, 0.5]),
            (Policy::Starve, &[0, 3, 1], &[0.0, 1.0, 0.0]),
            (Policy::Starve, &[0], &[1.0]),
        ];
        for (policy, waiting, expected) in table {
            let found = shares(*policy, waiting);
            for (found, expected) in found.iter().zip(*expected) {
                // Four standard deviations of a share of 60,000 draws.
                assert!(
                    (found - expected).abs() < 0.009,
                    "{policy:?} {waiting:?}: {found}"
                );
            }
        }
    }
}
