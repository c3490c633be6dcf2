//! Results of `recover`.

use super::{of_plan, run_of};
use crate::ResultSet;
use jostle_model::plan::{Fault, Workload};
use jostle_model::record::{At, Event, Run, What};
use jostle_model::{Nanos, Plan};
use jostle_stats::recover::{Seen, found};

/// `recover flock redis`, of which one kept its owner.
pub(crate) fn recovered() -> ResultSet {
    const MS: u64 = 1_000_000;
    let event = |at_us: u64, process: Option<u64>, what: What, token: Option<u64>| Event {
        at_ns: 5_000 * MS + at_us * 1_000,
        process,
        what,
        token,
        said: (what == What::NotReleased)
            .then(|| "EVALSHA: the lock was no longer ours".to_owned()),
        times: None,
    };
    let run =
        |target: &str, fault: Fault, run: u32, lease: bool, rest: &[(u64, Option<u64>, What)]| {
            let begun = [
                (0, Some(0), What::Acquire),
                (50, Some(0), What::Granted),
                (20_000, Some(1), What::Acquire),
                (100_000, None, What::Fault),
            ];
            let history: Vec<Event> = begun
                .iter()
                .chain(rest)
                .map(|(at, process, what)| event(*at, *process, *what, None))
                .collect();
            let returned = history.iter().find(|e| e.what == What::Return);
            let (recovery, exclusion) = found(&Seen {
                fault,
                waiters: 1,
                within_ns: 30_000 * MS,
                lease_ns: lease.then_some(2_000 * MS),
                lease_step_ns: None,
                leased_at_ns: lease.then_some(5_000 * MS),
                struck: None,
                promised: None,
                struck_ns: (5_100 * MS, 5_100 * MS + 9_000),
                returned_ns: returned.map(|e| e.at_ns),
                delays: None,
                may_lapse: false,
                history: &history,
            });
            let at = At {
                fault: Some(fault),
                ..At::default()
            };
            Run {
                operations: 2,
                throughput_per_s: 2.0 / 3.0,
                exclusion: Some(exclusion),
                recovery: Some(Box::new(recovery)),
                ..run_of(target, Workload::Recover, at, run, 3.0)
            }
        };
    let killed = |nth: u32, after_us: u64| {
        let at = 100_000 + after_us;
        let served = [
            (at, Some(1), What::Granted),
            (at + 1_000, Some(1), What::Release),
            (at + 1_010, Some(1), What::Released),
        ];
        run("flock", Fault::Kill, nth, false, &served)
    };
    let kept = [
        (3_100_000, None, What::Return),
        (3_100_100, Some(0), What::Awake),
        (3_100_200, Some(0), What::Release),
        (3_100_210, Some(0), What::Released),
        (3_100_300, Some(1), What::Granted),
        (3_101_300, Some(1), What::Release),
        (3_101_310, Some(1), What::Released),
    ];
    let lapsed = [
        (2_000_700, Some(1), What::Granted),
        (2_001_000, None, What::Return),
        (2_001_100, Some(0), What::Awake),
        (2_001_200, Some(0), What::Release),
        (2_001_300, Some(0), What::NotReleased),
        (2_003_000, Some(1), What::Release),
        (2_003_010, Some(1), What::Released),
    ];
    let points = vec![
        killed(1, 180),
        killed(2, 240),
        run("flock", Fault::Stop, 1, false, &kept),
        run("redis", Fault::Stop, 1, true, &lapsed),
    ];
    let plan = Plan {
        targets: vec!["flock".to_owned(), "redis".to_owned()],
        fault: Some(vec![Fault::Kill, Fault::Stop]),
        waiters: Some(1),
        within: Some(Nanos::from_millis(30_000)),
        pause: Some(Nanos::from_millis(3_000)),
        lease: Some(Nanos::from_millis(2_000)),
        runs: Some(2),
        ..Plan::of(Workload::Recover)
    };
    of_plan(plan, points)
}
