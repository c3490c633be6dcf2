//! What is shown of `churn`.

use super::{Row, SERVER_CPU, THROUGHPUT};
use crate::ResultSet;
use crate::closing::churn::cycle;
use crate::columns::{
    Column, HALF_INTERVAL, TARGET, UNDISTURBED, WORKERS_AND_NAMES, always, cpu, figure, micros,
    server_cpu, throughput,
};
use crate::format::{grouped, percent};
use crate::html::figures::answer::Answer;
use crate::next::Step;
use jostle_model::Plan;
use jostle_model::defaults;
use jostle_model::plan::Workload;

pub(super) const ROW: Row = Row {
    workload: Workload::Churn,
    columns: |_| COLUMNS,
    next: question,
    answer: Answer {
        question: "What does a lock cost if each job opens a session of its own?",
        beside: "What does a lock cost if each job opens a session of its own?",
        of: &[THROUGHPUT, SERVER_CPU],
    },
};

/// Times are means, so that the parts of a cycle add up.
static COLUMNS: &[Column] = &[
    TARGET,
    WORKERS_AND_NAMES,
    always(["", "n"], |point| point.at.operations.map(grouped)),
    throughput(["", "locks/s"]),
    HALF_INTERVAL,
    UNDISTURBED,
    figure(["cycle", "us"], |point| {
        micros(Some(cycle(point)?.cycle_ns))
    }),
    figure(["", "p99 us"], |point| micros(cycle(point)?.p99_ns)),
    figure(["open", "us"], |point| micros(Some(cycle(point)?.open_ns))),
    figure(["acquire", "us"], |point| {
        micros(Some(cycle(point)?.acquire_ns))
    }),
    figure(["release", "us"], |point| {
        micros(Some(cycle(point)?.release_ns))
    }),
    figure(["close", "us"], |point| {
        micros(Some(cycle(point)?.close_ns))
    }),
    figure(["", "session"], |point| {
        Some(percent(cycle(point)?.session_share()))
    }),
    cpu(["CPU us", "/lock"]),
    server_cpu(["server", "us/lock"]),
];

/// The same locks with sessions that are kept.
fn question(set: &ResultSet, next: Plan) -> Step {
    let kept = Plan {
        targets: next.targets,
        workers: next.workers,
        operations: defaults::swept(Workload::Stream).operations,
        names: Some(set.experiment.plan.names()),
        carrier: next.carrier,
        credentials: next.credentials,
        ..Plan::of(Workload::Stream)
    };
    Step::Measure(Box::new(kept))
}
