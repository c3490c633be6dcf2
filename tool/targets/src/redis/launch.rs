//! How a Redis is launched for a run: one server, or a group of a primary, its replicas and as many
//! Sentinels. None of them keeps anything on disk, but each rewrites its settings there when the
//! group gets another primary.

use crate::prelude::*;
use crate::program::{Leads, free_ports, secret};
use crate::remote::info_text;
use jostle_resp::value::Value;

pub(super) static PROGRAM: Program = Program {
    file: "redis-server",
    places: &[],
    package: Some("redis-server"),
    launch_ms: 100,
    asks_libc: true,
};

const SETTINGS: &str = "redis.conf";

/// How soon a Sentinel takes a silent server for dead, and how long a failover may take before
/// another Sentinel tries, in milliseconds. Redis's own, 30 s and 3 min, are longer than runs are.
const DOWN_MS: u64 = 1_000;
const FAILOVER_MS: u64 = 3_000;

/// A server with room for the workers, which keeps nothing on disk; or a member of a group.
#[derive(Debug)]
pub struct Launch {
    /// Connections that it takes.
    connections: usize,
    /// Its place in the group: first the primary, then the replicas, then the Sentinels.
    number: usize,
    /// Those of the group; none of a server that is alone.
    ports: Vec<u16>,
    /// The password of the whole group: any server may become the primary.
    secret: String,
}

impl Launch {
    /// The name of a group.
    pub(super) const NAME: &str = "jostle";

    /// A server by itself.
    pub fn alone(connections: usize) -> Launch {
        Launch {
            connections,
            number: 0,
            ports: Vec::new(),
            secret: String::new(),
        }
    }

    /// A group of so many servers and as many Sentinels.
    ///
    /// # Errors
    /// No free ports, or no random numbers.
    pub fn group(servers: usize, connections: usize) -> Result<Vec<Launch>> {
        let (ports, secret) = (free_ports(2 * servers)?, secret()?);
        let member = |number| Launch {
            connections,
            number,
            ports: ports.clone(),
            secret: secret.clone(),
        };
        Ok((0..ports.len()).map(member).collect())
    }

    /// Where the others reach a member: `HOST PORT`.
    fn place(&self, ground: &Ground, number: usize) -> String {
        format!("{} {}", ground.host_of(number), self.ports[number])
    }

    fn servers(&self) -> usize {
        self.ports.len() / 2
    }

    fn is_sentinel(&self) -> bool {
        self.number > 0 && self.number >= self.servers()
    }

    /// What a member is told beside the settings of all: how to be the primary, a replica, or a
    /// Sentinel. Replicas get what the primary has over the network alone, at once. Sentinels
    /// know the others from the start, as from an earlier life: to find them takes ten seconds.
    fn own(&self, ground: &Ground) -> String {
        if self.ports.is_empty() {
            return String::new();
        }
        let (name, servers, secret) = (Self::NAME, self.servers(), &ground.secret);
        let primary = self.place(ground, 0);
        let id = |number: usize| format!("{number:040x}");
        if self.number < servers {
            let follows = match self.number {
                0 => String::new(),
                _ => format!("replicaof {primary}\n"),
            };
            return format!(
                "masterauth {secret}\nrepl-diskless-sync yes\nrepl-diskless-sync-delay 0\n\
                 repl-diskless-load swapdb\n{follows}"
            );
        }
        let other = |other: usize| {
            let place = self.place(ground, other);
            match other < servers {
                true => format!("sentinel known-replica {name} {place}\n"),
                false => format!("sentinel known-sentinel {name} {place} {}\n", id(other)),
            }
        };
        let others = (1..2 * servers).filter(|other| *other != self.number);
        let others: String = others.map(other).collect();
        let (own, quorum) = (id(self.number), servers / 2 + 1);
        format!(
            "sentinel myid {own}\nsentinel sentinel-pass {secret}\n\
             sentinel monitor {name} {primary} {quorum}\nsentinel auth-pass {name} {secret}\n\
             sentinel down-after-milliseconds {name} {DOWN_MS}\n\
             sentinel failover-timeout {name} {FAILOVER_MS}\n{others}"
        )
    }

    /// Whether a Sentinel is connected to the other Sentinels, and knows of each replica that it
    /// follows the primary: only such a replica may become the next one.
    fn sees_all(&self, sentinel: &mut Client) -> Result<()> {
        for (what, state) in [("REPLICAS", "ok"), ("SENTINELS", "sentinel")] {
            let words = ["SENTINEL", what, Self::NAME].map(str::as_bytes);
            let lists = |value| match value {
                Value::Array(list) => list,
                _ => Vec::new(),
            };
            let fields = lists(sentinel.value(&words)?).into_iter().flat_map(lists);
            let is_well = |field: &Value| field.as_text() == Some(state);
            let well = fields.filter(is_well).count();
            if well + 1 != self.servers() {
                return Err(SetupError(format!("it sees {well} {what} that are well")));
            }
        }
        Ok(())
    }
}

impl LaunchRecipe for Launch {
    fn program(&self) -> &'static Program {
        &PROGRAM
    }

    /// Redis accepts root, but then a client with its password could write files as root.
    fn instead_of_root(&self) -> Option<&'static str> {
        Some("redis")
    }

    fn known(&self) -> Option<(u16, String)> {
        let port = self.ports.get(self.number)?;
        Some((*port, self.secret.clone()))
    }

    fn files(&self, ground: &Ground) -> Vec<(&'static str, String)> {
        let (host, port, secret) = (ground.host(), ground.port, &ground.secret);
        let settings = format!(
            "bind {host}\nport {port}\nrequirepass {secret}\nmaxclients {}\nsave \"\"\n\
             appendonly no\n{}",
            self.connections,
            self.own(ground)
        );
        vec![(SETTINGS, settings)]
    }

    fn arguments(&self, ground: &Ground) -> Words {
        let mut words = vec![text(&ground.directory.join(SETTINGS))];
        words.extend(self.is_sentinel().then(|| "--sentinel".to_owned()));
        words
    }

    fn leads(&self) -> Option<Leads> {
        let leads: Leads = |address, secret| {
            let login = Login::of_launched(address.to_owned(), None, secret);
            let told = Client::admitted(&login)
                .and_then(|mut client| client.ask(&[b"INFO", b"replication"]));
            told.is_ok_and(|told| info_text(&told, "role") == Some("master"))
        };
        (!self.is_sentinel()).then_some(leads)
    }

    fn ready(&self, ground: &Ground) -> Result<()> {
        let mut client = Client::admitted(&ground.login(None))?;
        if self.is_sentinel() {
            return self.sees_all(&mut client);
        }
        let told = client.ask(&[b"INFO", b"replication"])?;
        match info_text(&told, "master_link_status") {
            None | Some("up") => Ok(()),
            Some(_) => Err(SetupError("it does not follow its primary yet".to_owned())),
        }
    }
}
