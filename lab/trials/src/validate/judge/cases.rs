//! `cargo xtask validate judge-cases`: `jostle judge` over the load generators and servers of
//! lab/trials/cases, whose limits were written down before any of them was run. Each case is
//! one short run, alone or beside a busy loop. Its series is kept, so that a changed rule
//! judges it anew.
//!
//! A verdict is *right* if it is a word of the case's truth. Beside a busy loop `machine` is
//! right too: the figure is then that of a machine that others use. Every third case of the first
//! table and all of the others are held aside, and are reported only when asked for.
//!
//! Client, server and judge may be in namespaces of their own: lab/trials/cases/place.sh makes the
//! places, of which `inside` is the one where judge sees no server.

mod bench;
mod place;
mod table;

use super::truth::is_spoilt;
use crate::validate::store::Store;
use crate::validate::{Required, Row, Series};
use anyhow::{Context, ensure};
use bench::{busy_loop, enter_namespace};
use jostle_model::judged::{Limit, Watched};
use jostle_stats::judge::find;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Instant;
use table::{Case, TABLES, cases};

/// A line of the file: one run.
#[derive(Serialize, Deserialize)]
struct Run {
    case: u32,
    beside: bool,
    watched: Watched,
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct How {
    /// Beside a busy loop
    #[arg(long)]
    beside: bool,
    /// Also report the cases that are held aside
    #[arg(long)]
    open: bool,
    /// Which table of cases: rules were made by the first one
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=TABLES.len() as i64))]
    table: u8,
    /// This program has a network namespace of its own
    #[arg(long, hide = true)]
    apart: bool,
}

/// Runs what is missing, as far as time allows, and reports.
pub(in crate::validate) fn rows(series: &Series, how: How) -> anyhow::Result<Vec<Row>> {
    let (beside, opened) = (how.beside, how.open);
    let cases = cases()?;
    let (mut store, until) = series.collect.begin::<Run>()?;
    let is_there = |case: &Case, store: &Store<Run>| {
        let mut lines = store.lines.iter();
        lines.any(|line| line.case == case.number && line.beside == beside)
    };
    let is_wanted = |case: &&Case| {
        let text = format!("#{} {} {}", case.number, case.server, case.command);
        series.has(&text) && case.table() == usize::from(how.table) && !is_there(case, &store)
    };
    let missing: Vec<&Case> = cases.iter().filter(is_wanted).collect();
    if !missing.is_empty() && Instant::now() < until {
        if !how.apart {
            enter_namespace()?;
        }
        let bench = bench::set_up(&series.jostle()?)?;
        let _hog = if beside { Some(busy_loop(None)?) } else { None };
        for case in missing {
            if Instant::now() >= until {
                break;
            }
            let run = || {
                let watched = bench::run(&bench, case);
                watched.with_context(|| format!("case {}", case.number))
            };
            let mut watched = run()?;
            if !beside && is_spoilt(&watched, None) {
                watched = run()?;
            }
            store.add(Run {
                case: case.number,
                beside,
                watched,
            })?;
        }
    }
    report(&cases, &store.lines, opened)
}

fn report(cases: &[Case], runs: &[Run], opened: bool) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (aside, beside) in [(false, false), (false, true), (true, false), (true, true)] {
        let of_it = |case: &Case| case.is_aside() == aside;
        let runs = runs.iter().filter(|run| run.beside == beside);
        let judged = runs.filter_map(|run| {
            let case = cases.iter().find(|case| case.number == run.case)?;
            of_it(case).then(|| (case, Verdict::judge(case, run)))
        });
        let judged: Vec<(&Case, Verdict)> = judged.collect();
        if (aside && !opened) || judged.is_empty() {
            continue;
        }
        let which = if aside { "held aside" } else { "made" };
        let where_ = if beside { "beside a busy loop" } else { "idle" };
        println!("{which}, {where_}:\n");
        matrix(&judged);
        rows.extend(summary(&format!("{which}, {where_}"), &judged, aside));
    }
    ensure!(!rows.is_empty(), "no run of any case");
    Ok(rows)
}

/// The answer of judge about a run by the rules of today.
struct Verdict {
    limit: Limit,
    is_right: bool,
    why: String,
}

impl Verdict {
    fn judge(case: &Case, run: &Run) -> Verdict {
        let finding = find(&run.watched);
        Verdict {
            limit: finding.limit,
            is_right: is_right(case, run.beside, finding.limit),
            why: finding.reasons.into_iter().next().unwrap_or_default(),
        }
    }

    fn is_decided(&self) -> bool {
        self.limit != Limit::Undecided
    }
}

fn is_right(case: &Case, beside: bool, limit: Limit) -> bool {
    case.truth.contains(&limit) || (beside && limit == Limit::Machine)
}

/// Rows are truths, columns are verdicts; then what was wrong or undecided.
fn matrix(judged: &[(&Case, Verdict)]) {
    let name = |truth: &[Limit]| {
        truth
            .iter()
            .map(|limit| limit.name())
            .collect::<Vec<_>>()
            .join(" or ")
    };
    let mut cells: BTreeMap<String, BTreeMap<&str, usize>> = BTreeMap::new();
    for (case, verdict) in judged {
        let row = cells.entry(name(&case.truth)).or_default();
        *row.entry(verdict.limit.name()).or_default() += 1;
    }
    let mut columns: Vec<&str> = cells.values().flat_map(BTreeMap::keys).copied().collect();
    columns.sort_unstable();
    columns.dedup();
    println!("| truth | {} |", columns.join(" | "));
    println!("| --- {}|", "| --- ".repeat(columns.len()));
    for (truth, row) in &cells {
        let row = columns
            .iter()
            .map(|column| row.get(column).map_or(String::new(), usize::to_string));
        println!("| {truth} | {} |", row.collect::<Vec<_>>().join(" | "));
    }
    println!();
    for (case, verdict) in judged.iter().filter(|(_, verdict)| !verdict.is_right) {
        let (truth, limit) = (name(&case.truth), verdict.limit.name());
        println!(
            "#{} {}, `{}`: {limit}, not {truth}: {}",
            case.number, case.server, case.command, verdict.why
        );
    }
    println!();
}

fn summary(what: &str, judged: &[(&Case, Verdict)], aside: bool) -> Vec<Row> {
    type Judged<'a> = (&'a Case, Verdict);
    let row = |of: &str, among: Vec<&Judged<'_>>, is: fn(&&Judged<'_>) -> bool, wanted| {
        let required = if aside { wanted } else { Required::Nothing };
        Row::counting(format!("{what}: {of}"), among, is, required)
    };
    let all = || judged.iter();
    let decided = all().filter(|(_, verdict)| verdict.is_decided()).collect();
    let generators = all().filter(|(case, _)| case.truth.contains(&Limit::Generator));
    // Of some no program can know more: the server is out of sight.
    let known = all().filter(|(case, _)| !case.truth.contains(&Limit::Undecided));
    let [few, none] = [0.1, 0.0].map(Required::AtMost);
    let most = Required::AtLeast(0.95);
    let (generators, server) = (generators.collect(), "generator, called server");
    vec![
        row("right of the decided", decided, |one| one.1.is_right, most),
        row("undecided", known.collect(), |one| !one.1.is_decided(), few),
        row(server, generators, |one| one.1.limit == Limit::Server, none),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_stats::judge::notes;

    /// The recorded cases by the rules of today: no fewer are right than when the rules were
    /// finished. Of each file: made and held aside, each idle and beside a busy loop.
    #[test]
    fn recorded_cases_are_judged_as_they_were() {
        const FILES: [(&str, [[usize; 2]; 2]); 5] = [
            ("validate-judge-cases.jsonl", [[54, 53], [25, 26]]),
            ("validate-judge-cases-2.jsonl", [[0, 0], [48, 48]]),
            ("validate-judge-cases-3.jsonl", [[0, 0], [55, 54]]),
            ("validate-judge-cases-4.jsonl", [[0, 0], [41, 41]]),
            ("validate-judge-cases-5.jsonl", [[0, 0], [57, 55]]),
        ];
        let cases = cases().unwrap();
        let mut named = Vec::new();
        for (file, then) in FILES {
            let path = format!("{}/../record/{file}", env!("CARGO_MANIFEST_DIR"));
            let mut right = [[0; 2]; 2];
            for run in Store::<Run>::read(path.as_ref()).unwrap().lines {
                let output = run.watched.output.iter();
                let notes = output.flat_map(|output| notes(output, &run.watched));
                let impossible = |note: &String| note.contains(" the mean is ");
                named.extend(notes.filter(impossible));
                let case = cases.iter().find(|case| case.number == run.case).unwrap();
                let is_right = Verdict::judge(case, &run).is_right;
                right[usize::from(case.is_aside())][usize::from(run.beside)] +=
                    usize::from(is_right);
            }
            let parts = right.iter().flatten().zip(then.iter().flatten());
            assert!(
                parts.into_iter().all(|(now, then)| now >= then),
                "{file}: {right:?}"
            );
        }
        // Half of the runs of wrk, which alone adds latencies of requests that it did not send.
        assert_eq!(named.len(), 29, "{named:#?}");
        assert!(named.iter().all(|note| note.starts_with("wrk printed ")));
    }

    #[test]
    fn machine_is_right_beside_a_busy_loop_only() {
        let case = &cases().unwrap()[0];
        let mut run = Run {
            case: 1,
            beside: true,
            watched: Watched::default(),
        };
        assert!(!Verdict::judge(case, &run).is_right);
        run.watched = crate::validate::judge::truth::tests::run(0, 100.0, 0.5, 0.5).watched;
        run.watched.machine.stolen_s.fill(0.05);
        assert!(Verdict::judge(case, &run).is_right);
        run.beside = false;
        assert!(!Verdict::judge(case, &run).is_right);
    }
}
