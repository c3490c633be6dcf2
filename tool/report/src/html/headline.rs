//! The tables of one experiment: those of the console, with the reasons of a verdict in
//! full width below its row. On a phone each row is a card, laid out as the headings above all.

use crate::ResultSet;
use crate::failures::FAILURES;
use crate::grid::{Grid, Heading};
use crate::headline::Headline;
use crate::page::Page;
use crate::recover::TWO_OWNERS;
use jostle_stats::summary::summarize;
use maud::{Markup, html};

/// Rows from which on a table scrolls by itself, so that the figures below it
/// are found.
const LONG: usize = 60;

/// All tables of one experiment.
pub(super) fn headline(label: &str, at: usize, set: &ResultSet, page: &Page) -> Markup {
    html! {
        section.headline {
            @if !label.is_empty() { h3 { (label) } }
            @if let Some(headline) = &page.headline { (table(headline, set, at)) }
            @if !page.failures.is_empty() {
                p.note { (FAILURES) }
                @for said in &page.failures { p.warning { (said) } }
            }
            @for table in &page.tables {
                p.title { (table.title) }
                (grid(&table.grid))
                @for (mark, note) in &table.notes { p.note { (mark) " " (note) } }
            }
        }
    }
}

/// A table of texts.
pub(super) fn grid(grid: &Grid) -> Markup {
    html! {
        div.wide { table.headline.cards {
            (head(&grid.columns))
            tbody { @for row in &grid.rows { tr.first[first(row)] {
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
    let class = match (column.left, cell) {
        (_, "" | "-") => "none".to_owned(),
        // Two owners at a time: what a lock is there to prevent.
        (false, _) if column.title == TWO_OWNERS => "right worse".to_owned(),
        (true, _) if column.title[1] == "finding" => format!("left finding {}", finding(cell)),
        (true, _) => "left".to_owned(),
        (false, _) => "right".to_owned(),
    };
    html! { td.(class) { (cell) } }
}

/// The style of `worse[1]`.
fn finding(cell: &str) -> &'static str {
    match cell.split('[').next() {
        Some("better") => "better",
        Some("worse") => "worse",
        Some("same") => "alike",
        _ => "open",
    }
}

/// The console's table. The reasons of a verdict stand below the first row that they
/// are for; in an INVALID row there are no figures.
fn table(headline: &Headline, set: &ResultSet, at: usize) -> Markup {
    let points = summarize(&set.experiment, &set.runs);
    let columns = &headline.grid.columns;
    let below = below(headline);
    html! {
        div.wide.long[points.len() > LONG] { table.headline.cards.points {
            (head(columns))
            tbody { @for (number, row) in headline.grid.rows.iter().enumerate() {
                tr.first[first(row)] {
                    @for (cell, column) in row.iter().zip(columns).take(row.len() - 1) { (td(cell, column)) }
                    (verdict(row, at))
                }
                @for note in below.iter().filter(|note| note.row == number) {
                    tr.why id=(format!("note-{at}-{}", note.number)) {
                        td.reason colspan=(row.len()) {
                            span.mark { "[" (note.number) "] " } (note.text)
                        }
                    }
                }
            } }
        } }
    }
}

/// A note and the row that it stands below.
struct Below<'a> {
    row: usize,
    number: usize,
    text: &'a str,
}

/// Each note below the first row that refers to it, and so in the order of their numbers.
fn below(headline: &Headline) -> Vec<Below<'_>> {
    let rows = &headline.grid.rows;
    let place = |number: usize| {
        let refers = |row: &Vec<String>| {
            let verdict = row.last();
            verdict.is_some_and(|verdict| marks(verdict).1.any(|mark| mark == number.to_string()))
        };
        let first = rows.iter().position(refers);
        first.unwrap_or(rows.len().saturating_sub(1))
    };
    let notes = headline.notes.iter().zip(1..);
    notes
        .map(|(text, number)| Below {
            row: place(number),
            number,
            text,
        })
        .collect()
}

/// Whether a row begins a target.
fn first(row: &[String]) -> bool {
    row.first().is_some_and(|target| !target.is_empty())
}

/// The word and the numbers of `SUSPECT[1,2]`.
fn marks(verdict: &str) -> (&str, impl Iterator<Item = &str>) {
    let (word, notes) = verdict.split_once('[').unwrap_or((verdict, ""));
    let notes = notes.split([',', ']']).filter(|note| !note.is_empty());
    (word, notes)
}

/// `SUSPECT[1]`, its number leading to the note.
fn verdict(row: &[String], at: usize) -> Markup {
    let (word, notes) = marks(row.last().map_or("", String::as_str));
    html! {
        td.left.verdict.(word.to_lowercase()) {
            span { (word) }
            @for note in notes { a href=(format!("#note-{at}-{note}")) { "[" (note) "]" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headline(verdicts: &[&str], notes: &[&str]) -> Headline {
        let row = |verdict: &&str| vec!["flock".to_owned(), (*verdict).to_owned()];
        Headline {
            grid: Grid {
                columns: vec![Heading::left("target"), Heading::left("verdict")],
                rows: verdicts.iter().map(row).collect(),
            },
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
        }
    }

    #[test]
    fn a_note_stands_below_the_first_row_that_refers_to_it() {
        let verdicts = ["VALID", "SUSPECT[1]", "SUSPECT[1,2]", "VALID", "SUSPECT[1]"];
        let headline = headline(&verdicts, &["one", "two", "of no row"]);
        let places: Vec<usize> = below(&headline).iter().map(|note| note.row).collect();
        assert_eq!(places, [1, 2, 4]);
    }
}
