use super::*;
use crate::rng::Rng;
use proptest::prelude::*;

const US: u64 = 1_000;
/// When the logs begin, on the common clock.
const START: u64 = 20_000_000_000;

/// Hosts with clocks of their own, and what a test lets their workers do. Times
/// are those of the common clock, in microseconds from the start.
struct Hosts {
    /// By how much each clock is ahead at the start, in truth.
    ahead_ns: Vec<i64>,
    /// The gain of all but the first while the common clock takes a second.
    gains_ns: i64,
    clocks: Vec<Clock>,
    grants: Vec<Vec<Grant>>,
    lease_ns: Option<u64>,
}

/// Clocks a second and two apart, known to within 10 us and in truth 10 us off it.
fn two() -> Hosts {
    hosts(&[(0, 0, 0), (-2_000_000, 10, 10)])
}

/// Hosts with these clocks, each (us ahead by the reading, uncertainty in us, true error
/// in us).
fn hosts(clocks: &[(i64, u64, i64)]) -> Hosts {
    let ns = US as i64;
    Hosts {
        ahead_ns: clocks
            .iter()
            .map(|(ahead, _, err)| (ahead + err) * ns)
            .collect(),
        gains_ns: 0,
        clocks: clocks
            .iter()
            .map(|(ahead, within, _)| Clock::steady(ahead * ns, within * US))
            .collect(),
        grants: vec![Vec::new(); clocks.len()],
        lease_ns: None,
    }
}

impl Hosts {
    fn shows(&self, host: usize, at_us: u64) -> u64 {
        let since = (at_us * US) as i64;
        let gained = self.gains_ns * since / 1_000_000_000 * host.min(1) as i64;
        (START as i64 + since + self.ahead_ns[host] + gained) as u64
    }

    fn hold(&mut self, host: usize, worker: u32, from: u64, until: u64) -> &mut Grant {
        let grant = Grant {
            key: 0,
            g_ns: self.shows(host, from),
            r_ns: self.shows(host, until),
            worker,
            token: None,
            shared: false,
        };
        self.grants[host].push(grant);
        self.grants[host].last_mut().unwrap()
    }

    fn judge(&self) -> Across {
        let until = 1_000_000_000;
        let log = |host: usize| HostLog {
            name: ["one", "two", "three", "four"][host],
            clock: self.clocks[host].clone(),
            from_ns: self.shows(host, 0),
            until_ns: self.shows(host, until),
            grants: &self.grants[host],
            made: self.grants[host].len() as u64,
            lease_ns: self.lease_ns,
        };
        judge(&(0..self.grants.len()).map(log).collect::<Vec<_>>())
    }
}

#[test]
fn an_overlap_counts_once_it_is_longer_than_the_doubt() {
    // from, until on the other host; overlaps, undecided. What host two does is read
    // as happening up to 20 us after it truly did.
    for (from, until, violations, undecided) in [
        (300, 400, 0, 0), // long after
        (200, 300, 0, 0), // just after
        (190, 300, 0, 1), // an overlap of 10 us, of which the clocks cannot be sure
        (180, 300, 0, 1), // nor of 20
        (179, 300, 1, 0),
        (120, 125, 1, 0), // inside, though shorter than the doubt
        (85, 105, 0, 1),  // before, but perhaps not
        (80, 90, 0, 0),   // before
    ] {
        let mut hosts = two();
        hosts.hold(0, 1, 110, 200);
        hosts.hold(1, 2, from, until);
        let found = hosts.judge();
        assert_eq!(
            (found.violations, found.undecided),
            (violations, undecided),
            "{from} {until}"
        );
        assert_eq!((found.checked, found.coverage), (2, 1.0));
        assert_eq!(found.within_ns, 10 * US);
    }
}

#[test]
fn a_fault_is_told_in_words() {
    let mut hosts = two();
    hosts.hold(0, 1, 100, 1_100);
    hosts.hold(1, 2, 600, 1_600);
    assert_eq!(
        hosts.judge().examples,
        [
            "worker 2 of two was let in at 0.000610 s while worker 1 of one was inside, \
          together for at least 480 us"
        ]
    );
}

#[test]
fn who_shares_may_meet_who_shares_and_nobody_else() {
    for (first, second, violations) in [(true, true, 0), (true, false, 1), (false, true, 1)] {
        let mut hosts = two();
        hosts.hold(0, 1, 100, 1_100).shared = first;
        hosts.hold(1, 2, 600, 1_600).shared = second;
        let found = hosts.judge();
        assert_eq!((found.violations, found.undecided), (violations, 0));
    }
}

#[test]
fn other_locks_and_owners_of_one_host_are_not_compared() {
    let mut hosts = two();
    hosts.hold(0, 1, 100, 1_100);
    hosts.hold(0, 2, 600, 1_600);
    hosts.hold(1, 3, 600, 1_600).key = 7;
    let found = hosts.judge();
    assert_eq!(
        (found.checked, found.violations, found.undecided),
        (0, 0, 0)
    );
    assert_eq!(found.coverage, 0.0);
}

#[test]
fn a_token_given_twice_is_an_overlap_without_any_clock() {
    let mut hosts = hosts(&[(0, u64::MAX / US, 0), (0, u64::MAX / US, 0)]);
    hosts.hold(0, 1, 100, 200).token = Some(7);
    hosts.hold(1, 2, 9_000, 9_100).token = Some(7);
    let found = hosts.judge();
    assert_eq!((found.tokens_repeated, found.violations), (1, 0));
    assert_eq!(found.examples.len(), 1);
    hosts.grants[1][0].token = Some(8);
    let found = hosts.judge();
    assert_eq!((found.tokens_repeated, found.tokens_out_of_order), (0, 0));
    // The clocks know nothing, the tokens know who came later.
    assert_eq!((found.undecided, found.ordered_by_token), (0, 1));
}

#[test]
fn tokens_grow_with_time_where_time_is_certain() {
    // host, worker, shared of a hold before one of worker 1 on host 0; faults
    // where the later one has the older token
    for (host, worker, shared, faults) in [
        (0, 1, false, 1), // its own
        (0, 1, true, 1),  // its own, whatever the mode
        (0, 2, false, 1), // of the same host
        (1, 1, false, 1), // of another
        (1, 1, true, 0),  // both may have come in while they shared
    ] {
        let mut hosts = two();
        let before = hosts.hold(host, worker, 100, 200);
        (before.token, before.shared) = (Some(9), shared);
        let after = hosts.hold(0, 1, 300, 400);
        (after.token, after.shared) = (Some(8), shared);
        let found = hosts.judge();
        assert_eq!(
            found.tokens_out_of_order, faults,
            "{host} {worker} {shared}"
        );
        assert_eq!((found.violations, found.tokens_repeated), (0, 0));
    }
    // 15 us apart, of which the clocks cannot be sure.
    let mut hosts = two();
    hosts.hold(1, 1, 100, 200).token = Some(9);
    hosts.hold(0, 1, 205, 400).token = Some(8);
    assert_eq!(hosts.judge().tokens_out_of_order, 0);
}

#[test]
fn an_overlap_after_the_lease_is_the_client_s() {
    // lease us -> overlaps, lapsed ones
    for (lease, found) in [(None, (1, 0)), (Some(700), (0, 1)), (Some(1_500), (1, 0))] {
        let mut hosts = two();
        hosts.lease_ns = lease.map(|us: u64| us * US);
        for (host, at) in [(0, 0), (1, 0)] {
            hosts.hold(host, 1, at, at + 1).key = 9;
        }
        hosts.hold(0, 1, 100, 1_100);
        hosts.hold(1, 1, 800, 900);
        let judged = hosts.judge();
        assert_eq!(
            (judged.violations, judged.lapsed_overlap),
            found,
            "{lease:?}"
        );
    }
}

#[test]
fn what_only_some_logs_cover_does_not_count_as_checked() {
    let mut hosts = two();
    for at in [100, 500, 900] {
        hosts.hold(0, 1, at, at + 10);
        hosts.hold(1, 1, at + 200, at + 210);
    }
    let logs: Vec<_> = [(0, 1_000), (250, 800)]
        .into_iter()
        .enumerate()
        .map(|(host, (from, until))| HostLog {
            name: "a host",
            clock: hosts.clocks[host].clone(),
            from_ns: hosts.shows(host, from),
            until_ns: hosts.shows(host, until),
            grants: &hosts.grants[host],
            made: 6,
            lease_ns: None,
        })
        .collect();
    let found = judge(&logs);
    assert_eq!((found.checked, found.coverage), (3, 0.25));
}

#[test]
fn a_clock_whose_readings_contradict_each_other_decides_nothing() {
    let reading = |at_ns, ahead_ns| Reading {
        at_ns,
        ahead_ns,
        within_ns: 10,
    };
    let mut hosts = two();
    hosts.hold(0, 1, 100, 1_100);
    hosts.hold(1, 2, 600, 1_600);
    hosts.clocks[1] = Clock::read(vec![reading(0, 0), reading(1_000, 5_000)], 0.0);
    let found = hosts.judge();
    assert_eq!((found.violations, found.undecided), (0, 1));
}

/// How many clocks' doubts are drawn, in us.
const DOUBT: std::ops::Range<u64> = 0..200;

fn clocks() -> impl Strategy<Value = Vec<(i64, u64, i64)>> {
    // The error is a share of the doubt, its edges included.
    let clock = (-5_000_000i64..5_000_000, DOUBT, -4i64..=4);
    let clock = clock.prop_map(|(ahead, within, part)| (ahead, within, within as i64 * part / 4));
    prop::collection::vec(clock, 2..=4)
}

/// A lock that works: owners, or crowds that share it, one after the other, by tokens
/// that grow. `gap` us at most lie between two.
fn working(clocks: &[(i64, u64, i64)], seed: u64, gap: u64, tokens: bool) -> Hosts {
    let mut hosts = hosts(clocks);
    let mut rng = Rng::new(seed);
    let (mut now, mut token) = (0, 100);
    for _ in 0..60 {
        let shared = rng.below(4) == 0;
        let mut end = now;
        // A worker is at one place at a time.
        for worker in 0..if shared { 3 } else { 1 } {
            let host = rng.below(clocks.len() as u64) as usize;
            let (from, long) = (now + rng.below(5), rng.below(300));
            token += 1 + rng.below(3);
            let grant = hosts.hold(host, worker, from, from + long);
            grant.shared = shared;
            grant.token = tokens.then_some(token);
            end = end.max(from + long);
        }
        now = end + rng.below(gap);
    }
    hosts
}

/// `judge` in the plainest way: every pair of grants.
fn by_all_pairs(hosts: &Hosts) -> (u64, u64) {
    let place = |host: usize, at| hosts.clocks[host].place(at);
    let all: Vec<_> = (0..hosts.grants.len())
        .flat_map(|host| hosts.grants[host].iter().map(move |grant| (host, grant)))
        .map(|(host, grant)| {
            (
                host,
                grant.shared,
                place(host, grant.g_ns),
                place(host, grant.r_ns),
            )
        })
        .collect();
    let (mut certain, mut possible) = (Vec::new(), Vec::new());
    for (a, one) in all.iter().enumerate() {
        for (b, other) in all.iter().enumerate().skip(a + 1) {
            if one.0 == other.0 || one.1 && other.1 {
                continue;
            }
            if one.2.most < other.3.least && other.2.most < one.3.least {
                certain.push((a, b));
            } else if one.2.least < other.3.most && other.2.least < one.3.most {
                possible.push((a, b));
            }
        }
    }
    (certain.len() as u64, possible.len() as u64)
}

proptest! {
    #[test]
    fn a_lock_that_works_is_never_flagged(
        clocks in clocks(), seed: u64, gap in 1u64..400, tokens: bool
    ) {
        let found = working(&clocks, seed, gap, tokens).judge();
        prop_assert_eq!(found.violations, 0);
        prop_assert_eq!((found.tokens_repeated, found.tokens_out_of_order), (0, 0));
        prop_assert_eq!(found.examples, Vec::<String>::new());
    }

    /// Clocks that part at a steady rate, read before and after.
    #[test]
    fn nor_by_clocks_that_drift(seed: u64, gains in -50_000i64..50_000, err in -9i64..=9) {
        let mut hosts = hosts(&[(0, 0, 0), (0, 0, 0)]);
        hosts.gains_ns = gains;
        let mut rng = Rng::new(seed);
        let mut now = 0;
        for _ in 0..100 {
            let until = now + rng.below(20_000);
            hosts.hold(rng.below(2) as usize, 0, now, until);
            now = until + rng.below(30);
        }
        let readings = [0, now].map(|us| Reading {
            at_ns: hosts.shows(1, us),
            ahead_ns: hosts.shows(1, us) as i64 - hosts.shows(0, us) as i64 + err * US as i64,
            within_ns: 9 * US,
        });
        hosts.clocks[1] = Clock::read(readings.into(), 60.0);
        prop_assert_eq!(hosts.judge().violations, 0);
        hosts.clocks[1] = Clock::read(readings[..1].into(), 60.0);
        prop_assert_eq!(hosts.judge().violations, 0);
    }

    /// Both inside for longer than twice what both clocks may be off by.
    #[test]
    fn a_lock_that_lets_two_in_is_always_flagged(clocks in clocks(), seed: u64, gap in 1u64..400) {
        let mut hosts = working(&clocks, seed, gap, false);
        let doubts = 2 * (clocks[0].1 + clocks[1].1) + 1;
        hosts.hold(0, 7, 5_000_000, 5_000_000 + doubts + 300);
        hosts.hold(1, 7, 5_000_200, 5_000_400 + doubts);
        prop_assert_eq!(hosts.judge().violations, 1);
    }

    #[test]
    fn a_token_that_is_given_twice_is_always_found(clocks in clocks(), seed: u64, at in 0usize..20) {
        let mut hosts = working(&clocks, seed, 100, true);
        let mut tokens = hosts.grants.iter_mut().flatten().filter(|grant| !grant.shared);
        let Some(stolen) = tokens.nth(at).and_then(|grant| grant.token) else { return Ok(()) };
        hosts.hold(1, 9, 6_000_000, 6_000_001).token = Some(stolen);
        prop_assert!(hosts.judge().tokens_repeated >= 1);
    }

    /// The grants are random, and most of them overlap.
    #[test]
    fn the_sweep_finds_what_comparing_all_pairs_finds(clocks in clocks(), seed: u64) {
        let mut hosts = hosts(&clocks);
        let mut rng = Rng::new(seed);
        for _ in 0..2 + rng.below(30) {
            let host = rng.below(clocks.len() as u64) as usize;
            let from = rng.below(2_000);
            let until = from + 1 + rng.below(400);
            hosts.hold(host, 0, from, until).shared = rng.below(3) == 0;
        }
        let (certain, possible) = by_all_pairs(&hosts);
        let found = hosts.judge();
        prop_assert_eq!(found.violations > 0, certain > 0);
        prop_assert!(found.violations <= certain);
        prop_assert!(found.undecided <= possible);
        if certain == 0 {
            prop_assert_eq!(found.undecided > 0, possible > 0);
        }
    }
}
