//! SESSION: one heartbeat for many locks.

use jostle_resp::parse_u64;

use super::call::Call;
use super::pages::{Paging, SHOWN_MAX, WALK_AT_ONCE, cost};
use crate::log::Value;
use crate::server::Server;
use crate::server::conn::Conn;
use crate::server::replies::NO_SESSION;
use crate::table::{
    BadCursor, ClientId, CloseSession, CloseSessionsOf, OpenSession, Refusal, RenewSession,
    SessionKey, TEXT_MAX,
};

/// Hexadecimal digits of a session's id.
const DIGITS: usize = 32;

/// The key of a session id in the form that SESSION OPEN returns; `None` for any other form.
pub(super) fn key(conn: &Conn, digits: &[u8]) -> Option<SessionKey> {
    if digits.len() != DIGITS || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let id = u128::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    let user = conn.user_number();
    Some(SessionKey { user, id })
}

pub(super) fn session(server: &mut Server, mut call: Call<'_>) {
    let subcommand = call.arg(1).to_ascii_uppercase();
    match (&subcommand[..], call.args.len()) {
        (b"OPEN", 4 | 6) if call.arg(2).eq_ignore_ascii_case(b"TTL") => open(server, call),
        (b"LIST", _) => list(server, call),
        (b"CLOSE", 4) if call.arg(2).eq_ignore_ascii_case(b"USER") => close_all(server, call),
        (b"RENEW" | b"CLOSE", 3) => {
            let Some(key) = key(call.conn, call.arg(2)) else {
                return call.error(NO_SESSION);
            };
            let open = match &subcommand[..] {
                b"RENEW" if !server.may_renew(&mut call, &key) => return,
                b"RENEW" => server.step(RenewSession(key), call.now),
                _ => server.step(CloseSession(key), call.now),
            };
            match open {
                true => call.reply().integer(1),
                false => call.error(NO_SESSION),
            }
        }
        _ => call.error(&call.wrong_subcommand()),
    }
}

/// Whether a call of SESSION is one of administrators.
pub(super) fn is_of_admins(call: &Call<'_>) -> bool {
    let close = call.arg(1).eq_ignore_ascii_case(b"CLOSE");
    call.arg(1).eq_ignore_ascii_case(b"LIST") || close && call.args.len() == 4
}

/// The open sessions, without their ids, which would give their locks away.
fn list(server: &mut Server, mut call: Call<'_>) {
    server.work.list();
    let Paging { pattern, page } = match Paging::or_all(&call, 2) {
        Ok(paging) => paging,
        Err(text) => return call.error(&text),
    };
    let mut found = Vec::new();
    let from = page.cursor.unwrap_or(0);
    let walked = server
        .table
        .walk_sessions(from, page.budget.min(WALK_AT_ONCE), |session| {
            let user = server.numbers.name(session.account);
            let (matches, cost) = cost(pattern.as_ref(), user.as_bytes());
            if matches {
                found.push((user, session));
            }
            if found.len() >= page.count {
                u64::MAX
            } else {
                cost
            }
        });
    match (page.cursor, walked) {
        (_, Err(BadCursor)) => return call.error("ERR invalid cursor"),
        (Some(_), Ok(next)) => page.begin(&mut call.reply(), next),
        (None, Ok(Some(_))) if found.len() < page.count => {
            return call.error("ERR these are too many: walk with SESSION LIST CURSOR 0");
        }
        (None, Ok(_)) => {}
    }
    call.reply().array(found.len());
    for (user, session) in found {
        let left_ms = session.ends.ms_from(call.now);
        call.reply().map(6);
        call.texts(&[("user", user.as_bytes()), ("as", session.text.as_bytes())]);
        call.number("ttl-ms", session.ttl_ms as i64);
        call.number("left-ms", left_ms as i64);
        call.number("holds", session.holds.into());
        call.number("waits", session.waits.into());
    }
}

/// Ends the sessions of a user, which may be gone.
fn close_all(server: &mut Server, mut call: Call<'_>) {
    let name = String::from_utf8_lossy(call.arg(3)).into_owned();
    let Some(number) = server.numbers.find(&name) else {
        return call.error("ERR there was no user of this name since the start");
    };
    let closed = server.step(CloseSessionsOf(number), call.now);
    let fields = [
        ("closed_user", Value::Bytes(name.as_bytes())),
        ("sessions", Value::Shown(&closed)),
    ];
    server.audit(call.conn, "session close user", &fields);
    call.reply().integer(closed.into());
}

/// Bits that nobody can guess, from the operating system.
fn random_id() -> Option<u128> {
    let mut bytes = [0; 16];
    let length = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK);
    (length.ok()? == bytes.len()).then(|| u128::from_ne_bytes(bytes))
}

/// The text behind AS; people read it on terminals.
fn text<'a>(call: &Call<'a>) -> Option<&'a str> {
    if call.args.len() > 4 && !call.arg(4).eq_ignore_ascii_case(b"AS") {
        return None;
    }
    let text = std::str::from_utf8(call.arg(5)).ok()?;
    (text.len() <= TEXT_MAX && !text.contains(char::is_control)).then_some(text)
}

/// A client's own place in a line: that of a session, or of a connection of its user.
pub(super) fn place(server: &mut Server, mut call: Call<'_>) {
    let of = if call.arg(2).eq_ignore_ascii_case(b"SESSION") {
        key(call.conn, call.arg(3)).map(Ok)
    } else if call.arg(2).eq_ignore_ascii_case(b"ID") {
        let client = parse_u64(call.arg(3)).map(ClientId::from_number);
        let own = |client: &ClientId| {
            let conn = server.conn(*client);
            conn.is_some_and(|conn| conn.user_number() == call.conn.user_number())
        };
        client.filter(own).map(Err)
    } else {
        return call.error(&call.wrong_word(2));
    };
    let of = of.as_ref().map(|of| of.as_ref().map_err(|client| *client));
    let most = SHOWN_MAX as u32;
    let place = of.and_then(|of| server.table.place(call.arg(1), of, call.now, most));
    match place {
        Some(place) => call.reply().integer(place.into()),
        None => call.reply().nil(),
    }
}

fn open(server: &mut Server, mut call: Call<'_>) {
    let Some(ttl_ms) = server.ttl(&mut call, 3) else {
        return;
    };
    // It could not be stored.
    if server.full().is_some() {
        return server.refuse(call.reply(), Refusal::Tokens);
    }
    let Some(id) = random_id() else {
        return call.error("ERR the system has no random bits yet: try again");
    };
    let Some(text) = text(&call) else {
        return call
            .error("ERR AS is followed by at most 255 bytes of text without control characters");
    };
    let user = call.conn.user_number();
    let open = OpenSession {
        key: SessionKey { user, id },
        ttl_ms,
        text,
    };
    match server.step(open, call.now) {
        Err(refusal) => server.refuse(call.reply(), refusal),
        Ok(()) => call.reply().bulk(format!("{id:032x}").as_bytes()),
    }
}
