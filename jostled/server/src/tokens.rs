//! Where fencing tokens come from: ranges that are on disk before they are used.
//!
//! The file `tokens` of the data directory holds a number below which tokens may have
//! been given out. A start reads it and begins there, so that no token is given out
//! twice and none is smaller than an earlier one, however the process ended; reserved
//! tokens that were not used are skipped. At a million grants a second the 63 bits last
//! 290,000 years.
//!
//! The file has four sectors: two copies of that number, and two of the [`Promise`] about
//! leases. Each has a checksum. Both copies are written, and synced one after the other,
//! before anything is granted that needs them. A crash in the middle of a write, a flipped
//! bit or a write that the disk has lost leaves one that is right. A start logs what it
//! finds wrong: if a copy of the number cannot be read, tokens go on further away than the
//! other one can be behind; if nothing is known of leases, the start waits for the longest
//! that may exist. The file is locked, so that two daemons cannot share it.
//!
//! The promise has the boot and the file that it was written in: a copy of the file, such
//! as a restored backup, has another inode, and tokens and leases may have been given out
//! since it was copied.
//!
//! Beside the number stands that of the run which wrote it last, so that a log
//! ([`crate::store`]) that another run has left is not taken for the latest one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::log::{Level, write};

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

/// A promise to the next start about this program's leases: all of them have ended `longest_ms`
/// after the last instant at which one could be granted or renewed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// No lease, and no session that holds or waits, is longer; `u64::MAX`: not known.
    pub longest_ms: u64,
    /// No lease begins or is renewed later, in nanoseconds of the monotonic clock.
    pub until: u64,
}

impl Promise {
    /// That of a program of which nothing is known.
    pub(crate) const UNKNOWN: Self = Self {
        longest_ms: u64::MAX,
        until: u64::MAX,
    };
}

/// The instant before which leases may still run that these promises were made for; `None`:
/// none can. Those of which nothing is known are at most `max_ttl_ms` long.
pub(crate) fn leases_end(earlier: &[Promise], now: u64, max_ttl_ms: u64) -> Option<u64> {
    let ends = earlier.iter().map(|promise| {
        let unknown = promise.longest_ms == u64::MAX;
        let longest_ms = if unknown {
            max_ttl_ms
        } else {
            promise.longest_ms
        };
        // No lease began or was renewed later than now.
        let last = promise.until.min(now);
        last.saturating_add(longest_ms.saturating_mul(1_000_000))
    });
    ends.max().filter(|end| *end > now)
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
    /// Its locks are those of a group.
    #[error(
        "{}: this data directory belongs to a group of jostleds, which may serve its locks: give \
         --ha-name and --ha-etcd. To leave the group, stop all other members and give --restored \
         once: all locks are discarded, tokens go on 2^40 later, and locks are granted after \
         --max-ttl", .0.display()
    )]
    Grouped(PathBuf),
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
         after a loss, give --restored once: tokens then go on 2^40 later, and locks are granted after \
         --max-ttl", .0.display()
    )]
    Copied(PathBuf),
    /// A file of that name is no log.
    #[error("{}: this is no log of jostled: move it away", .0.display())]
    Foreign(PathBuf),
    /// A later version wrote the log.
    #[error("{}: written by a later version of jostled, which can go on with it", .0.display())]
    Newer(PathBuf),
    /// The log contradicts itself, or the tokens.
    #[error("{}: {why}. If no client relies on a lease or session, delete it", path.display())]
    Unsound {
        /// The log.
        path: PathBuf,
        /// The fault.
        why: String,
    },
}

/// The file `tokens` of a data directory.
#[derive(Debug)]
pub(crate) struct FileStore {
    directory: PathBuf,
    file: File,
    /// The number in the file.
    end: u64,
    /// A random number for this run of the daemon, which the next write of `end` stores.
    run: u64,
    /// The number of the next write of it.
    generation: u64,
    promised: Promise,
    /// The record of each pair that is written first: never the only one that is right.
    first: [usize; 2],
}

/// The content of a data directory.
pub(crate) struct Opened {
    pub(crate) store: FileStore,
    /// The first token that was never given out.
    pub(crate) first: u64,
    /// The number of the run that wrote it last; 0: not known.
    pub(crate) run: u64,
    /// Promises about leases that may still run; one of another boot, whose clock is of no
    /// use, has no end.
    pub(crate) earlier: Vec<Promise>,
}

const SECTOR: usize = 512;
/// The pairs of records: the number that is reserved, and the promise.
const TOKENS: usize = 0;
const PROMISES: usize = 1;
const FILE: usize = 4 * SECTOR;
const MAGIC: &[u8; 8] = b"JOSTLED2";
const OLD_MAGIC: &[u8; 8] = b"JOSTLED1";
const PROMISE_MAGIC: &[u8; 8] = b"JOSTLEDP";
/// Tokens that are skipped when a copy of the file is accepted.
const SKIPPED: u64 = 1 << 40;
/// Tokens that are skipped if what is left may be out of date: by a range, or by
/// [`SKIPPED`].
const SKIPPED_IN_DOUBT: u64 = 1 << 41;

/// A number that no other run has; never 0.
fn random() -> u64 {
    crate::table::HashKey::random().0 | 1
}

/// A number for the machine's current boot.
fn boot() -> u64 {
    let id = fs::read("/proc/sys/kernel/random/boot_id");
    id.map_or(0, |id| checksum(&id))
}

/// A number for a file that its copies do not have.
pub(crate) fn identity(file: &File) -> io::Result<u64> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let found = statx(file, "", AtFlags::EMPTY_PATH, wanted)?;
    let born = (found.stx_btime.tv_sec, found.stx_btime.tv_nsec);
    Ok(checksum(format!("{} {born:?}", found.stx_ino).as_bytes()))
}

/// The content of a file's bytes.
struct Content {
    /// The number of the latest write, what it reserved, and its run.
    latest: [u64; 3],
    /// As in [`Opened`].
    first: u64,
    earlier: Vec<Promise>,
    /// It was not written to this file.
    copied: bool,
    /// As in [`FileStore`].
    write_first: [usize; 2],
    faults: Vec<&'static str>,
}

impl Content {
    /// Reads a file of this identity. `None`: its tokens are lost.
    fn read(bytes: &[u8], boot: u64, own: u64) -> Option<Self> {
        let sector = |at: usize| {
            let start = bytes.len().min(at * SECTOR);
            &bytes[start..bytes.len().min(start + SECTOR)]
        };
        // An earlier version wrote no number of the run.
        let old = |at| unseal::<2>(OLD_MAGIC, sector(at)).map(|[of, end]| [of, end, 0]);
        let tokens = [0, 1].map(|at| unseal::<3>(MAGIC, sector(at)).or_else(|| old(at)));
        let promises = [2, 3].map(|at| unseal::<4>(PROMISE_MAGIC, sector(at)));
        let latest = tokens
            .into_iter()
            .flatten()
            .max_by_key(|[_, end, _]| *end)?;
        let found: Vec<[u64; 4]> = promises.into_iter().flatten().collect();
        let copied = found.iter().any(|[_, identity, ..]| *identity != own);
        let earlier = found.iter().map(|[of, _, longest_ms, until]| Promise {
            longest_ms: *longest_ms,
            // Without a number of the boot, it may be any.
            until: if *of == boot && boot != 0 {
                *until
            } else {
                u64::MAX
            },
        });
        // Without a promise, nothing tells whether the file is a copy.
        let doubtful = tokens.contains(&None) || found.is_empty();
        let mut first = latest[1];
        for (skips, tokens) in [(copied, SKIPPED), (doubtful, SKIPPED_IN_DOUBT)] {
            first = first.saturating_add(if skips { tokens } else { 0 });
        }
        let faults = [
            (
                doubtful,
                "some tokens may not be known: they go on 2^41 later",
            ),
            (tokens[0] != tokens[1], "the two records of tokens differ"),
            (found.is_empty(), "nothing is known of leases"),
            (
                promises[0] != promises[1],
                "the two records about leases differ",
            ),
            (bytes.len() < FILE, "it is too short"),
        ];
        let faults = faults.into_iter().filter(|(is, _)| *is);
        Some(Self {
            latest,
            first,
            earlier: match copied || found.is_empty() {
                // Leases may have been granted since the copy was made.
                true => vec![Promise::UNKNOWN],
                false => earlier.collect(),
            },
            copied,
            write_first: [
                usize::from(tokens[0] == Some(latest)),
                usize::from(promises[0].is_some()),
            ],
            faults: faults.map(|(_, what)| what).collect(),
        })
    }
}

/// A record: what it is, numbers, and a checksum of both.
fn seal<const NUMBERS: usize>(magic: &[u8; 8], numbers: [u64; NUMBERS]) -> Vec<u8> {
    let mut record = magic.to_vec();
    record.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    record.extend(checksum(&record).to_le_bytes());
    record
}

/// The numbers of a record at the start of a sector that has nothing else, if it is whole.
fn unseal<const NUMBERS: usize>(magic: &[u8; 8], bytes: &[u8]) -> Option<[u64; NUMBERS]> {
    let (record, rest) = bytes.split_at_checked(16 + 8 * NUMBERS)?;
    let (sealed, sum) = record.split_at(8 + 8 * NUMBERS);
    let whole = sealed.starts_with(magic) && sum == checksum(sealed).to_le_bytes();
    let whole = whole && rest.iter().all(|byte| *byte == 0);
    let mut words = sealed[8..].chunks_exact(8).map(|word| word.try_into());
    let numbers = std::array::from_fn(|_| match words.next() {
        Some(Ok(word)) => u64::from_le_bytes(word),
        _ => 0,
    });
    whole.then_some(numbers)
}

fn checksum(bytes: &[u8]) -> u64 {
    // FNV-1a: it must notice a torn or zeroed sector, not an adversary. It notices each
    // change of a single byte, as the steps that follow are one-to-one.
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
            create(directory, &path, [1, 0], Promise::default())
                .map_err(failed(&path, "create"))?;
        }
        let file = open_file(&path).map_err(failed(&path, "open"))?;
        let mut opened = Self::adopt(directory, file, restored)?;
        opened.store.run = random();
        Ok(opened)
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
        let own = identity(&file).map_err(io("identify"))?;
        let bytes = contents(&mut file).map_err(io("read"))?;
        let found = Content::read(&bytes, boot(), own);
        let found = found.ok_or_else(|| StoreError::Damaged(path.clone()))?;
        if found.copied && !restored {
            return Err(StoreError::Copied(path));
        }
        if !found.faults.is_empty() {
            let faults = found.faults.join("; ");
            let text = format!(
                "{}: {faults}. It was damaged, written by an earlier version, or a crash came \
                 between two writes. The next writes repair it",
                path.display()
            );
            write(Level::Warn, &text);
        }
        let store = Self {
            directory: directory.to_owned(),
            file,
            end: found.latest[1],
            run: found.latest[2],
            generation: found.latest[0] + 1,
            promised: Promise::default(),
            first: found.write_first,
        };
        Ok(Opened {
            store,
            first: found.first,
            // A copy may be older than the log beside it.
            run: if found.copied { 0 } else { found.latest[2] },
            earlier: found.earlier,
        })
    }

    /// The number of this run.
    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    /// Writes both records of a pair. If one cannot be written, the next attempt begins
    /// with it, so that the other one stays right.
    fn write(&mut self, pair: usize, record: &[u8], durably: bool) -> io::Result<()> {
        for _ in 0..2 {
            let at = SECTOR * (2 * pair + self.first[pair]);
            self.file.write_all_at(&sector(record), at as u64)?;
            if durably {
                self.file.sync_data()?;
            }
            self.first[pair] ^= 1;
        }
        Ok(())
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
        let written = create(&self.directory, &path, [self.end, self.run], self.promised)?;
        let mut file = open_file(&path)?;
        file.try_lock()
            .map_err(|_| io::Error::other("in use by another jostled"))?;
        if contents(&mut file)? != written {
            return Err(io::Error::other("another jostled has been here"));
        }
        (self.file, self.generation) = (file, 1);
        Ok(())
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// The error for a failed call, from the system's error.
pub(crate) fn failed(path: &Path, call: &'static str) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |error| StoreError::Io { path, call, error }
}

fn contents(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(FILE as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A sector with nothing but a record.
fn sector(record: &[u8]) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    sector[..record.len()].copy_from_slice(record);
    sector
}

fn seal_promise(promise: Promise, file: &File) -> io::Result<Vec<u8>> {
    let Promise { longest_ms, until } = promise;
    let numbers = [boot(), identity(file)?, longest_ms, until];
    Ok(seal(PROMISE_MAGIC, numbers))
}

/// Makes the file appear whole or not at all; returns what is in it.
fn create(
    directory: &Path,
    path: &Path,
    [end, run]: [u64; 2],
    promise: Promise,
) -> io::Result<Vec<u8>> {
    // Each start has a draft of its own. Another start may have linked its draft already,
    // and writing to that one would change the tokens in use.
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let unique = since_1970.unwrap_or_default().as_nanos();
    let draft = directory.join(format!("tokens.{}-{unique}.new", std::process::id()));
    let bytes = write_draft(&draft, [0, end, run], promise).inspect_err(|_| {
        let _ = fs::remove_file(&draft);
    })?;
    // hard_link, unlike rename, never replaces what another start has made.
    match fs::hard_link(&draft, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => fs::remove_file(&draft)?,
    }
    File::open(directory)?.sync_all()?;
    Ok(bytes)
}

fn write_draft(draft: &Path, numbers: [u64; 3], promise: Promise) -> io::Result<Vec<u8>> {
    let mut file = File::create_new(draft)?;
    let tokens = sector(&seal(MAGIC, numbers));
    let promises = sector(&seal_promise(promise, &file)?);
    let bytes = [tokens, tokens, promises, promises].concat();
    file.write_all(&bytes)?;
    file.sync_all()?;
    Ok(bytes)
}

impl TokenStore for FileStore {
    fn file(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    fn reserve(&mut self, end: u64) -> io::Result<()> {
        self.check()?;
        self.write(TOKENS, &seal(MAGIC, [self.generation, end, self.run]), true)?;
        self.generation += 1;
        self.end = end;
        Ok(())
    }

    fn promise(&mut self, promise: Promise) -> io::Result<()> {
        let record = seal_promise(promise, &self.file)?;
        // What a crash of the machine forgets may be too long, not too short.
        let durably = promise.longest_ms > self.promised.longest_ms;
        self.write(PROMISES, &record, durably)?;
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
mod tests;
