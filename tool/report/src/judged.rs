//! The results of `jostle judge`: reading them from a file, and printing them as text.
//!
//! Such a file holds `judged` records, and after pairs one `doubled` record. It has no
//! experiment, and no other results.

use crate::FileError;
use crate::file::{lines, record, torn_note};
use crate::format::{padded, significant, wrap};
use crate::markdown::fenced;
use jostle_model::judged::{
    Doubled, Limit, Machine, Output, Peer, ServerHost, Side, Thread, Traffic, Watched,
};
use jostle_model::record::Record;
use jostle_model::serial::record_to_json;
use jostle_model::text::quoted;
use jostle_stats::judge::{of_server, throttled};
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
    /// The results of pairs of them.
    pub doubled: Vec<Doubled>,
    /// Notes for the user on how the file was read.
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
                let problem = "a record that belongs to no run of `judge`";
                return Err(FileError::line(path, line, problem));
            }
            // Lines are written whole with their newline, so that only the last can be torn.
            Err(FileError::Line { .. }) if bytes.last() != Some(&b'\n') => {
                found.notes.push(torn_note(path, line));
            }
            Err(error) => return Err(error),
        }
    }
    if found.watched.is_empty() && found.doubled.is_empty() {
        return Err(FileError::Empty(path.to_owned()));
    }
    Ok(found)
}

/// Renders in a format of `report`. Formats without a form for these results print the
/// text.
pub fn render(format: &str, found: &Judgements) -> String {
    let each = |between: &str| -> Vec<String> {
        let runs = found.watched.iter();
        runs.map(|watched| series(watched, between)).collect()
    };
    match format {
        "json" => json(found),
        "csv" => each(",").concat(),
        // Two blank lines part what gnuplot calls an index.
        "gnuplot" => each(" ").join("\n\n"),
        "markdown" => fenced(&text(found)),
        _ => text(found),
    }
}

fn json(found: &Judgements) -> String {
    let (watched, doubled) = (found.watched.iter(), found.doubled.iter());
    let watched = watched.map(|run| Record::Judged(Box::new(run.clone())));
    let records = watched.chain(doubled.map(|pair| Record::Doubled(Box::new(pair.clone()))));
    let lines = records.map(|record| record_to_json(&record) + "\n");
    lines.collect()
}

/// All of it, as people read it.
pub fn text(found: &Judgements) -> String {
    let runs = found.watched.iter().map(one);
    let pairs = found.doubled.iter().map(doubled);
    runs.chain(pairs).collect::<Vec<_>>().join("\n")
}

/// The limit, in a heading.
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
    let finding = &watched.finding;
    let of = |name: &str, side, busy| row(watched, name, side, busy);
    let generator = of(
        "generator",
        &watched.generator,
        finding.generator_busy_share,
    );
    let server = watched.server.as_ref().map(|server| {
        let at = watched.server_at.as_deref().unwrap_or_default();
        of(
            format!("server {at}").trim_end(),
            server,
            finding.server_busy_share,
        )
    });
    std::iter::once(generator).chain(server).collect()
}

/// Both sides in a table, and the machine below. Nothing of a run so short that the ticks of clocks
/// are longer.
fn table(watched: &Watched) -> String {
    const SHORTEST_S: f64 = 0.1;
    if Within::watched(watched).wall_s < SHORTEST_S {
        return String::new();
    }
    let mut rows = vec![SIDES.map(str::to_owned)];
    rows.extend(sides(watched));
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
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
    let within = Within::watched(watched);
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let total = |thread: &Thread| within.share(&thread.cpu_s) + within.share(&thread.queued_s);
    let by_total = |a: &&Thread, b: &&Thread| total(a).total_cmp(&total(b));
    let hottest = side.busiest.iter().max_by(by_total);
    let known = |share: Option<f64>| share.map_or("-".to_owned(), percent);
    [
        name.to_owned(),
        known(busy),
        known(hottest.map(|thread| within.share(&thread.cpu_s))),
        known(hottest.map(|thread| within.share(&thread.queued_s))),
        percent(within.share(&side.stopped_s)),
        known(side.throttled_s.as_ref().map(|_| throttled(watched, side))),
        format!("{:.2}", within.share(&side.cpu_s)),
        side.threads.to_string(),
    ]
}

/// Connections and the rest of the machine, in one line.
pub(crate) fn machine(watched: &Watched) -> String {
    let within = Within::watched(watched);
    let mut parts = Vec::new();
    if let Some(traffic) = &watched.traffic {
        let open = traffic.connections.iter().copied().fold(0.0, f64::max);
        parts.push(format!(
            "port {}: {open:.0} connections, {:.2} MB/s, {:.0} opened/s{}, {:.0} segments sent again",
            traffic.port,
            within.share(&traffic.bytes) / 1e6,
            within.share(&traffic.opened),
            match watched.shared_network {
                Some(true) if within.sum(&traffic.opened) > 0.0 =>
                    " (by its share of this network namespace's)",
                _ => "",
            },
            within.sum(&traffic.retransmitted),
        ));
        let hops = traffic.hops.iter();
        let hops = hops.map(|hop| format!(", through {} (pid {})", hop.name, hop.pid));
        let at = traffic.server_address.iter();
        parts.extend(at.map(|at| {
            let hops: String = hops.clone().collect();
            format!("the server is {at} in another network namespace{hops}")
        }));
        for (what, peers) in [
            ("the command also to", &traffic.others),
            ("the server to", &traffic.downstream),
        ] {
            for Peer {
                at, connections, ..
            } in peers
            {
                parts.push(format!("{what} {at} ({connections} connections)"));
            }
        }
    }
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
    let far = watched.server_host.as_ref();
    parts.extend(far.and_then(|host| far_machine(&within, host, host.machine.as_ref()?)));
    parts.join("; ")
}

/// The server's machine, and how well its clock is known.
fn far_machine(within: &Within, host: &ServerHost, machine: &Machine) -> Option<String> {
    let others = machine
        .others_s
        .as_ref()
        .map_or_else(String::new, |others_s| {
            format!("other programs {:.2} CPUs, ", within.share(others_s))
        });
    let stolen = within.share(&machine.stolen_s) / machine.cpus.max(1) as f64;
    Some(format!(
        "on {}: {} CPUs, {others}stolen {:.1} %, clock aligned to {:.0} ms",
        host.host,
        machine.cpus,
        100.0 * stolen,
        1e3 * host.ahead_error_s?
    ))
}

/// The intervals that were judged.
struct Within {
    each: Vec<bool>,
    wall_s: f64,
}

impl Within {
    fn watched(watched: &Watched) -> Within {
        let finding = &watched.finding;
        // The ends were rounded to tenths.
        let (from_s, to_s) = (finding.from_s - 0.06, finding.to_s + 0.06);
        let spans = watched.end_s.iter().zip(&watched.span_s);
        let each = spans.map(|(end, span)| end - span >= from_s && *end <= to_s);
        let mut within = Within {
            each: each.collect(),
            wall_s: 0.0,
        };
        within.wall_s = within.sum(&watched.span_s);
        within
    }

    fn sum(&self, column: &[f64]) -> f64 {
        let within = column.iter().zip(&self.each).filter(|(_, within)| **within);
        within.map(|(value, _)| value).sum()
    }

    fn share(&self, column: &[f64]) -> f64 {
        self.sum(column) / self.wall_s.max(f64::MIN_POSITIVE)
    }
}

/// The sentence on the result of pairs.
pub fn doubled(doubled: &Doubled) -> String {
    let [load, twice] = doubled.loads;
    let unit = match doubled.measure.as_str() {
        "connections" => "connections/s",
        "printed" => "operations/s as printed",
        _ => "MB/s",
    };
    let scale = if unit == "MB/s" { 1e6 } else { 1.0 };
    let command: Vec<String> = doubled.command.iter().map(|word| quoted(word)).collect();
    let first = match doubled.copies {
        true => "jostle judge --copies: ",
        false => "jostle judge --double: ",
    };
    let mut out = wrap(first, &command.join(" "), WIDTH);
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
    let (generator, server) = (&watched.generator, watched.server.as_ref());
    let of_server = |of: fn(&Side) -> Option<&Vec<f64>>| server.and_then(of);
    let traffic = |of: fn(&Traffic) -> Option<&Vec<f64>>| watched.traffic.as_ref().and_then(of);
    let columns = [
        ("end_s", Some(&watched.end_s)),
        ("span_s", Some(&watched.span_s)),
        ("generator_cpu_s", Some(&generator.cpu_s)),
        ("generator_queued_s", generator.queued_s.as_ref()),
        ("generator_stopped_s", Some(&generator.stopped_s)),
        ("generator_throttled_s", generator.throttled_s.as_ref()),
        ("server_cpu_s", of_server(|s| Some(&s.cpu_s))),
        ("server_queued_s", of_server(|s| s.queued_s.as_ref())),
        ("server_stopped_s", of_server(|s| Some(&s.stopped_s))),
        ("server_throttled_s", of_server(|s| s.throttled_s.as_ref())),
        ("bytes", traffic(|t| Some(&t.bytes))),
        ("connections", traffic(|t| Some(&t.connections))),
        ("opened", traffic(|t| Some(&t.opened))),
        (
            "generator_unread_bytes",
            traffic(|t| Some(&t.generator_unread_bytes)),
        ),
        (
            "server_unread_bytes",
            traffic(|t| t.server_unread_bytes.as_ref()),
        ),
        ("backlog", traffic(|t| t.backlog.as_ref())),
        ("retransmitted", traffic(|t| Some(&t.retransmitted))),
        ("time_wait", traffic(|t| Some(&t.time_wait))),
        ("ports_left", traffic(|t| Some(&t.ports_left))),
        ("others_s", watched.machine.others_s.as_ref()),
        ("stolen_s", Some(&watched.machine.stolen_s)),
        ("tool_s", Some(&watched.machine.tool_s)),
    ];
    let names = columns.map(|(name, _)| name);
    let (mark, absent) = match between {
        "," => ("", ""),
        _ => ("# ", "-"),
    };
    let mut out = format!("{mark}{}\n", names.join(between));
    for at in 0..watched.end_s.len() {
        let cells = columns.map(|(_, column)| {
            let value = column.and_then(|column| column.get(at));
            value.map_or(absent.to_owned(), f64::to_string)
        });
        out += &cells.join(between);
        out.push('\n');
    }
    out
}

#[cfg(test)]
pub(crate) mod tests;
