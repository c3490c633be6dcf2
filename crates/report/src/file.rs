//! The result file: JSON Lines, one record a line, each on the disk before the
//! next run starts, so that a crash loses at most the point in progress.
//!
//! Several experiments may stand in one file, one after the other.

use crate::ResultSet;
use jostle_model::record::{Experiment, READS, Record, SCHEMA};
use jostle_model::serial::{NotARecord, record_from_json, record_to_json};
use jostle_model::text::redacted;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What is wrong with a result file, in words for the user.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file has results, and may not be overwritten.
    #[error("{path} holds results already; name another file, or replace it with --overwrite")]
    Exists {
        /// The file.
        path: String,
    },
    /// The system refused.
    #[error("cannot {call} {path}: {cause}; {remedy}")]
    System {
        /// `open`, `read` or `write`.
        call: &'static str,
        /// The file.
        path: String,
        /// In the system's words.
        cause: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// The file, or its directory, was removed while it was written.
    #[error(
        "{path} was removed during the run, and the results in it are lost; name a file with -o \
         whose directory stays"
    )]
    Removed {
        /// The file.
        path: String,
    },
    /// A line is not a record, or is out of place.
    #[error("{path}, line {line}: {problem}; remove the line to read the others")]
    Line {
        /// The file.
        path: String,
        /// From 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
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
         version of jostle that wrote it", READS.join(" and ")
    )]
    Schema {
        /// The file.
        path: String,
        /// The line of the experiment record.
        line: usize,
        /// The version that it names.
        found: String,
    },
    /// It does not begin as a result file does.
    #[error("{path}, line {line}: {problem}; a result file, as -o writes it, begins otherwise")]
    Foreign {
        /// The file.
        path: String,
        /// From 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// There is not one whole experiment record in it.
    #[error("{path} holds no results; a result file is what -o writes")]
    Empty {
        /// The file.
        path: String,
    },
}

impl FileError {
    fn system(call: &'static str, path: &str, cause: io::Error) -> FileError {
        let remedy = match (call, cause.kind()) {
            ("read", _) | ("open to read", _) => "name a file that -o has written",
            (_, ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge) => {
                "make room there, or write elsewhere with -o"
            }
            (_, ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                "make its directory first, or name another file with -o"
            }
            (_, ErrorKind::IsADirectory) => "name a file in it with -o",
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
    /// Whether the file still holds an older result, which the first record replaces.
    replaces: bool,
}

impl Writer {
    /// Opens `path`, a new or empty file or a device. A file that is not empty
    /// is replaced only if `overwrite` says so: no finished measurement is lost.
    /// It is emptied by the first record, because the run may fail before that.
    ///
    /// # Errors
    /// [`FileError::Exists`], and whatever the system says.
    pub fn create(path: impl AsRef<Path>, overwrite: bool) -> Result<Writer, FileError> {
        let name = path.as_ref().display().to_string();
        let system = |cause| FileError::system("open", &name, cause);
        // open() must not truncate the file, because its content is checked first.
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(system)?;
        let found = file.metadata().map_err(system)?;
        let replaces = found.is_file() && found.len() > 0;
        if replaces && !overwrite {
            return Err(FileError::Exists { path: name });
        }
        Ok(Writer {
            path: name,
            file,
            replaces,
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
        if self.replaces {
            self.file.set_len(0).map_err(system)?;
            self.replaces = false;
        }
        // One call, so that a crash tears at most this line.
        (&self.file).write_all(line.as_bytes()).map_err(system)?;
        self.sync().map_err(system)?;
        match self.is_removed().map_err(system)? {
            true => Err(FileError::Removed {
                path: self.path.clone(),
            }),
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
        match self.file.sync_data() {
            Err(error)
                if matches!(
                    error.kind(),
                    InvalidInput | ReadOnlyFilesystem | Unsupported
                ) =>
            {
                Ok(())
            }
            other => other,
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

/// What messages call a result file.
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
            Ok(record) => add(&mut sets, record).map_err(|problem| FileError::Line {
                path: path.to_owned(),
                line,
                problem: problem.to_owned(),
            })?,
            Err(FileError::Line { .. }) if bytes.last() != Some(&b'\n') => torn = Some(line),
            Err(error) if sets.is_empty() => return Err(foreign(error)),
            Err(error) => return Err(error),
        }
    }
    let last = sets.last_mut().ok_or_else(|| FileError::Empty {
        path: path.to_owned(),
    })?;
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

/// What is said of a last line that a crash has torn.
pub(crate) fn torn_note(path: &str, line: usize) -> String {
    format!(
        "{path}, line {line}, was torn by a crash and is left out; what stands before it is whole"
    )
}

/// If the first line is no record, the whole file is no result file.
fn foreign(error: FileError) -> FileError {
    match error {
        FileError::Line {
            path,
            line,
            problem,
        } => FileError::Foreign {
            path,
            line,
            problem,
        },
        other => other,
    }
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
        (Record::Point(point), Some(set)) => set.points.push(*point),
        (Record::Fit(fit), Some(set)) => set.fits.push(*fit),
        (Record::End(end), Some(set)) => set.end = Some(end),
        (Record::Closing(closing), Some(set)) => {
            if !set.points.iter_mut().any(|point| closing.add_to(point)) {
                return Err("a closing that belongs to no point");
            }
        }
        // Recomputed from the runs.
        (Record::Verdict(_), Some(_)) => {}
        // A calibration is independent of the experiments before it.
        (Record::Calibrated(_), _) => {}
        // `judged` reads those; they need no experiment.
        (Record::Judged(_) | Record::Doubled(_), _) => {}
        (Record::Closing(_), None) => return Err("a closing that belongs to no experiment"),
        (Record::Point(_), None) => return Err("a point that belongs to no experiment"),
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
    let wrong = |problem| FileError::Line {
        path: path.to_owned(),
        line,
        problem,
    };
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
mod tests {
    use super::*;
    use crate::made;

    fn records(set: &ResultSet) -> Vec<Record> {
        let experiment = Record::Experiment(Box::new(set.experiment.clone()));
        let points = set.points.iter().cloned().map(Box::new).map(Record::Point);
        let end = set.end.clone().map(Record::End);
        let fits = set.fits.iter().cloned().map(Box::new).map(Record::Fit);
        let head = [experiment].into_iter().chain(points);
        head.chain(fits).chain(end).collect()
    }

    fn write(path: &Path, sets: &[ResultSet]) {
        let mut writer = Writer::create(path, false).unwrap();
        for record in sets.iter().flat_map(records) {
            writer.write(&record).unwrap();
        }
    }

    fn parse(text: &str) -> Result<Vec<ResultSet>, String> {
        read_from(&mut text.as_bytes(), "x.jsonl").map_err(|error| error.to_string())
    }

    fn text_of(set: &ResultSet) -> String {
        crate::json::render(std::slice::from_ref(set))
    }

    #[test]
    fn what_is_written_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locks.jsonl");
        let mut unfinished = made::set();
        unfinished.end = None;
        let sets = [made::set(), unfinished, made::set()];
        write(&path, &sets);
        assert_eq!(read(&path).unwrap(), sets);
    }

    #[test]
    fn every_line_is_in_the_file_before_the_next_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locks.jsonl");
        let mut writer = Writer::create(&path, false).unwrap();
        for (made, record) in records(&made::set()).iter().enumerate() {
            writer.write(record).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(text.lines().count(), made + 1);
            assert!(text.ends_with('\n'));
        }
    }

    #[test]
    fn a_crash_in_the_middle_of_a_line_costs_that_line() {
        let set = made::set();
        let whole = text_of(&set);
        let lines: Vec<&str> = whole.lines().collect();
        for kept in 1..lines.len() {
            let torn = &lines[kept][..lines[kept].len() / 2];
            let text = format!("{}\n{torn}", lines[..kept].join("\n"));
            let read = parse(&text).unwrap().remove(0);
            assert_eq!(read.points, set.points[..set.points.len().min(kept - 1)]);
            assert_eq!(read.end, None);
            assert_eq!(read.notes.len(), 1);
            assert!(read.notes[0].contains(&format!("line {}", kept + 1)));
        }
    }

    #[test]
    fn only_the_newline_missing_loses_nothing() {
        let set = made::set();
        assert_eq!(parse(text_of(&set).trim_end()).unwrap(), [set]);
    }

    #[test]
    fn a_torn_line_in_the_middle_is_named() {
        let whole = text_of(&made::set());
        let lines: Vec<&str> = whole.lines().collect();
        let text = format!("{}\n{}\n{}\n", lines[0], &lines[1][..40], lines[2]);
        let error = parse(&text).unwrap_err();
        assert_eq!(
            error,
            "x.jsonl, line 2: not a whole record (EOF while parsing a string, column 40); \
             remove the line to read the others"
        );
    }

    /// `report /dev/zero` once took all memory.
    #[test]
    fn a_line_that_does_not_end_is_named_with_the_bound() {
        let first = text_of(&made::set()).lines().next().unwrap().to_owned() + "\n";
        for (head, line) in [("", 1), (first.as_str(), 2)] {
            let mut endless = BufReader::new(head.as_bytes().chain(io::repeat(0)));
            assert_eq!(
                read_from(&mut endless, "x.jsonl").unwrap_err().to_string(),
                format!(
                    "x.jsonl, line {line}, is longer than 64 MiB, the most that is read of a \
                     line; name a file that -o has written"
                )
            );
        }
    }

    #[test]
    fn records_without_an_experiment_are_named() {
        let whole = text_of(&made::set());
        let (experiment, rest) = whole.split_once('\n').unwrap();
        let error = parse(rest).unwrap_err();
        assert!(error.starts_with("x.jsonl, line 1: a point that belongs to no experiment"));
        let end = whole.lines().last().unwrap();
        let twice = format!("{experiment}\n{end}\n{end}\n");
        let error = parse(&twice).unwrap_err();
        assert!(error.starts_with("x.jsonl, line 3: an end that belongs to no experiment"));
    }

    #[test]
    fn another_version_is_refused_and_both_are_named() {
        let ours = text_of(&made::set());
        let same_shape = ours.replace(SCHEMA, "jostle/7");
        let other_shape = "{\"record\":\"experiment\",\"schema\":\"jostle/7\"}\n";
        for text in [same_shape.as_str(), other_shape] {
            assert_eq!(
                parse(text).unwrap_err(),
                "x.jsonl, line 1: the file is in format jostle/7, and this jostle reads \
                 jostle/1 and jostle/2; use the version of jostle that wrote it"
            );
        }
    }

    #[test]
    fn a_number_that_cannot_be_measured_is_no_record() {
        let mut set = made::set();
        set.points[1].throughput_per_s = 1e300;
        let error = parse(&text_of(&set)).unwrap_err();
        assert!(
            error.contains("line 3: 1e+300 is nothing that can be measured"),
            "{error}"
        );
        // A seed belongs to an experiment, and its machine may allow any value.
        let mut set = made::set();
        set.experiment.plan.seed = Some(u64::MAX);
        assert!(parse(&text_of(&set)).is_ok());
    }

    #[test]
    fn what_is_no_result_file_is_said_to_be_none() {
        for text in ["", "\n\n", "{\"record\":\"experi"] {
            assert!(parse(text).unwrap_err().contains("holds no results"));
        }
        assert_eq!(
            parse("# a plan\n[[experiment]]\n").unwrap_err(),
            "x.jsonl, line 1: not a whole record (expected value, column 1); \
             a result file, as -o writes it, begins otherwise"
        );
    }

    #[test]
    fn finished_results_are_replaced_only_on_demand() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locks.jsonl");
        write(&path, &[made::set(), made::set()]);
        let refusal = Writer::create(&path, false).unwrap_err().to_string();
        assert_eq!(
            refusal,
            format!(
                "{} holds results already; name another file, or replace it with --overwrite",
                path.display()
            )
        );
        assert_eq!(read(&path).unwrap().len(), 2);
        // The first record replaces them, and nothing before it.
        let mut writer = Writer::create(&path, true).unwrap();
        assert_eq!(read(&path).unwrap().len(), 2);
        for record in records(&made::set()) {
            writer.write(&record).unwrap();
        }
        assert_eq!(read(&path).unwrap(), [made::set()]);
        // Empty, it is free to use.
        std::fs::write(&path, "").unwrap();
        assert!(Writer::create(&path, false).is_ok());
    }

    #[test]
    fn a_full_disk_is_reported_with_its_name_and_what_to_do() {
        let mut writer = Writer::create("/dev/full", false).unwrap();
        let error = writer.write(&records(&made::set())[0]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot write /dev/full: No space left on device (os error 28); \
             make room there, or write elsewhere with -o"
        );
    }

    #[test]
    fn a_file_that_is_removed_meanwhile_is_an_error_and_no_silent_loss() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("results");
        std::fs::create_dir(&inner).unwrap();
        let path = inner.join("locks.jsonl");
        let records = records(&made::set());
        let mut writer = Writer::create(&path, false).unwrap();
        writer.write(&records[0]).unwrap();
        // Moved, it still holds what is written.
        let moved = inner.join("moved.jsonl");
        std::fs::rename(&path, &moved).unwrap();
        writer.write(&records[1]).unwrap();
        assert_eq!(read(&moved).unwrap()[0].points.len(), 1);
        std::fs::remove_dir_all(&inner).unwrap();
        let error = writer.write(&records[2]).unwrap_err().to_string();
        assert!(
            error.contains("locks.jsonl was removed during the run"),
            "{error}"
        );
    }

    #[test]
    fn no_password_is_written_nor_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locks.jsonl");
        let mut set = made::set();
        let target = "http://user:secret@host/";
        set.experiment.plan.targets = vec![target.to_owned()];
        set.points[0].target = target.to_owned();
        set.points[0].messages = vec![format!("cannot ask {target}: refused")];
        write(&path, std::slice::from_ref(&set));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("secret") && text.contains("http://user:***@host/"));
        // As an older jostle wrote it.
        std::fs::write(&path, text_of(&set)).unwrap();
        let read = read(&path).unwrap().remove(0);
        assert!(!text_of(&read).contains("secret"));
        assert_eq!(read.points[0].target, "http://user:***@host/");
    }

    #[test]
    fn devices_that_cannot_sync_are_fine() {
        let mut writer = Writer::create("/dev/null", false).unwrap();
        writer.write(&records(&made::set())[0]).unwrap();
    }

    #[test]
    fn paths_that_cannot_be_written_or_read_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("no/such/file");
        let table = [
            (directory.path(), "Is a directory", "name a file in it"),
            (&missing, "No such file", "make its directory first"),
        ];
        for (path, cause, remedy) in table {
            let error = Writer::create(path, false).unwrap_err().to_string();
            for part in [path.to_str().unwrap(), cause, remedy] {
                assert!(error.contains(part), "{error}");
            }
        }
        let error = read(&missing).unwrap_err().to_string();
        assert!(error.contains("cannot open to read") && error.contains("No such file"));
        let error = read(directory.path()).unwrap_err().to_string();
        assert!(error.contains("Is a directory"), "{error}");
    }
}
