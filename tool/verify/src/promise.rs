//! What a target promises, and which faults it cannot have.

use crate::wall_clock::WallClock;
use jostle_model::plan::Fault;
use jostle_model::record::Promise;
use jostle_sys::link;
use jostle_targets::table::Family;
use jostle_targets::{Facts, Spec, promise};
use std::collections::BTreeMap;

/// The promise of a target, from its line in the table and the facts of its set-up.
pub fn promise_of(spec: &Spec, facts: &Facts) -> Promise {
    promise(spec.entry, facts)
}

/// The faults that this target, or this machine, cannot have, each with the reason. `with`: the
/// service that is launched for it. Nothing is started for the answer.
pub fn without(spec: &Spec, with: Option<&Spec>) -> BTreeMap<Fault, String> {
    let faults = Fault::ALL.iter();
    let reasons = faults.map(|fault| (*fault, why_not(*fault, spec, with)));
    let reasons = reasons.filter_map(|(fault, why)| Some((fault, why?)));
    reasons.collect()
}

fn why_not(fault: Fault, spec: &Spec, with: Option<&Spec>) -> Option<String> {
    let is_own = spec.entry.family == Family::Own;
    if matches!(fault, Fault::Kill | Fault::Stop) {
        let stays = !is_own && !spec.entry.is_remote() && !spec.entry.lock.survives_owner;
        let why = "a lock whose owner dies stays taken, so that nothing more could be seen of it";
        return (stays && fault == Fault::Kill).then(|| why.to_owned());
    }
    let service = match (is_own, with) {
        (true, None) => {
            return Some("its server is not known; --with NAME launches one for it".to_owned());
        }
        (true, Some(with)) => with,
        (false, _) if !spec.entry.is_remote() => return Some("no server keeps it".to_owned()),
        (false, _) => spec,
    };
    let (entry, name) = (service.entry, service.entry.name);
    if service.argument.is_some() {
        let why = format!(
            "only a server that jostle launches can be struck (`{name}` without an address)"
        );
        return Some(why);
    }
    // One that is launched without a recipe is this very program.
    let asks_libc = entry.program.is_none_or(|program| program.asks_libc);
    let why = match fault {
        Fault::Cut | Fault::CutTo | Fault::CutFrom if !entry.is_over_tcp() => {
            "there is no network between its clients and their server"
        }
        Fault::Cut | Fault::CutTo | Fault::CutFrom if !link::may_cut() => {
            "this kernel lets only root cut a connection"
        }
        Fault::ServerWipe if entry.lock.made_before && !is_own => {
            "what it makes before the run, its clients would miss"
        }
        Fault::Clock if !asks_libc || cfg!(not(target_env = "gnu")) => {
            "its program asks the system for the time itself, so that only the machine's clock \
             could be set"
        }
        Fault::Clock if !WallClock::can_be_made() => {
            "there is no C compiler (cc), which makes the clock that is set"
        }
        _ => return None,
    };
    Some(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_that_is_missing_has_its_reason() {
        let of = |name: &str, with: Option<&str>| {
            let with = with.map(|with| Spec::parse(with).unwrap());
            without(&Spec::parse(name).unwrap(), with.as_ref())
        };
        let has = |missing: &BTreeMap<Fault, String>, fault| !missing.contains_key(&fault);
        let file = of("flock", None);
        assert!(has(&file, Fault::Kill) && has(&file, Fault::Stop) && file.len() == 7);
        assert!(of("futex", None)[&Fault::Kill].contains("stays taken"));
        let named = of("redis://h:1", None);
        assert!(has(&named, Fault::Kill) && named[&Fault::ServerKill].contains("launches"));
        assert!(has(&of("redis", None), Fault::ServerWipe));
        assert!(of("nats", None)[&Fault::ServerWipe].contains("miss"));
        assert!(of("nats", None)[&Fault::Clock].contains("machine's clock"));
        assert!(of("lockd+unix", None)[&Fault::CutTo].contains("no network"));
        let own = of("pipe:true {redis}", None);
        assert!(own[&Fault::ServerStop].contains("--with") && has(&own, Fault::Stop));
        assert!(has(
            &of("pipe:true {redis}", Some("redis")),
            Fault::ServerStop
        ));
    }
}
