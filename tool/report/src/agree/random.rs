//! Random results: made-up ones with some runs left out, and others spoilt.

use crate::{ResultSet, made};
use jostle_model::record::{Accounts, Readings, Run};
use jostle_stats::rng::Rng;
use std::collections::BTreeMap;

/// One of the made-up results with some runs left out, and others spoilt.
pub(super) fn random(rng: &mut Rng) -> ResultSet {
    let mut set = made::EACH[rng.below(made::EACH.len() as u64) as usize]();
    set.fits.clear();
    let keep = 1 + rng.below(4);
    set.runs.retain(|_| rng.below(4) < keep);
    // A fault strikes single runs, a point, or all.
    let (fault, how) = (rng.below(FAULTS.len() as u64) as usize, rng.below(3));
    let unlucky = rng.below(set.runs.len().max(1) as u64) as usize;
    let struck = set
        .runs
        .get(unlucky)
        .map(|point| (point.target.clone(), point.at));
    for run in &mut set.runs {
        // They do not affect the outcome, and would take most of the time.
        (run.workers, run.histograms) = (None, BTreeMap::new());
        let strikes = match how {
            0 => rng.below(3) == 0,
            1 => struck.as_ref() == Some(&(run.target.clone(), run.at)),
            _ => true,
        };
        if strikes {
            FAULTS[fault](run, rng);
        }
    }
    made::finished(set.experiment, set.runs)
}

/// The faults that a run may have.
static FAULTS: &[fn(&mut Run, &mut Rng)] = &[
    |_, _| (),
    |point, rng| drop_to(point, rng.below(40)),
    |run, rng| run.around.machine.stolen_ticks = rng.below(60),
    |run, rng| run.around.machine.throttled_periods = Some(rng.below(3)),
    |run, rng| run.around.machine.halts = Some(rng.below(3)),
    |run, rng| run.around.deaths = vec!["worker 1 died".to_owned(); rng.below(3) as usize],
    |run, rng| {
        run.around.errors.insert("EIO".to_owned(), rng.below(3));
    },
    |run, rng| {
        run.around
            .errors
            .insert("handoff_before_release".to_owned(), rng.below(30));
    },
    |point, rng| point.blocked_share = Some(rng.below(2) as f64),
    |point, rng| point.throughput_per_s *= 1.0 + rng.below(100) as f64 / 50.0,
    |run, rng| run.around.during = (rng.below(2) == 0).then(|| "perf, \"all\"".to_owned()),
    |run, rng| {
        run.exclusion.get_or_insert_default().lost_updates = rng.below(3);
    },
    |point, rng| point.spoilt = rng.below(2) == 0,
    |run, rng| {
        if let Some(hold) = &mut run.times.hold_ns {
            hold.percentiles.insert("p50", 900_000 + rng.below(500_000));
        }
    },
    |run, rng| {
        if let Some(spread) = &mut run.spread {
            spread.effective = rng.below(100) as f64;
        }
    },
    |run, rng| {
        if let Some(server) = &mut run.server {
            server.difference = Some(rng.below(40) as i64 - 20);
        }
    },
    |run, rng| {
        if let Some(connections) = &mut run.connections {
            connections.lost = Some(rng.below(40));
            connections.to_previous = Some(rng.below(10) as f64 / 10.0);
        }
    },
    |run, rng| {
        let seconds = rng.below(30) as f64 / 10.0;
        run.around.accounts = Some(Box::new(Accounts {
            between_s: 5.0,
            cpus: 2,
            waited_s: (rng.below(5) > 0).then_some(seconds),
            others_s: (rng.below(5) > 0).then_some(seconds),
            ..Default::default()
        }));
    },
];

/// Something else took a CPU in so many tenths of the window.
pub(super) fn disturb(run: &mut Run, tenths: u64) {
    const SLICES: u64 = 100;
    let length_us = (run.window.window_s * 1e6) as u64 / SLICES;
    let is_disturbed = |slice: u64| slice < tenths * SLICES / 10;
    let each = |of: &dyn Fn(u64) -> u64| -> Vec<u64> { (0..SLICES).map(of).collect() };
    let foreign_us = each(&|slice| u64::from(is_disturbed(slice)) * length_us);
    let foreign_s = foreign_us.iter().sum::<u64>() as f64 / 1e6;
    run.around.accounts = Some(Box::new(Accounts {
        between_s: run.window.window_s,
        cpus: 2,
        waited_s: Some(foreign_s),
        foreign_s: Some(foreign_s),
        readings: Some(Readings {
            operations: each(&|slice| run.operations / SLICES / (1 + slice % 2)),
            length_us: each(&|_| length_us),
            idle_us: each(&|_| 0),
            stolen_ticks: each(&|_| 0),
            packets: each(&|_| 0),
            foreign_us,
        }),
        ..Accounts::default()
    }));
}

fn drop_to(run: &mut Run, operations: u64) {
    run.operations = operations;
    run.throughput_per_s = operations as f64 / run.window.window_s;
}
