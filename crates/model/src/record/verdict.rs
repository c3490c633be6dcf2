//! Whether a number may be believed, and what bounds it.

use serde::{Deserialize, Serialize};

/// Whether a number may be believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Is {
    /// Nothing speaks against it.
    #[default]
    #[serde(rename = "VALID")]
    Valid,
    /// Something may have bent it.
    #[serde(rename = "SUSPECT")]
    Suspect,
    /// It must not be used.
    #[serde(rename = "INVALID")]
    Invalid,
}

impl std::fmt::Display for Is {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Is::Valid => "VALID",
            Is::Suspect => "SUSPECT",
            Is::Invalid => "INVALID",
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

/// One reason for a verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The check that found it; METHOD.md has its threshold and source.
    pub check: String,
    /// How bad it is.
    pub is: Is,
    /// The claims that it touches.
    pub claims: Vec<Claim>,
    /// One sentence with the figures, and what to do about it.
    pub text: String,
}

/// What bounds a throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitedBy {
    /// What was measured.
    Target,
    /// The tool's own workers.
    Generator,
    /// The way between them and the client's share of it: a server that only
    /// answers does hardly better.
    Path,
    /// A limit of the machine.
    Machine,
    /// The data cannot tell.
    Undecided,
}

/// The worst of its reasons.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Over all claims.
    pub is: Is,
    /// Why; empty when VALID.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub reasons: Vec<Reason>,
    /// What bounds the throughput, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<LimitedBy>,
}

impl Verdict {
    /// The verdict that these reasons make.
    pub fn of(reasons: Vec<Reason>) -> Verdict {
        Verdict {
            is: reasons.iter().map(|r| r.is).max().unwrap_or_default(),
            reasons,
            limited_by: None,
        }
    }
}
