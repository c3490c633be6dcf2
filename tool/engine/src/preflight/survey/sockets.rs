//! The sockets in `jostle doctor`: how many connections there can be, and what would bend or end a
//! sweep of them.

use super::Finding;
use crate::order::Demand;
use jostle_connections::limits::{TCP_BYTES, nearest};
use jostle_model::connect::PortRange;
use jostle_sys::limits::Machine;

/// How many can be open at once, with both ends here, over as many addresses and
/// processes as it takes.
pub(super) fn connections(machine: &Machine) -> Option<Finding> {
    let load = Demand {
        has_ports: true,
        embedded: true,
        sources: 64,
        ports: 8,
        acceptors: 1,
        bytes_each: TCP_BYTES,
        ..Demand::default()
    };
    let nearest = nearest(&load, machine).into_iter().next()?;
    let found = format!("about {} at once, by {}", nearest.at, nearest.name);
    Some(Finding::fine("TCP connections", found))
}

/// Those that the kernel gives to clients.
pub(super) fn ports(machine: &Machine) -> Option<Finding> {
    let range = PortRange::from(machine.net.ports?);
    let usable = range.count().saturating_sub(machine.net.reserved);
    let (even, _) = range.parities();
    let found = format!("{usable} from one address to another ({range}), {even} of them even");
    let finding = Finding::fine("ports of clients", found);
    Some(match usable {
        10_000.. => finding,
        _ => finding
            .note(
                "`sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"` as root, or `jostle \
                 connect --sources 16`",
            )
            .mended_by("sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\""),
    })
}

/// The limit of connections that wait to be accepted.
pub(super) fn backlog(machine: &Machine) -> Option<Finding> {
    let somaxconn = machine.net.somaxconn?;
    let finding = Finding::fine(
        "backlog of a listening socket",
        format!("at most {somaxconn} (net.core.somaxconn)"),
    );
    Some(match somaxconn {
        128.. => finding,
        _ => finding
            .bends(
                "clients wait for a server that pauses: `sysctl -w net.core.somaxconn=4096` as \
                 root",
            )
            .mended_by("sysctl -w net.core.somaxconn=4096"),
    })
}

/// Ports that rest.
pub(super) fn time_wait(machine: &Machine) -> Option<Finding> {
    let (now, most) = (machine.net.time_wait?, machine.net.max_time_wait?);
    let finding = Finding::fine(
        "ports in TIME_WAIT",
        format!("{now} of at most {most} (net.ipv4.tcp_max_tw_buckets)"),
    );
    Some(match now {
        n if n < most / 2 => finding,
        _ => finding
            .note("wait for a minute (`sleep 60`); `jostle connect --close rst` leaves none")
            .mended_by("sleep 60"),
    })
}

/// The tracking of connections.
pub(super) fn conntrack(machine: &Machine) -> Option<Finding> {
    let (most, now) = machine.net.conntrack?;
    let finding = Finding::fine(
        "connection tracking",
        format!("{now} of at most {most} (net.netfilter.nf_conntrack_max)"),
    );
    Some(match () {
        // It is there and watches nothing.
        () if now == 0 => finding,
        () if most - now.min(most) >= 1_000_000 => finding,
        () => finding
            .note(
                "each connection takes an entry, and time: `iptables -t raw -I OUTPUT -o lo -j \
                 NOTRACK` as root, or `sysctl -w net.netfilter.nf_conntrack_max=2000000`",
            )
            .mended_by("sysctl -w net.netfilter.nf_conntrack_max=2000000"),
    })
}
