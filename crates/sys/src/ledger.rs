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

use crate::limits::cpu_group;
use crate::process::{self, Forker};
use crate::sysv;
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The list's name in the directory; lock files have a dot in theirs.
const LIST: &str = "ledger";
/// The key of its first line.
const NAMESPACES: &str = "namespaces";
const PREFIX: &str = "jostle-";
/// What the names of servers' directories begin with.
const SERVER_PREFIX: &str = "server-of-";
/// Temporary files on a disk (Filesystem Hierarchy Standard, 5.15).
const DISK: &str = "/var/tmp";

/// The variable in the environment of every program that a run starts; it identifies the run.
const MARK: &str = "JOSTLE_RUN";

/// How long programs that a dead run has started may take to be gone.
const STARTED_PATIENCE: Duration = Duration::from_secs(2);

/// How long a control group may still have processes, or a directory writers.
const GROUP_PATIENCE: Duration = Duration::from_secs(2);

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
        self.write("file", std::path::absolute(path)?.as_os_str().as_bytes())
    }

    /// Takes back [`Ledger::record_file`]: the file is not ours.
    ///
    /// # Errors
    /// As [`Ledger::record_file`].
    pub fn withdraw_file(&self, path: &Path) -> io::Result<()> {
        self.write(
            "withdrawn file",
            std::path::absolute(path)?.as_os_str().as_bytes(),
        )
    }

    /// Records a set of semaphores that is about to be made.
    ///
    /// # Errors
    /// The system's.
    pub fn record_semaphore(&self, key: i32) -> io::Result<()> {
        self.write(
            "semaphore",
            format!("{key} {}", namespace("ipc")).as_bytes(),
        )
    }

    /// Takes back [`Ledger::record_semaphore`]: the set is not ours.
    ///
    /// # Errors
    /// The system's.
    pub fn withdraw_semaphore(&self, key: i32) -> io::Result<()> {
        let item = format!("{key} {}", namespace("ipc"));
        self.write("withdrawn semaphore", item.as_bytes())
    }

    /// Records a control group that is about to be made.
    ///
    /// # Errors
    /// As [`Ledger::record_file`].
    pub fn record_group(&self, path: &Path) -> io::Result<()> {
        self.write("group", path.as_os_str().as_bytes())
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
        self.write("directory", path.as_os_str().as_bytes())?;
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok(path),
            Err(error) => {
                self.write("withdrawn directory", path.as_os_str().as_bytes())?;
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

    /// What is recorded and not withdrawn, in order.
    fn items(&self) -> io::Result<Vec<Item>> {
        let text = fs::read(self.path.join(LIST))?;
        let mut items = Vec::new();
        // A last line without its end was torn by a crash, before its thing
        // was made.
        for line in text.split_inclusive(|b| *b == b'\n') {
            let Some(line) = line.strip_suffix(b"\n") else {
                continue;
            };
            match line.strip_prefix(b"withdrawn ") {
                Some(item) => {
                    if let Some(item) = Item::parse(item) {
                        items.retain(|i| *i != item);
                    }
                }
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
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                problems.push(format!("cannot remove {}: {error}", self.path.display()));
            }
            _ => {}
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

fn remove_all_but_the_list(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name() != LIST {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// One thing to be removed.
#[derive(Debug, PartialEq, Eq)]
enum Item {
    File(PathBuf),
    Group(PathBuf),
    Directory(PathBuf),
    Semaphore { key: i32, namespace: String },
}

impl Item {
    fn parse(line: &[u8]) -> Option<Item> {
        if let Some(path) = line.strip_prefix(b"file ") {
            return Some(Item::File(PathBuf::from(OsStr::from_bytes(path))));
        }
        if let Some(path) = line.strip_prefix(b"group ") {
            return Some(Item::Group(PathBuf::from(OsStr::from_bytes(path))));
        }
        if let Some(path) = line.strip_prefix(b"directory ") {
            return Some(Item::Directory(PathBuf::from(OsStr::from_bytes(path))));
        }
        let rest = std::str::from_utf8(line.strip_prefix(b"semaphore ")?).ok()?;
        let (key, namespace) = rest.split_once(' ')?;
        Some(Item::Semaphore {
            key: key.parse().ok()?,
            namespace: namespace.to_owned(),
        })
    }

    fn remove(&self) -> Result<(), String> {
        match self {
            Item::File(path) => remove_lock_file(path),
            Item::Group(path) => remove_group(path),
            Item::Directory(path) => remove_directory(path),
            Item::Semaphore {
                key,
                namespace: made_in,
            } if *made_in == namespace("ipc") => match sysv::remove(*key) {
                Ok(_) => Ok(()),
                Err(error) => Err(format!(
                    "cannot remove the semaphores of key {key}: {error}; try ipcrm -S {key}"
                )),
            },
            Item::Semaphore { .. } => Ok(()),
        }
    }
}

/// The last of its processes may still be on its way out.
fn remove_group(path: &Path) -> Result<(), String> {
    let is_ours = path
        .file_name()
        .and_then(OsStr::to_str)
        .is_some_and(|name| name.starts_with(cpu_group::PREFIX));
    if !is_ours {
        return Err(format!("left {}: it is no group of ours", path.display()));
    }
    let start = Instant::now();
    loop {
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) if start.elapsed() > GROUP_PATIENCE => {
                return Err(format!("cannot remove {}: {error}", path.display()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// A server that has just been killed may still write into it.
fn remove_directory(path: &Path) -> Result<(), String> {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if !name.starts_with(SERVER_PREFIX) || fs::symlink_metadata(path).is_ok_and(|m| !m.is_dir()) {
        return Err(format!(
            "left {}: it is no directory of ours",
            path.display()
        ));
    }
    let start = Instant::now();
    loop {
        match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) if start.elapsed() > GROUP_PATIENCE => {
                return Err(format!("cannot remove {}: {error}", path.display()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn remove_lock_file(path: &Path) -> Result<(), String> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("cannot look at {}: {error}", path.display())),
    };
    if !metadata.is_file() || metadata.len() > 0 {
        return Err(format!(
            "left {}: it is no empty file any more",
            path.display()
        ));
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", path.display()))
        }
        _ => Ok(()),
    }
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
    let begun = Instant::now();
    loop {
        let left = marked(line.as_bytes());
        if left.is_empty() {
            return Ok(());
        }
        if begun.elapsed() > STARTED_PATIENCE {
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
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| has_in_environment(&pid.to_string(), line))
        .collect()
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
    let text = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // It ended between the open and the read.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(error) => return Err(error),
    };
    // The second field is the program's name in parentheses, and may itself
    // contain some.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = rest.split_whitespace();
    if matches!(fields.next(), Some("Z" | "X")) {
        return Ok(None);
    }
    match fields.nth(18).map(str::parse) {
        Some(Ok(start)) => Ok(Some(start)),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysv::{Set, exists, random_key};

    fn names(place: &Path) -> Vec<String> {
        let entries = fs::read_dir(place).unwrap();
        entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_sweep_removes_the_directory_and_what_was_recorded_and_no_more() {
        let place = tempfile::tempdir().unwrap();
        let ledger = Ledger::create_in(place.path()).unwrap();
        assert_eq!(fs::metadata(ledger.path()).unwrap().mode() & 0o777, 0o700);
        fs::write(ledger.path().join("flock.0"), "").unwrap();

        let at = |name: &str| place.path().join(name);
        for (name, text) in [
            ("made", ""),
            ("grown", "data"),
            ("withdrawn", ""),
            ("other", ""),
        ] {
            ledger.record_file(&at(name)).unwrap();
            fs::write(at(name), text).unwrap();
        }
        ledger.record_file(&at("never made")).unwrap();
        ledger.withdraw_file(&at("withdrawn")).unwrap();
        ledger.withdraw_file(&at("other")).unwrap();
        assert!(ledger.has_file(&at("made")).unwrap());
        assert!(!ledger.has_file(&at("other")).unwrap());
        assert!(
            ledger
                .record_file(Path::new("/a\nfile /etc/passwd"))
                .is_err()
        );

        let problems = ledger.sweep().unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("grown"), "{problems:?}");
        let mut left = names(place.path());
        left.sort();
        assert_eq!(left, ["grown", "other", "withdrawn"]);
        assert_eq!(ledger.sweep(), Ok(()), "a second sweep finds nothing to do");
    }

    #[test]
    fn a_sweep_removes_directories_of_servers_and_no_others() {
        let place = tempfile::tempdir().unwrap();
        let ledger = Ledger::create_in(place.path()).unwrap();
        let ours = ledger.make_directory().unwrap();
        let another = ledger.make_directory().unwrap();
        assert_ne!(ours, another);
        fs::create_dir(ours.join("data")).unwrap();
        fs::write(ours.join("data/file"), "x").unwrap();
        let foreign = place.path().join("somebody's");
        fs::create_dir(&foreign).unwrap();
        ledger
            .write("directory", foreign.as_os_str().as_bytes())
            .unwrap();
        let problems = ledger.sweep().unwrap_err();
        assert!(
            problems.len() == 1 && problems[0].contains("somebody's"),
            "{problems:?}"
        );
        assert!(!ours.exists() && !another.exists() && foreign.exists());
    }

    #[test]
    fn a_cleared_ledger_serves_the_next_run() {
        let place = tempfile::tempdir().unwrap();
        let ledger = Ledger::create_in(place.path()).unwrap();
        for _run in 0..2 {
            let file = place.path().join("lock");
            ledger.record_file(&file).unwrap();
            fs::write(&file, "").unwrap();
            fs::write(ledger.path().join("flock.0"), "").unwrap();
            assert_eq!(ledger.clear(), Ok(()));
            assert!(!file.exists());
            assert_eq!(names(ledger.path()), [LIST]);
            assert!(ledger.items().unwrap().is_empty() && ledger.is_of_these_namespaces());
        }
        // Where there is a usual place, that is where it is made.
        let usual = Ledger::create().unwrap();
        assert!(usual.path().starts_with("/dev/shm") || !Path::new("/dev/shm").exists());
        usual.sweep().unwrap();
    }

    #[test]
    fn a_sweep_removes_semaphores_of_this_namespace_only() {
        let place = tempfile::tempdir().unwrap();
        let ledger = Ledger::create_in(place.path()).unwrap();
        let [ours, theirs, withdrawn] = [(); 3].map(|()| random_key().unwrap());
        ledger.record_semaphore(ours).unwrap();
        ledger
            .write("semaphore", format!("{theirs} ipc:[1]").as_bytes())
            .unwrap();
        ledger.record_semaphore(withdrawn).unwrap();
        ledger.withdraw_semaphore(withdrawn).unwrap();
        for key in [ours, theirs, withdrawn] {
            Set::create(key, 2, 1, false).unwrap();
        }
        let swept = ledger.sweep();
        let left = [ours, theirs, withdrawn].map(exists);
        for key in [ours, theirs, withdrawn] {
            sysv::remove(key).unwrap();
        }
        assert_eq!(swept, Ok(()));
        assert_eq!(left, [false, true, true]);
    }

    #[test]
    fn only_ledgers_of_the_dead_are_swept() {
        let place = tempfile::tempdir().unwrap();
        let user = geteuid().as_raw();
        let alive = Ledger::create_in(place.path()).unwrap();
        let pid = std::process::id();
        let make = |name: String, line: &str| {
            let path = place.path().join(name);
            DirBuilder::new().mode(0o700).create(&path).unwrap();
            fs::write(path.join(LIST), line).unwrap();
            path
        };
        let here = format!("{NAMESPACES} {}\n", namespaces());
        let other_clock = format!("{NAMESPACES} {} time:[1]\n", namespace("pid"));
        let outside = place.path().join("lock");
        fs::write(&outside, "").unwrap();
        // Our own number with another start time: the number was used again.
        let line = format!("{here}file {}\nfile /torn", outside.display());
        make(format!("{PREFIX}{user}-{pid}-1-0"), &line);
        let dead = make(format!("{PREFIX}{user}-4194305-5-0"), "");
        let kept = [
            make(format!("{PREFIX}{}-4194305-5-0", user + 1), &here),
            make(
                format!("{PREFIX}{user}-4194305-5-1"),
                &format!("{NAMESPACES} pid:[1] {}\n", namespace("time")),
            ),
            make(format!("{PREFIX}{user}-4194305-5-2"), &other_clock),
            make(format!("{PREFIX}{user}-x-5-0"), &here),
            make("other-0-4194305-5-0".to_owned(), &here),
            alive.path().to_owned(),
        ];
        // A link to a ledger is not followed.
        let link = place.path().join(format!("{PREFIX}{user}-4194305-6-0"));
        std::os::unix::fs::symlink(alive.path(), &link).unwrap();

        assert_eq!(sweep_dead_in(place.path()), Ok(2));
        assert!(!dead.exists() && !outside.exists());
        for path in kept.iter().chain([&link]) {
            assert!(path.exists(), "{}", path.display());
        }
        assert_eq!(sweep_dead_in(Path::new("/nowhere")), Ok(0));
    }

    #[test]
    fn another_process_sweeps_what_it_opens() {
        let place = tempfile::tempdir().unwrap();
        let ledger = Ledger::create_in(place.path()).unwrap();
        let file = place.path().join("lock");
        ledger.record_file(&file).unwrap();
        fs::write(&file, "").unwrap();
        Ledger::open(ledger.path()).unwrap().sweep().unwrap();
        assert_eq!(names(place.path()), [""; 0]);
        let open = place.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(Ledger::open(&open).is_err(), "others may write to it");
        assert!(Ledger::open(&file).is_err());
    }
}
