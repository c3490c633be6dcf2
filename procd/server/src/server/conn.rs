//! One connection, and the place where it waits while no thread works on it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::gate::Gate;

/// Bytes read at a time.
const READ: usize = 16 << 10;

/// The event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaits {
    /// A request.
    Request,
    /// The rest of one.
    Rest,
    /// The client reading its answers.
    Reader,
    /// Its turn at a procedure's gate.
    Turn,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) fd: OwnedFd,
    /// Its slot, once it has had to wait.
    pub(super) slot: Option<u32>,
    pub(super) awaits: Awaits,
    /// The gate at which it waits in line, or which keeps a place for it.
    pub(super) line: Option<Arc<Gate>>,
    /// When it began to wait.
    pub(super) since: Instant,
    /// Bytes that have been received and not answered yet.
    pub(super) input: Vec<u8>,
    /// Answers that the kernel has not taken yet.
    pub(super) output: Vec<u8>,
    /// A request of it was answered.
    pub(super) answered: bool,
    /// It was told to send its body.
    pub(super) continued: bool,
    /// It ends once `output` is sent.
    pub(super) closing: bool,
    /// It was refused, and further input is thrown away. If the connection were closed
    /// before all input has come, the refusal would be lost.
    pub(super) deaf: bool,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    Something,
    Nothing,
    End,
}

impl Conn {
    pub(super) fn new(fd: OwnedFd) -> Conn {
        Conn {
            fd,
            slot: None,
            awaits: Awaits::Request,
            line: None,
            since: Instant::now(),
            input: Vec::new(),
            output: Vec::new(),
            answered: false,
            continued: false,
            closing: false,
            deaf: false,
        }
    }

    /// Starts waiting for an event, unless it already waits for it.
    pub(super) fn await_now(&mut self, what: Awaits) {
        if self.awaits != what {
            self.awaits = what;
            self.since = Instant::now();
        }
    }

    /// Appends what has come to `input`.
    pub(super) fn receive(&self, input: &mut Vec<u8>) -> Came {
        input.reserve(READ);
        loop {
            let spare = rustix::buffer::spare_capacity(input);
            match recv(&self.fd, spare, RecvFlags::empty()) {
                Ok((0, _)) => return Came::End,
                Ok(_) => return Came::Something,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Came::Nothing,
                Err(_) => return Came::End,
            }
        }
    }

    /// Shuts down the sending side, and throws away what comes.
    pub(super) fn discard(&self) -> Came {
        // It can only fail if the connection is gone, which the read finds out.
        let _ = shutdown(&self.fd, Shutdown::Write);
        let mut input = Vec::new();
        for _ in 0..16 {
            input.clear();
            match self.receive(&mut input) {
                Came::Something => {}
                other => return other,
            }
        }
        Came::Something
    }

    /// Sends what is in `out` behind what it has not sent yet, and keeps the
    /// rest; false if the connection is lost.
    pub(super) fn transmit(&mut self, out: &mut Vec<u8>) -> bool {
        if !self.output.is_empty() {
            self.output.append(out);
            return self.flush();
        }
        match self.send(out) {
            Some(sent) if sent == out.len() => {}
            Some(sent) => self.output.extend_from_slice(&out[sent..]),
            None => return false,
        }
        out.clear();
        true
    }

    /// Sends what is left; false if the connection is lost.
    pub(super) fn flush(&mut self) -> bool {
        let sent = self.send(&self.output);
        if let Some(sent) = sent {
            self.output.drain(..sent);
            if sent > 0 && !self.output.is_empty() {
                // The client reads, if slowly.
                self.since = Instant::now();
            }
        }
        sent.is_some()
    }

    fn send(&self, bytes: &[u8]) -> Option<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            match send(&self.fd, &bytes[sent..], SendFlags::NOSIGNAL) {
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return None,
            }
        }
        Some(sent)
    }
}

/// Places for as many connections as are allowed.
#[derive(Debug)]
pub(super) struct Slots {
    places: Vec<Mutex<Option<Box<Conn>>>>,
    free: Mutex<Vec<u32>>,
}

pub(super) type Place<'a> = MutexGuard<'a, Option<Box<Conn>>>;

impl Slots {
    pub(super) fn new(count: usize) -> Slots {
        Slots {
            places: (0..count).map(|_| Mutex::default()).collect(),
            free: Mutex::new((0..count as u32).rev().collect()),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The connection's slot, locked; the connection gets one if it has none.
    pub(super) fn place_of(&self, conn: &mut Conn) -> Option<Place<'_>> {
        if conn.slot.is_none() {
            conn.slot = self.free().pop();
        }
        conn.slot.map(|slot| self.lock(slot))
    }

    pub(super) fn lock(&self, slot: u32) -> Place<'_> {
        let place = &self.places[slot as usize];
        place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees the slot of a connection that has ended.
    pub(super) fn release(&self, slot: u32) {
        self.free().push(slot);
    }

    fn free(&self) -> MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
