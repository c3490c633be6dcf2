//! Tasks of the developers of jostle, with nothing but the Rust toolchain and the
//! system's packages:
//!
//! - `cargo xtask test`: the tests that need nothing but the toolchain, as any user;
//! - `cargo xtask ci`: everything that must hold before a change goes in;
//! - `cargo xtask clients`: tests the packages of `clients/`, tries Redis clients on jostled;
//! - `cargo xtask dist`: makes the packages that users install, and checks them;
//! - `cargo xtask fuzz`: looks for inputs that break codec, handover, writers or what is typed;
//! - `cargo xtask long`: the tests that take minutes and are not in `ci`;
//! - `cargo xtask mutants`: plants faults into jostled's lock table and the checker of `verify`, which
//!   their tests must see;
//! - `cargo xtask hosts`: many hosts on this machine, to run `mpirun` across;
//! - `cargo xtask docs`: writes the pages that are generated from the program;
//! - `cargo xtask screens`: makes the pictures of tool/docs/screens/ again;
//! - `cargo xtask size`: counts what somebody must read, for each crate;
//! - `cargo xtask peers`: measures jostled beside Redis, jostle beside the usual clients of
//!   lock services;
//! - `cargo xtask slapd`: a directory server with made-up entries, to try `ldap` on;
//! - `cargo xtask validate`: plants a truth and counts how often it is found.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people, whose results go to stdout as jostle's own do"
)]

mod ci;
mod clients;
mod dist;
mod docs;
mod fuzz;
mod hosts_task;
mod long;
mod mutants;
mod options_page;
#[cfg(test)]
mod pages;
mod plain_tests;
mod screens;
mod size;
#[cfg(test)]
mod sources;
mod standstill;
mod test_runs;

use clap::{Parser, Subcommand};
use jostle_testbed::{shell, slapd};

#[derive(Parser)]
#[command(about = "What developers of jostle run")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Installs what tests need, then runs format, lints, tests, packaging and docs
    Ci {
        /// Begins with this step, such as `documentation`, after a failure there
        #[arg(long, value_name = "STEP")]
        from: Option<String>,
    },
    /// Runs the tests that need nothing but the toolchain, as any user, and says what it left out
    Test {
        /// Compiles them and keeps the list of programs below target/
        #[arg(long)]
        no_run: bool,
        /// Compiles nothing: runs the programs of that list, also as another user
        #[arg(long, conflicts_with = "no_run")]
        compiled: bool,
    },
    /// Feeds codec, handover, result files, command lines and plans with inputs that libFuzzer makes up
    Fuzz {
        /// Only this target of lab/fuzz/fuzz_targets
        target: Option<String>,
        /// For how long, each target
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
        seconds: u32,
    },
    /// Tests the packages of clients/, and tries the Redis clients that people have against jostled
    Clients {
        /// Only what has this in its name: `package`, `go`, `redis-py`
        #[arg(long)]
        only: Option<String>,
    },
    /// Runs the tests that take minutes and are not in `ci`
    Long,
    /// Plants faults into a copy of jostled's lock table, and requires that each is seen
    Mutants,
    /// Makes tarballs, Debian packages, wheels and images, or checks them
    Dist(dist::Arguments),
    /// Writes the pages that are generated from the program
    Docs {
        /// Changes nothing; fails if a page is not what the program says
        #[arg(long)]
        check: bool,
    },
    /// Makes the pictures of tool/docs/screens/ again, from the results of record/
    Screens,
    /// Counts lines of Rust without tests, comments and blank lines, and lists what is too long
    Size,
    /// Measures jostle beside the usual clients of lock services, jostled beside Redis
    #[command(disable_help_flag = true)]
    Peers(Forwarded),
    /// Starts OpenLDAP's slapd on a directory of made-up entries, until ^C
    Slapd(Slapd),
    /// Makes hosts of namespaces, each with its own name, address, sshd and clock
    Hosts(hosts_task::Arguments),
    /// Plants a truth and counts how often the statistics find it
    #[command(disable_help_flag = true)]
    Validate(Forwarded),
}

/// Words for the program `jostle-lab`, which is built with optimisation for them.
#[derive(clap::Args)]
struct Forwarded {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl Forwarded {
    fn run(&self, task: &str) -> anyhow::Result<()> {
        let mut words = vec!["run", "--quiet", "--release", "--package", "jostle-lab"];
        words.extend(["--", task]);
        words.extend(self.words.iter().map(String::as_str));
        shell::run(&mut shell::cargo(&words))
    }
}

fn main() -> anyhow::Result<()> {
    // What is started from here inherits it; tests interrupt what they start.
    jostle_sys::signal::heed_interrupts()?;
    match Arguments::parse().task {
        Task::Ci { from } => ci::run(from.as_deref()),
        Task::Test { no_run, compiled } => plain_tests::run(no_run, compiled),
        Task::Fuzz { target, seconds } => fuzz::run(target.as_deref(), seconds),
        Task::Clients { only } => clients::run(only.as_deref()),
        Task::Long => long::run(),
        Task::Mutants => mutants::run(),
        Task::Dist(arguments) => dist::run(&arguments),
        Task::Docs { check } => docs::run(check),
        Task::Screens => screens::screens(),
        Task::Size => size::run(),
        Task::Slapd(wanted) => wanted.serve(),
        Task::Hosts(arguments) => hosts_task::run(arguments),
        Task::Validate(words) => words.run("validate"),
        Task::Peers(words) => words.run("peers"),
    }
}

/// A directory server.
#[derive(clap::Args)]
struct Slapd {
    /// Users in the directory
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    entries: u32,
    /// Where it listens: of a host of `cargo xtask hosts`, its address
    #[arg(long, default_value = "127.0.0.1")]
    address: std::net::IpAddr,
    /// The port, instead of a free one
    #[arg(long)]
    port: Option<u16>,
    /// The only CPU that the server runs on
    #[arg(long)]
    cpu: Option<usize>,
}

impl Slapd {
    /// Serves until somebody ends this program; the server and its directory go with it.
    fn serve(&self) -> anyhow::Result<()> {
        let entries = self.entries;
        let slapd = slapd::Slapd::start(&slapd::Wanted {
            entries,
            address: self.address,
            port: self.port,
            cpu: self.cpu,
            ..slapd::Wanted::default()
        })?;
        println!(
            "slapd (process {}) with {entries} users:\n  {}\n  ldapi socket {}\n  users uid=user0 to \
             uid=user{} (the password is the uid) in ou=people,{}\n  administrator {}, password \
             {}\n^C ends it and removes its directory.",
            slapd.pid().unwrap_or(0),
            slapd.url("(uid=user{n})"),
            slapd.socket().display(),
            entries - 1,
            slapd::BASE,
            slapd::ADMIN,
            slapd::ADMIN_PASSWORD
        );
        loop {
            std::thread::park();
        }
    }
}
