//! `jostle-lock`: a command under a lock of jostled, as flock(1) is for files.
//!
//! The lock belongs to a session, which this program (the wrapper) renews while the command
//! runs. A second process (the guard) ends the command in time if that fails. Everything
//! here runs in one thread, since both are forked.

mod args;
mod guard;
mod keep;
mod line;
mod link;
mod local;
mod server;
mod signals;
mod term;

use std::io::Write;
use std::process::ExitCode;

/// The exit codes of its own failures (sysexits.h).
mod code {
    pub(crate) const USAGE: u8 = 64;
    pub(crate) const DATA: u8 = 65;
    pub(crate) const NO_INPUT: u8 = 66;
    pub(crate) const NO_HOST: u8 = 68;
    pub(crate) const UNAVAILABLE: u8 = 69;
    pub(crate) const OS: u8 = 71;
    pub(crate) const CANNOT_CREATE: u8 = 73;
    pub(crate) const LOST: u8 = 75;
    pub(crate) const NO_PERMISSION: u8 = 77;
    /// As shells have them: the program cannot be executed; there is none.
    pub(crate) const NOT_EXECUTABLE: u8 = 126;
    pub(crate) const NOT_FOUND: u8 = 127;
}

/// A failure that ends this program before its command has run, with its exit code.
#[derive(Debug, PartialEq, Eq)]
struct Failure(u8, String);

impl Failure {
    fn system(what: &str, error: impl std::fmt::Display) -> Self {
        Self(code::OS, format!("{what}: {error}"))
    }
}

/// Prints a line for people; nothing can be done where that fails.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "jostle-lock: {text}");
}

fn main() -> ExitCode {
    let options = match args::parse() {
        Ok(options) => options,
        Err(code) => return ExitCode::from(code),
    };
    let done = match options.local {
        true => local::run(&options),
        false => keep::run(&options),
    };
    ExitCode::from(done.unwrap_or_else(|Failure(code, text)| {
        if !text.is_empty() {
            say(&text);
        }
        code
    }))
}
