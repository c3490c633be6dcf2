//! One file for each workload: the loop that its workers run. What they record
//! stands in `recording`.

pub mod connect;
pub mod contend;
pub mod counted;
pub mod locking;
pub mod recover;
pub mod renewals;
pub mod requests;
