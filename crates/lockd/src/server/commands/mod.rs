//! The commands: one table, which dispatch, `COMMAND`, the counters and the tests walk.
//! The modules beside this one implement them.

mod acl;
mod admin;
mod clients;
mod handover;
mod identity;
mod locks;
mod pages;
mod rights;
mod sessions;
mod shutdown;
mod tools;
mod transaction;

use jostle_resp::{Args, Writer};

use super::Server;
use super::conn::Conn;
use crate::table::Time;
use admin::{holder, holders, info_command, waiters};
pub(super) use identity::WRONG_PASSWORD;
use identity::{auth, client, echo, hello, ping, quit, reset, select};
use locks::{force_unlock, lock, lock_all, renew, trylock, unlock};
use rights::{Class, Names, may_plainly, permit};
use tools::{command, config};
pub(crate) use transaction::Transaction;
use transaction::{discard, exec, multi};

/// One request being executed.
pub(crate) struct Call<'a> {
    pub(crate) conn: &'a mut Conn,
    pub(crate) args: &'a Args,
    pub(crate) request: &'a [u8],
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) now: Time,
}

impl<'a> Call<'a> {
    #[inline]
    fn arg(&self, index: usize) -> &'a [u8] {
        // The arity was checked; an argument beyond the last is empty.
        self.args.get(self.request, index).unwrap_or_default()
    }

    fn rest(&self, from: usize) -> impl Iterator<Item = &'a [u8]> {
        let (args, request) = (self.args, self.request);
        (from..args.len()).filter_map(move |index| args.get(request, index))
    }

    #[inline]
    fn reply(&mut self) -> Writer<'_> {
        Writer::new(self.out, self.conn.protocol)
    }
}

/// A command.
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    /// What follows the name, for people.
    pub(crate) arguments: &'static str,
    pub(crate) summary: &'static str,
    /// Arguments with the name, at least and at most.
    arity: (usize, usize),
    class: Class,
    names: Names,
    kind: Kind,
    run: fn(&mut Server, Call<'_>),
}

/// Where a command may stand: before AUTH, within MULTI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// After AUTH; queued within MULTI.
    Plain,
    /// The same, and its reply may be long.
    Listing,
    /// Before AUTH; refused within MULTI, where its reply could come late.
    Identity,
    /// Before AUTH; executed at once within MULTI, which it ends.
    Leaving,
    /// MULTI and what belongs to it.
    Transaction,
    /// After AUTH; refused within MULTI.
    Alone,
}

impl Kind {
    /// Whether it works before AUTH.
    fn is_open(self) -> bool {
        matches!(self, Self::Identity | Self::Leaving)
    }
}

const ANY: usize = usize::MAX;

/// Makes rows of [`COMMANDS`]: the name, the arity, what the user needs, the arguments that
/// are names, the kind and the function; then the arguments and the summary.
macro_rules! commands {
    ($($name:literal ($least:expr, $most:expr) $class:ident $names:ident $kind:ident => $($run:ident)::+;
       $arguments:literal $summary:literal)*) => {
        &[$(Spec {
            name: $name,
            arguments: $arguments,
            summary: $summary,
            arity: ($least, $most),
            class: Class::$class,
            names: Names::$names,
            kind: Kind::$kind,
            run: $($run)::+,
        }),*]
    };
}

/// All commands; those that are asked for most stand first, as they are looked
/// up in this order.
pub(crate) static COMMANDS: &[Spec] = commands! {
    "LOCK" (2, 8) Lock First Plain => lock;
        "name [TTL ms | SESSION id] [WAIT ms] [SHARED | OF n]"
        "Acquires a lock, waiting in line if need be; returns the fencing token, or nil when \
         WAIT has passed."
    "UNLOCK" (2, 3) Lock First Plain => unlock;
        "name [token]"
        "Releases a lock that this connection took, or the one with this token."
    "TRYLOCK" (2, 6) Lock First Plain => trylock;
        "name [TTL ms | SESSION id] [SHARED | OF n]"
        "Acquires a lock if that is possible at once; returns the fencing token, or nil."
    "RENEW" (5, 5) Lock First Plain => renew;
        "name token TTL ms"
        "Lets a lease end this long from now."
    "PING" (1, 2) Anybody None Plain => ping;
        "[message]"
        "Answers PONG, or the message."
    "HOLDER" (2, 2) Lock First Listing => holder;
        "name"
        "Lists the holders of a lock: none, one, or those who share it."
    "HOLDERS" (1, 7) Admin None Listing => holders;
        "[pattern] [LIMIT n] | CURSOR c [MATCH pattern] [COUNT n]"
        "Lists the holders of all locks whose names match: at most 1000, or a page."
    "WAITERS" (2, 8) Admin First Listing => waiters;
        "name [CURSOR c [MATCH pattern] [COUNT n]]"
        "Lists who waits for a lock: the first 1000, or a page in no order."
    "FORCEUNLOCK" (2, 2) Admin First Plain => force_unlock;
        "name"
        "Takes a lock away from its holders; returns how many there were."
    "INFO" (1, ANY) Anybody None Listing => info_command;
        "[section ...]"
        "Counters and gauges."
    "HELLO" (1, 7) Anybody None Identity => hello;
        "[version [AUTH user password] [SETNAME name]]"
        "Agrees on the version of the protocol."
    "AUTH" (2, 3) Anybody None Identity => auth;
        "[user] password"
        "Gives the password; the user, if any, is `default`."
    "CLIENT" (2, ANY) Subcommand None Listing => client;
        "ID | SETNAME name | GETNAME | SETINFO key value | INFO | LIST [CURSOR c [MATCH pattern] \
         [COUNT n]] | UNBLOCK id [TIMEOUT | ERROR] | KILL [ID] id"
        "Names this connection, lists all, ends a wait or a connection."
    "ECHO" (2, 2) Anybody None Plain => echo;
        "message"
        "Answers the message."
    "SELECT" (2, 2) Anybody None Plain => select;
        "0"
        "There is one database, and its number is 0."
    "COMMAND" (1, ANY) Anybody None Listing => command;
        "[COUNT | LIST | INFO [name ...] | DOCS [name ...]]"
        "Describes the commands."
    "CONFIG" (2, ANY) Anybody None Listing => config;
        "GET pattern [pattern ...]"
        "Settings that tools for Redis ask for."
    "RESET" (1, 1) Anybody None Leaving => reset;
        ""
        "Forgets the connection's name, version and password; its locks stay."
    "QUIT" (1, 1) Anybody None Leaving => quit;
        ""
        "Answers OK and closes the connection."
    "MULTI" (1, 1) Anybody None Transaction => multi;
        ""
        "Queues the commands that follow, until EXEC or DISCARD."
    "EXEC" (1, 1) Anybody None Transaction => exec;
        ""
        "Executes what was queued since MULTI; a LOCK within does not wait."
    "LOCKALL" (3, ANY) Lock Counted Plain => lock_all;
        "count name [name ...] [TTL ms] [WAIT ms]"
        "Acquires several locks in one step, waiting in all their lines if need be; returns \
         their tokens, or nil."
    "SESSION" (3, 4) Lock None Plain => sessions::session;
        "OPEN TTL ms | RENEW id | CLOSE id"
        "Opens, renews or ends a session, which owns the locks that LOCK takes in its name."
    "ACL" (2, 2) Subcommand None Listing => acl::acl;
        "WHOAMI | LIST | LOAD"
        "Names this connection's user, lists all, reads the users file again."
    "SHUTDOWN" (1, 3) Admin None Listing => shutdown::shutdown;
        "[NOW | DRAIN time | ABORT]"
        "Ends the daemon: at once, or when nobody holds a lock, at the latest after a time such \
         as 30s."
    "HANDOVER" (1, 1) Admin None Alone => handover::handover;
        ""
        "Lets the program that is installed now take the daemon's place, with all locks and \
         connections without TLS."
    "DISCARD" (1, 1) Anybody None Transaction => discard;
        ""
        "Drops what was queued since MULTI."
};

/// Up to 8 letters as one number, without regard to case: letters differ from
/// their capitals by one bit, and no other byte becomes a letter.
#[inline]
const fn key(name: &[u8]) -> u64 {
    let mut word = 0;
    let mut at = 0;
    while at < name.len() && at < 8 {
        word |= ((name[at] & !0x20) as u64) << (8 * at);
        at += 1;
    }
    word
}

static KEYS: [u64; 27] = {
    let mut keys = [0; 27];
    let mut at = 0;
    while at < keys.len() {
        keys[at] = key(COMMANDS[at].name.as_bytes());
        at += 1;
    }
    keys
};

/// The place of a command in [`COMMANDS`].
#[inline(always)]
fn find(name: &[u8]) -> Option<usize> {
    // LOCK and UNLOCK, without a loop.
    match name {
        [b'L' | b'l', b'O' | b'o', b'C' | b'c', b'K' | b'k'] => return Some(0),
        [
            b'U' | b'u',
            b'N' | b'n',
            b'L' | b'l',
            b'O' | b'o',
            b'C' | b'c',
            b'K' | b'k',
        ] => {
            return Some(1);
        }
        _ => {}
    }
    let wanted = key(name);
    let same = |index: &usize| COMMANDS[*index].name.as_bytes().eq_ignore_ascii_case(name);
    (0..KEYS.len())
        .filter(|index| KEYS[*index] == wanted)
        .find(same)
}

/// How often each command was asked for, in the order of [`COMMANDS`].
pub(crate) type PerCommand = [u64; KEYS.len()];

/// Executes a request that is not empty.
#[inline]
pub(crate) fn execute(server: &mut Server, mut call: Call<'_>) {
    server.stats.commands += 1;
    call.conn.commands += 1;
    let Some(index) = find(call.arg(0)) else {
        return unknown(server, call);
    };
    let spec = &COMMANDS[index];
    server.stats.per_command[index] += 1;
    if call.args.len() < spec.arity.0 || call.args.len() > spec.arity.1 {
        return wrong_arity(call, spec);
    }
    if call.conn.guarded && !may_plainly(&call, spec) {
        if let Err(text) = permit(server, &call, spec) {
            transaction::abort(call.conn);
            return call.reply().error(&text);
        }
        if call.conn.transaction.is_some() {
            return transaction::execute_within(server, call, spec);
        }
    }
    // LOCK and UNLOCK are called by name, so that the compiler can inline them.
    match index {
        0 => lock(server, call),
        1 => unlock(server, call),
        _ => (spec.run)(server, call),
    }
}

#[cold]
fn wrong_arity(mut call: Call<'_>, spec: &Spec) {
    transaction::abort(call.conn);
    let name = spec.name.to_ascii_lowercase();
    call.reply().error(&format!(
        "ERR wrong number of arguments for '{name}' command"
    ));
}

#[cold]
fn unknown(server: &mut Server, mut call: Call<'_>) {
    if is_http(&call) {
        // A web page can make a browser send anything behind such a line: the body of a
        // POST would be executed. The connection closes without a reply.
        server.stats.closed_http += 1;
        call.conn.closing = true;
        return;
    }
    transaction::abort(call.conn);
    if !call.conn.authenticated {
        return call.reply().error("NOAUTH Authentication required.");
    }
    let name = call.arg(0);
    let shown = name[..name.len().min(64)].escape_ascii();
    call.reply()
        .error(&format!("ERR unknown command '{shown}'"));
}

/// Whether a request is a line of HTTP. `POST` and `Host:` count in any form, as in
/// Redis. Other methods count only in an inline request that ends with an HTTP version.
fn is_http(call: &Call<'_>) -> bool {
    let name = call.arg(0);
    let last = call.arg(call.args.len() - 1);
    let inline = call.request.first() != Some(&b'*');
    name.eq_ignore_ascii_case(b"POST")
        || name.eq_ignore_ascii_case(b"Host:")
        || (inline && last.starts_with(b"HTTP/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case_and_nothing_else_is() {
        for (index, spec) in COMMANDS.iter().enumerate() {
            assert_eq!(find(spec.name.as_bytes()), Some(index));
            assert_eq!(find(spec.name.to_lowercase().as_bytes()), Some(index));
            assert_eq!(find(&spec.name.as_bytes()[1..]), None);
            assert!(spec.summary.ends_with('.'), "{}", spec.name);
        }
        assert_eq!(KEYS.len(), COMMANDS.len());
        assert_eq!((COMMANDS[0].name, COMMANDS[1].name), ("LOCK", "UNLOCK"));
        for name in ["", "GET", "LOCKX", "AVERYLONGNAMEINDEED", "l\x0fck"] {
            assert_eq!(find(name.as_bytes()), None, "{name}");
        }
    }
}
