//! Did the workers contend at all?

use super::{EVERYTHING, Evidence, Found, MOST_WORKERS, idle_lock, measured, percent};
use jostle_model::plan::Range;
use jostle_model::record::Run;
use jostle_model::{Nanos, Plan, Remedy};

/// Share of the workers' time; in older records of the grants.
const LEAST: f64 = 0.01;

/// The unit of that time.
const OF_TIME: &str = "share of time";

/// Share of the window.
const LONG: f64 = 0.5;
/// None contended of n stamped grants bounds the share at 3/n with 95 %
/// confidence (Hanley & Lippman-Hand, JAMA 249, 1983): below 300, a share of
/// 1 % cannot be excluded.
const LEAST_STAMPED: f64 = 300.0;

check! {
    "not_contended" in "share": "Where several workers want one lock, does any of them ever wait?";
    threshold: text!(
        "workers blocked by others for under {} of their time, median over the runs: SUSPECT. \
         It counts from an attempt to the release that made way for it, or to the window's end \
         without a grant (in older records the stamped grants that were contended). Judged from \
         {LEAST_STAMPED} stamped grants on, with several workers, one key, exclusive and \
         blocking acquisitions, and ranges that meet, where nobody waited for {} of the window",
        percent(LEAST),
        percent(LONG)
    ),
    source: "the plan's own demand; 300 by the rule of three (Hanley & Lippman-Hand 1983)",
    fooled_by: "waiters that begin their attempts within release calls; `null` and `delay` are \
                reported although nobody can wait for them",
    advice: "a longer hold (-b), or more workers (-w)",
    words: |reason| {
        let share = percent(measured(reason));
        match reason.unit.as_str() {
            OF_TIME => format!("not contended: the workers were blocked for {share} of their time"),
            _ => format!("not contended: {share} of the acquisitions had to wait"),
        }
    },
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    if !evidence.is_contention()
        || evidence.workers() < 2
        || !wants_contention(&evidence.experiment.plan)
        // More of those that are never let in would change nothing.
        || idle_lock::in_vain(evidence).is_some()
        || evidence.runs.iter().any(|run| waits_throughout(run))
        // Where two own the lock at a time, nobody has to wait for it.
        || evidence.exclusions().any(|seen| seen.violations > 0)
    {
        return None;
    }
    let (mut stamped, mut contended) = (0.0, 0.0);
    for run in evidence.runs {
        if let (Some(share), Some(n)) = (run.blocked_share, run.stamped) {
            stamped += n as f64;
            contended += share * n as f64;
            // They waited, and for nothing.
            let failed = run.timeouts.unwrap_or(0) as f64;
            stamped += failed;
            contended += failed;
        }
    }
    // One that waits nearly all the time while the other runs through has few contended grants.
    let of_time = evidence.median(|run| run.blocked_time_share);
    let share = of_time.unwrap_or(contended / stamped);
    if stamped < LEAST_STAMPED || share >= LEAST {
        return None;
    }
    let found = Found::suspect(EVERYTHING, share, LEAST).remedy(more(evidence));
    Some(match of_time {
        Some(_) => found.unit(OF_TIME),
        None => found,
    })
}

/// Whether somebody waited for the lock for most of the window, whatever the others did.
fn waits_throughout(run: &Run) -> bool {
    let shares = run.per_worker.as_ref();
    let longest_ns = shares.and_then(|shares| shares.longest_wait_ns);
    longest_ns.is_some_and(|ns| ns as f64 / 1e9 >= LONG * run.window.window_s)
}

/// A hold where there is none, else ten times the workers.
fn more(evidence: &Evidence<'_>) -> Option<Remedy> {
    let hold = evidence.experiment.plan.hold;
    let workers = evidence.workers().saturating_mul(10);
    match hold.is_none_or(|hold| hold.span() == Nanos::ZERO) {
        true => Some(Remedy::with("-b", "1ms")),
        false => (workers <= MOST_WORKERS).then(|| Remedy::with("-w", workers)),
    }
}

/// Several keys, readers, tries and disjoint ranges are there to avoid waiting.
pub(crate) fn wants_contention(plan: &Plan) -> bool {
    plan.key_count() == 1
        && plan.shared() == 0.0
        && !plan.try_only()
        && plan.range != Some(Range::Disjoint)
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{after, experiment, judge_in, point};
    use jostle_model::plan::Range;
    use jostle_model::record::{Run, Status};
    use jostle_model::{List, Plan};

    #[test]
    fn one_percent_is_the_limit_and_300_grants_are_the_least() {
        let with = |share, stamped| {
            after(&CHECK, |run| {
                run.blocked_share = share;
                run.stamped = stamped;
            })
        };
        let table = [
            (Some(0.0099), Some(4725), Status::Suspect),
            (Some(0.0101), Some(4725), Status::Valid),
            (Some(0.0), Some(300), Status::Suspect),
            (Some(0.0), Some(299), Status::Valid),
            (None, None, Status::Valid),
        ];
        for (share, stamped, is) in table {
            assert_eq!(with(share, stamped), is, "{share:?} {stamped:?}");
        }
    }

    #[test]
    fn who_waits_in_vain_or_gives_up_contends() {
        let with = |change: fn(&mut Run)| {
            after(&CHECK, |run| {
                run.blocked_share = Some(0.0);
                run.stamped = Some(4725);
                change(run);
            })
        };
        assert_eq!(with(|_| ()), Status::Suspect);
        let passes: [fn(&mut Run); 3] = [
            |run| run.timeouts = Some(48),
            |point| point.per_worker.as_mut().unwrap().longest_wait_ns = Some(2_600_000_000),
            |run| run.exclusion.as_mut().unwrap().violations = 1,
        ];
        for pass in passes {
            assert_eq!(with(pass), Status::Valid);
        }
    }

    /// "0.2 % had to wait (-w 20)" stood beside waits of 628 ms.
    #[test]
    fn where_it_is_recorded_the_time_decides_and_not_the_grants() {
        let found = |time, grants| {
            let mut run = point();
            (run.blocked_time_share, run.blocked_share) = (Some(time), Some(grants));
            run.stamped = Some(4725);
            crate::fixtures::judge(&CHECK, &[run]).map(|reason| reason.text)
        };
        assert_eq!(found(0.01, 0.002), None);
        let text = found(0.0099, 0.5).unwrap();
        assert!(text.contains("blocked for 1.0 % of their time"), "{text}");
    }

    #[test]
    fn one_worker_need_not_wait() {
        let found = after(&CHECK, |point| {
            point.at.workers = Some(1);
            point.blocked_share = Some(0.0);
        });
        assert_eq!(found, Status::Valid);
    }

    #[test]
    fn a_plan_that_avoids_waiting_is_not_flagged_for_it() {
        let mut idle = point();
        idle.blocked_share = Some(0.0);
        let judged = |change: fn(&mut Plan)| {
            let mut experiment = experiment();
            change(&mut experiment.plan);
            judge_in(&CHECK, &experiment, std::slice::from_ref(&idle)).is_some()
        };
        assert!(judged(|_| ()));
        assert!(judged(|plan| plan.range = Some(Range::Same)));
        assert!(!judged(|plan| plan.keys = Some(List(vec![2]))));
        assert!(!judged(|plan| plan.shared = Some(0.8)));
        assert!(!judged(|plan| plan.try_only = Some(true)));
        assert!(!judged(|plan| plan.range = Some(Range::Disjoint)));
    }
}
