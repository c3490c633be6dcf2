//! The remedy for a check, as data: printed for the user to type, and used for the next
//! command.

use serde::{Deserialize, Serialize};

/// A remedy as the user types it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Remedy {
    /// Repeats the command with an option, and its value as typed.
    With {
        /// Such as `-t`.
        option: String,
        /// Such as `11`.
        value: String,
    },
    /// Repeats the command without an option.
    Without {
        /// Such as `--during`.
        option: String,
    },
    /// Repeats the command as it was.
    Again,
    /// Another command first; then the same one again.
    Command(String),
}

impl Remedy {
    /// Repeats the command with an option.
    pub fn with(option: &str, value: impl ToString) -> Remedy {
        Remedy::With {
            option: option.to_owned(),
            value: value.to_string(),
        }
    }

    /// Repeats the command without an option.
    pub fn without(option: &str) -> Remedy {
        Remedy::Without {
            option: option.to_owned(),
        }
    }

    /// Wait until other programs are quiet, for a minute at most.
    pub fn wait_quiet() -> Remedy {
        Remedy::with("--wait-quiet", "60s")
    }

    /// Look at this machine's limits.
    pub fn doctor() -> Remedy {
        Remedy::Command("jostle doctor".to_owned())
    }
}

/// As printed in brackets behind a sentence.
impl std::fmt::Display for Remedy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Remedy::With { option, value } => write!(f, "{option} {value}"),
            Remedy::Without { option } => write!(f, "without {option}"),
            Remedy::Again => f.write_str("run it again"),
            Remedy::Command(command) => f.write_str(command),
        }
    }
}
