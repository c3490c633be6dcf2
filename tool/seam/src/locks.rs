//! Any lock as an object, for whoever needs no loop of its own for it: the keeper, workers
//! whose calls take long compared with an indirect jump, and tests.

use crate::remote::Client;
use crate::signs::{NoSigns, Signs, Told};
use crate::{CallError, Facts, Lock, ServerFigures, SetupError, Target};
use std::fmt::Debug;

macro_rules! methods_of_target {
    ($($name:ident($($given:ident: $of:ty)?) -> $out:ty;)+) => {
        /// The state that all workers of a lock share, as an object. Its methods are those of
        /// [`Target`].
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

            $(#[doc = concat!("As [`Target::", stringify!($name), "`].\n\n# Errors\nAs there.")]
            fn $name(&self $(, $given: $of)?) -> $out;)+
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

            $(fn $name(&self $(, $given: $of)?) -> $out {
                Target::$name(self $(, $given)?)
            })+
        }
    };
}

methods_of_target! {
    remove_leftovers() -> Result<(), SetupError>;
    finish() -> Result<(), SetupError>;
    strangers() -> Result<Vec<String>, NoSigns>;
    signs() -> Told;
    owners() -> Option<Signs>;
    holders(connection: &mut Option<Client>) -> Told;
    truth() -> Facts;
    server() -> Result<Option<ServerFigures>, SetupError>;
    facts() -> Facts;
}
