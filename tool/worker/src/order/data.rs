//! What a run yields on one host.

use super::{KeptData, RequestData, SpreadData};
use jostle_model::record::{Across, Buckets, Circumstances};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One distribution, merged over the workers of a generator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Merged {
    /// Counts by bucket.
    pub buckets: Buckets,
    /// Exact sum.
    pub sum: u64,
    /// Exact least.
    pub min: u64,
    /// Exact greatest.
    pub max: u64,
}

/// What one generator's workers did in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunData {
    /// The window as it was.
    pub window_ns: u64,
    /// From the last arrival to the window.
    pub warmup_ns: u64,
    /// From the first fork to the last worker ready.
    pub ramp_ns: u64,
    /// From the window's end to the last worker reaped.
    pub drain_ns: u64,
    /// From the first arrival to the last.
    pub start_spread_ns: u64,
    /// When the first worker began, by `CLOCK_MONOTONIC` of its host; zero: none did.
    #[serde(default)]
    pub began_ns: u64,
    /// Grants of each worker within the window.
    pub operations: Vec<u64>,
    /// From the common start to the end of each worker, where a number of
    /// operations ends the run.
    pub elapsed_ns: Vec<u64>,
    /// Load of each generator thread, or else of the busiest worker: CPU time with time
    /// on the run queue, and the latter alone, as shares of its wall time.
    pub thread_loads: Vec<(f64, f64)>,
    /// Until all locks were held, and from the first release to the end.
    pub phases_ns: Option<(u64, u64)>,
    /// What the server's memory grew by until all locks were held.
    pub held_bytes: Option<i64>,
    /// What keeping all locks for a time came to.
    #[serde(default)]
    pub kept: Option<Box<KeptData>>,
    /// Releases and the sum of their times, for each slice.
    pub release_slices: Vec<(u64, u64)>,
    /// Longest wait of each worker, the attempt pending at the end included.
    pub longest_wait_ns: Vec<u64>,
    /// Workers whose attempt was pending at the end, whether or not its start was stamped.
    #[serde(default)]
    pub pending: u64,
    /// By the figure's name.
    pub figures: BTreeMap<String, Merged>,
    /// Spans of the attempts that had no grant by the end of the window, or
    /// that their timeout ended.
    pub censored: Merged,
    /// The same of readers, and of writers, where both take the lock.
    #[serde(default)]
    pub censored_by_mode: Option<Box<[Merged; 2]>>,
    /// Stamped grants, and those of them that were contended.
    pub stamped: u64,
    /// See `stamped`.
    pub contended: u64,
    /// Longest streak, and the longest of which another worker waited.
    pub streak: u64,
    /// See `streak`.
    pub streak_waited: u64,
    /// Attempts that their timeout ended.
    pub timeouts: u64,
    /// Tries that were refused.
    pub refusals: u64,
    /// Acquisitions that the witness looked at.
    pub checked: u64,
    /// Overlaps with owners that lived.
    pub violations: u64,
    /// Overlaps with the marks of owners that died.
    pub holder_died: u64,
    /// What the holder's counter lost.
    pub lost_updates: u64,
    /// Fencing tokens that were compared with those before them, and those that were not
    /// greater.
    #[serde(default)]
    pub tokens: (u64, u64),
    /// Share of the readers that writers looked at.
    pub reader_coverage: Option<f64>,
    /// The first few overlaps, in words.
    pub examples: Vec<String>,
    /// Operations, stamped ones and the sum of their waits, for each slice.
    pub slices: Vec<(u64, u64, u64)>,
    /// CPU time of the workers within the window.
    pub cpu_ns: Option<u64>,
    /// The part of `cpu_ns` that workers spun at the ends of sleeping holds.
    #[serde(default)]
    pub spun_ns: u64,
    /// What sleeping idles that ended within the window took together, and how many
    /// they were.
    #[serde(default)]
    pub idled: (u64, u64),
    /// User and system time of the workers' lives after the start, as sampled.
    pub usage_ns: (u64, u64),
    /// Time on the run queue, and times put on a CPU, within the window.
    pub runqueue_wait_ns: Option<u64>,
    /// See `runqueue_wait_ns`.
    pub switches: Option<u64>,
    /// What surrounded the run, what went wrong in it, and what was planted.
    pub around: Circumstances,
    /// Whether the target is a lock at all; specimens that grant all are not.
    pub excludes: bool,
    /// Time that one reading of all CPU clocks took.
    pub cpu_read_ns: u64,
    /// Locks that the server granted during the run, where it counts them.
    pub server_counted: Option<u64>,
    /// Whether a server does the work, even if nothing is known about it, for example on
    /// another machine.
    #[serde(default)]
    pub is_remote: bool,
    /// Binds that a directory server completed during the run.
    pub server_binds: Option<u64>,
    /// Unbinds that it completed.
    pub server_unbinds: Option<u64>,
    /// Grants that the workers received in the run, warm-up and drain included.
    pub received: u64,
    /// How often workers asked their server in the run, and the bytes of both directions.
    #[serde(default)]
    pub traffic: Option<(u64, u64)>,
    /// How often workers' sessions went on at another server of the service.
    pub failovers: u64,
    /// CPU time of the server within the window, where its process is ours to
    /// look at.
    pub server_cpu_ns: Option<u64>,
    /// The generators over which requests were spread.
    pub spread: Option<Box<SpreadData>>,
    /// What requests came to, where workers made any.
    pub requests: Option<Box<RequestData>>,
    /// When its workers were owners, for the comparison with other hosts.
    #[serde(default, skip_serializing_if = "GrantLog::is_empty")]
    pub grants: GrantLog,
    /// What came of that comparison, once the hosts are one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub across: Option<Box<Across>>,
}

/// The grants of one host's workers within its window. Times are its
/// `CLOCK_MONOTONIC`'s.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GrantLog {
    /// Grants of the window, logged or not.
    pub made: u64,
    /// From the window's opening to `until_ns` no grant is missing.
    pub from_ns: u64,
    /// The window's end, or the first grant that some worker's log had no place for.
    pub until_ns: u64,
    /// The logs of all workers, each with its number and how many grants follow. A grant
    /// is the time since the release before, time held, lock and bits, and growth of the
    /// token. LEB128, in base64.
    pub packed: String,
}

impl GrantLog {
    /// Whether nothing was logged, and nobody asked for it.
    pub fn is_empty(&self) -> bool {
        *self == GrantLog::default()
    }
}
