//! The owner of a process: the nearest of its ancestors that is known decides.

use jostle_sys::census::Identity;
use std::collections::BTreeMap;

/// The owner of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// It carries workers.
    Worker,
    /// A worker started it, or what a worker started did.
    Request,
    /// The server under test.
    Server,
    /// Jostle's other processes.
    Tool,
    /// A thread of the kernel.
    Kernel,
    /// Anything else.
    Other,
}

/// Processes with their parents, and those whose owner is known.
pub(super) struct Kin<'a> {
    /// The latest look first: what ends with the window is known from earlier ones.
    pub(super) looks: [&'a BTreeMap<u32, Identity>; 3],
    /// The first process of this jostle.
    pub(super) top: u32,
    /// Other processes named jostle are ranks of the same job.
    pub(super) of_a_job: bool,
    /// Processes that carry workers.
    pub(super) workers: &'a [u32],
    /// The server's own processes.
    pub(super) server: Vec<u32>,
}

/// Generations that are looked at.
const GENERATIONS: usize = 64;

impl Kin<'_> {
    fn identity(&self, pid: u32) -> Option<&Identity> {
        self.looks.iter().find_map(|look| look.get(&pid))
    }

    /// A server may have started jostle, as a test in the same program does, and jostle
    /// starts servers: the nearest ancestor decides.
    pub(super) fn owner(&self, pid: u32) -> Owner {
        if self
            .identity(pid)
            .is_some_and(|identity| identity.is_kernel)
        {
            return Owner::Kernel;
        }
        let mut at = pid;
        for _ in 0..GENERATIONS {
            if self.workers.contains(&at) {
                return if at == pid {
                    Owner::Worker
                } else {
                    Owner::Request
                };
            }
            if self.server.contains(&at) {
                return Owner::Server;
            }
            if at == self.top || self.is_of_the_job(at) {
                return Owner::Tool;
            }
            match self.identity(at) {
                Some(identity) if identity.parent > 0 => at = identity.parent,
                _ => break,
            }
        }
        Owner::Other
    }

    fn is_of_the_job(&self, pid: u32) -> bool {
        self.of_a_job && self.name(pid).starts_with("jostle")
    }

    /// As the kernel names it.
    pub(super) fn name(&self, pid: u32) -> String {
        let identity = self.identity(pid);
        identity.map_or_else(|| "?".to_owned(), |identity| identity.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_ancestor_that_is_known_decides() {
        let mut now = BTreeMap::new();
        let mut add = |pid: u32, name: &str, parent: u32, is_kernel: bool| {
            now.insert(
                pid,
                Identity {
                    name: name.to_owned(),
                    parent,
                    is_kernel,
                    reaped_ns: 0,
                },
            );
        };
        add(9, "kworker/0:1", 2, true);
        add(10, "python3", 1, false); // a server that starts jostle
        add(11, "worker of it", 10, false);
        add(20, "jostle", 10, false);
        add(21, "jostle-keeper", 20, false);
        add(22, "jostle-worker", 21, false);
        add(23, "sh", 22, false); // a request
        add(24, "grep", 23, false);
        add(30, "jostle", 21, false); // a server that jostle started
        add(40, "cargo", 1, false);
        add(41, "jostle", 40, false); // another job, or a rank of this one
        let none = BTreeMap::new();
        let kin = |of_a_job| Kin {
            looks: [&now, &none, &none],
            top: 20,
            of_a_job,
            workers: &[22],
            server: vec![10, 30],
        };
        for (pid, owner) in [
            (9, Owner::Kernel),
            (10, Owner::Server),
            (11, Owner::Server),
            (20, Owner::Tool),
            (21, Owner::Tool),
            (22, Owner::Worker),
            (23, Owner::Request),
            (24, Owner::Request),
            (30, Owner::Server),
            (40, Owner::Other),
            (41, Owner::Other),
            (99, Owner::Other),
        ] {
            assert_eq!(kin(false).owner(pid), owner, "{pid}");
        }
        assert_eq!(kin(true).owner(41), Owner::Tool);
        // As the first process of a container.
        let first = Kin {
            top: 1,
            ..kin(false)
        };
        assert_eq!(first.owner(40), Owner::Tool);
    }
}
