//! What goes into which package, and where: one table.

use super::Packing;
use anyhow::Context;
use jostle_testbed::shell;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whose file it is: a Debian package each; the tarball has all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The tool.
    Jostle,
    /// The lock daemon.
    Lockd,
    /// The procedure engine and its client.
    Procd,
}

impl Part {
    /// Its package.
    pub(super) fn name(self) -> &'static str {
        match self {
            Part::Jostle => "jostle",
            Part::Lockd => "jostled",
            Part::Procd => "procd",
        }
    }
}

/// Where a file goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A program.
    Bin,
    /// Its manual page.
    Man,
    /// A header for C.
    Include,
    /// A unit of systemd.
    Unit,
    /// Its settings, which people change.
    Etc,
    /// What people read.
    Doc,
    /// For one shell.
    Bash,
    Zsh,
    Fish,
}

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

use Part::{Jostle, Lockd, Procd};
use Place::{Bin, Doc, Etc, Include, Man, Unit};

/// Files of the repository (folders: every file in them that ends so), and programs by
/// their bare name.
const FILES: &[(Part, Place, &str)] = &[
    (Jostle, Bin, "jostle"),
    (Jostle, Place::Bash, "completions/bash"),
    (Jostle, Place::Zsh, "completions/zsh"),
    (Jostle, Place::Fish, "completions/fish"),
    (Jostle, Man, "tool/man/jostle.1"),
    (Jostle, Man, "tool/man/jostle-*.1"),
    (Jostle, Include, "tool/own-locks/jostle_lock.h"),
    (Jostle, Doc, "README.md"),
    (Jostle, Doc, "METHOD.md"),
    (Jostle, Doc, "CHANGELOG.md"),
    (Lockd, Bin, "jostled"),
    (Lockd, Unit, "jostled/dist/jostled.service"),
    (Lockd, Unit, "jostled/dist/jostled.socket"),
    (Lockd, Etc, "jostled/dist/jostled.toml"),
    (Lockd, Doc, "jostled/README.md"),
    (Lockd, Doc, "jostled/docs/*.md"),
    (Procd, Bin, "procd"),
    (Procd, Bin, "jostle-call"),
    (Procd, Man, "procd/dist/procd.1"),
    (Procd, Man, "procd/dist/jostle-call.1"),
    (Procd, Unit, "procd/dist/procd.service"),
    (Procd, Etc, "procd/dist/procd.toml"),
    (Procd, Doc, "procd/README.md"),
    (Procd, Doc, "procd/docs/*.md"),
];

/// In every package.
const LICENSES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// Has jostle write its completion scripts.
pub(super) fn write_completions(jostle: &Path, directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)?;
    for shell_name in ["bash", "zsh", "fish"] {
        let script = shell::output(Command::new(jostle).args(["completions", shell_name]))?;
        std::fs::write(directory.join(shell_name), script)?;
    }
    Ok(())
}

/// Puts the files of a part below `root`.
pub(super) fn lay(
    packing: &Packing<'_>,
    part: Part,
    root: &Path,
    layout: Layout,
) -> anyhow::Result<()> {
    for (_, place, source) in FILES.iter().filter(|(whose, ..)| *whose == part) {
        // A Python environment has no services.
        if layout == Layout::Wheel && matches!(place, Unit | Etc) {
            continue;
        }
        for from in found(packing, *place, source)? {
            let to = root.join(destination(part, *place, layout, &file_name(&from)));
            let mode = if *place == Bin { 0o755 } else { 0o644 };
            copy(&from, &to, mode)?;
        }
    }
    for license in LICENSES {
        let to = destination(part, Doc, layout, license);
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
fn found(packing: &Packing<'_>, place: Place, source: &str) -> anyhow::Result<Vec<PathBuf>> {
    if place == Bin {
        return Ok(vec![packing.programs.join(source)]);
    }
    if let Some(script) = source.strip_prefix("completions/") {
        return Ok(vec![packing.completions.join(script)]);
    }
    let path = shell::root().join(source);
    let name = file_name(&path);
    let (Some((start, end)), Some(folder)) = (name.split_once('*'), path.parent()) else {
        return Ok(vec![path]);
    };
    // The client's page belongs to the engine.
    let fits =
        |name: &str| name.starts_with(start) && name.ends_with(end) && name != "jostle-call.1";
    let names = super::names(folder)?;
    let found: Vec<PathBuf> = names
        .iter()
        .filter(|name| fits(name))
        .map(|name| folder.join(name))
        .collect();
    anyhow::ensure!(!found.is_empty(), "there is no file {source}");
    Ok(found)
}

/// Where a file of this name goes, relative to the package's root.
fn destination(part: Part, place: Place, layout: Layout, name: &str) -> PathBuf {
    let documents = format!("share/doc/{}", part.name());
    let inside = match place {
        Place::Bin => "bin".to_owned(),
        Place::Man => "share/man/man1".to_owned(),
        Place::Include => "include".to_owned(),
        Place::Unit => "lib/systemd/system".to_owned(),
        Place::Etc if layout == Layout::System => return Path::new("etc").join(name),
        Place::Etc | Place::Doc => documents,
        Place::Bash => return prefix(layout).join("share/bash-completion/completions/jostle"),
        // Debian's zsh looks for packages' functions in a folder of their own.
        Place::Zsh if layout == Layout::System => {
            return prefix(layout).join("share/zsh/vendor-completions/_jostle");
        }
        Place::Zsh => return prefix(layout).join("share/zsh/site-functions/_jostle"),
        Place::Fish => {
            return prefix(layout).join("share/fish/vendor_completions.d/jostle.fish");
        }
    };
    match (place, layout) {
        // pip makes scripts of what stands here executable, and puts them into bin.
        (Place::Bin, Layout::Wheel) => Path::new("scripts").join(name),
        _ => prefix(layout).join(inside).join(name),
    }
}

fn prefix(layout: Layout) -> PathBuf {
    PathBuf::from(match layout {
        Layout::Folder => "",
        Layout::System => "usr",
        Layout::Wheel => "data",
    })
}

/// Copies a file, with the folders above it, and with these permissions whatever the
/// umask says.
pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> anyhow::Result<()> {
    if let Some(folder) = to.parent() {
        folders(folder)?;
    }
    std::fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    std::fs::set_permissions(to, Permissions::from_mode(mode))?;
    Ok(())
}

/// Writes a file, in the same way.
pub(super) fn write(text: &str, to: &Path, mode: u32) -> anyhow::Result<()> {
    if let Some(folder) = to.parent() {
        folders(folder)?;
    }
    std::fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))?;
    std::fs::set_permissions(to, Permissions::from_mode(mode))?;
    Ok(())
}

/// Makes the folders that are missing, for everybody to read.
fn folders(folder: &Path) -> anyhow::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        folders(above)?;
    }
    std::fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    std::fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_layout_has_its_places() {
        let table = [
            (Jostle, Bin, Layout::System, "jostle", "usr/bin/jostle"),
            (Jostle, Bin, Layout::Wheel, "jostle", "scripts/jostle"),
            (Jostle, Bin, Layout::Folder, "jostle", "bin/jostle"),
            (
                Lockd,
                Etc,
                Layout::System,
                "jostled.toml",
                "etc/jostled.toml",
            ),
            // A tarball is unpacked anywhere: settings are an example there.
            (
                Lockd,
                Etc,
                Layout::Folder,
                "jostled.toml",
                "share/doc/jostled/jostled.toml",
            ),
            (
                Procd,
                Doc,
                Layout::System,
                "LICENSE-MIT",
                "usr/share/doc/procd/LICENSE-MIT",
            ),
            (
                Jostle,
                Man,
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
            if *place == Bin || source.starts_with("completions/") {
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
