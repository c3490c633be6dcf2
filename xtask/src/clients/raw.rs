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
use anyhow::Context;
use jostle_testbed::leash::Leash;
use jostle_testbed::servers::{self, Placed, Server};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A library, and a means by which it gives up.
type Trial = (&'static str, &'static str);

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

const TRIALS: [Trial; 20] = [
    ("redis-py", "socket_timeout"),
    ("redis-py", "retry off"),
    ("redis-py asyncio", "socket_timeout"),
    ("redis-py asyncio", "wait_for"),
    ("go-redis", "ReadTimeout"),
    ("go-redis", "MaxRetries -1"),
    ("go-redis", "context"),
    ("ioredis", "commandTimeout"),
    ("ioredis", "socketTimeout"),
    ("node-redis", "abort signal"),
    ("node-redis", "timeout"),
    ("node-redis", "socketTimeout"),
    ("jedis", "socketTimeoutMillis"),
    ("lettuce", "setTimeout"),
    ("redis-rs", "set_read_timeout"),
    ("redis-rs", "response_timeout"),
    ("hiredis", "redisSetTimeout"),
    ("hiredis", "redisFree"),
    ("redis-cli", "killed"),
    ("redis-benchmark", "killed"),
];

/// A library's program as a shell's function: it is built if need be, and becomes the shell.
/// The version of a library in Java, which does not tell its own, stands in the pom.
/// `$WITHIN` is the beginning of a command line that runs it in some other place.
pub(super) const PROGRAMS: &str = r#"
cd xtask/clients
python() { exec $WITHIN "$ROOT/target/redis-py/8/bin/python" -B "$@"; }
node() { copy node raw-node; install; exec $WITHIN node "$@"; }
java() {
    class=$1 version=$(grep -A1 "<artifactId>$2<" java/pom.xml | grep -o '[0-9][^<]*'); shift 2
    copy java raw-java; maven package
    exec $WITHIN java -cp 'target/classes:target/lib/*' "$class" "$@" "$version"
}
client=$1; shift
case $client in
redis-py) python redis_py.py "$@" ;;
'package python in a group')
    export PYTHONPATH="$ROOT/jostled/clients/python"
    python "$PYTHONPATH/tests/group.py" "$@" ;;
'redis-py asyncio') python asyncio_redis_py.py "$@" ;;
go-redis) cd go; go build -o "$PLACE/raw-go" .; exec $WITHIN "$PLACE/raw-go" "$@" ;;
ioredis) node ioredis.mjs "$@" ;;
node-redis) node node_redis.mjs "$@" ;;
jedis) java RawJedis jedis "$@" ;;
lettuce) java RawLettuce lettuce-core "$@" ;;
redis-rs)
    cargo build --quiet --locked --manifest-path rust/Cargo.toml
    exec $WITHIN "$PLACE/rust/debug/raw" "$@" ;;
hiredis)
    cc -Wall -Werror -o "$PLACE/raw-hiredis" hiredis.c $(pkg-config --cflags --libs hiredis)
    exec "$PLACE/raw-hiredis" "$@" ;;
redis-cli) exec ./redis_cli.sh "$@" ;;
redis-benchmark) exec ./redis_benchmark.sh "$@" ;;
esac
"#;

/// Runs the trials, prints their table; the broken promises, a line for each.
pub(super) fn run(ground: &Ground, wanted: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut rows = Vec::new();
    let mut broken = Vec::new();
    for trial in TRIALS.into_iter().filter(|(client, _)| wanted(client)) {
        let (client, means) = trial;
        println!("== {client}, {means}");
        match attempt(trial, ground) {
            Ok(outcome) => {
                broken.extend(outcome.broken(trial));
                rows.push(outcome.row(trial));
            }
            Err(error) => broken.push(format!("{client}, {means}: {error:#}")),
        }
    }
    print!("{}", table(&rows));
    broken
}

/// The outcome of one trial.
#[derive(Debug, Default)]
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

fn attempt((client, means): Trial, ground: &Ground) -> anyhow::Result<Outcome> {
    let jostled = ground.jostled.display().to_string();
    let daemon = servers::launch(Server::Other, Placed::default(), |address, _| {
        let words = ["--data", "none", "--listen", &address.to_string()].map(str::to_owned);
        let start = ["env", "--unset=JOSTLED_PASSWORD", &jostled].map(str::to_owned);
        Ok([&start[..], &words].concat())
    })?;
    let mut holder = TcpStream::connect(daemon.address)?;
    holder.write_all(b"LOCK busy\r\n")?;
    holder.read_exact(&mut [0; 4])?;
    let mut command = ground.script(PROGRAMS);
    command.args([client, &daemon.address.port().to_string(), means]);
    let mut running = Leash::start(command.stdout(Stdio::piped()))?;
    let mut lines = BufReader::new(running.stdout().context("stdout is piped")?).lines();
    let mut outcome = said(&mut lines)?;
    outcome.stayed = stays(daemon.address)?;
    // The act `wait` has waited too; redis-benchmark has no such act.
    let other = u64::from(outcome.acts.iter().any(|(act, _)| act == "wait"));
    outcome.sent = info(daemon.address, "waits")?.saturating_sub(other);
    drop(running);
    outcome.left = left(daemon.address)?;
    Ok(outcome)
}

/// A figure of the daemon's INFO.
fn info(daemon: SocketAddr, name: &str) -> anyhow::Result<u64> {
    let mut stream = TcpStream::connect(daemon)?;
    stream.write_all(b"INFO\r\nQUIT\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let figure = reply
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let figure = figure.with_context(|| format!("INFO has no {name}"))?;
    Ok(figure.trim().parse()?)
}

/// Reads what a program prints, to the line of its timeout.
fn said(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
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
fn stays(daemon: SocketAddr) -> anyhow::Result<Option<Duration>> {
    let start = Instant::now();
    let mut seen = Duration::ZERO;
    while start.elapsed() < WATCHED {
        if info(daemon, "waiters")? > 0 {
            seen = start.elapsed();
        } else if start.elapsed() > seen + Duration::from_millis(500) {
            return Ok(Some(seen));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(None)
}

/// Waiters, and locks held beside `busy`, when short leases have had time to end.
fn left(daemon: SocketAddr) -> anyhow::Result<u64> {
    let start = Instant::now();
    loop {
        let left = info(daemon, "waiters")? + info(daemon, "holds")?.saturating_sub(1);
        if left == 0 || start.elapsed() > PATIENCE {
            return Ok(left);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Outcome {
    /// The promises that did not hold.
    fn broken(&self, (client, means): Trial) -> Vec<String> {
        let mut broken = Vec::new();
        let name = format!("{client}, {means}");
        for (act, expected) in ACTS {
            if client == "redis-benchmark" && !OF_BENCHMARK.contains(act) {
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

    fn row(&self, trial: Trial) -> [String; 7] {
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
            trial.0.to_owned(),
            // `redis-cli 7.0.15`: the first column has the name.
            self.version
                .split(' ')
                .next_back()
                .unwrap_or_default()
                .into(),
            acts,
            trial.1.to_owned(),
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
        let cells = cells.map(|(cell, width)| format!("{cell:<width$}"));
        let cells: Vec<String> = cells.collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
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
        let trial = TRIALS[0];
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
