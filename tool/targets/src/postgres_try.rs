//! `postgres-try`: PostgreSQL's advisory locks without its queue, as helpers of many
//! libraries take them: `pg_try_advisory_lock`, asked again after a while.

use crate::postgres::wire::{Asks, POLL_NS, PostgresWire};
use crate::postgres::{LOCK, PROGRAM, Server, check_argument, reach};
use crate::program::Program;
use crate::remote::RemoteLock;
use crate::table::{Entry, Family, LockCapabilities};
use crate::tls::STACK;
use crate::{Dialled, ServerFigures, Setup, SetupError, Target};
use std::collections::BTreeMap;
use std::path::Path;

/// A PostgreSQL that is polled.
#[derive(Debug)]
pub struct PostgresTry(Server);

impl Target for PostgresTry {
    type Lock = RemoteLock<PostgresWire>;

    const THREAD_STACK: usize = STACK;

    const ENTRY: Entry = Entry {
        name: "postgres-try",
        aliases: &[],
        argument: Some("//USER@HOST:PORT/DATABASE"),
        check_argument,
        family: Family::Service,
        summary: "the same locks polled: pg_try_advisory_lock every 50 ms",
        details: "As `postgres`, but a worker that finds the lock taken asks again every 50 ms \
                  (`poll_ns` in the result), as helpers of many libraries do: there is no queue, and \
                  nobody who asks later is kept behind.",
        lock: LockCapabilities {
            fifo: false,
            ..LOCK
        },
        no_threads: None,
    };

    fn reach(argument: Option<&str>, file: Option<&Path>) -> Result<(), SetupError> {
        reach(argument, file)
    }

    fn launches() -> Option<&'static Program> {
        Some(&PROGRAM)
    }

    fn prepare(setup: &Setup<'_>) -> Result<PostgresTry, SetupError> {
        Server::prepare(setup).map(PostgresTry)
    }

    fn join(&self, _worker: usize) -> Result<RemoteLock<PostgresWire>, SetupError> {
        self.0.join(Asks::Again)
    }

    fn dial(&self, _worker: usize) -> Result<Option<Dialled>, SetupError> {
        self.0.dial(Asks::Again)
    }

    fn server(&self) -> Result<Option<ServerFigures>, SetupError> {
        Ok(Some(self.0.figures()))
    }

    fn signs(&self) -> crate::signs::Signs {
        self.0.signs()
    }

    fn facts(&self) -> BTreeMap<String, f64> {
        let mut facts = self.0.facts();
        facts.insert("poll_ns".to_owned(), POLL_NS as f64);
        facts
    }
}
