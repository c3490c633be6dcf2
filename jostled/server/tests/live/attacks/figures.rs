//! Tests that judge figures of this machine: the time of an honest client's requests beside
//! 400 connections of a user without rights.

use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::rows::{ATTACKS, Attack};
use super::{Tcp, daemon, log_in};
use crate::common::Daemon;

/// How long each attack goes on.
const TIME: Duration = Duration::from_secs(3);

/// Ends the attack, also if the test fails.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Sends an attack over 100 connections, and reads all replies, until it is over.
fn hostile(daemon: &Daemon, attack: &Attack, over: &AtomicBool) {
    let bytes = attack.bytes();
    let mut clients: Vec<Tcp> = (0..100).map(|_| log_in(daemon, "low l")).collect();
    let mut sent = vec![0; clients.len()];
    let mut replies = vec![0; 1 << 16];
    for client in &clients {
        client.stream.set_nonblocking(true).unwrap();
    }
    while !over.load(Relaxed) {
        for (client, sent) in clients.iter_mut().zip(&mut sent) {
            while client
                .stream
                .read(&mut replies)
                .is_ok_and(|length| length > 0)
            {}
            match client.stream.write(&bytes[*sent..]) {
                Ok(length) => *sent = (*sent + length) % bytes.len(),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "it is closed"),
            }
        }
    }
}

/// The times of requests of a client that renews a lease of 5 s, beside 400 such connections.
fn honest_beside(daemon: &Daemon, attack: &Attack) -> Vec<Duration> {
    let over = AtomicBool::new(false);
    let mut boss = log_in(daemon, "boss b");
    // Those of the attack before have left.
    daemon.await_info_as(&mut boss, "connected_clients", 1);
    std::thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(|| hostile(daemon, attack, &over))));
        let _over = Over(&over);
        daemon.await_info_as(&mut boss, "connected_clients", 401);
        let mut app = log_in(daemon, "app a");
        let token = app.token("LOCK app:lease TTL 5000");
        let (mut times, start) = (Vec::new(), Instant::now());
        while start.elapsed() < TIME {
            for line in [
                &format!("RENEW app:lease {token} TTL 5000"),
                "TRYLOCK app:x",
                "UNLOCK app:x",
            ] {
                let asked = Instant::now();
                assert!(app.ask(line).as_integer().is_some(), "{line}");
                times.push(asked.elapsed());
            }
        }
        app.say(&format!("UNLOCK app:lease {token}"));
        times.sort_unstable();
        times
    })
}

/// PING, which only takes CPU time, is the control.
#[test]
#[ignore = "cargo xtask validate figures"]
fn an_honest_client_waits_at_most_twice_as_long_beside_attacks_as_beside_pings() {
    let (daemon, _directory) = daemon("600");
    let of_one = |sends: &str| {
        ATTACKS
            .iter()
            .find(|attack| attack.sends.concat() == sends)
            .unwrap()
    };
    let p99 = |sends: &str| {
        let times = honest_beside(&daemon, of_one(sends));
        let part = |per_mille| times[times.len() * per_mille / 1000];
        let (p50, p99, last) = (part(500), part(990), times[times.len() - 1]);
        eprintln!(
            "{sends}: {} requests, p50 {p50:?}, p99 {p99:?}, longest {last:?}",
            times.len()
        );
        p99
    };
    let control = p99("PING").max(p99("PING"));
    for sends in [
        "MULTIINFOEXEC",
        "INFO",
        "CONFIG GET *",
        "COMMAND",
        "NONSENSE",
        "PING\r\n",
    ] {
        let under = p99(sends);
        assert!(
            under <= 2 * control,
            "{sends}: {under:?}, PING: {control:?}"
        );
    }
}
