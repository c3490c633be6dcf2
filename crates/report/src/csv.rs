//! `--format csv`: one row for each run, for spreadsheets and data frames.
//!
//! The header is the same for every result; a column's unit stands in its name;
//! what was not measured is empty. Quoting is RFC 4180's, lines end as Unix
//! lines do. Histograms, series and columns with a value for each worker are in
//! `--format json` only. `verdict`, `checks` and `figure` are those of the run's point, as
//! in the table; `run_verdict` and `run_checks` judge the run alone. A text that begins as
//! a formula does (`=`, `+`, `-`, `@`) has an apostrophe before it. Where runs were made by
//! several hosts, an empty line, a
//! second header and a row for each host of each run follow.

mod hosts;

use crate::ResultSet;
use jostle_model::connect::Connections;
use jostle_model::open_loop::OpenLoop;
use jostle_model::record::{
    Accounts, Distribution, Exclusion, Experiment, Figure, Judged, PerWorker, Point, Recovery,
    Spread, Verdict,
};
use jostle_stats::summary::{PointSummary, summarize};
use std::borrow::Cow;
use std::fmt::Display;

/// One run, and the experiment that it belongs to.
struct Row<'a> {
    /// From 1, in the order of the files.
    number: usize,
    experiment: &'a Experiment,
    point: &'a Point,
    /// The point that the run belongs to.
    judged: &'a Judged,
}

struct Column {
    name: &'static str,
    cell: fn(&Row<'_>) -> String,
}

const fn column(name: &'static str, cell: fn(&Row<'_>) -> String) -> Column {
    Column { name, cell }
}

static COLUMNS: &[Column] = &[
    column("experiment", |row| row.number.to_string()),
    column("started_at", |row| row.experiment.started_at.clone()),
    column("host", |row| row.experiment.environment.host.clone()),
    column("jostle", |row| row.experiment.environment.jostle.clone()),
    column("workload", |row| row.point.workload.clone()),
    column("target", |row| row.point.target.clone()),
    column("workers", |row| or_empty(row.point.at.workers)),
    column("operations_each", |row| or_empty(row.point.at.operations)),
    column("keys_held", |row| or_empty(row.point.at.keys)),
    column("open", |row| or_empty(row.point.at.open)),
    column("listeners", |row| or_empty(row.point.at.listeners)),
    column("sources", |row| or_empty(row.point.at.sources)),
    column("rate", |row| or_empty(row.point.at.rate)),
    column("generators", |row| or_empty(row.point.at.generators)),
    column("names", |row| or_empty(row.point.names.as_ref())),
    column("pipeline", |row| or_empty(row.experiment.plan.pipeline)),
    column("run", |row| row.point.run.to_string()),
    column("block", |row| row.point.block.to_string()),
    column("hold", |row| or_empty(row.experiment.plan.hold)),
    column("idle", |row| or_empty(row.experiment.plan.idle)),
    column("placement", |row| row.point.placement.clone()),
    column("verdict", |row| row.judged.verdict.is.to_string()),
    column("checks", |row| checks(&row.judged.verdict)),
    column("figure", |row| of_figure(row, |figure| figure.of.clone())),
    column("figure_median", |row| {
        of_figure(row, |figure| figure.median)
    }),
    column("figure_low", |row| of_figure(row, |figure| figure.low)),
    column("figure_high", |row| of_figure(row, |figure| figure.high)),
    column("run_verdict", |row| row.point.verdict.is.to_string()),
    column("run_checks", |row| checks(&row.point.verdict)),
    column("window_s", |row| row.point.window_s.to_string()),
    column("warmup_s", |row| row.point.warmup_s.to_string()),
    column("ramp_s", |row| row.point.ramp_s.to_string()),
    column("drain_s", |row| row.point.drain_s.to_string()),
    column("start_spread_ns", |row| {
        row.point.start_spread_ns.to_string()
    }),
    column("operations", |row| row.point.operations.to_string()),
    column("throughput_per_s", |row| {
        row.point.throughput_per_s.to_string()
    }),
    column("ceiling_per_s", |row| or_empty(row.point.ceiling_per_s)),
    column("of_ideal", |row| or_empty(row.point.of_ideal)),
    column("cpu_s", |row| or_empty(row.point.cpu_s)),
    column("cpu_user_s", |row| or_empty(row.point.cpu_user_s)),
    column("cpu_system_s", |row| or_empty(row.point.cpu_system_s)),
    column("server_cpu_us_per_operation", |row| {
        or_empty(
            row.point
                .server
                .and_then(|server| server.cpu_us_per_operation),
        )
    }),
    column("server_counted", |row| {
        or_empty(row.point.server.and_then(|server| server.counted))
    }),
    column("server_difference", |row| {
        or_empty(row.point.server.and_then(|server| server.difference))
    }),
    column("server_bytes_per_held_lock", |row| {
        or_empty(
            row.point
                .server
                .and_then(|server| server.bytes_per_held_lock),
        )
    }),
    column("acquire_phase_s", |row| or_empty(row.point.acquire_phase_s)),
    column("release_phase_s", |row| or_empty(row.point.release_phase_s)),
    column("generator_busy_share", |row| {
        or_empty(row.point.generators.first().map(|g| g.busy_share))
    }),
    column("cpu_us_per_operation", |row| {
        or_empty(row.point.cpu_us_per_operation)
    }),
    column("context_switches", |row| {
        or_empty(row.point.context_switches)
    }),
    column("runqueue_wait_s", |row| or_empty(row.point.runqueue_wait_s)),
    column("steal_share", |row| or_empty(row.point.machine.steal_share)),
    column("spoilt", |row| row.point.spoilt.to_string()),
    column("server_cpu_s", |row| of_accounts(row, |a| a.server_s)),
    column("others_cpu_s", |row| of_accounts(row, |a| a.others_s)),
    column("unexplained_cpu_s", |row| {
        of_accounts(row, |a| a.unexplained_s)
    }),
    column("waited_s", |row| of_accounts(row, |a| a.waited_s)),
    column("stolen_s", |row| of_accounts(row, |a| a.stolen_s)),
    column("throttled_periods", |row| {
        or_empty(row.point.machine.throttled_periods)
    }),
    column("per_worker_min", |row| of_workers(row, |s| Some(s.min))),
    column("per_worker_max", |row| of_workers(row, |s| Some(s.max))),
    column("per_worker_mean", |row| of_workers(row, |s| Some(s.mean))),
    column("per_worker_stddev", |row| {
        of_workers(row, |s| Some(s.stddev))
    }),
    column("per_worker_none", |row| of_workers(row, |s| Some(s.none))),
    column("jain", |row| of_workers(row, |s| Some(s.jain))),
    column("dispersion", |row| of_workers(row, |s| Some(s.dispersion))),
    column("top_half_share", |row| {
        of_workers(row, |s| Some(s.top_half_share))
    }),
    column("rotations", |row| of_workers(row, |s| Some(s.rotations))),
    column("longest_wait_ns", |row| {
        of_workers(row, |s| s.longest_wait_ns)
    }),
    column("longest_streak", |row| {
        of_workers(row, |s| s.longest_streak)
    }),
    column("longest_streak_while_waited", |row| {
        of_workers(row, |s| s.longest_streak_while_waited)
    }),
    column("blocked_share", |row| or_empty(row.point.blocked_share)),
    column("stamp_every", |row| or_empty(row.point.stamp_every)),
    column("stamped", |row| or_empty(row.point.stamped)),
    column("censored", |row| {
        or_empty(row.point.acquire_ns.as_ref().map(|w| w.censored))
    }),
    column("timeouts", |row| or_empty(row.point.timeouts)),
    column("exclusion_checked", |row| of_witness(row, |e| e.checked)),
    column("exclusion_violations", |row| {
        of_witness(row, |e| e.violations)
    }),
    column("exclusion_holder_died", |row| {
        of_witness(row, |e| e.holder_died)
    }),
    column("exclusion_lost_updates", |row| {
        of_witness(row, |e| e.lost_updates)
    }),
    column("opened", |row| of_connections(row, |c| Some(c.opened))),
    column("total_s", |row| of_connections(row, |c| Some(c.total_s))),
    column("client_own_bytes_each", |row| {
        of_connections(row, |c| c.client.own_bytes_each)
    }),
    column("server_own_bytes_each", |row| {
        of_connections(row, |c| c.server.as_ref()?.own_bytes_each)
    }),
    column("server_cpu_user_s", |row| {
        of_connections(row, |c| c.server.as_ref()?.cpu_user_s)
    }),
    column("server_cpu_system_s", |row| {
        of_connections(row, |c| c.server.as_ref()?.cpu_system_s)
    }),
    column("slab_bytes_each", |row| {
        of_connections(row, |c| c.slab_bytes_each)
    }),
    column("time_wait_left", |row| {
        of_connections(row, |c| c.time_wait_left)
    }),
    column("planned", |row| of_plan(row, |o| o.planned)),
    column("done", |row| of_plan(row, |o| o.done)),
    column("failed", |row| of_plan(row, |o| o.failed)),
    column("dropped", |row| of_plan(row, |o| o.dropped)),
    column("in_flight_at_end", |row| of_plan(row, |o| o.in_flight)),
    column("dropped_with_slot", |row| {
        of_plan(row, |o| o.dropped_with_slot)
    }),
    column("dropped_at_end", |row| of_plan(row, |o| o.dropped_at_end)),
    column("in_flight", |row| of_spread(row, |s| Some(s.in_flight))),
    column("effective", |row| of_spread(row, |s| Some(s.effective))),
    column("at_server", |row| of_spread(row, |s| s.at_server)),
    column("budgets_disjoint", |row| of_spread(row, |s| s.disjoint)),
    column("generators_busiest_share", |row| {
        let shares = row.point.generators.iter().map(|g| g.busy_share);
        or_empty(
            shares
                .reduce(f64::max)
                .filter(|_| row.point.spread.is_some()),
        )
    }),
    column("generators_still_share", |row| {
        let generators = row.point.generators.iter();
        let shares = generators.filter_map(|g| Some(g.process?.still_share));
        or_empty(shares.reduce(f64::max))
    }),
    column("limited_by", |row| {
        let limit = row.point.verdict.limited_by;
        or_empty(limit.map(|limit| format!("{limit:?}").to_lowercase()))
    }),
    column("children_user_s", |row| or_empty(row.point.children_user_s)),
    column("children_system_s", |row| {
        or_empty(row.point.children_system_s)
    }),
    column("null", |row| {
        or_empty(row.point.null.as_ref().map(|null| &null.target))
    }),
    column("null_cpu_us_per_operation", |row| {
        or_empty(row.point.null.as_ref().map(|n| n.cpu_us_per_operation))
    }),
    column("errors", |row| {
        row.point.errors.values().sum::<u64>().to_string()
    }),
    column("deaths", |row| row.point.deaths.len().to_string()),
    column("spun_s", |row| or_empty(row.point.spun_s)),
    column("idle_mean_ns", |row| or_empty(row.point.idle_mean_ns)),
    column("fault", |row| or_empty(row.point.at.fault)),
    column("waiters", |row| of_recovery(row, |r| Some(r.waiters))),
    column("lease_ns", |row| of_recovery(row, |r| r.lease_ns)),
    column("next_grant_ns", |row| of_recovery(row, |r| r.next_grant_ns)),
    column("after_release_ns", |row| {
        of_recovery(row, |r| r.after_release_ns)
    }),
    column("after_lease_ns", |row| {
        of_recovery(row, |r| r.after_lease_ns)
    }),
    column("after_return_ns", |row| {
        of_recovery(row, |r| r.after_return_ns)
    }),
    column("two_believed_ns", |row| {
        of_recovery(row, |r| r.two_believed_ns)
    }),
    column("two_ran_ns", |row| of_recovery(row, |r| r.two_ran_ns)),
    column("told", |row| of_recovery(row, |r| r.told)),
    column("write_refused", |row| of_recovery(row, |r| r.write_refused)),
    column("in_order", |row| of_recovery(row, |r| r.in_order)),
    column("served", |row| of_recovery(row, |r| Some(r.served))),
];

fn of_connections<T: Display>(row: &Row<'_>, figure: impl Fn(&Connections) -> Option<T>) -> String {
    let connections = row.point.connections.as_deref();
    connections.map_or_else(String::new, |c| or_empty(figure(c)))
}

fn of_recovery<T: Display>(row: &Row<'_>, figure: fn(&Recovery) -> Option<T>) -> String {
    let recovery = row.point.recovery.as_deref();
    or_empty(recovery.and_then(figure))
}

fn of_plan(row: &Row<'_>, figure: fn(&OpenLoop) -> u64) -> String {
    or_empty(row.point.open_loop.as_deref().map(figure))
}

fn of_spread<T: Display>(row: &Row<'_>, figure: impl Fn(&Spread) -> Option<T>) -> String {
    let spread = row.point.spread.as_deref();
    spread.map_or_else(String::new, |spread| or_empty(figure(spread)))
}

/// By name; each has the columns of [`SUMMARY`].
type Find = fn(&Point) -> Option<&Distribution>;

static DISTRIBUTIONS: &[(&str, Find)] = &[
    ("acquire_ns", |point| {
        let waits = point.acquire_ns.as_ref().map(|waits| &waits.granted);
        waits.or_else(|| phase(point, "acquire"))
    }),
    ("hold_ns", |point| point.hold_ns.as_ref()),
    ("handoff_ns", |point| point.handoff_ns.as_ref()),
    ("handoff_same_cpu_ns", |point| {
        point.handoff_same_cpu_ns.as_ref()
    }),
    ("handoff_cross_cpu_ns", |point| {
        point.handoff_cross_cpu_ns.as_ref()
    }),
    ("release_ns", |point| {
        point
            .release_ns
            .as_ref()
            .or_else(|| phase(point, "release"))
    }),
    ("batch_ns", |point| point.batch_ns.as_ref()),
    ("release_batch_ns", |point| point.release_batch_ns.as_ref()),
    ("failed_try_ns", |point| point.failed_try_ns.as_ref()),
    ("connect_ns", |point| {
        point
            .connect_ns
            .as_ref()
            .or_else(|| phase(point, "connect"))
    }),
    ("connect_even_ns", |point| point.connect_even_ns.as_ref()),
    ("connect_odd_ns", |point| point.connect_odd_ns.as_ref()),
    ("bind_ns", |point| {
        point.bind_ns.as_ref().or_else(|| phase(point, "bind"))
    }),
    ("response_ns", |point| {
        let spread = point.spread.as_ref().and_then(|s| s.response_ns.as_ref());
        point
            .response_ns
            .as_ref()
            .or(spread.map(|waits| &waits.granted))
    }),
    ("accept_ns", |point| point.accept_ns.as_ref()),
    ("close_ns", |point| point.close_ns.as_ref()),
    ("server_close_ns", |point| point.server_close_ns.as_ref()),
    ("generator_lag_ns", |point| {
        point.open_loop.as_ref()?.generator_lag_ns.as_ref()
    }),
    ("target_lag_ns", |point| {
        point.open_loop.as_ref()?.target_lag_ns.as_ref()
    }),
    ("canary_lag_ns", |point| {
        point.open_loop.as_ref()?.canary_lag_ns.as_ref()
    }),
    ("service_ns", |point| point.service_ns.as_ref()),
    ("failed_ns", |point| point.failed_ns.as_ref()),
    ("spawn_ns", |point| phase(point, "spawn")),
    ("run_ns", |point| phase(point, "run")),
    ("reap_ns", |point| phase(point, "reap")),
    ("tls_ns", |point| phase(point, "tls")),
    ("search_ns", |point| phase(point, "search")),
    ("unbind_ns", |point| phase(point, "unbind")),
    ("request_ns", |point| phase(point, "request")),
    ("body_ns", |point| phase(point, "body")),
    ("send_ns", |point| phase(point, "send")),
    ("reply_ns", |point| phase(point, "reply")),
    ("null_service_ns", |point| {
        point.null.as_ref().map(|null| &null.service_ns)
    }),
];

/// A part of requests. Where the column's name means something else of other
/// workloads, no run has both.
fn phase<'a>(point: &'a Point, name: &str) -> Option<&'a Distribution> {
    let mut phases = point.phases.iter();
    phases.find(|p| p.phase == name).map(|p| &p.span)
}

const SUMMARY: [&str; 8] = ["count", "min", "mean", "p50", "p90", "p99", "p999", "max"];

/// Percentiles with the attempts that had not ended accounted for; empty where
/// the data only bound them from below.
const KAPLAN_MEIER: [&str; 4] = ["p50", "p90", "p99", "p999"];

/// The header and one row for each run.
pub fn render(sets: &[ResultSet]) -> String {
    let mut text = line(&header());
    for (at, set) in sets.iter().enumerate() {
        let summaries = summarize(&set.experiment, &set.points);
        let judged: Vec<Judged> = summaries.iter().map(PointSummary::judged).collect();
        for point in &set.points {
            let of_run = |judged: &&Judged| judged.target == point.target && judged.at == point.at;
            let judged = judged.iter().find(of_run);
            text += &line(&cells(&Row {
                number: at + 1,
                experiment: &set.experiment,
                point,
                judged: judged.unwrap_or(&Judged::default()),
            }));
        }
    }
    text + &hosts::block(sets)
}

fn header() -> Vec<String> {
    let mut names: Vec<String> = COLUMNS
        .iter()
        .map(|column| column.name.to_owned())
        .collect();
    for (name, _) in DISTRIBUTIONS {
        names.extend(SUMMARY.map(|figure| format!("{name}_{figure}")));
    }
    names.extend(KAPLAN_MEIER.map(|percentile| format!("acquire_ns_kaplan_meier_{percentile}")));
    names
}

fn cells(row: &Row<'_>) -> Vec<String> {
    let mut cells: Vec<String> = COLUMNS.iter().map(|column| (column.cell)(row)).collect();
    for (_, find) in DISTRIBUTIONS {
        let found = find(row.point);
        cells.extend(SUMMARY.map(|name| found.map_or_else(String::new, |d| figure(d, name))));
    }
    let waits = row.point.acquire_ns.as_ref();
    cells.extend(KAPLAN_MEIER.map(|name| or_empty(waits.and_then(|w| w.kaplan_meier.get(name)))));
    cells
}

/// Of no value at all, the extremes and the mean mean nothing.
fn figure(distribution: &Distribution, name: &str) -> String {
    let some = distribution.count > 0;
    match name {
        "count" => distribution.count.to_string(),
        "min" => or_empty(some.then_some(distribution.min)),
        "mean" => or_empty(some.then_some(distribution.mean)),
        "max" => or_empty(some.then_some(distribution.max)),
        percentile => or_empty(distribution.percentiles.get(percentile)),
    }
}

fn checks(verdict: &Verdict) -> String {
    let reasons = verdict.reasons.iter();
    reasons
        .map(|reason| reason.check.as_str())
        .collect::<Vec<_>>()
        .join(" ")
}

fn of_figure<T: Display>(row: &Row<'_>, part: fn(&Figure) -> T) -> String {
    or_empty(row.judged.figure.as_ref().map(part))
}

fn of_accounts(row: &Row<'_>, figure: fn(&Accounts) -> Option<f64>) -> String {
    or_empty(row.point.accounts.as_deref().and_then(figure))
}

fn of_workers<T: Display>(row: &Row<'_>, figure: fn(&PerWorker) -> Option<T>) -> String {
    or_empty(row.point.per_worker.as_ref().and_then(figure))
}

fn of_witness(row: &Row<'_>, figure: fn(&Exclusion) -> u64) -> String {
    or_empty(row.point.exclusion.as_ref().map(figure))
}

fn or_empty<T: Display>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn line(cells: &[String]) -> String {
    let quoted: Vec<String> = cells.iter().map(|cell| quoted(cell)).collect();
    quoted.join(",") + "\n"
}

/// RFC 4180, section 2, rules 5 to 7. A text that a spreadsheet would take for a
/// formula gets an apostrophe before it, which spreadsheets take for "this is text":
/// else the name of a target could run commands on the desk of whoever opens the file.
fn quoted(cell: &str) -> String {
    let text = cell.parse::<f64>().is_err();
    let formula = text && cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let cell = match formula {
        true => Cow::Owned(format!("'{cell}")),
        false => Cow::Borrowed(cell),
    };
    match cell.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;
    use jostle_model::record::Phase;
    use std::collections::{BTreeMap, BTreeSet};

    /// Of made-up results, in which nothing is quoted.
    fn rows(sets: &[ResultSet]) -> Vec<BTreeMap<String, String>> {
        let text = render(sets);
        let names: Vec<&str> = text.lines().next().unwrap().split(',').collect();
        let row = |line: &str| {
            let cells: Vec<&str> = line.split(',').collect();
            assert_eq!(cells.len(), names.len());
            let pairs = names.iter().zip(cells);
            pairs
                .map(|(name, cell)| (name.to_string(), cell.to_owned()))
                .collect()
        };
        text.lines().skip(1).map(row).collect()
    }

    #[test]
    fn no_cell_is_a_formula_and_numbers_stay_numbers() {
        let table = [
            ("=1+1", "'=1+1"),
            ("=cmd|' /C calc'!A0,x", "\"'=cmd|' /C calc'!A0,x\""),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("+exec", "'+exec"),
            ("-250us", "'-250us"), // a hold that spins
            ("\t=1", "'\t=1"),
            ("-250", "-250"),
            ("+1.5e-3", "+1.5e-3"),
            ("flock", "flock"),
            ("", ""),
        ];
        for (cell, expected) in table {
            assert_eq!(quoted(cell), expected);
        }
        let mut set = made::set();
        set.points[0].target = "=HYPERLINK(A1)".to_owned();
        assert!(render(&[set]).contains(",'=HYPERLINK(A1),"));
    }

    #[test]
    fn every_run_is_a_row() {
        let rows = rows(&[made::set(), made::counts_only()]);
        assert_eq!(rows.len(), 24 + 2);
        let expected = [
            ("experiment", "1"),
            ("target", "flock"),
            ("workers", "1000"),
            ("run", "1"),
            ("hold", "1ms"),
            ("verdict", "SUSPECT"),
            ("checks", "rotations"),
            ("window_s", "5"),
            ("operations", "4000"),
            ("throughput_per_s", "946.89"),
            ("per_worker_none", "100"),
            ("longest_wait_ns", "4987000000"),
            ("acquire_ns_max", "4987000000"),
            ("acquire_ns_kaplan_meier_p50", "1246750000"),
            ("acquire_ns_kaplan_meier_p99", ""),
            ("hold_ns_p50", "1001000"),
            ("hold_ns_p90", ""),
            ("exclusion_checked", "4000"),
            ("errors", "0"),
        ];
        for (name, cell) in expected {
            assert_eq!(rows[1][name], cell, "{name}");
        }
        let counts = &rows[24];
        assert_eq!(counts["experiment"], "2");
        for absent in [
            "of_ideal",
            "acquire_ns_count",
            "exclusion_checked",
            "longest_wait_ns",
        ] {
            assert_eq!(counts[absent], "", "{absent}");
        }
    }

    #[test]
    fn the_phases_of_requests_have_columns() {
        let mut set = made::set();
        let names = [
            "connect", "tls", "bind", "search", "unbind", "request", "body",
        ];
        let phases = names.iter().enumerate().map(|(nth, name)| Phase {
            phase: (*name).to_owned(),
            span: Distribution {
                count: 10,
                mean: nth as f64 + 0.5,
                ..Distribution::default()
            },
        });
        let point = &mut set.points[0];
        point.phases = phases.collect();
        point.acquire_ns = None;
        point.release_ns = None;
        let rows = rows(&[set]);
        for (nth, name) in names.iter().enumerate() {
            assert_eq!(
                rows[0][&format!("{name}_ns_mean")],
                format!("{nth}.5"),
                "{name}"
            );
            assert_eq!(rows[1][&format!("{name}_ns_mean")], "", "{name}");
        }
        assert_eq!(rows[0]["acquire_ns_count"], "");
    }

    #[test]
    fn the_header_is_always_the_same_and_names_no_column_twice() {
        let header = |sets: &[ResultSet]| render(sets).lines().next().unwrap().to_owned();
        assert_eq!(header(&[]), header(&[made::set()]));
        let all = super::header();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn commas_quotes_and_line_breaks_are_quoted() {
        for (cell, text) in [
            ("flock:/mnt/a b", "flock:/mnt/a b"),
            ("flock:/mnt/a,b", "\"flock:/mnt/a,b\""),
            ("a \"b\"", "\"a \"\"b\"\"\""),
            ("two\nlines", "\"two\nlines\""),
        ] {
            assert_eq!(quoted(cell), text);
        }
    }
}
