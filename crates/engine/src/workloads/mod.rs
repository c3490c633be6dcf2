//! One file for each workload: the loop that its workers run.

pub mod connect;
pub mod contend;
pub mod counted;
