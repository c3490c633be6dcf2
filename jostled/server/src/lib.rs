//! `jostled`, the lock daemon: locks by name for everybody who can reach it,
//! over the wire protocol of Redis.
//!
//! [`table`] makes the decisions and is pure; [`server`] serves clients; [`tokens`]
//! ensures that a fencing token is never given out twice; [`store`] keeps leases and
//! sessions over the daemon's end; `ha` keeps them over the machine's; [`config`] holds the
//! settings. The same library serves the binary `jostled` and programs that embed a daemon. It contains nothing of the benchmark.

pub mod config;
#[cfg(feature = "ha")]
mod etcd;
mod glob;
#[cfg(any(test, feature = "ha"))]
pub mod ha;
pub mod handover;
pub mod log;
pub mod server;
pub mod store;
pub mod systemd;
pub mod table;
pub mod tokens;
pub mod users;

pub use config::{Config, Settings};
pub use server::Server;
