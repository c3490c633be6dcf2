//! `cargo xtask clients`: the packages of `clients/`, each by its own tests, and
//! the Redis clients that people have, raw, against jostled.
//!
//! What an ecosystem needs is installed under `target/clients`; its toolchain
//! (go, node and npm, a JDK and mvn) must be there.

mod daemon;
mod packages;
mod raw;

use anyhow::bail;
use jostle_testbed::{packages as debian, shell};
use std::path::PathBuf;
use std::process::Command;

/// Where everything is.
struct Ground {
    /// The program `jostled`.
    jostled: PathBuf,
    /// Where ecosystems install and build.
    place: PathBuf,
}

impl Ground {
    /// A program of an ecosystem, with its caches under `place`.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("JOSTLED", &self.jostled)
            .env("GOMODCACHE", self.place.join("go/mod"))
            .env("GOCACHE", self.place.join("go/build"))
            .env("GOFLAGS", "-modcacherw")
            .env("npm_config_cache", self.place.join("npm"))
            .env("npm_config_update_notifier", "false")
            .env("CARGO_TARGET_DIR", self.place.join("rust"))
            .env_remove("JOSTLED_PASSWORD");
        command
    }

    /// mvn, with its repository under `place`.
    fn maven(&self) -> Command {
        let mut command = self.command("mvn");
        let repository = self.place.join("m2");
        command.args(["--batch-mode", "--quiet"]);
        command.arg(format!("-Dmaven.repo.local={}", repository.display()));
        command
    }

    /// A copy of a directory of the repository, since npm and mvn write beside
    /// their sources.
    fn copy(&self, from: &str, to: &str) -> anyhow::Result<PathBuf> {
        let place = self.place.join(to);
        std::fs::create_dir_all(&place)?;
        let from = shell::root().join(from).join(".");
        shell::run(Command::new("cp").arg("-r").arg(from).arg(&place))?;
        Ok(place)
    }
}

/// Runs what has `only` in its name, or everything; an error if a promise is broken.
pub(crate) fn run(only: Option<&str>) -> anyhow::Result<()> {
    debian::ensure(&[
        "gcc",
        "redis-tools",
        "libhiredis-dev",
        "openssl",
        "pkg-config",
        "python3-venv",
    ])?;
    shell::run(&mut Command::new(
        shell::root().join("jostled/server/tests/install-clients.sh"),
    ))?;
    let build = ["build", "--package=jostle-lockd", "--bin=jostled"];
    shell::run(&mut shell::cargo(&build))?;
    let ground = Ground {
        jostled: shell::target_directory().join("debug/jostled"),
        place: shell::target_directory().join("clients"),
    };
    std::fs::create_dir_all(&ground.place)?;
    let wanted = |name: &str| only.is_none_or(|part| name.contains(part));
    let mut broken = packages::run(&ground, &wanted)?;
    broken.extend(raw::run(&ground, &wanted)?);
    if !broken.is_empty() {
        bail!("broken promises:\n  {}", broken.join("\n  "));
    }
    println!("clients: everything that is promised held");
    Ok(())
}
