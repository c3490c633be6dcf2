//! The daemon's log: lines on standard error, for journald and people, or as JSON
//! for programs. Lines of the audit are written at every level. A thread writes them.

use jostle_daemon::log::{Log, one_line};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
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
        put(format(name, &format!("{start}{line}"), line, &[]));
    }
}

/// Writes a line of the audit: an action and its circumstances.
pub fn audit(event: &str, fields: &[(&str, String)]) {
    let pairs = fields
        .iter()
        .map(|(key, value)| format!(" {key}={value:?}"));
    let text = format!("audit: {event}{}", pairs.collect::<String>());
    put(format("audit", &text, event, fields));
}

/// A line in the format that was set.
fn format(level: &str, text: &str, message: &str, fields: &[(&str, String)]) -> String {
    if !JSON.load(Relaxed) {
        // Names and messages of clients may stand in it: one line stays one line.
        return format!("jostled: {}\n", one_line(text));
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since.map_or(0.0, |since| since.as_millis() as f64 / 1000.0);
    let mut object = serde_json::Map::new();
    for (key, value) in fields {
        object.insert((*key).to_owned(), value.as_str().into());
    }
    object.insert("time".to_owned(), seconds.into());
    object.insert("level".to_owned(), level.into());
    object.insert("message".to_owned(), message.into());
    format!("{}\n", serde_json::Value::Object(object))
}

fn put(line: String) {
    Log::stderr(gap).put(line);
}

/// The line in the place of those that were dropped.
fn gap(lines: u64) -> String {
    let text = format!("{lines} lines of the log were dropped: nobody read them in time");
    format("warn", &format!("warning: {text}"), &text, &[])
}

/// Lines dropped so far, because nobody read them in time.
pub(crate) fn dropped() -> u64 {
    Log::stderr(gap).dropped()
}

/// Waits for a moment until all lines are read: before the end.
pub fn flush() {
    Log::stderr(gap).flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_a_line_in_either_format() {
        let fields = [("lock", "a\n\"b".to_owned())];
        let text = format(
            "audit",
            "audit: forceunlock lock=\"a\nb\"",
            "forceunlock",
            &fields,
        );
        assert_eq!(text, "jostled: audit: forceunlock lock=\"a b\"\n");
        JSON.store(true, Relaxed);
        let json = format("audit", "", "forceunlock", &fields);
        JSON.store(false, Relaxed);
        assert_eq!(json.matches('\n').count(), 1);
        let object: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(object["lock"], "a\n\"b");
        assert_eq!(object["message"], "forceunlock");
        assert!(object["time"].as_f64().unwrap() > 1e9);
    }
}
