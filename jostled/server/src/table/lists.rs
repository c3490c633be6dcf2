//! The circular lists that entries stand in: of the timer wheel, or of what a
//! client's connection owns.

use super::Table;
use super::entries::{EntryKind, Links, Ref};

impl Table {
    #[inline(always)]
    pub(super) fn links(&mut self, entry: Ref) -> &mut Links {
        match entry.kind() {
            EntryKind::Lock => &mut self.locks.side(entry.index()).links,
            EntryKind::Claim => &mut self.claims[entry.index()].links,
            EntryKind::Wheel => &mut self.wheel[entry.index() as usize],
            EntryKind::Client => &mut self.clients[entry.index() as usize].owned,
        }
    }

    /// The next one behind an entry, or behind the head, of a client's own.
    pub(super) fn next_owned(&self, entry: Ref) -> Ref {
        match entry.kind() {
            EntryKind::Client => self.clients[entry.index() as usize].owned.next,
            EntryKind::Lock => self.locks.beside(entry.index()).links.next,
            _ => self.claims[entry.index()].links.next,
        }
    }

    /// Appends an entry, which is in no list, to the list of `head`.
    #[inline(always)]
    pub(super) fn link(&mut self, head: Ref, entry: Ref) {
        let last = std::mem::replace(&mut self.links(head).prev, entry);
        self.links(last).next = entry;
        *self.links(entry) = Links {
            prev: last,
            next: head,
        };
    }

    /// Takes an entry out of its list, if it is in one.
    #[inline(always)]
    pub(super) fn unlink(&mut self, entry: Ref) {
        let links = std::mem::take(self.links(entry));
        if links.prev != Ref::NONE {
            self.links(links.prev).next = links.next;
            self.links(links.next).prev = links.prev;
        }
    }
}
