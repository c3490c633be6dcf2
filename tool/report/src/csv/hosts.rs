//! The part of each host in a run, as figures of `--tidy`.

use jostle_model::hosts::HostPart;

/// A name with its unit, the unit alone, and where a host's part has it.
type HostColumn = (&'static str, &'static str, fn(&HostPart) -> Option<f64>);

/// A figure of a host that is INVALID is printed only where it is evidence.
pub(super) static EVIDENCE: &[HostColumn] = &[
    ("clock_ahead_ns", "ns", |part| {
        Some(part.clock_ahead_ns as f64)
    }),
    ("clock_within_ns", "ns", |part| {
        Some(part.clock_within_ns as f64)
    }),
    ("late_ns", "ns", |part| Some(part.late_ns as f64)),
    ("workers", "", |part| Some(part.workers as f64)),
    ("busy_share", "share", |part| part.busy_share),
    ("runqueue_share", "share", |part| part.runqueue_share),
    ("generator_lag_p99_ns", "ns", |part| {
        part.generator_lag_ns_p99.map(|ns| ns as f64)
    }),
    ("errors", "", |part| {
        Some(part.errors.values().sum::<u64>() as f64)
    }),
];

/// The others.
pub(super) static FIGURES: &[HostColumn] = &[
    ("throughput_per_s", "per_s", |part| {
        Some(part.throughput_per_s)
    }),
    ("operations", "", |part| Some(part.operations as f64)),
    ("cpu_s", "s", |part| part.cpu_s),
    ("cpu_us_per_operation", "us_per_operation", |part| {
        part.cpu_us_per_operation
    }),
    ("beyond_p99", "", |part| part.beyond_p99.map(|n| n as f64)),
];

/// Percentiles of the host's own latency; its name follows [`HostPart::latency_of`].
pub(super) fn latency(part: &HostPart) -> Vec<(String, f64)> {
    let Some(latency) = &part.latency_ns else {
        return Vec::new();
    };
    let of = part.latency_of.as_deref().unwrap_or("latency_ns");
    let stem = match of.trim_end_matches("_ns") {
        "acquire" => "granted_wait",
        stem => stem,
    };
    let percentiles = latency.percentiles.iter();
    let named = percentiles.map(|(name, ns)| (format!("{stem}_{name}_ns"), ns as f64));
    named
        .chain([(format!("{stem}_mean_ns"), latency.mean)])
        .collect()
}
