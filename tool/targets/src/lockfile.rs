//! `lockfile`: a file whose existence is the lock.

use crate::file_set;
use crate::prelude::*;
use jostle_sys::files::{self, Errno};
use jostle_sys::{clock, signal};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Between two tries of a waiter. A try costs 0.3 us where the file exists and
/// the sleep 3 us, so that a waiter takes 3 % of a CPU; with one waiter the
/// lock lies free for half of this on average, with more for less.
const POLL_NS: u64 = 100_000;

/// The paths, where nothing exists while nobody holds the lock.
#[derive(Clone, Debug)]
pub struct Lockfile {
    paths: Arc<[CString]>,
}

impl Target for Lockfile {
    type Lock = Lockfile;

    const ENTRY: Entry = Entry {
        name: "lockfile",
        argument: Some("PATH"),
        check_argument: argument::path,
        family: Family::File,
        summary: "a file made with O_CREAT | O_EXCL and unlinked, polled every 100 us",
        details: "Takes the lock with open(O_CREAT | O_EXCL) and gives it up with unlink(2). \
                  Waiters cannot sleep until a release: they try again every 100 us, in no order. \
                  The file of an owner that died stays and keeps everybody out. PATH must not \
                  exist, or be a directory in which the files are made.",
        lock: LockCapabilities::TIMED,
        ..Entry::PLAIN
    };

    fn prepare(setup: &Setup<'_>) -> Result<Lockfile> {
        let paths = file_set::paths(setup, Self::ENTRY.name)?;
        let ready = |path: &PathBuf| {
            clear_own(setup, path)?;
            file_set::record(setup.ledger, path)?;
            let text = file_set::text(path)?;
            files::create_exclusive(&text)
                .and_then(|()| files::unlink(&text))
                .map_err(|errno| file_set::cannot("make", path, errno))?;
            Ok(text)
        };
        Ok(Lockfile {
            paths: paths.iter().map(ready).collect::<Result<_>>()?,
        })
    }

    fn join(&self, _worker: usize) -> Result<Lockfile> {
        Ok(self.clone())
    }

    fn facts(&self) -> Facts {
        facts([("poll_interval_ns", Some(POLL_NS as f64))])
    }
}

/// Removes a file that a killed owner of an earlier run left. Any other file means that
/// somebody holds the lock.
fn clear_own(setup: &Setup<'_>, path: &Path) -> Result<()> {
    if std::fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    let ours =
        path.parent() == Some(setup.ledger.path()) || setup.ledger.has_file(path).unwrap_or(false);
    if !ours {
        return Err(SetupError(format!(
            "{} exists, which means that somebody holds the lock; \
             remove it if nobody does, or give another path",
            path.display()
        )));
    }
    std::fs::remove_file(path)
        .map_err(|error| SetupError(format!("cannot remove {}: {error}", path.display())))
}

impl Lock for Lockfile {
    #[inline]
    fn acquire(&mut self, key: usize, _mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        loop {
            match files::create_exclusive(&self.paths[key]) {
                Ok(()) => return Ok(Outcome::Granted),
                Err(Errno::EXIST | Errno::INTR) => {}
                Err(errno) => return Err(CallError::new("open", errno)),
            }
            let pause = match wait {
                Wait::Try => return Ok(Outcome::Refused),
                Wait::Block { .. } => POLL_NS,
                Wait::Until(time) => POLL_NS.min(time.saturating_sub(clock::monotonic())),
            };
            if pause == 0 {
                return Ok(Outcome::Refused);
            }
            if signal::interrupted() {
                return Ok(Outcome::Interrupted);
            }
            clock::sleep(pause, signal::interrupted);
        }
    }

    #[inline]
    fn release(&mut self, key: usize, _mode: Mode) -> Result<(), CallError> {
        files::unlink(&self.paths[key]).map_err(|errno| CallError::new("unlink", errno))
    }
}
