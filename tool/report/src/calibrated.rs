//! The output of `jostle calibrate`: a row for each planted fault, the causes of rows that
//! did not pass, and one closing sentence.
//!
//! The binary tries and judges the rows; this module only prints them.

use crate::format::wrap;
use crate::grid::{Grid, Heading};
use crate::markdown::{escaped, item};
use jostle_model::calibrated::{Calibrated, Finding, Outcome, Specimens};
use jostle_model::record::Record;
use jostle_model::serial::record_to_json;

const WIDTH: usize = 80;

/// The table's width. It is wider than others because its cells hold more text.
const TABLE_WIDTH: usize = 100;

/// The ways to print it, the default first.
pub static CALIBRATED_FORMATS: &[(&str, &str)] = &[
    (
        "table",
        "a row for each thing that was planted, for a terminal",
    ),
    ("markdown", "the same for a page or an issue"),
    ("json", "the record, as the result file holds it"),
];

/// In the format of this name; as the first of [`CALIBRATED_FORMATS`] where there
/// is none.
pub fn render(format: &str, calibrated: &Calibrated) -> String {
    match format {
        "json" => {
            let record = Record::Calibrated(Box::new(calibrated.clone()));
            record_to_json(&record) + "\n"
        }
        "markdown" => {
            let notes = notes(calibrated).into_iter();
            let notes: String = notes
                .map(|(head, why)| item(&format!("{head}: {why}")))
                .collect();
            let heading = escaped(heading(calibrated).trim_end()) + "\n";
            let parts = [heading, grid(calibrated).markdown(), notes];
            let parts = parts.into_iter().filter(|part| !part.is_empty());
            let parts: Vec<String> = parts.chain([closing(calibrated)]).collect();
            parts.join("\n") + "\n"
        }
        _ => {
            let notes = notes(calibrated).into_iter();
            let notes: String = notes
                .map(|(head, why)| wrap(&format!("{head}: "), &why, WIDTH))
                .collect();
            format!(
                "{}\n{}\n{notes}{}",
                heading(calibrated),
                grid(calibrated).text_within(TABLE_WIDTH),
                wrap("", &closing(calibrated), WIDTH)
            )
        }
    }
}

fn heading(calibrated: &Calibrated) -> String {
    let place = &calibrated.place;
    let cores = if place.cores == 1 { "core" } else { "cores" };
    format!(
        "{} {cores}, {}, jostle {}, {}\n",
        place.cores, place.kernel, place.jostle, calibrated.started_at
    )
}

fn grid(calibrated: &Calibrated) -> Grid {
    let rates = calibrated.trials > 1;
    let mut columns = vec![
        Heading::right("", "row"),
        Heading::left("planted"),
        Heading::left("recorded truth"),
        Heading::left("found"),
        Heading::left("control"),
    ];
    if rates {
        columns.push(Heading::left("right in"));
    }
    columns.extend([Heading::left("outcome"), Heading::right("", "s")]);
    let rows = calibrated.rows.iter().map(|row| {
        let mut cells = vec![
            row.row.to_string(),
            row.planted.clone(),
            row.truth.clone(),
            row.found.clone(),
            row.control.clone(),
        ];
        if rates {
            cells.push(rate(row));
        }
        cells.extend([
            row.outcome.as_str().to_owned(),
            format!("{:.1}", row.took_s),
        ]);
        cells
    });
    Grid {
        columns,
        rows: rows.collect(),
    }
}

/// Such as `58/60 (88.5 to 99.6 %)`.
fn rate(row: &Finding) -> String {
    let told = row.passed + row.failed;
    let bounds = row.right_share.map_or_else(String::new, |[low, high]| {
        format!(" ({:.1} to {:.1} %)", 100.0 * low, 100.0 * high)
    });
    format!("{}/{told}{bounds}", row.passed)
}

/// The rows that did not pass, and why.
fn notes(calibrated: &Calibrated) -> Vec<(String, String)> {
    let rows = calibrated.rows.iter();
    rows.filter_map(|row| {
        let why = row.why.clone()?;
        Some((format!("row {}, {}", row.row, row.planted), why))
    })
    .collect()
}

fn closing(calibrated: &Calibrated) -> String {
    let outcomes = [Outcome::Pass, Outcome::Fail, Outcome::CannotTell];
    let [passed, failed, untold] = outcomes.map(|outcome| {
        let rows = calibrated.rows.iter();
        rows.filter(|row| row.outcome == outcome).count()
    });
    let tried = passed + failed;
    let mut text = format!("jostle found what was planted in {passed} of {tried} rows");
    if failed > 0 {
        text +=
            &format!(", and did NOT in {failed}: do not trust it here before that is explained");
    }
    if untold > 0 {
        text += &format!("; {untold} more could not be tried today");
    }
    text += &format!(". It took {:.0} s.", calibrated.elapsed_s);
    if calibrated.trials == 1 {
        text += " One trial of each is a smoke test and no rate: `jostle calibrate --full` gives \
                 rates with their bounds.";
    }
    text
}

/// The sentence about the last calibration in a table of results.
pub(crate) fn sentence(specimens: &Specimens) -> String {
    let day = specimens.at.get(..10).unwrap_or(&specimens.at);
    let tried = specimens.passed as usize + specimens.failed.len();
    let mut text = format!(
        "Calibrated here on {day}: {} of {tried} rows passed",
        specimens.passed
    );
    if !specimens.failed.is_empty() {
        text += &format!(", FAILED: {}", specimens.failed.join(", "));
    }
    let untold = specimens.cannot_tell.len();
    if untold > 0 {
        text += &format!("; {untold} more could not be tried");
    }
    text + "."
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::calibrated::Place;

    fn row(row: u64, planted: &str, outcome: Outcome, why: Option<&str>) -> Finding {
        Finding {
            row,
            planted: planted.to_owned(),
            truth: "20.04 us".to_owned(),
            found: "20.06 us (20.05 to 20.07)".to_owned(),
            control: "null 0.02 us".to_owned(),
            outcome,
            why: why.map(str::to_owned),
            passed: u64::from(outcome == Outcome::Pass),
            failed: u64::from(outcome == Outcome::Fail),
            untold: u64::from(outcome == Outcome::CannotTell),
            took_s: 1.25,
            ..Finding::default()
        }
    }

    fn calibrated() -> Calibrated {
        Calibrated {
            place: Place {
                jostle: "0.1.0".to_owned(),
                kernel: "Linux 6.18".to_owned(),
                cores: 2,
                ..Place::default()
            },
            started_at: "2026-11-21T00:00:00Z".to_owned(),
            elapsed_s: 41.6,
            trials: 1,
            rows: vec![
                row(2, "delay:20us", Outcome::Pass, None),
                row(
                    6,
                    "busted:1e-3",
                    Outcome::Fail,
                    Some("0 of 40 overlaps were found"),
                ),
                row(
                    8,
                    "30 % quota",
                    Outcome::CannotTell,
                    Some("no right to make a control group"),
                ),
            ],
            ..Calibrated::default()
        }
    }

    #[test]
    fn the_table_says_what_was_planted_and_why_it_is_no_pass() {
        insta::assert_snapshot!(render("table", &calibrated()));
    }

    #[test]
    fn long_cells_are_broken_so_that_a_terminal_of_100_columns_holds_the_table() {
        let mut wide = calibrated();
        wide.rows.push(Finding {
            truth: "open 6 of 200.6 ms, closed 5 of 200.0 ms".to_owned(),
            found: "p99 open 198.7 ms, closed 150 ns (longest 200.0 ms)".to_owned(),
            control: "null p99 open 22.98 us, closed 70 ns".to_owned(),
            ..row(7, "stall:200ms/300ms", Outcome::Pass, None)
        });
        let text = render("table", &wide);
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
        insta::assert_snapshot!(text);
    }

    #[test]
    fn markdown_says_the_same() {
        insta::assert_snapshot!(render("markdown", &calibrated()));
    }

    #[test]
    fn json_is_one_record() {
        let line = render("json", &calibrated());
        let record: Record = serde_json::from_str(&line).unwrap();
        assert_eq!(record, Record::Calibrated(Box::new(calibrated())));
    }

    #[test]
    fn rates_have_their_bounds() {
        let mut many = calibrated();
        many.trials = 60;
        (many.rows[0].passed, many.rows[0].failed) = (58, 2);
        many.rows[0].right_share = Some([0.885, 0.996]);
        let text = render("table", &many);
        // Its cell is broken at a space.
        assert!(
            text.contains("58/60 (88.5 to") && text.contains("99.6 %)"),
            "{text}"
        );
        assert!(!text.contains("smoke"), "{text}");
    }

    #[test]
    fn results_quote_the_last_calibration() {
        let text = sentence(&calibrated().summary());
        assert_eq!(
            text,
            "Calibrated here on 2026-11-21: 1 of 2 rows passed, FAILED: 6 busted:1e-3; 1 more \
             could not be tried."
        );
    }
}
