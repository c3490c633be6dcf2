//! The results of a fault: the figures of one run's history ([`found`]), and the summary of a
//! point's runs ([`Summary`]).

pub mod history;

pub use history::{Seen, found};

use crate::intervals::median;
use crate::summary::PointSummary;
use jostle_model::plan::Fault;
use jostle_model::record::{Delays, Recovery, ToldBy};

/// All runs of a target and fault.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The fault that struck.
    pub fault: Fault,
    /// Runs.
    pub runs: usize,
    /// Until the next grant, ascending, of the runs where one came without the owner's
    /// release.
    pub granted_ns: Vec<f64>,
    /// The median over all runs; absent where half of them or more had no such grant.
    pub median_ns: Option<f64>,
    /// The longest; absent where a run had no such grant.
    pub worst_ns: Option<f64>,
    /// The longest but for one run in a hundred; absent for fewer runs, or as above.
    pub nearly_all_ns: Option<f64>,
    /// The time taken from the next owner and the service in the longest.
    pub worst_delays: Option<Delays>,
    /// Runs in which the lock stayed its owner's, and was handed on by its release.
    pub kept: usize,
    /// Runs without any further grant.
    pub never: usize,
    /// How long that was waited for.
    pub within_ns: u64,
    /// After so long the server asks the owner's host, which has gone, whether it lives; 0: never.
    pub keepalive_s: Option<u64>,
    /// From the owner's release to the grant, where the lock was kept: median.
    pub after_release_ns: Option<f64>,
    /// From the end of the lease to the grant: least and most.
    pub after_lease_ns: Option<(i64, i64)>,
    /// From the return of what was struck to the next grant: median.
    pub after_return_ns: Option<f64>,
    /// The longest time for which two believed that they owned.
    pub two_believed_ns: Option<u64>,
    /// Runs in which the old owner's release failed, of those in which it was not the
    /// owner any more.
    pub told: Fraction,
    /// Whether its client told it, in all runs in which it was told.
    pub told_by_client: bool,
    /// Runs in which a resource that checks tokens refused its write, of those in which
    /// the next owner's came before.
    pub refused: Fraction,
    /// Runs in which waiters were served in the order in which they came.
    pub in_order: Fraction,
}

/// So many of so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fraction {
    /// Those for which it holds.
    pub count: usize,
    /// Those that can tell.
    pub of: usize,
}

impl Fraction {
    fn count(values: impl Iterator<Item = bool>) -> Fraction {
        values.fold(Fraction::default(), |so_far, value| Fraction {
            count: so_far.count + usize::from(value),
            of: so_far.of + 1,
        })
    }

    /// All, none, or neither; None where no run can tell.
    pub fn all(self) -> Option<bool> {
        match self {
            Fraction { of: 0, .. } => None,
            Fraction { count, of } if count == of => Some(true),
            Fraction { count: 0, .. } => Some(false),
            _ => None,
        }
    }
}

impl Summary {
    /// None where the runs are of another workload.
    pub fn of(point: &PointSummary<'_>) -> Option<Summary> {
        let runs = point.runs.iter();
        let runs: Vec<&Recovery> = runs.filter_map(|run| run.recovery.as_deref()).collect();
        let first = runs.first()?;
        let granted_ns = runs.iter().filter_map(|run| run.next_grant_ns);
        let mut granted_ns: Vec<f64> = granted_ns.map(|ns| ns as f64).collect();
        granted_ns.sort_by(f64::total_cmp);
        let all = granted_ns.len() == runs.len();
        let longest = runs.iter().max_by_key(|run| run.next_grant_ns);
        let kept = runs.iter().filter(|run| run.after_release_ns.is_some());
        let of = |figure: fn(&Recovery) -> Option<u64>| -> Vec<f64> {
            let values = runs.iter().filter_map(|run| figure(run));
            values.map(|ns| ns as f64).collect()
        };
        let leases = || runs.iter().filter_map(|run| run.after_lease_ns);
        let returns = runs.iter().filter_map(|run| run.after_return_ns);
        let returns: Vec<f64> = returns.map(|ns| ns as f64).collect();
        let mut told_by = runs.iter().filter_map(|run| run.told_by);
        Some(Summary {
            fault: first.fault,
            runs: runs.len(),
            median_ns: censored_median(&granted_ns, runs.len()),
            worst_ns: granted_ns.last().copied().filter(|_| all),
            nearly_all_ns: nearly_all(&granted_ns, runs.len()),
            worst_delays: longest.and_then(|run| run.delays).filter(|_| all),
            granted_ns,
            kept: kept.count(),
            never: runs
                .iter()
                .filter(|run| run.next_grant_ns.is_none() && run.after_release_ns.is_none())
                .count(),
            within_ns: first.within_ns,
            keepalive_s: runs.iter().find_map(|run| run.keepalive_s),
            after_release_ns: median(of(|run| run.after_release_ns)),
            after_lease_ns: leases().min().zip(leases().max()),
            after_return_ns: median(&returns),
            two_believed_ns: runs.iter().filter_map(|run| run.two_believed_ns).max(),
            told: Fraction::count(runs.iter().filter_map(|run| run.told)),
            told_by_client: told_by.all(|by| by == ToldBy::Client),
            refused: Fraction::count(runs.iter().filter_map(|run| run.write_refused)),
            in_order: Fraction::count(runs.iter().filter_map(|run| run.in_order)),
        })
    }
}

/// The median of `runs` values of which these, ascending, are known, and all others are
/// greater; None where it is one of the others.
fn censored_median(known: &[f64], runs: usize) -> Option<f64> {
    let upper = known.get(runs / 2)?;
    match runs % 2 {
        1 => Some(*upper),
        _ => Some((known.get((runs / 2).checked_sub(1)?)? + upper) / 2.0),
    }
}

/// The 99th percentile, nearest rank, of `runs` values of which these, ascending, are
/// known, and all others are greater; None under a hundred runs, and where it is one of
/// the others.
fn nearly_all(known: &[f64], runs: usize) -> Option<f64> {
    let rank = (runs * 99).div_ceil(100);
    known.get(rank - 1).copied().filter(|_| runs >= 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_known_if_the_middle_is() {
        let table: [(&[f64], usize, Option<f64>); 6] = [
            (&[], 1, None),
            (&[3.0], 1, Some(3.0)),
            (&[1.0, 2.0], 3, Some(2.0)),
            (&[1.0], 3, None),
            (&[1.0, 2.0, 4.0], 4, Some(3.0)),
            (&[1.0, 2.0], 4, None),
        ];
        for (known, runs, median) in table {
            assert_eq!(censored_median(known, runs), median, "{known:?} of {runs}");
        }
    }

    #[test]
    fn one_run_in_a_hundred_may_take_longer() {
        let known: Vec<f64> = (1..=200).map(f64::from).collect();
        let table = [
            (100, 100, Some(99.0)),
            (200, 200, Some(198.0)),
            (101, 101, Some(100.0)),
            // The hundredth had no such grant: it counts as longer.
            (99, 100, Some(99.0)),
            (98, 100, None),
            (99, 99, None),
            (1, 1, None),
        ];
        for (granted, runs, expected) in table {
            let found = nearly_all(&known[..granted], runs);
            assert_eq!(found, expected, "{granted} of {runs}");
        }
    }

    #[test]
    fn all_or_none_is_told_apart_from_some() {
        let of = |values: &[bool]| Fraction::count(values.iter().copied()).all();
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[true, true]), Some(true));
        assert_eq!(of(&[false]), Some(false));
        assert_eq!(of(&[true, false]), None);
    }
}
