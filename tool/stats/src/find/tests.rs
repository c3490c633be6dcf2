//! The search against servers whose limit is known: a single queue with known service times, by
//! Lindley's recursion with the arrivals as planned (Proc. Camb. Phil. Soc. 48, 1952).

use super::*;
use crate::fixtures::Rated;
use crate::rng::Rng;
use jostle_model::objective::Objective;

/// Ninety-nine requests of a hundred are to be answered within ten times a service.
const SERVICE_S: f64 = 0.5e-3;
const WITHIN_S: f64 = 5e-3;
const MISS: f64 = 0.01;

/// How the next gap and the next service differ from their means.
type Draw = fn(&mut Rng) -> f64;
const EVEN: Draw = |_| 1.0;
const RANDOM: Draw = Rng::exponential;

fn search() -> Search {
    Search {
        from: 100,
        to: 100_000,
        around: AROUND,
    }
}

/// Share of so many requests at this load that take too long, after a warm-up.
fn share_late(
    rate: f64,
    [gap, service]: [Draw; 2],
    slower: f64,
    warm_s: f64,
    count: usize,
    rng: &mut Rng,
) -> f64 {
    let (mut wait, mut now, mut seen, mut late) = (0.0_f64, 0.0, 0, 0);
    while seen < count {
        let took = slower * SERVICE_S * service(rng);
        let gap = gap(rng) / rate;
        if now >= warm_s {
            seen += 1;
            late += usize::from(wait + took > WITHIN_S);
        }
        wait = (wait + took - gap).max(0.0);
        now += gap;
    }
    late as f64 / count as f64
}

/// The load at which half of the steps meet the objective, with their arrivals as planned.
fn knee(draws: [Draw; 2]) -> f64 {
    let (mut low, mut high, mut rng) = (100.0, 2_100.0, Rng::new(9));
    while high / low > 1.005 {
        let middle = f64::sqrt(low * high);
        let met = (0..200).filter(|_| share_late(middle, draws, 1.0, 0.5, 3_150, &mut rng) < MISS);
        match met.count() >= 100 {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}

/// A server and what is around it.
struct World {
    draws: [Draw; 2],
    /// Share of the steps that miss whatever the load is.
    noise: f64,
    /// For so long after a step beyond its limit each service takes three times as long.
    ill_s: f64,
    rng: Rng,
    still_ill_s: f64,
}

impl World {
    fn new(draws: [Draw; 2], seed: u64) -> World {
        World {
            draws,
            noise: 0.0,
            ill_s: 0.0,
            rng: Rng::new(seed),
            still_ill_s: 0.0,
        }
    }

    fn step(&mut self, rate: u64, role: Role) -> Outcome {
        let count = if role == Role::Base { 1_000 } else { 3_150 };
        let slower = if self.still_ill_s > 0.0 { 3.0 } else { 1.0 };
        let share = share_late(rate as f64, self.draws, slower, 0.5, count, &mut self.rng);
        self.still_ill_s -= 0.5 + count as f64 / rate as f64;
        if slower == 1.0 && share > 0.05 {
            self.still_ill_s = self.ill_s;
        }
        match share < MISS && self.rng.unit_f64() >= self.noise {
            true => Outcome::Met,
            false => Outcome::Missed,
        }
    }
}

/// Searches to the end; a step is what `world` answers.
fn run(
    search: Search,
    mut world: impl FnMut(u64, Role) -> Outcome,
) -> (Vec<(Step, Role)>, Conclusion) {
    let mut steps: Vec<(Step, Role)> = Vec::new();
    loop {
        let (roles, next, found) = follow(search, steps.iter().map(|(step, _)| *step));
        assert!(
            roles.iter().eq(steps.iter().map(|(_, role)| role)),
            "roles stay what they were"
        );
        assert!(steps.len() < 200, "no end: {steps:?}");
        let Next::Look(rate, role) = next else {
            return (steps, found);
        };
        let outcome = world(rate, role);
        steps.push((Step { rate, outcome }, role));
    }
}

/// In how many of ten tries the limit was found, within 5 %.
fn right(truth: f64, world: impl Fn(u64) -> World) -> usize {
    let tried = (0..10).filter(|seed| {
        let mut world = world(*seed);
        let (_, found) = run(search(), |rate, role| world.step(rate, role));
        let Conclusion::Found {
            per_s, confirmed, ..
        } = found
        else {
            return false;
        };
        assert!(per_s.low <= per_s.estimate && per_s.estimate <= per_s.high);
        assert!(confirmed as f64 <= per_s.high);
        (per_s.estimate / truth - 1.0).abs() <= 0.05
    });
    tried.count()
}

#[test]
fn the_limit_of_a_queue_is_found_within_a_twentieth() {
    for draws in [
        [EVEN, EVEN],
        [RANDOM, EVEN],
        [EVEN, RANDOM],
        [RANDOM, RANDOM],
    ] {
        let truth = knee(draws);
        let right = right(truth, |seed| World::new(draws, seed));
        assert!(right >= 9, "{right} of 10, {truth}");
    }
}

#[test]
fn steps_that_miss_for_other_reasons_do_not_mislead() {
    let draws = [RANDOM, EVEN];
    let noisy = |seed| World {
        noise: 0.08,
        ..World::new(draws, seed)
    };
    let right = right(knee(draws), noisy);
    assert!(right >= 9, "{right} of 10");
}

#[test]
fn a_server_that_recovers_slowly_is_waited_for() {
    let draws = [RANDOM, EVEN];
    let slow = |seed| World {
        ill_s: 6.0,
        ..World::new(draws, seed)
    };
    let right = right(knee(draws), slow);
    assert!(right >= 9, "{right} of 10");
    let mut never = World {
        ill_s: 1e9,
        ..World::new(draws, 1)
    };
    let (steps, found) = run(search(), |rate, role| never.step(rate, role));
    let Conclusion::NotRecovered { after, base } = found else {
        panic!("{found:?}");
    };
    assert!(after > 1_500 && base < after, "{found:?}");
    let tail = &steps[steps.len() - RECOVERIES as usize..];
    assert!(
        tail.iter().all(|(_, role)| *role == Role::Base),
        "{steps:?}"
    );
}

/// Every step at a load answers alike.
fn answers(of: impl Fn(u64) -> Outcome) -> (Vec<(Step, Role)>, Conclusion) {
    run(search(), |rate, _| of(rate))
}

fn met(is: bool) -> Outcome {
    if is { Outcome::Met } else { Outcome::Missed }
}

#[test]
fn a_plain_limit_is_found_confirmed_from_below_and_in_a_known_number_of_looks() {
    let (steps, found) = answers(|rate| met(rate <= 3_333));
    let Conclusion::Found {
        per_s,
        confirmed,
        met,
        of,
    } = found
    else {
        panic!("{found:?}");
    };
    assert!((per_s.estimate / 3_333.0 - 1.0).abs() < 0.02, "{per_s:?}");
    assert!(confirmed <= 3_333 && confirmed > 3_100, "{confirmed}");
    assert_eq!((met, of), (3, 3));
    let of = |role| steps.iter().filter(|(_, of)| *of == role).count();
    assert_eq!(of(Role::Around), AROUND as usize);
    // 100 to 3,200, twice 6,400 and one rung beyond.
    assert_eq!(of(Role::Ladder), 9);
    let missed = steps
        .iter()
        .filter(|(step, _)| step.outcome == Outcome::Missed);
    assert_eq!(of(Role::Base), missed.count());
}

#[test]
fn what_has_no_single_limit_is_stated() {
    type Case = (&'static str, fn(u64) -> Outcome, Conclusion);
    let table: [Case; 7] = [
        ("each", |_| met(true), Conclusion::Each(100_000)),
        ("none", |_| met(false), Conclusion::None(100)),
        (
            "none, though half of it",
            |rate| met(rate < 100),
            Conclusion::None(100),
        ),
        (
            "slow where it is idle",
            |rate| met(rate < 100 || (800..9_000).contains(&rate)),
            Conclusion::None(100),
        ),
        (
            "a dip",
            |rate| met(!(700..900).contains(&rate) && rate < 9_000),
            Conclusion::Turns {
                missed: 800,
                met: 1_600,
            },
        ),
        (
            "a generator that can do no more",
            |rate| match rate < 5_000 {
                true => Outcome::Met,
                false => Outcome::Void(Limit::Generator),
            },
            Conclusion::Limited {
                by: Limit::Generator,
                at: 6_400,
                held: Some(3_200),
            },
        ),
        (
            "slots that are taken from the first load on",
            |_| Outcome::Void(Limit::Slots),
            Conclusion::Limited {
                by: Limit::Slots,
                at: 50,
                held: None,
            },
        ),
    ];
    for (name, of, expected) in table {
        let (steps, found) = answers(of);
        assert_eq!(found, expected, "{name}: {steps:?}");
    }
}

/// One rung beyond is where it shows.
#[test]
fn a_first_load_that_misses_below_one_that_meets_turns() {
    let (_, found) = answers(|rate| met(rate != 100 && rate < 9_000));
    assert_eq!(
        found,
        Conclusion::Turns {
            missed: 100,
            met: 200
        }
    );
}

#[test]
fn one_late_step_is_repeated_and_beyond_the_limit_the_generator_may_be_late() {
    let mut seen = 0;
    let (_, found) = run(search(), |rate, _| {
        seen += 1;
        match (seen, rate) {
            (3, _) => Outcome::Void(Limit::Machine),
            (_, 6_000..) => Outcome::Void(Limit::Generator),
            (_, rate) => met(rate < 3_000),
        }
    });
    assert!(matches!(found, Conclusion::Found { .. }), "{found:?}");
}

#[test]
fn what_only_looked_good_is_not_confirmed() {
    let (steps, found) = run(search(), |rate, role| {
        met(rate < 3_000 && role != Role::Confirm)
    });
    let Conclusion::Unconfirmed { missed, .. } = found else {
        panic!("{found:?}");
    };
    let tried: Vec<u64> = steps
        .iter()
        .filter(|(_, role)| *role == Role::Confirm)
        .map(|(step, _)| step.rate)
        .collect();
    assert_eq!(tried.len(), 2 * ROUNDS, "{tried:?}");
    assert_eq!(tried.last(), Some(&missed));
    assert!(tried.is_sorted_by(|one, other| one >= other), "{tried:?}");
}

#[test]
fn a_search_that_is_cut_short_says_how_far_it_came() {
    let (steps, _) = answers(|rate| met(rate <= 3_333));
    let after = |count: usize| {
        let steps = steps[..count].iter().map(|(step, _)| *step);
        follow(search(), steps).2
    };
    let Conclusion::Unfinished {
        held,
        missed,
        per_s,
    } = after(3)
    else {
        panic!("{:?}", after(3));
    };
    assert_eq!((held, missed, per_s), (Some(400), None, None));
    let Conclusion::Unfinished { per_s, missed, .. } = after(steps.len() - 4) else {
        panic!("{:?}", after(steps.len() - 4));
    };
    let per_s = per_s.unwrap();
    assert!(per_s.low <= 3_400.0 && per_s.high >= 3_300.0, "{per_s:?}");
    assert!(missed.unwrap() > 3_333);
}

#[test]
fn a_step_has_as_many_requests_as_its_goals_need() {
    let table = [
        ("p99<5ms", 3_000, 1_000),
        ("p50<5ms", 1_000, 1_000),
        ("p99.9<5ms", 30_000, 10_000),
        ("p99<5ms,errors<0.1%", 30_000, 10_000),
    ];
    for (typed, look, base) in table {
        let objective: Objective = typed.parse().unwrap();
        let found = [Role::Ladder, Role::Base].map(|role| requests(&objective, role));
        assert_eq!(found, [look, base], "{typed}");
        let window = window(&objective, 100, Role::Around).as_secs_f64();
        assert!(window > look as f64 / 100.0 && window < 1.1 * look as f64 / 100.0);
        // However many come a second.
        assert_eq!(
            super::window(&objective, 1_000_000, Role::Around).0,
            500_000_000
        );
    }
}

#[test]
fn a_miss_counts_against_the_target_only_where_nobody_else_explains_it() {
    let of = |typed: &str, run: Rated| {
        let objective: Objective = typed.parse().unwrap();
        judge(&objective, &run.run(), Some(200_000.0)).unwrap()
    };
    let fine = || Rated::at(100);
    let table = [
        ("p99<5ms", fine(), Outcome::Met),
        ("p99<5ms,errors<0.1%", fine(), Outcome::Met),
        ("p99<0.3ms", fine(), Outcome::Missed),
        // Ten of a thousand are as many as may not miss.
        (
            "p99<5ms",
            Rated {
                done: 991,
                ..fine()
            },
            Outcome::Met,
        ),
        // Their slots were taken, and it answered each in time.
        (
            "p99<5ms",
            Rated {
                done: 980,
                ..fine()
            },
            Outcome::Void(Limit::Slots),
        ),
        (
            "p99<5ms",
            Rated {
                response_us: 9_000,
                target_lag_us: 8_600,
                ..fine()
            },
            Outcome::Void(Limit::Slots),
        ),
        (
            "p99<5ms",
            Rated {
                response_us: 29_000,
                target_lag_us: 8_600,
                ..fine()
            },
            Outcome::Missed,
        ),
        // It takes twice as long as at the first load.
        (
            "errors<0.1%",
            Rated {
                done: 980,
                ..fine()
            },
            Outcome::Missed,
        ),
        (
            "errors<0.1%",
            Rated {
                done: 980,
                response_us: 300,
                ..fine()
            },
            Outcome::Void(Limit::Slots),
        ),
        (
            "p99<5ms",
            Rated {
                response_us: 9_000,
                generator_lag_us: 800,
                ..fine()
            },
            Outcome::Void(Limit::Generator),
        ),
        // Late, and met all the same.
        (
            "p99<5ms",
            Rated {
                response_us: 4_000,
                generator_lag_us: 3_800,
                ..fine()
            },
            Outcome::Met,
        ),
    ];
    for (typed, run, expected) in table {
        assert_eq!(of(typed, run), expected, "{typed} {run:?}");
    }
}

#[test]
fn a_percentile_that_no_answer_reaches_is_not_known() {
    let goals: Objective = "p99<5ms,errors<1%".parse().unwrap();
    let all = Rated::at(100).run();
    let some = Rated {
        done: 900,
        ..Rated::at(100)
    };
    let some = some.run();
    let near = |found: Option<f64>, ns: f64| (found.unwrap() / ns - 1.0).abs() < 0.01;
    assert!(near(tail(goals.0[0], &all), 400_000.0));
    assert_eq!(tail(goals.0[0], &some), None);
    assert!(near(tail(goals.0[1], &some), 0.1));
}
