//! `procd`, the procedure engine: short programs in Lua that are compiled once
//! and called over HTTP, each answering with an exit code; and what its thin
//! client `jostle-call` is made of.
//!
//! [`server`] serves callers, `catalog` holds the procedures, `lua` runs them, `spool`
//! is the only folder that they can read, [`call`] is the client's side. The same
//! library serves the binary `procd` and programs that embed an engine. It contains
//! nothing of the benchmark.

pub mod call;
#[cfg(test)]
mod call_tests;
mod catalog;
pub mod config;
mod http;
mod lua;
mod query;
pub mod server;
mod sizecheck;
mod spool;
mod stats;

pub use config::{Config, Settings};
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
