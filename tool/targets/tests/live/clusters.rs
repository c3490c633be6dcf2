//! Clusters without a quorum, and a lease that a cluster does not grant as it was asked for.

use crate::looks;
use jostle_model::record::{Look, When};
use jostle_sys::ledger::Ledger;
use jostle_targets::program::{Ground, LaunchRecipe, free_port};
use jostle_targets::{LEASE_FACT, Setup, SetupError, Target, etcd, zookeeper};
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

/// etcd grants no lease that one and a half of its elections could outlast: here 7.5 s,
/// in whole seconds. The lease was once taken to be as it was asked for.
#[test]
fn a_lease_is_as_long_as_etcd_grants_it() {
    let place = tempfile::tempdir().unwrap();
    let recipe = &etcd::Launch::members(1).unwrap()[0];
    let ground = Ground {
        program: recipe.program().find().unwrap(),
        directory: place.path().to_owned(),
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
