//! MULTI, EXEC and DISCARD, as in Redis: commands are queued, executed together, and
//! not undone when one of them fails. Client libraries wrap pipelines in transactions
//! without being asked.

use jostle_resp::request::{decode, encode};
use jostle_resp::{Args, Limits, Progress};

use super::call::Call;
use super::locks::{Patience, acquire, acquire_all};
use super::rights::permit;
use super::sessions::is_of_admins;
use super::table::{CommandKind, Spec, Verb, find, run};
use crate::server::Server;
use crate::server::conn::Conn;

/// Commands of one transaction.
const COMMANDS_MAX: usize = 1000;
/// Bytes of the longest error, and more than a token or a session's id takes.
const ERROR_MAX: usize = 512;

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
        CommandKind::Transaction | CommandKind::Leaving => run(server, call, spec.verb),
        CommandKind::Plain if !is_listing(&call, spec) => queue(server, call, spec),
        // Those that list could make one EXEC as long as thousands of other commands.
        CommandKind::Plain | CommandKind::Identity | CommandKind::Alone => {
            abort(call.conn);
            call.error("ERR Command not allowed inside a transaction");
        }
    }
}

/// Whether a command that otherwise has a short reply lists something.
fn is_listing(call: &Call<'_>, spec: &Spec) -> bool {
    spec.verb == Verb::Session && is_of_admins(call)
}

/// The longest reply that a queued command can have, in bytes.
fn longest_reply(call: &Call<'_>, spec: &Spec) -> usize {
    match spec.verb {
        Verb::Ping | Verb::Echo => call.arg(1).len() + 32,
        Verb::LockAll => ERROR_MAX.max(32 * call.args.len()),
        _ => ERROR_MAX,
    }
}

fn queue(server: &Server, mut call: Call<'_>, spec: &Spec) {
    let longest = longest_reply(&call, spec);
    let Some(transaction) = &mut call.conn.transaction else {
        return;
    };
    let words: Vec<&[u8]> = call.args.iter(call.request).collect();
    let room = server.config.max_request;
    let bytes: usize = words.iter().map(|word| word.len() + 16).sum();
    let fits = transaction.requests.len() + bytes <= room && transaction.count < COMMANDS_MAX;
    let replies = transaction.replies + longest;
    let most = server.config.max_output;
    if !(transaction.aborted || fits && replies <= most) {
        abort(call.conn);
        return call.error(&format!(
            "ERR a transaction has at most {COMMANDS_MAX} commands, {room} bytes (--max-request) \
             and replies of {most} bytes (--max-output)"
        ));
    }
    if !transaction.aborted {
        encode(&mut transaction.requests, &words);
        transaction.count += 1;
        transaction.replies = replies;
    }
    call.reply().simple("QUEUED");
}

pub(super) fn multi(_: &mut Server, mut call: Call<'_>) {
    if call.conn.transaction.is_some() {
        return call.error("ERR MULTI calls can not be nested");
    }
    call.conn.transaction = Some(Box::default());
    call.conn.update_guard();
    call.reply().simple("OK");
}

pub(super) fn discard(_: &mut Server, mut call: Call<'_>) {
    if call.conn.end_transaction().is_some() {
        call.reply().simple("OK");
    } else {
        call.error("ERR DISCARD without MULTI");
    }
}

pub(super) fn exec(server: &mut Server, mut call: Call<'_>) {
    let Some(transaction) = call.conn.end_transaction() else {
        return call.error("ERR EXEC without MULTI");
    };
    if transaction.aborted {
        return call.error("EXECABORT Transaction discarded because of previous errors.");
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
        execute_queued(server, queued);
        rest = &rest[used..];
    }
    debug_assert!(call.out.len() - start <= transaction.replies);
}

fn execute_queued(server: &mut Server, mut call: Call<'_>) {
    let Some(spec) = find(call.arg(0)) else {
        // It was found when it was queued.
        return call.error("ERR unknown command");
    };
    if let Err(text) = permit(server, &call, spec) {
        return call.error(&text);
    }
    // In a transaction LOCK does not wait: the commands behind it could not be
    // executed together with it.
    match spec.verb {
        Verb::Lock => acquire(server, call, Patience::Ignored),
        Verb::LockAll => acquire_all(server, call, Patience::Ignored),
        verb => run(server, call, verb),
    }
}
