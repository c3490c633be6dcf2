//! The list of what jostled must reach: lab/trials/reference/services.tsv.

use super::cells::Load;
use crate::peers::table::Figure::{Batch, Bytes, Rate, ServerCpu};
use crate::peers::table::{Cell, Claim, Trial, ratio};
use crate::validate::Required::{AtLeast, AtMost, Nothing};
use crate::validate::columns;

/// Every trial, in the order in which they run.
pub(in crate::peers) fn all() -> Vec<Trial> {
    let lines = columns(include_str!("../../../reference/services.tsv"));
    let trials = lines.map(|[name, title, work, rows, claims]| Trial {
        name: name.to_owned(),
        title: title.to_owned(),
        cells: rows.split("; ").map(|row| cell(row, work)).collect(),
        claims: claims.split("; ").flat_map(claims_of).collect(),
    });
    trials.collect()
}

fn cell(row: &'static str, work: &'static str) -> Cell {
    let (name, load) = row.split_once(": ").unwrap_or((row, ""));
    let load = Load::read(load, work);
    Cell::new(name, move |ground| load.run(ground))
}

fn claims_of(text: &str) -> Vec<Claim> {
    let number = |text: &str| text.parse::<f64>().expect("a number of the table");
    let index = |text: &str| text.parse::<usize>().expect("a row of the trial");
    let (what, bound) = match (text.split_once(" >= "), text.split_once(" <= ")) {
        (Some((what, least)), _) => (what, AtLeast(number(least))),
        (_, Some((what, most))) => (what, AtMost(number(most))),
        _ => (text, Nothing),
    };
    let (figure, rows) = what.rsplit_once(' ').expect("a figure of a row");
    if let Some(pair) = figure.strip_prefix("faster ") {
        let (row, than) = pair.split_once('/').expect("two rows");
        let ([row, than], by) = ([row, than].map(index), AtLeast(number(rows)));
        return vec![ratio(Rate, row, than, by), ratio(ServerCpu, than, row, by)];
    }
    let (row, by) = rows
        .split_once('/')
        .map_or((rows, None), |(row, by)| (row, Some(by)));
    vec![Claim {
        figure: match figure {
            "rate" => Rate,
            "server CPU" => ServerCpu,
            "batch" => Batch,
            _ => Bytes,
        },
        row: index(row),
        by: by.map(index),
        required: bound,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trial_has_a_name_of_its_own_and_claims_about_rows_that_it_has() {
        let trials = all();
        for (at, trial) in trials.iter().enumerate() {
            let rows = trial.cells.len();
            assert!(!trial.claims.is_empty(), "{}", trial.name);
            for claim in &trial.claims {
                assert!(claim.row < rows && claim.by.is_none_or(|by| by < rows));
            }
            assert!(
                trials[at + 1..]
                    .iter()
                    .all(|other| other.name != trial.name)
            );
        }
    }
}
