//! Any lock as an object, for whoever needs no loop of its own for it: the keeper, workers
//! whose calls take long compared with an indirect jump, and tests.

use crate::remote::Client;
use crate::signs::{NoSigns, Signs, Told};
use crate::{CallError, Facts, Lock, ServerFigures, SetupError, Target};
use std::fmt::Debug;

/// What all workers of a lock share, as an object. Its methods are those of [`Target`].
pub trait Locks: Debug + Sync {
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
    fn strangers(&self) -> Result<Vec<String>, NoSigns>;

    /// As [`Target::signs`].
    fn signs(&self) -> Told;

    /// As [`Target::owners`].
    fn owners(&self) -> Option<Signs>;

    /// As [`Target::holders`].
    fn holders(&self, connection: &mut Option<Client>) -> Told;

    /// As [`Target::truth`].
    fn truth(&self) -> Facts;

    /// As [`Target::server`].
    ///
    /// # Errors
    /// In words for the user, where it cannot be asked.
    fn server(&self) -> Result<Option<ServerFigures>, SetupError>;

    /// As [`Target::facts`].
    fn facts(&self) -> Facts;
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

    fn remove_leftovers(&self) -> Result<(), SetupError> {
        Target::remove_leftovers(self)
    }

    fn finish(&self) -> Result<(), SetupError> {
        Target::finish(self)
    }

    fn strangers(&self) -> Result<Vec<String>, NoSigns> {
        Target::strangers(self)
    }

    fn signs(&self) -> Told {
        Target::signs(self)
    }

    fn owners(&self) -> Option<Signs> {
        Target::owners(self)
    }

    fn holders(&self, connection: &mut Option<Client>) -> Told {
        Target::holders(self, connection)
    }

    fn truth(&self) -> Facts {
        Target::truth(self)
    }

    fn server(&self) -> Result<Option<ServerFigures>, SetupError> {
        Target::server(self)
    }

    fn facts(&self) -> Facts {
        Target::facts(self)
    }
}
