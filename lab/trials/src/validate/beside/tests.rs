use super::*;
use jostle_model::plan::{Plan, Workload};
use jostle_model::record::{At, Calibration, Circumstances, Machine, SCHEMA, Window};

/// A session of one worker, with these ticks of the machine, whose threads waited for half of
/// what ran beside them.
fn session(planted: bool, busy_ticks: u64, per_s: f64, foreign_s: f64) -> Session {
    let run = Run {
        target: "ofd".to_owned(),
        at: At {
            workers: Some(1),
            ..At::default()
        },
        operations: 10_000,
        throughput_per_s: per_s,
        window: Window {
            window_s: 1.0,
            ..Window::default()
        },
        around: Circumstances {
            machine: Machine {
                busy_ticks,
                ticks_per_s: 100,
                cores: 2,
                ..Machine::default()
            },
            accounts: Some(Box::new(Accounts {
                between_s: 1.0,
                cpus: 1,
                others_s: Some(foreign_s),
                foreign_s: Some(foreign_s),
                waited_s: Some(foreign_s / 2.0),
                ..Accounts::default()
            })),
            ..Circumstances::default()
        },
        ..Run::default()
    };
    Session {
        trial: 1,
        plant: PLANTS[0].0.to_owned(),
        line: LINES[0].0.to_owned(),
        planted,
        beside: None,
        controls_of: None,
        experiment: Experiment {
            schema: SCHEMA.to_owned(),
            plan: Plan::of(Workload::Contend),
            environment: Environment::default(),
            calibration: Calibration::default(),
            target_facts: Default::default(),
            started_at: String::new(),
        },
        points: vec![run],
    }
}

/// Three, with these ticks.
fn controls(busy_ticks: u64, per_s: f64) -> Vec<Session> {
    vec![session(false, busy_ticks, per_s, 0.0); CONTROLS]
}

fn trial(around: [f64; 2], busy_ticks: u64, per_s: f64, foreign_s: f64) -> Outcome {
    let planted = session(true, busy_ticks, per_s, foreign_s);
    let [before, after] = around.map(|per_s| controls(busy_ticks, per_s));
    let sessions = [before, vec![planted], after].concat();
    judged(&sessions).into_values().next().unwrap()[0]
}

/// Two trials of one line: the second shares the controls of 104 a second.
fn chain(first_ticks: u64, second_per_s: f64) -> Vec<Session> {
    let second = Session {
        controls_of: Some(1),
        ..session(true, 3, second_per_s, 0.0)
    };
    let mut second = [vec![second], controls(3, 110.0)].concat();
    second.iter_mut().for_each(|one| one.trial = 2);
    let planted = vec![session(true, 3, 100.0, 0.0)];
    [
        controls(first_ticks, 100.0),
        planted,
        controls(3, 104.0),
        second,
    ]
    .concat()
}

#[test]
fn controls_between_two_trials_are_of_both() {
    use Outcome::{Discarded, Held, NotHeld};
    // 104 to 110 less and more 5 % are 98.8 and 115.5.
    for (per_s, outcome) in [
        (99.0, Held),
        (98.0, NotHeld),
        (115.0, Held),
        (116.0, NotHeld),
    ] {
        let cells = judged(&chain(3, per_s));
        assert_eq!(
            cells.into_values().next(),
            Some(vec![Held, outcome]),
            "{per_s}"
        );
    }
    // As a file keeps them.
    let kept = serde_json::to_string(&chain(3, 98.0)).unwrap();
    let kept: Vec<Session> = serde_json::from_str(&kept).unwrap();
    assert_eq!(
        judged(&kept).into_values().next(),
        Some(vec![Held, NotHeld])
    );
    // The first trial's own controls were disturbed.
    assert_eq!(
        judged(&chain(7, 99.0)).into_values().next(),
        Some(vec![Discarded, Held])
    );
    // The first trial was cut off, or the second.
    let chain = chain(3, 99.0);
    assert!(judged(&chain[1..]).is_empty());
    assert_eq!(trials(&chain[..chain.len() - 1]).len(), 1);
}

#[test]
fn a_control_of_two_trials_is_judged_once() {
    // Each is near to the other five.
    assert_eq!(rejected(&chain(3, 99.0)), [0, 9]);
    // Those of the discarded trial are judged in the one that counts.
    assert_eq!(rejected(&chain(7, 99.0)), [0, 6]);
    let mut far = chain(3, 99.0);
    far[4].points[0].throughput_per_s = 120.0;
    assert_eq!(rejected(&far), [1, 9]);
}

#[test]
fn controls_are_shared_by_trials_of_one_line_beside_which_others_were_quiet() {
    let (line, other) = (LINES[0].0, LINES[1].0);
    let chain = chain(3, 99.0);
    assert_eq!(shared(&chain, line), Some(2));
    assert_eq!(shared(&chain[..7], line), Some(1));
    assert_eq!(shared(&chain, other), None);
    // Nothing was measured in this call.
    assert_eq!(shared(&[], line), None);
    let mut disturbed = chain;
    disturbed.last_mut().unwrap().points[0]
        .around
        .machine
        .busy_ticks = 7;
    assert_eq!(shared(&disturbed, line), None);
}

#[test]
fn the_next_trial_is_of_the_last_line_if_that_has_a_cell_with_the_fewest() {
    let mut sessions = Vec::new();
    let mut lines = Vec::new();
    for nth in 0..2 * PLANTS.len() * LINES.len() {
        let last = lines.last().copied();
        let ((plant, line), tried) = next(&sessions, last, |_| true).unwrap();
        assert_eq!(tried, nth / (PLANTS.len() * LINES.len()));
        lines.push(line);
        let trial = [
            controls(3, 1.0),
            vec![session(true, 3, 1.0, 0.0)],
            controls(3, 1.0),
        ];
        sessions.extend(trial.concat().into_iter().map(|one| Session {
            trial: nth as u64,
            plant: plant.to_owned(),
            line: line.to_owned(),
            ..one
        }));
    }
    let changes = lines.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!(changes, 2 * (LINES.len() - 1));
    assert_eq!(
        next(&sessions, None, |cell| cell.contains("bursts, serv"))
            .unwrap()
            .0,
        ("bursts", "service")
    );
    assert_eq!(next(&sessions, None, |_| false), None);
}

#[test]
fn what_is_printed_is_held_against_what_the_controls_span() {
    use Outcome::{Discarded, Held, NotHeld};
    let table = [
        // controls, ticks in them, beside the plant, foreign seconds
        (([100.0, 104.0], 3, 100.0, 0.0), Held),
        (([100.0, 104.0], 3, 94.0, 0.0), NotHeld),
        // 80 to 100 a second.
        (([100.0, 104.0], 3, 80.0, 0.4), Held),
        (([100.0, 104.0], 3, 70.0, 0.4), NotHeld),
        // At least 40.
        (([100.0, 104.0], 3, 40.0, 1.6), Held),
        (([30.0, 31.0], 3, 40.0, 1.6), NotHeld),
        (([100.0, 131.0], 3, 100.0, 0.0), Discarded),
        (([100.0, 104.0], 7, 100.0, 0.0), Discarded),
    ];
    for ((around, ticks, per_s, foreign_s), outcome) in table {
        let found = trial(around, ticks, per_s, foreign_s);
        assert_eq!(found, outcome, "{around:?} {per_s} {foreign_s}");
    }
}

/// The series of lab/record/validation.md: a rule that changes must not make false what held.
#[test]
fn what_the_recorded_series_prints_holds() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../record/validate-beside.jsonl"
    );
    let sessions: Vec<Session> = Store::read(Path::new(path)).unwrap().lines;
    let cells = judged(&sessions);
    assert_eq!(cells.len(), PLANTS.len() * LINES.len());
    let outcomes: Vec<Outcome> = cells.into_values().flatten().collect();
    let count = |wanted| outcomes.iter().filter(|one| **one == wanted).count();
    let (held, not) = (count(Outcome::Held), count(Outcome::NotHeld));
    assert!(held >= 94 && not <= 6, "{held}, {not} not");
    // Sessions that nothing disturbed are rejected as often.
    let [rejected, controls] = rejected(&sessions);
    assert_eq!((rejected, controls), (69, 1071));
    assert!(not * controls <= rejected * (held + not));
}
