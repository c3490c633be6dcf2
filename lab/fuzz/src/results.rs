//! Result files, cut and mutated, through all writers and the page.
//!
//! An input that begins with `{` is the text of a file. Any other is a list of changes to
//! a real file: which one (and from 128 on, with a target of 70,000 characters), after
//! which of its bytes it is cut, and triples that say which of its figures becomes which
//! absurd one.
//!
//! The properties that must hold for every input:
//!
//! - no panic, however absurd the figures are;
//! - nothing is printed as `NaN` or an infinity (gnuplot's `nan` stands for what was not
//!   measured);
//! - each row of the csv, in both forms, has as many cells as the header, and none that is
//!   text begins as a formula does;
//! - a file that holds no end is told from a whole one, by each format or beside it;
//! - what `--format json` prints is read back as what it was.

use jostle_report::{FORMATS, ResultSet, html, read_from, render, tidy};
use serde_json::Value;

/// Real ones, of several workloads.
const FILES: [&str; 4] = [
    include_str!("../../record/lockscale.jsonl"),
    include_str!("../../record/scope.jsonl"),
    include_str!("../../record/services.jsonl"),
    include_str!("../../record/connect-1M.jsonl"),
];

/// So many records of a file have every column, and are read quickly.
const RECORDS: usize = 4;

/// The values that replace figures: the least and the most that a file may hold, what is divided by
/// where nothing was measured, and what no file may hold.
const ABSURD: [&str; 10] = [
    "0", "1", "-1", "1e100", "-1e100", "1e-100", MOST, "0.5", "1e308", "5e-324",
];

/// The greatest count.
const MOST: &str = "9007199254740992";

/// Whether the input was more than refused.
pub fn check(data: &[u8]) -> bool {
    let text = match data {
        [b'{', ..] => data.to_vec(),
        [file, low, high, changes @ ..] => mutated(*file, [*low, *high], changes),
        _ => return false,
    };
    let Ok(sets) = read_from(&mut text.as_slice(), "a.jsonl") else {
        return false;
    };
    for format in FORMATS {
        let text = render(format.name, &sets);
        assert_eq!(no_number(&text), None, "as {}:\n{text}", format.name);
        for early in sets.iter().filter_map(ResultSet::ended_early) {
            // The table breaks its lines.
            let told = text.replace('\n', " ").contains(&early);
            let plain = early.chars().all(|c| c.is_ascii_graphic() || c == ' ');
            assert!(told || !plain || !format.tells_early_end, "{early}\n{text}");
        }
    }
    check_csv(&render("csv", &sets));
    check_csv(&tidy(&sets));
    let page = html(&sets);
    // The script of the page is code, and no output of ours.
    let page = page.split("<script").next().unwrap_or("");
    assert_eq!(no_number(page), None, "{page}");
    let json = render("json", &sets);
    let again = read_from(&mut json.as_bytes(), "a.jsonl").expect("what was printed is whole");
    assert_eq!(render("json", &again), json);
    true
}

fn mutated(file: u8, cut: [u8; 2], changes: &[u8]) -> Vec<u8> {
    let lines = FILES[usize::from(file & 0x7f) % FILES.len()].lines();
    let lines = lines.take(RECORDS);
    let records = lines.filter_map(|line| serde_json::from_str(line).ok());
    let mut records: Vec<Value> = records.collect();
    if file >= 0x80 {
        let wide = Value::from(format!("flock:/{}", "x".repeat(70_000)));
        for target in records
            .iter_mut()
            .filter_map(|record| record.get_mut("target"))
        {
            *target = wide.clone();
        }
    }
    for change in changes.chunks_exact(3) {
        let mut nth = usize::from(u16::from_le_bytes([change[0], change[1]]));
        let absurd = ABSURD[usize::from(change[2]) % ABSURD.len()];
        let mut found = records.iter_mut();
        let found = found.find_map(|record| number(record, &mut nth));
        if let Some(found) = found {
            // A count stays a whole number, or the line would be no record.
            let whole = found.is_u64() && absurd.starts_with('-') | absurd.contains(['e', '.']);
            let absurd = if whole { MOST } else { absurd };
            *found = serde_json::from_str(absurd).expect("a number");
        }
    }
    let text: String = records.iter().map(|record| format!("{record}\n")).collect();
    match u16::from_le_bytes(cut) {
        0 => text.into_bytes(),
        cut => text
            .into_bytes()
            .into_iter()
            .take(usize::from(cut))
            .collect(),
    }
}

/// The figure of this number, depth first; histograms are figures of the page alone.
fn number<'a>(value: &'a mut Value, nth: &mut usize) -> Option<&'a mut Value> {
    match value {
        Value::Number(_) if *nth == 0 => Some(value),
        Value::Number(_) => {
            *nth -= 1;
            None
        }
        Value::Array(values) => values.iter_mut().find_map(|value| number(value, nth)),
        Value::Object(fields) => fields.iter_mut().find_map(|(_, value)| number(value, nth)),
        _ => None,
    }
}

/// A word that is no number where one should stand.
fn no_number(text: &str) -> Option<&str> {
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    words.find(|word| ["NaN", "inf", "infinity"].contains(word))
}

/// RFC 4180, read back.
fn check_csv(text: &str) {
    let mut width = None;
    for row in rows(text) {
        assert_eq!(row.len(), *width.get_or_insert(row.len()), "{text}");
        for cell in &row {
            let text = cell.parse::<f64>().is_err();
            assert!(!(text && cell.starts_with(['=', '+', '-', '@'])), "{cell}");
        }
    }
}

fn rows(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut cell, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    for c in text.chars() {
        match c {
            // Two of them within quotes leave the state as it was, and one too few.
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut cell)),
            '\n' if !quoted => {
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
            }
            c => cell.push(c),
        }
    }
    rows
}
