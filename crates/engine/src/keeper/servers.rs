//! The servers that targets bring along: the keeper launches them as this very
//! program under a hidden verb, or by a recipe of the target (`programs`), and ends
//! them with the run.
//!
//! Targets know a server's name and protocol; the program knows its code. So
//! that a client of a lock daemon need not contain the daemon.

use super::programs::{Site, Started};
use super::serve::Desk;
use jostle_sys::ledger::Ledger;
use jostle_sys::{cpu, process};
use jostle_targets::program::{Launched, Recipe};
use jostle_targets::{Launcher, SetupError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The hidden verb; what follows it is the server's name.
pub const VERB: &str = "serve";

/// What follows the verb where the program answers lines on its standard streams.
pub const ANSWERING_PROGRAM: &str = "echo+pipe";

/// How long a server may take to say where it listens, and to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a server that was asked to end may take before it is killed.
const QUIT_PATIENCE: Duration = Duration::from_secs(3);

/// What has been launched for one run.
#[derive(Debug)]
pub struct Servers<'a> {
    desk: &'a Desk,
    ledger: &'a Ledger,
    /// Their CPUs; empty: wherever they like.
    cpus: &'a [usize],
    running: RefCell<Vec<Running>>,
}

#[derive(Debug)]
struct Running {
    pid: u32,
    stop: Stop,
}

/// How it is ended.
#[derive(Debug)]
enum Stop {
    /// By closing its standard input.
    Close { _input: OwnedFd },
    /// By SIGQUIT, where it has something to clear away, and by SIGKILL.
    Kill { quits: bool },
}

impl<'a> Servers<'a> {
    /// None yet.
    pub fn new(desk: &'a Desk, ledger: &'a Ledger, cpus: &'a [usize]) -> Servers<'a> {
        Servers {
            desk,
            ledger,
            cpus,
            running: RefCell::new(Vec::new()),
        }
    }

    fn start(&self, server: &str) -> Result<String, String> {
        let say = |error: rustix::io::Errno| error.to_string();
        let (input, stop) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(say)?;
        let (address, output) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(say)?;
        let keeper = rustix::process::getpid();
        let mut ends = Some((input, output));
        let pid = self.desk.forker.fork(|| {
            let Some((input, output)) = ends.take() else {
                return 1;
            };
            if process::die_with(keeper).is_err() {
                return 1;
            }
            let _ = process::leave_group();
            if !self.cpus.is_empty() && cpu::pin(self.cpus).is_err() {
                return 1;
            }
            // Only returns if it failed.
            let error = Command::new("/proc/self/exe")
                .args([VERB, server])
                .stdin(Stdio::from(input))
                .stdout(Stdio::from(output))
                .exec();
            error.raw_os_error().unwrap_or(1)
        });
        let pid = pid
            .map_err(|error| error.to_string())?
            .as_raw_nonzero()
            .get() as u32;
        // The child's ends: with ours open, its end would go unseen.
        drop(ends);
        let stop = Stop::Close { _input: stop };
        self.running.borrow_mut().push(Running { pid, stop });
        first_line(address)
    }
}

/// The line in which a server says where it listens.
fn first_line(output: OwnedFd) -> Result<String, String> {
    let deadline = Instant::now() + PATIENCE;
    let mut output = File::from(output);
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(&output, PollFlags::IN)];
        if poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready == 0) {
            return Err(format!("it said nothing within {} s", PATIENCE.as_secs()));
        }
        let mut bytes = [0; 128];
        match output.read(&mut bytes) {
            Ok(0) => return Err("it ended at once".to_owned()),
            Ok(count) => line.extend_from_slice(&bytes[..count]),
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(String::from_utf8_lossy(&line).trim().to_owned())
}

impl Launcher for Servers<'_> {
    fn launch(&self, server: &str) -> Result<String, SetupError> {
        self.start(server)
            .map_err(|error| SetupError(format!("cannot launch the server `{server}`: {error}")))
    }

    fn follow(&self, recipe: &dyn Recipe) -> Result<Launched, SetupError> {
        let site = Site {
            desk: self.desk,
            ledger: self.ledger,
            cpus: self.cpus,
        };
        let note = |Started { pid, quits }| {
            let stop = Stop::Kill { quits };
            self.running.borrow_mut().push(Running { pid, stop });
        };
        site.follow(recipe, note)
    }

    fn answering_program(&self) -> Vec<String> {
        ["/proc/self/exe", VERB, ANSWERING_PROGRAM]
            .map(str::to_owned)
            .to_vec()
    }
}

impl Drop for Servers<'_> {
    fn drop(&mut self) {
        for Running { pid, stop } in self.running.take() {
            let patience = match stop {
                Stop::Close { _input } => PATIENCE,
                Stop::Kill { quits: false } => Duration::ZERO,
                Stop::Kill { quits: true } => {
                    process::quit(pid);
                    QUIT_PATIENCE
                }
            };
            let start = Instant::now();
            while !process::is_gone(pid) {
                if start.elapsed() >= patience {
                    process::kill(pid);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
