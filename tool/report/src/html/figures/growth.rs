//! How figures grow: the medians of a series, the curves that they allow, and
//! between which values they bend.
//!
//! A drawing for each series, since what one allows would cover the others.

use super::{
    Cell, Chapter, Data, Drawing, Series, Size, chart, cross, doubts, mark, panels, stretches,
};
use crate::html::chapter::Spot;
use crate::html::chart::Mark;
use jostle_model::record::{Fit, FitLaw, Interval};
use jostle_stats::figures::Figure;
use jostle_stats::fit::Finding;
use jostle_stats::fit::laws::Law;
use jostle_stats::fit::sweeps::{cost, fitted};
use jostle_stats::intervals::median;
use maud::Markup;

/// One for each fitted figure.
pub(super) fn figures(chapter: &Chapter<'_>) -> Vec<Drawing> {
    if !chapter.sweeps() {
        return Vec::new();
    }
    fitted().filter_map(|f| figure(chapter, f)).collect()
}

/// The fit of a series, if there is enough to draw one.
fn fit_of<'s>(of: &Figure, series: &'s Series<'_>) -> Option<&'s Fit> {
    let mut fits = series.fits.iter();
    fits.find(|fit| fit.figure == of.name && fit.finding != Finding::TooFew.name())
}

fn figure(chapter: &Chapter<'_>, of: &Figure) -> Option<Drawing> {
    let all = chapter.series.iter();
    let grown: Vec<&Series<'_>> = all.filter(|one| fit_of(of, one).is_some()).collect();
    if grown.is_empty() {
        return None;
    }
    let charts = panels(chapter, &grown, |size, shown| {
        draw(chapter, of, size, shown)
    });
    Some(Drawing {
        title: match of.per_operation {
            true => format!("Growth of {} per {}", of.grows, chapter.noun()),
            false => format!("Growth of {}", of.grows),
        },
        note: "lines: every law that the medians allow; red: between these values it bends"
            .to_owned(),
        charts,
        data: data(of, &grown),
    })
}

/// Over the runs of a spot.
fn level(of: &Figure, spot: &Spot<'_>) -> Option<f64> {
    let runs = spot.point.runs.iter();
    let runs: Vec<f64> = runs.filter_map(|run| cost(of, &spot.point, run)).collect();
    median(&runs).filter(|_| spot.usable())
}

/// On an axis of their own: it is the shape that counts.
fn draw(chapter: &Chapter<'_>, of: &Figure, size: Size, shown: &[&Series<'_>]) -> Markup {
    let unit = chapter.unit(of);
    let spots = shown.iter().flat_map(|series| &series.spots);
    let levels: Vec<f64> = spots.filter_map(|spot| level(of, spot)).collect();
    let fits = || shown.iter().filter_map(|series| fit_of(of, series));
    // A law may lead outside of the medians that allow it.
    let drawn = fits().flat_map(curves).flatten().map(|(_, y)| y);
    let values: Vec<f64> = levels.iter().copied().chain(drawn).collect();
    let mut chart = chart(chapter, size, (0, 0), unit, &values);
    let low = levels.iter().copied().fold(f64::MAX, f64::min);
    let high = levels.iter().copied().fold(0.0, f64::max);
    for (series, fit) in shown.iter().zip(fits()) {
        for bend in &fit.bends {
            let ends = [bend.after as f64, bend.before as f64];
            chart.area("bend", &ends.map(|x| (x, low, high)));
        }
        for curve in curves(fit) {
            chart.curve(&format!("law {}", series.style.colour()), &curve);
        }
        for spot in stretches(series).into_iter().flatten() {
            let Some(level) = level(of, spot) else {
                continue;
            };
            let whose = format!("{}, {}", series.label, chapter.place(spot.x));
            let mark = Mark {
                says: format!("{whose}\n{}\n{}", unit.exact(level), doubts(spot)),
                ..mark(spot, (spot.x, level))
            };
            chart.marks(series.style, 0.0, &[mark]);
        }
        for spot in series.spots.iter().filter(|spot| !spot.usable()) {
            let cross = Mark {
                says: doubts(spot),
                ..cross(spot, spot.x)
            };
            chart.marks(series.style, 0.0, &[cross]);
        }
    }
    chart.draw(&format!(
        "growth of {}, by {}",
        of.grows,
        chapter.swept_words()
    ))
}

/// Straight pieces of a curve: enough that none is seen to be straight.
const PIECES: u32 = 48;

/// Every law over the whole sweep, or over each part between bends; never
/// beyond what was measured.
fn curves(fit: &Fit) -> Vec<Vec<(f64, f64)>> {
    let whole = fit.laws.iter().map(|law| (law, fit.from, fit.to));
    let parts = fit.parts.iter();
    let parts = parts.flat_map(|part| part.laws.iter().map(|law| (law, part.from, part.to)));
    whole.chain(parts).filter_map(curve).collect()
}

fn curve((law, from, to): (&FitLaw, u64, u64)) -> Option<Vec<(f64, f64)>> {
    let shape = Law::named(&law.law)?;
    let (from, to) = (from as f64, to as f64);
    let at = |piece: u32| from * (to / from).powf(f64::from(piece) / f64::from(PIECES));
    let points = (0..=PIECES).map(at);
    Some(points.map(|n| (n, law.a + law.b * shape.at(n))).collect())
}

/// The fits themselves.
fn data(of: &Figure, grown: &[&Series<'_>]) -> Data {
    const HEADINGS: [&str; 7] = [
        "series", "from", "to", "values", "finding", "exponent", "in words",
    ];
    let row = |series: &&Series<'_>| {
        let fit = fit_of(of, series)?;
        Some(vec![
            Cell::text(&series.label),
            whole(fit.from),
            whole(fit.to),
            whole(fit.values),
            Cell::text(fit.finding.replace('_', " ")),
            fit.exponent.map_or(Cell::None, exponent),
            Cell::text(&fit.text),
        ])
    };
    Data {
        headings: HEADINGS.map(str::to_owned).to_vec(),
        rows: grown.iter().filter_map(row).collect(),
    }
}

fn whole(value: u64) -> Cell {
    Cell::Figure(value.to_string())
}

fn exponent(interval: Interval) -> Cell {
    let words = format!(
        "{:.2} ({:.2} to {:.2})",
        interval.estimate, interval.low, interval.high
    );
    Cell::Figure(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::chapter::chapters;
    use crate::made;
    use jostle_model::record::{At, FitBend, FitPart};

    fn law(name: &str, a: f64, b: f64) -> FitLaw {
        FitLaw {
            law: name.to_owned(),
            a,
            b,
            p: 0.5,
        }
    }

    #[test]
    fn only_the_series_that_grew_is_drawn_and_said_to() {
        let mut set = made::set();
        set.fits = vec![Fit {
            target: "sysv".to_owned(),
            figure: fitted().next().unwrap().name.to_owned(),
            over: "workers".to_owned(),
            at: At::default(),
            from: 10,
            to: 1000,
            values: 6,
            finding: "laws".to_owned(),
            laws: vec![law("N", 1e6, 10.0)],
            text: "time per lock grows like N".to_owned(),
            ..Fit::default()
        }];
        let sets = [set];
        let found = figures(&chapters(&sets)[0]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].charts.len(), found[0].data.rows.len()), (1, 1));
        assert_eq!(found[0].data.rows[0][0], Cell::text("sysv"));
        let drawn = found[0].charts[0].drawing.0.as_str();
        assert!(drawn.contains("line law"), "{drawn}");
    }

    #[test]
    fn a_curve_is_its_law_and_ends_with_the_sweep() {
        let fit = Fit {
            from: 10,
            to: 1000,
            laws: vec![law("N", 5.0, 2.0), law("unheard of", 1.0, 1.0)],
            ..Fit::default()
        };
        let drawn = curves(&fit);
        assert_eq!(drawn.len(), 1, "a law of a later version is not guessed at");
        let (first, last) = (drawn[0][0], drawn[0][PIECES as usize]);
        assert_eq!(first, (10.0, 25.0));
        assert!((last.0 - 1000.0).abs() < 1e-6 && (last.1 - 2005.0).abs() < 1e-6);
    }

    #[test]
    fn between_bends_each_part_has_its_own() {
        let part = |from, to, a| FitPart {
            from,
            to,
            ratio: None,
            laws: vec![law("1", a, 0.0)],
        };
        let fit = Fit {
            from: 1,
            to: 100,
            bends: vec![FitBend {
                after: 10,
                before: 20,
            }],
            parts: vec![part(1, 10, 3.0), part(20, 100, 9.0)],
            ..Fit::default()
        };
        let ends: Vec<(f64, f64)> = curves(&fit).iter().map(|c| c[0]).collect();
        assert_eq!(ends, [(1.0, 3.0), (20.0, 9.0)]);
    }
}
