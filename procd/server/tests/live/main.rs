//! `procd` and its thin client as they are used: real processes, and what they answer,
//! print and leave behind. One test program, since each costs seconds to link.

#![allow(clippy::unwrap_used, reason = "every function here is of a test")]

mod calls;
mod common;
mod hardening;
