//! `--format csv`: one row for each point, for spreadsheets and data frames; with
//! `--tidy` one row for each point, run and figure.
//!
//! A column stands only where some row has something in it. A column's unit ends its name;
//! what was not measured is empty. The swept values come first, then the target, the
//! verdict with the checks that gave its reasons, and the figures. A figure is the median
//! over the runs that stand for the point, with the ends of its interval beside it
//! (`_low`, `_high`); counts are summed, extremes are those of all runs. Of an INVALID
//! point only evidence is printed: errors, violations, what other programs took.
//!
//! Quoting is RFC 4180's, lines end as Unix lines do. A text that begins as a formula does
//! (`=`, `+`, `-`, `@`) has an apostrophe before it. Histograms, series and columns with a
//! value for each worker are in `--format json` only.

mod figures;
mod hosts;
mod sheet;

use crate::ResultSet;
use figures::{Column, columns};
use jostle_model::Busy;
use jostle_model::hosts::HostPart;
use jostle_model::plan::Workload;
use jostle_model::record::{Run, Status, Verdict};
use jostle_model::swept::SWEPT;
use jostle_stats::checks::neighbours;
use jostle_stats::figures::Fold;
use jostle_stats::intervals::estimate;
use jostle_stats::summary::{OneBound, PointSummary, summarize};
use sheet::{Sheet, number, or_empty};

/// A column and what stands in it.
type Cell = (&'static str, String);

/// One row for each point.
pub(crate) fn render(sets: &[ResultSet]) -> String {
    let columns = columns(sets);
    let mut sheet = Sheet::new(["target", "workload", "verdict", "checks"]);
    for (at, set) in sets.iter().enumerate() {
        for point in summarize(&set.experiment, &set.runs) {
            sheet.row();
            sheet.add_all(&key(sets, at, &point));
            let runs = point.runs.len();
            sheet.add("runs", runs.to_string());
            let left_out = (point.spoilt > 0).then_some(point.spoilt);
            sheet.add("runs_left_out", or_empty(left_out));
            sheet.add(
                "interval",
                match runs {
                    0 | 1 => "",
                    runs if runs < 6 => "range",
                    _ => "95%",
                }
                .to_owned(),
            );
            bounds(&mut sheet, &point);
            for column in &columns {
                over_runs(&mut sheet, column, &point);
            }
        }
    }
    sheet.text()
}

/// The bounds of the figure, where other programs may have moved it.
fn bounds(sheet: &mut Sheet, point: &PointSummary<'_>) {
    let usable = point.is_usable();
    sheet.add(
        "throughput_from_share",
        or_empty(point.clean_share.map(number)),
    );
    let one = point.one_bound_per_s().filter(|_| !usable);
    let [least, most] = match one {
        Some(OneBound::AtLeast(per_s)) => [Some(per_s), None],
        Some(OneBound::AtMost(per_s)) => [None, Some(per_s)],
        None => [None, None],
    };
    for (end, value) in [("least", least), ("most", most)] {
        let name = format!("throughput_at_{end}_per_s");
        sheet.add(&name, or_empty(value.map(number)));
    }
    let harm = point.harm.filter(|_| usable);
    let figure = point.figure().map(|(_, estimate)| estimate.median);
    let ends = harm.zip(figure).map(|(harm, median)| match point.workload {
        // A time, and no rate.
        Workload::Connect => (median / harm.high, median / harm.low),
        _ => (median * harm.low, median * harm.high),
    });
    let (stem, unit) = match point.workload {
        Workload::Connect => ("connect_p50", "ns"),
        _ => ("throughput", "per_s"),
    };
    let [low, high] = [ends.map(|ends| ends.0), ends.map(|ends| ends.1)];
    for (end, value) in [("low", low), ("high", high)] {
        let value = value.filter(|value| value.is_finite());
        let name = format!("{stem}_undisturbed_{end}_{unit}");
        sheet.add(&name, or_empty(value.map(number)));
    }
}

/// A figure over the runs of a point.
fn over_runs(sheet: &mut Sheet, column: &Column, point: &PointSummary<'_>) {
    let usable = column.is_shown(point);
    let runs = column.runs(point);
    let each = runs.iter().filter(|_| usable);
    let fold = column.figure.fold;
    let values: Vec<f64> = match fold {
        Fold::OneRun => {
            let run = Run {
                per_worker: point.per_worker.filter(|_| usable),
                ..Run::default()
            };
            column.of(&run).into_iter().collect()
        }
        _ if runs.iter().any(|run| column.is_beyond(run)) => Vec::new(),
        _ => each.filter_map(|run| column.within(point, run)).collect(),
    };
    let found = estimate(&values);
    let whole = column.over_open_loop(point).filter(|_| usable);
    let value = match fold {
        _ if whole.is_some() => whole.flatten(),
        Fold::Sum => found.map(|_| values.iter().sum()),
        Fold::Least => values.iter().copied().reduce(f64::min),
        Fold::Most => values.iter().copied().reduce(f64::max),
        Fold::Interval | Fold::Middle | Fold::OneRun => found.map(|found| found.median),
    };
    sheet.add(&column.name(""), or_empty(value.map(number)));
    if fold == Fold::Interval {
        let all = whole.is_none() || value.is_some() && values.len() == runs.len();
        let several = found.filter(|found| found.runs > 1 && all);
        let low = several.map(|found| number(found.low));
        let high = several.map(|found| number(found.high));
        sheet.add(&column.name("low"), or_empty(low));
        sheet.add(&column.name("high"), or_empty(high));
    }
}

/// One row for each point, run and figure; where several hosts made a run, also one for
/// each of theirs.
pub fn tidy(sets: &[ResultSet]) -> String {
    let columns = columns(sets);
    let mut sheet = Sheet::new([
        "target",
        "workload",
        "verdict",
        "checks",
        "run",
        "run_verdict",
        "run_checks",
        "figure",
        "value",
        "unit",
    ]);
    for (at, set) in sets.iter().enumerate() {
        for point in summarize(&set.experiment, &set.runs) {
            let key = key(sets, at, &point);
            let of_point = |run: &&Run| run.target == point.target && run.at == point.at;
            for run in set.runs.iter().filter(of_point) {
                let cells = [key.clone(), of_run(&point, run)].concat();
                tidy_run(&mut sheet, &cells, &point, run, &columns);
            }
        }
    }
    sheet.text()
}

/// The run's number, and its values that are not the point's.
fn of_run(point: &PointSummary<'_>, run: &Run) -> Vec<Cell> {
    let left_out = !point.runs.iter().any(|other| std::ptr::eq(*other, run));
    vec![
        ("run", run.run.to_string()),
        ("block", run.block.to_string()),
        ("left_out", or_empty(left_out.then_some(true))),
        ("run_verdict", run.verdict.is.to_string()),
        ("run_checks", checks(&run.verdict)),
    ]
}

fn tidy_run(
    sheet: &mut Sheet,
    cells: &[Cell],
    point: &PointSummary<'_>,
    run: &Run,
    columns: &[Column],
) {
    let mut row = |of_host: Option<&HostPart>, name: &str, value, unit: &str| {
        sheet.row();
        sheet.add_all(cells);
        if let Some(part) = of_host {
            sheet.add("rank", part.rank.to_string());
            sheet.add("host", part.host.clone());
            sheet.add("host_verdict", part.verdict.is.to_string());
            sheet.add("host_checks", checks(&part.verdict));
        }
        sheet.add("figure", name.to_owned());
        sheet.add("value", number(value));
        sheet.add("unit", unit.to_owned());
    };
    let usable = point.is_usable() && !is_invalid(point, run);
    let shown = |column: &&Column| {
        let whole = !column.figure.over.is_undisturbed() || point.is_timed(run);
        column.is_evidence() || usable && column.is_shown(point) && whole
    };
    for column in columns.iter().filter(shown) {
        if let Some(value) = column.within(point, run) {
            row(None, &column.name(""), value, column.figure.unit);
        }
    }
    for part in &run.hosts {
        let usable = usable && !part.verdict.is_invalid();
        let figures = hosts::FIGURES.iter().filter(|_| usable);
        for (name, unit, of) in hosts::EVIDENCE.iter().chain(figures) {
            if let Some(value) = of(part).filter(|value| value.is_finite()) {
                row(Some(part), name, value, unit);
            }
        }
        let times = usable && point.times_are_usable() && point.is_timed(run);
        for (name, value) in hosts::latency(part).into_iter().filter(|_| times) {
            row(Some(part), &name, value, "ns");
        }
    }
}

/// Whether the figures of one run must not be used. Slices in which nothing else ran stand
/// for a run that others disturbed.
fn is_invalid(point: &PointSummary<'_>, run: &Run) -> bool {
    let by_others = |check: &str| check == neighbours::CHECK.name && point.clean_share.is_some();
    let reasons = run.verdict.reasons.iter();
    let mut invalid = reasons.filter(|reason| reason.is == Status::Invalid);
    invalid.any(|reason| !by_others(&reason.check))
}

/// The swept values, what was measured, where several results are overlaid which of them,
/// how, and the verdict.
fn key(sets: &[ResultSet], at: usize, point: &PointSummary<'_>) -> Vec<Cell> {
    let experiment = &sets[at].experiment;
    let swept = SWEPT.iter();
    let mut cells: Vec<Cell> = swept
        .map(|swept| (swept.csv, or_empty((swept.text)(&point.at))))
        .collect();
    cells.push(("target", point.target.to_owned()));
    cells.push(("workload", point.workload.to_string()));
    if sets.len() > 1 {
        cells.extend([
            ("file", or_empty(sets[at].file.as_ref())),
            ("experiment", (at + 1).to_string()),
            ("started_at", experiment.started_at.clone()),
            ("measured_on", experiment.environment.host.clone()),
            ("jostle", experiment.environment.jostle.clone()),
        ]);
    }
    let (plan, run) = (&experiment.plan, point.runs.first());
    let verdict = &point.verdict;
    let limit = point.limited_by();
    let limit = limit.map(|limit| format!("{limit:?}").to_lowercase());
    cells.extend([
        ("placement", or_empty(run.map(|run| &run.placement))),
        ("names", or_empty(run.and_then(|run| run.names.as_ref()))),
        ("hold_asked_ns", or_empty(plan.hold.map(nanos))),
        ("idle_asked_ns", or_empty(plan.idle.map(nanos))),
        ("pipeline", or_empty(plan.pipeline)),
        ("verdict", verdict.is.to_string()),
        ("checks", checks(verdict)),
        ("limited_by", or_empty(limit)),
    ]);
    cells
}

/// Negative where it spins, as on the command line.
fn nanos(time: Busy) -> i128 {
    match time {
        Busy::Sleep(span) => i128::from(span.0),
        Busy::Spin(span) => -i128::from(span.0),
    }
}

fn checks(verdict: &Verdict) -> String {
    let reasons = verdict.reasons.iter();
    let names: Vec<&str> = reasons.map(|reason| reason.check.as_str()).collect();
    names.join(" ")
}

#[cfg(test)]
mod tests;
