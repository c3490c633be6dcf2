//! `xtask load`: the lean load generator of `cargo xtask peers --services`,
//! which calls it in a process of its own, and the servers that only answer or
//! only hand on.
//!
//! It asks a server for locks as cheaply as one thread can, so that a figure is
//! the server's and not its own, and prints one line of JSON. Not for figures
//! to be published on their own: it witnesses no exclusion and takes no
//! latencies; that is what `jostle` is for.

mod answer;
mod client;
mod relay;
mod source;

use anyhow::{Context, bail, ensure};
use client::Client;
use jostle_resp::Value;
use jostle_resp::request::encode;
use jostle_resp::value::ValueLimits;
use jostle_sys::{cpu, stat};
use serde::{Deserialize, Serialize};
use source::{Numbers, Source};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Before the window opens: caches, branch predictors and pipelines fill.
const WARM_UP: Duration = Duration::from_millis(50);
/// Waiters beside the load stand in this many lines.
const LINES: usize = 10;
/// How often the metrics are read.
const SCRAPE_EVERY: Duration = Duration::from_millis(100);
/// Commands in flight while locks are acquired to be held.
const HOLD_DEPTH: usize = 100;
/// A server that needs longer than this for a fixed number of commands hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const LEASE_MS: &[u8] = b"60000";

#[derive(clap::Args)]
pub struct Load {
    #[command(subcommand)]
    what: What,
    /// The CPU to run on
    #[arg(long, global = true)]
    cpu: Option<usize>,
}

#[derive(clap::Subcommand)]
enum What {
    /// A server that answers every request with 1
    Answer,
    /// A server that hands one lock from client to client
    Relay,
    /// Commands for a time
    Stream {
        #[command(flatten)]
        server: Server,
        #[arg(long)]
        shape: Shape,
        #[arg(long)]
        connections: usize,
        /// Commands in flight on each connection
        #[arg(long)]
        depth: usize,
        /// Pieces in which they are sent; 1: all, when all are answered
        #[arg(long, default_value_t = 1)]
        pieces: usize,
        #[arg(long)]
        seconds: f64,
        /// So many other connections wait for locks meanwhile
        #[arg(long, default_value_t = 0)]
        waiters: usize,
        /// The metrics at this port are read meanwhile
        #[arg(long)]
        scrape: Option<u16>,
    },
    /// Acquires so many different locks and releases them
    Hold {
        #[command(flatten)]
        server: Server,
        #[arg(long)]
        locks: u64,
        /// Again and again for so long, at least once
        #[arg(long)]
        seconds: f64,
    },
}

#[derive(clap::Args)]
struct Server {
    #[arg(long)]
    port: u16,
    /// Its process
    #[arg(long)]
    pid: u32,
    #[arg(long)]
    dialect: Dialect,
}

/// How a server is asked for a lock.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Dialect {
    /// LOCK and UNLOCK: owned by the connection.
    Owned,
    /// The same with a TTL.
    Leased,
    /// SET NX PX and DEL.
    Redis,
}

/// What each connection does.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Shape {
    /// Acquires and releases locks of its own.
    Pairs,
    /// Acquires locks by names that are new each time, and keeps them.
    Fresh,
    /// All want the same lock; one command at a time, or as deep as told.
    Handoff,
    /// The same; release and next request are one write.
    HandoffTogether,
}

/// What a load has cost.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub struct Cost {
    pub commands: u64,
    pub elapsed_s: f64,
    pub server_cpu_s: f64,
    pub client_cpu_s: f64,
    /// Share of all CPUs that others used or the hypervisor took, about.
    pub elsewhere: f64,
    /// The longest time without any reply, in seconds.
    pub longest_gap_s: f64,
}

/// What it has cost to acquire, to hold and to release.
#[derive(Serialize, Deserialize)]
pub struct Held {
    pub acquire: Cost,
    pub release: Cost,
    /// Growth of the server's resident memory for each lock, after the first pass.
    pub bytes_each: f64,
}

pub fn run(load: &Load) -> anyhow::Result<()> {
    if let Some(cpu) = load.cpu {
        cpu::pin(&[cpu]).with_context(|| format!("cannot run on CPU {cpu}"))?;
    }
    match &load.what {
        What::Answer => answer::run(),
        What::Relay => relay::run(),
        What::Stream {
            server,
            shape,
            connections,
            depth,
            pieces,
            seconds,
            waiters,
            scrape,
        } => {
            let _waiting = server.wait_beside(*waiters)?;
            if let Some(port) = *scrape {
                std::thread::spawn(move || scrape_for_ever(port));
            }
            let mut client = server.stream(*shape, *connections, *depth, *pieces)?;
            client.run_until(Instant::now() + WARM_UP)?;
            let machine = Machine::watch()?;
            let mut meter = Meter::start(server.pid)?;
            client.begin_count();
            let start = Instant::now();
            client.run_until(start + Duration::from_secs_f64(*seconds))?;
            // On a machine that is busy elsewhere a short window may see none.
            while client.replies() == 0 && start.elapsed() < PATIENCE {
                client.run_until(Instant::now() + WARM_UP)?;
            }
            meter.add(&client)?;
            let mut cost = meter.cost;
            cost.elsewhere = machine.elsewhere(cost.server_cpu_s + cost.client_cpu_s)?;
            print(&cost)
        }
        What::Hold {
            server,
            locks,
            seconds,
        } => print(&server.hold(*locks, Duration::from_secs_f64(*seconds))?),
    }
}

fn print(figures: &impl Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(figures)?);
    Ok(())
}

/// Adds up what the server and this process use while the client runs.
struct Meter {
    server: stat::CpuClock,
    pid: u32,
    at: Sample,
    cost: Cost,
}

/// Where clocks stand.
#[derive(Clone, Copy)]
struct Sample {
    time: Instant,
    server_ns: u64,
    own_ns: u64,
}

/// Finds out what the machine does beside what is measured.
pub struct Machine {
    start: Instant,
    ticks: u64,
}

impl Machine {
    pub fn watch() -> anyhow::Result<Machine> {
        Ok(Machine {
            start: Instant::now(),
            ticks: Machine::ticks()?,
        })
    }

    /// The share of all CPUs since then that was not these seconds. Ticks come
    /// every few milliseconds, so that a short time may see one too few.
    pub fn elsewhere(&self, measured_s: f64) -> anyhow::Result<f64> {
        let ticks = Machine::ticks()?.saturating_sub(self.ticks);
        let busy_s = ticks as f64 / stat::ticks_per_second() as f64;
        let cpus = stat::machine_ticks()?.cpus.max(1) as f64;
        let all_s = self.start.elapsed().as_secs_f64() * cpus;
        Ok(((busy_s - measured_s) / all_s).max(0.0))
    }

    /// Busy and stolen, of all CPUs.
    fn ticks() -> anyhow::Result<u64> {
        let machine = stat::machine_ticks()?;
        Ok(machine.busy + machine.stolen)
    }
}

impl Meter {
    fn start(pid: u32) -> anyhow::Result<Meter> {
        let server = stat::CpuClock::of(pid)?;
        let cost = Cost::default();
        let at = Sample::of(server, pid)?;
        Ok(Meter {
            server,
            pid,
            at,
            cost,
        })
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        self.at = Sample::of(self.server, self.pid)?;
        Ok(())
    }

    /// Adds what was used since `begin`.
    fn add(&mut self, client: &Client) -> anyhow::Result<()> {
        let before = self.at;
        self.begin()?;
        let s = |ns: u64| ns as f64 * 1e-9;
        self.cost.commands += client.replies();
        self.cost.elapsed_s += (self.at.time - before.time).as_secs_f64();
        self.cost.server_cpu_s += s(self.at.server_ns - before.server_ns);
        self.cost.client_cpu_s += s(self.at.own_ns - before.own_ns);
        let gap = client.longest_gap().as_secs_f64();
        self.cost.longest_gap_s = self.cost.longest_gap_s.max(gap);
        ensure!(client.replies() > 0, "the server did not answer");
        Ok(())
    }
}

impl Sample {
    fn of(server: stat::CpuClock, pid: u32) -> anyhow::Result<Sample> {
        let server_ns = server.read();
        Ok(Sample {
            server_ns: server_ns.with_context(|| format!("the server {pid} has ended"))?,
            own_ns: stat::own_cpu_ns(),
            time: Instant::now(),
        })
    }
}

impl Dialect {
    fn acquire(self, name: &[u8], out: &mut Vec<u8>) {
        match self {
            Dialect::Owned => encode(out, &[b"LOCK", name]),
            Dialect::Leased => encode(out, &[b"LOCK", name, b"TTL", LEASE_MS]),
            Dialect::Redis => encode(out, &[b"SET", name, b"x", b"NX", b"PX", LEASE_MS]),
        }
    }

    /// What redis-benchmark is told to send.
    fn try_acquire(self, name: &[u8], out: &mut Vec<u8>) {
        match self {
            Dialect::Owned => encode(out, &[b"LOCK", name, b"WAIT", b"0"]),
            Dialect::Leased => encode(out, &[b"LOCK", name, b"TTL", LEASE_MS, b"WAIT", b"0"]),
            Dialect::Redis => self.acquire(name, out),
        }
    }

    fn release(self, name: &[u8], out: &mut Vec<u8>) {
        match self {
            Dialect::Owned | Dialect::Leased => encode(out, &[b"UNLOCK", name]),
            Dialect::Redis => encode(out, &[b"DEL", name]),
        }
    }

    /// Waits in line for the one lock.
    fn take_turn(self, out: &mut Vec<u8>) {
        match self {
            Dialect::Owned => encode(out, &[b"LOCK", b"handed on"]),
            Dialect::Leased => encode(out, &[b"LOCK", b"handed on", b"TTL", LEASE_MS]),
            Dialect::Redis => encode(out, &[b"BLPOP", b"handed on", b"0"]),
        }
    }

    /// Hands it to the next in line.
    fn give_turn(self, out: &mut Vec<u8>) {
        match self {
            Dialect::Owned | Dialect::Leased => encode(out, &[b"UNLOCK", b"handed on"]),
            Dialect::Redis => encode(out, &[b"LPUSH", b"handed on", b"x"]),
        }
    }
}

impl Server {
    fn connect(&self) -> anyhow::Result<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_nodelay(true)?;
        // Closed without TIME-WAIT: the next repeat needs the ports.
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
        Ok(stream)
    }

    /// Connections with everything sent that is in flight at first.
    fn stream(
        &self,
        shape: Shape,
        connections: usize,
        depth: usize,
        pieces: usize,
    ) -> anyhow::Result<Client> {
        client::allow_files(connections as u64 + 64);
        if self.dialect == Dialect::Redis
            && matches!(shape, Shape::Handoff | Shape::HandoffTogether)
        {
            // The queue holds the one token that stands for the lock.
            let mut stream = self.connect()?;
            ask(&mut stream, &[b"DEL", b"handed on"])?;
            ask(&mut stream, &[b"LPUSH", b"handed on", b"x"])?;
        }
        let piece = depth.div_ceil(pieces.max(1));
        let mut client = Client::new(depth, piece)?;
        for connection in 0..connections {
            let (first, source) = self.commands(shape, connection, depth, piece);
            client.add(self.connect()?, &first, source)?;
        }
        Ok(client)
    }

    /// What a connection sends first and alone, if anything, and then over and
    /// over.
    fn commands(
        &self,
        shape: Shape,
        connection: usize,
        depth: usize,
        piece: usize,
    ) -> (Vec<u8>, Source) {
        let dialect = self.dialect;
        let mut first = Vec::new();
        let source = match shape {
            Shape::Pairs => {
                let slots = depth.div_ceil(2).max(piece);
                Source::cycle(piece, slots * 2, |command, out| {
                    let name = source::name((connection * slots + command / 2) as u64);
                    match command % 2 {
                        0 => dialect.acquire(&name, out),
                        _ => dialect.release(&name, out),
                    }
                })
            }
            Shape::Fresh => {
                // The names of different connections do not meet: each has its
                // own range of 2^40 numbers.
                let from = (connection as u64) << 40;
                let numbers = Numbers::endless(from);
                Source::names(piece, numbers, |name, out| dialect.try_acquire(name, out))
            }
            Shape::Handoff => Source::cycle(piece, 2 * piece, |command, out| match command % 2 {
                0 => dialect.take_turn(out),
                _ => dialect.give_turn(out),
            }),
            Shape::HandoffTogether => {
                dialect.take_turn(&mut first);
                Source::cycle(piece, 2 * piece, |command, out| match command % 2 {
                    0 => dialect.give_turn(out),
                    _ => dialect.take_turn(out),
                })
            }
        };
        (first, source)
    }

    fn hold(&self, locks: u64, time: Duration) -> anyhow::Result<Held> {
        let start = Instant::now();
        let mut client = Client::new(HOLD_DEPTH, HOLD_DEPTH / 2)?;
        client.add(self.connect()?, &[], Source::nothing())?;
        let empty = self.resident_bytes()?;
        let machine = Machine::watch()?;
        let mut meters = [Meter::start(self.pid)?, Meter::start(self.pid)?];
        let mut bytes_each = None;
        let mut passes = 0;
        while passes == 0 || start.elapsed() < time {
            let from = passes * locks;
            let dialect = self.dialect;
            let verbs = [
                Source::names(HOLD_DEPTH / 2, Numbers::range(from, locks), |name, out| {
                    dialect.acquire(name, out);
                }),
                // In another order than that in which they were acquired.
                Source::names(
                    HOLD_DEPTH / 2,
                    Numbers::shuffled(from, locks),
                    |name, out| {
                        dialect.release(name, out);
                    },
                ),
            ];
            for (source, meter) in verbs.into_iter().zip(&mut meters) {
                client.begin_count();
                meter.begin()?;
                client.run_out(source, PATIENCE)?;
                meter.add(&client)?;
                if bytes_each.is_none() {
                    let grown = self.resident_bytes()? as f64 - empty as f64;
                    bytes_each = Some(grown / locks as f64);
                }
            }
            passes += 1;
        }
        let [mut acquire, mut release] = meters.map(|meter| meter.cost);
        let used_s = |cost: &Cost| cost.server_cpu_s + cost.client_cpu_s;
        acquire.elsewhere = machine.elsewhere(used_s(&acquire) + used_s(&release))?;
        release.elsewhere = acquire.elsewhere;
        Ok(Held {
            acquire,
            release,
            bytes_each: bytes_each.unwrap_or(0.0),
        })
    }

    fn resident_bytes(&self) -> anyhow::Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.pid))?;
        let pages: Option<u64> = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
        Ok(pages.context("no resident size")? * rustix::param::page_size() as u64)
    }

    /// Connections that wait for locks until they are dropped.
    fn wait_beside(&self, waiters: usize) -> anyhow::Result<Vec<TcpStream>> {
        client::allow_files(waiters as u64 + 64);
        let mut open = Vec::new();
        for waiter in 0..waiters + LINES.min(waiters) {
            let mut stream = self.connect()?;
            let name = format!("waited for {}", waiter % LINES);
            let mut request = Vec::new();
            encode(&mut request, &[b"LOCK", name.as_bytes()]);
            stream.write_all(&request)?;
            open.push(stream);
        }
        if waiters == 0 {
            return Ok(open);
        }
        let end = Instant::now() + PATIENCE;
        loop {
            let info = ask(&mut self.connect()?, &[b"INFO"])?;
            let line = format!("\nwaiters:{waiters}\r");
            if info.as_text().is_some_and(|text| text.contains(&line)) {
                return Ok(open);
            }
            ensure!(Instant::now() < end, "no {waiters} waiters in {info:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// One request and its reply.
pub fn ask(stream: &mut TcpStream, words: &[&[u8]]) -> anyhow::Result<Value> {
    let mut request = Vec::new();
    encode(&mut request, words);
    stream.write_all(&request)?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        if let Some((value, _)) = Value::decode(&bytes, ValueLimits::default())? {
            if let Value::Error(text) = value {
                bail!("the server says: {text}");
            }
            return Ok(value);
        }
        let read = stream.read(&mut buffer)?;
        ensure!(read > 0, "the server closed the connection");
        bytes.extend_from_slice(&buffer[..read]);
    }
}

/// Reads the metrics until this process ends. What fails here shows in the
/// server's count of scrapes, not in the load.
fn scrape_for_ever(port: u16) {
    loop {
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let _ = stream.read_to_end(&mut Vec::new());
        }
        std::thread::sleep(SCRAPE_EVERY);
    }
}
