//! `cargo xtask validate judge-idle`: the five generators that tool/docs/judge.md names first, on
//! an idle machine, twenty runs each. Does `jostle judge` ever name a limit that is none?
//!
//! The truth is measured beside: each side in turn gets a quota of four fifths of a CPU. Where the
//! printed rate then falls by a tenth or more, that side is a limit; both may be. Where neither is,
//! the path is. Any other limit is wrong. Runs that another program disturbed are made again, or
//! left out.

use super::truth::is_spoilt;
use super::{RUN_S, Run, amount, generators, pilot, run, set_up};
use crate::validate::chain::Link;
use crate::validate::plants::{Plant, Planted};
use crate::validate::sides::Side;
use crate::validate::{Required, Row, Series};
use jostle_model::judged::Limit;
use jostle_stats::intervals::median;
use jostle_stats::judge::find;
use std::time::Instant;

/// Runs of each generator that are judged, and how often each quota is set.
const RUNS: usize = 20;
const QUOTAS: usize = 8;

/// How often a run is made until no other program disturbs it.
const TRIES: u32 = 3;

/// Per cent of a CPU that the quota takes, and the share of the rate that a limit loses by it.
const TAKEN: u32 = 20;
const LOSES: f64 = 0.1;

const SIDES: [(Side, Limit); 2] = [
    (Side::Generator, Limit::Generator),
    (Side::Server, Limit::Server),
];

/// Runs the generators that the file has not, as far as time allows, and reports.
pub(in crate::validate) fn rows(series: &Series) -> anyhow::Result<Vec<Row>> {
    let (mut store, until) = series.collect.begin::<Run>()?;
    if Instant::now() >= until {
        return Ok(report(&store.lines));
    }
    let mut missing = generators(series)?;
    missing.retain(|generator| {
        let mut known = store.lines.iter();
        known.all(|run| run.link.kind != generator.name)
    });
    let bench = set_up(series, &missing)?;
    for generator in missing {
        let per_s = pilot(&bench, generator, RUN_S)?;
        let quotas = SIDES.map(|(side, _)| Some(side)).repeat(QUOTAS);
        let turns = [None; RUNS].into_iter().chain(quotas);
        for (at, side) in (0..).zip(turns) {
            if Instant::now() >= until {
                return Ok(report(&store.lines));
            }
            let link = Link {
                session: 1,
                at,
                kind: generator.name.to_owned(),
                planted: side.map(|side| Planted {
                    side,
                    plant: Plant::Quota,
                    dose: TAKEN,
                }),
            };
            let amount = amount(per_s * link.planted.map_or(1.0, Planted::left), RUN_S);
            // The quota is a share of a CPU, whatever the side used before.
            let run = || run(&bench, generator, amount, link.clone(), [1.0; 2]);
            let mut ran = run()?;
            for _ in 1..TRIES {
                if side.is_none() && is_spoilt(&ran.watched, None) {
                    ran = run()?;
                }
            }
            store.add(ran)?;
        }
    }
    Ok(report(&store.lines))
}

fn report(runs: &[Run]) -> Vec<Row> {
    let groups = runs.chunk_by(|one, other| one.link.kind == other.link.kind);
    groups.map(row).collect()
}

/// The row of one generator.
fn row(runs: &[Run]) -> Row {
    let alone = || runs.iter().filter(|run| run.link.planted.is_none());
    let idle = alone().filter(|run| !is_spoilt(&run.watched, None));
    let idle: Vec<&Run> = idle.collect();
    let rate = |runs: &mut dyn Iterator<Item = &Run>| {
        let rates: Vec<f64> = runs.map(|run| run.per_s).collect();
        median(&rates).unwrap_or(0.0)
    };
    let usual = rate(&mut idle.iter().copied());
    let is_limit = |side: Side| {
        let is_held = |run: &&Run| run.link.planted.is_some_and(|planted| planted.side == side);
        rate(&mut runs.iter().filter(is_held)) <= (1.0 - LOSES) * usual
    };
    let found = SIDES.into_iter().filter(|(side, _)| is_limit(*side));
    let mut truth: Vec<Limit> = found.map(|(_, limit)| limit).collect();
    if truth.is_empty() {
        truth.push(Limit::Path);
    }
    let limits = || idle.iter().map(|run| find(&run.watched).limit);
    let undecided = limits().filter(|limit| *limit == Limit::Undecided).count();
    let names: Vec<&str> = truth.iter().map(|limit| limit.name()).collect();
    Row::counting(
        format!("{}: wrong limit", runs[0].link.kind),
        limits(),
        |limit| *limit != Limit::Undecided && !truth.contains(limit),
        Required::AtMostOf {
            most: 0,
            of: RUNS as u64,
        },
    )
    .noting(format!(
        "it is {}; {undecided} undecided, {} disturbed",
        names.join(" or "),
        alone().count() - idle.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::judge::truth::tests::run;
    use crate::validate::store::Store;

    /// Two runs with these busy shares, and one with a quota for each side.
    fn runs(busy: [[f64; 2]; 2], rates: [f64; 2]) -> Vec<Run> {
        let alone = busy.map(|[generator, server]| run(0, 100.0, generator, server));
        let held = SIDES.iter().zip(rates).map(|((side, _), per_s)| {
            let mut held = run(1, per_s, 0.5, 0.5);
            held.link.planted.as_mut().unwrap().side = *side;
            held
        });
        alone.into_iter().chain(held).collect()
    }

    #[test]
    fn recorded_runs_name_no_wrong_limit() {
        let record = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../record/validate-judge-idle.jsonl"
        );
        let rows = report(&Store::<Run>::read(record.as_ref()).unwrap().lines);
        assert_eq!(rows.len(), 5);
        for row in rows {
            assert_eq!((row.count, row.trials), (0, 20), "{}", row.what);
        }
    }

    #[test]
    fn a_limit_is_wrong_if_its_side_has_cpu_time_to_spare() {
        let wrong = |busy, rates| {
            let row = &report(&runs(busy, rates))[0];
            (row.count, row.trials)
        };
        let [both, none] = [[[0.95, 0.5], [0.5, 0.95]], [[0.5, 0.5], [0.8, 0.8]]];
        // The generator loses a fifth by its quota, the server nothing.
        assert_eq!(wrong(both, [80.0, 99.0]), (1, 2));
        assert_eq!(wrong(both, [80.0, 82.0]), (0, 2));
        // One that is undecided is not wrong.
        assert_eq!(wrong(none, [99.0, 98.0]), (0, 2));
        assert_eq!(wrong(none, [80.0, 98.0]), (1, 2));
    }

    #[test]
    fn a_run_beside_another_program_is_left_out() {
        let mut runs = runs([[0.95, 0.5], [0.95, 0.5]], [80.0, 99.0]);
        runs[0].watched.machine.stolen_s.fill(0.05);
        assert_eq!(report(&runs)[0].trials, 1);
    }
}
