//! Kept locks in the formats for people: the columns of `hold --for`.

use crate::columns::{Column, TARGET, WORKERS, always, figure, median, three, two};
use crate::format::{grouped, time};
use jostle_stats::figures;
use jostle_stats::summary::PointSummary;

/// The columns of `hold --for`. They leave out the rate of acquiring and releasing, because
/// the CPU time of other programs is not known for so short a part of a run.
pub(crate) static COLUMNS: &[Column] = &[
    TARGET,
    WORKERS,
    always(["", "n"], |point| point.at.keys.map(grouped)),
    median(["renewals", "/min"], figures::KEPT_RENEWALS, three).rank(2),
    // It is what made a point INVALID.
    always(["latest", "by"], |point| {
        Some(time(point.kept?.latest_ns? as f64))
    })
    .rank(1),
    always(["leases", "ended"], |point| {
        let kept = point.kept.filter(|kept| kept.leased)?;
        Some(grouped(kept.lapsed))
    })
    .rank(1),
    median(["CPU us", "/min"], figures::KEPT_CPU, two).rank(3),
    median(["server", "us/min"], figures::KEPT_SERVER_CPU, two).rank(3),
    // Without what the server uses while it has no locks.
    median(["less", "idle"], figures::KEPT_OWN_SERVER_CPU, two).rank(4),
    median(["server", "bytes"], figures::KEPT_BYTES, two).rank(4),
    figure(["connec-", "tions"], |point| {
        Some(grouped(point.kept?.connections?))
    })
    .rank(6),
];

/// Whether locks were kept at these points.
pub(crate) fn are(points: &[PointSummary<'_>]) -> bool {
    points.iter().any(|point| point.kept.is_some())
}
