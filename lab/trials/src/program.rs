//! jostle, built and run as a user would run it.

use anyhow::{Context, ensure};
use jostle_report::ResultSet;
use jostle_testbed::shell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds it for speed, and tells where it is.
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    shell::run(&mut shell::cargo(&[
        "build",
        "--release",
        "--package",
        "jostle",
        "--features",
        "services",
    ]))?;
    Ok(shell::target_directory().join("release/jostle"))
}

/// The beginning of its command line: it is interrupted when this program ends, however
/// that comes.
pub(crate) fn call(jostle: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "INT"]).arg(jostle);
    command
}

/// Runs a command line that ends with jostle's options, and reads its result file
/// (`part`, which the next run replaces): one set for each experiment.
pub(crate) fn run(run: &mut Command, part: &Path) -> anyhow::Result<Vec<ResultSet>> {
    run.args(["--quiet", "--overwrite", "-o"])
        .arg(part)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let status = run.status().context("cannot run jostle")?;
    // 3: a point is INVALID.
    ensure!(
        matches!(status.code(), Some(0 | 3)),
        "`{}` failed: {status}",
        shell::typed(run)
    );
    let sets = jostle_report::read(part)?;
    ensure!(!sets.is_empty(), "`{}` wrote nothing", shell::typed(run));
    Ok(sets)
}
