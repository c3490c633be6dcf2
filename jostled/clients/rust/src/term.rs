//! How long a lock is surely held, by this machine's monotonic clock.

use std::time::{Duration, Instant};

/// How often a lease is renewed at least: redis-rs notices the end of a connection only when
/// it is used, and a daemon that was restarted does not know the lease.
const LOOK: Duration = Duration::from_secs(1);

/// A member of a group that takes over keeps what connections held for 10 s, in which they
/// are to find out. So without an answer such a lock counts as held for 0.85 of that.
const OF_CONNECTION: Duration = Duration::from_millis(8500);

/// The end of a lease is counted from before the request was sent, so it comes
/// here before it comes at the daemon. Once over, it stays over: an answer that
/// comes too late changes nothing. A lock without a lease ends with its connection, of
/// which an answer to a PING tells as a renewal does.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    /// How often to renew or to ask for a sign.
    pub(crate) every: Duration,
    /// How long to wait for it.
    pub(crate) answer: Duration,
    /// When to do so for the first time.
    pub(crate) soon: Duration,
    /// When to do so after an attempt that was not answered.
    pub(crate) again: Duration,
    ttl: Duration,
    first: Duration,
    end: Instant,
    over: bool,
}

impl Term {
    /// The first renewal makes a lease longer that was taken for `first`.
    pub(crate) fn new(
        ttl: Option<Duration>,
        first: Option<Duration>,
        timeout: Duration,
        sent: Instant,
    ) -> Term {
        let (every, answer) = match ttl {
            None => (timeout.min(OF_CONNECTION) / 3, timeout),
            // An attempt that is not answered leaves time for two more.
            Some(ttl) => ((ttl / 3).min(LOOK), timeout.min(ttl / 6)),
        };
        // As the daemon has it.
        let ttl = Duration::from_millis(ttl.unwrap_or(OF_CONNECTION).as_millis() as u64);
        let first = first.unwrap_or(ttl).min(ttl);
        Term {
            every,
            answer,
            soon: every.min(first / 3),
            again: (every / 4).min(answer),
            ttl,
            first,
            end: sent + first,
            over: false,
        }
    }

    /// A request sent at `sent` was granted.
    pub(crate) fn extend(&mut self, sent: Instant) {
        if !self.is_over() {
            self.end = sent + self.ttl;
        }
    }

    /// Until the end, if nothing is answered; zero when it is over.
    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Whether the grant was waited for, so that little may be left of it.
    pub(crate) fn is_late(&self) -> bool {
        self.left() < self.first * 2 / 3
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.over = self.over || self.left().is_zero();
        self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_counted_from_before_it_was_sent_and_stays_over() {
        let second = Duration::from_secs(1);
        let now = Instant::now();
        let mut late = Term::new(Some(Duration::from_millis(20)), None, second, now);
        std::thread::sleep(Duration::from_millis(30));
        late.extend(Instant::now());
        assert!(late.is_over());
        assert!(!Term::new(Some(60 * second), None, second, now).is_over());
        assert!(!Term::new(None, None, second, now).is_over());
    }
}
