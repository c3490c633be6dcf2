//! `jostled`, the lock daemon: locks by name for everybody who can reach it,
//! over the wire protocol of Redis.
//!
//! [`table`] decides and is pure. Not here: anything of the benchmark.

pub mod table;
