//! The one clock by which jostle loses patience: how long this process has waited for
//! another, as far as it could listen. Measurements use [`clock`]; a stamp says when
//! something was, not for how long we would have noticed it.

use crate::clock;
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
        Waited::begin_at(clock::monotonic())
    }

    /// Begins at this time of `CLOCK_MONOTONIC`, in nanoseconds.
    pub fn begin_at(now_ns: u64) -> Waited {
        Waited {
            looked_ns: now_ns,
            sum: Duration::ZERO,
        }
    }

    /// To be asked at every look, more often than [`LOOK`].
    pub fn so_far(&mut self) -> Duration {
        self.so_far_at(clock::monotonic(), LOOK)
    }

    /// [`Waited::so_far`] at this time of `CLOCK_MONOTONIC`, in nanoseconds, where at most
    /// `most` counts since the last look: for a caller whose looks come in less than [`LOOK`].
    pub fn so_far_at(&mut self, now_ns: u64, most: Duration) -> Duration {
        self.sum += Duration::from_nanos(now_ns.saturating_sub(self.looked_ns)).min(most);
        self.looked_ns = now_ns;
        self.sum
    }
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

    mod live_tests {
        use super::*;

        /// A look that takes longer than the patience is as a machine that stood still.
        #[test]
        fn who_stood_still_looks_again() {
            let ms = Duration::from_millis;
            let mut looks = 0;
            let found = within(ms(400), ms(1), || {
                looks += 1;
                if looks == 1 {
                    std::thread::sleep(ms(600));
                }
                (looks == 3).then_some(looks)
            });
            assert_eq!(found, Some(3));
            assert_eq!(within(ms(1), ms(1), || None::<()>), None);
        }
    }
}
