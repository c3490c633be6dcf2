//! One request: its authorization, its procedure, and the answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use subtle::ConstantTimeEq;

use super::Shared;
use crate::catalog::{Body, Procedure, Snapshot};
use crate::http::{Answer, Request};
use crate::lua::{Code, Interpreter, Outcome};
use crate::query::{Args, BadEncoding, decode};
use crate::sizecheck::{SizecheckError, sizecheck};
use crate::stats::{self, Known, ProcedureStats, count};

/// A thread's own state: the procedures as it saw them last, and its interpreters, one
/// for each procedure that it has run.
#[derive(Debug)]
pub(super) struct ThreadState {
    generation: u64,
    snapshot: Snapshot,
    states: HashMap<u64, Interpreter>,
}

/// Whether a request was answered.
pub(super) enum Done {
    /// The answer is written.
    Answered {
        /// The answer announces the end of the connection.
        close: bool,
    },
    /// The procedure is busy: the connection has to wait.
    Busy(Arc<Procedure>),
}

const TEXT: &str = "Content-Type: text/plain; charset=utf-8\r\n";

impl ThreadState {
    pub(super) fn new(shared: &Shared) -> ThreadState {
        ThreadState {
            generation: shared.catalog.generation(),
            snapshot: shared.catalog.snapshot(),
            states: HashMap::new(),
        }
    }

    /// Answers a request into `out`. `called` is the connection's number, if it
    /// was in line.
    pub(super) fn answer(
        &mut self,
        shared: &Shared,
        (bytes, request): (&[u8], &Request),
        called: Option<u32>,
        out: &mut Vec<u8>,
    ) -> Done {
        let mut write = |answer: &Answer<'_>| {
            // Asked after the call, during which the engine may be told to end.
            let close = !request.keep_alive || shared.draining();
            answer.write(out, request.method, close);
            Done::Answered { close }
        };
        if let Some(refused) = turned_away(shared, bytes, request) {
            return write(&refused);
        }
        self.catch_up(shared);
        let path = bytes.get(request.path.clone()).unwrap_or_default();
        if let b"/stats" | b"/metrics" = path {
            count(&shared.stats.watching);
            let (headers, text) = self.watch(shared, path == b"/stats");
            return write(&without_code("200 OK", headers, text.as_bytes()));
        }
        let name = std::str::from_utf8(path.get(1..).unwrap_or_default()).unwrap_or_default();
        let found = self
            .snapshot
            .get(name)
            .filter(|p| !matches!(p.body, Body::Gone));
        let Some(procedure) = found.cloned() else {
            count(&shared.stats.unknown);
            return write(&without_code(
                "404 Not Found",
                TEXT,
                b"there is no such procedure\n",
            ));
        };
        let Ok(args) = arguments(bytes, request) else {
            count(&shared.stats.malformed);
            return write(&without_code(
                "400 Bad Request",
                TEXT,
                b"wrong percent-encoding\n",
            ));
        };
        let body = &bytes[request.body.clone()];
        let call = (&args, body, called);
        self.run(shared, &procedure, call, write)
    }

    /// Takes over what has changed in the folder.
    fn catch_up(&mut self, shared: &Shared) {
        let generation = shared.catalog.generation();
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        self.snapshot = shared.catalog.snapshot();
        let current = |id: &u64| self.snapshot.values().any(|known| known.id == *id);
        self.states.retain(|id, _| current(id));
    }

    fn run(
        &mut self,
        shared: &Shared,
        procedure: &Arc<Procedure>,
        (args, body, called): (&Args, &[u8], Option<u32>),
        mut write: impl FnMut(&Answer<'_>) -> Done,
    ) -> Done {
        let stats = &*procedure.stats;
        let code = match &procedure.body {
            Body::Sizecheck => {
                begun(shared, stats);
                let started = Instant::now();
                let result = sizecheck(args, shared.spool.as_deref());
                stats.took(started.elapsed());
                return write_size(&result, stats, write);
            }
            Body::Broken | Body::Gone => {
                begun(shared, stats);
                count(&stats.errors.failed);
                let why = procedure.load_error.as_deref().unwrap_or("it is gone");
                return write(&failure(
                    "Failure: failed\r\n",
                    format!("{why}\n").as_bytes(),
                ));
            }
            Body::Lua(code) => Arc::clone(code),
        };
        if !procedure.gate.enter(shared.config.max_running, called) {
            return Done::Busy(Arc::clone(procedure));
        }
        begun(shared, stats);
        let started = Instant::now();
        let outcome = self.call(shared, procedure.id, &code, args, body);
        stats.took(started.elapsed());
        shared.leave(&procedure.gate);
        if !matches!(outcome, Outcome::Exit(..)) {
            (shared.log)(&format!("/{}: {}", procedure.name, reason(&outcome)));
        }
        write_outcome(&outcome, stats, write)
    }

    fn call(&mut self, shared: &Shared, id: u64, code: &Code, args: &Args, body: &[u8]) -> Outcome {
        let state = match self.states.remove(&id) {
            Some(state) => state,
            None => {
                let (limits, spool) = (shared.config.call, shared.spool.clone());
                match Interpreter::new(code, limits, spool, Arc::clone(&shared.log)) {
                    Ok(state) => state,
                    Err(why) => return Outcome::Failed(why),
                }
            }
        };
        let (outcome, sound) = state.call(args, body);
        if sound {
            self.states.insert(id, state);
        }
        outcome
    }

    fn watch(&self, shared: &Shared, json: bool) -> (&'static str, String) {
        let mut known: Vec<Known<'_>> = self.snapshot.values().map(|p| known(p)).collect();
        known.sort_by_key(|known| known.name);
        if json {
            let headers = "Content-Type: application/json\r\n";
            (headers, stats::json(&shared.stats, &known))
        } else {
            let headers = "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n";
            (headers, stats::metrics(&shared.stats, &known))
        }
    }
}

fn arguments(bytes: &[u8], request: &Request) -> Result<Args, BadEncoding> {
    let mut args = Args::parse(request.query.clone().map(|query| &bytes[query]))?;
    for (name, stated) in &request.caller {
        args.caller.push((name, decode(&bytes[stated.clone()])?));
    }
    Ok(args)
}

fn known(procedure: &Procedure) -> Known<'_> {
    let (running, waiting) = procedure.gate.load();
    Known {
        name: &procedure.name,
        stats: &procedure.stats,
        loaded: !matches!(procedure.body, Body::Broken | Body::Gone),
        loads: procedure.loads,
        load_error: procedure.load_error.as_deref(),
        running,
        waiting,
    }
}

/// Whether a request carries the token. The time it takes does not reveal how much of
/// it was right.
fn authorized(shared: &Shared, bytes: &[u8], request: &Request) -> bool {
    let Some(token) = &shared.config.token else {
        return true;
    };
    let given = request.token.clone().and_then(|range| bytes.get(range));
    given.is_some_and(|given| token.as_bytes().ct_eq(given).into())
}

/// Whether a request is for this engine. A web page can let its own name resolve to
/// 127.0.0.1, and then read the engine's answers; its browser sends that name as the
/// host. So only addresses are accepted, names without a dot, which belong to nobody
/// elsewhere, and those of `--host`. With a token any name is accepted, because the
/// page does not know the token.
fn is_meant(shared: &Shared, bytes: &[u8], request: &Request) -> bool {
    let Some(host) = request.host.clone().and_then(|range| bytes.get(range)) else {
        return true;
    };
    let text = std::str::from_utf8(host).unwrap_or(".");
    let name = match text.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => text,
    };
    let plain = name.trim_start_matches('[').trim_end_matches(']');
    shared.config.token.is_some()
        || !name.contains('.')
        || plain.parse::<std::net::IpAddr>().is_ok()
        || shared
            .config
            .hosts
            .iter()
            .any(|host| host.eq_ignore_ascii_case(name))
}

fn begun(shared: &Shared, stats: &ProcedureStats) {
    count(&shared.stats.calls);
    count(&stats.requests);
}

/// The answer to a request that may not be served, whatever it asks for.
fn turned_away(shared: &Shared, bytes: &[u8], request: &Request) -> Option<Answer<'static>> {
    if !authorized(shared, bytes, request) {
        count(&shared.stats.unauthorized);
        return Some(without_code(
            "401 Unauthorized",
            "WWW-Authenticate: Bearer\r\n",
            b"this engine needs a token\n",
        ));
    }
    if !is_meant(shared, bytes, request) {
        count(&shared.stats.malformed);
        return Some(without_code(
            "421 Misdirected Request",
            TEXT,
            b"this engine is not known by that name (Host, --host)\n",
        ));
    }
    None
}

fn without_code<'a>(status: &'a str, headers: &'a str, body: &'a [u8]) -> Answer<'a> {
    Answer {
        status,
        exit_code: None,
        headers,
        body,
    }
}

fn failure<'a>(headers: &'a str, body: &'a [u8]) -> Answer<'a> {
    without_code("500 Internal Server Error", headers, body)
}

fn exited(code: u8, output: &[u8]) -> Answer<'_> {
    Answer {
        status: "200 OK",
        exit_code: Some(code),
        headers: if output.is_empty() { "" } else { TEXT },
        body: output,
    }
}

fn reason(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Late => "cut off: its time is up",
        Outcome::Memory => "cut off: it needs more memory than it may have",
        Outcome::Failed(why) => why,
        Outcome::Exit(..) => "",
    }
}

fn write_outcome(
    outcome: &Outcome,
    stats: &ProcedureStats,
    mut write: impl FnMut(&Answer<'_>) -> Done,
) -> Done {
    let (counter, headers) = match outcome {
        Outcome::Exit(code, output) => {
            stats.exited(*code);
            return write(&exited(*code, output));
        }
        Outcome::Failed(_) => (&stats.errors.failed, "Failure: failed\r\n"),
        Outcome::Late => (&stats.errors.late, "Failure: late\r\n"),
        Outcome::Memory => (&stats.errors.memory, "Failure: memory\r\n"),
    };
    count(counter);
    write(&failure(
        headers,
        format!("{}\n", reason(outcome)).as_bytes(),
    ))
}

fn write_size(
    result: &Result<u8, SizecheckError>,
    stats: &ProcedureStats,
    mut write: impl FnMut(&Answer<'_>) -> Done,
) -> Done {
    let (status, error) = match result {
        Ok(code) => {
            stats.exited(*code);
            return write(&exited(*code, b""));
        }
        Err(error @ SizecheckError::Usage(_)) => ("400 Bad Request", error),
        Err(error @ SizecheckError::File(_)) => ("404 Not Found", error),
    };
    count(&stats.errors.failed);
    let text = format!("{error}\n");
    write(&without_code(
        status,
        "Failure: failed\r\n",
        text.as_bytes(),
    ))
}
