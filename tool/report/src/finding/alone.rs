//! The first sentence about a single target: what it does at the greatest load that is not
//! INVALID, and what that is beside the least one, where runs of the same blocks decide it.

use super::{joined, load, rate};
use crate::closing::rate::knee;
use crate::compare::place;
use crate::format::{grouped, time};
use crate::requests::short;
use jostle_model::plan::{Fault, Shape, Workload};
use jostle_model::record::{Claim, LimitedBy, Reason};
use jostle_stats::checks::{exclusion, lost_update};
use jostle_stats::figures;
use jostle_stats::ratio::{Outcome, by_block};
use jostle_stats::recover::Summary;
use jostle_stats::summary::PointSummary;

/// None without a figure that may be used.
pub(super) fn finding(points: &[PointSummary<'_>]) -> Option<String> {
    if let Some(broken) = broken(points) {
        return Some(broken);
    }
    let mut usable: Vec<&PointSummary<'_>> = points.iter().filter(|p| p.is_usable()).collect();
    usable.sort_by_key(|point| load(point.at));
    let (few, many) = (*usable.first()?, *usable.last()?);
    let says = match many.workload.shape() {
        Shape::Contend if many.workload == Workload::Contend => contended(many),
        Shape::Contend | Shape::Stream | Shape::Hold => served(many),
        Shape::Connect => return None,
        Shape::Rate => return held(&usable),
        Shape::Spread => spread(&usable),
        Shape::Recover => recovered(&usable),
    }?;
    let grown = grown(few, many).unwrap_or_default();
    Some(format!("{} {says}{grown}.", short(many.target)))
}

/// That the lock did not exclude, whatever else is known of it. That it is broken would be a cause:
/// another program may have removed it.
pub(super) fn broken(points: &[PointSummary<'_>]) -> Option<String> {
    points.iter().find_map(|point| {
        let mut reasons = point.verdict.reasons.iter();
        let proves = |reason: &&Reason| {
            [exclusion::CHECK.name, lost_update::CHECK.name].contains(&reason.check.as_str())
        };
        let reason = reasons.find(proves)?;
        let name = short(point.target);
        Some(format!("{name}: {}.", reason.text))
    })
}

/// `starves 80 of 1,000 waiters at 945 locks/s`, where the window is long enough to tell.
fn contended(point: &PointSummary<'_>) -> Option<String> {
    let rate = rate(point.median(figures::THROUGHPUT)?, point);
    let workers = grouped(point.at.workers?);
    let mut reasons = point.verdict.reasons.iter();
    let is_told = !reasons.any(|reason| reason.claims.contains(&Claim::Distribution));
    match point.per_worker.filter(|_| is_told) {
        Some(shares) if shares.none > 0 => {
            let none = grouped(shares.none);
            Some(format!("starves {none} of {workers} waiters at {rate}"))
        }
        Some(shares) if point.at.workers > Some(1) => {
            let (min, max) = (grouped(shares.min), grouped(shares.max));
            Some(format!(
                "serves {rate} to {workers} workers, each {min} to {max} times"
            ))
        }
        _ => Some(format!("serves {rate}{}", at(point))),
    }
}

/// `serves 40,782 operations/s, p99 0.10 ms (2 workers, 20,000 operations)`.
fn served(point: &PointSummary<'_>) -> Option<String> {
    let rate = rate(point.median(figures::THROUGHPUT)?, point);
    let p99 = point.median(figures::ACQUIRE_P99);
    let p99 = p99.or(point.median(figures::BATCH_P99));
    let p99 = p99.map_or(String::new(), |ns| format!(", p99 {}", time(ns)));
    Some(format!("serves {rate}{p99}{}", at(point)))
}

/// `lockd holds 10,000 requests/s with p99 0.5 ms, and not 20,000.`
fn held(rates: &[&PointSummary<'_>]) -> Option<String> {
    let name = short(rates.first()?.target);
    let asked = |point: &PointSummary<'_>| point.at.rate.map(grouped);
    let Some(at) = knee(rates) else {
        return Some(format!(
            "{name} does not hold {} requests/s.",
            asked(rates[0])?
        ));
    };
    let p99 = rates[at].median(figures::RESPONSE_P99);
    let p99 = p99.map_or(String::new(), |ns| format!(" with p99 {}", time(ns)));
    let next = rates.get(at + 1).and_then(|point| asked(point));
    let not = next.map_or(String::new(), |next| format!(", and not {next}"));
    Some(format!(
        "{name} holds {} requests/s{p99}{not}.",
        asked(rates[at])?
    ))
}

fn spread(points: &[&PointSummary<'_>]) -> Option<String> {
    if let Some(turned) = turned(points) {
        return Some(turned);
    }
    let most = points.iter();
    let most = most.filter_map(|point| Some((point.median(figures::THROUGHPUT)?, *point)));
    let (per_s, most) = most.max_by(|one, other| one.0.total_cmp(&other.0))?;
    let limit = match most.verdict.limited_by {
        _ if most.is_of_generators() => ", the most that its generators can send",
        Some(LimitedBy::Target) => ", the most that the server answers",
        _ => "",
    };
    Some(format!("serves {}{limit}{}", rate(per_s, most), at(most)))
}

/// `serves 3,859 requests/s, which is its own limit from 9 generators on; up to 6 it was that of
/// the generators`.
fn turned(points: &[&PointSummary<'_>]) -> Option<String> {
    let first = points.iter().position(|point| !point.is_of_generators());
    let (theirs, its) = points.split_at(first?);
    let is_its = |point: &&PointSummary<'_>| point.verdict.limited_by == Some(LimitedBy::Target);
    let few = theirs.last()?.at.generators?;
    let from = its.first()?.at.generators?;
    let rates = its
        .iter()
        .filter_map(|point| point.median(figures::THROUGHPUT));
    let most = rates.reduce(f64::max)?;
    let limit = "which is its own limit from";
    its.iter().all(is_its).then(|| {
        format!(
            "serves {}, {limit} {from} generators on; up to {few} it was that of the generators",
            rate(most, its[0])
        )
    })
}

/// `grants again within 1.2 s after its owner was killed or stopped`, or that it does not, and
/// for how long two believed that they owned.
fn recovered(points: &[&PointSummary<'_>]) -> Option<String> {
    let all: Vec<Summary> = points
        .iter()
        .filter_map(|point| Summary::of(point))
        .collect();
    let named = |of: &dyn Fn(&Summary) -> bool| {
        let faults = all.iter().filter(|one| of(one)).map(|one| one.fault);
        let mut struck: Vec<String> = Vec::new();
        for owner in ["owner", "server"] {
            let of = faults.clone().map(Fault::struck);
            let how = of.filter(|(who, _)| *who == owner);
            let how: Vec<String> = how.map(|(_, how)| how.to_owned()).collect();
            if !how.is_empty() {
                struck.push(format!("its {owner} was {}", joined(&how, "or")));
            }
        }
        struck.join(", or ")
    };
    let worst = all.iter().filter_map(|one| one.worst_ns).reduce(f64::max);
    let never = all.iter().find(|one| one.never > 0);
    let mut says = match (never, worst) {
        (Some(one), _) => format!(
            "grants nothing within {} after {}",
            time(one.within_ns as f64),
            named(&|one| one.never > 0)
        ),
        (None, Some(worst)) => format!(
            "grants again within {} after {}",
            time(worst),
            named(&|one| one.worst_ns.is_some())
        ),
        (None, None) => format!("keeps the lock owned where {}", named(&|_| true)),
    };
    let kept = named(&|one| one.granted_ns.is_empty() && one.never == 0);
    if worst.is_some() && !kept.is_empty() {
        says += &format!("; the lock stayed owned where {kept}");
    }
    let some = |one: &Summary| one.never == 0 && one.worst_ns.is_none() && one.kept > 0;
    let some = named(&|one| some(one) && !one.granted_ns.is_empty());
    if !some.is_empty() {
        says += &format!("; in some runs it stayed owned where {some}");
    }
    let believed = all.iter().filter_map(|one| one.two_believed_ns).max();
    if let Some(ns) = believed.filter(|ns| *ns > 0) {
        says += &format!("; two believed for up to {} to own it", time(ns as f64));
    }
    (!all.is_empty()).then_some(says)
}

/// `; 0.53 times the rate with 10 workers`, if that is decided.
fn grown(few: &PointSummary<'_>, many: &PointSummary<'_>) -> Option<String> {
    let has_rate = matches!(
        few.workload.shape(),
        Shape::Contend | Shape::Stream | Shape::Hold
    );
    if few.at == many.at || !has_rate {
        return None;
    }
    let ratio = by_block(few, many, figures::THROUGHPUT)?;
    let place = place(few.at);
    Some(match ratio.outcome {
        Outcome::Differs => format!("; {:.2} times the rate with {place}", ratio.ratio),
        Outcome::Same => format!("; the rate with {place} is the same, within 5 %"),
        Outcome::Undecided => return None,
    })
}

fn at(point: &PointSummary<'_>) -> String {
    match place(point.at).as_str() {
        "" => String::new(),
        place => format!(" ({place})"),
    }
}
