//! `mariadb`: MariaDB's user locks, `GET_LOCK` and `RELEASE_LOCK`, on a connection for
//! each worker. One round trip for each call.
//!
//! The protocol stands in `wire`, how a connection begins in `session`.

mod session;
mod wire;

use crate::address::Address;
use crate::login::Login;
use crate::names::Names;
use crate::program::{Ground, LaunchRecipe, Program, Words, text};
use crate::remote::{Client, RemoteLock};
use crate::signs::{self, Signs};
use crate::table::{Entry, Family, LockCapabilities};
use crate::tls::STACK;
use crate::{Dialled, ServerFigures, Setup, SetupError, Target};
use std::collections::BTreeMap;
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
    /// Its process, where it was launched.
    pid: Option<u32>,
    version: Option<f64>,
}

impl Target for Mariadb {
    type Lock = RemoteLock<MariadbWire>;

    const THREAD_STACK: usize = STACK;

    const ENTRY: Entry = Entry {
        name: "mariadb",
        aliases: &[],
        argument: Some("//USER@HOST:PORT"),
        check_argument: |argument| argument.map_or(Ok(()), |place| Login::parse(place).map(|_| ())),
        family: Family::Service,
        summary: "MariaDB's user locks: GET_LOCK on a connection for each worker",
        details: "Without an address, a server launched for the run (Debian package \
                  mariadb-server). GET_LOCK and RELEASE_LOCK as queries, one round trip for each; \
                  --try with a timeout of 0, --acquire-timeout with that timeout. The server queues; \
                  a lock goes with its connection, and a connection that a pooler or proxy drops \
                  loses it unnoticed. Neither durable nor replicated nor fenced. User and password \
                  are those of the address, else $MYSQL_USER and $MYSQL_PWD; the server must let the \
                  user in by mysql_native_password. ?ssl-mode=VERIFY_IDENTITY behind the address asks for TLS, \
                  ?ssl-ca=FILE for TLS with that authority.",
        lock: LockCapabilities {
            timeout: true,
            excludes: true,
            survives_owner: true,
            fifo: true,
            pipeline: true,
            remote: true,
            tasks: true,
            ..LockCapabilities::NONE
        },
        no_threads: None,
    };

    fn reach(argument: Option<&str>, file: Option<&Path>) -> Result<(), SetupError> {
        argument.map_or(Ok(()), |place| {
            session::open(&named(place, file)?).map(drop)
        })
    }

    fn launches() -> Option<&'static Program> {
        Some(&PROGRAM)
    }

    fn prepare(setup: &Setup<'_>) -> Result<Mariadb, SetupError> {
        let (login, pid) = match setup.argument {
            Some(place) => (named(place, setup.credentials)?, None),
            None => {
                let launched = setup.launcher.follow(&Launch::of(setup))?;
                let login = of_launched(&launched.address, &launched.secret);
                (login, Some(launched.pid))
            }
        };
        let (mut client, version) = session::open(&login)?;
        has_room(&mut client, setup.workers)?;
        Ok(Mariadb {
            login,
            names: Names::new(setup)?,
            pid,
            version,
        })
    }

    fn join(&self, _worker: usize) -> Result<RemoteLock<MariadbWire>, SetupError> {
        let (client, _) = session::open(&self.login)?;
        Ok(RemoteLock::new(client, MariadbWire(self.names)))
    }

    fn dial(&self, _worker: usize) -> Result<Option<Dialled>, SetupError> {
        let (client, _) = session::open(&self.login)?;
        Ok(Some(Dialled {
            stream: client.into_stream(),
            wire: Box::new(MariadbWire(self.names)),
        }))
    }

    fn server(&self) -> Result<Option<ServerFigures>, SetupError> {
        Ok(Some(ServerFigures {
            // MariaDB counts statements, not locks.
            pid: self.pid,
            ..ServerFigures::default()
        }))
    }

    fn signs(&self) -> Signs {
        const ASKED: &str = "SELECT CONCAT(@@wait_timeout, ' ', VARIABLE_VALUE) FROM \
                             information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME'";
        let said = session::open(&self.login)
            .and_then(|(mut client, _)| session::ask(&mut client, ASKED))
            .unwrap_or_default();
        let known = said.split_once(' ').map(|(idle_s, uptime_s)| {
            [(signs::IDLE_LIMIT, idle_s), (signs::UPTIME, uptime_s)]
                .map(|(sign, value)| (sign, value.to_owned()))
        });
        known.into_iter().flatten().collect()
    }

    fn facts(&self) -> BTreeMap<String, f64> {
        let version = self
            .version
            .map(|version| (crate::VERSION_FACT.to_owned(), version));
        version.into_iter().collect()
    }
}

fn named(place: &str, file: Option<&Path>) -> Result<Login, SetupError> {
    Login::found(place, file, VARIABLES)
}

fn of_launched(address: &str, secret: &str) -> Login {
    Login {
        address: Address::Tcp(address.to_owned()),
        user: Some(OWNER.to_owned()),
        password: Some(secret.to_owned()),
        path: None,
    }
}

/// Whether the server takes so many connections more.
fn has_room(client: &mut Client, workers: usize) -> Result<(), SetupError> {
    const FREE: &str = "SELECT @@max_connections - (SELECT VARIABLE_VALUE FROM \
                        information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'THREADS_CONNECTED')";
    // A related server without this table reports by itself when it is full.
    let free = session::ask(client, FREE).ok();
    // Our own connection ends before the workers connect, so that it counts as free.
    match free.and_then(|free| free.parse::<f64>().ok()) {
        Some(free) if free + 1.0 < workers as f64 => Err(SetupError(format!(
            "the server takes {} connections more, and {workers} workers need one each; fewer \
             workers (-w), or raise its max_connections",
            free + 1.0
        ))),
        _ => Ok(()),
    }
}

static PROGRAM: Program = Program {
    file: "mariadbd",
    places: &["/usr/sbin"],
    package: Some("mariadb-server"),
    launch_ms: 800,
};

/// A server with room for the workers, and otherwise as it comes.
#[derive(Debug)]
pub struct Launch {
    /// Connections that it takes.
    pub connections: usize,
}

impl Launch {
    fn of(setup: &Setup<'_>) -> Launch {
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

    fn ready(&self, ground: &Ground) -> Result<(), SetupError> {
        session::open(&of_launched(&ground.address(), &ground.secret)).map(drop)
    }
}
