//! Counters for each procedure and for the server, as JSON at `/stats` and as
//! Prometheus metrics at `/metrics`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};

/// Upper bounds of the histogram's buckets, in microseconds: powers of four from
/// one microsecond to four seconds, and one without a bound.
const BUCKETS: usize = 13;

/// Counters of one procedure. They stay when its file changes or goes.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ProcedureStats {
    /// Calls that were begun, and those that were refused because it was busy.
    pub requests: AtomicU64,
    exits: Exits,
    /// Calls without an exit code.
    pub errors: Errors,
    time_ns: AtomicU64,
    longest_ns: AtomicU64,
    #[serde(skip)]
    buckets: [AtomicU64; BUCKETS],
}

/// Calls by exit code.
#[derive(Debug)]
struct Exits(Box<[AtomicU64; 256]>);

impl Default for Exits {
    fn default() -> Self {
        Self(Box::new([const { AtomicU64::new(0) }; 256]))
    }
}

impl Exits {
    fn known(&self) -> impl Iterator<Item = (u8, u64)> {
        let counts = self.0.iter().map(|count| count.load(Relaxed));
        (0..=255).zip(counts).filter(|(_, count)| *count > 0)
    }
}

impl Serialize for Exits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.known())
    }
}

/// Calls without an exit code, by the reason.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Errors {
    /// Ended with an error.
    pub failed: AtomicU64,
    /// Cut off at the time limit.
    pub late: AtomicU64,
    /// Needed more memory than allowed.
    pub memory: AtomicU64,
    /// Refused because too many waited.
    pub busy: AtomicU64,
}

impl ProcedureStats {
    /// A call that ran to its end.
    pub(crate) fn exited(&self, code: u8) {
        self.exits.0[usize::from(code)].fetch_add(1, Relaxed);
    }

    /// How long a call took, however it ended.
    pub(crate) fn took(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.time_ns.fetch_add(ns, Relaxed);
        self.longest_ns.fetch_max(ns, Relaxed);
        self.buckets[bucket(ns)].fetch_add(1, Relaxed);
    }
}

/// The first bucket whose bound is not below.
fn bucket(ns: u64) -> usize {
    let fits = |index: &usize| ns <= bound_us(*index) * 1000;
    (0..BUCKETS - 1).find(fits).unwrap_or(BUCKETS - 1)
}

fn bound_us(index: usize) -> u64 {
    1 << (2 * index)
}

/// Counters of the server.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ServerStats {
    #[serde(skip)]
    started: Started,
    /// Connections that were let in.
    pub connections: AtomicU64,
    /// Connections that are open.
    pub connections_open: AtomicU64,
    /// Connections that were turned away because there were too many.
    pub connections_turned_away: AtomicU64,
    /// Connections that were closed because they were too slow.
    pub connections_too_slow: AtomicU64,
    /// Connections that were closed because nothing came.
    pub connections_idle: AtomicU64,
    /// Requests for procedures that exist.
    pub calls: AtomicU64,
    /// Requests for `/stats` and `/metrics`.
    pub watching: AtomicU64,
    /// Requests that were not understood.
    pub malformed: AtomicU64,
    /// Requests for what does not exist.
    pub unknown: AtomicU64,
    /// Requests without the token.
    pub unauthorized: AtomicU64,
}

#[derive(Debug)]
struct Started(Instant);

impl Default for Started {
    fn default() -> Self {
        Self(Instant::now())
    }
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// A procedure's figures at one moment.
#[derive(Serialize)]
pub(crate) struct Known<'a> {
    /// Its name.
    #[serde(skip)]
    pub name: &'a str,
    /// It can be called.
    pub loaded: bool,
    /// How often its file was compiled with success.
    pub loads: u64,
    /// Why its file as it is now cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_error: Option<&'a str>,
    /// Calls that run and that wait.
    pub running: usize,
    /// Calls that wait for their turn.
    pub waiting: usize,
    /// Its counters.
    #[serde(flatten)]
    pub stats: &'a ProcedureStats,
}

#[derive(Serialize)]
struct Page<'a> {
    version: &'static str,
    process_id: u32,
    uptime_s: f64,
    cpu_user_ns: u64,
    cpu_system_ns: u64,
    #[serde(flatten)]
    server: &'a ServerStats,
    procedures: BTreeMap<&'a str, &'a Known<'a>>,
}

/// The page `/stats`.
#[must_use]
pub(crate) fn json(server: &ServerStats, procedures: &[Known<'_>]) -> String {
    let usage = jostle_sys::process::own_usage();
    let named = procedures.iter().map(|known| (known.name, known));
    let page = Page {
        version: env!("CARGO_PKG_VERSION"),
        process_id: std::process::id(),
        uptime_s: server.started.0.elapsed().as_secs_f64(),
        cpu_user_ns: usage.user_ns,
        cpu_system_ns: usage.system_ns,
        server,
        procedures: named.collect(),
    };
    let mut text = serde_json::to_string_pretty(&page).unwrap_or_default();
    text.push('\n');
    text
}

/// A counter or gauge of the server: its name, its kind, what it is, its value.
type Row = (&'static str, &'static str, &'static str, f64);

/// A counter or gauge of each procedure: its values, each with the labels that it has beside the
/// procedure's name.
type Family = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Known<'_>) -> Vec<(String, f64)>,
);

const FAMILIES: [Family; 7] = [
    ("requests_total", "counter", "Calls", |known| {
        alone(get(&known.stats.requests))
    }),
    ("exits_total", "counter", "Calls by exit code", |known| {
        let codes = known.stats.exits.known();
        let labelled = codes.map(|(code, n)| (format!(",code=\"{code}\""), n as f64));
        labelled.collect()
    }),
    ("errors_total", "counter", "Calls without one", |known| {
        let errors = &known.stats.errors;
        let kinds = [
            ("failed", &errors.failed),
            ("late", &errors.late),
            ("memory", &errors.memory),
            ("busy", &errors.busy),
        ];
        kinds
            .map(|(kind, counter)| (format!(",kind=\"{kind}\""), get(counter)))
            .to_vec()
    }),
    ("running", "gauge", "Calls that run", |known| {
        alone(known.running as f64)
    }),
    ("waiting", "gauge", "Calls that wait", |known| {
        alone(known.waiting as f64)
    }),
    ("loaded", "gauge", "Whether it can be called", |known| {
        alone(f64::from(u8::from(known.loaded)))
    }),
    ("load_error", "gauge", "Its file is faulty", |known| {
        alone(f64::from(u8::from(known.load_error.is_some())))
    }),
];

fn get(counter: &AtomicU64) -> f64 {
    counter.load(Relaxed) as f64
}

/// A value without further labels.
fn alone(value: f64) -> Vec<(String, f64)> {
    vec![(String::new(), value)]
}

/// The page `/metrics`, in Prometheus's text format.
#[must_use]
pub(crate) fn metrics(server: &ServerStats, procedures: &[Known<'_>]) -> String {
    let mut text = String::new();
    for (name, kind, help, value) in rows(server) {
        let _ = writeln!(
            text,
            "# HELP procd_{name} {help}\n# TYPE procd_{name} {kind}\nprocd_{name} {value}"
        );
    }
    for (name, kind, help, values) in FAMILIES {
        let name = format!("procd_procedure_{name}");
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for known in procedures {
            for (labels, value) in values(known) {
                // Names are letters, digits and `_-.` alone: nothing to escape.
                let _ = writeln!(
                    text,
                    "{name}{{procedure=\"{}\"{labels}}} {value}",
                    known.name
                );
            }
        }
    }
    histogram(&mut text, procedures);
    text
}

fn rows(server: &ServerStats) -> [Row; 12] {
    let usage = jostle_sys::process::own_usage();
    let cpu_s = (usage.user_ns + usage.system_ns) as f64 * 1e-9;
    let uptime_s = server.started.0.elapsed().as_secs_f64();
    let counter = |name, help, counter| (name, "counter", help, get(counter));
    [
        ("uptime_seconds", "gauge", "Since its start", uptime_s),
        (
            "cpu_seconds_total",
            "counter",
            "User and system time",
            cpu_s,
        ),
        counter("connections_total", "Let in", &server.connections),
        (
            "connections_open",
            "gauge",
            "Now",
            get(&server.connections_open),
        ),
        counter(
            "connections_turned_away_total",
            "Too many",
            &server.connections_turned_away,
        ),
        counter(
            "connections_too_slow_total",
            "Closed",
            &server.connections_too_slow,
        ),
        counter("connections_idle_total", "Closed", &server.connections_idle),
        counter("calls_total", "Requests for procedures", &server.calls),
        counter(
            "watching_total",
            "Requests for statistics",
            &server.watching,
        ),
        counter(
            "malformed_total",
            "Requests not understood",
            &server.malformed,
        ),
        counter(
            "unknown_total",
            "Requests for nothing known",
            &server.unknown,
        ),
        counter(
            "unauthorized_total",
            "Requests without token",
            &server.unauthorized,
        ),
    ]
}

fn histogram(text: &mut String, procedures: &[Known<'_>]) {
    let name = "procd_procedure_seconds";
    let _ = writeln!(
        text,
        "# HELP {name} Time of a call\n# TYPE {name} histogram"
    );
    for known in procedures {
        let (stats, label) = (known.stats, format!("procedure=\"{}\"", known.name));
        let mut sum = 0;
        for (index, bucket) in stats.buckets.iter().enumerate() {
            sum += bucket.load(Relaxed);
            let bound = if index + 1 == BUCKETS {
                "+Inf".to_owned()
            } else {
                (bound_us(index) as f64 * 1e-6).to_string()
            };
            let _ = writeln!(text, "{name}_bucket{{{label},le=\"{bound}\"}} {sum}");
        }
        let seconds = stats.time_ns.load(Relaxed) as f64 * 1e-9;
        let _ = writeln!(
            text,
            "{name}_sum{{{label}}} {seconds}\n{name}_count{{{label}}} {sum}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_into_the_first_bucket_that_holds_it() {
        for (ns, index) in [
            (0, 0),
            (1000, 0),
            (1001, 1),
            (4000, 1),
            (16_000, 2),
            (4_194_304_000, 11),
            (4_194_304_001, 12),
            (u64::MAX, 12),
        ] {
            assert_eq!(bucket(ns), index, "{ns}");
        }
    }

    #[test]
    fn both_pages_tell_the_same() {
        let stats = ProcedureStats::default();
        for code in [0, 0, 7] {
            count(&stats.requests);
            stats.exited(code);
            stats.took(Duration::from_micros(3));
        }
        count(&stats.errors.late);
        let known = Known {
            name: "check",
            stats: &stats,
            loaded: true,
            loads: 2,
            load_error: Some("check.lua:1: oh"),
            running: 1,
            waiting: 5,
        };
        let known = [known];
        let server = ServerStats::default();
        let page: serde_json::Value = serde_json::from_str(&json(&server, &known)).unwrap();
        let check = &page["procedures"]["check"];
        assert_eq!(check["requests"], 3);
        assert_eq!(check["exits"], serde_json::json!({"0": 2, "7": 1}));
        assert_eq!(check["errors"]["late"], 1);
        assert_eq!(check["time_ns"], 9000);
        assert_eq!(check["longest_ns"], 3000);
        assert_eq!(check["load_error"], "check.lua:1: oh");
        let text = metrics(&server, &known);
        for line in [
            "procd_procedure_requests_total{procedure=\"check\"} 3",
            "procd_procedure_exits_total{procedure=\"check\",code=\"0\"} 2",
            "procd_procedure_exits_total{procedure=\"check\",code=\"7\"} 1",
            "procd_procedure_errors_total{procedure=\"check\",kind=\"late\"} 1",
            "procd_procedure_waiting{procedure=\"check\"} 5",
            "procd_procedure_load_error{procedure=\"check\"} 1",
            "procd_procedure_seconds_bucket{procedure=\"check\",le=\"0.000001\"} 0",
            "procd_procedure_seconds_bucket{procedure=\"check\",le=\"0.000004\"} 3",
            "procd_procedure_seconds_bucket{procedure=\"check\",le=\"+Inf\"} 3",
            "procd_procedure_seconds_count{procedure=\"check\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
