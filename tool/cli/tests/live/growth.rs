//! Sweeps end with how their figures grow, and runs have their anchors.

use crate::common::{Place, alone, beside, in_some_try_unless_disturbed, jostle};
use jostle_model::record::{Anchor, Fit, Record};

fn fits(lines: &str) -> Vec<Fit> {
    lines
        .lines()
        .filter_map(|line| match serde_json::from_str(line).unwrap() {
            Record::Fit(fit) => Some(*fit),
            _ => None,
        })
        .collect()
}

/// None if other programs disturbed each of twenty runs and none of them has an anchor. A
/// run goes without one if its CPUs are taken away for half a second beside the window, and
/// then need not be disturbed within.
fn anchor_of(line: &str) -> Option<Anchor> {
    let mut undisturbed = None;
    for _ in 0..20 {
        let done = jostle(line).run_cleanly().measures();
        if let Some(anchor) = done.only_run().around.anchor {
            return Some(anchor);
        }
        undisturbed = (!done.is_disturbed()).then_some(done).or(undisturbed);
    }
    if let Some(done) = undisturbed {
        panic!("an anchor: not in twenty runs; {}", done.transcript());
    }
    None
}

#[test]
fn every_run_has_its_anchor() {
    let _beside = beside();
    let line = "contend null -w 2 -b 0 -i 0 -t 50ms --runs 1 --format json";
    let Some(anchor) = anchor_of(line) else {
        return;
    };
    for ns in [anchor.step_ns, anchor.call_ns, anchor.wake_ns] {
        assert!(ns > 0.0, "{anchor:?}");
    }
    // On one CPU no line goes anywhere.
    let line_ns = anchor_of(&format!("{line} --place same")).map(|anchor| anchor.line_ns);
    assert!(matches!(line_ns, None | Some(None)), "{line_ns:?}");
}

#[test]
fn too_few_points_say_what_would_do() {
    let _beside = beside();
    in_some_try_unless_disturbed("what would do", || {
        let done = jostle("stream null -v -n 10:20:30 -w 1 --runs 2").run_cleanly();
        let done = done.measures();
        let found = [
            "Growth takes 6 numbers of operations",
            "10:25:63:160:400:1000 --runs 6 would do",
        ];
        let words = done.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = found.iter().all(|text| words.contains(text));
        (done, said)
    });
}

/// Tests that judge figures of this machine.
mod figures {
    use super::*;

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn a_sweep_ends_with_its_growth_and_the_file_keeps_it() {
        let _alone = alone();
        let place = Place::new();
        let line = "hold null --keys 300:1000:3000:10k:30k:100k --runs 6 --measure counts \
                    -o sweep.jsonl --overwrite";
        // A point that other programs made INVALID is in no fit.
        let mut whole = None;
        in_some_try_unless_disturbed("a sweep of usable points", || {
            let done = place.jostle(line).run_cleanly().measures();
            let text = place.read("sweep.jsonl");
            let of_time = |fit: &Fit| fit.figure == "time_per_operation_ns" && fit.values == 6;
            let time = fits(&text).into_iter().find(of_time);
            whole = time.map(|time| (done.clone(), text, time));
            (done, whole.is_some())
        });
        let Some((done, text, time)) = whole else {
            return;
        };
        // Blocks that other programs spoil are repeated, up to half as many.
        assert!((6..=9).contains(&time.runs), "{time:?}");
        assert_eq!(
            (time.from, time.to, time.over.as_str()),
            (300, 100_000, "keys")
        );
        assert!(
            time.finding != "too_few" && !time.text.is_empty(),
            "{time:?}"
        );
        // Its first word begins a sentence.
        let words: Vec<&str> = time.text.split_whitespace().skip(1).take(4).collect();
        done.prints(&words.join(" "));
        // The sentence follows from the figures of the fit, not from the file's own words.
        let marked = text.replace(&time.text, "time is an illusion");
        std::fs::write(place.file("marked.jsonl"), marked).unwrap();
        let again = place.jostle("report marked.jsonl").exits(0);
        assert!(!again.stdout.contains("illusion"), "{}", again.stdout);
        // Without its fits, as after a crash, they are made from the points.
        let bare: String = text
            .lines()
            .filter(|line| !line.contains("\"record\":\"fit\""))
            .map(|line| format!("{line}\n"))
            .collect();
        std::fs::write(place.file("bare.jsonl"), bare).unwrap();
        place
            .jostle("report bare.jsonl")
            .exits(0)
            .prints(&words.join(" "));
    }
}
