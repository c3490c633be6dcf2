//! `exec`: a process for each request. The program is started by posix_spawn(3),
//! with no shell in between, and its exit code is the answer.

use crate::caller::{Answer, Caller, Phases, RequestSetup, RequestTarget, Requests};
use crate::table::{Entry, Family, LockCapabilities, capabilities};
use crate::{CallError, SetupError, command};
use jostle_sys::files::Errno;
use jostle_sys::process::{Ended, signal_name};
use jostle_sys::signal;
use jostle_sys::spawn::{Child, Program};
use jostle_sys::waited::{Patience, Waited};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

const NAME: &str = "exec";

/// Its line in the table.
pub(crate) static TARGET: RequestTarget = RequestTarget {
    entry: Entry {
        name: NAME,
        argument: Some("COMMAND"),
        check_argument: |argument| command::words(NAME, argument).map(drop),
        reach: |command, _| command::found(NAME, Some(command)).map(drop),
        family: Family::Server,
        summary: "a process for each call: COMMAND is started, and its exit code counted",
        details: "COMMAND is split into words as a shell would, and started without one; `{n}` and \
                  `{worker}` in its words are the number of the call and of the worker. Standard \
                  input is empty, output goes nowhere or to `--command-output`. A call is three \
                  phases: `spawn` (posix_spawn(3), until the program runs), `run` (until it has \
                  ended) and `reap` (wait4(2)). An exit code other than 0 (`--expect`) and a \
                  signal are errors; a command that takes longer than `--call-timeout` is killed \
                  with its process group and is one too. Whatever it has started and left behind \
                  is ended with the run.",
        lock: capabilities!(LockCapabilities::NONE; starts: 1),
        ..Entry::PLAIN
    },
    prepare: |setup| Exec::prepare(setup).map(|exec| Box::new(exec) as Box<dyn Requests>),
    null: Some("exec:true"),
    usual_ns: |argument| match argument {
        Some("true") => 350_000,
        _ => 630_000,
    },
    usual_port: None,
};

const SPAWN: usize = 0;
const RUN: usize = 1;
const REAP: usize = 2;

/// Codes from here on are signals; exit codes end below.
const SIGNALS: u32 = 256;

/// The command that all workers start.
#[derive(Debug)]
pub(crate) struct Exec {
    words: Vec<String>,
    input: File,
    output: File,
    timeout: Duration,
}

impl Exec {
    fn prepare(setup: &RequestSetup<'_>) -> Result<Exec, SetupError> {
        Exec::new(command::found(NAME, setup.base.argument)?, setup)
    }

    /// Starts the program of these words.
    ///
    /// # Errors
    /// In words for the user.
    pub(crate) fn new(words: Vec<String>, setup: &RequestSetup<'_>) -> Result<Exec, SetupError> {
        let nowhere = Path::new("/dev/null");
        let output = setup.output.unwrap_or(nowhere);
        let open = |path: &Path, options: &mut std::fs::OpenOptions| {
            let opened = options.open(path);
            opened.map_err(|e| SetupError(format!("cannot open {}: {e}", path.display())))
        };
        Ok(Exec {
            words,
            input: open(nowhere, File::options().read(true))?,
            // Append mode, so that commands that write at the same time do not overwrite each
            // other.
            output: open(output, File::options().append(true).create(true))?,
            timeout: setup.timeout,
        })
    }
}

impl Requests for Exec {
    fn phases(&self) -> &'static [&'static str] {
        &["spawn", "run", "reap"]
    }

    fn join(&self, worker: usize) -> Result<Box<dyn Caller + '_>, SetupError> {
        let program = Program::new(&self.words, self.input.as_fd(), self.output.as_fd());
        Ok(Box::new(ExecCaller {
            program: program.map_err(|error| command::not_found(&self.words[0], &error))?,
            worker: worker as u64,
            timeout: self.timeout,
        }))
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn code_name(&self, code: u32) -> String {
        match code.checked_sub(SIGNALS) {
            None => code.to_string(),
            Some(signal) => signal_name(signal as i32),
        }
    }
}

struct ExecCaller {
    program: Program,
    worker: u64,
    timeout: Duration,
}

impl Caller for ExecCaller {
    fn call(&mut self, nth: u64, phases: &mut Phases) -> Result<Answer, CallError> {
        let child = self.program.start(nth, self.worker);
        let child = child.map_err(|error| CallError::from_system("posix_spawn", &error))?;
        phases.end(SPAWN);
        if let Err(error) = self.await_end(&child) {
            let _ = child.kill();
            return Err(error);
        }
        phases.end(RUN);
        let ended = child
            .reap()
            .map_err(|error| CallError::from_system("wait4", &error))?;
        phases.end(REAP);
        Ok(Answer {
            code: code(&ended),
            child: ended.usage,
        })
    }
}

impl ExecCaller {
    fn await_end(&self, child: &Child) -> Result<(), CallError> {
        let mut waited = Waited::begin();
        loop {
            match child.await_end(Some(Patience::look(self.timeout))) {
                Ok(true) => return Ok(()),
                Ok(false) if signal::interrupted() => {
                    return Err(CallError::new("poll", Errno::INTR));
                }
                Ok(false) => {}
                Err(error) => return Err(CallError::from_system("pidfd_open", &error)),
            }
            if waited.so_far() >= self.timeout {
                let said = "the command did not end within --call-timeout, and was killed";
                return Err(CallError::saying("exec", Errno::TIMEDOUT, said));
            }
        }
    }
}

fn code(ended: &Ended) -> u32 {
    match (ended.code, ended.signal) {
        (Some(code), _) => code as u32,
        (None, signal) => SIGNALS + signal.unwrap_or(0) as u32,
    }
}
