//! A small load generator for comparing servers side by side: lock+unlock
//! pairs, locks held, hand-offs. For a quick look while working on the daemon;
//! figures to be published come from `jostle`.
//!
//! ```text
//! load pairs   PORT PID lockd|lease|redis|ping CONNECTIONS DEPTH SECONDS
//! load hold    PORT PID lockd|lease|redis LOCKS
//! load handoff PORT PID lockd|redis WAITERS SECONDS
//! ```
//!
//! `PID` is the server's, for its CPU time and memory.

#![allow(clippy::print_stdout)] // It is a program that prints figures.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use jostle_resp::request::encode;
use jostle_resp::token::Framer;

struct Connection {
    stream: TcpStream,
    framer: Framer,
    buffer: Vec<u8>,
    filled: usize,
}

impl Connection {
    fn open(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
        stream.set_nodelay(true).expect("an option of TCP");
        Self {
            stream,
            framer: Framer::default(),
            buffer: vec![0; 1 << 17],
            filled: 0,
        }
    }

    /// Reads until so many replies have come; counts the errors among them.
    fn read(&mut self, mut replies: usize) -> usize {
        let mut errors = 0;
        while replies > 0 {
            let mut at = 0;
            while let Some((token, used, whole)) = self
                .framer
                .step(&self.buffer[at..self.filled], 1 << 16)
                .expect("RESP")
            {
                at += used;
                replies -= usize::from(whole);
                errors += usize::from(matches!(token, jostle_resp::Token::Error(_)));
            }
            self.buffer.copy_within(at..self.filled, 0);
            self.filled -= at;
            if replies > 0 {
                let read = self
                    .stream
                    .read(&mut self.buffer[self.filled..])
                    .expect("a reply");
                assert!(read > 0, "the server closed the connection");
                self.filled += read;
            }
        }
        errors
    }
}

/// The server's CPU time in seconds: exact, of all threads.
fn cpu_s(pid: u32) -> f64 {
    let mut ns = 0.0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).expect("the server runs") {
        let path = task.expect("a task").path().join("schedstat");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        ns += text
            .split(' ')
            .next()
            .and_then(|ns| ns.parse::<f64>().ok())
            .unwrap_or(0.0);
    }
    ns * 1e-9
}

fn resident_bytes(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).expect("the server runs");
    let pages: f64 = text
        .split(' ')
        .nth(1)
        .expect("a field")
        .parse()
        .expect("a number");
    pages * 4096.0
}

/// A 20-byte name that looks random.
fn name(number: u64) -> String {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    format!("{:020}", z ^ (z >> 27))
}

fn acquire(kind: &str, name: &str, out: &mut Vec<u8>) {
    let name = name.as_bytes();
    match kind {
        "lockd" => encode(out, &[b"LOCK", name]),
        "lease" => encode(out, &[b"LOCK", name, b"TTL", b"30000"]),
        "redis" => encode(out, &[b"SET", name, b"x", b"NX", b"PX", b"30000"]),
        _ => encode(out, &[b"PING", name]),
    }
}

fn release(kind: &str, name: &str, out: &mut Vec<u8>) {
    let name = name.as_bytes();
    match kind {
        "lockd" | "lease" => encode(out, &[b"UNLOCK", name]),
        "redis" => encode(out, &[b"DEL", name]),
        _ => encode(out, &[b"PING", name]),
    }
}

fn pairs(port: u16, pid: u32, kind: &str, connections: usize, depth: usize, seconds: f64) {
    let mut open: Vec<(Connection, Vec<u8>)> = (0..connections)
        .map(|connection| {
            let mut request = Vec::new();
            for slot in 0..depth.div_ceil(2) {
                let name = name((connection * depth + slot) as u64);
                acquire(kind, &name, &mut request);
                release(kind, &name, &mut request);
            }
            (Connection::open(port), request)
        })
        .collect();
    // A depth of 1 is one request at a time: acquire, then release.
    let halves = if depth == 1 { 2 } else { 1 };
    let commands = depth.max(2);
    let (start, cpu) = (Instant::now(), cpu_s(pid));
    let (mut done, mut errors) = (0usize, 0);
    while start.elapsed().as_secs_f64() < seconds {
        for _ in 0..8 {
            for half in 0..halves {
                for (connection, request) in &mut open {
                    let piece = if halves == 2 {
                        split(request, half)
                    } else {
                        &request[..]
                    };
                    connection.stream.write_all(piece).expect("a request");
                }
                for (connection, _) in &mut open {
                    errors += connection.read(commands / halves);
                }
            }
            done += connections * commands;
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    let per_command_us = (cpu_s(pid) - cpu) * 1e6 / done as f64;
    println!(
        "{kind:5} {connections:3} connections {depth:3} deep: {:9.0} pairs/s, server {per_command_us:.3} us/command, errors {errors}",
        done as f64 / 2.0 / elapsed
    );
}

/// The first or the second of two requests.
fn split(requests: &[u8], half: usize) -> &[u8] {
    let second = requests[1..]
        .iter()
        .position(|&byte| byte == b'*')
        .expect("two")
        + 1;
    if half == 0 {
        &requests[..second]
    } else {
        &requests[second..]
    }
}

fn hold(port: u16, pid: u32, kind: &str, locks: u64) {
    let mut connection = Connection::open(port);
    let before = resident_bytes(pid);
    let mut request = Vec::new();
    for (verb, what) in [
        (acquire as fn(&str, &str, &mut Vec<u8>), "acquire"),
        (release, "release"),
    ] {
        let (start, cpu) = (Instant::now(), cpu_s(pid));
        let mut longest = Duration::ZERO;
        for batch in 0..locks.div_ceil(100) {
            request.clear();
            let numbers = batch * 100..locks.min(batch * 100 + 100);
            let count = (numbers.end - numbers.start) as usize;
            numbers.for_each(|number| verb(kind, &name(number), &mut request));
            let sent = Instant::now();
            connection.stream.write_all(&request).expect("a request");
            assert_eq!(connection.read(count), 0, "errors");
            longest = longest.max(sent.elapsed());
        }
        println!(
            "{kind:5} {what} {locks} locks: {:9.0}/s, server {:.3} us each, longest batch {:.2} ms, {:.1} bytes each",
            locks as f64 / start.elapsed().as_secs_f64(),
            (cpu_s(pid) - cpu) * 1e6 / locks as f64,
            longest.as_secs_f64() * 1e3,
            (resident_bytes(pid) - before) / locks as f64,
        );
    }
}

/// One lock goes through the hands of many: each waiter releases at once and
/// asks again.
fn handoff(port: u16, pid: u32, kind: &str, waiters: usize, seconds: f64) {
    let mut take = Vec::new();
    let mut give = Vec::new();
    if kind == "redis" {
        encode(&mut take, &[b"BLPOP", b"queue", b"0"]);
        encode(&mut give, &[b"LPUSH", b"queue", b"x"]);
    } else {
        encode(&mut take, &[b"LOCK", b"handed on"]);
        encode(&mut give, &[b"UNLOCK", b"handed on"]);
    }
    let mut line: std::collections::VecDeque<Connection> =
        (0..waiters + 1).map(|_| Connection::open(port)).collect();
    if kind == "redis" {
        line[0].stream.write_all(&give).expect("a request");
        line[0].read(1);
    }
    for connection in &mut line {
        connection.stream.write_all(&take).expect("a request");
    }
    std::thread::sleep(Duration::from_millis(300));
    let mut both = give.clone();
    both.extend_from_slice(&take);
    line[0].read(1);
    let (start, cpu) = (Instant::now(), cpu_s(pid));
    let mut handed = 0u64;
    while start.elapsed().as_secs_f64() < seconds {
        for _ in 0..16 {
            let mut holder = line.pop_front().expect("a holder");
            holder.stream.write_all(&both).expect("a request");
            line[0].read(1);
            holder.read(1);
            line.push_back(holder);
            handed += 1;
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    println!(
        "{kind:5} {waiters} waiters: {:.0} hand-offs/s, server {:.2} us each",
        handed as f64 / elapsed,
        (cpu_s(pid) - cpu) * 1e6 / handed as f64
    );
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let number = |at: usize| {
        word(at)
            .parse::<usize>()
            .expect("a number; see the head of this file")
    };
    let (port, pid) = (number(1) as u16, number(2) as u32);
    match word(0) {
        "pairs" => pairs(port, pid, word(3), number(4), number(5), number(6) as f64),
        "hold" => hold(port, pid, word(3), number(4) as u64),
        "handoff" => handoff(port, pid, word(3), number(4), number(5) as f64),
        _ => panic!("see the head of this file"),
    }
}
