//! The needs of a program on the machine it runs on, read from the program itself by `readelf`,
//! which reads those of other processors too.

use anyhow::{Context, bail};
use jostle_testbed::shell;
use std::fmt;
use std::path::Path;
use std::process::Command;

/// A version of glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Glibc(pub u32, pub u32);

impl fmt::Display for Glibc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The lowest glibc that has every symbol the program asks for.
pub(super) fn lowest_glibc(program: &Path) -> anyhow::Result<Glibc> {
    let versions = readelf(program, "--version-info")?;
    newest(&versions).with_context(|| format!("{} asks for no glibc", program.display()))
}

/// The newest `GLIBC_` of a list of versions; `GLIBC_ABI_DT_RELR` and its like carry no
/// number.
fn newest(versions: &str) -> Option<Glibc> {
    let of_name = |name: &str| {
        let mut parts = name.strip_prefix("GLIBC_")?.split('.');
        let (major, minor) = (parts.next()?, parts.next()?);
        Some(Glibc(major.parse().ok()?, minor.parse().ok()?))
    };
    versions.split_whitespace().filter_map(of_name).max()
}

/// Fails for a program that asks for a loader or a library.
pub(super) fn must_be_static(program: &Path) -> anyhow::Result<()> {
    let headers = readelf(program, "--program-headers")?;
    let dynamic = readelf(program, "--dynamic")?;
    if headers.contains("INTERP") || dynamic.contains("NEEDED") {
        bail!("{} is not static", program.display());
    }
    Ok(())
}

/// The libraries that a program asks for by name.
pub(super) fn needed(program: &Path) -> anyhow::Result<Vec<String>> {
    let dynamic = readelf(program, "--dynamic")?;
    let lines = dynamic.lines().filter(|line| line.contains("(NEEDED)"));
    let names = lines.filter_map(|line| line.split_once('[')?.1.strip_suffix(']'));
    Ok(names.map(str::to_owned).collect())
}

fn readelf(program: &Path, what: &str) -> anyhow::Result<String> {
    let mut readelf = Command::new("readelf");
    shell::output(readelf.args(["--wide", what]).arg(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_by_number_not_by_letter() {
        let versions = "0x0010: Name: GLIBC_2.9 Flags: none\n 0x0020: Name: GLIBC_2.30 \
                        Flags: none\n Name: GLIBC_2.2.5 Name: GLIBC_ABI_DT_RELR Name: GCC_4.0";
        assert_eq!(newest(versions), Some(Glibc(2, 30)));
        assert_eq!(newest("Name: GCC_3.0"), None);
    }

    #[test]
    fn a_dynamic_program_is_not_taken_for_a_static_one() {
        let error = must_be_static(Path::new("/bin/sh")).unwrap_err();
        assert_eq!(error.to_string(), "/bin/sh is not static");
        assert!(lowest_glibc(Path::new("/bin/sh")).unwrap() >= Glibc(2, 2));
        let libraries = needed(Path::new("/bin/sh")).unwrap();
        assert!(
            libraries.iter().any(|name| name == "libc.so.6"),
            "{libraries:?}"
        );
    }
}
