//! Handovers one after the other, under load from correct and from hostile clients.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::{Installed, assert_handed_over};
use crate::common::Client;

const HANDOVERS: u64 = 20;
const NAMES: usize = 3;

/// State shared by all clients: the holders inside, the last token of each name, and all tokens.
#[derive(Default)]
struct Witness {
    inside: [AtomicU64; NAMES],
    last: [AtomicU64; NAMES],
    tokens: Mutex<HashMap<u64, usize>>,
    overlaps: AtomicU64,
    disordered: AtomicU64,
    over: AtomicBool,
}

impl Witness {
    fn enter(&self, name: usize, token: u64) {
        if self.inside[name].fetch_add(1, SeqCst) != 0 {
            self.overlaps.fetch_add(1, SeqCst);
        }
        let repeated = self.tokens.lock().unwrap().insert(token, name).is_some();
        if self.last[name].swap(token, SeqCst) >= token || repeated {
            self.disordered.fetch_add(1, SeqCst);
        }
    }

    fn leave(&self, name: usize) {
        self.inside[name].fetch_sub(1, SeqCst);
    }

    fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }
}

/// Takes and releases one lock after the other; returns how often.
fn good(port: u16, witness: &Witness, seed: usize) -> u64 {
    let mut client = Client::new(TcpStream::connect(("127.0.0.1", port)).unwrap());
    let mut rounds = 0;
    while !witness.is_over() {
        let name = (seed + rounds as usize) % NAMES;
        let token = client.token(&format!("LOCK n{name}"));
        witness.enter(name, token);
        witness.leave(name);
        assert_eq!(client.say(&format!("UNLOCK n{name}")), "1");
        rounds += 1;
    }
    rounds
}

/// Asks for locks and goes away: before the answer, after it, in the middle of a
/// request, or with a pipeline that nobody reads.
fn hostile(port: u16, witness: &Witness) {
    let requests = [
        "LOCK n0\r\n".to_owned(),
        "LOCK n1 TTL 5 WAIT 20\r\n".to_owned(),
        "LOCKALL 3 n0 n1 n2\r\n".to_owned(),
        "*2\r\n$4\r\nLOCK\r\n$2\r\nn".to_owned(),
        "LOCK n2\r\nUNLOCK n2\r\n".repeat(300),
        "INFO\r\n".repeat(100),
        "MULTI\r\nLOCK n0\r\n".to_owned(),
        "GARBAGE\r\n*3\r\n$x".to_owned(),
    ];
    for request in requests.iter().cycle() {
        if witness.is_over() {
            return;
        }
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _ = stream.write_all(request.as_bytes());
        let mut some = [0; 3];
        let patience = std::time::Duration::from_millis(2);
        stream.set_read_timeout(Some(patience)).unwrap();
        let _ = stream.read(&mut some);
    }
}

#[test]
fn twenty_handovers_among_hostile_clients_let_nobody_in_twice() {
    let installed = Installed::new();
    let daemon = installed.start(&[]);
    let witness = Arc::new(Witness::default());
    let port = daemon.port;
    let good: Vec<_> = (0..4)
        .map(|seed| {
            let witness = Arc::clone(&witness);
            std::thread::spawn(move || good(port, &witness, seed))
        })
        .collect();
    let hostile: Vec<_> = (0..2)
        .map(|_| {
            let witness = Arc::clone(&witness);
            std::thread::spawn(move || hostile(port, &witness))
        })
        .collect();
    let mut stalls_us = Vec::new();
    for times in 1..=HANDOVERS {
        let before = Instant::now();
        assert_handed_over(&daemon, times);
        let took_ms = before.elapsed().as_millis();
        stalls_us.push((daemon.info("handover_stall_microseconds"), took_ms));
    }
    witness.over.store(true, SeqCst);
    let rounds: u64 = good.into_iter().map(|one| one.join().unwrap()).sum();
    hostile.into_iter().for_each(|one| one.join().unwrap());
    let (overlaps, disordered) = (&witness.overlaps, &witness.disordered);
    assert_eq!((overlaps.load(SeqCst), disordered.load(SeqCst)), (0, 0));
    assert!(rounds > HANDOVERS, "{rounds} rounds");
    // For information: this machine may do something else.
    println!("{rounds} rounds; stalls in us, and the whole in ms: {stalls_us:?}");
    // Nothing is lost on the way: clients that left are gone, and all locks are free.
    daemon.await_info("connected_clients", 1);
    daemon.await_info("holds", 0);
    assert_eq!(daemon.info("handover_failures"), 0);
}
