//! The seeds of the fuzz targets that need the whole program (`cargo xtask fuzz`), read
//! once by what the program is made of: none makes it panic, and what is refused is
//! refused in words.

use jostle_engine::resolve::resolve;
use jostle_report::{FORMATS, html, read_from, render};
use std::path::{Path, PathBuf};

/// The corpus of a target; git keeps the files that begin with `seed-`.
fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let entries = std::fs::read_dir(corpus.join(target)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let found: Vec<_> = paths
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    assert!(!found.is_empty(), "{target}");
    found
}

#[test]
fn command_lines_make_plans_that_resolve_to_themselves_and_keep_passwords() {
    let mut resolved = 0;
    for (path, line) in seeds("commands") {
        let text = String::from_utf8_lossy(&line);
        let Ok(plans) = jostle_cli::plans_of(text.lines().map(str::to_owned)) else {
            continue;
        };
        for plan in plans {
            let Ok(one) = resolve(plan, 7, &[0, 1]) else {
                continue;
            };
            let again = resolve(one.plan.clone(), 8, &[0, 1]).unwrap();
            assert_eq!(again.plan, one.plan, "{}", path.display());
            let written = serde_json::to_string(&one.plan.redacted()).unwrap();
            assert!(!written.contains(":hunter2@"), "{written}");
            resolved += 1;
        }
    }
    assert!(resolved > 5, "{resolved}");
}

#[test]
fn plans_that_are_refused_are_refused_with_their_place() {
    for (path, plan) in seeds("plans") {
        let text = String::from_utf8_lossy(&plan);
        let Err(error) = jostle_cli::plans_in(Path::new("a.toml"), &text) else {
            continue;
        };
        let path = path.display();
        assert!(error.starts_with("a.toml"), "{path}: {error}");
        assert!(
            !error.contains("did not match any variant"),
            "{path}: {error}"
        );
    }
}

#[test]
fn result_files_are_refused_or_written_in_every_format() {
    let mut written = 0;
    for (_, file) in seeds("results") {
        // Others are lists of changes, which the fuzz target alone makes.
        let Ok(sets) = read_from(&mut file.as_slice(), "a.jsonl") else {
            continue;
        };
        for format in FORMATS {
            let text = render(format.name, &sets);
            assert!(!text.contains("NaN"), "{}: {text}", format.name);
        }
        assert!(!html(&sets).is_empty());
        written += 1;
    }
    assert!(written > 2, "{written}");
}
