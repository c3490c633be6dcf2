//! Any lock as an object, for whoever needs no loop of its own for it: the keeper, workers
//! whose calls take long compared with an indirect jump, and tests.

use crate::program::Program;
use crate::signs::Signs;
use crate::{CallError, Dialled, Entry, Lock, ServerFigures, Setup, SetupError, TABLE, Target};
use std::collections::BTreeMap;
use std::path::Path;

/// What all workers of a lock share, as an object. Its methods are those of [`Target`].
pub trait Locks: Sync {
    /// Stack of a worker that is a thread, in bytes.
    fn thread_stack(&self) -> usize;

    /// As [`Target::join`].
    ///
    /// # Errors
    /// In words for the user, with the remedy.
    fn join(&self, worker: usize) -> Result<Box<dyn Lock>, SetupError>;

    /// As [`Target::session`].
    ///
    /// # Errors
    /// The call that failed.
    fn session(&self, worker: usize, key: usize) -> Result<Box<dyn Lock>, CallError>;

    /// As [`Target::dial`].
    ///
    /// # Errors
    /// In words for the user, with the remedy.
    fn dial(&self, worker: usize) -> Result<Option<Dialled>, SetupError>;

    /// As [`Target::remove_leftovers`].
    ///
    /// # Errors
    /// In words for the user.
    fn remove_leftovers(&self) -> Result<(), SetupError>;

    /// As [`Target::finish`].
    ///
    /// # Errors
    /// In words for the user.
    fn finish(&self) -> Result<(), SetupError>;

    /// As [`Target::strangers`].
    fn strangers(&self) -> Vec<String>;

    /// As [`Target::signs`].
    fn signs(&self) -> Signs;

    /// As [`Target::owners`].
    fn owners(&self) -> Option<Vec<(u32, String)>>;

    /// As [`Target::truth`].
    fn truth(&self) -> BTreeMap<String, f64>;

    /// As [`Target::server`].
    ///
    /// # Errors
    /// In words for the user, where it cannot be asked.
    fn server(&self) -> Result<Option<ServerFigures>, SetupError>;

    /// As [`Target::facts`].
    fn facts(&self) -> BTreeMap<String, f64>;
}

impl<T: Target> Locks for T {
    fn thread_stack(&self) -> usize {
        T::THREAD_STACK
    }

    fn join(&self, worker: usize) -> Result<Box<dyn Lock>, SetupError> {
        Ok(Box::new(Target::join(self, worker)?))
    }

    fn session(&self, worker: usize, key: usize) -> Result<Box<dyn Lock>, CallError> {
        Ok(Box::new(Target::session(self, worker, key)?))
    }

    fn dial(&self, worker: usize) -> Result<Option<Dialled>, SetupError> {
        Target::dial(self, worker)
    }

    fn remove_leftovers(&self) -> Result<(), SetupError> {
        Target::remove_leftovers(self)
    }

    fn finish(&self) -> Result<(), SetupError> {
        Target::finish(self)
    }

    fn strangers(&self) -> Vec<String> {
        Target::strangers(self)
    }

    fn signs(&self) -> Signs {
        Target::signs(self)
    }

    fn owners(&self) -> Option<Vec<(u32, String)>> {
        Target::owners(self)
    }

    fn truth(&self) -> BTreeMap<String, f64> {
        Target::truth(self)
    }

    fn server(&self) -> Result<Option<ServerFigures>, SetupError> {
        Target::server(self)
    }

    fn facts(&self) -> BTreeMap<String, f64> {
        Target::facts(self)
    }
}

/// What can be done with a lock of the table before it is prepared.
pub(crate) struct Line {
    /// As [`Target::prepare`].
    pub(crate) prepare: fn(&Setup<'_>) -> Result<Box<dyn Locks>, SetupError>,
    /// As [`Target::reach`].
    pub(crate) reach: fn(Option<&str>, Option<&Path>) -> Result<(), SetupError>,
    /// As [`Target::launches`].
    pub(crate) launches: fn() -> Option<&'static Program>,
}

impl Line {
    /// The line of a target.
    pub(crate) const fn of<T: Target>() -> Line {
        Line {
            prepare: |setup| Ok(Box::new(T::prepare(setup)?)),
            reach: T::reach,
            launches: T::launches,
        }
    }
}

/// The line of an entry of [`TABLE`]; None for a target that is no lock.
pub(crate) fn line(entry: &Entry) -> Option<&'static Line> {
    let at = TABLE.iter().position(|other| other.name == entry.name)?;
    crate::LINES.get(at)
}

/// Makes what all workers of a lock share, as [`Target::prepare`] does.
///
/// # Errors
/// In words for the user, with the remedy.
pub fn prepare(entry: &Entry, setup: &Setup<'_>) -> Result<Box<dyn Locks>, SetupError> {
    match line(entry) {
        Some(line) => (line.prepare)(setup),
        None => Err(SetupError(format!("{} is no lock", entry.name))),
    }
}

/// The program that has to be installed for a lock to launch its server.
pub fn launches(entry: &Entry) -> Option<&'static Program> {
    line(entry).and_then(|line| (line.launches)())
}
