//! A run of all hosts, or a sweep, from the clocks before it to those after it.

use super::super::clocks::Bounds;
use super::super::link::Link;
use super::super::local_keeper::{LocalKeeper, Port};
use super::super::words::ToHost;
use super::{Coordinator, HostState, Round, Stage, phase};
use crate::hosts::{HostData, HostDid, Offset};
use crate::keeper::{KeeperError, Result};
use crate::order::{Closed, Reached, Reply, Request, RunOrder, SweepOrder, Together};
use jostle_sys::clock;
use jostle_sys::waited::Waited;
use std::time::{Duration, Instant};

/// From the agreement to the start: what sending to one host and waking one worker
/// may take, and what comes on top.
const MARGIN_NS: u64 = 30_000_000;
const MARGIN_PER_HOST_NS: u64 = 2_000_000;
const MARGIN_PER_WORKER_NS: u64 = 50_000;

/// Opening and closing connections has no time limit: each keeper makes sure that its
/// clients make progress.
const ENDLESS: Duration = Duration::MAX;

/// The start that all agreed on.
struct Start {
    /// In rank 0's time.
    at: u64,
    /// The clocks before.
    clocks: Vec<Option<Bounds>>,
}

impl<L: Link> Coordinator<L> {
    /// As [`crate::world::Hosts::run`], with whatever stands for a keeper.
    pub(in super::super) fn run_with<P: Port>(
        &mut self,
        port: P,
        orders: &[Option<RunOrder>],
        ended: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<HostData>> {
        self.round(port, ended, |first, round| first.run_of_all(round, orders))
    }

    /// As [`crate::world::Hosts::sweep`].
    pub(in super::super) fn sweep_with<P: Port>(
        &mut self,
        port: P,
        orders: &[Option<SweepOrder>],
        ended: &mut dyn FnMut() -> bool,
        reached: &mut dyn FnMut(Vec<HostDid<Reached>>),
    ) -> Result<Vec<HostDid<Closed>>> {
        self.round(port, ended, |first, round| {
            first.sweep_of_all(round, orders, reached)
        })
    }

    /// Carries out what all hosts do together, and aborts it if one of them fails.
    fn round<P: Port, D>(
        &mut self,
        port: P,
        ended: &mut dyn FnMut() -> bool,
        make: impl FnOnce(&mut Coordinator<L>, &mut Round<'_, P>) -> Result<D>,
    ) -> Result<D> {
        self.run += 1;
        self.spent.bytes = 0;
        let mut round = Round {
            local: LocalKeeper::new(port, self.limits),
            ended,
            nap: self.limits.nap,
        };
        for state in &mut self.states {
            (state.stage, state.aborting) = (Stage::Idle, false);
        }
        self.pump()?;
        // Messages that came while rank 0 did something else have been read now.
        self.states
            .iter_mut()
            .for_each(|state| state.heard = Waited::begin());
        let done = make(self, &mut round);
        let done = done.map_err(|why| self.call_off(&mut round, why));
        let rested = self.say_all(&ToHost::Rest);
        done.and_then(|data| rested.map(|()| data))
    }

    fn run_of_all<P: Port>(
        &mut self,
        round: &mut Round<'_, P>,
        orders: &[Option<RunOrder>],
    ) -> Result<Vec<HostData>> {
        let assigned = |order: &RunOrder| Request::Run(Box::new(order.clone()));
        let assignments = orders.iter().map(|order| order.as_ref().map(assigned));
        let taking = self.prepare(round, assignments.collect())?;
        let workers = orders.iter().flatten().map(|order| order.workers as u64);
        let start = self.go(round, &taking, workers.max().unwrap_or(0))?;
        let longest = orders.iter().flatten().map(longest);
        let longest = longest.max().unwrap_or_default() + self.limits.stage;
        self.reach_at_work(round, &taking, phase::WORKED, longest)?;
        let drained = Instant::now();
        self.conclude(round, &taking, self.limits.stage)?;
        self.spent.gather = drained.elapsed();
        self.measure_clocks(round)?;
        Ok(self.did(&taking, &start, |state| {
            match std::mem::take(&mut state.stage) {
                Stage::Said(Reply::Ran(data)) => Some((data.began_ns, *data)),
                _ => None,
            }
        }))
    }

    fn sweep_of_all<P: Port>(
        &mut self,
        round: &mut Round<'_, P>,
        orders: &[Option<SweepOrder>],
        reached: &mut dyn FnMut(Vec<HostDid<Reached>>),
    ) -> Result<Vec<HostDid<Closed>>> {
        let assigned = |order: &SweepOrder| Request::Sweep(Box::new(order.clone()));
        let assignments = orders.iter().map(|order| order.as_ref().map(assigned));
        let taking = self.prepare(round, assignments.collect())?;
        let listed = orders.iter().flatten().map(|order| order.open.len());
        for _ in 0..listed.max().unwrap_or(0) {
            let start = self.go(round, &taking, 1)?;
            self.reach_at_work(round, &taking, phase::WORKED, ENDLESS)?;
            self.measure_clocks(round)?;
            let take = |state: &mut HostState| match std::mem::replace(
                &mut state.stage,
                Stage::Said(Reply::Prepared),
            ) {
                Stage::Said(Reply::Reached(data)) => Some((data.began_ns, *data)),
                _ => None,
            };
            let did = self.did(&taking, &start, take);
            let stopped = |did: &HostDid<Reached>| {
                did.data.stopped.is_some() || !did.data.around.deaths.is_empty()
            };
            let is_last = did.iter().any(stopped);
            reached(did);
            if is_last {
                break;
            }
        }
        self.conclude(round, &taking, ENDLESS)?;
        let start = Start {
            at: 0,
            clocks: vec![None; self.states.len()],
        };
        Ok(self.did(&taking, &start, |state| {
            match std::mem::take(&mut state.stage) {
                Stage::Said(Reply::Closed(data)) => Some((0, *data)),
                _ => None,
            }
        }))
    }

    /// Until all who take part are ready; returns who they are. The host that asks
    /// the server for its counts is ready before the others connect, so that what
    /// they do is counted.
    fn prepare<P: Port>(
        &mut self,
        round: &mut Round<'_, P>,
        mut assignments: Vec<Option<Request>>,
    ) -> Result<Vec<usize>> {
        self.refuse_failures()?;
        self.freshen_clocks(round)?;
        let started = Instant::now();
        assignments.resize(self.hosts.len(), None);
        let taking: Vec<usize> = (0..self.hosts.len())
            .filter(|rank| assignments[*rank].is_some())
            .collect();
        taking
            .iter()
            .for_each(|rank| self.states[*rank].stage = Stage::Ordered);
        let (asking, others) = taking.split_at(1.min(taking.len()));
        for ranks in [asking, others] {
            for rank in ranks.iter().copied() {
                let Some(mut request) = assignments[rank].take() else {
                    continue;
                };
                let together = Some(Together {
                    asks_server: asking.contains(&rank),
                    takes_anchor: self.is_first_of_machine(rank, &taking),
                });
                match &mut request {
                    Request::Run(order) => order.together = together,
                    Request::Sweep(order) => order.together = together,
                    _ => {}
                }
                self.ask(round, rank, request)?;
            }
            self.reach(round, ranks, phase::PREPARED, self.limits.ready)?;
        }
        self.spent.prepare = started.elapsed();
        Ok(taking)
    }

    /// Whether no rank before it is of the same machine and takes part.
    fn is_first_of_machine(&self, rank: usize, taking: &[usize]) -> bool {
        let machine = |rank: &usize| &self.hosts[*rank].boot_id;
        let mut before = taking.iter().take_while(|other| **other != rank);
        machine(&rank).is_empty() || before.all(|other| machine(other) != machine(&rank))
    }

    /// Tells all when to begin, each by its own clock, and the others to sleep
    /// meanwhile. No host has more `workers`.
    fn go<P: Port>(
        &mut self,
        round: &mut Round<'_, P>,
        taking: &[usize],
        workers: u64,
    ) -> Result<Start> {
        let clocks = self.states.iter().map(|state| state.clock).collect();
        let margin_ns = MARGIN_NS
            + MARGIN_PER_HOST_NS * self.hosts.len() as u64
            + MARGIN_PER_WORKER_NS * workers;
        let at = clock::monotonic() + margin_ns;
        for rank in taking.iter().copied() {
            let ahead = self.offset(rank, at).ahead_ns;
            let at_ns = at.saturating_add_signed(ahead);
            self.ask(round, rank, Request::Go { at_ns })?;
        }
        for rank in self.others().filter(|rank| !taking.contains(rank)) {
            self.say(rank, &ToHost::Sleep)?;
        }
        Ok(Start { at, clocks })
    }

    /// As `reach`, with longer naps: waiting must not disturb the workers.
    fn reach_at_work<P: Port>(
        &mut self,
        round: &mut Round<'_, P>,
        taking: &[usize],
        phase: u8,
        patience: Duration,
    ) -> Result<()> {
        round.nap = self.limits.long_nap;
        let reached = self.reach(round, taking, phase, patience);
        round.nap = self.limits.nap;
        reached
    }

    fn conclude<P: Port>(
        &mut self,
        round: &mut Round<'_, P>,
        taking: &[usize],
        patience: Duration,
    ) -> Result<()> {
        for rank in taking.iter().copied() {
            self.ask(round, rank, Request::Conclude)?;
        }
        self.reach(round, taking, phase::OVER, patience)
    }

    /// The data of each after this start. `take` takes the data from its state, with the time at
    /// which it began by its own clock; zero if it did not begin.
    fn did<D>(
        &mut self,
        taking: &[usize],
        start: &Start,
        take: impl Fn(&mut HostState) -> Option<(u64, D)>,
    ) -> Vec<HostDid<D>> {
        let each = taking.iter().filter_map(|rank| {
            let state = &mut self.states[*rank];
            let (began_ns, data) = take(state)?;
            let clock = start.clocks[*rank]
                .zip(state.clock)
                .map_or(Offset::default(), |(before, after)| {
                    Bounds::between(before, after)
                });
            let began = began_ns.wrapping_add_signed(-clock.ahead_ns);
            Some(HostDid {
                rank: *rank,
                late_ns: match began_ns {
                    0 => 0,
                    _ => began.wrapping_sub(start.at) as i64,
                },
                data,
                clock,
            })
        });
        each.collect()
    }

    /// Ends a run that failed; returns the error to report.
    fn call_off<P: Port>(&mut self, round: &mut Round<'_, P>, why: KeeperError) -> KeeperError {
        let interrupted = matches!(why, KeeperError::Interrupted);
        let patience = match interrupted {
            true => self.limits.interrupt,
            false => self.limits.silence,
        };
        for rank in 0..self.hosts.len() {
            let _ = self.ask(round, rank, Request::Abort);
        }
        let mut waited = Waited::begin();
        loop {
            let _ = self.pump();
            let deaf = |state: &HostState| {
                !state.gone && !state.aborting && state.stage.failure().is_none()
            };
            let busy = |state: &HostState| !state.gone && !state.stage.is_over();
            let quiet = self.states.iter().all(|state| !deaf(state) && !busy(state));
            if quiet && !round.local.is_busy() {
                return why;
            }
            if waited.so_far() > patience {
                let mut deaf = self.others().filter(|rank| deaf(&self.states[*rank]));
                return match deaf.next() {
                    Some(rank) if interrupted => self.said(
                        rank,
                        "it does not answer any more, and this run was told to end; its process \
                         may have been killed, and with it the job",
                    ),
                    _ => why,
                };
            }
            if let Some(word) = round.local.look(self.limits.nap) {
                self.take(0, word);
            }
        }
    }
}

/// The longest that the workers of an order may take after the start.
fn longest(order: &RunOrder) -> Duration {
    Duration::from_nanos(
        order.warmup.0 + order.window.0 + order.patience().0 + order.workload.grace().0,
    )
}
