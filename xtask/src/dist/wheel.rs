//! The wheel: `pip install` for people who have Python and nothing else. It brings the
//! program itself; there is no Python in it. `wheel pack` writes the list of its files
//! and the archive.

use super::contents::{self, JOSTLE, Layout};
use super::elf::Glibc;
use super::{Packing, VERSION, temporary};
use jostle_testbed::shell;
use std::path::Path;
use std::process::Command;

/// The interpreter of the system, whose packages are listed; the first in
/// PATH may be another.
pub(super) const PYTHON: &str = "/usr/bin/python3";

/// From which glibc on it can be installed (PEP 600), and on which processor. pip before
/// 20.3 knows only manylinux2014 (PEP 599), which promises less than `jostle` needs: without
/// it, it would refuse the wheel everywhere.
fn tags(glibc: Glibc, arch: &str) -> [String; 2] {
    [
        format!("py3-none-manylinux2014_{arch}"),
        format!("py3-none-manylinux_{}_{}_{arch}", glibc.0, glibc.1),
    ]
}

/// Writes it.
pub(super) fn make(packing: &Packing<'_>, out: &Path) -> anyhow::Result<()> {
    let stage = temporary("wheel")?;
    let name = format!("jostle-{VERSION}");
    let data = stage.path().join(format!("{name}.data"));
    contents::lay(packing, JOSTLE, &data, Layout::Wheel)?;
    // Two targets start the first two, which stand beside jostle.
    for name in ["procd", "jostle-call", "jostle-lock"] {
        let to = data.join("scripts").join(name);
        contents::copy(&packing.programs.join(name), &to, 0o755)?;
    }
    let about = stage.path().join(format!("{name}.dist-info"));
    contents::write(metadata(), &about.join("METADATA"), 0o644)?;
    let wheel = format!(
        "Wheel-Version: 1.0\nGenerator: cargo xtask dist\nRoot-Is-Purelib: false\nTag: {}\n",
        tags(packing.glibc, packing.target.arch).join("\nTag: ")
    );
    contents::write(&wheel, &about.join("WHEEL"), 0o644)?;
    let mut pack = Command::new(PYTHON);
    pack.env("SOURCE_DATE_EPOCH", packing.epoch.to_string())
        .args(["-m", "wheel", "pack", "--dest-dir"])
        .arg(out)
        .arg(stage.path());
    shell::output(&mut pack).map(drop)
}

fn metadata() -> String {
    format!(
        "Metadata-Version: 2.1\nName: jostle\nVersion: {VERSION}\n\
         Summary: Measures how locks, servers and connections behave under contention\n\
         License: MIT OR Apache-2.0\nRequires-Python: >=3.6\n\
         Description-Content-Type: text/markdown\n\n\
         Type `jostle` for five questions and the commands that answer them.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_pip_and_a_new_one_find_a_tag_that_they_know() {
        let tags = tags(Glibc(2, 30), "x86_64");
        // pip 20.2 knows the first (pip debug --verbose), 20.3 and later both.
        assert_eq!(
            tags,
            [
                "py3-none-manylinux2014_x86_64",
                "py3-none-manylinux_2_30_x86_64"
            ]
        );
    }
}
