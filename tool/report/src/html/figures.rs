//! What is drawn of a chapter: groups of figures, each with the table of its
//! data. What was not measured has no figure.
//!
//! A new figure over the sweep is one line in `MEASURES` (medians.rs), a new
//! distribution one in `SPREADS` (bands.rs).

mod along;
pub(crate) mod answer;
mod bands;
mod growth;
pub(crate) mod latency;
pub(crate) mod medians;
pub(crate) mod recover;
mod shares;

pub(super) use answer::answer;

use super::chapter::{Chapter, Series, Spot};
use super::chart::{Look, Mark, Size};
use jostle_model::plan::Workload;
use jostle_model::record::Status;
use maud::{Markup, html};

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
    pub figures: Vec<Figure>,
}

/// One figure: a drawing, or one for each series, and its data.
#[derive(Debug)]
pub(crate) struct Figure {
    /// What it shows.
    pub title: String,
    /// What a reader has to know to read it.
    pub note: String,
    /// Without any, the note says it all.
    pub charts: Vec<Panel>,
    /// The same as figures.
    pub data: Data,
}

impl Figure {
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
    /// The same with its line and mark.
    pub caption: Option<Markup>,
    /// The SVG.
    pub drawing: Markup,
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
pub(super) fn groups(chapter: &Chapter<'_>, answer: &[Figure]) -> Vec<Group> {
    if chapter.workload == Workload::Recover {
        // One grant for each waiter is no rate, and its answer shows each.
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
    let shown = |figure: &Figure| answer.iter().any(|other| other.title == figure.title);
    let groups = groups.into_iter().map(|(title, mut figures)| {
        figures.retain(|figure| !shown(figure));
        (title, figures)
    });
    groups
        .filter(|(_, figures)| !figures.is_empty())
        .map(|(title, figures)| Group { title, figures })
        .collect()
}

fn both(mut first: Vec<Figure>, second: Vec<Figure>) -> Vec<Figure> {
    first.extend(second);
    first
}

/// What a figure is about.
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

/// A drawing for each series on the same axes, or one for all where nothing is
/// swept. One or two of them are large.
fn panels<'s, 'a, T>(
    chapter: &Chapter<'_>,
    all: &[(&'s Series<'a>, T)],
    draw: impl Fn(Size, &[&(&'s Series<'a>, T)]) -> Markup,
) -> Vec<Panel> {
    if !chapter.sweeps() {
        return vec![Panel {
            size: LARGE,
            label: None,
            caption: None,
            drawing: draw(LARGE, &all.iter().collect::<Vec<_>>()),
        }];
    }
    let size = if all.len() > 2 { SMALL } else { LARGE };
    let panel = |one: &(&'s Series<'a>, T)| Panel {
        size,
        label: (chapter.series.len() > 1).then(|| one.0.label.clone()),
        caption: (chapter.series.len() > 1).then(|| caption(chapter, one.0)),
        drawing: draw(size, &[one]),
    };
    all.iter().map(panel).collect()
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
    if !is_crowded(chapter) {
        return vec![Panel {
            size,
            label: None,
            caption: None,
            drawing: draw(size, &all),
        }];
    }
    let panel = |one: &'s Series<'a>| Panel {
        size: SMALL,
        label: Some(one.label.clone()),
        caption: Some(caption(chapter, one)),
        drawing: draw(SMALL, &[one]),
    };
    all.into_iter().map(panel).collect()
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

/// What speaks against the figures of a point.
pub(super) fn doubts(spot: &Spot<'_>) -> String {
    let reasons = spot.point.verdict.reasons.iter();
    let reasons: Vec<String> = reasons
        .map(|reason| format!("{}: {}", reason.is, reason.text))
        .collect();
    reasons.join("\n")
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

/// Which points have neighbours without a value on both sides: no line through neighbours
/// would show them.
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
