//! Did the tool's own cost distort the figure?

use super::{Evidence, Found, measured, percent};
use jostle_model::plan::{Measure, Shape, Workload};
use jostle_model::record::{Claim, OwnCost};
use jostle_model::{Busy, Remedy};

/// Share of a cycle.
const MOST: f64 = 0.10;

check! {
    "own_cost" in "share":
        "By how much do stamps and witness lengthen the time from one grant to the next?";
    threshold: text!("above {}: SUSPECT for `absolute`", percent(MOST)),
    source: "the cost is measured on each target with one worker before the first run, the time \
             is that of the printed rate, or of a cycle without contention where that is longer; \
             a tenth is as much as a difference between two locks that matters",
    fooled_by: "contention: the cache line of the witness moves between CPUs with the lock, so that \
                the share is a lower bound",
    advice: "count only, for the bare rate",
    words: text!(
        |reason| "measuring makes the time from one grant to the next {} longer",
        percent(measured(reason))
    ),
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let experiment = evidence.experiment;
    let plan = &experiment.plan;
    if plan.measure == Some(Measure::Counts) {
        return None;
    }
    if plan.pipeline() > 1 {
        // One pair of stamps and no witness for a whole batch.
        return None;
    }
    let target = &evidence.runs.first()?.target;
    let cost = experiment.calibration.own_cost.get(target)?;
    let busy = |time: Option<Busy>| time.map_or(0.0, |time| time.span().0 as f64);
    let added_ns = added_ns(plan.workload, cost, experiment.calibration.stamp_ns);
    let alone_ns = cost.pair_ns + busy(plan.hold) + busy(plan.idle);
    // As the table shows it. With several locks grants follow each other faster than a cycle ends.
    let per_s = evidence.median(|run| Some(run.throughput_per_s));
    let printed_ns = per_s.map_or(0.0, |per_s| 1e9 / per_s - added_ns);
    let cycle_ns = alone_ns.max(printed_ns);
    let share = added_ns / cycle_ns;
    // A cycle without length has no share.
    let is_share = (100.0 * share).is_finite();
    (share > MOST && is_share).then(|| {
        Found::suspect(&[Claim::Absolute], share, MOST)
            .remedy(Remedy::with("--measure", Measure::Counts))
    })
}

/// The cost that measuring adds to the mean cycle if one operation in `stamp_every` is
/// stamped: the witness (full - no_witness) and the release stamp for every operation, the
/// other stamps and the histograms for one in `stamp_every`. A stream has no release stamp;
/// `hold` has neither release stamp nor witness.
fn added_ns(workload: Workload, cost: &OwnCost, stamp_ns: f64) -> f64 {
    let witness = (cost.full_ns - cost.no_witness_ns).max(0.0);
    let always = match workload.shape() {
        Shape::Contend => witness + stamp_ns,
        Shape::Stream => witness,
        // Connections have no lock on which it could be measured.
        Shape::Hold | Shape::Connect | Shape::Rate | Shape::Spread => 0.0,
        Shape::Recover | Shape::Verify => 0.0,
    };
    let always = always.min(cost.added_ns);
    always + (cost.added_ns - always).max(0.0) / cost.stamp_every.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::checks::Evidence;
    use crate::fixtures::{experiment, point};
    use jostle_model::plan::Measure;
    use jostle_model::record::{Experiment, OwnCost, Status};
    use jostle_model::{Busy, Nanos};

    /// With so many grants a second.
    fn at(
        per_s: f64,
        pair_ns: f64,
        hold_ns: u64,
        stamp_every: u64,
        change: fn(&mut Experiment),
    ) -> Status {
        let mut experiment = experiment();
        let cost = OwnCost {
            pair_ns,
            pair_fastest_ns: None,
            full_ns: pair_ns + 120.0,
            no_stamps_ns: pair_ns + 20.0,
            no_witness_ns: pair_ns + 100.0,
            added_ns: 120.0,
            added_range_ns: [118.0, 125.0],
            stamp_every,
        };
        experiment.calibration.stamp_ns = 20.0;
        experiment
            .calibration
            .own_cost
            .insert("flock".to_string(), cost);
        experiment.plan.hold = Some(Busy::Sleep(Nanos(hold_ns)));
        experiment.plan.idle = Some(Busy::Sleep(Nanos(0)));
        change(&mut experiment);
        let mut point = point();
        point.throughput_per_s = per_s;
        let reason = CHECK.look(&Evidence {
            experiment: &experiment,
            runs: &[&point],
        });
        reason.map_or(Status::Valid, |reason| reason.is)
    }

    /// Without contention.
    fn found(pair_ns: f64, hold_ns: u64, stamp_every: u64, change: fn(&mut Experiment)) -> Status {
        at(1e12, pair_ns, hold_ns, stamp_every, change)
    }

    /// 99 ns were called 13 % of a cycle of 763 ns where the table had 30,000 locks/s.
    #[test]
    fn between_contenders_the_cycle_is_the_one_that_the_table_shows() {
        for (per_s, is) in [
            (30_000.0, Status::Valid),
            (757_000.0, Status::Valid), // 1,321 ns, of which 120 are measuring
            (758_000.0, Status::Suspect),
            (5e6, Status::Suspect), // faster than a cycle alone: several locks
        ] {
            assert_eq!(at(per_s, 763.0, 0, 1, |_| ()), is, "{per_s}");
        }
    }

    #[test]
    fn a_tenth_of_the_cycle_is_the_limit() {
        let table = [
            // pair ns, hold ns, stamped one in
            (200.0, 1_000_000, 1, Status::Valid), // a hold of 1 ms hides it
            (200.0, 1_000, 1, Status::Valid),     // 120 of 1200
            (200.0, 999, 1, Status::Suspect),
            (200.0, 0, 8, Status::Suspect), // 40 + 80/8 of 200
            (500.0, 0, 8, Status::Valid),
            (21.0, 0, 1000, Status::Suspect),
        ];
        for (pair, hold, every, is) in table {
            assert_eq!(
                found(pair, hold, every, |_| ()),
                is,
                "{pair} {hold} {every}"
            );
        }
    }

    #[test]
    fn counting_alone_costs_nothing() {
        let counts = |e: &mut Experiment| e.plan.measure = Some(Measure::Counts);
        assert_eq!(found(21.0, 0, 1000, counts), Status::Valid);
    }
}
