//! Where the server's sockets are: by what the command's own ones are connected to.

use super::*;

impl Sockets {
    /// The server that most of the command's own sockets are connected to, when it is found now.
    /// `has_tcp`: whether it was seen with a TCP socket.
    pub(in super::super) fn find(&mut self, own: &Own<'_>, has_tcp: bool) -> Option<Server> {
        /// A connection that lives for less than it takes to list all may be missed.
        const TRIES: usize = 4;
        self.see(own);
        if self.moves == MOVES {
            return None;
        }
        let tries = if has_tcp { TRIES } else { 1 };
        let mut tries = (0..tries).map(|_| {
            let each = self.own_sockets(own).into_iter().enumerate();
            let each = each.filter_map(|(nth, (_, sockets))| {
                let (to, of) = most_connected(sockets, self.named)?;
                Some((nth, to, of))
            });
            each.max_by_key(|(_, _, of)| of.len())
        });
        let (nth, to, of) = tries.find_map(|found| found)?;
        self.settle(nth);
        self.locate(to, &of)
    }

    /// Opens the namespaces of the command's processes. Before its server is found the counters are
    /// those of where it lives.
    fn see(&mut self, own: &Own<'_>) {
        let mut is_home = own.pids.is_empty();
        for pid in own.pids {
            let Some(id) = network_of(*pid) else {
                continue;
            };
            is_home |= id == self.home.network.id;
            let mut views = std::iter::once(&self.home).chain(&self.views);
            let is_new = views.all(|view| view.network.id != id) && self.views.len() < VIEWS;
            self.views
                .extend(is_new.then(|| View::of(*pid).ok()).flatten());
        }
        if !is_home && !self.is_found() {
            self.settle(self.views.len());
        }
    }

    /// Makes one of the views that of the judged connections: 0 is that already.
    fn settle(&mut self, nth: usize) {
        let Some(view) = nth.checked_sub(1).and_then(|at| self.views.get_mut(at)) else {
            return;
        };
        std::mem::swap(&mut self.home, view);
        let network = &self.home.network;
        if let Ok(ports) = network.within(Ports::read) {
            self.ports = ports;
        }
        let after_s = network.within(net::syn_again_after_s);
        // What was counted elsewhere is nothing of the command's.
        self.network = Network {
            syn_again_after_s: after_s.unwrap_or_default(),
            ..Network::default()
        };
        (0..self.intervals).for_each(|_| {
            views::push(&mut self.network, Counted::default(), Counted::default());
        });
        let all = self.home.sockets(ALL);
        self.clients = all.iter().map(|socket| socket.cookie).collect();
        self.known = None;
    }

    /// The command's own connections, by view: by inode, before and after the sockets were listed.
    fn own_sockets(&mut self, own: &Own<'_>) -> Vec<(u64, Vec<Tcp>)> {
        let before = own.inodes();
        if before.is_empty() {
            return Vec::new();
        }
        let all = std::iter::once(&mut self.home).chain(&mut self.views);
        let all: Vec<(u64, Vec<Tcp>)> = all
            .map(|view| (view.network.id, view.sockets(ALL)))
            .collect();
        self.are_few = all[0].1.len() < FEW;
        let after = own.inodes();
        let is_own = |socket: &Tcp| {
            let inode = socket.inode.into();
            before.contains(&inode) || after.contains(&inode)
        };
        self.accepted.clear();
        let mut each = Vec::new();
        for (id, mut sockets) in all {
            let ends: HashSet<[SocketAddr; 2]> = sockets.iter().map(Tcp::addresses).collect();
            sockets.retain(is_own);
            let has_end = |one: &&Tcp| {
                let [own, to] = one.addresses();
                ends.contains(&[to, own])
            };
            let accepted = sockets.iter().filter(has_end).map(|one| one.cookie);
            self.accepted.extend(accepted);
            each.push((id, sockets));
        }
        each
    }

    /// Looks for the sockets at the other ends of connections of the home namespace.
    fn locate(&mut self, to: SocketAddr, of: &[Tcp]) -> Option<Server> {
        let all = self.home.sockets(ALL);
        let listens = |socket: &&Tcp| is_listener(socket, to.port());
        let here: HashSet<IpAddr> = all.iter().map(|one| one.addresses()[0].ip()).collect();
        let is_accepted = of.iter().any(|one| self.accepted.contains(&one.cookie));
        let is_listened = all.iter().filter(listens).any(|one| {
            let at = one.addresses()[0].ip();
            at == to.ip() || (at.is_unspecified() && here.contains(&to.ip()))
        });
        let is_local = is_accepted || is_listened;
        let found = if is_accepted && self.home.is_own() {
            None
        } else {
            Some(other_end::follow(self.home.network.id, of))
        };
        // A server that listens at one address has others beside it, or it is far away.
        let listeners = all.iter().filter(listens).count();
        self.port = Some((to.port(), is_local));
        self.address = Some(to.ip()).filter(|_| !is_local || listeners > 1);
        match found {
            None => Some(Server::Here(to.port())),
            Some(Ok(found)) => self.take(to, found),
            Some(Err(_)) if is_local && self.home.is_own() => Some(Server::Here(to.port())),
            Some(Err(unseen)) => Some(Server::Unseen(unseen)),
        }
    }

    /// The server was found by its connections, at its own address there.
    fn take(&mut self, to: SocketAddr, found: other_end::Found) -> Option<Server> {
        let is_named = |port| self.named.is_none_or(|named| named == port);
        if !is_named(to.port()) && !is_named(found.at.port()) {
            // The command asks several servers, and the named one may be met later.
            self.port = None;
            self.moves += 1;
            return None;
        }
        let is_far = found.network.id != self.home.network.id || found.at.port() != to.port();
        (self.known, self.ends_there) = (None, Some(true));
        self.far = match is_far {
            true => View::new(found.network)
                .ok()
                .map(|view| Far { view, at: found.at }),
            false => None,
        };
        self.columns.server_address = self.far.as_ref().map(|far| far.at.to_string());
        if let (Some(_), Some((_, is_local))) = (&self.far, &mut self.port) {
            *is_local = true;
        }
        if !is_far && found.hops.is_empty() && self.home.is_own() {
            return Some(Server::Here(to.port()));
        }
        Some(Server::There {
            pids: found.pids,
            hops: found.hops,
        })
    }

    /// Whether who listens at the server's port has accepted none of the command's connections: they
    /// are translated, and the port is only kept for that (podman).
    pub(in super::super) fn leads_away(&self) -> bool {
        self.ends_there == Some(false)
    }

    /// Looks again for a server whose processes were not found at its address.
    pub(in super::super) fn find_again(&mut self, own: &Own<'_>) -> Option<Server> {
        let (port, _) = self.port?;
        let (_, mut sockets) = self.own_sockets(own).into_iter().next()?;
        sockets.retain(|socket| socket.other_port == port);
        let to = sockets.first()?.addresses()[1];
        let found = other_end::follow(self.home.network.id, &sockets);
        found.map_or_else(
            |why| Some(Server::Unseen(why)),
            |found| self.take(to, found),
        )
    }

    fn is_judged(&self, to: SocketAddr) -> bool {
        let port = self.port.map(|(port, _)| port);
        port == Some(to.port()) && self.address.is_none_or(|address| address == to.ip())
    }

    /// Notes what the command is connected to. Where another server carries more than the judged
    /// one, that is judged from now on.
    pub(in super::super) fn look_at_own(&mut self, own: &Own<'_>) -> Option<Server> {
        self.see(own);
        let mut each = self.own_sockets(own);
        for (id, sockets) in &each {
            let serves = listening(sockets.iter());
            let clients = sockets.iter().filter(|one| !serves.contains(&one.own_port));
            self.peers[0].look(*id, clients, &HashSet::new());
        }
        let home = self.home.network.id;
        let carried = self.peers[0].carried();
        let judged = |(id, to): &(u64, SocketAddr)| *id == home && self.is_judged(*to);
        let judged_bytes: u64 = carried
            .iter()
            .filter(|(at, _)| judged(at))
            .map(|(_, bytes)| bytes)
            .sum();
        let others = carried.iter().filter(|(at, _)| !judged(at));
        let ((id, to), most) = others.max_by_key(|(_, bytes)| *bytes)?;
        if *most < FACTOR * judged_bytes + MORE_BYTES || self.moves == MOVES || self.is_told {
            return None;
        }
        let nth = each.iter().position(|(of, _)| of == id)?;
        let mut of = each.swap_remove(nth).1;
        of.retain(|socket| socket.addresses()[1] == *to);
        if of.is_empty() {
            return None;
        }
        self.moves += 1;
        self.settle(nth);
        self.begin_anew();
        // What these carried before belongs to no interval.
        let carried = of.iter().filter_map(|one| Some((one.cookie, one.carried?)));
        self.carried = carried.collect();
        self.locate(*to, &of)
    }

    /// What earlier intervals have of another server.
    fn begin_anew(&mut self) {
        (self.far, self.known, self.ends_there) = (None, None, None);
        self.owed = Owed::default();
        self.share = 1.0;
        self.peers[1..].fill_with(Peers::default);
        let intervals = self.intervals;
        let before = std::mem::take(&mut self.columns);
        let none = || vec![0.0; intervals];
        self.columns = Traffic {
            bytes: none(),
            segments: none(),
            retransmitted: none(),
            connections: none(),
            opened: none(),
            connecting: Some(none()),
            generator_unread_bytes: none(),
            generator_unread: Some(none()),
            unsent: Some(none()),
            idle: Some(none()),
            waiting: Some(none()),
            in_turn: Some(none()),
            time_wait: before.time_wait,
            ports_left: before.ports_left,
            ..Traffic::default()
        };
    }
}

/// The address that most of the command's own sockets are connected to, and those; `port`: of those
/// that lead there, if any do. Where the command serves too, its clients are not its servers.
pub(super) fn most_connected(own: Vec<Tcp>, port: Option<u16>) -> Option<(SocketAddr, Vec<Tcp>)> {
    let serves = listening(own.iter());
    let mut groups: BTreeMap<SocketAddr, Vec<Tcp>> = BTreeMap::new();
    for socket in own {
        if socket.other_port != 0 && !serves.contains(&socket.own_port) {
            groups
                .entry(socket.addresses()[1])
                .or_default()
                .push(socket);
        }
    }
    let groups = groups.into_iter();
    groups.max_by_key(|(to, of)| (port == Some(to.port()), of.len()))
}
