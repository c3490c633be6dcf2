//! `cargo xtask dist --check`: each package is installed where nothing else is, its
//! first command is run, and it is removed again. What is for another processor runs
//! under qemu's emulation, which says that it works and nothing of its speed. `check.sh` has
//! what is done with each.

use super::clean_root::Root;
use super::{Target, VERSION, build, sbom, sums, temporary};
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Instant;

const SCRIPT: &str = include_str!("check.sh");

/// Packages in a clean root, and those that take Open MPI or systemd: functions of `check.sh`.
const CLEAN: [&str; 5] = ["tarball", "jostle_deb", "jostled_deb", "procd_deb", "wheel"];
const BESIDE_OTHERS: [&str; 2] = ["units", "mpi"];

/// Checks what is in `out`.
pub(super) fn run(out: &Path, targets: &[&Target]) -> Result<()> {
    let start = Instant::now();
    sums::verify(out)?;
    let nowhere = temporary("empty")?;
    let empty = Root::at(nowhere.path());
    for target in targets {
        if is_native(target) {
            let debian = timed(target, "the clean root", Root::of_debian)?;
            let with_mpi = timed(target, "the root with Open MPI", Root::with_mpi)?;
            for (root, checks) in [(debian, &CLEAN[..]), (with_mpi, &BESIDE_OTHERS[..])] {
                for check in checks {
                    timed(target, check, || {
                        root.run(out, &script(target, check), false)
                    })?;
                }
            }
        } else {
            // qemu and the other processor's libraries are this machine's: only what the
            // programs write stays apart.
            timed(target, "emulated", || {
                empty.run(out, &script(target, "emulated"), true)
            })?;
        }
        timed(target, "image", || {
            empty.run(out, &script(target, "image"), true)
        })?;
        timed(target, "list of crates", || sbom::validate(target, out))?;
    }
    println!(
        "all packages were installed, used and removed in {:.0} s",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// `cargo xtask ci`: what can be seen without installing anything.
pub(super) fn unpacked(target: &Target, out: &Path) -> Result<()> {
    let nowhere = temporary("empty")?;
    Root::at(nowhere.path()).run(out, &script(target, "unpacked"), true)
}

fn is_native(target: &Target) -> bool {
    target.arch == std::env::consts::ARCH
}

fn timed<T>(target: &Target, what: &str, check: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let done = check().with_context(|| format!("failed: {}: {what}", target.arch))?;
    let took_s = start.elapsed().as_secs_f64();
    println!("{took_s:>6.1} s  {}: {what}", target.arch);
    Ok(done)
}

/// A function of `check.sh` for this processor.
fn script(target: &Target, check: &str) -> String {
    let (arch, debian, triple) = (target.arch, target.debian, target.triple());
    let libraries = Path::new(target.libraries).parent();
    let qemu = match (is_native(target), libraries) {
        (false, Some(libraries)) => format!("qemu-{arch} -L {}", libraries.display()),
        _ => String::new(),
    };
    let programs = build::STATIC.join(" ");
    format!(
        "ARCH={arch} DEBIAN={debian} VERSION={VERSION} FOLDER=jostle-{VERSION}-{triple}\n\
         QEMU='{qemu}' STATIC='{programs}'\n{SCRIPT}{check}\n"
    )
}
