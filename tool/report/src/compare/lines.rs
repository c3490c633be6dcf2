//! A comparison for programs: JSON Lines, described in tool/docs/compare.md.

use super::Comparison;
use jostle_model::record::{At, Interval};
use jostle_stats::comparison::Compared;
use serde::Serialize;

#[derive(Serialize)]
#[serde(tag = "record", rename_all = "lowercase")]
enum Line<'a> {
    Comparison {
        base: &'a str,
        new: &'a str,
        threshold: f64,
        paired: bool,
        #[serde(skip_serializing_if = "<[String]>::is_empty")]
        differences: &'a [String],
        #[serde(skip_serializing_if = "<[String]>::is_empty")]
        only: &'a [String],
    },
    Compared {
        experiment: usize,
        target: &'a str,
        new_target: &'a str,
        at: &'a At,
        figure: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        base: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        new: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        ratio: Option<Interval>,
        runs: [usize; 2],
        #[serde(skip_serializing_if = "Option::is_none")]
        floor: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        machine: Option<[f64; 2]>,
        said: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        why: Option<&'a str>,
    },
    End {
        exit: u8,
    },
}

/// A head, a line for each figure, and the exit code.
pub(super) fn render(comparison: &Comparison) -> String {
    let head = Line::Comparison {
        base: &comparison.base,
        new: &comparison.new,
        threshold: comparison.within,
        paired: comparison.paired,
        differences: &comparison.context,
        only: &comparison.only,
    };
    let end = Line::End {
        exit: comparison.exit_code(),
    };
    std::iter::once(head)
        .chain(comparison.rows.iter().map(row))
        .chain([end])
        .filter_map(|line| Some(serde_json::to_string(&line).ok()? + "\n"))
        .collect()
}

fn row((experiment, row): &(usize, Compared)) -> Line<'_> {
    let ratio = row.ratio_told().filter(|ratio| ratio.interval);
    Line::Compared {
        experiment: *experiment,
        target: &row.base_target,
        new_target: &row.new_target,
        at: &row.at,
        figure: row.figure.compared_name(),
        // What must not be used must not stand where it could be copied.
        base: Some(row.base).filter(|_| !row.invalid),
        new: Some(row.new).filter(|_| !row.invalid),
        ratio: ratio.map(|ratio| Interval {
            estimate: ratio.ratio,
            low: ratio.low,
            high: ratio.high,
        }),
        runs: row.runs,
        floor: row.floor.filter(|_| !row.invalid),
        machine: row.machine,
        said: row.said.name(),
        why: row.why.as_deref(),
    }
}
