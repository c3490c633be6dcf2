//! Facts about targets in the file, so that its readers need no table of targets.

use super::{Experiment, Run};
use serde::{Deserialize, Serialize};

/// The name in `setup` of the version of the server that was measured: 3.004023 for 3.4.23.
pub const SERVER_VERSION: &str = "server_version";

/// Facts about one target that a reader of the file goes by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetFacts {
    /// The answering target on the same path. The difference from it is the lock's own
    /// cost.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answering: Option<String>,
    /// The cost of that path was measured before the first run, in turns with the lock's own.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub path_alone: bool,
    /// Each lock takes a descriptor of each worker.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub descriptor_each: bool,
}

impl TargetFacts {
    /// The answering target whose cost alone is measured before the first run.
    pub fn path_alone(&self) -> Option<&str> {
        self.answering.as_deref().filter(|_| self.path_alone)
    }
}

impl Run {
    /// The version of the server that was measured, as people write it; a last part of 0 is
    /// left out. None where it is not known, or no server was.
    pub fn server_version(&self) -> Option<String> {
        let number = self.around.setup.get(SERVER_VERSION)? * 1e6;
        let number = number.round() as u64;
        let (major, minor, patch) = (number / 1_000_000, number / 1_000 % 1_000, number % 1_000);
        Some(match patch {
            0 => format!("{major}.{minor}"),
            patch => format!("{major}.{minor}.{patch}"),
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_written_as_people_do() {
        let mut run = Run::default();
        assert_eq!(run.server_version(), None);
        for (number, text) in [
            (3.004023, "3.4.23"),
            (15.018, "15.18"),
            (10.011014, "10.11.14"),
            (7.0, "7.0"),
            (7.000015, "7.0.15"),
            // Older files have no third part.
            (3.004, "3.4"),
        ] {
            run.around.setup.insert(SERVER_VERSION.to_owned(), number);
            assert_eq!(run.server_version().as_deref(), Some(text));
        }
    }
}
