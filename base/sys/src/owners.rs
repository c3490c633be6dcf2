//! Who owns the locks on a file, by what the kernel shows of every open file.
//!
//! `/proc/locks` names the process that took a lock, which may be gone while a child has
//! inherited the file and with it the lock. The open file itself lists its locks in
//! `/proc/PID/fdinfo` (proc_pid_fdinfo(5)), so that everybody who keeps it open is found.
//! Whose files we may not look at is found in `/proc/locks` (proc_locks(5)) alone.

use crate::census;
use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What the kernel calls a kind of lock on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnedBy {
    /// flock(2).
    Flock,
    /// fcntl(2), of a process or of an open file: the two exclude each other.
    Record,
}

impl OwnedBy {
    fn is(self, word: &str) -> bool {
        match self {
            OwnedBy::Flock => word == "FLOCK",
            OwnedBy::Record => matches!(word, "POSIX" | "OFDLCK"),
        }
    }
}

/// Somebody who has a lock on a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Its process; 0 where the kernel does not say.
    pub pid: u32,
    /// The process's name.
    pub name: String,
    /// Whether others may share it.
    pub is_shared: bool,
    /// The first and the last byte; the last is at most [`LAST_BYTE`].
    pub bytes: [u64; 2],
}

/// The end of every file: what JSON readers keep of the largest offset.
pub const LAST_BYTE: u64 = i64::MAX as u64 >> 11;

/// Who has a lock of this kind on one of these files.
pub fn of_files(paths: &[&Path], kind: OwnedBy) -> Vec<Owner> {
    let files = paths.iter().filter_map(|path| path.metadata().ok());
    let files: Vec<Metadata> = files.collect();
    let mut found = BTreeSet::new();
    for pid in census::processes() {
        let open = fs::read_dir(format!("/proc/{pid}/fd"));
        for entry in open.into_iter().flatten().flatten() {
            let locks = owned(pid, &entry.path(), &files, kind);
            found.extend(locks.into_iter().map(|lock| Listed { pid, ..lock }));
        }
    }
    if found.is_empty() {
        let all = fs::read_to_string("/proc/locks").unwrap_or_default();
        found.extend(takers(&all, &files, kind));
    }
    let name = |pid: u32| match census::Identity::of(pid) {
        Some(process) => process.name,
        None => "a process that has ended or may not be seen".to_owned(),
    };
    let owners = found.into_iter().map(|lock| Owner {
        pid: lock.pid,
        name: name(lock.pid),
        is_shared: lock.is_shared,
        bytes: lock.bytes,
    });
    owners.collect()
}

/// The locks on these files, by the text of /proc/locks.
fn takers(text: &str, files: &[Metadata], kind: OwnedBy) -> Vec<Listed> {
    let device = |file: &Metadata| {
        let device = file.dev();
        format!(
            "{:02x}:{:02x}",
            rustix::fs::major(device),
            rustix::fs::minor(device)
        )
    };
    let ours = |lock: &Listed| {
        let mut files = files.iter();
        files.any(|file| file.ino() == lock.inode && device(file) == lock.device)
    };
    let taken = text.lines().filter_map(|line| Listed::of(line, kind));
    taken.filter(ours).collect()
}

/// The locks of this open file of the process, if it is one of these.
fn owned(pid: u32, open: &Path, files: &[Metadata], kind: OwnedBy) -> Vec<Listed> {
    // Sockets and the like have no locks, and may have long lists of other things.
    let is_path = fs::read_link(open).is_ok_and(|to| to.is_absolute());
    let number = open.file_name().unwrap_or_default();
    let info = PathBuf::from(format!("/proc/{pid}/fdinfo")).join(number);
    let info = || fs::read_to_string(info).unwrap_or_default();
    let wanted = |lock: &Listed| files.iter().any(|file| file.ino() == lock.inode);
    if !is_path {
        return Vec::new();
    }
    let mut locks: Vec<Listed> = listed(&info(), kind).filter(wanted).collect();
    // Only now: looking at a file of a server that does not answer takes long.
    let is_one = |locks: &[Listed]| {
        !locks.is_empty()
            && open.metadata().is_ok_and(|open| {
                let same = |file: &Metadata| (file.dev(), file.ino()) == (open.dev(), open.ino());
                files.iter().any(same)
            })
    };
    if !is_one(&locks) {
        locks.clear();
    }
    locks
}

/// Its locks of this kind that are owned, not waited for.
fn listed(info: &str, kind: OwnedBy) -> impl Iterator<Item = Listed> {
    let locks = info.lines().filter_map(|line| line.strip_prefix("lock:"));
    locks.filter_map(move |lock| Listed::of(lock, kind))
}

/// A lock that is owned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    /// Who took it; 0 where that is not said, as of open files' locks.
    pid: u32,
    /// In hexadecimal digits, `fe:00`.
    device: String,
    inode: u64,
    is_shared: bool,
    bytes: [u64; 2],
}

impl Listed {
    /// From `1: FLOCK  ADVISORY  WRITE 359 fe:00:11 0 EOF`; None for one that waits (`->`) and
    /// for one of another kind.
    fn of(line: &str, kind: OwnedBy) -> Option<Listed> {
        let mut words = line.split_whitespace();
        words.nth(1).filter(|word| kind.is(word))?;
        let is_shared = words.nth(1)? == "READ";
        let pid = words.next()?.parse().unwrap_or(0);
        let (device, inode) = words.next()?.rsplit_once(':')?;
        let first = words.next()?.parse().ok()?;
        // EOF.
        let last = words.next()?.parse().unwrap_or(LAST_BYTE);
        Some(Listed {
            pid,
            device: device.to_owned(),
            inode: inode.parse().ok()?,
            is_shared,
            bytes: [first, last].map(|byte: u64| byte.min(LAST_BYTE)),
        })
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
        let listed = |info: &str, kind| {
            let locks = super::listed(info, kind);
            locks
                .map(|lock| (lock.inode, lock.is_shared, lock.bytes))
                .collect::<Vec<_>>()
        };
        assert_eq!(listed(info, OwnedBy::Flock), [(11, false, [0, LAST_BYTE])]);
        assert!(listed(info, OwnedBy::Record).is_empty());
        let record = info.replace("FLOCK", "OFDLCK").replace("WRITE", "READ ");
        let record = record.replace("0 EOF", "100 199");
        assert_eq!(listed(&record, OwnedBy::Record), [(11, true, [100, 199])]);
        let waits = info.replace("1: FLOCK", "1: -> FLOCK");
        assert!(listed(&waits, OwnedBy::Flock).is_empty());
    }

    #[test]
    fn whose_files_may_not_be_seen_is_found_in_the_list_of_all_locks() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let files = [file.path().metadata().unwrap()];
        let takers = || {
            let all = fs::read_to_string("/proc/locks").unwrap();
            let takers = takers(&all, &files, OwnedBy::Flock).into_iter();
            takers.map(|lock| lock.pid).collect::<Vec<u32>>()
        };
        assert!(takers().is_empty());
        files::flock(file.as_file().as_fd(), LockKind::Exclusive, false).unwrap();
        assert_eq!(takers(), [std::process::id()]);
        let of_an_open_file = "1: OFDLCK ADVISORY  WRITE -1 fe:00:11 0 EOF";
        assert_eq!(Listed::of(of_an_open_file, OwnedBy::Record).unwrap().pid, 0);
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
