//! The Redis clients that people have, as they are, against jostled.
//!
//! Each program of `xtask/clients` takes a port and the means by which its
//! library gives up (`MEANS`), and prints a line for each act. Its last is LOCK
//! of `busy`, which is held here, with `WAIT 5000` and a limit of 300 ms: after
//! the library's error it prints `timeout MS TEXT` and keeps the library alive
//! until its input ends. Meanwhile the daemon is asked how many LOCKs came and how
//! long a waiter stays: that differs, and is what the table is for. Every act's
//! outcome is promised, and that nothing is left when the program has ended.

use super::Ground;
use super::daemon::Daemon;
use anyhow::Context;
use jostle_testbed::shell;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// A library with a means to give up.
struct Trial {
    client: &'static str,
    means: &'static str,
    /// Makes the program, and what to call.
    program: fn(&Ground) -> anyhow::Result<Command>,
}

/// An act, and what it must come to: one of these, or it begins with one of these.
const ACTS: &[(&str, &[&str])] = &[
    ("lock", &["granted"]),
    ("try", &["nil", "None", "null"]),
    ("wait", &["nil", "None", "null"]),
    ("wrong", &["NOTOWNER"]),
    ("unlock", &["1"]),
    ("pipeline", &["10"]),
    ("multi", &["10"]),
];

/// redis-benchmark shows no replies.
const OF_BENCHMARK: &[&str] = &["pipeline"];

const fn trial(
    client: &'static str,
    means: &'static str,
    program: fn(&Ground) -> anyhow::Result<Command>,
) -> Trial {
    Trial {
        client,
        means,
        program,
    }
}

const TRIALS: &[Trial] = &[
    trial("redis-py", "socket_timeout", redis_py),
    trial("redis-py", "retry off", redis_py),
    trial("redis-py asyncio", "socket_timeout", asyncio),
    trial("redis-py asyncio", "wait_for", asyncio),
    trial("go-redis", "ReadTimeout", go),
    trial("go-redis", "MaxRetries -1", go),
    trial("go-redis", "context", go),
    trial("ioredis", "commandTimeout", ioredis),
    trial("ioredis", "socketTimeout", ioredis),
    trial("node-redis", "abort signal", node_redis),
    trial("node-redis", "timeout", node_redis),
    trial("node-redis", "socketTimeout", node_redis),
    trial("jedis", "socketTimeoutMillis", jedis),
    trial("lettuce", "setTimeout", lettuce),
    trial("redis-rs", "set_read_timeout", redis_rs),
    trial("redis-rs", "response_timeout", redis_rs),
    trial("hiredis", "redisSetTimeout", hiredis),
    trial("hiredis", "redisFree", hiredis),
    trial("redis-cli", "killed", redis_cli),
    trial("redis-benchmark", "killed", redis_benchmark),
];

/// Runs the trials, prints their table; the broken promises, a line for each.
pub(super) fn run(ground: &Ground, wanted: &dyn Fn(&str) -> bool) -> anyhow::Result<Vec<String>> {
    let mut rows = Vec::new();
    let mut broken = Vec::new();
    for trial in TRIALS.iter().filter(|trial| wanted(trial.client)) {
        println!("== {}, {}", trial.client, trial.means);
        match attempt(trial, ground) {
            Ok(outcome) => {
                broken.extend(outcome.broken(trial));
                rows.push(outcome.row(trial));
            }
            Err(error) => broken.push(format!("{}, {}: {error:#}", trial.client, trial.means)),
        }
    }
    print!("{}", table(&rows));
    Ok(broken)
}

/// What one trial came to.
#[derive(Debug)]
struct Outcome {
    version: String,
    /// Act and result, as the program printed them.
    acts: Vec<(String, String)>,
    /// When the library gave up, after it had sent, and what it told.
    gave_up_ms: u64,
    told: String,
    /// LOCKs of `busy` that came to wait.
    sent: u64,
    /// How long the daemon had a waiter after the library had given up.
    stayed: Option<Duration>,
    /// Locks, beside `busy`, and waiters when the program has ended.
    left: u64,
}

/// How long is looked for one who waits for 5 s.
const WATCHED: Duration = Duration::from_secs(12);

/// How long it may take until nothing is left of a program that has ended.
const PATIENCE: Duration = Duration::from_secs(30);

/// The program, on a leash of its input: it ends with it.
struct Running {
    child: Child,
    input: Option<ChildStdin>,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn attempt(trial: &Trial, ground: &Ground) -> anyhow::Result<Outcome> {
    let mut command = (trial.program)(ground)?;
    let daemon = Daemon::start(&ground.jostled)?;
    let mut holder = daemon.connect()?;
    holder.write_all(b"LOCK busy\r\n")?;
    holder.read_exact(&mut [0; 4])?;
    command.arg(daemon.port.to_string()).arg(trial.means);
    if let Some(version) = version_of(trial.client) {
        command.arg(version);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run `{}`", shell::typed(&command)))?;
    let input = child.stdin.take();
    let stdout = child.stdout.take().context("stdout is piped")?;
    let mut running = Running { child, input };
    let mut lines = BufReader::new(stdout).lines();
    let mut outcome = said(&mut lines)?;
    let stayed = stays(&daemon)?;
    // The act `wait` has waited too; redis-benchmark has no such act.
    let other = u64::from(outcome.acts.iter().any(|(act, _)| act == "wait"));
    outcome.sent = daemon.info("waits")?.saturating_sub(other);
    outcome.stayed = stayed;
    drop(running.input.take());
    running.child.wait()?;
    outcome.left = left(&daemon)?;
    Ok(outcome)
}

/// Reads what a program prints, to the line of its timeout.
fn said(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome {
        version: String::new(),
        acts: Vec::new(),
        gave_up_ms: 0,
        told: String::new(),
        sent: 0,
        stayed: None,
        left: 0,
    };
    for line in lines {
        let line = line?;
        let (act, result) = line.split_once(' ').unwrap_or((&line, ""));
        match act {
            "version" => outcome.version = result.to_owned(),
            "timeout" => {
                let (ms, told) = result.split_once(' ').unwrap_or((result, ""));
                outcome.gave_up_ms = ms.parse().with_context(|| line.clone())?;
                outcome.told = told.to_owned();
                return Ok(outcome);
            }
            _ => outcome.acts.push((act.to_owned(), result.to_owned())),
        }
    }
    anyhow::bail!("it ended before its timeout, after {:?}", outcome.acts)
}

/// How long a waiter stays from now on; none if there is one for all that time, as
/// a library's that sends on and on. Gone is what is gone for half a second.
fn stays(daemon: &Daemon) -> anyhow::Result<Option<Duration>> {
    let start = Instant::now();
    let mut seen = Duration::ZERO;
    while start.elapsed() < WATCHED {
        if daemon.info("waiters")? > 0 {
            seen = start.elapsed();
        } else if start.elapsed() > seen + Duration::from_millis(500) {
            return Ok(Some(seen));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(None)
}

/// Waiters, and locks held beside `busy`, when short leases have had time to end.
fn left(daemon: &Daemon) -> anyhow::Result<u64> {
    let start = Instant::now();
    loop {
        let left = daemon.info("waiters")? + daemon.info("holds")?.saturating_sub(1);
        if left == 0 || start.elapsed() > PATIENCE {
            return Ok(left);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Outcome {
    /// What was promised and did not hold.
    fn broken(&self, trial: &Trial) -> Vec<String> {
        let mut broken = Vec::new();
        let name = format!("{}, {}", trial.client, trial.means);
        for (act, expected) in ACTS {
            if trial.client == "redis-benchmark" && !OF_BENCHMARK.contains(act) {
                continue;
            }
            let found = self.acts.iter().find(|(name, _)| name == act);
            let result = found.map_or("nothing", |(_, result)| result);
            let holds = |wanted: &&str| match *act {
                "wrong" => result.contains(wanted),
                _ => result == *wanted,
            };
            if !expected.iter().any(holds) {
                broken.push(format!("{name}: {act} came to `{result}`"));
            }
        }
        if self.left > 0 {
            let left = self.left;
            broken.push(format!(
                "{name}: {left} locks and waiters outlive the program"
            ));
        }
        broken
    }

    fn row(&self, trial: &Trial) -> [String; 7] {
        let acts = if self.broken(trial).is_empty() {
            format!("{} right", self.acts.len())
        } else {
            "WRONG".to_owned()
        };
        let stayed = match self.stayed {
            Some(time) if time < Duration::from_millis(100) => "no".to_owned(),
            Some(time) => format!("{:.1} s", time.as_secs_f64()),
            None => "while it runs".to_owned(),
        };
        [
            trial.client.to_owned(),
            // `redis-cli 7.0.15`: the first column has the name.
            self.version
                .split(' ')
                .next_back()
                .unwrap_or_default()
                .into(),
            acts,
            trial.means.to_owned(),
            format!("{} ms", self.gave_up_ms),
            self.sent.to_string(),
            stayed,
        ]
    }
}

fn table(rows: &[[String; 7]]) -> String {
    let head = [
        "client",
        "version",
        "acts",
        "gives up by",
        "after",
        "LOCKs sent",
        "waiter stays",
    ]
    .map(str::to_owned);
    let all = || std::iter::once(&head).chain(rows);
    let widths: Vec<usize> = (0..head.len())
        .map(|column| all().map(|row| row[column].len()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in all() {
        let cells = row.iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

fn source(name: &str) -> std::path::PathBuf {
    shell::root().join("xtask/clients").join(name)
}

fn python(ground: &Ground, script: &str) -> Command {
    let python = shell::root().join("target/redis-py/8/bin/python");
    let mut command = ground.command(&python.to_string_lossy());
    command.arg("-B").arg(source(script));
    command
}

fn redis_py(ground: &Ground) -> anyhow::Result<Command> {
    Ok(python(ground, "redis_py.py"))
}

fn asyncio(ground: &Ground) -> anyhow::Result<Command> {
    Ok(python(ground, "asyncio_redis_py.py"))
}

fn go(ground: &Ground) -> anyhow::Result<Command> {
    let program = ground.place.join("raw-go");
    let mut build = ground.command("go");
    build.args(["build", "-o"]).arg(&program).arg(".");
    shell::run(build.current_dir(source("go")))?;
    Ok(Command::new(program))
}

fn node(ground: &Ground, script: &str) -> anyhow::Result<Command> {
    let place = ground.copy("xtask/clients/node", "raw-node")?;
    let mut install = ground.command("npm");
    install.args(["install", "--silent", "--no-audit", "--no-fund"]);
    shell::run(install.current_dir(&place))?;
    let mut command = ground.command("node");
    command.arg(place.join(script));
    Ok(command)
}

fn ioredis(ground: &Ground) -> anyhow::Result<Command> {
    node(ground, "ioredis.mjs")
}

fn node_redis(ground: &Ground) -> anyhow::Result<Command> {
    node(ground, "node_redis.mjs")
}

fn java(ground: &Ground, class: &str) -> anyhow::Result<Command> {
    let place = ground.copy("xtask/clients/java", "raw-java")?;
    shell::run(ground.maven().arg("package").current_dir(&place))?;
    let mut command = ground.command("java");
    let target = place.join("target");
    let path = format!("{0}/classes:{0}/lib/*", target.display());
    command.args(["-cp", &path, class]);
    Ok(command)
}

fn jedis(ground: &Ground) -> anyhow::Result<Command> {
    java(ground, "RawJedis")
}

fn lettuce(ground: &Ground) -> anyhow::Result<Command> {
    java(ground, "RawLettuce")
}

/// The version of a library that does not tell its own at run time.
fn version_of(client: &str) -> Option<String> {
    let artifact = match client {
        "jedis" => "jedis",
        "lettuce" => "lettuce-core",
        _ => return None,
    };
    let pom = std::fs::read_to_string(source("java/pom.xml")).ok()?;
    let (_, rest) = pom.split_once(&format!("<artifactId>{artifact}</artifactId>"))?;
    let (_, rest) = rest.split_once("<version>")?;
    Some(rest.split_once('<')?.0.to_owned())
}

fn redis_rs(ground: &Ground) -> anyhow::Result<Command> {
    let mut build = ground.command("cargo");
    build.args(["build", "--quiet", "--locked", "--manifest-path"]);
    shell::run(build.arg(source("rust/Cargo.toml")))?;
    Ok(Command::new(ground.place.join("rust/debug/raw")))
}

fn hiredis(ground: &Ground) -> anyhow::Result<Command> {
    let program = ground.place.join("raw-hiredis");
    let mut flags = Command::new("pkg-config");
    let flags = shell::output(flags.args(["--cflags", "--libs", "hiredis"]))?;
    let mut build = Command::new("cc");
    build.args(["-Wall", "-Werror", "-o"]).arg(&program);
    shell::run(
        build
            .arg(source("hiredis.c"))
            .args(flags.split_whitespace()),
    )?;
    Ok(Command::new(program))
}

fn redis_cli(_: &Ground) -> anyhow::Result<Command> {
    Ok(Command::new(source("redis_cli.sh")))
}

fn redis_benchmark(_: &Ground) -> anyhow::Result<Command> {
    Ok(Command::new(source("redis_benchmark.sh")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(text: &str) -> Outcome {
        let mut lines = text.lines().map(|line| Ok(line.to_owned()));
        let mut outcome = said(&mut lines).unwrap();
        outcome.stayed = Some(Duration::ZERO);
        outcome
    }

    const RIGHT: &str = "version redis-py 8\nlock granted\ntry None\nwait None\n\
        wrong ResponseError: NOTOWNER it is not\nunlock 1\npipeline 10\nmulti 10\n\
        timeout 301 TimeoutError: x\n";

    #[test]
    fn a_promise_that_is_broken_is_named() {
        let trial = &TRIALS[0];
        assert_eq!(outcome(RIGHT).broken(trial), Vec::<String>::new());
        let wrong = outcome(&RIGHT.replace("multi 10", "multi 9"));
        assert_eq!(
            wrong.broken(trial),
            ["redis-py, socket_timeout: multi came to `9`"]
        );
        let missing = outcome(&RIGHT.replace("try None\n", ""));
        assert_eq!(
            missing.broken(trial),
            ["redis-py, socket_timeout: try came to `nothing`"]
        );
        let mut stays = outcome(RIGHT);
        stays.left = 2;
        assert_eq!(
            stays.broken(trial),
            ["redis-py, socket_timeout: 2 locks and waiters outlive the program"]
        );
    }

    #[test]
    fn a_program_that_ends_too_soon_is_an_error() {
        let mut lines = ["lock granted".to_owned()].into_iter().map(Ok);
        assert!(said(&mut lines).is_err());
    }
}
