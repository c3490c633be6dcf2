//! `cargo xtask screens`: `screens.sh`, with what it needs.

use anyhow::ensure;
use jostle_testbed::{packages, shell};
use std::process::Command;

/// Makes the pictures of `tool/docs/screens/` again.
pub(crate) fn screens() -> anyhow::Result<()> {
    packages::ensure(&["chromium", "webp"])?;
    shell::run(&mut shell::cargo(&["build", "--package", "jostle"]))?;
    let jostle = shell::target_directory().join("debug/jostle");
    let mut script = Command::new("sh");
    script.args(["-c", include_str!("screens.sh"), "screens.sh"]);
    let status = script.arg(jostle).current_dir(shell::root()).status()?;
    ensure!(status.success(), "screens.sh: {status}");
    Ok(())
}
