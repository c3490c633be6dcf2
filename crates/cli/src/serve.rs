//! The servers that targets bring along: this program under a hidden verb, which the keeper
//! launches. A server prints its address on stdout, and ends when its stdin closes.

use crate::{Failure, print};
use anyhow::{Context, anyhow};
use jostle_engine::keeper::SERVE_PASSWORD;
use jostle_lockd::config::{ConfigError, Settings};
use jostle_lockd::{Config, Server};
use jostle_targets::answering::{Answering, Fault};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The limit on descriptors is usually reached first.
const MOST_CONNECTIONS: usize = 200_000;

/// Mode of a socket that only this user's processes may use.
const OURS: u32 = 0o600;

/// Serves until stdin closes. A jostled listens at the address `at`, if it is given, and
/// reads the state that an earlier one wrote to `keep`.
pub(crate) fn serve(server: &str, at: Option<&str>, keep: Option<&Path>) -> Result<u8, Failure> {
    let embedded = || embedded(at, keep).map_err(|error| Failure::Usage(error.to_string()));
    // As many connections as the machine allows: the server is the tool's own.
    jostle_sys::files::raise_descriptor_limit();
    match server.split_once(':') {
        None if server == "lockd" => lockd(embedded()?)?,
        None if server == "echo" => echo(None)?,
        None if server == "echo+pipe" => answer_lines()?,
        Some(("echo", fault)) => echo(Some(fault))?,
        Some(("lockd+unix", path)) => lockd_unix(path, embedded()?)?,
        Some(("echo+unix", path)) => echo_unix(path)?,
        Some(("procd", spool)) => procd(spool, false)?,
        Some(("procd+unix", spool)) => procd(spool, true)?,
        _ => return Err(Failure::Usage(format!("there is no server `{server}`"))),
    }
    Ok(0)
}

/// The configuration of a jostled: by default on any free port and without persistent
/// state, with the password of the environment.
fn embedded(at: Option<&str>, keep: Option<&Path>) -> Result<Config, ConfigError> {
    let settings = Settings {
        listen: vec![at.unwrap_or("127.0.0.1:0").to_owned()],
        data: Some(keep.map_or("none".into(), |path| path.display().to_string())),
        ..Settings::default()
    };
    // Only what the keeper sets, and nothing else of the user's own jostled.
    settings.resolve(|name| std::env::var(name).ok().filter(|_| name == SERVE_PASSWORD))
}

fn lockd(config: Config) -> anyhow::Result<()> {
    let server = bind(config)?;
    let address = server
        .addresses()
        .next()
        .ok_or_else(|| anyhow!("jostled listens nowhere"))?;
    run(server, &address.to_string())
}

fn lockd_unix(path: &str, config: Config) -> anyhow::Result<()> {
    let config = Config {
        listen: Vec::new(),
        unix: Some((path.into(), OURS)),
        ..config
    };
    run(bind(config)?, path)
}

fn bind(mut config: Config) -> anyhow::Result<Server> {
    config.max_connections = MOST_CONNECTIONS;
    Server::bind(config).context("cannot start jostled")
}

fn run(mut server: Server, place: &str) -> anyhow::Result<()> {
    print(&format!("{place}\n"))?;
    server.run(std::io::stdin()).context("jostled")
}

const ANSWERING: &str = "the answering server";

fn echo(fault: Option<&str>) -> anyhow::Result<()> {
    let fault = Fault::parse(fault).map_err(|error| anyhow!(error))?;
    let (server, address) = Answering::bind().context("cannot start the answering server")?;
    let mut server = server.with(fault);
    print(&format!("{address}\n"))?;
    server.run(std::io::stdin()).context(ANSWERING)
}

fn echo_unix(path: &str) -> anyhow::Result<()> {
    let bound = Answering::bind_unix(path.as_ref());
    let mut server = bound.context("cannot start the answering server")?;
    print(&format!("{path}\n"))?;
    server.run(std::io::stdin()).context(ANSWERING)
}

/// On the standard streams, which a worker holds the other ends of.
fn answer_lines() -> anyhow::Result<()> {
    let (input, output) = (std::io::stdin(), std::io::stdout());
    jostle_targets::echo_pipe::answer(input.lock(), output.lock()).context(ANSWERING)
}

/// The engine with its example procedures, reading below `spool`, where its Unix
/// socket is made too.
fn procd(spool: &str, unix: bool) -> anyhow::Result<()> {
    let mut config = jostle_procd::Config::embedded(Some(spool.into()));
    // Short, because the keeper would kill the server before a longer drain ends.
    config.drain_timeout = Duration::from_secs(1);
    let socket = Path::new(spool).join("procd.socket");
    if unix {
        config.listen = Vec::new();
        config.unix = Some((socket.clone(), OURS));
    }
    // No log, because errors show in the answers.
    let log = Arc::new(|_: &str| {});
    let mut server = jostle_procd::Server::bind(config, log).context("cannot start procd")?;
    let address = server.addresses().next();
    match address {
        Some(address) => print(&format!("{address}\n"))?,
        None => print(&format!("{}\n", socket.display()))?,
    }
    server.run(std::io::stdin()).context("procd")
}
