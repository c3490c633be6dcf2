//! The experiments drawn together: a chapter for each workload, its swept axis, and the series in
//! it.

use super::chart::Style;
use super::labels::labels;
use super::scale::Axis;
use super::units::Unit;
use crate::ResultSet;
use crate::closing;
use crate::closing::find::limits;
use crate::format::each_once;
use crate::page::growth;
use jostle_model::plan::{Fault, Workload};
use jostle_model::record::{At, Distribution, Fit, Run};
use jostle_model::serial::{distributions, sizes};
use jostle_stats::figures::Figure;
use jostle_stats::fit::sweeps::beside;
use jostle_stats::summary::{PointSummary, summarize};
use std::collections::{BTreeMap, BTreeSet};

/// Everything of one workload.
#[derive(Debug)]
pub(crate) struct Chapter<'a> {
    /// The verb.
    pub workload: Workload,
    /// The sets that belong to it, by index.
    pub sets: Vec<usize>,
    /// The differences of each of them from the others; empty of one alone.
    pub labels: Vec<String>,
    /// The swept value, by its name in `at`.
    pub swept: String,
    /// In the order of sets and targets.
    pub series: Vec<Series<'a>>,
    /// How the title of the figure begins that comes first; empty where none has to.
    pub lead: &'static str,
}

/// The data of one line of a figure.
#[derive(Debug)]
pub(crate) struct Series<'a> {
    /// Position in the chapter.
    pub index: usize,
    /// The chapter's experiment that it belongs to, by index.
    pub set: usize,
    /// How it is drawn everywhere.
    pub style: Style,
    /// The target, and what else tells it from the others.
    pub label: String,
    /// How many swept values are parts of its label, behind the target.
    beside: usize,
    /// The label without the parts that all series of the chapter share, for labels within
    /// drawings.
    pub short: String,
    /// The target as typed.
    pub target: &'a str,
    /// Ascending.
    pub spots: Vec<Spot<'a>>,
    /// How its figures grow along the axis.
    pub fits: Vec<Fit>,
    /// The limit that a search found; outer None where none was searched.
    pub found: Option<Option<f64>>,
}

/// One point of a series.
#[derive(Debug)]
pub(crate) struct Spot<'a> {
    /// Its place among all of the chapter, and so its row in each table of data.
    pub number: usize,
    /// The swept value.
    pub x: f64,
    /// All that is known of it.
    pub point: PointSummary<'a>,
    /// The distributions of each run that it takes times from, by their names in the record.
    pub times: Vec<BTreeMap<String, Distribution>>,
}

impl Spot<'_> {
    /// Whether its figures may be shown.
    pub(super) fn usable(&self) -> bool {
        self.point.is_usable()
    }
}

/// One chapter for each workload, in the order of its first experiment.
pub(super) fn chapters(sets: &[ResultSet]) -> Vec<Chapter<'_>> {
    let order = each_once(sets.iter().map(|set| set.experiment.plan.workload));
    order.into_iter().map(|w| chapter(w, sets)).collect()
}

fn chapter(workload: Workload, all: &[ResultSet]) -> Chapter<'_> {
    let of_it = |at: &usize| all[*at].experiment.plan.workload == workload;
    let sets: Vec<usize> = (0..all.len()).filter(of_it).collect();
    let members: Vec<&ResultSet> = sets.iter().map(|at| &all[*at]).collect();
    let ats = members.iter().flat_map(|set| set.runs.iter().map(|p| p.at));
    let (swept, others) = dimensions(workload, ats);
    let labels = labels(&members);
    let series = series(&members, &labels, &swept, &others);
    let lead = match members[..] {
        [only] => leading(only),
        _ => "",
    };
    Chapter {
        workload,
        sets,
        labels,
        swept,
        series,
        lead,
    }
}

/// How the title of the figure begins that shows what the title of the page says.
fn leading(set: &ResultSet) -> &'static str {
    let points = summarize(&set.experiment, &set.runs);
    let lead = closing::lead(set, &points, &closing::lines(set, &points));
    lead.map_or("", |lead| lead.figure)
}

/// All series of a chapter: of each target, and each value of what varies beside
/// the axis, one for each experiment.
fn series<'a>(
    members: &[&'a ResultSet],
    labels: &[String],
    swept: &str,
    others: &[String],
) -> Vec<Series<'a>> {
    let mut series: Vec<Series<'_>> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for (set, member) in members.iter().enumerate() {
        let points = summarize(&member.experiment, &member.runs);
        let fits = growth(member, &points);
        let limits = limits(&member.experiment.plan, &points);
        for point in points {
            let values = named(point.at);
            // The points of `verify` differ in nothing.
            let alone = values.is_empty().then_some(0.0);
            let Some(x) = values.get(swept).copied().or(alone) else {
                continue;
            };
            let parts = parts(point.target, &values, others);
            let name = parts.join(" · ");
            let label = match labels[set].as_str() {
                "" => name.clone(),
                label => format!("{name} · {label}"),
            };
            let known = names.iter().position(|known| *known == name);
            let of_name = known.unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            });
            let target = point.target;
            let times = point.timed.iter().map(|run| times(run)).collect();
            let spot = Spot {
                number: 0,
                x,
                point,
                times,
            };
            match series.iter_mut().find(|s| s.set == set && s.label == label) {
                Some(series) => series.spots.push(spot),
                None => series.push(Series {
                    index: of_name,
                    set,
                    style: Style::default(),
                    beside: parts.len() - 1,
                    short: String::new(),
                    label,
                    target,
                    fits: fits_of(&fits, target, spot.point.at, swept),
                    found: limit_of(&limits, target, spot.point.at),
                    spots: vec![spot],
                }),
            }
        }
    }
    shorten(&mut series, members);
    arrange(&mut series, members.len() > 1 && names.len() > 1);
    series
}

/// Shortens each series' label to what distinguishes it: the parts of its name that differ
/// between series, and the differences of its experiment from those that measured the same.
fn shorten(series: &mut [Series<'_>], members: &[&ResultSet]) {
    let schemes = schemes(series);
    let split = |series: &Series<'_>| -> Vec<String> {
        let name = series.label.split(" · ");
        let name = name.take(1 + series.beside).map(str::to_owned);
        let mut parts: Vec<String> = name.collect();
        if let (Some(target), Some(scheme)) = (parts.first_mut(), schemes.get(series.target)) {
            target.clone_from(scheme);
        }
        parts
    };
    let all: Vec<Vec<String>> = series.iter().map(split).collect();
    let differs = |part: usize| {
        let value = |parts: &Vec<String>| parts.get(part).cloned();
        all.iter().any(|parts| value(parts) != value(&all[0]))
    };
    let short = |at: usize| {
        let own = &series[at];
        let alike = series.iter().filter(|other| other.index == own.index);
        let alike: Vec<usize> = alike.map(|other| other.set).collect();
        let sets: Vec<&ResultSet> = alike.iter().map(|set| members[*set]).collect();
        let labels = labels(&sets);
        let label = alike.iter().zip(labels).find(|(set, _)| **set == own.set);
        let kept = all[at].iter().enumerate();
        let kept = kept.filter(|(part, _)| differs(*part));
        let mut parts: Vec<String> = kept.map(|(_, text)| text.clone()).collect();
        let label = label.map(|(_, label)| label);
        parts.extend(label.filter(|label| !label.is_empty()));
        match parts.is_empty() {
            true => all[at].join(" · "),
            false => parts.join(" · "),
        }
    };
    let shorts: Vec<String> = (0..series.len()).map(short).collect();
    for (series, short) in series.iter_mut().zip(shorts) {
        series.short = short;
    }
}

/// Addresses by their schemes and commands by their programs, where no other target has
/// the same: `ldap` of `ldap://127.0.0.1:3899/dc=example`, `exec:ls` of `exec:ls /`.
fn schemes(series: &[Series<'_>]) -> BTreeMap<String, String> {
    let head = |target: &str| {
        let known = target.split_once("://").or(target.split_once(' '))?;
        Some(known.0.to_owned())
    };
    let targets: BTreeSet<&str> = series.iter().map(|series| series.target).collect();
    let alone = |wanted: &String| {
        let same = targets
            .iter()
            .filter(|target| *target == wanted || head(target).as_ref() == Some(wanted));
        same.count() == 1
    };
    let known = targets.iter().filter_map(|target| {
        let head = head(target).filter(alone)?;
        Some(((*target).to_owned(), head))
    });
    known.collect()
}

/// Orders the series so that those to be compared are neighbours. With `several` names in
/// several experiments, a name keeps its colour.
fn arrange(series: &mut [Series<'_>], several: bool) {
    series.sort_by_key(|series| (series.index, series.set));
    for (at, series) in series.iter_mut().enumerate() {
        series.style = match several {
            true => Style::numbered(series.index, series.set, series.set),
            false => Style::numbered(at, at, series.set),
        }
        .of_series(at);
        series.index = at;
        series.spots.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    let spots = series.iter_mut().flat_map(|series| &mut series.spots);
    for (number, spot) in spots.enumerate() {
        spot.number = number;
    }
}

/// `flock`, `2 workers`: the target, and what varies beside the axis.
fn parts(target: &str, values: &BTreeMap<String, f64>, others: &[String]) -> Vec<String> {
    let beside = others.iter().filter_map(|name| {
        let value = *values.get(name)? as u64;
        Some(format!("{value} {}", few(name, value)))
    });
    let target = std::iter::once(target.to_owned());
    target.chain(beside).collect()
}

/// Those of one series, which stands at `at` among others.
fn fits_of(fits: &[Fit], target: &str, at: At, swept: &str) -> Vec<Fit> {
    let of_it =
        |fit: &&Fit| fit.target == target && fit.over == swept && fit.at == beside(at, swept);
    fits.iter().filter(of_it).cloned().collect()
}

/// The limit that was found of one series.
fn limit_of(limits: &[(&str, u64, Option<f64>)], target: &str, at: At) -> Option<Option<f64>> {
    let of_it = |(of, workers, _): &&(&str, u64, _)| *of == target && Some(*workers) == at.workers;
    limits.iter().find(of_it).map(|(.., found)| *found)
}

/// The swept axis, and the other values that vary. If several vary, the axis is the
/// workload's own, or else the one with the most values.
fn dimensions(workload: Workload, ats: impl Iterator<Item = At>) -> (String, Vec<String>) {
    let mut values: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for at in ats {
        for (name, value) in named(at) {
            values.entry(name).or_default().insert(value as u64);
        }
    }
    let own = workload.swept().name;
    let spread = |name: &String| (values[name].len().min(2), name == own, values[name].len());
    let swept = values.keys().max_by_key(|name| spread(name));
    let swept = swept.cloned().unwrap_or_else(|| own.to_owned());
    let varies = |(name, values): (String, BTreeSet<u64>)| (values.len() > 1).then_some(name);
    let mut others: Vec<String> = values.into_iter().filter_map(varies).collect();
    others.retain(|name| *name != swept);
    (swept, others)
}

/// The swept values by name, as the record has them; what a later version adds
/// is among them.
fn named(at: At) -> BTreeMap<String, f64> {
    // A fault has no size; its place among all tells it from others.
    let fault = at
        .fault
        .and_then(|f| Fault::ALL.iter().position(|other| *other == f));
    let mut named = sizes(at);
    named.extend(fault.map(|place| ("fault".to_owned(), (place + 1) as f64)));
    named
}

/// Every distribution of a run, those of its phases included.
fn times(run: &Run) -> BTreeMap<String, Distribution> {
    let phases = run.phases.iter();
    let phases = phases.map(|phase| (format!("{}_ns", phase.phase), phase.span.clone()));
    distributions(run).into_iter().chain(phases).collect()
}

/// `1 worker`, `2 workers`, `5 in flight`.
fn few(name: &str, value: u64) -> String {
    let words = name.replace('_', " ");
    match (value, words.strip_suffix('s')) {
        (1, Some(one)) => one.to_owned(),
        _ => words,
    }
}

impl Chapter<'_> {
    /// The quantity on the horizontal axis.
    pub(super) fn swept_words(&self) -> String {
        match (self.swept.as_str(), self.workload) {
            ("operations", _) => "operations of each worker".to_owned(),
            ("keys", Workload::Hold) => "locks held by each worker".to_owned(),
            ("open", _) => "connections open".to_owned(),
            ("listeners", _) => "listening sockets".to_owned(),
            ("rate", _) => "offered a second".to_owned(),
            (other, _) => other.replace('_', " "),
        }
    }

    /// `10 workers`.
    pub(super) fn place(&self, x: f64) -> String {
        let value = crate::format::significant(x, 1);
        format!("{value} {}", few(&self.swept, x as u64))
    }

    /// The noun for an operation.
    pub(super) fn noun(&self) -> &'static str {
        self.workload.facts().drawn
    }

    /// As throughput counts them.
    pub(super) fn per_second(&self) -> &'static str {
        self.workload.facts().per_second
    }

    /// How values of a figure are printed.
    pub(super) fn unit(&self, figure: &Figure) -> Unit {
        Unit::shown(figure, self.per_second())
    }

    /// All swept values, ascending, each once.
    pub(super) fn xs(&self) -> Vec<f64> {
        let spots = self.series.iter().flat_map(|series| &series.spots);
        let mut xs: Vec<f64> = spots.map(|spot| spot.x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }

    /// Letters of the longest label beside a drawing; side by side, series are named
    /// below it.
    pub(super) fn longest_label(&self) -> usize {
        let series = self.series.iter();
        let letters = series.map(|series| series.short.chars().count());
        letters.max().filter(|_| self.sweeps()).unwrap_or(0)
    }

    /// Whether anything is swept. Where nothing is, the series themselves stand
    /// side by side.
    pub(super) fn sweeps(&self) -> bool {
        self.xs().len() > 1
    }

    /// The horizontal axis.
    pub(super) fn x_axis(&self, pixels: [f64; 2]) -> Axis {
        match self.sweeps() {
            true => Axis::of_sweep(&self.xs(), pixels),
            false => {
                let names: Vec<String> = self.series.iter().map(|s| s.short.clone()).collect();
                Axis::of_names(&names, pixels)
            }
        }
    }

    /// Where a spot stands on that axis.
    pub(super) fn x_of(&self, series: &Series<'_>, x: f64) -> f64 {
        match self.sweeps() {
            true => x,
            false => series.index as f64 + 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;
    use jostle_model::List;

    fn labels_of(chapter: &Chapter<'_>) -> Vec<String> {
        chapter.series.iter().map(|s| s.label.clone()).collect()
    }

    /// Runs of a stream of one target, by operations and workers.
    fn stream(points: &[(u64, u64)]) -> ResultSet {
        let mut set = made::set();
        set.experiment.plan.workload = Workload::Stream;
        set.experiment.plan.operations = Some(List(vec![1000]));
        set.runs.truncate(points.len());
        for (point, (operations, workers)) in set.runs.iter_mut().zip(points) {
            point.target = "flock".to_owned();
            point.at.operations = Some(*operations);
            point.at.workers = Some(*workers);
        }
        set
    }

    #[test]
    fn a_comparison_is_one_chapter_with_a_series_for_each_target() {
        let sets = [made::set()];
        let found = &chapters(&sets)[0];
        assert_eq!(labels_of(found), ["flock", "sysv"]);
        assert_eq!(found.swept, "workers");
        assert_eq!(found.xs(), [10.0, 1000.0]);
        assert_eq!(found.place(1000.0), "1,000 workers");
        assert!(found.sweeps());
    }

    #[test]
    fn what_varies_beside_the_axis_is_a_series_of_its_own() {
        let set = stream(&[(1000, 1), (1000, 2), (10_000, 1), (10_000, 2)]);
        let sets = [set];
        let found = &chapters(&sets)[0];
        assert_eq!(found.swept, "operations");
        assert_eq!(labels_of(found), ["flock · 1 worker", "flock · 2 workers"]);
        let workers_only = [stream(&[(1000, 1), (1000, 2), (1000, 4)])];
        assert_eq!(chapters(&workers_only)[0].swept, "workers");
    }

    #[test]
    fn several_experiments_are_overlaid_by_workload_and_told_apart() {
        let (old, mut new) = (made::set(), made::set());
        new.experiment.environment.kernel = "Linux 6.19".to_owned();
        let sets = [old, stream(&[(1000, 1)]), new];
        let found = chapters(&sets);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].sets, [0, 2]);
        assert_eq!(
            labels_of(&found[0]),
            [
                "flock · Linux 6.18",
                "flock · Linux 6.19",
                "sysv · Linux 6.18",
                "sysv · Linux 6.19"
            ]
        );
        // A target keeps its colour, an experiment its shape and dashes.
        let series = found[0].series.iter();
        let styles = series.map(|series| series.style.of_series(0));
        let expected = [(0, 0), (0, 1), (1, 0), (1, 1)];
        assert!(styles.eq(expected.map(|(target, set)| Style::numbered(target, set, set))));
        assert_eq!(labels_of(&found[1]), ["flock"]);
    }

    #[test]
    fn without_a_sweep_series_stand_side_by_side() {
        let sets = [made::counts_only()];
        let found = &chapters(&sets)[0];
        assert!(!found.sweeps());
        assert_eq!(found.x_of(&found.series[1], 2.0), 2.0);
        assert_eq!(found.x_axis([0.0, 200.0]).log_ticks.len(), 2);
    }

    #[test]
    fn distributions_are_found_by_their_form() {
        let set = made::set();
        let found: Vec<String> = times(&set.runs[0]).into_keys().collect();
        assert_eq!(found, ["handoff_ns", "hold_ns", "release_ns"]);
    }

    #[test]
    fn a_result_without_runs_is_a_chapter_without_series() {
        let mut set = made::set();
        set.runs.clear();
        assert!(chapters(&[set])[0].series.is_empty());
    }
}
