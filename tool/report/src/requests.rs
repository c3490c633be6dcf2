//! Requests in the formats for people: the columns of the table, and the accounts
//! of time and CPU below it.

use crate::ResultSet;
use crate::columns::{
    Column, HALF_INTERVAL, TARGET, UNDISTURBED, WORKERS, always, cpu, figure, median, server_cpu,
    three, throughput,
};
use crate::format::{counted, grouped, percent, significant};
use crate::grid::{Heading, Titled};
use crate::names::{WIDEST, shortened};
use jostle_model::record::{Run, Status};
use jostle_stats::figures;
use jostle_stats::requested::{is_resolved, noun};
use jostle_stats::summary::PointSummary;
use std::collections::BTreeMap;

/// Whether it is requests that were measured.
pub(crate) fn are(points: &[PointSummary<'_>]) -> bool {
    points.iter().any(|point| point.requests.is_some())
}

/// A phase's title stands for its name, which [`title`] knows.
const PHASES: [&str; 6] = [
    "phase 0", "phase 1", "phase 2", "phase 3", "phase 4", "phase 5",
];

/// Printed in place of a difference that is not significant.
const UNRESOLVED: &str = "unresolved";

const RATE: &str = "requests/s";

pub(crate) static COLUMNS: &[Column] = &[
    TARGET,
    WORKERS,
    always(["", "n"], |point| point.at.operations.map(grouped)),
    always(["", "failed"], |point| {
        let failed = point.requests.as_ref()?.failed;
        (failed > 0).then(|| grouped(failed))
    })
    .rank(1),
    throughput(["", RATE]),
    HALF_INTERVAL,
    UNDISTURBED,
    median(["mean", "us"], figures::SERVICE, micros).rank(1),
    median(["", "p99 us"], figures::SERVICE_P99, micros).rank(2),
    figure([PHASES[0], "us"], phase::<0>).rank(6),
    figure([PHASES[1], "us"], phase::<1>).rank(6),
    figure([PHASES[2], "us"], phase::<2>).rank(6),
    figure([PHASES[3], "us"], phase::<3>).rank(6),
    figure([PHASES[4], "us"], phase::<4>).rank(6),
    figure([PHASES[5], "us"], phase::<5>).rank(6),
    figure(["less", "null us"], |point| {
        let net = point.of(figures::NET)?;
        Some(match is_resolved(&net) {
            true => micros(net.median),
            false => UNRESOLVED.to_owned(),
        })
    })
    .rank(3),
    cpu(["CPU", "us"]),
    server_cpu(["server", "us"]),
];

/// Points, each with its target's name, which is empty behind another point of that target.
pub(crate) fn named_once<'p, 'a>(
    points: impl IntoIterator<Item = &'p PointSummary<'a>>,
) -> impl Iterator<Item = (&'a str, &'p PointSummary<'a>)>
where
    'a: 'p,
{
    let mut before = None;
    points.into_iter().map(move |point| {
        let is_first = before.replace(point.target) != Some(point.target);
        (if is_first { point.target } else { "" }, point)
    })
}

/// Commands and addresses may be as long as they like. What was shortened already, and told from
/// another by a number, stays as it is.
pub(crate) fn short(target: &str) -> String {
    const NUMBER: usize = 3;
    match target.chars().count() > WIDEST + NUMBER {
        true => shortened(target, WIDEST),
        false => target.to_owned(),
    }
}

fn micros(nanos: f64) -> String {
    three(nanos / 1e3)
}

fn phase<const N: usize>(point: &PointSummary<'_>) -> Option<String> {
    let (_, ns) = point.requests.as_ref()?.phases_ns.get(N)?;
    Some(micros(ns.median))
}

/// A title of [`COLUMNS`] as it is printed above these points.
pub(crate) fn title(typed: &'static str, points: &[PointSummary<'_>]) -> String {
    if typed == RATE {
        let calls = points.iter().all(|point| point.target.starts_with("exec:"));
        return if calls { "calls/s" } else { RATE }.to_owned();
    }
    let Some(nth) = PHASES.iter().position(|phase| *phase == typed) else {
        return typed.to_owned();
    };
    let all = points.iter().filter_map(|point| point.requests.as_ref());
    let longest = all.max_by_key(|requests| requests.phases_ns.len());
    let name = longest.and_then(|requests| requests.phases_ns.get(nth));
    name.map_or_else(String::new, |(name, _)| name.clone())
}

/// The heading above the accounts.
const ACCOUNTS: &str = "Seconds of the median run, from the first request to the last answer and \
                            with its start and end; CPU of the workers (usr, sys) and of what they \
                            started (cusr, csys):";

/// Wall time and CPU of the median run of each point; None of locks.
pub(crate) fn accounts(points: &[PointSummary<'_>]) -> Option<Titled> {
    // If requests come at a rate, the plan says how long a run is.
    if !are(points) || crate::rate::are(points) {
        return None;
    }
    let mut columns = vec![Heading::left("target").key()];
    let titles = [
        "workers", "calls", "wall", "whole", "usr", "+ sys", "+ cusr", "+ csys", "= CPU", "calls/s",
    ];
    columns.extend(titles.map(|lower| Heading::right("", lower)));
    columns.push(Heading::right("average", "us"));
    let mut rows = Vec::new();
    for (name, point) in named_once(points) {
        let Some(run) = point.median_run_by(|run| run.window.window_s) else {
            continue;
        };
        let mut row = vec![short(name)];
        row.push(run.at.workers.map_or("-".to_owned(), |n| n.to_string()));
        row.push(grouped(run.operations));
        row.extend(match point.verdict.is {
            Status::Invalid => vec!["-".to_owned(); columns.len() - row.len()],
            _ => account(run),
        });
        rows.push(row);
    }
    Some(Titled::new(ACCOUNTS, columns, rows).detail())
}

fn account(run: &Run) -> Vec<String> {
    let whole = run.window.ramp_s + run.window.warmup_s + run.window.window_s + run.window.drain_s;
    let cpu = [
        run.cpu.cpu_user_s,
        run.cpu.cpu_system_s,
        run.cpu.children_user_s,
        run.cpu.children_system_s,
    ];
    let seconds = |value: f64| format!("{value:.3}");
    let mut row = vec![seconds(run.window.window_s), seconds(whole)];
    row.extend(cpu.map(|part| part.map_or("-".to_owned(), seconds)));
    row.push(seconds(cpu.iter().flatten().sum()));
    row.push(significant(run.throughput_per_s, 3));
    let average_us = run.window.window_s * 1e6 / run.operations.max(1) as f64;
    row.push(significant(average_us, 3));
    row
}

/// How requests were answered.
pub(crate) fn checked(set: &ResultSet) -> Vec<String> {
    let mut codes = BTreeMap::<&str, u64>::new();
    for (code, count) in set.runs.iter().flat_map(|run| &run.codes) {
        *codes.entry(code).or_default() += count;
    }
    let runs = set.runs.iter();
    let failed = runs.filter_map(|run| run.times.failed_ns.as_ref());
    let failed: u64 = failed.map(|failed| failed.count).sum();
    let made = failed + set.runs.iter().map(|run| run.operations).sum::<u64>();
    let each = codes.iter().map(|(code, count)| {
        // Others are names of signals.
        let is_code = code.starts_with(|first: char| first.is_ascii_digit());
        let kind = if is_code { "code " } else { "" };
        format!("{kind}{code}: {}", grouped(*count))
    });
    let each: Vec<String> = each.collect();
    let share = match failed {
        0 => "all as expected".to_owned(),
        n => format!("{} not as expected", percent(n as f64 / made.max(1) as f64)),
    };
    let noun = noun(&set.experiment.plan);
    // Codes are counted from the first request to the last, the others within the windows.
    let (within, outside) = match codes.values().sum::<u64>() > made {
        true => (" within the windows", "including those outside, "),
        false => ("", ""),
    };
    let answered = match each.is_empty() {
        true => "none answered".to_owned(),
        false => format!("{outside}{}", each.join(", ")),
    };
    let made = counted(made, noun);
    let mut said = vec![format!("{made}{within}: {share} ({answered}).")];
    said.extend(null(set));
    said
}

/// The sentence about the null requests, which are measured beside the runs.
fn null(set: &ResultSet) -> Option<String> {
    let nulls = || set.runs.iter().filter_map(|run| run.null.as_ref());
    let target = &nulls().next()?.target;
    let calls: u64 = nulls().map(|null| null.service_ns.count).sum();
    Some(format!(
        "Beside the runs {} of {target}, which does nothing.",
        counted(calls, noun(&set.experiment.plan))
    ))
}

#[cfg(test)]
mod tests {
    use crate::{made, table};

    #[test]
    fn calls_are_told_by_their_parts_and_accounted_for() {
        insta::assert_snapshot!(table::render(&[made::calls()]));
    }

    #[test]
    fn an_invalid_point_shows_how_many_failed_and_no_figure() {
        let mut set = made::calls();
        for run in set.runs.iter_mut().filter(|p| p.at.operations == Some(100)) {
            run.around.errors.insert("code 3".to_owned(), 100);
            run.codes = [("3".to_owned(), 100)].into();
            run.times.failed_ns = run.times.service_ns.take();
            run.operations = 0;
            run.phases.clear();
        }
        insta::assert_snapshot!(table::render(&[set]));
    }
}
