//! Situations outside of the lock, from files in lab/trials/situations: does jostle name the cause,
//! and never another one?
//!
//! A situation runs once, in namespaces of its own: servers are started, jostle is called as a user
//! would, and something strikes meanwhile. Its file has the truth, and what a sentence must contain
//! that names it. What jostle printed is kept; [`judge`] has the outcome, a pure function of that text
//! and of the files as they are now. Nobody corrects a file to fit a text without saying why.

mod judge;

use super::{Required, Row, Series};
use anyhow::{Context, ensure};
use jostle_testbed::leash::Leash;
use jostle_testbed::{packages, shell};
use judge::{Claims, Outcome};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// After which everything is ended; no situation takes half of it.
const PATIENCE_S: &str = "90";

#[derive(clap::Args)]
pub(crate) struct How {
    /// Files of situations; without, all of lab/trials/situations
    #[arg(long, value_name = "FILE", num_args = 1..)]
    plants: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct File {
    situation: Vec<Situation>,
}

/// For people its file also has the rights that it needs (`rights`).
#[derive(Debug, Deserialize)]
struct Situation {
    name: String,
    truth: String,
    /// Debian packages.
    #[serde(default)]
    needs: Vec<String>,
    /// How many causes act at once.
    #[serde(default = "one")]
    causes: u32,
    /// What is innocent, beside a lock that is broken by itself.
    sign: Option<String>,
    before: String,
    command: String,
    /// When it strikes, in seconds from the start of `command`.
    at: f64,
    during: String,
    /// What it must put back outside of its namespaces.
    #[serde(default)]
    after: String,
    /// The kinds of cause, of claims.toml, that are true of it.
    is: Vec<String>,
    /// Expressions; one of them is in every text that names the cause.
    admissible: Vec<String>,
    /// Expressions that are false of it beside those of the other kinds.
    forbidden: Vec<String>,
}

fn one() -> u32 {
    1
}

/// A line of the file: what came of a situation.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Trial {
    name: String,
    /// Whether it struck as planned; if not, its log says why.
    is_planted: bool,
    /// jostle's exit code.
    code: Option<i32>,
    seconds: f64,
    /// All that jostle printed.
    output: String,
    log: String,
}

/// Collects what is missing, as far as time allows, and judges all there is.
pub(super) fn rows(series: &Series, how: &How) -> anyhow::Result<Vec<Row>> {
    let situations = read(&how.plants)?;
    let (mut store, until) = series.collect.begin::<Trial>()?;
    if Instant::now() < until {
        let jostle = series.jostle()?.canonicalize()?;
        let missing = situations.iter().filter(|situation| {
            let is_there = store.lines.iter().any(|line| line.name == situation.name);
            series.has(&situation.name) && !is_there
        });
        for situation in missing.collect::<Vec<_>>() {
            if Instant::now() >= until {
                break;
            }
            eprintln!("{}", situation.name);
            store.add(situation.run(&jostle)?)?;
        }
    }
    let trials = store.lines.iter().filter(|trial| series.has(&trial.name));
    table(&situations, &trials.collect::<Vec<_>>())
}

/// All situations of these files, or of the directory.
fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<Situation>> {
    let mut paths = paths.to_vec();
    if paths.is_empty() {
        for entry in fs::read_dir(directory())? {
            let path = entry?.path();
            let is_toml = path
                .extension()
                .is_some_and(|extension| extension == "toml");
            if is_toml && !path.ends_with("claims.toml") {
                paths.push(path);
            }
        }
        paths.sort();
    }
    let mut situations = Vec::new();
    for path in paths {
        let name = || path.display().to_string();
        let text = fs::read_to_string(&path).with_context(name)?;
        situations.extend(toml::from_str::<File>(&text).with_context(name)?.situation);
    }
    let names: BTreeSet<&str> = situations.iter().map(|one| one.name.as_str()).collect();
    ensure!(names.len() == situations.len(), "two have one name");
    Ok(situations)
}

fn directory() -> PathBuf {
    shell::root().join("lab/trials/situations")
}

impl Situation {
    fn run(&self, jostle: &Path) -> anyhow::Result<Trial> {
        packages::ensure(&self.needs.iter().map(String::as_str).collect::<Vec<_>>())?;
        let place = tempfile::Builder::new().prefix("situation-").tempdir()?;
        let began = Instant::now();
        let mut command = Command::new("timeout");
        command
            .args(["--foreground", "-k", "15", PATIENCE_S])
            .args(["unshare", "--net", "--mount", "--ipc", "bash", "-c"])
            .arg(self.script())
            .env("ROOT", shell::root())
            .env("DIR", place.path())
            .env("JOSTLE", jostle)
            .env("AT_S", self.at.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut leash = Leash::start(&mut command)?;
        let mut log = String::new();
        let mut stdout = leash.stdout().context("no output")?;
        stdout.read_to_string(&mut log)?;
        drop(leash);
        let text = |name: &str| {
            let bytes = fs::read(place.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ok(Trial {
            name: self.name.clone(),
            is_planted: place.path().join("struck").exists(),
            code: text("code").trim().parse().ok(),
            seconds: began.elapsed().as_secs_f64(),
            output: text("output"),
            log: log + &text("during.log"),
        })
    }

    /// jostle is no foreground process of it, for which it would put off a signal.
    fn script(&self) -> String {
        format!(
            "exec 2>&1 3<&0
            after() {{ :
            {after}
            }}
            . \"$ROOT/lab/trials/situations/shell.sh\"
            (read -r _ <&3; kill -TERM $$) &
            {before}
            (sleep $AT_S
            {during}
            : >struck) >during.log 2>&1 </dev/null &
            STRIKES=$!
            ({command}) >output 2>&1 </dev/null &
            wait $! && echo 0 >code || echo $? >code
            wait $STRIKES || true",
            after = self.after,
            before = self.before,
            during = self.during,
            command = self.command,
        )
    }
}

/// Prints a line for each trial, by outcome; the rows of what is required.
fn table(situations: &[Situation], trials: &[&Trial]) -> anyhow::Result<Vec<Row>> {
    let claims = Claims::read()?;
    let mut judged = Vec::new();
    let mut failed = Vec::new();
    for trial in trials {
        let of = situations.iter().find(|one| one.name == trial.name);
        let situation = of.with_context(|| format!("no file has `{}`", trial.name))?;
        if trial.is_planted && trial.code.is_some() {
            let outcome = judge::outcome(situation, &claims, &trial.output)?;
            judged.push((outcome, situation, trial));
        } else {
            failed.push(*trial);
        }
    }
    judged.sort_by_key(|(outcome, ..)| outcome.class());
    for (outcome, situation, trial) in &judged {
        let verdict = judge::verdict(&trial.output);
        let both = if situation.causes > 1 {
            " (two causes)"
        } else {
            ""
        };
        println!(
            "{:<14}  {verdict:<8}  {}{both}",
            outcome.class(),
            situation.name
        );
        match outcome {
            Outcome::False(sentences) => {
                println!("                truth: {}", situation.truth);
                if let Some(sign) = &situation.sign {
                    println!("                innocent: {sign}");
                }
                for (kind, sentence) in sentences {
                    println!("                {kind}: {sentence}");
                }
            }
            Outcome::Cause { sentence, .. } => println!("                {sentence}"),
            Outcome::NoCause => {}
        }
    }
    for trial in &failed {
        println!("{:<14}  {:<8}  {}", "not planted", "", trial.name);
        println!("{}", trial.log.trim_end());
    }
    println!();
    let row = |what: &str, is: fn(&Outcome) -> bool, required| {
        Row::of(what, &judged, |(outcome, ..)| is(outcome), required)
    };
    let possible = judged.iter().filter(|(outcome, ..)| {
        matches!(
            outcome,
            Outcome::Cause {
                is_asserted: false,
                ..
            }
        )
    });
    let note = format!("{} as a possibility", possible.count());
    Ok(vec![
        row(
            "false",
            |one| matches!(one, Outcome::False(_)),
            Required::AtMost(0.0),
        ),
        row(
            "right with the cause",
            |one| matches!(one, Outcome::Cause { .. }),
            Required::AtLeast(0.6),
        )
        .noting(note),
        row(
            "right without",
            |one| matches!(one, Outcome::NoCause),
            Required::Nothing,
        ),
        Row::counted(
            "not planted",
            failed.len() as u64,
            trials.len() as u64,
            Required::AtMost(0.0),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forty_are_filed_and_each_can_be_judged() {
        let all = read(&[]).unwrap();
        let claims = Claims::read().unwrap();
        let count = |is: fn(&&Situation) -> bool| all.iter().filter(is).count();
        assert_eq!(all.len(), 40);
        assert_eq!(count(|one| one.sign.is_some()), 10, "broken locks");
        assert_eq!(count(|one| one.causes > 1), 6, "several causes");
        for situation in &all {
            let outcome = judge::outcome(situation, &claims, "target 4 VALID\n").unwrap();
            assert!(matches!(outcome, Outcome::NoCause), "{}", situation.name);
            assert!(!situation.admissible.is_empty() && !situation.is.is_empty());
        }
    }
}
