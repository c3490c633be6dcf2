//! What connections had carried at each look, as one of their ends counts it. By this the looks of
//! two machines are aligned.

use super::align::Curve;
use jostle_sys::sock_diag::Tcp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Connections that are followed one by one at a time.
const FOLLOWED: usize = 8;

/// The ends on one machine.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ends {
    /// By the client's port, the bytes of a few.
    pub(super) each: BTreeMap<u16, Curve>,
    /// The bytes of all since they were opened, those that are closed too.
    pub(super) all: Curve,
    /// Connections opened, or accepted, in this network namespace.
    pub(super) opened: Curve,
    /// By cookie, what those that are open have carried.
    #[serde(skip)]
    open: HashMap<u64, u64>,
    /// What those had carried that are closed, at the last look that met them.
    #[serde(skip)]
    closed: u64,
}

impl Ends {
    /// Notes these sockets; `client` is the address of each that is the client's: its own (0), or
    /// that of the other end (1).
    /// They were read between these two times.
    pub(crate) fn look(&mut self, read_ns: [u64; 2], sockets: &[Tcp], client: usize, opened: u64) {
        // What left one end is soon at the other; its acknowledgement may wait for 40 ms.
        let carried = |socket: &Tcp| {
            let carried = socket.carried?;
            Some(carried.left_bytes + carried.received_bytes)
        };
        let now = sockets
            .iter()
            .filter_map(|socket| Some((socket.cookie, carried(socket)?)));
        let before = std::mem::replace(&mut self.open, now.collect());
        let gone = before
            .iter()
            .filter(|(cookie, _)| !self.open.contains_key(cookie));
        self.closed += gone.map(|(_, bytes)| bytes).sum::<u64>();
        let all = self.closed + self.open.values().sum::<u64>();
        self.all.push((read_ns, all));
        self.opened.push((read_ns, opened));
        let port = |socket: &Tcp| socket.addresses()[client].port();
        let ports = sockets
            .iter()
            .filter_map(|socket| Some((port(socket), carried(socket)?)));
        let mut ports: Vec<(u16, u64)> = ports.collect();
        // The same ones at both ends, whichever others there are.
        ports.sort_unstable_by_key(|(port, _)| port.wrapping_mul(40_503));
        for (port, bytes) in ports.into_iter().take(FOLLOWED) {
            let curve = self.each.entry(port).or_default();
            if curve.last().is_some_and(|(_, before)| bytes < *before) {
                // Another connection has its port now.
                curve.clear();
            }
            curve.push((read_ns, bytes));
        }
    }

    /// The curves of both ends, ours first, by the best evidence that there is, and its name: each
    /// connection by itself; or the number opened, where each lives for too short a time; or the sum
    /// of what they carried, where no address is the same at both ends.
    pub(super) fn curves(&self, theirs: &Ends, same: bool) -> Vec<(&'static str, Vec<[Curve; 2]>)> {
        let pairs = self.each.iter().filter(|_| same);
        let pairs =
            pairs.filter_map(|(port, ours)| Some([ours.clone(), theirs.each.get(port)?.clone()]));
        let sums = |ours: &Curve, theirs: &Curve| vec![[ours.clone(), theirs.clone()]];
        let mut found = vec![("connections", pairs.collect())];
        if !same {
            found.push(("bytes", sums(&self.all, &theirs.all)));
        }
        found.push(("opened", sums(&self.opened, &theirs.opened)));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_sys::sock_diag::Carried;

    #[test]
    fn a_closed_connection_keeps_its_bytes_and_a_port_that_is_used_again_begins_anew() {
        let socket = |cookie, port, bytes| Tcp {
            cookie,
            own_port: port,
            carried: Some(Carried {
                left_bytes: bytes,
                ..Carried::default()
            }),
            ..Tcp::default()
        };
        let mut ends = Ends::default();
        ends.look([1; 2], &[socket(1, 4001, 10), socket(2, 4002, 20)], 0, 2);
        ends.look([2; 2], &[socket(1, 4001, 15)], 0, 2);
        ends.look([3; 2], &[socket(1, 4001, 15), socket(3, 4002, 7)], 0, 3);
        assert_eq!(ends.all, [([1; 2], 30), ([2; 2], 35), ([3; 2], 42)]);
        assert_eq!(ends.each[&4001], [([1; 2], 10), ([2; 2], 15), ([3; 2], 15)]);
        assert_eq!(ends.each[&4002], [([3; 2], 7)]);
        // Of many, both ends follow the same ones, in whatever order they come.
        let many = |ports: &mut dyn Iterator<Item = u16>| {
            let sockets: Vec<Tcp> = ports.map(|port| socket(port.into(), port, 1)).collect();
            let mut ends = Ends::default();
            ends.look([1; 2], &sockets, 0, 0);
            ends.each.into_keys().collect::<Vec<u16>>()
        };
        let followed = many(&mut (40_000..40_500));
        assert_eq!(followed, many(&mut (40_000..40_500).rev()));
        assert_eq!(followed.len(), FOLLOWED);
    }
}
