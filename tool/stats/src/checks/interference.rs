//! Did interrupts, tracers or programs on other CPUs slow our own threads, or was the clock slewed?
//!
//! An interrupt, and a program that a system call calls, run on account of the thread that they
//! interrupt: no account of CPU time shows them, and [`super::neighbours`] cannot. Nor can it show
//! what programs on other CPUs take of caches and memory.

use super::anchor::level;
use super::{Evidence, Found, percent, seen};
use crate::comparison::anchored::Part;
use jostle_model::Remedy;
use jostle_model::record::{Claim, Interference, Interrupts, Run};

/// Interrupts of one CPU a second, beyond the scheduler's tick and what ours may have caused: at
/// 5 us each they take 1 % of it.
const MOST_PER_S: f64 = 2_000.0;

/// The scheduler's tick of a busy CPU: CONFIG_HZ is at most so much.
const TICK_PER_S: f64 = 1_000.0;

/// Share of the CPUs that ours may not use from which on others there are told. A worker on one of
/// two CPUs did 0.81 times as much beside page reclaim on the other (0.73 of it), and as much as
/// ever beside ksmd (0.93).
const ELSEWHERE: f64 = 0.25;

/// Share by which the clock's rate may be off. A time daemon turns it by 0.05 % at most, unless it
/// corrects a large offset.
const CLOCK: f64 = 0.01;

check! {
    "interference" in "interrupts/s":
        "Did interrupts, tracers or programs on other CPUs slow our own threads, or was the clock slewed?";
    threshold: text!(
        "timers and performance counters interrupted a CPU more than {MOST_PER_S:.0} times a \
         second beyond its tick (up to {TICK_PER_S:.0}), beside the anchor, or within the \
         window where neither a server nor started programs work, less the times that ours \
         were put on a CPU; or another program had performance events or /proc/locks open, or \
         eBPF programs attached, or tracefs had events or a tracer on; or a socket got every packet, and \
         the workers asked a server; or threads of workers or server were \
         given other CPUs while they worked; or others used {} of the CPUs that ours may not use, \
         where the owners of all CPU time are known; or CLOCK_MONOTONIC ran {} faster or slower than \
         CLOCK_MONOTONIC_RAW: SUSPECT for `absolute` and `distribution`. What could not be \
         looked at is absent from the record and unchecked. Calls between CPUs are recorded \
         and not judged, since locks cause them",
        percent(ELSEWHERE),
        percent(CLOCK)
    ),
    source: "the time of an interrupt and of a tracer is booked to the thread that was interrupted: \
             beside `perf stat -a` on system calls, `perf record -a` and a timer of 20 us figures \
             were up to a fourth too low; beside the anchor nothing of ours sets timers",
    fooled_by: "a program that opens performance events and counts next to nothing with them; a \
                server that sets many timers while nobody asks it; a timer that is set within the \
                window alone while ours sleep as often; tracers of another user, and in a \
                container; an eBPF program that is pinned to a file; programs on other CPUs that leave caches \
                and memory alone, as ksmd did",
    advice: "stop what is named, find the timer (`/proc/timer_list`), or wait until others end",
    words: seen,
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    // A profiler of ours is the finding of `profiled`.
    let judged = evidence.runs.iter().copied();
    let judged: Vec<&Run> = judged.filter(|run| run.around.during.is_none()).collect();
    let (with, without): (Vec<&Run>, Vec<&Run>) =
        judged.iter().partition(|run| finding(run).is_some());
    let (found, text) = finding(with.first()?)?;
    let seen = format!("{text}{}", slower(&with, &without));
    let again = found.remedy.is_none().then_some(Remedy::Again);
    let remedy = found.remedy.clone().or(again);
    Some(found.seen(seen).remedy(remedy))
}

/// A run's finding, and its words.
fn finding(run: &Run) -> Option<(Found, String)> {
    let found = run.around.interference.as_deref()?;
    let claims = &[Claim::Absolute, Claim::Distribution];
    let suspect = |measured, limit| Found::suspect(claims, measured, limit);
    if let Some(rate) = found.clock_rate.filter(|rate| (rate - 1.0).abs() > CLOCK) {
        let text = format!(
            "somebody slewed the clock: CLOCK_MONOTONIC ran {rate:.3} times as fast as \
             CLOCK_MONOTONIC_RAW, and all times and rates are off by as much"
        );
        return Some((suspect((rate - 1.0).abs(), CLOCK).unit("share"), text));
    }
    if let Some(threads) = run.around.machine.repinned {
        let text = format!(
            "somebody changed the CPUs that {} may use, while they worked",
            of_ours(threads)
        );
        return Some((suspect(threads as f64, 0.0).unit("threads"), text));
    }
    let captures = found.captures.as_deref().unwrap_or_default();
    if !captures.is_empty() && run.traffic.is_some() {
        let text = format!(
            "{} got every packet of this network namespace, for which sender and receiver pay",
            captures.join(", ")
        );
        return Some((suspect(captures.len() as f64, 0.0).unit("captures"), text));
    }
    if let Some((count, text)) = tracers(found) {
        return Some((suspect(count as f64, 0.0).unit("tracers"), text));
    }
    if let Some(share) = elsewhere(run).filter(|share| *share >= ELSEWHERE) {
        let text = format!(
            "others used {} of the CPUs that ours may not use; what that takes of caches and memory \
             is in no account",
            percent(share)
        );
        let found = suspect(share, ELSEWHERE).unit("share");
        return Some((found.remedy(Remedy::wait_quiet()), text));
    }
    let places = [
        (found.anchor.as_ref(), Some(0), "while no worker worked"),
        (found.window.as_ref(), own(run), "within the window"),
    ];
    let excess = places.into_iter().filter_map(|(interrupts, own, place)| {
        let per_s = excess(interrupts?, own?);
        Some((per_s, place))
    });
    let (per_s, place) = excess.max_by(|one, other| one.0.total_cmp(&other.0))?;
    let text = format!(
        "timers or performance counters interrupted a CPU {per_s:.0} times a second beyond its \
         tick {place}; the accounts book that to our own threads"
    );
    let is_many = per_s > MOST_PER_S && per_s.is_finite();
    is_many.then(|| (suspect(per_s, MOST_PER_S), text))
}

/// The share of the CPUs that ours may not use for which others ran there; None where ours may use
/// all, and where some of ours are not known.
fn elsewhere(run: &Run) -> Option<f64> {
    let of = run.around.accounts.as_deref()?;
    let is_served = run.server.is_some() || run.traffic.is_some() || of.requests_s.is_some();
    let is_known = run.hosts.is_empty() && (of.server_s.is_some() || !is_served);
    let cpus = run.around.machine.cores.saturating_sub(of.cpus);
    let started_s = of.requests_s.unwrap_or(0.0) + of.server_s.unwrap_or(0.0);
    let others_s = of.whole_s? - of.workers_s - of.tool_s - started_s - of.foreign_s?;
    (is_known && cpus > 0).then(|| others_s / of.between_s / cpus as f64)
}

fn of_ours(threads: u64) -> String {
    match threads {
        1 => "a thread of workers or server".to_owned(),
        _ => format!("{threads} threads of workers and server"),
    }
}

/// Of the CPU with the most: interrupts a second, less its tick and those of ours.
fn excess(interrupts: &Interrupts, own: u64) -> f64 {
    let each = interrupts.timer.iter().zip(&interrupts.monitor);
    let most = each.map(|(timer, monitor)| timer + monitor).max();
    let foreign = most.unwrap_or(0).saturating_sub(own) as f64;
    (foreign / interrupts.between_s.max(f64::MIN_POSITIVE) - TICK_PER_S).max(0.0)
}

/// How many timers ours may have set in the window: one that ends wakes a thread, which is then
/// put on a CPU. None where that is not known: servers, started programs.
fn own(run: &Run) -> Option<u64> {
    let requests_s = run.around.accounts.as_deref()?.requests_s;
    let alone = run.server.is_none() && run.traffic.is_none() && requests_s.is_none();
    run.cpu.context_switches.filter(|_| alone)
}

/// Who samples or traces: how many, and in words.
fn tracers(found: &Interference) -> Option<(usize, String)> {
    let named = |names: &Option<Vec<String>>, what: &str| {
        let names = names.as_ref().filter(|names| !names.is_empty())?;
        let text = format!(
            "{} {what}; what that takes is in no account",
            names.join(", ")
        );
        Some((names.len(), text))
    };
    let programs =
        "sampled or traced the kernel, or listed its locks (performance events, eBPF, /proc/locks)";
    named(&found.tracers, programs).or_else(|| named(&found.traced, "was switched on in tracefs"))
}

/// The anchor's comparison, where the session has runs of both kinds.
fn slower(with: &[&Run], without: &[&Run]) -> String {
    let ratio = |part| Some(level(part, with)? / level(part, without)?);
    match (ratio(Part::Call), ratio(Part::Step)) {
        (Some(call), Some(step)) => format!(
            ". A system call took {call:.2} times as long beside these runs as beside the others, \
             a step of a loop {step:.2} times"
        ),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::fixtures::{judge, point};
    use jostle_model::record::{Accounts, Anchor, Interference, Interrupts, Run, Server};

    fn with(found: Interference) -> Run {
        let mut run = point();
        run.cpu.context_switches = Some(50);
        run.around.accounts = Some(Box::default());
        run.around.interference = Some(Box::new(found));
        run
    }

    fn text(runs: &[Run]) -> Option<String> {
        judge(&CHECK, runs).map(|reason| reason.text)
    }

    #[test]
    fn interrupts_beyond_the_tick_are_flagged() {
        // Timers of each CPU in 0.1 s, counters, whether any is flagged: beside the anchor 300
        // are allowed, in the window 50 more.
        for (timer, monitor, beside, within) in [
            ([25, 100], 0, false, false),
            ([300, 0], 0, false, false),
            ([0, 301], 0, true, false),
            ([200, 0], 101, true, false),
            ([351, 0], 0, true, true),
        ] {
            let found = Some(Interrupts {
                between_s: 0.1,
                timer: timer.to_vec(),
                monitor: vec![monitor, 0],
                call: vec![9_999, 9_999],
            });
            let anchor = with(Interference {
                anchor: found.clone(),
                ..Interference::default()
            });
            let mut window = with(Interference {
                window: found,
                ..Interference::default()
            });
            assert_eq!(text(&[anchor]).is_some(), beside, "{timer:?}");
            assert_eq!(
                text(std::slice::from_ref(&window)).is_some(),
                within,
                "{timer:?}"
            );
            // Its timers are the work's.
            window.server = Some(Server::default());
            assert_eq!(text(&[window]), None);
        }
    }

    #[test]
    fn others_on_cpus_that_ours_may_not_use_are_told() {
        let mut run = with(Interference::default());
        run.around.machine.cores = 2;
        run.around.accounts = Some(Box::new(Accounts {
            between_s: 2.0,
            cpus: 1,
            workers_s: 1.9,
            tool_s: 0.02,
            foreign_s: Some(0.02),
            whole_s: Some(2.42),
            ..Accounts::default()
        }));
        assert_eq!(text(std::slice::from_ref(&run)), None);
        let accounts = run.around.accounts.as_mut().unwrap();
        accounts.whole_s = Some(3.4);
        let said = text(std::slice::from_ref(&run)).unwrap();
        assert!(said.starts_with("others used 73.0 % of the CPUs"), "{said}");
        // A server whose processes are not known may be among them.
        let mut served = run.clone();
        served.server = Some(Server::default());
        run.around.accounts.as_mut().unwrap().cpus = 2;
        assert_eq!((text(&[served]), text(&[run])), (None, None));
    }

    #[test]
    fn threads_that_somebody_gave_other_cpus_are_counted() {
        let mut run = with(Interference::default());
        assert_eq!(text(std::slice::from_ref(&run)), None);
        run.around.machine.repinned = Some(3);
        let said = text(&[run]).unwrap();
        assert!(
            said.contains("3 threads of workers and server may use"),
            "{said}"
        );
    }

    #[test]
    fn a_slewed_clock_and_who_gets_every_packet_are_named() {
        let run = |rate, captures: &[&str]| {
            with(Interference {
                clock_rate: Some(rate),
                captures: Some(captures.iter().map(|name| (*name).to_owned()).collect()),
                ..Interference::default()
            })
        };
        // A time daemon turns the clock by 0.05 %.
        assert_eq!(text(&[run(1.0005, &[])]), None);
        for rate in [1.1, 0.95] {
            let said = text(&[run(rate, &[])]).unwrap();
            assert!(said.contains(&format!("ran {rate:.3} times")), "{said}");
        }
        // A kernel's lock sends no packets.
        let mut captured = run(1.0, &["tcpdump (8)"]);
        assert_eq!(text(std::slice::from_ref(&captured)), None);
        captured.traffic = Some(Default::default());
        let said = text(&[captured]).unwrap();
        assert!(said.starts_with("tcpdump (8) got every packet"), "{said}");
    }

    #[test]
    fn tracers_are_named_with_what_the_anchor_says_where_the_session_saw_both_states() {
        let run = |call_ns, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let mut run = with(Interference {
                tracers: Some(names),
                ..Interference::default()
            });
            run.around.anchor = Some(Anchor {
                step_ns: 1.3,
                call_ns,
                ..Anchor::default()
            });
            run
        };
        let (clean, traced) = (run(106.0, &[]), run(165.0, &["perf (7)"]));
        let one = text(std::slice::from_ref(&traced)).unwrap();
        assert!(one.starts_with("perf (7) sampled or traced the kernel"));
        assert!(!one.contains("system call"), "{one}");
        let both = text(&[clean.clone(), traced.clone()]).unwrap();
        assert!(both.contains("call took 1.56 times as long beside these runs as beside"));
        assert!(both.contains("a step of a loop 1.00 times"), "{both}");
        // What could not be looked at is unchecked; a profiler of ours is `profiled`.
        let mut profiled = traced;
        profiled.around.during = Some("perf record".to_owned());
        let unseen = with(Interference::default());
        assert_eq!(text(&[clean, profiled, unseen, point()]), None);
        let on = text(&[with(Interference {
            traced: Some(vec!["raw_syscalls:sys_enter".to_owned()]),
            ..Interference::default()
        })]);
        assert!(on.unwrap().contains("sys_enter was switched on in tracefs"));
    }
}
