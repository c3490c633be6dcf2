//! What the workers of `hold` do.

use serde::{Deserialize, Serialize};

/// Different locks are acquired, held together with those of all workers, and released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldOrder {
    /// Locks that each worker holds.
    pub operations: u64,
    /// Requests that are sent at once.
    pub pipeline: usize,
}
