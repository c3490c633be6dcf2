use super::*;

const S: u64 = 1_000_000_000;

#[test]
fn a_first_block_that_took_far_longer_than_planned_is_told() {
    for (took_s, planned_s, blocks, is_told) in [
        (4, 2, 3, true),
        (3, 2, 6, false),  // half as much again is not far
        (4, 2, 2, false),  // 4 s in all are not long
        (10, 2, 1, false), // it is over
    ] {
        let told = is_slower(Nanos(took_s * S), Nanos(planned_s * S), blocks);
        assert_eq!(
            told, is_told,
            "{took_s} s for {planned_s} s, {blocks} blocks"
        );
    }
}

fn pilot(workers: u64, grant_us: u64) -> Pilot {
    Pilot {
        workers,
        grant: Nanos::from_micros(grant_us),
        overhead: Nanos::from_millis(50),
    }
}

fn asked(budget_s: u64) -> Asked {
    Asked {
        window: None,
        warmup: None,
        runs: None,
        budget: Nanos(budget_s * S),
        may_drop: true,
        may_shorten: None,
        option: "-w",
    }
}

#[test]
fn a_window_holds_over_ten_rotations_and_a_thousand_grants_within_bounds() {
    let table = [
        // workers, us a grant, window ms, warm-up ms
        (1, 1, 250, 50),
        (10, 1_000, 1_000, 50),       // a thousand grants
        (100, 1_000, 1_100, 200),     // eleven rotations
        (1_000, 1_000, 5_000, 2_000), // eleven rotations would be 11 s
    ];
    for (workers, grant_us, window_ms, warmup_ms) in table {
        let pilot = pilot(workers, grant_us);
        assert_eq!(pilot.window(), Nanos::from_millis(window_ms), "{workers}");
        assert_eq!(pilot.warmup(), Nanos::from_millis(warmup_ms), "{workers}");
    }
}

#[test]
fn ample_time_changes_nothing() {
    let schedule = fit(&[pilot(10, 1_000)], &[10], &asked(50));
    assert_eq!(schedule.blocks, BLOCKS);
    assert_eq!(
        schedule.points[0].map(|t| t.window),
        Some(Nanos::from_millis(1_000))
    );
    assert_eq!(schedule.concessions, [""; 0]);
}

#[test]
fn windows_shrink_first_then_points_go_then_blocks() {
    let points = [pilot(10, 1_000), pilot(100, 1_000), pilot(1_000, 1_000)];
    let columns = [10, 100, 1_000];
    // Full windows need 6 x (1.1 + 1.35 + 7.05) s.
    let shrunk = fit(&points, &columns, &asked(45));
    assert_eq!(shrunk.concessions, ["shortened windows"]);
    assert!(shrunk.points.iter().all(Option::is_some));
    let spent: u64 = shrunk.points.iter().flatten().map(Timing::total).sum();
    assert!(spent * 6 <= 45 * S && spent * 6 > 44 * S, "{spent}");

    let dropped = fit(&points, &columns, &asked(27));
    assert_eq!(
        dropped.concessions,
        ["shortened windows", "left out -w 100"]
    );
    assert!(dropped.points[1].is_none());

    let fewer = fit(&points, &columns, &asked(18));
    assert_eq!(fewer.blocks, 4);
    let spent: u64 = fewer.points.iter().flatten().map(Timing::total).sum();
    assert!(
        spent * 4 > 17 * S && spent * 4 <= 18 * S,
        "four blocks fill the budget: {spent}"
    );
    assert_eq!(
        fewer.concessions.last().map(String::as_str),
        Some("4 runs of each point instead of 6")
    );
    assert_eq!(fit(&points, &columns, &asked(1)).blocks, FEWEST_BLOCKS);
}

/// The default comparison ended SUSPECT: its windows of 1,000 workers held two rotations.
#[test]
fn the_rate_loses_precision_before_fairness_loses_its_rotations() {
    // The default comparison: two locks, 10 and 200 workers, on a machine on which a
    // grant takes 1.15 ms.
    let points = [
        pilot(10, 1_150),
        pilot(200, 1_150),
        pilot(10, 1_150),
        pilot(200, 1_150),
    ];
    let schedule = fit(&points, &[10, 200, 10, 200], &asked(50));
    assert_eq!(schedule.blocks, BLOCKS);
    assert_eq!(schedule.concessions, ["shortened windows"]);
    for (pilot, timing) in points.iter().zip(&schedule.points) {
        let window = timing.unwrap().window;
        assert!(
            window >= pilot.fair_window() && window <= pilot.window(),
            "{window:?}"
        );
    }
    assert!(schedule.points[0].unwrap().window < points[0].window());
    assert_eq!(schedule.points[1].unwrap().window, points[1].window());
    // Where even that is too long, rotations go too.
    let tight = fit(&points, &[10, 200, 10, 200], &asked(30));
    assert!(tight.points[1].unwrap().window < points[1].fair_window());
    assert!(tight.takes() <= Nanos(30 * S) && tight.takes() > Nanos(29 * S));
}

#[test]
fn a_number_of_operations_is_not_shortened_but_repeated_less_often() {
    let points = [Timing {
        window: Nanos(S),
        warmup: Nanos::ZERO,
        overhead: Nanos(S),
    }; 2];
    // A block takes 4 s.
    for (budget_s, blocks) in [(100, 6), (24, 6), (23, 5), (1, 3)] {
        let schedule = count(&points, &[10, 10], &asked(budget_s));
        assert_eq!(schedule.blocks, blocks, "{budget_s}");
        assert_eq!(schedule.concessions.is_empty(), blocks == BLOCKS);
    }
    let told = Asked {
        runs: Some(20),
        ..asked(1)
    };
    assert_eq!(count(&points, &[10, 10], &told).blocks, 20);
}

#[test]
fn operations_that_nobody_asked_for_are_left_out_where_they_break_the_budget() {
    let of = |window_s: u64| Timing {
        window: Nanos(window_s * S),
        warmup: Nanos::ZERO,
        overhead: Nanos::ZERO,
    };
    // `stream lockd echo` took 102 s in a budget of 50: 1,000 and 10,000 operations
    // of two targets.
    let (points, columns) = (
        [of(1), of(10), of(1), of(10)],
        [1_000, 10_000, 1_000, 10_000],
    );
    let asked = Asked {
        option: "-n",
        ..asked(50)
    };
    let schedule = count(&points, &columns, &asked);
    assert_eq!(schedule.takes(), Nanos(12 * S));
    assert_eq!(schedule.concessions, ["left out -n 10000"]);
    // Where they were asked for, they stay, and the budget is not kept.
    let told = Asked {
        may_drop: false,
        ..asked
    };
    let schedule = count(&points, &columns, &told);
    assert_eq!(schedule.takes(), Nanos(66 * S));
    assert!(!told.holds(schedule.takes()) && told.holds(Nanos(55 * S)));
    // One number of operations is left, however long it takes.
    let least = count(&[of(100)], &[1_000], &asked);
    assert_eq!((least.points.len(), least.takes()), (1, Nanos(300 * S)));
}

#[test]
fn a_default_window_gives_way_to_the_budget_and_one_that_was_asked_for_does_not() {
    let points = [pilot(64, 1_000); 6];
    let asked = Asked {
        window: Some(Nanos(5 * S)),
        warmup: Some(Nanos(S / 2)),
        may_drop: false,
        may_shorten: Some(Nanos(S)),
        option: "--rate",
        ..asked(50)
    };
    // Two targets at three rates: 3 runs of 5.55 s for each would be 100 s.
    let columns = [1, 2, 3, 1, 2, 3];
    let schedule = fit(&points, &columns, &asked);
    assert!(asked.holds(schedule.takes()), "{:?}", schedule.takes());
    assert_eq!(
        schedule.concessions,
        [
            "windows of 2.2 s instead of 5 s",
            "3 runs of each point instead of 6"
        ]
    );
    let given = Asked {
        may_shorten: None,
        ..asked
    };
    assert!(!given.holds(fit(&points, &columns, &given).takes()));
    // It is not shortened to nothing, nor where it fits.
    let hasty = Asked {
        budget: Nanos(S),
        ..asked
    };
    let windows = |asked: &Asked| fit(&points, &columns, asked).points[0].unwrap().window;
    assert_eq!(windows(&hasty), Nanos(S));
    let ample = Asked {
        budget: Nanos(400 * S),
        ..asked
    };
    assert_eq!(windows(&ample), Nanos(5 * S));
}

#[test]
fn what_the_plan_says_is_obeyed() {
    let asked = Asked {
        window: Some(Nanos(11 * S)),
        runs: Some(2),
        may_drop: false,
        ..asked(1)
    };
    let schedule = fit(
        &[pilot(10, 1_000), pilot(1_000, 1_000)],
        &[10, 1_000],
        &asked,
    );
    assert_eq!(schedule.blocks, 2);
    assert!(
        schedule
            .points
            .iter()
            .all(|t| t.is_some_and(|t| t.window.0 == 11 * S))
    );
    assert_eq!(schedule.concessions, [""; 0]);
}

#[test]
fn spoilt_blocks_are_made_again_at_most_half_as_many_as_planned() {
    let table = [
        // planned, made, spoilt, do not count
        (6, 6, 0, 0),
        (6, 6, 2, 2),
        (6, 9, 4, 3),
        (6, 6, 6, 0), // a machine that is always busy
        (5, 5, 2, 0),
        (15, 15, 9, 7),
    ];
    for (planned, made, spoilt, repeated) in table {
        assert_eq!(repeats(planned, made, spoilt), repeated, "{planned} {made}");
    }
}

#[test]
fn each_even_block_runs_its_predecessor_backwards() {
    for block in [1, 3, 5] {
        let mut there = block_order(7, block, 42);
        let back = block_order(7, block + 1, 42);
        there.reverse();
        assert_eq!(there, back);
    }
    assert_ne!(block_order(7, 1, 42), block_order(7, 3, 42));
    assert_ne!(block_order(7, 1, 42), block_order(7, 1, 43));
}

#[test]
fn looks_end_it_when_all_is_narrow_and_the_budget_when_it_is_spent() {
    let (much, block) = (Nanos(100 * S), Nanos(S));
    let table = [
        // done, widths, left, goes on
        (6, vec![0.01, 0.04], much, false),
        (6, vec![0.01, 0.06], much, true),
        (7, vec![0.01], much, true), // no look at 7
        (9, vec![0.01], much, false),
        (15, vec![0.5], much, false),
        (6, vec![0.5], Nanos(S / 2), false),
    ];
    for (done, widths, left, goes) in table {
        assert_eq!(
            goes_on(done, &widths, left, block),
            goes,
            "{done} {widths:?}"
        );
    }
}
