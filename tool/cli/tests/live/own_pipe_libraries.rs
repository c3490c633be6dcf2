//! The locks of tool/own-locks/pipe/ with the libraries that they wrap and the servers that
//! those need: each is measured as `pipe:`, excludes, and leaves nothing behind.
//!
//! `cargo xtask long` builds them, which takes minutes, and runs these tests.

use crate::common::servers::{etcd_server, redis_server, serves};
use crate::common::{Place, beside, in_some_try, must_have, reason};
use jostle_testbed::ports::free_port;
use jostle_testbed::running::Running as Server;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The programs that install.sh has built.
fn built(path: &str) -> PathBuf {
    let path = Path::new(ROOT).join("target/own-locks").join(path);
    assert!(
        path.exists(),
        "{} is missing: run tool/own-locks/pipe/install.sh (`cargo xtask long` does)",
        path.display()
    );
    path
}

fn python(program: &str, words: &str) -> String {
    let python = built("python/bin/python");
    let program = format!("{ROOT}/tool/own-locks/pipe/python/{program}");
    format!("'{}' '{program}' {words}", python.display())
}

fn go(program: &str, words: &str) -> String {
    format!("'{}' {words}", built(&format!("go/{program}")).display())
}

fn java(class: &str, words: &str) -> String {
    let place = built("java/lib");
    let place = place.parent().unwrap().display();
    format!("java -cp '{place}/classes:{place}/lib/*' {class} {words}")
}

/// A server of the test's own, gone with it.
struct Service {
    _server: Server,
    address: String,
}

impl Service {
    /// By a command that gets a free port, and a directory that is empty.
    fn start(place: &Place, command: impl FnOnce(u16, &Path) -> Command) -> Service {
        let port = free_port().unwrap();
        let directory = place.file("service");
        std::fs::create_dir(&directory).unwrap();
        Service {
            _server: serves(port, &mut command(port, &directory)),
            address: format!("127.0.0.1:{port}"),
        }
    }

    fn redis(place: &Place) -> Service {
        Service::start(place, |port, directory| {
            let mut command = redis_server(port, &["--appendonly", "no"]);
            command.arg("--dir").arg(directory);
            command
        })
    }

    fn etcd(place: &Place) -> Service {
        let peers = free_port().unwrap();
        Service::start(place, |port, directory| etcd_server(port, peers, directory))
    }

    fn zookeeper(place: &Place) -> Service {
        let jars = format!("{}/*", built("java/test-lib").display());
        Service::start(place, |port, directory| {
            let mut command = Command::new("java");
            command.args(["-cp", &jars]);
            command.arg("org.apache.zookeeper.server.ZooKeeperServerMain");
            command.arg(port.to_string()).arg(directory);
            command
        })
    }
}

/// Three workers contend, with waits that may end early, and without.
fn excludes(place: &Place, command: &str) {
    let target = format!("pipe:{command}");
    for option in ["", "--acquire-timeout 5ms"] {
        let line = format!("contend -w 3 -b 1ms -i 100us -t 0.5 --runs 1 --format json {option}");
        let point = in_some_try("grants to several workers", || {
            let run = place.jostle(&line).word(&target);
            let done = run.run_cleanly().measures();
            let run = done.only_run();
            for grave in ["errors", "deaths", "exclusion", "lost_update"] {
                assert!(reason(&run, grave).is_none(), "{}", done.transcript());
            }
            let workers = &run.workers.as_ref().unwrap().operations;
            let served = workers.iter().filter(|grants| **grants > 0).count();
            (served > 1).then_some(run)
        });
        assert!(point.exclusion.unwrap().checked >= point.operations);
    }
}

#[test]
#[ignore = "cargo xtask long"]
fn python_s_file_locks() {
    let _beside = beside();
    excludes(&Place::new(), &python("filelock_lock.py", "lock"));
    excludes(&Place::new(), &python("portalocker_lock.py", "lock"));
}

#[test]
#[ignore = "cargo xtask long"]
fn go_s_and_java_s_file_locks() {
    let _beside = beside();
    must_have("java", "default-jdk-headless");
    excludes(&Place::new(), &go("flock", "lock"));
    excludes(&Place::new(), &java("FileLocks", "lock"));
}

#[test]
#[ignore = "cargo xtask long"]
fn node_s_lock_file() {
    let _beside = beside();
    must_have("node", "nodejs");
    let program = built("node/proper_lockfile.mjs");
    let place = Place::new();
    excludes(&place, &format!("node '{}' lock", program.display()));
    assert!(!place.file("lock.0.lock").exists(), "it keeps its lock");
}

#[test]
#[ignore = "cargo xtask long"]
fn locks_on_redis_of_three_languages() {
    let place = Place::beside_others();
    let redis = Service::redis(&place);
    let address = &redis.address;
    excludes(
        &place,
        &python("redis_lock.py", &format!("redis://{address} python")),
    );
    excludes(&place, &go("redsync", &format!("{address} go")));
    excludes(
        &place,
        &java("RedissonLocks", &format!("redis://{address} java")),
    );
    let mut cli = Command::new("redis-cli");
    let port = address.rsplit(':').next().unwrap();
    let keys = cli.args(["-p", port, "keys", "*"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&keys.stdout).trim(), "");
}

#[test]
#[ignore = "cargo xtask long"]
fn etcd_s_mutex() {
    let place = Place::beside_others();
    let etcd = Service::etcd(&place);
    excludes(&place, &go("etcd", &format!("{} locks", etcd.address)));
}

#[test]
#[ignore = "cargo xtask long"]
fn curator_s_mutex_on_zookeeper() {
    let place = Place::beside_others();
    let zookeeper = Service::zookeeper(&place);
    excludes(
        &place,
        &java("CuratorLocks", &format!("{} /locks", zookeeper.address)),
    );
}
