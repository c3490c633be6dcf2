//! How many requests a server has received by its own count: the round trips of clients
//! that do not count theirs.

use anyhow::{Context, bail};
use jostle_testbed::databases::{MARIADB_USER, POSTGRES_USER, postgres_programs};
use jostle_testbed::servers::{Running, Server};
use jostle_testbed::shell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

/// For an answer of a server on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// For one that starts.
const START: Duration = Duration::from_secs(60);

/// Waits until a server answers that listens already.
pub(super) fn ready(running: &Running) -> anyhow::Result<()> {
    let began = Instant::now();
    while let Err(error) = requests(running) {
        if began.elapsed() > START {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// All requests since the server was started. Asking adds a few.
pub(super) fn requests(running: &Running) -> anyhow::Result<u64> {
    let at = running.address;
    let count = match running.server {
        // A script's own commands count as commands; what was read is what was sent.
        Server::Redis => field(
            &told(at, "INFO stats\r\nQUIT\r\n")?,
            "total_reads_processed:",
        ),
        Server::Memcached => commands(&told(at, "stats\r\nquit\r\n")?),
        Server::Zookeeper => field(&told(at, "srvr")?, "Received:"),
        Server::Etcd | Server::CurrentEtcd => calls(&told(at, "GET /metrics HTTP/1.0\r\n\r\n")?),
        Server::Postgres => transactions(at)?.trim().parse().ok(),
        Server::Mariadb => field(&questions(at)?, "Questions"),
        other => bail!("{} does not count its requests", other.name()),
    };
    count.with_context(|| format!("{} does not tell its requests", running.server.name()))
}

/// A server's answer before it closes the connection.
fn told(at: SocketAddr, request: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect_timeout(&at, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream
        .read_to_string(&mut text)
        .with_context(|| format!("{request:?} to {at}"))?;
    Ok(text)
}

/// A statement outside of a transaction block is a transaction.
fn transactions(at: SocketAddr) -> anyhow::Result<String> {
    let query = "select xact_commit from pg_stat_database where datname = 'postgres'";
    let mut psql = Command::new(postgres_programs()?.join("psql"));
    psql.args(["-h", &at.ip().to_string(), "-p", &at.port().to_string()]);
    shell::output(psql.args(["-U", POSTGRES_USER, "-d", "postgres", "-Atc", query]))
}

fn questions(at: SocketAddr) -> anyhow::Result<String> {
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "-h", &at.ip().to_string()]);
    client.args(["-P", &at.port().to_string(), "-u", MARIADB_USER, "-NB"]);
    shell::output(client.args(["-e", "show global status like 'Questions'"]))
}

/// The number that follows a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.trim().parse().ok()
}

/// The counters of memcached for the commands that locks are made of.
fn commands(stats: &str) -> Option<u64> {
    // `ms` counts in cmd_set, as the other commands that store do.
    let names = ["cmd_get", "cmd_set", "delete_hits", "delete_misses"];
    let counts = names.map(|name| field(stats, &format!("STAT {name} ")));
    counts.into_iter().sum()
}

/// Messages that clients sent to etcd, over all of its calls.
fn calls(metrics: &str) -> Option<u64> {
    let counts = metrics
        .lines()
        .filter(|line| line.starts_with("grpc_server_msg_received_total{"))
        // As every figure of this format, it may be written as a float.
        .map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    // Each call stands there from the start; a page without any is none of etcd.
    let counts: Vec<f64> = counts.collect::<Option<_>>()?;
    (!counts.is_empty()).then(|| counts.iter().sum::<f64>() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_s_own_count_is_read() {
        let info = "# Stats\r\ntotal_commands_processed:9\r\ntotal_reads_processed:42\r\n";
        assert_eq!(field(info, "total_reads_processed:"), Some(42));
        let srvr = "Zookeeper version: 3.8.0\nReceived: 17\nSent: 16\n";
        assert_eq!(field(srvr, "Received:"), Some(17));
        assert_eq!(field("Questions\t123\n", "Questions"), Some(123));
        assert_eq!(field("# Stats\r\n", "total_reads_processed:"), None);
    }

    #[test]
    fn memcached_s_commands_are_added_up_and_must_all_be_there() {
        let stats = "STAT cmd_get 1\r\nSTAT cmd_set 20\r\nSTAT delete_misses 300\r\n\
                     STAT delete_hits 4000\r\nSTAT cas_hits 7\r\nEND\r\n";
        assert_eq!(commands(stats), Some(4321));
        assert_eq!(commands("STAT cmd_get 1\r\nEND\r\n"), None);
    }

    #[test]
    fn the_messages_of_all_of_etcd_s_calls_are_added_up() {
        let metrics = "# TYPE grpc_server_msg_received_total counter\n\
            grpc_server_msg_received_total{grpc_method=\"Txn\",grpc_type=\"unary\"} 40\n\
            grpc_server_msg_received_total{grpc_method=\"DeleteRange\"} 1.5e+06\n\
            grpc_server_msg_sent_total{grpc_method=\"Txn\"} 7\n";
        assert_eq!(calls(metrics), Some(1_500_040));
        assert_eq!(calls("HTTP/1.0 404 Not Found\n"), None);
    }
}
