//! From the pages that workers leave behind to one [`RunData`].

mod cpu;

use super::run::Seen;
use super::spread;
use crate::order::{
    Attempts, EachWorker, HoldPhases, Merged, RunData, RunOrder, SliceData, WorkloadOrder,
};
use jostle_harness::accounts::Books;
use jostle_harness::how_it_ended;
use jostle_harness::merged::{READER_WAITS, WRITER_WAITS};
use jostle_model::plan::{Carrier, Measure};
use jostle_model::record::{Circumstances, Exclusion, Server, ServerTraffic, ThreadLoad, Window};
use jostle_stats::numbers::time;
use jostle_sys::process::Ended;
use jostle_targets::{LEASE_FACT, ServerFigures};
use jostle_worker::page::{self, Page, PageHistogram, SLICES, Shared, Stage, WRITERS, Word};
use jostle_worker::witness::Witness;
use jostle_worker::work::Work;
use rustix::process::Signal;
use std::collections::BTreeSet;
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
    let pages = (0..order.workers).map(|worker| shared.page(worker));
    let pages: Vec<Page<'_>> = pages.collect();
    let (opens, closes) = window(order, shared, &seen);
    let dead = dead_workers(&seen);
    let (truth, setup) = work.known();
    let seconds = |ns: u64| ns as f64 / 1e9;
    let mut data = RunData {
        window: Window {
            window_s: seconds(closes.saturating_sub(opens)),
            warmup_s: seconds(order.warmup.0),
            ramp_s: seconds(seen.ramp_ns),
            drain_s: seconds(seen.drain_ns),
            ..Window::default()
        },
        excludes: work.excludes(),
        received: sum(&pages, Word::Total),
        traffic: traffic(order, &pages),
        workers: EachWorker {
            operations: pages.iter().map(|page| operations(order, page)).collect(),
            ..EachWorker::default()
        },
        kept: seen.kept.clone().map(Box::new),
        around: Circumstances {
            deaths: deaths(order, &seen, &pages),
            truth,
            setup,
            during: seen.during.clone(),
            ..Circumstances::default()
        },
        ..RunData::default()
    };
    starts(&mut data, &pages, shared);
    if order.is_counted() {
        courses(&mut data, order, &pages, &seen, opens);
    }
    errors(&mut data, order, &pages, &seen);
    if order.measure == Measure::Full {
        figures(&mut data, order, &pages);
        waits(&mut data, order, &pages, closes);
        data.exclusion = exclusion(&pages, witness, &dead);
    }
    cpu::times(&mut data, order, &pages, &seen, work.is_remote());
    if let WorkloadOrder::Spread(of) = &order.workload {
        let (window, remote) = ((opens, closes), work.is_remote());
        data.thread_loads = spread::generators(order, of, &pages, &seen, window);
        let in_flight = spread::in_flight(order, of, &pages, window, &books.server, remote);
        data.spread = Some(Box::new(in_flight));
    }
    work.add_to(order, &mut data);
    let server_s = cpu::accounts(&mut data, books, &seen);
    let held_bytes = seen.peak.and_then(|peak| peak.held_bytes);
    data.server = server(order, &seen.server, held_bytes, server_s, work.is_remote());
    data
}

fn sum(pages: &[Page<'_>], word: Word) -> u64 {
    pages.iter().map(|page| page.get(word)).sum()
}

/// Not of requests, even those of a lock service: each of their operations is one request.
fn traffic(order: &RunOrder, pages: &[Page<'_>]) -> Option<ServerTraffic> {
    let round_trips = sum(pages, Word::RoundTrips);
    let is_traffic = round_trips > 0 && order.workload.requests().is_none();
    is_traffic.then(|| ServerTraffic {
        grants: sum(pages, Word::Total),
        round_trips,
        bytes: sum(pages, Word::Carried),
        failovers: Some(sum(pages, Word::Failovers)).filter(|count| *count > 0),
    })
}

/// The server's record; it used so much CPU time within the window. Even where that is nothing,
/// such as on another machine, its clients are judged as those of a server.
fn server(
    order: &RunOrder,
    counts: &ServerFigures,
    held_bytes: Option<i64>,
    cpu_s: Option<f64>,
    remote: bool,
) -> Option<Server> {
    let server = Server {
        counted: counts.grants,
        binds: counts.binds,
        unbinds: counts.unbinds,
        cpu_s,
        bytes_per_held_lock: held_bytes.map(|bytes| {
            let locks = order.workers as u64 * order.workload.operations().unwrap_or(1);
            bytes as f64 / locks.max(1) as f64
        }),
        ..Server::default()
    };
    (remote || server != Server::default()).then_some(server)
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
    let ended = children.ended.iter();
    let ended = ended.filter(|(ended, _)| ended.signal.is_some());
    let ended = ended.flat_map(|(_, workers)| workers.clone());
    ended.map(|worker| worker as u64).collect()
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
    let mut sent = SENT.iter();
    let sent = sent.any(|signal| ended.signal == Some(signal.as_raw()));
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
        data.window.start_spread_ns = last - first;
        data.began_ns = first.wrapping_add(shared.to_monotonic().load(Relaxed));
    }
}

/// Fills in how long each worker that ends by itself took, and its phases.
fn courses(data: &mut RunData, order: &RunOrder, pages: &[Page<'_>], seen: &Seen, opens: u64) {
    // Locks that are only kept are no part of what acquiring and releasing takes.
    let elapsed_ns: Vec<u64> = pages
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
            Carrier::Processes | Carrier::Threads => elapsed_ns[worker],
            Carrier::Tasks => longest_of(order, worker, &elapsed_ns),
        };
        thread_load(apart(Word::Cpu, Word::KeptCpu), queued, elapsed)
    });
    data.thread_loads = loads_of(order, loads.flatten());
    data.workers.elapsed_ns = elapsed_ns;
    if let Some(peak) = seen.peak {
        let held = pages.iter().map(|page| page.get(Word::HeldAt)).max();
        let acquiring_ns = held.unwrap_or(0).saturating_sub(opens);
        let releasing_ns = (opens + data.window.window_ns()).saturating_sub(peak.resumed);
        data.phases = Some(HoldPhases {
            acquiring_ns,
            releasing_ns,
        });
        // What lies between is the keeper asking, not the workers working.
        data.window.window_s = (acquiring_ns + releasing_ns) as f64 / 1e9;
    }
}

/// The longest time among the tasks whose thread this worker stands for.
fn longest_of(order: &RunOrder, worker: usize, elapsed_ns: &[u64]) -> u64 {
    let mut threads = (0..order.generator_threads).map(|nth| order.tasks_of(nth));
    let tasks = threads.find(|tasks| tasks.start == worker);
    let times = tasks.and_then(|tasks| elapsed_ns.get(tasks));
    times.and_then(|t| t.iter().max().copied()).unwrap_or(0)
}

/// The load of a thread that ran and queued for so long of its wall time.
pub(super) fn thread_load(ran_ns: u64, queued_ns: u64, wall_ns: u64) -> Option<ThreadLoad> {
    let share = |ns: u64| ns as f64 / wall_ns as f64;
    (wall_ns > 0).then(|| ThreadLoad {
        busy_share: share(ran_ns + queued_ns),
        runqueue_share: share(queued_ns),
        process: None,
    })
}

/// The thread that was busy for most of its time.
pub(super) fn busiest(loads: impl Iterator<Item = ThreadLoad>) -> Option<ThreadLoad> {
    loads.max_by(|one, other| one.busy_share.total_cmp(&other.busy_share))
}

/// Every generator thread, but of workers with threads of their own only the busiest.
fn loads_of(order: &RunOrder, loads: impl Iterator<Item = ThreadLoad>) -> Vec<ThreadLoad> {
    match order.carrier {
        Carrier::Tasks => loads.collect(),
        Carrier::Processes | Carrier::Threads => busiest(loads).into_iter().collect(),
    }
}

fn errors(data: &mut RunData, order: &RunOrder, pages: &[Page<'_>], seen: &Seen) {
    // In the order in which they failed. Without a stamp are those that did not come so far as a
    // call, and those whose farewell failed.
    let mut failed: Vec<&Page<'_>> = pages.iter().collect();
    failed.sort_by_key(|page| match page.get(Word::FailedAt) {
        0 if page.get(Word::Operations) > 0 => u64::MAX,
        at => at,
    });
    for page in failed {
        if let Some((own, message)) = page.failure() {
            let name = match own.is_empty() {
                true => jostle_sys::errno::name(page.get(Word::Errno) as i32),
                false => own,
            };
            let count = data.around.errors.entry(name).or_default();
            *count += 1;
            if *count == 1 {
                let lease_ns = data.around.setup.get(LEASE_FACT).copied();
                let message = message + &when_lost(page, lease_ns);
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
    for (name, count) in [
        ("handoff_before_release", sum(pages, Word::BeforeRelease)),
        ("stuck_at_end", seen.children.stuck),
    ] {
        if count > 0 {
            data.around.errors.insert(name.to_owned(), count);
        }
    }
}

/// How long a lock was held that its release found lost, and how long it was to be.
fn when_lost(page: &Page<'_>, lease_ns: Option<f64>) -> String {
    if page.get(Word::FoundLost) == 0 {
        return String::new();
    }
    let held = match page.get(Word::HeldFor) {
        0 => String::new(),
        held => format!(" {} after its grant", time(held as f64)),
    };
    let lease = lease_ns.map(|ns| format!("; its lease is {}", time(ns)));
    held + &lease.unwrap_or_default()
}

fn figures(data: &mut RunData, order: &RunOrder, pages: &[Page<'_>]) {
    let mut insert = |name: &str, figures: &[PageHistogram]| {
        let merged = page::merged(pages.iter().copied(), figures);
        if !merged.buckets.0.is_empty() {
            data.figures.insert(name.to_owned(), merged);
        }
    };
    for figure in PageHistogram::ALL {
        match figure {
            PageHistogram::Acquire if order.has_readers() => {
                insert(figure.name(), &[PageHistogram::Acquire, WRITERS]);
                insert(READER_WAITS, &[PageHistogram::Acquire]);
            }
            WRITERS if order.has_readers() => insert(WRITER_WAITS, &[WRITERS]),
            _ => insert(figure.name(), &[figure]),
        }
    }
    let most = |word: Word| pages.iter().map(|page| page.get(word)).max().unwrap_or(0);
    data.attempts = Attempts {
        pending: 0,
        stamped: sum(pages, Word::Stamped),
        contended: sum(pages, Word::Contended),
        blocked_ns: sum(pages, Word::BlockedNs).saturating_mul(order.stamp_every),
        owner_changes: sum(pages, Word::OwnerChanges),
        streak: most(Word::Streak),
        streak_waited: most(Word::StreakWaited),
        timeouts: sum(pages, Word::Timeouts),
        refusals: sum(pages, Word::Refusals),
    };
    data.slices = vec![SliceData::default(); SLICES];
    for page in pages {
        let each = data.slices.iter_mut().enumerate();
        each.for_each(|(nth, slice)| slice.join(&page.sliced(nth)));
    }
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
    let mut by_mode = [Merged::default(), Merged::default()];
    for page in pages {
        // A worker that was killed could not note it by itself.
        let pending = match page.get(Word::CensoredAt) {
            0 => page.get(Word::PendingSince),
            noted => noted,
        };
        let waited = (pending > 1 && pending < closes).then(|| closes - pending);
        if let Some(waited) = waited {
            by_mode[page.get(Word::Writes) as usize & 1].add(waited, 1);
        }
        // One attempt in so many is stamped, whether it is granted or still pending. An
        // attempt without a stamp belongs to no distribution, but its worker did wait.
        let pending = match pending {
            1 => unstamped(order, page.get(Word::PendingAfter), closes),
            _ => waited,
        };
        data.attempts.pending += u64::from(pending.is_some());
        data.attempts.blocked_ns += pending.unwrap_or(0).min(order.window.0);
        let longest = page.get(Word::LongestWait).max(pending.unwrap_or(0));
        data.workers.longest_wait_ns.push(longest);
    }
    let timeouts = match data.attempts.timeouts {
        0 => Merged::default(),
        _ => page::merged(pages.iter().copied(), &[PageHistogram::Refused]),
    };
    data.attempts.blocked_ns += timeouts.sum.saturating_mul(order.stamp_every);
    data.censored = by_mode.iter().chain([&timeouts]).sum();
    if order.has_readers() {
        let failed = [Word::WritesFailed, Word::WritesFailedNs];
        let [count, ns] = failed.map(|word| sum(pages, word));
        let of_readers = (
            data.attempts.timeouts.saturating_sub(count),
            timeouts.sum.saturating_sub(ns),
        );
        // Timeouts end after nearly equal times: their mean stands for each.
        for (mode, (count, ns)) in by_mode.iter_mut().zip([of_readers, (count, ns)]) {
            mode.add(ns / count.max(1), count);
        }
        data.censored_by_mode = Some(Box::new(by_mode));
    }
}

fn exclusion(pages: &[Page<'_>], witness: &Witness, dead: &BTreeSet<u64>) -> Exclusion {
    let mut found = Exclusion::default();
    for (worker, page) in pages.iter().enumerate() {
        found.checked += page.get(Word::Checked);
        for (owner, count) in page.overlaps_with() {
            if dead.contains(&owner) {
                found.holder_died += count;
                continue;
            }
            found.violations += count;
            if found.examples.len() < EXAMPLES {
                found.examples.push(format!(
                    "worker {worker} was let in {} while worker {owner} was inside",
                    times(count)
                ));
            }
        }
    }
    // A worker that dies between the two counters leaves them one apart.
    let apart = sum(pages, Word::Witnessed).abs_diff(witness.counted());
    found.lost_updates = apart.saturating_sub(dead.len() as u64);
    let any = |word: Word| Some(sum(pages, word)).filter(|count| *count > 0);
    found.tokens_checked = any(Word::Tokens);
    found.tokens_out_of_order = any(Word::TokensBehind);
    let readers = any(Word::ReadersAll);
    found.reader_coverage = readers.map(|all| sum(pages, Word::ReadersSeen) as f64 / all as f64);
    found
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
    fn a_server_is_recorded_even_where_nothing_is_known_about_it() {
        let order = crate::experiment::tests::order("lockd");
        let found = |remote| server(&order, &ServerFigures::default(), None, None, remote);
        assert_eq!(found(true), Some(Server::default()));
        assert_eq!(found(false), None);
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
        assert_eq!(data.workers.longest_wait_ns, [6_000, 7_500, 0, 0, 0]);
        assert_eq!(data.attempts.pending, 2);
        assert_eq!(data.attempts.blocked_ns, 13_500);
        // The distribution is a sample, of which the unstamped one is no part.
        let counted: u64 = data.censored.buckets.0.iter().map(|(_, n)| n).sum();
        assert_eq!((counted, data.censored.sum), (1, 6_000));
        contend.acquire_timeout = Some(Nanos(100));
        order.workload = WorkloadOrder::Contend(contend);
        assert_eq!(waited(&order, &attempts).attempts.pending, 1);
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
            .for_each(|ns| reader.fold(PageHistogram::Acquire, *ns));
        writer.fold(WRITERS, 90);
        // One of each waits at the end, and one of each has given up.
        reader.set(Word::PendingSince, 9_900);
        writer.set(Word::PendingSince, 2_000);
        writer.set(Word::Writes, 1);
        let failed = [40, 60].iter();
        failed.for_each(|ns| reader.fold(PageHistogram::Refused, *ns));
        writer.set(Word::WritesFailed, 1);
        writer.set(Word::WritesFailedNs, 60);
        let mut data = RunData::default();
        figures(&mut data, &order, &pages);
        data.attempts.timeouts = 2;
        waits(&mut data, &order, &pages, 10_000);
        let sums = [PageHistogram::Acquire.name(), READER_WAITS, WRITER_WAITS];
        assert_eq!(sums.map(|name| data.figures[name].sum), [102, 12, 90]);
        let cut = data.censored_by_mode.unwrap().map(|of| of.sum);
        assert_eq!((cut, data.censored.sum), ([140, 8_060], 8_200));
    }
}
