//! A worker's connection to a lock service whose acquisitions take several round trips, and
//! whose sessions have to be kept alive: the protocol of `wire` on a blocking socket.
//!
//! If the keeper ends a wait, a request cancels the attempt, so that the connection can
//! still be used.

use crate::stream::Stream;
use crate::surplus;
use crate::wire::{Answer, Asking, Decoded, Reply, Request, Wire};
use crate::{CallError, Keeping, Lock, Mode, Outcome, SetupError, Traffic, Wait};
use jostle_sys::files::Errno;
use jostle_sys::signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

/// One worker's lock.
#[derive(Debug)]
pub struct SteppedLock<W> {
    socket: Socket,
    wire: W,
    token: Option<u64>,
}

#[derive(Debug)]
struct Socket {
    stream: Stream,
    out: Vec<u8>,
    input: Vec<u8>,
    filled: usize,
    /// How long a read waits.
    patience_ns: Option<u64>,
    traffic: Traffic,
}

/// How a read ended.
enum Heard {
    Bytes,
    Late,
    Interrupted,
}

impl<W: Wire> SteppedLock<W> {
    /// On this connection, in this protocol.
    pub fn new(stream: Stream, wire: W) -> SteppedLock<W> {
        SteppedLock {
            socket: Socket::new(stream),
            wire,
            token: None,
        }
    }

    /// Sends the prepared request and waits for its answer. None if the keeper ended the
    /// wait, which happens only with `heeds`.
    fn exchange<R>(
        &mut self,
        name: &'static str,
        heeds: bool,
        take: impl FnOnce(&mut W, Reply<'_>) -> Result<R, CallError>,
    ) -> Result<Option<R>, CallError> {
        let SteppedLock { socket, wire, .. } = self;
        socket.send(name)?;
        loop {
            match socket.hear(name, wire)? {
                Heard::Bytes => {}
                Heard::Late => {
                    wire.due(&mut socket.out)?;
                    socket.send(name)?;
                    continue;
                }
                Heard::Interrupted if heeds && signal::interrupted() => return Ok(None),
                Heard::Interrupted => continue,
            }
            let whole: Decoded<'_> = wire.decode(&socket.input[..socket.filled], name);
            let Some((_, length)) = whole? else { continue };
            if length < socket.filled {
                return Err(surplus::error(name));
            }
            // Decoded twice, since the wire cannot both be borrowed and take the reply.
            let filled = std::mem::take(&mut socket.filled);
            let input = std::mem::take(&mut socket.input);
            let taken = match wire.decode(&input[..filled], name)? {
                Some((reply, _)) => take(wire, reply).map(Some),
                None => Err(surplus::error(name)),
            };
            socket.input = input;
            return taken;
        }
    }
}

impl<W: Wire> SteppedLock<W> {
    /// Whether the lock was still ours, or the session still there.
    fn renew_one(&mut self, key: usize, call: &'static str) -> Result<bool, CallError> {
        self.wire.renew(key, &mut self.socket.out);
        let renewed = self.exchange(call, true, |wire, reply| wire.renewed(key, reply))?;
        renewed.ok_or(CallError::new(call, Errno::INTR))
    }
}

impl Socket {
    fn new(stream: Stream) -> Socket {
        Socket {
            stream,
            out: Vec::with_capacity(256),
            input: vec![0; 4096],
            filled: 0,
            patience_ns: None,
            traffic: Traffic::default(),
        }
    }

    fn send(&mut self, name: &'static str) -> Result<(), CallError> {
        if self.out.is_empty() {
            return Ok(());
        }
        let sent = (&self.stream).write_all(&self.out);
        self.traffic.sent(self.out.len());
        self.out.clear();
        sent.map_err(|error| CallError::from_system(name, &error))
    }

    /// Reads for as long as the wire's patience allows.
    fn hear(&mut self, name: &'static str, wire: &impl Wire) -> Result<Heard, CallError> {
        match wire.patience_ns() {
            Some(patience_ns) if wire.is_on_time() => match self.await_bytes(patience_ns) {
                Ok(0) => Ok(Heard::Late),
                Ok(_) => self.read(name, None),
                Err(Errno::INTR) => Ok(Heard::Interrupted),
                Err(errno) => Err(CallError::new(name, errno)),
            },
            patience_ns => self.read(name, patience_ns),
        }
    }

    /// Waits with an exact timeout. A socket's read timeout is not exact: it uses the
    /// kernel's timer wheel, whose steps are up to an eighth of the timeout.
    fn await_bytes(&self, patience_ns: u64) -> Result<usize, Errno> {
        let timeout = Timespec {
            tv_sec: (patience_ns / 1_000_000_000) as i64,
            tv_nsec: (patience_ns % 1_000_000_000) as _,
        };
        if self.stream.has_more() {
            return Ok(1);
        }
        let mut watched = [PollFd::new(&self.stream, PollFlags::IN)];
        poll(&mut watched, Some(&timeout))
    }

    fn read(&mut self, name: &'static str, patience_ns: Option<u64>) -> Result<Heard, CallError> {
        if self.patience_ns != patience_ns {
            self.stream
                .set_patience(patience_ns.map(Duration::from_nanos))
                .map_err(|error| CallError::from_system(name, &error))?;
            self.patience_ns = patience_ns;
        }
        if self.filled == self.input.len() {
            self.input.resize(2 * self.filled, 0);
        }
        match (&self.stream).read(&mut self.input[self.filled..]) {
            Ok(0) => Err(CallError {
                said: Some("the server has ended the connection, or the session"),
                ..CallError::new(name, Errno::CONNRESET)
            }),
            Ok(count) => {
                self.filled += count;
                self.traffic.received(count);
                Ok(Heard::Bytes)
            }
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => Ok(Heard::Interrupted),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Ok(Heard::Late),
                _ => Err(CallError::from_system(name, &error)),
            },
        }
    }
}

impl<W: Wire> Lock for SteppedLock<W> {
    fn acquire(&mut self, key: usize, mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        let asking = Asking::from(wait);
        self.wire.acquire(key, mode, asking, &mut self.socket.out);
        let name = self.wire.name(Request::Acquire);
        let mut heeds = true;
        loop {
            let answer = self.exchange(name, heeds, |wire, reply| {
                let answer = wire.acquired(key, reply)?;
                let token = match answer {
                    Answer::Granted => wire.token(reply),
                    Answer::Taken | Answer::Pending => None,
                };
                Ok((answer, token))
            })?;
            match answer {
                Some((Answer::Granted, token)) => {
                    self.token = token;
                    return Ok(Outcome::Granted);
                }
                Some((Answer::Taken, _)) if !heeds => return Ok(Outcome::Interrupted),
                Some((Answer::Taken, _)) => return Ok(Outcome::Refused),
                Some((Answer::Pending, _)) => self.wire.go_on(&mut self.socket.out),
                None => {
                    heeds = false;
                    self.wire.give_up(&mut self.socket.out);
                    if self.wire.is_left() {
                        return Ok(Outcome::Interrupted);
                    }
                }
            }
        }
    }

    fn release(&mut self, key: usize, mode: Mode) -> Result<(), CallError> {
        self.wire.release(key, mode, &mut self.socket.out);
        let name = self.wire.name(Request::Release);
        self.exchange(name, false, |wire, reply| wire.released(reply))?;
        self.wire.afterwards(&mut self.socket.out);
        self.socket.send(name)
    }

    fn token(&self) -> Option<u64> {
        self.token
    }

    fn leased_at_ns(&self) -> Option<u64> {
        self.wire.sent_ns()
    }

    fn keeping(&self) -> Option<Keeping> {
        self.wire.keeping()
    }

    fn renew(&mut self, keys: &[usize], lapsed: &mut Vec<usize>) -> Result<bool, CallError> {
        let Some(keeping) = self.wire.keeping() else {
            return Ok(true);
        };
        if keeping.is_session {
            return self.renew_one(0, keeping.call);
        }
        for key in keys {
            if !self.renew_one(*key, keeping.call)? {
                lapsed.push(*key);
            }
        }
        Ok(true)
    }

    fn is_cut_off(&self) -> bool {
        self.socket.stream.has_ended()
    }

    fn resume(&mut self) -> Result<bool, SetupError> {
        let Some(stream) = self.wire.resume()? else {
            return Ok(false);
        };
        self.socket = Socket {
            traffic: self.socket.traffic,
            ..Socket::new(stream)
        };
        Ok(true)
    }

    fn traffic(&self) -> Option<Traffic> {
        Some(self.socket.traffic)
    }

    /// Ends the session, and waits until the server has.
    fn part(&mut self) -> Result<(), CallError> {
        let name = self.wire.name(Request::Release);
        if !self.wire.farewell(&mut self.socket.out) {
            return self.socket.stream.part(name);
        }
        match self.socket.out.is_empty() {
            true => self.socket.stream.end(),
            false => self.socket.send(name)?,
        }
        let deadline = Instant::now() + surplus::END_PATIENCE;
        let patience = Some(surplus::END_PATIENCE.as_nanos() as u64);
        while Instant::now() < deadline && self.socket.read(name, patience).is_ok() {
            self.socket.filled = 0;
        }
        Ok(())
    }
}
