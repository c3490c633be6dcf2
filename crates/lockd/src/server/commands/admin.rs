//! The administrator's view: who holds, who waits, what it costs.

use jostle_resp::parse_u64;

use super::{Call, Server};
use crate::server::conn::Conn;
use crate::server::info;
use crate::table::{Holder, Mode, SessionId, Time};

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

pub(super) fn holder(server: &mut Server, mut call: Call<'_>) {
    server.long = true;
    let holders: Vec<Holder> = server.table.holders(call.arg(1)).collect();
    call.reply().array(holders.len());
    for holder in &holders {
        call.reply().map(6);
        write_holder(server, &mut call, holder);
    }
}

pub(super) fn holders(server: &mut Server, mut call: Call<'_>) {
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

pub(super) fn waiters(server: &mut Server, mut call: Call<'_>) {
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

pub(super) fn info_command(server: &mut Server, mut call: Call<'_>) {
    server.long = true;
    let sections: Vec<&[u8]> = call.rest(1).collect();
    let text = info::text(&info::fields(server, call.now), &sections);
    call.reply().verbatim(&text);
}
