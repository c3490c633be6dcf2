//! The load generators, each with its real server: their command lines, and where each
//! prints its own rate. jostle parses nothing of this; the validation holds it against
//! jostle.

use anyhow::{Context, bail};
use jostle_testbed::databases::{MARIADB_USER, POSTGRES_USER, postgres_programs};
use jostle_testbed::servers::Server;
use jostle_testbed::shell;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Connections of each generator: one of one thread has room beside its server.
const CONNECTIONS: u32 = 8;

/// For a database to take its tables, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generator {
    RedisBenchmark,
    Wrk,
    Ab,
    Pgbench,
    MariadbSlap,
}

/// How long a run is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    /// For generators that take a time.
    pub seconds: u64,
    /// For those that take a number of requests.
    pub requests: u64,
}

impl Generator {
    pub(super) const ALL: [Generator; 5] = [
        Generator::RedisBenchmark,
        Generator::Wrk,
        Generator::Ab,
        Generator::Pgbench,
        Generator::MariadbSlap,
    ];

    pub(super) fn name(self) -> &'static str {
        self.about().0
    }

    /// The Debian package that it comes from.
    pub(super) fn package(self) -> &'static str {
        self.about().1
    }

    pub(super) fn server(self) -> Server {
        self.about().2
    }

    fn about(self) -> (&'static str, &'static str, Server) {
        match self {
            Generator::RedisBenchmark => ("redis-benchmark", "redis-tools", Server::Redis),
            Generator::Wrk => ("wrk", "wrk", Server::Nginx),
            Generator::Ab => ("ab", "apache2-utils", Server::Nginx),
            // A part of the server's own package.
            Generator::Pgbench => ("pgbench", "postgresql", Server::Postgres),
            Generator::MariadbSlap => ("mariadb-slap", "mariadb-client", Server::Mariadb),
        }
    }

    /// Whether it ends after a number of requests, not after a time.
    pub(super) fn is_counted(self) -> bool {
        matches!(self, Generator::RedisBenchmark | Generator::MariadbSlap)
    }

    /// What its server needs once it answers.
    pub(super) fn prepare(self, address: SocketAddr) -> anyhow::Result<()> {
        if self != Generator::Pgbench {
            return Ok(());
        }
        let fill = || {
            let program = postgres_programs()?.join("pgbench");
            let mut fill = Command::new(program);
            fill.args(["-i", "-q", "-h", &address.ip().to_string()])
                .args(["-p", &address.port().to_string(), "-U", POSTGRES_USER])
                .arg("postgres");
            fill.stdout(Stdio::null()).stderr(Stdio::null());
            shell::run(&mut fill)
        };
        // It listens before it takes anybody.
        let began = Instant::now();
        loop {
            match fill() {
                Ok(()) => return Ok(()),
                Err(error) if began.elapsed() > PATIENCE => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Its program and arguments.
    pub(super) fn command(
        self,
        address: SocketAddr,
        amount: Amount,
    ) -> anyhow::Result<Vec<String>> {
        let (host, port) = (address.ip(), address.port());
        let Amount { seconds, requests } = amount;
        let line = match self {
            Generator::RedisBenchmark => format!(
                "redis-benchmark -h {host} -p {port} -c {CONNECTIONS} -n {requests} -t get --csv"
            ),
            Generator::Wrk => format!("wrk -t1 -c{CONNECTIONS} -d{seconds}s http://{address}/"),
            Generator::Ab => {
                // Its own limit of requests comes with the time, unless it stands behind it.
                format!("ab -q -t {seconds} -n 100000000 -c {CONNECTIONS} http://{address}/")
            }
            Generator::Pgbench => format!(
                "{} -n -S -h {host} -p {port} -U {POSTGRES_USER} -c {CONNECTIONS} -T {seconds} \
                 postgres",
                postgres_programs()?.join("pgbench").display()
            ),
            Generator::MariadbSlap => format!(
                "mariadb-slap --no-defaults -h {host} -P {port} -u {MARIADB_USER} \
                 -c {CONNECTIONS} --number-of-queries={requests} --create-schema=information_schema -q SELECT_1"
            ),
        };
        let words = line.split_whitespace();
        Ok(words
            .map(|word| word.replace("SELECT_1", "SELECT 1"))
            .collect())
    }

    /// Requests a second, as it prints them; `amount` is what it was given.
    ///
    /// # Errors
    /// Where it printed none, or that some of its requests failed.
    pub(super) fn figure(self, printed: &str, amount: Amount) -> anyhow::Result<f64> {
        let behind = |label: &str| {
            let rest = printed.lines().find_map(|line| {
                let (_, rest) = line.split_once(label)?;
                Some(rest.trim_start_matches([':', '=', ' ', '"', ',']))
            });
            let number = rest?
                .split(|c: char| c != '.' && !c.is_ascii_digit())
                .next();
            number?.parse::<f64>().ok().filter(|number| *number > 0.0)
        };
        let found = match self {
            Generator::RedisBenchmark => behind("\"GET\""),
            Generator::Wrk => behind("Requests/sec"),
            Generator::Ab => behind("Requests per second"),
            Generator::Pgbench => behind("tps"),
            Generator::MariadbSlap => behind("Average number of seconds to run all queries")
                .map(|seconds| amount.requests as f64 / seconds),
        };
        const FAILURES: [&str; 4] = [
            "Error when connecting",
            "Non-2xx",
            "Socket errors",
            "aborted in command",
        ];
        if let Some(failure) = FAILURES.iter().find(|text| printed.contains(**text)) {
            bail!("{} reports `{failure}`: {printed}", self.name());
        }
        found.with_context(|| format!("{} printed no rate: {printed:?}", self.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMOUNT: Amount = Amount {
        seconds: 2,
        requests: 40_000,
    };

    #[test]
    fn each_generator_s_own_figure_is_found() {
        for (generator, printed, per_s) in [
            (
                Generator::RedisBenchmark,
                "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"61349.70\",\"0.120\"\n",
                61_349.7,
            ),
            (
                Generator::Wrk,
                "Running 2s test @ http://127.0.0.1:1/\n  1 threads and 8 connections\n\
                 Requests/sec:  41234.56\nTransfer/sec:      6.21MB\n",
                41_234.56,
            ),
            (
                Generator::Ab,
                "Time taken for tests:   2.000 seconds\n\
                 Requests per second:    9876.54 [#/sec] (mean)\n",
                9_876.54,
            ),
            (
                Generator::Pgbench,
                "number of failed transactions: 0 (0.000%)\nlatency average = 0.5 ms\n\
                 tps = 15432.109876 (without initial connection time)\n",
                15_432.109876,
            ),
            (
                Generator::MariadbSlap,
                "Benchmark\n\tAverage number of seconds to run all queries: 2.500 seconds\n",
                16_000.0,
            ),
        ] {
            let found = generator.figure(printed, AMOUNT).unwrap();
            assert!(
                (found - per_s).abs() < 1e-6,
                "{}: {found}",
                generator.name()
            );
        }
    }

    #[test]
    fn a_run_without_a_figure_or_with_failed_requests_is_an_error() {
        for (generator, printed) in [
            (Generator::Wrk, "unable to connect\n"),
            (Generator::Wrk, "Requests/sec:      0.00\n"),
            (
                Generator::Wrk,
                "  Socket errors: connect 0, read 3, write 0, timeout 0\nRequests/sec: 10.5\n",
            ),
            (
                Generator::MariadbSlap,
                "Average number of seconds to run all queries: 1.0 seconds\n\
                 mariadb-slap: Error when connecting to server: 1049\n",
            ),
        ] {
            assert!(generator.figure(printed, AMOUNT).is_err(), "{printed}");
        }
    }
}
