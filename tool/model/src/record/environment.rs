//! The machine of an experiment, and the tool's calibration on it.

use super::Latencies;
use crate::calibrated::Specimens;
use crate::hosts::{HostCeiling, HostHere};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The machine on which an experiment ran.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// The kernel's clock source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_clock_source: Option<String>,
    /// Clock ticks that CPU accounting is sampled with, or `exact`.
    pub cpu_accounting: String,
    /// Physical memory.
    pub memory_bytes: u64,
    /// Memory available at the start.
    pub memory_available_bytes: u64,
    /// Share of CPU time stolen by the hypervisor since boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steal_share_since_boot: Option<f64>,
    /// Limits that matter, by name (`RLIMIT_NOFILE soft`, `pids.max`, ...).
    pub limits: BTreeMap<String, String>,
    /// Settings of kernel and hardware that move what locks and wake-ups cost, by name
    /// (`preemption`, `guest halt poll ns`, `huge pages`, ...); one that this kernel
    /// lacks or this user may not read is absent, in files of older versions all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub settings: BTreeMap<String, String>,
    /// cgroup of this process, `v1` or `v2` with its path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// File system of each target's path, by target as typed.
    pub file_systems: BTreeMap<String, String>,
    /// What tells apart the library or program of each target that has one, by target as
    /// typed: a hash of its bytes, and their number.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub programs: BTreeMap<String, String>,
    /// Entries of the kernel's hash tables for sockets, by the kernel's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub hash_sizes: BTreeMap<String, u64>,
    /// All hosts by rank, where there are several; everything else here is rank 0's.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub hosts: Vec<HostHere>,
    /// jostle's version and commit.
    pub jostle: String,
    /// Which C library the locks of `pthread*` and `posix-sem` come from.
    pub libc: String,
}

/// What the tool measured of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// `rdtscp` or `CLOCK_MONOTONIC`.
    pub clock: String,
    /// Cost of one stamp, median.
    pub stamp_ns: f64,
    /// Half-width of the offset between any two CPUs' clocks; absent with one CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_uncertainty_ns: Option<f64>,
    /// What this machine's simplest acts take.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latencies: Option<Latencies>,
    /// The tool's cost beside each target's own, by target as typed.
    pub own_cost: BTreeMap<String, OwnCost>,
    /// The last `jostle calibrate` with this build on this machine; absent where
    /// there was none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub specimens: Option<Specimens>,
    /// What each host could do by itself, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub host_ceilings: Vec<HostCeiling>,
}

/// One interleaved block: one uncontended worker, no hold, no idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnCost {
    /// Acquire and release with counting alone.
    pub pair_ns: f64,
    /// The same in the fastest block.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pair_fastest_ns: Option<f64>,
    /// With stamps, histograms and witness.
    pub full_ns: f64,
    /// With the witness, without stamps and histograms.
    pub no_stamps_ns: f64,
    /// With stamps and histograms, without the witness.
    pub no_witness_ns: f64,
    /// What `full` adds to a cycle: the median over blocks of full - pair.
    pub added_ns: f64,
    /// Lowest and highest of that over the blocks.
    pub added_range_ns: [f64; 2],
    /// One operation in this many is stamped, so that the cost stays small.
    pub stamp_every: u64,
}
