//! The data directory's file, damaged in every way that a disk or a crash can damage it.

use super::*;

fn opened(directory: &Path) -> Opened {
    FileStore::open(directory, false).unwrap()
}

#[test]
fn a_start_begins_where_the_last_reservation_ended() {
    let directory = tempfile::tempdir().unwrap();
    for expected in [1, 100, 200] {
        let Opened {
            mut store, first, ..
        } = opened(directory.path());
        assert_eq!(first, expected);
        store.reserve(expected / 100 * 100 + 50).unwrap();
        store.reserve(expected / 100 * 100 + 100).unwrap();
    }
}

/// A file, and what must not be given out again.
struct State {
    bytes: Vec<u8>,
    own: u64,
    first: u64,
    end_of_leases: Option<u64>,
}

/// The instant at which files are read.
const NOW: u64 = 100_000 * MS;

impl State {
    fn read(store: &mut FileStore) -> Self {
        let bytes = contents(&mut store.file).unwrap();
        let own = identity(&store.file).unwrap();
        let found = Content::read(&bytes, boot(), own).unwrap();
        assert!(found.faults.is_empty() && bytes.len() == FILE);
        Self {
            bytes,
            own,
            first: found.first,
            end_of_leases: leases_end(&found.earlier, NOW, HOUR_MS),
        }
    }

    /// Reads these bytes in its place, which must allow no more than it did. `None`: they
    /// are refused.
    fn judge(&self, bytes: &[u8], what: &str) -> Option<Content> {
        let found = Content::read(bytes, boot(), self.own)?;
        assert!(found.first >= self.first, "{what}: {}", found.first);
        let end = leases_end(&found.earlier, NOW, HOUR_MS);
        assert!(end >= self.end_of_leases, "{what}: {end:?}");
        Some(found)
    }
}

/// The states of a file in which ranges and promises follow each other.
fn life(store: &mut FileStore, first: u64, promises: &[u64]) -> Vec<State> {
    let mut states = vec![State::read(store)];
    for (range, longest_ms) in (1..).zip(promises) {
        store.reserve(first + range * RANGE).unwrap();
        states.push(State::read(store));
        let (longest_ms, until) = (*longest_ms, NOW - MS);
        store.promise(Promise { longest_ms, until }).unwrap();
        states.push(State::read(store));
    }
    states
}

/// The file from its creation to a clean end, and then that of an accepted copy.
fn lives() -> [Vec<State>; 2] {
    let parent = tempfile::tempdir().unwrap();
    let (data, copy) = (parent.path().join("data"), parent.path().join("copy"));
    let mut store = opened(&data).store;
    let own = life(&mut store, 1, &[30_000, 60_000, 60_000, 2000, 0]);
    fs::create_dir(&copy).unwrap();
    fs::copy(data.join("tokens"), copy.join("tokens")).unwrap();
    let Opened {
        mut store,
        first,
        earlier,
        ..
    } = FileStore::open(&copy, true).unwrap();
    assert_eq!(earlier, [Promise::UNKNOWN]);
    store.reserve(first).unwrap();
    store.promise(Promise::default()).unwrap();
    [own, life(&mut store, first, &[30_000])]
}

/// One flipped bit of the newest record, or a file cut to 256 bytes, gave tokens out again
/// without a word, 2^40 of them after `--restored`; one cut to 1024 bytes let every lease
/// be granted at once.
#[test]
fn each_flipped_bit_and_each_length_is_noticed_and_gives_nothing_out_again() {
    for state in lives().iter().flat_map(|states| states.iter().step_by(2)) {
        for length in 0..FILE {
            let what = format!("{length} bytes");
            let found = state.judge(&state.bytes[..length], &what);
            assert!(found.is_none_or(|found| !found.faults.is_empty()), "{what}");
        }
        for bit in 0..8 * FILE {
            let mut bytes = state.bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = state.judge(&bytes, &format!("bit {bit}")).unwrap();
            assert!(!found.faults.is_empty(), "bit {bit}");
            // A crash in the middle of the next write leaves the other record.
            let sector = bit / 8 / SECTOR;
            assert_eq!(found.write_first[sector / 2], sector % 2, "bit {bit}");
        }
    }
}

#[test]
fn a_write_that_is_lost_or_torn_gives_nothing_out_again() {
    for states in lives() {
        for two in states.windows(2) {
            let [before, after] = two else { continue };
            // Nothing was granted yet that needs what is being written. A shorter promise is
            // right in advance.
            let least = State {
                bytes: Vec::new(),
                end_of_leases: before.end_of_leases.min(after.end_of_leases),
                ..*before
            };
            for sector in 0..4 {
                let (start, end) = (sector * SECTOR, (sector + 1) * SECTOR);
                let mut lost = after.bytes.clone();
                lost[start..end].copy_from_slice(&before.bytes[start..end]);
                let found = after
                    .judge(&lost, &format!("sector {sector} lost"))
                    .unwrap();
                assert!(lost == after.bytes || !found.faults.is_empty());
                for at in start..=end {
                    let mut torn = before.bytes.clone();
                    torn[start..at].copy_from_slice(&after.bytes[start..at]);
                    least.judge(&torn, &format!("torn at {at}")).unwrap();
                    let mut torn = lost.clone();
                    torn[start..at].copy_from_slice(&after.bytes[start..at]);
                    least
                        .judge(&torn, &format!("the second torn at {at}"))
                        .unwrap();
                }
            }
        }
    }
}

#[test]
fn a_file_of_an_earlier_version_goes_on_and_if_it_has_no_promise_the_start_waits() {
    let read = |tokens: [&[u8]; 2], promise: &[u8]| {
        let bytes = [&sector(tokens[0])[..], &sector(tokens[1]), promise].concat();
        let found = Content::read(&bytes, 5, 7).unwrap();
        assert!(!found.faults.is_empty());
        found
    };
    // Its two records of tokens were written in turn.
    let (new, old) = (seal(OLD_MAGIC, [2, 200]), seal(OLD_MAGIC, [1, 100]));
    let promise = seal(PROMISE_MAGIC, [5, 7, 30_000, NOW]);
    let found = read([&new, &old], &promise);
    let kept = Promise {
        longest_ms: 30_000,
        until: NOW,
    };
    assert_eq!(found.earlier, [kept]);
    assert_eq!((found.first, found.write_first[TOKENS]), (200, 1));
    // It made no promise, or had just been made.
    for tokens in [[&new[..], &old], [&seal(OLD_MAGIC, [0, 1]), &[]]] {
        let found = read(tokens, &[]);
        assert_eq!(found.earlier, [Promise::UNKNOWN]);
        assert!(found.first > SKIPPED);
    }
}

#[test]
fn a_damaged_file_stops_the_start_and_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    for bytes in [&b""[..], b"short", &[0; 1024]] {
        fs::write(directory.path().join("tokens"), bytes).unwrap();
        let error = FileStore::open(directory.path(), false).err().unwrap();
        assert!(matches!(error, StoreError::Damaged(_)));
        assert!(error.to_string().contains("delete it"), "{error}");
    }
}

#[test]
fn a_directory_that_vanishes_is_made_anew_with_all_it_said() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("data");
    let mut store = opened(&directory).store;
    store.reserve(100).unwrap();
    let promise = Promise {
        longest_ms: 30_000,
        until: 7,
    };
    store.promise(promise).unwrap();
    assert!(!store.check().unwrap());
    fs::remove_dir_all(&directory).unwrap();
    assert!(store.check().unwrap());
    fs::remove_file(directory.join("tokens")).unwrap();
    store.reserve(200).unwrap();
    assert!(matches!(
        FileStore::open(&directory, false),
        Err(StoreError::InUse(_))
    ));
    drop(store);
    let again = opened(&directory);
    assert_eq!(again.first, 200);
    assert_eq!(again.earlier, [promise; 2]);
}

#[test]
fn another_file_in_its_place_is_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = opened(directory.path()).store;
    store.reserve(100).unwrap();
    fs::remove_file(directory.path().join("tokens")).unwrap();
    let _other = opened(directory.path());
    let error = store.reserve(200).unwrap_err();
    assert!(error.to_string().contains("another file"), "{error}");
}

#[test]
fn two_daemons_cannot_share_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let first = opened(directory.path());
    assert!(matches!(
        FileStore::open(directory.path(), false),
        Err(StoreError::InUse(_))
    ));
    drop(first);
    opened(directory.path());
}

const MS: u64 = 1_000_000;
const HOUR_MS: u64 = 3_600_000;

#[test]
fn leases_end_after_the_rest_in_the_same_boot_and_after_all_of_it_in_another() {
    let same = |longest_ms, until_ms| Promise {
        longest_ms,
        until: until_ms * MS,
    };
    let other = |longest_ms| same(longest_ms, u64::MAX / MS);
    for (earlier, expected_ms) in [
        (&[][..], None),
        // The daemon could grant until 40 s at the latest, and it is 50 s.
        (&[same(30_000, 40_000)], Some(70_000)),
        (&[same(10_000, 40_000)], None),
        // It could go on until 60 s, and has ended.
        (&[same(30_000, 60_000)], Some(80_000)),
        (&[same(0, 60_000)], None),
        (&[other(30_000)], Some(80_000)),
        (&[other(0)], None),
        // A crash came between the two records.
        (&[same(30_000, 40_000), same(60_000, 50_000)], Some(110_000)),
        (&[same(60_000, 50_000), other(0)], Some(110_000)),
        (&[Promise::UNKNOWN], Some(50_000 + HOUR_MS)),
        (&[other(u64::MAX)], Some(50_000 + HOUR_MS)),
    ] {
        let found = leases_end(earlier, 50_000 * MS, HOUR_MS);
        assert_eq!(found.map(|end| end / MS), expected_ms, "{earlier:?}");
    }
}

#[test]
fn a_copy_of_the_file_is_refused_until_it_is_accepted() {
    let parent = tempfile::tempdir().unwrap();
    let (data, copy) = (parent.path().join("data"), parent.path().join("copy"));
    let mut store = opened(&data).store;
    store.reserve(100).unwrap();
    store.promise(Promise::default()).unwrap();
    fs::create_dir(&copy).unwrap();
    fs::copy(data.join("tokens"), copy.join("tokens")).unwrap();
    let error = FileStore::open(&copy, false).err().unwrap();
    assert!(error.to_string().contains("--restored"), "{error}");
    let mut accepted = FileStore::open(&copy, true).unwrap();
    assert_eq!(accepted.first, 100 + SKIPPED);
    accepted.store.reserve(accepted.first).unwrap();
    accepted.store.promise(Promise::default()).unwrap();
    drop(accepted);
    assert_eq!(opened(&copy).first, 100 + SKIPPED);
    // A moved file is no copy.
    drop(store);
    fs::rename(&data, parent.path().join("moved")).unwrap();
    assert_eq!(opened(&parent.path().join("moved")).first, 100);
}
