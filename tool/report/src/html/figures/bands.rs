//! Distributions against the sweep, a drawing for each series: percentiles as
//! bands, on the same axes, so that drawings can be compared.

use super::medians::x_title;
use super::{
    Cell, Chapter, Data, Figure, Subject, cross, is_crowded, lone, mark, panels, stretches,
};
use crate::html::chapter::{Series, Spot};
use crate::html::chart::{Chart, Look, Mark, Size, frame};
use crate::html::scale::Axis;
use crate::html::units::Unit;
use jostle_model::record::{Distribution, Run};
use jostle_stats::intervals::median;
use std::collections::{BTreeMap, BTreeSet};

/// A distribution of the record.
#[derive(Clone, Debug)]
struct Spread {
    /// Its name there.
    field: String,
    title: String,
    note: &'static str,
}

/// Percentiles of one run by name, each with whether it is a lower bound.
type Levels = BTreeMap<&'static str, (f64, bool)>;

/// From below. As the record names them, and as they are labelled.
const NAMES: [(&str, &str); 5] = [
    ("p50", "p50"),
    ("p90", "p90"),
    ("p99", "p99"),
    ("p999", "p99.9"),
    ("max", "max"),
];
/// Those of a drawing among many; the table has all.
const FEW: [&str; 3] = ["p50", "p99", "max"];
const NANOS: Unit = Unit::Time(1.0);

/// Field, subject, title and note of those that have words of their own, in the
/// order in which they are read. Others follow under their names.
static SPREADS: &[(&str, Subject, &str, &str)] = &[
    (
        WAITS,
        Subject::Waiting,
        "Time to acquire",
        "attempts that the end of the window cut short are accounted for",
    ),
    (
        "response_ns",
        Subject::Waiting,
        "Response time",
        "from the intended start",
    ),
    (
        "connect_ns",
        Subject::Waiting,
        "Time to connect",
        "in the call",
    ),
    (
        "accept_ns",
        Subject::Waiting,
        "Time to accept",
        "in the call",
    ),
    ("close_ns", Subject::Waiting, "Time to close", "in the call"),
    (
        "service_ns",
        Subject::Waiting,
        "Time of a request",
        "from its sending to its answer",
    ),
    (
        "batch_ns",
        Subject::Waiting,
        "Time of a batch of requests",
        "from its sending to its last reply",
    ),
    (
        "handoff_ns",
        Subject::HandOff,
        "Hand-off",
        "from a release to the grant of one who was waiting",
    ),
    (
        "handoff_same_cpu_ns",
        Subject::HandOff,
        "Hand-off on one CPU",
        "both owners ran on the same",
    ),
    (
        "handoff_cross_cpu_ns",
        Subject::HandOff,
        "Hand-off between two CPUs",
        "the owners ran on different ones",
    ),
    (
        "release_ns",
        Subject::Other,
        "Time to release",
        "in the call",
    ),
    (
        "release_batch_ns",
        Subject::Other,
        "Time to release a batch",
        "from its sending to its last reply",
    ),
    (
        "hold_ns",
        Subject::Other,
        "Time for which the lock was held",
        "as it was, beside what was asked for",
    ),
    (
        "failed_try_ns",
        Subject::Other,
        "Time of a refused try",
        "in the call",
    ),
];

/// The one with censored values.
const WAITS: &str = "acquire_ns";

/// Of this subject, in order, those without words of their own last.
fn spreads(chapter: &Chapter<'_>, subject: Subject) -> Vec<Spread> {
    let worded = SPREADS.iter().filter(|(_, of, ..)| *of == subject);
    let mut spreads: Vec<Spread> = worded
        .map(|(field, _, title, note)| Spread {
            field: (*field).to_owned(),
            title: (*title).to_owned(),
            note,
        })
        .collect();
    if subject == Subject::Other {
        let spots = chapter.series.iter().flat_map(|series| &series.spots);
        let fields = spots.flat_map(|spot| spot.times.iter().flat_map(BTreeMap::keys));
        let unworded = |field: &&String| SPREADS.iter().all(|(known, ..)| known != field);
        let fields: BTreeSet<&String> = fields.filter(unworded).collect();
        spreads.extend(fields.into_iter().map(|field| Spread {
            field: field.clone(),
            title: field.trim_end_matches("_ns").replace('_', " "),
            note: "as the record has it",
        }));
    }
    spreads
}

/// Of each run.
fn of_runs(spread: &Spread, spot: &Spot<'_>) -> Vec<Levels> {
    match spread.field.as_str() {
        WAITS => spot
            .point
            .timed
            .iter()
            .filter_map(|run| waits(run))
            .collect(),
        field => {
            let found = spot.times.iter().filter_map(|times| times.get(field));
            found.map(plain).collect()
        }
    }
}

fn plain(distribution: &Distribution) -> Levels {
    let percentile = |(name, _): &(&'static str, &str)| {
        let value = distribution.percentiles.get(name)?;
        Some((*name, (*value as f64, false)))
    };
    let mut levels: Levels = NAMES.iter().filter_map(percentile).collect();
    levels.insert("max", (distribution.max as f64, false));
    levels
}

/// Waits: the percentiles to quote are those that account for attempts that
/// had not ended, and so is the longest.
fn waits(run: &Run) -> Option<Levels> {
    let waits = run.acquire_ns.as_ref()?;
    let level = |(name, _): &(&'static str, &str)| {
        let reached = waits.kaplan_meier.get(name).map(|v| (*v as f64, false));
        let bound = || waits.at_least.get(name).map(|v| (*v as f64, true));
        Some((*name, reached.or_else(bound)?))
    };
    let mut levels: Levels = NAMES.iter().filter_map(level).collect();
    let granted = (waits.granted.count > 0).then_some(waits.granted.max);
    let pending = run.per_worker.and_then(|shares| shares.longest_wait_ns);
    if let Some(longest) = granted.max(pending) {
        levels.insert("max", (longest as f64, false));
    }
    (!levels.is_empty()).then_some(levels)
}

/// Over the runs of a point: medians, and the greatest of all. A percentile
/// that most runs were too short for is left out; where some know only a
/// bound, the median is a bound.
fn over_runs(spread: &Spread, spot: &Spot<'_>) -> Levels {
    let runs = of_runs(spread, spot);
    let mut levels = Levels::new();
    for (name, _) in NAMES {
        let known: Vec<(f64, bool)> = runs.iter().filter_map(|r| r.get(name).copied()).collect();
        if known.is_empty() || 2 * known.len() < runs.len() {
            continue;
        }
        let values: Vec<f64> = known.iter().map(|(value, _)| *value).collect();
        let value = match name {
            "max" => values.into_iter().reduce(f64::max),
            _ => median(&values),
        };
        let bound = known.iter().any(|(_, bound)| *bound);
        levels.extend(value.map(|value| (name, (value, bound))));
    }
    levels
}

/// Those of this subject that were measured.
pub(super) fn figures(chapter: &Chapter<'_>, subject: Subject) -> Vec<Figure> {
    let spreads = spreads(chapter, subject);
    let mut figures: Vec<Figure> = spreads.iter().filter_map(|s| figure(chapter, s)).collect();
    // Where all hand-offs were of one kind, that kind's figure is the first again.
    if subject == Subject::HandOff && figures.len() == 2 {
        figures.truncate(1);
    }
    figures
}

fn figure(chapter: &Chapter<'_>, spread: &Spread) -> Option<Figure> {
    let levels = |series: &Series<'_>| -> Vec<Levels> {
        let of = |spot: &Spot<'_>| match spot.point.times_are_usable() {
            true => over_runs(spread, spot),
            false => Levels::new(),
        };
        series.spots.iter().map(of).collect()
    };
    // A series of INVALID points alone has a drawing too, which says so.
    let told = |levels: &[Levels]| levels.iter().any(|levels| !levels.is_empty());
    let all: Vec<(&Series<'_>, Vec<Levels>)> = chapter
        .series
        .iter()
        .map(|series| (series, levels(series)))
        .filter(|(series, levels)| told(levels) || series.spots.iter().any(|s| !s.usable()))
        .collect();
    if !all.iter().any(|(_, levels)| told(levels)) {
        return None;
    }
    let charts = panels(chapter, &all, |size, shown| {
        draw(chapter, spread, size, &all, shown)
    });
    Some(Figure {
        title: spread.title.clone(),
        note: spread.note.to_owned(),
        charts,
        data: table(chapter, &all),
    })
}

type OfSeries<'s, 'a> = (&'s Series<'a>, Vec<Levels>);

/// `all` makes the axis, `shown` is drawn.
fn draw(
    chapter: &Chapter<'_>,
    spread: &Spread,
    size: Size,
    all: &[OfSeries<'_, '_>],
    shown: &[&OfSeries<'_, '_>],
) -> maud::Markup {
    let longest = if chapter.sweeps() { 5 } else { 0 };
    let (across, up) = frame(size, longest);
    let values: Vec<f64> = all
        .iter()
        .flat_map(|(_, levels)| levels)
        .flat_map(|levels| levels.values().map(|(value, _)| *value))
        .collect();
    let x = (chapter.x_axis(across), x_title(chapter));
    let y = (
        Axis::of_values(NANOS, &values, up),
        NANOS.title().to_owned(),
    );
    let mut chart = Chart::new(size, longest, x, y);
    for (series, levels) in shown {
        let mut levels = levels.clone();
        if is_crowded(chapter) {
            let drawn = |levels: &mut Levels| levels.retain(|name, _| FEW.contains(name));
            levels.iter_mut().for_each(drawn);
        }
        draw_series(&mut chart, chapter, series, &levels);
    }
    let whose = match shown {
        [(series, _)] => format!("{} of {}", spread.title, series.label),
        _ => spread.title.clone(),
    };
    chart.draw(&format!("{whose}, by {}", chapter.swept_words()))
}

fn draw_series(chart: &mut Chart, chapter: &Chapter<'_>, series: &Series<'_>, levels: &[Levels]) {
    let class = series.style.colour();
    for stretch in stretches(series) {
        let first = series.spots.iter().position(|spot| spot.x == stretch[0].x);
        let levels = &levels[first.unwrap_or(0)..][..stretch.len()];
        let xs: Vec<f64> = stretch.iter().map(|s| chapter.x_of(series, s.x)).collect();
        areas(chart, &class, &xs, levels);
        for (name, _) in NAMES {
            let known = xs.iter().zip(levels);
            let known: Vec<(f64, Option<f64>)> = known
                .map(|(x, levels)| (*x, levels.get(name).map(|level| level.0)))
                .collect();
            let shown = stretch.iter().zip(&known);
            let (says, line): (Vec<String>, Vec<(f64, f64)>) = shown
                .filter_map(|(spot, (x, y))| Some((spot.number.to_string(), (*x, (*y)?))))
                .unzip();
            let dashes = if name == "p50" {
                series.style.dashes()
            } else {
                "none"
            };
            // The marks of the median tell the same.
            let says = if name == "p50" { Vec::new() } else { says };
            chart.telling(&format!("{class} {name}"), dashes, &line, &says);
            if name != "p50" {
                for at in lone(&known) {
                    let (x, y) = known[at];
                    let point = (x, y.unwrap_or_default());
                    chart.tick(
                        &format!("{class} {name}"),
                        point,
                        stretch[at].number.to_string(),
                    );
                }
            }
        }
        if let [x] = xs[..] {
            upright(chart, &class, x, &levels[0]);
        }
    }
    for (spot, levels) in series.spots.iter().zip(levels) {
        marks(chart, chapter, series, spot, levels);
    }
    let last = levels.iter().rposition(|levels| !levels.is_empty());
    for (name, label) in NAMES.iter().filter(|_| chapter.sweeps()) {
        if let Some((at, (value, _))) = last.and_then(|at| Some((at, levels[at].get(name)?))) {
            let x = chapter.x_of(series, series.spots[at].x);
            chart.label("quiet", (x, *value), label);
        }
    }
}

/// The bands between neighbouring percentiles. Between two points a band is
/// bounded by percentiles that both have.
fn areas(chart: &mut Chart, class: &str, xs: &[f64], levels: &[Levels]) {
    let pairs = |at: usize| -> Vec<(&str, &str)> {
        let common = |(name, _): &(&'static str, &str)| {
            let both = levels[at].contains_key(name) && levels[at + 1].contains_key(name);
            both.then_some(*name)
        };
        let common: Vec<&str> = NAMES.iter().filter_map(common).collect();
        common.windows(2).map(|pair| (pair[0], pair[1])).collect()
    };
    for (low, _) in NAMES {
        for (high, _) in NAMES {
            let mut at = 0;
            while at + 1 < xs.len() {
                let from = at;
                while at + 1 < xs.len() && pairs(at).contains(&(low, high)) {
                    at += 1;
                }
                if at > from {
                    let edge = |n: usize| (xs[n], levels[n][low].0, levels[n][high].0);
                    let edges: Vec<(f64, f64, f64)> = (from..=at).map(edge).collect();
                    chart.area(&format!("{class} to-{high}"), &edges);
                } else {
                    at += 1;
                }
            }
        }
    }
}

/// Without a neighbour there is no band, but a bar from each percentile to the
/// next.
fn upright(chart: &mut Chart, class: &str, x: f64, levels: &Levels) {
    let known: Vec<(&str, f64)> = NAMES
        .iter()
        .filter_map(|(name, _)| Some((*name, levels.get(name)?.0)))
        .collect();
    for pair in known.windows(2) {
        chart.bar(
            &format!("{class} to-{}", pair[1].0),
            x,
            (pair[0].1, pair[1].1),
            0.0,
        );
    }
}

fn marks(
    chart: &mut Chart,
    chapter: &Chapter<'_>,
    series: &Series<'_>,
    spot: &Spot<'_>,
    levels: &Levels,
) {
    let x = chapter.x_of(series, spot.x);
    if !spot.usable() {
        chart.marks(series.style, 0.0, &[cross(spot, x)]);
        return;
    }
    for (name, (value, bound)) in levels {
        let own = mark(spot, (x, *value));
        match (*name, *bound) {
            (_, true) => chart.marks(
                series.style,
                0.0,
                &[Mark {
                    look: Look::AtLeast,
                    ..own
                }],
            ),
            ("p50", _) => chart.marks(series.style, 0.0, &[own]),
            _ => {}
        }
    }
}

fn table(chapter: &Chapter<'_>, all: &[OfSeries<'_, '_>]) -> Data {
    let measured = |(name, _): &&(&'static str, &str)| {
        let mut levels = all.iter().flat_map(|(_, levels)| levels);
        levels.any(|levels| levels.contains_key(name))
    };
    let names: Vec<(&str, &str)> = NAMES.iter().filter(measured).copied().collect();
    let columns = names.iter().map(|(_, label)| (*label).to_owned());
    super::data(chapter, columns.collect(), |series, spot| {
        let (_, levels) = all.iter().find(|(other, _)| other.index == series.index)?;
        let at = series.spots.iter().position(|other| other.x == spot.x)?;
        let cell = |(name, _): &(&str, &str)| match levels[at].get(name) {
            None => Cell::None,
            Some((value, false)) => Cell::Figure(NANOS.exact(*value)),
            Some((value, true)) => Cell::Figure(format!("≥ {}", NANOS.exact(*value))),
        };
        Some(names.iter().map(cell).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::chapter::chapters;
    use crate::made;
    use jostle_model::record::Percentiles;

    /// Of the first point, whose six runs have these releases (p50, p99, max)
    /// and waits (p99, reached or a bound).
    fn levels(releases: &[(u64, Option<u64>, u64)], waits: &[(u64, bool)]) -> [Levels; 2] {
        let mut set = made::set();
        set.runs
            .retain(|p| p.target == "flock" && p.at.workers == Some(10));
        for (point, (p50, p99, max)) in set.runs.iter_mut().zip(releases) {
            let release = point.times.release_ns.as_mut().unwrap();
            release.max = *max;
            let p99 = p99.map(|p99| ("p99", p99));
            release.percentiles = [("p50", *p50)].into_iter().chain(p99).collect();
        }
        for (point, (p99, bound)) in set.runs.iter_mut().zip(waits) {
            let acquire = point.acquire_ns.as_mut().unwrap();
            let known = [("p99", *p99)].into();
            (acquire.at_least, acquire.kaplan_meier) = match bound {
                true => (known, Percentiles::default()),
                false => (Percentiles::default(), known),
            };
        }
        let sets = [set];
        let chapter = &chapters(&sets)[0];
        let all = [Subject::Other, Subject::Waiting].map(|subject| spreads(chapter, subject));
        let find = |field: &str| all.iter().flatten().find(|s| s.field == field).unwrap();
        let spot = &chapter.series[0].spots[0];
        [find("release_ns"), find(WAITS)].map(|spread| over_runs(spread, spot))
    }

    #[test]
    fn over_the_runs_it_is_medians_and_the_greatest_of_all() {
        let releases = [(5, None, 70), (1, Some(9), 900), (3, Some(7), 80)];
        let more = [(2, Some(8), 70), (4, None, 70), (9, None, 70)];
        let [of_release, _] = levels(&[releases, more].concat(), &[]);
        let expected = [
            ("max", (900.0, false)),
            ("p50", (3.5, false)),
            ("p99", (8.0, false)),
        ];
        assert_eq!(of_release, expected.into());
    }

    #[test]
    fn what_most_runs_could_not_tell_is_left_out() {
        let releases = [(5, Some(9), 70), (5, Some(9), 70), (5, None, 70)];
        let more = [(5, None, 70), (5, None, 70), (5, None, 70)];
        let [of_release, _] = levels(&[releases, more].concat(), &[]);
        assert!(!of_release.contains_key("p99") && of_release.contains_key("p50"));
    }

    #[test]
    fn where_some_runs_know_a_bound_the_median_is_one() {
        let mut waits = [(10, false); 6];
        assert_eq!(levels(&[], &waits)[1]["p99"], (10.0, false));
        waits[4] = (12, true);
        assert_eq!(levels(&[], &waits)[1]["p99"], (10.0, true));
    }

    #[test]
    fn bands_lie_between_percentiles_that_both_neighbours_have() {
        let size = (300.0, 200.0);
        let (across, up) = frame(size, 0);
        let x = (Axis::of_sweep(&[1.0, 2.0, 3.0], across), String::new());
        let y = (Axis::of_values(NANOS, &[1.0, 9.0], up), String::new());
        let mut chart = Chart::new(size, 0, x, y);
        let full: Levels = [
            ("p50", (1.0, false)),
            ("p99", (4.0, false)),
            ("max", (9.0, false)),
        ]
        .into();
        let mut short = full.clone();
        short.remove("p99");
        areas(
            &mut chart,
            "c0",
            &[1.0, 2.0, 3.0],
            &[full.clone(), full, short],
        );
        let svg = chart.draw("").into_string();
        let vertices = |class: &str| -> Vec<usize> {
            let class = format!("class=\"area c0 to-{class}\"");
            let paths = svg.split(&class).skip(1);
            let shown = paths.map(|path| path.split('"').nth(1).unwrap());
            shown.map(|d| d.matches(['M', 'L']).count()).collect()
        };
        // p50 to p99 and p99 to max between the first two, p50 to max after.
        assert_eq!(vertices("p99"), [4]);
        assert_eq!(vertices("max"), [4, 4]);
    }
}
