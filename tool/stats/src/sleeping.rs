//! How late sleeps end on this machine without neighbours, and how much earlier they must
//! end to be on time.

use jostle_model::record::Latencies;
use jostle_model::time::{Busy, Nanos};

/// The most lateness that is attributed to the machine. A measured value above it is caused
/// by neighbours: the slowest wake-up from a halted CPU of a virtual machine takes about
/// 100 us.
pub(crate) const OWN_LATENESS_NS: f64 = 200_000.0;

/// The longest wake-up that is attributed to the machine. A measured value above it is
/// caused by neighbours: wake-ups from a halted CPU of a virtual machine took 17 to 70 us.
const SLOWEST_WAKE_UP: Nanos = Nanos::from_micros(100);

/// The machine's own lateness of a sleep, median; zero if it was not measured.
pub fn lateness(latencies: Option<&Latencies>) -> Nanos {
    bounded(latencies, |known| known.sleep_late_p50_ns)
}

/// The lateness that one sleep in ten exceeds, at most 1.5 times the median: a larger value
/// is caused by neighbours. An idle machine had 50 to 60 us with a median of 37 to 45 us.
pub(crate) fn seldom_later(latencies: Option<&Latencies>) -> Nanos {
    bounded(latencies, |known| {
        known.sleep_late_p90_ns.min(1.5 * known.sleep_late_p50_ns)
    })
}

/// The machine's own time for waking a process, on another CPU if there is one; zero if it
/// was not measured.
pub(crate) fn wake_up(latencies: Option<&Latencies>) -> Nanos {
    let measured = bounded(latencies, |known| {
        known.wake_other_cpu_ns.unwrap_or(known.wake_same_cpu_ns)
    });
    measured.min(SLOWEST_WAKE_UP)
}

/// By how much a sleep of this length is shortened, so that nine in ten of the measured
/// sleeps would have ended in time; the rest is spun. At most half of the sleep, because a
/// sleeper should leave the CPU to others for most of the time.
pub fn wake_early(latencies: Option<&Latencies>, span: Nanos) -> Nanos {
    seldom_later(latencies).min(Nanos(span.0 / 2))
}

/// The longest that a hold of this length takes by the machine's own doing.
pub fn longest(time: Busy, latencies: Option<&Latencies>) -> Nanos {
    match time {
        Busy::Sleep(span) if span.0 > 0 => Nanos(span.0 + lateness(latencies).0),
        Busy::Sleep(span) | Busy::Spin(span) => span,
    }
}

fn bounded(latencies: Option<&Latencies>, figure: fn(&Latencies) -> f64) -> Nanos {
    let late_ns = latencies.map_or(0.0, figure);
    Nanos(late_ns.clamp(0.0, OWN_LATENESS_NS) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late_us(p50: f64, p90: f64) -> Latencies {
        Latencies {
            sleep_late_p50_ns: p50 * 1e3,
            sleep_late_p90_ns: p90 * 1e3,
            ..Latencies::default()
        }
    }

    #[test]
    fn a_sleep_is_cut_short_by_what_it_would_be_late_but_never_by_more_than_half() {
        let usual = late_us(40.0, 60.0);
        let table = [
            // sleep and how much of it is cut off, us
            (1_000, 60),
            (121, 60),
            (100, 50),
            (10, 5),
            (0, 0),
        ];
        for (span, cut) in table {
            let early = wake_early(Some(&usual), Nanos::from_micros(span));
            assert_eq!(early, Nanos::from_micros(cut), "{span}");
        }
        assert_eq!(wake_early(None, Nanos::from_micros(1_000)), Nanos::ZERO);
    }

    /// Beside two busy loops sleeps were measured 3 ms late, which is no machine's own.
    #[test]
    fn what_neighbours_add_is_left_out() {
        let beside_others = late_us(900.0, 3_000.0);
        let most = Nanos::from_micros(200);
        assert_eq!(lateness(Some(&beside_others)), most);
        let now_and_then = late_us(40.0, 3_000.0);
        assert_eq!(seldom_later(Some(&now_and_then)), Nanos::from_micros(60));
        assert_eq!(
            wake_early(Some(&beside_others), Nanos::from_micros(5_000)),
            most
        );
    }

    #[test]
    fn only_sleeps_end_late() {
        let us = Nanos::from_micros;
        let usual = late_us(37.0, 60.0);
        let table = [
            (Busy::Sleep(us(1_000)), 1_037),
            (Busy::Sleep(us(0)), 0), // no sleep at all
            (Busy::Spin(us(20)), 20),
        ];
        for (time, takes) in table {
            assert_eq!(longest(time, Some(&usual)), us(takes), "{time:?}");
            assert_eq!(longest(time, None), time.span());
        }
    }
}
