//! The machinery around the workers: the keeper, the schedule, the collection into records.
//!
//! How one sample travels: a worker (`jostle-worker`) stamps and folds into its own shared
//! page; the keeper ([`keeper`]) merges the pages of a run into data ([`order`]); the parent
//! ([`experiment`]) makes a record of it (`run`) and asks the checks of `jostle-stats` for
//! the verdict. From the record on, everything is a pure function of the result file.
//!
//! Not here: what a worker does and records (`jostle-worker`), what a lock is
//! (`jostle-targets`), how results look (`jostle-report`), options (`jostle`).

pub mod across;
#[cfg(test)]
mod arrows;
mod budgets;
pub mod environment;
pub mod experiment;
pub mod hosts;
pub mod keeper;
pub mod preflight;
pub mod proven;
mod requested;
pub mod resolve;
mod run;
mod schedule;
mod spread;
pub mod takes;
mod trip;
pub mod world;

pub use jostle_worker::order;
pub use jostle_worker::page::PAGE_BYTES;
