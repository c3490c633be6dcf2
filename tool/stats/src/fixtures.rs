//! A clean experiment and a clean run, which tests modify.

use crate::censor;
use crate::checks::{Check, Evidence};
use crate::histogram::Histogram;
use jostle_model::open_loop::OpenLoop;
use jostle_model::plan::Workload;
use jostle_model::record::{
    Accounts, At, Calibration, Circumstances, Cpu, Distribution, Environment, Exclusion,
    Experiment, Latencies, Machine, Null, Phase, Reason, Run, SCHEMA, Slice, Status, Times, Window,
    Workers,
};
use jostle_model::{Busy, List, Nanos, Plan};

/// `contend flock sysv -w 10:1000`, hold 1 ms, idle 10 us.
pub fn experiment() -> Experiment {
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

/// A machine whose sleeps end so many microseconds late, nine in ten of them at most half as much
/// again.
pub fn late(us: f64) -> Experiment {
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
pub fn point() -> Run {
    let operations = [472, 472, 473, 472, 473, 472, 472, 473, 472, 474];
    let mut run = Run {
        target: "flock".to_string(),
        workload: "contend".to_string(),
        at: At {
            workers: Some(10),
            ..At::default()
        },
        run: 1,
        block: 1,
        window: Window {
            window_s: 5.0,
            ..Window::default()
        },
        cpu: Cpu {
            cpu_s: Some(4.0),
            cpu_us_per_operation: Some(40.0),
            ..Cpu::default()
        },
        of_ideal: Some(0.94),
        placement: "none".to_string(),
        around: Circumstances {
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
                repinned: None,
                halts: Some(0),
                tcp: None,
                tcp_queues: None,
            },
            ..Circumstances::default()
        },
        times: Times {
            hold_ns: Some(distribution(4725, 1_001_000)),
            handoff_ns: Some(distribution(4700, 5_000)),
            ..Times::default()
        },
        blocked_share: Some(0.99),
        stamp_every: Some(1),
        stamped: Some(4725),
        exclusion: Some(Exclusion {
            checked: 4725,
            ..Exclusion::default()
        }),
        series: slices(&[472, 473, 471, 474, 472, 473, 472, 474, 471, 473]),
        ..Run::default()
    };
    share_out(&mut run, &operations);
    run
}

/// A run beside programs that used so many seconds of the two CPUs, while workers waited for so
/// many.
pub fn beside(others_s: f64, waited_s: f64) -> Run {
    Run {
        around: Circumstances {
            accounts: Some(Box::new(Accounts {
                between_s: 5.0,
                cpus: 2,
                others_s: Some(others_s),
                waited_s: Some(waited_s),
                stolen_s: Some(0.0),
                ..Accounts::default()
            })),
            ..point().around
        },
        ..point()
    }
}

/// Gives each worker its count, and the point the figures that follow from it.
pub fn share_out(run: &mut Run, operations: &[u64]) {
    run.at.workers = Some(operations.len() as u64);
    run.operations = operations.iter().sum();
    run.throughput_per_s = run.operations as f64 / run.window.window_s;
    run.per_worker = crate::fairness::per_worker(operations);
    run.workers = Some(Workers {
        operations: operations.to_vec(),
        ..Workers::default()
    });
}

/// A series of slices with so many operations each.
pub fn slices(operations: &[u64]) -> Vec<Slice> {
    operations
        .iter()
        .map(|operations| Slice {
            operations: *operations,
            ..Slice::default()
        })
        .collect()
}

/// `count` values of which half lie at most at `p50`.
pub fn distribution(count: u64, p50: u64) -> Distribution {
    Distribution {
        count,
        min: p50,
        max: p50,
        mean: p50 as f64,
        percentiles: [("p50".to_string(), p50)].into(),
        ..Distribution::default()
    }
}

/// A check's reason about runs under the clean plan.
pub fn judge(check: &Check, runs: &[Run]) -> Option<Reason> {
    judge_in(check, &experiment(), runs)
}

/// A check's reason about runs.
pub fn judge_in(check: &Check, experiment: &Experiment, runs: &[Run]) -> Option<Reason> {
    let runs: Vec<&Run> = runs.iter().collect();
    check.look(&Evidence {
        experiment,
        runs: &runs,
    })
}

/// How bad a check finds one run that `doctor` has changed; VALID where it says
/// nothing.
pub fn after(check: &Check, doctor: impl FnOnce(&mut Run)) -> Status {
    let mut point = point();
    doctor(&mut point);
    judge(check, &[point]).map_or(Status::Valid, |reason| reason.is)
}

/// Runs of `contend`, so many of each point.
pub struct Made {
    /// Each run.
    pub runs: Vec<Run>,
    blocks: u32,
}

/// None yet; so many runs of each point.
pub fn made(blocks: u32) -> Made {
    Made {
        runs: Vec::new(),
        blocks,
    }
}

impl Made {
    /// Runs of `counts.len()` workers on `target` at a throughput; the counts
    /// decide the fairness.
    pub fn with(self, target: &str, throughput: f64, cpu_us: f64, counts: &[u64]) -> Made {
        self.varied(target, throughput, cpu_us, |_| counts.to_vec())
    }

    /// Runs with other counts in each block.
    pub fn varied(
        mut self,
        target: &str,
        throughput: f64,
        cpu_us: f64,
        counts: impl Fn(u32) -> Vec<u64>,
    ) -> Made {
        for block in 1..=self.blocks {
            let mut run = point();
            run.target = target.to_string();
            (run.run, run.block) = (block, block);
            share_out(&mut run, &counts(block));
            // Runs differ by a few thousandths, as real ones do.
            let noise = 1.0 + 0.002 * f64::from((block + self.runs.len() as u32) % 5);
            run.throughput_per_s = throughput * noise;
            run.cpu.cpu_us_per_operation = Some(cpu_us);
            self.runs.push(run);
        }
        self
    }
}

/// As a queue shares out `mean` turns each, within one.
pub fn queue(workers: usize, mean: u64) -> Vec<u64> {
    (0..workers).map(|i| mean + (i % 2) as u64).collect()
}

/// A rated run: how many of 1,000 planned ones were done, and what these and the others were late
/// by, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Rated {
    /// Planned requests per second.
    pub rate: u64,
    /// Requests that were answered.
    pub done: u64,
    /// Response time of each.
    pub response_us: u64,
    /// How late each was sent, by its generator.
    pub generator_lag_us: u64,
    /// How late each was sent, since none of its connections was free.
    pub target_lag_us: u64,
    /// How late a thread that only sleeps was.
    pub canary_lag_us: u64,
}

impl Rated {
    /// All planned requests are done in 400 us.
    pub fn at(rate: u64) -> Rated {
        Rated {
            rate,
            done: 1_000,
            response_us: 400,
            generator_lag_us: 20,
            target_lag_us: 0,
            canary_lag_us: 20,
        }
    }

    /// The run as it is recorded.
    pub fn run(self) -> Run {
        let all = |us: u64, count: u64| {
            let mut histogram = Histogram::new();
            histogram.record_n(us * 1_000, count);
            histogram
        };
        let (response, dropped) = (all(self.response_us, self.done), 1_000 - self.done);
        let mut unanswered = Histogram::new();
        unanswered.record_n(1_000_000_000, dropped);
        let waits = censor::waits(&response, &unanswered, &[]);
        let mut run = Run {
            target: "lockd".to_owned(),
            workload: "rate".to_owned(),
            at: At {
                workers: Some(64),
                rate: Some(self.rate),
                ..At::default()
            },
            run: 1,
            block: 1,
            window: Window {
                window_s: 5.0,
                ..Window::default()
            },
            operations: self.done,
            throughput_per_s: self.done as f64 / 5.0,
            times: Times {
                response_ns: response.distribution(&[]),
                ..Times::default()
            },
            open_loop: Some(Box::new(OpenLoop {
                planned: 1_000,
                done: self.done,
                dropped,
                response_kaplan_meier: waits
                    .as_ref()
                    .map(|of| of.kaplan_meier.clone())
                    .unwrap_or_default(),
                response_at_least: waits.map(|of| of.at_least).unwrap_or_default(),
                ..OpenLoop::default()
            })),
            ..Run::default()
        };
        for (name, histogram) in [
            ("response_ns", response),
            (
                "service_ns",
                all(self.response_us - self.target_lag_us, self.done),
            ),
            ("unanswered_ns", unanswered),
            ("generator_lag_ns", all(self.generator_lag_us, self.done)),
            ("target_lag_ns", all(self.target_lag_us, self.done)),
            ("canary_lag_ns", all(self.canary_lag_us, 5_000)),
        ] {
            run.histograms
                .insert(name.to_owned(), histogram.to_buckets());
        }
        run
    }
}

fn calls_of(mean: f64) -> Distribution {
    Distribution {
        count: 1_000,
        mean,
        percentiles: [("p50".to_owned(), mean as u64)].into(),
        ..Distribution::default()
    }
}

/// Six runs with so many workers, of which a call takes so many microseconds
/// and one that does nothing so many.
pub fn calls(workers: u64, us: f64, null_us: f64) -> Vec<Run> {
    let run = |block: u32| {
        let us = us + f64::from(block) / 10.0;
        Run {
            target: "exec:ls".to_owned(),
            at: At {
                workers: Some(workers),
                operations: Some(1_000),
                ..At::default()
            },
            run: block,
            block,
            throughput_per_s: workers as f64 * 1e6 / us,
            times: Times {
                service_ns: Some(calls_of(1e3 * us)),
                ..Times::default()
            },
            phases: [("spawn", 0.75), ("run", 0.25)]
                .map(|(phase, share)| Phase {
                    phase: phase.to_owned(),
                    span: calls_of(1e3 * us * share),
                })
                .into(),
            null: Some(Null {
                target: "exec:true".to_owned(),
                service_ns: calls_of(1e3 * null_us),
                cpu_us_per_operation: 1.0,
            }),
            ..point()
        }
    };
    (1..=6).map(run).collect()
}
