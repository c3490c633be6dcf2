//! A look at the server on a second machine: the same watcher runs there, reached by ssh or over TCP.
//!
//! Requests and answers are lines of JSON. Only data come back, and nothing that a line says is ever
//! run. The client speaks to a watcher of its own build alone, so that both mean the same by each
//! figure.

mod align;
mod ends;
mod join;
mod lines;
mod link;
mod token;
mod watcher;

pub(crate) use ends::Ends;
pub(crate) use join::join;
pub(crate) use link::Link;
pub use token::token;
pub(crate) use watcher::Told;
pub use watcher::{attend_here, listen, serve};

use jostle_model::judged::Watched;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::str::FromStr;

/// Of requests and answers.
const PROTOCOL: u32 = 1;

/// How the server's machine is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// By ssh, as `[USER@]HOST` or a name of its configuration.
    Ssh(String),
    /// At the `HOST:PORT` at which a watcher listens.
    Tcp(String),
}

impl FromStr for Reach {
    type Err = String;

    fn from_str(text: &str) -> Result<Reach, String> {
        let is_odd = |c: char| c.is_whitespace() || c.is_control();
        if text.is_empty() || text.starts_with('-') || text.contains(is_odd) {
            return Err(
                "a host is [USER@]HOST for ssh, or tcp:HOST:PORT; it does not begin with -"
                    .to_owned(),
            );
        }
        match text.strip_prefix("tcp:") {
            None => Ok(Reach::Ssh(text.to_owned())),
            Some(at)
                if at
                    .rsplit_once(':')
                    .is_some_and(|(_, port)| port.parse::<u16>().is_ok()) =>
            {
                Ok(Reach::Tcp(at.to_owned()))
            }
            Some(_) => Err("name the port: tcp:HOST:PORT".to_owned()),
        }
    }
}

/// A second machine, and what is needed to look at it.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Where it is.
    pub at: Reach,
    /// Whether this program is copied there for the time of the run.
    pub copies: bool,
    /// What a watcher that listens wants to have proof of.
    pub token: Option<Vec<u8>>,
    /// This build, as [`build`] names it.
    pub build: String,
}

/// A build: only the same one is spoken to.
pub fn build(version: &str, commit: Option<&str>) -> String {
    let commit = commit.unwrap_or("of an unknown commit");
    format!("jostle {version} {commit} for {}", std::env::consts::ARCH)
}

/// What a client asks of a watcher. Between them, empty lines tell that it is still there.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// The first line.
    Open {
        protocol: u32,
        build: String,
        /// That it knows the token.
        proof: String,
    },
    /// The sockets to look at.
    Watch(Wanted),
    /// The run is over: what was seen?
    End,
}

/// The connections as the client's machine has them.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Wanted {
    server: SocketAddr,
    /// Some of the clients.
    clients: Vec<SocketAddr>,
    every_ns: u64,
}

/// What a watcher says.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// The first line.
    Hello {
        protocol: u32,
        build: String,
        /// Proof of the token is about this.
        nonce: String,
    },
    /// To `Open`.
    Ready,
    /// To `Open`, or in place of `Hello`.
    Refused(String),
    /// To `End`; nothing where it was never asked to watch.
    Seen(Option<Box<Seen>>),
}

/// What a watcher has seen.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// When it began, by the monotonic clock there.
    began_ns: u64,
    /// The server that it was asked for.
    asked: SocketAddr,
    /// Whether it met clients of the addresses that it was told.
    same: bool,
    ends: Ends,
    /// As of a run; there is no generator in it.
    watched: Watched,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_no_option_of_ssh_s() {
        let ssh = |text: &str| Ok(Reach::Ssh(text.to_owned()));
        assert_eq!("root@db1".parse(), ssh("root@db1"));
        assert_eq!(
            "tcp:[::1]:4000".parse(),
            Ok(Reach::Tcp("[::1]:4000".to_owned()))
        );
        for odd in [
            "",
            "-oProxyCommand=reboot",
            "a b",
            "a\n",
            "tcp:",
            "tcp:db1",
            "tcp:db1:x",
        ] {
            assert!(odd.parse::<Reach>().is_err(), "{odd}");
        }
    }
}
