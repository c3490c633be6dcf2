//! The type of a column in the headline table, and the columns that several workloads
//! share. The columns of a single workload are in that workload's module.

use crate::connect;
use crate::format::{plus_minus, significant, time};
use crate::grid::DETAIL;
use crate::requests::short;
use jostle_model::plan::Workload;
use jostle_stats::figures::{self, Figure};
use jostle_stats::harm::BEARABLE;
use jostle_stats::intervals::relative_half_width;
use jostle_stats::summary::{Estimate, OneBound, PointSummary};

/// When a column's cell is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// In the first row of a target only.
    Once,
    /// In each row.
    Always,
    /// In each row but the INVALID ones: a figure that must not be used must
    /// not stand where it could be copied.
    UnlessInvalid,
    /// In each row but the INVALID ones, of a rate, which may have one bound all the same.
    OrOneBound,
}

/// One column.
pub(crate) struct Column {
    /// Two lines.
    pub(crate) title: [&'static str; 2],
    /// When its cells are printed.
    pub(crate) shown: Shown,
    /// None where nothing was measured; a column of nothing else is left out.
    pub(crate) cell: Cell,
    /// When it gives way to others where a line is short ([`crate::grid::Heading`]).
    pub(crate) rank: u8,
}

/// A column's cell for a point.
pub(crate) enum Cell {
    /// The median of a figure, and how it is printed.
    Median(&'static Figure, fn(f64) -> String),
    /// Anything else.
    Words(Words),
}

/// The text of a cell, made from the point.
type Words = fn(&PointSummary<'_>) -> Option<String>;

impl Column {
    /// With this rank.
    pub(crate) const fn rank(self, rank: u8) -> Column {
        Column { rank, ..self }
    }

    /// Shown with `-v` only.
    pub(crate) const fn detail(self) -> Column {
        self.rank(DETAIL)
    }

    /// The text of its cell.
    pub(crate) fn of(&self, point: &PointSummary<'_>) -> Option<String> {
        match self.cell {
            Cell::Median(figure, print) => point.median(figure).map(print),
            Cell::Words(words) => words(point),
        }
    }
}

/// The title of half intervals.
pub(crate) const PLUS_MINUS: &str = "±";

/// The target, short where it is a long command or address.
pub(crate) const TARGET: Column = once(["", "target"], |point| Some(short(point.target)));

/// How many contended, or asked.
pub(crate) const WORKERS: Column = always(["", "workers"], |point| {
    point.at.workers.map(|n| n.to_string())
});

/// How many contended, or asked, with the locks that they share or have of their own.
pub(crate) const WORKERS_AND_NAMES: Column = always(["", "workers"], |point| {
    let workers = point.at.workers?;
    let names = point.runs.first()?.names.as_deref();
    Some(match names.filter(|_| workers > 1) {
        // Whether they contend is part of what was measured.
        Some(names) => format!("{workers} ({names})"),
        None => workers.to_string(),
    })
});

/// The spread of the point's main figure over its runs.
pub(crate) const HALF_INTERVAL: Column = figure(["", PLUS_MINUS], half_interval).rank(5);

/// A column that is equal for all points of a target.
pub(crate) const fn once(title: [&'static str; 2], words: Words) -> Column {
    column(title, Shown::Once, Cell::Words(words))
}

const fn column(title: [&'static str; 2], shown: Shown, cell: Cell) -> Column {
    Column {
        title,
        shown,
        cell,
        rank: 0,
    }
}

/// A column that is printed for INVALID points too: a swept value, or the evidence against
/// the point.
pub(crate) const fn always(title: [&'static str; 2], words: Words) -> Column {
    column(title, Shown::Always, Cell::Words(words))
}

/// A figure of a point that may be used.
pub(crate) const fn figure(title: [&'static str; 2], words: Words) -> Column {
    column(title, Shown::UnlessInvalid, Cell::Words(words))
}

/// The median of a figure, of a point that may be used.
pub(crate) const fn median(
    title: [&'static str; 2],
    of: &'static Figure,
    print: fn(f64) -> String,
) -> Column {
    column(title, Shown::UnlessInvalid, Cell::Median(of, print))
}

/// Operations a second, or only one bound if other programs make the point INVALID.
pub(crate) const fn throughput(title: [&'static str; 2]) -> Column {
    let cell = Cell::Median(figures::THROUGHPUT, three);
    column(title, Shown::OrOneBound, cell)
}

/// One bound, where other programs make a point INVALID and nothing else does.
pub(crate) fn one_bound(point: &PointSummary<'_>) -> Option<String> {
    Some(match point.one_bound_per_s()? {
        OneBound::AtLeast(per_s) => format!(">={}", three(per_s)),
        OneBound::AtMost(per_s) => format!("<={}", three(per_s)),
    })
}

/// The longest wait, a lower bound where the end of the window cut it off.
pub(crate) fn longest_wait(point: &PointSummary<'_>) -> Option<String> {
    let bound = if point.longest_wait_is_cut { ">=" } else { "" };
    Some(format!("{bound}{}", time(point.longest_wait_ns? as f64)))
}

/// The share of the window in which nothing else ran, if the figure is from that alone, or
/// else bounds of the figure without other programs, if these may have moved it.
pub(crate) const UNDISTURBED: Column = figure(["without", "others"], without_others).detail();

fn without_others(point: &PointSummary<'_>) -> Option<String> {
    if let Some(share) = point.clean_share {
        return Some(format!("from {:.0} %", 100.0 * share));
    }
    let harm = point.harm.filter(|harm| harm.off() >= BEARABLE)?;
    let figure = measured_by(point)?.median;
    let (low, high) = match point.workload {
        // A time, and no rate.
        Workload::Connect => (figure / harm.high / 1e3, figure / harm.low / 1e3),
        _ => (figure * harm.low, figure * harm.high),
    };
    Some(format!("{}..{}", three(low), three(high)))
}

/// CPU time of the client's side, in microseconds an operation.
pub(crate) const fn cpu(title: [&'static str; 2]) -> Column {
    median(title, figures::CPU, two).rank(2)
}

/// CPU time of the server, in microseconds an operation.
pub(crate) const fn server_cpu(title: [&'static str; 2]) -> Column {
    median(title, figures::SERVER_CPU, two).rank(4)
}

/// How often a worker asked its server for each lock.
pub(crate) const ROUND_TRIPS: Column =
    median(["round", "trips"], figures::ROUND_TRIPS, three).rank(7);

/// Bytes that they sent each other for it.
pub(crate) const NETWORK: Column = median(["network", "B/lock"], figures::BYTES, three).detail();

/// Nanoseconds as microseconds.
pub(crate) fn micros(nanos: f64) -> String {
    two(nanos / 1e3)
}

/// With two significant digits.
pub(crate) fn two(value: f64) -> String {
    significant(value, 2)
}

/// With three.
pub(crate) fn three(value: f64) -> String {
    significant(value, 3)
}

/// The main figure of a point; to this `±` belongs.
pub(crate) fn measured_by(point: &PointSummary<'_>) -> Option<Estimate> {
    match point.workload {
        Workload::Connect => connect::measured(point),
        // Median and worst stand in columns of their own.
        Workload::Recover | Workload::Verify => None,
        _ => point.of(figures::THROUGHPUT),
    }
}

/// Half the interval, or half the range, over several runs.
pub(crate) fn half_interval(point: &PointSummary<'_>) -> Option<String> {
    let figure = measured_by(point).filter(|figure| figure.runs > 1)?;
    Some(plus_minus(relative_half_width(&figure)?))
}
