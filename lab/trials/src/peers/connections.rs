//! `jostle connect` beside a C program that opens the same connections by the same
//! system calls from as many processes, and measures nothing but the whole.

use super::figures::Requirement::{AtMost, RatioAtMost, Shown};
use super::{Metric, Trial};
use anyhow::{Context, ensure};
use rustix::process::{Resource, getrlimit};
use serde::Deserialize;

/// Descriptors that a process of jostle's keeps for other things, about; one
/// process more or less in a hundred is of no consequence.
const RESERVE: u64 = 20;

/// What `connect` of the C programs prints.
#[derive(Deserialize)]
struct Bare {
    connect_s: f64,
}

/// From a few processes to over a hundred.
pub(super) fn all() -> Vec<Trial> {
    vec![
        connections("connect 10000", [10_000, 1, 1], 1.1),
        connections("connect 1000000", [1_000_000, 64, 8], 1.3),
    ]
}

/// That each process may have.
fn descriptors() -> anyhow::Result<u64> {
    let limit = getrlimit(Resource::Nofile).maximum;
    limit.context("no limit on descriptors, by which work could be divided")
}

fn connections(name: &str, [open, sources, ports]: [u64; 3], most: f64) -> Trial {
    let metric = |what: String, requirement| Metric { what, requirement };
    // With fewer connections, most of it is what a process takes by itself.
    let own = if open >= 1_000_000 {
        AtMost(200.0)
    } else {
        Shown
    };
    let arguments = [open, sources, ports].map(|n| n.to_string());
    let ours = arguments.clone();
    Trial {
        name: name.to_owned(),
        metrics: vec![
            metric(
                format!("{open} connections: opened in, s"),
                RatioAtMost(most),
            ),
            metric("  bytes of jostle's own each, client".to_owned(), own),
            metric("  the same, server".to_owned(), own),
        ],
        jostle: Box::new(move |bench| {
            let [open, sources, ports] = ours.each_ref().map(String::as_str);
            let mut command = bench.measure(
                "connect",
                &[
                    "tcp",
                    "--open",
                    open,
                    "--sources",
                    sources,
                    "--ports",
                    ports,
                ],
            );
            let point = super::read_answer(&mut command)?.point;
            let connections = point.connections.context("no connections")?;
            ensure!(connections.stopped.is_none(), "{:?}", connections.stopped);
            let server = connections.server.context("no server")?;
            let own = [connections.client.own_bytes_each, server.own_bytes_each];
            let [client, server] = own.map(|each| each.context("no memory"));
            Ok(vec![connections.total_s, client?, server?])
        }),
        peer: Some(Box::new(move |bench| {
            let each = descriptors()?.saturating_sub(RESERVE).to_string();
            let [open, sources, ports] = arguments.each_ref().map(String::as_str);
            let text = bench.peer("connect", &[open, sources, ports, &each])?;
            let bare: Bare =
                serde_json::from_str(&text).with_context(|| format!("peer printed {text}"))?;
            Ok(vec![bare.connect_s])
        })),
    }
}
