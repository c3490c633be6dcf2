//! Tests that judge figures of this machine: what CONTENTION costs, in pairs of runs.

use std::io::{Read, Write};
use std::process::Command;

use jostle_resp::request::encode;

use crate::common::{Daemon, root};

/// Pairs of runs, and requests in a run.
const PAIRS: usize = 100;
const REQUESTS: usize = 100_000;

/// The daemon as packages have it, with this much memory for CONTENTION.
fn daemon(memory: &str) -> Daemon {
    let program = root().join("target/release/jostled");
    let flags = [
        "--data",
        "none",
        "--listen",
        "127.0.0.1:0",
        "--busy-poll",
        "0",
    ];
    Daemon::from_command(
        Command::new(program)
            .args(flags)
            .args(["--contention-memory", memory]),
    )
}

/// The daemon's CPU seconds while two clients send these requests over and over, each without
/// waiting for replies.
fn cpu_s(daemon: &Daemon, lines: &[&str]) -> f64 {
    let used = || {
        let info = daemon.client().ask("INFO cpu");
        let text = info.as_text().unwrap().to_owned();
        let seconds = text.split("used_cpu_seconds:").nth(1).unwrap();
        seconds
            .split("\r\n")
            .next()
            .unwrap()
            .parse::<f64>()
            .unwrap()
    };
    let mut bytes = Vec::new();
    for line in lines {
        encode(
            &mut bytes,
            &line.split(' ').map(str::as_bytes).collect::<Vec<_>>(),
        );
    }
    let times = REQUESTS / 2 / lines.len();
    let (bytes, count) = (bytes.repeat(times), times * lines.len());
    let before = used();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let stream = daemon.client().stream;
                let mut reads = stream.try_clone().unwrap();
                let reader = scope.spawn(move || {
                    let (mut left, mut replies) = (count, vec![0; 1 << 16]);
                    while left > 0 {
                        let length = reads.read(&mut replies).unwrap();
                        // Each reply is a line.
                        let ends = replies[..length].iter().filter(|byte| **byte == b'\n');
                        left -= ends.count();
                    }
                });
                (&stream).write_all(&bytes).unwrap();
                reader.join().unwrap();
            });
        }
    });
    used() - before
}

#[test]
#[ignore = "cargo xtask validate figures"]
fn contention_costs_two_per_cent_at_most_of_what_it_touches() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--release", "-p", "jostle-lockd"]);
    assert!(cargo.current_dir(root()).status().unwrap().success());
    let (without, with) = (daemon("0"), daemon("512K"));
    for daemon in [&without, &with] {
        // Held by a client that never leaves.
        let mut holder = daemon.client();
        assert_eq!(holder.say("LOCK taken TTL 3600000"), "1");
    }
    for (what, lines) in [
        ("refused TRYLOCK", &["TRYLOCK taken"][..]),
        ("contended LOCK", &["LOCK hot", "UNLOCK hot"]),
    ] {
        let mut ratios: Vec<f64> = (0..PAIRS)
            .map(|pair| match pair % 2 {
                0 => cpu_s(&with, lines) / cpu_s(&without, lines),
                _ => 1.0 / (cpu_s(&without, lines) / cpu_s(&with, lines)),
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        let (low, median, high) = (ratios[PAIRS / 4], ratios[PAIRS / 2], ratios[PAIRS * 3 / 4]);
        eprintln!("{what}: {median:.3} of the CPU time without, quartiles {low:.3} and {high:.3}");
        assert!(median <= 1.02, "{what}: {median}");
    }
}
