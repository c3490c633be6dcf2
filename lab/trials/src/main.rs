//! The laboratory, called through `cargo xtask`:
//!
//! - `validate`: plants a truth and counts how often jostle finds it;
//! - `peers`: measures jostle beside small C programs and beside the usual clients of lock
//!   services, jostled beside Redis.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people, whose results go to stdout as jostle's own do"
)]

mod disturbance;
mod peers;
mod program;
mod validate;

use clap::{Parser, Subcommand};
use std::path::PathBuf;

#[derive(Parser)]
#[command(about = "What jostle is measured with", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measures jostle beside the usual clients of lock services, jostled beside Redis
    Peers {
        /// Interleaved repeats of each pair
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
        repeats: u32,
        /// Only the trials whose name contains this (with --services: is this, if one is)
        #[arg(long)]
        only: Option<String>,
        /// jostled beside Redis
        #[arg(long, required_unless_present = "clients")]
        services: bool,
        /// Targets of lock services beside those services' usual clients
        #[arg(long, conflicts_with = "services")]
        clients: bool,
        /// This jostle, instead of one that is built now
        #[arg(long, requires = "clients")]
        jostle: Option<PathBuf>,
        /// Adds what `--services` measures to this file, a line for each trial
        #[arg(long, requires = "services")]
        save: Option<PathBuf>,
        /// Tests that it runs: programs as they are built, in no time; the
        /// figures mean nothing
        #[arg(long, hide = true, requires = "services")]
        smoke: Option<PathBuf>,
    },
    /// Plants a truth and counts how often the statistics find it
    Validate {
        #[command(subcommand)]
        subject: validate::Subject,
    },
    /// A server that hands one lock from client to client; called by `peers --services`
    #[command(hide = true)]
    Relay,
    /// A server that only answers; called by `peers --services`
    #[command(hide = true)]
    Answer,
}

fn main() -> anyhow::Result<()> {
    // What is started from here inherits it; tests interrupt what they start.
    jostle_sys::signal::heed_interrupts()?;
    match Arguments::parse().task {
        Task::Validate { subject } => validate::run(&subject),
        Task::Peers {
            repeats,
            only,
            clients: true,
            jostle,
            ..
        } => peers::run_clients(repeats, only.as_deref(), jostle),
        Task::Peers {
            repeats,
            only,
            save,
            smoke,
            ..
        } => peers::services::run(&peers::services::Options {
            repeats,
            only,
            save,
            smoke,
        }),
        Task::Relay => Ok(jostle_testbed::relay::run(|port| println!("ready {port}"))?),
        Task::Answer => answer(),
    }
}

/// The specimen `echo` by itself, for clients other than jostle; until it is killed.
fn answer() -> anyhow::Result<()> {
    let (mut server, address) = jostle_targets::answering::Answering::bind()?;
    println!("ready {}", address.port());
    let (never, _open) = std::io::pipe()?;
    Ok(server.run(never)?)
}
