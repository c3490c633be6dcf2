//! A comparison for people.

use super::Comparison;
use crate::format::{grouped, percent_typed, plus_minus, significant, wrap};
use crate::grid::{Grid, Heading};
use crate::markdown::{escaped, item};
use jostle_model::record::At;
use jostle_model::swept::{LISTENERS, SWEPT, Swept};
use jostle_stats::comparison::{Change, Compared};

const WIDTH: usize = 80;

/// For a terminal.
pub(super) fn text(comparison: &Comparison) -> String {
    let mut text = wrap("", &format!("BASE {}", comparison.base), WIDTH);
    text += &wrap("", &format!("NEW  {}", comparison.new), WIDTH);
    for line in &comparison.context {
        text += &wrap("differs in ", line, WIDTH);
    }
    let (grid, notes) = table(comparison);
    text += &grid.text();
    if let Some(note) = floor_note(comparison) {
        text += &wrap("", note, WIDTH);
    }
    for (at, note) in notes.iter().enumerate() {
        text += &wrap(&format!("[{}] ", at + 1), note, WIDTH);
    }
    for line in &comparison.only {
        text += &wrap("", line, WIDTH);
    }
    text + &wrap("", &closing(comparison), WIDTH)
}

/// For a page or an issue.
pub(super) fn markdown(comparison: &Comparison) -> String {
    let [base, new] = [&comparison.base, &comparison.new].map(|name| escaped(name));
    let mut text = format!("BASE {base}\nNEW {new}\n\n");
    let context = comparison.context.iter().map(|c| format!("differs in {c}"));
    let context: String = context.map(|c| item(&c)).collect();
    if !context.is_empty() {
        text += &format!("{context}\n");
    }
    let (grid, notes) = table(comparison);
    text += &grid.markdown();
    let notes = notes.iter().zip(1..);
    let notes = notes.map(|(note, number)| format!("[{number}] {note}"));
    let floor = floor_note(comparison).map(str::to_owned);
    let only = comparison.only.iter().cloned();
    let below = floor.into_iter().chain(notes).chain(only);
    let below: String = below.map(|note| item(&note)).collect();
    if !below.is_empty() {
        text += &format!("\n{below}");
    }
    format!("{text}\n{}\n", closing(comparison))
}

/// `10 workers`, `2 workers, 1000 operations`; for `recover` the fault.
pub(crate) fn place(at: At) -> String {
    // Others that listen are no part of what is opened, and stand behind it.
    let (others, own): (Vec<&Swept>, Vec<&Swept>) =
        SWEPT.iter().partition(|swept| swept.name == LISTENERS.name);
    let parts = own.into_iter().chain(others).filter_map(|swept| {
        let Some(count) = (swept.of)(&at) else {
            return (swept.text)(&at);
        };
        match swept.noun[usize::from(count != 1)] {
            "" => Some(format!("{}/s", grouped(count))),
            _ if count == 0 && swept.name == LISTENERS.name => None,
            noun => Some(format!("{} {noun}", grouped(count))),
        }
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// The column that says what the machine itself did; left out where it did
/// nothing.
const MACHINE: usize = 6;

/// `0.90..0.92`: what the machine alone did to the figure; `-` where that
/// rounds to nothing.
fn machine(row: &Compared) -> String {
    let ends = row.machine.map(|ends| ends.map(|end| format!("{end:.2}")));
    match ends {
        Some([least, most]) if least == most && least == "1.00" => "-".to_owned(),
        Some([least, most]) if least == most => least,
        Some([least, most]) => format!("{least}..{most}"),
        None => "-".to_owned(),
    }
}

/// The note on the column A/A; nothing where no row has it.
pub(crate) fn floor_note(comparison: &Comparison) -> Option<&'static str> {
    let has = |(_, row): &(usize, Compared)| row.floor.is_some();
    let any = comparison.rows.iter().any(has);
    any.then_some("A/A: two halves of the same side, within one sitting, n/2 runs")
}

/// A row for each figure, and the notes that findings refer to as `[1]`.
pub(crate) fn table(comparison: &Comparison) -> (Grid, Vec<String>) {
    let mut columns = vec![
        Heading::left("plan"),
        Heading::left("target"),
        Heading::left("at"),
        Heading::left("figure"),
        Heading::right("", "base"),
        Heading::right("", "new"),
        Heading::right("", "machine"),
        Heading::right("", "new/base"),
        Heading::right("", "95 %"),
        Heading::right("", "A/A"),
        Heading::left("finding"),
    ];
    let mut notes = Vec::new();
    let rows = comparison.rows.iter().map(|(number, row)| {
        let mut cells = cells(row, &mut notes);
        cells.insert(0, format!("#{number}"));
        cells
    });
    let mut rows: Vec<Vec<String>> = rows.collect();
    let mut leave_out = |column: usize| {
        columns.remove(column);
        rows.iter_mut().for_each(|row| drop(row.remove(column)));
    };
    if comparison.rows.iter().all(|(_, row)| machine(row) == "-") {
        leave_out(MACHINE);
    }
    // With several experiments each row says which one it is of.
    if comparison.rows.iter().all(|(number, _)| *number == 1) {
        leave_out(0);
    }
    (Grid { columns, rows }, notes)
}

fn cells(row: &Compared, notes: &mut Vec<String>) -> Vec<String> {
    let target = match row.base_target == row.new_target {
        true => row.base_target.clone(),
        false => format!("{} -> {}", row.base_target, row.new_target),
    };
    let figure = |value: f64| match row.invalid {
        // What must not be used must not stand where it could be copied.
        true => "-".to_owned(),
        false => significant(value, 3),
    };
    let ratio = row.ratio_told();
    let interval = ratio.filter(|ratio| ratio.interval);
    let mut said = row.said.name().to_owned();
    if let Some(why) = &row.why {
        let known = notes.iter().position(|note| note == why);
        let at = known.unwrap_or_else(|| {
            notes.push(why.clone());
            notes.len() - 1
        });
        said += &format!("[{}]", at + 1);
    }
    vec![
        target,
        place(row.at),
        row.figure.compared.to_owned(),
        figure(row.base),
        figure(row.new),
        machine(row),
        ratio.map_or("-".to_owned(), |ratio| format!("{:.2}", ratio.ratio)),
        interval.map_or("-".to_owned(), |ratio| {
            format!("{:.2}..{:.2}", ratio.low, ratio.high)
        }),
        row.floor
            .filter(|_| !row.invalid)
            .map_or("-".to_owned(), plus_minus),
        said,
    ]
}

/// How many figures got worse or better, stayed the same or are undecided.
pub(crate) fn closing(comparison: &Comparison) -> String {
    let count = |said: Change| {
        let rows = comparison.rows.iter();
        rows.filter(|(_, row)| row.said == said).count()
    };
    let parts = [
        Change::Worse,
        Change::Better,
        Change::Same,
        Change::Undecided,
    ];
    let parts = parts.into_iter().filter_map(|said| match count(said) {
        0 => None,
        n => Some(format!("{n} {}", said.name())),
    });
    let anchor = match comparison.paired {
        true => "runs of the same blocks",
        false => "new/base is corrected for the machine's own change",
    };
    format!(
        "{} ({anchor}; within {} % is the same).",
        parts.collect::<Vec<_>>().join(", "),
        percent_typed(comparison.within)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::plan::Fault;

    #[test]
    fn a_place_has_what_tells_points_apart() {
        let at = At {
            workers: Some(2),
            rate: Some(1_000),
            ..At::default()
        };
        assert_eq!(place(at), "2 workers, 1,000/s");
        let struck = |fault| At {
            fault: Some(fault),
            ..At::default()
        };
        assert_eq!(place(struck(Fault::Kill)), "kill");
        assert_eq!(place(struck(Fault::Stop)), "stop");
    }
}
