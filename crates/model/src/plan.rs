//! The plan of an experiment: what a command line, a plan file and the
//! `experiment` record of a result all say in the same words.
//!
//! One flat set of fields serves every workload; a field that a workload does
//! not use stays absent. A plan as typed leaves out what it does not care
//! about; a *resolved* plan has every default and the seed filled in, and can
//! be run again as it is. Field names are the long command-line options.

use crate::connect::{Accept, Close, Only, PortRange};
use crate::list::List;
use crate::server_at::ServerAt;
use crate::text::redacted;
use crate::time::{Busy, Nanos};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A word that stands on the command line and in files, one of a few.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// Every word, in the order of the help text.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word as typed and stored.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<$name, String> {
                match text {
                    $($word => Ok($name::$variant),)+
                    _ => Err(format!("`{text}` is none of: {}", [$($word),+].join(", "))),
                }
            }
        }
    };
}

words! {
    /// The pattern of operations.
    Workload {
        /// Workers contend for a lock: acquire, hold, release, idle.
        Contend = "contend",
        /// Each worker does so many operations back to back.
        Stream = "stream",
        /// Each worker acquires so many locks, holding all, then releases them.
        Hold = "hold",
        /// Opens so many connections and keeps them open.
        Connect = "connect",
        /// Sends requests at so many a second, whatever becomes of those before.
        Rate = "rate",
        /// Keeps so many requests in flight, spread over several generators.
        Spread = "spread",
    }
}

impl Workload {
    /// Whether a run has a window of time; else it ends with its operations.
    pub const fn has_window(self) -> bool {
        match self {
            Workload::Contend | Workload::Rate | Workload::Spread => true,
            Workload::Stream | Workload::Hold | Workload::Connect => false,
        }
    }
}

words! {
    /// What carries a worker.
    Carrier {
        /// A process for each worker.
        Processes = "processes",
        /// A thread for each worker, all in one process.
        Threads = "threads",
        /// A connection for each worker, many of them on each of a few threads;
        /// for targets that are servers.
        Tasks = "tasks",
    }
}

words! {
    /// When requests are due that come at a rate.
    Arrivals {
        /// At equal distances.
        Constant = "constant",
        /// At random and independently of each other, as those of many clients do.
        Poisson = "poisson",
    }
}

words! {
    /// How much of each cycle is recorded.
    Measure {
        /// Stamps, histograms and the witness of exclusion.
        Full = "full",
        /// Counts only: for locks that are quicker than a stamp.
        Counts = "counts",
    }
}

words! {
    /// Which lock each worker of a stream takes.
    Names {
        /// One for all: they contend.
        One = "one",
        /// Each worker its own: none contend.
        Own = "own",
    }
}

words! {
    /// What connections requests have.
    Connection {
        /// Each request one of its own, opened for it and closed behind it.
        Each = "each",
        /// Each worker one, opened before its first request.
        Keep = "keep",
    }
}

words! {
    /// Which byte range of the file each worker locks (record locks only).
    Range {
        /// Every worker the same range: they all contend.
        Same = "same",
        /// Each worker shares one half of its range with each neighbour.
        Overlap = "overlap",
        /// Each worker a range of its own: none contend.
        Disjoint = "disjoint",
    }
}

pub(crate) use words;

/// Which CPUs the workers may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Wherever the scheduler puts them.
    None,
    /// All on one CPU.
    Same,
    /// Round robin over all CPUs, one each.
    Cross,
    /// Round robin over these CPUs, one each.
    Cpus(Vec<usize>),
}

impl std::str::FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        match text {
            "none" => Ok(Place::None),
            "same" => Ok(Place::Same),
            "cross" => Ok(Place::Cross),
            _ => match text.strip_prefix("cpus:").map(cpu_list) {
                Some(Some(cpus)) => Ok(Place::Cpus(cpus)),
                _ => Err(format!(
                    "`{text}` is none of: none, same, cross, cpus:0-3 (or cpus:0,2)"
                )),
            },
        }
    }
}

/// Reads the kernel's CPU list format: `0-3,8`. None if it is empty or wrong.
pub fn cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || last > 65_535 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::None => f.write_str("none"),
            Place::Same => f.write_str("same"),
            Place::Cross => f.write_str("cross"),
            Place::Cpus(cpus) => {
                let list: Vec<String> = cpus.iter().map(usize::to_string).collect();
                write!(f, "cpus:{}", list.join(","))
            }
        }
    }
}

impl Serialize for Place {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Place, D::Error> {
        String::deserialize(d)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// One experiment: one verb, its targets and its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// The verb.
    pub workload: Workload,
    /// The targets as typed, such as `flock:/mnt/x` or `delay:5ms`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Targets that are measured too where they can be reached. A resolved plan
    /// has none: those that can be stand among its targets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub optional: Vec<String>,
    /// Swept: how many workers contend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<List>,
    /// What the owner does while it holds the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Busy>,
    /// What a worker does between a release and its next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Busy>,
    /// The window of each run. Absent: a pilot decides for each point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Nanos>,
    /// Runs of each point. Absent: six blocks, with looks at 9, 12 and 15.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<u32>,
    /// Time between the last arrival and the window. Absent: the pilot decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Nanos>,
    /// What all runs together may take, where the pilot decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Nanos>,
    /// What carries a worker.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    pub carrier: Option<Carrier>,
    /// Threads that carry tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_threads: Option<u64>,
    /// Which CPUs the workers use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// How much is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure: Option<Measure>,
    /// How many locks. Contention picks one at random for each operation; what
    /// is swept by `hold` is how many each worker holds.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "one_or_many"
    )]
    pub keys: Option<List>,
    /// Swept: how many operations each worker of a stream does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<List>,
    /// Whether the workers of a stream share one lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Names>,
    /// Pairs (or, held, locks) that are sent before the replies are read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<u64>,
    /// Share of the acquisitions that are shared, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<f64>,
    /// Byte ranges for record locks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// Try, and idle after a refusal, instead of waiting.
    #[serde(default, rename = "try", skip_serializing_if = "Option::is_none")]
    pub try_only: Option<bool>,
    /// Give up an attempt after this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acquire_timeout: Option<Nanos>,
    /// Open and close the file around every acquisition, as lockscale did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_each: Option<bool>,
    /// Semaphores to which the names of several keys are hashed (`sysv`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u64>,
    /// The kernel's timer slack of each worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer_slack: Option<Nanos>,
    /// Print the share of operations that took longer than each of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Vec<Nanos>>,
    /// Swept within a run: connections that are open at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<List>,
    /// Swept: how many other sockets listen meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listeners: Option<List>,
    /// Swept: source addresses that connections come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<List>,
    /// Destination ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<u64>,
    /// How acceptors share the listening sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept: Option<Accept>,
    /// Processes that accept at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptors: Option<u64>,
    /// Whether a source address is bound without its port, which connect() then
    /// chooses. Absent: no address is bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind_no_port: Option<bool>,
    /// The ports that the kernel may choose for these sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_range: Option<PortRange>,
    /// How connections end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub close: Option<Close>,
    /// Connections or requests a second that are offered; absent: one after the
    /// other. Swept, of requests.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "one_or_many"
    )]
    pub rate: Option<List>,
    /// Send buffer of each socket in bytes, as asked of the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sndbuf: Option<u64>,
    /// Receive buffer of each socket in bytes, as asked of the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rcvbuf: Option<u64>,
    /// The one step that is measured, instead of whole connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Only>,
    /// A profiler or tracer that runs along with each run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during: Option<String>,
    /// Codes that count as a success. Absent: those of the target (exit code 0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<List>,
    /// How long one request may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_timeout: Option<Nanos>,
    /// The file that the output of started commands goes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_output: Option<String>,
    /// The target that does nothing, whose cost is subtracted; `none`: no such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub null: Option<String>,
    /// `{n}` runs over so many numbers, again and again. Absent: over all requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numbers: Option<u64>,
    /// How requests that come at a rate follow each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
    /// A request that finds all workers busy for longer is not sent at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop_after: Option<Nanos>,
    /// Requests that are kept in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
    /// Swept: over how many generators they are spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generators: Option<List>,
    /// CPUs' worth of time that each generator may use. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_cpu: Option<f64>,
    /// What connections requests have. Absent: as the target does by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<Connection>,
    /// The file with name and password, which no record holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
    /// The log in which the server's own counts are read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_log: Option<String>,
    /// The server's processes, where they cannot be found behind our connections.
    #[serde(
        default,
        alias = "server-cgroup",
        skip_serializing_if = "Option::is_none"
    )]
    pub server: Option<ServerAt>,
    /// The seed of every random choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// One number stands by itself, as it did before `hold` swept it.
fn one_or_many<S: serde::Serializer>(list: &Option<List>, s: S) -> Result<S::Ok, S::Error> {
    match list.as_ref().map(|list| list.0.as_slice()) {
        Some([one]) => s.serialize_u64(*one),
        _ => list.serialize(s),
    }
}

impl Plan {
    /// A plan that says only what to do; everything else takes its default.
    pub fn of(workload: Workload) -> Plan {
        Plan {
            workload,
            targets: Vec::new(),
            optional: Vec::new(),
            workers: None,
            hold: None,
            idle: None,
            duration: None,
            runs: None,
            warmup: None,
            budget: None,
            carrier: None,
            generator_threads: None,
            place: None,
            measure: None,
            keys: None,
            operations: None,
            names: None,
            pipeline: None,
            shared: None,
            range: None,
            try_only: None,
            acquire_timeout: None,
            open_each: None,
            slots: None,
            timer_slack: None,
            over: None,
            open: None,
            listeners: None,
            sources: None,
            ports: None,
            accept: None,
            acceptors: None,
            bind_no_port: None,
            port_range: None,
            close: None,
            rate: None,
            sndbuf: None,
            rcvbuf: None,
            only: None,
            during: None,
            expect: None,
            call_timeout: None,
            command_output: None,
            null: None,
            numbers: None,
            arrivals: None,
            drop_after: None,
            in_flight: None,
            generators: None,
            generator_cpu: None,
            connection: None,
            credentials: None,
            server_log: None,
            server: None,
            seed: None,
        }
    }

    /// The plan as it may be written and printed: without the passwords of URLs.
    pub fn redacted(mut self) -> Plan {
        let lists = [&mut self.targets, &mut self.optional];
        let fields = [&mut self.null, &mut self.during];
        let texts = lists.into_iter().flatten();
        for text in texts.chain(fields.into_iter().flatten()) {
            if let Cow::Owned(without) = redacted(text) {
                *text = without;
            }
        }
        self
    }

    /// How many locks there are, where that is not swept.
    pub fn key_count(&self) -> u64 {
        let first = self.keys.as_ref().and_then(|list| list.0.first());
        first.copied().unwrap_or(1)
    }
}
