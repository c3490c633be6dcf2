//! One request of one worker: made, stamped, judged and recorded. Other modules decide when
//! it is due.

use super::Pacing;
use super::page::{Outcome, Part, Sheet};
use crate::order::{RequestOrder, RunOrder};
use crate::page::{Page, Word};
use jostle_sys::clock::Clock;
use jostle_sys::process::Usage;
use jostle_targets::{CallError, Caller, Phases, Requests};

/// A worker's side of the requests.
pub(super) struct Asking<'a> {
    requests: &'a RequestOrder,
    clock: Clock,
    target: &'a dyn Requests,
    caller: Box<dyn Caller + 'a>,
    /// Its counters, as every worker has them.
    page: Page<'a>,
    /// Its distributions.
    sheet: Sheet<'a>,
    numbers: Numbers,
}

/// The numbers of one worker's requests among those of all workers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    first: u64,
    /// From one of its own to the next.
    step: u64,
}

impl Numbers {
    /// Those of worker number `worker` of this host.
    pub(super) fn new(order: &RunOrder, pacing: Pacing<'_>, worker: usize) -> Numbers {
        let number = order.number(worker) as u64;
        let (first, step) = match pacing {
            Pacing::Ask(ask) => (number * ask.operations, 1),
            // How many each makes in a time is not known beforehand.
            Pacing::Spread(_) => (number, order.workers_in_all() as u64),
            // The schedule numbers them. Hosts have a schedule each, about equally long.
            Pacing::Rate(_) => order
                .share
                .map_or((0, 1), |share| (share.nth as u64, share.hosts as u64)),
        };
        Numbers { first, step }
    }

    fn number(self, nth: u64) -> u64 {
        self.first + nth * self.step
    }
}

/// A request that was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    /// Its stamps.
    phases: Phases,
    /// Stamp of its sending.
    pub sent: u64,
    /// Stamp of its end.
    pub ended: u64,
    /// Its outcome.
    pub outcome: Outcome,
    child: Usage,
}

impl Made {
    /// Whether it was answered as expected.
    pub(super) fn is_success(&self) -> bool {
        matches!(self.outcome, Outcome::Success(_))
    }
}

impl<'a> Asking<'a> {
    /// The caller of worker number `worker`.
    pub(super) fn new(
        requests: &'a RequestOrder,
        numbers: Numbers,
        clock: Clock,
        target: &'a dyn Requests,
        caller: Box<dyn Caller + 'a>,
        page: Page<'a>,
        sheet: Sheet<'a>,
    ) -> Asking<'a> {
        Asking {
            requests,
            numbers,
            clock,
            target,
            caller,
            page,
            sheet,
        }
    }

    /// Makes this worker's request number `nth` now. None if the keeper ended it.
    pub(super) fn make(&mut self, nth: u64) -> Option<Made> {
        let number = self.number(nth);
        let mut phases = Phases::begin(self.clock);
        self.page.set(Word::PendingSince, phases.began().max(1));
        let answer = self.caller.call(number, &mut phases);
        let (outcome, child, ended) = match answer {
            Ok(answer) if self.requests.expects(self.target, answer.code) => {
                (Outcome::Success(answer.code), answer.child, phases.ended())
            }
            Ok(answer) => (
                Outcome::Unexpected(answer.code),
                answer.child,
                phases.ended(),
            ),
            Err(error) if error.is_interrupted() => return None,
            Err(error) => {
                self.sheet.tell(error.errno, &error.to_string());
                let outcome = Outcome::Failed(error.errno);
                (outcome, Usage::default(), self.clock.now())
            }
        };
        self.page.set(Word::PendingSince, 0);
        Some(Made {
            sent: phases.began(),
            ended,
            phases,
            outcome,
            child,
        })
    }

    /// Ends what the worker has with the server, after its last request.
    ///
    /// # Errors
    /// EPROTO where an answer came that no request had asked for.
    pub(super) fn part(&mut self) -> Result<(), CallError> {
        self.caller.part()
    }

    /// Its distributions.
    pub(super) fn sheet(&self) -> Sheet<'a> {
        self.sheet
    }

    /// The number for `{n}` in request number `nth`.
    fn number(&self, nth: u64) -> u64 {
        match self.requests.numbers {
            Some(numbers) => self.numbers.number(nth) % numbers.max(1),
            None => self.numbers.number(nth),
        }
    }

    /// Records it, in this tenth of the run; None: outside of the window, where
    /// only the outcome is counted.
    pub(super) fn record(&self, made: &Made, slice: Option<usize>) {
        self.count(made);
        let Some(slice) = slice else { return };
        if made.is_success() {
            self.page.add(Word::Operations, 1);
        }
        self.fold(made, slice, made.sent);
    }

    /// Counts its outcome.
    pub(super) fn count(&self, made: &Made) {
        self.sheet.count(made.outcome);
        self.sheet.add_child(made.child);
        self.page.add(Word::Total, 1);
    }

    /// One more operation of the window.
    pub(super) fn add_operation(&self) {
        self.page.add(Word::Operations, 1);
    }

    /// Folds its times into the distributions, and into this tenth of the run; it
    /// was waited for since `since`.
    pub(super) fn fold(&self, made: &Made, slice: usize, since: u64) {
        let took = made.ended - made.sent;
        if !made.is_success() {
            self.sheet.fold(Part::Failed, took);
            return;
        }
        let waited = made.ended.saturating_sub(since);
        self.page.add(Word::Stamped, 1);
        self.page.raise(Word::LongestWait, waited);
        self.page.slice(slice, Some(waited));
        self.sheet.fold(Part::Service, took);
        for nth in 0..self.sheet.phases() {
            if let Some(span) = made.phases.span(nth) {
                self.sheet.fold(Part::Phase(nth), span);
            }
        }
    }
}
