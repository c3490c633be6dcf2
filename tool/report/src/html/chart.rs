//! One drawing: axes, areas, lines, marks and the labels beside them, as SVG.
//!
//! Each element has its position in both scales, logarithmic and linear: `data-d` (a path)
//! and `data-at` (a place) hold four numbers for each vertex, x log, x linear, y log, y
//! linear. The drawing first shows those of one scale, which is the page's; the script
//! switches to the others and computes nothing.

use super::scale::{Axis, Both, Scale, cut};
use super::strokes::{apart, four, place, vertex, x_ticks, y_ticks};
use maud::{Markup, html};

/// What text needs in a drawing.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Pixels from one line of text to the next.
    line: f64,
    /// Pixels of a letter.
    letter: f64,
    /// Letters of a label, at most; the key of the chapter has all of them.
    letters: usize,
    /// Around the drawing.
    top: f64,
    bottom: f64,
    left: f64,
}

/// A large drawing is scaled down to the width of a phone, where its text is set
/// larger (`svg.large text` in page.css). Its layout has the room for both.
const OF_LARGE: Room = Room {
    line: 19.0,
    letter: 9.2,
    letters: 27,
    top: 30.0,
    bottom: 50.0,
    left: 72.0,
};

/// A small drawing fits a phone as it is.
const OF_SMALL: Room = Room {
    line: 13.0,
    letter: 6.2,
    letters: 26,
    top: 24.0,
    bottom: 34.0,
    left: 52.0,
};

fn is_large((width, _): Size) -> bool {
    width > 400.0
}

fn room(size: Size) -> Room {
    if is_large(size) { OF_LARGE } else { OF_SMALL }
}

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
pub(crate) struct Style {
    colour: usize,
    shape: usize,
    dashes: usize,
}

impl Style {
    /// The so-manieth colour, shape and dashes; they repeat.
    pub(super) fn of(colour: usize, shape: usize, dashes: usize) -> Style {
        Style {
            colour: colour % COLOURS,
            shape: shape % SHAPES.len(),
            dashes: dashes % DASHES.len(),
        }
    }

    /// The class that gives the colour.
    pub(super) fn colour(self) -> String {
        format!("c{}", self.colour)
    }

    /// As SVG has them.
    pub(super) fn dashes(self) -> &'static str {
        DASHES[self.dashes]
    }

    /// A line and its mark, for a key.
    pub(super) fn swatch(self) -> Markup {
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
pub(super) enum Look {
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
pub(super) struct Mark {
    /// How it is drawn.
    pub look: Look,
    /// Swept value and figure, the latter as recorded.
    pub at: (f64, f64),
    /// The figure in words, for a hover text.
    pub says: String,
}

/// What hover texts of one point have in common.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// Series and swept value.
    pub whose: String,
    /// The reasons of its verdict.
    pub doubts: String,
}

/// A drawing in the making.
#[derive(Debug)]
pub(super) struct Chart {
    size: Size,
    scale: Scale,
    room: Room,
    left: f64,
    right: f64,
    top: f64,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    x_title: String,
    y_title: String,
    layers: Vec<Markup>,
    labels: Vec<Label>,
    tags: Vec<Tag>,
    rows: Vec<(usize, Style)>,
}

/// A word above a drawing, at a swept value.
#[derive(Debug)]
struct Tag {
    row: usize,
    x: Both,
    class: String,
    text: String,
}

/// A word at the right end. `at` is the point that it names, from which a leader goes to
/// the height `y` of the word.
#[derive(Debug)]
struct Label {
    text: String,
    class: String,
    at: (Both, Both),
    y: Both,
}

/// Width and height of a drawing.
pub(super) type Size = (f64, f64);

/// Where the axes of a drawing lie, for labels so long beside it.
pub(super) fn frame(size: Size, longest_label: usize) -> ([f64; 2], [f64; 2]) {
    frame_below(size, longest_label, 0)
}

/// The same below so many rows of [`Chart::tag`]s.
pub(super) fn frame_below(size: Size, longest_label: usize, rows: usize) -> ([f64; 2], [f64; 2]) {
    let room = room(size);
    let right = match longest_label.min(room.letters) {
        0 => 12.0,
        letters => 14.0 + room.letter * letters as f64,
    };
    let top = room.top + room.line * rows as f64;
    ([room.left, size.0 - right], [size.1 - room.bottom, top])
}

impl Chart {
    /// Without anything in it; the axes lie where [`frame`] says.
    pub(super) fn new(
        size: Size,
        longest_label: usize,
        x: (Axis, String),
        y: (Axis, String),
    ) -> Chart {
        Chart::within(frame(size, longest_label), size, x, y)
    }

    /// With axes within this frame.
    pub(super) fn within(
        (across, up): ([f64; 2], [f64; 2]),
        size: Size,
        x: (Axis, String),
        y: (Axis, String),
    ) -> Chart {
        Chart {
            size,
            scale: Scale::Log,
            room: room(size),
            left: across[0],
            right: across[1],
            top: up[1],
            x: x.0,
            y: y.0,
            x_title: x.1,
            y_title: y.1,
            layers: Vec::new(),
            labels: Vec::new(),
            tags: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// The scale that it shows at first, instead of the logarithmic one.
    pub(super) fn opening(self, scale: Scale) -> Chart {
        Chart { scale, ..self }
    }

    fn bottom(&self) -> f64 {
        self.size.1 - self.room.bottom
    }

    /// A word in a row above the drawing, at a swept value.
    pub(super) fn tag(&mut self, class: &str, row: usize, x: f64, text: &str) {
        self.tags.push(Tag {
            row,
            x: self.x.at(x),
            class: class.to_owned(),
            text: text.to_owned(),
        });
    }

    /// The mark of a series before a row of words.
    pub(super) fn row(&mut self, row: usize, style: Style) {
        self.rows.push((row, style));
    }

    /// An upright line from foot to top.
    pub(super) fn upright(&mut self, class: &str, x: f64) {
        let (x, ends) = (self.x.at(x), [self.bottom(), self.top].map(Both::same));
        let mut d = [String::new(), String::new()];
        vertex(&mut d, self.scale, 'M', (x, ends[0]));
        vertex(&mut d, self.scale, 'L', (x, ends[1]));
        self.push_path(class, None, &d);
    }

    /// A strip from foot to top between two swept values.
    pub(super) fn strip(&mut self, class: &str, from: f64, to: f64) {
        let (low, high) = (Both::same(self.bottom()), Both::same(self.top));
        let (from, to) = (self.x.at(from), self.x.at(to));
        let corners = [(from, low), (from, high), (to, high), (to, low)];
        let mut d = [String::new(), String::new()];
        for (command, corner) in "MLLL".chars().zip(corners) {
            vertex(&mut d, self.scale, command, corner);
        }
        d.iter_mut().for_each(|d| d.push('Z'));
        self.push_path(class, None, &d);
    }

    fn at(&self, (x, y): (f64, f64), by: f64) -> (Both, Both) {
        (self.x.at(x).moved(by), self.y.at(y))
    }

    /// A line through these points.
    pub(super) fn line(&mut self, class: &str, dashes: &str, points: &[(f64, f64)]) {
        if points.len() > 1 {
            let d = self.path(points, 0.0, false);
            self.push_path(&format!("line {class}"), Some(dashes), &d);
        }
    }

    /// The area between two lines, given as x, lower and upper end.
    pub(super) fn area(&mut self, class: &str, points: &[(f64, f64, f64)]) {
        let upper = points.iter().map(|(x, _, high)| (*x, *high));
        let lower = points.iter().rev().map(|(x, low, _)| (*x, *low));
        let around: Vec<(f64, f64)> = upper.chain(lower).collect();
        let d = self.path(&around, 0.0, true);
        self.push_path(&format!("area {class}"), None, &d);
    }

    /// Points without a figure of their own to point at.
    pub(super) fn dots(&mut self, class: &str, points: &[(f64, f64)], by: f64) {
        self.strokes(&format!("dots {class}"), points, by, "h0");
    }

    /// A short level line at each point, such as at a percentile that no line through
    /// neighbours shows.
    pub(super) fn ticks(&mut self, class: &str, points: &[(f64, f64)]) {
        self.strokes(&format!("tick {class}"), points, 0.0, "m-6,0h12");
    }

    /// The same stroke at each point; nothing of none.
    fn strokes(&mut self, class: &str, points: &[(f64, f64)], by: f64, stroke: &str) {
        if points.is_empty() {
            return;
        }
        let mut d = [String::new(), String::new()];
        for point in points {
            vertex(&mut d, self.scale, 'M', self.at(*point, by));
            d[0].push_str(stroke);
            d[1] += &format!("{stroke} ");
        }
        self.push_path(class, None, &d);
    }

    /// An upright bar from one value to another.
    pub(super) fn bar(&mut self, class: &str, x: f64, ends: (f64, f64), by: f64) {
        let d = self.path(&[(x, ends.0), (x, ends.1)], by, false);
        self.push_path(&format!("bar {class}"), None, &d);
    }

    /// The figures of one point, each a mark.
    pub(super) fn marks(&mut self, style: Style, by: f64, told: &Told, marks: &[Mark]) {
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
                let foot = Both::same(self.bottom() - 5.0);
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
            path.pt.(kind) d=(shape) data-at=(four(x, y)) transform=(place(self.scale, x, y))
                data-v=[value] data-says=[says] {}
        }
    }

    /// A word at the right end for this point, with a leader to it: the word may have to
    /// stand elsewhere.
    pub(super) fn label(&mut self, class: &str, point: (f64, f64), text: &str) {
        let at = self.at(point, 0.0);
        self.labels.push(Label {
            text: text.to_owned(),
            class: class.to_owned(),
            at,
            y: at.1,
        });
    }

    fn path(&self, points: &[(f64, f64)], by: f64, closed: bool) -> [String; 2] {
        let mut d = [String::new(), String::new()];
        for (n, point) in points.iter().enumerate() {
            let command = if n == 0 { 'M' } else { 'L' };
            vertex(&mut d, self.scale, command, self.at(*point, by));
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

    /// The whole drawing; `name` is its text for screen readers.
    pub(super) fn draw(mut self, name: &str) -> Markup {
        self.spread_labels();
        self.shorten_tags();
        let (left, bottom, (width, height)) = (self.left, self.bottom(), self.size);
        let beside = if is_large(self.size) { 5.0 } else { 4.0 };
        html! {
            svg.chart.large[is_large(self.size)] viewBox=(format!("0 0 {width} {height}"))
                width=(width) height=(height) role="img" tabindex="0" aria-label=(name) {
                text.unit x="0" y=(self.room.line - 2.0) { (self.y_title) }
                @for (kind, ticks) in [("y log", &self.y.log_ticks), ("y lin", &self.y.linear_ticks)] {
                    g class=(kind) { (y_ticks(ticks, left, self.right, beside)) }
                }
                @for (kind, ticks) in [("x log", &self.x.log_ticks), ("x lin", &self.x.linear_ticks)] {
                    g class=(kind) { (x_ticks(ticks, bottom, self.room.line)) }
                }
                path.axis d=(format!("M{left} {bottom}H{}", self.right)) {}
                text.unit x=(self.right) y=(height - 4.0) text-anchor="end" { (self.x_title) }
                @for label in &self.labels { (self.leader(label)) }
                @for layer in &self.layers { (layer) }
                @for (row, style) in &self.rows {
                    @let y = self.room.line * (*row as f64 + 2.0) - 7.0;
                    path.mark.(style.colour()) d=(SHAPES[style.shape])
                        transform=(format!("translate({} {y})", left - 12.0)) {}
                }
                @for tag in &self.tags {
                    @let y = Both::same(self.room.line * (tag.row as f64 + 2.0) - 2.0);
                    text.tag.(tag.class) text-anchor="middle"
                        data-at=(four(tag.x, y)) transform=(place(self.scale, tag.x, y)) { (tag.text) }
                }
                @for label in &self.labels {
                    @let x = Both::same(self.right + 8.0);
                    @let y = label.y.moved(beside);
                    text.label.(label.class) data-at=(four(x, y)) transform=(place(self.scale, x, y)) {
                        (cut(&label.text, self.room.letters))
                    }
                }
            }
        }
    }

    /// From the point that a label names to the label.
    fn leader(&self, label: &Label) -> Markup {
        let mut d = [String::new(), String::new()];
        vertex(&mut d, self.scale, 'M', label.at);
        let end = (Both::same(self.right + 6.0), label.y);
        vertex(&mut d, self.scale, 'L', end);
        html! { path.leader d=(d[0]) data-d=(d[1].trim_end()) {} }
    }

    /// Shortens the words of a row to their first letters if they would touch. Words at
    /// either end are kept within the drawing.
    fn shorten_tags(&mut self) {
        let rows = self.tags.iter().map(|tag| tag.row).max();
        for row in 0..rows.map_or(0, |last| last + 1) {
            let of_row: Vec<&Tag> = self.tags.iter().filter(|tag| tag.row == row).collect();
            let touch = of_row.windows(2).any(|pair| {
                let letters = pair
                    .iter()
                    .map(|tag| tag.text.chars().count())
                    .sum::<usize>();
                let needed = self.room.letter * (letters as f64 / 2.0 + 1.0);
                let apart = |of: fn(&Both) -> f64| (of(&pair[1].x) - of(&pair[0].x)).abs();
                apart(|x| x.log).min(apart(|x| x.linear)) < needed
            });
            for tag in self.tags.iter_mut().filter(|tag| tag.row == row) {
                if touch {
                    tag.text
                        .truncate(tag.text.chars().next().map_or(0, char::len_utf8));
                }
                let half = self.room.letter * tag.text.chars().count() as f64 / 2.0;
                let (least, most) = (half, self.size.0 - half);
                let within = |x: f64| x.max(least).min(most.max(least));
                tag.x = Both {
                    log: within(tag.x.log),
                    linear: within(tag.x.linear),
                };
            }
        }
    }

    /// Moves labels apart, up and down alike; what does not fit is left out,
    /// since a chapter's key names all series anyway.
    fn spread_labels(&mut self) {
        let (top, bottom, line) = (self.top, self.bottom(), self.room.line);
        self.labels.truncate(((bottom - top) / line) as usize + 1);
        let log: Vec<f64> = self.labels.iter().map(|label| label.y.log).collect();
        let linear: Vec<f64> = self.labels.iter().map(|label| label.y.linear).collect();
        let log = apart(&log, line, top, bottom);
        let linear = apart(&linear, line, top, bottom);
        for ((label, log), linear) in self.labels.iter_mut().zip(log).zip(linear) {
            label.y = Both { log, linear };
        }
    }
}

#[cfg(test)]
mod tests;
