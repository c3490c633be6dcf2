//! The course of a world: the choice of the next action, and the checks after each step.

use super::super::*;
use super::dice::Dice;
use super::replay::Replay;
use super::witness::{Witness, account_of, ensure};
use super::{Name, Violation, World, bytes_of};

pub(super) struct Play {
    pub(super) dice: Dice,
    pub(super) world: World,
    pub(super) table: Table,
    pub(super) witness: Witness,
    pub(super) clients: Vec<ClientId>,
    /// The last tokens that clients have seen, some long lapsed.
    pub(super) remembered: Vec<(Name, u64)>,
    pub(super) now: Time,
    /// Sessions that were opened, some long over.
    pub(super) sessions: Vec<u128>,
    pub(super) outputs: Vec<Output>,
    replay: Replay,
    acts: u64,
}

/// After so many acts the table is handed over; less often if there is much of it.
const HANDOVER_EVERY: u64 = 499;

impl Play {
    pub(super) fn new(seed: u64, world: World) -> Self {
        let table = Table::new(Limits::default(), HashKey(seed, !seed), 1);
        let mut play = Self {
            dice: Dice(seed),
            world,
            table,
            witness: Witness::default(),
            clients: Vec::new(),
            remembered: vec![(0, 0)],
            now: Time(1),
            sessions: Vec::new(),
            outputs: Vec::new(),
            replay: Replay::default(),
            acts: 0,
        };
        play.table.keep_journal(true);
        play.table.step(Tokens(u64::MAX), play.now, &mut Vec::new());
        // Bounds that nobody reaches, so that the table counts.
        for account in 0..3 {
            let most = Amounts {
                locks: 1 << 20,
                waiters: 1 << 20,
                sessions: 1 << 20,
                bytes: 1 << 40,
            };
            let event = Quota { account, most };
            play.table.step(event, play.now, &mut Vec::new());
        }
        play.clients = (0..world.clients).map(|_| play.open()).collect();
        play
    }

    pub(super) fn open(&mut self) -> ClientId {
        let client = self.table.step(Open, self.now, &mut self.outputs).unwrap();
        let account = account_of(client) as u16;
        let event = Enlist { client, account };
        self.table.step(event, self.now, &mut self.outputs);
        client
    }

    pub(super) fn act(&mut self) -> Result<(), Violation> {
        self.acts += 1;
        let every = HANDOVER_EVERY.max(self.world.clients as u64 / 2);
        if self.acts.is_multiple_of(every) {
            self.hand_over()?;
        }
        let who = self.dice.below(self.clients.len() as u64) as usize;
        let client = self.clients[who];
        let name = self.dice.below(self.world.names) as Name;
        if self.dice.percent(self.world.patience) {
            return self.pass();
        }
        let unruly = self.world.unruly;
        // A client that waits sends nothing that would be looked at.
        match self.dice.below(100) {
            0..44 if !self.witness.waiting.contains_key(&client) => self.lock(client, name),
            44..50 if !self.witness.waiting.contains_key(&client) => self.lock_all(client),
            50..74 if !self.witness.waiting.contains_key(&client) => self.unlock(client, name),
            74..77 => self.renew(),
            77..81 => self.tend_session(),
            81..88 if unruly => self.race(),
            88..92 if unruly => {
                let waited = self.witness.leave(client).map(|(names, _)| names);
                self.step(Cancel(client), waited.unwrap_or_default())
                    .map(drop)
            }
            92..96 if unruly => self.die(who),
            96 if unruly && self.dice.percent(30) => self.force(name),
            97 if unruly && self.dice.percent(10) => self.cancel_all(),
            _ => self.pass(),
        }
    }

    /// All waits end, and nobody gets a lock because of that.
    fn cancel_all(&mut self) -> Result<(), Violation> {
        // What is due by now ends waits in other ways.
        while self.table.next_tick().is_some_and(|tick| tick <= self.now) {
            self.step(Tick, Vec::new())?;
        }
        let waiting: Vec<ClientId> = self.witness.waiting.keys().copied().collect();
        let left = (waiting.into_iter()).filter_map(|client| self.witness.leave(client));
        let touched = left.flat_map(|(names, _)| names).collect();
        self.step(CancelAll, touched).map(drop)
    }

    /// The world goes on with a table that was made from the image of this one.
    fn hand_over(&mut self) -> Result<(), Violation> {
        let image = self.table.image(self.now);
        let bytes = postcard::to_stdvec(&image).map_err(|error| error.to_string())?;
        let read: TableImage = postcard::from_bytes(&bytes).map_err(|error| error.to_string())?;
        ensure!(read == image, "the image does not survive being written");
        let limits = self.table.limits;
        self.table = Table::from_image(&read, limits).map_err(|error| error.to_string())?;
        self.table.keep_journal(true);
        let again = self.table.image(self.now);
        ensure!(again == image, "the image changes with the handover");
        Ok(())
    }

    pub(super) fn pass(&mut self) -> Result<(), Violation> {
        let ns = match self.dice.below(100) {
            0..40 => self.dice.below(1000),
            40..80 => self.dice.below(2_000_000),
            80..98 => self.dice.below(200_000_000),
            98 => self.dice.below(20_000_000_000),
            // The machine was asleep for up to two hours.
            _ => self.dice.below(7_200_000_000_000),
        };
        self.come_to(self.now.0 + ns)?;
        self.step(Tick, Vec::new()).map(drop)
    }

    /// Time comes to the very instant of a deadline, or a nanosecond to either
    /// side, and the lease's owner unlocks.
    pub(super) fn race(&mut self) -> Result<(), Violation> {
        let next = match self.dice.below(5) {
            0 => return self.race_with_session(),
            1 | 2 => self.witness.leases.first(),
            _ => self.witness.waits.first(),
        };
        let Some(&(deadline, name, _)) = next else {
            return self.pass();
        };
        if deadline == u64::MAX || deadline > self.now.0 + 120_000_000_000 {
            return self.pass();
        }
        let to = self.now.0.max(deadline - 1 + self.dice.below(3));
        self.come_to(to)?;
        let truth = self.witness.locks.get(&name);
        let held = truth.and_then(|truth| truth.holds.iter().next());
        match held.map(|(token, held)| (*token, held.client)) {
            Some((token, client)) => {
                // A session is no client: anybody releases by its token.
                let own = self.clients.contains(&client);
                let client = if own { client } else { self.clients[0] };
                self.release(client, name, Some(token))
            }
            None => self.step(Tick, Vec::new()).map(drop),
        }
    }

    /// Time comes to the end of a session, or a nanosecond to either side, and it
    /// is renewed or closed.
    pub(super) fn race_with_session(&mut self) -> Result<(), Violation> {
        let Some(&(end, session)) = self.witness.session_ends.first() else {
            return self.pass();
        };
        if end > self.now.0 + 120_000_000_000 {
            return self.pass();
        }
        let to = self.now.0.max(end - 1 + self.dice.below(3));
        self.come_to(to)?;
        if self.dice.percent(50) {
            self.renew_session(session)
        } else {
            self.close_session(session)
        }
    }

    /// Lets time pass, with a stop right before the end of each session and at it, so
    /// that the witness knows which grants came before the end.
    pub(super) fn come_to(&mut self, to: u64) -> Result<(), Violation> {
        while let Some(&(end, _)) = self.witness.session_ends.first()
            && end <= to
        {
            for at in [end - 1, end] {
                self.now = Time(at);
                self.step(Tick, Vec::new())?;
            }
            self.witness.none_waits_in_vain()?;
        }
        self.now = Time(to);
        Ok(())
    }

    pub(super) fn die(&mut self, who: usize) -> Result<(), Violation> {
        let client = self.clients[who];
        let mut touched = self.witness.lapse(self.now);
        let left = self.witness.leave(client);
        touched.extend(left.into_iter().flat_map(|(names, _)| names));
        for (name, token) in self.witness.owned.remove(&client).unwrap_or_default() {
            self.witness.end(name, token);
            touched.push(name);
        }
        self.step(Close(client), touched)?;
        self.clients[who] = self.open();
        Ok(())
    }

    pub(super) fn force(&mut self, name: Name) -> Result<(), Violation> {
        let mut touched = self.witness.lapse(self.now);
        touched.push(name);
        let truth = self.witness.locks.entry(name).or_default();
        let tokens: Vec<u64> = truth.holds.keys().copied().collect();
        let regranted = tokens.is_empty() && !truth.queue.is_empty();
        for token in &tokens {
            self.witness.end(name, *token);
        }
        if regranted {
            // A lock granted in this very step would be taken away at once: let the
            // timers run first.
            return self.step(Tick, touched).map(drop);
        }
        let text = bytes_of(name);
        let ended = self.step(Force(&text), touched)?;
        ensure!(ended == tokens.len() as u64, "FORCE {name}: {ended}");
        Ok(())
    }

    /// One step of the table, and all checks that do not depend on its kind.
    /// `touched` are the names whose queue may have to move.
    pub(super) fn step<E: Event>(
        &mut self,
        event: E,
        touched: Vec<Name>,
    ) -> Result<E::Reply, Violation> {
        let reply = self.step_wanting(event, touched)?;
        self.totals_agree()?;
        Ok(reply)
    }

    /// [`Play::step`] of a request for locks: the witness learns of the new hold or wait
    /// from the reply, so that totals do not agree yet.
    pub(super) fn step_wanting<E: Event>(
        &mut self,
        event: E,
        mut touched: Vec<Name>,
    ) -> Result<E::Reply, Violation> {
        touched.extend(self.witness.lapse(self.now));
        self.outputs.clear();
        // What is due comes first, be it more than the table does in one step.
        self.table.step(Tick, self.now, &mut self.outputs);
        while self.table.next_tick() == Some(Time(0)) {
            self.table.step(Tick, self.now, &mut self.outputs);
        }
        let reply = self.table.step(event, self.now, &mut self.outputs);
        while self.table.next_tick() == Some(Time(0)) {
            self.table.step(Tick, self.now, &mut self.outputs);
        }
        // In a large world each step is compared by numbers, and some in whole.
        let thorough = self.world.names <= 100 || self.acts.is_multiple_of(64);
        self.replay.follow(&mut self.table, self.now, thorough)?;
        for output in std::mem::take(&mut self.outputs) {
            let names = self.witness.hear(&output, self.now)?;
            if let Outcome::Granted(token) | Outcome::GrantedAll { first: token, .. } =
                output.outcome
            {
                self.remember(names[0], token);
            }
            touched.extend(names);
        }
        touched.sort_unstable();
        touched.dedup();
        touched
            .iter()
            .try_for_each(|name| self.witness.served(*name))?;
        if let Some(late) = self
            .witness
            .waits
            .first()
            .filter(|wait| wait.0 <= self.now.0)
        {
            return Err(format!(
                "a wait for {} should have ended at {}",
                late.1, late.0
            ));
        }
        Ok(reply)
    }

    fn totals_agree(&self) -> Result<(), Violation> {
        let waiting = self.witness.waits.len() as u64;
        ensure!(
            self.table.waiting() == waiting,
            "{} wait, not {waiting}",
            self.table.waiting()
        );
        let counters = self.table.counters();
        let ended = counters.granted_after_wait
            + counters.wait_timeouts
            + counters.wait_cancels
            + counters.waits_without_session
            + counters.waits_already_held;
        ensure!(
            counters.waits == ended + waiting,
            "the waits do not add up: {waiting} go on, {counters:?}"
        );
        let held = self.witness.holds;
        ensure!(
            self.table.holds() == held,
            "{} holds, not {held}",
            self.table.holds()
        );
        for (account, has) in (0..).zip(self.witness.accounts) {
            let booked = self.table.account_has(account);
            ensure!(
                booked == has,
                "account {account} has {has:?}, booked {booked:?}"
            );
        }
        Ok(())
    }
}
