//! The clauses of `recover`: when the next grant comes after each fault, for how long two owned the
//! lock, and what the table has no column for.

use super::{Values, View, each};
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
    points
        .iter()
        .filter_map(|point| Summary::of(point))
        .collect()
}

/// `owner killed, owner paused or network cut`, of those for which it holds.
fn faults(all: &[Summary], of: impl Fn(&Summary) -> bool) -> String {
    let named = all
        .iter()
        .filter(|one| of(one))
        .map(|one| struck(one.fault));
    let named: Vec<String> = named.collect();
    match &named[..] {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

/// The worst case over the faults, and those after which nobody else got the lock.
pub(super) fn granted(view: &View<'_, '_>) -> Vec<Values> {
    each(&view.points, |points| {
        let all = summaries(points);
        let mut said = Vec::new();
        let worst = all
            .iter()
            .filter_map(|one| Some((*one.granted_ns.last()?, one)));
        if let Some((ns, one)) = worst.max_by(|one, other| one.0.total_cmp(&other.0)) {
            let after = struck(one.fault);
            let delayed = one
                .worst_delays
                .filter(|_| ns > SLOW * one.median_ns.unwrap_or(ns));
            said.push(format!(
                "within {} in the worst case ({after}{})",
                time(ns),
                delayed.map_or_else(String::new, delay)
            ));
        }
        said.extend(all.iter().filter(|one| one.never > 0).map(|one| {
            let (never, runs, after) = (one.never, one.runs, struck(one.fault));
            let within = time(one.within_ns as f64);
            let asks = one.keepalive_s.map_or_else(String::new, keepalive);
            format!("none within {within} in {never} of {runs} runs ({after}{asks})")
        }));
        let kept = faults(&all, |one| one.kept == one.runs);
        if !kept.is_empty() {
            said.push(format!("the owner kept the lock and released it ({kept})"));
        }
        let some = all.iter().filter(|one| one.kept > 0 && one.kept < one.runs);
        said.extend(some.map(|one| {
            let (kept, runs, after) = (one.kept, one.runs, struck(one.fault));
            let others = one.granted_ns.last().map_or_else(String::new, |ns| {
                format!("; within {} in the others", time(*ns))
            });
            format!("the owner kept the lock in {kept} of {runs} runs ({after}{others})")
        }));
        (!said.is_empty()).then(|| said.join("; "))
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

/// What the loss of one server may do to a hold, by the targets' promises.
pub(super) fn promised(view: &View<'_, '_>) -> Vec<Values> {
    each(&view.points, |points| {
        let runs = points.iter().flat_map(|point| &point.runs);
        let mut promised = runs.filter_map(|run| run.recovery.as_deref()?.promised);
        Some(match promised.next()? {
            true => "a hold survives the loss of one server (its promise: failover)".to_owned(),
            false => "it does not promise that a hold survives the loss of one server".to_owned(),
        })
    })
}

/// For how long two owned the lock, and what became of the old owner.
pub(super) fn two_owners(view: &View<'_, '_>) -> Vec<Values> {
    each(&view.points, |points| {
        let all = summaries(points);
        let longest = all.iter().filter_map(|one| one.two_believed_ns).max()?;
        if longest == 0 {
            return None;
        }
        let mut told = all.iter().filter(|one| one.told.of > 0);
        let by_client = told.all(|one| one.told_by_client);
        let by = if by_client {
            "its client"
        } else {
            "its release"
        };
        let sum = |of: fn(&Summary) -> Fraction| {
            let all = all.iter().map(of);
            all.fold((0, 0), |(count, runs), one| {
                (count + one.count, runs + one.of)
            })
        };
        let part = |what: &str, (count, of): (usize, usize)| match (count, of) {
            (_, 0) => String::new(),
            (0, _) => format!("; {what} never"),
            (count, of) if count == of => format!("; {what} every time"),
            (count, of) => format!("; {what} in {count} of {of} runs"),
        };
        Some(format!(
            "two owners for up to {}{}{}",
            time(longest as f64),
            part(
                &format!("the old owner learned it from {by}"),
                sum(|one| one.told)
            ),
            part(
                "the fencing token stopped the stale write",
                sum(|one| one.refused)
            ),
        ))
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
    use crate::closing::lines;
    use crate::made;
    use jostle_stats::summary::summarize;

    #[test]
    fn the_worst_case_and_the_faults_without_a_grant_are_told() {
        let set = made::recovered();
        let said = lines(&set, &summarize(&set.experiment, &set.runs));
        let of = |question: &str| {
            let line = said.iter().find(|line| line.question == question);
            line.map_or_else(String::new, |line| line.text())
        };
        assert!(
            of("Next grant").contains(
                "flock: within 240 us in the worst case (owner killed); the owner kept the lock and \
                 released it (owner paused)."
            ),
            "{said:?}"
        );
        assert_eq!(
            of("Two owners"),
            "redis: two owners for up to 600 us; the old owner learned it from its release every time."
        );
    }
}
