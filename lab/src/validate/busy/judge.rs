//! Whether the bound held: a pure function of the runs.
//!
//! - A session is one kind with hogs in one place: blocks of runs that were left alone
//!   and runs beside a hog of each dose, in another order in each block. A run beside a
//!   hog and the one next to it that was left alone are a pair.
//! - The true shift of a trial is undisturbed over disturbed speed: Hodges-Lehmann over
//!   the pairs, with its interval (`stats::ratio`).
//! - The bound is what the disturbed runs alone say. A *miss*: the interval of the true
//!   shift lies wholly outside of it.
//! - Where something else used more than 3 % of the CPUs in a run that was left alone,
//!   its pair is not used; a trial needs six pairs.

use super::kinds::{Beside, Kind};
use super::{PAIRS, Run};
use jostle_model::record::{Is, Point};
use jostle_stats::checks::{Evidence, verdict};
use jostle_stats::harm;
use jostle_stats::ratio::{Ratio, paired};
use std::collections::BTreeMap;

/// Share of the CPUs that others may use in a run that was left alone.
const QUIET: f64 = 0.03;

/// Shifts of which the bound's tightness is asked.
pub(super) const MOVED: f64 = 0.03;

/// One kind beside one hog.
#[derive(Debug)]
pub(super) struct Trial<'a> {
    pub session: u64,
    pub kind: &'a Kind,
    pub beside: Beside,
    /// Per cent of one CPU.
    pub dose: u64,
    /// Undisturbed over disturbed speed.
    pub shift: Ratio,
    /// The lowest and the highest that it may be; None: nothing was said.
    pub bound: Option<[f64; 2]>,
    /// The verdict of the disturbed runs.
    pub verdict: Is,
}

impl Trial<'_> {
    pub(super) fn is_miss(&self) -> bool {
        let outside = |[low, high]: [f64; 2]| self.shift.low > high || self.shift.high < low;
        self.bound.is_some_and(outside)
    }

    pub(super) fn has_moved(&self) -> bool {
        (self.shift.ratio - 1.0).abs() >= MOVED
    }

    /// How many times as far as the shift the bound reaches on the shift's side; None
    /// where nothing moved or nothing was said.
    pub(super) fn looseness(&self) -> Option<f64> {
        let [low, high] = self.bound?;
        let shift = self.shift.ratio - 1.0;
        let reach = if shift > 0.0 { high - 1.0 } else { low - 1.0 };
        self.has_moved().then(|| reach / shift)
    }
}

/// All trials with enough pairs.
pub(super) fn trials<'a>(kinds: &'a [Kind], runs: &[Run]) -> Vec<Trial<'a>> {
    let mut sessions: BTreeMap<u64, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        sessions.entry(run.session).or_default().push(run);
    }
    let each = sessions.values().flat_map(|runs| session(kinds, runs));
    each.collect()
}

fn session<'a>(kinds: &'a [Kind], runs: &[&Run]) -> Vec<Trial<'a>> {
    let kind = kinds.iter().find(|kind| kind.name == runs[0].kind);
    let Some(kind) = kind else {
        return Vec::new();
    };
    let mut pairs: BTreeMap<u64, Vec<[&Run; 2]>> = BTreeMap::new();
    for (nth, run) in runs.iter().enumerate() {
        let Some(hog) = &run.hog else { continue };
        let beside = [nth.checked_sub(1), Some(nth + 1)].into_iter().flatten();
        let mut beside = beside.filter_map(|nth| runs.get(nth));
        if let Some(alone) = beside.find(|run| run.hog.is_none() && is_quiet(&run.point)) {
            pairs.entry(hog.percent).or_default().push([alone, run]);
        }
    }
    let enough = pairs.iter().filter(|(_, pairs)| pairs.len() >= PAIRS);
    enough
        .filter_map(|(dose, pairs)| trial(kind, *dose, pairs))
        .collect()
}

fn trial<'a>(kind: &'a Kind, dose: u64, pairs: &[[&Run; 2]]) -> Option<Trial<'a>> {
    let speeds = pairs.iter().filter_map(|[alone, beside]| {
        let speed = |run: &Run| kind.speed.of(&run.point);
        Some((speed(beside)?, speed(alone)?))
    });
    let shift = paired(&speeds.collect::<Vec<_>>())?;
    let disturbed: Vec<&Point> = pairs.iter().map(|[_, beside]| &beside.point).collect();
    let [_, first] = pairs.first()?;
    let evidence = Evidence {
        experiment: &first.experiment,
        runs: &disturbed,
    };
    let bound = harm::bound(&first.experiment, &disturbed);
    Some(Trial {
        session: first.session,
        kind,
        beside: first.beside,
        dose,
        shift,
        bound: bound.map(|harm| [harm.low, harm.high]),
        verdict: verdict(&evidence).is,
    })
}

/// Whether nothing else ran in it, as far as that was seen.
pub(super) fn is_quiet(point: &Point) -> bool {
    let others = point.accounts.as_ref().and_then(|accounts| {
        let offered_s = accounts.between_s * accounts.cpus as f64;
        Some(accounts.others_s? / offered_s)
    });
    others.is_none_or(|share| share <= QUIET)
}

#[cfg(test)]
mod tests {
    use super::super::kinds::kinds;
    use super::super::tests::run;
    use super::*;
    use jostle_model::record::Accounts;

    /// Six blocks of one run left alone and one beside a hog of 20 %.
    fn runs(alone: f64, beside: f64) -> Vec<Run> {
        let pair = |block: u32| {
            [
                run(block * 2, None, alone),
                run(block * 2 + 1, Some(20), beside),
            ]
        };
        (0..6).flat_map(pair).collect()
    }

    fn found(runs: &[Run]) -> Option<(f64, u64)> {
        let kinds = kinds();
        let trials = trials(&kinds, runs);
        trials.first().map(|trial| (trial.shift.ratio, trial.dose))
    }

    #[test]
    fn the_shift_is_undisturbed_over_disturbed_speed() {
        let (shift, dose) = found(&runs(120.0, 100.0)).unwrap();
        assert!((shift - 1.2).abs() < 1e-9 && dose == 20, "{shift} {dose}");
    }

    #[test]
    fn a_trial_needs_six_pairs_of_one_session_with_quiet_halves() {
        assert_eq!(found(&runs(120.0, 100.0)[..10]), None);
        let mut elsewhere = runs(120.0, 100.0);
        elsewhere[10..].iter_mut().for_each(|run| run.session = 9);
        assert_eq!(found(&elsewhere), None);
        let busy = |others_s| {
            let mut runs = runs(120.0, 100.0);
            // The last has no other neighbour that was left alone.
            runs[0].point.accounts = Some(Box::new(Accounts {
                between_s: 1.0,
                cpus: 2,
                others_s: Some(others_s),
                ..Accounts::default()
            }));
            found(&runs)
        };
        // The run after it takes the place of the one before.
        assert!(busy(0.1).is_some());
        let mut last = runs(120.0, 100.0);
        last[10].point.accounts = Some(Box::new(Accounts {
            between_s: 1.0,
            cpus: 2,
            others_s: Some(0.1),
            ..Accounts::default()
        }));
        assert_eq!(found(&last), None);
        last[10].point.accounts.as_mut().unwrap().others_s = Some(0.05);
        assert!(found(&last).is_some());
        // Nothing is known of others: not held against it.
        last[10].point.accounts.as_mut().unwrap().others_s = None;
        assert!(found(&last).is_some());
    }

    fn trial(shift: [f64; 3], bound: Option<[f64; 2]>) -> Trial<'static> {
        let kinds: &'static [Kind] = Box::leak(Box::new(kinds()));
        let [low, ratio, high] = shift;
        let pairs = [(1.0, ratio); 6];
        Trial {
            session: 1,
            kind: &kinds[0],
            beside: Beside::Other,
            dose: 5,
            shift: Ratio {
                low,
                high,
                ..paired(&pairs).unwrap()
            },
            bound,
            verdict: Is::Valid,
        }
    }

    #[test]
    fn a_miss_is_an_interval_wholly_outside_of_the_bound() {
        let table = [
            // shift low, estimate, high; bound; miss
            ([1.1, 1.2, 1.3], Some([1.0, 1.4]), false),
            ([1.1, 1.2, 1.3], Some([1.0, 1.15]), false), // they overlap
            ([1.1, 1.2, 1.3], Some([1.0, 1.05]), true),
            ([0.7, 0.8, 0.9], Some([0.95, 1.05]), true), // a hog that made it faster
            ([0.7, 0.8, 0.9], Some([0.75, 1.05]), false),
            ([1.1, 1.2, 1.3], None, false), // nothing was said
        ];
        for (shift, bound, is_miss) in table {
            assert_eq!(
                trial(shift, bound).is_miss(),
                is_miss,
                "{shift:?} {bound:?}"
            );
        }
    }

    #[test]
    fn looseness_is_asked_on_the_side_of_the_shift_where_it_moved() {
        let of = |shift: f64, bound| trial([shift; 3], Some(bound)).looseness();
        let close = |found: Option<f64>, to: f64| (found.unwrap() - to).abs() < 1e-9;
        assert!(close(of(1.1, [0.5, 1.2]), 2.0));
        assert!(close(of(0.9, [0.7, 9.0]), 3.0));
        assert_eq!(of(1.02, [0.5, 1.5]), None);
        assert_eq!(trial([1.5; 3], None).looseness(), None);
    }
}
