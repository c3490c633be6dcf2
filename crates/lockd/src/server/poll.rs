//! When to ask again and again instead of sleeping.
//!
//! To sleep and be woken costs several microseconds; while a lock goes from hand
//! to hand, every waiter behind waits for them too. Asking again at once avoids
//! them, but burns the time in between. So the server does it only as long as
//! that pays, which is judged by what has just happened:
//!
//! - Only while somebody waits for a lock, unless it is to be done always.
//! - Only after several pauses in a row that were short enough; one that was not
//!   halves the confidence. So a lock that is held for long costs nothing.
//! - Between two questions the core is offered to others, as a client on the
//!   same core could else not send what is waited for. If the core was not given
//!   back soon, others need it (or a quota of CPU time is used up): then not at
//!   all for a while, and for twice as long if the same happens soon again.

use std::time::Duration;

use crate::table::Time;

/// Short pauses in a row after which asking again pays, and how many are kept in
/// mind.
const CONFIDENT: u32 = 4;
const CONFIDENCE_MAX: u32 = 16;
/// The core was away for so long: less than a slice of any scheduler, more than
/// a client takes for a reply.
const AWAY_NS: u64 = 1_000_000;
const BAR_MIN_NS: u64 = 100_000_000;
const BAR_MAX_NS: u64 = 60_000_000_000;

/// The judgement. It reads no clock: times come from the caller.
#[derive(Debug)]
pub(super) struct BusyPoll {
    /// How long to ask at most; 0: never.
    limit_ns: u64,
    always: bool,
    confidence: u32,
    barred_until: Time,
    bar_ns: u64,
}

impl BusyPoll {
    pub(super) fn new(limit: Duration, always: bool) -> Self {
        Self {
            limit_ns: limit.as_nanos() as u64,
            always,
            confidence: 0,
            barred_until: Time(0),
            bar_ns: BAR_MIN_NS,
        }
    }

    /// Whether pauses are to be told of at all.
    #[inline]
    pub(super) fn is_on(&self, waiters: bool) -> bool {
        self.limit_ns != 0 && (waiters || self.always)
    }

    /// Until when to ask again, from `now` on; `None`: sleep.
    #[inline]
    pub(super) fn until(&self, now: Time) -> Option<Time> {
        (self.confidence >= CONFIDENT && now >= self.barred_until)
            .then_some(Time(now.0 + self.limit_ns))
    }

    /// Nothing was to be done for so long, whether it was slept or not.
    #[inline]
    pub(super) fn paused(&mut self, ns: u64) {
        if ns <= self.limit_ns {
            self.confidence = (self.confidence + 1).min(CONFIDENCE_MAX);
        } else {
            self.confidence /= 2;
        }
    }

    /// The time between two questions; false: it was too long.
    #[inline]
    pub(super) fn asked(&mut self, before: Time, now: Time) -> bool {
        if now.0 - before.0 < AWAY_NS {
            return true;
        }
        let soon = now.0 - self.barred_until.0.min(now.0) < 2 * self.bar_ns;
        self.bar_ns = if soon {
            (2 * self.bar_ns).min(BAR_MAX_NS)
        } else {
            BAR_MIN_NS
        };
        self.barred_until = Time(now.0 + self.bar_ns);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT_US: u64 = 50;

    fn poll() -> BusyPoll {
        BusyPoll::new(Duration::from_micros(LIMIT_US), false)
    }

    /// How many of these pauses, in microseconds, would not be slept.
    fn polled(poll: &mut BusyPoll, pauses_us: impl IntoIterator<Item = u64>) -> usize {
        let mut count = 0;
        for us in pauses_us {
            count += usize::from(poll.until(Time(u64::MAX / 2)).is_some());
            poll.paused(us * 1000);
        }
        count
    }

    #[test]
    fn short_pauses_are_polled_and_long_ones_are_slept() {
        assert_eq!(polled(&mut poll(), [5; 1000]), 996);
        assert_eq!(polled(&mut poll(), [51; 1000]), 0);
        // A lock that is held for long after quick hand-offs: 3 vain attempts.
        let mut after = poll();
        polled(&mut after, [5; 1000]);
        assert_eq!(polled(&mut after, [1000; 1000]), 3);
        // It comes back as soon as pauses are short again.
        assert_eq!(polled(&mut after, [5; 1000]), 996);
        // One long pause in ten is borne; every other one is not.
        let tenth = (0..1000).map(|n| if n % 10 == 0 { 1000 } else { 5 });
        assert!(polled(&mut poll(), tenth) > 900);
        let half = (0..1000).map(|n| if n % 2 == 0 { 1000 } else { 5 });
        assert_eq!(polled(&mut poll(), half), 0);
    }

    #[test]
    fn only_with_waiters_unless_always_and_never_without_a_limit() {
        for (limit_us, always, waiters, on) in [
            (50, false, true, true),
            (50, false, false, false),
            (50, true, false, true),
            (0, true, true, false),
        ] {
            let poll = BusyPoll::new(Duration::from_micros(limit_us), always);
            assert_eq!(poll.is_on(waiters), on);
        }
    }

    #[test]
    fn a_core_that_others_need_is_left_to_them_for_longer_and_longer() {
        let ms = |ms: u64| Time(ms * 1_000_000);
        let mut poll = poll();
        polled(&mut poll, [5; 10]);
        assert!(poll.asked(ms(10_000), Time(ms(10_000).0 + 20_000)));
        assert!(poll.until(ms(10_001)).is_some());
        let mut barred_ms = Vec::new();
        let mut now_ms = 10_004;
        for _ in 0..12 {
            assert!(!poll.asked(ms(now_ms - 4), ms(now_ms)));
            let start = now_ms;
            while poll.until(ms(now_ms)).is_none() {
                now_ms += 1;
            }
            barred_ms.push(now_ms - start);
            now_ms += 5; // Soon after, the same again.
        }
        assert_eq!(barred_ms[..4], [100, 200, 400, 800]);
        assert_eq!(barred_ms[10..], [60_000, 60_000]);
        // Long after, it is a new story.
        now_ms += 200_000;
        assert!(!poll.asked(ms(now_ms - 4), ms(now_ms)));
        assert!(poll.until(ms(now_ms + 100)).is_some());
    }
}
