//! A task of `stream` or `hold` that sends one request at a time.

use super::{Job, Next, only};
use crate::crew::Crew;
use crate::page::{Page, Word};
use crate::recording::tally::{Counted, Pair, Tally};
use jostle_sys::files::Errno;
use jostle_targets::wire::{Answer, Asking, Wire};
use jostle_targets::{BatchKind, CallError, Mode};

/// One worker.
pub(super) struct Steps<'a> {
    notes: Tally<'a>,
    wire: Box<dyn Wire>,
    end: Finish<'a>,
    kind: BatchKind,
    first: usize,
    /// The operation under way.
    nth: u64,
    begun: u64,
    pair: Pair,
    token: Option<u64>,
    releases: bool,
    /// A request is on its way.
    asked: bool,
}

/// Reports what others of the crew wait for.
pub(super) struct Finish<'a>(pub(super) &'a Crew<'a>);

impl Finish<'_> {
    /// All locks are held.
    pub(super) fn held(&self, notes: &Tally<'_>) {
        notes.page.set(Word::HeldAt, notes.clock.now());
        self.0.count(self.0.shared.midway());
    }

    /// The end, which may have come before all locks were held.
    pub(super) fn ended(&self, notes: &Tally<'_>, well: bool) {
        notes.page.set(Word::PendingSince, 0);
        if well {
            notes.page.set(Word::Finished, notes.clock.now());
        }
        let holds = matches!(notes.counted, Counted::Hold(_));
        if holds && notes.page.get(Word::HeldAt) == 0 {
            self.0.count(self.0.shared.midway());
        }
        self.0.count(self.0.shared.finished());
    }
}

impl<'a> Steps<'a> {
    /// Worker number `worker` of a thread whose first is `first`.
    pub(super) fn new(
        crew: &'a Crew<'a>,
        counted: Counted<'a>,
        worker: usize,
        first: usize,
        wire: Box<dyn Wire>,
    ) -> Steps<'a> {
        let notes = crew.tally(counted, worker, first);
        Steps {
            first: notes.first_key(),
            kind: counted.first_kind(),
            notes,
            wire,
            end: Finish(crew),
            nth: 0,
            begun: 0,
            pair: Pair::default(),
            token: None,
            releases: false,
            asked: false,
        }
    }

    fn key(&self) -> usize {
        match self.kind {
            BatchKind::Pairs => self.first,
            BatchKind::Acquires | BatchKind::Releases => self.first + self.nth as usize,
        }
    }

    /// The next request, or the next phase.
    fn begin(&mut self, out: &mut Vec<u8>) -> Next {
        if self.nth == self.notes.operations {
            return match self.kind {
                BatchKind::Acquires => {
                    self.end.held(&self.notes);
                    (self.kind, self.nth) = (BatchKind::Releases, 0);
                    Next::Others
                }
                BatchKind::Pairs | BatchKind::Releases => Next::Done,
            };
        }
        self.begun = self.notes.begin();
        match self.kind {
            BatchKind::Releases => self.give_back(out),
            BatchKind::Pairs | BatchKind::Acquires => {
                self.notes.waits(self.begun);
                self.ask(out)
            }
        }
    }

    fn ask(&mut self, out: &mut Vec<u8>) -> Next {
        let key = self.key();
        self.wire.acquire(key, Mode::Exclusive, Asking::Block, out);
        (self.releases, self.asked) = (false, true);
        self.reply()
    }

    fn reply(&self) -> Next {
        Next::reply_to(&*self.wire, self.notes.clock)
    }

    fn give_back(&mut self, out: &mut Vec<u8>) -> Next {
        self.wire.release(self.key(), Mode::Exclusive, out);
        (self.releases, self.asked) = (true, true);
        self.reply()
    }

    fn acquired(&mut self, out: &mut Vec<u8>) -> Next {
        if self.kind == BatchKind::Pairs {
            self.pair = self.notes.passes(self.first, self.begun);
            if let Some(token) = self.token {
                self.notes.came_with(self.first, token);
            }
            return self.give_back(out);
        }
        self.notes.granted();
        if self.begun > 0 {
            let took = self.notes.clock.now() - self.begun;
            self.notes.acquired(self.nth, took);
        }
        self.nth += 1;
        self.begin(out)
    }

    fn released(&mut self, out: &mut Vec<u8>) -> Next {
        match self.kind {
            BatchKind::Pairs => {
                if self.notes.logs() {
                    self.notes.log(self.first, &self.pair, self.token);
                }
                self.notes.passed(self.nth, &self.pair);
            }
            BatchKind::Acquires | BatchKind::Releases => self.notes.released(self.nth, self.begun),
        }
        self.nth += 1;
        self.begin(out)
    }

    fn taken(&self) -> Result<Next, CallError> {
        match self.wire.polls_every_ns() {
            Some(poll) => Ok(Next::At(self.notes.clock.now() + poll)),
            None => Err(CallError::new(self.name(), Errno::AGAIN)),
        }
    }
}

impl Job for Steps<'_> {
    fn start(&mut self, out: &mut Vec<u8>) -> Next {
        self.begin(out)
    }

    fn heard(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(usize, Next), CallError> {
        let Some((reply, length)) = only(&*self.wire, bytes, self.is_answered(), self.name())?
        else {
            return Ok((0, Next::Same));
        };
        self.asked = false;
        let next = if self.releases {
            self.wire.released(reply)?;
            self.wire.afterwards(out);
            self.released(out)
        } else {
            match self.wire.acquired(self.key(), reply)? {
                Answer::Granted => {
                    self.token = self.wire.token(reply);
                    self.acquired(out)
                }
                Answer::Taken => self.taken()?,
                Answer::Pending => {
                    self.wire.go_on(out);
                    self.asked = true;
                    self.reply()
                }
            }
        };
        Ok((length, next))
    }

    fn is_answered(&self) -> bool {
        !self.asked
    }

    /// It polls, or all have acquired their locks.
    fn due(&mut self, out: &mut Vec<u8>) -> Result<Next, CallError> {
        if self.asked {
            self.wire.due(out)?;
            return Ok(self.reply());
        }
        Ok(match self.kind {
            BatchKind::Releases => self.begin(out),
            BatchKind::Pairs | BatchKind::Acquires => self.ask(out),
        })
    }

    fn wind_up(&mut self, _out: &mut Vec<u8>) -> Next {
        Next::Done
    }

    fn ended(&mut self, well: bool) {
        let all = self.nth == self.notes.operations && self.kind != BatchKind::Acquires;
        self.end.ended(&self.notes, well && all);
    }

    fn farewell(&mut self, out: &mut Vec<u8>) -> bool {
        self.wire.farewell(out)
    }

    fn name(&self) -> &'static str {
        self.wire.names()[usize::from(self.releases)]
    }

    fn page(&self) -> Page<'_> {
        self.notes.page
    }
}
