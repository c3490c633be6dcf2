//! The binary `procd`: flags, file, signals, and the library's server.

#![allow(clippy::print_stdout)] // Its manual and its address go to standard output.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use jostle_daemon::log::Log;
use jostle_daemon::{file, limits, signals, start};
use jostle_procd::config::{ConfigError, Procedures};
use jostle_procd::server::StartError;
use jostle_procd::{Config, Server, Settings, call};

/// A procedure engine: short programs in Lua that are compiled once and called
/// over HTTP, each answering with an exit code.
#[derive(Parser)]
#[command(name = "procd", version, max_term_width = 100)]
#[command(after_help = "\
Try it:
  procd --spool /var/spool/mail --procedures /etc/procd &
  curl -i 'http://127.0.0.1:7887/sizecheck?file=message&max=100000'
  jostle-call /sizecheck file=message max=100000; echo $?
  curl http://127.0.0.1:7887/stats

Every flag can stand in the file of --config too, without its dashes, as TOML:
  listen = [\"127.0.0.1:7887\"]
  memory-limit = \"32M\"

SIGTERM and SIGINT end it cleanly: calls that were begun are answered, the exit
code is 0.")]
struct Cli {
    /// TOML file with settings; flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print the manual page of procd or of jostle-call, and end
    #[arg(long, value_name = "PROGRAM", hide = true)]
    man: Option<String>,

    /// Print version and commit, by which jostle knows a procd of its own build, and end
    #[arg(long, hide = true)]
    build: bool,

    /// Serve jostle, which measures it: with the example procedures, on a free port or on a
    /// socket in the spool folder, until standard input closes
    #[arg(long, value_name = "tcp or unix", hide = true, requires = "spool")]
    launched: Option<String>,

    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("{0}")]
    System(#[from] std::io::Error),
}

fn main() -> ExitCode {
    let is_usage = |failure: &Failure| matches!(failure, Failure::Config(_));
    let code = start::exit_code(run(Cli::parse()), is_usage, say);
    Log::stderr(gap).flush();
    code
}

fn run(cli: Cli) -> Result<(), Failure> {
    if let Some(program) = &cli.man {
        print!("{}", manual(program)?);
        return Ok(());
    }
    if cli.build {
        let commit = option_env!("JOSTLE_COMMIT").unwrap_or_default();
        println!("{} {commit}", env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    if let (Some(place), Some(spool)) = (&cli.launched, cli.settings.spool.clone()) {
        return launched(place == "unix", spool);
    }
    let settings = match &cli.config {
        Some(path) => cli
            .settings
            .over(file::settings(path).map_err(ConfigError::from)?),
        None => cli.settings,
    };
    let config = settings.resolve(|name| std::env::var(name).ok())?;
    // Before the first client: signals that come from now on have their handlers.
    let stop = signals::on(&signals::END)?;
    let log = Arc::new(say);
    let mut server = Server::bind(config.clone(), log)?;
    announce(&server, &config);
    server.run(&stop)?;
    say("ended");
    Ok(())
}

/// Mode of a socket that only this user's processes may use.
const OURS: u32 = 0o600;

/// An engine that jostle has launched: prints where it listens, and logs nothing, because
/// errors show in the answers.
fn launched(unix: bool, spool: PathBuf) -> Result<(), Failure> {
    let socket = spool.join("procd.socket");
    let mut config = Config::embedded(Some(spool));
    // Short, because the keeper would kill the server before a longer drain ends.
    config.drain_timeout = Duration::from_secs(1);
    if unix {
        config.listen = Vec::new();
        config.unix = Some((socket.clone(), OURS));
    }
    let mut server = Server::bind(config, Arc::new(|_: &str| {}))?;
    match server.addresses().next() {
        Some(address) => println!("{address}"),
        None => println!("{}", socket.display()),
    }
    Ok(server.run(std::io::stdin())?)
}

/// Logs a line to standard error, for journald and people.
fn say(line: &str) {
    Log::stderr(gap).put(format!("procd: {line}\n"));
}

/// The line in the place of those that were dropped.
fn gap(lines: u64, why: &str) -> String {
    format!("procd: {lines} lines of the log were dropped: {why}\n")
}

fn announce(server: &Server, config: &Config) {
    let unix = config.unix.as_ref().map(|(path, _)| path.as_path());
    start::announce(server.addresses(), unix, say);
    let fewer = limits::fewer(server.max_connections(), config.max_connections);
    fewer.inspect(|text| say(text));
    if config.procedures == Procedures::None {
        say("no folder of procedures (--procedures): the built-in ones alone");
    }
    if config.spool.is_none() {
        say("no spool folder (--spool): procedures can read nothing");
    }
    say("ready");
}

/// The page of `procd` from its flags, that of `jostle-call` from its help text.
fn manual(program: &str) -> std::io::Result<String> {
    if program == "jostle-call" {
        let text = call::HELP.replace('\\', "\\\\").replace('-', "\\-");
        let escaped = |line: &str| {
            let guard = if line.starts_with(['.', '\'']) {
                "\\&"
            } else {
                ""
            };
            format!("{guard}{line}\n")
        };
        let body: String = text.lines().map(escaped).collect();
        let version = env!("CARGO_PKG_VERSION");
        return Ok(format!(
            ".TH jostle\\-call 1 \"\" \"jostle\\-call {version}\"\n.SH NAME\njostle\\-call \\- \
             call a procedure of procd\n.SH DESCRIPTION\n.nf\n{body}.fi\n.SH SEE ALSO\nprocd(1)\n"
        ));
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
