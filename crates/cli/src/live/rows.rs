//! The table of finished points as the rows that changed: with 200 points the whole table at
//! every finished run was 5.5 MB of events.

use serde::Serialize;
use std::collections::HashMap;

/// Before these a table is cut into rows; the page's script cuts it in the same way.
const CUTS: [&str; 2] = ["<tr", "</tbody"];

/// A part of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Part {
    /// Rows of the table before it: from which on, how many.
    Kept(usize, usize),
    /// Other text.
    New(String),
}

/// A table as changes of the one before it.
pub(super) fn changes(before: &str, now: &str) -> Vec<Part> {
    let before = rows(before);
    let places: HashMap<&str, usize> = before.iter().copied().zip(0..).collect();
    let mut parts = Vec::new();
    for row in rows(now) {
        match (parts.last_mut(), places.get(row)) {
            // The same text may stand in several places.
            (Some(Part::Kept(from, count)), _) if before.get(*from + *count) == Some(&row) => {
                *count += 1;
            }
            (_, Some(at)) => parts.push(Part::Kept(*at, 1)),
            (Some(Part::New(text)), None) => text.push_str(row),
            (_, None) => parts.push(Part::New(row.to_owned())),
        }
    }
    parts
}

fn rows(mut html: &str) -> Vec<&str> {
    let mut rows = Vec::new();
    while !html.is_empty() {
        let behind = html.chars().next().map_or(0, char::len_utf8);
        let cuts = CUTS.iter().filter_map(|cut| html[behind..].find(cut));
        let end = cuts.min().map_or(html.len(), |at| behind + at);
        let (row, rest) = html.split_at(end);
        rows.push(row);
        html = rest;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(before: &str, parts: &[Part]) -> String {
        let before = rows(before);
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
        let row = |n: usize, runs: usize| format!("<tr><td>flock {n}</td><td>{runs}</td></tr>");
        let made = |runs: &[usize]| -> String {
            let rows = runs.iter().enumerate().map(|(n, runs)| row(n, *runs));
            format!("<table><tbody>{}</tbody></table>", rows.collect::<String>())
        };
        let (mut runs, mut table) = (Vec::new(), String::new());
        let (mut whole, mut sent) = (0, 0);
        for nth in 0..400 {
            match nth {
                0..200 => runs.push(1),
                _ => runs[nth - 200] = 2,
            }
            let next = made(&runs);
            let parts = changes(&table, &next);
            assert_eq!(applied(&table, &parts), next);
            sent += serde_json::to_string(&parts).unwrap().len();
            (whole, table) = (whole + next.len(), next);
        }
        assert!(
            sent < 5 * table.len() && sent < whole / 50,
            "{sent} of {whole}"
        );
    }
}
