//! The limits that connections run into: each limit and the number of
//! connections at which it comes, reported before the first one; and the
//! meaning of an error that comes after all.
//!
//! Pure functions of one reading of the machine.

use crate::processes::{RESERVE, Size};
use jostle_harness::limits;
use jostle_harness::{Refusal, bytes};
use jostle_model::Remedy;
use jostle_model::connect::{NextLimit, Only, PortRange};
use jostle_model::plan::Plan;
use jostle_model::record::At;
use jostle_sys::limits::Machine;
use jostle_targets::Spec;
use jostle_worker::order::Demand;

/// The memory that the kernel was seen to keep of one TCP connection with both ends here, tables of
/// descriptors included: 8.0 to 8.7 KiB (lab/record/connections.md), and a margin.
pub const TCP_BYTES: u64 = 10_000;
/// Memory of one end.
const END_BYTES: u64 = TCP_BYTES / 2;

/// Whether a source address is bound (with its port: false, without: true), or
/// none. One address is only bound where the plan says so.
pub fn bound(plan: &Plan, sources: u64) -> Option<bool> {
    let bind_alone = plan.only == Some(Only::Bind);
    match plan.bind_no_port {
        _ if bind_alone => Some(false),
        Some(without) => Some(without),
        None if sources > 1 => Some(true),
        None => None,
    }
}

/// The demands of one curve of the plan on the machine.
pub fn demand(plan: &Plan, spec: &Spec, at: At) -> Demand {
    let sources = at.sources.unwrap_or(1);
    let embedded = spec.argument.is_none();
    let alone = plan.only == Some(Only::Bind);
    Demand {
        has_ports: spec.entry.has_ports(),
        embedded: embedded && !alone,
        sources,
        ports: plan.ports(),
        port_range: plan.port_range,
        alone,
        binds_port: bound(plan, sources) == Some(false),
        acceptors: plan.acceptors(),
        listeners: at.listeners.unwrap_or(0),
        bytes_each: if embedded && !alone {
            TCP_BYTES
        } else {
            END_BYTES
        },
    }
}

fn size(load: &Demand, open: u64, machine: &Machine) -> Size {
    Size {
        open,
        listeners: load.listeners,
        acceptors: if load.embedded { load.acceptors } else { 0 },
        reserve: RESERVE + load.ports * load.acceptors,
        limit: machine.rlimits.descriptors.hard,
    }
}

/// Memory that is left to others whatever happens: a tenth, at most 1 GiB.
pub fn memory_floor(machine: &Machine) -> u64 {
    let total = machine.memory.map_or(0, |memory| memory.total_bytes);
    let bound = machine.cgroup.memory.as_ref().map_or(total, |b| b.max);
    (total.min(bound) / 10).min(1 << 30)
}

/// Every limit with the number of connections at which it is reached, the
/// nearest first. Descriptors of one process are none: there are as many
/// processes as it takes.
pub fn nearest(load: &Demand, machine: &Machine) -> Vec<NextLimit> {
    let each = [ports, processes, files, memory, conntrack];
    let mut limits: Vec<NextLimit> = each.iter().filter_map(|f| f(load, machine)).collect();
    limits.sort_by_key(|limit| limit.at);
    limits
}

fn limit(name: &str, at: u64, remedy: String) -> NextLimit {
    NextLimit {
        name: name.to_owned(),
        at,
        remedy,
    }
}

fn ports(load: &Demand, machine: &Machine) -> Option<NextLimit> {
    let range = load.port_range.or(machine.net.ports.map(PortRange::from))?;
    if !load.has_ports {
        return None;
    }
    let usable = range.count().saturating_sub(machine.net.reserved);
    Some(limit(
        "ephemeral ports",
        usable * load.pairs(),
        more_ports(load, range),
    ))
}

/// The way to more of them.
fn more_ports(load: &Demand, range: PortRange) -> String {
    let wider = match range {
        _ if load.port_range.is_some() => "a wider --port-range".to_owned(),
        PortRange { low, .. } if low > 1_024 => {
            "`sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"`".to_owned()
        }
        _ => "another network namespace".to_owned(),
    };
    let more = more_sources(load);
    match (load.embedded, load.binds_port) {
        (true, false) => format!("--sources {more}, --ports {}, or {wider}", 2 * load.ports),
        (_, true) => format!("--sources {more}, or {wider}"),
        (false, false) => wider,
    }
}

fn processes(load: &Demand, machine: &Machine) -> Option<NextLimit> {
    let each = size(load, 1, machine).crew()?.each;
    let tasks = limits::tasks(machine)?;
    let (room, name) = (tasks.room(), tasks.owned());
    let sides = 1 + u64::from(load.embedded);
    Some(limit(
        &format!("descriptors of the {room} processes that {name} allows"),
        (room / sides).saturating_mul(each),
        format!("raise {name}, or the limit on descriptors (`ulimit -Hn`)"),
    ))
}

fn files(load: &Demand, machine: &Machine) -> Option<NextLimit> {
    let files = limits::files(machine)?;
    let sides = 1 + u64::from(load.embedded);
    Some(limit(
        files.name,
        files.room() / sides,
        format!("`sysctl -w fs.file-max={}`", files.max.saturating_mul(2)),
    ))
}

fn memory(load: &Demand, machine: &Machine) -> Option<NextLimit> {
    let memory = machine.memory?;
    let bound = limits::memory(machine).map_or(u64::MAX, |bound| bound.room());
    let room = bound.min(memory.available_bytes);
    let room = room.saturating_sub(memory_floor(machine));
    Some(limit(
        "memory",
        room / load.bytes_each.max(1),
        format!(
            "free some, or fewer connections; each takes about {}",
            bytes(load.bytes_each)
        ),
    ))
}

/// Only where it counts at all: it may be there without watching anything.
fn conntrack(load: &Demand, machine: &Machine) -> Option<NextLimit> {
    let (max, count) = machine.net.conntrack.filter(|(_, count)| *count > 0)?;
    load.has_ports.then(|| {
        limit(
            "net.netfilter.nf_conntrack_max",
            max.saturating_sub(count),
            format!("`sysctl -w net.netfilter.nf_conntrack_max={}`", 4 * max),
        )
    })
}

/// Warnings before a curve is measured.
///
/// # Errors
/// A limit that not even the smallest number of connections fits.
pub fn forecast(load: &Demand, open: &[u64], machine: &Machine) -> Result<Vec<String>, Refusal> {
    let (Some(least), Some(most)) = (open.iter().min(), open.iter().max()) else {
        return Ok(Vec::new());
    };
    if size(load, *most, machine).crew().is_none() {
        return Err(Refusal {
            limit: "RLIMIT_NOFILE",
            text: format!(
                "a process needs {} descriptors before its first connection, and its hard limit \
                 is {}: raise it (`prlimit --pid $$ --nofile=20000` as root){}",
                RESERVE + load.ports * load.acceptors + 1,
                machine.rlimits.descriptors.hard.unwrap_or(0),
                machine
                    .kernel
                    .nr_open
                    .map_or_else(String::new, |most| format!(", up to fs.nr_open, {most}")),
            ),
        });
    }
    let mut notes = Vec::new();
    let mut nearest = nearest(load, machine).into_iter();
    let nearest = nearest.find(|limit| limit.at < *most);
    if let Some(limit) = nearest {
        if limit.at < *least {
            return Err(Refusal {
                limit: "connections",
                text: format!(
                    "{} connections reach {} at {}: {}",
                    least, limit.name, limit.at, limit.remedy
                ),
            });
        }
        notes.push(format!(
            "{most} connections will not be reached: {} ends at {}; {}",
            limit.name, limit.at, limit.remedy
        ));
    }
    notes.extend(waiting(load, machine));
    Ok(notes)
}

/// Things that the tool cannot change, and that do not stop it.
fn waiting(load: &Demand, machine: &Machine) -> Option<String> {
    let somaxconn = machine.net.somaxconn.filter(|n| *n < 128)?;
    load.embedded.then(|| {
        format!(
            "net.core.somaxconn is {somaxconn}: clients wait whenever as many connections are \
             not accepted yet; `sysctl -w net.core.somaxconn=4096`"
        )
    })
}

/// The limit that an error of a call means for connection number `nth`, and what lifts it.
pub fn explain(call: &str, error: &str, nth: u64, load: &Demand, machine: &Machine) -> String {
    let open = nth.saturating_sub(1);
    let what = meaning(call, error, open, load, machine);
    let call = match call {
        "memory" => String::new(),
        call => format!("{call}(): "),
    };
    let things = if load.alone { "sockets" } else { "connections" };
    format!("{error} after {open} {things}: {call}{what}")
}

/// Why no server was reached.
fn unreached(error: &str) -> &'static str {
    match error {
        "ECONNREFUSED" => {
            "nobody listens there (any more), or the server refuses; start it, or correct the \
             address"
        }
        "ENOENT" => "there is no socket at this path; start the server",
        "EACCES" | "EPERM" => {
            "the system forbids it: rights on the path, a firewall, or a full conntrack table \
             (net.netfilter.nf_conntrack_max)"
        }
        _ => "there is no way to this address",
    }
}

fn meaning(call: &str, error: &str, open: u64, load: &Demand, machine: &Machine) -> String {
    let range = load.port_range.or(machine.net.ports.map(PortRange::from));
    let ports = range.map_or_else(|| "the range".to_owned(), |range| range.to_string());
    let more = || range.map_or_else(|| "--sources 2".to_owned(), |range| more_ports(load, range));
    match (error, call) {
        ("EADDRNOTAVAIL", _) if load.has_ports => format!(
            "no port of {ports} is left from {} to {}{}; {}",
            counted(load.sources, "source address", "source addresses"),
            counted(load.ports, "destination port", "destination ports"),
            resting(open, load, range, machine),
            more()
        ),
        ("EADDRINUSE", _) => format!(
            "no port of {ports} is left on {}; {}{}",
            counted(load.sources, "source address", "source addresses"),
            more(),
            match load.alone {
                true => "",
                false =>
                    ", or --bind-no-port, with which connect() shares ports between \
                          destinations",
            }
        ),
        ("EMFILE", _) => format!(
            "the process has no descriptor left of {} (RLIMIT_NOFILE); `ulimit -Hn` shows how \
             far it can be raised, fs.nr_open how far root can raise that",
            machine.rlimits.descriptors.hard.unwrap_or(0)
        ),
        ("ENFILE", _) => format!(
            "the machine has no open file left of {} (fs.file-max); `sysctl -w fs.file-max={}`",
            machine.kernel.file_max.unwrap_or(0),
            machine.kernel.file_max.unwrap_or(0).saturating_mul(2)
        ),
        ("ENETUNREACH" | "EHOSTUNREACH" | "ECONNREFUSED" | "ENOENT" | "EACCES" | "EPERM", _) => {
            unreached(error).to_owned()
        }
        ("ETIMEDOUT", _) => format!(
            "no answer for 5 s: the server does not accept and its backlog is full (at most \
             net.core.somaxconn, {} here), or packets are dropped on the way (conntrack, \
             firewall); look at `ss -lt` on the server",
            machine.net.somaxconn.unwrap_or(0)
        ),
        ("ENOMEM", "memory") => format!(
            "stopped by jostle before memory runs out: under {} would be left; free some, or \
             fewer connections (--open)",
            bytes(memory_floor(machine))
        ),
        ("ENOBUFS" | "ENOMEM", _) => {
            "the kernel has no memory for another socket; see net.ipv4.tcp_mem and the cgroup's \
             limit, or fewer connections (--open)"
                .to_owned()
        }
        ("ENOPROTOOPT", _) => {
            "this kernel does not know the option: --port-range needs Linux 6.3, --bind-no-port \
             4.2"
            .to_owned()
        }
        ("EINVAL", "connect") => {
            "a source address of 127.0.0.0/8 reaches this machine only; --sources 1".to_owned()
        }
        _ => "the system's limits are listed by `jostle doctor`".to_owned(),
    }
}

/// The option that lifts the limit, where there is one.
pub fn remedy(error: &str, call: &str, load: &Demand) -> Option<Remedy> {
    let by_sources = load.embedded || load.binds_port;
    match (error, call) {
        ("EADDRNOTAVAIL", _) if load.has_ports && by_sources => {
            Some(Remedy::with("--sources", more_sources(load)))
        }
        ("EADDRINUSE", _) if by_sources => Some(Remedy::with("--sources", more_sources(load))),
        ("EINVAL", "connect") => Some(Remedy::with("--sources", 1)),
        _ => None,
    }
}

fn more_sources(load: &Demand) -> u64 {
    (2 * load.sources).max(2)
}

/// Where fewer were open than there are ports: what else has some.
fn resting(open: u64, load: &Demand, range: Option<PortRange>, machine: &Machine) -> String {
    let all = range.map_or(0, PortRange::count) * load.pairs();
    match machine.net.time_wait {
        Some(resting) if resting > 0 && open + machine.net.reserved < all => format!(
            " ({resting} rested in TIME_WAIT before: that takes a minute, and --close rst leaves \
             none)"
        ),
        _ => String::new(),
    }
}

fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_sys::limits::text::Memory;

    fn machine() -> Machine {
        let mut machine = Machine::default();
        machine.rlimits.descriptors.hard = Some(20_000);
        machine.kernel.pid_max = Some(32_768);
        machine.kernel.tasks = Some(768);
        machine.kernel.file_max = Some(2_000_000);
        machine.status.sys_admin = true;
        machine.net.ports = Some((32_768, 60_999));
        machine.net.somaxconn = Some(4_096);
        machine.memory = Some(Memory {
            total_bytes: 24 << 30,
            available_bytes: 20 << 30,
            ..Memory::default()
        });
        machine
    }

    const ONE: Demand = Demand {
        has_ports: true,
        embedded: true,
        sources: 1,
        ports: 1,
        port_range: None,
        alone: false,
        binds_port: false,
        acceptors: 1,
        listeners: 0,
        bytes_each: TCP_BYTES,
    };

    #[test]
    fn limits_come_in_order_each_with_what_lifts_it() {
        let found = nearest(&ONE, &machine());
        let names: Vec<(&str, u64)> = found.iter().map(|l| (l.name.as_str(), l.at)).collect();
        assert_eq!(names[0], ("ephemeral ports", 28_232));
        // (20 GiB - 1 GiB) / 10 kB
        assert_eq!(names[1], ("memory", 2_040_109));
        // 768 of 32,768 pids are in use, and the kernel skips 300.
        assert!(names[2].0.contains("31700 processes that kernel.pid_max"));
        assert!(
            found[0]
                .remedy
                .starts_with("--sources 2, --ports 2, or `sysctl")
        );
        let many = Demand {
            sources: 64,
            ports: 8,
            ..ONE
        };
        assert_eq!(nearest(&many, &machine())[0].name, "memory");
        let early = Demand {
            binds_port: true,
            ..many
        };
        assert_eq!(early.pairs(), 64, "a bound port serves one destination");
        let unix = Demand {
            has_ports: false,
            ..ONE
        };
        assert!(
            nearest(&unix, &machine())
                .iter()
                .all(|l| l.name != "ephemeral ports")
        );
        let mut plain = machine();
        plain.status.sys_admin = false;
        plain.kernel.files = Some(1_999_000);
        assert_eq!(
            nearest(&ONE, &plain)[0].at,
            500,
            "fs.file-max, two files each"
        );
        let mut tracked = machine();
        tracked.net.conntrack = Some((262_144, 0));
        assert!(
            nearest(&ONE, &tracked)
                .iter()
                .all(|l| !l.name.contains("conntrack"))
        );
        tracked.net.conntrack = Some((10_000, 50));
        assert_eq!(nearest(&ONE, &tracked)[0].at, 9_950);
    }

    #[test]
    fn what_cannot_be_reached_is_said_before_and_what_cannot_begin_is_refused() {
        let notes = |open: &[u64]| forecast(&ONE, open, &machine());
        assert_eq!(notes(&[1_000, 20_000]), Ok(Vec::new()));
        let some = notes(&[1_000, 40_000]).unwrap();
        assert!(
            some[0].contains("ephemeral ports ends at 28232; --sources 2"),
            "{some:?}"
        );
        let none = notes(&[30_000, 40_000]).unwrap_err().text;
        assert!(
            none.contains("30000 connections reach ephemeral ports at 28232"),
            "{none}"
        );
        let mut poor = machine();
        poor.rlimits.descriptors.hard = Some(30);
        let text = forecast(&ONE, &[10], &poor).unwrap_err().text;
        assert!(text.contains("hard limit is 30"), "{text}");
        let mut small = machine();
        small.net.somaxconn = Some(8);
        let some = forecast(&ONE, &[10], &small).unwrap();
        assert!(some[0].contains("net.core.somaxconn is 8"), "{some:?}");
    }

    #[test]
    fn every_error_is_explained_by_its_limit_and_remedy() {
        let table = [
            (
                "connect",
                "EADDRNOTAVAIL",
                "no port of 32768-60999 is left from 1 source address",
            ),
            ("bind", "EADDRINUSE", "--bind-no-port"),
            ("accept4", "EMFILE", "20000 (RLIMIT_NOFILE)"),
            ("socket", "ENFILE", "sysctl -w fs.file-max=4000000"),
            ("connect", "ECONNREFUSED", "nobody listens"),
            ("connect", "ETIMEDOUT", "net.core.somaxconn, 4096"),
            ("socket", "ENOBUFS", "net.ipv4.tcp_mem"),
            ("memory", "ENOMEM", "before memory runs out: under 1.0 GiB"),
            ("connect", "EPERM", "nf_conntrack_max"),
            ("setsockopt", "ENOPROTOOPT", "Linux 6.3"),
            ("connect", "ENOENT", "no socket at this path"),
            ("connect", "EIO", "jostle doctor"),
        ];
        for (call, error, says) in table {
            let text = explain(call, error, 101, &ONE, &machine());
            assert!(!text.contains("TIME_WAIT"), "{text}");
            assert!(
                text.starts_with(&format!("{error} after 100 connections: ")),
                "{text}"
            );
            assert!(text.contains(says), "{text}");
        }
        let mut rested = machine();
        rested.net.time_wait = Some(28_000);
        let early = explain("connect", "EADDRNOTAVAIL", 101, &ONE, &rested);
        assert!(
            early.contains("28000 rested in TIME_WAIT before"),
            "{early}"
        );
        let full = explain("connect", "EADDRNOTAVAIL", 28_233, &ONE, &rested);
        assert!(!full.contains("TIME_WAIT"), "{full}");
        let alone = Demand {
            alone: true,
            binds_port: true,
            ..ONE
        };
        let bound = explain("bind", "EADDRINUSE", 101, &alone, &machine());
        assert!(
            bound.starts_with("EADDRINUSE after 100 sockets: bind(): no port"),
            "{bound}"
        );
        assert!(!bound.contains("--bind-no-port"), "{bound}");
    }
}
