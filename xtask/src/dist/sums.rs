//! SHA256SUMS over all packages, as `sha256sum --check` reads it.

use super::names;
use anyhow::{Context, bail};
use jostle_testbed::shell;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::process::Command;

const FILE: &str = "SHA256SUMS";

/// The sum of some bytes, in hexadecimal.
pub(super) fn sha256(bytes: &[u8]) -> String {
    let sum = Sha256::digest(bytes);
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes the sums of all other files of the directory.
pub(super) fn write(out: &Path) -> anyhow::Result<()> {
    let mut text = String::new();
    for name in names(out)?.iter().filter(|name| *name != FILE) {
        text += &format!("{}  {name}\n", sha256(&std::fs::read(out.join(name))?));
    }
    std::fs::write(out.join(FILE), text).context("cannot write the sums")
}

/// Has another program compare them, and fails for a file without a sum.
pub(super) fn verify(out: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(out.join(FILE))
        .with_context(|| format!("no {FILE} in {}: run `cargo xtask dist`", out.display()))?;
    for name in names(out)?.iter().filter(|name| *name != FILE) {
        let mut text = text.lines();
        if !text.any(|line| line.ends_with(&format!("  {name}"))) {
            bail!("{name} has no sum in {FILE}");
        }
    }
    let mut sha256sum = Command::new("sha256sum");
    sha256sum.args(["--check", "--strict", "--quiet", FILE]);
    shell::run(sha256sum.current_dir(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_and_a_file_without_a_sum_are_found() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("a"), "abc").unwrap();
        write(place.path()).unwrap();
        verify(place.path()).unwrap();
        std::fs::write(place.path().join("b"), "").unwrap();
        let error = verify(place.path()).unwrap_err();
        assert_eq!(error.to_string(), "b has no sum in SHA256SUMS");
        std::fs::remove_file(place.path().join("b")).unwrap();
        std::fs::write(place.path().join("a"), "abd").unwrap();
        assert!(verify(place.path()).is_err());
    }

    #[test]
    fn the_sum_is_that_of_the_standard() {
        // FIPS 180-2, appendix B.1.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc"), abc);
    }
}
