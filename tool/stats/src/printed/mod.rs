//! Figures in the text that load generators print.
//!
//! A tool's format is data (`formats/TOOL.txt`): the lines of one result in their order, so
//! that text of another version, or one that was cut, has no figures rather than wrong ones.
//! In a format
//!
//! - words are compared one by one, whatever the space between them; a last word `...` is the
//!   rest of a line
//! - `{name}` is a number, `{name:s}` one of seconds, `{name:t}` one with its
//!   unit (`1.2ms`, `1m3s`); all times become milliseconds. `{name:g}` may have commas between its
//!   thousands (`12,345.6`) or be in thousands (`82k`). `{_}` is any text, `{name*}` and `{_*}` may
//!   be several words
//! - `{one+other}` is a number of both names
//! - `? ` begins a line that may be absent, `* ` one that may come often; numbers of one name
//!   are added
//! - a line `...` is any lines up to the next one, except the beginning of another result
//! - `~` is an empty line; elsewhere they are passed over
//! - `=` is the end of a result whose last line may be any: it is whole if its rate makes the
//!   requests of its `total_ms`
//! - `< ` begins a line that came somewhere before
//! - `----` stands between the formats of one tool
//!
//! The figures are those of [`FIGURES`]. Not for our own results.

use jostle_model::judged::Printed;
use jostle_model::text::one_line;
use std::collections::BTreeMap;

/// Each tool with its formats.
const TOOLS: &[(&str, &str)] = &[
    ("ab", include_str!("formats/ab.txt")),
    ("autocannon", include_str!("formats/autocannon.txt")),
    ("bombardier", include_str!("formats/bombardier.txt")),
    ("ghz", include_str!("formats/ghz.txt")),
    ("hey", include_str!("formats/hey.txt")),
    ("k6", include_str!("formats/k6.txt")),
    ("locust", include_str!("formats/locust.txt")),
    ("mysqlslap", include_str!("formats/mysqlslap.txt")),
    ("pgbench", include_str!("formats/pgbench.txt")),
    ("oha", include_str!("formats/oha.txt")),
    (
        "redis-benchmark",
        include_str!("formats/redis-benchmark.txt"),
    ),
    ("sysbench", include_str!("formats/sysbench.txt")),
    ("vegeta", include_str!("formats/vegeta.txt")),
    ("wrk", include_str!("formats/wrk.txt")),
];

/// The tools whose results are read.
pub fn tools() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|(tool, _)| *tool)
}

/// A figure's name in records and formats, and what stands behind its value in a sentence.
/// Those that a format names and a result does not have are 0 where they count failures.
pub const FIGURES: &[(&str, &str)] = &[
    ("rate_per_s", "requests/s"),
    ("requests", "requests"),
    ("connections", "connections"),
    ("mean_ms", "ms mean"),
    ("p50_ms", "ms p50"),
    ("p99_ms", "ms p99"),
    ("max_ms", "ms max"),
    (ERRORS, "errors"),
    (NOT_2XX, "answers not 2xx"),
    ("other_length", "answers of another length"),
    ("iterations", "iterations"),
    ("dropped", "dropped iterations"),
];

/// Requests that got no answer, or none that counts.
pub const ERRORS: &str = "errors";

/// Answers whose status is an error; some tools count redirections among them.
pub const NOT_2XX: &str = "not_2xx";

/// The time of a whole result, which is compared and not kept.
const TOTAL: &str = "total_ms";

/// Requests of each connection, of a tool that prints these and the time in place of a rate.
const EACH: &str = "each";

/// Failures that a format counts, by the beginning of their place in it.
const COUNTED: [(&str, &str); 5] = [
    ("{errors", ERRORS),
    ("{not_2xx", NOT_2XX),
    ("{code}", NOT_2XX),
    ("{codes", NOT_2XX),
    ("{codes", ERRORS),
];

/// The whole results in a text, in their order; empty where no format is known.
pub fn read(text: &str) -> Vec<Printed> {
    // A last line without its end may have been cut.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines: Vec<String> = whole.split('\n').map(plain).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let formats: Vec<(&str, Vec<Step<'_>>)> = TOOLS
        .iter()
        .flat_map(|(tool, text)| text.split("----\n").map(|format| (*tool, steps(format))))
        .collect();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < lines.len() {
        let result = formats.iter().find_map(|(tool, steps)| {
            let (taken, figures) = result(steps, &lines[..at], &lines[at..])?;
            Some((taken, figures.printed(tool, steps)))
        });
        at += result.as_ref().map_or(1, |(taken, _)| *taken);
        found.extend(result.map(|(_, printed)| printed));
    }
    found
}

/// The first line that has EADDRNOTAVAIL in the words of glibc, which Go, Python, Rust and others
/// print too, of musl, of macOS, by its name, or by its number (in any language): no
/// port was left for a new connection. At most 200 characters of it.
pub fn no_port(text: &str) -> Option<String> {
    const WORDS: [&str; 7] = [
        "cannot assign requested address",
        "can't assign requested address",
        "address not available",
        "eaddrnotavail",
        "errno 99",
        "errno: 99",
        "os error 99",
    ];
    let lines = text.split('\n').map(plain);
    let is_it = |line: &String| {
        let line = line.to_lowercase();
        let mut rest = WORDS.iter().filter_map(|words| line.split_once(words));
        rest.any(|(_, rest)| !rest.starts_with(|next: char| next.is_ascii_digit()))
    };
    let line = lines.into_iter().find(is_it)?;
    Some(one_line(&line).chars().take(200).collect())
}

/// A line as a terminal would show it in the end: what stands behind the last carriage return,
/// without colours, and without the rows of dots that lead to a figure.
fn plain(line: &str) -> String {
    let line = line.trim_end_matches('\r');
    let line = line.rsplit('\r').next().unwrap_or(line);
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\u{1b}' if chars.peek() == Some(&'[') => {
                chars.next();
                chars.by_ref().find(|char| ('@'..='~').contains(char));
            }
            '.' if out.ends_with('.') => {}
            _ => out.push(char),
        }
    }
    out
}

/// A line of a format.
#[derive(Debug, PartialEq)]
enum Step<'a> {
    Once(Vec<&'a str>),
    Maybe(Vec<&'a str>),
    Often(Vec<&'a str>),
    Before(Vec<&'a str>),
    Empty,
    Any,
    Whole,
}

fn steps(format: &str) -> Vec<Step<'_>> {
    format.lines().map(step).collect()
}

fn step(line: &str) -> Step<'_> {
    let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
    let words = |text| str::split_whitespace(text).collect();
    match kind {
        "..." => Step::Any,
        "~" => Step::Empty,
        "=" => Step::Whole,
        "?" => Step::Maybe(words(rest)),
        "*" => Step::Often(words(rest)),
        "<" => Step::Before(words(rest)),
        _ => Step::Once(words(line)),
    }
}

/// The result that begins with the first of these lines, and how many lines it takes. None
/// where there is none, or not all of it.
fn result(steps: &[Step<'_>], before: &[&str], lines: &[&str]) -> Option<(usize, Figures)> {
    let mut found = Figures::default();
    let first = steps.iter().find_map(|step| match step {
        Step::Once(words) => Some(words),
        _ => None,
    })?;
    // Most lines begin nothing.
    Figures::default()
        .take(first, lines.first()?)
        .then_some(())?;
    let begins = |at: usize| at > 0 && Figures::default().take(first, lines[at]);
    let mut at = 0;
    let mut any = false;
    for step in steps {
        match step {
            Step::Before(words) => {
                let mut lines = before.iter();
                lines.any(|line| found.take(words, line)).then_some(())?;
            }
            Step::Any => any = true,
            Step::Empty => {
                lines.get(at)?.trim().is_empty().then_some(())?;
                at += 1;
            }
            Step::Maybe(words) | Step::Often(words) => {
                let next = |at: usize| (at..lines.len()).find(|at| !lines[*at].trim().is_empty());
                while let Some(line) = next(at).filter(|line| found.take(words, lines[*line])) {
                    at = line + 1;
                    if matches!(step, Step::Maybe(_)) {
                        break;
                    }
                }
            }
            Step::Whole => found.is_whole().then_some(())?,
            Step::Once(words) => {
                while !found.take(words, lines.get(at)?) {
                    let passed = any || lines[at].trim().is_empty();
                    (passed && !begins(at)).then_some(())?;
                    at += 1;
                }
                at += 1;
                any = false;
            }
        }
    }
    Some((at, found))
}

/// The figures read so far.
#[derive(Clone, Debug, Default)]
struct Figures {
    numbers: BTreeMap<String, f64>,
    test: Option<String>,
    /// The status of an answer in this line.
    code: Option<f64>,
}

impl Figures {
    /// Whether the line is as these words; its figures are taken only then.
    fn take(&mut self, words: &[&str], line: &str) -> bool {
        let given: Vec<&str> = line.split_whitespace().collect();
        let mut of_line = Figures::default();
        if of_line.line(words, &given).is_none() {
            return false;
        }
        if of_line
            .code
            .is_some_and(|code| !(200.0..400.0).contains(&code))
        {
            let answers = of_line.numbers.get("requests").copied();
            of_line.add(NOT_2XX, answers.unwrap_or(0.0));
        }
        self.test = of_line.test.or(self.test.take());
        for (name, number) in of_line.numbers {
            self.add(&name, number);
        }
        true
    }

    /// Whether no request is missing, as far as the digits of rate and time tell.
    fn is_whole(&mut self) -> bool {
        let number = |name| self.numbers.get(name).copied();
        let requests = number("requests").unwrap_or(0.0);
        let (rate_per_s, total_ms) = (number("rate_per_s"), self.numbers.remove(TOTAL));
        let all = rate_per_s.zip(total_ms);
        let all = all.map(|(rate, total)| rate * total / 1e3);
        all.is_some_and(|all| (all - requests).abs() <= (1e-6 * requests).max(0.5))
    }

    fn add(&mut self, name: &str, number: f64) {
        let sum = self.numbers.entry(name.to_owned()).or_default();
        // Changes of unit leave digits behind that were not printed.
        *sum = ((*sum + number) * 1e9).round() / 1e9;
    }

    fn line(&mut self, words: &[&str], given: &[&str]) -> Option<()> {
        let Some((word, rest)) = words.split_first() else {
            return given.is_empty().then_some(());
        };
        if *word == "..." && rest.is_empty() {
            return Some(());
        }
        // `{name*}` takes what the words behind it leave.
        let taken = match word.contains("*}") {
            true => given
                .len()
                .checked_sub(rest.len())
                .filter(|taken| *taken > 0)?,
            false => 1,
        };
        self.word(word, &given.get(..taken)?.join(" "))?;
        self.line(rest, &given[taken..])
    }

    fn word(&mut self, word: &str, given: &str) -> Option<()> {
        let Some((before, rest)) = word.split_once('{') else {
            return (word == given).then_some(());
        };
        let (hole, after) = rest.split_once('}')?;
        let given = given.strip_prefix(before)?;
        let next = after.split('{').next().unwrap_or_default();
        let end = match next.is_empty() {
            true => given.len(),
            false => given.find(next)?,
        };
        self.hole(hole.trim_end_matches('*'), &given[..end])?;
        self.word(after, &given[end..])
    }

    fn hole(&mut self, hole: &str, given: &str) -> Option<()> {
        let (name, unit) = hole.split_once(':').unwrap_or((hole, ""));
        let plain = || given.parse::<f64>().ok();
        let number = match (name, unit) {
            ("_", _) => return (!given.is_empty()).then_some(()),
            ("test", _) => {
                self.test = Some(given.to_owned());
                return Some(());
            }
            ("codes", _) => return self.codes(given),
            (_, "t") => duration_ms(given)?,
            (_, "g") => grouped(given)?,
            (_, "s") => plain()? * 1e3,
            _ => plain()?,
        };
        if name == "code" {
            self.code = Some(number);
        } else if number.is_finite() {
            // Otherwise the mean of no requests.
            for name in name.split('+') {
                self.add(name, number);
            }
        }
        Some(())
    }

    /// `200:95 503:5`, as vegeta prints them; 0 is a request without an answer.
    fn codes(&mut self, given: &str) -> Option<()> {
        for pair in given.split_whitespace() {
            let (code, count) = pair.split_once(':')?;
            let count = count.parse::<f64>().ok()?;
            match code.parse::<u16>().ok()? {
                0 => self.add(ERRORS, count),
                200..400 => {}
                _ => self.add(NOT_2XX, count),
            }
        }
        Some(())
    }

    /// As a record has it: what counts failures and did not occur is 0.
    fn printed(mut self, tool: &str, steps: &[Step<'_>]) -> Printed {
        let words = steps.iter().flat_map(|step| match step {
            Step::Maybe(words) | Step::Often(words) | Step::Once(words) => &words[..],
            _ => &[],
        });
        for word in words {
            for (sign, name) in COUNTED {
                if word.contains(sign) {
                    self.numbers.entry(name.to_owned()).or_default();
                }
            }
        }
        if let Some(each) = self.numbers.remove(EACH) {
            let number = |name| self.numbers.get(name).copied().unwrap_or(0.0);
            let (requests, total_ms) = (each * number("connections"), number(TOTAL));
            self.numbers.remove(TOTAL);
            self.add("requests", requests);
            if total_ms > 0.0 {
                self.add("rate_per_s", requests / total_ms * 1e3);
            }
        }
        Printed {
            tool: tool.to_owned(),
            test: self.test,
            figures: self.numbers,
        }
    }
}

/// `12,345.6` or `82k`. None where it may be of a language that writes `12.345,6`.
fn grouped(text: &str) -> Option<f64> {
    let (text, unit) = match text.strip_suffix('k') {
        Some(text) => (text, 1e3),
        None => (text, 1.0),
    };
    let (whole, behind) = text.split_once('.').unwrap_or((text, ""));
    let mut groups = whole.split(',').skip(1);
    let is_english = groups.all(|group| group.len() == 3) && behind.len() != 3;
    let number = text.replace(',', "").parse::<f64>().ok();
    number
        .filter(|_| is_english && !behind.contains(','))
        .map(|number| number * unit)
}

/// A time with its unit, as Go and wrk print it: `1.23ms`, `450.00us`, `365µs`, `1m2.5s`, `0`.
fn duration_ms(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 9] = [
        ("h", 3.6e6),
        ("ms", 1.0),
        ("m", 6e4),
        ("us", 1e-3),
        ("µs", 1e-3),
        ("μs", 1e-3),
        ("ns", 1e-6),
        ("secs", 1e3),
        ("s", 1e3),
    ];
    let text = &text.replace(' ', "");
    if text.starts_with("NaN") || text.trim_start_matches('-').starts_with("inf") {
        // The tool made no request.
        return Some(f64::NAN);
    }
    let (mut rest, mut all) = (text.as_str(), 0.0);
    while !rest.is_empty() {
        let end = rest
            .find(|char: char| char.is_alphabetic())
            .filter(|end| *end > 0);
        let Some(end) = end else {
            return (text == "0").then_some(0.0);
        };
        let number: f64 = rest[..end].parse().ok()?;
        let (unit, ms) = UNITS
            .iter()
            .find(|(unit, _)| rest[end..].starts_with(unit))?;
        all += number * ms;
        rest = &rest[end + unit.len()..];
    }
    (!text.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests;
