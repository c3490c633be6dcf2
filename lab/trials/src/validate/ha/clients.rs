//! Clients of a group of jostleds: they take locks, renew and release them, and tell the witness
//! until when they rely on them. They know the addresses of all members, and nothing else.

use super::SECRET;
use anyhow::Context;
use jostle_stats::rng::Rng;
use jostle_sys::clock::monotonic;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

/// A lease that may run out, and those that outlive any fault.
const SHORT_MS: u64 = 5_000;
const LONG_MS: u64 = 20_000;
/// How long an owner of a connection relies on it: 0.85 of the orphan time.
const ORPHAN_NS: u64 = 8_500_000_000;
/// Until a connection is given up, to be made or to answer.
const CONNECTS: Duration = Duration::from_millis(1000);
const ANSWERS: Duration = Duration::from_secs(3);
/// Grants of free names are further apart than this if something has happened.
const BESIDE_NS: u64 = 300_000_000;
/// Names that are contended.
const HOT: u64 = 5;
/// Owners of leases and of sessions who only renew them.
const KEEPERS: u64 = 4;

/// What the clients have seen.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Seen {
    /// For each fault, the longest time in milliseconds without a grant of a free name, to the
    /// next fault: by any member, and to a client that knows all of them.
    pub gap_ms: Vec<[f64; 2]>,
    /// Requests that were answered, and those that were not.
    pub answered: u64,
    pub unknown: u64,
    /// Leases of 20 s that were kept to the end, lapsed because no member answered in time, and
    /// were lost before; and the same of sessions.
    pub leases: [u64; 3],
    pub sessions: [u64; 3],
    /// Effects that were told, and that a later answer does not know, each with the number of
    /// faults before.
    pub lost: Vec<(usize, String)>,
}

/// What the threads share.
struct Shared {
    addresses: Vec<SocketAddr>,
    witness: u16,
    over: AtomicBool,
    seen: Mutex<Seen>,
    faults: Mutex<Vec<u64>>,
    /// Grants of free names, and whether the client knew all members.
    free: Mutex<Vec<(u64, bool)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, PartialEq)]
enum Said {
    Number(u64),
    Text(String),
    Nil,
    Error(String),
}

/// A client's way to the group.
struct Wire<'a> {
    shared: &'a Shared,
    addresses: &'a [SocketAddr],
    at: usize,
    stream: Option<BufReader<TcpStream>>,
    /// Which connection it is: what is held by one is not held by the next.
    nth: u64,
    /// Connections that did not answer. Closed, they would end what they hold, which their
    /// client still relies on.
    silent: Vec<BufReader<TcpStream>>,
}

impl<'a> Wire<'a> {
    fn new(shared: &'a Shared, addresses: &'a [SocketAddr]) -> Wire<'a> {
        Wire {
            shared,
            addresses,
            at: 0,
            stream: None,
            nth: 0,
            silent: Vec::new(),
        }
    }

    /// The answer, and when the request was sent; `None` if it is not known what became of it.
    fn ask(&mut self, words: &str) -> Option<(Said, u64)> {
        if self.stream.is_none() {
            self.connect();
        }
        let stream = self.stream.as_mut()?;
        let sent = monotonic();
        match exchange(stream, words) {
            Ok(said) => {
                lock(&self.shared.seen).answered += 1;
                Some((said, sent))
            }
            Err(error) => {
                lock(&self.shared.seen).unknown += 1;
                let stream = self.stream.take();
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
                    self.silent.extend(stream);
                }
                None
            }
        }
    }

    /// Tries the next member.
    fn connect(&mut self) {
        self.at = (self.at + 1) % self.addresses.len();
        let made = TcpStream::connect_timeout(&self.addresses[self.at], CONNECTS);
        let greeted = made.and_then(|stream| {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(ANSWERS))?;
            let mut stream = BufReader::new(stream);
            exchange(&mut stream, &format!("AUTH {SECRET}")).map(|_| stream)
        });
        match greeted {
            Ok(stream) => (self.stream, self.nth) = (Some(stream), self.nth + 1),
            Err(_) => sleep(Duration::from_millis(50)),
        }
    }
}

fn exchange(stream: &mut BufReader<TcpStream>, words: &str) -> std::io::Result<Said> {
    stream.get_ref().write_all(encoded(words).as_bytes())?;
    answer(stream)
}

fn encoded(words: &str) -> String {
    let words: Vec<&str> = words.split(' ').collect();
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text += &format!("${}\r\n{word}\r\n", word.len());
    }
    text
}

fn answer(stream: &mut BufReader<TcpStream>) -> std::io::Result<Said> {
    let line = line(stream)?;
    let rest = line.get(1..).unwrap_or_default().to_owned();
    Ok(match line.as_bytes().first() {
        Some(b':') => Said::Number(rest.parse().map_err(|_| ErrorKind::InvalidData)?),
        Some(b'-') => Said::Error(rest),
        Some(b'$' | b'_') if rest == "-1" || rest.is_empty() => Said::Nil,
        Some(b'$') => Said::Text(self::line(stream)?),
        _ => Said::Text(rest),
    })
}

/// A line; its end is an error of its own kind, so that no answer is half of one.
fn line(stream: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let whole = line.strip_suffix("\r\n").ok_or(ErrorKind::UnexpectedEof)?;
    Ok(whole.to_owned())
}

/// What an owner has, and until when.
enum Owns {
    Lease(u64),
    Session(String),
    /// The connection of this number.
    Connection(u64),
}

/// A thread that owns locks.
struct Owner<'a> {
    wire: Wire<'a>,
    witness: UdpSocket,
    rng: Rng,
}

impl Owner<'_> {
    fn over(&self) -> bool {
        self.wire.shared.over.load(Relaxed)
    }

    /// Tells the witness, and waits until it is noted.
    fn tell(&self, text: &str) {
        let port = self.wire.shared.witness;
        // What is told twice is noted once.
        while !self.over() {
            let sent = self.witness.send_to(text.as_bytes(), ("127.0.0.1", port));
            if sent.is_ok() && self.witness.recv(&mut [0; 16]).is_ok() {
                return;
            }
        }
    }

    fn lose(&self, text: String) {
        let after = lock(&self.wire.shared.faults).len();
        lock(&self.wire.shared.seen).lost.push((after, text));
    }

    /// Opens a session until there is one; its id, and until when it lasts.
    fn open(&mut self, ttl_ms: u64) -> Option<(String, u64)> {
        while !self.over() {
            if let Some((Said::Text(id), sent)) =
                self.wire.ask(&format!("SESSION OPEN TTL {ttl_ms}"))
            {
                return Some((id, sent + relied_on(ttl_ms)));
            }
            sleep(Duration::from_millis(50));
        }
        None
    }

    /// Takes hot names for ever.
    fn contend(&mut self, kind: &str) {
        let mut session: Option<(String, u64)> = None;
        while !self.over() {
            self.wire.silent.clear();
            if kind == "session"
                && session
                    .as_ref()
                    .is_none_or(|(_, until)| monotonic() >= *until)
            {
                session = self.open(LONG_MS);
            }
            // What keepers have is asked for, too.
            let name = match self.rng.below(10) {
                0 => format!("kept{}", self.rng.below(KEEPERS)),
                _ => format!("hot{}", self.rng.below(HOT)),
            };
            let how = match (&session, kind) {
                (Some((id, _)), _) => format!("SESSION {id} "),
                (None, "lease") => format!("TTL {SHORT_MS} "),
                _ => String::new(),
            };
            let Some((said, sent)) = self.wire.ask(&format!("LOCK {name} {how}WAIT 500")) else {
                continue;
            };
            let token = match &said {
                Said::Number(token) => *token,
                // An earlier request that was not answered has got it.
                Said::Error(text) if text.starts_with("ALREADYHELD") => {
                    let token = text
                        .split(' ')
                        .filter_map(|word| word.trim_end_matches('.').parse().ok());
                    let Some(token) = { token }.next_back() else {
                        continue;
                    };
                    token
                }
                Said::Error(text) if text.starts_with("NOSESSION") => {
                    if let Some((id, until)) = session.take()
                        && monotonic() < until
                    {
                        self.lose(format!("session {id}: {text}"));
                    }
                    continue;
                }
                _ => {
                    sleep(Duration::from_millis(20));
                    continue;
                }
            };
            let (owns, until) = match &session {
                Some((id, until)) => (Owns::Session(id.clone()), *until),
                None if kind == "lease" => (Owns::Lease(SHORT_MS), sent + relied_on(SHORT_MS)),
                None => (Owns::Connection(self.wire.nth), sent + ORPHAN_NS),
            };
            let until = self.own(&name, token, owns, until);
            if let (Some((_, ends)), Some(until)) = (&mut session, until) {
                *ends = (*ends).max(until);
            }
        }
    }

    /// Relies on a hold for a while, renews it, and gives it back; until when that was extended.
    fn own(&mut self, name: &str, token: u64, mut owns: Owns, mut until: u64) -> Option<u64> {
        if monotonic() >= until {
            return None;
        }
        self.tell(&format!("in {name} {token} {} {until}", monotonic()));
        let is_long = self.rng.below(8) == 0;
        let ms = self.rng.below(if is_long { 9_000 } else { 400 });
        let end = monotonic() + ms * 1_000_000;
        while !self.over() && monotonic() < end.min(until) {
            let left = end.min(until).saturating_sub(monotonic());
            sleep(Duration::from_nanos(left.min(400_000_000)));
            until = self.renew(name, token, &mut owns, until)?;
        }
        if matches!(owns, Owns::Lease(_)) && self.rng.below(10) == 0 {
            // It runs out.
            return Some(until);
        }
        self.tell(&format!("out {name} {token} {}", monotonic()));
        while monotonic() < until && !self.over() {
            match self.wire.ask(&format!("UNLOCK {name} {token}")) {
                // It may have been done by a request that was not answered.
                Some(_) => break,
                None => sleep(Duration::from_millis(50)),
            }
        }
        Some(until)
    }

    /// Renews a hold, whose owner may rely on it until the time that it returns; `None`: it is lost.
    fn renew(&mut self, name: &str, token: u64, owns: &mut Owns, until: u64) -> Option<u64> {
        if let Owns::Connection(nth) = owns
            && (*nth != self.wire.nth || self.wire.stream.is_none())
        {
            // Another connection takes it up again, as a lease that is no shorter.
            *owns = Owns::Lease(2 * SHORT_MS);
        }
        let (words, lasts) = match owns {
            Owns::Lease(ttl_ms) => (
                format!("RENEW {name} {token} TTL {ttl_ms}"),
                relied_on(*ttl_ms),
            ),
            Owns::Session(id) => (format!("SESSION RENEW {id}"), relied_on(LONG_MS)),
            Owns::Connection(_) => ("PING".to_owned(), ORPHAN_NS),
        };
        let Some((said, sent)) = self.wire.ask(&words) else {
            return Some(until);
        };
        match said {
            Said::Number(1) | Said::Text(_) => {
                let until = until.max(sent + lasts);
                // Whoever hears of it too late does not rely on it.
                self.tell(&format!("in {name} {token} {} {until}", monotonic()));
                Some(until)
            }
            // Its connection lives, and did not answer in time.
            Said::Error(text) if text.starts_with("NOLEASE") => Some(until),
            Said::Error(text)
                if ["NOTOWNER", "NOTHELD", "NOSESSION"]
                    .iter()
                    .any(|e| text.starts_with(e)) =>
            {
                let now = monotonic();
                if now < until {
                    let left_ms = (until - now) / 1_000_000;
                    self.lose(format!(
                        "{name} {token}, {left_ms} ms before its end: {words}: {text}"
                    ));
                }
                None
            }
            _ => Some(until),
        }
    }

    /// Takes a lease or a session of 20 s and keeps it.
    fn keep(&mut self, nth: u64, ready: &dyn Fn()) {
        let name = format!("kept{nth}");
        let is_session = nth % 2 == 1;
        let mut counts = [0; 3];
        let mut first = true;
        while !self.over() {
            let session = match is_session {
                true => self.open(LONG_MS),
                false => None,
            };
            let how = match &session {
                Some((id, _)) => format!("SESSION {id}"),
                None => format!("TTL {LONG_MS}"),
            };
            let Some((Said::Number(token), sent)) =
                self.wire.ask(&format!("LOCK {name} {how} WAIT 1000"))
            else {
                sleep(Duration::from_millis(50));
                continue;
            };
            if std::mem::take(&mut first) {
                ready();
            }
            let mut until = session
                .as_ref()
                .map_or(sent + relied_on(LONG_MS), |(_, until)| *until);
            let mut owns = session.map_or(Owns::Lease(LONG_MS), |(id, _)| Owns::Session(id));
            self.tell(&format!("in {name} {token} {} {until}", monotonic()));
            let mut asked = monotonic();
            let which = loop {
                if self.over() {
                    break 0;
                }
                sleep(Duration::from_millis(50));
                if monotonic() < asked + 3_000_000_000 && self.wire.stream.is_some() {
                    continue;
                }
                asked = monotonic();
                match self.renew(&name, token, &mut owns, until) {
                    Some(later) => until = later,
                    None if monotonic() < until => break 2,
                    None => break 1,
                }
            };
            counts[which] += 1;
        }
        let mut seen = lock(&self.wire.shared.seen);
        let all = if is_session {
            &mut seen.sessions
        } else {
            &mut seen.leases
        };
        for (all, own) in all.iter_mut().zip(counts) {
            *all += own;
        }
    }

    /// Takes and releases names that nobody else asks for: whoever serves later knows that what
    /// was released is free.
    fn release(&mut self) {
        for nth in 0.. {
            if self.over() {
                return;
            }
            // A request without an answer may have been executed: the name is not used again.
            let name = format!("own{nth}");
            let take = format!("TRYLOCK {name} TTL {LONG_MS}");
            let Some((Said::Number(token), _)) = self.wire.ask(&take) else {
                continue;
            };
            let unlock = format!("UNLOCK {name} {token}");
            let Some((Said::Number(1), _)) = self.wire.ask(&unlock) else {
                continue;
            };
            sleep(Duration::from_millis(self.rng.below(1_000)));
            while !self.over() {
                match self.wire.ask(&format!("HOLDER {name}")) {
                    // An array of none.
                    Some((Said::Text(count), _)) if count == "0" => break,
                    Some((said, _)) => {
                        self.lose(format!("the end of {name} {token}: {said:?}"));
                        // The rest of the answer is not read.
                        self.wire.stream = None;
                        break;
                    }
                    None => sleep(Duration::from_millis(20)),
                }
            }
        }
    }

    /// Asks for free names, one after the other.
    fn probe(&mut self, nth: usize) {
        let knows_all = self.wire.addresses.len() > 1;
        for free in 0u64.. {
            if self.over() {
                return;
            }
            let said = self.wire.ask(&format!("TRYLOCK free{nth}-{free} TTL 1000"));
            self.wire.silent.clear();
            if let Some((Said::Number(_), _)) = said {
                lock(&self.wire.shared.free).push((monotonic(), knows_all));
            }
            sleep(Duration::from_millis(50));
        }
    }
}

/// How long an owner relies on a lease or session of this TTL, from the sending of its request.
fn relied_on(ttl_ms: u64) -> u64 {
    ttl_ms * 990_000
}

/// The longest time between two of these that is not over at `from`, and begins before `until`.
fn gap_ms(times: impl Iterator<Item = u64>, from: u64, until: u64) -> f64 {
    let (mut last, mut longest) = (from, 0);
    for time in times {
        // What begins with the next fault is not counted twice.
        if time > from && last + BESIDE_NS < until {
            longest = longest.max(time - last);
        }
        last = time;
    }
    longest as f64 / 1e6
}

/// Takes so many leases that last; the connection that has them.
fn fill(shared: &Shared, holds: u64) -> anyhow::Result<Option<Wire<'_>>> {
    let mut wire = Wire::new(shared, &shared.addresses);
    for first in (0..holds).step_by(500) {
        while wire.stream.is_none() {
            wire.connect();
        }
        let stream = wire.stream.as_mut().context("no connection")?;
        let each = first..holds.min(first + 500);
        let text = each
            .clone()
            .map(|nth| encoded(&format!("TRYLOCK many{nth} TTL 3600000")));
        stream
            .get_ref()
            .write_all(text.collect::<String>().as_bytes())?;
        for _ in each {
            let said = answer(stream)?;
            anyhow::ensure!(
                matches!(said, Said::Number(_)),
                "a lock is refused: {said:?}"
            );
        }
    }
    Ok((holds > 0).then_some(wire))
}

/// Clients work until the input ends, in which each line is a fault; prints `ready` when all that
/// is to be kept is held, and in the end what they have seen.
pub(super) fn run(
    addresses: &[SocketAddr],
    witness: u16,
    seed: u64,
    holds: u64,
) -> anyhow::Result<()> {
    let mut end = 0;
    let shared = Shared {
        addresses: addresses.to_owned(),
        witness,
        over: AtomicBool::new(false),
        seen: Mutex::default(),
        faults: Mutex::default(),
        free: Mutex::default(),
    };
    let (shared, waits) = (&shared, Mutex::new(KEEPERS));
    let _holder = fill(shared, holds)?;
    let ready = || {
        let mut waits = lock(&waits);
        *waits -= 1;
        if *waits == 0 {
            println!("ready");
        }
    };
    type Work<'a> = Box<dyn FnOnce(&mut Owner<'_>) + Send + 'a>;
    let ready = &ready;
    // Each with the member that it knows, if it does not know all of them.
    let mut works: Vec<(Option<usize>, Work<'_>)> = Vec::new();
    for nth in 0..KEEPERS {
        works.push((None, Box::new(move |owner| owner.keep(nth, ready))));
    }
    for kind in [
        "lease", "lease", "lease", "session", "session", "own", "own",
    ] {
        works.push((None, Box::new(move |owner| owner.contend(kind))));
    }
    works.push((None, Box::new(|owner| owner.release())));
    let members = shared.addresses.len();
    for nth in 0..=members {
        let only = (nth < members).then_some(nth);
        works.push((only, Box::new(move |owner| owner.probe(nth))));
    }
    std::thread::scope(|threads| -> anyhow::Result<()> {
        for (nth, (only, work)) in works.into_iter().enumerate() {
            let witness = UdpSocket::bind(("127.0.0.1", 0)).context("no socket")?;
            witness.set_read_timeout(Some(Duration::from_secs(1)))?;
            threads.spawn(move || {
                let all = &shared.addresses[..];
                let addresses = only.map_or(all, |at| &all[at..=at]);
                let mut wire = Wire::new(shared, addresses);
                wire.at = nth;
                work(&mut Owner {
                    wire,
                    witness,
                    rng: Rng::stream(seed, nth as u64),
                });
            });
        }
        for line in std::io::stdin().lines() {
            line?;
            lock(&shared.faults).push(monotonic());
        }
        end = monotonic();
        shared.over.store(true, Relaxed);
        Ok(())
    })?;
    let mut seen = std::mem::take(&mut *lock(&shared.seen));
    let (faults, mut free) = (lock(&shared.faults), lock(&shared.free));
    free.sort_unstable();
    for (at, fault) in faults.iter().enumerate() {
        let until = faults.get(at + 1).copied().unwrap_or(end);
        seen.gap_ms.push([false, true].map(|by_one| {
            let own = free.iter().filter(|(_, knows_all)| *knows_all || !by_one);
            gap_ms(own.map(|(at, _)| *at).chain([end]), *fault, until)
        }));
    }
    let socket = UdpSocket::bind(("127.0.0.1", 0))?;
    socket.send_to(b"end", ("127.0.0.1", witness))?;
    println!("{}", serde_json::to_string(&seen)?);
    Ok(())
}
