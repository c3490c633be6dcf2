//! Whether a generator runs at all.
//!
//! By its stamps, a request of a generator that is stopped, frozen or throttled is in
//! flight, although it may have been answered long ago. Therefore a thread of the generator
//! sleeps for a short time again and again. When it wakes later than due, its process stood
//! still for that time, less the time that the thread waited for a CPU. (A generator that
//! waits for a CPU is busy, which is recorded elsewhere.)

use super::windowed::overlap;
use crate::page::{Page, Shared, Word};
use jostle_sys::clock::Clock;
use jostle_sys::stat;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

/// Between two looks: a hundred a second, some 5 us each, are a thousandth of a CPU
/// at most.
const EVERY: Duration = Duration::from_millis(10);

/// Lateness that is no standstill: a timer's, a scheduler's, a hypervisor's.
pub const LEAST_NS: u64 = 20_000_000;

/// Looks until the window has closed, or until the workers are dismissed.
pub(crate) fn attend(clock: Clock, shared: &Shared, page: &Page<'_>) {
    let pid = std::process::id();
    let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let waited = || stat::scheduled(pid, tid).map_or(0, |s| s.waited_ns);
    let mut queued = waited();
    let mut before = clock.now();
    page.set(Word::Attended, before);
    while shared.dismissed().load(Acquire) == 0 {
        std::thread::sleep(EVERY);
        let now = clock.now();
        let queued_now = waited();
        let late = (now - before)
            .saturating_sub(EVERY.as_nanos() as u64)
            .saturating_sub(queued_now.saturating_sub(queued));
        let (opens, closes) = (shared.opens().load(Acquire), shared.closes().load(Acquire));
        if late > LEAST_NS {
            page.add(
                Word::Still,
                overlap(now - late, now, opens, closes.max(opens)),
            );
        }
        page.set(Word::Attended, now);
        (before, queued) = (now, queued_now);
        if now >= closes {
            return;
        }
    }
}
