//! Looks at what lies between workers and their server, and at the server's control groups: by the
//! kernel's account alone, which nothing there can block.

use super::{Children, Run};
use jostle_harness::accounts::ServerProcesses;
use jostle_model::record::{Sign, Signs, sign};
use jostle_sys::limits::cgroup;
use jostle_sys::serving::sockets_of;
use jostle_sys::sock_diag::{Carried, ESTABLISHED, SockDiag, Wanted};
use jostle_targets::signs::known;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// A connection on which something came within this time is used.
const QUIET_MS: u32 = 300;

/// A segment was sent again so often in a row: after 0.2 s at least, and after 0.4 s more. A kernel
/// acknowledges what has arrived even if the program there stands still.
const TIMEOUTS: u8 = 2;

/// More workers are not asked for their sockets.
const FEW: usize = 500;

/// The files in which the server's control groups count; they outlive its processes.
#[derive(Default)]
pub(super) struct Groups(BTreeSet<PathBuf>);

impl Groups {
    /// Those of its processes now.
    pub(super) fn find(server: &ServerProcesses) -> Groups {
        let roots = server.roots().into_iter();
        Groups(roots.filter_map(cgroup::oom_events_of).collect())
    }

    /// The groups' counts so far; None without any.
    pub(super) fn read(&self) -> Option<Signs> {
        let killed = self.0.iter().filter_map(|file| cgroup::oom_killed(file));
        let killed: Vec<u64> = killed.collect();
        let sum = (!killed.is_empty()).then(|| Sign::from(killed.iter().sum::<u64>()))?;
        Some(known([(sign::OOM_KILLED, Some(sum))]))
    }
}

impl Run<'_> {
    /// The waits of the workers' connections, when nothing was granted for so long.
    pub(super) fn path(&self, children: &Children, stood_ns: u64) -> Option<Signs> {
        if !self.work.is_remote() || self.order.workers > FEW {
            return None;
        }
        let alive = children.alive.keys();
        let own: BTreeSet<u64> = alive.flat_map(|pid| sockets_of(*pid)).collect();
        let wanted = Wanted {
            carried: true,
            ..Wanted::default()
        };
        let all = SockDiag::open()
            .and_then(|mut diag| diag.tcp(wanted))
            .ok()?;
        let of_workers = all
            .iter()
            .filter(|socket| socket.state == ESTABLISHED && own.contains(&u64::from(socket.inode)));
        let carried: Vec<Carried> = of_workers.filter_map(|socket| socket.carried).collect();
        let is_stuck = |of: &&Carried| of.timeouts >= TIMEOUTS;
        let flows = |of: &&Carried| of.timeouts == 0 && of.acknowledged_ms < QUIET_MS;
        let stuck: Vec<&Carried> = carried.iter().filter(is_stuck).collect();
        let flowing = carried.iter().filter(flows).count();
        let again: u64 = stuck.iter().map(|of| of.retransmitted).sum();
        let count = |count: usize| Some(Sign::from(count as u64));
        (!carried.is_empty()).then(|| {
            known([
                (sign::STOOD_MS, Some((stood_ns / 1_000_000).into())),
                (sign::CONNECTIONS, count(carried.len())),
                (sign::FLOWING, count(flowing)),
                (sign::UNACKNOWLEDGED, count(stuck.len())),
                (sign::RETRANSMITTED, Some(again.into())),
            ])
        })
    }
}
