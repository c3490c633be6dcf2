//! The result file: JSON Lines, one record a line, each on the disk before the
//! next run starts, so that a crash loses at most the point in progress.
//!
//! Several experiments may stand in one file, one after the other.

mod follows;

use crate::ResultSet;
use jostle_model::record::{Experiment, READS, Record, SCHEMA};
use jostle_model::serial::{NotARecord, record_from_json, record_to_json};
use jostle_model::text::redacted;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use std::fs::File;
use std::fs::TryLockError;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// A fault of a result file, in words for the user.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file has results, and may not be overwritten.
    #[error("{0} holds results already; name another file, or replace it with --overwrite")]
    Exists(String),
    /// Another process writes it.
    #[error("another jostle writes to {0}; wait until it ends, or name another file")]
    Busy(String),
    /// The system refused.
    #[error("cannot {call} {path}: {cause}; {remedy}")]
    System {
        /// `open`, `read` or `write`.
        call: &'static str,
        /// The file.
        path: String,
        /// In the system's words.
        cause: io::Error,
        /// The remedy.
        remedy: &'static str,
    },
    /// The file, or its directory, was removed while it was written.
    #[error(
        "{0} was removed during the run, and the results in it are lost; name a file with -o \
         whose directory stays"
    )]
    Removed(String),
    /// A line is not a record, or is out of place.
    #[error("{path}, line {line}: {problem}; {remedy}")]
    Line {
        /// The file.
        path: String,
        /// From 1.
        line: usize,
        /// The fault in the line.
        problem: String,
        /// The remedy; of the first line, that the file does not begin as a result file does.
        remedy: &'static str,
    },
    /// A line does not end.
    #[error(
        "{path}, line {line}, is longer than {} MiB, the most that is read of a line; name a \
         file that -o has written", MOST_LINE_BYTES >> 20
    )]
    Long {
        /// The file.
        path: String,
        /// From 1.
        line: usize,
    },
    /// It was written in another version of the format.
    #[error(
        "{path}, line {line}: the file is in format {found}, and this jostle reads {}; use the \
         version of jostle that wrote it",
        every_version()
    )]
    Schema {
        /// The file.
        path: String,
        /// The line of the experiment record.
        line: usize,
        /// The version that it names.
        found: String,
    },
    /// There is not one whole experiment record in it.
    #[error("{0} holds no results; a result file is what -o writes")]
    Empty(String),
}

impl FileError {
    pub(crate) fn line(path: &str, line: usize, problem: &str) -> FileError {
        FileError::Line {
            path: path.to_owned(),
            line,
            problem: problem.to_owned(),
            remedy: "remove the line to read the others",
        }
    }

    pub(crate) fn system(call: &'static str, path: &str, cause: io::Error) -> FileError {
        let remedy = match (call, cause.kind()) {
            ("read", _) | ("open to read", _) => "name a file that -o has written",
            (_, ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge) => {
                "make room there, or write elsewhere with -o"
            }
            (_, ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                "make its directory first, or name another file with -o"
            }
            (_, ErrorKind::IsADirectory) => "name a file in it with -o",
            _ if is_unread(&cause) => "start first what reads this pipe",
            _ => "name a file with -o that you may write",
        };
        FileError::System {
            call,
            path: path.to_owned(),
            cause,
            remedy,
        }
    }
}

/// Nobody has the other end of a pipe open.
fn is_unread(cause: &io::Error) -> bool {
    cause.raw_os_error() == Some(Errno::NXIO.raw_os_error())
}

/// The most that is read of a line: of what never ends, such as `/dev/zero`, no more than
/// this is kept in memory. The longest line in `record/` has 43 kB. The longest that can
/// become necessary are of `judge`, which adds some 300 bytes a second.
pub const MOST_LINE_BYTES: u64 = 64 << 20;

/// The path that means standard input.
const STANDARD_INPUT: &str = "-";

/// Writes records as they are made.
#[derive(Debug)]
pub struct Writer {
    path: String,
    file: File,
    /// The first record cuts an older file to this length, and follows.
    keeps_bytes: Option<u64>,
}

impl Writer {
    /// Opens `path`, a new or empty file or a device. A file that is not empty
    /// is replaced only if `overwrite` says so: no finished measurement is lost.
    /// It is emptied by the first record, because the run may fail before that.
    ///
    /// # Errors
    /// [`FileError::Exists`], and whatever the system says.
    pub fn create(path: impl AsRef<Path>, overwrite: bool) -> Result<Writer, FileError> {
        let writer = Writer::open(path)?;
        match writer.keeps_bytes.is_some() && !overwrite {
            true => Err(FileError::Exists(writer.path)),
            false => Ok(writer),
        }
    }

    /// Opens a result file to write behind its first `keeps_bytes`. The first record cuts
    /// off the rest.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn append(path: impl AsRef<Path>, keeps_bytes: u64) -> Result<Writer, FileError> {
        let writer = Writer::open(path)?;
        Ok(Writer {
            keeps_bytes: Some(keeps_bytes),
            ..writer
        })
    }

    fn open(path: impl AsRef<Path>) -> Result<Writer, FileError> {
        let name = path.as_ref().display().to_string();
        let system = |cause| FileError::system("open", &name, cause);
        // open() must not truncate the file, because its content is checked first. It must not
        // wait either, as it does for whoever would read a pipe; writing may.
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(&path)
            .map_err(system)?;
        fcntl_setfl(&file, OFlags::empty()).map_err(|errno| system(errno.into()))?;
        let found = file.metadata().map_err(system)?;
        // File systems without locks are written to as they are.
        if found.is_file() && matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(FileError::Busy(name));
        }
        Ok(Writer {
            path: name,
            file,
            keeps_bytes: (found.is_file() && found.len() > 0).then_some(0),
        })
    }

    /// One line, which is on the disk when this returns, without passwords of URLs.
    ///
    /// # Errors
    /// [`FileError::Removed`], or whatever the system says, such as a full disk.
    pub fn write(&mut self, record: &Record) -> Result<(), FileError> {
        let mut line = redacted(&record_to_json(record)).into_owned();
        line.push('\n');
        let system = |cause| FileError::system("write", &self.path, cause);
        if let Some(bytes) = self.keeps_bytes.take() {
            self.file.set_len(bytes).map_err(system)?;
            self.file.seek(SeekFrom::Start(bytes)).map_err(system)?;
        }
        // One call, so that a crash tears at most this line.
        (&self.file).write_all(line.as_bytes()).map_err(system)?;
        self.sync().map_err(system)?;
        match self.is_removed().map_err(system)? {
            true => Err(FileError::Removed(self.path.clone())),
            false => Ok(()),
        }
    }

    /// Whether the file has no name any more. Writing to it would succeed, but its content
    /// would be lost with its last descriptor. A renamed file keeps its content.
    fn is_removed(&self) -> io::Result<bool> {
        let found = self.file.metadata()?;
        Ok(found.is_file() && found.nlink() == 0)
    }

    /// Pipes, terminals and devices have no disk to wait for, and say so.
    fn sync(&self) -> io::Result<()> {
        use ErrorKind::{InvalidInput, ReadOnlyFilesystem, Unsupported};
        let synced = self.file.sync_data();
        match synced.as_ref().map_err(io::Error::kind) {
            Err(InvalidInput | ReadOnlyFilesystem | Unsupported) => Ok(()),
            _ => synced,
        }
    }
}

/// The experiments of a result file; of standard input for `-`.
///
/// A last line that a crash has torn is left out and noted; the result set that
/// it belongs to has no end.
///
/// # Errors
/// Which line is wrong and why, another version of the format, no experiment at
/// all, or whatever the system says.
pub fn read(path: impl AsRef<Path>) -> Result<Vec<ResultSet>, FileError> {
    let path = path.as_ref();
    read_from(&mut open(path)?, &name_of(path))
}

/// The experiments of a result file, and the bytes of its whole lines: a crash can cut the last
/// line.
///
/// # Errors
/// As [`read`].
pub fn read_whole_lines(path: &Path) -> Result<(Vec<ResultSet>, Vec<u8>), FileError> {
    let name = name_of(path);
    let mut input = open(path)?;
    let mut bytes = Vec::new();
    let read = input.read_to_end(&mut bytes);
    read.map_err(|cause| FileError::system("read", &name, cause))?;
    let ends = bytes.iter().rposition(|byte| *byte == b'\n');
    bytes.truncate(ends.map_or(0, |at| at + 1));
    Ok((read_from(&mut bytes.as_slice(), &name)?, bytes))
}

/// Opens a result file to read it; standard input for `-`.
///
/// # Errors
/// Whatever the system says.
pub fn open(path: &Path) -> Result<Box<dyn BufRead>, FileError> {
    if path == Path::new(STANDARD_INPUT) {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    match File::open(path) {
        Ok(file) => Ok(Box::new(BufReader::new(file))),
        Err(cause) => Err(FileError::system("open to read", &name_of(path), cause)),
    }
}

/// The name of a result file in messages.
pub fn name_of(path: &Path) -> String {
    match path == Path::new(STANDARD_INPUT) {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    }
}

/// As [`read`], from what is open already; `path` is its name in messages.
///
/// # Errors
/// As [`read`].
pub fn read_from(input: &mut dyn BufRead, path: &str) -> Result<Vec<ResultSet>, FileError> {
    let mut sets = Vec::new();
    let mut torn = None;
    for numbered in lines(input, path) {
        let (line, bytes) = numbered?;
        match record(bytes.trim_ascii(), path, line) {
            Ok(record) => {
                if let Record::Run(run) = &record
                    && let Some(problem) = follows::contradiction(run)
                {
                    return Err(FileError::line(path, line, &problem));
                }
                add(&mut sets, record).map_err(|problem| FileError::line(path, line, problem))?;
            }
            Err(FileError::Line { .. }) if bytes.last() != Some(&b'\n') => torn = Some(line),
            // If the first line is no record, the whole file is no result file.
            Err(FileError::Line { problem, .. }) if sets.is_empty() => {
                return Err(FileError::Line {
                    path: path.to_owned(),
                    line,
                    problem,
                    remedy: "a result file, as -o writes it, begins otherwise",
                });
            }
            Err(error) => return Err(error),
        }
    }
    let empty = || FileError::Empty(path.to_owned());
    let last = sets.last_mut().ok_or_else(empty)?;
    last.notes.extend(torn.map(|line| torn_note(path, line)));
    Ok(sets)
}

/// The lines that are not empty, with their newlines, and their numbers from 1. It ends at
/// its first error; a line of more than [`MOST_LINE_BYTES`] is one.
pub fn lines<'a>(
    input: &'a mut dyn BufRead,
    path: &'a str,
) -> impl Iterator<Item = Result<(usize, Vec<u8>), FileError>> + 'a {
    let numbered = (1..).map_while(move |line| {
        let mut bytes = Vec::new();
        match (&mut *input)
            .take(MOST_LINE_BYTES + 1)
            .read_until(b'\n', &mut bytes)
        {
            Ok(0) => None,
            Ok(read) if read as u64 > MOST_LINE_BYTES => Some(Err(FileError::Long {
                path: path.to_owned(),
                line,
            })),
            Ok(_) => Some(Ok((line, bytes))),
            Err(cause) => Some(Err(FileError::system("read", path, cause))),
        }
    });
    let is_empty = |bytes: &[u8]| bytes.trim_ascii().is_empty();
    numbered.filter(move |line| !line.as_ref().is_ok_and(|(_, bytes)| is_empty(bytes)))
}

/// The note on a last line that a crash has torn.
pub(crate) fn torn_note(path: &str, line: usize) -> String {
    format!(
        "{path}, line {line}, was torn by a crash and is left out; what stands before it is whole"
    )
}

/// The versions that are read, as a sentence lists them.
fn every_version() -> String {
    let [before @ .., last] = &READS;
    format!("{} and {last}", before.join(", "))
}

/// Puts a record where it belongs.
fn add(sets: &mut Vec<ResultSet>, record: Record) -> Result<(), &'static str> {
    let open = sets.last_mut().filter(|set| set.end.is_none());
    match (record, open) {
        (Record::Experiment(experiment), _) => {
            // From here on the experiment is stored and printed in this version's format.
            let experiment = Experiment {
                schema: SCHEMA.to_owned(),
                ..*experiment
            };
            sets.push(ResultSet::new(experiment, Vec::new(), None));
        }
        (Record::Scheduled(scheduled), Some(set)) => set.scheduled = Some(*scheduled),
        (Record::Resumed(resumed), Some(set)) => set.resumed.push(*resumed),
        (Record::Run(run), Some(set)) => set.runs.push(*run),
        (Record::Fit(fit), Some(set)) => set.fits.push(*fit),
        (Record::End(end), Some(set)) => set.end = Some(end),
        (Record::Closing(closing), Some(set)) => {
            if !set.runs.iter_mut().any(|point| closing.add_to(point)) {
                return Err("a closing that belongs to no run");
            }
        }
        // Recomputed from the runs.
        (Record::Verdict(_), Some(_)) => {}
        // A calibration is independent of the experiments before it.
        (Record::Calibrated(_), _) => {}
        // `judged` reads those; they need no experiment.
        (Record::Judged(_) | Record::Doubled(_), _) => {}
        (Record::Scheduled(_), None) => return Err("a schedule that belongs to no experiment"),
        (Record::Resumed(_), None) => return Err("a break that belongs to no experiment"),
        (Record::Closing(_), None) => return Err("a closing that belongs to no experiment"),
        (Record::Run(_), None) => return Err("a run that belongs to no experiment"),
        (Record::Fit(_), None) => return Err("a fit that belongs to no experiment"),
        (Record::Verdict(_), None) => return Err("a verdict that belongs to no experiment"),
        (Record::End(_), None) => return Err("an end that belongs to no experiment"),
    }
    Ok(())
}

pub(crate) fn record(bytes: &[u8], path: &str, line: usize) -> Result<Record, FileError> {
    // Files of older versions may contain passwords, which must not be printed.
    let text = String::from_utf8_lossy(bytes);
    let text = redacted(&text);
    let wrong = |problem: String| FileError::line(path, line, &problem);
    record_from_json(&text).map_err(|error| match error {
        NotARecord::Schema(found) => FileError::Schema {
            path: path.to_owned(),
            line,
            found,
        },
        NotARecord::Text { what, column } => {
            let column = column.map_or(String::new(), |at| format!(", column {at}"));
            wrong(format!("not a whole record ({what}{column})"))
        }
        NotARecord::Beyond(number) => wrong(format!("{number} is nothing that can be measured")),
    })
}

#[cfg(test)]
mod tests;
