//! `procd`, the procedure engine: short programs in Lua that are compiled once
//! and called over HTTP, each answering with an exit code; and what its thin
//! client `jostle-call` is made of.
//!
//! [`server`] serves callers, `catalog` holds the procedures, `lua` runs them, `spool`
//! is the only folder that they can read, [`call`] is the client's side. The same
//! library serves the binary `procd` and programs that embed an engine. It contains
//! nothing of the benchmark.

pub mod call;
#[cfg(feature = "engine")]
#[cfg(test)]
mod call_tests;
#[cfg(feature = "engine")]
mod catalog;
#[cfg(feature = "engine")]
pub mod config;
#[cfg(feature = "engine")]
mod http;
#[cfg(feature = "engine")]
pub mod lua;
#[cfg(feature = "engine")]
mod query;
#[cfg(feature = "engine")]
pub mod server;
#[cfg(feature = "engine")]
mod sizecheck;
#[cfg(feature = "engine")]
mod spool;
#[cfg(feature = "engine")]
mod stats;

#[cfg(feature = "engine")]
pub use config::{Config, Settings};
#[cfg(feature = "engine")]
pub use server::Server;

/// The example procedures, by name and source; an embedded engine serves them.
pub const EXAMPLES: &[(&str, &str)] = &[
    ("accept", include_str!("../procedures/accept.lua")),
    ("attachments", include_str!("../procedures/attachments.lua")),
    (
        "blocked_sender",
        include_str!("../procedures/blocked_sender.lua"),
    ),
    (
        "sizecheck_lua",
        include_str!("../procedures/sizecheck_lua.lua"),
    ),
];
