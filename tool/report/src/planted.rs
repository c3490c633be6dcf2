//! Planted records: for each check a model of a machine, lock or server with a fault of any
//! dose, which returns records for a given plan.
//!
//! With them every check is tested at its thresholds, one smallest step to either side, and
//! every remedy is applied as it is printed. A check without a line here fails the tests.

mod plants;

use crate::ResultSet;
use crate::command::{with, without};
use crate::made;
use jostle_model::connect::Stopped;
use jostle_model::open_loop::OpenLoop;
use jostle_model::plan::{Measure, Place};
use jostle_model::record::{
    Accounts, Anchor, Distribution, Experiment, Reason, Run, Status, Stood, TcpCounts,
};
use jostle_model::{List, Nanos, Plan, Remedy};
use jostle_stats::checks::{CHECKS, with_text};
use jostle_stats::summary::summarize;
use plants::*;

/// The questions to the planted machine.
struct Asked {
    plan: Plan,
    /// A repeated measurement: faults from outside the experiment are gone.
    again: bool,
}

impl Asked {
    fn workers(&self) -> u64 {
        largest(&self.plan.workers).unwrap_or(1)
    }

    fn window_s(&self) -> f64 {
        self.plan.duration.map_or(5.0, Nanos::as_secs_f64)
    }

    /// The dose of a fault from outside the experiment, which a repeated measurement does
    /// not have.
    fn first(&self, dose: f64) -> f64 {
        if self.again { 0.0 } else { dose }
    }
}

fn largest(list: &Option<List>) -> Option<u64> {
    list.as_ref()?.0.iter().max().copied()
}

/// A threshold of a check.
struct Case {
    check: &'static str,
    /// The check's severity on either side of the threshold.
    is: [Status; 2],
    /// Doses that surely lie on either side of it.
    doses: [f64; 2],
    /// Whether doses are whole numbers.
    whole: bool,
    /// The plan that is asked first.
    plan: fn() -> Plan,
    /// The runs measured with this dose.
    world: fn(&Asked, f64) -> Vec<Run>,
}

impl Case {
    /// The first question.
    fn asked(&self) -> Asked {
        Asked {
            plan: (self.plan)(),
            again: false,
        }
    }
}

const SUSPECT: [Status; 2] = [Status::Valid, Status::Suspect];
const INVALID: [Status; 2] = [Status::Valid, Status::Invalid];
const WORSE: [Status; 2] = [Status::Suspect, Status::Invalid];

/// Faults that no option mends: their reasons have no remedy.
const UNMENDED: [&str; 8] = [
    "queues",
    "exclusion",
    "promise",
    "lost_update",
    "deaths",
    "errors",
    "idle_lock",
    "gave_up",
];

/// `KIND CHECK SEVERITIES DOSES PLAN`, the kind `whole` or `fine`, and what is planted: in braces
/// into the one run of the point, in brackets as a function that makes all its runs.
macro_rules! cases {
    ($($kind:ident $check:literal $is:ident $doses:tt $plan:ident $world:tt)*) => {
        &[$(Case {
            check: $check,
            is: $is,
            doses: $doses,
            whole: cases!(@ $kind),
            plan: $plan,
            world: cases!(@ $world),
        }),*]
    };
    (@ whole) => { true };
    (@ fine) => { false };
    (@ [$world:expr]) => { $world };
    (@ {|$run:ident, $asked:ident, $dose:ident| $($plant:tt)*}) => {
        |$asked, $dose| one($asked, |$run| { $($plant)*; })
    };
}

static CASES: &[Case] = cases! {
    whole "exclusion" INVALID [0.0, 9.0] contend {|run, asked, dose|
        witness(run).violations = dose as u64}
    whole "lost_update" INVALID [0.0, 9.0] contend {|run, asked, dose|
        witness(run).lost_updates = dose as u64}
    whole "struck" INVALID [0.0, 9.0] contend {|run, asked, dose|
        struck(run, asked.first(dose) as u64, 0.0)}
    fine "struck" SUSPECT [0.05, 0.5] contend {|run, asked, dose| struck(run, 0, asked.first(dose))}
    whole "promise" INVALID [0.0, 9.0] contend {|run, asked, dose|
        verified(run).overlaps = dose as u64}
    whole "promise" SUSPECT [0.0, 9.0] contend {|run, asked, dose|
        verified(run).undecided = dose as u64}
    whole "tried" SUSPECT [0.0, 9.0] contend {|run, asked, dose|
        verified(run).dropped = asked.first(dose) as u64}
    whole "deaths" INVALID [0.0, 9.0] contend {|run, asked, dose|
        run.around.deaths = vec!["worker 3 was killed by SIGKILL".to_owned(); dose as usize]}
    whole "errors" INVALID [0.0, 9.0] contend {|run, asked, dose|
        run.around.errors = [("EIO".to_owned(), dose as u64)].into()}
    whole "leases" INVALID [0.0, 9.0] keeping {|run, asked, dose| keeps(run, asked, dose, 0.0)}
    whole "leases" SUSPECT [0.0, 9.0] keeping {|run, asked, dose| keeps(run, asked, 0.0, dose)}
    whole "idle_lock" INVALID [0.0, 9.0] contend {|run, asked, dose|
        let still = 10 - dose as usize;
        let granted = |nth| if nth < still { 472 } else { 0 };
        run.series = (0..10).map(|nth| slice(granted(nth), None)).collect()}
    whole "idle_lock" SUSPECT [0.0, 5e6] contend {|run, asked, dose|
        waits(run, asked.workers() - 1);
        run.series = vec![slice(100, None); 10];
        run.times.hold_ns = Some(Distribution { mean: 5e6 - dose, ..Distribution::default() })}
    whole "ledger" INVALID [0.0, 9.0] contend {|run, asked, dose|
        let planned = 100 + asked.first(dose) as u64;
        run.open_loop = Some(Box::new(OpenLoop { planned, done: 100, ..OpenLoop::default() }))}
    whole "lost" SUSPECT [0.0, 9.0] connect [lost]
    whole "lost" WORSE [1.0, 90.0] connect [lost]
    whole "limit" INVALID [0.0, 1.0] connect {|run, asked, dose|
        let few = largest(&asked.plan.sources).unwrap_or(1) < 2;
        connections(run).stopped = (dose > 0.0 && few).then(|| Stopped {
            text: "no port is left".to_owned(),
            remedy: Some(Remedy::with("--sources", 2)),
            ..Stopped::default()
        })}
    fine "concurrency" INVALID [100.0, 50.0] spread {|run, asked, dose|
        let enough = largest(&asked.plan.generators) > Some(3);
        spread_of(run).effective = if enough { 100.0 } else { dose }}
    whole "server_counts" INVALID [0.0, 99.0] contend {|run, asked, dose|
        run.server = server(5_000, asked.first(dose) as i64)}
    whole "accepted" INVALID [0.0, 9.0] connect {|run, asked, dose|
        connections(run).opened = 1_000;
        run.server = server(1_000 - dose as u64, -(asked.first(dose) as i64))}
    whole "queues" SUSPECT [0.0, 1.0] connect {|run, asked, dose|
        let overflows = dose as u64;
        run.times.connect_ns = Some(Distribution { max: 1_045_000_000, ..Distribution::default() });
        run.around.machine.tcp = Some(TcpCounts { overflows, syn_again: 1, delayed_acks: 0 })}
    whole "throttled" INVALID [0.0, 9.0] contend {|run, asked, dose|
        run.around.machine.throttled_periods = Some(asked.first(dose) as u64)}
    whole "halted" INVALID [0.0, 9.0] contend {|run, asked, dose|
        run.around.machine.halts = Some(asked.first(dose) as u64)}
    whole "clock" INVALID [0.0, 99.0] contend {|run, asked, dose|
        let one_clock = asked.plan.place == Some(Place::Same);
        let early = if one_clock { 0 } else { dose as u64 };
        run.around.errors = [("handoff_before_release".to_owned(), early)].into()}
    whole "together" SUSPECT [0.0, 1e8] contend [apart]
    whole "together" WORSE [1e8, 1e9] contend [apart]
    whole "steal" SUSPECT [0.0, 50.0] contend [|asked, dose| stolen(asked, dose, 980)]
    whole "steal" WORSE [50.0, 200.0] contend [|asked, dose| stolen(asked, dose, 900)]
    fine "neighbours" SUSPECT [0.0, 0.5] alone [beside]
    fine "neighbours" SUSPECT [0.0, 0.5] awake [beside]
    fine "neighbours" WORSE [0.5, 2.0] awake [beside]
    whole "selection" SUSPECT [6.0, 12.0] contend [|asked, dose| {
        let mut runs = runs(asked, 12);
        let spoilt = runs.iter_mut().take(asked.first(dose) as usize);
        spoilt.for_each(|run| run.spoilt = true);
        runs
    }]
    whole "unchecked" SUSPECT [0.0, 1.0] contend {|run, asked, dose|
        run.around.accounts = Some(Box::new(Accounts {
            between_s: 5.0,
            cpus: 2,
            waited_s: Some(if asked.workers() > 2 { 4.0 } else { 0.0 }),
            others_s: (dose < 1.0).then_some(0.0),
            ..Accounts::default()
        }))}
    whole "interference" SUSPECT [0.0, 1e6] contend {|run, asked, dose|
        run.around.interference = interrupted(asked.window_s(), asked.first(dose) as u64)}
    whole "server_still" INVALID [0.0, 250.0] contend {|run, asked, dose|
        let still = asked.first(dose) as u64;
        run.around.server_stood = Some(Stood { looks: 250, still, ..Stood::default() })}
    fine "server_still" SUSPECT [0.0, 1.0] contend {|run, asked, dose|
        let throttled_s = Some(asked.first(dose) * asked.window_s());
        run.around.server_stood = Some(Stood { looks: 250, throttled_s, ..Stood::default() })}
    fine "anchor" SUSPECT [1.0, 2.0] contend [|asked, dose| {
        let step = |step_ns| Anchor { step_ns, ..Anchor::default() };
        let mut all = runs(asked, 7);
        for (nth, run) in all.iter_mut().enumerate() {
            let (target, times) = match nth {
                0..3 => ("flock", asked.first(dose - 1.0) + 1.0),
                _ => ("sysv", 1.0),
            };
            (run.target, run.around.anchor) = (target.to_owned(), Some(step(1.34 * times)));
        }
        all
    }]
    // Twice the workers share what one had to do.
    fine "generator" SUSPECT [0.0, 1.0] contend {|run, asked, dose|
        asks(run, dose * 10.0 / asked.workers() as f64, 0.0)}
    // One worker leaves a CPU to the server.
    fine "generator" SUSPECT [0.0, 1.0] alone {|run, asked, dose|
        asks(run, 0.5, asked.first(dose))}
    fine "attribution" SUSPECT [0.9, 1.5] generators [|asked, dose| {
        let list = asked.plan.generators.clone().unwrap_or(List(Vec::new()));
        let points = list.0.iter().flat_map(|k| {
            // From six on more of them bring nothing.
            let rate = if *k > 3 { 1_000.0 * dose } else { 1_000.0 };
            (1..=6).map(move |run| generated(*k, run, rate))
        });
        points.collect()
    }]
    whole "lag" INVALID [0.0, 99.0] rate {|run, asked, dose|
        let late = largest(&asked.plan.rate) >= Some(1_000);
        let unsent = if late { dose as u64 } else { 0 };
        run.open_loop = Some(Box::new(OpenLoop {
            planned: 1_000,
            done: 1_000 - unsent,
            dropped: unsent,
            dropped_with_slot: unsent,
            ..OpenLoop::default()
        }))}
    fine "lag" SUSPECT [10.0, 100.0] rate [read_late]
    fine "lag" WORSE [100.0, 400.0] rate [read_late]
    fine "faster" SUSPECT [0.9, 0.1] connect {|run, asked, dose|
        connections(run).to_previous = Some(if asked.again { 1.0 } else { dose })}
    whole "profiled" SUSPECT [0.0, 1.0] profiled {|run, asked, dose|
        run.around.during = asked.plan.during.clone().filter(|_| dose > 0.0)}
    fine "gave_up" SUSPECT [1e9, 1e5] impatient {|run, asked, dose|
        let percentiles = [("p50", dose as u64)].into();
        let failed = Distribution { percentiles, ..Distribution::default() };
        (run.timeouts, run.times.failed_try_ns) = (Some(20), Some(failed))}
    whole "few_operations" SUSPECT [90.0, 2.0] alone [few]
    whole "few_operations" WORSE [2.0, 0.0] alone [few]
    whole "hold_accuracy" SUSPECT [1.0e6, 1.1e6] contend [held]
    whole "hold_accuracy" WORSE [1.1e6, 1.5e6] contend [held]
    fine "own_cost" SUSPECT [0.0, 1e6] short [|asked, _| vec![clean(asked)]]
    fine "not_contended" SUSPECT [0.5, 0.0] contend {|run, asked, dose|
        run.blocked_share = Some(if asked.workers() > 10 { 0.99 } else { dose })}
    fine "precision" SUSPECT [0.0, 0.9] contend [|asked, dose| {
        let mut runs = runs(asked, asked.plan.runs.unwrap_or(6));
        let signs = [-1.0, 1.0].into_iter().chain(std::iter::repeat(0.0));
        for (run, sign) in runs.iter_mut().zip(signs) {
            run.throughput_per_s = 945.0 * (1.0 + sign * dose);
        }
        runs
    }]
    whole "steadiness" SUSPECT [0.0, 50_000.0] contend {|run, asked, dose|
        let settled = asked.plan.warmup >= Some(Nanos::from_millis(1_000));
        let slope = if settled { 0 } else { dose as u64 };
        run.series = (0..10).map(|nth| slice(100_000 + slope * nth, None)).collect()}
    fine "drift" SUSPECT [0.0, 0.5] stream {|run, asked, dose|
        let short = largest(&asked.plan.operations) <= Some(1_000);
        let slope = if short { dose } else { 0.0 };
        let mean = |nth: u64| Some(1e6 * (1.0 + slope * nth as f64));
        run.series = (0..10).map(|nth| slice(100, mean(nth))).collect();
        run.times.service_ns = Some(Distribution::default())}
    whole "tail_host" SUSPECT [10.0, 99.0] contend {|run, asked, dose|
        let own = if asked.again { 10 } else { dose as u64 };
        run.hosts = (0..4).map(|rank| tail(rank, if rank == 2 { own } else { 10 })).collect()}
    whole "rotations" SUSPECT [900.0, 50.0] contend [few]
};

/// The result of asking, and the check's reason for the point that was asked for last.
fn measure(case: &Case, asked: &Asked, dose: f64) -> (ResultSet, Option<Reason>) {
    let mut experiment = made::experiment();
    experiment.plan = asked.plan.clone();
    experiment.environment.cores = 2;
    // The dose of what is measured before the first run.
    if case.check == "own_cost" && asked.plan.measure != Some(Measure::Counts) {
        let cost = made::cost(1e6, dose);
        experiment.calibration.own_cost = [("flock".to_owned(), cost)].into();
    }
    let set = made::finished(experiment, (case.world)(asked, dose));
    let reason = found(case, &set.experiment, &set.runs, asked.again);
    (set, reason)
}

fn found(case: &Case, experiment: &Experiment, runs: &[Run], last: bool) -> Option<Reason> {
    let points = summarize(experiment, runs);
    let skip = if last { points.len() - 1 } else { 0 };
    let asked = points.iter().skip(skip);
    let mut reasons = asked.flat_map(|point| &point.verdict.reasons);
    reasons.find(|reason| reason.check == case.check).cloned()
}

/// The two adjacent doses between which the check's severity changes.
fn edge(case: &Case) -> [f64; 2] {
    let asked = case.asked();
    let is = |dose: f64| {
        let reason = measure(case, &asked, dose).1;
        reason.map_or(Status::Valid, |reason| reason.is)
    };
    let [mut before, mut beyond] = case.doses;
    assert_eq!([is(before), is(beyond)], case.is, "{}", case.check);
    loop {
        let middle = match case.whole {
            true => ((before + beyond) / 2.0).trunc(),
            false => (before + beyond) / 2.0,
        };
        let step = if case.whole { 1.0 } else { 0.0 };
        let adjacent = (before - beyond).abs() <= step || middle == before || middle == beyond;
        if adjacent {
            return [before, beyond];
        }
        match is(middle) == case.is[1] {
            true => beyond = middle,
            false => before = middle,
        }
    }
}

/// Applies the remedy in the sentence's last brackets, as a user would type it.
fn typed(plan: &Plan, text: &str) -> Asked {
    let (_, remedy) = text.rsplit_once(" (").unwrap();
    let remedy = remedy.trim_end_matches(')');
    let words: Vec<&str> = remedy.split(' ').collect();
    let plan = match words[..] {
        ["without", option] => without(plan, option).unwrap(),
        ["--wait-quiet", "60s"] | ["run", "it", "again"] | ["jostle", "doctor"] => plan.clone(),
        [option, value] => with(plan, option, value).unwrap(),
        _ => panic!("`{remedy}` cannot be typed"),
    };
    Asked { plan, again: true }
}

#[test]
fn every_check_is_planted() {
    for check in CHECKS {
        let planted = CASES.iter().any(|case| case.check == check.name);
        assert!(planted, "{}", check.name);
    }
}

/// A check with two thresholds needs a line for each.
#[test]
fn each_severity_that_a_threshold_names_is_planted() {
    for check in CHECKS {
        let threshold = (check.threshold)();
        for (named, is) in [
            (": SUSPECT", Status::Suspect),
            (": INVALID", Status::Invalid),
        ] {
            let crossed = |case: &&Case| case.check == check.name && case.is[1] == is;
            let planted = CASES.iter().any(|case| crossed(&case));
            assert!(
                planted || !threshold.contains(named),
                "{}: {is:?}",
                check.name
            );
        }
    }
}

#[test]
fn the_smallest_step_over_a_threshold_is_found_and_one_under_it_is_not() {
    for case in CASES {
        let [_, beyond] = edge(case);
        let asked = case.asked();
        let reason = measure(case, &asked, beyond).1.unwrap();
        let (measured, limit) = (reason.measured.unwrap(), reason.limit.unwrap());
        // The limit that is printed is the one that was crossed.
        let near = (measured - limit).abs() <= 1e-6 * limit.abs().max(1e-3);
        assert!(near || case.whole, "{}: {measured} {limit}", case.check);
        assert!(!reason.unit.is_empty() && !reason.claims.is_empty());
    }
}

#[test]
fn a_remedy_that_is_typed_as_it_is_printed_makes_its_check_pass() {
    for case in CASES {
        let [_, beyond] = edge(case);
        let asked = case.asked();
        let reason = measure(case, &asked, beyond).1.unwrap();
        let nothing = reason.measured == Some(0.0);
        if UNMENDED.contains(&case.check) || nothing {
            assert_eq!(reason.remedy, None, "{}", case.check);
            continue;
        }
        let printed = reason.remedy.as_ref().map(Remedy::to_string);
        let printed = printed.unwrap_or_else(|| panic!("{} has no remedy", case.check));
        assert!(
            reason.text.ends_with(&format!(" ({printed})")),
            "{}",
            reason.text
        );
        let again = typed(&asked.plan, &reason.text);
        let (_, left) = measure(case, &again, beyond);
        assert_eq!(left, None, "{}", reason.text);
    }
}

#[test]
fn a_sentence_follows_from_the_data() {
    for case in CASES {
        let asked = case.asked();
        let reason = measure(case, &asked, case.doses[1]).1.unwrap();
        let line = serde_json::to_string(&reason).unwrap();
        let read: Reason = serde_json::from_str(&line).unwrap();
        let bare = Reason {
            text: String::new(),
            ..read
        };
        assert_eq!(with_text(bare).text, reason.text);
    }
}
