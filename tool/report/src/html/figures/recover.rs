//! A time of each run after a fault as a dot, a row for each target and fault: that to the
//! next grant, and that for which two believed that they owned. Runs without such a time are
//! counted beside the row's name. On one logarithmic scale, whatever the page's is: times lie
//! decades apart.

use super::{Cell, Chapter, Data, Drawing, Panel, verdict_cell};
use crate::html::chapter::{Series, Spot};
use crate::html::units::{Unit, time};
use jostle_model::plan::Fault;
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

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// After so many nanoseconds, or for so long.
    Time(u64),
    /// It has no such time, for the kind's own reason.
    None,
    /// Nobody was granted it.
    Never,
}

/// One of the times.
struct Kind {
    title: &'static str,
    note: &'static str,
    came: fn(&Recovery) -> Came,
    /// The meaning of its absence, for data, and shorter beside a row's name.
    none: [&'static str; 2],
    /// The one of the runs' times that the bar marks, and its name.
    bar: fn(&[f64]) -> Option<f64>,
    says: &'static str,
    /// Style of the marks; empty: the series' own.
    class: &'static str,
}

static GRANT: Kind = Kind {
    title: "Time to the next grant",
    note: "a dot for each run, a bar at their median; lower is better",
    came: |run| match (run.next_grant_ns, run.after_release_ns) {
        (Some(ns), _) => Came::Time(ns),
        (None, Some(_)) => Came::None,
        (None, None) => Came::Never,
    },
    none: ["kept by its owner", "kept"],
    bar: |values| median(values),
    says: "median",
    class: "",
};

static BELIEVED: Kind = Kind {
    title: "Two owners at a time",
    note: "how long two believed that they owned: a dot for each run, a bar at the longest",
    came: |run| match run.two_believed_ns {
        Some(ns) if ns > 0 => Came::Time(ns),
        _ => Came::None,
    },
    none: ["one owner", "one owner"],
    bar: |times| times.last().copied(),
    says: "up to",
    class: "worse",
};

struct Row<'s, 'a> {
    series: &'s Series<'a>,
    spot: &'s Spot<'a>,
    fault: Fault,
    runs: Vec<Came>,
}

/// Until the next grant, where anything was measured; on both halves of the page if nothing
/// stands beside it.
pub(crate) fn granted(chapter: &Chapter<'_>) -> Option<Drawing> {
    let rows = rows(chapter, &GRANT);
    let is_alone = believed(chapter).is_none();
    (!rows.is_empty()).then(|| figure(&GRANT, &rows, if is_alone { 2 } else { 1 }))
}

/// For how long two believed that they owned, where they did.
pub(crate) fn believed(chapter: &Chapter<'_>) -> Option<Drawing> {
    let rows = rows(chapter, &BELIEVED);
    let is_any = rows.iter().any(|row| !times(row).is_empty());
    is_any.then(|| figure(&BELIEVED, &rows, 1))
}

fn rows<'s, 'a>(chapter: &'s Chapter<'a>, kind: &Kind) -> Vec<Row<'s, 'a>> {
    let series = chapter.series.iter();
    let spots = series.flat_map(|series| series.spots.iter().map(move |spot| (series, spot)));
    let rows = spots.filter_map(|(series, spot)| {
        let runs = spot.point.runs.iter();
        let runs = runs.filter_map(|run| Some((kind.came)(run.recovery.as_ref()?)));
        Some(Row {
            series,
            spot,
            fault: spot.point.at.fault?,
            runs: runs.collect(),
        })
    });
    rows.filter(|row| !row.runs.is_empty()).collect()
}

/// In so many panels beside each other, on the same scale.
fn figure(kind: &'static Kind, rows: &[Row<'_, '_>], panels: usize) -> Drawing {
    let scale = decades(rows);
    let panel = |rows: &[Row<'_, '_>]| {
        let size = (WIDTH, ROW * rows.len() as f64 + BOTTOM);
        Panel::alone(size, draw(kind, rows, scale, size))
    };
    let each = rows.len().div_ceil(panels).max(1);
    Drawing {
        title: kind.title.to_owned(),
        note: kind.note.to_owned(),
        charts: rows.chunks(each).map(panel).collect(),
        data: data(kind, rows),
    }
}

/// The decades that hold all times, in nanoseconds.
fn decades(rows: &[Row<'_, '_>]) -> (i32, i32) {
    let times = rows.iter().flat_map(times);
    let (mut least, mut most) = (f64::MAX, 0.0f64);
    times.for_each(|ns| (least, most) = (least.min(ns), most.max(ns)));
    match most > 0.0 {
        true => {
            let low = least.log10().floor() as i32;
            // Two decades at least, whose three ticks tell the scale.
            (low, (most.log10().ceil() as i32).max(low + 2))
        }
        // A microsecond to a second, where no run tells.
        false => (3, 9),
    }
}

fn across(ns: f64, (low, high): (i32, i32)) -> f64 {
    let share = (ns.log10() - f64::from(low)) / f64::from(high - low);
    ((LEFT + share * (RIGHT - LEFT)) * 10.0).round() / 10.0
}

fn draw(kind: &Kind, rows: &[Row<'_, '_>], scale: (i32, i32), size: (f64, f64)) -> Markup {
    let foot = size.1 - BOTTOM;
    html! {
        svg.chart.large viewBox=(format!("0 0 {} {}", size.0, size.1)) width=(size.0) height=(size.1)
            role="img" tabindex="0" aria-label=(format!("{}, by target and fault", kind.title)) {
            @for decade in scale.0..=scale.1 {
                @let x = across(10f64.powi(decade), scale);
                path.grid d=(format!("M{x} 0V{foot}")) {}
                text x=(x) y=(foot + 20.0) text-anchor="middle" { (time(10f64.powi(decade), 1)) }
            }
            path.axis d=(format!("M{LEFT} {foot}H{RIGHT}")) {}
            @for (nth, row) in rows.iter().enumerate() {
                g.(row.series.style.colour()) transform=(format!("translate(0 {})", ROW * nth as f64)) {
                    path.track d=(format!("M{LEFT} {DOTS}H{RIGHT}")) {}
                    @let (who, how) = row.fault.struck();
                    text.tag x="0" y=(NAME) {
                        (crate::html::scale::cut(&format!("{} {who} {how}", row.series.label), LETTERS))
                        " " tspan.quiet.(said(kind, row)) dx="6" { (in_words(kind, row)) }
                    }
                    @if row.spot.usable() { g.(kind.class) { (marks(kind, row, scale)) } }
                }
            }
        }
    }
}

/// The style of a row's words: its marks' where it has any.
fn said(kind: &Kind, row: &Row<'_, '_>) -> &'static str {
    match times(row).is_empty() || !row.spot.usable() {
        true => "",
        false => kind.class,
    }
}

/// The outcomes of the runs of a row.
fn in_words(kind: &Kind, row: &Row<'_, '_>) -> String {
    if !row.spot.usable() {
        return "INVALID".to_owned();
    }
    let all = row.runs.len();
    let times = times(row);
    let mut words = Vec::new();
    if let Some(bar) = (kind.bar)(&times) {
        words.push(match times.len() == all {
            true => format!("{} {}", kind.says, time(bar, 3)),
            false => format!("{} {} in {} runs", kind.says, time(bar, 3), times.len()),
        });
    }
    let count = |what: Came| row.runs.iter().filter(|run| **run == what).count();
    // On a phone there is no room for more than the shorter.
    for (what, [whole, short]) in [(Came::None, kind.none), (Came::Never, ["never"; 2])] {
        match count(what) {
            0 => {}
            some if some == all => words.push(format!("{whole} in each run")),
            some => words.push(format!("{short} in {some} of {all}")),
        }
    }
    words.join("; ")
}

/// In ascending order, in nanoseconds; 0 is no place on a logarithmic scale.
fn times(row: &Row<'_, '_>) -> Vec<f64> {
    let of = |run: &Came| match run {
        Came::Time(ns) => Some((*ns).max(1) as f64),
        Came::None | Came::Never => None,
    };
    let mut times: Vec<f64> = row.runs.iter().filter_map(of).collect();
    times.sort_by(f64::total_cmp);
    times
}

fn marks(kind: &Kind, row: &Row<'_, '_>, scale: (i32, i32)) -> Markup {
    let times = times(row);
    html! {
        @for ns in &times {
            circle.run cx=(across(*ns, scale)) cy=(DOTS) r="4" { title { (time(*ns, 4)) } }
        }
        @if let Some(bar) = (kind.bar)(&times) {
            path.median d=(format!("M{} {}v14", across(bar, scale), DOTS - 7.0)) {}
        }
    }
}

fn data(kind: &Kind, rows: &[Row<'_, '_>]) -> Data {
    let unit = Unit::Time(1.0);
    let headings = ["series", "fault", "run", kind.title, "verdict"];
    let cells = rows.iter().flat_map(|row| {
        row.runs.iter().enumerate().map(|(nth, run)| {
            let grant = match run {
                _ if !row.spot.usable() => Cell::None,
                Came::Time(ns) => Cell::Figure(unit.cell(*ns as f64)),
                Came::None => Cell::text(kind.none[0]),
                Came::Never => Cell::text("never within the limit"),
            };
            vec![
                Cell::text(&row.series.label),
                Cell::text(row.fault.to_string()),
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
    use crate::ResultSet;
    use crate::html::chapter::chapters;
    use crate::made;

    #[test]
    fn each_run_is_a_dot_and_none_without_a_grant_is_lost() {
        let sets = [made::recovered()];
        let chapters = chapters(&sets);
        let found = granted(&chapters[0]).unwrap();
        let svg = found.charts[0].drawing.clone().into_string();
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(
            svg.contains("flock owner killed") && svg.contains("redis owner stopped"),
            "{svg}"
        );
        assert!(svg.contains("kept by its owner in each run"), "{svg}");
        assert_eq!(found.data.rows.len(), 4);
        assert!(granted(&crate::html::chapter::chapters(&[made::set()])[0]).is_none());
    }

    /// Half of the page was empty.
    #[test]
    fn both_halves_of_the_page_are_used() {
        let mut sets = [made::recovered()];
        let drawn = |sets: &[ResultSet]| {
            let chapters = chapters(sets);
            let figures = [granted(&chapters[0]).unwrap()].into_iter();
            figures.chain(believed(&chapters[0])).collect::<Vec<_>>()
        };
        let figures = drawn(&sets);
        let widths: Vec<&str> = figures.iter().map(Drawing::width).collect();
        assert_eq!(widths, ["large", "large"]);
        let two = figures[1].charts[0].drawing.clone().into_string();
        // In red: the marks and the words of the only row with two owners.
        assert_eq!(two.matches("<circle").count(), 1, "{two}");
        assert!(
            two.contains("class=\"quiet worse\" dx=\"6\">up to 600 us"),
            "{two}"
        );
        assert!(two.contains("one owner in each run"), "{two}");
        for run in &mut sets[0].runs {
            let recovery = run.recovery.as_mut().unwrap();
            recovery.two_believed_ns = None;
        }
        let figures = drawn(&sets);
        assert_eq!((figures.len(), figures[0].charts.len()), (1, 2));
    }
}
