//! The wheel: `pip install` for people who have Python and nothing else. It brings the
//! program itself; there is no Python in it. `wheel pack` writes the list of its files
//! and the archive.

use super::contents::{self, Layout, Part};
use super::{Packing, VERSION, temporary};
use jostle_testbed::shell;
use std::path::Path;
use std::process::Command;

/// The interpreter of the system, whose packages `ensure_for_dist` names; the first in
/// PATH may be another.
pub(super) const PYTHON: &str = "/usr/bin/python3";

/// From which glibc on it can be installed (PEP 600), and on which processor.
fn tag(packing: &Packing<'_>) -> String {
    let glibc = packing.glibc;
    let arch = packing.target.arch;
    format!("py3-none-manylinux_{}_{}_{arch}", glibc.0, glibc.1)
}

/// Writes it.
pub(super) fn make(packing: &Packing<'_>, out: &Path) -> anyhow::Result<()> {
    let stage = temporary("wheel")?;
    let name = format!("jostle-{VERSION}");
    let data = stage.0.join(format!("{name}.data"));
    contents::lay(packing, Part::Jostle, &data, Layout::Wheel)?;
    // `jostle call` and the target `procd` start the client beside themselves.
    let client = "jostle-call";
    contents::copy(
        &packing.programs.join(client),
        &data.join("scripts").join(client),
        0o755,
    )?;
    let about = stage.0.join(format!("{name}.dist-info"));
    contents::write(&metadata(), &about.join("METADATA"), 0o644)?;
    let wheel = format!(
        "Wheel-Version: 1.0\nGenerator: cargo xtask dist\nRoot-Is-Purelib: false\nTag: {}\n",
        tag(packing)
    );
    contents::write(&wheel, &about.join("WHEEL"), 0o644)?;
    let mut pack = Command::new(PYTHON);
    pack.env("SOURCE_DATE_EPOCH", packing.epoch.to_string())
        .args(["-m", "wheel", "pack", "--dest-dir"])
        .arg(out)
        .arg(&stage.0);
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
