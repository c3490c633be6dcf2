//! The instrument of `jostle recover`: one process owns a lock, others wait for it, and a fault
//! strikes the owner, its connection or the service.
//!
//! The keeper causes the fault ([`recovered`]) to a process or to a [`Service`]. The owner and the waiters (`process`) write what
//! they see to a board of shared memory (`board`). What the plan asks and what comes of it are
//! `RecoverOrder` and `RecoverData` of `jostle-worker`; all figures are made of the history
//! (`jostle_stats::recover`).

mod board;
mod cluster;
mod delays;
mod fault;
mod keepalive;
mod process;
mod service;

pub use cluster::{Blow, Member, why_no_member};
pub use fault::recovered;
pub use service::Service;
