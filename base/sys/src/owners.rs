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

/// The processes that have a lock of this kind on one of these files, each once: number and
/// name. The number is 0 where the kernel does not say whose a lock is that somebody has.
pub fn of_files(paths: &[&Path], kind: OwnedBy) -> Vec<(u32, String)> {
    let files = paths.iter().filter_map(|path| path.metadata().ok());
    let files: Vec<Metadata> = files.collect();
    let owns = |pid: &u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd"));
        let mut open = open.into_iter().flatten().flatten();
        open.any(|entry| owns(*pid, &entry.path(), &files, kind))
    };
    let owners = census::processes().into_iter().filter(owns);
    let mut owners: Vec<u32> = owners.collect();
    if owners.is_empty() {
        let all = fs::read_to_string("/proc/locks").unwrap_or_default();
        owners = takers(&all, &files, kind);
    }
    let name = |pid: u32| match census::Identity::of(pid) {
        Some(process) => process.name,
        None => "a process that has ended or may not be seen".to_owned(),
    };
    owners.into_iter().map(|pid| (pid, name(pid))).collect()
}

/// Who took the locks on these files, by the text of /proc/locks.
fn takers(text: &str, files: &[Metadata], kind: OwnedBy) -> Vec<u32> {
    let device = |file: &Metadata| {
        let device = file.dev();
        format!(
            "{:02x}:{:02x}",
            rustix::fs::major(device),
            rustix::fs::minor(device)
        )
    };
    let ours = |lock: &Listed<'_>| {
        let mut files = files.iter();
        files.any(|file| file.ino() == lock.inode && device(file) == lock.device)
    };
    let taken = text.lines().filter_map(|line| Listed::of(line, kind));
    let pids: BTreeSet<u32> = taken.filter(ours).map(|lock| lock.pid).collect();
    pids.into_iter().collect()
}

/// Whether this open file of the process is one of these, with a lock.
fn owns(pid: u32, open: &Path, files: &[Metadata], kind: OwnedBy) -> bool {
    // Sockets and the like have no locks, and may have long lists of other things.
    let is_path = fs::read_link(open).is_ok_and(|to| to.is_absolute());
    let number = open.file_name().unwrap_or_default();
    let info = PathBuf::from(format!("/proc/{pid}/fdinfo")).join(number);
    let info = || fs::read_to_string(info).unwrap_or_default();
    let wanted = |inode: u64| files.iter().any(|file| file.ino() == inode);
    if !is_path || !inodes(&info(), kind).any(wanted) {
        return false;
    }
    // Only now: looking at a file of a server that does not answer takes long.
    open.metadata().is_ok_and(|open| {
        let same = |file: &Metadata| (file.dev(), file.ino()) == (open.dev(), open.ino());
        files.iter().any(same)
    })
}

/// The inodes of its locks of this kind that are owned, not waited for.
fn inodes(info: &str, kind: OwnedBy) -> impl Iterator<Item = u64> {
    let locks = info.lines().filter_map(|line| line.strip_prefix("lock:"));
    locks.filter_map(move |lock| Some(Listed::of(lock, kind)?.inode))
}

/// A lock that is owned.
struct Listed<'a> {
    /// Who took it; 0 where that is not said, as of open files' locks.
    pid: u32,
    /// In hexadecimal digits, `fe:00`.
    device: &'a str,
    inode: u64,
}

impl<'a> Listed<'a> {
    /// From `1: FLOCK  ADVISORY  WRITE 359 fe:00:11 0 EOF`; None for one that waits (`->`) and
    /// for one of another kind.
    fn of(line: &'a str, kind: OwnedBy) -> Option<Listed<'a>> {
        let mut words = line.split_whitespace();
        words.nth(1).filter(|word| kind.is(word))?;
        let pid = words.nth(2)?.parse().unwrap_or(0);
        let (device, inode) = words.next()?.rsplit_once(':')?;
        Some(Listed {
            pid,
            device,
            inode: inode.parse().ok()?,
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
        let listed = |info: &str, kind| inodes(info, kind).collect::<Vec<u64>>();
        assert_eq!(listed(info, OwnedBy::Flock), [11]);
        assert!(listed(info, OwnedBy::Record).is_empty());
        let record = info.replace("FLOCK", "OFDLCK");
        assert_eq!(listed(&record, OwnedBy::Record), [11]);
        let waits = info.replace("1: FLOCK", "1: -> FLOCK");
        assert!(listed(&waits, OwnedBy::Flock).is_empty());
    }

    #[test]
    fn whose_files_may_not_be_seen_is_found_in_the_list_of_all_locks() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let files = [file.path().metadata().unwrap()];
        let takers = || {
            let all = fs::read_to_string("/proc/locks").unwrap();
            takers(&all, &files, OwnedBy::Flock)
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
        let pids: Vec<u32> = owners().into_iter().map(|(pid, _)| pid).collect();
        assert_eq!(pids, [std::process::id()]);
        assert!(of_files(&[file.path()], OwnedBy::Record).is_empty());
    }
}
