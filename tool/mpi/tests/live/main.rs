//! `jostle-mpi` under a real launcher.

#![allow(clippy::unwrap_used, reason = "every function here is of a test")]

mod hosts;
mod ranks;
