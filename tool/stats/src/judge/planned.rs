//! Printed figures beside the words of the command: a planned rate that was not reached, and a
//! mean latency that the number of connections rules out. Where a script hides the tool's words,
//! neither is known.

use super::printed::{SEEN, figure, whole};
use crate::numbers::significant;
use crate::printed::{ERRORS, NOT_2XX};
use jostle_model::judged::{Output, Printed};

/// For each tool, parted by `|`: its options of the number of connections, where it does not
/// print them, and the number without; those by which a connection carries several requests at
/// a time; those of a planned rate, and of that of each connection; those by which the mean may
/// be more than Little's law allows (`*`: always), and why.
const TOOLS: &str = include_str!("../printed/options.txt");

/// A tool of the table, and its words in the command.
struct Called<'a> {
    columns: Vec<&'static str>,
    words: Vec<&'a str>,
}

impl<'a> Called<'a> {
    /// None where the command does not show how it was called.
    fn new(tool: &str, command: &'a [String]) -> Option<Called<'a>> {
        let mut lines = TOOLS.lines().map(|line| line.split('|').map(str::trim));
        let columns: Vec<&str> = lines.find_map(|mut columns| {
            let is_it = columns.next() == Some(tool);
            is_it.then(|| columns.collect())
        })?;
        let (mut words, mut is_its) = (Vec::new(), false);
        for word in command.iter().flat_map(|words| words.split_whitespace()) {
            let name = word.trim_matches(['\'', '"', '(', ')', ';']);
            let program = name.rsplit('/').next().unwrap_or_default();
            if program == tool || [program, tool] == ["valkey-benchmark", "redis-benchmark"] {
                is_its = true;
            } else if is_its {
                words.push(name);
            }
            // Another program follows.
            is_its &= !word.ends_with([';', '|', '&']);
        }
        (!words.is_empty()).then_some(Called { columns, words })
    }

    fn column(&self, at: usize) -> impl Iterator<Item = &'static str> + use<> {
        self.columns[at].split_whitespace()
    }

    /// The number behind one of these options; None where several differ.
    fn number(&self, at: usize) -> Option<f64> {
        let each = self.words.iter().enumerate();
        let mut each = each.filter_map(|(nth, word)| {
            self.column(at).find_map(|name| {
                let rest = word.strip_prefix(name)?;
                let value = match rest {
                    "" => self.words.get(nth + 1)?,
                    _ if name.len() == 2 => rest.trim_start_matches('='),
                    _ => rest.strip_prefix('=')?,
                };
                let value = value.trim_end_matches("/1s").trim_end_matches("/s");
                let value = value.parse::<f64>().ok();
                value.filter(|value| value.is_finite() && *value > 0.0)
            })
        });
        let first = each.next()?;
        each.all(|other| other == first).then_some(first)
    }

    fn has(&self, at: usize) -> bool {
        let begins = |word: &str, name: &str| match name.len() {
            2 => word.starts_with(name),
            _ => word.split('=').next() == Some(name),
        };
        self.column(at)
            .any(|name| name == "*" || self.words.iter().any(|word| begins(word, name)))
    }

    /// The number of connections that it kept, if known.
    fn connections(&self, result: &Printed) -> Option<f64> {
        let printed = Some(figure(result, "connections")).filter(|number| *number > 0.0);
        printed.or_else(|| match self.has(0) {
            true => self.number(0),
            false => self.columns[1].parse().ok(),
        })
    }
}

/// For each result that fell short of what was planned, a sentence.
pub(super) fn short_of(output: &Output, command: &[String]) -> Vec<String> {
    let each = output.results.iter().filter_map(|result| {
        let dropped = figure(result, "dropped");
        let (done, planned, what) = if dropped > 0.0 {
            let done = figure(result, "iterations");
            (done, done + dropped, "iterations")
        } else {
            let called = Called::new(&result.tool, command)?;
            let of_each = || Some(called.number(4)? * called.connections(result)?);
            let planned = called.number(3).or_else(of_each)?;
            (figure(result, "rate_per_s"), planned, "requests/s")
        };
        // Some draw their times at random.
        let by_chance = 3.0 / figure(result, "requests").max(1.0).sqrt();
        (done < (SEEN - by_chance) * planned).then(|| {
            let [done, planned] = [done, planned].map(|number| significant(number, 2));
            format!(
                "{} reached {done} of the planned {planned} {what}",
                result.tool
            )
        })
    });
    each.collect()
}

/// A mean latency that Little's law forbids: N connections with one request at a time do not
/// wait longer than N/rate in the mean. The slack is what was not printed: the last digit of
/// both figures; requests that failed, which count in the rate and may have no latency; and at
/// the ends one request of each connection, the longest, of which only a part lies in the time
/// by which the rate was divided.
pub(super) fn impossible(result: &Printed, command: &[String]) -> Option<String> {
    let called = Called::new(&result.tool, command)?;
    let connections = called.connections(result)?;
    let [rate, mean_ms, requests, max_ms] =
        ["rate_per_s", "mean_ms", "requests", "max_ms"].map(|name| figure(result, name));
    if called.has(2) || requests <= 0.0 || rate <= 0.0 {
        return None;
    }
    let failed = figure(result, ERRORS) + figure(result, NOT_2XX);
    let answered = (1.0 - failed / requests).max(0.0);
    let at_ends = max_ms.max(mean_ms) * rate / requests / 1e3;
    let busy = at_least(rate) * at_least(mean_ms) / 1e3 * answered;
    (busy > connections * (1.0 + at_ends)).then(|| {
        let why = match called.has(5) {
            true => called.columns[6],
            false => "these two figures contradict each other",
        };
        let plural = if connections == 1.0 { "" } else { "s" };
        format!(
            "{} printed {mean_ms} ms mean, but with {} connection{plural} at {} requests/s the mean \
             is {} ms at most: {why}",
            result.tool,
            whole(connections),
            significant(rate, 4),
            significant(connections / rate * 1e3, 3),
        )
    })
}

/// The least value that may have been printed so, rounded or raised to its last digit.
fn at_least(printed: f64) -> f64 {
    let digits = printed.to_string();
    let digits = digits.split_once('.').map_or(0, |(_, behind)| behind.len());
    printed - 10_f64.powi(-(digits as i32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::find;
    use crate::printed::{read, tools};
    use jostle_model::judged::Watched;

    /// A recorded output (`k6-dropped` of k6, ...), the command's words, and what is told.
    const CASES: &str = include_str!("tests/planned.txt");

    #[test]
    fn each_row_is_of_a_tool_whose_results_are_read() {
        for row in TOOLS.lines() {
            let columns: Vec<&str> = row.split(" |").collect();
            assert!(tools().any(|tool| tool == columns[0]), "{row}");
            assert_eq!(columns.len(), 8, "{row}");
        }
    }

    #[test]
    fn unreached_plans_and_impossible_means_are_told_and_no_others() {
        for case in CASES.lines() {
            let (name, rest) = case.split_once(" | ").unwrap();
            let (command, wanted) = rest.rsplit_once('|').unwrap();
            let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/src/printed/samples");
            let text = std::fs::read_to_string(format!("{samples}/{name}.txt")).unwrap();
            let output = Output {
                results: read(&text),
                ..Output::default()
            };
            let command = ["sh", "-c", command].map(str::to_owned);
            let watched = Watched {
                command: command.to_vec(),
                output: Some(output.clone()),
                ..Watched::default()
            };
            let first = find(&watched).reasons.swap_remove(0);
            let is_short = wanted.contains(" of the planned ");
            assert_eq!(first == wanted.trim(), is_short, "{case}: {first}");
            let means = output.results.iter();
            let means = means.filter_map(|result| impossible(result, &command));
            let told: Vec<String> = means.chain(short_of(&output, &command)).collect();
            let told = told.join("; ");
            assert!(told.starts_with(wanted.trim()), "{case}: {told}");
            assert_eq!(told.is_empty(), wanted.trim().is_empty(), "{case}: {told}");
        }
    }
}
