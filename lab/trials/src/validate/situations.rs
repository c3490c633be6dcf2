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
pub(super) use judge::Expression;
use judge::{Claims, Class};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// After which everything is ended; no situation takes half of it.
const PATIENCE_S: &str = "120";
/// Before a script that has namespaces of its own.
pub(super) const APART: &[&str] = &["unshare", "--net", "--mount", "--ipc"];

const NONE: Required = Required::AtMost(0.0);

#[derive(clap::Args)]
pub(crate) struct How {
    /// Files of situations: lab/trials/situations/*.toml
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
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
    /// How many causes act at once, if several do.
    #[serde(default)]
    causes: u32,
    /// The innocent sign, beside a lock that is broken by itself.
    sign: Option<String>,
    before: String,
    command: String,
    /// When it strikes, in seconds from the start of `command`.
    at: f64,
    during: String,
    /// The state that it must put back outside of its namespaces.
    #[serde(default)]
    after: String,
    /// The kinds of cause, of claims.toml, that are true of it.
    is: Vec<String>,
    /// One of them is in every text that names the cause.
    admissible: Vec<Expression>,
    /// The statements that are false of it beside the other kinds.
    forbidden: Vec<Expression>,
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
        for situation in situations.iter().filter(|one| series.has(&one.name)) {
            let is_there = store.lines.iter().any(|line| line.name == situation.name);
            if !is_there && Instant::now() < until {
                eprintln!("{}", situation.name);
                store.add(situation.run(&jostle)?)?;
            }
        }
    }
    let trials = store.lines.iter().filter(|trial| series.has(&trial.name));
    table(&situations, trials)
}

fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<Situation>> {
    let mut situations = Vec::new();
    for path in paths.iter().filter(|path| !path.ends_with("claims.toml")) {
        let name = || path.display().to_string();
        let text = fs::read_to_string(path).with_context(name)?;
        situations.extend(toml::from_str::<File>(&text).with_context(name)?.situation);
    }
    let names: BTreeSet<&str> = situations.iter().map(|one| one.name.as_str()).collect();
    ensure!(names.len() == situations.len(), "two have one name");
    Ok(situations)
}

fn directory() -> PathBuf {
    shell::root().join("lab/trials/situations")
}

/// A script for bash, with these variables, $DIR and $ROOT, behind these words; what it printed. It
/// ends with this program.
pub(super) fn played(
    before: &[&str],
    script: &str,
    directory: &Path,
    variables: &[(&str, &str)],
) -> anyhow::Result<String> {
    let mut command = Command::new("timeout");
    command
        .args(["--foreground", "-k", "15", PATIENCE_S])
        .args(before)
        .args(["bash", "-c", script])
        .current_dir(shell::root())
        .env("ROOT", shell::root())
        .env("DIR", directory)
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut leash = Leash::start(&mut command)?;
    let mut log = Vec::new();
    let mut stdout = leash.stdout().context("no output")?;
    stdout.read_to_end(&mut log)?;
    Ok(String::from_utf8_lossy(&log).into_owned())
}

impl Situation {
    fn run(&self, jostle: &Path) -> anyhow::Result<Trial> {
        packages::ensure(&self.needs.iter().map(String::as_str).collect::<Vec<_>>())?;
        let place = tempfile::Builder::new().prefix("situation-").tempdir()?;
        let began = Instant::now();
        let (program, at) = (jostle.display().to_string(), self.at.to_string());
        let variables = [("JOSTLE", &*program), ("AT_S", &*at)];
        let log = played(APART, &self.script(), place.path(), &variables)?;
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
            (read -r _ <&3 || kill -TERM $$) &
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

/// Prints each trial, by what came of it; the rows of what is required.
fn table<'a>(
    situations: &[Situation],
    trials: impl Iterator<Item = &'a Trial>,
) -> anyhow::Result<Vec<Row>> {
    let claims = Claims::read()?;
    let mut judged = Vec::new();
    for trial in trials {
        let of = situations.iter().find(|one| one.name == trial.name);
        let situation = of.with_context(|| format!("no file has `{}`", trial.name))?;
        let outcome = judge::outcome(situation, &claims, trial);
        judged.push((outcome, situation, judge::verdict(&trial.output)));
    }
    judged.sort_by_key(|((class, _), ..)| *class);
    for ((class, sentences), situation, verdict) in &judged {
        let causes = ["", " (two causes)"][usize::from(situation.causes > 1)];
        println!("{class:<10?}  {verdict:<7}  {}{causes}", situation.name);
        if *class == Class::False {
            let sign = situation.sign.as_deref().unwrap_or("-");
            println!("    truth: {} innocent: {sign}", situation.truth);
        }
        sentences.iter().for_each(|text| println!("    {text}"));
    }
    println!();
    let classes = || judged.iter().map(|((class, _), ..)| *class);
    let planted = || classes().filter(|class| *class != Class::NotPlanted);
    let row = |what: &str, counted: &[Class], required| {
        Row::counting(what, planted(), |class| counted.contains(class), required)
    };
    let failed = Row::counting(
        "not planted",
        classes(),
        |&one| one == Class::NotPlanted,
        NONE,
    );
    let with = [Class::Cause, Class::Possible];
    Ok(vec![
        failed,
        row("false", &[Class::False], NONE),
        row("right with the cause", &with, Required::AtLeast(0.6)),
        row("only as a possibility", &with[1..], Required::Nothing),
        row("right without", &[Class::Nothing], Required::Nothing),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forty_are_filed_and_each_can_be_judged() {
        let files = ["broken", "databases", "files", "hosts", "redis", "stores"];
        let all = read(&files.map(|file| directory().join(format!("{file}.toml")))).unwrap();
        let count = |is: fn(&&Situation) -> bool| all.iter().filter(is).count();
        assert_eq!(all.len(), 40);
        assert_eq!(count(|one| one.sign.is_some()), 10, "broken locks");
        assert_eq!(count(|one| one.causes > 1), 6, "several causes");
        let claims = Claims::read().unwrap();
        let standstills = read(&[directory().join("standstills.toml")]).unwrap();
        for situation in all.iter().chain(&standstills) {
            let trial = judge::tests::printed("target 4 VALID");
            let (class, _) = judge::outcome(situation, &claims, &trial);
            assert_eq!(class, Class::Nothing, "{}", situation.name);
        }
    }
}
