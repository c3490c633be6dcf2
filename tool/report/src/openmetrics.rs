//! `--format openmetrics`: finished points as metrics, and the same text with what is going
//! on for `--metrics`. Names carry their unit; nothing here has a time stamp.
//!
//! Figures of an INVALID point are left out, as everywhere; its verdict is there.

use crate::ResultSet;
use crate::format::each_once;
use jostle_model::plan::Workload;
use jostle_model::record::{At, Buckets, Run, Status};
use jostle_model::swept::SWEPT;
use jostle_stats::figures;
use jostle_stats::histogram::Histogram;
use jostle_stats::summary::{Estimate, PointSummary, summarize};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

/// The type of the text, for HTTP.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the buckets of latencies in nanoseconds: 1, 2.5 and 5 of each decade,
/// from 100 ns to 100 s.
const BOUNDS: [u64; 28] = {
    let mut bounds = [0; 28];
    let (mut decade, mut at) = (100, 0);
    while at < 27 {
        bounds[at] = decade;
        bounds[at + 1] = decade * 5 / 2;
        bounds[at + 2] = decade * 5;
        (decade, at) = (decade * 10, at + 3);
    }
    bounds[27] = decade;
    bounds
};

const NS_PER_S: f64 = 1e9;

/// The state of a measurement under way.
#[derive(Clone, Debug, Default)]
pub struct Now {
    /// Seconds since the beginning.
    pub elapsed_s: f64,
    /// Runs of all experiments that were planned so far; zero: none yet.
    pub runs_planned: u64,
    /// Runs that are finished.
    pub runs_finished: u64,
    /// The run in progress.
    pub run: Option<NowRun>,
}

/// The run in progress. Its counters begin with it.
#[derive(Clone, Debug)]
pub struct NowRun {
    /// From 1.
    pub experiment: usize,
    /// The work of the workers.
    pub workload: Workload,
    /// As typed.
    pub target: String,
    /// The swept values.
    pub at: At,
    /// Operations so far.
    pub operations: u64,
    /// Operations a second since the look before.
    pub per_s: Option<f64>,
    /// The timed latency, by its name in the record, all times so far, and their sum.
    pub latency: Option<(String, Buckets, u64)>,
    /// Operations of the worker with the fewest and of the one with the most.
    pub workers: Option<(u64, u64)>,
    /// Overlaps so far.
    pub overlaps: Option<u64>,
    /// CPUs in use by workers, server, jostle and others.
    pub cpus: Option<[f64; 4]>,
}

/// All finished points of these results.
pub fn render(sets: &[ResultSet]) -> String {
    joined(&finished(sets), &Now::default())
}

/// Finished points, without an end, for [`joined`].
pub fn finished(sets: &[ResultSet]) -> String {
    let mut samples = Vec::new();
    for (set, nth) in sets.iter().zip(1..) {
        samples.push(("experiment_info", experiment(nth, set), Value::Gauge(1.0)));
        for point in summarize(&set.experiment, &set.runs) {
            add_point(&mut samples, nth, &point);
        }
    }
    text(samples)
}

/// Finished points with what is going on, to the end.
pub fn joined(finished: &str, now: &Now) -> String {
    let mut whole = finished.to_owned();
    if now.elapsed_s > 0.0 {
        whole += &text(going_on(now));
    }
    // Writing to a text cannot fail.
    let _ = encode_eof(&mut whole);
    whole
}

/// The first latency that a run timed, by its name in the record, with all times.
fn latency(run: &Run) -> Option<(&'static str, Histogram)> {
    const NAMES: [&str; 5] = [
        "response_ns",
        "service_ns",
        "batch_ns",
        "acquire_ns",
        "bind_ns",
    ];
    let of = |name: &str| run.histograms.get(name).map(Histogram::from_buckets);
    let connects = ["connect_even_ns", "connect_odd_ns"].iter();
    let connects = connects.filter_map(|name| of(name)).reduce(|mut sum, one| {
        sum.merge(&one);
        sum
    });
    match connects {
        Some(connects) => Some(("connect_ns", connects)),
        None => NAMES.iter().find_map(|name| Some((*name, of(name)?))),
    }
}

type Labels = Vec<(String, String)>;

#[derive(Clone, Debug)]
enum Value {
    Gauge(f64),
    Counter(u64),
    /// Sum, count, and counts by upper bound.
    Histogram(f64, u64, Vec<(f64, u64)>),
}

impl Value {
    fn kind(&self) -> MetricType {
        match self {
            Value::Gauge(_) => MetricType::Gauge,
            Value::Counter(_) => MetricType::Counter,
            Value::Histogram(..) => MetricType::Histogram,
        }
    }
}

/// A value, behind the name of its family.
type Sample = (&'static str, Labels, Value);

#[derive(Debug)]
struct Samples(Vec<Sample>);

impl Collector for Samples {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help) in FAMILIES {
            let of_it = || self.0.iter().filter(|(family, ..)| family == name);
            let Some((.., first)) = of_it().next() else {
                continue;
            };
            let unit = IN_SECONDS.contains(name).then_some(Unit::Seconds);
            let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), first.kind())?;
            for (_, labels, value) in of_it() {
                let mut sample = metric.encode_family(labels)?;
                match value {
                    Value::Gauge(value) => sample.encode_gauge(value)?,
                    Value::Counter(value) => {
                        sample.encode_counter::<NoLabelSet, _, u64>(value, None)?;
                    }
                    Value::Histogram(sum, count, buckets) => {
                        sample.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn text(samples: Vec<Sample>) -> String {
    let mut registry = Registry::with_prefix("jostle");
    registry.register_collector(Box::new(Samples(samples)));
    let mut text = String::new();
    // Writing to a text cannot fail.
    let _ = encode_registry(&mut text, &registry);
    text
}

fn label(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}

fn experiment(nth: usize, set: &ResultSet) -> Labels {
    let experiment = &set.experiment;
    vec![
        label("experiment", nth),
        label("workload", experiment.plan.workload),
        label("host", &experiment.environment.host),
        label("kernel", &experiment.environment.kernel),
        label("started_at", &experiment.started_at),
    ]
}

/// A point is told by its experiment, target and swept values.
fn labels(experiment: usize, workload: Workload, target: &str, at: At) -> Labels {
    let mut labels = vec![
        label("experiment", experiment),
        label("workload", workload),
        label("target", target),
    ];
    let swept = SWEPT.iter();
    labels.extend(swept.filter_map(|swept| Some(label(swept.name, (swept.text)(&at)?))));
    labels
}

fn with(labels: &Labels, name: &str, value: impl ToString) -> Labels {
    let mut labels = labels.clone();
    labels.push(label(name, value));
    labels
}

/// Every family in the order of the text, with its help: of finished points, of all runs, and
/// of the run in progress.
static FAMILIES: &[(&str, &str)] = &[
    ("experiment_info", "What was measured, where and when"),
    ("point_runs", "Finished runs of the point"),
    (
        "point_operations_per_second",
        "Throughput of the point; bound median, low or high (95 % interval from 6 runs on, else range)",
    ),
    ("point_cpu", "Workers' CPU time for an operation"),
    ("point_latency", "What operations took, all runs together"),
    (
        "point_overlaps",
        "Acquisitions that found another owner inside",
    ),
    ("point_violations", "Violations of the lock's promise"),
    (
        "point_verdict",
        "1 at the verdict of the point, 0 at the others",
    ),
    (
        "point_reason",
        "The reasons of the verdict, by the name of their check",
    ),
    ("elapsed", "Time since the beginning"),
    ("runs_planned", "Runs that were planned so far"),
    ("runs_finished", "Runs that are finished"),
    ("run_operations", "Operations of the run in progress"),
    (
        "run_operations_per_second",
        "Throughput of the run in progress since the look before",
    ),
    ("run_latency", "What operations of the run in progress took"),
    (
        "run_worker_operations",
        "Operations of the workers with the fewest and the most",
    ),
    (
        "run_overlaps",
        "Acquisitions of the run in progress that found another owner inside",
    ),
    ("run_cpus", "CPUs in use since the look before, by owner"),
];

const IN_SECONDS: [&str; 4] = ["point_cpu", "point_latency", "elapsed", "run_latency"];

fn add_point(samples: &mut Vec<Sample>, experiment: usize, point: &PointSummary<'_>) {
    let own = labels(experiment, point.workload, point.target, point.at);
    let mut add = |family, labels, value| samples.push((family, labels, value));
    add(
        "point_runs",
        own.clone(),
        Value::Gauge(point.runs.len() as f64),
    );
    for is in [Status::Valid, Status::Suspect, Status::Invalid] {
        let here = f64::from(u8::from(point.verdict.is == is));
        add(
            "point_verdict",
            with(&own, "verdict", is),
            Value::Gauge(here),
        );
    }
    let checks = point.verdict.reasons.iter().map(|reason| &reason.check);
    for check in each_once(checks) {
        let labels = with(&own, "check", check);
        add("point_reason", labels, Value::Gauge(1.0));
    }
    let witnessed = point.runs.iter().filter_map(|run| run.exclusion.as_ref());
    if let Some(sum) = witnessed.map(|seen| seen.violations).reduce(|a, b| a + b) {
        add("point_overlaps", own.clone(), Value::Gauge(sum as f64));
    }
    let runs = point.runs.iter();
    let violations = runs.filter_map(|run| (figures::VIOLATIONS.of)(run));
    if let Some(sum) = violations.reduce(|a, b| a + b) {
        add("point_violations", own.clone(), Value::Gauge(sum));
    }
    if !point.is_usable() {
        return;
    }
    // How long the next grant took is the answer of `recover`; its operations have no rate.
    let rated = !matches!(point.workload, Workload::Recover | Workload::Verify);
    if let Some(estimate) = point.of(figures::THROUGHPUT).filter(|_| rated) {
        for (bound, value) in bounds(&estimate) {
            let labels = with(&own, "bound", bound);
            add("point_operations_per_second", labels, Value::Gauge(value));
        }
    }
    if let Some(cpu_us) = point.median(figures::CPU) {
        add("point_cpu", own.clone(), Value::Gauge(cpu_us / 1e6));
    }
    let timed = point.timed.iter().filter(|_| point.times_are_usable());
    let timed = timed.filter_map(|run| latency(run));
    let all = timed.reduce(|(name, mut sum), (_, one)| {
        sum.merge(&one);
        (name, sum)
    });
    if let Some((name, all)) = all {
        let sum_s = all.mean().unwrap_or(0.0) * all.count() as f64 / NS_PER_S;
        let labels = with(&own, "figure", figure(name));
        add("point_latency", labels, histogram(&all.to_buckets(), sum_s));
    }
}

fn bounds(estimate: &Estimate) -> [(&'static str, f64); 3] {
    [
        ("median", estimate.median),
        ("low", estimate.low),
        ("high", estimate.high),
    ]
}

/// `acquire` of `acquire_ns`: the metric is in seconds.
fn figure(name: &str) -> &str {
    name.trim_end_matches("_ns")
}

/// Counts by the bounds. A bucket that a bound cuts counts as below it, so that bounds are
/// off by up to a bucket's width, 0.8 %.
fn histogram(buckets: &Buckets, sum_s: f64) -> Value {
    let bounds = BOUNDS.iter().map(|bound| *bound as f64 / NS_PER_S);
    let counts = bounds.chain([f64::INFINITY]).map(|bound| (bound, 0));
    let mut counts: Vec<(f64, u64)> = counts.collect();
    let mut all = 0;
    for (floor, count) in &buckets.0 {
        let at = BOUNDS.partition_point(|bound| bound < floor);
        counts[at].1 += count;
        all += count;
    }
    Value::Histogram(sum_s, all, counts)
}

fn going_on(now: &Now) -> Vec<Sample> {
    let single = |family, value| (family, Labels::new(), value);
    let planned = Value::Gauge(now.runs_planned as f64);
    let planned = (now.runs_planned > 0).then(|| single("runs_planned", planned));
    let mut samples = vec![
        single("elapsed", Value::Gauge(now.elapsed_s)),
        single("runs_finished", Value::Counter(now.runs_finished)),
    ];
    samples.extend(planned);
    samples.extend(now.run.iter().flat_map(in_progress));
    samples
}

fn in_progress(run: &NowRun) -> Vec<Sample> {
    let own = labels(run.experiment, run.workload, &run.target, run.at);
    let one = |family, value| (family, own.clone(), value);
    let of = |family, name, label: &str, value| (family, with(&own, name, label), value);
    let mut samples = vec![one("run_operations", Value::Counter(run.operations))];
    let per_s = run.per_s.map(Value::Gauge);
    samples.extend(per_s.map(|per_s| one("run_operations_per_second", per_s)));
    if let Some((name, buckets, sum_ns)) = &run.latency {
        let times = histogram(buckets, *sum_ns as f64 / NS_PER_S);
        samples.push(of("run_latency", "figure", figure(name), times));
    }
    if let Some((least, most)) = run.workers {
        for (which, count) in [("least", least), ("most", most)] {
            let count = Value::Gauge(count as f64);
            samples.push(of("run_worker_operations", "worker", which, count));
        }
    }
    let overlaps = run.overlaps.map(Value::Counter);
    samples.extend(overlaps.map(|count| one("run_overlaps", count)));
    let cpus = OWNERS.iter().zip(run.cpus.into_iter().flatten());
    samples.extend(cpus.map(|(owner, used)| of("run_cpus", "owner", owner, Value::Gauge(used))));
    samples
}

/// Who uses CPUs, in the order of [`NowRun::cpus`].
pub(crate) const OWNERS: [&str; 4] = ["workers", "server", "jostle", "others"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;
    use std::collections::BTreeSet;

    /// The samples of a metric.
    fn samples<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
        let of = |line: &&str| line.split(['{', ' ']).next() == Some(name);
        text.lines().filter(of).collect()
    }

    fn value(line: &str) -> f64 {
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    #[test]
    fn the_figures_are_those_of_the_summary() {
        let set = made::set();
        let text = render(std::slice::from_ref(&set));
        assert!(text.ends_with("# EOF\n"), "{text}");
        let points = summarize(&set.experiment, &set.runs);
        let rates = samples(&text, "jostle_point_operations_per_second");
        let medians: Vec<f64> = rates
            .iter()
            .filter(|line| line.contains("bound=\"median\""))
            .map(|line| value(line))
            .collect();
        let expected: Vec<f64> = points
            .iter()
            .filter(|point| !point.verdict.is_invalid())
            .filter_map(|point| point.median(figures::THROUGHPUT))
            .collect();
        assert_eq!(medians, expected);
        assert!(!medians.is_empty());
        let verdicts = samples(&text, "jostle_point_verdict");
        assert_eq!(verdicts.len(), 3 * points.len());
        let given: Vec<&&str> = verdicts.iter().filter(|line| value(line) == 1.0).collect();
        for (line, point) in given.iter().zip(&points) {
            let is = format!("verdict=\"{}\"", point.verdict.is);
            assert!(line.contains(&is), "{line}");
        }
    }

    #[test]
    fn latencies_are_counted_by_bounds_and_none_is_lost() {
        let buckets = Buckets(vec![
            (99, 1),
            (100, 2),
            (104, 4),
            (3_000_000_000, 8),
            (1 << 40, 16),
        ]);
        let Value::Histogram(sum, count, counts) = histogram(&buckets, 1.5) else {
            panic!("no histogram");
        };
        assert_eq!((sum, count), (1.5, 31));
        assert_eq!(counts[0], (1e-7, 3));
        assert_eq!(counts[1], (2.5e-7, 4));
        let of = |bound: f64| counts.iter().find(|(known, _)| *known == bound);
        assert_eq!(of(5.0), Some(&(5.0, 8)));
        assert_eq!(counts.last(), Some(&(f64::INFINITY, 16)));
        assert_eq!(BOUNDS.last(), Some(&100_000_000_000));
        assert!(BOUNDS.is_sorted());
    }

    #[test]
    fn faults_are_told_apart_and_have_no_rate() {
        let text = render(&[made::recovered()]);
        let series = text.lines().filter(|line| !line.starts_with('#'));
        let names = series.filter_map(|line| Some(line.rsplit_once(' ')?.0));
        let names: Vec<&str> = names.collect();
        let once: BTreeSet<&&str> = names.iter().collect();
        assert_eq!(once.len(), names.len(), "{text}");
        assert_eq!(samples(&text, "jostle_point_runs").len(), 3, "{text}");
        assert!(text.contains("fault=\"kill\""), "{text}");
        assert!(!text.contains("jostle_point_operations_per_second"));
    }

    #[test]
    fn what_a_user_named_is_escaped() {
        let mut set = made::set();
        set.experiment.environment.host = "a\"b\\c\nd".to_owned();
        let text = render(&[set]);
        assert!(text.contains(r#"host="a\"b\\c\nd""#), "{text}");
    }

    #[test]
    fn what_is_going_on_follows_and_the_text_ends_once() {
        let now = Now {
            elapsed_s: 12.5,
            runs_planned: 6,
            runs_finished: 2,
            run: Some(NowRun {
                experiment: 1,
                workload: Workload::Contend,
                target: "flock".to_owned(),
                at: At::default(),
                operations: 70,
                per_s: Some(35.0),
                latency: Some(("acquire_ns".to_owned(), Buckets(vec![(1_000, 70)]), 70_000)),
                workers: Some((3, 9)),
                overlaps: Some(0),
                cpus: Some([1.0, 0.0, 0.1, 0.25]),
            }),
        };
        let text = joined(&finished(&[made::set()]), &now);
        assert_eq!(text.matches("# EOF").count(), 1);
        assert!(text.contains("le=\"+Inf\""));
        for (name, sample) in [
            ("jostle_elapsed_seconds", " 12.5"),
            ("jostle_runs_finished_total", " 2"),
            ("jostle_run_operations_total", " 70"),
            ("jostle_run_latency_seconds_count", " 70"),
            ("jostle_run_overlaps_total", " 0"),
        ] {
            let found = samples(&text, name);
            assert!(
                found.len() == 1 && found[0].ends_with(sample),
                "{name}: {found:?}"
            );
        }
        let others = samples(&text, "jostle_run_cpus");
        assert!(others[3].contains("owner=\"others\"") && others[3].ends_with(" 0.25"));
        // A family stands in one place.
        let types = || text.lines().filter(|line| line.starts_with("# TYPE"));
        let once: BTreeSet<&str> = types().collect();
        assert_eq!(once.len(), types().count());
    }
}
