//! What the workers of `hold` do.

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

/// What keeping the locks of all workers came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptData {
    /// For how long all of them were kept.
    pub kept_ns: u64,
    /// How many there were.
    pub locks: u64,
    /// How long one lasts that nobody renews, and the time between two renewals; None
    /// where there is nothing to renew.
    pub lease_ns: Option<u64>,
    /// See `lease_ns`.
    pub renewed_every_ns: Option<u64>,
    /// Whether one renewal keeps all locks of a worker.
    pub one_session: bool,
    /// Renewals that the server confirmed in that time.
    pub renewals: u64,
    /// Renewals of the whole run that it confirmed when the lease was over by our clock.
    pub late: u64,
    /// Locks of the whole run whose lease ended while they were held.
    pub lapsed: u64,
    /// How often workers asked their server in that time, and the bytes of both
    /// directions.
    pub traffic: Option<(u64, u64)>,
    /// TCP connections of the workers.
    pub connections: Option<u64>,
    /// CPU time of the workers in that time.
    pub cpu_ns: Option<u64>,
    /// CPU time of the server in that time, where its process is ours to look at.
    pub server_cpu_ns: Option<u64>,
    /// The same before the first lock, and for how long that was looked at.
    #[serde(default)]
    pub server_idle_ns: Option<(u64, u64)>,
    /// Memory of the server's processes before the first lock, and at the end of that time.
    pub server_memory_bytes: Option<(u64, u64)>,
}
