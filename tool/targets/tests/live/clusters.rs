//! Clusters without a quorum, and a lease that a cluster does not grant as it was asked for.

use crate::looks;
use jostle_model::record::{Look, When};
use jostle_sys::ledger::Ledger;
use jostle_targets::program::{Ground, LaunchRecipe, free_port};
use jostle_targets::{
    LEASE_FACT, Lock, Mode, Outcome, Setup, SetupError, Target, Wait, etcd, redis, zookeeper,
};
use jostle_testbed::clusters::{Cluster, wait_for};
use jostle_testbed::etcd::current_passes;
use jostle_testbed::lock_servers as servers;
use jostle_testbed::running::{Running, eventually};
use std::process::{Command, Stdio};
use std::time::Duration;

/// One of three may be gone; what is left of two says why it grants nothing.
fn a_member_alone_says(
    mut cluster: Cluster,
    reach: impl Fn(&str) -> Result<(), SetupError>,
    says: &str,
) {
    let argument = cluster.argument();
    wait_for("three have a leader", || reach(&argument).is_ok());
    drop(cluster.members.remove(0));
    wait_for("two have a leader", || reach(&argument).is_ok());
    drop(cluster.members.remove(0));
    wait_for("the last one says that it has none", || {
        reach(&argument).is_err_and(|error| error.0.contains(says))
    });
}

#[test]
fn a_cluster_of_etcd_without_a_quorum_is_told_before_the_start() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(place.path(), &etcd::Launch::members(3).unwrap());
    let reach = |argument: &str| (etcd::Etcd::ENTRY.reach)(argument, None);
    a_member_alone_says(cluster, reach, "its cluster has no leader");
}

#[test]
#[ignore = "cargo xtask long"]
fn an_ensemble_of_zookeeper_without_a_quorum_is_told_before_the_start() {
    let place = tempfile::tempdir().unwrap();
    let members = zookeeper::Launch::members(3, Duration::from_secs(4)).unwrap();
    let cluster = Cluster::start(place.path(), &members);
    let reach = |argument: &str| (zookeeper::Zookeeper::ENTRY.reach)(argument, None);
    a_member_alone_says(cluster, reach, "an ensemble without a quorum");
}

/// By what is looked at when something went wrong.
fn a_dead_member_is_named<T: Target>(mut cluster: Cluster) {
    let own = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(own.path()).unwrap();
    let target = T::prepare(&Setup {
        argument: Some(&cluster.argument()),
        ..servers::setup(&ledger, 1)
    });
    let target = target.unwrap();
    let causes = |before: &Look| {
        let causes = looks::causes(before, &target);
        [causes.found, causes.possible].concat()
    };
    let mut before = looks::ask(&target, When::Before);
    // A member that stands still for a moment may cost the leader its place.
    wait_for("nothing happens", || {
        before = looks::ask(&target, When::Before);
        causes(&before).is_empty()
    });
    drop(cluster.members.remove(0));
    let dead = format!("of its servers {} did not answer", cluster.addresses[0]);
    let found = causes(&before);
    assert!(found.contains(&dead), "{found:?}");
    ledger.sweep().unwrap();
}

#[test]
fn a_dead_member_of_a_cluster_of_etcd_is_named() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(place.path(), &etcd::Launch::members(3).unwrap());
    a_dead_member_is_named::<etcd::Etcd>(cluster);
}

#[test]
#[ignore = "cargo xtask long"]
fn a_dead_member_of_an_ensemble_of_zookeeper_is_named() {
    let place = tempfile::tempdir().unwrap();
    let members = zookeeper::Launch::members(3, Duration::from_secs(4)).unwrap();
    let cluster = Cluster::start(place.path(), &members);
    a_dead_member_is_named::<zookeeper::Zookeeper>(cluster);
}

#[test]
fn what_replicas_have_outlives_the_primary_of_redis_and_others_are_granted_at_the_next() {
    let place = tempfile::tempdir().unwrap();
    let recipes = redis::Launch::group(3, 100).unwrap();
    let mut cluster = Cluster::start(place.path(), &recipes);
    let (_, secret) = recipes[0].known().unwrap();
    let file = place.path().join("credentials");
    std::fs::write(&file, format!("\n{secret}\n")).unwrap();
    let sentinels = cluster.addresses[3..].join(",");
    let argument = format!("redis+sentinel://jostle@{sentinels}");
    let ledger = Ledger::create_in(place.path()).unwrap();
    let prepare = |wait_replicas| {
        redis::Redis::prepare(&Setup {
            argument: Some(&argument),
            credentials: Some(&file),
            wait_replicas,
            ..servers::setup(&ledger, 2)
        })
    };
    let refused = prepare(3).unwrap_err().0;
    assert!(refused.contains("has 2 replicas"), "{refused}");
    let target = prepare(2).unwrap();
    let mut locks = [0, 1].map(|worker| target.join(worker).unwrap());
    let granted = |lock: &mut dyn Lock| {
        let outcome = lock.acquire(0, Mode::Exclusive, Wait::Try);
        outcome.map(|outcome| outcome == Outcome::Granted)
    };
    assert_eq!(granted(&mut locks[0]), Ok(true));
    drop(cluster.members.remove(0));
    for lock in &mut locks {
        assert!(granted(lock).unwrap_err().is_of_this_server());
        wait_for("another primary", || lock.resume() == Ok(true));
    }
    let [owner, waiter] = &mut locks;
    assert_eq!(granted(waiter), Ok(false));
    assert_eq!(owner.release(0, Mode::Exclusive), Ok(()));
    assert_eq!(granted(waiter), Ok(false), "only one replica is left");
    let mut next = None;
    wait_for("all Sentinels and the replica have followed", || {
        next = prepare(1).ok();
        next.is_some()
    });
    let mut next = next.unwrap().join(0).unwrap();
    assert_eq!(granted(&mut next), Ok(true));
    ledger.sweep().unwrap();
}

/// etcd grants no lease that one and a half of its elections could outlast: here 7.5 s,
/// in whole seconds. The lease was once taken to be as it was asked for.
#[test]
fn a_lease_is_as_long_as_etcd_grants_it() {
    let place = tempfile::tempdir().unwrap();
    let recipe = &etcd::Launch::members(1).unwrap()[0];
    let ground = Ground {
        program: recipe.program().find().unwrap(),
        directory: place.path().to_owned(),
        cluster: Vec::new(),
        place: 0,
        port: free_port().unwrap(),
        secret: String::new(),
    };
    let child = Command::new(&ground.program)
        .args(recipe.arguments(&ground))
        .args(["--heartbeat-interval", "500", "--election-timeout", "5000"])
        .stderr(Stdio::null())
        .spawn();
    let _server = Running(child.unwrap());
    eventually("etcd is ready", || recipe.ready(&ground).is_ok());
    let own = tempfile::tempdir().unwrap();
    let ledger = Ledger::create_in(own.path()).unwrap();
    let argument = format!("//{}", ground.address());
    let lease_of = |asked_s| {
        let setup = Setup {
            argument: Some(&argument),
            lease: Some(Duration::from_secs(asked_s)),
            ..servers::setup(&ledger, 1)
        };
        etcd::Etcd::prepare(&setup).unwrap().facts()[LEASE_FACT] / 1e9
    };
    assert_eq!(lease_of(2), 8.0);
    assert_eq!(lease_of(20), 20.0);
    ledger.sweep().unwrap();
}

#[test]
#[ignore = "cargo xtask long"]
fn a_current_etcd_passes_the_same() {
    current_passes(&[
        "clusters::a_cluster_of_etcd_without_a_quorum_is_told_before_the_start",
        "clusters::a_lease_is_as_long_as_etcd_grants_it",
    ]);
}
