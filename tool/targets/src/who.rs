//! Who has a lock: one table with a row for each target that can tell. A row has how it is asked,
//! and a command that frees the lock, with what that breaks; the command is printed, never run.
//!
//! The question itself is in the target's own module, or in `files` and `resp` where targets share
//! it.

mod files;
mod process;
mod resp;
mod sysv;

use crate::address::Address;
use crate::{Entry, SetupError, Spec, Target};
use jostle_model::text::quoted;
pub use jostle_model::who::{Answer, State};
use jostle_model::who::{Party, Remedy};
use jostle_sys::owners::OwnedBy;
pub use process::process;
use std::path::Path;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The question makes no sense.
    Usage(String),
    /// It cannot be known.
    Unknown(String),
}

impl From<SetupError> for Refusal {
    fn from(SetupError(said): SetupError) -> Refusal {
        Refusal::Unknown(said)
    }
}

/// An answer, or why there is none.
pub type Told = Result<Answer, Refusal>;

pub(crate) struct Question<'a> {
    /// The text behind the target's colon.
    pub argument: &'a str,
    /// The lock's name; empty where none was given.
    pub name: &'a str,
    /// The file with name and password.
    pub credentials: Option<&'a Path>,
}

/// How a lock's name is given.
#[derive(Clone, Copy, PartialEq)]
enum Named {
    /// The target has one lock.
    No,
    /// Without a name all are told.
    Maybe,
    /// Its form, and its greatest number of bytes.
    As(&'static str, usize),
}

struct Row {
    entry: &'static Entry,
    named: Named,
    ask: fn(&Question<'_>) -> Told,
    /// With `{pid}`, `{session}`, `{on}` of a holder, `{name}`, `{path}`, `{place}`, `{host}`,
    /// `{port}`; `{bucket}` and `{key}` are the parts of the name.
    free: &'static str,
    breaks: &'static str,
}

/// Longest name that is sent.
const LONGEST: usize = 4096;
const ENDS: &str =
    "ends that process with all else that it does; what the lock protects may be half done";
const UNTOLD: &str = "the holder is not told and goes on, and the next one enters beside it";

/// `module::Type: named, ask, "free", "breaks";`, each a [`Row`].
macro_rules! rows {
    ($($(#[$given:meta])* $target:ty: $named:expr, $ask:expr, $free:expr, $breaks:expr;)*) => {
        static ROWS: &[Row] = &[$($(#[$given])* Row {
            entry: &<$target as Target>::ENTRY,
            named: $named,
            ask: $ask,
            free: $free,
            breaks: $breaks,
        }),*];
    };
}

rows! {
    crate::flock::Flock: Named::No, |q| files::who(q, OwnedBy::Flock), "kill {pid}", ENDS;
    crate::ofd::Ofd: Named::No, |q| files::who(q, OwnedBy::Record), "kill {pid}", ENDS;
    crate::posix::Posix: Named::No, |q| files::who(q, OwnedBy::Record), "kill {pid}", ENDS;
    crate::lockfile::Lockfile: Named::No, files::lockfile, "rm -- {path}", UNTOLD;
    crate::sysv::Sysv: Named::Maybe, sysv::who, "ipcrm --semaphore-id {session}",
        "destroys the whole set: every process that waits for it or uses it gets an error";
    crate::lockd::Lockd: Named::Maybe, |q| resp::lockd(Address::one(q.argument, None), q),
        "redis-cli -h {host} -p {port} FORCEUNLOCK {on}", UNTOLD;
    crate::lockd_unix::LockdUnix: Named::Maybe,
        |q| resp::lockd(Ok(Address::Unix(q.argument.into())), q),
        "redis-cli -s {path} FORCEUNLOCK {on}", UNTOLD;
    crate::redis::Redis: Named::As("NAME", LONGEST), resp::redis,
        "redis-cli -h {host} -p {port} DEL {name}", UNTOLD;
    crate::redisson::Redisson: Named::As("NAME", LONGEST), resp::redisson,
        "redis-cli -h {host} -p {port} DEL {name}",
        "the holder is not told and goes on; waiters notice it when the lease would have ended";
    crate::nats::Nats: Named::As("BUCKET/KEY", LONGEST), crate::nats::who::who,
        "nats --server {place} kv del {bucket} {key}", UNTOLD;
    crate::mariadb::Mariadb: Named::As("NAME", 64), crate::mariadb::who::who,
        "mariadb -h {host} -P {port} -e 'KILL {session}'",
        "ends that connection: its transaction is rolled back, and all of its locks go";
    #[cfg(feature = "services")]
    crate::etcd::Etcd: Named::As("NAME", LONGEST), crate::etcd::who::who,
        "etcdctl --endpoints={place} lease revoke {session}",
        "every key of that lease goes; the holder is told if it watches its session";
    crate::zookeeper::Zookeeper: Named::As("/PATH", LONGEST), crate::zookeeper::who::who,
        "zkCli.sh -server {place} delete {on}", UNTOLD;
    crate::consul::Consul: Named::As("NAME", LONGEST), crate::consul::who::who,
        "curl -X PUT http://{place}/v1/session/destroy/{session}",
        "every key of that session is released, and granted to nobody for its lock-delay";
    #[cfg(feature = "services")]
    crate::postgres::Postgres: Named::As("NUMBER", LONGEST), crate::postgres::who::who,
        "psql -h {host} -p {port} -c 'select pg_terminate_backend({session})'",
        "ends that session: its transaction is rolled back, and all of its locks go";
}

/// Asks who has a lock of a target. Locks, kills and frees nothing.
///
/// # Errors
/// A question that makes no sense, and who cannot be asked.
pub fn who(spec: &Spec, name: Option<&str>, credentials: Option<&Path>) -> Told {
    let typed = spec.name();
    let usage = |said: String| Err(Refusal::Usage(said));
    let Some(row) = ROWS.iter().find(|row| row.entry.name == spec.entry.name) else {
        let names: Vec<&str> = ROWS.iter().map(|row| row.entry.name).collect();
        return usage(format!(
            "{typed} keeps no account of who has it; those that can be asked are {} and pid:N",
            names.join(", ")
        ));
    };
    let argument = spec.argument.as_deref();
    if argument.is_none() && row.entry.argument.is_some() {
        return usage(format!("who has it where? write {}", row.entry.addressed()));
    }
    match (row.named, name) {
        (Named::No, Some(_)) => return usage(format!("{typed} has one lock and takes no name")),
        (Named::As(what, _), None | Some("")) => {
            return usage(format!("which lock? write jostle who {spec} {what}"));
        }
        (Named::As(_, most), Some(name)) if name.len() > most => {
            return usage(format!(
                "that name has {} bytes, and {typed} takes {most}",
                name.len()
            ));
        }
        _ => {}
    }
    let question = Question {
        argument: argument.unwrap_or_default(),
        name: name.unwrap_or_default(),
        credentials,
    };
    let mut answer = (row.ask)(&question)?;
    // The numbers of /proc may be those of another namespace than this shell's.
    let own = std::fs::read_link("/proc/self").unwrap_or_default();
    let is_own = own.as_os_str() == &*std::process::id().to_string();
    for holder in &answer.holders {
        let command = filled(row.free, |variable| value(variable, &question, holder));
        // Nobody can copy a control character from a terminal.
        let is_safe = |command: &String| !command.chars().any(char::is_control);
        let command =
            command.filter(|command| is_safe(command) && (is_own || !command.starts_with("kill ")));
        let remedy = command.map(|command| Remedy {
            command,
            breaks: row.breaks.to_owned(),
        });
        answer
            .free
            .extend(remedy.filter(|one| !answer.free.contains(one)));
    }
    Ok(answer)
}

fn value(variable: &str, question: &Question<'_>, holder: &Party) -> Option<String> {
    // Passwords are not printed; the commands' own clients ask for them.
    let mut words = question.argument.split('?');
    let servers = words.next().unwrap_or_default().split(',');
    let server = |server: &str| {
        let place = server.rsplit("//").next().unwrap_or_default();
        let place = place.rsplit('@').next().unwrap_or_default();
        place.split('/').next().unwrap_or_default().to_owned()
    };
    let place = servers.map(server).collect::<Vec<_>>().join(",");
    let first = place.split(',').next().unwrap_or_default().rsplit_once(':');
    let parts = question.name.split_once('/');
    Some(match variable {
        "pid" => holder.pid?.to_string(),
        "session" => holder.session.clone()?,
        "on" => holder.on.clone()?,
        "name" => question.name.to_owned(),
        "path" => question.argument.to_owned(),
        "place" => place.clone(),
        "host" => first?.0.trim_matches(['[', ']']).to_owned(),
        "port" => first?.1.to_owned(),
        "bucket" => parts?.0.to_owned(),
        "key" => parts?.1.to_owned(),
        _ => return None,
    })
}

/// The text with the value of each `{variable}`, quoted for a shell; None if one has none.
fn filled(text: &str, value: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut parts = text.split('{');
    let mut filled = parts.next()?.to_owned();
    for part in parts {
        let (variable, rest) = part.split_once('}')?;
        filled += &quoted(&value(variable)?);
        filled += rest;
    }
    Some(filled)
}

/// A value that a server keeps under a name, shortened for a sentence.
pub(crate) fn in_brief(bytes: &[u8]) -> String {
    crate::signs::in_brief(&String::from_utf8_lossy(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_can_be_made_and_is_safe_for_a_shell() {
        let holder = Party {
            pid: Some(7),
            session: Some("41".to_owned()),
            on: Some("a'b; rm x".to_owned()),
            ..Party::default()
        };
        let question = Question {
            argument: "//ann:secret@h:1,g:2/db?tls",
            name: "b/k",
            credentials: None,
        };
        for row in ROWS {
            let command = filled(row.free, |variable| value(variable, &question, &holder));
            let command = command.unwrap_or_else(|| panic!("{}", row.free));
            assert!(
                row.free.contains("{path}") || !command.contains("secret"),
                "{command}"
            );
            assert!(
                !command.contains(['{', '}']) && !row.breaks.is_empty(),
                "{command}"
            );
        }
        let unlock = |holder| filled("UNLOCK {on} -h {host}", |v| value(v, &question, holder));
        assert_eq!(unlock(&holder).unwrap(), r"UNLOCK 'a'\''b; rm x' -h h");
        assert_eq!(unlock(&Party::default()), None);
    }

    #[test]
    fn a_question_that_makes_no_sense_is_refused_before_anybody_is_asked() {
        for (target, name, says) in [
            ("futex", None, "those that can be asked are flock, ofd"),
            ("flock", None, "write flock:PATH"),
            ("redis", Some("x"), "write redis://HOST:PORT"),
            ("redis://h:1", None, "write jostle who redis://h:1 NAME"),
            ("flock:/x", Some("y"), "takes no name"),
        ] {
            match who(&Spec::parse(target).unwrap(), name, None) {
                Err(Refusal::Usage(said)) => assert!(said.contains(says), "{said}"),
                other => panic!("{target}: {other:?}"),
            }
        }
        let long = "x".repeat(65);
        let told = who(&Spec::parse("mariadb://h:1").unwrap(), Some(&long), None);
        let says = "that name has 65 bytes, and mariadb takes 64".to_owned();
        assert_eq!(told, Err(Refusal::Usage(says)));
    }
}
