//! `cargo xtask hosts`: the command line of [`jostle_testbed::hosts`].

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use jostle_testbed::hosts::{Hosts, MOST, SERVER, need_root, usual_directory};
use jostle_testbed::packages;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

/// What to do; with a number, to make so many.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Makes h1 to hN, and srv for servers; they stay until `down`
    #[arg(value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(MOST)))]
    count: Option<u16>,
    #[command(subcommand)]
    action: Option<Action>,
    /// Keys, scripts and temporary files of the hosts [default: jostle-hosts in
    /// the directory for temporary files]
    #[arg(long, global = true)]
    dir: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Action {
    /// Takes them down: nothing stays
    Down,
    /// Runs a command on a host
    Exec {
        host: String,
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Lists what runs on the hosts, or on one
    Ps { host: Option<String> },
    /// Limits a host's link in both directions: 10mbit, or none
    Slow { host: String, rate: String },
    /// Lets nothing pass to and from a host, without a word to either side
    Cut { host: String },
    /// Undoes `cut`
    Mend { host: String },
    /// Limits the CPU time of all that runs on a host: 0.2 (of one CPU), or none
    Cpu { host: String, cpus: String },
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let directory = arguments.dir.unwrap_or_else(usual_directory);
    let found = Hosts::open(&directory)?;
    let action = match (arguments.count, arguments.action) {
        (Some(_), Some(_)) => bail!("either how many hosts, or what to do with those that are up"),
        (Some(count), None) => return up(found, count, &directory),
        (None, Some(action)) => action,
        (None, None) => {
            describe(&found.context("no hosts are up; `cargo xtask hosts 3` makes three")?);
            return Ok(());
        }
    };
    let Some(hosts) = found else {
        if matches!(action, Action::Down) {
            println!("no hosts are up");
            return Ok(());
        }
        bail!("no hosts are up; `cargo xtask hosts 3` makes three");
    };
    match action {
        Action::Down => hosts.down(),
        Action::Exec { host, command } => exec(&hosts, &host, &command),
        Action::Ps { host } => list(&hosts, host.as_deref()),
        Action::Slow { host, rate } => hosts.slow(&host, given(&rate)),
        Action::Cut { host } => hosts.cut(&host),
        Action::Mend { host } => hosts.mend(&host),
        Action::Cpu { host, cpus } => {
            let cpus = given(&cpus).map(str::parse).transpose();
            hosts.cpu(&host, cpus.context("how many CPUs: 0.2, or none")?)
        }
    }
}

fn given(word: &str) -> Option<&str> {
    (word != "none").then_some(word)
}

fn up(found: Option<Hosts>, count: u16, directory: &Path) -> anyhow::Result<()> {
    // Asked for again, they are there already.
    if let Some(hosts) = found
        && hosts.whole()
        && hosts.members().count() == usize::from(count) + 1
    {
        describe(&hosts);
        return Ok(());
    }
    need_root()?;
    let needed = "iproute2 util-linux openssh-server openssh-client openmpi-bin";
    packages::ensure(&needed.split(' ').collect::<Vec<_>>())?;
    describe(&Hosts::up(directory, count)?);
    Ok(())
}

fn describe(hosts: &Hosts) {
    let place = hosts.directory().display();
    println!("host  address       monotonic clock, s");
    for member in hosts.members() {
        println!(
            "{:<5} {:<13} {:+.9}",
            member.name,
            member.address,
            member.shift_ns as f64 / 1e9
        );
    }
    let count = hosts.members().count() - 1;
    println!(
        "Ranks: {place}/mpirun -n {count} PROGRAM...   (hostfile: {place}/hostfile)\n\
         One command: {place}/exec h1 COMMAND...; servers: {place}/exec {SERVER} COMMAND...\n\
         `cargo xtask hosts down` takes them down."
    );
}

fn exec(hosts: &Hosts, host: &str, command: &[String]) -> anyhow::Result<()> {
    hosts.member(host)?;
    let (program, arguments) = command.split_first().context("no command")?;
    // In our place, so that it has our exit code, and the signals that we get.
    let error = hosts.on(host, program).args(arguments).exec();
    Err(error).context("cannot run the hosts' `exec`")
}

fn list(hosts: &Hosts, only: Option<&str>) -> anyhow::Result<()> {
    let names: Vec<&str> = match only {
        Some(name) => vec![name],
        None => hosts.members().map(|member| &*member.name).collect(),
    };
    for name in names {
        for (pid, command) in hosts.processes(name)? {
            println!("{name:<5} {pid:>8} {command}");
        }
    }
    Ok(())
}
