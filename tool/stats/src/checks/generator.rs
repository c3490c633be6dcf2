//! Were the workers the bottleneck?

use super::{EVERYTHING, Evidence, Found, MOST_WORKERS, measured, more_generators, percent, seen};
use jostle_model::Remedy;
use jostle_model::plan::{Carrier, Place, Workload};
use jostle_model::record::{Claim, Run, ThreadLoad};

/// Share of its time that a thread is busy.
const BUSY: f64 = 0.9;

/// Share of a generator thread's time that it was runnable and not running. Left alone,
/// threads that ask one server over the loopback on two CPUs had up to 0.12; with two
/// other programs on its CPU one had 0.57, and lost 60 % of its rate without being busy
/// for 0.9 of its time.
const QUEUED: f64 = 0.2;

/// Share of the time of requests in flight that they spend in their generator's run
/// queue: from here on it moves their response by as much as a difference that matters.
const WAITING: f64 = 0.1;

check! {
    "generator" in "share": "Was the busiest thread that asked a server at its own limit?";
    threshold: text!(
        "judged for closed loops over a network; never INVALID. A thread is busy for its CPU \
         time and the time that it was runnable but not running. The busiest one (a worker, or \
         a generator thread of --as tasks), median over the runs, was busy for {BUSY} of the \
         time or more: SUSPECT for `absolute` and `ratio`, and the rate is a lower bound. A \
         generator with a CPU quota also counts as busy by the share of its quota that it used. \
         SUSPECT for the same too: a generator thread, or a worker where workers do not \
         outnumber their CPUs, was runnable and not running for {QUEUED} of the time. SUSPECT: \
         in `spread`, requests in flight waited for a CPU of their generator for {WAITING} of \
         their time"
    ),
    source: "a worker that never waits for the server cannot ask for more (utilisation law: \
             Denning & Buzen, Computing Surveys 10, 1978)",
    fooled_by: "a kernel without schedstat counts no run-queue time, so that several workers on \
                one CPU seem idle; a worker that sleeps between polls (`redis`, contended) is not \
                busy, and limits all the same",
    advice: "more workers or generators, or more CPU time for them",
    words: text!(
        |reason| "{} for {} of the time: the server does at least this much",
        seen(reason),
        percent(measured(reason))
    ),
}

/// Only for targets with a server: otherwise the lock is a call in the worker, and the
/// worker's CPU time is the lock's.
fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    if evidence.experiment.plan.workload == Workload::Rate {
        // Requests at a rate are judged by their lateness, by the check `lag`.
        return None;
    }
    let busy = busiest(evidence, |generator| generator.busy_share)?;
    let queued = busiest(evidence, |generator| generator.runqueue_share)?;
    let is_spread = evidence.runs.iter().any(|run| run.spread.is_some());
    let is_tasks = evidence.experiment.plan.carrier == Some(Carrier::Tasks) && !is_spread;
    let who = match (is_spread, is_tasks) {
        (true, _) => "generator",
        (_, true) => "generator thread",
        _ => "worker",
    };
    let rate_only: &[Claim] = &[Claim::Absolute, Claim::Ratio];
    let found = if busy >= BUSY {
        Found::suspect(rate_only, busy.min(1.0), BUSY)
            .seen(format!("the busiest {who} was busy"))
            .remedy(more(evidence))
    } else if (is_tasks || each_has_a_cpu(evidence)) && queued >= QUEUED {
        // Processes that outnumber the CPUs always queue for them.
        Found::suspect(rate_only, queued, QUEUED)
            .seen(format!("a {who} waited for a CPU"))
            .remedy(Remedy::wait_quiet())
    } else if let Some(waited) = waiting(evidence).filter(|waited| *waited >= WAITING) {
        Found::suspect(EVERYTHING, waited, WAITING)
            .seen("requests in flight waited for a CPU of their generator".to_owned())
            .remedy(Remedy::wait_quiet())
    } else {
        return None;
    };
    Some(found.at_least())
}

/// The remedy: twice as many generators, threads or workers.
fn more(evidence: &Evidence<'_>) -> Option<Remedy> {
    let plan = &evidence.experiment.plan;
    let workers = evidence.workers();
    match (plan.workload, plan.generator_threads) {
        // More of them would share what their CPUs have.
        _ if fill_their_cpus(evidence) => None,
        (Workload::Spread, _) => more_generators(plan),
        (_, Some(threads)) if 2 * threads <= workers => {
            Some(Remedy::with("--generator-threads", 2 * threads))
        }
        (_, None) if 2 * workers <= MOST_WORKERS => Some(Remedy::with("-w", 2 * workers)),
        _ => None,
    }
}

/// Whether each worker can have a CPU of its own.
fn each_has_a_cpu(evidence: &Evidence<'_>) -> bool {
    (1..=cpus(evidence)).contains(&evidence.workers())
}

/// Whether the workers of one host together use all that the CPUs have which they were given.
fn fill_their_cpus(evidence: &Evidence<'_>) -> bool {
    let is_given = matches!(
        evidence.experiment.plan.place,
        Some(Place::Cpus(_) | Place::Same)
    );
    let has_hosts = evidence.runs.iter().any(|run| !run.hosts.is_empty());
    let used = evidence.median(|run| Some(run.cpu.cpu_s? / run.window.window_s));
    is_given && !has_hosts && used.is_some_and(|used| used >= BUSY * cpus(evidence) as f64)
}

/// The CPUs of the workers. If the plan names none, one is left for the server.
fn cpus(evidence: &Evidence<'_>) -> u64 {
    let cores = evidence.experiment.environment.cores;
    match &evidence.experiment.plan.place {
        Some(Place::Cpus(cpus)) => cpus.len() as u64,
        Some(Place::Same) => 1,
        Some(Place::None | Place::Cross) | None => cores.saturating_sub(1),
    }
}

/// Share of the time of all requests that should have been in flight; the median over the
/// runs.
fn waiting(evidence: &Evidence<'_>) -> Option<f64> {
    evidence.median(|run| {
        let in_flight_s = run.spread.as_ref()?.in_flight as f64 * run.window.window_s;
        Some(run.cpu.runqueue_wait_s? / in_flight_s)
    })
}

/// The share of the thread that has most of it; the median over the runs.
fn busiest(evidence: &Evidence<'_>, share: impl Fn(&ThreadLoad) -> f64) -> Option<f64> {
    // A generator of `spread` is judged whatever it asks.
    let asks = |run: &Run| run.server.is_some() || run.spread.is_some();
    evidence.median(|run| {
        let shares = run.thread_loads.iter().map(&share);
        shares.reduce(f64::max).filter(|_| asks(run))
    })
}

#[cfg(test)]
mod tests {
    use super::{CHECK, Carrier};
    use crate::checks::{Evidence, verdict};
    use crate::fixtures::{experiment, judge, point};
    use jostle_model::plan::Place;
    use jostle_model::record::{Claim, LimitedBy, Run, Server, Spread, Status, ThreadLoad};

    fn run(busy_share: f64) -> Run {
        let mut run = point();
        run.server = Some(Server::default());
        run.thread_loads = vec![ThreadLoad {
            busy_share,
            runqueue_share: 0.1,
            ..ThreadLoad::default()
        }];
        run
    }

    #[test]
    fn nine_tenths_of_its_time_are_the_limit_and_the_median_run_decides() {
        let found = |shares: &[f64]| {
            let runs: Vec<Run> = shares.iter().map(|share| run(*share)).collect();
            judge(&CHECK, &runs).map_or(Status::Valid, |reason| reason.is)
        };
        assert_eq!(found(&[0.899]), Status::Valid);
        assert_eq!(found(&[0.9]), Status::Suspect);
        assert_eq!(found(&[0.5, 0.95, 0.95]), Status::Suspect);
        assert_eq!(found(&[0.5, 0.6, 1.2]), Status::Valid);
    }

    #[test]
    fn the_text_says_at_least() {
        let text = judge(&CHECK, &[run(0.956)]).unwrap().text;
        assert!(text.contains("95.6 % of the time"), "{text}");
        assert!(text.contains("at least this much"), "{text}");
    }

    #[test]
    fn the_remedy_is_that_of_the_carrier() {
        let mut experiment = experiment();
        experiment.plan.carrier = Some(Carrier::Tasks);
        experiment.plan.generator_threads = Some(1);
        let run = run(0.95);
        let verdict = verdict(&Evidence {
            experiment: &experiment,
            runs: &[&run],
        });
        assert!(verdict.reasons[0].text.ends_with("(--generator-threads 2)"));
    }

    #[test]
    fn more_generators_on_full_cpus_are_no_remedy() {
        let remedy = |cpu_s, cpus: &[usize]| {
            let mut experiment = experiment();
            experiment.plan.carrier = Some(Carrier::Tasks);
            experiment.plan.generator_threads = Some(1);
            experiment.plan.place = (!cpus.is_empty()).then(|| Place::Cpus(cpus.to_vec()));
            let mut run = run(0.95);
            (run.window.window_s, run.cpu.cpu_s) = (2.0, Some(cpu_s));
            let judged = verdict(&Evidence {
                experiment: &experiment,
                runs: &[&run],
            });
            judged.reasons[0].remedy.is_some()
        };
        assert!(!remedy(1.8, &[0]));
        assert!(remedy(1.7, &[0]) && remedy(1.8, &[0, 1]) && remedy(1.8, &[]));
    }

    #[test]
    fn a_generator_thread_that_queues_for_its_cpu_is_the_limit_and_a_worker_is_not() {
        let judge = |carrier, runqueue_share| {
            let mut experiment = experiment();
            experiment.plan.carrier = Some(carrier);
            experiment.environment.cores = 8;
            let mut run = run(0.5);
            run.thread_loads[0].runqueue_share = runqueue_share;
            let found = verdict(&Evidence {
                experiment: &experiment,
                runs: &[&run],
            });
            (
                found.limited_by,
                found.reasons.first().map(|reason| reason.text.clone()),
            )
        };
        let (limit, text) = judge(Carrier::Tasks, 0.2);
        assert_eq!(limit, Some(LimitedBy::Generator));
        assert!(text.unwrap().contains("waited for a CPU for 20.0 %"));
        assert_eq!(judge(Carrier::Tasks, 0.19), (None, None));
        assert_eq!(judge(Carrier::Processes, 0.5), (None, None));
    }

    #[test]
    fn workers_that_do_not_outnumber_their_cpus_need_not_queue() {
        let limited = |workers, place, cores| {
            let mut experiment = experiment();
            experiment.plan.carrier = Some(Carrier::Processes);
            experiment.plan.place = place;
            experiment.environment.cores = cores;
            let mut run = run(0.5);
            run.at.workers = Some(workers);
            run.thread_loads[0].runqueue_share = 0.5;
            let runs = [&run];
            let evidence = Evidence {
                experiment: &experiment,
                runs: &runs,
            };
            verdict(&evidence).limited_by == Some(LimitedBy::Generator)
        };
        let on = |cpus: &[usize]| Some(Place::Cpus(cpus.to_vec()));
        assert!(limited(1, on(&[0]), 2));
        assert!(!limited(2, on(&[0]), 2));
        assert!(limited(2, on(&[0, 3]), 8));
        // The server is on one of these.
        assert!(!limited(2, None, 2));
        assert!(limited(2, Some(Place::Cross), 3));
    }

    #[test]
    fn generators_that_keep_a_tenth_of_the_time_in_flight_are_the_limit() {
        let found = |waited_s: f64| {
            let mut run = run(0.3);
            run.window.window_s = 2.0;
            run.cpu.runqueue_wait_s = Some(waited_s);
            run.spread = Some(Box::new(Spread {
                in_flight: 8,
                effective: 8.0,
                ..Spread::default()
            }));
            judge(&CHECK, &[run]).map(|reason| reason.claims)
        };
        // The threshold is a tenth of 16 seconds.
        assert_eq!(found(1.5), None);
        let claims = found(1.6).unwrap();
        assert!(claims.contains(&Claim::Distribution), "{claims:?}");
    }

    #[test]
    fn a_lock_that_is_a_call_of_the_worker_s_own_may_keep_it_busy() {
        let mut local = run(1.0);
        local.server = None;
        assert_eq!(judge(&CHECK, &[local]), None);
        let mut unknown = run(1.0);
        unknown.thread_loads.clear();
        assert_eq!(judge(&CHECK, &[unknown]), None);
    }

    #[test]
    fn the_verdict_names_who_was_the_limit() {
        let experiment = experiment();
        let limit = |share| {
            verdict(&Evidence {
                experiment: &experiment,
                runs: &[&run(share)],
            })
            .limited_by
        };
        assert_eq!(limit(0.95), Some(LimitedBy::Generator));
        assert_eq!(limit(0.5), None);
    }
}
