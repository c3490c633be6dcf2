//! The owner of each process of the machine, followed from birth: a process keeps its owner
//! when its parent ends before it.

use jostle_model::judged::StartedBy;
use jostle_sys::census::{self, Identity};
use jostle_sys::process;
use jostle_sys::stat::CpuClock;
use std::collections::{BTreeMap, BTreeSet};

/// The owner of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    /// The command, and what it has started.
    Generator,
    /// The server, and what it has started.
    Server,
    /// The processes on this machine that the server asks, those that these ask, and all that each
    /// has started.
    Behind,
    /// Jostle and its guard.
    Tool,
    /// A thread of the kernel.
    Kernel,
    /// Anybody else's.
    Other,
}

/// A process that is there.
#[derive(Debug)]
pub(super) struct Member {
    /// Its owner.
    pub whose: Whose,
    /// As the kernel names it.
    pub name: String,
    parent: u32,
    /// The owner of the guard that it descends from, if it was seen to.
    born: Option<Whose>,
    clock: Option<CpuClock>,
    /// CPU time up to the latest look.
    used_ns: u64,
    /// CPU time in the latest interval.
    pub latest_ns: u64,
    /// CPU time since it was first seen, or since its birth if that was seen.
    pub total_ns: u64,
}

/// All processes.
#[derive(Debug, Default)]
pub(super) struct Kin {
    /// Those that are there.
    pub members: BTreeMap<u32, Member>,
    /// Name and CPU time of other processes that have ended.
    ended: BTreeMap<u32, (String, u64)>,
    /// None until it is started.
    command: Option<u32>,
    tool: BTreeSet<u32>,
    /// Whose the descendants of each guard are: a guard adopts those that lose their parents.
    guards: BTreeMap<u32, Whose>,
    server: BTreeSet<u32>,
    /// Clients of the server among what it has started.
    clients: BTreeSet<u32>,
    behind: BTreeSet<u32>,
    /// CPU time of ended processes of the server that the command had started: it is a part of the
    /// command's own account.
    reaped_ns: u64,
}

/// Others that used less are not remembered when they end.
const NOTABLE_NS: u64 = 1_000_000;

/// Processes that have ended and are remembered.
const REMEMBERED: usize = 256;

impl Kin {
    /// Looks around for the first time, before the command is started: this takes longer
    /// than most looks, and is no part of its run. `server`: the guard under which jostle has
    /// started the server, and the first process of that.
    pub(super) fn new(server: Option<[u32; 2]>) -> Kin {
        let mut kin = Kin::default();
        if let Some([guard, first]) = server {
            kin.tool.insert(guard);
            kin.guards.insert(guard, Whose::Server);
            kin.server.insert(first);
        }
        kin.look(true);
        kin
    }

    /// Names the command, once it was started, and jostle's other process.
    pub(super) fn follow(&mut self, command: u32, guard: u32) {
        self.command = Some(command);
        self.tool.extend([std::process::id(), guard]);
        self.guards.insert(guard, Whose::Generator);
        for pid in [guard, command] {
            if !self.members.contains_key(&pid) {
                self.add(pid, false);
            }
        }
        self.reckon();
    }

    /// There is no command on this machine.
    pub(super) fn follow_none(&mut self) {
        self.tool = [std::process::id()].into();
        self.reckon();
    }

    /// Names the server's processes, once they are known, and returns the CPU time of these
    /// that was booked as that of other programs, and those that were the generator's. A client of
    /// the server remains the generator's, even if a process of the server has started it.
    pub(super) fn serve(
        &mut self,
        roots: &[u32],
        is_client: impl Fn(u32) -> bool,
    ) -> (u64, Vec<u32>) {
        let is_ours = |pid: &&u32| Some(**pid) == self.command || self.tool.contains(pid);
        self.server.extend(roots.iter().filter(|pid| !is_ours(pid)));
        let mut own = self.pids(Whose::Generator);
        let clients = own
            .iter()
            .filter(|pid| !roots.contains(pid) && is_client(**pid));
        self.clients.extend(clients);
        let booked_ns = self.moved(Whose::Server);
        own.retain(|pid| self.members[pid].whose == Whose::Server);
        (booked_ns, own)
    }

    /// Who has started these processes of the server: the command, or jostle (`--start-server`); None
    /// for those that were there before.
    pub(super) fn started_by(&self, roots: &[u32]) -> Option<StartedBy> {
        let born = |pid: &u32| self.members.get(pid)?.born;
        match roots.iter().find_map(born)? {
            Whose::Server => Some(StartedBy::Judge),
            _ => Some(StartedBy::Command),
        }
    }

    /// CPU time of ended processes of the server that is a part of the command's account.
    pub(super) fn reaped_ns(&mut self) -> u64 {
        self.look_around();
        self.reaped_ns
    }

    /// The server is another program's from now on.
    pub(super) fn forget_server(&mut self) {
        self.server.clear();
        self.reckon();
    }

    /// Names the processes that the server, or one behind it, is connected to, and returns their
    /// CPU time that was booked as that of other programs.
    pub(super) fn stand_behind(&mut self, roots: &[u32]) -> u64 {
        let is_other = |pid: &&u32| {
            let member = self.members.get(pid);
            member.is_none_or(|member| member.whose == Whose::Other)
        };
        self.behind.extend(roots.iter().filter(is_other));
        self.moved(Whose::Behind)
    }

    /// CPU time of those that were others', and now are this owner's.
    fn moved(&mut self, to: Whose) -> u64 {
        let others = self.pids(Whose::Other);
        self.reckon();
        let now = others.iter().filter_map(|pid| self.members.get(pid));
        let now = now.filter(|member| member.whose == to);
        now.map(|member| member.total_ns).sum()
    }

    /// Whether the server had processes, and none of them runs any more.
    pub(super) fn server_is_gone(&self) -> bool {
        !self.server.is_empty() && self.pids(Whose::Server).into_iter().all(process::is_over)
    }

    /// Decides anew whose each process is.
    fn reckon(&mut self) {
        let pids: Vec<u32> = self.members.keys().copied().collect();
        pids.into_iter().for_each(|pid| self.reckon_one(pid));
    }

    fn reckon_one(&mut self, pid: u32) {
        let whose = self.whose(pid);
        if let Some(member) = self.members.get_mut(&pid) {
            member.whose = whose;
        }
    }

    /// Reads the clocks of the processes that are watched, and returns what each owner
    /// used since its clocks were read last. `around`: those of all other processes too,
    /// and looks for new ones, which takes several times as long.
    pub(super) fn look(&mut self, around: bool) -> BTreeMap<Whose, u64> {
        if around {
            self.look_around();
        }
        let mut used: BTreeMap<Whose, u64> = BTreeMap::new();
        for member in self.members.values_mut() {
            if !around && matches!(member.whose, Whose::Other | Whose::Kernel) {
                continue;
            }
            let Some(now) = member.clock.and_then(CpuClock::read) else {
                continue;
            };
            let more = now.saturating_sub(member.used_ns);
            member.used_ns = member.used_ns.max(now);
            member.latest_ns = more;
            member.total_ns += more;
            *used.entry(member.whose).or_default() += more;
        }
        used
    }

    fn look_around(&mut self) {
        let there: BTreeSet<u32> = census::processes().into_iter().collect();
        for (pid, member) in self.members.extract_if(.., |pid, _| !there.contains(pid)) {
            if (member.whose, member.born) == (Whose::Server, Some(Whose::Generator)) {
                self.reaped_ns += member.total_ns;
            }
            let is_notable = member.whose == Whose::Other && member.total_ns >= NOTABLE_NS;
            if is_notable && self.ended.len() < REMEMBERED {
                self.ended.insert(pid, (member.name, member.total_ns));
            }
        }
        let first = self.members.is_empty();
        for pid in there {
            if !self.members.contains_key(&pid) {
                self.add(pid, first);
            }
        }
    }

    fn add(&mut self, pid: u32, first: bool) {
        let Some(identity) = Identity::of(pid) else {
            return;
        };
        let clock = CpuClock::of(pid).ok();
        // A process that was there before us counts from now on.
        let before = first.then(|| clock.and_then(CpuClock::read)).flatten();
        let member = Member {
            whose: if identity.is_kernel {
                Whose::Kernel
            } else {
                Whose::Other
            },
            born: match self.guards.get(&identity.parent) {
                Some(whose) => Some(*whose),
                None => self.members.get(&identity.parent).and_then(|of| of.born),
            },
            name: identity.name,
            parent: identity.parent,
            clock,
            used_ns: before.unwrap_or(0),
            latest_ns: 0,
            total_ns: 0,
        };
        self.members.insert(pid, member);
        self.reckon_one(pid);
    }

    /// The nearest ancestor that is known decides.
    fn whose(&self, pid: u32) -> Whose {
        /// Generations that are looked at.
        const GENERATIONS: usize = 64;
        let mut at = pid;
        for _ in 0..GENERATIONS {
            if Some(at) == self.command || self.clients.contains(&at) {
                return Whose::Generator;
            }
            if self.server.contains(&at) {
                return Whose::Server;
            }
            if self.behind.contains(&at) {
                return Whose::Behind;
            }
            if self.tool.contains(&at) {
                let adopted = self.guards.get(&at).filter(|_| at != pid);
                return adopted.copied().unwrap_or(Whose::Tool);
            }
            match self.members.get(&at) {
                Some(member) if member.whose == Whose::Kernel => return Whose::Kernel,
                Some(member) => at = member.parent,
                None => break,
            }
        }
        // Known from its birth, whoever adopted it since.
        let member = self.members.get(&pid);
        let known = member.filter(|member| member.whose != Whose::Other);
        let known = known.map(|member| member.whose);
        known
            .or(member.and_then(|member| member.born))
            .unwrap_or(Whose::Other)
    }

    /// The processes of an owner.
    pub(super) fn pids(&self, whose: Whose) -> Vec<u32> {
        let members = self.members.iter();
        let members = members.filter(|(_, member)| member.whose == whose);
        members.map(|(pid, _)| *pid).collect()
    }

    /// Other processes, dead ones too, with their names and CPU time, largest first.
    pub(super) fn others(&self) -> Vec<(u32, String, u64)> {
        let alive = self.members.iter();
        let alive = alive.filter(|(_, member)| member.whose == Whose::Other);
        let alive = alive.map(|(pid, member)| (*pid, member.name.clone(), member.total_ns));
        let ended = self.ended.iter();
        let ended = ended.map(|(pid, (name, ns))| (*pid, name.clone(), *ns));
        let mut all: Vec<_> = alive.chain(ended).collect();
        all.retain(|(_, _, ns)| *ns >= NOTABLE_NS);
        all.sort_by_key(|other| std::cmp::Reverse(other.2));
        all
    }
}

#[cfg(test)]
mod live_tests {
    use super::*;

    #[test]
    fn a_command_s_descendants_are_its_own_and_a_server_s_among_them_are_not() {
        // A shell that starts a "server" and a "client".
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 600 & sleep 600 & wait"])
            .spawn()
            .unwrap();
        let children = || -> Vec<u32> {
            let pids = census::processes().into_iter();
            let of_it = |pid: &u32| {
                Identity::of(*pid).is_some_and(|i| i.parent == shell.id() && i.name == "sleep")
            };
            pids.filter(of_it).collect()
        };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while children().len() < 2 && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let two = children();
        let mut kin = Kin::new(None);
        kin.follow(shell.id(), u32::MAX);
        assert_eq!(kin.pids(Whose::Generator).len(), 3, "{two:?}");
        // Other tests of this process have children too.
        assert!(kin.pids(Whose::Tool).contains(&std::process::id()));
        assert_eq!(kin.serve(&[two[0], shell.id()], |_| false).1, [two[0]]);
        // A part of the command is none of what stands behind its server.
        kin.stand_behind(&[two[1]]);
        assert!(kin.pids(Whose::Behind).is_empty());
        // What was the command's from its birth stays so; only roots move.
        assert_eq!(kin.pids(Whose::Server), [two[0]]);
        assert!(kin.pids(Whose::Generator).contains(&shell.id()));
        // An orphan keeps its owner.
        shell.kill().unwrap();
        shell.wait().unwrap();
        kin.look(true);
        assert_eq!(kin.pids(Whose::Generator), [two[1]]);
        for pid in two {
            jostle_sys::process::kill(pid);
        }
    }

    #[test]
    fn a_server_s_workers_are_its_own_though_the_command_has_started_both() {
        let member = |parent: u32| Member {
            whose: Whose::Generator,
            name: String::new(),
            parent,
            born: Some(Whose::Generator),
            clock: None,
            used_ns: 0,
            latest_ns: 0,
            total_ns: 7,
        };
        // A guard, the command, a server with a worker, a load, and a daemon that was adopted:
        // numbers that no process has.
        let [guard, command, server, worker, load, daemon, test] =
            [1, 2, 3, 4, 5, 6, 7].map(|n| n + (1 << 23));
        let parents = [
            (command, guard),
            (server, command),
            (worker, server),
            (load, command),
            (daemon, guard),
            // A load that the server's program has started.
            (test, server),
        ];
        let mut kin = Kin {
            members: parents.map(|(pid, parent)| (pid, member(parent))).into(),
            command: Some(command),
            tool: [guard].into(),
            guards: [(guard, Whose::Generator)].into(),
            ..Kin::default()
        };
        let served = kin.serve(&[server], |pid| pid == test);
        assert_eq!(served, (0, vec![server, worker]));
        assert_eq!(kin.pids(Whose::Generator), [command, load, daemon, test]);
        assert_eq!(kin.started_by(&[server]), Some(StartedBy::Command));
        // They are gone, and the command has waited for them.
        assert_eq!(kin.reaped_ns(), 14);
    }
}
