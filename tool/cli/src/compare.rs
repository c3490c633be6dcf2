//! `jostle compare`: compares two result files, prints the differences, and returns an exit
//! code for scripts.

use crate::args::Compare;
use crate::labels::{self, Label};
use crate::{Failure, complain, html, print};
use jostle_report::ResultSet;
use jostle_report::compare::{CompareError, Input};
use std::path::{Path, PathBuf};

/// Prints the comparison and returns the exit code.
///
/// # Errors
/// Files that cannot be read, a page that cannot be written, and results that have nothing in common.
pub(crate) fn compare(asked: &Compare) -> Result<u8, Failure> {
    let given = std::iter::once(&asked.base).chain(&asked.new);
    let files: Vec<&Path> = given.map(PathBuf::as_path).collect();
    labels::check(&asked.label, &files)?;
    if let Some(new) = &asked.new
        && is_one_file(&asked.base, new)
    {
        complain("BASE and NEW are one file, so that nothing can differ");
    }
    let read = |path: &Path| read(path, &asked.label);
    let base = read(&asked.base)?;
    let new = asked.new.as_deref().map(read).transpose()?;
    let new_path = asked.new.as_ref().unwrap_or(&asked.base);
    let targets = asked.targets.as_ref();
    let input = Input {
        base_name: &asked.base.to_string_lossy(),
        base: &base,
        new_name: &new_path.to_string_lossy(),
        new: new.as_deref(),
        targets: targets.map(|pair| pair.0.each_ref().map(String::as_str)),
        within: asked.threshold,
        all: asked.all,
        strict: asked.strict,
    };
    let compared = jostle_report::compare::compare(&input).map_err(|error| match error {
        CompareError::NothingInCommon { .. } => Failure::Failed(error.into()),
        CompareError::OneResult | CompareError::NoTarget { .. } => {
            Failure::Usage(error.to_string())
        }
    })?;
    let page = html::reserve(asked.html.as_deref())?;
    print(&compared.render(&asked.format))?;
    if let Some(page) = page {
        let text = jostle_report::html_of_compared(&compared, &base, new.as_deref());
        html::write_text(page, &text)?;
    }
    Ok(compared.exit_code())
}

fn is_one_file(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| path.canonicalize().ok();
    place(one).is_some_and(|one| place(other) == Some(one))
}

fn read(path: &Path, labels: &[Label]) -> Result<Vec<ResultSet>, Failure> {
    let mut sets = jostle_report::read(path).map_err(anyhow::Error::from)?;
    sets.iter()
        .flat_map(|set| &set.notes)
        .for_each(|note| complain(note));
    labels::apply(labels, path, &mut sets);
    Ok(sets)
}
