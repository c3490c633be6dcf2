//! The other end of a TCP connection, in whichever network namespace of this machine it is.
//!
//! Where the destination is translated (DNAT), the client's own address and port stay: the server's
//! socket is the one whose other end they are. Where the source is translated too (SNAT), the
//! kernel's table of connections (conntrack) tells. A program that carries connections from one
//! namespace to another, such as docker-proxy, is a hop, whose far side is followed.
//!
//! Addresses repeat in namespaces: a socket elsewhere counts only if it has carried the same bytes,
//! and only if no other does.

use crate::census::Identity;
use crate::namespaces::{Network, networks};
use crate::serving;
use crate::sock_diag::{LISTEN, SockDiag, Tcp, Wanted};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, SocketAddr};

/// Programs that accept connections for servers elsewhere.
const FORWARDERS: &[&str] = &[
    "docker-proxy",
    "rootlessport",
    "slirp4netns",
    "systemd-socket-",
    "pasta",
    "pasta.avx2",
];

/// One that anybody may have put before a server, and which may be a server itself.
const RELAY: &str = "socat";

/// Hops that are followed, and translations of one connection.
const HOPS: usize = 3;
const TRANSLATIONS: usize = 4;

/// Connections that are followed.
const FOLLOWED: usize = 16;

/// Where connections end.
#[derive(Debug)]
pub struct Found {
    /// The namespace of the server's sockets.
    pub network: Network,
    /// Their own address, as the server has it.
    pub at: SocketAddr,
    /// The processes that have them, with the listeners that started these.
    pub pids: Vec<u32>,
    /// The programs that the connections pass through.
    pub hops: Vec<u32>,
}

/// Whether this process is known to accept connections for servers elsewhere.
pub fn forwards(pid: u32) -> bool {
    name(pid).is_some_and(|name| FORWARDERS.contains(&name.as_str()))
}

/// Whether it may forward connections to another namespace.
pub fn may_relay(pid: u32) -> bool {
    forwards(pid) || name(pid).as_deref() == Some(RELAY)
}

fn name(pid: u32) -> Option<String> {
    Identity::of(pid).map(|identity| identity.name)
}

/// Why the other end was not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// Not on this machine.
    Nowhere,
    /// Not where this process may look: some namespaces, or all of the machine around a container.
    Namespaces,
    /// The socket is there, and its process may not be looked at.
    Owner,
    /// This process forwards the connections to where they cannot be followed.
    Forwarder(u32),
}

/// The sockets of a namespace, and its table of connections, as far as it was read.
#[derive(Debug, Default)]
struct Place {
    sockets: Vec<Tcp>,
    translated: Vec<Translated>,
}

/// A connection in the table: from where to where, and the same as the server has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Translated {
    before: [SocketAddr; 2],
    after: [SocketAddr; 2],
}

/// A connection by its client's end: the number of its place, and the socket before and after all
/// places were looked at.
struct Followed {
    home: usize,
    before: Tcp,
    later: Option<Tcp>,
}

/// Follows connections of the namespace `home` to the processes that have accepted most of them.
///
/// # Errors
/// Why these were not found.
pub fn follow(home: u64, connections: &[Tcp]) -> Result<Found, Unseen> {
    let mut machine = Machine::look();
    let mut networks = machine.networks.iter();
    let home = networks.position(|network| network.id == home);
    let home = home.ok_or(Unseen::Namespaces)?;
    let open = connections.iter().filter(|socket| socket.other_port != 0);
    let mut from: Vec<(usize, Tcp)> = open.map(|one| (home, one.clone())).collect();
    let mut hops: Vec<u32> = Vec::new();
    let mut relay: Option<(usize, SocketAddr, Vec<u32>)> = None;
    let (place, at, pids) = loop {
        from.truncate(FOLLOWED);
        let (place, at, accepted) = match (machine.ends(&from), relay.take()) {
            // A relay within one namespace counts as a server with a server behind it.
            (None, Some(relay)) => break relay,
            (Some((place, ..)), Some(relay)) if place == relay.0 => break relay,
            (Some(end), _) => end,
            (None, None) => return Err(machine.unseen(&hops)),
        };
        let listening = machine.places[place].sockets.iter();
        let listening = listening.filter(|one| one.state == LISTEN && one.own_port == at.port());
        let listening = listening.map(|one| one.inode.into()).collect();
        let pids = serving::with_listeners(&accepted, &listening);
        // The listener that started the others, if one did.
        let last = *pids.last().ok_or(Unseen::Owner)?;
        if hops.len() == HOPS || !may_relay(last) {
            break (place, at, pids);
        }
        from = far_side(&machine.places, &pids, &accepted, at.port());
        relay = (!forwards(last)).then_some((place, at, pids));
        hops.push(last);
    };
    hops.retain(|hop| !pids.contains(hop));
    let network = machine.networks.swap_remove(place);
    Ok(Found {
        network,
        at,
        pids,
        hops,
    })
}

/// All namespaces.
struct Machine {
    networks: Vec<Network>,
    diags: Vec<Option<SockDiag>>,
    /// As of the latest look.
    places: Vec<Place>,
    complete: bool,
}

impl Machine {
    fn look() -> Machine {
        let (networks, mut complete) = networks();
        let diags = networks.iter().map(|one| SockDiag::open_in(one).ok());
        let diags: Vec<Option<SockDiag>> = diags.collect();
        complete &= diags.iter().all(Option::is_some);
        Machine {
            networks,
            diags,
            places: Vec::new(),
            complete,
        }
    }

    fn unseen(&self, hops: &[u32]) -> Unseen {
        match (hops.last(), self.complete) {
            (Some(hop), _) => Unseen::Forwarder(*hop),
            (None, true) => Unseen::Nowhere,
            (None, false) => Unseen::Namespaces,
        }
    }

    /// Where most of these end: the place, the address there, and the inodes.
    fn ends(&mut self, from: &[(usize, Tcp)]) -> Option<(usize, SocketAddr, BTreeSet<u64>)> {
        let wanted = Wanted {
            listeners: true,
            carried: true,
            ..Wanted::default()
        };
        let before = self.again(from);
        let all = self.diags.iter_mut().map(|diag| Place {
            sockets: diag
                .as_mut()
                .and_then(|diag| diag.tcp(wanted).ok())
                .unwrap_or_default(),
            translated: Vec::new(),
        });
        self.places = all.collect();
        let later = self.again(from);
        let followed = from.iter().zip(before).zip(later);
        let followed = followed.map(|(((home, socket), before), later)| Followed {
            home: *home,
            before: before.unwrap_or_else(|| socket.clone()),
            later,
        });
        let followed: Vec<Followed> = followed.collect();
        most(&self.places, &followed).or_else(|| {
            for (place, network) in self.places.iter_mut().zip(&self.networks) {
                let table = fs::read_to_string(format!("/proc/{}/net/nf_conntrack", network.pid));
                place.translated = translated(&table.unwrap_or_default());
            }
            most(&self.places, &followed)
        })
    }

    fn again(&mut self, of: &[(usize, Tcp)]) -> Vec<Option<Tcp>> {
        let each = of.iter().map(|(place, socket)| {
            let diag = self.diags.get_mut(*place)?.as_mut()?;
            diag.again(std::slice::from_ref(socket)).ok()?.pop()
        });
        each.collect()
    }
}

/// Where most of these end.
fn most(places: &[Place], of: &[Followed]) -> Option<(usize, SocketAddr, BTreeSet<u64>)> {
    let mut groups: BTreeMap<(usize, SocketAddr), BTreeSet<u64>> = BTreeMap::new();
    for (place, socket) in of.iter().filter_map(|one| end(places, one)) {
        let group = groups.entry((place, socket.addresses()[0])).or_default();
        group.insert(socket.inode.into());
    }
    let ((place, at), inodes) = groups.into_iter().max_by_key(|(_, inodes)| inodes.len())?;
    Some((place, at, inodes))
}

/// The connections of a forwarder beside those that it has accepted.
fn far_side(
    places: &[Place],
    pids: &[u32],
    accepted: &BTreeSet<u64>,
    port: u16,
) -> Vec<(usize, Tcp)> {
    let own: BTreeSet<u64> = pids
        .iter()
        .flat_map(|pid| serving::sockets_of(*pid))
        .collect();
    let is_far = |socket: &Tcp| {
        let inode = socket.inode.into();
        let is_connection = socket.other_port != 0 && socket.own_port != port;
        is_connection && own.contains(&inode) && !accepted.contains(&inode)
    };
    let each = places.iter().enumerate();
    each.flat_map(|(at, place)| {
        let far = place.sockets.iter().filter(|socket| is_far(socket));
        far.map(move |socket| (at, socket.clone()))
    })
    .collect()
}

/// Where a connection ends: the place, and the socket. None where there is none, or several may be.
fn end<'p>(places: &'p [Place], of: &Followed) -> Option<(usize, &'p Tcp)> {
    let [own, to] = of.before.addresses();
    let here = places.get(of.home)?.sockets.iter();
    let mut here = here.filter(|socket| socket.addresses() == [to, own] && socket.inode != 0);
    if let Some(socket) = here.next() {
        return Some((of.home, socket));
    }
    let all = || {
        let each = places.iter().enumerate();
        each.flat_map(|(at, place)| place.sockets.iter().map(move |socket| (at, socket)))
            .filter(|(_, socket)| socket.inode != 0 && carried_the_same(of, socket))
    };
    let only = |is: &dyn Fn(&Tcp) -> bool| {
        let mut found = all().filter(|(_, socket)| is(socket));
        found.next().filter(|_| found.next().is_none())
    };
    let [mut own, mut to] = [own, to];
    for _ in 0..TRANSLATIONS {
        let whole = only(&|socket| socket.addresses() == [to, own]);
        // The end of another connection from the same port has a client of its own.
        let has_client = |socket: &Tcp| {
            let [at, from] = socket.addresses();
            let mut clients = places.iter().flat_map(|place| &place.sockets);
            clients.any(|client| client.addresses() == [from, at])
        };
        let from_us = || only(&|socket| socket.addresses()[1] == own && !has_client(socket));
        if let Some(found) = whole.or_else(from_us) {
            return Some(found);
        }
        let tables = places.iter().flat_map(|place| &place.translated);
        let after = tables.filter(|one| one.before == [own, to] && one.after != one.before);
        let after: BTreeSet<[SocketAddr; 2]> = after.map(|one| one.after).collect();
        let mut after = after.into_iter();
        [own, to] = after.next().filter(|_| after.next().is_none())?;
    }
    None
}

/// Whether this socket has received at least what the connection had sent before, and at most what
/// it has sent since; and the same the other way. The first segment counts as a byte, the last too.
fn carried_the_same(of: &Followed, socket: &Tcp) -> bool {
    let Some(there) = socket.carried else {
        return true;
    };
    let is_least = of.before.carried.is_none_or(|before| {
        before.sent_bytes <= there.received_bytes + 2
            && before.received_bytes <= there.sent_bytes + u64::from(socket.unsent) + 2
    });
    let later = of.later.as_ref();
    let later = later.and_then(|later| Some((later.carried?, u64::from(later.unsent))));
    is_least
        && later.is_none_or(|(later, unsent)| {
            there.received_bytes <= later.sent_bytes + unsent + 2
                && there.sent_bytes <= later.received_bytes + 2
        })
}

/// The lines of /proc/net/nf_conntrack on TCP whose two directions differ.
fn translated(text: &str) -> Vec<Translated> {
    let of_line = |line: &str| {
        let mut hosts = Vec::new();
        let mut ports = Vec::new();
        for word in line.split_whitespace() {
            match word.split_once('=') {
                Some(("src" | "dst", host)) => hosts.push(host.parse::<IpAddr>().ok()?),
                Some(("sport" | "dport", port)) => ports.push(port.parse::<u16>().ok()?),
                _ => {}
            }
        }
        let at = |nth: usize| Some(SocketAddr::new(*hosts.get(nth)?, *ports.get(nth)?));
        let (before, after) = ([at(0)?, at(1)?], [at(3)?, at(2)?]);
        (before != after).then_some(Translated { before, after })
    };
    let lines = text.lines().filter(|line| line.contains(" tcp "));
    lines.filter_map(of_line).collect()
}

#[cfg(test)]
mod tests;
