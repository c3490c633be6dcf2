//! The results of `jostle judge`: reading them from a file, and printing them as text.
//!
//! Such a file holds `judged` records, and after pairs one `doubled` record. It has no
//! experiment, and no other results.

use crate::FileError;
use crate::file::{lines, record, torn_note};
use crate::format::{padded, significant, wrap};
use crate::markdown::fenced;
use jostle_model::judged::{Doubled, Limit, Output, Peer, Side, Watched};
use jostle_model::record::Record;
use jostle_model::serial::record_to_json;
use jostle_model::text::quoted;
use jostle_stats::judge::of_server;
use jostle_stats::printed::FIGURES;
use std::fmt::Write as _;
use std::io::BufRead;

/// Width of the text.
const WIDTH: usize = 96;

/// The records of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgements {
    /// Each run of a command.
    pub watched: Vec<Watched>,
    /// What pairs of them settled.
    pub doubled: Vec<Doubled>,
    /// What the user should know of how the file was read.
    pub notes: Vec<String>,
}

/// Whether a file begins with such a record; nothing is taken from it.
pub fn is_judged(input: &mut dyn BufRead) -> bool {
    let begins = |bytes: &[u8]| {
        let text = bytes.trim_ascii_start();
        text.starts_with(br#"{"record":"judged""#) || text.starts_with(br#"{"record":"doubled""#)
    };
    input.fill_buf().is_ok_and(begins)
}

/// Reads such a file; `path` is its name in messages. A last line that a crash has torn
/// is left out and noted.
///
/// # Errors
/// Which line is wrong and why, no record at all, or whatever the system says.
pub fn read_from(input: &mut dyn BufRead, path: &str) -> Result<Judgements, FileError> {
    let mut found = Judgements::default();
    for numbered in lines(input, path) {
        let (line, bytes) = numbered?;
        match record(bytes.trim_ascii(), path, line) {
            Ok(Record::Judged(watched)) => found.watched.push(*watched),
            Ok(Record::Doubled(doubled)) => found.doubled.push(*doubled),
            Ok(_) => {
                return Err(FileError::Line {
                    path: path.to_owned(),
                    line,
                    problem: "a record that belongs to no run of `judge`".to_owned(),
                });
            }
            // Lines are written whole with their newline, so that only the last can be torn.
            Err(FileError::Line { .. }) if bytes.last() != Some(&b'\n') => {
                found.notes.push(torn_note(path, line));
            }
            Err(error) => return Err(error),
        }
    }
    if found.watched.is_empty() && found.doubled.is_empty() {
        return Err(FileError::Empty {
            path: path.to_owned(),
        });
    }
    Ok(found)
}

/// Renders in a format of `report`. Formats without a form for these results print the
/// text.
pub fn render(format: &str, found: &Judgements) -> String {
    match format {
        "json" => json(found),
        "csv" => found
            .watched
            .iter()
            .map(|watched| series(watched, ","))
            .collect(),
        "gnuplot" => {
            let each: Vec<String> = found
                .watched
                .iter()
                .map(|watched| series(watched, " "))
                .collect();
            // Two blank lines part what gnuplot calls an index.
            each.join("\n\n")
        }
        "markdown" => fenced(&text(found)),
        _ => text(found),
    }
}

fn json(found: &Judgements) -> String {
    let watched = found
        .watched
        .iter()
        .cloned()
        .map(Box::new)
        .map(Record::Judged);
    let doubled = found
        .doubled
        .iter()
        .cloned()
        .map(Box::new)
        .map(Record::Doubled);
    let records = watched.chain(doubled);
    records
        .map(|record| record_to_json(&record) + "\n")
        .collect()
}

/// All of it, as people read it.
pub fn text(found: &Judgements) -> String {
    let runs = found.watched.iter().map(one);
    let pairs = found.doubled.iter().map(doubled);
    runs.chain(pairs).collect::<Vec<_>>().join("\n")
}

/// What was at its limit, in a heading.
fn heading(watched: &Watched) -> String {
    let finding = &watched.finding;
    let of = format!("{:.1} to {:.1} s judged", finding.from_s, finding.to_s);
    let since = finding
        .since_s
        .filter(|since| *since > finding.from_s + 1.0);
    let since = match (finding.since_s, finding.until_s) {
        (Some(since), Some(until)) => format!(" from {since:.1} to {until:.1} s"),
        _ => since.map_or(String::new(), |since| format!(" from {since:.1} s on")),
    };
    match finding.limit {
        Limit::Nothing => "limit: nothing to judge".to_owned(),
        Limit::Path => format!("limit: path, neither generator nor server ({of})"),
        Limit::Undecided => format!("limit: undecided ({of})"),
        limit => format!("limit: {}{since} ({of})", limit.name()),
    }
}

/// One run.
pub fn one(watched: &Watched) -> String {
    let command: Vec<String> = watched.command.iter().map(|word| quoted(word)).collect();
    let finding = &watched.finding;
    let mut out = wrap("jostle judge: ", &command.join(" "), WIDTH);
    out += &wrap("", &heading(watched), WIDTH);
    for reason in &finding.reasons {
        out += &wrap("  - ", &(reason.to_owned() + "."), WIDTH);
    }
    out += &seconds(watched);
    out += &table(watched);
    out += &watched.output.as_ref().map_or(String::new(), printed);
    for note in of_server(watched) {
        out += &wrap("  ! ", &(note + "."), WIDTH);
    }
    out += &wrap("", &finding.meaning, WIDTH);
    if let Some(ended) = ended(watched) {
        out += &wrap("", &ended, WIDTH);
    }
    if let Some(next) = &finding.next {
        out += &wrap("Next: ", next, WIDTH);
    }
    out
}

/// The figures that the command printed, a line for each result, and what they are worth.
fn printed(output: &Output) -> String {
    let mut out = String::new();
    for result in &output.results {
        let name = [Some(&result.tool), result.test.as_ref()];
        let name: Vec<&str> = name.into_iter().flatten().map(String::as_str).collect();
        let figures = FIGURES.iter().filter_map(|(figure, unit)| {
            let value = *result.figures.get(*figure)?;
            let digits = if value.fract() == 0.0 { 1 } else { 4 };
            Some(format!("{} {unit}", significant(value, digits)))
        });
        let figures: Vec<String> = figures.collect();
        let first = format!("  {} printed: ", name.join(" "));
        out += &wrap(&first, &figures.join(", "), WIDTH);
    }
    if output.results.is_empty() && output.bytes > 0 {
        out += "  printed: unknown format, so that its figures are not read\n";
    }
    let notes = output.notes.iter();
    out + &notes
        .map(|note| wrap("  ! ", &(note.to_owned() + "."), WIDTH))
        .collect::<String>()
}

/// The limit of each second, and what its letters are; nothing where it was one throughout.
fn seconds(watched: &Watched) -> String {
    const WORDS: [(char, &str); 9] = [
        ('G', "generator"),
        ('S', "server"),
        ('D', "downstream"),
        ('M', "machine"),
        ('P', "ports"),
        ('T', "timer"),
        ('-', "path"),
        ('?', "undecided"),
        ('.', "no traffic"),
    ];
    let finding = &watched.finding;
    let letters = &finding.seconds;
    if letters.chars().all(|letter| letters.starts_with(letter)) {
        return String::new();
    }
    let used = WORDS.iter().filter(|(letter, _)| letters.contains(*letter));
    let used: Vec<String> = used
        .map(|(letter, word)| format!("{letter} {word}"))
        .collect();
    let each_s = (finding.to_s - finding.from_s) / letters.chars().count() as f64;
    let text = format!("{letters}  {each_s:.1} s each: {}", used.join(", "));
    wrap("  ", &text, WIDTH)
}

/// How the command ended, where that was no success.
pub fn ended(watched: &Watched) -> Option<String> {
    if watched.interrupted {
        return Some(format!(
            "The command was interrupted after {:.1} s.",
            watched.elapsed_s
        ));
    }
    match (watched.exit, &watched.signal) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("The command failed: exit code {code}.")),
        (None, Some(signal)) => Some(format!("The command was ended by {signal}.")),
        (None, None) => Some("How the command ended is unknown.".to_owned()),
    }
}

/// The columns of [`sides`].
pub(crate) const SIDES: [&str; 8] = [
    "",
    "busy",
    "on CPU",
    "queued",
    "stopped",
    "throttled",
    "CPUs",
    "threads",
];

/// Generator and server: shares of the judged time.
pub(crate) fn sides(watched: &Watched) -> Vec<[String; 8]> {
    let mut rows = Vec::new();
    rows.push(row(
        watched,
        "generator",
        &watched.generator,
        watched.finding.generator_busy_share,
    ));
    if let Some(server) = &watched.server {
        let name = match &watched.server_at {
            Some(at) => format!("server {at}"),
            None => "server".to_owned(),
        };
        rows.push(row(
            watched,
            &name,
            server,
            watched.finding.server_busy_share,
        ));
    }
    rows
}

/// The same side by side, and the machine below.
fn table(watched: &Watched) -> String {
    let mut rows = vec![SIDES.map(str::to_owned)];
    rows.extend(sides(watched));
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let mut out = String::new();
    for row in &rows {
        let cells = row.iter().enumerate();
        let cells: Vec<String> = cells
            .map(|(at, cell)| padded(cell, width(at), at == 0))
            .collect();
        let _ = writeln!(out, "  {}", cells.join("  ").trim_end());
    }
    out + &wrap("  ", &machine(watched), WIDTH)
}

fn row(watched: &Watched, name: &str, side: &Side, busy: Option<f64>) -> [String; 8] {
    let within = Within::of(watched);
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let hottest = side.busiest.iter().max_by(|a, b| {
        let total = |thread: &jostle_model::judged::Thread| {
            within.share(&thread.cpu_s) + within.share(&thread.queued_s)
        };
        total(a).total_cmp(&total(b))
    });
    let known = |share: Option<f64>| share.map_or("-".to_owned(), percent);
    [
        name.to_owned(),
        known(busy),
        known(hottest.map(|thread| within.share(&thread.cpu_s))),
        known(hottest.map(|thread| within.share(&thread.queued_s))),
        percent(within.share(&side.stopped_s)),
        known(
            side.throttled_s
                .as_ref()
                .map(|throttled_s| within.share(throttled_s)),
        ),
        format!("{:.2}", within.share(&side.cpu_s)),
        side.threads.to_string(),
    ]
}

/// Connections and the rest of the machine, in one line.
pub(crate) fn machine(watched: &Watched) -> String {
    let within = Within::of(watched);
    let mut parts = Vec::new();
    if let Some(traffic) = &watched.traffic {
        let open = traffic.connections.iter().copied().fold(0.0, f64::max);
        parts.push(format!(
            "port {}: {open:.0} connections, {:.2} MB/s, {:.0} opened/s, {:.0} segments sent again",
            traffic.port,
            within.share(&traffic.bytes) / 1e6,
            within.share(&traffic.opened),
            within.sum(&traffic.retransmitted),
        ));
    }
    let beside = watched.traffic.as_ref().map(|traffic| {
        let named = |what: &'static str, peers: &[Peer]| -> Vec<String> {
            let each = peers.iter();
            each.map(|peer| format!("{what} {} ({} connections)", peer.at, peer.connections))
                .collect()
        };
        [
            named("the command also to", &traffic.others),
            named("the server to", &traffic.downstream),
        ]
    });
    parts.extend(beside.into_iter().flatten().flatten());
    for (what, column) in [
        ("what the server asks", &watched.machine.behind_s),
        ("other programs", &watched.machine.others_s),
    ] {
        let cpus = column.as_ref().map(|column| within.share(column));
        parts.extend(cpus.map(|cpus| format!("{what} {cpus:.2} CPUs")));
    }
    let cpus = watched.machine.cpus.max(1) as f64;
    let stolen = within.share(&watched.machine.stolen_s) / cpus;
    parts.push(format!("stolen {:.1} %", 100.0 * stolen));
    parts.push(format!(
        "jostle itself {:.3} CPUs",
        within.share(&watched.machine.tool_s)
    ));
    parts.join("; ")
}

/// The intervals that were judged.
struct Within {
    each: Vec<bool>,
    wall_s: f64,
}

impl Within {
    fn of(watched: &Watched) -> Within {
        let finding = &watched.finding;
        // The ends were rounded to tenths.
        let each: Vec<bool> = watched
            .end_s
            .iter()
            .zip(&watched.span_s)
            .map(|(end, span)| end - span >= finding.from_s - 0.06 && *end <= finding.to_s + 0.06)
            .collect();
        let spans = watched
            .span_s
            .iter()
            .zip(&each)
            .filter(|(_, within)| **within);
        let wall_s = spans.map(|(span, _)| span).sum();
        Within { each, wall_s }
    }

    fn sum(&self, column: &[f64]) -> f64 {
        let within = column.iter().zip(&self.each).filter(|(_, within)| **within);
        within.map(|(value, _)| value).sum()
    }

    fn share(&self, column: &[f64]) -> f64 {
        self.sum(column) / self.wall_s.max(f64::MIN_POSITIVE)
    }
}

/// What pairs settled.
pub fn doubled(doubled: &Doubled) -> String {
    let [load, twice] = doubled.loads;
    let unit = match doubled.measure.as_str() {
        "connections" => "connections/s",
        "printed" => "operations/s as printed",
        _ => "MB/s",
    };
    let scale = if unit == "MB/s" { 1e6 } else { 1.0 };
    let command: Vec<String> = doubled.command.iter().map(|word| quoted(word)).collect();
    let option = if doubled.copies {
        "--copies"
    } else {
        "--double"
    };
    let mut out = wrap(
        &format!("jostle judge {option}: "),
        &command.join(" "),
        WIDTH,
    );
    let _ = writeln!(out, "limit: {}", doubled.limit.name());
    out += &wrap("  - ", &(doubled.reason.clone() + "."), WIDTH);
    let _ = writeln!(out, "  {load} and {twice}, {unit}, a pair a line:");
    for [single, double] in &doubled.rates_per_s {
        let ratio = match *single > 0.0 {
            true => format!("{:.2}", double / single),
            false => "-".to_owned(),
        };
        let _ = writeln!(
            out,
            "  {:>10.2} {:>10.2}   x {ratio}",
            single / scale,
            double / scale
        );
    }
    let _ = writeln!(
        out,
        "  ratio {:.3}, {:.3} to {:.3}",
        doubled.ratio, doubled.low, doubled.high
    );
    out + &wrap("", &doubled.meaning, WIDTH)
}

/// The series as a table, a line for each interval. Columns that were not measured are
/// empty, or `-` where spaces part them.
fn series(watched: &Watched, between: &str) -> String {
    let server = watched.server.as_ref();
    let traffic = watched.traffic.as_ref();
    let columns: Vec<(&str, Option<&Vec<f64>>)> = vec![
        ("end_s", Some(&watched.end_s)),
        ("span_s", Some(&watched.span_s)),
        ("generator_cpu_s", Some(&watched.generator.cpu_s)),
        ("generator_queued_s", watched.generator.queued_s.as_ref()),
        ("generator_stopped_s", Some(&watched.generator.stopped_s)),
        (
            "generator_throttled_s",
            watched.generator.throttled_s.as_ref(),
        ),
        ("server_cpu_s", server.map(|side| &side.cpu_s)),
        (
            "server_queued_s",
            server.and_then(|side| side.queued_s.as_ref()),
        ),
        ("server_stopped_s", server.map(|side| &side.stopped_s)),
        (
            "server_throttled_s",
            server.and_then(|side| side.throttled_s.as_ref()),
        ),
        ("bytes", traffic.map(|traffic| &traffic.bytes)),
        ("connections", traffic.map(|traffic| &traffic.connections)),
        ("opened", traffic.map(|traffic| &traffic.opened)),
        (
            "generator_unread_bytes",
            traffic.map(|traffic| &traffic.generator_unread_bytes),
        ),
        (
            "server_unread_bytes",
            traffic.and_then(|traffic| traffic.server_unread_bytes.as_ref()),
        ),
        (
            "backlog",
            traffic.and_then(|traffic| traffic.backlog.as_ref()),
        ),
        (
            "retransmitted",
            traffic.map(|traffic| &traffic.retransmitted),
        ),
        ("time_wait", traffic.map(|traffic| &traffic.time_wait)),
        ("ports_left", traffic.map(|traffic| &traffic.ports_left)),
        ("others_s", watched.machine.others_s.as_ref()),
        ("stolen_s", Some(&watched.machine.stolen_s)),
        ("tool_s", Some(&watched.machine.tool_s)),
    ];
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let (mark, absent) = if between == "," {
        ("", "")
    } else {
        ("# ", "-")
    };
    let mut out = format!("{mark}{}\n", names.join(between));
    for at in 0..watched.end_s.len() {
        let cells = columns.iter().map(|(_, column)| {
            let value = column.and_then(|column| column.get(at));
            value.map_or(absent.to_owned(), f64::to_string)
        });
        out += &cells.collect::<Vec<_>>().join(between);
        out.push('\n');
    }
    out
}

#[cfg(test)]
pub(crate) mod tests;
