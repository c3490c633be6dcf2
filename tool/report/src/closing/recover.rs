//! The closing sentences of `recover`: what happens to each target's lock after a fault.

use super::targets;
use jostle_model::plan::{Fault, Plan};
use jostle_model::record::{Delays, Struck};
use jostle_model::text::alike;
use jostle_stats::numbers::time_to;
use jostle_stats::recover::{Fraction, Summary};
use jostle_stats::summary::PointSummary;

/// A worst run that took so many times the median is told with what its machine took.
const SLOW: f64 = 3.0;

/// A sentence for each target and fault.
pub(crate) fn sentences(plan: &Plan, points: &[PointSummary<'_>]) -> Vec<(String, String)> {
    let said = targets(points).into_iter().flat_map(|target| {
        let of_target = || points.iter().filter(|point| point.target == target);
        let mut parts: Vec<String> = of_target().filter_map(part).collect();
        let asked_ns = plan.lease.map(|lease| lease.0);
        parts.extend(of_target().find_map(|point| longer_lease(asked_ns?, point)));
        parts
            .into_iter()
            .map(move |part| (target.to_owned(), format!("{part}.")))
    });
    said.collect()
}

/// A service may grant no lease as short as was asked for.
fn longer_lease(asked_ns: u64, point: &PointSummary<'_>) -> Option<String> {
    let first = point.runs.iter().find_map(|run| run.recovery.as_deref())?;
    let granted_ns = first.lease_ns.filter(|granted| *granted != asked_ns)?;
    Some(format!(
        "its lease was of {}, where {} was asked for",
        time_to(granted_ns as f64, 3),
        time_to(asked_ns as f64, 3)
    ))
}

fn part(point: &PointSummary<'_>) -> Option<String> {
    let summary = Summary::of(point)?;
    let first = point.runs.iter().find_map(|run| run.recovery.as_deref());
    let fault = after(summary.fault, first.and_then(|run| run.struck));
    if point.verdict.is_invalid() {
        return Some(format!("{fault}: INVALID"));
    }
    Some(format!(
        "{fault} {}{}",
        became(&summary),
        failed_again(point).unwrap_or_default()
    ))
}

/// The error that a process met most often in a row, where it was listed once for many.
fn failed_again(point: &PointSummary<'_>) -> Option<String> {
    let recoveries = point.runs.iter().filter_map(|run| run.recovery.as_deref());
    let events = recoveries.flat_map(|recovery| &recovery.history);
    let many = events.filter_map(|event| Some((event.times?, event.said.as_deref()?)));
    let (_, said) = many.clone().max()?;
    let times: u64 = many
        .filter(|(_, other)| alike(other, said))
        .map(|(times, _)| times)
        .sum();
    Some(format!(
        ", and requests failed again and again ({times} times: {said})"
    ))
}

fn after(fault: Fault, struck: Option<Struck>) -> &'static str {
    match (fault, struck) {
        (Fault::Kill, Some(Struck::Program)) => "after its owner's program was killed",
        (Fault::Kill, _) => "after its owner was killed",
        (Fault::Stop, Some(Struck::Program)) => "while its owner's program was stopped",
        (Fault::Stop, _) => "while its owner was stopped",
        (Fault::Cut, _) => "while its owner's connection was cut",
        (Fault::ServerKill, _) => "after the service was killed and started again",
        (Fault::ServerStop, _) => "after the service was stopped for a while",
    }
}

fn became(summary: &Summary) -> String {
    let runs = summary.runs;
    if summary.never == runs {
        return format!(
            "nobody was granted it within {}",
            time_to(summary.within_ns as f64, 3)
        );
    }
    if summary.kept == runs {
        let handed = summary.after_release_ns.map_or(String::new(), |ns| {
            format!(
                ", whose release handed it on within {} (median)",
                time_to(ns, 3)
            )
        });
        return format!("it stayed its owner's{handed}");
    }
    let Some((median, worst)) = summary.median_ns.zip(summary.worst_ns) else {
        let parts = [
            ("the next grant came", summary.granted_ns.len()),
            ("its owner released it", summary.kept),
            ("nobody was granted it", summary.never),
        ];
        let parts = parts.iter().filter(|(_, count)| *count > 0);
        let parts: Vec<String> = parts
            .map(|(what, count)| format!("{what} in {count} of {runs} runs"))
            .collect();
        return parts.join(", ") + &two_owners(summary);
    };
    let mut text = format!(
        "the next grant came within {} (median; {}{} at most{})",
        time_to(median, 3),
        summary.nearly_all_ns.map_or(String::new(), |ns| format!(
            "{} in 99 of 100 runs, ",
            time_to(ns, 3)
        )),
        time_to(worst, 3),
        summary
            .worst_delays
            .filter(|_| worst > SLOW * median)
            .map_or(String::new(), delayed),
    );
    text += &two_owners(summary);
    text
}

/// `; two believed that they owned for up to 6.10 s, the old owner was told by its release`.
fn two_owners(summary: &Summary) -> String {
    let Some(two) = summary.two_believed_ns.filter(|ns| *ns > 0) else {
        return String::new();
    };
    let by_client = match summary.told_by_client {
        true => ", the old owner was told by its client",
        false => ", the old owner was told by its release",
    };
    format!(
        "; two believed that they owned for up to {}{}{}",
        time_to(two as f64, 3),
        of(summary.told, by_client, ", the old owner was never told"),
        of(
            summary.refused,
            ", and its write was refused by its token",
            ", and its write was taken"
        ),
    )
}

/// Why one run may have taken so long: what its machine took from it.
fn delayed(delays: Delays) -> String {
    let waited = time_to(delays.waited_for_cpu_ns as f64, 3);
    let stolen = match delays.stolen_ns {
        0 => String::new(),
        ns => format!(", and the hypervisor took {}", time_to(ns as f64, 3)),
    };
    format!(", when next owner and service waited {waited} for a CPU{stolen}")
}

fn of(of: Fraction, all: &str, none: &str) -> String {
    match of.all() {
        Some(true) => all.to_owned(),
        Some(false) => none.to_owned(),
        None if of.of == 0 => String::new(),
        None => format!("{all} in {} of {} runs", of.count, of.of),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(worst_ns: f64, runs: usize) -> Summary {
        Summary {
            fault: Fault::Kill,
            runs,
            granted_ns: Vec::new(),
            median_ns: Some(1e6),
            worst_ns: Some(worst_ns),
            nearly_all_ns: (runs >= 100).then_some(2e6),
            worst_delays: Some(Delays {
                waited_for_cpu_ns: 8_200_000,
                stolen_ns: 0,
            }),
            kept: 0,
            never: 0,
            within_ns: 30,
            after_release_ns: None,
            after_lease_ns: None,
            after_return_ns: None,
            two_believed_ns: None,
            told: Fraction::default(),
            told_by_client: false,
            refused: Fraction::default(),
            in_order: Fraction::default(),
        }
    }

    /// "and it never came in 0" stood there, and nothing of two owners.
    #[test]
    fn runs_that_came_to_different_ends_are_counted_without_those_that_did_not_happen() {
        let mut mixed = summary(1e6, 12);
        (mixed.worst_ns, mixed.kept) = (None, 6);
        mixed.granted_ns = vec![1e6; 6];
        mixed.two_believed_ns = Some(2_500_000);
        assert_eq!(
            became(&mixed),
            "the next grant came in 6 of 12 runs, its owner released it in 6 of 12 runs; two \
             believed that they owned for up to 2.50 ms"
        );
    }

    #[test]
    fn a_worst_run_beyond_the_others_is_told_with_what_its_machine_took() {
        assert_eq!(
            became(&summary(3e6, 10)),
            "the next grant came within 1.00 ms (median; 3.00 ms at most)"
        );
        let mut slow = summary(9e6, 100);
        assert_eq!(
            became(&slow),
            "the next grant came within 1.00 ms (median; 2.00 ms in 99 of 100 runs, 9.00 ms at \
             most, when next owner and service waited 8.20 ms for a CPU)"
        );
        slow.worst_delays = Some(Delays {
            waited_for_cpu_ns: 0,
            stolen_ns: 10_000_000,
        });
        assert!(became(&slow).ends_with(
            "when next owner and service waited 0 ns for a CPU, and the hypervisor took 10.0 ms)"
        ));
    }
}
