//! When to poll instead of sleeping.
//!
//! Sleeping and waking up costs several microseconds. While a lock goes from hand to
//! hand, every waiter behind pays for them, too. Polling avoids this cost, but uses CPU
//! time in between. So the server polls only as long as that pays, judging by what has
//! just happened:
//!
//! - Only while a client waits for a lock and locks are handed on: the last hand-off
//!   was a moment ago. A client that waits for a lock that is not handed on gains
//!   nothing. (`always` lifts this condition.)
//! - Only after several pauses in a row that were short enough; a longer one halves the
//!   confidence. So a lock that is held for long costs nothing.
//! - Between two polls the core is offered to others: a client on the same core could
//!   not send its request otherwise. If the core is not given back soon, others need it
//!   (or a quota of CPU time is used up). Then the server does not poll for a while,
//!   and for twice as long if this happens again soon.

use std::time::Duration;

use crate::table::Time;

/// Short pauses in a row after which polling pays, and the most that are counted.
const CONFIDENT: u32 = 4;
const CONFIDENCE_MAX: u32 = 16;
/// How long after a hand-off the next one is expected: much longer than the gaps
/// between hand-offs for which polling pays.
const HANDED_ON_NS: u64 = 10_000_000;
/// Time after which the core counts as taken away: less than a slice of any scheduler,
/// more than a client takes for a reply.
const AWAY_NS: u64 = 1_000_000;
const BAR_MIN_NS: u64 = 100_000_000;
const BAR_MAX_NS: u64 = 60_000_000_000;

/// Decides whether to poll. It reads no clock: times come from the caller.
#[derive(Debug, Default)]
pub(super) struct BusyPoll {
    /// How long to poll at most; 0: never.
    limit_ns: u64,
    always: bool,
    /// Hand-offs counted so far, and when the count last grew.
    handed_on: u64,
    handed_on_at: Option<Time>,
    confidence: u32,
    barred_until: Time,
    bar_ns: u64,
}

impl BusyPoll {
    pub(super) fn new(limit: Duration, always: bool) -> Self {
        Self {
            limit_ns: limit.as_nanos() as u64,
            always,
            bar_ns: BAR_MIN_NS,
            ..Self::default()
        }
    }

    /// Whether to consider polling and to report pauses; `handed_on` is the number of
    /// locks handed on so far.
    #[inline]
    pub(super) fn is_on(&mut self, waiters: bool, handed_on: u64, now: Time) -> bool {
        if handed_on != self.handed_on {
            self.handed_on = handed_on;
            self.handed_on_at = Some(now);
        }
        let lately = |at: Time| now.0 - at.0 < HANDED_ON_NS;
        self.limit_ns != 0 && (self.always || waiters && self.handed_on_at.is_some_and(lately))
    }

    /// The time until which to poll, from `now` on; `None`: sleep.
    #[inline]
    pub(super) fn until(&self, now: Time) -> Option<Time> {
        (self.confidence >= CONFIDENT && now >= self.barred_until)
            .then_some(Time(now.0 + self.limit_ns))
    }

    /// Notes a pause without work, whether the server slept or polled.
    #[inline]
    pub(super) fn paused(&mut self, ns: u64) {
        if ns <= self.limit_ns {
            self.confidence = (self.confidence + 1).min(CONFIDENCE_MAX);
        } else {
            self.confidence /= 2;
        }
    }

    /// Notes the time between two polls; false: it was too long.
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

    /// How many of these pauses, in microseconds, would be polled and not slept.
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
    fn only_with_waiters_and_hand_offs_unless_always_and_never_without_a_limit() {
        for (limit_us, always, waiters, handed_on, on) in [
            (50, false, true, 1, true),
            (50, false, false, 1, false),
            (50, false, true, 0, false),
            (50, true, false, 0, true),
            (0, true, true, 1, false),
        ] {
            let mut poll = BusyPoll::new(Duration::from_micros(limit_us), always);
            assert_eq!(poll.is_on(waiters, handed_on, Time(5)), on);
        }
    }

    #[test]
    fn waiters_of_locks_that_are_not_handed_on_cost_nothing() {
        let ms = |ms: u64| Time(ms * 1_000_000);
        let mut poll = poll();
        for (now_ms, handed_on, on) in [
            (1000, 0, false),
            (2000, 7, true), // Seven hand-offs since.
            (2009, 7, true),
            (2010, 7, false), // None for 10 ms.
            (2011, 8, true),
            (2020, 9, true),
            (2029, 9, true),
            (2030, 9, false),
        ] {
            assert_eq!(poll.is_on(true, handed_on, ms(now_ms)), on, "{now_ms} ms");
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
