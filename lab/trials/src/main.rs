//! The laboratory, called through `cargo xtask`:
//!
//! - `validate`: plants a truth and counts how often jostle finds it;
//! - `peers`: measures jostle beside the usual clients of lock services, jostled beside Redis.

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

#[derive(Parser)]
#[command(about = "What jostle is measured with", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measures jostle beside the usual clients of lock services, jostled beside Redis
    Peers(peers::Options),
    /// Plants a truth and counts how often the statistics find it
    Validate {
        #[command(subcommand)]
        subject: validate::Subject,
    },
    /// A server that hands one lock from client to client; called by `peers --services`
    #[command(hide = true)]
    Relay { port: u16 },
    /// Clients of jostleds on three hosts, or their witness; called by `validate ha`
    #[command(hide = true)]
    Ha {
        #[command(subcommand)]
        part: validate::ha::Part,
    },
}

fn main() -> anyhow::Result<()> {
    // What is started from here inherits it; tests interrupt what they start.
    jostle_sys::signal::heed_interrupts()?;
    match Arguments::parse().task {
        Task::Validate { subject } => validate::run(&subject),
        Task::Peers(options) => peers::run(&options),
        Task::Ha { part } => part.run(),
        Task::Relay { port } => Ok(jostle_testbed::relay::run(port)?),
    }
}
