//! `memcached`: the lock that its users make of `add`. The client that adds the key owns
//! the lock until the key expires. It releases the lock by `cas` with an expiry in the
//! past, and not by `delete`, which would remove the next owner's key if ours has expired.
//!
//! This client adds with the meta command `ms` in mode `add`, whose answer has the cas id,
//! which otherwise would take a `gets`. The cas id is the fencing token, and the number
//! that `cas` compares.

mod launch;

pub use launch::Launch;
use launch::{OWNER, PROGRAM};

use crate::LEASE_STEP_FACT;
use crate::login;
use crate::prelude::*;
use crate::program;
use crate::signs::Told;
use crate::wire::{Answer, push_decimal};
use jostle_sys::files::Errno;
use std::path::Path;
use std::time::Duration;

/// Between two tries, as for `redis`.
const POLL_NS: u64 = 1_000_000;

/// memcached counts whole seconds, so that a lease may end up to one second early.
const STEP_NS: u64 = 1_000_000_000;

/// Where name and password stand.
const VARIABLES: [&str; 2] = ["MEMCACHED_USER", "MEMCACHED_PASSWORD"];

/// The lease: memcached knows nothing finer than seconds.
const LEASE: Duration = Duration::from_secs(30);

/// The lease where a worker holds its locks while it acquires a million others, and nobody
/// renews them.
const LONG_LEASE: Duration = Duration::from_secs(600);

/// The shortest lease that can be renewed: a lease of one second may end at once.
const LEAST_KEPT_S: u32 = 2;

/// Bytes of a lock's value.
const OWNER_BYTES: usize = 24;

/// Keys that one request removes.
const REMOVED_AT_ONCE: usize = 1_000;

/// Longest line that is waited for.
const LONGEST_LINE: usize = 2048;

const ACQUIRE: &str = "ms";
const RELEASE: &str = "cas";

/// A memcached.
#[derive(Debug)]
pub struct Memcached {
    login: Login,
    /// Its process, where it was launched.
    pid: Option<u32>,
    names: Names,
    keys: usize,
    lease_s: u32,
    run: u64,
    version: Option<f64>,
    /// Whether an item was put beside the locks, which tells whether others remove items of
    /// ours.
    is_marked: bool,
}

impl Memcached {
    /// The answer to a request, when no run is on.
    fn ask(
        &self,
        call: &'static str,
        request: &[u8],
        decode: impl for<'a> Fn(&'a [u8], &'static str) -> Decoded<'a>,
    ) -> Result<Vec<u8>> {
        let mut client = admitted(&self.login)?;
        client.request.extend_from_slice(request);
        let said = client
            .asked(call, decode)
            .map_err(|said| failed(&self.login, &said))?;
        Ok(said.unwrap_or_default())
    }

    /// An item of the locks' size, so that it is kept and evicted among them.
    fn put_marker(&self) -> bool {
        let (lease_s, value) = (LONG_LEASE.as_secs(), "x".repeat(OWNER_BYTES));
        let rest = format!(" 0 {lease_s} {OWNER_BYTES}\r\n{value}\r\n");
        let request = [
            b"set ".as_slice(),
            &self.names.name(self.keys),
            rest.as_bytes(),
        ];
        self.ask("set", &request.concat(), line)
            .is_ok_and(|said| said == b"STORED")
    }

    fn has_marker(&self) -> Result<bool> {
        let request = [b"mg ".as_slice(), &self.names.name(self.keys), b"\r\n"].concat();
        Ok(self.ask("mg", &request, line)?.starts_with(b"HD"))
    }
}

impl Target for Memcached {
    type Lock = RemoteLock<MemcachedWire>;

    const ENTRY: Entry = Entry {
        name: "memcached",
        reach: |place, file| stats(&named(place, file)?).map(drop),
        program: Some(&PROGRAM),
        summary: "memcached by its users' recipe: add with an expiry, release by cas",
        details: "Without an address, a server launched for the run (Debian package memcached). The key \
                  is added with a value of each worker's own and an expiry of 30 s (in `hold` of \
                  600 s), by `ms` in mode `add`, which also returns the cas id; released by `cas` with that id and an \
                  expiry in the past. A worker that finds the lock taken asks again every 1 ms \
                  (`poll_ns` in the result). Neither durable nor replicated: a restart, and an \
                  eviction under memory pressure, free the lock. The cas id is the fencing token. The \
                  lease frees a dead owner's lock, and lets a second owner in where the first holds \
                  longer than that. `hold --for` renews it every third of it by `ms` with the cas id, which \
                  writes the value again and returns another id; `touch` would renew another's lock, too. ?tls behind the address asks for TLS, ?ca=FILE for TLS with that authority. \
                  Needs memcached 1.6.10 or later.",
        lock: capabilities!(LockCapabilities::SERVICE; fenced, usual_lease: Some(LEASE)),
        ..Entry::SERVICE
    };

    fn prepare(setup: &Setup<'_>) -> Result<Memcached> {
        let (login, pid) = setup.server(named, &Launch::with_room(setup), Some(OWNER))?;
        let told = stats(&login)?;
        has_room(&told, setup.workers)?;
        let least_s = if setup.kept { LEAST_KEPT_S } else { 1 };
        let server = Memcached {
            login,
            pid,
            names: Names::new(setup)?,
            keys: setup.keys,
            lease_s: whole_seconds(setup.lease_or(LEASE, LONG_LEASE)).max(least_s),
            run: setup.seed,
            version: told_of(&told, "version").and_then(login::version),
            is_marked: false,
        };
        Ok(Memcached {
            // Hosts end at different times, and have the same names.
            is_marked: setup.common_name.is_none() && server.put_marker(),
            ..server
        })
    }

    fn join(&self, worker: usize) -> Result<RemoteLock<MemcachedWire>> {
        let wire = MemcachedWire {
            names: self.names,
            lease_s: self.lease_s,
            value: format!("{:016x}{worker:08x}", self.run).into_bytes(),
            ids: vec![0; self.keys],
        };
        Ok(RemoteLock::new(admitted(&self.login)?, wire))
    }

    /// Removes the keys of killed workers, which would otherwise stay until their leases end.
    fn remove_leftovers(&self) -> Result<()> {
        let mut client = admitted(&self.login)?;
        // The marker stands behind the last lock's.
        let keys = self.keys + 1;
        for first in (0..keys).step_by(REMOVED_AT_ONCE) {
            let last = keys.min(first + REMOVED_AT_ONCE);
            for key in first..last {
                client.request.extend_from_slice(b"md ");
                client.request.extend_from_slice(&self.names.name(key));
                client.request.extend_from_slice(b" q\r\n");
            }
            client.request.extend_from_slice(b"mn\r\n");
            let removed = client.asked("md", until_no_operation);
            removed.map_err(SetupError)?;
        }
        Ok(())
    }

    fn facts(&self) -> Facts {
        facts([
            (LEASE_FACT, Some(f64::from(self.lease_s) * 1e9)),
            (LEASE_STEP_FACT, Some(STEP_NS as f64)),
            ("poll_ns", Some(POLL_NS as f64)),
            (VERSION_FACT, self.version),
        ])
    }

    fn signs(&self) -> Told {
        signs::asked(&self.login.address, || {
            let told = stats(&self.login)?;
            let number = |name| figure(&told, name).map(Sign::from);
            let marker = self.is_marked.then(|| self.has_marker()).transpose()?;
            // In a container its number is 1 after each start. Its time is that of its start and
            // its monotonic clock, so that the difference does not change within a life.
            let life = || {
                let [pid, time_s, uptime_s] =
                    ["pid", "time", "uptime"].map(|name| figure(&told, name));
                let start_s = time_s?.saturating_sub(uptime_s?);
                Some(Sign::from(format!("pid {}, started at {start_s}", pid?)))
            };
            Ok(signs::known([
                (sign::LIFE, life()),
                // By the monotonic clock.
                (sign::UPTIME_S, number("uptime")),
                (sign::EVICTED_ITEMS, number("evictions")),
                (sign::FLUSHED_ITEMS, number("cmd_flush")),
                (sign::MARKER, marker.map(Sign::from)),
                (sign::LEASE_BY_CLOCK_MS, Some(0.into())),
                (sign::OWN_NAMES, Some(true.into())),
            ]))
        })
    }

    fn finish(&self) -> Result<()> {
        if self.is_marked {
            // It ends by itself.
            let name = self.names.name(self.keys);
            let words = [b"md ".as_slice(), &name, b" q\r\nmn\r\n"].concat();
            drop(self.ask("md", &words, until_no_operation));
        }
        Ok(())
    }

    fn server(&self) -> Result<Option<ServerFigures>> {
        let told = stats(&self.login)?;
        let own = figure(&told, "pid").and_then(|pid| u32::try_from(pid).ok());
        Ok(Some(ServerFigures {
            pid: self.pid.or(own.filter(|_| self.login.address.is_local())),
            memory_bytes: figure(&told, "bytes"),
            ..ServerFigures::default()
        }))
    }
}

fn named(place: &str, file: Option<&Path>) -> Result<Login> {
    Login::named(place, None, file, VARIABLES)
}

/// Connects. A server with `--auth-file` accepts no request before name and password, which
/// are sent as the value of any key.
fn admitted(login: &Login) -> Result<Client> {
    let mut client = Client::connect(&login.address)?;
    let (Some(user), Some(password)) = (&login.own.user, &login.own.password) else {
        return Ok(client);
    };
    let length = user.len() + 1 + password.len();
    let request = format!("set auth 0 0 {length}\r\n{user} {password}\r\n");
    client.request.extend_from_slice(request.as_bytes());
    match client.asked("auth", line).map(Option::unwrap_or_default) {
        Ok(said) if said == b"STORED" => Ok(client),
        Ok(said) => Err(failed(login, &String::from_utf8_lossy(&said))),
        Err(said) => Err(failed(login, &said)),
    }
}

fn failed(login: &Login, said: &str) -> SetupError {
    SetupError(format!("memcached at {}: {said}", login.address))
}

/// The server's statistics: lines `STAT name value`.
fn stats(login: &Login) -> Result<String> {
    let mut client = admitted(login)?;
    client.request.extend_from_slice(b"stats\r\n");
    match client.asked("stats", until_end) {
        Ok(told) => Ok(String::from_utf8_lossy(&told.unwrap_or_default()).into_owned()),
        Err(said) if said.starts_with("CLIENT_ERROR") => {
            let [user, password] = VARIABLES;
            Err(failed(
                login,
                &format!("{said}; set ${user} and ${password}"),
            ))
        }
        Err(said) => Err(failed(login, &said)),
    }
}

fn figure(stats: &str, name: &str) -> Option<u64> {
    told_of(stats, name)?.parse().ok()
}

fn told_of<'a>(stats: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = stats.lines().map(|line| line.split_whitespace());
    lines.find_map(|mut words| match (words.next(), words.next()) {
        (Some("STAT"), Some(found)) if found == name => words.next(),
        _ => None,
    })
}

/// Checks that the server has room for these connections. Beyond its limit memcached lets
/// connections wait, without an error.
fn has_room(stats: &str, workers: usize) -> Result<()> {
    let free = figure(stats, "max_connections").zip(figure(stats, "curr_connections"));
    let free = free.map(|(most, now)| most.saturating_sub(now) as f64);
    program::has_room(free, workers, "more connections (memcached -c)")
}

/// The lease in whole seconds: at least one, and less than 30 days, from which on memcached
/// reads it as a date.
fn whole_seconds(lease: Duration) -> u32 {
    const MOST_S: u128 = 30 * 24 * 3_600 - 1;
    lease.as_millis().div_ceil(1_000).clamp(1, MOST_S) as u32
}

/// One worker's side of the recipe.
#[derive(Debug)]
pub struct MemcachedWire {
    names: Names,
    lease_s: u32,
    value: Vec<u8>,
    /// Of each lock, the cas id of our last grant.
    ids: Vec<u64>,
}

impl MemcachedWire {
    /// Appends the request that writes our value with a lease, with the flags that say
    /// when. It is answered with a new cas id.
    fn set(&self, key: usize, only: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(b"ms ");
        out.extend_from_slice(&self.names.name(key));
        out.push(b' ');
        push_decimal(self.value.len() as u64, out);
        out.extend_from_slice(only);
        out.extend_from_slice(b" c T");
        push_decimal(u64::from(self.lease_s), out);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.value);
        out.extend_from_slice(b"\r\n");
    }
}

impl Wire for MemcachedWire {
    fn names(&self) -> [&'static str; 2] {
        [ACQUIRE, RELEASE]
    }

    fn acquire(&mut self, key: usize, _mode: Mode, _asking: Asking, out: &mut Vec<u8>) {
        self.set(key, b" ME", out);
    }

    fn release(&mut self, key: usize, _mode: Mode, out: &mut Vec<u8>) {
        out.extend_from_slice(b"cas ");
        out.extend_from_slice(&self.names.name(key));
        out.extend_from_slice(b" 0 -1 0 ");
        push_decimal(self.ids[key], out);
        out.extend_from_slice(b"\r\n\r\n");
    }

    fn decode<'a>(&self, input: &'a [u8], call: &'static str) -> Decoded<'a> {
        Ok(line(input, call)?.map(|(reply, length)| (meaning(reply), length)))
    }

    fn acquired(&mut self, key: usize, reply: Reply<'_>) -> Result<Answer, CallError> {
        match reply {
            Reply::Integer(id) => {
                self.ids[key] = id as u64;
                Ok(Answer::Granted)
            }
            Reply::Nil => Ok(Answer::Taken),
            other => Err(unexpected(ACQUIRE, other)),
        }
    }

    fn released(&mut self, reply: Reply<'_>) -> Result<(), CallError> {
        match reply {
            Reply::Text(b"STORED") => Ok(()),
            // Another's, or nobody's.
            Reply::Text(b"EXISTS" | b"NOT_FOUND") => Err(LAPSED),
            other => Err(unexpected(RELEASE, other)),
        }
    }

    fn keeping(&self) -> Option<Keeping> {
        let lease_ns = u64::from(self.lease_s) * 1_000_000_000;
        Some(Keeping {
            lease_ns: lease_ns.saturating_sub(STEP_NS),
            ..Keeping::each(ACQUIRE, lease_ns)
        })
    }

    fn renew(&mut self, key: usize, out: &mut Vec<u8>) {
        let mut only = b" C".to_vec();
        push_decimal(self.ids[key], &mut only);
        self.set(key, &only, out);
    }

    fn renewed(&mut self, key: usize, reply: Reply<'_>) -> Result<bool, CallError> {
        match reply {
            Reply::Integer(id) => {
                self.ids[key] = id as u64;
                Ok(true)
            }
            // Another's, or nobody's.
            Reply::Text([b'E', b'X', ..] | [b'N', b'F', ..]) => Ok(false),
            other => Err(unexpected(ACQUIRE, other)),
        }
    }

    fn polls_every_ns(&self) -> Option<u64> {
        Some(POLL_NS)
    }
}

/// We no longer owned the key when we released it.
const LAPSED: CallError = CallError::lost(RELEASE);

/// The line that `input` begins with.
///
/// # Errors
/// EPROTO where it is none.
fn line<'a>(input: &'a [u8], call: &'static str) -> Decoded<'a> {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
        return match input.len() > LONGEST_LINE {
            true => Err(wrong_kind(call)),
            false => Ok(None),
        };
    };
    let line = input[..end]
        .strip_suffix(b"\r")
        .ok_or_else(|| wrong_kind(call))?;
    Ok(Some((Reply::Text(line), end + 1)))
}

/// Lines up to `MN`: one for each key that was not there.
fn until_no_operation<'a>(input: &'a [u8], call: &'static str) -> Decoded<'a> {
    let mut at = 0;
    while let Some((reply, length)) = line(&input[at..], call)? {
        at += length;
        match meaning(reply) {
            Reply::Text(b"MN") => return Ok(Some((reply, at))),
            Reply::Text(b"NF" | b"HD") => {}
            Reply::Error(text) => return Err(refused(call, text)),
            _ => return Err(wrong_kind(call)),
        }
    }
    Ok(None)
}

/// Lines up to `END`.
fn until_end<'a>(input: &'a [u8], call: &'static str) -> Decoded<'a> {
    let whole = input.ends_with(b"END\r\n");
    if input.starts_with(b"CLIENT_ERROR") {
        let line = line(input, call)?;
        return Ok(line.map(|(reply, length)| (meaning(reply), length)));
    }
    match input.starts_with(b"STAT ") || b"STAT ".starts_with(input) {
        true => Ok(whole.then_some((Reply::Text(input), input.len()))),
        false => {
            let said = "what answers there does not speak memcached's protocol";
            Err(CallError::saying(call, Errno::PROTO, said))
        }
    }
}

/// `HD c7` is a grant with this id, `NS` none, and an error is one; other lines are
/// what they are.
fn meaning(line: Reply<'_>) -> Reply<'_> {
    let Reply::Text(text) = line else { return line };
    match text {
        [b'H', b'D', b' ', b'c', digits @ ..] => {
            let id = std::str::from_utf8(digits).ok();
            id.and_then(|id| id.trim_end().parse().ok())
                .map_or(line, Reply::Integer)
        }
        [b'N', b'S', ..] => Reply::Nil,
        b"ERROR" => Reply::Error(b"ERROR: it does not know the command; memcached 1.6.10 does"),
        _ if text.starts_with(b"CLIENT_ERROR") || text.starts_with(b"SERVER_ERROR") => {
            Reply::Error(text)
        }
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_mean_grants_refusals_and_errors() {
        for (input, expected) in [
            (&b"HD c17\r\n"[..], Reply::Integer(17)),
            (b"HD c17 \r\n", Reply::Integer(17)),
            (b"NS c0\r\n", Reply::Nil),
            (b"STORED\r\n", Reply::Text(b"STORED")),
            (
                b"SERVER_ERROR out of memory\r\n",
                Reply::Error(b"SERVER_ERROR out of memory"),
            ),
        ] {
            let (reply, length) = line(input, "ms").unwrap().unwrap();
            assert_eq!((meaning(reply), length), (expected, input.len()));
            assert_eq!(line(&input[..input.len() - 1], "ms"), Ok(None));
        }
        assert!(line(b"HD c17\n", "ms").is_err());
        assert!(line(&[b'x'; LONGEST_LINE + 1], "ms").is_err());
    }

    #[test]
    fn a_key_that_is_gone_is_removed_as_well() {
        let whole = b"NF\r\nNF\r\nMN\r\n";
        for cut in 0..whole.len() {
            assert_eq!(until_no_operation(&whole[..cut], "md"), Ok(None));
        }
        let (_, length) = until_no_operation(whole, "md").unwrap().unwrap();
        assert_eq!(length, whole.len());
        for wrong in [&b"SERVER_ERROR no\r\nMN\r\n"[..], b"STORED\r\nMN\r\n"] {
            assert!(until_no_operation(wrong, "md").is_err());
        }
    }

    #[test]
    fn figures_and_limits_are_read() {
        let told = "STAT pid 42\r\nSTAT version 1.6.18\r\nSTAT max_connections 20\r\nSTAT curr_connections 11\r\nEND\r\n";
        assert_eq!(figure(told, "pid"), Some(42));
        assert_eq!(figure(told, "connections"), None);
        assert_eq!(told_of(told, "version"), Some("1.6.18"));
        assert_eq!(has_room(told, 9), Ok(()));
        assert!(
            has_room(told, 10)
                .unwrap_err()
                .0
                .contains("9 connections more")
        );
        assert!(until_end(b"-ERR unknown\r\n", "stats").is_err());
        assert_eq!(until_end(b"STAT pid 42\r\n", "stats"), Ok(None));
        assert!(until_end(told.as_bytes(), "stats").unwrap().is_some());
    }
}
