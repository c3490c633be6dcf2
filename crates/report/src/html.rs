//! `--html FILE`: one page with everything that a result says, for a browser.
//!
//! It is a pure function of the results, and whole in itself: style, script,
//! drawings and data stand in it, and its own content policy forbids the
//! browser to load anything else. Table and sentences are those of the console.
//! Whatever a user named is escaped by the template macro.

mod about;
mod chapter;
mod chart;
mod figures;
mod judged;
mod labels;
pub mod live;
mod scale;
mod units;

use crate::ResultSet;
use crate::failures::FAILURES;
use crate::grid::{Grid, Heading};
use crate::headline::Headline;
use crate::page::{Page, pages};
use crate::requests::ACCOUNTS;
use chapter::{Chapter, chapters};
use figures::{Cell, Data, Figure, groups};
use jostle_model::record::Is;
use jostle_stats::summary::summarize;
use maud::{DOCTYPE, Markup, PreEscaped, html};

pub use judged::judged;

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// Nothing from anywhere: not even a mistake in this page could load something.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// Rows from which on a table scrolls by itself, so that the figures below it
/// are found.
const LONG: usize = 40;

/// What stands at the beginning of every page: by it a page is known that may
/// be replaced.
pub const MARK: &str = "<!DOCTYPE html><html lang=\"en\" data-made-by=\"jostle\"";

/// The page.
pub fn html(sets: &[ResultSet]) -> String {
    let chapters = chapters(sets);
    let pages = pages(sets);
    let title = title(&chapters, sets);
    let page = html! {
        (DOCTYPE)
        html lang="en" data-made-by="jostle" data-x="log" data-y="log" {
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
                    h1 { (title) }
                    (switches())
                }
                main {
                    @if sets.is_empty() { p { "There are no results." } }
                    @for chapter in &chapters { (self::chapter(chapter, sets, &pages, chapters.len() > 1)) }
                    @if !sets.is_empty() { (about::about(sets)) }
                }
                div #tip role="status" aria-live="polite" hidden {}
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string() + "\n"
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

/// Without the script there is nothing to switch, and so they are hidden.
fn switches() -> Markup {
    let switch = |axis: &str, name: &str| {
        html! {
            fieldset {
                legend { (name) " axis" }
                @for (kind, word) in [("log", "logarithmic"), ("linear", "linear")] {
                    input type="radio" name=(axis) id=(format!("{axis}-{kind}")) value=(kind) checked[kind == "log"];
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

fn chapter(chapter: &Chapter<'_>, sets: &[ResultSet], pages: &[Page], several: bool) -> Markup {
    let groups = groups(chapter);
    html! {
        section.chapter {
            @if several { h2 { "jostle " (chapter.workload) } }
            @for (set, label) in chapter.sets.iter().zip(&chapter.labels) {
                (headline(chapter, label, *set, &sets[*set], &pages[*set]))
            }
            @if !groups.is_empty() { (key(chapter)) }
            @for group in &groups {
                section.group {
                    h3 { (group.title) }
                    div.figures { @for figure in &group.figures { (self::figure(figure)) } }
                }
            }
        }
    }
}

/// What the console prints, in its order.
fn headline(chapter: &Chapter<'_>, label: &str, at: usize, set: &ResultSet, page: &Page) -> Markup {
    html! {
        section.headline {
            @if !label.is_empty() { h2 { (label) } }
            p.intro { (page.intro) }
            @for note in &set.notes { p.warning { (note) "." } }
            @if let Some(ended) = &page.ended { p.warning { (ended) } }
            @if let Some(headline) = &page.headline { (table(headline, set, at)) }
            @if !page.failures.is_empty() {
                p.note { (FAILURES) }
                @for said in &page.failures { p.warning { (said) } }
            }
            @for table in &page.tables {
                p.note { (table.title) }
                (grid(&table.grid))
                @for (mark, note) in &table.notes { p.note { (mark) " " (note) } }
            }
            @if let Some(accounts) = &page.accounts {
                p.note { (ACCOUNTS) }
                (grid(accounts))
            }
            @if let Some(over) = &page.over {
                p.note { "Share of the acquisitions that waited longer:" }
                (grid(over))
            }
            @if !page.sentences.is_empty() {
                dl.sentences { @for (target, sentence) in &page.sentences {
                    dt { (mark_of(chapter, at, target)) (target) }
                    dd { (sentence) }
                } }
            }
            @for (target, sentence) in &page.growth {
                @if target.is_empty() { p { (sentence) } } @else {
                    dl.sentences {
                        dt { (mark_of(chapter, at, target)) (target) }
                        dd { (sentence) }
                    }
                }
            }
            @for comparison in &page.comparisons { p { (comparison) } }
            @if let Some(checked) = &page.checked { p.note { (checked) } }
            p.next { "Next: " code { (page.next) } }
        }
    }
}

fn grid(grid: &Grid) -> Markup {
    html! {
        div.wide { table.headline {
            (head(&grid.columns))
            tbody { @for row in &grid.rows { tr {
                @for (cell, column) in row.iter().zip(&grid.columns) { (td(cell, column)) }
            } } }
        } }
    }
}

fn head(columns: &[Heading]) -> Markup {
    html! { thead { tr { @for column in columns {
        th scope="col" class=[column.left.then_some("left")] {
            @if !column.title[0].is_empty() { (column.title[0]) br; }
            (column.title[1])
        }
    } } } }
}

fn td(cell: &str, column: &Heading) -> Markup {
    html! { td class=[column.left.then_some("left")] { (cell) } }
}

/// The console's table. In an INVALID row the reason stands where the figures
/// would.
fn table(headline: &Headline, set: &ResultSet, at: usize) -> Markup {
    let points = summarize(&set.experiment, &set.points);
    let columns = &headline.grid.columns;
    html! {
        div.wide.long[points.len() > LONG] { table.headline {
            (head(columns))
            tbody { @for (row, point) in headline.grid.rows.iter().zip(&points) {
                @let reason = point.verdict.reasons.iter().find(|reason| reason.is == Is::Invalid);
                @let figures = row.iter().rposition(|cell| cell != "-" && !cell.starts_with("INVALID"));
                tr class=[first(row).then_some("first")] { @match (reason, figures) {
                    (Some(reason), Some(last)) => {
                        @for (cell, column) in row.iter().zip(columns).take(last + 1) { (td(cell, column)) }
                        td.reason colspan=(row.len() - last - 2) { div { (reason.text) } }
                        (verdict(row, at))
                    }
                    _ => {
                        @for (cell, column) in row.iter().zip(columns).take(row.len() - 1) { (td(cell, column)) }
                        (verdict(row, at))
                    }
                } }
            } }
        } }
        @if let Some(meaning) = headline.plus_minus { p.note { (meaning) } }
        @if !headline.notes.is_empty() {
            ol.notes { @for (n, note) in headline.notes.iter().enumerate() {
                li id=(format!("note-{at}-{}", n + 1)) { (note) }
            } }
        }
    }
}

/// Whether a row begins a target.
fn first(row: &[String]) -> bool {
    row.first().is_some_and(|target| !target.is_empty())
}

/// `SUSPECT[1]`, its number leading to the note.
fn verdict(row: &[String], at: usize) -> Markup {
    let text = row.last().map_or("", String::as_str);
    let (word, notes) = text.split_once('[').unwrap_or((text, ""));
    let notes = notes.split(['[', ']']).filter(|note| !note.is_empty());
    html! {
        td.left.verdict.(word.to_lowercase()) {
            span { (word) }
            @for note in notes { a href=(format!("#note-{at}-{note}")) { "[" (note) "]" } }
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
            ul { @for series in &chapter.series {
                li { (series.style.swatch()) " " (series.label) }
            } }
            p.note {
                "Marks: medians over the runs; bars: their 95 % interval, the range where there are under 6 \
                 runs; dots: single runs. Hollow: SUSPECT. Cross at the foot: INVALID, and so without a \
                 figure. Arrow: at least. Pointing at a mark tells its figures."
            }
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
        div.wide { table.data {
            thead { tr { @for heading in &data.headings { th scope="col" { (heading) } } } }
            tbody { @for row in &data.rows { tr { @for cell in row { (data_cell(cell)) } } } }
        } }
    }
}

fn data_cell(cell: &Cell) -> Markup {
    match cell {
        Cell::Text(text) => html! { td.left { (text) } },
        Cell::Figure(value, text) => html! { td { data value=(value) { (text) } } },
        Cell::None => html! { td { "–" } },
    }
}

#[cfg(test)]
mod tests;
