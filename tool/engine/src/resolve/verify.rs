//! Defaults and refusals of `verify`: which faults each target can have, and what is launched for
//! a lock of the user's own.

use super::{Resolved, UsageError, named, refuse, specs};
use jostle_model::plan::{Fault, Plan, Workload};
use jostle_model::record::Promise;
use jostle_model::{List, Nanos, defaults};
use jostle_targets::table::Family;
use jostle_targets::{Spec, TABLE};
use std::collections::BTreeMap;

/// Locks and clients have numbers of 16 bits in the history.
const MOST: u64 = 10_000;
/// The history counts nanoseconds in 44 bits.
const LONGEST: Nanos = Nanos::from_millis(4 * 3_600_000);
/// With `--quick`.
pub(super) const QUICK: Nanos = Nanos::from_millis(10_000);

/// Fills in the rest of the plan.
pub(crate) fn resolve(mut plan: Plan, fresh_seed: u64) -> Result<Resolved, UsageError> {
    let given = super::given(&plan);
    if plan.targets.is_empty() {
        plan.targets = named(defaults::targets(Workload::Verify));
    }
    plan.fill_from(defaults::options(Workload::Verify));
    let specs = specs(&plan)?;
    for spec in &specs {
        check_target(spec)?;
        super::check_members(&plan, spec)?;
        check_braces(&plan, spec)?;
    }
    check_with(&plan, &specs)?;
    check_numbers(&plan, &specs)?;
    promised(&plan)?;
    let asked = plan.fault.take().filter(|asked| asked != Fault::ALL);
    if let Some(asked) = &asked {
        check_asked(&plan, asked, &specs)?;
    }
    // Those that strike somewhere, so that the plan can be run again.
    let strikes = |fault: &Fault| {
        specs
            .iter()
            .any(|spec| faults_of(&plan, spec).contains(fault))
    };
    let faults = asked.unwrap_or_else(|| Fault::ALL.iter().copied().filter(strikes).collect());
    plan.fault = Some(faults);
    plan.seed.get_or_insert(fresh_seed);
    Ok(Resolved {
        plan,
        specs,
        may_drop: false,
        may_shorten: None,
        time_limit: None,
        given,
    })
}

/// The promise that the user states in place of the target's.
pub(crate) fn promised(plan: &Plan) -> Result<Option<Promise>, UsageError> {
    let read = plan.promise.as_deref().map(str::parse).transpose();
    read.map_err(|error: String| UsageError(format!("--promise: {error}")))
}

/// The service that is launched for this target, with `--with`.
pub(crate) fn with<'p>(plan: &'p Plan, spec: &Spec) -> Option<&'p str> {
    let is_own = spec.entry.family == Family::Own;
    plan.with.as_deref().filter(|_| is_own)
}

/// The faults of the plan that strike this target.
pub(crate) fn faults_of(plan: &Plan, spec: &Spec) -> Vec<Fault> {
    let without = without(plan, spec);
    let asked = plan.fault.as_deref().unwrap_or(Fault::ALL).iter();
    asked
        .copied()
        .filter(|fault| !without.contains_key(fault))
        .collect()
}

/// The faults that this target cannot have on this machine, with the reason.
fn without(plan: &Plan, spec: &Spec) -> BTreeMap<Fault, String> {
    let with = with(plan, spec).and_then(|name| Spec::parse(name).ok());
    jostle_verify::without(spec, with.as_ref(), plan.members())
}

/// A note for each target: the faults that strike it, and why others do not.
pub(crate) fn notes(resolved: &Resolved) -> Vec<String> {
    let plan = &resolved.plan;
    let list = |faults: &[Fault]| {
        let words: Vec<&str> = faults.iter().map(|fault| fault.as_str()).collect();
        words.join(", ")
    };
    let note = |spec: &Spec| {
        let mut reasons: Vec<(String, Vec<Fault>)> = Vec::new();
        for (fault, why) in without(plan, spec) {
            match reasons.iter_mut().find(|(known, _)| *known == why) {
                Some((_, faults)) => faults.push(fault),
                None => reasons.push((why, vec![fault])),
            }
        }
        let reasons = reasons.iter();
        let left_out = reasons.map(|(why, faults)| format!("; no {}: {why}", list(faults)));
        let faults = match faults_of(plan, spec) {
            none if none.is_empty() => "none".to_owned(),
            some => list(&some),
        };
        let left_out: String = left_out.collect();
        format!("{}: faults {faults}{left_out}", spec.typed)
    };
    resolved.specs.iter().map(note).collect()
}

fn check_target(spec: &Spec) -> Result<(), UsageError> {
    let name = &spec.typed;
    refuse_where! {
        spec.entry.is_asked() || spec.entry.family == Family::Connection =>
            "{name} is no lock; verify takes locks, such as flock, lockd, redis or pipe:PROGRAM";
        !spec.entry.lock.excludes =>
            "{name} grants all and promises nothing; verify takes locks that exclude";
    }
    Ok(())
}

/// A service in braces stands for the address of what `--with` launches.
fn check_braces(plan: &Plan, spec: &Spec) -> Result<(), UsageError> {
    let argument = spec.argument.as_deref().unwrap_or_default();
    let services = TABLE.iter().filter(|entry| entry.family == Family::Service);
    let mut named = services.filter(|entry| argument.contains(&format!("{{{}}}", entry.name)));
    match named.find(|entry| with(plan, spec) != Some(entry.name)) {
        Some(entry) => refuse(format!(
            "{spec}: `{{{name}}}` stands for a server that is launched for it; add --with {name}",
            name = entry.name
        )),
        None => Ok(()),
    }
}

fn check_with(plan: &Plan, specs: &[Spec]) -> Result<(), UsageError> {
    let Some(name) = &plan.with else {
        return Ok(());
    };
    let service = Spec::parse(name).map_err(|error| UsageError(format!("--with: {error}")))?;
    let braces = format!("{{{name}}}");
    let has_braces = |spec: &Spec| {
        let argument = spec.argument.as_deref().unwrap_or_default();
        spec.entry.family == Family::Own && argument.contains(&braces)
    };
    refuse_where! {
        service.entry.family != Family::Service || service.argument.is_some() =>
            "--with {name}: a lock service that jostle launches, such as redis or postgres, without an \
             address";
        !service.entry.is_over_tcp() =>
            "--with {name}: it has no HOST:PORT; lockd, redis or postgres have one";
        !specs.iter().any(has_braces) =>
            "--with {name}: no target has {braces} in its words, which stands for the server's address, as in \
             'pipe:my_lock {braces}'";
    }
    Ok(())
}

/// Each fault that was asked for must strike one of the targets, and each target must have one.
fn check_asked(plan: &Plan, faults: &[Fault], specs: &[Spec]) -> Result<(), UsageError> {
    refuse_where! {
        faults.is_empty() => "--fault: at least one, such as kill; or all";
    }
    if let Some(twice) = (1..faults.len()).find(|nth| faults[..*nth].contains(&faults[*nth])) {
        return refuse(format!("--fault: {} is named twice", faults[twice]));
    }
    let why = |fault: &Fault, spec: &Spec| without(plan, spec).remove(fault);
    let nowhere = faults.iter().find_map(|fault| {
        let reasons = specs
            .iter()
            .map(|spec| Some((spec, *fault, why(fault, spec)?)));
        reasons.collect::<Option<Vec<_>>>()?.into_iter().next()
    });
    let without = specs.iter().find_map(|spec| {
        let reasons = faults
            .iter()
            .map(|fault| Some((spec, *fault, why(fault, spec)?)));
        reasons.collect::<Option<Vec<_>>>()?.into_iter().next()
    });
    match nowhere.or(without) {
        Some((spec, fault, why)) => refuse(format!(
            "{spec} --fault {fault}: {why}; without --fault all that can strike do"
        )),
        None => Ok(()),
    }
}

fn check_numbers(plan: &Plan, specs: &[Spec]) -> Result<(), UsageError> {
    let one = |option: &str, least: u64, list: &Option<List>| {
        let numbers = list.as_ref().map_or(&[][..], |list| &list.0);
        match numbers {
            [n] if (least..=MOST).contains(n) => Ok(()),
            _ => refuse(format!("{option}: one number, {least} to {MOST}")),
        }
    };
    one("-w", 2, &plan.workers)?;
    one("--keys", 1, &plan.keys)?;
    let files = specs.len() as u64 * u64::from(plan.runs.unwrap_or(1));
    let history = plan.history.as_deref();
    refuse_where! {
        plan.keep() > LONGEST => "--for {}: at most 4 hours ({LONGEST})", plan.keep();
        plan.lease() == Nanos::ZERO => "--lease 0: a lease of no length ends before it begins";
        files > 1 && history.is_some_and(|file| !file.contains("{run}")) =>
            "--history: there are {files} runs, and each writes a file; put {{run}} into its name";
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Fault::{Kill, ServerKill, ServerWipe, Stop};

    fn resolution(
        targets: &[&str],
        change: impl FnOnce(&mut Plan),
    ) -> Result<Resolved, UsageError> {
        let mut plan = Plan {
            targets: named(targets),
            ..Plan::of(Workload::Verify)
        };
        change(&mut plan);
        super::super::resolve(plan, 7, &[0, 1])
    }

    fn refused(targets: &[&str], change: impl FnOnce(&mut Plan)) -> String {
        resolution(targets, change).unwrap_err().0
    }

    #[test]
    fn faults_are_listed_for_each_target_before_anything_starts() {
        let resolved = resolution(&["flock", "busted"], |_| {}).unwrap();
        assert_eq!(resolved.plan.fault, Some(vec![Kill, Stop]));
        assert_eq!(resolved.points().len(), 2);
        let list = "cut, server-kill, server-stop, cut-to, cut-from, server-wipe, clock, \
                    leader-kill, leader-stop, member-kill, partition:minority, partition:majority, \
                    host-gone, idle-cut";
        assert_eq!(
            notes(&resolved),
            [
                format!("flock: faults kill, stop; no {list}: no server keeps it"),
                format!(
                    "busted: faults stop; no kill: a lock whose owner dies stays taken, so that \
                     nothing more could be seen of it; \
                     no {list}: no server keeps it"
                ),
            ]
        );
        // The resolved plan resolves to itself.
        let again = resolution(&[], |plan| *plan = resolved.plan.clone()).unwrap();
        assert_eq!(again.plan, resolved.plan);
        let all = |plan: &mut Plan| plan.fault = Some(Fault::ALL.to_vec());
        let all = resolution(&["flock"], all).unwrap();
        assert_eq!(all.plan.fault, Some(vec![Kill, Stop]));
    }

    #[test]
    fn what_cannot_be_verified_is_refused_with_the_reason() {
        let fault = |target: &str, faults: &[Fault]| {
            refused(&[target], |plan| plan.fault = Some(faults.to_vec()))
        };
        assert_eq!(
            fault("flock", &[Kill, ServerKill]),
            "flock --fault server-kill: no server keeps it; without --fault all that can strike do"
        );
        assert!(fault("redis://h:1", &[ServerWipe]).contains("only a server that jostle launches"));
        assert!(fault("flock", &[Kill, Kill]).contains("twice"));
        assert!(fault("flock", &[]).contains("at least one"));
        for target in ["tcp", "null", "exec:true"] {
            assert!(
                refused(&[target], |_| {}).contains("verify takes locks"),
                "{target}"
            );
        }
        assert!(resolution(&["busted:0.5"], |_| {}).is_ok());
        type Change = fn(&mut Plan);
        let changes: [(Change, &str); 8] = [
            (|plan| plan.keep = Some(Nanos::ZERO), "--for: 1s to"),
            (
                |plan| plan.keep = Some(Nanos(5 * 3_600_000_000_000)),
                "at most 4 hours",
            ),
            (|plan| plan.workers = Some(List(vec![1])), "-w: one number"),
            (
                |plan| plan.workers = Some(List(vec![2, 4])),
                "-w: one number",
            ),
            (
                |plan| plan.keys = Some(List(vec![1 << 16])),
                "--keys: one number",
            ),
            (|plan| plan.lease = Some(Nanos::ZERO), "--lease 0"),
            (
                |plan| plan.promise = Some("lease".to_owned()),
                "--promise: ",
            ),
            (
                |plan| (plan.history, plan.runs) = (Some("h".to_owned()), Some(2)),
                "put {run} into its name",
            ),
        ];
        for (change, says) in changes {
            let error = refused(&["flock"], change);
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_service_is_launched_for_a_lock_that_asks_for_its_address() {
        let with = |target: &str, name: &str| {
            let with = Some(name.to_owned());
            resolution(&[target], |plan| plan.with = with)
        };
        assert!(with("pipe:true {redis}", "redis").is_ok());
        for (target, name, says) in [
            ("pipe:true", "redis", "no target has {redis}"),
            ("flock", "redis", "no target has {redis}"),
            ("pipe:true {redis}", "lockd", "add --with redis"),
            (
                "pipe:true {flock}",
                "flock",
                "a lock service that jostle launches",
            ),
            ("pipe:true", "redis://h:1", "without an address"),
            ("pipe:true", "lockd+unix", "no HOST:PORT"),
            ("pipe:true", "rediss", "--with"),
        ] {
            let error = with(target, name).unwrap_err().0;
            assert!(error.contains(says), "{target}: {error}");
        }
    }
}
