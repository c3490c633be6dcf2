//! Finds the servers of the experiment by the sockets of both sides: the judged one, and those that
//! stand behind it.

use super::kin::Whose;
use super::sockets::{Server, Sockets};
use super::store::Store;
use super::views::Own;
use super::{Sampler, side, threads};
use jostle_harness::accounts::ServerProcesses;
use jostle_model::ServerAt;
use jostle_model::judged::{Hop, ServerUnseen, StartedBy};
use jostle_sys::namespaces::network_of;
use jostle_sys::other_end::{self, Unseen};
use jostle_sys::serving::{self, Address};
use jostle_sys::sock_diag::{SockDiag, Tcp, Wanted};
use jostle_sys::stat;
use std::collections::BTreeSet;

impl Sampler<'_> {
    /// Looks for the server's processes.
    pub(super) fn know(&mut self, at: &ServerAt) {
        let server = ServerProcesses::find(Some(at), "", &[]);
        server.look();
        let roots = server.roots();
        self.serve(&roots);
        if let ServerAt::Port(port) = at {
            let mut names = roots.iter().filter_map(|pid| threads::name(*pid, *pid));
            self.store = names.find_map(|name| Store::ask(&name, *port));
        }
        self.found = Some((server, at.to_string()));
    }

    /// Takes note of where the server was found now, or why it was not.
    fn learn(&mut self, server: Server) {
        if !matches!(self.order.server, None | Some(ServerAt::Port(_))) {
            // The user has named its processes.
            return;
        }
        match server {
            Server::Here(port) => {
                let at = ServerAt::Port(port);
                let known = self.found.as_ref();
                let known = known.map(|(server, name)| (server.roots().len(), name));
                match known {
                    Some((1.., name)) if *name == at.to_string() => return,
                    Some(_) => self.forget(),
                    None => {}
                }
                self.know(&at);
                self.server.begin(&self.kin.pids(Whose::Server));
            }
            Server::There { pids, hops } => {
                let named = self.order.server.as_ref().map(ToString::to_string);
                let first = pids.first().map(|pid| format!("pid:{pid}"));
                self.forget();
                let found = ServerProcesses::find(None, "", &pids);
                self.serve(&pids);
                self.server.begin(&self.kin.pids(Whose::Server));
                self.found = named.or(first).map(|name| (found, name));
                self.stand_behind(&hops);
                self.hops.extend(hops);
                self.is_followed = true;
                self.watched.server_unseen = None;
            }
            Server::Unseen(why) => {
                self.watched.server_unseen = Some(match why {
                    Unseen::Nowhere => ServerUnseen::Machine,
                    Unseen::Namespaces => ServerUnseen::Namespaces,
                    Unseen::Owner => ServerUnseen::Owner,
                    Unseen::Forwarder(pid) => {
                        self.hops.insert(pid);
                        ServerUnseen::Forwarder
                    }
                });
            }
        }
    }

    /// The server that was judged so far is another program.
    fn forget(&mut self) {
        let intervals = self.watched.end_s.len();
        let before = std::mem::replace(&mut self.server, side::Watch::of_server_after(intervals));
        if let Some(others_s) = &mut self.watched.machine.others_s {
            before.give_back(others_s);
        }
        self.kin.forget_server();
        (self.found, self.store) = (None, None);
        self.hops.clear();
        self.is_followed = false;
    }

    /// Whether what was found at the server's address is not it, or not all: nobody, or who
    /// accepts for others.
    fn is_indirect(&self) -> bool {
        let Some((server, _)) = &self.found else {
            return false;
        };
        let home = network_of(std::process::id());
        let roots = server.roots();
        let is_elsewhere = |pid: &u32| other_end::may_relay(*pid) || network_of(*pid) != home;
        roots.is_empty() || roots.iter().any(is_elsewhere)
    }

    /// The forwarders between both sides.
    pub(super) fn hops(&self) -> Vec<Hop> {
        let members = self
            .hops
            .iter()
            .filter_map(|pid| Some((pid, self.kin.members.get(pid)?)));
        let each = members.map(|(pid, member)| Hop {
            name: member.name.clone(),
            pid: u64::from(*pid),
            cpu_s: super::rounded(member.total_ns as f64 / 1e9),
        });
        each.collect()
    }

    /// CPU time of the server before it was found was booked as that of other programs, or of the
    /// command that has started it.
    fn serve(&mut self, roots: &[u32]) {
        let port = self.sockets.as_ref().and_then(Sockets::port);
        let wanted = Wanted {
            other_port: port.unwrap_or(0),
            ..Wanted::default()
        };
        // Where the command has started them: there a client may be among them.
        let is_own = port.is_some() && self.kin.started_by(roots) == Some(StartedBy::Command);
        let clients = is_own.then(|| SockDiag::open()?.tcp(wanted));
        let clients = clients.and_then(Result::ok).unwrap_or_default();
        let clients: BTreeSet<u64> = clients.iter().map(|of| of.inode.into()).collect();
        let is_client = |pid| !serving::sockets_of(pid).is_disjoint(&clients);
        let (booked_ns, own) = self.kin.serve(roots, is_client);
        if let Some(others_s) = &mut self.watched.machine.others_s {
            self.server.take_over(booked_ns, others_s);
        }
        if !own.is_empty() {
            let used_ns = |pid: &u32| self.kin.members.get(pid).map_or(0, |of| of.total_ns);
            let used_ns: u64 = own.iter().map(used_ns).sum();
            self.generator_ns = self.generator_ns.saturating_sub(used_ns);
            self.generator.hand_over(&own, &mut self.server);
        }
        self.started_by = self.started_by.or_else(|| self.kin.started_by(roots));
    }

    /// Processes behind the server are no neighbours of the experiment, but a part of it: those at
    /// the other ends of its connections, and those that these ask.
    fn follow_behind(&mut self, mut newly: Vec<(Tcp, bool)>) {
        /// Servers behind servers that are followed, and connections that are.
        const HOPS: usize = 2;
        const FEW: usize = 8;
        for _ in 0..HOPS {
            let Some(sockets) = &mut self.sockets else {
                return;
            };
            let (network, is_own) = sockets.of_server();
            let at = |(socket, here): &(Tcp, bool)| match *here && is_own {
                true => serving::serving(&Address::Port(socket.other_port)),
                false => other_end::follow(network, std::slice::from_ref(socket))
                    .map_or(Vec::new(), |found| found.pids),
            };
            let roots: Vec<u32> = newly.iter().take(FEW).flat_map(at).collect();
            if roots.is_empty() {
                return;
            }
            self.stand_behind(&roots);
            let behind = self.kin.pids(Whose::Behind);
            let Some(sockets) = &mut self.sockets else {
                return;
            };
            newly = sockets.look_beside(&behind, 2);
        }
    }

    fn stand_behind(&mut self, roots: &[u32]) {
        if roots.is_empty() {
            return;
        }
        let booked_ns = self.kin.stand_behind(roots);
        let machine = &mut self.watched.machine;
        if let Some(others_s) = &mut machine.others_s {
            let behind_s = machine.behind_s.get_or_insert_default();
            behind_s.resize(others_s.len(), 0.0);
            side::take_over(behind_s, booked_ns, others_s);
        }
    }

    pub(super) fn look_at_sockets(&mut self, generators: &[u32], around: bool) {
        /// Looks at which the server's processes are looked for again: some fork
        /// others, or take over, when the first connections come. So are other connections of
        /// both sides, and again once in so many looks.
        const AGAIN: [usize; 3] = [3, 10, 30];
        const SELDOM: usize = 64;
        let looks = self.watched.end_s.len();
        let again = AGAIN.contains(&looks) || looks.is_multiple_of(SELDOM);
        let before_ns = stat::own_cpu_ns();
        let inherited = std::mem::take(&mut self.inherited);
        let own = Own {
            pids: generators,
            inherited: &inherited,
        };
        self.look_for_server(&own, again, around);
        self.searched_ns += stat::own_cpu_ns() - before_ns;
        if self.found.is_some() && (again || (around && self.has_downstream())) {
            let servers = self.kin.pids(Whose::Server);
            let newly = self.sockets.as_mut().map(|of| of.look_beside(&servers, 1));
            let before_ns = stat::own_cpu_ns();
            self.follow_behind(newly.unwrap_or_default());
            if again && self.watched.shared_network != Some(true) {
                self.watched.shared_network = self.is_shared();
            }
            self.searched_ns += stat::own_cpu_ns() - before_ns;
        }
        if let Some(sockets) = &mut self.sockets {
            sockets.look(&own, around);
            if let Some(link) = &mut self.link {
                link.keep(sockets, self.order.every_ns);
            }
            // Each descriptor of the server is looked at, so that this comes ever less often.
            if looks.is_power_of_two() {
                sockets.share_out(&self.kin.pids(Whose::Server));
            }
        }
        self.inherited = inherited;
    }

    fn look_for_server(&mut self, own: &Own<'_>, again: bool, around: bool) {
        /// Looks at which a server that was named may turn out to be elsewhere.
        const FIRST: usize = 5;
        let Some(sockets) = &mut self.sockets else {
            return;
        };
        let news = match sockets.is_found() {
            false => {
                let mut protocols = self.protocols.iter();
                let has_tcp = protocols.any(|name| name.contains("TCP"));
                sockets.find(own, has_tcp)
            }
            true if again => sockets.look_at_own(own),
            true => None,
        };
        if !sockets.is_found() {
            self.note_protocols(own);
            return;
        }
        let is_new = news.is_some();
        let serving = match &news {
            Some(Server::Here(port)) => serving::serving(&Address::Port(*port)),
            Some(Server::There { pids, .. }) => pids.clone(),
            _ => Vec::new(),
        };
        if let Some(server) = news {
            self.learn(server);
            // A server that is named otherwise may stand behind another, whose queues are not its
            // own.
            let own = self.kin.pids(Whose::Server);
            let is_its = own.is_empty() || serving.iter().any(|pid| own.contains(pid));
            if let (false, Some(sockets)) = (is_its || serving.is_empty(), &mut self.sockets) {
                sockets.disown();
            }
        } else if (again || (around && self.kin.server_is_gone()))
            && let Some((server, _)) = &self.found
        {
            server.look();
            let roots = server.roots();
            self.serve(&roots);
        }
        let first = self.watched.end_s.len() <= FIRST;
        if !(is_new || again || first) {
            return;
        }
        let is_unseen = self.watched.server_unseen.is_some() && !is_new;
        let leads_away = self.sockets.as_ref().is_some_and(Sockets::leads_away);
        if is_unseen || leads_away || (!self.is_followed && self.is_indirect()) {
            let found = self.sockets.as_mut().and_then(|of| of.find_again(own));
            let has_none = self.kin.pids(Whose::Server).is_empty();
            let is_better = |server: &Server| has_none || !matches!(server, Server::Unseen(_));
            if let Some(server) = found.filter(is_better) {
                self.learn(server);
            }
        }
    }

    /// The kinds of sockets that the command has, as long as none is known to lead to its server.
    fn note_protocols(&mut self, own: &Own<'_>) {
        let pids = own.pids.iter();
        let each = pids.flat_map(|pid| serving::protocols_of(*pid));
        let each = each.filter(|(inode, _)| !own.inherited.contains(inode));
        self.protocols.extend(each.map(|(_, protocol)| protocol));
        let mut protocols = self.protocols.iter();
        self.watched.unix_sockets |= protocols.any(|name| name.starts_with("UNIX"));
        self.are_hidden |= !own.are_whole();
    }

    fn has_downstream(&self) -> bool {
        self.sockets.as_ref().is_some_and(|of| of.has_downstream())
    }

    /// Whether others live in the network namespaces of both sides.
    pub(super) fn is_shared(&self) -> Option<bool> {
        let is_other = |pid: u32| {
            let member = self.kin.members.get(&pid);
            member.is_none_or(|member| matches!(member.whose, Whose::Other | Whose::Behind))
        };
        self.sockets.as_ref()?.is_shared(is_other)
    }
}
