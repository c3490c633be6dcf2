//! Turns the engine's progress reports into the state that the page and the metrics show.

use super::state::{Current, State};
use crate::progress::place;
use jostle_engine::experiment::Progress;
use jostle_engine::order::Running;
use jostle_model::plan::Workload;
use jostle_model::record::{Accounts, At, Buckets, End, Record, Run};
use jostle_report::openmetrics::{self, NowRun};
use jostle_report::{ResultSet, live};
use jostle_stats::histogram::Histogram;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

const NS_PER_S: f64 = 1e9;

/// Looks over which there may be enough values for a percentile.
const LOOKS: usize = 10;

/// Time between two tables, as a multiple of the time that the last one took: with
/// thousands of runs a table takes so long that it would delay the next run.
const REST: u32 = 50;

/// The progress so far.
#[derive(Default)]
pub(super) struct Following {
    /// Experiments with their finished runs; of the last one more are to come.
    sets: Vec<ResultSet>,
    /// The run in progress.
    run: Option<Ongoing>,
    /// Runs that the experiments before this one had planned.
    planned_before: u64,
    planned: u64,
    /// When the last table was made, and what it took.
    table: Option<(Instant, Duration)>,
}

/// A run in progress.
struct Ongoing {
    target: String,
    at: At,
    /// The point, as options.
    name: String,
    /// The latest looks at it.
    looks: VecDeque<Running>,
}

impl Following {
    /// Follows the measurement. True where that changes what is shown.
    pub(super) fn show(&mut self, progress: &Progress<'_>, state: &mut State) -> bool {
        match progress {
            Progress::Planned { points, rounds, .. } => {
                self.planned = (points * rounds) as u64;
                state.now.runs_planned = self.planned_before + self.planned;
            }
            Progress::Run(target, at, _) => self.begin(target, *at, state),
            Progress::Running(look) => self.look(look, state),
            Progress::Done(point) => self.done(point, state),
            Progress::Cost(_)
            | Progress::Alone(..)
            | Progress::Pilot(..)
            | Progress::Slower { .. } => return false,
        }
        true
    }

    fn begin(&mut self, target: &str, at: At, state: &mut State) {
        let name = format!("{target}{}", place(at));
        state.run(Some(Current {
            point: name.clone(),
            ..Current::default()
        }));
        self.run = Some(Ongoing {
            target: target.to_owned(),
            at,
            name,
            looks: VecDeque::new(),
        });
    }

    fn look(&mut self, look: &Running, state: &mut State) {
        let Some(run) = &mut self.run else { return };
        let nothing = Running::default();
        let last = run.looks.back().unwrap_or(&nothing);
        let span_s = look.elapsed_ns.saturating_sub(last.elapsed_ns) as f64 / NS_PER_S;
        if span_s <= 0.0 {
            return;
        }
        let operations = look.operations.saturating_sub(last.operations);
        let cpus = (last.elapsed_ns > 0).then(|| cpus(last, look, span_s));
        let per_s = Some(operations as f64 / span_s);
        state.now.run = Some(NowRun {
            experiment: self.sets.len().max(1),
            workload: workload(&self.sets),
            target: run.target.clone(),
            at: run.at,
            operations: look.operations,
            per_s,
            latency: look
                .latency
                .clone()
                .map(|(name, all)| (name, all.buckets, all.sum)),
            workers: look
                .shares
                .first()
                .copied()
                .zip(look.shares.last().copied()),
            overlaps: look.overlaps,
            cpus,
        });
        state.run(Some(Current {
            point: run.name.clone(),
            timed: look.latency.as_ref().map(|(name, _)| name.clone()),
            per_s,
            ns: latency(&run.looks, look),
            cpus,
            look: Some(Running {
                latency: None,
                ..look.clone()
            }),
        }));
        if run.looks.len() == LOOKS {
            run.looks.pop_front();
        }
        run.looks.push_back(look.clone());
    }

    fn done(&mut self, run: &Run, state: &mut State) {
        let Some(current) = self.run.take() else {
            return;
        };
        let metrics = &mut state.now;
        metrics.runs_finished += 1;
        metrics.run = None;
        // Runs are added while figures are not precise; the share that is done stays one.
        if metrics.runs_planned > 0 {
            metrics.runs_planned = metrics.runs_planned.max(metrics.runs_finished);
        }
        state.run(None);
        if let Some(accounts) = run.around.accounts.as_deref() {
            let accounts = Accounts {
                readings: None,
                ..accounts.clone()
            };
            state.accounts(current.name, accounts);
        }
    }

    /// A record was made: the table, the metrics and the title, where they are due.
    pub(super) fn record(&mut self, record: &Record) -> Option<(String, String, String)> {
        let set = self.sets.last_mut();
        match (record, set) {
            (Record::Experiment(experiment), _) => {
                self.planned_before += std::mem::take(&mut self.planned);
                // With an end, or the table would say that it has none.
                let end = Some(End {
                    exit: 0,
                    error: None,
                    elapsed_s: 0.0,
                });
                let experiment = (**experiment).clone();
                self.sets.push(ResultSet::new(experiment, Vec::new(), end));
                return Some(self.tables());
            }
            (Record::Run(run), Some(set)) => set.runs.push((**run).clone()),
            (Record::Closing(closing), Some(set)) => {
                let mut runs = set.runs.iter_mut().rev();
                runs.find_map(|run| closing.add_to(run).then_some(()))?;
            }
            (Record::Fit(fit), Some(set)) => set.fits.push((**fit).clone()),
            (Record::End(end), Some(set)) => {
                set.end = Some(end.clone());
                return Some(self.tables());
            }
            _ => return None,
        }
        let due = |(at, took): &(Instant, Duration)| at.elapsed() >= *took * REST;
        let due = self.table.as_ref().is_none_or(due);
        (due && matches!(record, Record::Run(_))).then(|| self.tables())
    }

    fn tables(&mut self) -> (String, String, String) {
        let began = Instant::now();
        let measured = self.sets.iter().any(|set| !set.runs.is_empty());
        let html = match measured {
            true => live::results(&self.sets),
            false => String::new(),
        };
        let metrics = openmetrics::finished(&self.sets);
        self.table = Some((began, began.elapsed()));
        (html, metrics, self.title())
    }

    fn title(&self) -> String {
        let names = self.sets.iter().map(|set| {
            let plan = &set.experiment.plan;
            format!("{} {}", plan.workload, plan.targets.join(", "))
        });
        let names: Vec<String> = names.collect();
        format!("jostle {}", names.join("; "))
    }
}

fn workload(sets: &[ResultSet]) -> Workload {
    sets.last()
        .map_or(Workload::Contend, |set| set.experiment.plan.workload)
}

/// CPUs in use between two looks: workers, server, jostle, others.
fn cpus(from: &Running, to: &Running, span_s: f64) -> [f64; 4] {
    let used = |from: u64, to: u64| to.saturating_sub(from) as f64 / NS_PER_S / span_s;
    let both = |from: Option<u64>, to: Option<u64>| Some(used(from?, to?));
    let workers = used(from.cpu.workers_ns, to.cpu.workers_ns);
    let server = both(from.cpu.server_ns, to.cpu.server_ns).unwrap_or(0.0);
    let tool = used(from.cpu.tool_ns, to.cpu.tool_ns);
    let whole = both(from.cpu.whole_ns, to.cpu.whole_ns).unwrap_or(0.0);
    [
        workers,
        server,
        tool,
        (whole - workers - server - tool).max(0.0),
    ]
}

/// Latency up to a look, from the looks before it (the latest last): each percentile over
/// the shortest interval with enough values for it, the maximum since the previous look.
fn latency(before: &VecDeque<Running>, to: &Running) -> Option<[Option<u64>; 4]> {
    let nothing = Running::default();
    let (beginning, last) = match before.back() {
        Some(last) if before.len() < LOOKS => (Some(&nothing), last),
        Some(last) => (None, last),
        None => (None, &nothing),
    };
    let most = between(last, to)?.quantile(1.0);
    let spans = || {
        let earlier = before.iter().rev().skip(1).chain(beginning);
        std::iter::once(last).chain(earlier)
    };
    let over = |q: f64| spans().find_map(|from| between(from, to)?.published(q));
    Some([over(0.5), over(0.9), over(0.99), most])
}

/// The times of operations between two looks.
fn between(from: &Running, to: &Running) -> Option<Histogram> {
    let (_, to) = to.latency.as_ref()?;
    let before: BTreeMap<u64, u64> = match &from.latency {
        Some((_, from)) => from.buckets.0.iter().copied().collect(),
        None => BTreeMap::new(),
    };
    let since = to.buckets.0.iter().filter_map(|(floor, count)| {
        let count = count.saturating_sub(before.get(floor).copied().unwrap_or(0));
        (count > 0).then_some((*floor, count))
    });
    Some(Histogram::from_buckets(&Buckets(since.collect())))
}

#[cfg(test)]
mod tests {
    use super::super::state::Seen;
    use super::*;
    use jostle_engine::order::{Merged, Used};

    fn look(elapsed_s: u64, operations: u64, buckets: &[(u64, u64)]) -> Running {
        Running {
            elapsed_ns: elapsed_s * 1_000_000_000,
            window_ns: Some(9_000_000_000),
            operations,
            shares: vec![operations],
            workers: 1,
            latency: Some((
                "acquire_ns".to_owned(),
                Merged {
                    buckets: Buckets(buckets.to_vec()),
                    sum: 1,
                    min: 1,
                    max: 1,
                },
            )),
            cpu: Used {
                workers_ns: elapsed_s * 500_000_000,
                server_ns: Some(elapsed_s * 250_000_000),
                tool_ns: 0,
                whole_ns: Some(elapsed_s * 1_000_000_000),
            },
            ..Running::default()
        }
    }

    fn shown(state: &State) -> serde_json::Value {
        let (text, _) = state.since(Seen::NOTHING);
        let data = text.split_once("data: ").unwrap().1;
        serde_json::from_str::<serde_json::Value>(data).unwrap()["run"].clone()
    }

    #[test]
    fn a_look_shows_what_happened_since_the_one_before() {
        let (mut following, mut state) = (Following::default(), State::default());
        let at = At {
            workers: Some(2),
            ..At::default()
        };
        following.show(&Progress::Run("flock", at, 1), &mut state);
        let mut after = |one: Running| {
            assert!(following.show(&Progress::Running(&one), &mut state));
            state.tick(5.0, String::new());
            assert!(state.metrics().contains("jostle_run_operations_total{"));
            shown(&state)
        };
        let first = after(look(1, 100, &[(100, 100)]));
        assert_eq!(first["per_s"], 100.0);
        assert!(first["cpus"].is_null(), "of the time since it began");
        let second = after(look(3, 400, &[(100, 100), (2_000, 300)]));
        assert_eq!(second["per_s"], 150.0);
        let near =
            |value: &serde_json::Value| (value.as_f64().unwrap() / 2_000.0 - 1.0).abs() < 0.01;
        let ns = second["ns"].as_array().unwrap();
        assert!(near(&ns[0]) && near(&ns[3]), "{ns:?}");
        assert!(
            ns[2].is_null(),
            "3 of 300 are too few for a 99th percentile"
        );
        assert_eq!(second["cpus"], serde_json::json!([0.5, 0.25, 0.0, 0.25]));
        // Of the last second there are 600, of the whole run 1,000.
        let third = after(look(4, 1_000, &[(100, 100), (2_000, 900)]));
        assert!(near(&third["ns"][2]), "{third:?}");
    }
}
