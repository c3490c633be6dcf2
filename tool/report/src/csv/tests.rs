//! The contents of each column, of made-up results.

use super::*;
use crate::made;
use jostle_model::record::{Distribution, Phase};
use std::collections::BTreeMap;

type Row = BTreeMap<String, String>;

fn rows(text: &str) -> Vec<Row> {
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    reader.deserialize().map(Result::unwrap).collect()
}

fn header(text: &str) -> Vec<&str> {
    text.lines().next().unwrap().split(',').collect()
}

fn expect(row: &Row, cells: &[(&str, &str)]) {
    for (name, cell) in cells {
        assert_eq!(row.get(*name).map(String::as_str), Some(*cell), "{name}");
    }
}

#[test]
fn every_point_is_a_row_with_its_figures_and_their_intervals() {
    let text = render(&[made::set()]);
    let rows = rows(&text);
    assert_eq!(rows.len(), 4);
    assert_eq!(header(&text)[..3], ["workers", "target", "workload"]);
    expect(
        &rows[1],
        &[
            ("workers", "1000"),
            ("target", "flock"),
            ("workload", "contend"),
            ("hold_asked_ns", "1000000"),
            ("verdict", "SUSPECT"),
            ("checks", "rotations"),
            ("runs", "6"),
            ("interval", "95%"),
            ("operations", "24000"),
            ("window_s", "5"),
            ("per_worker_none", "100"),
            ("longest_wait_ns", "4987000000"),
            ("granted_wait_max_ns", "4987000000"),
            ("wait_p50_ns", "1246750000"),
            ("exclusion_checked", "24000"),
            ("errors", "0"),
        ],
    );
    let of = |name: &str| rows[1][name].parse::<f64>().unwrap();
    assert!(of("throughput_low_per_s") < of("throughput_per_s"));
    assert!(of("throughput_per_s") < of("throughput_high_per_s"));
}

#[test]
fn only_columns_that_hold_something_stand_and_none_twice() {
    let text = render(&[made::counts_only()]);
    let names = header(&text);
    // One run has no interval, counts have no waits, and one result needs no label.
    for absent in [
        "throughput_low_per_s",
        "interval",
        "wait_p50_ns",
        "file",
        "open",
    ] {
        assert!(!names.contains(&absent), "{absent}");
    }
    let rows = rows(&text);
    for name in &names {
        let held = rows.iter().any(|row| !row[*name].is_empty());
        assert!(held || *name == "checks", "{name}");
    }
    for set in made::EACH.map(|made| made()) {
        for text in [render(std::slice::from_ref(&set)), tidy(&[set])] {
            let names = header(&text);
            let once: std::collections::BTreeSet<_> = names.iter().collect();
            assert_eq!(once.len(), names.len());
        }
    }
    assert_eq!(render(&[]), "target,workload,verdict,checks\n");
}

#[test]
fn of_an_invalid_point_only_evidence_is_printed() {
    let (wide, long) = (render(&[made::broken()]), tidy(&[made::broken()]));
    let rows = rows(&wide);
    expect(
        &rows[0],
        &[
            ("verdict", "INVALID"),
            ("checks", "exclusion"),
            ("exclusion_violations", "6"),
        ],
    );
    for gone in [
        "throughput_per_s",
        "wait_p50_ns",
        "cpu_us_per_operation",
        "operations",
    ] {
        assert!(!header(&wide).contains(&gone), "{gone}");
        assert!(!long.contains(gone), "{gone}");
    }
    assert!(long.contains("exclusion_violations"));
}

/// The table once took the time in which a lock was free over undisturbed runs, and this form
/// over all.
#[test]
fn a_figure_is_taken_over_the_runs_that_the_table_of_figures_names() {
    let set = made::set();
    let mut point = jostle_stats::summary::summarize(&set.experiment, &set.runs).remove(0);
    point.timed.truncate(1);
    let columns = figures::columns(std::slice::from_ref(&set));
    for (name, runs) in [("free_share", 1), ("blocked_share", point.runs.len())] {
        let column = columns.iter().find(|column| column.name("") == name);
        assert_eq!(column.unwrap().runs(&point).len(), runs, "{name}");
    }
}

#[test]
fn results_that_are_overlaid_say_which_they_are() {
    let mut read = made::set();
    read.file = Some("old.jsonl".to_owned());
    let rows = rows(&render(&[read, made::counts_only()]));
    expect(
        &rows[0],
        &[
            ("file", "old.jsonl"),
            ("experiment", "1"),
            ("measured_on", "reef"),
        ],
    );
    expect(rows.last().unwrap(), &[("file", ""), ("experiment", "2")]);
}

#[test]
fn the_phases_answers_and_errors_of_requests_have_columns_of_their_names() {
    let mut set = made::set();
    let run = &mut set.runs[0];
    run.phases = vec![Phase {
        phase: "tls".to_owned(),
        span: Distribution {
            count: 10,
            mean: 2.5,
            ..Distribution::default()
        },
    }];
    run.codes = [("200".to_owned(), 7)].into();
    let (target, at) = (run.target.clone(), run.at);
    set.runs[1].around.errors = [("ETIMEDOUT".to_owned(), 2)].into();
    let rows = rows(&tidy(&[set]));
    let of = |figure: &'static str| rows.iter().filter(move |row| row["figure"] == figure);
    let failed = of("errors_ETIMEDOUT").next();
    expect(failed.unwrap(), &[("value", "2"), ("unit", "")]);
    for (figure, value, unit) in [("phase_tls_mean_ns", "2.5", "ns"), ("answers_200", "7", "")] {
        let mut found = of(figure);
        let workers = at.workers.unwrap().to_string();
        expect(
            found.next().unwrap(),
            &[
                ("target", &target),
                ("workers", &workers),
                ("value", value),
                ("unit", unit),
            ],
        );
        assert!(found.next().is_none());
    }
}

#[test]
fn the_long_form_has_a_row_for_each_point_run_and_figure() {
    let rows = rows(&tidy(&[made::set()]));
    let of = |row: &&Row| row["figure"] == "throughput_per_s";
    assert_eq!(rows.iter().filter(of).count(), 24);
    let mut rates = rows.iter().filter(of);
    let first = rates.find(|row| row["workers"] == "1000");
    expect(
        first.unwrap(),
        &[
            ("target", "flock"),
            ("run", "1"),
            ("verdict", "SUSPECT"),
            ("run_verdict", "SUSPECT"),
            ("value", "946.89"),
            ("unit", "per_s"),
        ],
    );
}

#[test]
fn hosts_have_rows_in_the_long_form_and_none_in_the_other() {
    let set = made::hosts();
    let rows = rows(&tidy(std::slice::from_ref(&set)));
    let of_host: Vec<&Row> = rows.iter().filter(|row| !row["host"].is_empty()).collect();
    let late = of_host.iter().filter(|row| row["figure"] == "late_ns");
    let late: Vec<&&Row> = late.collect();
    assert_eq!(late.len(), 6 * (3 + 6 + 18));
    // The seventh host of the first run with 18.
    let seventh = late
        .iter()
        .find(|row| row["generators"] == "18" && row["run"] == "1" && row["rank"] == "6");
    expect(
        seventh.unwrap(),
        &[
            ("host", "h7"),
            ("host_verdict", "INVALID"),
            ("host_checks", "generator"),
            ("value", "240000"),
        ],
    );
    // What it measured is not printed.
    let of = |row: &&&Row| row["figure"] == "throughput_per_s" && row["host_verdict"] == "INVALID";
    assert_eq!(of_host.iter().filter(of).count(), 0);
    let text = render(&[set]);
    assert_eq!(text.lines().count(), 1 + 3);
    assert!(!header(&text).contains(&"rank"));
}

#[test]
fn the_columns_of_contention() {
    let text = render(&[made::set()]);
    insta::assert_snapshot!(header(&text).join("\n"));
}
