//! The administrator's view: holders, waiters and costs. Each command does a bounded
//! amount of work; longer lists are read page by page with a cursor.

use jostle_resp::parse_u64;

use super::call::Call;
use super::pages::{self, Page, Paging, REPLY_BYTES, SHOWN_MAX, WALK_AT_ONCE, cost};
use super::rights::sees;
use crate::server::Server;
use crate::server::conn::Conn;
use crate::server::info;
use crate::table::{BadCursor, ClientId, Holder, Mode, Time, Waiter};

/// Milliseconds until `end`, rounded up; -1 if there is no end.
fn ms_left(end: Option<Time>, now: Time) -> i64 {
    end.map_or(-1, |end| end.ms_from(now) as i64)
}

/// The client's number, address and name; the last two are empty if it is gone. Without a
/// name, the text of the session that owns the lock.
fn write_client(server: &Server, call: &mut Call<'_>, client: ClientId, owner: ClientId) {
    let own = call.conn.id == client;
    let conn = if own {
        Some(&*call.conn)
    } else {
        server.conn(client)
    };
    let address = conn.map(Conn::address).unwrap_or_default();
    let mut name = conn
        .map(|conn| conn.profile.name.clone())
        .unwrap_or_default();
    if name.is_empty() {
        name = server.table.session_text(owner).into();
    }
    call.number("client", client.number() as i64);
    call.texts(&[("address", address.as_bytes()), ("name", &name)]);
}

/// Writes `mode` and, as `of`, the number of the lock's places; 2 pairs.
fn write_mode(call: &mut Call<'_>, mode: Mode) {
    call.texts(&[("mode", mode.word().as_bytes())]);
    call.number("of", mode.places().into());
}

/// The fields of a holder; 8 pairs.
fn write_holder(server: &Server, call: &mut Call<'_>, holder: &Holder) {
    call.number("token", holder.token as i64);
    write_mode(call, holder.mode);
    call.number("ttl-ms", ms_left(holder.expires, call.now));
    call.number("held-ms", holder.since.ms_until(call.now) as i64);
    write_client(server, call, holder.client, holder.client);
}

pub(super) fn holder(server: &mut Server, mut call: Call<'_>) {
    let holders = server.table.holders(call.arg(1));
    let holders: Vec<Holder> = holders.take(SHOWN_MAX).collect();
    call.reply().array(holders.len());
    for holder in &holders {
        call.reply().map(8);
        write_holder(server, &mut call, holder);
    }
}

/// Parses `[pattern] [LIMIT n]`, or the form that begins with CURSOR.
fn holders_query(call: &Call<'_>) -> Result<Paging, String> {
    if let Some(paging) = Paging::read(call, 1)? {
        return Ok(paging);
    }
    let (mut index, mut pattern) = (1, None);
    if call.args.len().is_multiple_of(2) {
        pattern = Some(pages::pattern(call.arg(1))?);
        index = 2;
    }
    let mut limit = SHOWN_MAX;
    if index < call.args.len() {
        if !call.arg(index).eq_ignore_ascii_case(b"LIMIT") || index + 2 != call.args.len() {
            return Err(call.wrong_word(index));
        }
        let number = parse_u64(call.arg(index + 1)).ok_or("ERR LIMIT is not a number")?;
        if number > SHOWN_MAX as u64 {
            return Err("ERR LIMIT is at most 1000; walk with HOLDERS CURSOR 0".into());
        }
        limit = number as usize;
    }
    let page = Page {
        cursor: None,
        count: limit,
        budget: WALK_AT_ONCE,
    };
    Ok(Paging { pattern, page })
}

pub(super) fn holders(server: &mut Server, mut call: Call<'_>) {
    let Paging { pattern, page } = match holders_query(&call) {
        Ok(query) => query,
        Err(text) => return call.error(&text),
    };
    let (mut found, mut bytes) = (Vec::new(), 0);
    let walked = if page.count == 0 {
        Ok(None)
    } else {
        let from = page.cursor.unwrap_or(0);
        let visit = |name: &[u8], holder| {
            let (matches, cost) = cost(pattern.as_ref(), name);
            if matches && sees(call.conn, name) {
                bytes += name.len() + 256;
                found.push((name.to_vec(), holder));
            }
            let full = found.len() >= page.count || bytes >= REPLY_BYTES;
            if full { u64::MAX } else { cost }
        };
        server
            .table
            .walk_holds(from, page.budget, &mut Vec::new(), visit)
    };
    let full = found.len() >= page.count || bytes >= REPLY_BYTES;
    match (page.cursor, walked) {
        (_, Err(BadCursor)) => return call.error("ERR invalid cursor"),
        (Some(_), Ok(next)) => page.begin(&mut call.reply(), next),
        (None, Ok(Some(_))) if !full => {
            return call.error(
                "ERR the table is too large to be searched at once; walk with HOLDERS CURSOR 0",
            );
        }
        (None, Ok(_)) => {}
    }
    call.reply().array(found.len());
    for (name, holder) in &found {
        call.reply().map(9);
        call.texts(&[("lock", name)]);
        write_holder(server, &mut call, holder);
    }
}

pub(super) fn waiters(server: &mut Server, mut call: Call<'_>) {
    let paging = match Paging::read(&call, 2) {
        Ok(paging) => paging,
        Err(text) => return call.error(&text),
    };
    let name = call.arg(1);
    let Some(Paging { pattern, page }) = paging else {
        if call.args.len() > 2 {
            return call.error(&call.wrong_word(2));
        }
        let waiters: Vec<Waiter> = server.table.waiters(name).take(SHOWN_MAX).collect();
        return write_waiters(server, &mut call, &waiters);
    };
    let mut found = Vec::new();
    let visit = |waiter: Waiter| {
        let conn = server.conn(waiter.client);
        let name = conn.map_or(&b""[..], |conn| &conn.profile.name);
        let (matches, cost) = cost(pattern.as_ref(), name);
        if matches {
            found.push(waiter);
        }
        if found.len() >= page.count {
            u64::MAX
        } else {
            8 + cost
        }
    };
    let from = page.cursor.unwrap_or(0);
    match server.table.walk_waiters(name, from, page.budget, visit) {
        Err(BadCursor) => call.error("ERR invalid cursor"),
        Ok(next) => {
            page.begin(&mut call.reply(), next);
            write_waiters(server, &mut call, &found);
        }
    }
}

fn write_waiters(server: &Server, call: &mut Call<'_>, waiters: &[Waiter]) {
    call.reply().array(waiters.len());
    for waiter in waiters {
        call.reply().map(8);
        write_mode(call, waiter.mode);
        call.number("waited-ms", waiter.since.ms_until(call.now) as i64);
        call.number("wait-ms", ms_left(waiter.until, call.now));
        call.number("ttl-ms", waiter.ttl_ms.map_or(-1, |ms| ms as i64));
        write_client(server, call, waiter.client, waiter.owner);
    }
}

/// The windows of the table's contention, each with the names that the user may see.
pub(super) fn contention(server: &mut Server, mut call: Call<'_>) {
    let mut most = 10;
    if call.args.len() > 1 {
        let number = parse_u64(call.arg(2)).filter(|n| (1..=SHOWN_MAX as u64).contains(n));
        match number.filter(|_| call.arg(1).eq_ignore_ascii_case(b"COUNT")) {
            Some(number) => most = number as usize,
            None => return call.error("ERR CONTENTION takes COUNT 1 to 1000"),
        }
    }
    let windows = server.table.contention(call.now);
    let ms = |ns: u64| (ns / 1_000_000) as i64;
    call.reply().map(windows.len());
    for window in windows {
        call.reply().bulk(window.title.as_bytes());
        call.reply().map(4);
        call.number("from-ms", window.from_ms as i64);
        call.number("to-ms", window.to_ms as i64);
        call.number("error-ms", ms(window.error_ns));
        let mut rows = window.rows;
        rows.retain(|row| sees(call.conn, &row.name));
        rows.truncate(most);
        call.reply().bulk(b"names");
        call.reply().array(rows.len());
        for row in rows {
            call.reply().map(12);
            call.texts(&[("lock", &row.name)]);
            for (key, number) in [
                ("waited-ms", ms(row.waited_ns)),
                ("error-ms", ms(row.error_ns)),
                ("waits", row.waits as i64),
                ("grants", row.grants as i64),
                ("refusals", row.refusals as i64),
                ("longest-line", row.longest.into()),
                ("waiting", row.waiting.into()),
                ("wait-p50-us", row.wait.percentile(50) as i64),
                ("wait-p99-us", row.wait.percentile(99) as i64),
                ("hold-p50-us", row.hold.percentile(50) as i64),
                ("hold-p99-us", row.hold.percentile(99) as i64),
            ] {
                call.number(key, number);
            }
        }
    }
}

pub(super) fn info_command(server: &mut Server, mut call: Call<'_>) {
    let sections: Vec<&[u8]> = call.rest(1).collect();
    let text = info::text(&info::fields(server, call.now), &sections);
    call.reply().verbatim(&text);
}
