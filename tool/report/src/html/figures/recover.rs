//! Each run's time from a fault to the next grant as a dot, a row for each target and
//! fault; runs without such a grant are counted beside the row's name. On one logarithmic
//! scale, whatever the page's is: times lie decades apart.

use super::{Cell, Chapter, Data, Figure, Panel, verdict_cell};
use crate::html::chapter::{Series, Spot};
use crate::html::units::{Unit, time};
use jostle_model::record::Recovery;
use jostle_stats::intervals::median;
use maud::{Markup, html};

/// Heights of a row, whose name stands above its dots, and of what stands below the last.
const ROW: f64 = 44.0;
const NAME: f64 = 18.0;
const DOTS: f64 = 31.0;
const BOTTOM: f64 = 34.0;
/// Where the times begin and end.
const LEFT: f64 = 24.0;
const RIGHT: f64 = 552.0;
const WIDTH: f64 = 576.0;
/// Letters of a name, at most.
const LETTERS: usize = 26;

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// After so many nanoseconds.
    After(u64),
    /// The lock stayed its owner's.
    Kept,
    /// Nobody was granted it.
    Never,
}

fn came(run: &Recovery) -> Came {
    match (run.next_grant_ns, run.after_release_ns) {
        (Some(ns), _) => Came::After(ns),
        (None, Some(_)) => Came::Kept,
        (None, None) => Came::Never,
    }
}

struct Row<'s, 'a> {
    series: &'s Series<'a>,
    spot: &'s Spot<'a>,
    fault: String,
    runs: Vec<Came>,
}

/// One, where anything was measured.
pub(crate) fn figure(chapter: &Chapter<'_>) -> Option<Figure> {
    let rows: Vec<Row<'_, '_>> = chapter
        .series
        .iter()
        .flat_map(|series| series.spots.iter().map(move |spot| (series, spot)))
        .filter_map(|(series, spot)| {
            let runs = spot.point.runs.iter();
            Some(Row {
                series,
                spot,
                fault: spot.point.at.fault?.to_string(),
                runs: runs
                    .filter_map(|run| Some(came(run.recovery.as_ref()?)))
                    .collect(),
            })
        })
        .collect();
    if rows.iter().all(|row| row.runs.is_empty()) {
        return None;
    }
    let size = (WIDTH, ROW * rows.len() as f64 + BOTTOM);
    Some(Figure {
        title: "Time to the next grant".to_owned(),
        note: "a dot for each run, a bar at their median; lower is better".to_owned(),
        charts: vec![Panel {
            size,
            label: None,
            caption: None,
            drawing: draw(&rows, size),
        }],
        data: data(&rows),
    })
}

/// The decades that hold all times, in nanoseconds.
fn decades(rows: &[Row<'_, '_>]) -> (i32, i32) {
    let times = rows
        .iter()
        .flat_map(|row| &row.runs)
        .filter_map(|run| match run {
            Came::After(ns) => Some((*ns).max(1) as f64),
            _ => None,
        });
    let (mut least, mut most) = (f64::MAX, 0.0f64);
    times.for_each(|ns| (least, most) = (least.min(ns), most.max(ns)));
    match most > 0.0 {
        true => {
            let low = least.log10().floor() as i32;
            (low, (most.log10().ceil() as i32).max(low + 1))
        }
        // A microsecond to a second, where no run tells.
        false => (3, 9),
    }
}

fn across(ns: f64, (low, high): (i32, i32)) -> f64 {
    let share = (ns.log10() - f64::from(low)) / f64::from(high - low);
    ((LEFT + share * (RIGHT - LEFT)) * 10.0).round() / 10.0
}

fn draw(rows: &[Row<'_, '_>], size: (f64, f64)) -> Markup {
    let scale = decades(rows);
    let foot = size.1 - BOTTOM;
    html! {
        svg.chart.large viewBox=(format!("0 0 {} {}", size.0, size.1)) width=(size.0) height=(size.1)
            role="img" tabindex="0" aria-label="Time to the next grant, by target and fault" {
            @for decade in scale.0..=scale.1 {
                @let x = across(10f64.powi(decade), scale);
                path.grid d=(format!("M{x} 0V{foot}")) {}
                text x=(x) y=(foot + 20.0) text-anchor="middle" { (time(10f64.powi(decade), 1)) }
            }
            path.axis d=(format!("M{LEFT} {foot}H{RIGHT}")) {}
            @for (nth, row) in rows.iter().enumerate() {
                g.(row.series.style.colour()) transform=(format!("translate(0 {})", ROW * nth as f64)) {
                    path.track d=(format!("M{LEFT} {DOTS}H{RIGHT}")) {}
                    text.tag x="0" y=(NAME) {
                        (crate::html::scale::cut(&format!("{} {}", row.series.label, row.fault), LETTERS))
                        " " tspan.quiet dx="6" { (in_words(row)) }
                    }
                    @if row.spot.usable() { (marks(row, scale)) }
                }
            }
        }
    }
}

/// What the runs of a row came to.
fn in_words(row: &Row<'_, '_>) -> String {
    if !row.spot.usable() {
        return "INVALID".to_owned();
    }
    let all = row.runs.len();
    let times = times(row);
    let mut words = Vec::new();
    if let Some(median) = median(&times) {
        words.push(match times.len() == all {
            true => format!("median {}", time(median, 3)),
            false => format!("median {} of {} runs", time(median, 3), times.len()),
        });
    }
    let count = |what: Came| row.runs.iter().filter(|run| **run == what).count();
    for (what, came) in [(Came::Kept, "kept by its owner"), (Came::Never, "never")] {
        match count(what) {
            0 => {}
            some if some == all => words.push(format!("{came} in each run")),
            // On a phone there is no room for more.
            some => {
                let came = came.split(' ').next().unwrap_or(came);
                words.push(format!("{came} in {some} of {all}"));
            }
        }
    }
    words.join("; ")
}

/// In ascending order, in nanoseconds; 0 is no place on a logarithmic scale.
fn times(row: &Row<'_, '_>) -> Vec<f64> {
    let of = |run: &Came| match run {
        Came::After(ns) => Some((*ns).max(1) as f64),
        Came::Kept | Came::Never => None,
    };
    let mut times: Vec<f64> = row.runs.iter().filter_map(of).collect();
    times.sort_by(f64::total_cmp);
    times
}

fn marks(row: &Row<'_, '_>, scale: (i32, i32)) -> Markup {
    let times = times(row);
    html! {
        @for ns in &times {
            circle.run cx=(across(*ns, scale)) cy=(DOTS) r="4" { title { (time(*ns, 4)) } }
        }
        @if let Some(median) = median(&times) {
            path.median d=(format!("M{} {}v14", across(median, scale), DOTS - 7.0)) {}
        }
    }
}

fn data(rows: &[Row<'_, '_>]) -> Data {
    let unit = Unit::Time(1.0);
    let headings = ["series", "fault", "run", "next grant", "verdict"];
    let cells = rows.iter().flat_map(|row| {
        row.runs.iter().enumerate().map(|(nth, run)| {
            let grant = match run {
                _ if !row.spot.usable() => Cell::None,
                Came::After(ns) => Cell::Figure(unit.cell(*ns as f64)),
                Came::Kept => Cell::text("the owner kept it"),
                Came::Never => Cell::text("never within the limit"),
            };
            vec![
                Cell::text(&row.series.label),
                Cell::text(&row.fault),
                Cell::Figure((nth + 1).to_string()),
                grant,
                verdict_cell(row.spot),
            ]
        })
    });
    Data {
        headings: headings.map(str::to_owned).to_vec(),
        rows: cells.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::chapter::chapters;
    use crate::made;

    #[test]
    fn each_run_is_a_dot_and_none_without_a_grant_is_lost() {
        let sets = [made::recovered()];
        let chapters = chapters(&sets);
        let found = figure(&chapters[0]).unwrap();
        let svg = found.charts[0].drawing.clone().into_string();
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(
            svg.contains("flock kill") && svg.contains("redis stop"),
            "{svg}"
        );
        assert!(svg.contains("kept by its owner in each run"), "{svg}");
        assert_eq!(found.data.rows.len(), 4);
        assert!(figure(&crate::html::chapter::chapters(&[made::set()])[0]).is_none());
    }
}
