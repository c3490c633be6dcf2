//! One file for each workload: the loop that its workers run.

pub mod contend;
pub mod counted;
