//! A profiler or tracer that runs along with a run (`--during`): started before
//! it, ended by SIGINT when it is over, as at a terminal, so that it writes its
//! file. What it prints goes to our standard error.

use crate::Context;
use jostle_sys::waited;
use jostle_sys::{process, signal};
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long it may take to write what it has seen.
const PATIENCE: Duration = Duration::from_secs(10);

/// The program that runs along.
#[derive(Debug)]
pub struct During {
    command: String,
    pid: u32,
    gone: bool,
}

impl During {
    /// Starts it on these processes.
    ///
    /// # Errors
    /// In words for the user.
    pub fn start(context: &Context, command: &str, pids: &[u32]) -> Result<During, String> {
        let words = words(command, pids).ok_or("--during: a quote has no end")?;
        let (failed, fails) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|errno| format!("--during: cannot make a pipe: {errno}"))?;
        let keeper = rustix::process::getpid();
        let mut end = Some(fails);
        let pid = context.forker.fork(|| {
            // SIGINT is what ends it.
            if process::die_with(keeper).is_err() || signal::heed_interrupts().is_err() {
                return 1;
            }
            let _ = process::leave_group();
            let Ok(errors) = std::io::stderr().as_fd().try_clone_to_owned() else {
                return 1;
            };
            // Only returns if it failed.
            let error = Command::new(&words[0])
                .args(&words[1..])
                .stdin(Stdio::null())
                .stdout(Stdio::from(errors))
                .exec();
            let errno = error.raw_os_error().unwrap_or(0);
            if let Some(end) = &end {
                let _ = rustix::io::write(end, &errno.to_le_bytes());
            }
            1
        });
        drop(end.take());
        let pid = pid.map_err(|error| format!("--during: cannot fork: {error}"))?;
        let during = During {
            command: words.join(" "),
            pid: pid.as_raw_nonzero().get() as u32,
            gone: false,
        };
        match exec_error(&failed) {
            None => Ok(during),
            Some(error) => Err(format!("--during: cannot run {}: {error}", words[0])),
        }
    }

    /// Ends it and says what it was and how it ended.
    pub fn end(mut self) -> String {
        let early = process::is_gone(self.pid);
        self.gone = early || self.leave(Signal::INT);
        match (early, self.gone) {
            (true, _) => format!("{} (ended by itself before the window did)", self.command),
            (_, true) => self.command.clone(),
            _ => format!("{} (killed: SIGINT did not end it)", self.command),
        }
    }

    /// Whether a signal to its group ended it in time.
    fn leave(&self, signal: Signal) -> bool {
        if let Some(group) = Pid::from_raw(self.pid as i32) {
            let _ = kill_process_group(group, signal);
        }
        let is_gone = || process::is_gone(self.pid).then_some(());
        waited::within(PATIENCE, Duration::from_millis(2), is_gone).is_some()
    }
}

impl Drop for During {
    fn drop(&mut self) {
        if !self.gone {
            self.leave(Signal::KILL);
        }
    }
}

/// The error of exec; the pipe closes by itself if exec succeeded.
fn exec_error(pipe: &OwnedFd) -> Option<std::io::Error> {
    let mut errno = [0; 4];
    let read = rustix::io::read(pipe, &mut errno);
    (read == Ok(4)).then(|| std::io::Error::from_raw_os_error(i32::from_le_bytes(errno)))
}

/// The words of a command, as a shell would split them, with `{pid}` (the first)
/// and `{pids}` (all, with commas) in place. None if a quote has no end or there
/// is no word.
pub fn words(command: &str, pids: &[u32]) -> Option<Vec<String>> {
    let all: Vec<String> = pids.iter().map(u32::to_string).collect();
    let first = all.first().cloned().unwrap_or_default();
    let words = shlex::split(command)?;
    let filled = words.iter().map(|word| {
        word.replace("{pids}", &all.join(","))
            .replace("{pid}", &first)
    });
    Some(filled.collect()).filter(|words: &Vec<String>| !words.is_empty())
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn a_command_is_split_as_a_shell_would() {
        let split = |text| words(text, &[7, 12]);
        assert_eq!(
            split("perf record -g -p {pids} -o 'my data'").unwrap(),
            ["perf", "record", "-g", "-p", "7,12", "-o", "my data"]
        );
        assert_eq!(split("strace -p {pid}").unwrap(), ["strace", "-p", "7"]);
        assert_eq!(split("sh -c 'x"), None);
        assert_eq!(split("  "), None);
    }
}
