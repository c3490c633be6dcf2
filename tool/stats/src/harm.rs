//! Bounds on the effect of everything foreign on our CPUs: the range of figures that might
//! have been measured without it.
//!
//! Foreign are other programs, kernel threads, soft interrupts that are not ours (I) and
//! the hypervisor (S). With F the foreign CPU time on our CPUs, D the time that our threads
//! were runnable and not running, and W the window times the CPUs that the work needs at
//! once, the share of the window in which anything of ours was kept from working is at most
//!
//! ```text
//! d = min(1, (min(F, D) + I + S) / W)
//! ```
//!
//! D alone is no harm: if workers outnumber CPUs, they queue for each other. F alone keeps
//! nothing from working: programs that run while ours sleep take nothing from them. When a
//! program that was started for a call ends, the kernel discards its waiting time. D is then
//! the workers' waiting time, scaled by the CPU time of both over that of the workers.
//!
//! In an open loop at a low rate the figure is the time of service, and most of the window
//! is idle: W is then the sum of these times, if that is less. (Only where F is
//! [`BEARABLE`] of the window or more. Otherwise a trace of other work would be set against
//! milliseconds.)
//!
//! Foreign work can also make ours quicker, without keeping it from a CPU: two workers on one CPU
//! hand a lock on without waking another CPU, and a CPU that is never idle need not be woken. In
//! the share f = (F + I + S) / window the work ran at C at most, the greatest rate at which it was
//! seen. The undisturbed throughput then lies within
//!
//! ```text
//! [(X - f C) / (1 - f), X / (1 - max(d, f))]
//! ```
//!
//! What runs beside ours can also hold them up without taking a CPU: it holds a lock of the kernel,
//! calls the other CPUs, empties the caches. At worst ours did nothing in the share f: beside a
//! program that read /proc/locks two workers did 0.66 of their rate, and d was 0.06. There is no
//! upper end where f exceeds a half. For one worker that neither asks a server nor starts programs
//! d decides.
//!
//! The lower end is X where f is at most [`CLEAN`], and for one worker that neither asks a
//! server nor starts programs, which nothing can hasten. There is none where f C exceeds X / 2.
//! The operations of servers and of programs are not calibrated: their lower end is X where
//! other programs ran for less than 3 % of the window; otherwise C is the ideal, and without
//! one there is no lower end. C is measured, not proven, and the bound takes the rest of the
//! run to be as on an undisturbed machine.

use crate::clean;
use jostle_model::open_loop::OpenLoop;
use jostle_model::plan::{Measure, Plan, Range, Shape, Workload};
use jostle_model::record::{Accounts, Calibration, Experiment, Neighbour, Run};
use jostle_model::time::Busy;

/// VALID needs both ends of the bound within this of the figure.
pub const BEARABLE: f64 = 0.05;

/// Packets a second that a CPU of an idle machine handles at most. So many take 0.1 % of it.
pub(crate) const IDLE_PACKETS_PER_S: f64 = 500.0;

/// Share of a span of time up to which it counts as undisturbed: 0.1 ms in 20 ms.
pub const CLEAN: f64 = 0.005;

/// The widest interval of a run that takes part in a comparison.
const NARROW: f64 = 0.03;

/// f C / X above which there is no lower end, and f above which there is no upper one.
const MOST: f64 = 0.5;

/// f of a server, without kernel threads, up to which the lower end is X: in 311 trials
/// nothing so brief made any work 3 % quicker (lab/record/validation.md).
pub(crate) const BRIEF: f64 = 0.03;

/// The bound, relative to the figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Harm {
    /// d.
    pub share: f64,
    /// The undisturbed figure is at least so many times the measured one; zero where
    /// nothing bounds it.
    pub low: f64,
    /// The undisturbed figure is at most so many times the measured one; infinite where
    /// nothing bounds it.
    pub high: f64,
}

impl Harm {
    /// The largest relative difference of the undisturbed figure from the measured one.
    pub fn off(&self) -> f64 {
        (self.high - 1.0).max(1.0 - self.low)
    }
}

/// The accounts of a run that has a figure. Where the window never began, as when the only
/// client died before, there is none that anybody could have harmed.
pub fn accounts(run: &Run) -> Option<&Accounts> {
    let accounts = run.around.accounts.as_deref();
    accounts.filter(|_| run.window.window_s > 0.0)
}

/// Over all runs of a point: the medians of their bounds, as the figure is the median
/// of theirs. None where no run has [`accounts`], or where a run's harm cannot be bounded.
/// A figure over clean slices is not harmed.
pub fn bound(experiment: &Experiment, runs: &[&Run]) -> Option<Harm> {
    if clean::clean(runs).is_some() {
        return Some(UNHARMED);
    }
    bound_of_all(experiment, runs)
}

const UNHARMED: Harm = Harm {
    share: 0.0,
    low: 1.0,
    high: 1.0,
};

/// The bound of the whole windows, which percentiles are of.
pub(crate) fn bound_of_all(experiment: &Experiment, runs: &[&Run]) -> Option<Harm> {
    let each: Option<Vec<Harm>> = each(experiment, runs).into_iter().flatten().collect();
    let each = each.filter(|each| !each.is_empty())?;
    // Infinite bounds take part in the median like others.
    let over = |of: fn(&Harm) -> f64| median(each.iter().map(of).collect());
    // The row prints the median of the shares, which is not one over that of their inverses.
    let of_ideal: Option<Vec<f64>> = runs.iter().map(|run| run.of_ideal).collect();
    let ideal = of_ideal.map_or(f64::INFINITY, |shares| (1.0 / median(shares)).max(1.0));
    Some(Harm {
        share: over(|harm| harm.share),
        low: over(|harm| harm.low),
        high: over(|harm| harm.high).min(ideal),
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() % 2 {
        1 => values[half],
        _ => (values[half - 1] + values[half]) / 2.0,
    }
}

/// The least and the most that the throughput of each run would have been undisturbed,
/// relative to it, for whatever compares runs. None where that is unknown, or where one is
/// more than `NARROW` above the other. A run without accounts counts as it was measured:
/// for it the comparison has nothing else.
pub fn narrow(experiment: &Experiment, runs: &[&Run]) -> Vec<Option<[f64; 2]>> {
    let all = wide(experiment, runs).into_iter();
    all.map(|ends| ends.filter(|[low, high]| *high <= (1.0 + NARROW) * low))
        .collect()
}

/// As [`narrow`], however far apart both are.
pub(crate) fn wide(experiment: &Experiment, runs: &[&Run]) -> Vec<Option<[f64; 2]>> {
    let of_run = |harm: Option<Option<Harm>>| match harm {
        None => Some([1.0, 1.0]),
        Some(harm) => harm.map(|harm| [harm.low, harm.high]),
    };
    each(experiment, runs).into_iter().map(of_run).collect()
}

/// Whether each run was undisturbed as a whole, so that its times and shares are: both ends
/// of its own bound are within [`BEARABLE`] of the figure, and what was foreign was `BRIEF`.
/// What is unknown is `unchecked`'s to report. Where a time is the figure, it stands within its
/// bound. What fixes a throughput (holds and idles, a rate that is offered) fixes no times: on a
/// CPU that hogs kept awake, waits were 11 to 14 % shorter and took 12 to 24 % less CPU time.
pub fn undisturbed(experiment: &Experiment, runs: &[&Run]) -> Vec<bool> {
    let each = each(experiment, runs).into_iter();
    let interrupted = interrupted(runs);
    let is = |(run, harm): (&&Run, Option<Option<Harm>>)| {
        let bounded = run.at.open.is_some() || run.at.fault.is_some();
        let is_brief = || {
            accounts(run).is_none_or(|all| {
                let foreign = foreign(all, interrupted);
                let is_awake = is_alone(run, all) && !sleeps(&experiment.plan);
                is_awake || foreign <= CLEAN || by_others(run, all, foreign) < BRIEF
            })
        };
        let within = |harm: Harm| harm.off() < BEARABLE && is_brief();
        bounded || harm.flatten().is_none_or(within)
    };
    runs.iter().zip(each).map(is).collect()
}

/// The bound of each run of a point: outer None without [`accounts`], inner None where the
/// harm cannot be bounded.
pub fn each(experiment: &Experiment, runs: &[&Run]) -> Vec<Option<Option<Harm>>> {
    let quickest_per_s = quickest_per_s(experiment, runs);
    let interrupted = interrupted(runs);
    let of_run = |run: &&Run| {
        let accounts = accounts(run)?;
        let lost_s = accounts.stolen_s.unwrap_or(0.0) + interrupted * accounts.between_s;
        let Some(share) = share(&experiment.plan, run, accounts, lost_s) else {
            return Some(None);
        };
        let foreign = foreign(accounts, interrupted);
        let kept_up = kept_up(&experiment.plan, run, accounts, foreign);
        Some(Some(Harm {
            share,
            low: match kept_up {
                true => 1.0,
                false => low(run, accounts, foreign, quickest_per_s),
            },
            high: high(run, accounts, share, foreign).min(most(run)),
        }))
    };
    runs.iter().map(of_run).collect()
}

/// The bound on the rate, as a multiple of it: an open loop does no more than it was asked for, a
/// closed one no more than a lock without any cost would.
fn most(run: &Run) -> f64 {
    let offered = run.open_loop.as_ref();
    let offered = offered.map(|open| open.planned as f64 / open.done.max(1) as f64);
    let ideal = run.of_ideal.map(|share| 1.0 / share);
    // A lock that does not exclude may exceed the ideal.
    offered
        .or(ideal)
        .map_or(f64::INFINITY, |most| most.max(1.0))
}

/// f of a run by its accounts alone, without soft interrupts. None where nothing is known.
pub(crate) fn foreign_share(run: &Run) -> Option<f64> {
    let accounts = accounts(run)?;
    let lost_s = foreign_s(accounts)? + accounts.stolen_s.unwrap_or(0.0);
    Some(lost_s / accounts.between_s)
}

/// f, at most 1. `interrupted`: soft interrupts of others, per second and CPU.
fn foreign(accounts: &Accounts, interrupted: f64) -> f64 {
    let lost_s = accounts.stolen_s.unwrap_or(0.0) + interrupted * accounts.between_s;
    ((foreign_s(accounts).unwrap_or(0.0) + lost_s) / accounts.between_s).min(1.0)
}

/// The least of what ran beside these runs, as far as it moves times.
pub(crate) fn least_beside(runs: &[&Run]) -> Option<f64> {
    let interrupted = interrupted(runs);
    let of_run = |run: &&Run| {
        let accounts = accounts(run)?;
        Some(by_others(run, accounts, foreign(accounts, interrupted)))
    };
    runs.iter().filter_map(of_run).reduce(f64::min)
}

/// f, of a server or of programs without kernel threads that may have worked for these.
fn by_others(run: &Run, accounts: &Accounts, foreign: f64) -> f64 {
    if !is_served(run, accounts) {
        return foreign;
    }
    // The time that counts for nobody is not in f.
    let for_server_s = for_server_s(accounts) - own_softirqs_s(accounts);
    foreign - for_server_s / accounts.between_s
}

/// Whether an open loop did all that was offered, and would have done it undisturbed. The
/// requests of the undisturbed time took at most all the time of service. If each had taken as
/// long as these on average, and one had followed the other, they still fit into the window.
fn kept_up(plan: &Plan, run: &Run, accounts: &Accounts, foreign: f64) -> bool {
    let did_all = |open: &OpenLoop| open.done >= open.planned;
    run.open_loop.as_deref().is_some_and(did_all)
        && served_s(plan, run) <= (1.0 - foreign) * accounts.between_s
}

/// The upper end, as a multiple of the throughput.
fn high(run: &Run, accounts: &Accounts, share: f64, foreign: f64) -> f64 {
    let foreign = by_others(run, accounts, foreign);
    match is_alone(run, accounts) {
        true => 1.0 / (1.0 - share),
        false if foreign <= MOST => 1.0 / (1.0 - share.max(foreign)),
        false => f64::INFINITY,
    }
}

/// The lower end, as a multiple of the throughput X: (1 - f C / X) / (1 - f).
fn low(run: &Run, accounts: &Accounts, foreign: f64, quickest_per_s: Option<f64>) -> f64 {
    if foreign <= CLEAN || is_alone(run, accounts) {
        return 1.0;
    }
    let by_others = by_others(run, accounts, foreign);
    let (foreign, quickest_per_s) = match quickest_per_s {
        Some(per_s) => (foreign, per_s),
        None if by_others < BRIEF => return 1.0,
        None if is_served(run, accounts) => (by_others, run.ceiling_per_s.unwrap_or(f64::INFINITY)),
        None => return 0.0,
    };
    let hastened = foreign * quickest_per_s / run.throughput_per_s;
    match Some(hastened).filter(|share| *share <= MOST) {
        Some(share) => ((1.0 - share) / (1.0 - foreign)).min(1.0),
        None => 0.0,
    }
}

/// Whether one worker wakes nobody and waits for nobody, so that nothing hastens it.
fn is_alone(run: &Run, accounts: &Accounts) -> bool {
    run.at.workers == Some(1) && !is_served(run, accounts)
}

/// Whether holds or idles sleep: what follows is quicker on a CPU that others kept awake.
fn sleeps(plan: &Plan) -> bool {
    let mut each = [plan.hold, plan.idle].into_iter().flatten();
    each.any(|busy| matches!(busy, Busy::Sleep(span) if span.0 > 0))
}

/// Whether the operations are answered by a server or by programs that are started for them:
/// processes that wake each other, and are quicker where a CPU is kept awake.
fn is_served(run: &Run, accounts: &Accounts) -> bool {
    has_server(run, accounts) || accounts.requests_s.is_some()
}

/// CPU time of kernel threads that may have worked for a server: others send and write for it.
pub fn for_server_s(accounts: &Accounts) -> f64 {
    /// They look after the machine's memory.
    const NEVER: [&str; 4] = ["ksmd", "khugepaged", "kcompactd", "kdamond"];
    let never = |one: &&Neighbour| NEVER.iter().any(|name| one.name.starts_with(name));
    let of_memory = accounts.kernel_threads.iter().filter(never);
    accounts.machine_s - of_memory.map(|one| one.cpu_s).sum::<f64>()
}

/// d of one run. None if our threads' waiting time was not recorded, or if other processes
/// cannot be seen and our own threads outnumber the CPUs, which hides the effect of others.
fn share(plan: &Plan, run: &Run, accounts: &Accounts, lost_s: f64) -> Option<f64> {
    let waited_s = accounts.waited_s?;
    let mut window_s = accounts.between_s * chains(plan, run, accounts);
    let foreign_s = foreign_s(accounts);
    let waited_s = waited_s * unseen(accounts);
    let harm_s = foreign_s.map_or(waited_s, |foreign_s| foreign_s.min(waited_s));
    if foreign_s.is_some_and(|foreign_s| foreign_s >= BEARABLE * accounts.between_s) {
        window_s = window_s.min(served_s(plan, run));
    }
    let share = ((harm_s + lost_s) / window_s.max(f64::MIN_POSITIVE)).min(1.0);
    // If other processes cannot be seen, the wait is conclusive only if it is small, or
    // cannot be caused by our own threads.
    let is_known = foreign_s.is_some() || !is_crowded(run, accounts) || share < BEARABLE;
    is_known.then_some(share)
}

/// F: the CPU time of other programs and kernel threads on our CPUs, and at most what ours
/// left of these. None where it cannot be seen.
pub fn foreign_s(accounts: &Accounts) -> Option<f64> {
    let by_process = || Some(accounts.others_s? + unexplained_s(accounts) + accounts.machine_s);
    let ours_s = accounts.workers_s
        + accounts.requests_s.unwrap_or(0.0)
        + accounts.server_s.unwrap_or(0.0)
        + accounts.tool_s;
    let left_s = accounts.between_s * accounts.cpus as f64 - ours_s;
    let foreign_s = accounts.foreign_s.or_else(by_process)?;
    // As far as its CPUs are those that ours may use.
    let on_ours = (foreign_s / all_s(accounts).max(f64::MIN_POSITIVE)).min(1.0);
    let foreign_s = foreign_s - own_softirqs_s(accounts) * on_ours;
    Some(foreign_s.clamp(0.0, left_s.max(0.0)))
}

/// CPU time of one of them that is in F: where others also ran on CPUs that ours may not use,
/// the part that all of them took of ours.
pub fn counted_s(accounts: &Accounts, one: &Neighbour) -> f64 {
    let own_s = own_softirqs_s(accounts);
    let on_ours = |s: f64| s / (all_s(accounts) - own_s).max(f64::MIN_POSITIVE);
    let for_others = match one.name.starts_with(SOFTIRQS) {
        true => 1.0 - own_s / softirqs_s(accounts).max(f64::MIN_POSITIVE),
        false => 1.0,
    };
    one.cpu_s * for_others * foreign_s(accounts).map_or(1.0, on_ours).min(1.0)
}

const SOFTIRQS: &str = "ksoftirqd/";

fn softirqs_s(accounts: &Accounts) -> f64 {
    let threads = accounts.kernel_threads.iter();
    let of_softirqs = threads.filter(|one| one.name.starts_with(SOFTIRQS));
    of_softirqs.map(|one| one.cpu_s).sum()
}

/// Other programs and kernel threads, on all CPUs.
fn all_s(accounts: &Accounts) -> f64 {
    accounts.others_s.unwrap_or(0.0) + accounts.machine_s
}

/// The time in which the kernel's threads for soft interrupts worked for ours. Beside a lock
/// that removes files they free what it removed: RCU raised 11,850 soft interrupts a second
/// beside two workers of `lockfile` and 560 without them, and ksoftirqd took 37 and 1 ms of
/// it. Without foreign packets these threads worked for others for at most as long as others
/// ran, since others must have asked for it; what is more is ours.
fn own_softirqs_s(accounts: &Accounts) -> f64 {
    let cpus_s = accounts.between_s * accounts.cpus as f64;
    let packets = accounts.packets.map_or(f64::INFINITY, |all| {
        all.saturating_sub(accounts.own_packets.unwrap_or(0)) as f64
    });
    if packets > IDLE_PACKETS_PER_S * cpus_s {
        return 0.0;
    }
    let softirqs_s = softirqs_s(accounts);
    (softirqs_s - (all_s(accounts) - softirqs_s)).max(0.0)
}

/// The share of each CPU of ours that soft interrupts of others took: the upper 95 % limit
/// of the ticks of all runs. Zero where our CPUs handled no more packets than an idle
/// machine does, or where the packets are our own.
fn interrupted(runs: &[&Run]) -> f64 {
    /// The most segments of a request and its answer on one machine, with their acknowledgements,
    /// where the segments were not counted.
    const A_ROUND_TRIP: f64 = 4.0;
    /// The most segments of a connection: three segments open it, four close it, one may be sent
    /// again.
    const A_CONNECTION: f64 = 8.0;
    /// Share of the packets that may be foreign.
    const FOREIGN: f64 = 0.01;
    /// The cost of packets over the ticks in soft interrupts: floods of 16 to 36 % of the ticks
    /// took 1.26 to 1.29 times as much from one worker. Hard interrupts have no ticks.
    const OF_TICKS: f64 = 1.3;
    let seen = runs.iter().filter_map(|run| {
        let accounts = accounts(run)?;
        let own = match (accounts.own_packets, run.server.is_some(), run.traffic) {
            (Some(counted), ..) => counted as f64,
            _ if run.connections.is_some() => A_CONNECTION * run.operations as f64,
            (None, false, None) => 0.0,
            (None, _, traffic) => {
                A_ROUND_TRIP * traffic?.for_each_grant()?.0 * run.operations as f64
            }
        };
        let packets = accounts.packets? as f64;
        let ticks = accounts.softirq_ticks? as f64 / run.around.machine.ticks_per_s.max(1) as f64;
        Some([
            packets,
            own,
            ticks,
            accounts.between_s * accounts.cpus as f64,
        ])
    });
    let sum = seen.fold([0.0; 4], |sum, one| {
        std::array::from_fn(|at| sum[at] + one[at])
    });
    let [packets, own, ticks_s, cpus_s] = sum;
    let foreign = packets - own;
    if foreign <= IDLE_PACKETS_PER_S * cpus_s || foreign <= FOREIGN * packets {
        return 0.0;
    }
    let per_s = runs.iter().map(|run| run.around.machine.ticks_per_s).max();
    let per_s = per_s.unwrap_or(1).max(1) as f64;
    let window_s: f64 = runs
        .iter()
        .filter_map(|run| Some(accounts(run)?.between_s))
        .sum();
    OF_TICKS * upper_limit(ticks_s * per_s) / per_s / window_s.max(f64::MIN_POSITIVE)
}

/// The upper 95 % limit of a Poisson count's mean.
pub(crate) fn upper_limit(count: f64) -> f64 {
    const Z: f64 = 1.645;
    // Wilson and Hilferty's cube; within 2 % from a count of 0 on.
    let next = count + 1.0;
    next * (1.0 - 1.0 / (9.0 * next) + Z / (3.0 * next.sqrt())).powi(3)
}

/// The time that workers and the programs which they started waited, over that of the
/// workers alone: the kernel forgets how long a program waited when it ends.
fn unseen(accounts: &Accounts) -> f64 {
    let requests_s = accounts.requests_s.unwrap_or(0.0);
    1.0 + requests_s / accounts.workers_s.max(f64::MIN_POSITIVE)
}

/// The sum of all times of service of an open loop.
fn served_s(plan: &Plan, run: &Run) -> f64 {
    let times = run.times.service_ns.as_ref();
    let times = times.filter(|_| plan.workload == Workload::Rate);
    times.map_or(f64::INFINITY, |times| {
        times.mean * times.count as f64 * 1e-9
    })
}

/// CPU time of tasks whose owner is gone. It belongs to no known process, but may have done
/// harm. Subtracts one tick per CPU, the step of the clocks while a thread runs.
fn unexplained_s(accounts: &Accounts) -> f64 {
    const TICK_S: f64 = 0.004;
    let steps_s = TICK_S * accounts.cpus as f64;
    accounts
        .unexplained_s
        .map_or(0.0, |s| (s - steps_s).max(0.0))
}

/// Whether our own threads outnumber the CPUs, so that they wait for each other.
fn is_crowded(run: &Run, accounts: &Accounts) -> bool {
    let workers = run.at.workers.or(run.at.generators).unwrap_or(1);
    workers > accounts.cpus
}

/// How many CPUs the work can use at once: workers that share a lock or a server wait for the
/// slowest of them. So do workers that choose among several keys: sooner or later each chooses
/// one whose owner is kept from its CPU.
fn chains(plan: &Plan, run: &Run, accounts: &Accounts) -> f64 {
    let workers = run.at.workers.unwrap_or(1);
    let alone = match plan.workload.shape() {
        _ if has_server(run, accounts) => 1,
        Shape::Contend if plan.range == Some(Range::Disjoint) => workers,
        Shape::Stream | Shape::Hold if run.names.as_deref() != Some(ONE) => workers,
        _ => 1,
    };
    alone.min(accounts.cpus).max(1) as f64
}

const ONE: &str = "one";

fn has_server(run: &Run, accounts: &Accounts) -> bool {
    accounts.server_s.is_some() || run.server.is_some()
}

/// C: the greatest rate of this target with these workers, as far as it was seen. None for
/// servers and requests, whose operations no calibration knows.
///
/// All workers on one CPU need no measurement of their own: one runs at a time, and each
/// of its operations takes at least what one of a worker alone takes.
fn quickest_per_s(experiment: &Experiment, runs: &[&Run]) -> Option<f64> {
    /// The most that a CPU's clock may have gained since.
    const RESERVE: f64 = 1.05;
    let run = runs.first()?;
    let accounts = run.around.accounts.as_deref()?;
    let plan = &experiment.plan;
    if is_served(run, accounts) {
        return None;
    }
    let workers = run.at.workers.unwrap_or(1);
    let parallel = match plan.workload.shape() {
        Shape::Contend if plan.range() == Range::Same => match plan.shared {
            Some(shared) if shared > 0.0 => workers,
            _ => plan.key_count().min(workers),
        },
        Shape::Contend | Shape::Stream | Shape::Hold => workers,
        _ => return None,
    };
    let parallel = parallel.min(accounts.cpus).max(1) as f64;
    let alone_ns = alone_ns(plan, run, &experiment.calibration)?;
    let slices = runs.iter().flat_map(|run| {
        let each_s = run.window.window_s / run.series.len().max(1) as f64;
        let tenths = run.series.iter();
        let tenths = tenths.map(move |slice| slice.operations as f64 / each_s);
        let accounts = run.around.accounts.as_deref();
        let short = accounts.and_then(|all| all.readings.as_ref());
        tenths.chain(short.into_iter().flat_map(|rows| {
            let each = rows.operations.iter().zip(&rows.length_us);
            each.map(|(operations, us)| *operations as f64 * 1e6 / (*us).max(1) as f64)
        }))
    });
    let quickest = slices.fold(parallel * 1e9 / alone_ns, f64::max) * RESERVE;
    Some(quickest.min(run.ceiling_per_s.unwrap_or(f64::INFINITY)))
}

/// The shortest cycle of one worker alone: a pair of the fastest block of the calibration,
/// and the hold where that is spun. Holds that sleep leave their CPU to others.
fn alone_ns(plan: &Plan, run: &Run, calibration: &Calibration) -> Option<f64> {
    let cost = calibration.own_cost.get(&run.target)?;
    let pair_ns = cost.pair_fastest_ns.unwrap_or(cost.pair_ns);
    let stamps_ns = match plan.measure {
        Some(Measure::Counts) => 0.0,
        _ => cost.added_range_ns[0].max(0.0) / cost.stamp_every.max(1) as f64,
    };
    let hold_ns = match plan.hold {
        Some(Busy::Spin(span)) if plan.workload == Workload::Contend => span.0 as f64,
        _ => 0.0,
    };
    Some(pair_ns + stamps_ns + hold_ns)
}

/// Whether a run's block was so disturbed that it should be repeated. This depends on the
/// share of our CPUs that others and the hypervisor took. It does not depend on our
/// waiting time or the figure, because that would select results.
pub fn is_spoilt(accounts: &Accounts) -> bool {
    const MOST: f64 = 0.10;
    let all_s = accounts.between_s * accounts.cpus as f64;
    let of_all = |s: Option<f64>| s.unwrap_or(0.0) > MOST * all_s;
    of_all(foreign_s(accounts)) || of_all(accounts.stolen_s)
}

#[cfg(test)]
mod tests;
