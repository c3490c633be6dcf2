//! One drawing: axes, areas, lines, marks and the labels beside them, as SVG.
//!
//! Whatever has a position carries it for both scales, logarithmic and linear:
//! `data-d` (a path) and `data-at` (a place) hold four numbers for each vertex,
//! x log, x linear, y log, y linear. The page shows the logarithmic ones; its
//! script chooses the others and computes nothing.

use super::scale::{Axis, Both, Tick, cut};
use maud::{Markup, html};
use std::fmt::Write;

/// Pixels from one label beside the drawing to the next.
const LINE: f64 = 13.0;
const LETTER: f64 = 6.2;
/// Letters of a label, at most; the key of the chapter has all of them.
const LETTERS: usize = 26;

/// Room around the drawing.
const TOP: f64 = 24.0;
const BOTTOM: f64 = 34.0;
const LEFT: f64 = 52.0;

/// Shapes of marks, around (0, 0), by series, so that colour is not all that
/// tells series apart.
const SHAPES: [&str; 6] = [
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z",
    "M-3.6-3.6H3.6V3.6H-3.6Z",
    "M0-4.8L4.6 3.4H-4.6Z",
    "M0-5L5 0L0 5L-5 0Z",
    "M0 4.8L4.6-3.4H-4.6Z",
    "M-4.4-1.5H-1.5V-4.4H1.5V-1.5H4.4V1.5H1.5V4.4H-1.5V1.5H-4.4Z",
];
const CROSS: &str = "M-4-4L4 4M-4 4L4-4";
/// A point, as wide as its stroke.
const POINT: &str = "M0 0h0";
/// Upwards: the true value lies above.
const ARROW: &str = "M0 3V-7M-3-4L0-7L3-4";
/// How many colours the style sheet has.
const COLOURS: usize = 8;

/// Dashes by experiment, so that the files of an overlay can be told apart in
/// black and white.
const DASHES: [&str; 4] = ["none", "7 3", "2 3", "9 3 2 3"];

/// How a series looks: never by colour alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    colour: usize,
    shape: usize,
    dashes: usize,
}

impl Style {
    /// The so-manieth colour, shape and dashes; they repeat.
    pub fn of(colour: usize, shape: usize, dashes: usize) -> Style {
        Style {
            colour: colour % COLOURS,
            shape: shape % SHAPES.len(),
            dashes: dashes % DASHES.len(),
        }
    }

    /// The class that gives the colour.
    pub fn colour(self) -> String {
        format!("c{}", self.colour)
    }

    /// As SVG has them.
    pub fn dashes(self) -> &'static str {
        DASHES[self.dashes]
    }

    /// A line and its mark, for a key.
    pub fn swatch(self) -> Markup {
        html! {
            svg.swatch.(self.colour()) width="30" height="12" viewBox="-15 -6 30 12" aria-hidden="true" {
                path.line d="M-14 0H14" stroke-dasharray=(self.dashes()) {}
                path.mark d=(SHAPES[self.shape]) {}
            }
        }
    }
}

/// How much a mark may be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Filled.
    Valid,
    /// Hollow.
    Suspect,
    /// A cross at the foot, since its figure must not be read.
    Invalid,
    /// An arrow: the figure is a lower bound.
    AtLeast,
    /// Too small to be seen; for pointing at.
    Unseen,
}

/// A figure of a drawing.
#[derive(Clone, Debug)]
pub struct Mark {
    /// How it is drawn.
    pub look: Look,
    /// Swept value and figure, the latter as recorded.
    pub at: (f64, f64),
    /// The figure in words, for a hover text.
    pub says: String,
}

/// What hover texts of one point have in common.
#[derive(Clone, Debug)]
pub struct Told {
    /// Series and swept value.
    pub whose: String,
    /// The reasons of its verdict.
    pub doubts: String,
}

/// A drawing in the making.
#[derive(Debug)]
pub struct Chart {
    width: f64,
    height: f64,
    right: f64,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    x_title: String,
    y_title: String,
    layers: Vec<Markup>,
    labels: Vec<Label>,
}

#[derive(Debug)]
struct Label {
    text: String,
    class: String,
    y: Both,
}

/// Width and height of a drawing.
pub type Size = (f64, f64);

/// Where the axes of a drawing lie, for labels so long beside it.
pub fn frame(size: Size, longest_label: usize) -> ([f64; 2], [f64; 2]) {
    let right = match longest_label.min(LETTERS) {
        0 => 12.0,
        letters => 14.0 + LETTER * letters as f64,
    };
    ([LEFT, size.0 - right], [size.1 - BOTTOM, TOP])
}

impl Chart {
    /// Without anything in it; the axes lie where [`frame`] says.
    pub fn new(size: Size, longest_label: usize, x: (Axis, String), y: (Axis, String)) -> Chart {
        let (horizontal, _) = frame(size, longest_label);
        Chart {
            width: size.0,
            height: size.1,
            right: horizontal[1],
            x: x.0,
            y: y.0,
            x_title: x.1,
            y_title: y.1,
            layers: Vec::new(),
            labels: Vec::new(),
        }
    }

    fn at(&self, (x, y): (f64, f64), by: f64) -> (Both, Both) {
        (self.x.at(x).moved(by), self.y.at(y))
    }

    /// A line through these points.
    pub fn line(&mut self, class: &str, dashes: &str, points: &[(f64, f64)]) {
        if points.len() > 1 {
            let d = self.path(points, 0.0, false);
            self.push_path(&format!("line {class}"), Some(dashes), &d);
        }
    }

    /// The area between two lines, given as x, lower and upper end.
    pub fn area(&mut self, class: &str, points: &[(f64, f64, f64)]) {
        let upper = points.iter().map(|(x, _, high)| (*x, *high));
        let lower = points.iter().rev().map(|(x, low, _)| (*x, *low));
        let around: Vec<(f64, f64)> = upper.chain(lower).collect();
        let d = self.path(&around, 0.0, true);
        self.push_path(&format!("area {class}"), None, &d);
    }

    /// Points without a figure of their own to point at.
    pub fn dots(&mut self, class: &str, points: &[(f64, f64)], by: f64) {
        let mut d = [String::new(), String::new()];
        for point in points {
            let (x, y) = self.at(*point, by);
            vertex(&mut d, 'M', x, y);
            d[0].push_str("h0");
            d[1].push_str("h0 ");
        }
        self.push_path(&format!("dots {class}"), None, &d);
    }

    /// An upright bar from one value to another.
    pub fn bar(&mut self, class: &str, x: f64, ends: (f64, f64), by: f64) {
        let d = self.path(&[(x, ends.0), (x, ends.1)], by, false);
        self.push_path(&format!("bar {class}"), None, &d);
    }

    /// The figures of one point, each a mark.
    pub fn marks(&mut self, style: Style, by: f64, told: &Told, marks: &[Mark]) {
        let marks: Vec<Markup> = marks
            .iter()
            .map(|mark| self.mark(style, by, mark))
            .collect();
        let doubts = Some(&told.doubts).filter(|doubts| !doubts.is_empty());
        self.layers.push(html! {
            g.(style.colour()) data-of=(told.whose) data-doubts=[doubts] { @for mark in marks { (mark) } }
        });
    }

    fn mark(&self, style: Style, by: f64, mark: &Mark) -> Markup {
        let (x, y) = match mark.look {
            Look::Invalid => {
                let foot = Both::same(self.height - BOTTOM - 5.0);
                (self.x.at(mark.at.0).moved(by), foot)
            }
            _ => self.at(mark.at, by),
        };
        let (shape, kind) = match mark.look {
            Look::Valid => (SHAPES[style.shape], "mark"),
            Look::Suspect => (SHAPES[style.shape], "mark suspect"),
            Look::Invalid => (CROSS, "mark invalid"),
            Look::AtLeast => (ARROW, "mark least"),
            Look::Unseen => (POINT, "mark unseen"),
        };
        let value = (mark.look != Look::Invalid).then_some(mark.at.1);
        let says = Some(&mark.says).filter(|says| !says.is_empty());
        html! {
            path.pt.(kind) d=(shape) data-at=(four(x, y)) transform=(place(x, y))
                data-v=[value] data-says=[says] {}
        }
    }

    /// A word at the right end, at the height of this value.
    pub fn label(&mut self, class: &str, value: f64, text: &str) {
        self.labels.push(Label {
            text: text.to_owned(),
            class: class.to_owned(),
            y: self.y.at(value),
        });
    }

    fn path(&self, points: &[(f64, f64)], by: f64, closed: bool) -> [String; 2] {
        let mut d = [String::new(), String::new()];
        for (n, point) in points.iter().enumerate() {
            let (x, y) = self.at(*point, by);
            vertex(&mut d, if n == 0 { 'M' } else { 'L' }, x, y);
        }
        if closed {
            d.iter_mut().for_each(|d| d.push('Z'));
        }
        d
    }

    fn push_path(&mut self, class: &str, dashes: Option<&str>, [shown, both]: &[String; 2]) {
        let dashes = dashes.filter(|dashes| *dashes != "none");
        self.layers.push(html! {
            path class=(class) d=(shown) data-d=(both.trim_end()) stroke-dasharray=[dashes] {}
        });
    }

    /// The whole drawing; `name` is what it says to those who cannot see it.
    pub fn draw(mut self, name: &str) -> Markup {
        self.spread_labels();
        let (left, bottom) = (LEFT, self.height - BOTTOM);
        html! {
            svg.chart viewBox=(format!("0 0 {} {}", self.width, self.height))
                width=(self.width) height=(self.height) role="img" tabindex="0" aria-label=(name) {
                text.unit x="0" y="11" { (self.y_title) }
                @for (kind, ticks) in [("y log", &self.y.log_ticks), ("y lin", &self.y.linear_ticks)] {
                    g class=(kind) { (y_ticks(ticks, left, self.right)) }
                }
                @for (kind, ticks) in [("x log", &self.x.log_ticks), ("x lin", &self.x.linear_ticks)] {
                    g class=(kind) { (x_ticks(ticks, bottom)) }
                }
                path.axis d=(format!("M{left} {bottom}H{}", self.right)) {}
                text.unit x=(self.right) y=(self.height - 4.0) text-anchor="end" { (self.x_title) }
                @for layer in &self.layers { (layer) }
                @for label in &self.labels {
                    @let x = Both::same(self.right + 8.0);
                    @let y = label.y.moved(4.0);
                    text.label.(label.class) data-at=(four(x, y)) transform=(place(x, y)) {
                        (cut(&label.text, LETTERS))
                    }
                }
            }
        }
    }

    /// Moves labels apart, up and down alike; what does not fit is left out,
    /// since a chapter's key names all series anyway.
    fn spread_labels(&mut self) {
        let (top, bottom) = (TOP, self.height - BOTTOM);
        self.labels.truncate(((bottom - top) / LINE) as usize + 1);
        let log: Vec<f64> = self.labels.iter().map(|label| label.y.log).collect();
        let linear: Vec<f64> = self.labels.iter().map(|label| label.y.linear).collect();
        let log = apart(&log, top, bottom);
        let linear = apart(&linear, top, bottom);
        for ((label, log), linear) in self.labels.iter_mut().zip(log).zip(linear) {
            label.y = Both { log, linear };
        }
    }
}

/// These heights, each at least a line from the next, between top and bottom.
fn apart(heights: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..heights.len()).collect();
    order.sort_by(|a, b| heights[*a].total_cmp(&heights[*b]));
    let mut placed = heights.to_vec();
    let mut free = top;
    for at in &order {
        placed[*at] = placed[*at].max(free);
        free = placed[*at] + LINE;
    }
    let mut free = bottom;
    for at in order.iter().rev() {
        placed[*at] = placed[*at].min(free);
        free = placed[*at] - LINE;
    }
    placed
}

fn y_ticks(ticks: &[Tick], left: f64, right: f64) -> Markup {
    let (named, minor) = named_and_minor(ticks);
    let grid = joined(&named, |at| format!("M{left} {at}H{right}"));
    let minor = joined(&minor, |at| format!("M{left} {at}h-3"));
    html! {
        path.grid d=(grid) {}
        @if !minor.is_empty() { path.minor d=(minor) {} }
        @for tick in named { text x=(left - 6.0) y=(number(tick.at + 4.0)) { (tick.label) } }
    }
}

fn x_ticks(ticks: &[Tick], bottom: f64) -> Markup {
    let (named, minor) = named_and_minor(ticks);
    let all: Vec<&Tick> = named.iter().chain(&minor).copied().collect();
    html! {
        path.minor d=(joined(&all, |at| format!("M{at} {bottom}v4"))) {}
        @for tick in named { text x=(number(tick.at)) y=(bottom + 16.0) { (tick.label) } }
    }
}

fn named_and_minor(ticks: &[Tick]) -> (Vec<&Tick>, Vec<&Tick>) {
    ticks.iter().partition(|tick| !tick.label.is_empty())
}

fn joined(ticks: &[&Tick], mark: impl Fn(String) -> String) -> String {
    ticks.iter().map(|tick| mark(number(tick.at))).collect()
}

/// Adds a vertex to what is shown and to what the script chooses from.
fn vertex([shown, both]: &mut [String; 2], command: char, x: Both, y: Both) {
    // Writing to a String cannot fail.
    let _ = write!(shown, "{command}{} {}", number(x.log), number(y.log));
    let _ = write!(both, "{command} {} ", four(x, y));
}

fn four(x: Both, y: Both) -> String {
    let numbers = [x.log, x.linear, y.log, y.linear].map(number);
    numbers.join(" ")
}

fn place(x: Both, y: Both) -> String {
    format!("translate({} {})", number(x.log), number(y.log))
}

/// Tenths of a pixel are more than anyone sees.
fn number(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    // Not "-0".
    (rounded + 0.0).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::units::Unit;

    fn chart() -> Chart {
        let size = (300.0, 200.0);
        let (across, up) = frame(size, 5);
        let x = Axis::of_sweep(&[1.0, 10.0, 100.0], across);
        let y = Axis::of_values(Unit::Time(1.0), &[10.0, 1000.0], up);
        Chart::new(size, 5, (x, "workers".to_owned()), (y, "time".to_owned()))
    }

    fn told(text: &str) -> Told {
        Told {
            whose: text.to_owned(),
            doubts: text.to_owned(),
        }
    }

    fn valid(says: &str) -> Mark {
        Mark {
            look: Look::Valid,
            at: (10.0, 100.0),
            says: says.to_owned(),
        }
    }

    #[test]
    fn whatever_has_a_position_has_it_for_both_scales() {
        let mut chart = chart();
        chart.line("c0", "none", &[(1.0, 10.0), (100.0, 1000.0)]);
        chart.marks(Style::default(), 0.0, &told("flock"), &[valid("100 ns")]);
        let svg = chart.draw("x").into_string();
        let line = svg.split("class=\"line c0\"").nth(1).unwrap();
        let both: Vec<&str> = line.split('"').nth(3).unwrap().split(' ').collect();
        assert_eq!(both.len(), 2 * 5);
        assert_eq!((both[0], both[5]), ("M", "L"));
        let shown = line.split('"').nth(1).unwrap();
        assert_eq!(
            shown,
            format!("M{} {}L{} {}", both[1], both[3], both[6], both[8])
        );
        assert!(svg.contains("data-v=\"100\" data-says=\"100 ns\""));
    }

    #[test]
    fn an_invalid_mark_has_no_value() {
        let mut chart = chart();
        let mark = Mark {
            look: Look::Invalid,
            at: (10.0, 12_345.0),
            says: String::new(),
        };
        chart.marks(Style::default(), 0.0, &told("INVALID: no"), &[mark]);
        let svg = chart.draw("x").into_string();
        assert!(!svg.contains("12345") && !svg.contains("data-v"));
        assert!(svg.contains("INVALID: no"));
    }

    #[test]
    fn names_cannot_break_out() {
        let mut chart = chart();
        let evil = "\"><script>alert(1)</script>";
        chart.marks(Style::default(), 0.0, &told(evil), &[valid(evil)]);
        chart.label("c0", 10.0, evil);
        let svg = chart.draw(evil).into_string();
        assert!(!svg.contains("<script"), "{svg}");
    }

    #[test]
    fn labels_are_moved_apart_and_stay_inside() {
        let placed = apart(&[100.0, 101.0, 20.0, 199.0, 198.0], 20.0, 200.0);
        let mut sorted = placed.clone();
        sorted.sort_by(f64::total_cmp);
        for pair in sorted.windows(2) {
            assert!(pair[1] - pair[0] >= LINE - 1e-9, "{placed:?}");
        }
        assert!(sorted[0] >= 20.0 && sorted[4] <= 200.0);
        assert!(placed[0] < placed[1] && placed[4] < placed[3]);
    }
}
