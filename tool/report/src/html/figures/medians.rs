//! Figures with one value for each run, all series in one drawing: the median
//! over the runs, its interval, and each run.

use super::{
    Cell, Chapter, Drawing, Known, LARGE, SMALL, Subject, beside, chart, cross, data, draw_stretch,
    is_crowded, known, mark, overlaid, stretches,
};
use crate::html::chapter::{Series, Spot};
use crate::html::chart::{Chart, Size};
use crate::html::units::Unit;
use jostle_model::plan::Workload;
use jostle_model::record::{LimitedBy, PerWorker, Run};
use jostle_stats::figures::{self, Over};
use jostle_stats::intervals::{estimate, median};
use jostle_stats::summary::Estimate;
use std::collections::BTreeSet;

/// One figure over the sweep.
struct Measure {
    subject: Subject,
    title: &'static str,
    note: &'static str,
    unit: fn(&Chapter<'_>) -> Unit,
    /// Of one run; None where it was not measured.
    of: fn(&Run) -> Option<f64>,
}

/// In the order in which they are read.
static MEASURES: &[Measure] = &[
    Measure {
        subject: Subject::Cost,
        title: "Throughput",
        note: "higher is better",
        unit: |chapter| Unit::PerSecond(chapter.per_second()),
        of: figures::THROUGHPUT.of,
    },
    Measure {
        subject: Subject::Cost,
        title: "CPU time of the workers for one operation",
        note: "waiting included; lower is better",
        unit: |_| Unit::Time(1e3),
        of: figures::CPU.of,
    },
    Measure {
        subject: Subject::Cost,
        title: "Time for one operation, all workers together",
        note: "the run by its operations; level where cost is linear in their number",
        unit: |_| Unit::Time(1e9),
        of: |run| {
            let counted = run.per_worker.is_none() && run.operations > 0;
            counted.then(|| run.window.window_s / run.operations as f64)
        },
    },
    Measure {
        subject: Subject::Cost,
        title: "CPU time of the server for one operation",
        note: "lower is better",
        unit: |_| Unit::Time(1e3),
        of: figures::SERVER_CPU.of,
    },
    Measure {
        subject: Subject::Cost,
        title: "Memory of the server for one held lock",
        note: "lower is better",
        unit: |_| Unit::Bytes,
        of: figures::HELD_BYTES.of,
    },
    Measure {
        subject: Subject::Cost,
        title: "CPU time of the server for one held lock in a minute",
        note: "while all locks were kept; lower is better",
        unit: |_| Unit::Time(1e3),
        of: figures::KEPT_SERVER_CPU.of,
    },
    Measure {
        subject: Subject::Cost,
        title: "Greatest lateness of a renewal",
        note: "from when it was due until the server had confirmed it; lower is better",
        unit: |_| Unit::Time(1.0),
        of: |run| Some(run.kept.as_ref()?.latest_ns()? as f64),
    },
    Measure {
        subject: Subject::Machine,
        title: "Requests in flight",
        note: "as there were, on average; those asked for are the same everywhere",
        unit: |_| Unit::Number("requests"),
        of: figures::IN_FLIGHT.of,
    },
    Measure {
        subject: Subject::Machine,
        title: "Requests at the server",
        note: "in flight, and not in their own worker's hands",
        unit: |_| Unit::Number("requests"),
        of: figures::AT_SERVER.of,
    },
    Measure {
        subject: Subject::Machine,
        title: "The busiest generator",
        note: "share of its time, or of its CPU quota; from 0.9 on it is the limit",
        unit: |_| Unit::Share,
        of: |run| busiest(run).filter(|_| run.spread.is_some()),
    },
    Measure {
        subject: Subject::Machine,
        title: "Blocked share",
        note: "acquisitions that found the lock taken",
        unit: |_| Unit::Share,
        of: figures::BLOCKED.of,
    },
    Measure {
        subject: Subject::Fairness,
        title: "Workers that got nothing",
        note: "share of all workers; lower is better",
        unit: |_| Unit::Share,
        of: |run| Some(shared(run)?.none as f64 / run.at.workers? as f64),
    },
    Measure {
        subject: Subject::Fairness,
        title: "Dispersion among workers",
        note: "near 0 a queue, near 1 a lottery, above favouritism",
        unit: |_| Unit::Number("variance / mean"),
        of: |run| Some(shared(run)?.dispersion),
    },
    Measure {
        subject: Subject::Fairness,
        title: "Jain's index",
        note: "1: all got the same; few turns by lot give less",
        unit: |_| Unit::Index,
        of: |run| Some(shared(run)?.jain),
    },
    Measure {
        subject: Subject::Machine,
        title: "Context switches for one operation",
        note: "times that a worker was put on a CPU",
        unit: |_| Unit::Number("switches / operation"),
        of: |run| {
            let switches = run.cpu.context_switches.filter(|_| run.operations > 0)?;
            Some(switches as f64 / run.operations as f64)
        },
    },
    Measure {
        subject: Subject::Machine,
        title: "How busy the busiest worker was",
        note: "running or runnable; near 100 % the tool is the limit",
        unit: |_| Unit::Share,
        of: busiest,
    },
    Measure {
        subject: Subject::Machine,
        title: "CPU time stolen by the hypervisor",
        note: "of busy and stolen time of the whole machine",
        unit: |_| Unit::Share,
        of: |run| run.around.machine.steal_share,
    },
];

/// What each worker got, where there are several.
fn shared(run: &Run) -> Option<PerWorker> {
    run.per_worker.filter(|_| run.at.workers > Some(1))
}

fn busiest(run: &Run) -> Option<f64> {
    let shares = run.thread_loads.iter().map(|load| load.busy_share);
    shares.reduce(f64::max)
}

/// Those of this subject that were measured.
pub(super) fn figures(chapter: &Chapter<'_>, subject: Subject) -> Vec<Drawing> {
    let of_it = MEASURES.iter().filter(|m| m.subject == subject);
    of_it.filter_map(|m| figure(chapter, m)).collect()
}

/// The figure of this title, large; None where it was not measured.
pub(crate) fn large(chapter: &Chapter<'_>, title: &str) -> Option<Drawing> {
    let measure = MEASURES.iter().find(|measure| measure.title == title)?;
    let measure = Measure {
        subject: Subject::Cost,
        ..*measure
    };
    figure(chapter, &measure).filter(|figure| !figure.charts.is_empty())
}

/// A measure over the runs of a spot, and of each.
type Runs = (Estimate, Vec<f64>);

fn runs(measure: &Measure, spot: &Spot<'_>) -> Option<Runs> {
    let point = &spot.point;
    let over = match (measure.subject, measure.title) {
        (Subject::Fairness, _) => Over::Times,
        (_, "Throughput") => Over::CleanSlices,
        (_, title) if title.starts_with("CPU time of") => Over::Undisturbed,
        _ => Over::Runs,
    };
    let runs = point.each(over, measure.of);
    Some((estimate(&runs)?, runs))
}

fn figure(chapter: &Chapter<'_>, measure: &Measure) -> Option<Drawing> {
    let unit = (measure.unit)(chapter);
    let found = known(chapter, |spot| runs(measure, spot));
    if found.is_empty() {
        return None;
    }
    let all_zero = found
        .values()
        .all(|(_, runs)| runs.iter().all(|v| *v == 0.0));
    let title = measure.title.replace("operation", chapter.noun());
    let note = match all_zero {
        true => format!("{} at every point", unit.exact(0.0)),
        false if !limits(chapter).is_empty() && measure.title == "Throughput" => {
            "higher is better; above each point: what the limit was (g: the generators, s: the server, \
             m: the machine, p: the path)"
                .to_owned()
        }
        false => measure.note.to_owned(),
    };
    let charts = match all_zero {
        true => Vec::new(),
        false => overlaid(chapter, size(chapter, measure), |size, shown| {
            draw(chapter, measure, (&title, size), &found, shown)
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

fn size(chapter: &Chapter<'_>, measure: &Measure) -> Size {
    match measure.subject {
        Subject::Cost => LARGE,
        _ if chapter.longest_label() > LONG_LABEL => LARGE,
        _ => SMALL,
    }
}

fn draw(
    chapter: &Chapter<'_>,
    measure: &Measure,
    (title, size): (&str, Size),
    found: &Known<Runs>,
    shown: &[&Series<'_>],
) -> maud::Markup {
    let unit = (measure.unit)(chapter);
    let (ideals, mut limits) = match measure.title {
        "Throughput" => (ideals(chapter, shown), limits(chapter)),
        _ => (Vec::new(), Vec::new()),
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

fn draw_series(chart: &mut Chart, chapter: &Chapter<'_>, series: &Series<'_>, found: &Known<Runs>) {
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

/// What nothing could exceed: one line where it is the same for all series,
/// else one for each.
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
fn table(chapter: &Chapter<'_>, unit: Unit, found: &Known<Runs>) -> super::Data {
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
