use super::*;
use crate::fixtures;
use crate::rng::Rng;
use crate::summary::summarize;
use jostle_model::record::{Anchor, Run};

/// Nine runs of two targets of equal speed. A session is up to 2 % quicker or slower than
/// another, a run scatters by 1 %. In a run that is disturbed, other programs kept the work
/// from its CPUs for up to six tenths of the window, and took of the figure up to as much.
fn session(rng: &mut Rng, rate_per_s: f64, disturbed: f64) -> Vec<Run> {
    let level = rate_per_s * (1.0 + 0.02 * (rng.unit_f64() - 0.5));
    let mut runs = Vec::new();
    for (target, block) in ["flock", "sysv"]
        .into_iter()
        .flat_map(|t| (1..=9).map(move |n| (t, n)))
    {
        let is_disturbed = rng.unit_f64() < disturbed;
        let kept = if is_disturbed {
            0.6 * rng.unit_f64()
        } else {
            0.0
        };
        let mut run = fixtures::beside(5.0 * kept, 5.0 * kept);
        (run.target, run.block, run.run) = (target.to_owned(), block, block);
        run.throughput_per_s = level * (1.0 + 0.01 * rng.normal()) * (1.0 - kept * rng.unit_f64());
        run.around.anchor = Some(Anchor {
            step_ns: 1.4,
            call_ns: 44.0,
            wake_ns: 2_700.0,
            line_ns: None,
        });
        runs.push(run);
    }
    runs
}

/// The first target of BASE and the first of NEW, or with `paired` both targets of BASE.
fn found(base: &[Run], new: &[Run], paired: bool) -> Compared {
    let experiment = fixtures::experiment();
    let (base, mut new) = (summarize(&experiment, base), summarize(&experiment, new));
    let new = new.remove(usize::from(paired));
    let how = How {
        within: 0.05,
        all: false,
        paired,
    };
    compare(&experiment.plan, &base[0], &new, how).remove(0)
}

/// In noisy sessions 5 of 9 equal ones that could be decided were called different.
#[test]
fn a_disturbed_session_is_no_other_and_a_slower_lock_is_found_in_spite_of_it() {
    let mut rng = Rng::new(41);
    let mut count = |rate_per_s: f64, disturbed: [f64; 2]| {
        let mut seen = [0; 4];
        for _ in 0..100 {
            let base = session(&mut rng, 1_000.0, disturbed[0]);
            let new = session(&mut rng, rate_per_s, disturbed[1]);
            seen[found(&base, &new, false).said as usize] += 1;
        }
        seen
    };
    for disturbed in [[0.0, 0.0], [0.0, 0.5], [0.3, 0.3], [0.0, 1.0], [0.8, 0.8]] {
        let [worse, better, ..] = count(1_000.0, disturbed);
        assert!(
            worse + better <= 2,
            "{disturbed:?}: {worse} and {better} of 100"
        );
    }
    for disturbed in [[0.0, 0.0], [0.0, 0.3], [0.3, 0.3]] {
        let [worse, better, ..] = count(900.0, disturbed);
        assert!(worse >= 90 && better == 0, "{disturbed:?}: {worse} of 100");
    }
}

#[test]
fn what_others_may_have_moved_too_far_is_undecided_and_says_what_to_do() {
    let base = session(&mut Rng::new(7), 1_000.0, 0.0);
    let mut new = base.clone();
    // 1 ms in 12 of a neighbour.
    for run in &mut new {
        run.around.accounts = fixtures::beside(5.0, 0.42).around.accounts;
        run.throughput_per_s *= 0.93;
    }
    let found = found(&base, &new, false);
    assert_eq!(found.said, Change::Undecided);
    assert_eq!(
        found.why.unwrap(),
        "other programs may have moved 9 of 9 runs of NEW by over 3 %; measure again on a quiet \
         machine (--wait-quiet 60s)"
    );
}

/// sysv was 0.18 times flock on a quiet machine, and 1.5 times beside a loop.
#[test]
fn targets_of_one_result_are_compared_by_the_undisturbed_blocks() {
    let mut points = session(&mut Rng::new(3), 1_000.0, 0.0);
    for (disturbed, said, blocks) in [
        (0, Change::Same, 9),
        (3, Change::Same, 6),
        (4, Change::Undecided, 5),
    ] {
        let runs = points.iter_mut().filter(|run| run.target == "sysv");
        for run in runs.filter(|run| run.block <= disturbed) {
            run.around.accounts = fixtures::beside(5.0, 4.0).around.accounts;
            run.throughput_per_s = 8_000.0;
        }
        let found = found(&points, &points, true);
        assert_eq!((found.said, found.runs), (said, [blocks; 2]));
    }
}

#[test]
fn the_floor_is_what_two_halves_of_a_side_differ_by() {
    let flat = [100.0; 12];
    let turns = [100.0, 110.0, 100.0, 110.0, 100.0, 110.0];
    let drift: Vec<f64> = (0..12).map(|n| 100.0 + f64::from(n)).collect();
    let table: &[(&[f64], &[f64], Option<f64>)] = &[
        (&flat, &flat, Some(0.0)),
        (&flat, &turns, Some(0.1)),
        (&turns, &flat, Some(0.1)),
        // Each half has two runs, or there is none.
        (&turns[..4], &[], Some(0.1)),
        (&turns[..3], &turns[..3], None),
    ];
    for (base, new, wanted) in table {
        let found = floor([base, new]);
        let near = |wanted: f64| found.is_some_and(|found| (found - wanted).abs() < 1e-9);
        assert!(
            wanted.map_or(found.is_none(), near),
            "{base:?} {new:?}: {found:?}"
        );
    }
    // Every second run: a drift over the sitting is in both halves.
    assert!(floor([&drift, &[]]).unwrap() < 0.015);
}
