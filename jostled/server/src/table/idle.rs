//! The idle lock: released a moment ago, and likely to be requested again.
//!
//! Many clients take and release one lock over and over. Removing its name with each release, and
//! entering it again with the next LOCK, would be much of the table's work then. So the lock of
//! the last UNLOCK, if it has no waiters, keeps its name until the next LOCK, UNLOCK or LOCKALL.
//! A LOCK of the same name gets it back; for any other name it is dropped first. It is not
//! `used`, so no other event finds it. There is one at most.

use super::Table;
use super::slab::NIL;

impl Table {
    /// Keeps a lock that nobody holds or waits for, instead of the one before.
    #[inline]
    pub(super) fn keep_idle(&mut self, id: u32) {
        self.drop_idle();
        self.locks[id].used = false;
        self.idle = id;
    }

    /// Whether the idle lock has this name.
    #[inline]
    pub(super) fn idle_has(&self, name: &[u8]) -> bool {
        self.idle != NIL && self.locks[self.idle].has_name(&self.blocks, name)
    }

    /// The idle lock, which is in use from now on.
    #[inline]
    pub(super) fn use_idle(&mut self) -> u32 {
        let id = std::mem::replace(&mut self.idle, NIL);
        self.locks[id].used = true;
        id
    }

    /// Forgets the idle lock's name, if there is one.
    #[inline]
    pub(super) fn drop_idle(&mut self) {
        if self.idle != NIL {
            self.drop_lock(self.idle);
            self.idle = NIL;
        }
    }
}
