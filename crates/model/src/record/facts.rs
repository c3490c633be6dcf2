//! What a file states about its targets, so that its readers need no table of targets.

use super::Experiment;
use serde::{Deserialize, Serialize};

/// Facts about one target that a reader of the file goes by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetFacts {
    /// The target that only answers, reached by the same path: beside it one sees what the
    /// lock itself takes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answering: Option<String>,
    /// Whether the cost of that path is measured before the first run, in turns with the
    /// lock's own.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub path_alone: bool,
    /// Whether each lock takes a descriptor of each worker.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub descriptor_each: bool,
}

impl TargetFacts {
    /// The answering target whose cost alone is measured before the first run.
    pub fn path_alone(&self) -> Option<&str> {
        self.answering.as_deref().filter(|_| self.path_alone)
    }
}

impl Experiment {
    /// The facts about a target as typed.
    pub fn facts(&self, target: &str) -> TargetFacts {
        match self.target_facts.is_empty() {
            true => of_older_files(target),
            false => self.target_facts.get(target).cloned().unwrap_or_default(),
        }
    }
}

/// Files without facts are of older versions, which had these targets.
fn of_older_files(target: &str) -> TargetFacts {
    let beside = |answering: &str| TargetFacts {
        answering: Some(answering.to_owned()),
        ..TargetFacts::default()
    };
    match target.split(':').next() {
        Some("lockd+unix") => beside("echo+unix"),
        Some("lockd" | "redis") => beside("echo"),
        Some("pipe") => TargetFacts {
            path_alone: true,
            ..beside("echo+pipe")
        },
        Some("flock" | "ofd" | "fcntl" | "posix" | "lockfile") => TargetFacts {
            descriptor_each: true,
            ..TargetFacts::default()
        },
        _ => TargetFacts::default(),
    }
}
