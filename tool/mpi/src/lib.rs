//! jostle on many hosts that an MPI launcher (`mpirun`, `srun`) starts: the link between
//! its ranks. The program `jostle-mpi` does what jostle does, and joins such a job.
//!
//! A program of its own, so that jostle needs no MPI, neither to be compiled nor to run,
//! and one build makes both. Not here: what the ranks say to each other
//! (`jostle_engine::world`).

#![cfg(feature = "mpi")]

mod endpoint;

use endpoint::Endpoint;
use jostle_engine::world::Link;

/// Joins the job: waits until all its ranks have. None if the library was started before.
/// Call it after the last fork of this process.
pub fn join() -> Option<Box<dyn Link>> {
    Endpoint::join().map(|endpoint| Box::new(endpoint) as Box<dyn Link>)
}
