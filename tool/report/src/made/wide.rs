//! A result of many points, from recorded ones.

use crate::{ResultSet, read_from};
use jostle_model::List;
use jostle_model::record::Fit;

/// A record of three locks at seven numbers of workers.
const RECORD: &str = include_str!("../../../../lab/record/lockscale.jsonl");
const WORKERS: [u64; 12] = [10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 1000];

/// So many targets at so many numbers of workers, six runs of each: figures of recorded runs,
/// each a few thousandths beside the next.
pub(crate) fn wide(targets: usize, workers: usize) -> ResultSet {
    let first = RECORD.split("{\"record\":\"fit\"").next().unwrap();
    let recorded = read_from(&mut first.as_bytes(), "lockscale.jsonl")
        .unwrap()
        .remove(0);
    let mut experiment = recorded.experiment.clone();
    let known = experiment.plan.targets.clone();
    let names: Vec<String> = (1..=targets).map(|n| format!("lock{n:02}")).collect();
    let costs = experiment.calibration.own_cost.clone();
    let cost =
        |(at, name): (usize, &String)| Some((name.clone(), *costs.get(&known[at % known.len()])?));
    experiment.calibration.own_cost = names.iter().enumerate().filter_map(cost).collect();
    experiment.plan.workers = Some(List(WORKERS[..workers].to_vec()));
    experiment.plan.targets.clone_from(&names);
    experiment.plan.runs = Some(6);
    let mut points = Vec::new();
    for run in 1..=6 {
        for (at, name) in names.iter().enumerate() {
            for workers in &WORKERS[..workers] {
                let target = &known[at % known.len()];
                let alike = recorded.runs.iter().filter(|p| {
                    p.target == *target && p.at.workers <= Some(*workers) && p.run == 1 + run % 3
                });
                let mut point = alike.max_by_key(|p| p.at.workers).unwrap().clone();
                let beside = (31 * at as u64 + 7 * workers + 13 * u64::from(run)) % 17;
                let factor = 1.0 + 0.001 * beside as f64;
                point.target.clone_from(name);
                point.at.workers = Some(*workers);
                (point.run, point.block) = (run, run);
                point.throughput_per_s /= factor;
                point.cpu.cpu_us_per_operation =
                    point.cpu.cpu_us_per_operation.map(|us| us * factor);
                points.push(point);
            }
        }
    }
    let mut set = ResultSet::new(experiment, points, recorded.end.clone());
    // Recorded as well: to fit them again takes seconds.
    for (at, name) in names.iter().enumerate() {
        let own = recorded
            .fits
            .iter()
            .filter(|fit| fit.target == known[at % known.len()]);
        set.fits.extend(own.map(|fit| Fit {
            target: name.clone(),
            ..fit.clone()
        }));
    }
    set
}
