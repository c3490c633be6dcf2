//! The addresses that one side is connected to beside the judged server.

use super::turns::Owed;
use jostle_model::judged::Peer;
use jostle_sys::sock_diag::Tcp;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;

/// Other servers that are named.
const NAMED: usize = 3;

/// The connections of one side.
#[derive(Debug, Default)]
pub(super) struct Peers(BTreeMap<(u64, SocketAddr), Group>);

/// Those to one address.
#[derive(Debug, Default)]
struct Group {
    connections: u64,
    bytes: HashMap<u64, u64>,
    /// How often a connection was met that surely waited for an answer, and that did not.
    waited: [u32; 2],
    owed: Owed,
}

impl Peers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes these sockets of a namespace, and returns one to each address that is new among them,
    /// and whether that is of the same namespace (`here`).
    pub(super) fn look<'a>(
        &mut self,
        network: u64,
        sockets: impl Iterator<Item = &'a Tcp>,
        here: &HashSet<SocketAddr>,
    ) -> Vec<(Tcp, bool)> {
        let mut newly = Vec::new();
        let mut open: BTreeMap<SocketAddr, u64> = BTreeMap::new();
        for socket in sockets.filter(|socket| socket.other_port != 0) {
            let Some(carried) = socket.carried else {
                continue;
            };
            let to = socket.addresses()[1];
            if !self.0.contains_key(&(network, to)) {
                newly.push((socket.clone(), here.contains(&to)));
            }
            let group = self.0.entry((network, to)).or_default();
            let bytes = carried.sent_bytes + carried.received_bytes;
            group.bytes.insert(socket.cookie, bytes);
            if !carried.only_sends() {
                let is_known_to = group.owed.awaits(carried) == Some(true);
                group.waited[usize::from(!is_known_to)] += 1;
            }
            let open = open.entry(to).or_default();
            *open += 1;
            group.connections = group.connections.max(*open);
        }
        newly
    }

    /// What each has carried.
    pub(super) fn carried(&self) -> BTreeMap<(u64, SocketAddr), u64> {
        let each = self.0.iter();
        each.map(|(at, group)| (*at, group.bytes.values().sum()))
            .collect()
    }

    /// Those that carried most, without the judged one.
    pub(super) fn largest(self, is_judged: impl Fn(u64, SocketAddr) -> bool) -> Vec<Peer> {
        let each = self
            .0
            .into_iter()
            .filter(|((network, to), _)| !is_judged(*network, *to));
        let each = each.map(|((_, at), group)| group.into_peer(at));
        let mut each: Vec<Peer> = each.collect();
        each.sort_by_key(|peer| std::cmp::Reverse(peer.bytes));
        each.truncate(NAMED);
        each
    }
}

impl Group {
    fn into_peer(self, at: SocketAddr) -> Peer {
        /// Fewer tell nothing.
        const MET: u32 = 5;
        let [waited, others] = self.waited;
        let met = waited + others;
        Peer {
            at: at.to_string(),
            connections: self.connections,
            bytes: self.bytes.values().sum(),
            waiting_share: (met >= MET).then(|| f64::from(waited) / f64::from(met)),
        }
    }
}
