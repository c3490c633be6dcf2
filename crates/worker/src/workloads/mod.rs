//! One file for each workload: the loop that its workers run. What they record
//! stands in `recording`.

pub(crate) mod connect;
pub(crate) mod contend;
pub(crate) mod counted;
pub(crate) mod locking;
pub(crate) mod recover;
pub(crate) mod renewals;
pub(crate) mod requests;
