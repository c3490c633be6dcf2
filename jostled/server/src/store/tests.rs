//! A log on a disk that loses what was not synced, in every order of its sectors.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use super::file::{Content, Disk, FileLog};
use super::sectors::SECTOR;
use super::*;

/// 24 sectors for each half.
const HALF: u64 = 24 * SECTOR as u64;
const OWN: u64 = 7;

/// A disk's content, and what it may lose.
#[derive(Clone, Debug, Default)]
struct Media {
    synced: Vec<u8>,
    /// Sectors written since, in their order.
    pending: Vec<(usize, [u8; SECTOR])>,
    /// The states that a crash may have left at the latest sync.
    crashes: Vec<Vec<u8>>,
    /// Bytes that there is room for.
    room: usize,
    syncs_fail: bool,
}

impl Media {
    /// The bytes if of what is pending only this is kept.
    fn crash(&self, kept: impl Fn(usize) -> bool) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        let pending = self.pending.iter().enumerate();
        for (_, (sector, content)) in pending.filter(|(at, _)| kept(*at)) {
            let end = (sector + 1) * SECTOR;
            bytes.resize(bytes.len().max(end), 0);
            bytes[end - SECTOR..end].copy_from_slice(content);
        }
        bytes
    }

    /// Every subset of few sectors; of many each prefix, each suffix, and each without one.
    fn crashes(&self) -> Vec<Vec<u8>> {
        let count = self.pending.len();
        if count <= 8 {
            return (0..1_u32 << count)
                .map(|set| self.crash(|at| set >> at & 1 == 1))
                .collect();
        }
        let ways = (0..=count).flat_map(|cut| {
            [
                self.crash(|at| at < cut),
                self.crash(|at| at >= cut),
                self.crash(|at| at != cut),
            ]
        });
        ways.collect()
    }
}

#[derive(Clone, Debug)]
struct Memory(Arc<Mutex<Media>>);

impl Memory {
    fn holding(synced: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(Media {
            synced,
            room: usize::MAX,
            ..Media::default()
        })))
    }

    fn open(&self) -> (FileLog<Memory>, Content) {
        FileLog::on(self.clone(), OWN, HALF).unwrap()
    }
}

impl Disk for Memory {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().crash(|_| true).len() as u64)
    }

    fn set_length(&mut self, length: u64) -> io::Result<()> {
        let mut media = self.0.lock().unwrap();
        let end = length as usize / SECTOR;
        media.pending.retain(|(sector, _)| *sector < end);
        media.synced.truncate(length as usize);
        Ok(())
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        Ok(self.0.lock().unwrap().crash(|_| true))
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut media = self.0.lock().unwrap();
        if at as usize + bytes.len() > media.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let first = at as usize / SECTOR;
        let sectors = bytes
            .chunks_exact(SECTOR)
            .map(|sector| sector.try_into().unwrap());
        media.pending.extend((first..).zip(sectors));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut media = self.0.lock().unwrap();
        if media.syncs_fail {
            return Err(io::Error::other("lost"));
        }
        media.crashes = media.crashes();
        media.synced = media.crash(|_| true);
        media.pending.clear();
        Ok(())
    }

    fn descriptor(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn session(number: u64) -> Session {
    Session {
        user: format!("user{}", number % 3),
        id: u128::from(number) << 64,
    }
}

fn lease(token: u64, name_len: usize, ttl_ms: u64) -> Entry {
    let owner = Owner::Lease {
        ttl_ms,
        user: "default".to_owned(),
    };
    let (name, mode) = (vec![token as u8; name_len], Mode::Exclusive);
    Entry::Begun(token, Hold { name, mode, owner })
}

/// The batches of some time, in which sessions and leases come and go.
fn batches(seed: u64, count: u64) -> Vec<Vec<Entry>> {
    let mut state = seed;
    let mut roll = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let (mut token, mut live) = (0, Vec::new());
    let mut batch = |_| {
        let mut entries = Vec::new();
        for _ in 0..1 + roll(3) {
            token += 1;
            match roll(6) {
                0 => entries.push(Entry::Opened(
                    session(roll(6)),
                    1000 + roll(9),
                    String::new(),
                )),
                1 => entries.push(Entry::Closed(session(roll(6)))),
                2 if !live.is_empty() => {
                    entries.push(Entry::Renewed(live[0], 1 + roll(90_000)));
                }
                3 => {
                    let owner = Owner::Session(session(roll(6)));
                    let (name, mode) = (vec![1; 30], Mode::Shared);
                    entries.push(Entry::Begun(token, Hold { name, mode, owner }));
                }
                _ => {
                    live.push(token);
                    entries.push(lease(token, 1 + roll(700) as usize, 30_000));
                }
            }
            while live.len() > 3 {
                entries.push(Entry::Ended(live.remove(0)));
            }
        }
        entries
    };
    (0..count).map(&mut batch).collect()
}

impl Stored {
    fn apply_all(&mut self, batch: &[Entry]) {
        for entry in batch {
            self.apply(entry);
        }
    }
}

/// The holds and sessions that a start adopts, whatever run they are of.
/// Holds and sessions.
type Kept = (BTreeMap<u64, Hold>, BTreeMap<Session, (u64, String)>);

fn adopted(content: Content) -> Option<Kept> {
    match content {
        Content::Log(stored) => Some((stored.holds, stored.sessions)),
        Content::Empty => Some(Default::default()),
        _ => None,
    }
}

#[test]
fn what_is_settled_takes_as_many_bytes_as_if_it_had_begun_so() {
    let session = |id| Session {
        user: "ann".to_owned(),
        id,
    };
    let hold = |id| Hold {
        name: b"name".to_vec(),
        mode: Mode::Exclusive,
        owner: Owner::Session(session(id)),
    };
    let mut stored = Stored::default();
    stored.apply_all(&[
        Entry::Opened(session(1), 1000, String::new()),
        Entry::Opened(session(2), 1000, String::new()),
        Entry::Begun(1, hold(1)),
        Entry::Begun(2, hold(2)),
        Entry::Closed(session(1)),
    ]);
    stored.settle();
    assert_eq!(stored.holds.keys().collect::<Vec<_>>(), [&2]);
    let mut begun = Stored::default();
    begun.apply_all(&stored.entries());
    assert_eq!(stored.bytes, begun.bytes);
}

fn settled(stored: &Stored) -> Kept {
    let mut stored = stored.clone();
    stored.settle();
    (stored.holds, stored.sessions)
}

#[test]
fn whichever_sectors_a_crash_loses_the_log_is_as_before_or_after_its_last_batch() {
    let (mut torn, mut whole, mut begun) = (0, 0, 0);
    for seed in 0..2 {
        let memory = Memory::holding(Vec::new());
        let (mut log, content) = memory.open();
        assert_eq!(content, Content::Empty);
        log.begin(Stored::default(), (1, 0)).unwrap();
        let mut stored = Stored::default();
        for (number, batch) in batches(seed, 100).iter().enumerate() {
            let before = settled(&stored);
            assert_eq!(log.commit_if(batch).unwrap(), batch.len());
            stored.apply_all(batch);
            let after = settled(&stored);
            let media = memory.0.lock().unwrap().clone();
            // What is committed survives the loss of all that was not synced.
            assert_eq!(
                adopted(Memory::holding(media.synced.clone()).open().1),
                Some(after.clone())
            );
            for (way, image) in media.crashes.into_iter().enumerate() {
                let found = adopted(Memory::holding(image.clone()).open().1);
                let is_after = found.as_ref() == Some(&after);
                assert!(
                    is_after || found.as_ref() == Some(&before),
                    "{seed} {number} {way}"
                );
                *if is_after { &mut whole } else { &mut torn } += 1;
                // The next start crashes, too, while it begins.
                if way % 7 == number % 7 && before != after {
                    let second = Memory::holding(image);
                    let (mut again, _) = second.open();
                    let stored = Stored {
                        holds: found.clone().unwrap().0,
                        sessions: found.clone().unwrap().1,
                        ..Stored::default()
                    };
                    again.begin(stored, (2, 1)).unwrap();
                    let media = second.0.lock().unwrap().clone();
                    for image in media.crashes {
                        begun += 1;
                        assert_eq!(adopted(Memory::holding(image).open().1), found);
                    }
                }
            }
            memory.0.lock().unwrap().crashes.clear();
        }
    }
    assert!(
        torn > 100 && whole > 100 && begun > 1000,
        "{torn} {whole} {begun}"
    );
}

#[test]
fn damage_is_noticed_and_no_other_state_is_adopted() {
    for length in [1, 40, 90] {
        let memory = Memory::holding(Vec::new());
        let (mut log, _) = memory.open();
        log.begin(Stored::default(), (1, 0)).unwrap();
        let mut states = vec![Stored::default()];
        for batch in batches(length, length) {
            log.commit_if(&batch).unwrap();
            let mut next = states[states.len() - 1].clone();
            next.apply_all(&batch);
            states.push(next);
        }
        let bytes = memory.read().unwrap();
        let now = settled(&states[states.len() - 1]);
        // The last change, which a lost sector may undo as a crash does.
        let earlier = states.iter().rev().map(settled).find(|state| *state != now);
        let judge = |bytes: Vec<u8>, may_be_torn: bool, what: &str| {
            if let Some(found) = adopted(Memory::holding(bytes).open().1) {
                let torn = may_be_torn && Some(&found) == earlier.as_ref();
                assert!(found == now || torn, "{what}");
                return false;
            }
            true
        };
        let mut noticed = 0;
        for sector in 0..bytes.len() / SECTOR {
            let at = sector * SECTOR;
            for bit in [0, 40, 64, 130, 200, 1000, 4000, 4095] {
                let mut changed = bytes.clone();
                changed[at + bit / 8] ^= 1 << (bit % 8);
                let is_new = judge(changed, false, &format!("bit {bit} of sector {sector}"));
                noticed += usize::from(is_new);
            }
            let mut zeroed = bytes.clone();
            zeroed[at..at + SECTOR].fill(0);
            judge(zeroed, true, &format!("zeros in sector {sector}"));
            let mut moved = bytes.clone();
            moved.copy_within(0..SECTOR, at);
            judge(moved, sector == 0, &format!("another sector in {sector}"));
            // A file that is cut to nothing is told by its run.
            if sector > 0 {
                assert!(judge(
                    bytes[..at].to_vec(),
                    false,
                    &format!("{sector} sectors")
                ));
            }
        }
        assert_eq!(noticed, bytes.len() / SECTOR * 8, "each flipped bit");
    }
}

#[test]
fn a_full_disk_refuses_beginnings_and_goes_on_with_ends_and_renewals() {
    let memory = Memory::holding(Vec::new());
    memory.0.lock().unwrap().room = 2 * HALF as usize;
    let (mut log, _) = memory.open();
    log.begin(Stored::default(), (1, 0)).unwrap();
    let mut token = 0;
    while log.make_room().is_ok() {
        token += 1;
        log.commit_if(&[lease(token, 100, 1000)]).unwrap();
    }
    assert!(token > 10);
    for round in 0..500 {
        // Each becomes longer, so that it is written.
        log.commit_if(&[Entry::Renewed(1, 2000 + round)]).unwrap();
    }
    let big = lease(token + 1, 10_000, 1000);
    for _ in 0..2 {
        assert!(matches!(
            log.commit_if(std::slice::from_ref(&big)),
            Err(Failure::Full(_))
        ));
    }
    for ended in 2..=token {
        log.commit_if(&[Entry::Ended(ended)]).unwrap();
    }
    assert!(log.make_room().is_ok());
    let found = adopted(memory.open().1).unwrap().0;
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [1]);
    // With room it grows, and a start finds what the larger file has.
    memory.0.lock().unwrap().room = usize::MAX;
    for count in 2..200 {
        log.commit_if(&[lease(token + count, 100, 1000)]).unwrap();
        log.make_room().unwrap();
        let synced = memory.0.lock().unwrap().synced.clone();
        let found = adopted(Memory::holding(synced).open().1).unwrap().0;
        assert_eq!(found.len() as u64, count);
        // A start writes all of it anew, wherever the file has grown to.
        let second = Memory::holding(memory.read().unwrap());
        let (mut again, content) = second.open();
        assert!(
            matches!(content, Content::Log(stored) if again.begin(stored.clone(), (2, 1)).is_ok())
        );
        assert_eq!(adopted(second.open().1).unwrap().0, found);
    }
    assert!(memory.length().unwrap() > 2 * HALF);
    memory.0.lock().unwrap().syncs_fail = true;
    let lost = log.commit_if(&[Entry::Ended(1)]);
    assert!(matches!(lost, Err(Failure::Lost(_))));
}

#[test]
fn other_files_are_told_apart() {
    let memory = Memory::holding(vec![1; 4 * SECTOR]);
    assert_eq!(memory.open().1, Content::Foreign);
    let memory = Memory::holding(Vec::new());
    let (mut log, _) = memory.open();
    log.begin(Stored::default(), (1, 0)).unwrap();
    let mut bytes = memory.read().unwrap();
    bytes[3] += 1;
    assert_eq!(Memory::holding(bytes).open().1, Content::Newer);
    assert_eq!(
        Memory::holding(vec![0; 3 * SECTOR]).open().1,
        Content::Empty
    );
}
