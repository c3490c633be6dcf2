//! Slices of the window in which nothing foreign ran on CPUs that ours may use, and the
//! figure over these alone.
//!
//! A slice is clean if it and its neighbours (`GUARDS`) hold no more foreign time than
//! [`CLEAN`] of their length, no steal, and, without a server, no more packets than an idle
//! machine handles. Slices are chosen by accounts, never by the figure. The figure of a run
//! is its operations over the time, both of its clean slices; the run stays the unit.
//!
//! A disturbance may leave the work in another state (placement, caches, idle states). If
//! the first clean slices after one differ from the later ones, more slices beside it are
//! left out. If they differ still, there is no such figure.

use crate::harm::{self, CLEAN, IDLE_PACKETS_PER_S};
use crate::ratio::unpaired_reaches;
use jostle_model::record::{Readings, Run};

/// Slices of about 20 ms beside a disturbed one that are not clean either.
const GUARDS: [usize; 3] = [1, 2, 4];

/// Clean slices that are needed in all, runs with enough of them, and what is enough.
const SLICES: usize = 25;
const RUNS: usize = 3;
const EACH: usize = 5;

/// Those of a run whose CPUs could not be read apart.
static NONE: Readings = Readings {
    length_us: Vec::new(),
    operations: Vec::new(),
    foreign_us: Vec::new(),
    idle_us: Vec::new(),
    stolen_ticks: Vec::new(),
    packets: Vec::new(),
};

/// The figure over clean slices.
#[derive(Clone, Debug, PartialEq)]
pub struct Clean {
    /// Operations a second of each run; None where a run has too few clean slices.
    pub per_s: Vec<Option<f64>>,
    /// The clean slices' share of all runs' windows.
    pub share: f64,
}

/// The figure of a point over clean slices. None where every run as a whole is as clean as
/// a slice must be, or where there are too few clean slices.
pub fn clean(runs: &[&Run]) -> Option<Clean> {
    let is_whole = |run: &&Run| harm::foreign_share(run).is_none_or(|share| share <= CLEAN);
    if runs.iter().all(is_whole) {
        return None;
    }
    let guarded = |guard: &usize| -> Vec<(&Readings, Vec<bool>)> {
        let each = runs.iter().map(|run| match read(run) {
            Some(rows) => (rows, guarded(rows, run.server.is_some(), *guard)),
            None => (&NONE, Vec::new()),
        });
        each.collect()
    };
    let mut tried = GUARDS.iter().map(guarded);
    let chosen = tried.find(|slices| is_settled(slices))?;
    let (mut slices, mut clean_s) = (0, 0.0);
    let per_s = chosen.iter().map(|(rows, is_clean)| {
        let count = is_clean.iter().filter(|is| **is).count();
        let sum = |of: &[u64]| -> f64 {
            let each = of.iter().zip(is_clean).filter(|(_, is)| **is);
            each.map(|(value, _)| *value as f64).sum()
        };
        let length_s = sum(&rows.length_us) / 1e6;
        (count >= EACH).then(|| {
            (slices, clean_s) = (slices + count, clean_s + length_s);
            sum(&rows.operations) / length_s
        })
    });
    let per_s: Vec<Option<f64>> = per_s.collect();
    let windows_s: f64 = runs.iter().map(|run| run.window.window_s).sum();
    (slices >= SLICES && per_s.iter().flatten().count() >= RUNS).then_some(Clean {
        per_s,
        share: clean_s / windows_s.max(f64::MIN_POSITIVE),
    })
}

fn read(run: &Run) -> Option<&Readings> {
    let accounts = harm::accounts(run)?;
    // What ours start is not told from others.
    let rows = accounts.readings.as_ref();
    rows.filter(|_| accounts.requests_s.is_none())
}

/// Whether each slice is clean, and so are as many on both sides.
fn guarded(rows: &Readings, has_server: bool, guard: usize) -> Vec<bool> {
    let is_quiet = |at: usize| {
        let length_us = rows.length_us[at] as f64;
        rows.foreign_us[at] as f64 <= CLEAN * length_us
            && rows.stolen_ticks[at] == 0
            && (has_server || rows.packets[at] as f64 <= IDLE_PACKETS_PER_S * length_us / 1e6)
    };
    let quiet: Vec<bool> = (0..rows.length_us.len()).map(is_quiet).collect();
    let around = |at: usize| at.saturating_sub(guard)..(at + guard + 1).min(quiet.len());
    (0..quiet.len())
        .map(|at| around(at).all(|near| quiet[near]))
        .collect()
}

/// Whether the first clean slices after a disturbance are as quick as those of the later half
/// of the time up to the next: the interval of their ratio does not show a difference of 2 %.
fn is_settled(slices: &[(&Readings, Vec<bool>)]) -> bool {
    const SAME: f64 = 0.02;
    let (mut first, mut later) = (Vec::new(), Vec::new());
    for (rows, is_clean) in slices {
        let rate = |at: usize| rows.operations[at] as f64 / rows.length_us[at].max(1) as f64;
        let mut at = 0;
        for stretch in is_clean.chunk_by(|one, next| one == next) {
            // What the window's beginning follows is not known.
            if stretch[0] && at > 0 {
                first.push(rate(at));
                later.extend((at + 1 + stretch.len() / 2..at + stretch.len()).map(rate));
            }
            at += stretch.len();
        }
    }
    unpaired_reaches(&later, &first, [1.0 - SAME, 1.0 + SAME])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::point;
    use jostle_model::record::{Accounts, Circumstances, Window};

    /// A run of two seconds; each slice has this many operations and foreign microseconds.
    fn run(each: impl Fn(usize) -> (u64, u64)) -> Run {
        let rows = (0..100).map(each);
        let (operations, foreign_us): (Vec<u64>, Vec<u64>) = rows.unzip();
        let accounts = Accounts {
            between_s: 2.0,
            cpus: 2,
            foreign_s: Some(foreign_us.iter().sum::<u64>() as f64 / 1e6),
            waited_s: Some(0.0),
            readings: Some(Readings {
                length_us: vec![20_000; 100],
                operations,
                foreign_us,
                idle_us: vec![0; 100],
                stolen_ticks: vec![0; 100],
                packets: vec![0; 100],
            }),
            ..Accounts::default()
        };
        Run {
            around: Circumstances {
                accounts: Some(Box::new(accounts)),
                ..point().around
            },
            window: Window {
                window_s: 2.0,
                ..point().window
            },
            ..point()
        }
    }

    fn found(run: &Run, runs: usize) -> Option<(f64, f64)> {
        let found = clean(&vec![run; runs])?;
        Some((found.per_s[0]?, found.share))
    }

    /// One slice in ten is disturbed, and half as quick.
    fn burst(at: usize) -> (u64, u64) {
        match at % 10 {
            5 => (1_000, 9_000),
            _ => (2_000 + at as u64 % 3, 20),
        }
    }

    #[test]
    fn the_figure_is_that_of_the_slices_in_which_nothing_else_ran() {
        let (per_s, share) = found(&run(burst), 3).unwrap();
        assert!((per_s / 100_050.0 - 1.0).abs() < 1e-3, "{per_s}");
        // The disturbed one and its neighbours.
        assert!((share - 0.7).abs() < 1e-9);
        assert_eq!(found(&run(burst), 2), None);
    }

    #[test]
    fn a_clean_run_stands_as_a_whole_and_a_disturbed_one_has_too_few_slices() {
        assert_eq!(found(&run(|_| (2_000, 100)), 3), None);
        assert_eq!(found(&run(|_| (2_000, 101)), 3), None);
        assert_eq!(
            found(&run(|at| (2_000, if at < 92 { 900 } else { 0 })), 3),
            None
        );
        assert!(found(&run(|at| (2_000, if at < 80 { 900 } else { 0 })), 3).is_some());
    }

    #[test]
    fn steal_and_packets_disturb_a_slice_and_a_server_has_packets_of_its_own() {
        let with = |stolen, packets, has_server: bool| {
            let mut run = run(|at| (2_000, if at == 0 { 90_000 } else { 0 }));
            run.server = has_server.then(Default::default);
            let rows = run
                .around
                .accounts
                .as_deref_mut()
                .unwrap()
                .readings
                .as_mut()
                .unwrap();
            (rows.stolen_ticks[50], rows.packets[50]) = (stolen, packets);
            (found(&run, 3).unwrap().1 * 100.0).round()
        };
        assert_eq!(with(0, 10, false), 98.0);
        assert_eq!(with(1, 0, false), 95.0);
        assert_eq!(with(0, 11, false), 95.0);
        assert_eq!(with(0, 900, true), 98.0);
    }

    #[test]
    fn work_that_takes_time_to_settle_leaves_out_more_slices_or_has_no_figure() {
        // Quicker for so many slices after each disturbance.
        let unsettled = |slices: usize| {
            let run = run(|at| match at % 20 {
                0 => (2_000, 9_000),
                after if after <= slices => (9_000, 0),
                other => (2_000 + other as u64, 0),
            });
            found(&run, 3)
        };
        let (per_s, share) = unsettled(2).unwrap();
        assert!((per_s / 100_500.0 - 1.0).abs() < 0.01, "{per_s}");
        assert!(share < 0.8);
        assert_eq!(unsettled(9), None);
    }

    #[test]
    fn what_ours_start_is_not_told_from_others() {
        let mut called = run(burst);
        called.around.accounts.as_deref_mut().unwrap().requests_s = Some(0.1);
        assert_eq!(found(&called, 3), None);
    }
}
