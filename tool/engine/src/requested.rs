//! Requests, from the parent's side: what the plan asks of them, the requests
//! that do nothing beside them, and what their data add to a record.

use crate::order::{
    AskOrder, OpenLoopData, OpenLoopOrder, PhaseData, RequestData, RequestOrder, RunData, RunOrder,
    WorkloadOrder,
};
use jostle_harness::merged::histogram;
use jostle_model::open_loop::OpenLoop;
use jostle_model::record::{At, Null, Phase, Run};
use jostle_model::text::redacted;
use jostle_model::{Nanos, Plan, defaults};
use jostle_stats::censor;

/// Requests of each worker beside a run that do nothing: more would cost more than they
/// tell. The mean of so many spawns is known to one or two percent.
const NULLS_AT_MOST: u64 = 500;

/// How many requests that do nothing stand beside so many of a worker.
pub(crate) fn nulls(plan: &Plan, operations: u64) -> u64 {
    match plan.null.as_deref() {
        None | Some(defaults::NO_NULL) => 0,
        Some(_) => operations.min(NULLS_AT_MOST),
    }
}

/// A run's orders about requests.
pub(crate) fn order(plan: &Plan) -> RequestOrder {
    RequestOrder {
        expect: plan.expect.as_ref().map(|list| list.0.clone()),
        timeout: plan.call_timeout(),
        output: plan.command_output.clone(),
        numbers: plan.numbers,
        connection: plan.connection,
        server_log: plan.server_log.clone(),
    }
}

/// When requests are due at this point.
pub(crate) fn open_loop(plan: &Plan, at: At) -> OpenLoopOrder {
    OpenLoopOrder {
        per_s: at.rate.unwrap_or(1),
        arrivals: plan.arrivals(),
        drop_after: plan.drop_after(),
        first_after: Nanos::ZERO,
    }
}

/// The run of requests that do nothing that belongs to this one.
pub(crate) fn null_order(plan: &Plan, order: &RunOrder) -> Option<RunOrder> {
    let null = plan.null.as_deref()?;
    let WorkloadOrder::Ask(ask) = &order.workload else {
        return None;
    };
    (null != defaults::NO_NULL).then(|| RunOrder {
        target: null.to_owned(),
        workload: WorkloadOrder::Ask(AskOrder {
            operations: nulls(plan, ask.operations),
            requests: RequestOrder {
                timeout: ask.requests.timeout,
                ..RequestOrder::default()
            },
        }),
        ..order.clone()
    })
}

/// The service times; None if one of the requests failed.
pub(crate) fn null(order: &RunOrder, data: &RunData) -> Option<Null> {
    let requests = data.requests.as_ref()?;
    if !data.around.errors.is_empty() || !data.around.deaths.is_empty() {
        return None;
    }
    Some(Null {
        target: redacted(&order.target).into_owned(),
        service_ns: histogram(&requests.service).distribution(&[])?,
        cpu_us_per_operation: cpu_us(data, requests)?,
    })
}

/// CPU time of worker and children, by request.
pub(crate) fn cpu_us(data: &RunData, requests: &RequestData) -> Option<f64> {
    let made = data.received;
    let all = data.cpu.used_ns? + requests.children.all_ns();
    (made > 0).then(|| all as f64 / 1e3 / made as f64)
}

/// Adds what requests came to.
pub(crate) fn fill_in(run: &mut Run, requests: &RequestData, data: &RunData, over: &[Nanos]) {
    let service = histogram(&requests.service);
    run.times.service_ns = service.distribution(over);
    run.times.failed_ns = histogram(&requests.failed).distribution(over);
    for PhaseData { phase, span } in &requests.phases {
        let span = histogram(span).distribution(over);
        run.phases.extend(span.map(|span| Phase {
            phase: phase.clone(),
            span,
        }));
    }
    let phases = requests.phases.iter();
    let named = phases.map(|part| (part.phase.as_str(), &part.span));
    for (name, merged) in
        named.chain([("service", &requests.service), ("failed", &requests.failed)])
    {
        if !merged.buckets.0.is_empty() {
            let buckets = merged.buckets.clone();
            run.histograms.insert(format!("{name}_ns"), buckets);
        }
    }
    run.codes = requests.codes.clone();
    run.stamp_every = Some(1);
    run.stamped = Some(data.attempts.stamped);
    if let Some(open) = &requests.open_loop {
        fill_in_open_loop(run, open, over);
    }
}

/// Adds what became of requests that came at a rate.
fn fill_in_open_loop(run: &mut Run, open: &OpenLoopData, over: &[Nanos]) {
    let response = histogram(&open.response);
    let unanswered = histogram(&open.unanswered);
    let waits = censor::waits(&response, &unanswered, over).unwrap_or_default();
    let lag = |merged| histogram(merged).distribution(&[]);
    run.times.response_ns = response.distribution(over);
    for (name, merged) in [
        ("response_ns", &open.response),
        ("unanswered_ns", &open.unanswered),
        ("generator_lag_ns", &open.generator_lag),
        ("target_lag_ns", &open.target_lag),
        ("canary_lag_ns", &open.canary_lag),
    ] {
        if !merged.buckets.0.is_empty() {
            let buckets = merged.buckets.clone();
            run.histograms.insert(name.to_owned(), buckets);
        }
    }
    run.open_loop = Some(Box::new(OpenLoop {
        generator_lag_ns: lag(&open.generator_lag),
        target_lag_ns: lag(&open.target_lag),
        canary_lag_ns: lag(&open.canary_lag),
        response_kaplan_meier: waits.kaplan_meier,
        response_at_least: waits.at_least,
        ..open.counts.clone()
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{CpuData, CpuTimes, Merged};
    use jostle_model::open_loop::OpenLoop;
    use jostle_model::record::{Buckets, Circumstances};

    fn all(ns: u64, count: u64) -> Merged {
        Merged {
            buckets: Buckets(vec![(ns, count)]),
            sum: ns * count,
            min: ns,
            max: ns,
        }
    }

    /// Ten requests of 1 us each. Workers took 40 us within the window, and by the
    /// system's sampled clocks 60 user and 60 system with the 20 and 60 of the
    /// processes that they had started and waited for.
    fn made() -> (RequestData, RunData) {
        let requests = RequestData {
            service: all(1_000, 10),
            children: CpuTimes {
                user_ns: 20_000,
                system_ns: 60_000,
            },
            ..RequestData::default()
        };
        let data = RunData {
            received: 10,
            cpu: CpuData {
                used_ns: Some(40_000),
                usage: CpuTimes {
                    user_ns: 60_000,
                    system_ns: 60_000,
                },
                ..CpuData::default()
            },
            requests: Some(Box::new(requests.clone())),
            ..RunData::default()
        };
        (requests, data)
    }

    #[test]
    fn a_request_costs_what_its_worker_and_its_processes_took() {
        let cpu = crate::run::cpu(10, &made().1);
        assert_eq!(cpu.cpu_us_per_operation, Some(12.0));
        assert_eq!(cpu.children_user_s, Some(20e-6));
        assert_eq!(cpu.children_system_s, Some(60e-6));
        // What is left of the worker's own was all user time.
        assert_eq!(cpu.cpu_user_s, Some(40e-6));
        assert_eq!(cpu.cpu_system_s, Some(0.0));
    }

    #[test]
    fn requests_that_were_never_answered_hold_the_percentiles_of_the_response_up() {
        let (mut requests, data) = made();
        requests.open_loop = Some(Box::new(OpenLoopData {
            counts: OpenLoop {
                planned: 1_000,
                done: 400,
                dropped: 600,
                ..OpenLoop::default()
            },
            response: all(1_000_000, 400),
            unanswered: all(900_000_000, 600),
            ..OpenLoopData::default()
        }));
        let mut run = Run::default();
        fill_in(&mut run, &requests, &data, &[]);
        let open = run.open_loop.unwrap();
        // If only answered requests counted, it would be a millisecond.
        assert_eq!(open.response_kaplan_meier.get("p50"), None);
        assert!(open.response_at_least["p50"] > 800_000_000, "{open:?}");
    }

    #[test]
    fn requests_that_do_nothing_are_none_to_compare_with_where_one_failed() {
        let order = crate::experiment::tests::order("exec:true");
        let (_, data) = made();
        let found = null(&order, &data).unwrap();
        assert_eq!(
            (found.target.as_str(), found.service_ns.count),
            ("exec:true", 10)
        );
        assert_eq!(found.cpu_us_per_operation, 12.0);
        let failing = RunData {
            around: Circumstances {
                errors: [("code 1".to_owned(), 1)].into(),
                ..data.clone().around
            },
            ..data.clone()
        };
        assert_eq!(null(&order, &failing), None);
        let dying = RunData {
            around: Circumstances {
                deaths: vec!["killed".to_owned()],
                ..data.around
            },
            ..data
        };
        assert_eq!(null(&order, &dying), None);
    }
}
