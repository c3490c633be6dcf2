//! The machine's change between two sessions, and the ratio that remains without it.
//!
//! An operation's time is a mix of bare acts of the machine ([`Part`]) and of time that no
//! machine hastens (sleeps, holds, other hosts). If the mix is unknown, a ratio counts as
//! different only if it is different under every mix. The extremes over all mixes are mixes
//! of a single part.

use crate::figures::Figure;
use crate::harm::upper_limit;
use crate::intervals::median;
use crate::ratio::{Ends, Ratio, nearest, outcome, unpaired_within};
use crate::summary::PointSummary;
use jostle_model::Plan;
use jostle_model::plan::Workload;
use jostle_model::record::{Anchor, Run};
use std::collections::HashSet;

/// One of the anchor's acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A loop's step.
    Step,
    /// A system call.
    Call,
    /// A wake-up.
    Wake,
    /// A cache line's way.
    Line,
}

impl Part {
    /// Its time, in nanoseconds; None of a line with a single CPU.
    pub fn ns(self, anchor: &Anchor) -> Option<f64> {
        match self {
            Part::Step => Some(anchor.step_ns),
            Part::Call => Some(anchor.call_ns),
            Part::Wake => Some(anchor.wake_ns),
            Part::Line => anchor.line_ns,
        }
    }
}

/// A mix of parts that a figure may be made of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mix {
    /// The parts that may have a share.
    pub parts: Vec<Part>,
    /// Least and greatest share of all of them together; the rest is time that
    /// the machine does not change.
    pub share: [f64; 2],
    /// Greatest share of system calls alone.
    pub calls: f64,
}

/// Two runs were made in the same state of the machine if changes of loops, calls and
/// wake-ups can have moved the figure by at most this (in logarithms), for every mix. If a
/// hypervisor moves its CPUs, wake-ups change by half or threefold. A higher clock
/// frequency changes all parts alike, and does not count as another state.
const SAME_STATE: f64 = 0.1;

/// That bound for lines, which scatter by a fifth between runs and change eightfold.
const SAME_LINE: f64 = 0.4;

/// The result of a comparison by anchors.
#[derive(Clone, Debug, PartialEq)]
pub struct Anchored {
    /// The middle of what the mixes give, and an interval that holds theirs.
    pub ratio: Ratio,
    /// Runs of either side that were made in the same state.
    pub runs: [usize; 2],
    /// By how much, at least and at most, the machine alone may have moved the
    /// figure from BASE to NEW.
    pub machine: [f64; 2],
}

/// The difference between two sessions of one machine although nothing changed that anchors see, on
/// either side of their interval.
const SESSIONS: f64 = 0.02;

/// The figure of NEW over that of BASE, over the runs that can be compared. None where a
/// side has no run with an anchor, or none in a state in which the other has one.
pub fn ratio(
    plan: &Plan,
    figure: &Figure,
    points: [&PointSummary<'_>; 2],
    within: f64,
) -> Option<Anchored> {
    let ends = points.map(|point| anchored(point, figure));
    let sides = ends
        .each_ref()
        .map(|side| side.iter().map(|(run, _)| *run).collect());
    let mix = mix(plan, figure, &sides);
    let sides = in_one_state(&mix, &sides)?;
    let [base, new] = [0, 1].map(|side| {
        let kept = sides[side].iter();
        let kept: HashSet<_> = kept.map(|run| std::ptr::from_ref(*run)).collect();
        let kept = ends[side]
            .iter()
            .filter(|(run, _)| kept.contains(&std::ptr::from_ref(*run)));
        kept.map(|(_, ends)| *ends).collect::<Vec<Ends>>()
    });
    let plain = unpaired_within(&base, &new)?;
    let level = |side: &Vec<&Run>, part: Part| {
        let all = side.iter();
        let all: Option<Vec<f64>> = all.map(|run| part.ns(&run.around.anchor?)).collect();
        median(&all?)
    };
    let moved = |part: Part| Some(level(&sides[1], part)? / level(&sides[0], part)?);
    let factors: Vec<f64> = mix
        .factors(moved)
        .map(|(_, factor)| factor.powf(figure.machine()))
        .collect();
    Some(Anchored {
        ratio: hull(&plain, &factors, within),
        runs: sides.map(|side| side.len()),
        machine: spread(&factors)?,
    })
}

/// The least and the greatest; None of nothing.
fn spread(values: &[f64]) -> Option<[f64; 2]> {
    let least = values.iter().copied().reduce(f64::min)?;
    let most = values.iter().copied().reduce(f64::max)?;
    Some([least, most])
}

impl Mix {
    /// The factors by which times change where each part changes as `moved`
    /// says, one for each extreme of the mix; parts that are not known are left
    /// out. Calls have at most their own share, and another part has the rest, or
    /// none if that much may be missing.
    fn factors<'a>(
        &'a self,
        moved: impl Fn(Part) -> Option<f64> + 'a,
    ) -> impl Iterator<Item = (Part, f64)> + 'a {
        let call = moved(Part::Call).unwrap_or(1.0);
        let of_calls = move |share| of_share(call, share);
        let [least, most] = self.share;
        let alone = (self.calls >= least).then(|| (Part::Call, of_calls(self.calls.min(most))));
        let others = self.parts.iter().filter(|part| **part != Part::Call);
        let known = others.filter_map(move |part| Some((*part, moved(*part)?)));
        let mixed = known.flat_map(move |(part, moved)| {
            self.share.into_iter().flat_map(move |share| {
                let calls = share.min(self.calls);
                let beside_calls = of_calls(calls) * of_share(moved, share - calls);
                [of_share(moved, share), beside_calls].map(|factor| (part, factor))
            })
        });
        alone.into_iter().chain(mixed)
    }
}

/// The factor of the whole time if a part takes `moved` times as long. `share` is the
/// part's largest share, which it has in the session where it is more expensive: before the
/// change if it shrinks, after it if it grows.
fn of_share(moved: f64, share: f64) -> f64 {
    match moved > 1.0 {
        true => 1.0 / (1.0 - share * (1.0 - 1.0 / moved)),
        false => 1.0 - share * (1.0 - moved),
    }
}

/// Runs that can be compared, and have the figure and an anchor.
fn anchored<'a>(point: &PointSummary<'a>, figure: &Figure) -> Vec<(&'a Run, Ends)> {
    let mut runs = point.comparable(figure);
    runs.retain(|(run, [_, x, _])| run.around.anchor.is_some() && x.is_finite() && *x > 0.0);
    runs
}

/// The parts that may have a share in the figure, and the limits of their total share.
///
/// One worker without a server wakes nobody and shares no line. Without hold,
/// idle, polls, timeouts and foreign hosts there is nothing but the machine's
/// own acts. With a hold that bounds the throughput, they have what is missing
/// to the ideal.
fn mix(plan: &Plan, figure: &Figure, sides: &[Vec<&Run>; 2]) -> Mix {
    let runs = || sides.iter().flatten();
    let connects = plan.workload == Workload::Connect;
    let alone = runs().all(|run| run.at.workers == Some(1) && run.server.is_none())
        || connects && plan.only.is_some();
    let lines = runs().all(|run| run.around.anchor.is_some_and(|a| a.line_ns.is_some()));
    let mut parts = vec![Part::Step, Part::Call];
    if !alone {
        parts.push(Part::Wake);
        parts.extend(lines.then_some(Part::Line));
    }
    // A server that is not ours may be anywhere.
    let known = !connects || plan.only.is_some() || runs().all(|run| run.server.is_some());
    let busy = |time: Option<jostle_model::Busy>| time.is_some_and(|time| time.span().0 > 0);
    // A program or a server may sleep or wait for a disk while it does a request.
    let requests =
        plan.call_timeout.is_some() || matches!(plan.workload, Workload::Rate | Workload::Spread);
    let timed = runs().any(|run| {
        !run.around.truth.is_empty()
            || run.around.setup.contains_key("poll_interval_ns")
            || run.server.is_some_and(|server| server.cpu_s.is_none())
    });
    let share = if figure.machine() == 0.0 {
        [0.0, 0.0]
    } else if !known || requests || timed || plan.acquire_timeout.is_some() {
        [0.0, 1.0]
    } else if busy(plan.hold) || busy(plan.idle) {
        [0.0, beyond_the_hold(figure, sides)]
    } else {
        [1.0, 1.0]
    };
    Mix {
        parts,
        share,
        calls: calls(figure, sides),
    }
}

/// The greatest share of system calls in a throughput's time: one worker makes none while it is
/// in user mode. The kernel samples the modes: the upper 95 % limit of the ticks at which the
/// worker was elsewhere, of the side that has more. With several workers the one for whom the
/// others wait may be in a call all the time.
fn calls(figure: &Figure, sides: &[Vec<&Run>; 2]) -> f64 {
    let of_side = |side: &Vec<&Run>| {
        let mut ticks = [0.0; 2];
        for run in side.iter().filter(|run| run.at.workers == Some(1)) {
            let per_s = run.around.machine.ticks_per_s as f64;
            let elsewhere_s = (run.window.window_s - run.cpu.cpu_user_s?).max(0.0);
            ticks[0] += elsewhere_s * per_s;
            ticks[1] += run.window.window_s * per_s;
        }
        let [elsewhere, all] = ticks;
        (figure.machine() < 0.0 && all > 0.0).then(|| (upper_limit(elsewhere) / all).min(1.0))
    };
    let shares: Option<Vec<f64>> = sides.iter().map(of_side).collect();
    shares.map_or(1.0, |shares| shares.into_iter().fold(0.0, f64::max))
}

/// The share of the time that is not hold: what a throughput lacks to the ideal.
fn beyond_the_hold(figure: &Figure, sides: &[Vec<&Run>; 2]) -> f64 {
    let of_ideal = |side: &Vec<&Run>| {
        let shares: Option<Vec<f64>> = side.iter().map(|run| run.of_ideal).collect();
        median(&shares?)
    };
    match (
        figure.machine() < 0.0,
        of_ideal(&sides[0]),
        of_ideal(&sides[1]),
    ) {
        (true, Some(base), Some(new)) => (1.0 - base.min(new)).clamp(0.0, 1.0),
        _ => 1.0,
    }
}

/// The most runs that are tried as the middle of a state: each is related to all others.
const MOST_MIDDLES: usize = 100;

/// The runs of both sides in one state of the machine. Among the states, it picks the one
/// whose smaller side has the most runs. The choice depends on the anchors only, never on
/// the figure. A state is what is like one run; of many runs, every k-th is tried.
fn in_one_state<'a>(mix: &Mix, sides: &[Vec<&'a Run>; 2]) -> Option<[Vec<&'a Run>; 2]> {
    let like = |run: &Run| -> [Vec<&'a Run>; 2] {
        sides.each_ref().map(|side| {
            let like = side.iter().filter(|other| mix.same_state(run, other));
            like.copied().collect()
        })
    };
    let groups = middles(sides).map(like);
    let size = |[base, new]: &[Vec<&Run>; 2]| (base.len().min(new.len()), base.len() + new.len());
    groups.max_by_key(size).filter(|group| size(group).0 > 0)
}

/// Runs to be tried as the middle of a state, evenly over both sides.
fn middles<'a>(sides: &[Vec<&'a Run>; 2]) -> impl Iterator<Item = &'a Run> {
    let runs = sides[0].len() + sides[1].len();
    let each = runs.div_ceil(MOST_MIDDLES).max(1);
    sides.iter().flatten().copied().step_by(each)
}

impl Mix {
    fn same_state(&self, one: &Run, other: &Run) -> bool {
        let (Some(from), Some(to)) = (one.around.anchor, other.around.anchor) else {
            return false;
        };
        let factors = |line: bool| {
            self.factors(move |part| Some(part.ns(&to)? / part.ns(&from)?))
                .filter(move |(part, _)| (*part == Part::Line) == line)
                .map(|(_, factor)| factor)
        };
        // Factors rather than their logarithms, and no list of them: this is asked of each
        // run, for each of [`MOST_MIDDLES`].
        let least = factors(false).fold(f64::INFINITY, f64::min);
        let most = factors(false).fold(0.0, f64::max);
        let middle = (least * most).sqrt();
        let off = |line: f64| (line / middle).max(middle / line);
        let off = factors(true).map(off).fold(1.0, f64::max);
        (least..=least * SAME_STATE.exp()).contains(&most) && off <= SAME_LINE.exp()
    }
}

/// The plain ratio divided by the machine's factor under each mix: the interval from the
/// lowest lower end to the highest upper end. It counts as different only if it is under
/// all mixes.
fn hull(plain: &Ratio, factors: &[f64], within: f64) -> Ratio {
    let all = [plain.ratio, plain.low, plain.high, plain.nearest];
    let factors = factors.iter();
    let under: Vec<[f64; 4]> = factors.map(|factor| all.map(|x| x / factor)).collect();
    let extreme = |of: fn(&[f64; 4]) -> f64, pick: fn(f64, f64) -> f64| {
        under.iter().map(of).reduce(pick).unwrap_or(f64::NAN)
    };
    let (least, most) = (extreme(|u| u[0], f64::min), extreme(|u| u[0], f64::max));
    let (low, high) = (extreme(|u| u[1], f64::min), extreme(|u| u[2], f64::max));
    let [low, high] = [low / (1.0 + SESSIONS), high * (1.0 + SESSIONS)];
    // The estimate nearest to 1 decides for all mixes.
    let nearest = nearest(extreme(|u| u[3], f64::min), extreme(|u| u[3], f64::max));
    Ratio {
        ratio: (least * most).sqrt(),
        low,
        high,
        nearest,
        outcome: outcome([nearest, low, high], plain.interval, within),
        ..*plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{CPU, THROUGHPUT, headline};
    use jostle_model::connect::Only;
    use jostle_model::record::{Cpu, Server, Window};

    #[test]
    fn what_a_program_or_a_service_takes_need_not_be_the_machine_s_speed() {
        let share_of = |plan: &Plan| {
            let run = Run::default();
            mix(plan, headline(plan), &[vec![&run], vec![&run]]).share
        };
        let stream = Plan::of(Workload::Stream);
        let requests = Plan {
            call_timeout: Some(jostle_model::Nanos::from_millis(10_000)),
            ..stream.clone()
        };
        assert_eq!(share_of(&stream), [1.0, 1.0]);
        for plan in [requests, Plan::of(Workload::Rate)] {
            assert_eq!(share_of(&plan), [0.0, 1.0]);
        }
    }

    /// A run of this many workers, of which one was in user mode for so much of a second.
    fn in_user_mode(workers: u64, cpu_user_s: Option<f64>) -> Run {
        let mut run = Run {
            window: Window {
                window_s: 1.0,
                ..Window::default()
            },
            cpu: Cpu {
                cpu_user_s,
                ..Cpu::default()
            },
            ..Run::default()
        };
        run.at.workers = Some(workers);
        run.around.machine.ticks_per_s = 100;
        run
    }

    #[test]
    fn calls_have_no_share_of_the_time_in_user_mode() {
        let none = in_user_mode(1, Some(1.0));
        let limit =
            |run: &Run, runs: usize, figure| calls(figure, &[vec![&none; 9], vec![run; runs]]);
        // No tick of 900, and 200 of 1000 on one side.
        assert!((0.002..0.004).contains(&limit(&none, 9, THROUGHPUT)));
        let some = in_user_mode(1, Some(0.8));
        assert!((0.21..0.24).contains(&limit(&some, 10, THROUGHPUT)));
        // A third of a second is too little to tell.
        let short = Run {
            window: Window {
                window_s: 0.33,
                ..none.window.clone()
            },
            cpu: Cpu {
                cpu_user_s: Some(0.33),
                ..none.cpu.clone()
            },
            ..none.clone()
        };
        assert!(limit(&short, 1, THROUGHPUT) > 0.08);
        for unknown in [in_user_mode(2, Some(1.0)), in_user_mode(1, None)] {
            assert_eq!(limit(&unknown, 9, THROUGHPUT), 1.0);
        }
        assert_eq!(limit(&none, 9, CPU), 1.0);
    }

    #[test]
    fn a_mix_has_calls_up_to_their_share_and_another_part_for_the_rest() {
        let moved = |part: Part| match part {
            Part::Call => Some(2.0),
            Part::Step => Some(1.0),
            _ => None,
        };
        let most = |share: [f64; 2], calls: f64| {
            let mix = Mix {
                parts: vec![Part::Step, Part::Call, Part::Line],
                share,
                calls,
            };
            let factors: Vec<f64> = mix.factors(moved).map(|(_, factor)| factor).collect();
            spread(&factors).unwrap()
        };
        // The share is that of the session in which calls take longer.
        let tenth = 1.0 / 0.95;
        for share in [[0.0, 1.0], [1.0, 1.0]] {
            assert_eq!(most(share, 1.0), [1.0, 2.0]);
            assert_eq!(most(share, 0.1), [1.0, tenth]);
        }
        assert_eq!(most([0.0, 0.1], 1.0), [1.0, tenth]);
    }

    #[test]
    fn every_run_is_tried_as_the_middle_of_a_state_or_a_hundred_of_many() {
        let run = Run::default();
        for (base, new, tried) in [(4, 4, 8), (50, 50, 100), (50, 51, 51), (9_990, 10_010, 100)] {
            let sides = [vec![&run; base], vec![&run; new]];
            assert_eq!(middles(&sides).count(), tried, "{base} and {new}");
        }
    }

    #[test]
    fn connections_are_the_machine_s_acts_where_their_server_is_ours() {
        let served = Run {
            server: Some(Server {
                cpu_s: Some(1.0),
                ..Server::default()
            }),
            ..Run::default()
        };
        let mix_of = |only: Option<Only>, run: &Run| {
            let plan = Plan {
                only,
                ..Plan::of(Workload::Connect)
            };
            let figure = headline(&plan);
            let mix = mix(&plan, figure, &[vec![run], vec![run]]);
            (figure.name, mix.parts.contains(&Part::Wake), mix.share)
        };
        let (name, wakes, share) = mix_of(None, &served);
        assert_eq!((name, wakes, share), ("connect_p50_ns", true, [1.0, 1.0]));
        let foreign = Run::default();
        let (name, wakes, share) = mix_of(None, &foreign);
        assert_eq!((name, wakes, share), ("connect_p50_ns", true, [0.0, 1.0]));
        let (name, wakes, share) = mix_of(Some(Only::Bind), &foreign);
        assert_eq!((name, wakes, share), ("bind_p50_ns", false, [1.0, 1.0]));
    }
}
