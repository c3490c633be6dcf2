//! The page of `jostle compare --html`: the finding, the ratios with their intervals,
//! the table, and below them both results overlaid.

use super::chapter::chapters;
use super::headline::grid;
use super::ratios::figure as ratios;
use super::scale::Scale;
use super::{about, chapter, document, figure};
use crate::ResultSet;
use crate::compare::{Comparison, closing, floor_note, table};
use crate::format::counted;
use crate::page::pages;
use jostle_stats::comparison::{Change, Compared};
use jostle_stats::summary::summarize;
use maud::{Markup, html};

/// The page of a comparison of these results; without `new`, of two targets of `base`.
pub fn compared(comparison: &Comparison, base: &[ResultSet], new: Option<&[ResultSet]>) -> String {
    let sets = labelled(base, new);
    let chapters = chapters(&sets);
    let pages = pages(&sets);
    let word = word(comparison);
    let body = html! {
        section.conclusion #conclusion aria-label="Conclusion" {
            p.kicker { "jostle compare: " (super::conclusion::subject(&chapters, &sets)) }
            h1 { (title(comparison)) }
            p.badge { span.word.(word) { (word) } " " (closing(comparison))
                @if too_few_runs(comparison, &sets) { " Too few runs: " code { "--runs 12" } "." }
            }
            dl.facts {
                div { dt { "BASE" } dd { (comparison.base) } }
                div { dt { "NEW" } dd { (comparison.new) } }
                (listed("Differs in", &comparison.context))
                (listed("Measured on one side", &comparison.only))
            }
        }
        section.chapter {
            @if let Some(drawn) = ratios(comparison, "NEW against BASE") {
                section.answer {
                    h2 { "Which figures changed, and by how much?" }
                    div.figures { (figure(&drawn)) (marks()) }
                }
            }
            h2 { "All figures" }
            (rows(comparison))
        }
        @for one in &chapters { (chapter(one, &sets, &pages, (true, true, true))) }
        (about::about(&sets))
    };
    document("jostle compare", Scale::Log, &body)
}

/// One fact of several lines; nothing of none.
fn listed(name: &str, lines: &[String]) -> Markup {
    html! { @if !lines.is_empty() {
        div { dt { (name) } @for line in lines { dd { (line.strip_prefix("only ").unwrap_or(line)) } } }
    } }
}

/// Both results, told apart by their sides where the user gave them no labels.
fn labelled(base: &[ResultSet], new: Option<&[ResultSet]>) -> Vec<ResultSet> {
    let Some(new) = new else {
        return base.to_vec();
    };
    let side = |sets: &[ResultSet], name: &str| -> Vec<ResultSet> {
        let mut sets = sets.to_vec();
        for set in &mut sets {
            set.label.get_or_insert_with(|| name.to_owned());
        }
        sets
    };
    [side(base, "base"), side(new, "new")].concat()
}

/// The whole in a word: one figure that got worse outweighs all others.
fn word(comparison: &Comparison) -> &'static str {
    let is = |said: Change| comparison.rows.iter().any(|(_, row)| row.said == said);
    let order = [Change::Worse, Change::Better, Change::Same];
    let found = order.into_iter().find(|said| is(*said));
    found.unwrap_or(Change::Undecided).name()
}

/// Whether it got slower: the figure that changed most of those that got worse, or else of
/// those that got better.
fn title(comparison: &Comparison) -> String {
    let of = |said: Change| -> Vec<&Compared> {
        let rows = comparison.rows.iter().map(|(_, row)| row);
        rows.filter(|row| row.said == said).collect()
    };
    for (said, words) in [(Change::Worse, "got worse"), (Change::Better, "got better")] {
        let rows = of(said);
        let change =
            |row: &&&Compared| row.ratio_told().map_or(0.0, |ratio| ratio.ratio.ln().abs());
        let most = rows.iter().max_by(|a, b| change(a).total_cmp(&change(b)));
        if let Some((row, ratio)) = most.and_then(|row| Some((row, row.ratio_told()?))) {
            let (name, label) = (super::ratios::name(row, false, true), row.figure.compared);
            let more = match rows.len() {
                1 => String::new(),
                rows => format!(", and {} more", counted(rows as u64 - 1, "figure")),
            };
            return format!(
                "{name}, {words}: {:.2} times the {label}{more}.",
                ratio.ratio
            );
        }
    }
    match of(Change::Same).is_empty() {
        true => "It is undecided whether anything changed.".to_owned(),
        false => "Nothing that could be decided changed.".to_owned(),
    }
}

/// Whether no ratio has an interval because there are too few runs, and not because other programs
/// spoilt some of enough.
fn too_few_runs(comparison: &Comparison, sets: &[ResultSet]) -> bool {
    let of_interval = if comparison.paired { 6 } else { 4 };
    let points = sets.iter().map(|set| summarize(&set.experiment, &set.runs));
    let runs = points.flat_map(|points| points.iter().map(|point| point.runs.len()).min());
    let is_few = runs.min().is_some_and(|runs| runs < of_interval);
    let ratios = comparison.rows.iter().filter_map(|(_, row)| row.ratio);
    let mut ratios = ratios.peekable();
    is_few && ratios.peek().is_some() && ratios.all(|ratio| !ratio.interval)
}

fn marks() -> Markup {
    html! {
        div.key.beside {
            p.note { "Triangle upwards: better. Triangle downwards: worse. Filled circle: the same. Hollow circle: undecided." }
        }
    }
}

fn rows(comparison: &Comparison) -> Markup {
    let (table, notes) = table(comparison);
    html! {
        (grid(&table))
        @if let Some(note) = floor_note(comparison) { p.note { (note) } }
        @if !notes.is_empty() {
            ol.notes { @for note in &notes { li { (note) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::compare;
    use crate::compare::tests::input;
    use crate::html::tests::between;
    use crate::made;

    fn page(factor: f64) -> String {
        let (base, mut new) = (made::set(), made::set());
        for run in &mut new.runs {
            run.throughput_per_s *= factor;
        }
        page_of([base], [new])
    }

    fn page_of(base: [ResultSet; 1], new: [ResultSet; 1]) -> String {
        let found = compare(&input(&base, &new)).unwrap();
        compared(&found, &base, Some(&new))
    }

    #[test]
    fn where_runs_are_too_few_the_page_says_how_many_would_do() {
        let set = |runs: u32| {
            let mut set = crate::compare::tests::set(1000.0, 1.0);
            set.runs.retain(|run| run.run <= runs);
            [set]
        };
        let says = |runs| page_of(set(runs), set(runs)).contains("Too few runs: <code>--runs 12");
        assert!(says(2) && !says(9));
        // The page called for more runs where its notes named other programs.
        let beside = |runs: u32| {
            let mut sets = set(runs);
            for run in sets[0].runs.iter_mut().filter(|run| run.run > 2) {
                let beside = jostle_stats::fixtures::beside(4.0, 2.0);
                run.around.accounts = beside.around.accounts;
            }
            sets
        };
        assert!(!page_of(beside(9), beside(9)).contains("Too few runs"));
    }

    /// The title named targets and workers, whatever had changed.
    #[test]
    fn the_title_answers_whether_it_got_slower() {
        let set = |per_s: f64| [crate::compare::tests::set(per_s, 1.0)];
        let titled = |new: f64| {
            let page = page_of(set(1000.0), set(new));
            between(&page, "<h1>", "</h1>").to_owned()
        };
        let slower = titled(500.0);
        assert!(slower.contains("got worse: 0.50 times the"), "{slower}");
        assert!(titled(2000.0).contains("got better: 2.00 times the"));
        assert_eq!(titled(1000.0), "Nothing that could be decided changed.");
    }

    #[test]
    fn it_begins_with_the_finding_and_names_both() {
        let page = page(1.0);
        let first = page.split("<section").nth(1).unwrap();
        for part in ["old.jsonl", "new.jsonl", "class=\"word"] {
            assert!(first.contains(part), "{part}: {first}");
        }
        // The words of the table have the colours of the ratios.
        assert!(page.contains("left finding alike") || page.contains("left finding open"));
        assert!(page.contains("flock · base") && page.contains("flock · new"));
        assert!(page.starts_with(super::super::MARK));
    }
}
