//! A wall clock that a test sets while a server runs by it: `set_clock.c`, compiled and
//! preloaded into the server. The machine's own clock stays as it is.

use crate::running;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A clock that is right until it is set.
pub struct SetClock(TempDir);

impl SetClock {
    /// Compiles what is preloaded.
    ///
    /// # Panics
    /// Where there is no C compiler, or no room.
    #[allow(clippy::expect_used, reason = "a test that cannot begin has failed")]
    pub fn new() -> SetClock {
        let clock = SetClock(tempfile::tempdir().expect("a directory for a clock"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/set_clock.c");
        let mut compile = Command::new("cc");
        compile.args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", source, "-o"]);
        running::said(compile.arg(clock.shared_object()));
        fs::write(clock.offset(), 0_i64.to_ne_bytes()).expect("the offset of a clock");
        clock
    }

    fn shared_object(&self) -> PathBuf {
        self.0.path().join("set_clock.so")
    }

    fn offset(&self) -> PathBuf {
        self.0.path().join("offset")
    }

    /// Lets a program run by this clock. It must not be linked statically.
    pub fn give<'a>(&self, program: &'a mut Command) -> &'a mut Command {
        program
            .env("LD_PRELOAD", self.shared_object())
            .env("CLOCK_OFFSET", self.offset())
    }

    /// Sets it so many seconds before the right time, or behind it if negative.
    ///
    /// # Panics
    /// If its file is gone.
    #[allow(clippy::expect_used, reason = "a test that cannot go on has failed")]
    pub fn set(&self, ahead_s: i64) {
        // Not made anew: the server has mapped it.
        let file = OpenOptions::new().write(true).open(self.offset());
        let mut file = file.expect("the offset of a clock");
        file.write_all(&ahead_s.to_ne_bytes())
            .expect("the offset of a clock");
    }
}

impl Default for SetClock {
    fn default() -> SetClock {
        SetClock::new()
    }
}
