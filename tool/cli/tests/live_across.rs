//! Exclusion across hosts, with real keepers, workers and servers: two keepers that
//! run at the same time stand for two hosts. Their clocks are one, which the judge is
//! not told: it believes each to be off by some microseconds.
//!
//! Keepers are forked before this process has a second thread, so that it is its
//! own main program: one word as an argument chooses among the tests, as usual.

#![allow(clippy::unwrap_used, reason = "every function here is of a test")]
#![allow(clippy::print_stdout, reason = "it reports as the usual harness does")]

use jostle_engine::across::unpacked;
use jostle_engine::hosts::{Host, HostData, Offset};
use jostle_engine::keeper::Keeper;
use jostle_engine::order::{ContendOrder, RunData, RunOrder, Share, StreamOrder, WorkloadOrder};
use jostle_engine::{across, experiment};
use jostle_model::plan::{Carrier, Names, Plan, Workload};
use jostle_model::record::{Across, At};
use jostle_model::time::{Busy, Nanos};
use jostle_sys::clock::Clock;
use jostle_targets::Launcher;
use jostle_testbed::lock_servers as servers;

/// The judge's bound on each clock's error: much less than a hold.
const WITHIN_NS: u64 = 20_000;

/// A bound that leaves the order of grants open: more than one hand-off takes on any machine.
const LOOSE_NS: u64 = 5_000_000;

/// On two hosts.
type Test = fn(&mut [Keeper; 2]);

const TESTS: [(&str, Test); 4] = [
    (
        "one_lock_of_both_hosts_passes",
        one_lock_of_both_hosts_passes,
    ),
    (
        "each_host_its_own_lock_is_flagged",
        each_host_its_own_lock_is_flagged,
    ),
    (
        "tokens_of_one_daemon_only_grow",
        tokens_of_one_daemon_only_grow,
    ),
    (
        "a_full_log_covers_the_window_s_beginning",
        a_full_log_covers_the_window_s_beginning,
    ),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    // As libtest has them: `--skip` takes a word, and each other word is a filter.
    let skips = |at: usize| at > 0 && arguments[at - 1] == "--skip";
    let words = arguments.iter().enumerate();
    let (skipped, filters): (Vec<_>, Vec<_>) = words
        .filter(|(_, word)| !word.starts_with('-'))
        .partition(|(at, _)| skips(*at));
    let is_asked = |name: &str| {
        let holds = |(_, word): &(usize, &String)| name.contains(word.as_str());
        !skipped.iter().any(holds) && (filters.is_empty() || filters.iter().any(holds))
    };
    let clock = Clock::new();
    let mut keepers = [(); 2].map(|()| Keeper::start(clock).unwrap());
    for (name, test) in TESTS {
        if is_asked(name) {
            test(&mut keepers);
            println!("test {name} ... ok");
        }
    }
}

/// Three workers of each host want one lock, which they hold for half a millisecond.
fn order(target: &str) -> RunOrder {
    RunOrder {
        workload: WorkloadOrder::Contend(ContendOrder {
            hold: Busy::Sleep(Nanos::from_micros(500)),
            idle: Busy::Sleep(Nanos::from_micros(100)),
            ..ContendOrder::bare()
        }),
        window: Nanos::from_millis(400),
        clock_uncertainty: Nanos(1_000),
        log_grants: 10_000,
        ..experiment::order(&Plan::of(Workload::Contend), target, At::default(), 3, 7)
    }
}

/// The order for another workload, carried by that.
fn order_of(target: &str, workload: Workload, carrier: Carrier) -> RunOrder {
    let mut order = order(target);
    order.carrier = carrier;
    if workload == Workload::Stream {
        order.workload = WorkloadOrder::Stream(StreamOrder {
            operations: 300,
            names: Names::One,
            pipeline: 1,
            session_each: false,
        });
        (order.window, order.warmup) = (Nanos::from_millis(60_000), Nanos::ZERO);
    }
    order
}

/// Both hosts do it at the same time.
fn run(keepers: &mut [Keeper; 2], order: &RunOrder) -> [RunData; 2] {
    run_both(keepers, [order.clone(), order.clone()])
}

/// Both hosts do it at the same time, with one lock for both.
fn run_together(keepers: &mut [Keeper; 2], order: &RunOrder) -> [RunData; 2] {
    let part = |nth: usize| RunOrder {
        share: Some(Share {
            nth,
            hosts: 2,
            first_worker: nth * order.workers,
            workers: 2 * order.workers,
            names: u64::from(std::process::id()),
        }),
        seed: order.seed + nth as u64,
        ..order.clone()
    };
    run_both(keepers, [part(0), part(1)])
}

fn run_both(keepers: &mut [Keeper; 2], orders: [RunOrder; 2]) -> [RunData; 2] {
    std::thread::scope(|scope| {
        let mut orders = orders.into_iter();
        let runs = keepers.each_mut().map(|keeper| {
            let order = orders.next().unwrap();
            scope.spawn(move || keeper.run(&order, &mut || false, &mut |_| ()).unwrap())
        });
        runs.map(|run| run.join().unwrap())
    })
}

fn judge(gathered: [RunData; 2]) -> Across {
    judge_within(gathered, WITHIN_NS)
}

fn judge_within(gathered: [RunData; 2], within_ns: u64) -> Across {
    let hosts = ["one", "two"].map(|name| Host {
        name: name.to_owned(),
        ..Host::default()
    });
    let mut rank = 0..;
    let gathered = gathered.map(|data| HostData {
        rank: rank.next().unwrap(),
        data,
        clock: Offset {
            ahead_ns: 0,
            within_ns,
        },
        late_ns: 0,
    });
    across::across(&hosts, &gathered).unwrap().unwrap()
}

fn lockd() -> String {
    format!("lockd://{}", servers::InProcess.launch("lockd").unwrap())
}

/// Files of its own, or names of its own, exclude within a host alone; and no host
/// sees it by itself.
fn each_host_its_own_lock_is_flagged(keepers: &mut [Keeper; 2]) {
    let lockd = lockd();
    for (target, carrier) in [
        ("flock", Carrier::Processes),
        ("futex", Carrier::Threads),
        (&lockd, Carrier::Processes),
        (&lockd, Carrier::Tasks),
    ] {
        let mut order = order(target);
        order.carrier = carrier;
        // A host that had no CPU for a while begins when the other one's window is over.
        let is_flagged = (0..100).any(|_| {
            let gathered = run(keepers, &order);
            let seen: u64 = gathered.iter().map(|one| one.exclusion.violations).sum();
            let operations: u64 = gathered
                .iter()
                .flat_map(|one| &one.workers.operations)
                .sum();
            let found = judge(gathered);
            assert_eq!(seen, 0, "{target}");
            assert_eq!(found.hosts, 2);
            assert_eq!(found.within_ns, 2 * WITHIN_NS);
            // Two workers that hold half of the time or more meet in half of the grants.
            let met = found.violations > operations / 10 && found.coverage > 0.3;
            met && found.examples[0].contains(" was let in at ")
        });
        assert!(is_flagged, "{target}: not in a hundred runs");
    }
}

/// With tokens everything is in order; without, what the clocks leave open is
/// counted. In either case nothing is flagged, whatever the workers' delays.
fn one_lock_of_both_hosts_passes(keepers: &mut [Keeper; 2]) {
    let redis = format!("redis:{}", servers::argument("redis").unwrap());
    for (target, workload, carrier, tokens) in [
        (lockd(), Workload::Contend, Carrier::Processes, true),
        (lockd(), Workload::Contend, Carrier::Tasks, true),
        (lockd(), Workload::Stream, Carrier::Threads, true),
        (redis.clone(), Workload::Contend, Carrier::Processes, false),
        (redis, Workload::Stream, Carrier::Processes, false),
    ] {
        let what = format!("{target} {workload:?} {carrier:?}");
        let order = order_of(&target, workload, carrier);
        let is_checked = (0..100).any(|_| {
            let found = judge_within(run_together(keepers, &order), LOOSE_NS);
            let faults = [
                found.violations,
                found.tokens_repeated,
                found.tokens_out_of_order,
                found.lapsed_overlap,
            ];
            assert_eq!(faults, [0; 4], "{what}: {found:?}");
            let open = match tokens {
                true => [found.ordered_by_token, found.undecided],
                false => [found.undecided, found.ordered_by_token],
            };
            assert_eq!(open[1], 0, "{what}: {found:?}");
            // A machine that stands still leaves too little in a window.
            found.checked > 50 && open[0] > 0
        });
        assert!(is_checked, "{what}: not in a hundred runs");
    }
}

fn tokens_of_one_daemon_only_grow(keepers: &mut [Keeper; 2]) {
    let lockd = lockd();
    for (carrier, workload) in [
        (Carrier::Processes, Workload::Contend),
        (Carrier::Tasks, Workload::Contend),
        (Carrier::Threads, Workload::Stream),
        (Carrier::Tasks, Workload::Stream),
    ] {
        let order = order_of(&lockd, workload, carrier);
        let gathered = run(keepers, &order);
        for data in &gathered {
            let mut grants = unpacked(&data.grants).unwrap();
            let operations: u64 = data.workers.operations.iter().sum();
            let logged = grants.len() as u64;
            assert_eq!(logged, operations, "{carrier:?} {workload:?}");
            assert_eq!(logged, data.grants.made);
            grants.sort_unstable_by_key(|grant| grant.g_ns);
            for pair in grants.windows(2) {
                assert!(pair[0].g_ns <= pair[0].r_ns);
                assert!(pair[0].r_ns <= pair[1].g_ns, "{pair:?}");
                assert!(pair[0].token.unwrap() < pair[1].token.unwrap(), "{pair:?}");
            }
        }
        let found = judge(gathered);
        assert_eq!(found.tokens_repeated, 0, "{carrier:?} {workload:?}");
        assert_eq!(found.undecided, 0, "tokens have an order: {found:?}");
    }
}

/// Asked again until the two logs have a time in common: a host that had no CPU for a
/// while begins after the other one's log was full, which shows nothing.
fn a_full_log_covers_the_window_s_beginning(keepers: &mut [Keeper; 2]) {
    let mut order = order("flock");
    order.log_grants = 20;
    for _ in 0..100 {
        let gathered = run(keepers, &order);
        for data in &gathered {
            let (log, logged) = (&data.grants, unpacked(&data.grants).unwrap().len() as u64);
            assert_eq!(log.made, data.workers.operations.iter().sum::<u64>());
            assert!(logged <= 60 && logged <= log.made);
            let covered = log.until_ns - log.from_ns;
            assert_eq!(logged < log.made, covered < order.window.0, "{covered}");
        }
        let found = judge(gathered);
        if found.violations > 0 && found.coverage < 0.5 {
            return;
        }
    }
    panic!("no two full logs of one time");
}
