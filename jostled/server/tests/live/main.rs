//! `jostled` as its clients see it: the daemon is started, and what it answers, logs and
//! leaves behind is looked at. One test program, since each costs seconds to link.

#![allow(clippy::unwrap_used)] // A helper of a test fails the test.

mod attacks;
mod clients;
mod commands;
mod common;
mod crashes;
mod endurance;
mod entry;
#[cfg(feature = "ha")]
mod groups;
mod handover;
mod hostile;
mod links;
mod service;
mod stores;
mod turns;

/// The daemon's program.
const JOSTLED: &str = env!("CARGO_BIN_EXE_jostled");
