//! A plan's requests that come at a rate: what it says, and the combinations refused.

use super::{UsageError, refuse};
use jostle_model::plan::{Carrier, Measure, Plan, Workload};
use jostle_model::{List, Nanos};
use jostle_stats::find::{self, Role};
use jostle_targets::Spec;

const MOST_RATE: u64 = 10_000_000;

/// Intended starts of one run: the schedule is kept in memory, eight bytes each.
const MOST_PLANNED: u64 = 50_000_000;

/// With `--quick`: at 100 requests a second still a hundred.
pub(super) const QUICK_WINDOW: Nanos = Nanos::from_millis(1_000);

/// Workers have to be on their way before the window opens.
const LEAST_WARMUP: Nanos = Nanos::from_millis(10);

/// Where a search begins and ends, if the plan does not say.
const SEARCHED: [u64; 2] = [1_000, 1_000_000];

/// Fills in what a search has other defaults of.
///
/// # Errors
/// In words for the user.
pub(crate) fn fill_in(plan: &mut Plan) -> Result<(), UsageError> {
    if plan.find.is_none() {
        return Ok(());
    }
    refuse_where! {
        plan.duration.is_some() =>
            "-t: --find ends each step after a number of requests, by the objective; \
             leave -t out";
    }
    plan.rate.get_or_insert_with(|| List(SEARCHED.to_vec()));
    Ok(())
}

/// The longest window of a run.
fn longest(plan: &Plan, rate: u64) -> u64 {
    let of_find = |objective| find::window(objective, rate, Role::Ladder);
    let window = plan.find.as_ref().map(of_find).or(plan.duration);
    window.unwrap_or_default().0
}

fn check_search(plan: &Plan, rates: &[u64]) -> Result<(), UsageError> {
    refuse_where! {
        !matches!(rates, [from, to] if from < to) =>
            "--rate: --find takes the least and the greatest load, such as 100:20k";
    }
    if let Some(runs) = plan.runs.filter(|runs| *runs < find::FEWEST) {
        return refuse(format!(
            "--runs {runs}: --find takes at least {} steps around the limit",
            find::FEWEST
        ));
    }
    let workers = plan.workers.as_ref().map_or(1, |list| list.0.len());
    let first_s = Nanos(longest(plan, rates[0])).as_secs_f64()
        + plan.warmup.unwrap_or_default().as_secs_f64();
    let needed_s = first_s * (plan.targets.len() * workers) as f64;
    match needed_s > plan.budget().as_secs_f64() {
        true => refuse(format!(
            "--budget {}: at {} requests a second one step takes {first_s:.1} s, and a search takes some \
             forty; give more (--budget {:.0}s), or begin with a greater load (--rate)",
            plan.budget(),
            rates[0],
            40.0 * needed_s,
        )),
        false => Ok(()),
    }
}

/// Rejects what is impossible for the experiment as a whole.
///
/// # Errors
/// In words for the user.
pub(super) fn check(plan: &Plan) -> Result<(), UsageError> {
    if plan.workload != Workload::Rate {
        return Ok(());
    }
    let rates = plan.rate.as_ref().map_or(&[][..], |list| &list.0);
    refuse_where! {
        rates.is_empty() || rates.iter().any(|rate| *rate == 0 || *rate > MOST_RATE) =>
            "--rate takes 1 to {MOST_RATE} requests a second";
        plan.warmup.is_some_and(|warmup| warmup < LEAST_WARMUP) =>
            "--warmup: give at least 10ms, so that all workers have started";
    }
    if plan.find.is_some() {
        check_search(plan, rates)?;
    }
    let most = rates.iter().max().copied().unwrap_or(0);
    let span = longest(plan, most) + plan.warmup.unwrap_or_default().0;
    let planned = u128::from(most) * u128::from(span) / 1_000_000_000;
    refuse_where! {
        planned > u128::from(MOST_PLANNED) =>
            "--rate {most} plans {planned} requests in one run, more than {MOST_PLANNED}; give a \
             shorter -t";
    }
    Ok(())
}

/// Whether this target can be asked as the options say.
///
/// # Errors
/// In words for the user.
pub(super) fn check_target(plan: &Plan, spec: &Spec) -> Result<(), UsageError> {
    refuse_where! {
        plan.carrier == Some(Carrier::Tasks) =>
            "{spec} --as tasks: a request that waits delays all others of its thread; use \
             --as processes or threads";
        plan.measure == Some(Measure::Counts) =>
            "{spec} --measure counts: rate needs stamps to tell how late requests are; leave it out";
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::resolve;
    use super::*;
    use jostle_model::plan::{Arrivals, Names};

    fn resolution(change: impl FnOnce(&mut Plan)) -> Result<Plan, UsageError> {
        let mut plan = Plan::of(Workload::Rate);
        change(&mut plan);
        resolve(plan, 7, &[0, 1]).map(|resolved| resolved.plan)
    }

    #[test]
    fn a_bare_rate_is_swept_at_three_on_locks_of_their_own() {
        let plan = resolution(|_| {}).unwrap();
        assert_eq!(plan.targets, ["lockd"]);
        assert_eq!(plan.rate, Some(List(vec![100, 1_000, 10_000])));
        assert_eq!(plan.workers, Some(List(vec![64])));
        assert_eq!(plan.names, Some(Names::Own));
        assert_eq!(plan.arrivals, Some(Arrivals::Constant));
        assert_eq!(plan.drop_after, Some(Nanos::from_millis(1_000)));
        assert_eq!(resolve(plan.clone(), 99, &[0, 1]).unwrap().plan, plan);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        type Case = (fn(&mut Plan), &'static str);
        let table: &[Case] = &[
            (|p| p.rate = Some(List(vec![])), "1 to 10000000 requests"),
            (|p| p.rate = Some(List(vec![100, 0])), "1 to 10000000"),
            (|p| p.warmup = Some(Nanos::ZERO), "at least 10ms"),
            (
                |p| {
                    p.rate = Some(List(vec![1_000_000]));
                    p.duration = Some(Nanos::from_millis(60_000));
                },
                "a shorter -t",
            ),
            (|p| p.carrier = Some(Carrier::Tasks), "processes or threads"),
            (|p| p.measure = Some(Measure::Counts), "leave it out"),
            (
                |p| p.hold = Some(jostle_model::Busy::Sleep(Nanos(1))),
                "rate has no hold",
            ),
            (|p| p.targets = vec!["tcp".into()], "is not a lock"),
        ];
        for (change, part) in table {
            let error = resolution(*change).unwrap_err().to_string();
            assert!(error.contains(part), "{error} lacks {part}");
        }
        let elsewhere = |workload| {
            let mut plan = Plan::of(workload);
            plan.drop_after = Some(Nanos::from_millis(1));
            resolve(plan, 7, &[0]).unwrap_err().to_string()
        };
        assert!(elsewhere(Workload::Stream).contains("stream has no drop-after"));
    }
}
