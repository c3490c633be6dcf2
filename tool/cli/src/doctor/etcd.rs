//! `jostle doctor --etcd`: whether an etcd can keep the state of jostleds, by the metrics of its
//! members, which are read over HTTP.

use jostle_engine::preflight::{Finding, Severity};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// A member's time to accept a connection, and for each part of its answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of metrics at most.
const LONGEST: u64 = 8 << 20;
/// Versions that can lose data: <https://github.com/etcd-io/etcd/issues/13766>.
const LOSE_DATA: [&str; 3] = ["3.5.0", "3.5.1", "3.5.2"];
/// etcd's documentation asks for 99 of 100 syncs within 10 ms. This bound of a bucket is next.
const FAST: &str = "etcd_disk_wal_fsync_duration_seconds_bucket{le=\"0.008\"}";
const SYNCS: &str = "etcd_disk_wal_fsync_duration_seconds_count";

/// The findings at these members, in their order.
pub(crate) fn survey(addresses: &[String]) -> Vec<Finding> {
    let found = addresses.iter().flat_map(|address| {
        let judged = match page(address) {
            Ok(page) => judged(&page),
            Err(error) => vec![(
                format!("no metrics: {error}"),
                Severity::Blocks,
                "start it, or give the http:// address of its --listen-metrics-urls",
            )],
        };
        judged
            .into_iter()
            .map(move |(found, matters, remedy)| Finding {
                what: format!("etcd {address}"),
                found,
                matters,
                remedy: (matters > Severity::Fine).then(|| remedy.to_owned()),
                mend: None,
            })
    });
    found.collect()
}

/// The last sentence.
pub(crate) fn closing(findings: &[Finding]) -> &'static str {
    match findings.iter().map(|finding| finding.matters).max() {
        Some(Severity::Blocks) => "Not all of these members can keep jostled's state now.",
        Some(Severity::Bends) => "jostled works with this etcd, but waits for it or will fill it.",
        _ => "jostled can use this etcd.",
    }
}

/// A member's metrics.
fn page(address: &str) -> io::Result<String> {
    let place = address.trim_start_matches("http://").trim_end_matches('/');
    let mut places = place.to_socket_addrs()?;
    let first = places.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let mut stream = TcpStream::connect_timeout(&first, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // An answer in version 1.0 comes in one piece.
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {place}\r\n\r\n")?;
    let mut page = Vec::new();
    stream.take(LONGEST).read_to_end(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// What was found, how much it matters, and the remedy.
fn judged(page: &str) -> Vec<(String, Severity, &'static str)> {
    let value = |name: &str| -> Option<f64> {
        let mut values = page.lines().filter_map(|line| line.strip_prefix(name));
        values.find_map(|rest| rest.strip_prefix(' ')?.trim().parse().ok())
    };
    let version = page.split_once("etcd_server_version{server_version=\"");
    let version = version.and_then(|(_, rest)| rest.split('"').next());
    let mut found = vec![match version {
        None => (
            "its answer has no version of etcd".to_owned(),
            Severity::Blocks,
            "give the address of an etcd for clients, or that of its --listen-metrics-urls",
        ),
        Some(version) if LOSE_DATA.contains(&version) => (
            format!("version {version}, which can lose data after a crash"),
            Severity::Blocks,
            "upgrade to 3.5.3 or later: jostled refuses this one",
        ),
        Some(version) => (format!("version {version}"), Severity::Fine, ""),
    }];
    if let (Some(fast), Some(syncs)) = (value(FAST), value(SYNCS)) {
        let matters = match fast < 0.99 * syncs {
            true => Severity::Bends,
            false => Severity::Fine,
        };
        found.push((
            format!("{fast} of {syncs} syncs took at most 8 ms"),
            matters,
            "each reply waits for a majority's sync: give etcd a faster disk of its own",
        ));
    }
    let quota = value("etcd_server_quota_backend_bytes");
    if let (Some(quota), Some(size)) = (quota, value("etcd_mvcc_db_total_size_in_bytes")) {
        let matters = match size / quota {
            share if share < 0.5 => Severity::Fine,
            share if share < 1.0 => Severity::Bends,
            _ => Severity::Blocks,
        };
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        found.push((
            format!("{:.0} of {:.0} MiB are used", mib(size), mib(quota)),
            matters,
            "at the quota nothing can be locked: etcdctl compact, defrag and alarm disarm",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use Severity::{Bends, Blocks, Fine};

    #[test]
    fn an_etcd_is_judged_by_its_metrics() {
        for (version, fast, size, expected) in [
            ("3.4.23", 99, 1e6, [Fine, Fine, Fine]),
            ("3.5.1", 99, 1e6, [Blocks, Fine, Fine]),
            ("3.5.21", 98, 1.2e9, [Fine, Bends, Bends]),
            ("3.6.0", 99, 2.2e9, [Fine, Fine, Blocks]),
        ] {
            let page = format!(
                "HTTP/1.0 200 OK\r\n\r\n{FAST} {fast}\n{SYNCS} 100\n\
                 etcd_mvcc_db_total_size_in_bytes {size}\n\
                 etcd_server_quota_backend_bytes 2.147483648e+09\n\
                 etcd_server_version{{server_version=\"{version}\"}} 1\n"
            );
            let found = judged(&page);
            let matters = found.iter().map(|found| found.1);
            assert!(matters.eq(expected), "{found:?}");
        }
        // No etcd.
        assert_eq!(judged("HTTP/1.1 404 Not Found\r\n\r\n")[0].1, Blocks);
        let found = survey(&["127.0.0.1:1".to_owned()]);
        assert!(found[0].found.contains("no metrics: "), "{found:?}");
        assert!(closing(&found).starts_with("Not all"));
    }
}
