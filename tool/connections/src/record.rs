//! From what the keeper read at a number of connections to the record of a run,
//! and from how they were closed to the record of that.

use crate::limits::nearest;
use jostle_harness::merged::histogram;
use jostle_model::connect::{Closing, Connections, Decade, NextLimit, PortRange, Side};
use jostle_model::plan::Workload;
use jostle_model::record::{At, Distribution, Run, Server, Window};
use jostle_stats::fairness;
use jostle_stats::histogram::Histogram;
use jostle_sys::limits::Machine;
use jostle_worker::order::{Closed, Merged, Reached, SideData, SweepOrder};
use std::collections::BTreeMap;

/// Under so many connections the point before says nothing: its first ones pay
/// for cold caches.
const LEAST_BEFORE: u64 = 1_000;

/// Limits that are named.
const NEXT_LIMITS: usize = 3;

/// A sweep's place: its target and its swept values.
#[derive(Clone, Copy, Debug)]
pub struct Curve<'a> {
    /// As typed.
    pub target: &'a str,
    /// All but `open`.
    pub at: At,
    /// Repeat, from 1; the block as well.
    pub run: u32,
    /// The order to the keeper.
    pub order: &'a SweepOrder,
    /// The machine before it began.
    pub machine: &'a Machine,
    /// How many hosts take part; each has limits of its own.
    pub hosts: usize,
}

/// The record, without its verdict. `before` is the point before in this sweep.
pub fn run(curve: &Curve<'_>, data: &Reached, before: Option<&Run>) -> Run {
    let operations = data.opened - data.from;
    let window_s = data.took_ns as f64 / 1e9;
    let mut run = Run {
        target: curve.target.to_owned(),
        workload: Workload::Connect.to_string(),
        at: At {
            open: Some(data.listed),
            ..curve.at
        },
        run: curve.run,
        block: curve.run,
        window: Window {
            window_s,
            ramp_s: data.ramp_ns as f64 / 1e9,
            ..Window::default()
        },
        operations,
        throughput_per_s: if window_s > 0.0 {
            operations as f64 / window_s
        } else {
            0.0
        },
        placement: match curve.order.cpus.as_slice() {
            [] => "none".to_owned(),
            cpus => jostle_model::plan::Place::Cpus(cpus.to_vec()).to_string(),
        },
        around: data.around.clone(),
        ..Run::default()
    };
    cpu(&mut run, data);
    distributions(&mut run, data);
    if data.accepted_by.len() > 1 {
        run.per_worker = fairness::per_worker(&data.accepted_by);
    }
    if let Some(stopped) = &data.stopped {
        run.around.errors.insert(stopped.error.clone(), 1);
    }
    let mut connections = connections(curve, data);
    connections.loss_seen_at = before
        .and_then(|before| before.connections.as_ref()?.loss_seen_at)
        .or_else(|| data.lost.filter(|lost| lost.count > 0).map(|_| data.opened));
    connections.to_previous = before
        .filter(|before| before.operations >= LEAST_BEFORE)
        .and_then(|before| Some(median(&run)? / median(before)?))
        // If the clock's steps are longer than most calls, the quotient is infinite.
        .filter(|times| times.is_finite());
    run.connections = Some(Box::new(connections));
    run
}

/// Median time of connect(), or of bind() where that is all.
pub fn median(run: &Run) -> Option<f64> {
    let measured = run
        .times
        .connect_ns
        .as_ref()
        .or(run.times.bind_ns.as_ref())?;
    measured.percentiles.get("p50").map(|ns| *ns as f64)
}

fn cpu(run: &mut Run, data: &Reached) {
    let cpu_s = data.client.cpu_ns as f64 / 1e9;
    let each = |cpu_s: f64| (run.operations > 0).then(|| cpu_s * 1e6 / run.operations as f64);
    let server_s = data.server.map(|server| server.cpu_ns as f64 / 1e9);
    let server = server_s.map(|cpu_s| Server {
        counted: data.accepted,
        difference: data
            .accepted
            .map(|accepted| accepted as i64 - data.opened as i64),
        cpu_s: Some(cpu_s),
        cpu_us_per_operation: each(cpu_s),
        ..Server::default()
    });
    run.cpu.cpu_us_per_operation = each(cpu_s);
    run.server = server;
    run.cpu.cpu_s = Some(cpu_s);
    if let Some([user, system]) = data.client.usage.split(cpu_s) {
        run.cpu.cpu_user_s = Some(user);
        run.cpu.cpu_system_s = Some(system);
        run.cpu.cpu_split = Some("sampled".to_owned());
    }
}

fn distributions(run: &mut Run, data: &Reached) {
    let of = |name: &str| data.figures.get(name).map(histogram);
    let whole = |histogram: &Option<Histogram>| histogram.as_ref()?.distribution(&[]);
    let (even, odd) = (of("connect_even_ns"), of("connect_odd_ns"));
    let mut all = even.clone().or_else(|| odd.clone());
    if let (Some(all), Some(_), Some(odd)) = (&mut all, &even, &odd) {
        all.merge(odd);
    }
    run.times.connect_ns = whole(&all);
    // Ports of families that have none are neither.
    if odd.is_some() {
        run.times.connect_even_ns = whole(&even);
        run.times.connect_odd_ns = whole(&odd);
    }
    run.times.connect_last_ns = whole(&of("connect_last_ns"));
    run.times.bind_ns = whole(&of("bind_ns"));
    run.times.response_ns = whole(&of("response_ns"));
    run.times.accept_ns = whole(&of("accept_ns"));
    run.histograms = buckets(&data.figures);
}

fn buckets(figures: &BTreeMap<String, Merged>) -> BTreeMap<String, jostle_model::record::Buckets> {
    let each = figures.iter();
    each.map(|(name, merged)| (name.clone(), merged.buckets.clone()))
        .collect()
}

fn connections(curve: &Curve<'_>, data: &Reached) -> Connections {
    let each =
        |bytes: i64| (data.opened >= LEAST_BEFORE).then(|| bytes as f64 / data.opened as f64);
    let count = |name: &str| {
        let merged = data.figures.get(name);
        merged.map_or(0, |m| m.buckets.0.iter().map(|(_, n)| n).sum::<u64>())
    };
    let parities = [count("connect_even_ns"), count("connect_odd_ns")];
    let load = &curve.order.load;
    let ports = curve
        .order
        .port_range
        .or(curve.machine.net.ports.map(PortRange::from));
    Connections {
        from: data.from,
        opened: data.opened,
        total_s: data.total_ns as f64 / 1e9,
        to_previous: None,
        client: side(&data.client, data.opened),
        server: data.server.as_ref().map(|s| side(s, data.opened)),
        accepted: data.accepted_by.clone(),
        parities: (load.has_ports && curve.order.only.is_none()).then_some(parities),
        port_range: ports.filter(|_| load.has_ports),
        pairs: load.pairs() * curve.hosts.max(1) as u64,
        // A decrease was caused by other programs, and is left out.
        slab_bytes_each: each(data.slab_bytes).filter(|bytes| *bytes > 0.0),
        slab_caches: data
            .caches
            .iter()
            .map(|(name, bytes)| (name.clone(), *bytes as f64 / data.opened.max(1) as f64))
            .collect(),
        memory_bytes_each: each(data.memory_bytes),
        sockstat: data.sockstat.clone(),
        time_wait_left: None,
        lag_ns: data.lag_ns,
        next_limits: next_limits(curve, data),
        lost: data.lost.map(|lost| lost.count),
        first_lost: data.lost.and_then(|lost| lost.first),
        loss_seen_at: None,
        stopped: data.stopped.clone(),
        decades: data
            .decades
            .iter()
            .map(|(name, [connect, accept])| (name.clone(), of_decade(*connect, *accept)))
            .collect(),
    }
}

fn of_decade(connect_ns_p50: Option<u64>, accept_ns_p50: Option<u64>) -> Decade {
    Decade {
        connect_ns_p50,
        accept_ns_p50,
        close_ns_p50: None,
    }
}

fn side(side: &SideData, opened: u64) -> Side {
    let cpu_s = side.cpu_ns as f64 / 1e9;
    let parts = side.usage.split(cpu_s);
    Side {
        processes: side.processes,
        cpu_s,
        cpu_user_s: parts.map(|[user, _]| user),
        cpu_system_s: parts.map(|[_, system]| system),
        own_bytes_each: side
            .own_bytes
            .map(|bytes| bytes as f64 / opened.max(1) as f64),
    }
}

/// The limits beyond the connections that are open, by what one connection took here.
fn next_limits(curve: &Curve<'_>, data: &Reached) -> Vec<NextLimit> {
    if curve.hosts > 1 {
        return Vec::new();
    }
    let mut load = curve.order.load;
    if data.opened >= LEAST_BEFORE && data.memory_bytes > 0 {
        // Not below what sockets are known to take: others may have freed some.
        let measured = data.memory_bytes as u64 / data.opened;
        load.bytes_each = load.bytes_each.max(measured);
    }
    let mut next = nearest(&load, curve.machine);
    next.retain(|limit| limit.at > data.opened);
    next.truncate(NEXT_LIMITS);
    next
}

/// One for each point that was reached.
pub fn closings(curve: &Curve<'_>, closed: &Closed) -> Vec<Closing> {
    let last = closed.figures.len().saturating_sub(1);
    let each = closed.figures.iter().enumerate();
    each.map(|(nth, (open, figures))| {
        let of = |name: &str| -> Option<Distribution> {
            histogram(figures.get(name)?).distribution(&[])
        };
        Closing {
            target: curve.target.to_owned(),
            at: At {
                open: Some(*open),
                ..curve.at
            },
            run: curve.run,
            close_ns: of("close_ns"),
            server_close_ns: of("server_close_ns"),
            time_wait_left: closed.time_wait_left.filter(|_| nth == last),
            anchor: closed.anchor,
            decades: match nth == last {
                true => decades(closed),
                false => BTreeMap::new(),
            },
            histograms: buckets(figures),
        }
    })
    .collect()
}

fn decades(closed: &Closed) -> BTreeMap<String, Decade> {
    let each = closed.decades.iter();
    each.map(|(name, p50)| {
        let decade = Decade {
            close_ns_p50: Some(*p50),
            ..Decade::default()
        };
        (name.clone(), decade)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::List;
    use jostle_model::plan::Plan;
    use jostle_targets::Spec;
    use jostle_worker::order::Lost;

    #[test]
    fn a_loss_is_recorded_with_the_number_at_which_it_was_first_seen() {
        let mut plan = Plan::of(Workload::Connect);
        plan.fill_from(jostle_model::defaults::options(Workload::Connect));
        plan.open = Some(List(vec![100, 500, 900]));
        plan.seed = Some(7);
        let spec = Spec::parse("tcp://server:80").unwrap();
        let order = crate::sweep_order(&plan, &spec, At::default(), 0);
        let curve = Curve {
            target: "tcp://server:80",
            at: At::default(),
            run: 1,
            order: &order,
            machine: &Machine::read(),
            hosts: 1,
        };
        let mut before: Option<Run> = None;
        for (opened, lost, seen_at) in [(100, 0, None), (500, 30, Some(500)), (900, 50, Some(500))]
        {
            let data = Reached {
                listed: opened,
                opened,
                lost: Some(Lost {
                    count: lost,
                    first: Some(101).filter(|_| lost > 0),
                }),
                ..Reached::default()
            };
            let run = super::run(&curve, &data, before.as_ref());
            let connections = run.connections.as_ref().unwrap();
            assert_eq!(connections.lost, Some(lost));
            assert_eq!(connections.first_lost.is_some(), lost > 0);
            assert_eq!(connections.loss_seen_at, seen_at);
            before = Some(run);
        }
    }

    #[test]
    fn a_server_that_accepted_fewer_than_were_opened_is_found_out() {
        for (accepted, difference) in [(10, 0), (9, -1), (12, 2)] {
            let data = Reached {
                opened: 10,
                accepted: Some(accepted),
                server: Some(SideData::default()),
                ..Reached::default()
            };
            let mut run = Run::default();
            cpu(&mut run, &data);
            let server = run.server.unwrap();
            assert_eq!(server.counted, Some(accepted));
            assert_eq!(server.difference, Some(difference));
        }
    }
}
