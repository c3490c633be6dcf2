//! Files of settings and secrets.

use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
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

/// The text of a file.
///
/// # Errors
/// [`FileError::Read`].
pub fn read(path: &Path) -> Result<String, FileError> {
    std::fs::read_to_string(path).map_err(|error| FileError::Read {
        path: path.to_owned(),
        error,
    })
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
/// [`FileError::Read`].
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

    #[test]
    fn a_secret_is_the_first_line_without_its_end() {
        for (text, secret) in [("x y\nz\n", "x y"), ("x\r\n", "x"), ("", "")] {
            assert_eq!(first_line(file(text).path()).unwrap(), secret, "{text:?}");
        }
    }
}
