//! Connections in the formats for people: the columns of `connect`, and what was checked.

use crate::ResultSet;
use crate::columns::{
    Column, HALF_INTERVAL, TARGET, UNDISTURBED, always, cpu, median, micros, server_cpu, two,
};
use crate::format::{counted, grouped};
use jostle_model::connect::Close;
use jostle_model::record::Run;
use jostle_stats::figures;
use jostle_stats::summary::{Estimate, PointSummary};
use std::collections::BTreeMap;

/// The columns of `connect`.
pub(crate) static COLUMNS: &[Column] = &[
    TARGET,
    always(["source", "addrs"], |point| point.at.sources.map(grouped)),
    // Printed for every curve, because curves without other listeners are compared with
    // those that have some.
    always(["other", "listen"], |point| point.at.listeners.map(grouped)),
    always(["", "open"], |point| point.at.open.map(grouped)),
    // Of `--only bind` the figure; beside connect() it is a part of little weight.
    median(["bind", "p50 us"], figures::BIND_P50, micros).rank(8),
    median(["connect", "p50 us"], figures::CONNECT_P50, micros),
    HALF_INTERVAL,
    UNDISTURBED,
    median(["connect", "p99 us"], figures::CONNECT_P99, micros).rank(1),
    median(["last", "100 us"], figures::CONNECT_LAST_P50, micros).detail(),
    median(["accept", "us"], figures::ACCEPT_P50, micros).rank(3),
    median(["close", "us"], figures::CLOSE_P50, micros).rank(6),
    cpu(["CPU us", "client"]),
    server_cpu(["", "server"]),
    median(["kernel", "kB"], figures::SLAB_BYTES, |bytes| {
        two(bytes / 1e3)
    })
    .rank(4),
];

/// Median time of the call that is measured.
pub(crate) fn measured(point: &PointSummary<'_>) -> Option<Estimate> {
    point
        .of(figures::CONNECT_P50)
        .or(point.of(figures::BIND_P50))
}

/// The checks, the rest that the sweeps left, and the limits that come next.
pub(crate) fn checked(set: &ResultSet) -> Vec<String> {
    let mut said = vec![opened(set)];
    said.extend(time_wait(set));
    said.extend(limits(set));
    said
}

/// Every sweep opens its greatest number once.
fn opened(set: &ResultSet) -> String {
    let made: u64 = set.runs.iter().map(|run| run.operations).sum();
    let served = set.runs.iter().all(|run| {
        run.server
            .is_some_and(|server| server.difference == Some(0))
    });
    match (set.experiment.plan.only, served) {
        (Some(_), _) => format!("{} bound.", counted(made, "socket")),
        (None, true) => format!("{}, each accepted.", counted(made, "connection")),
        (None, false) => format!("{} made.", counted(made, "connection")),
    }
}

fn time_wait(set: &ResultSet) -> Option<String> {
    let plan = &set.experiment.plan;
    // The count covers the whole machine, so that other programs may have added some.
    if plan.only.is_some() || plan.close == Some(Close::Rst) {
        return None;
    }
    let left = |run: &Run| run.connections.as_ref()?.time_wait_left;
    let most = set.runs.iter().filter_map(left).max()?;
    (most > 0).then(|| {
        format!(
            "A sweep left up to {} in TIME_WAIT for a minute (--close rst: none).",
            counted(most, "port")
        )
    })
}

/// The nearest one of each curve at its greatest number.
fn limits(set: &ResultSet) -> Option<String> {
    let mut nearest = BTreeMap::new();
    for run in &set.runs {
        let limits = run.connections.as_ref().map(|c| &c.next_limits);
        if let Some(limit) = limits.and_then(|limits| limits.first()) {
            nearest.insert((run.target.as_str(), run.at.sources), limit);
        }
    }
    let several = nearest.len() > 1;
    let each = nearest.iter().map(|((target, sources), limit)| {
        let of = match several {
            true => {
                let from = counted(sources.unwrap_or(1), "source");
                format!(" ({target} from {from})")
            }
            false => String::new(),
        };
        format!("{} at {}{of}", limit.name, grouped(limit.at))
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| format!("The next limit: {}.", each.join("; ")))
}

#[cfg(test)]
mod tests {
    use crate::{made, table};

    #[test]
    fn the_cliff_as_people_see_it() {
        insta::assert_snapshot!(table::render(&[made::connections()]));
    }

    #[test]
    fn a_sweep_that_a_limit_ended() {
        insta::assert_snapshot!(table::render(&[made::exhausted()]));
    }
}
