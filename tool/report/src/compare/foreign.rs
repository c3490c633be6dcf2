//! Results of other tools for `jostle compare`: hyperfine's and k6's JSON, Criterion's
//! `estimates.json`, the lines of `go test -bench`, and what load generators print
//! (`jostle_stats::printed`).
//!
//! A file is a run; where a file has repetitions of a whole program or benchmark, each of
//! them is one. What a program sampled within itself is none, because all its samples share
//! that program's luck. Nothing anchors such runs to another sitting, and nothing shows that
//! they were made in turns, so that no difference between them is decided.

use super::{CompareError, Comparison, Input, WITHOUT, with_rows};
use crate::FileError;
use jostle_model::record::At;
use jostle_stats::comparison::figures::{Better, ComparedFigure};
use jostle_stats::comparison::{Change, Compared, floor};
use jostle_stats::figures::{Figure, Over};
use jostle_stats::intervals::median;
use jostle_stats::printed;
use jostle_stats::ratio::unpaired;
use serde_json::Value;
use std::path::Path;

/// Bytes that a file may have.
const MOST: u64 = 64 << 20;

/// The runs of one benchmark, in one figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Benchmark {
    /// As the tool names it.
    pub name: String,
    /// By its name.
    pub figure: &'static str,
    /// A value for each run.
    pub runs: Vec<f64>,
}

/// It was read from text, and is of no run.
static PRINTED: Figure = Figure {
    name: "printed",
    over: Over::Runs,
    of: |_| None,
};

const fn figure(name: &'static str, label: &'static str, better: Better) -> ComparedFigure {
    ComparedFigure {
        name,
        label,
        better,
        time: 0.0,
        figure: &PRINTED,
    }
}

/// What is compared of other tools' results.
static FIGURES: [ComparedFigure; 9] = [
    figure("rate_per_s", "requests/s", Better::More),
    figure("p50_ms", "ms p50", Better::Less),
    figure("p99_ms", "ms p99", Better::Less),
    figure("time_s", "s", Better::Less),
    figure("time_ns", "ns", Better::Less),
    figure("ns/op", "ns/op", Better::Less),
    figure("B/op", "B/op", Better::Less),
    figure("allocs/op", "allocs/op", Better::Less),
    figure("MB/s", "MB/s", Better::More),
];

/// The benchmarks in a file, or in all files of a directory; None where it is none of these
/// tools' (but perhaps a result of jostle).
///
/// # Errors
/// The system's.
pub fn read(path: &Path) -> Result<Option<Vec<Benchmark>>, FileError> {
    let system = |cause| FileError::system("open to read", &path.display().to_string(), cause);
    let found = path.metadata().map_err(system)?;
    if found.is_dir() {
        let names = std::fs::read_dir(path).map_err(system)?;
        let mut names: Vec<_> = names.filter_map(|name| Some(name.ok()?.path())).collect();
        names.sort();
        let mut all = Vec::new();
        for name in names.iter().filter(|name| name.is_file()) {
            for one in read(name)?.unwrap_or_default() {
                add(&mut all, one);
            }
        }
        return Ok((!all.is_empty()).then_some(all));
    }
    if !found.is_file() || found.len() > MOST {
        return Ok(None);
    }
    let text = std::fs::read(path).map_err(system)?;
    let above = path
        .parent()
        .and_then(Path::parent)
        .and_then(Path::file_name);
    let above = above.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Ok(of_text(&String::from_utf8_lossy(&text), &above))
}

/// Runs of the same benchmark are put together.
fn add(all: &mut Vec<Benchmark>, one: Benchmark) {
    let known = all
        .iter_mut()
        .find(|known| known.name == one.name && known.figure == one.figure);
    match known {
        Some(known) => known.runs.extend(one.runs),
        None => all.push(one),
    }
}

/// The benchmarks of one text; `above` is what Criterion names the directory of one.
fn of_text(text: &str, above: &str) -> Option<Vec<Benchmark>> {
    let each = match serde_json::from_str::<Value>(text) {
        Ok(value) => hyperfine(&value)
            .or_else(|| k6(&value))
            .or_else(|| criterion(&value, above))?,
        Err(_) => [go(text), of_generators(text)].concat(),
    };
    let mut all = Vec::new();
    each.into_iter().for_each(|one| add(&mut all, one));
    (!all.is_empty()).then_some(all)
}

fn hyperfine(value: &Value) -> Option<Vec<Benchmark>> {
    let results = value.get("results")?.as_array()?.iter();
    let each = results.map(|result| {
        let times = result.get("times")?.as_array()?;
        Some(Benchmark {
            name: result.get("command")?.as_str()?.to_owned(),
            figure: "time_s",
            runs: times.iter().filter_map(Value::as_f64).collect(),
        })
    });
    each.collect()
}

/// Both forms: what `--summary-export` writes, and what `handleSummary` gets.
fn k6(value: &Value) -> Option<Vec<Benchmark>> {
    let metrics = value.get("metrics")?;
    let of = |metric: &str, name: &str| {
        let metric = metrics.get(metric)?;
        metric.get("values").unwrap_or(metric).get(name)?.as_f64()
    };
    let rate = of("http_reqs", "rate").or_else(|| of("iterations", "rate"))?;
    let times = [("p50_ms", "med"), ("p99_ms", "p(99)")].into_iter();
    let times = times.filter_map(|(figure, name)| Some((figure, of("http_req_duration", name)?)));
    let figures = [("rate_per_s", rate)].into_iter().chain(times);
    Some(
        figures
            .map(|(figure, value)| run("k6", figure, value))
            .collect(),
    )
}

fn criterion(value: &Value, above: &str) -> Option<Vec<Benchmark>> {
    let mean = value.get("mean")?.get("point_estimate")?.as_f64()?;
    value.get("median_abs_dev")?;
    Some(vec![run(above, "time_ns", mean)])
}

fn run(name: &str, figure: &'static str, value: f64) -> Benchmark {
    Benchmark {
        name: name.to_owned(),
        figure,
        runs: vec![value],
    }
}

/// `BenchmarkName-8  1000  1234 ns/op  56 B/op`: a line is a repetition (`-count`).
fn go(text: &str) -> Vec<Benchmark> {
    let each = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, pairs) = (words.first()?, words.get(2..)?);
        name.strip_prefix("Benchmark")?;
        words[1].parse::<u64>().ok()?;
        let name = name
            .rsplit_once('-')
            .filter(|(_, n)| n.parse::<u32>().is_ok())
            .map_or(*name, |(name, _)| name);
        let known = |unit: &str| FIGURES.iter().find(|figure| figure.name == unit);
        let each = pairs.chunks_exact(2);
        Some(
            each.filter_map(|pair| Some(run(name, known(pair[1])?.name, pair[0].parse().ok()?)))
                .collect::<Vec<_>>(),
        )
    });
    each.flatten().collect()
}

fn of_generators(text: &str) -> Vec<Benchmark> {
    let results = printed::read(text).into_iter();
    let each = results.flat_map(|result| {
        let name = [Some(result.tool), result.test]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" ");
        let known = FIGURES.iter().filter_map(move |figure| {
            Some(run(&name, figure.name, *result.figures.get(figure.name)?))
        });
        known.collect::<Vec<_>>()
    });
    each.collect()
}

/// Compares two such results: ratios with their intervals, and nothing decided.
///
/// # Errors
/// Where there is nothing that both have.
pub fn compare(
    input: &Input<'_>,
    base: &[Benchmark],
    new: &[Benchmark],
) -> Result<Comparison, CompareError> {
    let mut comparison =
        Comparison::new(input, [input.base_name, input.new_name].map(str::to_owned));
    comparison.separate = true;
    // Two programs under two names, one each, are what was meant to be compared.
    let alone = |side: &[Benchmark]| side.iter().all(|one| one.name == side[0].name);
    let any_name = alone(base) && alone(new);
    let same = |one: &Benchmark, other: &Benchmark| {
        one.figure == other.figure && (any_name || one.name == other.name)
    };
    for one in base {
        match new.iter().find(|other| same(one, other)) {
            Some(other) => comparison.rows.extend(row(one, other).map(|row| (1, row))),
            None => comparison
                .only
                .push(format!("only in BASE: {} {}", one.name, one.figure)),
        }
    }
    let unmet = new
        .iter()
        .filter(|other| !base.iter().any(|one| same(one, other)));
    comparison
        .only
        .extend(unmet.map(|one| format!("only in NEW: {} {}", one.name, one.figure)));
    with_rows(input, comparison)
}

fn row(base: &Benchmark, new: &Benchmark) -> Option<Compared> {
    Some(Compared {
        base_target: base.name.clone(),
        new_target: new.name.clone(),
        at: At::default(),
        figure: FIGURES.iter().find(|figure| figure.name == base.figure)?,
        base: median(&base.runs)?,
        new: median(&new.runs)?,
        ratio: unpaired(&base.runs, &new.runs),
        runs: [base.runs.len(), new.runs.len()],
        floor: floor([&base.runs, &new.runs]),
        machine: None,
        said: Change::Undecided,
        why: Some(WITHOUT.to_owned()),
        invalid: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Criterion's form is from its documentation, the other results are of runs.
    const CRITERION: &str = r#"{"mean":{"point_estimate":100.5},"median_abs_dev":{}}"#;
    const GO: &str = include_str!("samples/go.txt");
    const HYPERFINE: &str = include_str!("samples/hyperfine.json");
    const K6: &str = include_str!("samples/k6.json");
    const WRK: &str = include_str!("../../../stats/src/printed/samples/wrk.txt");

    fn input<'a>(base: &'a str, new: &'a str) -> Input<'a> {
        Input {
            base_name: base,
            base: &[],
            new_name: new,
            new: Some(&[]),
            targets: None,
            within: 0.05,
            all: false,
            strict: false,
        }
    }

    #[test]
    fn a_file_or_a_repetition_is_a_run_and_a_sample_is_none() {
        let table: &[(&str, &str, &str, &[f64])] = &[
            (
                HYPERFINE,
                "sleep 0.01",
                "time_s",
                &[0.020711875, 0.016800801, 0.017368534, 0.018027682],
            ),
            (K6, "k6", "rate_per_s", &[13081.969964930871]),
            (CRITERION, "sort", "time_ns", &[100.5]),
            (GO, "BenchmarkJoin", "ns/op", &[485.7, 346.4, 370.2]),
            (GO, "BenchmarkJoin", "B/op", &[128.0; 3]),
            (GO, "BenchmarkSum/n=10", "ns/op", &[0.7537, 0.8862, 0.7348]),
            (WRK, "wrk", "rate_per_s", &[50029.16]),
        ];
        for (text, name, figure, runs) in table {
            let found = of_text(text, "sort").unwrap();
            let found = found
                .iter()
                .find(|one| one.name == *name && one.figure == *figure);
            assert_eq!(found.unwrap().runs, *runs, "{name}");
        }
        for other in [
            "",
            "{}",
            "[1]",
            "Requests/sec: 1\n",
            "{\"results\":[{\"command\":\"x\"}]}",
        ] {
            assert_eq!(of_text(other, "sort"), None, "{other}");
        }
    }

    #[test]
    fn files_of_a_directory_are_runs_of_one_benchmark() {
        let place = tempfile::tempdir().unwrap();
        for (name, rate) in [
            ("1.txt", "50029.16"),
            ("2.txt", "40000.00"),
            ("3.txt", "45000.00"),
        ] {
            std::fs::write(place.path().join(name), WRK.replace("50029.16", rate)).unwrap();
        }
        std::fs::write(place.path().join("README"), "nothing").unwrap();
        let found = read(place.path()).unwrap().unwrap();
        let rates = found.iter().find(|one| one.figure == "rate_per_s").unwrap();
        assert_eq!(rates.runs, [50029.16, 40000.0, 45000.0]);
        assert_eq!(read(&place.path().join("README")).unwrap(), None);
        assert!(read(&place.path().join("none")).is_err());
    }

    #[test]
    fn separate_sittings_decide_nothing_however_large_the_difference() {
        let base = of_text(HYPERFINE, "").unwrap();
        let mut new = base.clone();
        new.iter_mut()
            .flat_map(|one| &mut one.runs)
            .for_each(|run| *run *= 3.0);
        let compared = compare(&input("old.json", "new.json"), &base, &new).unwrap();
        assert_eq!(compared.exit_code(), super::super::UNDECIDED);
        let text = compared.render("text");
        let parts = [
            "sleep 0.01  s",
            "3.00",
            "undecided[1]",
            "[1] separate sittings",
            "2 undecided (separate sittings;",
        ];
        for part in parts {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(compared.render("json").contains("\"said\":\"undecided\""));
        // One program on each side may have two names; several are matched by them.
        let one = compare(&input("a", "b"), &base[..1], &new[1..]).unwrap();
        assert_eq!(one.rows.len(), 1);
        let none = compare(&input("a", "b"), &base, &of_text(K6, "").unwrap());
        assert!(
            none.unwrap_err()
                .to_string()
                .contains("only in BASE: sleep 0.01 time_s")
        );
    }
}
