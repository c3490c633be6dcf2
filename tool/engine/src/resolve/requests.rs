//! A plan's requests: defaults, and the combinations refused.

use super::{UsageError, refuse};
use jostle_model::options::{Heading, OPTIONS};
use jostle_model::plan::{Carrier, Measure, Plan, Shape, Workload};
use jostle_model::{Nanos, defaults};
use jostle_targets::{Spec, requests};

/// Codes are exit codes, result codes of protocols, or statuses.
const GREATEST_CODE: u64 = 999;

/// Fills in what requests have beside locks, where any are made.
pub(super) fn fill_in(plan: &mut Plan, specs: &[Spec]) {
    if !specs.iter().any(|spec| spec.entry.is_asked()) {
        return;
    }
    plan.fill_from(defaults::requests(plan.workload));
    let mut nulls = specs.iter().filter_map(|spec| requests(spec.entry)?.null);
    // A null that is measured for itself has nothing to be subtracted.
    let measured = |null: &&str| specs.iter().all(|spec| spec.typed != **null);
    if plan.null.is_none() && plan.workload.shape() == Shape::Stream {
        plan.null = nulls.find(measured).map(str::to_owned);
    }
}

/// Rejects what is impossible for the experiment as a whole.
///
/// # Errors
/// In words for the user.
pub(super) fn check(plan: &Plan, specs: &[Spec]) -> Result<(), UsageError> {
    let asked = specs.iter().find(|spec| spec.entry.is_asked());
    let lock = specs.iter().find(|spec| !spec.entry.is_asked());
    if let (Some(asked), Some(lock), Shape::Stream) = (asked, lock, plan.workload.shape()) {
        return refuse(format!(
            "{lock} is a lock and {asked} answers requests, so their figures cannot be compared; \
             measure them one after the other"
        ));
    }
    let named = |spec: &Spec| spec.argument.is_some() && spec.entry.is_remote();
    if plan.credentials.is_some() && asked.is_none() && !specs.iter().any(named) {
        return refuse(
            "--credentials is for a server of your own; name one, such as \
             redis://HOST:PORT"
                .to_owned(),
        );
    }
    if asked.is_none() {
        let mut set = OPTIONS.iter().filter(|option| option.get(plan).is_some());
        if let Some(option) = set.find(|option| option.heading == Heading::Requests) {
            return refuse(format!(
                "{} is for targets that answer requests; {}",
                option.flag(),
                examples()
            ));
        }
        return Ok(());
    }
    let codes = plan.expect.as_ref().map_or(&[][..], |list| &list.0);
    refuse_where! {
        plan.expect.is_some() && (codes.is_empty() || codes.iter().any(|c| *c > GREATEST_CODE)) =>
            "--expect takes codes from 0 to {GREATEST_CODE}";
        plan.call_timeout == Some(Nanos::ZERO) => "--call-timeout 0: no call is so quick; give more";
        plan.numbers == Some(0) => "--numbers 0: give at least one number, or leave it out";
    }
    check_null(plan)
}

fn check_null(plan: &Plan) -> Result<(), UsageError> {
    let Some(null) = plan.null.as_deref() else {
        return Ok(());
    };
    if null == defaults::NO_NULL {
        return Ok(());
    }
    let spec = Spec::parse(null).map_err(|error| UsageError(format!("--null: {error}")))?;
    match spec.entry.is_asked() {
        true => Ok(()),
        false => refuse(format!(
            "--null {null} is a lock; name a request that does nothing, or `{}`",
            defaults::NO_NULL
        )),
    }
}

/// Whether this target can be asked as the options say.
///
/// # Errors
/// In words for the user.
pub(super) fn check_target(plan: &Plan, spec: &Spec) -> Result<(), UsageError> {
    if !matches!(
        plan.workload,
        Workload::Stream | Workload::Rate | Workload::Spread
    ) {
        return refuse(format!(
            "{spec} is not a lock; `jostle stream` and `jostle rate` send it requests"
        ));
    }
    refuse_where! {
        plan.carrier == Some(Carrier::Tasks) =>
            "{spec} --as tasks: a call that waits stops all workers of its thread; use \
             --as processes or threads";
        plan.measure == Some(Measure::Counts) =>
            "{spec} --measure counts saves nothing, since requests take long; leave it out";
        plan.pipeline() > 1 =>
            "{spec} takes one request at a time; --pipeline is for lock services";
    }
    Ok(())
}

fn examples() -> String {
    let names = jostle_targets::REQUESTS.iter();
    let names: Vec<&str> = names.map(|target| target.entry.name).collect();
    format!("name one of: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::{Resolved, resolve};
    use super::*;
    use jostle_model::List;

    fn resolution(
        targets: &[&str],
        change: impl FnOnce(&mut Plan),
    ) -> Result<Resolved, UsageError> {
        let mut plan = Plan::of(Workload::Stream);
        plan.targets = targets.iter().map(|t| (*t).to_owned()).collect();
        change(&mut plan);
        resolve(plan, 7, &[0, 1])
    }

    #[test]
    fn requests_get_their_timeout_and_their_null() {
        let plan = resolution(&["exec:sh -c 'exit 3'"], |_| {}).unwrap().plan;
        assert_eq!(plan.call_timeout, Some(Nanos::from_millis(10_000)));
        assert_eq!(plan.null.as_deref(), Some("exec:true"));
        assert_eq!(resolve(plan.clone(), 99, &[0, 1]).unwrap().plan, plan);
        let null_itself = resolution(&["exec:true"], |_| {}).unwrap().plan;
        assert_eq!(null_itself.null, None);
        let locks = resolution(&["flock"], |_| {}).unwrap().plan;
        assert_eq!((locks.call_timeout, locks.null), (None, None));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        type Case = (&'static [&'static str], fn(&mut Plan), &'static str);
        let table: &[Case] = &[
            (
                &["exec:true", "flock"],
                |_| {},
                "flock is a lock and exec:true",
            ),
            (
                &["flock", "redis"],
                |p| p.credentials = Some("own".to_owned()),
                "--credentials is for a server of your own",
            ),
            (
                &["flock"],
                |p| p.expect = Some(List(vec![0])),
                "--expect is for targets that answer requests",
            ),
            (
                &["exec:true"],
                |p| p.expect = Some(List(vec![1000])),
                "0 to 999",
            ),
            (
                &["exec:true"],
                |p| p.call_timeout = Some(Nanos::ZERO),
                "no call is so quick",
            ),
            (&["exec:true"], |p| p.numbers = Some(0), "at least one"),
            (
                &["exec:true"],
                |p| p.null = Some("flock".into()),
                "is a lock",
            ),
            (
                &["exec:true"],
                |p| p.null = Some("flok".into()),
                "did you mean",
            ),
            (
                &["exec:true"],
                |p| p.carrier = Some(Carrier::Tasks),
                "--as processes",
            ),
            (
                &["exec:true"],
                |p| p.measure = Some(Measure::Counts),
                "leave it out",
            ),
            (
                &["exec:true"],
                |p| p.pipeline = Some(2),
                "one request at a time",
            ),
            (
                &["exec:true"],
                |p| p.workload = Workload::Contend,
                "not a lock; `jostle stream` and `jostle rate` send it requests",
            ),
            (&["exec"], |_| {}, "write exec:COMMAND"),
        ];
        for (targets, change, part) in table {
            let error = resolution(targets, *change).unwrap_err().to_string();
            assert!(error.contains(part), "{error} lacks {part}");
        }
    }
}
