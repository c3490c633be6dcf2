//! `churn` in the formats for people: the cost of sessions that are opened for one lock each.

use super::{Row, SERVER_CPU, THROUGHPUT};
use crate::ResultSet;
use crate::closing::connect::time as in_us;
use crate::closing::{Values, View, each};
use crate::columns::{
    Column, HALF_INTERVAL, TARGET, UNDISTURBED, WORKERS_AND_NAMES, always, cpu, figure, micros,
    server_cpu, throughput,
};
use crate::format::{grouped, percent};
use crate::html::figures::answer::Answer;
use crate::next::Step;
use crate::what;
use jostle_model::Plan;
use jostle_model::defaults;
use jostle_model::plan::Workload;
use jostle_model::record::{Distribution, Run};
use jostle_stats::intervals::median;
use jostle_stats::numbers::workers;
use jostle_stats::summary::PointSummary;

pub(super) const ROW: Row = Row {
    workload: Workload::Churn,
    columns: |_| COLUMNS,
    next: question,
    what: what::churn,
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
        Some(micros(cycle(point)?.cycle_ns))
    })
    .rank(1),
    figure(["", "p99 us"], |point| cycle(point)?.p99_ns.map(micros)).rank(6),
    figure(["open", "us"], |point| Some(micros(cycle(point)?.open_ns))).rank(2),
    figure(["acquire", "us"], |point| {
        Some(micros(cycle(point)?.acquire_ns))
    })
    .rank(2),
    figure(["release", "us"], |point| {
        Some(micros(cycle(point)?.release_ns))
    })
    .rank(2),
    figure(["close", "us"], |point| {
        Some(micros(cycle(point)?.close_ns))
    })
    .rank(2),
    figure(["", "session"], |point| {
        Some(percent(cycle(point)?.session_share()))
    })
    .rank(1),
    cpu(["CPU us", "/lock"]).rank(7),
    server_cpu(["server", "us/lock"]).rank(6),
];

/// Asks for these locks with sessions that are kept.
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

/// The parts of a cycle, as means, so that they add up.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cycle {
    /// Opening the session.
    open_ns: f64,
    /// Waiting for the lock.
    acquire_ns: f64,
    /// Giving it up.
    release_ns: f64,
    /// Ending the session.
    close_ns: f64,
    /// All of it.
    cycle_ns: f64,
    /// The 99th percentile of that; None of few.
    p99_ns: Option<f64>,
}

impl Cycle {
    /// The session's share of a cycle.
    fn session_share(&self) -> f64 {
        (self.open_ns + self.close_ns) / self.cycle_ns
    }
}

/// The parts of a point's cycles; None where no cycle was stamped.
fn cycle(point: &PointSummary<'_>) -> Option<Cycle> {
    let over = |of: &dyn Fn(&Run) -> Option<f64>| {
        let values: Vec<f64> = point.timed.iter().filter_map(|run| of(run)).collect();
        median(&values)
    };
    let mean = |name: &str| over(&|run| Some(phase(run, name)?.mean));
    let p99 = |run: &Run| phase(run, "cycle")?.percentiles.get("p99").copied();
    let cycle_ns = mean("cycle")?;
    Some(Cycle {
        open_ns: mean("open")?,
        acquire_ns: over(&|run| Some(run.acquire_ns.as_ref()?.granted.mean))?,
        release_ns: over(&|run| Some(run.times.release_ns.as_ref()?.mean))?,
        close_ns: mean("close")?,
        cycle_ns: Some(cycle_ns).filter(|cycle| *cycle > 0.0)?,
        p99_ns: over(&|run| Some(p99(run)? as f64)),
    })
}

fn phase<'a>(run: &'a Run, name: &str) -> Option<&'a Distribution> {
    let mut phases = run.phases.iter();
    phases
        .find(|phase| phase.phase == name)
        .map(|phase| &phase.span)
}

/// What a session costs beside its lock.
pub(crate) fn session(view: &View<'_, '_>) -> Vec<Values> {
    each(&view.points, |points| {
        let load = |point: &&&PointSummary<'_>| (point.at.workers, point.at.operations);
        sentence(
            points.iter().min_by_key(load)?,
            points.iter().max_by_key(load)?,
        )
    })
}

/// From here on a lock on a kept session takes less than half of a cycle.
const MOSTLY: f64 = 0.5;

fn sentence(fewest: &PointSummary<'_>, most: &PointSummary<'_>) -> Option<String> {
    let (first, last) = (cycle(fewest)?, cycle(most)?);
    let share = |cycle: &Cycle| format!("{:.0} %", 100.0 * cycle.session_share());
    let rest_ns = first.acquire_ns + first.release_ns;
    let mut text = format!(
        "with {} the session is {} of each cycle (open {} and close {} of {})",
        workers(fewest.at.workers?),
        share(&first),
        in_us(first.open_ns),
        in_us(first.close_ns),
        in_us(first.cycle_ns),
    );
    if fewest.at.workers != most.at.workers {
        text += &format!(
            ", with {} {} of {}",
            workers(most.at.workers?),
            share(&last),
            in_us(last.cycle_ns),
        );
    }
    text += &match first.session_share() >= MOSTLY {
        true => format!(
            "; with a session that is kept open a lock would take about {}",
            in_us(rest_ns)
        ),
        false => "; keeping the session open would save less than half of that".to_owned(),
    };
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closing::tests::planned;
    use crate::made::run_of;
    use jostle_model::record::{At, Phase, Times, Waits};

    /// Three runs, whose sessions take so many microseconds to open and to close beside 15
    /// for the lock.
    fn runs(workers: u64, open_us: f64, close_us: f64) -> Vec<Run> {
        let of = |us: f64| Distribution {
            count: 500,
            mean: us * 1e3,
            percentiles: [("p99".to_owned(), (us * 2e3) as u64)].into(),
            ..Distribution::default()
        };
        let cycle_us = open_us + close_us + 15.0;
        let window_s = 500.0 * cycle_us / 1e6;
        let at = At {
            workers: Some(workers),
            operations: Some(500),
            ..At::default()
        };
        let run = |block: u32| Run {
            operations: 500 * workers,
            throughput_per_s: workers as f64 * 1e6 / cycle_us,
            acquire_ns: Some(Waits {
                granted: of(10.0),
                ..Waits::default()
            }),
            times: Times {
                release_ns: Some(of(5.0)),
                ..Times::default()
            },
            phases: [("open", open_us), ("close", close_us), ("cycle", cycle_us)]
                .map(|(phase, us)| Phase {
                    phase: phase.to_owned(),
                    span: of(us),
                })
                .into(),
            ..run_of("redis", Workload::Churn, at, block, window_s)
        };
        (1..=3).map(run).collect()
    }

    fn said(runs: &[Run]) -> String {
        planned(Plan::of(Workload::Churn), runs, "Session")
    }

    #[test]
    fn a_session_that_is_most_of_a_cycle_is_worth_keeping() {
        let mut all = runs(1, 210.0, 75.0);
        all.extend(runs(2, 400.0, 85.0));
        assert_eq!(
            said(&all),
            "With 1 worker the session is 95 % of each cycle (open 210 us and close 75 us of \
             300 us), with 2 workers 97 % of 500 us; with a session that is kept open a lock \
             would take about 15 us."
        );
        let cheap = said(&runs(1, 2.0, 1.0));
        assert!(
            cheap.ends_with(
                "(open 2.0 us and close 1.0 us of 18 us); keeping the session open would save \
                 less than half of that."
            ),
            "{cheap}"
        );
    }

    #[test]
    fn sessions_that_failed_to_open_are_no_quick_cycles() {
        let mut runs = runs(1, 210.0, 75.0);
        runs[1].around.errors = [("EPROTO".to_owned(), 1)].into();
        runs[1].around.messages = vec!["open: cannot connect".to_owned()];
        assert_eq!(said(&runs), "");
    }
}
