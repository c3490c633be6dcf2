//! Locks on files, and what a lock's owner must know about a file.
//!
//! Three kinds that do not see each other on a local file system: flock(2);
//! open file description locks and POSIX record locks, both by fcntl(2)
//! (`F_OFD_SETLK`, `F_OFD_SETLKW`, `F_SETLK`, `F_SETLKW`). Every call is made
//! once: EINTR comes back to the caller, who knows whether the wait is over.

pub use rustix::io::Errno;

use crate::errno::done;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// How a lock excludes others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// One owner: `LOCK_EX`, `F_WRLCK`.
    Exclusive,
    /// Many owners: `LOCK_SH`, `F_RDLCK`.
    Shared,
}

/// The owner of a record lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The open file description: each open(2) is an owner of its own.
    OpenFile,
    /// The process: all its threads and descriptors are one owner, and closing
    /// any descriptor of the file gives up its locks.
    Process,
}

/// Bytes `start..start + len` of a file, which need not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// The first byte.
    pub start: u64,
    /// How many; zero means all that follow, as in fcntl(2).
    pub len: u64,
}

/// flock(2): locks a whole file, for its open file description.
///
/// # Errors
/// EWOULDBLOCK if it is taken and `block` is false; EINTR if a signal ended the
/// wait; otherwise the system's error.
#[inline]
pub fn flock(file: impl AsFd, kind: LockKind, block: bool) -> Result<(), Errno> {
    let kind = match kind {
        LockKind::Exclusive => libc::LOCK_EX,
        LockKind::Shared => libc::LOCK_SH,
    };
    flock_call(file, if block { kind } else { kind | libc::LOCK_NB })
}

/// flock(2) with `LOCK_UN`.
///
/// # Errors
/// The system's.
#[inline]
pub fn flock_release(file: impl AsFd) -> Result<(), Errno> {
    flock_call(file, libc::LOCK_UN)
}

/// Calls libc's function, not rustix's. Measurements are compared with the loop
/// of a C program, and a pair of libc's calls took 2 ns less, of 185 ns.
#[inline]
fn flock_call(file: impl AsFd, operation: libc::c_int) -> Result<(), Errno> {
    // SAFETY: a system call on a descriptor that is borrowed for it.
    done(unsafe { libc::flock(file.as_fd().as_raw_fd(), operation) })
}

/// fcntl(2): locks a range of bytes. An exclusive lock needs a descriptor that
/// may write, a shared one a descriptor that may read.
///
/// # Errors
/// EAGAIN or EACCES if it is taken and `block` is false; EINTR if a signal
/// ended the wait; otherwise the system's error.
#[inline]
pub fn record_lock(
    file: impl AsFd,
    holder: Holder,
    kind: LockKind,
    bytes: Bytes,
    block: bool,
) -> Result<(), Errno> {
    let kind = match kind {
        LockKind::Exclusive => libc::F_WRLCK,
        LockKind::Shared => libc::F_RDLCK,
    };
    record(file, holder, kind, bytes, block)
}

/// fcntl(2) with `F_UNLCK`.
///
/// # Errors
/// The system's.
#[inline]
pub fn record_release(file: impl AsFd, holder: Holder, bytes: Bytes) -> Result<(), Errno> {
    record(file, holder, libc::F_UNLCK, bytes, false)
}

#[inline]
fn record(
    file: impl AsFd,
    holder: Holder,
    kind: libc::c_int,
    bytes: Bytes,
    block: bool,
) -> Result<(), Errno> {
    let command = match (holder, block) {
        (Holder::OpenFile, false) => libc::F_OFD_SETLK,
        (Holder::OpenFile, true) => libc::F_OFD_SETLKW,
        (Holder::Process, false) => libc::F_SETLK,
        (Holder::Process, true) => libc::F_SETLKW,
    };
    let range = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: bytes.start as libc::off_t,
        l_len: bytes.len as libc::off_t,
        // Must be zero for the locks of open file descriptions.
        l_pid: 0,
    };
    // SAFETY: the descriptor is borrowed for the call, which only reads the
    // live structure that it is given.
    done(unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &raw const range) })
}

/// open(2) of a file that exists, close-on-exec, without allocating: for
/// reading and writing, or for reading alone.
///
/// # Errors
/// The system's.
#[inline]
pub fn open(path: &CStr, writable: bool) -> Result<OwnedFd, Errno> {
    let access = if writable {
        OFlags::RDWR
    } else {
        OFlags::RDONLY
    };
    // NOCTTY and NONBLOCK: if the path is not a regular file after all, opening
    // it must neither make it our terminal nor block.
    let flags = access | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, Mode::empty())
}

/// open(2) with `O_CREAT | O_EXCL`, mode 0600, and close(2): makes a file that
/// did not exist, without allocating.
///
/// # Errors
/// EEXIST if the path exists, even as a symbolic link; otherwise the system's error.
#[inline]
pub fn create_exclusive(path: &CStr) -> Result<(), Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map(drop)
}

/// unlink(2), without allocating.
///
/// # Errors
/// The system's.
#[inline]
pub fn unlink(path: &CStr) -> Result<(), Errno> {
    rustix::fs::unlink(path)
}

/// How many descriptors this process may have open (the soft limit); None
/// where there is no limit.
pub fn descriptor_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Raises the soft limit on descriptors to the hard limit, which needs no privilege.
/// Returns the limit that then holds; None where there is none.
pub fn raise_descriptor_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// The name of the file system that holds `path`, from statfs(2); its magic
/// number in hexadecimal where we know no name.
///
/// # Errors
/// The system's, such as for a path that does not exist.
pub fn file_system(path: &Path) -> io::Result<String> {
    // The field is signed on some machines; the numbers have 32 bits.
    let magic = rustix::fs::statfs(path)?.f_type as u32;
    Ok(
        match FILE_SYSTEMS.iter().find(|(number, _)| *number == magic) {
            Some((_, name)) => (*name).to_owned(),
            None => format!("0x{magic:x}"),
        },
    )
}

/// From linux/magic.h and statfs(2). ext2, ext3 and ext4 share one number, and
/// one driver in today's kernels.
const FILE_SYSTEMS: &[(u32, &str)] = &[
    (0x0102_1994, "tmpfs"),
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x6969, "nfs"),
    (0x794c_7630, "overlay"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0xca45_1a4e, "bcachefs"),
    (0x8584_58f6, "ramfs"),
    (0x6573_5546, "fuse"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "ceph"),
    (0x0bd0_0bd0, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x0116_1970, "gfs2"),
    (0x7461_636f, "ocfs2"),
    (0x5346_414f, "afs"),
    (0x4d44, "vfat"),
    (0x2011_bab0, "exfat"),
    (0x5346_544e, "ntfs"),
    (0x7366_746e, "ntfs3"),
    (0x5265_4973, "reiserfs"),
    (0x3153_464a, "jfs"),
    (0x9660, "iso9660"),
    (0x7371_7368, "squashfs"),
    (0xe0f5_e1e2, "erofs"),
    (0xf15f, "ecryptfs"),
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x0958_458f, "hugetlbfs"),
];

/// A mark that tells a library or a program from others: a hash of its bytes (FNV-1a; nobody is
/// meant to be deceived) and their number. None for any other file.
pub fn program_mark(path: &Path) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    let is_program = bytes.starts_with(b"\x7fELF") || bytes.starts_with(b"#!");
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
    is_program.then(|| format!("{hash:016x}-{}", bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    fn file() -> (tempfile::TempDir, CString) {
        let dir = tempfile::tempdir().unwrap();
        let path = CString::new(dir.path().join("f").as_os_str().as_bytes()).unwrap();
        create_exclusive(&path).unwrap();
        (dir, path)
    }

    #[test]
    fn programs_are_told_apart_by_their_bytes() {
        let place = tempfile::tempdir().unwrap();
        let mark = |text: &str| {
            let path = place.path().join("program");
            std::fs::write(&path, text).unwrap();
            program_mark(&path)
        };
        let first = mark("#!/bin/sh\n");
        assert_eq!(
            first
                .as_deref()
                .and_then(|mark| mark.rsplit_once('-'))
                .unwrap()
                .1,
            "10"
        );
        assert_eq!(mark("#!/bin/sh\n"), first);
        assert_ne!(mark("#!/bin/sh "), first);
        assert_eq!(mark("a lock file"), None);
    }

    #[test]
    fn two_opens_are_two_owners_of_flock_and_ofd_locks() {
        let (_dir, path) = file();
        let (one, two) = (open(&path, true).unwrap(), open(&path, true).unwrap());
        let bytes = Bytes { start: 0, len: 1 };
        flock(&one, LockKind::Exclusive, true).unwrap();
        assert_eq!(flock(&two, LockKind::Shared, false), Err(Errno::WOULDBLOCK));
        // The kinds do not see each other.
        record_lock(&two, Holder::OpenFile, LockKind::Exclusive, bytes, true).unwrap();
        assert_eq!(
            record_lock(&one, Holder::OpenFile, LockKind::Shared, bytes, false),
            Err(Errno::AGAIN)
        );
        record_release(&two, Holder::OpenFile, bytes).unwrap();
        record_lock(&one, Holder::OpenFile, LockKind::Shared, bytes, false).unwrap();
        flock_release(&one).unwrap();
        flock(&two, LockKind::Exclusive, false).unwrap();
    }

    #[test]
    fn a_process_never_refuses_itself_a_posix_lock() {
        let (_dir, path) = file();
        let (one, two) = (open(&path, true).unwrap(), open(&path, true).unwrap());
        let bytes = Bytes { start: 16, len: 16 };
        record_lock(&one, Holder::Process, LockKind::Exclusive, bytes, true).unwrap();
        record_lock(&two, Holder::Process, LockKind::Exclusive, bytes, false).unwrap();
        // But an open file description is another owner than the process.
        assert_eq!(
            record_lock(&two, Holder::OpenFile, LockKind::Exclusive, bytes, false),
            Err(Errno::AGAIN)
        );
    }

    #[test]
    fn what_exists_is_not_created_again() {
        let (_dir, path) = file();
        assert_eq!(create_exclusive(&path), Err(Errno::EXIST));
        unlink(&path).unwrap();
        assert_eq!(open(&path, false).err(), Some(Errno::NOENT));
    }

    #[test]
    fn file_systems_have_names() {
        assert_eq!(file_system(Path::new("/proc")).unwrap(), "proc");
        assert!(file_system(Path::new("/nowhere")).is_err());
        let mut numbers: Vec<u32> = FILE_SYSTEMS.iter().map(|(n, _)| *n).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), FILE_SYSTEMS.len());
    }
}
