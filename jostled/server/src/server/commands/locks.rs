//! The commands that take, release and renew locks.

use jostle_resp::parse_u64;

use super::call::Call;
use super::sessions;
use crate::log::Value;
use crate::server::Server;
use crate::server::conn::{Conn, Phase};
use crate::server::replies::NO_SESSION;
use crate::table::{
    Force, LockAllRequest, LockRequest, Mode, NotReleased, NotRenewed, Outcome, Refusal, Renew,
    SessionKey, Unlock,
};

/// The options behind the name.
#[derive(Default)]
struct Options {
    ttl_ms: Option<u64>,
    wait_ms: Option<u64>,
    shared: bool,
    places: Option<u16>,
    session: Option<SessionKey>,
}

/// The longest time. A request without a limit leaves the option out.
const MS_MAX: u64 = crate::config::TTL_MAX_MS;

/// Reads the options from `index` on. They are not returned: that would copy them, by large
/// loads that wait for several smaller stores.
#[inline]
fn read_options(
    call: &Call<'_>,
    may_wait: bool,
    index: usize,
    server: &Server,
    options: &mut Options,
) -> Result<(), String> {
    // Most requests have none.
    if index < call.args.len() {
        read_words(call, may_wait, index, options)?;
        if options
            .ttl_ms
            .is_some_and(|ms| ms > server.max_ttl_ms(call.conn))
        {
            return Err(TTL_TOO_LONG.into());
        }
    }
    Ok(())
}

/// [`read_options`], if there are any.
fn read_words(
    call: &Call<'_>,
    may_wait: bool,
    mut index: usize,
    options: &mut Options,
) -> Result<(), String> {
    while index < call.args.len() {
        let word = call.arg(index);
        let number = || {
            let digits = call.args.get(call.request, index + 1);
            digits.and_then(parse_u64).filter(|ms| *ms <= MS_MAX)
        };
        if word.eq_ignore_ascii_case(b"TTL") && options.ttl_ms.is_none() {
            let ms = number().filter(|ms| *ms > 0);
            options.ttl_ms = Some(ms.ok_or(TTL_RANGE)?);
            index += 2;
        } else if word.eq_ignore_ascii_case(b"WAIT") && may_wait && options.wait_ms.is_none() {
            options.wait_ms = Some(number().ok_or("ERR WAIT is milliseconds, 0 to 1099511627776")?);
            index += 2;
        } else if word.eq_ignore_ascii_case(b"SHARED") && !options.shared {
            options.shared = true;
            index += 1;
        } else if word.eq_ignore_ascii_case(b"OF") && options.places.is_none() {
            let places = number().filter(|n| (1..=65535).contains(n));
            options.places = Some(places.ok_or("ERR OF is 1 to 65535 places")? as u16);
            index += 2;
        } else if word.eq_ignore_ascii_case(b"SESSION") && options.session.is_none() {
            let digits = call.args.get(call.request, index + 1);
            let key = digits.and_then(|digits| sessions::key(call.conn, digits));
            options.session = Some(key.ok_or(NO_SESSION)?);
            index += 2;
        } else {
            return Err(call.wrong_word(index));
        }
    }
    if options.session.is_some() && options.ttl_ms.is_some() {
        return Err("ERR a lock of a session has no TTL: the session has one".into());
    }
    if options.shared && options.places.is_some() {
        return Err("ERR SHARED has no number of places, OF has one".into());
    }
    Ok(())
}

/// The errors of a lease that is not of a length that leases may have.
const TTL_RANGE: &str = "ERR TTL is milliseconds, 1 to 1099511627776";
const TTL_TOO_LONG: &str = "ERR the TTL is longer than --max-ttl, or this user's max-ttl, allows";

/// A command's conduct at a lock that is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Waits, for as long as its WAIT option allows.
    Wait,
    /// Does not wait, within a transaction; a WAIT option is accepted and ignored.
    Ignored,
    /// Does not wait; a WAIT option is an error.
    None,
}

impl Patience {
    #[inline]
    fn wait_ms(self, options: &Options) -> Option<u64> {
        match self {
            Self::Wait => options.wait_ms,
            _ => Some(0),
        }
    }
}

pub(super) fn lock(server: &mut Server, call: Call<'_>) {
    acquire(server, call, Patience::Wait);
}

pub(super) fn trylock(server: &mut Server, call: Call<'_>) {
    acquire(server, call, Patience::None);
}

#[inline]
pub(super) fn acquire(server: &mut Server, mut call: Call<'_>, patience: Patience) {
    let may_wait = patience != Patience::None;
    let mut options = Options::default();
    if let Err(text) = read_options(&call, may_wait, 2, server, &mut options) {
        return call.error(&text);
    }
    let mut wait_ms = patience.wait_ms(&options);
    let session = options.session.as_ref();
    if !server.may_grant_now(&mut call, &options, &mut wait_ms) {
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
        session,
    };
    let outlives = request.ttl_ms.is_some() || request.session.is_some();
    let leased = if outlives { &[request.name][..] } else { &[] };
    let outcome = server.step(request, call.now);
    conclude(server, call, &outcome, leased);
}

/// Answers a request for locks, or lets it wait for these names, as leases or as a
/// session's: they are needed to pass the locks on if the client is gone when they are
/// granted.
#[inline]
fn conclude(server: &Server, mut call: Call<'_>, outcome: &Option<Outcome>, leased: &[&[u8]]) {
    match outcome {
        Some(outcome) => server.answer(call.reply(), outcome),
        None => {
            call.conn.phase = Phase::Waiting;
            call.conn.wanted.clear();
            let wanted = &mut call.conn.wanted;
            leased.iter().for_each(|name| wanted.push(0, name, 0));
        }
    }
}

/// Locks that one LOCKALL takes at most.
const NAMES_MAX: usize = 64;

/// The names of LOCKALL, and its options.
fn names_and_options<'a>(
    call: &Call<'a>,
    server: &Server,
) -> Result<(Vec<&'a [u8]>, Options), String> {
    let count = parse_u64(call.arg(1)).filter(|count| (1..=NAMES_MAX as u64).contains(count));
    let count = count.ok_or("ERR LOCKALL takes 1 to 64 names")? as usize;
    let names: Vec<&[u8]> = call.rest(2).take(count).collect();
    if names.len() < count {
        return Err("ERR there are fewer names than LOCKALL says".into());
    }
    let mut sorted = names.clone();
    sorted.sort_unstable();
    if sorted.windows(2).any(|two| two[0] == two[1]) {
        return Err("ERR LOCKALL takes different names".into());
    }
    let mut options = Options::default();
    read_options(call, true, 2 + count, server, &mut options)?;
    if options.places.is_some() {
        return Err("ERR LOCKALL takes no places: no OF".into());
    }
    Ok((names, options))
}

pub(super) fn lock_all(server: &mut Server, call: Call<'_>) {
    acquire_all(server, call, Patience::Wait);
}

pub(super) fn acquire_all(server: &mut Server, mut call: Call<'_>, patience: Patience) {
    let (names, options) = match names_and_options(&call, server) {
        Ok(both) => both,
        Err(text) => return call.error(&text),
    };
    let mut wait_ms = patience.wait_ms(&options);
    if !server.may_grant_now(&mut call, &options, &mut wait_ms) {
        return;
    }
    let request = LockAllRequest {
        client: call.conn.id,
        names: &names,
        ttl_ms: options.ttl_ms,
        wait_ms,
        shared: options.shared,
        session: options.session.as_ref(),
    };
    let outcome = server.step(request, call.now);
    let outlives = request.ttl_ms.is_some() || request.session.is_some();
    let leased = if outlives { &names[..] } else { &[] };
    conclude(server, call, &outcome, leased);
}

pub(super) fn unlock(server: &mut Server, mut call: Call<'_>) {
    let token = parse_u64(call.arg(2));
    if token.is_none() && call.args.len() > 2 {
        return call.error("ERR the token is not a number");
    }
    let (client, name) = (call.conn.id, call.arg(1));
    let unlock = Unlock {
        client,
        name,
        token,
    };
    match server.step(unlock, call.now) {
        Ok(()) => call.reply().integer(1),
        Err(NotReleased::NotHeld) => call.error("NOTHELD nobody holds the lock"),
        Err(NotReleased::NotOwner) if token.is_some() => {
            call.error("NOTOWNER the lock is held with another token")
        }
        Err(NotReleased::NotOwner) => {
            call.error("NOTOWNER the lock was not taken by this connection")
        }
    }
}

pub(super) fn renew(server: &mut Server, mut call: Call<'_>) {
    if !call.arg(3).eq_ignore_ascii_case(b"TTL") {
        return call.error(&call.wrong_word(3));
    }
    let Some(token) = parse_u64(call.arg(2)) else {
        return call.error("ERR the token is not a number");
    };
    let Some(ttl_ms) = server.lease(&mut call, 4) else {
        return;
    };
    let name = call.arg(1);
    let renew = Renew {
        name,
        token,
        ttl_ms,
    };
    match server.step(renew, call.now) {
        Ok(()) => call.reply().integer(1),
        Err(NotRenewed::NoLease) => {
            call.error("NOLEASE the lock is its connection's and has no TTL")
        }
        Err(NotRenewed::NotOwner) => call.error("NOTOWNER no lease with this token"),
    }
}

pub(super) fn force_unlock(server: &mut Server, mut call: Call<'_>) {
    let name = call.arg(1);
    let holders = server.step(Force(name), call.now);
    let fields = [
        ("lock", Value::Bytes(name)),
        ("holders", Value::Shown(&holders)),
    ];
    server.audit(call.conn, "forceunlock", &fields);
    call.reply().integer(holders as i64);
}

impl Server {
    /// The longest TTL that a client may ask for.
    fn max_ttl_ms(&self, conn: &Conn) -> u64 {
        let rule = conn.user.as_ref().and_then(|user| user.quota.ttl_s);
        let own = rule.map_or(u64::MAX, |seconds| u64::from(seconds) * 1000);
        own.min(self.config.max_ttl_ms)
    }

    /// Whether a request for a lock is executed now. False: it is answered, or waits in
    /// line for the end of leases that may still run.
    #[inline]
    fn may_grant_now(
        &mut self,
        call: &mut Call<'_>,
        options: &Options,
        wait_ms: &mut Option<u64>,
    ) -> bool {
        if self.leases.from.is_some() && !self.has_waited(call, wait_ms) {
            return false;
        }
        let session = options.session.as_ref();
        let of_session = || Some(self.table.session_ttl_ms(session?, call.now)?.0);
        let ttl_ms = options.ttl_ms.or_else(of_session);
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
        let left_ms = parked.until.map(|until| until.ms_from(call.now));
        *wait_ms = left_ms.or(*wait_ms);
        true
    }

    fn grant_later(&mut self, call: &mut Call<'_>, wait_ms: Option<u64>) {
        let (now, ms) = (call.now, self.loading_ms(call.now).unwrap_or(1));
        if wait_ms == Some(0) {
            return call.error(&format!(
                "LOADING leases of the program before may still run: locks are granted in {ms} ms"
            ));
        }
        self.stats.commands -= 1;
        self.park(call.conn, wait_ms, now);
    }

    /// The time to live at this position, if a lease of that length can begin or be
    /// renewed; if not, the call is answered.
    pub(super) fn lease(&mut self, call: &mut Call<'_>, index: usize) -> Option<u64> {
        let ms = self.ttl(call, index)?;
        self.leases_for(call, ms).then_some(ms)
    }

    /// The time to live at this position; if it may not be so long, the call is answered.
    pub(super) fn ttl(&self, call: &mut Call<'_>, index: usize) -> Option<u64> {
        let ms = parse_u64(call.arg(index)).filter(|ms| (1..=MS_MAX).contains(ms));
        let text = match ms {
            None => TTL_RANGE,
            Some(ms) if ms > self.max_ttl_ms(call.conn) => TTL_TOO_LONG,
            Some(ms) => return Some(ms),
        };
        call.error(text);
        None
    }

    /// Whether a session can be renewed; if not, the call is answered. One that neither
    /// holds nor waits needs no promise.
    pub(super) fn may_renew(&mut self, call: &mut Call<'_>, key: &SessionKey) -> bool {
        let found = self.table.session_ttl_ms(key, call.now);
        found.is_none_or(|(ttl_ms, used)| !used || self.leases_for(call, ttl_ms))
    }

    /// Whether a lease of this length can begin or be renewed; if not, the call is
    /// answered.
    #[inline]
    pub(super) fn leases_for(&mut self, call: &mut Call<'_>, ttl_ms: u64) -> bool {
        let may = self.may_lease(ttl_ms, call.now);
        if !may {
            self.refuse(call.reply(), Refusal::Tokens);
        }
        may
    }
}
