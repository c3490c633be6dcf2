//! Pieces of a drawing as SVG: ticks, paths that have a place on both scales, and labels that
//! are moved apart.

use super::scale::{Both, Scale, Tick};
use maud::{Markup, html};
use std::collections::BTreeMap;
use std::fmt::Write;

/// These heights, each at least a line from the next, between top and bottom.
pub(super) fn apart(heights: &[f64], line: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..heights.len()).collect();
    order.sort_by(|a, b| heights[*a].total_cmp(&heights[*b]));
    let mut placed = heights.to_vec();
    let mut free = top;
    for at in &order {
        placed[*at] = placed[*at].max(free);
        free = placed[*at] + line;
    }
    let mut free = bottom;
    for at in order.iter().rev() {
        placed[*at] = placed[*at].min(free);
        free = placed[*at] - line;
    }
    placed
}

pub(super) fn y_ticks(ticks: &[Tick], left: f64, right: f64, beside: f64) -> Markup {
    let (named, minor) = named_and_minor(ticks);
    let grid = joined(&named, |at| format!("M{left} {at}H{right}"));
    let minor = joined(&minor, |at| format!("M{left} {at}h-3"));
    html! {
        path.grid d=(grid) {}
        @if !minor.is_empty() { path.minor d=(minor) {} }
        @for tick in named { text x=(left - 6.0) y=(number(tick.at + beside)) { (tick.label) } }
    }
}

pub(super) fn x_ticks(ticks: &[Tick], bottom: f64, line: f64) -> Markup {
    let (named, minor) = named_and_minor(ticks);
    let all: Vec<&Tick> = named.iter().chain(&minor).copied().collect();
    html! {
        path.minor d=(joined(&all, |at| format!("M{at} {bottom}v4"))) {}
        @for tick in named { text x=(number(tick.at)) y=(bottom + line + 2.0) { (tick.label) } }
    }
}

pub(super) fn named_and_minor(ticks: &[Tick]) -> (Vec<&Tick>, Vec<&Tick>) {
    ticks.iter().partition(|tick| !tick.label.is_empty())
}

pub(super) fn joined(ticks: &[&Tick], mark: impl Fn(String) -> String) -> String {
    ticks.iter().map(|tick| mark(number(tick.at))).collect()
}

/// A path in the making, each vertex at a place that both scales have.
#[derive(Debug, Default)]
pub(super) struct Path {
    /// The class of the line, and its colour.
    pub class: String,
    /// Drawn at each vertex.
    pub stroke: &'static str,
    /// `none` of a line without gaps.
    dashes: &'static str,
    shown: String,
    /// Where each vertex stands across.
    across: Vec<String>,
    /// Where each vertex stands on the other scale, across and up.
    other: [Vec<String>; 2],
    moves: [bool; 2],
    /// The hover texts of the vertices; empty where none has one.
    pub says: Vec<String>,
}

impl Path {
    /// Without vertices, each of which will have this stroke.
    pub(super) fn new(class: &str, stroke: &'static str, dashes: &'static str) -> Path {
        Path {
            class: class.to_owned(),
            stroke,
            dashes,
            ..Path::default()
        }
    }

    /// A vertex, as the first scale shows it.
    pub(super) fn add(&mut self, scale: Scale, command: char, (x, y): (Both, Both)) {
        let [at, up] = [x, y].map(|both| number(scale.of(both)));
        // Writing to a String cannot fail.
        let _ = write!(self.shown, "{command}{at} {up}{}", self.stroke);
        for (axis, both) in [x, y].into_iter().enumerate() {
            let moved = other(scale, both);
            self.moves[axis] |= moved.is_some();
            self.other[axis].push(moved.unwrap_or_else(|| number(both.log)));
        }
        self.across.push(at);
    }

    /// Back to where it began; nothing without vertices, where browsers would report an error.
    pub(super) fn close(&mut self) {
        if !self.shown.is_empty() {
            self.shown.push('Z');
        }
    }

    /// The element; places that the other scale has too are not repeated. Without `across`
    /// the drawing tells where its vertices stand.
    pub(super) fn draw(&self, across: bool) -> Markup {
        let [across, up] = [0, 1].map(|axis| {
            let own = self.moves[axis] && (across || axis == 1);
            own.then(|| self.other[axis].join(" "))
        });
        let says = (!self.says.is_empty()).then(|| self.says.join("|"));
        let dashes = Some(self.dashes).filter(|dashes| !["", "none"].contains(dashes));
        html! {
            path class=(self.class) d=(self.shown) data-across=[across] data-up=[up] data-say=[says]
                stroke-dasharray=[dashes] {}
        }
    }
}

/// Pairs of where vertices stand across, on either scale; None where one place on the first
/// is several on the other.
pub(super) fn across<'p>(paths: impl Iterator<Item = &'p Path>) -> Option<String> {
    let mut known = BTreeMap::new();
    for path in paths {
        for (shown, other) in path.across.iter().zip(&path.other[0]) {
            if known
                .insert(shown, other)
                .is_some_and(|before| before != other)
            {
                return None;
            }
        }
    }
    let moved = known.iter().filter(|(shown, other)| shown != other);
    let pairs: Vec<String> = moved
        .map(|(shown, other)| format!("{shown} {other}"))
        .collect();
    Some(pairs.join(" "))
}

/// The place on the scale that is not shown; None where it is the same.
pub(super) fn other(scale: Scale, both: Both) -> Option<String> {
    let [shown, other] = match scale {
        Scale::Log => [both.log, both.linear],
        Scale::Linear => [both.linear, both.log],
    };
    Some(number(other)).filter(|other| *other != number(shown))
}

pub(super) fn place(scale: Scale, x: Both, y: Both) -> String {
    let [x, y] = [x, y].map(|both| number(scale.of(both)));
    format!("translate({x} {y})")
}

/// Tenths of a pixel are more than anyone sees.
pub(super) fn number(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    // Not "-0".
    (rounded + 0.0).to_string()
}
