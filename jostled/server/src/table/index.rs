//! A hash index that grows one bucket at a time (linear hashing, Litwin 1980).
//!
//! A table that doubles must move everything at once or keep two tables; this
//! one splits a single bucket whenever its load passes the limit, so that no
//! insertion costs more than a few entries. The chains run through the entries
//! themselves. A bucket also holds the hash of its first entry, and whether
//! there is a second: most searches for what is not there, and most splits, then
//! need not touch an entry, which among a million of them is a cache miss.

use jostle_sys::prefetch::prefetch;

use super::slab::{NIL, Slab};

/// The hash and the link of an entry that an index uses; an entry can stand in several indexes.
pub(crate) trait Key<T> {
    fn hash(entry: &T) -> u32;
    fn chain(entry: &T) -> u32;
    fn set_chain(entry: &mut T, next: u32);
}

const SEGMENT_BITS: u32 = 12;
const SEGMENT: usize = 1 << SEGMENT_BITS;

/// The first entry of a chain, and its hash.
#[derive(Clone, Copy)]
struct Bucket {
    hash: u32,
    /// [`NIL`], or an index with [`MORE`] if the chain goes on.
    head: u32,
}

const MORE: u32 = 1 << 31;

impl Bucket {
    const EMPTY: Self = Self { hash: 0, head: NIL };

    fn new(hash: u32, id: u32, next: u32) -> Self {
        Self {
            hash,
            head: if next == NIL { id } else { id | MORE },
        }
    }

    #[inline]
    fn first(self) -> u32 {
        if self.head == NIL {
            NIL
        } else {
            self.head & !MORE
        }
    }

    #[inline]
    fn goes_on(self) -> bool {
        self.head & MORE != 0 && self.head != NIL
    }
}

pub(crate) struct Index<K> {
    segments: Vec<Box<[Bucket]>>,
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

    fn segment() -> Box<[Bucket]> {
        vec![Bucket::EMPTY; SEGMENT].into_boxed_slice()
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.segments.len() * SEGMENT * size_of::<Bucket>()
    }

    #[inline]
    fn number(&self, hash: u32) -> u32 {
        let number = hash & self.mask;
        if number < self.split {
            hash & (self.mask << 1 | 1)
        } else {
            number
        }
    }

    #[inline]
    fn bucket(&self, number: u32) -> Bucket {
        self.segments[(number >> SEGMENT_BITS) as usize][number as usize & (SEGMENT - 1)]
    }

    #[inline]
    fn set(&mut self, number: u32, bucket: Bucket) {
        self.segments[(number >> SEGMENT_BITS) as usize][number as usize & (SEGMENT - 1)] = bucket;
    }

    /// Brings the bucket of this hash near.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u32) {
        let number = self.number(hash);
        let segment = &self.segments[(number >> SEGMENT_BITS) as usize];
        prefetch(&segment[number as usize & (SEGMENT - 1)]);
    }

    /// The first entry that may have this hash; follow its chain.
    pub(crate) fn first(&self, hash: u32) -> u32 {
        self.bucket(self.number(hash)).first()
    }

    /// The first entry that a search for this hash will look at, or [`NIL`].
    #[inline]
    pub(crate) fn candidate(&self, hash: u32) -> u32 {
        let bucket = self.bucket(self.number(hash));
        if bucket.hash == hash || bucket.goes_on() {
            bucket.first()
        } else {
            NIL
        }
    }

    /// The first entries of the chains with several entries that the next `count`
    /// insertions will split, if the index grows with each insertion.
    #[inline]
    pub(crate) fn next_splits(&self, count: u32) -> impl Iterator<Item = u32> {
        let full = self.len + count > self.mask + 1 + self.split;
        let end = match full {
            true => (self.split + count).min(self.mask + 1),
            false => self.split,
        };
        let buckets = (self.split..end).map(|number| self.bucket(number));
        buckets.filter(|bucket| bucket.goes_on()).map(Bucket::first)
    }

    /// The first entry with this hash that `is_it`, or [`NIL`].
    #[inline(always)]
    pub(crate) fn find<T, S>(
        &self,
        entries: &Slab<T, S>,
        hash: u32,
        is_it: impl Fn(&T) -> bool,
    ) -> u32
    where
        K: Key<T>,
    {
        let bucket = self.bucket(self.number(hash));
        let first = bucket.first();
        if first == NIL || (bucket.hash == hash && is_it(&entries[first])) {
            return first;
        }
        if !bucket.goes_on() {
            return NIL;
        }
        let mut at = K::chain(&entries[first]);
        while at != NIL {
            let entry = &entries[at];
            if K::hash(entry) == hash && is_it(entry) {
                break;
            }
            at = K::chain(entry);
        }
        at
    }

    /// Adds an entry that is not in the index.
    #[inline]
    pub(crate) fn insert<T, S>(&mut self, entries: &mut Slab<T, S>, id: u32)
    where
        K: Key<T>,
    {
        let hash = K::hash(&entries[id]);
        let number = self.number(hash);
        let next = self.bucket(number).first();
        K::set_chain(&mut entries[id], next);
        self.set(number, Bucket::new(hash, id, next));
        self.len += 1;
        // At most as many entries as buckets: 8 bytes for each entry, and 1.5
        // looked at to find one.
        if self.len > self.mask + 1 + self.split {
            self.grow(entries);
        }
    }

    /// Removes an entry that is in the index.
    #[inline]
    pub(crate) fn remove<T, S>(&mut self, entries: &mut Slab<T, S>, id: u32)
    where
        K: Key<T>,
    {
        let number = self.number(K::hash(&entries[id]));
        let next = K::chain(&entries[id]);
        let bucket = self.bucket(number);
        let first = bucket.first();
        if first == id {
            let left = match next {
                NIL => Bucket::EMPTY,
                next => Bucket::new(K::hash(&entries[next]), next, K::chain(&entries[next])),
            };
            self.set(number, left);
        } else {
            let mut at = first;
            while K::chain(&entries[at]) != id {
                at = K::chain(&entries[at]);
            }
            K::set_chain(&mut entries[at], next);
            if at == first {
                self.set(number, Bucket::new(bucket.hash, first, next));
            }
        }
        self.len -= 1;
    }

    /// Splits one bucket in two.
    fn grow<T, S>(&mut self, entries: &mut Slab<T, S>)
    where
        K: Key<T>,
    {
        let (low, high) = (self.split, self.split + self.mask + 1);
        if (high >> SEGMENT_BITS) as usize == self.segments.len() {
            self.segments.push(Self::segment());
        }
        let bucket = self.bucket(low);
        self.split += 1;
        if self.split > self.mask {
            self.mask = self.mask << 1 | 1;
            self.split = 0;
        }
        if !bucket.goes_on() {
            if bucket.head != NIL && self.number(bucket.hash) == high {
                self.set(low, Bucket::EMPTY);
                self.set(high, bucket);
            }
            return;
        }
        self.set(low, Bucket::EMPTY);
        let mut at = bucket.first();
        while at != NIL {
            let (hash, after) = (K::hash(&entries[at]), K::chain(&entries[at]));
            let number = self.number(hash);
            debug_assert!(number == low || number == high);
            let next = self.bucket(number).first();
            K::set_chain(&mut entries[at], next);
            self.set(number, Bucket::new(hash, at, next));
            at = after;
        }
    }
}
