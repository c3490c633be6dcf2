//! Tests that judge figures of this machine: what CONTENTION costs, in pairs of runs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use jostle_resp::request::encode;

use crate::common::{Daemon, root};

/// Pairs of runs, and requests in a run.
const PAIRS: usize = 60;
const REQUESTS: usize = 100_000;
/// Clients in line for one lock.
const LINE: usize = 50;

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

fn used_s(daemon: &Daemon) -> f64 {
    let info = daemon.client().ask("INFO cpu");
    let text = info.as_text().unwrap();
    let seconds = text.split("used_cpu_seconds:").nth(1).unwrap();
    seconds.split("\r\n").next().unwrap().parse().unwrap()
}

fn encoded(lines: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in lines {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        encode(&mut bytes, &words);
    }
    bytes
}

/// Reads so many replies, each of which is a line.
fn drain(mut stream: &TcpStream, mut left: usize) {
    let mut replies = vec![0; 1 << 16];
    while left > 0 {
        let length = stream.read(&mut replies).unwrap();
        left -= replies[..length].iter().filter(|b| **b == b'\n').count();
    }
}

/// One client is refused over and over, without waiting for replies.
fn refused(daemon: &Daemon) {
    let stream = daemon.client().stream;
    let bytes = encoded(&["TRYLOCK taken"]).repeat(REQUESTS);
    std::thread::scope(|scope| {
        scope.spawn(|| drain(&stream, REQUESTS));
        (&stream).write_all(&bytes).unwrap();
    });
}

/// So many clients that all wait for one lock, and hand it on by themselves as soon as its first
/// owner lets go: every turn is a handover, however the clients are scheduled.
fn contended(daemon: &Daemon) {
    let first = daemon.client().stream;
    let line: Vec<TcpStream> = (0..LINE).map(|_| daemon.client().stream).collect();
    let (lock, unlock) = (encoded(&["LOCK hot"]), encoded(&["UNLOCK hot"]));
    let both = [lock.clone(), unlock.clone()].concat();
    for _ in 0..REQUESTS / 2 / LINE {
        (&first).write_all(&lock).unwrap();
        drain(&first, 1);
        line.iter()
            .for_each(|mut one| one.write_all(&both).unwrap());
        (&first).write_all(&unlock).unwrap();
        drain(&first, 1);
        line.iter().for_each(|one| drain(one, 2));
    }
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
    let cpu_s = |daemon: &Daemon, act: fn(&Daemon)| {
        let before = used_s(daemon);
        act(daemon);
        used_s(daemon) - before
    };
    let acts: [fn(&Daemon); 2] = [refused, contended];
    for (what, act) in ["refused TRYLOCK", "contended LOCK"].into_iter().zip(acts) {
        let mut ratios: Vec<f64> = (0..PAIRS)
            .map(|pair| match pair % 2 {
                0 => cpu_s(&with, act) / cpu_s(&without, act),
                _ => 1.0 / (cpu_s(&without, act) / cpu_s(&with, act)),
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        let (low, median, high) = (ratios[PAIRS / 4], ratios[PAIRS / 2], ratios[PAIRS * 3 / 4]);
        eprintln!("{what}: {median:.3} of the CPU time without, quartiles {low:.3} and {high:.3}");
        assert!(median <= 1.02, "{what}: {median}");
    }
}
