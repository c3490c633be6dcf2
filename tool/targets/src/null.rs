//! `null`: a lock that costs nothing and excludes nobody. What a measurement
//! of it shows is the tool's own cost and its ceiling.

use crate::table::{Entry, LockCapabilities, capabilities};
use crate::{CallError, Lock, Mode, Outcome, Setup, SetupError, Target, Wait};

/// Nothing.
#[derive(Debug)]
pub struct Null;

/// One worker's nothing.
#[derive(Debug)]
pub struct NullLock;

impl Target for Null {
    type Lock = NullLock;

    const ENTRY: Entry = Entry {
        name: "null",
        summary: "grants at once and excludes nobody: the tool's own cost and ceiling",
        details: "No call at all. What is measured on it, the tool adds to every other target.",
        lock: capabilities!(LockCapabilities::GRANTS_ALL; timeout),
        ..Entry::PLAIN
    };

    fn prepare(_setup: &Setup<'_>) -> Result<Null, SetupError> {
        Ok(Null)
    }

    fn join(&self, _worker: usize) -> Result<NullLock, SetupError> {
        Ok(NullLock)
    }
}

impl Lock for NullLock {
    #[inline]
    fn acquire(&mut self, _key: usize, _mode: Mode, _wait: Wait) -> Result<Outcome, CallError> {
        Ok(Outcome::Granted)
    }

    #[inline]
    fn release(&mut self, _key: usize, _mode: Mode) -> Result<(), CallError> {
        Ok(())
    }
}
