//! The work of the workers of `hold`.

use jostle_model::time::Nanos;
use serde::{Deserialize, Serialize};

/// Leases for which locks are kept at least: fewer would show too few renewals.
pub const LEASES: u64 = 3;

/// Different locks are acquired, held together with those of all workers, and released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldOrder {
    /// Locks that each worker holds.
    pub operations: u64,
    /// Requests that are sent at once.
    pub pipeline: usize,
    /// How long they are kept, their leases renewed, once all workers hold all of theirs;
    /// zero: they are released at once.
    #[serde(default)]
    pub keep: Nanos,
    /// The lease that is asked for; None: the target's usual one.
    #[serde(default)]
    pub lease: Option<Nanos>,
}

/// For how long an idle server is looked at before locks are kept for this span: a tenth of
/// it, 1 to 5 s, and no longer than it.
pub fn idle_ns(span: Nanos) -> u64 {
    (span.0 / 10)
        .clamp(1_000_000_000, 5_000_000_000)
        .min(span.0)
}
