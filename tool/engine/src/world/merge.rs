//! Merges the data of several hosts into one, as if their workers had been one
//! generator's: pure.
//!
//! Distributions are merged bucket by bucket and never by their percentiles. Values of each
//! worker or generator are concatenated in the order of ranks; counts are added. Figures
//! that cannot be known across hosts are left out: tool/docs/method/hosts.md lists them, with
//! reasons.

use super::machines;
use super::{Host, Part};
use crate::order::{
    GeneratorData, Merged, OpenLoopData, RequestData, RunData, RunOrder, SpreadData,
};
use jostle_model::record::{Accounts, Buckets, Circumstances, Count, Counts, Machine};
use std::collections::BTreeMap;

/// Overlaps that are told in words.
const EXAMPLES: usize = 5;

/// What all of them did. The window is the longest one: each host measures its own,
/// by its own clock.
pub(super) fn merge(whole: &RunOrder, hosts: &[Host], parts: &[Part]) -> RunData {
    let all = || parts.iter().map(|part| &part.of.data);
    let most = |figure: fn(&RunData) -> u64| all().map(figure).max().unwrap_or(0);
    let sum = |figure: fn(&RunData) -> u64| all().map(figure).sum::<u64>();
    let known = |figure: fn(&RunData) -> Option<u64>| all().map(figure).sum::<Option<u64>>();
    let mut data = RunData {
        window_ns: most(|one| one.window_ns),
        warmup_ns: most(|one| one.warmup_ns),
        ramp_ns: most(|one| one.ramp_ns),
        drain_ns: most(|one| one.drain_ns),
        start_spread_ns: start_spread(parts),
        operations: one_after_the_other(parts, |one| &one.operations),
        elapsed_ns: one_after_the_other(parts, |one| &one.elapsed_ns),
        longest_wait_ns: one_after_the_other(parts, |one| &one.longest_wait_ns),
        thread_loads: one_after_the_other(parts, |one| &one.thread_loads),
        pending: sum(|one| one.pending),
        phases_ns: phases(parts),
        release_slices: slices(
            parts,
            |one| &one.release_slices,
            |a, b| (a.0 + b.0, a.1 + b.1),
        ),
        slices: slices(
            parts,
            |one| &one.slices,
            |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2),
        ),
        figures: figures(whole, parts),
        censored: merged(all().map(|one| &one.censored)),
        censored_by_mode: all().any(|one| one.censored_by_mode.is_some()).then(|| {
            let of =
                |mode: usize| all().filter_map(move |one| one.censored_by_mode.as_ref()?.get(mode));
            Box::new([merged(of(0)), merged(of(1))])
        }),
        cpu_ns: known(|one| one.cpu_ns),
        spun_ns: sum(|one| one.spun_ns),
        idled: (sum(|one| one.idled.0), sum(|one| one.idled.1)),
        usage_ns: (sum(|one| one.usage_ns.0), sum(|one| one.usage_ns.1)),
        runqueue_wait_ns: known(|one| one.runqueue_wait_ns),
        switches: known(|one| one.switches),
        around: Circumstances {
            counts: counts(parts),
            machine: machines::together(hosts, &machines(parts)),
            accounts: accounts(hosts, parts),
            errors: counted(all().map(|one| &one.around.errors)),
            setup: agreed(parts, |one| &one.around.setup),
            // The pulse belongs to one machine, and is compared with itself only.
            anchor: parts.first().and_then(|part| part.of.data.around.anchor),
            ..Circumstances::default()
        },
        excludes: all().any(|one| one.excludes),
        cpu_read_ns: most(|one| one.cpu_read_ns),
        // Each host that asks is told what all hosts did.
        server_counted: all().find_map(|one| one.server_counted),
        is_remote: all().any(|one| one.is_remote),
        server_binds: all().find_map(|one| one.server_binds),
        server_unbinds: all().find_map(|one| one.server_unbinds),
        server_cpu_ns: all().filter_map(|one| one.server_cpu_ns).max(),
        received: sum(|one| one.received),
        traffic: all()
            .filter_map(|one| one.traffic)
            .reduce(|one, other| (one.0 + other.0, one.1 + other.1)),
        failovers: sum(|one| one.failovers),
        spread: spread(hosts, parts),
        requests: requests(parts),
        ..locks(whole, parts)
    };
    words(&mut data, hosts, parts);
    data
}

/// What became of attempts, and what the hosts' witnesses saw.
fn locks(whole: &RunOrder, parts: &[Part]) -> RunData {
    let all = || parts.iter().map(|part| &part.of.data);
    let most = |figure: fn(&RunData) -> u64| all().map(figure).max().unwrap_or(0);
    let sum = |figure: fn(&RunData) -> u64| all().map(figure).sum::<u64>();
    RunData {
        stamped: sum(|one| one.stamped),
        contended: sum(|one| one.contended),
        streak: most(|one| one.streak),
        streak_waited: most(|one| one.streak_waited),
        timeouts: sum(|one| one.timeouts),
        refusals: sum(|one| one.refusals),
        checked: sum(|one| one.checked),
        violations: sum(|one| one.violations),
        holder_died: sum(|one| one.holder_died),
        lost_updates: sum(|one| one.lost_updates),
        tokens: (sum(|one| one.tokens.0), sum(|one| one.tokens.1)),
        reader_coverage: reader_coverage(whole, parts),
        ..RunData::default()
    }
}

/// What is known on all hosts.
fn counts(parts: &[Part]) -> Counts {
    let of = |count: &Count| {
        let each = parts
            .iter()
            .map(|part| part.of.data.around.counts.get(count.name()));
        Some((count.name().to_owned(), each.sum::<Option<u64>>()?))
    };
    Count::ALL.iter().filter_map(of).collect()
}

fn machines(parts: &[Part]) -> Vec<(usize, Machine)> {
    let each = parts.iter();
    each.map(|part| (part.of.rank, part.of.data.around.machine))
        .collect()
}

fn accounts(hosts: &[Host], parts: &[Part]) -> Option<Box<Accounts>> {
    let each: Option<Vec<(usize, Accounts)>> = parts
        .iter()
        .map(|part| {
            Some((
                part.of.rank,
                (**part.of.data.around.accounts.as_ref()?).clone(),
            ))
        })
        .collect();
    machines::accounts_together(hosts, &each?).map(Box::new)
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
    let workers = parts.iter().map(|part| part.of.data.start_spread_ns);
    hosts + workers.max().unwrap_or(0)
}

fn one_after_the_other<V: Copy>(parts: &[Part], values: fn(&RunData) -> &Vec<V>) -> Vec<V> {
    let each = parts.iter().flat_map(|part| values(&part.of.data));
    each.copied().collect()
}

fn slices<V: Copy + Default>(
    parts: &[Part],
    values: fn(&RunData) -> &Vec<V>,
    add: fn(V, V) -> V,
) -> Vec<V> {
    let mut sums = Vec::new();
    for part in parts {
        let slices = values(&part.of.data);
        sums.resize(sums.len().max(slices.len()), V::default());
        for (sum, slice) in sums.iter_mut().zip(slices) {
            *sum = add(*sum, *slice);
        }
    }
    sums
}

/// The longest of each; None if one host has none.
fn phases(parts: &[Part]) -> Option<(u64, u64)> {
    let each: Option<Vec<(u64, u64)>> = parts.iter().map(|part| part.of.data.phases_ns).collect();
    each?
        .into_iter()
        .reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))
}

/// By name. A host knows which of its own workers had a lock last, not which of
/// another host's had it since: hand-offs are left out where they meet.
fn figures(whole: &RunOrder, parts: &[Part]) -> BTreeMap<String, Merged> {
    let names = parts.iter().flat_map(|part| part.of.data.figures.keys());
    let mut figures = BTreeMap::new();
    for name in names {
        if whole.meets_others() && name.starts_with("handoff_") || figures.contains_key(name) {
            continue;
        }
        let each = parts
            .iter()
            .filter_map(|part| part.of.data.figures.get(name));
        figures.insert(name.clone(), merged(each));
    }
    figures
}

/// Bucket by bucket.
pub(super) fn merged<'a>(parts: impl Iterator<Item = &'a Merged>) -> Merged {
    let mut counts = BTreeMap::new();
    let mut sum: Option<Merged> = None;
    for part in parts.filter(|part| !part.buckets.0.is_empty()) {
        for (floor, count) in &part.buckets.0 {
            *counts.entry(*floor).or_insert(0) += count;
        }
        let sum = sum.get_or_insert_with(|| Merged {
            min: u64::MAX,
            ..Merged::default()
        });
        sum.sum += part.sum;
        sum.min = sum.min.min(part.min);
        sum.max = sum.max.max(part.max);
    }
    let mut sum = sum.unwrap_or_default();
    sum.buckets = Buckets(counts.into_iter().collect());
    sum
}

/// Sums by name.
pub(super) fn counted<'a>(
    parts: impl Iterator<Item = &'a BTreeMap<String, u64>>,
) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (name, count) in parts.flatten() {
        *sums.entry(name.clone()).or_insert(0) += count;
    }
    sums
}

/// Facts that all hosts state alike.
fn agreed(parts: &[Part], facts: fn(&RunData) -> &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let Some((first, others)) = parts.split_first() else {
        return BTreeMap::new();
    };
    let alike = |name: &String, value: &f64| {
        let mut others = others.iter().map(|part| facts(&part.of.data).get(name));
        others.all(|other| other == Some(value))
    };
    let mut all = facts(&first.of.data).clone();
    all.retain(|name, value| alike(name, value));
    all
}

/// A writer looks at the readers of its own host only: of workers of which a host
/// has the share s, s of the writers look at s of the readers.
fn reader_coverage(whole: &RunOrder, parts: &[Part]) -> Option<f64> {
    if !whole.workload.wants().shared || !parts.iter().any(|part| part.of.data.checked > 0) {
        return None;
    }
    let all: usize = parts.iter().map(|part| part.order.workers).sum();
    let seen = parts.iter().map(|part| {
        let share = part.order.workers as f64 / all.max(1) as f64;
        share * share * part.of.data.reader_coverage.unwrap_or(1.0)
    });
    Some(seen.sum())
}

/// The texts of all hosts, each with its host's name.
fn words(data: &mut RunData, hosts: &[Host], parts: &[Part]) {
    for part in parts {
        let name = super::name(hosts, part.of.rank);
        let said = |texts: &[String]| -> Vec<String> {
            texts.iter().map(|text| format!("{name}: {text}")).collect()
        };
        let one = &part.of.data;
        data.examples.extend(said(&one.examples));
        data.around.messages.extend(said(&one.around.messages));
        if let Some(causes) = &one.around.causes {
            let all = data.around.causes.get_or_insert_default();
            all.found.extend(said(&causes.found));
            all.looked_at.extend(said(&causes.looked_at));
        }
        data.around.deaths.extend(said(&one.around.deaths));
        if let Some(during) = &one.around.during {
            let all = data.around.during.get_or_insert_default();
            let gap = if all.is_empty() { "" } else { "; " };
            *all = format!("{all}{gap}{name}: {during}");
        }
    }
    data.examples.truncate(EXAMPLES);
}

fn spread(hosts: &[Host], parts: &[Part]) -> Option<Box<SpreadData>> {
    let each: Vec<&SpreadData> = parts
        .iter()
        .filter_map(|part| part.of.data.spread.as_deref())
        .collect();
    each.first()?;
    let generators = parts.iter().flat_map(|part| generators(hosts, parts, part));
    Some(Box::new(SpreadData {
        generators: generators.collect(),
        in_flight_ns: each.iter().map(|one| one.in_flight_ns).sum(),
        sides: machines::sides(hosts, parts),
    }))
}

/// Those of one host, who share their CPUs with those of the same machine.
pub(super) fn generators(hosts: &[Host], parts: &[Part], part: &Part) -> Vec<GeneratorData> {
    let of_cpus = machines::generators_of_cpus(hosts, parts, part.of.rank);
    let spread = part.of.data.spread.as_deref();
    let each = spread.map_or(&[][..], |spread| &spread.generators).iter();
    each.map(|generator| GeneratorData {
        rank: Some(part.of.rank as u64),
        of_cpus: Some(of_cpus),
        ..generator.clone()
    })
    .collect()
}

fn requests(parts: &[Part]) -> Option<Box<RequestData>> {
    let each: Vec<&RequestData> = parts
        .iter()
        .filter_map(|part| part.of.data.requests.as_deref())
        .collect();
    let first = each.first()?;
    let all = |figure: fn(&RequestData) -> &Merged| merged(each.iter().map(|one| figure(one)));
    let phase = |nth: usize| merged(each.iter().filter_map(|one| Some(&one.phases.get(nth)?.1)));
    let names = first.phases.iter().map(|(name, _)| name).enumerate();
    Some(Box::new(RequestData {
        phases: names
            .map(|(nth, name)| (name.clone(), phase(nth)))
            .collect(),
        service: all(|one| &one.service),
        failed: all(|one| &one.failed),
        codes: counted(each.iter().map(|one| &one.codes)),
        children_ns: each.iter().fold((0, 0), |sum, one| {
            (sum.0 + one.children_ns.0, sum.1 + one.children_ns.1)
        }),
        open_loop: open_loop(&each),
    }))
}

fn open_loop(each: &[&RequestData]) -> Option<Box<OpenLoopData>> {
    let each: Vec<&OpenLoopData> = each
        .iter()
        .filter_map(|one| one.open_loop.as_deref())
        .collect();
    each.first()?;
    let sum = |figure: fn(&OpenLoopData) -> u64| each.iter().map(|one| figure(one)).sum();
    let all = |figure: fn(&OpenLoopData) -> &Merged| merged(each.iter().map(|one| figure(one)));
    Some(Box::new(OpenLoopData {
        planned: sum(|one| one.planned),
        done: sum(|one| one.done),
        failed: sum(|one| one.failed),
        dropped: sum(|one| one.dropped),
        dropped_with_slot: sum(|one| one.dropped_with_slot),
        dropped_at_end: sum(|one| one.dropped_at_end),
        in_flight: sum(|one| one.in_flight),
        response: all(|one| &one.response),
        unanswered: all(|one| &one.unanswered),
        generator_lag: all(|one| &one.generator_lag),
        target_lag: all(|one| &one.target_lag),
        canary_lag: all(|one| &one.canary_lag),
    }))
}

#[cfg(test)]
mod tests;
