//! Whether a point fits this machine. A refusal names the limit, what is
//! needed, what is there, and what to do; it comes before anything has started,
//! since a fork that fails at worker 480 of 1000 leaves only a mess to explain.

use jostle_harness::limits::{self, Limit};
use jostle_harness::{Refusal, bytes};
use jostle_model::connect::PortRange;
use jostle_model::plan::Carrier;
use jostle_sys::limits::Machine;
use jostle_sys::limits::text::Semaphores;

/// The resources that a point takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Workers that exist at the same time; of several hosts, one host's.
    pub workers: u64,
    /// The option that says how many there are in all.
    pub option: &'static str,
    /// Hosts among which they are dealt.
    pub hosts: u64,
    /// How many of these hosts are ranks on this machine.
    pub ranks: u64,
    /// The workers' carriers.
    pub carrier: Carrier,
    /// Threads that carry tasks.
    pub generator_threads: u64,
    /// Processes and threads that each worker starts for itself.
    pub started_each: u64,
    /// Descriptors that each worker opens for itself.
    pub descriptors_each: u64,
    /// Ports from here to one server: connections that are open at the same time.
    pub ports: u64,
    /// Ports of connections to it that were closed, and that rest while others are opened.
    pub resting_ports: u64,
    /// System V semaphores, in one set; 0 for targets that use none.
    pub semaphores: u64,
    /// Memory that each worker takes, its shared pages included.
    pub memory_each_bytes: u64,
    /// The largest block of memory shared by all; the kernel counts it as the
    /// size of a file.
    pub shared_bytes: u64,
}

/// Tasks of jostle itself beside the workers: the keeper, the cleaner, and the thread that
/// writes messages.
const OWN_TASKS: u64 = 3;

/// Descriptors of a worker beside its target's: the three standard ones, pipes,
/// shared memory, and what a parent may have left open.
const OWN_DESCRIPTORS: u64 = 32;

/// Address space of a process beside the memory shared by all: a worker was
/// seen to have 16 MiB, stack and libraries included.
const OWN_ADDRESS_SPACE: u64 = 32 << 20;

/// The limits of a fresh IPC namespace (SEMMSL, SEMMNS, SEMMNI in linux/sem.h).
const FRESH_NAMESPACE: Semaphores = Semaphores {
    per_set: 32_000,
    in_all: 1_024_000_000,
    sets: 32_000,
};

/// Whether a point with this need fits the machine as it is now.
///
/// # Errors
/// The first limit that it does not fit.
pub fn allow(need: &Need) -> Result<(), Refusal> {
    fits(need, &Machine::read())
}

/// Whether a point with this need fits a machine that has been read already.
///
/// # Errors
/// As [`allow`].
pub fn fits(need: &Need, machine: &Machine) -> Result<(), Refusal> {
    let checks = [
        tasks,
        descriptors,
        ports,
        files,
        semaphores,
        memory,
        shared_memory,
        address_space,
    ];
    checks.iter().try_for_each(|check| check(need, machine))
}

impl Need {
    /// Tasks of jostle itself; the first thread of a process of threads is no worker.
    fn own_tasks(&self) -> u64 {
        match self.carrier {
            Carrier::Processes => OWN_TASKS,
            Carrier::Threads | Carrier::Tasks => OWN_TASKS + 1,
        }
    }

    /// `10000 worker processes`.
    fn carriers(&self) -> String {
        match (self.workers, self.carrier) {
            (1, Carrier::Processes) => "1 worker process".to_owned(),
            (1, Carrier::Threads) => "1 worker thread".to_owned(),
            (1, Carrier::Tasks) => "1 task".to_owned(),
            (n, Carrier::Tasks) => format!("{n} tasks"),
            (n, carrier) => format!("{n} worker {carrier}"),
        }
    }

    /// `10000 worker processes need`, of one rank.
    fn opening(&self) -> String {
        let needs = if self.workers == 1 { "needs" } else { "need" };
        format!("{} {needs}", self.carriers())
    }

    /// `10000 worker processes need`, of all ranks of this machine.
    fn opening_of_all(&self) -> String {
        match self.ranks {
            1 => self.opening(),
            ranks => format!("{ranks} ranks with {} each need", self.carriers()),
        }
    }

    /// Refuses `more` of what a limit counts, of all ranks, if there is no room for it; `fewer`:
    /// the workers that fit into a room.
    fn within(
        &self,
        limit: Option<Limit<'_>>,
        more: u64,
        fewer: impl Fn(u64) -> u64,
    ) -> Result<(), Refusal> {
        let Some(limit) = limit.filter(|limit| limit.room() < more) else {
            return Ok(());
        };
        let text = format!(
            "{} {} {}, {} is {} ({} in use): {}{}",
            self.opening_of_all(),
            limit.amount(more),
            limit.unit,
            limit.owned(),
            limit.amount(limit.max),
            limit.amount(limit.used),
            limit.remedy(more),
            self.or_fewer(fewer(limit.room())),
        );
        let limit = limit.name;
        Err(Refusal { limit, text })
    }

    /// `, or -w at most 480`, unless not even one would fit. `at_most`: of one host.
    fn or_fewer(&self, at_most: u64) -> String {
        match at_most.min(self.workers.saturating_sub(1)) {
            0 => String::new(),
            n => format!(", or {} at most {}", self.option, n * self.hosts),
        }
    }
}

fn tasks(need: &Need, machine: &Machine) -> Result<(), Refusal> {
    let each = 1 + need.started_each;
    let carriers = match need.carrier {
        Carrier::Processes | Carrier::Threads => need.workers.saturating_mul(each),
        Carrier::Tasks => need.generator_threads,
    };
    let more = carriers
        .saturating_add(need.own_tasks())
        .saturating_mul(need.ranks);
    need.within(limits::tasks(machine), more, |room| {
        (room / need.ranks).saturating_sub(need.own_tasks()) / each
    })
}

fn descriptors(need: &Need, machine: &Machine) -> Result<(), Refusal> {
    // The process of the tasks raises its own limit.
    let limit = match need.carrier {
        Carrier::Processes | Carrier::Threads => machine.rlimits.descriptors.soft,
        Carrier::Tasks => machine.rlimits.descriptors.hard,
    };
    let Some(soft) = limit else {
        return Ok(());
    };
    let (whose, needed, at_most) = match need.carrier {
        Carrier::Processes => (
            "each",
            need.descriptors_each.saturating_add(OWN_DESCRIPTORS),
            0,
        ),
        Carrier::Threads | Carrier::Tasks => (
            "in one process",
            need.workers
                .saturating_mul(need.descriptors_each)
                .saturating_add(OWN_DESCRIPTORS),
            soft.saturating_sub(OWN_DESCRIPTORS) / need.descriptors_each.max(1),
        ),
    };
    if needed <= soft {
        return Ok(());
    }
    let hard = machine.rlimits.descriptors.hard;
    let mut remedy = limits::raise_rlimit("-n", "--nofile", hard, needed);
    if let Some(nr_open) = machine.kernel.nr_open.filter(|nr_open| *nr_open < needed) {
        remedy = format!("`sysctl -w fs.nr_open={needed}` (now {nr_open}), then {remedy}");
    }
    Err(Refusal {
        limit: "RLIMIT_NOFILE",
        text: format!(
            "{} {needed} descriptors {whose}, RLIMIT_NOFILE is {soft}: {remedy}{}",
            need.opening(),
            need.or_fewer(at_most),
        ),
    })
}

fn files(need: &Need, machine: &Machine) -> Result<(), Refusal> {
    let each = need.descriptors_each.saturating_mul(need.ranks);
    let more = need.workers.saturating_mul(each);
    need.within(limits::files(machine), more, |room| room / each.max(1))
}

/// Connections from one address to one server, each with a port of its own.
fn ports(need: &Need, machine: &Machine) -> Result<(), Refusal> {
    const WIDER: &str = "`sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"`";
    let Some(range) = machine.net.ports.map(PortRange::from) else {
        return Ok(());
    };
    let usable = range.count().saturating_sub(machine.net.reserved);
    let limit = "net.ipv4.ip_local_port_range";
    let open = need.ports.saturating_mul(need.ranks);
    if usable < open {
        return Err(Refusal {
            limit,
            text: format!(
                "{} {open} ports towards the server, {limit} has {usable}: {WIDER} as root{}",
                need.opening_of_all(),
                need.or_fewer(usable / need.ranks.max(1)),
            ),
        });
    }
    // connect(2) looks at every second port first, and from there on takes so long to find
    // one that this would be most of what is measured.
    let (even, _) = range.parities();
    let closed = need.resting_ports.saturating_mul(need.ranks);
    if even < closed {
        return Err(Refusal {
            limit,
            text: format!(
                "{closed} connections are opened and closed, and the port of each rests \
                 (TIME_WAIT) before it can be used again; {limit} has {even} that are found \
                 quickly: fewer sessions (-n, -w, --runs), {WIDER}, or towards other machines \
                 `sysctl -w net.ipv4.tcp_tw_reuse=1` as root, which lets ports rest for a second \
                 and not for a minute"
            ),
        });
    }
    Ok(())
}

fn semaphores(need: &Need, machine: &Machine) -> Result<(), Refusal> {
    const DEFAULTS: &str = "`sysctl -w kernel.sem=\"32000 1024000000 500 32000\"` as root";
    let wanted = need.semaphores;
    if wanted == 0 {
        return Ok(());
    }
    let refuse = |text| {
        Err(Refusal {
            limit: "kernel.sem",
            text,
        })
    };
    let Some(here) = machine.kernel.semaphores else {
        return refuse(
            "this kernel or container offers no System V semaphores (no kernel.sem): \
             take another target, such as posix-sem"
                .to_owned(),
        );
    };
    // With the right to, the keeper makes a namespace of its own, empty and
    // with the kernel's defaults, whatever this one looks like.
    let (limits, sets_used, used) = match machine.private_ipc {
        true => (FRESH_NAMESPACE, 0, 0),
        false => (
            here,
            machine.kernel.semaphore_sets_used,
            machine.kernel.semaphores_used,
        ),
    };
    let fewer = |room: u64| match room {
        0 | 1 => String::new(),
        n => format!(", or --slots at most {n}"),
    };
    let needed = format!("a set of {wanted} semaphores is needed");
    if limits.per_set < wanted {
        let max = limits.per_set;
        return refuse(format!(
            "{needed}, kernel.sem allows {max} in a set (SEMMSL): {DEFAULTS}{}",
            fewer(max)
        ));
    }
    let room = limits.in_all.saturating_sub(used);
    if room < wanted {
        return refuse(format!(
            "{needed}, kernel.sem allows {} in all (SEMMNS, {used} in use): {DEFAULTS}, or remove \
             sets that nobody uses (`ipcs -s`, `ipcrm`){}",
            limits.in_all,
            fewer(room)
        ));
    }
    if limits.sets <= sets_used {
        return refuse(format!(
            "{needed}, kernel.sem allows {} sets (SEMMNI, {sets_used} in use): {DEFAULTS}, or \
             remove sets that nobody uses (`ipcs -s`, `ipcrm`)",
            limits.sets
        ));
    }
    Ok(())
}

fn memory(need: &Need, machine: &Machine) -> Result<(), Refusal> {
    let each = need.memory_each_bytes.saturating_mul(need.ranks);
    let needed = need.workers.saturating_mul(each);
    // MemAvailable is the kernel's estimate, and the last tenth of it is had
    // only by reclaiming, which would be measured too.
    let available = machine.memory.map(|m| m.available_bytes / 10 * 9);
    if let Some(room) = available.filter(|room| *room < needed) {
        return Err(Refusal {
            limit: "MemAvailable",
            text: format!(
                "{} {} of memory, {} are free to use (nine tenths of MemAvailable): free some{}",
                need.opening_of_all(),
                bytes(needed),
                bytes(room),
                need.or_fewer(room / each.max(1)),
            ),
        });
    }
    need.within(limits::memory(machine), needed, |room| room / each.max(1))
}

/// Growing a file beyond RLIMIT_FSIZE kills with SIGXFSZ, and anonymous shared
/// memory is a file.
fn shared_memory(need: &Need, machine: &Machine) -> Result<(), Refusal> {
    match machine.rlimits.file_bytes.soft {
        Some(max) if max < need.shared_bytes => Err(Refusal {
            limit: "RLIMIT_FSIZE",
            text: format!(
                "{} {} of shared memory, RLIMIT_FSIZE is {}: `ulimit -f unlimited`{}",
                need.opening(),
                bytes(need.shared_bytes),
                bytes(max),
                need.or_fewer(max / (need.shared_bytes / need.workers.max(1)).max(1)),
            ),
        }),
        _ => Ok(()),
    }
}

/// Every process sees all of the shared memory.
fn address_space(need: &Need, machine: &Machine) -> Result<(), Refusal> {
    let needed = need.shared_bytes.saturating_add(OWN_ADDRESS_SPACE);
    match machine.rlimits.address_space_bytes.soft {
        Some(max) if max < needed => Err(Refusal {
            limit: "RLIMIT_AS",
            text: format!(
                "{} {} of address space, RLIMIT_AS is {}: `ulimit -v unlimited`{}",
                need.opening(),
                bytes(needed),
                bytes(max),
                need.or_fewer(
                    max.saturating_sub(OWN_ADDRESS_SPACE)
                        / (need.shared_bytes / need.workers.max(1)).max(1)
                ),
            ),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
