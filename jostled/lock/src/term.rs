//! How long the lock is surely held, by a clock that goes on while the machine is suspended
//! (CLOCK_BOOTTIME), in a page that wrapper and guard share.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use jostle_sys::shared::Region;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

/// Nanoseconds since the machine was started.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub(crate) fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// The lengths that follow from the options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) ttl: u64,
    pub(crate) grace: u64,
    /// Between SIGKILL and the end of the lock, for a machine that is late.
    pub(crate) margin: u64,
    /// Between two renewals, and for the answer to one.
    pub(crate) every: u64,
}

impl Times {
    pub(crate) fn new(ttl: Duration, grace: Duration) -> Self {
        let (ttl, grace) = (ns(ttl), ns(grace));
        let margin = (ttl / 5).min(1_000_000_000);
        Self {
            ttl,
            grace,
            margin,
            every: (ttl - grace - margin) / 4,
        }
    }

    /// When the command has to be told to end, for a lock that lasts until then.
    pub(crate) fn last_call(&self, end: u64) -> u64 {
        end.saturating_sub(self.margin + self.grace)
    }

    /// When it has to be gone.
    pub(crate) fn gone_by(&self, end: u64) -> u64 {
        end.saturating_sub(self.margin)
    }
}

/// The memory that wrapper and guard share.
pub(crate) struct Page(Region);

impl Page {
    pub(crate) fn new(end: u64) -> io::Result<Self> {
        let page = Self(Region::new(64)?);
        page.end().store(end, SeqCst);
        Ok(page)
    }

    /// The end of the lock, counted from the sending of the last renewal that succeeded; 0 once
    /// one of the two has given it up. A lock that is given back keeps it.
    pub(crate) fn end(&self) -> &AtomicU64 {
        &self.0.words64(0, 2)[0]
    }

    /// The command's process group, 0 before it has one.
    pub(crate) fn group(&self) -> &AtomicU64 {
        &self.0.words64(0, 2)[1]
    }

    /// Makes the lock last longer, unless it is over.
    pub(crate) fn extend(&self, to: u64) -> bool {
        let later = |end| (end != 0).then_some(to.max(end));
        self.end().fetch_update(SeqCst, SeqCst, later).is_ok()
    }

    /// Gives the lock up if the last call has come; returns its end.
    pub(crate) fn give_up(&self, times: &Times, now: u64) -> Option<u64> {
        let over = |end| (end != 0 && now >= times.last_call(end)).then_some(0);
        self.end().fetch_update(SeqCst, SeqCst, over).ok()
    }
}

/// A timer that also fires when the machine wakes up.
pub(crate) struct Timer(OwnedFd);

impl Timer {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self(timerfd_create(TimerfdClockId::Boottime, flags)?))
    }

    /// Makes it readable from this time on.
    pub(crate) fn set(&self, at: u64) -> io::Result<()> {
        let value = Timespec {
            tv_sec: (at / 1_000_000_000) as i64,
            // All zero would switch it off.
            tv_nsec: (at % 1_000_000_000).max(1) as _,
        };
        let interval = Timespec::default();
        let when = Itimerspec {
            it_interval: interval,
            it_value: value,
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &when)?;
        Ok(())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_given_up_once_and_then_stays_so() {
        let times = Times::new(Duration::from_secs(15), Duration::from_secs(3));
        let second = 1_000_000_000;
        assert_eq!((times.margin, times.every), (second, 11 * second / 4));
        let page = Page::new(20 * second).unwrap();
        assert_eq!(page.give_up(&times, 16 * second - 1), None);
        assert!(page.extend(30 * second) && page.extend(25 * second));
        assert_eq!(
            page.give_up(&times, 26 * second - 1),
            None,
            "an older answer ends nothing"
        );
        assert_eq!(page.give_up(&times, 26 * second), Some(30 * second));
        assert_eq!(page.give_up(&times, 99 * second), None);
        assert!(!page.extend(99 * second));
    }
}
