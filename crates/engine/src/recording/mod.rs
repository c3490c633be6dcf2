//! What workers record of their operations in their pages, whatever carries them:
//! [`recorder`] that of `contend`, [`tally`] that of `stream` and `hold`.

pub mod recorder;
pub mod tally;

use crate::grants::Logs;
use crate::order::RunOrder;
use crate::page::Shared;
use crate::witness::Witness;
use jostle_sys::clock::Clock;

/// What the notes of all workers of a run are taken with.
#[derive(Clone, Copy)]
pub struct Common<'a> {
    /// The run.
    pub order: &'a RunOrder,
    /// The scale of the stamps.
    pub clock: Clock,
    /// The run's memory.
    pub shared: &'a Shared,
    /// Who watches the workers.
    pub witness: &'a Witness,
    /// Where they log their grants.
    pub logs: &'a Logs,
}
