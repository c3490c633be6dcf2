//! Merges the data of several hosts into one, as if their workers had been one
//! generator's: pure.
//!
//! Distributions are merged bucket by bucket and never by their percentiles. Values of each
//! worker or generator are concatenated in the order of ranks; counts are added. Figures
//! that cannot be known across hosts are left out: tool/docs/method/hosts.md lists them, with
//! reasons.

use super::machines;
use super::{Host, Part};
use crate::order::{GrantLog, RunData, RunOrder, SpreadData};
use jostle_model::record::{
    Accounts, Circumstances, Count, Counts, GeneratorProcess, Look, ThreadLoad,
};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Overlaps that are told in words.
const EXAMPLES: usize = 5;

/// The work of all of them. The window is the longest one: each host measures its own, by its own
/// clock.
pub(super) fn merge(whole: &RunOrder, hosts: &[Host], parts: &[Part]) -> RunData {
    let mut each = parts.iter().map(|part| &part.of.data);
    let mut data = each.next().cloned().unwrap_or_default();
    each.for_each(|one| data.join(one));
    // Each host's times are by its own clock.
    (data.began_ns, data.grants) = (0, GrantLog::default());
    data.window.start_spread_ns = start_spread(parts);
    data.exclusion.reader_coverage = reader_coverage(whole, parts);
    let each = parts.iter();
    let examples = each.map(|part| (part.of.rank, &part.of.data.exclusion.examples[..]));
    data.exclusion.examples = said(hosts, examples);
    data.exclusion.examples.truncate(EXAMPLES);
    // A host knows which of its own workers had a lock last, not which of another host's had
    // it since.
    if whole.meets_others() {
        data.figures.retain(|name, _| !name.starts_with("handoff_"));
    }
    // It was asked when one host's workers held theirs, whatever the others did.
    if let Some(server) = &mut data.server {
        server.bytes_per_held_lock = None;
    }
    let each = parts.iter();
    let each = each.map(|part| (part.of.rank, &part.of.data.around));
    let each: Vec<_> = each.collect();
    data.around = around(hosts, &each);
    if let Some(spread) = &mut data.spread {
        let each = || {
            parts
                .iter()
                .filter_map(|part| part.of.data.spread.as_deref())
        };
        let loads = parts.iter().flat_map(|part| generators(hosts, parts, part));
        data.thread_loads = loads.collect();
        **spread = SpreadData {
            in_flight_ns: each().map(|one| one.in_flight_ns).sum(),
            still_ns: each().map(|one| one.still_ns).sum(),
            sides: machines::sides(hosts, parts),
        };
    }
    data
}

/// The circumstances of all of them.
pub(super) fn around(hosts: &[Host], each: &[(usize, &Circumstances)]) -> Circumstances {
    let all = || each.iter().map(|(_, one)| *one);
    let said = |texts: fn(&Circumstances) -> &[String]| {
        said(hosts, each.iter().map(|(rank, one)| (*rank, texts(one))))
    };
    let looks = each.iter().flat_map(|(rank, one)| {
        let host = Some(super::name(hosts, *rank));
        let looks = one.looks.iter().cloned();
        looks.map(move |look| Look {
            host: host.clone(),
            ..look
        })
    });
    let during = said(|one| one.during.as_slice());
    let machines = each.iter();
    let machines: Vec<_> = machines.map(|(rank, one)| (*rank, one.machine)).collect();
    let accounts = each
        .iter()
        .map(|(rank, one)| Some((*rank, (**one.accounts.as_ref()?).clone())));
    let accounts: Option<Vec<(usize, Accounts)>> = accounts.collect();
    let accounts = accounts.and_then(|each| machines::accounts_together(hosts, &each));
    Circumstances {
        counts: counts(each),
        machine: machines::together(hosts, &machines),
        accounts: accounts.map(Box::new),
        during: (!during.is_empty()).then(|| during.join("; ")),
        errors: counted(all().map(|one| &one.errors)),
        messages: said(|one| &one.messages),
        looks: looks.collect(),
        deaths: said(|one| &one.deaths),
        setup: agreed(each),
        // Its processes are on one host.
        server_stood: all()
            .filter_map(|one| one.server_stood)
            .max_by_key(|stood| stood.still),
        // The pulse belongs to one machine, and is compared with itself only.
        anchor: all().next().and_then(|one| one.anchor),
        interference: all().next().and_then(|one| one.interference.clone()),
        ..Circumstances::default()
    }
}

/// The texts of all hosts, each with its host's name.
fn said<'a>(hosts: &[Host], each: impl Iterator<Item = (usize, &'a [String])>) -> Vec<String> {
    let mut all = Vec::new();
    for (rank, texts) in each {
        let name = super::name(hosts, rank);
        all.extend(texts.iter().map(|text| format!("{name}: {text}")));
    }
    all
}

/// The counts that are known on all hosts.
fn counts(each: &[(usize, &Circumstances)]) -> Counts {
    let of = |count: &Count| {
        let each = each.iter().map(|(_, one)| one.counts.get(count.name()));
        Some((count.name().to_owned(), each.sum::<Option<u64>>()?))
    };
    Count::ALL.iter().filter_map(of).collect()
}

/// The time from the first arrival of a worker to the last, as rank 0 sees it, at most: the
/// spread of the hosts' starts with the uncertainty of their clocks, plus the largest
/// spread within one host.
fn start_spread(parts: &[Part]) -> u64 {
    let began = |part: &Part, sign: i64| part.of.late_ns + sign * part.of.clock.within_ns as i64;
    let first = parts.iter().map(|part| began(part, -1)).min();
    let last = parts.iter().map(|part| began(part, 1)).max();
    let hosts = match parts.len() {
        0 | 1 => 0,
        _ => first
            .zip(last)
            .map_or(0, |(first, last)| last.abs_diff(first)),
    };
    let workers = parts.iter().map(|part| part.of.data.window.start_spread_ns);
    hosts + workers.max().unwrap_or(0)
}

/// Sums by name.
pub(super) fn counted<'a, V: Copy + Default + AddAssign + 'a>(
    parts: impl Iterator<Item = &'a BTreeMap<String, V>>,
) -> BTreeMap<String, V> {
    let mut sums: BTreeMap<String, V> = BTreeMap::new();
    for (name, count) in parts.flatten() {
        *sums.entry(name.clone()).or_default() += *count;
    }
    sums
}

/// Facts about the set-up that all hosts state alike.
fn agreed(each: &[(usize, &Circumstances)]) -> BTreeMap<String, f64> {
    let Some(((_, first), others)) = each.split_first() else {
        return BTreeMap::new();
    };
    let mut all = first.setup.clone();
    all.retain(|name, value| {
        others
            .iter()
            .all(|(_, one)| one.setup.get(name) == Some(value))
    });
    all
}

/// A writer looks at the readers of its own host only: of workers of which a host
/// has the share s, s of the writers look at s of the readers.
fn reader_coverage(whole: &RunOrder, parts: &[Part]) -> Option<f64> {
    if !whole.workload.wants().shared
        || !parts.iter().any(|part| part.of.data.exclusion.checked > 0)
    {
        return None;
    }
    let all: usize = parts.iter().map(|part| part.order.workers).sum();
    let seen = parts.iter().map(|part| {
        let share = part.order.workers as f64 / all.max(1) as f64;
        share * share * part.of.data.exclusion.reader_coverage.unwrap_or(1.0)
    });
    Some(seen.sum())
}

/// The generators of one host, who share their CPUs with those of the same machine.
pub(super) fn generators(hosts: &[Host], parts: &[Part], part: &Part) -> Vec<ThreadLoad> {
    let of_cpus = machines::generators_of_cpus(hosts, parts, part.of.rank);
    let rank = Some(part.of.rank as u64);
    let each = part.of.data.thread_loads.iter();
    each.map(|load| ThreadLoad {
        busy_share: load.busy_share.max(of_cpus),
        process: load.process.map(|of| GeneratorProcess { rank, ..of }),
        ..*load
    })
    .collect()
}

#[cfg(test)]
mod tests;
