//! The clauses of `recover`: when the next grant comes after each fault, for how long two owned the
//! lock, and what the table has no column for.

use super::{Values, View, each, listed};
use crate::format::time;
use crate::recover::struck;
use jostle_model::record::Delays;
use jostle_model::text::alike;
use jostle_stats::numbers::time_to;
use jostle_stats::recover::{Fraction, Summary};
use jostle_stats::summary::PointSummary;

/// A worst run that took so many times the median is told with what its machine took.
const SLOW: f64 = 3.0;

fn summaries(points: &[&PointSummary<'_>]) -> Vec<Summary> {
    let points = points.iter();
    points.filter_map(|point| Summary::of(point)).collect()
}

/// `owner killed, owner paused or network cut`, of those for which it holds.
fn faults(all: &[Summary], of: impl Fn(&Summary) -> bool) -> String {
    let named = all.iter().filter(|one| of(one));
    let named: Vec<String> = named.map(|one| struck(one.fault)).collect();
    match &named[..] {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

/// The worst case over the faults.
pub(super) fn worst(view: &View<'_, '_>) -> Vec<Values> {
    listed(&view.points, |points| {
        let all = summaries(points);
        let worst = all
            .iter()
            .filter_map(|one| Some((*one.granted_ns.last()?, one)));
        if let Some(one) = all.iter().find(|one| one.never > 0) {
            let (within, after) = (time(one.within_ns as f64), struck(one.fault));
            return Some(format!(">{within} ({after})"));
        }
        let (ns, one) = worst.max_by(|one, other| one.0.total_cmp(&other.0))?;
        let delayed = one.worst_delays;
        let delayed = delayed.filter(|_| ns > SLOW * one.median_ns.unwrap_or(ns));
        let delayed = delayed.map_or_else(String::new, delay);
        Some(format!("{} ({}{delayed})", time(ns), struck(one.fault)))
    })
}

/// The faults after which nobody got the lock.
pub(super) fn never(view: &View<'_, '_>) -> Vec<Values> {
    each(&view.points, |points| {
        let all = summaries(points);
        let never = all.iter().filter(|one| one.never > 0).map(|one| {
            let (never, runs, after) = (one.never, one.runs, struck(one.fault));
            let within = time(one.within_ns as f64);
            let asks = one.keepalive_s.map_or_else(String::new, keepalive);
            format!("none within {within} in {never} of {runs} runs ({after}{asks})")
        });
        let never: Vec<String> = never.collect();
        (!never.is_empty()).then(|| never.join("; "))
    })
}

/// The faults after which nobody else got the lock, since its owner still had it.
pub(super) fn kept(view: &View<'_, '_>) -> Vec<Values> {
    each(&view.points, |points| {
        let all = summaries(points);
        let always = faults(&all, |one| one.kept == one.runs);
        let always = (!always.is_empty())
            .then(|| format!("the owner kept the lock and released it ({always})"));
        let some = all.iter().filter(|one| one.kept > 0 && one.kept < one.runs);
        let some = some.map(|one| {
            let (kept, runs, after) = (one.kept, one.runs, struck(one.fault));
            format!("the owner kept the lock in {kept} of {runs} runs ({after})")
        });
        let kept: Vec<String> = always.into_iter().chain(some).collect();
        (!kept.is_empty()).then(|| kept.join("; "))
    })
}

/// When a server would notice that its client's host has gone.
fn keepalive(after_s: u64) -> String {
    if after_s == 0 {
        return "; its server sets no keepalive, and never asks a silent client".to_owned();
    }
    let after = time_to(after_s as f64 * 1e9, 3);
    format!(
        "; its server first asks a silent client after {after}: net.ipv4.tcp_keepalive_time, or its \
         own setting of that, such as tcp_keepalives_idle"
    )
}

/// Whether a hold is to survive the loss of one server, and in how many runs it did.
pub(super) fn promised(view: &View<'_, '_>) -> Vec<Values> {
    each(&view.points, |points| {
        let promise = |point: &&PointSummary<'_>| {
            let mut runs = point.runs.iter();
            runs.find_map(|run| run.recovery.as_deref()?.promised)
        };
        if !points.iter().find_map(promise)? {
            return Some("a hold need not survive the loss of one server".to_owned());
        }
        let of_one_server = points.iter().filter(|point| promise(point).is_some());
        let (kept, runs) = of_one_server
            .filter_map(|point| Summary::of(point))
            .fold((0, 0), |(kept, runs), one| {
                (kept + one.kept, runs + one.runs)
            });
        let seen = match kept == runs {
            true => format!("it did in all {runs} runs"),
            false => format!(
                "it did in {kept} of {runs} runs; whether the others were renewed in time is not \
                 known"
            ),
        };
        Some(format!(
            "a hold that is renewed is to survive the loss of one server (failover): {seen}"
        ))
    })
}

/// For how long two owned the lock; None where that was not seen.
fn longest(points: &[&PointSummary<'_>]) -> Option<u64> {
    let all = summaries(points).into_iter();
    all.filter_map(|one| one.two_believed_ns)
        .max()
        .filter(|ns| *ns > 0)
}

/// That of each target.
pub(super) fn two_owners(view: &View<'_, '_>) -> Vec<Values> {
    listed(&view.points, |points| Some(time(longest(points)? as f64)))
}

/// From what the old owner learned it.
pub(super) fn told(view: &View<'_, '_>) -> Vec<Values> {
    of_two_owners(
        view,
        |one| one.told,
        |all| {
            let mut told = all.iter().filter(|one| one.told.of > 0);
            match told.all(|one| one.told_by_client) {
                true => "the old owner learned it from its client",
                false => "the old owner learned it from its release",
            }
        },
    )
}

/// Whether a fencing token stopped what the old owner wrote.
pub(super) fn stopped(view: &View<'_, '_>) -> Vec<Values> {
    of_two_owners(
        view,
        |one| one.refused,
        |_| "the fencing token stopped the stale write",
    )
}

/// How often that was so where two owned the lock.
fn of_two_owners(
    view: &View<'_, '_>,
    of: fn(&Summary) -> Fraction,
    what: fn(&[Summary]) -> &'static str,
) -> Vec<Values> {
    each(&view.points, |points| {
        longest(points)?;
        let all = summaries(points);
        let (count, runs) = all.iter().map(of).fold((0, 0), |(count, runs), one| {
            (count + one.count, runs + one.of)
        });
        let how_often = match (count, runs) {
            (_, 0) => return None,
            (0, runs) => format!("in none of {runs} runs"),
            (count, runs) if count == runs => "every time".to_owned(),
            (count, runs) => format!("in {count} of {runs} runs"),
        };
        Some(format!("{how_often} {}", what(&all)))
    })
}

/// Why one run may have taken so long: what its machine took from it.
fn delay(delays: Delays) -> String {
    let waited = time_to(delays.waited_for_cpu_ns as f64, 3);
    let stolen = match delays.stolen_ns {
        0 => String::new(),
        ns => format!(", and the hypervisor took {}", time_to(ns as f64, 3)),
    };
    format!(", when next owner and service waited {waited} for a CPU{stolen}")
}

/// A service may grant no lease as short as was asked for.
pub(super) fn leases(view: &View<'_, '_>) -> Vec<Values> {
    let asked_ns = view.plan().lease.map(|lease| lease.0);
    each(&view.points, |points| {
        let asked_ns = asked_ns?;
        let mut runs = points.iter().flat_map(|point| &point.runs);
        let lease_ns = runs.find_map(|run| run.recovery.as_deref())?.lease_ns;
        let granted_ns = lease_ns.filter(|granted| *granted != asked_ns)?;
        let [granted, asked] = [granted_ns, asked_ns].map(|ns| time_to(ns as f64, 3));
        Some(format!("it lasted {granted}, and {asked} were asked for"))
    })
}

/// The error that a process met most often in a row, where it was listed once for many.
pub(super) fn errors(view: &View<'_, '_>) -> Vec<Values> {
    each(&view.points, |points| {
        let runs = points.iter().flat_map(|point| &point.runs);
        let events = runs.filter_map(|run| run.recovery.as_deref());
        let events = events.flat_map(|recovery| &recovery.history);
        let many = events.filter_map(|event| Some((event.times?, event.said.as_deref()?)));
        let (_, said) = many.clone().max()?;
        let times: u64 = many
            .filter(|(_, other)| alike(other, said))
            .map(|(times, _)| times)
            .sum();
        Some(format!(
            "requests failed again and again ({times} times: {said})"
        ))
    })
}

#[cfg(test)]
mod tests {
    use crate::closing::tests::line;
    use crate::made;

    #[test]
    fn the_worst_case_and_the_faults_without_a_grant_are_told() {
        let set = made::recovered();
        let said = line(&set, "Next grant");
        for part in [
            "Worst case: flock 240 us (owner killed), redis ",
            "flock: the owner kept the lock and released it (owner paused).",
        ] {
            assert!(said.contains(part), "{said}");
        }
        assert_eq!(
            line(&set, "Two owners"),
            "There were two owners for up to: redis 600 us. redis: every time the old owner learned it \
             from its release."
        );
    }

    /// Beside "kept in 10 of 50 runs" a reader did not know whether the promise was kept.
    #[test]
    fn beside_a_promise_stands_in_how_many_runs_it_was_kept() {
        let said = |promised, is_struck: fn(&str) -> bool| {
            let mut set = made::recovered();
            let struck = set.runs.iter_mut().filter(|run| {
                let fault = run.at.fault.map(|fault| fault.to_string());
                run.target == "flock" && fault.is_some_and(|fault| is_struck(&fault))
            });
            for recovery in struck.filter_map(|run| run.recovery.as_deref_mut()) {
                recovery.promised = Some(promised);
            }
            line(&set, "Promise")
        };
        let survives = "flock: a hold that is renewed is to survive the loss of one server (failover): it \
                        did in ";
        for (is_struck, how_often) in [
            ((|fault| fault == "stop") as fn(&str) -> bool, "all "),
            (|_| true, "1 of "),
        ] {
            let said = said(true, is_struck);
            assert!(
                said.starts_with(&format!("{survives}{how_often}")),
                "{said}"
            );
        }
        assert_eq!(
            said(false, |_| true),
            "flock: a hold need not survive the loss of one server."
        );
    }
}
