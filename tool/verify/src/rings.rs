//! The memory that keeper and clients of one run share: for each place of a client a ring of
//! entries, which the client fills and the keeper empties, and a few words.
//!
//! An entry is there as soon as it is written, whatever becomes of its client. What a failed call
//! said follows its entry as bytes.

use jostle_model::record::Promise;
use jostle_stats::verify::history::{Entry, Kind};
use jostle_sys::shared::{LINE, Region};
use jostle_sys::{clock, signal};
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Entries of a ring: those of 0.4 s at the highest rate of calls.
const ENTRIES: u64 = 16_384;
const ENTRY_BYTES: usize = 16;
/// Lines before a ring: what the client writes, and what the keeper does.
const OWN_LINES: usize = 2;
const PLACE: usize = OWN_LINES * LINE + ENTRIES as usize * ENTRY_BYTES;
/// Lines before all places: a few words, and the promise as text behind its length.
const HEAD: usize = 3;
const PROMISE_WORDS: usize = 2 * LINE / 8;

/// The longest text of a failed call, in bytes.
const TEXT: usize = 240;

/// How long a client waits for room before it loses an entry.
const ROOM_PATIENCE_NS: u64 = 5_000_000_000;
const ROOM_LOOK_NS: u64 = 200_000;

/// An entry of one line.
pub(crate) fn entry(client: u32, at_ns: u64, kind: Kind, key: u16, extra: u64) -> Entry {
    Entry {
        client,
        at_ns,
        kind,
        key,
        extra,
    }
}

/// The rings of all places.
#[derive(Debug)]
pub(crate) struct Rings {
    region: Region,
}

/// The words that the client of a place writes.
enum Own {
    /// Entries written so far.
    Written = 0,
    /// Entries lost and not noted yet.
    Lost = 1,
    /// The process group of the program that owns what the client asks for.
    Group = 2,
    /// The number of the lock that it owns, plus 1.
    Owned = 3,
    /// Whether it has a session.
    Ready = 4,
}

impl Rings {
    /// For so many places.
    ///
    /// # Errors
    /// The system's: no memory.
    pub(crate) fn new(places: usize) -> io::Result<Rings> {
        let region = Region::new(HEAD * LINE + places * PLACE)?;
        Ok(Rings { region })
    }

    /// Whether all have to end.
    fn ends(&self) -> &AtomicU32 {
        &self.region.words32(0, 1)[0]
    }

    /// When the run began, 0: not yet; and the sessions so far.
    fn shared(&self) -> &[AtomicU64] {
        self.region.words64(8, 2)
    }

    fn own(&self, place: usize, word: Own) -> &AtomicU64 {
        &self.region.words64(HEAD * LINE + place * PLACE, 5)[word as usize]
    }

    /// Entries that the keeper has taken.
    fn taken(&self, place: usize) -> &AtomicU64 {
        &self.region.words64(HEAD * LINE + place * PLACE + LINE, 1)[0]
    }

    fn entry(&self, place: usize, nth: u64) -> &[AtomicU64] {
        let ring = HEAD * LINE + place * PLACE + OWN_LINES * LINE;
        let at = (nth % ENTRIES) as usize * ENTRY_BYTES;
        self.region.words64(ring + at, 2)
    }

    /// Lets all clients begin.
    pub(crate) fn begin(&self, start_ns: u64) {
        self.shared()[0].store(start_ns, Release);
    }

    /// When the run began; None: not yet.
    pub(crate) fn start_ns(&self) -> Option<u64> {
        Some(self.shared()[0].load(Acquire)).filter(|start| *start > 0)
    }

    /// Tells all clients to end.
    pub(crate) fn end(&self) {
        self.ends().store(1, Release);
    }

    /// Whether they have been told.
    pub(crate) fn has_ended(&self) -> bool {
        self.ends().load(Acquire) == 1
    }

    /// A number that no session has had.
    pub(crate) fn next_session(&self) -> u64 {
        self.shared()[1].fetch_add(1, AcqRel)
    }

    /// What the lock itself promises, where it does.
    pub(crate) fn set_promise(&self, promise: &Promise) {
        let said = promise.to_string();
        let words = self.region.words64(LINE, PROMISE_WORDS);
        for (word, bytes) in words[1..].iter().zip(said.as_bytes().chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(eight), Relaxed);
        }
        words[0].store(said.len() as u64, Release);
    }

    /// What the lock itself promises; None: it has not said so.
    pub(crate) fn promise(&self) -> Option<Promise> {
        let words = self.region.words64(LINE, PROMISE_WORDS);
        let length = words[0].load(Acquire) as usize;
        let bytes = words[1..]
            .iter()
            .flat_map(|word| word.load(Relaxed).to_le_bytes());
        let bytes: Vec<u8> = bytes.take(length).collect();
        std::str::from_utf8(&bytes).ok()?.parse().ok()
    }

    /// A new client begins in this place.
    pub(crate) fn renew(&self, place: usize) {
        for word in [Own::Lost, Own::Group, Own::Owned, Own::Ready] {
            self.own(place, word).store(0, Release);
        }
    }

    pub(crate) fn set_ready(&self, place: usize, group: Option<u32>) {
        let group = group.map_or(0, u64::from);
        self.own(place, Own::Group).store(group, Release);
        self.own(place, Own::Ready).store(1, Release);
    }

    /// Whether its client has, or had, a session.
    pub(crate) fn is_ready(&self, place: usize) -> bool {
        self.own(place, Own::Ready).load(Acquire) == 1
    }

    /// The process group of the program that owns what its client asks for; None if that is the
    /// client itself.
    pub(crate) fn group(&self, place: usize) -> Option<u32> {
        let group = self.own(place, Own::Group).load(Acquire);
        u32::try_from(group).ok().filter(|group| *group > 0)
    }

    /// Whether its client owns a lock now.
    pub(crate) fn owns(&self, place: usize) -> bool {
        self.own(place, Own::Owned).load(Acquire) > 0
    }

    /// Writes an entry of the client of this place, its only writer, and what a failed call said.
    /// Waits for room; where none comes, the entry is lost and counted.
    pub(crate) fn put(&self, place: usize, entry: &Entry, said: &str) {
        let said = &said.as_bytes()[..said.len().min(TEXT)];
        let needs = 1 + said.len().div_ceil(ENTRY_BYTES) as u64;
        let lost = self.own(place, Own::Lost);
        let patience_ns = clock::monotonic() + ROOM_PATIENCE_NS;
        // One more, for those that are lost.
        while self.room(place) < needs + 1 {
            if clock::monotonic() > patience_ns {
                lost.fetch_add(1, AcqRel);
                return;
            }
            clock::sleep(ROOM_LOOK_NS, signal::interrupted);
        }
        let missing = self.lost(place);
        if missing > 0 {
            let Entry {
                client, at_ns, key, ..
            } = *entry;
            let dropped = self::entry(client, at_ns, Kind::Dropped, key, missing);
            self.write(place, [dropped.words()].into_iter());
        }
        let [first, extra] = entry.words();
        let extra = if said.is_empty() {
            extra
        } else {
            said.len() as u64
        };
        let text = said.chunks(ENTRY_BYTES).map(|bytes| {
            let mut both = [0; ENTRY_BYTES];
            both[..bytes.len()].copy_from_slice(bytes);
            let both = u128::from_le_bytes(both);
            [both as u64, (both >> 64) as u64]
        });
        self.write(place, std::iter::once([first, extra]).chain(text));
        let owned = self.own(place, Own::Owned);
        match entry.kind {
            Kind::Granted => owned.store(u64::from(entry.key) + 1, Release),
            Kind::Release | Kind::Left | Kind::RenewLost => owned.store(0, Release),
            _ => {}
        }
    }

    /// How many entries are lost and not noted; 0 from then on.
    pub(crate) fn lost(&self, place: usize) -> u64 {
        self.own(place, Own::Lost).swap(0, AcqRel)
    }

    fn room(&self, place: usize) -> u64 {
        let written = self.own(place, Own::Written).load(Relaxed);
        ENTRIES - (written - self.taken(place).load(Acquire))
    }

    /// All of them at once, or none.
    fn write(&self, place: usize, entries: impl Iterator<Item = [u64; 2]>) {
        let written = self.own(place, Own::Written);
        let mut at = written.load(Relaxed);
        for words in entries {
            let entry = self.entry(place, at);
            entry[0].store(words[0], Relaxed);
            entry[1].store(words[1], Relaxed);
            at += 1;
        }
        written.store(at, Release);
    }

    /// Takes what has been written since. `said` gives a text its number.
    pub(crate) fn take(
        &self,
        place: usize,
        client: u32,
        mut said: impl FnMut(&str) -> u64,
        mut entry: impl FnMut(Entry),
    ) {
        let written = self.own(place, Own::Written).load(Acquire);
        let mut at = self.taken(place).load(Relaxed);
        let read = |at: u64| [0, 1].map(|word: usize| self.entry(place, at)[word].load(Relaxed));
        while at < written {
            let found = Entry::read(client, read(at));
            at += 1;
            // What a user's library has written over.
            let Some(mut found) = found else { continue };
            let fails = [Kind::AskFailed, Kind::RenewFailed, Kind::ReleaseFailed];
            if fails.contains(&found.kind) {
                let length = (found.extra as usize).min(TEXT);
                let slots = length.div_ceil(ENTRY_BYTES) as u64;
                let words = (at..(at + slots).min(written)).flat_map(read);
                let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
                bytes.truncate(length);
                found.extra = said(&String::from_utf8_lossy(&bytes));
                at += slots;
            }
            entry(found);
        }
        self.taken(place).store(at.min(written), Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(rings: &Rings, kind: Kind, at_ns: u64, extra: u64, said: &str) {
        rings.put(0, &entry(7, at_ns, kind, 3, extra), said);
    }

    fn taken(rings: &Rings) -> (Vec<(Kind, u64, u64)>, Vec<String>) {
        let (mut entries, mut texts) = (Vec::new(), Vec::new());
        let said = |text: &str| {
            texts.push(text.to_owned());
            texts.len() as u64 - 1
        };
        rings.take(0, 7, said, |found| {
            assert_eq!((found.client, found.key), (7, 3));
            entries.push((found.kind, found.at_ns, found.extra));
        });
        (entries, texts)
    }

    #[test]
    fn what_is_written_is_taken_once_and_texts_get_numbers() {
        let rings = Rings::new(2).unwrap();
        let words = "the server has ended the connection, ".repeat(3);
        for at in 0..3_000 {
            put(&rings, Kind::Ask, at, u64::MAX, "");
            put(&rings, Kind::AskFailed, at + 1, 0, &words);
            put(&rings, Kind::Granted, at + 2, 9, "");
            assert!(rings.owns(0) && !rings.owns(1));
            let (entries, texts) = taken(&rings);
            let [ask, failed] = [(Kind::Ask, at, u64::MAX), (Kind::AskFailed, at + 1, 0)];
            assert_eq!(entries, [ask, failed, (Kind::Granted, at + 2, 9)]);
            assert_eq!(texts, [words.as_str()]);
        }
        assert_eq!(taken(&rings), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_promise_is_read_as_it_was_set() {
        let rings = Rings::new(1).unwrap();
        assert_eq!(rings.promise(), None);
        for typed in [
            "by=process",
            "by=lease,lease=1234567us,step=1s,restart,tokens",
        ] {
            let promise: Promise = typed.parse().unwrap();
            rings.set_promise(&promise);
            assert_eq!(rings.promise(), Some(promise));
        }
    }

    #[test]
    fn a_full_ring_makes_its_client_wait_and_then_count() {
        let rings = Rings::new(1).unwrap();
        (0..ENTRIES - 1).for_each(|at| put(&rings, Kind::Ask, at, 0, ""));
        // Nobody takes any.
        put(&rings, Kind::Refused, ENTRIES, 0, "");
        assert_eq!(taken(&rings).0.len() as u64, ENTRIES - 1);
        put(&rings, Kind::Ask, 5, 0, "");
        assert_eq!(taken(&rings).0, [(Kind::Dropped, 5, 1), (Kind::Ask, 5, 0)]);
    }
}
