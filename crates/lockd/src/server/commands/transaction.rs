//! MULTI, EXEC and DISCARD, as in Redis: commands are queued, executed together, and
//! not undone when one of them fails. Client libraries wrap pipelines in transactions
//! without being asked.

use jostle_resp::request::{decode, encode};
use jostle_resp::{Args, Limits, Progress};

use super::locks::{lock_all_within, lock_within};
use super::rights::permit;
use super::{COMMANDS, Call, Kind, Server, Spec, find};
use crate::handover::state::TransactionState;
use crate::server::conn::Conn;

/// Commands of one transaction.
const COMMANDS_MAX: usize = 1000;

/// What was queued since MULTI.
#[derive(Default)]
pub(crate) struct Transaction {
    /// As they are sent.
    requests: Vec<u8>,
    count: usize,
    /// Something was wrong: EXEC will execute nothing.
    aborted: bool,
}

impl Transaction {
    /// As data, for a handover.
    pub(in crate::server) fn state(&self) -> TransactionState {
        TransactionState {
            requests: self.requests.clone(),
            count: self.count,
            aborted: self.aborted,
        }
    }

    /// The reverse of [`Self::state`].
    pub(in crate::server) fn restored(state: &TransactionState) -> Self {
        Self {
            requests: state.requests.clone(),
            count: state.count,
            aborted: state.aborted,
        }
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.requests.capacity()
    }
}

/// Makes EXEC fail, after an error in a command that was to be queued.
pub(super) fn abort(conn: &mut Conn) {
    if let Some(transaction) = &mut conn.transaction {
        transaction.aborted = true;
        transaction.requests = Vec::new();
    }
}

/// Executes, queues or refuses a command of a client that is in a transaction.
#[cold]
pub(super) fn execute_within(server: &mut Server, mut call: Call<'_>, spec: &Spec) {
    match spec.kind {
        Kind::Transaction | Kind::Leaving => (spec.run)(server, call),
        Kind::Identity | Kind::Alone => {
            abort(call.conn);
            call.reply()
                .error("ERR Command not allowed inside a transaction");
        }
        Kind::Plain | Kind::Listing => queue(server, call),
    }
}

fn queue(server: &Server, mut call: Call<'_>) {
    let Some(transaction) = &mut call.conn.transaction else {
        return;
    };
    let words: Vec<&[u8]> = call.args.iter(call.request).collect();
    let room = server.config.max_request;
    let bytes: usize = words.iter().map(|word| word.len() + 16).sum();
    let fits = transaction.requests.len() + bytes <= room && transaction.count < COMMANDS_MAX;
    if !fits && !transaction.aborted {
        abort(call.conn);
        return call.reply().error(&format!(
            "ERR a transaction has at most {COMMANDS_MAX} commands and {room} bytes (--max-request)"
        ));
    }
    if !transaction.aborted {
        encode(&mut transaction.requests, &words);
        transaction.count += 1;
    }
    call.reply().simple("QUEUED");
}

pub(super) fn multi(_: &mut Server, mut call: Call<'_>) {
    if call.conn.transaction.is_some() {
        return call.reply().error("ERR MULTI calls can not be nested");
    }
    call.conn.transaction = Some(Box::default());
    call.conn.update_guard();
    call.reply().simple("OK");
}

pub(super) fn discard(_: &mut Server, mut call: Call<'_>) {
    if call.conn.end_transaction().is_some() {
        call.reply().simple("OK");
    } else {
        call.reply().error("ERR DISCARD without MULTI");
    }
}

pub(super) fn exec(server: &mut Server, mut call: Call<'_>) {
    let Some(transaction) = call.conn.end_transaction() else {
        return call.reply().error("ERR EXEC without MULTI");
    };
    if transaction.aborted {
        return call
            .reply()
            .error("EXECABORT Transaction discarded because of previous errors.");
    }
    call.reply().array(transaction.count);
    // The queued commands together have at most the size of one request.
    let limits = Limits {
        bytes: server.config.max_request,
        ..Limits::default()
    };
    let (mut args, mut rest) = (Args::new(), &transaction.requests[..]);
    let start = call.out.len();
    while let Ok(Progress::Complete { used }) = decode(rest, limits, &mut args) {
        let queued = Call {
            conn: &mut *call.conn,
            args: &args,
            request: rest,
            out: &mut *call.out,
            now: call.now,
        };
        execute_queued(server, queued, start);
        rest = &rest[used..];
    }
}

/// Executes one command; the replies of the transaction begin at `start`.
fn execute_queued(server: &mut Server, mut call: Call<'_>, start: usize) {
    let Some(index) = find(call.arg(0)) else {
        // It was found when it was queued.
        return call.reply().error("ERR unknown command");
    };
    let spec = &COMMANDS[index];
    if spec.kind == Kind::Listing && call.out.len() - start > server.config.max_output / 2 {
        return call
            .reply()
            .error("ERR the replies of this transaction are too long (--max-output)");
    }
    if let Err(text) = permit(server, &call, spec) {
        return call.reply().error(&text);
    }
    match index {
        // In a transaction LOCK does not wait: the commands behind it could not be
        // executed together with it.
        0 => lock_within(server, call),
        _ if spec.name == "LOCKALL" => lock_all_within(server, call),
        _ => (spec.run)(server, call),
    }
}
