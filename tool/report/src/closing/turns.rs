//! How the workers of a lock were served: their turns, and whether a lottery would deal them so.

use super::beside::{self, Order, beside, common, fairness, with};
use super::contend::ended_without;
use super::{Values, View};
use crate::format::{each_once, grouped, range};
use crate::requests::short;
use jostle_model::Plan;
use jostle_model::plan::Range;
use jostle_model::record::PerWorker;
use jostle_stats::checks::rotations::{LEAST, cut};
use jostle_stats::fairness::{DispersionTest, dispersion_test};
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

/// Targets whose turns one line lists, at most.
pub(super) const LISTED: usize = 6;

/// The points that fairness is told of: one of each target, of several targets at a load that
/// they have in common.
fn told<'v, 'a>(view: &View<'v, 'a>) -> Vec<&'v PointSummary<'a>> {
    let known = view.points.iter().copied();
    let known =
        known.filter(|point| point.at.workers > Some(1) && shares(view.plan(), point).is_some());
    let mut known: Vec<_> = known.collect();
    let most = known.iter().max_by_key(|point| point.at.workers);
    let at = common(&known).or(most.map(|point| point.at));
    known.retain(|point| Some(point.at) == at);
    known
}

/// The turns of the workers, where the order is the lock's and the window long enough.
fn shares(plan: &Plan, point: &PointSummary<'_>) -> Option<PerWorker> {
    let known = point.per_worker.filter(|_| order_is_the_lock_s(plan));
    known.filter(|shares| shares.rotations >= LEAST_ROTATIONS)
}

/// `10 to 11 (in order)`.
fn turns(plan: &Plan, point: &PointSummary<'_>) -> Option<String> {
    let shares = shares(plan, point)?;
    let none = match shares.none {
        0 => None,
        none => Some(format!("none for {}", how_many(none, point.at.workers?))),
    };
    let way = way_of_service(plan, point).map(str::to_owned);
    let notes: Vec<String> = way.into_iter().chain(none).collect();
    let turns = range(grouped(shares.min), &grouped(shares.max));
    Some(match notes.is_empty() {
        true => turns,
        false => format!("{turns} ({})", notes.join("; ")),
    })
}

/// How much is known about the order in which workers were served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fair {
    /// A test decides which is the fairest.
    Fairest,
    /// None of that, and the ways of service are known to differ.
    Ways,
    /// Neither.
    Alike,
    /// One target alone, or the turns of some are too few.
    Alone,
}

/// The turns of the workers, where that is what is known.
pub(super) fn fair(view: &View<'_, '_>, wanted: Fair) -> Vec<Values> {
    let mut points = told(view);
    let decided = beside(view, fairness()).filter(|found| found.order == Order::Decided);
    // One with too few turns is told as such.
    let is_told = |best: &String| points.iter().any(|point| short(point.target) == *best);
    let best = decided.map(|found| found.best()).filter(is_told);
    let ways = points.iter();
    let ways = each_once(ways.filter_map(|point| way_of_service(view.plan(), point)));
    let Some(at) = points.first().map(|point| point.at) else {
        return Vec::new();
    };
    let without = |are_counted: bool| {
        let here = view.points.iter().filter(|point| point.at == at);
        let without = here.filter(|point| shares(view.plan(), point).is_none());
        let without = without.filter(|point| point.per_worker.is_some() == are_counted);
        let names = without.map(|point| short(point.target));
        names.collect::<Vec<String>>().join(", ")
    };
    let [left_out, unknown] = [true, false].map(without);
    let known = match (points.len(), &best) {
        (1, _) => Fair::Alone,
        (_, Some(_)) => Fair::Fairest,
        _ if ways.len() > 1 => Fair::Ways,
        _ if !left_out.is_empty() || !unknown.is_empty() => Fair::Alone,
        _ => Fair::Alike,
    };
    if known != wanted {
        return Vec::new();
    }
    points.sort_by_key(|point| Some(short(point.target)) != best);
    let is_named = beside::targets(&view.points).len() > 1;
    let each = points.iter().take(LISTED).filter_map(|point| {
        let turns = turns(view.plan(), point)?;
        Some(match is_named {
            true => format!("{} {turns}", short(point.target)),
            false => turns,
        })
    });
    let mut each: Vec<String> = each.collect();
    if points.len() > LISTED {
        each.push(format!("{} more in the table", points.len() - LISTED));
    }
    let mut list = each.join(", ");
    for (why, names) in [("too few to tell", left_out), ("not known", unknown)] {
        if !names.is_empty() {
            list += &format!("; {why}: {names}");
        }
    }
    vec![vec![
        ("best", best.unwrap_or_default()),
        ("with", with(points[0].at)),
        ("list", list),
    ]]
}

/// That each worker had fewer turns than fairness needs.
pub(super) fn few_turns(view: &View<'_, '_>) -> Vec<Values> {
    let points = told(view).into_iter();
    let turns = points.filter_map(|point| Some((shares(view.plan(), point)?.rotations, point)));
    let fewest = turns.min_by(|(one, _), (other, _)| one.total_cmp(other));
    let told = fewest
        .filter(|(turns, _)| *turns < LEAST)
        .map(|(turns, point)| {
            vec![
                ("of", short(point.target)),
                ("turns", cut(turns)),
                ("least", LEAST.to_string()),
            ]
        });
    told.into_iter().collect()
}

/// In which way a target serves its waiters at this point; None where that is not known.
fn way_of_service(plan: &Plan, point: &PointSummary<'_>) -> Option<&'static str> {
    Some(match served(plan, point)? {
        Service::Queue => "in order",
        Service::Even => "evenly",
        Service::Lottery => "varied as if drawn at random",
        Service::Uneven => "some had more than others",
        Service::Favour => "some had far more than others",
    })
}

fn served(plan: &Plan, point: &PointSummary<'_>) -> Option<Service> {
    let shares = shares(plan, point)?;
    let workers = point.at.workers?;
    // Who gives up leaves the queue, and comes again at its end.
    if ended_without(point).is_some() {
        return None;
    }
    let runs: Vec<(u64, f64)> = point
        .timed
        .iter()
        .filter_map(|run| Some((workers, run.per_worker?.dispersion)))
        .collect();
    let test = dispersion_test(&runs)?;
    service(&test, &shares)
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
pub(super) fn order_is_the_lock_s(plan: &Plan) -> bool {
    plan.key_count() == 1 && is_plain(plan)
}

/// Exclusive, waited for, and whole.
pub(super) fn is_plain(plan: &Plan) -> bool {
    plan.shared() == 0.0 && !plan.try_only() && matches!(plan.range, None | Some(Range::Same))
}

/// `about one in ten`, or `9 of 1000` where that would be vague.
pub(super) fn how_many(part: u64, whole: u64) -> String {
    const WORDS: [&str; 11] = [
        "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    ];
    let one_in = (whole as f64 / part as f64).round() as usize;
    match one_in.checked_sub(2).and_then(|at| WORDS.get(at)) {
        Some(word) if part >= 10 => format!("about one in {word}"),
        _ => format!("{part} of {whole}"),
    }
}
