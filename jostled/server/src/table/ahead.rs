//! Reading ahead: what coming requests will touch is brought into the caches.
//!
//! Among a million locks a request waits for memory about five times, one after the
//! other: for its bucket, its lock, its links and those of its neighbours; and while
//! the table grows, for the locks of the chain that is split. The waits of several
//! requests can overlap, if all of one step are begun before the first of the next.
//! This affects no decision: a name that is not held, or whose hash belongs to another
//! held name, costs a useless read.

use super::Table;
use super::entries::{ByName, EntryKind, Ref};
use super::index::Key;
use super::slab::NIL;

/// Requests read ahead together. A core has room for about as many reads that
/// it waits for.
pub(crate) const AHEAD: usize = 16;

/// The number of locks from which reading ahead pays: with fewer, what requests touch
/// (some 100 bytes for each lock) stays in a core's own cache.
const MANY: u32 = 8192;

/// Locks read ahead in a chain; few chains have more.
const CHAIN_LENGTH: usize = 3;

impl Table {
    /// Whether reading ahead pays.
    #[inline]
    #[must_use]
    pub(crate) fn outgrows_caches(&self) -> bool {
        self.locks.live() >= MANY
    }

    /// Begins to bring near what a request for the name with this hash needs first. Other
    /// requests can be decoded until [`Table::read_ahead`].
    #[inline]
    pub(crate) fn begin_ahead(&self, hash: u32) {
        self.names.prefetch(hash);
    }

    /// Brings near what requests for these names, at most 16 of them and given by
    /// their hashes, will touch. Changes nothing.
    pub(crate) fn read_ahead(&self, hashes: &[u32]) {
        // Each loop is one step of all requests. It waits only for what the loop before it
        // has begun to bring, and begins to bring what the next one needs.
        let mut places = [NIL; AHEAD];
        for (place, hash) in places.iter_mut().zip(hashes) {
            *place = self.names.candidate(*hash);
            if *place != NIL {
                self.locks.prefetch(*place);
            }
        }
        self.split_ahead(hashes.len() as u32);
        let mut found = [NIL; AHEAD];
        for _ in 0..CHAIN_LENGTH {
            for ((place, found), hash) in places.iter_mut().zip(&mut found).zip(hashes) {
                let Some(at) = Some(*place).filter(|place| *place != NIL) else {
                    continue;
                };
                // The next lock of the chain, be this one the wrong lock or about to leave.
                let chain = ByName::chain(&self.locks[at]);
                if chain != NIL {
                    self.locks.prefetch(chain);
                }
                *place = chain;
                if self.locks[at].hash == *hash {
                    self.locks.prefetch_side(at);
                    (*found, *place) = (at, NIL);
                }
            }
        }
        for at in found.iter().filter(|at| **at != NIL) {
            let links = self.locks.beside(*at).links;
            for neighbour in [links.prev, links.next] {
                if neighbour != Ref::NONE && neighbour.kind() == EntryKind::Lock {
                    self.locks.prefetch_side(neighbour.index());
                }
            }
        }
    }

    /// Brings near the chains that the next insertions, so many, will split.
    fn split_ahead(&self, count: u32) {
        let mut splits = [NIL; AHEAD];
        let heads = self.names.next_splits(count);
        let places = splits.iter_mut().zip(heads);
        places.for_each(|(at, head)| *at = head);
        for _ in 0..CHAIN_LENGTH {
            for at in splits.iter_mut().filter(|at| **at != NIL) {
                *at = ByName::chain(&self.locks[*at]);
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
