//! `--as tasks`: many workers on few threads. Each worker is a task with a
//! connection of its own that never waits; a generator thread drives its share
//! of them by epoll(7), speaking the target's protocol without its client.
//!
//! A task's next step is its job's business (`contend`, `steps`, `pipelined`); `thread` brings
//! replies and times to the jobs and sends what they put together. Meaning and records are those of
//! the other carriers: a page, a witness and stamps for each worker, one common start. Only
//! distributions are folded into one page for each thread, so that ten thousand tasks do not have
//! ten thousand histograms.

mod contend;
mod link;
mod pipelined;
mod steps;
mod thread;
mod timers;

use crate::crew::{Crew, Used};
use crate::order::ContendOrder;
use crate::page::{Page, Stage, Word};
use crate::workloads::locking::{LockOrder, Locking};
use jostle_sys::clock::Clock;
use jostle_sys::{cpu, files, process, signal};
use jostle_targets::wire::{Decoded, Wire};
use jostle_targets::{CallError, Dialled, SetupError, surplus};
use std::io;
use std::ops::Range;
use thread::GeneratorThread;

/// Stack of a generator thread.
const STACK: usize = 256 * 1024;

/// The event that a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A reply.
    Reply,
    /// This stamp, or a reply.
    At(u64),
    /// This stamp, on time, or a reply: the thread wakes early and looks up until then.
    Sharp(u64),
    /// The event that it waited for already.
    Same,
    /// The sending of its requests: it has more.
    Sent,
    /// All other tasks, which have to reach the same point.
    Others,
    /// Nothing: it is done.
    Done,
}

impl Next {
    /// A reply, for as long as the wire has patience.
    fn reply_to(wire: &dyn Wire, clock: Clock) -> Next {
        match wire.patience_ns() {
            None => Next::Reply,
            Some(patience_ns) => Next::At(clock.now() + patience_ns),
        }
    }
}

/// A worker's work, without its socket: requests go to the end of `out`.
pub(crate) trait Job {
    /// Begins.
    fn start(&mut self, out: &mut Vec<u8>) -> Next;

    /// Takes the whole replies at the head of `bytes`; returns how much of it
    /// they are.
    ///
    /// # Errors
    /// The request that failed; the task is over then.
    fn heard(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(usize, Next), CallError>;

    /// Whether every request that it has sent is answered: what comes then was never
    /// asked for.
    fn is_answered(&self) -> bool;

    /// Its time has come, or all others have.
    ///
    /// # Errors
    /// The request that failed; the task is over then.
    fn due(&mut self, out: &mut Vec<u8>) -> Result<Next, CallError>;

    /// The run is over: no attempt begins any more.
    fn wind_up(&mut self, out: &mut Vec<u8>) -> Next;

    /// The task has come to its end, which may be an early one.
    fn ended(&mut self, well: bool);

    /// Appends what ends its session with the server. False where nothing does but the
    /// end of the connection.
    fn farewell(&mut self, _out: &mut Vec<u8>) -> bool {
        false
    }

    /// For messages about its connection.
    fn name(&self) -> &'static str;

    fn page(&self) -> Page<'_>;
}

/// The reply that a job waits for, if it sends one request at a time; None while the reply
/// is incomplete. Any bytes behind it came before the next request was sent.
///
/// # Errors
/// EPROTO in the name of `call`, where it waits for none or more has come.
#[inline]
fn only<'a>(
    wire: &dyn Wire,
    bytes: &'a [u8],
    is_answered: bool,
    call: &'static str,
) -> Decoded<'a> {
    let reply = wire.decode(bytes, call)?;
    let is_more = reply.is_some_and(|(_, length)| length < bytes.len());
    // What is no reply yet may be answers that nobody waits for.
    match (is_answered && reply.is_some()) || is_more {
        true => Err(surplus::error(call)),
        false => Ok(reply),
    }
}

impl Locking<'_> {
    /// A process whose generator threads carry all workers. Returns its exit
    /// code.
    pub(crate) fn worker_tasks(&self, crew: &Crew<'_>) -> i32 {
        process::set_name("jostle-tasks");
        if process::die_with(crew.keeper).is_err() {
            return 1;
        }
        let _ = process::leave_group();
        // What is missing shows when a connection cannot be made.
        files::raise_descriptor_limit();
        let kind = (
            STACK,
            "generator thread",
            "fewer of them (--generator-threads)",
        );
        let well = crew.threads(
            0..crew.order.generator_threads,
            kind,
            |nth| crew.order.tasks_of(nth).start,
            |nth| self.generator_thread(crew, nth, crew.order.tasks_of(nth)),
        );
        i32::from(!well)
    }

    /// True if all tasks of this thread went well.
    fn generator_thread(&self, crew: &Crew<'_>, nth: usize, workers: Range<usize>) -> bool {
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u64;
        for worker in workers.clone() {
            let page = crew.shared.page(worker);
            page.set(Word::Pid, u64::from(std::process::id()));
            page.set(Word::Tid, tid);
        }
        let dialled = take_place(crew, nth).and_then(|()| {
            let numbers = workers.clone().map(|worker| crew.order.number(worker));
            numbers.map(|number| self.dial(number)).collect()
        });
        let dialled: Vec<Dialled> = match dialled {
            Ok(dialled) => dialled,
            Err(error) => {
                let page = crew.shared.page(workers.start);
                crew.give_up(&page, 0, &error.to_string());
                return false;
            }
        };
        workers.clone().for_each(|worker| crew.touch(worker));
        workers
            .clone()
            .for_each(|worker| crew.make_ready(&crew.shared.page(worker)));
        crew.await_start();
        match self.order {
            LockOrder::Contend(contend) => carry(
                crew,
                Some(contend),
                workers,
                dialled,
                |worker, first, wire| contend::Contending::new(crew, contend, worker, first, wire),
            ),
            LockOrder::Counted(counted) => match counted.pipeline() {
                0 | 1 => carry(crew, None, workers, dialled, |worker, first, wire| {
                    steps::Steps::new(crew, counted, worker, first, wire)
                }),
                _ => carry(crew, None, workers, dialled, |worker, first, wire| {
                    pipelined::Pipelined::new(crew, counted, worker, first, wire)
                }),
            },
        }
    }

    /// The connection of the worker with this number among those of all hosts.
    fn dial(&self, number: usize) -> Result<Dialled, SetupError> {
        self.lock
            .locks()
            .join(number)?
            .into_dialled()
            .ok_or_else(|| {
                SetupError("it has no protocol that tasks could speak; --as processes".to_owned())
            })
    }
}

fn take_place(crew: &Crew<'_>, nth: usize) -> Result<(), SetupError> {
    let say = |what: &str, error: io::Error| SetupError(format!("cannot {what}: {error}"));
    signal::end_waits_on_signal().map_err(|e| say("install a signal handler", e))?;
    cpu::set_timer_slack(crew.order.timer_slack.0).map_err(|e| say("set the timer slack", e))?;
    match crew.order.cpus.as_slice() {
        [] => Ok(()),
        cpus => {
            let cpu = cpus[nth % cpus.len()];
            cpu::pin(&[cpu]).map_err(|e| say(&format!("use CPU {cpu}"), e))
        }
    }
}

/// Carries these workers' jobs to their end. `contend`: each task arrives when it begins, so that
/// the window opens when the last one has. Otherwise their operations end the run.
fn carry<J: Job>(
    crew: &Crew<'_>,
    contend: Option<&ContendOrder>,
    workers: Range<usize>,
    dialled: Vec<Dialled>,
    job: impl Fn(usize, usize, Box<dyn Wire>) -> J,
) -> bool {
    let first = workers.start;
    let tasks = workers.clone().zip(dialled);
    let tasks = tasks.map(|(worker, dialled)| (dialled.stream, job(worker, first, dialled.wire)));
    let mut thread = match GeneratorThread::new(crew, contend, first, tasks.collect()) {
        Ok(thread) => thread,
        Err(error) => return cannot_drive(crew, workers, &error),
    };
    let page = crew.shared.page(first);
    let before = Used::read(&page);
    for task in 0..workers.len() {
        crew.arrive(&crew.shared.page(first + task));
        if contend.is_some() {
            thread.start(task);
        }
    }
    if contend.is_none() {
        crew.await_all();
        (0..workers.len()).for_each(|task| thread.start(task));
    }
    thread.run();
    if contend.is_none() {
        // The thread's, in the name of its first worker.
        Used::read(&page).less(&before).leave(&page);
    }
    depart(crew, workers) && thread.part()
}

/// After the common start, so that the workers are failures of the run.
fn cannot_drive(crew: &Crew<'_>, workers: Range<usize>, error: &io::Error) -> bool {
    for worker in workers.clone() {
        let page = crew.shared.page(worker);
        crew.arrive(&page);
        let errno = error.raw_os_error().unwrap_or(0);
        page.fail(errno, &format!("cannot watch its connection: {error}"));
        crew.count(crew.shared.midway());
        crew.count(crew.shared.finished());
    }
    depart(crew, workers)
}

fn depart(crew: &Crew<'_>, workers: Range<usize>) -> bool {
    let mut well = true;
    // The thread's, in the name of its first worker.
    crew.count_to_the_end(&crew.shared.page(workers.start));
    for worker in workers {
        let page = crew.shared.page(worker);
        page.set(Word::PendingSince, 0);
        match page.get(Word::Stage) == Stage::Failed as u64 {
            true => well = false,
            false => page.set(Word::Stage, Stage::Done as u64),
        }
    }
    crew.await_dismissal();
    well
}
