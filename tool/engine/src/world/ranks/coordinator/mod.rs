//! Rank 0: tells all hosts what to do and when, and gathers what they did.
//!
//! A run has phases (`rounds`), and no host enters one before all have left the one before:
//! prepared, begun, drained, concluded. Between its looks at the others rank 0 sleeps,
//! longer while workers work; it never waits inside the link. A host that is silent for too
//! long ends the run with an error that names it.

mod asking;
mod rounds;

use super::Limits;
use super::clocks::Bounds;
use super::link::{Link, LinkError};
use super::local_keeper::{LocalKeeper, Port};
use super::words::{FromHost, Hello, Tick, ToHost};
use crate::hosts::{Host, HostData, HostDid};
use crate::keeper::{Keeper, KeeperError, Result};
use crate::order::{Closed, Reached, Reply, Request, RunOrder, SweepOrder};
use crate::world::{Hosts, Spent};
use jostle_sys::waited::Waited;
use std::time::{Duration, Instant};

/// How far a host is in a run.
#[derive(Clone, Debug, Default)]
enum Stage {
    /// It takes no part.
    #[default]
    Idle,
    Ordered,
    /// As its keeper said last.
    Said(Reply),
}

/// How far that is.
mod phase {
    pub(super) const BEFORE: u8 = 0;
    pub(super) const PREPARED: u8 = 1;
    pub(super) const WORKED: u8 = 2;
    pub(super) const OVER: u8 = 3;
}

impl Stage {
    fn reached(&self) -> u8 {
        match self {
            Stage::Said(Reply::Prepared) => phase::PREPARED,
            Stage::Said(Reply::Drained | Reply::Reached(_)) => phase::WORKED,
            Stage::Said(Reply::Ran(_) | Reply::Closed(_)) => phase::OVER,
            _ => phase::BEFORE,
        }
    }

    fn failure(&self) -> Option<&String> {
        match self {
            Stage::Said(Reply::Failed(text)) => Some(text),
            _ => None,
        }
    }

    fn is_over(&self) -> bool {
        let idle = matches!(self, Stage::Idle);
        idle || self.reached() == phase::OVER || self.failure().is_some()
    }
}

/// Rank 0's knowledge of a host.
#[derive(Debug)]
struct HostState {
    heard: Waited,
    stage: Stage,
    /// It has heard that a run was called off.
    aborting: bool,
    /// Something other than rank 0 has told it to end.
    ending: Option<String>,
    /// It does not answer any more, so that waiting for it is useless.
    gone: bool,
    /// It has left.
    left: bool,
    clock: Option<Bounds>,
}

/// All hosts, from rank 0.
pub(super) struct Coordinator<L: Link> {
    link: Option<L>,
    hosts: Vec<Host>,
    states: Vec<HostState>,
    limits: Limits,
    run: u64,
    /// Questions of the clock so far.
    asked: u32,
    beaten: Instant,
    spent: Spent,
}

/// A run in progress, for whoever waits in it.
struct Round<'a, P> {
    local: LocalKeeper<P>,
    ended: &'a mut dyn FnMut() -> bool,
    nap: Duration,
}

impl<L: Link> Coordinator<L> {
    /// Waits until all others have introduced themselves. Also returns why they cannot work
    /// together, if so: a rank has another version, or does not answer.
    pub(super) fn gather(link: L, hello: Hello, limits: Limits) -> (Coordinator<L>, Result<()>) {
        let state = || HostState {
            heard: Waited::begin(),
            stage: Stage::Idle,
            aborting: false,
            ending: None,
            gone: false,
            left: false,
            clock: None,
        };
        let size = link.size();
        let mut coordinator = Coordinator {
            link: Some(link),
            hosts: vec![Host::default(); size],
            states: (0..size).map(|_| state()).collect(),
            limits,
            run: 0,
            asked: 0,
            beaten: Instant::now(),
            spent: Spent::default(),
        };
        coordinator.hosts[0] = hello.clone().host();
        let greeted = coordinator.greet(&hello);
        (coordinator, greeted)
    }

    fn greet(&mut self, ours: &Hello) -> Result<()> {
        let mut waited = Waited::begin();
        let mut missing: Vec<usize> = (1..self.hosts.len()).collect();
        let mut refused = None;
        while !missing.is_empty() {
            let Some((from, bytes)) = self.receive()? else {
                if waited.so_far() > self.limits.silence {
                    missing
                        .iter()
                        .for_each(|rank| self.states[*rank].gone = true);
                    return Err(failed(format!(
                        "of {} ranks, those numbered {missing:?} have not said who they are within {} s",
                        self.hosts.len(),
                        self.limits.silence.as_secs()
                    )));
                }
                std::thread::sleep(self.limits.nap);
                continue;
            };
            if !missing.contains(&from) {
                continue;
            }
            missing.retain(|rank| *rank != from);
            let hello: Hello = serde_json::from_slice(&bytes).unwrap_or_default();
            refused = refused.or_else(|| ours.refuses(&hello));
            self.hosts[from] = hello.host();
        }
        refused.map_or(Ok(()), |text| Err(failed(text)))
    }

    /// The host's name, with its rank where several have the same.
    fn name(&self, rank: usize) -> String {
        let name = &self.hosts[rank].name;
        let same = self.hosts.iter().filter(|host| host.name == *name);
        match same.count() {
            1 => name.clone(),
            _ => format!("{name} (rank {rank})"),
        }
    }

    /// An error that one host reported, with its name.
    fn said(&self, rank: usize, text: &str) -> KeeperError {
        match self.hosts.len() {
            1 => failed(text.to_owned()),
            _ => failed(format!("{}: {text}", self.name(rank))),
        }
    }

    fn receive(&mut self) -> Result<Option<(usize, Vec<u8>)>> {
        match &mut self.link {
            Some(link) => link.try_receive().map_err(broken),
            None => Ok(None),
        }
    }

    fn send(&mut self, rank: usize, bytes: Vec<u8>) -> Result<()> {
        match &mut self.link {
            Some(link) => link.send(rank, bytes).map_err(broken),
            None => Ok(()),
        }
    }

    fn say(&mut self, rank: usize, word: &ToHost) -> Result<()> {
        let bytes = serde_json::to_vec(word).map_err(|error| failed(error.to_string()))?;
        self.send(rank, bytes)
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<L> {
        1..self.hosts.len()
    }

    fn say_all(&mut self, word: &ToHost) -> Result<()> {
        self.others().try_for_each(|rank| self.say(rank, word))
    }

    /// Takes all that has come.
    fn pump(&mut self) -> Result<()> {
        while let Some((from, bytes)) = self.receive()? {
            self.hear(from, &bytes);
        }
        Ok(())
    }

    fn hear(&mut self, from: usize, bytes: &[u8]) {
        self.states[from].heard = Waited::begin();
        if Tick::read(bytes).is_some() {
            // The answer to a question that is no longer asked.
            return;
        }
        match serde_json::from_slice::<FromHost>(bytes) {
            Ok(word) => {
                if word.is_gathered() {
                    self.spent.bytes += bytes.len() as u64;
                }
                self.take(from, word);
            }
            Err(error) => {
                let text = format!("its message cannot be read: {error}");
                self.states[from].stage = Stage::Said(Reply::Failed(text));
            }
        }
    }

    fn take(&mut self, from: usize, word: FromHost) {
        let run = self.run;
        let state = &mut self.states[from];
        match word {
            FromHost::Said { run: of, reply } if of == run => state.stage = Stage::Said(reply),
            FromHost::Aborting { run: of } if of == run => state.aborting = true,
            FromHost::Ending { text } => state.ending = Some(text),
            FromHost::Bye => state.left = true,
            _ => {}
        }
    }

    /// Asks this of a host's keeper.
    fn ask<P: Port>(
        &mut self,
        round: &mut Round<'_, P>,
        rank: usize,
        request: Request,
    ) -> Result<()> {
        let run = self.run;
        let word = ToHost::Ask { run, request };
        if rank > 0 {
            return self.say(rank, &word);
        }
        if let Some(answer) = round.local.hear(word) {
            self.take(0, answer);
        }
        Ok(())
    }

    /// Until all of these have come so far, or one of them has failed.
    fn reach<P: Port>(
        &mut self,
        round: &mut Round<'_, P>,
        ranks: &[usize],
        phase: u8,
        patience: Duration,
    ) -> Result<()> {
        let mut waited = Waited::begin();
        loop {
            self.pump()?;
            self.refuse_failures()?;
            let mut late = ranks
                .iter()
                .filter(|rank| self.states[**rank].stage.reached() < phase);
            let Some(late) = late.next().copied() else {
                return Ok(());
            };
            if (round.ended)() {
                return Err(KeeperError::Interrupted);
            }
            if waited.so_far() > patience {
                let text = format!("it took longer than {} s", patience.as_secs());
                return Err(self.said(late, &text));
            }
            self.heed_silence()?;
            self.beat()?;
            if let Some(word) = round.local.look(round.nap) {
                self.take(0, word);
            }
        }
    }

    /// A host that fails or is told to end is an error even while it takes no part.
    fn refuse_failures(&self) -> Result<()> {
        let failed = self.states.iter().enumerate().find_map(|(rank, state)| {
            let text = state.stage.failure().or(state.ending.as_ref());
            Some(self.said(rank, text?))
        });
        failed.map_or(Ok(()), Err)
    }

    fn heed_silence(&mut self) -> Result<()> {
        for rank in self.others() {
            let silent = self.states[rank].heard.so_far();
            if silent > self.limits.silence {
                self.states[rank].gone = true;
                let text = format!(
                    "nothing was heard of it for {:.0} s: it hangs, or the way to it is cut",
                    silent.as_secs_f64()
                );
                return Err(self.said(rank, &text));
            }
        }
        Ok(())
    }

    fn beat(&mut self) -> Result<()> {
        if self.beaten.elapsed() < self.limits.beat {
            return Ok(());
        }
        self.beaten = Instant::now();
        self.say_all(&ToHost::Beat)
    }

    /// Tells all to end, and waits until they have. False if one could not be waited
    /// for.
    fn farewell(&mut self) -> bool {
        let _ = self.say_all(&ToHost::Farewell);
        let mut waited = Waited::begin();
        loop {
            let _ = self.pump();
            let left = |state: &HostState| state.left || state.gone;
            let done = self.states.iter().skip(1).all(left);
            let flushed = self.link.as_mut().is_none_or(Link::is_flushed);
            if done && flushed || waited.so_far() > self.limits.farewell {
                return self.states.iter().skip(1).all(|state| state.left);
            }
            std::thread::sleep(self.limits.nap);
        }
    }
}

impl<L: Link> Hosts for Coordinator<L> {
    fn all(&self) -> &[Host] {
        &self.hosts
    }

    fn run(
        &mut self,
        keeper: &mut Keeper,
        orders: &[Option<RunOrder>],
        ended: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<HostData>> {
        self.run_with(keeper, orders, ended)
    }

    fn sweep(
        &mut self,
        keeper: &mut Keeper,
        orders: &[Option<SweepOrder>],
        ended: &mut dyn FnMut() -> bool,
        reached: &mut dyn FnMut(Vec<HostDid<Reached>>),
    ) -> Result<Vec<HostDid<Closed>>> {
        self.sweep_with(keeper, orders, ended, reached)
    }

    fn spent(&self) -> Spent {
        self.spent
    }
}

impl<L: Link> Drop for Coordinator<L> {
    /// Ends all ranks: in good order, or, if one cannot be waited for, at once and together
    /// with this process. All output must be printed before.
    fn drop(&mut self) {
        let well = self.farewell();
        if let Some(link) = self.link.take().map(Box::new) {
            match well {
                true => link.leave(),
                false => link.abort(1),
            }
        }
    }
}

fn failed(text: String) -> KeeperError {
    KeeperError::Failed(text)
}

fn broken(error: LinkError) -> KeeperError {
    failed(format!("the link between the hosts: {error}"))
}
