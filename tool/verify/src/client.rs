//! A client: a process that asks for locks at random, holds, renews and releases. Each call is
//! recorded before it is made and again when it has ended.
//!
//! One whose call failed in an unknown way gives up its session and comes again with a new one.

use crate::rings::{Rings, entry};
use crate::schedule::between;
use jostle_stats::rng::Rng;
use jostle_stats::verify::history::{ALL_KEYS, Kind};
use jostle_sys::files::Errno;
use jostle_sys::signal::{self, WaitLimit};
use jostle_sys::{clock, process};
use jostle_targets::{CallError, Keeping, Lock, Locks, Mode, Outcome, SetupError, Wait};
use rustix::process::Pid;

/// The time between two looks for the start, and of attempts to reach a service, the first and
/// the longest.
const LOOK_NS: u64 = 1_000_000;
const AGAIN_NS: (u64, u64) = (2_000_000, 50_000_000);
/// Where no signal ends a wait, nobody waits longer.
const LAST_RESORT_NS: u64 = 3_600_000_000_000;

/// Shares of requests that try, that wait for a time, and of the others that are given up.
const TRIES: f64 = 0.2;
const TIMED: f64 = 0.2;
const GIVEN_UP: f64 = 0.2;
/// How long those two wait, in nanoseconds.
const PATIENCE: (f64, f64) = (5e5, 1e8);
/// Holds, and pauses, most and some.
const HOLD: (f64, f64) = (1e5, 2e7);
const PAUSE: (f64, f64) = (5e4, 5e6);
const LONG_PAUSE: (f64, f64) = (1e7, 1e8);
const LONG_PAUSES: f64 = 0.05;
/// Long holds of locks without a lease, in nanoseconds; in leases, those that are renewed, and
/// those that are released too late.
const LONG_HOLD: (f64, f64) = (5e7, 3e8);
const RENEWED_HOLD: (f64, f64) = (1.1, 1.8);
const LATE_HOLD: (f64, f64) = (1.05, 1.6);
/// All clients together begin one long hold in the time of a lease, so that few faults strike while
/// nobody has one; of a lock without leases, in this time.
const NO_LEASE_NS: u64 = 1_500_000_000;

/// All that a client is given.
pub(crate) struct Client<'a> {
    pub target: &'a dyn Locks,
    pub rings: &'a Rings,
    pub place: usize,
    pub places: usize,
    pub number: u32,
    pub keys: usize,
    pub seed: u64,
    /// Between two calls, at least.
    pub every_ns: u64,
    pub lease_ns: Option<u64>,
    /// Whether requests can wait for a time.
    pub is_timed: bool,
    /// Whether each session has a number of its own, or that of the place.
    pub counts_sessions: bool,
    /// It ends with the keeper.
    pub keeper: Pid,
}

impl Client<'_> {
    /// Its whole life. Returns the exit code.
    pub(crate) fn live(&self) -> i32 {
        process::set_name("jostle-client");
        if process::die_with(self.keeper).is_err() {
            return 1;
        }
        let _ = process::leave_group();
        let settled = signal::end_waits_on_signal().map_err(|error| SetupError(error.to_string()));
        let joined = settled.and_then(|()| self.join());
        let is_first = self.rings.start_ns().is_none();
        let lock = match joined {
            Ok(lock) => Some(lock),
            // The service may be down, but not before anything has struck.
            Err(SetupError(_)) if !is_first => self.come_again(),
            Err(SetupError(said)) => {
                self.note(Kind::AskFailed, 0, 0, &said);
                return 1;
            }
        };
        while self.rings.start_ns().is_none() && !self.rings.has_ended() {
            clock::sleep(LOOK_NS, signal::interrupted);
        }
        let Some(lock) = lock else { return 0 };
        let mut life = Life {
            client: self,
            rng: Rng::stream(self.seed, self.number.into()),
            lock,
            next_call_ns: 0,
            next_long_ns: 0,
            tries: true,
            is_timed: self.is_timed,
        };
        life.plan_long_hold();
        while !self.rings.has_ended() && life.turn().is_some() {}
        // What a server sends too much now is nobody's.
        let _ = life.lock.part();
        0
    }

    fn join(&self) -> Result<Box<dyn Lock>, SetupError> {
        let number = match self.counts_sessions {
            true => self.rings.next_session() as usize,
            false => self.place,
        };
        let lock = self.target.join(number)?;
        if let Some(promise) = lock.promise() {
            self.rings.set_promise(&promise);
        }
        self.rings.set_ready(self.place, lock.owner_group());
        Ok(lock)
    }

    /// With a new session, as soon as there can be one. None: the run has ended before.
    fn come_again(&self) -> Option<Box<dyn Lock>> {
        let mut nap_ns = AGAIN_NS.0;
        while !self.rings.has_ended() {
            clock::sleep(nap_ns, signal::interrupted);
            if let Ok(lock) = self.join() {
                return Some(lock);
            }
            nap_ns = (2 * nap_ns).min(AGAIN_NS.1);
        }
        None
    }

    fn note(&self, kind: Kind, key: u16, extra: u64, said: &str) {
        self.note_at(clock::monotonic(), kind, key, extra, said);
    }

    fn note_at(&self, at_ns: u64, kind: Kind, key: u16, extra: u64, said: &str) {
        let at_ns = at_ns.saturating_sub(self.rings.start_ns().unwrap_or(at_ns));
        let entry = entry(self.number, at_ns, kind, key, extra);
        self.rings.put(self.place, &entry, said);
    }
}

/// A client that has a session.
struct Life<'a> {
    client: &'a Client<'a>,
    rng: Rng,
    lock: Box<dyn Lock>,
    next_call_ns: u64,
    next_long_ns: u64,
    /// Whether it can try, and wait for a time; some locks cannot.
    tries: bool,
    is_timed: bool,
}

/// How a hold is kept, and until when.
struct Hold {
    until_ns: u64,
    renews: bool,
}

impl Life<'_> {
    /// A pause, a request, and a hold if it is granted. None: the run has ended.
    fn turn(&mut self) -> Option<()> {
        let (least, most) = match self.rng.unit_f64() < LONG_PAUSES {
            true => LONG_PAUSE,
            false => PAUSE,
        };
        let pause_ns = between(&mut self.rng, least, most);
        self.sleep(pause_ns);
        // Low numbers are asked for more often.
        let key = [(); 2].map(|()| self.rng.below(self.client.keys as u64));
        let key = key[0].min(key[1]) as usize;
        match self.ask(key)? {
            Some(asked_ns) => self.hold(key, asked_ns),
            None => Some(()),
        }
    }

    /// Asks for a lock. Returns when its lease was asked for, if it was granted.
    fn ask(&mut self, key: usize) -> Option<Option<u64>> {
        let patience_ns = between(&mut self.rng, PATIENCE.0, PATIENCE.1);
        let draw = self.rng.unit_f64();
        let gives_up = self.rng.unit_f64() < GIVEN_UP;
        let tries = self.tries && draw < TRIES;
        let is_timed = self.is_timed && !tries && draw < TRIES + TIMED;
        let patience = match (tries, is_timed) {
            (true, _) => 0,
            (_, true) => patience_ns,
            _ => u64::MAX,
        };
        self.pace();
        let mut asked_ns = clock::monotonic();
        let until_ns = asked_ns + patience_ns;
        self.client
            .note_at(asked_ns, Kind::Ask, key as u16, patience, "");
        let wait = match (tries, is_timed) {
            (true, _) => Wait::Try,
            (_, true) => Wait::Until(until_ns),
            _ => Wait::Block {
                last_resort_ns: asked_ns + LAST_RESORT_NS,
            },
        };
        let outcome = match self.lock.polls_every_ns().filter(|_| !tries) {
            // As the lock itself would, so that each lease has its own time.
            Some(poll_ns) => loop {
                let outcome = self.lock.acquire(key, Mode::Exclusive, Wait::Try);
                let is_over = (is_timed || gives_up) && clock::monotonic() >= until_ns;
                if outcome != Ok(Outcome::Refused) || is_over || self.client.rings.has_ended() {
                    break outcome;
                }
                self.sleep(poll_ns);
                asked_ns = clock::monotonic();
            },
            None => {
                // A program gives up at the end of a time.
                let is_own = self.lock.promise().is_some();
                let limit = (gives_up && !tries && !is_timed && !is_own).then_some(patience_ns);
                let _limit = limit.and_then(|limit| WaitLimit::after(limit).ok());
                self.lock.acquire(key, Mode::Exclusive, wait)
            }
        };
        match outcome {
            Ok(Outcome::Granted | Outcome::GrantedFromDead) => {
                let token = self.lock.token().map_or(0, |token| token.wrapping_add(1));
                self.client.note(Kind::Granted, key as u16, token, "");
                let polled = self.lock.polls_every_ns().map(|_| asked_ns);
                let leased_ns = self.lock.leased_at_ns().or(polled);
                if let Some(leased_ns) = leased_ns {
                    self.client
                        .note_at(leased_ns, Kind::Leased, key as u16, 0, "");
                }
                return Some(Some(leased_ns.unwrap_or(asked_ns)));
            }
            Ok(Outcome::Interrupted) if !self.lock.gives_up() => {
                self.client.note(Kind::AskFailed, key as u16, 0, "given up");
                // Each time it costs a session.
                self.is_timed &= !is_timed;
                self.leave()?;
            }
            Ok(_) => self.client.note(Kind::Refused, key as u16, 0, ""),
            Err(error) if error.errno == Errno::OPNOTSUPP.raw_os_error() => {
                self.client.note(Kind::Refused, key as u16, 0, "");
                self.tries &= !tries;
                self.is_timed &= !is_timed;
            }
            Err(error) => {
                self.client
                    .note(Kind::AskFailed, key as u16, 0, &error.to_string());
                self.leave()?;
            }
        }
        Some(None)
    }

    /// Holds a lock whose lease was asked for at this time, and releases it.
    fn hold(&mut self, key: usize, mut leased_ns: u64) -> Option<()> {
        let keeping = self.lock.keeping();
        let Hold { until_ns, renews } = self.plan_hold(keeping);
        let keeping = keeping.filter(|_| renews);
        while !self.client.rings.has_ended() {
            let now_ns = clock::monotonic();
            let due_ns = keeping.map_or(u64::MAX, |keeping| leased_ns + keeping.every_ns);
            if now_ns >= until_ns {
                break;
            }
            match keeping.filter(|_| now_ns >= due_ns) {
                None => self.sleep(until_ns.min(due_ns) - now_ns),
                Some(keeping) => match self.renew(key, keeping, leased_ns) {
                    Renewal::At(asked_ns) => leased_ns = asked_ns,
                    // As code does that releases whatever has happened.
                    Renewal::Lost if !keeping.is_session => break,
                    Renewal::Lost | Renewal::Failed => return self.leave(),
                },
            }
        }
        self.release(key)
    }

    /// Most holds are short, and every client is late, or renews, once in a while.
    fn plan_hold(&mut self, keeping: Option<Keeping>) -> Hold {
        let now_ns = clock::monotonic();
        let lease_ns = keeping.map(|keeping| keeping.lease_ns).or(self.lease_ns());
        let rng = &mut self.rng;
        if now_ns < self.next_long_ns {
            let until_ns = now_ns + between(rng, HOLD.0, HOLD.1);
            return Hold {
                until_ns,
                renews: true,
            };
        }
        let renews = keeping.is_some() && rng.unit_f64() < 0.5;
        let ((least, most), unit) = match (lease_ns, renews) {
            (Some(lease), true) => (RENEWED_HOLD, lease as f64),
            (Some(lease), false) => (LATE_HOLD, lease as f64),
            (None, _) => (LONG_HOLD, 1.0),
        };
        let until_ns = now_ns + between(rng, least * unit, most * unit);
        self.plan_long_hold();
        Hold { until_ns, renews }
    }

    fn lease_ns(&self) -> Option<u64> {
        let own = self.lock.promise().and_then(|promise| promise.lease_ns);
        self.client.lease_ns.or(own)
    }

    fn plan_long_hold(&mut self) {
        let unit = self.lease_ns().unwrap_or(NO_LEASE_NS);
        let mean = unit * self.client.places as u64;
        self.next_long_ns = clock::monotonic() + mean / 2 + self.rng.below(mean + 1);
    }

    fn renew(&mut self, key: usize, keeping: Keeping, leased_ns: u64) -> Renewal {
        let whose = if keeping.is_session {
            ALL_KEYS
        } else {
            key as u16
        };
        let mut lapsed = Vec::new();
        self.pace();
        let asked_ns = clock::monotonic();
        self.client.note_at(asked_ns, Kind::Renew, whose, 0, "");
        match self.lock.renew(&[key], &mut lapsed) {
            Ok(true) if lapsed.is_empty() => {
                self.client.note(Kind::Renewed, whose, 0, "");
                Renewal::At(asked_ns)
            }
            Ok(_) => {
                self.client.note(Kind::RenewLost, whose, 0, "");
                Renewal::Lost
            }
            Err(error) => {
                self.client
                    .note(Kind::RenewFailed, whose, 0, &error.to_string());
                self.reach_again(keeping, leased_ns)
            }
        }
    }

    /// Looks for a server that takes up the session, for as long as its lease lives.
    fn reach_again(&mut self, keeping: Keeping, leased_ns: u64) -> Renewal {
        let over_ns = leased_ns + keeping.lease_ns;
        while !self.client.rings.has_ended() && clock::monotonic() < over_ns {
            match self.lock.resume() {
                // The next renewal is due at once.
                Ok(true) => return Renewal::At(leased_ns),
                Ok(false) => return Renewal::Failed,
                Err(_) => self.sleep(AGAIN_NS.0),
            }
        }
        Renewal::Failed
    }

    fn release(&mut self, key: usize) -> Option<()> {
        self.pace();
        self.client.note(Kind::Release, key as u16, 0, "");
        let released: Result<(), CallError> = self.lock.release(key, Mode::Exclusive);
        match released {
            Ok(()) => self.client.note(Kind::Released, key as u16, 0, ""),
            Err(error) if error.is_lost() => {
                self.client.note(Kind::ReleaseRefused, key as u16, 0, "");
            }
            Err(error) => {
                self.client
                    .note(Kind::ReleaseFailed, key as u16, 0, &error.to_string());
                return self.leave();
            }
        }
        Some(())
    }

    /// Gives the session up, and takes a new one. None: the run has ended before.
    fn leave(&mut self) -> Option<()> {
        self.client.note(Kind::Left, 0, 0, "");
        self.lock = Box::new(Nothing);
        self.lock = self.client.come_again()?;
        Some(())
    }

    /// Waits until the next call may be made.
    fn pace(&mut self) {
        let now_ns = clock::monotonic();
        if now_ns < self.next_call_ns {
            self.sleep(self.next_call_ns - now_ns);
        }
        self.next_call_ns = now_ns.max(self.next_call_ns) + self.client.every_ns;
    }

    fn sleep(&self, nanos: u64) {
        clock::sleep(nanos, || self.client.rings.has_ended());
    }
}

/// How a renewal ended.
enum Renewal {
    /// The lease counts from this time.
    At(u64),
    /// The lock, or the session, is not the client's any more.
    Lost,
    /// Nobody knows, and the session cannot be taken up again.
    Failed,
}

/// In the place of a session that was given up: its connection is closed before the next is made.
struct Nothing;

impl Lock for Nothing {
    fn acquire(&mut self, _: usize, _: Mode, _: Wait) -> Result<Outcome, CallError> {
        Err(CallError::unsupported("acquire"))
    }

    fn release(&mut self, _: usize, _: Mode) -> Result<(), CallError> {
        Err(CallError::unsupported("release"))
    }
}
