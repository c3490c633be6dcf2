//! Who has a lock, by the account of the server that keeps it: sessions of PostgreSQL and MariaDB,
//! values of Redis, and what else kept Redis busy. Answers are parsed here, without a socket.
//!
//! Nothing here waits for a lock. Whoever asks knows which sessions and values are its own.

use crate::SetupError;
use crate::names::BYTES;
use crate::remote::Client;
use crate::signs::{Process, in_brief};
use jostle_model::who::Party;
use std::collections::BTreeSet;

/// Locks that are asked for at most: each costs the server a look.
pub(crate) const AT_MOST: usize = 64;

/// Between the fields of an answer, and between its rows: in no name.
const FIELD: char = '\u{1f}';
const ROW: char = '\u{1e}';

/// The sessions that have or want advisory locks; `which` is a condition on pg_locks (l) and
/// pg_stat_activity (a).
#[cfg(feature = "services")]
pub(crate) fn of_postgres(which: &str) -> String {
    format!(
        "select coalesce(string_agg(t, chr(30)), '') from (select concat_ws(chr(31), l.pid, \
         l.granted, l.mode = 'ShareLock', coalesce(a.application_name, ''), coalesce(a.usename, ''), \
         coalesce(host(a.client_addr), ''), coalesce(a.client_port, 0), coalesce(a.state, ''), \
         coalesce(extract(epoch from clock_timestamp() - case a.state when 'active' then \
         a.query_start else a.state_change end)::bigint::text, ''), coalesce(extract(epoch from \
         clock_timestamp() - (to_jsonb(l)->>'waitstart')::timestamptz) * 1000, 0)::bigint) t from \
         pg_locks l left join pg_stat_activity a on a.pid = l.pid where l.locktype = 'advisory' and \
         l.database = (select oid from pg_database where datname = current_database()) and {which} \
         order by to_jsonb(l)->>'waitstart' nulls first limit 100) s"
    )
}

/// Those of a range of numbers, by sessions with another name than this.
#[cfg(feature = "services")]
pub(crate) fn within([first, last]: [u64; 2], own: &str) -> String {
    let (first, last) = (first as i64, last as i64);
    format!(
        "l.objsubid = 1 and l.granted and ((l.classid::bigint << 32) | l.objid::bigint) between \
         {first} and {last} and a.application_name is distinct from '{own}'"
    )
}

/// The answer to [`of_postgres`]: those that have it, and those that wait.
#[cfg(feature = "services")]
pub(crate) fn postgres_sessions(answer: &str) -> [Vec<Party>; 2] {
    let mut found = [Vec::new(), Vec::new()];
    for row in rows(answer) {
        let [
            pid,
            granted,
            shared,
            application,
            user,
            host,
            port,
            state,
            age_s,
            waited_ms,
        ] = row;
        let waits = granted != "t";
        found[usize::from(waits)].push(Party {
            session: Some(pid.to_owned()),
            who: Some(session(application, user, host)),
            // Another user's is not shown to everybody, and a socket of the file system has none.
            address: match host.contains(':') {
                true => Some(format!("[{host}]:{port}")),
                false => Some(format!("{host}:{port}")).filter(|_| !host.is_empty()),
            },
            state: Some(lasting(state, age_s)).filter(|text| !text.is_empty()),
            mode: Some(mode(shared == "t")),
            since_ms: waited_ms.parse().ok().filter(|ms| *ms > 0 && waits),
            ..Party::default()
        });
    }
    found
}

/// As an answer names it.
pub(crate) fn mode(is_shared: bool) -> String {
    if is_shared { "shared" } else { "exclusive" }.to_owned()
}

/// The connections that have a lock of these names, and the one that asks.
pub(crate) fn of_mariadb(names: &[&str]) -> String {
    let used = names.iter().map(|name| {
        let name = name.replace('\\', "\\\\").replace('\'', "''");
        format!(" UNION SELECT IS_USED_LOCK('{name}')")
    });
    let used: String = used.collect();
    format!(
        "{MARIADB_ROWS} FROM (SELECT CONNECTION_ID() AS id{used}) l LEFT JOIN \
             information_schema.PROCESSLIST p ON p.ID = l.id WHERE l.id IS NOT NULL"
    )
}

/// The connections that wait for a lock of this name, by their statements.
pub(crate) const MARIADB_WAITERS: &str = " FROM (SELECT ID AS id FROM \
    information_schema.PROCESSLIST WHERE STATE = 'User lock') l JOIN \
    information_schema.PROCESSLIST p ON p.ID = l.id";

pub(crate) const MARIADB_ROWS: &str = "SELECT GROUP_CONCAT(CONCAT_WS(CHAR(31), l.id, l.id = \
    CONNECTION_ID(), IFNULL(p.USER, ''), IFNULL(p.HOST, ''), IFNULL(p.COMMAND, ''), \
    IFNULL(p.TIME, ''), IFNULL(p.INFO, '')) SEPARATOR '\u{1e}')";

/// A connection with MariaDB.
pub(crate) struct Connection {
    /// It asked.
    pub asks: bool,
    /// Its statement, if it runs one.
    pub statement: String,
    /// The party at its end.
    pub party: Party,
}

/// The answer to [`of_mariadb`].
pub(crate) fn mariadb_connections(answer: &str) -> Vec<Connection> {
    let each = rows(answer).map(|[id, asks, user, host, command, age_s, statement]| {
        let state = match command {
            "Sleep" => "idle",
            other => other,
        };
        Connection {
            asks: asks == "1",
            statement: statement.to_owned(),
            party: Party {
                session: Some(id.to_owned()),
                who: Some(session(
                    "",
                    user,
                    host.rsplit_once(':').map_or(host, |parts| parts.0),
                )),
                address: Some(host.to_owned()).filter(|host| host.contains(':')),
                state: Some(lasting(state, age_s)).filter(|text| !text.is_empty()),
                mode: Some(mode(false)),
                ..Party::default()
            },
        }
    });
    each.collect()
}

/// The answer to [`of_mariadb`] without connections from these ports of this machine. None where
/// the one that asks is not among them: another machine stands in between, which has ports of
/// its own.
pub(crate) fn mariadb_sessions(answer: &str, own: &BTreeSet<u16>) -> Option<Vec<Process>> {
    let port = |one: &Connection| one.party.address.as_ref()?.rsplit_once(':')?.1.parse().ok();
    let is_own = |one: &Connection| port(one).is_some_and(|port: u16| own.contains(&port));
    let all = mariadb_connections(answer);
    let is_known = all.iter().any(|one| one.asks && is_own(one));
    let others = all.into_iter().filter(|one| !one.asks && !is_own(one));
    let others = others.map(|one| one.party.into()).collect();
    is_known.then_some(others)
}

/// For each key whose value does not begin with ARGV[1]: its lease in ms, and its value.
const VALUES: &[u8] = b"local out = {} for _, k in ipairs(KEYS) do local v = redis.pcall('get', k) \
    if type(v) == 'table' then v = 'of another type' end \
    if v and string.sub(v, 1, #ARGV[1]) ~= ARGV[1] then out[#out + 1] = redis.call('pttl', k) .. \
    '\\31' .. string.gsub(string.sub(v, 1, 60), '%c', '?') end end return table.concat(out, '\\30')";

/// The values of these keys that do not begin like ours.
///
/// # Errors
/// In words for the user.
pub(crate) fn of_redis(
    client: &mut Client,
    keys: &[[u8; BYTES]],
    own: &[u8],
) -> Result<Vec<Process>, SetupError> {
    let count = keys.len().to_string();
    let mut words: Vec<&[u8]> = vec![b"EVAL", VALUES, count.as_bytes()];
    words.extend(keys.iter().map(|key| key.as_slice()));
    words.push(own);
    let answer = client.ask(&words)?;
    Ok(redis_values(&String::from_utf8_lossy(&answer)))
}

fn redis_values(answer: &str) -> Vec<Process> {
    let each = rows(answer).map(|[lease_ms, value]| {
        let left = match lease_ms.parse::<i64>() {
            Ok(ms) if ms >= 0 => format!("for {:.1} s more", ms as f64 / 1e3),
            _ => "without an end".to_owned(),
        };
        Process {
            name: format!("a value that no worker wrote ({}, {left})", in_brief(value)),
            shared: Some(false),
            ..Process::default()
        }
    });
    each.collect()
}

/// The number of the latest entry of the slow log, and of those behind ARGV[1] that have no word
/// which begins with ARGV[2] the one that took longest: its time in us, its client, its command.
/// Arguments may be secret.
const SLOWEST: &[u8] = b"local log = redis.call('slowlog', 'get', 128) local last = log[1] and \
    log[1][1] or -1 local us, who = 0, '\\31' for _, e in ipairs(log) do local ours = false \
    for _, w in ipairs(e[4]) do ours = ours or string.sub(w, 1, #ARGV[2]) == ARGV[2] end \
    if e[1] > tonumber(ARGV[1]) and not ours and e[3] > us then us = e[3] \
    who = e[5] .. '\\31' .. e[4][1] end end return last .. '\\31' .. us .. '\\31' .. who";

/// An entry of the slow log.
#[derive(Debug, PartialEq)]
pub(crate) struct Slowest {
    /// The number of the latest entry.
    pub last: i64,
    /// How long the longest of others took since; 0 without any.
    pub ms: u64,
    /// Its command and its client.
    pub command: String,
}

/// The slow log of Redis behind the entry of this number; ours have a word that begins like this.
pub(crate) fn slowest(client: &mut Client, since: i64, own: &[u8]) -> Option<Slowest> {
    let since = since.to_string();
    let words: [&[u8]; 5] = [b"EVAL", SLOWEST, b"0", since.as_bytes(), own];
    let answer = client.ask(&words).ok()?;
    entry(&String::from_utf8_lossy(&answer))
}

fn entry(answer: &str) -> Option<Slowest> {
    let [last, us, client, command] = rows(answer).next()?;
    let command = in_brief(&command.to_uppercase());
    Some(Slowest {
        last: last.parse().ok()?,
        ms: us.parse::<u64>().ok()? / 1_000,
        command: format!("{command} by {}", in_brief(client)),
    })
}

/// Rows of so many fields.
fn rows<const N: usize>(answer: &str) -> impl Iterator<Item = [&str; N]> {
    let rows = answer.split(ROW);
    rows.filter_map(|row| row.split(FIELD).collect::<Vec<_>>().try_into().ok())
}

fn session(application: &str, user: &str, host: &str) -> String {
    let mut text = match application {
        "" => "a session".to_owned(),
        application => in_brief(application),
    };
    for (word, name) in [(" of ", user), (" from ", host)] {
        if !name.is_empty() {
            text += word;
            text += &in_brief(name);
        }
    }
    text
}

fn lasting(state: &str, age_s: &str) -> String {
    match (state, age_s) {
        ("", _) | (_, "") => in_brief(state),
        (state, age_s) => format!("{} for {age_s} s", in_brief(state)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "services")]
    #[test]
    fn sessions_are_named_as_far_as_the_server_shows_them() {
        let answer = "41|t|f|psql|ann|10.0.0.3|5001|idle in transaction|12|0\u{1e}\
                      42|t|t||bob||0|||0\u{1e}43|f|t||bob||0|||900";
        let [found, waiters] = postgres_sessions(&answer.replace('|', "\u{1f}"));
        assert_eq!(waiters[0].since_ms, Some(900));
        let found: Vec<Process> = found.into_iter().map(Process::from).collect();
        let named = |one: &Process| (one.pid, one.name.clone(), one.state.clone(), one.shared);
        let state = Some("idle in transaction for 12 s".to_owned());
        let first = (
            41,
            "psql of ann from 10.0.0.3".to_owned(),
            state,
            Some(false),
        );
        let second = (42, "a session of bob".to_owned(), None, Some(true));
        assert_eq!(found.iter().map(named).collect::<Vec<_>>(), [first, second]);
        assert_eq!(postgres_sessions(""), [vec![], vec![]]);
    }

    #[test]
    fn connections_from_our_own_ports_are_ours_where_our_own_is_seen() {
        let answer = "7|1|ann|127.0.0.1:4001|Query|0|SELECT\u{1e}8|0|ann|127.0.0.1:4002|Sleep|3|\u{1e}\
                      9|0|root|localhost|Sleep|5|";
        let answer = &answer.replace('|', "\u{1f}");
        let found = mariadb_sessions(answer, &BTreeSet::from([4001, 4002])).unwrap();
        let named = |one: &Process| (one.pid, one.name.clone(), one.state.clone());
        let state = Some("idle for 5 s".to_owned());
        let other = (9, "a session of root from localhost".to_owned(), state);
        assert_eq!(found.iter().map(named).collect::<Vec<_>>(), [other]);
        // A proxy's ports.
        assert_eq!(mariadb_sessions(answer, &BTreeSet::from([9001])), None);
    }

    #[test]
    fn values_and_commands_of_others_have_no_control_characters() {
        let names = redis_values("27300\u{1f}x\u{7}y\u{1e}-1\u{1f}other");
        let names: Vec<&str> = names.iter().map(|one| one.name.as_str()).collect();
        let first = "a value that no worker wrote (x?y, for 27.3 s more)";
        assert_eq!(
            names,
            [
                first,
                "a value that no worker wrote (other, without an end)"
            ]
        );
        let entry = entry("5\u{1f}2000123\u{1f}10.0.0.3:4001\u{1f}debug").unwrap();
        let expected = Slowest {
            last: 5,
            ms: 2_000,
            command: "DEBUG by 10.0.0.3:4001".to_owned(),
        };
        assert_eq!(entry, expected);
    }
}
