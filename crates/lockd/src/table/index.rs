//! A hash index that grows one bucket at a time (linear hashing, Litwin 1980).
//!
//! A table that doubles must move everything at once or keep two tables; this
//! one splits a single bucket whenever its load passes the limit, so that no
//! insertion costs more than a few entries. The chains run through the entries
//! themselves; a bucket is four bytes.

use super::slab::{NIL, Slab, Slot};

/// Which hash and which link of an entry an index uses; an entry can stand in
/// several indexes.
pub(crate) trait Key<T> {
    fn hash(entry: &T) -> u32;
    fn chain(entry: &T) -> u32;
    fn set_chain(entry: &mut T, next: u32);
}

const SEGMENT_BITS: u32 = 12;
const SEGMENT: usize = 1 << SEGMENT_BITS;

pub(crate) struct Index<K> {
    segments: Vec<Box<[u32]>>,
    /// Buckets of the current round, less one; a power of two less one.
    mask: u32,
    /// Buckets below this have been split in the current round.
    split: u32,
    len: u32,
    key: std::marker::PhantomData<K>,
}

impl<K> Index<K> {
    pub(crate) fn new() -> Self {
        Self {
            segments: vec![Self::segment()],
            mask: 15,
            split: 0,
            len: 0,
            key: std::marker::PhantomData,
        }
    }

    fn segment() -> Box<[u32]> {
        vec![NIL; SEGMENT].into_boxed_slice()
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.segments.len() * SEGMENT * size_of::<u32>()
    }

    #[inline]
    fn bucket(&self, hash: u32) -> u32 {
        let bucket = hash & self.mask;
        if bucket < self.split {
            hash & (self.mask << 1 | 1)
        } else {
            bucket
        }
    }

    #[inline]
    fn head(&self, bucket: u32) -> u32 {
        self.segments[(bucket >> SEGMENT_BITS) as usize][bucket as usize & (SEGMENT - 1)]
    }

    #[inline]
    fn set_head(&mut self, bucket: u32, id: u32) {
        self.segments[(bucket >> SEGMENT_BITS) as usize][bucket as usize & (SEGMENT - 1)] = id;
    }

    /// The first entry that may have this hash; follow its chain.
    #[inline]
    pub(crate) fn first(&self, hash: u32) -> u32 {
        self.head(self.bucket(hash))
    }

    /// Adds an entry that is not in the index.
    #[inline]
    pub(crate) fn insert<T: Slot>(&mut self, entries: &mut Slab<T>, id: u32)
    where
        K: Key<T>,
    {
        let bucket = self.bucket(K::hash(&entries[id]));
        K::set_chain(&mut entries[id], self.head(bucket));
        self.set_head(bucket, id);
        self.len += 1;
        // At most three entries for four buckets: 5.3 bytes for each entry, and
        // 1.4 looked at to find one.
        let buckets = self.mask + 1 + self.split;
        if self.len > buckets - buckets / 4 {
            self.grow(entries);
        }
    }

    /// Removes an entry that is in the index.
    #[inline]
    pub(crate) fn remove<T: Slot>(&mut self, entries: &mut Slab<T>, id: u32)
    where
        K: Key<T>,
    {
        let bucket = self.bucket(K::hash(&entries[id]));
        let next = K::chain(&entries[id]);
        let mut at = self.head(bucket);
        if at == id {
            self.set_head(bucket, next);
        } else {
            while K::chain(&entries[at]) != id {
                at = K::chain(&entries[at]);
            }
            K::set_chain(&mut entries[at], next);
        }
        self.len -= 1;
    }

    /// Splits one bucket in two.
    fn grow<T: Slot>(&mut self, entries: &mut Slab<T>)
    where
        K: Key<T>,
    {
        let (low, high) = (self.split, self.split + self.mask + 1);
        if (high >> SEGMENT_BITS) as usize == self.segments.len() {
            self.segments.push(Self::segment());
        }
        let mut at = self.head(low);
        self.set_head(low, NIL);
        self.split += 1;
        if self.split > self.mask {
            self.mask = self.mask << 1 | 1;
            self.split = 0;
        }
        while at != NIL {
            let next = K::chain(&entries[at]);
            let bucket = self.bucket(K::hash(&entries[at]));
            debug_assert!(bucket == low || bucket == high);
            K::set_chain(&mut entries[at], self.head(bucket));
            self.set_head(bucket, at);
            at = next;
        }
    }
}
