//! Who has a user lock: IS_USED_LOCK with the list of connections.

use super::{named, session};
use crate::holders;
use crate::who::{Answer, Question, Told};

pub(crate) fn who(question: &Question<'_>) -> Told {
    let (mut client, _) = session::open(&named(question.argument, question.credentials)?)?;
    let mut ask = |query: &str| session::ask(&mut client, query);
    let holders = ask(&holders::of_mariadb(&[question.name]))?;
    let holders = holders::mariadb_connections(&holders).into_iter();
    let holders = holders.filter(|one| !one.asks).map(|one| one.party);
    let query = [holders::MARIADB_ROWS, holders::MARIADB_WAITERS].concat();
    let waiting = holders::mariadb_connections(&ask(&query)?);
    // The statement has the name as text; one that has it otherwise waits for an unknown lock.
    let wanted = question.name.to_lowercase();
    let quoted = ["'", "\""].map(|mark| format!("{mark}{wanted}{mark}"));
    let names = |statement: &str| {
        quoted
            .iter()
            .any(|name| statement.to_lowercase().contains(name))
    };
    let (waiters, others): (Vec<_>, Vec<_>) =
        waiting.into_iter().partition(|one| names(&one.statement));
    let waiters = waiters.into_iter().map(|one| one.party).collect();
    let answer = Answer::new(holders.collect(), waiters);
    Ok(match others.len() {
        0 => answer,
        count => answer.noting(format!(
            "{count} connections wait for a user lock that their statement does not name so; for \
             which one cannot be known"
        )),
    })
}
