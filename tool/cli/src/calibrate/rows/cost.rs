//! The tool's own cost: an acquisition that does nothing must read as next to nothing, and a stamp
//! must cost what it says.

use crate::calibrate::bench::{Bench, Stop};
use crate::calibrate::trial::{Agreement, Trial, all_of, cannot_tell, runs_of, span};
use jostle_model::record::Calibration;
use jostle_stats::intervals::median;
use jostle_sys::clock::Clock;
use std::hint::black_box;
use std::time::Instant;

/// Between two stamps lie one stamp and at most one step of the clock.
const STEP_NS: f64 = 20.0;

/// Stamps in a loop do not wait for each other as those of a measurement do.
const TIMES: f64 = 3.0;

/// The largest acceptable uncertainty of the clocks' offset: hand-offs between processes
/// take 1 to 6 us.
const OFFSET_NS: f64 = 1_000.0;

pub(super) fn trial(bench: &mut Bench) -> Result<Trial, Stop> {
    let loop_ns = stamps(bench.clock());
    let set = bench.measure("contend null -w 1 -b 0 -i 0 -t 0.2 --warmup 0 --runs 3")?;
    let waits = runs_of(&set, "null").into_iter();
    let waits = waits.filter_map(|run| run.acquire_ns.as_ref());
    let waits: Vec<u64> = waits
        .filter_map(|waits| waits.granted.percentiles.get("p50").copied())
        .collect();
    Ok(judge(
        loop_ns,
        &set.experiment.calibration,
        &waits,
        bench.cpus().len(),
    ))
}

/// Nanoseconds a stamp, by the kernel's clock around many of them: the median of short
/// loops, since one that another program interrupts takes many times as long.
fn stamps(clock: Clock) -> f64 {
    const LOOPS: usize = 9;
    const COUNT: u32 = 20_000;
    let each = (0..LOOPS).map(|_| {
        let start = Instant::now();
        (0..COUNT).for_each(|_| {
            black_box(clock.now());
        });
        start.elapsed().as_nanos() as f64 / f64::from(COUNT)
    });
    median(each).unwrap_or(f64::NAN)
}

fn judge(loop_ns: f64, calibration: &Calibration, waits_p50: &[u64], cpus: usize) -> Trial {
    let waits_p50 = waits_p50.iter();
    let worst = waits_p50.copied().max().map_or(f64::NAN, |ns| ns as f64);
    let own = calibration.own_cost.get("null");
    let stamp_ns = calibration.stamp_ns;
    let u = calibration.clock_uncertainty_ns;
    let found = match own {
        None => "nothing".to_owned(),
        Some(cost) => format!(
            "wait {}, cycle +{}, u {}",
            span(worst),
            span(cost.added_ns),
            u.map_or("unknown".to_owned(), span)
        ),
    };
    let near = |a: f64, b: f64| a <= TIMES * b && b <= TIMES * a;
    let mut said = all_of([
        (own.is_some(), "the tool did not measure its own cost"),
        (
            near(stamp_ns, loop_ns),
            "a stamp does not cost what the tool says",
        ),
        (
            worst <= TIMES * loop_ns + STEP_NS,
            "an acquisition that does nothing reads as more than a stamp",
        ),
    ]);
    if said == Agreement::Agrees {
        said = match u {
            Some(u) if u <= OFFSET_NS => Agreement::Agrees,
            Some(u) => cannot_tell(format!(
                "the clocks of two CPUs are only known to lie within {}",
                span(u)
            )),
            None if cpus < 2 => cannot_tell("with one CPU there is no offset to bound"),
            None => cannot_tell("the offset between the CPUs' clocks could not be bounded"),
        };
    }
    Trial {
        truth: "0 ns".to_owned(),
        found,
        control: format!("stamp {}, in a loop {}", span(stamp_ns), span(loop_ns)),
        said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::record::OwnCost;

    fn calibration() -> Calibration {
        let cost = OwnCost {
            pair_ns: 1.0,
            pair_fastest_ns: None,
            full_ns: 101.0,
            no_stamps_ns: 20.0,
            no_witness_ns: 80.0,
            added_ns: 100.0,
            added_range_ns: [99.0, 105.0],
            stamp_every: 20,
        };
        Calibration {
            stamp_ns: 20.0,
            clock_uncertainty_ns: Some(60.0),
            own_cost: [("null".to_owned(), cost)].into(),
            ..Calibration::default()
        }
    }

    #[test]
    fn nothing_costs_a_stamp() {
        let trial = judge(19.0, &calibration(), &[20, 30], 2);
        assert_eq!(trial.said, Agreement::Agrees, "{trial:?}");
    }

    #[test]
    fn a_stamp_or_an_empty_wait_that_is_dearer_than_said_fails() {
        let differs = |trial: Trial| trial.said.is_wrong();
        assert!(differs(judge(19.0, &calibration(), &[20, 200], 2)));
        assert!(differs(judge(100.0, &calibration(), &[20], 2)));
        assert!(differs(judge(19.0, &Calibration::default(), &[20], 2)));
        assert!(
            differs(judge(19.0, &calibration(), &[], 2)),
            "nothing was measured"
        );
    }

    #[test]
    fn an_unknown_offset_is_no_pass() {
        for (u, cpus) in [(None, 1), (None, 2), (Some(5_000.0), 2)] {
            let calibration = Calibration {
                clock_uncertainty_ns: u,
                ..calibration()
            };
            let said = judge(19.0, &calibration, &[20], cpus).said;
            assert!(said.is_open(), "{u:?}");
        }
    }
}
