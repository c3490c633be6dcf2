//! The one clock by which jostle loses patience: how long this process has waited for
//! another, as far as it could listen. Measurements use [`clock`]; a stamp says when
//! something was, not for how long we would have noticed it.

use crate::clock;
use std::cell::Cell;
use std::time::Duration;

/// At most this much counts between two looks. Looks come every few milliseconds: after a
/// longer gap this process itself did not run (the machine stood still, or was suspended), and
/// it could not have heard the other.
pub const LOOK: Duration = Duration::from_millis(100);

/// The time since a moment, without what passed while this process did not run.
#[derive(Clone, Copy, Debug)]
pub struct Waited {
    looked_ns: u64,
    sum: Duration,
}

impl Waited {
    /// Begins now.
    pub fn begin() -> Waited {
        Waited::begin_at(now_ns())
    }

    /// Begins at this time of `CLOCK_MONOTONIC`, in nanoseconds.
    fn begin_at(now_ns: u64) -> Waited {
        Waited {
            looked_ns: now_ns,
            sum: Duration::ZERO,
        }
    }

    /// To be asked at every look, more often than [`LOOK`].
    pub fn so_far(&mut self) -> Duration {
        self.so_far_by(LOOK)
    }

    /// [`Waited::so_far`], where at most `most` counts since the last look: for a caller whose
    /// looks take less or more time than [`LOOK`].
    pub fn so_far_by(&mut self, most: Duration) -> Duration {
        self.so_far_at(now_ns(), most)
    }

    fn so_far_at(&mut self, now_ns: u64, most: Duration) -> Duration {
        self.sum += Duration::from_nanos(now_ns.saturating_sub(self.looked_ns)).min(most);
        self.looked_ns = now_ns;
        self.sum
    }
}

/// The patience of one wait on a blocking socket, which itself waits for [`Patience::look`].
#[derive(Debug)]
pub struct Patience {
    most: Duration,
    waited: Option<Waited>,
}

impl Patience {
    /// None of it is used up.
    pub fn of(most: Duration) -> Patience {
        Patience { most, waited: None }
    }

    /// The time limit of the socket, for this patience.
    pub fn look(most: Duration) -> Duration {
        most.min(LOOK / 2)
    }

    /// Whether it is over, asked each time that the socket's limit has passed.
    pub fn is_over(&mut self) -> bool {
        // The clock is not read before the first look has passed.
        let waited = self.waited.get_or_insert_with(Waited::begin);
        waited.so_far() + Patience::look(self.most) >= self.most
    }
}

thread_local! {
    /// The looks of [`leaping`].
    static LEAPS: Cell<Option<u64>> = const { Cell::new(None) };
}

fn now_ns() -> u64 {
    const LEAP_NS: u64 = 3_600_000_000_000;
    let leaps = LEAPS.get().map(|leaps| leaps + 1);
    LEAPS.set(leaps);
    clock::monotonic() + leaps.unwrap_or(0) * LEAP_NS
}

/// For tests of who loses patience: the clock of this thread, and of a process that it forks,
/// leaps by an hour at each look, as that of a machine that stands still between all of them.
/// Returns the result, and the number of looks: an hour counts as one [`LOOK`], so that they show
/// how long was waited.
pub fn leaping<T>(body: impl FnOnce() -> T) -> (T, u64) {
    LEAPS.set(Some(0));
    let result = body();
    (result, LEAPS.take().unwrap_or(0))
}

/// The first that `look` finds, which is asked again after each nap, shorter than [`LOOK`]; `None`
/// after `patience`.
pub fn within<T>(
    patience: Duration,
    nap: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> Option<T> {
    let mut waited = Waited::begin();
    loop {
        let found = look();
        if found.is_some() || waited.so_far() >= patience {
            return found;
        }
        std::thread::sleep(nap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of a job on one machine that stood still for 11 s: rank 0 once said of another
    /// that nothing had been heard of it for 11 s.
    #[test]
    fn a_machine_that_stood_still_has_not_waited() {
        let ms = |ms: u64| ms * 1_000_000;
        let mut waited = Waited::begin_at(ms(5));
        let mut look = |at, most| waited.so_far_at(ms(at), most).as_millis();
        let looks = [15, 35, 11_035, 11_045].map(|at| look(at, LOOK));
        assert_eq!(looks, [10, 30, 130, 140]);
        // A caller that looks every 10 ms, and a clock that was set back in between.
        let looks = [11_055, 12_055, 12_050].map(|at| look(at, Duration::from_millis(20)));
        assert_eq!(looks, [150, 170, 170]);
    }

    /// Ten looks are a second, though ten hours pass. A socket has waited once before it is asked.
    #[test]
    fn patience_ends_by_looks_where_the_clock_leaps() {
        let second = Duration::from_secs(1);
        let within = || within(second, Duration::ZERO, || None::<()>);
        assert_eq!(leaping(within), (None, 1 + 10));
        let mut patience = Patience::of(second);
        let looks = || (1..).find(|_| patience.is_over());
        assert_eq!(leaping(looks), (Some(10), 1 + 10));
    }
}
