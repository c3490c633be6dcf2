//! A host whose own figures are INVALID makes the whole INVALID, by that host's name.
//!
//! Each row of a host carries the verdict of the same checks on its own figures. No
//! check by itself: the reasons keep the names of those that found them.

use super::{CHECKS, with_text};
use jostle_model::record::{Reason, Run, Status};
use std::collections::BTreeMap;

/// Hosts that are named in one reason.
const NAMED: usize = 3;

/// The reasons against the whole, with what the checks report of its hosts:
///
/// - a host's own figures that are INVALID in half of the runs or more make the whole
///   so;
/// - what a check finds in the whole and in a host is reported of the host.
///
/// A reason that is SUSPECT for a host alone is only in that host's row, because the other
/// hosts average it out.
pub fn attribute(mut reasons: Vec<Reason>, runs: &[&Run]) -> Vec<Reason> {
    let flagged = flagged(runs);
    if flagged.is_empty() {
        return reasons;
    }
    for check in CHECKS {
        let of_check = flagged.iter().filter(|one| one.reason.check == check.name);
        let mut of_check: Vec<&Flagged<'_>> = of_check.collect();
        of_check.sort_by_key(|one| std::cmp::Reverse(one.reason.is));
        let Some(worst) = of_check.first() else {
            continue;
        };
        let whole = reasons.iter().position(|r| r.check == check.name);
        let is = whole.map_or(Status::Valid, |at| reasons[at].is);
        let counts = worst.reason.is == Status::Invalid || whole.is_some();
        // If the check is worse for the whole than for every host, no host is named.
        if !counts || worst.reason.is < is {
            continue;
        }
        let of_check = of_check.iter();
        let alike = of_check.filter(|one| one.reason.is == worst.reason.is);
        let hosts: Vec<String> = alike.map(|one| one.host.to_owned()).collect();
        let reason = with_text(Reason {
            // A reason without data changes in nothing else.
            text: named(&hosts, &worst.reason.text),
            hosts,
            ..worst.reason.clone()
        });
        match whole {
            Some(at) => reasons[at] = reason,
            None => reasons.push(reason),
        }
    }
    let place = |reason: &Reason| CHECKS.iter().position(|check| check.name == reason.check);
    reasons.sort_by_key(place);
    reasons
}

/// A finding about one host in half of the runs or more.
struct Flagged<'a> {
    host: &'a str,
    reason: Reason,
}

fn flagged<'a>(runs: &[&'a Run]) -> Vec<Flagged<'a>> {
    let mut found = BTreeMap::<(u64, &str), (&'a str, Vec<&'a Reason>)>::new();
    for row in runs.iter().flat_map(|run| &run.hosts) {
        for reason in &row.verdict.reasons {
            let key = (row.rank, reason.check.as_str());
            let entry = found.entry(key).or_insert((&row.host, Vec::new()));
            entry.1.push(reason);
        }
    }
    let flagged = found.into_values().filter_map(|(host, all)| {
        let often = |some: &[&Reason]| !some.is_empty() && 2 * some.len() >= runs.len();
        let invalid = all.iter().copied();
        let invalid: Vec<&Reason> = invalid.filter(|r| r.is == Status::Invalid).collect();
        let reason = match (often(&invalid), often(&all)) {
            (true, _) => invalid[0].clone(),
            (false, true) => Reason {
                is: Status::Suspect,
                ..all[0].clone()
            },
            _ => return None,
        };
        Some(Flagged { host, reason })
    });
    flagged.collect()
}

/// The text with the hosts' names: the finding of the first host, and the names of the
/// others. Unchanged if there are no hosts.
pub fn named(hosts: &[String], text: &str) -> String {
    let Some((first, others)) = hosts.split_first() else {
        return text.to_owned();
    };
    let also = match others {
        [] => String::new(),
        few if few.len() < NAMED => format!("; likewise {}", few.join(", ")),
        many => format!(
            "; likewise {} and {} others",
            many[..NAMED - 1].join(", "),
            many.len() - (NAMED - 1)
        ),
    };
    format!("{first}: {text}{also}")
}

#[cfg(test)]
mod tests {
    use crate::checks::{Evidence, verdict};
    use crate::fixtures::{experiment, point};
    use jostle_model::hosts::HostPart;
    use jostle_model::record::{Claim, LimitedBy, Reason, Run, Server, Status, Verdict};

    fn row(rank: u64, is: Status, check: &str) -> HostPart {
        let reasons = match is {
            Status::Valid => Vec::new(),
            is => vec![Reason {
                check: check.to_owned(),
                is,
                claims: vec![Claim::Absolute],
                text: format!("found by {check}"),
                ..Reason::default()
            }],
        };
        HostPart {
            rank,
            host: format!("h{rank}"),
            verdict: Verdict::of(reasons),
            ..HostPart::default()
        }
    }

    fn run(rows: &[(Status, &str)]) -> Run {
        let rows = rows.iter().zip(0..);
        Run {
            hosts: rows
                .map(|((is, check), rank)| row(rank, *is, check))
                .collect(),
            ..point()
        }
    }

    fn found(runs: &[Run]) -> Verdict {
        verdict(&Evidence {
            experiment: &experiment(),
            runs: &runs.iter().collect::<Vec<_>>(),
        })
    }

    #[test]
    fn a_host_that_is_invalid_makes_the_whole_so_and_is_named() {
        let verdict = found(&[run(&[(Status::Valid, ""), (Status::Invalid, "throttled")])]);
        assert_eq!(verdict.is, Status::Invalid);
        assert_eq!(verdict.reasons[0].text, "h1: found by throttled");
        assert_eq!(verdict.reasons[0].check, "throttled");
    }

    #[test]
    fn what_is_suspect_of_one_host_alone_stands_in_its_row() {
        let verdict = found(&[run(&[(Status::Suspect, "steal"), (Status::Valid, "")])]);
        assert_eq!(verdict, Verdict::default());
    }

    #[test]
    fn what_the_whole_shows_too_is_said_of_the_host() {
        let mut run = run(&[(Status::Valid, ""), (Status::Suspect, "generator")]);
        run.server = Some(Server::default());
        run.thread_loads = vec![jostle_model::record::ThreadLoad {
            busy_share: 0.95,
            ..Default::default()
        }];
        let verdict = found(&[run]);
        assert_eq!(verdict.reasons.len(), 1);
        assert_eq!(verdict.reasons[0].text, "h1: found by generator");
        assert_eq!(verdict.limited_by, Some(LimitedBy::Generator));
    }

    #[test]
    fn half_of_the_runs_are_flagged() {
        let bad = || run(&[(Status::Invalid, "steal")]);
        let good = || run(&[(Status::Valid, "")]);
        assert_eq!(found(&[bad(), good()]).is, Status::Invalid);
        assert_eq!(found(&[bad(), good(), good()]).is, Status::Valid);
    }

    #[test]
    fn many_hosts_are_counted_and_not_all_named() {
        let rows = [(Status::Invalid, "throttled"); 6];
        let text = found(&[run(&rows)]).reasons[0].text.clone();
        assert_eq!(text, "h0: found by throttled; likewise h1, h2 and 3 others");
    }
}
