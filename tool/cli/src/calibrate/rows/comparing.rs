//! `jostle compare` finds no difference where there is none, and one of a tenth
//! where there is one. Two sessions are made one after the other.

use crate::calibrate::bench::{Bench, Stop};
use crate::calibrate::trial::{Agreement, Trial, cannot_tell, differs, noted, runs_of, span};
use jostle_report::ResultSet;
use jostle_report::compare::{Input, compare};
use jostle_stats::comparison;
use jostle_stats::intervals::median;

pub(super) const A: &str = "delay:100us";
pub(super) const B: &str = "delay:110us";

/// As `jostle compare` has it unless told otherwise.
const WITHIN: f64 = 0.05;

pub(super) fn trial(bench: &mut Bench, targets: [&str; 2]) -> Result<Trial, Stop> {
    let line =
        |target: &str| format!("contend {target} -w 1 -b 0 -i 0 -t 20ms --warmup 10ms --runs 20");
    let base = bench.measure(&line(targets[0]))?;
    let new = bench.measure(&line(targets[1]))?;
    let told = told(&base, &new, targets)?;
    // The control compares a session with itself.
    let itself = self::told(&base, &base, [targets[0]; 2])?;
    let truths = [mean(&base, targets[0]), mean(&new, targets[1])];
    Ok(judge(truths, &told, &itself))
}

/// An answer, and its words.
struct Answer {
    said: comparison::Change,
    words: String,
}

fn told(base: &ResultSet, new: &ResultSet, targets: [&str; 2]) -> Result<Answer, Stop> {
    let compared = compare(&Input {
        base_name: "BASE",
        base: std::slice::from_ref(base),
        new_name: "NEW",
        new: Some(std::slice::from_ref(new)),
        targets: Some(targets),
        within: WITHIN,
        all: false,
        strict: false,
    });
    let compared = compared.map_err(|error| Stop::CannotTell(error.to_string()))?;
    let (_, row) = compared
        .rows
        .first()
        .ok_or_else(|| Stop::CannotTell("there was nothing to compare".to_owned()))?;
    let words = match &row.ratio {
        Some(ratio) => format!(
            "{}: {:.3} ({:.3} to {:.3})",
            row.said.name(),
            ratio.ratio,
            ratio.low,
            ratio.high
        ),
        None => row.said.name().to_owned(),
    };
    Ok(Answer {
        said: row.said,
        words,
    })
}

/// Nanoseconds that the specimen gave, median over the runs in which it gave any: a worker
/// that lost its CPU for all of a short run has none.
fn mean(set: &ResultSet, target: &str) -> f64 {
    let means = runs_of(set, target);
    let means = means
        .iter()
        .map(|run| noted(run, "sum_ns") / noted(run, "count"))
        .filter(|mean| mean.is_finite());
    median(means).unwrap_or(f64::NAN)
}

fn judge(truths: [f64; 2], told: &Answer, itself: &Answer) -> Trial {
    use comparison::Change as Compared;
    let slower = truths[1] / truths[0];
    let is_same = (1.0 / (1.0 + WITHIN / 2.0)..=1.0 + WITHIN / 2.0).contains(&slower);
    let is_worse = slower > 1.0 + WITHIN;
    let said = match (told.said, is_same, is_worse) {
        _ if matches!(itself.said, Compared::Worse | Compared::Better) => {
            differs("a session was called different from itself")
        }
        (Compared::Same, true, _) | (Compared::Worse, _, true) => Agreement::Agrees,
        (Compared::Undecided, ..) => cannot_tell("the machine was not steady enough to decide"),
        (_, true, _) => differs("a difference was found where there is none"),
        (_, _, true) => differs("what is slower by a tenth was not called worse"),
        _ if !slower.is_finite() => differs("the specimen's log is missing"),
        _ => cannot_tell(format!("the specimen itself was {slower:.3} times as slow")),
    };
    Trial {
        truth: format!("{}, {}: {slower:.3}", span(truths[0]), span(truths[1])),
        found: told.words.clone(),
        control: format!("itself {}", itself.words),
        said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comparison::Change as Compared;

    fn told(said: Compared) -> Answer {
        Answer {
            said,
            words: String::new(),
        }
    }

    fn said(new_us: f64, found: Compared) -> Agreement {
        judge([100e3, new_us * 1e3], &told(found), &told(Compared::Same)).said
    }

    #[test]
    fn the_same_is_the_same_and_a_tenth_is_worse() {
        assert_eq!(said(100.1, Compared::Same), Agreement::Agrees);
        assert_eq!(said(110.0, Compared::Worse), Agreement::Agrees);
        for (new, wrong) in [
            (100.1, Compared::Worse),
            (100.1, Compared::Better),
            (110.0, Compared::Same),
            (110.0, Compared::Better),
            (f64::NAN, Compared::Same),
        ] {
            assert!(said(new, wrong).is_wrong(), "{new} {wrong:?}");
        }
        assert!(said(100.1, Compared::Undecided).is_open());
        // Neither a tenth nor nothing: the specimen was disturbed.
        assert!(said(103.0, Compared::Same).is_open());
    }

    #[test]
    fn a_session_differs_from_itself_only_for_a_liar() {
        let itself = told(Compared::Better);
        let said = judge([100e3, 110e3], &told(Compared::Worse), &itself).said;
        assert!(said.is_wrong());
    }
}
