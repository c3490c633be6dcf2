//! `cargo xtask dist`: what users install, for each processor: a tarball, Debian
//! packages, a wheel, an image for containers, the list of what is inside, and the sums
//! over all of it. `--check` installs each of them and runs its first command.
//!
//! Programs that are well kept do the work (cargo-zigbuild, tar, dpkg-deb, wheel); this
//! says what goes where. The same commit gives the same bytes: times come from
//! `SOURCE_DATE_EPOCH`, else from the last commit, and every package is made twice and
//! compared. How programs are compiled stands in `build.rs`, what goes into which
//! package in `contents.rs`.

mod build;
mod check;
mod clean_root;
mod contents;
mod deb;
mod elf;
mod image;
mod sbom;
mod sums;
mod tarball;
mod wheel;

use anyhow::{Context, bail};
use jostle_testbed::{packages, shell, test_programs};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The version of all packages: the workspace's.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What to make, and where.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where the packages go [default: target/dist]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Builds nothing: installs each package of --out in a clean root and runs its first command (as root)
    #[arg(long)]
    check: bool,
    /// Only for this processor: x86_64 or aarch64
    #[arg(long)]
    target: Option<String>,
}

/// A processor, and its names in each kind of package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// In Rust's targets, in tags of wheels, and of qemu's programs.
    pub arch: &'static str,
    /// In Debian packages, and in images.
    pub debian: &'static str,
    /// The `strip` that knows its programs.
    pub strip: &'static str,
    /// Its C library on the machine that builds: what the image brings along.
    pub libraries: &'static str,
}

/// All of them; the first is the one that developers have.
const TARGETS: &[Target] = &[
    Target {
        arch: "x86_64",
        debian: "amd64",
        strip: "strip",
        libraries: "/lib/x86_64-linux-gnu",
    },
    Target {
        arch: "aarch64",
        debian: "arm64",
        strip: "aarch64-linux-gnu-strip",
        libraries: "/usr/aarch64-linux-gnu/lib",
    },
];

impl Target {
    /// Where jostle runs, as in the names of tarballs.
    pub(crate) fn triple(&self) -> String {
        format!("{}-unknown-linux-gnu", self.arch)
    }
}

/// How long compressing may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Seconds, for what is thrown away.
    Little,
    /// For what users download.
    Most,
}

/// All that a package is made of.
pub(crate) struct Packing<'a> {
    pub target: &'a Target,
    /// Where the stripped programs are.
    pub programs: &'a Path,
    /// The scripts that jostle prints for shells.
    pub completions: &'a Path,
    /// The lowest glibc that `jostle` starts with.
    pub glibc: elf::Glibc,
    /// Seconds since 1970 that every file in a package carries.
    pub epoch: u64,
    pub effort: Effort,
}

/// Makes the packages, or checks them.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    packages::ensure_beside(packages::DIST)?;
    let out = match &arguments.out {
        Some(out) => std::path::absolute(out)?,
        None => shell::target_directory().join("dist"),
    };
    let wanted = |target: &&Target| match &arguments.target {
        Some(arch) => target.arch == arch,
        None => true,
    };
    let targets: Vec<&Target> = TARGETS.iter().filter(wanted).collect();
    if targets.is_empty() {
        bail!("there is no such target; the targets are x86_64 and aarch64");
    }
    match arguments.check {
        true => check::run(&out, &targets),
        false => make(&out, &targets),
    }
}

fn make(out: &Path, targets: &[&Target]) -> anyhow::Result<()> {
    let start = std::time::Instant::now();
    let epoch = epoch()?;
    empty(out)?;
    // Any processor's jostle prints the same scripts for shells; only the first can
    // run here, and it is built even where it is not wanted.
    let native = &TARGETS[0];
    let built = compile(native, targets, epoch)?;
    let scripts = temporary("completions")?;
    let completions = scripts.path().join("shells");
    contents::write_completions(&built.join(native.arch).join("jostle"), &completions)?;
    for target in targets {
        let programs = built.join(target.arch);
        let glibc = elf::lowest_glibc(&programs.join("jostle"))?;
        if glibc > build::GLIBC {
            bail!(
                "jostle needs glibc {glibc}, and {} was asked for",
                build::GLIBC
            );
        }
        for name in build::STATIC {
            elf::must_be_static(&programs.join(name))?;
        }
        let packing = Packing {
            target,
            programs: &programs,
            completions: &completions,
            glibc,
            epoch,
            effort: Effort::Most,
        };
        twice(&packing, out, everything)?;
    }
    sums::write(out)?;
    report(out)?;
    println!("made in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Compiles the programs of the first processor and of all that are wanted, and gives
/// their folder.
fn compile(native: &Target, targets: &[&Target], epoch: u64) -> anyhow::Result<PathBuf> {
    let built = shell::target_directory().join("dist-programs");
    empty(&built)?;
    let tools = build::Tools::ready()?;
    let others = targets.iter().copied().filter(|target| *target != native);
    for target in std::iter::once(native).chain(others) {
        let programs = built.join(target.arch);
        tools.build(target, epoch, &programs)?;
    }
    Ok(built)
}

/// Every package of a target, for users.
fn everything(packing: &Packing<'_>, out: &Path) -> anyhow::Result<()> {
    of_programs(packing, out)?;
    // Open MPI's library is there for this machine's processor only.
    if *packing.target == TARGETS[0] {
        deb::make_mpi(packing, out)?;
    }
    image::make(packing, out)?;
    sbom::make(packing, out)
}

/// The packages that need nothing but the programs: tarball, Debian packages, wheel.
fn of_programs(packing: &Packing<'_>, out: &Path) -> anyhow::Result<()> {
    tarball::make(packing, out)?;
    for package in deb::PACKAGES {
        deb::make(packing, package, out)?;
    }
    wheel::make(packing, out)
}

type Make = fn(&Packing<'_>, &Path) -> anyhow::Result<()>;

/// Makes packages, and makes them again: every byte must be the same.
fn twice(packing: &Packing<'_>, out: &Path, make: Make) -> anyhow::Result<()> {
    make(packing, out)?;
    let again = temporary("again")?;
    make(packing, again.path())?;
    for name in names(again.path())? {
        if std::fs::read(out.join(&name))? != std::fs::read(again.path().join(&name))? {
            bail!("{name} was made twice, and the bytes differ");
        }
    }
    Ok(())
}

/// `cargo xtask ci`: the packages of the programs that the tests have built, twice, and
/// a program run from one of them. They are for nobody: they need this machine's glibc.
pub(crate) fn check_packaging() -> anyhow::Result<()> {
    let here = std::env::consts::ARCH;
    let target = TARGETS.iter().find(|target| target.arch == here);
    let target = target.with_context(|| format!("there are no packages for {here}"))?;
    let place = temporary("ci")?;
    let (programs, out) = (place.path().join("programs"), place.path().join("out"));
    std::fs::create_dir_all(&out)?;
    build::strip_all(target, &shell::target_directory().join("debug"), &programs)?;
    let completions = place.path().join("completions");
    contents::write_completions(&programs.join("jostle"), &completions)?;
    let packing = Packing {
        target,
        programs: &programs,
        completions: &completions,
        glibc: elf::lowest_glibc(&programs.join("jostle"))?,
        epoch: epoch()?,
        effort: Effort::Little,
    };
    twice(&packing, &out, of_programs)?;
    sums::write(&out)?;
    sums::verify(&out)?;
    check::unpacked(target, &out)?;
    report(&out)?;
    check_thin_client(&TARGETS[1])
}

/// The thin client has an entry point and system calls of its own for each processor: its tests
/// run with that of another one, under qemu's emulation, against this machine's engine.
fn check_thin_client(target: &Target) -> anyhow::Result<()> {
    let (start, triple) = (std::time::Instant::now(), target.triple());
    shell::run(Command::new("rustup").args(["target", "add", &triple]))?;
    let mut build = shell::cargo(&["build", "--quiet", "--release", "--package=jostle-procd"]);
    build.args([
        "--bin=jostle-call",
        "--no-default-features",
        "--target",
        &triple,
    ]);
    let (linker, program) = build::own_linker(target);
    shell::run(build.env(linker, program))?;
    let client = shell::target_directory()
        .join(&triple)
        .join("release/jostle-call");
    elf::must_be_static(&client)?;
    let mut ran = 0;
    for program in test_programs::build(&shell::EVERYTHING)? {
        let arguments = ["calls::the_thin_client"];
        if program.to_string() == "server/live" && !program.list(&arguments)?.is_empty() {
            ran += 1;
            shell::run(
                program
                    .command(&arguments)
                    .env("JOSTLE_CALL_AARCH64", &client),
            )?;
        }
    }
    anyhow::ensure!(
        ran == 1,
        "{ran} test programs have the tests of the thin client"
    );
    let took_s = start.elapsed().as_secs_f64();
    println!(
        "{took_s:>6.1} s  {}: the thin client, under emulation",
        target.arch
    );
    Ok(())
}

/// Seconds since 1970: `SOURCE_DATE_EPOCH`, else the last commit's time.
fn epoch() -> anyhow::Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => shell::output(
            Command::new("git")
                .args(["log", "-1", "--format=%ct"])
                .current_dir(shell::root()),
        )?,
    };
    text.trim()
        .parse()
        .with_context(|| format!("`{}` is no time in seconds", text.trim()))
}

/// A directory that goes with its value, below the target directory, where there is room; as
/// any folder of a package, it is for everybody to read.
fn temporary(name: &str) -> anyhow::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    let named = builder.permissions(Permissions::from_mode(0o755));
    let made = named
        .prefix(&format!("dist-{name}-"))
        .tempdir_in(shell::target_directory());
    made.with_context(|| format!("cannot make a directory for {name}"))
}

/// Makes a directory, without what was in it.
fn empty(directory: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot empty {}", directory.display()));
        }
        _ => {}
    }
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))
}

/// The names of a directory's files, in order.
fn names(directory: &Path) -> anyhow::Result<Vec<String>> {
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot read {}", directory.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Prints each package with its size.
fn report(out: &Path) -> anyhow::Result<()> {
    for name in names(out)? {
        let bytes = std::fs::metadata(out.join(&name))?.len();
        println!("{:>9.3} MB  {name}", bytes as f64 / 1e6);
    }
    Ok(())
}
