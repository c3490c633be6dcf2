//! `verify` in the formats for people: the columns, the excerpt, and what was checked.

use crate::ResultSet;
use crate::columns::{Column, TARGET, always};
use crate::format::{counted, grouped, time};
use crate::grid::{Heading, Titled};
use crate::requests::short;
use jostle_model::Plan;
use jostle_model::plan::{Fault, Workload};
use jostle_model::record::{Excerpt, ExcerptLine, FaultSeen, Run, Verified, Violation};
use jostle_stats::summary::PointSummary;

/// The columns of `verify`. What was found is printed of a broken promise, too.
pub(crate) static COLUMNS: &[Column] = &[
    TARGET,
    always(["", "grants"], |point| count(point, |found| found.grants)),
    always(["faults", "struck"], |point| count(point, Verified::struck)),
    always(["viola-", "tions"], |point| {
        count(point, Verified::violations)
    }),
    always(["outside", "promise"], |point| {
        count(point, |found| found.outside)
    })
    .rank(3),
    always(["unde-", "cided"], |point| {
        count(point, |found| found.undecided)
    })
    .rank(1),
    always(["unknown", "calls"], |point| {
        count(point, |found| found.unknown)
    })
    .rank(4),
    always(["longest", "free"], |point| {
        Some(time(found(point)?.longest_free_ns as f64))
    })
    .rank(2),
    always(["free", "at most"], |point| {
        Some(time(found(point)?.free_bound_ns? as f64))
    })
    .rank(5),
    always(["given up,", "granted"], |point| {
        count(point, |found| found.to_the_departed)
    })
    .detail(),
    always(["", "calls"], |point| count(point, |found| found.calls)).detail(),
    always(["", "renewals"], |point| {
        count(point, |found| found.renewals)
    })
    .detail(),
    always(["failed", "calls"], |point| {
        count(point, |found| found.errors)
    })
    .detail(),
];

fn count(point: &PointSummary<'_>, of: fn(&Verified) -> u64) -> Option<String> {
    found(point).map(|found| grouped(of(&found)))
}

/// The findings of all runs of a point together; the excerpt is the first. None of other
/// workloads.
pub(crate) fn found(point: &PointSummary<'_>) -> Option<Verified> {
    let each = point.runs.iter().filter_map(|run| run.verified.as_deref());
    each.cloned().reduce(both)
}

fn both(mut one: Verified, other: Verified) -> Verified {
    type Count = fn(&mut Verified) -> &mut u64;
    let counts: [Count; 14] = [
        |found| &mut found.ran_ns,
        |found| &mut found.calls,
        |found| &mut found.grants,
        |found| &mut found.errors,
        |found| &mut found.unknown,
        |found| &mut found.renewals,
        |found| &mut found.dropped,
        |found| &mut found.overlaps,
        |found| &mut found.foreign_releases,
        |found| &mut found.tokens_fell,
        |found| &mut found.late_grants,
        |found| &mut found.outside,
        |found| &mut found.undecided,
        |found| &mut found.to_the_departed,
    ];
    let mut other = other;
    for count in counts {
        *count(&mut one) += *count(&mut other);
    }
    for (fault, seen) in other.faults {
        let known = one.faults.entry(fault).or_default();
        known.struck += seen.struck;
        known.struck_owners += seen.struck_owners;
        // Of several medians the middle is unknown; the worst is no better than it.
        known.next_grant_p50_ns = known.next_grant_p50_ns.max(seen.next_grant_p50_ns);
        known.next_grant_max_ns = known.next_grant_max_ns.max(seen.next_grant_max_ns);
    }
    one.longest_free_ns = one.longest_free_ns.max(other.longest_free_ns);
    one.free_bound_ns = one.free_bound_ns.max(other.free_bound_ns);
    one.again = one.again.or(other.again);
    one.excerpt = one.excerpt.or(other.excerpt);
    one
}

/// What struck, by kind, in the order of the help.
pub(crate) fn struck(found: &Verified) -> impl Iterator<Item = (Fault, FaultSeen)> {
    Fault::ALL.iter().filter_map(|fault| {
        let seen = found.faults.get(fault).copied();
        Some((*fault, seen.filter(|seen| seen.struck > 0)?))
    })
}

/// The runs of a result that broke the promise, each with its excerpt.
pub(crate) fn excerpts(set: &ResultSet) -> Vec<(&Run, &Excerpt)> {
    let runs = set.runs.iter();
    let found = runs.filter_map(|run| Some((run, run.verified.as_deref()?.excerpt.as_ref()?)));
    // Of several runs of a target one is enough.
    let mut first: Vec<(&Run, &Excerpt)> = Vec::new();
    for (run, excerpt) in found {
        if first.iter().all(|(known, _)| known.target != run.target) {
            first.push((run, excerpt));
        }
    }
    first
}

/// `two entitled owners of lock 2`.
pub(crate) fn shows(excerpt: &Excerpt) -> String {
    let what = match excerpt.kind {
        Violation::Overlap => "two entitled owners",
        Violation::ForeignRelease => "a release of another's lock",
        Violation::TokenFell => "a fencing token that fell",
        Violation::LateGrant => "a free lock that was not granted",
    };
    format!("{what}, lock {}", excerpt.key)
}

/// `client 3`, or what struck by itself.
pub(crate) fn who(line: &ExcerptLine) -> String {
    match line.client {
        Some(client) => format!("client {client}"),
        None => "-".to_owned(),
    }
}

/// Seconds from the start of the run.
pub(crate) fn at(ns: u64) -> String {
    format!("{:.6}", ns as f64 / 1e9)
}

/// The smallest part of the history that shows the violation, for each target that has one.
pub(crate) fn tables(set: &ResultSet) -> Vec<Titled> {
    let table = |(run, excerpt): (&Run, &Excerpt)| {
        let has_tokens = excerpt.lines.iter().any(|line| line.token.is_some());
        let mut columns = vec![
            Heading::right("", "seconds"),
            Heading::left("who"),
            Heading::left("what"),
        ];
        if has_tokens {
            columns.push(Heading::right("", "token"));
        }
        let row = |line: &ExcerptLine| {
            let mut row = vec![at(line.at_ns), who(line), line.what.clone()];
            if has_tokens {
                row.push(line.token.map_or_else(|| "-".to_owned(), |n| n.to_string()));
            }
            row
        };
        let title = format!(
            "{}: {} from {} to {} s:",
            short(&run.target),
            shows(excerpt),
            at(excerpt.from_ns),
            at(excerpt.until_ns),
        );
        Titled::new(&title, columns, excerpt.lines.iter().map(row).collect())
    };
    excerpts(set).into_iter().map(table).collect()
}

/// The seed of a run: the first has the plan's.
pub(crate) fn seed(plan: &Plan, run: u32) -> u64 {
    plan.seed().wrapping_add(u64::from(run.saturating_sub(1)))
}

/// The plan that shows the first violation again, by the same schedule; None without one.
pub(crate) fn again(set: &ResultSet) -> Option<Plan> {
    let plan = &set.experiment.plan;
    let (run, _) = *excerpts(set).first()?;
    let found = run.verified.as_deref()?;
    // All that strike is what is asked for without a list.
    let asked = plan.fault.clone().unwrap_or_default();
    let mut can = Fault::ALL
        .iter()
        .filter(|fault| !found.without.contains_key(fault));
    let is_all = can.all(|fault| asked.contains(fault));
    Some(Plan {
        targets: vec![run.target.clone()],
        fault: plan.fault.clone().filter(|_| !is_all),
        runs: None,
        history: None,
        seed: Some(seed(plan, run.run)),
        ..plan.clone()
    })
}

/// What was checked, and what a clean result does not cover.
pub(crate) fn checked(set: &ResultSet) -> Vec<String> {
    debug_assert_eq!(set.experiment.plan.workload, Workload::Verify);
    let sum = |of: fn(&Verified) -> u64| -> u64 {
        let found = set.runs.iter().filter_map(|run| run.verified.as_deref());
        found.map(of).sum()
    };
    let mut said = vec![format!(
        "Each hold of {}, {} in all, from the return of its grant until its release is sent or its \
         entitlement ends.",
        counted(sum(|found| found.grants), "grant"),
        counted(sum(|found| found.calls), "call"),
    )];
    let mut found = set.runs.iter().filter_map(|run| run.verified.as_deref());
    if found.any(|found| found.violations() == 0) {
        let mut asked = set.experiment.plan.fault.iter().flatten();
        let alone = match asked.any(|fault| fault.is_of_member()) {
            true => "",
            false => "no several servers that disagree, ",
        };
        said.push(format!(
            "No violation means none in this history. One machine was tried: no lost disk, {alone}no \
             server that lies."
        ));
    }
    said
}
