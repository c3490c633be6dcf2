//! The second block of `--format csv`: a row for each host of each run, which
//! `experiment`, `target`, the swept values and `run` join to the first.

use super::{SUMMARY, figure, line, or_empty};
use crate::ResultSet;
use jostle_model::hosts::HostPart;
use jostle_model::record::Point;

/// One host's part in one run.
struct Row<'a> {
    number: usize,
    point: &'a Point,
    part: &'a HostPart,
}

type Column = (&'static str, fn(&Row<'_>) -> String);

static COLUMNS: &[Column] = &[
    ("experiment", |row| row.number.to_string()),
    ("workload", |row| row.point.workload.clone()),
    ("target", |row| row.point.target.clone()),
    ("workers", |row| or_empty(row.point.at.workers)),
    ("operations_each", |row| or_empty(row.point.at.operations)),
    ("keys_held", |row| or_empty(row.point.at.keys)),
    ("open", |row| or_empty(row.point.at.open)),
    ("listeners", |row| or_empty(row.point.at.listeners)),
    ("sources", |row| or_empty(row.point.at.sources)),
    ("rate", |row| or_empty(row.point.at.rate)),
    ("generators", |row| or_empty(row.point.at.generators)),
    ("run", |row| row.point.run.to_string()),
    ("rank", |row| row.part.rank.to_string()),
    ("host", |row| row.part.host.clone()),
    ("host_verdict", |row| row.part.verdict.is.to_string()),
    ("host_checks", |row| {
        let reasons = row.part.verdict.reasons.iter();
        let names: Vec<&str> = reasons.map(|reason| reason.check.as_str()).collect();
        names.join(" ")
    }),
    ("clock_ahead_ns", |row| row.part.clock_ahead_ns.to_string()),
    ("clock_within_ns", |row| {
        row.part.clock_within_ns.to_string()
    }),
    ("late_ns", |row| row.part.late_ns.to_string()),
    ("host_workers", |row| row.part.workers.to_string()),
    ("host_operations", |row| row.part.operations.to_string()),
    ("host_throughput_per_s", |row| {
        row.part.throughput_per_s.to_string()
    }),
    ("host_cpu_s", |row| or_empty(row.part.cpu_s)),
    ("host_cpu_us_per_operation", |row| {
        or_empty(row.part.cpu_us_per_operation)
    }),
    ("busy_share", |row| or_empty(row.part.busy_share)),
    ("runqueue_share", |row| or_empty(row.part.runqueue_share)),
    ("generator_lag_ns_p99", |row| {
        or_empty(row.part.generator_lag_ns_p99)
    }),
    ("host_errors", |row| {
        row.part.errors.values().sum::<u64>().to_string()
    }),
    ("latency_of", |row| or_empty(row.part.latency_of.as_ref())),
    ("beyond_p99", |row| or_empty(row.part.beyond_p99)),
];

/// Nothing where no run has hosts.
pub fn block(sets: &[ResultSet]) -> String {
    let runs = sets.iter().zip(1..);
    let runs = runs.flat_map(|(set, number)| set.points.iter().map(move |point| (number, point)));
    let rows: String = runs
        .flat_map(|(number, point)| {
            let rows = point.hosts.iter();
            rows.map(move |part| {
                line(&cells(&Row {
                    number,
                    point,
                    part,
                }))
            })
        })
        .collect();
    match rows.is_empty() {
        true => rows,
        false => format!("\n{}{rows}", line(&header())),
    }
}

fn header() -> Vec<String> {
    let names = COLUMNS.iter().map(|(name, _)| (*name).to_owned());
    let summary = SUMMARY.map(|figure| format!("latency_ns_{figure}"));
    names.chain(summary).collect()
}

fn cells(row: &Row<'_>) -> Vec<String> {
    let cells = COLUMNS.iter().map(|(_, cell)| cell(row));
    let latency = row.part.latency_ns.as_ref();
    let summary = SUMMARY.map(|name| latency.map_or_else(String::new, |d| figure(d, name)));
    cells.chain(summary).collect()
}

#[cfg(test)]
mod tests {
    use crate::{csv, made};
    use std::collections::BTreeMap;

    #[test]
    fn a_row_for_each_host_of_each_run_follows_the_runs() {
        let text = csv::render(&[made::set(), made::hosts()]);
        let (runs, hosts) = text.split_once("\n\n").unwrap();
        assert_eq!(runs.lines().count(), 1 + 24 + 18);
        assert_eq!(hosts.lines().count(), 1 + 6 * (3 + 6 + 18));
        let names: Vec<&str> = hosts.lines().next().unwrap().split(',').collect();
        // The seventh host of the first run with 18: it has no comma.
        let row = hosts.lines().nth(1 + 3 + 6 + 6).unwrap().split(',');
        let row: BTreeMap<&str, &str> = names.iter().copied().zip(row).collect();
        for (name, cell) in [
            ("experiment", "2"),
            ("target", "lockd"),
            ("generators", "18"),
            ("run", "1"),
            ("rank", "6"),
            ("host", "h7"),
            ("host_verdict", "INVALID"),
            ("host_checks", "generator"),
            ("clock_ahead_ns", "1000000000006"),
            ("late_ns", "240000"),
            ("latency_of", "service_ns"),
            ("host_errors", "0"),
        ] {
            assert_eq!(row[name], cell, "{name}");
        }
        assert_eq!(row.len(), names.len());
        assert!(!csv::render(&[made::set()]).contains("\n\n"));
    }
}
