//! The network namespaces in which the command's processes live, and its own sockets there.

use jostle_model::judged::Network;
use jostle_sys::limits::net::{Counted, Tables};
use jostle_sys::namespaces::{self, network_of};
use jostle_sys::serving;
use jostle_sys::sock_diag::{SockDiag, Tcp, Wanted};
use std::collections::BTreeSet;
use std::io;

/// Processes whose descriptors are read.
const READ: usize = 64;

/// A namespace, and what the kernel tells of it.
#[derive(Debug)]
pub(super) struct View {
    pub network: namespaces::Network,
    pub diag: SockDiag,
    tables: Option<Tables>,
    counted: Option<Counted>,
}

impl View {
    /// That of a process.
    ///
    /// # Errors
    /// Where it may not be entered, or the kernel does not tell of sockets.
    pub(super) fn of(pid: u32) -> io::Result<View> {
        View::new(namespaces::Network::of(pid)?)
    }

    pub(super) fn new(network: namespaces::Network) -> io::Result<View> {
        let tables = Tables::of(network.pid);
        Ok(View {
            diag: SockDiag::open_in(&network)?,
            counted: tables.as_ref().and_then(Tables::counted),
            tables,
            network,
        })
    }

    /// Whether jostle itself lives there.
    pub(super) fn is_own(&self) -> bool {
        network_of(std::process::id()) == Some(self.network.id)
    }

    pub(super) fn sockets(&mut self, wanted: Wanted) -> Vec<Tcp> {
        self.diag.tcp(wanted).unwrap_or_default()
    }

    pub(super) fn time_wait(&self) -> u64 {
        self.tables
            .as_ref()
            .and_then(Tables::time_wait)
            .unwrap_or(0)
    }

    /// What was counted since the call before.
    pub(super) fn count(&mut self) -> Counted {
        let now = self.tables.as_ref().and_then(Tables::counted);
        let now = now.or(self.counted).unwrap_or_default();
        let before = self.counted.replace(now).unwrap_or(now);
        let since = |of: fn(&Counted) -> u64| of(&now).saturating_sub(of(&before));
        Counted {
            opened: since(|of| of.opened),
            accepted: since(|of| of.accepted),
            failed: since(|of| of.failed),
            overflows: since(|of| of.overflows),
            dropped: since(|of| of.dropped),
            syn_again: since(|of| of.syn_again),
            delayed_acks: since(|of| of.delayed_acks),
        }
    }
}

/// Adds what was counted where the clients are, and where the server is if that is elsewhere.
pub(super) fn push(network: &mut Network, at_clients: Counted, at_server: Counted) {
    let sum = |of: fn(&Counted) -> u64| (of(&at_clients) + of(&at_server)) as f64;
    network.opened.push(at_clients.opened as f64);
    network.failed.push(at_clients.failed as f64);
    network.overflows.push(sum(|of| of.overflows));
    network.dropped.push(sum(|of| of.dropped));
    network.syn_again.push(at_clients.syn_again as f64);
    network.delayed_acks.push(sum(|of| of.delayed_acks));
}

/// The command's processes, and the sockets that it has from jostle, which are not its own.
#[derive(Debug)]
pub(super) struct Own<'a> {
    pub pids: &'a [u32],
    pub inherited: &'a BTreeSet<u64>,
}

impl Own<'_> {
    /// By inode.
    pub(super) fn inodes(&self) -> BTreeSet<u64> {
        let inodes = inodes(self.pids);
        inodes.difference(self.inherited).copied().collect()
    }

    /// Whether [`Own::inodes`] has all of them.
    pub(super) fn are_whole(&self) -> bool {
        self.pids.len() <= READ && !self.pids.iter().any(|pid| serving::is_hidden(*pid))
    }
}

/// The sockets that these processes have open.
pub(super) fn inodes(pids: &[u32]) -> BTreeSet<u64> {
    let each = pids.iter().take(READ);
    each.flat_map(|pid| serving::sockets_of(*pid)).collect()
}
