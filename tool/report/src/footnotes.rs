//! The reasons of verdicts below a table: each sentence with the rows that it applies to.
//!
//! Reasons that differ only in their numbers share a note, which quotes the worst; the
//! result file has the others.

use jostle_model::record::{Reason, Status};
use jostle_stats::checks::neighbours;
use jostle_stats::summary::PointSummary;

/// Ranges of rows that a note lists; more are counted, since each row has the note's mark.
const RANGES: usize = 5;

/// One note: its rows, from 0, each with the reason that it has, and how grave that is there.
type Note<'a> = Vec<(usize, &'a Reason, [f64; 2])>;

/// All notes, in the order of the rows.
pub(crate) struct Footnotes<'a> {
    notes: Vec<Note<'a>>,
    /// Rows of the table.
    rows: usize,
}

impl<'a> Footnotes<'a> {
    /// The notes of a table with a row for each point.
    pub(crate) fn number(points: &'a [PointSummary<'_>]) -> Footnotes<'a> {
        let mut notes: Vec<Note<'a>> = Vec::new();
        for (row, point) in points.iter().enumerate() {
            for reason in &point.verdict.reasons {
                let known = notes.iter_mut().find(|note| is_alike(note[0].1, reason));
                // Where nothing bounds a figure, by how long others ran.
                let beside = point.harm.map_or(0.0, |harm| harm.share);
                let entry = (row, reason, [beyond(reason), beside]);
                match known {
                    Some(note) => note.push(entry),
                    None => notes.push(vec![entry]),
                }
            }
        }
        Footnotes {
            notes,
            rows: points.len(),
        }
    }

    /// The references of a row to its notes: `[1,3]`; empty without any.
    pub(crate) fn marks(&self, row: usize) -> String {
        let of_row = |note: &Note<'_>| note.iter().any(|(other, ..)| *other == row);
        let numbered = self.notes.iter().zip(1..);
        let marks = numbered.filter(|(note, _)| of_row(note));
        let marks: Vec<String> = marks.map(|(_, number)| number.to_string()).collect();
        match marks.is_empty() {
            true => String::new(),
            false => format!("[{}]", marks.join(",")),
        }
    }

    /// The notes without their numbers: `rows 2, 4-6: the window holds 2 rotations`.
    pub(crate) fn texts(&self) -> Vec<String> {
        let notes = self.notes.iter();
        notes.map(|note| text(note, self.rows)).collect()
    }
}

/// Whether the sentences of two reasons differ by numbers alone.
fn is_alike(one: &Reason, other: &Reason) -> bool {
    let key = |reason: &'_ Reason| -> (String, Status, Vec<String>, String) {
        let words = match (&reason.seen, reason.unit.is_empty()) {
            // A file of the first schema has the sentence alone.
            (_, true) => without_numbers(&reason.text),
            // Beside each run there are other programs; what a row does not show is not that of all.
            (Some(seen), false) if reason.check == neighbours::CHECK.name => {
                let start: String = seen.split(' ').take(2).collect();
                format!("{start}{}", seen.contains("not shown"))
            }
            (Some(seen), false) => without_numbers(seen),
            (None, false) => String::new(),
        };
        (
            reason.check.clone(),
            reason.is,
            reason.hosts.clone(),
            reason.unit.clone() + &words,
        )
    };
    key(one) == key(other)
}

fn without_numbers(text: &str) -> String {
    text.replace(|c: char| c.is_ascii_digit() || ".,".contains(c), "")
}

fn text(note: &Note<'_>, all: usize) -> String {
    let (worst, reason, _) = note
        .iter()
        .copied()
        .reduce(|one, other| if other.2 > one.2 { other } else { one })
        .unwrap_or_else(|| unreachable!("a note has a row"));
    let rows: Vec<usize> = note.iter().map(|(row, ..)| row + 1).collect();
    let same = note.iter().all(|(_, other, _)| other.text == reason.text);
    let is_many = rows.chunk_by(|one, next| *next == one + 1).count() > RANGES;
    let rows = match rows.len() {
        1 => return reason.text.clone(),
        count if is_many => format!("{count} of {all} points are {}", reason.is) + &off(note),
        _ => format!("rows {}", ranges(&rows)),
    };
    match (same, is_many) {
        (true, _) => format!("{rows}: {}", reason.text),
        (false, _) => format!(
            "{rows} (figures of row {}, the worst): {}",
            worst + 1,
            reason.text
        ),
    }
}

/// By how much other programs may have moved the figures of all the rows.
fn off(note: &Note<'_>) -> String {
    let moved = note.iter().filter(|(_, reason, _)| reason.bound.is_some());
    let off = moved.filter_map(|(_, reason, _)| reason.measured);
    let (low, high) = off.fold((f64::INFINITY, 0.0_f64), |(low, high), off| {
        (low.min(off), high.max(off))
    });
    match low <= high {
        true => format!(", {:.0} to {:.0} % off", 100.0 * low, 100.0 * high),
        false => String::new(),
    }
}

/// The distance of a reason's figure from its threshold, in either direction.
fn beyond(reason: &Reason) -> f64 {
    let measured = reason.measured.unwrap_or(f64::INFINITY).abs();
    match reason.limit {
        Some(limit) if limit != 0.0 => (measured / limit.abs()).ln().abs(),
        _ => measured,
    }
}

/// `2, 4-6`.
fn ranges(rows: &[usize]) -> String {
    let runs = rows.chunk_by(|one, next| *next == one + 1);
    let words = runs.map(|run| match run {
        [one] => one.to_string(),
        [one, two] => format!("{one}, {two}"),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;
    use jostle_stats::summary::summarize;

    fn notes(change: impl Fn(&mut jostle_model::record::Run)) -> (Vec<String>, Vec<String>) {
        let mut set = made::set();
        set.runs.iter_mut().for_each(change);
        let points = summarize(&set.experiment, &set.runs);
        let notes = Footnotes::number(&points);
        let marks = (0..points.len()).map(|row| notes.marks(row));
        (notes.texts(), marks.collect())
    }

    #[test]
    fn equal_sentences_stand_once_with_their_rows() {
        let (texts, marks) = notes(|run| {
            if run.at.workers == Some(1000) {
                run.operations = 4_000;
            }
        });
        assert_eq!(
            texts,
            ["rows 2, 4: the window holds 4 rotations; fairness needs 10 (-t 13)"]
        );
        assert_eq!(marks, ["", "[1]", "", "[1]"]);
    }

    #[test]
    fn of_sentences_that_differ_by_numbers_the_worst_is_quoted() {
        let (texts, _) = notes(|run| match (run.at.workers, run.target.as_str()) {
            (Some(1000), "flock") => run.operations = 2_000,
            (Some(1000), _) => run.operations = 4_000,
            _ => {}
        });
        assert_eq!(
            texts,
            [
                "rows 2, 4 (figures of row 2, the worst): the window holds 2 rotations; fairness needs 10 (-t 25)"
            ]
        );
    }

    #[test]
    fn different_words_have_notes_of_their_own() {
        let (texts, marks) = notes(|run| match run.target.as_str() {
            "flock" => run.around.errors = [("ENOLCK".to_owned(), 1)].into(),
            _ => run.around.errors = [("EIO".to_owned(), 1)].into(),
        });
        assert_eq!(texts.len(), 3, "{texts:?}");
        assert_eq!(marks[0], "[1]");
    }

    /// 14 targets by 12 points had ten notes about other programs.
    #[test]
    fn many_rows_are_counted_and_other_programs_have_one_note() {
        let mut set = made::set();
        let points: Vec<_> = set.runs.drain(..).filter(|p| p.target == "sysv").collect();
        for n in 1..=12 {
            set.runs.extend(points.iter().cloned().map(|mut point| {
                point.at.workers = point.at.workers.map(|workers| workers + n);
                point
            }));
        }
        let mut points = summarize(&set.experiment, &set.runs);
        let all = points.len();
        for (nth, point) in points
            .iter_mut()
            .enumerate()
            .filter(|(nth, _)| nth % 2 == 0)
        {
            let share = 0.26 + 0.01 * nth as f64;
            point.verdict.reasons.push(Reason {
                check: neighbours::CHECK.name.to_owned(),
                is: Status::Invalid,
                measured: Some(share),
                limit: Some(0.25),
                unit: neighbours::CHECK.unit.to_owned(),
                bound: Some(jostle_model::record::Bound::default()),
                seen: Some(format!("other programs (cc ({nth}) 9 %) kept it")),
                text: format!("other programs (cc ({nth}) 9 %) kept it"),
                ..Reason::default()
            });
        }
        let texts = Footnotes::number(&points).texts();
        let about: Vec<&String> = texts.iter().filter(|text| text.contains("(cc")).collect();
        let last = (all - 1) / 2 * 2;
        let expected = format!(
            "{} of {all} points are INVALID, 26 to {} % off (figures of row {}, the worst): other programs (cc \
             ({last}) 9 %) kept it",
            all.div_ceil(2),
            26 + last,
            last + 1
        );
        assert_eq!(about, [&expected]);
    }

    /// The table named 10.4 % as the worst where the page had 56.7 %: what nothing bounds has no
    /// distance from a threshold.
    #[test]
    fn without_bounds_the_worst_is_where_others_ran_longest() {
        let set = made::set();
        let mut points = summarize(&set.experiment, &set.runs);
        for (point, share) in points.iter_mut().zip([0.104, 0.567, 0.3, 0.2]) {
            let (low, high) = (0.0, f64::INFINITY);
            point.harm = Some(jostle_stats::harm::Harm { share, low, high });
            let seen = format!(
                "other programs (cc (1) 9 %) kept it for {:.1} %",
                100.0 * share
            );
            point.verdict.reasons = vec![Reason {
                check: neighbours::CHECK.name.to_owned(),
                is: Status::Invalid,
                limit: Some(0.25),
                unit: neighbours::CHECK.unit.to_owned(),
                text: seen.clone(),
                seen: Some(seen),
                ..Reason::default()
            }];
        }
        assert_eq!(
            Footnotes::number(&points).texts(),
            [
                "rows 1-4 (figures of row 2, the worst): other programs (cc (1) 9 %) kept it for 56.7 %"
            ]
        );
    }

    /// A row that showed its times carried a note by which they are not shown.
    #[test]
    fn what_some_rows_do_not_show_has_a_note_of_its_own() {
        let set = made::set();
        let mut points = summarize(&set.experiment, &set.runs);
        let hides = ["", ", so that times are not shown", "", ""];
        for (point, hidden) in points.iter_mut().zip(hides) {
            let seen = format!("other programs (cc (1) 9 %) kept it{hidden}");
            point.verdict.reasons = vec![Reason {
                check: neighbours::CHECK.name.to_owned(),
                is: Status::Suspect,
                unit: neighbours::CHECK.unit.to_owned(),
                text: seen.clone(),
                seen: Some(seen),
                ..Reason::default()
            }];
        }
        let notes = Footnotes::number(&points);
        assert_eq!(
            notes.texts(),
            [
                "rows 1, 3, 4: other programs (cc (1) 9 %) kept it",
                "other programs (cc (1) 9 %) kept it, so that times are not shown"
            ]
        );
    }

    #[test]
    fn rows_in_a_row_are_a_range() {
        assert_eq!(ranges(&[2]), "2");
        assert_eq!(ranges(&[2, 3]), "2, 3");
        assert_eq!(ranges(&[1, 3, 4, 5, 9]), "1, 3-5, 9");
    }
}
