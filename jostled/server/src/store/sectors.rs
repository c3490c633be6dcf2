//! Records in sectors of 512 bytes, of which a disk writes each whole or not at all.
//!
//! Each sector has its record's sequence number and a checksum, so that a reader can tell
//! a record whose writing a crash has cut (its sectors are new, or as they were before)
//! from one that was damaged afterwards.

use crate::table::HashKey;

pub(super) const SECTOR: usize = 512;
/// How a sector begins: the format and its version.
const MARK: [u8; 4] = *b"JLG\x02";
const HEAD: usize = 32;
const PAYLOAD: usize = SECTOR - HEAD - 8;
/// The bit beside a sector's length that tells a snapshot.
const SNAPSHOT: u32 = 1 << 31;

/// A record's name and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// It has everything: nothing before it is needed.
    pub(super) snapshot: bool,
    /// Larger than that of every record before.
    pub(super) sequence: u64,
    /// The sequence of the last record that was committed when it was written.
    pub(super) after: u64,
}

/// The content of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sector {
    Zero,
    /// Its checksum is wrong.
    Bad,
    /// Of a later version of the format.
    Newer,
    /// So many bytes of the record, and its number of so many.
    Whole(Head, usize, u32, u32),
}

/// Sectors of a record.
pub(super) fn count(payload: usize) -> usize {
    payload.div_ceil(PAYLOAD).max(1)
}

/// Writes a record to be stored at this offset.
pub(super) fn write(at: u64, head: Head, payload: &[u8]) -> Vec<u8> {
    let count = count(payload.len());
    let mut bytes = Vec::with_capacity(count * SECTOR);
    for index in 0..count {
        let begin = bytes.len();
        let rest = &payload[index * PAYLOAD..];
        let piece = &rest[..rest.len().min(PAYLOAD)];
        let flag = if head.snapshot { SNAPSHOT } else { 0 };
        bytes.extend(MARK);
        bytes.extend((piece.len() as u32 | flag).to_le_bytes());
        bytes.extend(head.sequence.to_le_bytes());
        bytes.extend(head.after.to_le_bytes());
        bytes.extend((index as u32).to_le_bytes());
        bytes.extend((count as u32).to_le_bytes());
        bytes.extend(piece);
        bytes.resize(begin + SECTOR - 8, 0);
        // The offset counts: a sector in the wrong place is a bad one.
        let key = HashKey(at + begin as u64, 0);
        let sum = key.hash(&bytes[begin..]);
        bytes.extend(sum.to_le_bytes());
    }
    bytes
}

/// Reads the sector at this offset.
fn read(at: u64, bytes: &[u8]) -> Sector {
    if bytes.iter().all(|byte| *byte == 0) {
        return Sector::Zero;
    }
    let (content, sum) = bytes.split_at(SECTOR - 8);
    let word = |from: usize| {
        let bytes = content[from..].first_chunk().copied();
        u32::from_le_bytes(bytes.unwrap_or_default())
    };
    let long = |from: usize| u64::from(word(from)) | u64::from(word(from + 4)) << 32;
    if content[..3] == MARK[..3] && content[3] > MARK[3] {
        return Sector::Newer;
    }
    let length = (word(4) & !SNAPSHOT) as usize;
    let whole = HashKey(at, 0).hash(content).to_le_bytes() == *sum;
    if !content.starts_with(&MARK) || !whole || length > PAYLOAD {
        return Sector::Bad;
    }
    let head = Head {
        snapshot: word(4) & SNAPSHOT != 0,
        sequence: long(8),
        after: long(16),
    };
    Sector::Whole(head, length, word(24), word(28))
}

/// The sectors of a file.
pub(super) struct Sectors<'b> {
    bytes: &'b [u8],
    found: Vec<Sector>,
}

impl<'b> Sectors<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        let sectors = bytes.chunks_exact(SECTOR).enumerate();
        let found = sectors.map(|(index, sector)| read((index * SECTOR) as u64, sector));
        Self {
            bytes,
            found: found.collect(),
        }
    }

    pub(super) fn has(&self, wanted: Sector) -> bool {
        self.found.contains(&wanted)
    }

    pub(super) fn heads(&self) -> impl Iterator<Item = Head> {
        self.found.iter().filter_map(|sector| match sector {
            Sector::Whole(head, ..) => Some(*head),
            _ => None,
        })
    }

    /// The record that begins at a sector, if it is whole: its payload, and the sector
    /// behind it.
    pub(super) fn record(&self, first: usize) -> Option<(Head, Vec<u8>, usize)> {
        let Some(Sector::Whole(head, _, 0, count)) = self.found.get(first).copied() else {
            return None;
        };
        let mut payload = Vec::new();
        for (index, at) in (0..count).zip(first..) {
            let sector = *self.found.get(at)?;
            let Sector::Whole(own, length, place, of) = sector else {
                return None;
            };
            if (own, place, of) != (head, index, count) {
                return None;
            }
            let begin = at * SECTOR + HEAD;
            payload.extend(&self.bytes[begin..begin + length]);
        }
        Some((head, payload, first + count as usize))
    }

    /// The newest snapshot that is whole, and its sector.
    pub(super) fn snapshot(&self) -> Option<usize> {
        let begins = (0..self.found.len()).filter_map(|at| match self.found[at] {
            Sector::Whole(head, _, 0, _) if head.snapshot => Some((head.sequence, at)),
            _ => None,
        });
        let whole = begins.filter(|(_, at)| self.record(*at).is_some());
        whole.max().map(|(_, at)| at)
    }
}
