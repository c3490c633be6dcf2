//! `jostled`, the lock daemon: locks by name for everybody who can reach it,
//! over the wire protocol of Redis.
//!
//! [`table`] decides and is pure; [`server`] speaks with clients; [`tokens`]
//! keeps the promise that a fencing token is never given twice; [`config`] is
//! what can be set. The same library serves the binary `jostled` and programs
//! that embed a daemon. Not here: anything of the benchmark.

pub mod config;
mod glob;
pub mod handover;
pub mod log;
pub mod server;
pub mod systemd;
pub mod table;
pub mod tokens;
pub mod users;

pub use config::{Config, Settings};
pub use server::Server;
