//! The times of this machine's simplest acts: how late a sleep ends, what a wake-up costs, by how
//! much the clock steps. Measured once, before the first run.
//!
//! These differ several times over between machines of the same kind: an idle CPU
//! that halts at once costs an exit to the hypervisor for each wake-up. Sleeping
//! holds wake early by what is measured here, and checks flag only what goes
//! beyond it. Not for comparing runs with each other: that is the anchor's task,
//! which is measured beside each run.

use jostle_harness::Context;
use jostle_harness::anchor::{self, Pair};
use jostle_model::Nanos;
use jostle_model::record::Latencies;
use jostle_stats::intervals;
use jostle_sys::shared::Region;
use jostle_sys::{clock, cpu};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How long a sleep is, and how many each of two CPUs makes.
const SLEEP_NS: u64 = 1_000_000;
const SLEEPS: usize = 30;

/// Where neighbours keep the CPU, fewer are made; with fewer than these in all, no
/// percentile is taken.
const SLEEPING_NS: u64 = 45_000_000;
const SLEEPS_AT_LEAST: usize = 20;

/// Rounds of wake-ups, of which the median is taken; one before them warms up.
/// None begins after this time.
const ROUNDS: usize = 5;
const WAKING_NS: u64 = 15_000_000;

/// How long all of one CPU may take where neighbours interrupt it.
const PATIENCE_NS: u64 = 300_000_000;

/// The cells that one process measures: the lateness of each sleep, then the rounds of wake-ups;
/// zero where it was not made.
const CELLS: usize = SLEEPS + ROUNDS;

/// Measures them with the workers' timer slack. None where processes or memory for
/// it are not to be had, or neighbours leave no time for it.
pub(super) fn latencies(context: &Context, timer_slack: Nanos) -> Option<Latencies> {
    let allowed = cpu::allowed();
    let (first, last) = (*allowed.first()?, *allowed.last()?);
    let same = side(context, (first, first), timer_slack)?;
    let other = match first == last {
        true => None,
        false => Some(side(context, (last, first), timer_slack)?),
    };
    let sides = || std::iter::once(&same).chain(&other);
    let late = sides().flat_map(|side| side.late_ns.iter().copied());
    let [p50, p90] = percentiles(late.collect())?;
    Some(Latencies {
        sleep_late_p50_ns: p50,
        sleep_late_p90_ns: p90,
        wake_same_cpu_ns: same.wake_ns,
        wake_other_cpu_ns: other.as_ref().map(|side| side.wake_ns),
        clock_step_ns: context.clock.step_ns(),
    })
}

/// The measurements of a process on one CPU, with an echo on the same or another.
struct Side {
    late_ns: Vec<f64>,
    wake_ns: f64,
}

fn side(context: &Context, cpus: (usize, usize), timer_slack: Nanos) -> Option<Side> {
    let region = Region::new(CELLS * 8).ok()?;
    let (sleeps, rounds) = region.words64(0, CELLS).split_at(SLEEPS);
    let measured = anchor::pair(context, cpus, PATIENCE_NS, |pair| {
        cpu::set_timer_slack(timer_slack.0).is_ok()
            && wake_often(pair, rounds).is_some()
            && sleep_often(pair, sleeps)
    });
    let value = |cell: &AtomicU64| f64::from_bits(cell.load(Relaxed));
    let made = |cells: &[AtomicU64]| -> Vec<f64> {
        cells.iter().map(value).filter(|ns| *ns > 0.0).collect()
    };
    Some(Side {
        late_ns: measured.then(|| made(sleeps))?,
        wake_ns: intervals::median(made(rounds))?,
    })
}

fn wake_often(pair: &Pair<'_>, rounds: &[AtomicU64]) -> Option<()> {
    let began = pair.clock.now();
    pair.wake()?;
    for (nth, round) in rounds.iter().enumerate() {
        if nth > 0 && pair.clock.now() - began > WAKING_NS {
            break;
        }
        round.store(pair.wake()?.to_bits(), Relaxed);
    }
    Some(())
}

fn sleep_often(pair: &Pair<'_>, sleeps: &[AtomicU64]) -> bool {
    let began = pair.clock.now();
    for sleep in sleeps {
        let from = pair.clock.now();
        if from - began > SLEEPING_NS {
            break;
        }
        clock::sleep(SLEEP_NS, || false);
        let late = (pair.clock.now() - from).saturating_sub(SLEEP_NS).max(1);
        sleep.store((late as f64).to_bits(), Relaxed);
    }
    true
}

/// Median and 90th percentile. None of too few.
fn percentiles(mut late_ns: Vec<f64>) -> Option<[f64; 2]> {
    late_ns.sort_by(f64::total_cmp);
    let at = |share: f64| late_ns[(share * (late_ns.len() - 1) as f64).round() as usize];
    (late_ns.len() >= SLEEPS_AT_LEAST).then(|| [at(0.5), at(0.9)])
}

#[cfg(test)]
mod tests {
    use super::percentiles;

    #[test]
    fn a_few_late_sleeps_move_neither_percentile() {
        let mut late: Vec<f64> = (1..=28).map(f64::from).collect();
        late.extend([1e6, 2e6]);
        assert_eq!(percentiles(late), Some([16.0, 27.0]));
        assert_eq!(percentiles(vec![1.0; 19]), None);
    }
}
