//! The files that a target locks: their paths, their creation and removal, and a worker's
//! descriptors of them. Shared by the locks on files.
//!
//! The files for N keys:
//!
//! - no path: `NAME.0` to `NAME.N-1` in the ledger's directory;
//! - a directory: as many files in it, under the ledger's own name, so that
//!   two runs at a time do not meet; removed afterwards;
//! - anything else: that file for one key, `PATH.0` to `PATH.N-1` for several. An existing
//!   file is used as it is, and neither written nor removed. A missing file is created
//!   empty, and removed afterwards.
//!
//! Where `{worker}` stands in the path, each worker has files of its own, with its number in
//! that place: the same file by several mounts, for example.

use crate::signs::{self, Sign, Signs, sign};
use crate::{CallError, Outcome, Result, Setup, SetupError, Wait, until_granted};
use jostle_model::plan::Carrier;
use jostle_model::record::Process;
use jostle_sys::files::{self, Errno};
use jostle_sys::ledger::Ledger;
use jostle_sys::owners::{self, OwnedBy};
use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The access mode that a lock needs of its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Exclusive record locks: open for writing.
    Write,
    /// flock(2): open for reading is enough.
    Read,
}

/// A lock on a file as a whole.
pub(crate) const WHOLE: [i64; 2] = [0, i64::MAX >> 11];

/// Files that exist and can be locked.
#[derive(Debug)]
pub(crate) struct FileSet {
    /// The paths of each worker; those of all, if there is one entry.
    paths: Vec<Arc<[CString]>>,
    writable: bool,
    open_each: bool,
}

/// The most that a record keeps of larger offsets: other readers of JSON take them for one another.
const LAST_KEPT: u64 = i64::MAX as u64 >> 11;

/// Takes a lock without waiting, on a descriptor that is closed afterwards.
pub(crate) type Probe = fn(BorrowedFd<'_>) -> Result<(), Errno>;

impl FileSet {
    /// Finds or makes the files, opens each once, and locks it once with `probe`, so that
    /// errors show before any worker exists.
    pub(crate) fn prepare(
        setup: &Setup<'_>,
        name: &str,
        access: Access,
        probe: Probe,
    ) -> Result<FileSet> {
        enough_descriptors(setup)?;
        let mut writable = true;
        let mut paths = Vec::new();
        for argument in arguments(setup)? {
            let mut texts = Vec::with_capacity(setup.keys);
            for path in &paths_of(setup, name, argument.as_deref())? {
                let text = text(path)?;
                make_if_missing(setup.ledger, path)?;
                let (file, may_write) =
                    open(&text, access).map_err(|errno| cannot("open", path, errno))?;
                writable &= may_write;
                probe(file.as_fd()).map_err(|errno| cannot("lock", path, errno))?;
                texts.push(text);
            }
            paths.push(texts.into());
        }
        Ok(FileSet {
            paths,
            writable,
            open_each: setup.open_each,
        })
    }

    /// Who has a lock of this kind on one of them, of which workers want these bytes, the first
    /// and the last.
    pub(crate) fn owners(&self, kind: OwnedBy, wanted: [i64; 2]) -> Signs {
        let paths = self.paths.iter().flat_map(|own| own.iter().map(path));
        let owners = owners::of_files(&paths.collect::<Vec<&Path>>(), kind);
        let owner = |owner: owners::Owner| Process {
            pid: owner.pid,
            name: owner.name,
            shared: Some(owner.is_shared),
            bytes: Some(owner.bytes.map(|byte| byte.min(LAST_KEPT))),
            ..Process::default()
        };
        signs::known([
            (
                sign::OWNERS,
                Some(Sign::Processes(owners.into_iter().map(owner).collect())),
            ),
            (sign::WANTED_BYTES, Some(Sign::Range(wanted))),
        ])
    }

    /// The descriptor of one file alone.
    pub(crate) fn session(&self, worker: usize, key: usize) -> Result<Opened, CallError> {
        let paths = self.paths_of_worker(worker);
        let mut files: Vec<Option<OwnedFd>> = paths.iter().map(|_| None).collect();
        let opened = files::open(&paths[key], self.writable);
        files[key] = Some(opened.map_err(|errno| CallError::new("open", errno))?);
        Ok(Opened {
            files,
            paths: Arc::clone(paths),
            writable: self.writable,
            open_each: false,
        })
    }

    /// One worker's own descriptors.
    pub(crate) fn join(&self, worker: usize) -> Result<Opened> {
        let paths = self.paths_of_worker(worker);
        let open = |text: &CString| {
            let opened = (!self.open_each).then(|| files::open(text, self.writable));
            opened
                .transpose()
                .map_err(|errno| cannot("open", path(text), errno))
        };
        Ok(Opened {
            files: paths.iter().map(open).collect::<Result<_, _>>()?,
            paths: Arc::clone(paths),
            writable: self.writable,
            open_each: self.open_each,
        })
    }

    fn paths_of_worker(&self, worker: usize) -> &Arc<[CString]> {
        &self.paths[worker % self.paths.len()]
    }
}

/// The place of a worker's number in a path.
pub const WORKER: &str = "{worker}";

/// The argument as each worker reads it, or once where all read the same.
fn arguments(setup: &Setup<'_>) -> Result<Vec<Option<String>>> {
    match setup.argument {
        Some(text) if text.contains(WORKER) && setup.common_name.is_some() => {
            Err(SetupError(format!(
                "{WORKER} in a path is for one host; name a path that is the same on all of them"
            )))
        }
        Some(text) if text.contains(WORKER) => Ok((0..setup.workers)
            .map(|worker| Some(text.replace(WORKER, &worker.to_string())))
            .collect()),
        argument => Ok(vec![argument.map(str::to_owned)]),
    }
}

/// One worker's descriptors, each an open file description of its own; with
/// `open_each` only while it acquires and holds.
#[derive(Debug)]
pub(crate) struct Opened {
    files: Vec<Option<OwnedFd>>,
    paths: Arc<[CString]>,
    writable: bool,
    open_each: bool,
}

impl Opened {
    /// Takes the lock of a key by this call, which waits if it is told to. With `open_each`
    /// it opens the file before, and closes it unless the lock is granted.
    #[inline]
    pub(crate) fn acquire(
        &mut self,
        call: &'static str,
        key: usize,
        wait: Wait,
        lock: impl Fn(BorrowedFd<'_>, bool) -> Result<(), Errno>,
    ) -> Result<Outcome, CallError> {
        let block = match wait {
            Wait::Try => false,
            Wait::Block { .. } => true,
            Wait::Until(_) => return Err(CallError::unsupported(call)),
        };
        if self.open_each {
            let file = files::open(&self.paths[key], self.writable);
            self.files[key] = Some(file.map_err(|errno| CallError::new("open", errno))?);
        }
        let file = self.held(key)?;
        let outcome = until_granted(call, || lock(file, block));
        if self.open_each && outcome != Ok(Outcome::Granted) {
            self.files[key] = None;
        }
        outcome
    }

    /// Gives it up by this call; with `open_each` by closing the file.
    #[inline]
    pub(crate) fn release(
        &mut self,
        call: &'static str,
        key: usize,
        unlock: impl FnOnce(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<(), CallError> {
        if self.open_each {
            self.files[key] = None;
            return Ok(());
        }
        unlock(self.held(key)?).map_err(|errno| CallError::new(call, errno))
    }

    #[inline]
    fn held(&self, key: usize) -> Result<BorrowedFd<'_>, CallError> {
        match &self.files[key] {
            Some(file) => Ok(file.as_fd()),
            None => Err(CallError::new("close", Errno::BADF)),
        }
    }
}

/// The files' paths by the rules at the head of this module, for workers who share them.
pub(crate) fn paths(setup: &Setup<'_>, name: &str) -> Result<Vec<PathBuf>> {
    paths_of(setup, name, setup.argument)
}

fn paths_of(setup: &Setup<'_>, name: &str, argument: Option<&str>) -> Result<Vec<PathBuf>> {
    let numbered = |stem: &Path| {
        let mut paths = Vec::with_capacity(setup.keys);
        for key in 0..setup.keys {
            let mut path = stem.as_os_str().to_owned();
            path.push(format!(".{key}"));
            paths.push(PathBuf::from(path));
        }
        paths
    };
    let Some(argument) = argument else {
        return Ok(numbered(&setup.ledger.path().join(name)));
    };
    let argument = Path::new(argument);
    match std::fs::metadata(argument) {
        Ok(metadata) if metadata.is_dir() => {
            let run = match setup.common_name {
                Some(name) => format!("jostle-{name:016x}").into(),
                None => setup
                    .ledger
                    .path()
                    .file_name()
                    .unwrap_or_default()
                    .to_owned(),
            };
            let mut stem = argument.join(run).into_os_string();
            stem.push(format!(".{name}"));
            Ok(numbered(Path::new(&stem)))
        }
        Ok(metadata) if !metadata.is_file() => Err(SetupError(format!(
            "{} is neither a file nor a directory; give one of these",
            argument.display()
        ))),
        Ok(_) if setup.keys == 1 => Ok(vec![argument.to_owned()]),
        Err(error) if error.kind() == ErrorKind::NotFound && setup.keys == 1 => {
            Ok(vec![argument.to_owned()])
        }
        Ok(_) => Ok(numbered(argument)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(numbered(argument)),
        Err(error) => Err(refused("look at", argument, &error)),
    }
}

/// As libc wants it.
pub(crate) fn text(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| SetupError(format!("{} has a zero byte in it", path.display())))
}

fn path(text: &CString) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(text.as_bytes()))
}

fn open(text: &CString, access: Access) -> Result<(OwnedFd, bool), Errno> {
    match files::open(text, true) {
        Ok(file) => Ok((file, true)),
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY)
            if access == Access::Read =>
        {
            files::open(text, false).map(|file| (file, false))
        }
        Err(errno) => Err(errno),
    }
}

fn make_if_missing(ledger: &Ledger, path: &Path) -> Result<()> {
    if std::fs::metadata(path).is_ok() {
        return Ok(());
    }
    record(ledger, path)?;
    match files::create_exclusive(&text(path)?) {
        Ok(()) => Ok(()),
        Err(errno) => {
            let made = cannot("make", path, errno);
            ledger
                .withdraw_file(path)
                .map_err(|error| refused("write to the list of", ledger.path(), &error))?;
            match errno {
                // Another host created the file first, and will remove it.
                Errno::EXIST if std::fs::metadata(path).is_ok() => Ok(()),
                _ => Err(made),
            }
        }
    }
}

/// Writes into the ledger that a file will be made, unless it lies in the
/// ledger's own directory.
pub(crate) fn record(ledger: &Ledger, path: &Path) -> Result<()> {
    if path.parent() == Some(ledger.path()) {
        return Ok(());
    }
    ledger
        .record_file(path)
        .map_err(|error| refused("write to the list of", ledger.path(), &error))
}

/// Each worker keeps its files open, beside a few of its own.
fn enough_descriptors(setup: &Setup<'_>) -> Result<()> {
    const OTHERS: u64 = 64;
    let each = if setup.open_each {
        1
    } else {
        setup.keys as u64
    };
    let in_a_process = match setup.carrier {
        Carrier::Processes => 1,
        Carrier::Threads | Carrier::Tasks => setup.workers as u64,
    };
    let needed = each.saturating_mul(in_a_process).saturating_add(OTHERS);
    match files::descriptor_limit() {
        Some(limit) if needed > limit => Err(SetupError(format!(
            "{needed} open files are needed in a process, and {limit} are allowed; \
             raise the limit (ulimit -n {needed}), or use fewer keys or --open-each"
        ))),
        _ => Ok(()),
    }
}

/// The message for the user: the failed operation, the file, the cause, and a remedy.
pub(crate) fn cannot(what: &str, path: &Path, errno: Errno) -> SetupError {
    refused(what, path, &io::Error::from(errno))
}

fn refused(what: &str, path: &Path, error: &io::Error) -> SetupError {
    let number = error.raw_os_error().unwrap_or(0);
    let remedy = match Errno::from_raw_os_error(number) {
        Errno::ACCESS | Errno::PERM | Errno::ROFS => {
            "give a path that you may write to (flock alone can lock a file that it may only read)"
        }
        Errno::NOENT | Errno::NOTDIR => "make its directory first, or give another path",
        Errno::MFILE => "raise the limit on open files (ulimit -n), or use --open-each",
        Errno::NFILE => "raise the limit on open files of the machine (sysctl fs.file-max)",
        Errno::NOSPC | Errno::DQUOT => "free some space, or give a path on another file system",
        Errno::AGAIN => "another program holds a lock on it; wait for it, or give another path",
        Errno::NOLCK | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS => {
            "its file system has no such locks; give a path on another one"
        }
        Errno::TXTBSY => "it is a program that runs; give another path",
        Errno::EXIST => "it is a link to nothing, or was made this moment; give another path",
        _ => "give another path",
    };
    let holder = match number == Errno::AGAIN.raw_os_error() {
        true => held_by(path),
        false => String::new(),
    };
    SetupError(format!(
        "cannot {what} {}: {error}; {remedy}{holder}",
        path.display()
    ))
}

/// Who has a lock of any kind on a file, for the end of a sentence; nothing if nobody is found.
fn held_by(path: &Path) -> String {
    let kinds = [OwnedBy::Flock, OwnedBy::Record];
    let found = kinds.map(|kind| owners::of_files(&[path], kind));
    let named = found.iter().flatten().map(|owner| match owner.pid {
        0 => owner.name.clone(),
        pid => format!("pid {pid} {}", owner.name),
    });
    match named.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => none,
        named => format!(" (held by {named})"),
    }
}
