//! Any lock as a target of requests: one request is an acquisition and a release. There is no
//! witness of exclusion here; `contend` and `stream` have one.

use crate::caller::{Answer, Caller, Phases, Requests};
use crate::{CallError, Entry, Lock, Locks, Mode, Outcome, Setup, SetupError, Wait};
use jostle_sys::clock;
use jostle_sys::files::Errno;

const ACQUIRE: usize = 0;
const RELEASE: usize = 1;

/// The longest wait, from the worker's start, of an acquisition that no signal can end.
const LAST_RESORT_NS: u64 = 3_600_000_000_000;

/// Prepares the lock of an entry.
///
/// # Errors
/// In words for the user, with the remedy.
pub(crate) fn prepare(entry: &Entry, setup: &Setup<'_>) -> Result<Box<dyn Requests>, SetupError> {
    Ok(Box::new(LockRequests {
        is_remote: entry.is_remote(),
        target: crate::prepare(entry, setup)?,
        keys: setup.keys,
    }))
}

#[derive(Debug)]
struct LockRequests {
    is_remote: bool,
    target: Box<dyn Locks>,
    keys: usize,
}

impl Requests for LockRequests {
    fn phases(&self) -> &'static [&'static str] {
        &["acquire", "release"]
    }

    fn join(&self, worker: usize) -> Result<Box<dyn Caller + '_>, SetupError> {
        Ok(Box::new(LockCaller {
            lock: self.target.join(worker)?,
            key: worker % self.keys.max(1),
            wait: Wait::Block {
                last_resort_ns: clock::monotonic() + LAST_RESORT_NS,
            },
        }))
    }

    fn is_remote(&self) -> bool {
        self.is_remote
    }

    fn locks(&self) -> Option<&dyn Locks> {
        Some(&*self.target)
    }
}

struct LockCaller {
    lock: Box<dyn Lock>,
    key: usize,
    wait: Wait,
}

impl Caller for LockCaller {
    fn call(&mut self, _nth: u64, phases: &mut Phases) -> Result<Answer, CallError> {
        match self.lock.acquire(self.key, Mode::Exclusive, self.wait)? {
            Outcome::Granted | Outcome::GrantedFromDead => {}
            Outcome::Refused => return Err(CallError::new("acquire", Errno::AGAIN)),
            Outcome::Interrupted => return Err(CallError::new("acquire", Errno::INTR)),
        }
        phases.end(ACQUIRE);
        self.lock.release(self.key, Mode::Exclusive)?;
        phases.end(RELEASE);
        Ok(Answer::default())
    }

    fn part(&mut self) -> Result<(), CallError> {
        self.lock.part()
    }
}
