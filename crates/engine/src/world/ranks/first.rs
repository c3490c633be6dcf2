//! Rank 0: tells all hosts what to do and when, and gathers what they did.
//!
//! A run has phases, and no host enters one before all have left the one before:
//! prepared, begun, drained, concluded. Between its looks at the others rank 0
//! sleeps, longer while workers work; it never waits inside the link. How long a
//! host may be silent is bounded, and what comes of it names the host.

use super::Limits;
use super::clocks::{self, Bounds, Exchange};
use super::link::{Link, LinkError};
use super::station::{Port, Station};
use super::words::{FromHost, Hello, Tick, ToHost};
use crate::keeper::{Keeper, KeeperError};
use crate::order::{RunOrder, Together, Yield};
use crate::world::{Host, HostYield, Hosts, Offset, Spent};
use jostle_sys::clock;
use std::time::{Duration, Instant};

/// Exchanges in one measurement of a clock, and how long they may take.
const EXCHANGES: usize = 100;
const EXCHANGING: Duration = Duration::from_millis(20);

/// A measurement no older than this serves as the one before a run.
const FRESH: Duration = Duration::from_secs(2);

/// From the agreement to the start: what sending to one host and waking one worker
/// may take, and what comes on top.
const MARGIN_NS: u64 = 30_000_000;
const MARGIN_PER_HOST_NS: u64 = 2_000_000;
const MARGIN_PER_WORKER_NS: u64 = 50_000;

/// How far a host is in a run.
#[derive(Clone, Debug, Default)]
enum Stage {
    /// It takes no part.
    #[default]
    Idle,
    Ordered,
    Prepared,
    Drained,
    Ran(Box<Yield>),
    Failed(String),
}

impl Stage {
    fn reached(&self) -> u8 {
        match self {
            Stage::Idle | Stage::Ordered => 0,
            Stage::Prepared => 1,
            Stage::Drained => 2,
            Stage::Ran(_) => 3,
            Stage::Failed(_) => 0,
        }
    }

    fn is_over(&self) -> bool {
        matches!(self, Stage::Idle | Stage::Ran(_) | Stage::Failed(_))
    }
}

/// What rank 0 knows of a host.
#[derive(Debug)]
struct Seat {
    heard: Instant,
    stage: Stage,
    /// It has heard that a run was called off.
    aborting: bool,
    /// Somebody else has told it to end.
    ending: Option<String>,
    /// It hears nothing any more, so that there is no use in waiting for it.
    gone: bool,
    /// It has left.
    left: bool,
    clock: Option<Bounds>,
}

/// All hosts, from rank 0.
pub struct First<L: Link> {
    link: Option<L>,
    hosts: Vec<Host>,
    seats: Vec<Seat>,
    limits: Limits,
    run: u64,
    /// Questions of the clock so far.
    asked: u32,
    beaten: Instant,
    spent: Spent,
}

/// A run in progress, for whoever waits in it.
struct Round<'a, P> {
    station: Station<P>,
    ended: &'a mut dyn FnMut() -> bool,
    nap: Duration,
}

impl<L: Link> First<L> {
    /// Waits until all others have said who they are; also gives why they cannot work
    /// together, if so: one is of another version, or says nothing.
    pub fn gather(link: L, hello: Hello, limits: Limits) -> (First<L>, Result<(), KeeperError>) {
        let seat = || Seat {
            heard: Instant::now(),
            stage: Stage::Idle,
            aborting: false,
            ending: None,
            gone: false,
            left: false,
            clock: None,
        };
        let size = link.size();
        let mut first = First {
            link: Some(link),
            hosts: vec![Host::default(); size],
            seats: (0..size).map(|_| seat()).collect(),
            limits,
            run: 0,
            asked: 0,
            beaten: Instant::now(),
            spent: Spent::default(),
        };
        first.hosts[0] = hello.clone().host();
        let greeted = first.greet(&hello);
        (first, greeted)
    }

    fn greet(&mut self, ours: &Hello) -> Result<(), KeeperError> {
        let start = Instant::now();
        let mut missing: Vec<usize> = (1..self.hosts.len()).collect();
        let mut refused = None;
        while !missing.is_empty() {
            let Some((from, bytes)) = self.receive()? else {
                if start.elapsed() > self.limits.silence {
                    missing
                        .iter()
                        .for_each(|rank| self.seats[*rank].gone = true);
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

    /// What one host said of itself, in its name.
    fn said(&self, rank: usize, text: &str) -> KeeperError {
        match self.hosts.len() {
            1 => failed(text.to_owned()),
            _ => failed(format!("{}: {text}", self.name(rank))),
        }
    }

    fn receive(&mut self) -> Result<Option<(usize, Vec<u8>)>, KeeperError> {
        match &mut self.link {
            Some(link) => link.try_receive().map_err(broken),
            None => Ok(None),
        }
    }

    fn send(&mut self, rank: usize, bytes: Vec<u8>) -> Result<(), KeeperError> {
        match &mut self.link {
            Some(link) => link.send(rank, bytes).map_err(broken),
            None => Ok(()),
        }
    }

    fn say(&mut self, rank: usize, word: &ToHost) -> Result<(), KeeperError> {
        let bytes = serde_json::to_vec(word).map_err(|error| failed(error.to_string()))?;
        self.send(rank, bytes)
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<L> {
        1..self.hosts.len()
    }

    fn say_all(&mut self, word: &ToHost) -> Result<(), KeeperError> {
        self.others().try_for_each(|rank| self.say(rank, word))
    }

    /// Takes all that has come.
    fn pump(&mut self) -> Result<(), KeeperError> {
        while let Some((from, bytes)) = self.receive()? {
            self.hear(from, &bytes);
        }
        Ok(())
    }

    fn hear(&mut self, from: usize, bytes: &[u8]) {
        self.seats[from].heard = Instant::now();
        if Tick::read(bytes).is_some() {
            // The answer to a question that is no longer asked.
            return;
        }
        match serde_json::from_slice(bytes) {
            Ok(word) => {
                if let FromHost::Ran { .. } = &word {
                    self.spent.bytes += bytes.len() as u64;
                }
                self.take(from, word);
            }
            Err(error) => {
                self.seats[from].stage =
                    Stage::Failed(format!("it said what cannot be read: {error}"));
            }
        }
    }

    fn take(&mut self, from: usize, word: FromHost) {
        let run = self.run;
        let seat = &mut self.seats[from];
        match word {
            FromHost::Prepared { run: of } if of == run => seat.stage = Stage::Prepared,
            FromHost::Drained { run: of } if of == run => seat.stage = Stage::Drained,
            FromHost::Ran { run: of, data } if of == run => seat.stage = Stage::Ran(data),
            FromHost::Failed { run: of, text } if of == run => seat.stage = Stage::Failed(text),
            FromHost::Aborting { run: of } if of == run => seat.aborting = true,
            FromHost::Ending { text } => seat.ending = Some(text),
            FromHost::Bye => seat.left = true,
            _ => {}
        }
    }

    fn tell<P: Port>(
        &mut self,
        round: &mut Round<'_, P>,
        rank: usize,
        word: ToHost,
    ) -> Result<(), KeeperError> {
        if rank > 0 {
            return self.say(rank, &word);
        }
        if let Some(answer) = round.station.hear(word) {
            self.take(0, answer);
        }
        Ok(())
    }

    /// Until all of these have come so far, or one of them has failed.
    fn reach<P: Port>(
        &mut self,
        round: &mut Round<'_, P>,
        ranks: &[usize],
        stage: u8,
        patience: Duration,
    ) -> Result<(), KeeperError> {
        let start = Instant::now();
        loop {
            self.pump()?;
            self.refuse_failures()?;
            let mut late = ranks
                .iter()
                .filter(|rank| self.seats[**rank].stage.reached() < stage);
            let Some(late) = late.next().copied() else {
                return Ok(());
            };
            if (round.ended)() {
                return Err(KeeperError::Interrupted);
            }
            if start.elapsed() > patience {
                let text = format!("it took longer than {} s", patience.as_secs());
                return Err(self.said(late, &text));
            }
            self.heed_silence()?;
            self.beat()?;
            if let Some(word) = round.station.look(round.nap) {
                self.take(0, word);
            }
        }
    }

    /// A host that fails, or is told to end, while it takes no part is missed too.
    fn refuse_failures(&self) -> Result<(), KeeperError> {
        let failed = self.seats.iter().enumerate().find_map(|(rank, seat)| {
            let text = match &seat.stage {
                Stage::Failed(text) => text,
                _ => seat.ending.as_ref()?,
            };
            Some(self.said(rank, text))
        });
        failed.map_or(Ok(()), Err)
    }

    fn heed_silence(&mut self) -> Result<(), KeeperError> {
        for rank in self.others() {
            let silent = self.seats[rank].heard.elapsed();
            if silent > self.limits.silence {
                self.seats[rank].gone = true;
                let text = format!(
                    "nothing was heard of it for {:.0} s: it hangs, or the way to it is cut",
                    silent.as_secs_f64()
                );
                return Err(self.said(rank, &text));
            }
        }
        Ok(())
    }

    fn beat(&mut self) -> Result<(), KeeperError> {
        if self.beaten.elapsed() < self.limits.beat {
            return Ok(());
        }
        self.beaten = Instant::now();
        self.say_all(&ToHost::Beat)
    }

    /// One run by all, from the clocks before it to those after it.
    fn round<P: Port>(
        &mut self,
        round: &mut Round<'_, P>,
        orders: &[Option<RunOrder>],
    ) -> Result<Vec<HostYield>, KeeperError> {
        self.refuse_failures()?;
        self.freshen_clocks(round)?;
        let started = Instant::now();
        let taking = self.prepare(round, orders)?;
        self.spent.prepare = started.elapsed();
        let before: Vec<Option<Bounds>> = self.seats.iter().map(|seat| seat.clock).collect();
        let at = clock::monotonic() + self.margin(orders);
        for rank in taking.iter().copied() {
            let ahead = self.offset(rank, at).ahead_ns;
            let at_ns = at.saturating_add_signed(ahead);
            self.tell(
                round,
                rank,
                ToHost::Go {
                    run: self.run,
                    at_ns,
                },
            )?;
        }
        // Workers begin, and should not be disturbed by those who wait for them.
        round.nap = self.limits.long_nap;
        let longest = orders.iter().flatten().map(longest);
        let longest = longest.max().unwrap_or_default() + self.limits.stage;
        self.reach(round, &taking, 2, longest)?;
        round.nap = self.limits.nap;
        let (run, drained) = (self.run, Instant::now());
        for rank in taking.iter().copied() {
            self.tell(round, rank, ToHost::Conclude { run })?;
        }
        self.reach(round, &taking, 3, self.limits.stage)?;
        self.spent.gather = drained.elapsed();
        self.measure_clocks(round)?;
        Ok(self.yields(&taking, &before, at))
    }

    /// Until all who take part are ready; returns who they are. The host that asks
    /// the server for its counts is ready before the others connect, so that what
    /// they do is counted.
    fn prepare<P: Port>(
        &mut self,
        round: &mut Round<'_, P>,
        orders: &[Option<RunOrder>],
    ) -> Result<Vec<usize>, KeeperError> {
        let taking: Vec<usize> = (0..self.hosts.len())
            .filter(|rank| orders.get(*rank).is_some_and(Option::is_some))
            .collect();
        taking
            .iter()
            .for_each(|rank| self.seats[*rank].stage = Stage::Ordered);
        let (asking, others) = taking.split_at(1.min(taking.len()));
        for ranks in [asking, others] {
            for rank in ranks.iter().copied() {
                let Some(mut order) = orders[rank].clone() else {
                    continue;
                };
                order.together = Some(Together {
                    asks_server: asking.contains(&rank),
                    takes_anchor: self.is_first_of_machine(rank, &taking),
                });
                let (run, order) = (self.run, Box::new(order));
                self.tell(round, rank, ToHost::Order { run, order })?;
            }
            self.reach(round, ranks, 1, self.limits.ready)?;
        }
        Ok(taking)
    }

    /// Whether no rank before it is of the same machine and takes part.
    fn is_first_of_machine(&self, rank: usize, taking: &[usize]) -> bool {
        let machine = |rank: &usize| &self.hosts[*rank].boot_id;
        let mut before = taking.iter().take_while(|other| **other != rank);
        machine(&rank).is_empty() || before.all(|other| machine(other) != machine(&rank))
    }

    fn margin(&self, orders: &[Option<RunOrder>]) -> u64 {
        let workers = orders.iter().flatten().map(|order| order.workers as u64);
        MARGIN_NS
            + MARGIN_PER_HOST_NS * self.hosts.len() as u64
            + MARGIN_PER_WORKER_NS * workers.max().unwrap_or(0)
    }

    fn offset(&self, rank: usize, now: u64) -> Offset {
        let bounds = self.seats[rank].clock;
        bounds.map_or(Offset::default(), |bounds| bounds.offset(now))
    }

    fn yields(&mut self, taking: &[usize], before: &[Option<Bounds>], at: u64) -> Vec<HostYield> {
        let each = taking.iter().filter_map(|rank| {
            let seat = &mut self.seats[*rank];
            let Stage::Ran(data) = std::mem::take(&mut seat.stage) else {
                return None;
            };
            let clock = before[*rank]
                .zip(seat.clock)
                .map_or(Offset::default(), |(before, after)| {
                    Bounds::between(before, after)
                });
            let began = data.began_ns.wrapping_add_signed(-clock.ahead_ns);
            Some(HostYield {
                rank: *rank,
                late_ns: match data.began_ns {
                    0 => 0,
                    _ => began.wrapping_sub(at) as i64,
                },
                data: *data,
                clock,
            })
        });
        each.collect()
    }

    fn freshen_clocks<P: Port>(&mut self, round: &mut Round<'_, P>) -> Result<(), KeeperError> {
        let now = clock::monotonic();
        let fresh = |bounds: Bounds| now.saturating_sub(bounds.at) < FRESH.as_nanos() as u64;
        let all = self.seats.iter().skip(1);
        match all
            .map(|seat| seat.clock)
            .all(|clock| clock.is_some_and(fresh))
        {
            true => Ok(()),
            false => self.measure_clocks(round),
        }
    }

    /// Of all others, one after the other, so that none waits for two.
    fn measure_clocks<P: Port>(&mut self, round: &mut Round<'_, P>) -> Result<(), KeeperError> {
        let started = Instant::now();
        // Whoever sleeps long begins to look more often.
        self.beaten = Instant::now();
        self.say_all(&ToHost::Beat)?;
        for rank in self.others() {
            let mut bounds = None;
            // A clock that jumps in the middle is asked again.
            for _ in 0..3 {
                bounds = clocks::bounds(&self.exchange(round, rank)?);
                if bounds.is_some() {
                    break;
                }
            }
            let Some(bounds) = bounds else {
                return Err(self.said(rank, "its clock jumps to and fro"));
            };
            self.seats[rank].clock = Some(bounds);
        }
        self.spent.clocks = started.elapsed();
        Ok(())
    }

    /// Nobody works now, so that it may spin.
    fn exchange<P: Port>(
        &mut self,
        round: &mut Round<'_, P>,
        rank: usize,
    ) -> Result<Vec<Exchange>, KeeperError> {
        let mut done = Vec::with_capacity(EXCHANGES);
        let mut start = Instant::now();
        while done.len() < EXCHANGES && (done.is_empty() || start.elapsed() < EXCHANGING) {
            self.asked = self.asked.wrapping_add(1);
            let sent = clock::monotonic();
            self.send(rank, Tick::Ping(self.asked).bytes())?;
            let (there, back) = self.answer(round, rank, done.is_empty())?;
            if done.is_empty() {
                start = Instant::now();
            }
            done.push(Exchange { sent, there, back });
        }
        Ok(done)
    }

    /// The answer to the last question, and when it came.
    fn answer<P: Port>(
        &mut self,
        round: &mut Round<'_, P>,
        rank: usize,
        is_first: bool,
    ) -> Result<(u64, u64), KeeperError> {
        loop {
            if let Some((from, bytes)) = self.receive()? {
                let back = clock::monotonic();
                match Tick::read(&bytes) {
                    Some(Tick::Pong(nth, there)) if from == rank && nth == self.asked => {
                        self.seats[from].heard = Instant::now();
                        return Ok((there, back));
                    }
                    _ => self.hear(from, &bytes),
                }
                continue;
            }
            self.refuse_failures()?;
            self.heed_silence()?;
            if (round.ended)() {
                return Err(KeeperError::Interrupted);
            }
            // The first answer comes when the other wakes up.
            match is_first {
                true => std::thread::sleep(self.limits.nap / 10),
                false => std::thread::yield_now(),
            }
        }
    }

    /// Ends a run that came to nothing; returns what is to be said of it.
    fn call_off<P: Port>(&mut self, round: &mut Round<'_, P>, why: KeeperError) -> KeeperError {
        let interrupted = matches!(why, KeeperError::Interrupted);
        let patience = match interrupted {
            true => self.limits.interrupt,
            false => self.limits.silence,
        };
        let run = self.run;
        for rank in 0..self.hosts.len() {
            let _ = self.tell(round, rank, ToHost::Abort { run });
        }
        let start = Instant::now();
        loop {
            let _ = self.pump();
            let deaf = |seat: &Seat| {
                !seat.gone && !seat.aborting && !matches!(seat.stage, Stage::Failed(_))
            };
            let busy = |seat: &Seat| !seat.gone && !seat.stage.is_over();
            let quiet = self.seats.iter().all(|seat| !deaf(seat) && !busy(seat));
            if quiet && !round.station.is_busy() {
                return why;
            }
            if start.elapsed() > patience {
                let mut deaf = self.others().filter(|rank| deaf(&self.seats[*rank]));
                return match deaf.next() {
                    Some(rank) if interrupted => self.said(
                        rank,
                        "it does not answer any more, and this run was told to end; its process \
                         may have been killed, and with it the job",
                    ),
                    _ => why,
                };
            }
            if let Some(word) = round.station.look(self.limits.nap) {
                self.take(0, word);
            }
        }
    }

    /// As [`Hosts::run`], with whatever stands for a keeper.
    pub(super) fn run_with<P: Port>(
        &mut self,
        port: P,
        orders: &[Option<RunOrder>],
        ended: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<HostYield>, KeeperError> {
        self.run += 1;
        self.spent.bytes = 0;
        let mut round = Round {
            station: Station::new(port, self.limits),
            ended,
            nap: self.limits.nap,
        };
        for seat in &mut self.seats {
            (seat.stage, seat.aborting) = (Stage::Idle, false);
        }
        self.pump()?;
        // What was said while we did something else has been heard now.
        self.seats
            .iter_mut()
            .for_each(|seat| seat.heard = Instant::now());
        let done = self.round(&mut round, orders);
        let done = done.map_err(|why| self.call_off(&mut round, why));
        let rested = self.say_all(&ToHost::Rest);
        done.and_then(|yields| rested.map(|()| yields))
    }

    /// Tells all to end, and waits until they have. False if one could not be waited
    /// for.
    fn farewell(&mut self) -> bool {
        let _ = self.say_all(&ToHost::Farewell);
        let start = Instant::now();
        loop {
            let _ = self.pump();
            let left = |seat: &Seat| seat.left || seat.gone;
            let done = self.seats.iter().skip(1).all(left);
            let flushed = self.link.as_mut().is_none_or(Link::is_flushed);
            if done && flushed || start.elapsed() > self.limits.farewell {
                return self.seats.iter().skip(1).all(|seat| seat.left);
            }
            std::thread::sleep(self.limits.nap);
        }
    }
}

impl<L: Link> Hosts for First<L> {
    fn all(&self) -> &[Host] {
        &self.hosts
    }

    fn run(
        &mut self,
        keeper: &mut Keeper,
        orders: &[Option<RunOrder>],
        ended: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<HostYield>, KeeperError> {
        self.run_with(keeper, orders, ended)
    }

    fn spent(&self) -> Spent {
        self.spent
    }
}

impl<L: Link> Drop for First<L> {
    /// The end of all ranks: in good order, or, where one cannot be waited for, at
    /// once, and this process with them. Whatever is to be printed is printed before.
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

/// The longest that the workers of an order may take after the start.
fn longest(order: &RunOrder) -> Duration {
    Duration::from_nanos(order.warmup.0 + order.window.0 + order.patience().0 + order.grace().0)
}

fn failed(text: String) -> KeeperError {
    KeeperError::Failed(text)
}

fn broken(error: LinkError) -> KeeperError {
    failed(format!("the link between the hosts: {error}"))
}
