//! `--as tasks`: many workers on few threads. Each worker is a task with a
//! connection of its own that never waits; a generator thread drives its share
//! of them by epoll(7), speaking the target's protocol without its client.
//!
//! What a task does next is its job's business (`contend`, `steps`,
//! `pipelined`); this file brings replies and times to the jobs and sends what
//! they put together. Meaning and records are those of the other carriers: a page,
//! a witness and stamps for each worker, one common start. Only distributions are
//! folded into one page for each thread, so that ten thousand tasks do not have
//! ten thousand histograms.

mod contend;
mod link;
mod pipelined;
mod steps;
mod timers;

use crate::crew::{Crew, Used};
use crate::page::{Page, Stage, Word, phase};
use jostle_model::plan::{Measure, Workload};
use jostle_sys::clock::{self, Clock};
use jostle_sys::{cpu, files, futex, process, signal};
use jostle_targets::wire::{Decoded, Wire};
use jostle_targets::{CallError, Dialled, SetupError, Target, surplus};
use link::{Arrived, Link};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use timers::Timers;

/// Events that one call brings, at most.
const EVENTS: usize = 256;

/// Until the window's end is known, how long to wait for events.
const LOOK_UP_NS: u64 = 10_000_000;

/// For calls that do not wait.
const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Stack of a generator thread.
const STACK: usize = 256 * 1024;

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A reply.
    Reply,
    /// This stamp, or a reply.
    At(u64),
    /// The same, on time: the thread wakes early and looks up until then.
    Sharp(u64),
    /// What it waited for already.
    Same,
    /// That what it has put together is on its way: it has more.
    Sent,
    /// All others, to have come as far.
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

/// What a worker does, without its socket: requests go to the end of `out`.
pub trait Job {
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

    /// Its page.
    fn page(&self) -> Page<'_>;
}

/// The reply that a job waits for which sends one request at a time; None while it
/// is not whole. Whatever stands behind it came before the next request is sent.
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
    match is_answered || is_more {
        true => Err(surplus::error(call)),
        false => Ok(reply),
    }
}

impl<T: Target> Crew<'_, T> {
    /// A process whose generator threads carry all workers. Returns its exit
    /// code.
    pub fn worker_tasks(&self) -> i32 {
        process::set_name("jostle-tasks");
        if process::die_with(self.keeper).is_err() {
            return 1;
        }
        let _ = process::leave_group();
        // What is missing shows when a connection cannot be made.
        let _ = files::raise_descriptor_limit();
        let well = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.order.generators)
                .map(|nth| {
                    let workers = self.order.generator(nth);
                    let first = workers.start;
                    let thread = std::thread::Builder::new()
                        .stack_size(STACK)
                        .spawn_scoped(scope, move || self.generate(nth, workers));
                    if let Err(error) = &thread {
                        self.give_up(
                            &self.shared.page(first),
                            error.raw_os_error().unwrap_or(0),
                            &format!("cannot start generator thread {nth}: {error}; fewer of them (--generator-threads)"),
                        );
                    }
                    thread
                })
                .collect();
            let ends = threads
                .into_iter()
                .map(|thread| thread.is_ok_and(|t| t.join().unwrap_or(false)));
            ends.filter(|well| !well).count() == 0
        });
        i32::from(!well)
    }

    /// True if all tasks of this thread went well.
    fn generate(&self, nth: usize, workers: Range<usize>) -> bool {
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u64;
        for worker in workers.clone() {
            let page = self.shared.page(worker);
            page.set(Word::Pid, u64::from(std::process::id()));
            page.set(Word::Tid, tid);
        }
        let dialled = self
            .take_place(nth)
            .and_then(|()| workers.clone().map(|worker| self.dial(worker)).collect());
        let dialled: Vec<Dialled> = match dialled {
            Ok(dialled) => dialled,
            Err(error) => {
                let page = self.shared.page(workers.start);
                self.give_up(&page, 0, &error.to_string());
                return false;
            }
        };
        workers.clone().for_each(|worker| self.touch(worker));
        workers
            .clone()
            .for_each(|worker| self.make_ready(&self.shared.page(worker)));
        self.await_start();
        match (self.order.workload, self.order.pipeline) {
            (Workload::Contend, _) => self.contend(workers, dialled),
            (_, 0 | 1) => self.carry(workers, dialled, |crew, worker, first, wire| {
                steps::Steps::new(crew, worker, first, wire)
            }),
            _ => self.carry(workers, dialled, |crew, worker, first, wire| {
                pipelined::Pipelined::new(crew, worker, first, wire)
            }),
        }
    }

    fn take_place(&self, nth: usize) -> Result<(), SetupError> {
        let say = |what: &str, error: io::Error| SetupError(format!("cannot {what}: {error}"));
        signal::end_waits_on_signal().map_err(|e| say("install a signal handler", e))?;
        cpu::set_timer_slack(self.order.timer_slack.0)
            .map_err(|e| say("set the timer slack", e))?;
        match self.order.cpus.as_slice() {
            [] => Ok(()),
            cpus => {
                let cpu = cpus[nth % cpus.len()];
                cpu::pin(&[cpu]).map_err(|e| say(&format!("use CPU {cpu}"), e))
            }
        }
    }

    fn dial(&self, worker: usize) -> Result<Dialled, SetupError> {
        self.target.dial(self.order.number(worker))?.ok_or_else(|| {
            SetupError("it has no protocol that tasks could speak; --as processes".to_owned())
        })
    }

    /// Each task arrives when it begins, so that the window opens when the last
    /// one has.
    fn contend(&self, workers: Range<usize>, dialled: Vec<Dialled>) -> bool {
        let first = workers.start;
        let tasks = workers.clone().zip(dialled).map(|(worker, dialled)| {
            let job = contend::Contending::new(self, worker, first, dialled.wire);
            (dialled.stream, job)
        });
        let mut generator = match Generator::new(self, first, tasks.collect()) {
            Ok(generator) => generator,
            Err(error) => return self.cannot_drive(workers, &error),
        };
        for task in 0..workers.len() {
            self.arrive(&self.shared.page(first + task));
            generator.start(task);
        }
        generator.run();
        self.depart(workers) && generator.part()
    }

    /// The tasks of workloads that end with their operations.
    fn carry<'s, J: Job>(
        &'s self,
        workers: Range<usize>,
        dialled: Vec<Dialled>,
        job: impl Fn(&'s Self, usize, usize, Box<dyn Wire>) -> J,
    ) -> bool {
        let first = workers.start;
        let tasks = workers.clone().zip(dialled);
        let tasks =
            tasks.map(|(worker, dialled)| (dialled.stream, job(self, worker, first, dialled.wire)));
        let mut generator = match Generator::new(self, first, tasks.collect()) {
            Ok(generator) => generator,
            Err(error) => return self.cannot_drive(workers, &error),
        };
        let before = Used::read(&self.shared.page(first));
        workers
            .clone()
            .for_each(|worker| self.arrive(&self.shared.page(worker)));
        self.await_all();
        (0..workers.len()).for_each(|task| generator.start(task));
        generator.run();
        // The thread's, in the name of its first worker.
        let page = self.shared.page(first);
        Used::read(&page).less(&before).leave(&page);
        self.depart(workers) && generator.part()
    }

    /// After the common start, so that the workers are failures of the run.
    fn cannot_drive(&self, workers: Range<usize>, error: &io::Error) -> bool {
        for worker in workers.clone() {
            let page = self.shared.page(worker);
            self.arrive(&page);
            let errno = error.raw_os_error().unwrap_or(0);
            page.fail(errno, &format!("cannot watch its connection: {error}"));
            self.count(self.shared.midway());
            self.count(self.shared.finished());
        }
        self.depart(workers)
    }

    fn depart(&self, workers: Range<usize>) -> bool {
        let mut well = true;
        for worker in workers {
            let page = self.shared.page(worker);
            page.set(Word::PendingSince, 0);
            match page.get(Word::Stage) == Stage::Failed as u64 {
                true => well = false,
                false => page.set(Word::Stage, Stage::Done as u64),
            }
        }
        self.await_dismissal();
        well
    }
}

struct Task<J> {
    link: Link,
    job: J,
    state: State,
    /// The rest of its requests waits until the socket takes them.
    full: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Working,
    /// For the others.
    Waiting,
    /// With a request unanswered, or with a connection that is of no use.
    Over,
    /// With every request answered.
    Done,
}

/// One thread's tasks.
struct Generator<'a, J> {
    clock: Clock,
    shared: &'a crate::page::Shared,
    /// A window, and not a number of operations, ends the run; told by stamps
    /// or by the keeper's flag.
    windowed: Option<Measure>,
    tasks: Vec<Task<J>>,
    working: usize,
    waiting: usize,
    over: bool,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    timers: Timers,
    /// When to wake up for what is due on time, and until when not to sleep then.
    alarms: Timers,
    awake_until: u64,
    wake_early: u64,
    /// Where the thread notes what it spins.
    page: Page<'a>,
    room: Vec<u8>,
}

impl<'a, J: Job> Generator<'a, J> {
    fn new<T>(
        crew: &Crew<'a, T>,
        first: usize,
        tasks: Vec<(jostle_targets::remote::Stream, J)>,
    ) -> io::Result<Generator<'a, J>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let count = tasks.len();
        let tasks = tasks.into_iter().enumerate().map(|(nth, (stream, job))| {
            let link = Link::new(stream)?;
            let data = epoll::EventData::new_u64(nth as u64);
            epoll::add(&epoll, &link, data, epoll::EventFlags::IN)?;
            Ok(Task {
                link,
                job,
                state: State::Working,
                full: false,
            })
        });
        Ok(Generator {
            clock: crew.clock,
            shared: crew.shared,
            windowed: (crew.order.workload == Workload::Contend).then_some(crew.order.measure),
            tasks: tasks.collect::<io::Result<_>>()?,
            working: count,
            waiting: 0,
            over: false,
            epoll,
            events: Vec::with_capacity(EVENTS),
            timers: Timers::new(count),
            alarms: Timers::new(count),
            awake_until: 0,
            wake_early: crew.order.wake_early.0,
            page: crew.shared.page(first),
            room: Vec::new(),
        })
    }

    fn start(&mut self, nth: usize) {
        let task = &mut self.tasks[nth];
        let next = task.job.start(task.link.out());
        self.go_on(nth, Ok(next));
    }

    /// Until the last task has come to its end.
    fn run(&mut self) {
        loop {
            if !self.over && self.is_over() {
                self.wind_up();
            }
            let now = self.clock.now();
            while let Some(nth) = self.alarms.pop(now) {
                self.awake_until = self.awake_until.max(self.timers.due(nth));
            }
            while let Some(nth) = self.timers.pop(now) {
                self.due(nth);
            }
            if self.working == 0 {
                if self.waiting == 0 {
                    return;
                }
                self.await_others();
                continue;
            }
            self.wait();
            let mut events = std::mem::take(&mut self.events);
            for event in events.drain(..) {
                self.event(event.data.u64() as usize, event.flags);
            }
            self.events = events;
        }
    }

    fn is_over(&self) -> bool {
        signal::interrupted()
            || match self.windowed {
                None => false,
                Some(Measure::Full) => self.clock.now() >= self.shared.closes().load(Relaxed),
                Some(Measure::Counts) => self.shared.phase().load(Relaxed) == phase::AFTER,
            }
    }

    /// The last stamp that the next wait may reach.
    fn horizon(&mut self) -> Option<u64> {
        let end = match self.windowed {
            Some(Measure::Full) if !self.over => {
                let closes = self.shared.closes().load(Relaxed);
                Some(closes.min(self.clock.now() + LOOK_UP_NS))
            }
            _ => None,
        };
        let next = self.timers.next().into_iter().chain(self.alarms.next());
        end.into_iter().chain(next).min()
    }

    /// What there is by now, instead of sleeping. Time in which there was nothing is
    /// spun.
    fn look_up(&mut self, since: u64) {
        let _ = epoll::wait(
            &self.epoll,
            spare_capacity(&mut self.events),
            Some(&AT_ONCE),
        );
        if self.events.is_empty() && self.shared.phase().load(Relaxed) == phase::WITHIN {
            let spun = self.clock.now() - since;
            self.page.add(Word::Spun, spun);
        }
    }

    /// epoll_wait(2) counts in milliseconds; poll(2) on the epoll descriptor
    /// ends to the nanosecond.
    fn wait(&mut self) {
        let now = self.clock.now();
        if now < self.awake_until {
            return self.look_up(now);
        }
        let Some(until) = self.horizon() else {
            // Interrupted by the keeper's signal: the loop looks up.
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut self.events), None);
            return;
        };
        let left = until.saturating_sub(now);
        if left > 0 {
            let timeout = Timespec {
                tv_sec: (left / 1_000_000_000) as i64,
                tv_nsec: (left % 1_000_000_000) as _,
            };
            let mut watched = [PollFd::new(&self.epoll, PollFlags::IN)];
            if !poll(&mut watched, Some(&timeout)).is_ok_and(|ready| ready > 0) {
                return;
            }
        }
        let _ = epoll::wait(
            &self.epoll,
            spare_capacity(&mut self.events),
            Some(&AT_ONCE),
        );
    }

    fn event(&mut self, nth: usize, flags: epoll::EventFlags) {
        let task = &mut self.tasks[nth];
        if matches!(task.state, State::Over | State::Done) {
            return;
        }
        if task.full && flags.contains(epoll::EventFlags::OUT) {
            self.go_on(nth, Ok(Next::Same));
        }
        let quiet = epoll::EventFlags::OUT;
        if !(flags - quiet).is_empty() {
            self.read(nth);
        }
    }

    fn read(&mut self, nth: usize) {
        let Task { link, job, .. } = &mut self.tasks[nth];
        let heard = match link.read(&mut self.room) {
            Ok(Arrived::Bytes(count)) => {
                job.heard(&self.room[..count], link.out())
                    .map(|(used, next)| {
                        link.keep(&self.room[used..count]);
                        next
                    })
            }
            Ok(Arrived::Nothing) => return,
            Ok(Arrived::End) => Err(CallError::from_system(
                job.name(),
                &io::ErrorKind::ConnectionReset.into(),
            )),
            Err(error) => Err(CallError::from_system(job.name(), &error)),
        };
        self.go_on(nth, heard);
    }

    fn due(&mut self, nth: usize) {
        let task = &mut self.tasks[nth];
        if task.state == State::Working {
            let next = task.job.due(task.link.out());
            self.go_on(nth, next);
        }
    }

    /// Sends what the job has put together, and waits for what it waits for.
    fn go_on(&mut self, nth: usize, next: Result<Next, CallError>) {
        let sent = next.and_then(|next| self.flush(nth).map(|()| next));
        match sent {
            Ok(Next::Reply) => self.timers.set(nth, 0),
            Ok(Next::At(at)) => self.timers.set(nth, at),
            Ok(Next::Sharp(at)) => {
                self.timers.set(nth, at);
                if self.wake_early > 0 {
                    self.alarms.set(nth, at - self.wake_early);
                }
            }
            Ok(Next::Same) => {}
            // What cannot be sent now goes with what comes after.
            Ok(Next::Sent) => {
                let task = &mut self.tasks[nth];
                let next = task.job.due(task.link.out());
                self.go_on(nth, next);
            }
            Ok(Next::Others) => {
                self.tasks[nth].state = State::Waiting;
                self.working -= 1;
                self.waiting += 1;
            }
            Ok(Next::Done) => self.end(nth, true),
            Err(error) => {
                let task = &mut self.tasks[nth];
                task.job.page().fail(error.errno, &error.to_string());
                task.link.shut_down();
                self.end(nth, false);
            }
        }
    }

    fn flush(&mut self, nth: usize) -> Result<(), CallError> {
        let Task {
            link, job, full, ..
        } = &mut self.tasks[nth];
        let sent = link
            .flush()
            .map_err(|error| CallError::from_system(job.name(), &error))?;
        if sent == *full {
            *full = !sent;
            let flags = match sent {
                true => epoll::EventFlags::IN,
                false => epoll::EventFlags::IN | epoll::EventFlags::OUT,
            };
            let data = epoll::EventData::new_u64(nth as u64);
            epoll::modify(&self.epoll, &*link, data, flags)
                .map_err(|error| CallError::from_system(job.name(), &error.into()))?;
        }
        Ok(())
    }

    fn end(&mut self, nth: usize, well: bool) {
        let task = &mut self.tasks[nth];
        match task.state {
            State::Working => self.working -= 1,
            State::Waiting => self.waiting -= 1,
            State::Over | State::Done => return,
        }
        task.state = match well && task.job.is_answered() {
            true => State::Done,
            false => State::Over,
        };
        task.job.ended(well);
        task.job.page().note_traffic(task.link.traffic());
        self.timers.set(nth, 0);
        // Its end would be reported again and again.
        let _ = epoll::delete(&self.epoll, &task.link);
    }

    fn wind_up(&mut self) {
        self.over = true;
        for nth in 0..self.tasks.len() {
            let task = &mut self.tasks[nth];
            if matches!(task.state, State::Over | State::Done) {
                continue;
            }
            let next = task.job.wind_up(task.link.out());
            if next == Next::Done {
                if !task.job.is_answered() {
                    // A server that queues gives up what this connection, or its session,
                    // waits for.
                    if task.job.farewell(task.link.out()) {
                        let _ = task.link.flush();
                    }
                    task.link.shut_down();
                }
                self.end(nth, true);
            } else {
                self.go_on(nth, Ok(next));
            }
        }
    }

    /// When every clock has been read: ends the connections on which every request
    /// was answered, all of them together. True if nobody answered once too often.
    fn part(&mut self) -> bool {
        for task in &mut self.tasks {
            if task.state == State::Done && task.job.farewell(task.link.out()) {
                // Its server may speak unasked: no word of it is one too many.
                let _ = task.link.flush();
                task.state = State::Over;
            }
        }
        let done = || self.tasks.iter().filter(|task| task.state == State::Done);
        done().for_each(|task| surplus::end(&task.link));
        let until = clock::monotonic() + surplus::END_PATIENCE.as_nanos() as u64;
        let mut well = true;
        for task in done().filter(|task| !surplus::ends_silently(&task.link, until)) {
            let error = surplus::error(task.job.name());
            task.job.page().fail(error.errno, &error.to_string());
            well = false;
        }
        well
    }

    /// All tasks of this thread wait for those of others, and for the keeper.
    fn await_others(&mut self) {
        let resumed = self.shared.resumed();
        while resumed.load(Acquire) == 0 && !signal::interrupted() {
            let _ = futex::wait(resumed, 0, None);
        }
        for nth in 0..self.tasks.len() {
            if self.tasks[nth].state == State::Waiting {
                self.tasks[nth].state = State::Working;
                self.waiting -= 1;
                self.working += 1;
                self.due(nth);
            }
        }
    }
}
