//! ACL: shows users, and reads the users file again.

use super::call::Call;
use crate::config::users_of;
use crate::server::Server;

pub(super) fn acl(server: &mut Server, mut call: Call<'_>) {
    match &call.arg(1).to_ascii_uppercase()[..] {
        b"WHOAMI" => {
            let name = call.conn.user.as_ref().map(|user| user.name.clone());
            let name = name.unwrap_or_default();
            call.reply().bulk(name.as_bytes());
        }
        b"LIST" => {
            let users = server.config.users.iter();
            let lines: Vec<String> = users.map(|user| user.to_string()).collect();
            let mut reply = call.reply();
            reply.array(lines.len());
            lines.iter().for_each(|line| reply.bulk(line.as_bytes()));
        }
        b"LOAD" => load(server, call),
        _ => call.error("ERR unknown subcommand or wrong number of arguments for 'acl'"),
    }
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
            server.adopt_users(users, call.now);
            server.renew_user(call.conn);
            call.reply().simple("OK");
        }
        Err(why) => call.error(&format!("ERR the users stay as they were: {why}")),
    }
}
