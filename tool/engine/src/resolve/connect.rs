//! Defaults and refusals of `connect`.

use super::{Resolved, UsageError, check_commands, check_place, check_spans, named, refuse, specs};
use jostle_model::connect::{Accept, Close, Only};
use jostle_model::plan::Plan;
use jostle_model::{List, defaults};
use jostle_targets::table::Family;
use jostle_targets::{CONNECTIONS, Spec};

/// One source address beside many: that is where the surprise is.
const SOURCES: [u64; 2] = [1, 16];

const MOST_RATE: u64 = 1_000_000_000;

/// Fills in the rest of the plan.
pub(super) fn resolve(
    mut plan: Plan,
    fresh_seed: u64,
    allowed: &[usize],
) -> Result<Resolved, UsageError> {
    let given = super::given(&plan);
    if plan.targets.is_empty() {
        plan.targets = named(defaults::targets(plan.workload));
    }
    let specs = specs(&plan)?;
    specs
        .iter()
        .try_for_each(|spec| check_target(&plan, spec))?;
    plan.fill_from(defaults::swept(plan.workload));
    plan.fill_from(defaults::options(plan.workload));
    let usual = plan.only.is_none()
        && plan.bind_no_port.is_none()
        && plan.targets == defaults::targets(plan.workload);
    plan.sources.get_or_insert_with(|| match usual {
        true => List(SOURCES.to_vec()),
        false => List(vec![1]),
    });
    plan.seed.get_or_insert(fresh_seed);
    check_numbers(&plan)?;
    check_place(&plan, allowed)?;
    check_pairs(&plan, &specs)?;
    check_commands(&plan)?;
    if let Some(List(open)) = &mut plan.open {
        open.sort_unstable();
    }
    Ok(Resolved {
        plan,
        specs,
        may_drop: false,
        may_shorten: None,
        time_limit: None,
        given,
    })
}

fn names() -> String {
    let names: Vec<&str> = CONNECTIONS.iter().map(|entry| entry.name).collect();
    names.join(", ")
}

fn check_target(plan: &Plan, spec: &Spec) -> Result<(), UsageError> {
    let name = &spec.typed;
    refuse_where! {
        spec.entry.family != Family::Connection =>
            "{name} is not a connection; connect takes: {}", names();
    }
    let (embedded, unix) = (spec.argument.is_none(), !spec.entry.has_ports());
    let many = |list: &Option<List>| list.as_ref().is_some_and(|l| l.0.iter().any(|n| *n > 1));
    let ports = plan.ports() > 1;
    let addressed = [
        (many(&plan.sources), "--sources"),
        (ports, "--ports"),
        (plan.bind_no_port.is_some(), "--bind-no-port"),
        (plan.port_range.is_some(), "--port-range"),
        (plan.only == Some(Only::Bind), "--only bind"),
    ];
    if let Some((_, option)) = addressed.iter().find(|(set, _)| *set && unix) {
        return refuse(format!(
            "{name} has neither addresses nor ports; {option} works with: tcp"
        ));
    }
    let served = [
        (plan.accept() != Accept::Shared, "--accept"),
        (plan.acceptors() > 1, "--acceptors"),
        (ports, "--ports"),
        (plan.only == Some(Only::Bind), "--only bind"),
    ];
    if let Some((_, option)) = served.iter().find(|(set, _)| *set && !embedded) {
        return refuse(format!(
            "jostle does not run the server of {name}; {option} works with: {}, without an address",
            names()
        ));
    }
    refuse_where! {
        unix && plan.accept == Some(Accept::ReusePort) =>
            "{name}: only one socket can bind a path; --accept reuseport works with: tcp";
    }
    let place = spec.argument.as_deref().unwrap_or("//127.");
    let mut local = ["//127.", "//localhost:"].iter();
    let local = local.any(|here| place.starts_with(here));
    let bound = [
        (many(&plan.sources), "--sources"),
        (plan.bind_no_port.is_some(), "--bind-no-port"),
    ];
    let bound = bound.iter().find(|(set, _)| *set);
    if let Some((_, option)) = bound.filter(|_| !local && !unix) {
        return refuse(format!(
            "{name}: the addresses of {option} lie in 127.0.0.0/8 and reach this machine only; \
             leave it out"
        ));
    }
    Ok(())
}

fn check_numbers(plan: &Plan) -> Result<(), UsageError> {
    match plan.rate.as_ref().map(|rate| rate.0.as_slice()) {
        None | Some([1..=MOST_RATE]) => {}
        Some([_, _, ..]) => return refuse("--rate takes one number of connections a second"),
        Some(_) => return refuse(format!("--rate: 1 to {MOST_RATE}")),
    }
    check_spans(plan)
}

/// Options that cancel each other.
fn check_pairs(plan: &Plan, specs: &[Spec]) -> Result<(), UsageError> {
    let alone = plan.only == Some(Only::Bind);
    if alone {
        let idle = [
            (plan.bind_no_port.is_some(), "--bind-no-port"),
            (plan.close == Some(Close::Rst), "--close rst"),
            (plan.rate.is_some(), "--rate"),
            (plan.acceptors() > 1, "--acceptors"),
            (plan.ports() > 1, "--ports"),
        ];
        if let Some((_, option)) = idle.iter().find(|(set, _)| *set) {
            return refuse(format!(
                "--only bind does not connect, so {option} has no effect; leave one out"
            ));
        }
    }
    let shared = plan.accept == Some(Accept::Shared);
    refuse_where! {
        plan.acceptors == Some(1) && !shared =>
            "--accept needs several acceptors; use --acceptors 4, or leave it out";
    }
    // Sockets of `unix` use up descriptors and memory alone.
    let tcp = specs.iter().any(|spec| spec.entry.has_ports());
    refuse_where! {
        !tcp && plan.listeners.as_ref().is_some_and(|l| l.0.iter().any(|n| *n > 0)) =>
            "--listeners opens TCP sockets; it works with: tcp";
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::resolve;
    use super::*;
    use jostle_model::plan::{Place, Workload};

    fn resolution(change: impl FnOnce(&mut Plan)) -> Result<Resolved, UsageError> {
        let mut plan = Plan::of(Workload::Connect);
        change(&mut plan);
        resolve(plan, 7, &[0, 1])
    }

    #[test]
    fn nothing_said_is_one_source_address_beside_many() {
        let resolved = resolution(|_| {}).unwrap();
        assert_eq!(resolved.plan.targets, ["tcp"]);
        let points = resolved.points();
        assert_eq!(points.len(), 2 * 8);
        assert_eq!(points[0].1.sources, Some(1));
        assert_eq!(points[8].1.sources, Some(16));
        let once = resolved.plan;
        assert_eq!(resolve(once.clone(), 99, &[0, 1]).unwrap().plan, once);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        type Case = (fn(&mut Plan), &'static str);
        let table: &[Case] = &[
            (
                |p| p.targets = vec!["flock".into()],
                "connect takes: tcp, unix",
            ),
            (
                |p| {
                    p.targets = vec!["unix".into()];
                    p.sources = Some(List(vec![2]));
                },
                "--sources works with: tcp",
            ),
            (
                |p| {
                    p.targets = vec!["unix".into()];
                    p.only = Some(Only::Bind);
                },
                "--only bind works with: tcp",
            ),
            (
                |p| {
                    p.targets = vec!["tcp://127.0.0.1:80".into()];
                    p.acceptors = Some(4);
                },
                "--acceptors works with: tcp, unix, without an address",
            ),
            (
                |p| {
                    p.targets = vec!["tcp://10.0.0.1:80".into()];
                    p.sources = Some(List(vec![4]));
                },
                "reach this machine only",
            ),
            (
                |p| {
                    p.targets = vec!["unix".into()];
                    p.accept = Some(Accept::ReusePort);
                    p.acceptors = Some(2);
                },
                "--accept reuseport works with: tcp",
            ),
            (|p| p.accept = Some(Accept::EpollExclusive), "--acceptors 4"),
            (
                |p| {
                    p.only = Some(Only::Bind);
                    p.rate = Some(List(vec![5]));
                },
                "--rate has no effect",
            ),
            (|p| p.open = Some(List(vec![0])), "--open: 1 to"),
            (|p| p.sources = Some(List(vec![0])), "--sources: 1 to"),
            (|p| p.ports = Some(0), "--ports: 1 to"),
            (
                |p| p.rate = Some(List(vec![1, 2])),
                "--rate takes one number",
            ),
            (|p| p.runs = Some(0), "--runs: 1 to"),
            (
                |p| p.workers = Some(List(vec![2])),
                "connect has no workers",
            ),
            (|p| p.during = Some("sh -c 'x".into()), "a quote has no end"),
            (|p| p.place = Some(Place::Cpus(vec![9])), "CPU 9"),
        ];
        for (change, says) in table {
            let text = resolution(*change).map(|_| ()).unwrap_err().0;
            assert!(text.contains(says), "{text:?} does not say {says:?}");
        }
    }
}
