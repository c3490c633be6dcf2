//! The built-in procedure `/sizecheck`: accepts or rejects a spool file by its
//! size, as the first engine of this kind did.
//!
//! `file` and `max` (bytes) are required. The exit code is `accept` (0 unless
//! given) for a file of at most `max` bytes, else `reject` (1 unless given).

use crate::call::number;
use crate::query::Args;
use crate::spool::Spool;

/// Why there is no exit code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SizecheckError {
    /// The caller's mistake.
    #[error("{0}")]
    Usage(&'static str),
    /// The file's size cannot be read.
    #[error("file: {0}")]
    File(#[from] std::io::Error),
}

/// The exit code.
///
/// # Errors
/// [`SizecheckError`]: a check that cannot be made never gives an exit code.
pub(crate) fn sizecheck(args: &Args, spool: Option<&Spool>) -> Result<u8, SizecheckError> {
    let usage = SizecheckError::Usage;
    let file = args.get("file").ok_or(usage("sizecheck needs file=PATH"))?;
    let max = args.get("max").ok_or(usage("sizecheck needs max=BYTES"))?;
    let max: u64 = number(max).ok_or(usage("max is not a number of bytes"))?;
    let code = |name, default| match args.get(name) {
        None => Ok(default),
        Some(text) => number(text)
            .and_then(|code| u8::try_from(code).ok())
            .ok_or(usage("accept and reject are exit codes, 0 to 255")),
    };
    let (accept, reject) = (code("accept", 0)?, code("reject", 1)?);
    let spool = spool.ok_or(usage("procd was started without --spool"))?;
    let size = spool.size(file)?;
    Ok(if size <= max { accept } else { reject })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_accepted_up_to_the_maximum_and_rejected_above() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("m"), vec![0; 1000]).unwrap();
        std::fs::write(root.path().join("empty"), "").unwrap();
        let spool = Spool::open(root.path()).unwrap();
        let ask = |query: &str| {
            let args = Args::parse(Some(query.as_bytes())).unwrap();
            sizecheck(&args, Some(&spool)).map_err(|error| error.to_string())
        };
        for (query, code) in [
            ("file=m&max=999", 1),
            ("file=m&max=1000", 0),
            ("file=m&max=1001", 0),
            ("file=empty&max=0", 0),
            ("file=m&max=18446744073709551615", 0),
            ("file=m&max=1&reject=6", 6),
            ("file=m&max=1000&accept=7&reject=6", 7),
        ] {
            assert_eq!(ask(query), Ok(code), "{query}");
        }
        for query in [
            "",
            "file=m",
            "max=1",
            "file=m&max=",
            "file=m&max=-1",
            "file=m&max=1k",
            "file=m&max=+1",
            "file=m&max=18446744073709551616",
            "file=m&max=1&reject=256",
            "file=missing&max=1",
            "file=../m&max=1",
        ] {
            assert!(ask(query).is_err(), "{query}");
        }
    }
}
