//! The hosts that the slowest requests belong to.
//!
//! If all hosts were served alike, each request would be as likely among the slowest
//! as any other, and a host would have about its share of them.

use crate::beta::regularized;
use jostle_model::record::{Buckets, Distribution, Run};
use std::collections::BTreeMap;

/// The probability that any host is named although none differs.
pub const P: f64 = 0.001;
/// A named host must also have this many times its share: requests of one host are not
/// independent, because a single pause makes many of them slow.
pub(crate) const TIMES_ITS_SHARE: f64 = 2.0;

/// One host's part in the slowest requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its requests.
    pub count: u64,
    /// Those beyond the 99th percentile of all hosts.
    pub beyond: u64,
}

/// The distribution whose slowest values are asked for: from the intended start to
/// the answer at a rate, else the request, else the wait for the lock; of connections,
/// connect() by itself.
pub fn figure(run: &Run) -> Option<&'static str> {
    let names = [
        "response_ns",
        "service_ns",
        "acquire_ns",
        "batch_ns",
        "connect_ns",
    ];
    let has = |name: &&str| {
        parts(name)
            .iter()
            .any(|part| run.histograms.contains_key(*part))
    };
    names.into_iter().find(has)
}

/// The histograms that a distribution consists of.
fn parts(figure: &str) -> Vec<&str> {
    match figure {
        "connect_ns" => vec!["connect_even_ns", "connect_odd_ns"],
        whole => vec![whole],
    }
}

/// Its values.
pub fn buckets(run: &Run, figure: &str) -> Option<Buckets> {
    let mut counts = BTreeMap::new();
    let parts = parts(figure).into_iter();
    for part in parts.filter_map(|part| run.histograms.get(part)) {
        for (floor, count) in &part.0 {
            *counts.entry(*floor).or_insert(0) += count;
        }
    }
    (!counts.is_empty()).then(|| Buckets(counts.into_iter().collect()))
}

/// That distribution.
pub fn distribution(run: &Run, figure: &str) -> Option<Distribution> {
    match figure {
        "response_ns" => run.times.response_ns.clone(),
        "service_ns" => run.times.service_ns.clone(),
        "acquire_ns" => run.acquire_ns.as_ref().map(|waits| waits.granted.clone()),
        "batch_ns" => run.times.batch_ns.clone(),
        "connect_ns" => run.times.connect_ns.clone(),
        _ => None,
    }
}

/// How many of a host's values lie in buckets above that in which the 99th percentile
/// of all hosts' lies.
pub fn beyond_p99(all: &Buckets, own: &Buckets) -> u64 {
    let total: u64 = all.0.iter().map(|(_, count)| count).sum();
    let mut seen = 0;
    let p99 = all.0.iter().find(|(_, count)| {
        seen += count;
        // Rank ceil(0.99 n), as everywhere.
        u128::from(seen) * 100 >= u128::from(total) * 99
    });
    let beyond = |edge: u64| own.0.iter().filter(move |(floor, _)| *floor > edge);
    p99.map_or(0, |(edge, _)| beyond(*edge).map(|(_, count)| count).sum())
}

/// The part of each host, by rank and name, over all runs of a point.
pub fn pooled<'a>(runs: &[&'a Run]) -> (Vec<(u64, &'a str)>, Vec<Part>) {
    let mut parts = BTreeMap::<u64, (&str, Part)>::new();
    for row in runs.iter().flat_map(|run| &run.hosts) {
        let (Some(latency), Some(beyond)) = (&row.latency_ns, row.beyond_p99) else {
            continue;
        };
        let entry = parts
            .entry(row.rank)
            .or_insert((&row.host, Part::default()));
        entry.1.count += latency.count;
        entry.1.beyond += beyond;
    }
    let each = parts.into_iter();
    each.map(|(rank, (name, part))| ((rank, name), part))
        .unzip()
}

/// The places of those hosts whose requests are among the slowest at least twice as
/// often as their number makes likely, and more often than chance explains.
///
/// A host that made the share s of all requests has at least b of the B slow ones with
/// the probability P(X >= b) for X binomial (B, s), which is I_s(b, B - b + 1), the
/// regularized incomplete beta function. It is named under 0.001 over the number of hosts
/// (Bonferroni).
pub fn owners(parts: &[Part]) -> Vec<usize> {
    let all = |figure: fn(&Part) -> u64| parts.iter().map(figure).sum::<u64>() as f64;
    let (count, beyond) = (all(|part| part.count), all(|part| part.beyond));
    let owns = |part: &Part| {
        let (share, own) = (part.count as f64 / count, part.beyond as f64);
        if part.beyond == 0 || own < TIMES_ITS_SHARE * share * beyond {
            return false;
        }
        // One that made nearly all requests cannot have twice its share.
        regularized(share, own, beyond - own + 1.0) < P / parts.len() as f64
    };
    let named = parts.iter().enumerate().filter(|(_, part)| owns(part));
    named.map(|(place, _)| place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(parts: &[(u64, u64)]) -> Vec<usize> {
        let parts = parts.iter().map(|(count, beyond)| Part {
            count: *count,
            beyond: *beyond,
        });
        owners(&parts.collect::<Vec<_>>())
    }

    #[test]
    fn a_host_owns_the_tail_with_twice_its_share_that_chance_does_not_explain() {
        // (requests, beyond the 99th percentile) of each host, and who is named.
        type Case = (&'static [(u64, u64)], &'static [usize]);
        let table: [Case; 8] = [
            (&[(1_000, 10), (1_000, 10), (1_000, 10)], &[]),
            (&[(1_000, 2), (1_000, 26), (1_000, 2)], &[1]),
            // Twice its share of so few is chance: P(X >= 4) is 0.11 for (6, 1/3).
            (&[(200, 1), (200, 4), (200, 1)], &[]),
            // Sure, but less than twice its share.
            (&[(100_000, 600), (100_000, 1_400), (100_000, 1_000)], &[]),
            // Few requests, and most of the slow ones.
            (&[(10_000, 20), (10_000, 25), (500, 160)], &[2]),
            // Two of six.
            (
                &[
                    (1_000, 1),
                    (1_000, 28),
                    (1_000, 1),
                    (1_000, 27),
                    (1_000, 2),
                    (1_000, 1),
                ],
                &[1, 3],
            ),
            (&[(1_000, 10)], &[]),
            (&[], &[]),
        ];
        for (parts, who) in table {
            assert_eq!(named(parts), who, "{parts:?}");
        }
    }

    #[test]
    fn the_threshold_is_the_binomial_s_tail_over_the_number_of_hosts() {
        // Two equal hosts, 12 slow requests: P(X >= 12) = 2^-12 = 0.00024, and of 11
        // 2^-11 = 0.00049; each below and at 0.0005. Of 10 it is 0.00098.
        assert_eq!(named(&[(500, 12), (500, 0)]), [0]);
        assert_eq!(named(&[(500, 11), (500, 0)]), [0]);
        assert_eq!(named(&[(500, 10), (500, 0)]), [0; 0]);
    }

    #[test]
    fn what_lies_beyond_is_counted_by_the_bucket_of_the_99th_percentile() {
        let all = Buckets(vec![(100, 500), (200, 490), (300, 4), (400, 6)]);
        // Rank 990 of 1000 lies in the bucket of 200.
        assert_eq!(beyond_p99(&all, &all), 10);
        assert_eq!(beyond_p99(&all, &Buckets(vec![(200, 7), (400, 5)])), 5);
        assert_eq!(beyond_p99(&Buckets::default(), &Buckets::default()), 0);
    }
}
