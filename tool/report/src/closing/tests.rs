use super::*;
use crate::made;
use jostle_model::record::{Experiment, Run, Waits};
use jostle_stats::fixtures::{Made, experiment, made, queue};
use jostle_stats::summary::summarize;

/// The lines below made runs.
pub(super) trait Says {
    /// The line of a question, under the plan of the fixtures; empty without one.
    fn says(&self, question: &str) -> String;
}

impl Says for Made {
    fn says(&self, question: &str) -> String {
        said(&experiment(), &self.runs, question)
    }
}

/// The answer to a question; empty without one.
pub(super) fn line(set: &ResultSet, question: &str) -> String {
    let points = summarize(&set.experiment, &set.runs);
    let lines = lines(set, &points);
    let found = lines.into_iter().find(|line| line.question == question);
    found.map_or_else(String::new, |line| line.text())
}

/// That of runs under a plan.
pub(crate) fn said(experiment: &Experiment, runs: &[Run], question: &str) -> String {
    let set = ResultSet::new(experiment.clone(), runs.to_vec(), None);
    line(&set, question)
}

/// That of runs under this plan, and the experiment of the fixtures otherwise.
pub(crate) fn planned(plan: Plan, runs: &[Run], question: &str) -> String {
    let mut experiment = experiment();
    experiment.plan = plan;
    said(&experiment, runs, question)
}

fn beside(runs: u32, throughput: f64, hold: bool) -> ResultSet {
    let made = made(runs)
        .with("flock", 500.0, 40.0, &queue(10, 472))
        .with("flock", 1000.0, 40.0, &queue(100, 47))
        .with("sysv", 9999.0, 40.0, &queue(10, 472))
        .with("sysv", throughput, 40.0, &queue(100, 47))
        .with("sysv", 1.0, 40.0, &queue(1000, 4)); // flock has no such point
    let mut experiment = experiment();
    if !hold {
        experiment.plan.hold = None;
    }
    ResultSet::new(experiment, made.runs, None)
}

#[test]
fn targets_are_compared_at_the_largest_load_that_they_have_in_common() {
    let said = line(&beside(6, 1310.0, false), "Throughput");
    assert!(
        said.starts_with("sysv does 1.3 times the locks/s of flock with 100 workers (sysv 1,31"),
        "{said}"
    );
    let said = line(&beside(6, 1020.0, false), "Throughput");
    assert!(
        said.starts_with("No difference in throughput with 100 workers, within 5 % ("),
        "{said}"
    );
    let said = line(&beside(6, 1050.0, false), "Throughput");
    assert!(
        said.starts_with("No difference in throughput is shown with 100 workers (")
            && said.contains("neither surely"),
        "{said}"
    );
    // A hold of a millisecond leaves nothing to differ in.
    let said = line(&beside(6, 1050.0, true), "Throughput");
    assert!(
        said.contains("a hold of 1 ms allows 1,000 locks/s at most"),
        "{said}"
    );
}

/// Nine waits of this run were cut off; its p99 is this, or lies beyond what was measured.
fn cut_off_beyond(run: &mut Run, p99: Option<u64>) {
    let [reached, cut] = [p99, p99.is_none().then_some(9_000_000)]
        .map(|ns| ns.into_iter().map(|ns| ("p99".to_owned(), ns)).collect());
    run.acquire_ns = Some(Waits {
        censored: 9,
        kaplan_meier: reached,
        at_least: cut,
        ..Waits::default()
    });
}

/// A worker that never gets the lock waits longest, and the p99 was that of granted waits alone.
#[test]
fn the_p99_wait_is_known_only_where_no_run_cut_it_off() {
    type P99 = fn(&Run) -> Option<u64>;
    let with_p99 = |p99: P99| {
        let mut set = beside(6, 900.0, false);
        for run in &mut set.runs {
            let known = p99(run);
            cut_off_beyond(run, known);
        }
        line(&set, "Wait")
    };
    let table: [(P99, &[&str]); 3] = [
        (
            |run| {
                Some(if run.target == "sysv" {
                    1_000_000
                } else {
                    5_000_000
                })
            },
            &["The p99 wait is 5.0 times as long with flock as with sysv with 100 workers"],
        ),
        // One run of flock suffices.
        (
            |run| (run.target == "sysv" || run.run != 2).then_some(1_000_000),
            &[
                "The p99 wait with 100 workers is not known: the end of a run cut off",
                "(flock; a longer -t)",
            ],
        ),
        (
            |run| match (run.target.as_str(), run.at.workers) {
                ("flock", Some(100)) => None,
                ("flock", _) => Some(5_000_000),
                _ => Some(1_000_000),
            },
            &[
                "The p99 wait is 5.0 times as long with flock as with sysv with 10 workers",
                "The p99 wait with 100 workers is not known",
            ],
        ),
    ];
    // A third target, of which no run reached it, is named.
    let mut set = beside(6, 900.0, false);
    let of_sysv = set.runs.iter().filter(|run| run.target == "sysv");
    let third = of_sysv.cloned().map(|run| Run {
        target: "ofd".to_owned(),
        ..run
    });
    let third: Vec<Run> = third.collect();
    set.runs.extend(third);
    for run in &mut set.runs {
        let known = match run.target.as_str() {
            "ofd" => None,
            "sysv" => Some(1_000_000),
            _ => Some(5_000_000),
        };
        cut_off_beyond(run, known);
    }
    let said = line(&set, "Wait");
    assert!(said.contains("flock 5.0 ms; not known: ofd)"), "{said}");
    for (p99, parts) in table {
        let said = with_p99(p99);
        for part in parts {
            assert!(said.contains(part), "{said}");
        }
    }
}

/// Where a test takes more runs, "Nothing is decided" was all that was told of a factor of 29.
#[test]
fn few_runs_give_a_look_with_its_chance() {
    let said = line(&beside(3, 2000.0, false), "Throughput");
    assert!(
        said.starts_with("sysv did 2.0 times the locks/s of flock with 100 workers (")
            && said.contains(
                "). 3 runs are too few for a test, so this is an impression: by chance two equal targets \
                 would differ like this in 10 of 100 cases."
            ),
        "{said}"
    );
    let few = beside(3, 1100.0, false);
    let said = line(&few, "CPU");
    assert!(
        said.contains(
            ": a test takes 6 undisturbed runs of each (--runs 12), and this has 3 in all."
        ),
        "{said}"
    );
    let said = line(&few, "Throughput");
    assert!(said.contains(", for the same reason."), "{said}");
}

#[test]
fn nothing_is_compared_with_an_invalid_point() {
    let turns = queue(100, 47);
    let made = made(6).with("flock", 1000.0, 40.0, &turns);
    let mut made = made.with("sysv", 1310.0, 40.0, &turns);
    for run in &mut made.runs {
        run.around.machine.stolen_ticks = 100;
    }
    for question in ["Fairness", "Wait", "CPU", "Throughput", "Growth"] {
        assert_eq!(made.says(question), "", "{question}");
    }
    assert_eq!(made.says("Trust"), "Both points are INVALID.");
}

/// Three lines had the same reason.
#[test]
fn a_reason_is_told_once() {
    let set = beside(3, 1100.0, false);
    let points = summarize(&set.experiment, &set.runs);
    let all = lines(&set, &points).into_iter().map(|line| line.text());
    let all: String = all.collect();
    assert_eq!(
        all.matches("a test takes 6 undisturbed runs").count(),
        1,
        "{all}"
    );
}

#[test]
fn a_title_is_the_first_sentence_of_the_answer_that_tells_most() {
    let of = |set: &ResultSet| {
        let points = summarize(&set.experiment, &set.runs);
        lead(set, &points, &lines(set, &points)).map(|lead| (lead.text, lead.figure))
    };
    let (text, figure) = of(&made::set()).unwrap();
    assert!(
        text.starts_with("The p99 wait is ") || text.starts_with("flock uses "),
        "{text}"
    );
    assert!(!figure.is_empty());
    let (text, _) = of(&made::broken()).unwrap();
    assert!(text.starts_with("busted: 6 of "), "{text}");
}
