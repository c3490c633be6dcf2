//! A worker's connection to a lock service whose acquisitions take several round trips, and
//! whose sessions have to be kept alive: the protocol of `wire` on a blocking socket.
//!
//! If the keeper ends a wait, a request cancels the attempt, so that the connection can
//! still be used.

use crate::remote::{Client, Heard};
use crate::stream::Stream;
use crate::surplus;
use crate::wire::{Answer, Asking, Decoded, Reply, Wire};
use crate::{CallError, Dialled, Keeping, Lock, Mode, Outcome, SetupError, Traffic, Wait};
use jostle_sys::files::Errno;
use jostle_sys::signal;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// One worker's lock.
#[derive(Debug)]
pub struct SteppedLock<W> {
    client: Client,
    wire: W,
    token: Option<u64>,
    /// How long a read waits.
    patience_ns: Option<u64>,
}

impl<W: Wire> SteppedLock<W> {
    /// On this connection, in this protocol.
    pub fn new(stream: Stream, wire: W) -> SteppedLock<W> {
        SteppedLock {
            client: Client::new(stream),
            wire,
            token: None,
            patience_ns: None,
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
        self.client.send(name)?;
        loop {
            match self.hear(name)? {
                Heard::Bytes => {}
                Heard::Late => {
                    self.wire.due(&mut self.client.request)?;
                    self.client.send(name)?;
                    continue;
                }
                Heard::Interrupted if heeds && signal::interrupted() => return Ok(None),
                Heard::Interrupted | Heard::End => continue,
            }
            let SteppedLock { client, wire, .. } = self;
            let whole: Decoded<'_> = wire.decode(&client.input[..client.filled], name);
            let Some((_, length)) = whole? else { continue };
            if length < client.filled {
                return Err(surplus::error(name));
            }
            // Decoded twice, since the wire cannot both be borrowed and take the reply.
            let filled = std::mem::take(&mut client.filled);
            let input = std::mem::take(&mut client.input);
            let taken = match wire.decode(&input[..filled], name)? {
                Some((reply, _)) => take(wire, reply).map(Some),
                None => Err(surplus::error(name)),
            };
            client.input = input;
            return taken;
        }
    }

    /// Whether the lock was still ours, or the session still there.
    fn renew_one(&mut self, key: usize, call: &'static str) -> Result<bool, CallError> {
        self.wire.renew(key, &mut self.client.request);
        let renewed = self.exchange(call, true, |wire, reply| wire.renewed(key, reply))?;
        renewed.ok_or(CallError::new(call, Errno::INTR))
    }

    /// Reads for as long as the wire's patience allows.
    fn hear(&mut self, name: &'static str) -> Result<Heard, CallError> {
        let stream = &self.client.stream;
        let patience_ns = match self.wire.patience_ns() {
            // A socket's read timeout is not exact: it uses the kernel's timer wheel, whose
            // steps are up to an eighth of the timeout.
            Some(patience_ns) if self.wire.is_on_time() => {
                let has_come = stream.has_more().then_some(Ok(true));
                let has_come =
                    has_come.unwrap_or_else(|| surplus::poll_for(stream.as_fd(), patience_ns));
                match has_come {
                    Ok(true) => None,
                    Ok(false) => return Ok(Heard::Late),
                    Err(Errno::INTR) => return Ok(Heard::Interrupted),
                    Err(errno) => return Err(CallError::new(name, errno)),
                }
            }
            patience_ns => patience_ns,
        };
        self.read(name, patience_ns)
    }

    fn read(&mut self, name: &'static str, patience_ns: Option<u64>) -> Result<Heard, CallError> {
        if self.patience_ns != patience_ns {
            let patience = patience_ns.map(Duration::from_nanos);
            let set = self.client.stream.set_patience(patience);
            set.map_err(|error| CallError::from_system(name, &error))?;
            self.patience_ns = patience_ns;
        }
        let heard = match self.client.read(name) {
            // The kernel has given up a segment: as if the answer were late.
            Err(error) if error.errno == Errno::TIMEDOUT.raw_os_error() => Ok(Heard::Late),
            heard => heard,
        };
        match heard? {
            Heard::End => {
                let said = "the server has ended the connection, or the session";
                Err(CallError::saying(name, Errno::CONNRESET, said))
            }
            heard => Ok(heard),
        }
    }
}

impl<W: Wire> Lock for SteppedLock<W> {
    fn acquire(&mut self, key: usize, mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        let asking = Asking::from(wait);
        self.wire
            .acquire(key, mode, asking, &mut self.client.request);
        let name = self.wire.names()[0];
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
                Some((Answer::Pending, _)) => self.wire.go_on(&mut self.client.request),
                None => {
                    heeds = false;
                    self.wire.give_up(&mut self.client.request);
                    if self.wire.is_left() {
                        return Ok(Outcome::Interrupted);
                    }
                }
            }
        }
    }

    fn release(&mut self, key: usize, mode: Mode) -> Result<(), CallError> {
        self.wire.release(key, mode, &mut self.client.request);
        let name = self.wire.names()[1];
        self.exchange(name, false, |wire, reply| wire.released(reply))?;
        self.wire.afterwards(&mut self.client.request);
        self.client.send(name)
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
        self.client.stream.has_ended()
    }

    fn resume(&mut self) -> Result<bool, SetupError> {
        let Some(stream) = self.wire.resume()? else {
            return Ok(false);
        };
        let traffic = self.client.traffic;
        self.client = Client::new(stream);
        self.client.traffic = traffic;
        self.patience_ns = None;
        Ok(true)
    }

    fn traffic(&self) -> Option<Traffic> {
        Some(self.client.traffic)
    }

    fn into_dialled(self: Box<Self>) -> Option<Dialled> {
        Some(Dialled {
            stream: self.client.stream,
            wire: Box::new(self.wire),
        })
    }

    /// Ends the session, and waits until the server has.
    fn part(&mut self) -> Result<(), CallError> {
        let name = self.wire.names()[1];
        if !self.wire.farewell(&mut self.client.request) {
            return self.client.stream.part(name);
        }
        match self.client.request.is_empty() {
            true => self.client.stream.end(),
            false => self.client.send(name)?,
        }
        let deadline = Instant::now() + surplus::END_PATIENCE;
        let patience = Some(surplus::END_PATIENCE.as_nanos() as u64);
        while Instant::now() < deadline && self.read(name, patience).is_ok() {
            self.client.filled = 0;
        }
        Ok(())
    }
}
