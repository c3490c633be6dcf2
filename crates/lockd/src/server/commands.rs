//! The commands: one table, which dispatch, `COMMAND`, the counters and the
//! tests walk.

use jostle_resp::{Args, Protocol, Writer, parse_u64};
use subtle::ConstantTimeEq;

use super::conn::Conn;
use super::{Server, info};
use crate::config::PASSWORD_MAX;
use crate::table::{Event, Holder, LockRequest, Mode, Refusal, Reply, SessionId, Time};

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
        // The command's arity was checked; beyond it there is nothing.
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
    /// Whether it works before AUTH.
    open: bool,
    run: fn(&mut Server, Call<'_>),
}

const ANY: usize = usize::MAX;

/// All commands; those that are asked for most stand first, as they are looked
/// up in this order.
pub(crate) static COMMANDS: &[Spec] = &[
    Spec {
        name: "LOCK",
        arguments: "name [TTL ms] [WAIT ms] [SHARED]",
        summary: "Acquires a lock, waiting in line if need be; returns the fencing token, or nil \
                  when WAIT has passed.",
        arity: (2, 7),
        open: false,
        run: lock,
    },
    Spec {
        name: "UNLOCK",
        arguments: "name [token]",
        summary: "Releases a lock that this connection took, or the one with this token.",
        arity: (2, 3),
        open: false,
        run: unlock,
    },
    Spec {
        name: "TRYLOCK",
        arguments: "name [TTL ms] [SHARED]",
        summary: "Acquires a lock if that is possible at once; returns the fencing token, or nil.",
        arity: (2, 5),
        open: false,
        run: trylock,
    },
    Spec {
        name: "RENEW",
        arguments: "name token TTL ms",
        summary: "Lets a lease end this long from now.",
        arity: (5, 5),
        open: false,
        run: renew,
    },
    Spec {
        name: "PING",
        arguments: "[message]",
        summary: "Answers PONG, or the message.",
        arity: (1, 2),
        open: false,
        run: ping,
    },
    Spec {
        name: "HOLDER",
        arguments: "name",
        summary: "Lists the holders of a lock: none, one, or those who share it.",
        arity: (2, 2),
        open: false,
        run: holder,
    },
    Spec {
        name: "HOLDERS",
        arguments: "[pattern] [LIMIT n]",
        summary: "Lists the holders of all locks whose names match, at most 1000 unless told.",
        arity: (1, 4),
        open: false,
        run: holders,
    },
    Spec {
        name: "WAITERS",
        arguments: "name",
        summary: "Lists who waits for a lock, the next one first.",
        arity: (2, 2),
        open: false,
        run: waiters,
    },
    Spec {
        name: "FORCEUNLOCK",
        arguments: "name",
        summary: "Takes a lock away from its holders; returns how many there were.",
        arity: (2, 2),
        open: false,
        run: force_unlock,
    },
    Spec {
        name: "INFO",
        arguments: "[section ...]",
        summary: "Counters and gauges.",
        arity: (1, ANY),
        open: false,
        run: info_command,
    },
    Spec {
        name: "HELLO",
        arguments: "[version [AUTH user password] [SETNAME name]]",
        summary: "Agrees on the version of the protocol.",
        arity: (1, 7),
        open: true,
        run: hello,
    },
    Spec {
        name: "AUTH",
        arguments: "[user] password",
        summary: "Gives the password; the user, if any, is `default`.",
        arity: (2, 3),
        open: true,
        run: auth,
    },
    Spec {
        name: "CLIENT",
        arguments: "ID | SETNAME name | GETNAME | SETINFO key value | LIST | INFO",
        summary: "Names this connection, or lists all.",
        arity: (2, ANY),
        open: false,
        run: client,
    },
    Spec {
        name: "ECHO",
        arguments: "message",
        summary: "Answers the message.",
        arity: (2, 2),
        open: false,
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
        open: false,
        run: select,
    },
    Spec {
        name: "COMMAND",
        arguments: "[COUNT | LIST | INFO [name ...] | DOCS [name ...]]",
        summary: "Describes the commands.",
        arity: (1, ANY),
        open: false,
        run: command,
    },
    Spec {
        name: "CONFIG",
        arguments: "GET pattern [pattern ...]",
        summary: "Settings that tools for Redis ask for.",
        arity: (2, ANY),
        open: false,
        run: config,
    },
    Spec {
        name: "RESET",
        arguments: "",
        summary: "Forgets the connection's name, version and password; its locks stay.",
        arity: (1, 1),
        open: true,
        run: reset,
    },
    Spec {
        name: "QUIT",
        arguments: "",
        summary: "Answers OK and closes the connection.",
        arity: (1, 1),
        open: true,
        run: |_, mut call| {
            call.reply().simple("OK");
            call.conn.closing = true;
        },
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

static KEYS: [u64; 19] = {
    let mut keys = [0; 19];
    let mut at = 0;
    while at < keys.len() {
        keys[at] = key(COMMANDS[at].name.as_bytes());
        at += 1;
    }
    keys
};

/// The place of a command in [`COMMANDS`].
#[inline]
fn find(name: &[u8]) -> Option<usize> {
    // The two that matter most, without a loop.
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
        return unknown(call);
    };
    let spec = &COMMANDS[index];
    server.stats.per_command[index] += 1;
    if call.args.len() < spec.arity.0 || call.args.len() > spec.arity.1 {
        let name = spec.name.to_ascii_lowercase();
        return call.reply().error(&format!(
            "ERR wrong number of arguments for '{name}' command"
        ));
    }
    if !call.conn.authenticated && !spec.open {
        return call.reply().error("NOAUTH Authentication required.");
    }
    (spec.run)(server, call);
}

#[cold]
fn unknown(mut call: Call<'_>) {
    if !call.conn.authenticated {
        return call.reply().error("NOAUTH Authentication required.");
    }
    let name = call.arg(0);
    let shown = name[..name.len().min(64)].escape_ascii();
    call.reply()
        .error(&format!("ERR unknown command '{shown}'"));
}

// Locks.

/// What can stand behind the name.
#[derive(Default)]
struct Options {
    ttl_ms: Option<u64>,
    wait_ms: Option<u64>,
    shared: bool,
}

/// 2^40 ms are 34 years: whoever wants more means forever, and can say so.
const MS_MAX: u64 = 1 << 40;

fn options(call: &Call<'_>, may_wait: bool) -> Result<Options, &'static str> {
    let mut options = Options::default();
    let mut index = 2;
    while index < call.args.len() {
        let word = call.arg(index);
        let number = || {
            let digits = call.args.get(call.request, index + 1);
            digits.and_then(parse_u64).filter(|ms| *ms <= MS_MAX)
        };
        if word.eq_ignore_ascii_case(b"TTL") && options.ttl_ms.is_none() {
            let ms = number().filter(|ms| *ms > 0);
            options.ttl_ms = Some(ms.ok_or("ERR TTL is milliseconds, 1 to 1099511627776")?);
            index += 2;
        } else if word.eq_ignore_ascii_case(b"WAIT") && may_wait && options.wait_ms.is_none() {
            options.wait_ms = Some(number().ok_or("ERR WAIT is milliseconds, 0 to 1099511627776")?);
            index += 2;
        } else if word.eq_ignore_ascii_case(b"SHARED") && !options.shared {
            options.shared = true;
            index += 1;
        } else {
            return Err("ERR syntax error");
        }
    }
    Ok(options)
}

fn lock(server: &mut Server, call: Call<'_>) {
    acquire(server, call, true);
}

fn trylock(server: &mut Server, call: Call<'_>) {
    acquire(server, call, false);
}

#[inline]
fn acquire(server: &mut Server, mut call: Call<'_>, may_wait: bool) {
    let options = match options(&call, may_wait) {
        Ok(options) => options,
        Err(text) => return call.reply().error(text),
    };
    let request = LockRequest {
        session: call.conn.session,
        name: call.arg(1),
        ttl_ms: options.ttl_ms,
        wait_ms: if may_wait { options.wait_ms } else { Some(0) },
        mode: if options.shared {
            Mode::Shared
        } else {
            Mode::Exclusive
        },
    };
    match server.step(Event::Lock(request), call.now) {
        Reply::Granted(token) => call.reply().integer(token as i64),
        Reply::Queued => {
            call.conn.waiting = true;
            if request.ttl_ms.is_some() {
                // For the case that the client is gone when the lease comes.
                call.conn.wanted.clear();
                call.conn.wanted.extend_from_slice(request.name);
            }
        }
        Reply::Busy => call.reply().nil(),
        Reply::Refused(refusal) => server.refuse(&mut call.reply(), refusal),
        _ => call
            .reply()
            .error("ALREADYHELD this connection holds the lock"),
    }
}

fn unlock(server: &mut Server, mut call: Call<'_>) {
    let token = if call.args.len() > 2 {
        match parse_u64(call.arg(2)) {
            Some(token) => Some(token),
            None => return call.reply().error("ERR the token is not a number"),
        }
    } else {
        None
    };
    let (session, name) = (call.conn.session, call.arg(1));
    match server.step(
        Event::Unlock {
            session,
            name,
            token,
        },
        call.now,
    ) {
        Reply::Released => call.reply().integer(1),
        Reply::NotHeld => call.reply().error("NOTHELD nobody holds the lock"),
        _ if token.is_some() => call
            .reply()
            .error("NOTOWNER the lock is held with another token"),
        _ => call
            .reply()
            .error("NOTOWNER the lock was not taken by this connection"),
    }
}

fn renew(server: &mut Server, mut call: Call<'_>) {
    if !call.arg(3).eq_ignore_ascii_case(b"TTL") {
        return call.reply().error("ERR syntax error");
    }
    let Some(token) = parse_u64(call.arg(2)) else {
        return call.reply().error("ERR the token is not a number");
    };
    let Some(ttl_ms) = parse_u64(call.arg(4)).filter(|ms| (1..=MS_MAX).contains(ms)) else {
        return call
            .reply()
            .error("ERR TTL is milliseconds, 1 to 1099511627776");
    };
    let name = call.arg(1);
    match server.step(
        Event::Renew {
            name,
            token,
            ttl_ms,
        },
        call.now,
    ) {
        Reply::Renewed => call.reply().integer(1),
        Reply::NoLease => call
            .reply()
            .error("NOLEASE the lock is its connection's and has no TTL"),
        _ => call.reply().error("NOTOWNER no lease with this token"),
    }
}

fn force_unlock(server: &mut Server, mut call: Call<'_>) {
    let name = call.arg(1);
    if let Reply::Forced(holders) = server.step(Event::Force { name }, call.now) {
        call.reply().integer(holders as i64);
    }
}

impl Server {
    /// Says why a lock was not granted.
    #[cold]
    pub(crate) fn refuse(&self, reply: &mut Writer<'_>, refusal: Refusal) {
        let limits = &self.config.table;
        reply.error(&match refusal {
            Refusal::Tokens => format!(
                "NOTOKENS no fencing tokens can be reserved: {}",
                self.token_trouble()
            ),
            Refusal::Memory => format!(
                "OOM the lock table may not exceed {} bytes (--max-memory)",
                limits.memory_bytes
            ),
            Refusal::WaitersOfLock => format!(
                "TOOMANYWAITERS {} wait for this lock (--max-waiters-per-lock)",
                limits.waiters_per_lock
            ),
            Refusal::Waiters => {
                format!(
                    "TOOMANYWAITERS {} wait for locks (--max-waiters)",
                    limits.waiters
                )
            }
            Refusal::Name => {
                format!(
                    "BADNAME a name has 1 to {} bytes (--max-name)",
                    limits.name_bytes
                )
            }
            Refusal::Sessions => "ERR too many connections".to_owned(),
        });
    }
}

// The administrator's view.

fn mode_name(mode: Mode) -> &'static [u8] {
    match mode {
        Mode::Exclusive => b"exclusive",
        Mode::Shared => b"shared",
    }
}

/// Milliseconds until `end`, rounded up; -1 if there is no end.
fn ms_left(end: Option<Time>, now: Time) -> i64 {
    end.map_or(-1, |end| {
        end.0.saturating_sub(now.0).div_ceil(1_000_000) as i64
    })
}

/// The client's number, address and name; the last two are empty if it is gone.
fn write_client(server: &Server, call: &mut Call<'_>, session: SessionId) {
    let own = call.conn.session == session;
    let conn = if own {
        Some(&*call.conn)
    } else {
        server.conn(session)
    };
    let address = conn.map(Conn::address).unwrap_or_default();
    let name = conn.map(|conn| conn.name.clone()).unwrap_or_default();
    let mut reply = call.reply();
    reply.bulk(b"client");
    reply.integer(session.number() as i64);
    reply.bulk(b"address");
    reply.bulk(address.as_bytes());
    reply.bulk(b"name");
    reply.bulk(&name);
}

/// The fields of a holder; 6 pairs.
fn write_holder(server: &Server, call: &mut Call<'_>, holder: &Holder) {
    let left = ms_left(holder.expires, call.now);
    let mut reply = call.reply();
    reply.bulk(b"token");
    reply.integer(holder.token as i64);
    reply.bulk(b"mode");
    reply.bulk(mode_name(holder.mode));
    reply.bulk(b"ttl-ms");
    reply.integer(left);
    write_client(server, call, holder.session);
}

fn holder(server: &mut Server, mut call: Call<'_>) {
    server.long = true;
    let holders: Vec<Holder> = server.table.holders(call.arg(1)).collect();
    call.reply().array(holders.len());
    for holder in &holders {
        call.reply().map(6);
        write_holder(server, &mut call, holder);
    }
}

fn holders(server: &mut Server, mut call: Call<'_>) {
    server.long = true;
    let mut index = 1;
    let mut pattern: &[u8] = b"*";
    if call.args.len().is_multiple_of(2) {
        pattern = call.arg(1);
        index = 2;
    }
    let mut limit = 1000;
    if index < call.args.len() {
        let number = parse_u64(call.arg(index + 1));
        match number {
            Some(number) if call.arg(index).eq_ignore_ascii_case(b"LIMIT") => limit = number,
            _ => return call.reply().error("ERR syntax error"),
        }
    }
    let mut found: Vec<(Vec<u8>, Holder)> = Vec::new();
    server.table.each_hold(&mut Vec::new(), |name, holder| {
        if info::glob(pattern, name) && (found.len() as u64) < limit {
            found.push((name.to_vec(), holder));
        }
        (found.len() as u64) < limit
    });
    call.reply().array(found.len());
    for (name, holder) in &found {
        let mut reply = call.reply();
        reply.map(7);
        reply.bulk(b"lock");
        reply.bulk(name);
        write_holder(server, &mut call, holder);
    }
}

fn waiters(server: &mut Server, mut call: Call<'_>) {
    server.long = true;
    let waiters: Vec<_> = server.table.waiters(call.arg(1)).collect();
    call.reply().array(waiters.len());
    for waiter in &waiters {
        let waited_ms = (call.now.0 - waiter.since.0) / 1_000_000;
        let left = ms_left(waiter.until, call.now);
        let mut reply = call.reply();
        reply.map(7);
        reply.bulk(b"mode");
        reply.bulk(mode_name(waiter.mode));
        reply.bulk(b"waited-ms");
        reply.integer(waited_ms as i64);
        reply.bulk(b"wait-ms");
        reply.integer(left);
        reply.bulk(b"ttl-ms");
        reply.integer(waiter.ttl_ms.map_or(-1, |ms| ms as i64));
        write_client(server, &mut call, waiter.session);
    }
}

fn info_command(server: &mut Server, mut call: Call<'_>) {
    server.long = true;
    let sections: Vec<&[u8]> = call.rest(1).collect();
    let text = info::text(&info::fields(server, call.now), &sections);
    call.reply().verbatim(&text);
}

// The connection.

/// Compares in a time that does not tell how much was right.
fn same_password(expected: &str, given: &[u8]) -> bool {
    let pad = |bytes: &[u8]| {
        let mut padded = [0; PASSWORD_MAX];
        let length = bytes.len().min(PASSWORD_MAX);
        padded[..length].copy_from_slice(&bytes[..length]);
        padded
    };
    let same = pad(expected.as_bytes()).ct_eq(&pad(given));
    let length = (expected.len() as u64).ct_eq(&(given.len() as u64));
    (same & length).into()
}

/// Checks a user and password; says what is wrong.
fn authenticate(
    server: &mut Server,
    conn: &mut Conn,
    user: &[u8],
    given: &[u8],
) -> Result<(), &'static str> {
    let Some(expected) = server.config.password.as_deref() else {
        return Err(
            "ERR AUTH <password> called without any password configured for the default \
                    user. Are you sure your configuration is correct?",
        );
    };
    if !same_password(expected, given) || user != b"default" {
        server.stats.auth_failures += 1;
        return Err("WRONGPASS invalid username-password pair or user is disabled.");
    }
    conn.authenticated = true;
    Ok(())
}

fn auth(server: &mut Server, mut call: Call<'_>) {
    let (user, given) = match call.args.len() {
        2 => (&b"default"[..], call.arg(1)),
        _ => (call.arg(1), call.arg(2)),
    };
    match authenticate(server, call.conn, user, given) {
        Ok(()) => call.reply().simple("OK"),
        Err(text) => call.reply().error(text),
    }
}

fn hello(server: &mut Server, mut call: Call<'_>) {
    let mut protocol = call.conn.protocol;
    if call.args.len() > 1 {
        protocol = match call.arg(1) {
            b"2" => Protocol::Resp2,
            b"3" => Protocol::Resp3,
            _ => return call.reply().error("NOPROTO unsupported protocol version"),
        };
    }
    let mut name = None;
    let mut index = 2;
    while index < call.args.len() {
        let (word, left) = (call.arg(index), call.args.len() - index - 1);
        if word.eq_ignore_ascii_case(b"AUTH") && left >= 2 {
            let (user, given) = (call.arg(index + 1), call.arg(index + 2));
            if let Err(text) = authenticate(server, call.conn, user, given) {
                return call.reply().error(text);
            }
            index += 3;
        } else if word.eq_ignore_ascii_case(b"SETNAME") && left >= 1 {
            name = Some(call.arg(index + 1));
            index += 2;
        } else {
            return call.reply().error("ERR syntax error in HELLO");
        }
    }
    if !call.conn.authenticated {
        return call.reply().error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        );
    }
    if let Some(name) = name
        && let Err(text) = set_text(&mut call.conn.name, name)
    {
        return call.reply().error(text);
    }
    call.conn.protocol = protocol;
    let number = call.conn.session.number() as i64;
    let mut reply = call.reply();
    reply.map(7);
    for (key, value) in [
        ("server", "jostled"),
        ("version", env!("CARGO_PKG_VERSION")),
    ] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(protocol.number());
    reply.bulk(b"id");
    reply.integer(number);
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
}

/// Names are shown in lists, whose fields are separated by spaces.
fn set_text(place: &mut Vec<u8>, text: &[u8]) -> Result<(), &'static str> {
    if text.len() > 128 || !text.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Err(
            "ERR names have at most 128 bytes, without spaces, newlines or special \
                    characters.",
        );
    }
    place.clear();
    place.extend_from_slice(text);
    Ok(())
}

fn client(server: &mut Server, mut call: Call<'_>) {
    let subcommand = call.arg(1).to_ascii_uppercase();
    let text = call.arg(call.args.len() - 1);
    let done = match (&subcommand[..], call.args.len()) {
        (b"ID", 2) => {
            let number = call.conn.session.number();
            return call.reply().integer(number as i64);
        }
        (b"GETNAME", 2) => {
            let name = std::mem::take(&mut call.conn.name);
            if name.is_empty() {
                call.reply().nil();
            } else {
                call.reply().bulk(&name);
            }
            call.conn.name = name;
            return;
        }
        (b"SETNAME", 3) => set_text(&mut call.conn.name, text),
        (b"SETINFO", 4) if call.arg(2).eq_ignore_ascii_case(b"LIB-NAME") => {
            set_text(&mut call.conn.library, text)
        }
        (b"SETINFO", 4) if call.arg(2).eq_ignore_ascii_case(b"LIB-VER") => {
            set_text(&mut call.conn.library_version, text)
        }
        (b"INFO", 2) => {
            let line = info::client_line(server, call.conn, call.now);
            return call.reply().verbatim(&line);
        }
        (b"LIST", 2) => {
            server.long = true;
            let mut text = info::client_line(server, call.conn, call.now);
            for conn in server.conns.iter().flatten() {
                text.push_str(&info::client_line(server, conn, call.now));
            }
            return call.reply().verbatim(&text);
        }
        _ => Err("ERR unknown subcommand or wrong number of arguments for 'client'"),
    };
    match done {
        Ok(()) => call.reply().simple("OK"),
        Err(text) => call.reply().error(text),
    }
}

fn ping(_: &mut Server, mut call: Call<'_>) {
    if call.args.len() > 1 {
        let message = call.arg(1);
        call.reply().bulk(message);
    } else {
        call.reply().simple("PONG");
    }
}

fn select(_: &mut Server, mut call: Call<'_>) {
    match parse_u64(call.arg(1)) {
        Some(0) => call.reply().simple("OK"),
        _ => call.reply().error("ERR DB index is out of range"),
    }
}

fn reset(server: &mut Server, mut call: Call<'_>) {
    call.conn.name.clear();
    call.conn.protocol = Protocol::Resp2;
    call.conn.authenticated = server.config.password.is_none();
    call.reply().simple("RESET");
}

// What tools for Redis ask.

fn command(_: &mut Server, mut call: Call<'_>) {
    let subcommand = call.arg(1).to_ascii_uppercase();
    let named: Vec<Option<&Spec>> = if call.args.len() > 2 {
        call.rest(2)
            .map(|name| find(name).map(|index| &COMMANDS[index]))
            .collect()
    } else {
        COMMANDS.iter().map(Some).collect()
    };
    let mut reply = call.reply();
    match &subcommand[..] {
        b"COUNT" => reply.integer(COMMANDS.len() as i64),
        b"LIST" => {
            reply.array(COMMANDS.len());
            COMMANDS
                .iter()
                .for_each(|spec| reply.bulk(spec.name.to_lowercase().as_bytes()));
        }
        b"DOCS" => {
            let known: Vec<&Spec> = named.into_iter().flatten().collect();
            reply.map(known.len());
            for spec in known {
                write_docs(&mut reply, spec);
            }
        }
        b"" | b"INFO" => {
            reply.array(named.len());
            for spec in named {
                match spec {
                    Some(spec) => write_spec(&mut reply, spec),
                    None => reply.nil(),
                }
            }
        }
        _ => reply.error("ERR unknown subcommand for 'command'"),
    }
}

fn write_docs(reply: &mut Writer<'_>, spec: &Spec) {
    reply.bulk(spec.name.to_lowercase().as_bytes());
    reply.map(3);
    for (key, value) in [
        ("summary", spec.summary),
        ("since", "0.1.0"),
        ("group", "locks"),
    ] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
}

/// Name, arity, flags, and where the keys stand: the six fields that every
/// version of the protocol has.
fn write_spec(reply: &mut Writer<'_>, spec: &Spec) {
    let exact = spec.arity.0 == spec.arity.1;
    let arity = spec.arity.0 as i64;
    let key = i64::from(spec.arguments.starts_with("name"));
    reply.array(6);
    reply.bulk(spec.name.to_lowercase().as_bytes());
    reply.integer(if exact { arity } else { -arity });
    reply.set(1);
    reply.simple(if spec.open { "no_auth" } else { "fast" });
    for number in [key, key, key] {
        reply.integer(number);
    }
}

fn config(server: &mut Server, mut call: Call<'_>) {
    if !call.arg(1).eq_ignore_ascii_case(b"GET") || call.args.len() < 3 {
        return call
            .reply()
            .error("ERR only CONFIG GET is supported; settings are flags and a file");
    }
    let values = info::settings(&server.config);
    let patterns: Vec<Vec<u8>> = call.rest(2).map(<[u8]>::to_ascii_lowercase).collect();
    let wanted = |key: &str| {
        patterns
            .iter()
            .any(|pattern| info::glob(pattern, key.as_bytes()))
    };
    let found: Vec<_> = values.iter().filter(|(key, _)| wanted(key)).collect();
    let mut reply = call.reply();
    reply.map(found.len());
    for (key, value) in found {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
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

    #[test]
    fn passwords_are_the_same_only_if_they_are() {
        assert!(same_password("secret", b"secret"));
        for given in ["", "secre", "secret\0", "Secret", "secrets"] {
            assert!(!same_password("secret", given.as_bytes()), "{given:?}");
        }
    }
}
