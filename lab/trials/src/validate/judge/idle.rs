//! `cargo xtask validate judge-idle`: the five generators that tool/docs/judge.md names first, on
//! an idle machine, twenty runs each. Does `jostle judge` ever name a limit that is none?
//!
//! The truth is measured beside: each side in turn gets a quota of four fifths of a CPU. Where the
//! printed rate then falls by a tenth or more, that side is a limit; both may be. Where neither is,
//! the path is. Any other limit is wrong. Runs that another program disturbed are left out.

use super::bench::Usual;
use super::generators::Generator;
use super::plants::{Plant, Planted, Side};
use super::truth::is_spoilt;
use super::{Run, Wanted, amount, line, pilot};
use crate::validate::store::Store;
use crate::validate::{Required, Row};
use jostle_model::judged::Limit;
use jostle_stats::intervals::median;
use jostle_stats::judge::find;
use std::time::{Duration, Instant};

/// Runs of each generator that are judged.
const RUNS: u32 = 20;

/// After every so many of them each side gets its quota once.
const EVERY: u32 = 10;

/// Per cent of a CPU that the quota takes, and the share of the rate that a limit loses by it.
const TAKEN: u32 = 20;
const LOSES: f64 = 0.1;

/// Runs what is missing, as far as time allows, and reports.
pub(in crate::validate) fn rows(wanted: &Wanted<'_>) -> anyhow::Result<Vec<Row>> {
    if let Some(path) = wanted.judge {
        return Ok(report(&Store::read(path)?.lines));
    }
    let mut store: Store<Run> = Store::open(wanted.save)?;
    let until = Instant::now() + Duration::from_secs(wanted.seconds);
    let has = |of: &Generator| store.lines.iter().any(|run| run.generator == of.name());
    let mut missing = wanted.generators()?;
    missing.retain(|generator| !has(generator));
    if missing.is_empty() || wanted.seconds == 0 {
        return Ok(report(&store.lines));
    }
    let bench = wanted.bench(&missing)?;
    for generator in missing {
        let per_s = pilot(&bench, generator, wanted.run_s())?;
        let session = store.lines.last().map_or(1, |run| run.session + 1);
        for (at, side) in (0..).zip(turns()) {
            if Instant::now() >= until {
                return Ok(report(&store.lines));
            }
            let planted = side.map(|side| Planted {
                side,
                plant: Plant::Quota,
                dose: TAKEN,
            });
            // The quota is a share of a CPU, whatever the side used before.
            let usual = Usual {
                per_s,
                generator: 1.0,
                server: 1.0,
            };
            let left = planted.map_or(1.0, Planted::left);
            let amount = amount(per_s * left, wanted.run_s());
            let ran = bench.run(generator, amount, planted.map(|planted| (planted, usual)))?;
            store.add(line(session, at, generator, planted, ran))?;
        }
    }
    Ok(report(&store.lines))
}

/// The order of a generator's runs: the side that has a quota in each.
fn turns() -> impl Iterator<Item = Option<Side>> {
    let quotas = [Some(Side::Generator), Some(Side::Server)];
    (0..RUNS / EVERY).flat_map(move |_| (0..EVERY).map(|_| None).chain(quotas))
}

fn report(runs: &[Run]) -> Vec<Row> {
    let mut names: Vec<&str> = runs.iter().map(|run| &*run.generator).collect();
    names.dedup();
    names
        .into_iter()
        .flat_map(|name| {
            let of_it = runs.iter().filter(|run| run.generator == name);
            of(name, &of_it.collect::<Vec<_>>())
        })
        .collect()
}

/// The rows of one generator.
fn of(name: &str, runs: &[&Run]) -> [Row; 2] {
    let alone = || runs.iter().filter(|run| run.planted.is_none());
    let idle: Vec<&&Run> = alone()
        .filter(|run| !is_spoilt(&run.watched, run.hog))
        .collect();
    let rates: Vec<f64> = idle.iter().map(|run| run.per_s).collect();
    let usual = median(&rates).unwrap_or(0.0);
    let is_limit = |side: Side| {
        let held = runs
            .iter()
            .filter(|run| run.planted.is_some_and(|of| of.side == side));
        let rates: Vec<f64> = held.map(|run| run.per_s).collect();
        median(&rates).is_some_and(|held| held <= (1.0 - LOSES) * usual)
    };
    let sides = [
        (Side::Generator, Limit::Generator),
        (Side::Server, Limit::Server),
    ];
    let found = sides.into_iter().filter(|(side, _)| is_limit(*side));
    let mut truth: Vec<Limit> = found.map(|(_, limit)| limit).collect();
    if truth.is_empty() {
        truth.push(Limit::Path);
    }
    let limits: Vec<Limit> = idle.iter().map(|run| find(&run.watched).limit).collect();
    let count =
        |is: &dyn Fn(&Limit) -> bool| limits.iter().filter(|limit| is(limit)).count() as u64;
    let named = |all: &[Limit]| {
        all.iter()
            .map(|limit| limit.name())
            .collect::<Vec<_>>()
            .join(" or ")
    };
    let row = |what: &str, count: u64, required, note: String| Row {
        what: format!("{name}: {what}"),
        count,
        trials: limits.len() as u64,
        required,
        note,
    };
    let is_undecided = |limit: &Limit| *limit == Limit::Undecided;
    let wrong = count(&|limit| !truth.contains(limit) && !is_undecided(limit));
    let left_out = alone().count() - idle.len();
    [
        row(
            "wrong limit",
            wrong,
            Required::AtMost(0.0),
            format!("it is {}; {left_out} runs were disturbed", named(&truth)),
        ),
        row(
            "undecided",
            count(&is_undecided),
            Required::Nothing,
            String::new(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::judge::truth::tests::run;

    /// Two runs left alone with these busy shares, and one with a quota for each side.
    fn rows_of(busy: [[f64; 2]; 2], rates: [f64; 2]) -> [(u64, u64); 2] {
        let alone = busy.map(|[generator, server]| run(0, 100.0, generator, server));
        let held = [(Side::Generator, rates[0]), (Side::Server, rates[1])].map(|(side, per_s)| {
            let mut held = run(1, per_s, 0.5, 0.5);
            held.planted.as_mut().unwrap().side = side;
            held
        });
        let runs: Vec<Run> = alone.into_iter().chain(held).collect();
        let rows = report(&runs);
        [0, 1].map(|at| (rows[at].count, rows[at].trials))
    }

    #[test]
    fn a_limit_is_wrong_if_its_side_has_cpu_time_to_spare() {
        let both = [[0.95, 0.5], [0.5, 0.95]];
        // The generator loses a fifth by its quota, the server nothing.
        assert_eq!(rows_of(both, [80.0, 99.0]), [(1, 2), (0, 2)]);
        assert_eq!(rows_of(both, [80.0, 82.0]), [(0, 2), (0, 2)]);
        assert_eq!(
            rows_of([[0.5, 0.5], [0.8, 0.8]], [99.0, 98.0]),
            [(0, 2), (1, 2)]
        );
        assert_eq!(
            rows_of([[0.5, 0.5], [0.8, 0.8]], [80.0, 98.0]),
            [(1, 2), (1, 2)]
        );
    }

    #[test]
    fn a_run_beside_another_program_is_left_out() {
        let mut runs = vec![run(0, 100.0, 0.95, 0.5)];
        runs[0].watched.machine.stolen_s.fill(0.05);
        assert_eq!(report(&runs)[0].trials, 0);
    }

    #[test]
    fn each_generator_has_twenty_runs_and_two_quotas_for_each_side() {
        let turns: Vec<Option<Side>> = turns().collect();
        assert_eq!(turns.iter().filter(|turn| turn.is_none()).count(), 20);
        assert_eq!(turns.len(), 24);
    }
}
