//! One run of `recover` from the keeper's side: an owner holds, others wait, a fault
//! strikes (`strike`), and what comes of it is noted until all have been served or the limit is
//! over.

mod strike;

use crate::board::{Board, order};
use crate::cluster::Blow;
use crate::delays::Looked;
use crate::process::{OWNER, Process};
use crate::service::Service;
use jostle_harness::{Aborted, Context, RAMP_PATIENCE_NS, Result, how_it_ended};
use jostle_model::plan::{Carrier, Fault, Range};
use jostle_model::record::{Event, What};
use jostle_stats::rng::Rng;
use jostle_sys::ledger::Ledger;
use jostle_sys::link::Link;
use jostle_sys::switch::Switch;
use jostle_sys::waited::Waited;
use jostle_sys::{clock, process};
use jostle_targets::{LEASE_FACT, LEASE_LAG_FACT, LEASE_STEP_FACT, Locks, Setup, Spec};
use jostle_worker::order::{RecoverData, RecoverOrder};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// How long an owner that goes on may take to say so, and to release.
const OWNER_PATIENCE_NS: u64 = 10_000_000_000;
/// Between the arrivals of two waiters, so that nobody doubts their order.
const ARRIVAL_NS: u64 = 20_000_000;
/// The fault strikes so long after the last arrival, and up to as long again, at random:
/// in step with no poll.
const STRIKE_NS: u64 = 20_000_000;
/// The longest that the keeper sleeps between two looks at its parent and children.
const LOOK_NS: u64 = 2_000_000;

/// One run. Everything that could outlive it is in the ledger before it is made.
///
/// # Errors
/// In words for the user.
pub fn recovered(
    context: &Context,
    ledger: &Ledger,
    service: &dyn Service,
    order: &RecoverOrder,
    spec: &Spec,
) -> Result<RecoverData> {
    Recovery::prepare(context, ledger, service, order, spec)?.perform()
}

/// Everything of one run.
struct Recovery<'a> {
    context: &'a Context,
    service: &'a dyn Service,
    order: &'a RecoverOrder,
    target: Box<dyn Locks>,
    board: Board,
    /// The living processes by pid, with their numbers.
    alive: BTreeMap<u32, usize>,
    deaths: Vec<String>,
    /// The keeper's own acts.
    own: Vec<Event>,
    /// Between the owner and the service, while it is cut.
    link: Option<Link>,
    /// The process group of the program that was struck.
    program: Option<u32>,
    /// What struck one server of several.
    blow: Option<Blow>,
    keepalive_s: Option<u64>,
    lease_ns: Option<u64>,
    /// Whether clients renew, as the field's do.
    renews: bool,
}

impl<'a> Recovery<'a> {
    /// Makes what the processes share.
    fn prepare(
        context: &'a Context,
        ledger: &'a Ledger,
        service: &'a dyn Service,
        order: &'a RecoverOrder,
        spec: &Spec,
    ) -> Result<Recovery<'a>> {
        let renews = order.renews && spec.entry.lock.renews;
        let setup = Setup {
            argument: spec.argument.as_deref(),
            ledger,
            workers: order.waiters + 1,
            keys: 1,
            shared: false,
            timed: false,
            carrier: Carrier::Processes,
            range: Range::Same,
            open_each: false,
            slots: 1,
            members: order.members,
            wait_replicas: order.wait_replicas,
            holds_many: false,
            kept: false,
            stays: renews,
            lease: Some(Duration::from_nanos(order.lease.0)),
            common_name: None,
            credentials: order.credentials.as_deref().map(Path::new),
            seed: order.seed,
            launcher: service,
        };
        let target = jostle_targets::prepare(spec.entry, &setup)
            .map_err(|error| Aborted(format!("{}: {error}", order.target)))?;
        let board = Board::new(order.waiters + 1)
            .map_err(|error| Aborted(format!("no memory for the processes: {error}")))?;
        let lease_ns = target.facts().get(LEASE_FACT).map(|ns| *ns as u64);
        Ok(Recovery {
            context,
            service,
            order,
            target,
            board,
            alive: BTreeMap::new(),
            deaths: Vec::new(),
            own: Vec::new(),
            link: None,
            program: None,
            blow: None,
            keepalive_s: None,
            lease_ns,
            renews,
        })
    }

    /// Performs the run.
    fn perform(mut self) -> Result<RecoverData> {
        let done = self.drive();
        if self.order.fault.is_of_server() {
            self.service.let_go_on();
        }
        // What comes now is no part of the history.
        let _ = self.service.switch().map(Switch::join);
        // A program that stands still does not see the end of its input.
        self.program.into_iter().for_each(process::go_on_group);
        self.clear_away();
        let cleared = self.target.finish();
        // Removes what the run left in a service that outlives it; one of our own ends with
        // the run.
        let _ = self.target.remove_leftovers();
        let mut data = done?;
        cleared.map_err(|error| Aborted(format!("{}: {error}", self.order.target)))?;
        data.deaths.append(&mut self.deaths);
        Ok(data)
    }

    fn drive(&mut self) -> Result<RecoverData> {
        let forked = clock::monotonic();
        for number in 0..=self.order.waiters {
            self.fork(number)?;
        }
        self.await_or_refuse("became ready", |board| {
            (0..board.processes()).all(|process| board.is_ready(process))
        })?;
        let ready = clock::monotonic();
        self.board.order(OWNER, order::ACQUIRE);
        self.await_owner()?;
        for waiter in 1..=self.order.waiters {
            self.board.order(waiter, order::ACQUIRE);
            self.await_or_refuse("asked for the lock", |board| {
                has(board, waiter, |what| what == What::Acquire)
            })?;
            self.rest(ARRIVAL_NS)?;
        }
        self.rest(STRIKE_NS + Rng::new(self.order.seed).below(STRIKE_NS))?;
        let looked = Looked::at(&self.concerned(None));
        let (struck, struck_ns) = self.strike()?;
        let returned_ns = self.await_recovery(struck_ns.0)?;
        let delays = self
            .next_owner()
            .and_then(|next| looked.since(&self.concerned(Some(next))));
        if !self.is_owner_dead() {
            self.work_on(returned_ns.unwrap_or_else(clock::monotonic))?;
        }
        self.end_old_owner()?;
        self.serve_the_rest()?;
        let mut history: Vec<Event> = (0..self.board.processes())
            .flat_map(|process| self.board.events(process, 0))
            .chain(self.own.drain(..))
            .collect();
        history.sort_by_key(|event| event.at_ns);
        let facts = self.target.facts();
        let step = facts.get(LEASE_STEP_FACT).map(|ns| *ns as u64);
        let asked = first(&self.board, OWNER, |what| what == What::Acquire);
        Ok(RecoverData {
            history,
            lease_ns: self.lease_ns,
            lease_step_ns: step.filter(|_| self.lease_ns.is_some()),
            leased_at_ns: self.lease_ns.and(
                self.board
                    .leased_at(OWNER)
                    .or(asked.map(|event| event.at_ns)),
            ),
            struck,
            struck_ns,
            returned_ns,
            keepalive_s: self.keepalive_s,
            delays,
            ramp_ns: ready - forked,
            took_ns: clock::monotonic() - ready,
            deaths: Vec::new(),
            setup: facts,
        })
    }

    fn fork(&mut self, number: usize) -> Result<()> {
        let keeper = rustix::process::getpid();
        let pid = self.context.forker.fork(|| {
            let process = Process {
                target: &*self.target,
                board: &self.board,
                number,
                timer_slack_ns: self.order.timer_slack.0,
                renews: self.renews,
                keeper,
            };
            match self.service.switch().map(|switch| switch.enter_as(number)) {
                Ok(Err(_)) => 1,
                _ => process.live(),
            }
        });
        let pid = pid.map_err(|error| {
            Aborted(format!(
                "cannot fork process {number}: {error}; raise the limit on processes (ulimit -u), \
                 or fewer --waiters"
            ))
        })?;
        self.alive.insert(pid.as_raw_nonzero().get() as u32, number);
        Ok(())
    }

    /// Nobody else has asked for the lock yet.
    fn await_owner(&mut self) -> Result<()> {
        let within = self.order.within;
        let owns = |board: &Board| has(board, OWNER, is_grant);
        let well = self.await_within(within.0, |board| owns(board) || failed(board).is_some())?;
        if !well && self.deaths.is_empty() {
            return Err(Aborted(format!(
                "{}: the first request was not granted within {within}: somebody holds it already; \
                 release it (--prepare COMMAND runs before each run), or let each run name a lock of \
                 its own ({{run}} in the target)",
                self.order.target
            )));
        }
        self.await_or_refuse("owned the lock", owns)
    }

    /// The first waiter that was granted the lock.
    fn next_owner(&self) -> Option<usize> {
        let grants = (1..self.board.processes())
            .filter_map(|waiter| Some((first(&self.board, waiter, is_grant)?.at_ns, waiter)));
        grants.min().map(|(_, waiter)| waiter)
    }

    fn owner(&self) -> Option<u32> {
        let owner = self.alive.iter().find(|(_, number)| **number == OWNER);
        owner.map(|(pid, _)| *pid)
    }

    /// Whether the fault ends the owner's process.
    fn is_owner_dead(&self) -> bool {
        let is_alone = self.service.members().len() < 2;
        let fault = self.order.fault;
        fault == Fault::Kill || (fault == Fault::HostGone && is_alone)
    }

    fn note(&mut self, at_ns: u64, what: What) {
        self.own.push(Event {
            at_ns,
            process: None,
            what,
            token: None,
            said: None,
            times: None,
        });
    }

    /// Waits until the next grant, or until it is clear that there is none; what was stopped
    /// or cut stays so for its whole time, whenever that grant comes. Lets it continue, and
    /// returns when.
    fn await_recovery(&mut self, struck: u64) -> Result<Option<u64>> {
        let within = struck + self.order.within.0;
        let pause = self.order.pause.0;
        let lag = self.target.facts().get(LEASE_LAG_FACT).copied();
        let lease = self.lease_ns.unwrap_or(0) + lag.unwrap_or(0.0) as u64;
        let limit = |from: u64, least: u64| (from + least).min(within.max(from));
        // An owner comes back at the earliest when its lease has ended.
        let away = match lease {
            0 => pause,
            lease => lease + pause,
        };
        match self.order.fault {
            _ if self.is_owner_dead() => {
                self.await_next(within)?;
                Ok(None)
            }
            // Nothing of what was struck comes back.
            Fault::LeaderKill | Fault::MemberKill | Fault::HostGone => {
                self.await_next(limit(struck, lease + pause))?;
                Ok(None)
            }
            Fault::IdleCut => {
                self.rest_until(limit(struck, away).max(struck + pause))?;
                Ok(None)
            }
            Fault::LeaderStop | Fault::PartitionMinority | Fault::PartitionMajority => {
                self.rest_until(limit(struck, away).max(struck + pause))?;
                let returned = clock::monotonic();
                if let Some(blow) = &self.blow {
                    blow.mend(self.service).map_err(Aborted)?;
                }
                self.note(returned, What::Return);
                Ok(Some(returned))
            }
            Fault::Stop => {
                self.rest_until(limit(struck, away).max(struck + pause))?;
                self.board.set_goes_on(OWNER);
                let returned = clock::monotonic();
                match self.program.take() {
                    Some(group) => process::go_on_group(group),
                    None => self.owner().into_iter().for_each(process::go_on),
                }
                self.note(returned, What::Return);
                let awake = |board: &Board| has(board, OWNER, |what| what == What::Awake);
                self.await_within(OWNER_PATIENCE_NS, awake)?;
                Ok(Some(returned))
            }
            Fault::Cut => {
                self.rest_until(limit(struck, away).max(struck + pause))?;
                let returned = clock::monotonic();
                self.link = None;
                self.note(returned, What::Return);
                Ok(Some(returned))
            }
            Fault::ServerKill => {
                self.service.start_again().map_err(Aborted)?;
                let returned = clock::monotonic();
                self.note(returned, What::Return);
                // A lease may begin anew with the service.
                self.await_next(limit(returned, lease + pause))?;
                Ok(Some(returned))
            }
            // The others are refused before.
            _ => {
                self.rest(pause)?;
                let returned = clock::monotonic();
                self.service.let_go_on();
                self.note(returned, What::Return);
                self.await_next(limit(returned, lease + pause))?;
                Ok(Some(returned))
            }
        }
    }

    /// The work after the struck part is back. An owner that has lost its lock to another works on
    /// for the pause: that is how long both may believe that they own.
    fn work_on(&mut self, returned: u64) -> Result<()> {
        match self.next_owner() {
            Some(_) => self.rest_until(returned + self.order.pause.0),
            None => Ok(()),
        }
    }

    fn await_next(&mut self, until: u64) -> Result<bool> {
        self.await_within(until.saturating_sub(clock::monotonic()), |board| {
            (1..board.processes()).any(|waiter| has(board, waiter, is_grant))
        })
    }

    /// The old owner, where it lives, does what it has left to do, and releases.
    fn end_old_owner(&mut self) -> Result<()> {
        if self.is_owner_dead() {
            return Ok(());
        }
        self.board.order(OWNER, order::RELEASE);
        let ended = |board: &Board| has(board, OWNER, ends_release);
        // Its client may wait for an answer for as long as its lease lives.
        let leases = 2 * self.lease_ns.unwrap_or(0);
        let patience = OWNER_PATIENCE_NS.max(self.order.within.0).max(leases);
        self.await_within(patience, ended).map(drop)
    }

    /// Each waiter holds for a moment. A waiter that is not served within the limit counts
    /// as never served.
    fn serve_the_rest(&mut self) -> Result<()> {
        for waiter in 1..=self.order.waiters {
            self.board.order(waiter, order::RELEASE);
        }
        let released = |board: &Board, waiter: usize| has(board, waiter, ends_release);
        loop {
            let served = (1..=self.order.waiters).filter(|w| released(&self.board, *w));
            let served = served.count();
            if served == self.order.waiters {
                return Ok(());
            }
            // An attempt has the whole limit, except where the fault has used it up.
            let granted = (1..=self.order.waiters).any(|w| has(&self.board, w, is_grant));
            let any = granted || !self.is_owner_dead();
            let patience = if any { self.order.within.0 } else { 0 };
            let went_on = self.await_within(patience, |board| {
                let now = (1..board.processes()).filter(|w| released(board, *w));
                now.count() > served
            })?;
            if !went_on {
                return Ok(());
            }
        }
    }

    /// Sleeps, and looks after parent and children meanwhile.
    fn rest(&mut self, nanos: u64) -> Result<()> {
        self.rest_until(clock::monotonic() + nanos)
    }

    /// Rests until a time of `CLOCK_MONOTONIC`.
    fn rest_until(&mut self, until: u64) -> Result<()> {
        let left = || until.saturating_sub(clock::monotonic());
        self.await_while(left, |_| false).map(drop)
    }

    /// Waits for a condition without which the run cannot continue.
    fn await_or_refuse(&mut self, what: &str, reached: impl Fn(&Board) -> bool) -> Result<()> {
        let well = self.await_within(RAMP_PATIENCE_NS, |board| {
            reached(board) || failed(board).is_some()
        })?;
        let target = &self.order.target;
        match (failed(&self.board), self.deaths.first()) {
            (Some(said), _) if !reached(&self.board) => Err(Aborted(format!("{target}: {said}"))),
            (_, Some(death)) => Err(Aborted(format!(
                "{target}: {death} before the fault struck"
            ))),
            _ if !well => Err(Aborted(format!(
                "{target}: not every process {what} within {} s",
                RAMP_PATIENCE_NS / 1_000_000_000
            ))),
            _ => Ok(()),
        }
    }

    /// Whether it was reached in time.
    fn await_within(&mut self, patience_ns: u64, reached: impl Fn(&Board) -> bool) -> Result<bool> {
        let mut waited = Waited::begin();
        let left = || patience_ns.saturating_sub(waited.so_far().as_nanos() as u64);
        self.await_while(left, reached)
    }

    /// Waits for as long as there is time `left`, in nanoseconds.
    fn await_while(
        &mut self,
        mut left: impl FnMut() -> u64,
        reached: impl Fn(&Board) -> bool,
    ) -> Result<bool> {
        loop {
            let rung = self.board.rung();
            if reached(&self.board) {
                return Ok(true);
            }
            if self.context.stopped(Duration::ZERO) {
                return Err(Aborted("interrupted".into()));
            }
            self.reap();
            let left_ns = left();
            if left_ns == 0 {
                return Ok(false);
            }
            let nap_ns = left_ns.min(LOOK_NS);
            self.board.await_bell(rung, clock::monotonic() + nap_ns);
        }
    }

    fn reap(&mut self) {
        while let Some(ended) = process::reap() {
            let Some(number) = self.alive.remove(&ended.pid) else {
                continue;
            };
            if ended.code != Some(0) {
                let who = match number {
                    OWNER => "the owner".to_owned(),
                    waiter => format!("waiter {waiter}"),
                };
                let how = how_it_ended(&ended);
                self.deaths
                    .push(format!("{who} (pid {}): {how}", ended.pid));
            }
        }
    }

    /// Nobody who still waits is served any more.
    fn clear_away(&mut self) {
        while !self.alive.is_empty() {
            self.alive.keys().for_each(|pid| process::kill(*pid));
            std::thread::sleep(Duration::from_millis(1));
            while let Some(ended) = process::reap() {
                self.alive.remove(&ended.pid);
            }
        }
    }
}

fn is_grant(what: What) -> bool {
    matches!(what, What::Granted | What::GrantedFromDead)
}

fn ends_release(what: What) -> bool {
    matches!(what, What::Released | What::NotReleased | What::GaveUp)
}

fn first(board: &Board, process: usize, is: impl Fn(What) -> bool) -> Option<Event> {
    let mut events = board.events(process, 0).into_iter();
    events.find(|event| is(event.what))
}

fn has(board: &Board, process: usize, is: impl Fn(What) -> bool) -> bool {
    first(board, process, is).is_some()
}

/// The message of the first process that could not acquire the lock.
fn failed(board: &Board) -> Option<String> {
    (0..board.processes()).find_map(|process| {
        let event = first(board, process, |what| what == What::NotGranted)?;
        event.said
    })
}
