//! `postgres`: PostgreSQL's advisory locks of a session, `pg_advisory_lock(bigint)`, on
//! a connection for each worker. Prepared statements, one round trip for each call.
//!
//! `wire` has the protocol, `session` the start of a connection.

mod session;
pub(crate) mod who;
mod wire;

use crate::holders;
use crate::postgres_try;
use crate::prelude::*;
use crate::program;
use crate::signs::Told;
use jostle_sys::clock::monotonic;
use std::path::Path;
use wire::PostgresWire;

/// The variables with user, password and database, those of psql.
const VARIABLES: [&str; 3] = ["PGUSER", "PGPASSWORD", "PGDATABASE"];

/// Who owns a database that is made for a run.
const OWNER: &str = "jostle";
/// A database that every server has.
const DATABASE: &str = "postgres";

/// Connections beside the workers': ours, and those that the server keeps for its
/// administrators.
const SPARE_CONNECTIONS: usize = 10;

/// The capabilities of both targets.
pub(crate) const LOCK: LockCapabilities = capabilities!(LockCapabilities::SERVICE; shared,
    survives_owner, fifo, pipeline);

/// A PostgreSQL, and the numbers of this run's locks on it.
#[derive(Debug)]
pub struct Advisory<const POLLED: bool> {
    login: Login,
    names: Names,
    /// Its first process, where it was launched.
    pid: Option<u32>,
    version: Option<f64>,
}

/// One whose queue workers wait in.
pub type Postgres = Advisory<false>;

/// Its line in the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "postgres",
    argument: Some("//USER@HOST:PORT/DATABASE"),
    check_argument: argument::login,
    reach: |place, file| session::open(&named(place, file)?).map(drop),
    program: Some(&PROGRAM),
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
    ..Entry::SERVICE
};

impl<const POLLED: bool> Target for Advisory<POLLED> {
    type Lock = RemoteLock<PostgresWire>;

    const ENTRY: Entry = match POLLED {
        true => postgres_try::ENTRY,
        false => ENTRY,
    };

    fn prepare(setup: &Setup<'_>) -> Result<Advisory<POLLED>> {
        let (mut login, pid) = setup.server(named, &Launch::with_room(setup), Some(OWNER))?;
        login.path = pid.map(|_| DATABASE.to_owned()).or(login.path);
        let mut opened = session::open(&login)?;
        if pid.is_none() {
            // The workers, and who asks for the holders.
            has_room(&mut opened.client, setup.workers + 1)?;
        }
        Ok(Advisory {
            login,
            names: Names::new(setup)?,
            pid,
            version: opened.version,
        })
    }

    fn join(&self, _worker: usize) -> Result<RemoteLock<PostgresWire>> {
        let mut client = session::open(&self.login)?.client;
        session::prepare(&mut client, &wire::STATEMENTS)?;
        Ok(RemoteLock::new(
            client,
            PostgresWire::new(self.names, POLLED),
        ))
    }

    fn server(&self) -> Result<Option<ServerFigures>> {
        // PostgreSQL counts transactions, not locks.
        Ok(Some(ServerFigures::of_process(self.pid)))
    }

    /// Who answers is no PostgreSQL if the process that serves the session is another than it
    /// says. A pooler that gives each transaction a session of its own gives ours another one
    /// while a second session has that of before.
    fn signs(&self) -> Told {
        const ASKED: &str = "select pg_backend_pid() || ' ' || (extract(epoch from clock_timestamp()) * \
                             1000)::bigint || ' ' || extract(epoch from clock_timestamp() - \
                             pg_postmaster_start_time())::bigint || ' ' || pg_postmaster_start_time()";
        signs::asked(&self.login.address, || {
            let mut opened = session::open(&self.login)?;
            let asked_ns = monotonic();
            let said = session::ask(&mut opened.client, ASKED)?;
            let mut words = said.splitn(4, ' ');
            let mut next = || words.next().unwrap_or_default().to_owned();
            let (process, wall_ms, uptime_s, life) = (next(), next(), next(), next());
            let is_other = opened.backend.is_some_and(|pid| pid.to_string() != process);
            let number = |text: &str| text.parse::<u64>().ok();
            let kept = is_other.then(|| self.keeps_its_process(&mut opened.client, &process));
            Ok(signs::known([
                (sign::LIFE, Some(life.into())),
                (sign::UPTIME_S, number(&uptime_s).map(Sign::from)),
                (sign::POOLER, Some(is_other.into())),
                (sign::ONE_BACKEND, kept.flatten().map(Sign::from)),
                (
                    sign::WALL_CLOCK_MS,
                    number(&wall_ms).map(|ms| signs::ahead(asked_ns, ms)),
                ),
                (sign::LEASE_BY_CLOCK_MS, Some(0.into())),
                (sign::OWN_NAMES, Some(true.into())),
            ]))
        })
    }

    fn holders(&self, connection: &mut Option<Client>) -> Told {
        let open = || {
            let mut opened = session::open(&self.login)?;
            match opened.is_pooled()? {
                true => Err(SetupError(who::POOLED.to_owned())),
                false => Ok(opened.client),
            }
        };
        signs::asked_in_time(&self.login.address, connection, open, |client| {
            let which = holders::within(self.names.numbers(), session::APPLICATION);
            let answer = session::ask(client, &holders::of_postgres(&which))?;
            let [found, _] = holders::postgres_sessions(&answer);
            let found = found.into_iter().map(Into::into).collect();
            Ok(signs::known([(
                sign::HOLDERS,
                Some(Sign::Processes(found)),
            )]))
        })
    }

    /// The version: 15.018 for 15.18.
    fn facts(&self) -> Facts {
        let poll_ns = POLLED.then_some(wire::POLL_NS as f64);
        facts([(VERSION_FACT, self.version), ("poll_ns", poll_ns)])
    }
}

fn named(place: &str, file: Option<&Path>) -> Result<Login> {
    Login::found(place, file, VARIABLES)
}

impl<const POLLED: bool> Advisory<POLLED> {
    /// Whether a session keeps its process while another one is in a transaction; None where
    /// that cannot be asked.
    fn keeps_its_process(&self, session: &mut Client, process: &str) -> Option<bool> {
        let mut other = session::open(&self.login).ok()?.client;
        session::ask(&mut other, "begin").ok()?;
        session::ask(&mut other, "select pg_backend_pid()").ok()?;
        let now = session::ask(session, "select pg_backend_pid()").ok()?;
        Some(now == process)
    }
}

/// Whether a server of the user's takes so many connections more.
fn has_room(client: &mut Client, workers: usize) -> Result<()> {
    const FREE: &str = "select current_setting('max_connections')::int \
                        - current_setting('superuser_reserved_connections')::int \
                        - (select count(*) from pg_stat_activity where backend_type = 'client backend')";
    let free = session::ask(client, FREE)?;
    // Our own connection ends before the workers connect, so that it counts as free.
    let free = free.parse::<f64>().ok().map(|free| free + 1.0);
    program::has_room(free, workers, "raise its max_connections")
}

static PROGRAM: Program = Program {
    file: "postgres",
    places: &["/usr/lib/postgresql/*"],
    package: Some("postgresql"),
    launch_ms: 900,
    asks_libc: true,
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
    fn with_room(setup: &Setup<'_>) -> Launch {
        /// The server's room for locks where nothing is said (max_locks_per_transaction).
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
        let options =
            format!("--auth=password --no-sync --locale=C --encoding=UTF8 --username={OWNER}");
        let named = [
            format!("--pwfile={}", here("password")),
            format!("--pgdata={}", here("data")),
        ];
        let options = options.split(' ').map(str::to_owned);
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

    fn ready(&self, ground: &Ground) -> Result<()> {
        let mut login = ground.login(Some(OWNER));
        login.path = Some(DATABASE.to_owned());
        session::open(&login).map(drop)
    }

    /// It has to be asked to end, so that it removes its small System V memory segment.
    fn quits(&self) -> bool {
        true
    }
}
