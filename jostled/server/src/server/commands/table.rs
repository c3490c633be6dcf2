//! The commands: one table, which dispatch, `COMMAND`, the counters and the tests walk.

use super::{
    Call, acl, admin, ha, handover, identity, locks, sessions, shutdown, tools, transaction,
};
use crate::server::Server;

/// The rights that a user needs for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A login, and no further right.
    Anybody,
    /// `+@lock`.
    Lock,
    /// `+@admin`.
    Admin,
    /// `+@admin` for some subcommands.
    Subcommand,
}

/// The arguments that are names of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    None,
    /// The first one.
    First,
    /// The names behind the first argument, which is their number.
    Counted,
}

/// A command.
pub(crate) struct Spec {
    pub(crate) verb: Verb,
    pub(crate) name: &'static str,
    /// The arguments behind the name, for people.
    pub(crate) arguments: &'static str,
    pub(crate) summary: &'static str,
    /// Arguments with the name, at least and at most.
    pub(crate) arity: (usize, usize),
    pub(crate) class: Class,
    pub(crate) names: Names,
    pub(crate) kind: CommandKind,
}

/// Where a command may stand: before AUTH, within MULTI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandKind {
    /// After AUTH; queued within MULTI.
    Plain,
    /// Before AUTH; refused within MULTI, where its reply could come late.
    Identity,
    /// Before AUTH; executed at once within MULTI, which it ends.
    Leaving,
    /// MULTI and what belongs to it.
    Transaction,
    /// After AUTH; refused within MULTI: its reply may be long, and other clients come next.
    Alone,
}

impl CommandKind {
    /// Whether it works before AUTH.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Identity | Self::Leaving)
    }
}

const ANY: usize = usize::MAX;

/// Makes [`Verb`] and the rows of [`COMMANDS`]: the command, its name, the arity, what the
/// user needs, the arguments that are names, the kind and the function; then the arguments and
/// the summary.
macro_rules! commands {
    ($($verb:ident $name:literal ($least:expr, $most:expr) $class:ident $names:ident $kind:ident
       $run:path; $arguments:literal $summary:literal)*) => {
        /// Its place in [`COMMANDS`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Verb {
            $($verb),*
        }

        /// All commands; those that are asked for most stand first, as they are looked
        /// up in this order.
        pub(crate) static COMMANDS: &[Spec] = &[$(Spec {
            verb: Verb::$verb,
            name: $name,
            arguments: $arguments,
            summary: $summary,
            arity: ($least, $most),
            class: Class::$class,
            names: Names::$names,
            kind: CommandKind::$kind,
        }),*];

        /// Executes a command that may be executed now.
        #[inline]
        pub(super) fn run(server: &mut Server, call: Call<'_>, verb: Verb) {
            match verb {
                $(Verb::$verb => {
                    if matches!(CommandKind::$kind, CommandKind::Alone) {
                        server.work.list();
                    }
                    $run(server, call);
                })*
            }
        }
    };
}

commands! {
    Lock "LOCK" (2, 8) Lock First Plain locks::lock;
        "name [TTL ms | SESSION id] [WAIT ms] [SHARED | OF n]"
        "Acquires a lock, waiting in line if need be; returns the fencing token, or nil when \
         WAIT has passed."
    Unlock "UNLOCK" (2, 3) Lock First Plain locks::unlock;
        "name [token]"
        "Releases a lock that this connection took, or the one with this token."
    TryLock "TRYLOCK" (2, 6) Lock First Plain locks::trylock;
        "name [TTL ms | SESSION id] [SHARED | OF n]"
        "Acquires a lock if that is possible at once; returns the fencing token, or nil."
    Renew "RENEW" (5, 5) Lock First Plain locks::renew;
        "name token TTL ms"
        "Lets a lease end this long from now."
    Ping "PING" (1, 2) Anybody None Plain identity::ping;
        "[message]"
        "Answers PONG, or the message."
    Holder "HOLDER" (2, 2) Lock First Alone admin::holder;
        "name"
        "Lists the holders of a lock: none, one, or those who share it."
    Holders "HOLDERS" (1, 7) Admin None Alone admin::holders;
        "[pattern] [LIMIT n] | CURSOR c [MATCH pattern] [COUNT n]"
        "Lists the holders of all locks whose names match: at most 1000, or a page."
    Waiters "WAITERS" (2, 8) Admin First Alone admin::waiters;
        "name [CURSOR c [MATCH pattern] [COUNT n]]"
        "Lists who waits for a lock: the first 1000, or a page in no order."
    ForceUnlock "FORCEUNLOCK" (2, 2) Admin First Plain locks::force_unlock;
        "name"
        "Takes a lock away from its holders; returns how many there were."
    Contention "CONTENTION" (1, 3) Admin None Alone admin::contention;
        "[COUNT n]"
        "Lists the names that are waited for most, in this minute and this hour and those before."
    Info "INFO" (1, ANY) Anybody None Alone admin::info_command;
        "[section ...]"
        "Counters and gauges."
    Hello "HELLO" (1, 7) Anybody None Identity identity::hello;
        "[version [AUTH user password] [SETNAME name]]"
        "Agrees on the version of the protocol."
    Auth "AUTH" (2, 3) Anybody None Identity identity::auth;
        "[user] password"
        "Gives the password; the user, if any, is `default`."
    Client "CLIENT" (2, ANY) Subcommand None Alone identity::client;
        "ID | SETNAME name | GETNAME | SETINFO key value | INFO | LIST [CURSOR c [MATCH pattern] \
         [COUNT n]] | UNBLOCK id [TIMEOUT | ERROR] | KILL [ID] id"
        "Names this connection, lists all, ends a wait or a connection."
    Echo "ECHO" (2, 2) Anybody None Plain identity::echo;
        "message"
        "Answers the message."
    Select "SELECT" (2, 2) Anybody None Plain identity::select;
        "0"
        "There is one database, and its number is 0."
    Command "COMMAND" (1, ANY) Anybody None Alone tools::command;
        "[COUNT | LIST | INFO [name ...] | DOCS [name ...]]"
        "Describes the commands."
    Config "CONFIG" (2, ANY) Anybody None Alone tools::config;
        "GET pattern [pattern ...]"
        "Settings that tools for Redis ask for."
    Reset "RESET" (1, 1) Anybody None Leaving identity::reset;
        ""
        "Forgets the connection's name, version and password; its locks stay."
    Quit "QUIT" (1, 1) Anybody None Leaving identity::quit;
        ""
        "Answers OK and closes the connection."
    Multi "MULTI" (1, 1) Anybody None Transaction transaction::multi;
        ""
        "Queues the commands that follow, until EXEC or DISCARD."
    Exec "EXEC" (1, 1) Anybody None Transaction transaction::exec;
        ""
        "Executes what was queued since MULTI; a LOCK within does not wait."
    LockAll "LOCKALL" (3, ANY) Lock Counted Plain locks::lock_all;
        "count name [name ...] [TTL ms | SESSION id] [WAIT ms] [SHARED]"
        "Acquires several locks in one step, waiting in all their lines if need be; returns \
         their tokens, or nil."
    Session "SESSION" (2, 8) Lock None Plain sessions::session;
        "OPEN TTL ms [AS text] | RENEW id | CLOSE id | CLOSE USER user | LIST [CURSOR c [MATCH pattern] \
         [COUNT n]]"
        "Opens, renews or ends a session, which owns the locks that LOCK takes in its name; ends \
         those of a user, or lists all."
    Place "PLACE" (4, 4) Lock First Alone sessions::place;
        "name SESSION id | ID client"
        "A session's, or a connection's, own place in the line for a lock: 1 is the next one; nil \
         if it does not wait."
    Acl "ACL" (2, 8) Subcommand None Alone acl::acl;
        "WHOAMI | LIST [CURSOR c [MATCH pattern] [COUNT n]] | LOAD"
        "Names this connection's user, lists all, reads the users file again."
    Shutdown "SHUTDOWN" (1, 3) Admin None Alone shutdown::shutdown;
        "[NOW | DRAIN time | ABORT]"
        "Ends the daemon: at once, or when nobody holds a lock, at the latest after a time such \
         as 30s."
    Leases "LEASES" (2, 2) Admin None Plain shutdown::leases;
        "FORGET"
        "Ends the wait for leases of the program before: locks are granted although clients may \
         still rely on them."
    Handover "HANDOVER" (1, 1) Admin None Alone handover::handover;
        ""
        "Lets the program that is installed now take the daemon's place, with all locks and \
         connections without TLS."
    Ha "HA" (2, 2) Admin None Alone ha::ha;
        "STATUS | FAILOVER"
        "Reports the group that this jostled serves, or lets another member serve it."
    Discard "DISCARD" (1, 1) Anybody None Transaction transaction::discard;
        ""
        "Drops what was queued since MULTI."
}

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

static KEYS: [u64; COMMANDS.len()] = {
    let mut keys = [0; COMMANDS.len()];
    let mut at = 0;
    while at < keys.len() {
        keys[at] = key(COMMANDS[at].name.as_bytes());
        at += 1;
    }
    keys
};

/// The command of this name.
#[inline(always)]
pub(crate) fn find(name: &[u8]) -> Option<&'static Spec> {
    let wanted = key(name);
    let is_it = |spec: &&Spec| spec.name.as_bytes().eq_ignore_ascii_case(name);
    // LOCK and UNLOCK, without a loop.
    if wanted == KEYS[0] && name.len() == 4 {
        return Some(&COMMANDS[0]).filter(is_it);
    }
    if wanted == KEYS[1] && name.len() == 6 {
        return Some(&COMMANDS[1]).filter(is_it);
    }
    let same = KEYS.iter().zip(COMMANDS).filter(|(key, _)| **key == wanted);
    same.map(|(_, spec)| spec).find(is_it)
}

/// How often each command was asked for, in the order of [`COMMANDS`].
pub(crate) type PerCommand = [u64; KEYS.len()];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case_and_nothing_else_is() {
        let found = |name: &[u8]| find(name).map(|spec| spec.verb);
        for (index, spec) in COMMANDS.iter().enumerate() {
            assert_eq!(spec.verb as usize, index);
            assert_eq!(found(spec.name.as_bytes()), Some(spec.verb));
            assert_eq!(found(spec.name.to_lowercase().as_bytes()), Some(spec.verb));
            assert_eq!(found(&spec.name.as_bytes()[1..]), None);
            assert!(spec.summary.ends_with('.'), "{}", spec.name);
        }
        assert_eq!((COMMANDS[0].name, COMMANDS[1].name), ("LOCK", "UNLOCK"));
        for name in ["", "GET", "LOCKX", "AVERYLONGNAMEINDEED", "l\x0fck"] {
            assert_eq!(found(name.as_bytes()), None, "{name}");
        }
    }
}
