//! `zookeeper`: the lock that Curator's `InterProcessMutex` makes of ZooKeeper. A worker
//! creates an ephemeral sequential node below the lock's, lists the nodes there, and owns
//! the lock when its own has the lowest number. Otherwise it watches the node just before
//! its own, and lists again. The node's czxid, the transaction that created it, is the
//! fencing token.
//!
//! `jute` has the serialisation, `wire` the sequence of requests and answers, `session` the
//! start and end of a session.

mod jute;
mod session;
pub(crate) mod who;
mod wire;

use crate::LEASE_LAG_FACT;
use crate::address::Members;
use crate::prelude::*;
use crate::program::{Leads, free_ports};
use crate::signs::{NoSigns, Told};
use jute::{Reader, error, flags, op};
use session::Session;
use std::net::Ipv4Addr;
use std::time::Duration;
use wire::{Place, ZookeeperWire};

/// The session's timeout that Curator asks for; servers of the usual tickTime grant 40 s.
const TIMEOUT: Duration = Duration::from_secs(60);
const GRANTED: Duration = Duration::from_secs(40);

/// Where name and password of the scheme `digest` stand.
const VARIABLES: [&str; 2] = ["ZOOKEEPER_USER", "ZOOKEEPER_PASSWORD"];

/// ZooKeeper's usual unit of time. No session lives for less than two of it.
const TICK_MS: u64 = 2_000;
const TICKS_OF_LEAST_SESSION: u64 = 2;
const SYNC_MS: u64 = 5 * TICK_MS;

/// A ZooKeeper, or the servers of one ensemble.
#[derive(Debug)]
pub struct Zookeeper {
    servers: Members,
    own: Credentials,
    names: Names,
    keys: usize,
    /// The timeout asked for, and the one granted.
    asked: Duration,
    timeout: Duration,
    /// Process and tickTime of a server that was launched.
    pid: Option<u32>,
    tick_ms: Option<u64>,
    version: Option<f64>,
    /// Whether workers take up their sessions on new connections.
    stays: bool,
}

impl Target for Zookeeper {
    type Lock = RemoteLock<ZookeeperWire>;

    const ENTRY: Entry = Entry {
        name: "zookeeper",
        argument: Some("//HOST:PORT[,HOST:PORT...][?tls]"),
        check_argument: |argument| argument::servers(argument, None),
        reach: |place, file| {
            let servers = Address::several(place, None).map_err(SetupError)?;
            let own = Credentials::find(file, VARIABLES)?;
            Session::open(Members::look(servers).all(), TIMEOUT, &own)?.close()
        },
        program: Some(&PROGRAM),
        summary: "ZooKeeper by Curator's recipe: a sequential node, waits for the node before it",
        details: "Without an address, a server launched for the run (Debian package zookeeper), or \
                  an ensemble of as many as --members says, with a tickTime of 2 s, or of half the \
                  lease that --lease asks for (`lease_lag_ns` in the result). As Curator's \
                  InterProcessMutex: a worker creates an ephemeral sequential node whose name has a \
                  GUID, and lists the nodes of the lock; if its own is not the first, it reads the \
                  one before with a watch, and lists again when that is gone; release deletes the \
                  node. One session for each worker, of 60 s or what the server grants, with a ping \
                  every third of it while a worker waits or holds. Durable; replicated by an ensemble, whose \
                  servers the workers take in turn; the czxid is the fencing token; served in order \
                  of creation. The session's end frees a dead owner's lock, at most a tickTime \
                  later. A worker pings while it holds, unless --renew no. Where / is \
                  not everybody's, name and password of the scheme digest are $ZOOKEEPER_USER and \
                  $ZOOKEEPER_PASSWORD, or those of --credentials. ?tls behind the address asks for \
                  TLS (the server's secureClientPort), ?ca=FILE for TLS with that authority.",
        lock: capabilities!(LockCapabilities::SERVICE; fifo, durable, replicated, clusters, made_before, fenced,
            usual_lease: Some(GRANTED), renews),
        ..Entry::SERVICE
    };

    fn prepare(setup: &Setup<'_>) -> Result<Zookeeper> {
        let asked = setup.lease.unwrap_or(TIMEOUT);
        let named = |places: &str| Address::several(places, None);
        let launch = |count| Launch::members(count, asked);
        let (servers, own, pid) = setup.servers(named, VARIABLES, launch)?;
        let names = Names::new(setup)?;
        let servers = Members::look(servers);
        let mut session = Session::open(servers.all(), asked, &own)?;
        make_containers(&mut session, names, setup.keys)?;
        let told = servers.all().iter().find_map(session::told);
        let version = told
            .as_deref()
            .and_then(|told| session::line(told, "Zookeeper version"));
        let zookeeper = Zookeeper {
            version: version.and_then(crate::login::version),
            timeout: session.timeout,
            servers,
            own,
            names,
            keys: setup.keys,
            asked,
            stays: setup.stays,
            pid,
            tick_ms: pid.map(|_| tick_ms(asked)),
        };
        session.close()?;
        Ok(zookeeper)
    }

    fn join(&self, worker: usize) -> Result<RemoteLock<ZookeeperWire>> {
        let servers = self.servers.for_worker(worker);
        let session = Session::open(&servers, self.asked, &self.own)?;
        let place = (self.stays || servers.len() > 1).then(|| Place {
            servers,
            own: self.own.clone(),
        });
        let timeout_ns = session.timeout.as_nanos() as u64;
        let session_of = (session.identity, timeout_ns);
        let wire = ZookeeperWire::new(self.names, self.keys, session_of, place);
        Ok(RemoteLock::new(Client::new(session.into_stream()?), wire))
    }

    /// Removes the nodes of killed workers, which would otherwise stay until their sessions
    /// end. The server removes the empty containers after about a minute.
    fn remove_leftovers(&self) -> Result<()> {
        let mut session = Session::open(self.servers.all(), self.asked, &self.own)?;
        let mut left: Vec<Vec<u8>> = Vec::new();
        let parent = |key| [b"/", &self.names.name(key)[..]].concat();
        let name = |path: &[u8], out: &mut Vec<u8>| {
            jute::sized(out, |out| out.extend_from_slice(path));
        };
        let list = |key: usize, out: &mut Vec<u8>| {
            name(&parent(key), out);
            out.push(0);
        };
        session.ask(op::GET_CHILDREN, self.keys, list, |key, frame| {
            let mut found = Reader(frame.body);
            if frame.error == 0 {
                let read =
                    found.strings(|child| left.push([&parent(key), &b"/"[..], child].concat()));
                read.ok_or("its list of nodes is cut off")?;
            }
            Ok(())
        })?;
        left.extend((0..self.keys).map(parent));
        let delete = |nth: usize, out: &mut Vec<u8>| {
            name(&left[nth], out);
            jute::int(out, -1);
        };
        session.ask(op::DELETE, left.len(), delete, |nth, frame| {
            match frame.error {
                0 | error::NO_NODE | error::NOT_EMPTY => Ok(()),
                code => {
                    let path = String::from_utf8_lossy(&left[nth]);
                    Err(format!("cannot remove {path}: error {code}"))
                }
            }
        })?;
        session.close()
    }

    fn server(&self) -> Result<Option<ServerFigures>> {
        // It counts packets, not locks.
        Ok(Some(ServerFigures::of_process(self.pid)))
    }

    fn signs(&self) -> Told {
        let (silent, spoke): (Vec<&Address>, Vec<&Address>) = self
            .servers
            .all()
            .iter()
            .partition(|server| !server.accepts());
        let leader = spoke.into_iter().find(|server| {
            let told = session::told(server).unwrap_or_default();
            session::line(&told, "Mode") == Some("leader")
        });
        let silent: Vec<String> = silent.into_iter().map(Address::to_string).collect();
        if silent.len() == self.servers.all().len() {
            return Err(NoSigns::Silent(silent.join(", ")));
        }
        Ok(signs::known([
            (sign::LEADER, leader.map(|leader| leader.to_string().into())),
            (sign::SILENT_MEMBERS, Some(Sign::Texts(silent))),
            (sign::OWN_NAMES, Some(true.into())),
        ]))
    }

    fn facts(&self) -> Facts {
        facts([
            (LEASE_FACT, Some(self.timeout.as_nanos() as f64)),
            // Sessions are ended at the server's ticks.
            (LEASE_LAG_FACT, self.tick_ms.map(|tick| tick as f64 * 1e6)),
            (VERSION_FACT, self.version),
        ])
    }
}

/// The nodes below which workers create theirs: containers, which the server removes by
/// itself when they have been empty for a while.
fn make_containers(session: &mut Session, names: Names, keys: usize) -> Result<()> {
    let fill = |key: usize, out: &mut Vec<u8>| {
        jute::create(out, flags::CONTAINER, |out| {
            out.push(b'/');
            out.extend_from_slice(&names.name(key));
        });
    };
    session.ask(op::CREATE_CONTAINER, keys, fill, |_, frame| {
        match frame.error {
            0 => Ok(()),
            error::NO_AUTH => Err(
                "it lets us create no node below /; set $ZOOKEEPER_USER and $ZOOKEEPER_PASSWORD"
                    .to_owned(),
            ),
            code => Err(format!(
                "it creates no container node: error {code}; jostle needs ZooKeeper 3.5.3 or later"
            )),
        }
    })
}

static PROGRAM: Program = Program {
    file: "zookeeper.jar",
    places: &["/usr/share/java"],
    package: Some("zookeeper"),
    launch_ms: 2_400,
    asks_libc: true,
};

static JAVA: Program = Program {
    file: "java",
    places: &[],
    package: Some("default-jre-headless"),
    launch_ms: 0,
    asks_libc: true,
};

/// One server, as it comes, with room for any number of connections.
#[derive(Debug)]
pub struct Launch {
    /// Its unit of time.
    tick_ms: u64,
    /// Its place in the ensemble, from 0.
    number: usize,
    /// The ports by which each member hears the others: as a follower, and in elections.
    /// Empty: it is alone.
    ports: Vec<(u16, u16)>,
}

/// The unit of time for sessions that live so long.
fn tick_ms(lease: Duration) -> u64 {
    let ticks = lease.as_millis() as u64 / TICKS_OF_LEAST_SESSION;
    ticks.clamp(1, TICK_MS)
}

impl Launch {
    /// The members of an ensemble for sessions that live so long.
    ///
    /// # Errors
    /// No free ports.
    pub fn members(count: usize, lease: Duration) -> Result<Vec<Launch>> {
        let ports = match count {
            0 | 1 => Vec::new(),
            _ => free_ports(2 * count)?,
        };
        let ports: Vec<(u16, u16)> = ports.chunks_exact(2).map(|two| (two[0], two[1])).collect();
        let member = |number| Launch {
            tick_ms: tick_ms(lease),
            number,
            ports: ports.clone(),
        };
        Ok((0..count.max(1)).map(member).collect())
    }

    /// The settings' lines about the ensemble; numbers there begin at 1.
    fn ensemble(&self, host_of: impl Fn(usize) -> Ipv4Addr) -> String {
        let each = self.ports.iter().zip(1..);
        let servers: String = each
            .map(|((follow, elect), number)| {
                let host = host_of(number - 1);
                format!("server.{number}={host}:{follow}:{elect}\n")
            })
            .collect();
        match servers.as_str() {
            "" => servers,
            // A silent leader is given up after as long as by ZooKeeper's sample settings.
            _ => format!(
                "initLimit=20\nsyncLimit={}\n{servers}",
                SYNC_MS.div_ceil(self.tick_ms)
            ),
        }
    }
}

impl LaunchRecipe for Launch {
    fn program(&self) -> &'static Program {
        &PROGRAM
    }

    fn runs_in(&self) -> Option<&'static Program> {
        Some(&JAVA)
    }

    fn files(&self, ground: &Ground) -> Vec<(&'static str, String)> {
        let settings = format!(
            "tickTime={}\ndataDir={}\nclientPortAddress={}\nclientPort={}\n\
             maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n{}",
            self.tick_ms,
            text(&ground.directory),
            ground.host(),
            ground.port,
            self.ensemble(|place| ground.host_of(place))
        );
        // What it logs goes to its output.
        let logs = "log4j.rootLogger=WARN, out\n\
                    log4j.appender.out=org.apache.log4j.ConsoleAppender\n\
                    log4j.appender.out.layout=org.apache.log4j.PatternLayout\n\
                    log4j.appender.out.layout.ConversionPattern=%p %c{1}: %m%n\n";
        vec![
            ("zoo.cfg", settings),
            ("log4j.properties", logs.to_owned()),
            ("myid", format!("{}\n", self.number + 1)),
        ]
    }

    fn arguments(&self, ground: &Ground) -> Words {
        let beside = |name: &str| text(&ground.program.with_file_name(name));
        let places = [
            text(&ground.directory),
            text(&ground.program),
            beside("slf4j-api.jar"),
            beside("slf4j-log4j12.jar"),
            beside("log4j-1.2.jar"),
        ];
        vec![
            // A file in /tmp, which would stay.
            "-XX:-UsePerfData".to_owned(),
            "-cp".to_owned(),
            places.join(":"),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain".to_owned(),
            text(&ground.directory.join("zoo.cfg")),
        ]
    }

    fn leads(&self) -> Option<Leads> {
        Some(|address, _| {
            let told = session::told(&Address::Tcp(address.to_owned()));
            told.is_some_and(|told| session::line(&told, "Mode") == Some("leader"))
        })
    }

    fn ready(&self, ground: &Ground) -> Result<()> {
        let place = Address::Tcp(ground.address());
        Session::of_starting(&place, TIMEOUT)?.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_session_is_shorter_than_the_server_grants() {
        for (lease_s, tick_ms) in [(60, 2_000), (4, 2_000), (2, 1_000), (1, 500)] {
            assert_eq!(super::tick_ms(Duration::from_secs(lease_s)), tick_ms);
        }
    }

    #[test]
    fn members_of_an_ensemble_know_each_other_by_ports_of_their_own() {
        let of = |one: &Launch| one.ensemble(|_| Ipv4Addr::LOCALHOST);
        let alone = Launch::members(1, TIMEOUT).unwrap();
        assert_eq!((alone.len(), of(&alone[0])), (1, String::new()));
        let three = Launch::members(3, TIMEOUT).unwrap();
        assert_eq!(three.len(), 3);
        assert!(three.iter().all(|one| of(one) == of(&three[0])));
        let ports = three[0].ports.iter().flat_map(|(a, b)| [*a, *b]);
        assert_eq!(ports.collect::<std::collections::BTreeSet<u16>>().len(), 6);
        assert_eq!(of(&three[0]).matches("server.").count(), 3);
        let apart = three[0].ensemble(|place| Ipv4Addr::new(198, 18, 0, place as u8 + 1));
        assert!(apart.contains("server.3=198.18.0.3:"), "{apart}");
    }
}
