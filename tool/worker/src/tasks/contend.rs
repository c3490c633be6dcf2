//! A task of `contend`: acquire, hold, release, idle, until the window closes.

use super::{Job, Next, only};
use crate::crew::Crew;
use crate::order::ContendOrder;
use crate::page::{Page, Stage, Word, phase};
use crate::recording::recorder::{Grant, Recorder};
use crate::workloads::contend::kept;
use jostle_model::plan::Measure;
use jostle_sys::clock;
use jostle_targets::wire::{Answer, Asking, Wire};
use jostle_targets::{CallError, Keeping, Mode, Wait};
use std::sync::atomic::Ordering::Relaxed;

/// One worker.
pub(super) struct Contending<'a> {
    notes: Recorder<'a>,
    wire: Box<dyn Wire>,
    state: State,
    /// The operation under way.
    key: usize,
    mode: Mode,
    attempt: u64,
    /// Stamp at which the last idle began.
    idle_since: u64,
    stamped: bool,
    wait: Wait,
    grant: Option<Grant>,
    token: Option<u64>,
    /// When the hold ends, and when the next renewal is due; stamps.
    hold_ends: u64,
    renewal_due: u64,
    keeping: Option<Keeping>,
    /// No attempt begins any more.
    over: bool,
    /// Counters of a worker that only counts: grants, those before the window, and the
    /// last value of the keeper's flag.
    total: u64,
    base: u64,
    seen: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// A request for the lock is on its way.
    Asked,
    /// The lock was taken, and the service has no queue.
    Polling,
    Holding,
    /// A renewal of what is held is on its way.
    Renewing,
    /// The release is on its way.
    Leaving,
}

impl<'a> Contending<'a> {
    /// Worker number `worker` of a thread whose first is `first`.
    pub(super) fn new(
        crew: &Crew<'a>,
        contend: &'a ContendOrder,
        worker: usize,
        first: usize,
        wire: Box<dyn Wire>,
    ) -> Contending<'a> {
        let notes = crew.recorder(contend, worker, first);
        Contending {
            keeping: kept(contend, wire.keeping()),
            hold_ends: 0,
            renewal_due: u64::MAX,
            wait: notes.block(),
            notes,
            wire,
            state: State::Idle,
            key: 0,
            mode: Mode::Exclusive,
            attempt: 0,
            idle_since: 0,
            stamped: false,
            grant: None,
            token: None,
            over: false,
            total: 0,
            base: 0,
            seen: phase::BEFORE,
        }
    }

    fn is_full(&self) -> bool {
        self.notes.order.measure == Measure::Full
    }

    fn begin(&mut self, out: &mut Vec<u8>) -> Next {
        (self.key, self.mode) = self.notes.choose();
        self.stamped = self.is_full() && self.notes.is_due();
        self.attempt = match self.stamped {
            true => self.notes.clock.now(),
            false => 0,
        };
        if self.over || self.stamped && self.attempt >= self.notes.closes() {
            return Next::Done;
        }
        match self.is_full() {
            true => self.notes.begins::<true>(self.attempt),
            false => self.notes.begins::<false>(self.attempt),
        }
        self.wait = self.notes.patience(self.attempt);
        self.ask(out)
    }

    fn ask(&mut self, out: &mut Vec<u8>) -> Next {
        let asking = Asking::from(self.wait);
        self.wire.acquire(self.key, self.mode, asking, out);
        self.state = State::Asked;
        self.reply()
    }

    fn reply(&self) -> Next {
        Next::reply_to(&*self.wire, self.notes.clock)
    }

    fn go_on(&mut self, out: &mut Vec<u8>) -> Next {
        self.wire.go_on(out);
        self.state = State::Asked;
        self.reply()
    }

    fn answered(&mut self, answer: Answer, out: &mut Vec<u8>) -> Next {
        match answer {
            // Nobody waits for it any more.
            Answer::Granted if self.over => self.give_back(out),
            Answer::Granted => self.own(out),
            Answer::Taken if self.over => Next::Done,
            Answer::Taken => self.taken(out),
            Answer::Pending => self.go_on(out),
        }
    }

    fn taken(&mut self, out: &mut Vec<u8>) -> Next {
        let left = match (self.wire.polls_every_ns(), self.wait) {
            (None, _) | (_, Wait::Try) => 0,
            (Some(poll), Wait::Until(until)) => poll.min(until.saturating_sub(clock::monotonic())),
            (Some(poll), Wait::Block { .. }) => poll,
        };
        if left > 0 {
            self.state = State::Polling;
            return Next::At(self.notes.clock.now() + left);
        }
        if self.is_full() {
            self.notes.refused(self.attempt);
            self.notes.advance();
        }
        self.idle(out)
    }

    fn own(&mut self, out: &mut Vec<u8>) -> Next {
        let holds = match self.is_full() {
            true => {
                let grant =
                    self.notes
                        .granted::<true>(self.key, self.mode, self.attempt, self.stamped);
                self.grant = Some(grant);
                if let Some(token) = self.token {
                    self.notes.came_with(self.key, self.mode, token);
                }
                self.notes.holds(&grant)
            }
            false => self.counted(),
        };
        match self.notes.contend.hold.span().0 {
            span if span > 0 && holds => {
                let now = self.notes.clock.now();
                self.hold_ends = now + span;
                self.renewal_due = self.keeping.map_or(u64::MAX, |kept| now + kept.every_ns);
                self.hold()
            }
            _ => self.give_back(out),
        }
    }

    fn hold(&mut self) -> Next {
        self.state = State::Holding;
        Next::Sharp(self.hold_ends.min(self.renewal_due))
    }

    /// The hold is over, or a renewal is due before that.
    fn held(&mut self, out: &mut Vec<u8>) -> Next {
        let Some(keeping) = self.keeping.filter(|_| self.renewal_due < self.hold_ends) else {
            return self.give_back(out);
        };
        self.renewal_due = self.notes.clock.now() + keeping.every_ns;
        self.wire.renew(self.key, out);
        self.state = State::Renewing;
        self.reply()
    }

    /// False if the window was over.
    fn counted(&mut self) -> bool {
        self.look();
        if self.seen == phase::AFTER {
            return false;
        }
        self.total += 1;
        self.notes.page.set(Word::Total, self.total);
        true
    }

    fn look(&mut self) {
        let now = self.notes.shared.phase().load(Relaxed);
        if now != self.seen {
            if self.seen == phase::BEFORE {
                self.base = self.total;
                self.notes.page.set(Word::Base, self.base);
            }
            self.seen = now;
        }
    }

    fn give_back(&mut self, out: &mut Vec<u8>) -> Next {
        if let Some(grant) = &mut self.grant {
            self.notes.leaving::<true, true>(grant);
        }
        self.wire.release(self.key, self.mode, out);
        self.state = State::Leaving;
        self.reply()
    }

    fn left(&mut self, out: &mut Vec<u8>) -> Next {
        let closed = match self.grant.take() {
            Some(grant) => {
                if self.notes.logs() {
                    self.notes.log(&grant, self.token);
                }
                let closed = self.notes.released(&grant, true);
                self.notes.advance();
                closed
            }
            None => self.seen == phase::AFTER,
        };
        if closed { Next::Done } else { self.idle(out) }
    }

    fn idle(&mut self, out: &mut Vec<u8>) -> Next {
        self.state = State::Idle;
        match self.notes.rest().span().0 {
            _ if self.over => Next::Done,
            0 => self.begin(out),
            span => {
                self.idle_since = self.notes.clock.now();
                Next::At(self.idle_since + span)
            }
        }
    }
}

impl Job for Contending<'_> {
    fn start(&mut self, out: &mut Vec<u8>) -> Next {
        self.notes.page.set(Word::Stage, Stage::Working as u64);
        self.begin(out)
    }

    fn heard(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(usize, Next), CallError> {
        let Some((reply, length)) = only(&*self.wire, bytes, self.is_answered(), self.name())?
        else {
            return Ok((0, Next::Same));
        };
        // Nothing is on its way any more.
        let next = match std::mem::replace(&mut self.state, State::Idle) {
            State::Leaving => {
                self.wire.released(reply)?;
                self.wire.afterwards(out);
                self.left(out)
            }
            State::Renewing => match (self.wire.renewed(self.key, reply)?, self.keeping) {
                (false, Some(keeping)) => return Err(keeping.lost()),
                _ => self.hold(),
            },
            _ => {
                let answer = self.wire.acquired(self.key, reply)?;
                if answer == Answer::Granted {
                    self.token = self.wire.token(reply);
                }
                self.answered(answer, out)
            }
        };
        Ok((length, next))
    }

    fn is_answered(&self) -> bool {
        !matches!(self.state, State::Asked | State::Renewing | State::Leaving)
    }

    fn due(&mut self, out: &mut Vec<u8>) -> Result<Next, CallError> {
        Ok(match self.state {
            State::Idle => {
                self.notes.idled(self.idle_since);
                self.begin(out)
            }
            State::Polling => self.ask(out),
            State::Holding => self.held(out),
            State::Asked | State::Renewing | State::Leaving => {
                self.wire.due(out)?;
                self.reply()
            }
        })
    }

    /// A hold in progress is finished.
    fn wind_up(&mut self, out: &mut Vec<u8>) -> Next {
        self.over = true;
        if !self.is_full() {
            self.look();
        }
        match self.state {
            State::Idle => Next::Done,
            State::Holding | State::Renewing | State::Leaving => Next::Same,
            State::Asked | State::Polling => {
                if self.is_full() {
                    self.notes.censored(self.attempt);
                }
                // The answer may be a grant that outlives the connection.
                match self.state == State::Asked && self.wire.outlives_connection() {
                    true => {
                        self.wire.give_up(out);
                        Next::Same
                    }
                    false => Next::Done,
                }
            }
        }
    }

    fn ended(&mut self, _well: bool) {
        self.notes.page.set(Word::PendingSince, 0);
        if !self.is_full() {
            let operations = self.total - self.base;
            self.notes.page.set(Word::Operations, operations);
        }
    }

    fn farewell(&mut self, out: &mut Vec<u8>) -> bool {
        self.wire.farewell(out)
    }

    fn name(&self) -> &'static str {
        let [acquire, release] = self.wire.names();
        match self.state {
            State::Leaving => release,
            _ => acquire,
        }
    }

    fn page(&self) -> Page<'_> {
        self.notes.page
    }
}
