//! Where clients wait, as an administrator is shown it.

use super::*;

/// `title: name waited+error ms waits/grants/refusals, longest line, waiting; ...`
fn shown(stage: &mut Stage, at_ms: u64, title: &str) -> String {
    let all = stage.table.contention(Time(at_ms * 1_000_000));
    let window = all.iter().find(|window| window.title == title).unwrap();
    let rows = window.rows.iter().map(|row| {
        format!(
            "{} {}+{} {}/{}/{} {} {}",
            row.name.escape_ascii(),
            row.waited_ns / 1_000_000,
            row.error_ns / 1_000_000,
            row.waits,
            row.grants,
            row.refusals,
            row.longest,
            row.waiting
        )
    });
    rows.collect::<Vec<_>>().join("; ")
}

fn play(stage: &mut Stage, rows: &[(u64, &str)]) {
    for (at_ms, line) in rows {
        stage.play(Time(at_ms * 1_000_000), line);
    }
}

#[test]
fn the_names_that_are_waited_for_most_come_first_in_their_minute_and_their_hour() {
    let mut stage = Stage::new(Limits::default());
    play(
        &mut stage,
        &[
            (1000, "a LOCK x"),
            (1000, "b LOCK x"),
            (1500, "c LOCK x WAIT 100"),
            (1500, "d LOCK x WAIT 0"),
            (1700, "- TICK"),
            (2000, "a UNLOCK x"),
            (2000, "a LOCK y"),
            (2000, "c LOCK y SHARED"),
            (2010, "a UNLOCK y"),
            (2010, "d LOCK y WAIT 0"),
            (2020, "c UNLOCK y"),
            (2030, "a LOCK free"),
            (2030, "a UNLOCK free"),
        ],
    );
    let expected = "x 1200+0 2/1/1 2 0; y 10+0 1/1/1 1 0";
    assert_eq!(shown(&mut stage, 2100, "minute"), expected);
    assert_eq!(shown(&mut stage, 2100, "hour"), expected);
    assert_eq!(shown(&mut stage, 2100, "last-minute"), "");
    let rows = &stage.table.contention(Time(2_100_000_000))[0].rows;
    let (wait, hold) = (&rows[0].wait, &rows[0].hold);
    assert!(
        (200_000..260_000).contains(&wait.percentile(50)),
        "{wait:?}"
    );
    assert!(
        (1_000_000..1_300_000).contains(&hold.percentile(99)),
        "{hold:?}"
    );
    // A wait that goes on is shown before it ends.
    play(&mut stage, &[(3000, "e LOCK x"), (3000, "f LOCK x")]);
    let expected = "x 3200+0 2/1/1 2 2; y 10+0 1/1/1 1 0";
    assert_eq!(shown(&mut stage, 4000, "minute"), expected);
    // The next minute.
    let expected = "x 118000+0 0/0/0 2 2";
    assert_eq!(shown(&mut stage, 62_000, "minute"), expected);
    assert_eq!(
        shown(&mut stage, 62_000, "last-minute"),
        "x 1200+0 2/1/1 2 0; y 10+0 1/1/1 1 0"
    );
    assert_eq!(
        shown(&mut stage, 62_000, "hour"),
        "x 119200+0 2/1/1 2 2; y 10+0 1/1/1 1 0"
    );
    play(&mut stage, &[(62_000, "e CANCEL"), (62_000, "f CANCEL")]);
    assert_eq!(shown(&mut stage, 62_000, "minute"), "x 118000+0 2/0/0 2 0");
    // After an hour in which nothing happened.
    assert_eq!(shown(&mut stage, 3_700_000, "last-minute"), "");
    assert_eq!(shown(&mut stage, 3_700_000, "hour"), "");
    assert_eq!(
        shown(&mut stage, 3_700_000, "last-hour"),
        "x 119200+0 4/1/1 2 0; y 10+0 1/1/1 1 0"
    );
}

#[test]
fn of_many_names_that_are_waited_for_a_report_adds_those_with_the_greatest_sums() {
    let mut stage = Stage::new(Limits::default());
    play(&mut stage, &[(0, "a LOCK old"), (0, "b LOCK old")]);
    play(&mut stage, &[(50, "b CANCEL")]);
    for n in 0..1100 {
        play(&mut stage, &[(50, &format!("a LOCK n{n}"))]);
        play(&mut stage, &[(100 + n, &format!("w{n} LOCK n{n}"))]);
    }
    // It has a place, so its short wait counts.
    play(&mut stage, &[(2000, "b LOCK old")]);
    for title in ["minute", "hour"] {
        let all = shown(&mut stage, 2010, title);
        let names: Vec<&str> = all.split("; ").collect();
        assert_eq!(names.len(), 1001);
        assert_eq!(names[0], "n0 1910+0 0/0/0 1 1");
        assert_eq!(names[999], "n999 911+0 0/0/0 1 1");
        assert_eq!(names[1000], "old 60+0 1/0/0 1 1");
    }
}

#[test]
fn refusals_are_counted_however_many_they_are_and_memory_is_bounded() {
    let mut stage = Stage::new(Limits::default());
    let most = stage.table.limits.contention_bytes / 4 / size_of::<crate::table::contention::Row>();
    stage.play(Time(1), "a LOCK x");
    for _ in 0..70_000 {
        stage.play(Time(1), "b LOCK x WAIT 0");
    }
    stage.play(Time(2), "a UNLOCK x");
    assert_eq!(shown(&mut stage, 1, "minute"), "x 0+0 0/0/70000 0 0");
    for n in 0..4 * most {
        stage.play(Time(3), &format!("a LOCK n{n}"));
        stage.play(Time(3), &format!("b LOCK n{n}"));
        stage.play(Time(4_000_000), "b CANCEL");
    }
    assert!(stage.table.contention(Time(5_000_000))[0].rows.len() <= most);
    // Nothing is kept.
    let mut stage = Stage::new(Limits {
        contention_bytes: 0,
        ..Limits::default()
    });
    play(
        &mut stage,
        &[
            (0, "a LOCK x"),
            (0, "b LOCK x"),
            (0, "c LOCK x WAIT 0"),
            (5, "a UNLOCK x"),
        ],
    );
    assert!(stage.table.contention(Time(1)).is_empty());
}
