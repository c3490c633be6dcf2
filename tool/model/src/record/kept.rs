//! The cost of locks that are held for a time.

use super::Distribution;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The cost of keeping all locks of a run for a time
/// ([definitions](method/streams.md#when-is-a-renewal-due)).
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// For how long all of them were kept, in seconds.
    pub kept_s: f64,
    /// How many there were.
    pub locks: u64,
    /// How long a lease lasts at least that nobody renews; absent if there is nothing to renew.
    pub lease_s: Option<f64>,
    /// Time between two renewals of it.
    pub renewed_every_s: Option<f64>,
    /// Whether one renewal keeps all locks of a worker, since they belong to its session.
    pub one_session: Option<bool>,
    /// Renewals that the server confirmed in that time.
    pub renewals: u64,
    /// Renewals of the whole run that it confirmed when the lease was over by the
    /// worker's clock.
    pub late: u64,
    /// Locks of the whole run whose lease ended while they were held.
    pub lapsed: u64,
    /// From when a renewal was due until the server had confirmed it, over the whole run.
    pub renewal_late_ns: Option<Distribution>,
    /// Times that a worker sent something in that time, to be answered.
    pub round_trips: Option<u64>,
    /// Bytes of both directions in that time, without the headers of TCP and below.
    pub bytes: Option<u64>,
    /// TCP connections of the workers.
    pub connections: Option<u64>,
    /// CPU time of the workers in that time.
    pub cpu_s: Option<f64>,
    /// CPU time of the server's processes in that time; absent on another host.
    pub server_cpu_s: Option<f64>,
    /// CPU time of the server's processes for each second before the first lock, the workers
    /// being connected.
    pub server_idle_cpu_us_per_s: Option<f64>,
    /// Memory of the server's processes (Pss, and page tables) before the first lock, the
    /// workers being connected.
    pub server_memory_before_bytes: Option<u64>,
    /// Memory of the server's processes (Pss, and page tables) at the end of that time.
    pub server_memory_bytes: Option<u64>,
}

impl Kept {
    /// So much for each lock and minute. None without a lock or a time.
    fn each_minute(&self, total: f64) -> Option<f64> {
        let minutes = self.locks as f64 * self.kept_s / 60.0;
        (minutes > 0.0).then(|| total / minutes)
    }

    /// Renewals of one lock in a minute.
    pub fn renewals_per_minute(&self) -> Option<f64> {
        self.each_minute(self.renewals as f64)
    }

    /// Round trips for one lock in a minute.
    pub fn round_trips_per_minute(&self) -> Option<f64> {
        self.each_minute(self.round_trips? as f64)
    }

    /// Bytes for one lock in a minute.
    pub fn bytes_per_minute(&self) -> Option<f64> {
        self.each_minute(self.bytes? as f64)
    }

    /// The workers' CPU time for one lock in a minute, in microseconds.
    pub fn cpu_us_per_minute(&self) -> Option<f64> {
        self.each_minute(self.cpu_s? * 1e6)
    }

    /// The server's CPU time for one lock in a minute, in microseconds.
    pub fn server_cpu_us_per_minute(&self) -> Option<f64> {
        self.each_minute(self.server_cpu_s? * 1e6)
    }

    /// The server's CPU time for one lock in a minute, less its use while it had no locks; less
    /// than nothing where it then used more.
    pub fn own_server_cpu_us_per_minute(&self) -> Option<f64> {
        let idle_us = self.server_idle_cpu_us_per_s? * self.kept_s;
        self.each_minute(self.server_cpu_s? * 1e6 - idle_us)
    }

    /// The growth of the server's memory for one lock, in bytes; less than nothing where it has
    /// shrunk for other reasons.
    pub fn server_memory_bytes_each(&self) -> Option<f64> {
        let (before, held) = (self.server_memory_before_bytes?, self.server_memory_bytes?);
        (self.locks > 0).then(|| (held as f64 - before as f64) / self.locks as f64)
    }

    /// Connections for one lock.
    pub fn connections_each(&self) -> Option<f64> {
        let connections = self.connections? as f64;
        (self.locks > 0).then(|| connections / self.locks as f64)
    }

    /// The greatest lateness of a renewal, in nanoseconds.
    pub fn latest_ns(&self) -> Option<u64> {
        let late = self.renewal_late_ns.as_ref()?;
        (late.count > 0).then_some(late.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_one_lock_and_one_minute() {
        let kept = Kept {
            kept_s: 30.0,
            locks: 100,
            renewals: 300,
            cpu_s: Some(0.01),
            server_cpu_s: Some(0.02),
            server_idle_cpu_us_per_s: Some(500.0),
            round_trips: Some(150),
            bytes: Some(5_000),
            connections: Some(2),
            server_memory_before_bytes: Some(1_000_000),
            server_memory_bytes: Some(990_000),
            ..Kept::default()
        };
        let figures = [
            (kept.renewals_per_minute(), 6.0),
            (kept.round_trips_per_minute(), 3.0),
            (kept.bytes_per_minute(), 100.0),
            (kept.cpu_us_per_minute(), 200.0),
            (kept.server_cpu_us_per_minute(), 400.0),
            (kept.own_server_cpu_us_per_minute(), 100.0),
            (kept.server_memory_bytes_each(), -100.0),
            (kept.connections_each(), 0.02),
        ];
        for (at, (found, expected)) in figures.into_iter().enumerate() {
            let found = found.unwrap();
            assert!((found - expected).abs() < 1e-9, "{at}: {found}");
        }
        let none = Kept::default();
        assert_eq!(none.renewals_per_minute(), None);
        assert_eq!(none.latest_ns(), None);
        assert_eq!(none.connections_each(), None);
    }
}
