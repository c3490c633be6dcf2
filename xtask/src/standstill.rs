//! Whether the machine stood still while tests ran.
//!
//! The host of a virtual machine may suspend it, for a minute and more. The guest's
//! monotonic clock goes on meanwhile, so that all its timeouts are over when it continues:
//! sessions have expired, servers were "not ready within 60 s". A test that fails then says
//! nothing of jostle.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What the watching thread sleeps for.
const NAP: Duration = Duration::from_millis(200);

/// A nap that ends later than this is no matter of a busy CPU.
const LATE: Duration = Duration::from_secs(5);

/// How late the naps ended that were too late, and when they ended.
static SEEN: Mutex<Vec<(Instant, Duration)>> = Mutex::new(Vec::new());

/// Watches from now on, until the program ends.
pub(crate) fn watch() {
    thread::spawn(|| {
        loop {
            let before = Instant::now();
            thread::sleep(NAP);
            note(before, Instant::now());
        }
    });
}

/// A nap from the one time to the other.
fn note(before: Instant, after: Instant) {
    let late = (after - before).saturating_sub(NAP);
    if late > LATE {
        let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push((after, late));
    }
}

/// The longest time for which nothing ran, of those that have ended since then.
pub(crate) fn longest_since(start: Instant) -> Option<Duration> {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let since = seen.iter().filter(|(end, _)| *end >= start);
    since.map(|(_, late)| *late).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nap_that_ends_much_too_late_is_a_standstill_and_a_slow_one_is_not() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        note(start, after(5_200));
        assert_eq!(longest_since(start), None);
        note(start, after(60_200));
        note(start, after(8_200));
        assert_eq!(longest_since(start), Some(Duration::from_secs(60)));
        assert_eq!(longest_since(after(60_201)), None);
    }
}
