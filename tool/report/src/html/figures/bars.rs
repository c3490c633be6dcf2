//! Many targets at one load: the figure that the workload is known by, as bars relative to the best.

use super::{Cell, Chapter, Drawing, LARGE, Panel, data};
use crate::html::chapter::{Series, Spot};
use crate::html::scale::cut;
use jostle_model::Plan;
use jostle_model::plan::Workload;
use jostle_stats::figures::{Better, Figure, headline};
use jostle_stats::numbers::significant;
use maud::html;

/// Behind the figure's name.
pub(super) const TITLE: &str = "relative to the best";

/// Series from which on lines tell less than bars.
const MANY: usize = 5;

/// Pixels: the height of a row and of its bar, where bars begin and end, and letters of a name.
const ROW: f64 = 26.0;
const HIGH: f64 = 16.0;
const BARS: [f64; 2] = [226.0, 426.0];
const LETTERS: usize = 24;

type Measured<'s, 'a> = (&'s Series<'a>, &'s Spot<'a>, f64);

/// Of the usable points at this swept value, the best first.
fn ranked<'s, 'a>(chapter: &'s Chapter<'a>, of: &Figure, x: f64) -> Vec<Measured<'s, 'a>> {
    let spots = chapter.series.iter().flat_map(|series| {
        let spots = series
            .spots
            .iter()
            .filter(|spot| spot.x == x && spot.usable());
        spots.map(move |spot| (series, spot))
    });
    let known = spots.filter_map(|(series, spot)| Some((series, spot, spot.point.median(of)?)));
    let mut known: Vec<_> = known.filter(|(.., value)| *value > 0.0).collect();
    known.sort_by(|one, other| match of.better {
        Better::More => other.2.total_cmp(&one.2),
        Better::Less => one.2.total_cmp(&other.2),
    });
    known
}

/// At the load at which most can be compared, the greatest of several; None of few series.
pub(super) fn figure(chapter: &Chapter<'_>) -> Option<Drawing> {
    if chapter.series.len() < MANY || chapter.workload == Workload::Recover {
        return None;
    }
    let of = headline(&Plan::of(chapter.workload));
    let unit = chapter.unit(of);
    let xs = chapter.xs().into_iter();
    let x = xs.max_by_key(|x| ranked(chapter, of, *x).len())?;
    let ranked = ranked(chapter, of, x);
    let best = ranked.first().filter(|_| ranked.len() > 1)?.2;
    let longest = ranked.iter().map(|(.., value)| *value).fold(0.0, f64::max);
    let title = of.title.replace("operation", chapter.noun());
    let title = if title.is_empty() {
        of.compared
    } else {
        &title
    };
    let title = format!("{title} with {}, {TITLE}", chapter.place(x));
    let size = (LARGE.0, ROW * ranked.len() as f64);
    let [from, to] = BARS;
    let drawing = html! {
        svg.chart.large viewBox=(format!("0 0 {} {}", size.0, size.1)) width=(size.0) height=(size.1)
            role="img" tabindex="0" aria-label=(title) {
            @for (nth, (series, spot, value)) in ranked.iter().enumerate() {
                @let (top, end) = (ROW * nth as f64 + 5.0, from + (to - from) * value / longest);
                g.(series.style.colour()) {
                    text.tag x="0" y=(top + 13.0) { (cut(&series.short, LETTERS)) }
                    path.area d=(format!("M{end:.1} {top}H{from}v{HIGH}H{end:.1}Z")) data-say=(spot.number) {}
                    text.tag x=(to + 10.0) y=(top + 13.0) {
                        (significant(value / best, 2)) " " tspan.quiet { "(" (unit.tick(*value)) ")" }
                    }
                }
            }
        }
    };
    let columns = vec![unit.heading("median"), TITLE.to_owned()];
    let cells = |value: f64| [unit.cell(value), significant(value / best, 3)].map(Cell::Figure);
    Some(Drawing {
        title,
        note: format!("medians, {}; the best is 1", unit.title()),
        charts: vec![Panel::alone(size, drawing)],
        data: data(chapter, columns, |_, spot| {
            let of_spot = ranked
                .iter()
                .find(|(_, other, _)| other.number == spot.number);
            of_spot.map(|(.., value)| cells(*value).to_vec())
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::BARS;
    use crate::html::chapter::chapters;
    use crate::html::figures::answer;
    use crate::made;

    #[test]
    fn many_targets_stand_as_bars_of_which_the_best_is_one() {
        let first = |sets: &[crate::ResultSet]| {
            let (_, mut figures) = answer(&chapters(sets)[0]).unwrap();
            figures.remove(0)
        };
        let mut set = made::wide(8, 3);
        for run in &mut set.runs {
            run.throughput_per_s /= run.target["lock".len()..].parse::<f64>().unwrap();
            // Clean slices would tell the recorded rate.
            run.around.accounts = None;
        }
        let sets = [set];
        let bars = first(&sets);
        assert!(
            bars.title.ends_with("relative to the best"),
            "{}",
            bars.title
        );
        let drawn = &bars.charts[0].drawing.0;
        assert_eq!(drawn.matches("path class=\"area\"").count(), 8);
        assert_eq!(drawn.matches(">1.0 <").count(), 1, "{drawn}");
        // As long as the medians are high.
        let ends = drawn.split("class=\"area\" d=\"M").skip(1);
        let long = ends.map(|d| d.split(' ').next().unwrap().parse::<f64>().unwrap() - BARS[0]);
        let chapters = chapters(&sets);
        let medians = chapters[0].series.iter().map(|series| {
            let last = series.spots.last().unwrap();
            last.point
                .median(jostle_stats::figures::THROUGHPUT)
                .unwrap()
        });
        let mut medians: Vec<f64> = medians.collect();
        medians.sort_by(|one, other| other.total_cmp(one));
        for (long, median) in long.zip(&medians) {
            assert!(
                (long / (BARS[1] - BARS[0]) - median / medians[0]).abs() < 1e-3,
                "{drawn}"
            );
        }
        assert!(!first(&[made::wide(4, 3)]).title.contains("relative"));
    }
}
