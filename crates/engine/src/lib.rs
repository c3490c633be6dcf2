//! The machinery that measures: the keeper and its workers, the workloads, the
//! witness of exclusion, and the collection into records.
//!
//! How one sample travels: a worker (`worker`, `workloads`) stamps and folds
//! into its own shared page (`page`); the keeper ([`keeper`]) merges the pages
//! of a run into data ([`order`]); the parent ([`experiment`]) makes a record
//! of it (`point`) and asks the checks of `jostle-stats` for the verdict.
//! From the record on, everything is a pure function of the result file.
//!
//! Not here: what a lock is (`jostle-targets`), how results look
//! (`jostle-report`), options (`jostle`).

#[cfg(test)]
mod arrows;
mod budgets;
mod connect;
mod crew;
mod during;
pub mod environment;
pub mod experiment;
pub mod grants;
pub mod hosts;
pub mod judge;
pub mod keeper;
mod kept;
mod merged;
pub mod order;
mod page;
mod point;
pub mod preflight;
pub mod proven;
mod recording;
mod requested;
pub mod resolve;
mod schedule;
mod spread;
pub mod takes;
mod tasks;
mod witness;
mod work;
mod worker;
mod workloads;
pub mod world;

pub use page::PAGE_BYTES;
