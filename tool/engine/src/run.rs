//! From what a generator's workers measured to the record of a run.

use crate::order::{ContendOrder, EachWorker, Merged, RunData, RunOrder, SliceData, WorkloadOrder};
use crate::{requested, spread};
use jostle_harness::merged::{READER_WAITS, WRITER_WAITS, histogram};
use jostle_model::Nanos;
use jostle_model::plan::{Measure, Plan, Range};
use jostle_model::record::{
    At, BROKE_OFF, Circumstances, Cpu, Exclusion, Kept, Phase, Run, Server, Workers,
};
use jostle_stats::{censor, fairness};
use jostle_worker::workloads::counted::{CLOSE, CYCLE, OPEN};

/// A run's place: its target, its point and its number.
#[derive(Clone, Copy, Debug)]
pub struct Which<'a> {
    /// As typed.
    pub target: &'a str,
    /// Swept values.
    pub at: At,
    /// Repeat, from 1.
    pub run: u32,
    /// Block, from 1.
    pub block: u32,
}

/// The record, without its verdict.
pub(crate) fn record(plan: &Plan, order: &RunOrder, place: Which<'_>, data: &RunData) -> Run {
    let over = &plan.over();
    let window = data.window.clone();
    let operations: u64 = data.workers.operations.iter().sum();
    let per_s = operations as f64 / window.window_s;
    let throughput_per_s = if window.window_s > 0.0 { per_s } else { 0.0 };
    let idle_mean_ns = data.idles.mean_ns();
    let contend = contended(order);
    let ceiling_per_s =
        contend.and_then(|contend| ceiling(order, contend, data.excludes, idle_mean_ns));
    let full = order.measure == Measure::Full;
    let mut run = Run {
        target: place.target.to_owned(),
        workload: plan.workload.to_string(),
        at: place.at,
        run: place.run,
        block: place.block,
        window,
        operations,
        throughput_per_s,
        ceiling_per_s,
        idle_mean_ns,
        of_ideal: ceiling_per_s.map(|ceiling| throughput_per_s / ceiling),
        placement: plan.place().to_string(),
        // Only for `contend`: in other workloads each worker does the same number of
        // operations whatever the lock does, or takes what is due when it is free.
        per_worker: contend.and_then(|contend| per_worker(order, contend, data)),
        names: names(order),
        acquire_phase_s: data.phases.map(|of| of.acquiring_ns as f64 / 1e9),
        release_phase_s: data.phases.map(|of| of.releasing_ns as f64 / 1e9),
        thread_loads: data.thread_loads.clone(),
        workers: Some(workers(&data.workers)),
        timeouts: contend
            .and_then(|contend| contend.acquire_timeout)
            .map(|_| data.attempts.timeouts),
        cpu: cpu(operations, data),
        around: data.around.clone(),
        kept: data
            .kept
            .as_deref()
            .map(|kept| Box::new(kept_of(kept, data, over))),
        server: data
            .server
            .map(|server| server_of(server, operations, data)),
        traffic: data.traffic,
        series: data.slices.iter().map(SliceData::record).collect(),
        ..Run::default()
    };
    if contend.is_some_and(|contend| contend.try_only) {
        let refused = "refused_tries".to_owned();
        run.around
            .setup
            .insert(refused, data.attempts.refusals as f64);
    }
    if let Some(requests) = &data.requests {
        requested::fill_in(&mut run, requests, data, over);
        run.spread = data.spread.as_deref().map(|spread| {
            let service = histogram(&requests.service);
            let response = censor::waits(&service, &histogram(&data.censored), over);
            Box::new(spread::record(order, spread, data, response))
        });
    } else if full {
        distributions(&mut run, order, data, over);
        // Pipelined requests have a stamp for every batch.
        run.stamp_every = Some(match order.workload.pipeline() {
            0 | 1 => order.stamp_every,
            _ => 1,
        });
        run.stamped = Some(data.attempts.stamped);
        run.exclusion = is_witnessed(order).then(|| exclusion(&run, data));
    }
    run
}

/// The record of a run that could not be made, with why.
pub(crate) fn broken_off(plan: &Plan, place: Which<'_>, why: &str) -> Run {
    Run {
        target: place.target.to_owned(),
        workload: plan.workload.to_string(),
        at: place.at,
        run: place.run,
        block: place.block,
        placement: plan.place().to_string(),
        around: Circumstances {
            errors: [(BROKE_OFF.to_owned(), 1)].into(),
            messages: vec![why.to_owned()],
            ..Circumstances::default()
        },
        ..Run::default()
    }
}

fn names(order: &RunOrder) -> Option<String> {
    match &order.workload {
        WorkloadOrder::Stream(stream) => Some(stream.names.to_string()),
        _ => None,
    }
}

fn workers(each: &EachWorker) -> Workers {
    let longest_ns = each.longest_wait_ns.iter();
    // Each by its own time.
    let rates = each.operations.iter().zip(&each.elapsed_ns);
    let rate =
        |(operations, elapsed): (&u64, &u64)| *operations as f64 * 1e9 / (*elapsed).max(1) as f64;
    Workers {
        operations: each.operations.clone(),
        longest_wait_us: longest_ns.map(|ns| ns.div_ceil(1_000)).collect(),
        elapsed_ns: each.elapsed_ns.clone(),
        throughput_per_s: rates.map(rate).collect(),
    }
}

/// With the lateness of renewals: from when each was due until it was confirmed.
fn kept_of(kept: &Kept, data: &RunData, over: &[Nanos]) -> Kept {
    let late = data.figures.get("renewal_late_ns");
    Kept {
        renewal_late_ns: late.and_then(|late| histogram(late).distribution(over)),
        ..kept.clone()
    }
}

/// With what its counts and its CPU time are by those of the workers.
fn server_of(server: Server, operations: u64, data: &RunData) -> Server {
    let counted = server.counted.map(|counted| counted as i64);
    let cpu_s = server.cpu_s.filter(|_| operations > 0);
    Server {
        difference: counted.map(|counted| counted - data.received as i64),
        cpu_us_per_operation: cpu_s.map(|s| s * 1e6 / operations as f64),
        ..server
    }
}

/// The order of workers that contended.
fn contended(order: &RunOrder) -> Option<&ContendOrder> {
    match &order.workload {
        WorkloadOrder::Contend(contend) => Some(contend),
        WorkloadOrder::Stream(_)
        | WorkloadOrder::Ask(_)
        | WorkloadOrder::Hold(_)
        | WorkloadOrder::Rate(_)
        | WorkloadOrder::Spread(_) => None,
    }
}

/// Whether the witness checks the run. With many requests on their way, the owner is not
/// known; holders of different locks do not exclude each other.
fn is_witnessed(order: &RunOrder) -> bool {
    match &order.workload {
        WorkloadOrder::Contend(_) => true,
        WorkloadOrder::Stream(stream) => stream.pipeline <= 1,
        WorkloadOrder::Ask(_)
        | WorkloadOrder::Hold(_)
        | WorkloadOrder::Rate(_)
        | WorkloadOrder::Spread(_) => false,
    }
}

/// The throughput of an ideal lock: one owner after the other without a gap, or all workers without
/// ever waiting, whichever is less: min(K/b, w/(b+i)) for hold b, idle i, w workers, K keys. Holds
/// end on time; of sleeping idles, which do not, the mean as it was. None where nothing bounds it:
/// without a hold, or where owners share.
fn ceiling(
    order: &RunOrder,
    contend: &ContendOrder,
    excludes: bool,
    idle_mean_ns: Option<f64>,
) -> Option<f64> {
    let hold = contend.hold.span().0 as f64 / 1e9;
    let idle = idle_mean_ns.unwrap_or(contend.idle.span().0 as f64) / 1e9;
    if hold == 0.0 || contend.shared > 0.0 || contend.range == Range::Overlap {
        return None;
    }
    let workers = order.workers as f64;
    let owners = match contend.range {
        Range::Disjoint => workers,
        _ if !excludes => workers,
        _ => order.keys as f64,
    };
    Some((owners / hold).min(workers / (hold + idle)))
}

fn per_worker(
    order: &RunOrder,
    contend: &ContendOrder,
    data: &RunData,
) -> Option<jostle_model::record::PerWorker> {
    let mut shares = fairness::per_worker(&data.workers.operations)?;
    if order.measure == Measure::Full {
        let longest_wait_ns = data.workers.longest_wait_ns.iter();
        let longest = longest_wait_ns.enumerate().max_by_key(|(_, wait)| **wait);
        shares.longest_wait_ns = longest.map(|(_, wait)| *wait);
        shares.longest_wait_worker = longest.map(|(worker, _)| worker as u64);
        shares.pending = Some(data.attempts.pending);
        // A worker without a stamp does not know whether the window is open, and a host
        // does not know which workers another host let in meanwhile.
        let alone = order.stamp_every == 1 && !order.meets_others();
        let streaks = data.excludes && order.workers > 1 && alone;
        if streaks && contend.range == Range::Same && contend.shared == 0.0 {
            shares.longest_streak = Some(data.attempts.streak);
            shares.longest_streak_while_waited = Some(data.attempts.streak_waited);
            shares.owner_changes = Some(data.attempts.owner_changes);
        }
    }
    Some(shares)
}

pub(crate) fn cpu(operations: u64, data: &RunData) -> Cpu {
    let own = &data.cpu;
    let children = data.requests.as_ref().map(|requests| requests.children);
    let children = children.filter(|children| children.all_ns() > 0);
    let switched = Cpu {
        context_switches: own.switches,
        runqueue_wait_s: own.runqueue_wait_ns.map(|ns| ns as f64 / 1e9),
        children_user_s: children.map(|children| children.user_ns as f64 / 1e9),
        children_system_s: children.map(|children| children.system_ns as f64 / 1e9),
        ..Cpu::default()
    };
    let Some(used_ns) = own.used_ns else {
        return switched;
    };
    let cpu_s = used_ns as f64 / 1e9;
    // The sum is exact; its parts are the workers' whole lives after the start, of which the
    // window is nearly all. The system includes what children used in that of the worker
    // that waited for them.
    let without = own.usage.less(children.unwrap_or_default());
    let parts = without.split(cpu_s).or_else(|| own.usage.split(cpu_s));
    // What is spun so that holds end on time is the tool's, not the lock's.
    let of_operations = used_ns.saturating_sub(own.spun_ns) as f64 / 1e3;
    let window_ns = data.window.window_ns();
    Cpu {
        cpu_s: Some(cpu_s),
        spun_s: (own.spun_ns > 0).then(|| own.spun_ns as f64 / 1e9),
        cpu_us_per_operation: match &data.requests {
            Some(requests) => requested::cpu_us(data, requests),
            None => (operations > 0).then(|| of_operations / operations as f64),
        },
        cpu_read_share: (window_ns > 0).then(|| own.read_ns as f64 / window_ns as f64),
        cpu_user_s: parts.map(|[user, _]| user),
        cpu_system_s: parts.map(|[_, system]| system),
        cpu_split: parts.map(|_| "sampled".to_owned()),
        ..switched
    }
}

fn distributions(run: &mut Run, order: &RunOrder, data: &RunData, over: &[Nanos]) {
    let empty = Merged::default();
    let figure = |name: &str| data.figures.get(name).unwrap_or(&empty);
    if order.workload.pipeline() > 1 {
        return batches(run, data, over);
    }
    let acquire = histogram(figure("acquire_ns"));
    run.acquire_ns = censor::waits(&acquire, &histogram(&data.censored), over);
    if let Some(censored) = &data.censored_by_mode {
        let of = |name, mode: usize| {
            censor::waits(&histogram(figure(name)), &histogram(&censored[mode]), over)
        };
        run.reader_wait_ns = of(READER_WAITS, 0).map(Box::new);
        run.writer_wait_ns = of(WRITER_WAITS, 1).map(Box::new);
    }
    run.times.hold_ns = histogram(figure("hold_ns")).distribution(over);
    run.times.release_ns = histogram(figure("release_ns")).distribution(over);
    let may_fail = |contend: &ContendOrder| contend.try_only || contend.acquire_timeout.is_some();
    if contended(order).is_some_and(may_fail) {
        run.times.failed_try_ns = histogram(figure("refused_ns")).distribution(over);
    }
    // Across hosts nobody knows who had the lock before.
    let met = order.meets_others();
    let handoff = |name: &str| histogram(if met { &empty } else { figure(name) });
    let same = handoff("handoff_same_cpu_ns");
    let cross = handoff("handoff_cross_cpu_ns");
    run.times.handoff_same_cpu_ns = same.distribution(over);
    run.times.handoff_cross_cpu_ns = cross.distribution(over);
    let mut all = same;
    all.merge(&cross);
    run.times.handoff_ns = all.distribution(over);
    let looked = !order.is_counted() || order.is_contended_stream();
    let grants = &data.attempts;
    run.blocked_share = (grants.stamped > 0 && data.excludes && looked && !met)
        .then(|| grants.contended as f64 / grants.stamped as f64);
    let all_ns = order.workers as f64 * data.window.window_s * 1e9;
    let blocked = grants.blocked_ns as f64 / all_ns.max(f64::MIN_POSITIVE);
    let is_timed = run.blocked_share.is_some() && contended(order).is_some();
    run.blocked_time_share = is_timed.then_some(blocked.min(1.0));
    match &order.workload {
        WorkloadOrder::Stream(stream) if stream.session_each => sessions(run, data, over),
        _ => keep_histograms(run, data, |name| name),
    }
}

/// The time of a session beside the lock. It is noted where others note their holds.
fn sessions(run: &mut Run, data: &RunData, over: &[Nanos]) {
    fn named(name: &str) -> &str {
        match name {
            _ if name == OPEN.name() => "open_ns",
            _ if name == CLOSE.name() => "close_ns",
            _ if name == CYCLE.name() => "cycle_ns",
            other => other,
        }
    }
    run.times.hold_ns = None;
    for (phase, figure) in [("open", OPEN), ("close", CLOSE), ("cycle", CYCLE)] {
        let span = data.figures.get(figure.name()).map(histogram);
        let span = span.and_then(|span| span.distribution(over));
        run.phases.extend(span.map(|span| Phase {
            phase: phase.to_owned(),
            span,
        }));
    }
    keep_histograms(run, data, named);
}

fn keep_histograms(run: &mut Run, data: &RunData, named: fn(&str) -> &str) {
    let figures = data.figures.iter();
    for (name, merged) in figures.chain([(&"censored_ns".to_owned(), &data.censored)]) {
        if !merged.buckets.0.is_empty() {
            run.histograms
                .insert(named(name).to_owned(), merged.buckets.clone());
        }
    }
}

/// The times of whole batches, which is how pipelined requests are stamped.
fn batches(run: &mut Run, data: &RunData, over: &[Nanos]) {
    fn named(name: &str) -> &str {
        match name {
            "acquire_ns" => "batch_ns",
            "release_ns" => "release_batch_ns",
            other => other,
        }
    }
    let of = |name: &str| data.figures.get(name).map(histogram);
    run.times.batch_ns = of("acquire_ns").and_then(|h| h.distribution(over));
    run.times.release_batch_ns = of("release_ns").and_then(|h| h.distribution(over));
    keep_histograms(run, data, named);
}

fn exclusion(run: &Run, data: &RunData) -> Exclusion {
    let hold = run.times.hold_ns.as_ref();
    Exclusion {
        inner_interval_ns: hold.and_then(|hold| hold.percentiles.get("p50").copied()),
        ..data.exclusion.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::time::Busy;

    fn order(workers: usize, hold_us: u64, idle_us: u64) -> RunOrder {
        RunOrder {
            workload: WorkloadOrder::Contend(ContendOrder {
                hold: Busy::Sleep(Nanos::from_micros(hold_us)),
                idle: Busy::Sleep(Nanos::from_micros(idle_us)),
                ..ContendOrder::bare()
            }),
            workers,
            ..crate::experiment::tests::order("null")
        }
    }

    fn ceiling(order: &RunOrder, excludes: bool, idle_mean_ns: Option<f64>) -> Option<f64> {
        super::ceiling(order, contended(order).unwrap(), excludes, idle_mean_ns)
    }

    #[test]
    fn the_ideal_is_bounded_by_the_lock_or_by_the_workers() {
        // workers, hold us, idle us -> a second
        for (workers, hold, idle, expected) in [
            (10, 1_000, 10, Some(1_000.0)), // the lock
            (1, 1_000, 1_000, Some(500.0)), // the worker
            (10, 0, 10, None),              // nothing
        ] {
            let found = ceiling(&order(workers, hold, idle), true, None);
            assert_eq!(found, expected);
        }
        let mut keys = order(10, 1_000, 10);
        keys.keys = 4;
        assert_eq!(ceiling(&keys, true, None), Some(4_000.0));
        assert_eq!(ceiling(&order(10, 1_000, 0), false, None), Some(10_000.0));
    }

    #[test]
    fn the_ideal_takes_idles_as_they_were() {
        let one = order(1, 1_000, 960);
        assert_eq!(ceiling(&one, true, Some(1_000_000.0)), Some(500.0));
        // Where the lock is the bound, idles make no difference.
        let many = order(10, 1_000, 10);
        assert_eq!(ceiling(&many, true, Some(50_000.0)), Some(1_000.0));
    }
}
