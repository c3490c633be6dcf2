//! The ledger of a run: a directory that holds the files it makes, and a list
//! of what it makes elsewhere, so that nothing outlives it.
//!
//! The directory is `jostle-UID-PID-START-N` on tmpfs: the user, the process
//! that made it and that process's start time (field 22 of /proc/PID/stat), so
//! that a later start can tell a dead run's ledger from a living one's
//! ([`sweep_dead`]). What lies elsewhere is written to the list *before* it is
//! made; a crash in between leaves a line about nothing, which harms nobody:
//!
//! - `file PATH`: removed if it is an empty regular file, as every lock file
//!   of ours is; a file that has come to hold something is somebody's.
//! - `semaphore KEY NAMESPACE`: a set of this key is removed if this user made
//!   it, and only from within the IPC namespace in which it was recorded. The
//!   sets of a keeper with a namespace of its own go with that namespace; to
//!   its parent, the same key would name another set.
//! - `group PATH`: a control group that limits CPU time, removed when the processes
//!   in it have ended; only one that is named as ours are.
//! - `directory PATH`: a directory of a server that was launched for the run, removed
//!   with all that is in it; only one that is named as ours are.
//! - `withdrawn ...`: the line that follows the word was not made after all.
//!
//! Not for shared memory, which is anonymous. Processes are the keeper's to kill; what
//! its workers had started when it was killed together with its parent is found by a
//! mark in its environment ([`mark_started`]), and ended by the next sweep.

mod item;

use crate::census::{self, stat_field};
use crate::process::{self, Forker};
use crate::waited::Waited;
use item::Item;
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The list's name in the directory; lock files have a dot in theirs.
const LIST: &str = "ledger";
/// The key of its first line.
const NAMESPACES: &str = "namespaces";
const PREFIX: &str = "jostle-";
/// The prefix of the names of servers' directories.
const SERVER_PREFIX: &str = "server-of-";
/// Temporary files on a disk (Filesystem Hierarchy Standard, 5.15).
const DISK: &str = "/var/tmp";

/// The variable in the environment of every program that a run starts; it identifies the run.
const MARK: &str = "JOSTLE_RUN";

/// How long programs that a dead run has started may take to be gone.
const STARTED_PATIENCE: Duration = Duration::from_secs(2);

/// A run's directory and list.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    list: File,
}

/// Where ledgers may be: on tmpfs, where a file costs no disk, else with the
/// temporary files.
fn places() -> [PathBuf; 2] {
    [PathBuf::from("/dev/shm"), std::env::temp_dir()]
}

/// The place where ledgers are made on this machine, as far as a look tells.
pub fn usual_place() -> PathBuf {
    let [usual, other] = places();
    if usual.is_dir() { usual } else { other }
}

impl Ledger {
    /// Makes a ledger of this process in /dev/shm, or in the directory for
    /// temporary files where that is missing or not writable.
    ///
    /// # Errors
    /// The system's, for the directory for temporary files.
    pub fn create() -> io::Result<Ledger> {
        let [usual, other] = places();
        Ledger::create_in(&usual).or_else(|_| Ledger::create_in(&other))
    }

    /// Makes a ledger of this process in a given directory; its own has mode
    /// 0700.
    ///
    /// # Errors
    /// The system's.
    pub fn create_in(place: &Path) -> io::Result<Ledger> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let place = std::path::absolute(place)?;
        let pid = std::process::id();
        let start = start_time(pid)?.ok_or(ErrorKind::NotFound)?;
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let user = geteuid().as_raw();
            let path = place.join(format!("{PREFIX}{user}-{pid}-{start}-{number}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            }
            let ledger = Ledger::open(&path)?;
            ledger.write_head()?;
            return Ok(ledger);
        }
    }

    /// Opens a ledger that another process made, to sweep it on its behalf.
    ///
    /// # Errors
    /// PermissionDenied if the path is not a directory of this user that
    /// nobody else may write to; else the system's.
    pub fn open(path: &Path) -> io::Result<Ledger> {
        if !is_private_directory(path)? {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let list = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path.join(LIST))?;
        Ok(Ledger {
            path: path.to_owned(),
            list,
        })
    }

    /// The directory, for the run's own files. Their names contain a dot.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records a file outside the directory that is about to be made.
    ///
    /// # Errors
    /// InvalidInput for a path with a line break; else the system's.
    pub fn record_file(&self, path: &Path) -> io::Result<()> {
        self.write_path("file", &std::path::absolute(path)?)
    }

    /// Takes back [`Ledger::record_file`]: the file is not ours.
    ///
    /// # Errors
    /// As [`Ledger::record_file`].
    pub fn withdraw_file(&self, path: &Path) -> io::Result<()> {
        self.write_path("withdrawn file", &std::path::absolute(path)?)
    }

    /// Records a set of semaphores that is about to be made.
    ///
    /// # Errors
    /// The system's.
    pub fn record_semaphore(&self, key: i32) -> io::Result<()> {
        self.write_key("semaphore", key)
    }

    /// Takes back [`Ledger::record_semaphore`]: the set is not ours.
    ///
    /// # Errors
    /// The system's.
    pub fn withdraw_semaphore(&self, key: i32) -> io::Result<()> {
        self.write_key("withdrawn semaphore", key)
    }

    /// Records a control group that is about to be made.
    ///
    /// # Errors
    /// As [`Ledger::record_file`].
    pub fn record_group(&self, path: &Path) -> io::Result<()> {
        self.write_path("group", path)
    }

    /// Makes a directory for a server that may run as another user, on a disk: what a
    /// server syncs costs nothing on tmpfs. It goes with the ledger. Its mode is 0700.
    ///
    /// # Errors
    /// The system's.
    pub fn make_directory(&self) -> io::Result<PathBuf> {
        let place = std::env::var_os("TMPDIR").map_or_else(|| DISK.into(), PathBuf::from);
        let place = std::path::absolute(place)?;
        let own = self.path.file_name().unwrap_or_default().to_string_lossy();
        // Each has a number of its own: one that is there is never withdrawn.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = place.join(format!("{SERVER_PREFIX}{own}-{number}"));
        self.write_path("directory", &path)?;
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok(path),
            Err(error) => {
                self.write_path("withdrawn directory", &path)?;
                Err(error)
            }
        }
    }

    /// Whether this file was recorded, and not withdrawn since.
    ///
    /// # Errors
    /// The system's.
    pub fn has_file(&self, path: &Path) -> io::Result<bool> {
        let path = std::path::absolute(path)?;
        Ok(self.items()?.contains(&Item::File(path)))
    }

    fn write_path(&self, word: &str, path: &Path) -> io::Result<()> {
        self.write(word, path.as_os_str().as_bytes())
    }

    fn write_key(&self, word: &str, key: i32) -> io::Result<()> {
        self.write(word, format!("{key} {}", namespace("ipc")).as_bytes())
    }

    /// One line by one write, so that writers cannot tear each other's.
    fn write(&self, word: &str, item: &[u8]) -> io::Result<()> {
        if item.contains(&b'\n') {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "a path with a line break cannot be recorded",
            ));
        }
        let line = [word.as_bytes(), b" ", item, b"\n"].concat();
        (&self.list).write_all(&line)
    }

    /// The items recorded and not withdrawn, in order.
    fn items(&self) -> io::Result<Vec<Item>> {
        let text = fs::read(self.path.join(LIST))?;
        let mut items = Vec::new();
        // A last line without its end was torn by a crash, before its thing
        // was made.
        for line in text.split_inclusive(|b| *b == b'\n') {
            let Some(line) = line.strip_suffix(b"\n") else {
                continue;
            };
            match line.strip_prefix(b"withdrawn ").map(Item::parse) {
                Some(withdrawn) => items.retain(|item| Some(item) != withdrawn.as_ref()),
                None => items.extend(Item::parse(line)),
            }
        }
        Ok(items)
    }

    /// Removes everything that is recorded and all files in the directory, and
    /// goes on with an empty list: between two runs.
    ///
    /// # Errors
    /// A sentence for each thing that could not be removed.
    pub fn clear(&self) -> Result<(), Vec<String>> {
        let mut problems = self.remove_recorded();
        let emptied = remove_all_but_the_list(&self.path)
            .and_then(|()| self.list.set_len(0))
            .and_then(|()| self.write_head());
        if let Err(error) = emptied {
            problems.push(format!("cannot empty {}: {error}", self.path.display()));
        }
        none_or(problems)
    }

    /// Removes everything that is recorded, then the directory with all files
    /// in it. What is gone already is no problem; doing it twice is none.
    ///
    /// # Errors
    /// A sentence for each thing that could not be removed.
    pub fn sweep(&self) -> Result<(), Vec<String>> {
        let mut problems = self.remove_recorded();
        if let Err(error) = gone(fs::remove_dir_all(&self.path)) {
            problems.push(format!("cannot remove {}: {error}", self.path.display()));
        }
        none_or(problems)
    }

    fn remove_recorded(&self) -> Vec<String> {
        match self.items() {
            Ok(items) => items
                .iter()
                .filter_map(|item| item.remove().err())
                .collect(),
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => vec![format!(
                "cannot read {}/{LIST}: {error}",
                self.path.display()
            )],
        }
    }

    /// The list's first line.
    fn write_head(&self) -> io::Result<()> {
        self.write(NAMESPACES, namespaces().as_bytes())
    }

    /// Containers may share /dev/shm but not process numbers, or not the clock by which a
    /// process has started: one that seems dead from here may be alive in its container. An
    /// empty list counts as ours: a crash came before its first line, so that it records
    /// nothing.
    fn is_of_these_namespaces(&self) -> bool {
        let text = fs::read(self.path.join(LIST)).unwrap_or_default();
        let line = format!("{NAMESPACES} {}\n", namespaces());
        text.is_empty() || text.starts_with(line.as_bytes())
    }
}

fn none_or(problems: Vec<String>) -> Result<(), Vec<String>> {
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems)
    }
}

/// The outcome of a removal; that nothing was there is no error.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn remove_all_but_the_list(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name() != LIST {
            gone(fs::remove_file(entry.path()))?;
        }
    }
    Ok(())
}

/// Sweeps the ledgers of this user's dead processes in the usual places, and returns how
/// many there were. Called at every start.
///
/// # Errors
/// A sentence for each thing that could not be removed.
pub fn sweep_dead() -> Result<usize, Vec<String>> {
    let mut swept = 0;
    let mut problems = Vec::new();
    for place in places() {
        match sweep_dead_in(&place) {
            Ok(count) => swept += count,
            Err(more) => problems.extend(more),
        }
    }
    none_or(problems).map(|()| swept)
}

/// As [`sweep_dead`], in one place.
///
/// # Errors
/// As [`sweep_dead`].
pub(crate) fn sweep_dead_in(place: &Path) -> Result<usize, Vec<String>> {
    let Ok(entries) = fs::read_dir(place) else {
        return Ok(0); // nothing could have been made in it either
    };
    let mut swept = 0;
    let mut problems = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !is_of_a_dead_process(&name) {
            continue;
        }
        // Not ours, or gone in the meantime: skip it.
        let Ok(ledger) = Ledger::open(&entry.path()) else {
            continue;
        };
        if !ledger.is_of_these_namespaces() {
            continue;
        }
        if let Some((_, pid, start)) = name.to_str().and_then(parse_name) {
            problems.extend(end_started(&mark(pid, start)).err());
        }
        match ledger.sweep() {
            Ok(()) => swept += 1,
            Err(more) => problems.extend(more),
        }
    }
    none_or(problems).map(|()| swept)
}

/// Marks all programs that this process and those that it forks will start, so that
/// [`sweep_dead`] finds them when nobody else is left who could end them. A program
/// that clears its environment is not found.
///
/// # Errors
/// The system's, where this process cannot be looked up in /proc.
pub fn mark_started(_one_thread: &Forker) -> io::Result<()> {
    let pid = std::process::id();
    let start = start_time(pid)?.ok_or(ErrorKind::NotFound)?;
    // SAFETY: `Forker` is the proof that this process has a single thread, so that
    // nobody reads the environment meanwhile.
    unsafe { std::env::set_var(MARK, mark(pid, start)) };
    Ok(())
}

fn mark(pid: u32, start: u64) -> String {
    format!("{pid}-{start}")
}

/// Kills the processes that carry the mark of a dead process. Does nothing where this
/// process carries the mark itself: that run has then started it, and perhaps also the
/// shell that started it.
fn end_started(mark: &str) -> Result<(), String> {
    let line = format!("{MARK}={mark}");
    if has_in_environment("self", line.as_bytes()) {
        return Ok(());
    }
    let mut waited = Waited::begin();
    loop {
        let left = marked(line.as_bytes());
        if left.is_empty() {
            return Ok(());
        }
        if waited.so_far() > STARTED_PATIENCE {
            return Err(format!(
                "cannot end what an earlier run has started: process {}",
                left[0]
            ));
        }
        left.into_iter().for_each(process::kill);
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Processes with this line in their environment: this user's, for root all. A process
/// that has ended shows no environment.
fn marked(line: &[u8]) -> Vec<u32> {
    let mut pids = census::processes();
    pids.retain(|pid| has_in_environment(&pid.to_string(), line));
    pids
}

/// As it was when the program was executed (proc_pid_environ(5)).
fn has_in_environment(pid: &str, line: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|one| one == line)
}

fn is_of_a_dead_process(name: &OsStr) -> bool {
    let Some((user, pid, start)) = name.to_str().and_then(parse_name) else {
        return false;
    };
    // An error that is not "no such process" leaves it in doubt, hence alive.
    user == geteuid().as_raw() && start_time(pid).is_ok_and(|now| now != Some(start))
}

/// `jostle-UID-PID-START-N` to (UID, PID, START).
fn parse_name(name: &str) -> Option<(u32, u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let user = parts.next()?.parse().ok()?;
    let pid = parts.next()?.parse().ok()?;
    let start = parts.next()?.parse().ok()?;
    let _number: u32 = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some((user, pid, start))
}

/// Those by which a process is known: its number, and the time at which it started.
fn namespaces() -> String {
    format!("{} {}", namespace("pid"), namespace("time"))
}

/// A name for the namespace that this process is in: `ipc:[4026531839]`.
fn namespace(kind: &str) -> String {
    match fs::read_link(format!("/proc/self/ns/{kind}")) {
        Ok(name) => name.to_string_lossy().into_owned(),
        Err(_) => "unknown".to_owned(),
    }
}

fn is_private_directory(path: &Path) -> io::Result<bool> {
    // Not followed: in a directory that all may write to, a link is a trap.
    let metadata = fs::symlink_metadata(path)?;
    Ok(metadata.is_dir() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0)
}

/// Field 22 of /proc/PID/stat: when a process started, in clock ticks since
/// boot. None if there is none, or only what its parent has not reaped.
fn start_time(pid: u32) -> io::Result<Option<u64>> {
    let text = match census::stat(pid) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // It ended between the open and the read.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(error) => return Err(error),
    };
    match (stat_field(&text, 3), stat_field(&text, 22)) {
        (Some('Z' | 'X'), _) => Ok(None),
        (_, Some(start)) => Ok(Some(start)),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests;
