//! The drawings of a chapter: groups of figures, each with the table of its data. What was not
//! measured has no figure.
//!
//! A new figure over the sweep has a title in its row of `jostle_stats::figures`, a new
//! distribution a line in `SPREADS` (bands.rs).

mod along;
pub(crate) mod answer;
mod bands;
mod bars;
mod growth;
pub(crate) mod latency;
pub(crate) mod medians;
pub(crate) mod recover;
mod shares;
pub(crate) mod verify;

pub(super) use answer::answer;

use super::chapter::{Chapter, Series, Spot};
use super::chart::{Chart, Look, Mark, Size, frame_below};
use super::scale::Axis;
use super::units::Unit;
use jostle_model::plan::Workload;
use jostle_model::record::Status;
use maud::{Markup, html};
use std::collections::BTreeMap;

/// Of figures that are read first.
pub(super) const LARGE: Size = (576.0, 330.0);
/// Of those beside them, and of small multiples.
const SMALL: Size = (372.0, 232.0);

/// Figures that answer one question.
#[derive(Debug)]
pub(super) struct Group {
    /// The question's subject.
    pub title: &'static str,
    /// In the order in which they are read.
    pub figures: Vec<Drawing>,
}

/// One figure: a drawing, or one for each series, and its data.
#[derive(Debug)]
pub(crate) struct Drawing {
    /// The title above it.
    pub title: String,
    /// The note that a reader needs to read it.
    pub note: String,
    /// Without any, the note says it all.
    pub charts: Vec<Panel>,
    /// The drawn values as figures.
    pub data: Data,
}

impl Drawing {
    /// The class that makes it as wide as its drawings, whatever its caption.
    pub(super) fn width(&self) -> &'static str {
        match &self.charts[..] {
            [only] if only.size.0 == SMALL.0 => "small",
            [only] if only.size.0 == LARGE.0 => "large",
            [] => "small",
            _ => "many",
        }
    }
}

/// One drawing.
#[derive(Debug)]
pub(crate) struct Panel {
    /// Its width and height.
    pub size: Size,
    /// Of small multiples: which series it is.
    pub label: Option<String>,
    /// The series with its line and mark.
    pub caption: Option<Markup>,
    /// The class of the one series that it shows; empty of several.
    pub series: String,
    /// The SVG.
    pub drawing: Markup,
}

impl Panel {
    /// A drawing without a caption.
    pub(crate) fn alone(size: Size, drawing: Markup) -> Panel {
        Panel {
            size,
            label: None,
            caption: None,
            series: String::new(),
            drawing,
        }
    }
}

/// The table behind a figure.
#[derive(Debug, Default)]
pub(crate) struct Data {
    /// One for each column.
    pub headings: Vec<String>,
    /// From top to bottom.
    pub rows: Vec<Vec<Cell>>,
}

/// One cell of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// Words.
    Text(String),
    /// A number as it is read.
    Figure(String),
    /// Not measured.
    None,
}

impl Cell {
    fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }
}

/// All groups of a chapter that have anything to show, without the figures that are
/// its `answer` already.
pub(super) fn groups(chapter: &Chapter<'_>, answer: &[Drawing]) -> Vec<Group> {
    if matches!(chapter.workload, Workload::Recover | Workload::Verify) {
        // One grant for each waiter is no rate, nor are those between faults; the answer shows each.
        return Vec::new();
    }
    let measured = |group| medians::figures(chapter, group);
    let banded = |group| bands::figures(chapter, group);
    let groups = [
        ("Throughput and cost", measured(Subject::Cost)),
        ("Growth", growth::figures(chapter)),
        ("Waiting", banded(Subject::Waiting)),
        (
            "Fairness",
            both(shares::figures(chapter), measured(Subject::Fairness)),
        ),
        ("Along the run", along::figures(chapter)),
        ("Hand-off", banded(Subject::HandOff)),
        ("Other times", banded(Subject::Other)),
        ("The machine and the tool", measured(Subject::Machine)),
    ];
    let shown = |figure: &Drawing| answer.iter().any(|other| other.title == figure.title);
    let groups = groups.into_iter().map(|(title, mut figures)| {
        figures.retain(|figure| !shown(figure));
        (title, figures)
    });
    groups
        .filter(|(_, figures)| !figures.is_empty())
        .map(|(title, figures)| Group { title, figures })
        .collect()
}

fn both(mut first: Vec<Drawing>, second: Vec<Drawing>) -> Vec<Drawing> {
    first.extend(second);
    first
}

/// A figure's subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Cost,
    Waiting,
    Fairness,
    HandOff,
    Other,
    Machine,
}

/// Above a panel of small multiples; those of many need not be told apart.
fn caption(chapter: &Chapter<'_>, series: &Series<'_>) -> Markup {
    html! { @if !is_crowded(chapter) { (series.style.swatch()) " " } (series.label) }
}

/// A drawing for each of these series on the same axes, or one for all where nothing is
/// swept. One or two of them are large.
fn panels<'s, 'a>(
    chapter: &Chapter<'_>,
    all: &[&'s Series<'a>],
    draw: impl Fn(Size, &[&'s Series<'a>]) -> Markup,
) -> Vec<Panel> {
    match chapter.sweeps() {
        true => multiples(
            chapter,
            all,
            if all.len() > 2 { SMALL } else { LARGE },
            draw,
        ),
        false => vec![Panel::alone(LARGE, draw(LARGE, all))],
    }
}

/// Series of one drawing, at most: beyond, lines and labels cover each other.
const OVERLAID: usize = 8;

/// One drawing of all series, or small ones on the same axes, one for each, where they are
/// too many.
fn overlaid<'s, 'a>(
    chapter: &'s Chapter<'a>,
    size: Size,
    draw: impl Fn(Size, &[&'s Series<'a>]) -> Markup,
) -> Vec<Panel> {
    let all: Vec<&Series<'_>> = chapter.series.iter().collect();
    match is_crowded(chapter) {
        true => multiples(chapter, &all, SMALL, draw),
        false => vec![Panel::alone(size, draw(size, &all))],
    }
}

/// A drawing for each of these series, below its name unless it is the only one.
fn multiples<'s, 'a>(
    chapter: &Chapter<'_>,
    all: &[&'s Series<'a>],
    size: Size,
    draw: impl Fn(Size, &[&'s Series<'a>]) -> Markup,
) -> Vec<Panel> {
    let several = chapter.series.len() > 1;
    let panel = |one: &&'s Series<'a>| Panel {
        label: several.then(|| one.label.clone()),
        caption: several.then(|| caption(chapter, one)),
        series: one.style.series(),
        ..Panel::alone(size, draw(size, &[*one]))
    };
    all.iter().map(panel).collect()
}

/// A drawing without anything in it over what the chapter sweeps, with room for labels so long
/// beside it and for so many rows of words above it.
fn chart(
    chapter: &Chapter<'_>,
    size: Size,
    (longest, rows): (usize, usize),
    unit: Unit,
    values: &[f64],
) -> Chart {
    let frame = frame_below(size, longest, rows);
    let x = (chapter.x_axis(frame.0), x_title(chapter));
    let values = Axis::of_values(unit, values, frame.1);
    Chart::within(frame, size, x, (values, unit.title().to_owned()))
}

/// Below the horizontal axis.
fn x_title(chapter: &Chapter<'_>) -> String {
    match (chapter.sweeps(), chapter.xs().first()) {
        (false, Some(x)) => chapter.place(*x),
        _ => chapter.swept_words(),
    }
}

/// Values of spots, by the spots' numbers.
type BySpot<T> = BTreeMap<usize, T>;

/// Values of the spots of a chapter whose figures may be shown.
fn known<T>(chapter: &Chapter<'_>, of: impl Fn(&Spot<'_>) -> Option<T>) -> BySpot<T> {
    let spots = chapter.series.iter().flat_map(|series| &series.spots);
    let usable = spots.filter(|spot| spot.usable());
    let found = usable.filter_map(|spot| Some((spot.number, of(spot)?)));
    found.collect()
}

/// The series of which something is known. One of INVALID points alone has a drawing too,
/// which says so. None where nothing is known of any.
fn told<'s, 'a, T>(chapter: &'s Chapter<'a>, known: &BySpot<T>) -> Option<Vec<&'s Series<'a>>> {
    let is_told = |series: &&Series<'_>| {
        let mut spots = series.spots.iter();
        spots.any(|spot| !spot.usable() || known.contains_key(&spot.number))
    };
    let told = chapter.series.iter().filter(is_told);
    (!known.is_empty()).then(|| told.collect())
}

/// The line through values of neighbouring spots, and ticks at those that it does not show; the
/// vertices tell of their spots. A median's tell nothing, since its marks do, and have no ticks.
fn draw_stretch(
    chart: &mut Chart,
    (chapter, series, stretch): (&Chapter<'_>, &Series<'_>, &[Spot<'_>]),
    class: &str,
    (dashes, is_median): (&'static str, bool),
    value: impl Fn(&Spot<'_>) -> Option<f64>,
) {
    let place = |spot: &Spot<'_>| (chapter.x_of(series, spot.x), value(spot));
    let known: Vec<(f64, Option<f64>)> = stretch.iter().map(place).collect();
    let shown = stretch.iter().zip(&known);
    let (says, line): (Vec<String>, Vec<(f64, f64)>) = shown
        .filter_map(|(spot, (x, y))| Some((spot.number.to_string(), (*x, (*y)?))))
        .unzip();
    let says = if is_median { Vec::new() } else { says };
    chart.telling(class, dashes, &line, &says);
    for at in lone(&known).filter(|_| !is_median) {
        let point = (known[at].0, known[at].1.unwrap_or_default());
        chart.tick(class, point, stretch[at].number.to_string());
    }
}

/// Whether each series has a drawing of its own, below its name.
fn is_crowded(chapter: &Chapter<'_>) -> bool {
    chapter.sweeps() && chapter.series.len() > OVERLAID
}

/// Pixels by which the marks of a series stand beside the swept value, so that
/// those of different series do not hide each other.
fn beside(chapter: &Chapter<'_>, series: &Series<'_>) -> f64 {
    let count = chapter.series.len() as f64;
    match chapter.sweeps() && !is_crowded(chapter) {
        true => (series.index as f64 - (count - 1.0) / 2.0) * (14.0 / count).min(5.0),
        false => 0.0,
    }
}

/// Doubts about the figures of a point.
pub(super) fn doubts(spot: &Spot<'_>) -> String {
    let reasons = spot.point.verdict.reasons.iter();
    let reasons = reasons.map(|reason| format!("{}: {}", reason.is, reason.text));
    reasons.collect::<Vec<_>>().join("\n")
}

/// The mark of a point, which tells its row.
fn mark(spot: &Spot<'_>, at: (f64, f64)) -> Mark {
    Mark {
        look: look(spot),
        at,
        says: spot.number.to_string(),
    }
}

/// How the mark of a figure looks.
fn look(spot: &Spot<'_>) -> Look {
    match spot.point.verdict.is {
        Status::Valid => Look::Valid,
        Status::Suspect => Look::Suspect,
        Status::Invalid => Look::Invalid,
    }
}

/// In the place of figures that must not be read.
fn cross(spot: &Spot<'_>, x: f64) -> Mark {
    Mark {
        look: Look::Invalid,
        ..mark(spot, (x, 0.0))
    }
}

/// A row for each point, in order: series and swept value, what is known of it, and the
/// verdict. Points of which nothing is known have `columns` without a figure.
fn data<'c, 'a>(
    chapter: &'c Chapter<'a>,
    columns: Vec<String>,
    known: impl Fn(&'c Series<'a>, &'c Spot<'a>) -> Option<Vec<Cell>>,
) -> Data {
    let mut rows = Vec::new();
    for series in &chapter.series {
        for spot in &series.spots {
            let mut cells = vec![
                Cell::text(&series.label),
                Cell::Figure(crate::format::significant(spot.x, 1)),
            ];
            let nothing = || vec![Cell::None; columns.len()];
            cells.extend(known(series, spot).unwrap_or_else(nothing));
            cells.push(verdict_cell(spot));
            rows.push(cells);
        }
    }
    let mut headings = vec!["series".to_owned(), chapter.swept.replace('_', " ")];
    headings.extend(columns);
    headings.push("verdict".to_owned());
    Data { headings, rows }
}

/// The reasons stand below the headline.
fn verdict_cell(spot: &Spot<'_>) -> Cell {
    Cell::text(spot.point.verdict.is.to_string())
}

/// The points whose neighbours on both sides have no value: no line through neighbours would show
/// them.
fn lone(points: &[(f64, Option<f64>)]) -> impl Iterator<Item = usize> {
    let has = |at: usize| points.get(at).is_some_and(|(_, value)| value.is_some());
    let alone = move |at: &usize| has(*at) && !has(at + 1) && (*at == 0 || !has(at - 1));
    (0..points.len()).filter(alone)
}

/// Spots that may be shown, in stretches without an INVALID one between.
fn stretches<'s, 'a>(series: &'s Series<'a>) -> Vec<&'s [Spot<'a>]> {
    let stretches = series.spots.split(|spot| !spot.usable());
    stretches.filter(|stretch| !stretch.is_empty()).collect()
}
