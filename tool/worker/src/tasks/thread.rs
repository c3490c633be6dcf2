//! A generator thread: it brings replies and times to the jobs of its tasks, by epoll(7),
//! and sends what they put together.

use super::link::{Arrived, Link};
use super::timers::Timers;
use super::{Job, Next};
use crate::crew::Crew;
use crate::order::ContendOrder;
use crate::page::{Page, Shared, Word, phase};
use jostle_model::plan::Measure;
use jostle_sys::clock::{self, Clock};
use jostle_sys::{futex, signal};
use jostle_targets::{CallError, surplus};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Events that one call brings, at most.
const EVENTS: usize = 256;

/// Until the window's end is known, how long to wait for events.
const LOOK_UP_NS: u64 = 10_000_000;

/// For calls that do not wait.
const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

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

pub(super) struct GeneratorThread<'a, J> {
    clock: Clock,
    shared: &'a Shared,
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

impl<'a, J: Job> GeneratorThread<'a, J> {
    /// Watches the connections of these tasks. `contend`: a window ends the run.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn new(
        crew: &Crew<'a>,
        contend: Option<&ContendOrder>,
        first: usize,
        tasks: Vec<(jostle_targets::stream::Stream, J)>,
    ) -> io::Result<GeneratorThread<'a, J>> {
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
        Ok(GeneratorThread {
            clock: crew.clock,
            shared: crew.shared,
            windowed: contend.map(|_| crew.order.measure),
            tasks: tasks.collect::<io::Result<_>>()?,
            working: count,
            waiting: 0,
            over: false,
            epoll,
            events: Vec::with_capacity(EVENTS),
            timers: Timers::new(count),
            alarms: Timers::new(count),
            awake_until: 0,
            wake_early: contend.map_or(0, |contend| contend.wake_early.0),
            page: crew.shared.page(first),
            room: Vec::new(),
        })
    }

    /// Begins task number `nth`.
    pub(super) fn start(&mut self, nth: usize) {
        let task = &mut self.tasks[nth];
        let next = task.job.start(task.link.out());
        self.go_on(nth, Ok(next));
    }

    /// Until the last task has come to its end.
    pub(super) fn run(&mut self) {
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

    /// Takes the events that have come by now, instead of sleeping. If there are none, the
    /// time counts as spun.
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
                task.job.page().failed(&error, self.clock.now());
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

    /// Ends the connections on which every request was answered, all of them together. To
    /// be called when every clock has been read. True if no server sent an answer too many.
    pub(super) fn part(&mut self) -> bool {
        for task in &mut self.tasks {
            if task.state == State::Done && task.job.farewell(task.link.out()) {
                // Its server may send messages unasked, so that no message is one too many.
                let _ = task.link.flush();
                task.state = State::Over;
            }
        }
        let done = || self.tasks.iter().filter(|task| task.state == State::Done);
        done().for_each(|task| task.link.stream().end());
        let until = clock::monotonic() + surplus::END_PATIENCE.as_nanos() as u64;
        let mut well = true;
        for task in done().filter(|task| !task.link.stream().ends_silently(until)) {
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
