//! Requests: workers that ask and wait for answers, whatever the workload that
//! decides when the next request is due.
//!
//! `asking` makes one request and records it, `page` is where; they know nothing
//! of schedules. A file beside them is a way to decide when the next one starts:
//! `closed`, as soon as the one before was answered, until a number is reached;
//! `windowed`, the same until a time is over.

mod asking;
mod closed;
mod page;
pub mod standstill;
mod windowed;

use crate::order::{RequestOrder, RequestYield, RunOrder, Yield};
use crate::page::Stage;
use crate::page::Word;
use crate::work::Work;
use crate::worker::Crew;
use asking::Asking;
use jostle_model::plan::Workload;
use jostle_targets::{
    Caller, Entry, RequestSetup, Requests, ServerFigures, Setup, SetupError, caller,
};
use page::{Part, Sheets};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// What is asked, and where its workers note what came of it.
#[derive(Debug)]
pub struct Requesting {
    target: Box<dyn Requests>,
    sheets: Sheets,
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
                credentials: request.credentials.as_deref().map(Path::new),
                server_log: request.server_log.as_deref().map(Path::new),
            },
        )?;
        let sheets = Sheets::new(order.workers, target.phases().len()).map_err(|error| {
            SetupError(format!(
                "cannot make shared memory for {} workers: {error}; fewer workers (-w)",
                order.workers
            ))
        })?;
        Ok(Requesting { target, sheets })
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

    fn known(&self) -> (BTreeMap<String, f64>, BTreeMap<String, f64>) {
        (self.target.truth(), self.target.facts())
    }

    fn live(crew: &Crew<'_, Requesting>, worker: usize) -> bool {
        let page = crew.shared.page(worker);
        let caller = match crew.settle(worker, || crew.target.target.join(worker)) {
            Ok(caller) => caller,
            Err(error) => {
                crew.give_up(&page, 0, &error.to_string());
                return false;
            }
        };
        let mut asking = Requesting::asking(crew, caller, worker);
        if crew.order.workload == Workload::Spread {
            return windowed::live(crew, worker, &mut asking);
        }
        crew.counted(worker, || {
            page.set(Word::Stage, Stage::Working as u64);
            Ok(closed::counted(&mut asking, crew.order.operations))
        })
    }

    fn live_as_tasks(_crew: &Crew<'_, Requesting>) -> i32 {
        // Refused before anything starts: a call that waits stops its thread.
        1
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
        }));
        let unexpected = outcomes
            .answered
            .iter()
            .filter(|(code, _)| !expected(**code));
        for (code, count) in unexpected {
            data.errors.insert(format!("code {}", name(*code)), *count);
        }
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
