//! The rate of each of several hosts when it measured alone: a sentence for each target,
//! which names the hosts that differ from the others.

use crate::ResultSet;
use crate::format::{grouped, percent, range};
use jostle_model::hosts::HostCeiling;
use jostle_model::plan::Workload;
use jostle_stats::requested::makes_requests;

/// The largest deviation from the median at which a host still counts as an equal client.
const APART: f64 = 0.1;

/// Sentences with a space behind each; nothing where no host was measured alone.
pub(crate) fn ceilings(set: &ResultSet) -> String {
    let plan = &set.experiment.plan;
    let noun = match plan.workload == Workload::Spread || makes_requests(plan) {
        true => "requests",
        false => "acquisitions",
    };
    let all = &set.experiment.calibration.host_ceilings;
    let by_target: Vec<&[HostCeiling]> = all
        .chunk_by(|one, other| one.target == other.target)
        .collect();
    let each = by_target.iter().map(|rows| {
        let target = match by_target.len() {
            1 => String::new(),
            _ => format!(" on {}", rows[0].target),
        };
        format!("Each host alone{target}: {}. ", sentence(rows, noun))
    });
    each.collect()
}

fn sentence(rows: &[HostCeiling], noun: &str) -> String {
    let rates = || rows.iter().map(|row| row.throughput_per_s);
    let least = rates().fold(f64::INFINITY, f64::min).round() as u64;
    let most = rates().fold(0.0, f64::max).round() as u64;
    let range = range(grouped(least), &grouped(most));
    let apart = rows
        .iter()
        .filter(|row| (row.of_median - 1.0).abs() > APART);
    let named: Vec<String> = apart.map(|row| off(row, rows)).collect();
    match named.is_empty() {
        true => format!(
            "{range} {noun}/s; all within {} of the median",
            percent(APART)
        ),
        false => format!("{range} {noun}/s; {}", named.join(", ")),
    }
}

/// A host's deviation, and how busy it was: a host that is not busy waits for its path.
fn off(row: &HostCeiling, rows: &[HostCeiling]) -> String {
    let same = rows.iter().filter(|other| other.host == row.host).count();
    let name = match same {
        1 => row.host.clone(),
        _ => format!("{} (rank {})", row.host, row.rank),
    };
    let side = match row.of_median < 1.0 {
        true => "under",
        false => "over",
    };
    let busy = row.busy_share.map_or(String::new(), |share| {
        format!(" ({} busy)", percent(share.min(1.0)))
    });
    let by = (row.of_median - 1.0).abs() * 100.0;
    format!("{name} {by:.0} % {side} the median{busy}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;

    /// Name, rate and part of the median.
    type One = (&'static str, f64, f64);

    fn rows(target: &str, hosts: &[One]) -> Vec<HostCeiling> {
        let each = hosts.iter().enumerate();
        each.map(|(rank, (host, throughput_per_s, of_median))| HostCeiling {
            target: target.to_owned(),
            rank: rank as u64,
            host: (*host).to_owned(),
            workers: 5,
            throughput_per_s: *throughput_per_s,
            of_median: *of_median,
            busy_share: None,
        })
        .collect()
    }

    fn said(rows: Vec<HostCeiling>) -> String {
        let mut set = made::set();
        set.experiment.calibration.host_ceilings = rows;
        ceilings(&set)
    }

    #[test]
    fn hosts_unlike_the_others_are_named() {
        let table: [(&[One], &str); 5] = [
            (
                &[
                    ("h1", 1_032.4, 1.0),
                    ("h2", 1_000.0, 0.97),
                    ("h3", 774.0, 0.75),
                ],
                "Each host alone: 774 to 1,032 acquisitions/s; h3 25 % under the median. ",
            ),
            (
                &[
                    ("h1", 1_000.0, 1.0),
                    ("h2", 1_099.0, 1.099),
                    ("h3", 901.0, 0.901),
                ],
                "Each host alone: 901 to 1,099 acquisitions/s; all within 10 % of the median. ",
            ),
            (
                &[("vm", 600.0, 0.75), ("vm", 1_000.0, 1.25)],
                "Each host alone: 600 to 1,000 acquisitions/s; vm (rank 0) 25 % under the median, \
                 vm (rank 1) 25 % over the median. ",
            ),
            (
                &[("h1", 500.0, 1.0), ("h2", 500.2, 1.0)],
                "Each host alone: 500 acquisitions/s; all within 10 % of the median. ",
            ),
            (&[], ""),
        ];
        for (hosts, text) in table {
            assert_eq!(said(rows("flock", hosts)), text);
        }
    }

    #[test]
    fn a_weak_host_is_said_to_be_busy_or_not() {
        let mut all = rows("flock", &[("h1", 1_000.0, 1.0), ("h2", 500.0, 0.5)]);
        for row in &mut all {
            row.busy_share = Some(1.04);
        }
        assert!(said(all).ends_with("; h2 50 % under the median (100 % busy). "));
    }

    #[test]
    fn targets_are_told_apart_where_there_are_several() {
        let like = [("h1", 500.0, 1.0), ("h2", 500.0, 1.0)];
        let both = [rows("lockd", &like), rows("redis", &like)].concat();
        let text = said(both);
        assert_eq!(text.matches("Each host alone on ").count(), 2);
        assert!(text.contains("Each host alone on redis: 500 "), "{text}");
    }
}
