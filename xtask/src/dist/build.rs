//! How the programs of packages are compiled: by cargo-zigbuild, whose C compiler brings
//! the headers and stubs of old C libraries and of other processors. `jostle` is linked
//! with an old glibc, since `lib:` and the C library's own locks need the host's; what
//! needs neither is linked statically with musl.

use super::elf::Glibc;
use super::{Target, contents, wheel};
use anyhow::{Context, bail};
use jostle_testbed::shell;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest glibc with `pthread_mutex_clocklock` and `sem_clockwait`: waits on the
/// monotonic clock.
pub(super) const GLIBC: Glibc = Glibc(2, 30);

/// These run on any Linux.
pub(super) const STATIC: [&str; 3] = ["jostled", "procd", "jostle-call"];

/// The folder of the `jostle` that is linked with MPI, below that of the others.
pub(super) const MPI: &str = "mpi";

/// From PyPI: the first two are packages with the program inside, the third reads the list
/// of crates. A new version needs a look at `cargo xtask dist --check`.
const TOOLS: [&str; 3] = [
    "ziglang==0.17.1",
    "cargo-zigbuild==0.24.0",
    "cyclonedx-python-lib[json-validation]==11.12.0",
];

/// The compiler's tools.
pub(super) struct Tools {
    /// Where their programs are, before all others in PATH.
    path: std::ffi::OsString,
}

impl Tools {
    /// Installs what is missing: the tools below the target directory, Rust's standard
    /// libraries in the toolchain.
    pub(super) fn ready() -> anyhow::Result<Tools> {
        let own = environment()?.join("bin");
        let mut rustup = Command::new("rustup");
        rustup.args(["target", "add"]);
        for target in super::TARGETS {
            rustup.arg(target.triple()).arg(musl(target));
        }
        shell::run(&mut rustup)
            .context("Rust's standard libraries for other targets come from rustup")?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&path)))?;
        Ok(Tools { path })
    }

    /// Compiles the programs of a target, and puts them into `programs`, stripped.
    pub(super) fn build(&self, target: &Target, epoch: u64, programs: &Path) -> anyhow::Result<()> {
        let (gnu, musl) = (target.triple(), musl(target));
        let old = format!("{gnu}.{GLIBC}");
        let daemons = [
            "-pjostle-lockd",
            "-pjostle-procd",
            "--bin=jostled",
            "--bin=procd",
            "--features=jostle-lockd/services",
        ];
        self.cargo("build", epoch, &musl, &daemons)?;
        self.cargo("build", epoch, &old, &["-pjostle", "--bin=jostle", "--features=services"])?;
        // Its linker script is for GNU's linker (crates/procd/build.rs).
        let linker = match target.arch == std::env::consts::ARCH {
            true => "-Clinker=cc".to_owned(),
            false => format!("-Clinker={}-linux-gnu-gcc", target.arch),
        };
        let client = ["-pjostle-procd", "--bin=jostle-call", "--", &linker];
        self.cargo("rustc", epoch, &old, &client)?;
        let release =
            |triple: &str, name| target_directory().join(triple).join("release").join(name);
        let stripped = [
            (release(&gnu, "jostle"), "jostle"),
            (release(&gnu, "jostle-call"), "jostle-call"),
            (release(&musl, "jostled"), "jostled"),
            (release(&musl, "procd"), "procd"),
        ];
        for (from, name) in stripped {
            strip(target, &from, &programs.join(name))?;
        }
        Ok(())
    }

    /// Compiles `jostle` for hosts under MPI, linked with this machine's Open MPI and C
    /// library: these libraries are tied to their release of Debian.
    pub(super) fn build_mpi(
        &self,
        target: &Target,
        epoch: u64,
        programs: &Path,
    ) -> anyhow::Result<()> {
        let own = target_directory().join("dist-mpi");
        println!("== {} with MPI: -pjostle-mpi", target.arch);
        let mut cargo = shell::cargo(&["build", "--release", "--locked", "-pjostle-mpi"]);
        cargo.args(["--bin=jostle-mpi", "--features=mpi", "--target-dir"]);
        settle(cargo.arg(&own), epoch)?;
        shell::run(&mut cargo)?;
        strip(
            target,
            &own.join("release/jostle-mpi"),
            &programs.join(MPI).join("jostle"),
        )
    }

    fn cargo(&self, verb: &str, epoch: u64, triple: &str, words: &[&str]) -> anyhow::Result<()> {
        println!("== {triple}: {}", words.join(" "));
        let mut zigbuild = Command::new("cargo-zigbuild");
        zigbuild
            .current_dir(shell::root())
            .env("PATH", &self.path)
            .args([verb, "--release", "--locked", "--target", triple])
            .args(words);
        settle(&mut zigbuild, epoch)?;
        shell::run(&mut zigbuild)
    }
}

/// The Python environment with the tools, below the target directory; it is made where
/// it is missing.
pub(super) fn environment() -> anyhow::Result<PathBuf> {
    let environment = shell::target_directory().join("dist-tools");
    let installed = environment.join("installed");
    let wanted = TOOLS.join("\n");
    if std::fs::read_to_string(&installed).ok().as_deref() != Some(wanted.as_str()) {
        let mut venv = Command::new(wheel::PYTHON);
        shell::run(venv.args(["-m", "venv", "--clear"]).arg(&environment))?;
        let mut pip = Command::new(environment.join("bin/pip"));
        shell::run(pip.args(["install", "--quiet"]).args(TOOLS))?;
        std::fs::write(&installed, wanted)?;
    }
    Ok(environment)
}

fn target_directory() -> PathBuf {
    shell::target_directory()
}

fn musl(target: &Target) -> String {
    format!("{}-unknown-linux-musl", target.arch)
}

/// What could differ between two builds of a commit: where it was built, and when.
fn settle(cargo: &mut Command, epoch: u64) -> anyhow::Result<()> {
    let registry = match (std::env::var_os("CARGO_HOME"), std::env::home_dir()) {
        (Some(directory), _) => PathBuf::from(directory),
        (None, Some(home)) => home.join(".cargo"),
        (None, None) => bail!("neither CARGO_HOME nor HOME is set"),
    };
    let target = target_directory();
    let mut places = vec![(shell::root(), "/jostle"), (&registry, "/cargo")];
    if !target.starts_with(shell::root()) {
        places.push((&target, "/jostle/target"));
    }
    let flags: Vec<String> = places
        .into_iter()
        .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()))
        .collect();
    cargo
        .env("RUSTFLAGS", flags.join(" "))
        .env("SOURCE_DATE_EPOCH", epoch.to_string());
    Ok(())
}

/// The programs of a folder without text for debuggers, in another one.
pub(super) fn strip_all(target: &Target, from: &Path, programs: &Path) -> anyhow::Result<()> {
    for name in ["jostle"].iter().chain(&STATIC) {
        strip(target, &from.join(name), &programs.join(name))?;
    }
    Ok(())
}

fn strip(target: &Target, from: &Path, to: &Path) -> anyhow::Result<()> {
    contents::copy(from, to, 0o755)?;
    shell::run(Command::new(target.strip).arg("--strip-all").arg(to))
}
