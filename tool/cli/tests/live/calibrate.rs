//! `jostle calibrate` at the console. How rows judge is tested beside them, by
//! records on both sides of each bound.

use crate::common::{Place, Signal, alone, beside, left, must_be_root, processes};
use jostle_model::calibrated::{Calibrated, Outcome};
use jostle_model::record::{Record, Run};
use std::time::Duration;

fn calibrated(lines: &str) -> Calibrated {
    let last = lines.lines().last().unwrap();
    match serde_json::from_str(last).unwrap() {
        Record::Calibrated(calibrated) => *calibrated,
        other => panic!("{other:?}"),
    }
}

/// A debug build on a busy machine: a row may fail for that, but then says why.
fn is_whole(calibrated: &Calibrated) {
    for row in &calibrated.rows {
        assert_eq!(
            row.passed + row.failed + row.untold,
            calibrated.trials,
            "{row:?}"
        );
        assert_eq!(row.outcome == Outcome::Pass, row.why.is_none(), "{row:?}");
    }
}

#[test]
fn rows_rest_on_records_and_leave_nothing() {
    let place = Place::beside_others();
    let done = place
        .jostle("calibrate --rows 2:10 -o found.jsonl --format json")
        .run_cleanly();
    let text = place.read("found.jsonl");
    let found = calibrated(&text);
    assert_eq!(calibrated(&done.stdout), found);
    is_whole(&found);
    assert_eq!(
        done.code(),
        i32::from(found.has_failed()),
        "{}",
        done.transcript()
    );
    let planted: Vec<&str> = found.rows.iter().map(|row| row.planted.as_str()).collect();
    let expected = [
        "delay:20us",
        "delay:200us",
        "delay:5ms",
        "echo:lose=100",
        "echo:double=100",
    ];
    assert_eq!(planted, expected);
    // What counts wrongly is flagged on any machine, however busy.
    assert!(
        found.rows[3..]
            .iter()
            .all(|row| row.outcome == Outcome::Pass),
        "{:?}",
        found.rows
    );
    let runs: Vec<Run> = place.runs("found.jsonl");
    let of = |target: &str| runs.iter().filter(|point| point.target == target).count();
    assert_eq!(of("echo:lose=100"), 1);
    // A row that cannot tell is measured once more.
    assert!([3, 6].contains(&of("delay:20us")));
    assert!(
        runs.iter()
            .all(|p| p.target != "echo:lose=100" || p.around.truth["lost"] == 20.0)
    );
}

#[test]
fn part_of_the_rows_is_no_proof_and_unknown_ones_are_refused() {
    let place = Place::beside_others();
    place.make_directory("cache");
    let script = format!("export XDG_CACHE_HOME={}", place.file("cache").display());
    place
        .jostle("calibrate --rows 10 -q")
        .after(&script)
        .exits(0);
    assert_eq!(place.list("cache"), [""; 0], "nothing is kept");
    place.jostle("calibrate --rows 7000").exits(2);
    place.jostle("calibrate --trials 5").exits(2);
}

#[test]
fn a_machine_without_a_calibration_is_told_so_once_and_not_at_all_if_quiet() {
    let place = Place::beside_others();
    place.make_directory("cache");
    let script = format!("export XDG_CACHE_HOME={}", place.file("cache").display());
    let twice = "[[experiment]]\nworkload = \"stream\"\ntargets = [\"null\"]\nworkers = [1]\n\
                 operations = [100]\nruns = 1\n";
    std::fs::write(place.file("plan.toml"), twice.repeat(2)).unwrap();
    for (line, times) in [
        ("stream null -n 100 -w 1 --runs 1", 1),
        ("run plan.toml", 1),
        ("stream null -n 100 -w 1 --runs 1 --quiet", 0),
        ("run plan.toml -q", 0),
    ] {
        let done = place.jostle(line).after(&script).measures();
        let notes = done.stderr.matches("has not been calibrated");
        assert_eq!(notes.count(), times, "{}", done.transcript());
    }
}

#[test]
fn many_trials_give_rates_with_bounds() {
    let place = Place::beside_others();
    let done = place
        .jostle("calibrate --full --trials 2 --rows 10 --format json")
        .run_cleanly()
        .exits(0);
    let found = calibrated(&done.stdout);
    is_whole(&found);
    for row in &found.rows {
        assert_eq!((row.passed, row.failed), (2, 0), "{row:?}");
        // Clopper and Pearson, for 2 of 2.
        let [low, high] = row.right_share.unwrap();
        assert!((low - 0.1581).abs() < 1e-3 && high > 0.999, "{row:?}");
    }
}

#[test]
fn without_the_right_to_make_a_control_group_the_quota_cannot_be_told() {
    let _beside = beside();
    let place = Place::of_a_plain_user();
    // With one CPU the row's dearest trial, which starves the generator, cannot be made
    // either: the third is the one that is asked for here.
    let done = place
        .jostle("calibrate --rows 8 --format json")
        .under("taskset -c 0")
        .run_cleanly();
    let found = calibrated(&done.stdout);
    let throttled = found
        .rows
        .iter()
        .find(|row| row.planted.starts_with("throttled"))
        .unwrap();
    assert_eq!(throttled.outcome, Outcome::CannotTell);
    assert!(
        throttled.why.as_ref().unwrap().contains("control group"),
        "{throttled:?}"
    );
}

/// It once ended with 0 after "0 of 29 rows", in place of the good one.
#[test]
fn a_calibration_whose_keeper_is_killed_fails_and_replaces_nothing() {
    let place = Place::beside_others();
    place.make_directory("cache");
    let script = format!("export XDG_CACHE_HOME={}", place.file("cache").display());
    let mut run = place.jostle("calibrate").after(&script).in_background();
    let keeper = run.keeper();
    run.until_workers(1);
    run.kill(keeper);
    run.end()
        .exits(1)
        .says("ended unexpectedly (SIGKILL)")
        .leaves_nothing();
    assert_eq!(place.list("cache"), [""; 0]);
}

/// Tests that have the machine to themselves.
mod alone {
    use super::*;

    #[test]
    fn an_interrupt_leaves_nothing_and_keeps_nothing() {
        let _alone = alone();
        must_be_root("make control groups");
        let place = Place::new();
        place.make_directory("cache");
        let script = format!("export XDG_CACHE_HOME={}", place.file("cache").display());
        let mut run = place.jostle("calibrate").after(&script).in_background();
        run.until_it_listens();
        run.after(Duration::from_millis(2_500));
        run.signal(Signal::INT);
        run.end().exits(130).leaves_nothing();
        assert_eq!(place.list("cache"), [""; 0]);
        assert_eq!(left::groups_of_the_dead(), [""; 0]);
    }

    /// It stayed for ever: only the next calibration looked for it.
    #[test]
    fn the_control_group_of_a_killed_calibration_is_swept_by_the_next_start() {
        let _alone = alone();
        must_be_root("make control groups");
        let place = Place::new();
        let mut run = place.jostle("calibrate").in_background();
        run.until_it_listens();
        run.after(Duration::from_millis(500));
        // With its keepers, of which one is in the group.
        let marked = processes::marked(run.mark()).into_iter();
        let victims: Vec<u32> = marked.map(|process| process.pid).collect();
        for pid in &victims {
            run.kill(*pid);
        }
        run.end().exits(137);
        processes::until_gone(&victims);
        assert_ne!(
            left::groups_of_the_dead(),
            [""; 0],
            "nothing was left to be swept"
        );
        place
            .jostle("contend null -w 1 -b 0 -t 50ms --runs 1")
            .measures();
        assert_eq!(left::groups_of_the_dead(), [""; 0]);
    }
}
