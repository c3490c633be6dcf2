//! A server that answers as Consul does where locks are concerned: sessions with a time to
//! live and a lock-delay, keys that a session acquires and releases, blocking queries. It is
//! ours and no Consul: Debian has no package of one, and to build one takes too long for a
//! test. What it does was read in the sources of Consul 1.21, and holds no more than its tests
//! need.

use crate::certificate::Certificate;
use crate::servers::{Placed, Server, launch};
use anyhow::Context;
use std::io::{Read, Write};
use std::net::TcpStream;

const PROGRAM: &str = include_str!("fake_consul.py");

/// A server, as long as this program lives.
#[derive(Clone, Debug)]
pub struct FakeConsul {
    /// `HOST:PORT`.
    pub address: String,
}

impl FakeConsul {
    /// On a free port of the loopback address.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start() -> anyhow::Result<FakeConsul> {
        FakeConsul::serving("")
    }

    /// A server over TLS, with this certificate.
    ///
    /// # Errors
    /// As above.
    pub fn with_tls(own: &Certificate) -> anyhow::Result<FakeConsul> {
        let Certificate { certificate, key } = own;
        FakeConsul::serving(&format!("{} {}", certificate.display(), key.display()))
    }

    fn serving(more: &str) -> anyhow::Result<FakeConsul> {
        let running = launch(Server::Other, Placed::default(), |address, place| {
            let program = place.join("fake_consul.py");
            std::fs::write(&program, PROGRAM)?;
            let line = format!("python3 {} {} {more}", program.display(), address.port());
            Ok(line.split_whitespace().map(str::to_owned).collect())
        })?;
        let address = running.address.to_string();
        // It ends when this program does.
        std::mem::forget(running);
        Ok(FakeConsul { address })
    }

    /// Whoever does not show it is refused.
    pub fn wants(&self, token: &str) {
        self.tell(&format!("token?value={token}"));
    }

    /// As if most servers of its cluster were gone.
    pub fn lose_leader(&self) {
        self.tell("leader");
    }

    /// As if the times to live of all sessions were over.
    pub fn end_sessions(&self) {
        self.tell("end-sessions");
    }

    /// Ends what is left of all lock-delays.
    pub fn end_delays(&self) {
        self.tell("end-delays");
    }

    /// How many sessions and keys it has.
    pub fn left(&self) -> [u64; 2] {
        let [sessions, keys, _] = self.tell("left");
        [sessions, keys]
    }

    /// How many requests it has got.
    pub fn requests(&self) -> u64 {
        self.tell("left")[2]
    }

    /// Sessions, keys and requests, after an act.
    fn tell(&self, act: &str) -> [u64; 3] {
        let told = || -> anyhow::Result<[u64; 3]> {
            let mut stream = TcpStream::connect(&self.address)?;
            write!(
                stream,
                "PUT /test/{act} HTTP/1.1\r\nConnection: close\r\n\r\n"
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            let (_, body) = answer.split_once("\r\n\r\n").context("no answer")?;
            Ok(serde_json::from_str(body)?)
        };
        told().expect("a test's own server answers")
    }
}
