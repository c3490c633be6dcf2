//! How the work was shared out: fewest, mean and most of a worker, a drawing
//! for each series.

use super::{
    BySpot, Cell, Chapter, Data, Drawing, chart, cross, known, mark, panels, stretches, told,
};
use crate::html::chapter::{Series, Spot};
use crate::html::chart::Chart;
use crate::html::units::{Unit, trimmed};
use jostle_model::record::Run;
use jostle_stats::intervals::median;

/// Of one point.
#[derive(Clone, Debug)]
struct Share {
    least: f64,
    mean: f64,
    most: f64,
    /// Other facts, for the hover text.
    beside: String,
}

/// Acquisitions where a window bounds the run, rates where the number of
/// operations does.
pub(super) fn figures(chapter: &Chapter<'_>) -> Vec<Drawing> {
    let acquisitions = Unit::Number("acquisitions of a worker");
    let rates = Unit::PerSecond(chapter.per_second());
    let counts = figure(
        chapter,
        acquisitions,
        "Acquisitions of a worker",
        "fewest, mean and most; of the run whose count of served workers is the median",
        counts,
    );
    let speeds = figure(
        chapter,
        rates,
        "Throughput of each worker",
        "slowest, mean and fastest; medians over the runs",
        speeds,
    );
    counts.into_iter().chain(speeds).collect()
}

fn counts(spot: &Spot<'_>) -> Option<Share> {
    let shares = spot.point.per_worker?;
    let several = spot.point.at.workers.is_some_and(|workers| workers > 1);
    several.then(|| Share {
        least: shares.min as f64,
        mean: shares.mean,
        most: shares.max as f64,
        beside: format!(
            "\n{} got nothing; Jain {}, dispersion {}",
            shares.none,
            trimmed(shares.jain, 4),
            trimmed(shares.dispersion, 4)
        ),
    })
}

fn speeds(spot: &Spot<'_>) -> Option<Share> {
    let of_run = |run: &&Run| {
        let rates = &run.workers.as_ref()?.throughput_per_s;
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let least = rates.iter().copied().reduce(f64::min)?;
        let most = rates.iter().copied().reduce(f64::max)?;
        (rates.len() > 1).then_some((least, mean, most))
    };
    let runs: Vec<(f64, f64, f64)> = spot.point.timed.iter().filter_map(of_run).collect();
    let over = |part: fn(&(f64, f64, f64)) -> f64| median(runs.iter().map(part));
    Some(Share {
        least: over(|run| run.0)?,
        mean: over(|run| run.1)?,
        most: over(|run| run.2)?,
        beside: String::new(),
    })
}

fn figure(
    chapter: &Chapter<'_>,
    unit: Unit,
    title: &str,
    note: &str,
    of: fn(&Spot<'_>) -> Option<Share>,
) -> Option<Drawing> {
    let shares = known(chapter, of);
    let series = told(chapter, &shares)?;
    let ends = |share: &Share| [share.least, share.mean, share.most];
    let values: Vec<f64> = shares.values().flat_map(ends).collect();
    let charts = panels(chapter, &series, |size, shown| {
        let longest = if chapter.sweeps() { 5 } else { 0 };
        let mut chart = chart(chapter, size, (longest, 0), unit, &values);
        for series in shown {
            draw_series(&mut chart, chapter, series, &shares);
        }
        chart.draw(&format!("{title}, by {}", chapter.swept_words()))
    });
    Some(Drawing {
        title: title.to_owned(),
        note: note.to_owned(),
        charts,
        data: table(chapter, unit, &shares),
    })
}

fn draw_series(
    chart: &mut Chart,
    chapter: &Chapter<'_>,
    series: &Series<'_>,
    shares: &BySpot<Share>,
) {
    let class = series.style.colour();
    let share_at = |spot: &Spot<'_>| {
        let share = shares.get(&spot.number)?;
        Some((chapter.x_of(series, spot.x), share, spot.number.to_string()))
    };
    for stretch in stretches(series) {
        let known: Vec<_> = stretch.iter().filter_map(share_at).collect();
        let line = |part: fn(&Share) -> f64| -> Vec<(f64, f64)> {
            let known = known.iter();
            known.map(|(x, share, _)| (*x, part(share))).collect()
        };
        let band = format!("{class} to-p99");
        match &known[..] {
            [(x, share, _)] => chart.bar(&band, *x, (share.least, share.most), 0.0),
            several => {
                let edges = several.iter();
                let edges = edges.map(|(x, share, _)| (*x, share.least, share.most));
                chart.area(&band, &edges.collect::<Vec<_>>());
            }
        }
        let says: Vec<String> = known.iter().map(|(.., says)| says.clone()).collect();
        for end in [line(|share| share.least), line(|share| share.most)] {
            chart.telling(&format!("{class} max"), "none", &end, &says);
        }
        chart.line(&class, series.style.dashes(), &line(|share| share.mean));
    }
    for spot in &series.spots {
        let x = chapter.x_of(series, spot.x);
        let mark = match shares.get(&spot.number) {
            Some(share) => Some(mark(spot, (x, share.mean))),
            None => (!spot.usable()).then(|| cross(spot, x)),
        };
        chart.marks(series.style, 0.0, mark.as_slice());
    }
    let last = series.spots.iter().rev().find_map(share_at);
    if let Some((x, share, _)) = last.filter(|_| chapter.sweeps()) {
        for (value, word) in [
            (share.most, "most"),
            (share.mean, "mean"),
            (share.least, "least"),
        ] {
            chart.label("quiet", (x, value), word);
        }
    }
}

fn table(chapter: &Chapter<'_>, unit: Unit, shares: &BySpot<Share>) -> Data {
    let mut columns = vec![unit.heading("least")];
    columns.extend(["mean", "most", "beside"].map(str::to_owned));
    super::data(chapter, columns, |_, spot| {
        let share = shares.get(&spot.number)?;
        let figure = |value: f64| Cell::Figure(unit.cell(value));
        Some(vec![
            figure(share.least),
            figure(share.mean),
            figure(share.most),
            Cell::text(share.beside.trim()),
        ])
    })
}
