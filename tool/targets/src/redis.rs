//! `redis`: the lock that Redis's documentation describes for one instance ("Distributed
//! Locks with Redis"): SET with NX, a random value and a lease; released by a script that
//! deletes the key only if it still holds the value. The recipe has no queue: a client that
//! finds the lock taken tries again.
//!
//! `sentinels` finds the primary of a group, `launch` starts a server or a group for the run, and
//! `wire` is a worker's side of the recipe.

mod launch;
mod sentinels;
mod wire;

use crate::holders::{self, Slowest};
use crate::keeping::whole_millis;
use crate::login;
use crate::names;
use crate::prelude::*;
use crate::remote::{info_figure, info_text};
use crate::signs::{NoSigns, Told};
use crate::strangers::strangers;
use jostle_sys::clock::monotonic;
pub use launch::Launch;
pub use sentinels::Sentinels;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
pub use wire::RedisWire;

/// Time between two tries. The documentation asks for "a random delay". A delay of the
/// order of a hand-off keeps polling from dominating the measurement.
const POLL_NS: u64 = 1_000_000;

/// The lease: the documentation's example.
pub(crate) const USUAL_LEASE: Duration = Duration::from_secs(30);

/// The lease of locks that are held while a million others are acquired, and that nobody
/// renews: twice the default limit on a run's length.
const LONG_LEASE: Duration = Duration::from_secs(600);

/// Its own limit where nothing is said.
const USUAL_CONNECTIONS: usize = 10_000;

/// As redis-cli names a server with TLS.
pub(crate) const TLS_SCHEME: &str = "rediss";

/// Keys per request when a run's keys are removed.
const REMOVED_AT_ONCE: usize = 1_000;

/// By what recipe workers lock.
pub trait Recipe: std::fmt::Debug + Sized + Sync + 'static {
    /// A worker's handle.
    type Lock: Lock;

    /// Its line in the table.
    const ENTRY: Entry;

    /// Between two tries.
    const POLL_NS: Option<u64>;

    /// Keys that each release deletes.
    const DELETIONS: u64;

    /// Whether a key's value says whose the lock is.
    const HAS_VALUES: bool = false;

    /// As [`Target::join`].
    ///
    /// # Errors
    /// In words for the user, with the remedy.
    fn join(server: &RedisTarget<Self>, worker: usize) -> Result<Self::Lock>;
}

/// A Redis on which workers lock by a recipe, and the names and the lease of this run's
/// locks.
#[derive(Debug)]
pub struct RedisTarget<R> {
    /// To the server that was the primary at the start, where it is one of a group.
    login: Login,
    group: Option<Arc<Sentinels>>,
    /// Replicas that must have what is granted.
    replicas: usize,
    pub(crate) names: Names,
    keys: usize,
    pub(crate) lease_ms: u64,
    run: u64,
    version: Option<f64>,
    /// When a key was put beside the locks, which tells whether others remove keys of ours;
    /// None without one.
    marked_ns: Option<u64>,
    /// The latest entry of its slow log before the run; None where it is not shown.
    logged: Option<i64>,
    recipe: PhantomData<R>,
}

/// Locked by the recipe of its documentation.
pub type Redis = RedisTarget<Documented>;

/// The recipe of its documentation.
#[derive(Debug)]
pub struct Documented;

impl Recipe for Documented {
    type Lock = RemoteLock<RedisWire>;

    const ENTRY: Entry = Entry {
        name: "redis",
        aliases: &[TLS_SCHEME, sentinels::SCHEME],
        check_argument: sentinels::check,
        reach,
        program: Some(&launch::PROGRAM),
        summary: "Redis by the recipe of its documentation: SET NX PX, release by a script",
        details: "Without an address, a server launched for the run (Debian package redis-server), which \
                  keeps nothing on disk; with --members 3 a primary, two replicas and three Sentinels. SET key value NX PX 30000 with a value of each worker's own; released by a script \
                  that compares and deletes. A worker that finds the lock taken asks again every \
                  1 ms (`poll_ns` in the result): there is no queue, and none that asks later is \
                  kept behind. Durable and replicated as the server is set up to be; not fenced. \
                  The lease frees a dead owner's lock after 30 s (in `hold` after 600 s), and lets a \
                  second owner in where the first holds longer than that. `hold --for` renews it every \
                  10 s by a script that compares and sets the expiry. The password of a server \
                  that wants one is $REDISCLI_AUTH, or that of --credentials. rediss://HOST:PORT asks for TLS, \
                  ?ca=FILE behind it for TLS with that authority. redis+sentinel://NAME@HOST:PORT,HOST:PORT \
                  names the Sentinels of a group NAME: a worker asks them for the primary when it \
                  connects, and again when its connection has failed or was silent for 2 s. \
                  Replication is asynchronous: a failover may lose a lock that is held, and let a \
                  second owner in. With --wait-replicas 1 a worker sends WAIT after its SET, and gives \
                  the lock back where no replica has it within 1 s; a failover to another replica \
                  may lose that lock, too.",
        lock: capabilities!(LockCapabilities::SERVICE; pipeline, usual_lease: Some(USUAL_LEASE),
            clusters, awaits_replicas, answering: Some("echo")),
        ..Entry::SERVICE
    };

    const POLL_NS: Option<u64> = Some(POLL_NS);

    const DELETIONS: u64 = 1;

    const HAS_VALUES: bool = true;

    fn join(server: &Redis, worker: usize) -> Result<RemoteLock<RedisWire>> {
        let mut client = server.client()?;
        let value = format!("{}{worker:08x}", server.value());
        let wire = RedisWire::new(server, value.into_bytes(), &mut client)?;
        Ok(RemoteLock::new(client, wire))
    }
}

/// Checks that the server that the user named accepts a connection from us.
fn reach(place: &str, file: Option<&Path>) -> Result<()> {
    let mut client = match Sentinels::named(place, file)? {
        Some(group) => group.find()?,
        None => Client::admitted(&named(place, file)?)?,
    };
    client.ask(&[b"PING"]).map(drop)
}

impl<R: Recipe> RedisTarget<R> {
    pub(crate) fn client(&self) -> Result<Client> {
        match &self.group {
            Some(group) => group.find(),
            None => Client::admitted(&self.login),
        }
    }

    /// Refuses to wait for more replicas than there are.
    fn has_replicas(&self) -> Result<()> {
        let info = self.client()?.ask(&[b"INFO", b"replication"])?;
        match info_figure(&info, "connected_slaves").unwrap_or(0) {
            found if found >= self.replicas as u64 => Ok(()),
            found => Err(SetupError(format!(
                "--wait-replicas {}: {} has {found} replicas; connect more, or wait for fewer",
                self.replicas, self.login.address
            ))),
        }
    }

    /// Behind the last lock's.
    fn marker(&self) -> [u8; names::BYTES] {
        self.names.name(self.keys)
    }

    fn put_marker(&self) -> Option<u64> {
        let lease_ms = LONG_LEASE.as_millis().to_string();
        let words: [&[u8]; 5] = [b"SET", &self.marker(), b"", b"PX", lease_ms.as_bytes()];
        let put = self.client().and_then(|mut client| client.ask(&words));
        put.is_ok_and(|said| said == b"OK").then(monotonic)
    }

    /// The prefix of the values of all workers of this host.
    fn value(&self) -> String {
        format!("{:016x}", self.run)
    }

    fn slowest(&self, client: &mut Client, since: i64) -> Option<Slowest> {
        holders::slowest(client, since, self.names.prefix())
    }

    /// Whether the marker is there; None without one, and when its own lease may be over.
    fn has_marker(&self, client: &mut Client) -> Option<bool> {
        let put_ns = self.marked_ns?;
        let found = client.command(&[b"GET", &self.marker()]).ok()?;
        let is_sure = monotonic() - put_ns < LONG_LEASE.as_nanos() as u64 / 2;
        is_sure.then_some(found.is_some())
    }
}

impl<R: Recipe> Target for RedisTarget<R> {
    type Lock = R::Lock;

    const ENTRY: Entry = R::ENTRY;

    fn prepare(setup: &Setup<'_>) -> Result<RedisTarget<R>> {
        let connections = setup.connections(USUAL_CONNECTIONS);
        let group = match setup.argument {
            Some(place) => Sentinels::named(place, setup.credentials)?,
            None if setup.members > 1 => {
                let members = Launch::group(setup.members, connections)?;
                let members: Vec<&dyn LaunchRecipe> = members.iter().map(|one| one as _).collect();
                Some(Sentinels::of_launched(
                    &setup.launcher.follow_all(&members)?,
                ))
            }
            None => None,
        };
        let login = match &group {
            Some(group) => Login {
                address: group.primary()?,
                own: group.own.clone(),
                path: None,
            },
            None => setup.server(named, &Launch::alone(connections), None)?.0,
        };
        let server = RedisTarget {
            version: version(&login),
            login,
            group: group.map(Arc::new),
            replicas: setup.wait_replicas,
            names: Names::new(setup)?,
            keys: setup.keys,
            lease_ms: whole_millis(setup.lease_or(USUAL_LEASE, LONG_LEASE)),
            run: setup.seed,
            marked_ns: None,
            logged: None,
            recipe: PhantomData,
        };
        // It may lack what the recipe needs.
        R::join(&server, 0)?;
        if server.replicas > 0 {
            server.has_replicas()?;
        }
        let log = |mut client: Client| server.slowest(&mut client, i64::MAX);
        let logged = server.client().ok().and_then(log);
        Ok(RedisTarget {
            logged: logged.map(|log| log.last),
            // Hosts end at different times, and have the same names.
            marked_ns: match setup.common_name {
                None => server.put_marker(),
                Some(_) => None,
            },
            ..server
        })
    }

    fn join(&self, worker: usize) -> Result<R::Lock> {
        R::join(self, worker)
    }

    /// Removes the keys of killed workers, which would otherwise stay until their leases
    /// end.
    fn remove_leftovers(&self) -> Result<()> {
        let mut client = self.client()?;
        // The marker stands behind the last lock's.
        let keys = self.keys + 1;
        for first in (0..keys).step_by(REMOVED_AT_ONCE) {
            let last = keys.min(first + REMOVED_AT_ONCE);
            let names: Vec<_> = (first..last).map(|key| self.names.name(key)).collect();
            let mut words: Vec<&[u8]> = vec![b"UNLINK"];
            words.extend(names.iter().map(|name| name.as_slice()));
            client.command(&words)?;
        }
        Ok(())
    }

    fn facts(&self) -> Facts {
        facts([
            (LEASE_FACT, Some(self.lease_ms as f64 * 1e6)),
            (VERSION_FACT, self.version),
            ("poll_ns", R::POLL_NS.map(|ns| ns as f64)),
        ])
    }

    fn strangers(&self) -> Result<Vec<String>, NoSigns> {
        strangers(&self.login.address, self.client())
    }

    /// As far as INFO has them: the server's time only since version 7.
    fn signs(&self) -> Told {
        signs::asked(&self.login.address, || {
            let group = self.group.as_ref();
            let leader = group.map(|group| group.primary()).transpose()?;
            let is_same = leader.iter().all(|leader| *leader == self.login.address);
            let leader = leader.map(|leader| leader.to_string().into());
            if !is_same {
                // What another primary has counted tells nothing about the run.
                return Ok(signs::known([(sign::LEADER, leader)]));
            }
            let mut client = self.client()?;
            let asked_ns = monotonic();
            let info = client.ask(&[b"INFO", b"all"])?;
            let calls = |names: &[&str]| -> Option<Sign> {
                let of = |name| {
                    let told = info_text(&info, name)?.strip_prefix("calls=")?;
                    told.split(',').next()?.parse::<u64>().ok()
                };
                // A command that was never called has no line.
                Some(names.iter().copied().filter_map(of).sum::<u64>().into())
            };
            // Before version 7 the parts of a command are not counted.
            let parts =
                |name| calls(&[name]).filter(|_| info_text(&info, "cmdstat_client").is_none());
            let text = |name| info_text(&info, name).map(|text| text.to_owned().into());
            let number = |name| info_figure(&info, name).map(Sign::from);
            let since = |logged| self.slowest(&mut client, logged);
            // An empty log may be one that is not kept.
            let slowest = self.logged.and_then(since);
            let slowest = slowest.filter(|slowest| slowest.last >= 0);
            let slow_ms = slowest.as_ref().map(|slowest| slowest.ms);
            let command = slowest.filter(|slowest| slowest.ms > 0);
            // A replica has its master's keys.
            let is_own = info_text(&info, "role") != Some("slave");
            let has_marker = self.has_marker(&mut client).filter(|_| is_own);
            let wall_us = info_figure(&info, "server_time_usec");
            let wall_ms = wall_us.map(|us| signs::ahead(asked_ns, us / 1_000));
            Ok(signs::known([
                (sign::LEADER, leader),
                (sign::LIFE, text("run_id")),
                (sign::UPTIME_S, number("uptime_in_seconds")),
                (sign::EVICTED, number("evicted_keys")),
                (
                    sign::FLUSHED,
                    calls(&["cmdstat_flushall", "cmdstat_flushdb"]),
                ),
                (sign::DELETED, calls(&["cmdstat_del", "cmdstat_unlink"])),
                (sign::DELETED_EACH, Some(R::DELETIONS.into())),
                (sign::MARKER, has_marker.map(Sign::from)),
                (sign::WALL_CLOCK_MS, wall_ms),
                (sign::LEASE_BY_CLOCK_MS, Some(self.lease_ms.into())),
                (sign::OWN_NAMES, Some(true.into())),
                (sign::PAUSED, parts("cmdstat_client|pause")),
                (sign::KILLED, parts("cmdstat_client|kill")),
                (sign::SLOW_MS, slow_ms.map(Sign::from)),
                (sign::SLOW_COMMAND, command.map(|slow| slow.command.into())),
            ]))
        })
    }

    fn holders(&self, connection: &mut Option<Client>) -> Told {
        if !R::HAS_VALUES {
            return Err(NoSigns::NotAsked);
        }
        let keys = 0..self.keys.min(holders::AT_MOST);
        let keys: Vec<_> = keys.map(|key| self.names.name(key)).collect();
        let open = || self.client();
        signs::asked_in_time(&self.login.address, connection, open, |client| {
            let found = holders::of_redis(client, &keys, self.value().as_bytes())?;
            Ok(signs::known([(
                sign::HOLDERS,
                Some(Sign::Processes(found)),
            )]))
        })
    }

    fn finish(&self) -> Result<()> {
        if self.marked_ns.is_some() {
            // It ends by itself.
            let removed = self
                .client()
                .and_then(|mut client| client.command(&[b"UNLINK", &self.marker()]));
            drop(removed);
        }
        Ok(())
    }

    fn server(&self) -> Result<Option<ServerFigures>> {
        let info = self.client()?.ask(&[b"INFO"])?;
        Ok(Some(ServerFigures {
            // Redis counts commands, not locks.
            memory_bytes: info_figure(&info, "used_memory"),
            ..ServerFigures::of_process(self.login.address.process(&info))
        }))
    }
}

/// The version that a server reports; None if it does not permit the query.
fn version(login: &Login) -> Option<f64> {
    let info = Client::admitted(login).and_then(|mut client| client.ask(&[b"INFO", b"server"]));
    let info = info.ok()?;
    login::version(info_text(&info, "redis_version")?)
}

/// The variables with user and password; the password's is that of redis-cli.
const VARIABLES: [&str; 2] = ["REDISCLI_USER", "REDISCLI_AUTH"];

pub(crate) fn named(place: &str, file: Option<&Path>) -> Result<Login> {
    Login::named(place, Some(TLS_SCHEME), file, VARIABLES)
}
