//! Records that no run ever wrote, but that a file may hold: figures beyond all bounds.
//! Whatever stands in them, no writer panics, and none prints NaN or an infinity.

#![allow(clippy::unwrap_used, reason = "every function here is of a test")]

use jostle_report::{FORMATS, ResultSet, html, read, render};
use serde_json::Value;
use std::io::Write;
use std::path::Path;

/// Files of this repository that are small enough to be read a few hundred times.
const FILES: [&str; 4] = ["lockscale", "scope", "connect-1M", "services"];

/// So many points of each file are enough for every column.
const RECORDS: usize = 8;

/// The values that replace figures: the least and the most that a file may hold, and what is
/// divided by where nothing was measured.
const ABSURD: [&str; 8] = ["0", "1", "-1", "1e100", "-1e100", "1e-100", MOST, "0.5"];

/// The greatest count.
const MOST: &str = "9007199254740992";

/// A linear congruential generator (Knuth's MMIX), so that a fault comes again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

fn lines(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../lab/record/{name}.jsonl"));
    let text = std::fs::read_to_string(path).unwrap();
    let records = text.lines().map(|line| serde_json::from_str(line).unwrap());
    records.take(RECORDS).collect()
}

/// Replaces one figure in `one_in`, all the way down.
fn mutate(value: &mut Value, dice: &mut Dice, one_in: usize) {
    match value {
        Value::Number(number) if dice.below(one_in) == 0 => {
            let absurd = ABSURD[dice.below(ABSURD.len())];
            let fits = |text: &str| serde_json::from_str(text).ok();
            // A count stays a whole number, or the line would be no record.
            let whole = number.is_u64() && (absurd.starts_with('-') || absurd.contains(['e', '.']));
            *value = fits(if whole { MOST } else { absurd }).unwrap();
        }
        Value::Array(values) => values.iter_mut().for_each(|v| mutate(v, dice, one_in)),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                // The page's size depends on these, and nothing else does.
                if name != "histograms" && name != "plan" {
                    mutate(field, dice, one_in);
                }
            }
        }
        _ => {}
    }
}

fn parsed(lines: &[Value]) -> Option<Vec<ResultSet>> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for line in lines {
        writeln!(file, "{line}").unwrap();
    }
    read(file.path()).ok()
}

/// `NaN`, `inf` or `-inf` as a word of its own; gnuplot's `nan` is what was not measured.
fn bad_word(text: &str) -> Option<&str> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words
        .into_iter()
        .find(|word| ["NaN", "inf", "infinity"].contains(word))
}

/// The first bad word in any format's output of it, with what stands before it.
fn fault(sets: &[ResultSet]) -> Option<String> {
    let formats = FORMATS.iter();
    let texts = formats.map(|format| (format.name, render(format.name, sets)));
    for (format, text) in texts.chain([("html", html(sets))]) {
        // The script of the page is code, and no output of ours.
        let text = text.split("<script").next().unwrap();
        if let Some(word) = bad_word(text) {
            let at = word.as_ptr() as usize - text.as_ptr() as usize;
            let from = text[..at].char_indices().rev().nth(200);
            let near = &text[from.map_or(0, |(from, _)| from)..at + word.len()];
            return Some(format!("as {format}: `{near}`"));
        }
    }
    None
}

#[test]
fn no_absurd_figure_panics_a_writer_or_is_printed_as_no_number() {
    let (mut read, mut faults) = (0, Vec::new());
    for (nth, name) in FILES.iter().cycle().take(480).enumerate() {
        let mut dice = Dice(nth as u64);
        let mut records = lines(name);
        let one_in = [2, 8, 40][nth % 3];
        let all = records.iter_mut();
        all.for_each(|record| mutate(record, &mut dice, one_in));
        let Some(sets) = parsed(&records) else {
            continue;
        };
        read += 1;
        // All of them at once: the panics stand above, with their places.
        match std::panic::catch_unwind(|| fault(&sets)) {
            Ok(found) => faults.extend(found.map(|text| format!("file {nth} ({name}) {text}"))),
            Err(_) => faults.push(format!("file {nth} ({name}) panics")),
        }
    }
    assert!(read > 40, "only {read} mutated files could be read");
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
}
