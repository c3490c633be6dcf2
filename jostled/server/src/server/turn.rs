//! The event loop: what a turn does, and how long it sleeps.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use jostle_resp::Writer;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::Timespec;

use super::conn::{Conn, Phase};
use super::life::Reload;
use super::sweep::{TRIM_NOW, TRIM_SOON};
use super::{ASKED, BELL, CHECKED, HTTP, KIND_SHIFT, LISTENER, READ, RELOAD, STOP, STORED, Server};
use crate::table::{ClientId, Event, Outcome, Tick, Time};

/// Clients resumed after their waits, before replies are sent and other clients are
/// served: some 50 us.
pub(super) const RESUMES_PER_SEND: usize = 256;
/// Clients that get a grant, or are closed, before other clients are served: some 500 us
/// of system calls.
pub(super) const GRANTS_PER_SEND: usize = 128;
/// The most clients with replies kept back, or ready to go on, and the most bytes of
/// replies: some 100 us of work.
const GATHERED: usize = 32;
/// The work of a turn in which users go round, before new events are looked at: some 500 us
/// of plain commands. The client whose turn it is then is served to the end of what was
/// read from it at once, at most [`super::parts::SCRATCH`] bytes.
const TURN: u64 = 4096;
/// The work of turning to a client, in plain commands. It is some system calls, but clients
/// that come and go in thousands must be closed faster than others are accepted.
const RESUME: u64 = 4;
pub(super) const GATHERED_BYTES: usize = 32 * 1024;

impl Server {
    /// Serves until `stop` becomes readable, then drains: no client is admitted any
    /// more, waits are ended with an error, and clients get their last replies, for as
    /// long as [`crate::Config::drain_timeout`] allows.
    ///
    /// # Errors
    /// The system's, for epoll; no client can cause one.
    pub fn run(&mut self, stop: impl AsFd) -> io::Result<()> {
        self.serve_until(stop, None)
    }

    /// [`Server::run`], and reads the password and the certificate again when it
    /// is told to.
    ///
    /// # Errors
    /// The system's, for epoll; no client can cause one.
    pub fn run_with(&mut self, stop: impl AsFd, reload: Reload) -> io::Result<()> {
        // Edge-triggered: nobody reads them during the drain.
        let flags = EventFlags::IN | EventFlags::ET;
        let (ring, bell) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        self.watch_for(RELOAD, &reload.signal, flags)?;
        self.watch_for(READ, &bell, flags)?;
        self.serve_until(stop, Some((&reload, &ring, &bell)))
    }

    /// Lets epoll report a descriptor, as this kind of event.
    pub(super) fn watch_for(&self, event: u64, fd: impl AsFd, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            fd,
            EventData::new_u64(event),
            flags,
        )?)
    }

    fn serve_until(
        &mut self,
        stop: impl AsFd,
        reload: Option<(&Reload, &UnixStream, &UnixStream)>,
    ) -> io::Result<()> {
        self.watch_for(STOP, &stop, EventFlags::IN)?;
        let mut events: Vec<epoll::Event> = Vec::with_capacity(1024);
        loop {
            self.wait(&mut events)?;
            self.renew_promise();
            self.turn.gather = events.len() > 1;
            for event in &events {
                match event.data.u64() {
                    STOP => {
                        let _ = epoll::delete(&self.epoll, &stop);
                        return self.drain();
                    }
                    kind @ (RELOAD | READ) => {
                        if let Some((reload, ring, bell)) = reload {
                            if kind == READ {
                                self.adopt_read(bell);
                            }
                            self.reload(reload, ring);
                        }
                    }
                    ASKED => self.handover_signalled(),
                    _ => self.handle(*event),
                }
                let many = self.turn.unsent.len().max(self.turn.resumed.len()) >= GATHERED;
                if !self.turn.fair && (many || self.turn.gathered >= GATHERED_BYTES) {
                    self.go_on();
                }
            }
            self.turn.gather = false;
            self.end_of_turn();
            if self.is_drained() {
                return self.drain();
            }
            self.advance_handover(stop.as_fd());
        }
    }

    /// Waits for something to do.
    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        events.clear();
        let start = self.now();
        let handed_on = self.table.counters().granted_after_wait;
        let waiters = self.table.waiting() > 0;
        if !self.busy_poll.is_on(waiters, handed_on, start) {
            if self.poll(events, self.timeout(start))? == 0 {
                self.now();
            }
            return Ok(());
        }
        if let Some(until) = self.busy_poll.until(start)
            && self.poll_until(until, start, events)?
        {
            return Ok(());
        }
        let timeout = self.timeout(self.clock);
        self.poll(events, timeout)?;
        let end = self.now();
        self.busy_poll.paused(end.0 - start.0);
        Ok(())
    }

    /// Polls for events until there are some or something else is due. False: neither
    /// came in time.
    fn poll_until(
        &mut self,
        until: Time,
        start: Time,
        events: &mut Vec<epoll::Event>,
    ) -> io::Result<bool> {
        let due = self.next_deadline().unwrap_or(until);
        let mut before = start;
        loop {
            let found = self.poll(events, Some(Timespec::default()))? != 0;
            let now = self.now();
            let kept = self.busy_poll.asked(before, now);
            if found || now >= due {
                self.busy_poll.paused(now.0 - start.0);
                return Ok(true);
            }
            if !kept || now >= until {
                return Ok(false);
            }
            before = now;
            rustix::thread::sched_yield();
        }
    }

    pub(super) fn poll(
        &self,
        events: &mut Vec<epoll::Event>,
        timeout: Option<Timespec>,
    ) -> io::Result<usize> {
        let buffer = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, buffer, timeout.as_ref()) {
            Ok(count) => Ok(count),
            Err(rustix::io::Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// How long to wait at most: until the next deadline, in whole milliseconds,
    /// rounded up, so as not to wake before it.
    fn timeout(&self, now: Time) -> Option<Timespec> {
        let ns = self.next_deadline()?.0.saturating_sub(now.0);
        let ms = ns.div_ceil(1_000_000).min(3_600_000);
        Some(Timespec {
            tv_sec: (ms / 1000) as i64,
            tv_nsec: (ms % 1000 * 1_000_000) as _,
        })
    }

    /// When the next turn is due, whether anything comes or not.
    fn next_deadline(&self) -> Option<Time> {
        if self.turn.goes_on() && !self.is_choked() {
            return Some(Time(0));
        }
        let sweeps = self.table.clients() > 0 || !self.http.is_empty();
        #[cfg(feature = "ha")]
        let sweeps = sweeps || self.ha.is_some();
        let sweeps = sweeps || self.doors.deaf || self.no_tokens() || self.freed >= TRIM_SOON;
        let never = Time(u64::MAX);
        let times = [
            self.table.next_tick().filter(|_| !self.is_choked()),
            self.life.draining,
            self.handover_end(),
            self.leases.from,
            self.doors.guesses.due(),
            sweeps.then_some(self.next_sweep),
        ];
        let first = times.map(|time| time.unwrap_or(never)).into_iter().min();
        let first = first.unwrap_or(never).min(self.leases.review_at);
        (first != never).then_some(first)
    }

    pub(super) fn handle(&mut self, event: epoll::Event) {
        let data = event.data.u64();
        let index = (data & !(0xf << KIND_SHIFT)) as usize;
        match data & (0xf << KIND_SHIFT) {
            LISTENER => self.accept(index),
            HTTP => self.http_ready(index),
            BELL => self.take_tokens(Duration::ZERO),
            STORED => self.take_commits(Duration::ZERO),
            #[cfg(feature = "tls")]
            super::SHAKEN => self.admit_tls(),
            // A signal during the drain; and what only wakes the loop.
            RELOAD | READ | ASKED | CHECKED => {}
            _ => self.client_ready(data, event.flags),
        }
    }

    /// Ends a turn after all ready connections have been served.
    pub(super) fn end_of_turn(&mut self) {
        // If this is too early, the next turn begins at once, and reads the time.
        let now = self.clock;
        if self.table.next_tick().is_some_and(|tick| tick <= now) && !self.is_choked() {
            self.step(Tick, now);
        }
        if now >= self.next_sweep {
            self.sweep(now);
        }
        self.release_parked();
        self.check_waiting();
        self.close_dying();
        self.deliver_replies();
        if self.buffered > self.config.max_buffers {
            self.shed();
        }
        for client in self.turn.later.drain(..) {
            let conn = self.conns[client.slot()].as_ref();
            let place = conn.map_or(0, |conn| conn.place());
            self.turn.resumed.push(place, client);
        }
        self.go_on();
        self.trim_heap(TRIM_NOW);
        self.end_audit();
        #[cfg(feature = "ha")]
        self.note_turn();
    }

    /// Resumes clients whose waits have ended. When a lock goes round among clients
    /// that pipeline, each release resumes the next of them: the replies of many such
    /// steps are sent together, with few system calls.
    fn go_on(&mut self) {
        let (fair, end) = (self.turn.fair, self.spent() + TURN);
        if fair {
            self.turn.gather = self.turn.resumed.len() > 1;
            if self.is_choked() {
                self.turn.gather = false;
                return;
            }
        }
        for _ in 0..RESUMES_PER_SEND {
            let Some(client) = self.turn.resumed.pop() else {
                break;
            };
            self.resume(client);
            self.work.extra += RESUME;
            if self.turn.gathered >= GATHERED_BYTES || fair && self.spent() >= end {
                break;
            }
        }
        self.turn.gather &= !fair;
        self.deliver_grants();
        self.deliver_replies();
    }

    /// The work done since the start, as a number of plain commands.
    fn spent(&self) -> u64 {
        self.stats.commands + self.work.extra
    }

    /// Sends the replies to executed commands, all in a row: a client that sleeps is
    /// then woken once for all its connections, not once for each.
    pub(super) fn deliver_replies(&mut self) {
        self.turn.gathered = 0;
        let mut unsent = std::mem::take(&mut self.turn.unsent);
        for client in unsent.drain(..) {
            self.deliver(client);
        }
        self.turn.unsent = unsent;
        self.deliver_grants();
    }

    /// Sends grants to other clients, a bounded number at a time. They go before other
    /// replies: a client waits for its grant, while other replies report what is done
    /// already.
    pub(super) fn deliver_grants(&mut self) {
        for _ in 0..GRANTS_PER_SEND {
            let Some(client) = self.turn.granted.pop_front() else {
                return;
            };
            self.deliver(client);
        }
    }

    // The table.

    /// One step of the table; wakes those whose waits it ended.
    #[inline(always)]
    pub(super) fn step<E: Event>(&mut self, event: E, now: Time) -> E::Reply {
        let reply = self.table.step(event, now, &mut self.work.outputs);
        if !self.work.outputs.is_empty() {
            self.wake();
        }
        reply
    }

    pub(super) fn wake(&mut self) {
        let mut outputs = std::mem::take(&mut self.work.outputs);
        outputs.retain(|output| {
            // A connection being served is notified when it returns to its slot.
            let Some(mut conn) = self.take_conn(output.client) else {
                return true;
            };
            self.end_wait(&mut conn, output.outcome);
            self.conns[output.client.slot()] = Some(conn);
            false
        });
        self.work.outputs = outputs;
    }

    fn end_wait(&mut self, conn: &mut Conn, outcome: Outcome) {
        conn.phase = Phase::Open;
        if let Outcome::Granted(first) | Outcome::GrantedAll { first, .. } = outcome {
            let at = conn.output.len() + conn.held();
            for (token, (_, name, _)) in (first..).zip(conn.wanted.iter()) {
                conn.fresh_leases.push(token, name, at);
            }
        }
        self.reply(conn, |server, reply| server.answer(reply, &outcome));
        self.let_go_on(conn);
    }

    /// Whether a client waits for a lock, and not for the reply to a wrong password.
    pub(super) fn waits_for_lock(&self, conn: &Conn) -> bool {
        matches!(conn.phase, Phase::Parked(_)) || self.table.is_waiting(conn.id)
    }

    /// Ends the wait of a client, whatever it is for, with this reply. False: the client
    /// does not wait any more.
    pub(super) fn unblock(&mut self, client: ClientId, tell: impl FnOnce(&mut Writer<'_>)) -> bool {
        let Some(mut conn) = self.take_conn(client) else {
            return false;
        };
        let waited = conn.waits();
        if waited {
            if let Phase::Parked(parked) = conn.phase {
                conn.consume(parked.length);
            }
            conn.phase = Phase::Open;
            self.reply(&mut conn, |_, mut reply| tell(&mut reply));
            self.let_go_on(&mut conn);
        }
        self.conns[client.slot()] = Some(conn);
        waited
    }

    fn let_go_on(&mut self, conn: &mut Conn) {
        if conn.intake.input.is_empty() && !conn.intake.readable {
            self.turn.granted.push_back(conn.id);
        } else {
            self.turn.resume(conn);
        }
    }
}
