//! Combinations that `hold` refuses, and how long locks are kept at least.

use super::{UsageError, refuse};
use crate::order::LEASES;
use jostle_model::plan::{Carrier, Plan, Workload};
use jostle_model::time::Nanos;
use jostle_targets::Spec;

/// Runs of each point that keeps its locks, where the plan does not say: the figures are
/// sums over all locks and the whole time, and a run takes minutes.
pub(crate) const RUNS: u32 = 1;

/// Fills in what follows from locks being kept.
pub(crate) fn fill_in(plan: &mut Plan) {
    if plan.keep.is_some() {
        plan.runs.get_or_insert(RUNS);
    }
}

/// Whether the options go together.
pub(crate) fn check(plan: &Plan) -> Result<(), UsageError> {
    if plan.workload != Workload::Hold {
        return Ok(());
    }
    match (plan.keep, plan.lease) {
        (None, Some(lease)) => refuse(format!(
            "--lease {lease}: jostle renews leases only while it keeps locks for a time; add --for {}",
            least(lease)
        )),
        (Some(_), Some(Nanos::ZERO)) => {
            refuse("--lease 0: the lock is over at once; give a longer lease")
        }
        (Some(_), _) if plan.carrier == Some(Carrier::Tasks) => refuse(
            "--for --as tasks: each worker must renew its own leases; use --as threads, or \
             --as processes",
        ),
        _ => Ok(()),
    }
}

/// Whether locks of this target are kept for long enough. A run that lasted for less than a
/// few leases would show hardly a renewal, and look cheap.
pub(crate) fn check_target(plan: &Plan, spec: &Spec) -> Result<(), UsageError> {
    let usual = spec.entry.lock.usual_lease;
    let usual = usual.map(|lease| Nanos(lease.as_nanos() as u64));
    let Some((span, lease)) = plan.keep.zip(plan.lease.or(usual)) else {
        return Ok(());
    };
    if span >= least(lease) {
        return Ok(());
    }
    let shorter = Nanos(span.0 / LEASES / 1_000_000 * 1_000_000);
    refuse(format!(
        "{spec} --for {span}: its lease is {lease}, and {LEASES} leases are the least that show enough \
         renewals; use --for {}, or --lease {shorter}",
        least(lease)
    ))
}

/// Whether an owner of `contend` has its lock until it releases it: where neither it nor its
/// field's clients renew the lease, the hold must not outlast it.
pub(crate) fn check_lease(plan: &Plan, spec: &Spec) -> Result<(), UsageError> {
    let can = &spec.entry.lock;
    let longest = can.usual_lease.filter(|_| !can.renews);
    let (Some(lease), Some(hold)) = (longest, plan.hold.map(|hold| hold.span())) else {
        return Ok(());
    };
    let lease = Nanos(lease.as_nanos() as u64);
    if plan.workload != Workload::Contend || hold < lease {
        return Ok(());
    }
    refuse(format!(
        "{spec} -b {hold}: its lease is {lease}, and its clients do not renew it while they hold; use \
         --hold {}, or a lock whose clients renew, such as redisson or zookeeper",
        Nanos(lease.0 / 2)
    ))
}

/// How long locks with such a lease are kept at least.
fn least(lease: Nanos) -> Nanos {
    Nanos(lease.0.saturating_mul(LEASES))
}

#[cfg(test)]
mod tests {
    use crate::resolve::{Resolved, UsageError, resolve};
    use jostle_model::plan::{Carrier, Plan, Workload};
    use jostle_model::time::Nanos;

    fn resolution(target: &str, change: impl FnOnce(&mut Plan)) -> Result<Resolved, UsageError> {
        let mut plan = Plan::of(Workload::Hold);
        plan.targets = vec![target.to_owned()];
        change(&mut plan);
        resolve(plan, 7, &[0, 1])
    }

    const fn seconds(s: u64) -> Option<Nanos> {
        Some(Nanos::from_millis(1_000 * s))
    }

    #[test]
    fn locks_are_kept_for_three_leases_at_least() {
        // target, --for, --lease, message
        let table = [
            ("redis", 90, None, None),
            ("redis", 89, None, Some("--for 90s, or --lease 29666ms")),
            ("redis", 3, Some(1), None),
            ("redis", 3, Some(2), Some("--for 6s, or --lease 1s")),
            ("zookeeper", 90, None, Some("--for 120s")),
            ("consul", 45, None, None),
            // What belongs to its owner needs no lease, and may be given one.
            ("lockd", 1, None, None),
            ("lockd", 2, Some(1), Some("--for 3s")),
            ("flock", 1, None, None),
        ];
        for (target, span, lease, says) in table {
            let done = resolution(target, |plan| {
                (plan.keep, plan.lease) = (seconds(span), lease.and_then(seconds));
            });
            match (done, says) {
                (Ok(resolved), None) => assert_eq!(resolved.plan.runs, Some(1), "{target}"),
                (Err(error), Some(says)) => assert!(error.0.contains(says), "{error}"),
                (done, _) => panic!("{target} {span}: {done:?}"),
            }
        }
        assert_eq!(resolution("redis", |_| {}).unwrap().plan.runs, None);
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_what_would() {
        type Change = fn(&mut Plan);
        let table: [(Change, &str); 3] = [
            (|plan| plan.lease = seconds(2), "add --for 6s"),
            (
                |plan| (plan.keep, plan.lease) = (seconds(3), Some(Nanos::ZERO)),
                "over at once",
            ),
            (
                |plan| {
                    plan.keep = seconds(90);
                    plan.carrier = Some(Carrier::Tasks);
                },
                "--as threads",
            ),
        ];
        for (change, says) in table {
            let error = resolution("redis", change).unwrap_err();
            assert!(error.0.contains(says), "{error}");
        }
    }
}
