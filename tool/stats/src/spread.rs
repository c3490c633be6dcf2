//! The bottleneck of requests spread over generators: the generators, or the server.
//!
//! With twice as many generators and the same number of requests in flight, the server's
//! load does not change. If the rate rises, the generators were the bottleneck. If it stays
//! the same, and the generators were not busy, the server is. This holds only if neither
//! side takes CPU time from the other: with shared CPUs more generators may slow the
//! server, or the same cores may limit both.

use crate::checks::{attribution, neighbours};
use crate::figures::THROUGHPUT;
use crate::intervals::median;
use crate::ratio::{Ratio, by_block};
use crate::summary::PointSummary;
use jostle_model::plan::{Plan, Workload};
use jostle_model::record::{LimitedBy, Run, Verdict};

/// The rate rises if the lower end of the ratio's interval exceeds this.
pub const MORE: f64 = 1.05;
/// An interval within these is the same.
pub const SAME: (f64, f64) = (0.95, 1.05);
/// Up to here a generator has time to ask for more.
pub const IDLE_ENOUGH: f64 = 0.7;

/// The result of a pair of points for the one with fewer generators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Fewer generators.
    pub few: u64,
    /// At least twice as many.
    pub many: u64,
    /// The rate of the many by that of the few.
    pub ratio: Ratio,
    /// The bottleneck of the point with fewer generators.
    pub limit: LimitedBy,
}

/// The evidence about the bottleneck.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attribution {
    /// The pair that decided, if one did or might have.
    pub pair: Option<Pair>,
    /// Why nothing could be said, where budgets are not disjoint.
    pub not_apart: Option<String>,
}

/// Finds the bottleneck of each point with generators.
pub fn judge(plan: &Plan, points: &mut [PointSummary<'_>]) {
    if plan.workload != Workload::Spread {
        return;
    }
    for at in 0..points.len() {
        let attribution = attribute(points, at);
        let limit = limit(&points[at], &attribution);
        let point = &mut points[at];
        let pair = attribution.pair.as_ref();
        if let Some(reason) = pair.and_then(|pair| attribution::reason(plan, pair)) {
            let mut reasons = std::mem::take(&mut point.verdict.reasons);
            reasons.push(reason);
            point.verdict = Verdict {
                limited_by: point.verdict.limited_by,
                ..Verdict::of(reasons)
            };
        }
        // A generator that is busy all the time is the bottleneck, whatever the pairs show.
        point.verdict.limited_by.get_or_insert(limit);
        point.attribution = Some(attribution);
    }
}

fn attribute(points: &[PointSummary<'_>], at: usize) -> Attribution {
    let point = &points[at];
    if let Some(not_apart) = shared_budgets(point) {
        return Attribution {
            not_apart: Some(not_apart),
            ..Attribution::default()
        };
    }
    // INVALID points are not used.
    let usable = |other: &PointSummary<'_>| !other.verdict.is_invalid();
    if !usable(point) {
        return Attribution::default();
    }
    let same = |other: &&PointSummary<'_>| other.target == point.target && usable(other);
    let k = point.at.generators.unwrap_or(0);
    // The nearest point with twice as many; for the largest, the pair that it ends.
    let more = points
        .iter()
        .filter(same)
        .filter(|other| other.at.generators >= Some(2 * k))
        .min_by_key(|other| other.at.generators);
    let fewer = points
        .iter()
        .filter(same)
        .filter(|other| other.at.generators.is_some_and(|few| 2 * few <= k))
        .max_by_key(|other| other.at.generators);
    let pair = match (more, fewer) {
        (Some(more), _) => pair(point, more),
        // Inherits "the server" from its pair, never "the generators": that fewer
        // generators were the bottleneck does not apply to this point.
        (None, Some(fewer)) => pair(fewer, point).map(|pair| match pair.limit {
            LimitedBy::Target => pair,
            _ => Pair {
                limit: LimitedBy::Undecided,
                ..pair
            },
        }),
        (None, None) => None,
    };
    Attribution {
        pair,
        not_apart: None,
    }
}

/// Why the two sides may take CPU time from each other, if they may.
fn shared_budgets(point: &PointSummary<'_>) -> Option<String> {
    let spreads = || point.runs.iter().filter_map(|run| run.spread.as_deref());
    if let Some(shared) = spreads().find(|spread| spread.disjoint != Some(true)) {
        return Some(shared.budgets.clone());
    }
    (spreads().any(|spread| spread.by_address) && others_are_busy(point)).then(|| {
        "the server's address is of another machine, but other programs used this one, and the \
         server may be among them; name its control group (--server cgroup:PATH)"
            .to_owned()
    })
}

/// Whether CPU time of this machine was used that belongs to no known process: a server in
/// a container or a namespace has another address, but uses the same CPUs.
fn others_are_busy(point: &PointSummary<'_>) -> bool {
    /// Share of the CPUs.
    const USED: f64 = 0.03;
    let harmed = |verdict: &Verdict| {
        let mut reasons = verdict.reasons.iter();
        reasons.any(|reason| reason.check == neighbours::CHECK.name)
    };
    let on_a_host = |run: &&&Run| run.hosts.iter().any(|row| harmed(&row.verdict));
    let hosts = point.runs.iter().filter(on_a_host).count();
    let used: Vec<f64> = point.runs.iter().map(|run| used_by_others(run)).collect();
    2 * hosts > point.runs.len() || median(&used).is_some_and(|used| used > USED)
}

/// Share of the machine that neither we nor the kernel used. If other processes cannot be
/// seen, it follows from the machine's idle time. That includes time charged to no task,
/// for interrupts and for entering and leaving idle: at most 16 % of our own time in 95 %
/// of 189 streams over the loopback.
fn used_by_others(run: &Run) -> f64 {
    const UNCHARGED: f64 = 0.16;
    if let Some((accounts, others_s)) = run
        .around
        .accounts
        .as_deref()
        .and_then(|accounts| Some((accounts, accounts.others_s?)))
    {
        return others_s / (accounts.between_s * accounts.cpus as f64);
    }
    let machine = &run.around.machine;
    let per_s = machine.ticks_per_s.max(1) as f64;
    let total_s = machine
        .between_s
        .map_or(machine.ticks as f64 / per_s, |s| s * machine.cores as f64);
    let not_busy = machine.ticks.saturating_sub(machine.busy_ticks) as f64 / per_s;
    let children_s = [run.cpu.children_user_s, run.cpu.children_system_s];
    let server_s = run.server.and_then(|server| server.cpu_s);
    let ours = [run.cpu.cpu_s, Some(machine.harness_cpu_s), server_s];
    let ours_s: f64 = children_s.iter().chain(&ours).flatten().sum();
    let others_s = total_s - not_busy - (1.0 + UNCHARGED) * ours_s;
    others_s / total_s.max(f64::MIN_POSITIVE)
}

fn pair(few: &PointSummary<'_>, many: &PointSummary<'_>) -> Option<Pair> {
    let ratio = by_block(few, many, THROUGHPUT)?;
    let idle = |point| busy(point).is_some_and(|busy| busy <= IDLE_ENOUGH);
    let limit = match ratio {
        _ if !ratio.interval => LimitedBy::Undecided,
        _ if ratio.low > MORE => LimitedBy::Generator,
        _ if ratio.low >= SAME.0 && ratio.high <= SAME.1 && idle(few) && idle(many) => {
            LimitedBy::Target
        }
        _ => LimitedBy::Undecided,
    };
    Some(Pair {
        few: few.at.generators?,
        many: many.at.generators?,
        ratio,
        limit,
    })
}

/// How busy the busiest generator was; the median over the runs.
pub fn busy(point: &PointSummary<'_>) -> Option<f64> {
    let busiest = point.runs.iter().filter_map(|run| {
        let thread_loads = run.thread_loads.iter();
        let shares = thread_loads.map(|generator| generator.busy_share);
        shares.reduce(f64::max)
    });
    median(busiest)
}

fn limit(point: &PointSummary<'_>, attribution: &Attribution) -> LimitedBy {
    match attribution.pair {
        Some(pair) if Some(pair.few) == point.at.generators => pair.limit,
        Some(pair) if pair.limit == LimitedBy::Target => LimitedBy::Target,
        _ => LimitedBy::Undecided,
    }
}
