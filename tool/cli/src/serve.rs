//! The servers that targets bring along: this program under a hidden verb, which the keeper
//! launches, or the program `procd`. A server prints its address on stdout, and ends when
//! its stdin closes.

use crate::{COMMIT, Failure, VERSION, print};
use anyhow::{Context, anyhow};
use jostle_engine::keeper::NOT_LAUNCHED;
use jostle_engine::keeper::SERVE_PASSWORD;
use jostle_lockd::config::{AfterCrash, ConfigError, Settings};
use jostle_lockd::{Config, Server};
use jostle_sys::spawn;
use jostle_targets::answering::{Answering, Fault};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

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
        _ => return Err(Failure::Usage(format!("jostle has no server `{server}`"))),
    }
    Ok(0)
}

/// The configuration of a jostled: by default on any free port and without persistent
/// state, with the password of the environment.
fn embedded(at: Option<&str>, keep: Option<&Path>) -> Result<Config, ConfigError> {
    let settings = Settings {
        listen: vec![at.unwrap_or("127.0.0.1:0").to_owned()],
        data: Some(keep.map_or("none".into(), |path| path.display().to_string())),
        // What is measured is a restart, not the wait for the leases of before.
        after_crash: Some(AfterCrash::Grant),
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

/// Becomes the program `procd`: with its example procedures, reading below `spool`, where
/// its Unix socket is made too. jostle has none of its code; the same build is required,
/// so that what is measured is what this version of jostle describes. Why there is none
/// goes to the keeper, on the line in which it expects an address.
fn procd(spool: &str, unix: bool) -> anyhow::Result<()> {
    match procd_of_this_build() {
        Ok(program) => {
            let place = if unix { "unix" } else { "tcp" };
            let words = ["--launched", place, "--spool", spool];
            // Only returns if it failed.
            Err(Command::new(&program).args(words).exec())
                .with_context(|| format!("cannot start {}", program.display()))
        }
        Err(why) => print(&format!("{}{why}\n", NOT_LAUNCHED)),
    }
}

/// The procd beside this program, else that in $PATH, if it was built of the same source.
fn procd_of_this_build() -> Result<PathBuf, String> {
    const MAKE: &str = "`cargo build --release -p jostle-procd` makes it, and packages have it";
    let program = spawn::beside_or_in_path("procd")
        .map_err(|_| format!("there is no procd beside jostle nor in $PATH; {MAKE}"))?;
    let version = Command::new(&program).arg("--build").output();
    let version =
        version.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let theirs = String::from_utf8_lossy(&version.stdout);
    let ours = format!("{VERSION} {}", COMMIT.unwrap_or_default());
    match theirs.trim() == ours.trim() {
        true => Ok(program),
        false => Err(format!(
            "{} is of another build ({}) than jostle ({}); {MAKE}",
            program.display(),
            theirs.trim(),
            ours.trim()
        )),
    }
}
