//! `jostle-lock` as its users see it, with a daemon in a process of its own: this very test
//! program, started again.

#![allow(clippy::unwrap_used)] // A helper of a test fails the test.

mod commands;
mod common;
mod loss;
mod pages;
mod torture;
