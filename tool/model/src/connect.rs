//! Words and records of `connect` alone: its options in a plan, and its figures in a
//! result.

use crate::plan::{Plan, words};
use crate::record::{Anchor, At, Buckets, Distribution, Run};
use crate::remedy::Remedy;
use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay, skip_serializing_none};
use std::collections::BTreeMap;

words! {
    /// How acceptors share the listening sockets.
    Accept {
        /// One socket for each port; every acceptor is woken.
        Shared = "shared",
        /// One socket for each port; one acceptor is woken (EPOLLEXCLUSIVE).
        EpollExclusive = "epollexclusive",
        /// Each acceptor its own sockets (SO_REUSEPORT); the kernel picks by hash.
        ReusePort = "reuseport",
    }
}

words! {
    /// How connections end.
    Close {
        /// By FIN from both sides: the client's port rests in TIME_WAIT.
        Fin = "fin",
        /// By RST (SO_LINGER with 0): no TIME_WAIT.
        Rst = "rst",
    }
}

words! {
    /// The one step that is measured.
    Only {
        /// Sockets are bound, and nobody connects.
        Bind = "bind",
    }
}

/// Ports from the first to the last, as typed: `40000-49999`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct PortRange {
    /// The first.
    pub low: u16,
    /// The last.
    pub high: u16,
}

/// The first and the last, as the kernel has them.
impl From<(u16, u16)> for PortRange {
    fn from((low, high): (u16, u16)) -> PortRange {
        PortRange { low, high }
    }
}

impl PortRange {
    /// Ports in it of each parity: even, odd.
    pub fn parities(self) -> (u64, u64) {
        let below = |port: u64| (port.div_ceil(2), port / 2);
        let (all, before) = (below(u64::from(self.high) + 1), below(u64::from(self.low)));
        (all.0 - before.0, all.1 - before.1)
    }

    /// Ports in it.
    pub fn count(self) -> u64 {
        u64::from(self.high) - u64::from(self.low) + 1
    }
}

impl std::str::FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<PortRange, String> {
        let range = text.split_once('-').and_then(|(low, high)| {
            Some(PortRange {
                low: low.trim().parse().ok()?,
                high: high.trim().parse().ok()?,
            })
        });
        range
            .filter(|range| range.low > 0 && range.low <= range.high)
            .ok_or_else(|| format!("`{text}` is not a range of ports; write 40000-49999"))
    }
}

impl std::fmt::Display for PortRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.low, self.high)
    }
}

/// The points of a resolved plan: curve after curve, each growing.
pub(crate) fn swept(plan: &Plan) -> Vec<At> {
    let of = |list: &Option<crate::List>| list.as_ref().map_or(Vec::new(), |l| l.0.clone());
    let (sources, listeners, open) = (of(&plan.sources), of(&plan.listeners), of(&plan.open));
    let mut points = Vec::new();
    for sources in &sources {
        for listeners in &listeners {
            points.extend(open.iter().map(|open| At {
                open: Some(*open),
                listeners: Some(*listeners),
                sources: Some(*sources),
                ..At::default()
            }));
        }
    }
    points
}

/// Figures about the connections that a point of `connect` adds to those of the point before in
/// the same sweep. `window_s` of the point is their time; `run` and `block` number sweeps.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connections {
    /// Open when the first one of this point was made.
    pub from: u64,
    /// Open at its end; less than asked for where a limit was reached.
    pub opened: u64,
    /// From the first connection of the sweep to the last, the pauses in which
    /// figures were read left out.
    pub total_s: f64,
    /// p50 over the p50 of the point before; absent where that point holds fewer than 1000
    /// connections.
    pub to_previous: Option<f64>,
    /// The side that connects.
    pub client: Side,
    /// The side that accepts, where it is on this machine and ours.
    pub server: Option<Side>,
    /// Connections that each acceptor took, or, up to 100,000, that were open at each process of
    /// a server that was there before; absent for one. `per_worker` has their fairness.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub accepted: Vec<u64>,
    /// Connections that found an even port, and an odd one.
    pub parities: Option<[u64; 2]>,
    /// The ports that the kernel may choose from.
    pub port_range: Option<PortRange>,
    /// Sets of ports that fill one by one: source addresses times destination ports, or source
    /// addresses alone where bind() takes the port.
    pub pairs: u64,
    /// Growth of the sockets' part of the kernel's slabs since the sweep began, for each
    /// connection with its ends on this machine
    /// ([how](method/connections.md#what-is-counted-as-memory)); absent under 1000 connections,
    /// and where it shrank.
    pub slab_bytes_each: Option<f64>,
    /// Growth of single caches since the sweep began, for each connection: those above 8 bytes, the
    /// caches of files included. The kernel merges caches of like size under one name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub slab_caches: BTreeMap<String, f64>,
    /// Fall of MemAvailable since the sweep began, for each connection; it moves with everything
    /// else on the machine.
    pub memory_bytes_each: Option<f64>,
    /// TCP sockets of this network namespace (/proc/net/sockstat): `inuse`, `orphan`, `tw`,
    /// `alloc`, and `mem` in pages.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub sockstat: BTreeMap<String, u64>,
    /// Sockets in TIME_WAIT that this sweep left, when all were closed.
    pub time_wait_left: Option<u64>,
    /// The greatest lateness of an intended start so far (`--rate`), caused by a slow
    /// previous connection or a wait for the server.
    pub lag_ns: Option<u64>,
    /// The limits that come next, the nearest first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub next_limits: Vec<NextLimit>,
    /// Connections of the whole sweep that the peer had closed or reset by the end of this
    /// point; absent with `only` and in older files.
    pub lost: Option<u64>,
    /// The number of the first of these, in the order of opening, from 1; absent where none was
    /// lost, and with several hosts.
    pub first_lost: Option<u64>,
    /// How many were opened when the sweep's first loss was seen.
    pub loss_seen_at: Option<u64>,
    /// The error that ended the sweep here: of which call, and after how many connections.
    pub stopped: Option<Stopped>,
    /// Last point of a sweep: from a decade of connections open (`1k..10k`) to medians over the
    /// whole sweep.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub decades: BTreeMap<String, Decade>,
}

/// One side of the connections, over this point.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Processes that carry it, all of the sweep.
    pub processes: u64,
    /// CPU time, exact.
    pub cpu_s: f64,
    /// Its parts, as sampled by the kernel.
    pub cpu_user_s: Option<f64>,
    /// See `cpu_user_s`.
    pub cpu_system_s: Option<f64>,
    /// jostle's own memory for each open connection: private pages, the share of shared ones,
    /// page tables; absent under 1000.
    pub own_bytes_each: Option<f64>,
}

/// A limit that would end a sweep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NextLimit {
    /// Its name.
    pub name: String,
    /// Connections at which it is reached.
    pub at: u64,
    /// The way to lift it.
    pub remedy: String,
}

/// Why a sweep ended before its time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stopped {
    /// The call that failed; `memory` where we stopped by ourselves.
    pub call: String,
    /// The system's name of the error.
    pub error: String,
    /// The limit that it means, and how to lift it.
    pub text: String,
    /// The option that lifts it, where there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remedy: Option<Remedy>,
}

/// Medians of one decade.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decade {
    /// Median time of connect(), or of bind() with `--only bind`.
    pub connect_ns_p50: Option<u64>,
    /// Median time of accept4().
    pub accept_ns_p50: Option<u64>,
    /// Median time of the first close(), by connections still open.
    pub close_ns_p50: Option<u64>,
}

/// How the connections of a point were closed. It is a record of its own, because
/// connections are closed after the whole sweep. A reader adds it to the run with the
/// same target, swept values and run.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Closing {
    /// As of the run.
    pub target: String,
    /// As of the run.
    pub at: At,
    /// As of the run.
    pub run: u32,
    /// See the run's field.
    pub close_ns: Option<Distribution>,
    /// See the run's field.
    pub server_close_ns: Option<Distribution>,
    /// See the run's `connections`.
    pub time_wait_left: Option<u64>,
    /// The machine's own pulse around the whole sweep. See the run's field.
    pub anchor: Option<Anchor>,
    /// Figures of closing alone, by decade.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub decades: BTreeMap<String, Decade>,
    /// Histograms of closing alone, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub histograms: BTreeMap<String, Buckets>,
}

impl Closing {
    /// Adds this to its run, if it is this one's.
    pub fn add_to(&self, run: &mut Run) -> bool {
        let ours = run.target == self.target && run.at == self.at && run.run == self.run;
        if ours {
            run.around.anchor = self.anchor;
            run.times.close_ns.clone_from(&self.close_ns);
            run.times.server_close_ns.clone_from(&self.server_close_ns);
            run.histograms.extend(self.histograms.clone());
            if let Some(connections) = &mut run.connections {
                connections.time_wait_left = self.time_wait_left;
                for (decade, closed) in &self.decades {
                    let all = connections.decades.entry(decade.clone()).or_default();
                    all.close_ns_p50 = closed.close_ns_p50;
                }
            }
        }
        ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_ranges_are_read_as_typed_and_their_parities_counted() {
        for (text, even, odd) in [
            ("32768-60999", 14_116, 14_116), // Linux's default
            ("40000-40000", 1, 0),
            ("40001-40001", 0, 1),
            ("1-3", 1, 2),
            ("1-65535", 32_767, 32_768),
        ] {
            let range: PortRange = text.parse().unwrap();
            assert_eq!(range.parities(), (even, odd), "{text}");
            assert_eq!(range.count(), even + odd);
            assert_eq!(range.to_string(), text);
        }
        for sad in ["", "1", "0-9", "9-1", "1-65536", "a-b"] {
            assert!(sad.parse::<PortRange>().is_err(), "{sad}");
        }
    }

    #[test]
    fn a_closing_finds_its_point_and_no_other() {
        let closing = Closing {
            target: "tcp".to_owned(),
            at: At {
                open: Some(10),
                ..At::default()
            },
            run: 2,
            close_ns: Some(Distribution::default()),
            ..Closing::default()
        };
        let point = |run, open| Run {
            target: "tcp".to_owned(),
            at: At {
                open: Some(open),
                ..At::default()
            },
            run,
            ..Run::default()
        };
        let mut points = [point(1, 10), point(2, 20), point(2, 10)];
        let taken: Vec<bool> = points.iter_mut().map(|p| closing.add_to(p)).collect();
        assert_eq!(taken, [false, false, true]);
        assert!(points[2].times.close_ns.is_some() && points[0].times.close_ns.is_none());
    }
}
