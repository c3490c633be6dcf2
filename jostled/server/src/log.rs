//! The daemon's log: lines on standard error, for journald and people, or as JSON
//! for programs. Lines of the audit are written at every level. A thread writes them.

use jostle_daemon::log::{Log, one_line};
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// How much a line matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The daemon cannot do what it is for.
    Error,
    /// It can, but not as it was told to.
    Warn,
    /// What it does.
    #[default]
    Info,
    /// Each connection.
    Debug,
}

/// How lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// `jostled: ...`
    #[default]
    Text,
    /// An object a line.
    Json,
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);
static JSON: AtomicBool = AtomicBool::new(false);

/// Sets the level and the format of the lines from now on.
pub fn set(level: Level, format: Format) {
    LEVEL.store(level as u8, Relaxed);
    JSON.store(format == Format::Json, Relaxed);
}

/// Whether lines of a level are written.
#[must_use]
pub fn writes(level: Level) -> bool {
    level as u8 <= LEVEL.load(Relaxed)
}

/// Writes a line of the level `info`.
pub fn say(line: &str) {
    write(Level::Info, line);
}

/// Writes a line. A log that nobody reads any more must not end the daemon, and all
/// locks with it.
pub fn write(level: Level, line: &str) {
    if writes(level) {
        let (name, start) = match level {
            Level::Error => ("error", "error: "),
            Level::Warn => ("warn", "warning: "),
            Level::Info => ("info", ""),
            Level::Debug => ("debug", "debug: "),
        };
        put(format(name, &format!("{start}{line}"), line));
    }
}

/// The value of a field of the audit.
#[derive(Clone, Copy)]
pub enum Value<'v> {
    /// A name or another text, which may be any bytes.
    Bytes(&'v [u8]),
    /// A number or an address.
    Shown(&'v dyn Display),
}

/// Writes a line of the audit: an action and its circumstances.
pub fn audit(event: &str, fields: &[(&str, Value<'_>)]) {
    put(audit_line(event, fields));
}

/// A line of the audit. Values can be parsed back: in text each is what stands between the
/// quotes of a byte string in C, Python or Rust; in JSON a string, or an array of bytes if
/// they are not UTF-8.
pub(crate) fn audit_line(event: &str, fields: &[(&str, Value<'_>)]) -> String {
    if JSON.load(Relaxed) {
        return object(fields, "audit", event);
    }
    let mut line = format!("jostled: audit: {event}");
    for (key, value) in fields {
        let _ = match value {
            Value::Bytes(bytes) => write!(line, " {key}=\"{}\"", bytes.escape_ascii()),
            Value::Shown(shown) => write!(line, " {key}=\"{shown}\""),
        };
    }
    line.push('\n');
    line
}

/// A line in the format that was set.
fn format(level: &str, text: &str, message: &str) -> String {
    if JSON.load(Relaxed) {
        return object(&[], level, message);
    }
    // Names and messages of clients may stand in it: one line stays one line.
    format!("jostled: {}\n", one_line(text))
}

/// A line of JSON.
fn object(fields: &[(&str, Value<'_>)], level: &str, message: &str) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = since.map_or(0, |since| since.as_millis());
    let mut line = format!("{{\"time\":{}.{:03}", ms / 1000, ms % 1000);
    let level = ("level", Value::Bytes(level.as_bytes()));
    let message = ("message", Value::Bytes(message.as_bytes()));
    for (key, value) in [level, message].iter().chain(fields) {
        let _ = match value {
            Value::Shown(shown) => write!(line, ",\"{key}\":\"{shown}\""),
            Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => write!(line, ",\"{key}\":{}", serde_json::Value::from(text)),
                Err(_) => write!(line, ",\"{key}\":{bytes:?}"),
            },
        };
    }
    line.push_str("}\n");
    line
}

fn put(line: String) {
    Log::stderr(gap).put(line);
}

/// The line in the place of those that were dropped.
fn gap(lines: u64, why: &str) -> String {
    let text = format!("{lines} lines of the log were dropped: {why}");
    format("warn", &format!("warning: {text}"), &text)
}

/// Lines of `--audit` that wait for the reader at most.
const AUDIT_LINES: usize = 1 << 16;

/// The queue of `--audit`: however many its lines are, those of the log have room.
static AUDITED: OnceLock<Arc<Log>> = OnceLock::new();

/// Writes lines that `--audit` asks for.
pub(crate) fn audit_all(lines: impl IntoIterator<Item = String>) {
    let log = AUDITED.get_or_init(|| Log::start(std::io::stderr(), AUDIT_LINES, audit_gap));
    log.put_all(lines);
}

fn audit_gap(lines: u64, why: &str) -> String {
    let fields = [("lines", Value::Shown(&lines)), ("why", Value::Shown(&why))];
    audit_line("lines dropped", &fields)
}

/// Lines dropped so far, of the log and of `--audit`: nobody read them in time, or they could
/// not be written.
pub(crate) fn dropped() -> (u64, u64) {
    let audited = AUDITED.get().map_or(0, |log| log.dropped());
    (Log::stderr(gap).dropped(), audited)
}

/// Waits for a moment until all lines are read: before the end.
pub fn flush() {
    Log::stderr(gap).flush();
    AUDITED.get().inspect(|log| log.flush());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_stays_a_line_in_either_format() {
        let fields = [
            ("lock", Value::Bytes(b"a\n\"\\\xff")),
            ("token", Value::Shown(&7)),
        ];
        let text = audit_line("granted", &fields);
        let expected = "jostled: audit: granted lock=\"a\\n\\\"\\\\\\xff\" token=\"7\"\n";
        assert_eq!(text, expected);
        assert_eq!(format("info", "a\nb", ""), "jostled: a b\n");
        JSON.store(true, Relaxed);
        let lines = [&fields[..], &[("lock", Value::Bytes(b"a\n\"\\"))]]
            .map(|fields| audit_line("granted", fields));
        JSON.store(false, Relaxed);
        for (line, lock) in lines
            .iter()
            .zip([json!([97, 10, 34, 92, 255]), json!("a\n\"\\")])
        {
            assert_eq!(line.matches('\n').count(), 1);
            let object: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(object["lock"], lock);
            assert_eq!(
                (&object["level"], &object["message"]),
                (&json!("audit"), &json!("granted"))
            );
            assert!(object["time"].as_f64().unwrap() > 1e9);
        }
    }
}
