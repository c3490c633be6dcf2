//! `jostle verify` and locks whose bugs are known: it must find each bug with every seed, and
//! nothing in the corrected forms.

use super::{Required, Row, Series};
use crate::program;
use anyhow::Context;
use jostle_model::record::{Verified, Violation};
use jostle_testbed::shell;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const SEEDS: u64 = 3;
const LASTS: &str = "60s";

/// lab/trials/verify/known.toml says what each is; those of libraries.toml have no known bug.
#[derive(Deserialize)]
struct Lock {
    name: String,
    before: Option<String>,
    bug: Option<String>,
    corrected: String,
    same: Option<String>,
    /// Beside an overlap.
    expects: Option<Violation>,
}

/// One run, as `jostle verify` judged it.
#[derive(Serialize, Deserialize)]
struct Trial {
    /// The name of its lock, the seed, and whether it is the corrected form.
    id: (String, u64, bool),
    found: Verified,
}

fn known() -> anyhow::Result<Vec<Lock>> {
    let files = [
        include_str!("../../verify/known.toml"),
        include_str!("../../verify/libraries.toml"),
    ];
    let mut locks = Vec::new();
    for text in files {
        let mut file: BTreeMap<String, Vec<Lock>> = toml::from_str(text)?;
        locks.append(&mut file.remove("lock").unwrap_or_default());
    }
    Ok(locks)
}

/// Collects what is missing, as far as time allows, and judges all there is.
pub(super) fn rows(series: &Series) -> anyhow::Result<Vec<Row>> {
    let (mut store, until) = series.collect.begin::<Trial>()?;
    let mut locks = known()?;
    locks.retain(|lock| series.has(&lock.name));
    if Instant::now() < until {
        let jostle = series.jostle()?.canonicalize()?;
        let all = locks
            .iter()
            .flat_map(|lock| (1..=SEEDS).map(move |seed| (lock, seed)));
        for (lock, seed) in all {
            let forms = [false, true].into_iter();
            for is_corrected in forms.filter(|corrected| *corrected || lock.bug.is_some()) {
                let id = (lock.name.clone(), seed, is_corrected);
                if store.lines.iter().all(|trial| trial.id != id) && Instant::now() < until {
                    eprintln!("{}, seed {seed}, corrected: {is_corrected}", lock.name);
                    let found = lock.verified(&jostle, seed, is_corrected)?;
                    store.add(Trial { id, found })?;
                }
            }
        }
    }
    let (text, rows) = judged(&locks, &store.lines);
    println!("{text}");
    Ok(rows)
}

impl Lock {
    fn verified(&self, jostle: &Path, seed: u64, is_corrected: bool) -> anyhow::Result<Verified> {
        let place = tempfile::tempdir()?;
        let before = self.before.as_deref().unwrap_or(":");
        let same = self.same.as_deref().unwrap_or("--fault kill");
        let form = match &self.bug {
            Some(bug) if !is_corrected => bug,
            _ => &self.corrected,
        };
        let line = format!(
            "set -e\n{before}\nexec setpriv --pdeathsig INT \"$0\" verify {form} {same} \
             --for {LASTS} --seed {seed} \"$@\""
        );
        let line = line.replace("{place}", &place.path().display().to_string());
        let modules = ["tool/own-locks/pipe/python", "lab/trials/situations"];
        let modules = modules.map(|path| shell::root().join(path).display().to_string());
        let mut command = Command::new("sh");
        command.args(["-c", &line]).arg(jostle);
        command.current_dir(shell::root());
        command.env("PYTHONPATH", modules.join(":"));
        let sets = program::run(&mut command, &place.path().join("result.jsonl"))?;
        let mut runs = sets.iter().flat_map(|set| &set.runs);
        let found = runs.find_map(|run| run.verified.as_deref().cloned());
        found.with_context(|| format!("`{line}` has no run of verify in its result"))
    }

    /// When the bug was found, in seconds; `-`: it was not, or as something else.
    fn found_s(&self, found: &Verified) -> String {
        let kinds = [Some(Violation::Overlap), self.expects];
        match &found.excerpt {
            Some(shown) if found.violations() > 0 && kinds.contains(&Some(shown.kind)) => {
                format!("{:.1}", shown.until_ns as f64 / 1e9)
            }
            _ => "-".to_owned(),
        }
    }
}

/// As Markdown, a line for each lock and in it a figure for each seed; and what is required.
fn judged(locks: &[Lock], trials: &[Trial]) -> (String, Vec<Row>) {
    let mut text = "| bug | found after, s | corrected form: violations | grants |\n\
                    | --- | --- | --- | --- |\n"
        .to_owned();
    let mut libraries = "\n| library | violations | undecided | grants |\n\
                         | --- | --- | --- | --- |\n"
        .to_owned();
    let (mut found, mut clean) = (Vec::new(), Vec::new());
    for lock in locks {
        let of = |is_corrected| {
            let own = trials.iter().filter(|trial| trial.id.0 == lock.name);
            own.filter(move |trial| trial.id.2 == is_corrected)
        };
        let is_library = lock.bug.is_none();
        let after: Vec<String> = of(false).map(|trial| lock.found_s(&trial.found)).collect();
        let figures = |figure: fn(&Verified) -> u64| {
            let each = of(true).map(|trial| figure(&trial.found).to_string());
            each.collect::<Vec<_>>().join(", ")
        };
        let (violations, undecided) = (
            figures(Verified::violations),
            figures(|found| found.undecided),
        );
        let (name, grants) = (&lock.name, figures(|found| found.grants));
        if is_library {
            libraries += &format!("| {name} | {violations} | {undecided} | {grants} |\n");
            continue;
        }
        let seconds = after.join(", ");
        text += &format!("| {name} | {seconds} | {violations} | {grants} |\n");
        found.extend(after);
        clean.extend(of(true).map(|t| t.found.violations() == 0 && t.found.grants > 0));
    }
    text += &libraries;
    let all = Required::AtLeast(1.0);
    let rows = rows! {
        "bugs that are found", found, |seconds| seconds != "-", all;
        "corrected forms that grant and are clean", clean, |is_clean| *is_clean, all;
    };
    (text, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::store::Store;
    use jostle_model::record::Excerpt;

    #[test]
    fn what_is_recorded_holds() {
        let recorded = shell::root().join("lab/record/validate-verify.jsonl");
        let trials = Store::read(&recorded).unwrap().lines;
        let (_, rows) = judged(&known().unwrap(), &trials);
        let counts: Vec<_> = rows.iter().map(|row| (row.count, row.trials)).collect();
        assert_eq!(counts, [(30, 30), (30, 30)]);
    }

    #[test]
    fn a_bug_is_found_as_what_it_is_and_a_form_that_grants_nothing_is_not_clean() {
        let locks = known().unwrap();
        let trial = |is_corrected, seed, kind: Option<Violation>, grants| {
            let until_ns = 1_500_000_000;
            let excerpt = kind.map(|kind| Excerpt {
                kind,
                until_ns,
                ..Excerpt::default()
            });
            let overlaps = u64::from(kind.is_some());
            Trial {
                id: (locks[0].name.clone(), seed, is_corrected),
                found: Verified {
                    grants,
                    overlaps,
                    excerpt,
                    ..Verified::default()
                },
            }
        };
        let trials = [
            trial(false, 1, Some(Violation::Overlap), 9),
            trial(false, 2, Some(Violation::LateGrant), 9),
            trial(false, 3, None, 9),
            trial(true, 1, None, 9),
            trial(true, 2, Some(Violation::Overlap), 9),
            trial(true, 3, None, 0),
        ];
        let (text, rows) = judged(&locks, &trials);
        let line = format!("| {} | 1.5, -, - | 0, 1, 0 | 9, 9, 0 |", locks[0].name);
        assert_eq!(text.lines().nth(2), Some(line.as_str()));
        let counts: Vec<_> = rows.iter().map(|row| (row.count, row.trials)).collect();
        assert_eq!(counts, [(1, 3), (1, 3)]);
    }
}
