//! Whether a number may be believed, and what bounds it.

use super::Causes;
use crate::remedy::Remedy;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The status of a number: whether it may be believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Status {
    /// No check reports it.
    #[default]
    #[serde(rename = "VALID")]
    Valid,
    /// It may be distorted.
    #[serde(rename = "SUSPECT")]
    Suspect,
    /// It must not be used.
    #[serde(rename = "INVALID")]
    Invalid,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Status::Valid => "VALID",
            Status::Suspect => "SUSPECT",
            Status::Invalid => "INVALID",
        })
    }
}

/// The kind of statement that a reason touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Claim {
    /// A figure by itself: acquisitions per second.
    Absolute,
    /// One figure against another of the same blocks.
    Ratio,
    /// Percentiles, fairness.
    Distribution,
}

/// One reason for a verdict, as data; `text` is formatted from the other fields.
/// Files of schema `jostle/1` have `check`, `is`, `claims` and `text` alone.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The check that found it; `jostle explain CHECK` has its threshold and source.
    pub check: String,
    /// How bad it is.
    pub is: Status,
    /// The claims that it touches.
    pub claims: Vec<Claim>,
    /// The measured value; absent where the figure has no upper end.
    pub measured: Option<f64>,
    /// The threshold that `measured` crossed, in `unit`.
    pub limit: Option<f64>,
    /// The unit of both, such as `share`, `rotations`, `us`.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub unit: String,
    /// Where the figure would lie without the finding, as multiples of the measured figure.
    pub bound: Option<Bound>,
    /// Evidence other than numbers: names of programs, errors, an example.
    pub seen: Option<String>,
    /// The causes outside the lock, of the runs that it is about
    /// ([which](results.md#what-is-looked-at-outside-the-lock)).
    pub causes: Option<Box<Causes>>,
    /// The hosts that the reason is about, if it is not about all of them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub hosts: Vec<String>,
    /// The change that makes the check pass: the same command `with` an `option` and its `value`
    /// (`{"with":{"option":"-t","value":"11"}}`) or `without` an `option`, `"again"` the same
    /// command, `{"command":"jostle doctor"}` another command first.
    pub remedy: Option<Remedy>,
    /// The sentence that table and page print, made from the fields above.
    pub text: String,
}

/// Limits of a figure, as multiples of the measured one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// It is at least this many times the measured one; zero where nothing bounds it.
    pub low: f64,
    /// It is at most this many times the measured one; absent where nothing bounds it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub high: Option<f64>,
}

/// The limit of a throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitedBy {
    /// The measured lock or service.
    Target,
    /// The tool's own workers.
    Generator,
    /// The path between them, and the client's part of it: a server that only answers is
    /// hardly faster.
    Path,
    /// A limit of the machine.
    Machine,
    /// The data cannot tell.
    Undecided,
}

/// The worst of its reasons.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The worst of its reasons.
    pub is: Status,
    /// Why; empty when VALID.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub reasons: Vec<Reason>,
    /// The bottleneck, which bounds the throughput; absent for local locks. A run has
    /// `generator` or `machine` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<LimitedBy>,
}

impl Verdict {
    /// Whether its figures must not be used.
    pub fn is_invalid(&self) -> bool {
        self.is == Status::Invalid
    }

    /// The gravest reason for INVALID: reasons stand in the order of the checks.
    pub fn why_invalid(&self) -> Option<&Reason> {
        let mut reasons = self.reasons.iter();
        reasons.find(|reason| reason.is == Status::Invalid)
    }

    /// The verdict that these reasons make.
    pub fn of(reasons: Vec<Reason>) -> Verdict {
        Verdict {
            is: reasons.iter().map(|r| r.is).max().unwrap_or_default(),
            reasons,
            limited_by: None,
        }
    }
}
