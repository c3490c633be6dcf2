//! The servers that targets bring along: this program under a hidden verb, which
//! the keeper launches. A server says on stdout where it listens, and ends when
//! its stdin closes.

use crate::{Failure, print};
use anyhow::{Context, anyhow};
use jostle_lockd::{Config, Server};

/// Serves until stdin closes.
pub fn serve(server: &str) -> Result<u8, Failure> {
    match server {
        "lockd" => lockd()?,
        other => return Err(Failure::Usage(format!("there is no server `{other}`"))),
    }
    Ok(0)
}

fn lockd() -> anyhow::Result<()> {
    let mut server = Server::bind(Config::embedded()).context("cannot start jostled")?;
    let address = server
        .addresses()
        .next()
        .ok_or_else(|| anyhow!("jostled listens nowhere"))?;
    print(&format!("{address}\n"))?;
    server.run(std::io::stdin()).context("jostled")
}
