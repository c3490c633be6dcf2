//! The values that each drawing of a page must show, from the records alone.

use jostle_model::judged::{Side, Watched};
use jostle_model::record::{Distribution, Fit, Recovery, Run, Slice};
use jostle_model::serial::{distributions, sizes};
use jostle_report::ResultSet;
use jostle_stats::figures;
use jostle_stats::fit::laws::Law;
use jostle_stats::fit::sweeps;
use jostle_stats::intervals::{estimate, median};
use jostle_stats::open_loop;
use jostle_stats::summary::{Estimate, PointSummary};
use std::collections::{BTreeMap, BTreeSet};

/// A figure and where it stands: the swept value and the figure, times in nanoseconds.
#[derive(Debug)]
pub(super) struct Figure {
    pub at: (f64, f64),
    /// The word of its label.
    pub name: &'static str,
    /// Whether it may be left out, such as a line of many.
    optional: bool,
}

/// All of one drawing.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub points: Vec<Figure>,
    laws: Vec<Fit>,
    /// Nanoseconds of the laws' unit.
    scale: f64,
}

impl Wanted {
    fn add(&mut self, name: &'static str, at: (f64, f64)) {
        self.points.push(Figure {
            at,
            name,
            optional: false,
        });
    }

    /// Strokes that are no figures: crosses at the foot, and where a figure rises or bends.
    pub(super) fn passes_over(&self, kind: &str) -> bool {
        ["pt mark invalid", "area bend", "median"]
            .iter()
            .any(|other| kind.starts_with(other))
    }

    /// Places on the curves that the record's fits have.
    pub(super) fn curves(&self, place: impl Fn(f64, f64) -> [f64; 2]) -> Vec<[f64; 2]> {
        let wholes = self.laws.iter().map(|fit| (&fit.laws, fit.from, fit.to));
        let parts = self.laws.iter().flat_map(|fit| &fit.parts);
        let parts = parts.map(|part| (&part.laws, part.from, part.to));
        let mut places = Vec::new();
        for (laws, from, to) in wholes.chain(parts) {
            let (from, to) = (from as f64, to as f64);
            for law in laws {
                let shape = Law::named(&law.law).unwrap();
                places.extend((0..=48).map(|piece| {
                    let n = from * (to / from).powf(f64::from(piece) / 48.0);
                    place(n, self.scale * (law.a + law.b * shape.at(n)))
                }));
            }
        }
        places
    }

    pub(super) fn must_show(&self, figure: &Figure) -> bool {
        !figure.optional
    }
}

type Getter = fn(&Run) -> Option<f64>;
type Times = fn(&Run) -> Option<&Distribution>;

/// `TITLE of RUN => VALUE;`
macro_rules! read {
    ($($title:literal of $run:ident => $value:expr;)*) => { &[$(($title, |$run| $value)),*] };
}

/// Figures with one value for each run, by the beginning of their titles; the first fits.
const MEASURES: &[(&str, Getter)] = read! {
    "CPU time of the workers for one" of run => Some(1e3 * run.cpu.cpu_us_per_operation?);
    "CPU time of the server for one held lock in" of run =>
        Some(1e3 * run.kept.as_ref()?.server_cpu_us_per_minute()?);
    "CPU time of the server for one" of run => Some(1e3 * run.server?.cpu_us_per_operation?);
    "Memory of the server" of run => run.server?.bytes_per_held_lock;
    "Greatest lateness" of run => Some(run.kept.as_ref()?.latest_ns()? as f64);
    "Requests in flight" of run => Some(run.spread.as_ref()?.effective);
    "Requests at the server" of run => run.spread.as_ref()?.at_server;
    "The busiest generator" of run => busiest(run);
    "How busy the busiest" of run => busiest(run);
    "Blocked share" of run => run.blocked_share;
    "Workers that got nothing" of run =>
        Some(run.per_worker?.none as f64 / run.at.workers? as f64);
    "Dispersion" of run => Some(run.per_worker?.dispersion);
    "Jain's" of run => Some(run.per_worker?.jain);
    "Context switches" of run => Some(run.cpu.context_switches? as f64 / run.operations as f64);
    "CPU time stolen" of run => run.around.machine.steal_share;
};

fn busiest(run: &Run) -> Option<f64> {
    run.thread_loads
        .iter()
        .map(|load| load.busy_share)
        .reduce(f64::max)
}

/// Those that are taken from the runs that others did not disturb.
const OF_TIMED: [&str; 4] = [
    "Workers that got",
    "Dispersion",
    "Jain's",
    "CPU time of the",
];

/// Distributions whose percentiles are bands, by title.
const SPREADS: &[(&str, Times)] = read! {
    "Time of a request" of run => run.times.service_ns.as_ref();
    "Time to connect" of run => run.times.connect_ns.as_ref();
    "Time to accept" of run => run.times.accept_ns.as_ref();
    "Time to close" of run => run.times.close_ns.as_ref();
    "Time of a batch of requests" of run => run.times.batch_ns.as_ref();
    "Hand-off" of run => run.times.handoff_ns.as_ref();
    "Hand-off on one CPU" of run => run.times.handoff_same_cpu_ns.as_ref();
    "Hand-off between two CPUs" of run => run.times.handoff_cross_cpu_ns.as_ref();
    "Time to release" of run => run.times.release_ns.as_ref();
    "Time to release a batch" of run => run.times.release_batch_ns.as_ref();
    "Time for which the lock was held" of run => run.times.hold_ns.as_ref();
    "Time of a refused try" of run => run.times.failed_try_ns.as_ref();
};

const LEVELS: [(&str, &str); 5] = [
    ("p50", "p50"),
    ("p90", "p90"),
    ("p99", "p99"),
    ("p999", "p99.9"),
    ("max", "max"),
];

type Level = fn(&PointSummary<'_>) -> Option<Estimate>;

/// `TITLE: NAME of POINT => ESTIMATE, NAME of POINT => ESTIMATE;`
macro_rules! levels {
    ($($title:literal: $($name:literal of $point:ident => $of:expr),+;)*) => {
        &[$(($title, [$(($name, |$point| $of)),+])),*]
    };
}

/// Latencies with one line for each level, by title.
const LATENCIES: &[(&str, [(&str, Level); 2])] = levels! {
    "Time for one operation":
        "p50" of p => first(p, [figures::ACQUIRE_P50, figures::BATCH_P50, figures::SERVICE_P50]),
        "p99" of p => first(p, [figures::ACQUIRE_P99, figures::BATCH_P99, figures::SERVICE_P99]);
    "Time to acquire and to release":
        "acquire" of p => p.of(figures::ACQUIRE_P50), "release" of p => p.of(figures::RELEASE_P50);
    "Time to open one connection":
        "p50" of p => p.of(figures::CONNECT_P50), "p99" of p => p.of(figures::CONNECT_P99);
    "Response time": "p50" of p => response(p, "p50"), "p99" of p => response(p, "p99");
};

fn first(point: &PointSummary<'_>, of: [&figures::Figure; 3]) -> Option<Estimate> {
    of.into_iter().find_map(|figure| point.of(figure))
}

fn response(point: &PointSummary<'_>, name: &str) -> Option<Estimate> {
    let ns = open_loop::response(&point.timed, name)?.ns;
    Some(Estimate {
        median: ns,
        low: ns,
        high: ns,
        interval: false,
        runs: 1,
    })
}

type OfSlice = fn(&Slice) -> Option<f64>;

const TRACKS: &[(&str, OfSlice)] = &[
    ("Mean time to acquire", |slice| slice.mean_wait_ns),
    ("Mean response", |slice| slice.mean_wait_ns),
    ("Mean time to release", |slice| slice.mean_release_ns),
    ("Acquisitions", |slice| Some(slice.operations as f64)),
];

/// Lines of a drawing along the run, at most.
const LINES: usize = 9;

/// The values that the drawing of this title must show, of one series or, without a name, of all.
pub(super) fn wanted(
    set: &ResultSet,
    points: &[PointSummary<'_>],
    title: &str,
    series: &str,
) -> Wanted {
    let swept = swept(points);
    let of_series = |target: &str| series.is_empty() || series == target;
    let shown: Vec<&PointSummary<'_>> = points
        .iter()
        .filter(|p| of_series(p.target) && p.is_usable())
        .collect();
    let mut wanted = Wanted::default();
    for point in &shown {
        let x = sizes(point.at).get(&swept).copied().unwrap_or(1.0);
        of_point(&mut wanted, title, x, point);
    }
    let tracks = TRACKS.iter().find(|(name, _)| *name == title);
    if let Some((_, of)) = tracks {
        along(&mut wanted, &shown, *of);
    }
    if let Some(figure) = grown(title) {
        let fits = set
            .fits
            .iter()
            .filter(|fit| fit.figure == figure.name && of_series(&fit.target));
        wanted.scale = scale(figure);
        wanted.laws = fits.cloned().collect();
    }
    assert!(
        !wanted.points.is_empty(),
        "nothing is known of the drawing {title} of {series}"
    );
    wanted
}

/// The figure whose growth is drawn.
fn grown(title: &str) -> Option<&'static figures::Figure> {
    let what = title.strip_prefix("Growth of ")?;
    let what = what.split_once(" per ").map_or(what, |(what, _)| what);
    sweeps::fitted().find(|figure| figure.grows == what)
}

/// Nanoseconds of a figure's unit.
fn scale(figure: &figures::Figure) -> f64 {
    if figure.name.contains("_us") {
        1e3
    } else {
        1.0
    }
}

/// The swept value with the most values.
fn swept(points: &[PointSummary<'_>]) -> String {
    let mut values: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for (name, value) in points.iter().flat_map(|point| sizes(point.at)) {
        values.entry(name).or_default().insert(value as u64);
    }
    let most = values.into_iter().max_by_key(|(_, values)| values.len());
    most.map_or(String::new(), |(name, _)| name)
}

fn of_point(wanted: &mut Wanted, title: &str, x: f64, point: &PointSummary<'_>) {
    let measure = MEASURES.iter().find(|(name, _)| title.starts_with(name));
    let of = |run: &Run| match title {
        "Throughput" => point.rate_of(run, run.throughput_per_s),
        _ if title.ends_with("all workers together") => {
            Some(1e9 * run.window.window_s / run.operations as f64)
        }
        _ => measure?.1(run),
    };
    let runs = match OF_TIMED.iter().any(|name| title.starts_with(name)) {
        true => &point.timed,
        false => &point.runs,
    };
    let values: Vec<f64> = runs.iter().filter_map(|run| of(run)).collect();
    over_runs(wanted, "", x, estimate(&values));
    let several = values.iter().filter(|_| values.len() > 1);
    several.for_each(|value| wanted.add("", (x, *value)));
    if title == "Throughput" {
        let ceilings: Vec<f64> = point
            .runs
            .iter()
            .filter_map(|run| run.ceiling_per_s)
            .collect();
        let offered = point.at.rate.map(|rate| rate as f64);
        let most = offered.or(median(&ceilings));
        wanted.points.extend(most.map(|most| Figure {
            at: (x, most),
            name: "ideal",
            optional: true,
        }));
    }
    if let Some(figure) = grown(title) {
        let scale = scale(figure);
        let values: Vec<f64> = point
            .runs
            .iter()
            .filter_map(|run| sweeps::cost(figure, point, run))
            .collect();
        median(&values)
            .into_iter()
            .for_each(|value| wanted.add("", (x, scale * value)));
    }
    if title == "Acquisitions of a worker"
        && let Some(shares) = point.per_worker
    {
        let ends = [
            ("least", shares.min as f64),
            ("mean", shares.mean),
            ("most", shares.max as f64),
        ];
        ends.into_iter()
            .for_each(|(name, value)| wanted.add(name, (x, value)));
    }
    if title == "Throughput of each worker" {
        speeds(wanted, x, point);
    }
    let of_fault: Option<fn(&Recovery) -> Option<u64>> = match title {
        "Time to the next grant" => Some(|run| run.next_grant_ns),
        "Two owners at a time" => Some(|run| run.two_believed_ns.filter(|ns| *ns > 0)),
        _ => None,
    };
    if let Some(of_fault) = of_fault {
        let runs = point.runs.iter().filter_map(|run| run.recovery.as_ref());
        let times = runs.filter_map(|run| of_fault(run));
        times.for_each(|ns| wanted.add("", (ns as f64, f64::NAN)));
    }
    if point.times_are_usable() {
        times(wanted, title, x, point);
    }
}

fn speeds(wanted: &mut Wanted, x: f64, point: &PointSummary<'_>) {
    let rates = point
        .timed
        .iter()
        .filter_map(|run| Some(&run.workers.as_ref()?.throughput_per_s));
    let rates: Vec<&Vec<f64>> = rates.filter(|rates| rates.len() > 1).collect();
    let mut add = |name, of: fn(&[f64]) -> f64| {
        let each: Vec<f64> = rates.iter().map(|rates| of(rates)).collect();
        median(&each)
            .into_iter()
            .for_each(|value| wanted.add(name, (x, value)));
    };
    add("least", |rates| {
        rates.iter().copied().fold(f64::INFINITY, f64::min)
    });
    add("mean", |rates| {
        rates.iter().sum::<f64>() / rates.len() as f64
    });
    add("most", |rates| rates.iter().copied().fold(0.0, f64::max));
}

/// A median and, of several runs, the ends of its bar.
fn over_runs(wanted: &mut Wanted, name: &'static str, x: f64, of: Option<Estimate>) {
    let Some(of) = of else { return };
    wanted.add(name, (x, of.median));
    let ends = [of.low, of.high].into_iter().filter(|_| of.runs > 1);
    ends.for_each(|end| wanted.add(name, (x, end)));
}

fn times(wanted: &mut Wanted, title: &str, x: f64, point: &PointSummary<'_>) {
    if let Some((_, levels)) = LATENCIES.iter().find(|(name, _)| *name == title) {
        over_runs(wanted, levels[0].0, x, levels[0].1(point));
        let tail = levels[1].1(point).map(|tail| tail.median);
        tail.into_iter()
            .for_each(|tail| wanted.add(levels[1].0, (x, tail)));
    }
    let spreads: Vec<Spread<'_>> = point
        .timed
        .iter()
        .filter_map(|run| match title {
            "Time to acquire" => run.acquire_ns.as_ref().map(|_| Spread::Waits(run)),
            _ => of_spread(title, run).map(Spread::Times),
        })
        .collect();
    for (level, name) in LEVELS {
        let known: Vec<f64> = spreads.iter().filter_map(|run| run.at(level)).collect();
        let all = spreads.iter().filter(|run| run.at("max").is_some());
        let over = match level {
            "max" => known.iter().copied().reduce(f64::max),
            _ => median(&known).filter(|_| 2 * known.len() >= all.count()),
        };
        over.into_iter()
            .for_each(|value| wanted.add(name, (x, value)));
    }
}

/// Where a run has the levels of a drawing.
enum Spread<'a> {
    Waits(&'a Run),
    Times(Distribution),
}

impl Spread<'_> {
    fn at(&self, level: &str) -> Option<f64> {
        match (self, level) {
            (Spread::Waits(run), level) => wait(run, level),
            (Spread::Times(times), "max") => Some(times.max as f64),
            (Spread::Times(times), level) => Some(*times.percentiles.get(level)? as f64),
        }
    }
}

/// The distribution of this title; phases have titles too.
fn of_spread(title: &str, run: &Run) -> Option<Distribution> {
    let named = |phase: &str| {
        let words = phase.replace('_', " ");
        words == title || format!("Time to {words}") == title
    };
    let phase = run.phases.iter().find(|phase| named(&phase.phase));
    let own = || SPREADS.iter().find(|(name, _)| *name == title)?.1(run);
    let known = phase.map(|phase| &phase.span).or_else(own).cloned();
    let other = || {
        let all = distributions(run).into_iter();
        let mut other = all.filter(|(field, _)| named(field.trim_end_matches("_ns")));
        other.next().map(|(_, other)| other)
    };
    known.or_else(other)
}

/// Waits account for attempts that had not ended.
fn wait(run: &Run, level: &str) -> Option<f64> {
    let waits = run.acquire_ns.as_ref()?;
    if level == "max" {
        let granted = (waits.granted.count > 0).then_some(waits.granted.max);
        let pending = run.per_worker.and_then(|shares| shares.longest_wait_ns);
        return granted.max(pending).map(|ns| ns as f64);
    }
    let known = waits
        .kaplan_meier
        .get(level)
        .or_else(|| waits.at_least.get(level));
    known.map(|ns| *ns as f64)
}

fn along(wanted: &mut Wanted, shown: &[&PointSummary<'_>], of: OfSlice) {
    for point in shown {
        for tenth in 0..10 {
            let runs = point
                .timed
                .iter()
                .filter_map(|run| of(run.series.get(tenth)?));
            let over = median(runs);
            wanted.points.extend(over.map(|value| Figure {
                at: (tenth as f64 + 1.0, value),
                name: "",
                optional: shown.len() > LINES,
            }));
        }
    }
}

/// The values that a drawing of `judge` must show: each for a second of its interval.
pub(super) fn wanted_of_judge(watched: &Watched, title: &str) -> Wanted {
    let mut wanted = Wanted::default();
    let mut line = |column: &[f64], scale: f64| {
        for ((end, span), value) in watched.end_s.iter().zip(&watched.span_s).zip(column) {
            wanted.add("", (*end, scale * value / span));
        }
    };
    let sides = || {
        [Some(&watched.generator), watched.server.as_ref()]
            .into_iter()
            .flatten()
    };
    let traffic = watched.traffic.as_ref();
    match title {
        "CPUs in use" => {
            sides().for_each(|side| line(&side.cpu_s, 1.0));
            let machine = &watched.machine;
            for column in [&machine.behind_s, &machine.others_s].into_iter().flatten() {
                line(column, 1.0);
            }
            line(&watched.machine.tool_s, 1.0);
        }
        "Bytes carried" => line(&traffic.unwrap().bytes, 1e-6),
        "Connections opened" => line(&traffic.unwrap().opened, 1.0),
        "Busiest threads" => sides().for_each(|side| line(&busy(side, &watched.span_s), 1.0)),
        "Unread bytes" => {
            let traffic = traffic.unwrap();
            let each = |column: &[f64]| -> Vec<f64> {
                column
                    .iter()
                    .zip(&watched.span_s)
                    .map(|(v, s)| v * s)
                    .collect()
            };
            line(&each(&traffic.generator_unread_bytes), 1.0);
            line(
                &each(traffic.server_unread_bytes.as_deref().unwrap_or_default()),
                1.0,
            );
        }
        "Kept from running" => {
            line(&watched.machine.stolen_s, 1.0);
            sides().for_each(|side| {
                line(&side.stopped_s, 1.0);
                line(side.throttled_s.as_deref().unwrap_or_default(), 1.0);
            });
        }
        _ => panic!("nothing is known of the drawing {title}"),
    }
    // Lines without any value are left out of a drawing.
    wanted
        .points
        .iter_mut()
        .for_each(|point| point.optional = title == "Kept from running");
    wanted
}

/// Time on a CPU and in its queue of the busiest thread, at most all of it.
fn busy(side: &Side, spans: &[f64]) -> Vec<f64> {
    let thread = &side.busiest[0];
    let both = thread.cpu_s.iter().zip(&thread.queued_s).zip(spans);
    both.map(|((cpu, queued), span)| (cpu + queued).min(*span))
        .collect()
}
