//! `--histories DIR`: the history of each run of `recover` as a file, since a checker such as
//! Knossos judges one history at a time.

use crate::Failure;
use crate::args::Report;
use anyhow::Context;
use jostle_report::{ResultSet, histories};
use std::path::Path;

/// Refuses to print several histories as one.
///
/// # Errors
/// For the user.
pub(crate) fn check(report: &Report, sets: &[ResultSet]) -> Result<(), Failure> {
    let count = match report.format.as_str() {
        "edn" => histories(sets).len(),
        _ => 0,
    };
    match count {
        0 | 1 => Ok(()),
        runs => Err(Failure::Usage(format!(
            "--format edn: each of the {runs} runs has a history of its own; --histories DIR writes \
             a file for each"
        ))),
    }
}

/// Writes each, in place of a file of that name.
///
/// # Errors
/// What the system says.
pub(crate) fn write(dir: Option<&Path>, sets: &[ResultSet]) -> anyhow::Result<()> {
    let Some(dir) = dir else { return Ok(()) };
    for history in histories(sets) {
        let path = dir.join(history.name);
        std::fs::write(&path, history.text)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
