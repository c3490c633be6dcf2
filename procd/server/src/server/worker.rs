//! One thread: takes an event, and does all that follows from it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::conn::{Awaits, Came, Conn};
use super::gate::Entry;
use super::shared::busy;
use super::work::{Done, ThreadState};
use super::{LISTENER, STOP, Shared};
use crate::catalog::Procedure;
use crate::http::{self, Answer, Method, Progress};
use crate::stats::count;

/// Answers gathered before they are sent although more requests are there.
const OUT_BATCH: usize = 64 << 10;
/// How long accepting pauses when no more files can be opened.
const NO_FILES: Duration = Duration::from_millis(10);

/// One thread.
pub(super) struct Worker<'a> {
    shared: &'a Shared,
    thread_state: ThreadState,
    /// Buffers that connections need only while they are worked on.
    input: Vec<u8>,
    out: Vec<u8>,
}

/// The next step of a connection after its turn.
enum Next {
    Close,
    Wait(Awaits),
    Line(Arc<Procedure>),
}

/// Throws away the input of a client that was refused, until the client closes.
fn part(conn: &Conn) -> Next {
    match conn.discard() {
        Came::End => Next::Close,
        _ => Next::Wait(Awaits::Rest),
    }
}

impl<'a> Worker<'a> {
    pub(super) fn new(shared: &'a Shared) -> Worker<'a> {
        Worker {
            shared,
            thread_state: ThreadState::new(shared),
            input: Vec::new(),
            out: Vec::new(),
        }
    }

    pub(super) fn work(mut self) {
        // One event at a time: a second one would wait for the first one's call.
        let mut events: Vec<epoll::Event> = Vec::with_capacity(1);
        loop {
            events.clear();
            let buffer = rustix::buffer::spare_capacity(&mut events);
            if epoll::wait(&self.shared.epoll, buffer, None).is_err() {
                continue;
            }
            for event in &events {
                match event.data.u64() {
                    STOP => return,
                    data if data & LISTENER != 0 => self.accept((data & !LISTENER) as usize),
                    slot => {
                        let conn = self.shared.slots.lock(slot as u32).take();
                        if let Some(conn) = conn {
                            self.turn(conn);
                        }
                    }
                }
            }
        }
    }

    fn accept(&mut self, index: usize) {
        let shared = self.shared;
        if shared.draining() {
            return;
        }
        let listener = &shared.listeners[index];
        let accepted = listener.accept();
        if matches!(
            accepted,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
        ) {
            thread::sleep(NO_FILES);
        }
        // Somebody else may accept while this thread is busy with this one.
        let data = EventData::new_u64(LISTENER | index as u64);
        let once = EventFlags::IN | EventFlags::ONESHOT;
        let _ = epoll::modify(&shared.epoll, &listener.fd, data, once);
        let Ok(fd) = accepted else {
            return;
        };
        let mut conn = Box::new(Conn::new(fd));
        let full = shared.stats.connections_open.fetch_add(1, Relaxed) >= shared.slots.len() as u64;
        if full && !shared.make_room() {
            count(&shared.stats.connections_turned_away);
            let _ = conn.transmit(&mut busy());
            return shared.close(conn);
        }
        count(&shared.stats.connections);
        self.turn(conn);
    }

    /// Serves a connection as far as possible, then puts it into its slot or closes it.
    fn turn(&mut self, mut conn: Box<Conn>) {
        let shared = self.shared;
        loop {
            let next = self.advance(&mut conn);
            let place = match next {
                Next::Close => None,
                _ => shared.slots.place_of(&mut conn),
            };
            let (Some(mut place), Some(slot)) = (place, conn.slot) else {
                return shared.close(conn);
            };
            let flags = match next {
                Next::Line(procedure) => {
                    conn.await_now(Awaits::Turn);
                    conn.line = Some(Arc::clone(&procedure.gate));
                    let config = &shared.config;
                    let (gate, stats) = (&procedure.gate, &procedure.stats);
                    match gate.wait(config.max_running, config.max_waiting, slot) {
                        Entry::Wait => {
                            *place = Some(conn);
                            return;
                        }
                        Entry::Called => {
                            drop(place);
                            continue;
                        }
                        Entry::Refused => {
                            count(&stats.errors.busy);
                            let _ = conn.transmit(&mut busy());
                            drop(place);
                            return shared.close(conn);
                        }
                    }
                }
                Next::Wait(Awaits::Reader) => EventFlags::OUT,
                _ => EventFlags::IN,
            };
            // The slot is locked: a thread that gets the event finds the connection in it.
            if shared.arm(&conn, slot, flags).is_err() {
                drop(place);
                return shared.close(conn);
            }
            *place = Some(conn);
            return;
        }
    }

    fn advance(&mut self, conn: &mut Conn) -> Next {
        if !conn.output.is_empty() {
            if !conn.flush() {
                return Next::Close;
            }
            if !conn.output.is_empty() {
                return Next::Wait(Awaits::Reader);
            }
            if conn.closing && !conn.deaf {
                return Next::Close;
            }
        }
        if conn.deaf {
            return part(conn);
        }
        let mut input = if conn.input.is_empty() {
            std::mem::take(&mut self.input)
        } else {
            std::mem::take(&mut conn.input)
        };
        // Requests that came before the wait are answered before more is read.
        let held_back = matches!(conn.awaits, Awaits::Turn | Awaits::Reader);
        let came = if held_back && !input.is_empty() {
            Came::Something
        } else {
            conn.receive(&mut input)
        };
        let next = match came {
            Came::Something => self.serve(conn, &mut input),
            Came::End => Next::Close,
            Came::Nothing if input.is_empty() => Next::Wait(Awaits::Request),
            Came::Nothing => Next::Wait(Awaits::Rest),
        };
        if input.is_empty() {
            self.input = input;
        } else {
            conn.input = input;
        }
        if let Next::Wait(what) = next {
            conn.await_now(what);
        }
        next
    }

    /// Answers the requests that `input` holds, and takes them out.
    fn serve(&mut self, conn: &mut Conn, input: &mut Vec<u8>) -> Next {
        let mut used = 0;
        let mut next = self.requests(conn, input, &mut used);
        input.drain(..used);
        if used > 0 {
            // The next request's time starts anew.
            conn.awaits = Awaits::Request;
            conn.answered = true;
            conn.since = Instant::now();
            conn.continued = false;
        }
        let mut out = std::mem::take(&mut self.out);
        if !out.is_empty() && !conn.transmit(&mut out) {
            out.clear();
            next = Next::Close;
        }
        self.out = out;
        if conn.output.is_empty() {
            return if conn.deaf { part(conn) } else { next };
        }
        // Answers that the client has not read hold back all else.
        match next {
            Next::Close if !conn.closing => Next::Close,
            _ => Next::Wait(Awaits::Reader),
        }
    }

    fn requests(&mut self, conn: &mut Conn, input: &[u8], used: &mut usize) -> Next {
        let shared = self.shared;
        while *used < input.len() {
            let rest = &input[*used..];
            let (request, length) = match http::parse(rest, shared.config.request) {
                Ok(Progress::Whole(request, length)) => (request, length),
                Ok(Progress::Partial { expects_continue }) => {
                    if expects_continue && !std::mem::replace(&mut conn.continued, true) {
                        self.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                    }
                    return Next::Wait(Awaits::Rest);
                }
                Err(refusal) => {
                    self.refuse(refusal);
                    conn.closing = true;
                    conn.deaf = true;
                    *used = input.len();
                    return Next::Wait(Awaits::Rest);
                }
            };
            let bytes = (&rest[..length], &request);
            let called = conn.line.as_ref().and(conn.slot);
            let done = self
                .thread_state
                .answer(shared, bytes, called, &mut self.out);
            if let (Some(gate), Some(slot)) = (conn.line.take(), called) {
                // The request may not have used its place, for example if its procedure
                // is gone by now.
                shared.give_up(&gate, slot);
            }
            match done {
                Done::Busy(procedure) => return Next::Line(procedure),
                Done::Answered { close: false } => *used += length,
                Done::Answered { close: true } => {
                    conn.closing = true;
                    *used = input.len();
                    return Next::Close;
                }
            }
            if self.out.len() > OUT_BATCH {
                if !conn.transmit(&mut self.out) {
                    self.out.clear();
                    return Next::Close;
                }
                if !conn.output.is_empty() {
                    return Next::Wait(Awaits::Reader);
                }
            }
        }
        Next::Wait(Awaits::Request)
    }

    fn refuse(&mut self, refusal: http::Refusal) {
        count(&self.shared.stats.malformed);
        let (status, why) = refusal.status();
        Answer {
            status,
            exit_code: None,
            headers: "Content-Type: text/plain\r\n",
            body: format!("{why}\n").as_bytes(),
        }
        .write(&mut self.out, Method::Get, true);
    }
}
