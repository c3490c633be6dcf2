//! How long a plan takes, estimated before anything has started, and how `--quick` keeps
//! it short.
//!
//! Computed from the plan: runs, windows, and for runs that end with their operations the time
//! of one operation, as measured on two virtual CPUs. Only the time of a trip on the loopback is
//! that of this machine. The repository's records test it. The time of a network is not
//! included. Once pilots have run, `schedule` has better figures.

use crate::order::idle_ns;
use crate::resolve::Resolved;
use crate::resolve::recover::makes_sense;
use crate::schedule::{self, Asked, Pilot, Timing};
use crate::trip;
use jostle_model::connect::Only;
use jostle_model::defaults;
use jostle_model::plan::{Fault, Plan, Workload};
use jostle_model::record::At;
use jostle_model::{List, Nanos};
use jostle_targets::Spec;
use jostle_targets::table::Family;
use std::time::Duration;

/// A person waits for so long.
const QUICK: Nanos = Nanos::from_millis(50_000);

/// Starting the keeper, asking the machine how late sleeps end.
const EXPERIMENT: Nanos = Nanos::from_millis(500);
/// The tool's own cost beside a lock.
const TARGET: Nanos = Nanos::from_millis(300);
/// The machine's pulse before and after a run, forking and reading clocks.
const RUN: Nanos = Nanos::from_millis(20);
/// CPU time of a generator's start and end, which takes longer where it has a share of a CPU.
const LIMITED_RUN: Nanos = Nanos::from_millis(9);
/// The arrivals of an owner and three waiters, one by one, and the moment of a fault.
const FAULT: Nanos = Nanos::from_millis(100);
const WORKER: Nanos = Nanos::from_micros(150);

/// Opening a connection, closing both ends of it, and looking at it.
const CONNECTION: Nanos = Nanos::from_micros(28);
/// One that looks at all even ports first, where these are used up.
const CROWDED: Nanos = Nanos::from_micros(620);
/// Even ports of the usual range, for each source address and port of the server.
const EVEN_PORTS: u64 = 14_116;

/// All runs of all experiments.
pub fn takes(plans: &[Plan]) -> Nanos {
    Nanos(plans.iter().map(|plan| of_plan(plan).0).sum())
}

/// The time of experiments that are about to be run, whose schedules may leave out more.
pub fn takes_resolved(experiments: &[Resolved]) -> Nanos {
    let each = experiments.iter().map(|resolved| {
        let freedom = (resolved.may_drop, resolved.may_shorten);
        of_plan_with(&resolved.plan, freedom).0
    });
    Nanos(each.sum())
}

/// The time for the first of these experiments, if all together may take as long as a
/// person waits, and `spent` of that is over.
pub fn share(plans: &[Plan], spent: Duration) -> Nanos {
    let left = Duration::from_nanos(QUICK.0).saturating_sub(spent);
    let first = plans.first().map_or(Nanos::ZERO, of_plan);
    let share = first.0 as f64 / takes(plans).0.max(1) as f64;
    Nanos((left.as_nanos() as f64 * share) as u64)
}

/// One experiment of which no point may be left out, and no given window shortened.
fn of_plan(plan: &Plan) -> Nanos {
    of_plan_with(plan, (false, None))
}

/// One experiment, as the schedule will fit it into its budget.
fn of_plan_with(plan: &Plan, (may_drop, may_shorten): (bool, Option<Nanos>)) -> Nanos {
    let mut plan = plan.clone();
    plan.targets.append(&mut plan.optional);
    plan.fill_from(defaults::swept(plan.workload));
    plan.fill_from(defaults::options(plan.workload));
    if plan.find.is_some() {
        // Where the limit lies is not known; it is ended by its budget.
        return plan.budget();
    }
    if plan.targets.is_empty() {
        let usual = defaults::targets(plan.workload).iter();
        plan.targets = usual.map(|name| (*name).to_owned()).collect();
    }
    crate::resolve::hold::fill_in(&mut plan);
    let own_cost = match plan.workload {
        Workload::Recover | Workload::Verify => 0,
        _ => TARGET.0 * plan.targets.len() as u64,
    };
    let specs = plan.targets.iter().flat_map(|target| Spec::parse(target));
    let launched: u64 = specs.map(|spec| launch_ns(&spec)).sum();
    let setup = EXPERIMENT.0 + own_cost + launched;
    let asked = Asked {
        window: plan.duration,
        warmup: plan.warmup,
        runs: plan.runs,
        // Nothing bounds an experiment that has no budget.
        budget: Nanos(
            plan.budget
                .map_or(u64::MAX, |budget| budget.0.saturating_sub(setup)),
        ),
        may_drop,
        may_shorten,
        option: plan.workload.swept().option,
    };
    Nanos(setup.saturating_add(runs_ns(&plan, &asked)))
}

/// All runs of an experiment, in nanoseconds.
fn runs_ns(plan: &Plan, asked: &Asked) -> u64 {
    let whole = |run_ns| Timing {
        window: Nanos(run_ns),
        warmup: Nanos::ZERO,
        overhead: Nanos::ZERO,
    };
    if plan.workload == Workload::Connect {
        let sweeps = plan.targets.iter().map(|target| sweep_ns(plan, target));
        let round = whole(sweeps.sum());
        return schedule::count(&[round], &[0], asked).takes().0;
    }
    let ats = At::swept(plan);
    let points = || {
        let targets = plan.targets.iter();
        targets.flat_map(|target| ats.iter().map(move |at| (target, at)))
    };
    let swept = plan.workload.swept();
    let columns = points().map(|(_, at)| (swept.of)(at).unwrap_or(0));
    let columns: Vec<u64> = columns.collect();
    if plan.workload.has_window() {
        let pilots: Vec<Pilot> = points().map(|(_, at)| guess(plan, at)).collect();
        return schedule::fit(&pilots, &columns, asked).takes().0;
    }
    let runs = points().map(|(target, at)| whole(run_ns(plan, target, at)));
    let runs: Vec<Timing> = runs.collect();
    schedule::count(&runs, &columns, asked).takes().0
}

/// The pilot that a point would have.
fn guess(plan: &Plan, at: &At) -> Pilot {
    let workers = at.workers.or(plan.in_flight).unwrap_or(1);
    let hold = plan.hold.map_or(0, |hold| hold.span().0);
    let limited = plan.generator_cpu;
    let limited = limited.map_or(0, |share| (LIMITED_RUN.0 as f64 / share) as u64);
    Pilot {
        workers,
        grant: Nanos(hold.max(1_000)),
        overhead: Nanos(around_ns(workers) + limited),
    }
}

/// Starting and ending so many workers, in nanoseconds.
fn around_ns(workers: u64) -> u64 {
    RUN.0 + WORKER.0.saturating_mul(workers)
}

/// Starting and ending the service that is launched for the target, if one is.
fn launch_ns(spec: &Spec) -> u64 {
    let program = spec.launches();
    program.map_or(0, |program| Nanos::from_millis(program.launch_ms).0)
}

/// One run of a point that ends with its operations or its faults, with the service that is
/// launched for it.
fn run_ns(plan: &Plan, target: &str, at: &At) -> u64 {
    let workers = at.workers.or(plan.in_flight).unwrap_or(1);
    let spec = Spec::parse(target).ok();
    let around = around_ns(workers);
    if plan.workload == Workload::Recover {
        return spec.map_or(around, |spec| fault_ns(plan, &spec, at.fault));
    }
    if plan.workload == Workload::Verify {
        return spec.map_or(around, |spec| verified_ns(plan, &spec));
    }
    let each = at.operations.or(at.keys).unwrap_or(1);
    let nulls = match spec.is_some_and(|spec| spec.entry.is_asked()) {
        true => crate::requested::nulls(plan, each),
        false => 0,
    };
    let null = plan.null.as_deref().unwrap_or(target);
    let nulls_ns = nulls as f64 * operation_ns(plan, null, workers);
    let own_ns = each as f64 * operation_ns(plan, target, workers);
    let kept_ns = plan.keep.map_or(0, |span| span.0 + idle_ns(span));
    around + kept_ns + (workers as f64 * (own_ns + nulls_ns)) as u64
}

/// Time of one fault of `recover`, in nanoseconds; zero where it cannot strike the target.
/// It includes the time until the lease ends or what was stopped continues, and the pause
/// for which an owner that has lost its lock works on. A lock that ends with its owner's
/// process or connection is free at once, and a service that was killed has usually
/// forgotten it.
pub(crate) fn fault_ns(plan: &Plan, spec: &Spec, fault: Option<Fault>) -> u64 {
    if !fault.is_some_and(|fault| makes_sense(fault, spec, plan.members())) {
        return 0;
    }
    let is_leased = spec.entry.is_remote() && !spec.entry.lock.survives_owner;
    let lease = plan.lease.filter(|_| is_leased).unwrap_or_default().0;
    let pause = plan.pause().0;
    let struck = match fault {
        None | Some(Fault::Kill) => lease,
        Some(Fault::Stop | Fault::Cut) if is_leased => lease + 2 * pause,
        Some(Fault::ServerStop) if is_leased => 2 * pause.max(lease),
        Some(Fault::ServerKill | Fault::ServerWipe) => launch_ns(spec) + pause,
        Some(fault) if fault.is_of_member() || fault == Fault::IdleCut => lease + 2 * pause,
        Some(_) => pause,
    };
    FAULT.0 + launch_ns(spec) + struck
}

/// Time of one run of `verify`, in nanoseconds, with the service that is launched for it.
pub(crate) fn verified_ns(plan: &Plan, spec: &Spec) -> u64 {
    let with = crate::resolve::verify::with(plan, spec);
    let with = with.and_then(|name| Spec::parse(name).ok());
    let launched = launch_ns(spec) + with.map_or(0, |with| launch_ns(&with));
    FAULT.0 + launched + plan.keep().0
}

/// The time that an operation adds to a run of so many workers, in nanoseconds.
fn operation_ns(plan: &Plan, target: &str, workers: u64) -> f64 {
    let Ok(spec) = Spec::parse(target) else {
        return 0.0;
    };
    let piped = plan.pipeline() > 1;
    let trip_ns = || trip::here().0 as f64;
    // Wake-ups, of which a deep pipeline needs few, are most of a trip.
    let piped_ns = || 900.0 + trip_ns() / 20.0;
    let alone = match spec.entry.family {
        Family::Service if piped => piped_ns(),
        Family::Service if plan.workload == Workload::Hold => 1.8 * trip_ns(),
        Family::Service => 2.0 * trip_ns(),
        Family::Server => jostle_targets::requests(spec.entry).map_or(0.0, |asked| {
            (asked.usual_ns)(spec.argument.as_deref()) as f64
        }),
        // Servers that only answer.
        Family::Specimen if spec.entry.is_remote() && piped => piped_ns(),
        Family::Specimen if spec.entry.is_remote() => 2.0 * trip_ns(),
        _ => 500.0,
    };
    // Two workers do not do twice as much on two CPUs, and more do no more than two.
    match workers {
        1 => alone,
        _ => alone * 0.55,
    }
}

/// All curves of a target, once.
fn sweep_ns(plan: &Plan, target: &str) -> u64 {
    let open = plan.open.iter().flat_map(|list| &list.0).max().copied();
    let (open, ports) = (open.unwrap_or(0), plan.ports());
    let has_ports = Spec::parse(target).is_ok_and(|spec| spec.entry.has_ports());
    let tcp = has_ports && plan.only != Some(Only::Bind);
    let each = match tcp {
        true => CONNECTION.0,
        false => CONNECTION.0 / 3,
    };
    let one = [1];
    let sources = plan.sources.as_ref().map_or(&one[..], |list| &list.0);
    let listeners = plan.listeners.as_ref();
    let listeners = listeners.map_or(1, |list| list.0.len() as u64);
    let curves = sources.iter().map(|sources| {
        let even = EVEN_PORTS.saturating_mul(*sources).saturating_mul(ports);
        let crowded = match tcp && plan.port_range.is_none() {
            true => open.saturating_sub(even),
            false => 0,
        };
        open.saturating_mul(each) + crowded.saturating_mul(CROWDED.0) + RUN.0
    });
    listeners * curves.sum::<u64>()
}

/// Makes of these plans a look of less than a minute: three short runs of each point, and
/// where that takes longer, fewer points, then fewer targets. Returns what was left out, as
/// typed.
pub fn quicken(plans: &mut [Plan]) -> Vec<String> {
    plans.iter_mut().for_each(crate::resolve::quicken);
    if takes(plans) > QUICK {
        let fill = |plan: &mut Plan| plan.fill_from(defaults::swept(plan.workload));
        plans.iter_mut().for_each(fill);
    }
    let mut left_out = Vec::new();
    for thin in [thin_points, thin_targets] {
        while takes(plans) > QUICK {
            let can_be_thinned = |plan: &&mut Plan| thin(&mut (**plan).clone()).is_some();
            let Some(plan) = plans
                .iter_mut()
                .filter(can_be_thinned)
                .max_by_key(|p| of_plan(p))
            else {
                break;
            };
            left_out.extend(thin(plan));
        }
    }
    left_out
}

fn swept(plan: &mut Plan) -> Option<(&'static str, &mut List)> {
    let swept = plan.workload.swept();
    Some((swept.option, (swept.list)(plan)?))
}

/// Leaves out every second one of many values, and the greatest of few; the last of
/// several faults. One always stays.
fn thin_points(plan: &mut Plan) -> Option<String> {
    const MANY: usize = 12;
    let (workload, finds) = (plan.workload, plan.find.is_some());
    if workload == Workload::Recover {
        let faults = plan.fault.as_mut().filter(|faults| faults.len() > 1)?;
        let last = faults.pop()?;
        return Some(format!("--quick leaves out --fault {last} of {workload}"));
    }
    // Of a search they are its ends.
    let (option, list) = swept(plan).filter(|_| !finds)?;
    let last = list.0.len().checked_sub(1)?;
    if list.0.len() > MANY {
        let mut at = 0;
        list.0.retain(|_| {
            at += 1;
            at % 2 == 1 || at - 1 == last
        });
        return Some(format!(
            "--quick: {workload} has every second {option} only"
        ));
    }
    let (least, greatest) = (*list.0.iter().min()?, *list.0.iter().max()?);
    if least == greatest {
        return None;
    }
    list.0.retain(|value| *value != greatest);
    Some(format!(
        "--quick leaves out {option} {greatest} of {workload}"
    ))
}

/// Leaves out the last of several targets.
fn thin_targets(plan: &mut Plan) -> Option<String> {
    let last = match plan.targets.len() {
        0 | 1 => None,
        _ => plan.targets.pop(),
    }?;
    Some(format!("--quick leaves out {last} of {}", plan.workload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::Busy;
    use jostle_model::record::Record;
    use std::path::{Path, PathBuf};

    fn record(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../lab/record")
            .join(name)
    }

    /// Each experiment of these records with what it really took, without the rounds that
    /// were taken again because other programs had spoilt one. A trip takes 66 us (measured) on
    /// the machine of `old`. On that of `connect-20k` a connection takes 1.7 times as long beyond
    /// the bend as on those of the other two (lab/record/connections.md). `scope` is left out:
    /// nobody knows beforehand how long a program takes.
    #[test]
    fn the_estimate_is_near_what_the_records_took() {
        let files = [
            ("cern.jsonl", 0.25, trip::USUAL),
            ("connect-1M.jsonl", 0.25, trip::USUAL),
            ("connect-20k.jsonl", 0.45, trip::USUAL),
            ("connect-40k.jsonl", 0.25, trip::USUAL),
            ("lockscale.jsonl", 0.25, trip::USUAL),
            ("old.jsonl", 0.25, Nanos(66_000)),
        ];
        let mut compared = 0;
        for (name, within, trip) in files {
            trip::assume(trip);
            let (mut plan, mut rounds) = (None::<Plan>, 0);
            let (mut took, mut estimated) = (0.0, 0.0);
            for line in std::fs::read_to_string(record(name)).unwrap().lines() {
                match serde_json::from_str(line).unwrap() {
                    Record::Experiment(experiment) => {
                        (plan, rounds) = (Some(experiment.plan), 0);
                    }
                    Record::Run(run) => rounds = rounds.max(run.run),
                    Record::End(end) => {
                        let plan = plan.take().unwrap();
                        let runs = plan.runs.unwrap_or(rounds).min(rounds);
                        let once = match rounds {
                            0 => end.elapsed_s,
                            _ => end.elapsed_s * f64::from(runs) / f64::from(rounds),
                        };
                        let each = takes(&[plan]).as_secs_f64();
                        println!("{name}: {each:.1} s, took {once:.1} s");
                        took += once;
                        estimated += each;
                        assert!((each / once - 1.0).abs() < within, "{name}: {each}");
                        compared += 1;
                    }
                    _ => {}
                }
            }
            let off = (estimated / took - 1.0_f64).abs();
            assert!(off < within, "{name}: {estimated}");
        }
        assert!(compared >= 14, "{compared}");
    }

    /// `hold` is not: the services' own logs make it ten times as long. Nor is `recover`, whose
    /// owners were let go on earlier when that file was recorded.
    #[test]
    fn the_estimate_counts_the_launching_of_services() {
        trip::assume(trip::USUAL);
        let mut plan = None;
        let text = std::fs::read_to_string(record("services.jsonl")).unwrap();
        let mut compared = 0;
        for line in text.lines() {
            match serde_json::from_str(line).unwrap() {
                Record::Experiment(experiment) => plan = Some(experiment.plan),
                Record::End(end) => {
                    let plan = plan.take().unwrap();
                    if !matches!(plan.workload, Workload::Hold | Workload::Recover) {
                        let each = takes(std::slice::from_ref(&plan)).as_secs_f64();
                        assert!(
                            (each / end.elapsed_s - 1.0).abs() < 0.25,
                            "{plan:?}: {each}"
                        );
                        compared += 1;
                    }
                }
                _ => {}
            }
        }
        assert_eq!(compared, 2);
    }

    /// It said 50 s, and took 30 minutes.
    #[test]
    fn a_budget_that_the_run_does_not_keep_is_no_estimate() {
        trip::assume(trip::USUAL);
        let second = 1_000_000_000;
        let of = |workload, workers: &[u64], change: &dyn Fn(&mut Plan)| {
            let mut plan = Plan::of(workload);
            plan.targets = vec!["flock".to_owned()];
            plan.workers = Some(List(workers.to_vec()));
            change(&mut plan);
            let resolved = crate::resolve::resolve(plan, 1, &[0, 1]).unwrap();
            takes_resolved(&[resolved]).as_secs_f64()
        };
        let near = |found: f64, expected: f64| {
            assert!((found / expected - 1.0).abs() < 0.1, "{found}, {expected}");
        };
        let contend = Workload::Contend;
        let long = |plan: &mut Plan| plan.duration = Some(Nanos(600 * second));
        // As many runs as an interval needs at least; or as given.
        near(of(contend, &[10], &long), 1_800.0);
        let twice = |plan: &mut Plan| {
            long(plan);
            plan.runs = Some(2);
        };
        near(of(contend, &[10], &twice), 1_200.0);
        // Windows that nobody gave keep the budget.
        near(of(contend, &[1, 2, 3, 4, 5, 6, 7, 8], &|_| {}), 50.0);
        let counted = |plan: &mut Plan| plan.operations = Some(List(vec![1_000_000_000]));
        near(of(Workload::Stream, &[1], &counted), 1_500.0);
    }

    #[test]
    fn what_is_left_of_a_minute_is_shared_by_what_each_experiment_takes() {
        trip::assume(trip::USUAL);
        let mut long = Plan::of(Workload::Contend);
        long.targets = vec!["flock".to_owned()];
        (long.runs, long.workers) = (Some(3), Some(List(vec![2])));
        long.duration = Some(Nanos::from_millis(3_000));
        let mut short = long.clone();
        short.duration = Some(Nanos::from_millis(300));
        let plans = [long, short];
        let spent = Duration::from_secs(10);
        let (first, last) = (share(&plans, spent), share(&plans[1..], spent));
        let ratio = of_plan(&plans[0]).0 as f64 / takes(&plans).0 as f64;
        assert!(
            (first.as_secs_f64() - 40.0 * ratio).abs() < 1e-6,
            "{first:?}"
        );
        assert_eq!(last, Nanos::from_millis(40_000));
        assert_eq!(share(&plans, Duration::from_secs(60)), Nanos::ZERO);
    }

    /// It took 47.5 s on two virtual CPUs.
    #[test]
    fn the_estimate_of_faults_is_within_a_quarter_of_what_they_took() {
        trip::assume(trip::USUAL);
        let mut plan = Plan::of(Workload::Recover);
        plan.targets = ["flock", "lockd", "redis"].map(str::to_owned).to_vec();
        plan.runs = Some(1);
        let resolved = crate::resolve::resolve(plan, 1, &[0, 1]).unwrap();
        let estimated = takes(&[resolved.plan]).as_secs_f64();
        // A user who may not cut connections has fewer faults.
        let least = match jostle_sys::link::may_cut() {
            true => 0.75,
            false => 0.5,
        };
        assert!((least..1.25).contains(&(estimated / 47.5)), "{estimated}");
    }

    #[test]
    fn many_values_are_thinned_and_of_few_the_greatest_goes() {
        trip::assume(trip::USUAL);
        let mut plan = Plan::of(Workload::Stream);
        plan.targets = vec!["lockd".to_owned()];
        plan.operations = Some(List((1..=91).map(|n| 900 + n * 100).collect()));
        let mut plans = vec![plan.clone(), plan];
        plans[1].operations = Some(List(vec![1_000, 1_000_000_000]));
        let left_out = quicken(&mut plans);
        assert!(takes(&plans) <= QUICK);
        let few = plans[1].operations.as_ref().unwrap();
        assert_eq!(few.0, [1_000]);
        assert!(left_out.contains(&"--quick leaves out -n 1000000000 of stream".to_owned()));
        // One value is never left out, however long it takes.
        let mut alone = Plan::of(Workload::Stream);
        alone.operations = Some(List(vec![1_000_000_000]));
        let mut alone = [alone];
        assert_eq!(quicken(&mut alone), [""; 0]);
        assert_eq!(alone[0].runs, Some(3));
    }

    /// 200 workers had 1.1 turns each, so that none of the default's looks could be all VALID.
    #[test]
    fn a_quick_look_is_as_long_as_its_workers_need() {
        trip::assume(trip::USUAL);
        let window = |workers: Option<u64>, hold: Option<u64>| {
            let mut plans = [Plan::of(Workload::Contend)];
            plans[0].workers = workers.map(|n| List(vec![n]));
            plans[0].hold = hold.map(|us| Busy::Sleep(Nanos::from_micros(us)));
            assert_eq!(quicken(&mut plans), [""; 0]);
            assert!(takes(&plans) <= QUICK);
            plans[0].duration.unwrap()
        };
        assert_eq!(window(None, None), Nanos::from_millis(2_200));
        assert_eq!(window(Some(10), None), Nanos::from_millis(250));
        assert_eq!(window(None, Some(0)), Nanos::from_millis(250));
        // No window is as long.
        assert_eq!(window(Some(1_000), None), Nanos::from_millis(250));
    }

    #[test]
    fn faults_go_next_and_then_targets_but_never_the_only_one() {
        trip::assume(trip::USUAL);
        let mut plan = Plan::of(Workload::Recover);
        plan.targets = ["redis", "redisson", "memcached"]
            .map(str::to_owned)
            .to_vec();
        plan.lease = Some(Nanos(6_000_000_000));
        let mut plans = [plan];
        let left_out = quicken(&mut plans);
        assert!(takes(&plans) <= QUICK);
        let [plan] = plans;
        assert_eq!(plan.fault, Some(vec![Fault::Kill]));
        assert_eq!(plan.targets, ["redis", "redisson"]);
        assert_eq!(left_out.len(), 5, "{left_out:?}");
        assert_eq!(
            left_out[0],
            "--quick leaves out --fault server-stop of recover"
        );
        assert_eq!(left_out[4], "--quick leaves out memcached of recover");
        let mut alone = Plan::of(Workload::Recover);
        alone.targets = vec!["redis".to_owned()];
        alone.lease = Some(Nanos(600_000_000_000));
        alone.fault = Some(vec![Fault::Kill]);
        assert_eq!(quicken(&mut [alone]), [""; 0]);
    }

    #[test]
    fn locks_are_kept_once_and_for_as_long_as_was_asked_for() {
        trip::assume(trip::USUAL);
        let mut plan = Plan::of(Workload::Hold);
        plan.targets = vec!["lockd".to_owned()];
        plan.keys = Some(List(vec![100, 1_000]));
        plan.keep = Some(Nanos::from_millis(180_000));
        let all = takes(&[plan]).as_secs_f64();
        // The idle server is looked at for 5 s before each.
        assert!((370.0..372.0).contains(&all), "{all}");
    }

    #[test]
    fn usual_values_that_nobody_typed_are_thinned_too() {
        trip::assume(trip::USUAL);
        let mut plan = Plan::of(Workload::Hold);
        plan.targets = vec!["lockd".to_owned()];
        plan.workers = Some(List(vec![300]));
        let mut plans = [plan];
        assert_eq!(
            quicken(&mut plans),
            ["--quick leaves out --keys 10000 of hold"]
        );
        assert!(takes(&plans) <= QUICK);
        // What fits stays as it was typed.
        let mut usual = [Plan::of(Workload::Hold)];
        assert_eq!(quicken(&mut usual), [""; 0]);
        assert_eq!(usual[0].keys, None);
    }
}
