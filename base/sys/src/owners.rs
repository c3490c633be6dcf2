//! Who owns the locks on a file, and who waits for them, by what the kernel shows.
//!
//! `/proc/locks` (proc_locks(5)) has every lock with the process that took it, which may be gone
//! while a child has inherited the file and with it the lock. The open file itself lists its locks
//! in `/proc/PID/fdinfo` (proc_pid_fdinfo(5)), so that everybody who keeps it open is found.
//! Where that may not be looked at, only the process that took a record lock is sure to have it:
//! such a lock is never inherited.
//!
//! A file is known by the device and the inode of these lists, which stat(2) does not have on
//! overlayfs and btrfs.

use crate::census;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The kernel's name for a kind of lock on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnedBy {
    /// flock(2).
    Flock,
    /// fcntl(2), of a process or of an open file: the two exclude each other.
    Record,
}

impl OwnedBy {
    fn parse(word: &str) -> Option<OwnedBy> {
        match word {
            "FLOCK" => Some(OwnedBy::Flock),
            "POSIX" | "OFDLCK" => Some(OwnedBy::Record),
            _ => None,
        }
    }
}

/// Somebody who has a lock on a file, or waits for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Its process; 0 where the kernel does not say.
    pub pid: u32,
    /// The process's name.
    pub name: String,
    /// The process that took it, if that is another one; it may have ended.
    pub taker: Option<u32>,
    /// Whether others may share it.
    pub is_shared: bool,
    /// The first and the last byte; the last is at most [`LAST_BYTE`].
    pub bytes: [u64; 2],
}

/// The end of every file: the largest offset.
pub const LAST_BYTE: u64 = i64::MAX as u64;

/// Who has a lock of this kind on one of these files.
pub fn of_files(paths: &[&Path], kind: OwnedBy) -> Vec<Owner> {
    let keys = paths.iter().filter_map(|path| Key::from_path(path).ok());
    let all = Locks::read();
    let found: BTreeSet<Owner> = keys.flat_map(|key| all.owners(&key, kind)).collect();
    found.into_iter().collect()
}

/// A file, as the lists of locks name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Its file system, in hexadecimal digits, `fe:00`.
    device: String,
    inode: u64,
}

impl Key {
    /// Looks at the file without opening it for anything: no right to read it is needed.
    ///
    /// # Errors
    /// The system's, such as for a path that does not exist.
    pub fn from_path(path: &Path) -> io::Result<Key> {
        use rustix::fs::{Mode, OFlags, fstat, major, minor, open};
        let file = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let status = fstat(&file)?;
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()));
        let info = info.unwrap_or_default();
        let number = |name: &str| -> Option<u64> {
            let mut lines = info.lines();
            lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        };
        let of_mount = |mount: u64| {
            let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
            let mut lines = mounts.lines().map(str::split_whitespace);
            let mut words =
                lines.find(|words| words.clone().next() == Some(&*mount.to_string()))?;
            let (major, minor) = words.nth(2)?.split_once(':')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        };
        let of_stat = || (major(status.st_dev), minor(status.st_dev));
        let (major, minor) = number("mnt_id:").and_then(of_mount).unwrap_or_else(of_stat);
        Ok(Key {
            device: format!("{major:02x}:{minor:02x}"),
            inode: number("ino:").unwrap_or(status.st_ino),
        })
    }
}

/// Who waits for a lock, and for which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The process; 0 where the kernel does not say.
    pub pid: u32,
    /// The file.
    pub key: Key,
    /// The kind.
    pub kind: OwnedBy,
    /// Whether others may share it.
    pub is_shared: bool,
    /// The first and the last byte.
    pub bytes: [u64; 2],
}

/// All locks of the machine.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    /// By /proc/locks.
    listed: Vec<Listed>,
    /// By open files, each with the process that has the file open.
    open: Vec<(u32, Listed)>,
}

impl Locks {
    /// Reads /proc/locks, and the descriptors of all processes that may be looked at.
    pub fn read() -> Locks {
        let list = || {
            let text = fs::read_to_string("/proc/locks").unwrap_or_default();
            text.lines().filter_map(Listed::parse).collect::<Vec<_>>()
        };
        let before = list();
        let mut all = Locks::default();
        if before.is_empty() && census::is_first_pids() {
            return all;
        }
        for pid in census::processes() {
            let open = fs::read_dir(format!("/proc/{pid}/fd"));
            for entry in open.into_iter().flatten().flatten() {
                let locks = of_descriptor(pid, &entry.path());
                all.open.extend(locks.into_iter().map(|lock| (pid, lock)));
            }
        }
        all.listed = list();
        if census::is_first_pids() {
            // One that went to somebody else meanwhile has no two owners.
            let listed = &all.listed;
            all.open.retain(|(_, lock)| listed.contains(lock));
        }
        // One that was let go meanwhile would look as if its owner could not be seen.
        all.listed
            .retain(|lock| lock.waits || before.contains(lock));
        all
    }

    /// Who has locks of this kind on a file.
    pub fn owners(&self, key: &Key, kind: OwnedBy) -> BTreeSet<Owner> {
        let is_it = |lock: &&Listed| lock.kind == kind && lock.key == *key && !lock.waits;
        let open = self.open.iter().filter(|(_, lock)| is_it(&lock));
        let mut found: BTreeSet<Owner> = open.clone().map(|(pid, lock)| lock.owner(*pid)).collect();
        // Whose files may not be looked at is in the other list alone.
        let mut unseen: Vec<&Listed> = self.listed.iter().filter(is_it).collect();
        unseen.retain(|listed| !open.clone().any(|(_, lock)| lock == *listed));
        found.extend(unseen.into_iter().map(|lock| match lock.is_of_process {
            true => lock.owner(lock.pid),
            false => lock.owner(0),
        }));
        found
    }

    /// Who waits for locks of this kind on a file, as the kernel lists them.
    pub fn waiters(&self, key: &Key, kind: OwnedBy) -> Vec<Owner> {
        let is_it = |lock: &&Listed| lock.kind == kind && lock.key == *key && lock.waits;
        let waiters = self.listed.iter().filter(is_it);
        waiters.map(|lock| lock.owner(lock.pid)).collect()
    }

    /// All who wait for a file.
    pub fn waiting(&self) -> impl Iterator<Item = Waiting> {
        self.listed
            .iter()
            .filter(|lock| lock.waits)
            .map(|lock| Waiting {
                pid: lock.pid,
                key: lock.key.clone(),
                kind: lock.kind,
                is_shared: lock.is_shared,
                bytes: lock.bytes,
            })
    }

    /// Whose locks keep this one waiting.
    pub fn in_the_way(&self, of: &Waiting) -> BTreeSet<Owner> {
        let mut owners = self.owners(&of.key, of.kind);
        owners.retain(|owner| {
            let overlaps = owner.bytes[0] <= of.bytes[1] && of.bytes[0] <= owner.bytes[1];
            overlaps && !(owner.is_shared && of.is_shared)
        });
        owners
    }
}

/// The locks of this descriptor of the process.
fn of_descriptor(pid: u32, open: &Path) -> Vec<Listed> {
    // Sockets and the like have no locks, and may have long lists of other things.
    let is_path = fs::read_link(open).is_ok_and(|to| to.is_absolute());
    let number = open.file_name().unwrap_or_default();
    let info = PathBuf::from(format!("/proc/{pid}/fdinfo")).join(number);
    let info = is_path.then(|| fs::read_to_string(info).ok()).flatten();
    listed(&info.unwrap_or_default())
}

/// The locks below a descriptor.
fn listed(info: &str) -> Vec<Listed> {
    let locks = info.lines().filter_map(|line| line.strip_prefix("lock:"));
    locks.filter_map(Listed::parse).collect()
}

/// A lock, or who waits for one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    kind: OwnedBy,
    /// It belongs to the process, not to the open file.
    is_of_process: bool,
    waits: bool,
    /// Who took it; 0 where that is not said, as of open files' locks.
    pid: u32,
    key: Key,
    is_shared: bool,
    bytes: [u64; 2],
}

impl Listed {
    /// From `1: FLOCK  ADVISORY  WRITE 359 fe:00:11 0 EOF`, or `1: -> FLOCK ...` for one that
    /// waits; None for a lease and the like.
    fn parse(line: &str) -> Option<Listed> {
        let mut words = line.split_whitespace().skip(1).peekable();
        let waits = words.next_if_eq(&"->").is_some();
        let word = words.next()?;
        let is_shared = words.nth(1)? == "READ";
        let pid = words.next()?.parse().unwrap_or(0);
        let (device, inode) = words.next()?.rsplit_once(':')?;
        let first = words.next()?.parse().ok()?;
        // EOF.
        let last = words.next()?.parse().unwrap_or(LAST_BYTE);
        Some(Listed {
            kind: OwnedBy::parse(word)?,
            is_of_process: word == "POSIX",
            waits,
            pid,
            key: Key {
                device: device.to_owned(),
                inode: inode.parse().ok()?,
            },
            is_shared,
            bytes: [first, last],
        })
    }

    fn owner(&self, pid: u32) -> Owner {
        Owner {
            pid,
            name: match (census::Identity::of(pid), self.pid) {
                (Some(process), _) => process.name,
                (None, 0) => "a process that may not be seen".to_owned(),
                (None, taker) => format!("a process that may not be seen; {taker} took it"),
            },
            taker: Some(self.pid).filter(|taker| ![0, pid].contains(taker)),
            is_shared: self.is_shared,
            bytes: self.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{self, LockKind};
    use std::os::fd::AsFd;

    #[test]
    fn locks_stand_below_the_descriptor() {
        let info = "pos:\t0\nflags:\t0100000\nmnt_id:\t29\nino:\t11\n\
                    lock:\t1: FLOCK  ADVISORY  WRITE 359 fe:00:11 0 EOF\n";
        let listed = |info: &str| {
            let told = |lock: Listed| {
                (
                    lock.kind,
                    lock.key.inode,
                    lock.waits,
                    lock.is_shared,
                    lock.bytes,
                )
            };
            listed(info).into_iter().map(told).collect::<Vec<_>>()
        };
        let whole = [0, LAST_BYTE];
        assert_eq!(listed(info), [(OwnedBy::Flock, 11, false, false, whole)]);
        let record = info.replace("FLOCK", "OFDLCK").replace("WRITE", "READ ");
        let record = record.replace("0 EOF", "100 199");
        assert_eq!(
            listed(&record),
            [(OwnedBy::Record, 11, false, true, [100, 199])]
        );
        let waits = info.replace("1: FLOCK", "1: -> FLOCK");
        assert_eq!(listed(&waits), [(OwnedBy::Flock, 11, true, false, whole)]);
        assert!(listed(&info.replace("FLOCK ", "LEASE ")).is_empty());
    }

    #[test]
    fn of_an_open_file_that_may_not_be_seen_the_taker_alone_is_no_owner() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let key = Key::from_path(file.path()).unwrap();
        let owners = |kind| {
            let all = Locks {
                open: Vec::new(),
                ..Locks::read()
            };
            let owners = all.owners(&key, kind).into_iter();
            owners
                .map(|owner| (owner.pid, owner.taker))
                .collect::<Vec<_>>()
        };
        assert!(owners(OwnedBy::Flock).is_empty());
        files::flock(file.as_file().as_fd(), LockKind::Exclusive, false).unwrap();
        let own = std::process::id();
        assert_eq!(owners(OwnedBy::Flock), [(0, Some(own))]);
        assert!(owners(OwnedBy::Record).is_empty());
        let of_a_process = "1: POSIX  ADVISORY  WRITE 7 fe:00:11 0 EOF";
        assert!(Listed::parse(of_a_process).unwrap().is_of_process);
        let of_an_open_file = "1: OFDLCK ADVISORY  WRITE -1 fe:00:11 0 EOF";
        assert_eq!(Listed::parse(of_an_open_file).unwrap().pid, 0);
    }

    #[test]
    fn an_owner_is_found_by_its_open_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let owners = || of_files(&[file.path()], OwnedBy::Flock);
        assert!(owners().is_empty());
        files::flock(file.as_file().as_fd(), LockKind::Exclusive, false).unwrap();
        let pids: Vec<u32> = owners().into_iter().map(|owner| owner.pid).collect();
        assert_eq!(pids, [std::process::id()]);
        assert!(of_files(&[file.path()], OwnedBy::Record).is_empty());
    }
}
