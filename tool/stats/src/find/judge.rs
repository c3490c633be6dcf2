//! The outcome of one step, from the record of its run.
//!
//! A goal is a share of the planned requests that may miss it, and a request without an answer
//! misses it. A miss counts against the target only if it stands without the requests that were
//! sent late, and without those that waited for a slot although the target answered in time.
//! Lateness cannot make a step meet a goal, since the response counts from the intended start:
//! what is met is met.

use super::{Limit, Outcome, Role};
use crate::histogram::Histogram;
use crate::open_loop::pooled;
use jostle_model::Nanos;
use jostle_model::objective::{Goal, Objective};
use jostle_model::record::{LimitedBy, Run};

/// Requests that may miss a goal in a step, so that their number is known to a fifth; of a
/// base load, as few as a percentile needs.
const BEYOND: f64 = 30.0;
const BEYOND_BASE: f64 = 10.0;

/// The least number for any step: a percentile of fewer says nothing about a load.
const LEAST_REQUESTS: u64 = 1_000;

/// A shorter window is decided by where it falls.
const LEAST_WINDOW: Nanos = Nanos::from_millis(500);

/// Lateness that counts, as a share of the goal's time; of the mean time for which a worker
/// waits for a CPU, as of the check `lag`.
const LATE: f64 = 0.1;
const QUEUED: f64 = 0.25;

/// How much slower a target answers that is itself the reason why all slots are taken.
const SLOWER: f64 = 2.0;

/// Requests of a step.
pub fn requests(objective: &Objective, role: Role) -> u64 {
    let beyond = if role == Role::Base {
        BEYOND_BASE
    } else {
        BEYOND
    };
    let needed = objective.0.iter();
    let needed = needed.map(|goal| (beyond / goal.most()).round() as u64);
    needed.max().unwrap_or(0).max(LEAST_REQUESTS)
}

/// The window of a step at this load. Random arrivals may be a twentieth fewer.
pub fn window(objective: &Objective, rate: u64, role: Role) -> Nanos {
    let span_s = 1.05 * requests(objective, role) as f64 / rate.max(1) as f64;
    Nanos((span_s * 1e9) as u64).max(LEAST_WINDOW)
}

/// The median time from sending to answer.
pub(super) fn service_p50(run: &Run) -> Option<f64> {
    Some(pooled(&[run], "service_ns").quantile(0.5)? as f64)
}

/// A run's outcome; None of one without requests. `idle_ns`: the median service time at the first
/// load that was met.
pub fn judge(objective: &Objective, run: &Run, idle_ns: Option<f64>) -> Option<Outcome> {
    let step = Judged::judge(run, idle_ns)?;
    let mut void = None;
    for goal in &objective.0 {
        match step.goal(*goal) {
            Outcome::Met => {}
            Outcome::Missed => return Some(Outcome::Missed),
            by => void = void.or(Some(by)),
        }
    }
    Some(void.unwrap_or(Outcome::Met))
}

/// The measured figure of a goal: the percentile of the response, None where it is beyond all
/// answers; of errors, their share.
pub fn tail(goal: Goal, run: &Run) -> Option<f64> {
    let step = Judged::judge(run, None)?;
    if goal.within.is_none() {
        return Some(step.missed(goal));
    }
    let rank = (1.0 - goal.most()) * step.planned / step.response.count().max(1) as f64;
    let ns = (rank <= 1.0).then(|| step.response.quantile(rank))??;
    Some(ns as f64)
}

/// A run, as far as it matters.
struct Judged<'a> {
    run: &'a Run,
    planned: f64,
    response: Histogram,
    idle_ns: Option<f64>,
}

impl Judged<'_> {
    fn judge(run: &Run, idle_ns: Option<f64>) -> Option<Judged<'_>> {
        let planned = run.open_loop.as_ref()?.planned;
        (planned > 0).then(|| Judged {
            run,
            planned: planned as f64,
            response: pooled(&[run], "response_ns"),
            idle_ns,
        })
    }

    /// Share of the planned requests whose time of this name is longer.
    fn longer(&self, name: &str, than_ns: f64) -> f64 {
        let all = pooled(&[self.run], name);
        all.share_over(than_ns as u64) * all.count() as f64 / self.planned
    }

    /// Share of the planned requests that missed a goal.
    fn missed(&self, goal: Goal) -> f64 {
        let answered = self.response.count() as f64 / self.planned;
        let late = goal
            .within
            .map_or(0.0, |within| self.longer("response_ns", within.0 as f64));
        (1.0 - answered + late).max(0.0)
    }

    fn goal(&self, goal: Goal) -> Outcome {
        let missed = self.missed(goal);
        if missed < goal.most() {
            return Outcome::Met;
        }
        let stands = |without: f64| missed - without >= goal.most();
        match goal.within {
            _ if !stands(self.sent_late(goal)) || self.reads_late(goal) => {
                let machine = self.run.verdict.limited_by == Some(LimitedBy::Machine);
                Outcome::Void(if machine {
                    Limit::Machine
                } else {
                    Limit::Generator
                })
            }
            _ if stands(self.waited(goal)) || self.is_slow(goal) => Outcome::Missed,
            _ => Outcome::Void(Limit::Slots),
        }
    }

    /// Share of the requests that were sent late or not at all although a slot was free.
    fn sent_late(&self, goal: Goal) -> f64 {
        let open_loop = self.run.open_loop.as_ref();
        let unsent = open_loop.map_or(0, |open| open.dropped_with_slot);
        let late = goal.within.map_or(0.0, |within| {
            self.longer("generator_lag_ns", LATE * within.0 as f64)
        });
        unsent as f64 / self.planned + late
    }

    /// Whether workers waited so long for a CPU that answers were read late.
    fn reads_late(&self, goal: Goal) -> bool {
        let waited_s = self
            .run
            .cpu
            .runqueue_wait_s
            .filter(|_| self.run.server.is_some());
        let each_ns = waited_s.map(|s| 1e9 * s / self.run.operations.max(1) as f64);
        let most_ns = goal.within.map(|within| QUEUED * within.0 as f64);
        each_ns.zip(most_ns).is_some_and(|(each, most)| each > most)
    }

    /// Share of the requests that waited for a slot, or were dropped for want of one.
    fn waited(&self, goal: Goal) -> f64 {
        let dropped = self.run.open_loop.as_ref();
        let dropped = dropped.map_or(0, |open| open.dropped - open.dropped_with_slot);
        let waited = goal.within.map_or(0.0, |within| {
            self.longer("target_lag_ns", LATE * within.0 as f64)
        });
        dropped as f64 / self.planned + waited
    }

    /// Whether the requests that it was sent show by themselves that the target is slow: by
    /// the goal or, where that has no time, by what it took at a load that was met.
    fn is_slow(&self, goal: Goal) -> bool {
        match goal.within {
            Some(within) => {
                let service = pooled(&[self.run], "service_ns");
                service.share_over(within.0) >= goal.most()
            }
            None => {
                let slower =
                    |idle: f64| service_p50(self.run).is_some_and(|ns| ns >= SLOWER * idle);
                self.idle_ns.is_none_or(slower)
            }
        }
    }
}
