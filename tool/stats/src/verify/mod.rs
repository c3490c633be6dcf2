//! `verify`: does a lock keep its promise? A pure function from the history of a run to its
//! findings.

pub mod history;
