//! Whose CPU time it was, from readings at the window's edges and from what workers read of
//! themselves.

use super::super::run::{Reading, Seen};
use super::{loads_of, sum, thread_load};
use crate::order::{CpuData, CpuTimes, RunData, RunOrder, Total};
use jostle_harness::accounts::{Books, Known};
use jostle_model::plan::Carrier;
use jostle_model::record::{Count, Counts, Interference, Machine};
use jostle_sys::stat::{self, Scheduled};
use jostle_worker::page::{Page, Word};

/// The workers' CPU time, what they waited for it, and the machine's.
pub(super) fn times(
    data: &mut RunData,
    order: &RunOrder,
    pages: &[Page<'_>],
    seen: &Seen,
    remote: bool,
) {
    let (opened, closed) = (&seen.opened, &seen.closed);
    let between = closed.at_ns.saturating_sub(opened.at_ns);
    // The readings lie a little beside the window's edges.
    let scale = if order.is_counted() {
        1.0
    } else if between > 0 {
        data.window.window_ns() as f64 / between as f64
    } else {
        0.0
    };
    let scaled = |value: u64| (value as f64 * scale) as u64;
    data.cpu = match order.is_counted() {
        true => own_clocks(pages),
        false => CpuData {
            used_ns: workers_cpu(opened, closed).map(scaled),
            ..CpuData::default()
        },
    };
    data.cpu.read_ns = opened.took_ns.max(closed.took_ns);
    data.cpu.spun_ns = sum(pages, Word::Spun);
    data.cpu.usage = usage(order, pages, seen);
    data.around.counts = counts(order, pages);
    data.idles = Total {
        count: sum(pages, Word::Idles),
        ns: sum(pages, Word::Idled),
    };
    let all = seen.coverage >= 1.0;
    if let (true, Some(from), Some(to)) = (all, &opened.scheduled, &closed.scheduled) {
        let moved = |figure: fn(&Scheduled) -> u64| {
            let each = from.iter().zip(to);
            scaled(
                each.map(|(from, to)| figure(to).saturating_sub(figure(from)))
                    .sum(),
            )
        };
        data.cpu.runqueue_wait_ns = Some(moved(|s| s.waited_ns));
        data.cpu.switches = Some(moved(|s| s.switches));
        // What is in the worker's own process keeps it busy by itself.
        if remote {
            let threads = order.threads().into_iter().map(|first| &pages[first]);
            let loads = from.iter().zip(to).zip(threads).map(|((from, to), page)| {
                let queued = to.waited_ns.saturating_sub(from.waited_ns);
                // A thread that spins to the end of a hold could ask for more.
                let ran = to.ran_ns.saturating_sub(from.ran_ns);
                let ran = ran.saturating_sub(page.get(Word::Spun));
                thread_load(ran, queued, between)
            });
            data.thread_loads = loads_of(order, loads.flatten());
        }
    }
    data.around.machine = Machine {
        between_s: Some(between as f64 / 1e9),
        halts: Some(seen.children.halts),
        ..opened.machine.until(&closed.machine)
    };
}

/// The CPU time of workers after their start.
fn usage(order: &RunOrder, pages: &[Page<'_>], seen: &Seen) -> CpuTimes {
    let mut usage = CpuTimes::default();
    let carriers = seen.children.ended.iter();
    for (ended, workers) in carriers.filter(|(_, workers)| !workers.is_empty()) {
        // Threads share one usage, which includes their making.
        let before = match order.carrier {
            Carrier::Processes => CpuTimes {
                user_ns: pages[workers.start].get(Word::StartUser),
                system_ns: pages[workers.start].get(Word::StartSystem),
            },
            Carrier::Threads | Carrier::Tasks => CpuTimes::default(),
        };
        let all = CpuTimes {
            user_ns: ended.usage.user_ns,
            system_ns: ended.usage.system_ns,
        };
        usage += all.less(before);
    }
    usage
}

/// The owners of the CPU time between the readings. Returns what the server used of it.
pub(super) fn accounts(data: &mut RunData, books: &Books, seen: &Seen) -> Option<f64> {
    let (opened, closed) = (&seen.opened, &seen.closed);
    let between_ns = closed.at_ns.saturating_sub(opened.at_ns);
    let kept = data.kept.as_deref();
    let apart_ns = between_ns as f64 - kept.map_or(0.0, |kept| kept.kept_s * 1e9);
    let scale = data.window.window_ns() as f64 / apart_ns.max(1.0);
    let queued = |reading: &Reading| -> Option<u64> {
        let each = reading.scheduled.as_ref()?;
        Some(each.iter().map(|scheduled| scheduled.waited_ns).sum())
    };
    let sampled = queued(opened)
        .zip(queued(closed))
        .map(|(from, to)| (to.saturating_sub(from), seen.coverage));
    let carriers: Vec<u32> = opened.cpu_ns.keys().copied().collect();
    let children = data.requests.as_ref().map(|requests| requests.children);
    let accounts = books.close(
        &opened.entry,
        &closed.entry,
        &Known {
            between_ns,
            workers: &carriers,
            workers_ns: workers_cpu(opened, closed)
                .or(data.cpu.used_ns)
                .unwrap_or(0),
            requests_ns: children.map(CpuTimes::all_ns).filter(|spent| *spent > 0),
            // Those that end with their operations have read their own.
            waited: sampled.or(data.cpu.runqueue_wait_ns.map(|ns| (ns, 1.0))),
            machine: Some((&opened.machine.ticks, &closed.machine.ticks)),
        },
    );
    let kept_s = kept.and_then(|kept| kept.server_cpu_s).unwrap_or(0.0);
    let interrupts = opened.interrupts.as_ref().zip(closed.interrupts.as_ref());
    data.around.interference = interrupts.map(|(from, to)| {
        Box::new(Interference {
            window: Some(from.until(to, books.cpus())),
            ..Interference::default()
        })
    });
    let own_s = accounts.server_s.map(|s| (s - kept_s).max(0.0));
    data.around.accounts = Some(Box::new(accounts));
    own_s.map(|s| (s * scale.min(1.0) * 1e9).floor() / 1e9)
}

/// The kernel's counts of all threads with workers, where all came to their end.
fn counts(order: &RunOrder, pages: &[Page<'_>]) -> Counts {
    let of = |count: &Count| {
        let threads = order.threads().into_iter();
        let each = threads.map(|first| pages[first].counted(*count));
        Some((count.name().to_owned(), each.sum::<Option<u64>>()?))
    };
    Count::ALL.iter().filter_map(of).collect()
}

/// The workers' own readings; nothing if one could not read.
fn own_clocks(pages: &[Page<'_>]) -> CpuData {
    if pages.iter().any(|page| page.get(Word::Finished) == 0) {
        return CpuData::default();
    }
    let apart = |all: Word, kept: Word| sum(pages, all).saturating_sub(sum(pages, kept));
    // Without these counts in the kernel, workers have noted zeros, which mean nothing.
    let keeper = std::process::id();
    let counts = stat::scheduled(keeper, keeper).is_some();
    CpuData {
        used_ns: Some(apart(Word::Cpu, Word::KeptCpu)),
        runqueue_wait_ns: counts.then(|| apart(Word::Runqueue, Word::KeptRunqueue)),
        switches: counts.then(|| apart(Word::Switches, Word::KeptSwitches)),
        ..CpuData::default()
    }
}

/// None if a worker's clock could not be read at both ends.
fn workers_cpu(opened: &Reading, closed: &Reading) -> Option<u64> {
    let complete = !opened.cpu_ns.is_empty() && opened.cpu_ns.len() == closed.cpu_ns.len();
    complete.then(|| {
        let used = closed
            .cpu_ns
            .iter()
            .map(|(pid, to)| to.saturating_sub(opened.cpu_ns.get(pid).copied().unwrap_or(*to)));
        used.sum()
    })
}
