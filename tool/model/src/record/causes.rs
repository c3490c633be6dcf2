//! What was seen outside the lock, where a run went wrong.

use serde::{Deserialize, Serialize};

/// What was looked at because a run went wrong, and what of it may be the cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Causes {
    /// Clauses with their evidence, such as `the server was started anew`, in the order in
    /// which they were looked for.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub found: Vec<String>,
    /// What was looked at, such as `who else holds the lock`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub looked_at: Vec<String>,
}

impl Causes {
    /// Notes a look, and what it found.
    pub fn look(&mut self, at: &str, found: impl IntoIterator<Item = String>) {
        self.looked_at.push(at.to_owned());
        self.found.extend(found);
    }
}
