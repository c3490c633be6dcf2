//! The commands that take, release and renew locks.

use jostle_resp::{Writer, parse_u64};

use super::{Call, Server, sessions};
use crate::server::conn::Phase;
use crate::table::{Event, LockAllRequest, LockRequest, Mode, Refusal, Reply, SessionKey, Time};

/// What can stand behind the name.
#[derive(Default)]
struct Options {
    ttl_ms: Option<u64>,
    wait_ms: Option<u64>,
    shared: bool,
    places: Option<u16>,
    session: Option<SessionKey>,
}

/// The longest time. A request without a limit leaves the option out.
pub(super) const MS_MAX: u64 = crate::config::TTL_MAX_MS;

/// The options from `index` on.
#[inline]
fn options(
    call: &Call<'_>,
    may_wait: bool,
    index: usize,
    max_ttl_ms: u64,
) -> Result<Options, &'static str> {
    let mut options = Options::default();
    // Most requests have no options. Then nothing is returned through memory, where one
    // large load would wait for several smaller stores.
    if index < call.args.len() {
        read_options(call, may_wait, index, &mut options)?;
        if options.ttl_ms.is_some_and(|ms| ms > max_ttl_ms) {
            return Err(TTL_TOO_LONG);
        }
    }
    Ok(options)
}

/// [`options`], if there are any.
fn read_options(
    call: &Call<'_>,
    may_wait: bool,
    mut index: usize,
    options: &mut Options,
) -> Result<(), &'static str> {
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
        } else if word.eq_ignore_ascii_case(b"OF") && options.places.is_none() {
            let digits = call.args.get(call.request, index + 1);
            let places = digits
                .and_then(parse_u64)
                .filter(|n| (1..=65535).contains(n));
            options.places = Some(places.ok_or("ERR OF is 1 to 65535 places")? as u16);
            index += 2;
        } else if word.eq_ignore_ascii_case(b"SESSION") && options.session.is_none() {
            let digits = call.args.get(call.request, index + 1);
            let key = digits.and_then(|digits| sessions::key(call.conn, digits));
            options.session = Some(key.ok_or(sessions::NO_SESSION)?);
            index += 2;
        } else {
            return Err("ERR syntax error");
        }
    }
    if options.session.is_some() && options.ttl_ms.is_some() {
        return Err("ERR a lock of a session has no TTL: the session has one");
    }
    if options.shared && options.places.is_some() {
        return Err("ERR SHARED has no number of places, OF has one");
    }
    Ok(())
}

/// The error of a lease that is longer than leases may be.
pub(super) const TTL_TOO_LONG: &str = "ERR the TTL is longer than --max-ttl allows";

/// What a command may do about a lock that is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// Waits, for as long as its WAIT option allows.
    Wait,
    /// Does not wait; a WAIT option is accepted and ignored.
    Ignored,
    /// Does not wait; a WAIT option is an error.
    None,
}

pub(super) fn lock(server: &mut Server, call: Call<'_>) {
    acquire(server, call, Patience::Wait);
}

/// LOCK within a transaction.
pub(super) fn lock_within(server: &mut Server, call: Call<'_>) {
    acquire(server, call, Patience::Ignored);
}

pub(super) fn trylock(server: &mut Server, call: Call<'_>) {
    acquire(server, call, Patience::None);
}

#[inline]
fn acquire(server: &mut Server, mut call: Call<'_>, patience: Patience) {
    let max_ttl_ms = server.config.max_ttl_ms;
    let options = match options(&call, patience != Patience::None, 2, max_ttl_ms) {
        Ok(options) => options,
        Err(text) => return call.reply().error(text),
    };
    let mut wait_ms = match patience {
        Patience::Wait => options.wait_ms,
        _ => Some(0),
    };
    if !server.grants(&mut call, options.ttl_ms, &mut wait_ms) {
        return;
    }
    let request = LockRequest {
        client: call.conn.id,
        name: call.arg(1),
        ttl_ms: options.ttl_ms,
        wait_ms,
        mode: match options.places {
            Some(of @ 2..) => Mode::Place { of },
            _ if options.shared => Mode::Shared,
            _ => Mode::Exclusive,
        },
        session: options.session.as_ref(),
    };
    match server.step(Event::Lock(request), call.now) {
        Reply::Granted(token) => call.reply().integer(token as i64),
        Reply::Queued => {
            call.conn.phase = Phase::Waiting;
            if request.ttl_ms.is_some() || request.session.is_some() {
                // Needed to pass the lock on if the client is gone when the grant comes.
                call.conn.wanted.set(&[request.name]);
            }
        }
        Reply::Busy => call.reply().nil(),
        Reply::Refused(refusal) => server.refuse(&mut call.reply(), refusal),
        Reply::NoSession => call.reply().error(sessions::NO_SESSION),
        Reply::AlreadyHeld { token, mode, .. } => {
            let whose = match request.session {
                Some(_) => THE_SESSION,
                None => "this connection holds the lock",
            };
            already_held(&mut call.reply(), token, mode, whose);
        }
        other => call
            .reply()
            .error(&format!("ERR the lock table says {other:?}")),
    }
}

/// The end of an ALREADYHELD error about a session's lock.
pub(in crate::server) const THE_SESSION: &str = "the session holds the lock";

/// Replies with the hold that the owner already has. A client that missed the reply to
/// its first request learns the token from this one.
#[cold]
pub(in crate::server) fn already_held(reply: &mut Writer<'_>, token: u64, mode: Mode, whose: &str) {
    let mode = mode.word();
    reply.error(&format!("ALREADYHELD {token} {mode} {whose}"));
}

/// Locks that one LOCKALL takes at most.
const NAMES_MAX: usize = 64;

/// The names of LOCKALL, and its options.
fn names_and_options<'a>(
    call: &Call<'a>,
    max_ttl_ms: u64,
) -> Result<(Vec<&'a [u8]>, Options), &'static str> {
    let count = parse_u64(call.arg(1)).filter(|count| (1..=NAMES_MAX as u64).contains(count));
    let count = count.ok_or("ERR LOCKALL takes 1 to 64 names")? as usize;
    let names: Vec<&[u8]> = call.rest(2).take(count).collect();
    if names.len() < count {
        return Err("ERR there are fewer names than LOCKALL says");
    }
    let mut sorted = names.clone();
    sorted.sort_unstable();
    if sorted.windows(2).any(|two| two[0] == two[1]) {
        return Err("ERR LOCKALL takes different names");
    }
    let options = options(call, true, 2 + count, max_ttl_ms)?;
    if options.shared || options.places.is_some() || options.session.is_some() {
        return Err("ERR LOCKALL takes locks alone: no SHARED, OF or SESSION");
    }
    Ok((names, options))
}

pub(super) fn lock_all(server: &mut Server, call: Call<'_>) {
    acquire_all(server, call, Patience::Wait);
}

/// LOCKALL within a transaction.
pub(super) fn lock_all_within(server: &mut Server, call: Call<'_>) {
    acquire_all(server, call, Patience::Ignored);
}

fn acquire_all(server: &mut Server, mut call: Call<'_>, patience: Patience) {
    let (names, options) = match names_and_options(&call, server.config.max_ttl_ms) {
        Ok(both) => both,
        Err(text) => return call.reply().error(text),
    };
    let mut wait_ms = match patience {
        Patience::Wait => options.wait_ms,
        _ => Some(0),
    };
    if !server.grants(&mut call, options.ttl_ms, &mut wait_ms) {
        return;
    }
    let request = LockAllRequest {
        client: call.conn.id,
        names: &names,
        ttl_ms: options.ttl_ms,
        wait_ms,
    };
    match server.step(Event::LockAll(request), call.now) {
        Reply::GrantedAll { first, count } => write_tokens(&mut call.reply(), first, count),
        Reply::Queued => {
            call.conn.phase = Phase::Waiting;
            if request.ttl_ms.is_some() {
                call.conn.wanted.set(&names);
            }
        }
        Reply::Busy => call.reply().nil(),
        Reply::Refused(refusal) => server.refuse(&mut call.reply(), refusal),
        Reply::AlreadyHeld { token, mode, at } => {
            let whose = format!(
                "this connection holds number {} of the {} locks",
                at + 1,
                names.len()
            );
            already_held(&mut call.reply(), token, mode, &whose);
        }
        other => call
            .reply()
            .error(&format!("ERR the lock table says {other:?}")),
    }
}

/// An array of tokens that follow each other.
pub(in crate::server) fn write_tokens(reply: &mut Writer<'_>, first: u64, count: u32) {
    reply.array(count as usize);
    for token in first..first + u64::from(count) {
        reply.integer(token as i64);
    }
}

pub(super) fn unlock(server: &mut Server, mut call: Call<'_>) {
    let token = if call.args.len() > 2 {
        match parse_u64(call.arg(2)) {
            Some(token) => Some(token),
            None => return call.reply().error("ERR the token is not a number"),
        }
    } else {
        None
    };
    let (client, name) = (call.conn.id, call.arg(1));
    match server.step(
        Event::Unlock {
            client,
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

pub(super) fn renew(server: &mut Server, mut call: Call<'_>) {
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
    if ttl_ms > server.config.max_ttl_ms {
        return call.reply().error(TTL_TOO_LONG);
    }
    if !server.leases_for(&mut call, ttl_ms) {
        return;
    }
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

pub(super) fn force_unlock(server: &mut Server, mut call: Call<'_>) {
    let name = call.arg(1);
    if let Reply::Forced(holders) = server.step(Event::Force { name }, call.now) {
        let shown = name.escape_ascii().to_string();
        let fields = [("lock", shown), ("holders", holders.to_string())];
        server.audit(call.conn, "forceunlock", &fields);
        call.reply().integer(holders as i64);
    }
}

impl Server {
    /// Whether a request for a lock is executed now. False: it is answered, or waits in
    /// line for the end of leases that may still run.
    #[inline]
    fn grants(
        &mut self,
        call: &mut Call<'_>,
        ttl_ms: Option<u64>,
        wait_ms: &mut Option<u64>,
    ) -> bool {
        if self.leases.from.is_some() && !self.has_waited(call, wait_ms) {
            return false;
        }
        ttl_ms.is_none_or(|ttl_ms| self.leases_for(call, ttl_ms))
    }

    /// Whether a request has waited for the end of those leases; its wait then goes on
    /// with what is left of it.
    #[cold]
    fn has_waited(&mut self, call: &mut Call<'_>, wait_ms: &mut Option<u64>) -> bool {
        let Phase::Released(parked) = call.conn.phase else {
            self.grant_later(call, *wait_ms);
            return false;
        };
        call.conn.phase = Phase::Open;
        let left_ns = |until: Time| until.0.saturating_sub(call.now.0);
        let left_ms = parked.until.map(|until| left_ns(until).div_ceil(1_000_000));
        *wait_ms = left_ms.or(*wait_ms);
        true
    }

    fn grant_later(&mut self, call: &mut Call<'_>, wait_ms: Option<u64>) {
        let (now, ms) = (call.now, self.loading_ms(call.now).unwrap_or(1));
        if wait_ms == Some(0) {
            return call.reply().error(&format!(
                "LOADING leases of the program before may still run: locks are granted in {ms} ms"
            ));
        }
        self.stats.commands -= 1;
        self.park(call.conn, wait_ms, now);
    }

    /// Whether a lease of this length can begin or be renewed; if not, the call is
    /// answered.
    #[inline]
    pub(super) fn leases_for(&mut self, call: &mut Call<'_>, ttl_ms: u64) -> bool {
        let may = self.may_lease(ttl_ms, call.now);
        if !may {
            self.refuse(&mut call.reply(), Refusal::Tokens);
        }
        may
    }

    /// Replies with the reason why a lock was not granted.
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
            Refusal::Places(places) => format!(
                "BADLIMIT this lock has {places} places (OF) as long as anybody holds it or waits"
            ),
            Refusal::Clients => "ERR too many connections".to_owned(),
            Refusal::QuotaLocks(most) => {
                format!("QUOTA this user may hold and wait for {most} locks (max-locks)")
            }
            Refusal::QuotaWaiters(most) => {
                format!("QUOTA this user may wait in {most} lines (max-waiters)")
            }
            Refusal::Sessions => format!(
                "TOOMANYSESSIONS {} sessions are open (--max-sessions)",
                limits.sessions
            ),
        });
    }
}
