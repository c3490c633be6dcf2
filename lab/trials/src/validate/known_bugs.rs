//! Public reports of bugs of locks, services and load generators: what does jostle answer to each?
//!
//! lab/trials/known-bugs/bugs.toml has what was reported, a command, and what its output has to say;
//! it was written before any was tried. What jostle printed is kept, and judged by a pure function of
//! that text and of the file as it is now; so is the [`page`] that is made of both.

use super::situations::{APART, Expression, played};
use super::{Required, Row, Series};
use anyhow::Context;
use jostle_testbed::{packages, shell};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const PACKAGES: &str = "redis-server mariadb-server postgresql pgbouncer zookeeper nginx-light \
                        apache2-utils wrk hey iproute2 gcc npm";

/// Bytes of an output that are kept.
const KEPT: usize = 40_000;
/// Characters of a sentence that are shown.
const SHOWN: usize = 240;
/// A closing line has a label before it, shorter than this.
const LABEL: usize = 14;

const FETCH: &str = r#"exec 2>&1 </dev/null; eval "$FETCH" && : >"$DIR/fetched""#;

/// Sets up, and runs the command; shell.sh ends what is left.
const SCRIPT: &str = r#"exec 2>&1 3<&0
after() { :; }
. "$ROOT/lab/trials/situations/shell.sh"
(read -r _ <&3 || kill -TERM $$) &
unset -f jostle
cd "$ROOT"
eval "$SETUP"
set +eu
BEGAN=$EPOCHREALTIME
timeout --foreground -s INT -k 5 60 bash -c "$COMMAND" >"$DIR/output" 2>&1 </dev/null
echo $BEGAN $EPOCHREALTIME | awk '{ printf "%.1f", $2 - $1 }' >"$DIR/took"
"#;

#[derive(Deserialize)]
struct File {
    bug: Vec<Bug>,
}

#[derive(Deserialize)]
struct Bug {
    name: String,
    address: String,
    of: String,
    claim: String,
    fetch: Option<String>,
    setup: Option<String>,
    command: String,
    expect: Vec<Expression>,
    never: Vec<Expression>,
    note: Option<String>,
    #[serde(default)]
    fixed: bool,
    #[serde(default)]
    spare: bool,
}

/// A line of the file: what came of one.
#[derive(Serialize, Deserialize)]
struct Trial {
    name: String,
    /// What ran.
    command: String,
    /// Of the command; absent where it did not begin.
    seconds: Option<f64>,
    /// What jostle printed, or else what fetching and setting up did.
    output: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// All that was expected.
    Right,
    /// Something that is false of it.
    Wrong,
    /// Neither.
    NotKnown,
    /// It did not begin.
    NotTried,
}

/// Collects what is missing, as far as time allows, and judges all there is.
pub(super) fn rows(series: &Series) -> anyhow::Result<Vec<Row>> {
    let (mut store, until) = series.collect.begin::<Trial>()?;
    let bugs = read()?;
    if Instant::now() < until {
        let jostle = series.jostle()?.canonicalize()?;
        install()?;
        for bug in bugs.iter().filter(|bug| series.has(&bug.name)) {
            let is_there = store.lines.iter().any(|trial| trial.name == bug.name);
            if !is_there && Instant::now() < until {
                eprintln!("{}", bug.name);
                let trial = bug.run(&jostle)?;
                eprintln!("  {:?}", bug.answer(&trial));
                store.add(trial)?;
            }
        }
    }
    println!("{}", page(&bugs, &store.lines));
    Ok(judged(&bugs, &store.lines))
}

/// The programs of all commands.
fn install() -> anyhow::Result<()> {
    packages::ensure(&PACKAGES.split(' ').collect::<Vec<_>>())?;
    let script = shell::root().join("lab/trials/cases/install.sh");
    shell::run(Command::new("sh").arg(script))
}

fn read() -> anyhow::Result<Vec<Bug>> {
    let file: File = toml::from_str(include_str!("../../known-bugs/bugs.toml"))?;
    Ok(file.bug)
}

fn judged(bugs: &[Bug], trials: &[Trial]) -> Vec<Row> {
    let answers = || {
        let each = bugs
            .iter()
            .filter_map(|bug| Some((bug, bug.tried(trials)?)));
        each.filter(|(bug, trial)| !bug.spare || trial.seconds.is_some())
            .map(|(bug, trial)| bug.answer(trial))
    };
    let most = Required::AtMost(0.0);
    rows! {
        "answered as expected", answers(), |one| *one == Answer::Right, Required::Nothing;
        "answered wrongly", answers(), |one| *one == Answer::Wrong, most;
        "cause not known", answers(), |one| *one == Answer::NotKnown, Required::Nothing;
        "not tried", answers(), |one| *one == Answer::NotTried, most;
    }
}

impl Bug {
    fn tried<'a>(&self, trials: &'a [Trial]) -> Option<&'a Trial> {
        trials.iter().find(|trial| trial.name == self.name)
    }

    fn run(&self, jostle: &Path) -> anyhow::Result<Trial> {
        let place = tempfile::Builder::new().prefix("bug-").tempdir()?;
        let programs = jostle.parent().context("no directory")?.display();
        let generators = shell::target_directory().join("generators");
        let generators = ["bin", "python/bin"].map(|part| generators.join(part));
        let [compiled, python] = generators.each_ref().map(|path| path.display());
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{programs}:{path}:{compiled}:{python}");
        let variables = [
            ("PATH", path.as_str()),
            ("PLACE", &place.path().display().to_string()),
            ("FETCH", self.fetch.as_deref().unwrap_or(":")),
            ("SETUP", self.setup.as_deref().unwrap_or(":")),
            ("COMMAND", &self.command),
        ];
        let fetched = played(&[], FETCH, place.path(), &variables)?;
        let there = |name: &str| fs::read(place.path().join(name)).ok();
        if there("fetched").is_none() {
            return Ok(self.failed(fetched));
        }
        let log = played(APART, SCRIPT, place.path(), &variables)?;
        let text = |name: &str| {
            let bytes = there(name).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let Ok(seconds) = text("took").trim().parse() else {
            return Ok(self.failed(log + &text("output")));
        };
        Ok(Trial {
            seconds: Some(seconds),
            ..self.failed(text("output").chars().take(KEPT).collect())
        })
    }

    /// A trial whose command did not begin.
    fn failed(&self, output: String) -> Trial {
        Trial {
            name: self.name.clone(),
            command: self.command.clone(),
            seconds: None,
            output,
        }
    }

    fn answer(&self, trial: &Trial) -> Answer {
        let output = spaced(&trial.output);
        let has = |one: &Expression| one.0.is_match(&output);
        match trial.seconds {
            None => Answer::NotTried,
            Some(_) if self.never.iter().any(has) => Answer::Wrong,
            Some(_) if self.expect.iter().all(has) => Answer::Right,
            Some(_) => Answer::NotKnown,
        }
    }
}

fn spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// lab/record/known-bugs.md.
fn page(bugs: &[Bug], trials: &[Trial]) -> String {
    let tried = |bug: &&Bug| !bug.spare || bug.tried(trials).is_some();
    let answers = bugs.iter().filter(tried).map(|bug| {
        let trial = bug.tried(trials);
        trial.map_or(Answer::NotTried, |trial| bug.answer(trial))
    });
    let answers: Vec<Answer> = answers.collect();
    let count = |wanted| answers.iter().filter(|one| **one == wanted).count();
    let mut text = format!(
        "# Is this bug known, and does jostle find it?\n\n\
         jostle answered {} of {} public reports as expected and {} wrongly; for {} it named no cause. \
         Commands and expected answers were \
         [written](../trials/known-bugs/bugs.toml) before any was tried; rows that were changed later say \
         so. `cargo xtask validate \
         known-bugs --save FILE` tries them, and makes this page of what was recorded \
         (`validate-known-bugs.jsonl`).\n",
        count(Answer::Right),
        answers.len(),
        count(Answer::Wrong),
        answers.len() - count(Answer::Right) - count(Answer::Wrong),
    );
    for bug in bugs.iter().filter(tried) {
        text += &bug.section(bug.tried(trials));
    }
    text
}

impl Bug {
    fn section(&self, trial: Option<&Trial>) -> String {
        let answer = trial.map_or(Answer::NotTried, |trial| self.answer(trial));
        let came = match (answer, self.fixed) {
            (Answer::Right, false) => "Reproduced.",
            (Answer::Right, true) => "Not so, or no longer, as was expected.",
            (Answer::Wrong, _) => "**Answered wrongly.**",
            (Answer::NotKnown, _) => "**Not reproduced, or no cause named.**",
            (Answer::NotTried, _) => "**Not tried.**",
        };
        let seconds = trial.and_then(|trial| trial.seconds);
        let seconds = seconds.map_or(String::new(), |s| format!(", in {s:.0} s"));
        let said = trial.map_or(String::new(), |trial| self.said(&trial.output));
        let steps = [
            self.fetch.as_deref(),
            self.setup.as_deref(),
            Some(&self.command),
        ];
        let steps: Vec<&str> = steps.into_iter().flatten().collect();
        let note = self
            .note
            .as_deref()
            .map_or(String::new(), |note| format!(" {note}"));
        format!(
            "\n## {name}\n\n[{of}]({address}): {claim}\n\n```sh\n{steps}\n```\n\n{said}{came}{note}\n",
            name = self.name,
            of = self.of,
            address = self.address,
            claim = self.claim,
            steps = steps.join("\n"),
            said = match said.is_empty() {
                true => String::new(),
                false => format!("jostle says{seconds}: {said} "),
            },
        )
    }

    /// The last sentences in which the expressions are found.
    fn said(&self, output: &str) -> String {
        let mut shown: Vec<String> = Vec::new();
        let sentences = sentences(output);
        for one in self.never.iter().chain(&self.expect) {
            let mut ends = sentences.iter().rev();
            let found = ends.find(|sentence| one.0.is_match(sentence));
            let Some(text) = found.map(|sentence| quoted(sentence)) else {
                continue;
            };
            if !shown.contains(&text) {
                shown.push(text);
            }
        }
        shown.join(", ")
    }
}

/// A line and those that are indented far below it.
fn sentences(output: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in output.lines() {
        match found.last_mut() {
            Some(last) if line.starts_with("   ") && !last.is_empty() => {
                *last = format!("{last} {}", line.trim_start());
            }
            _ => found.push(line.trim().trim_start_matches("- ").to_owned()),
        }
    }
    found
}

fn quoted(sentence: &str) -> String {
    let label = sentence.split_once("  ");
    let label = label.filter(|(label, _)| label.len() < LABEL);
    let words = spaced(label.map_or(sentence, |(_, said)| said));
    match words.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("\"{} ...\"", words[..end].trim_end()),
        None => format!("\"{words}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::store::Store;

    #[test]
    fn what_is_recorded_makes_the_page() {
        let record = shell::root().join("lab/record");
        let trials = Store::<Trial>::read(&record.join("validate-known-bugs.jsonl")).unwrap();
        let stored = fs::read_to_string(record.join("known-bugs.md")).unwrap();
        let made = page(&read().unwrap(), &trials.lines);
        assert!(
            made == stored,
            "write what `--judge` prints to known-bugs.md"
        );
        for bug in read().unwrap() {
            let tried = bug.tried(&trials.lines);
            assert!(
                tried.is_none_or(|trial| trial.command == bug.command),
                "{}",
                bug.name
            );
        }
        for row in judged(&read().unwrap(), &trials.lines) {
            let share = row.count as f64 / row.trials as f64;
            assert!(row.required.holds(share), "{}: {}", row.what, row.count);
        }
    }

    #[test]
    #[ignore = "cargo xtask long"]
    fn no_report_is_answered_wrongly() {
        install().unwrap();
        let jostle = crate::program::build().unwrap().canonicalize().unwrap();
        let bugs = read().unwrap();
        let answers = bugs.iter().map(|bug| (bug, bug.run(&jostle).unwrap()));
        let wrong = answers.filter(|(bug, trial)| {
            let answer = bug.answer(trial);
            matches!(answer, Answer::Wrong | Answer::NotTried)
        });
        let wrong: Vec<String> = wrong
            .map(|(_, trial)| trial.name + "\n" + &trial.output)
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn an_answer_is_right_wrong_or_neither() {
        let bug: Bug = toml::from_str(
            "name = 'n'\naddress = 'a'\nof = 'o'\nclaim = 'c'\ncommand = 'x'\n\
             expect = ['two owners', 'broken']\nnever = ['late']",
        )
        .unwrap();
        let trial = |seconds, output: &str| Trial {
            seconds,
            ..bug.failed(output.to_owned())
        };
        let ran = Some(1.0);
        for (seconds, output, answer) in [
            (ran, "It is BROKEN: two\n   owners.", Answer::Right),
            (ran, "It is broken.", Answer::NotKnown),
            (ran, "broken: two owners, late", Answer::Wrong),
            (None, "broken: two owners", Answer::NotTried),
        ] {
            let trial = trial(seconds, output);
            assert_eq!(bug.answer(&trial), answer, "{output}");
        }
        let said = bug.said("two owners\nPromise    It is broken:\n   two owners.\nlate or not\n");
        assert_eq!(said, "\"late or not\", \"It is broken: two owners.\"");
    }
}
