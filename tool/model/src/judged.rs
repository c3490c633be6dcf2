//! The record of `jostle judge` about a foreign load generator: time series of the
//! generator, its server, their sockets and the machine, and the finding.
//!
//! Each column has one value for each interval of the series: times, bytes and counts are
//! sums over the interval, queues and numbers of connections are those at its end.

use crate::record::{Environment, Neighbour};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// One run of a load generator. Columns have one value for each interval between two looks:
/// times, bytes and counts are sums over the interval, queues and numbers of connections those
/// at its end.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// `jostle/3`.
    pub schema: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Where the server was found: as `--server` names it, or by the command's
    /// connections; absent where neither did.
    pub server_at: Option<String>,
    /// The command of `--start-server`; absent without.
    pub start_server: Option<Vec<String>>,
    /// The machine.
    pub environment: Environment,
    /// Wall-clock start, RFC 3339 in UTC: a label, never part of a measurement.
    pub started_at: String,
    /// From the start of the command to its end.
    pub elapsed_s: f64,
    /// The command's exit code; absent where a signal ended it.
    pub exit: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<String>,
    /// Whether the user ended it.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub interrupted: bool,
    /// Place within interleaved pairs (`--double`).
    pub pair: Option<Turn>,
    /// Time since the start of the command at the end of each interval.
    pub end_s: Vec<f64>,
    /// Length of each interval.
    pub span_s: Vec<f64>,
    /// The command with all its descendants, the server's processes apart.
    pub generator: Side,
    /// Share of the command's CPU time that belongs to threads that were seen; absent
    /// where the system did not report the whole.
    pub seen_share: Option<f64>,
    /// The server; absent where its processes were not found on this machine.
    pub server: Option<Side>,
    /// Why the server's processes were not found where the command's connections lead; absent
    /// where they were, and in older records.
    pub server_unseen: Option<ServerUnseen>,
    /// Their TCP connections; absent where none were found.
    pub traffic: Option<Traffic>,
    /// The kernel's counts; absent where it does not tell, and in older records.
    pub network: Option<Network>,
    /// Whether processes of others live in the network namespaces of command and server: then
    /// `network` has what they caused, too. Absent where that cannot be seen, and in older records.
    pub shared_network: Option<bool>,
    /// The protocols of the command's own sockets, as the kernel names them (`TCP`, `UDPv6`), as
    /// long as none was known to lead to its server. Absent where its descriptors may not be
    /// looked at, and in older records.
    pub protocols: Option<Vec<String>>,
    /// Whether the command had Unix sockets, whose traffic cannot be seen.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub unix_sockets: bool,
    /// The machine's CPUs.
    pub machine: Machine,
    /// The server's machine, if it is another one and was named (`--server-host`).
    pub server_host: Option<ServerHost>,
    /// Reads that the server counted, if it is Redis or memcached; absent where it is neither,
    /// or wants a password.
    pub lookups: Option<Lookups>,
    /// The command's output; absent where it kept its own streams.
    pub output: Option<Output>,
    /// The conclusion from all of this.
    pub finding: Finding,
}

/// Why the server's processes were not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerUnseen {
    /// All network namespaces of this machine were looked at, and none has it.
    Machine,
    /// Not all of them could be looked at.
    Namespaces,
    /// Its socket was seen, and its process may not be looked at.
    Owner,
    /// A program forwards the connections to where they cannot be followed: `hops` names it.
    Forwarder,
}

/// Reads of keys that a store counted, by whichever client, from when its port was found to
/// the end of the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookups {
    /// The key was there (keyspace_hits, get_hits).
    pub hits: u64,
    /// It was not (keyspace_misses, get_misses).
    pub misses: u64,
}

/// The command's output, as far as it was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Length of all of it.
    pub bytes: u64,
    /// For how long the command may have waited until its output was taken.
    pub stalled_s: f64,
    /// The known results in it, in its order.
    pub results: Vec<Printed>,
    /// The line in which it printed that no port was left for a new connection (EADDRNOTAVAIL).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub no_port: Option<String>,
    /// Notes for a reader of these figures, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
}

/// One result that a load generator printed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Printed {
    /// The tool.
    pub tool: String,
    /// The tool's name of what it measured, if it measures several things.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub test: Option<String>,
    /// Any of `rate_per_s`, `requests`, `connections`, `mean_ms`, `p50_ms`, `p99_ms`, `max_ms`,
    /// `errors`, `not_2xx`, `other_length` (answers of another length than the first), `iterations`
    /// and `dropped` (runs of a script, done and left out), as printed. mysqlslap's `rate_per_s` and
    /// `requests` follow from the queries of each client and the time.
    pub figures: BTreeMap<String, f64>,
}

/// A run of a pair.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// The number of the pair, from 1.
    pub block: u64,
    /// The number that stands in the command for its braces.
    pub load: u64,
    /// Whether it is the doubled one.
    pub doubled: bool,
    /// Whether `load` is the number of copies of the command (`--copies`).
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub copies: bool,
}

/// Threads of the generator, or of the server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Most processes at a time.
    pub processes: u64,
    /// Most threads at a time.
    pub threads: u64,
    /// CPU time of all its threads.
    pub cpu_s: Vec<f64>,
    /// Time that its threads were runnable and not running; absent without schedstat.
    pub queued_s: Option<Vec<f64>>,
    /// Time for which it was stopped by a signal.
    pub stopped_s: Vec<f64>,
    /// Threads that waited for a disk or another wait that no signal ends (state D), at the end
    /// of the interval; of the server alone, absent in older records.
    pub on_disk: Option<Vec<f64>>,
    /// Their page faults that had to read a disk or swap; absent as above.
    pub major_faults: Option<Vec<f64>>,
    /// Bytes that its processes read from disks and wrote to them, from the first look that met
    /// such a thread to the last; absent where there was none, or they may not be read.
    pub disk_bytes: Option<u64>,
    /// Time for which all its processes had ended; absent where some lived to the end.
    pub gone_s: Option<Vec<f64>>,
    /// The process that used most CPU time; absent in older records.
    pub largest: Option<Process>,
    /// Time for which a CPU quota of its control groups kept it from running, summed
    /// over CPUs; absent without a quota.
    pub throttled_s: Option<Vec<f64>>,
    /// The tightest quota, in CPUs.
    pub quota_cpus: Option<f64>,
    /// The control group of that quota.
    pub quota_group: Option<String>,
    /// Its processes that waited for a lock, as their own titles say (PostgreSQL), which are
    /// read twice a second; absent where none did.
    pub at_locks: Option<Vec<f64>>,
    /// Its threads that waited for a lock of a file (flock, fcntl), of the first 16, as above; absent
    /// where none did, and in older records.
    pub at_file_locks: Option<Vec<f64>>,
    /// What has started it; of the server alone, absent where it was there before.
    pub started_by: Option<StartedBy>,
    /// CPUs that its processes may run on; absent where that cannot be read.
    pub allowed_cpus: Option<u64>,
    /// The threads that were busiest over the whole run, at most eight.
    pub busiest: Vec<Thread>,
}

/// What has started a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StartedBy {
    /// The command that is judged.
    Command,
    /// Jostle (`--start-server`).
    Judge,
}

/// One process.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// As the kernel names it (comm).
    pub name: String,
    /// The file name of its program, where that is another: a script has its own name, and its
    /// interpreter is the program. Absent in older records.
    pub program: Option<String>,
    /// Its number.
    pub pid: u64,
    /// Most threads at a time.
    pub threads: u64,
    /// GOMAXPROCS of its environment.
    pub gomaxprocs: Option<u64>,
    /// CPU time of all its threads.
    pub cpu_s: Vec<f64>,
}

/// One thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// As the kernel names it (comm).
    pub name: String,
    /// Its process.
    pub pid: u64,
    /// Its number.
    pub tid: u64,
    /// CPU time.
    pub cpu_s: Vec<f64>,
    /// Time runnable and not running.
    pub queued_s: Vec<f64>,
}

/// The TCP connections between generator and server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// The server's port.
    pub port: u64,
    /// Its address, as the command's connections have it, where it is of no socket here; absent in
    /// older records.
    pub address: Option<String>,
    /// The server's own address, where it is in another network namespace of this machine than the
    /// command.
    pub server_address: Option<String>,
    /// The programs that forward the command's connections there.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub hops: Vec<Hop>,
    /// Bytes that connections carried in both directions, as far as they lived from one
    /// look to the next.
    pub bytes: Vec<f64>,
    /// Segments in both directions, of the same connections.
    pub segments: Vec<f64>,
    /// Segments that were sent again.
    pub retransmitted: Vec<f64>,
    /// Open connections at the end of the interval.
    pub connections: Vec<f64>,
    /// Open connections of each of the server's processes, at the look with most of them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub at_processes: Vec<u64>,
    /// Connections that were opened to this server, by the share of new ones that looks met
    /// there, of those that the kernel counted in the network namespace; without `network` all
    /// of these.
    pub opened: Vec<f64>,
    /// Connections whose first segment (SYN) had no answer yet; absent in older records.
    pub connecting: Option<Vec<f64>>,
    /// Bytes that had arrived at the generator and that it had not read.
    pub generator_unread_bytes: Vec<f64>,
    /// Connections on which it had not read all that had arrived; absent in older records.
    pub generator_unread: Option<Vec<f64>>,
    /// Bytes that had arrived at the server and that it had not read; absent where its
    /// sockets are not on this machine.
    pub server_unread_bytes: Option<Vec<f64>>,
    /// Connections on which it had not read all that had arrived; absent as above.
    pub server_unread: Option<Vec<f64>>,
    /// Ends, of both sides, at which something was written that no segment had carried yet;
    /// absent in older records.
    pub unsent: Option<Vec<f64>>,
    /// Connections on which the generator had received later than it had sent: no answer was
    /// owed; absent in older records.
    pub idle: Option<Vec<f64>>,
    /// Connections that surely waited for an answer; absent in older records.
    pub waiting: Option<Vec<f64>>,
    /// Those among them whose answers before had come at distances of more than six tenths of their
    /// median, if that was two ticks of the kernel's clock or more, and they were eight or more;
    /// absent as above.
    pub in_turn: Option<Vec<f64>>,
    /// Connections that waited to be accepted; absent as above.
    pub backlog: Option<Vec<f64>>,
    /// How many may wait.
    pub backlog_limit: Option<u64>,
    /// Sockets in TIME_WAIT in this network namespace.
    pub time_wait: Vec<f64>,
    /// Ports that were left for new connections, at least.
    pub ports_left: Vec<f64>,
    /// Ports that there are for them.
    pub ports: u64,
    /// The three largest other servers that the command was connected to.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub others: Vec<Peer>,
    /// The three largest servers that the server itself was connected to.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub downstream: Vec<Peer>,
}

/// Connections to one server, as of looks that came twice a second or less often.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// Its address and port.
    pub at: String,
    /// Most connections at a time.
    pub connections: u64,
    /// Bytes that they carried in both directions.
    pub bytes: u64,
    /// Share of the looks at them that met one which surely waited for an answer: it had sent
    /// later than received, or something in the same tick of the clock that no answer had
    /// acknowledged, or had received as few segments as others that surely waited. Absent where
    /// few looks met any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting_share: Option<f64>,
}

/// A program that forwards connections, such as docker-proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hop {
    /// As the kernel names it (comm).
    pub name: String,
    /// Its process.
    pub pid: u64,
    /// CPU time during the run.
    pub cpu_s: f64,
}

/// The kernel's counts in the network namespace of the command, whoever caused them; those of accept
/// queues and acknowledgements also in the server's, where that is another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Attempts to connect (ActiveOpens).
    pub opened: Vec<f64>,
    /// Attempts that failed (AttemptFails).
    pub failed: Vec<f64>,
    /// Connections that a full accept queue refused (ListenOverflows).
    pub overflows: Vec<f64>,
    /// All segments that listeners dropped (ListenDrops).
    pub dropped: Vec<f64>,
    /// First segments of connections that were sent again (TCPSynRetrans).
    pub syn_again: Vec<f64>,
    /// Acknowledgements that their timer sent (DelayedACKs).
    pub delayed_acks: Vec<f64>,
    /// The times after which the first segment of a connection is sent again, each since
    /// the one before; by the settings of this kernel.
    pub syn_again_after_s: Vec<f64>,
}

/// The machine's CPUs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// How many.
    pub cpus: u64,
    /// Time that the hypervisor took, over all CPUs.
    pub stolen_s: Vec<f64>,
    /// CPU time of other processes; absent where not all can be seen.
    pub others_s: Option<Vec<f64>>,
    /// CPU time of the processes of this machine that the server asks, of those that these ask, of
    /// programs that forward its connections, and of what they have started; absent where there are none, and in older records.
    pub behind_s: Option<Vec<f64>>,
    /// CPU time of jostle itself.
    pub tool_s: Vec<f64>,
    /// The other processes that used most, at most three, over the whole run.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub neighbours: Vec<Neighbour>,
}

/// A second machine, on which a watcher looked at the server. Its columns are in `server`,
/// `traffic` and `network`, moved to the intervals of this record.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerHost {
    /// The host, as `--server-host` names it.
    pub host: String,
    /// Its CPUs, in these intervals; absent where nothing of it is known.
    pub machine: Option<Machine>,
    /// The first interval that the watcher saw whole, and the one after the last: only these are
    /// judged.
    pub seen: Option<[u64; 2]>,
    /// How far its monotonic clock was ahead of ours at the end, by what connections carried.
    pub ahead_s: Option<f64>,
    /// How far off that may be.
    pub ahead_error_s: Option<f64>,
    /// By what both series were aligned: `connections` (each one's bytes), `opened` (the number of
    /// connections opened), or `bytes` (the sum, where no address was the same at both ends).
    pub aligned_by: Option<String>,
    /// Looks that bound how far the clock was ahead.
    pub bounds: Option<u64>,
    /// Why the server was not seen there.
    pub unseen: Option<String>,
}

/// The part that was at its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// The command: its figures are lower bounds for the server.
    Generator,
    /// The server: the command's figures are the server's.
    Server,
    /// The CPUs or the hypervisor of this machine.
    Machine,
    /// The server waits itself: for another server, a disk, or swap.
    Downstream,
    /// The ports of this machine for new connections.
    Ports,
    /// A timer of TCP, which no load shortens.
    Timer,
    /// Neither: each connection waits for its answer.
    Path,
    /// There was no server, no traffic, or the command failed.
    Nothing,
    /// Undecided.
    #[default]
    Undecided,
}

impl Limit {
    /// As records and texts name it.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Generator => "generator",
            Limit::Server => "server",
            Limit::Machine => "machine",
            Limit::Downstream => "downstream",
            Limit::Ports => "ports",
            Limit::Timer => "timer",
            Limit::Path => "path",
            Limit::Nothing => "nothing",
            Limit::Undecided => "undecided",
        }
    }
}

/// The judgement. It follows from the series; a reader can compute it again.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The part that was at its limit.
    pub limit: Limit,
    /// From when on, since the start of the command; absent where nothing was.
    pub since_s: Option<f64>,
    /// Until when, where it ended before the judged time did.
    pub until_s: Option<f64>,
    /// The limit of each second, or of each sixtieth of a longer run, from `from_s` on:
    /// G generator, S server, D downstream, M machine, P ports, T timer, - path, ? undecided,
    /// . no traffic. Absent in older records.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub seconds: String,
    /// Where traffic began: what lies before is not judged.
    pub from_s: f64,
    /// Where it ended.
    pub to_s: f64,
    /// (CPU time + run-queue wait) / wall time of the busiest generator thread; absent
    /// where nothing was seen of it.
    pub generator_busy_share: Option<f64>,
    /// (CPU time + run-queue wait) / wall time of the busiest server thread; absent where nothing
    /// was seen of it.
    pub server_busy_share: Option<f64>,
    /// Why, one sentence each, the decisive one first; before it, that less was reached than the
    /// command planned.
    pub reasons: Vec<String>,
    /// The consequence for the figures that the command printed.
    pub meaning: String,
    /// A command that would decide or help; absent where there is none.
    pub next: Option<String>,
}

/// The result of interleaved pairs of a load and its double.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Doubled {
    /// The command with `{N}` in it; with `--copies` as it is.
    pub command: Vec<String>,
    /// Whether copies of the command were compared (`--copies`).
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub copies: bool,
    /// The load and the doubled one, or numbers of copies.
    pub loads: [u64; 2],
    /// The measure of work: `printed`, the rate that the command printed; or `bytes` or
    /// `connections`, where it printed none that is known.
    pub measure: String,
    /// Work for each second with the load and with the doubled one, a pair a line.
    pub rates_per_s: Vec<[f64; 2]>,
    /// Doubled to single: Hodges-Lehmann estimate over the pairs.
    pub ratio: f64,
    /// Lower end of its interval; of the range under six pairs.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The part that was at its limit with the load.
    pub limit: Limit,
    /// Why, in one sentence.
    pub reason: String,
    /// The consequence for the figures that the command printed.
    pub meaning: String,
}
