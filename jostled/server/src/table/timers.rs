//! Deadlines: a hierarchical timer wheel with an exact last step.
//!
//! Setting and clearing a deadline cost the same however many there are; a heap
//! of a million leases would touch twenty of them each time. The wheel sorts
//! deadlines into slots of 2^20 ns (about 1 ms); those of the slot that time has
//! reached move into a small heap, which fires them in order and to the
//! nanosecond.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::entries::{EntryKind, Links, NEVER, Ref};

const TICK_BITS: u32 = 20;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// 8 levels of 6 bits cover the 44 bits of a 64-bit time in ticks.
const LEVELS: usize = 8;

/// Lists of the wheel; their heads are kept with the entries.
pub(crate) const LISTS: usize = LEVELS * SLOTS;

pub(crate) struct Timers {
    /// Every deadline up to the end of this tick is in `near`.
    tick: u64,
    /// For each level, which slots may hold something.
    occupied: [u64; LEVELS],
    near: BinaryHeap<Reverse<(u64, Ref)>>,
    /// Nothing needs to be done before this time, in ns.
    next: u64,
}

/// Where a deadline belongs.
pub(crate) enum Place {
    /// In this list of the wheel.
    List(u32),
    /// In the heap; the caller has nothing to do.
    Near,
}

impl Timers {
    /// A wheel without deadlines that has reached this tick.
    pub(crate) fn new(tick: u64) -> Self {
        Self {
            tick,
            occupied: [0; LEVELS],
            near: BinaryHeap::new(),
            next: NEVER,
        }
    }

    /// The tick of a time.
    pub(crate) fn tick_of(ns: u64) -> u64 {
        ns >> TICK_BITS
    }

    /// How far it has come, in ticks.
    pub(crate) fn tick(&self) -> u64 {
        self.tick
    }

    /// The earliest time, in ns, at which something may be due; [`NEVER`] if
    /// no deadline is set. May be early, never late.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Decides where an entry with this deadline goes.
    #[inline]
    pub(crate) fn place(&mut self, entry: Ref, deadline: u64) -> Place {
        let tick = deadline >> TICK_BITS;
        if tick <= self.tick {
            self.near.push(Reverse((deadline, entry)));
            self.next = self.next.min(deadline);
            return Place::Near;
        }
        // The level is that of the highest digit in which the two differ.
        let differing = (tick ^ self.tick) | (SLOTS as u64 - 1);
        let level = (63 - differing.leading_zeros()) / SLOT_BITS;
        let shift = level * SLOT_BITS;
        let slot = (tick >> shift) & (SLOTS as u64 - 1);
        self.occupied[level as usize] |= 1 << slot;
        self.next = self.next.min((tick >> shift << shift) << TICK_BITS);
        Place::List(level * SLOTS as u32 + slot as u32)
    }

    /// The next slot that may hold something: its list and its first tick.
    fn next_slot(&self) -> Option<(usize, u64, u64)> {
        // Entries on a lower level are earlier than all on the levels above.
        for (level, occupied) in self.occupied.iter().enumerate() {
            let shift = level as u32 * SLOT_BITS;
            let digit = (self.tick >> shift) & (SLOTS as u64 - 1);
            let later = occupied & !((2u64 << digit).wrapping_sub(1));
            if later != 0 {
                let slot = u64::from(later.trailing_zeros());
                let above = self.tick >> shift >> SLOT_BITS << SLOT_BITS;
                return Some((level, slot, (above | slot) << shift));
            }
        }
        None
    }

    /// Moves time on to the next slot that is reached by `now`, and names its
    /// list, whose entries the caller places again. `None` when there is none.
    pub(crate) fn advance(&mut self, now: u64) -> Option<u32> {
        let target = now >> TICK_BITS;
        match self.next_slot() {
            Some((level, slot, start)) if start <= target => {
                self.tick = start;
                self.occupied[level] &= !(1 << slot);
                Some((level * SLOTS) as u32 + slot as u32)
            }
            _ => {
                self.tick = self.tick.max(target);
                None
            }
        }
    }

    /// Takes the earliest deadline that is due. It may have been cleared since:
    /// the caller compares it with the entry's own.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<(u64, Ref)> {
        let &Reverse((deadline, entry)) = self.near.peek()?;
        if deadline > now {
            return None;
        }
        self.near.pop();
        Some((deadline, entry))
    }

    /// To be called when something that is due is left for the next step.
    pub(crate) fn hurry(&mut self) {
        self.next = 0;
    }

    /// To be called when everything due has been taken.
    pub(crate) fn settle(&mut self) {
        let near = self.near.peek().map(|&Reverse((deadline, _))| deadline);
        let slot = self.next_slot().map(|(_, _, start)| start << TICK_BITS);
        self.next = near.into_iter().chain(slot).min().unwrap_or(NEVER);
    }
}

/// The heads of the wheel's lists.
pub(crate) fn heads() -> Vec<Links> {
    let lists = 0..LISTS as u32;
    lists
        .map(|list| Links::around(Ref::new(EntryKind::Wheel, list)))
        .collect()
}
