//! The TCP connections between the command and its server: the server's port, found by
//! what the command connects to, then queues and what was carried in each interval.

use jostle_model::judged::Traffic;
use jostle_sys::limits::net::{self, Net, Opened, Reuse};
use jostle_sys::sock_diag::{Carried, LISTEN, SockDiag, Tcp, Wanted};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Sockets that are asked for all at once, where there are no more: each question walks the
/// kernel's whole table, sockets in TIME_WAIT included.
const FEW: usize = 1_000;

/// Up to this number of connections, each is queried by its addresses as long as no other
/// is opened. That takes some microseconds each; a walk takes milliseconds where sockets
/// are in TIME_WAIT.
const KNOWN: usize = 256;

/// Time after which a port in TIME_WAIT may be taken again, where the kernel allows that:
/// it counts in whole seconds, and requires more than one.
const REUSED_AFTER: Duration = Duration::from_secs(2);

/// What connects to what.
#[derive(Debug)]
pub(super) struct Sockets {
    diag: SockDiag,
    /// The server's port, and whether its sockets are of this machine.
    port: Option<(u16, bool)>,
    /// Ports that new connections may have.
    ports: u64,
    /// By cookie, what each connection had carried at the latest look.
    carried: HashMap<u64, Carried>,
    opened: Opened,
    reuse: Reuse,
    /// Connections that were opened lately, by interval.
    lately: VecDeque<(Instant, u64)>,
    /// Whether the clients are on the loopback.
    is_loopback: bool,
    /// Whether this namespace has few sockets, as of the latest look at all of them.
    are_few: bool,
    /// Sockets of both sides, as long as these are all.
    known: Option<Vec<Tcp>>,
    columns: Traffic,
    intervals: usize,
}

impl Sockets {
    /// None where the kernel does not tell of sockets. `port`: the server's, if it is
    /// known.
    pub(super) fn open(port: Option<u16>) -> Option<Sockets> {
        let diag = SockDiag::open().ok()?;
        let net = Net::read();
        let ports = net
            .ports
            .map_or(0, |(first, last)| u64::from(last.saturating_sub(first)) + 1);
        let mut sockets = Sockets {
            diag,
            port: port.map(|port| (port, true)),
            ports: ports.saturating_sub(net.reserved),
            carried: HashMap::new(),
            opened: Opened::read().unwrap_or_default(),
            reuse: Reuse::read(),
            lately: VecDeque::new(),
            is_loopback: false,
            are_few: false,
            known: None,
            columns: Traffic::default(),
            intervals: 0,
        };
        // What connections carried before belongs to no interval.
        sockets.look();
        sockets.columns = Traffic::default();
        sockets.intervals = 0;
        Some(sockets)
    }

    /// Whether the server's port is known.
    pub(super) fn is_found(&self) -> bool {
        self.port.is_some()
    }

    /// Finds the port that these sockets are connected to, and
    /// returns it when it was found now and the server is on this machine.
    pub(super) fn find(&mut self, inodes: &BTreeSet<u64>) -> Option<u16> {
        if inodes.is_empty() {
            return None;
        }
        let wanted = Wanted {
            listeners: true,
            ..Wanted::default()
        };
        let all = self.diag.tcp(wanted).ok()?;
        self.are_few = all.len() < FEW;
        self.port = Some(most_connected(&all, inodes)?);
        self.port.filter(|(_, local)| *local).map(|(port, _)| port)
    }

    /// At the end of an interval.
    pub(super) fn look(&mut self) {
        // Read before the sockets: what is opened in between counts at the next look.
        let opened = Opened::read();
        let are_known = opened == Some(self.opened);
        let opened = opened.unwrap_or(self.opened);
        let newly = opened.active.saturating_sub(self.opened.active);
        self.opened = opened;
        let (clients, servers) = self.both(are_known);
        let mut carried = HashMap::with_capacity(clients.len());
        let (mut bytes, mut segments, mut again) = (0, 0, 0);
        for socket in clients.iter().chain(&servers) {
            let Some(now) = socket.carried else { continue };
            let before = self
                .carried
                .get(&socket.cookie)
                .copied()
                .unwrap_or_default();
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
        let time_wait = net::time_wait().unwrap_or(0);
        if let Some(client) = clients.first() {
            self.is_loopback = client.is_loopback;
        }
        let used = self.taken(time_wait, newly, Instant::now()) + clients.len() as u64;
        let columns = &mut self.columns;
        columns.bytes.push(bytes as f64);
        columns.segments.push(segments as f64);
        columns.retransmitted.push(again as f64);
        columns.connections.push(clients.len() as f64);
        columns.opened.push(newly as f64);
        columns.time_wait.push(time_wait as f64);
        columns
            .ports_left
            .push(self.ports.saturating_sub(used) as f64);
        let unread = |sockets: &[Tcp]| -> f64 {
            let open = sockets.iter().filter(|socket| socket.state != LISTEN);
            open.map(|socket| u64::from(socket.unread)).sum::<u64>() as f64
        };
        columns.generator_unread_bytes.push(unread(&clients));
        self.look_at_server(&servers, unread(&servers));
        self.intervals += 1;
    }

    /// Ports of connections in TIME_WAIT that no new connection may take. `ab` opens more
    /// connections in a minute than there are ports.
    fn taken(&mut self, time_wait: u64, newly: u64, now: Instant) -> u64 {
        self.lately.push_back((now, newly));
        let is_old = |(at, _): &(Instant, u64)| now.duration_since(*at) > REUSED_AFTER;
        while self.lately.front().is_some_and(is_old) {
            self.lately.pop_front();
        }
        let reused = match self.reuse {
            Reuse::Always => true,
            Reuse::Loopback => self.is_loopback,
            Reuse::Never => false,
        };
        match reused {
            true => time_wait.min(self.lately.iter().map(|(_, opened)| opened).sum()),
            false => time_wait,
        }
    }

    fn look_at_server(&mut self, servers: &[Tcp], unread: f64) {
        let intervals = self.intervals;
        let listening = servers.iter().filter(|socket| socket.state == LISTEN);
        let (waiting, limit) = listening.fold((0, 0), |(waiting, limit), socket| {
            (
                waiting + u64::from(socket.unread),
                limit + u64::from(socket.unsent),
            )
        });
        let is_local = self.port.is_some_and(|(_, local)| local);
        let push = |column: &mut Option<Vec<f64>>, value: f64| {
            if is_local {
                let column = column.get_or_insert_default();
                column.resize(intervals, 0.0);
                column.push(value);
            }
        };
        push(&mut self.columns.server_unread_bytes, unread);
        push(&mut self.columns.backlog, waiting as f64);
        if limit > 0 {
            self.columns.backlog_limit = Some(limit);
        }
    }

    /// Sockets of clients, and of the server. `are_known`: no connection was opened since
    /// the latest look.
    fn both(&mut self, are_known: bool) -> (Vec<Tcp>, Vec<Tcp>) {
        let Some((port, local)) = self.port else {
            return Default::default();
        };
        let known = self.known.take().filter(|_| are_known);
        let (clients, servers) = match known.and_then(|known| self.again(&known)) {
            Some(all) => all.into_iter().partition(|socket| socket.own_port != port),
            None if local && self.are_few => self.at_once(port),
            None => self.each(port, local),
        };
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
            carried: true,
            ..Wanted::default()
        };
        let servers = Wanted {
            own_port: port,
            listeners: true,
            carried: true,
            ..Wanted::default()
        };
        let clients = self.diag.tcp(clients).unwrap_or_default();
        let servers = match local {
            true => self.diag.tcp(servers).unwrap_or_default(),
            false => Vec::new(),
        };
        (clients, servers)
    }

    /// The same by one question for all sockets.
    fn at_once(&mut self, port: u16) -> (Vec<Tcp>, Vec<Tcp>) {
        let all = Wanted {
            listeners: true,
            carried: true,
            ..Wanted::default()
        };
        let all = self.diag.tcp(all).unwrap_or_default();
        self.are_few = all.len() < FEW;
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
        let shares = jostle_sys::serving::shares_of(server, port);
        let known = &mut self.columns.at_processes;
        if shares.iter().sum::<u64>() > known.iter().sum() {
            *known = shares;
        }
    }

    /// The columns, where a server's port was found.
    pub(super) fn into_columns(self) -> Option<Traffic> {
        let (port, _) = self.port?;
        let connected = self.columns.connections.iter().any(|open| *open > 0.0);
        let opened = self.columns.opened.iter().any(|opened| *opened > 0.0);
        (connected || opened).then_some(Traffic {
            port: port.into(),
            ports: self.ports,
            ..self.columns
        })
    }
}

/// The port that most of these sockets are connected to, and whether this machine has
/// its other end.
fn most_connected(all: &[Tcp], inodes: &BTreeSet<u64>) -> Option<(u16, bool)> {
    let own = |socket: &&Tcp| inodes.contains(&u64::from(socket.inode));
    // Where the command serves too, its clients are not its servers.
    let serves: BTreeSet<u16> = all
        .iter()
        .filter(own)
        .filter(|socket| socket.state == LISTEN)
        .map(|socket| socket.own_port)
        .collect();
    let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
    for socket in all.iter().filter(own) {
        if socket.other_port != 0 && !serves.contains(&socket.own_port) {
            *counts.entry(socket.other_port).or_default() += 1;
        }
    }
    let (port, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let is_local = all.iter().any(|socket| socket.own_port == port);
    Some((port, is_local))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn ports_in_time_wait_are_taken_until_they_may_be_used_again() {
        let taken = |reuse, is_loopback| {
            let mut sockets = Sockets::open(None).unwrap();
            (sockets.reuse, sockets.is_loopback) = (reuse, is_loopback);
            sockets.lately.clear();
            let start = Instant::now();
            let at = |seconds| start + Duration::from_secs(seconds);
            // 5,000 a second, of which TIME_WAIT keeps those of a minute.
            let each = (1..=10).map(|nth| sockets.taken(nth * 5_000, 5_000, at(nth)));
            each.last()
        };
        assert_eq!(taken(Reuse::Never, true), Some(50_000));
        assert_eq!(taken(Reuse::Loopback, false), Some(50_000));
        // Those of the last two seconds, and of the interval that ends with them.
        assert_eq!(taken(Reuse::Loopback, true), Some(15_000));
        assert_eq!(taken(Reuse::Always, false), Some(15_000));
    }

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
            assert_eq!(most_connected(&all, &own), Some((80, true)));
            assert_eq!(
                most_connected(&all, &BTreeSet::from([3])),
                Some((443, false))
            );
            assert_eq!(most_connected(&all, &BTreeSet::new()), None);
            // This process serves itself: only a port that is told can be watched.
            let mut sockets = Sockets::open(Some(port)).unwrap();
            let (mut client, mut server) = (&clients[0], &accepted[0]);
            // On a busy machine what was sent arrives after the call has returned.
            let await_unread = |bytes| {
                let arrived = (0..5000).any(|_| {
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
            let traffic = sockets.into_columns().unwrap();
            assert_eq!(traffic.connections, [3.0, 3.0, 3.0]);
            assert_eq!(traffic.bytes, [500.0, 70.0, 70.0]);
            assert_eq!(traffic.server_unread_bytes, Some(vec![200.0, 220.0, 240.0]));
            assert_eq!(traffic.generator_unread_bytes, [0.0, 0.0, 0.0]);
            assert!(traffic.backlog_limit > Some(0) && traffic.ports > 0);
        }
    }
}
