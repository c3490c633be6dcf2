//! One drawing: axes, areas, lines, marks and the labels beside them, as SVG.
//!
//! Each element has its position in both scales, logarithmic and linear. The drawing first
//! shows those of one scale, which is the page's; `data-across` and `data-up` hold what the
//! other scale has instead for each vertex; a drawing's own `data-across` holds pairs of both
//! for all of its vertices, which have the same few swept values. The script switches and computes nothing.
//! `data-say` holds for each vertex what it tells: a row of the figure's table, a row and a
//! column, or a text.

use super::scale::{Axis, Both, Scale, cut};
use super::strokes::{Path, across, apart, other, place, x_ticks, y_ticks};
use maud::{Markup, html};

/// The space that text needs in a drawing.
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

/// Shapes of marks, around their point, by series, so that colour is not all that
/// tells series apart.
const SHAPES: [&str; 6] = [
    "m-4 0a4 4 0 1 1 0 .1z",
    "m-3.6-3.6h7.2v7.2h-7.2z",
    "m0-4.8l4.6 8.2h-9.2z",
    "m0-5l5 5l-5 5l-5-5z",
    "m0 4.8l4.6-8.2h-9.2z",
    "m-4.4-1.5h2.9v-2.9h3v2.9h2.9v3h-2.9v2.9h-3v-2.9h-2.9z",
];
const CROSS: &str = "m-4-4l8 8m-8 0l8-8";
/// Upwards: the true value lies above.
const ARROW: &str = "m0 3v-10m-3 3l3-3l3 3";
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
    series: usize,
}

impl Style {
    /// The so-manieth colour, shape and dashes. They repeat, colours with another shape and
    /// other dashes.
    pub(super) fn numbered(colour: usize, shape: usize, dashes: usize) -> Style {
        let again = colour / COLOURS;
        Style {
            colour: colour % COLOURS,
            shape: (shape + 3 * again) % SHAPES.len(),
            dashes: (dashes + 2 * again) % DASHES.len(),
            series: 0,
        }
    }

    /// That of the so-manieth series of a chapter, by which the page switches it off.
    pub(super) fn of_series(self, series: usize) -> Style {
        Style { series, ..self }
    }

    /// The classes that give the colour and name the series.
    pub(super) fn colour(self) -> String {
        format!("c{} {}", self.colour, self.series())
    }

    /// The class of all that is drawn of the series.
    pub(super) fn series(self) -> String {
        format!("s{}", self.series)
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
                path.mark d=(format!("M0 0{}", SHAPES[self.shape])) {}
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
}

/// A figure of a drawing.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    /// How it is drawn.
    pub look: Look,
    /// Swept value and figure, the latter as recorded.
    pub at: (f64, f64),
    /// The hover text: the number of a row of the figure's table, or a text.
    pub says: String,
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
    layers: Vec<Path>,
    /// Above all lines.
    marks: Vec<Path>,
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

/// Pixels that a curve may lie beside its pieces.
const STRAIGHT: f64 = 0.25;

/// Whether a place lies on the line between two others, whichever scale each axis has.
fn is_between(at: (Both, Both), from: (Both, Both), to: (Both, Both)) -> bool {
    let scales = [Scale::Log, Scale::Linear];
    let pairs = scales
        .iter()
        .flat_map(|x| scales.iter().map(move |y| (x, y)));
    pairs.into_iter().all(|(x, y)| {
        let [(ax, ay), (bx, by), (cx, cy)] = [from, at, to].map(|p| (x.of(p.0), y.of(p.1)));
        (ay + (cy - ay) * (bx - ax) / (cx - ax) - by).abs() <= STRAIGHT
    })
}

/// The one path of all strokes of a kind.
fn of_kind<'p>(paths: &'p mut Vec<Path>, class: &str, stroke: &'static str) -> &'p mut Path {
    let known = paths
        .iter()
        .position(|path| path.class == class && path.stroke == stroke);
    let at = known.unwrap_or_else(|| {
        paths.push(Path::new(class, stroke, "none"));
        paths.len() - 1
    });
    &mut paths[at]
}

/// Width and height of a drawing.
pub(super) type Size = (f64, f64);

/// Where the axes of a drawing lie, for labels so long beside it.
pub(super) fn frame(size: Size, longest_label: usize) -> ([f64; 2], [f64; 2]) {
    frame_below(size, longest_label, 0)
}

/// The axes below so many rows of [`Chart::tag`]s.
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
            marks: Vec::new(),
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
        let ends = [self.bottom(), self.top].map(|y| (self.x.at(x), Both::same(y)));
        self.push(Path::new(class, "", "none"), &ends);
    }

    /// A strip from foot to top between two swept values.
    pub(super) fn strip(&mut self, class: &str, from: f64, to: f64) {
        let (low, high) = (Both::same(self.bottom()), Both::same(self.top));
        let (from, to) = (self.x.at(from), self.x.at(to));
        let corners = [(from, low), (from, high), (to, high), (to, low)];
        self.around(Path::new(class, "", "none"), &corners);
    }

    fn at(&self, (x, y): (f64, f64), by: f64) -> (Both, Both) {
        (self.x.at(x).moved(by), self.y.at(y))
    }

    /// A line through these points.
    pub(super) fn line(&mut self, class: &str, dashes: &'static str, points: &[(f64, f64)]) {
        self.telling(class, dashes, points, &[]);
    }

    /// A line through these points, each of which has a hover text.
    pub(super) fn telling(
        &mut self,
        class: &str,
        dashes: &'static str,
        points: &[(f64, f64)],
        says: &[String],
    ) {
        if points.len() > 1 {
            let points: Vec<(Both, Both)> = points.iter().map(|p| self.at(*p, 0.0)).collect();
            let mut line = Path::new(&format!("line {class}"), "", dashes);
            line.says = says.to_vec();
            self.push(line, &points);
        }
    }

    /// A line without vertices that a straight piece shows on every scale.
    pub(super) fn curve(&mut self, class: &str, points: &[(f64, f64)]) {
        let places: Vec<(Both, Both)> = points.iter().map(|p| self.at(*p, 0.0)).collect();
        let mut kept = vec![0];
        for end in 2..places.len() {
            let from = kept[kept.len() - 1];
            let is_beside = |at: usize| !is_between(places[at], places[from], places[end]);
            if (from + 1..end).any(is_beside) {
                kept.push(end - 1);
            }
        }
        kept.push(points.len().saturating_sub(1));
        let kept = kept.iter().filter_map(|at| points.get(*at));
        let kept: Vec<(f64, f64)> = kept.copied().collect();
        self.line(class, "none", &kept);
    }

    /// The area between two lines, given as x, lower and upper end.
    pub(super) fn area(&mut self, class: &str, points: &[(f64, f64, f64)]) {
        let upper = points.iter().map(|(x, _, high)| (*x, *high));
        let lower = points.iter().rev().map(|(x, low, _)| (*x, *low));
        let around: Vec<(Both, Both)> = upper.chain(lower).map(|p| self.at(p, 0.0)).collect();
        self.around(Path::new(&format!("area {class}"), "", "none"), &around);
    }

    /// Points without a figure of their own to point at.
    pub(super) fn dots(&mut self, class: &str, points: &[(f64, f64)], by: f64) {
        for point in points {
            let at = self.at(*point, by);
            of_kind(&mut self.layers, &format!("dots {class}"), "h0").add(self.scale, 'M', at);
        }
    }

    /// A short level line, such as at a percentile that no line through neighbours shows.
    pub(super) fn tick(&mut self, class: &str, point: (f64, f64), says: String) {
        let at = self.at(point, 0.0);
        let ticks = of_kind(&mut self.layers, &format!("tick {class}"), "m-6,0h12");
        ticks.add(self.scale, 'M', at);
        ticks.says.push(says);
    }

    /// An upright bar from one value to another.
    pub(super) fn bar(&mut self, class: &str, x: f64, ends: (f64, f64), by: f64) {
        let ends = [('M', ends.0), ('L', ends.1)].map(|(c, y)| (c, self.at((x, y), by)));
        let bars = of_kind(&mut self.layers, &format!("bar {class}"), "");
        ends.into_iter()
            .for_each(|(c, at)| bars.add(self.scale, c, at));
    }

    /// Figures of one series.
    pub(super) fn marks(&mut self, style: Style, by: f64, marks: &[Mark]) {
        for mark in marks {
            let mut at = self.at(mark.at, by);
            let (shape, kind) = match mark.look {
                Look::Valid => (SHAPES[style.shape], "mark"),
                Look::Suspect => (SHAPES[style.shape], "mark suspect"),
                Look::Invalid => (CROSS, "mark invalid"),
                Look::AtLeast => (ARROW, "mark least"),
            };
            if mark.look == Look::Invalid {
                at.1 = Both::same(self.bottom() - 5.0);
            }
            let class = format!("pt {kind} {}", style.colour());
            let path = of_kind(&mut self.marks, &class, shape);
            path.add(self.scale, 'M', at);
            path.says.push(mark.says.replace('|', "/"));
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

    fn around(&mut self, path: Path, corners: &[(Both, Both)]) {
        self.push(path, corners);
        self.layers.last_mut().into_iter().for_each(Path::close);
    }

    fn push(&mut self, mut path: Path, points: &[(Both, Both)]) {
        for (n, at) in points.iter().enumerate() {
            path.add(self.scale, if n == 0 { 'M' } else { 'L' }, *at);
        }
        self.layers.push(path);
    }

    /// The whole drawing; `name` is its text for screen readers.
    pub(super) fn draw(mut self, name: &str) -> Markup {
        self.spread_labels();
        self.shorten_tags();
        let (left, bottom, (width, height)) = (self.left, self.bottom(), self.size);
        let leaders: Vec<Path> = self.labels.iter().map(|label| self.leader(label)).collect();
        let paths = || leaders.iter().chain(&self.layers).chain(&self.marks);
        let across = across(paths());
        let beside = if is_large(self.size) { 5.0 } else { 4.0 };
        html! {
            svg.chart.large[is_large(self.size)] viewBox=(format!("0 0 {width} {height}"))
                width=(width) height=(height) role="img" tabindex="0" aria-label=(name)
                data-across=[&across] {
                text.unit x="0" y=(self.room.line - 2.0) { (self.y_title) }
                @for (kind, ticks) in self.y.shown("ticks y") { g class=(kind) { (y_ticks(ticks, left, self.right, beside)) } }
                @for (kind, ticks) in self.x.shown("ticks x") { g class=(kind) { (x_ticks(ticks, bottom, self.room.line)) } }
                path.axis d=(format!("M{left} {bottom}H{}", self.right)) {}
                text.unit x=(self.right) y=(height - 4.0) text-anchor="end" { (self.x_title) }
                @for path in paths() { (path.draw(across.is_none())) }
                @for (row, style) in &self.rows {
                    @let y = self.room.line * (*row as f64 + 2.0) - 7.0;
                    path.mark.(style.colour()) d=(format!("M0 0{}", SHAPES[style.shape]))
                        transform=(format!("translate({} {y})", left - 12.0)) {}
                }
                @for tag in &self.tags {
                    @let y = Both::same(self.room.line * (tag.row as f64 + 2.0) - 2.0);
                    text.tag.(tag.class) text-anchor="middle"
                        data-across=[other(self.scale, tag.x)] transform=(place(self.scale, tag.x, y)) { (tag.text) }
                }
                @for label in &self.labels {
                    @let x = Both::same(self.right + 8.0);
                    @let y = label.y.moved(beside);
                    text.label.(label.class) data-up=[other(self.scale, y)] transform=(place(self.scale, x, y)) {
                        (cut(&label.text, self.room.letters))
                    }
                }
            }
        }
    }

    /// From the point that a label names to the label.
    fn leader(&self, label: &Label) -> Path {
        let mut path = Path::new(&format!("leader {}", label.class), "", "none");
        path.add(self.scale, 'M', label.at);
        path.add(self.scale, 'L', (Both::same(self.right + 6.0), label.y));
        path
    }

    /// Shortens the words of a row to their first letters if they would touch. Words at
    /// either end are kept within the drawing.
    fn shorten_tags(&mut self) {
        let rows = self.tags.iter().map(|tag| tag.row).max();
        for row in 0..rows.map_or(0, |last| last + 1) {
            let of_row: Vec<&Tag> = self.tags.iter().filter(|tag| tag.row == row).collect();
            let touch = of_row.windows(2).any(|pair| {
                let letters = pair.iter().map(|tag| tag.text.chars().count());
                let letters: usize = letters.sum();
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
