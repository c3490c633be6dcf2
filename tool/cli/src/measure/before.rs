//! Checks before anything starts: programs, servers, and the limits of this machine.

use crate::Failure;
use anyhow::anyhow;
use jostle_engine::hosts::Host;
use jostle_engine::keeper;
use jostle_engine::preflight::{self, Need, OneHost};
use jostle_engine::resolve::{self, Resolved};
use jostle_model::List;
use jostle_model::defaults::NO_NULL;
use jostle_model::plan::{Carrier, Names, Plan, Workload};
use jostle_sys::limits::Machine;
use jostle_targets::address::Address;
use jostle_targets::table::Family;
use jostle_targets::{Spec, all_installed};
use std::path::Path;

/// The memory of a forked worker beside its own page: kernel stack, page tables, copied pages. The
/// whole stays under 200 KiB.
const WORKER_BYTES: u64 = 200 << 10;
/// A thread has its stack, which it barely touches, and its page.
const THREAD_BYTES: u64 = 100 << 10;

/// A task has a connection, whose other end may be on this machine too, and the
/// head of its page.
const TASK_BYTES: u64 = 32 << 10;

/// As [`preflight`], of all, with what their plans alone give rise to.
pub(super) fn preflight_all(
    resolved: &[Resolved],
    machine: &Machine,
    hosts: &[Host],
) -> Result<Vec<String>, Failure> {
    let mut notes = Vec::new();
    for experiment in resolved {
        notes.extend(preflight(experiment, machine, hosts)?);
        notes.extend(resolve::notes(experiment, hosts));
    }
    Ok(notes)
}

/// Rejects experiments that exceed this machine's limits, before anything starts. Returns
/// notes about the others. With several `hosts`, it checks this host's limits against the
/// largest share of a host.
fn preflight(
    resolved: &Resolved,
    machine: &Machine,
    hosts: &[Host],
) -> Result<Vec<String>, Failure> {
    if let Some(server) = &resolved.plan.server {
        keeper::check_server(server).map_err(Failure::Usage)?;
    }
    let one = OneHost::new(&resolved.plan, hosts);
    if resolved.plan.workload == Workload::Connect {
        return forecast(resolved, machine, &one);
    }
    reach_all(resolved)?;
    for spec in &resolved.specs {
        preflight::fits(&need(&resolved.plan, &one, spec, machine), machine).map_err(
            |refusal| Failure::Failed(anyhow!("{}: {}{refusal}", spec.typed, one.whose())),
        )?;
    }
    let mut notes = unseen_servers(resolved);
    notes.extend(dead_members(resolved));
    Ok(notes)
}

/// A note for each server of a cluster that takes no connection.
fn dead_members(resolved: &Resolved) -> Vec<String> {
    let specs = resolved.specs.iter();
    let clusters = specs.filter(|spec| spec.entry.lock.clusters);
    let dead = clusters.map(|spec| (spec, Address::dead(spec.argument.as_deref().unwrap_or(""))));
    dead.filter(|(_, dead)| !dead.is_empty())
        .map(|(spec, dead)| {
            format!(
                "{}: {} does not take connections; its workers use the other servers",
                spec.typed,
                dead.join(", ")
            )
        })
        .collect()
}

/// A note for each server of this machine whose processes this user cannot find. Lock
/// servers report their process, and need no note.
fn unseen_servers(resolved: &Resolved) -> Vec<String> {
    let named = resolved.plan.server.as_ref();
    let asked = resolved.specs.iter().filter(|spec| spec.entry.is_asked());
    asked
        .filter_map(|spec| keeper::unseen_server(named, &spec.typed))
        .collect()
}

/// The most runs of a point if the plan does not state their number.
const MOST_RUNS: u64 = 15;

/// The number of ports that closed connections occupy while others are opened. Ports stay
/// in TIME_WAIT for a minute, in which all runs may be made. Between two addresses of
/// 127.0.0.0/8 the kernel by default reuses a port after a second, so that only the largest
/// run counts.
fn resting_ports(plan: &Plan, spec: &Spec, machine: &Machine) -> u64 {
    let Some((largest, each)) = plan.sessions().filter(|_| spec.entry.is_over_tcp()) else {
        return 0;
    };
    let reuse = machine.net.time_wait_reuse.unwrap_or(0);
    match reuse == 1 || (reuse == 2 && spec.is_on_loopback()) {
        true => largest,
        false => each * plan.runs.map_or(MOST_RUNS, u64::from),
    }
}

/// The needs of one host for the largest point of a target.
fn need(plan: &Plan, one: &OneHost, spec: &Spec, machine: &Machine) -> Need {
    let beside = |plan: &Plan| plan.waiters.map(|waiters| waiters + 1);
    let most_workers = |plan: &Plan| {
        let workers = most(plan.workers.as_ref());
        workers.or(plan.in_flight).or(beside(plan)).unwrap_or(1)
    };
    let workers = most_workers(&one.plan);
    let carrier = match plan.workload {
        Workload::Spread => Carrier::Threads,
        _ => plan.carrier(),
    };
    let keys = most(plan.keys.as_ref()).unwrap_or(1);
    let keys = match (plan.workload, plan.names) {
        // Each worker opens the files of all workers of all hosts, whichever it locks.
        (Workload::Hold, _) | (_, Some(Names::Own)) => keys * most_workers(plan),
        _ => keys,
    };
    let files = spec.entry.family == Family::File;
    Need {
        workers,
        option: match plan.workload {
            Workload::Spread => "--in-flight",
            Workload::Recover => "--waiters",
            _ => "-w",
        },
        hosts: one.hosts,
        ranks: one.ranks,
        carrier,
        generator_threads: plan.generator_threads(),
        started_each: spec.entry.lock.starts,
        descriptors_each: match () {
            () if files => keys,
            () if carrier == Carrier::Tasks => 1,
            () => 0,
        },
        ports: match spec.entry.is_over_tcp() {
            true => workers,
            false => 0,
        },
        resting_ports: resting_ports(&one.plan, spec, machine),
        semaphores: match spec.entry.lock.semaphore_sets {
            true if keys == 1 => 1,
            true => plan.slots(),
            false => 0,
        },
        memory_each_bytes: match carrier {
            Carrier::Processes => WORKER_BYTES,
            Carrier::Threads => THREAD_BYTES,
            Carrier::Tasks => TASK_BYTES,
        },
        shared_bytes: workers * jostle_engine::PAGE_BYTES as u64,
    }
}

fn most(list: Option<&List>) -> Option<u64> {
    list.and_then(|list| list.0.iter().max().copied())
}

/// The forecast for connections, curve by curve.
fn forecast(resolved: &Resolved, machine: &Machine, one: &OneHost) -> Result<Vec<String>, Failure> {
    let open = one.plan.open.as_ref().map_or(&[][..], |list| &list.0);
    let mut notes = Vec::new();
    for (target, at) in resolved.points() {
        let spec = &resolved.specs[target];
        let load = preflight::demand(&one.plan, spec, at);
        let whose = one.whose();
        let said = preflight::forecast(&load, open, machine)
            .map_err(|refusal| Failure::Failed(anyhow!("{}: {whose}{refusal}", spec.typed)))?;
        let curve = format!("{}, sources {}", spec.typed, at.sources.unwrap_or(1));
        let said = said.into_iter();
        for note in said.map(|note| format!("{curve}: {whose}{note}")) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    Ok(notes)
}

/// Programs that are missing are an error before anything starts: of all experiments at
/// once, so that one command installs them.
pub(super) fn find_programs(resolved: &[Resolved]) -> Result<(), Failure> {
    let with = resolved.iter().filter_map(|one| one.plan.with.as_deref());
    let with: Vec<Spec> = with.flat_map(Spec::parse).collect();
    let specs = resolved.iter().flat_map(|one| &one.specs);
    let specs: Vec<&Spec> = specs.chain(&with).collect();
    all_installed(&specs).map_err(|(missing, error)| {
        let names: Vec<&str> = missing.iter().map(|spec| spec.typed.as_str()).collect();
        Failure::Usage(format!("{}: {error}", names.join(", ")))
    })
}

/// A server that does not answer is an error before anything starts.
fn reach_all(resolved: &Resolved) -> Result<(), Failure> {
    let failed = |said: String| Failure::Failed(anyhow!(said));
    let credentials = resolved.plan.credentials.as_deref().map(Path::new);
    // A local lock fails here because of its argument, so that the error is a usage error.
    for spec in resolved.specs.iter().filter(|spec| is_local_lock(spec)) {
        spec.reach(credentials)
            .map_err(|error| Failure::Usage(format!("{}: {error}", spec.typed)))?;
    }
    for spec in resolved.specs.iter().filter(|spec| spec.entry.is_asked()) {
        spec.reach(credentials)
            .map_err(|error| failed(format!("{}: {error}", spec.typed)))?;
    }
    let null = resolved.plan.null.as_deref();
    match null.filter(|null| *null != NO_NULL) {
        None => Ok(()),
        Some(null) => Spec::parse(null)
            .and_then(|spec| spec.reach(None).map_err(|error| error.to_string()))
            .map_err(|error| failed(format!("--null {null}: {error}"))),
    }
}

/// Whether the target is a lock without a server. An unreachable server is found when its
/// run is prepared.
fn is_local_lock(spec: &Spec) -> bool {
    !matches!(
        spec.entry.family,
        Family::Service | Family::Connection | Family::Server
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_engine::resolve::resolve_over;

    /// So many hosts, of a machine each.
    fn hosts(count: usize) -> Vec<Host> {
        let host = |nth: usize| Host {
            name: format!("h{}", nth + 1),
            boot_id: format!("{nth}"),
            ..Host::default()
        };
        (0..count).map(host).collect()
    }

    fn resolved(plan: Plan, hosts: usize) -> Resolved {
        resolve_over(plan, 7, &[0, 1], hosts).unwrap()
    }

    #[test]
    fn a_plan_that_hosts_carry_together_need_not_fit_one() {
        let of = |target: &str, change: fn(&mut Plan), count: usize| {
            let mut plan = Plan::of(Workload::Contend);
            plan.targets = vec![target.to_owned()];
            plan.workers = Some(List(vec![90, 1_800]));
            change(&mut plan);
            let resolved = resolved(plan, count);
            let one = OneHost::new(&resolved.plan, &hosts(count));
            need(
                &resolved.plan,
                &one,
                &resolved.specs[0],
                &Machine::default(),
            )
        };
        let whole = of("flock:/mnt/x", |_| {}, 1);
        let part = of("flock:/mnt/x", |_| {}, 18);
        let expected = Need {
            workers: 100,
            hosts: 18,
            shared_bytes: whole.shared_bytes / 18,
            ..whole
        };
        assert_eq!((whole.workers, part), (1_800, expected));
        let spread = |plan: &mut Plan| {
            *plan = Plan {
                targets: plan.targets.clone(),
                in_flight: Some(90),
                generators: Some(List(vec![3, 18])),
                ..Plan::of(Workload::Spread)
            };
        };
        let part = of("http://server/", spread, 18);
        assert_eq!((part.workers, part.option), (30, "--in-flight"));
        // Files of locks of their own are opened by all workers.
        let own = |plan: &mut Plan| {
            *plan = Plan {
                targets: plan.targets.clone(),
                workers: Some(List(vec![6])),
                names: Some(Names::Own),
                ..Plan::of(Workload::Stream)
            };
        };
        let part = of("flock:/mnt/x/", own, 3);
        assert_eq!((part.workers, part.descriptors_each), (2, 6));
    }

    #[test]
    fn a_refusal_says_whose_limits_they_are() {
        let mut plan = Plan::of(Workload::Contend);
        plan.targets = vec!["null".to_owned()];
        plan.workers = Some(List(vec![1_800]));
        let mut machine = Machine::default();
        machine.kernel.pid_max = Some(400);
        let said = |count: usize| {
            let resolved = resolved(plan.clone(), count);
            match preflight(&resolved, &machine, &hosts(count)) {
                Err(Failure::Failed(error)) => error.to_string(),
                _ => String::new(),
            }
        };
        let alone = said(1);
        assert!(
            alone.starts_with("null: 1800 worker processes need"),
            "{alone}"
        );
        let several = said(9);
        assert!(
            several.starts_with(
                "null: by the limits of h1, for its part as one of 9 hosts: 200 worker processes \
                 need 203 pids"
            ) && several.ends_with("or -w at most 873"),
            "{several}"
        );
        assert_eq!(said(20), "", "90 fit");
    }
}
