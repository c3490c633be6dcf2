//! The handover: a new program takes the place of this one, in the same process,
//! with all locks, waits and connections.
//!
//! 1. The state goes into a memfd (`state`), and the new program is asked, in a
//!    process of its own, whether it could go on from it (`check`). Clients are
//!    served meanwhile.
//! 2. If it could, the loop stops, and the check is repeated with the state at that
//!    time. Nothing has been changed so far: whatever fails, this program goes on.
//! 3. The state and all descriptors are put into a socket (`parcel`), and this
//!    process becomes the new program by exec, with that socket as its standard
//!    input.
//!
//! The server's own `handover` module defines the state and builds a server from it.

pub(crate) mod check;
pub(crate) mod parcel;
pub(crate) mod state;

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use state::StateError;

/// The flag that starts a program to check whether it could go on from a state.
pub(crate) const CHECK_FLAG: &str = "--check-state";
/// The flag that starts a program to go on from a state.
pub(crate) const TAKE_OVER_FLAG: &str = "--take-over";

/// Variables that are for this process's first program alone.
const NOT_INHERITED: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// The program that a handover starts: the file at this process's path at that time,
/// with the same arguments.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    name: OsString,
    arguments: Vec<OsString>,
}

impl Program {
    /// This process's own.
    ///
    /// # Errors
    /// The system's, for the path.
    pub fn own() -> io::Result<Self> {
        let mut all = std::env::args_os();
        let name = all.next().unwrap_or_default();
        let hidden = |word: &OsString| word != CHECK_FLAG && word != TAKE_OVER_FLAG;
        Ok(Self {
            path: own_path(Path::new(&name))?,
            arguments: all.filter(hidden).collect(),
            name,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn command(&self, flag: &str) -> Command {
        let mut command = Command::new(&self.path);
        command.arg0(&self.name).args(&self.arguments).arg(flag);
        for name in NOT_INHERITED {
            command.env_remove(name);
        }
        command
    }

    /// Identifies the file, so that a replacement is noticed.
    fn stamp(&self) -> Option<[i64; 5]> {
        let found = std::fs::metadata(&self.path).ok()?;
        let (device, inode) = (found.dev() as i64, found.ino() as i64);
        let changed = (found.ctime(), found.ctime_nsec());
        Some([device, inode, found.size() as i64, changed.0, changed.1])
    }

    /// Becomes this program, which gets `parcel` as its standard input. Returns only
    /// if that fails.
    pub(crate) fn become_it(&self, parcel: std::os::fd::OwnedFd) -> io::Error {
        // The thread of the log ends with this program.
        crate::log::flush();
        let error = self.command(TAKE_OVER_FLAG).stdin(parcel).exec();
        // The parcel must not stay open as this process's standard input.
        let _ = parcel::close_stdin();
        error
    }
}

/// The path by which this process was started, if it is one: an upgrade may point a
/// link in it to another file. Otherwise the path of its executable.
fn own_path(name: &Path) -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    if name.components().count() > 1
        && let Ok(found) = name.canonicalize()
        && found == own
    {
        return std::path::absolute(name);
    }
    Ok(own)
}
