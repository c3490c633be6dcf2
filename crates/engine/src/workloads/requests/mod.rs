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
use crate::order::{Merged, RequestOrder, RequestYield, RunOrder, Yield};
use crate::page::Stage;
use crate::page::Word;
use crate::work::Work;
use asking::Asking;
use jostle_model::plan::Workload;
use jostle_targets::{
    Caller, Entry, RequestSetup, Requests, ServerFigures, Setup, SetupError, caller,
};
use open::{Pool, Window};
use page::{Part, Sheets};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

/// What is asked, and where its workers note what came of it.
#[derive(Debug)]
pub struct Requesting {
    target: Box<dyn Requests>,
    sheets: Sheets,
    /// Where requests come at a rate.
    pool: Option<Pool>,
}

impl Requesting {
    /// Prepares the target of an entry, a lock or not.
    ///
    /// # Errors
    /// In words for the user.
    pub fn prepare(
        entry: &Entry,
        setup: &Setup<'_>,
        order: &RunOrder,
        request: &RequestOrder,
    ) -> Result<Requesting, SetupError> {
        let target = caller::prepare(
            entry,
            &RequestSetup {
                base: setup,
                timeout: Duration::from_nanos(request.timeout.0),
                output: request.output.as_deref().map(Path::new),
                connection: request.connection,
                credentials: setup.credentials,
                server_log: request.server_log.as_deref().map(Path::new),
            },
        )?;
        let no_memory = |error: std::io::Error| {
            SetupError(format!(
                "cannot make shared memory for {} workers: {error}; fewer workers (-w)",
                order.workers
            ))
        };
        let open = request.open_loop.as_ref();
        let pool = open.map(|open| Pool::new(order, open)).transpose();
        let pool = pool.map_err(no_memory)?;
        // One more for what is not a worker's.
        let count = order.workers + usize::from(pool.is_some());
        let sheets = Sheets::new(count, target.phases().len()).map_err(no_memory)?;
        Ok(Requesting {
            target,
            sheets,
            pool,
        })
    }

    /// The window, once all workers have arrived.
    fn window(crew: &Crew<'_, Requesting>) -> Window {
        crew.await_all();
        Window {
            opens: crew.shared.opens().load(Acquire),
            closes: crew.shared.closes().load(Acquire),
        }
    }

    /// All requests of a worker, by the schedule of its workload. True if all went well.
    fn ask_all(crew: &Crew<'_, Requesting>, worker: usize, asking: &mut Asking<'_>) -> bool {
        let page = crew.shared.page(worker);
        if let Some(pool) = &crew.target.pool {
            crew.wait_for_start(&page);
            page.set(Word::Stage, Stage::Working as u64);
            pool.work(asking, crew.clock, Requesting::window(crew));
            return crew.leave(&page, Ok(()));
        }
        if crew.order.workload == Workload::Spread {
            return windowed::live(crew, worker, asking);
        }
        crew.counted(worker, || {
            page.set(Word::Stage, Stage::Working as u64);
            Ok(closed::counted(asking, crew.order.operations))
        })
    }

    /// A worker's side of the requests, ready to be made.
    fn asking<'a>(
        crew: &Crew<'a, Requesting>,
        caller: Box<dyn Caller + 'a>,
        worker: usize,
    ) -> Asking<'a> {
        Asking::new(
            crew.order,
            crew.clock,
            &*crew.target.target,
            caller,
            crew.shared.page(worker),
            crew.target.sheets.sheet(worker),
            worker,
        )
    }
}

impl Work for Requesting {
    // Clients of servers parse and encrypt.
    const THREAD_STACK: usize = 1 << 20;

    fn excludes(&self) -> bool {
        false
    }

    fn is_remote(&self) -> bool {
        self.target.is_remote()
    }

    fn counts(&self) -> Result<Option<ServerFigures>, SetupError> {
        self.target.server()
    }

    fn clear(&self) -> Result<(), SetupError> {
        self.target.remove_leftovers()
    }

    fn finish(&self) -> Result<(), SetupError> {
        self.target.finish()
    }

    fn known(&self) -> (BTreeMap<String, f64>, BTreeMap<String, f64>) {
        (self.target.truth(), self.target.facts())
    }

    fn live(crew: &Crew<'_, Requesting>, worker: usize) -> bool {
        let page = crew.shared.page(worker);
        let caller = match crew.settle(worker, || {
            crew.target.target.join(crew.order.number(worker))
        }) {
            Ok(caller) => caller,
            Err(error) => {
                crew.give_up(&page, 0, &error.to_string());
                return false;
            }
        };
        crew.target.sheets.populate(worker);
        let mut asking = Requesting::asking(crew, caller, worker);
        let well = Requesting::ask_all(crew, worker, &mut asking);
        crew.part(&page, well, || asking.part())
    }

    fn live_as_tasks(_crew: &Crew<'_, Requesting>) -> i32 {
        // Refused before anything starts: a call that waits stops its thread.
        1
    }

    fn has_canary(&self) -> bool {
        self.pool.is_some()
    }

    fn live_as_canary(crew: &Crew<'_, Requesting>) -> i32 {
        if crew.settle_beside().is_err() {
            return 1;
        }
        let spare = crew.target.sheets.sheet(crew.order.workers);
        crew.await_start();
        open::canary(&spare, crew.clock, Requesting::window(crew));
        crew.await_dismissal();
        0
    }

    fn latency(&self) -> Option<(&'static str, Merged)> {
        Some(match self.pool {
            Some(_) => ("response_ns", self.sheets.merged(Part::Response)),
            None => ("service_ns", self.sheets.merged(Part::Service)),
        })
    }

    fn add_to(&self, order: &RunOrder, data: &mut Yield) {
        let merged = |part| self.sheets.merged(part);
        let phases = self.target.phases().iter().enumerate();
        let outcomes = self.sheets.outcomes();
        let name = |code: u32| self.target.code_name(code);
        let expected = |code: u32| order.expects(&*self.target, code);
        data.requests = Some(Box::new(RequestYield {
            phases: phases
                .map(|(nth, phase)| ((*phase).to_owned(), merged(Part::Phase(nth))))
                .collect(),
            service: merged(Part::Service),
            failed: merged(Part::Failed),
            codes: outcomes
                .answered
                .iter()
                .map(|(code, count)| (name(*code), *count))
                .collect(),
            children_ns: outcomes.children_ns,
            open_loop: self.pool.as_ref().map(|pool| {
                let spare = self.sheets.sheet(order.workers);
                Box::new(pool.settle(&self.sheets, &spare))
            }),
        }));
        let unexpected = outcomes
            .answered
            .iter()
            .filter(|(code, _)| !expected(**code));
        for (code, count) in unexpected {
            data.errors.insert(format!("code {}", name(*code)), *count);
        }
        data.messages.extend(outcomes.told.into_values());
        for (errno, count) in outcomes.failed {
            let name = jostle_sys::errno::name(errno);
            *data.errors.entry(name).or_default() += count;
        }
        if outcomes.beyond > 0 {
            data.errors
                .insert("further kinds of answer".to_owned(), outcomes.beyond);
        }
    }
}
