//! Stamps: nanoseconds that every process of this machine reads alike.
//!
//! RDTSCP where the time stamp counter is invariant and the kernel itself
//! trusts it as its clock source (one stamp costs about a third of a vDSO call
//! and tells the CPU as well); `CLOCK_MONOTONIC` elsewhere. The scale is taken
//! once, before any worker is forked, so that all of them share it; stamps are
//! compared with stamps only, since the scale drifts from the kernel's clock by
//! a few parts in a million.

use crate::limits::text;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where stamps come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The CPU's time stamp counter.
    Rdtscp,
    /// The kernel's clock.
    Monotonic,
}

impl Source {
    /// As it stands in results.
    pub fn name(self) -> &'static str {
        match self {
            Source::Rdtscp => "rdtscp",
            Source::Monotonic => "CLOCK_MONOTONIC",
        }
    }
}

/// A source and its scale. Copied into every worker.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    source: Source,
    /// Nanoseconds a tick, times 2^32.
    scale: u64,
}

/// A CPU whose number the clock does not tell.
pub const UNKNOWN_CPU: u32 = u32::MAX;

impl Clock {
    /// Chooses the source and takes its scale; for the counter this takes
    /// 20 ms.
    pub fn new() -> Clock {
        if !counter_is_trusted() {
            return Clock::monotonic();
        }
        let (ticks_0, nanos_0) = pair();
        std::thread::sleep(Duration::from_millis(20));
        let (ticks_1, nanos_1) = pair();
        if ticks_1 <= ticks_0 {
            return Clock::monotonic();
        }
        let scale = (u128::from(nanos_1 - nanos_0) << 32) / u128::from(ticks_1 - ticks_0);
        Clock {
            source: Source::Rdtscp,
            scale: scale as u64,
        }
    }

    /// The kernel's clock, even where the counter is trusted. Hosts compare this clock with
    /// each other: a time namespace shifts it, and the counter does not show that shift.
    pub fn monotonic() -> Clock {
        Clock {
            source: Source::Monotonic,
            scale: 0,
        }
    }

    /// Where stamps come from.
    pub fn source(self) -> Source {
        self.source
    }

    /// Nanoseconds since some fixed time in the past.
    #[inline(always)]
    pub fn now(self) -> u64 {
        self.stamp().0
    }

    /// As [`Clock::now`], and the CPU it was read on ([`UNKNOWN_CPU`] where
    /// the source does not say).
    #[inline(always)]
    pub fn stamp(self) -> (u64, u32) {
        match self.source {
            Source::Rdtscp => {
                let (ticks, cpu) = rdtscp();
                let nanos = (u128::from(ticks) * u128::from(self.scale)) >> 32;
                (nanos as u64, cpu)
            }
            Source::Monotonic => (monotonic(), UNKNOWN_CPU),
        }
    }

    /// Spins until this stamp. Returns the time spent spinning, without the time for which
    /// something else had the CPU.
    #[inline]
    pub fn spin_until(self, stamp: u64) -> u64 {
        /// Some hundred steps of the loop: an interrupt at least.
        const INTERRUPTED_NS: u64 = 5_000;
        let (mut now, mut spun) = (self.now(), 0);
        while now < stamp {
            std::hint::spin_loop();
            let next = self.now();
            let step = next.saturating_sub(now);
            if step < INTERRUPTED_NS {
                spun += step;
            }
            now = next;
        }
        spun
    }

    /// Cost of one stamp: the least mean over several batches.
    pub fn cost_ns(self) -> f64 {
        const BATCH: u32 = 2_000;
        (0..10)
            .map(|_| {
                let start = self.now();
                for _ in 0..BATCH {
                    std::hint::black_box(self.stamp());
                }
                (self.now() - start) as f64 / f64::from(BATCH)
            })
            .fold(f64::INFINITY, f64::min)
    }

    /// Smallest step between two different stamps, in nanoseconds. The counter may advance
    /// by many ticks at once. All its differences are then multiples of that step, which is
    /// their greatest common divisor. The kernel's clock is rounded to nanoseconds, so that
    /// its differences have no such divisor: its step is the least difference.
    pub fn step_ns(self) -> f64 {
        const STAMPS: u32 = 2_000;
        let differences = |read: fn() -> u64| {
            let mut last = read();
            let next = move |_| {
                let now = read();
                now.abs_diff(std::mem::replace(&mut last, now))
            };
            (0..STAMPS).map(next).filter(|difference| *difference > 0)
        };
        match self.source {
            Source::Rdtscp => {
                let ticks = differences(|| rdtscp().0).fold(0, greatest_common_divisor);
                (u128::from(ticks) * u128::from(self.scale)) as f64 / 2f64.powi(32)
            }
            Source::Monotonic => differences(monotonic).min().unwrap_or(1) as f64,
        }
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// `CLOCK_MONOTONIC` and `CLOCK_MONOTONIC_RAW` at one moment, in nanoseconds: of a few tries the one
/// with the closest bracket.
pub fn monotonic_and_raw() -> [u64; 2] {
    let tries = (0..5).map(|_| {
        let before = monotonic();
        let raw = clock_gettime(ClockId::MonotonicRaw);
        let raw = raw.tv_sec as u64 * 1_000_000_000 + raw.tv_nsec as u64;
        let took = monotonic().saturating_sub(before);
        (took, [before + took / 2, raw])
    });
    tries.min().unwrap_or_default().1
}

/// Both clocks at one moment: of many tries the one with the closest bracket.
fn pair() -> (u64, u64) {
    (0..50)
        .map(|_| {
            let before = rdtscp().0;
            let nanos = monotonic();
            let after = rdtscp().0;
            (after - before, before + (after - before) / 2, nanos)
        })
        .min()
        .map_or((0, 0), |(_, ticks, nanos)| (ticks, nanos))
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn rdtscp() -> (u64, u32) {
    let mut aux = 0;
    // SAFETY: only reached on CPUs that list the instruction (see
    // `counter_is_trusted`); it writes to `aux` alone.
    let ticks = unsafe { std::arch::x86_64::__rdtscp(&mut aux) };
    // Linux keeps the CPU's number in the low 12 bits, its node above.
    (ticks, aux & 0xfff)
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn rdtscp() -> (u64, u32) {
    (0, UNKNOWN_CPU)
}

fn counter_is_trusted() -> bool {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let source = kernel_source().unwrap_or_default();
    cfg!(target_arch = "x86_64")
        && source == "tsc"
        && text::cpu_flag(&info, "rdtscp")
        && text::invariant_tsc(&info) == Some(true)
}

/// The kernel's own clock source.
///
/// # Errors
/// Where sysfs is not mounted.
pub(crate) fn kernel_source() -> io::Result<String> {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    Ok(std::fs::read_to_string(path)?.trim().to_owned())
}

#[inline]
pub(crate) fn timespec(nanos: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (nanos / 1_000_000_000) as _,
        tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
    }
}

/// Sleeps for a span. A signal does not shorten it, unless `ended` returns true.
#[inline]
pub fn sleep(nanos: u64, ended: impl Fn() -> bool) {
    let mut left = timespec(nanos);
    // SAFETY: both pointers are to one live timespec, which the call may read
    // and then overwrite.
    while unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &left, &raw mut left) }
        == libc::EINTR
        && !ended()
    {}
}

/// Sleeps until this time of `CLOCK_MONOTONIC`, in nanoseconds, or until a signal.
#[inline]
pub fn sleep_until(nanos: u64) {
    let until = timespec(nanos);
    // SAFETY: the pointer is to a live timespec, which the call only reads; an absolute
    // sleep writes no remaining time.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &until,
            std::ptr::null_mut(),
        );
    }
}

/// Bounds the offset between the clocks of any two of these CPUs, by 10,000
/// ping-pongs between the first and each other one: the far stamp lies between
/// the two near ones, so that every exchange bounds the offset from both sides
/// (Cristian 1989). The result is the widest such bound; between two CPUs that
/// are not the first it is the sum of two, hence doubled from three CPUs on.
/// None with one CPU, or if the CPUs cannot be pinned.
pub fn uncertainty_ns(clock: Clock, cpus: &[usize]) -> Option<f64> {
    let (first, others) = cpus.split_first()?;
    let mut widest: Option<f64> = None;
    for other in others {
        let bound = ping_pong(clock, *first, *other)?;
        widest = Some(widest.map_or(bound, |w| w.max(bound)));
    }
    widest.map(|w| if cpus.len() > 2 { 2.0 * w } else { w })
}

fn ping_pong(clock: Clock, near: usize, far: usize) -> Option<f64> {
    const ROUNDS: u64 = 10_000;
    /// Where a neighbour keeps the CPU, the exchange is given up.
    const PATIENCE_NS: u64 = 500_000_000;
    let (ping, pong) = (AtomicU64::new(0), AtomicU64::new(0));
    let deadline = clock.now() + PATIENCE_NS;
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            crate::cpu::pin(&[far]).ok()?;
            for round in 1..=ROUNDS {
                while ping.load(Ordering::Acquire) != round {
                    std::hint::spin_loop();
                    if clock.now() > deadline {
                        return None;
                    }
                }
                pong.store(clock.now(), Ordering::Release);
            }
            Some(())
        });
        let near_side = scope.spawn(|| {
            crate::cpu::pin(&[near]).ok()?;
            let (mut low, mut high, mut last) = (i64::MIN, i64::MAX, 0);
            for round in 1..=ROUNDS {
                let sent = clock.now();
                ping.store(round, Ordering::Release);
                let echoed = loop {
                    let echoed = pong.load(Ordering::Acquire);
                    if echoed != last {
                        break echoed;
                    }
                    std::hint::spin_loop();
                    if clock.now() > deadline {
                        return None;
                    }
                };
                last = echoed;
                let received = clock.now();
                low = low.max(echoed as i64 - received as i64);
                high = high.min(echoed as i64 - sent as i64);
            }
            Some((low.unsigned_abs().max(high.unsigned_abs())) as f64)
        });
        let bound = near_side.join().ok().flatten();
        echo.join().ok().flatten().and(bound)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_divides_what_lies_between_stamps() {
        let clock = Clock::new();
        let step = clock.step_ns();
        assert!(step > 0.0, "{step}");
        if clock.source() == Source::Rdtscp {
            // Stamps are rounded down to nanoseconds.
            for _ in 0..100 {
                let (from, to) = (clock.now(), clock.now());
                let steps = (to - from) as f64 / step;
                assert!(
                    (steps - steps.round()).abs() * step <= 1.01,
                    "{steps} of {step}"
                );
            }
        }
        assert!(Clock::monotonic().step_ns() >= 1.0);
        assert_eq!(greatest_common_divisor(26 * 7, 26 * 15), 26);
    }

    #[test]
    fn a_spin_ends_at_its_stamp_and_counts_what_it_spun() {
        let clock = Clock::new();
        // Others may have the CPU all the time, but not each time.
        assert!((0..1000).any(|_| {
            let from = clock.now();
            let spun = clock.spin_until(from + 50_000_000);
            let took = clock.now() - from;
            assert!(took >= 50_000_000 && spun <= took, "{spun} of {took}");
            spun > 1_000_000
        }));
        let from = clock.now();
        assert_eq!(clock.spin_until(from), 0);
    }

    #[test]
    fn a_sleep_is_never_short() {
        let clock = Clock::new();
        let start = clock.now();
        sleep(3_000_000, || false);
        assert!(clock.now() - start >= 2_990_000);
    }

    #[test]
    fn the_clocks_of_two_cpus_are_bounded() {
        let cpus = crate::cpu::allowed();
        let bound = uncertainty_ns(Clock::new(), &cpus);
        // A neighbour may take a CPU for longer than our patience, so that
        // there is no bound; one that there is must be a plausible one.
        if let Some(bound) = bound {
            assert!(bound < 1e6, "{bound}");
        }
        assert_eq!(uncertainty_ns(Clock::new(), &cpus[..1]), None);
    }

    mod live_tests {
        use super::*;

        #[test]
        fn stamps_keep_pace_with_the_kernel() {
            let clock = Clock::new();
            // Read until nobody came between the two.
            let both = || loop {
                let (before, kernel, after) = (clock.now(), monotonic(), clock.now());
                if after - before < 50_000 {
                    return (before, kernel);
                }
            };
            let first = both();
            std::thread::sleep(Duration::from_millis(50));
            let second = both();
            let (stamp, kernel) = (second.0 - first.0, second.1 - first.1);
            let off = stamp.abs_diff(kernel);
            assert!(off < kernel / 200, "{stamp} against {kernel}");
        }
    }
}
