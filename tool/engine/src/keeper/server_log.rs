//! The output of a launched server: a file in its directory, opened once. The directory belongs to
//! the server's user afterwards, who can put a link in the file's place: root must neither open it
//! again by its name nor read it there.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Its output, in its directory.
const LOG: &str = "server.log";

/// Lines that a message quotes.
const LAST_LINES: usize = 4;

/// Bytes at its end that are searched for them: a server may print more than fits in memory.
const LAST_BYTES: u64 = 64 * 1024;

/// The log of one server, kept for its restarts.
#[derive(Clone, Debug)]
pub(super) struct ServerLog {
    file: Rc<File>,
    /// The directory's parent, for a message about a full disk.
    place: PathBuf,
}

impl ServerLog {
    /// Makes the log in the server's directory, while that still belongs to this process's
    /// user.
    ///
    /// # Errors
    /// The system's; AlreadyExists if anything has this name.
    pub(super) fn create(directory: &Path) -> io::Result<ServerLog> {
        let mut options = OpenOptions::new();
        // O_EXCL, which follows no link either (open(2)).
        options.read(true).append(true).create_new(true).mode(0o600);
        Ok(ServerLog {
            file: Rc::new(options.open(directory.join(LOG))?),
            place: directory.parent().unwrap_or(directory).to_owned(),
        })
    }

    /// Another descriptor of it, for a program's output.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn output(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Adds a line, for example about a program that could not be started.
    pub(super) fn note(&self, line: &str) {
        let _ = writeln!(&*self.file, "{line}");
    }

    /// The server's message at the end, or that its disk is full.
    pub(super) fn last_words(&self) -> String {
        let text = self.end().unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        if let Some(line) = text.lines().rfind(|line| is_of_a_full_disk(line)) {
            return format!(
                "{}; make room in {}, or set $TMPDIR to a larger disk",
                line.trim(),
                self.place.display()
            );
        }
        let mut lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty() && !is_of_a_stack(line))
            .collect();
        lines.drain(..lines.len().saturating_sub(LAST_LINES));
        match lines.as_slice() {
            [] => "it said nothing".to_owned(),
            lines => lines.join(" | "),
        }
    }

    fn end(&self) -> io::Result<Vec<u8>> {
        let first = self.file.metadata()?.len().saturating_sub(LAST_BYTES);
        let mut bytes = vec![0; LAST_BYTES as usize];
        let mut filled = 0;
        loop {
            match self
                .file
                .read_at(&mut bytes[filled..], first + filled as u64)?
            {
                0 => break,
                count => filled += count,
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

/// Whether this line says why a server could not go on: what follows it are the
/// consequences, line after line.
fn is_of_a_full_disk(line: &str) -> bool {
    line.to_ascii_lowercase()
        .contains("no space left on device")
}

/// Whether a program in Java says here where it was.
fn is_of_a_stack(line: &str) -> bool {
    line.starts_with("\tat ") || line.starts_with("\t... ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(text: &str) -> String {
        let place = tempfile::tempdir().unwrap();
        let log = ServerLog::create(place.path()).unwrap();
        log.output().unwrap().write_all(text.as_bytes()).unwrap();
        log.last_words()
    }

    #[test]
    fn the_last_lines_of_a_log_are_told() {
        assert_eq!(logged(""), "it said nothing");
        assert_eq!(logged("a\nb\n\nc\nd\ne\n"), "b | c | d | e");
        assert_eq!(logged("a\n\tat B.c(B.java:7)\n\t... 3 more\nd\n"), "a | d");
        let long = "x".repeat(LAST_BYTES as usize);
        assert_eq!(logged(&format!("{long}\nb\nc\nd\ne\n")), "b | c | d | e");
    }

    #[test]
    fn the_line_about_a_full_disk_is_quoted_with_what_to_do() {
        let log = "1\n PANIC: could not write: No space left on device\naborted\nexit 134\n2\n3\n";
        let said = logged(log);
        let first = "PANIC: could not write: No space left on device; make room in ";
        assert!(said.starts_with(first), "{said}");
        assert!(
            said.ends_with(", or set $TMPDIR to a larger disk"),
            "{said}"
        );
    }

    #[test]
    fn a_log_is_made_where_nothing_is_and_read_only_as_it_was_made() {
        let place = tempfile::tempdir().unwrap();
        let (path, victim) = (place.path().join(LOG), place.path().join("victim"));
        std::fs::write(&victim, "kept").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        let refused = ServerLog::create(place.path()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        std::fs::remove_file(&path).unwrap();
        let log = ServerLog::create(place.path()).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        log.note("own");
        assert_eq!(log.last_words(), "own");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept");
    }
}
