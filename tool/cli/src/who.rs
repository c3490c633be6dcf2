//! `jostle who`: asks who has a lock, and prints the answer. Nothing is locked, freed or stopped.

use crate::args::Who;
use crate::messages::write_result;
use crate::{Failure, complain, shown};
use anyhow::anyhow;
use jostle_model::text::one_line;
use jostle_model::who::{Answer, Party, State, Wait};
use jostle_report::format::wrap;
use jostle_targets::Spec;
use jostle_targets::who::{self, Refusal};
use serde::Serialize;
use std::io::ErrorKind;
use std::time::Duration;

const WIDTH: usize = 80;
/// Between two looks, at least.
const SHORTEST: Duration = Duration::from_millis(50);

/// Asks once, or again and again, and returns the exit code.
///
/// # Errors
/// A question that makes no sense; that the answer cannot be known.
pub(crate) fn who(asked: &Who) -> Result<u8, Failure> {
    let every = asked.watch.map(|every| Duration::from_nanos(every.0));
    if every.is_some_and(|every| every < SHORTEST) {
        return Err(Failure::Usage("--watch: give at least 50ms".to_owned()));
    }
    let mut last = None;
    loop {
        let answer = match look(asked) {
            Ok(answer) => Ok(answer),
            Err(Refusal::Usage(said)) => return Err(Failure::Usage(said)),
            Err(Refusal::Unknown(said)) if every.is_none() => {
                return Err(Failure::Failed(anyhow!(said)));
            }
            // It may be back at the next look.
            Err(Refusal::Unknown(said)) => Err(said),
        };
        let now = answer.clone().map(ageless);
        match &answer {
            _ if last.as_ref() == Some(&now) => {}
            Err(said) => complain(said),
            Ok(answer) => {
                let text = printed(asked, answer)?;
                match write_result(std::io::stdout(), &shown(&text)) {
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                        return Ok(code(answer.state));
                    }
                    written => written.map_err(|error| Failure::Failed(error.into()))?,
                }
            }
        }
        match (every, answer) {
            (Some(every), _) => std::thread::sleep(every),
            (None, answer) => return Ok(answer.map_or(1, |answer| code(answer.state))),
        }
        last = Some(now);
    }
}

/// Without what changes as time passes.
fn ageless(mut answer: Answer) -> Answer {
    let waits = answer.waits.iter_mut().flat_map(|wait| &mut wait.owners);
    let chain = answer.holders.iter_mut().chain(&mut answer.waiters);
    for party in chain.chain(waits) {
        (party.since_ms, party.left_ms, party.state) = (None, None, None);
    }
    answer
}

fn code(state: State) -> u8 {
    match state {
        State::Free => 0,
        State::Held => 3,
        State::Unknown => 1,
    }
}

fn look(asked: &Who) -> Result<Answer, Refusal> {
    let usage = |said: &str| Err(Refusal::Usage(said.to_owned()));
    let Some(pid) = asked.target.trim().strip_prefix("pid:") else {
        if asked.memory {
            return usage("--memory works with pid:N only");
        }
        let spec = Spec::parse(&asked.target).map_err(Refusal::Usage)?;
        return who::who(&spec, asked.lock.as_deref(), asked.credentials.as_deref());
    };
    match (pid.parse(), &asked.lock) {
        (Ok(pid), None) if pid > 0 => who::process(pid, asked.memory),
        (Ok(_), Some(_)) => usage("pid:N takes no name"),
        _ => usage("write pid:N, with the number of a process"),
    }
}

/// The answer with its question, for `--format json`.
#[derive(Serialize)]
struct Record<'a> {
    target: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock: Option<&'a str>,
    #[serde(flatten)]
    answer: &'a Answer,
}

fn printed(asked: &Who, answer: &Answer) -> Result<String, Failure> {
    if asked.format == "json" {
        let record = Record {
            target: &asked.target,
            lock: asked.lock.as_deref(),
            answer,
        };
        let line = serde_json::to_string(&record).map_err(anyhow::Error::from)?;
        return Ok(line + "\n");
    }
    let name = [Some(&*asked.target), asked.lock.as_deref()];
    let name: Vec<&str> = name.into_iter().flatten().collect();
    Ok(table(&name.join(" "), answer))
}

fn table(name: &str, answer: &Answer) -> String {
    let is_process = name.starts_with("pid:");
    let is = match (answer.state, is_process) {
        (State::Free, false) => "nobody holds it",
        (State::Held, false) => "held",
        (State::Free, true) => "it waits for nobody",
        (State::Held, true) => "it waits",
        (State::Unknown, _) => "that cannot be known from here",
    };
    let mut text = format!("{}: {is}\n", one_line(name));
    let mut say =
        |head: &str, said: &str| text += &wrap(&format!("{head:<10}"), &one_line(said), WIDTH);
    for holder in &answer.holders {
        say("held by", &in_words(holder));
    }
    for waiter in &answer.waiters {
        say("waits", &in_words(waiter));
    }
    for wait in &answer.waits {
        say("waits", &wait_in_words(wait));
        for owner in &wait.owners {
            say("", &format!("held by {}", in_words(owner)));
        }
    }
    if !answer.deadlock.is_empty() {
        let pids: Vec<String> = answer.deadlock.iter().map(u32::to_string).collect();
        let who = match &pids[..] {
            [only] => format!("threads of process {only}"),
            several => format!("processes {}", several.join(", ")),
        };
        let said = format!(
            "{who} wait for each other, and nobody else can end that; none of these threads \
             ran between the two looks"
        );
        say("DEADLOCK", &said);
    }
    for (nth, remedy) in answer.free.iter().enumerate() {
        // Not wrapped: it is to be copied.
        text += &format!("{:<10}{}\n", "to free", one_line(&remedy.command));
        let next = answer.free.get(nth + 1);
        if next.is_none_or(|next| next.breaks != remedy.breaks) {
            text += &wrap(
                &format!("{:<10}", ""),
                &format!("({})", remedy.breaks),
                WIDTH,
            );
        }
    }
    for note in &answer.notes {
        text += &wrap(&format!("{:<10}", "note"), &one_line(note), WIDTH);
    }
    text
}

fn in_words(party: &Party) -> String {
    let seconds = |ms: u64| format!("{:.1} s", ms as f64 / 1e3);
    let who = party.who.as_deref().unwrap_or("not knowable");
    let new = |text: &&String| !who.contains(text.as_str());
    let parts = [
        Some(who.to_owned()),
        party.mode.clone(),
        party.bytes.map(
            |[first, last]| match last == jostle_sys::owners::LAST_BYTE {
                true => format!("bytes {first} to the end"),
                false => format!("bytes {first} to {last}"),
            },
        ),
        party.on.clone(),
        party.since_ms.map(|ms| format!("for {}", seconds(ms))),
        party.left_ms.map(|ms| format!("{} left", seconds(ms))),
        party
            .address
            .as_ref()
            .filter(new)
            .map(|address| format!("from {address}")),
        party
            .session
            .as_ref()
            .filter(new)
            .map(|session| format!("number {session}")),
        party.token.map(|token| format!("token {token}")),
        party.state.clone(),
        party.note.clone(),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn wait_in_words(wait: &Wait) -> String {
    let on = wait.on.iter().map(|on| format!(" {on}"));
    let note = wait.note.iter().map(|note| format!(", {note}"));
    let unknown = match (&*wait.kind, wait.owners.is_empty()) {
        ("flock" | "fcntl" | "futex" | "socket" | "pipe", true) => ", held by: not knowable",
        _ => "",
    };
    let more: String = on.chain(note).collect();
    format!("{} for {}{more}{unknown}", wait.who, wait.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::who::Remedy;

    #[test]
    fn an_answer_is_a_line_for_each_and_commands_are_not_broken() {
        let holder = Party {
            who: Some("pid 7 ma\nke".to_owned()),
            pid: Some(7),
            mode: Some("exclusive".to_owned()),
            bytes: Some([10, 19]),
            since_ms: Some(3_210),
            ..Party::default()
        };
        let remedy = |command: String| Remedy {
            command,
            breaks: "ends that process".to_owned(),
        };
        let mut answer = Answer::new(vec![holder], vec![Party::default()]);
        answer.free = vec![remedy("kill 7".to_owned()), remedy("x".repeat(90))];
        let expected = format!(
            "fcntl:f: held\n\
             held by   pid 7 ma\\u000ake, exclusive, bytes 10 to 19, for 3.2 s\n\
             waits     not knowable\n\
             to free   kill 7\n\
             to free   {}\n          (ends that process)\n\
             note      n\n",
            "x".repeat(90)
        );
        assert_eq!(table("fcntl:f", &answer.noting("n")), expected);
        let free = Answer::new(Vec::new(), Vec::new());
        assert_eq!(table("flock:f", &free), "flock:f: nobody holds it\n");
    }
}
