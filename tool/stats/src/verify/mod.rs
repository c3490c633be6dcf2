//! `verify`: does a lock keep its promise? A pure function from the history of a run to its
//! findings.

pub mod check;
mod ends;
mod excerpt;
mod free;
pub mod history;
mod holds;
mod overlaps;
#[cfg(test)]
mod tests;

pub use check::{Findings, found};
