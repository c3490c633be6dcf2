//! An open loop in the formats for people: the columns of `rate`, and its ledger.

use crate::ResultSet;
use crate::columns::{Column, HALF_INTERVAL, TARGET, UNDISTURBED, always, cpu, figure, throughput};
use crate::format::{grouped, percent, time};
use jostle_model::plan::Workload;
use jostle_model::record::Run;
use jostle_stats::figures;
use jostle_stats::open_loop::{self, Response};
use jostle_stats::summary::PointSummary;

/// The columns of `rate`.
pub(crate) static COLUMNS: &[Column] = &[
    TARGET,
    always(["offered", "/s"], |point| point.at.rate.map(grouped)),
    throughput(["done", "/s"]),
    HALF_INTERVAL,
    UNDISTURBED,
    figure(["", "answered"], |point| {
        Some(percent(open_loop::share_done(&point.runs)?))
    })
    .rank(1),
    figure(["response", "p50"], |point| response(point, "p50")).rank(1),
    figure(["", "p99"], |point| response(point, "p99")).rank(1),
    figure(["queued", "p99"], |point| {
        p99(&point.timed, "target_lag_ns")
    })
    .rank(3),
    figure(["service", "p99"], |point| p99(&point.timed, "service_ns")).detail(),
    // It is what made a point INVALID.
    always(["sender", "late p99"], |point| {
        p99(&point.runs, "generator_lag_ns")
    })
    .detail(),
    cpu(["CPU us", "/req"]),
];

fn p99(runs: &[&Run], of: &str) -> Option<String> {
    open_loop::percentile(runs, of, "p99").map(time)
}

fn response(point: &PointSummary<'_>, name: &str) -> Option<String> {
    let Response { ns, at_least } = open_loop::response(&point.timed, name)?;
    Some(match at_least {
        true => format!(">{}", time(ns)),
        false => time(ns),
    })
}

/// Whether these points are of requests that came at a rate.
pub(crate) fn are(points: &[PointSummary<'_>]) -> bool {
    points.iter().any(|point| point.workload == Workload::Rate)
}

/// The ledger of all runs together, and whether each adds up.
pub(crate) fn checked(set: &ResultSet) -> Vec<String> {
    let runs: Vec<&Run> = set.runs.iter().collect();
    let Some(all) = open_loop::ledger(&runs) else {
        return Vec::new();
    };
    let with = |run: &&&Run| run.open_loop.is_some();
    let adds_up = |run: &&&Run| run.open_loop.as_ref().is_some_and(|open| open.adds_up());
    let count = runs.iter().filter(with).count();
    let exact = runs.iter().filter(adds_up).count();
    let agree = match (count, exact) {
        (1, 1) => "it adds up".to_owned(),
        (count, exact) if count == exact => format!("each of {count} runs adds up"),
        (count, exact) => format!("{} of {count} runs do not add up", count - exact),
    };
    let mut said = vec![format!(
        "Ledger: {} planned = {} done + {} failed + {} dropped + {} in flight; {agree}.",
        grouped(all.planned),
        grouped(all.done),
        grouped(all.failed),
        grouped(all.dropped),
        grouped(all.in_flight),
    )];
    if all.dropped_at_end > 0 {
        let waited = match all.dropped_at_end == all.dropped {
            true => "All".to_owned(),
            false => format!("{} of the", grouped(all.dropped_at_end)),
        };
        said.push(format!(
            "{waited} dropped requests were still waiting to be sent when their window closed."
        ));
    }
    said.extend(
        open_loop::percentile(&runs, "canary_lag_ns", "p99").map(|late| {
            format!(
                "A control process, which only sleeps, woke up {} late (p99).",
                time(late)
            )
        }),
    );
    said
}

/// For gnuplot: what the columns of [`line`] are.
pub(crate) const GNUPLOT_HEADER: &str =
    "rate/s done/s of_plan response_p50_s response_p99_s service_p99_s sent_late_p99_s";

/// One line of figures in plain numbers; what was not measured, or is only known
/// to lie above, is `nan`.
pub(crate) fn line(point: &PointSummary<'_>) -> String {
    let seconds = |ns: Option<f64>| ns.map_or("nan".to_owned(), |ns| format!("{:.3e}", ns / 1e9));
    let response = |name| {
        let found = open_loop::response(&point.timed, name);
        found.filter(|r| !r.at_least).map(|r| r.ns)
    };
    let service = open_loop::percentile(&point.timed, "service_ns", "p99");
    let late = open_loop::generator_lag_p99(&point.runs);
    format!(
        "{} {:.1} {:.4} {} {} {} {}\n",
        point.at.rate.unwrap_or(0),
        point.median(figures::THROUGHPUT).unwrap_or(f64::NAN),
        open_loop::share_done(&point.runs).unwrap_or(f64::NAN),
        seconds(response("p50")),
        seconds(response("p99")),
        seconds(service),
        seconds(late),
    )
}
