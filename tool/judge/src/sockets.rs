//! The TCP connections between the command and its server: the server's port, found by
//! what the command connects to, then queues and what was carried in each interval.

use super::peers::Peers;
use super::ports::Ports;
use super::remote::{Ends, Told};
use super::turns::{Owed, in_turn};
use jostle_model::judged::{Network, Traffic};
use jostle_sys::clock;
use jostle_sys::limits;
use jostle_sys::limits::net::{self, Counted};
use jostle_sys::serving;
use jostle_sys::sock_diag::{Carried, LISTEN, SYN_SENT, SockDiag, Tcp, Wanted};
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

/// New connections to local ports by which the server is found where no look met the
/// command's own sockets, because each lives for less than a look; and the share of them
/// that must lead to one port.
const NEW: usize = 20;
const NEW_SHARE: f64 = 0.8;

/// All sockets, with what they have carried; and without that.
const ALL: Wanted = Wanted {
    own_port: 0,
    other_port: 0,
    listeners: true,
    carried: true,
    time_wait: false,
};
const NAMED: Wanted = Wanted {
    carried: false,
    ..ALL
};

/// The connections between both sides.
#[derive(Debug)]
pub(super) struct Sockets {
    diag: SockDiag,
    /// The server's port, and whether its sockets are of this machine.
    port: Option<(u16, bool)>,
    /// Its address, where other servers have the same port.
    address: Option<IpAddr>,
    ports: Ports,
    /// By cookie, what each connection had carried at the latest look.
    carried: HashMap<u64, Carried>,
    counted: Option<Counted>,
    network: Network,
    /// Clients' sockets to other ports, or to any before the server is found.
    others: HashSet<u64>,
    /// New ones among them, by the port that they lead to.
    newly_to: BTreeMap<u16, usize>,
    /// The share of the new connections that led to the server, as of the latest look that met any.
    share: f64,
    /// New connections elsewhere at the latest look at all sockets.
    new_elsewhere: usize,
    /// The peers of the command, of the server, and of what stands behind it, beside each other.
    peers: [Peers; 3],
    /// Whether this namespace has few sockets, as of the latest look at all of them.
    are_few: bool,
    /// Sockets of both sides, as long as these are all.
    known: Option<Vec<Tcp>>,
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
        let diag = SockDiag::open().ok()?;
        let mut sockets = Sockets {
            diag,
            told,
            ends: Ends::default(),
            is_watched_there: false,
            port: port.map(|port| (port, true)),
            ports: Ports::read(),
            carried: HashMap::new(),
            address: None,
            counted: Counted::read(),
            network: Network::default(),
            others: HashSet::new(),
            newly_to: BTreeMap::new(),
            share: 1.0,
            new_elsewhere: 0,
            peers: Default::default(),
            are_few: false,
            known: None,
            columns: Traffic::default(),
            intervals: 0,
            tick_ms: limits::tick_ns() as f64 / 1e6,
            owed: Owed::default(),
        };
        // What connections carried before belongs to no interval.
        sockets.look();
        let all = sockets.diag.tcp(NAMED).unwrap_or_default();
        sockets.are_few = all.len() < FEW;
        sockets.note_new(&all, None);
        sockets.newly_to.clear();
        sockets.columns = Traffic::default();
        sockets.network = Network {
            syn_again_after_s: net::syn_again_after_s(),
            ..Network::default()
        };
        sockets.intervals = 0;
        Some(sockets)
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
        let (clients, _) = self.each(port, false);
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

    /// Whether the server's port is known.
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

    /// Finds the port that these sockets are connected to, and
    /// returns it when it was found now and the server is on this machine.
    pub(super) fn find(&mut self, inodes: &BTreeSet<u64>) -> Option<u16> {
        if inodes.is_empty() {
            return None;
        }
        let all = self.diag.tcp(NAMED).ok()?;
        self.are_few = all.len() < FEW;
        self.note_new(&all, None);
        let (port, address) = match most_connected(&all, inodes) {
            Some((to, is_local)) => ((to.port(), is_local), Some(to.ip())),
            // What is new beside a command over a Unix socket is somebody else's.
            None if serving::has_unix(inodes) => return None,
            None => ((self.newly_connected(&all)?, true), None),
        };
        self.port = Some(port);
        // A server that listens at one address has others beside it, or it is far away.
        let listeners = all.iter().filter(|socket| is_listener(socket, port.0));
        self.address = address.filter(|_| !port.1 || listeners.count() > 1);
        self.port.filter(|(_, local)| *local).map(|(port, _)| port)
    }

    /// Notes clients' sockets that were not there before, those of the server apart, and
    /// returns how many are new.
    fn note_new(&mut self, all: &[Tcp], server: Option<u16>) -> usize {
        let serves = listening(all.iter());
        let clients = all.iter().filter(|socket| {
            let is_end = serves.contains(&socket.own_port) || socket.state == LISTEN;
            !is_end && Some(socket.other_port) != server && Some(socket.own_port) != server
        });
        let mut newly = 0;
        let mut others = HashSet::new();
        for socket in clients {
            if !self.others.contains(&socket.cookie) {
                *self.newly_to.entry(socket.other_port).or_default() += 1;
                newly += 1;
            }
            others.insert(socket.cookie);
        }
        self.others = others;
        newly
    }

    /// The port to which nearly all connections lead that are new since the start.
    fn newly_connected(&self, all: &[Tcp]) -> Option<u16> {
        let serves = listening(all.iter());
        let newly_to = self.newly_to.iter();
        let local = newly_to.filter(|(port, _)| serves.contains(port));
        let (port, most) = local.max_by_key(|(_, count)| **count)?;
        let sum: usize = self.newly_to.values().sum();
        (sum >= NEW && *most as f64 >= NEW_SHARE * sum as f64).then_some(*port)
    }

    /// Notes what these sockets are connected to beside the judged server: of the command
    /// (0), of the server (1), whose connections wait for answers, or of what stands behind it
    /// (2). Returns the ports of this machine that were not known to be among them.
    pub(super) fn look_beside(&mut self, inodes: &BTreeSet<u64>, which: usize) -> BTreeSet<u16> {
        let all = self.diag.tcp(ALL).unwrap_or_default();
        let serves = listening(all.iter());
        let here: HashSet<SocketAddr> = all.iter().map(|socket| socket.addresses()[0]).collect();
        let (port, address) = (self.port.map(|(port, _)| port), self.address);
        let is_judged = |to: SocketAddr| {
            port == Some(to.port()) && address.is_none_or(|address| address == to.ip())
        };
        let own = all.iter().filter(|socket| {
            let is_own = inodes.contains(&u64::from(socket.inode));
            is_own && !serves.contains(&socket.own_port) && !is_judged(socket.addresses()[1])
        });
        self.peers[which].look(own, &here)
    }

    /// At the end of an interval.
    pub(super) fn look(&mut self) {
        let before_ns = clock::monotonic();
        // Read before the sockets: what is opened in between counts at the next look.
        let counted = Counted::read().or(self.counted);
        let opened = count(&mut self.network, self.counted, counted);
        self.counted = counted;
        let (clients, servers) = self.both(opened == 0);
        let read_ns = [before_ns, clock::monotonic()];
        if let Some(told) = &self.told {
            let accepted = counted.map_or(0, |counted| counted.accepted);
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
        } else if opened > 0 && new_here + self.new_elsewhere > 0 {
            self.share = new_here as f64 / (new_here + self.new_elsewhere) as f64;
        }
        let newly = (opened as f64 * self.share).round();
        self.look_at_traffic(&clients, &servers);
        let time_wait = net::time_wait().unwrap_or(0);
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
        let all = self.diag.tcp(wanted).ok()?;
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
    fn both(&mut self, are_known: bool) -> (Vec<Tcp>, Vec<Tcp>) {
        self.new_elsewhere = 0;
        let Some((port, local)) = self.port else {
            return Default::default();
        };
        let known = self.known.take().filter(|_| are_known);
        let (mut clients, mut servers) = match known.and_then(|known| self.again(&known)) {
            Some(all) => all.into_iter().partition(|socket| socket.own_port != port),
            None if local && self.are_few => self.at_once(port),
            None => self.each(port, local),
        };
        // The address tells apart the servers of one port, and their clients.
        if let Some(address) = self.address {
            let is_there = |socket: &Tcp, end: usize| {
                let own = socket.addresses()[end].ip();
                own == address || (socket.state == LISTEN && own.is_unspecified())
            };
            clients.retain(|socket| is_there(socket, 1));
            servers.retain(|socket| is_there(socket, 0));
        }
        if let Some(told) = &self.told {
            clients.clear();
            servers.retain(|socket| socket.state == LISTEN || told.means(socket));
        }
        if clients.len() + servers.len() <= KNOWN {
            self.known = Some(clients.iter().chain(&servers).cloned().collect());
        }
        (clients, servers)
    }

    /// None where a listener is not found by its address: others may share it.
    fn again(&mut self, known: &[Tcp]) -> Option<Vec<Tcp>> {
        let listeners = |of: &[Tcp]| of.iter().filter(|socket| socket.state == LISTEN).count();
        let again = self.diag.again(known).ok()?;
        (listeners(&again) == listeners(known)).then_some(again)
    }

    /// By a question for each side.
    fn each(&mut self, port: u16, local: bool) -> (Vec<Tcp>, Vec<Tcp>) {
        let clients = Wanted {
            other_port: port,
            listeners: false,
            ..ALL
        };
        let servers = Wanted {
            own_port: port,
            ..ALL
        };
        let mut ask = |wanted| self.diag.tcp(wanted).unwrap_or_default();
        let clients = ask(clients);
        (clients, if local { ask(servers) } else { Vec::new() })
    }

    /// The sockets of both sides by one question for all sockets.
    fn at_once(&mut self, port: u16) -> (Vec<Tcp>, Vec<Tcp>) {
        let all = self.diag.tcp(ALL).unwrap_or_default();
        self.are_few = all.len() < FEW;
        self.new_elsewhere = self.note_new(&all, Some(port));
        let (servers, others): (Vec<Tcp>, Vec<Tcp>) =
            all.into_iter().partition(|socket| socket.own_port == port);
        let is_client = |socket: &Tcp| socket.other_port == port;
        (others.into_iter().filter(is_client).collect(), servers)
    }

    /// How many connections each of the server's processes has, if it has more than before.
    pub(super) fn share_out(&mut self, server: &[u32]) {
        let (Some((port, _)), true) = (self.port, server.len() > 1) else {
            return;
        };
        let shares = serving::shares_of(server, port);
        let known = &mut self.columns.at_processes;
        if shares.iter().sum::<u64>() > known.iter().sum() {
            *known = shares;
        }
    }

    /// The columns: of the connections, where a server's port was found, and of what the
    /// kernel counted.
    pub(super) fn into_columns(self) -> (Option<Traffic>, Network) {
        let [others, downstream, _] = self.peers.map(Peers::largest);
        let any = |column: &[f64]| column.iter().any(|value| *value > 0.0);
        let is_seen = any(&self.columns.connections) || any(&self.columns.opened);
        let is_seen = is_seen || self.told.is_some();
        let address = self.port.filter(|(_, local)| !local).and(self.address);
        let traffic = self.port.filter(|_| is_seen).map(|(port, _)| Traffic {
            port: port.into(),
            address: address.map(|address| address.to_string()),
            ports: self.ports.all,
            others,
            downstream,
            ..self.columns
        });
        (traffic, self.network)
    }
}

/// Adds what was counted in an interval, and returns the attempts to connect.
fn count(network: &mut Network, before: Option<Counted>, now: Option<Counted>) -> u64 {
    let (before, now) = (before.unwrap_or_default(), now.unwrap_or_default());
    let mut push = |column: fn(&mut Network) -> &mut Vec<f64>, of: fn(&Counted) -> u64| {
        column(network).push(of(&now).saturating_sub(of(&before)) as f64);
    };
    push(|to| &mut to.opened, |of| of.opened);
    push(|to| &mut to.failed, |of| of.failed);
    push(|to| &mut to.overflows, |of| of.overflows);
    push(|to| &mut to.dropped, |of| of.dropped);
    push(|to| &mut to.syn_again, |of| of.syn_again);
    push(|to| &mut to.delayed_acks, |of| of.delayed_acks);
    now.opened.saturating_sub(before.opened)
}

/// The ports at which these sockets accept.
fn listening<'a>(sockets: impl Iterator<Item = &'a Tcp>) -> BTreeSet<u16> {
    let listeners = sockets.filter(|socket| socket.state == LISTEN);
    listeners.map(|socket| socket.own_port).collect()
}

fn is_listener(socket: &Tcp, port: u16) -> bool {
    socket.state == LISTEN && socket.own_port == port
}

/// The address that most of these sockets are connected to, and whether this machine has
/// its other end.
fn most_connected(all: &[Tcp], inodes: &BTreeSet<u64>) -> Option<(SocketAddr, bool)> {
    let own = |socket: &&Tcp| inodes.contains(&u64::from(socket.inode));
    // Where the command serves too, its clients are not its servers.
    let serves = listening(all.iter().filter(own));
    let mut counts: BTreeMap<SocketAddr, usize> = BTreeMap::new();
    for socket in all.iter().filter(own) {
        if socket.other_port != 0 && !serves.contains(&socket.own_port) {
            *counts.entry(socket.addresses()[1]).or_default() += 1;
        }
    }
    let (to, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    // Both machines may have a server at this port: an address of this one is some socket's own.
    let is_here = |socket: &Tcp| socket.addresses()[0].ip() == to.ip();
    let is_local = all.iter().any(|socket| socket.own_port == to.port())
        && (to.ip().is_loopback() || all.iter().any(is_here));
    Some((to, is_local))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    mod live_tests {
        use super::*;

        #[test]
        fn the_port_that_most_connections_lead_to_is_the_server_s() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let clients: Vec<TcpStream> = (0..3)
                .map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap())
                .collect();
            let accepted: Vec<TcpStream> = (0..3).map(|_| listener.accept().unwrap().0).collect();
            let socket = |inode, own_port, other_port, state| Tcp {
                inode,
                own_port,
                other_port,
                state,
                ..Tcp::default()
            };
            let all = [
                socket(1, 4001, 80, 1),
                socket(2, 4002, 80, 1),
                socket(3, 4003, 443, 1),
                socket(4, 9000, 0, LISTEN),
                socket(5, 9000, 5555, 1),
                socket(6, 9000, 5556, 1),
                socket(7, 9000, 5556, 1),
                socket(8, 80, 4001, 1),
            ];
            let own = (1..=7).collect();
            let found = |own: &BTreeSet<u64>| {
                most_connected(&all, own).map(|(to, is_local)| (to.port(), is_local))
            };
            assert_eq!(found(&own), Some((80, true)));
            assert_eq!(found(&BTreeSet::from([3])), Some((443, false)));
            assert_eq!(found(&BTreeSet::new()), None);
            // This process serves itself: only a port that is told can be watched.
            let mut sockets = Sockets::open(Some(port), None).unwrap();
            let (mut client, mut server) = (&clients[0], &accepted[0]);
            // On a busy machine what was sent arrives after the call has returned.
            let await_unread = |bytes| {
                let arrived = (0..60_000).any(|_| {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    accepted[0].peek(&mut [0; 1000]).unwrap() == bytes
                });
                assert!(arrived, "{bytes} bytes");
            };
            client.write_all(&[1; 500]).unwrap();
            await_unread(500);
            server.read_exact(&mut [0; 300]).unwrap();
            sockets.look();
            let mut later = |sockets: &mut Sockets, unread: usize| {
                client.write_all(&[1; 70]).unwrap();
                await_unread(unread + 70);
                server.read_exact(&mut [0; 50]).unwrap();
                sockets.look();
            };
            // By their addresses, unless another test has opened a connection.
            later(&mut sockets, 200);
            // Among all sockets.
            (sockets.are_few, sockets.known) = (true, None);
            later(&mut sockets, 220);
            let traffic = sockets.into_columns().0.unwrap();
            assert_eq!(traffic.connections, [3.0, 3.0, 3.0]);
            assert_eq!(traffic.bytes, [500.0, 70.0, 70.0]);
            assert_eq!(traffic.server_unread_bytes, Some(vec![200.0, 220.0, 240.0]));
            assert_eq!(traffic.generator_unread_bytes, [0.0, 0.0, 0.0]);
            assert!(traffic.backlog_limit > Some(0) && traffic.ports > 0);
        }
    }
}
