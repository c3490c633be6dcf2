//! Pieces of a drawing as SVG: ticks, the vertices of a path for both scales, and labels
//! that are moved apart.

use super::scale::{Both, Scale, Tick};
use maud::{Markup, html};
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

/// Adds a vertex to what is shown at first, on this scale, and to what the script chooses
/// from.
pub(super) fn vertex(
    [shown, both]: &mut [String; 2],
    scale: Scale,
    command: char,
    (x, y): (Both, Both),
) {
    // Writing to a String cannot fail.
    let [at, up] = [x, y].map(|both| number(scale.of(both)));
    let _ = write!(shown, "{command}{at} {up}");
    let _ = write!(both, "{command} {} ", four(x, y));
}

pub(super) fn four(x: Both, y: Both) -> String {
    let numbers = [x.log, x.linear, y.log, y.linear].map(number);
    numbers.join(" ")
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
