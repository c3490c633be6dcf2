//! The clauses of `contend`: waiting, the CPU cost of waiting, and whether
//! throughput holds.

use super::beside::{self, Order, beside, common, noun, printed, with};
use super::growth::{self, DISJOINT};
use super::turns::{LISTED, is_plain, order_is_the_lock_s};
use super::{Values, View, capital, each, listed};
use crate::columns::longest_wait;
use crate::format::{each_once, exact, grouped, percent};
use crate::requests::short;
use jostle_model::plan::Workload;
use jostle_model::record::{At, LimitedBy, Reason, Run, Waits};
use jostle_model::{Busy, Nanos, Plan};
use jostle_stats::checks::{exclusion, lost_update};
use jostle_stats::figures::{self, ACQUIRE_P99, Figure, Over};
use jostle_stats::histogram::Histogram;
use jostle_stats::intervals::median;
use jostle_stats::numbers::{self, significant, time};
use jostle_stats::ratio::{Outcome, by_block};
use jostle_stats::summary::PointSummary;

/// Growth of a lock's CPU time and round trips that is worth a word.
const GROWTH: f64 = 2.0;

/// That a lock did not exclude, whatever else is known of it. That it is broken would be a cause:
/// another program may have removed it.
pub(super) fn broken(view: &View<'_, '_>) -> Vec<Values> {
    let proof = view.all.iter().find_map(|point| {
        let mut reasons = point.verdict.reasons.iter();
        let proves = |reason: &&Reason| {
            [exclusion::CHECK.name, lost_update::CHECK.name].contains(&reason.check.as_str())
        };
        Some((short(point.target), reasons.find(proves)?.text.clone()))
    });
    let values = |(target, said)| vec![("target", target), ("said", said)];
    proof.map(values).into_iter().collect()
}

/// That nobody contended.
pub(super) fn alone(view: &View<'_, '_>) -> Vec<Values> {
    let is_one = |point: &PointSummary<'_>| point.at.workers == Some(1);
    match !view.all.is_empty() && view.all.iter().all(is_one) {
        true => vec![vec![(
            "said",
            "One worker alone does not contend (-w 1:10:100)".to_owned(),
        )]],
        false => Vec::new(),
    }
}

/// Targets whose p99 wait at the greatest load lies beyond what was measured, where no comparison
/// at that load names them.
pub(super) fn cut_off(view: &View<'_, '_>) -> Vec<Values> {
    let compared = beside(view, ACQUIRE_P99).map(|found| found.at());
    let at = greatest(&view.points).filter(|at| compared != Some(*at));
    let Some(at) = at else {
        return Vec::new();
    };
    let here = view.points.iter().filter(|point| point.at == at);
    let cut = here.filter(|point| point.is_beyond(ACQUIRE_P99));
    let list: Vec<String> = cut.map(|point| short(point.target)).collect();
    match list.is_empty() {
        true => Vec::new(),
        false => vec![vec![("with", with(at)), ("list", list.join(", "))]],
    }
}

/// The greatest load that most targets have, or that the only one has.
fn greatest(points: &[&PointSummary<'_>]) -> Option<At> {
    let most = points.iter().max_by_key(|point| point.at.workers);
    let of_one = most.filter(|_| beside::targets(points).len() == 1);
    common(points).or(of_one.map(|point| point.at))
}

/// The longest wait of each target at one load; no test compares single waits.
pub(super) fn longest(view: &View<'_, '_>) -> Vec<Values> {
    let targets = beside::targets(&view.points).len();
    let known = view.points.iter().copied();
    let known: Vec<_> = known
        .filter(|point| point.longest_wait_ns.is_some())
        .collect();
    let at = greatest(&known);
    let here = known.iter().filter(|point| Some(point.at) == at);
    let mut waits: Vec<(u64, &PointSummary<'_>)> = here
        .filter_map(|point| Some((point.longest_wait_ns?, *point)))
        .collect();
    waits.sort_by_key(|(ns, point)| (*ns, short(point.target)));
    let told = |(_, point): &(u64, &PointSummary<'_>)| {
        let wait = longest_wait(point).unwrap_or_default();
        match targets {
            1 => wait,
            _ => format!("{} {wait}", short(point.target)),
        }
    };
    let list: Vec<String> = match &waits[..] {
        [first, .., last] if waits.len() > 2 * LISTED => {
            vec![
                told(first),
                format!("{} between", waits.len() - 2),
                told(last),
            ]
        }
        all => all.iter().map(told).collect(),
    };
    match (list.is_empty(), at) {
        (false, Some(at)) => vec![vec![("with", with(at)), ("list", list.join(", "))]],
        _ => Vec::new(),
    }
}

/// A single target at the greatest load.
fn only<'v, 'a>(view: &View<'v, 'a>) -> Option<&'v PointSummary<'a>> {
    let is_one = beside::targets(&view.points).len() == 1;
    let points = view.points.iter().copied().filter(|_| is_one);
    points.max_by_key(|point| beside::load(point.at))
}

fn value_of_one(view: &View<'_, '_>, figure: &'static Figure) -> Option<Values> {
    let point = only(view).filter(|point| !point.is_of_generators())?;
    let value = printed(figure, point.median(figure)?, point);
    Some(vec![
        ("value", value),
        ("per", noun(point).to_owned()),
        ("with", with(point.at)),
    ])
}

pub(super) fn cpu_of_one(view: &View<'_, '_>) -> Vec<Values> {
    value_of_one(view, figures::CPU).into_iter().collect()
}

/// With its share of what a lock without any cost would do.
pub(super) fn rate_of_one(view: &View<'_, '_>) -> Vec<Values> {
    let values = value_of_one(view, figures::THROUGHPUT).map(|mut values| {
        let limit = only(view).and_then(PointSummary::limited_by);
        let most = match limit.filter(|_| view.plan().workload == Workload::Spread) {
            Some(LimitedBy::Target) => ", where the server is the limit".to_owned(),
            _ => String::new(),
        };
        let share = only(view).and_then(|point| point.median(figures::OF_IDEAL));
        let share = share.map_or(most, |share| {
            format!(
                ", {:.0} % of the maximum (a lock that costs nothing)",
                100.0 * share
            )
        });
        values.push(("share", share));
        values
    });
    values.into_iter().collect()
}

/// Where holds leave nothing for the locks to differ in.
pub(super) fn capped(view: &View<'_, '_>) -> Vec<Values> {
    let found = beside(view, figures::THROUGHPUT).filter(|found| found.order == Order::Capped);
    let Some((found, hold)) = found.zip(view.plan().hold) else {
        return Vec::new();
    };
    let mut values = found.values();
    let most = view.plan().key_count() as f64 * 1e9 / hold.span().0.max(1) as f64;
    values.push(("hold", exact(hold.span())));
    values.push(("most", significant(most, 1)));
    vec![values]
}

/// From the fewest workers to the most of each target, where runs of the same blocks decide it.
pub(super) fn moved(view: &View<'_, '_>) -> Vec<Values> {
    each(&view.points, |points| {
        let (few, many) = ends(points)?;
        let ratio = by_block(few, many, figures::THROUGHPUT)?;
        let printed = many.median(figures::THROUGHPUT)? / few.median(figures::THROUGHPUT)?;
        let moved = match ratio.outcome {
            Outcome::Same => "stays the same, within 5 %".to_owned(),
            Outcome::Differs if printed < 1.0 && ratio.ratio < 1.0 => {
                format!("falls to {:.0} %", 100.0 * printed)
            }
            Outcome::Differs if printed > 1.0 && ratio.ratio > 1.0 => {
                format!("rises to {:.0} %", 100.0 * printed)
            }
            _ => return None,
        };
        Some(format!("{} it {moved}", from_to(few, many)))
    })
}

fn ends<'v, 'a>(
    points: &[&'v PointSummary<'a>],
) -> Option<(&'v PointSummary<'a>, &'v PointSummary<'a>)> {
    let few = *points.iter().min_by_key(|point| point.at.workers)?;
    let many = *points.iter().max_by_key(|point| point.at.workers)?;
    (few.at != many.at).then_some((few, many))
}

/// `from 10 to 200 workers`.
fn from_to(few: &PointSummary<'_>, many: &PointSummary<'_>) -> String {
    let [few, many] = [few, many].map(|point| grouped(point.at.workers.unwrap_or(0)));
    format!("from {few} to {many} workers")
}

/// `flock 763 ns, sysv 868 ns`, of targets of which no row of the table tells that.
pub(super) fn uncontended(view: &View<'_, '_>) -> Vec<Values> {
    let plan = view.plan();
    let is_pause = |time: Busy| time.span() > Nanos::ZERO;
    let pauses = plan.hold.is_some_and(is_pause) || plan.idle.is_some_and(is_pause);
    listed(&view.all.iter().collect::<Vec<_>>(), |points| {
        let mut points = points.iter();
        let is_told =
            |point: &&PointSummary<'_>| point.at.workers == Some(1) && !pauses && point.is_usable();
        match points.clone().any(is_told) {
            true => None,
            false => points.find_map(|point| Some(time(point.own_cost?.pair_ns))),
        }
    })
}

/// Share of the attempts that have to wait for another name before that is reported.
const STRIPED: f64 = 0.1;

/// `67 % of the attempts waited although nobody had their name`, with several names.
pub(super) fn striped(view: &View<'_, '_>) -> Vec<Values> {
    each(&view.points, |points| {
        striped_at(view.plan(), most_workers(points)?)
    })
}

fn striped_at(plan: &Plan, point: &PointSummary<'_>) -> Option<String> {
    // Half of such a wait has to be more than the lock's own calls.
    const CALLS: f64 = 10.0;
    let calls_ns = CALLS * point.own_cost.map_or(0.0, |cost| cost.pair_ns);
    let is_asked = plan.key_count() > 1 && is_plain(plan);
    let shares = point.runs.iter().filter(|_| is_asked);
    let shares = shares.map(|run| waited_elsewhere(run, calls_ns));
    let share = median(shares.collect::<Option<Vec<f64>>>()?)?;
    (share >= STRIPED).then(|| {
        format!(
            "{:.0} % of the attempts waited although nobody held their lock: {DISJOINT}",
            100.0 * share
        )
    })
}

/// Share of the attempts that waited for half a hold or longer, less those whose own lock
/// had an owner meanwhile, and less as many as the run queue can have delayed by so much. None
/// where that tells nothing.
fn waited_elsewhere(run: &Run, calls_ns: f64) -> Option<f64> {
    let half_ns = run.times.hold_ns.as_ref()?.mean / 2.0;
    let waits = Histogram::from_buckets(run.histograms.get("acquire_ns")?);
    let queued_ns = 1e9
        * run
            .cpu
            .runqueue_wait_s
            .filter(|_| growth::runs_apart(run))?;
    let queued = queued_ns / half_ns / run.operations.max(1) as f64;
    let late = waits.share_over(half_ns as u64);
    (half_ns > calls_ns && half_ns > 0.0).then_some(late - run.blocked_share? - queued)
}

/// Rotations from which on a wait is starvation. In a queue each other worker is served at
/// most once before it ends, which takes one.
const STARVES: f64 = 3.0;

/// `writers starve: half of them wait 2.1 s or longer, readers 12 us`. The medians over the
/// runs of each mode's median wait, or of the least that it can be.
pub(super) fn modes(view: &View<'_, '_>) -> Vec<Values> {
    each(&view.points, |points| {
        readers_and_writers(most_workers(points)?)
    })
}

/// The point with the most workers.
fn most_workers<'v, 'a>(points: &[&'v PointSummary<'a>]) -> Option<&'v PointSummary<'a>> {
    points.iter().copied().max_by_key(|point| point.at.workers)
}

fn readers_and_writers(point: &PointSummary<'_>) -> Option<String> {
    let wait_ns = |mode: fn(&Run) -> Option<&Waits>| {
        let waits = point.timed.iter().filter_map(|run| mode(run));
        let each = waits.map(|waits| {
            let known = waits.kaplan_meier.get("p50");
            known
                .or_else(|| waits.at_least.get("p50"))
                .map(|ns| *ns as f64)
        });
        median(each.flatten())
    };
    let readers = wait_ns(|run| run.reader_wait_ns.as_deref())?;
    let writers = wait_ns(|run| run.writer_wait_ns.as_deref())?;
    let rotation_ns = point.at.workers? as f64 * 1e9 / point.median(figures::THROUGHPUT)?;
    let starve = |ns: f64, other: f64| ns > STARVES * rotation_ns && other <= STARVES * rotation_ns;
    let [read, write] = [readers, writers].map(time);
    Some(if starve(writers, readers) {
        format!("writers starve: half of them wait {write} or longer, readers {read}")
    } else if starve(readers, writers) {
        format!("readers starve: half of them wait {read} or longer, writers {write}")
    } else {
        format!("readers wait {read} and writers {write} in the median")
    })
}

/// `0.2 % of the acquisitions waited, for 49 % of the workers' time: worker 1 for 628 ms at the
/// longest, while another took up to 6,280 turns in a row (12 changes of owner in 9,902 turns)`,
/// where few acquisitions wait long.
pub(super) fn starving(view: &View<'_, '_>) -> Vec<Values> {
    each(&view.points, |points| {
        few_wait_long(view.plan(), most_workers(points)?)
    })
}

fn few_wait_long(plan: &Plan, point: &PointSummary<'_>) -> Option<String> {
    /// Share of the grants up to which, and of the time from which on.
    const FEW: f64 = 0.01;
    let shares = |run: &Run| run.per_worker.filter(|_| order_is_the_lock_s(plan));
    let longest = |run: &&&Run| shares(run)?.longest_wait_ns;
    let run = point.timed.iter().max_by_key(longest)?;
    let shares = shares(run)?;
    let [grants, time_share] = [run.blocked_share?, run.blocked_time_share?];
    let (worker, waited_ns) = (shares.longest_wait_worker?, shares.longest_wait_ns?);
    let (turns, changes) = (shares.longest_streak?, shares.owner_changes?);
    (grants < FEW && time_share >= FEW).then(|| {
        format!(
            "{} of the acquisitions waited, for {:.0} % of the workers' time: worker {worker} for \
             {} at the longest, while another took up to {} turns in a row ({} changes of owner in \
             {} turns)",
            percent(grants),
            100.0 * time_share,
            time(waited_ns as f64),
            numbers::grouped(turns),
            numbers::grouped(changes),
            numbers::grouped(run.operations)
        )
    })
}

/// `a waiting lock costs 12.0 round trips and 240 us of server CPU a minute (with 999
/// waiting)`, where hardly anything else happened.
pub(super) fn waiting(view: &View<'_, '_>) -> Vec<Values> {
    each(&view.points, |points| {
        cost_of_waiting(most_workers(points)?)
    })
}

fn cost_of_waiting(point: &PointSummary<'_>) -> Option<String> {
    let over_runs = |of: fn(&Run) -> Option<f64>| {
        let values = point.each(&Figure {
            over: Over::Undisturbed,
            of,
            ..Figure::TIME
        });
        median(&values)
    };
    let workers = over_runs(Run::waiting)?;
    let asked = over_runs(Run::waiting_round_trips_per_minute);
    let asked = asked.map(|times| format!("{} round trips", significant(times, 3)));
    let used = over_runs(Run::waiting_server_cpu_us_per_minute);
    let used = used.map(|us| format!("{} of server CPU", time(us * 1e3)));
    let costs: Vec<String> = asked.into_iter().chain(used).collect();
    (!costs.is_empty()).then(|| {
        format!(
            "a waiting lock costs {} a minute (with {workers:.0} waiting)",
            costs.join(" and ")
        )
    })
}

/// `48 of 128 attempts ended without the lock (after 1.0 s in the median)`, over all runs.
pub(super) fn failed(view: &View<'_, '_>) -> Vec<Values> {
    each(&view.points, |points| ended_without(most_workers(points)?))
}

pub(super) fn ended_without(point: &PointSummary<'_>) -> Option<String> {
    let sum = |count: fn(&Run) -> u64| point.runs.iter().map(|run| count(run)).sum::<u64>();
    let failed = sum(|run| run.timeouts.unwrap_or(0));
    let all = failed + sum(|run| run.operations);
    let after_ns =
        |run: &&&Run| Some(*run.times.failed_try_ns.as_ref()?.percentiles.get("p50")? as f64);
    let after: Vec<f64> = point.runs.iter().filter_map(|run| after_ns(&run)).collect();
    let after = median(&after).map_or_else(String::new, |ns| {
        format!(" (after {} in the median)", time(ns))
    });
    (failed > 0).then(|| {
        let [failed, all] = [failed, all].map(numbers::grouped);
        format!("{failed} of {all} attempts ended without the lock{after}")
    })
}

/// `From 10 to 200 workers CPU per lock grows by a factor of 4.1 (flock), 2.7 (sysv)`.
pub(super) fn cpu_growth(view: &View<'_, '_>) -> Vec<Values> {
    let targets = beside::targets(&view.points);
    let grown = targets.iter().filter_map(|target| {
        let of_target = view.points.iter().copied();
        let of_target = of_target.filter(|point| point.target == *target);
        let (from_to, factor) = cpu_of(&of_target.collect::<Vec<_>>())?;
        let name = match targets.len() {
            1 => String::new(),
            _ => format!(" ({})", short(target)),
        };
        Some((from_to, factor + &name))
    });
    let grown: Vec<(String, String)> = grown.collect();
    let ranges = each_once(grown.iter().map(|(range, _)| range)).into_iter();
    let said = ranges.map(|range| {
        let factors = grown.iter().filter(|(other, _)| other == range);
        let factors: Vec<&str> = factors.map(|(_, factor)| factor.as_str()).collect();
        let factors = factors.join(", ");
        let said = format!("{range} CPU per lock grows by a factor of {factors}");
        vec![("said", capital(&said))]
    });
    said.collect()
}

/// From how many workers to how many, and how many times as much CPU time a lock takes.
fn cpu_of(points: &[&PointSummary<'_>]) -> Option<(String, String)> {
    let [(few, least), (many, most)] = grown(points, figures::CPU)?;
    Some((from_to(few, many), significant(most / least, 2)))
}

/// The points with the fewest and the most workers that have the figure, with it, where it is much
/// more, and more in the runs of the same blocks.
fn grown<'v, 'a>(
    points: &[&'v PointSummary<'a>],
    figure: &'static Figure,
) -> Option<[(&'v PointSummary<'a>, f64); 2]> {
    let known = points.iter().copied();
    let known = known.filter(|point| point.median(figure).is_some());
    let (few, many) = ends(&known.collect::<Vec<_>>())?;
    let (least, most) = (few.median(figure)?, many.median(figure)?);
    let grows = (most / least).is_finite() && most / least >= GROWTH;
    let grows = grows && by_block(few, many, figure)?.low > 1.0;
    grows.then_some([(few, least), (many, most)])
}

/// `redis 2.0 to 44`: how often its clients ask, where that grows.
pub(super) fn round_trips(view: &View<'_, '_>) -> Vec<Values> {
    let mut told = listed(&view.points, |points| {
        let trips = grown(points, figures::ROUND_TRIPS)?;
        let [few, many] = trips.map(|(_, trips)| significant(trips, 2));
        Some(format!("{few} to {many}"))
    });
    let ends = ends(&view.points);
    for values in &mut told {
        let range = ends.map(|(few, many)| from_to(few, many));
        values.push(("range", range.unwrap_or_default()));
    }
    told
}

#[cfg(test)]
mod tests;
