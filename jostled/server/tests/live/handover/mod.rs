//! The handover of jostled to a new program: state that is kept, connections that end,
//! and new programs that fail.

mod kept;
mod load;
mod refused;
mod service;

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use crate::JOSTLED;
use crate::common::{Client, Daemon, eventually};

/// A path where jostled is installed, and where another program can replace it.
struct Installed {
    directory: tempfile::TempDir,
}

impl Installed {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let installed = Self { directory };
        installed.put_jostled();
        installed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn program(&self) -> PathBuf {
        self.path("jostled")
    }

    /// Installs jostled in place of the current program, by a link, as many do.
    fn put_jostled(&self) {
        self.remove();
        std::os::unix::fs::symlink(JOSTLED, self.program()).unwrap();
    }

    fn remove(&self) {
        let _ = std::fs::remove_file(self.program());
    }

    /// Installs a script. Another process writes it: a file that any process has open
    /// for writing, be it for the moment of a fork, cannot be executed.
    fn put(&self, text: &str, mode: &str) {
        self.remove();
        let mut shell = Command::new("sh");
        shell.args(["-c", "printf %s \"$2\" > \"$0\" && chmod \"$1\" \"$0\""]);
        let status = shell.arg(self.program()).args([mode, text]).status();
        assert!(status.unwrap().success());
    }

    /// Starts it without a data directory on a free port, with more flags.
    fn start(&self, flags: &[&str]) -> Daemon {
        let mut all = vec!["--data", "none", "--listen", "127.0.0.1:0"];
        all.extend(flags);
        Daemon::from_command(Command::new(self.program()).args(all))
    }
}

/// Waits until so many clients wait.
fn await_waiters(daemon: &Daemon, count: u64) {
    daemon.await_info("waiters", count);
}

/// Hands a daemon over; returns the reply.
#[track_caller]
fn hand_over(daemon: &Daemon) -> String {
    let reply = daemon.client().ask("HANDOVER");
    reply.as_text().unwrap().to_owned()
}

/// Hands a daemon over; it must then have done so this many times, in the same process.
#[track_caller]
fn assert_handed_over(daemon: &Daemon, times: u64) {
    assert_eq!(hand_over(daemon), "OK");
    let mut client = daemon.client();
    assert_eq!(client.info("handovers"), times);
    assert_eq!(client.info("process_id"), u64::from(daemon.child.id()));
}

/// Sends bytes from a client, without waiting for a reply.
fn sends<S: std::io::Read + Write>(client: &mut Client<S>, bytes: &str) {
    client.stream.write_all(bytes.as_bytes()).unwrap();
}

/// Whether any process has this command line.
fn is_running(line: &str) -> bool {
    let given = line.replace(' ', "\0") + "\0";
    std::fs::read_dir("/proc").unwrap().any(|entry| {
        let found = std::fs::read(entry.unwrap().path().join("cmdline"));
        found.is_ok_and(|found| found == given.as_bytes())
    })
}

/// Waits until no process has this command line.
fn await_no_process(line: &str) {
    eventually("nothing is left behind", || !is_running(line));
}
