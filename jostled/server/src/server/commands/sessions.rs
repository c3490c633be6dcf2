//! SESSION: one heartbeat for many locks.

use super::call::Call;
use crate::server::Server;
use crate::server::conn::Conn;
use crate::server::replies::NO_SESSION;
use crate::table::{CloseSession, OpenSession, RenewSession, SessionKey};

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
        (b"OPEN", 4) if call.arg(2).eq_ignore_ascii_case(b"TTL") => open(server, call),
        (b"RENEW" | b"CLOSE", 3) => {
            let Some(key) = key(call.conn, call.arg(2)) else {
                return call.error(NO_SESSION);
            };
            let open = match &subcommand[..] {
                b"RENEW" if !server.leases_for(&mut call, 0) => return,
                b"RENEW" => server.step(RenewSession(key), call.now),
                _ => server.step(CloseSession(key), call.now),
            };
            match open {
                true => call.reply().integer(1),
                false => call.error(NO_SESSION),
            }
        }
        _ => call.error("ERR syntax error: SESSION OPEN TTL ms | RENEW id | CLOSE id"),
    }
}

/// Bits that nobody can guess, from the operating system.
fn random_id() -> Option<u128> {
    let mut bytes = [0; 16];
    let length = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK);
    (length.ok()? == bytes.len()).then(|| u128::from_ne_bytes(bytes))
}

fn open(server: &mut Server, mut call: Call<'_>) {
    let Some(ttl_ms) = server.lease(&mut call, 3) else {
        return;
    };
    let Some(id) = random_id() else {
        return call.error("ERR the system has no random bits yet: try again");
    };
    let user = call.conn.user_number();
    let key = SessionKey { user, id };
    match server.step(OpenSession { key, ttl_ms }, call.now) {
        Err(refusal) => server.refuse(call.reply(), refusal),
        Ok(()) => call.reply().bulk(format!("{id:032x}").as_bytes()),
    }
}
