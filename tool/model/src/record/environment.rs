//! The machine of an experiment, and the tool's calibration on it.

use super::Latencies;
use crate::calibrated::Specimens;
use crate::hosts::{HostCeiling, HostHere};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// The machine on which an experiment ran.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Host name.
    pub host: String,
    /// `uname -sr`.
    pub kernel: String,
    /// CPU model as the kernel names it.
    pub cpu_model: String,
    /// CPUs that this process may use.
    pub cores: u64,
    /// Frequency governor of the first CPU, where the kernel offers one.
    pub governor: Option<String>,
    /// The kernel's clock source.
    pub kernel_clock_source: Option<String>,
    /// `exact`, or `sampled, N ticks/s`: how the kernel splits user from system time.
    pub cpu_accounting: String,
    /// Physical memory.
    pub memory_bytes: u64,
    /// Memory available at the start.
    pub memory_available_bytes: u64,
    /// stolen / (busy + stolen); absent under 200 ticks.
    pub steal_share_since_boot: Option<f64>,
    /// Limits by name, such as `RLIMIT_NOFILE soft`, `pids.max`. One that binds nothing or is
    /// hidden is absent.
    pub limits: BTreeMap<String, String>,
    /// Settings of kernel and hardware that change the cost of locks and wake-ups, by name:
    /// `preemption`, `base slice ns`, `sched_ext`, `futex private hash`, `rseq slice
    /// extension`, `guest halt poll ns`, `idle governor`, `SMT`, `mitigation NAME`, `huge
    /// pages`, `frequency driver`, `virtual machine`, ... One that this kernel lacks or this
    /// user may not read is absent; `compare` names those that differ.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub settings: BTreeMap<String, String>,
    /// cgroup of this process, `v1` or `v2` with its path.
    pub cgroup: Option<String>,
    /// File system of each target's path, by target as typed.
    pub file_systems: BTreeMap<String, String>,
    /// From target, as typed, to a hash of the bytes of its library or program and their
    /// number: where they are equal, `compare` states that both are the same file.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub programs: BTreeMap<String, String>,
    /// Entries of the kernel's hash tables for sockets: `TCP established` (of this network
    /// namespace), `TCP bind`, `tcp_listen_portaddr_hash` (the last two from the kernel's log).
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub hash_sizes: BTreeMap<String, u64>,
    /// All hosts by rank, where there are several; everything else here is rank 0's.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub hosts: Vec<HostHere>,
    /// jostle's version and commit.
    pub jostle: String,
    /// The C library, which provides the locks `pthread*` and `posix-sem`.
    pub libc: String,
}

/// The tool's measurements of itself.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// `rdtscp` or `CLOCK_MONOTONIC`.
    pub clock: String,
    /// Cost of one stamp, median.
    pub stamp_ns: f64,
    /// Bound on the offset between two CPUs' clocks; absent with one CPU, or if the CPUs were
    /// too busy to bound it.
    pub clock_uncertainty_ns: Option<f64>,
    /// How long this machine's simplest acts took before the first run. Experiments of one
    /// command that begin within 10 s share it and `own_cost`.
    pub latencies: Option<Latencies>,
    /// From target, as typed, to what measuring costs beside it; with `pipe` also of
    /// `echo+pipe`. One worker, without hold and idle.
    pub own_cost: BTreeMap<String, OwnCost>,
    /// The last `jostle calibrate` with this build on this machine; absent where
    /// there was none.
    pub specimens: Option<Specimens>,
    /// The rate of each of several hosts alone, before the first run of `contend` and `spread`
    /// ([method](method/hosts.md#are-the-hosts-equal-clients)).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub host_ceilings: Vec<HostCeiling>,
}

/// One cycle of one worker without hold and idle, in interleaved blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnCost {
    /// Acquire and release with counting alone.
    pub pair_ns: f64,
    /// Acquire and release with counting alone, in the fastest block.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pair_fastest_ns: Option<f64>,
    /// With stamps, histograms and witness.
    pub full_ns: f64,
    /// With the witness, without stamps and histograms.
    pub no_stamps_ns: f64,
    /// With stamps and histograms, without the witness.
    pub no_witness_ns: f64,
    /// The cost that `full` adds to a cycle: the median over blocks of full - pair.
    pub added_ns: f64,
    /// Lowest and highest of that over the blocks.
    pub added_range_ns: [f64; 2],
    /// One operation in this many is stamped, so that the cost stays small.
    pub stamp_every: u64,
}
