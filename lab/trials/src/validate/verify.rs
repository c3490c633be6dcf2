//! `jostle verify` and locks whose bugs are known: it must find each bug with every seed, and
//! nothing in the corrected forms.

use super::{Required, Row, Series};
use crate::program;
use anyhow::Context;
use jostle_model::record::{Verified, Violation};
use jostle_testbed::shell;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const SEEDS: u64 = 3;
const LASTS: &str = "60s";

/// lab/trials/verify/known.toml says what each is.
#[derive(Deserialize)]
struct Lock {
    name: String,
    #[serde(default)]
    before: String,
    bug: String,
    corrected: String,
    #[serde(default = "kill")]
    same: String,
    #[serde(default = "overlap")]
    expects: Vec<Violation>,
}

fn kill() -> String {
    "--fault kill".to_owned()
}

fn overlap() -> Vec<Violation> {
    vec![Violation::Overlap]
}

/// One run, as `jostle verify` judged it.
#[derive(Serialize, Deserialize)]
struct Trial {
    name: String,
    is_corrected: bool,
    seed: u64,
    found: Verified,
}

fn known() -> anyhow::Result<Vec<Lock>> {
    #[derive(Deserialize)]
    struct File {
        lock: Vec<Lock>,
    }
    let text = include_str!("../../verify/known.toml");
    Ok(toml::from_str::<File>(text)?.lock)
}

/// Collects what is missing, as far as time allows, and judges all there is.
pub(super) fn rows(series: &Series) -> anyhow::Result<Vec<Row>> {
    let (mut store, until) = series.collect.begin::<Trial>()?;
    let mut locks = known()?;
    locks.retain(|lock| series.has(&lock.name));
    if Instant::now() < until {
        let jostle = series.jostle()?.canonicalize()?;
        let seeds = (1..=SEEDS).flat_map(|seed| [(seed, false), (seed, true)]);
        for (lock, (seed, is_corrected)) in locks
            .iter()
            .flat_map(|lock| seeds.clone().map(move |form| (lock, form)))
        {
            let is_it = |trial: &Trial| {
                trial.name == lock.name && (trial.seed, trial.is_corrected) == (seed, is_corrected)
            };
            if store.lines.iter().any(is_it) || Instant::now() >= until {
                continue;
            }
            eprintln!("{}, seed {seed}, corrected: {is_corrected}", lock.name);
            store.add(Trial {
                name: lock.name.clone(),
                is_corrected,
                seed,
                found: lock.verified(&jostle, is_corrected, seed)?,
            })?;
        }
    }
    let (text, rows) = judged(&locks, &store.lines);
    println!("{text}");
    Ok(rows)
}

impl Lock {
    fn verified(&self, jostle: &Path, is_corrected: bool, seed: u64) -> anyhow::Result<Verified> {
        let place = tempfile::tempdir()?;
        let (before, same) = (&self.before, &self.same);
        let form = if is_corrected {
            &self.corrected
        } else {
            &self.bug
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
        let excerpt = found.excerpt.as_ref().filter(|_| found.violations() > 0);
        let is_it = excerpt.filter(|excerpt| self.expects.contains(&excerpt.kind));
        is_it.map_or("-".to_owned(), |excerpt| {
            format!("{:.1}", excerpt.until_ns as f64 / 1e9)
        })
    }
}

/// As Markdown, a line for each lock and in it a figure for each seed; and what is required.
fn judged(locks: &[Lock], trials: &[Trial]) -> (String, Vec<Row>) {
    let mut text = "| bug | found after, s | corrected form: violations | grants |\n\
                    | --- | --- | --- | --- |\n"
        .to_owned();
    let (mut found, mut clean) = (Vec::new(), Vec::new());
    for lock in locks {
        let of = |is_corrected| {
            let own = trials.iter().filter(|trial| trial.name == lock.name);
            own.filter(move |trial| trial.is_corrected == is_corrected)
        };
        let after: Vec<String> = of(false).map(|trial| lock.found_s(&trial.found)).collect();
        let figures = |figure: fn(&Verified) -> u64| {
            let all: Vec<String> = of(true)
                .map(|trial| figure(&trial.found).to_string())
                .collect();
            all.join(", ")
        };
        text += &format!(
            "| {} | {} | {} | {} |\n",
            lock.name,
            after.join(", "),
            figures(Verified::violations),
            figures(|found| found.grants)
        );
        found.extend(after);
        clean.extend(of(true).map(|t| t.found.violations() == 0 && t.found.grants > 0));
    }
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
    use jostle_model::record::Excerpt;

    #[test]
    fn a_bug_is_found_as_what_it_is_and_a_form_that_grants_nothing_is_not_clean() {
        let locks = known().unwrap();
        let trial = |is_corrected, seed, kind: Option<Violation>, grants| Trial {
            name: locks[0].name.clone(),
            is_corrected,
            seed,
            found: Verified {
                grants,
                overlaps: u64::from(kind.is_some()),
                excerpt: kind.map(|kind| Excerpt {
                    kind,
                    until_ns: 1_500_000_000,
                    ..Excerpt::default()
                }),
                ..Verified::default()
            },
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
