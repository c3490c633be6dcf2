//! What the formats for people show of locks that are kept: the columns of `hold --for`.

use crate::columns::{Column, TARGET, WORKERS, always, figure};
use crate::format::{grouped, significant, time};
use jostle_stats::figures::{self, Figure};
use jostle_stats::summary::PointSummary;

/// The columns of `hold --for`. They leave out the rate of acquiring and releasing, because
/// the CPU time of other programs is not known for so short a part of a run.
pub(crate) static COLUMNS: &[Column] = &[
    TARGET,
    WORKERS,
    always(["", "n"], |point| point.at.keys.map(grouped)),
    figure(["renewals", "/min"], |point| {
        each(point, 3, figures::KEPT_RENEWALS)
    }),
    // It is what made a point INVALID.
    always(["latest", "by"], |point| {
        Some(time(point.kept?.latest_ns? as f64))
    }),
    always(["leases", "ended"], |point| {
        let kept = point.kept.filter(|kept| kept.leased)?;
        Some(grouped(kept.lapsed))
    }),
    figure(["CPU us", "/min"], |point| {
        each(point, 2, figures::KEPT_CPU)
    }),
    figure(["server", "us/min"], |point| {
        each(point, 2, figures::KEPT_SERVER_CPU)
    }),
    // Without what the server uses while it has no locks.
    figure(["less", "idle"], |point| {
        each(point, 2, figures::KEPT_OWN_SERVER_CPU)
    }),
    figure(["server", "bytes"], |point| {
        each(point, 2, figures::KEPT_BYTES)
    }),
    figure(["connec-", "tions"], |point| {
        Some(grouped(point.kept?.connections?))
    }),
];

/// Whether locks were kept at these points.
pub(crate) fn are(points: &[PointSummary<'_>]) -> bool {
    points.iter().any(|point| point.kept.is_some())
}

fn each(point: &PointSummary<'_>, digits: usize, figure: &Figure) -> Option<String> {
    Some(significant(point.median(figure)?, digits))
}
