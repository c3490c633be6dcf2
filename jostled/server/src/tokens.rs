//! Where fencing tokens come from: ranges that are on disk before they are used.
//!
//! The file `tokens` of the data directory holds a number below which tokens may have
//! been given out. A start reads it and begins there, so that no token is given out
//! twice and none is smaller than an earlier one, however the process ended; reserved
//! tokens that were not used are skipped. At a million grants a second the 63 bits last
//! 290,000 years.
//!
//! Two records of one sector each are written in turn, each with a checksum: a
//! crash in the middle of a write leaves the other one whole. The record counts
//! only after `fdatasync`; if that fails, nothing is granted from the range.
//! The file is locked, so that two daemons cannot share it.
//!
//! A third sector holds the [`Promise`] about leases, with the boot and the file that it
//! was written in: a copy of the file, such as a restored backup, has another inode, and
//! tokens may have been given out since it was copied.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// How many tokens are reserved at a time. Half of it is left when the next
/// range is asked for: at four million grants a second that leaves the disk
/// half a second.
pub const RANGE: u64 = 1 << 22;

/// No token is ever this large: replies are signed 64-bit numbers.
pub const END: u64 = i64::MAX as u64;

/// Storage that survives crashes, for the number below which tokens may have been given out.
pub trait TokenStore: Send {
    /// Remembers that tokens below `end` may be given out.
    ///
    /// # Errors
    /// Why it is not durable; then no token of the range may be given out.
    fn reserve(&mut self, end: u64) -> io::Result<()>;

    /// Checks that the next start will find what was stored, and restores it if that is
    /// possible. Returns whether it had to.
    ///
    /// # Errors
    /// Why the next start will not find it.
    fn check(&mut self) -> io::Result<bool> {
        Ok(false)
    }

    /// Remembers how long leases can run, across a crash of this program, and, if the
    /// longest lease grows, also across one of the machine.
    ///
    /// # Errors
    /// Why it is not remembered; then the promise must not be used.
    fn promise(&mut self, _: Promise) -> io::Result<()> {
        Ok(())
    }

    /// The file in which it remembers, with the lock on it, for a program that takes
    /// over.
    ///
    /// # Errors
    /// There is no such file, or the system's error.
    fn file(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// What a start must know of the leases of the program before: all of them have ended
/// `longest_ms` after the last instant at which one could be granted or renewed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// No lease, and no session, is longer.
    pub longest_ms: u64,
    /// No lease begins or is renewed later, in nanoseconds of the monotonic clock.
    pub until: u64,
}

/// The promise that a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Earlier {
    /// None: no program that makes promises has used the file.
    Nothing,
    /// It cannot be read.
    Damaged,
    /// One of this boot of the machine.
    SameBoot(Promise),
    /// One of another boot, whose clock says nothing.
    OtherBoot(Promise),
}

impl Earlier {
    /// The instant before which leases of the program before may still run; `None`: none
    /// can. No lease is longer than `max_ttl_ms`.
    pub(crate) fn leases_end(self, now: u64, max_ttl_ms: u64) -> Option<u64> {
        let after = |from: u64, ms: u64| from.saturating_add(ms.saturating_mul(1_000_000));
        let end = match self {
            Self::Nothing => return None,
            Self::Damaged => u64::MAX,
            Self::SameBoot(promise) if promise.longest_ms > 0 => {
                after(promise.until, promise.longest_ms)
            }
            Self::OtherBoot(promise) => after(now, promise.longest_ms),
            Self::SameBoot(_) => return None,
        };
        Some(end.min(after(now, max_ttl_ms))).filter(|end| *end > now)
    }
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A system call has failed.
    #[error("{}: cannot {call}: {error}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The call.
        call: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// Another daemon has it.
    #[error("{}: in use by another jostled", .0.display())]
    InUse(PathBuf),
    /// The file exists, but neither of its records is whole.
    #[error(
        "{}: no valid record; starting without it could repeat fencing tokens. Restore the \
         file, or, if no client remembers a token of this daemon, delete it", .0.display()
    )]
    Damaged(PathBuf),
    /// The file is a copy of the one that was written.
    #[error(
        "{}: a copy, such as a restored backup: tokens that were given out after it was made \
         would be given out again. If that was nothing but a move, or for a first start \
         after a loss, give --restored once: tokens then go on 2^40 later", .0.display()
    )]
    Copied(PathBuf),
}

/// The file `tokens` of a data directory.
#[derive(Debug)]
pub(crate) struct FileStore {
    directory: PathBuf,
    file: File,
    /// The number in the file.
    end: u64,
    /// Which record the next write replaces, and its number.
    generation: u64,
    promised: Promise,
}

/// What a data directory holds.
pub(crate) struct Opened {
    pub(crate) store: FileStore,
    /// The first token that was never given out.
    pub(crate) first: u64,
    pub(crate) earlier: Earlier,
}

const SECTOR: u64 = 512;
const MAGIC: &[u8; 8] = b"JOSTLED1";
const RECORD: usize = 32;
const PROMISE_MAGIC: &[u8; 8] = b"JOSTLEDP";
/// Tokens that are skipped when a copy of the file is accepted.
const SKIPPED: u64 = 1 << 40;

/// A number for the machine's current boot.
fn boot() -> u64 {
    let id = fs::read("/proc/sys/kernel/random/boot_id");
    id.map_or(0, |id| checksum(&id))
}

/// A number for a file that its copies do not have.
fn identity(file: &File) -> io::Result<u64> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let found = statx(file, "", AtFlags::EMPTY_PATH, wanted)?;
    let born = (found.stx_btime.tv_sec, found.stx_btime.tv_nsec);
    Ok(checksum(format!("{} {born:?}", found.stx_ino).as_bytes()))
}

/// The promise in the third sector, and the identity of the file that it was written to.
fn decode_promise(record: &[u8], boot: u64) -> (Earlier, Option<u64>) {
    if record.iter().all(|byte| *byte == 0) {
        return (Earlier::Nothing, None);
    }
    let Some([of, identity, longest_ms, until]) = unseal(PROMISE_MAGIC, record) else {
        return (Earlier::Damaged, None);
    };
    let promise = Promise { longest_ms, until };
    let earlier = match of == boot {
        true => Earlier::SameBoot(promise),
        false => Earlier::OtherBoot(promise),
    };
    (earlier, Some(identity))
}

/// A record: what it is, numbers, and a checksum of both.
fn seal<const NUMBERS: usize>(magic: &[u8; 8], numbers: [u64; NUMBERS]) -> Vec<u8> {
    let mut record = magic.to_vec();
    record.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    record.extend(checksum(&record).to_le_bytes());
    record
}

/// The numbers of a record at the start of these bytes, if it is whole.
fn unseal<const NUMBERS: usize>(magic: &[u8; 8], bytes: &[u8]) -> Option<[u64; NUMBERS]> {
    let (sealed, sum) = bytes.get(..16 + 8 * NUMBERS)?.split_at(8 + 8 * NUMBERS);
    let whole = sealed.starts_with(magic) && sum == checksum(sealed).to_le_bytes();
    let mut words = sealed[8..].chunks_exact(8).map(|word| word.try_into());
    let numbers = std::array::from_fn(|_| match words.next() {
        Some(Ok(word)) => u64::from_le_bytes(word),
        _ => 0,
    });
    whole.then_some(numbers)
}

fn checksum(bytes: &[u8]) -> u64 {
    // FNV-1a: it must notice a torn or zeroed sector, not an adversary.
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl FileStore {
    /// Opens the store of a data directory, which is made if it does not exist. A copy
    /// of its file is accepted only if it was `restored` on purpose.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn open(directory: &Path, restored: bool) -> Result<Opened, StoreError> {
        fs::create_dir_all(directory).map_err(failed(directory, "create the data directory"))?;
        let path = directory.join("tokens");
        if !path.exists() {
            create(directory, &path, 1).map_err(failed(&path, "create"))?;
        }
        let file = open_file(&path).map_err(failed(&path, "open"))?;
        Self::adopt(directory, file, restored)
    }

    /// The store whose file is open already, and perhaps locked: the lock belongs to
    /// the open file, whichever process has its descriptors.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn adopt(
        directory: &Path,
        mut file: File,
        restored: bool,
    ) -> Result<Opened, StoreError> {
        let path = directory.join("tokens");
        let io = |call| failed(&path, call);
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(StoreError::InUse(path)),
            Err(fs::TryLockError::Error(error)) => return Err(io("lock")(error)),
        }
        let mut bytes = Vec::new();
        file.rewind().map_err(io("rewind"))?;
        let mut most = (&mut file).take(3 * SECTOR);
        most.read_to_end(&mut bytes).map_err(io("read"))?;
        let sectors = bytes.chunks(SECTOR as usize).take(2);
        let latest = sectors.filter_map(|sector| unseal(MAGIC, sector)).max();
        let [generation, end] = latest.ok_or_else(|| StoreError::Damaged(path.clone()))?;
        let third = bytes.get(2 * SECTOR as usize..).unwrap_or_default();
        let (earlier, written_to) = decode_promise(third, boot());
        let own = identity(&file).map_err(io("identify"))?;
        let copied = written_to.is_some_and(|written_to| written_to != own);
        if copied && !restored {
            return Err(StoreError::Copied(path));
        }
        let first = end.saturating_add(if copied { SKIPPED } else { 0 });
        let store = Self {
            directory: directory.to_owned(),
            file,
            end,
            generation: generation + 1,
            promised: Promise::default(),
        };
        Ok(Opened {
            store,
            first,
            earlier,
        })
    }

    /// Makes a vanished file anew, with the same content. This is done only on the same
    /// file system: below a mount point that has lost its own, the next start would not
    /// look, or would find an older file mounted over it.
    fn restore(&mut self) -> io::Result<()> {
        let own = self.file.metadata()?.dev();
        let there = self.directory.ancestors().find(|path| path.exists());
        let there = there.map(fs::metadata).transpose()?;
        if there.map(|found| found.dev()) != Some(own) {
            return Err(io::Error::other("its file system is not mounted any more"));
        }
        fs::create_dir_all(&self.directory)?;
        let path = self.directory.join("tokens");
        create(&self.directory, &path, self.end)?;
        let file = open_file(&path)?;
        file.try_lock()
            .map_err(|_| io::Error::other("in use by another jostled"))?;
        let mut record = [0; RECORD];
        file.read_exact_at(&mut record, 0)?;
        if unseal(MAGIC, &record) != Some([0, self.end]) {
            return Err(io::Error::other("another jostled has been here"));
        }
        (self.file, self.generation) = (file, 1);
        let promised = std::mem::take(&mut self.promised);
        self.promise(promised)
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// What has failed, from the system's error.
fn failed(path: &Path, call: &'static str) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |error| StoreError::Io { path, call, error }
}

/// Makes the file appear whole or not at all.
fn create(directory: &Path, path: &Path, end: u64) -> io::Result<()> {
    // Each start has a draft of its own. Another start may have linked its draft already,
    // and writing to that one would change the tokens in use.
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let unique = since_1970.unwrap_or_default().as_nanos();
    let draft = directory.join(format!("tokens.{}-{unique}.new", std::process::id()));
    let mut bytes = vec![0; 2 * SECTOR as usize];
    bytes[..RECORD].copy_from_slice(&seal(MAGIC, [0, end]));
    let mut file = File::create_new(&draft)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    // hard_link, unlike rename, never replaces what another start has made.
    match fs::hard_link(&draft, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => fs::remove_file(&draft)?,
    }
    File::open(directory)?.sync_all()
}

impl TokenStore for FileStore {
    fn file(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    fn reserve(&mut self, end: u64) -> io::Result<()> {
        self.check()?;
        let at = self.generation % 2 * SECTOR;
        self.file
            .write_all_at(&seal(MAGIC, [self.generation, end]), at)?;
        self.file.sync_data()?;
        // Only now: a failed write is tried again over the same record, so that
        // the other one stays whole.
        self.generation += 1;
        self.end = end;
        Ok(())
    }

    fn promise(&mut self, promise: Promise) -> io::Result<()> {
        let numbers = [
            boot(),
            identity(&self.file)?,
            promise.longest_ms,
            promise.until,
        ];
        let record = seal(PROMISE_MAGIC, numbers);
        self.file.write_all_at(&record, 2 * SECTOR)?;
        // What a crash of the machine forgets may be too long, not too short.
        if promise.longest_ms > self.promised.longest_ms {
            self.file.sync_data()?;
        }
        self.promised = promise;
        Ok(())
    }

    fn check(&mut self) -> io::Result<bool> {
        let path = self.directory.join("tokens");
        match fs::metadata(&path) {
            Ok(found) => {
                let own = self.file.metadata()?;
                if (found.dev(), found.ino()) == (own.dev(), own.ino()) {
                    return Ok(false);
                }
                Err(io::Error::other("another file stands in its place"))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.restore().map(|()| true),
            Err(error) => Err(error),
        }
        .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_torn_record_leaves_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        let mut store = opened(directory.path()).store;
        store.reserve(100).unwrap();
        store.reserve(200).unwrap();
        drop(store);
        let whole = fs::read(&path).unwrap();
        // Record 2, the latest, has replaced record 0.
        for at in 0..RECORD {
            let mut torn = whole.clone();
            torn[at] ^= 0x40;
            fs::write(&path, &torn).unwrap();
            assert_eq!(opened(directory.path()).first, 100, "byte {at}");
        }
        fs::write(&path, &whole).unwrap();
        assert_eq!(opened(directory.path()).first, 200);
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
        assert_eq!(opened(&directory).first, 200);
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
        let promise = |longest_ms, until_ms| Promise {
            longest_ms,
            until: until_ms * MS,
        };
        for (earlier, expected_ms) in [
            (Earlier::Nothing, None),
            // The daemon ran until 40 s at the latest, and it is 50 s.
            (Earlier::SameBoot(promise(30_000, 40_000)), Some(70_000)),
            (Earlier::SameBoot(promise(10_000, 40_000)), None),
            (Earlier::SameBoot(promise(0, 60_000)), None),
            (Earlier::OtherBoot(promise(30_000, 1)), Some(80_000)),
            (Earlier::OtherBoot(promise(0, 1)), None),
            (Earlier::Damaged, Some(50_000 + HOUR_MS)),
            // Longer than any lease may be.
            (
                Earlier::SameBoot(promise(30_000, u64::MAX / MS)),
                Some(50_000 + HOUR_MS),
            ),
        ] {
            let found = earlier.leases_end(50_000 * MS, HOUR_MS);
            assert_eq!(found.map(|end| end / MS), expected_ms, "{earlier:?}");
        }
    }

    #[test]
    fn a_promise_is_found_again_with_its_boot_and_a_torn_one_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        let mut first = opened(directory.path());
        assert_eq!(first.earlier, Earlier::Nothing);
        let promise = Promise {
            longest_ms: 30_000,
            until: 7,
        };
        first.store.promise(promise).unwrap();
        drop(first);
        let again = opened(directory.path());
        assert_eq!(again.earlier, Earlier::SameBoot(promise));
        let own = identity(&again.store.file).unwrap();
        drop(again);
        let write = |record: &[u8]| {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(record, 2 * SECTOR).unwrap();
        };
        let numbers = [boot() ^ 1, own, promise.longest_ms, promise.until];
        write(&seal(PROMISE_MAGIC, numbers));
        assert_eq!(
            opened(directory.path()).earlier,
            Earlier::OtherBoot(promise)
        );
        write(b"JOSTLEDQ");
        assert_eq!(opened(directory.path()).earlier, Earlier::Damaged);
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
}
