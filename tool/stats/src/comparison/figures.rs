//! What `jostle compare` compares: the headline figure of each workload, and the
//! others.

use crate::figures::{self, *};
use jostle_model::Plan;
use jostle_model::connect::Only;
use jostle_model::plan::Shape;

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
pub struct ComparedFigure {
    /// As in the result file.
    pub name: &'static str,
    /// In tables.
    pub label: &'static str,
    /// Which way is better.
    pub better: Better,
    /// How it changes with the machine: 1 for a time, -1 for a rate, 0 for what
    /// has nothing to do with time.
    pub time: f64,
    /// What it is of a run, and the runs that it is taken over.
    pub figure: &'static figures::Figure,
}

/// Such as it grows with the machine's times; less is better.
const fn time(figure: &'static figures::Figure, label: &'static str) -> ComparedFigure {
    ComparedFigure {
        name: figure.name,
        label,
        better: Better::Less,
        time: 1.0,
        figure,
    }
}

/// Memory, which has nothing to do with time.
const fn bytes(figure: &'static figures::Figure, label: &'static str) -> ComparedFigure {
    ComparedFigure {
        time: 0.0,
        ..time(figure, label)
    }
}

/// The headlines first.
pub static FIGURES: &[ComparedFigure] = &[
    ComparedFigure {
        better: Better::More,
        time: -1.0,
        ..time(THROUGHPUT, "ops/s")
    },
    time(CONNECT_P50, "connect ns"),
    time(BIND_P50, "bind ns"),
    time(ACCEPT_P50, "accept ns"),
    time(CLOSE_P50, "close ns"),
    bytes(SLAB_BYTES, "kernel bytes"),
    time(CPU, "CPU us/op"),
    time(SERVER_CPU, "server us/op"),
    ComparedFigure {
        name: "bytes_per_held_lock",
        ..bytes(HELD_BYTES, "bytes/lock")
    },
    time(KEPT_SERVER_CPU, "server us/lock and minute"),
    time(ACQUIRE_P50, "wait p50 ns"),
    time(ACQUIRE_P99, "wait p99 ns"),
    time(HANDOFF_P50, "hand-off ns"),
    time(RELEASE_P50, "release ns"),
    time(BATCH_P50, "batch ns"),
    time(RESPONSE_P50, "response p50 ns"),
    time(RESPONSE_P99, "response p99 ns"),
    time(NEXT_GRANT, "next grant ns"),
];

/// Whether a figure is the one that a workload is known by: what the table of
/// `connect` leads with, else the throughput.
pub fn is_headline(plan: &Plan, figure: &ComparedFigure) -> bool {
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
