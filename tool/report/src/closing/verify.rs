//! The clauses of `verify`: whether the promise was kept, what was tried and what was not, what lies
//! outside of the promise, and how soon a lock is granted after each kind of fault.

use super::{Values, View, each};
use crate::format::{counted, each_once, grouped, range, time};
use crate::verify::{self, at, struck};
use jostle_model::plan::Fault;
use jostle_model::record::{Belongs, Promise, Verified, Violation};
use jostle_stats::summary::PointSummary;

/// Told of each target, whatever its verdict: a broken promise is what was asked for.
fn told(
    view: &View<'_, '_>,
    says: impl Fn(&PointSummary<'_>, &Verified) -> Option<String>,
) -> Vec<Values> {
    let all: Vec<&PointSummary<'_>> = view.all.iter().collect();
    each(&all, |points| {
        let point = points.first()?;
        says(point, &verify::found(point)?)
    })
}

/// The certificate, or the violations.
pub(super) fn promise(view: &View<'_, '_>) -> Vec<Values> {
    told(view, |point, found| {
        let ran = time(found.ran_ns as f64);
        let kinds = struck(found).count() as u64;
        let tried = format!(
            "{}, {} of {} ({})",
            counted(found.grants, "grant"),
            counted(found.struck(), "fault"),
            counted(kinds, "kind"),
            seeds(view, point)
        );
        let mut said = match found.violations() {
            0 => format!("no violation in {ran}: {tried}"),
            _ => {
                let kinds = Violation::ALL.map(|kind| (found.of(kind), kind));
                let kinds = kinds.into_iter().filter(|(count, _)| *count > 0);
                let kinds: Vec<String> = kinds.map(|(count, kind)| kind.counted(count)).collect();
                let first = found.excerpt.as_ref().map_or_else(String::new, |excerpt| {
                    format!(", the first at {} s", at(excerpt.from_ns))
                });
                format!(
                    "the promise is broken: {}{first}, in {ran}: {tried}",
                    kinds.join(", ")
                )
            }
        };
        if let Some((seen, of)) = found.again {
            said += &format!("; seen again in {seen} of {of} runs with this seed");
        }
        if found.undecided > 0 {
            said += &format!("; {} undecided", grouped(found.undecided));
        }
        Some(said)
    })
}

fn seeds(view: &View<'_, '_>, point: &PointSummary<'_>) -> String {
    let runs = point.runs.iter();
    let runs = runs.map(|run| verify::seed(view.plan(), run.run));
    let ends = runs.clone().min().zip(runs.max());
    let (least, most) = ends.unwrap_or_default();
    let noun = if least == most { "seed" } else { "seeds" };
    format!("{noun} {}", range(least.to_string(), &most.to_string()))
}

/// By what it was judged, in words. Nothing is judged by the order of grants, nor by the loss of one
/// server.
pub(super) fn judged_by(view: &View<'_, '_>) -> Vec<Values> {
    told(view, |_, found| {
        let judged = Promise {
            order: false,
            failover: false,
            ..found.promise.clone()
        };
        Some(judged.in_words())
    })
}

/// What struck how often, and what could not strike.
pub(super) fn tried(view: &View<'_, '_>) -> Vec<Values> {
    let asked = view.plan().fault.as_deref().unwrap_or_default();
    told(view, |_, found| {
        let struck = struck(found).map(|(fault, seen)| {
            let owned = match seen.struck_owners {
                0 => String::new(),
                owned => format!(" ({} struck an owner)", grouped(owned)),
            };
            format!("{fault} {}{owned}", grouped(seen.struck))
        });
        let struck: Vec<String> = struck.collect();
        let mut said = vec![match struck.is_empty() {
            true => "no fault".to_owned(),
            false => format!(
                "{}: {}",
                counted(found.struck(), "fault"),
                struck.join(", ")
            ),
        }];
        for why in each_once(found.without.values()) {
            let of = found.without.iter().filter(|(_, other)| *other == why);
            let of: Vec<&str> = of.map(|(fault, _)| fault.as_str()).collect();
            said.push(format!("not tried, since {why}: {}", of.join(", ")));
        }
        let known = |fault: &&Fault| !asked.contains(fault) && !found.without.contains_key(fault);
        let unasked = Fault::ALL.iter().filter(known);
        let unasked: Vec<&str> = unasked.map(|fault| fault.as_str()).collect();
        if !unasked.is_empty() {
            said.push(format!("not asked for: {}", unasked.join(", ")));
        }
        Some(said.join("; "))
    })
}

/// What a fault took away that the promise leaves out.
pub(super) fn outside(view: &View<'_, '_>) -> Vec<Values> {
    told(view, |_, found| {
        (found.outside > 0).then(|| {
            let faults = struck(found).map(|(fault, _)| fault);
            let faults = faults.filter(|fault| ends(*fault, &found.promise));
            let faults: Vec<&str> = faults.map(Fault::as_str).collect();
            let after = match faults.is_empty() {
                true => String::new(),
                false => format!(" after {}", faults.join(", ")),
            };
            format!(
                "{}{after}, which the promise leaves out: two clients believed that they owned the lock",
                counted(found.outside, "overlap")
            )
        })
    })
}

/// Whether a fault may end a hold by this promise.
fn ends(fault: Fault, promise: &jostle_model::record::Promise) -> bool {
    match fault {
        Fault::ServerWipe => true,
        Fault::ServerKill => !promise.restart,
        Fault::Cut | Fault::CutTo | Fault::CutFrom | Fault::IdleCut => {
            promise.belongs == Belongs::Connection
        }
        fault => fault.is_of_member() && !promise.failover,
    }
}

/// How soon the lock was granted again after each kind.
pub(super) fn next_grant(view: &View<'_, '_>) -> Vec<Values> {
    told(view, |_, found| {
        let each = struck(found).filter_map(|(fault, seen)| {
            let (p50, max) = (seen.next_grant_p50_ns?, seen.next_grant_max_ns?);
            let (p50, max) = (time(p50 as f64), time(max as f64));
            let longest = match p50 == max {
                true => String::new(),
                false => format!(" (at most {max})"),
            };
            Some(format!("{p50} after {fault}{longest}"))
        });
        let each: Vec<String> = each.collect();
        (!each.is_empty())
            .then(|| format!("half of the next grants came within {}", each.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use crate::closing::tests::line;
    use crate::closing::{lead, lines};
    use crate::made;
    use jostle_stats::summary::summarize;

    #[test]
    fn the_certificate_says_what_was_tried_and_what_was_not() {
        let set = made::verified();
        let table = [
            (
                "Promise",
                "flock: no violation in 60 s: 48,210 grants, 22 faults of 2 kinds (seed 7).",
            ),
            (
                "Promise",
                "memcached: the promise is broken: 2 overlaps of entitled owners, the first at \
                 12.345678 s, in 60 s: 30,100 grants, 31 faults of 3 kinds (seed 7); seen again \
                 in 2 of 3 runs with this seed; 1 undecided.",
            ),
            (
                "Tried",
                "flock: 22 faults: kill 12 (9 struck an owner), stop 10 (4 struck an owner); not tried, since ",
            ),
            ("Outside", "memcached: 3 overlaps after server-wipe"),
        ];
        for (question, part) in table {
            let said = line(&set, question);
            assert!(said.contains(part), "{said}");
        }
        let points = summarize(&set.experiment, &set.runs);
        let lead = lead(&set, &points, &lines(&set, &points)).unwrap();
        assert!(lead.is_finding && lead.text.starts_with("memcached: the promise is broken"));
    }
}
