//! A child that ends with its standard input, and so also when this program ends, in
//! whatever way: a server, a hog, a shell that restores a setting.

use crate::shell;
use anyhow::Context;
use std::io::Write;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a child may take to end before it is killed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Dropping it closes the input, waits for the child's end, and kills one that does not.
#[derive(Debug)]
pub struct Leash {
    child: Child,
    input: Option<ChildStdin>,
}

impl Leash {
    /// Starts a program that heeds this.
    ///
    /// # Errors
    /// The system's, with the command.
    pub fn start(command: &mut Command) -> anyhow::Result<Leash> {
        command.stdin(Stdio::piped());
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot run `{}`", shell::typed(command)))?;
        let input = child.stdin.take();
        Ok(Leash { child, input })
    }

    /// The child's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to it.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("no input")?;
        writeln!(input, "{line}").context("the program has ended")
    }

    /// The output, if that is piped; once.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        drop(self.input.take());
        let until = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
