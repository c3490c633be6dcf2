//! `recover` in the formats for people: the columns, and what was checked.

use crate::ResultSet;
use crate::columns::{Column, TARGET, always, figure};
use crate::format::{counted, each_once, grouped, time};
use jostle_model::plan::Fault;
use jostle_stats::recover::history::tokens_grow;
use jostle_stats::recover::{Fraction, Summary};
use jostle_stats::summary::PointSummary;

/// The columns of `recover`.
pub(crate) static COLUMNS: &[Column] = &[
    TARGET,
    always(["", "fault"], |point| Some(struck(point.at.fault?))),
    figure(["next grant", "median"], |point| {
        let summary = Summary::of(point)?;
        Some(summary.median_ns.map_or_else(|| otherwise(&summary), time))
    }),
    figure(["", "99 of 100"], |point| {
        Some(time(Summary::of(point)?.nearly_all_ns?))
    })
    .rank(6),
    figure(["", "worst"], |point| {
        let summary = Summary::of(point)?;
        let worst = *summary.granted_ns.last()?;
        Some(match summary.never {
            0 => time(worst),
            _ => otherwise(&summary),
        })
    }),
    figure(["after", "release"], |point| {
        Some(time(Summary::of(point)?.after_release_ns?))
    })
    .rank(5),
    figure(["after lease's", "end"], |point| {
        let (least, most) = Summary::of(point)?.after_lease_ns?;
        Some(format!("{}..{}", signed(least), signed(most)))
    })
    .detail(),
    figure(["after", "return"], |point| {
        let summary = Summary::of(point)?;
        Some(signed(
            summary
                .after_return_ns
                .filter(|_| summary.fault.is_of_server())? as i64,
        ))
    })
    .rank(7),
    figure(TWO_OWNERS, |point| {
        Some(time(Summary::of(point)?.two_believed_ns? as f64))
    })
    .rank(1),
    figure(["old owner", "was told"], |point| {
        yes_or_no(Summary::of(point)?.told)
    })
    .rank(2),
    figure(["stale write", "refused"], |point| {
        yes_or_no(Summary::of(point)?.refused)
    })
    .rank(3),
    figure(["in", "order"], |point| {
        yes_or_no(Summary::of(point)?.in_order)
    })
    .rank(4),
];

/// The title of the time for which two owned the lock.
pub(crate) const TWO_OWNERS: [&str; 2] = ["two owners", "for up to"];

/// `owner killed`, `server paused`, `network cut`.
pub(crate) fn struck(fault: Fault) -> String {
    match fault.struck() {
        (_, "cut off") => "network cut".to_owned(),
        (who, "stopped") => format!("{who} paused"),
        (who, how) => format!("{who} {how}"),
    }
}

/// Where the middle run had no grant before the owner's release: `kept`, `kept 6/12`.
fn otherwise(summary: &Summary) -> String {
    match (summary.never, summary.kept) {
        (0, kept) if kept < summary.runs => format!("kept {kept}/{}", summary.runs),
        (0, _) => "kept".to_owned(),
        _ => format!(">{}", time(summary.within_ns as f64)),
    }
}

/// A time on either side of a moment.
pub(crate) fn signed(nanos: i64) -> String {
    match nanos {
        n if n < 0 => format!("-{}", time(n.unsigned_abs() as f64)),
        n => time(n as f64),
    }
}

fn yes_or_no(of: Fraction) -> Option<String> {
    match (of.of, of.all()) {
        (0, _) => None,
        (_, Some(true)) => Some("yes".to_owned()),
        (_, Some(false)) => Some("no".to_owned()),
        (all, None) => Some(format!("{} of {all}", of.count)),
    }
}

/// The checks made, and the worth of the tokens.
pub(crate) fn checked(set: &ResultSet) -> Vec<String> {
    let seen = || set.runs.iter().filter_map(|run| run.exclusion.as_ref());
    let grants: u64 = seen().map(|seen| seen.checked).sum();
    let overlaps: u64 = seen().map(|seen| seen.violations).sum();
    let faults = set.runs.iter().filter(|p| p.recovery.is_some()).count() as u64;
    let found = match (grants, overlaps) {
        (0, _) => String::new(),
        (_, 0) => {
            ": no two owners were entitled to a lock at a time (by a live lease, connection or \
             process)"
                .to_owned()
        }
        (_, some) => format!(": two entitled owners in {}", grouped(some)),
    };
    let mut said = vec![format!(
        "{} checked{found}; {} struck while one owned and the others waited.",
        counted(grants, "grant"),
        counted(faults, "fault"),
    )];
    let anew = set.runs.iter().filter(|run| {
        let grows = run.recovery.as_deref().and_then(tokens_grow);
        grows == Some(false)
    });
    let anew = each_once(anew.map(|run| {
        let fault = run.at.fault.map_or_else(String::new, struck);
        format!("{} ({fault})", run.target)
    }));
    if !anew.is_empty() {
        said.push(format!(
            "Fencing tokens did not grow: {}; a resource then refuses the new owner's writes.",
            anew.join(", ")
        ));
    }
    said
}

/// Columns of `--format gnuplot`.
pub(crate) const GNUPLOT_HEADER: &str = "fault, runs, next grant median in s, worst in s, runs in which the owner kept the lock, \
     runs without a grant, longest time in s for which two believed that they owned";

/// A line of `--format gnuplot`; empty of other workloads.
pub(crate) fn line(point: &PointSummary<'_>) -> String {
    let Some(summary) = Summary::of(point) else {
        return String::new();
    };
    let seconds = |ns: Option<f64>| ns.map_or("nan".to_owned(), |ns| format!("{:.6}", ns / 1e9));
    format!(
        "{} {} {} {} {} {} {}\n",
        summary.fault,
        summary.runs,
        seconds(summary.median_ns),
        seconds(summary.worst_ns),
        summary.kept,
        summary.never,
        seconds(summary.two_believed_ns.map(|ns| ns as f64)),
    )
}

#[cfg(test)]
mod tests {
    use crate::{made, table};
    use jostle_model::plan::Fault;

    /// A server that was killed had `kept` twice, and no time, where 6 of 12 runs had one.
    #[test]
    fn times_of_the_runs_that_had_a_grant_stand_beside_those_that_kept_the_lock() {
        let mut set = made::recovered();
        let mut granted = set.runs[1].clone();
        granted.at.fault = Some(Fault::Stop);
        granted.recovery.as_mut().unwrap().fault = Fault::Stop;
        set.runs.push(granted);
        let text = table::render(&[set]);
        let row = text.lines().find(|line| line.contains("owner paused"));
        let cells: Vec<&str> = row.unwrap().split_whitespace().collect();
        assert_eq!(cells[2..6], ["kept", "1/2", "240", "us"], "{text}");
    }
}
