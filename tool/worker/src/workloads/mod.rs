//! One file for each workload: the loop that its workers run. What they record
//! stands in `recording`.

pub mod connect;
pub(crate) mod contend;
pub mod counted;
pub(crate) mod locking;
pub(crate) mod renewals;
pub mod requests;
mod staying;
