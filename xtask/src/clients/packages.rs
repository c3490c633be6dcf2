//! The packages of `clients/`: each has its own tests, against a daemon that is
//! killed, stopped and cut off.

use super::Ground;
use jostle_testbed::shell;
use std::time::Instant;

/// A package, and the script that tests it.
const PACKAGES: [(&str, &str); 5] = [
    (
        "package python",
        "cd jostled/clients/python/tests
         for version in 8 4; do
             PYTHONPATH=.. \"$ROOT/target/redis-py/$version/bin/python\" -B -m unittest discover
         done",
    ),
    (
        // Each test waits for leases to end: more of them at a time than there are CPUs.
        "package go",
        "cd jostled/clients/go; go vet ./...; go test -count=1 -parallel=8 ./...",
    ),
    (
        "package node",
        "copy jostled/clients/node jostle-lock-node; install; npm test --silent",
    ),
    (
        "package java",
        "copy jostled/clients/java jostle-lock-java; maven test",
    ),
    (
        "package rust",
        "cd jostled/clients/rust; cargo test --quiet --locked -- --test-threads=8",
    ),
];

/// The failures, a line for each package.
pub(super) fn run(ground: &Ground, wanted: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut broken = Vec::new();
    for (name, script) in PACKAGES.iter().filter(|(name, _)| wanted(name)) {
        let start = Instant::now();
        println!("== {name}");
        let tested = shell::run(&mut ground.script(script));
        broken.extend(tested.err().map(|error| format!("{name}: {error}")));
        println!("== {name}: {:.0} s\n", start.elapsed().as_secs_f64());
    }
    broken
}
