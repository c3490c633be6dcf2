//! `--local`: a file lock, for commands of one user on one machine.
//!
//! The file's descriptor stays open in the command and in what it starts, as with flock(1):
//! this program becomes the command. Nobody renews such a lock, and nobody can lose it.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use jostle_sys::process::Forker;
use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};
use sha2::{Digest, Sha256};

use crate::args::Options;
use crate::link::readable;
use crate::{Failure, code, say};

pub(crate) fn run(options: &Options) -> Result<u8, Failure> {
    let path = place(options.names[0].as_bytes())?;
    let failed =
        |error: io::Error| Failure(code::CANNOT_CREATE, format!("{}: {error}", path.display()));
    let file = open(&path).map_err(failed)?;
    let begun = Instant::now();
    if !take(&file, options).map_err(failed)? {
        return Err(options.conflict());
    }
    let words = options.words();
    if options.verbose {
        say(&format!(
            "getting the lock took {:.6} seconds",
            begun.elapsed().as_secs_f64()
        ));
        say(&format!("executing {}", words[0].display()));
    }
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env_remove("JOSTLE_LOCK_TOKEN");
    let error = match options.close {
        true => match command.status() {
            Ok(status) => {
                let signal = status.signal().map(|signal| 128 + signal);
                return Ok(status.code().or(signal).unwrap_or(0) as u8);
            }
            Err(error) => error,
        },
        false => {
            fcntl_setfd(&file, FdFlags::empty()).map_err(|error| failed(error.into()))?;
            command.exec()
        }
    };
    let code = match error.kind() {
        io::ErrorKind::NotFound => code::NOT_FOUND,
        _ => code::NOT_EXECUTABLE,
    };
    Err(Failure(code, format!("{}: {error}", words[0].display())))
}

/// The file of a name. The state directory outlives a logout, which removes the runtime
/// directory while a lock is held.
fn place(name: &[u8]) -> Result<PathBuf, Failure> {
    let absolute = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME");
    let state = state.or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    let state = state.ok_or_else(|| {
        let text = "neither XDG_STATE_HOME nor HOME is set: there is no place for the file";
        Failure(code::CANNOT_CREATE, text.to_owned())
    })?;
    let sum = Sha256::digest(name);
    let file: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(state.join("jostle-lock").join(file))
}

/// It is never removed: another process may have it open, and would lock a file that nobody
/// else finds.
fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

/// Takes the lock; false: others had it for the whole wait.
fn take(file: &File, options: &Options) -> io::Result<bool> {
    let (now, wait) = match options.shared {
        true => (
            FlockOperation::NonBlockingLockShared,
            FlockOperation::LockShared,
        ),
        false => (
            FlockOperation::NonBlockingLockExclusive,
            FlockOperation::LockExclusive,
        ),
    };
    match flock(file, now) {
        Ok(()) => return Ok(true),
        Err(Errno::WOULDBLOCK) => {}
        Err(error) => return Err(error.into()),
    }
    let Some(patience) = options.patience() else {
        flock(file, wait)?;
        return Ok(true);
    };
    if patience.is_zero() {
        return Ok(false);
    }
    // flock(2) has no time limit. Another process waits for the open file, which it shares with
    // this one: what it gets belongs to both.
    let waiter = Forker::new()?.fork(|| i32::from(flock(file, wait).is_err()))?;
    let ended = pidfd_open(waiter, PidfdFlags::empty())?;
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if readable([ended.as_fd()], Some(left))?[0] {
            break;
        }
        if left.is_zero() {
            let _ = kill_process(waiter, Signal::KILL);
            break;
        }
    }
    let status = waitpid(Some(waiter), WaitOptions::empty())?;
    Ok(status.is_some_and(|(_, status)| status.exit_status() == Some(0)))
}
