//! The Debian packages, made by dpkg-deb, which takes times from `SOURCE_DATE_EPOCH`.

use super::contents::{self, JOSTLE, LOCKD, Layout, PROCD};
use super::{Effort, Packing, Target, VERSION, build, elf, temporary};
use anyhow::Context;
use jostle_testbed::shell;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// A package: what is in it, and what Debian is told about it.
pub(super) struct Package {
    pub name: &'static str,
    part: &'static str,
    /// The program whose glibc it needs, if one does.
    linked: Option<&'static str>,
    /// Lines of `control` beside those that all have.
    fields: &'static str,
    /// The synopsis, and the lines below it.
    description: &'static str,
    /// Settings that an upgrade leaves as they are.
    settings: Option<&'static str>,
}

/// One for each part.
pub(super) const PACKAGES: &[Package] = &[
    Package {
        name: JOSTLE,
        part: JOSTLE,
        linked: Some("jostle"),
        fields: "Recommends: procd\nSuggests: jostled\n",
        description: "measures how locks, servers and connections behave under contention\n \
                      Throughput, waiting time, fairness, CPU and memory cost, and safety, and how\n \
                      each grows with the number of contenders. Every point carries a verdict.\n \
                      .\n \
                      The targets procd and jostle-call need the programs of the package procd.\n",
        settings: None,
    },
    Package {
        name: LOCKD,
        part: LOCKD,
        linked: None,
        fields: "Suggests: redis-tools\n",
        description: "lock daemon that speaks the protocol of Redis, and a command under its locks\n \
                      Exclusive locks, shared locks and semaphores, granted in the order of arrival,\n \
                      owned by a connection or leased, with fencing tokens. jostle-lock runs a\n \
                      command under one, as flock does. Both are linked statically.\n",
        settings: Some("/etc/jostled.toml"),
    },
    Package {
        name: PROCD,
        part: PROCD,
        linked: None,
        fields: "",
        description: "procedure engine, and its thin client jostle-call\n \
                      Short programs in Lua that are compiled once and called over HTTP, each\n \
                      answering with an exit code. Linked statically.\n",
        settings: Some("/etc/procd.toml"),
    },
];

/// `jostle` for many hosts, in the place of the package `jostle`. It is for the release of
/// Debian on which it was made.
const MPI: Package = Package {
    name: "jostle-mpi",
    part: JOSTLE,
    linked: Some("jostle"),
    fields: "Provides: jostle\nConflicts: jostle\nReplaces: jostle\nRecommends: openmpi-bin, procd\n\
             Suggests: jostled\n",
    description: "measures how locks and servers behave under contention, from many hosts\n \
                  The package jostle, built with Open MPI: mpirun starts it on many hosts, which\n \
                  measure together. Alone it does what jostle does.\n",
    settings: None,
};

/// Writes the package that needs MPI.
pub(super) fn make_mpi(packing: &Packing<'_>, out: &Path) -> anyhow::Result<()> {
    let packing = Packing {
        programs: &packing.programs.join(build::MPI),
        ..*packing
    };
    make(&packing, &MPI, out)
}

/// Tells systemd that units came or went; nothing is started that nobody asked for.
const RELOAD: &str = "#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then\n    \
                      systemctl --system daemon-reload || true\nfi\n";

/// The package's file.
pub(super) fn file(package: &Package, packing: &Packing<'_>) -> String {
    let Packing { target, .. } = packing;
    format!("{}_{VERSION}_{}.deb", package.name, target.debian)
}

/// Writes it.
pub(super) fn make(packing: &Packing<'_>, package: &Package, out: &Path) -> anyhow::Result<()> {
    let stage = temporary("deb")?;
    let root = stage.path();
    contents::lay(packing, package.part, root, Layout::System)?;
    let copyright = format!("usr/share/doc/{}/copyright", package.name);
    let terms = "jostle, jostled and procd are licensed under MIT or Apache-2.0, as you like:\n\
                 see LICENSE-MIT and LICENSE-APACHE in the folder of documents.\n";
    contents::write(terms, &root.join(copyright), 0o644)?;
    contents::write(
        &control(packing, package, root)?,
        &root.join("DEBIAN/control"),
        0o644,
    )?;
    if let Some(settings) = package.settings {
        let list = format!("{settings}\n");
        contents::write(&list, &root.join("DEBIAN/conffiles"), 0o644)?;
        contents::write(RELOAD, &root.join("DEBIAN/postinst"), 0o755)?;
        contents::write(RELOAD, &root.join("DEBIAN/postrm"), 0o755)?;
    }
    let compression: &[&str] = match packing.effort {
        Effort::Little => &["-Zgzip", "-z1"],
        Effort::Most => &["-Zxz", "-z6"],
    };
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.env("SOURCE_DATE_EPOCH", packing.epoch.to_string())
        // Blocks that are compressed side by side depend on the number of CPUs.
        .arg("--threads-max=1")
        .args(compression)
        .args(["--root-owner-group", "--build"])
        .arg(root)
        .arg(out.join(file(package, packing)));
    shell::output(&mut dpkg).map(drop)
}

fn control(packing: &Packing<'_>, package: &Package, root: &Path) -> anyhow::Result<String> {
    let depends = match package.linked {
        None => String::new(),
        Some(program) => {
            let program = packing.programs.join(program);
            let mut depends = vec![format!("libc6 (>= {})", elf::lowest_glibc(&program)?)];
            depends.extend(libraries(&program, packing.target)?);
            format!("Depends: {}\n", depends.join(", "))
        }
    };
    Ok(format!(
        "Package: {}\nVersion: {VERSION}\nArchitecture: {}\n\
         Maintainer: the jostle developers <jostle@localhost>\n\
         Installed-Size: {}\n{depends}Section: devel\nPriority: optional\n{}Description: {}",
        package.name,
        packing.target.debian,
        kilobytes(root)?,
        package.fields,
        package.description
    ))
}

/// The packages of the libraries that a program loads, beside the C library's.
fn libraries(program: &Path, target: &Target) -> anyhow::Result<BTreeSet<String>> {
    const OF_GLIBC: [&str; 6] = [
        "libc.",
        "libm.",
        "libdl.",
        "librt.",
        "libpthread.",
        "ld-linux",
    ];
    let mut packages = BTreeSet::new();
    for library in elf::needed(program)? {
        if OF_GLIBC.iter().any(|own| library.starts_with(own)) {
            continue;
        }
        let path = format!("*{}/{library}", target.libraries.trim_start_matches('/'));
        let mut dpkg = Command::new("dpkg-query");
        let found = shell::output(dpkg.arg("--search").arg(&path))?;
        let package = found.split(':').next().unwrap_or_default();
        packages.insert(package.to_owned());
    }
    Ok(packages)
}

/// The size of all files below, each rounded up to whole KiB, as Debian's policy counts.
fn kilobytes(folder: &Path) -> anyhow::Result<u64> {
    let mut sum = 0;
    let entries = std::fs::read_dir(folder);
    for entry in entries.with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let data = entry.metadata()?;
        sum += match data.is_dir() {
            true => 1 + kilobytes(&entry.path())?,
            false => data.len().div_ceil(1024),
        };
    }
    Ok(sum)
}
