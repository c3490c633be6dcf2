//! Who has an advisory lock: pg_locks with pg_stat_activity.

use super::{named, session};
use crate::holders;
use crate::who::{Answer, Question, Refusal, Told};
use jostle_model::who::Party;
use jostle_sys::{census, serving};

/// For everybody who asks through a pooler.
pub(crate) const POOLED: &str = "a pooler stands before the server (pg_backend_pid() is another \
    process than the one that answers), so that it cannot be known whose transaction took a lock";

/// Programs that give their sessions with the server to others in turn.
const POOLERS: [&str; 6] = [
    "pgbouncer",
    "pgcat",
    "odyssey",
    "pgpool",
    "pgagroal",
    "supavisor",
];

pub(crate) fn who(question: &Question<'_>) -> Told {
    let which = which(question.name).ok_or_else(|| {
        Refusal::Usage(format!(
            "`{}`: an advisory lock is a number, or two with a comma between them; \
             `select hashtext('...')` has that of a text",
            question.name
        ))
    })?;
    let login = named(question.argument, question.credentials)?;
    let mut opened = session::open(&login)?;
    let is_pooled = opened.is_pooled()?;
    let answer = session::ask(&mut opened.client, &holders::of_postgres(&which))?;
    let [mut holders, mut waiters] = holders::postgres_sessions(&answer);
    for party in holders.iter_mut().chain(&mut waiters) {
        if is_pooled {
            party.who = None;
            party.note = Some(format!("{POOLED}; it is session {}", session_of(party)));
        } else if login.address.is_local() {
            other_end(party);
        }
    }
    Ok(Answer::new(holders, waiters))
}

/// The process of this machine at the other end of a session.
fn other_end(party: &mut Party) {
    let address = party.address.as_ref().and_then(|at| at.parse().ok());
    let Some(pid) = address.and_then(serving::process_at) else {
        return;
    };
    let name = census::Identity::of(pid).unwrap_or_default().name;
    party.note = Some(format!("its other end is pid {pid} {name}"));
    if POOLERS.iter().any(|pooler| name.starts_with(pooler)) {
        party.who = None;
        party.note = Some(format!(
            "session {} is that of pid {pid} {name}, a pooler; whose transaction took the lock \
             cannot be known",
            session_of(party)
        ));
    }
}

fn session_of(party: &Party) -> &str {
    party.session.as_deref().unwrap_or_default()
}

/// The condition for a lock: its number has 64 bits, or 32 twice.
fn which(name: &str) -> Option<String> {
    let [class, object, kind] = match name.split_once(',') {
        Some((class, object)) => {
            let half = |text: &str| text.trim().parse::<i32>().ok().map(|half| half as u32);
            [half(class)?, half(object)?, 2]
        }
        None => {
            let number = name.parse::<i64>().ok()?;
            [(number >> 32) as u32, number as u32, 1]
        }
    };
    Some(format!(
        "l.classid::bigint = {class} and l.objid::bigint = {object} and l.objsubid = {kind}"
    ))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_number_of_64_bits_and_two_of_32_are_told_apart() {
        let condition = |class: u32, object: u32, kind: u32| {
            Some(format!(
                "l.classid::bigint = {class} and l.objid::bigint = {object} and l.objsubid = {kind}"
            ))
        };
        for (name, expected) in [
            ("7", condition(0, 7, 1)),
            ("-1", condition(u32::MAX, u32::MAX, 1)),
            ("4294967298", condition(1, 2, 1)),
            ("1,2", condition(1, 2, 2)),
            ("7, -3", condition(7, u32::MAX - 2, 2)),
            ("job", None),
            ("1,2,3", None),
            ("4294967296,1", None),
        ] {
            assert_eq!(super::which(name), expected, "{name}");
        }
    }
}
