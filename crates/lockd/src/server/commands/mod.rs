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
use identity::{auth, client, hello, ping, reset, select};
pub(super) use locks::{THE_SESSION, already_held, write_tokens};
use locks::{force_unlock, lock, lock_all, renew, trylock, unlock};
use rights::{Class, Names, may_plainly, permit};
pub(super) use sessions::NO_SESSION;
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

/// All commands; those that are asked for most stand first, as they are looked
/// up in this order.
pub(crate) static COMMANDS: &[Spec] = &[
    Spec {
        name: "LOCK",
        arguments: "name [TTL ms | SESSION id] [WAIT ms] [SHARED | OF n]",
        summary: "Acquires a lock, waiting in line if need be; returns the fencing token, or nil \
                  when WAIT has passed.",
        arity: (2, 8),
        class: Class::Lock,
        names: Names::First,
        kind: Kind::Plain,
        run: lock,
    },
    Spec {
        name: "UNLOCK",
        arguments: "name [token]",
        summary: "Releases a lock that this connection took, or the one with this token.",
        arity: (2, 3),
        class: Class::Lock,
        names: Names::First,
        kind: Kind::Plain,
        run: unlock,
    },
    Spec {
        name: "TRYLOCK",
        arguments: "name [TTL ms | SESSION id] [SHARED | OF n]",
        summary: "Acquires a lock if that is possible at once; returns the fencing token, or nil.",
        arity: (2, 6),
        class: Class::Lock,
        names: Names::First,
        kind: Kind::Plain,
        run: trylock,
    },
    Spec {
        name: "RENEW",
        arguments: "name token TTL ms",
        summary: "Lets a lease end this long from now.",
        arity: (5, 5),
        class: Class::Lock,
        names: Names::First,
        kind: Kind::Plain,
        run: renew,
    },
    Spec {
        name: "PING",
        arguments: "[message]",
        summary: "Answers PONG, or the message.",
        arity: (1, 2),
        class: Class::Anybody,
        names: Names::None,
        kind: Kind::Plain,
        run: ping,
    },
    Spec {
        name: "HOLDER",
        arguments: "name",
        summary: "Lists the holders of a lock: none, one, or those who share it.",
        arity: (2, 2),
        class: Class::Lock,
        names: Names::First,
        kind: Kind::Listing,
        run: holder,
    },
    Spec {
        name: "HOLDERS",
        arguments: "[pattern] [LIMIT n] | CURSOR c [MATCH pattern] [COUNT n]",
        summary: "Lists the holders of all locks whose names match: at most 1000, or a page.",
        arity: (1, 7),
        class: Class::Admin,
        names: Names::None,
        kind: Kind::Listing,
        run: holders,
    },
    Spec {
        name: "WAITERS",
        arguments: "name [CURSOR c [MATCH pattern] [COUNT n]]",
        summary: "Lists who waits for a lock: the first 1000, or a page in no order.",
        arity: (2, 8),
        class: Class::Admin,
        names: Names::First,
        kind: Kind::Listing,
        run: waiters,
    },
    Spec {
        name: "FORCEUNLOCK",
        arguments: "name",
        summary: "Takes a lock away from its holders; returns how many there were.",
        arity: (2, 2),
        class: Class::Admin,
        names: Names::First,
        kind: Kind::Plain,
        run: force_unlock,
    },
    Spec {
        name: "INFO",
        arguments: "[section ...]",
        summary: "Counters and gauges.",
        arity: (1, ANY),
        class: Class::Anybody,
        names: Names::None,
        kind: Kind::Listing,
        run: info_command,
    },
    Spec {
        name: "HELLO",
        arguments: "[version [AUTH user password] [SETNAME name]]",
        summary: "Agrees on the version of the protocol.",
        arity: (1, 7),
        class: Class::Anybody,
        names: Names::None,
        kind: Kind::Identity,
        run: hello,
    },
    Spec {
        name: "AUTH",
        arguments: "[user] password",
        summary: "Gives the password; the user, if any, is `default`.",
        arity: (2, 3),
        class: Class::Anybody,
        names: Names::None,
        kind: Kind::Identity,
        run: auth,
    },
    Spec {
        name: "CLIENT",
        arguments: "ID | SETNAME name | GETNAME | SETINFO key value | INFO | LIST [CURSOR c \
                    [MATCH pattern] [COUNT n]] | UNBLOCK id [TIMEOUT | ERROR] | KILL [ID] id",
        summary: "Names this connection, lists all, ends a wait or a connection.",
        arity: (2, ANY),
        class: Class::Subcommand,
        names: Names::None,
        kind: Kind::Listing,
        run: client,
    },
    Spec {
        name: "ECHO",
        arguments: "message",
        summary: "Answers the message.",
        arity: (2, 2),
        class: Class::Anybody,
        names: Names::None,
        kind: Kind::Plain,
        run: |_, mut call| {
            let message = call.arg(1);
            call.reply().bulk(message);
        },
    },
    Spec {
        name: "SELECT",
        arguments: "0",
        summary: "There is one database, and its number is 0.",
        arity: (2, 2),
        class: Class::Anybody,
        names: Names::None,
        kind: Kind::Plain,
        run: select,
    },
    Spec {
        name: "COMMAND",
        arguments: "[COUNT | LIST | INFO [name ...] | DOCS [name ...]]",
        summary: "Describes the commands.",
        arity: (1, ANY),
        class: Class::Anybody,
        names: Names::None,
        kind: Kind::Listing,
        run: command,
    },
    Spec {
        name: "CONFIG",
        arguments: "GET pattern [pattern ...]",
        summary: "Settings that tools for Redis ask for.",
        arity: (2, ANY),
        class: Class::Anybody,
        names: Names::None,
        kind: Kind::Listing,
        run: config,
    },
    Spec {
        name: "RESET",
        arguments: "",
        summary: "Forgets the connection's name, version and password; its locks stay.",
        arity: (1, 1),
        class: Class::Anybody,
        names: Names::None,
        kind: Kind::Leaving,
        run: reset,
    },
    Spec {
        name: "QUIT",
        arguments: "",
        summary: "Answers OK and closes the connection.",
        arity: (1, 1),
        class: Class::Anybody,
        names: Names::None,
        kind: Kind::Leaving,
        run: |_, mut call| {
            call.reply().simple("OK");
            call.conn.closing = true;
        },
    },
    Spec {
        name: "MULTI",
        arguments: "",
        summary: "Queues the commands that follow, until EXEC or DISCARD.",
        arity: (1, 1),
        class: Class::Anybody,
        names: Names::None,
        kind: Kind::Transaction,
        run: multi,
    },
    Spec {
        name: "EXEC",
        arguments: "",
        summary: "Executes what was queued since MULTI; a LOCK within does not wait.",
        arity: (1, 1),
        class: Class::Anybody,
        names: Names::None,
        kind: Kind::Transaction,
        run: exec,
    },
    Spec {
        name: "LOCKALL",
        arguments: "count name [name ...] [TTL ms] [WAIT ms]",
        summary: "Acquires several locks in one step, waiting in all their lines if need be; \
                  returns their tokens, or nil.",
        arity: (3, ANY),
        class: Class::Lock,
        names: Names::Counted,
        kind: Kind::Plain,
        run: lock_all,
    },
    Spec {
        name: "SESSION",
        arguments: "OPEN TTL ms | RENEW id | CLOSE id",
        summary: "Opens, renews or ends a session, which owns the locks that LOCK takes in its name.",
        arity: (3, 4),
        class: Class::Lock,
        names: Names::None,
        kind: Kind::Plain,
        run: sessions::session,
    },
    Spec {
        name: "ACL",
        arguments: "WHOAMI | LIST | LOAD",
        summary: "Names this connection's user, lists all, reads the users file again.",
        arity: (2, 2),
        class: Class::Subcommand,
        names: Names::None,
        kind: Kind::Listing,
        run: acl::acl,
    },
    Spec {
        name: "SHUTDOWN",
        arguments: "[NOW | DRAIN time | ABORT]",
        summary: "Ends the daemon: at once, or when nobody holds a lock, at the latest after a \
                  time such as 30s.",
        arity: (1, 3),
        class: Class::Admin,
        names: Names::None,
        kind: Kind::Listing,
        run: shutdown::shutdown,
    },
    Spec {
        name: "HANDOVER",
        arguments: "",
        summary: "Lets the program that is installed now take the daemon's place, with all locks \
                  and connections without TLS.",
        arity: (1, 1),
        class: Class::Admin,
        names: Names::None,
        kind: Kind::Alone,
        run: handover::handover,
    },
    Spec {
        name: "DISCARD",
        arguments: "",
        summary: "Drops what was queued since MULTI.",
        arity: (1, 1),
        class: Class::Anybody,
        names: Names::None,
        kind: Kind::Transaction,
        run: discard,
    },
];

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
