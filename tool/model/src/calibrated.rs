//! The findings of `jostle calibrate`: whether the tool measures correctly on a machine.
//!
//! The record is at the end of the file that `jostle calibrate -o` writes, after its
//! experiments, and alone in the user's cache. [`Specimens`] is the summary in other
//! results.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// One calibration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibrated {
    /// `jostle/3`.
    pub schema: String,
    /// Where, and of which build.
    #[serde(flatten)]
    pub place: Place,
    /// Wall-clock start, RFC 3339 in UTC.
    pub started_at: String,
    /// Wall time of all of it, monotonic.
    pub elapsed_s: f64,
    /// How often each row was tried: 1, or the number of `--full --trials`.
    pub trials: u64,
    /// One for each thing that was planted.
    pub rows: Vec<Finding>,
}

/// The environment that a calibration holds for: another machine or build needs its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// jostle's version and commit.
    pub jostle: String,
    /// Host name.
    pub host: String,
    /// `uname -sr`.
    pub kernel: String,
    /// CPU model as the kernel names it.
    pub cpu_model: String,
    /// CPUs that the process could use.
    pub cores: u64,
}

/// How one row came out.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Its number in tool/docs/calibrate.md.
    pub row: u64,
    /// The question to the tool.
    pub name: String,
    /// The planted fault.
    pub planted: String,
    /// The specimen's own record, of the last trial that could tell.
    pub truth: String,
    /// The tool's finding, with its interval or range.
    pub found: String,
    /// The tool's finding without the planted fault.
    pub control: String,
    /// Over all trials.
    pub outcome: Outcome,
    /// Why it is not a pass, or what was wrong in a trial.
    pub why: Option<String>,
    /// Trials in which the tool was right.
    pub passed: u64,
    /// Trials in which it was wrong.
    pub failed: u64,
    /// Trials that could not tell.
    pub untold: u64,
    /// Lower and upper 95 % bound of the share of trials in which the tool is right
    /// (Clopper-Pearson), among those that could tell; from two trials on.
    pub right_share: Option<[f64; 2]>,
    /// Wall time of its trials.
    pub took_s: f64,
}

/// The outcome of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The tool's findings were right.
    #[serde(rename = "pass")]
    Pass,
    /// It did not.
    #[serde(rename = "fail")]
    Fail,
    /// The row could not be tried, because of the machine or the user's rights.
    #[default]
    #[serde(rename = "cannot tell today")]
    CannotTell,
}

impl Outcome {
    /// As printed and stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Pass => "pass",
            Outcome::Fail => "fail",
            Outcome::CannotTell => "cannot tell today",
        }
    }
}

/// A summary of the last calibration with this build on this machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Specimens {
    /// When it began, RFC 3339 in UTC.
    pub at: String,
    /// How often each row was tried.
    pub trials: u64,
    /// Rows that passed.
    pub passed: u64,
    /// Rows that failed, by number and planted fault.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub failed: Vec<String>,
    /// Those that could not be tried.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub cannot_tell: Vec<String>,
}

impl Calibrated {
    /// The summary that results keep of it.
    pub fn summary(&self) -> Specimens {
        let with = |outcome| {
            let rows = self.rows.iter().filter(move |row| row.outcome == outcome);
            rows.map(|row| format!("{} {}", row.row, row.planted))
        };
        Specimens {
            at: self.started_at.clone(),
            trials: self.trials,
            passed: with(Outcome::Pass).count() as u64,
            failed: with(Outcome::Fail).collect(),
            cannot_tell: with(Outcome::CannotTell).collect(),
        }
    }

    /// Whether not a single row could be tried.
    pub fn tried_none(&self) -> bool {
        let untold = |row: &Finding| row.outcome == Outcome::CannotTell;
        self.rows.iter().all(untold)
    }

    /// Whether a row failed.
    pub fn has_failed(&self) -> bool {
        self.rows.iter().any(|row| row.outcome == Outcome::Fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_what_did_not_pass() {
        let row = |row, outcome| Finding {
            row,
            planted: "x".to_owned(),
            outcome,
            ..Finding::default()
        };
        let mut calibrated = Calibrated {
            rows: vec![row(1, Outcome::Pass), row(7, Outcome::CannotTell)],
            ..Calibrated::default()
        };
        assert!(!calibrated.has_failed());
        calibrated.rows.push(row(6, Outcome::Fail));
        assert!(calibrated.has_failed());
        let summary = calibrated.summary();
        assert_eq!(summary.passed, 1);
        assert_eq!(summary.failed, ["6 x"]);
        assert_eq!(summary.cannot_tell, ["7 x"]);
    }
}
