//! `redis`: the lock that Redis's documentation describes for one instance ("Distributed
//! Locks with Redis"): SET with NX, a random value and a lease; released by a script that
//! deletes the key only if it still holds the value. The recipe has no queue: a client that
//! finds the lock taken tries again.

use crate::address::Address;
use crate::argument;
use crate::keeping::whole_millis;
use crate::login::{self, Credentials};
use crate::names::Names;
use crate::program::{Ground, LaunchRecipe, Program, Words};
use crate::remote::{Client, RemoteLock, info_figure, info_text};
use crate::signs::{self, Signs};
use crate::strangers::strangers;
use crate::table::{Entry, Family, LockCapabilities};
use crate::tls::STACK;
use crate::wire::{Answer, Asking, Reply, Request, Wire, refused, wrong_kind};
use crate::{
    CallError, Dialled, Keeping, LEASE_FACT, Mode, ServerFigures, Setup, SetupError, Target,
    VERSION_FACT,
};
use jostle_resp::request::encode;
use jostle_sys::files::Errno;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Time between two tries. The documentation asks for "a random delay". A delay of the
/// order of a hand-off keeps polling from dominating the measurement.
const POLL_NS: u64 = 1_000_000;

/// The lease: the documentation's example.
const LEASE_MS: u64 = 30_000;
pub(crate) const USUAL_LEASE: Duration = Duration::from_millis(LEASE_MS);

const SCRIPT: &str = "EVALSHA";

/// The lease of locks that are held while a million others are acquired, and that nobody
/// renews: twice the default limit on a run's length.
const LONG_LEASE_MS: u64 = 600_000;

/// As redis-cli names a server with TLS.
pub(crate) const TLS_SCHEME: &str = "rediss";

/// Keys per request when a run's keys are removed.
const REMOVED_AT_ONCE: usize = 1_000;

/// Deletes KEYS[1] if it still holds ARGV[1].
const RELEASE: &[u8] =
    b"if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// Gives KEYS[1] a lease of ARGV[2] ms from now on if it still holds ARGV[1].
const RENEW: &[u8] =
    b"if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

/// A Redis.
#[derive(Debug)]
pub struct Redis {
    server: Server,
    run: u64,
}

/// A server, and the names and the lease of this run's locks on it.
pub(crate) struct Server {
    address: Address,
    own: Credentials,
    pub(crate) names: Names,
    keys: usize,
    pub(crate) lease_ms: u64,
    version: Option<f64>,
}

/// Without the password.
impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redis at {}", self.address)
    }
}

/// One worker's side of the recipe.
#[derive(Debug)]
pub struct RedisWire {
    names: Names,
    /// In digits.
    lease_ms: Vec<u8>,
    keeping: Keeping,
    value: Vec<u8>,
    script: Vec<u8>,
    renewal: Vec<u8>,
}

impl Target for Redis {
    type Lock = RemoteLock<RedisWire>;

    const THREAD_STACK: usize = STACK;

    const ENTRY: Entry = Entry {
        name: "redis",
        aliases: &[TLS_SCHEME],
        argument: Some("//HOST:PORT[?tls]"),
        check_argument: |argument| argument::service_or(argument, Some(TLS_SCHEME)),
        family: Family::Service,
        summary: "Redis by the recipe of its documentation: SET NX PX, release by a script",
        details: "Without an address, a server launched for the run (Debian package redis-server), which \
                  keeps nothing on disk. SET key value NX PX 30000 with a value of each worker's own; released by a script \
                  that compares and deletes. A worker that finds the lock taken asks again every \
                  1 ms (`poll_ns` in the result): there is no queue, and none that asks later is \
                  kept behind. Durable and replicated as the server is set up to be; not fenced. \
                  The lease frees a dead owner's lock after 30 s (in `hold` after 600 s), and lets a \
                  second owner in where the first holds longer than that. `hold --for` renews it every \
                  10 s by a script that compares and sets the expiry. The password of a server \
                  that wants one is $REDISCLI_AUTH, or that of --credentials. rediss://HOST:PORT asks for TLS, \
                  ?ca=FILE behind it for TLS with that authority.",
        lock: LockCapabilities {
            timeout: true,
            excludes: true,
            pipeline: true,
            remote: true,
            tasks: true,
            usual_lease: Some(USUAL_LEASE),
            answering: Some("echo"),
            ..LockCapabilities::NONE
        },
        no_threads: None,
    };

    fn reach(argument: Option<&str>, file: Option<&Path>) -> Result<(), SetupError> {
        reach(argument, file)
    }

    fn launches() -> Option<&'static Program> {
        Some(&PROGRAM)
    }

    fn prepare(setup: &Setup<'_>) -> Result<Redis, SetupError> {
        Ok(Redis {
            server: Server::prepare(setup)?,
            run: setup.seed,
        })
    }

    fn join(&self, worker: usize) -> Result<RemoteLock<RedisWire>, SetupError> {
        let mut client = self.server.client()?;
        let wire = self.wire(worker, &mut client)?;
        Ok(RemoteLock::new(client, wire))
    }

    fn dial(&self, worker: usize) -> Result<Option<Dialled>, SetupError> {
        let mut client = self.server.client()?;
        let wire = Box::new(self.wire(worker, &mut client)?);
        let stream = client.into_stream();
        Ok(Some(Dialled { stream, wire }))
    }

    fn remove_leftovers(&self) -> Result<(), SetupError> {
        self.server.remove_leftovers()
    }

    fn strangers(&self) -> Vec<String> {
        self.server.strangers()
    }

    fn signs(&self) -> Signs {
        self.server.signs()
    }

    fn facts(&self) -> BTreeMap<String, f64> {
        let poll = ("poll_ns".to_owned(), POLL_NS as f64);
        self.server.facts().into_iter().chain([poll]).collect()
    }

    fn server(&self) -> Result<Option<ServerFigures>, SetupError> {
        self.server.figures().map(Some)
    }
}

impl Redis {
    fn wire(&self, worker: usize, client: &mut Client) -> Result<RedisWire, SetupError> {
        Ok(RedisWire {
            names: self.server.names,
            lease_ms: self.server.lease_ms.to_string().into_bytes(),
            keeping: self.server.keeping(),
            value: format!("{:016x}{worker:08x}", self.run).into_bytes(),
            script: client.ask(&[b"SCRIPT", b"LOAD", RELEASE])?,
            renewal: client.ask(&[b"SCRIPT", b"LOAD", RENEW])?,
        })
    }
}

/// Checks that the server that the user named accepts a connection from us.
pub(crate) fn reach(argument: Option<&str>, file: Option<&Path>) -> Result<(), SetupError> {
    let Some(place) = argument else {
        return Ok(());
    };
    let mut client = Client::admitted(&address(place)?, &Credentials::find(file, VARIABLES)?)?;
    client.ask(&[b"PING"]).map(drop)
}

impl Server {
    pub(crate) fn prepare(setup: &Setup<'_>) -> Result<Server, SetupError> {
        let file = setup.credentials;
        reach(setup.argument, file)?;
        let (address, own) = match setup.argument {
            Some(place) => (address(place)?, Credentials::find(file, VARIABLES)?),
            None => {
                let launched = setup.launcher.follow(&Launch::of(setup))?;
                (
                    Address::Tcp(launched.address),
                    of_launched(&launched.secret),
                )
            }
        };
        Ok(Server {
            version: version(&address, &own),
            address,
            own,
            names: Names::new(setup)?,
            keys: setup.keys,
            lease_ms: match setup.lease {
                Some(lease) => whole_millis(lease),
                None if setup.holds_many && !setup.kept => LONG_LEASE_MS,
                None => LEASE_MS,
            },
        })
    }

    /// Each lock by itself, by a script.
    pub(crate) fn keeping(&self) -> Keeping {
        Keeping::each(SCRIPT, self.lease_ms * 1_000_000)
    }

    pub(crate) fn client(&self) -> Result<Client, SetupError> {
        Client::admitted(&self.address, &self.own)
    }

    /// Removes the keys of killed workers, which would otherwise stay until their leases
    /// end.
    pub(crate) fn remove_leftovers(&self) -> Result<(), SetupError> {
        let mut client = self.client()?;
        for first in (0..self.keys).step_by(REMOVED_AT_ONCE) {
            let last = self.keys.min(first + REMOVED_AT_ONCE);
            let names: Vec<_> = (first..last).map(|key| self.names.name(key)).collect();
            let mut words: Vec<&[u8]> = vec![b"UNLINK"];
            words.extend(names.iter().map(|name| name.as_slice()));
            client.command(&words)?;
        }
        Ok(())
    }

    pub(crate) fn facts(&self) -> BTreeMap<String, f64> {
        let lease = (LEASE_FACT.to_owned(), self.lease_ms as f64 * 1e6);
        let version = self
            .version
            .map(|version| (VERSION_FACT.to_owned(), version));
        version.into_iter().chain([lease]).collect()
    }

    pub(crate) fn strangers(&self) -> Vec<String> {
        strangers(self.client())
    }

    /// As far as INFO has them: the server's time only since version 7.
    pub(crate) fn signs(&self) -> Signs {
        let info = self
            .client()
            .and_then(|mut client| client.ask(&[b"INFO", b"all"]));
        let info = info.unwrap_or_default();
        // A DEL of another client cannot be told from those of the release scripts.
        let calls = |name: &str| {
            let told = info_text(&info, name)?.strip_prefix("calls=")?;
            told.split(',').next()?.parse::<u64>().ok()
        };
        let flushes = ["cmdstat_flushall", "cmdstat_flushdb"].map(calls);
        let removed: u64 = flushes.into_iter().flatten().sum();
        let text = |name: &str| info_text(&info, name).map(str::to_owned);
        let wall_ms = info_figure(&info, "server_time_usec").map(|us| signs::ahead(us / 1_000));
        let known = [
            (signs::STARTED, text("run_id")),
            (signs::EVICTED, text("evicted_keys")),
            (
                signs::REMOVED,
                (!info.is_empty()).then(|| removed.to_string()),
            ),
            (signs::WALL_CLOCK, wall_ms),
        ];
        let known = known.into_iter();
        known
            .filter_map(|(sign, value)| Some((sign, value?)))
            .collect()
    }

    pub(crate) fn figures(&self) -> Result<ServerFigures, SetupError> {
        let info = self.client()?.ask(&[b"INFO"])?;
        Ok(ServerFigures {
            // Redis counts commands, not locks.
            grants: None,
            pid: self.address.process(&info),
            memory_bytes: info_figure(&info, "used_memory"),
            ..ServerFigures::default()
        })
    }
}

/// The version that a server reports; None if it does not permit the query.
fn version(address: &Address, own: &Credentials) -> Option<f64> {
    let mut client = Client::admitted(address, own).ok()?;
    let info = client.ask(&[b"INFO", b"server"]).ok()?;
    login::version(info_text(&info, "redis_version")?)
}

/// The variables with user and password; the password's is that of redis-cli.
const VARIABLES: [&str; 2] = ["REDISCLI_USER", "REDISCLI_AUTH"];

fn of_launched(secret: &str) -> Credentials {
    Credentials {
        user: None,
        password: Some(secret.to_owned()),
    }
}

fn address(place: &str) -> Result<Address, SetupError> {
    Address::one(place, Some(TLS_SCHEME)).map_err(SetupError)
}

pub(crate) static PROGRAM: Program = Program {
    file: "redis-server",
    places: &[],
    package: Some("redis-server"),
    launch_ms: 100,
};

/// A server with room for the workers, which keeps nothing on disk.
#[derive(Debug)]
pub struct Launch {
    /// Connections that it takes.
    pub connections: usize,
}

impl Launch {
    fn of(setup: &Setup<'_>) -> Launch {
        /// Its own limit where nothing is said.
        const USUAL: usize = 10_000;
        /// Beside the workers'.
        const SPARE: usize = 100;
        Launch {
            connections: USUAL.max(setup.workers + SPARE),
        }
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

    fn files(&self, ground: &Ground) -> Vec<(&'static str, String)> {
        let settings = format!(
            "bind 127.0.0.1\nport {}\nrequirepass {}\nmaxclients {}\nsave \"\"\nappendonly no\n",
            ground.port, ground.secret, self.connections
        );
        vec![("redis.conf", settings)]
    }

    fn arguments(&self, _ground: &Ground) -> Words {
        vec!["redis.conf".to_owned()]
    }

    fn ready(&self, ground: &Ground) -> Result<(), SetupError> {
        let address = Address::Tcp(ground.address());
        let mut client = Client::admitted(&address, &of_launched(&ground.secret))?;
        client.ask(&[b"PING"]).map(drop)
    }
}

impl Wire for RedisWire {
    fn name(&self, request: Request) -> &'static str {
        match request {
            Request::Acquire => "SET",
            Request::Release => SCRIPT,
        }
    }

    #[inline]
    fn acquire(&mut self, key: usize, _mode: Mode, _asking: Asking, out: &mut Vec<u8>) {
        let name = self.names.name(key);
        let words: [&[u8]; 6] = [b"SET", &name, &self.value, b"NX", b"PX", &self.lease_ms];
        encode(out, &words);
    }

    #[inline]
    fn release(&mut self, key: usize, _mode: Mode, out: &mut Vec<u8>) {
        let name = self.names.name(key);
        let words: [&[u8]; 5] = [b"EVALSHA", &self.script, b"1", &name, &self.value];
        encode(out, &words);
    }

    #[inline]
    fn acquired(&mut self, _key: usize, reply: Reply<'_>) -> Result<Answer, CallError> {
        match reply {
            Reply::Text(b"OK") => Ok(Answer::Granted),
            Reply::Nil => Ok(Answer::Taken),
            Reply::Error(text) => Err(refused("SET", text)),
            Reply::Text(_) | Reply::Integer(_) => Err(wrong_kind("SET")),
        }
    }

    #[inline]
    fn released(&mut self, reply: Reply<'_>) -> Result<(), CallError> {
        match reply {
            Reply::Integer(0) => Err(LAPSED),
            Reply::Integer(1) => Ok(()),
            Reply::Error(text) => Err(refused(SCRIPT, text)),
            _ => Err(wrong_kind(SCRIPT)),
        }
    }

    fn keeping(&self) -> Option<Keeping> {
        Some(self.keeping)
    }

    fn renew(&mut self, key: usize, out: &mut Vec<u8>) {
        let name = self.names.name(key);
        let words: [&[u8]; 6] = [
            b"EVALSHA",
            &self.renewal,
            b"1",
            &name,
            &self.value,
            &self.lease_ms,
        ];
        encode(out, &words);
    }

    fn renewed(&mut self, _key: usize, reply: Reply<'_>) -> Result<bool, CallError> {
        match reply {
            Reply::Integer(kept @ (0 | 1)) => Ok(kept == 1),
            Reply::Error(text) => Err(refused(SCRIPT, text)),
            _ => Err(wrong_kind(SCRIPT)),
        }
    }

    fn polls_every_ns(&self) -> Option<u64> {
        Some(POLL_NS)
    }
}

/// The key no longer existed when we released it.
const LAPSED: CallError = CallError {
    call: SCRIPT,
    errno: Errno::TIMEDOUT.raw_os_error(),
    said: Some("the lease was over before the release"),
};
