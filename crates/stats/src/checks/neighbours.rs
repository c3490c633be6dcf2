//! By how much may other programs and the hypervisor have moved the figure?

use super::{Check, Evidence, Found, percent, seen};
use crate::harm::{self, BEARABLE, Harm};
use jostle_model::Remedy;
use jostle_model::record::{Bound, Claim, Is, Neighbour, Point, Reason};
use std::collections::BTreeMap;

/// From here on a figure with its bound says too little.
const INVALID: f64 = 0.25;

/// Neighbours that are named.
const NAMED: usize = 3;

/// The check.
pub static CHECK: Check = Check {
    name: "neighbours",
    asks: "By how much may other programs and the hypervisor have moved the figure?",
    unit: "share",
    threshold: || {
        format!(
            "the time that work was kept from its CPUs is x = (min(CPU time of others, time that \
             ours waited for a CPU) + steal) / (window times \
             the CPUs that the work can use at once, for `rate` the sum of its times of service \
             if that is less and others used {0} of the window or more); the undisturbed figure lies between X / (1 + x \
             (R - 1)) and X / (1 - x), where X is the measured figure and R, at most 8, the factor \
             by which a neighbour can make the work quicker. The upper end is {0} off or more: SUSPECT, with both ends; \
             then, either end is more than {1} off: INVALID, printed as `>=` and the lower end \
             where that is at least three quarters of X. Both are for `absolute` and `distribution`",
            percent(BEARABLE),
            percent(INVALID)
        )
    },
    source: "a neighbour takes nothing while ours sleep, and ours wait for each other without it; \
             planted hogs of 5 to 80 % (record/validate-busy.txt)",
    fooled_by: "a neighbour that takes caches or memory bandwidth instead of CPU time, disk or \
                network; a service that waits for a disk; percentiles, which a short disturbance \
                can move by more than the mean",
    advice: "stop the programs that are named, or wait for a quiet moment",
    words: |reason| {
        let bound = reason.bound.map_or_else(String::new, bound_in_words);
        format!("{}: undisturbed it would be {bound}", seen(reason))
    },
    judge,
};

fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let harm = harm::bound(evidence.experiment, evidence.runs)?;
    let (is, limit) = match harm.off() {
        off if off < BEARABLE => return None,
        off if off <= INVALID => (Is::Suspect, BEARABLE),
        _ => (Is::Invalid, INVALID),
    };
    let found = Found {
        measured: Some(harm.off()).filter(|off| off.is_finite()),
        limit: Some(limit),
        bound: Some(Bound {
            low: harm.low,
            high: Some(harm.high).filter(|high| high.is_finite()),
        }),
        seen: Some(who(evidence.runs, &harm)),
        remedy: Some(Remedy::wait_quiet()),
    };
    Some(CHECK.reason(is, &[Claim::Absolute, Claim::Distribution], found))
}

/// What the figure would have been.
fn bound_in_words(bound: Bound) -> String {
    match bound.high {
        None => format!("at least {:.2} times as much", bound.low),
        Some(high) => format!("{:.2} to {high:.2} times as much", bound.low),
    }
}

/// The neighbours' names, and how long they kept our threads from running.
fn who(runs: &[&Point], harm: &Harm) -> String {
    let named = named(runs);
    let kept = format!(
        "kept it from its CPUs for up to {} of the time",
        percent(harm.share)
    );
    match (named.is_empty(), stole(runs)) {
        (true, true) => format!("the hypervisor {kept}"),
        (true, false) => format!("other programs {kept}"),
        (false, true) => format!("other programs ({named}) and the hypervisor {kept}"),
        (false, false) => format!("other programs ({named}) {kept}"),
    }
}

fn stole(runs: &[&Point]) -> bool {
    let accounts = runs.iter().filter_map(|run| run.accounts.as_deref());
    accounts.filter_map(|a| a.stolen_s).sum::<f64>() > 0.0
}

/// The largest over all runs, with their share of a CPU.
fn named(runs: &[&Point]) -> String {
    let accounts = || runs.iter().filter_map(|run| run.accounts.as_deref());
    let between_s: f64 = accounts().map(|a| a.between_s).sum();
    let mut each = BTreeMap::<(&str, u64), f64>::new();
    for Neighbour { name, pid, cpu_s } in accounts().flat_map(|a| &a.others) {
        *each.entry((name, *pid)).or_default() += cpu_s;
    }
    let mut each: Vec<_> = each.into_iter().collect();
    each.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let words = each.into_iter().take(NAMED).map(|((name, pid), cpu_s)| {
        let share = 100.0 * cpu_s / between_s.max(f64::MIN_POSITIVE);
        format!("{name} ({pid}) {share:.0} %")
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{after, judge, point};
    use crate::harm::Harm;
    use jostle_model::record::{Accounts, Is, Neighbour, Point};

    fn beside(others_s: f64, waited_s: f64) -> Point {
        let mut point = point();
        point.accounts = Some(Box::new(Accounts {
            between_s: 5.0,
            cpus: 2,
            others_s: Some(others_s),
            others: vec![Neighbour {
                name: "cargo".to_owned(),
                pid: 812,
                cpu_s: others_s,
            }],
            waited_s: Some(waited_s),
            stolen_s: Some(0.0),
            ..Accounts::default()
        }));
        point
    }

    fn found(share: f64) -> Is {
        let run = beside(4.0, 5.0 * share);
        judge(&CHECK, &[run]).map_or(Is::Valid, |reason| reason.is)
    }

    #[test]
    fn three_and_twenty_five_percent_are_the_limits() {
        // 1 / (1 - x) - 1.
        assert_eq!(found(0.0290), Is::Valid);
        assert_eq!(found(0.0292), Is::Suspect);
        assert_eq!(found(0.1999), Is::Suspect);
        assert_eq!(found(0.2001), Is::Invalid);
    }

    /// A web server with eight workers on an idle machine was SUSPECT: 0.5 % of the
    /// time, in which wake-ups may have cost a sixth.
    #[test]
    fn what_work_may_have_gained_counts_where_it_may_have_lost_as_much() {
        let off = |share: f64, low: f64| {
            let high = 1.0 / (1.0 - share);
            Harm { share, low, high }.off()
        };
        assert!(off(0.028, 0.80) < 0.03);
        assert_eq!(off(0.030, 0.80), 1.0 - 0.80);
    }

    #[test]
    fn the_programs_are_named_with_their_share_of_a_cpu_and_the_figure_with_its_bound() {
        let reason = judge(&CHECK, &[beside(1.55, 0.5)]).unwrap();
        assert_eq!(
            reason.text,
            "other programs (cargo (812) 31 %) kept it from its CPUs for up to 10.0 % of the time: \
             undisturbed it would be 1.00 to 1.11 times as much (--wait-quiet 60s)"
        );
    }

    #[test]
    fn what_nobody_waited_for_and_what_was_not_looked_at_is_nobody_s_harm() {
        assert_eq!(judge(&CHECK, &[beside(4.0, 0.0)]), None);
        assert_eq!(judge(&CHECK, &[beside(0.0, 9.0)]), None);
        // Result files of before.
        assert_eq!(after(&CHECK, |point| point.accounts = None), Is::Valid);
    }
}
