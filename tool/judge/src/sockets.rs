//! The TCP connections between the command and its server: the server's address, found by
//! what the command's own sockets are connected to, then queues and what was carried in each
//! interval. Each side's sockets are looked at in the network namespace that they are in.

mod finding;

use super::ours::Ours;
use super::peers::Peers;
use super::ports::Ports;
use super::remote::{Ends, Told};
use super::turns::{Owed, in_turn};
use super::views::{self, Own, View, inodes};
use jostle_model::judged::{Hop, Network, Traffic};
use jostle_sys::clock;
use jostle_sys::limits;
use jostle_sys::limits::net::{self, Counted};
use jostle_sys::namespaces::network_of;
use jostle_sys::other_end::{self, Unseen};
use jostle_sys::serving::{self, Address};
use jostle_sys::sock_diag::{Carried, ESTABLISHED, LISTEN, SYN_SENT, Tcp, Wanted};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// Sockets that are asked for all at once, where there are no more: each question walks the
/// kernel's whole table, sockets in TIME_WAIT included.
const FEW: usize = 1_000;

/// Up to this number of connections, each is queried by its addresses as long as no other
/// is opened. That takes some microseconds each; a walk takes milliseconds where sockets
/// are in TIME_WAIT.
const KNOWN: usize = 256;

/// Ports that are left by the estimate, under which those in TIME_WAIT are counted one by one.
const FEW_PORTS: u64 = 1_000;

/// Where there are more sockets, new connections elsewhere are counted once in so many looks.
const SELDOM: usize = 8;

/// Namespaces of the command that are looked at.
const VIEWS: usize = 8;

/// The server that is judged has carried less than another one by this factor and so many bytes
/// when that one is judged instead. How often that may be.
const FACTOR: u64 = 2;
const MORE_BYTES: u64 = 64 << 10;
const MOVES: usize = 3;

/// All sockets, with what they have carried.
const ALL: Wanted = Wanted {
    own_port: 0,
    other_port: 0,
    listeners: true,
    carried: true,
    time_wait: false,
};

/// Where the server was found now.
#[derive(Debug)]
pub(super) enum Server {
    /// At this port of jostle's own namespace.
    Here(u16),
    /// These processes, behind those.
    There { pids: Vec<u32>, hops: Vec<u32> },
    /// Not at all.
    Unseen(Unseen),
}

/// The server's sockets, where they are not those at the address that the command asks.
#[derive(Debug)]
struct Far {
    view: View,
    at: SocketAddr,
}

/// The connections between both sides.
#[derive(Debug)]
pub(super) struct Sockets {
    /// The namespace of the judged connections.
    home: View,
    /// Others in which processes of the command live.
    views: Vec<View>,
    far: Option<Far>,
    /// The port by which the user named the server, where nobody listens there here.
    named: Option<u16>,
    /// Whether the user named its port at all.
    is_told: bool,
    /// The server's port, and whether its sockets are there in the same namespace.
    port: Option<(u16, bool)>,
    /// Its address, where other servers have the same port.
    address: Option<IpAddr>,
    ports: Ports,
    ours: Ours,
    /// By cookie, what each connection had carried at the latest look.
    carried: HashMap<u64, Carried>,
    network: Network,
    /// Clients' sockets as of the latest look at all sockets.
    clients: HashSet<u64>,
    /// The share of the new connections that led to the server, as of the latest look that met any.
    share: f64,
    /// New connections to the server and elsewhere, if this look was at all sockets.
    newly: Option<[usize; 2]>,
    /// The peers of the command, of the server, and of what stands behind it, beside each other.
    peers: [Peers; 3],
    moves: usize,
    /// The command's connections whose other ends were in the same list, by cookie.
    accepted: HashSet<u64>,
    /// Whether the server's ends of the command's connections are where they were looked for; None
    /// before any was met.
    ends_there: Option<bool>,
    /// Whether this namespace has few sockets, as of the latest look at all of them.
    are_few: bool,
    /// Sockets of both sides, as long as these are all.
    known: Option<[Vec<Tcp>; 2]>,
    columns: Traffic,
    intervals: usize,
    /// A tick of the kernel's clock.
    tick_ms: f64,
    /// The answers owed to the judged server's clients.
    owed: Owed,
    /// Whose clients are judged, where the client is on another machine.
    told: Option<Told>,
    /// What connections had carried at each look, if their server's machine is watched.
    pub ends: Ends,
    /// Whether that machine is watched.
    pub is_watched_there: bool,
}

impl Sockets {
    /// None where the kernel does not tell of sockets. `port`: the server's, if it is
    /// known. `told`: which of its clients, if these are on another machine.
    pub(super) fn open(port: Option<u16>, told: Option<Told>) -> Option<Sockets> {
        let mut home = View::of(std::process::id()).ok()?;
        let is_here = |port: &u16| serving::is_served(&Address::Port(*port));
        let all = home.sockets(ALL);
        let mut ours = Ours::default();
        // What connections carried before belongs to no interval, and none is the command's.
        ours.begin(&all);
        Some(Sockets {
            told,
            ends: Ends::default(),
            is_watched_there: false,
            home,
            views: Vec::new(),
            far: None,
            named: port.filter(|port| !is_here(port)),
            is_told: port.is_some(),
            port: port.filter(is_here).map(|port| (port, true)),
            ports: Ports::read(),
            ours,
            carried: HashMap::new(),
            address: None,
            network: Network {
                syn_again_after_s: net::syn_again_after_s(),
                ..Network::default()
            },
            clients: all.iter().map(|socket| socket.cookie).collect(),
            share: 1.0,
            newly: None,
            peers: Default::default(),
            moves: 0,
            accepted: HashSet::new(),
            ends_there: None,
            are_few: all.len() < FEW,
            known: None,
            columns: Traffic::default(),
            intervals: 0,
            tick_ms: limits::tick_ns() as f64 / 1e6,
            owed: Owed::default(),
        })
    }

    /// Whether the server was seen to be connected to servers of its own.
    pub(super) fn has_downstream(&self) -> bool {
        !self.peers[1].is_empty()
    }

    /// The address of a server elsewhere, and those of clients that are connected to it.
    pub(super) fn elsewhere(&mut self) -> Option<(SocketAddr, Vec<SocketAddr>)> {
        /// They tell which clients are meant, and whether addresses are the same there.
        const NAMED: usize = 16;
        let (port, _) = self.port.filter(|(_, local)| !local)?;
        let [clients, _] = self.each(port, false);
        let open = clients.iter().filter(|socket| socket.carried.is_some());
        let ends: Vec<[SocketAddr; 2]> = open.map(Tcp::addresses).collect();
        let to = self.address.map(|ip| SocketAddr::new(ip, port));
        let to = to.or_else(|| ends.first().map(|[_, to]| *to))?;
        let own = ends.into_iter().filter(|[_, other]| *other == to);
        let own: Vec<SocketAddr> = own.map(|[own, _]| own).take(NAMED).collect();
        (!own.is_empty()).then_some((to, own))
    }

    /// The server is on another machine, whoever listens at its port here.
    pub(super) fn look_elsewhere(&mut self) {
        self.port = self.port.map(|(port, _)| (port, false));
    }

    /// Whether the server's address is known.
    pub(super) fn is_found(&self) -> bool {
        self.port.is_some()
    }

    /// The server's port, once it is known.
    pub(super) fn port(&self) -> Option<u16> {
        self.port.map(|(port, _)| port)
    }

    /// The sockets at that port are not those of the server that is watched.
    pub(super) fn disown(&mut self) {
        self.port = self.port.map(|(port, _)| (port, false));
    }

    /// Notes clients' sockets, and returns how many are new since the latest look at all of them:
    /// those that lead to the server, and all others.
    fn note_new(&mut self, all: &[Tcp], port: u16) -> [usize; 2] {
        let serves = listening(all.iter());
        let clients = all.iter().filter(|socket| {
            let is_end = serves.contains(&socket.own_port) || socket.state == LISTEN;
            !is_end && socket.own_port != port
        });
        let mut newly = [0; 2];
        let mut met = HashSet::new();
        for socket in clients {
            if !self.clients.contains(&socket.cookie) {
                newly[usize::from(socket.other_port != port)] += 1;
            }
            met.insert(socket.cookie);
        }
        self.clients = met;
        newly
    }

    /// Notes what these processes are connected to: the server (1), whose connections wait for
    /// answers, or what stands behind it (2). Returns a connection to each address that was not
    /// known to be among them, and whether that is one of the same namespace.
    pub(super) fn look_beside(&mut self, pids: &[u32], which: usize) -> Vec<(Tcp, bool)> {
        let inodes = inodes(pids);
        let judged = self.port.filter(|_| self.far.is_none());
        let address = self.address;
        let is_judged = |to: SocketAddr| {
            judged.is_some_and(|(port, _)| port == to.port())
                && address.is_none_or(|address| address == to.ip())
        };
        let view = self
            .far
            .as_mut()
            .map_or(&mut self.home, |far| &mut far.view);
        let all = view.sockets(ALL);
        let serves = listening(all.iter());
        let here: HashSet<SocketAddr> = all.iter().map(|socket| socket.addresses()[0]).collect();
        let own = all.iter().filter(|socket| {
            let is_own = inodes.contains(&u64::from(socket.inode));
            is_own && !serves.contains(&socket.own_port) && !is_judged(socket.addresses()[1])
        });
        self.peers[which].look(view.network.id, own, &here)
    }

    /// The namespace of the server's sockets, and whether it is jostle's own.
    pub(super) fn of_server(&self) -> (u64, bool) {
        let view = self.far.as_ref().map_or(&self.home, |far| &far.view);
        (view.network.id, view.is_own())
    }

    /// Whether a process of others, by these, lives where something is counted; None where that
    /// cannot be seen.
    pub(super) fn is_shared(&self, is_other: impl Fn(u32) -> bool) -> Option<bool> {
        let far = self.far.as_ref().map(|far| far.view.network.id);
        let lives = |pid: &u32| {
            let id = network_of(*pid);
            id == Some(self.home.network.id) || (far.is_some() && id == far)
        };
        let mut pids = jostle_sys::census::processes().into_iter();
        let found = pids.any(|pid| is_other(pid) && lives(&pid));
        (found || jostle_sys::census::is_complete()).then_some(found)
    }

    /// At the end of an interval. `around`: after a look at all processes.
    pub(super) fn look(&mut self, own: &Own<'_>, around: bool) {
        if around {
            self.ours.look_around();
        }
        let before_ns = clock::monotonic();
        // Read before the sockets: what is opened in between counts at the next look.
        let counted = self.home.count();
        let at_server = self.far.as_mut().map(|far| far.view.count());
        let at_server = at_server.filter(|_| self.of_server().0 != self.home.network.id);
        views::push(&mut self.network, counted, at_server.unwrap_or_default());
        let opened = counted.opened;
        let (clients, servers) = self.both(opened == 0, own);
        let read_ns = [before_ns, clock::monotonic()];
        if let Some(told) = &self.told {
            let accepted = Counted::read().map_or(0, |counted| counted.accepted);
            let accepted = accepted.saturating_sub(told.accepted);
            self.ends.look(read_ns, &servers, 1, accepted);
        } else if self.is_watched_there && self.port.is_some_and(|(_, local)| !local) {
            let opened = self.network.opened.iter().sum::<f64>();
            self.ends.look(read_ns, &clients, 0, opened as u64);
        }
        let is_new = |socket: &&Tcp| !self.carried.contains_key(&socket.cookie);
        let new_here = clients.iter().filter(is_new).count();
        if new_here == 0 && !clients.is_empty() {
            // Those that are here are kept.
            self.share = 0.0;
        } else if let Some([here, elsewhere]) = self.newly.take()
            && opened > 0
            && here + elsewhere > 0
        {
            self.share = here as f64 / (here + elsewhere) as f64;
        }
        let newly = (opened as f64 * self.share).round();
        self.look_at_traffic(&clients, &servers);
        let time_wait = self.home.time_wait();
        if let Some(client) = clients.first() {
            self.ports.is_loopback = client.is_loopback();
        }
        let mut taken = self.ports.taken(time_wait, opened, Instant::now());
        if self.ports.all.saturating_sub(taken) < FEW_PORTS {
            // Most may be the server's ends: these take no port.
            taken = self.ports_in_time_wait().unwrap_or(taken);
        }
        let used = taken + clients.len() as u64;
        self.look_at_clients(&clients, &servers);
        let columns = &mut self.columns;
        columns.opened.push(newly);
        columns.time_wait.push(time_wait as f64);
        columns
            .ports_left
            .push(self.ports.all.saturating_sub(used) as f64);
        let unread = |sockets: &[Tcp]| -> f64 {
            let open = sockets.iter().filter(|socket| socket.state != LISTEN);
            open.map(|socket| u64::from(socket.unread)).sum::<u64>() as f64
        };
        columns.generator_unread_bytes.push(unread(&clients));
        self.look_at_server(&servers, unread(&servers));
        self.intervals += 1;
    }

    /// The waits of the clients' connections.
    fn look_at_clients(&mut self, clients: &[Tcp], servers: &[Tcp]) {
        let mut ages_ms = Vec::new();
        let mut idle = 0;
        for carried in clients.iter().filter_map(|client| client.carried) {
            match self.owed.awaits(carried) {
                Some(true) => ages_ms.push(carried.idle_ms[1]),
                Some(false) => idle += 1,
                None => {}
            }
        }
        let clients_that = |is: fn(&Tcp) -> bool| clients.iter().filter(|one| is(one)).count();
        let has_unsent = |socket: &&Tcp| socket.carried.is_some_and(|now| now.unsent > 0);
        let unsent = clients.iter().chain(servers).filter(has_unsent).count();
        let columns = &mut self.columns;
        columns.connections.push(clients.len() as f64);
        for (column, count) in [
            (
                &mut columns.connecting,
                clients_that(|one| one.state == SYN_SENT),
            ),
            (
                &mut columns.generator_unread,
                clients_that(|one| one.unread > 0),
            ),
            (&mut columns.unsent, unsent),
            (&mut columns.idle, idle),
            (&mut columns.waiting, ages_ms.len()),
            (&mut columns.in_turn, in_turn(&mut ages_ms, self.tick_ms)),
        ] {
            column.get_or_insert_default().push(count as f64);
        }
    }

    /// The traffic of their connections since the look before.
    fn look_at_traffic(&mut self, clients: &[Tcp], servers: &[Tcp]) {
        let mut carried = HashMap::with_capacity(clients.len());
        let (mut bytes, mut segments, mut again) = (0, 0, 0);
        for socket in clients.iter().chain(servers) {
            let Some(now) = socket.carried else { continue };
            let before = self.carried.get(&socket.cookie);
            let before = before.copied().unwrap_or_default();
            carried.insert(socket.cookie, now);
            again += now.retransmitted.saturating_sub(before.retransmitted);
            // Both ends of one connection carry the same.
            if self.port.is_some_and(|(port, _)| port == socket.other_port) {
                bytes += now.sent_bytes.saturating_sub(before.sent_bytes)
                    + now.received_bytes.saturating_sub(before.received_bytes);
                segments += now.segments.saturating_sub(before.segments);
            }
        }
        self.carried = carried;
        let columns = &mut self.columns;
        columns.bytes.push(bytes as f64);
        columns.segments.push(segments as f64);
        columns.retransmitted.push(again as f64);
    }

    /// Ports of clients in TIME_WAIT to the server that are not given again yet.
    fn ports_in_time_wait(&mut self) -> Option<u64> {
        let (port, _) = self.port?;
        let wanted = Wanted {
            other_port: port,
            time_wait: true,
            ..Wanted::default()
        };
        let all = self.home.diag.tcp(wanted).ok()?;
        let is_taken = |socket: &&Tcp| self.ports.keeps(socket);
        Some(all.iter().filter(is_taken).count() as u64)
    }

    fn look_at_server(&mut self, servers: &[Tcp], unread: f64) {
        let intervals = self.intervals;
        let listening = || servers.iter().filter(|socket| socket.state == LISTEN);
        let waiting: u64 = listening().map(|socket| u64::from(socket.unread)).sum();
        let limit: u64 = listening().map(|socket| u64::from(socket.unsent)).sum();
        let is_local = self.port.is_some_and(|(_, local)| local);
        let push = |column: &mut Option<Vec<f64>>, value: f64| {
            if is_local {
                let column = column.get_or_insert_default();
                column.resize(intervals, 0.0);
                column.push(value);
            }
        };
        push(&mut self.columns.server_unread_bytes, unread);
        let is_unread = |socket: &&Tcp| socket.state != LISTEN && socket.unread > 0;
        let unread = servers.iter().filter(is_unread).count();
        push(&mut self.columns.server_unread, unread as f64);
        push(&mut self.columns.backlog, waiting as f64);
        if limit > 0 {
            self.columns.backlog_limit = Some(limit);
        }
    }

    /// Sockets of clients, and of the server. `are_known`: no connection was opened since
    /// the latest look.
    fn both(&mut self, are_known: bool, own: &Own<'_>) -> (Vec<Tcp>, Vec<Tcp>) {
        self.newly = None;
        let Some((port, local)) = self.port else {
            return Default::default();
        };
        let known = self.known.take().filter(|_| are_known);
        let [mut clients, mut servers] = match known.and_then(|known| self.again(&known)) {
            Some(both) => both,
            None if self.are_few || self.intervals.is_multiple_of(SELDOM) => self.at_once(port),
            None => self.each(port, local),
        };
        // The address tells apart the servers of one port, and their clients.
        let is_there = |socket: &Tcp, end: usize, address: IpAddr| {
            let own = socket.addresses()[end].ip();
            own == address || (socket.state == LISTEN && own.is_unspecified())
        };
        if let Some(address) = self.address {
            clients.retain(|socket| is_there(socket, 1, address));
        }
        let far = self.far.as_ref().map(|far| far.at.ip());
        match far.or(self.address) {
            Some(address) => servers.retain(|socket| is_there(socket, 0, address)),
            None if !local => servers.clear(),
            None => {}
        }
        self.ours.keep(&mut clients, own);
        self.ours.keep_served(&mut servers);
        if local && self.far.is_none() && self.ends_there != Some(true) {
            let ends: HashSet<[SocketAddr; 2]> = servers.iter().map(Tcp::addresses).collect();
            // One that ends between two looks may end between two questions.
            let is_kept =
                |one: &&Tcp| one.state == ESTABLISHED && self.carried.contains_key(&one.cookie);
            let mut open = clients.iter().filter(is_kept).peekable();
            if open.peek().is_some() {
                let is_there = |[own, to]: [SocketAddr; 2]| ends.contains(&[to, own]);
                self.ends_there = Some(open.any(|one| is_there(one.addresses())));
            }
        }
        if let Some(told) = &self.told {
            clients.clear();
            servers.retain(|socket| socket.state == LISTEN || told.means(socket));
        }
        if clients.len() + servers.len() <= KNOWN {
            self.known = Some([clients.clone(), servers.clone()]);
        }
        (clients, servers)
    }

    /// None where a listener is not found by its address: others may share it.
    fn again(&mut self, [clients, servers]: &[Vec<Tcp>; 2]) -> Option<[Vec<Tcp>; 2]> {
        let listeners = |of: &[Tcp]| of.iter().filter(|socket| socket.state == LISTEN).count();
        let again = self.home.diag.again(clients).ok()?;
        let view = self
            .far
            .as_mut()
            .map_or(&mut self.home, |far| &mut far.view);
        let served = view.diag.again(servers).ok()?;
        (listeners(&served) == listeners(servers)).then_some([again, served])
    }

    /// By a question for each side.
    fn each(&mut self, port: u16, local: bool) -> [Vec<Tcp>; 2] {
        let clients = self.home.sockets(Wanted {
            other_port: port,
            listeners: false,
            ..ALL
        });
        let servers = match local {
            true => self.served(port),
            false => Vec::new(),
        };
        [clients, servers]
    }

    fn served(&mut self, port: u16) -> Vec<Tcp> {
        let (view, own_port) = match &mut self.far {
            Some(far) => (&mut far.view, far.at.port()),
            None => (&mut self.home, port),
        };
        view.sockets(Wanted { own_port, ..ALL })
    }

    /// The sockets of both sides by one question for all sockets.
    fn at_once(&mut self, port: u16) -> [Vec<Tcp>; 2] {
        let all = self.home.sockets(ALL);
        self.are_few = all.len() < FEW;
        self.newly = Some(self.note_new(&all, port));
        let (servers, others): (Vec<Tcp>, Vec<Tcp>) =
            all.into_iter().partition(|socket| socket.own_port == port);
        let servers = match self.far {
            Some(_) => self.served(port),
            None => servers,
        };
        let is_client = |socket: &Tcp| socket.other_port == port;
        [others.into_iter().filter(is_client).collect(), servers]
    }

    /// How many connections each of the server's processes has, if it has more than before.
    pub(super) fn share_out(&mut self, server: &[u32]) {
        let (Some((port, _)), true) = (self.port, server.len() > 1) else {
            return;
        };
        let all = self.served(port);
        let inodes = |state: u8| {
            let all = all.iter().filter(|socket| socket.state == state);
            all.map(|socket| u64::from(socket.inode)).collect()
        };
        let shares = serving::shares_among(server, &inodes(ESTABLISHED), &inodes(LISTEN));
        let known = &mut self.columns.at_processes;
        if shares.iter().sum::<u64>() > known.iter().sum() {
            *known = shares;
        }
    }

    /// The columns: of the connections, where a server's port was found, and of what the
    /// kernel counted.
    pub(super) fn into_columns(self, hops: Vec<Hop>) -> (Option<Traffic>, Network) {
        let (home, judged) = (self.home.network.id, self.port);
        let is_judged = |id, to: SocketAddr| {
            let is_it = |(port, _): (u16, bool)| port == to.port();
            let is_there = self.address.is_none_or(|address| address == to.ip());
            id == home && judged.is_some_and(is_it) && is_there
        };
        let [others, downstream, _] = self.peers;
        let any = |column: &[f64]| column.iter().any(|value| *value > 0.0);
        let is_seen = any(&self.columns.connections) || any(&self.columns.opened);
        let is_seen = is_seen || self.told.is_some();
        let address = judged.filter(|(_, local)| !local).and(self.address);
        let traffic = judged.filter(|_| is_seen).map(|(port, _)| Traffic {
            port: port.into(),
            address: address.map(|address| address.to_string()),
            ports: self.ports.all,
            others: others.largest(is_judged),
            downstream: downstream.largest(|_, _| false),
            hops,
            ..self.columns
        });
        (traffic, self.network)
    }
}

/// The ports at which these sockets accept.
fn listening<'a>(sockets: impl Iterator<Item = &'a Tcp>) -> BTreeSet<u16> {
    let listeners = sockets.filter(|socket| socket.state == LISTEN);
    listeners.map(|socket| socket.own_port).collect()
}

fn is_listener(socket: &Tcp, port: u16) -> bool {
    socket.state == LISTEN && socket.own_port == port
}

#[cfg(test)]
mod tests;
