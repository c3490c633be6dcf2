//! The one folder below which procedures can read.
//!
//! Every path is resolved by the kernel *beneath* the folder (openat2(2) with
//! RESOLVE_BENEATH): `..`, absolute paths and symbolic links that lead out are
//! refused however they are combined, and without a race. Only regular files
//! are opened, so that no procedure hangs on a FIFO.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2, statat};
use rustix::io::Errno;

/// How often a lookup is repeated after a rename elsewhere disturbed it.
const ATTEMPTS: u32 = 16;

/// The folder.
#[derive(Debug)]
pub(crate) struct Spool {
    root: OwnedFd,
    /// Its absolute path and a slash: what absolute paths may start with.
    prefix: Vec<u8>,
}

impl Spool {
    /// Opens the folder.
    ///
    /// # Errors
    /// That it cannot be opened, or that the kernel is older than 5.6 and has no
    /// openat2.
    pub(crate) fn open(path: &Path) -> io::Result<Spool> {
        let path: PathBuf = std::path::absolute(path)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(&path, flags, Mode::empty())?;
        openat2(&root, c".", flags, Mode::empty(), ResolveFlags::BENEATH)?;
        let mut prefix = path.as_os_str().as_bytes().to_vec();
        if prefix.last() != Some(&b'/') {
            prefix.push(b'/');
        }
        Ok(Spool { root, prefix })
    }

    /// The size of a file in bytes.
    ///
    /// # Errors
    /// Those of [`Spool::file`].
    pub(crate) fn size(&self, path: &[u8]) -> io::Result<u64> {
        // One call instead of three: a name without a slash, which is no link,
        // cannot lead out.
        let name = !path.contains(&b'/') && path != b"..";
        if name
            && let Ok(stat) = statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW)
            && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        {
            return Ok(stat.st_size as u64);
        }
        let fd = self.beneath(path, OFlags::PATH)?;
        regular(&fd)
    }

    /// Opens a file to read it; its size in bytes.
    ///
    /// # Errors
    /// EXDEV for a path that leads out of the folder, EINVAL for what is no
    /// regular file or no path at all, else the system's.
    pub(crate) fn file(&self, path: &[u8]) -> io::Result<(File, u64)> {
        // The size comes first, which checks the type: opening a device can have side effects.
        let size = self.size(path)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = self.beneath(path, flags)?;
        regular(&fd)?;
        Ok((File::from(fd), size))
    }

    fn beneath(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        // Mail servers pass absolute paths: a path below the folder's own path is taken
        // relative to it. The kernel refuses any other absolute path.
        let path = path.strip_prefix(self.prefix.as_slice()).unwrap_or(path);
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut attempts = 0;
        loop {
            let found = openat2(
                &self.root,
                path,
                flags | OFlags::CLOEXEC,
                Mode::empty(),
                resolve,
            );
            match found {
                Err(Errno::AGAIN) if attempts < ATTEMPTS => attempts += 1,
                // The kernel's own message for this is about devices.
                Err(Errno::XDEV) => {
                    let why = "the path leads out of the spool";
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
                }
                other => return Ok(other?),
            }
        }
    }
}

fn regular(fd: &OwnedFd) -> io::Result<u64> {
    let stat = fstat(fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL.into());
    }
    Ok(stat.st_size as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::CWD;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_below_the_folder_are_found() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "12345678").unwrap();
        let root = outside.path().join("spool");
        std::fs::create_dir_all(root.join("in/deep")).unwrap();
        std::fs::write(root.join("in/deep/message"), "12345").unwrap();
        symlink("in/deep/message", root.join("good")).unwrap();
        symlink("../secret", root.join("up")).unwrap();
        symlink(outside.path().join("secret"), root.join("absolute")).unwrap();
        symlink("/", root.join("slash")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        symlink("/proc/self/cwd", root.join("magic")).unwrap();
        rustix::fs::mkfifoat(CWD, root.join("fifo"), Mode::RUSR).unwrap();

        let spool = Spool::open(&root).unwrap();
        let whole = |path: &str| root.join(path).as_os_str().as_bytes().to_vec();
        for path in [
            &b"in/deep/message"[..],
            b"./in/../in/deep//message",
            b"good",
            &whole("in/deep/message"),
        ] {
            assert_eq!(spool.size(path).unwrap(), 5);
            assert_eq!(spool.file(path).unwrap().1, 5);
        }
        for path in [
            &b""[..],
            b".",
            b"in",
            b"missing",
            b"../secret",
            b"in/../../secret",
            b"up",
            b"absolute",
            b"slash/etc/passwd",
            b"loop",
            b"magic",
            b"fifo",
            b"/etc/passwd",
            b"//etc/passwd",
            b"/proc/self/root/etc/passwd",
            b"in/deep/message\0",
            b"in\0/../secret",
            &whole("../secret"),
            outside.path().join("secret").as_os_str().as_bytes(),
        ] {
            let shown = String::from_utf8_lossy(path).into_owned();
            assert!(spool.size(path).is_err(), "{shown}");
            assert!(spool.file(path).is_err(), "{shown}");
        }
    }
}
