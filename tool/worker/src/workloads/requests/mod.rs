//! Requests: workers that ask and wait for answers, whatever the workload that
//! decides when the next request is due.
//!
//! `asking` makes one request and records it, `page` is where; they know nothing
//! of schedules. A file beside them is a way to decide when the next one starts:
//! `closed`, as soon as the one before was answered, until a number is reached;
//! `windowed`, the same until a time is over; `open`, at the times that `arrivals`
//! has fixed before the run.

mod arrivals;
mod asking;
mod closed;
mod open;
mod page;
pub mod standstill;
mod windowed;

use crate::crew::Crew;
use crate::order::{
    AskOrder, Merged, PhaseData, RateOrder, RequestData, RequestOrder, RunData, RunOrder,
    SpreadOrder,
};
use crate::page::Stage;
use crate::page::Word;
use crate::work::Work;
use asking::{Asking, Numbers};
use jostle_targets::{
    Caller, Entry, Locks, RequestSetup, Requests, ServerFigures, Setup, SetupError,
    prepare_requests,
};
use open::{Pool, Window};
use page::{Part, Sheets};
use std::path::Path;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

/// The requests, and the sheets where its workers note the results.
#[derive(Debug)]
pub(crate) struct Requesting<'a> {
    target: Box<dyn Requests>,
    pacing: Pacing<'a>,
    sheets: Sheets,
    due: Due,
}

/// When workers ask, by workload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pacing<'a> {
    /// `stream`.
    Ask(&'a AskOrder),
    /// `rate`.
    Rate(&'a RateOrder),
    /// `spread`.
    Spread(&'a SpreadOrder),
}

impl<'a> Pacing<'a> {
    fn requests(self) -> &'a RequestOrder {
        match self {
            Pacing::Ask(ask) => &ask.requests,
            Pacing::Rate(rate) => &rate.requests,
            Pacing::Spread(spread) => &spread.requests,
        }
    }
}

/// When the next request of a worker is due.
#[derive(Debug)]
enum Due {
    /// When the one before was answered, for a number of requests.
    Counted(u64),
    /// At the answer to the one before, until the window closes; so many generators.
    Windowed(usize),
    /// By a schedule.
    Scheduled(Pool),
}

impl<'a> Requesting<'a> {
    /// Prepares the target of an entry, a lock or not.
    ///
    /// # Errors
    /// In words for the user.
    pub(crate) fn prepare(
        entry: &Entry,
        setup: &Setup<'_>,
        order: &RunOrder,
        pacing: Pacing<'a>,
    ) -> Result<Requesting<'a>, SetupError> {
        let request = pacing.requests();
        let target = prepare_requests(
            entry,
            &RequestSetup {
                base: setup,
                timeout: Duration::from_nanos(request.timeout.0),
                output: request.output.as_deref().map(Path::new),
                connection: request.connection,
                server_log: request.server_log.as_deref().map(Path::new),
            },
        )?;
        let no_memory = |error: std::io::Error| {
            SetupError(format!(
                "cannot make shared memory for {} workers: {error}; fewer workers (-w)",
                order.workers
            ))
        };
        // One more for what is not a worker's.
        let (due, count) = match pacing {
            Pacing::Ask(ask) => (Due::Counted(ask.operations), order.workers),
            Pacing::Spread(spread) => (Due::Windowed(spread.generators), order.workers),
            Pacing::Rate(rate) => {
                let pool = Pool::new(order, &rate.open_loop).map_err(no_memory)?;
                (Due::Scheduled(pool), order.workers + 1)
            }
        };
        let sheets = Sheets::new(count, target.phases().len()).map_err(no_memory)?;
        Ok(Requesting {
            target,
            pacing,
            sheets,
            due,
        })
    }

    /// The window, once all workers have arrived.
    fn window(crew: &Crew<'_>) -> Window {
        crew.await_all();
        Window {
            opens: crew.shared.opens().load(Acquire),
            closes: crew.shared.closes().load(Acquire),
        }
    }

    /// All requests of a worker, by the schedule of its workload. True if all went well.
    fn ask_all(&self, crew: &Crew<'_>, worker: usize, asking: &mut Asking<'_>) -> bool {
        let page = crew.shared.page(worker);
        match &self.due {
            Due::Scheduled(pool) => {
                crew.wait_for_start(&page);
                page.set(Word::Stage, Stage::Working as u64);
                pool.work(asking, crew.clock, Requesting::window(crew));
                crew.leave(&page, Ok(()))
            }
            Due::Windowed(generators) => windowed::live(crew, *generators, worker, asking),
            Due::Counted(operations) => crew.counted(worker, || {
                page.set(Word::Stage, Stage::Working as u64);
                Ok(closed::counted(asking, *operations))
            }),
        }
    }

    /// A worker's side of the requests, ready to be made.
    fn asking<'c>(
        &'c self,
        crew: &Crew<'c>,
        caller: Box<dyn Caller + 'c>,
        worker: usize,
    ) -> Asking<'c> {
        Asking::new(
            self.pacing.requests(),
            Numbers::new(crew.order, self.pacing, worker),
            crew.clock,
            &*self.target,
            caller,
            crew.shared.page(worker),
            self.sheets.sheet(worker),
        )
    }
}

impl Work for Requesting<'_> {
    fn thread_stack(&self) -> usize {
        // Clients of servers parse and encrypt.
        1 << 20
    }

    fn excludes(&self) -> bool {
        false
    }

    fn is_remote(&self) -> bool {
        self.target.is_remote()
    }

    fn locks(&self) -> Option<&dyn Locks> {
        self.target.locks()
    }

    fn counts(&self) -> Result<Option<ServerFigures>, SetupError> {
        match self.target.locks() {
            Some(locks) => locks.server(),
            None => self.target.server(),
        }
    }

    fn live(&self, crew: &Crew<'_>, worker: usize) -> bool {
        let joined = crew
            .settle(worker)
            .and_then(|()| self.target.join(crew.order.number(worker)));
        let page = crew.shared.page(worker);
        let caller = match joined {
            Ok(caller) => caller,
            Err(error) => {
                crew.give_up(&page, 0, &error.to_string());
                return false;
            }
        };
        crew.touch(worker);
        self.sheets.populate(worker);
        let mut asking = self.asking(crew, caller, worker);
        let well = self.ask_all(crew, worker, &mut asking);
        crew.part(&page, well, || asking.part())
    }

    fn live_as_tasks(&self, _crew: &Crew<'_>) -> i32 {
        // Refused before anything starts: a call that waits stops its thread.
        1
    }

    fn has_canary(&self) -> bool {
        matches!(self.due, Due::Scheduled(_))
    }

    fn live_as_canary(&self, crew: &Crew<'_>) -> i32 {
        if crew.settle_beside().is_err() {
            return 1;
        }
        let spare = self.sheets.sheet(crew.order.workers);
        crew.await_start();
        open::canary(&spare, crew.clock, Requesting::window(crew));
        crew.await_dismissal();
        0
    }

    fn latency(&self) -> Option<(&'static str, Merged)> {
        Some(match self.due {
            Due::Scheduled(_) => ("response_ns", self.sheets.merged(Part::Response)),
            Due::Counted(_) | Due::Windowed(_) => ("service_ns", self.sheets.merged(Part::Service)),
        })
    }

    fn add_to(&self, order: &RunOrder, data: &mut RunData) {
        let merged = |part| self.sheets.merged(part);
        let phases = self.target.phases().iter().enumerate();
        let outcomes = self.sheets.outcomes();
        let name = |code: u32| self.target.code_name(code);
        let expected = |code: u32| self.pacing.requests().expects(&*self.target, code);
        data.requests = Some(Box::new(RequestData {
            phases: phases
                .map(|(nth, phase)| PhaseData {
                    phase: (*phase).to_owned(),
                    span: merged(Part::Phase(nth)),
                })
                .collect(),
            service: merged(Part::Service),
            failed: merged(Part::Failed),
            codes: outcomes
                .answered
                .iter()
                .map(|(code, count)| (name(*code), *count))
                .collect(),
            children: outcomes.children,
            open_loop: match &self.due {
                Due::Scheduled(pool) => {
                    let spare = self.sheets.sheet(order.workers);
                    Some(Box::new(pool.settle(&self.sheets, &spare)))
                }
                Due::Counted(_) | Due::Windowed(_) => None,
            },
        }));
        let unexpected = outcomes
            .answered
            .iter()
            .filter(|(code, _)| !expected(**code));
        for (code, count) in unexpected {
            data.around
                .errors
                .insert(format!("code {}", name(*code)), *count);
        }
        data.around.messages.extend(outcomes.told.into_values());
        for (errno, count) in outcomes.failed {
            let name = jostle_sys::errno::name(errno);
            *data.around.errors.entry(name).or_default() += count;
        }
        if outcomes.beyond > 0 {
            data.around
                .errors
                .insert("further kinds of answer".to_owned(), outcomes.beyond);
        }
    }
}
