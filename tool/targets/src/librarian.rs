//! The process that loads a user's library for the parent and the keeper, which must not
//! load it. For the parent it checks that the library can be used; for the keeper it
//! prepares and finishes what the workers share. A library that crashes, hangs or starts
//! threads does so in this process.
//!
//! It reports a line before each call (`in jostle_prepare`) and one with the result
//! (`ok 64`, `no TEXT`), so that the message about a crash or a hang names the call.

use crate::SetupError;
use jostle_sys::library::{ABI, Library};
use jostle_sys::process::{self, Forker};
use jostle_sys::waited::{self, LOOK, Waited};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long one call into the library may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a process that was killed may take to be gone.
const DEATH_PATIENCE: Duration = Duration::from_secs(2);

/// The handle of the process that started it. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Librarian {
    pid: u32,
    stream: BufReader<UnixStream>,
    /// The call that it is making.
    call: String,
    /// Its exit status has been taken.
    reaped: bool,
}

/// The process's own end, by which it reports.
#[derive(Debug)]
pub(crate) struct Reporter {
    stream: UnixStream,
}

impl Reporter {
    /// Reports that a call begins.
    pub(crate) fn begin(&mut self, call: &str) {
        // It fails if the other end is closed; then this process is about to be killed.
        let _ = writeln!(self.stream, "in {call}");
    }

    /// Reports the result.
    pub(crate) fn end(&mut self, outcome: &Result<u64, String>) {
        let line = match outcome {
            Ok(number) => format!("ok {number}\n"),
            Err(text) => format!("no {}\n", text.replace('\n', " ")),
        };
        let _ = self.stream.write_all(line.as_bytes());
    }

    /// Waits for [`Librarian::go_on`]. False if the other end was closed.
    pub(crate) fn wait(&mut self) -> bool {
        let mut stream = BufReader::new(&self.stream);
        let mut line = String::new();
        stream.read_line(&mut line).is_ok_and(|bytes| bytes > 0)
    }

    /// Loads the library and checks the version of its header.
    ///
    /// # Errors
    /// In words for the user.
    pub(crate) fn load(&mut self, path: &Path) -> Result<Library, String> {
        self.begin("loading it");
        let library = Library::load(path).map_err(|error| error.to_string())?;
        self.begin("jostle_abi");
        checked(library)
    }
}

/// The library, if it is compiled with the header of this build.
pub(crate) fn checked(library: Library) -> Result<Library, String> {
    match library.abi() {
        ABI => Ok(library),
        other => Err(format!(
            "its jostle_abi() is {other}, and this jostle supports {ABI}; compile it with the \
             jostle_lock.h of this jostle"
        )),
    }
}

impl Librarian {
    /// Forks it; `body` is its life.
    ///
    /// # Errors
    /// No processes, no sockets, or threads in this process.
    pub(crate) fn start(body: impl FnOnce(Reporter)) -> Result<Librarian, SetupError> {
        let say = |error: std::io::Error| {
            SetupError(format!(
                "cannot fork the process that loads it: {error}; check the limit on processes \
                 (`jostle doctor`)"
            ))
        };
        let (ours, theirs) = UnixStream::pair().map_err(say)?;
        ours.set_read_timeout(Some(LOOK / 2)).map_err(say)?;
        let parent = rustix::process::getpid();
        let mut ends = Some((ours, theirs));
        let pid = Forker::new()
            .and_then(|forker| {
                forker.fork(|| {
                    let Some((ours, theirs)) = ends.take() else {
                        return 1;
                    };
                    drop(ours);
                    process::set_name("jostle-lib");
                    if process::die_with(parent).is_err() || process::print_to_stderr().is_err() {
                        return 1;
                    }
                    let _ = process::leave_group();
                    body(Reporter { stream: theirs });
                    0
                })
            })
            .map_err(say)?;
        let (ours, _) = ends.ok_or_else(|| SetupError("no socket is left".to_owned()))?;
        Ok(Librarian {
            pid: pid.as_raw_nonzero().get() as u32,
            stream: BufReader::new(ours),
            call: "its start".to_owned(),
            reaped: false,
        })
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// For the user: the error that the process reported, or the call in which it died
    /// or did not return in time.
    pub(crate) fn result(&mut self) -> Result<u64, SetupError> {
        let (mut line, mut waited) = (String::new(), Waited::begin());
        loop {
            match self.stream.read_line(&mut line) {
                Ok(0) => return Err(SetupError(self.died())),
                Ok(_) => waited = Waited::begin(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if waited.so_far() < PATIENCE {
                        continue;
                    }
                    return Err(SetupError(format!(
                        "{} did not return within {} s; its process was killed",
                        self.call,
                        PATIENCE.as_secs()
                    )));
                }
                Err(error) => return Err(SetupError(format!("{}: {error}", self.call))),
            }
            match std::mem::take(&mut line).trim_end().split_once(' ') {
                Some(("in", call)) => self.call = call.to_owned(),
                Some(("ok", number)) => return Ok(number.parse().unwrap_or(0)),
                Some((_, text)) => return Err(SetupError(text.to_owned())),
                None => {
                    return Err(SetupError(format!(
                        "an unreadable report about {}",
                        self.call
                    )));
                }
            }
        }
    }

    /// Lets the process go on from [`Reporter::wait`].
    pub(crate) fn go_on(&mut self) {
        self.call = "its wait for the end of the run".to_owned();
        // If the process is gone, `result` reports it.
        let _ = self.stream.get_mut().write_all(b"\n");
    }

    fn died(&mut self) -> String {
        let ended = self.reap();
        let how = match ended.map(|ended| (ended.signal, ended.code)) {
            Some((Some(signal), _)) => format!("killed by {}", process::signal_name(signal)),
            Some((None, Some(code))) => format!("exit code {code}"),
            // The keeper reaps every child while a run is going on.
            _ => "it is gone".to_owned(),
        };
        format!(
            "the process that loads it (pid {}) died in {}: {how}",
            self.pid, self.call
        )
    }

    fn reap(&mut self) -> Option<process::Ended> {
        self.reaped = true;
        let ended = || match process::reap_one(self.pid) {
            None if is_there(self.pid) => None,
            ended => Some(ended),
        };
        waited::within(DEATH_PATIENCE, Duration::from_millis(1), ended).flatten()
    }
}

/// Whether a process of this number exists, a zombie too.
fn is_there(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

impl Drop for Librarian {
    fn drop(&mut self) {
        if !self.reaped {
            process::kill(self.pid);
            let _ = self.reap();
        }
    }
}
