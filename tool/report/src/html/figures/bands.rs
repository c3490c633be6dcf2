//! Distributions against the sweep, a drawing for each series: percentiles as
//! bands, on the same axes, so that drawings can be compared.

use super::{
    BySpot, Cell, Chapter, Data, Drawing, Subject, chart, cross, draw_stretch, is_crowded, known,
    mark, panels, stretches, told,
};
use crate::html::chapter::{Series, Spot};
use crate::html::chart::{Chart, Look, Size};
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

/// Subject, field, title and note of those that have words of their own, in the order in which
/// they are read. Others follow under their names.
macro_rules! spreads {
    ($($subject:ident $field:literal $title:literal $note:literal;)*) => {
        &[$((Subject::$subject, $field, $title, $note)),*]
    };
}

static SPREADS: &[(Subject, &str, &str, &str)] = spreads! {
    Waiting "acquire_ns" "Time to acquire"
        "attempts that the end of the window cut short are accounted for";
    Waiting "response_ns" "Response time" "from the intended start";
    Waiting "connect_ns" "Time to connect" "in the call";
    Waiting "accept_ns" "Time to accept" "in the call";
    Waiting "close_ns" "Time to close" "in the call";
    Waiting "service_ns" "Time of a request" "from its sending to its answer";
    Waiting "batch_ns" "Time of a batch of requests" "from its sending to its last reply";
    HandOff "handoff_ns" "Hand-off" "from a release to the grant of one who was waiting";
    HandOff "handoff_same_cpu_ns" "Hand-off on one CPU" "both owners ran on the same";
    HandOff "handoff_cross_cpu_ns" "Hand-off between two CPUs" "the owners ran on different ones";
    Other "release_ns" "Time to release" "in the call";
    Other "release_batch_ns" "Time to release a batch" "from its sending to its last reply";
    Other "hold_ns" "Time for which the lock was held" "as it was, beside what was asked for";
    Other "failed_try_ns" "Time of a refused try" "in the call";
};

/// The one with censored values.
const WAITS: &str = "acquire_ns";

/// Of this subject, in order, those without words of their own last.
fn spreads(chapter: &Chapter<'_>, subject: Subject) -> Vec<Spread> {
    let worded = SPREADS.iter().filter(|(of, ..)| *of == subject);
    let mut spreads: Vec<Spread> = worded
        .map(|(_, field, title, note)| Spread {
            field: (*field).to_owned(),
            title: (*title).to_owned(),
            note,
        })
        .collect();
    if subject == Subject::Other {
        let spots = chapter.series.iter().flat_map(|series| &series.spots);
        let fields = spots.flat_map(|spot| spot.times.iter().flat_map(BTreeMap::keys));
        let unworded = |field: &&String| SPREADS.iter().all(|(_, known, ..)| known != field);
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
    let timed = spot.point.timed.iter();
    match spread.field.as_str() {
        WAITS => timed.filter_map(|run| waits(run)).collect(),
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
pub(super) fn figures(chapter: &Chapter<'_>, subject: Subject) -> Vec<Drawing> {
    let spreads = spreads(chapter, subject);
    let mut figures: Vec<Drawing> = spreads.iter().filter_map(|s| figure(chapter, s)).collect();
    // Where all hand-offs were of one kind, that kind's figure is the first again.
    if subject == Subject::HandOff && figures.len() == 2 {
        figures.truncate(1);
    }
    figures
}

fn figure(chapter: &Chapter<'_>, spread: &Spread) -> Option<Drawing> {
    let levels = known(chapter, |spot| {
        let levels = match spot.point.times_are_usable() {
            true => over_runs(spread, spot),
            false => Levels::new(),
        };
        (!levels.is_empty()).then_some(levels)
    });
    let series = told(chapter, &levels)?;
    let charts = panels(chapter, &series, |size, shown| {
        draw(chapter, spread, size, &levels, shown)
    });
    Some(Drawing {
        title: spread.title.clone(),
        note: spread.note.to_owned(),
        charts,
        data: table(chapter, &levels),
    })
}

/// `all` makes the axis, `shown` is drawn.
fn draw(
    chapter: &Chapter<'_>,
    spread: &Spread,
    size: Size,
    all: &BySpot<Levels>,
    shown: &[&Series<'_>],
) -> maud::Markup {
    let longest = if chapter.sweeps() { 5 } else { 0 };
    let values = all.values().flat_map(BTreeMap::values);
    let values: Vec<f64> = values.map(|(value, _)| *value).collect();
    let mut chart = chart(chapter, size, (longest, 0), NANOS, &values);
    let mut drawn = all.clone();
    if is_crowded(chapter) {
        let few = |levels: &mut Levels| levels.retain(|name, _| FEW.contains(name));
        drawn.values_mut().for_each(few);
    }
    for series in shown {
        draw_series(&mut chart, chapter, series, &drawn);
    }
    let whose = match shown {
        [series] => format!("{} of {}", spread.title, series.label),
        _ => spread.title.clone(),
    };
    chart.draw(&format!("{whose}, by {}", chapter.swept_words()))
}

fn draw_series(
    chart: &mut Chart,
    chapter: &Chapter<'_>,
    series: &Series<'_>,
    all: &BySpot<Levels>,
) {
    let class = series.style.colour();
    let none = Levels::new();
    let levels_of = |spot: &Spot<'_>| all.get(&spot.number).unwrap_or(&none);
    for stretch in stretches(series) {
        let levels: Vec<&Levels> = stretch.iter().map(levels_of).collect();
        let xs: Vec<f64> = stretch.iter().map(|s| chapter.x_of(series, s.x)).collect();
        areas(chart, &class, &xs, &levels);
        for (name, _) in NAMES {
            let class = format!("{class} {name}");
            let kind = match name {
                "p50" => (series.style.dashes(), true),
                _ => ("none", false),
            };
            let value = |spot: &Spot<'_>| Some(levels_of(spot).get(name)?.0);
            draw_stretch(chart, (chapter, series, stretch), &class, kind, value);
        }
        if let [x] = xs[..] {
            upright(chart, &class, x, levels[0]);
        }
    }
    for spot in &series.spots {
        marks(chart, chapter, series, spot, levels_of(spot));
    }
    let known = series.spots.iter().rev();
    let last = known
        .filter_map(|spot| Some((spot, all.get(&spot.number)?)))
        .next();
    for (name, label) in NAMES.iter().filter(|_| chapter.sweeps()) {
        if let Some((spot, (value, _))) = last.and_then(|(spot, of)| Some((spot, of.get(name)?))) {
            chart.label("quiet", (chapter.x_of(series, spot.x), *value), label);
        }
    }
}

/// The bands between neighbouring percentiles. Between two points a band is
/// bounded by percentiles that both have.
fn areas(chart: &mut Chart, class: &str, xs: &[f64], levels: &[&Levels]) {
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
    let known = NAMES.iter();
    let known = known.filter_map(|(name, _)| Some((*name, levels.get(name)?.0)));
    let known: Vec<(&str, f64)> = known.collect();
    for pair in known.windows(2) {
        let ends = (pair[0].1, pair[1].1);
        chart.bar(&format!("{class} to-{}", pair[1].0), x, ends, 0.0);
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
        let mut own = mark(spot, (x, *value));
        if *bound {
            own.look = Look::AtLeast;
        }
        if *bound || *name == "p50" {
            chart.marks(series.style, 0.0, &[own]);
        }
    }
}

fn table(chapter: &Chapter<'_>, all: &BySpot<Levels>) -> Data {
    let measured =
        |(name, _): &&(&'static str, &str)| all.values().any(|levels| levels.contains_key(name));
    let names: Vec<(&str, &str)> = NAMES.iter().filter(measured).copied().collect();
    let columns = names.iter().map(|(_, label)| (*label).to_owned());
    super::data(chapter, columns.collect(), |_, spot| {
        let levels = all.get(&spot.number)?;
        let cell = |(name, _): &(&str, &str)| match levels.get(name) {
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
    use crate::html::chart::frame;
    use crate::html::scale::Axis;
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
        areas(&mut chart, "c0", &[1.0, 2.0, 3.0], &[&full, &full, &short]);
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
