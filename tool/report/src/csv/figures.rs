//! What a run measured, as columns of figures: each with its unit in its name, how it is
//! taken over the runs of a point, and where a run has it.

use super::evidence::evidence;
use crate::ResultSet;
use jostle_model::connect::Connections;
use jostle_model::plan::Workload;
use jostle_model::record::{
    Count, Distribution, Kept, PerWorker, Percentiles, Recovery, Run, Times, Waits,
};
use jostle_stats::figures;
use jostle_stats::open_loop;
use jostle_stats::summary::PointSummary;
use std::collections::{BTreeMap, BTreeSet};

/// How a figure of single runs becomes one of their point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The median, with the ends of its interval in columns of their own.
    Interval,
    /// The median alone.
    Middle,
    /// The sum.
    Sum,
    /// The least.
    Least,
    /// The greatest.
    Most,
    /// The value of the run that stands for all in the fairness of a point.
    Fairness,
}

/// Where a run has a figure.
type Find = Box<dyn Fn(&Run) -> Option<f64>>;

/// One figure of a run.
pub(super) struct CsvColumn {
    /// Without its unit: `wait_p99`.
    pub stem: String,
    /// As it ends the name: `ns`, `per_s`; empty for counts, shares and indices that
    /// name themselves.
    pub unit: &'static str,
    /// How it is taken over runs.
    pub over: Over,
    /// It tells why a point is INVALID, and is printed of such a point too.
    pub evidence: bool,
    /// The runs of a point that it is taken over.
    pub taken: figures::Over,
    /// A percentile that an open loop has over all its runs: of which distribution, its name,
    /// and whether it is known only to lie above.
    requests: Option<(&'static str, &'static str, bool)>,
    of: Find,
}

impl CsvColumn {
    pub(super) fn new(
        stem: impl Into<String>,
        unit: &'static str,
        over: Over,
        of: impl Fn(&Run) -> Option<f64> + 'static,
    ) -> CsvColumn {
        CsvColumn {
            stem: stem.into(),
            unit,
            over,
            evidence: false,
            taken: figures::Over::Runs,
            requests: None,
            of: Box::new(of),
        }
    }

    pub(super) fn evidence(mut self) -> CsvColumn {
        self.evidence = true;
        self
    }

    /// Whether this is printed of a point.
    pub(super) fn is_shown(&self, point: &PointSummary<'_>) -> bool {
        let usable = match self.taken {
            figures::Over::Times => point.times_are_usable(),
            _ => point.is_usable(),
        };
        self.evidence || usable
    }

    /// The runs of a point that it is taken over.
    pub(super) fn runs<'p, 'a>(&self, point: &'p PointSummary<'a>) -> &'p [&'a Run] {
        match self.evidence {
            true => &point.runs,
            false => point.runs_over(self.taken),
        }
    }

    /// The figure of one run, as the point takes it.
    pub(super) fn within(&self, point: &PointSummary<'_>, run: &Run) -> Option<f64> {
        point.within(self.taken, run, self.of(run)?)
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
        let parts = [self.stem.as_str(), end, self.unit];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join("_")
    }

    /// The figure of one run.
    pub(super) fn of(&self, run: &Run) -> Option<f64> {
        (self.of)(run).filter(|value| value.is_finite())
    }
}

/// All that any run of these results may have; phases, answers and errors have the names
/// that the runs give them.
pub(super) fn figures(sets: &[ResultSet]) -> Vec<CsvColumn> {
    let runs: Vec<&Run> = sets.iter().flat_map(|set| &set.runs).collect();
    let mut all = rates();
    all.extend(waits(&runs));
    all.extend(fairness());
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
    all.extend(costs());
    all.extend(Count::ALL.iter().map(|count| {
        CsvColumn::new(count.name(), "", Over::Sum, |run| {
            run.around.counts.get(count.name()).map(|n| *n as f64)
        })
    }));
    all.extend(kept());
    all.extend(connections());
    all.extend(requests());
    all.extend(recoveries());
    all.extend(evidence());
    type Counts = fn(&Run) -> &BTreeMap<String, u64>;
    let counts: [(&str, Counts); 2] = [
        ("answers", |run| &run.codes),
        ("errors", |run| &run.around.errors),
    ];
    for (what, counts) in counts {
        for name in names(&runs, |run| counts(run).keys().cloned().collect()) {
            let stem = format!("{what}_{name}");
            let of = move |run: &Run| counts(run).get(&name).map(|n| *n as f64);
            all.push(CsvColumn::new(stem, "", Over::Sum, of).evidence());
        }
    }
    all
}

/// Each name that any run has, once, in alphabetical order.
fn names(runs: &[&Run], of: impl Fn(&Run) -> Vec<String>) -> BTreeSet<String> {
    runs.iter().flat_map(|run| of(run)).collect()
}

/// The figures of runs with a fault; yes is 1, no is 0.
fn recoveries() -> Vec<CsvColumn> {
    type Find<T> = fn(&Recovery) -> Option<T>;
    const TIMES: [(&str, Find<i64>); 6] = [
        ("next_grant", |r| r.next_grant_ns.map(|ns| ns as i64)),
        ("after_release", |r| r.after_release_ns.map(|ns| ns as i64)),
        ("after_lease", |r| r.after_lease_ns),
        ("after_return", |r| r.after_return_ns),
        ("two_believed", |r| r.two_believed_ns.map(|ns| ns as i64)),
        ("two_ran", |r| r.two_ran_ns.map(|ns| ns as i64)),
    ];
    const COUNTS: [(&str, Find<u64>); 4] = [
        ("told_runs", |r| r.told.map(u64::from)),
        ("write_refused_runs", |r| r.write_refused.map(u64::from)),
        ("in_order_runs", |r| r.in_order.map(u64::from)),
        ("served_waiters", |r| Some(r.served)),
    ];
    let of = |run: &Run| run.recovery.as_deref().cloned();
    let times = TIMES.into_iter().flat_map(|(stem, find)| {
        let each = move |run: &Run| find(&of(run)?).map(|ns| ns as f64);
        [
            CsvColumn::new(stem, "ns", Over::Middle, each),
            CsvColumn::new(format!("{stem}_worst"), "ns", Over::Most, each),
        ]
    });
    let counts = COUNTS.into_iter().map(|(stem, find)| {
        let each = move |run: &Run| find(&of(run)?).map(|count| count as f64);
        CsvColumn::new(stem, "", Over::Sum, each)
    });
    times.chain(counts).collect()
}

/// One of the table of all, whose name ends with this unit.
fn known(of: &'static figures::Figure, unit: &'static str) -> CsvColumn {
    let stem = of.name.strip_suffix(unit).unwrap_or(of.name);
    let stem = stem.trim_end_matches('_');
    CsvColumn {
        taken: of.over,
        ..CsvColumn::new(stem, unit, Over::Interval, of.of)
    }
}

fn rates() -> Vec<CsvColumn> {
    use Over::{Interval, Middle, Sum};
    let throughput = known(figures::THROUGHPUT, "per_s");
    vec![
        CsvColumn {
            // A fault leaves no rate that means anything.
            of: Box::new(|run| run.recovery.is_none().then_some(run.throughput_per_s)),
            ..throughput
        },
        CsvColumn::new("ceiling", "per_s", Middle, |run| run.ceiling_per_s),
        known(figures::OF_IDEAL, "share"),
        CsvColumn::new("operations", "", Sum, |run| Some(run.operations as f64)),
        CsvColumn::new("window", "s", Middle, |run| Some(run.window.window_s)),
        CsvColumn::new("warmup", "s", Middle, |run| Some(run.window.warmup_s)),
        CsvColumn::new("acquire_phase", "s", Interval, |run| run.acquire_phase_s),
        CsvColumn::new("release_phase", "s", Interval, |run| run.release_phase_s),
        known(figures::BLOCKED, "share"),
        known(figures::BLOCKED_TIME, "share"),
        known(figures::FREE, "share"),
    ]
}

/// Percentiles that account for the attempts and requests which the end of a window cut
/// off, or the bound above which they lie.
fn waits(runs: &[&Run]) -> Vec<CsvColumn> {
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
            let known = move |run: &Run| Some(*waits(run)?.kaplan_meier.get(name)? as f64);
            let stem = format!("{stem}_{name}");
            let above = format!("{stem}_at_least");
            all.push(CsvColumn::new(stem, "ns", Over::Interval, known));
            let least = move |run: &Run| Some(*waits(run)?.at_least.get(name)? as f64);
            all.push(CsvColumn::new(above, "ns", Over::Middle, least));
        }
    }
    all.push(CsvColumn::new("censored", "", Over::Sum, |run| {
        run.acquire_ns.as_ref().map(|waits| waits.censored as f64)
    }));
    all.extend(distribution("granted_wait", runs, |run| {
        run.acquire_ns.as_ref().map(|waits| &waits.granted)
    }));
    for name in Percentiles::NAMES {
        let stem = format!("response_{name}");
        let of = move |run: &Run| figures::response(run, name);
        let mut known = CsvColumn::new(stem, "ns", Over::Interval, of);
        known.requests = Some(("response_ns", name, false));
        let stem = format!("response_{name}_at_least");
        let of = move |run: &Run| response_at_least(run, name);
        let mut above = CsvColumn::new(stem, "ns", Over::Middle, of);
        above.requests = Some(("response_ns", name, true));
        all.extend([known, above]);
    }
    all.extend(distribution("answered_response", runs, |run| {
        let spread = run.spread.as_ref().and_then(|s| s.response_ns.as_ref());
        let spread = spread.map(|waits| &waits.granted);
        run.times.response_ns.as_ref().or(spread)
    }));
    let is_count = |figure: &CsvColumn| figure.unit.is_empty();
    all.iter_mut()
        .filter(|figure| !is_count(figure))
        .for_each(|figure| figure.taken = figures::Over::Times);
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

fn fairness() -> Vec<CsvColumn> {
    let share = |stem: &str, of: fn(&PerWorker) -> f64| {
        CsvColumn::new(stem, "", Over::Fairness, move |run| {
            run.per_worker.as_ref().map(of)
        })
    };
    let mut all = vec![
        share("per_worker_min", |s| s.min as f64),
        share("per_worker_max", |s| s.max as f64),
        share("per_worker_mean", |s| s.mean),
        share("per_worker_stddev", |s| s.stddev),
        share("per_worker_none", |s| s.none as f64),
        share("jain", |s| s.jain),
        share("dispersion", |s| s.dispersion),
        share("top_half_share", |s| s.top_half_share),
        share("rotations", |s| s.rotations),
        CsvColumn::new("longest_wait", "ns", Over::Most, |run| {
            Some(run.per_worker?.longest_wait_ns? as f64)
        }),
        CsvColumn::new("longest_streak", "", Over::Most, |run| {
            Some(run.per_worker?.longest_streak? as f64)
        }),
        CsvColumn::new("owner_changes", "", Over::Sum, |run| {
            Some(run.per_worker?.owner_changes? as f64)
        }),
        CsvColumn::new("longest_streak_while_waited", "", Over::Most, |run| {
            Some(run.per_worker?.longest_streak_while_waited? as f64)
        }),
    ];
    all.iter_mut()
        .for_each(|figure| figure.taken = figures::Over::Times);
    all
}

/// Count, extremes, mean, percentiles, and the shares of `--over`.
fn distribution(
    stem: &str,
    runs: &[&Run],
    find: impl Fn(&Run) -> Option<&Distribution> + Clone + 'static,
) -> Vec<CsvColumn> {
    let figure = |name: &str, unit, over, of: fn(&Distribution) -> Option<f64>| {
        let find = find.clone();
        CsvColumn::new(format!("{stem}_{name}"), unit, over, move |run| {
            of(find(run)?)
        })
    };
    // Without any value, the extremes and the mean mean nothing.
    let mut all = vec![
        figure("count", "", Over::Sum, |d| Some(d.count as f64)),
        figure("min", "ns", Over::Least, |d| {
            (d.count > 0).then_some(d.min as f64)
        }),
        figure("mean", "ns", Over::Interval, |d| {
            (d.count > 0).then_some(d.mean)
        }),
    ];
    for name in Percentiles::NAMES {
        let find = find.clone();
        let of = move |run: &Run| find(run)?.percentiles.get(name).map(|ns| *ns as f64);
        let mut figure = CsvColumn::new(format!("{stem}_{name}"), "ns", Over::Interval, of);
        let pooled = OPEN_LOOP.iter().find(|(known, _)| *known == stem);
        figure.requests = pooled.map(|(_, field)| (*field, name, false));
        all.push(figure);
    }
    all.push(figure("max", "ns", Over::Most, |d| {
        (d.count > 0).then_some(d.max as f64)
    }));
    let found = runs.iter().filter_map(|run| find(run));
    let times: BTreeSet<String> = found.flat_map(|d| d.over.keys().cloned()).collect();
    for time in times {
        let (find, stem) = (find.clone(), format!("{stem}_over_{time}"));
        let of = move |run: &Run| find(run)?.over.get(&time).copied();
        all.push(CsvColumn::new(stem, "share", Over::Interval, of));
    }
    for figure in &mut all {
        if !figure.unit.is_empty() {
            figure.taken = figures::Over::Times;
        }
        figure.evidence = EVIDENCE.contains(&stem);
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

/// What other parts of a run hold.
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

fn costs() -> Vec<CsvColumn> {
    use Over::{Interval, Sum};
    let cpu = |stem: &str, of: fn(&Run) -> Option<f64>| CsvColumn {
        taken: figures::Over::Undisturbed,
        ..CsvColumn::new(stem, "us_per_waiting_minute", Interval, of)
    };
    vec![
        known(figures::CPU, "us_per_operation"),
        CsvColumn::new("cpu", "s", Sum, |run| run.cpu.cpu_s),
        CsvColumn::new("cpu_user", "s", Sum, |run| run.cpu.cpu_user_s),
        CsvColumn::new("cpu_system", "s", Sum, |run| run.cpu.cpu_system_s),
        CsvColumn::new("spun", "s", Sum, |run| run.cpu.spun_s),
        CsvColumn::new("children_user", "s", Sum, |run| run.cpu.children_user_s),
        CsvColumn::new("children_system", "s", Sum, |run| run.cpu.children_system_s),
        known(figures::SERVER_CPU, "us_per_operation"),
        known(figures::ROUND_TRIPS, "per_grant"),
        CsvColumn::new("network", "bytes_per_grant", Interval, |run| {
            Some(run.traffic?.for_each_grant()?.1)
        }),
        CsvColumn::new("failovers", "", Sum, |run| {
            Some(run.traffic?.failovers? as f64)
        }),
        CsvColumn::new("server_memory", "bytes_per_held_lock", Interval, |run| {
            run.server?.bytes_per_held_lock
        }),
        CsvColumn::new("null_cpu", "us_per_operation", Interval, |run| {
            run.null.as_ref().map(|null| null.cpu_us_per_operation)
        }),
        CsvColumn::new("waiting", "", Interval, Run::waiting),
        CsvColumn::new(
            "waiting_round_trips",
            "per_waiting_minute",
            Interval,
            Run::waiting_round_trips_per_minute,
        ),
        cpu("waiting_cpu", Run::waiting_cpu_us_per_minute),
        cpu("waiting_server_cpu", Run::waiting_server_cpu_us_per_minute),
        CsvColumn::new("context_switches", "", Sum, |run| {
            run.cpu.context_switches.map(|n| n as f64)
        }),
        CsvColumn::new("idle_mean", "ns", Interval, |run| run.idle_mean_ns),
        CsvColumn::new("stamp_every", "", Over::Middle, |run| {
            run.stamp_every.map(|n| n as f64)
        }),
        CsvColumn::new("stamped", "", Sum, |run| run.stamped.map(|n| n as f64)),
    ]
}

/// What locks cost that are held for a time.
fn kept() -> Vec<CsvColumn> {
    let each = |stem: &str, unit, of: fn(&Kept) -> Option<f64>| {
        CsvColumn::new(stem, unit, Over::Interval, move |run| {
            of(run.kept.as_deref()?)
        })
    };
    vec![
        known(figures::KEPT_RENEWALS, "per_lock_minute"),
        each(
            "kept_round_trips",
            "per_lock_minute",
            Kept::round_trips_per_minute,
        ),
        each(
            "kept_network",
            "bytes_per_lock_minute",
            Kept::bytes_per_minute,
        ),
        known(figures::KEPT_CPU, "us_per_lock_minute"),
        known(figures::KEPT_SERVER_CPU, "us_per_lock_minute"),
        known(figures::KEPT_OWN_SERVER_CPU, "us_per_lock_minute"),
        known(figures::KEPT_BYTES, "bytes_per_lock"),
        each("kept_connections", "per_lock", Kept::connections_each),
    ]
}

fn connections() -> Vec<CsvColumn> {
    let each = |stem: &str, unit, of: fn(&Connections) -> Option<f64>| {
        CsvColumn::new(stem, unit, Over::Interval, move |run| {
            of(run.connections.as_deref()?)
        })
    };
    vec![
        each("opened", "", |c| Some(c.opened as f64)),
        each("total", "s", |c| Some(c.total_s)),
        each("client_own_memory", "bytes_each", |c| {
            c.client.own_bytes_each
        }),
        each("server_own_memory", "bytes_each", |c| {
            c.server.as_ref()?.own_bytes_each
        }),
        each("slab_memory", "bytes_each", |c| c.slab_bytes_each),
        each("server_cpu_user", "s", |c| c.server.as_ref()?.cpu_user_s),
        each("server_cpu_system", "s", |c| {
            c.server.as_ref()?.cpu_system_s
        }),
        each("time_wait_left", "", |c| c.time_wait_left.map(|n| n as f64)),
    ]
}

/// What became of requests that were planned, or kept in flight.
fn requests() -> Vec<CsvColumn> {
    let in_flight = |run: &Run| Some(run.spread.as_ref()?.in_flight as f64);
    let all = [
        CsvColumn::new("in_flight", "", Over::Interval, in_flight),
        known(figures::IN_FLIGHT, ""),
        known(figures::AT_SERVER, ""),
    ];
    // What makes a point of generators INVALID.
    all.map(CsvColumn::evidence).into()
}
