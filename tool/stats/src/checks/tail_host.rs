//! Do the slowest requests belong to one host?

use super::{Evidence, Found, percent, seen};
use crate::tail::{self, Part};
use jostle_model::Remedy;
use jostle_model::record::Claim;

check! {
    "tail_host" in "hosts": "Do the slowest requests belong to one host of several?";
    threshold: text!(
        "a host with at least {} times its share of the requests beyond the 99th percentile \
         of all hosts, and with more than chance explains (binomial, p < {} over the number \
         of hosts), pooled over the runs: SUSPECT for `distribution`",
        tail::TIMES_ITS_SHARE,
        tail::P
    ),
    source: "Clopper & Pearson, Biometrika 26, 1934, for the binomial tail; what is slow on one \
             host only is that host or its way to the server, and not the server",
    fooled_by: "half of the hosts being slow, each of them then with at most twice its share; a \
                server that treats hosts differently",
    advice: "look at that host and its way to the server, then run it again",
    words: seen,
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    let (names, parts) = tail::pooled(evidence.runs);
    let owners = tail::owners(&parts);
    let all = |figure: fn(&Part) -> u64| parts.iter().map(figure).sum::<u64>() as f64;
    let (count, beyond) = (all(|part| part.count), all(|part| part.beyond));
    let list: Vec<String> = owners
        .iter()
        .map(|at| {
            format!(
                "{}: {} of the requests, and {} of those beyond the 99th percentile",
                names[*at].1,
                percent(parts[*at].count as f64 / count),
                percent(parts[*at].beyond as f64 / beyond)
            )
        })
        .collect();
    (!list.is_empty()).then(|| {
        Found::suspect(&[Claim::Distribution], list.len() as f64, 0.0)
            .seen(list.join("; "))
            .remedy(Remedy::Again)
    })
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{judge, point};
    use jostle_model::hosts::HostPart;
    use jostle_model::record::{Distribution, Run, Status};

    fn run(hosts: &[(u64, u64)]) -> Run {
        let rows = hosts
            .iter()
            .zip(0..)
            .map(|((count, beyond), rank)| HostPart {
                rank,
                host: format!("h{rank}"),
                latency_ns: Some(Distribution {
                    count: *count,
                    ..Distribution::default()
                }),
                beyond_p99: Some(*beyond),
                ..HostPart::default()
            });
        Run {
            hosts: rows.collect(),
            ..point()
        }
    }

    #[test]
    fn the_host_is_named_with_both_shares() {
        let reason = judge(&CHECK, &[run(&[(1_000, 3), (1_000, 24), (1_000, 3)])]).unwrap();
        assert_eq!(reason.is, Status::Suspect);
        assert!(
            reason
                .text
                .starts_with("h1: 33.3 % of the requests, and 80.0 %")
        );
    }

    #[test]
    fn hosts_that_are_served_alike_are_not() {
        assert_eq!(
            judge(&CHECK, &[run(&[(1_000, 12), (1_000, 9), (1_000, 9)])]),
            None
        );
        assert_eq!(judge(&CHECK, &[point()]), None);
    }
}
