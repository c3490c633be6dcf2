//! The process that loads a user's library for those who must not: the parent, which
//! asks whether it can be used at all, and the keeper, for which it prepares and
//! finishes what the workers share. A library that crashes, hangs or starts threads
//! does so here.
//!
//! It writes a line before each call (`in jostle_prepare`) and one with what came of
//! all (`ok 64`, `no TEXT`), so that a death or a silence is told by the call.

use crate::SetupError;
use jostle_sys::library::{ABI, Library};
use jostle_sys::process::{self, Forker};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long one call into the library may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a process that was killed may take to be gone.
const DEATH_PATIENCE: Duration = Duration::from_secs(2);

/// Its side in the process that asked for it; dropped, it is killed.
#[derive(Debug)]
pub struct Librarian {
    pid: u32,
    stream: BufReader<UnixStream>,
    /// The call that it is in.
    call: String,
    /// Somebody has taken it.
    reaped: bool,
}

/// The other side: what the process says of its course.
#[derive(Debug)]
pub struct Course {
    stream: UnixStream,
}

impl Course {
    /// That a call begins.
    pub fn enters(&mut self, call: &str) {
        // Nobody listens any more: then this process is about to be killed.
        let _ = writeln!(self.stream, "in {call}");
    }

    /// What came of it.
    pub fn tells(&mut self, outcome: &Result<u64, String>) {
        let line = match outcome {
            Ok(number) => format!("ok {number}\n"),
            Err(text) => format!("no {}\n", text.replace('\n', " ")),
        };
        let _ = self.stream.write_all(line.as_bytes());
    }

    /// Waits until the other side is told to [`Librarian::go_on`].
    pub fn rest(&mut self) -> bool {
        let mut stream = BufReader::new(&self.stream);
        let mut line = String::new();
        stream.read_line(&mut line).is_ok_and(|bytes| bytes > 0)
    }

    /// Loads the library and holds its version against ours.
    ///
    /// # Errors
    /// In words for the user.
    pub fn load(&mut self, path: &Path) -> Result<Library, String> {
        self.enters("loading it");
        let library = Library::load(path).map_err(|error| error.to_string())?;
        self.enters("jostle_abi");
        checked(library)
    }
}

/// The library, if it is compiled with the header of this build.
pub fn checked(library: Library) -> Result<Library, String> {
    match library.abi() {
        ABI => Ok(library),
        other => Err(format!(
            "its jostle_abi() is {other}, and this jostle speaks {ABI}; compile it with the \
             jostle_lock.h of this jostle"
        )),
    }
}

impl Librarian {
    /// Forks it; `body` is its life.
    ///
    /// # Errors
    /// No processes, no sockets, or threads in this process.
    pub fn start(body: impl FnOnce(Course)) -> Result<Librarian, SetupError> {
        let say = |error: std::io::Error| {
            SetupError(format!(
                "cannot fork the process that loads it: {error}; check the limit on processes \
                 (`jostle doctor`)"
            ))
        };
        let (ours, theirs) = UnixStream::pair().map_err(say)?;
        ours.set_read_timeout(Some(PATIENCE)).map_err(say)?;
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
                    body(Course { stream: theirs });
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

    /// What came of it, in the end.
    ///
    /// # Errors
    /// In words for the user: what the process said, how it died in which call, or in
    /// which call it stood still.
    pub fn hear(&mut self) -> Result<u64, SetupError> {
        loop {
            let mut line = String::new();
            match self.stream.read_line(&mut line) {
                Ok(0) => return Err(SetupError(self.died())),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(SetupError(format!(
                        "nothing came of {} within {} s; it was killed",
                        self.call,
                        PATIENCE.as_secs()
                    )));
                }
                Err(error) => return Err(SetupError(format!("{}: {error}", self.call))),
            }
            match line.trim_end().split_once(' ') {
                Some(("in", call)) => self.call = call.to_owned(),
                Some(("ok", number)) => return Ok(number.parse().unwrap_or(0)),
                Some((_, text)) => return Err(SetupError(text.to_owned())),
                None => return Err(SetupError(format!("{} was not understood", self.call))),
            }
        }
    }

    /// Lets the process go on from [`Course::rest`].
    pub fn go_on(&mut self) {
        self.call = "its wait for the end of the run".to_owned();
        // If it is gone, `hear` tells.
        let _ = self.stream.get_mut().write_all(b"\n");
    }

    fn died(&mut self) -> String {
        let ended = self.reap();
        let how = match ended.map(|ended| (ended.signal, ended.code)) {
            Some((Some(signal), _)) => format!("killed by {}", process::signal_name(signal)),
            Some((None, Some(code))) => format!("exit code {code}"),
            // Somebody else has taken it, as the keeper does while workers work.
            _ => "it is gone".to_owned(),
        };
        format!(
            "the process that loads it (pid {}) died in {}: {how}",
            self.pid, self.call
        )
    }

    fn reap(&mut self) -> Option<process::Ended> {
        self.reaped = true;
        let start = Instant::now();
        while start.elapsed() < DEATH_PATIENCE {
            if let Some(ended) = process::reap_one(self.pid) {
                return Some(ended);
            }
            if !is_there(self.pid) {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
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
