//! The gate with a scripted store: no byte of a reply leaves before the store's answer to an
//! operation that began after its turn, and everything comes in order after it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use jostle_resp::Value;
use jostle_resp::request::encode;
use jostle_resp::value::ValueLimits;

use super::super::commands::table::COMMANDS;
use super::*;
use crate::Config;
use crate::store::{Failure, Stored};
use crate::table::Time;

/// How long to wait for what must come; shorter where faults are planted, which it shows.
fn patience() -> Duration {
    let seconds = std::env::var("JOSTLE_PATIENCE").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(120))
}

/// The script's observations, and how often it may still answer; `None`: always.
#[derive(Default)]
struct Seen {
    /// As a locked file: it fences, and leaves out what connections hold.
    fences: bool,
    begun: u64,
    answers: Option<u64>,
    stored: Stored,
}

/// A store that answers when it is told to, one entry at a time.
#[derive(Clone, Default)]
struct Script(Arc<(Mutex<Seen>, Condvar)>);

impl Script {
    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
    }

    /// Waits until this is so.
    #[track_caller]
    fn until(&self, so: impl Fn(&Seen) -> bool) {
        let seen = self.0.0.lock().unwrap();
        let wait = self
            .0
            .1
            .wait_timeout_while(seen, patience(), |seen| !so(seen));
        assert!(!wait.unwrap().1.timed_out(), "not in time");
    }

    fn begun(&self) -> u64 {
        self.0.0.lock().unwrap().begun
    }
}

impl Store for Script {
    fn commit_if(&mut self, batch: &[Entry]) -> Result<usize, Failure> {
        self.change(|seen| seen.begun += 1);
        self.until(|seen| seen.answers != Some(0));
        self.change(|seen| {
            seen.answers = seen.answers.map(|left| left - 1);
            if let Some(entry) = batch.first() {
                seen.stored.apply(entry);
            }
        });
        Ok(batch.len().min(1))
    }

    fn fences(&self) -> bool {
        self.0.0.lock().unwrap().fences
    }

    fn keeps_connections(&self) -> bool {
        !self.fences()
    }
}

/// A server with a scripted store, in a thread.
struct World {
    script: Script,
    address: SocketAddr,
    metrics: SocketAddr,
    stop: UnixStream,
    ended: Receiver<()>,
}

impl World {
    fn new(change: impl FnOnce(&mut Server)) -> Self {
        Self::following(Script::default(), change)
    }

    fn following(script: Script, change: impl FnOnce(&mut Server)) -> Self {
        let mut config = Config::embedded();
        config.metrics = Some("127.0.0.1:0".parse().unwrap());
        config.drain_timeout = patience();
        let mut server = Server::with_store(config, Box::new(script.clone())).unwrap();
        change(&mut server);
        let (address, metrics) = (server.addresses().next(), server.metrics_address());
        let (stop, stopped) = UnixStream::pair().unwrap();
        let (end, ended): (Sender<()>, _) = channel();
        std::thread::spawn(move || {
            server.run(&stopped).unwrap();
            drop(end);
        });
        Self {
            script,
            address: address.unwrap(),
            metrics: metrics.unwrap(),
            stop,
            ended,
        }
    }

    fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(patience())).unwrap();
        let bytes = Vec::new();
        Client { stream, bytes }
    }

    /// A figure of the metrics, which do not wait for the store.
    fn figure(&self, name: &str) -> u64 {
        let mut http = TcpStream::connect(self.metrics).unwrap();
        http.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        http.read_to_string(&mut text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or("0").trim().parse().unwrap()
    }

    #[track_caller]
    fn eventually(&self, what: &str, mut so: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + patience();
        while !so(self) {
            assert!(Instant::now() < end, "not in time: {what}");
        }
    }

    /// Sends a request, and waits until the turn is over in which it was executed.
    fn send(&self, client: &mut Client, line: &str) {
        let executed = |world: &Self| {
            let commands = world.figure("jostled_commands_processed_total");
            commands + world.figure("jostled_protocol_errors_total")
        };
        let before = executed(self);
        client.send(line);
        self.eventually("it is executed", |world| executed(world) > before);
        self.turn_ends();
    }

    /// Waits until the turn is over in which the metrics are asked for.
    fn turn_ends(&self) {
        for _ in 0..2 {
            self.figure("jostled_process_id");
        }
    }

    /// Lets the store be in the middle of an operation.
    fn stall(&self) -> Client {
        let mut other = self.client();
        assert_eq!(other.ask("PING"), "PONG");
        // Nothing is asked for any more once this is so.
        self.eventually("the store rests", |world| {
            let begun = world.script.begun();
            world.turn_ends();
            begun == world.script.begun()
        });
        let begun = self.script.begun();
        self.script.change(|seen| seen.answers = Some(0));
        other.send("PING");
        self.script.until(|seen| seen.begun == begun + 1);
        other
    }

    /// Lets the store answer until a client has its reply: not a byte comes before the
    /// operation that began after the reply's turn, or before all of its entries.
    #[track_caller]
    fn comes_late(&self, client: &mut Client, told: &str, what: &str) {
        client.has_nothing(what);
        let mut begun = self.script.begun();
        self.script.change(|seen| seen.answers = Some(1));
        // The operation that has the reply, whenever it comes about.
        begun += 1;
        self.script.until(|seen| seen.begun >= begun);
        loop {
            self.turn_ends();
            client.has_nothing(what);
            self.script.change(|seen| seen.answers = Some(1));
            self.script.until(|seen| seen.answers == Some(0));
            // The next entry of the same operation, or the reply.
            self.eventually("the next answer", |world| {
                client.is_readable() || world.script.begun() > begun
            });
            if client.is_readable() {
                break;
            }
            begun += 1;
        }
        assert_eq!(client.read(), told, "{what}");
        self.script.change(|seen| seen.answers = None);
    }
}

struct Client {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Client {
    fn send(&mut self, line: &str) {
        let mut bytes = Vec::new();
        match line.strip_suffix("\r\n") {
            Some(_) => bytes.extend(line.as_bytes()),
            None => {
                let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
                encode(&mut bytes, &words);
            }
        }
        self.stream.write_all(&bytes).unwrap();
    }

    /// The first word of the next reply; empty: the connection has ended.
    fn read(&mut self) -> String {
        loop {
            let found = Value::decode(&self.bytes, ValueLimits::default()).unwrap();
            if let Some((value, used)) = found {
                self.bytes.drain(..used);
                return match value {
                    Value::Integer(number) => number.to_string(),
                    Value::Nil => "nil".to_owned(),
                    Value::Bulk(_) | Value::Simple(_) | Value::Error(_) => {
                        let text = value.as_text().unwrap();
                        text.split_whitespace()
                            .next()
                            .unwrap_or_default()
                            .to_owned()
                    }
                    _ => "list".to_owned(),
                };
            }
            let mut bytes = [0; 1 << 16];
            match self.stream.read(&mut bytes).unwrap() {
                0 => return String::new(),
                length => self.bytes.extend(&bytes[..length]),
            }
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.read()
    }

    fn is_readable(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        !matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    #[track_caller]
    fn has_nothing(&self, what: &str) {
        assert!(!self.is_readable(), "{what}: something was sent");
    }
}

/// Requests and the last one's reply. `$S` is a session; those before the last one are
/// answered before the store stalls.
const ROWS: &[(&[&str], &str)] = &[
    (&["LOCK a TTL 60000"], "1"),
    (&["LOCK own", "LOCK own"], "ALREADYHELD"),
    (&["UNLOCK own"], "NOTHELD"),
    (&["LOCK u", "UNLOCK u"], "1"),
    (&["TRYLOCK a"], "nil"),
    (&["RENEW a 1 TTL 50000"], "1"),
    (&["RENEW a 1 TTL 50000"], "1"),
    (&["PING"], "PONG"),
    (&["HOLDER a"], "list"),
    (&["HOLDERS"], "list"),
    (&["WAITERS a"], "list"),
    (&["PLACE a ID 1"], "nil"),
    (&["CONTENTION"], "list"),
    (&["LOCK f", "FORCEUNLOCK f"], "1"),
    (&["INFO server"], "#"),
    (&["HELLO 2"], "list"),
    (&["AUTH x"], "ERR"),
    (&["CLIENT GETNAME"], "nil"),
    (&["ECHO hello"], "hello"),
    (&["SELECT 0"], "OK"),
    (&["COMMAND COUNT"], "count"),
    (&["CONFIG GET save"], "list"),
    (&["RESET"], "RESET"),
    (&["QUIT"], "OK"),
    (&["MULTI"], "OK"),
    (&["MULTI", "LOCK m TTL 9000", "EXEC"], "list"),
    (&["MULTI", "DISCARD"], "OK"),
    (&["LOCKALL 2 b c TTL 60000"], "list"),
    (&["SESSION RENEW $S"], "1"),
    (&["LOCK s SESSION $S"], "token"),
    (&["SESSION CLOSE $S"], "1"),
    (&["ACL WHOAMI"], "default"),
    (&["SHUTDOWN ABORT"], "ERR"),
    (&["LEASES FORGET"], "ERR"),
    (&["HANDOVER"], "ERR"),
    (&["HA STATUS"], "ERR"),
    (&["NONSENSE"], "ERR"),
    (&["*1\r\n$-7\r\n"], "ERR"),
];

#[test]
fn no_reply_to_a_command_leaves_before_the_store_has_it() {
    let world = World::new(|_| {});
    for spec in COMMANDS {
        let sent = ROWS.iter().flat_map(|(lines, _)| *lines);
        let mut sent = sent.map(|line| line.split(' ').next());
        assert!(
            sent.any(|word| word == Some(spec.name)),
            "no row of {}",
            spec.name
        );
    }
    let session = world.client().ask("SESSION OPEN TTL 600000");
    for (lines, told) in ROWS {
        let mut client = world.client();
        let line = |line: &str| line.replace("$S", &session);
        let (last, before) = lines.split_last().unwrap();
        for request in before {
            client.ask(&line(request));
        }
        let mut other = world.stall();
        world.send(&mut client, &line(last));
        let told = match *told {
            "count" => COMMANDS.len().to_string(),
            "token" => (world.figure("jostled_next_token") - 1).to_string(),
            told => told.to_owned(),
        };
        world.comes_late(&mut client, &told, last);
        if last.starts_with("LOCKALL") {
            let seen = world.script.0.0.lock().unwrap();
            let names = seen.stored.holds.values().map(|hold| &hold.name[..]);
            assert_eq!(
                names.filter(|name| matches!(name, [b'b' | b'c'])).count(),
                2
            );
        }
        assert_eq!(other.read(), "PONG");
    }
}

/// Answers to a client that asked for nothing just then: who, what it waits with, what another
/// client does then, and what it is told.
const UNASKED: &[(&str, &str, &str)] = &[
    ("LOCK held TTL 60000", "UNLOCK held", "token"),
    ("LOCK held SESSION $S", "UNLOCK held", "token"),
    ("LOCKALL 2 held free", "UNLOCK held", "list"),
    ("LOCK held", "FORCEUNLOCK held", "token"),
    ("LOCK held WAIT 30", "PING", "nil"),
    ("LOCK held SESSION $S", "SESSION CLOSE $S", "NOSESSION"),
    ("LOCK held", "CLIENT UNBLOCK $I", "nil"),
    ("LOCK held", "CLIENT UNBLOCK $I ERROR", "UNBLOCKED"),
    (
        "LOCK held SESSION $S",
        "LOCK held SESSION $S, UNLOCK held",
        "ALREADYHELD",
    ),
    ("AUTH nobody wrong", "PING", "WRONGPASS"),
    ("LOCK held", "SHUTDOWN DRAIN 600s", "SHUTDOWN"),
];

#[test]
fn no_reply_that_nobody_asked_for_leaves_before_the_store_has_it() {
    let world = World::new(|_| {});
    for (row, (waits, happens, told)) in UNASKED.iter().enumerate() {
        let (mut holder, mut waiter) = (world.client(), world.client());
        let name = format!("held{row}");
        holder.ask(&format!("LOCK {name}"));
        let session = holder.ask("SESSION OPEN TTL 600000");
        let id = waiter.ask("CLIENT ID");
        let line = |line: &str| {
            let line = line.replace("$S", &session);
            line.replace("$I", &id).replace("held", &name)
        };
        let mut first = world.client();
        let happens: Vec<&str> = happens.split(", ").collect();
        if happens.len() > 1 {
            world.send(&mut first, &line(happens[0]));
        }
        let mut other = world.stall();
        world.send(&mut waiter, &line(waits));
        world.send(&mut holder, &line(happens[happens.len() - 1]));
        let told = match *told {
            "token" => (world.figure("jostled_next_token") - 1).to_string(),
            told => told.to_owned(),
        };
        world.comes_late(&mut waiter, &told, waits);
        assert_eq!(other.read(), "PONG");
        // All that was asked for is answered.
        holder.read();
        drop((holder, waiter, first));
        world.eventually("they have left", |world| {
            world.figure("jostled_waiters") == 0
        });
    }
}

/// A client that waits, whose earlier reply is on its way while that of its grant is held,
/// and that is gone then: the lease is passed on, as its token was told to nobody.
#[test]
fn a_lease_whose_reply_is_held_is_passed_on_though_earlier_replies_were_sent() {
    let world = World::new(|_| {});
    let (mut holder, mut waiter, mut next) = (world.client(), world.client(), world.client());
    holder.ask("LOCK held");
    let mut other = world.stall();
    let begun = world.script.begun();
    world.send(&mut waiter, "PING");
    world.script.change(|seen| seen.answers = Some(1));
    world.script.until(|seen| seen.begun == begun + 1);
    // The reply to PING is sent for; that of the grant comes after.
    world.send(&mut waiter, "LOCK held TTL 600000");
    world.send(&mut next, "LOCK held TTL 600000");
    world.send(&mut holder, "UNLOCK held");
    world.script.change(|seen| seen.answers = Some(1));
    world.script.until(|seen| seen.begun == begun + 2);
    assert_eq!(
        (waiter.read(), other.read()),
        ("PONG".into(), "PONG".into())
    );
    waiter.has_nothing("the grant");
    drop(waiter);
    world.eventually("it is passed on", |world| {
        world.figure("jostled_grants_passed_on_total") == 1
    });
    world.script.change(|seen| seen.answers = None);
    assert_eq!((holder.read(), next.read()), ("1".into(), "3".into()));
}

/// The buffers of a client that pipelines without end while the store does not answer.
const BOUND: u64 = 2 << 20;

#[test]
fn clients_that_pipeline_without_end_do_not_read_or_close_half_are_bounded() {
    // More than sockets take, so that only who never reads is closed.
    let world = World::new(|server| server.config.max_output = 32 << 20);
    let (mut endless, mut half) = (world.client(), world.client());
    let mut other = world.stall();
    world.send(&mut half, "ECHO half");
    half.stream.shutdown(Shutdown::Write).unwrap();
    // As much as sockets and the daemon take.
    let (mut sent, mut last) = (0_u64, Instant::now());
    endless.stream.set_nonblocking(true).unwrap();
    let mut rest = Vec::new();
    while last.elapsed() < Duration::from_millis(500) {
        if rest.is_empty() {
            encode(&mut rest, &[b"ECHO", format!("{sent:01000}").as_bytes()]);
            sent += 1;
            assert!(sent < 100_000, "it is read without end");
        }
        if let Ok(length) = endless.stream.write(&rest) {
            (rest, last) = (rest[length..].to_vec(), Instant::now());
        }
    }
    let held = world.figure("jostled_buffer_memory");
    assert!(
        held < BOUND && sent > 300,
        "{held} bytes of {sent} requests"
    );
    half.has_nothing("half");
    world.script.change(|seen| seen.answers = None);
    assert_eq!(
        (other.read(), half.read(), half.read()),
        ("PONG".into(), "half".into(), String::new())
    );
    // The rest is executed as it reads, in order.
    endless.stream.set_nonblocking(false).unwrap();
    let mut writer = endless.stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || writer.write_all(&rest));
    for number in 0..sent {
        assert_eq!(endless.read().parse(), Ok(number));
    }
    writer.join().unwrap().unwrap();
    // One that never reads is closed.
    endless.stream.set_nonblocking(true).unwrap();
    let mut request = Vec::new();
    encode(&mut request, &[b"ECHO", "x".repeat(60_000).as_bytes()]);
    let mut rest = 0;
    world.eventually("it is closed", |world| {
        while let Ok(length @ 1..) = endless.stream.write(&request[rest..]) {
            rest = (rest + length) % request.len();
        }
        world.figure("jostled_closed_output_total") == 1
    });
}

/// Clients that do nothing keep no memory of replies that they have read.
#[test]
fn a_reply_that_was_kept_back_leaves_no_memory_behind() {
    let world = World::new(|_| {});
    let mut client = world.client();
    let line = format!("ECHO {}", "x".repeat(50_000));
    for _ in 0..3 {
        let mut other = world.stall();
        world.send(&mut client, &line);
        let held = world.figure("jostled_buffer_memory");
        assert!(held > 50_000, "{held}");
        world.script.change(|seen| seen.answers = None);
        assert!(client.read().starts_with('x'));
        assert_eq!(other.read(), "PONG");
    }
    world.eventually("it falls back", |world| {
        world.figure("jostled_buffer_memory") < 50_000
    });
}

/// The end of the daemon: who waits is told, and who was told nothing yet gets its reply.
#[test]
fn the_daemon_ends_when_the_store_has_the_last_replies() {
    let world = World::new(|server| server.leases.from = Some(Time(u64::MAX / 2)));
    let (mut waiter, mut parked) = (world.client(), world.client());
    let mut other = world.stall();
    world.send(&mut waiter, "SESSION OPEN TTL 600000");
    parked.send("LOCK x WAIT 30");
    world.comes_late(
        &mut parked,
        "nil",
        "a request that waits for leases of before",
    );
    assert_eq!(waiter.read().len(), 32);
    let heard = |world: &World| world.figure("jostled_net_input_bytes_total");
    let before = heard(&world);
    parked.send("LOCK x");
    world.eventually("it waits", |world| heard(world) > before);
    let mut last = world.stall();
    world.send(&mut waiter, "PING");
    rustix::io::write(&world.stop, b"e").unwrap();
    world.script.change(|seen| seen.answers = None);
    assert_eq!(
        (waiter.read(), waiter.read()),
        ("PONG".into(), String::new())
    );
    assert_eq!(
        (parked.read(), parked.read()),
        ("SHUTDOWN".into(), String::new())
    );
    assert_eq!((other.read(), last.read()), ("PONG".into(), "PONG".into()));
    assert!(world.ended.recv_timeout(patience()).is_err());
}

/// With a file, replies go straight through while nothing is to be committed. One that
/// others' commands have caused comes a moment later; none may overtake it.
#[test]
fn with_a_store_that_fences_replies_do_not_wait_without_need_and_keep_their_order() {
    let script = Script::default();
    script.change(|seen| seen.fences = true);
    let world = World::following(script, |_| {});
    let (mut holder, mut waiter) = (world.client(), world.client());
    for _ in 0..20 {
        holder.ask("LOCK held");
        waiter.send("LOCK held");
        waiter.send("PING");
        world.eventually("it waits", |world| world.figure("jostled_waiters") == 1);
        assert_eq!(holder.ask("UNLOCK held"), "1");
        assert!(waiter.read().parse::<u64>().is_ok());
        assert_eq!(waiter.read(), "PONG");
        assert_eq!(waiter.ask("UNLOCK held"), "1");
    }
    assert_eq!(
        world.script.begun(),
        0,
        "what connections hold is not stored"
    );
    world.script.change(|seen| seen.answers = Some(0));
    holder.send("LOCK lease TTL 600000");
    world.script.until(|seen| seen.begun == 1);
    world.send(&mut waiter, "PING");
    waiter.has_nothing("what is not committed yet may show in any reply");
    world.script.change(|seen| seen.answers = Some(1));
    assert_eq!(waiter.read(), "PONG");
    assert!(holder.read().parse::<u64>().is_ok());
}

#[test]
fn a_connection_that_is_trimmed_keeps_its_replies() {
    let nothing = std::fs::File::open("/dev/null").unwrap();
    let stream = super::super::stream::Stream::plain(nothing.into());
    let mut conn = Conn::new(stream, ClientId::from_number(1), None, Time(0));
    let (held, sent_for) = (b"1".to_vec(), b"2".to_vec());
    conn.kept = Some(Box::new(Kept { held, sent_for }));
    conn.trim();
    assert_eq!(conn.held(), 2);
}
