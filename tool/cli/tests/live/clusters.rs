//! Faults of single servers and links, by the whole binary: clusters whose members have a network
//! namespace each, and connections that go without a word.

use crate::common::{beside, jostle, must_be_root, must_have, reason};
use jostle_model::plan::Fault;
use jostle_model::record::{Recovery, Struck};

/// What became of each fault, in the order of the list. Nobody was granted the lock beside an
/// entitled owner, and nothing is left.
fn recovers(target: &str, faults: &[Fault], options: &str) -> Vec<Recovery> {
    must_be_root("cut links");
    let list: Vec<&str> = faults.iter().map(|fault| fault.as_str()).collect();
    let line = format!("recover {target} --fault {} {options}", list.join(","));
    let done = jostle(&format!("{line} --runs 1 --waiters 2 --format json")).run();
    let runs = done.measures().leaves_nothing().runs();
    for run in &runs {
        let reasons = ["exclusion", "deaths", "errors"].map(|check| reason(run, check));
        assert_eq!(reasons, [None; 3], "{run:?}");
    }
    let of = |fault: &Fault| {
        let found = runs.iter().find(|run| run.at.fault == Some(*fault));
        *found.unwrap().recovery.clone().unwrap()
    };
    faults.iter().map(of).collect()
}

/// The lease goes on at the next leader, and ends where its owner is cut off with the old one.
fn a_cluster_survives(target: &str, faults: &[Fault]) {
    let options = "--members 3 --lease 3s --pause 2s --within 60s";
    for seen in recovers(target, faults, options) {
        assert_eq!(seen.struck, Some(Struck::Member), "{seen:?}");
        assert_eq!((seen.promised, seen.served), (Some(true), 2), "{seen:?}");
        let is_dead = [Fault::LeaderKill, Fault::MemberKill, Fault::HostGone];
        let came_back = seen.returned_at_ns.is_some();
        assert_ne!(came_back, is_dead.contains(&seen.fault), "{seen:?}");
    }
}

#[test]
fn etcd_hands_a_lock_on_when_its_leader_is_killed_or_parted_from_the_others() {
    let _beside = beside();
    must_have("etcd", "etcd-server");
    must_have("ip", "iproute2");
    a_cluster_survives("etcd", &[Fault::LeaderKill, Fault::PartitionMinority]);
}

#[test]
#[ignore = "cargo xtask long"]
fn clusters_survive_every_fault_of_one_server() {
    let _beside = beside();
    let all = Fault::ALL.iter().copied();
    let of_member: Vec<Fault> = all.filter(|fault| fault.is_of_member()).collect();
    a_cluster_survives("etcd", &of_member);
    a_cluster_survives("zookeeper", &of_member);
}

#[test]
fn verify_strikes_single_servers_and_links_of_a_cluster() {
    let _beside = beside();
    must_be_root("cut links");
    must_have("etcd", "etcd-server");
    let line = "verify etcd --members 3 --fault leader-kill,partition:minority,host-gone";
    let done = jostle(&format!("{line} --for 30s --seed 7 --format json")).run();
    let runs = done.measures().leaves_nothing().runs();
    let found = runs[0].verified.as_deref().unwrap();
    assert_eq!(found.violations(), 0, "{found:?}");
    let struck = found.faults.values().filter(|seen| seen.struck > 0);
    assert_eq!(struck.count(), 3, "{found:?}");
}

/// PostgreSQL waits for an answer that never comes, for two hours by default; a lease ends by
/// itself. A connection is cut once it was silent, and one that renews never is.
#[test]
fn an_owner_that_goes_without_a_word_is_missed_by_keepalive_or_by_its_lease() {
    let _beside = beside();
    must_have("redis-server", "redis-server");
    let line = "recover postgres --fault host-gone --runs 1 --waiters 1 --within 2s";
    let done = jostle(line).run().measures().leaves_nothing();
    done.prints(">2.0 s")
        .prints("in 1 of 1 runs (host gone; its server first asks a silent client after 7")
        .prints("tcp_keepalives_idle");
    let gone = recovers("redis", &[Fault::HostGone], "--lease 1s --within 20s").remove(0);
    assert_eq!((gone.struck, gone.served), (Some(Struck::Worker), 2));
    assert!(gone.after_lease_ns.unwrap() >= 0, "{gone:?}");
    let silent = recovers("lockd", &[Fault::IdleCut], "--pause 500ms --within 2s").remove(0);
    assert_eq!((silent.next_grant_ns, silent.served), (None, 0));
    let options = "--lease 3s --pause 3s --within 20s";
    let renews = recovers("redisson", &[Fault::IdleCut], options).remove(0);
    assert_eq!((renews.next_grant_ns, renews.served), (None, 2));
}

#[test]
fn links_are_not_cut_without_the_rights_and_clusters_stay_on_the_loopback() {
    let _beside = beside();
    must_have("setpriv", "util-linux");
    must_have("etcd", "etcd-server");
    let without_rights = |fault: &str| {
        let line = "recover etcd --members 3 --runs 1 --waiters 1 --pause 1s --fault";
        let less = "setpriv --bounding-set=-net_admin --inh-caps=-net_admin";
        jostle(&format!("{line} {fault}")).under(less).run()
    };
    let refused = without_rights("partition:minority").exits(2);
    refused.says("only root may make them").prints_nothing();
    without_rights("leader-kill").measures().leaves_nothing();
}
