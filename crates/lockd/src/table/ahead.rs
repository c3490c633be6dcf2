//! Reading ahead: what coming requests will touch is brought into the caches.
//!
//! Among a million locks a request waits for memory about five times, one after the
//! other: for its bucket, its lock, its links and those of its neighbours; and while
//! the table grows, for the locks of the chain that is split. The waits of several
//! requests can overlap, if all of one step are begun before the first of the next.
//! This affects no decision: a name that is not held, or whose hash belongs to another
//! held name, costs a useless read.

use std::hint::black_box;

use super::Table;
use super::entries::{ByName, Kind, Links, Ref};
use super::index::Key;
use super::slab::NIL;

/// Requests read ahead together. A core has room for about as many reads that
/// it waits for.
pub(crate) const AHEAD: usize = 16;

/// The number of locks from which reading ahead pays: with fewer, what requests touch
/// (some 100 bytes for each lock) stays in a core's own cache.
const MANY: u32 = 8192;

/// Locks read ahead in a chain that is split; few chains have more.
const SPLIT_LENGTH: usize = 3;

impl Table {
    /// Whether reading ahead pays.
    #[inline]
    #[must_use]
    pub(crate) fn outgrows_caches(&self) -> bool {
        self.locks.live() >= MANY
    }

    /// Touches what requests for these names, at most 16 of them and given by
    /// their hashes, will touch. Changes nothing.
    pub(crate) fn read_ahead(&self, hashes: &[u32]) {
        // Each loop is one step of all requests; none of its rounds needs a
        // result of another, so that the core need not wait between them.
        let mut places = [NIL; AHEAD];
        let mut links = [Links::ALONE; AHEAD];
        for (place, hash) in places.iter_mut().zip(hashes) {
            *place = self.names.candidate(*hash);
        }
        let mut splits = [NIL; AHEAD];
        let heads = self.names.next_splits(hashes.len() as u32);
        splits
            .iter_mut()
            .zip(heads)
            .for_each(|(at, head)| *at = head);
        for _ in 0..SPLIT_LENGTH {
            for at in splits.iter_mut().filter(|at| **at != NIL) {
                *at = ByName::chain(&self.locks[*at]);
            }
        }
        let mut chains = [NIL; AHEAD];
        for ((place, chain), hash) in places.iter_mut().zip(&mut chains).zip(hashes) {
            if *place != NIL {
                let lock = &self.locks[*place];
                *chain = ByName::chain(lock);
                if lock.hash != *hash {
                    *place = *chain;
                }
            }
        }
        for ((place, chain), links) in places.iter().zip(chains).zip(&mut links) {
            if chain != NIL {
                black_box(self.locks[chain].hash);
            }
            if *place != NIL {
                *links = self.locks.beside(*place);
            }
        }
        for neighbour in links.iter().flat_map(|links| [links.prev, links.next]) {
            if neighbour != Ref::NONE && neighbour.kind() == Kind::Lock {
                black_box(self.locks.beside(neighbour.index()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;

    #[test]
    fn reading_ahead_reaches_every_lock_and_changes_nothing() {
        const LOCKS: u32 = MANY + 100;
        let mut table = Table::new(Limits::default(), HashKey(1, 2), 1);
        let mut outputs = Vec::new();
        table.step(Tokens(u64::MAX), Time(1), &mut outputs);
        let client = table.step(Open, Time(1), &mut outputs).unwrap();
        let name = |number: u32| number.to_be_bytes();
        let mut split = 0;
        for number in 0..LOCKS {
            assert_eq!(table.outgrows_caches(), number >= MANY);
            // A chain is split only if it has more than one lock; about every fourth
            // bucket has such a chain.
            for head in table.names.next_splits(1) {
                assert_ne!(ByName::chain(&table.locks[head]), NIL);
                split += 1;
            }
            // Owned, leased and shared ones, so that links lead to all kinds.
            let request = LockRequest {
                client,
                name: &name(number),
                ttl_ms: (number % 3 == 1).then_some(60_000),
                wait_ms: None,
                mode: [Mode::Exclusive, Mode::Shared][usize::from(number % 5 == 1)],
                session: None,
            };
            let reply = table.step(request, Time(1), &mut outputs);
            assert_eq!(reply, Some(Outcome::Granted(u64::from(number) + 1)));
        }
        assert!((LOCKS / 8..LOCKS / 2).contains(&split), "{split}");
        // Every other name is not held; and more names than there is room for are not an
        // error.
        let hashes: Vec<u32> = (0..2 * LOCKS)
            .map(|number| table.hash(&name(number)))
            .collect();
        for some in hashes.chunks(AHEAD + 1) {
            table.read_ahead(some);
        }
        for number in 0..LOCKS {
            let event = Unlock {
                client,
                name: &name(number),
                token: None,
            };
            assert_eq!(table.step(event, Time(1), &mut outputs), Ok(()));
            table.read_ahead(&hashes[number as usize..][..AHEAD]);
        }
        assert!(!table.outgrows_caches());
    }
}
