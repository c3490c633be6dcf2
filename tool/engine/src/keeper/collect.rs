//! From the pages that workers leave behind to one [`RunData`].

mod cpu;

use super::run::Seen;
use crate::order::{Merged, RunData, RunOrder, WorkloadOrder};
use jostle_harness::accounts::Books;
use jostle_harness::how_it_ended;
use jostle_harness::merged::{READER_WAITS, WRITER_WAITS, add};
use jostle_model::plan::{Carrier, Measure};
use jostle_model::record::{Buckets, Circumstances};
use jostle_stats::histogram;
use jostle_sys::process::Ended;
use jostle_worker::page::{Figure, Page, SLICES, Shared, Stage, WRITERS, Word};
use jostle_worker::witness::Witness;
use jostle_worker::work::Work;
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;

/// Overlaps that are told in words.
const EXAMPLES: usize = 5;

/// Merges what the workers of one run measured. Call it when all are reaped.
pub(super) fn collect(
    order: &RunOrder,
    work: &dyn Work,
    shared: &Shared,
    witness: &Witness,
    books: &Books,
    seen: Seen,
) -> RunData {
    let pages: Vec<Page<'_>> = (0..order.workers)
        .map(|worker| shared.page(worker))
        .collect();
    let (opens, closes) = window(order, shared, &seen);
    let dead = dead_workers(&seen);
    let (truth, setup) = work.known();
    let mut data = RunData {
        window_ns: closes.saturating_sub(opens),
        excludes: work.excludes(),
        warmup_ns: order.warmup.0,
        ramp_ns: seen.ramp_ns,
        drain_ns: seen.drain_ns,
        operations: pages.iter().map(|page| operations(order, page)).collect(),
        around: Circumstances {
            deaths: deaths(order, &seen, &pages),
            truth,
            setup,
            during: seen.during.clone(),
            ..Circumstances::default()
        },
        ..RunData::default()
    };
    data.received = pages.iter().map(|page| page.get(Word::Total)).sum();
    let sum = |word| pages.iter().map(|page| page.get(word)).sum::<u64>();
    let traffic = (sum(Word::RoundTrips), sum(Word::Carried));
    data.traffic = (traffic.0 > 0).then_some(traffic);
    data.failovers = sum(Word::Failovers);
    data.is_remote = work.is_remote();
    data.server_counted = seen.server.grants;
    data.server_binds = seen.server.binds;
    data.server_unbinds = seen.server.unbinds;
    starts(&mut data, &pages, shared);
    if order.is_counted() {
        courses(&mut data, order, &pages, &seen, opens);
    }
    data.kept = seen.kept.clone().map(Box::new);
    errors(&mut data, order, &pages, &seen);
    if order.measure == Measure::Full {
        figures(&mut data, order, &pages);
        waits(&mut data, order, &pages, closes);
        exclusion(&mut data, &pages, witness, &dead);
    }
    cpu::times(&mut data, order, &pages, &seen, work.is_remote());
    if let WorkloadOrder::Spread(spread) = &order.workload {
        data.spread = Some(Box::new(super::spread::collect(
            order,
            spread,
            &pages,
            &seen,
            &books.server,
            (opens, closes),
            work.is_remote(),
        )));
    }
    work.add_to(order, &mut data);
    cpu::accounts(&mut data, books, &seen);
    data
}

fn window(order: &RunOrder, shared: &Shared, seen: &Seen) -> (u64, u64) {
    match order.measure {
        Measure::Full => (shared.opens().load(Relaxed), shared.closes().load(Relaxed)),
        Measure::Counts => seen.flagged,
    }
}

/// Workers that did not end by themselves.
fn dead_workers(seen: &Seen) -> BTreeSet<u64> {
    let children = &seen.children;
    let ended = children
        .ended
        .iter()
        .filter(|(ended, _)| ended.signal.is_some());
    ended
        .flat_map(|(_, workers)| workers.clone())
        .map(|worker| worker as u64)
        .collect()
}

fn operations(order: &RunOrder, page: &Page<'_>) -> u64 {
    // A worker that counts reports its window when it ends; one that was killed
    // has left its total and where the window began.
    let unreported =
        order.measure == Measure::Counts && page.get(Word::Stage) == Stage::Working as u64;
    match unreported {
        true => page.get(Word::Total).saturating_sub(page.get(Word::Base)),
        false => page.get(Word::Operations),
    }
}

fn deaths(order: &RunOrder, seen: &Seen, pages: &[Page<'_>]) -> Vec<String> {
    let children = &seen.children;
    let killed: BTreeSet<usize> = children.killed.iter().copied().collect();
    let early = children.ended.iter().filter(|(ended, workers)| {
        let ours = workers.clone().all(|worker| killed.contains(&worker));
        let failed = workers
            .clone()
            .any(|w| pages[w].get(Word::Stage) == Stage::Failed as u64);
        // A library may call exit(3) in the middle of the work.
        let works = |w: usize| pages[w].get(Word::Stage) == Stage::Working as u64;
        let well = ended.code == Some(0) && !workers.clone().all(works);
        !ours && !failed && !well
    });
    early
        .map(|(ended, workers)| match workers.len() {
            1 => format!(
                "worker {} (pid {}): {}{}",
                workers.start,
                ended.pid,
                how_it_ended(ended),
                inside(order, ended, &pages[workers.start])
            ),
            n if n < pages.len() => format!(
                "the generator of workers {} to {} (pid {}): {}",
                workers.start,
                workers.end - 1,
                ended.pid,
                how_it_ended(ended)
            ),
            n => format!(
                "the process of all {n} workers (pid {}): {}",
                ended.pid,
                how_it_ended(ended)
            ),
        })
        .collect()
}

/// The function of a user's library in which a worker ended: its own code neither exits nor
/// faults. Empty where that is not known.
fn inside(order: &RunOrder, ended: &Ended, page: &Page<'_>) -> String {
    // These come from outside, as a rule.
    const SENT: [Signal; 3] = [Signal::KILL, Signal::TERM, Signal::INT];
    let sent = SENT
        .iter()
        .any(|signal| ended.signal == Some(signal.as_raw()));
    let call = called(order, page).filter(|_| !sent);
    call.map_or(String::new(), |call| format!(" inside {call}"))
}

/// The function of a user's library in which its worker is, or was at its end. None where
/// that is not known.
fn called(order: &RunOrder, page: &Page<'_>) -> Option<&'static str> {
    let noted =
        order.measure == Measure::Full && matches!(order.workload, WorkloadOrder::Contend(_));
    (noted && order.target.starts_with("lib:")).then_some(())?;
    let is = |stage: Stage| page.get(Word::Stage) == stage as u64;
    match page.get(Word::PendingSince) > 0 {
        _ if is(Stage::Done) || is(Stage::Failed) => Some("jostle_leave"),
        true => Some("jostle_acquire"),
        false => Some("jostle_release"),
    }
}

fn starts(data: &mut RunData, pages: &[Page<'_>], shared: &Shared) {
    let arrivals = || {
        pages
            .iter()
            .map(|page| page.get(Word::Arrived))
            .filter(|at| *at > 0)
    };
    if let (Some(first), Some(last)) = (arrivals().min(), arrivals().max()) {
        data.start_spread_ns = last - first;
        data.began_ns = first.wrapping_add(shared.to_monotonic().load(Relaxed));
    }
}

/// Fills in how long each worker that ends by itself took, and its phases.
fn courses(data: &mut RunData, order: &RunOrder, pages: &[Page<'_>], seen: &Seen, opens: u64) {
    // Locks that are only kept are no part of what acquiring and releasing takes.
    data.elapsed_ns = pages
        .iter()
        .map(|page| {
            let elapsed = page.get(Word::Finished).saturating_sub(opens);
            elapsed.saturating_sub(page.get(Word::KeptFor))
        })
        .collect();
    let loads = order.threads().into_iter().map(|worker| {
        let page = pages[worker];
        let apart = |all: Word, kept: Word| page.get(all).saturating_sub(page.get(kept));
        let queued = apart(Word::Runqueue, Word::KeptRunqueue);
        let elapsed = match order.carrier {
            Carrier::Processes | Carrier::Threads => data.elapsed_ns[worker],
            Carrier::Tasks => longest_of(order, worker, &data.elapsed_ns),
        };
        (apart(Word::Cpu, Word::KeptCpu) + queued, queued, elapsed)
    });
    data.thread_loads = shares(order, loads.collect());
    if let Some(peak) = seen.peak {
        let held = pages.iter().map(|page| page.get(Word::HeldAt)).max();
        let acquiring = held.unwrap_or(0).saturating_sub(opens);
        let releasing = (opens + data.window_ns).saturating_sub(peak.resumed);
        data.phases_ns = Some((acquiring, releasing));
        data.held_bytes = peak.held_bytes;
        // What lies between is the keeper asking, not the workers working.
        data.window_ns = acquiring + releasing;
    }
}

/// The longest time among the tasks whose thread this worker stands for.
fn longest_of(order: &RunOrder, worker: usize, elapsed_ns: &[u64]) -> u64 {
    let mut threads = (0..order.generator_threads).map(|nth| order.tasks_of(nth));
    let tasks = threads.find(|tasks| tasks.start == worker);
    let times = tasks.and_then(|tasks| elapsed_ns.get(tasks));
    times.and_then(|t| t.iter().max().copied()).unwrap_or(0)
}

/// Converts (CPU and queue, queue, wall time) of each thread to shares of the wall time:
/// for every generator thread, but of workers with threads of their own only for the
/// busiest.
fn shares(order: &RunOrder, loads: Vec<(u64, u64, u64)>) -> Vec<(f64, f64)> {
    let shares = loads
        .into_iter()
        .filter(|(.., wall)| *wall > 0)
        .map(|(busy, queued, wall)| (busy as f64 / wall as f64, queued as f64 / wall as f64));
    match order.carrier {
        Carrier::Tasks => shares.collect(),
        Carrier::Processes | Carrier::Threads => shares
            .max_by(|one, other| one.0.total_cmp(&other.0))
            .into_iter()
            .collect(),
    }
}

fn errors(data: &mut RunData, order: &RunOrder, pages: &[Page<'_>], seen: &Seen) {
    for page in pages {
        if let Some(message) = page.message() {
            let name = jostle_sys::errno::name(page.get(Word::Errno) as i32);
            let count = data.around.errors.entry(name).or_default();
            *count += 1;
            if *count == 1 {
                data.around.messages.push(message);
            }
        }
    }
    // Asked to end its wait, and killed 2 s later.
    let stuck = seen.children.killed.iter().map(|worker| &pages[*worker]);
    let call = stuck.filter_map(|page| called(order, page)).next();
    data.around
        .messages
        .extend(call.map(|call| format!("{call} did not return")));
    let before_release: u64 = pages.iter().map(|page| page.get(Word::BeforeRelease)).sum();
    for (name, count) in [
        ("handoff_before_release", before_release),
        ("stuck_at_end", seen.children.stuck),
    ] {
        if count > 0 {
            data.around.errors.insert(name.to_owned(), count);
        }
    }
}

fn figures(data: &mut RunData, order: &RunOrder, pages: &[Page<'_>]) {
    let mut insert = |name: &str, figures: &[Figure]| {
        let merged = merge(pages, figures);
        if !merged.buckets.0.is_empty() {
            data.figures.insert(name.to_owned(), merged);
        }
    };
    for figure in Figure::ALL {
        match figure {
            Figure::Acquire if order.has_readers() => {
                insert(figure.name(), &[Figure::Acquire, WRITERS]);
                insert(READER_WAITS, &[Figure::Acquire]);
            }
            WRITERS if order.has_readers() => insert(WRITER_WAITS, &[WRITERS]),
            _ => insert(figure.name(), &[figure]),
        }
    }
    let sum = |word: Word| pages.iter().map(|page| page.get(word)).sum::<u64>();
    data.release_slices = (0..SLICES)
        .map(|slice| {
            let each = pages.iter().map(|page| page.released(slice));
            each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
        })
        .collect();
    data.stamped = sum(Word::Stamped);
    data.contended = sum(Word::Contended);
    data.timeouts = sum(Word::Timeouts);
    data.refusals = sum(Word::Refusals);
    let most = |word: Word| pages.iter().map(|page| page.get(word)).max().unwrap_or(0);
    data.streak = most(Word::Streak);
    data.streak_waited = most(Word::StreakWaited);
    data.slices = (0..SLICES)
        .map(|slice| {
            let each = pages.iter().map(|page| page.sliced(slice));
            each.fold((0, 0, 0), |sum, one| {
                (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2)
            })
        })
        .collect();
}

fn merge(pages: &[Page<'_>], figures: &[Figure]) -> Merged {
    let mut counts = BTreeMap::new();
    let mut merged = Merged {
        min: u64::MAX,
        ..Merged::default()
    };
    let each = pages
        .iter()
        .flat_map(|page| figures.iter().map(move |figure| (page, *figure)));
    for (page, figure) in each {
        let mut any = false;
        page.buckets(figure, |bucket, count| {
            any = true;
            *counts.entry(bucket).or_insert(0) += count;
        });
        if any {
            let ends = page.extremes(figure);
            merged.sum += ends.sum;
            merged.min = merged.min.min(ends.min);
            merged.max = merged.max.max(ends.max);
        }
    }
    if counts.is_empty() {
        return Merged::default();
    }
    merged.buckets = Buckets(
        counts
            .into_iter()
            .map(|(b, n)| (histogram::floor(b), n))
            .collect(),
    );
    merged
}

/// The wait, at the window's end, of an attempt without a stamp that followed this release:
/// it began when the idle span was over. None if the worker had no lock before, and where
/// attempts may be given up.
fn unstamped(order: &RunOrder, release: u64, closes: u64) -> Option<u64> {
    let WorkloadOrder::Contend(contend) = &order.workload else {
        return None;
    };
    let gives_up = contend.try_only || contend.acquire_timeout.is_some();
    let began = release.saturating_add(contend.idle.span().0);
    (release > 0 && !gives_up && began < closes).then(|| closes - began)
}

/// Counts the attempts in progress at the window's end, and those that timed out, as
/// censored: they waited at least so long.
fn waits(data: &mut RunData, order: &RunOrder, pages: &[Page<'_>], closes: u64) {
    let mut censored = BTreeMap::<usize, u64>::new();
    let (mut sum, mut min, mut max) = (0, u64::MAX, 0);
    let mut by_mode = [Merged::default(), Merged::default()];
    data.longest_wait_ns = Vec::with_capacity(pages.len());
    for page in pages {
        // A worker that was killed could not note it by itself.
        let pending = match page.get(Word::CensoredAt) {
            0 => page.get(Word::PendingSince),
            noted => noted,
        };
        let waited = (pending > 1 && pending < closes).then(|| closes - pending);
        if let Some(waited) = waited {
            add(&mut by_mode[page.get(Word::Writes) as usize & 1], waited, 1);
            *censored.entry(histogram::index(waited)).or_default() += 1;
            (sum, min, max) = (sum + waited, min.min(waited), max.max(waited));
        }
        // One attempt in so many is stamped, whether it is granted or still pending. An
        // attempt without a stamp belongs to no distribution, but its worker did wait.
        let pending = match pending {
            1 => unstamped(order, page.get(Word::PendingAfter), closes),
            _ => waited,
        };
        data.pending += u64::from(pending.is_some());
        data.longest_wait_ns
            .push(page.get(Word::LongestWait).max(pending.unwrap_or(0)));
    }
    let timeouts = match data.timeouts {
        0 => Merged::default(),
        _ => merge(pages, &[Figure::Refused]),
    };
    if order.has_readers() {
        let of_writers = |word| pages.iter().map(|page| page.get(word)).sum::<u64>();
        let [count, ns] = [Word::WritesFailed, Word::WritesFailedNs].map(of_writers);
        let of_readers = (
            data.timeouts.saturating_sub(count),
            timeouts.sum.saturating_sub(ns),
        );
        // Timeouts end after nearly equal times: their mean stands for each.
        for (mode, (count, ns)) in by_mode.iter_mut().zip([of_readers, (count, ns)]) {
            add(mode, ns / count.max(1), count);
        }
        data.censored_by_mode = Some(Box::new(by_mode));
    }
    for (floor, count) in &timeouts.buckets.0 {
        *censored.entry(histogram::index(*floor)).or_default() += count;
    }
    if !censored.is_empty() {
        data.censored = Merged {
            buckets: Buckets(
                censored
                    .into_iter()
                    .map(|(b, n)| (histogram::floor(b), n))
                    .collect(),
            ),
            sum: sum + timeouts.sum,
            min: if timeouts.buckets.0.is_empty() {
                min
            } else {
                min.min(timeouts.min)
            },
            max: max.max(timeouts.max),
        };
    }
}

fn exclusion(data: &mut RunData, pages: &[Page<'_>], witness: &Witness, dead: &BTreeSet<u64>) {
    for (worker, page) in pages.iter().enumerate() {
        data.checked += page.get(Word::Checked);
        for (owner, count) in page.overlaps_with() {
            if dead.contains(&owner) {
                data.holder_died += count;
                continue;
            }
            data.violations += count;
            if data.examples.len() < EXAMPLES {
                data.examples.push(format!(
                    "worker {worker} was let in {} while worker {owner} was inside",
                    times(count)
                ));
            }
        }
    }
    let sum = |word: Word| pages.iter().map(|page| page.get(word)).sum::<u64>();
    // A worker that dies between the two counters leaves them one apart.
    let apart = sum(Word::Witnessed).abs_diff(witness.counted());
    data.lost_updates = apart.saturating_sub(dead.len() as u64);
    data.tokens = (sum(Word::Tokens), sum(Word::TokensBehind));
    let (seen, all) = (sum(Word::ReadersSeen), sum(Word::ReadersAll));
    data.reader_coverage = (all > 0).then(|| seen as f64 / all as f64);
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        n => format!("{n} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::ContendOrder;
    use jostle_model::{Busy, Nanos};

    /// Waiters of a window that closes at 10,000: with these stamps of their attempts, and
    /// of the releases before those that have none.
    fn waited(order: &RunOrder, attempts: &[(u64, u64)]) -> RunData {
        let shared = Shared::new(attempts.len()).unwrap();
        let pages: Vec<Page<'_>> = (0..attempts.len()).map(|nth| shared.page(nth)).collect();
        for (page, (attempt, release)) in pages.iter().zip(attempts) {
            page.set(Word::PendingSince, *attempt);
            page.set(Word::PendingAfter, *release);
        }
        let mut data = RunData::default();
        waits(&mut data, order, &pages, 10_000);
        data
    }

    #[test]
    fn a_waiter_whose_attempt_has_no_stamp_waited_since_its_release() {
        let mut order = crate::experiment::tests::order("flock");
        let mut contend = ContendOrder {
            idle: Busy::Sleep(Nanos(500)),
            ..ContendOrder::bare()
        };
        order.workload = WorkloadOrder::Contend(contend.clone());
        // Stamped; unstamped; nothing known of it; nobody waits; it begins too late.
        let attempts = [(4_000, 0), (1, 2_000), (1, 0), (0, 3_000), (1, 9_600)];
        let data = waited(&order, &attempts);
        assert_eq!(data.longest_wait_ns, [6_000, 7_500, 0, 0, 0]);
        assert_eq!(data.pending, 2);
        // The distribution is a sample, of which the unstamped one is no part.
        let counted: u64 = data.censored.buckets.0.iter().map(|(_, n)| n).sum();
        assert_eq!((counted, data.censored.sum), (1, 6_000));
        contend.acquire_timeout = Some(Nanos(100));
        order.workload = WorkloadOrder::Contend(contend);
        assert_eq!(waited(&order, &attempts).pending, 1);
    }

    #[test]
    fn waits_of_readers_and_writers_stand_apart_and_together() {
        let mut order = crate::experiment::tests::order("flock");
        order.workload = WorkloadOrder::Contend(ContendOrder {
            shared: 0.9,
            ..ContendOrder::bare()
        });
        let shared = Shared::new(2).unwrap();
        let pages = [shared.page(0), shared.page(1)];
        let (reader, writer) = (&pages[0], &pages[1]);
        [5, 7]
            .iter()
            .for_each(|ns| reader.fold(Figure::Acquire, *ns));
        writer.fold(WRITERS, 90);
        // One of each waits at the end, and one of each has given up.
        reader.set(Word::PendingSince, 9_900);
        writer.set(Word::PendingSince, 2_000);
        writer.set(Word::Writes, 1);
        let failed = [40, 60].iter();
        failed.for_each(|ns| reader.fold(Figure::Refused, *ns));
        writer.set(Word::WritesFailed, 1);
        writer.set(Word::WritesFailedNs, 60);
        let mut data = RunData::default();
        figures(&mut data, &order, &pages);
        data.timeouts = 2;
        waits(&mut data, &order, &pages, 10_000);
        let sums = [Figure::Acquire.name(), READER_WAITS, WRITER_WAITS];
        assert_eq!(sums.map(|name| data.figures[name].sum), [102, 12, 90]);
        let cut = data.censored_by_mode.unwrap().map(|of| of.sum);
        assert_eq!((cut, data.censored.sum), ([140, 8_060], 8_200));
    }
}
