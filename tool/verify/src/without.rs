//! The faults that a target, or this machine, cannot have.

use crate::wall_clock::WallClock;
use jostle_model::plan::Fault;
use jostle_recover::why_no_member;
use jostle_sys::link;
use jostle_targets::Spec;
use jostle_targets::table::Family;
use std::collections::BTreeMap;

/// The faults that this target, or this machine, cannot have, each with the reason. `with`: the
/// service that is launched for it; `members`: servers of a cluster that is launched. Nothing is
/// started for the answer.
pub fn without(spec: &Spec, with: Option<&Spec>, members: u64) -> BTreeMap<Fault, String> {
    let faults = Fault::ALL.iter().copied();
    let reasons = faults.map(|fault| (fault, why_not(fault, spec, with, members)));
    let reasons = reasons.filter_map(|(fault, why)| Some((fault, why?)));
    reasons.collect()
}

fn why_not(fault: Fault, spec: &Spec, with: Option<&Spec>, members: u64) -> Option<String> {
    let said = |why: &str| Some(why.to_owned());
    let entry = spec.entry;
    let is_own = entry.family == Family::Own;
    let service = match fault {
        Fault::Kill if !entry.is_remote() && !is_own && !entry.lock.survives_owner => {
            return said(
                "a lock whose owner dies stays taken, so that nothing more could be seen of it",
            );
        }
        Fault::Kill | Fault::Stop => return None,
        _ if is_own && entry.path_alone().is_none() => {
            return said("a library is struck by the death and the stop of its processes only");
        }
        _ if is_own => match with {
            Some(with) => with,
            None => return said("no service is launched for it (--with SERVICE)"),
        },
        _ if !entry.is_remote() => return said("no server keeps it"),
        _ => spec,
    };
    let entry = service.entry;
    if service.argument.is_some() {
        return Some(format!(
            "only a server that jostle launches can be struck (`{}` without an address)",
            entry.name
        ));
    }
    // One that is launched without a program is this one.
    let asks_libc = entry.program.is_none_or(|program| program.asks_libc);
    match fault {
        fault if fault.is_of_member() => why_no_member(fault, service, members),
        Fault::Cut | Fault::CutTo | Fault::CutFrom | Fault::IdleCut if !entry.is_over_tcp() => {
            said("there is no network between its clients and their server")
        }
        Fault::Cut | Fault::CutTo | Fault::CutFrom | Fault::IdleCut if !link::may_cut() => {
            said("this kernel lets only root cut a connection")
        }
        Fault::ServerWipe if entry.lock.made_before && !is_own => {
            said("its locks need what is made on the server before the run")
        }
        Fault::Clock if !asks_libc || cfg!(not(target_env = "gnu")) => said(
            "its program asks the system for the time, and only the machine's clock could be set",
        ),
        Fault::Clock if !WallClock::can_be_made() => {
            said("there is no C compiler (cc), which makes the clock that is set")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_a_server_cannot_have_has_its_reason() {
        let of = |name: &str, with: Option<&str>| {
            let with = with.map(|with| Spec::parse(with).unwrap());
            without(&Spec::parse(name).unwrap(), with.as_ref(), 1)
        };
        assert!(!of("redis", None).contains_key(&Fault::ServerWipe));
        assert!(of("nats", None)[&Fault::ServerWipe].contains("before the run"));
        assert!(of("nats", None)[&Fault::Clock].contains("machine's clock"));
        let own = of("pipe:true {nats}", Some("nats"));
        assert!(!own.contains_key(&Fault::ServerWipe) && own.contains_key(&Fault::Clock));
        assert!(own[&Fault::LeaderKill].contains("no cluster of it"));
        let three = without(&Spec::parse("zookeeper").unwrap(), None, 3);
        assert!(!three.contains_key(&Fault::LeaderStop));
        assert!(of("zookeeper", None)[&Fault::HostGone].contains("--members 3"));
        assert!(of("lib:/a.so", Some("redis"))[&Fault::ServerKill].contains("a library"));
    }
}
