//! `mariadb`: MariaDB's user locks, `GET_LOCK` and `RELEASE_LOCK`, on a connection for
//! each worker. One round trip for each call.
//!
//! The protocol stands in `wire`, how a connection begins in `session`.

mod session;
pub(crate) mod who;
mod wire;

use crate::holders;
use crate::prelude::*;
use crate::program;
use crate::signs::Told;
use jostle_sys::census::Identity;
use jostle_sys::clock::monotonic;
use jostle_sys::{process, serving};
use std::path::Path;
use wire::MariadbWire;

/// Where user, password and database stand; the second is the client's own.
const VARIABLES: [&str; 3] = ["MYSQL_USER", "MYSQL_PWD", "MYSQL_DATABASE"];

/// Who uses a server that was launched.
const OWNER: &str = "jostle";

/// Connections beside the workers'.
const SPARE_CONNECTIONS: usize = 10;

/// A MariaDB.
#[derive(Debug)]
pub struct Mariadb {
    login: Login,
    names: Names,
    keys: usize,
    /// Its process, where it was launched.
    pid: Option<u32>,
    version: Option<f64>,
}

impl Target for Mariadb {
    type Lock = RemoteLock<MariadbWire>;

    const ENTRY: Entry = Entry {
        name: "mariadb",
        argument: Some("//USER@HOST:PORT"),
        check_argument: argument::login,
        reach: |place, file| session::open(&named(place, file)?).map(drop),
        program: Some(&PROGRAM),
        summary: "MariaDB's user locks: GET_LOCK on a connection for each worker",
        details: "Without an address, a server launched for the run (Debian package \
                  mariadb-server). GET_LOCK and RELEASE_LOCK as queries, one round trip for each; \
                  --try with a timeout of 0, --acquire-timeout with that timeout. The server queues; \
                  a lock goes with its connection, and a connection that a pooler or proxy drops \
                  loses it unnoticed. Neither durable nor replicated nor fenced. User and password \
                  are those of the address, else $MYSQL_USER and $MYSQL_PWD; the server must let the \
                  user in by mysql_native_password. ?ssl-mode=VERIFY_IDENTITY behind the address asks for TLS, \
                  ?ssl-ca=FILE for TLS with that authority.",
        lock: capabilities!(LockCapabilities::SERVICE; survives_owner, fifo, pipeline),
        ..Entry::SERVICE
    };

    fn prepare(setup: &Setup<'_>) -> Result<Mariadb> {
        let (login, pid) = setup.server(named, &Launch::with_room(setup), Some(OWNER))?;
        let (mut client, version) = session::open(&login)?;
        // The workers, and who asks for the holders.
        has_room(&mut client, setup.workers + 1)?;
        Ok(Mariadb {
            login,
            names: Names::new(setup)?,
            keys: setup.keys,
            pid,
            version,
        })
    }

    fn join(&self, _worker: usize) -> Result<RemoteLock<MariadbWire>> {
        let (client, _) = session::open(&self.login)?;
        Ok(RemoteLock::new(
            client,
            MariadbWire {
                names: self.names,
                blocks: false,
            },
        ))
    }

    fn server(&self) -> Result<Option<ServerFigures>> {
        // MariaDB counts statements, not locks.
        Ok(Some(ServerFigures::of_process(self.pid)))
    }

    fn signs(&self) -> Told {
        const ASKED: &str = "SELECT CONCAT(@@wait_timeout, ' ', VARIABLE_VALUE, ' ', \
                             CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)) FROM \
                             information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME'";
        signs::asked(&self.login.address, || {
            let (mut client, _) = session::open(&self.login)?;
            let asked_ns = monotonic();
            let said = session::ask(&mut client, ASKED)?;
            let mut numbers = said.split(' ').map(|text| text.parse::<u64>().ok());
            let mut next = || numbers.next().flatten();
            let (idle_s, uptime_s, wall_ms) = (next(), next(), next());
            Ok(signs::known([
                (sign::IDLE_LIMIT_S, idle_s.map(Sign::from)),
                (sign::UPTIME_S, uptime_s.map(Sign::from)),
                (
                    sign::WALL_CLOCK_MS,
                    wall_ms.map(|ms| signs::ahead(asked_ns, ms)),
                ),
                (sign::LEASE_BY_CLOCK_MS, Some(0.into())),
                (sign::OWN_NAMES, Some(true.into())),
            ]))
        })
    }

    /// Ours are known by the ports of this machine from which they come.
    fn holders(&self, connection: &mut Option<Client>) -> Told {
        let open = || session::open(&self.login).map(|(client, _)| client);
        let keys = 0..self.keys.min(holders::AT_MOST);
        let keys: Vec<_> = keys.map(|key| self.names.name(key)).collect();
        let keys = keys.iter().filter_map(|key| str::from_utf8(key).ok());
        let keys: Vec<&str> = keys.collect();
        signs::asked_in_time(&self.login.address, connection, open, |client| {
            let answer = session::ask(client, &holders::of_mariadb(&keys))?;
            let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get() as u32);
            let mut family = parent.map(process::with_descendants).unwrap_or_default();
            // What runs along is another program.
            let is_ours = |of: Identity| of.name.starts_with("jostle");
            family.retain(|pid| Identity::of(*pid).is_some_and(is_ours));
            let found = holders::mariadb_sessions(&answer, &serving::ports_of(&family));
            Ok(signs::known([(sign::HOLDERS, found.map(Sign::Processes))]))
        })
    }

    fn facts(&self) -> Facts {
        facts([(VERSION_FACT, self.version)])
    }
}

fn named(place: &str, file: Option<&Path>) -> Result<Login> {
    Login::found(place, file, VARIABLES)
}

/// Whether the server takes so many connections more.
fn has_room(client: &mut Client, workers: usize) -> Result<()> {
    const FREE: &str = "SELECT @@max_connections - (SELECT VARIABLE_VALUE FROM \
                        information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'THREADS_CONNECTED')";
    // A related server without this table reports by itself when it is full.
    let free = session::ask(client, FREE).ok();
    // Our own connection ends before the workers connect, so that it counts as free.
    let free = free.and_then(|free| Some(free.parse::<f64>().ok()? + 1.0));
    program::has_room(free, workers, "raise its max_connections")
}

static PROGRAM: Program = Program {
    file: "mariadbd",
    places: &["/usr/sbin"],
    package: Some("mariadb-server"),
    launch_ms: 800,
    asks_libc: true,
};

/// A server with room for the workers, and otherwise as it comes.
#[derive(Debug)]
pub struct Launch {
    /// Connections that it takes.
    pub connections: usize,
}

impl Launch {
    fn with_room(setup: &Setup<'_>) -> Launch {
        Launch {
            connections: setup.workers + SPARE_CONNECTIONS,
        }
    }
}

impl LaunchRecipe for Launch {
    fn program(&self) -> &'static Program {
        &PROGRAM
    }

    fn instead_of_root(&self) -> Option<&'static str> {
        Some("mysql")
    }

    fn files(&self, ground: &Ground) -> Vec<(&'static str, String)> {
        let user = format!(
            "CREATE USER '{OWNER}'@'127.0.0.1' IDENTIFIED BY '{}';\n",
            ground.secret
        );
        vec![("user.sql", user)]
    }

    fn before(&self, ground: &Ground) -> Vec<Words> {
        let data = text(&ground.directory.join("data"));
        let options = [
            "/usr/bin/mariadb-install-db".to_owned(),
            "--no-defaults".to_owned(),
            "--skip-test-db".to_owned(),
            format!("--datadir={data}"),
        ];
        vec![options.into()]
    }

    fn arguments(&self, ground: &Ground) -> Words {
        let here = |name: &str| text(&ground.directory.join(name));
        vec![
            // It has to be the first.
            "--no-defaults".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            "--skip-name-resolve".to_owned(),
            format!("--port={}", ground.port),
            format!("--max-connections={}", self.connections),
            // All workers connect at once; the server's own number is a quarter of theirs.
            format!("--back-log={}", self.connections.min(65_535)),
            format!("--datadir={}", here("data")),
            format!("--socket={}", here("socket")),
            format!("--pid-file={}", here("pid")),
            format!("--init-file={}", here("user.sql")),
        ]
    }

    fn ready(&self, ground: &Ground) -> Result<()> {
        session::open(&ground.login(Some(OWNER))).map(drop)
    }
}
