//! Figures with one value for each run, all series in one drawing: the median
//! over the runs, its interval, and each run.

use super::{
    BySpot, Cell, Chapter, Drawing, LARGE, SMALL, Subject, beside, chart, cross, data,
    draw_stretch, is_crowded, known, mark, overlaid, stretches,
};
use crate::closing::spread::rival;
use crate::html::chapter::{Series, Spot};
use crate::html::chart::{Chart, Size};
use crate::html::units::Unit;
use jostle_model::plan::Workload;
use jostle_model::record::LimitedBy;
use jostle_stats::figures::{self, FIGURES, Figure, Topic};
use jostle_stats::intervals::{estimate, median};
use jostle_stats::summary::Estimate;
use std::collections::BTreeSet;

/// The subject of a figure's drawing.
fn subject(figure: &Figure) -> Subject {
    match figure.topic {
        Topic::Rates | Topic::Costs | Topic::Kept => Subject::Cost,
        Topic::Fairness => Subject::Fairness,
        _ => Subject::Machine,
    }
}

/// Those of this subject that were measured.
pub(super) fn figures(chapter: &Chapter<'_>, subject: Subject) -> Vec<Drawing> {
    let is_large = subject == Subject::Cost || chapter.longest_label() > LONG_LABEL;
    let size = if is_large { LARGE } else { SMALL };
    let drawn = FIGURES.iter().filter(|of| !of.title.is_empty());
    let of_it = drawn.filter(|of| self::subject(of) == subject);
    of_it.filter_map(|of| figure(chapter, of, size)).collect()
}

/// The figure of this title, large; None where it was not measured.
pub(crate) fn large(chapter: &Chapter<'_>, title: &str) -> Option<Drawing> {
    let of = FIGURES.iter().find(|of| of.title == title)?;
    figure(chapter, of, LARGE).filter(|figure| !figure.charts.is_empty())
}

/// A figure over the runs of a spot, and of each.
type Runs = (Estimate, Vec<f64>);

fn runs(of: &Figure, spot: &Spot<'_>) -> Option<Runs> {
    let runs = spot.point.each(of);
    Some((estimate(&runs)?, runs))
}

fn figure(chapter: &Chapter<'_>, of: &Figure, size: Size) -> Option<Drawing> {
    let unit = chapter.unit(of);
    let found = known(chapter, |spot| runs(of, spot));
    if found.is_empty() {
        return None;
    }
    let mut each = found.values().flat_map(|(_, runs)| runs);
    let all_zero = each.all(|value| *value == 0.0);
    let title = of.title.replace("operation", chapter.noun());
    let note = match all_zero {
        true => format!("{} at every point", unit.exact(0.0)),
        false if !limits(chapter).is_empty() && is_throughput(of) => {
            "higher is better; above each point: what the limit was (g: the generators, s: the server, \
             m: the machine, p: the path)"
                .to_owned()
        }
        false => of.note.to_owned(),
    };
    let charts = match all_zero {
        true => Vec::new(),
        false => overlaid(chapter, size, |size, shown| {
            draw(chapter, of, (&title, size), &found, shown)
        }),
    };
    Some(Drawing {
        title,
        note,
        charts,
        data: table(chapter, unit, &found),
    })
}

/// Points of a series up to which the single runs are drawn: beyond, dots of
/// neighbours hide each other, and the bars say as much.
const DOTTED: usize = 40;

/// Labels so long need room beside a small drawing.
const LONG_LABEL: usize = 14;

fn is_throughput(of: &Figure) -> bool {
    of.name == figures::THROUGHPUT.name
}

fn draw(
    chapter: &Chapter<'_>,
    of: &Figure,
    (title, size): (&str, Size),
    found: &BySpot<Runs>,
    shown: &[&Series<'_>],
) -> maud::Markup {
    let unit = chapter.unit(of);
    let (ideals, mut limits) = match is_throughput(of) {
        true => (ideals(chapter, shown), limits(chapter)),
        false => (Vec::new(), Vec::new()),
    };
    limits.retain(|(series, _)| shown.iter().any(|one| one.index == series.index));
    let longest = match is_crowded(chapter) {
        true => 0,
        false => chapter.longest_label(),
    };
    let longest = match ideals.is_empty() {
        true => longest,
        // The word `ideal` or `offered`.
        false => longest.max(7),
    };
    let each = found.values().flat_map(|(_, runs)| runs);
    let ideal = ideals.iter().flatten().map(|(_, y)| y);
    let values: Vec<f64> = each.chain(ideal).copied().collect();
    let mut chart = chart(chapter, size, (longest, limits.len()), unit, &values);
    for (row, (series, words)) in limits.iter().enumerate() {
        chart.row(row, series.style);
        for (x, word) in words {
            chart.tag(&series.style.colour(), row, *x, word);
        }
    }
    for ideal in &ideals {
        match ideal.as_slice() {
            [(x, y)] => chart.line("ideal", "5 4", &[(x - 0.4, *y), (x + 0.4, *y)]),
            points => chart.line("ideal", "5 4", points),
        }
    }
    // One word for all of them, at the highest; of small multiples in the first.
    let is_first = !is_crowded(chapter) || shown.first().is_some_and(|one| one.index == 0);
    let ends = ideals.iter().filter_map(|ideal| ideal.last().copied());
    let highest = ends.max_by(|one, other| one.1.total_cmp(&other.1));
    if let Some(end) = highest.filter(|_| chapter.sweeps() && is_first) {
        let word = match chapter.workload {
            Workload::Rate => "offered",
            _ => "ideal",
        };
        chart.label("ideal", end, word);
    }
    for series in shown {
        draw_series(&mut chart, chapter, series, found);
    }
    chart.draw(&format!("{title}, by {}", chapter.swept_words()))
}

fn draw_series(
    chart: &mut Chart,
    chapter: &Chapter<'_>,
    series: &Series<'_>,
    found: &BySpot<Runs>,
) {
    let class = series.style.colour();
    let by = beside(chapter, series);
    let spots = series.spots.iter();
    let of_series = spots.filter_map(|spot| Some((spot, found.get(&spot.number)?)));
    let of_series: Vec<(&Spot<'_>, &Runs)> = of_series.collect();
    for stretch in stretches(series) {
        let kind = (series.style.dashes(), true);
        let value = |spot: &Spot<'_>| Some(found.get(&spot.number)?.0.median);
        draw_stretch(chart, (chapter, series, stretch), &class, kind, value);
    }
    for (spot, (over_runs, runs)) in &of_series {
        let x = chapter.x_of(series, spot.x);
        let runs: Vec<(f64, f64)> = runs.iter().map(|y| (x, *y)).collect();
        if runs.len() > 1 && of_series.len() <= DOTTED && !is_crowded(chapter) {
            chart.dots(&class, &runs, by);
        }
        if runs.len() > 1 {
            chart.bar(&class, x, (over_runs.low, over_runs.high), by);
        }
        chart.marks(series.style, by, &[mark(spot, (x, over_runs.median))]);
    }
    for spot in series.spots.iter().filter(|spot| !spot.usable()) {
        let cross = cross(spot, chapter.x_of(series, spot.x));
        chart.marks(series.style, by, &[cross]);
    }
    let named = chapter.sweeps() && !is_crowded(chapter);
    if let Some((last, (over_runs, _))) = of_series.last().filter(|_| named) {
        let end = (chapter.x_of(series, last.x), over_runs.median);
        chart.label(&class, end, &series.short);
    }
}

/// Rows of words above a drawing, at most.
const ROWS: usize = 4;

/// Of each series, and of each of its points, what the limit was.
type Limits<'s, 'a> = Vec<(&'s Series<'a>, Vec<(f64, &'static str)>)>;

/// Of generators: which side was the limit at each point.
fn limits<'s, 'a>(chapter: &'s Chapter<'a>) -> Limits<'s, 'a> {
    if chapter.workload != Workload::Spread || !chapter.sweeps() {
        return Vec::new();
    }
    let of_spot = |spot: &Spot<'_>| {
        let word = match spot.point.limited_by()? {
            LimitedBy::Generator if rival(&spot.point).is_some() => "?",
            LimitedBy::Generator => "gen.",
            LimitedBy::Target => "server",
            LimitedBy::Path => "path",
            LimitedBy::Machine => "machine",
            LimitedBy::Undecided => "?",
        };
        Some((spot.x, word))
    };
    let series = chapter.series.iter().take(ROWS);
    series
        .map(|series| (series, series.spots.iter().filter_map(of_spot).collect()))
        .collect()
}

/// The bound that nothing could exceed: one line where it is equal for all series, else one for
/// each.
fn ideals(chapter: &Chapter<'_>, shown: &[&Series<'_>]) -> Vec<Vec<(f64, f64)>> {
    let line = |series: &Series<'_>| -> Vec<(f64, f64)> {
        let usable = series.spots.iter().filter(|spot| spot.usable());
        let ceiling = |spot: &Spot<'_>| {
            if chapter.workload == Workload::Rate && chapter.swept == "rate" {
                return Some((chapter.x_of(series, spot.x), spot.x));
            }
            let runs = spot.point.runs.iter().filter_map(|run| run.ceiling_per_s);
            let over_runs = median(runs)?;
            Some((chapter.x_of(series, spot.x), over_runs))
        };
        usable.filter_map(ceiling).collect()
    };
    let lines: Vec<Vec<(f64, f64)>> = shown.iter().copied().map(line).collect();
    let mut all = lines.concat();
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    all.dedup();
    let the_same = all.windows(2).all(|pair| pair[0].0 != pair[1].0);
    let lines = if the_same { vec![all] } else { lines };
    lines.into_iter().filter(|line| !line.is_empty()).collect()
}

/// Without the single runs where there are too many points to draw them.
fn table(chapter: &Chapter<'_>, unit: Unit, found: &BySpot<Runs>) -> super::Data {
    let crowded = is_crowded(chapter);
    let kind = |(over, _): &Runs| match (over.runs, over.interval) {
        (1, _) => "one run".to_owned(),
        (runs, true) => format!("95 % interval of {runs} runs"),
        (runs, false) => format!("range of {runs} runs"),
    };
    // Said once where it is the same for all.
    let kinds: BTreeSet<String> = found.values().map(kind).collect();
    let one = kinds.first().filter(|_| kinds.len() == 1);
    let mut columns = vec![unit.heading("median")];
    columns.push(one.map_or_else(|| "from".to_owned(), |kind| format!("{kind}, from")));
    columns.push("to".to_owned());
    columns.extend(one.is_none().then(|| "of".to_owned()));
    columns.extend((!crowded).then(|| "each run".to_owned()));
    data(chapter, columns, |_, spot| {
        let known = found.get(&spot.number)?;
        let (over, runs) = known;
        let ends = [over.median, over.low, over.high];
        let mut cells = ends.map(|value| Cell::Figure(unit.cell(value))).to_vec();
        cells.extend(one.is_none().then(|| Cell::text(kind(known))));
        let runs: Vec<String> = runs.iter().map(|v| unit.cell(*v)).collect();
        cells.extend((!crowded).then(|| Cell::text(runs.join(" · "))));
        Some(cells)
    })
}
