//! Tests that table, csv, json, markdown and page print the same verdict, figure and
//! reasons for every point of every file in record/, and of random results.

use crate::command::command;
use crate::csv::tidy;
use crate::format::{grouped, significant, time};
use crate::headline::headline;
use crate::page::pages;
use crate::table::WIDTH;
use crate::{ResultSet, file, html, made, render};
use jostle_model::plan::Workload;
use jostle_model::record::{Judged, Record, Run, Status};
use jostle_model::swept::SWEPT;
use jostle_stats::checks::CHECKS;
use jostle_stats::checks::anchor::{LONGEST, level};
use jostle_stats::figures::{Figure, SUMMARIZED, headline as known_by};
use jostle_stats::intervals::estimate;
use jostle_stats::rng::Rng;
use jostle_stats::summary::{PointSummary, summarize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

mod random;
use random::{disturb, random};

/// A writer's output for a point.
#[derive(Debug, PartialEq)]
struct Printed {
    is: String,
    /// The checks of its reasons.
    checks: Vec<String>,
    /// Whether a figure is printed that is no lower bound.
    figure: bool,
}

impl Printed {
    fn by_verdict(judged: &Judged) -> Printed {
        let reasons = judged.verdict.reasons.iter();
        Printed {
            is: judged.verdict.is.to_string(),
            checks: reasons.map(|reason| reason.check.clone()).collect(),
            figure: judged.figure.is_some(),
        }
    }
}

fn judged(set: &ResultSet) -> Vec<Judged> {
    let points = summarize(&set.experiment, &set.runs);
    points.iter().map(|point| point.judged()).collect()
}

fn in_json(set: &ResultSet) -> Vec<Judged> {
    let text = render("json", std::slice::from_ref(set));
    let records = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let verdicts = records.filter_map(|record| match record {
        Record::Verdict(judged) => Some(*judged),
        _ => None,
    });
    verdicts.collect()
}

/// A row of csv. Thousands of them share the names of their columns.
#[derive(Debug)]
struct Row {
    places: Rc<BTreeMap<String, usize>>,
    cells: ::csv::StringRecord,
}

fn rows(text: &str) -> Vec<Row> {
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    let names = reader.headers().unwrap().iter().map(str::to_owned);
    let places: BTreeMap<String, usize> = names.zip(0..).collect();
    let places = Rc::new(places);
    let row = |cells| Row {
        places: places.clone(),
        cells,
    };
    reader.records().map(Result::unwrap).map(row).collect()
}

/// Empty where the column was left out.
fn cell<'a>(row: &'a Row, name: &str) -> &'a str {
    let place = row.places.get(name);
    place.and_then(|at| row.cells.get(*at)).unwrap_or_default()
}

/// The cells that identify a point within its result.
fn key(row: &Row) -> Vec<String> {
    let names = SWEPT.iter().map(|swept| swept.csv).chain(["target"]);
    names.map(|name| cell(row, name).to_owned()).collect()
}

fn verdict(row: &Row) -> (String, Vec<String>) {
    let checks = cell(row, "checks").split_whitespace();
    (
        cell(row, "verdict").to_owned(),
        checks.map(str::to_owned).collect(),
    )
}

/// The column of what a point is measured by.
fn column(of: &str) -> &'static str {
    match of {
        "connect_ns" => "connect_p50_ns",
        "bind_ns" => "bind_p50_ns",
        "throughput_per_s" => "throughput_per_s",
        other => panic!("{other}"),
    }
}

/// In the order of the points, one row each, with the figure as it is written.
fn in_csv(set: &ResultSet, judged: &[Judged]) {
    let rows = rows(&render("csv", std::slice::from_ref(set)));
    assert_eq!(rows.len(), judged.len());
    for (row, judged) in rows.iter().zip(judged) {
        for swept in SWEPT {
            let value = (swept.text)(&judged.at).unwrap_or_default();
            assert_eq!(cell(row, swept.csv), value);
        }
        assert_eq!(cell(row, "target"), judged.target);
        let printed = Printed::by_verdict(judged);
        assert_eq!(verdict(row), (printed.is, printed.checks));
        let figures = ["throughput_per_s", "connect_p50_ns", "bind_p50_ns"];
        match &judged.figure {
            None => assert!(
                figures.iter().all(|name| cell(row, name).is_empty()),
                "{row:?}"
            ),
            Some(figure) => {
                let name = column(&figure.of);
                assert_eq!(cell(row, name), figure.median.to_string());
                let (stem, unit) = name.split_at(name.find("_per_s").unwrap_or(name.len() - 3));
                for (end, value) in [("low", figure.low), ("high", figure.high)] {
                    let several = figure.runs > 1;
                    let value = if several {
                        value.to_string()
                    } else {
                        String::new()
                    };
                    assert_eq!(cell(row, &format!("{stem}_{end}{unit}")), value);
                }
            }
        }
    }
}

/// The long form: the verdicts of the point and of the run in every row, and runs of which
/// the figure of the point is the median.
fn in_tidy(set: &ResultSet, judged: &[Judged]) {
    let rows = rows(&tidy(std::slice::from_ref(set)));
    let mut measured = BTreeMap::<_, Vec<f64>>::new();
    let mut shown = BTreeMap::<_, BTreeSet<String>>::new();
    let keyed = judged.iter().map(|judged| {
        let at = SWEPT.iter().map(|swept| (swept.text)(&judged.at));
        let at = at.map(Option::unwrap_or_default);
        let key: Vec<String> = at.chain([judged.target.clone()]).collect();
        let printed = Printed::by_verdict(judged);
        (key, (judged, (printed.is, printed.checks)))
    });
    let keyed: BTreeMap<_, _> = keyed.collect();
    for row in &rows {
        let (judged, printed) = &keyed[&key(row)];
        assert_eq!(verdict(row), *printed);
        let number: u32 = cell(row, "run").parse().unwrap();
        let mut runs = set
            .runs
            .iter()
            .filter(|run| run.run == number && run.at == judged.at && run.target == judged.target);
        let run = runs.next().unwrap();
        assert_eq!(cell(row, "run_verdict"), run.verdict.is.to_string());
        let value: f64 = cell(row, "value").parse().unwrap();
        if !cell(row, "host").is_empty() || !cell(row, "left_out").is_empty() {
            continue;
        }
        let name = cell(row, "figure");
        shown.entry(key(row)).or_default().insert(name.to_owned());
        let figure = judged.figure.as_ref();
        if figure.is_some_and(|figure| column(&figure.of) == name) {
            measured.entry(key(row)).or_default().push(value);
        }
    }
    for row in self::rows(&render("csv", std::slice::from_ref(set))) {
        for name in shown.get(&key(&row)).into_iter().flatten() {
            // One run may know a time that is only a bound over all of them.
            let is_bound = name.starts_with("response") || name.starts_with("wait_");
            let known = is_bound || !cell(&row, name).is_empty();
            assert!(known, "{name} is withheld of the point: {row:?}");
        }
        let Some(values) = measured.get(&key(&row)) else {
            continue;
        };
        // A point that is not INVALID may rest on a run that is.
        if values.len().to_string() == cell(&row, "runs") {
            let median = estimate(values).unwrap().median.to_string();
            let figures = ["connect_p50_ns", "bind_p50_ns", "throughput_per_s"];
            assert!(figures.iter().any(|name| cell(&row, name) == median));
        }
    }
}

/// The last cell of each row, and all its figures; by the headline, which table,
/// markdown and page print.
fn in_table(set: &ResultSet) -> Vec<Printed> {
    let points = summarize(&set.experiment, &set.runs);
    let Some(table) = headline(&points) else {
        return Vec::new();
    };
    let rate = table.grid.columns.iter().position(|column| {
        let titles = ["/s", "locks/s", "ops/s", "requests/s", "calls/s", "p50 us"];
        titles.contains(&column.title[1].as_str())
    });
    let rows = table.grid.rows.iter().map(|row| {
        let verdict = row.last().unwrap();
        let mut parts = verdict
            .split(['[', ',', ']'])
            .filter(|part| !part.is_empty());
        let is = parts.next().unwrap().to_owned();
        let notes = parts.map(|number| &table.notes[number.parse::<usize>().unwrap() - 1]);
        let figure = rate.map(|rate| row[rate].as_str());
        Printed {
            is,
            checks: notes.map(|note| check_of(&points, note)).collect(),
            figure: figure.is_some_and(|cell| cell != "-" && !cell.starts_with(['>', '<'])),
        }
    });
    rows.collect()
}

/// Whose sentence a footnote has.
fn check_of(points: &[jostle_stats::summary::PointSummary<'_>], note: &str) -> String {
    let mut reasons = points.iter().flat_map(|point| &point.verdict.reasons);
    let found = reasons.find(|reason| note.ends_with(&reason.text));
    found.unwrap_or_else(|| panic!("{note}")).check.clone()
}

/// A column of the table, the csv's of the same figure, and how that one's is printed.
type Same = (&'static str, &'static str, fn(f64) -> String);

static SAME: &[Same] = &[
    ("locks/s", "throughput_per_s", three),
    ("ops/s", "throughput_per_s", three),
    ("done /s", "throughput_per_s", three),
    ("requests /s", "throughput_per_s", three),
    ("longest wait", "longest_wait_ns", time),
    ("got none", "per_worker_none", |workers| {
        grouped(workers as u64)
    }),
    ("hand-off us", "handoff_p50_ns", micros),
    ("acquire p50 us", "wait_p50_ns", micros),
    ("acquire p99 us", "wait_p99_ns", micros),
    ("batch p99 us", "batch_p99_ns", micros),
    ("connect p50 us", "connect_p50_ns", micros),
    ("connect p99 us", "connect_p99_ns", micros),
    ("mean p99 us", "service_p99_ns", |ns| three(ns / 1e3)),
    ("response p50", "response_p50_ns", time),
    ("response p99", "response_p99_ns", time),
    ("response p99 ms", "response_p99_ns", millis),
    ("service p99", "service_p99_ns", time),
    ("queued p99", "target_lag_p99_ns", time),
    ("sender late p99", "generator_lag_p99_ns", time),
    ("in flight", "effective_in_flight", three),
];

fn three(value: f64) -> String {
    significant(value, 3)
}

fn micros(ns: f64) -> String {
    significant(ns / 1e3, 2)
}

fn millis(ns: f64) -> String {
    significant(ns / 1e6, 2)
}

/// Every cell of the table is that of the csv as it is printed; both are empty, or none.
/// Counts the cells of each column that are printed, and those that are withheld.
fn cells_are_the_same(set: &ResultSet, seen: &mut BTreeMap<&'static str, [usize; 2]>) {
    let points = summarize(&set.experiment, &set.runs);
    let Some(table) = headline(&points) else {
        return;
    };
    let rows = rows(&render("csv", std::slice::from_ref(set)));
    let mut upper = String::new();
    for (at, heading) in table.grid.columns.iter().enumerate() {
        let [over, lower] = &heading.title;
        // An empty title is that of the column before, except of a rate.
        if !over.is_empty() || lower.ends_with("/s") {
            upper.clone_from(over);
        }
        let title = format!("{upper} {lower}");
        let same = SAME.iter().find(|(name, ..)| *name == title.trim());
        let Some((name, column, print)) = same else {
            continue;
        };
        let above = column.replace("_ns", "_at_least_ns");
        let above = above.replace("_per_s", "_at_least_per_s");
        for (printed, row) in table.grid.rows.iter().zip(&rows) {
            let [value, above] = [column, above.as_str()].map(|name| cell(row, name).parse().ok());
            let most = cell(row, &column.replace("_per_s", "_at_most_per_s"))
                .parse()
                .ok();
            let above = above.or(most.filter(|_| column.ends_with("_per_s")));
            let expected = value.or(above).map_or("-".to_owned(), print);
            let bare = printed[at].trim_start_matches(['>', '<', '=']);
            assert_eq!(bare, expected, "{title}: {row:?}");
            // The csv tells a bound by its column, by what limits, or by a longer granted wait.
            let [longest, granted] = ["longest_wait_ns", "granted_wait_max_ns"]
                .map(|name| cell(row, name).parse::<u64>().ok());
            let is_cut = *name == "longest wait" && longest > granted;
            let is_bound = value.is_none() || is_cut || cell(row, "limited_by") == "generator";
            assert!(is_bound || bare == printed[at], "{title}: {row:?}");
            seen.entry(name).or_default()[usize::from(expected == "-")] += 1;
        }
    }
}

/// With 300 requests the table printed a p99 with three beyond it, which the csv withheld.
#[test]
fn no_writer_shows_a_figure_that_another_withholds() {
    let mut rng = Rng::new(41);
    let mut seen = BTreeMap::new();
    for _ in 0..60 {
        cells_are_the_same(&random(&mut rng), &mut seen);
        let runs = 1 + rng.below(6);
        let counts = (0..runs).map(|_| 15 + rng.below(1_500));
        let mut set = made::rated(&counts.collect::<Vec<u64>>(), 2 + rng.below(200));
        cells_are_the_same(&set, &mut seen);
        figures_are_the_same(&set);
        let struck = rng.below(set.runs.len() as u64) as usize;
        set.runs[struck].around.deaths = vec!["worker 1 died".to_owned()];
        cells_are_the_same(&made::finished(set.experiment, set.runs), &mut seen);
    }
    // Undisturbed, disturbed for part of the window, or both by turns.
    for round in 0..8 {
        let mut set = made::set();
        for run in &mut set.runs {
            (run.workers, run.histograms) = (None, BTreeMap::new());
            disturb(run, rng.below(1 + round % 4));
        }
        let set = made::finished(set.experiment, set.runs);
        cells_are_the_same(&set, &mut seen);
        agree(&set);
    }
    for set in recorded() {
        cells_are_the_same(&set, &mut seen);
    }
    for (name, ..) in SAME {
        assert!(seen[name][0] > 0, "{name}: {seen:?}");
    }
    for name in [
        "service p99",
        "queued p99",
        "sender late p99",
        "response p99 ms",
        "longest wait",
        "got none",
    ] {
        assert!(seen[name][1] > 0, "{name}: {seen:?}");
    }
}

/// Figures with another name in csv.
const NAMES_IN_CSV: [(&str, &str); 6] = [
    ("of_ideal", "of_ideal_share"),
    (
        "server_bytes_per_held_lock",
        "server_memory_bytes_per_held_lock",
    ),
    ("bytes_per_grant", "network_bytes_per_grant"),
    ("acquire_p50_ns", "wait_p50_ns"),
    ("acquire_p99_ns", "wait_p99_ns"),
    ("slab_bytes_each", "slab_memory_bytes_each"),
];

/// Summaries, csv, benchstat's and github's text print the same of each figure, as they take it
/// over the same runs. benchstat and github took the headline over all runs.
fn figures_are_the_same(set: &ResultSet) {
    let sets = std::slice::from_ref(set);
    let rows = rows(&render("csv", sets));
    let parsed = |format: &str| -> Vec<Value> {
        serde_json::from_str(&render(format, sets)).unwrap_or_else(|error| panic!("{error}"))
    };
    let usable = rows.iter().zip(parsed("summary"));
    let usable = usable.filter(|(row, _)| cell(row, "verdict") != "INVALID");
    let mut github = parsed("github-benchmark").into_iter();
    for (row, summary) in usable {
        let known = |of: &Figure| summary["figures"][of.name]["median"].as_f64();
        // csv has both parts of this difference.
        for of in SUMMARIZED.iter().filter(|of| of.name != "service_net_ns") {
            let mut names = NAMES_IN_CSV.iter();
            let other = names.find(|(name, _)| *name == of.name);
            let name = other.map_or(of.name, |(_, name)| name);
            let in_csv: Option<f64> = cell(row, name).parse().ok();
            assert_eq!(in_csv, known(of), "{name}: {:?}", key(row));
        }
        if let Some(median) = known(known_by(&set.experiment.plan)) {
            assert_eq!(github.next().unwrap()["value"].as_f64(), Some(median));
        }
    }
    assert_eq!(github.next(), None);
    let points = summarize(&set.experiment, &set.runs);
    let headline = |point: &&PointSummary<'_>| point.is_usable() && point.figure().is_some();
    let known_by = known_by(&set.experiment.plan);
    let rate = points.iter().filter(headline);
    let rate = rate.flat_map(|point| point.each(known_by));
    let lines = render("benchstat", sets);
    let lines = lines.lines().filter(|line| line.starts_with("Benchmark"));
    let values = lines.map(|line| {
        line.split(['\t', ' '])
            .nth(2)
            .unwrap()
            .parse::<f64>()
            .unwrap()
    });
    assert_eq!(values.collect::<Vec<_>>(), rate.collect::<Vec<_>>());
}

/// All of them agree about every point of a result.
fn agree(set: &ResultSet) {
    let judged = judged(set);
    assert_eq!(in_json(set), judged);
    let printed: Vec<Printed> = judged.iter().map(Printed::by_verdict).collect();
    in_csv(set, &judged);
    in_tidy(set, &judged);
    for (in_table, printed) in in_table(set).iter().zip(&printed) {
        assert_eq!(in_table.is, printed.is);
        // Footnotes are numbered by rows, and stand in that order.
        let sorted =
            |printed: &Printed| -> BTreeSet<String> { printed.checks.iter().cloned().collect() };
        assert_eq!(sorted(in_table), sorted(printed));
        assert!(
            in_table.figure <= printed.figure,
            "{}",
            command(&set.experiment.plan)
        );
    }
    rows_are_printed(set);
    nothing_is_drawn(set, &judged);
    figures_are_the_same(set);
}

/// Table, markdown and page hold every row of the headline and every footnote.
fn rows_are_printed(set: &ResultSet) {
    let sets = std::slice::from_ref(set);
    let page = &pages(sets)[0];
    let Some(headline) = &page.headline else {
        return;
    };
    let table = render("table", sets);
    let chosen = headline.grid.chosen(WIDTH);
    assert!(table.contains(&chosen.fitted(WIDTH)));
    let chosen = headline.grid.chosen(usize::MAX);
    assert!(render("markdown", sets).contains(&chosen.markdown()));
    let html = html(sets);
    for is in [Status::Valid, Status::Suspect, Status::Invalid] {
        let cell = |row: &Vec<String>| row.last().unwrap().starts_with(&is.to_string());
        let rows = headline.grid.rows.iter().filter(|row| cell(row)).count();
        let class = format!("class=\"left verdict {}\"", is.to_string().to_lowercase());
        assert_eq!(html.matches(&class).count(), rows, "{is}");
    }
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let table = words(&table);
    for note in &headline.notes {
        assert!(table.contains(&words(note)), "{note}");
    }
}

/// If all points are INVALID, no sentence, comparison, fit or limit is printed beside the
/// reason.
fn nothing_is_drawn(set: &ResultSet, judged: &[Judged]) {
    if judged.is_empty() || !judged.iter().all(|point| point.verdict.is_invalid()) {
        return;
    }
    assert!(
        judged
            .iter()
            .all(|point| point.verdict.limited_by.is_none())
    );
    let page = &pages(std::slice::from_ref(set))[0];
    let besides = [
        "Safety",
        "Checked",
        "Uncontended",
        "Trust",
        "Limit",
        "Found",
        "Fairness",
    ];
    for line in &page.lines {
        let is_limit = line.question != "Limit" || line.text().contains("ends before");
        let is_alone = line.question != "Fairness" || line.text().starts_with("One worker");
        assert!(
            besides.contains(&line.question) && is_limit && is_alone,
            "{line:?}"
        );
    }
}

/// The results in record/, without those of `recover`, which sweeps words, and whose
/// findings are not figures with an interval.
fn recorded() -> Vec<ResultSet> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/record");
    let files = std::fs::read_dir(directory).unwrap();
    let files = files.map(|entry| entry.unwrap());
    // The validation's have short runs of what was disturbed, or are no result files.
    let files = files.filter(|file| !file.file_name().to_string_lossy().starts_with("validate"));
    let read = files.filter_map(|entry| file::read(entry.path()).ok());
    let read: Vec<Vec<ResultSet>> = read.collect();
    assert!(read.len() > 10, "{}", read.len());
    let swept = |set: &ResultSet| set.experiment.plan.workload != Workload::Recover;
    read.into_iter().flatten().filter(swept).collect()
}

/// The thresholds of the check `anchor` were the 99th percentiles of the points that record/ had
/// then; those of later, calmer sessions lie below.
#[test]
fn at_most_one_recorded_point_in_a_hundred_is_flagged_for_each_act_of_the_anchor() {
    let sets = recorded();
    for (part, act, most) in &LONGEST {
        let mut ratios = Vec::new();
        for set in &sets {
            let all: Vec<&Run> = set.runs.iter().collect();
            for point in summarize(&set.experiment, &set.runs) {
                let levels = [&point.runs, &all].map(|runs| level(*part, runs));
                ratios.extend(levels[0].zip(levels[1]).map(|(own, all)| own / all));
            }
        }
        ratios.sort_by(f64::total_cmp);
        let found = ratios[ratios.len() * 99 / 100];
        assert!(ratios.len() > 100, "{act}: {}", ratios.len());
        assert!(found < most + 0.01, "{act}: {found} of {}", ratios.len());
    }
}

#[test]
fn of_every_recorded_point() {
    recorded().iter().for_each(agree);
}

#[test]
fn of_every_point_of_a_hundred_random_results() {
    // As many threads as the smallest machine has CPUs.
    let seen = std::thread::scope(|scope| {
        let halves = [14, 15].map(|seed| scope.spawn(move || verdicts_and_checks(seed, 70)));
        let mut seen = BTreeMap::<String, usize>::new();
        for (name, count) in halves.into_iter().flat_map(|half| half.join().unwrap()) {
            *seen.entry(name).or_default() += count;
        }
        seen
    });
    // Chance reaches every verdict, and most checks.
    for is in ["VALID", "SUSPECT", "INVALID"] {
        assert!(seen[is] > 10, "{seen:?}");
    }
    let reached = CHECKS.iter().filter(|check| seen.contains_key(check.name));
    assert!(reached.count() > 20, "{seen:?}");
}

/// How often each came, in so many random results on which all writers agree.
fn verdicts_and_checks(seed: u64, results: u32) -> BTreeMap<String, usize> {
    let mut rng = Rng::new(seed);
    let mut seen = BTreeMap::<String, usize>::new();
    for _ in 0..results {
        let set = random(&mut rng);
        agree(&set);
        for point in judged(&set) {
            *seen.entry(point.verdict.is.to_string()).or_default() += 1;
            for reason in point.verdict.reasons {
                *seen.entry(reason.check).or_default() += 1;
            }
        }
    }
    seen
}
