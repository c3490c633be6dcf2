//! `cargo xtask long`: the tests that `ci` leaves out, because they take minutes: locks
//! with the libraries of other languages that they wrap (npm, Maven and Go fetch and
//! compile), the commands of pages run as they stand, lock services that are launched
//! again and again, or in a current version (etcd, which Go builds); and actionlint, which
//! Go fetches.
//! Hosts under MPI, the benchmark against peers and drawings of all records too.
//!
//! They are marked `#[ignore]` with this command's name.

use jostle_testbed::{packages, shell};
use std::process::Command;

/// Builds the locks below `target/own-locks`.
const INSTALL: &str = "own-locks/pipe/install.sh";

/// Lints action.yml and the workflow that shows its use.
const LINT: &str = "ci-gate/lint";

/// Those that have such tests.
const PACKAGES: [&str; 4] = ["jostle", "jostle-lab", "jostle-mpi", "jostle-targets"];

/// Installs, builds, lints and tests.
pub(crate) fn run() -> anyhow::Result<()> {
    packages::ensure_for_libraries()?;
    shell::run(&mut Command::new(shell::root().join(LINT)))?;
    shell::run(&mut Command::new(shell::root().join(INSTALL)))?;
    let packages = PACKAGES.map(|name| format!("--package={name}"));
    let mut cargo = shell::cargo(&["test"]);
    shell::run(
        cargo
            .args(packages)
            .args(["--no-fail-fast", "--", "--ignored"]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Whether a source file below has a test of this command.
    fn has_one(directory: &Path) -> bool {
        std::fs::read_dir(directory).unwrap().any(|entry| {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => has_one(&path),
                false => std::fs::read_to_string(&path)
                    .is_ok_and(|text| text.contains("#[ignore = \"cargo xtask long\"]")),
            }
        })
    }

    /// Those of jostle-targets were left out, and so run by nobody.
    #[test]
    fn every_package_with_such_a_test_is_listed() {
        let crates = std::fs::read_dir(shell::root().join("crates")).unwrap();
        let mut packages: Vec<_> = crates.map(|entry| entry.unwrap().path()).collect();
        packages.push(shell::root().join("lab"));
        let mut found = 0;
        for package in packages {
            let folders = ["src", "tests"].map(|folder| package.join(folder));
            if !folders
                .iter()
                .any(|folder| folder.is_dir() && has_one(folder))
            {
                continue;
            }
            let manifest = std::fs::read_to_string(package.join("Cargo.toml")).unwrap();
            let mut lines = manifest.lines();
            let name = lines.find_map(|line| line.strip_prefix("name = ")).unwrap();
            let name = name.trim_matches('"');
            assert!(
                PACKAGES.contains(&name),
                "{name} is not in `cargo xtask long`"
            );
            found += 1;
        }
        assert_eq!(found, PACKAGES.len(), "a package without such a test");
    }
}
