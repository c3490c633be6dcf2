//! The keeper's view of a target, whether workers lock it or send it requests: its set-up, a
//! worker's life with it, and the facts about it after the run. Forking, the common start, clocks,
//! window and clean-up are the same for all.

use crate::crew::Crew;
use crate::order::{Merged, RunData, RunOrder};
use jostle_targets::{Facts, Locks, ServerFigures, SetupError};
use std::sync::atomic::AtomicU64;

/// The measured work, in the hands of the keeper.
pub trait Work: Sync {
    /// Stack of a worker that is a thread.
    fn thread_stack(&self) -> usize;

    /// Whether one owner at a time is let in, so that overlaps are faults.
    fn excludes(&self) -> bool;

    /// Whether a server answers, so that a worker may be busy or waiting.
    fn is_remote(&self) -> bool;

    /// The locks that it takes; None of requests that are none.
    fn locks(&self) -> Option<&dyn Locks>;

    /// The locks whose owners and whose service are asked where a run went wrong. None of
    /// requests: their answers tell.
    fn accounted(&self) -> Option<&dyn Locks> {
        None
    }

    /// As [`jostle_targets::Target::server`].
    ///
    /// # Errors
    /// In words for the user.
    fn counts(&self) -> Result<Option<ServerFigures>, SetupError> {
        self.locks().map_or(Ok(None), |locks| locks.server())
    }

    /// As [`jostle_targets::Target::remove_leftovers`].
    ///
    /// # Errors
    /// In words for the user.
    fn clear(&self) -> Result<(), SetupError> {
        self.locks()
            .map_or(Ok(()), |locks| locks.remove_leftovers())
    }

    /// As [`jostle_targets::Target::finish`].
    ///
    /// # Errors
    /// In words for the user.
    fn finish(&self) -> Result<(), SetupError> {
        self.locks().map_or(Ok(()), |locks| locks.finish())
    }

    /// The specimen's knowledge, and facts about the set-up.
    fn known(&self) -> (Facts, Facts) {
        let known = |locks: &dyn Locks| (locks.truth(), locks.facts());
        self.locks().map(known).unwrap_or_default()
    }

    /// The life of one worker, in its process or thread. True if all went well.
    fn live(&self, crew: &Crew<'_>, worker: usize) -> bool;

    /// The process that carries all workers as tasks. Returns its exit code.
    fn live_as_tasks(&self, crew: &Crew<'_>) -> i32;

    /// The process that measures what the tool itself costs, four ways in each of so many
    /// blocks: nanoseconds a pair, as the bits of an f64. Returns its exit code.
    fn live_as_cost(&self, _crew: &Crew<'_>, _blocks: usize, _results: &[AtomicU64]) -> i32 {
        // Refused before anything starts: it is measured of `contend` alone.
        1
    }

    /// Whether a canary runs beside the workers.
    fn has_canary(&self) -> bool {
        false
    }

    /// The canary's process. Returns its exit code.
    fn live_as_canary(&self, _crew: &Crew<'_>) -> i32 {
        0
    }

    /// The latency that workers note elsewhere than in their pages: its name in a result, and all
    /// times so far. For whoever watches.
    fn latency(&self) -> Option<(&'static str, Merged)> {
        None
    }

    /// Adds what workers left elsewhere than in their pages.
    fn add_to(&self, _order: &RunOrder, _data: &mut RunData) {}
}
