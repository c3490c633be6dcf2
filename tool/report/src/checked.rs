//! The checks that were made and the cost of measuring: the lines Safety and Checked, and what
//! `-v` adds to them.

use crate::ResultSet;
use crate::calibrated;
use crate::connect;
use crate::format::{counted, grouped, percent, range, significant, time};
use crate::hosts;
use crate::rate;
use crate::recover;
use crate::requests;
use crate::verify;
use jostle_model::plan::{Measure, Workload};
use jostle_model::record::{Across, Exclusion, OwnCost};
use jostle_stats::requested::makes_requests;
use jostle_stats::spoilt;
use jostle_stats::summary::PointSummary;
use std::collections::BTreeSet;

/// If a pair is shorter than this many times the measuring cost, the cost is printed with
/// it, because the figure is then off by a tenth or more.
const SHORT: f64 = 10.0;

/// What `-v` adds: the cost of measuring, counts of servers, runs that were left out.
pub(crate) fn details(set: &ResultSet, points: &[PointSummary<'_>]) -> Vec<String> {
    let plan = &set.experiment.plan;
    let mut sentences = Vec::new();
    let is_of_locks = matches!(
        plan.workload,
        Workload::Contend | Workload::Stream | Workload::Hold | Workload::Churn
    );
    let locks = is_of_locks && !makes_requests(plan);
    // Counting alone has no stamps, witness or histograms to pay for.
    if locks && plan.measure != Some(Measure::Counts) {
        sentences.extend(watched(set));
        sentences.extend(own_cost(points));
        sentences.extend(path_alone(set, points));
        if plan.pipeline() <= 1 {
            sentences.extend(thinned(points));
        }
    }
    sentences.extend(reconciled(set));
    let specimens = set.experiment.calibration.specimens.as_ref();
    sentences.extend(specimens.map(calibrated::sentence));
    sentences.extend(left_out(set));
    sentences.extend(unexplained(set));
    sentences.extend(hosts::began(&set.runs));
    sentences
}

/// What was checked of runs that take no locks, or one only; None of others.
pub(crate) fn checked(set: &ResultSet) -> Option<String> {
    let sentences = match set.experiment.plan.workload {
        Workload::Connect => connect::checked(set),
        Workload::Recover => recover::checked(set),
        Workload::Verify => verify::checked(set),
        Workload::Rate => rate::checked(set),
        _ if makes_requests(&set.experiment.plan) => requests::checked(set),
        _ => Vec::new(),
    };
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// Blocks that other programs spoilt, and what they would have changed.
fn left_out(set: &ResultSet) -> Option<String> {
    let spoilt = spoilt::blocks(&set.runs);
    let all: BTreeSet<u32> = set.runs.iter().map(|run| run.block).collect();
    (!spoilt.is_empty() && all.len() - spoilt.len() >= spoilt::ENOUGH).then(|| {
        format!(
            "Left out: {} of {}, in which other programs or the hypervisor took over 10 % of the \
             CPUs; the file has them.",
            spoilt.len(),
            counted(all.len() as u64, "block")
        )
    })
}

/// CPU time of tasks whose owner could not be found, if it is more than 1 % of all.
fn unexplained(set: &ResultSet) -> Option<String> {
    const WORTH: f64 = 0.01;
    let runs = || set.runs.iter();
    let accounts = || runs().filter_map(|run| run.around.accounts.as_deref());
    let known = || accounts().filter_map(|a| Some((a, a.unexplained_s?)));
    let all_s: f64 = known().map(|(a, _)| a.between_s * a.cpus as f64).sum();
    let share = known().map(|(_, s)| s).sum::<f64>() / all_s.max(f64::MIN_POSITIVE);
    (share > WORTH).then(|| {
        format!(
            "{} of the CPU time was used by processes that were gone before they could be named.",
            percent(share)
        )
    })
}

/// Whether two owners were seen at a time, and how short an overlap would not have been seen.
pub(crate) fn safety(set: &ResultSet, points: &[PointSummary<'_>]) -> String {
    let seen = set.runs.iter().filter_map(|run| run.exclusion.as_ref());
    let seen: Vec<&Exclusion> = seen.collect();
    if seen.is_empty() {
        let plan = &set.experiment.plan;
        let why = match plan.measure == Some(Measure::Counts) {
            true => " (--measure counts)",
            false if plan.workload == Workload::Hold => " (each lock has one worker)",
            false if plan.pipeline() > 1 => " (--pipeline)",
            false => "",
        };
        return format!("exclusion was not checked{why}");
    }
    let sum = |figure: fn(&Exclusion) -> u64| seen.iter().map(|e| figure(e)).sum::<u64>();
    let mut parts = vec![
        format!("{} checked", counted(sum(|e| e.checked), "acquisition")),
        match sum(|e| e.violations) {
            0 => "no overlap".to_owned(),
            some => counted(some, "overlap"),
        },
    ];
    for (count, what) in [
        (sum(|e| e.lost_updates), "lost update"),
        (sum(|e| e.holder_died), "dead holder"),
    ] {
        if count > 0 {
            parts.push(counted(count, what));
        }
    }
    let tokens = sum(|e| e.tokens_checked.unwrap_or(0));
    let behind = sum(|e| e.tokens_out_of_order.unwrap_or(0));
    let tokens = (tokens > 0).then(|| {
        let compared = counted(tokens, "fencing token");
        format!("{compared} compared, {} out of order", grouped(behind))
    });
    let more = [unseen(points), coverage(&seen), tokens, across(&seen)];
    let mut said = vec![parts.join(", ")];
    said.extend(more.into_iter().flatten());
    said.join("; ")
}

/// Stamps and witness lie between the calls of the lock and the time in which an overlap is seen.
fn unseen(points: &[PointSummary<'_>]) -> Option<String> {
    let added = points
        .iter()
        .filter_map(|point| Some(point.own_cost?.added_ns));
    let longest = added.reduce(f64::max).filter(|ns| *ns > 0.0)?;
    Some(format!(
        "an overlap of less than {} would not be seen",
        time(longest)
    ))
}

/// The comparison of the hosts' logs: overlaps of owners on different hosts.
fn across(seen: &[&Exclusion]) -> Option<String> {
    let compared: Vec<&Across> = seen.iter().filter_map(|e| e.across.as_deref()).collect();
    let widest = compared.iter().map(|across| across.within_ns).max()?;
    let sum = |figure: fn(&Across) -> u64| compared.iter().map(|e| figure(e)).sum::<u64>();
    let least = compared.iter().map(|across| across.coverage);
    let mut said = format!(
        "between hosts {} compared (at least {} of a run's), {}, {} undecided",
        counted(sum(|e| e.checked), "acquisition"),
        percent(least.reduce(f64::min).unwrap_or(0.0)),
        counted(sum(|e| e.violations), "overlap"),
        grouped(sum(|e| e.undecided)),
    );
    for (count, what) in [
        (sum(|e| e.ordered_by_token), "in order by their tokens"),
        (sum(|e| e.lapsed_overlap), "after a lease was over"),
    ] {
        if count > 0 {
            said += &format!(", {} {what}", grouped(count));
        }
    }
    let wrong = sum(|e| e.tokens_repeated) + sum(|e| e.tokens_out_of_order);
    if wrong > 0 {
        said += &format!(", {}", counted(wrong, "wrong token"));
    }
    Some(said + &format!("; clocks within {}", time(widest as f64)))
}

/// The servers' counts beside what their clients received.
fn reconciled(set: &ResultSet) -> Option<String> {
    let servers = || set.runs.iter().filter_map(|run| run.server);
    let counted: u64 = servers().filter_map(|server| server.counted).sum();
    let apart: u64 = servers()
        .filter_map(|server| server.difference)
        .map(i64::unsigned_abs)
        .sum();
    (counted > 0).then(|| {
        let what = match makes_requests(&set.experiment.plan) {
            true => "request",
            false => "grant",
        };
        let counted = self::counted(counted, what);
        match apart {
            0 => format!("The servers counted {counted}, as the workers did."),
            n => format!(
                "The servers counted {counted}, {} apart from the workers.",
                grouped(n)
            ),
        }
    })
}

/// An overlap shows only where the marks of two owners stand at a time.
fn watched(set: &ResultSet) -> Option<String> {
    let seen = || set.runs.iter().filter_map(|run| run.exclusion.as_ref());
    let intervals = || seen().filter_map(|seen| seen.inner_interval_ns);
    let [shortest, longest] = [intervals().min()?, intervals().max()?].map(|ns| time(ns as f64));
    let inside = range(shortest, &longest);
    Some(format!(
        "An overlap shows while the owner is inside: {inside} (median)."
    ))
}

fn coverage(seen: &[&Exclusion]) -> Option<String> {
    let known = seen.iter().filter_map(|e| e.reader_coverage);
    let least = known.reduce(f64::min)?;
    (least < 1.0).then(|| {
        format!(
            "a writer looked at {} of the readers, and would have missed an overlap with another",
            percent(least)
        )
    })
}

/// Once for each target, in order.
fn by_target<'a, T>(
    points: &[PointSummary<'a>],
    figure: impl Fn(&PointSummary<'a>) -> Option<T>,
) -> Vec<(&'a str, T)> {
    let mut found: Vec<(&str, T)> = Vec::new();
    for point in points {
        if found.iter().all(|(target, _)| *target != point.target) {
            found.extend(figure(point).map(|value| (point.target, value)));
        }
    }
    found
}

fn own_cost(points: &[PointSummary<'_>]) -> Vec<String> {
    let costs = by_target(points, |point| point.own_cost);
    let is_short = |cost: &OwnCost| cost.pair_ns < SHORT * cost.added_ns;
    let (short, long): (Vec<_>, Vec<_>) = costs.into_iter().partition(|(_, cost)| is_short(cost));
    let adds = adds_to_many(&short).or_else(|| {
        let adds = short.iter().map(|(target, cost)| {
            let pair = significant(cost.pair_ns, 2);
            format!("{} ns to {target}'s {pair} ns", added(cost))
        });
        let adds = adds.collect::<Vec<_>>().join(", ");
        (!adds.is_empty()).then(|| format!("Full measuring adds {adds}."))
    });
    let beside = beside_long_pairs(&long, short.is_empty());
    beside.into_iter().chain(adds).collect()
}

/// Targets whose own cost stands beside each; of more the range does.
const NAMED: usize = 4;

fn adds_to_many(short: &[(&str, OwnCost)]) -> Option<String> {
    let range = |figure: &dyn Fn(&OwnCost) -> f64| {
        let mut all: Vec<f64> = short.iter().map(|(_, cost)| figure(cost)).collect();
        all.sort_by(f64::total_cmp);
        let [least, most] = [all.first()?, all.last()?].map(|ns| significant(*ns, 2));
        Some(format!("{least} to {most} ns"))
    };
    (short.len() > NAMED).then_some(())?;
    let (adds, pair) = (
        range(&|cost| cost.added_ns.max(0.0))?,
        range(&|cost| cost.pair_ns)?,
    );
    let count = short.len();
    Some(format!(
        "Full measuring adds {adds} to the {pair} of {count} targets."
    ))
}

/// The path's part of an uncontended pair, if the path alone was measured too.
fn path_alone(set: &ResultSet, points: &[PointSummary<'_>]) -> Vec<String> {
    let costs = &set.experiment.calibration.own_cost;
    let known = by_target(points, |point| {
        let facts = set.experiment.facts(point.target);
        let path = costs.get(facts.path_alone()?)?;
        Some((alone_ns(&point.own_cost?), alone_ns(path)))
    });
    let sentence = |(target, (pair, path)): (&str, (f64, f64))| {
        if path >= pair {
            return format!(
                "{target} takes {} us alone, no longer than the pipe to a program that only answers: \
                 the pipe's part cannot be told.",
                significant(pair / 1e3, 2)
            );
        }
        format!(
            "{target} takes {} us alone; the pipe to a program that only answers takes {} us of \
             it ({:.0} %).",
            significant(pair / 1e3, 2),
            significant(path / 1e3, 2),
            100.0 * path / pair
        )
    };
    known.into_iter().map(sentence).collect()
}

/// The fastest block, where it is known: in the others a wake-up took longer or shorter by more
/// than the lock takes.
fn alone_ns(cost: &OwnCost) -> f64 {
    cost.pair_fastest_ns.unwrap_or(cost.pair_ns)
}

/// One figure for all targets where it is the same for all.
fn beside_long_pairs(long: &[(&str, OwnCost)], are_all: bool) -> Option<String> {
    let (_, first) = long.first()?;
    let first = added(first);
    if are_all && long.iter().all(|(_, cost)| added(cost) == first) {
        return Some(format!("Own cost {first} ns per cycle."));
    }
    let each = long
        .iter()
        .map(|(target, cost)| format!("{target} {} ns", added(cost)));
    let each: Vec<String> = each.collect();
    Some(format!("Own cost per cycle: {}.", each.join(", ")))
}

/// Below zero only by noise.
fn added(cost: &OwnCost) -> String {
    grouped(cost.added_ns.max(0.0).round() as u64)
}

/// The targets that had only some operations stamped.
fn thinned(points: &[PointSummary<'_>]) -> Option<String> {
    let every = by_target(points, |point| {
        let every = point.runs.iter().filter_map(|run| run.stamp_every).max()?;
        (every > 1).then_some(every)
    });
    let each: Vec<String> = every
        .iter()
        .map(|(target, every)| format!("one operation in {every} of {target}"))
        .collect();
    (!each.is_empty()).then(|| {
        format!(
            "Stamps were put on {}; waits and hand-offs are of these.",
            each.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{adds_to_many, details, safety};
    use crate::{ResultSet, made};
    use jostle_model::record::{Across, OwnCost};
    use jostle_stats::summary::summarize;

    fn checked_text(set: &ResultSet) -> String {
        let points = summarize(&set.experiment, &set.runs);
        format!(
            "{}. {}",
            safety(set, &points),
            details(set, &points).join(" ")
        )
    }

    #[test]
    fn the_way_to_an_own_lock_stands_beside_its_cost() {
        let mut set = made::set();
        let costs = &mut set.experiment.calibration.own_cost;
        costs.insert("pipe:./lock".to_owned(), made::cost(80_000.0, 132.0));
        costs.insert("echo+pipe".to_owned(), made::cost(32_000.0, 132.0));
        assert!(
            !checked_text(&set).contains("echo+pipe")
                && !checked_text(&set).contains("only answers")
        );
        for run in set.runs.iter_mut().filter(|p| p.target == "flock") {
            run.target = "pipe:./lock".to_owned();
        }
        let text = checked_text(&set);
        let expected = "pipe:./lock takes 80 us alone; the pipe to a program that only answers \
                        takes 32 us of it (40 %).";
        assert!(text.contains(expected), "{text}");
        // 305 % of it in one of three runs.
        let costs = &mut set.experiment.calibration.own_cost;
        costs.insert("echo+pipe".to_owned(), made::cost(244_000.0, 132.0));
        let text = checked_text(&set);
        assert!(
            text.contains("takes 80 us alone, no longer than the pipe"),
            "{text}"
        );
    }

    /// The made set with these costs: (target, pair, added).
    fn costing(costs: [(&str, f64, f64); 2]) -> String {
        let mut set = made::set();
        for (target, pair, added) in costs {
            let own = &mut set.experiment.calibration.own_cost;
            own.insert(target.to_owned(), made::cost(pair, added));
        }
        checked_text(&set)
    }

    #[test]
    fn acquisitions_are_counted_over_all_runs() {
        let said = checked_text(&made::set());
        // 6 runs of 4725 + 4000 + 4725 + 4500
        let safe = "107,700 acquisitions checked, no overlap; an overlap of less than 132 ns would not be \
             seen. ";
        assert!(said.starts_with(safe), "{said}");
        assert!(said.contains("An overlap shows while the owner is inside: 1.0 ms (median). "));
    }

    #[test]
    fn what_went_wrong_is_counted_too() {
        let mut set = made::set();
        let first = set.runs[0].exclusion.as_mut().unwrap();
        (first.violations, first.lost_updates, first.holder_died) = (3, 1200, 1);
        first.reader_coverage = Some(0.32);
        first.inner_interval_ns = Some(120);
        let said = checked_text(&set);
        for part in [
            "acquisitions checked, 3 overlaps, 1,200 lost updates, 1 dead holder; ",
            "while the owner is inside: 120 ns to 1.0 ms (median). ",
            "a writer looked at 32 % of the readers, and would have missed",
        ] {
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn what_could_not_be_decided_between_hosts_is_named() {
        let mut set = made::set();
        let mut across = Across {
            checked: 1_500,
            coverage: 0.4,
            undecided: 12,
            within_ns: 61_000,
            ..Across::default()
        };
        let mut put = |at: usize, across: &Across| {
            let exclusion = set.runs[at].exclusion.as_mut().unwrap();
            exclusion.across = Some(Box::new(across.clone()));
            checked_text(&set)
        };
        let said = put(0, &across);
        let words = "between hosts 1,500 acquisitions compared (at least 40 % of a run's), \
                     0 overlaps, 12 undecided; clocks within 61 us. ";
        assert!(said.contains(words), "{said}");
        (across.violations, across.tokens_repeated) = (1, 2);
        (across.ordered_by_token, across.lapsed_overlap) = (30, 4);
        across.coverage = 0.9;
        let said = put(1, &across);
        let words = "between hosts 3,000 acquisitions compared (at least 40 % of a run's), \
                     1 overlap, 24 undecided, 30 in order by their tokens, \
                     4 after a lease was over, 2 wrong tokens; clocks within 61 us. ";
        assert!(said.contains(words), "{said}");
    }

    #[test]
    fn the_own_cost_stands_beside_every_short_pair() {
        let table = [
            // below and above ten times 132 ns
            (
                [("flock", 1319.0, 132.0), ("sysv", 21.0, 118.0)],
                "Full measuring adds 132 ns to flock's 1,319 ns, 118 ns to sysv's 21 ns.",
            ),
            (
                [("flock", 1321.0, 132.0), ("sysv", 5000.0, 132.4)],
                "Own cost 132 ns per cycle.",
            ),
            (
                [("flock", 1321.0, 132.0), ("sysv", 5000.0, 141.0)],
                "Own cost per cycle: flock 132 ns, sysv 141 ns.",
            ),
            (
                [("flock", 13210.0, 1320.6), ("sysv", 21.0, 118.0)],
                "Own cost per cycle: flock 1,321 ns. Full measuring adds 118 ns to sysv's 21 ns.",
            ),
            (
                [("flock", 500.0, -2.0), ("sysv", 500.0, 0.1)],
                "Own cost 0 ns per cycle.",
            ),
        ];
        for (costs, part) in table {
            let said = costing(costs);
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn the_own_cost_of_many_targets_is_a_range() {
        let cost = |pair_ns: f64, added_ns: f64| OwnCost {
            pair_ns,
            added_ns,
            ..OwnCost::default()
        };
        let many = ["a", "b", "c", "d", "e"].map(|name| (name, cost(500.0, 100.0)));
        let mut many = many.to_vec();
        assert_eq!(adds_to_many(&many[..4]), None);
        many[2].1 = cost(20.0, 2000.0);
        assert_eq!(
            adds_to_many(&many).unwrap(),
            "Full measuring adds 100 to 2,000 ns to the 20 to 500 ns of 5 targets."
        );
    }

    #[test]
    fn stamps_that_were_thinned_out_are_said_to_be() {
        let mut set = made::set();
        for run in set.runs.iter_mut().filter(|p| p.target == "sysv") {
            run.stamp_every = Some(96);
        }
        let said = checked_text(&set);
        assert!(
            said.contains("Stamps were put on one operation in 96 of sysv; "),
            "{said}"
        );
        assert!(!checked_text(&made::set()).contains("Stamps"));
    }

    #[test]
    fn counting_alone_checks_nothing_and_says_so() {
        assert_eq!(
            checked_text(&made::counts_only()),
            "exclusion was not checked (--measure counts). "
        );
    }
}
