//! `--format edn`: the histories of `recover` for Jepsen's and Knossos's checkers, an
//! operation a line: `:process`, `:type` (`:invoke`, `:ok`, `:info`), `:f` (`:acquire`,
//! `:release`), `:time` in nanoseconds since the first event of the run, `:token` and
//! `:error` where there is one. [`histories`] has each run by itself, since Knossos takes a
//! file for one history.
//!
//! By Knossos's rules every completion has an invocation, and a process whose operation ended
//! with `:info` (nobody knows whether it took effect) is never used again: the same client
//! goes on under another number. An operation without a completion may take effect at any
//! time from its invocation on, or never. The service does that, too: it may release the lock
//! of an owner that failed, from the end of its lease or from the fault on. What is no
//! operation of a lock (faults, writes, new connections) stands in comments.

use crate::ResultSet;
use crate::porcupine::expiry;
use jostle_model::record::{Event, Recovery, Run, What};
use std::collections::BTreeMap;

/// Letters of a target in a file's name.
const LONGEST_NAME: usize = 60;

/// One run of `recover`, for a file of its own.
#[derive(Debug)]
pub struct History {
    /// Its number, target, fault and run, as a file's name.
    pub name: String,
    /// Its lines.
    pub text: String,
}

/// All runs, one after the other.
pub(crate) fn render(sets: &[ResultSet]) -> String {
    histories(sets).into_iter().map(|one| one.text).collect()
}

/// The history of each run.
pub fn histories(sets: &[ResultSet]) -> Vec<History> {
    let runs = sets.iter().flat_map(|set| &set.runs);
    let histories = runs.filter_map(of_run).zip(1..);
    let numbered = histories.map(|(history, nth)| History {
        name: format!("{nth:02}-{}", history.name),
        ..history
    });
    numbered.collect()
}

fn of_run(run: &Run) -> Option<History> {
    let recovery = run.recovery.as_deref()?;
    let mut writing = Writing {
        first_ns: recovery.history.first()?.at_ns,
        clients: BTreeMap::new(),
        processes: recovery.waiters + 1,
        text: format!(
            "; {} {} run {}\n",
            run.target.replace('\n', " "),
            recovery.fault,
            run.run
        ),
    };
    let mut lines: Vec<(u64, Option<&Event>)> = recovery
        .history
        .iter()
        .map(|event| (event.at_ns, Some(event)))
        .chain(expiries(recovery).map(|at_ns| (at_ns, None)))
        .collect();
    lines.sort_by_key(|(at_ns, _)| *at_ns);
    for (at_ns, event) in lines {
        match event {
            Some(event) => writing.event(event),
            None => writing.expires(at_ns),
        }
    }
    let plain = |letter: char| match letter {
        letter if letter.is_ascii_alphanumeric() => letter,
        _ => '-',
    };
    let name: String = run.target.chars().map(plain).take(LONGEST_NAME).collect();
    Some(History {
        name: format!("{name}-{}-{}.edn", recovery.fault, run.run),
        text: writing.text,
    })
}

/// From when on the service may take the lock from each process that was granted it.
fn expiries(recovery: &Recovery) -> impl Iterator<Item = u64> {
    let asked = |grant: &Event| {
        let mut before = recovery.history.iter().filter(|e| e.at_ns <= grant.at_ns);
        before.rfind(|e| e.process == grant.process && e.what == What::Acquire)
    };
    let grants = recovery.history.iter().filter(|event| {
        matches!(event.what, What::Granted | What::GrantedFromDead) && event.process.is_some()
    });
    grants.filter_map(move |grant| {
        let asked_ns = asked(grant).map_or(grant.at_ns, |event| event.at_ns);
        let from = expiry(recovery, grant.process?, asked_ns)?;
        Some(from.max(asked_ns))
    })
}

/// A client, as the history knows it.
struct Client {
    process: u64,
    /// What it has invoked.
    open: Option<&'static str>,
}

struct Writing {
    first_ns: u64,
    clients: BTreeMap<u64, Client>,
    /// Numbers that were used.
    processes: u64,
    text: String,
}

impl Writing {
    fn event(&mut self, event: &Event) {
        let (kind, f) = match event.what {
            What::Acquire => ("invoke", "acquire"),
            What::Granted | What::GrantedFromDead => ("ok", "acquire"),
            What::Release => ("invoke", "release"),
            What::Released => ("ok", "release"),
            // Unknown: the service may have granted it, or released the lock.
            What::NotGranted => ("info", "acquire"),
            What::NotReleased | What::GaveUp => ("info", "release"),
            _ => return self.comment(event),
        };
        let Some(number) = event.process else {
            return self.comment(event);
        };
        let new = Client {
            process: number,
            open: None,
        };
        let client = self.clients.entry(number).or_insert(new);
        let process = client.process;
        match kind {
            "invoke" if client.open.is_none() => client.open = Some(f),
            "ok" | "info" if client.open == Some(f) => client.open = None,
            _ => return self.comment(event),
        }
        if kind == "info" {
            client.process = self.processes;
            self.processes += 1;
        }
        self.operation(event.at_ns, process, (kind, f), Some(event));
    }

    /// From here on the service may release the lock.
    fn expires(&mut self, at_ns: u64) {
        self.operation(at_ns, self.processes, ("invoke", "release"), None);
        self.processes += 1;
    }

    fn operation(
        &mut self,
        at_ns: u64,
        process: u64,
        (kind, f): (&str, &str),
        event: Option<&Event>,
    ) {
        let token = event.and_then(|event| event.token);
        let token = token.map_or(String::new(), |token| format!(", :token {token}"));
        let said = event.and_then(|event| event.said.as_deref());
        let error = said.map_or(String::new(), |said| format!(", :error {}", quoted(said)));
        let time = at_ns.saturating_sub(self.first_ns);
        self.text += &format!(
            "{{:process {process}, :type :{kind}, :f :{f}, :value nil, :time {time}{token}{error}}}\n"
        );
    }

    /// What no model of a lock knows.
    fn comment(&mut self, event: &Event) {
        let time = event.at_ns.saturating_sub(self.first_ns);
        let what = serde_json::to_string(&event.what).unwrap_or_default();
        let who = event
            .process
            .map_or(String::new(), |number| format!(" of {number}"));
        self.text += &format!("; {time}: {}{who}\n", what.trim_matches('"'));
    }
}

/// A string in edn. The escapes used here are the same as JSON's.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted += "\\n",
            letter if letter.is_control() => quoted.push(' '),
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::histories;
    use crate::{file, made, render};
    use std::collections::BTreeMap;
    use std::path::Path;

    /// Whether a history keeps Knossos's rules.
    fn judge(text: &str) -> Result<(), String> {
        // What each process has invoked; None: nothing, and the last ended with :info.
        let mut processes: BTreeMap<u64, (Option<&str>, bool)> = BTreeMap::new();
        let mut last_time = 0;
        for line in text.lines().filter(|line| !line.starts_with(';')) {
            let of = |key: &str| {
                let (_, rest) = line.split_once(key).ok_or(format!("no {key}: {line}"))?;
                Ok::<&str, String>(rest.split([',', '}']).next().unwrap_or_default())
            };
            let number = |key: &str| of(key)?.parse().map_err(|_| format!("{key}: {line}"));
            let (kind, f, time) = (of(":type :")?, of(":f :")?, number(":time ")?);
            let (open, gone) = processes.entry(number(":process ")?).or_default();
            let well = match kind {
                "invoke" => open.replace(f).is_none() && !*gone,
                "ok" | "fail" | "info" => open.take() == Some(f),
                _ => false,
            };
            *gone = kind == "info";
            if !well || time < last_time || !["acquire", "release"].contains(&f) {
                return Err(line.to_owned());
            }
            last_time = time;
        }
        Ok(())
    }

    #[test]
    fn a_history_as_jepsen_reads_it() {
        insta::assert_snapshot!(render("edn", &[made::recovered()]));
        assert_eq!(render("edn", &[made::set()]), "");
    }

    #[test]
    fn every_recorded_history_keeps_the_rules_of_knossos() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/record");
        let files = std::fs::read_dir(directory).unwrap();
        let read = files.filter_map(|entry| file::read(entry.unwrap().path()).ok());
        let mut sets: Vec<_> = read.flatten().collect();
        sets.push(made::recovered());
        let all = histories(&sets);
        assert!(all.len() > 20, "{}", all.len());
        for history in all {
            assert_eq!(judge(&history.text), Ok(()), "{}", history.name);
            assert_eq!(history.text.matches(" run ").count(), 1, "{}", history.name);
        }
    }

    #[test]
    fn a_history_that_breaks_a_rule_is_found() {
        let line = |process: u64, kind: &str, time: u64| {
            format!(
                "{{:process {process}, :type :{kind}, :f :acquire, :value nil, :time {time}}}\n"
            )
        };
        let judged = |lines: &[String]| judge(&lines.concat()).is_ok();
        let begun = || line(1, "invoke", 1);
        assert!(judged(&[begun(), line(1, "ok", 2)]));
        assert!(!judged(&[line(1, "ok", 2)]));
        assert!(!judged(&[begun(), begun()]));
        assert!(!judged(&[begun(), line(1, "ok", 0)]));
        let again = [begun(), line(1, "info", 2), line(1, "invoke", 3)];
        assert!(!judged(&again));
        assert!(!judged(&[begun().replace("acquire", "write")]));
    }

    #[test]
    fn each_run_has_a_file_of_its_own() {
        let histories = histories(&[made::recovered()]);
        let names: Vec<&str> = histories.iter().map(|one| one.name.as_str()).collect();
        let expected = [
            "01-flock-kill-1",
            "02-flock-kill-2",
            "03-flock-stop-1",
            "04-redis-stop-1",
        ];
        let expected = expected.map(|name| format!("{name}.edn"));
        assert_eq!(names, expected);
    }

    #[test]
    fn what_was_said_is_quoted() {
        assert_eq!(super::quoted("a \"b\"\\\n\u{7}"), r#""a \"b\"\\\n ""#);
    }
}
