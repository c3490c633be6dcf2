//! How long this process has waited for another, as far as it could listen.

use std::time::{Duration, Instant};

/// At most this much counts between two looks. Looks come every few milliseconds: after a
/// longer gap this process itself did not run (the machine stood still, or was suspended), and
/// it could not have heard the other.
const LOOK: Duration = Duration::from_millis(100);

/// The time since a moment, without what passed while this process did not run.
#[derive(Debug)]
pub(super) struct Waited {
    looked: Instant,
    sum: Duration,
}

impl Waited {
    pub(super) fn begin() -> Waited {
        Waited {
            looked: Instant::now(),
            sum: Duration::ZERO,
        }
    }

    /// To be asked at every look.
    pub(super) fn so_far(&mut self) -> Duration {
        self.so_far_at(Instant::now())
    }

    fn so_far_at(&mut self, now: Instant) -> Duration {
        self.sum += (now - self.looked).min(LOOK);
        self.looked = now;
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of a job on one machine that stood still for 11 s: rank 0 once said of another
    /// that nothing had been heard of it for 11 s.
    #[test]
    fn a_machine_that_stood_still_has_not_waited() {
        let mut waited = Waited::begin();
        let begun = waited.looked;
        let at = |ms| begun + Duration::from_millis(ms);
        let looks = [10, 30, 11_030, 11_040].map(|ms| waited.so_far_at(at(ms)).as_millis());
        assert_eq!(looks, [10, 30, 130, 140]);
    }
}
