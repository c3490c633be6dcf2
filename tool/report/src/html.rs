//! `--html FILE`: one page with everything that a result says, for a browser.
//!
//! It is a pure function of the results, and self-contained: it includes style, script,
//! drawings and data, and its content policy forbids the browser to load anything else.
//! Table and sentences are those of the console. The template macro escapes all names from
//! the user.

mod about;
pub(crate) mod chapter;
mod chart;
mod compared;
mod conclusion;
pub(crate) mod figures;
mod headline;
mod judged;
mod labels;
pub mod live;
mod ratios;
mod scale;
mod strokes;
mod svg;
mod units;

use crate::ResultSet;
use crate::page::{Page, pages};
use chapter::{Chapter, chapters};
use conclusion::{conclusion, finding, subject};
use figures::{Cell, Data, Drawing, answer, groups};
use headline::headline;
use jostle_model::plan::Workload;
use jostle_model::text::printable;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use scale::Scale;
use std::collections::{BTreeMap, BTreeSet};

pub use compared::compared;
pub use judged::judged;
pub use svg::{SvgFile, card, svg_files, svg_files_of_judged};

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
        // Beside the conclusion, so that the first screen has a drawing.
        @if let Some(first) = chapters.first() { (answered(first)) }
        @for (nth, chapter) in chapters.iter().enumerate() {
            (self::chapter(chapter, sets, &pages, (chapters.len() > 1, nth > 0, false)))
        }
        @if !sets.is_empty() { (about::about(sets)) }
    };
    document(&title(&chapters, sets, &pages), Scale::Log, &body)
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
                title { (clipped(title, TITLE)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    p.brand { "jostle" }
                    (switches(scale, &body.0))
                }
                main { (body) }
                div #tip role="status" aria-live="polite" hidden {}
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    // Names may turn the direction of writing round; the page has no such mark of its own.
    shared(&printable(&page.into_string())) + "\n"
}

/// Letters of a title that a browser's tab or a list of bookmarks shows, at most.
const TITLE: usize = 70;

/// At most so many letters, whole words.
fn clipped(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut clipped = String::new();
    for word in text.split(' ') {
        if clipped.chars().count() + word.chars().count() + 2 > most {
            break;
        }
        clipped += word;
        clipped.push(' ');
    }
    format!("{}\u{2026}", clipped.trim_end())
}

/// The title of the window and of bookmarks: what was found, else what was measured.
fn title(chapters: &[Chapter<'_>], sets: &[ResultSet], pages: &[Page]) -> String {
    let workloads: Vec<&str> = chapters.iter().map(|c| c.workload.as_str()).collect();
    let jostle = format!("jostle {}", workloads.join(", "));
    match (finding(sets, pages), sets.is_empty()) {
        (Some(finding), _) => {
            let room = TITLE.saturating_sub(jostle.chars().count() + 3);
            format!(
                "{} - {jostle}",
                clipped(finding.trim_end_matches('.'), room)
            )
        }
        (None, false) => clipped(&format!("{jostle}: {}", subject(chapters, sets)), TITLE),
        (None, true) => jostle.trim_end().to_owned(),
    }
}

/// One for each axis that some drawing has in both scales. They are hidden without the script,
/// which they need.
fn switches(chosen: &str, body: &str) -> Markup {
    let both = |axis: &&&str| body.contains(&format!("class=\"ticks {axis} log\""));
    let switch = |axis: &str| {
        html! {
            fieldset {
                legend { (axis) " axis" }
                @for (kind, word) in [("log", "logarithmic"), ("linear", "linear")] {
                    input type="radio" name=(axis) id=(format!("{axis}-{kind}")) value=(kind) checked[kind == chosen];
                    label for=(format!("{axis}-{kind}")) { (word) }
                }
            }
        }
    };
    html! {
        form #switches hidden title="keys: x and y switch an axis; in a figure, arrows go from point to point" {
            @for axis in ["x", "y"].iter().filter(both) { (switch(axis)) }
        }
    }
}

/// The figure that answers the plan's question, then the others. Ratios are left out if the
/// page has `compared` them already.
fn chapter(
    chapter: &Chapter<'_>,
    sets: &[ResultSet],
    pages: &[Page],
    (several, with_answer, compared): (bool, bool, bool),
) -> Markup {
    let (_, answers) = answer(chapter).unwrap_or_default();
    let groups = groups(chapter, &answers);
    let ratios = match compared {
        true => Vec::new(),
        false => ratios::of_chapter(chapter, sets),
    };
    html! {
        section.chapter {
            @if several { p.kicker { "jostle " (chapter.workload) } }
            (doubts(chapter))
            @if with_answer { (answered(chapter)) }
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

/// The figures that answer the plan's question, and the key to all of the chapter.
fn answered(chapter: &Chapter<'_>) -> Markup {
    html! {
        @if let Some((question, answers)) = answer(chapter) {
            section.answer {
                h2 { (question) }
                div.figures { @for figure in &answers { (self::figure(figure)) } }
                (key(chapter))
            }
        }
    }
}

/// The key to lines and marks.
fn key(chapter: &Chapter<'_>) -> Markup {
    html! {
        div.key {
            @if chapter.series.len() > 1 { ul { @for series in &chapter.series {
                li data-series=(series.style.series()) { (series.style.swatch()) " " (series.label) }
            } } }
            p.note { (marks(chapter.workload)) }
        }
    }
}

/// The meaning of the marks of a workload's figures.
fn marks(workload: Workload) -> &'static str {
    match workload {
        Workload::Recover => {
            "A run without a grant before the owner's own release has no dot. Point at a dot for its \
             exact time."
        }
        Workload::Verify => "A dot is a call or its end. Point at a dot for its exact time.",
        _ => {
            "A mark is the median over the runs. A bar is its 95 % interval, or the range of under 6 \
             runs; a dot is one run. Hollow: SUSPECT. Cross at the foot: INVALID, without a figure. \
             Arrow: at least. Point at a mark for its exact figures."
        }
    }
}

fn figure(figure: &Drawing) -> Markup {
    html! {
        figure.(figure.width()) {
            figcaption { strong { (figure.title) } " " span.note { (figure.note) } }
            @if !figure.charts.is_empty() {
                div.panels { @for panel in &figure.charts { div.panel.(panel.series) {
                    @if let Some(caption) = &panel.caption { p.caption { (caption) } }
                    (panel.drawing)
                } } }
            }
            details.data { summary { "data" } (data(&figure.data)) }
        }
    }
}

/// Its cells have no end tags, which a page with thousands of them need not have either.
fn data(data: &Data) -> Markup {
    let mut rows = String::new();
    let mut above = None;
    for row in &data.rows {
        // A phone has the series above its first row.
        let begins = above.replace(&row[0]) != Some(&row[0]);
        rows += if begins { "<tr class=first>" } else { "<tr>" };
        for (at, cell) in row.iter().enumerate() {
            let (class, text) = match cell {
                // The style sheet knows the first and the last.
                Cell::Text(text) if at == 0 || at + 1 == row.len() => ("", text.as_str()),
                Cell::Text(text) => (" class=left", text.as_str()),
                Cell::Figure(text) => ("", text.as_str()),
                Cell::None => (" class=none", "–"),
            };
            rows += &format!("<td{class}>{}", html! { (text) }.0);
        }
    }
    html! {
        div.wide { table.data.cards {
            thead { tr { @for heading in &data.headings { th scope="col" { (heading) } } } }
            tbody { (PreEscaped(rows)) }
        } }
    }
}

/// Doubts about each point, once for all figures that show it.
fn doubts(chapter: &Chapter<'_>) -> Markup {
    let spots = chapter.series.iter().flat_map(|series| &series.spots);
    html! { ul.doubts hidden { @for spot in spots { @let text = figures::doubts(spot); @if !text.is_empty() {
        li data-row=(spot.number) { (text) }
    } } } }
}

/// The page with each group of ticks once, however many drawings have the same.
fn shared(page: &str) -> String {
    const GROUP: &str = "<g class=\"ticks ";
    let mut pieces = page.split(GROUP);
    let mut whole = pieces.next().unwrap_or_default().to_owned();
    let groups: Vec<(&str, &str)> = pieces
        .filter_map(|piece| piece.split_once("</g>"))
        .collect();
    let mut known: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (group, _) in &groups {
        let next = known.len();
        known.entry(group).or_insert((next, 0)).1 += 1;
    }
    let mut drawn = BTreeSet::new();
    for (group, rest) in groups {
        let (number, times) = known[group];
        let class = group.split('"').next().unwrap_or_default();
        whole += &match (times, drawn.insert(number)) {
            (1, _) => format!("{GROUP}{group}</g>"),
            (_, true) => format!("<g id=\"t{number}\" class=\"ticks {group}</g>"),
            (_, false) => format!("<use class=\"ticks {class}\" href=\"#t{number}\"/>"),
        };
        whole += rest;
    }
    whole
}

#[cfg(test)]
mod tests;
