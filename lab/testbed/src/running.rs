//! Commands that tests run, with bounds on how long they wait.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// For anything that must happen on a busy machine, such as three programs in Java to agree.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that is killed with the value.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command to its end and returns what it printed.
///
/// # Panics
/// If it fails, does not end in time, or prints what is no text.
pub fn said(command: &mut Command) -> String {
    let typed = format!("{command:?}");
    let mut command = std::mem::replace(command, Command::new("true"));
    let (send, output) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(command.output()));
    // Also what it has left behind may hold its output open.
    let output = output.recv_timeout(PATIENCE);
    let output = output
        .unwrap_or_else(|_| panic!("{typed} does not end"))
        .unwrap_or_else(|error| panic!("{typed}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{typed}: {errors}");
    String::from_utf8(output.stdout).unwrap_or_else(|error| panic!("{typed}: {error}"))
}

/// Waits until `done` says so.
///
/// # Panics
/// If that takes too long.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "not so: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
