//! Defaults and refusals of `recover`: which fault makes sense for which target.

use super::{Resolved, UsageError, check_spans, named, refuse, specs};
use jostle_model::plan::{Fault, Plan};
use jostle_model::{Nanos, defaults};
use jostle_recover::why_no_member;
use jostle_sys::link;
use jostle_targets::Spec;
use jostle_targets::table::Family;

/// Leases below this end while the waiters still arrive.
const SHORTEST_LEASE: Nanos = Nanos::from_millis(1_000);

/// Fills in the rest of the plan.
pub(crate) fn resolve(mut plan: Plan, fresh_seed: u64) -> Result<Resolved, UsageError> {
    let given = super::given(&plan);
    if plan.targets.is_empty() {
        plan.targets = named(defaults::targets(plan.workload));
    }
    let specs = specs(&plan)?;
    let members = plan.members();
    for spec in &specs {
        check_target(spec)?;
        super::check_members(&plan, spec)?;
    }
    if let Some(asked) = &plan.fault {
        check_asked(asked, &specs, members)?;
    }
    let chosen = plan.fault.is_none();
    plan.fill_from(defaults::swept(plan.workload));
    plan.fill_from(defaults::options(plan.workload));
    if let (true, Some(faults)) = (chosen, &mut plan.fault) {
        // Those that make sense somewhere, so that the plan can be run again.
        faults.retain(|fault| specs.iter().any(|spec| makes_sense(*fault, spec, members)));
    }
    plan.seed.get_or_insert(fresh_seed);
    check_times(&plan)?;
    Ok(Resolved {
        plan,
        specs,
        may_drop: false,
        may_shorten: None,
        time_limit: None,
        given,
    })
}

/// Whether a fault can strike this target, of which so many servers are launched.
pub(crate) fn makes_sense(fault: Fault, spec: &Spec, members: u64) -> bool {
    why(fault, spec, members).is_none()
}

/// A note for each fault that was left out of a target.
pub(crate) fn notes(resolved: &Resolved) -> Vec<String> {
    let faults = resolved.plan.fault.iter().flatten();
    // What makes no sense for any target is not in the plan; this one does, elsewhere.
    let over_tcp = |spec: &&Spec| spec.argument.is_none() && spec.entry.is_over_tcp();
    let members = resolved.plan.members();
    let chosen = !resolved.given.iter().any(|option| option == "--fault");
    let mut specs = resolved.specs.iter();
    let uncut = specs.find(over_tcp).filter(|_| chosen && !link::may_cut());
    let uncut = uncut.and_then(|spec| why(Fault::Cut, spec, members));
    let uncut = uncut.map(|why| format!("without cut, since {why}"));
    let left_out = faults.flat_map(|fault| {
        let specs = resolved.specs.iter();
        specs.filter_map(move |spec| {
            let why = why(*fault, spec, members)?;
            Some(format!("{}: without {fault}, since {why}", spec.typed))
        })
    });
    uncut.into_iter().chain(left_out).collect()
}

/// Why a fault cannot strike this target; None: it can. A service is killed, stopped or cut off
/// only if jostle has launched it.
fn why(fault: Fault, spec: &Spec, members: u64) -> Option<String> {
    // Of a single server, the owner's host goes.
    let of_owner = fault == Fault::HostGone && members < 2;
    let cuts = matches!(fault, Fault::Cut | Fault::IdleCut) || of_owner;
    let is_launched = spec.argument.is_none();
    match spec.entry.is_remote() {
        _ if fault.is_of_verify() => Some("only `jostle verify` has it".to_owned()),
        _ if matches!(fault, Fault::Kill | Fault::Stop) => None,
        false => Some("it has no server".to_owned()),
        true if fault.is_of_member() && !of_owner => why_no_member(fault, spec, members),
        true if cuts && !spec.entry.is_over_tcp() => {
            Some("no network lies between its workers and their server".to_owned())
        }
        true if cuts && is_launched && !link::may_cut() => {
            Some("this kernel lets only root cut a connection".to_owned())
        }
        true if is_launched => None,
        true => Some(format!(
            "jostle strikes only servers that it launches (`{}` without an address)",
            spec.entry.name
        )),
    }
}

fn check_target(spec: &Spec) -> Result<(), UsageError> {
    let name = &spec.typed;
    refuse_where! {
        spec.entry.is_asked() || spec.entry.family == Family::Connection =>
            "{name} is not a lock; recover takes locks, such as flock, lockd or redis";
        !spec.entry.lock.excludes =>
            "{name} grants everybody, so nobody waits; recover takes locks that exclude";
    }
    Ok(())
}

/// Each fault that was asked for must make sense for one of the targets, and each target
/// must have one.
fn check_asked(faults: &[Fault], specs: &[Spec], members: u64) -> Result<(), UsageError> {
    refuse_where! {
        faults.is_empty() => "--fault: name at least one, such as kill";
    }
    if let Some(twice) = (1..faults.len()).find(|nth| faults[..*nth].contains(&faults[*nth])) {
        return refuse(format!(
            "--fault: {} is named twice; --runs repeats a fault",
            faults[twice]
        ));
    }
    let fits = |fault: &Fault, spec: &Spec| makes_sense(*fault, spec, members);
    let nowhere = faults
        .iter()
        .find(|fault| !specs.iter().any(|spec| fits(fault, spec)));
    let without = specs
        .iter()
        .find(|spec| !faults.iter().any(|fault| fits(fault, spec)));
    let refused = match (nowhere, without) {
        (Some(fault), _) => specs.first().map(|spec| (fault, spec)),
        (None, Some(spec)) => faults.first().map(|fault| (fault, spec)),
        (None, None) => None,
    };
    match refused {
        None => Ok(()),
        Some((fault, spec)) => refuse(format!(
            "{} --fault {fault}: {}; --fault kill,stop strikes the owner",
            spec.typed,
            why(*fault, spec, members).unwrap_or_default()
        )),
    }
}

fn check_times(plan: &Plan) -> Result<(), UsageError> {
    for (option, time) in [("--within", plan.within), ("--pause", plan.pause)] {
        refuse_where! {
            time == Some(Nanos::ZERO) => "{option} 0 leaves no time to watch; give more";
        }
    }
    refuse_where! {
        plan.lease.is_some_and(|lease| lease < SHORTEST_LEASE) =>
            "--lease {} may end before the fault strikes; give at least {SHORTEST_LEASE}",
            plan.lease();
    }
    check_spans(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::plan::Workload;

    fn resolution(targets: &[&str], faults: Option<&[Fault]>) -> Result<Resolved, UsageError> {
        let plan = Plan {
            targets: named(targets),
            fault: faults.map(<[Fault]>::to_vec),
            ..Plan::of(Workload::Recover)
        };
        resolve(plan, 7)
    }

    fn points(resolved: &Resolved) -> Vec<(usize, Fault)> {
        let points = resolved.points().into_iter();
        points
            .filter_map(|(spec, at)| Some((spec, at.fault?)))
            .collect()
    }

    #[test]
    fn what_was_asked_for_and_makes_no_sense_is_refused() {
        let refused = |targets: &[&str], faults: &[Fault]| {
            resolution(targets, Some(faults)).err().map(|error| error.0)
        };
        assert_eq!(
            refused(&["flock"], &[Fault::Kill, Fault::ServerKill]).unwrap(),
            "flock --fault server-kill: it has no server; --fault kill,stop strikes the owner"
        );
        let named = refused(&["redis://localhost:6379"], &[Fault::ServerStop]).unwrap();
        assert!(
            named.contains("jostle strikes only servers that it launches"),
            "{named}"
        );
        assert_eq!(
            refused(&["lockd+unix"], &[Fault::Cut]).unwrap(),
            "lockd+unix --fault cut: no network lies between its workers and their server; \
             --fault kill,stop strikes the owner"
        );
        assert!(refused(&["redis://localhost:6379"], &[Fault::Cut]).is_some());
        assert!(refused(&["flock", "lockd"], &[Fault::ServerKill]).is_some());
        assert!(refused(&["flock", "lockd"], &[Fault::Kill, Fault::ServerKill]).is_none());
        let twice = refused(&["flock"], &[Fault::Kill, Fault::Kill]).unwrap();
        assert!(twice.contains("twice"), "{twice}");
        assert!(refused(&["flock"], &[]).is_some());
        // A leader is one of several servers; of a single one, the owner's host goes.
        for (target, fault, says) in [
            ("zookeeper", Fault::LeaderKill, "`--members 3`"),
            ("zookeeper://h:1", Fault::LeaderKill, "it launches"),
            ("lockd", Fault::PartitionMinority, "no cluster of it"),
            ("lockd+unix", Fault::HostGone, "no network lies"),
            ("redis://h:1", Fault::IdleCut, "it launches"),
        ] {
            let error = refused(&[target], &[fault]).unwrap();
            assert!(error.contains(says), "{target} {fault}: {error}");
        }
    }

    #[test]
    fn only_locks_that_exclude_recover() {
        for target in ["exec:true", "tcp", "null"] {
            let error = resolution(&[target], None).unwrap_err().0;
            assert!(error.contains("recover takes locks"), "{error}");
        }
    }

    #[test]
    fn times_of_no_length_are_refused() {
        let with = |change: fn(&mut Plan)| {
            let mut plan = Plan::of(Workload::Recover);
            change(&mut plan);
            resolve(plan, 7).is_err()
        };
        assert!(!with(|_| {}));
        assert!(with(|plan| plan.within = Some(Nanos::ZERO)));
        assert!(with(|plan| plan.pause = Some(Nanos::ZERO)));
        assert!(with(|plan| plan.lease = Some(Nanos::from_millis(999))));
        assert!(with(|plan| plan.timer_slack = Some(Nanos::ZERO)));
    }

    /// Who may cut a link is a matter of privileges.
    mod live_tests {
        use super::*;

        #[test]
        fn the_default_leaves_out_what_makes_no_sense_and_says_so() {
            let resolved = resolution(&["flock", "lockd"], None).unwrap();
            let expected = [
                (0, Fault::Kill),
                (0, Fault::Stop),
                (1, Fault::Kill),
                (1, Fault::Stop),
                (1, Fault::Cut),
                (1, Fault::ServerKill),
                (1, Fault::ServerStop),
            ];
            assert_eq!(points(&resolved), expected);
            assert_eq!(
                notes(&resolved),
                [
                    "flock: without cut, since it has no server",
                    "flock: without server-kill, since it has no server",
                    "flock: without server-stop, since it has no server"
                ]
            );
            // What was run can be run again.
            let again = resolve(resolved.plan.clone(), 8).unwrap();
            assert_eq!(again.plan, resolved.plan);
            let alone = resolution(&["flock"], None).unwrap();
            assert_eq!(alone.plan.fault, Some(vec![Fault::Kill, Fault::Stop]));
            assert!(notes(&alone).is_empty());
        }
    }
}
