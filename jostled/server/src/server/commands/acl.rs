//! ACL: shows users, and reads the users file again.

use super::call::Call;
use super::pages::{Paging, REPLY_BYTES, cost};
use crate::config::users_of;
use crate::server::Server;

pub(super) fn acl(server: &mut Server, mut call: Call<'_>) {
    match (&call.arg(1).to_ascii_uppercase()[..], call.args.len()) {
        (b"WHOAMI", 2) => {
            let name = call.conn.user.as_ref().map(|user| user.name.clone());
            let name = name.unwrap_or_default();
            call.reply().bulk(name.as_bytes());
        }
        (b"LIST", _) => list(server, call),
        (b"LOAD", 2) => load(server, call),
        _ => call.error(&call.wrong_subcommand()),
    }
}

/// All users, at most as many as are shown: a line that the users file could have as a
/// comment tells of more. With a cursor, the place in the file, a page of them.
fn list(server: &mut Server, mut call: Call<'_>) {
    let Paging { pattern, page } = match Paging::or_all(&call, 2) {
        Ok(paging) => paging,
        Err(text) => return call.error(&text),
    };
    let from = page.cursor.unwrap_or(0);
    let users = server.config.users.iter();
    let mut left = users.skip(usize::try_from(from).unwrap_or(usize::MAX));
    let (mut lines, mut bytes, mut spent, mut next) = (Vec::new(), 0, 0, from);
    while lines.len() < page.count
        && bytes < REPLY_BYTES
        && spent < page.budget
        && let Some(user) = left.next()
    {
        let (matches, cost) = cost(pattern.as_ref(), user.name.as_bytes());
        (spent, next) = (spent + 1 + cost, next + 1);
        if matches {
            lines.push(user.to_string());
            bytes += lines.last().map_or(0, String::len);
        }
    }
    let more = left.count();
    page.begin(&mut call.reply(), (more > 0).then_some(next));
    if page.cursor.is_none() && more > 0 {
        lines.push(format!("# {more} more: walk with ACL LIST CURSOR 0"));
    }
    let mut reply = call.reply();
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.bulk(line.as_bytes()));
}

/// Reads the users file again: all of it or nothing.
fn load(server: &mut Server, mut call: Call<'_>) {
    let Some(path) = server.config.users_file.clone() else {
        return call.error("ERR there is no users file: start with --users-file");
    };
    let read = users_of(&path, server.config.password.as_deref())
        .map_err(|error| error.to_string())
        .and_then(|users| server.check_users(users));
    match read {
        Ok(users) => {
            let before = server.config.users.clone();
            server.adopt_users(users, call.now);
            server.audit_users(&before, Some(call.conn));
            server.renew_user(call.conn);
            call.reply().simple("OK");
        }
        Err(why) => call.error(&format!("ERR the users stay as they were: {why}")),
    }
}
