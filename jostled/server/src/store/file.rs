//! The file `log` of a data directory, on one machine.
//!
//! It is written in advance and has two halves. A half begins with a snapshot of all that
//! is stored; a record for each batch follows. When it is full, the next record is a
//! snapshot at the beginning of the other half. Each record is written and synced (one
//! `fdatasync`) before its batch counts as committed.
//!
//! A crash can cut the last record: then each of its sectors is new, or as it was before.
//! Such a record is dropped, since nothing that it has was told to anybody. Whatever else
//! is wrong is damage: then it is not known what was held.
//!
//! A snapshot may take a quarter of a half; if more is stored, the file grows. If it
//! cannot, nothing more may begin, while the rest of the half takes ends and renewals.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::sectors::{self, Head, SECTOR, Sector, Sectors};
use super::{Entry, Failure, Store, Stored};
use crate::tokens::{StoreError, failed, identity};

/// Bytes of a half of a new file: 10,000 batches of a few changes each.
const HALF: u64 = 16 << 20;
/// The part of a half that a snapshot may take.
const PART: u64 = 4;

/// The medium of a log: a file, or in tests a disk that loses what was not synced.
pub(crate) trait Disk: Send {
    fn length(&self) -> io::Result<u64>;
    fn set_length(&mut self, length: u64) -> io::Result<()>;
    fn read(&self) -> io::Result<Vec<u8>>;
    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
    fn descriptor(&self) -> io::Result<OwnedFd>;
}

impl Disk for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn set_length(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        let length = usize::try_from(self.length()?).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        self.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.try_clone()?.into())
    }
}

/// The content of a file's bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Nothing was ever committed.
    Empty,
    /// The latest commit.
    Log(Stored),
    /// It is not known what was committed.
    Damaged(&'static str),
    /// Not those of a log.
    Foreign,
    /// Those of a log of a later version.
    Newer,
}

/// A log that is written.
#[derive(Debug)]
pub(crate) struct FileLog<D = File> {
    disk: D,
    /// A number for the file that its copies do not have.
    identity: u64,
    half: u64,
    /// Where the newest snapshot is, if there is one.
    live: Option<u64>,
    /// Where the next record goes, and the end of the room for it.
    end: u64,
    limit: u64,
    /// The last sequence that was used, and that of the last record that was committed.
    sequence: u64,
    after: u64,
    stored: Stored,
}

/// A log that was opened.
pub(crate) struct Found {
    pub(crate) log: FileLog,
    pub(crate) stored: Stored,
    /// Why something may be missing, if the file is not as it was left.
    pub(crate) doubt: Option<String>,
}

impl<D: Disk> FileLog<D> {
    /// A log on this disk, which is to begin or to go on, and its content.
    pub(super) fn on(disk: D, identity: u64, half: u64) -> io::Result<(Self, Content)> {
        let bytes = disk.read()?;
        let mut log = Self {
            disk,
            identity,
            half,
            live: None,
            end: 0,
            limit: 0,
            sequence: 0,
            after: 0,
            stored: Stored::default(),
        };
        let content = log.replay(&bytes);
        if let Content::Log(stored) = &content {
            log.stored = stored.clone();
        }
        Ok((log, content))
    }

    fn replay(&mut self, bytes: &[u8]) -> Content {
        let sectors = Sectors::new(bytes);
        let newest = sectors.heads().map(|head| head.sequence).max();
        self.sequence = newest.unwrap_or(0);
        let bad = sectors.has(Sector::Bad);
        match newest {
            _ if sectors.has(Sector::Newer) => return Content::Newer,
            None if bad => return Content::Foreign,
            None => return Content::Empty,
            Some(_) if bad => return Content::Damaged("a sector cannot be read"),
            Some(_) => {}
        }
        let mut stored = Stored::default();
        if let Some(first) = sectors.snapshot() {
            let mut at = first;
            while let Some((head, payload, next)) = sectors.record(at)
                && (at == first || head.after == self.after && !head.snapshot)
            {
                let entries = match head.snapshot {
                    false => postcard::from_bytes::<Vec<Entry>>(&payload),
                    true => postcard::from_bytes::<(u64, u64, Vec<Entry>)>(&payload).map(
                        |(half, identity, entries)| {
                            (self.half, self.identity) = (half, identity);
                            entries
                        },
                    ),
                };
                let Ok(entries) = entries else {
                    return Content::Damaged("a record cannot be decoded");
                };
                for entry in &entries {
                    stored.apply(entry);
                }
                (self.after, at) = (head.sequence, next);
            }
            let live = (first * SECTOR) as u64;
            if ![0, self.half].contains(&live) || (bytes.len() as u64) < 2 * self.half {
                return Content::Damaged("its length is another");
            }
            self.live = Some(live);
            (self.end, self.limit) = ((at * SECTOR) as u64, live + self.half);
        }
        // A record was written after another one had been committed, which is not there.
        if sectors.heads().any(|head| head.after > self.after) {
            return Content::Damaged("a record is missing");
        }
        match self.live {
            None => Content::Empty,
            Some(_) => {
                stored.settle();
                Content::Log(stored)
            }
        }
    }

    /// Begins with this content, as of this run and the one before.
    pub(super) fn begin(&mut self, stored: Stored, run: (u64, u64)) -> io::Result<()> {
        self.stored = stored;
        self.stored.run = run;
        // The file may have grown since the last snapshot, which is then in the first half.
        while !self.fits(0) {
            self.half *= 2;
        }
        let length = self.disk.length()?;
        self.fill(length, 2 * self.half)?;
        self.snapshot()
    }

    /// Whether a half has room for a snapshot of all that is stored, and so many bytes more.
    fn fits(&self, more: usize) -> bool {
        bytes_of(self.stored.bytes + more + 64) <= self.half
    }

    /// Writes zeros, so that later writes change no metadata, and find room on a full disk.
    fn fill(&mut self, from: u64, to: u64) -> io::Result<()> {
        const ZEROS: &[u8] = &[0; 1 << 16];
        let mut at = from;
        while at < to {
            let length = (to - at).min(ZEROS.len() as u64);
            self.disk.write(at, &ZEROS[..length as usize])?;
            at += length;
        }
        Ok(())
    }

    fn write(&mut self, at: u64, snapshot: bool, payload: &[u8]) -> io::Result<()> {
        let head = Head {
            snapshot,
            sequence: self.sequence + 1,
            after: self.after,
        };
        let bytes = sectors::write(at, head, payload);
        self.disk.write(at, &bytes)?;
        self.disk.sync()?;
        (self.sequence, self.after) = (head.sequence, head.sequence);
        self.end = at + bytes.len() as u64;
        Ok(())
    }

    /// Writes all that is stored at the beginning of the half that is not in use.
    fn snapshot(&mut self) -> io::Result<()> {
        let at = match self.live {
            Some(0) => self.half,
            _ => 0,
        };
        let content = (self.half, self.identity, self.stored.entries());
        let payload = postcard::to_stdvec(&content).map_err(io::Error::other)?;
        self.write(at, true, &payload)?;
        (self.live, self.limit) = (Some(at), at + self.half);
        Ok(())
    }

    /// Doubles the file.
    fn grow(&mut self) -> Result<(), Failure> {
        if self.live != Some(0) {
            self.snapshot().map_err(lost)?;
        }
        let (from, to) = (2 * self.half, 4 * self.half);
        if let Err(error) = self.fill(from, to).and_then(|()| self.disk.sync()) {
            let _ = self.disk.set_length(from);
            let text = format!("the log cannot grow to {to} bytes: {error}");
            return Err(Failure::Full(text));
        }
        self.half *= 2;
        Ok(())
    }
}

/// Bytes of a record with so many bytes of payload.
fn bytes_of(payload: usize) -> u64 {
    (sectors::count(payload) * SECTOR) as u64
}

fn lost(error: io::Error) -> Failure {
    Failure::Lost(format!("the log cannot be written: {error}"))
}

impl FileLog {
    /// Opens the log of a data directory, which is made if there is none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn open(directory: &Path) -> Result<Found, StoreError> {
        let path = directory.join("log");
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        // It has the ids of sessions.
        let options = options.mode(0o600);
        let file = options.open(&path).map_err(failed(&path, "open"))?;
        let found = Self::adopt(directory, file)?;
        let Some(why) = &found.doubt else {
            return Ok(found);
        };
        // The next log begins with nothing of this one; it is kept to be looked at.
        let aside = directory.join("log.damaged");
        fs::rename(&path, &aside).map_err(failed(&path, "rename"))?;
        let file = options.open(&path).map_err(failed(&path, "create"))?;
        let doubt = format!(
            "{}: {why}. It is now {}: what was held is not known",
            path.display(),
            aside.display()
        );
        Ok(Found {
            doubt: Some(doubt),
            ..Self::adopt(directory, file)?
        })
    }

    /// The log whose file is open already, and perhaps locked.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn adopt(directory: &Path, file: File) -> Result<Found, StoreError> {
        let path = directory.join("log");
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(StoreError::InUse(path)),
            Err(fs::TryLockError::Error(error)) => return Err(failed(&path, "lock")(error)),
        }
        let own = identity(&file).map_err(failed(&path, "identify"))?;
        let (mut log, content) = Self::on(file, own, HALF).map_err(failed(&path, "read"))?;
        let copied = std::mem::replace(&mut log.identity, own) != own;
        let (stored, doubt) = match content {
            Content::Empty => (Stored::default(), None),
            Content::Log(_) if copied => (Stored::default(), Some("it is a copy")),
            Content::Log(stored) => (stored, None),
            Content::Damaged(why) => (Stored::default(), Some(why)),
            Content::Foreign => return Err(StoreError::Foreign(path)),
            Content::Newer => return Err(StoreError::Newer(path)),
        };
        Ok(Found {
            log,
            stored,
            doubt: doubt.map(str::to_owned),
        })
    }

    /// Begins to store, with this content.
    ///
    /// # Errors
    /// [`StoreError`]; a new file is then removed.
    pub(crate) fn start(
        &mut self,
        directory: &Path,
        stored: Stored,
        run: (u64, u64),
    ) -> Result<(), StoreError> {
        let path = directory.join("log");
        let is_new = self.live.is_none();
        let begun = self.begin(stored, run);
        let begun = begun.and_then(|()| File::open(directory)?.sync_all());
        begun.map_err(|error| {
            if is_new {
                let _ = fs::remove_file(&path);
            }
            failed(&path, "write")(error)
        })
    }
}

impl<D: Disk> Store for FileLog<D> {
    fn commit_if(&mut self, batch: &[Entry]) -> Result<usize, Failure> {
        let most: usize = batch.iter().map(Entry::bytes).sum();
        // A snapshot after this batch must have room. Only then is it applied.
        while !self.fits(most) {
            self.grow()?;
        }
        let changes = batch.iter().filter(|entry| self.stored.apply(entry));
        let changes: Vec<&Entry> = changes.collect();
        if changes.is_empty() {
            return Ok(batch.len());
        }
        let payload = postcard::to_stdvec(&changes);
        let payload = payload.map_err(|error| lost(io::Error::other(error)))?;
        let written = match self.end + bytes_of(payload.len()) <= self.limit {
            true => self.write(self.end, false, &payload),
            false => self.snapshot(),
        };
        written.map_err(lost)?;
        Ok(batch.len())
    }

    fn fences(&self) -> bool {
        true
    }

    fn keeps_connections(&self) -> bool {
        false
    }

    fn make_room(&mut self) -> Result<(), Failure> {
        match self.stored.bytes as u64 > self.half / PART {
            true => self.grow(),
            false => Ok(()),
        }
    }

    fn file(&self) -> io::Result<OwnedFd> {
        self.disk.descriptor()
    }
}
