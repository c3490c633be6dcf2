//! The faults: whom each strikes, how, and how it is over.

use crate::run::Run;
use crate::schedule::Planned;
use jostle_harness::{Aborted, Result};
use jostle_model::plan::Fault;
use jostle_recover::Blow;
use jostle_stats::verify::history::Struck;
use jostle_sys::link::{Link, Way};
use jostle_sys::switch::Switch;
use jostle_sys::waited::Waited;
use jostle_sys::{cpu, process};
use std::time::Duration;

/// How long a victim is waited for until it owns a lock, and between two looks.
const OWNER_PATIENCE: Duration = Duration::from_millis(60);
const OWNER_LOOK: Duration = Duration::from_micros(200);
/// In so many of four strikes.
const WAITS_FOR_OWNER: u64 = 3;
/// The clock is set forward by so many leases, or seconds, at most.
const LEASES_AHEAD: u64 = 10;
const AHEAD_NS: u64 = 1_000_000_000;
/// A firewall forgets a connection that was silent for so long.
const SILENT: Duration = Duration::from_millis(100);
/// How long a leader is looked for. Where there is none, nothing strikes.
const LEADER_PATIENCE: Duration = Duration::from_secs(1);

/// A fault that lasts.
#[derive(Debug)]
pub(crate) struct Active {
    /// Its number among those that struck.
    nth: usize,
    pub until_ns: u64,
    state: State,
}

/// What has to be done when it is over.
#[derive(Debug)]
enum State {
    /// A client stands still, or its program's process group does.
    Stopped {
        place: usize,
        pid: u32,
        group: Option<u32>,
    },
    Cut {
        place: usize,
        link: Link,
    },
    Down {
        loses_data: bool,
    },
    Halted,
    Clock,
    /// A server of several is down, stands still, or is parted from the others.
    Member(Blow),
}

impl State {
    fn place(&self) -> Option<usize> {
        match self {
            State::Stopped { place, .. } | State::Cut { place, .. } => Some(*place),
            _ => None,
        }
    }
}

impl Active {
    /// In a child, which must not keep what belongs to the keeper.
    pub(crate) fn forget(self) {
        if let State::Cut { link, .. } = self.state {
            link.forget();
        }
    }
}

impl Run<'_> {
    /// Whether the service is down now.
    pub(crate) fn is_down(&self) -> bool {
        let mut states = self.active.iter().map(|active| &active.state);
        states.any(|state| matches!(state, State::Down { .. } | State::Member(_)))
    }

    /// Strikes, unless there is nobody to be struck.
    ///
    /// # Errors
    /// In words for the user.
    pub(crate) fn strike(&mut self, planned: &Planned) -> Result<()> {
        let victims = self.victims(planned.draw);
        match (planned.fault, victims.first()) {
            (Fault::Kill, Some(place)) => self.kill(*place, planned.draw)?,
            (Fault::Stop, Some(place)) => self.stop(*place, planned),
            (Fault::Kill | Fault::Stop, None) => {}
            (Fault::Cut | Fault::IdleCut, _) => self.cut(&victims, planned, Way::Both)?,
            (fault, place) if fault.is_of_member() => {
                self.strike_member(place.copied(), planned)?;
            }
            (Fault::CutTo, _) => self.cut(&victims, planned, Way::FromFirst)?,
            (Fault::CutFrom, _) => self.cut(&victims, planned, Way::ToFirst)?,
            (Fault::ServerKill | Fault::ServerWipe, _) => {
                let stamps = self.stamped(|| self.service.kill_all());
                let loses_data = planned.fault == Fault::ServerWipe;
                self.lasts(planned, stamps, State::Down { loses_data });
            }
            (Fault::ServerStop, _) => {
                let stamps = self.stamped(|| self.service.stop_all());
                self.lasts(planned, stamps, State::Halted);
            }
            (_, _) => {
                let unit_ns = self.promise.lease_ns.unwrap_or(AHEAD_NS);
                let leases = 1 + planned.draw % LEASES_AHEAD;
                let mut set = Ok(());
                let ahead_ns = (leases * unit_ns) as i64;
                let stamps = self.stamped(|| set = self.service.set_clock(ahead_ns));
                set.map_err(Aborted)?;
                self.lasts(planned, stamps, State::Clock);
            }
        }
        Ok(())
    }

    /// All places in a random order, without those that stand still or are cut off.
    fn victims(&self, draw: u64) -> Vec<usize> {
        let all = self.clients.len();
        let first = (draw >> 8) as usize % all.max(1);
        let struck = |place: &usize| {
            let mut places = self.active.iter().map(|active| active.state.place());
            places.any(|other| other == Some(*place))
        };
        let order = (0..all).map(|nth| (first + nth) % all);
        let (struck, mut others): (Vec<usize>, Vec<usize>) = order.partition(struck);
        // One that is struck already can be struck again, if it has to be.
        others.extend(struck);
        others
    }

    /// Waits a little until this client owns a lock, in most cases.
    fn await_owner(&self, place: usize, draw: u64) {
        let mut waited = Waited::begin();
        let waits = draw % 4 < WAITS_FOR_OWNER;
        while waits && !self.rings.owns(place) && waited.so_far() < OWNER_PATIENCE {
            std::thread::sleep(OWNER_LOOK);
        }
    }

    /// Does something, with stamps before and after.
    fn stamped(&self, act: impl FnOnce()) -> (u64, u64) {
        let from_ns = self.now();
        act();
        (from_ns, self.now())
    }

    fn note(&mut self, fault: Fault, place: Option<usize>, (from_ns, struck_ns): (u64, u64)) {
        self.struck.push(Struck {
            fault,
            client: place.map(|place| self.clients[place].number),
            from_ns,
            struck_ns,
            over_ns: None,
        });
    }

    fn lasts(&mut self, planned: &Planned, stamps: (u64, u64), state: State) {
        self.note(planned.fault, state.place(), stamps);
        self.active.push(Active {
            nth: self.struck.len() - 1,
            until_ns: self.now() + planned.lasts_ns,
            state,
        });
    }

    /// Kills a client and what it has started; the next one takes its place at once.
    fn kill(&mut self, place: usize, draw: u64) -> Result<()> {
        let pid = self.clients[place].pid;
        self.look_at_delays();
        let started = process::with_descendants(pid);
        self.await_owner(place, draw);
        let group = self.rings.group(place);
        // What waits for its lock shall not be granted it between the two stamps.
        let stamps = cpu::undisturbed(|| {
            self.stamped(|| {
                // First, so that it starts nothing more.
                process::kill(pid);
                group.into_iter().for_each(process::kill_group);
            })
        });
        started.into_iter().for_each(process::kill);
        self.note(Fault::Kill, Some(place), stamps);
        while !process::is_gone(pid) {
            std::thread::sleep(OWNER_LOOK);
        }
        // While it was cut off, its end would not reach the service.
        let is_its = |active: &mut Active| active.state.place() == Some(place);
        let over: Vec<Active> = self.active.extract_if(.., is_its).collect();
        for active in over {
            if matches!(active.state, State::Cut { .. }) {
                self.struck[active.nth].over_ns = Some(self.now());
            }
        }
        self.empty_ring(place, true);
        self.fork(place)
    }

    fn stop(&mut self, place: usize, planned: &Planned) {
        let pid = self.clients[place].pid;
        self.await_owner(place, planned.draw);
        let group = self.rings.group(place);
        let stamps = self.stamped(|| match group {
            Some(group) => process::stop_group(group),
            None => process::stop(pid),
        });
        self.lasts(planned, stamps, State::Stopped { place, pid, group });
    }

    /// Cuts off the first that has a connection.
    fn cut(&mut self, victims: &[usize], planned: &Planned, way: Way) -> Result<()> {
        let refused = |error: std::io::Error| {
            Aborted(format!(
                "cannot cut a client's connection: {error}; that takes the right to trace the \
                 service's processes (as root, CAP_SYS_PTRACE)"
            ))
        };
        let servers = self.service.processes();
        for place in victims.iter().copied() {
            let ours = process::with_descendants(self.clients[place].pid);
            let mut link = Link::between(&ours, &servers).map_err(refused)?;
            let is_spared = planned.fault == Fault::IdleCut && link.silent_for() < SILENT;
            if link.is_empty() || is_spared {
                continue;
            }
            if planned.fault != Fault::IdleCut {
                self.await_owner(place, planned.draw);
            }
            let mut cut = Ok(());
            let stamps = self.stamped(|| cut = link.cut(way));
            cut.map_err(refused)?;
            self.lasts(planned, stamps, State::Cut { place, link });
            break;
        }
        Ok(())
    }

    /// Strikes a server of the cluster, or the links of its host, if one leads.
    fn strike_member(&mut self, client: Option<usize>, planned: &Planned) -> Result<()> {
        let (service, fault) = (self.service, planned.fault);
        let Ok(blow) = Blow::aim(fault, &service.members(), LEADER_PATIENCE) else {
            return Ok(());
        };
        let mut done = Ok(());
        let stamps = self.stamped(|| done = blow.strike(service, client));
        done.map_err(|said| Aborted(format!("--fault {fault}: {said}")))?;
        self.lasts(planned, stamps, State::Member(blow));
        Ok(())
    }

    /// Ends the faults whose time is over.
    ///
    /// # Errors
    /// In words for the user: the service cannot be started again.
    pub(crate) fn end_faults_until(&mut self, now_ns: u64) -> Result<(), String> {
        let is_over = |active: &mut Active| active.until_ns <= now_ns;
        let over: Vec<Active> = self.active.extract_if(.., is_over).collect();
        over.into_iter()
            .try_for_each(|active| self.end_fault(active))
    }

    /// Whatever happens: nothing stands still when the run is over.
    pub(crate) fn end_all_faults(&mut self) {
        for active in std::mem::take(&mut self.active) {
            // What is down need not come back, and a member that stands still is ended as it is.
            if !matches!(active.state, State::Down { .. } | State::Member(_)) {
                let _ = self.end_fault(active);
            }
        }
        let _ = self.service.switch().map(Switch::join);
    }

    fn end_fault(&mut self, active: Active) -> Result<(), String> {
        match active.state {
            State::Stopped { pid, group, .. } => match group {
                Some(group) => process::go_on_group(group),
                None => process::go_on(pid),
            },
            State::Cut { link, .. } => drop(link),
            State::Down { loses_data: true } => self.service.start_empty()?,
            State::Down { loses_data: false } => self.service.start_again()?,
            State::Halted => self.service.let_go_on(),
            State::Clock => self.service.set_clock(0)?,
            State::Member(blow) => blow.mend(self.service)?,
        }
        self.struck[active.nth].over_ns = Some(self.now());
        Ok(())
    }
}
