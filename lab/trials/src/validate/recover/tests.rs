//! Tests of what is seen, and of what was recorded.

use super::*;
use crate::validate::store::Store;
use jostle_stats::recover::history::{Seen, found};

fn recorded() -> Vec<Trial> {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../record/recover-observed.jsonl"
    );
    Store::read(Path::new(file)).unwrap().lines
}

/// One old owner heard the answer to its release after 286 ms, probably behind what the cut had
/// dropped and TCP sent again.
const LATE: &[&str] = &["nats after cut: told", "nats after cut: two believed"];

/// The file's statement about itself, and that of the tables of the record about it.
#[test]
fn what_was_recorded_agrees_with_its_observers_within_20_ms() {
    let rows = judge(&recorded());
    let cells: usize = CELLS.iter().map(|cell| cell.faults.len()).sum();
    let next = rows.iter().filter(|row| row.what.ends_with("next grant"));
    assert_eq!(next.count(), cells);
    for row in rows {
        let late = u64::from(LATE.contains(&row.what.as_str()));
        assert_eq!(row.count, row.trials - late, "{}", row.what);
        assert!(row.trials >= TRIALS as u64, "{}", row.what);
    }
}

#[test]
fn the_recorded_histories_have_the_figures_that_stand_beside_them() {
    for trial in recorded() {
        let own = &trial.jostle;
        let mut history = own.history.clone();
        history.retain(|event| event.what != What::LeaseEnd);
        let (again, exclusion) = found(&Seen {
            fault: own.fault,
            waiters: own.waiters,
            within_ns: own.within_ns,
            lease_ns: own.lease_ns,
            lease_step_ns: own.lease_step_ns,
            leased_at_ns: own.leased_at_ns,
            struck: own.struck,
            struck_ns: (own.struck_at_ns, own.struck_by_ns),
            returned_ns: own.returned_at_ns,
            delays: own.delays,
            may_lapse: trial.cell.starts_with("pipe"),
            promised: None,
            history: &history,
        });
        assert_eq!(again, *own, "{} after {}", trial.cell, trial.fault);
        // jostle knows nothing of a lease that a program keeps, and takes it for a double
        // grant.
        let is_known = trial.cell != "pipe with a lease";
        assert!(exclusion.violations == 0 || !is_known, "{}", trial.cell);
    }
}

#[test]
fn of_equal_looks_the_first_and_the_last_are_kept() {
    let all = lines(&[(1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, "a"), (6, "a")]);
    let ends = lines(&[(1, "a"), (3, "a"), (4, "b"), (5, "a"), (6, "a")]);
    assert_eq!(ends_of_equals(&all), ends);
    let look = lines(&[(1, "a"), (2, "EVALSHA"), (LONGEST_GAP_NS + 1, "b")]);
    let before = |at| look_before(&look, Some("EVALSHA"), (0, at));
    assert_eq!(before(LONGEST_GAP_NS + 1), Some(1));
    let mut late = look.clone();
    late[2].0 += 1;
    // One gap in between is enough, since the fault.
    for (from, seen) in [(0, None), (LONGEST_GAP_NS + 3, Some(LONGEST_GAP_NS + 2))] {
        late.push((LONGEST_GAP_NS + 3, "c".to_owned()));
        let at = (from, LONGEST_GAP_NS + 3);
        assert_eq!(look_before(&late, Some("EVALSHA"), at), seen);
        late.truncate(3);
    }
    let spans = [(9, -1), (10, 0), (12, 0), (13, 1)];
    assert!(spans.iter().all(|(at, ns)| beside(*at, (10, 12)) == *ns));
}

fn lines(all: &[(u64, &str)]) -> Vec<Line> {
    all.iter()
        .map(|(at, text)| (*at, (*text).to_owned()))
        .collect()
}

#[test]
fn owners_are_seen_where_looks_and_events_differ() {
    let looks = lines(&[
        (1, "O "),
        (2, "O 7"),
        (3, "O 7"),
        (4, "O "),
        (5, "O 7"),
        (6, "O 9"),
    ]);
    let seen = changes(&looks, "O ");
    assert_eq!(seen, lines(&[(2, "7"), (6, "9")]));
    let event = |kind: &str, key: &str, created: u64, modified: u64| {
        format!(
            "{{\"result\":{{\"events\":[{{{kind}\"kv\":{{\"key\":\"{key}\",\
             \"create_revision\":\"{created}\",\"mod_revision\":\"{modified}\"}}}}]}}}}"
        )
    };
    let (a, b) = (event("", "a", 5, 5), event("", "b", 6, 6));
    let gone = event("\"type\":\"DELETE\",", "a", 0, 7);
    // The last line comes again, to an observer that has connected anew.
    let events = lines(&[(1, &a), (2, &b), (3, &gone), (9, &a)]);
    assert_eq!(oldest_keys(&events), lines(&[(1, "\"a\""), (3, "\"b\"")]));
}

#[test]
fn a_figure_that_is_apart_by_more_is_counted_as_missed() {
    let mut all = recorded();
    all.truncate(1);
    let own = &mut all[0].jostle;
    let next = own
        .history
        .iter_mut()
        .find(|event| event.process != Some(0) && event.what == What::Granted);
    next.unwrap().at_ns += APART_NS + LONGEST_GAP_NS;
    assert!(judge(&all).iter().any(|row| row.count == 0));
    // An observer that looked too seldom, or came too late, says nothing.
    let looked = all[0].observer.clone();
    let owners = CELLS[0].owners.read(&looked);
    let seldom = &mut all[0].observer;
    seldom.retain(|(at, _)| *at <= owners[0].0 || *at >= owners[1].0);
    let before = seldom.iter_mut().filter(|(at, _)| *at <= owners[0].0);
    before.for_each(|line| line.0 -= LONGEST_GAP_NS);
    assert!(judge(&all).is_empty());
    all[0].observer = looked;
    let late = u64::MAX;
    all[0].observer.iter_mut().for_each(|line| line.0 = late);
    assert!(judge(&all).is_empty());
}
