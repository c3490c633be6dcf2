//! The daemon's log: lines on standard error, for journald and people.

use std::io::Write;

/// Writes one line. If nobody reads it any more, that must not end the daemon
/// and all locks with it.
pub fn say(line: &str) {
    // Names and messages of clients may stand in it: one line stays one line.
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let line: String = line.chars().map(plain).collect();
    let _ = writeln!(std::io::stderr(), "jostled: {line}");
}
