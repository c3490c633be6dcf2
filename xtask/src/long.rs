//! `cargo xtask long`: the tests that `ci` leaves out, because they take minutes: locks
//! with the libraries of other languages that they wrap (npm, Maven and Go fetch and
//! compile), the commands of pages run as they stand, lock services that are launched
//! again and again; and actionlint, which Go fetches.
//! Hosts under MPI, the benchmark against peers and drawings of all records too.
//!
//! They are marked `#[ignore]` with this command's name.

use jostle_testbed::{packages, shell};
use std::process::Command;

/// Builds the locks below `target/own-locks`.
const INSTALL: &str = "own-locks/pipe/install.sh";

/// Lints action.yml and the workflow that shows its use.
const LINT: &str = "ci-gate/lint";

/// Installs, builds, lints and tests.
pub fn run() -> anyhow::Result<()> {
    packages::ensure_for_libraries()?;
    shell::run(&mut Command::new(shell::root().join(LINT)))?;
    shell::run(&mut Command::new(shell::root().join(INSTALL)))?;
    shell::run(&mut shell::cargo(&[
        "test",
        "--package=jostle",
        "--package=jostle-lab",
        "--package=jostle-mpi",
        "--no-fail-fast",
        "--",
        "--ignored",
    ]))
}
