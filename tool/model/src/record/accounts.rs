//! CPU time during a run by owner, from the scheduler's clocks and not from its ticks.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// CPU time between two readings, by its owner, and how long our own threads queued.
///
/// All times come from the scheduler's clocks. They advance in steps of up to a tick while
/// a thread runs, so that each is exact to one tick per CPU at either end.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Accounts {
    /// Time between the two readings.
    pub between_s: f64,
    /// CPUs that workers and server may use.
    pub cpus: u64,
    /// The workers.
    pub workers_s: f64,
    /// Processes that were started for requests, and programs that workers keep (`pipe`).
    pub requests_s: Option<f64>,
    /// The server under test, with its threads and descendants; absent where its processes are
    /// not known or run on another host.
    pub server_s: Option<f64>,
    /// jostle's other processes.
    pub tool_s: f64,
    /// Other processes that may run on those CPUs; absent where not all processes of the
    /// machine can be seen (a container, hidepid).
    pub others_s: Option<f64>,
    /// The largest of them, at most three.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub others: Vec<Neighbour>,
    /// Kernel threads.
    pub machine_s: f64,
    /// The largest of them, at most three.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub kernel_threads: Vec<Neighbour>,
    /// All tasks of the machine, by the root of `cpuacct`; absent without control groups of
    /// version 1.
    pub whole_s: Option<f64>,
    /// The part of `whole_s` without an owner: processes that began and ended between the
    /// readings, and whose parent is gone too, plus the clocks' steps.
    pub unexplained_s: Option<f64>,
    /// CPU time on those CPUs beside ours, by their own clocks (`cpuacct.usage_percpu`): other
    /// processes, kernel threads, programs that ended; absent without control groups of version 1.
    pub foreign_s: Option<f64>,
    /// Ticks in soft interrupts on those CPUs.
    pub softirq_ticks: Option<u64>,
    /// Packets that those CPUs handled (/proc/net/softnet_stat).
    pub packets: Option<u64>,
    /// Segments that the workers' connections carried in both directions (TCP_INFO); absent
    /// where they have none, open others meanwhile, or are more than 500.
    pub own_packets: Option<u64>,
    /// [Slices of the window](method/accounts.md#when-is-a-slice-clean), for `contend` on one
    /// host whose workers start no programs.
    pub readings: Option<Readings>,
    /// Time that threads of workers and server were runnable and not running, summed;
    /// absent without schedstat.
    pub waited_s: Option<f64>,
    /// Share of these threads that was looked at.
    pub waited_coverage: Option<f64>,
    /// Time that the hypervisor took on those CPUs.
    pub stolen_s: Option<f64>,
}

/// One after the other, slices of about 20 ms of the window; a value of each column for each
/// slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readings {
    /// How long it is.
    pub length_us: Vec<u64>,
    /// Operations of all workers that ended in it.
    pub operations: Vec<u64>,
    /// Time beside ours on the CPUs that workers and server may use.
    pub foreign_us: Vec<u64>,
    /// Time in which these CPUs ran nothing at all; absent in older files.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub idle_us: Vec<u64>,
    /// Ticks that the hypervisor took on them.
    pub stolen_ticks: Vec<u64>,
    /// Packets that they handled.
    pub packets: Vec<u64>,
}

/// Another process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Neighbour {
    /// As the kernel names it (comm); of programs that ended also who started them.
    pub name: String,
    /// Its number; 0 for programs that ended within the window.
    pub pid: u64,
    /// CPU time within the two readings.
    pub cpu_s: f64,
}

/// Times of this machine's simplest acts, measured before the first run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// How late a sleep of 1 ms ends, median.
    pub sleep_late_p50_ns: f64,
    /// How late a sleep of 1 ms ends, 90th percentile.
    pub sleep_late_p90_ns: f64,
    /// From a futex wake-up until the woken process runs, both on one CPU.
    pub wake_same_cpu_ns: f64,
    /// From a futex wake-up until the woken process runs on another, idle CPU; absent with one CPU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wake_other_cpu_ns: Option<f64>,
    /// Smallest step of the clock that stamps are read from.
    pub clock_step_ns: f64,
}
