//! The load generators of lab/trials/validate/generators.tsv, each with its real server: their
//! command lines, and where each prints its own rate. jostle parses nothing of this; the
//! validation holds it against jostle.

use crate::validate::columns;
use anyhow::{Context, Result, bail};
use jostle_testbed::databases::postgres_programs;
use jostle_testbed::servers::Server;
use jostle_testbed::shell;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TABLE: &str = include_str!("../../../validate/generators.tsv");

/// For a database to take its tables, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The words that a generator prints if requests failed.
const FAILURES: [&str; 4] = [
    "Error when connecting",
    "Non-2xx",
    "Socket errors",
    "aborted in command",
];

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Generator {
    pub name: &'static str,
    /// The Debian package that it comes from.
    pub package: &'static str,
    server: &'static str,
    figure: &'static str,
    command: &'static str,
    prepare: &'static str,
}

/// How long a run is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    /// For generators that take a time.
    pub seconds: u64,
    /// For those that take a number of requests.
    pub requests: u64,
}

/// All of the table.
pub(super) fn all() -> impl Iterator<Item = Generator> {
    columns(TABLE).map(
        |[name, package, server, figure, command, prepare]| Generator {
            name,
            package,
            server,
            figure,
            command,
            prepare,
        },
    )
}

impl Generator {
    pub(super) fn server(self) -> Result<Server> {
        Server::named(self.server).with_context(|| format!("no server {}", self.server))
    }

    /// Whether it ends after a number of requests, not after a time.
    pub(super) fn is_counted(self) -> bool {
        self.command.contains("{requests}")
    }

    /// Prepares its server once it answers.
    pub(super) fn prepare(self, address: SocketAddr) -> Result<()> {
        if self.prepare == "-" {
            return Ok(());
        }
        // It listens before it takes anybody.
        let began = Instant::now();
        loop {
            let words = words(self.prepare, address)?;
            let mut fill = Command::new(&words[0]);
            fill.args(&words[1..]);
            fill.stdout(Stdio::null()).stderr(Stdio::null());
            match shell::run(&mut fill) {
                Ok(()) => return Ok(()),
                Err(error) if began.elapsed() > PATIENCE => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Its program and arguments.
    pub(super) fn command(self, address: SocketAddr, amount: Amount) -> Result<Vec<String>> {
        let line = self
            .command
            .replace("{seconds}", &amount.seconds.to_string())
            .replace("{requests}", &amount.requests.to_string());
        words(&line, address)
    }

    /// Requests a second, as it prints them; `amount` is what it was given.
    ///
    /// # Errors
    /// Where it printed none, or that some of its requests failed.
    pub(super) fn figure(self, printed: &str, amount: Amount) -> Result<f64> {
        if let Some(failure) = FAILURES.iter().find(|text| printed.contains(**text)) {
            bail!("{} reports `{failure}`: {printed}", self.name);
        }
        let number = printed.lines().find_map(|line| {
            let (_, rest) = line.split_once(self.figure)?;
            let rest = rest.trim_start_matches([':', '=', ' ', '"', ',']);
            let mut parts = rest.split(|c: char| c != '.' && !c.is_ascii_digit());
            parts.next()?.parse::<f64>().ok()
        });
        let found = number.filter(|number| *number > 0.0);
        let found = found.map(|number| match self.figure.contains("seconds") {
            true => amount.requests as f64 / number,
            false => number,
        });
        found.with_context(|| format!("{} printed no rate: {printed:?}", self.name))
    }
}

/// The words of a command line, for the server at this address.
fn words(line: &str, address: SocketAddr) -> Result<Vec<String>> {
    let mut line = line
        .replace("{host}", &address.ip().to_string())
        .replace("{port}", &address.port().to_string());
    if line.contains("{postgres}") {
        line = line.replace("{postgres}", &postgres_programs()?.display().to_string());
    }
    let words = line.split_whitespace();
    Ok(words
        .map(|word| word.replace("SELECT_1", "SELECT 1"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMOUNT: Amount = Amount {
        seconds: 2,
        requests: 40_000,
    };

    fn named(name: &str) -> Generator {
        all().find(|generator| generator.name == name).unwrap()
    }

    #[test]
    fn each_is_a_command_for_a_server_that_is_known() {
        assert_eq!(all().count(), 5);
        let counted = all().filter(|generator| generator.is_counted());
        assert_eq!(counted.count(), 2);
        for generator in all() {
            assert!(generator.server().is_ok(), "{}", generator.name);
        }
        let at = "127.0.0.1:80".parse().unwrap();
        let ab = named("ab").command(at, AMOUNT).unwrap().join(" ");
        assert_eq!(ab, "ab -q -t 2 -n 100000000 -c 8 http://127.0.0.1:80/");
        let slap = named("mariadb-slap").command(at, AMOUNT).unwrap();
        assert!(slap.contains(&"--number-of-queries=40000".to_owned()));
        assert_eq!(slap.last().unwrap(), "SELECT 1");
    }

    #[test]
    fn each_generator_s_own_figure_is_found() {
        for (generator, printed, per_s) in [
            (
                "redis-benchmark",
                "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"61349.70\",\"0.120\"\n",
                61_349.7,
            ),
            (
                "wrk",
                "Running 2s test @ http://127.0.0.1:1/\n  1 threads and 8 connections\n\
                 Requests/sec:  41234.56\nTransfer/sec:      6.21MB\n",
                41_234.56,
            ),
            (
                "ab",
                "Time taken for tests:   2.000 seconds\n\
                 Requests per second:    9876.54 [#/sec] (mean)\n",
                9_876.54,
            ),
            (
                "pgbench",
                "number of failed transactions: 0 (0.000%)\nlatency average = 0.5 ms\n\
                 tps = 15432.109876 (without initial connection time)\n",
                15_432.109876,
            ),
            (
                "mariadb-slap",
                "Benchmark\n\tAverage number of seconds to run all queries: 2.500 seconds\n",
                16_000.0,
            ),
        ] {
            let found = named(generator).figure(printed, AMOUNT).unwrap();
            assert!((found - per_s).abs() < 1e-6, "{generator}: {found}");
        }
    }

    #[test]
    fn a_run_without_a_figure_or_with_failed_requests_is_an_error() {
        for (generator, printed) in [
            ("wrk", "unable to connect\n"),
            ("wrk", "Requests/sec:      0.00\n"),
            (
                "wrk",
                "  Socket errors: connect 0, read 3, write 0, timeout 0\nRequests/sec: 10.5\n",
            ),
            (
                "mariadb-slap",
                "Average number of seconds to run all queries: 1.0 seconds\n\
                 mariadb-slap: Error when connecting to server: 1049\n",
            ),
        ] {
            assert!(
                named(generator).figure(printed, AMOUNT).is_err(),
                "{printed}"
            );
        }
    }
}
