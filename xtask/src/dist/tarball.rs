//! The tarball, for any distribution: one folder with `bin`, `share`, `include` and
//! `lib`, to unpack anywhere, or into /usr/local.

use super::contents::{self, Layout};
use super::{Effort, Packing, VERSION, temporary};
use jostle_testbed::shell;
use std::path::Path;
use std::process::Command;

/// The folder in it, and its name without `.tar.gz`.
pub(super) fn name(packing: &Packing<'_>) -> String {
    format!("jostle-{VERSION}-{}", packing.target.triple())
}

/// Writes it.
pub(super) fn make(packing: &Packing<'_>, out: &Path) -> anyhow::Result<()> {
    let name = name(packing);
    let stage = temporary("tarball")?;
    for part in contents::PARTS {
        contents::lay(packing, part, &stage.path().join(&name), Layout::Folder)?;
    }
    let file = out.join(format!("{name}.tar.gz"));
    archive(packing, stage.path(), &[&name], &file)
}

/// Packs files of a directory: in order, owned by root, with one time.
pub(super) fn archive(
    packing: &Packing<'_>,
    directory: &Path,
    names: &[&str],
    file: &Path,
) -> anyhow::Result<()> {
    let mut tar = Command::new("tar");
    // No name and no time of the compressed file stand in it (-n).
    let gzip = match packing.effort {
        Effort::Little => "gzip -n -1",
        Effort::Most => "gzip -n -9",
    };
    let of_image = file.extension().is_some_and(|extension| extension == "tar");
    if !of_image {
        tar.arg(format!("--use-compress-program={gzip}"));
    }
    tar.args(["--create", "--sort=name", "--format=gnu"])
        .args(["--owner=root:0", "--group=root:0", "--numeric-owner"])
        .arg(format!("--mtime=@{}", packing.epoch))
        .arg("--file")
        .arg(file)
        .arg("--directory")
        .arg(directory)
        .args(names);
    shell::run(&mut tar)
}
