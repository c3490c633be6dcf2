//! A run's measurements as columns: the rows of the table of figures, and between them what the
//! data name (distributions, phases, counts, answers, errors).

use crate::ResultSet;
use jostle_model::plan::Workload;
use jostle_model::record::{Count, Distribution, Percentiles, Run, Times, Waits};
use jostle_stats::figures::{self, FIGURES, Figure, Fold, Over, Topic};
use jostle_stats::open_loop;
use jostle_stats::summary::PointSummary;
use std::collections::{BTreeMap, BTreeSet};

/// Where a run has a figure.
type Find = Box<dyn Fn(&Run) -> Option<f64>>;

/// One figure of a run.
pub(super) struct Column {
    /// Its unit, the runs that it is taken over, and how.
    pub figure: Figure,
    /// Without its unit: `wait_p99`.
    pub stem: String,
    /// A percentile that an open loop has over all its runs: of which distribution, its name,
    /// and whether it is known only to lie above.
    requests: Option<(&'static str, &'static str, bool)>,
    find: Find,
}

impl Column {
    fn new(
        stem: impl Into<String>,
        (unit, over, fold): (&'static str, Over, Fold),
        find: impl Fn(&Run) -> Option<f64> + 'static,
    ) -> Column {
        Column {
            figure: Figure {
                unit,
                over,
                fold,
                ..Figure::TIME
            },
            stem: stem.into(),
            requests: None,
            find: Box::new(find),
        }
    }

    /// A row of the table.
    fn known(figure: &Figure) -> Column {
        let of = figure.of;
        // A fault leaves no rate that means anything.
        let is_rate = figure.name == figures::THROUGHPUT.name;
        Column {
            figure: *figure,
            stem: figure.stem.to_owned(),
            requests: None,
            find: Box::new(move |run| of(run).filter(|_| !is_rate || run.recovery.is_none())),
        }
    }

    /// Whether it is printed of INVALID points too.
    pub(super) fn is_evidence(&self) -> bool {
        self.figure.over == Over::Evidence
    }

    /// Whether this is printed of a point.
    pub(super) fn is_shown(&self, point: &PointSummary<'_>) -> bool {
        match self.figure.over {
            Over::Evidence => true,
            Over::Times => point.times_are_usable(),
            _ => point.is_usable(),
        }
    }

    /// The runs of a point that it is taken over.
    pub(super) fn runs<'p, 'a>(&self, point: &'p PointSummary<'a>) -> &'p [&'a Run] {
        point.runs_over(self.figure.over)
    }

    /// The figure of one run, as the point takes it.
    pub(super) fn within(&self, point: &PointSummary<'_>, run: &Run) -> Option<f64> {
        point.within(&self.figure, run, self.of(run)?)
    }

    /// The figure of a point of an open loop, as the table has it.
    pub(super) fn over_open_loop(&self, point: &PointSummary<'_>) -> Option<Option<f64>> {
        let requests = self.requests.filter(|_| point.workload == Workload::Rate);
        let (of, name, above) = requests?;
        Some(match of {
            "response_ns" => open_loop::response(self.runs(point), name)
                .filter(|found| found.at_least == above)
                .map(|found| found.ns),
            of => open_loop::percentile(self.runs(point), of, name),
        })
    }

    /// `wait_p99_ns`; of an end of its interval `wait_p99_low_ns`.
    pub(super) fn name(&self, end: &str) -> String {
        let parts = [self.stem.as_str(), end, self.figure.unit];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join("_")
    }

    /// Whether a run has the figure beyond all that was measured.
    pub(super) fn is_beyond(&self, run: &Run) -> bool {
        (self.find)(run) == Some(f64::INFINITY)
    }

    /// The figure of one run.
    pub(super) fn of(&self, run: &Run) -> Option<f64> {
        (self.find)(run).filter(|value| value.is_finite())
    }
}

/// All that any run of these results may have; phases, answers and errors have the names
/// that the runs give them.
pub(super) fn columns(sets: &[ResultSet]) -> Vec<Column> {
    let runs: Vec<&Run> = sets.iter().flat_map(|set| &set.runs).collect();
    let known = |topic: Topic| {
        let of_it = move |figure: &&Figure| figure.topic == topic && !figure.stem.is_empty();
        FIGURES.iter().filter(of_it).map(Column::known)
    };
    let mut all: Vec<Column> = known(Topic::Rates).collect();
    all.extend(known(Topic::Blocked));
    all.extend(waits(&runs));
    all.extend(known(Topic::Fairness));
    // Responses stand beside the waits.
    for name in Times::NAMES.iter().filter(|name| **name != "response_ns") {
        let stem = match *name {
            "failed_ns" => "failed_service",
            name => name.trim_end_matches("_ns"),
        };
        all.extend(distribution(stem, &runs, move |run| run.times.get(name)));
        if stem == "release" {
            all.extend(distribution("renewal_late", &runs, |run| {
                run.kept.as_ref()?.renewal_late_ns.as_ref()
            }));
        }
    }
    for (name, find) in OTHERS {
        all.extend(distribution(name, &runs, *find));
    }
    for phase in names(&runs, |run| {
        run.phases.iter().map(|p| p.phase.clone()).collect()
    }) {
        let stem = format!("phase_{phase}");
        all.extend(distribution(&stem, &runs, move |run| {
            let mut phases = run.phases.iter();
            phases.find(|p| p.phase == phase).map(|p| &p.span)
        }));
    }
    all.extend(known(Topic::Costs));
    all.extend(Count::ALL.iter().map(|count| {
        Column::new(count.name(), ("", Over::Runs, Fold::Sum), |run| {
            run.around.counts.get(count.name()).map(|n| *n as f64)
        })
    }));
    for topic in [Topic::Kept, Topic::Connections, Topic::Requests] {
        all.extend(known(topic));
    }
    for topic in [Topic::Recovery, Topic::Promise, Topic::Evidence] {
        all.extend(known(topic));
    }
    type Counts = fn(&Run) -> &BTreeMap<String, u64>;
    let counts: [(&str, Counts); 2] = [
        ("answers", |run| &run.codes),
        ("errors", |run| &run.around.errors),
    ];
    for (what, counts) in counts {
        for name in names(&runs, |run| counts(run).keys().cloned().collect()) {
            let stem = format!("{what}_{name}");
            let of = move |run: &Run| counts(run).get(&name).map(|n| *n as f64);
            all.push(Column::new(stem, ("", Over::Evidence, Fold::Sum), of));
        }
    }
    all
}

/// Each name that any run has, once, in alphabetical order.
fn names(runs: &[&Run], of: impl Fn(&Run) -> Vec<String>) -> BTreeSet<String> {
    runs.iter().flat_map(|run| of(run)).collect()
}

/// Percentiles that account for the attempts and requests which the end of a window cut
/// off, or the bound above which they lie.
fn waits(runs: &[&Run]) -> Vec<Column> {
    const KNOWN: (&str, Over, Fold) = ("ns", Over::Times, Fold::Interval);
    const BOUND: (&str, Over, Fold) = ("ns", Over::Times, Fold::Middle);
    let mut all = Vec::new();
    type Getter = fn(&Run) -> Option<&Waits>;
    let modes: [(&str, Getter, &[&str]); 3] = [
        ("wait", |run| run.acquire_ns.as_ref(), &Percentiles::NAMES),
        (
            "reader_wait",
            |run| run.reader_wait_ns.as_deref(),
            &["p50", "p99"],
        ),
        (
            "writer_wait",
            |run| run.writer_wait_ns.as_deref(),
            &["p50", "p99"],
        ),
    ];
    for (stem, waits, names) in modes {
        for name in names {
            let known = move |run: &Run| figures::waited(waits(run)?, name);
            let stem = format!("{stem}_{name}");
            let above = format!("{stem}_at_least");
            all.push(Column::new(stem, KNOWN, known));
            let least = move |run: &Run| Some(*waits(run)?.at_least.get(name)? as f64);
            all.push(Column::new(above, BOUND, least));
        }
    }
    let censored = |run: &Run| Some(run.acquire_ns.as_ref()?.censored as f64);
    all.push(Column::new(
        "censored",
        ("", Over::Runs, Fold::Sum),
        censored,
    ));
    all.extend(distribution("granted_wait", runs, |run| {
        run.acquire_ns.as_ref().map(|waits| &waits.granted)
    }));
    for name in Percentiles::NAMES {
        let stem = format!("response_{name}");
        let of = move |run: &Run| figures::response(run, name);
        let mut known = Column::new(stem, KNOWN, of);
        known.requests = Some(("response_ns", name, false));
        let stem = format!("response_{name}_at_least");
        let of = move |run: &Run| response_at_least(run, name);
        let mut above = Column::new(stem, BOUND, of);
        above.requests = Some(("response_ns", name, true));
        all.extend([known, above]);
    }
    all.extend(distribution("answered_response", runs, |run| {
        let spread = run.spread.as_ref().and_then(|s| s.response_ns.as_ref());
        let spread = spread.map(|waits| &waits.granted);
        run.times.response_ns.as_ref().or(spread)
    }));
    all
}

fn response_at_least(run: &Run, name: &str) -> Option<f64> {
    let above = match (&run.spread, &run.open_loop) {
        (Some(spread), _) => &spread.response_ns.as_ref()?.at_least,
        (None, Some(open)) => &open.response_at_least,
        (None, None) => return None,
    };
    above.get(name).map(|ns| *ns as f64)
}

/// Count, extremes, mean, percentiles, and the shares of `--over`.
fn distribution(
    stem: &str,
    runs: &[&Run],
    find: impl Fn(&Run) -> Option<&Distribution> + Clone + 'static,
) -> Vec<Column> {
    let [counts, times] = match EVIDENCE.contains(&stem) {
        true => [Over::Evidence; 2],
        false => [Over::Runs, Over::Times],
    };
    // Without any value, the extremes and the mean mean nothing.
    let figure = |name: &str, fold, of: fn(&Distribution) -> f64| {
        let find = find.clone();
        Column::new(format!("{stem}_{name}"), ("ns", times, fold), move |run| {
            find(run).filter(|d| d.count > 0).map(of)
        })
    };
    let of_count = find.clone();
    let count = move |run: &Run| of_count(run).map(|d| d.count as f64);
    let mut all = vec![
        Column::new(format!("{stem}_count"), ("", counts, Fold::Sum), count),
        figure("min", Fold::Least, |d| d.min as f64),
        figure("mean", Fold::Interval, |d| d.mean),
    ];
    for name in Percentiles::NAMES {
        let find = find.clone();
        let of = move |run: &Run| find(run)?.percentiles.get(name).map(|ns| *ns as f64);
        let mut figure = Column::new(format!("{stem}_{name}"), ("ns", times, Fold::Interval), of);
        let pooled = OPEN_LOOP.iter().find(|(known, _)| *known == stem);
        figure.requests = pooled.map(|(_, field)| (*field, name, false));
        all.push(figure);
    }
    all.push(figure("max", Fold::Most, |d| d.max as f64));
    let found = runs.iter().filter_map(|run| find(run));
    let limits: BTreeSet<String> = found.flat_map(|d| d.over.keys().cloned()).collect();
    for limit in limits {
        let (find, stem) = (find.clone(), format!("{stem}_over_{limit}"));
        let of = move |run: &Run| find(run)?.over.get(&limit).copied();
        all.push(Column::new(stem, ("share", times, Fold::Interval), of));
    }
    all
}

/// Distributions that make a point INVALID.
const EVIDENCE: [&str; 4] = [
    "generator_lag",
    "canary_lag",
    "renewal_late",
    "failed_service",
];

/// Distributions of an open loop, and their fields in the record.
const OPEN_LOOP: [(&str, &str); 4] = [
    ("service", "service_ns"),
    ("generator_lag", "generator_lag_ns"),
    ("target_lag", "target_lag_ns"),
    ("canary_lag", "canary_lag_ns"),
];

type Part = fn(&Run) -> Option<&Distribution>;

/// The distributions in other parts of a run.
static OTHERS: &[(&str, Part)] = &[
    ("null_service", |run| {
        run.null.as_ref().map(|null| &null.service_ns)
    }),
    ("generator_lag", |run| {
        run.open_loop.as_ref()?.generator_lag_ns.as_ref()
    }),
    ("target_lag", |run| {
        run.open_loop.as_ref()?.target_lag_ns.as_ref()
    }),
    ("canary_lag", |run| {
        run.open_loop.as_ref()?.canary_lag_ns.as_ref()
    }),
];
