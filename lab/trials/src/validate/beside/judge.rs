//! The figures printed beside a plant, held against the controls around it.
//!
//! *The truth* of a figure is what five of the six controls span, each by the median of its runs;
//! the sixth is left out, each in turn, and what a trial misses is the mean over the six. The
//! control that is left out is held against the same five, as if it were the session beside the
//! plant: what is missed there, nothing disturbed. A trial does not count for a figure whose
//! controls lie apart, or whose controls others disturbed.
//!
//! *What is printed* is a claim unless a check made it SUSPECT: then the reader was warned, and
//! the figure is neither held nor missed.

use super::{CONTROLS, Expected, Session};
use jostle_model::record::{Claim as Of, Run, Status};
use jostle_stats::figures::{self, Figure as Kept};
use jostle_stats::harm::BEARABLE;
use jostle_stats::intervals::median;
use jostle_stats::open_loop;
use jostle_stats::summary::{OneBound, PointSummary, summarize};

/// Controls agree within this. A free pair's differ by 7 to 20 %, a service's by 10 to 60 %,
/// with nothing beside them: what is within their span is true of them.
const APART: f64 = 0.30;
/// Share of the CPUs that other programs may have used in a control, in the mean over its time:
/// within what a control scatters.
pub(super) const QUIET: f64 = 0.03;

/// A figure printed of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    Throughput,
    P50,
    P99,
    Cpu,
}

impl Figure {
    pub(super) const ALL: [Figure; 4] = [Figure::Throughput, Figure::P50, Figure::P99, Figure::Cpu];

    pub(super) fn name(self) -> &'static str {
        match self {
            Figure::Throughput => "throughput",
            Figure::P50 => "p50",
            Figure::P99 => "p99",
            Figure::Cpu => "CPU per operation",
        }
    }

    fn is_time(self) -> bool {
        matches!(self, Figure::P50 | Figure::P99)
    }

    /// The figure that it is a claim about.
    fn claim(self) -> Of {
        match self.is_time() {
            true => Of::Distribution,
            false => Of::Absolute,
        }
    }

    /// Its value over these runs. Of requests in an open loop a percentile is that of the
    /// response, of others that of an acquisition or of a request.
    fn over(self, runs: &[&Run]) -> Option<f64> {
        let name = if self == Figure::P50 { "p50" } else { "p99" };
        if self.is_time() && runs.iter().any(|run| run.open_loop.is_some()) {
            let response = open_loop::response(runs, name)?;
            return (!response.at_least).then_some(response.ns);
        }
        let of: [&Kept; 2] = match self {
            Figure::Throughput => [figures::THROUGHPUT; 2],
            Figure::Cpu => [figures::CPU; 2],
            Figure::P50 => [figures::ACQUIRE_P50, figures::SERVICE_P50],
            Figure::P99 => [figures::ACQUIRE_P99, figures::SERVICE_P99],
        };
        let medians = of.map(|figure| median(runs.iter().filter_map(|run| (figure.of)(run))));
        medians.into_iter().flatten().next()
    }
}

/// A claim printed about a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Claim {
    Nothing,
    /// A check warns of it.
    Flagged,
    Exactly(f64),
    /// The undisturbed figure lies within.
    Within([f64; 2]),
}

impl Claim {
    fn from_point(point: Option<&PointSummary<'_>>, figure: Figure) -> Claim {
        let Some(point) = point else {
            return Claim::Nothing;
        };
        if point.verdict.is == Status::Invalid {
            let bound = point
                .one_bound_per_s()
                .filter(|_| figure == Figure::Throughput);
            return match bound {
                None => Claim::Nothing,
                Some(OneBound::AtLeast(low)) => Claim::Within([low, f64::INFINITY]),
                Some(OneBound::AtMost(high)) => Claim::Within([0.0, high]),
            };
        }
        let value = match figure {
            Figure::Throughput => point.median(figures::THROUGHPUT),
            Figure::Cpu => point.median(figures::CPU),
            _ if !point.times_are_usable() => None,
            _ => figure.over(&point.timed),
        };
        let Some(value) = value else {
            return Claim::Nothing;
        };
        let bound = point.harm.filter(|harm| harm.off() >= BEARABLE);
        let bound = bound.filter(|_| figure == Figure::Throughput);
        let warns = |check: &str| check != "neighbours" || bound.is_none();
        let mut reasons = point.verdict.reasons.iter();
        match bound {
            _ if reasons.any(|r| r.claims.contains(&figure.claim()) && warns(&r.check)) => {
                Claim::Flagged
            }
            Some(harm) => Claim::Within([value * harm.low, value * harm.high]),
            None => Claim::Exactly(value),
        }
    }

    /// Whether it contradicts what these controls span; None if nothing is claimed.
    fn misses(self, controls: impl Iterator<Item = f64>) -> Option<bool> {
        let [least, most] = controls.fold([f64::INFINITY, 0.0], |[least, most], value| {
            [value.min(least), value.max(most)]
        });
        match self {
            Claim::Nothing | Claim::Flagged => None,
            Claim::Exactly(value) => {
                Some(!((1.0 - BEARABLE) * least..=(1.0 + BEARABLE) * most).contains(&value))
            }
            Claim::Within([low, high]) => Some(low > most || high < least),
        }
    }
}

/// The outcome of a figure in a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Outcome {
    /// The controls were disturbed, lie apart, or do not have it.
    Discarded,
    Nothing,
    Flagged,
    Claimed(Missed),
}

/// The share of the six ways to leave a control out in which a claim was false.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Missed {
    pub beside: f64,
    /// Of the controls that claim something.
    pub control: f64,
}

impl Missed {
    pub(super) fn more(self) -> f64 {
        self.beside - self.control
    }
}

/// A trial.
#[derive(Debug)]
pub(super) struct Trial {
    pub plant: String,
    pub line: String,
    pub expected: Option<Expected>,
    /// The verdict beside the plant.
    pub is: Status,
    /// By [`Figure::ALL`].
    pub outcomes: [Outcome; 4],
}

/// The seven sessions of each whole trial. One that was cut off is none, nor is one that shares
/// the controls of such a trial.
pub(super) fn trials(sessions: &[Session]) -> Vec<Vec<&Session>> {
    let mut trials: Vec<Vec<&Session>> = Vec::new();
    for own in sessions.chunk_by(|one, other| one.trial == other.trial) {
        let last = trials
            .last()
            .filter(|last| Some(last[CONTROLS].trial) == own[0].controls_of);
        let shared = last.map_or(&[][..], |last| &last[CONTROLS + 1..]);
        let whole: Vec<&Session> = shared.iter().copied().chain(own).collect();
        if whole.len() == 2 * CONTROLS + 1 {
            trials.push(whole);
        }
    }
    trials
}

/// Every trial.
pub(super) fn judged(sessions: &[Session]) -> Vec<Trial> {
    let each = trials(sessions).into_iter();
    each.map(|trial| {
        let planted = trial[CONTROLS];
        let points = trial.iter();
        let points = points.map(|one| summarize(&one.experiment, &one.points));
        let points: Vec<Vec<PointSummary<'_>>> = points.collect();
        let printed: Vec<Printed<'_>> = trial
            .iter()
            .zip(&points)
            .map(|(session, points)| (*session, points.first()))
            .collect();
        let point = points[CONTROLS].first();
        Trial {
            plant: planted.plant.clone(),
            line: planted.line.clone(),
            expected: planted.expected,
            is: point.map_or(Status::Invalid, |point| point.verdict.is),
            outcomes: Figure::ALL.map(|figure| outcome(figure, &printed)),
        }
    })
    .collect()
}

/// A session, and what is printed of it.
type Printed<'a> = (&'a Session, Option<&'a PointSummary<'a>>);

fn outcome(figure: Figure, trial: &[Printed<'_>]) -> Outcome {
    let is_control = |printed: &&Printed<'_>| !printed.0.planted;
    let controls: Vec<&Printed<'_>> = trial.iter().filter(is_control).collect();
    let values = controls.iter().map(|(control, _)| {
        let runs = control.points.iter().filter(|run| is_quiet(control, run));
        figure.over(&runs.collect::<Vec<_>>())
    });
    let Some(values) = values.collect::<Option<Vec<f64>>>() else {
        return Outcome::Discarded;
    };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    if values.iter().any(|value| *value > least * (1.0 + APART)) {
        return Outcome::Discarded;
    }
    let claim = Claim::from_point(trial[CONTROLS].1, figure);
    let without = |out: usize| {
        let others = values.iter();
        let others = others.enumerate().filter(move |(nth, _)| *nth != out);
        others.map(|(_, value)| *value)
    };
    let share = |misses: &[bool]| {
        misses.iter().filter(|miss| **miss).count() as f64 / misses.len().max(1) as f64
    };
    let beside = (0..values.len()).map(|out| claim.misses(without(out)));
    let beside: Option<Vec<bool>> = beside.collect();
    let Some(beside) = beside else {
        return match claim {
            Claim::Flagged => Outcome::Flagged,
            _ => Outcome::Nothing,
        };
    };
    let control = controls.iter().zip(&values).enumerate();
    let control = control.filter_map(|(out, (printed, value))| {
        // Of a control of the first series nothing is kept but its rate.
        let claim = match printed.0.sitting {
            None => Claim::Exactly(*value),
            Some(_) => Claim::from_point(printed.1, figure),
        };
        claim.misses(without(out))
    });
    Outcome::Claimed(Missed {
        beside: share(&beside),
        control: share(&control.collect::<Vec<_>>()),
    })
}

/// Whether others left a control alone during this run: by the sampler, in the whole session;
/// where it has no sampler, by the kernel's ticks: what was busy beside ours, and steal.
pub(super) fn is_quiet(control: &Session, run: &Run) -> bool {
    if let Some(beside) = control.beside {
        return beside.foreign <= QUIET;
    }
    let Some(accounts) = run.around.accounts.as_deref() else {
        return false;
    };
    let ours_s = accounts.workers_s + accounts.server_s.unwrap_or(0.0) + accounts.tool_s;
    let machine = &run.around.machine;
    let busy_s = machine.busy_ticks as f64 / machine.ticks_per_s.max(1) as f64;
    let all_s = accounts.between_s * machine.cores as f64;
    busy_s - ours_s <= QUIET * all_s && super::super::stolen(run) <= QUIET
}

/// Controls beside which the sampler saw nothing, and those of them that are VALID.
pub(super) fn clean(sessions: &[Session]) -> [u64; 2] {
    let is_clean = |one: &&Session| {
        !one.planted && one.sitting.is_some() && one.beside.is_some_and(|all| all.is_quiet())
    };
    sessions
        .iter()
        .filter(is_clean)
        .fold([0; 2], |[clean, valid], one| {
            let points = summarize(&one.experiment, &one.points);
            let is_valid = points.iter().all(|point| point.verdict.is == Status::Valid);
            [clean + 1, valid + u64::from(is_valid)]
        })
}
