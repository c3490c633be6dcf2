//! The clauses of `hold --for`: what a held lock costs a minute.

use super::{Values, View, each};
use jostle_stats::figures;
use jostle_stats::kept::KeptSummary;
use jostle_stats::numbers::{counted, significant, time, workers};
use jostle_stats::summary::PointSummary;

/// What kept locks cost, of each target at the greatest number at which every lock was kept; none
/// where none were.
pub(super) fn cost_of_each(view: &View<'_, '_>) -> Vec<Values> {
    each(&view.points, |points| {
        let kept = points.iter().filter(|point| point.kept.is_some());
        let most = kept.max_by_key(|point| point.kept.map_or(0, |kept| kept.locks))?;
        let late = most.kept.and_then(|kept| lateness(&kept));
        let clauses = cost(most).into_iter().chain(late);
        Some(clauses.collect::<Vec<_>>().join("; "))
    })
}

/// `10,000 locks`, `10,000 locks of 100 workers`.
fn held(locks: u64, among: Option<u64>) -> String {
    let of = match among {
        None | Some(0 | 1) => String::new(),
        Some(n) => format!(" of {}", workers(n)),
    };
    counted(locks, "lock") + &of
}

/// `a held lock costs 6.00 renewals and 240 us of server CPU a minute (with 100 locks)`.
fn cost(point: &PointSummary<'_>) -> Option<String> {
    let kept = point.kept?;
    let renewals = match (kept.leased, point.median(figures::KEPT_RENEWALS)) {
        (true, Some(renewals)) => format!("{} renewals", significant(renewals, 3)),
        _ => "no renewals".to_owned(),
    };
    let own = point.median(figures::KEPT_OWN_SERVER_CPU);
    let cpu = point.median(figures::KEPT_SERVER_CPU);
    let cpu = cpu.map(|with| server_cpu(with, own));
    Some(format!(
        "a held lock costs {renewals}{} a minute (with {})",
        cpu.unwrap_or_default(),
        held(kept.locks, point.at.workers)
    ))
}

/// ` and 240 us of server CPU (1.02 ms with what the idle server uses)`.
fn server_cpu(with_us: f64, without: Option<f64>) -> String {
    /// Share of the idle server's time below which a difference from it says nothing.
    const STANDS_OUT: f64 = 0.25;
    let with = time(with_us * 1e3);
    match without {
        None => format!(" and {with} of server CPU"),
        Some(own_us) if own_us > STANDS_OUT * (with_us - own_us) => {
            let own = time(own_us * 1e3);
            format!(" and {own} of server CPU ({with} with what the idle server uses)")
        }
        Some(_) => format!(" and no server CPU beyond the idle server's ({with} with it)"),
    }
}

fn lateness(kept: &KeptSummary) -> Option<String> {
    let latest = time(kept.latest_ns? as f64);
    Some(format!("with so many, renewals came up to {latest} late"))
}

#[cfg(test)]
mod tests {
    use crate::closing::tests::planned;
    use crate::made::run_of;
    use jostle_model::plan::Workload;
    use jostle_model::record::{At, Kept, Run};
    use jostle_model::{List, Nanos, Plan};
    use jostle_stats::fixtures;

    fn run(keys: u64, kept: Kept) -> Run {
        let at = At {
            workers: Some(1),
            keys: Some(keys),
            ..At::default()
        };
        Run {
            operations: keys,
            throughput_per_s: 10.0 * keys as f64,
            kept: Some(Box::new(Kept {
                kept_s: 90.0,
                locks: keys,
                ..kept
            })),
            ..run_of("redis", Workload::Hold, at, 1, 0.1)
        }
    }

    fn leased(renewals: u64, lapsed: u64) -> Kept {
        Kept {
            lease_s: Some(30.0),
            renewals,
            lapsed,
            renewal_late_ns: Some(fixtures::distribution(renewals, 3_500_000)),
            server_cpu_s: Some(0.036),
            ..Kept::default()
        }
    }

    fn said(runs: &[Run]) -> String {
        let plan = Plan {
            targets: vec!["redis".to_owned()],
            workers: Some(List(vec![1])),
            keys: Some(List(vec![100, 1_000])),
            keep: Some(Nanos::from_millis(90_000)),
            ..Plan::of(Workload::Hold)
        };
        planned(plan, runs, "Cost")
    }

    #[test]
    fn a_lock_costs_so_many_renewals_and_so_much_cpu_a_minute() {
        let points = [run(100, leased(900, 0)), run(1_000, leased(9_000, 0))];
        assert_eq!(
            said(&points),
            "A held lock costs 6.00 renewals and 24 us of server CPU a minute (with 1,000 \
             locks); with so many, renewals came up to 3.5 ms late."
        );
    }

    /// etcd's raft ticks were the cost of the only lock that it held.
    #[test]
    fn what_the_idle_server_uses_is_not_the_lock_s_and_both_are_printed() {
        let idle = |us_per_s| Kept {
            server_idle_cpu_us_per_s: Some(us_per_s),
            ..leased(900, 0)
        };
        let text = said(&[run(100, idle(300.0))]);
        let part = "6.00 renewals and 60 us of server CPU (240 us with what the idle server \
                    uses) a minute (with 100 locks)";
        assert!(text.contains(part), "{text}");
        let text = said(&[run(100, idle(390.0))]);
        let part = "and no server CPU beyond the idle server's (240 us with it) a minute";
        assert!(text.contains(part), "{text}");
    }

    #[test]
    fn the_cost_is_that_of_the_greatest_number_at_which_no_lease_ended() {
        let points = [run(100, leased(900, 0)), run(1_000, leased(8_000, 12))];
        assert_eq!(
            said(&points),
            "A held lock costs 6.00 renewals and 240 us of server CPU a minute (with 100 locks); \
             with so many, renewals came up to 3.5 ms late."
        );
    }

    #[test]
    fn a_lock_without_a_lease_costs_no_renewals() {
        let owned = Kept {
            server_cpu_s: Some(0.0),
            ..Kept::default()
        };
        assert_eq!(
            said(&[run(100, owned)]),
            "A held lock costs no renewals and 0 ns of server CPU a minute (with 100 locks)."
        );
        let local = run(1, Kept::default());
        assert!(said(&[local]).starts_with("A held lock costs no renewals a minute (with 1 lock)"));
    }
}
