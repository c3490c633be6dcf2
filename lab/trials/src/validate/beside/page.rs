//! The tables of a series, as they stand in its page, and what is required of it.

use super::Session;
use super::judge::{self, Figure, Missed, Outcome, Trial};
use super::margin::{Margin, margin};
use crate::validate::{Required, Row};
use jostle_model::record::Status;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Trials that claim a figure, and sittings, without which it is not tested.
const TRIALS: usize = 200;
const SITTINGS: usize = 3;
/// The upper limit of what plants miss beyond controls is below this.
const MORE: f64 = 0.05;
/// Trials without a figure, of the first series' share.
const WITHOUT: f64 = 124.0 / 224.0;
/// Clean points that are VALID.
const VALID: f64 = 0.84;
/// So many trials of each cell are counted for the two shares.
const EACH_CELL: usize = 2;
/// Trials that may be discarded.
const DISCARDED: f64 = 0.20;

/// A figure over all trials.
struct Tested {
    figure: Figure,
    claimed: Vec<Missed>,
    flagged: usize,
    nothing: usize,
    discarded: usize,
    margin: Option<Margin>,
    is_tested: bool,
}

fn tested(sessions: &[Session], trials: &[Trial]) -> Vec<Tested> {
    let sittings = sessions.iter().filter_map(|session| session.sitting);
    let sittings = sittings.collect::<BTreeSet<u32>>().len();
    let each = Figure::ALL.into_iter().enumerate();
    each.map(|(nth, figure)| {
        let outcomes = || trials.iter().map(move |trial| trial.outcomes[nth]);
        let count = |wanted| outcomes().filter(|outcome| *outcome == wanted).count();
        let claimed = outcomes().filter_map(|outcome| match outcome {
            Outcome::Claimed(missed) => Some(missed),
            _ => None,
        });
        let claimed: Vec<Missed> = claimed.collect();
        let more: Vec<f64> = claimed.iter().map(|missed| missed.more()).collect();
        Tested {
            figure,
            flagged: count(Outcome::Flagged),
            nothing: count(Outcome::Nothing),
            discarded: count(Outcome::Discarded),
            margin: margin(&more),
            is_tested: claimed.len() >= TRIALS && sittings >= SITTINGS,
            claimed,
        }
    })
    .collect()
}

/// By figure, and by plant.
pub(super) fn tables(sessions: &[Session], trials: &[Trial]) -> String {
    let mut text = String::from(
        "| figure | claimed | SUSPECT | nothing printed | discarded | missed beside plants | \
         missed in controls | more (upper limit) | |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for of in tested(sessions, trials) {
        let mean = |share: fn(&Missed) -> f64| {
            let sum: f64 = of.claimed.iter().map(share).sum();
            match of.claimed.len() {
                0 => "-".to_owned(),
                count => format!("{} %", points(sum / count as f64)),
            }
        };
        let (more, upper) = of.margin.map_or_else(
            || ("-".to_owned(), "-".to_owned()),
            |margin| (points(margin.mean), points(margin.upper)),
        );
        let verdict = match of.margin {
            _ if !of.is_tested => "not tested",
            Some(margin) if margin.upper < MORE => "holds",
            _ => "does not hold",
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {more} ({upper}) | {verdict} |",
            of.figure.name(),
            of.claimed.len(),
            of.flagged,
            of.nothing,
            of.discarded,
            mean(|missed| missed.beside),
            mean(|missed| missed.control),
        );
    }
    text += "\n| beside | trials | expected | VALID | SUSPECT | INVALID | throughput claimed | \
             missed |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- |\n";
    let plants: BTreeSet<&str> = trials.iter().map(|trial| trial.plant.as_str()).collect();
    for plant in plants {
        let of_it: Vec<&Trial> = trials.iter().filter(|trial| trial.plant == plant).collect();
        let count = |is: &dyn Fn(&Trial) -> bool| of_it.iter().filter(|trial| is(trial)).count();
        let [valid, suspect, invalid] = [Status::Valid, Status::Suspect, Status::Invalid]
            .map(|is| count(&|trial| trial.is == is));
        let claimed = count(&|trial| matches!(trial.outcomes[0], Outcome::Claimed(_)));
        let missed = count(
            &|trial| matches!(trial.outcomes[0], Outcome::Claimed(missed) if missed.beside > 0.5),
        );
        let expected = of_it[0].expected.map(|expected| format!("{expected:?}"));
        let _ = writeln!(
            text,
            "| {plant} | {} | {} | {valid} | {suspect} | {invalid} | {claimed} | {missed} |",
            of_it.len(),
            expected.unwrap_or_default().to_uppercase(),
        );
    }
    text
}

fn points(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

/// The requirements.
pub(super) fn rows(sessions: &[Session], trials: &[Trial]) -> Vec<Row> {
    let figures = tested(sessions, trials);
    // Later trials leave out cells that claim nothing.
    let mut seen = BTreeMap::<(&str, &str), usize>::new();
    let early = trials.iter().filter(|trial| {
        let nth = seen.entry((&trial.plant, &trial.line)).or_default();
        *nth += 1;
        *nth <= EACH_CELL
    });
    let early: Vec<Outcome> = early.map(|trial| trial.outcomes[0]).collect();
    let count = |is: Outcome| early.iter().filter(|outcome| **outcome == is).count();
    let [nothing, discarded] = [Outcome::Nothing, Outcome::Discarded].map(count);
    let of_tested: Vec<&Tested> = figures.iter().filter(|of| of.is_tested).collect();
    let fails = |of: &&&Tested| of.margin.is_none_or(|margin| margin.upper >= MORE);
    let failing = of_tested.iter().filter(fails).count();
    let untested = figures.len() - of_tested.len();
    let [clean, valid] = judge::clean(sessions);
    rows! {
        "figures tested: 5 points more missed than in controls":
            failing; of of_tested.len(); Required::AtMost(0.0),
        "figures not tested": untested; of figures.len(); Required::Nothing,
        "trials without a throughput":
            nothing; of early.len() - discarded; Required::AtMost(WITHOUT),
        "clean points VALID": valid; of clean; Required::AtLeast(VALID),
        "discarded": discarded; of early.len(); Required::AtMost(DISCARDED),
    }
}
