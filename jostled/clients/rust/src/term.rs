//! How long a lock is surely held, by this machine's monotonic clock.

use std::time::{Duration, Instant};

/// How often a lease is renewed at least: redis-rs notices the end of a connection only when
/// it is used, and a daemon that was restarted does not know the lease.
const LOOK: Duration = Duration::from_secs(1);

/// The end of a lease is counted from before the request was sent, so it comes
/// here before it comes at the daemon. Once over, it stays over: an answer that
/// comes too late changes nothing. A lock without a lease has no end of its own.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    /// How often to renew or to ask for a sign.
    pub(crate) every: Duration,
    /// How long to wait for it.
    pub(crate) answer: Duration,
    lease: Option<(Duration, Instant)>,
    over: bool,
}

impl Term {
    pub(crate) fn new(ttl: Option<Duration>, timeout: Duration, sent: Instant) -> Term {
        let Some(ttl) = ttl else {
            return Term {
                every: timeout / 3,
                answer: timeout,
                lease: None,
                over: false,
            };
        };
        // As the daemon has it.
        let ttl = Duration::from_millis(ttl.as_millis() as u64);
        Term {
            every: (ttl / 3).min(LOOK),
            // An attempt that is not answered leaves time for two more.
            answer: timeout.min(ttl / 6),
            lease: Some((ttl, sent + ttl)),
            over: false,
        }
    }

    /// A request sent at `sent` was granted.
    pub(crate) fn extend(&mut self, sent: Instant) {
        if !self.is_over()
            && let Some((ttl, end)) = &mut self.lease
        {
            *end = sent + *ttl;
        }
    }

    /// Until the end of the lease, zero when it is over; none without a lease.
    pub(crate) fn left(&self) -> Option<Duration> {
        let (_, end) = self.lease?;
        Some(end.saturating_duration_since(Instant::now()))
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.over = self.over || self.left().is_some_and(|left| left.is_zero());
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
        let mut late = Term::new(Some(Duration::from_millis(20)), second, now);
        std::thread::sleep(Duration::from_millis(30));
        late.extend(Instant::now());
        assert!(late.is_over());
        assert!(!Term::new(Some(60 * second), second, now).is_over());
        assert!(!Term::new(None, second, now).is_over());
    }
}
