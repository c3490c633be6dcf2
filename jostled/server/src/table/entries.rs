//! The table's records: locks, claims, queues, names, clients.
//!
//! The layout decides the memory of a held lock: an uncontended exclusive lock is one
//! [`Lock`] of 64 bytes, its [`Side`] (16) and its share of the index (8). What only
//! contended or shared locks need is kept in records of its own. Among a million locks,
//! every cache line touched costs as much as all other work. So a lock is exactly one
//! cache line, and its neighbours in a list are reached without touching it.

use super::Mode;
use super::index::Key;
use super::slab::{NIL, Slab, Slot};

/// A deadline that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// Neighbours in a circular list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    pub(crate) prev: Ref,
    pub(crate) next: Ref,
}

/// Something that can stand in a circular list: two bits of kind, 30 of index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ref(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// The exclusive hold that a [`Lock`] contains.
    Lock,
    /// A waiter or a shared hold.
    Claim,
    /// The head of a list of the timer wheel.
    Wheel,
    /// The head of a client's list of what its connection owns.
    Client,
}

impl Ref {
    const BITS: u32 = 30;
    /// Indexes of one kind.
    pub(crate) const COUNT: u32 = 1 << Self::BITS;
    pub(crate) const NONE: Self = Self(u32::MAX);

    pub(crate) const fn new(kind: EntryKind, index: u32) -> Self {
        debug_assert!(index >> Self::BITS == 0);
        Self((kind as u32) << Self::BITS | index)
    }

    #[inline]
    pub(crate) const fn kind(self) -> EntryKind {
        match self.0 >> Self::BITS {
            0 => EntryKind::Lock,
            1 => EntryKind::Claim,
            2 => EntryKind::Wheel,
            _ => EntryKind::Client,
        }
    }

    #[inline]
    pub(crate) const fn index(self) -> u32 {
        self.0 & ((1 << Self::BITS) - 1)
    }
}

/// In no list.
impl Default for Links {
    #[inline]
    fn default() -> Self {
        Self {
            prev: Ref::NONE,
            next: Ref::NONE,
        }
    }
}

impl Links {
    /// The head of a list without entries.
    pub(crate) fn around(head: Ref) -> Self {
        Self {
            prev: head,
            next: head,
        }
    }
}

/// The part of a [`Lock`] about its exclusive hold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Side {
    pub(crate) links: Links,
    /// When the hold began.
    pub(crate) since: u64,
}

/// Bytes of a name that fit into the lock itself.
pub(crate) const NAME_INLINE: usize = 24;
/// Bytes of a longer name before the number of its first block.
const NAME_PREFIX: usize = NAME_INLINE - 4;

/// A name that is held, exclusively or shared, or reserved; it may have waiters. The
/// links of an exclusive hold stand beside it: in the timer wheel for a lease,
/// otherwise in its client's list.
#[repr(align(64))]
pub(crate) struct Lock {
    /// The exclusive holder's token; 0: the lock is shared or reserved. The next two fields
    /// belong to this holder as well.
    pub(crate) token: u64,
    pub(crate) client: u64,
    /// [`NEVER`] if the connection owns it.
    pub(crate) deadline: u64,
    pub(crate) hash: u32,
    chain: u32,
    /// The [`Queue`], if there are waiters or shared holders.
    pub(crate) queue: u32,
    name_len: u16,
    /// Requests refused since they were counted last.
    pub(crate) refused: u8,
    pub(crate) used: bool,
    name: [u8; NAME_INLINE],
}

const _: () = assert!(
    size_of::<Lock>() == 64,
    "a cache line, and the budget is 96 bytes for each held lock"
);

impl Slot for Lock {
    fn vacant() -> Self {
        Self {
            token: 0,
            client: 0,
            deadline: NEVER,
            hash: 0,
            chain: NIL,
            queue: NIL,
            name_len: 0,
            refused: 0,
            used: false,
            name: [0; NAME_INLINE],
        }
    }

    #[inline]
    fn vacate(&mut self) {
        // The rest is set with the next use.
        self.deadline = NEVER;
        self.queue = NIL;
        self.token = 0;
        self.refused = 0;
        self.used = false;
    }

    fn free_link(&mut self) -> &mut u32 {
        &mut self.chain
    }
}

/// Locks by name.
pub(crate) struct ByName;

impl Key<Lock> for ByName {
    #[inline]
    fn hash(entry: &Lock) -> u32 {
        entry.hash
    }
    #[inline]
    fn chain(entry: &Lock) -> u32 {
        entry.chain
    }
    #[inline]
    fn set_chain(entry: &mut Lock, next: u32) {
        entry.chain = next;
    }
}

/// The state of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimState {
    Vacant,
    Waiting,
    Sharing,
    /// The timer of a session.
    Heartbeat,
}

/// A waiter, one of the holders of a shared lock, or the timer of a session.
pub(crate) struct Claim {
    pub(crate) token: u64,
    pub(crate) client: u64,
    /// End of the wait, of the lease or of the session; [`NEVER`] for none.
    pub(crate) deadline: u64,
    /// When the wait began, or the hold.
    pub(crate) since: u64,
    /// The lease that is wanted, in milliseconds; 0 if the connection is to own
    /// the lock.
    pub(crate) ttl_ms: u64,
    pub(crate) links: Links,
    /// Neighbours among the lock's waiters, or among its shared holders.
    pub(crate) prev: u32,
    pub(crate) next: u32,
    pub(crate) lock: u32,
    /// The first claim of a group that waits for several locks, and the claim behind this
    /// one.
    pub(crate) leader: u32,
    pub(crate) next_in_group: u32,
    /// The session in whose name it waits, and its neighbours among that session's waiters.
    pub(crate) session: u32,
    pub(crate) prev_in_session: u32,
    pub(crate) next_in_session: u32,
    pub(crate) owner_hash: u32,
    pub(crate) owner_chain: u32,
    pub(crate) token_chain: u32,
    pub(crate) state: ClaimState,
    pub(crate) exclusive: bool,
}

impl Slot for Claim {
    fn vacant() -> Self {
        Self {
            token: 0,
            client: 0,
            deadline: NEVER,
            since: 0,
            ttl_ms: 0,
            links: Links::default(),
            prev: NIL,
            next: NIL,
            lock: NIL,
            leader: NIL,
            next_in_group: NIL,
            session: NIL,
            prev_in_session: NIL,
            next_in_session: NIL,
            owner_hash: 0,
            owner_chain: NIL,
            token_chain: NIL,
            state: ClaimState::Vacant,
            exclusive: false,
        }
    }

    fn free_link(&mut self) -> &mut u32 {
        &mut self.next
    }
}

/// Shared holds by lock and client.
pub(crate) struct ByOwner;

impl Key<Claim> for ByOwner {
    fn hash(entry: &Claim) -> u32 {
        entry.owner_hash
    }
    fn chain(entry: &Claim) -> u32 {
        entry.owner_chain
    }
    fn set_chain(entry: &mut Claim, next: u32) {
        entry.owner_chain = next;
    }
}

/// Shared holds by token.
pub(crate) struct ByToken;

impl Key<Claim> for ByToken {
    fn hash(entry: &Claim) -> u32 {
        super::hash::spread(entry.token)
    }
    fn chain(entry: &Claim) -> u32 {
        entry.token_chain
    }
    fn set_chain(entry: &mut Claim, next: u32) {
        entry.token_chain = next;
    }
}

/// A list of claims: first in, first out, and any can leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) head: u32,
    tail: u32,
    pub(crate) len: u32,
}

impl Line {
    const EMPTY: Self = Self {
        head: NIL,
        tail: NIL,
        len: 0,
    };

    pub(crate) fn push_back(&mut self, claims: &mut Slab<Claim>, id: u32) {
        claims[id].prev = self.tail;
        claims[id].next = NIL;
        match self.tail {
            NIL => self.head = id,
            tail => claims[tail].next = id,
        }
        self.tail = id;
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, claims: &mut Slab<Claim>, id: u32) {
        let (prev, next) = (claims[id].prev, claims[id].next);
        match prev {
            NIL => self.head = next,
            prev => claims[prev].next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => claims[next].prev = prev,
        }
        self.len -= 1;
    }
}

impl Queue {
    /// That of a lock that is neither contended nor shared.
    pub(crate) const EMPTY: Self = Self {
        waiting: Line::EMPTY,
        sharing: Line::EMPTY,
        places: 1,
        free: NIL,
    };

    /// Whether the number of places leaves room for one more sharer.
    pub(crate) fn has_place(&self) -> bool {
        self.places == 1 || self.sharing.len < u32::from(self.places)
    }

    /// The mode of its shared holds.
    pub(crate) fn shared_mode(&self) -> Mode {
        match self.places {
            1 => Mode::Shared,
            of => Mode::Place { of },
        }
    }

    /// Whether its sharers keep out the one who is next.
    pub(crate) fn keeps_out(&self, exclusive: bool) -> bool {
        self.sharing.len != 0 && (exclusive || !self.has_place())
    }
}

/// The part of a lock that it needs when it is contended or shared.
pub(crate) struct Queue {
    pub(crate) waiting: Line,
    pub(crate) sharing: Line,
    /// The places of a semaphore; 1 for every other lock.
    pub(crate) places: u16,
    free: u32,
}

impl Slot for Queue {
    fn vacant() -> Self {
        Self::EMPTY
    }

    fn free_link(&mut self) -> &mut u32 {
        &mut self.free
    }
}

/// A piece of a name that does not fit into its lock.
pub(crate) struct Block {
    bytes: [u8; Self::LEN],
    next: u32,
}

impl Block {
    const LEN: usize = 60;
}

impl Slot for Block {
    fn vacant() -> Self {
        Self {
            bytes: [0; Self::LEN],
            next: NIL,
        }
    }

    fn free_link(&mut self) -> &mut u32 {
        &mut self.next
    }
}

/// Blocks that a name of this length needs.
pub(crate) fn blocks_for(name_len: usize) -> usize {
    if name_len <= NAME_INLINE {
        0
    } else {
        (name_len - NAME_PREFIX).div_ceil(Block::LEN)
    }
}

impl Lock {
    /// Whether there is an exclusive holder.
    #[inline]
    pub(crate) fn is_exclusive(&self) -> bool {
        self.token != 0
    }

    /// Bytes of the name.
    pub(crate) fn name_len(&self) -> usize {
        self.name_len.into()
    }

    fn first_block(&self) -> u32 {
        let [.., a, b, c, d] = self.name;
        u32::from_le_bytes([a, b, c, d])
    }

    /// Writes the name; it must be at most 65535 bytes long.
    #[inline]
    pub(crate) fn set_name(&mut self, blocks: &mut Slab<Block>, name: &[u8]) {
        self.name_len = name.len() as u16;
        if name.len() <= NAME_INLINE {
            copy_short(&mut self.name, name);
        } else {
            self.set_long_name(blocks, name);
        }
    }

    fn set_long_name(&mut self, blocks: &mut Slab<Block>, name: &[u8]) {
        let (prefix, rest) = name.split_at(NAME_PREFIX);
        let mut next = NIL;
        for piece in rest.chunks(Block::LEN).rev() {
            let id = blocks.take();
            let block = &mut blocks[id];
            block.bytes[..piece.len()].copy_from_slice(piece);
            block.next = next;
            next = id;
        }
        self.name[..NAME_PREFIX].copy_from_slice(prefix);
        self.name[NAME_PREFIX..].copy_from_slice(&next.to_le_bytes());
    }

    /// Gives the name's blocks back.
    #[inline]
    pub(crate) fn drop_name(&self, blocks: &mut Slab<Block>) {
        if usize::from(self.name_len) > NAME_INLINE {
            let mut at = self.first_block();
            while at != NIL {
                let next = blocks[at].next;
                blocks.give(at);
                at = next;
            }
        }
    }

    #[inline]
    pub(crate) fn has_name(&self, blocks: &Slab<Block>, name: &[u8]) -> bool {
        if usize::from(self.name_len) != name.len() {
            return false;
        }
        match name.len() <= NAME_INLINE {
            true => same_short(&self.name, name),
            false => self.has_long_name(blocks, name),
        }
    }

    fn has_long_name(&self, blocks: &Slab<Block>, name: &[u8]) -> bool {
        let (prefix, rest) = name.split_at(NAME_PREFIX);
        let mut at = self.first_block();
        self.name[..NAME_PREFIX] == *prefix
            && rest.chunks(Block::LEN).all(|piece| {
                let block = &blocks[at];
                at = block.next;
                block.bytes[..piece.len()] == *piece
            })
    }

    /// Appends the name.
    pub(crate) fn name_into(&self, blocks: &Slab<Block>, out: &mut Vec<u8>) {
        let len = usize::from(self.name_len);
        if len <= NAME_INLINE {
            out.extend_from_slice(&self.name[..len]);
            return;
        }
        out.extend_from_slice(&self.name[..NAME_PREFIX]);
        let (mut left, mut at) = (len - NAME_PREFIX, self.first_block());
        while left > 0 {
            let piece = left.min(Block::LEN);
            out.extend_from_slice(&blocks[at].bytes[..piece]);
            left -= piece;
            at = blocks[at].next;
        }
    }
}

/// Copies a name of at most [`NAME_INLINE`] bytes, word by word, as names are too
/// short to be worth a call of memcpy.
#[inline]
fn copy_short(stored: &mut [u8; NAME_INLINE], name: &[u8]) {
    let Some(last) = name.last_chunk::<8>() else {
        return stored.iter_mut().zip(name).for_each(|(a, b)| *a = *b);
    };
    let (words, _) = name.as_chunks::<8>();
    let (own, _) = stored.as_chunks_mut::<8>();
    own.iter_mut().zip(words).for_each(|(a, b)| *a = *b);
    if let Some(end) = stored.get_mut(name.len() - 8..name.len()) {
        end.copy_from_slice(last);
    }
}

/// Whether `stored` starts with `name`, word by word: names are too short to be
/// worth a call of memcmp.
#[inline]
fn same_short(stored: &[u8; NAME_INLINE], name: &[u8]) -> bool {
    let Some(last) = name.last_chunk::<8>() else {
        return stored.iter().zip(name).all(|(a, b)| a == b);
    };
    let (words, _) = name.as_chunks::<8>();
    let (own, _) = stored.as_chunks::<8>();
    let end = stored.get(name.len() - 8..name.len());
    own.iter()
        .zip(words)
        .all(|(a, b)| u64::from_le_bytes(*a) == u64::from_le_bytes(*b))
        && end.and_then(|end| end.first_chunk::<8>()) == Some(last)
}
