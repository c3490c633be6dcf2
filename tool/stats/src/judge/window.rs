//! The part of a watched run in which traffic flowed, and shares of its time.

use super::BUSY;
use super::waits::PORTS;
use crate::intervals::median;
use jostle_model::judged::{Machine, ServerHost, Side, StartedBy, Thread, Watched};
use std::cmp::Ordering;
use std::ops::Range;

/// An interval with less than this share of the median traffic is start-up or
/// shutdown, where it lies at an end.
const ACTIVE: f64 = 0.1;

/// With fewer intervals the first and the last, which hold the start and the end of the
/// traffic, are kept.
const FEW: usize = 6;

/// A thread that works for less of its time shares no throttling with the others.
const WORKS: f64 = 0.1;

/// From the first interval with traffic to the last one in which the command still had
/// connections, or tried to connect: a server that stands still at the end is a part of the
/// run, and a generator that writes its report is not.
///
/// Of a server on a second machine, as far as it was watched there.
pub(super) fn range(watched: &Watched) -> Range<usize> {
    let range = of_traffic(watched);
    let host = watched.server_host.as_ref();
    let Some([from, to]) = host.and_then(|host| host.seen) else {
        return range;
    };
    let start = range.start.max(from as usize);
    start..range.end.min(to as usize).max(start)
}

fn of_traffic(watched: &Watched) -> Range<usize> {
    let activity = activity(watched);
    let positive = activity.iter();
    let positive: Vec<f64> = positive.copied().filter(|rate| *rate > 0.0).collect();
    let Some(usual) = median(&positive) else {
        return 0..0;
    };
    let is_active = |rate: &f64| *rate > 0.0 && *rate >= ACTIVE * usual;
    let Some(first) = activity.iter().position(is_active) else {
        return 0..0;
    };
    let last = activity.iter().rposition(is_active).unwrap_or(first);
    let on = last_on(watched).max(last);
    match on - first + 1 {
        few if few < FEW => first..on + 1,
        _ if on > last || has_end(watched, on) => first + 1..on + 1,
        _ => first + 1..last,
    }
}

/// Whether the command ended with this interval. Older records have none for its end.
fn has_end(watched: &Watched, interval: usize) -> bool {
    watched.network.is_some() && interval + 1 == watched.span_s.len()
}

/// The last interval at whose end connections were open, or in which attempts failed: none is
/// counted where no port is left. The interval in which the command ended closes them.
fn last_on(watched: &Watched) -> usize {
    let of = |column: Option<&Vec<f64>>| {
        let column = column.map(Vec::as_slice).unwrap_or_default();
        column.iter().rposition(|value| *value > 0.0)
    };
    let open = of(watched.traffic.as_ref().map(|traffic| &traffic.connections));
    let open = open.map(|open| match has_end(watched, open + 1) {
        true => open + 1,
        false => open,
    });
    let failed = of(watched.network.as_ref().map(|network| &network.failed));
    let left = watched.traffic.as_ref().filter(|traffic| traffic.ports > 0);
    let left = left.map_or(&[][..], |traffic| &traffic.ports_left);
    let used_up = left.iter().rposition(|left| *left < PORTS);
    open.max(failed).max(used_up).unwrap_or(0)
}

/// Traffic for each second of an interval: bytes, connections opened where none lived
/// long enough to be seen, or the generator's CPU time where there are no sockets.
fn activity(watched: &Watched) -> Vec<f64> {
    let traffic = watched.traffic.as_ref();
    let columns = [
        traffic.map(|traffic| &traffic.bytes),
        traffic.map(|traffic| &traffic.opened),
        Some(&watched.generator.cpu_s),
    ];
    let mut columns = columns.into_iter().flatten();
    let told = columns.find(|column| column.iter().any(|value| *value > 0.0));
    let spans = watched.span_s.iter();
    let rates = told.into_iter().flatten().zip(spans);
    rates
        .map(|(value, span)| value / span.max(f64::MIN_POSITIVE))
        .collect()
}

/// A part of the run.
#[derive(Clone)]
pub(super) struct Window<'a> {
    pub watched: &'a Watched,
    pub range: Range<usize>,
    /// Its length.
    pub wall_s: f64,
}

impl<'a> Window<'a> {
    pub(super) fn new(watched: &'a Watched, range: Range<usize>) -> Window<'a> {
        let range = range.start.min(watched.span_s.len())..range.end.min(watched.span_s.len());
        let wall_s = sum(&watched.span_s, &range);
        Window {
            watched,
            range,
            wall_s,
        }
    }

    /// That of the whole run, from the start of the command to its end.
    pub(super) fn whole(&self) -> Window<'a> {
        Window::new(self.watched, 0..self.watched.span_s.len())
    }

    /// Sum of a column over it.
    pub(super) fn sum(&self, column: &[f64]) -> f64 {
        sum(column, &self.range)
    }

    /// Its share of a column that is time.
    pub(super) fn share(&self, column: &[f64]) -> f64 {
        self.sum(column) / self.wall_s.max(f64::MIN_POSITIVE)
    }

    /// The values of a column at its looks.
    pub(super) fn looks<'b>(&self, column: &'b [f64]) -> &'b [f64] {
        let end = self.range.end.min(column.len());
        let column = column.get(self.range.start.min(end)..end);
        column.unwrap_or_default()
    }

    /// The mean of a column that is a number of connections, over its time.
    pub(super) fn mean(&self, column: &[f64]) -> f64 {
        let each = self.looks(column).iter();
        let each = each.zip(self.looks(&self.watched.span_s));
        let sum: f64 = each.map(|(value, span)| value * span).sum();
        sum / self.wall_s.max(f64::MIN_POSITIVE)
    }

    /// The share of the time for which all the server's processes had ended. One that the command
    /// has started may end before it, or be started anew: it is missed where attempts to connect fail
    /// at the end.
    pub(super) fn gone(&self) -> f64 {
        let Some(server) = &self.watched.server else {
            return 0.0;
        };
        let mut gone_s = server.gone_s.clone().unwrap_or_default();
        if let (Some(StartedBy::Command), Some(network)) =
            (server.started_by, &self.watched.network)
        {
            let there = gone_s.iter().rposition(|gone_s| *gone_s <= 0.0);
            let each = gone_s.iter_mut().zip(&network.failed).enumerate();
            let not_missed = each.filter(|(at, (_, failed))| Some(*at) < there || **failed <= 0.0);
            not_missed.for_each(|(_, (gone_s, _))| *gone_s = 0.0);
        }
        self.share(&gone_s)
    }

    /// Whether its connections, if they can be seen, carried nothing and none was opened.
    pub(super) fn is_silent(&self) -> bool {
        let traffic = self.watched.traffic.as_ref();
        traffic.is_some_and(|of| self.sum(&of.bytes) + self.sum(&of.opened) <= 0.0)
    }

    /// When it begins, since the start of the command.
    pub(super) fn start_s(&self) -> f64 {
        let first = self.range.start;
        let span = self.watched.span_s.get(first).copied().unwrap_or(0.0);
        self.watched.end_s.get(first).map_or(0.0, |end| end - span)
    }

    /// When it ends.
    pub(super) fn stop_s(&self) -> f64 {
        let last = self.range.end.checked_sub(1);
        let all = last.and_then(|last| self.watched.end_s.get(last));
        all.copied().unwrap_or(0.0)
    }

    /// CPU time and time in the run queue of the busiest thread, as shares. One that spins while it
    /// has no work counts only where there is no other.
    pub(super) fn busiest(&self, side: &'a Side) -> Option<Busy<'a>> {
        let each = side.busiest.iter().map(|thread| self.busy(thread));
        each.max_by(|a, b| {
            let order = |busy: &Busy<'_>| (!busy.spins(), busy.share());
            order(a).partial_cmp(&order(b)).unwrap_or(Ordering::Equal)
        })
    }

    /// A thread that spins while it has no work, if one ran for most of the time.
    pub(super) fn spinning(&self, side: &'a Side) -> Option<Busy<'a>> {
        let mut each = side.busiest.iter().map(|thread| self.busy(thread));
        each.find(|busy| busy.spins() && busy.share() >= BUSY)
    }

    fn busy(&self, thread: &'a Thread) -> Busy<'a> {
        Busy {
            thread,
            cpu: self.share(&thread.cpu_s),
            queued: self.share(&thread.queued_s),
        }
    }

    /// The share of the time for which a quota kept a side from running. The kernel sums
    /// throttled time over CPUs, so that several working threads count several times at
    /// once.
    pub(super) fn throttled(&self, side: &Side) -> f64 {
        let Some(throttled_s) = &side.throttled_s else {
            return 0.0;
        };
        let each = side.busiest.iter().map(|thread| self.busy(thread));
        let working = each.filter(|busy| busy.share() >= WORKS).count() as u64;
        let at_once = working.clamp(1, self.machine_of(side).cpus.max(1));
        (self.share(throttled_s) / at_once as f64).min(1.0)
    }

    /// The server's machine, if it is another one and was watched.
    pub(super) fn far(&self) -> Option<(&'a ServerHost, &'a Machine)> {
        let host = self.watched.server_host.as_ref()?;
        Some((host, host.machine.as_ref()?))
    }

    /// The machine of a side of this record.
    pub(super) fn machine_of(&self, side: &Side) -> &'a Machine {
        let server = self.watched.server.as_ref();
        let is_server = server.is_some_and(|server| std::ptr::eq(server, side));
        let far = self.far().filter(|_| is_server);
        far.map_or(&self.watched.machine, |(_, machine)| machine)
    }

    /// Both machines, with the name of the server's.
    pub(super) fn machines(&self) -> impl Iterator<Item = (&'a Machine, Option<&'a str>)> {
        let far = self.far().map(|(host, far)| (far, Some(&*host.host)));
        std::iter::once((&self.watched.machine, None)).chain(far)
    }

    /// CPUs' worth of time of other programs; None where they cannot be seen.
    pub(super) fn others(&self, machine: &Machine) -> Option<f64> {
        let others_s = machine.others_s.as_ref();
        others_s.map(|others_s| self.share(others_s))
    }

    /// CPUs' worth of time of what stands behind the server.
    pub(super) fn behind(&self, machine: &Machine) -> f64 {
        let behind_s = machine.behind_s.as_deref();
        behind_s.map_or(0.0, |behind_s| self.share(behind_s))
    }

    /// Share of all CPUs that the hypervisor took.
    pub(super) fn stolen(&self, machine: &Machine) -> f64 {
        self.share(&machine.stolen_s) / machine.cpus.max(1) as f64
    }

    /// In parts of a second or more, at most sixty, each a window.
    pub(super) fn parts(&self) -> Vec<Window<'a>> {
        const PARTS: f64 = 60.0;
        let length_s = (self.wall_s / PARTS).max(1.0);
        let mut parts = Vec::new();
        let mut first = self.range.start;
        for at in self.range.clone() {
            let part = Window::new(self.watched, first..at + 1);
            if part.wall_s >= length_s {
                parts.push(part);
                first = at + 1;
            }
        }
        parts
    }
}

/// How busy a thread is.
#[derive(Clone, Copy)]
pub(super) struct Busy<'a> {
    pub thread: &'a Thread,
    /// Share of the time on a CPU.
    pub cpu: f64,
    /// Share of the time runnable and not running.
    pub queued: f64,
}

/// How the names of threads begin that spin while they have no work: those of Redis and Valkey which
/// read and write (io-threads).
const SPINS: [&str; 1] = ["io_thd_"];

impl Busy<'_> {
    fn spins(&self) -> bool {
        SPINS.iter().any(|name| self.thread.name.starts_with(name))
    }

    /// The clocks step by a tick, so that the sum may be a little above 1.
    pub(super) fn share(&self) -> f64 {
        (self.cpu + self.queued).min(1.0)
    }
}

fn sum(column: &[f64], range: &Range<usize>) -> f64 {
    let end = range.end.min(column.len());
    let column = column.get(range.start.min(end)..end);
    column.unwrap_or_default().iter().sum()
}
