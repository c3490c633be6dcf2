//! Waits of connections beside those for CPUs: ports, timers of TCP, the accept queue, the server's
//! workers, and the server's own server or disk.
//!
//! Each share is one of the connections' time: how many of them waited, by how many there
//! were. A look meets a wait in proportion to its length.

use super::window::{Busy, Window};
use super::{BUSY, HARMED, ROOM, State, words};
use crate::tcp::DELAYED_S;
use jostle_model::judged::{Limit, Peer};

/// Ports under which connections fail.
pub(super) const PORTS: f64 = 64.0;

/// Share of the connections' time that decides.
pub(super) const MOSTLY: f64 = 0.5;

/// The share that decides for connections that a full accept queue refused: each waits for a
/// second, and the rest of their time is the work itself.
pub(super) const REFUSED: f64 = 0.25;

/// Share of the looks in which requests lie unread at a server that does not read. One with
/// room that reads is met with none unread in 0.3 of them.
pub(crate) const UNREAD: f64 = 0.9;

/// Share of the connections on which requests lie unread then.
pub(crate) const OF_CONNECTIONS: f64 = 0.2;

/// Share of the connections that wait whose answers come in turn, in the looks that met so many of
/// them: fewer may be at even distances by chance.
const FEWEST: f64 = 8.0;
const IN_TURN: f64 = 0.9;

/// Connections up to which their number is a limit by itself, where all wait inside a server that
/// has room.
pub(super) const FEW: f64 = 8.0;

/// For a tenth of the looks no port was left.
pub(super) fn for_ports(window: &Window<'_>) -> Option<State> {
    let ports_left = window.looks(&window.watched.traffic.as_ref()?.ports_left);
    let few = ports_left.iter().filter(|left| **left < PORTS).count();
    match few as f64 >= HARMED * ports_left.len() as f64 {
        true => few_ports(window),
        false => None,
    }
}

/// At one look no port was left.
pub(super) fn few_ports(window: &Window<'_>) -> Option<State> {
    let traffic = window.watched.traffic.as_ref()?;
    let ports_left = window.looks(&traffic.ports_left).iter().copied();
    let least = ports_left.fold(f64::INFINITY, f64::min);
    let time_wait = window.looks(&traffic.time_wait).iter().copied();
    let time_wait = time_wait.fold(0.0, f64::max);
    (traffic.ports > 0 && least < PORTS).then(|| {
        State::new(
            Limit::Ports,
            words::ports(traffic.ports, least, time_wait, window.watched),
        )
    })
}

/// Share of the connections' time that something written waited for a delayed acknowledgement
/// before it was sent (Nagle). One may also be late because the answer is, and nothing waits for
/// it then; older records do not tell.
pub(super) fn delayed(window: &Window<'_>) -> Option<f64> {
    let traffic = window.watched.traffic.as_ref()?;
    let delayed = window.share(&window.watched.network.as_ref()?.delayed_acks) * DELAYED_S;
    // Those that still connect have sent nothing.
    let connecting = traffic.connecting.as_ref();
    let open = window.mean(&traffic.connections) - connecting.map_or(0.0, |of| window.mean(of));
    let unsent = traffic.unsent.as_ref().map(|column| window.mean(column));
    (open > 0.0).then(|| delayed.min(unsent.unwrap_or(open)).min(open) / open)
}

/// Share of the connections on which no answer was owed: the generator had not asked yet.
pub(super) fn idle(window: &Window<'_>) -> Option<f64> {
    of_connections(window, window.watched.traffic.as_ref()?.idle.as_ref()?)
}

/// Share of the connections' time that the generator added: answers lay unread, or it had not
/// asked again. Where each request has its connection, that waits before anything arrives.
pub(super) fn late(window: &Window<'_>) -> Option<f64> {
    let traffic = window.watched.traffic.as_ref()?;
    let opened: f64 = traffic.opened.iter().sum();
    let most = traffic.connections.iter().copied().fold(0.0, f64::max);
    let unread = of_connections(window, traffic.generator_unread.as_ref()?)?;
    (opened < 2.0 * most).then_some(unread.max(idle(window)?))
}

/// Whether requests lie unread at the server, and the generator adds next to nothing to the
/// connections' time: the server alone is late.
pub(super) fn only_at_server(window: &Window<'_>) -> bool {
    let traffic = window.watched.traffic.as_ref();
    let unread = traffic.and_then(|traffic| traffic.server_unread.as_ref());
    let unread = unread.and_then(|column| of_connections(window, column));
    unread >= Some(OF_CONNECTIONS) && late(window).is_some_and(|late| late < HARMED)
}

fn of_connections(window: &Window<'_>, column: &[f64]) -> Option<f64> {
    let open = window.mean(&window.watched.traffic.as_ref()?.connections);
    (open > 0.0).then(|| window.mean(column) / open)
}

pub(super) fn for_timer(window: &Window<'_>) -> Option<State> {
    let share = delayed(window).filter(|share| *share >= MOSTLY)?;
    Some(State::new(Limit::Timer, words::delayed(share)))
}

/// Share of the connections that waited for an answer to their first segment, where accept
/// queues refused some.
pub(super) fn refused(window: &Window<'_>) -> Option<f64> {
    let network = window.watched.network.as_ref()?;
    let traffic = window.watched.traffic.as_ref()?;
    let connecting = window.mean(traffic.connecting.as_ref()?);
    let open = window.mean(&traffic.connections);
    (window.sum(&network.overflows) >= 1.0 && open > 0.0).then(|| connecting / open)
}

pub(super) fn for_backlog(window: &Window<'_>) -> Option<State> {
    let share = refused(window).filter(|share| *share >= REFUSED)?;
    Some(State::new(
        Limit::Server,
        words::refused_by_queue(window, share),
    ))
}

/// Connections that wait to be accepted, if these are most of all, or of those that may wait.
pub(super) fn unaccepted(window: &Window<'_>) -> Option<f64> {
    let traffic = window.watched.traffic.as_ref()?;
    let waiting = window.mean(traffic.backlog.as_ref()?);
    let most = traffic.backlog_limit.unwrap_or(0) as f64;
    let most = most.min(window.mean(&traffic.connections));
    (most > 0.0 && waiting >= MOSTLY * most).then_some(waiting)
}

/// The server waits for a server of its own: most of its connections there, as many as it has
/// clients or as its pool has, wait for an answer. A single one of a server with many clients is
/// in the way of all of them only if it carries a part of what these do: another may wait for
/// news.
pub(super) fn downstream(window: &Window<'_>) -> Option<State> {
    let traffic = window.watched.traffic.as_ref()?;
    let clients = window.mean(&traffic.connections);
    let waits = |peer: &&Peer| peer.waiting_share >= Some(MOSTLY);
    let bytes: f64 = traffic.bytes.iter().sum();
    let several = |peer: &&Peer| {
        peer.connections as f64 >= clients.min(2.0) || peer.bytes as f64 >= HARMED * bytes.max(1.0)
    };
    let each = traffic.downstream.iter().filter(waits).filter(several);
    let peer = each.max_by_key(|peer| peer.connections)?;
    let side = window.watched.server.as_ref()?;
    let server = window.busiest(side)?;
    let machine = window.machine_of(side);
    let connections = peer.connections as f64;
    let reason = words::downstream(peer);
    let (limit, reason) = match machine.behind_s.as_ref() {
        // Most of its clients wait until it has a connection there.
        _ if 2.0 * connections > clients => (Limit::Downstream, reason),
        // A single one is usual where each carries several requests at once.
        None if connections < 2.0 => (Limit::Downstream, reason),
        None => (Limit::Undecided, words::shared_out(&reason, clients, None)),
        Some(_) if window.behind(machine) > ROOM => (Limit::Downstream, reason),
        Some(_) => {
            let reason = match unaccepted(window) {
                Some(backlog) => words::unaccepted(backlog, clients, server),
                None => words::shared_out(&reason, clients, Some(window.behind(machine))),
            };
            // More of a few connections carry more.
            match (2.0..=FEW).contains(&connections) {
                true => (Limit::Server, reason),
                false => (Limit::Undecided, reason),
            }
        }
    };
    (clients > 0.0 && server.share() <= ROOM).then(|| State::new(limit, reason))
}

/// Most connections of a server that has room wait for one of its locks.
pub(super) fn for_lock(window: &Window<'_>) -> Option<State> {
    let side = window.watched.server.as_ref()?;
    let open = window.mean(&window.watched.traffic.as_ref()?.connections);
    let is_idle = window.busiest(side)?.share() <= ROOM;
    let waiting = |column: &Option<Vec<f64>>| {
        let waiting = window.mean(column.as_ref()?);
        (is_idle && open > 0.0 && waiting >= MOSTLY * open).then_some(waiting)
    };
    let of_titles = waiting(&side.at_locks).map(|of| words::at_locks(of, side.processes));
    let reason = of_titles.or_else(|| waiting(&side.at_file_locks).map(words::at_file_locks));
    reason.map(|reason| State::new(Limit::Server, reason))
}

/// Connections that wait inside a server.
pub(super) struct Inside {
    /// How many wait, and how many are open.
    pub waiting: f64,
    pub open: f64,
    /// On how many of them requests lie unread: too few for a pool ([`for_pool`]), unless it is 0.
    pub unread: f64,
}

/// Those that wait inside a server, if most do.
pub(super) fn inside(window: &Window<'_>) -> Option<Inside> {
    let traffic = window.watched.traffic.as_ref()?;
    let open = window.mean(&traffic.connections);
    let waiting = window.mean(traffic.waiting.as_ref()?);
    let unread = window.mean(traffic.server_unread.as_ref()?);
    let is_sent = window.mean(traffic.unsent.as_ref()?) < HARMED * open;
    (is_sent && waiting >= MOSTLY * open).then_some(Inside {
        waiting,
        open,
        unread: if unread < HARMED * open { 0.0 } else { unread },
    })
}

/// The server has room, and most connections wait for answers that come one after the other at even
/// distances. With a timer for each request, or on a long way, they come whenever they come.
pub(super) fn for_turn(window: &Window<'_>, generator: Option<Busy<'_>>) -> Option<State> {
    let traffic = window.watched.traffic.as_ref()?;
    let server = window.busiest(window.watched.server.as_ref()?)?;
    let [waiting, in_turn] = [&traffic.waiting, &traffic.in_turn];
    let waiting = window.looks(waiting.as_ref()?);
    let looks = waiting.iter().zip(window.looks(in_turn.as_ref()?));
    let enough: Vec<_> = looks.filter(|(waiting, _)| **waiting >= FEWEST).collect();
    let is_usual = enough.len() as f64 > MOSTLY * waiting.len() as f64;
    let sum = |of: fn(&(&f64, &f64)) -> f64| enough.iter().map(of).sum::<f64>();
    let (waiting, in_turn) = (sum(|look| *look.0), sum(|look| *look.1));
    let mean = waiting / enough.len().max(1) as f64;
    let open = window.mean(&traffic.connections);
    // Answers that are on their way come in turn on a slow line.
    let unsent = of_connections(window, traffic.unsent.as_ref()?)?;
    let is_idle = server.share() <= ROOM && generator?.share() <= ROOM && unsent < HARMED;
    (is_idle && is_usual && in_turn >= IN_TURN * waiting && mean > MOSTLY * open)
        .then(|| State::new(Limit::Server, words::in_turn(mean, server)))
}

/// The server has room, and while answers are owed, one of its threads or more waits for a disk
/// at most looks. Only if what its processes read and wrote, or their faults, show it: state D
/// has other causes.
pub(super) fn for_disk(window: &Window<'_>) -> Option<State> {
    let side = window.watched.server.as_ref()?;
    let on_disk = side.on_disk.as_ref()?;
    let faults = window.sum(side.major_faults.as_deref().unwrap_or_default());
    let looks = window.looks(on_disk);
    let waits = looks.iter().filter(|threads| **threads > 0.0).count() as f64;
    let server = window.busiest(side)?;
    let is_counted = side.disk_bytes > Some(0) || faults >= 1.0;
    let is_owed = idle(window).is_none_or(|idle| idle < MOSTLY);
    let waits_mostly = is_owed && waits > 0.0 && waits >= MOSTLY * looks.len() as f64;
    (waits_mostly && is_counted && server.share() <= ROOM).then(|| {
        let mean = window.mean(on_disk);
        // Each of such waits is one or more of these faults.
        let bytes = side.disk_bytes.filter(|_| faults < waits);
        let share = waits / looks.len() as f64;
        let reason = words::on_disk(mean, share, bytes, faults, server);
        State::new(Limit::Downstream, reason)
    })
}

/// Requests lie unread at a server that has room: what reads them is a limited number of
/// workers, which wait for something else.
pub(super) fn for_pool(
    window: &Window<'_>,
    generator: Option<Busy<'_>>,
    server: Option<Busy<'_>>,
) -> Option<State> {
    let traffic = window.watched.traffic.as_ref()?;
    let column = traffic.server_unread.as_ref()?;
    let unread = window.looks(column);
    let several = unread.iter().filter(|unread| **unread >= 2.0).count();
    let (mean, open) = (window.mean(column), window.mean(&traffic.connections));
    let server = server?;
    let is_idle = server.share() <= ROOM && generator?.share() < BUSY;
    let stands = several as f64 >= UNREAD * unread.len().max(1) as f64;
    (is_idle && stands && mean >= OF_CONNECTIONS * open).then(|| {
        let reason = match unaccepted(window) {
            Some(backlog) => words::unaccepted(backlog, open, server),
            None => words::unread_at_server(mean, open, server),
        };
        State::new(Limit::Server, reason)
    })
}
