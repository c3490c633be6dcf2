//! The servers that targets bring along: this program under a hidden verb, which
//! the keeper launches. A server says on stdout where it listens, and ends when
//! its stdin closes.

use crate::{Failure, print};
use anyhow::{Context, anyhow};
use jostle_lockd::{Config, Server};
use jostle_targets::answering::Answering;

/// The limit on descriptors comes first.
const MOST_CONNECTIONS: usize = 200_000;

/// Serves until stdin closes.
pub fn serve(server: &str) -> Result<u8, Failure> {
    // As many connections as the machine allows: the server is the tool's own.
    let _ = jostle_sys::files::raise_descriptor_limit();
    match server {
        "lockd" => lockd()?,
        "echo" => echo()?,
        other => return Err(Failure::Usage(format!("there is no server `{other}`"))),
    }
    Ok(0)
}

fn lockd() -> anyhow::Result<()> {
    let mut config = Config::embedded();
    config.max_connections = MOST_CONNECTIONS;
    let mut server = Server::bind(config).context("cannot start jostled")?;
    let address = server
        .addresses()
        .next()
        .ok_or_else(|| anyhow!("jostled listens nowhere"))?;
    print(&format!("{address}\n"))?;
    server.run(std::io::stdin()).context("jostled")
}

fn echo() -> anyhow::Result<()> {
    let mut server = Answering::bind().context("cannot start the answering server")?;
    print(&format!("{}\n", server.address()?))?;
    server.run(std::io::stdin()).context("the answering server")
}
