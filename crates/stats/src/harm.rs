//! Bounds on the effect of other programs and the hypervisor: the range of figures that
//! might have been measured without them.
//!
//! A neighbour does harm only while it runs and one of our threads waits for a CPU. With F
//! the CPU time of other processes on our CPUs, D the time that our threads were runnable
//! and not running, S the time that the hypervisor took, and W the window times the CPUs
//! that the work needs at once, the share of the window in which anything of ours was kept
//! from working is at most
//!
//! ```text
//! x = min(1, (min(F, D) + S) / W)
//! ```
//!
//! D alone is no harm: if workers outnumber CPUs, they queue for each other. F alone is
//! none either: programs that run while ours sleep take nothing from them. When a program
//! that was started for a call ends, the kernel discards its waiting time. D is then the
//! workers' waiting time, scaled by the CPU time of both over that of the workers.
//!
//! In an open loop at a low rate the figure is the time of service, and most of the window
//! is idle: W is then the sum of these times, if that is less. (Only where F is 3 % of the
//! window or more. Otherwise a trace of other work would be set against milliseconds.)
//!
//! A neighbour can also make work quicker: two workers on one CPU hand a lock on without
//! waking another CPU, and a CPU that is never idle need not be woken. R is the largest
//! such factor (`raise`). The undisturbed throughput then lies within
//! `[X / (1 + x (R - 1)), X / (1 - x)]`.

use jostle_model::plan::{Measure, Plan, Range, Shape, Workload};
use jostle_model::record::{Accounts, Calibration, Experiment, Point};
use jostle_model::time::Busy;

/// The bound, relative to the figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Harm {
    /// x, median over the runs.
    pub share: f64,
    /// The undisturbed figure is at least so many times the measured one.
    pub low: f64,
    /// The undisturbed figure is at most so many times the measured one; infinite where
    /// nothing bounds it.
    pub high: f64,
}

impl Harm {
    /// The largest relative difference of the undisturbed figure from the measured one. The
    /// lower side counts only if the upper one exceeds [`BEARABLE`]. R is an upper limit of
    /// the gain, and in record/validation.md no trial that lost less time than this gained
    /// that much.
    pub fn off(&self) -> f64 {
        match self.high - 1.0 {
            little if little < BEARABLE => little,
            off => off.max(1.0 - self.low),
        }
    }
}

/// The accounts of a run that has a figure. Where the window never began, as when the only
/// client died before, there is none that anybody could have harmed.
pub fn accounts(run: &Point) -> Option<&Accounts> {
    run.accounts.as_deref().filter(|_| run.window_s > 0.0)
}

/// Over all runs of a point: the medians of their bounds, as the figure is the median
/// of theirs. None where no run has [`accounts`], or where a run's harm cannot be bounded.
pub fn bound(experiment: &Experiment, runs: &[&Point]) -> Option<Harm> {
    let each: Option<Vec<Harm>> = runs
        .iter()
        .filter_map(|run| Some((run, accounts(run)?)))
        .map(|(run, accounts)| of_run(experiment, run, accounts))
        .collect();
    let each = each.filter(|each| !each.is_empty())?;
    let over = |of: fn(&Harm) -> f64| {
        // Infinite bounds take part in the median like others.
        let mut ends: Vec<f64> = each.iter().map(of).collect();
        ends.sort_by(f64::total_cmp);
        let half = ends.len() / 2;
        match ends.len() % 2 {
            1 => ends[half],
            _ => (ends[half - 1] + ends[half]) / 2.0,
        }
    };
    Some(Harm {
        share: over(|harm| harm.share),
        low: over(|harm| harm.low),
        high: over(|harm| harm.high),
    })
}

/// The widest interval of a run that takes part in a comparison.
const NARROW: f64 = 0.03;

/// The least and the most that the throughput of a run would have been undisturbed,
/// relative to it, for whatever compares runs. None where that is unknown, or where one is
/// more than [`NARROW`] above the other. A run without accounts counts as it was measured:
/// for it the comparison has nothing else.
pub fn narrow(experiment: &Experiment, run: &Point) -> Option<[f64; 2]> {
    let Some(accounts) = accounts(run) else {
        return Some([1.0, 1.0]);
    };
    let harm = of_run(experiment, run, accounts)?;
    // As in `off`: so short a disturbance made no work this much quicker.
    let low = match harm.high - 1.0 < BEARABLE {
        true => 1.0,
        false => harm.low,
    };
    (harm.high <= (1.0 + NARROW) * low).then_some([low, harm.high])
}

fn of_run(experiment: &Experiment, run: &Point, accounts: &Accounts) -> Option<Harm> {
    let share = share(&experiment.plan, run, accounts)?;
    let raise = raise(experiment, run);
    Some(Harm {
        share,
        low: 1.0 / (1.0 + share * (raise - 1.0)),
        high: 1.0 / (1.0 - share),
    })
}

/// x of one run. None if our threads' waiting time was not recorded, or if other processes
/// cannot be seen and our own threads outnumber the CPUs, which hides the effect of others.
fn share(plan: &Plan, run: &Point, accounts: &Accounts) -> Option<f64> {
    let waited_s = accounts.waited_s?;
    let mut window_s = accounts.between_s * chains(plan, run, accounts);
    let stolen_s = accounts.stolen_s.unwrap_or(0.0);
    let others_s = accounts.others_s.map(|s| s + unexplained_s(accounts));
    let waited_s = waited_s * unseen(accounts);
    let harm_s = others_s.map_or(waited_s, |others_s| others_s.min(waited_s));
    if others_s.is_some_and(|others_s| others_s >= BEARABLE * accounts.between_s) {
        window_s = window_s.min(served_s(plan, run));
    }
    let share = ((harm_s + stolen_s) / window_s.max(f64::MIN_POSITIVE)).min(1.0);
    // If other processes cannot be seen, the wait is conclusive only if it is small, or
    // cannot be caused by our own threads.
    let is_known = others_s.is_some() || !is_crowded(run, accounts) || share < BEARABLE;
    is_known.then_some(share)
}

/// The time that workers and the programs which they started waited, over that of the
/// workers alone: the kernel forgets how long a program waited when it ends.
fn unseen(accounts: &Accounts) -> f64 {
    let requests_s = accounts.requests_s.unwrap_or(0.0);
    1.0 + requests_s / accounts.workers_s.max(f64::MIN_POSITIVE)
}

/// The sum of all times of service of an open loop.
fn served_s(plan: &Plan, run: &Point) -> f64 {
    let times = run.service_ns.as_ref();
    let times = times.filter(|_| plan.workload == Workload::Rate);
    times.map_or(f64::INFINITY, |times| {
        times.mean * times.count as f64 * 1e-9
    })
}

/// A smaller bound is negligible.
pub const BEARABLE: f64 = 0.03;

/// CPU time of tasks whose owner is gone. It belongs to no known process, but may have done
/// harm. Subtracts one tick per CPU, the step of the clocks while a thread runs.
fn unexplained_s(accounts: &Accounts) -> f64 {
    const TICK_S: f64 = 0.004;
    let steps_s = TICK_S * accounts.cpus as f64;
    accounts
        .unexplained_s
        .map_or(0.0, |s| (s - steps_s).max(0.0))
}

/// Whether our own threads outnumber the CPUs, so that they wait for each other.
fn is_crowded(run: &Point, accounts: &Accounts) -> bool {
    let workers = run.at.workers.or(run.at.generators).unwrap_or(1);
    workers > accounts.cpus
}

/// How many CPUs the work can use at once: workers that share one lock or one server wait
/// for the slowest of them.
fn chains(plan: &Plan, run: &Point, accounts: &Accounts) -> f64 {
    let workers = run.at.workers.unwrap_or(1);
    let alone = match plan.workload.shape() {
        _ if accounts.server_s.is_some() || run.server.is_some() => 1,
        Shape::Contend if plan.range == Some(Range::Disjoint) => workers,
        Shape::Contend => plan.key_count().min(workers),
        Shape::Stream | Shape::Hold if run.names.as_deref() != Some(ONE) => workers,
        _ => 1,
    };
    alone.min(accounts.cpus).max(1) as f64
}

const ONE: &str = "one";

/// The largest speed-up by placement and waking. Busy neighbours made two workers on a
/// futex up to 2.8 times as quick, which requires an R of 4 to 6. A wake-up on the same CPU
/// took 6 to 7 times less than one on an idle CPU. The rest is a reserve. Many spinning
/// workers may be much slower than one worker alone, but no neighbour removes that
/// difference.
const MOST_RAISE: f64 = 8.0;

/// R: how many times as quick the work may have been while it was disturbed.
///
/// For a lock in the workers' own processes the quickest is a worker alone, whose pair
/// was measured before the first run. Elsewhere a neighbour changes how sleepers are
/// woken: on the same CPU, or on one that has to leave idle first.
fn raise(experiment: &Experiment, run: &Point) -> f64 {
    let operations = run.operations.max(1) as f64;
    let accounts = run.accounts.as_deref();
    let parallel = accounts.map_or(1.0, |a| chains(&experiment.plan, run, a));
    let period_ns = run.window_s * 1e9 * parallel / operations;
    let calibration = &experiment.calibration;
    let own = alone_ns(&experiment.plan, run, calibration);
    let quickest_ns = own.or_else(|| rewoken_ns(period_ns, run, calibration));
    quickest_ns.map_or(1.0, |quickest| {
        (period_ns / quickest).clamp(1.0, MOST_RAISE)
    })
}

/// A cycle of one worker alone: pair and hold. None of a server's locks, of requests,
/// and of one worker, which is alone.
fn alone_ns(plan: &Plan, run: &Point, calibration: &Calibration) -> Option<f64> {
    let meets = plan.workload == Workload::Contend || run.names.as_deref() == Some(ONE);
    let several = run.at.workers.unwrap_or(1) > 1;
    let local = run.server.is_none() && run.accounts.as_deref()?.server_s.is_none();
    let cost = calibration.own_cost.get(&run.target)?;
    let pair_ns = match plan.measure {
        Some(Measure::Counts) => cost.pair_ns,
        _ => cost.pair_ns + cost.added_ns / cost.stamp_every.max(1) as f64,
    };
    let hold_ns = match plan.workload {
        Workload::Contend => plan.hold.map_or(0, |hold: Busy| hold.span().0) as f64,
        _ => 0.0,
    };
    (meets && several && local).then_some(pair_ns + hold_ns)
}

/// The same operation where all that were woken had slept on the waker's own CPU.
fn rewoken_ns(period_ns: f64, run: &Point, calibration: &Calibration) -> Option<f64> {
    let latencies = calibration.latencies?;
    let slow_ns = latencies.wake_other_cpu_ns?.max(latencies.wake_same_cpu_ns);
    let fast_ns = latencies.wake_same_cpu_ns.max(1.0);
    let each = run.context_switches.unwrap_or(run.operations) as f64 / run.operations.max(1) as f64;
    // The server sleeps and wakes as often as its client.
    let wakes = if run.server.is_some() {
        2.0 * each
    } else {
        each
    };
    let spared_ns = wakes * (slow_ns - fast_ns);
    Some((period_ns - spared_ns).max(period_ns * fast_ns / slow_ns))
}

/// Whether a run's block was so disturbed that it should be repeated. This depends on the
/// share of our CPUs that other programs and the hypervisor took. It does not depend on our
/// waiting time or the figure, because that would select results.
pub fn is_spoilt(accounts: &Accounts) -> bool {
    const MOST: f64 = 0.10;
    let all_s = accounts.between_s * accounts.cpus as f64;
    let of_all = |s: Option<f64>| s.unwrap_or(0.0) > MOST * all_s;
    of_all(accounts.others_s) || of_all(accounts.stolen_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{experiment, point};
    use jostle_model::record::{Distribution, Latencies, OwnCost};

    fn disturbed(others_s: Option<f64>, waited_s: Option<f64>, stolen_s: f64) -> Point {
        let mut point = point();
        point.accounts = Some(Box::new(Accounts {
            between_s: 5.0,
            cpus: 2,
            others_s,
            waited_s,
            stolen_s: Some(stolen_s),
            ..Accounts::default()
        }));
        point
    }

    fn found(point: &Point) -> Option<Harm> {
        bound(&experiment(), &[point])
    }

    #[test]
    fn a_neighbour_harms_only_while_ours_wait_and_waiting_only_while_it_runs() {
        for (others_s, waited_s, stolen_s, share) in [
            (2.0, 0.0, 0.0, 0.0), // it ran while ours slept
            (0.0, 9.0, 0.0, 0.0), // ours wait for each other
            (2.0, 0.5, 0.0, 0.1),
            (0.5, 2.0, 0.0, 0.1),
            (0.0, 0.0, 0.5, 0.1),
            (9.0, 9.0, 0.0, 1.0),
        ] {
            let harm = found(&disturbed(Some(others_s), Some(waited_s), stolen_s)).unwrap();
            assert!((harm.share - share).abs() < 1e-9, "{others_s} {waited_s}");
        }
    }

    #[test]
    fn the_waits_of_programs_that_were_started_for_calls_are_reckoned_from_the_workers() {
        // One worker on one CPU, whose children take ten times as much of it.
        let called_beside = |others_s: Option<f64>| {
            let mut run = disturbed(others_s, Some(0.1), 0.0);
            let accounts = run.accounts.as_deref_mut().unwrap();
            (accounts.workers_s, accounts.requests_s) = (0.3, Some(2.7));
            run.at.workers = Some(1);
            found(&run).unwrap().share
        };
        let called = |others_s| called_beside(Some(others_s));
        assert!((called(0.5) - 0.1).abs() < 1e-9);
        assert!((called(4.0) - 0.2).abs() < 1e-9);
        assert_eq!(called(0.0), 0.0);
        // Others that cannot be seen may have caused all of it.
        assert!((called_beside(None) - 0.2).abs() < 1e-9);
    }

    #[test]
    fn at_a_low_rate_the_harm_stands_beside_the_time_of_service() {
        let mut experiment = experiment();
        experiment.plan.workload = Workload::Rate;
        let served = |others_s, mean_ns| {
            let mut run = disturbed(Some(others_s), Some(0.25), 0.0);
            run.service_ns = Some(Distribution {
                count: 1000,
                mean: mean_ns,
                ..Distribution::default()
            });
            bound(&experiment, &[&run]).unwrap().share
        };
        // Half a second of service in a window of five.
        assert!((served(1.0, 500_000.0) - 0.5).abs() < 1e-9);
        // Many at the same time: a wait delays all of them.
        assert!((served(1.0, 50_000_000.0) - 0.05).abs() < 1e-9);
        // A trace of other work.
        assert!((served(0.149, 500_000.0) - 0.0298).abs() < 1e-9);
    }

    #[test]
    fn the_bound_has_two_sides() {
        let harm = found(&disturbed(Some(0.5), Some(2.0), 0.0)).unwrap();
        assert!((harm.high - 1.0 / 0.9).abs() < 1e-9);
        // Nothing is known of this lock that would make it quicker.
        assert_eq!(harm.low, 1.0);
        let mut experiment = experiment();
        let cost = OwnCost {
            pair_ns: 500.0,
            full_ns: 600.0,
            no_stamps_ns: 500.0,
            no_witness_ns: 500.0,
            added_ns: 100.0,
            added_range_ns: [100.0, 100.0],
            stamp_every: 1,
        };
        experiment
            .calibration
            .own_cost
            .insert("flock".to_owned(), cost);
        experiment.plan.hold = None;
        // 1058 us an operation, 0.6 us alone: no neighbour makes it so much quicker.
        let mut run = disturbed(Some(0.5), Some(2.0), 0.0);
        run.operations = 4725;
        let harm = bound(&experiment, &[&run]).unwrap();
        assert!((harm.low - 1.0 / (1.0 + 0.1 * 7.0)).abs() < 1e-9);
        run.operations = 4_166_667; // twice as long as alone
        let harm = bound(&experiment, &[&run]).unwrap();
        assert!((harm.low - 1.0 / 1.1).abs() < 1e-6);
    }

    #[test]
    fn where_sleepers_are_woken_the_way_they_are_bounds_the_gain() {
        let mut experiment = experiment();
        experiment.calibration.latencies = Some(Latencies {
            wake_same_cpu_ns: 5_000.0,
            wake_other_cpu_ns: Some(35_000.0),
            ..Latencies::default()
        });
        let mut run = disturbed(Some(0.5), Some(2.0), 0.0);
        run.operations = 50_000; // 100 us each, of which 30 could be spared
        run.context_switches = Some(50_000);
        let harm = bound(&experiment, &[&run]).unwrap();
        let raise = 100.0 / 70.0;
        assert!((harm.low - 1.0 / (1.0 + 0.1 * (raise - 1.0))).abs() < 1e-9);
        // Never more than as if nothing but waking took time.
        run.context_switches = Some(500_000);
        let harm = bound(&experiment, &[&run]).unwrap();
        assert!((harm.low - 1.0 / (1.0 + 0.1 * 6.0)).abs() < 1e-9);
    }

    #[test]
    fn one_disturbed_run_of_many_does_not_move_the_median_s_bound() {
        let experiment = experiment();
        let quiet = disturbed(Some(0.0), Some(0.0), 0.0);
        let busy = disturbed(Some(9.0), Some(9.0), 0.0);
        let runs = [&quiet, &quiet, &busy, &quiet, &quiet];
        let harm = bound(&experiment, &runs).unwrap();
        assert_eq!((harm.share, harm.low, harm.high), (0.0, 1.0, 1.0));
        let harm = bound(&experiment, &[&busy, &busy, &quiet]).unwrap();
        assert_eq!(harm.high, f64::INFINITY);
    }

    #[test]
    fn a_run_that_others_may_have_moved_by_over_3_percent_is_not_compared() {
        let of = |waited_s| narrow(&experiment(), &disturbed(Some(5.0), Some(waited_s), 0.0));
        assert_eq!(of(0.0), Some([1.0, 1.0]));
        assert_eq!(of(0.1).unwrap(), [1.0, 1.0 / (1.0 - 0.02)]);
        assert_eq!(of(0.4), None);
        // Nothing is known of what others did.
        assert_eq!(narrow(&experiment(), &point()), Some([1.0, 1.0]));
        assert_eq!(
            narrow(&experiment(), &disturbed(Some(0.1), None, 0.0)),
            None
        );
    }

    /// The bound of a client that was killed before its window was "NaN to 1.21 times".
    #[test]
    fn a_run_without_a_window_has_no_figure_to_be_harmed() {
        let mut experiment = experiment();
        experiment.calibration.latencies = Some(Latencies {
            wake_same_cpu_ns: 5_000.0,
            wake_other_cpu_ns: Some(35_000.0),
            ..Latencies::default()
        });
        let run = disturbed(Some(0.5), Some(2.0), 0.0);
        let mut dead = run.clone();
        (dead.window_s, dead.operations) = (0.0, 19);
        assert_eq!(bound(&experiment, &[&dead]), None);
        // The others have theirs.
        let alone = bound(&experiment, &[&run]);
        assert!(alone.is_some());
        assert_eq!(bound(&experiment, &[&dead, &run]), alone);
    }

    #[test]
    fn what_cannot_be_bounded_is_not() {
        assert_eq!(found(&disturbed(Some(0.1), None, 0.0)), None);
        assert_eq!(found(&point()), None);
        // Ten workers on two CPUs, and nobody else can be seen.
        assert_eq!(found(&disturbed(None, Some(2.0), 0.0)), None);
        assert!(found(&disturbed(None, Some(0.1), 0.0)).is_some());
        let mut few = disturbed(None, Some(2.0), 0.0);
        few.at.workers = Some(2);
        assert_eq!(found(&few).unwrap().share, 0.4);
    }

    #[test]
    fn blocks_are_spoilt_by_what_others_took_and_by_nothing_else() {
        let is = |others_s, waited_s, stolen_s| {
            let point = disturbed(Some(others_s), Some(waited_s), stolen_s);
            is_spoilt(point.accounts.as_deref().unwrap())
        };
        // 5 s of two CPUs.
        assert!(!is(1.0, 9.0, 1.0));
        assert!(is(1.01, 0.0, 0.0));
        assert!(is(0.0, 0.0, 1.01));
    }
}
