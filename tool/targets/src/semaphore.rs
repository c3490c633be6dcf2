//! The common part of `sysv` and `sysv-undo`: sets of System V semaphores, one semaphore for one
//! key, or many keys hashed to `slots` semaphores.
//!
//! A lock service that maps names to semaphores has to hash them, since their number is
//! limited, and names that meet in one slot then exclude each other. The names here are
//! `jostle-key-0`, `jostle-key-1` and so on; the hash is 64-bit FNV-1a, modulo the slots.
//! For a worker that holds one key at a time, a collision only means waiting. A worker that
//! holds many keys would wait for itself, so that colliding keys are refused there.

use crate::prelude::*;
use crate::{sysv, sysv_undo, until_granted};
use jostle_sys::clock;
use jostle_sys::files::Errno;
use jostle_sys::sysv::{Set, Usage, random_key};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The sets, and which semaphore stands for which key.
#[derive(Debug)]
pub(crate) struct Semaphores<const UNDO: bool> {
    places: Arc<[Place]>,
    slots: usize,
    collisions: usize,
}

/// One semaphore.
#[derive(Clone, Copy, Debug)]
struct Place {
    set: Set,
    number: u16,
}

impl<const UNDO: bool> Target for Semaphores<UNDO> {
    type Lock = SemaphoreLock;

    const ENTRY: Entry = match UNDO {
        true => sysv_undo::ENTRY,
        false => sysv::ENTRY,
    };

    fn prepare(setup: &Setup<'_>) -> Result<Semaphores<UNDO>> {
        let slots = if setup.keys == 1 { 1 } else { setup.slots };
        if slots == 0 {
            return Err(SetupError(
                "no semaphores to hash the keys to; give --slots 1 or more".to_owned(),
            ));
        }
        enough(slots)?;
        let hashed: Vec<usize> = (0..setup.keys).map(|key| slot(key, slots)).collect();
        if setup.holds_many && collisions(&hashed) > 0 {
            return Err(SetupError(format!(
                "{} of {} keys share one of {slots} slots with another, and a worker that holds \
                 both would wait for itself forever; use fewer keys, more --slots, or a target \
                 whose locks have names, such as lockd",
                collisions(&hashed),
                setup.keys
            )));
        }
        let per_set = set_size();
        let mut sets = Vec::new();
        for first in (0..slots).step_by(per_set) {
            sets.push(make_set(setup, per_set.min(slots - first), UNDO)?);
        }
        let place = |slot: &usize| Place {
            set: sets[slot / per_set],
            number: (slot % per_set) as u16,
        };
        Ok(Semaphores {
            places: hashed.iter().map(place).collect(),
            slots,
            collisions: collisions(&hashed),
        })
    }

    fn join(&self, _worker: usize) -> Result<SemaphoreLock> {
        Ok(SemaphoreLock(Arc::clone(&self.places)))
    }

    /// `slots`, and `collisions`: how many keys share their slot with another.
    fn facts(&self) -> Facts {
        facts([
            ("slots", Some(self.slots as f64)),
            ("collisions", Some(self.collisions as f64)),
        ])
    }
}

/// `SEMMSL`; semop(2) numbers a set's semaphores in 16 bits.
fn set_size() -> usize {
    const USUAL: u64 = 250;
    let allowed = Usage::read().map_or(USUAL, |usage| usage.limits.per_set);
    allowed.clamp(1, 32_000) as usize
}

/// Checks the limits before any set is made, so that the message does not count our own
/// sets.
fn enough(slots: usize) -> Result<()> {
    match Usage::read().and_then(|usage| shortage(usage, slots)) {
        Some(shortage) => Err(SetupError(shortage)),
        None => Ok(()),
    }
}

/// The limit that `slots` more semaphores would pass, and how to raise it.
fn shortage(usage: Usage, slots: usize) -> Option<String> {
    let limits = usage.limits;
    let sets = usage.sets + (slots as u64).div_ceil(limits.per_set.clamp(1, 32_000));
    let semaphores = usage.semaphores + slots as u64;
    if sets <= limits.sets && semaphores <= limits.in_all {
        return None;
    }
    Some(format!(
        "{slots} System V semaphores would pass a limit: {} of {} sets (SEMMNI) and {} of {} \
         semaphores (SEMMNS) are in use; remove what is left over (ipcs -s, ipcrm -s ID), or \
         raise the limits: sysctl -w kernel.sem=\"{} {} {} {}\"",
        usage.sets,
        limits.sets,
        usage.semaphores,
        limits.in_all,
        limits.per_set,
        limits.in_all.max(semaphores),
        usage.operations,
        limits.sets.max(sets),
    ))
}

/// 64-bit FNV-1a of the key's name (Fowler, Noll, Vo), modulo the slots.
fn slot(key: usize, slots: usize) -> usize {
    let hash = format!("jostle-key-{key}")
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    (hash % slots as u64) as usize
}

fn collisions(hashed: &[usize]) -> usize {
    let mut keys_of = BTreeMap::new();
    for slot in hashed {
        *keys_of.entry(slot).or_insert(0) += 1;
    }
    keys_of.values().filter(|keys| **keys > 1).sum()
}

fn make_set(setup: &Setup<'_>, count: usize, undo: bool) -> Result<Set> {
    let list = |error| {
        SetupError(format!(
            "cannot write to the list of what to remove: {error}"
        ))
    };
    loop {
        let key = random_key().map_err(|error| refused(&error))?;
        setup.ledger.record_semaphore(key).map_err(list)?;
        match Set::create(key, count, 1, undo) {
            Ok(set) => return Ok(set),
            Err(error) => {
                setup.ledger.withdraw_semaphore(key).map_err(list)?;
                if error.kind() != io::ErrorKind::AlreadyExists {
                    return Err(refused(&error));
                }
            }
        }
    }
}

/// The message for a failure that [`enough`] could not foresee.
fn refused(error: &io::Error) -> SetupError {
    let remedy = match Errno::from_raw_os_error(error.raw_os_error().unwrap_or(0)) {
        Errno::NOSPC | Errno::INVAL => {
            "a limit is reached (sysctl kernel.sem); remove what is left over (ipcs -s, \
             ipcrm -s ID), raise it, or use fewer --slots"
        }
        Errno::NOMEM => "use fewer --slots, or raise the memory limit",
        Errno::NOSYS => "this kernel has no System V semaphores; use posix-sem",
        _ => "a sandbox may forbid them; run outside of it, or use posix-sem",
    };
    SetupError(format!(
        "cannot make System V semaphores (semget): {error}; {remedy}"
    ))
}

/// One worker's view of the semaphores.
#[derive(Debug)]
pub(crate) struct SemaphoreLock(Arc<[Place]>);

impl Lock for SemaphoreLock {
    #[inline]
    fn acquire(&mut self, key: usize, _mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        let Place { set, number } = self.0[key];
        match wait {
            Wait::Try => until_granted("semop", || set.try_wait(number)),
            Wait::Block { .. } => until_granted("semop", || set.wait(number)),
            // The call takes a duration, so that each sleep needs one reading of the clock.
            Wait::Until(time) => until_granted("semtimedop", || {
                let left = time.saturating_sub(clock::monotonic());
                set.wait_within(number, left)
            }),
        }
    }

    #[inline]
    fn release(&mut self, key: usize, _mode: Mode) -> Result<(), CallError> {
        let Place { set, number } = self.0[key];
        set.post(number)
            .map_err(|errno| CallError::new("semop", errno))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_sys::limits::text::Semaphores as Limits;

    #[test]
    fn keys_hash_to_the_same_slots_everywhere() {
        // Worked out apart, from the definition of FNV-1a.
        let hashed: Vec<usize> = (0..6).map(|key| slot(key, 16_384)).collect();
        assert_eq!(hashed, [3085, 2650, 2215, 1780, 1345, 910]);
        assert!((0..1000).all(|key| slot(key, 7) < 7));
    }

    #[test]
    fn every_key_that_shares_its_slot_is_counted() {
        assert_eq!(collisions(&[1, 2, 3]), 0);
        assert_eq!(collisions(&[1, 2, 1, 1, 3]), 3);
    }

    #[test]
    fn a_limit_in_the_way_is_named_with_its_remedy() {
        let limits = Limits {
            per_set: 250,
            in_all: 32_000,
            sets: 128,
        };
        let used = |sets, semaphores| Usage {
            limits,
            operations: 32,
            sets,
            semaphores,
        };
        assert_eq!(shortage(used(127, 31_750), 250), None, "just enough");
        let text = shortage(used(126, 126), 501).unwrap();
        assert!(text.contains("126 of 128 sets (SEMMNI)"), "{text}");
        assert!(text.contains("kernel.sem=\"250 32000 32 129\""), "{text}");
        let text = shortage(used(2, 31_995), 10).unwrap();
        assert!(
            text.contains("31995 of 32000 semaphores (SEMMNS)"),
            "{text}"
        );
        assert!(text.contains("kernel.sem=\"250 32005 32 128\""), "{text}");
    }
}
