//! The binary `jostled`: flags, file, signals, and the library's server.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use jostle_daemon::{file, limits, memory, signals, start};
use jostle_lockd::config::ConfigError;
use jostle_lockd::handover::{Program, StateError};
use jostle_lockd::log::{self, Level, say, write};
use jostle_lockd::server::{self, Reload, StartError, Successor};
use jostle_lockd::systemd::{Notifier, inherited};
use jostle_lockd::{Config, Server, Settings};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};

/// Signals that have handlers.
const SIGNALS: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGUSR2];

/// A lock daemon: locks by name, exclusive or shared, owned by a connection or
/// leased for a time, with fencing tokens, over the protocol of Redis.
#[derive(Parser)]
#[command(name = "jostled", version, max_term_width = 100)]
#[command(after_help = "\
Try it:
  jostled --data none &
  redis-cli -p 2626 LOCK job TTL 30000 WAIT 5000
  redis-cli -p 2626 HOLDERS

Every flag can stand in the file of --config too, without its dashes, as TOML:
  listen = [\"127.0.0.1:2626\"]
  max-memory = \"2G\"

SIGTERM and SIGINT end it cleanly: those who wait get an error, replies are
sent, the exit code is 0. All locks end with it, unless --store or --ha-name
keeps them. SHUTDOWN DRAIN 30s waits for holders before. SIGHUP reads
passwords, users and certificates again, and no lock is lost. SIGUSR2, or the
command HANDOVER, lets the program that is installed now take this one's
place, with all locks and connections (those with TLS end).")]
struct Cli {
    /// TOML file with settings; flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check whether the state on standard input could be taken over
    #[arg(long, hide = true)]
    check_state: bool,

    /// Take over from the previous program, whose state is on standard input
    #[arg(long, hide = true)]
    take_over: bool,

    /// Create the keys of a new group (--ha-name) in etcd, once, and exit
    #[cfg(feature = "ha")]
    #[arg(long)]
    ha_init: bool,

    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("cannot take over: {0}")]
    State(#[from] StateError),
    #[error("{0}")]
    System(#[from] std::io::Error),
}

fn main() -> ExitCode {
    let is_usage = |failure: &Failure| matches!(failure, Failure::Config(_));
    let code = start::exit_code(run(Cli::parse()), is_usage, |text| {
        write(Level::Error, text);
    });
    log::flush();
    code
}

fn run(cli: Cli) -> Result<(), Failure> {
    let inherits = inherits_sockets(&cli);
    if cli.check_state {
        // Its error becomes part of a log line of the program that started the check.
        return Ok(server::prove(&settle(&cli, inherits)?)?);
    }
    // A log or a data directory at its limit must not end the daemon without a word.
    jostle_sys::signal::let_large_writes_fail()?;
    // Errors in the settings are logged with the level and format that the settings ask for.
    obey(&cli.settings);
    let settings = read(&cli)?;
    obey(&settings);
    let config = resolve(settings, inherits)?;
    #[cfg(feature = "ha")]
    if cli.ha_init {
        return Ok(server::init(&config)?);
    }
    // Threads that start while the signals are held back never get one: all signals
    // come to the thread that does the handover. A member of a group does none, and waits.
    #[cfg(feature = "ha")]
    let alone = config.ha.is_none();
    #[cfg(not(feature = "ha"))]
    let alone = true;
    let held = alone.then(|| jostle_sys::signal::hold_back(&SIGNALS));
    let held = held.transpose()?;
    // Before the first client: signals that come from now on have their handlers.
    let stop = signals::on(&signals::END)?;
    let hangup = signals::on(&[SIGHUP])?;
    hangup.set_nonblocking(true)?;
    let asked = signals::on(&[SIGUSR2])?;
    let again = || settle(&cli, inherits);
    let Some(mut server) = serving(&cli, &config, &stop, again)? else {
        say("ended");
        return Ok(());
    };
    server.allow_handover(Successor {
        program: Program::own()?,
        signal: asked,
        signals: SIGNALS.to_vec(),
    })?;
    announce(&server, &config, alone);
    if let Some(notifier) = Notifier::from_env() {
        server.notify(notifier);
    }
    drop(held);
    server.run_with(
        &stop,
        Reload {
            signal: hangup,
            read: Arc::new(move || settle(&cli, inherits)),
        },
    )?;
    say("ended");
    Ok(())
}

/// The server, once it is this jostled's turn; `None`: its end has come first.
#[cfg_attr(
    not(feature = "ha"),
    expect(unused_variables, reason = "nothing is waited for")
)]
fn serving(
    cli: &Cli,
    config: &Config,
    stop: &UnixStream,
    again: impl FnOnce() -> Result<Config, ConfigError>,
) -> Result<Option<Server>, Failure> {
    if cli.take_over {
        return Ok(Some(Server::take_over(config.clone())?));
    }
    #[cfg(feature = "ha")]
    if config.ha.is_some() {
        return Ok(server::Candidate::join(config.clone())?.wait(stop, again)?);
    }
    Ok(Some(Server::bind_with(config.clone(), inherited()?)?))
}

/// Flags, file and environment, as they are now.
fn settle(cli: &Cli, inherits: bool) -> Result<Config, ConfigError> {
    resolve(read(cli)?, inherits)
}

/// Whether it inherits sockets that listen already, from systemd or the previous program.
fn inherits_sockets(cli: &Cli) -> bool {
    cli.check_state || cli.take_over || std::env::var_os("LISTEN_FDS").is_some()
}

fn read(cli: &Cli) -> Result<Settings, ConfigError> {
    Ok(match &cli.config {
        Some(path) => cli.settings.clone().over(file::settings(path)?),
        None => cli.settings.clone(),
    })
}

fn resolve(settings: Settings, inherits: bool) -> Result<Config, ConfigError> {
    settings.resolve(|name| match name {
        // The variable is removed when the sockets are taken.
        "LISTEN_FDS" => inherits.then(|| "1".to_owned()),
        "MEMORY_LIMIT" => memory::limit().map(|bytes| bytes.to_string()),
        _ => std::env::var(name).ok(),
    })
}

/// Applies the level and format of these settings to the log from now on.
fn obey(settings: &Settings) {
    let (level, format) = (settings.log_level, settings.log_format);
    log::set(level.unwrap_or_default(), format.unwrap_or_default());
}

fn announce(server: &Server, config: &Config, alone: bool) {
    let unix = config.unix.as_ref().map(|(path, _)| path.as_path());
    start::announce(server.addresses(), unix, say);
    // A standby has told it already.
    if let Some(address) = server.metrics_address().filter(|_| alone) {
        say(&format!("metrics on http://{address}/metrics"));
    }
    let fewer = limits::fewer(server.max_connections(), config.max_connections);
    fewer.inspect(|text| write(Level::Warn, text));
    if config.data.is_none() {
        write(
            Level::Warn,
            "no data directory: fencing tokens start at 1 again with each start",
        );
    }
    say("ready");
}
