//! Records of an experiment over several hosts: the hosts, the rate of each one alone, and
//! the figures of each in a run.

use crate::record::{Distribution, Verdict};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// One of the hosts of an experiment; its place in the list is its rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostHere {
    /// As it calls itself.
    pub host: String,
    /// CPUs that jostle may use there.
    pub cpus: u64,
    /// Number of its machine: hosts with the same one are ranks of one machine.
    pub machine: u64,
    /// Version and commit of its jostle.
    pub jostle: String,
}

/// The ceiling of one host by itself, before the first run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostCeiling {
    /// The target as typed.
    pub target: String,
    /// Its rank.
    pub rank: u64,
    /// As it calls itself.
    pub host: String,
    /// Its share of the workers.
    pub workers: u64,
    /// Operations a second with all others asleep.
    pub throughput_per_s: f64,
    /// throughput_per_s over the median of all hosts.
    pub of_median: f64,
    /// As of a host in a run ([`HostPart::busy_share`]).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub busy_share: Option<f64>,
}

/// One host's part of one run of several.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostPart {
    /// Its rank.
    pub rank: u64,
    /// As it calls itself.
    pub host: String,
    /// Its clock less rank 0's.
    pub clock_ahead_ns: i64,
    /// Half-width of the interval in which that is known.
    pub clock_within_ns: u64,
    /// By how much it began later than agreed (negative: earlier), in rank 0's time, ±
    /// `clock_within_ns`.
    pub late_ns: i64,
    /// Its workers.
    pub workers: u64,
    /// Operations that they completed within its window.
    pub operations: u64,
    /// operations / its window.
    pub throughput_per_s: f64,
    /// CPU time of its workers.
    pub cpu_s: Option<f64>,
    /// CPU time for each operation, as the point has it.
    pub cpu_us_per_operation: Option<f64>,
    /// Load of its busiest generator or worker: (CPU time + time runnable but not
    /// running) / its wall time.
    pub busy_share: Option<f64>,
    /// Time that its workers were runnable but not running, over window and
    /// workers.
    pub runqueue_share: Option<f64>,
    /// 99th percentile of what its generator was late by, where requests come at a
    /// rate.
    pub generator_lag_ns_p99: Option<u64>,
    /// The distribution of the point that `latency_ns` is this host's part of.
    pub latency_of: Option<String>,
    /// That part.
    pub latency_ns: Option<Distribution>,
    /// How many of its values lie in buckets above that of the point's 99th
    /// percentile.
    pub beyond_p99: Option<u64>,
    /// Failures by the system's name for them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub errors: BTreeMap<String, u64>,
    /// Whether its own figures may be believed.
    pub verdict: Verdict,
}
