//! The contents of each package, and where they go: one table.

use super::Packing;
use anyhow::{Context, Result};
use jostle_testbed::shell;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whose file it is: a Debian package each; the tarball has all.
pub(super) const PARTS: [&str; 3] = [JOSTLE, LOCKD, PROCD];
/// The tool.
pub(super) const JOSTLE: &str = "jostle";
/// The lock daemon.
pub(super) const LOCKD: &str = "jostled";
/// The procedure engine and its client.
pub(super) const PROCD: &str = "procd";

/// Where the package is unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Into a folder of its own.
    Folder,
    /// Into the root of a system, by a package manager.
    System,
    /// Into a Python environment, by pip.
    Wheel,
}

/// Folders in a package whose place depends on its layout: of programs, of settings that people
/// change, of what people read, and of zsh's completions.
const BIN: &str = "bin";
const ETC: &str = "etc";
const DOC: &str = "share/doc";
const ZSH: &str = "share/zsh/site-functions";
/// The others.
const BASH: &str = "share/bash-completion/completions";
const FISH: &str = "share/fish/vendor_completions.d";
const INCLUDE: &str = "include";
const MAN: &str = "share/man/man1";
const UNITS: &str = "lib/systemd/system";

/// jostle's completions by shell, as each shell finds them.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "jostle"),
    ("zsh", "_jostle"),
    ("fish", "jostle.fish"),
];

/// Files of the repository (`*`: every file of the folder that ends so), programs by their bare
/// name, and completions by theirs.
const FILES: &[(&str, &str, &str)] = &[
    (JOSTLE, BIN, "jostle"),
    (JOSTLE, BASH, "completions/jostle"),
    (JOSTLE, ZSH, "completions/_jostle"),
    (JOSTLE, FISH, "completions/jostle.fish"),
    (JOSTLE, MAN, "tool/man/*.1"),
    (JOSTLE, INCLUDE, "tool/own-locks/jostle_lock.h"),
    (JOSTLE, DOC, "README.md"),
    (JOSTLE, DOC, "METHOD.md"),
    (JOSTLE, DOC, "CHANGELOG.md"),
    (LOCKD, BIN, "jostled"),
    (LOCKD, BIN, "jostle-lock"),
    (LOCKD, MAN, "jostled/dist/*.1"),
    (LOCKD, UNITS, "jostled/dist/jostled.service"),
    (LOCKD, UNITS, "jostled/dist/jostled.socket"),
    (LOCKD, ETC, "jostled/dist/jostled.toml"),
    (LOCKD, DOC, "jostled/dist/alerts.yml"),
    (LOCKD, DOC, "jostled/dist/compose.yml"),
    (LOCKD, DOC, "jostled/dist/etcd.env"),
    (LOCKD, DOC, "jostled/README.md"),
    (LOCKD, DOC, "jostled/docs/*.md"),
    (PROCD, BIN, "procd"),
    (PROCD, BIN, "jostle-call"),
    (PROCD, MAN, "procd/dist/*.1"),
    (PROCD, UNITS, "procd/dist/procd.service"),
    (PROCD, ETC, "procd/dist/procd.toml"),
    (PROCD, DOC, "procd/README.md"),
    (PROCD, DOC, "procd/docs/*.md"),
];

/// In every package.
const LICENSES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// Has jostle write its completion scripts.
pub(super) fn write_completions(jostle: &Path, directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    for (shell_name, file) in COMPLETIONS {
        let script = shell::output(Command::new(jostle).args(["completions", shell_name]))?;
        std::fs::write(directory.join(file), script)?;
    }
    Ok(())
}

/// Puts the files of a part below `root`.
pub(super) fn lay(packing: &Packing<'_>, part: &str, root: &Path, layout: Layout) -> Result<()> {
    for (_, place, source) in FILES.iter().filter(|(whose, ..)| *whose == part) {
        // A Python environment has no services.
        if layout == Layout::Wheel && [UNITS, ETC].contains(place) {
            continue;
        }
        for from in found(packing, source)? {
            let to = root.join(destination(part, place, layout, &file_name(&from)));
            let mode = if *place == BIN { 0o755 } else { 0o644 };
            copy(&from, &to, mode)?;
        }
    }
    for license in LICENSES {
        let to = destination(part, DOC, layout, license);
        copy(&shell::root().join(license), &root.join(to), 0o644)?;
    }
    Ok(())
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// The files that a line of the table stands for, in order.
fn found(packing: &Packing<'_>, source: &str) -> Result<Vec<PathBuf>> {
    if let Some((folder, ending)) = source.split_once('*') {
        let folder = shell::root().join(folder);
        let mut names = super::names(&folder)?;
        names.retain(|name| name.ends_with(ending));
        anyhow::ensure!(!names.is_empty(), "there is no file {source}");
        return Ok(names.iter().map(|name| folder.join(name)).collect());
    }
    let from = match source.split_once('/') {
        Some(("completions", file)) => packing.completions.join(file),
        None if !source.contains('.') => packing.programs.join(source),
        _ => shell::root().join(source),
    };
    Ok(vec![from])
}

/// Where a file of this name goes, relative to the package's root.
fn destination(part: &str, place: &str, layout: Layout, name: &str) -> PathBuf {
    let prefix = match layout {
        Layout::Folder => "",
        Layout::System => "usr",
        Layout::Wheel => "data",
    };
    let folder = match (place, layout) {
        (ETC, Layout::System) => ETC.into(),
        (ETC | DOC, _) => Path::new(prefix).join(DOC).join(part),
        // pip makes scripts of what stands here executable, and puts them into bin.
        (BIN, Layout::Wheel) => "scripts".into(),
        // Debian's zsh looks for packages' functions in a folder of their own.
        (ZSH, Layout::System) => "usr/share/zsh/vendor-completions".into(),
        _ => Path::new(prefix).join(place),
    };
    folder.join(name)
}

/// Copies a file, with the folders above it, and with these permissions.
pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let bytes = std::fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    write(bytes, to, mode)
}

/// Writes a file, in the same way. Everybody may read the folders, whatever the umask was.
pub(super) fn write(bytes: impl AsRef<[u8]>, to: &Path, mode: u32) -> Result<()> {
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(0o022));
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    std::fs::write(to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
    std::fs::set_permissions(to, Permissions::from_mode(mode))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_layout_has_its_places() {
        let table = [
            (JOSTLE, BIN, Layout::System, "jostle", "usr/bin/jostle"),
            (JOSTLE, BIN, Layout::Wheel, "jostle", "scripts/jostle"),
            (JOSTLE, BIN, Layout::Folder, "jostle", "bin/jostle"),
            (
                LOCKD,
                ETC,
                Layout::System,
                "jostled.toml",
                "etc/jostled.toml",
            ),
            // A tarball is unpacked anywhere: settings are an example there.
            (
                LOCKD,
                ETC,
                Layout::Folder,
                "jostled.toml",
                "share/doc/jostled/jostled.toml",
            ),
            (
                PROCD,
                DOC,
                Layout::System,
                "LICENSE-MIT",
                "usr/share/doc/procd/LICENSE-MIT",
            ),
            (
                JOSTLE,
                MAN,
                Layout::Wheel,
                "jostle.1",
                "data/share/man/man1/jostle.1",
            ),
        ];
        for (part, place, layout, name, expected) in table {
            assert_eq!(destination(part, place, layout, name), Path::new(expected));
        }
    }

    #[test]
    fn every_source_but_programs_and_completions_is_in_the_repository() {
        for (_, place, source) in FILES {
            if *place == BIN || source.starts_with("completions/") {
                continue;
            }
            let path = shell::root().join(source);
            let there = match source.contains('*') {
                true => path.parent().unwrap().is_dir(),
                false => path.is_file(),
            };
            assert!(there, "{source}");
        }
    }
}
