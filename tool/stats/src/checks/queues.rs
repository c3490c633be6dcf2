//! Did connections wait for a full accept queue, messages for an acknowledgement, or requests
//! to be read or sent, while the server had room?

use super::{EVERYTHING, Evidence, Found, percent, seen};
use crate::judge::{OF_CONNECTIONS, ROOM, UNREAD};
use crate::numbers::time;
use crate::tcp;
use jostle_model::plan::Workload;
use jostle_model::record::{Distribution, Run, TcpCounts, TcpQueues};

/// Share of the timer that the longest time has to reach: clocks step by a tick.
const NEARLY: f64 = 0.9;

/// Delayed acknowledgements for each operation.
const MOSTLY: f64 = 0.5;

/// Looks, over all runs, that tell something.
const FEWEST: u64 = 10;

/// By how much a median may exceed the timer and still be its time.
const BEYOND: f64 = 1.25;

check! {
    "queues" in "connections":
        "Did connections or messages wait for a timer of TCP, or in a queue at a server with room?";
    threshold: text!(
        "of `connect`, `stream`, `rate`, `churn` and `spread`: one or more refused by a full \
         accept queue (ListenOverflows) while SYNs were sent again and something took {} or \
         longer; or {MOSTLY} delayed acknowledgements (DelayedACKs) for each operation or more \
         while the median is {} to {}; or, at {FEWEST} looks or more, while the server used \
         {ROOM} CPUs at most (with the time that server and workers waited for a CPU), requests that \
         lay unread there on {} of the connections, on two \
         or more in {} of the looks, or messages that clients could not send on {} of the \
         connections: SUSPECT",
        time(NEARLY * tcp::SYN_AGAIN_S * 1e9),
        time(NEARLY * tcp::DELAYED_S * 1e9),
        time(BEYOND * tcp::DELAYED_S * 1e9),
        percent(OF_CONNECTIONS),
        percent(UNREAD),
        percent(MOSTLY)
    ),
    source: "TCP_TIMEOUT_INIT and TCP_DELACK_MIN (include/net/tcp.h): a timer that runs is the \
             time that is measured, whatever server or load; a full accept queue drops a SYN \
             without a word",
    fooled_by: "the counters are those of the network namespace: another program's full queue, \
                while something here took a second for another reason; and a server that answers \
                after 40 ms by itself, to a client that acknowledges late; a server whose CPU time \
                cannot be seen counts as busy",
    advice: "listen() with a larger backlog and net.core.somaxconn; TCP_NODELAY, or each message in \
             one write; more workers at the server, or what they wait for",
    words: seen,
}

fn judge(evidence: &Evidence<'_>) -> Option<Found> {
    use Workload::{Churn, Connect, Rate, Spread, Stream};
    let asked = [Connect, Stream, Rate, Churn, Spread];
    if !asked.contains(&evidence.experiment.plan.workload) {
        return None;
    }
    let runs = || evidence.each(|run| Some((run, run.around.machine.tcp?)));
    let sum = |figure: fn(&TcpCounts) -> u64, runs: &[(&Run, TcpCounts)]| -> f64 {
        runs.iter().map(|(_, tcp)| figure(tcp) as f64).sum()
    };
    let waited: Vec<_> = runs().filter(|(run, tcp)| refused(run, tcp)).collect();
    if !waited.is_empty() {
        let overflows = sum(|tcp| tcp.overflows, &waited);
        let again = sum(|tcp| tcp.syn_again, &waited);
        let longest = waited.iter().map(|(run, _)| longest_ns(run)).max();
        let text = format!(
            "{}, the first of each after {} or later; the longest time is {}: {}",
            tcp::refused(overflows, again),
            time(tcp::SYN_AGAIN_S * 1e9),
            time(longest.unwrap_or(0) as f64),
            tcp::BACKLOG
        );
        return Some(found("connections", overflows, 0.0, text));
    }
    let delayed: Vec<_> = runs().filter(|(run, tcp)| delayed(run, tcp)).collect();
    let operations: f64 = delayed.iter().map(|(run, _)| run.operations as f64).sum();
    (!delayed.is_empty())
        .then(|| {
            let share = sum(|tcp| tcp.delayed_acks, &delayed) / operations;
            let text = format!(
                "acknowledgements were delayed (40 ms each) at {} of the operations: {}",
                percent(share.min(1.0)),
                tcp::NAGLE
            );
            found("share", share, MOSTLY, text)
        })
        .or_else(|| at_an_idle_server(evidence))
}

/// Requests that lie unread at a server with room wait for a limited number of its workers;
/// what clients cannot send, for it to read.
fn at_an_idle_server(evidence: &Evidence<'_>) -> Option<Found> {
    let idle = evidence.runs.iter().filter(|run| {
        let used_s = run.server.as_ref().and_then(|server| server.cpu_s);
        // Most of it may be the workers': the server's own is not recorded apart.
        let accounts = run.around.accounts.as_ref();
        let waited_s = accounts.and_then(|of| of.waited_s).unwrap_or(0.0);
        used_s.is_some_and(|used_s| used_s + waited_s <= ROOM * run.window.window_s)
    });
    let queues = idle.filter_map(|run| run.around.machine.tcp_queues);
    let queues: Vec<TcpQueues> = queues.collect();
    let sum = |figure: fn(&TcpQueues) -> u64| queues.iter().map(figure).sum::<u64>() as f64;
    let (looks, connections) = (sum(|of| of.looks), sum(|of| of.connections));
    let [unread, unsent] = [sum(|of| of.unread), sum(|of| of.unsent)].map(|sum| sum / connections);
    if looks < FEWEST as f64 {
        return None;
    }
    let mean = connections / looks;
    if unread >= OF_CONNECTIONS && sum(|of| of.looks_unread) >= UNREAD * looks {
        let text = format!(
            "requests lay unread at the server on {:.0} of {mean:.0} connections in the mean, \
             though it used {ROOM} CPUs at most: its pool of workers is the limit, or what these \
             wait for (a lock, a disk, another server)",
            unread * mean
        );
        return Some(found("share", unread, OF_CONNECTIONS, text));
    }
    (unsent >= MOSTLY).then(|| {
        let text = format!(
            "clients could not send what they had written on {:.0} of {mean:.0} connections in \
             the mean, though the server used {ROOM} CPUs at most: it reads too slowly, or the \
             way there is full",
            unsent * mean
        );
        found("share", unsent, MOSTLY, text)
    })
}

fn found(unit: &'static str, measured: f64, limit: f64, text: String) -> Found {
    Found::suspect(EVERYTHING, measured, limit)
        .unit(unit)
        .seen(text)
}

fn refused(run: &Run, tcp: &TcpCounts) -> bool {
    let least_ns = NEARLY * tcp::SYN_AGAIN_S * 1e9;
    tcp.overflows > 0 && tcp.syn_again > 0 && longest_ns(run) as f64 >= least_ns
}

fn delayed(run: &Run, tcp: &TcpCounts) -> bool {
    let range = NEARLY * tcp::DELAYED_S * 1e9..=BEYOND * tcp::DELAYED_S * 1e9;
    let medians = times(run).filter_map(|of| of.percentiles.get("p50").copied());
    run.operations > 0
        && tcp.delayed_acks as f64 >= MOSTLY * run.operations as f64
        && medians.into_iter().any(|ns| range.contains(&(ns as f64)))
}

fn longest_ns(run: &Run) -> u64 {
    times(run).map(|of| of.max).max().unwrap_or(0)
}

/// The times of a run that have a connection or an answer in them.
fn times(run: &Run) -> impl Iterator<Item = &Distribution> {
    let waits = run.acquire_ns.as_ref().map(|waits| &waits.granted);
    let others = [
        &run.times.connect_ns,
        &run.times.response_ns,
        &run.times.service_ns,
        &run.times.batch_ns,
    ];
    let phases = run.phases.iter().map(|phase| &phase.span);
    others.into_iter().flatten().chain(waits).chain(phases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{experiment, judge_in, point};
    use jostle_model::record::Percentiles;

    fn text(workload: Workload, max: u64, p50: u64, tcp: [u64; 3]) -> Option<String> {
        let mut experiment = experiment();
        experiment.plan.workload = workload;
        let [overflows, syn_again, delayed_acks] = tcp;
        let mut run = point();
        run.operations = 1_000;
        run.acquire_ns = None;
        run.times.connect_ns = Some(Distribution {
            max,
            percentiles: Percentiles::from_iter([("p50", p50)]),
            ..Distribution::default()
        });
        run.around.machine.tcp = Some(TcpCounts {
            overflows,
            syn_again,
            delayed_acks,
        });
        judge_in(&CHECK, &experiment, &[run]).map(|reason| reason.text)
    }

    #[test]
    fn a_full_queue_is_reported_where_something_took_as_long_as_its_timer() {
        let of = |max, tcp| text(Workload::Connect, max, 14_000, tcp);
        let found = of(1_045_000_000, [212, 40, 0]).unwrap();
        assert_eq!(
            found,
            "a full accept queue refused 212 connections, and 40 SYNs were sent again, the first of \
             each after 1.0 s or later; the longest time is 1.0 s: give listen() a larger backlog, \
             and raise net.core.somaxconn"
        );
        assert_eq!(of(899_000_000, [212, 40, 0]), None);
        assert_eq!(of(1_045_000_000, [0, 40, 0]), None);
        assert_eq!(of(1_045_000_000, [212, 0, 0]), None);
        // Waits for a lock last as long for other reasons.
        assert_eq!(
            text(Workload::Contend, 1_045_000_000, 14_000, [212, 40, 0]),
            None
        );
    }

    #[test]
    fn requests_unread_or_unsent_are_reported_at_a_server_with_room() {
        fn told(queues: [u64; 4], server_s: Option<f64>, waited_s: f64) -> String {
            let mut experiment = experiment();
            experiment.plan.workload = Workload::Rate;
            let mut run = crate::fixtures::beside(0.0, waited_s);
            run.window.window_s = 2.0;
            run.server = Some(jostle_model::record::Server {
                cpu_s: server_s,
                ..Default::default()
            });
            let [looks, unread, looks_unread, unsent] = queues;
            run.around.machine.tcp_queues = Some(TcpQueues {
                looks,
                connections: 50 * looks,
                unread,
                looks_unread,
                unsent,
            });
            let reason = judge_in(&CHECK, &experiment, &[run]);
            reason.map_or(String::new(), |reason| reason.text)
        }
        let of = |queues, server_s| told(queues, server_s, 0.0);
        let unread = [10, 400, 9, 0];
        assert!(of(unread, Some(1.4)).starts_with("requests lay unread at the server on 40 of 50"),);
        let unsent = of([10, 0, 0, 250], Some(0.2));
        assert!(unsent.starts_with("clients could not send what they had written on 25 of 50"));
        // It may have waited for a CPU.
        assert_eq!(told(unread, Some(0.2), 1.5), "");
        // A busy server, one that is not seen; too few, or not at all looks; too few looks.
        assert_eq!(of(unread, Some(1.5)) + &of(unread, None), "");
        let few = [[10, 99, 10, 249], [10, 400, 8, 0], [9, 400, 9, 450]];
        assert!(
            few.into_iter()
                .all(|queues| of(queues, Some(0.2)).is_empty())
        );
    }

    #[test]
    fn delayed_acknowledgements_are_reported_where_the_median_is_their_time() {
        let of = |p50, acks| text(Workload::Stream, 50_000_000, p50, [0, 0, acks]);
        let found = of(44_000_000, 990).unwrap();
        assert!(
            found.starts_with("acknowledgements were delayed (40 ms each) at 99.0 % of"),
            "{found}"
        );
        assert!(of(44_000_000, 499).is_none());
        assert!(of(51_000_000, 990).is_none() && of(200_000, 990).is_none());
    }
}
