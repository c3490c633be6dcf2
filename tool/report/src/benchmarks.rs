//! `--format benchstat` and `--format github-benchmark`: the headline figure of each point for
//! tools that follow a project's benchmarks over its commits.
//!
//! Points that are INVALID are left out, as everywhere.

use crate::ResultSet;
use crate::compare::place;
use jostle_stats::figures::{Better, Figure, headline};
use jostle_stats::summary::{Estimate, PointSummary, summarize};
use serde::Serialize;

/// Each point that counts, with its headline figure over the runs and that figure's value of
/// each run.
fn each<T>(
    sets: &[ResultSet],
    mut of: impl FnMut(&ResultSet, &PointSummary<'_>, &Figure, (Estimate, &[f64])) -> T,
) -> Vec<T> {
    let mut all = Vec::new();
    for set in sets {
        let figure = headline(&set.experiment.plan);
        let points = summarize(&set.experiment, &set.runs);
        for point in points.iter().filter(|point| !point.verdict.is_invalid()) {
            if let Some(estimate) = point.of(figure) {
                let runs = point.each(figure);
                all.push(of(set, point, figure, (estimate, &runs)));
            }
        }
    }
    all
}

/// The format of Go's benchmarks (golang.org/design/14313-benchmark-format), a line for each
/// run, in which benchstat finds what the runs of one name have in common.
pub(crate) fn benchstat(sets: &[ResultSet]) -> String {
    let mut units = Vec::new();
    let lines = each(sets, |set, point, figure, (_, runs)| {
        let unit = figure.compared.replace(' ', "-");
        let better = match figure.better {
            Better::More => "higher",
            Better::Less => "lower",
        };
        let unit_line = format!("Unit {unit} better={better}\n");
        if !units.contains(&unit_line) {
            units.push(unit_line);
        }
        let name = benchmark_name(set, point);
        let line = |value: &f64| format!("{name}\t1\t{value} {unit}\n");
        runs.iter().map(line).collect::<String>()
    });
    // benchstat compares what has the same settings: not two machines, but two kernels or
    // versions of jostle.
    let machine = sets.first().map_or(String::new(), |set| {
        format!("cpu: {}\n", set.experiment.environment.cpu_model)
    });
    machine + &units.concat() + &lines.concat()
}

/// `BenchmarkContend/target=flock/workers=10`. A slash would begin another part, and a number
/// behind a hyphen be taken for GOMAXPROCS.
fn benchmark_name(set: &ResultSet, point: &PointSummary<'_>) -> String {
    let workload = set.experiment.plan.workload.to_string();
    let plain = |text: &str| text.replace(['/', ' ', '\t'], "_");
    let at = serde_json::to_value(point.at).unwrap_or_default();
    let at = at.as_object().into_iter().flatten();
    let at =
        at.map(|(name, value)| format!("/{name}={}", plain(value.to_string().trim_matches('"'))));
    let (first, rest) = workload.split_at(1);
    format!(
        "Benchmark{}{rest}/target={}{}",
        first.to_uppercase(),
        plain(point.target),
        at.collect::<String>()
    )
}

/// An element of the JSON that github-action-benchmark takes of custom tools.
#[derive(Serialize)]
struct Entry {
    name: String,
    unit: String,
    value: f64,
    range: String,
    extra: String,
}

/// For `tool: customBiggerIsBetter`; `connect` has times, so `customSmallerIsBetter`.
pub(crate) fn github(sets: &[ResultSet]) -> String {
    let entries = each(sets, |set, point, figure, (estimate, runs)| {
        let least = runs.iter().copied().fold(estimate.median, f64::min);
        let most = runs.iter().copied().fold(estimate.median, f64::max);
        let place = place(point.at);
        Entry {
            name: format!("{} {}, {place}", set.experiment.plan.workload, point.target)
                .trim_end_matches([',', ' '])
                .to_owned(),
            unit: figure.compared.to_owned(),
            value: estimate.median,
            range: format!("{least} to {most}"),
            extra: format!("{}, {} runs", point.verdict.is, runs.len()),
        }
    });
    serde_json::to_string_pretty(&entries).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;

    /// Benchstat's own syntax, by golang.org/design/14313-benchmark-format.
    #[test]
    fn every_line_is_one_that_benchstat_reads() {
        let text = benchstat(&[made::set(), made::connections()]);
        let results = text
            .lines()
            .filter_map(|line| line.strip_prefix("Benchmark"));
        for line in results.clone() {
            let words: Vec<&str> = line.split('\t').collect();
            let (value, unit) = words[2].split_once(' ').unwrap();
            let is_read = words[0].starts_with(char::is_uppercase)
                && words[1].parse::<u64>().is_ok()
                && value.parse::<f64>().is_ok()
                && !words[0].contains(char::is_whitespace);
            assert!(
                is_read && text.contains(&format!("Unit {unit} better=")),
                "{line}"
            );
        }
        assert!(results.count() > made::set().runs.len(), "{text}");
        assert!(
            text.contains("BenchmarkContend/target=flock/workers=10\t1\t"),
            "{text}"
        );
        assert!(
            text.starts_with("cpu: ") && text.contains("Unit ops/s better=higher\n"),
            "{text}"
        );
    }

    /// As github-action-benchmark's `extract.ts` reads them; of points that are INVALID none.
    #[test]
    fn every_entry_has_what_github_action_benchmark_asks_for() {
        for set in [made::set(), made::broken()] {
            let points = summarize(&set.experiment, &set.runs);
            let valid = points.iter().filter(|point| !point.verdict.is_invalid());
            let text = github(std::slice::from_ref(&set));
            let entries: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
            assert_eq!(entries.len(), valid.count());
            for entry in &entries {
                let has = |name: &str| entry[name].as_str().is_some_and(|text| !text.is_empty());
                let texts = ["name", "unit", "range", "extra"].into_iter().all(has);
                assert!(texts && entry["value"].is_f64(), "{entry}");
            }
        }
        assert!(github(&[made::set()]).contains("\"contend flock, 10 workers\""));
    }
}
