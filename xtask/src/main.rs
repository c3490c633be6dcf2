//! What developers of jostle run, with nothing but the Rust toolchain and the
//! system's packages:
//!
//! - `cargo xtask ci`: everything that must hold before a change goes in;
//! - `cargo xtask docs`: writes the pages that are generated from the program;
//! - `cargo xtask peers`: measures jostle against small C programs.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people, whose results go to stdout as jostle's own do"
)]

mod ci;
mod docs;
mod packages;
mod peers;
mod shell;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "What developers of jostle run")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Installs what tests need, then runs format, lints, tests and docs
    Ci,
    /// Writes the pages that are generated from the program
    Docs {
        /// Changes nothing; fails if a page is not what the program says
        #[arg(long)]
        check: bool,
    },
    /// Measures jostle side by side with small C programs
    Peers {
        /// Interleaved repeats of each pair
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
        repeats: u32,
        /// Only the trials whose name contains this
        #[arg(long)]
        only: Option<String>,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {
        Task::Ci => ci::run(),
        Task::Docs { check } => docs::run(check),
        Task::Peers { repeats, only } => peers::run(repeats, only.as_deref()),
    }
}
