//! How the work was shared out: fewest, mean and most of a worker, a drawing
//! for each series.

use super::medians::x_title;
use super::{Cell, Chapter, Data, Figure, cross, mark, panels, stretches};
use crate::html::chapter::{Series, Spot};
use crate::html::chart::{Chart, frame};
use crate::html::scale::Axis;
use crate::html::units::{Unit, trimmed};
use jostle_model::record::Run;
use jostle_stats::intervals::median;

/// Of one point.
#[derive(Clone, Debug)]
struct Share {
    least: f64,
    mean: f64,
    most: f64,
    /// What else is known, for the hover text.
    beside: String,
}

/// Acquisitions where a window bounds the run, rates where the number of
/// operations does.
pub(super) fn figures(chapter: &Chapter<'_>) -> Vec<Figure> {
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

type OfSeries<'s, 'a> = (&'s Series<'a>, Vec<Option<Share>>);

fn figure(
    chapter: &Chapter<'_>,
    unit: Unit,
    title: &str,
    note: &str,
    of: fn(&Spot<'_>) -> Option<Share>,
) -> Option<Figure> {
    let shares = |series: &Series<'_>| -> Vec<Option<Share>> {
        let spots = series.spots.iter();
        spots
            .map(|spot| of(spot).filter(|_| spot.usable()))
            .collect()
    };
    // A series of INVALID points alone has a drawing too, which says so.
    let told = |shares: &[Option<Share>]| shares.iter().any(Option::is_some);
    let all: Vec<OfSeries<'_, '_>> = chapter
        .series
        .iter()
        .map(|series| (series, shares(series)))
        .filter(|(series, shares)| told(shares) || series.spots.iter().any(|s| !s.usable()))
        .collect();
    if !all.iter().any(|(_, shares)| told(shares)) {
        return None;
    }
    let charts = panels(chapter, &all, |size, shown| {
        let longest = if chapter.sweeps() { 5 } else { 0 };
        let (across, up) = frame(size, longest);
        let known = all.iter().flat_map(|(_, shares)| shares.iter().flatten());
        let values: Vec<f64> = known.flat_map(|s| [s.least, s.mean, s.most]).collect();
        let x = (chapter.x_axis(across), x_title(chapter));
        let y = (Axis::of_values(unit, &values, up), unit.title().to_owned());
        let mut chart = Chart::new(size, longest, x, y);
        for (series, shares) in shown {
            draw_series(&mut chart, chapter, series, shares);
        }
        chart.draw(&format!("{title}, by {}", chapter.swept_words()))
    });
    Some(Figure {
        title: title.to_owned(),
        note: note.to_owned(),
        charts,
        data: table(chapter, unit, &all),
    })
}

fn draw_series(
    chart: &mut Chart,
    chapter: &Chapter<'_>,
    series: &Series<'_>,
    shares: &[Option<Share>],
) {
    let class = series.style.colour();
    let share_at = |spot: &Spot<'_>| {
        let at = series.spots.iter().position(|other| other.x == spot.x)?;
        Some((chapter.x_of(series, spot.x), shares[at].clone()?))
    };
    for stretch in stretches(series) {
        let known: Vec<(f64, Share)> = stretch.iter().filter_map(share_at).collect();
        let line = |part: fn(&Share) -> f64| -> Vec<(f64, f64)> {
            known.iter().map(|(x, share)| (*x, part(share))).collect()
        };
        match &known[..] {
            [(x, share)] => chart.bar(
                &format!("{class} to-p99"),
                *x,
                (share.least, share.most),
                0.0,
            ),
            several => {
                let edge = |(x, share): &(f64, Share)| (*x, share.least, share.most);
                let edges: Vec<(f64, f64, f64)> = several.iter().map(edge).collect();
                chart.area(&format!("{class} to-p99"), &edges);
            }
        }
        let known = stretch.iter().filter(|spot| share_at(spot).is_some());
        let says: Vec<String> = known.map(|spot| spot.number.to_string()).collect();
        for end in [line(|share| share.least), line(|share| share.most)] {
            chart.telling(&format!("{class} max"), "none", &end, &says);
        }
        chart.line(&class, series.style.dashes(), &line(|share| share.mean));
    }
    for (spot, share) in series.spots.iter().zip(shares) {
        let x = chapter.x_of(series, spot.x);
        let mark = match share {
            Some(share) => Some(mark(spot, (x, share.mean))),
            None => (!spot.usable()).then(|| cross(spot, x)),
        };
        chart.marks(series.style, 0.0, mark.as_slice());
    }
    let known = series.spots.iter().zip(shares).rev();
    let last = known
        .filter_map(|(spot, share)| Some((chapter.x_of(series, spot.x), share.as_ref()?)))
        .next();
    if let Some((x, share)) = last.filter(|_| chapter.sweeps()) {
        for (value, word) in [
            (share.most, "most"),
            (share.mean, "mean"),
            (share.least, "least"),
        ] {
            chart.label("quiet", (x, value), word);
        }
    }
}

fn table(chapter: &Chapter<'_>, unit: Unit, all: &[OfSeries<'_, '_>]) -> Data {
    let mut columns = vec![unit.heading("least")];
    columns.extend(["mean", "most", "beside"].map(str::to_owned));
    super::data(chapter, columns, |series, spot| {
        let (_, shares) = all.iter().find(|(other, _)| other.index == series.index)?;
        let at = series.spots.iter().position(|other| other.x == spot.x)?;
        let share = shares[at].as_ref()?;
        let figure = |value: f64| Cell::Figure(unit.cell(value));
        Some(vec![
            figure(share.least),
            figure(share.mean),
            figure(share.most),
            Cell::text(share.beside.trim()),
        ])
    })
}
