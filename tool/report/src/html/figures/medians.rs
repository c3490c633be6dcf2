//! Figures with one value for each run, all series in one drawing: the median
//! over the runs, its interval, and each run.

use super::{
    Cell, Chapter, Figure, LARGE, SMALL, Subject, beside, cross, data, is_crowded, mark, overlaid,
    stretches,
};
use crate::html::chapter::{Series, Spot};
use crate::html::chart::{Chart, Size, frame_below};
use crate::html::scale::Axis;
use crate::html::units::Unit;
use jostle_model::plan::Workload;
use jostle_model::record::{LimitedBy, Run};
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
        of: |run| Some(run.throughput_per_s),
    },
    Measure {
        subject: Subject::Cost,
        title: "CPU time of the workers for one operation",
        note: "waiting included; lower is better",
        unit: |_| Unit::Time(1e3),
        of: |run| run.cpu.cpu_us_per_operation,
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
        of: |run| run.server?.cpu_us_per_operation,
    },
    Measure {
        subject: Subject::Cost,
        title: "Memory of the server for one held lock",
        note: "lower is better",
        unit: |_| Unit::Bytes,
        of: |run| run.server?.bytes_per_held_lock,
    },
    Measure {
        subject: Subject::Cost,
        title: "CPU time of the server for one held lock in a minute",
        note: "while all locks were kept; lower is better",
        unit: |_| Unit::Time(1e3),
        of: |run| run.kept.as_ref()?.server_cpu_us_per_minute(),
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
        of: |run| Some(run.spread.as_ref()?.effective),
    },
    Measure {
        subject: Subject::Machine,
        title: "Requests at the server",
        note: "in flight, and not in their own worker's hands",
        unit: |_| Unit::Number("requests"),
        of: |run| run.spread.as_ref()?.at_server,
    },
    Measure {
        subject: Subject::Machine,
        title: "The busiest generator",
        note: "share of its time, or of its CPU quota; from 0.9 on it is the limit",
        unit: |_| Unit::Share,
        of: |run| {
            let shares = run
                .thread_loads
                .iter()
                .map(|generator| generator.busy_share);
            shares.reduce(f64::max).filter(|_| run.spread.is_some())
        },
    },
    Measure {
        subject: Subject::Machine,
        title: "Blocked share",
        note: "acquisitions that found the lock taken",
        unit: |_| Unit::Share,
        of: |run| run.blocked_share,
    },
    Measure {
        subject: Subject::Fairness,
        title: "Workers that got nothing",
        note: "share of all workers; lower is better",
        unit: |_| Unit::Share,
        of: |run| {
            let workers = run.at.workers.filter(|workers| *workers > 1)?;
            Some(run.per_worker?.none as f64 / workers as f64)
        },
    },
    Measure {
        subject: Subject::Fairness,
        title: "Dispersion among workers",
        note: "near 0 a queue, near 1 a lottery, above favouritism",
        unit: |_| Unit::Number("variance / mean"),
        of: |run| {
            let several = run.at.workers.is_some_and(|workers| workers > 1);
            run.per_worker.filter(|_| several).map(|s| s.dispersion)
        },
    },
    Measure {
        subject: Subject::Fairness,
        title: "Jain's index",
        note: "1: all got the same; few turns by lot give less",
        unit: |_| Unit::Index,
        of: |run| {
            let several = run.at.workers.is_some_and(|workers| workers > 1);
            run.per_worker.filter(|_| several).map(|s| s.jain)
        },
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
        of: |run| {
            let shares = run.thread_loads.iter().map(|g| g.busy_share);
            shares.reduce(f64::max)
        },
    },
    Measure {
        subject: Subject::Machine,
        title: "CPU time stolen by the hypervisor",
        note: "of busy and stolen time of the whole machine",
        unit: |_| Unit::Share,
        of: |run| run.around.machine.steal_share,
    },
];

/// Those of this subject that were measured.
pub(super) fn figures(chapter: &Chapter<'_>, subject: Subject) -> Vec<Figure> {
    let of_it = MEASURES.iter().filter(|m| m.subject == subject);
    of_it.filter_map(|m| figure(chapter, m)).collect()
}

/// The figure of this title, large; None where it was not measured.
pub(crate) fn large(chapter: &Chapter<'_>, title: &str) -> Option<Figure> {
    let measure = MEASURES.iter().find(|measure| measure.title == title)?;
    let measure = Measure {
        subject: Subject::Cost,
        ..*measure
    };
    figure(chapter, &measure).filter(|figure| !figure.charts.is_empty())
}

/// A spot and what is known of one measure there.
struct Known<'s, 'a> {
    series: &'s Series<'a>,
    spot: &'s Spot<'a>,
    over_runs: Estimate,
    runs: Vec<f64>,
}

fn known<'s, 'a>(
    measure: &Measure,
    series: &'s Series<'a>,
    spot: &'s Spot<'a>,
) -> Option<Known<'s, 'a>> {
    let point = &spot.point;
    let runs = match measure.subject {
        Subject::Fairness => &point.timed,
        _ => &point.runs,
    };
    let each = runs.iter().filter_map(|run| match measure.title {
        "Throughput" => point.rate_of(run, (measure.of)(run)?),
        _ => (measure.of)(run),
    });
    let runs: Vec<f64> = each.collect();
    Some(Known {
        series,
        spot,
        over_runs: estimate(&runs)?,
        runs,
    })
}

fn figure(chapter: &Chapter<'_>, measure: &Measure) -> Option<Figure> {
    let unit = (measure.unit)(chapter);
    let spots = || {
        let series = chapter.series.iter();
        series.flat_map(|series| series.spots.iter().map(move |spot| (series, spot)))
    };
    let usable = spots().filter(|(_, spot)| spot.usable());
    let found: Vec<Known<'_, '_>> = usable.filter_map(|(a, b)| known(measure, a, b)).collect();
    if found.is_empty() {
        return None;
    }
    let all_zero = found
        .iter()
        .all(|known| known.runs.iter().all(|v| *v == 0.0));
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
    Some(Figure {
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
    found: &[Known<'_, '_>],
    shown: &[&Series<'_>],
) -> maud::Markup {
    let unit = (measure.unit)(chapter);
    let ideals = match measure.title {
        "Throughput" => ideals(chapter, shown),
        _ => Vec::new(),
    };
    let mut limits = match measure.title {
        "Throughput" => limits(chapter),
        _ => Vec::new(),
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
    let frame = frame_below(size, longest, limits.len());
    let (across, up) = frame;
    let values: Vec<f64> = found
        .iter()
        .flat_map(|known| &known.runs)
        .copied()
        .chain(ideals.iter().flatten().map(|(_, y)| *y))
        .collect();
    let x = (chapter.x_axis(across), x_title(chapter));
    let y = (Axis::of_values(unit, &values, up), unit.title().to_owned());
    let mut chart = Chart::within(frame, size, x, y);
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

/// Below the horizontal axis.
pub(super) fn x_title(chapter: &Chapter<'_>) -> String {
    match (chapter.sweeps(), chapter.xs().first()) {
        (false, Some(x)) => chapter.place(*x),
        _ => chapter.swept_words(),
    }
}

fn draw_series(
    chart: &mut Chart,
    chapter: &Chapter<'_>,
    series: &Series<'_>,
    found: &[Known<'_, '_>],
) {
    let class = series.style.colour();
    let by = beside(chapter, series);
    let of_series: Vec<&Known<'_, '_>> = found
        .iter()
        .filter(|known| known.series.index == series.index)
        .collect();
    let median_at = |spot: &Spot<'_>| {
        let known = of_series.iter().find(|known| known.spot.x == spot.x)?;
        Some((chapter.x_of(series, spot.x), known.over_runs.median))
    };
    for stretch in stretches(series) {
        let line: Vec<(f64, f64)> = stretch.iter().filter_map(median_at).collect();
        chart.line(&class, series.style.dashes(), &line);
    }
    for known in &of_series {
        let x = chapter.x_of(series, known.spot.x);
        let runs: Vec<(f64, f64)> = known.runs.iter().map(|y| (x, *y)).collect();
        if runs.len() > 1 && of_series.len() <= DOTTED && !is_crowded(chapter) {
            chart.dots(&class, &runs, by);
        }
        if runs.len() > 1 {
            chart.bar(&class, x, (known.over_runs.low, known.over_runs.high), by);
        }
        let mark = mark(known.spot, (x, known.over_runs.median));
        chart.marks(series.style, by, &[mark]);
    }
    for spot in series.spots.iter().filter(|spot| !spot.usable()) {
        let cross = cross(spot, chapter.x_of(series, spot.x));
        chart.marks(series.style, by, &[cross]);
    }
    let named = chapter.sweeps() && !is_crowded(chapter);
    if let Some(last) = of_series.last().filter(|_| named) {
        let end = (chapter.x_of(series, last.spot.x), last.over_runs.median);
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
fn table(chapter: &Chapter<'_>, unit: Unit, found: &[Known<'_, '_>]) -> super::Data {
    let crowded = is_crowded(chapter);
    let kind = |known: &Known<'_, '_>| match (known.over_runs.runs, known.over_runs.interval) {
        (1, _) => "one run".to_owned(),
        (runs, true) => format!("95 % interval of {runs} runs"),
        (runs, false) => format!("range of {runs} runs"),
    };
    // Said once where it is the same for all.
    let kinds: BTreeSet<String> = found.iter().map(kind).collect();
    let one = kinds.first().filter(|_| kinds.len() == 1);
    let mut columns = vec![unit.heading("median")];
    columns.push(one.map_or_else(|| "from".to_owned(), |kind| format!("{kind}, from")));
    columns.push("to".to_owned());
    columns.extend(one.is_none().then(|| "of".to_owned()));
    columns.extend((!crowded).then(|| "each run".to_owned()));
    data(chapter, columns, |_, spot| {
        let known = found
            .iter()
            .find(|known| known.spot.number == spot.number)?;
        let over = &known.over_runs;
        let ends = [over.median, over.low, over.high];
        let mut cells = ends.map(|value| Cell::Figure(unit.cell(value))).to_vec();
        cells.extend(one.is_none().then(|| Cell::text(kind(known))));
        let runs: Vec<String> = known.runs.iter().map(|v| unit.cell(*v)).collect();
        cells.extend((!crowded).then(|| Cell::text(runs.join(" · "))));
        Some(cells)
    })
}
