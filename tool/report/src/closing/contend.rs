//! The closing sentences of `contend`: whether throughput holds, the order of service, and
//! the CPU cost of waiting.

use super::growth::{self, DISJOINT, undecided};
use super::of_each;
use crate::format::percent;
use jostle_model::Plan;
use jostle_model::plan::Range;
use jostle_model::record::{PerWorker, Reason, Run, Waits};
use jostle_stats::checks::CHECKS;
use jostle_stats::fairness::{DispersionTest, dispersion_test};
use jostle_stats::figures::{self, Figure, Over};
use jostle_stats::histogram::Histogram;
use jostle_stats::intervals::median;
use jostle_stats::numbers::{self, significant, time};
use jostle_stats::ratio::{Outcome, by_block};
use jostle_stats::summary::PointSummary;

/// Probability under which a lottery is ruled out.
const P: f64 = 0.01;

/// Rotations below which there is no clause about the order of service: in so short a
/// window even a queue leaves some workers without a turn, because it is cut at both edges.
const LEAST_ROTATIONS: f64 = 2.0;

/// Most over fewest acquisitions up to which workers are served evenly, and from
/// which some are favoured, where the counts are too many for chance.
const EVEN_RATIO: f64 = 1.1;
const FAVOURED_RATIO: f64 = 1.5;

/// A dispersion below this is clearly lower than a lottery's, and one above [`FAVOURED`]
/// clearly higher. Between them are barging queues and lotteries with a little memory:
/// statistically different from 1, but not of interest to a reader.
const EVEN: f64 = 0.5;
const FAVOURED: f64 = 2.0;

/// Widest spread of counts that still is a queue: the window's two edges, and
/// one newcomer that overtook.
const QUEUE_SPREAD: u64 = 3;

/// Degrees of freedom from which on "not distinguishable from a lottery" means
/// something: the dispersion's relative standard error, sqrt(2 / degrees), is
/// then a quarter.
const LOTTERY_DEGREES: f64 = 30.0;

/// Growth of the CPU per lock that is worth a word.
const CPU_GROWTH: f64 = 2.0;

/// One sentence for each target of such an experiment.
pub(crate) fn sentences(plan: &Plan, points: &[PointSummary<'_>]) -> Vec<(String, String)> {
    of_each(points, |points| {
        let known = points.iter().filter(|point| point.at.workers.is_some());
        let mut known: Vec<&PointSummary<'_>> = known.copied().collect();
        known.sort_by_key(|point| point.at.workers);
        sentence(plan, &known)
    })
}

/// Whether a clause is favourable, which decides between "and" and "but" before the next
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tone {
    Good,
    Bad,
    Neutral,
}

type Clause = (Tone, String);

/// `points` are one target's, by number of workers.
fn sentence(plan: &Plan, points: &[&PointSummary<'_>]) -> Option<String> {
    let (few, many) = (*points.first()?, *points.last()?);
    if let Some(text) = invalid(points) {
        return Some(text);
    }
    let workers = many.at.workers?;
    if workers == 1 {
        return Some("one worker alone does not contend (-w 1:10:100).".to_string());
    }
    let first = if few.at == many.at {
        of_ideal(many, workers)
    } else {
        throughput(few, many)
    };
    let order = order_of_service(plan, many).or_else(|| failed(many));
    let main = match (first, order) {
        (Some(first), Some(order)) => Some(join(&first, &order)),
        (only, None) | (None, only) => only.map(|(_, text)| text),
    };
    let clauses = [
        main,
        striped(plan, many),
        cpu_growth(few, many),
        readers_and_writers(many),
        starving(plan, many),
        waiting(many),
    ];
    let clauses: Vec<String> = clauses.into_iter().flatten().collect();
    (!clauses.is_empty()).then(|| clauses.join("; ") + ".")
}

/// Share of the attempts that have to wait for another name before that is reported.
const STRIPED: f64 = 0.1;

/// `67 % of the attempts waited although nobody had their name`, with several names.
fn striped(plan: &Plan, point: &PointSummary<'_>) -> Option<String> {
    // Half of such a wait has to be more than the lock's own calls.
    const CALLS: f64 = 10.0;
    let calls_ns = CALLS * point.own_cost.map_or(0.0, |cost| cost.pair_ns);
    let is_asked = plan.key_count() > 1 && is_plain(plan);
    let shares = point.runs.iter().filter(|_| is_asked);
    let shares = shares.map(|run| waited_elsewhere(run, calls_ns));
    let share = median(shares.collect::<Option<Vec<f64>>>()?)?;
    (share >= STRIPED).then(|| {
        format!(
            "{:.0} % of the attempts waited although nobody had their name: {DISJOINT}",
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
fn starving(plan: &Plan, point: &PointSummary<'_>) -> Option<String> {
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
fn waiting(point: &PointSummary<'_>) -> Option<String> {
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

fn join((first_tone, first): &Clause, (second_tone, second): &Clause) -> String {
    let word = match (*first_tone, *second_tone) {
        (Tone::Neutral, _) | (_, Tone::Neutral) => ";",
        (a, b) if a == b => ", and",
        _ => ", but",
    };
    format!("{first}{word} {second}")
}

/// The only sentence about figures that must not be used: the gravest reason, the point
/// it stands for, and which other points are INVALID too.
fn invalid(points: &[&PointSummary<'_>]) -> Option<String> {
    let mut bad: Vec<(usize, u64, &str)> = points
        .iter()
        .filter_map(|point| {
            let reason = point.verdict.why_invalid()?;
            Some((gravity(reason), point.at.workers?, reason.text.as_str()))
        })
        .collect();
    // Stable: of equally grave ones the fewest workers stay first.
    bad.sort_by_key(|(gravity, ..)| *gravity);
    let ((_, workers, text), others) = bad.split_first()?;
    let mut said = format!("INVALID with {}: {text}", numbers::workers(*workers));
    let others: Vec<String> = others.iter().map(|(_, n, _)| n.to_string()).collect();
    if !others.is_empty() {
        said.push_str(&format!("; INVALID with {} too", others.join(", ")));
    }
    said.push('.');
    Some(said)
}

/// The place of a reason's check among all of them, the gravest first.
fn gravity(reason: &Reason) -> usize {
    CHECKS
        .iter()
        .position(|check| check.name == reason.check)
        .unwrap_or(CHECKS.len())
}

fn of_ideal(point: &PointSummary<'_>, workers: u64) -> Option<Clause> {
    let share = point.median(figures::OF_IDEAL)?;
    let text = format!(
        "reaches {:.0} % of the ideal with {}",
        100.0 * share,
        numbers::workers(workers)
    );
    Some((Tone::Neutral, text))
}

/// From the fewest workers to the most. Whether it holds is decided by runs of
/// the same blocks; the figure quoted is the quotient of the printed medians.
fn throughput(few: &PointSummary<'_>, many: &PointSummary<'_>) -> Option<Clause> {
    let ratio = by_block(few, many, figures::THROUGHPUT)?;
    let printed = many.median(figures::THROUGHPUT)? / few.median(figures::THROUGHPUT)?;
    let workers = numbers::workers(many.at.workers?);
    let moved = format!("{:.0} %", 100.0 * printed);
    let (tone, text) = match ratio.outcome {
        Outcome::Same => (Tone::Good, format!("throughput holds to {workers}")),
        Outcome::Differs if printed < 1.0 && ratio.ratio < 1.0 => (
            Tone::Bad,
            format!("throughput falls to {moved} with {workers}"),
        ),
        Outcome::Differs if printed > 1.0 && ratio.ratio > 1.0 => (
            Tone::Good,
            format!("throughput rises to {moved} with {workers}"),
        ),
        _ => (
            Tone::Neutral,
            format!(
                "throughput with {workers} is {moved} of that with {} ({})",
                few.at.workers?,
                undecided(&ratio, "undecided".to_owned())
            ),
        ),
    };
    Some((tone, text))
}

/// The distribution of acquisitions among workers at the largest number of workers. The
/// dispersion of all runs decides; the figures are those of the printed run.
///
/// None with too few rotations, too few degrees of freedom, or a plan under
/// which the order is not the lock's doing.
fn order_of_service(plan: &Plan, point: &PointSummary<'_>) -> Option<Clause> {
    let (service, shares) = served(plan, point)?;
    let workers = point.at.workers?;
    let each = format!("{} to {} each", shares.min, shares.max);
    let (tone, text) = match service {
        Service::Queue => (Tone::Good, format!("waiters are served in order ({each})")),
        Service::Even => (Tone::Good, format!("waiters are served evenly ({each})")),
        _ if shares.none > 0 => (
            Tone::Bad,
            format!(
                "waiters are not served in order: {} got nothing",
                how_many(shares.none, workers)
            ),
        ),
        Service::Lottery => (
            Tone::Bad,
            format!("waiters are served as by a lottery ({each})"),
        ),
        Service::Uneven => (
            Tone::Neutral,
            format!("some waiters are served more than others ({each})"),
        ),
        Service::Favour => (
            Tone::Bad,
            format!("some waiters are served far more than others ({each})"),
        ),
    };
    Some((tone, text))
}

/// In which way a target serves its waiters at this point: `in order`; None where that is not
/// known, or is none of these.
pub(crate) fn way_of_service(plan: &Plan, point: &PointSummary<'_>) -> Option<&'static str> {
    let (service, shares) = served(plan, point)?;
    match service {
        Service::Queue => Some("in order"),
        Service::Even => Some("evenly"),
        Service::Lottery if shares.none == 0 => Some("as by a lottery"),
        _ => None,
    }
}

fn served(plan: &Plan, point: &PointSummary<'_>) -> Option<(Service, PerWorker)> {
    let shares = point.per_worker?;
    let workers = point.at.workers?;
    if !order_is_the_lock_s(plan) || shares.rotations < LEAST_ROTATIONS {
        return None;
    }
    // Who gives up leaves the queue, and comes again at its end.
    if failed(point).is_some() {
        return None;
    }
    let runs: Vec<(u64, f64)> = point
        .timed
        .iter()
        .filter_map(|run| Some((workers, run.per_worker?.dispersion)))
        .collect();
    let test = dispersion_test(&runs)?;
    Some((service(&test, &shares)?, shares))
}

/// `48 of 128 attempts ended without the lock (after 1.0 s in the median)`, over all runs.
fn failed(point: &PointSummary<'_>) -> Option<Clause> {
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
        let text = format!("{failed} of {all} attempts ended without the lock{after}");
        (Tone::Bad, text)
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Queue,
    Even,
    Lottery,
    Uneven,
    Favour,
}

fn service(test: &DispersionTest, shares: &PerWorker) -> Option<Service> {
    let spread = shares.max.saturating_sub(shares.min);
    if test.dispersion < EVEN && test.lower_p < P {
        Some(if spread <= QUEUE_SPREAD {
            Service::Queue
        } else {
            Service::Even
        })
    } else if test.dispersion > FAVOURED && test.upper_p < P {
        // Millions of counts make a difference of a hundredth significant;
        // whether it matters is another question.
        Some(match shares.max as f64 / shares.min as f64 {
            ratio if ratio <= EVEN_RATIO => Service::Even,
            ratio if ratio < FAVOURED_RATIO => Service::Uneven,
            _ => Service::Favour,
        })
    } else {
        (test.degrees >= LOTTERY_DEGREES).then_some(Service::Lottery)
    }
}

/// Whether the lock determines the order. It does not with several keys, where chance picks
/// the queue; with readers, which do not queue; with tries, which never wait; and with
/// different ranges, which are different locks.
fn order_is_the_lock_s(plan: &Plan) -> bool {
    plan.key_count() == 1 && is_plain(plan)
}

/// Exclusive, waited for, and whole.
fn is_plain(plan: &Plan) -> bool {
    plan.shared() == 0.0 && !plan.try_only() && matches!(plan.range, None | Some(Range::Same))
}

fn cpu_growth(few: &PointSummary<'_>, many: &PointSummary<'_>) -> Option<String> {
    let growth = many.median(figures::CPU)? / few.median(figures::CPU)?;
    let paired = by_block(few, many, figures::CPU)?;
    let digits = if growth < 3.0 { 1 } else { 0 };
    (growth.is_finite() && growth >= CPU_GROWTH && paired.low > 1.0)
        .then(|| format!("CPU per lock grows ~{growth:.digits$}x"))
}

/// `about one in ten`, or `9 of 1000` where that would be vague.
fn how_many(part: u64, whole: u64) -> String {
    const WORDS: [&str; 11] = [
        "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    ];
    let one_in = (whole as f64 / part as f64).round() as usize;
    match one_in.checked_sub(2).and_then(|at| WORDS.get(at)) {
        Some(word) if part >= 10 => format!("about one in {word}"),
        _ => format!("{part} of {whole}"),
    }
}

#[cfg(test)]
mod tests;
