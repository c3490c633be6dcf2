//! Table, csv, json, markdown and page print the same verdict, figure and reasons of
//! every point: of every file in record/, and of random results.

use crate::command::command;
use crate::headline::headline;
use crate::page::pages;
use crate::{ResultSet, file, html, made, render};
use jostle_model::record::{Is, Judged, Point, Record};
use jostle_stats::checks::CHECKS;
use jostle_stats::rng::Rng;
use jostle_stats::summary::summarize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What a writer prints of a point.
#[derive(Debug, PartialEq)]
struct Printed {
    is: String,
    /// The checks of its reasons.
    checks: Vec<String>,
    /// Whether a figure is printed that is no lower bound.
    figure: bool,
}

impl Printed {
    fn of(judged: &Judged) -> Printed {
        let reasons = judged.verdict.reasons.iter();
        Printed {
            is: judged.verdict.is.to_string(),
            checks: reasons.map(|reason| reason.check.clone()).collect(),
            figure: judged.figure.is_some(),
        }
    }
}

fn judged(set: &ResultSet) -> Vec<Judged> {
    let points = summarize(&set.experiment, &set.points);
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

/// In the order of the points; each with the figure as it is written.
fn in_csv(set: &ResultSet) -> Vec<(Printed, String)> {
    let text = render("csv", std::slice::from_ref(set));
    let first = text.split("\n\n").next().unwrap();
    let mut rows = first.lines().map(cells);
    let header = rows.next().unwrap();
    let mut found = BTreeMap::new();
    for row in rows {
        let of = |name: &str| row[header.iter().position(|other| other == name).unwrap()].clone();
        let swept = [
            "target",
            "workers",
            "operations_each",
            "keys_held",
            "open",
            "listeners",
            "sources",
            "rate",
            "generators",
        ];
        let printed = Printed {
            is: of("verdict"),
            checks: of("checks").split_whitespace().map(str::to_owned).collect(),
            figure: !of("figure_median").is_empty(),
        };
        let before = found.insert(swept.map(of), (printed, of("figure_median")));
        if let Some(before) = before {
            assert_eq!(before, found[&swept.map(of)], "runs of a point differ");
        }
    }
    let points = summarize(&set.experiment, &set.points);
    let keys = points.iter().map(|point| {
        let cell = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
        let at = point.at;
        let [workers, operations, keys] = [at.workers, at.operations, at.keys].map(cell);
        let [open, listeners, sources] = [at.open, at.listeners, at.sources].map(cell);
        let [rate, generators] = [at.rate, at.generators].map(cell);
        let target = point.target.to_owned();
        [
            target, workers, operations, keys, open, listeners, sources, rate, generators,
        ]
    });
    keys.map(|key| found.remove(&key).unwrap()).collect()
}

/// The cells of a line, quotes undone.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut quoted) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            letter => cells.last_mut().unwrap().push(letter),
        }
    }
    cells
}

/// The last cell of each row, and all its figures; by the headline, which table,
/// markdown and page print.
fn in_table(set: &ResultSet) -> Vec<Printed> {
    let points = summarize(&set.experiment, &set.points);
    let Some(table) = headline(&points) else {
        return Vec::new();
    };
    let rate = table.grid.columns.iter().position(|column| {
        let titles = ["/s", "locks/s", "ops/s", "requests/s", "calls/s", "p50 us"];
        titles.contains(&column.title[1].as_str())
    });
    let rows = table.grid.rows.iter().map(|row| {
        let verdict = row.last().unwrap();
        let mut parts = verdict.split(['[', ']']).filter(|part| !part.is_empty());
        let is = parts.next().unwrap().to_owned();
        let notes = parts.map(|number| &table.notes[number.parse::<usize>().unwrap() - 1]);
        let figure = rate.map(|rate| row[rate].as_str());
        Printed {
            is,
            checks: notes.map(|note| check_of(&points, note)).collect(),
            figure: figure.is_some_and(|cell| cell != "-" && !cell.starts_with(">=")),
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

/// All of them agree about every point of a result.
fn agree(set: &ResultSet) {
    let judged = judged(set);
    assert_eq!(in_json(set), judged);
    let printed: Vec<Printed> = judged.iter().map(Printed::of).collect();
    let csv = in_csv(set);
    for ((in_csv, figure), judged) in csv.iter().zip(&judged) {
        assert_eq!(in_csv, &Printed::of(judged));
        let median = judged
            .figure
            .as_ref()
            .map(|figure| figure.median.to_string());
        assert_eq!(figure, &median.unwrap_or_default());
    }
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
}

/// Table, markdown and page hold every row of the headline and every footnote.
fn rows_are_printed(set: &ResultSet) {
    let sets = std::slice::from_ref(set);
    let page = &pages(sets)[0];
    let Some(headline) = &page.headline else {
        return;
    };
    let table = render("table", sets);
    assert!(table.contains(&headline.grid.text()));
    assert!(render("markdown", sets).contains(&headline.grid.markdown()));
    let html = html(sets);
    for is in [Is::Valid, Is::Suspect, Is::Invalid] {
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

/// Of points that are all INVALID no sentence, comparison, fit or limit is printed
/// beside the reason.
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
    assert!(page.comparisons.is_empty(), "{:?}", page.comparisons);
    assert!(page.growth.is_empty(), "{:?}", page.growth);
    for (_, sentence) in &page.sentences {
        let told = [
            "INVALID ",
            "it ends before ",
            "one worker alone does not contend",
        ];
        let told =
            told.iter().any(|begin| sentence.starts_with(begin)) || sentence.contains(": INVALID ");
        assert!(told, "{sentence}");
    }
}

#[test]
fn of_every_recorded_point() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../record");
    let mut files = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        // Those of the validation hold runs alone, and are no result files.
        let Ok(sets) = file::read(&path) else {
            continue;
        };
        files += 1;
        sets.iter().for_each(agree);
    }
    assert!(files > 10, "{files}");
}

#[test]
fn of_every_point_of_a_thousand_random_results() {
    let mut rng = Rng::new(14);
    let mut seen = BTreeMap::<String, usize>::new();
    for _ in 0..1_000 {
        let set = random(&mut rng);
        agree(&set);
        for point in judged(&set) {
            *seen.entry(point.verdict.is.to_string()).or_default() += 1;
            for reason in point.verdict.reasons {
                *seen.entry(reason.check).or_default() += 1;
            }
        }
    }
    // Chance reaches every verdict, and most checks.
    for is in ["VALID", "SUSPECT", "INVALID"] {
        assert!(seen[is] > 100, "{seen:?}");
    }
    let reached = CHECKS.iter().filter(|check| seen.contains_key(check.name));
    assert!(reached.count() > 20, "{seen:?}");
}

/// One of the made-up results with some runs left out, and others spoilt.
fn random(rng: &mut Rng) -> ResultSet {
    let made: [fn() -> ResultSet; 8] = [
        made::set,
        made::broken,
        made::counts_only,
        made::connections,
        made::exhausted,
        made::calls,
        made::spread,
        made::hosts,
    ];
    let mut set = made[rng.below(made.len() as u64) as usize]();
    set.fits.clear();
    let keep = 1 + rng.below(4);
    set.points.retain(|_| rng.below(4) < keep);
    // A fault strikes single runs, a point, or all.
    let (fault, how) = (rng.below(FAULTS.len() as u64) as usize, rng.below(3));
    let unlucky = rng.below(set.points.len().max(1) as u64) as usize;
    let struck = set
        .points
        .get(unlucky)
        .map(|point| (point.target.clone(), point.at));
    for point in &mut set.points {
        // They decide nothing here, and take most of the time.
        (point.workers, point.histograms) = (None, BTreeMap::new());
        let strikes = match how {
            0 => rng.below(3) == 0,
            1 => struck.as_ref() == Some(&(point.target.clone(), point.at)),
            _ => true,
        };
        if strikes {
            FAULTS[fault](point, rng);
        }
    }
    made::finished(set.experiment, set.points)
}

/// What may be wrong with a run.
static FAULTS: &[fn(&mut Point, &mut Rng)] = &[
    |_, _| (),
    |point, rng| drop_to(point, rng.below(40)),
    |point, rng| point.machine.stolen_ticks = rng.below(60),
    |point, rng| point.machine.throttled_periods = Some(rng.below(3)),
    |point, rng| point.machine.halts = Some(rng.below(3)),
    |point, rng| point.deaths = vec!["worker 1 died".to_owned(); rng.below(3) as usize],
    |point, rng| {
        point.errors.insert("EIO".to_owned(), rng.below(3));
    },
    |point, rng| {
        point
            .errors
            .insert("handoff_before_release".to_owned(), rng.below(30));
    },
    |point, rng| point.blocked_share = Some(rng.below(2) as f64),
    |point, rng| point.throughput_per_s *= 1.0 + rng.below(100) as f64 / 50.0,
    |point, rng| point.during = (rng.below(2) == 0).then(|| "perf, \"all\"".to_owned()),
    |point, rng| {
        point.exclusion.get_or_insert_default().lost_updates = rng.below(3);
    },
    |point, rng| point.spoilt = rng.below(2) == 0,
    |point, rng| {
        if let Some(hold) = &mut point.hold_ns {
            hold.percentiles
                .insert("p50".to_owned(), 900_000 + rng.below(500_000));
        }
    },
    |point, rng| {
        if let Some(spread) = &mut point.spread {
            spread.effective = rng.below(100) as f64;
        }
    },
    |point, rng| {
        if let Some(server) = &mut point.server {
            server.difference = Some(rng.below(40) as i64 - 20);
        }
    },
    |point, rng| {
        if let Some(connections) = &mut point.connections {
            connections.lost = Some(rng.below(40));
            connections.to_previous = Some(rng.below(10) as f64 / 10.0);
        }
    },
    |point, rng| {
        let seconds = rng.below(30) as f64 / 10.0;
        point.accounts = Some(Box::new(jostle_model::record::Accounts {
            between_s: 5.0,
            cpus: 2,
            waited_s: (rng.below(5) > 0).then_some(seconds),
            others_s: (rng.below(5) > 0).then_some(seconds),
            ..Default::default()
        }));
    },
];

fn drop_to(point: &mut Point, operations: u64) {
    point.operations = operations;
    point.throughput_per_s = operations as f64 / point.window_s;
}
