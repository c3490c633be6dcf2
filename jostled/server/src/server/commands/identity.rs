//! The commands about the connection itself: its user, its name, its protocol version.

use jostle_resp::{Protocol, parse_u64};

use super::call::Call;
use super::clients;
use super::rights::RESERVED;
use crate::server::Server;
use crate::server::accounts::LoginError;
use crate::server::info;
use crate::users::DEFAULT;

/// Checks a user and password. False: the login failed, and the client has its error
/// reply or gets it after a delay; or it is not checked yet.
fn authenticate(server: &mut Server, call: &mut Call<'_>, user: &[u8], given: &[u8]) -> bool {
    if user == DEFAULT.as_bytes() && server.config.users.open().is_some() {
        call.error(
            "ERR AUTH <password> called without any password configured for the default \
             user. Are you sure your configuration is correct?",
        );
        return false;
    }
    if !server.may_check(call.conn, call.now) {
        return false;
    }
    let Some(found) = server.config.users.check(user, given).cloned() else {
        server.stats.auth_failures += 1;
        server.audit_failure(call.conn, user, "wrong password");
        call.conn.delay_refusal(call.now);
        return false;
    };
    server.note_right(call.conn);
    match server.log_in(call.conn, found, call.now) {
        Ok(()) => {
            call.conn.wrong_passwords = 0;
            server.audit_login(call.conn, "password");
            return true;
        }
        Err(LoginError::Quota(most)) => {
            server.audit_failure(call.conn, user, "max-connections");
            call.error(&format!(
                "QUOTA this user may have {most} connections (max-connections)"
            ));
        }
        Err(LoginError::Reserved) => {
            server.audit_failure(call.conn, user, "reserved for administrators");
            call.error(RESERVED);
            call.conn.intake.closing = true;
        }
    }
    false
}

pub(super) fn auth(server: &mut Server, mut call: Call<'_>) {
    let (user, given) = match call.args.len() {
        2 => (&b"default"[..], call.arg(1)),
        _ => (call.arg(1), call.arg(2)),
    };
    if authenticate(server, &mut call, user, given) {
        call.reply().simple("OK");
    }
}

pub(super) fn hello(server: &mut Server, mut call: Call<'_>) {
    let mut protocol = call.conn.protocol;
    if call.args.len() > 1 {
        protocol = match call.arg(1) {
            b"2" => Protocol::Resp2,
            b"3" => Protocol::Resp3,
            _ => return call.error("NOPROTO unsupported protocol version"),
        };
    }
    let mut name = None;
    let mut index = 2;
    while index < call.args.len() {
        let (word, left) = (call.arg(index), call.args.len() - index - 1);
        if word.eq_ignore_ascii_case(b"AUTH") && left >= 2 {
            let (user, given) = (call.arg(index + 1), call.arg(index + 2));
            if !authenticate(server, &mut call, user, given) {
                return;
            }
            index += 3;
        } else if word.eq_ignore_ascii_case(b"SETNAME") && left >= 1 {
            name = Some(call.arg(index + 1));
            index += 2;
        } else {
            return call.error("ERR syntax error in HELLO");
        }
    }
    if !call.conn.authenticated {
        return call.error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        );
    }
    if let Some(name) = name
        && let Err(text) = set_text(&mut call.conn.profile.name, name)
    {
        return call.error(text);
    }
    call.conn.protocol = protocol;
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    call.reply().map(7);
    call.texts(&[("server", b"jostled"), ("version", version)]);
    call.number("proto", protocol.number());
    call.number("id", call.conn.id.number() as i64);
    call.texts(&[("mode", b"standalone"), ("role", b"master")]);
    let mut reply = call.reply();
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

pub(super) fn client(server: &mut Server, mut call: Call<'_>) {
    let subcommand = call.arg(1).to_ascii_uppercase();
    let text = call.arg(call.args.len() - 1);
    let done = match (&subcommand[..], call.args.len()) {
        (b"ID", 2) => {
            let number = call.conn.id.number();
            return call.reply().integer(number as i64);
        }
        (b"GETNAME", 2) => {
            let name = call.conn.profile.name.clone();
            return match name.is_empty() {
                true => call.reply().nil(),
                false => call.reply().bulk(&name),
            };
        }
        (b"SETNAME", 3) => set_text(&mut call.conn.profile.name, text),
        (b"SETINFO", 4) if call.arg(2).eq_ignore_ascii_case(b"LIB-NAME") => {
            set_text(&mut call.conn.profile.library, text)
        }
        (b"SETINFO", 4) if call.arg(2).eq_ignore_ascii_case(b"LIB-VER") => {
            set_text(&mut call.conn.profile.library_version, text)
        }
        (b"INFO", 2) => {
            let line = info::client_line(server, call.conn, call.now);
            return call.reply().verbatim(&line);
        }
        (b"LIST", 2 | 4 | 6 | 8) => return clients::list(server, call),
        (b"UNBLOCK", 3 | 4) => return clients::unblock(server, call),
        (b"KILL", 3 | 4) => return clients::kill(server, call),
        _ => return call.error(&call.wrong_subcommand()),
    };
    match done {
        Ok(()) => call.reply().simple("OK"),
        Err(text) => call.error(text),
    }
}

pub(super) fn ping(_: &mut Server, mut call: Call<'_>) {
    if call.args.len() > 1 {
        let message = call.arg(1);
        call.reply().bulk(message);
    } else {
        call.reply().simple("PONG");
    }
}

pub(super) fn echo(_: &mut Server, mut call: Call<'_>) {
    let message = call.arg(1);
    call.reply().bulk(message);
}

pub(super) fn quit(_: &mut Server, mut call: Call<'_>) {
    call.reply().simple("OK");
    call.conn.intake.closing = true;
}

pub(super) fn select(_: &mut Server, mut call: Call<'_>) {
    match parse_u64(call.arg(1)) {
        Some(0) => call.reply().simple("OK"),
        _ => call.error("ERR DB index is out of range"),
    }
}

pub(super) fn reset(server: &mut Server, mut call: Call<'_>) {
    call.conn.profile.name.clear();
    call.conn.protocol = Protocol::Resp2;
    call.conn.end_transaction();
    server.log_out(call.conn, call.now);
    call.reply().simple("RESET");
}
