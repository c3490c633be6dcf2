//! What `jostle compare` compares: the headline figure of each workload, and the
//! others.

use jostle_model::Plan;
use jostle_model::connect::Only;
use jostle_model::plan::Shape;
use jostle_model::record::{Distribution, Run};

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Such as a throughput.
    More,
    /// Such as a wait.
    Less,
}

/// A figure of a run.
#[derive(Debug)]
pub struct Figure {
    /// As in the result file.
    pub name: &'static str,
    /// In tables.
    pub label: &'static str,
    /// Which way is better.
    pub better: Better,
    /// How it changes with the machine: 1 for a time, -1 for a rate, 0 for what
    /// has nothing to do with time.
    pub time: f64,
    /// Reads the figure from a run.
    pub of: fn(&Run) -> Option<f64>,
}

/// The headlines first.
pub static FIGURES: &[Figure] = &[
    Figure {
        name: "throughput_per_s",
        label: "ops/s",
        better: Better::More,
        time: -1.0,
        of: |run| Some(run.throughput_per_s),
    },
    Figure {
        name: "connect_p50_ns",
        label: "connect ns",
        better: Better::Less,
        time: 1.0,
        of: |run| percentile(run.times.connect_ns.as_ref(), "p50"),
    },
    Figure {
        name: "bind_p50_ns",
        label: "bind ns",
        better: Better::Less,
        time: 1.0,
        of: |run| percentile(run.times.bind_ns.as_ref(), "p50"),
    },
    Figure {
        name: "accept_p50_ns",
        label: "accept ns",
        better: Better::Less,
        time: 1.0,
        of: |run| percentile(run.times.accept_ns.as_ref(), "p50"),
    },
    Figure {
        name: "close_p50_ns",
        label: "close ns",
        better: Better::Less,
        time: 1.0,
        of: |run| percentile(run.times.close_ns.as_ref(), "p50"),
    },
    Figure {
        name: "slab_bytes_each",
        label: "kernel bytes",
        better: Better::Less,
        time: 0.0,
        of: |run| run.connections.as_ref()?.slab_bytes_each,
    },
    Figure {
        name: "cpu_us_per_operation",
        label: "CPU us/op",
        better: Better::Less,
        time: 1.0,
        of: |run| run.cpu.cpu_us_per_operation,
    },
    Figure {
        name: "server_cpu_us_per_operation",
        label: "server us/op",
        better: Better::Less,
        time: 1.0,
        of: |run| run.server?.cpu_us_per_operation,
    },
    Figure {
        name: "bytes_per_held_lock",
        label: "bytes/lock",
        better: Better::Less,
        time: 0.0,
        of: |run| run.server?.bytes_per_held_lock,
    },
    Figure {
        name: "kept_server_cpu_us_per_lock_minute",
        label: "server us/lock and minute",
        better: Better::Less,
        time: 1.0,
        of: |run| run.kept.as_ref()?.server_cpu_us_per_minute(),
    },
    Figure {
        name: "acquire_p50_ns",
        label: "wait p50 ns",
        better: Better::Less,
        time: 1.0,
        of: |run| percentile(Some(&run.acquire_ns.as_ref()?.granted), "p50"),
    },
    Figure {
        name: "acquire_p99_ns",
        label: "wait p99 ns",
        better: Better::Less,
        time: 1.0,
        of: |run| percentile(Some(&run.acquire_ns.as_ref()?.granted), "p99"),
    },
    Figure {
        name: "handoff_p50_ns",
        label: "hand-off ns",
        better: Better::Less,
        time: 1.0,
        of: |run| percentile(run.times.handoff_ns.as_ref(), "p50"),
    },
    Figure {
        name: "release_p50_ns",
        label: "release ns",
        better: Better::Less,
        time: 1.0,
        of: |run| percentile(run.times.release_ns.as_ref(), "p50"),
    },
    Figure {
        name: "batch_p50_ns",
        label: "batch ns",
        better: Better::Less,
        time: 1.0,
        of: |run| percentile(run.times.batch_ns.as_ref(), "p50"),
    },
    Figure {
        name: "response_p50_ns",
        label: "response p50 ns",
        better: Better::Less,
        time: 1.0,
        of: |run| percentile(run.times.response_ns.as_ref(), "p50"),
    },
    Figure {
        name: "response_p99_ns",
        label: "response p99 ns",
        better: Better::Less,
        time: 1.0,
        of: |run| percentile(run.times.response_ns.as_ref(), "p99"),
    },
    Figure {
        name: "next_grant_ns",
        label: "next grant ns",
        better: Better::Less,
        time: 1.0,
        of: |run| run.recovery.as_ref()?.next_grant_ns.map(|ns| ns as f64),
    },
];

/// Whether a figure is the one that a workload is known by: what the table of
/// `connect` leads with, else the throughput.
pub fn is_headline(plan: &Plan, figure: &Figure) -> bool {
    figure.name
        == match (plan.workload.shape(), plan.only) {
            (Shape::Connect, None) => "connect_p50_ns",
            (Shape::Connect, Some(Only::Bind)) => "bind_p50_ns",
            (Shape::Recover, _) => "next_grant_ns",
            // All rates are reached, until they are not.
            (Shape::Rate, _) => "response_p50_ns",
            (Shape::Contend | Shape::Stream | Shape::Hold | Shape::Spread, _) => "throughput_per_s",
        }
}

fn percentile(distribution: Option<&Distribution>, name: &str) -> Option<f64> {
    distribution?.percentiles.get(name).map(|ns| *ns as f64)
}
