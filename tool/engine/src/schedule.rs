//! How long and how often: pure rules from what a pilot measured to windows,
//! points and blocks. tool/docs/method/statistics.md.

use jostle_model::Nanos;
use jostle_model::record::{RunTimes, Scheduled};
use jostle_stats::rng::Rng;
use std::collections::BTreeSet;

/// Fewer grants say nothing about a rate.
const GRANTS: u64 = 1_000;
/// Rotations that fairness needs, and a tenth more, so that a run a little
/// slower than its pilot still holds ten.
const ROTATIONS: u64 = 11;
/// Rotations below which a shortened window would not show even one turn of
/// each worker.
const FEWEST_ROTATIONS: u64 = 2;
const SHORTEST: Nanos = Nanos::from_millis(250);
const LONGEST: Nanos = Nanos::from_millis(5_000);
const WARMUP_SHORTEST: Nanos = Nanos::from_millis(50);
const WARMUP_LONGEST: Nanos = Nanos::from_millis(2_000);

/// Runs of each point, where the plan does not say: with six, the extremes are
/// a 95 % interval of the median.
pub(crate) const BLOCKS: u32 = 6;
/// Never fewer, unless the plan says so.
pub(crate) const FEWEST_BLOCKS: u32 = 3;
/// At these numbers of runs it is asked whether they suffice.
pub(crate) const LOOKS: [u32; 3] = [9, 12, 15];

/// A window in which each of so many workers has enough turns, if one owner follows the other
/// after this time. None where none is that long.
pub(crate) fn rotations(workers: u64, grant: Nanos) -> Option<Nanos> {
    let window = Nanos(grant.0.saturating_mul(workers).saturating_mul(ROTATIONS));
    Some(window).filter(|window| *window <= LONGEST)
}

/// A pilot's findings about one point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pilot {
    /// Workers.
    pub workers: u64,
    /// Mean time per grant.
    pub grant: Nanos,
    /// Starting, stopping and reaping the workers.
    pub overhead: Nanos,
}

impl Pilot {
    /// The time in which each worker could have one turn.
    fn rotation(&self) -> Nanos {
        Nanos(self.grant.0.saturating_mul(self.workers))
    }

    /// The window that a point deserves.
    pub(crate) fn window(&self) -> Nanos {
        let rotations = self.rotation().0.saturating_mul(ROTATIONS);
        let grants = self.grant.0.saturating_mul(GRANTS);
        Nanos(rotations.max(grants)).clamp(SHORTEST, LONGEST)
    }

    /// The shortest in which fairness can be judged: a window that is shortened for the
    /// budget gives up precision of the rate first.
    fn fair_window(&self) -> Nanos {
        let rotations = self.rotation().0.saturating_mul(ROTATIONS);
        Nanos(rotations).clamp(SHORTEST, self.window())
    }

    /// The shortest that still means something.
    fn shortest_window(&self) -> Nanos {
        Nanos(self.rotation().0.saturating_mul(FEWEST_ROTATIONS)).clamp(SHORTEST, self.window())
    }

    /// From the last arrival to the window.
    pub(crate) fn warmup(&self) -> Nanos {
        Nanos(self.rotation().0.saturating_mul(2)).clamp(WARMUP_SHORTEST, WARMUP_LONGEST)
    }
}

/// The choices that the plan leaves to us.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Asked {
    /// The window, if the plan says it.
    pub window: Option<Nanos>,
    /// The warm-up, if the plan says it.
    pub warmup: Option<Nanos>,
    /// Runs, if the plan says them.
    pub runs: Option<u32>,
    /// The time that all runs together may take.
    pub budget: Nanos,
    /// Whether points may be left out: nobody asked for them.
    pub may_drop: bool,
    /// The window is a default that nobody asked for, and may be shortened to this.
    pub may_shorten: Option<Nanos>,
    /// The option that sweeps the points, such as `-w`.
    pub option: &'static str,
}

impl Asked {
    /// Whether what takes so long keeps the budget.
    pub(crate) fn holds(&self, takes: Nanos) -> bool {
        holds(self.budget, takes)
    }
}

/// Whether a run time keeps this budget. A tenth more is accepted, since estimates are no
/// more accurate than that.
pub(crate) fn holds(budget: Nanos, takes: Nanos) -> bool {
    takes.0 <= budget.0.saturating_add(budget.0 / 10)
}

/// Whether the first of so many blocks took so much longer than planned that it is told: by
/// ratio, and by the time that the user has to wait for all of them.
pub(crate) fn is_slower(took: Nanos, planned: Nanos, blocks: u32) -> bool {
    const FAR: f64 = 1.5;
    const LONG: Nanos = Nanos::from_millis(5_000);
    let late = took.0.saturating_sub(planned.0);
    let late = late.saturating_mul(u64::from(blocks));
    blocks > 1 && took.0 as f64 > FAR * planned.0 as f64 && late > LONG.0
}

/// The schedule decided on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Schedule {
    /// For each point in the order given; None: left out.
    pub points: Vec<Option<Timing>>,
    /// Runs of each.
    pub blocks: u32,
    /// The concessions made for the budget, in words.
    pub concessions: Vec<String>,
}

impl Schedule {
    /// The schedule of an experiment that is resumed. Its plan has only the points that
    /// were kept.
    pub(crate) fn from_record(scheduled: &Scheduled) -> Schedule {
        let timing = |times: &RunTimes| Timing {
            window: Nanos(times.window_ns),
            warmup: Nanos(times.warmup_ns),
            overhead: Nanos(times.overhead_ns),
        };
        Schedule {
            points: scheduled.times.iter().map(|t| Some(timing(t))).collect(),
            blocks: scheduled.blocks,
            concessions: Vec::new(),
        }
    }

    /// As [`Schedule::from_record`] takes it.
    pub(crate) fn times(&self) -> Vec<RunTimes> {
        let kept = self.points.iter().flatten();
        let times = kept.map(|timing| RunTimes {
            window_ns: timing.window.0,
            warmup_ns: timing.warmup.0,
            overhead_ns: timing.overhead.0,
        });
        times.collect()
    }

    /// The time of all its runs together, as far as is known.
    pub(crate) fn takes(&self) -> Nanos {
        let block: u64 = self.points.iter().flatten().map(Timing::total).sum();
        Nanos(block * u64::from(self.blocks))
    }
}

/// The times of a run of one point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timing {
    /// The window.
    pub window: Nanos,
    /// Before it.
    pub warmup: Nanos,
    /// Starting, stopping and reaping.
    pub overhead: Nanos,
}

impl Timing {
    fn total(&self) -> u64 {
        self.window.0 + self.warmup.0 + self.overhead.0
    }
}

/// Fits the points into the budget: shorter windows first, then fewer interior points, then
/// fewer blocks; each concession is stated in words. `columns` groups the points: those of
/// one swept value are kept or dropped together for all targets. A window that is a default
/// of the workload is shortened last.
pub(crate) fn fit(points: &[Pilot], columns: &[u64], asked: &Asked) -> Schedule {
    let schedule = fit_given(points, columns, asked);
    match (asked.may_shorten, asked.window) {
        (Some(least), Some(window)) if schedule.takes() > asked.budget => {
            shorten(schedule, least, window, asked.budget)
        }
        _ => schedule,
    }
}

/// Takes from each window of a schedule what the budget lacks, down to `least`.
fn shorten(mut schedule: Schedule, least: Nanos, window: Nanos, budget: Nanos) -> Schedule {
    let timings = || schedule.points.iter().flatten();
    let besides: u64 = timings().map(|t| t.warmup.0 + t.overhead.0).sum();
    let count = timings().count().max(1) as u64;
    let block = budget.0 / u64::from(schedule.blocks.max(1));
    let each = Nanos(block.saturating_sub(besides) / count);
    let each = each.clamp(least.min(window), window);
    for timing in schedule.points.iter_mut().flatten() {
        timing.window = each;
    }
    let (now, before) = (each.as_secs_f64(), window.as_secs_f64());
    schedule
        .concessions
        .insert(0, format!("windows of {now:.1} s instead of {before} s"));
    schedule
}

fn fit_given(points: &[Pilot], columns: &[u64], asked: &Asked) -> Schedule {
    let mut kept: Vec<bool> = vec![true; points.len()];
    let wanted = asked.runs.unwrap_or(BLOCKS);
    let mut concessions = Vec::new();
    let mut share = shrink(points, &kept, asked, wanted);
    while share.is_none() && asked.may_drop && drop_interior(columns, &mut kept) {
        share = shrink(points, &kept, asked, wanted);
    }
    let dropped = dropped_columns(columns, &kept);
    let dropped: Vec<String> = dropped.iter().map(u64::to_string).collect();
    if !dropped.is_empty() {
        concessions.push(format!("left out {} {}", asked.option, dropped.join(":")));
    }
    // Fewer blocks may leave room to lengthen the windows again.
    let blocks = match (asked.runs, share) {
        (Some(runs), _) => runs,
        (None, Some(_)) => BLOCKS,
        (None, None) => {
            let block = timings(points, &kept, asked, 0.0);
            let block: u64 = block.iter().flatten().map(Timing::total).sum();
            fitting_blocks(block, asked.budget).clamp(FEWEST_BLOCKS, BLOCKS)
        }
    };
    let share = share
        .or_else(|| shrink(points, &kept, asked, blocks))
        .unwrap_or(0.0);
    if asked.window.is_none() && share < 1.0 {
        concessions.insert(0, "shortened windows".to_owned());
    }
    if asked.runs.is_none() && blocks < BLOCKS {
        concessions.push(format!("{blocks} runs of each point instead of {BLOCKS}"));
    }
    let timings = timings(points, &kept, asked, share);
    Schedule {
        points: timings,
        blocks,
        concessions,
    }
}

/// For runs that end with their operations: as many blocks as the budget holds. Points that
/// nobody asked for are dropped where they do not fit, the longest first.
pub(crate) fn count(points: &[Timing], columns: &[u64], asked: &Asked) -> Schedule {
    let mut kept: Vec<bool> = vec![true; points.len()];
    let block = |kept: &[bool]| -> u64 {
        let kept = points.iter().zip(kept).filter(|(_, kept)| **kept);
        kept.map(|(timing, _)| timing.total()).sum()
    };
    let least = u64::from(asked.runs.unwrap_or(FEWEST_BLOCKS));
    while asked.may_drop
        && !asked.holds(Nanos(block(&kept) * least))
        && drop_greatest(columns, &mut kept)
    {}
    let fitting = fitting_blocks(block(&kept), asked.budget).clamp(FEWEST_BLOCKS, BLOCKS);
    let blocks = asked.runs.unwrap_or(fitting);
    let mut concessions = Vec::new();
    let dropped = dropped_columns(columns, &kept);
    if !dropped.is_empty() {
        let dropped: Vec<String> = dropped.iter().map(u64::to_string).collect();
        concessions.push(format!("left out {} {}", asked.option, dropped.join(":")));
    }
    if asked.runs.is_none() && blocks < BLOCKS {
        concessions.push(format!("{blocks} runs of each point instead of {BLOCKS}"));
    }
    let points = points.iter().zip(&kept);
    Schedule {
        points: points
            .map(|(timing, kept)| kept.then_some(*timing))
            .collect(),
        blocks,
        concessions,
    }
}

/// Drops the greatest swept value; the last one stays. False if none is left to drop.
fn drop_greatest(columns: &[u64], kept: &mut [bool]) -> bool {
    let values = columns.iter().zip(kept.iter()).filter(|(_, kept)| **kept);
    let values: BTreeSet<u64> = values.map(|(value, _)| *value).collect();
    let greatest = values.last().copied().filter(|_| values.len() > 1);
    if let Some(value) = greatest {
        let of_value = columns.iter().zip(kept.iter_mut());
        of_value
            .filter(|(column, _)| **column == value)
            .for_each(|(_, kept)| *kept = false);
    }
    greatest.is_some()
}

fn timings(points: &[Pilot], kept: &[bool], asked: &Asked, share: f64) -> Vec<Option<Timing>> {
    let each = points.iter().zip(kept);
    each.map(|(pilot, kept)| kept.then(|| timing(pilot, asked, share)))
        .collect()
}

fn fitting_blocks(block: u64, budget: Nanos) -> u32 {
    u32::try_from(budget.0 / block.max(1)).unwrap_or(u32::MAX)
}

fn timing(pilot: &Pilot, asked: &Asked, share: f64) -> Timing {
    let (fair, full) = (pilot.fair_window().0 as f64, pilot.window().0 as f64);
    let (from, to, part) = match share < FAIR {
        true => (pilot.shortest_window().0 as f64, fair, share / FAIR),
        false => (fair, full, (share - FAIR) / (1.0 - FAIR)),
    };
    Timing {
        window: asked
            .window
            .unwrap_or(Nanos((from + part * (to - from)) as u64)),
        warmup: asked.warmup.unwrap_or(pilot.warmup()),
        overhead: pilot.overhead,
    }
}

/// The share at which each window is the shortest in which fairness can be judged.
const FAIR: f64 = 0.5;

/// How far between its shortest (0), its fair ([`FAIR`]) and its full window (1) each point
/// may go; None if even the shortest do not fit.
fn shrink(points: &[Pilot], kept: &[bool], asked: &Asked, blocks: u32) -> Option<f64> {
    let total = |share: f64| -> u64 {
        let kept = points.iter().zip(kept).filter(|(_, kept)| **kept);
        kept.map(|(pilot, _)| timing(pilot, asked, share).total())
            .sum::<u64>()
            * u64::from(blocks)
    };
    // Totals are linear in the share on both sides of FAIR.
    let part = |from: u64, to: u64| (asked.budget.0 - from) as f64 / (to - from) as f64;
    let (shortest, fair, full) = (total(0.0), total(FAIR), total(1.0));
    match asked.budget.0 {
        budget if full <= budget => Some(1.0),
        budget if fair <= budget => Some(FAIR + (1.0 - FAIR) * part(fair, full)),
        budget if shortest > budget => None,
        _ => Some(FAIR * part(shortest, fair)),
    }
}

/// Drops the swept value that stands closest between its neighbours, by ratio;
/// the first and the last stay. False if none is left to drop.
fn drop_interior(columns: &[u64], kept: &mut [bool]) -> bool {
    let values = columns.iter().zip(kept.iter());
    let mut values: Vec<u64> = values.filter(|(_, k)| **k).map(|(c, _)| *c).collect();
    values.sort_unstable();
    values.dedup();
    let closest = values
        .windows(3)
        .min_by(|a, b| (a[2] as f64 / a[0] as f64).total_cmp(&(b[2] as f64 / b[0] as f64)))
        .map(|three| three[1]);
    if let Some(value) = closest {
        columns
            .iter()
            .zip(kept.iter_mut())
            .filter(|(c, _)| **c == value)
            .for_each(|(_, kept)| *kept = false);
    }
    closest.is_some()
}

fn dropped_columns(columns: &[u64], kept: &[bool]) -> Vec<u64> {
    let dropped = columns.iter().zip(kept);
    let mut dropped: Vec<u64> = dropped.filter(|(_, k)| !**k).map(|(c, _)| *c).collect();
    dropped.sort_unstable();
    dropped.dedup();
    dropped
}

/// The order of the runs of block number `block`, from 1: odd blocks in a
/// seeded random order, each even one in the reverse of the block before, so
/// that a drift of the machine falls on all points alike.
pub(crate) fn block_order(points: usize, block: u32, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points).collect();
    let pair = (block - 1) / 2;
    Rng::stream(seed, u64::from(pair)).shuffle(&mut order);
    if block.is_multiple_of(2) {
        order.reverse();
    }
    order
}

/// How many of the finished blocks do not count, because other programs used so much of the
/// CPUs that the blocks are repeated. It is at most half of the planned blocks, a number
/// that no result can change. Zero where fewer than six are planned, since too few would be
/// left, and where every block was spoilt: the machine is then always busy.
pub(crate) fn repeats(planned: u32, made: u32, spoilt: u32) -> u32 {
    match planned >= BLOCKS && spoilt < made {
        true => spoilt.min(planned / 2),
        false => 0,
    }
}

/// Whether, after `done` runs of each point, another block is due.
/// `half_widths` are the relative half-widths of all points' intervals.
pub(crate) fn goes_on(done: u32, half_widths: &[f64], left: Nanos, block: Nanos) -> bool {
    /// Narrow enough.
    const NARROW: f64 = 0.05;
    let last = LOOKS[LOOKS.len() - 1];
    let look = done == BLOCKS || LOOKS.contains(&done);
    let narrow = half_widths.iter().all(|width| *width < NARROW);
    done < last && left >= block && !(look && narrow)
}

#[cfg(test)]
mod tests;
