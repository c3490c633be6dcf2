//! `--html FILE`: one page with everything that a result says, for a browser.
//!
//! It is a pure function of the results, and self-contained: it includes style, script,
//! drawings and data, and its content policy forbids the browser to load anything else.
//! Table and sentences are those of the console. The template macro escapes all names from
//! the user.

mod about;
mod card;
pub(crate) mod chapter;
mod chart;
mod compared;
mod conclusion;
mod drawn;
pub(crate) mod figures;
mod headline;
mod judged;
mod labels;
pub mod live;
mod ratios;
mod scale;
mod strokes;
mod units;

use crate::ResultSet;
use crate::page::{Page, pages};
use chapter::{Chapter, chapters};
use conclusion::conclusion;
use figures::{Cell, Data, Figure, answer, groups};
use headline::headline;
use jostle_model::plan::Workload;
use jostle_model::text::printable;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use scale::Scale;

pub use card::card;
pub use compared::compared;
pub use drawn::{Drawn, drawn};
pub use judged::judged;

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// Forbids loading anything, so that not even a mistake in this page could.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// The beginning of every page. It marks a file as jostle's own page, which may be
/// replaced.
pub const MARK: &str = "<!DOCTYPE html><html lang=\"en\" data-made-by=\"jostle\"";

/// The page.
pub fn html(sets: &[ResultSet]) -> String {
    let chapters = chapters(sets);
    let pages = pages(sets);
    let body = html! {
        @if sets.is_empty() { section.conclusion #conclusion { p { "There are no results." } } } @else {
            (conclusion(&chapters, sets, &pages))
        }
        @for chapter in &chapters { (self::chapter(chapter, sets, &pages, chapters.len() > 1, false)) }
        @if !sets.is_empty() { (about::about(sets)) }
    };
    document(&title(&chapters, sets), Scale::Log, &body)
}

/// A whole page: without anything that it would have to load, and with the scale that its
/// axes have at first.
fn document(title: &str, scale: Scale, body: &Markup) -> String {
    let scale = scale.name();
    let page = html! {
        (DOCTYPE)
        html lang="en" data-made-by="jostle" data-x=(scale) data-y=(scale) {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    p.brand { "jostle" }
                    (switches(scale))
                }
                main { (body) }
                div #tip role="status" aria-live="polite" hidden {}
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    // Names may turn the direction of writing round; the page has no such mark of its own.
    printable(&page.into_string()).into_owned() + "\n"
}

fn title(chapters: &[Chapter<'_>], sets: &[ResultSet]) -> String {
    let parts = chapters.iter().map(|chapter| {
        let mut targets: Vec<&str> = Vec::new();
        for set in &chapter.sets {
            for target in &sets[*set].experiment.plan.targets {
                if !targets.contains(&target.as_str()) {
                    targets.push(target);
                }
            }
        }
        format!("{} {}", chapter.workload, targets.join(", "))
    });
    let parts: Vec<String> = parts.collect();
    format!("jostle {}", parts.join("; ")).trim_end().to_owned()
}

/// The switches are hidden without the script, which they need.
fn switches(chosen: &str) -> Markup {
    let switch = |axis: &str, name: &str| {
        html! {
            fieldset {
                legend { (name) " axis" }
                @for (kind, word) in [("log", "logarithmic"), ("linear", "linear")] {
                    input type="radio" name=(axis) id=(format!("{axis}-{kind}")) value=(kind) checked[kind == chosen];
                    label for=(format!("{axis}-{kind}")) { (word) }
                }
            }
        }
    };
    html! {
        form #switches hidden title="keys: x and y switch an axis; in a figure, arrows go from point to point" {
            (switch("x", "x"))
            (switch("y", "y"))
        }
    }
}

/// The figure that answers the plan's question, then the others. Ratios are left out if the
/// page has `compared` them already.
fn chapter(
    chapter: &Chapter<'_>,
    sets: &[ResultSet],
    pages: &[Page],
    several: bool,
    compared: bool,
) -> Markup {
    let (question, answers) = answer(chapter).unwrap_or_default();
    let groups = groups(chapter, &answers);
    let members: Vec<&ResultSet> = chapter.sets.iter().map(|at| &sets[*at]).collect();
    let ratios = match compared {
        true => Vec::new(),
        false => ratios::of_chapter(&members, &chapter.labels),
    };
    html! {
        section.chapter {
            @if several { p.kicker { "jostle " (chapter.workload) } }
            @if !answers.is_empty() {
                section.answer {
                    h2 { (question) }
                    div.figures { @for figure in &answers { (self::figure(figure)) } }
                    (key(chapter))
                }
            }
            @if !ratios.is_empty() {
                section.group {
                    h3 { "What differs between the results" }
                    div.figures { @for figure in &ratios { (self::figure(figure)) } }
                }
            }
            section.tables {
                h2 { "All points" }
                @for (set, label) in chapter.sets.iter().zip(&chapter.labels) {
                    (headline(label, *set, &sets[*set], &pages[*set]))
                }
            }
            @if !groups.is_empty() { h2 { "In detail" } }
            @for group in &groups {
                section.group {
                    h3 { (group.title) }
                    div.figures { @for figure in &group.figures { (self::figure(figure)) } }
                }
            }
        }
    }
}

/// Colour and shape of a target, where one series shows it.
fn mark_of(chapter: &Chapter<'_>, at: usize, target: &str) -> Markup {
    let own = chapter
        .series
        .iter()
        .filter(|series| series.target == target && chapter.sets.get(series.set) == Some(&at));
    let own: Vec<_> = own.collect();
    match own[..] {
        [one] => html! { (one.style.swatch()) " " },
        _ => html! {},
    }
}

/// Which line is what, and what the marks mean.
fn key(chapter: &Chapter<'_>) -> Markup {
    html! {
        div.key {
            @if chapter.series.len() > 1 { ul { @for series in &chapter.series {
                li { (series.style.swatch()) " " (series.label) }
            } } }
            p.note { (marks(chapter.workload)) }
        }
    }
}

/// What the marks of a workload's figures mean.
fn marks(workload: Workload) -> &'static str {
    match workload {
        Workload::Recover => {
            "A run without a grant before the owner's own release has no dot. Point at a dot for its \
             exact time."
        }
        _ => {
            "A mark is the median over the runs. A bar is its 95 % interval, or the range of under 6 \
             runs; a dot is one run. Hollow: SUSPECT. Cross at the foot: INVALID, without a figure. \
             Arrow: at least. Point at a mark for its exact figures."
        }
    }
}

fn figure(figure: &Figure) -> Markup {
    html! {
        figure.(figure.width()) {
            figcaption { strong { (figure.title) } " " span.note { (figure.note) } }
            @if !figure.charts.is_empty() {
                div.panels { @for panel in &figure.charts { div.panel {
                    @if let Some(caption) = &panel.caption { p.caption { (caption) } }
                    (panel.drawing)
                } } }
            }
            details.data { summary { "data" } (data(&figure.data)) }
        }
    }
}

fn data(data: &Data) -> Markup {
    html! {
        div.wide { table.data.cards {
            thead { tr { @for heading in &data.headings { th scope="col" { (heading) } } } }
            tbody { @for row in &data.rows { tr.first {
                @for (cell, heading) in row.iter().zip(&data.headings) { (data_cell(cell, heading)) }
            } } }
        } }
    }
}

fn data_cell(cell: &Cell, heading: &str) -> Markup {
    match cell {
        Cell::Text(text) => html! { td.left data-label=(heading) { (text) } },
        Cell::Figure(value, text) => {
            html! { td data-label=(heading) { data value=(value) { (text) } } }
        }
        Cell::None => html! { td.none data-label=(heading) { "–" } },
    }
}

#[cfg(test)]
mod tests;
