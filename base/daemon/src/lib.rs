//! What the daemons `jostled` and `procd` share: settings from a file, sizes and
//! addresses in them, sockets that are listened on, the limit of open files, signals,
//! and lines of a log.
//!
//! Only what is the same for both stands here. Their protocols, settings and metrics
//! are their own.

pub mod address;
pub mod file;
pub mod limits;
pub mod log;
pub mod memory;
pub mod signals;
mod size;
pub mod socket;

pub use size::Size;
