//! Files of settings and secrets.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// It is being written, and may not be whole.
    #[error("{}: it changes while it is read: try again, or replace it by renaming", path.display())]
    Unsettled {
        /// The file.
        path: PathBuf,
    },
    /// Its content is not valid.
    #[error("{}: {error}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        error: Box<toml::de::Error>,
    },
}

/// A file that was written more recently than this may still be half empty: programs
/// truncate it first.
const SETTLES: Duration = Duration::from_millis(20);
/// How often a file is read that changes meanwhile, and the pause between the attempts. An
/// event loop may wait for them.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(10);

/// The text of a file, as it stands while nobody writes it.
///
/// # Errors
/// [`FileError::Read`], [`FileError::Unsettled`].
pub fn read(path: &Path) -> Result<String, FileError> {
    let found = attempt(|| look(path, SystemTime::now(), || {}));
    let path = || path.to_owned();
    let text = found.map_err(|error| FileError::Read {
        path: path(),
        error,
    })?;
    text.ok_or_else(|| FileError::Unsettled { path: path() })
}

/// The first text that is found in some attempts; `None`: none of them found one.
fn attempt(mut look: impl FnMut() -> io::Result<Option<String>>) -> io::Result<Option<String>> {
    let mut found = look()?;
    for _ in 1..ATTEMPTS {
        if found.is_none() {
            std::thread::sleep(PAUSE);
            found = look()?;
        }
    }
    Ok(found)
}

/// The text of a file, unless it changes meanwhile or was written just before this time.
/// `meanwhile` runs after the reading.
fn look(path: &Path, now: SystemTime, meanwhile: impl FnOnce()) -> io::Result<Option<String>> {
    let stamp = |it: &Metadata| (it.ino(), it.len(), it.mtime(), it.mtime_nsec());
    let before = path.metadata()?;
    let text = std::fs::read_to_string(path)?;
    meanwhile();
    // A clock that was set back says nothing.
    let age = before.modified().ok();
    let age = age.and_then(|at| now.duration_since(at).ok());
    let is_fresh = age.is_some_and(|age| age < SETTLES);
    let is_same = stamp(&before) == stamp(&path.metadata()?);
    // What a pipe gave cannot be read again.
    let is_settled = !before.is_file() || is_same && !is_fresh;
    Ok(is_settled.then_some(text))
}

/// The settings in a TOML file.
///
/// # Errors
/// [`FileError`].
pub fn settings<T: DeserializeOwned>(path: &Path) -> Result<T, FileError> {
    toml::from_str(&read(path)?).map_err(|error| FileError::Parse {
        path: path.to_owned(),
        error: Box::new(error),
    })
}

/// The first line of a file: a password or a token.
///
/// # Errors
/// As [`read`].
pub fn first_line(path: &Path) -> Result<String, FileError> {
    Ok(read(path)?.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn an_error_names_the_file() {
        let missing = Path::new("/nowhere/settings");
        let error = settings::<BTreeMap<String, u64>>(missing).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("/nowhere/settings: No such file"),
            "{text}"
        );
        let wrong = file("threads = many");
        let error = settings::<BTreeMap<String, u64>>(wrong.path()).unwrap_err();
        assert!(matches!(error, FileError::Parse { .. }), "{error}");
        let path = wrong.path().display().to_string();
        assert!(error.to_string().starts_with(&path), "{error}");
    }

    /// A users file that was written in place while SIGHUP read it was read half.
    #[test]
    fn a_file_that_changes_while_it_is_read_is_read_again() {
        let written = file("user a on\nuser b on\n");
        let (path, later) = (
            written.path(),
            SystemTime::now() + Duration::from_secs(3600),
        );
        let quiet = || look(path, later, || {}).unwrap();
        assert_eq!(quiet().unwrap().lines().count(), 2);
        // Just written, perhaps only its beginning.
        let modified = path.metadata().unwrap().modified().unwrap();
        assert_eq!(look(path, modified + SETTLES / 2, || {}).unwrap(), None);
        let longer = || std::fs::write(path, "user a on\nuser b on\nuser c on\n").unwrap();
        assert_eq!(look(path, later, longer).unwrap(), None);
        let other = || {
            let other = path.with_extension("other");
            std::fs::copy(path, &other).unwrap();
            std::fs::rename(&other, path).unwrap();
        };
        assert_eq!(look(path, later, other).unwrap(), None);
        assert_eq!(quiet().unwrap().lines().count(), 3);
    }

    #[test]
    fn reading_ends_with_the_first_quiet_attempt_or_after_some() {
        let mut left = [None, Some("text".to_owned()), None].into_iter();
        let found = attempt(|| Ok(left.next().unwrap())).unwrap();
        assert_eq!((found.as_deref(), left.len()), (Some("text"), 1));
        let mut attempts = 0;
        let never = attempt(|| {
            attempts += 1;
            Ok(None)
        });
        assert_eq!((never.unwrap(), attempts), (None, ATTEMPTS));
    }

    #[test]
    fn a_secret_is_the_first_line_without_its_end() {
        for (text, secret) in [("x y\nz\n", "x y"), ("x\r\n", "x"), ("", "")] {
            assert_eq!(first_line(file(text).path()).unwrap(), secret, "{text:?}");
        }
    }
}
