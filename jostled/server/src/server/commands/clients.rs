//! The administrator's commands about other clients: list them, end their waits, close them.

use jostle_resp::parse_u64;

use super::call::Call;
use super::pages::{Paging, cost};
use crate::log::Value;
use crate::server::Server;
use crate::server::conn::Conn;
use crate::server::info;
use crate::table::{Cancel, ClientId};

pub(super) fn list(server: &mut Server, mut call: Call<'_>) {
    let Paging { pattern, page } = match Paging::or_all(&call, 2) {
        Ok(paging) => paging,
        Err(text) => return call.error(&text),
    };
    // Lines are short: as many as are shown at most fit into a reply.
    let (from, count, budget) = (page.cursor.unwrap_or(0), page.count, page.budget);
    let Ok(from) = usize::try_from(from) else {
        return call.error("ERR invalid cursor");
    };
    // The caller's connection is out of its slot.
    let (own, end) = (call.conn.id.slot(), server.conns.len());
    let (mut text, mut rows, mut slot, mut spent) = (String::new(), 0, from, 0);
    while slot < end && rows < count && spent < budget {
        let conn = if slot == own {
            Some(&*call.conn)
        } else {
            server.conns[slot].as_deref()
        };
        slot += 1;
        spent += 1;
        let Some(conn) = conn else { continue };
        let (matches, cost) = cost(pattern.as_ref(), &conn.profile.name);
        spent += cost;
        if matches {
            text.push_str(&info::client_line(server, conn, call.now));
            rows += 1;
        }
    }
    let next = (slot < end).then_some(slot as u64);
    page.begin(&mut call.reply(), next);
    call.reply().verbatim(&text);
}

/// The client with the number that an argument names.
fn named(server: &Server, call: &Call<'_>, index: usize) -> Result<Option<ClientId>, ()> {
    let client = ClientId::from_number(parse_u64(call.arg(index)).ok_or(())?);
    let known = call.conn.id == client || server.conn(client).is_some();
    Ok(known.then_some(client))
}

pub(super) fn unblock(server: &mut Server, mut call: Call<'_>) {
    let error = match call.arg(3) {
        word if call.args.len() == 3 || word.eq_ignore_ascii_case(b"TIMEOUT") => false,
        word if word.eq_ignore_ascii_case(b"ERROR") => true,
        _ => {
            return call.error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
        }
    };
    let Ok(client) = named(server, &call, 2) else {
        return call.error("ERR value is not an integer");
    };
    let found = client.and_then(|client| server.conn(client));
    let waits = found.is_some_and(|conn| server.waits_for_lock(conn));
    let ended = match client {
        Some(client) if waits => {
            // A timer that is due may end the wait in this step in another way.
            server.step(Cancel(client), call.now);
            server.unblock(client, |reply| match error {
                true => reply.error("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
                false => reply.nil(),
            })
        }
        _ => false,
    };
    server.stats.unblocked += u64::from(ended);
    call.reply().integer(ended.into());
}

pub(super) fn kill(server: &mut Server, mut call: Call<'_>) {
    let filtered = call.args.len() == 4;
    if filtered && !call.arg(2).eq_ignore_ascii_case(b"ID") {
        return call.error("ERR syntax error: CLIENT KILL [ID] id");
    }
    let index = call.args.len() - 1;
    let Ok(client) = named(server, &call, index) else {
        return call.error("ERR client-id should be a number");
    };
    if let Some(client) = client {
        server.stats.killed += 1;
        let killed = server.conn(client);
        let user = killed.and_then(|conn| conn.user.as_ref());
        let user = user.map_or("", |user| &user.name);
        let address = killed.map(Conn::address).unwrap_or_default();
        let fields = [
            ("killed", Value::Shown(&client)),
            ("killed_address", Value::Bytes(address.as_bytes())),
            ("killed_user", Value::Bytes(user.as_bytes())),
        ];
        server.audit(call.conn, "client kill", &fields);
        if client == call.conn.id {
            call.conn.intake.closing = true;
        } else if let Some(conn) = server.take_conn(client) {
            server.close_at(conn, call.now);
        }
    }
    // Redis answers with a number if there is a filter.
    match (filtered, client) {
        (true, client) => call.reply().integer(client.is_some().into()),
        (false, Some(_)) => call.reply().simple("OK"),
        (false, None) => call.error("ERR No such client"),
    }
}
