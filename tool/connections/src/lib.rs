//! The instrument of `jostle connect`: connections grow to each listed number and are closed
//! again, which is one sweep.
//!
//! The plan becomes the order of a sweep ([`sweep_order`]) after its limits were looked up
//! ([`limits`]); the keeper does it ([`sweep()`]); the parent makes records of what was reached
//! ([`record`]). What clients and servers do is in `jostle-worker` (`workloads::connect`),
//! with all that is timed.

mod crew;
mod figures;
pub mod limits;
mod lost;
mod order;
mod processes;
pub mod record;
mod sweep;
mod watch;

pub use order::sweep_order;
pub use sweep::sweep;
