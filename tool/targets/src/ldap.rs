//! `ldap`, `ldaps`: a directory server, as a client of it sees it: connect, bind, search,
//! unbind (RFC 4511). A search is read to its end. The entries that it finds are counted
//! and not examined.

mod ber;
mod counts;
mod filter;
mod place;
mod session;
mod wire;

use crate::address::is_here;
use crate::caller::{Answer, Caller, Phases, RequestSetup, RequestTarget, Requests};
use crate::listener;
use crate::prelude::*;
use crate::tls::Tls;
use counts::{Counts, Log, Monitor};
use jostle_model::plan::Connection;
use place::Place;
use session::{Dial, Session};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;
use wire::{Numbers, Search};

/// Its line in the table.
pub(crate) static TARGET: RequestTarget = RequestTarget {
    entry: Entry {
        name: "ldap",
        argument: Some("//HOST:PORT/BASE?FILTER"),
        check_argument: |argument| Place::parse(argument, PORT).map(drop),
        reach: |argument, _| reach(argument, PORT, false),
        family: Family::Server,
        summary: "a directory server: bind, search, unbind",
        details: "BASE and FILTER (RFC 4515) are those of ldapsearch, the scope is `sub`; all parts of \
                  a URL can be given (`BASE?ATTRIBUTES?SCOPE?FILTER`). `{n}` in base or filter is \
                  the number of the request, which `--numbers` lets begin again. With \
                  `--connection each` every request has a connection of its own, as with a process \
                  of ldapsearch: the phases are `connect`, `bind`, `search` and `unbind`; with \
                  `keep` a worker binds once, and a request is a `search`. Anonymous, or with name \
                  and password of `--credentials FILE` (two lines) or of JOSTLE_BIND_DN and \
                  JOSTLE_BIND_PASSWORD. Codes are LDAP's result codes; 900 is a search that \
                  succeeded and found nothing, an error unless `--expect 0:900` says otherwise. The \
                  server's counts are those of cn=Monitor, or of its log (`--server-log`).",
        ..Entry::PLAIN
    },
    prepare: |setup| Ldap::prepare(setup, PORT, false),
    null: None,
    usual_ns: |_| 33_000,
    usual_port: Some(PORT),
};

/// `ldaps`: LDAP over TLS.
#[cfg(feature = "services")]
pub(crate) static TLS_TARGET: RequestTarget = RequestTarget {
    entry: Entry {
        name: "ldaps",
        reach: |argument, _| reach(argument, TLS_PORT, true),
        summary: "the same over TLS",
        details: "As `ldap`, with the phase `tls` behind `connect`. The certificate is checked by the \
                  system's store, or by the file that SSL_CERT_FILE names. Every connection shakes \
                  hands in full: none resumes another's session, as new clients could not either.",
        ..TARGET.entry
    },
    prepare: |setup| Ldap::prepare(setup, TLS_PORT, true),
    usual_port: Some(TLS_PORT),
    ..TARGET
};

const PORT: u16 = 389;
#[cfg(feature = "services")]
const TLS_PORT: u16 = 636;

const CONNECT: usize = 0;
const TLS: usize = 1;
const BIND: usize = 2;
const SEARCH: usize = 3;
const UNBIND: usize = 4;

/// A search that succeeded and found nothing. LDAP reports success, but a benchmark should not
/// count an empty result as one. No LDAP result code is near this number.
const FOUND_NOTHING: u32 = 900;

/// Time limit for an answer before a run. After it the server counts as unreachable.
const REACH_PATIENCE: Duration = Duration::from_secs(5);

/// State that all workers share.
#[derive(Debug)]
struct Ldap {
    dial: Dial,
    credentials: Credentials,
    search: Search,
    connection: Connection,
    source: Source,
    pid: Option<u32>,
}

/// Where the server's counts are read.
#[derive(Debug)]
enum Source {
    Monitor(Monitor),
    Log(Log),
}

fn reach(argument: &str, port: u16, tls: bool) -> Result<()> {
    let place = Place::parse(Some(argument), port).map_err(SetupError)?;
    let dial = Dial::new(&place, REACH_PATIENCE, tls)?;
    let at = format!("{}:{}", place.host, place.port);
    let session = dial.open().map_err(|error| {
        SetupError(format!(
            "cannot connect to {at}: {error}; is the server running there?"
        ))
    })?;
    session.refuse_who_speaks_first(&at)
}

impl Dial {
    fn new(place: &Place, timeout: Duration, tls: bool) -> Result<Dial> {
        let addresses: Vec<SocketAddr> = (place.host.as_str(), place.port)
            .to_socket_addrs()
            .map_err(|error| SetupError(format!("cannot find {}: {error}", place.host)))?
            .collect();
        let trust = || Tls::implied(None).map_err(SetupError)?.trust(&place.host);
        Ok(Dial {
            addresses,
            tls: tls.then(trust).transpose()?,
            timeout,
        })
    }

    /// Opens a connection, with TLS if configured, and does not bind.
    fn open(&self) -> Result<Session, CallError> {
        Session::connect(self)?.secure(self)
    }
}

/// From a file, in which the name must not be missing, or from the environment.
fn credentials(file: Option<&Path>) -> Result<Credentials> {
    let own = Credentials::find(file, ["JOSTLE_BIND_DN", "JOSTLE_BIND_PASSWORD"])?;
    match file {
        Some(path) if own.user.is_none() => Err(SetupError(format!(
            "--credentials {}: the name in the first line, the password in the second",
            path.display()
        ))),
        _ => Ok(own),
    }
}

impl Ldap {
    fn prepare(setup: &RequestSetup<'_>, port: u16, tls: bool) -> Result<Box<dyn Requests>> {
        let place = Place::parse(setup.base.argument, port).map_err(SetupError)?;
        let dial = Dial::new(&place, setup.timeout, tls)?;
        let local = dial.addresses.iter().all(|address| is_here(address.ip()));
        Ok(Box::new(Ldap {
            credentials: credentials(setup.base.credentials)?,
            search: place.search,
            connection: setup.connection.unwrap_or(Connection::Each),
            source: match setup.server_log {
                Some(path) => Source::Log(Log::open(path)?),
                None => Source::Monitor(Monitor::default()),
            },
            pid: local.then(|| listener::process(place.port)).flatten(),
            dial,
        }))
    }
}

impl Requests for Ldap {
    fn phases(&self) -> &'static [&'static str] {
        &["connect", "tls", "bind", "search", "unbind"]
    }

    fn join(&self, worker: usize) -> Result<Box<dyn Caller + '_>> {
        let mut caller = LdapCaller {
            ldap: self,
            worker: worker as u64,
            kept: None,
        };
        if self.connection == Connection::Keep {
            // A kept connection is opened before the first request.
            let refused = |said: String| SetupError(format!("cannot bind: {said}"));
            let opened = caller.open(|_| {});
            match opened.map_err(|error| refused(error.to_string()))? {
                Ok(session) => caller.kept = Some(session),
                Err(code) => return Err(refused(self.code_name(code))),
            }
        }
        Ok(Box::new(caller))
    }

    fn code_name(&self, code: u32) -> String {
        match wire::code_name(code) {
            Some(name) => format!("{code} {name}"),
            None if code == FOUND_NOTHING => format!("{code} success without an entry"),
            None => code.to_string(),
        }
    }

    fn server(&self) -> Result<Option<ServerFigures>> {
        let counts = match &self.source {
            Source::Monitor(monitor) => monitor.read(&self.dial, &self.credentials)?,
            Source::Log(log) => Some(log.read()?),
        };
        let of = |field: fn(&Counts) -> u64| counts.as_ref().map(field);
        Ok(Some(ServerFigures {
            grants: of(|counts| counts.searches),
            binds: of(|counts| counts.binds),
            unbinds: of(|counts| counts.unbinds),
            pid: self.pid,
            memory_bytes: None,
        }))
    }
}

struct LdapCaller<'a> {
    ldap: &'a Ldap,
    worker: u64,
    /// A connection on which we are bound.
    kept: Option<Session>,
}

impl LdapCaller<'_> {
    /// Opens a connection and binds; returns the bound session, or the result code of a
    /// refused bind. Calls `ended` at the end of each phase.
    fn open(&self, mut ended: impl FnMut(usize)) -> Result<Result<Session, u32>, CallError> {
        let dial = &self.ldap.dial;
        let mut session = Session::connect(dial)?;
        ended(CONNECT);
        if dial.tls.is_some() {
            session = session.secure(dial)?;
            ended(TLS);
        }
        let code = session.bind(&self.ldap.credentials)?.code;
        ended(BIND);
        if code == 0 {
            return Ok(Ok(session));
        }
        session.unbind()?;
        ended(UNBIND);
        Ok(Err(code))
    }
}

impl Caller for LdapCaller<'_> {
    fn call(&mut self, nth: u64, phases: &mut Phases) -> Result<Answer, CallError> {
        let answer = |code| Answer {
            code,
            ..Answer::default()
        };
        let mut session = match self.kept.take() {
            Some(mut session) => {
                session.begin();
                session
            }
            // Also after a kept connection failed: the failed request dropped it.
            None => match self.open(|phase| phases.end(phase))? {
                Ok(session) => session,
                Err(code) => return Ok(answer(code)),
            },
        };
        let numbers = Numbers {
            nth,
            worker: self.worker,
        };
        let found = session.search(&self.ldap.search, numbers, |_| {})?;
        phases.end(SEARCH);
        match self.ldap.connection {
            Connection::Keep => self.kept = Some(session),
            Connection::Each => {
                session.unbind()?;
                phases.end(UNBIND);
            }
        }
        Ok(answer(match (found.outcome.code, found.entries) {
            (0, 0) => FOUND_NOTHING,
            (code, _) => code,
        }))
    }

    fn part(&mut self) -> Result<(), CallError> {
        self.kept.take().map_or(Ok(()), Session::part)
    }
}

impl Drop for LdapCaller<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.kept.take() {
            // An error means that the server has closed the connection already.
            let _ = session.unbind();
        }
    }
}
