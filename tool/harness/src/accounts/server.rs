//! The server under test on this machine: the processes that hold the other ends of our
//! connections, with their threads and descendants, or those that `--server` names.

use jostle_model::ServerAt;
use jostle_sys::limits::net;
use jostle_sys::limits::other_group::OtherGroup;
use jostle_sys::serving::{self, Address, sockets_of};
use jostle_sys::sock_diag::{LISTEN, SockDiag, Wanted};
use jostle_sys::stat::CpuClock;
use jostle_sys::{census, namespaces, other_end, process, stat};
use jostle_targets::Spec;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Threads of a server whose waiting is read.
const THREADS: usize = 512;

/// Where its processes are found.
#[derive(Default)]
pub struct ServerProcesses {
    how: How,
    /// Found so far.
    roots: RefCell<BTreeSet<u32>>,
}

#[derive(Default)]
enum How {
    #[default]
    Unknown,
    Address(Address),
    /// At a port of another network namespace of this machine.
    Elsewhere(u16),
    Processes,
    Group(OtherGroup),
}

/// Its clocks at an edge of the window.
#[derive(Default)]
pub(super) struct Reading {
    group_ns: Option<u64>,
    /// Time that each of its threads waited for a CPU.
    waited_ns: BTreeMap<u32, u64>,
}

impl ServerProcesses {
    /// The server of a target. `embedded`: its processes, where it has named them itself or
    /// they were launched.
    pub fn find(named: Option<&ServerAt>, target: &str, embedded: &[u32]) -> ServerProcesses {
        let spec = Spec::parse(target).ok();
        let typed = || {
            let spec = spec.as_ref()?;
            let listens = |port: &u16| serving::is_served_elsewhere(*port);
            let elsewhere = || spec.port_elsewhere().filter(listens).map(How::Elsewhere);
            spec.address().map(How::Address).or_else(elsewhere)
        };
        let (how, known) = match (named, embedded) {
            (Some(named), _) => by_name(named),
            (None, [_, ..]) => (How::Processes, embedded.to_vec()),
            (None, []) => (typed().unwrap_or_default(), Vec::new()),
        };
        ServerProcesses {
            how,
            roots: RefCell::new(known.into_iter().collect()),
        }
    }

    /// Looks for its processes behind our connections; called outside the window, when
    /// connections may be open.
    pub fn look(&self) {
        let found = match &self.how {
            How::Address(address) => serving::serving(address),
            How::Elsewhere(port) => serving::elsewhere(*port),
            _ => return,
        };
        let found = found.into_iter().filter(|pid| is_server(*pid));
        self.roots.borrow_mut().extend(found);
    }

    /// Whether one of its processes that were found before listens on this machine now; None
    /// where none was found, or where its address is not known.
    pub fn listens(&self) -> Option<bool> {
        let roots = self.roots();
        let serves = match &self.how {
            How::Address(address) if serving::is_served(address) => serving::serving(address),
            How::Address(_) => Vec::new(),
            // Which of its ports is the one that is asked is not known.
            _ => return None,
        };
        (!roots.is_empty()).then(|| roots.iter().any(|pid| serves.contains(pid)))
    }

    /// Its processes, without their descendants.
    pub fn roots(&self) -> Vec<u32> {
        let mut roots: Vec<u32> = self.roots.borrow().iter().copied().collect();
        if let How::Group(group) = &self.how {
            roots.extend(group.processes());
        }
        roots
    }

    /// The TCP ports at which it is asked: its address's, or those at which its processes listen.
    pub fn ports(&self) -> BTreeSet<u16> {
        if let How::Address(address) = &self.how {
            return match address {
                Address::Port(port) => [*port].into(),
                Address::Unix(_) => BTreeSet::new(),
            };
        }
        let own: BTreeSet<u64> = self.family().into_iter().flat_map(sockets_of).collect();
        let wanted = Wanted {
            listeners: true,
            ..Wanted::default()
        };
        let all = SockDiag::open().and_then(|mut diag| diag.tcp(wanted));
        let all = all.unwrap_or_default().into_iter();
        all.filter(|socket| socket.state == LISTEN && own.contains(&u64::from(socket.inode)))
            .map(|socket| socket.own_port)
            .collect()
    }

    /// Its processes and those that they forked, such as the sessions of PostgreSQL. A
    /// server that has started jostle has us among them: we are left out.
    pub fn family(&self) -> Vec<u32> {
        let mut family = self.roots();
        let mut next = 0;
        while let Some(pid) = family.get(next).copied() {
            next += 1;
            let ours = std::process::id();
            let new = process::forked_by(pid).into_iter();
            let new = new.filter(|pid| *pid != ours && !family.contains(pid));
            let new: Vec<u32> = new.collect();
            family.extend(new);
        }
        family
    }

    /// Whether anything says where it is.
    pub fn is_known(&self) -> bool {
        !matches!(self.how, How::Unknown)
    }

    /// Its control group, if it is named by one.
    pub fn group(&self) -> Option<&OtherGroup> {
        match &self.how {
            How::Group(group) => Some(group),
            _ => None,
        }
    }

    /// CPU time of its processes so far, for whoever watches: not that of their
    /// descendants, which the accounts of a finished run have.
    pub fn cpu_ns(&self) -> Option<u64> {
        match self.group() {
            Some(group) => group.cpu_ns(),
            None => {
                let roots = self.roots.borrow();
                let each = roots
                    .iter()
                    .filter_map(|pid| CpuClock::of(*pid).ok()?.read());
                (!roots.is_empty()).then(|| each.sum())
            }
        }
    }

    /// Memory of its processes and of those that they started, in bytes: their own pages
    /// and their shares of shared ones. None where they may not be looked at.
    pub fn resident_bytes(&self) -> Option<u64> {
        let (roots, keeper) = (self.roots(), std::process::id());
        let of_it = |pid: &u32| {
            roots.iter().any(|root| {
                // A server may have started jostle.
                let ours = keeper != *root
                    && census::descends_from(keeper, *root)
                    && census::descends_from(*pid, keeper);
                census::descends_from(*pid, *root) && !ours
            })
        };
        let seen = roots.iter().all(|root| net::own_memory(*root).is_some());
        let family = census::processes().into_iter().filter(of_it);
        let bytes = family.filter_map(net::own_memory).sum();
        (seen && !roots.is_empty()).then_some(bytes)
    }

    /// At an edge of the window.
    pub(super) fn read(&self) -> Reading {
        let threads = self.family().into_iter().flat_map(|pid| {
            let threads = stat::threads_of(pid).into_iter();
            threads.map(move |tid| (pid, tid))
        });
        let waited = threads.take(THREADS).filter_map(|(pid, tid)| {
            let scheduled = stat::scheduled(pid, tid)?;
            Some((tid, scheduled.waited_ns))
        });
        Reading {
            group_ns: self.group().and_then(OtherGroup::cpu_ns),
            waited_ns: waited.collect(),
        }
    }

    /// CPU time between two readings: the group's own count, or else what the census
    /// has of its processes. None where none is known.
    pub(super) fn used(&self, from: &Reading, to: &Reading, counted_ns: u64) -> Option<u64> {
        match self.group() {
            Some(_) => Some(to.group_ns?.saturating_sub(from.group_ns?)),
            None => (!self.roots.borrow().is_empty()).then_some(counted_ns),
        }
    }

    /// Time that its threads waited for a CPU between two readings.
    pub(super) fn waited(&self, from: &Reading, to: &Reading) -> u64 {
        let each = to.waited_ns.iter();
        each.map(|(tid, to)| to.saturating_sub(from.waited_ns.get(tid).copied().unwrap_or(0)))
            .sum()
    }
}

fn by_name(named: &ServerAt) -> (How, Vec<u32>) {
    match named {
        ServerAt::Port(port) => (How::Address(Address::Port(*port)), Vec::new()),
        ServerAt::Unix(path) => (How::Address(Address::Unix(path.clone())), Vec::new()),
        ServerAt::Pid(pid) => (How::Processes, vec![*pid]),
        ServerAt::Group(place) => match OtherGroup::find(place) {
            Ok(group) => (How::Group(group), Vec::new()),
            Err(_) => (How::Unknown, Vec::new()),
        },
    }
}

/// The first process holds sockets for services that it starts on demand, and a proxy
/// those of servers elsewhere.
fn is_server(pid: u32) -> bool {
    pid > 1 && !other_end::forwards(pid)
}

/// The processes of a target's server on this machine, without their descendants; for
/// those who look before a run. Empty where none is known.
pub fn processes(named: Option<&ServerAt>, target: &str) -> Vec<u32> {
    let server = ServerProcesses::find(named, target, &[]);
    server.look();
    server.roots()
}

/// A hint for a server of this machine that belongs to another user: its process cannot be
/// found behind our connections, and counts as another program. None if the server is seen,
/// named, or on another machine.
pub fn unseen(named: Option<&ServerAt>, target: &str) -> Option<String> {
    let address = Spec::parse(target).ok().as_ref().and_then(Spec::address)?;
    let is_hidden =
        named.is_none() && serving::is_served(&address) && serving::serving(&address).is_empty();
    is_hidden.then(|| {
        format!(
            "the process behind {target} belongs to another user and cannot be found, so that \
             its CPU time counts as another program's; name it (--server pid:N), or run jostle \
             as root"
        )
    })
}

/// Whether `--server` names a server of this machine that can be watched.
///
/// # Errors
/// In words for the user.
pub fn check(named: &ServerAt) -> Result<(), String> {
    let refuse = |why: &str| Err(format!("--server {named}: {why}"));
    // In another namespace it is found once there are connections.
    let is_elsewhere = |address: &Address, found: &[u32]| match address {
        Address::Port(port) if !serving::is_served(address) => serving::is_served_elsewhere(*port),
        Address::Port(_) if !found.is_empty() => {
            found.iter().all(|pid| other_end::forwards(*pid)) && namespaces::networks().1
        }
        _ => false,
    };
    let looked_at = |address: &Address| match serving::serving(address) {
        found if is_elsewhere(address, &found) => Ok(()),
        _ if !serving::is_served(address) => {
            refuse("nobody listens there; start the server first, or name another (ss -ltnp)")
        }
        found if found.is_empty() => refuse(
            "its process cannot be seen by this user; run jostle as root or as the server's \
             user, or name the process (--server pid:N) or its control group",
        ),
        found if !found.iter().any(|pid| is_server(*pid)) => refuse(
            "what listens there accepts for others (the first process, a port proxy); name the \
             server's process (--server pid:N) or its control group (--server cgroup:PATH)",
        ),
        _ => Ok(()),
    };
    match named {
        ServerAt::Port(port) => looked_at(&Address::Port(*port)),
        ServerAt::Unix(path) => looked_at(&Address::Unix(path.clone())),
        ServerAt::Pid(1) => {
            refuse("that is the first process of the machine; name the server's own")
        }
        ServerAt::Pid(pid) if *pid == std::process::id() => {
            refuse("that is jostle itself; name the server's own process")
        }
        ServerAt::Pid(pid) if census::Identity::of(*pid).is_none() => {
            refuse("there is no such process")
        }
        ServerAt::Pid(_) => Ok(()),
        ServerAt::Group(place) => match OtherGroup::find(place) {
            Ok(_) => Ok(()),
            Err(error) => refuse(&error),
        },
    }
}

#[cfg(test)]
mod live_tests {
    use super::*;

    #[test]
    fn what_a_server_has_forked_belongs_to_it() {
        let mut sh = std::process::Command::new("sh")
            .args(["-c", "sleep 600 & wait"])
            .spawn()
            .unwrap();
        let server = ServerProcesses::default();
        server.roots.borrow_mut().insert(sh.id());
        let started = std::time::Instant::now();
        while server.family().len() < 2 && started.elapsed().as_secs() < 120 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let family = server.family();
        family[1..].iter().for_each(|pid| process::kill(*pid));
        sh.wait().unwrap();
        assert_eq!((family[0], family.len()), (sh.id(), 2), "{family:?}");
    }

    #[test]
    fn what_is_no_server_is_refused_with_what_would_do() {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = nobody.local_addr().unwrap().port();
        let ours = ServerAt::Pid(std::process::id());
        assert_eq!(check(&ServerAt::Port(port)), Ok(()));
        drop(nobody);
        // A process that another test has just forked has it too, until it becomes a program.
        let started = std::time::Instant::now();
        while check(&ServerAt::Port(port)).is_ok() && started.elapsed().as_secs() < 120 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        for (named, why) in [
            (ServerAt::Port(port), "nobody listens"),
            (ServerAt::Unix("/nowhere/s".to_owned()), "nobody listens"),
            (ServerAt::Pid(1), "first process"),
            (ours, "jostle itself"),
            // One above the largest number that Linux ever gives a process.
            (ServerAt::Pid(4 << 20 | 1), "no such process"),
            (
                ServerAt::Group("/no/such/group".to_owned()),
                "no control group",
            ),
        ] {
            let error = check(&named).unwrap_err();
            assert!(error.contains(why), "{named}: {error}");
        }
        let parent = std::os::unix::process::parent_id();
        assert_eq!(check(&ServerAt::Pid(parent)), Ok(()));
    }

    #[test]
    fn a_server_is_found_by_the_address_of_its_target() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = ServerProcesses::find(None, &format!("tcp://127.0.0.1:{port}"), &[]);
        assert_eq!(server.roots(), [0; 0]);
        server.look();
        // Beside it, perhaps, what another test has just forked.
        assert!(server.roots().contains(&std::process::id()));
        let (from, to) = (server.read(), server.read());
        assert_eq!(server.used(&from, &to, 7), Some(7));
        assert!(
            ServerProcesses::find(None, "flock", &[])
                .used(&from, &to, 0)
                .is_none()
        );
        assert!(server.resident_bytes().unwrap() > 100_000);
        assert_eq!(
            ServerProcesses::find(None, "flock", &[]).resident_bytes(),
            None
        );
    }
}
