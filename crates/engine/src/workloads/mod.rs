//! One file for each workload: the loop that its workers run. What they record,
//! whatever carries them, is `recorder`'s and `tally`'s.

pub mod connect;
pub mod contend;
pub mod counted;
pub mod recorder;
pub mod requests;
pub mod tally;
