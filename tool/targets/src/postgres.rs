//! `postgres`: PostgreSQL's advisory locks of a session, `pg_advisory_lock(bigint)`, on
//! a connection for each worker. Prepared statements, one round trip for each call.
//!
//! `wire` has the protocol, `session` the start of a connection.

pub(crate) mod session;
pub(crate) mod wire;

use crate::address::Address;
use crate::login::Login;
use crate::names::Names;
use crate::program::{Ground, LaunchRecipe, Program, Words, text};
use crate::remote::{Client, RemoteLock};
use crate::signs::{self, Signs};
use crate::table::{Entry, Family, LockCapabilities};
use crate::tls::STACK;
use crate::{Dialled, ServerFigures, Setup, SetupError, Target};
use session::{Opened, Statement};
use std::collections::BTreeMap;
use std::path::Path;
use wire::{Asks, PostgresWire};

/// The variables with user, password and database, those of psql.
const VARIABLES: [&str; 3] = ["PGUSER", "PGPASSWORD", "PGDATABASE"];

/// Who owns a database that is made for a run.
const OWNER: &str = "jostle";
/// A database that every server has.
const DATABASE: &str = "postgres";

/// Connections beside the workers': ours, and those that the server keeps for its
/// administrators.
const SPARE_CONNECTIONS: usize = 10;

/// What both targets are.
pub(crate) const LOCK: LockCapabilities = LockCapabilities {
    shared: true,
    timeout: true,
    excludes: true,
    survives_owner: true,
    fifo: true,
    pipeline: true,
    remote: true,
    tasks: true,
    ..LockCapabilities::NONE
};

/// A PostgreSQL.
#[derive(Debug)]
pub struct Postgres(Server);

impl Target for Postgres {
    type Lock = RemoteLock<PostgresWire>;

    const THREAD_STACK: usize = STACK;

    const ENTRY: Entry = Entry {
        name: "postgres",
        aliases: &[],
        argument: Some("//USER@HOST:PORT/DATABASE"),
        check_argument,
        family: Family::Service,
        summary: "PostgreSQL's advisory locks: pg_advisory_lock on a session for each worker",
        details: "Without an address, a server launched for the run (Debian package postgresql). \
                  pg_advisory_lock and pg_advisory_unlock of a bigint, as prepared statements, one \
                  round trip for each; --try by pg_try_advisory_lock, --acquire-timeout by \
                  lock_timeout. The server queues; a lock goes with its connection, and a \
                  connection that a pooler or proxy drops loses it unnoticed. Neither durable nor \
                  replicated nor fenced. User, password and database are those of the address, else \
                  $PGUSER, $PGPASSWORD and $PGDATABASE. ?sslmode=verify-full behind the database asks for TLS, \
                  ?sslrootcert=FILE for TLS with that authority.",
        lock: LOCK,
        no_threads: None,
    };

    fn reach(argument: Option<&str>, file: Option<&Path>) -> Result<(), SetupError> {
        reach(argument, file)
    }

    fn launches() -> Option<&'static Program> {
        Some(&PROGRAM)
    }

    fn prepare(setup: &Setup<'_>) -> Result<Postgres, SetupError> {
        Server::prepare(setup).map(Postgres)
    }

    fn join(&self, _worker: usize) -> Result<RemoteLock<PostgresWire>, SetupError> {
        self.0.join(Asks::AndWaits)
    }

    fn dial(&self, _worker: usize) -> Result<Option<Dialled>, SetupError> {
        self.0.dial(Asks::AndWaits)
    }

    fn server(&self) -> Result<Option<ServerFigures>, SetupError> {
        Ok(Some(self.0.figures()))
    }

    fn signs(&self) -> crate::signs::Signs {
        self.0.signs()
    }

    fn facts(&self) -> BTreeMap<String, f64> {
        self.0.facts()
    }
}

/// Refuses an argument that is not an address.
pub(crate) fn check_argument(argument: Option<&str>) -> Result<(), String> {
    argument.map_or(Ok(()), |place| Login::parse(place).map(drop))
}

/// Checks that the server that the user named accepts a connection from us.
pub(crate) fn reach(argument: Option<&str>, file: Option<&Path>) -> Result<(), SetupError> {
    argument.map_or(Ok(()), |place| {
        session::open(&named(place, file)?).map(drop)
    })
}

fn named(place: &str, file: Option<&Path>) -> Result<Login, SetupError> {
    Login::found(place, file, VARIABLES)
}

/// A server, and the numbers of this run's locks on it.
#[derive(Debug)]
pub(crate) struct Server {
    login: Login,
    names: Names,
    /// Its first process, where it was launched.
    pid: Option<u32>,
    version: Option<f64>,
}

impl Server {
    pub(crate) fn prepare(setup: &Setup<'_>) -> Result<Server, SetupError> {
        let (login, pid) = match setup.argument {
            Some(place) => (named(place, setup.credentials)?, None),
            None => {
                let launched = setup.launcher.follow(&Launch::of(setup))?;
                (
                    of_launched(&launched.address, &launched.secret),
                    Some(launched.pid),
                )
            }
        };
        let Opened {
            mut client,
            version,
            ..
        } = session::open(&login)?;
        if pid.is_none() {
            has_room(&mut client, setup.workers)?;
        }
        Ok(Server {
            login,
            names: Names::new(setup)?,
            pid,
            version,
        })
    }

    fn client(&self, asks: Asks) -> Result<(Client, PostgresWire), SetupError> {
        let mut client = session::open(&self.login)?.client;
        session::prepare(&mut client, &wire::STATEMENTS)?;
        Ok((client, PostgresWire::new(self.names, asks)))
    }

    pub(crate) fn join(&self, asks: Asks) -> Result<RemoteLock<PostgresWire>, SetupError> {
        let (client, wire) = self.client(asks)?;
        Ok(RemoteLock::new(client, wire))
    }

    pub(crate) fn dial(&self, asks: Asks) -> Result<Option<Dialled>, SetupError> {
        let (client, wire) = self.client(asks)?;
        Ok(Some(Dialled {
            stream: client.into_stream(),
            wire: Box::new(wire),
        }))
    }

    pub(crate) fn figures(&self) -> ServerFigures {
        ServerFigures {
            // PostgreSQL counts transactions, not locks.
            pid: self.pid,
            ..ServerFigures::default()
        }
    }

    /// Who answers is no PostgreSQL if the process that serves the session is another than it
    /// says.
    fn told(&self) -> Result<Signs, SetupError> {
        const ASKED: Statement = Statement {
            name: "signs",
            query: "select pg_backend_pid() || ' ' || (extract(epoch from clock_timestamp()) * \
                    1000)::bigint || ' ' || pg_postmaster_start_time()",
        };
        let mut opened = session::open(&self.login)?;
        session::prepare(&mut opened.client, &[ASKED])?;
        let said = session::ask(&mut opened.client, &ASKED)?;
        let mut words = said.splitn(3, ' ');
        let mut next = || words.next().unwrap_or_default().to_owned();
        let (process, wall_ms, started) = (next(), next(), next());
        let other = opened.backend.is_some_and(|pid| pid.to_string() != process);
        let pooler = if other { "a pooler" } else { "" };
        let wall_ms = wall_ms.parse().ok().map(signs::ahead);
        Ok([
            Some((signs::STARTED, started)),
            Some((signs::POOLER, pooler.to_owned())),
            wall_ms.map(|ms| (signs::WALL_CLOCK, ms)),
        ]
        .into_iter()
        .flatten()
        .collect())
    }

    pub(crate) fn signs(&self) -> Signs {
        self.told().unwrap_or_default()
    }

    /// The version: 15.018 for 15.18.
    pub(crate) fn facts(&self) -> BTreeMap<String, f64> {
        let version = self
            .version
            .map(|version| (crate::VERSION_FACT.to_owned(), version));
        version.into_iter().collect()
    }
}

/// Whether a server of the user's takes so many connections more.
fn has_room(client: &mut Client, workers: usize) -> Result<(), SetupError> {
    const FREE: Statement = Statement {
        name: "free",
        query: "select current_setting('max_connections')::int \
                - current_setting('superuser_reserved_connections')::int \
                - (select count(*) from pg_stat_activity where backend_type = 'client backend')",
    };
    session::prepare(client, &[FREE])?;
    let free = session::ask(client, &FREE)?;
    // Our own connection ends before the workers connect, so that it counts as free.
    match free.parse::<i64>() {
        Ok(free) if free + 1 < workers as i64 => Err(SetupError(format!(
            "the server takes {} connections more, and {workers} workers need one each; fewer \
             workers (-w), or raise its max_connections",
            free + 1
        ))),
        _ => Ok(()),
    }
}

fn of_launched(address: &str, secret: &str) -> Login {
    Login {
        address: Address::Tcp(address.to_owned()),
        user: Some(OWNER.to_owned()),
        password: Some(secret.to_owned()),
        path: Some(DATABASE.to_owned()),
    }
}

pub(crate) static PROGRAM: Program = Program {
    file: "postgres",
    places: &["/usr/lib/postgresql/*"],
    package: Some("postgresql"),
    launch_ms: 900,
};

/// A server with room for the workers and their locks, and otherwise as it comes.
#[derive(Debug)]
pub struct Launch {
    /// Connections that it takes, with those for its administrators.
    pub connections: usize,
    /// Locks that it has room for, for each connection.
    pub locks_each: usize,
}

impl Launch {
    fn of(setup: &Setup<'_>) -> Launch {
        /// What the server has room for where nothing is said (max_locks_per_transaction).
        const USUAL_LOCKS: usize = 64;
        let connections = setup.workers + SPARE_CONNECTIONS;
        Launch {
            connections,
            // The table is shared by all of them.
            locks_each: USUAL_LOCKS + setup.keys.div_ceil(connections),
        }
    }
}

impl LaunchRecipe for Launch {
    fn program(&self) -> &'static Program {
        &PROGRAM
    }

    fn instead_of_root(&self) -> Option<&'static str> {
        Some("postgres")
    }

    fn files(&self, ground: &Ground) -> Vec<(&'static str, String)> {
        vec![("password", ground.secret.clone())]
    }

    fn before(&self, ground: &Ground) -> Vec<Words> {
        let here = |name: &str| text(&ground.directory.join(name));
        let initdb = text(&ground.program.with_file_name("initdb"));
        let options = [
            "--auth=password",
            "--no-sync",
            "--locale=C",
            "--encoding=UTF8",
        ];
        let named = [
            format!("--username={OWNER}"),
            format!("--pwfile={}", here("password")),
            format!("--pgdata={}", here("data")),
        ];
        let options = options.iter().map(|option| (*option).to_owned());
        vec![[initdb].into_iter().chain(options).chain(named).collect()]
    }

    fn arguments(&self, ground: &Ground) -> Words {
        let settings = [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={}", ground.port),
            "unix_socket_directories=".to_owned(),
            format!("max_connections={}", self.connections),
            format!("max_locks_per_transaction={}", self.locks_each),
            // Not in /dev/shm, where it would outlive a kill.
            "dynamic_shared_memory_type=mmap".to_owned(),
        ];
        let data = ["-D".to_owned(), text(&ground.directory.join("data"))];
        let settings = settings.into_iter().flat_map(|s| ["-c".to_owned(), s]);
        data.into_iter().chain(settings).collect()
    }

    fn ready(&self, ground: &Ground) -> Result<(), SetupError> {
        session::open(&of_launched(&ground.address(), &ground.secret)).map(drop)
    }

    /// It has to be asked to end, so that it removes its small System V memory segment.
    fn quits(&self) -> bool {
        true
    }
}
