//! The keeper's means for every order: its parent, clocks, the right to fork.

use jostle_sys::clock::Clock;
use jostle_sys::ledger::{self, Ledger};
use jostle_sys::limits::cgroup;
use jostle_sys::process::{self, Ended, Forker};
use jostle_targets::Spec;
use jostle_worker::order::{Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Serialize, de::DeserializeOwned};
use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often waits look up: for the parent, for workers that died.
pub const LOOK_UP: Duration = Duration::from_millis(20);

/// How long all processes of a run or sweep together may take to become ready.
pub const RAMP_PATIENCE_NS: u64 = 120_000_000_000;

/// A run that failed; the message is for the user.
pub struct Aborted(pub String);

/// The outcome of a part of a run.
pub type Result<T, E = Aborted> = std::result::Result<T, E>;

/// The keeper's means for every run.
#[derive(Debug)]
pub struct Context {
    /// To the parent.
    pub stream: UnixStream,
    /// For stamps.
    pub clock: Clock,
    /// The right to fork.
    pub forker: Forker,
    /// Where the CPU quotas that bind us, if any, are accounted.
    quotas: Vec<PathBuf>,
    /// Children of this run that have ended and carried no workers.
    ended: RefCell<Vec<Ended>>,
}

impl Context {
    /// In the keeper's own process, before anything is forked.
    ///
    /// # Errors
    /// In words for the user: the right to fork, or to adopt what workers leave.
    pub fn set_up(stream: &UnixStream, clock: Clock) -> Result<Context, String> {
        // Where we may not, the ledger knows what to remove.
        let _ = process::private_ipc();
        process::adopt_orphans().map_err(|e| format!("cannot adopt orphans: {e}"))?;
        let forker = Forker::new().map_err(|e| e.to_string())?;
        ledger::mark_started(&forker).map_err(|e| format!("cannot mark what is started: {e}"))?;
        Ok(Context {
            stream: stream
                .try_clone()
                .map_err(|e| format!("cannot share a socket: {e}"))?,
            clock,
            forker,
            quotas: cgroup::Cgroup::read(Path::new("/")).cpu_stats,
            ended: RefCell::default(),
        })
    }

    /// A new run begins: the system may give the numbers of what has ended to others.
    pub fn forget_ended(&self) {
        self.ended.take();
    }

    /// Keeps how children that carried no workers have ended, for [`Context::how_ended`].
    pub fn note_ended(&self, ended: &mut Vec<Ended>) {
        self.ended.borrow_mut().append(ended);
    }

    /// How this child has ended in the run, if it has.
    pub fn how_ended(&self, pid: u32) -> Option<Ended> {
        let noted = self.ended.borrow().iter().find(|e| e.pid == pid).copied();
        noted.or_else(|| process::reap_one(pid))
    }

    /// Periods so far in which a CPU quota stopped us; None without a quota.
    pub fn throttled(&self) -> Option<u64> {
        (!self.quotas.is_empty()).then(|| cgroup::throttled(&self.quotas).throttled_periods)
    }

    /// Tells the parent how far a run is.
    ///
    /// # Errors
    /// The parent has gone.
    pub fn tell(&self, reply: &Reply) -> Result<()> {
        let gone = |error: std::io::Error| Aborted(error.to_string());
        send(&mut self.stream.try_clone().map_err(gone)?, reply).map_err(gone)
    }

    /// The parent's next request, if one comes within `patience`.
    ///
    /// # Errors
    /// The parent has gone.
    pub fn hear(&self, patience: Duration) -> Result<Option<Request>> {
        let gone = |error: std::io::Error| Aborted(error.to_string());
        match readable(&self.stream, patience).map_err(gone)? {
            true => receive(&mut self.stream.try_clone().map_err(gone)?)
                .map(Some)
                .map_err(gone),
            false => Ok(None),
        }
    }

    /// Whether the parent has asked to stop, or has gone.
    pub fn stopped(&self, patience: Duration) -> bool {
        // While workers work the parent sends nothing but an abort.
        readable(&self.stream, patience).unwrap_or(true)
    }
}

/// Opens the target and a ledger for what the run makes, as every order needs first.
///
/// # Errors
/// The reply that it failed.
pub fn opened(target: &str) -> Result<(Spec, Ledger), Reply> {
    let spec = Spec::parse(target).map_err(Reply::Failed)?;
    let ledger = Ledger::create().map_err(|error| {
        Reply::Failed(format!(
            "cannot make a directory for this run's files: {error}; make /dev/shm or $TMPDIR writable"
        ))
    })?;
    Ok((spec, ledger))
}

/// The reply where the ledger could not remove all that a run made.
pub fn not_removed(left: &[String]) -> Reply {
    Reply::Failed(format!(
        "could not remove what the run made: {}",
        left.join("; ")
    ))
}

/// In words.
pub fn how_it_ended(ended: &Ended) -> String {
    match (ended.signal, ended.code) {
        (Some(signal), _) => format!("killed by {}", process::signal_name(signal)),
        (None, Some(101)) => "it panicked".to_owned(),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => "for reasons unknown".to_owned(),
    }
}

/// Whether there is something to read, or an end, within `patience`.
///
/// # Errors
/// That of poll(2).
pub fn readable(stream: &UnixStream, patience: Duration) -> io::Result<bool> {
    let timeout = Timespec {
        tv_sec: patience.as_secs() as i64,
        tv_nsec: patience.subsec_nanos().into(),
    };
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    match poll(&mut fds, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Messages are JSON behind their length in four bytes.
///
/// # Errors
/// The other end has gone.
pub fn send(stream: &mut UnixStream, message: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_le_bytes())?;
    stream.write_all(&text)
}

/// The next message.
///
/// # Errors
/// The other end has gone, or what it sent is no such message (`InvalidData`).
pub fn receive<M: DeserializeOwned>(stream: &mut UnixStream) -> io::Result<M> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut text = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
