//! The meaning of a plan on several hosts, and the combinations refused there.

use super::{Resolved, UsageError, refuse, resolve};
use crate::hosts::Host;
use jostle_model::plan::{Carrier, Place, Plan, Workload};
use jostle_targets::table::Family;
use jostle_targets::{CONNECTIONS, Entry, Spec, TABLE};
use std::collections::BTreeSet;

/// As [`resolve`], for so many hosts; with one it is the same.
///
/// # Errors
/// As there, and where a target would be another one on each host.
pub fn resolve_over(
    mut plan: Plan,
    fresh_seed: u64,
    allowed: &[usize],
    hosts: usize,
) -> Result<Resolved, UsageError> {
    if hosts > 1 && matches!(plan.workload, Workload::Spread | Workload::Connect) {
        // No server is launched here for which they would make room.
        plan.place.get_or_insert(Place::None);
    }
    let resolved = resolve(plan, fresh_seed, allowed)?;
    if hosts > 1 {
        check(&resolved, hosts)?;
    }
    Ok(resolved)
}

fn check(resolved: &Resolved, hosts: usize) -> Result<(), UsageError> {
    let plan = &resolved.plan;
    refuse_where! {
        matches!(plan.workload, Workload::Recover | Workload::Verify) =>
            "{} works on one host; start it there, without the launcher", plan.workload;
        plan.keep.is_some() =>
            "--for works on one host; start it there, without the launcher";
    }
    if plan.workload == Workload::Connect {
        check_listed(plan, hosts as u64)?;
    }
    let generators = plan.generators.as_ref().map_or(&[][..], |list| &list.0);
    if let Some(many) = generators.iter().find(|k| **k > hosts as u64) {
        return refuse(format!(
            "--generators {many}: each of the {hosts} hosts is one generator; \
             start more ranks (mpirun -n {many}), or list fewer"
        ));
    }
    resolved.specs.iter().try_for_each(check_target)
}

/// Each listed number must give each host another connection.
fn check_listed(plan: &Plan, hosts: u64) -> Result<(), UsageError> {
    let open = plan.open.iter();
    let open: BTreeSet<u64> = open.flat_map(|list| list.0.iter().copied()).collect();
    let before = std::iter::once(0).chain(open.iter().copied());
    match before
        .zip(open.iter().copied())
        .find(|(before, open)| *open < before + hosts)
    {
        Some((before, open)) => refuse(format!(
            "--open: {before} and {open} lie too close together for {hosts} hosts, each of which adds a \
             connection; list numbers that are further apart"
        )),
        None => Ok(()),
    }
}

/// Whether all hosts mean the same thing by this target, or none need to.
fn check_target(spec: &Spec) -> Result<(), UsageError> {
    let place = spec.argument.as_deref();
    let is_named = place.is_some_and(|place| place.starts_with("//"));
    let (why, remedy) = match spec.entry.family {
        Family::File if place.is_none() => (
            "each host has a file of its own",
            format!("name one on a file system that all of them share: {spec}:PATH"),
        ),
        Family::Semaphore | Family::Memory => (
            "its workers share the memory of one kernel",
            "on several hosts, a lock service or a file on a shared file system".to_owned(),
        ),
        // A program of the user's own is reached by a path and may ask a server that all
        // hosts reach; a library is handed memory.
        Family::Own if spec.entry.path_alone().is_none() => (
            "its workers share the memory of one kernel",
            "on several hosts, pipe:COMMAND with a program that reaches the lock".to_owned(),
        ),
        Family::Service if !is_named => (
            "without an address jostle launches it for one host alone",
            format!(
                "start its server where all hosts reach it, and name {}",
                addressed(spec)
            ),
        ),
        Family::Server if spec.entry.is_launched() && !is_named => (
            "without an address jostle launches it on one host only",
            format!("start its server and name {}", spec.entry.addressed()),
        ),
        Family::Connection if !is_named => (
            "only its own host can reach the server that jostle brings",
            format!(
                "start one and name {}",
                first(
                    &mut CONNECTIONS
                        .iter()
                        .copied()
                        .filter(|entry| entry.has_ports())
                )
            ),
        ),
        Family::Specimen if spec.entry.is_remote() || spec.entry.lock.excludes => (
            "this specimen works on one host only",
            "start it there, without the launcher".to_owned(),
        ),
        _ => return Ok(()),
    };
    refuse(format!("{spec} on several hosts: {why}; {remedy}"))
}

/// How a service is named by its address: this one, or where it is reached by a socket
/// only, the first that is not.
fn addressed(spec: &Spec) -> String {
    let has_address = |entry: &&Entry| {
        let argument = entry.argument.unwrap_or_default();
        entry.family == Family::Service && argument.starts_with("//")
    };
    let all = std::iter::once(spec.entry).chain(TABLE.iter().copied());
    first(&mut all.filter(has_address))
}

fn first(entries: &mut dyn Iterator<Item = &'static Entry>) -> String {
    entries.next().map(Entry::addressed).unwrap_or_default()
}

/// Notes on a plan on these hosts.
pub fn notes(resolved: &Resolved, hosts: &[Host]) -> Vec<String> {
    if resolved.plan.workload == Workload::Recover {
        return super::recover::notes(resolved);
    }
    if resolved.plan.workload == Workload::Verify {
        return super::verify::notes(resolved);
    }
    let mut apart = kinds_apart(resolved);
    apart.extend(tasks_stay(resolved));
    let differ = |host: &Host| host.name != hosts[0].name || host.boot_id != hosts[0].boot_id;
    if !hosts.iter().any(differ) {
        return apart;
    }
    let loopback = resolved.specs.iter().filter(|spec| is_loopback(spec));
    loopback
        .map(|spec| {
            format!(
                "{spec}: its address is each host's own, so that every host asks a server of its \
                 own; name one by which all hosts reach the same"
            )
        })
        .chain(apart)
        .collect()
}

/// A note where workers would go on at another server of a cluster, if they were no tasks: a
/// generator thread waits for no new connection, which would keep all its other tasks waiting.
fn tasks_stay(resolved: &Resolved) -> Option<String> {
    let plan = &resolved.plan;
    let has_several = |spec: &&Spec| {
        let is_named = spec.argument.as_deref().is_some_and(|at| at.contains(','));
        spec.entry.lock.clusters && (is_named || plan.members.is_some_and(|members| members > 1))
    };
    let spec = resolved.specs.iter().find(has_several)?;
    (plan.carrier() == Carrier::Tasks).then(|| {
        format!(
            "{spec} --as tasks: each worker stays at its server, and ends with an error if that dies; \
             --as threads goes on at another one"
        )
    })
}

/// A note for locks on the same file of which one keeps out nobody who takes the other:
/// only record locks exclude each other.
fn kinds_apart(resolved: &Resolved) -> Vec<String> {
    let on_file = |spec: &&Spec| spec.entry.family == Family::File && spec.argument.is_some();
    let files: Vec<&Spec> = resolved.specs.iter().filter(on_file).collect();
    let mut notes = Vec::new();
    for (nth, one) in files.iter().enumerate() {
        let is_apart = |other: &&&Spec| {
            other.argument == one.argument
                && other.entry.name != one.entry.name
                && !(other.entry.lock.ranges && one.entry.lock.ranges)
        };
        notes.extend(files[nth + 1..].iter().filter(is_apart).map(|other| {
            format!(
                "{one} and {other}: on Linux these two kinds of lock do not exclude each other, \
                 although the file is the same; the programs that share it must take one kind"
            )
        }));
    }
    notes
}

fn is_loopback(spec: &Spec) -> bool {
    let argument = spec.argument.as_deref();
    let place = argument.and_then(|text| text.strip_prefix("//"));
    let place = place.unwrap_or_default();
    ["127.", "localhost", "[::1]"]
        .iter()
        .any(|start| place.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::List;

    fn resolution(workload: Workload, target: &str) -> Result<Resolved, UsageError> {
        let mut plan = Plan::of(workload);
        plan.targets = vec![target.to_owned()];
        if workload == Workload::Spread {
            plan.generators = Some(List(vec![1, 3]));
        }
        resolve_over(plan, 7, &[0, 1], 3)
    }

    #[test]
    fn what_is_another_one_on_each_host_is_refused_with_what_would_do() {
        use Workload::{Connect, Contend, Spread, Stream};
        for (workload, target, says) in [
            (Contend, "flock", "flock:PATH"),
            (Contend, "futex", "a lock service or a file"),
            (Contend, "sysv", "a lock service or a file"),
            (Contend, "pthread", "a lock service or a file"),
            (Contend, "lib:./lock.so", "pipe:COMMAND"),
            (
                Stream,
                "lockd",
                "start its server where all hosts reach it, and name lockd://HOST:PORT",
            ),
            (Stream, "lockd+unix:/run/x", "name lockd://HOST:PORT"),
            (Contend, "redis", "name redis://HOST:PORT"),
            (Spread, "procd", "name procd://HOST:PORT/PROCEDURE"),
            (Contend, "busted", "without the launcher"),
            (Stream, "echo", "without the launcher"),
            (Connect, "tcp", "name tcp://HOST:PORT"),
            (Connect, "unix:/run/x", "name tcp://HOST:PORT"),
        ] {
            let error = resolution(workload, target).unwrap_err().0;
            assert!(error.contains(says), "{error} does not say {says}");
        }
    }

    #[test]
    fn what_all_hosts_reach_is_taken() {
        use Workload::{Connect, Contend, Spread, Stream};
        for (workload, target) in [
            (Contend, "flock:/mnt/shared/file"),
            (Contend, "lockd://server:2626"),
            (Stream, "redis://10.0.0.1:6379"),
            (Stream, "exec:jostle-call 10.0.0.1:7887 /sizecheck"),
            (Spread, "ldap://server:389/dc=x?(uid=user{n})"),
            (Spread, "procd://server:7887/sizecheck?a=1"),
            (Stream, "null"),
            (Connect, "tcp://server:80"),
        ] {
            assert!(resolution(workload, target).is_ok(), "{target}");
        }
        let spread = resolution(Workload::Spread, "http://server/").unwrap();
        assert_eq!(spread.plan.place, Some(Place::None));
    }

    #[test]
    fn each_listed_number_has_a_connection_for_each_host() {
        // numbers, hosts -> message
        let table: [(&[u64], usize, Option<&str>); 5] = [
            (&[3, 6], 3, None),
            (&[1], 1, None),
            (&[2, 100], 3, Some("0 and 2 lie too close")),
            (&[10, 12], 3, Some("10 and 12 lie too close")),
            (&[100, 10], 3, None), // in whatever order
        ];
        for (open, hosts, says) in table {
            let mut plan = Plan::of(Workload::Connect);
            plan.targets = vec!["tcp://server:80".to_owned()];
            plan.open = Some(List(open.to_vec()));
            let error = resolve_over(plan, 7, &[0, 1], hosts)
                .err()
                .map(|error| error.0);
            assert_eq!(error.is_some(), says.is_some(), "{open:?} {error:?}");
            assert!(error.unwrap_or_default().contains(says.unwrap_or_default()));
        }
    }

    #[test]
    fn there_are_as_many_generators_as_hosts() {
        let mut plan = Plan::of(Workload::Spread);
        plan.targets = vec!["http://server/".to_owned()];
        plan.generators = Some(List(vec![3, 6]));
        let error = resolve_over(plan.clone(), 7, &[0, 1], 3).unwrap_err().0;
        assert!(error.contains("mpirun -n 6"), "{error}");
        assert!(resolve_over(plan.clone(), 7, &[0, 1], 6).is_ok());
        // One host has processes for generators, as ever.
        assert!(resolve_over(plan, 7, &[0, 1], 1).is_ok());
    }

    #[test]
    fn kinds_of_lock_on_one_file_that_do_not_exclude_each_other_are_noted() {
        for (targets, noted) in [
            (&["flock:/f", "posix:/f"][..], 1),
            (&["flock:/f", "ofd:/f", "posix:/f"], 2),
            (&["ofd:/f", "posix:/f"], 0),
            (&["flock:/f", "posix:/g"], 0),
            (&["flock", "posix"], 0),
        ] {
            let mut plan = Plan::of(Workload::Contend);
            plan.targets = targets.iter().map(|target| (*target).to_owned()).collect();
            let resolved = resolve_over(plan, 7, &[0, 1], 1).unwrap();
            let said = notes(&resolved, &[Host::default()]);
            assert_eq!(said.len(), noted, "{said:?}");
            let are_named = said
                .iter()
                .all(|note| note.contains("do not exclude each other"));
            assert!(are_named, "{said:?}");
        }
    }

    #[test]
    fn tasks_of_a_cluster_are_noted_to_stay_at_their_server() {
        for (target, members, carrier, noted) in [
            ("zookeeper://a:1,b:1", None, Carrier::Tasks, 1),
            ("zookeeper", Some(3), Carrier::Tasks, 1),
            ("zookeeper://a:1,b:1", None, Carrier::Threads, 0),
            ("zookeeper://a:1", None, Carrier::Tasks, 0),
            ("zookeeper", None, Carrier::Tasks, 0),
        ] {
            let mut plan = Plan::of(Workload::Contend);
            plan.targets = vec![target.to_owned()];
            (plan.members, plan.carrier) = (members, Some(carrier));
            let resolved = resolve_over(plan, 7, &[0, 1], 1).unwrap();
            let said = notes(&resolved, &[Host::default()]);
            assert_eq!(said.len(), noted, "{target}: {said:?}");
            assert!(said.iter().all(|note| note.contains("--as threads")));
        }
    }

    #[test]
    fn a_loopback_address_is_noted_where_hosts_differ() {
        let resolved = resolution(Workload::Stream, "redis://127.0.0.1:6379").unwrap();
        let host = |name: &str| Host {
            name: name.to_owned(),
            boot_id: "b".to_owned(),
            ..Host::default()
        };
        assert_eq!(notes(&resolved, &[host("a"), host("a")]), [""; 0]);
        let said = notes(&resolved, &[host("a"), host("b")]);
        assert!(said[0].contains("a server of its own"), "{said:?}");
        let named = resolution(Workload::Stream, "redis://10.0.0.1:6379").unwrap();
        assert_eq!(notes(&named, &[host("a"), host("b")]), [""; 0]);
    }
}
