//! Slots of one type that are used again and never move.
//!
//! Grows by chunks: a push never copies what is there, so that a table that
//! grows to a million locks does not stop for it. Memory is kept for the next
//! peak and not given back.

use std::ops::{Index, IndexMut};

use jostle_sys::prefetch::prefetch;

/// No slot.
pub(crate) const NIL: u32 = u32::MAX;

/// A slot, unless it is [`NIL`].
pub(crate) fn some(id: u32) -> Option<u32> {
    (id != NIL).then_some(id)
}

const CHUNK_BITS: u32 = 10;
const CHUNK: u32 = 1 << CHUNK_BITS;

/// An inhabitant of a slab: it has an empty state and room for the link of the list of free slots.
pub(crate) trait Slot {
    /// An unused slot.
    fn vacant() -> Self;
    /// Makes the slot unused.
    #[inline]
    fn vacate(&mut self)
    where
        Self: Sized,
    {
        *self = Self::vacant();
    }
    /// The link of the free list; meaningful only while the slot is unused.
    fn free_link(&mut self) -> &mut u32;
}

/// Each slot may have data of type `S` beside it, in an array of its own: what others touch too
/// often for it to share a cache line with the slot's own data.
pub(crate) struct Slab<T, S = ()> {
    chunks: Vec<Box<[T]>>,
    sides: Vec<Box<[S]>>,
    /// First of the free slots.
    free: u32,
    /// Slots that were ever used.
    touched: u32,
    live: u32,
}

impl<T: Slot, S: Copy + Default> Slab<T, S> {
    pub(crate) fn new() -> Self {
        Self {
            chunks: Vec::new(),
            sides: Vec::new(),
            free: NIL,
            touched: 0,
            live: 0,
        }
    }

    /// A slab in which these slots are in use, in their vacant state. `None`: a slot is
    /// named twice.
    pub(crate) fn with_used(used: &[u32]) -> Option<Self> {
        let touched = used.iter().max().map_or(0, |last| last + 1);
        let mut slab = Self::new();
        while (slab.chunks.len() as u32) << CHUNK_BITS < touched {
            slab.add_chunk();
        }
        let mut marks = vec![false; touched as usize];
        for id in used {
            if std::mem::replace(&mut marks[*id as usize], true) {
                return None;
            }
        }
        for id in (0..touched).rev().filter(|id| !marks[*id as usize]) {
            *slab[id].free_link() = slab.free;
            slab.free = id;
        }
        (slab.touched, slab.live) = (touched, used.len() as u32);
        Some(slab)
    }

    /// Bytes that a slab with this last slot holds.
    pub(crate) fn bytes_up_to(last: u32) -> usize {
        (last as usize + 1).div_ceil(CHUNK as usize) * Self::chunk_bytes()
    }

    fn add_chunk(&mut self) {
        self.chunks.push((0..CHUNK).map(|_| T::vacant()).collect());
        let sides = vec![S::default(); CHUNK as usize];
        self.sides.push(sides.into_boxed_slice());
    }

    /// Slots in use.
    pub(crate) fn live(&self) -> u32 {
        self.live
    }

    /// Every slot in use has an index below this.
    pub(crate) fn touched(&self) -> u32 {
        self.touched
    }

    /// A slot, if it was ever used.
    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        (id < self.touched).then(|| &self[id])
    }

    /// All slots that were ever used.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..self.touched).map(|id| (id, &self[id]))
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.len() * Self::chunk_bytes()
    }

    /// Bytes by which the next [`Self::take`] grows the slab; 0 if it has room.
    #[inline]
    pub(crate) fn growth(&self) -> usize {
        self.growth_by(1)
    }

    /// Bytes by which the next `count` takes grow the slab.
    #[inline]
    pub(crate) fn growth_by(&self, count: u32) -> usize {
        let room = (self.chunks.len() << CHUNK_BITS) - self.live as usize;
        let missing = (count as usize).saturating_sub(room);
        missing.div_ceil(CHUNK as usize) * Self::chunk_bytes()
    }

    const fn chunk_bytes() -> usize {
        CHUNK as usize * (size_of::<T>() + size_of::<S>())
    }

    /// Brings a slot near, or what is beside it.
    #[inline]
    pub(crate) fn prefetch(&self, id: u32) {
        prefetch(&self[id]);
    }

    /// See [`Slab::prefetch`].
    #[inline]
    pub(crate) fn prefetch_side(&self, id: u32) {
        prefetch(&self.sides[(id >> CHUNK_BITS) as usize][(id & (CHUNK - 1)) as usize]);
    }

    /// An unused slot, in its vacant state.
    #[inline]
    pub(crate) fn take(&mut self) -> u32 {
        self.live += 1;
        if self.free != NIL {
            let id = self.free;
            self.free = *self[id].free_link();
            return id;
        }
        if self.touched as usize == self.chunks.len() << CHUNK_BITS {
            self.add_chunk();
        }
        let id = self.touched;
        self.touched += 1;
        id
    }

    /// Gives a slot back.
    #[inline]
    pub(crate) fn give(&mut self, id: u32) {
        self.live -= 1;
        let free = self.free;
        let slot = &mut self[id];
        slot.vacate();
        *slot.free_link() = free;
        self.free = id;
    }

    /// The data stored beside a slot.
    #[inline]
    pub(crate) fn side(&mut self, id: u32) -> &mut S {
        &mut self.sides[(id >> CHUNK_BITS) as usize][(id & (CHUNK - 1)) as usize]
    }

    /// A copy of it.
    #[inline]
    pub(crate) fn beside(&self, id: u32) -> S {
        self.sides[(id >> CHUNK_BITS) as usize][(id & (CHUNK - 1)) as usize]
    }
}

impl<T, S> Index<u32> for Slab<T, S> {
    type Output = T;

    #[inline]
    fn index(&self, id: u32) -> &T {
        &self.chunks[(id >> CHUNK_BITS) as usize][(id & (CHUNK - 1)) as usize]
    }
}

impl<T, S> IndexMut<u32> for Slab<T, S> {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.chunks[(id >> CHUNK_BITS) as usize][(id & (CHUNK - 1)) as usize]
    }
}
