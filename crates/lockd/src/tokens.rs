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

    /// The file in which it remembers, with the lock on it, for a program that takes
    /// over.
    ///
    /// # Errors
    /// There is no such file, or the system's error.
    fn file(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
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
}

const SECTOR: u64 = 512;
const MAGIC: &[u8; 8] = b"JOSTLED1";
const RECORD: usize = 32;

fn checksum(bytes: &[u8]) -> u64 {
    // FNV-1a: it must notice a torn or zeroed sector, not an adversary.
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn encode(generation: u64, end: u64) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..8].copy_from_slice(MAGIC);
    record[8..16].copy_from_slice(&generation.to_le_bytes());
    record[16..24].copy_from_slice(&end.to_le_bytes());
    let sum = checksum(&record[..24]);
    record[24..].copy_from_slice(&sum.to_le_bytes());
    record
}

/// The generation and the end, if the record is whole.
fn decode(record: &[u8]) -> Option<(u64, u64)> {
    let number = |at: usize| {
        record
            .get(at..at + 8)?
            .try_into()
            .ok()
            .map(u64::from_le_bytes)
    };
    let whole = record.starts_with(MAGIC) && number(24)? == checksum(&record[..24]);
    if whole {
        Some((number(8)?, number(16)?))
    } else {
        None
    }
}

impl FileStore {
    /// Opens the store of a data directory, which is made if it does not exist.
    /// Returns with it the first token that was never given out.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn open(directory: &Path) -> Result<(Self, u64), StoreError> {
        let io = |path: &Path, call: &'static str| {
            let path = path.to_owned();
            move |error| StoreError::Io { path, call, error }
        };
        fs::create_dir_all(directory).map_err(io(directory, "create the data directory"))?;
        let path = directory.join("tokens");
        if !path.exists() {
            create(directory, &path, 1).map_err(io(&path, "create"))?;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(io(&path, "open"))?;
        Self::adopt(directory, file)
    }

    /// The store whose file is open already, and perhaps locked: the lock belongs to
    /// the open file, whichever process has its descriptors.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn adopt(directory: &Path, mut file: File) -> Result<(Self, u64), StoreError> {
        let path = directory.join("tokens");
        let io = |call: &'static str| {
            let path = path.clone();
            move |error| StoreError::Io { path, call, error }
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(StoreError::InUse(path)),
            Err(fs::TryLockError::Error(error)) => return Err(io("lock")(error)),
        }
        let mut bytes = Vec::new();
        file.rewind().map_err(io("rewind"))?;
        let mut most = (&mut file).take(2 * SECTOR);
        most.read_to_end(&mut bytes).map_err(io("read"))?;
        let records = [0, SECTOR as usize].map(|at| bytes.get(at..).and_then(decode));
        let latest = records
            .into_iter()
            .flatten()
            .max_by_key(|(generation, _)| *generation);
        let (generation, end) = latest.ok_or_else(|| StoreError::Damaged(path.clone()))?;
        Ok((
            Self {
                directory: directory.to_owned(),
                file,
                end,
                generation: generation + 1,
            },
            end,
        ))
    }

    /// Makes a vanished file anew, with the same content. This is done only on the same
    /// file system: below a mount point that has lost its own, the next start would not
    /// look, or would find an older file mounted over it.
    fn restore(&mut self) -> io::Result<()> {
        let own = self.file.metadata()?.dev();
        let there = self.directory.ancestors().find(|path| path.exists());
        if there
            .map(fs::metadata)
            .transpose()?
            .map(|found| found.dev())
            != Some(own)
        {
            return Err(io::Error::other("its file system is not mounted any more"));
        }
        fs::create_dir_all(&self.directory)?;
        let path = self.directory.join("tokens");
        create(&self.directory, &path, self.end)?;
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        file.try_lock()
            .map_err(|_| io::Error::other("in use by another jostled"))?;
        let mut record = [0; RECORD];
        file.read_exact_at(&mut record, 0)?;
        if decode(&record) != Some((0, self.end)) {
            return Err(io::Error::other("another jostled has been here"));
        }
        (self.file, self.generation) = (file, 1);
        Ok(())
    }
}

/// Makes the file appear whole or not at all.
fn create(directory: &Path, path: &Path, end: u64) -> io::Result<()> {
    // Each start has a draft of its own. Another start may have linked its draft already,
    // and writing to that one would change the tokens in use.
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let unique = since_1970.unwrap_or_default().as_nanos();
    let draft = directory.join(format!("tokens.{}-{unique}.new", std::process::id()));
    let mut bytes = vec![0; 2 * SECTOR as usize];
    bytes[..RECORD].copy_from_slice(&encode(0, end));
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
        self.file.write_all_at(&encode(self.generation, end), at)?;
        self.file.sync_data()?;
        // Only now: a failed write is tried again over the same record, so that
        // the other one stays whole.
        self.generation += 1;
        self.end = end;
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

    #[test]
    fn a_start_begins_where_the_last_reservation_ended() {
        let directory = tempfile::tempdir().unwrap();
        for expected in [1, 100, 200] {
            let (mut store, first) = FileStore::open(directory.path()).unwrap();
            assert_eq!(first, expected);
            store.reserve(expected / 100 * 100 + 50).unwrap();
            store.reserve(expected / 100 * 100 + 100).unwrap();
        }
    }

    #[test]
    fn a_torn_record_leaves_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        let (mut store, _) = FileStore::open(directory.path()).unwrap();
        store.reserve(100).unwrap();
        store.reserve(200).unwrap();
        drop(store);
        let whole = fs::read(&path).unwrap();
        // Record 2, the latest, has replaced record 0.
        for at in 0..RECORD {
            let mut torn = whole.clone();
            torn[at] ^= 0x40;
            fs::write(&path, &torn).unwrap();
            assert_eq!(
                FileStore::open(directory.path()).unwrap().1,
                100,
                "byte {at}"
            );
        }
        fs::write(&path, &whole).unwrap();
        assert_eq!(FileStore::open(directory.path()).unwrap().1, 200);
    }

    #[test]
    fn a_damaged_file_stops_the_start_and_says_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        for bytes in [&b""[..], b"short", &[0; 1024]] {
            fs::write(directory.path().join("tokens"), bytes).unwrap();
            let error = FileStore::open(directory.path()).unwrap_err();
            assert!(matches!(error, StoreError::Damaged(_)));
            assert!(error.to_string().contains("delete it"), "{error}");
        }
    }

    #[test]
    fn a_directory_that_vanishes_is_made_anew_with_all_it_said() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("data");
        let (mut store, _) = FileStore::open(&directory).unwrap();
        store.reserve(100).unwrap();
        assert!(!store.check().unwrap());
        fs::remove_dir_all(&directory).unwrap();
        assert!(store.check().unwrap());
        fs::remove_file(directory.join("tokens")).unwrap();
        store.reserve(200).unwrap();
        assert!(matches!(
            FileStore::open(&directory),
            Err(StoreError::InUse(_))
        ));
        drop(store);
        assert_eq!(FileStore::open(&directory).unwrap().1, 200);
    }

    #[test]
    fn another_file_in_its_place_is_not_touched() {
        let directory = tempfile::tempdir().unwrap();
        let (mut store, _) = FileStore::open(directory.path()).unwrap();
        store.reserve(100).unwrap();
        fs::remove_file(directory.path().join("tokens")).unwrap();
        let _other = FileStore::open(directory.path()).unwrap();
        let error = store.reserve(200).unwrap_err();
        assert!(error.to_string().contains("another file"), "{error}");
    }

    #[test]
    fn two_daemons_cannot_share_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let first = FileStore::open(directory.path()).unwrap();
        assert!(matches!(
            FileStore::open(directory.path()),
            Err(StoreError::InUse(_))
        ));
        drop(first);
        FileStore::open(directory.path()).unwrap();
    }
}
