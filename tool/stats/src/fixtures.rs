//! A clean experiment and a clean run, which tests modify.

use crate::checks::{Check, Evidence};
use crate::closing::{comparison, sentences};
use crate::summary::summarize;
use jostle_model::plan::Workload;
use jostle_model::record::{
    Accounts, At, Calibration, Distribution, Environment, Exclusion, Experiment, Is, Latencies,
    Machine, Point, Reason, SCHEMA, Slice, Workers,
};
use jostle_model::{Busy, List, Nanos, Plan};

/// `contend flock sysv -w 10:1000`, hold 1 ms, idle 10 us.
pub(crate) fn experiment() -> Experiment {
    let plan = Plan {
        targets: vec!["flock".to_string(), "sysv".to_string()],
        workers: Some(List(vec![10, 1000])),
        hold: Some(Busy::Sleep(Nanos::from_millis(1))),
        idle: Some(Busy::Sleep(Nanos::from_micros(10))),
        keys: Some(List(vec![1])),
        ..Plan::of(Workload::Contend)
    };
    Experiment {
        schema: SCHEMA.to_string(),
        plan,
        environment: Environment::default(),
        calibration: Calibration::default(),
        target_facts: Default::default(),
        started_at: "2026-01-01T00:00:00Z".to_string(),
    }
}

/// The same on a machine whose sleeps end so many microseconds late, nine in ten of
/// them at most half as much again.
pub(crate) fn late(us: f64) -> Experiment {
    let mut experiment = experiment();
    experiment.calibration.latencies = Some(Latencies {
        sleep_late_p50_ns: us * 1e3,
        sleep_late_p90_ns: us * 1.5e3,
        ..Latencies::default()
    });
    experiment
}

/// Ten workers on `flock` for 5 s, against which nothing speaks. It burns more
/// CPU than a sleeping owner would, so that the checks on ticks have enough of
/// them to judge.
pub(crate) fn point() -> Point {
    let operations = [472, 472, 473, 472, 473, 472, 472, 473, 472, 474];
    let mut point = Point {
        target: "flock".to_string(),
        workload: "contend".to_string(),
        at: At {
            workers: Some(10),
            ..At::default()
        },
        run: 1,
        block: 1,
        window_s: 5.0,
        cpu_s: Some(4.0),
        cpu_us_per_operation: Some(40.0),
        of_ideal: Some(0.94),
        placement: "none".to_string(),
        machine: Machine {
            ticks: 1000,
            busy_ticks: 420,
            stolen_ticks: 2,
            softirq_ticks: 5,
            interrupts: None,
            ticks_per_s: 100,
            cores: 2,
            harness_cpu_s: 0.1,
            between_s: None,
            steal_share: Some(2.0 / 422.0),
            throttled_periods: Some(0),
            halts: Some(0),
            tcp: None,
            tcp_queues: None,
        },
        hold_ns: Some(distribution(4725, 1_001_000)),
        handoff_ns: Some(distribution(4700, 5_000)),
        blocked_share: Some(0.99),
        stamp_every: Some(1),
        stamped: Some(4725),
        exclusion: Some(Exclusion {
            checked: 4725,
            ..Exclusion::default()
        }),
        series: slices(&[472, 473, 471, 474, 472, 473, 472, 474, 471, 473]),
        ..Point::default()
    };
    share_out(&mut point, &operations);
    point
}

/// The same beside programs that used so many seconds of the two CPUs, while workers waited
/// for so many.
pub(crate) fn beside(others_s: f64, waited_s: f64) -> Point {
    Point {
        accounts: Some(Box::new(Accounts {
            between_s: 5.0,
            cpus: 2,
            others_s: Some(others_s),
            waited_s: Some(waited_s),
            stolen_s: Some(0.0),
            ..Accounts::default()
        })),
        ..point()
    }
}

/// Gives each worker its count, and the point the figures that follow from it.
pub(crate) fn share_out(point: &mut Point, operations: &[u64]) {
    point.at.workers = Some(operations.len() as u64);
    point.operations = operations.iter().sum();
    point.throughput_per_s = point.operations as f64 / point.window_s;
    point.per_worker = crate::fairness::per_worker(operations);
    point.workers = Some(Workers {
        operations: operations.to_vec(),
        ..Workers::default()
    });
}

pub(crate) fn slices(operations: &[u64]) -> Vec<Slice> {
    operations
        .iter()
        .map(|operations| Slice {
            operations: *operations,
            ..Slice::default()
        })
        .collect()
}

/// `count` values of which half lie at most at `p50`.
pub(crate) fn distribution(count: u64, p50: u64) -> Distribution {
    Distribution {
        count,
        min: p50,
        max: p50,
        mean: p50 as f64,
        percentiles: [("p50".to_string(), p50)].into(),
        ..Distribution::default()
    }
}

/// What a check says of runs under the clean plan.
pub(crate) fn judge(check: &Check, runs: &[Point]) -> Option<Reason> {
    judge_in(check, &experiment(), runs)
}

/// What a check says of runs.
pub(crate) fn judge_in(check: &Check, experiment: &Experiment, runs: &[Point]) -> Option<Reason> {
    let runs: Vec<&Point> = runs.iter().collect();
    (check.judge)(&Evidence {
        experiment,
        runs: &runs,
    })
}

/// How bad a check finds one run that `doctor` has changed; VALID where it says
/// nothing.
pub(crate) fn after(check: &Check, doctor: impl FnOnce(&mut Point)) -> Is {
    let mut point = point();
    doctor(&mut point);
    judge(check, &[point]).map_or(Is::Valid, |reason| reason.is)
}

/// Runs of `contend`, so many of each point.
pub(crate) struct Made {
    pub points: Vec<Point>,
    blocks: u32,
}

pub(crate) fn made(blocks: u32) -> Made {
    Made {
        points: Vec::new(),
        blocks,
    }
}

impl Made {
    /// Runs of `counts.len()` workers on `target` at a throughput; the counts
    /// decide the fairness.
    pub(crate) fn with(self, target: &str, throughput: f64, cpu_us: f64, counts: &[u64]) -> Made {
        self.varied(target, throughput, cpu_us, |_| counts.to_vec())
    }

    pub(crate) fn varied(
        mut self,
        target: &str,
        throughput: f64,
        cpu_us: f64,
        counts: impl Fn(u32) -> Vec<u64>,
    ) -> Made {
        for block in 1..=self.blocks {
            let mut point = point();
            point.target = target.to_string();
            (point.run, point.block) = (block, block);
            share_out(&mut point, &counts(block));
            // Runs differ by a few thousandths, as real ones do.
            let noise = 1.0 + 0.002 * f64::from((block + self.points.len() as u32) % 5);
            point.throughput_per_s = throughput * noise;
            point.cpu_us_per_operation = Some(cpu_us);
            self.points.push(point);
        }
        self
    }

    /// The closing sentence.
    pub(crate) fn says(&self, target: &str) -> String {
        let experiment = experiment();
        let summaries = summarize(&experiment, &self.points);
        let mut said = sentences(&experiment, &summaries);
        said.retain(|(name, _)| name == target);
        said.pop().unwrap().1
    }

    /// How targets compare.
    pub(crate) fn compares(&self) -> Vec<String> {
        let experiment = experiment();
        let summaries = summarize(&experiment, &self.points);
        comparison(&summaries)
    }
}

/// As a queue shares out `mean` turns each, within one.
pub(crate) fn queue(workers: usize, mean: u64) -> Vec<u64> {
    (0..workers).map(|i| mean + (i % 2) as u64).collect()
}
