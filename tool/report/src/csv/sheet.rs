//! Rows of named cells as csv: columns that no row has anything in are left out.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Display;

/// The cells so far. Columns stand in the order in which they were first named.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    names: Vec<String>,
    places: HashMap<String, usize>,
    /// Whether any row has something there.
    held: Vec<bool>,
    rows: Vec<Vec<String>>,
    always: Vec<&'static str>,
}

impl Sheet {
    /// Without rows; these columns stand in any case.
    pub(super) fn new<const N: usize>(always: [&'static str; N]) -> Sheet {
        Sheet {
            always: always.to_vec(),
            ..Sheet::default()
        }
    }

    /// Begins a row, to which cells are added.
    pub(super) fn row(&mut self) {
        self.rows.push(Vec::new());
    }

    /// A cell of the last row; an empty one holds nothing.
    pub(super) fn add(&mut self, name: &str, cell: String) {
        let place = match self.places.get(name) {
            Some(place) => *place,
            None => {
                self.places.insert(name.to_owned(), self.names.len());
                self.names.push(name.to_owned());
                self.held.push(false);
                self.names.len() - 1
            }
        };
        self.held[place] |= !cell.is_empty();
        if let Some(row) = self.rows.last_mut() {
            if row.len() <= place {
                row.resize(place + 1, String::new());
            }
            row[place] = cell;
        }
    }

    /// Several cells of the last row.
    pub(super) fn add_all(&mut self, cells: &[(&'static str, String)]) {
        for (name, cell) in cells {
            self.add(name, cell.clone());
        }
    }

    /// Header and rows.
    pub(super) fn text(mut self) -> String {
        for name in std::mem::take(&mut self.always) {
            match self.places.get(name) {
                Some(place) => self.held[*place] = true,
                None => {
                    self.names.push(name.to_owned());
                    self.held.push(true);
                }
            }
        }
        let kept: Vec<usize> = (0..self.names.len()).filter(|at| self.held[*at]).collect();
        let mut writer = csv::Writer::from_writer(Vec::new());
        let header = kept
            .iter()
            .map(|at| harmless(&self.names[*at]).into_owned());
        let mut done = writer.write_record(header);
        for row in &self.rows {
            let cell = |at: &usize| {
                row.get(*at)
                    .map_or(Cow::Borrowed(""), |cell| harmless(cell))
            };
            let cells: Vec<Cow<'_, str>> = kept.iter().map(cell).collect();
            done = done.and_then(|()| writer.write_record(cells.iter().map(|c| c.as_bytes())));
        }
        let text = done.ok().and_then(|()| writer.into_inner().ok());
        let text = text.and_then(|bytes| String::from_utf8(bytes).ok());
        text.unwrap_or_else(|| unreachable!("rows of one width are written to memory"))
    }
}

/// Puts an apostrophe before a text that a spreadsheet would take for a formula.
/// Spreadsheets then read it as text. Otherwise the name of a target could run commands on
/// the computer where the file is opened.
fn harmless(cell: &str) -> Cow<'_, str> {
    let formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
    match formula && cell.parse::<f64>().is_err() {
        true => Cow::Owned(format!("'{cell}")),
        false => Cow::Borrowed(cell),
    }
}

/// The value, or nothing.
pub(super) fn or_empty<T: Display>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// A figure with all its digits.
pub(super) fn number(value: f64) -> String {
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula_and_numbers_stay_numbers() {
        let table = [
            ("=1+1", "'=1+1"),
            ("=cmd|' /C calc'!A0,x", "'=cmd|' /C calc'!A0,x"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("+exec", "'+exec"),
            ("-250us", "'-250us"),
            ("\t=1", "'\t=1"),
            ("-250", "-250"),
            ("+1.5e-3", "+1.5e-3"),
            ("flock", "flock"),
            ("", ""),
        ];
        for (cell, expected) in table {
            assert_eq!(harmless(cell), expected);
        }
    }

    #[test]
    fn columns_that_hold_nothing_are_left_out_and_texts_are_quoted() {
        let mut sheet = Sheet::new(["target", "checks"]);
        for (target, low) in [("flock:/mnt/a,b", ""), ("a \"b\"", "3"), ("two\nlines", "")] {
            sheet.row();
            sheet.add("target", target.to_owned());
            sheet.add("nothing", String::new());
            sheet.add("low", low.to_owned());
        }
        let expected =
            "target,low,checks\n\"flock:/mnt/a,b\",,\n\"a \"\"b\"\"\",3,\n\"two\nlines\",,\n";
        assert_eq!(sheet.text(), expected);
        assert_eq!(Sheet::new(["target", "checks"]).text(), "target,checks\n");
    }
}
