//! pgbench with the two statements that the target `postgres` sends, prepared as there.

use super::reference::Span;
use anyhow::{Context, Result, bail};
use jostle_sys::spawn::Program;
use jostle_testbed::databases::{POSTGRES_USER, postgres_programs};
use std::fs::File;
use std::io::{Read, Seek};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

const STATEMENTS: &str = "select pg_advisory_lock(:key);\nselect pg_advisory_unlock(:key);\n";

/// So many clients, each in a thread of its own, for whole seconds; CPU time is that of
/// the whole program, connecting included.
pub(super) fn span(at: SocketAddr, cpu: usize, clients: usize, length: Duration) -> Result<Span> {
    let place = tempfile::tempdir()?;
    let script = place.path().join("pair.sql");
    std::fs::write(&script, STATEMENTS)?;
    let seconds = length.as_secs().max(1);
    // By its own path: the one in PATH is a wrapper in Perl.
    let program = postgres_programs()?.join("pgbench");
    let line = format!(
        "taskset -c {cpu} {} -n -M prepared -D key=1 -c {clients} -j {clients} -T {seconds} \
         -h {} -p {} -U {POSTGRES_USER} -f {} postgres",
        program.display(),
        at.ip(),
        at.port(),
        script.display()
    );
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let (nowhere, mut output) = (File::open("/dev/null")?, tempfile::tempfile()?);
    let child = Program::new(&words, nowhere.as_fd(), output.as_fd())?.start(0, 0)?;
    let ended = child.reap()?;
    output.rewind()?;
    let mut text = String::new();
    output.read_to_string(&mut text)?;
    if ended.code != Some(0) {
        bail!("`{line}` failed: {text}");
    }
    let (pairs, rate) = figures(&text).with_context(|| format!("pgbench printed {text}"))?;
    let cpu_ns = ended.usage.user_ns + ended.usage.system_ns;
    Ok(Span {
        pairs,
        cpu_s: cpu_ns as f64 / 1e9,
        seconds: pairs as f64 / rate,
    })
}

/// Transactions, and their rate without the time to connect.
fn figures(text: &str) -> Option<(u64, f64)> {
    let after = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().next()
    };
    let pairs = after("number of transactions actually processed:")?;
    let pairs = pairs.split('/').next()?.parse().ok()?;
    let rate = after("tps =")?.parse().ok().filter(|rate| *rate > 0.0)?;
    Some((pairs, rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_and_their_rate_are_read() {
        let text = "transaction type: pair.sql\nduration: 2 s\n\
                    number of transactions actually processed: 15230\n\
                    number of failed transactions: 0 (0.000%)\n\
                    latency average = 0.131 ms\ninitial connection time = 2.127 ms\n\
                    tps = 7623.1 (without initial connection time)\n";
        assert_eq!(figures(text), Some((15_230, 7623.1)));
        assert_eq!(figures("tps = 7623.1 (without)\n"), None);
        let none = text.replace("7623.1", "0.0");
        assert_eq!(figures(&none), None);
    }
}
