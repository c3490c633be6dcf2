//! The fault itself: whom it strikes, how, and when.

use super::{Blow, Recovery};
use crate::process::OWNER;
use jostle_harness::{Aborted, Result};
use jostle_model::plan::Fault;
use jostle_model::record::{Struck, What};
use jostle_sys::link::{Link, Way};
use jostle_sys::waited::Waited;
use jostle_sys::{clock, cpu, process};
use std::time::Duration;

/// How long a cluster may be without a leader before the fault.
const LEADER_PATIENCE: Duration = Duration::from_secs(20);
/// The owner's connection is watched for so many times as long as it shall be silent, and so
/// often.
const SILENCE_PAUSES: u32 = 3;
const SILENCE_LOOK_NS: u64 = 10_000_000;

impl Recovery<'_> {
    /// Strikes whoever owns. Returns who that is, and stamps around the moment.
    pub(super) fn strike(&mut self) -> Result<(Struck, (u64, u64))> {
        let owner = self.owner().ok_or_else(|| {
            Aborted(format!(
                "{}: the owner ended before the fault struck",
                self.order.target
            ))
        })?;
        if self.order.fault.is_of_member() && !self.is_owner_dead() {
            return self.strike_member();
        }
        let servers = || self.service.processes();
        let program = self.board.program(OWNER);
        let (struck, stamps) = match (self.order.fault, program) {
            (Fault::Kill, None) => (Struck::Worker, at_once(&[owner], process::kill)),
            (Fault::Stop, None) => (Struck::Worker, at_once(&[owner], process::stop)),
            (Fault::Kill, Some(group)) => {
                let stamps = at_once(&[group], process::kill_group);
                // Without its program the worker has nothing left to do.
                process::kill(owner);
                (Struck::Program, stamps)
            }
            (Fault::Stop, Some(group)) => {
                self.program = Some(group);
                (Struck::Program, at_once(&[group], process::stop_group))
            }
            (Fault::CutTo | Fault::CutFrom | Fault::ServerWipe | Fault::Clock, _) => {
                let fault = self.order.fault;
                return Err(Aborted(format!("{fault} strikes in `jostle verify` only")));
            }
            (Fault::Cut | Fault::IdleCut, _) => (Struck::Connection, self.cut(owner)?),
            // Its end is not seen: the link stays cut.
            (Fault::HostGone, _) => {
                let stamps = self.cut(owner)?;
                process::kill(owner);
                (Struck::Worker, stamps)
            }
            (Fault::ServerKill, _) => (Struck::Service, at_once(&servers(), process::kill)),
            (_, _) => (Struck::Service, at_once(&servers(), process::stop)),
        };
        // Whoever was started meanwhile.
        match self.order.fault {
            Fault::ServerKill => self.service.kill_all(),
            Fault::ServerStop => self.service.stop_all(),
            _ => {}
        }
        self.note(stamps.0, What::Fault);
        if self.is_owner_dead() {
            // Its death is no loss of the run.
            self.alive.remove(&owner);
        }
        Ok((struck, stamps))
    }

    /// The processes of the service and of this waiter, or of all waiters.
    pub(super) fn concerned(&self, waiter: Option<usize>) -> Vec<u32> {
        let wanted = |number: usize| number != OWNER && waiter.is_none_or(|one| one == number);
        let waiters = self.alive.iter().filter(|(_, number)| wanted(**number));
        let waiters = waiters.map(|(pid, _)| *pid);
        self.service
            .processes()
            .into_iter()
            .chain(waiters)
            .collect()
    }

    /// Cuts the owner's connection to the service; it stays so until the link is mended.
    fn cut(&mut self, owner: u32) -> Result<(u64, u64)> {
        let target = &self.order.target;
        let refused = |error: std::io::Error| {
            Aborted(format!(
                "{target}: cannot cut the owner's connection: {error}; that takes the right to \
                 trace the service's processes (as root, CAP_SYS_PTRACE)"
            ))
        };
        let owners = process::with_descendants(owner);
        let mut link = Link::between(&owners, &self.service.processes()).map_err(refused)?;
        if link.is_empty() {
            return Err(Aborted(format!(
                "{target}: the owner has no TCP connection to the service that could be cut"
            )));
        }
        if self.order.fault == Fault::IdleCut && !self.await_silence(&link)? {
            return Ok(stamped(|| ()));
        }
        if self.order.fault != Fault::Cut {
            self.keepalive_s = Some(link.asks_after().map_or(0, |time| time.as_secs()));
        }
        let mut done = Ok(());
        let stamps = stamped(|| done = link.cut(Way::Both));
        self.link = Some(link);
        done.map(|()| stamps).map_err(refused)
    }

    /// Waits until nothing has passed for the pause, or for half of the lease. False if the client
    /// is never silent for so long, since it renews: no firewall forgets its connection.
    fn await_silence(&mut self, link: &Link) -> Result<bool> {
        let lease = self.lease_ns.map(|lease| lease / 2);
        let idle_ns = self.order.pause.0.min(lease.unwrap_or(u64::MAX));
        let idle = Duration::from_nanos(idle_ns);
        let mut waited = Waited::begin();
        while link.silent_for() < idle {
            if waited.so_far() > SILENCE_PAUSES * idle {
                return Ok(false);
            }
            self.rest(SILENCE_LOOK_NS)?;
        }
        Ok(true)
    }

    /// Strikes one server of the cluster, or the links of its host.
    fn strike_member(&mut self) -> Result<(Struck, (u64, u64))> {
        let (service, fault, target) = (self.service, self.order.fault, &self.order.target);
        let said = |said: String| Aborted(format!("{target} --fault {fault}: {said}"));
        let blow = Blow::aim(fault, &service.members(), LEADER_PATIENCE).map_err(said)?;
        let mut done = Ok(());
        let stamps = stamped(|| done = blow.strike(service, Some(OWNER)));
        done.map_err(said)?;
        self.blow = Some(blow);
        self.note(stamps.0, What::Fault);
        Ok((Struck::Member, stamps))
    }
}

/// Does something to all of them, and returns stamps before and after.
fn at_once(struck: &[u32], act: fn(u32)) -> (u64, u64) {
    stamped(|| struck.iter().copied().for_each(act))
}

fn stamped(act: impl FnOnce()) -> (u64, u64) {
    cpu::undisturbed(|| {
        let before = clock::monotonic();
        act();
        (before, clock::monotonic())
    })
}
