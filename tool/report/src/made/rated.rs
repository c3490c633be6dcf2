//! Results of `rate`: so many requests in each run, some of them sent late.

use super::{Times, experiment, finished, run_of};
use crate::ResultSet;
use jostle_model::List;
use jostle_model::open_loop::OpenLoop;
use jostle_model::plan::{Plan, Workload};
use jostle_model::record::{At, Run};
use jostle_stats::censor;
use jostle_stats::histogram::Histogram;

/// At 100/s, `done[run]` requests that were answered, and at 2,000/s four times as many; 10
/// more were planned of each. Every `late`th was sent 5 ms late.
pub(crate) fn rated(done: &[u64], late: u64) -> ResultSet {
    let mut points = Vec::new();
    for (run, done) in (1..).zip(done) {
        points.extend(
            [(100, *done), (2_000, 4 * done)].map(|(rate, done)| run_at(rate, run, done, late)),
        );
    }
    let mut experiment = experiment();
    experiment.plan = Plan {
        targets: vec!["lockd".to_owned()],
        rate: Some(List(vec![100, 2_000])),
        ..Plan::of(Workload::Rate)
    };
    finished(experiment, points)
}

fn run_at(rate: u64, run: u32, done: u64, late: u64) -> Run {
    let of = |each: &dyn Fn(u64) -> u64| {
        let mut histogram = Histogram::new();
        (0..done).for_each(|nth| histogram.record(each(nth)));
        histogram
    };
    let service = of(&|nth| 200_000 + 100 * nth + u64::from(run));
    let lag = of(&|nth| match nth % late {
        0 => 5_000_000,
        _ => 15_000,
    });
    let mut unanswered = Histogram::new();
    unanswered.record_n(1_000_000_000, 10);
    let waits = censor::waits(&service, &unanswered, &[]).unwrap();
    let at = At {
        rate: Some(rate),
        ..At::default()
    };
    Run {
        operations: done,
        throughput_per_s: done as f64,
        times: Times {
            service_ns: service.distribution(&[]),
            response_ns: service.distribution(&[]),
            ..Times::default()
        },
        open_loop: Some(Box::new(OpenLoop {
            planned: done + 10,
            done,
            dropped: 10,
            response_kaplan_meier: waits.kaplan_meier,
            response_at_least: waits.at_least,
            generator_lag_ns: lag.distribution(&[]),
            target_lag_ns: lag.distribution(&[]),
            canary_lag_ns: lag.distribution(&[]),
            ..OpenLoop::default()
        })),
        histograms: [
            ("response_ns", &service),
            ("service_ns", &service),
            ("unanswered_ns", &unanswered),
            ("generator_lag_ns", &lag),
            ("target_lag_ns", &lag),
            ("canary_lag_ns", &lag),
        ]
        .map(|(name, histogram)| (name.to_owned(), histogram.to_buckets()))
        .into(),
        ..run_of("lockd", Workload::Rate, at, run, 1.0)
    }
}
