//! The table of finished points as the cells that changed: with 200 points the whole table
//! at every finished run was 5.5 MB of events.

use serde::Serialize;
use std::collections::HashMap;

/// Before these a table is cut: its rows and cells, and what follows the last row. Numbers of
/// notes change in many rows at once, each in one cell. The page's script cuts in the same way.
const CUTS: [&str; 2] = ["<t", "</tbody"];

/// A part of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Part {
    /// Pieces of the table before it: from which on, how many.
    Kept(usize, usize),
    /// Other text.
    New(String),
}

/// A table as changes of the one before it.
pub(super) fn changes(before: &str, now: &str) -> Vec<Part> {
    let before = pieces(before);
    let places: HashMap<&str, usize> = before.iter().copied().zip(0..).collect();
    let mut parts = Vec::new();
    // Where the next piece stood if this one took the place of another.
    let mut next = 0;
    for piece in pieces(now) {
        // Many cells are alike, so that the neighbour comes first.
        let same = |at: &usize| before.get(*at) == Some(&piece);
        let place = Some(next).filter(same);
        let place = place.or_else(|| places.get(piece).copied());
        next = place.unwrap_or(next) + 1;
        match (parts.last_mut(), place) {
            (Some(Part::Kept(from, count)), Some(at)) if *from + *count == at => *count += 1,
            (_, Some(at)) => parts.push(Part::Kept(at, 1)),
            (Some(Part::New(text)), None) => text.push_str(piece),
            (_, None) => parts.push(Part::New(piece.to_owned())),
        }
    }
    parts
}

fn pieces(mut html: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    while let Some(first) = html.chars().next() {
        let behind = first.len_utf8();
        let cuts = CUTS.iter().filter_map(|cut| html[behind..].find(cut));
        let end = cuts.min().map_or(html.len(), |at| behind + at);
        let (piece, rest) = html.split_at(end);
        pieces.push(piece);
        html = rest;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(before: &str, parts: &[Part]) -> String {
        let before = pieces(before);
        let text = |part: &Part| match part {
            Part::Kept(from, count) => before[*from..from + count].concat(),
            Part::New(text) => text.clone(),
        };
        parts.iter().map(text).collect()
    }

    #[test]
    fn the_changes_lead_from_one_table_to_the_next() {
        let table = [
            ("", ""),
            ("", "<p>none</p>"),
            ("é<tr>1</tr></tbody>", "é<tr>1</tr><tr>2</tr></tbody>"),
            ("<tr>1<tr>2<tr>3", "<tr>3<tr>1<tr>1<tr>é"),
            ("<tr>a<tr>a<tr>b", "<tr>a<tr>a<tr>b"),
            ("<tr>a</tbody>x", ""),
        ];
        for (before, now) in table {
            assert_eq!(applied(before, &changes(before, now)), now, "{before}");
        }
        let same = changes("<tr>a<tr>b<tr>c", "<tr>a<tr>b<tr>c");
        assert_eq!(same, [Part::Kept(0, 3)]);
    }

    #[test]
    fn a_point_among_200_costs_its_row_and_not_the_table() {
        // The number of its note changes now and then, in all rows.
        let row = |n: usize, runs: usize, of: usize| {
            format!("<tr><td>flock {n}, a name of some length</td><td>{runs}</td><td>[{of}]</tr>")
        };
        let made = |runs: &[usize], of: usize| -> String {
            let rows = runs.iter().enumerate().map(|(n, runs)| row(n, *runs, of));
            format!("<table><tbody>{}</tbody></table>", rows.collect::<String>())
        };
        let (mut runs, mut table) = (Vec::new(), String::new());
        let (mut whole, mut sent) = (0, 0);
        for nth in 0..400 {
            match nth {
                0..200 => runs.push(1),
                _ => runs[nth - 200] = 2,
            }
            let next = made(&runs, nth / 50);
            let parts = changes(&table, &next);
            assert_eq!(applied(&table, &parts), next);
            sent += serde_json::to_string(&parts).unwrap().len();
            (whole, table) = (whole + next.len(), next);
        }
        assert!(sent < whole / 20, "{sent} of {whole}");
    }
}
