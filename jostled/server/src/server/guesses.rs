//! Guesses of passwords. Each address may have [`IN_A_SECOND`] wrong ones checked in a
//! second, over all of its connections and users; right ones cost nothing. AUTH beyond that
//! waits until its turn comes. (Each connection also delays its own replies to wrong ones:
//! `Conn::delay_refusal`.)
//!
//! - Checks are bounded, not replies: a right password is answered at once, so a guesser
//!   learns from silence what it would learn from the reply. Until its turn a password is
//!   neither hashed nor compared, the right one too.
//! - A client that only wants to log in gets a turn soon, whatever the others of its address
//!   do. Connections that have not guessed wrong yet go first. Of these, the latest and the
//!   earliest take turns: hundreds of guessers that wait came before a newcomer, and
//!   guessers that wait for no reply are closed again before their turn.
//! - A client that waits costs its place in a list and what its connection takes. Their
//!   number is bounded by `--max-connections`, their time by `--request-timeout`. A check
//!   takes a microsecond, so that guesses from many addresses stop nobody.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use super::conn::Conn;
use crate::table::{ClientId, Time};

/// Wrong passwords of an address that are checked in one second at most: [`AT_ONCE`], and
/// one each [`INTERVAL_NS`].
#[cfg(test)]
const IN_A_SECOND: u64 = AT_ONCE + 1_000_000_000 / INTERVAL_NS;
const AT_ONCE: u64 = 10;
const INTERVAL_NS: u64 = 25_000_000;
/// Addresses that are remembered before those without wrong passwords of late are forgotten.
const KNOWN: usize = 4096;

/// Where guesses come from: an address, of IPv6 the network; `None`: the Unix socket.
type Source = Option<IpAddr>;

/// The wrong passwords of late, and who waits because of them.
#[derive(Debug, Default)]
pub(super) struct Guesses {
    sources: HashMap<Source, Budget>,
    /// When the next one can be checked; `None`: none waits.
    due: Option<Time>,
}

#[derive(Debug, Default)]
struct Budget {
    /// When nothing of it is used any more.
    full: Time,
    /// Clients that wait, and have not guessed wrong yet, or have.
    fresh: VecDeque<ClientId>,
    again: VecDeque<ClientId>,
    /// Whether the latest goes next.
    latest: bool,
}

impl Budget {
    /// When one more can be checked.
    fn due(&self) -> Time {
        Time(self.full.0.saturating_sub((AT_ONCE - 1) * INTERVAL_NS))
    }

    /// Takes one check.
    fn charge(&mut self, now: Time) {
        self.full = Time(self.full.max(now).0 + INTERVAL_NS);
    }

    fn next(&mut self) -> Option<ClientId> {
        let fresh = match self.latest {
            true => self.fresh.pop_back(),
            false => self.fresh.pop_front(),
        };
        fresh.or_else(|| self.again.pop_front())
    }

    fn waits(&self) -> bool {
        !self.fresh.is_empty() || !self.again.is_empty()
    }
}

impl Guesses {
    /// Whether a password from there is checked now, which takes one check. If not, the
    /// client waits.
    pub(super) fn admit(
        &mut self,
        source: Source,
        client: ClientId,
        fresh: bool,
        now: Time,
    ) -> bool {
        if self.sources.len() >= KNOWN && !self.sources.contains_key(&source) {
            self.sources
                .retain(|_, budget| budget.waits() || budget.full > now);
        }
        let budget = self.sources.entry(source).or_default();
        let due = budget.due();
        // One that comes just in time goes before nobody.
        if due <= now && !budget.waits() {
            budget.charge(now);
            return true;
        }
        match fresh {
            true => budget.fresh.push_back(client),
            false => budget.again.push_back(client),
        }
        self.due = Some(self.due.map_or(due, |other| other.min(due)));
        false
    }

    /// Gives back the check of a right password.
    pub(super) fn right(&mut self, source: Source) {
        if let Some(budget) = self.sources.get_mut(&source) {
            budget.full = Time(budget.full.0.saturating_sub(INTERVAL_NS));
            if budget.waits() {
                self.due = Some(Time(0));
            }
        }
    }

    /// Gives turns to clients as far as the budgets go. `begin` tells whether the client is
    /// still there.
    pub(super) fn turns(&mut self, now: Time, mut begin: impl FnMut(ClientId) -> bool) {
        self.due = None;
        for budget in self.sources.values_mut() {
            while budget.due() <= now
                && let Some(client) = budget.next()
            {
                if begin(client) {
                    budget.charge(now);
                    budget.latest = !budget.latest;
                }
            }
            if budget.waits() {
                let due = budget.due();
                self.due = Some(self.due.map_or(due, |other| other.min(due)));
            }
        }
    }

    /// When clients that wait can get turns.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Those that wait, and some that are gone.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &ClientId> {
        let all = self.sources.values();
        all.flat_map(|budget| budget.fresh.iter().chain(&budget.again))
    }
}

/// Where a connection comes from.
pub(super) fn source(conn: &Conn) -> Source {
    conn.peer.map(|peer| match peer.ip() {
        IpAddr::V6(six) if six.to_ipv4_mapped().is_none() => {
            IpAddr::V6((six.to_bits() >> 64 << 64).into())
        }
        other => other,
    })
}

/// The most failed logins logged in one second. Any client that can connect can cause
/// them, and a slow log must not stop the daemon.
const FAILURES: u64 = 20;

/// How many failed logins were noted lately.
#[derive(Debug, Default)]
pub(super) struct Failures {
    second: u64,
    noted: u64,
    left_out: u64,
}

impl Failures {
    /// `Some` if one more failed login is to be logged, with the number left out before it.
    pub(super) fn note(&mut self, second: u64) -> Option<u64> {
        if second != self.second {
            (self.second, self.noted) = (second, 0);
        }
        if self.noted == FAILURES {
            self.left_out += 1;
            return None;
        }
        self.noted += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Guessers open `in_a_ms` connections each millisecond; one closes after `live_ms`, or
    /// when it has had its turn. After 10 s a client with the right password comes. Returns
    /// the milliseconds until its turn, and the most checks in one second.
    fn attacked(in_a_ms: u64, live_ms: u64, held: u64) -> (u64, u64) {
        let (mut guesses, mut checked) = (Guesses::default(), Vec::new());
        let newcomer = ClientId::from_number(u64::MAX);
        for ms in 0..20_000 {
            let now = Time(ms * MS);
            let first = if ms == 0 { held } else { 0 };
            for n in 0..first + in_a_ms {
                // Those that are held live on.
                let born = if n < first { u64::MAX >> 21 } else { ms };
                let client = ClientId::from_number(born << 20 | n);
                if guesses.admit(None, client, true, now) {
                    checked.push(ms);
                }
            }
            if ms == 10_000 && guesses.admit(None, newcomer, true, now) {
                return (0, 0);
            }
            let mut came = false;
            guesses.turns(now, |client| {
                let alive = client.number() >> 20 >= ms.saturating_sub(live_ms);
                came |= client == newcomer;
                checked.extend((alive && client != newcomer).then_some(ms));
                alive
            });
            if came {
                let seconds = (0..=ms).step_by(10).map(|from| {
                    let within = |at: &&u64| (from..from + 1000).contains(*at);
                    checked.iter().filter(within).count() as u64
                });
                return (ms - 10_000, seconds.max().unwrap());
            }
        }
        panic!("it has no turn");
    }

    /// The right password was refused for 20 s.
    #[test]
    fn few_wrong_passwords_are_checked_and_a_newcomer_has_its_turn_soon() {
        for (in_a_ms, live_ms, held, at_most_ms) in [
            // Some guessers that wait for no reply; many; and hundreds that wait.
            (1, 3, 0, 100),
            (10, 1, 0, 100),
            (1, 20, 0, 100),
            (0, 0, 1000, 50),
        ] {
            let (waited_ms, checked) = attacked(in_a_ms, live_ms, held);
            assert!(
                waited_ms <= at_most_ms,
                "{in_a_ms} {live_ms}: {waited_ms} ms"
            );
            assert!(checked <= IN_A_SECOND, "{checked}");
        }
    }

    #[test]
    fn right_passwords_cost_nothing_and_addresses_are_forgotten() {
        let mut guesses = Guesses::default();
        let client = ClientId::from_number(1);
        for _ in 0..1000 {
            assert!(guesses.admit(None, client, true, Time(0)));
            guesses.right(None);
        }
        for number in 0..10 * KNOWN as u32 {
            let address = Some(IpAddr::V4(number.into()));
            let now = Time(u64::from(number) * MS);
            assert!(guesses.admit(address, client, true, now));
        }
        assert!(guesses.sources.len() <= KNOWN);
    }

    #[test]
    fn failures_beyond_a_number_a_second_are_counted() {
        let mut failures = Failures::default();
        let noted = (0..100).filter(|_| failures.note(7).is_some()).count();
        assert_eq!(noted as u64, FAILURES);
        assert_eq!(failures.note(8), Some(100 - FAILURES));
        assert_eq!(failures.note(8), Some(0));
    }
}
