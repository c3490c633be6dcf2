//! How the programs of packages are compiled: by cargo-zigbuild, whose C compiler brings
//! the headers and stubs of old C libraries and of other processors. `jostle` is linked
//! with an old glibc, since `lib:` and the C library's own locks need the host's; what
//! needs neither is linked statically with musl.

use super::elf::Glibc;
use super::{Target, contents, wheel};
use anyhow::{Context, Result, bail};
use jostle_testbed::shell;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest glibc with `pthread_mutex_clocklock` and `sem_clockwait`: waits on the
/// monotonic clock.
pub(super) const GLIBC: Glibc = Glibc(2, 30);

/// These run on any Linux.
pub(super) const STATIC: [&str; 4] = ["jostled", "jostle-lock", "procd", "jostle-call"];

/// Of these, what is linked with musl. `jostle-call` has no C library, and shares its crates
/// with `jostle`.
const MUSL: [&str; 3] = ["jostled", "jostle-lock", "procd"];

/// The folder of the `jostle` that is linked with MPI, below that of the others.
pub(super) const MPI: &str = "mpi";

/// Its name before it is packed.
const MPI_PROGRAM: &str = "jostle-mpi";

/// The profile of what is published (Cargo.toml).
const PROFILE: &str = "dist";

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
    pub(super) fn ready() -> Result<Tools> {
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

    /// Compiles the programs of a target, and puts them into `programs`, stripped: one
    /// call of cargo for those of each C library, so that what they share is compiled once.
    pub(super) fn build(&self, target: &Target, epoch: u64, programs: &Path) -> Result<()> {
        let (gnu, musl) = (target.triple(), musl(target));
        self.cargo(target, epoch, &musl, &MUSL)?;
        let of_gnu = of_gnu(target);
        self.cargo(target, epoch, &format!("{gnu}.{GLIBC}"), &of_gnu)?;
        let built = |triple: &str, name: &str| {
            let folder = shell::target_directory().join(triple).join(PROFILE);
            (folder.join(name), name.to_owned())
        };
        let (gnu, musl) = (gnu.as_str(), musl.as_str());
        let of_musl = MUSL.map(|name| built(musl, name));
        let of_gnu = of_gnu.iter().map(|name| built(gnu, name));
        for (from, name) in of_gnu.chain(of_musl) {
            let to = match name == MPI_PROGRAM {
                true => programs.join(MPI).join("jostle"),
                false => programs.join(name),
            };
            strip(target, &from, &to)?;
        }
        Ok(())
    }

    /// One call of cargo-zigbuild: these programs, of the packages that have them.
    fn cargo(&self, target: &Target, epoch: u64, triple: &str, programs: &[&str]) -> Result<()> {
        println!("== {triple}: {}", programs.join(", "));
        let mut zigbuild = Command::new("cargo-zigbuild");
        zigbuild
            .current_dir(shell::root())
            .env("PATH", &self.path)
            .args(["build", "--locked", "--profile", PROFILE])
            .args(["--target", triple])
            .args(selection(programs))
            .args(programs.iter().map(|program| format!("--bin={program}")));
        let (rust_target, _) = triple.split_once('.').unwrap_or((triple, ""));
        zigbuild.env(linker_variable(rust_target), linker(target, rust_target)?);
        if programs.contains(&MPI_PROGRAM) {
            // bindgen reads Open MPI's header, and cargo-zigbuild takes the folders of the
            // system's headers away from it. zig's are there instead, but not the compiler's.
            let mut cc = Command::new("cc");
            let headers = shell::output(cc.arg("-print-file-name=include"))?;
            let headers = format!("-isystem {}", headers.trim());
            zigbuild.env("BINDGEN_EXTRA_CLANG_ARGS", headers);
        }
        settle(&mut zigbuild, epoch)?;
        shell::run(&mut zigbuild)
    }
}

/// The programs linked with glibc, by one call of cargo.
fn of_gnu(target: &Target) -> Vec<&'static str> {
    let mut programs = vec!["jostle", "jostle-call"];
    // Open MPI's library is there for this machine's processor only.
    if target.arch == std::env::consts::ARCH {
        programs.push(MPI_PROGRAM);
    }
    programs
}

/// The words that select all published programs of a target in a call of cargo.
pub(super) fn published(target: &Target) -> Vec<String> {
    selection(&[&MUSL[..], &of_gnu(target)].concat())
}

/// The packages of these programs, with the features that are published and no others: the
/// thin client alone would have the whole engine compiled, Lua too.
fn selection(programs: &[&str]) -> Vec<String> {
    let mut words = vec!["--no-default-features".to_owned()];
    for program in programs {
        let (package, feature) = package_of(program);
        words.push(format!("-p{package}"));
        words.extend(feature.map(|feature| format!("--features={package}/{feature}")));
    }
    words
}

/// The package that has a program, and the feature with which it is published: packages have
/// everything.
fn package_of(program: &str) -> (&'static str, Option<&'static str>) {
    match program {
        "jostled" => ("jostle-lockd", Some("services")),
        "jostle-lock" => ("jostle-lock-command", Some("services")),
        "procd" => ("jostle-procd", Some("engine")),
        "jostle-call" => ("jostle-procd", None),
        MPI_PROGRAM => ("jostle-mpi", Some("mpi")),
        _ => ("jostle", Some("services")),
    }
}

/// The variable of cargo that names the linker for a target.
fn linker_variable(rust_target: &str) -> String {
    let name = rust_target.to_uppercase().replace('-', "_");
    format!("CARGO_TARGET_{name}_LINKER")
}

/// That variable, and the processor's own compiler.
pub(super) fn own_linker(target: &Target) -> (String, String) {
    let gnu = match target.arch == std::env::consts::ARCH {
        true => "cc".to_owned(),
        false => format!("{}-linux-gnu-gcc", target.arch),
    };
    (linker_variable(&target.triple()), gnu)
}

/// Writes the program that links, and gives its path. Most are linked by zig, which
/// cargo-zigbuild names in `CC_<target>`. The linker script of `jostle-call` is for GNU's
/// linker (procd/server/build.rs), and `jostle-mpi` is linked with this machine's Open MPI
/// and C library, which are tied to their release of Debian: these two are left to the
/// processor's own compiler. So all are made by one call of cargo, and share all crates.
fn linker(target: &Target, rust_target: &str) -> Result<PathBuf> {
    let (_, gnu) = own_linker(target);
    let zig = rust_target.replace('-', "_");
    let script = format!(
        "#!/bin/sh\n\
         # rustc names a program's file after the crate: deps/jostle_call-HASH.\n\
         case \"$*\" in\n\
         */deps/jostle_call-*|*/deps/jostle_mpi-*) exec {gnu} \"$@\" ;;\n\
         *) exec \"$CC_{zig}\" \"$@\" ;;\n\
         esac\n"
    );
    let path = shell::target_directory().join(format!("dist-tools/link-{rust_target}"));
    contents::write(&script, &path, 0o755)?;
    Ok(path)
}

/// The Python environment with the tools, below the target directory; it is made where
/// it is missing.
pub(super) fn environment() -> Result<PathBuf> {
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

fn musl(target: &Target) -> String {
    format!("{}-unknown-linux-musl", target.arch)
}

/// Settles the differences between two builds of a commit: where it was built, and when.
fn settle(cargo: &mut Command, epoch: u64) -> Result<()> {
    let registry = match (std::env::var_os("CARGO_HOME"), std::env::home_dir()) {
        (Some(directory), _) => PathBuf::from(directory),
        (None, Some(home)) => home.join(".cargo"),
        (None, None) => bail!("neither CARGO_HOME nor HOME is set"),
    };
    let target = shell::target_directory();
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
pub(super) fn strip_all(target: &Target, from: &Path, programs: &Path) -> Result<()> {
    for name in ["jostle"].iter().chain(&STATIC) {
        strip(target, &from.join(name), &programs.join(name))?;
    }
    Ok(())
}

fn strip(target: &Target, from: &Path, to: &Path) -> Result<()> {
    contents::copy(from, to, 0o755)?;
    shell::run(Command::new(target.strip).arg("--strip-all").arg(to))
}
