//! Open loops through the whole binary: what a known service time, a known stall, a
//! stopped server, a starved generator and a killed worker come to; and that every
//! planned request is accounted for each time.

use crate::common::loops::Loops;
use crate::common::processes::{self, Process};
use crate::common::{Place, Running, Signal, alone, as_json, beside, in_some_try, jostle, reason};
use jostle_model::open_loop::OpenLoop;
use jostle_model::record::{LimitedBy, Run, Status};
use std::time::Duration;

fn runs(line: &str) -> Vec<Run> {
    as_json(line).measures().leaves_nothing().runs()
}

/// Of a run whose requests are all accounted for.
#[track_caller]
fn ledger(run: &Run) -> &OpenLoop {
    let open = run.open_loop.as_deref().unwrap();
    assert!(open.adds_up(), "{open:?}");
    assert!(reason(run, "ledger").is_none());
    open
}

fn p(name: &str, distribution: Option<&jostle_model::record::Distribution>) -> f64 {
    distribution.unwrap().percentiles[name] as f64 / 1e6
}

/// The server that the keeper has launched.
fn server(run: &mut Running) -> u32 {
    let keeper = run.keeper();
    let ours = [
        "jostle-worker",
        "jostle-canary",
        "jostle-keeper",
        "jostle-anchor",
        "jostle-cost",
    ];
    run.until("a server", |_| {
        let children: Vec<Process> = processes::children(keeper);
        let mut others = children
            .iter()
            .filter(|child| !ours.contains(&child.name.as_str()));
        others.next().map(|child| child.pid)
    })
}

#[test]
fn a_worker_that_is_killed_leaves_one_request_and_the_ledger_adds_up() {
    let place = Place::beside_others();
    // Each request is taken long before it is due: one that is due at the end, and is taken
    // late because all stood still, would be dropped too.
    let line = "rate delay:20ms --rate 40 -w 8 -t 2 --warmup 0.1 --runs 1 --format json";
    // The window may not have begun then, or be over; and others may be too late at its end.
    in_some_try("a worker that is killed in the window", || {
        let mut run = place.jostle(line).in_background();
        let worker = run.until_workers(8)[3].pid;
        run.after(Duration::from_millis(1_000)).kill(worker);
        let done = run.end().leaves_nothing();
        let point = (done.code() == 3).then(|| done.only_run())?;
        let open = ledger(&point);
        assert_eq!(open.planned, 80);
        // It slept until its request was due, or waited for the answer.
        let left = open.in_flight + open.dropped;
        (point.around.deaths.len() == 1 && left == 1).then_some(())
    });
}

#[test]
fn a_request_that_is_answered_wrongly_is_failed_and_not_done() {
    let _beside = beside();
    let line = "rate --rate 50 -w 8 -t 1 --warmup 0.1 --runs 1 --format json exec:false";
    // A busy machine may hold some up, or all.
    in_some_try("a failed request", || {
        let run = jostle(line).exits(3).only_run();
        let open = ledger(&run);
        assert_eq!((open.planned, open.done), (50, 0), "{open:?}");
        assert_eq!((run.operations, run.times.response_ns.as_ref()), (0, None));
        (open.failed > 0).then_some(())
    });
}

#[test]
fn an_interrupt_ends_an_open_loop_at_once() {
    let place = Place::beside_others();
    let mut run = place
        .jostle("rate delay:5ms --rate 100 -w 4 -t 300")
        .in_background();
    run.until_workers(4);
    run.after(Duration::from_millis(700)).signal(Signal::INT);
    run.end()
        .exits(130)
        .says("interrupted")
        .leaves_nothing()
        .ends_within_a_minute();
}

/// A run whose server stands still for so long.
fn stopped_for(still: Duration) -> Run {
    let line = "rate lockd --rate 500 -t 3 --warmup 0.1 -w 8 --drop-after 0.3";
    let mut run = as_json(line).in_background();
    let server = server(&mut run);
    run.until_workers(8);
    run.after(Duration::from_millis(1_200));
    processes::signal(server, Signal::STOP);
    run.after(still);
    processes::signal(server, Signal::CONT);
    run.end().leaves_nothing().only_run()
}

/// On each side of the window's end, if the machine is not too slow for that.
#[test]
fn a_server_that_stands_still_loses_no_request_of_the_ledger() {
    let _beside = beside();
    for still in [Duration::from_millis(900), Duration::from_secs(5)] {
        let point = stopped_for(still);
        let open = ledger(&point);
        assert_eq!((open.planned, open.failed), (1_500, 0), "{open:?}");
    }
}

#[test]
fn the_table_says_what_was_planned_and_where_the_knee_is() {
    let _beside = beside();
    jostle("rate delay:5ms -w 2 --rate 50:1000 -t 1 --warmup 0.1 --runs 1 --quiet")
        .measures()
        .prints("Ledger: 1,050 planned = ")
        .prints("adds")
        .prints("offered")
        .leaves_nothing();
}

/// Tests that judge figures of this machine.
mod figures {
    use super::*;

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn a_known_service_time_is_the_response_until_it_no_longer_fits() {
        let _alone = alone();
        // One slot and 5 ms: 200 a second fit.
        let mut untold = Vec::new();
        let found = (0..5).find_map(|_| {
            let mut found = runs("rate delay:5ms -w 1 --rate 100:400 -t 2 --warmup 0.2");
            // They are made in an order by the seed.
            found.sort_by_key(|point| point.at.rate);
            let (done, beyond) = (ledger(&found[0]).done, ledger(&found[1]));
            let done_per_s = found[1].throughput_per_s;
            let [late, held_up] = [&beyond.generator_lag_ns, &beyond.target_lag_ns]
                .map(|lag| p("p50", lag.as_ref()));
            let told = |check| found.iter().any(|point| reason(point, check).is_some());
            if !["lag", "neighbours", "steal"].into_iter().any(told) {
                untold.push(format!(
                    "{done} done of 200, {done_per_s} of 200 per second, {late} ms late of {held_up}"
                ));
            }
            // How late a sleep ends is passed on from request to request, so that the
            // generator's part grows with the queue.
            let sent = done >= 195 && done_per_s >= 150.0;
            (sent && late < held_up / 10.0).then_some(found)
        });
        // Kept from its CPU in all of them, which each said by itself.
        let Some(found) = found else {
            assert!(untold.is_empty(), "late, and no reason given: {untold:?}");
            return;
        };
        let (below, beyond) = (&found[0], &found[1]);
        let open = ledger(below);
        // A busy machine may hold the last ones up.
        assert!(open.planned == 200 && open.done >= 195, "{open:?}");
        let response = p("p50", below.times.response_ns.as_ref());
        let service = p("p50", below.times.service_ns.as_ref());
        assert!((5.0..5.6).contains(&service), "{service} ms");
        assert!(
            (response - service).abs() < 0.5,
            "{response} and {service} ms"
        );
        let open = ledger(beyond);
        assert_eq!(open.planned, 800);
        // As many as the check allows where the machine stops for a while.
        assert!(open.dropped_with_slot <= 8, "{open:?}");
        assert!(beyond.throughput_per_s <= 201.0);
        assert!(open.dropped > 200, "{open:?}");
        // The course of the run is that of the response, not of the service.
        let sliced = beyond.series.iter().filter_map(|slice| {
            let mean_ms = slice.mean_wait_ns? / 1e6;
            Some((mean_ms * slice.operations as f64, slice.operations))
        });
        let (sum, count) = sliced.fold((0.0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        let response = beyond.times.response_ns.as_ref().unwrap();
        assert_eq!(count, response.count);
        let mean_ms = response.mean / 1e6;
        assert!((sum / count as f64 - mean_ms).abs() < 1.0, "{mean_ms} ms");
        // What waits for the slot waits by the target's fault.
        assert!(p("p50", open.target_lag_ns.as_ref()) > 100.0);
    }

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn an_open_loop_sees_the_stalls_that_a_closed_loop_hides() {
        let _alone = alone();
        let stalls = |line: &str| runs(line).remove(0);
        let open = stalls("rate stall:200ms/1s --rate 200 -t 5 -w 64");
        // A machine that stands still itself hides one: those that nobody waits for do not count.
        assert!(
            open.around.truth["stalls"] >= 4.0,
            "{:?}",
            open.around.truth
        );
        assert!(
            open.around.truth["stall_min_ns"] >= 200e6,
            "{:?}",
            open.around.truth
        );
        ledger(&open);
        let response = p("p99", open.times.response_ns.as_ref());
        assert!(response >= 150.0, "{response} ms");
        // One worker that asks a thousand times a second meets each stall once.
        let closed = stalls("contend stall:200ms/1s -w 1 -b 0 -i 1ms -t 5 --warmup 0");
        assert!(
            closed.around.truth["stalls"] >= 4.0,
            "{:?}",
            closed.around.truth
        );
        let waits = &closed.acquire_ns.as_ref().unwrap().granted;
        assert!(waits.max as f64 > 50e6, "{waits:?}");
        assert!(p("p99", Some(waits)) < 5.0, "{waits:?}");
    }

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn a_server_that_stands_still_is_late_by_its_own_fault_and_all_is_accounted_for() {
        let _alone = alone();
        // How long it stands still, and whether that is until after the end.
        for (still, beyond_the_end) in [
            (Duration::from_millis(900), false),
            (Duration::from_secs(5), true),
        ] {
            let point = stopped_for(still);
            let open = ledger(&point);
            assert_eq!(open.planned, 1_500);
            assert!(open.dropped > 100, "{open:?}");
            // As many as the check allows where the machine stops for a while at the end.
            assert!(open.dropped_with_slot <= 8, "{open:?}");
            match beyond_the_end {
                true => assert_eq!(open.in_flight, 8, "{open:?}"),
                false => assert_eq!(open.in_flight, 0, "{open:?}"),
            }
            assert_eq!(open.failed, 0, "{open:?}");
            let lags =
                [&open.target_lag_ns, &open.generator_lag_ns].map(|lag| lag.as_ref().unwrap());
            if !beyond_the_end {
                assert!(lags[0].max >= 250_000_000, "{open:?}");
            }
            // Who is the limit then is a matter of thresholds, which planted records test.
            // What stops the canary as well, stops the machine.
            let machine = open.canary_lag_ns.as_ref().map_or(0, |lag| lag.max);
            assert!(lags[1].max < 250_000_000 + machine, "{open:?}");
        }
    }

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn a_generator_that_is_kept_from_its_cpu_is_late_and_a_free_one_is_not() {
        let _alone = alone();
        let cpu = jostle_sys::cpu::allowed()[0];
        let line = format!("rate echo --rate 4000 -w 16 -t 1 --warmup 0.1 --place cpus:{cpu}");
        let loops = Loops::on_cpu(cpu, "planted-loop", 120);
        // The scheduler may favour whoever sleeps most of the time. Where it favours the loops,
        // hardly a request is answered, so that no slot is free to be late with.
        in_some_try("a starved generator that is late or hardly runs", || {
            let starved = runs(&line).remove(0);
            let open = ledger(&starved);
            let limits = [Some(LimitedBy::Generator), Some(LimitedBy::Machine)];
            let is_late =
                reason(&starved, "lag").is_some() && limits.contains(&starved.verdict.limited_by);
            let by_loops = reason(&starved, "neighbours").is_some_and(|found| {
                found.is == Status::Invalid && found.text.contains("planted-loop")
            });
            (is_late || (by_loops && open.done < open.planned / 2)).then_some(())
        });
        drop(loops);
        in_some_try("a clean run without lag", || {
            let clean = runs("rate delay:50ms --rate 100 -w 16 -t 1 --warmup 0.1").remove(0);
            ledger(&clean);
            reason(&clean, "lag").is_none().then_some(())
        });
    }

    #[test]
    #[ignore = "cargo xtask validate figures"]
    fn a_generator_that_pauses_is_late_itself_though_all_its_slots_were_taken() {
        let _alone = alone();
        let place = Place::new();
        // So short that hardly ever a worker is stopped within a request, which looks as if
        // it had been served slowly.
        let line = "rate delay:20us --rate 500 -w 4 -t 2 --warmup 0.1 --runs 1 --format json";
        let point = in_some_try("no worker that is stopped within a request", || {
            let mut run = place.jostle(line).in_background();
            let workers = run.until_workers(4);
            run.after(Duration::from_millis(800));
            let to_all = |signal| {
                workers
                    .iter()
                    .for_each(|w| processes::signal(w.pid, signal))
            };
            to_all(Signal::STOP);
            run.after(Duration::from_millis(400));
            to_all(Signal::CONT);
            let point = run.end().leaves_nothing().only_run();
            let longest_ns = point.times.service_ns.as_ref().unwrap().max;
            (longest_ns < 200_000_000).then_some(point)
        });
        let open = ledger(&point);
        // The same at the end of a run whose machine stops for a while.
        assert!(open.planned - open.done <= 8, "{open:?}");
        let generator = p("p99", open.generator_lag_ns.as_ref());
        assert!(generator > 200.0, "{generator} ms");
        // Only four of the 200 that were due meanwhile were in a slot.
        let target = p("p99", open.target_lag_ns.as_ref());
        assert!(target < 100.0, "{target} ms");
        assert_eq!(reason(&point, "lag").unwrap().is, Status::Invalid);
        assert_eq!(point.verdict.limited_by, Some(LimitedBy::Generator));
    }
}
