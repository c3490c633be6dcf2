//! Summarizes the runs of a result file for tables: one summary for each point.

use crate::checks::{self, Evidence, anchor, concurrency, interference, neighbours};
use crate::clean;
use crate::figures::{
    BIND_P50, CONNECT_P50, Figure, Fold, NEXT_GRANT, Over, SUMMARIZED, THROUGHPUT,
};
use crate::harm::{self, Harm};
use crate::intervals::estimate;
use crate::kept::{self, KeptSummary};
use crate::open_loop;
use crate::path;
use crate::ratio::{Ends, Ratio};
use crate::requested::{self, RequestSummary};
use crate::spoilt;
use crate::spread::{self, Attribution};
use jostle_model::plan::Workload;
use jostle_model::record::{
    At, Experiment, Judged, LimitedBy, MainFigure, OwnCost, PerWorker, Reason, Run, Status, Verdict,
};
use std::collections::{BTreeMap, BTreeSet};

/// A figure over several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Median over the runs.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// True where `low..high` is a 95 % interval of the median by order
    /// statistics (at least 6 runs); false where it is the plain range.
    pub interval: bool,
    /// Runs.
    pub runs: usize,
}

/// The one bound of a figure whose other bound is too far off, or unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OneBound {
    /// The lower one.
    AtLeast(f64),
    /// The upper one.
    AtMost(f64),
}

/// The values that a figure may have had over several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reached {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) runs: usize,
}

/// The figures of one (target, point) over all its runs.
#[derive(Clone, Debug)]
pub struct PointSummary<'a> {
    /// The workload of its experiment, by which tables and sentences are chosen.
    pub workload: Workload,
    /// As typed.
    pub target: &'a str,
    /// The swept values.
    pub at: At,
    /// The runs behind it, in the order of the file: those of blocks that nobody spoilt,
    /// where there are enough of them.
    pub runs: Vec<&'a Run>,
    /// Those of them that others did not disturb, from which times of operations and shares
    /// of workers are taken. All of them where a time is the figure, which has its bound
    /// beside it.
    pub timed: Vec<&'a Run>,
    /// Runs that were left out.
    pub spoilt: usize,
    /// The figure of all runs, where some were left out.
    pub throughput_of_all_per_s: Option<Estimate>,
    /// The interval of each run's throughput for comparisons, relative to it; None where
    /// others may have moved it too far.
    pub narrow: Vec<Option<[f64; 2]>>,
    /// The interval of each run's throughput, relative to it, however wide; None where it is
    /// unknown.
    wide: Vec<Option<[f64; 2]>>,
    /// The share of the windows that the throughput is taken from, where that is not all:
    /// the slices in which nothing foreign ran.
    pub clean_share: Option<f64>,
    /// The factor that turns the throughput of each run into that of its clean slices; None where
    /// it has too few of them. Ones where the figure is not taken from slices.
    cleaned: Vec<Option<f64>>,
    /// The possible cost of other programs and of the hypervisor.
    pub harm: Option<Harm>,
    /// Estimates over the runs that have a figure, by its name; read by [`PointSummary::of`].
    figures: BTreeMap<&'static str, Estimate>,
    /// The mean rate over the runs.
    pub throughput_mean_per_s: Option<f64>,
    /// The cost of keeping its locks for a time.
    pub kept: Option<KeptSummary>,
    /// The summary of requests, where some were made.
    pub requests: Option<RequestSummary>,
    /// Longest wait over all runs.
    pub longest_wait_ns: Option<u64>,
    /// Whether the end of the window cut that wait off: it is then a lower bound.
    pub longest_wait_is_cut: bool,
    /// The run whose count of served workers is the median one, so that the
    /// columns `min..max` and `none` belong together.
    pub per_worker: Option<PerWorker>,
    /// The target's cost by itself and the tool's beside it.
    pub own_cost: Option<OwnCost>,
    /// Throughput by that of a server that only answers, where one ran beside it.
    pub of_echo: Option<Ratio>,
    /// The bottleneck of generators.
    pub attribution: Option<Attribution>,
    /// Over all runs: the checks of every run, and those that need several.
    pub verdict: Verdict,
}

impl<'a> PointSummary<'a> {
    /// The point's main figure, and its name in the runs.
    pub fn figure(&self) -> Option<(&'static str, Estimate)> {
        if self.at.fault.is_some() {
            return self.named(NEXT_GRANT, NEXT_GRANT.name);
        }
        match self.at.open {
            None => self.named(THROUGHPUT, THROUGHPUT.name),
            Some(_) => {
                let connect = self.named(CONNECT_P50, "connect_ns");
                connect.or_else(|| self.named(BIND_P50, "bind_ns"))
            }
        }
    }

    fn named(&self, figure: &Figure, name: &'static str) -> Option<(&'static str, Estimate)> {
        Some((name, self.of(figure)?))
    }

    /// A figure over its runs; None where no run has it, or where it is a time of generators
    /// that could do no more.
    pub fn of(&self, figure: &Figure) -> Option<Estimate> {
        let own = figure.over != Over::Times || !self.is_of_generators();
        self.figures.get(figure.name).copied().filter(|_| own)
    }

    /// The runs that a figure is taken over.
    pub fn runs_over(&self, over: Over) -> &[&'a Run] {
        match over.is_undisturbed() {
            true => &self.timed,
            false => &self.runs,
        }
    }

    /// The value of a figure in one run, as the point takes it.
    pub fn within(&self, figure: &Figure, run: &Run, value: f64) -> Option<f64> {
        match figure.over {
            Over::CleanSlices if figure.machine() > 0.0 => Some(value / self.rate_of(run, 1.0)?),
            Over::CleanSlices => self.rate_of(run, value),
            _ => Some(value),
        }
    }

    /// Whether a run has this figure beyond all that was measured, so that the others alone would
    /// make it too small.
    pub fn is_beyond(&self, figure: &Figure) -> bool {
        let mut runs = self.runs_over(figure.over).iter();
        runs.any(|run| (figure.of)(run) == Some(f64::INFINITY))
    }

    /// A figure of each run that it is taken over and that has it, as the point takes it; of none
    /// where one has it beyond what was measured.
    pub fn each(&self, figure: &Figure) -> Vec<f64> {
        if self.is_beyond(figure) {
            return Vec::new();
        }
        let of_run = |run: &&Run| self.within(figure, run, (figure.of)(run)?);
        let runs = self.runs_over(figure.over).iter();
        runs.filter_map(of_run).collect()
    }

    fn estimate(&self, figure: &Figure) -> Option<Estimate> {
        let values = self.each(figure);
        let all = values.len() == self.runs_over(figure.over).len();
        let found = estimate(&values).filter(|_| all || figure.over != Over::EachRun);
        let Some(pooled) = open_loop::over_requests(self.workload, figure.name, &self.timed) else {
            return found;
        };
        let median = pooled?;
        let one = Estimate {
            median,
            low: median,
            high: median,
            interval: false,
            runs: 1,
        };
        let found = found.filter(|_| all);
        Some(found.map_or(one, |found| Estimate { median, ..found }))
    }

    /// The median of that.
    pub fn median(&self, figure: &Figure) -> Option<f64> {
        Some(self.of(figure)?.median)
    }

    /// The runs that can be compared, with the interval of a figure: its least value, the
    /// measured one and its greatest.
    pub(crate) fn comparable(&self, figure: &Figure) -> Vec<(&'a Run, Ends)> {
        if self.is_beyond(figure) {
            return Vec::new();
        }
        let runs = self.runs.iter().zip(&self.narrow);
        let runs = runs.filter(|(run, _)| !figure.over.is_undisturbed() || self.is_timed(run));
        let ends = runs.filter_map(|(run, narrow)| {
            let measured = (figure.of)(run)?;
            let [one, other] = (*narrow)?.map(|factor| measured * factor.powf(-figure.machine()));
            Some((*run, [one.min(other), measured, one.max(other)]))
        });
        ends.collect()
    }

    /// From the least to the greatest value that the runs may have had without other programs, of
    /// the runs of which that is known.
    pub(crate) fn reached(&self, figure: &Figure) -> Option<Reached> {
        if self.is_beyond(figure) {
            return None;
        }
        let is_clean = figure.over == Over::CleanSlices && self.clean_share.is_some();
        let runs = self.runs.iter().zip(&self.wide);
        let runs = runs.filter(|(run, _)| !figure.over.is_undisturbed() || self.is_timed(run));
        let mut reached: Option<Reached> = None;
        for (run, wide) in runs {
            let Some(value) = (figure.of)(run).and_then(|value| self.within(figure, run, value))
            else {
                continue;
            };
            let ends = match is_clean {
                true => [value; 2],
                false => match wide {
                    Some(wide) => wide.map(|factor| value * factor.powf(-figure.machine())),
                    None => continue,
                },
            };
            let [least, most] = [ends[0].min(ends[1]), ends[0].max(ends[1])];
            let so_far = reached.unwrap_or(Reached {
                low: f64::INFINITY,
                high: 0.0,
                runs: 0,
            });
            reached = Some(Reached {
                low: so_far.low.min(least),
                high: so_far.high.max(most),
                runs: so_far.runs + 1,
            });
        }
        reached
    }

    /// Whether it is known how far other programs may have moved this figure, either way.
    pub fn is_bounded(&self, figure: &Figure) -> bool {
        let is_bounded = |reached: Reached| reached.low > 0.0 && reached.high.is_finite();
        figure.fold == Fold::OneRun || self.reached(figure).is_some_and(is_bounded)
    }

    /// Whether its figures may be used: no writer prints those of an INVALID point.
    pub fn is_usable(&self) -> bool {
        !self.verdict.is_invalid()
    }

    /// Whether the times of its operations may be used, too. Those of requests that were
    /// spread over generators are the generators' own where these are the bottleneck.
    pub fn times_are_usable(&self) -> bool {
        self.is_usable() && !self.is_of_generators() && !self.timed.is_empty()
    }

    /// Whether its times and shares are taken from this run, among others.
    pub fn is_timed(&self, run: &Run) -> bool {
        self.timed.iter().any(|other| std::ptr::eq(*other, run))
    }

    /// A rate of one run as the point takes it: over its clean slices if the throughput is
    /// from these. A run that was left out keeps that of its whole window.
    pub fn rate_of(&self, run: &Run, per_s: f64) -> Option<f64> {
        let mut runs = self.runs.iter();
        match runs.position(|other| std::ptr::eq(*other, run)) {
            Some(at) => Some(per_s * self.cleaned[at]?),
            None => Some(per_s),
        }
    }

    /// Whether requests were spread over generators that could do no more.
    pub fn is_of_generators(&self) -> bool {
        self.workload == Workload::Spread && self.verdict.limited_by == Some(LimitedBy::Generator)
    }

    /// The limit of the throughput, where it may be used.
    pub fn limited_by(&self) -> Option<LimitedBy> {
        let limit = self.verdict.limited_by;
        limit.filter(|_| self.is_usable())
    }

    /// The point as the result file has it.
    pub fn judged(&self) -> Judged {
        let figure = self.figure().filter(|_| self.is_usable());
        Judged {
            target: self.target.to_owned(),
            at: self.at,
            figure: figure.map(|(of, estimate)| MainFigure {
                of: of.to_owned(),
                median: estimate.median,
                low: estimate.low,
                high: estimate.high,
                runs: estimate.runs as u64,
            }),
            verdict: Verdict {
                limited_by: self.limited_by(),
                ..self.verdict.clone()
            },
        }
    }

    /// The bound of the undisturbed throughput that is near the figure, if only other
    /// programs make the point INVALID, and no interference that takes no CPU time of its own was
    /// seen beside them: at least so much, or at most. Of generators
    /// that could do no more, even with too few requests in flight, it is the rate: the server
    /// can do at least this much.
    pub fn one_bound_per_s(&self) -> Option<OneBound> {
        let reasons = self.verdict.reasons.iter();
        let mut invalid = reasons.filter(|r| r.is == Status::Invalid);
        if self.is_of_generators() && invalid.clone().all(|r| r.check == concurrency::CHECK.name) {
            return Some(OneBound::AtLeast(self.median(THROUGHPUT)?));
        }
        let harmed = invalid.next()?.check == neighbours::CHECK.name && invalid.next().is_none();
        let mut reasons = self.verdict.reasons.iter();
        let is_doubted = reasons.any(|r| r.check == interference::CHECK.name);
        let harm = self.harm.filter(|_| harmed && !is_doubted)?;
        let per_s = self.median(THROUGHPUT)?;
        match harm {
            _ if 1.0 - harm.low <= neighbours::INVALID => Some(OneBound::AtLeast(per_s * harm.low)),
            _ if harm.high - 1.0 <= neighbours::INVALID => {
                Some(OneBound::AtMost(per_s * harm.high))
            }
            _ => None,
        }
    }

    /// The run of median throughput, for what cannot be taken over several; of an
    /// even number the slower of the middle two. An undisturbed one where there is any.
    pub fn median_run(&self) -> Option<&'a Run> {
        self.median_run_by(|run| run.throughput_per_s)
    }

    /// The run with the median of a figure; of an even number the lower of the
    /// middle two. An undisturbed one where there is any.
    pub fn median_run_by(&self, figure: fn(&Run) -> f64) -> Option<&'a Run> {
        let mut runs = match self.timed.is_empty() {
            true => self.runs.clone(),
            false => self.timed.clone(),
        };
        runs.sort_by(|one, other| figure(one).total_cmp(&figure(other)));
        runs.get(runs.len().saturating_sub(1) / 2).copied()
    }
}

/// One summary for each (target, point) that has runs, in the order of the
/// plan: by target, then by the swept value. What the plan does not name (a
/// file put together by hand) follows in the order of the file.
pub fn summarize<'a>(experiment: &'a Experiment, points: &'a [Run]) -> Vec<PointSummary<'a>> {
    let plan = &experiment.plan;
    let targets = in_order(
        plan.targets.iter().map(String::as_str),
        points.iter().map(|point| point.target.as_str()),
    );
    let mut ats = in_order(
        At::swept(plan).into_iter(),
        points.iter().map(|point| point.at),
    );
    if plan.find.is_some() {
        ats.sort();
    }
    let spoilt = spoilt::blocks(points);
    let mut summaries = Vec::new();
    for target in targets {
        for at in &ats {
            let of_this = |point: &&Run| point.target == target && point.at == *at;
            let runs: Vec<&Run> = points.iter().filter(of_this).collect();
            if !runs.is_empty() {
                summaries.push(summary(experiment, target, *at, runs, &spoilt));
            }
        }
    }
    anchor::judge(&mut summaries);
    path::judge(experiment, &mut summaries);
    spread::judge(plan, &mut summaries);
    summaries
}

/// Planned values first, then others that occur; each once.
fn in_order<T: PartialEq>(
    planned: impl Iterator<Item = T>,
    present: impl Iterator<Item = T>,
) -> Vec<T> {
    let mut order = Vec::new();
    for item in planned.chain(present) {
        if !order.contains(&item) {
            order.push(item);
        }
    }
    order
}

fn summary<'a>(
    experiment: &'a Experiment,
    target: &'a str,
    at: At,
    all: Vec<&'a Run>,
    spoilt: &BTreeSet<u32>,
) -> PointSummary<'a> {
    let (runs, reason) = spoilt::choose(all.clone(), spoilt);
    let left_out = all.len() - runs.len();
    let rates_of_all: Vec<f64> = all.iter().map(|run| run.throughput_per_s).collect();
    let verdict = verdict(experiment, &runs, reason);
    let timed = undisturbed(experiment, &runs);
    let clean = clean::clean(&runs);
    let cleaned = cleaned(&runs, clean.as_ref());
    let mut point = PointSummary {
        workload: experiment.plan.workload,
        target,
        at,
        figures: BTreeMap::new(),
        throughput_mean_per_s: None,
        clean_share: clean.map(|clean| clean.share),
        kept: kept::summarize(&runs),
        requests: requested::summarize(&runs, &timed),
        longest_wait_ns: longest_wait(&timed).and_then(longest_wait_ns),
        longest_wait_is_cut: longest_wait(&timed).is_some_and(is_cut),
        per_worker: median_per_worker(&timed),
        own_cost: experiment.calibration.own_cost.get(target).copied(),
        of_echo: None,
        attribution: None,
        spoilt: left_out,
        throughput_of_all_per_s: estimate(&rates_of_all).filter(|_| left_out > 0),
        narrow: harm::narrow(experiment, &runs),
        wide: harm::wide(experiment, &runs),
        harm: harm::bound(experiment, &runs),
        verdict,
        timed,
        cleaned,
        runs,
    };
    let all = SUMMARIZED.iter();
    let known = all.filter_map(|figure| Some((figure.name, point.estimate(figure)?)));
    point.figures = known.collect();
    point.throughput_mean_per_s = mean(&point.each(THROUGHPUT));
    point
}

/// That of the checks, and why runs were left out.
fn verdict(experiment: &Experiment, runs: &[&Run], reason: Option<Reason>) -> Verdict {
    let mut verdict = checks::verdict(&Evidence { experiment, runs });
    if let Some(reason) = reason {
        verdict.is = verdict.is.max(reason.is);
        verdict.reasons.push(reason);
    }
    verdict
}

/// For each run the rate in its clean slices over that of the whole window.
fn cleaned(runs: &[&Run], clean: Option<&clean::Clean>) -> Vec<Option<f64>> {
    let Some(clean) = clean else {
        return vec![Some(1.0); runs.len()];
    };
    let each = runs.iter().zip(&clean.per_s);
    each.map(|(run, per_s)| Some((*per_s)? / run.throughput_per_s.max(f64::MIN_POSITIVE)))
        .collect()
}

/// The run with the longest wait.
fn longest_wait<'a>(timed: &[&'a Run]) -> Option<&'a Run> {
    let runs = timed.iter().copied();
    runs.max_by_key(|run| longest_wait_ns(run))
}

fn longest_wait_ns(run: &Run) -> Option<u64> {
    run.per_worker?.longest_wait_ns
}

/// Whether an attempt was pending at the end of the window that had waited longer than any
/// granted one.
fn is_cut(run: &Run) -> bool {
    let pending = run.per_worker.and_then(|shares| shares.pending);
    let granted = run.acquire_ns.as_ref();
    pending > Some(0) && granted.is_some_and(|waits| longest_wait_ns(run) > Some(waits.granted.max))
}

fn undisturbed<'a>(experiment: &Experiment, runs: &[&'a Run]) -> Vec<&'a Run> {
    let each = runs.iter().zip(harm::undisturbed(experiment, runs));
    each.filter_map(|(run, is)| is.then_some(*run)).collect()
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Counts of the run with the median spread. Among an even number of runs this is the
/// lower of the middle two; among runs that served equally many it is the one of median
/// spread, so that one odd run does not stand for all.
fn median_per_worker(runs: &[&Run]) -> Option<PerWorker> {
    let mut shares: Vec<PerWorker> = runs.iter().filter_map(|run| run.per_worker).collect();
    shares.sort_by_key(|share| (share.none, share.max - share.min));
    shares.get(shares.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{figures, fixtures};

    fn run(target: &str, workers: u64, run: u32, throughput_per_s: f64) -> Run {
        Run {
            target: target.to_string(),
            at: At {
                workers: Some(workers),
                ..At::default()
            },
            run,
            block: run,
            throughput_per_s,
            ..fixtures::point()
        }
    }

    #[test]
    fn points_stand_in_the_order_of_the_plan_however_they_ran() {
        let experiment = fixtures::experiment();
        let points = [
            run("sysv", 1000, 1, 1.0),
            run("flock", 1000, 1, 2.0),
            run("null", 7, 1, 9.0), // not in the plan
            run("flock", 10, 1, 3.0),
            run("sysv", 10, 1, 4.0),
            run("flock", 10, 2, 5.0),
        ];
        let order: Vec<_> = summarize(&experiment, &points)
            .iter()
            .map(|s| (s.target, s.at.workers.unwrap(), s.runs.len()))
            .collect();
        assert_eq!(
            order,
            [
                ("flock", 10, 2),
                ("flock", 1000, 1),
                ("sysv", 10, 1),
                ("sysv", 1000, 1),
                ("null", 7, 1)
            ]
        );
        assert!(summarize(&experiment, &[]).is_empty());
    }

    #[test]
    fn figures_are_taken_over_the_runs_and_absent_ones_stay_absent() {
        let experiment = fixtures::experiment();
        let mut runs: Vec<Run> = (1..=6)
            .map(|n| run("flock", 10, n, 100.0 + f64::from(n)))
            .collect();
        for run in &mut runs {
            run.blocked_share = None;
        }
        runs[3].per_worker.as_mut().unwrap().longest_wait_ns = Some(7);
        runs[4].per_worker.as_mut().unwrap().longest_wait_ns = Some(5);
        let found = summarize(&experiment, &runs).remove(0);
        let throughput = found.of(figures::THROUGHPUT).unwrap();
        assert_eq!(
            (throughput.low, throughput.median, throughput.high),
            (101.0, 103.5, 106.0)
        );
        assert!(throughput.interval);
        assert_eq!(found.of(figures::BLOCKED), None);
        assert_eq!(found.longest_wait_ns, Some(7));
        assert!(!found.longest_wait_is_cut);
        assert_eq!(found.own_cost, None);
        assert_eq!(found.verdict.is, Status::Valid);
    }

    #[test]
    fn a_wait_that_outlasts_all_granted_ones_at_the_end_is_cut_off() {
        let experiment = fixtures::experiment();
        for (pending, granted, is_cut) in [(1, 6, true), (1, 7, false), (0, 6, false)] {
            let mut one = run("flock", 10, 1, 1.0);
            let shares = one.per_worker.as_mut().unwrap();
            (shares.longest_wait_ns, shares.pending) = (Some(7), Some(pending));
            one.acquire_ns.get_or_insert_default().granted.max = granted;
            let runs = [one];
            let found = summarize(&experiment, &runs).remove(0);
            assert_eq!(found.longest_wait_is_cut, is_cut, "{pending} {granted}");
        }
    }

    #[test]
    fn the_run_that_served_the_median_number_of_workers_stands_for_all() {
        let experiment = fixtures::experiment();
        let mut runs: Vec<Run> = (1..=3).map(|n| run("flock", 10, n, 1.0)).collect();
        for (point, counts) in
            runs.iter_mut()
                .zip([[0, 0, 0, 300], [100, 100, 100, 0], [50, 250, 0, 0]])
        {
            let at = point.at;
            fixtures::share_out(point, &counts);
            point.at = at;
        }
        let found = summarize(&experiment, &runs).remove(0);
        let shares = found.per_worker.unwrap();
        assert_eq!((shares.none, shares.min, shares.max), (2, 0, 250));
    }

    #[test]
    fn the_verdict_is_over_all_runs() {
        let experiment = fixtures::experiment();
        let mut runs: Vec<Run> = (1..=6).map(|n| run("flock", 10, n, 1.0)).collect();
        runs[5].exclusion.as_mut().unwrap().violations = 1;
        let found = summarize(&experiment, &runs).remove(0);
        assert_eq!(found.verdict.is, Status::Invalid);
        assert_eq!(found.verdict.reasons[0].check, "exclusion");
    }
}
