//! `cargo xtask clients`: the packages of `clients/`, each by its own tests, and
//! the Redis clients that people have, raw, against jostled.
//!
//! The toolchain of an ecosystem must be there (go, node and npm, a JDK and mvn); all else that it
//! needs is installed under `target/clients`.

mod groups;
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

/// The beginning of scripts: a copy of a directory of the repository, since npm and mvn write
/// beside their sources; mvn, with its repository under `$PLACE`; and npm's installation.
const TOOLS: &str = "
copy() { mkdir -p \"$PLACE/$2\"; cp -r \"$1/.\" \"$PLACE/$2\"; cd \"$PLACE/$2\"; }
maven() { mvn --batch-mode --quiet -Dmaven.repo.local=\"$PLACE/m2\" \"$@\" >&2; }
install() { npm install --silent --no-audit --no-fund >&2; }
";

impl Ground {
    /// A script that begins in the repository's root, with the caches of all ecosystems under
    /// `$PLACE`. Its arguments are those of the command.
    fn script(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-ec", &format!("{TOOLS}{script}"), "sh"])
            .current_dir(shell::root())
            .env("ROOT", shell::root())
            .env("PLACE", &self.place)
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
}

/// Runs what has `only` in its name, or everything; an error if a promise is broken.
pub(crate) fn run(only: Option<&str>) -> anyhow::Result<()> {
    let needed =
        "etcd-server gcc nftables redis-tools libhiredis-dev openssl pkg-config python3-venv";
    debian::ensure(&needed.split(' ').collect::<Vec<_>>())?;
    shell::run(&mut Command::new(
        shell::root().join("jostled/server/tests/install-clients.sh"),
    ))?;
    let build = [
        "build",
        "--package=jostle-lockd",
        "--bin=jostled",
        "--features=ha",
    ];
    shell::run(&mut shell::cargo(&build))?;
    let ground = Ground {
        jostled: shell::target_directory().join("debug/jostled"),
        place: shell::target_directory().join("clients"),
    };
    std::fs::create_dir_all(&ground.place)?;
    let wanted = |name: &str| only.is_none_or(|part| name.contains(part));
    let mut broken = packages::run(&ground, &wanted);
    broken.extend(raw::run(&ground, &wanted));
    broken.extend(groups::run(&ground, &wanted));
    if !broken.is_empty() {
        bail!("broken promises:\n  {}", broken.join("\n  "));
    }
    println!("clients: everything that is promised held");
    Ok(())
}
