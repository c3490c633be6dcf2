//! The programs of `lab/trials/reference/`: each takes and releases one lock through a service's
//! usual library, for as long as it is told on its standard input.

use anyhow::{Context, bail, ensure};
use jostle_testbed::leash::Leash;
use jostle_testbed::shell;
use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

/// Builds one by the words of the table; the words that run it.
pub(super) fn build(words: &str) -> anyhow::Result<Vec<String>> {
    let mut build = Command::new(shell::root().join("lab/trials/reference/build.sh"));
    build.arg(shell::target_directory().join("peers/reference"));
    let printed = shell::output(build.args(words.split(' ')))?;
    Ok(printed.lines().map(str::to_owned).collect())
}

/// The work of one program in a span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    /// Locks taken and released.
    pub pairs: u64,
    /// User and system CPU time of its whole process.
    pub cpu_s: f64,
    /// The span's true length.
    pub seconds: f64,
}

impl Span {
    /// Reads `PAIRS CPU_NS NS`.
    pub(super) fn parse(line: &str) -> anyhow::Result<Span> {
        let numbers: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
        match numbers.as_deref() {
            Ok([pairs, cpu_ns, ns]) if *pairs > 0 && *ns > 0 => Ok(Span {
                pairs: *pairs,
                cpu_s: *cpu_ns as f64 / 1e9,
                seconds: *ns as f64 / 1e9,
            }),
            _ => bail!("a reference client printed {line:?} in place of pairs and times"),
        }
    }

    /// Pairs a second, CPU microseconds a pair and pairs, of all together.
    pub(super) fn together(spans: &[Span]) -> (f64, f64, u64) {
        let rate = spans.iter().map(|span| span.pairs as f64 / span.seconds);
        let cpu_s: f64 = spans.iter().map(|span| span.cpu_s).sum();
        let pairs: u64 = spans.iter().map(|span| span.pairs).sum();
        (rate.sum(), cpu_s * 1e6 / pairs as f64, pairs)
    }
}

/// A program that runs; dropping it ends it.
pub(super) struct Reference {
    program: Leash,
    output: BufReader<ChildStdout>,
}

impl Reference {
    /// Starts it by these words.
    ///
    /// # Errors
    /// The system's, with the command.
    pub(super) fn start(words: &[String]) -> anyhow::Result<Reference> {
        let (first, rest) = words.split_first().context("no command")?;
        let mut command = Command::new(first);
        let mut program = Leash::start(command.args(rest).stdout(Stdio::piped()))?;
        let output = BufReader::new(program.stdout().context("no output")?);
        Ok(Reference { program, output })
    }

    /// The work in the span that was begun.
    ///
    /// # Errors
    /// Where it ended.
    fn end(&mut self) -> anyhow::Result<Span> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line)?;
        ensure!(read > 0, "a reference client has ended");
        Span::parse(&line)
    }
}

/// One span of all of them at the same time.
pub(super) fn span(clients: &mut [Reference], length: Duration) -> anyhow::Result<Vec<Span>> {
    ensure!(!clients.is_empty(), "no reference client");
    for client in &mut *clients {
        client.program.tell(&length.as_millis().to_string())?;
    }
    clients.iter_mut().map(Reference::end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that has made as many pairs as it was told milliseconds.
    fn obedient() -> Reference {
        let script = "while read -r ms; do echo $ms 1000000 2000000000; done";
        Reference::start(&["sh", "-c", script].map(str::to_owned)).unwrap()
    }

    #[test]
    fn spans_of_several_programs_are_added_up() {
        let mut clients = [obedient(), obedient()];
        let spans = span(&mut clients, Duration::from_millis(500)).unwrap();
        // 500 pairs in 2 s and 1 ms of CPU time, twice.
        assert_eq!(Span::together(&spans), (500.0, 2.0, 1000));
        let again = span(&mut clients[..1], Duration::from_millis(8)).unwrap();
        assert_eq!(again[0].pairs, 8);
    }

    #[test]
    fn a_program_that_ends_or_talks_is_an_error() {
        let start = |script: &str| Reference::start(&["sh", "-c", script].map(str::to_owned));
        let mut ended = start("read -r ms; exit 1").unwrap();
        let error = span(std::slice::from_mut(&mut ended), Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("has ended"), "{error:#}");
        let mut talks = start("read -r ms; echo cannot connect; read -r ms").unwrap();
        let error = span(std::slice::from_mut(&mut talks), Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("cannot connect"), "{error:#}");
    }

    #[test]
    fn a_span_without_a_pair_is_no_figure() {
        for line in ["0 1 1", "1 1 0", "1 1", "1 1 1 1", "a 1 1", ""] {
            assert!(Span::parse(line).is_err(), "{line}");
        }
        assert_eq!(Span::parse("7 1000000 500000000").unwrap().seconds, 0.5);
    }
}
