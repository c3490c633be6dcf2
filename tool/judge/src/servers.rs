//! Finds the servers of the experiment by the sockets of both sides: the judged one, and those that
//! stand behind it.

use super::kin::Whose;
use super::store::Store;
use super::{Sampler, Sockets, side, threads};
use jostle_harness::accounts::ServerProcesses;
use jostle_model::ServerAt;
use jostle_model::judged::StartedBy;
use jostle_sys::serving::{self, Address};
use jostle_sys::sock_diag::{SockDiag, Wanted};
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
    /// these ports, at the other end of its connections, and those that these ask.
    fn follow_behind(&mut self, mut ports: BTreeSet<u16>) {
        /// Servers behind servers that are followed.
        const HOPS: usize = 2;
        for _ in 0..HOPS {
            let at = |port: &u16| serving::serving(&Address::Port(*port));
            let roots: Vec<u32> = ports.iter().flat_map(at).collect();
            if roots.is_empty() {
                return;
            }
            let booked_ns = self.kin.stand_behind(&roots);
            let machine = &mut self.watched.machine;
            if let Some(others_s) = &mut machine.others_s {
                let behind_s = machine.behind_s.get_or_insert_default();
                behind_s.resize(others_s.len(), 0.0);
                side::take_over(behind_s, booked_ns, others_s);
            }
            let Some(sockets) = &mut self.sockets else {
                return;
            };
            ports = sockets.look_beside(&inodes(&self.kin.pids(Whose::Behind)), 2);
        }
    }

    pub(super) fn look_at_sockets(&mut self, generators: &[u32], around: bool) {
        /// Looks at which the server's processes are looked for again: some fork
        /// others, or take over, when the first connections come. So are other connections of
        /// both sides, and again once in so many looks.
        const AGAIN: [usize; 3] = [3, 10, 30];
        const SELDOM: usize = 64;
        let looks = self.watched.end_s.len();
        let before_ns = stat::own_cpu_ns();
        let Some(sockets) = &mut self.sockets else {
            return;
        };
        let port = match sockets.is_found() {
            true => None,
            false => {
                let inodes = inodes(generators);
                let own: BTreeSet<u64> = inodes.difference(&self.inherited).copied().collect();
                let port = sockets.find(&own);
                let is_found = sockets.is_found();
                let hidden = !is_found && !own.is_empty() && serving::has_unix(&own);
                self.watched.unix_sockets |= hidden;
                port
            }
        };
        if let (Some(port), None) = (port, &self.found) {
            self.know(&ServerAt::Port(port));
            self.server.begin(&self.kin.pids(Whose::Server));
        } else if let Some((server, _)) = &self.found
            && (AGAIN.contains(&looks) || (around && self.kin.server_is_gone()))
        {
            server.look();
            let roots = server.roots();
            self.serve(&roots);
        }
        // A server that is named otherwise may stand behind another, whose queues are not its own.
        let others_port = port.filter(|port| {
            let own = self.kin.pids(Whose::Server);
            let serving = serving::serving(&Address::Port(*port));
            !own.is_empty() && !serving.iter().any(|pid| own.contains(pid))
        });
        self.searched_ns += stat::own_cpu_ns() - before_ns;
        let Some(sockets) = &mut self.sockets else {
            return;
        };
        if others_port.is_some() {
            sockets.disown();
        }
        let again = AGAIN.contains(&looks) || looks.is_multiple_of(SELDOM);
        if again && sockets.is_found() {
            sockets.look_beside(&inodes(generators), 0);
        }
        if self.found.is_some() && (again || (around && sockets.has_downstream())) {
            let ports = sockets.look_beside(&inodes(&self.kin.pids(Whose::Server)), 1);
            let before_ns = stat::own_cpu_ns();
            self.follow_behind(ports);
            self.searched_ns += stat::own_cpu_ns() - before_ns;
        }
        let Some(sockets) = &mut self.sockets else {
            return;
        };
        sockets.look();
        if let Some(link) = &mut self.link {
            link.keep(sockets, self.order.every_ns);
        }
        // Each descriptor of the server is looked at, so that this comes ever less often.
        if looks.is_power_of_two() {
            sockets.share_out(&self.kin.pids(Whose::Server));
        }
    }
}

/// The sockets that these processes have open.
pub(super) fn inodes(pids: &[u32]) -> BTreeSet<u64> {
    let each = pids.iter().take(64);
    each.flat_map(|pid| serving::sockets_of(*pid)).collect()
}
