//! The fault itself: whom it strikes, how, and when.

use super::Recovery;
use crate::process::OWNER;
use jostle_harness::{Aborted, Result};
use jostle_model::plan::Fault;
use jostle_model::record::{Struck, What};
use jostle_sys::link::Link;
use jostle_sys::{clock, cpu, process};

impl Recovery<'_> {
    /// Strikes whoever owns. Returns who that is, and stamps around the moment.
    pub(super) fn strike(&mut self) -> Result<(Struck, (u64, u64))> {
        let owner = self.owner().ok_or_else(|| {
            Aborted(format!(
                "{}: the owner ended before the fault struck",
                self.order.target
            ))
        })?;
        let servers = || self.serving();
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
            (Fault::Cut, _) => (Struck::Connection, self.cut(owner)?),
            (Fault::ServerKill, _) => (Struck::Service, at_once(&servers(), process::kill)),
            (Fault::ServerStop, _) => (Struck::Service, at_once(&servers(), process::stop)),
        };
        // Whoever was started meanwhile.
        match self.order.fault {
            Fault::ServerKill => {
                // Stopped first, none can start another one.
                self.stop_service();
                self.serving().into_iter().for_each(process::kill);
            }
            Fault::ServerStop => self.stop_service(),
            _ => {}
        }
        self.note(stamps.0, What::Fault);
        if self.order.fault == Fault::Kill {
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
        self.serving().into_iter().chain(waiters).collect()
    }

    /// All processes of the service.
    fn serving(&self) -> Vec<u32> {
        let launched = self.service.launched().into_iter();
        launched.flat_map(process::with_descendants).collect()
    }

    /// Stops them; those that others start first, so that none is missed.
    fn stop_service(&self) {
        let mut stopped = Vec::new();
        loop {
            let mut new = self.serving();
            new.retain(|pid| !stopped.contains(pid));
            if new.is_empty() {
                return;
            }
            new.iter().copied().for_each(process::stop);
            stopped.extend(new);
        }
    }

    pub(super) fn let_go_on(&self) {
        self.serving().into_iter().for_each(process::go_on);
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
        let mut link = Link::between(&owners, &self.serving()).map_err(refused)?;
        if link.is_empty() {
            return Err(Aborted(format!(
                "{target}: the owner has no TCP connection to the service that could be cut"
            )));
        }
        let mut done = Ok(());
        let stamps = stamped(|| done = link.cut());
        self.link = Some(link);
        done.map(|()| stamps).map_err(refused)
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
