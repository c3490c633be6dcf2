//! `--label NAME=FILE`: what a result is called in the page, the tables and the figures.

use crate::Failure;
use jostle_report::ResultSet;
use std::path::{Path, PathBuf};

/// One label as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    name: String,
    file: PathBuf,
}

/// Reads `old=before.jsonl`; the name ends at the first `=`.
///
/// # Errors
/// Without a name or a file.
pub(crate) fn parse(typed: &str) -> Result<Label, String> {
    match typed.split_once('=') {
        Some((name, file)) if !name.trim().is_empty() && !file.is_empty() => Ok(Label {
            name: name.trim().to_owned(),
            file: PathBuf::from(file),
        }),
        _ => {
            Err("a name and a result file with = between them, such as old=before.jsonl".to_owned())
        }
    }
}

/// Every label must be of one of these files, and every file has one at most.
///
/// # Errors
/// Names the file that is none of them, or that has two labels.
pub(crate) fn check(labels: &[Label], files: &[&Path]) -> Result<(), Failure> {
    for (at, label) in labels.iter().enumerate() {
        let file = label.file.display();
        if !files.contains(&label.file.as_path()) {
            let given: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
            return Err(Failure::Usage(format!(
                "--label {}={file}: {file} is not one of the results given: {}",
                label.name,
                given.join(", ")
            )));
        }
        if labels[..at].iter().any(|other| other.file == label.file) {
            return Err(Failure::Usage(format!(
                "--label: {file} has two labels; give it one"
            )));
        }
    }
    Ok(())
}

/// Gives the experiments of a file its label, if there is one.
pub(crate) fn apply(labels: &[Label], file: &Path, sets: &mut [ResultSet]) {
    let label = labels.iter().find(|label| label.file == file);
    for set in sets {
        set.label = label.map(|label| label.name.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_a_name_and_a_file() {
        let label = parse("old kernel=a=b.jsonl").unwrap();
        assert_eq!(label.name, "old kernel");
        assert_eq!(label.file, Path::new("a=b.jsonl"));
        for wrong in ["old", "=x.jsonl", "old=", " =x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn it_must_be_of_a_file_that_is_given_and_of_each_once() {
        let labels = [parse("old=a.jsonl").unwrap(), parse("new=a.jsonl").unwrap()];
        let given = [Path::new("a.jsonl"), Path::new("b.jsonl")];
        assert!(check(&labels[..1], &given).is_ok());
        for (labels, files) in [(&labels[..], &given[..]), (&labels[..1], &given[1..])] {
            assert!(matches!(check(labels, files), Err(Failure::Usage(_))));
        }
    }
}
