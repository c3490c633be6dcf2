//! `jostle verify`, by the whole binary: a certificate, a broken promise with its excerpt, and what
//! cannot be verified.

use crate::common::{Place, Signal, beside, jostle};
use crate::refusals::refuses_each;
use jostle_model::plan::Fault;
use jostle_model::record::{Status, Verified, Violation};
use std::time::Duration;

#[test]
fn a_lock_that_keeps_its_promise_gets_a_certificate_of_what_was_tried() {
    let _beside = beside();
    let done = jostle("verify flock --for 3s --seed 7 --format json").run();
    let runs = done.exits(0).leaves_nothing().runs();
    let found = runs[0].verified.as_deref().unwrap();
    assert_eq!(found.violations(), 0, "{found:?}");
    assert!(
        found.grants > 100 && found.faults[&Fault::Kill].struck > 0,
        "{found:?}"
    );
    assert!(
        found.without[&Fault::ServerKill].contains("no server"),
        "{found:?}"
    );
    assert_eq!(found.promise.to_string(), "by=process");
}

#[test]
fn a_broken_promise_is_shown_and_found_again_with_its_seed() {
    let _beside = beside();
    let done = jostle("verify busted:0.2 --for 2s --seed 7").run();
    done.exits(3)
        .prints("its promise is broken")
        .prints("two entitled owners, lock")
        .prints("seen again in 3 of 3")
        .prints("Next: jostle verify busted:0.2 --for 2s --seed 7")
        .says("busted:0.2: faults stop; no kill: ")
        .leaves_nothing();
}

#[test]
fn what_was_seen_before_an_interrupt_is_judged() {
    let _beside = beside();
    let running = jostle("verify busted:0.2 flock --for 60s --format json").in_background();
    running.after(Duration::from_secs(3)).signal(Signal::INT);
    let runs = running.end().exits(130).leaves_nothing().runs();
    let found: Vec<&Verified> = runs
        .iter()
        .filter_map(|run| run.verified.as_deref())
        .collect();
    assert_eq!(found.len(), 1);
    let excerpt = found[0].excerpt.as_ref().unwrap();
    assert_eq!(excerpt.kind, Violation::Overlap);
    assert_eq!(runs[0].verdict.is, Status::Invalid);
}

#[test]
fn what_cannot_be_verified_is_refused_before_anything_starts() {
    let _beside = beside();
    let table = "
        verify null => 2 => verify takes locks that exclude
        verify flock --for 0 => 2 => --for: 1s to
        verify flock --fault clock => 2 => no server keeps it
        verify redis://h:1 --fault server-wipe => 2 => only a server that jostle launches
        verify zookeeper --fault leader-kill => 2 => `--members 3` launches a cluster
        verify flock --with redis => 2 => no target has {redis}
        verify flock --promise lease => 2 => such as lease=2s
        stream flock --fault kill => 2 => --fault";
    refuses_each(&Place::new(), table);
}
