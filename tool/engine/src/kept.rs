//! From what keeping locks came to on a host to the part of a record that tells of it.

use crate::order::{KeptData, Merged};
use jostle_harness::merged::histogram;
use jostle_model::Nanos;
use jostle_model::record::Kept;

/// The record. `late`: from when each renewal was due until it was confirmed.
pub(crate) fn record(kept: &KeptData, late: Option<&Merged>, over: &[Nanos]) -> Kept {
    let seconds = |ns: u64| ns as f64 / 1e9;
    Kept {
        kept_s: seconds(kept.kept_ns),
        locks: kept.locks,
        lease_s: kept.lease_ns.map(seconds),
        renewed_every_s: kept.renewed_every_ns.map(seconds),
        one_session: kept.lease_ns.map(|_| kept.one_session),
        renewals: kept.renewals,
        late: kept.late,
        lapsed: kept.lapsed,
        renewal_late_ns: late.and_then(|late| histogram(late).distribution(over)),
        round_trips: kept.traffic.map(|(round_trips, _)| round_trips),
        bytes: kept.traffic.map(|(_, bytes)| bytes),
        connections: kept.connections,
        cpu_s: kept.cpu_ns.map(seconds),
        server_cpu_s: kept.server_cpu_ns.map(seconds),
        server_idle_cpu_us_per_s: kept
            .server_idle_ns
            .filter(|(_, between)| *between > 0)
            .map(|(cpu, between)| 1e6 * cpu as f64 / between as f64),
        server_memory_before_bytes: kept.server_memory_bytes.map(|(before, _)| before),
        server_memory_bytes: kept.server_memory_bytes.map(|(_, held)| held),
    }
}
