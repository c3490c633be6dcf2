//! A worker's lock on a service, by the protocol of `wire` on a blocking socket.
//!
//! The signal that ends the run's waits also ends a wait for a reply. Where the protocol cancels
//! an attempt, a request does so, and the connection can be used further. Otherwise it cannot,
//! because the reply is still to come. Services without a queue answer at once, so that their
//! replies are awaited even then: an unread grant would leave a lock taken.

use super::{Client, Heard};
use crate::surplus;
use crate::wire::{Answer, Asking, Reply, Wire, wrong_kind};
use crate::{
    BatchKind, CallError, Calls, Dialled, Keeping, Lock, Mode, Outcome, SetupError, Traffic, Wait,
};
use jostle_sys::files::Errno;
use jostle_sys::{clock, signal};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// One worker's lock, waiting for each reply.
#[derive(Debug)]
pub struct RemoteLock<W> {
    client: Client,
    wire: W,
    token: Option<u64>,
    /// How long a read waits.
    patience_ns: Option<u64>,
}

impl<W: Wire> RemoteLock<W> {
    /// On this connection, in this protocol.
    pub fn new(mut client: Client, wire: W) -> RemoteLock<W> {
        // The traffic so far belongs to no lock.
        client.traffic = Traffic::default();
        client.filled = 0;
        RemoteLock {
            client,
            wire,
            token: None,
            patience_ns: None,
        }
    }

    /// Whether the keeper does not end the wait for an answer, which comes at once.
    #[inline]
    fn is_patient(&self) -> bool {
        self.wire.polls_every_ns().is_some()
    }

    /// Sends the prepared request and takes its answer. None if the keeper ended the wait,
    /// which happens only with `heeds`.
    #[inline]
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
                Heard::Interrupted if heeds && signal::interrupted() => {
                    // Replies are shorter than a packet.
                    let said = "half an answer came, and not the rest";
                    return match self.wire.cancels() || self.client.filled == 0 {
                        true => Ok(None),
                        false => Err(CallError::saying(name, Errno::PROTO, said)),
                    };
                }
                Heard::Interrupted | Heard::End => continue,
            }
            let RemoteLock { client, wire, .. } = self;
            match wire.decode(&client.input[..client.filled], name) {
                Err(error) => return Err(client.foreign(error)),
                Ok(None) => {}
                Ok(Some((_, length))) if length < client.filled => {
                    return Err(surplus::error(name));
                }
                Ok(Some((reply, _))) => {
                    client.filled = 0;
                    client.waits = false;
                    return take(wire, reply).map(Some);
                }
            }
        }
    }

    /// Reads, for as long as the wire's patience allows.
    #[inline]
    fn hear(&mut self, name: &'static str) -> Result<Heard, CallError> {
        if self.wire.cancels() || self.wire.patience_ns().is_some() {
            return self.hear_in_time(name);
        }
        match self.client.read(name)? {
            Heard::End => Err(CallError::new(name, Errno::CONNRESET)),
            heard => Ok(heard),
        }
    }

    fn hear_in_time(&mut self, name: &'static str) -> Result<Heard, CallError> {
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
        match self.client.read(name) {
            // The kernel has given up a segment: as if the answer were late.
            Err(error) if error.errno == Errno::TIMEDOUT.raw_os_error() => Ok(Heard::Late),
            Ok(Heard::End) => {
                let said = "the server has ended the connection, or the session";
                Err(CallError::saying(name, Errno::CONNRESET, said))
            }
            heard => heard,
        }
    }

    /// One request for the lock, with all that belongs to it. None if the keeper ended the wait.
    #[inline]
    fn ask(&mut self, key: usize, mode: Mode, wait: Wait) -> Result<Option<Answer>, CallError> {
        let asking = Asking::from(wait);
        self.wire
            .acquire(key, mode, asking, &mut self.client.request);
        let name = self.wire.names()[0];
        let (mut heeds, mut cancelled) = (!self.is_patient(), false);
        loop {
            let answer = self.exchange(name, heeds, |wire, reply| {
                let answer = wire.acquired(key, reply)?;
                let granted = answer == Answer::Granted;
                Ok((answer, granted.then(|| wire.token(reply))))
            })?;
            match answer {
                Some((Answer::Granted, token)) => {
                    self.token = token.flatten();
                    return Ok(Some(Answer::Granted));
                }
                Some((Answer::Taken, _)) if cancelled => return Ok(None),
                Some((Answer::Taken, _)) => return Ok(Some(Answer::Taken)),
                Some((Answer::Pending, _)) => {
                    self.wire.go_on(&mut self.client.request);
                    if !self.wire.cancels() && self.client.request.is_empty() {
                        return Err(wrong_kind(name));
                    }
                }
                None if !self.wire.cancels() => return Ok(None),
                None => {
                    (heeds, cancelled) = (false, true);
                    self.wire.give_up(&mut self.client.request);
                    if self.wire.is_left() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Whether the lock was still ours, or the session still there.
    fn renew_one(&mut self, key: usize, call: &'static str) -> Result<bool, CallError> {
        self.wire.renew(key, &mut self.client.request);
        let renewed = self.exchange(call, true, |wire, reply| wire.renewed(key, reply))?;
        renewed.ok_or(CallError::new(call, Errno::INTR))
    }
}

impl<W: Wire> Lock for RemoteLock<W> {
    #[inline]
    fn acquire(&mut self, key: usize, mode: Mode, wait: Wait) -> Result<Outcome, CallError> {
        loop {
            match self.ask(key, mode, wait)? {
                Some(Answer::Granted) => return Ok(Outcome::Granted),
                Some(Answer::Taken | Answer::Pending) => {}
                None => return Ok(Outcome::Interrupted),
            }
            let Some(poll) = self.wire.polls_every_ns() else {
                return Ok(Outcome::Refused);
            };
            let left = match wait {
                Wait::Try => 0,
                Wait::Until(until) => until.saturating_sub(clock::monotonic()),
                Wait::Block { .. } => poll,
            };
            match left {
                0 => return Ok(Outcome::Refused),
                _ if signal::interrupted() => return Ok(Outcome::Interrupted),
                left => clock::sleep(left.min(poll), signal::interrupted),
            }
        }
    }

    #[inline]
    fn release(&mut self, key: usize, mode: Mode) -> Result<(), CallError> {
        self.wire.release(key, mode, &mut self.client.request);
        let name = self.wire.names()[1];
        let heeds = !self.is_patient() && !self.wire.cancels();
        let released = self.exchange(name, heeds, |wire, reply| wire.released(reply))?;
        if self.wire.cancels() {
            self.wire.afterwards(&mut self.client.request);
            return self.client.send(name);
        }
        released.ok_or(CallError::new(name, Errno::INTR))
    }

    #[inline]
    fn token(&self) -> Option<u64> {
        self.token
    }

    fn leased_at_ns(&self) -> Option<u64> {
        self.wire.sent_ns()
    }

    fn polls_every_ns(&self) -> Option<u64> {
        self.wire.polls_every_ns()
    }

    fn gives_up(&self) -> bool {
        self.is_patient() || self.wire.cancels()
    }

    fn keeping(&self) -> Option<Keeping> {
        self.wire.keeping()
    }

    fn renew(&mut self, keys: &[usize], lapsed: &mut Vec<usize>) -> Result<bool, CallError> {
        let Some(Keeping {
            call, is_session, ..
        }) = self.wire.keeping()
        else {
            return Ok(true);
        };
        if is_session {
            return self.renew_one(0, call);
        }
        if self.wire.cancels() {
            for key in keys {
                if !self.renew_one(*key, call)? {
                    lapsed.push(*key);
                }
            }
            return Ok(true);
        }
        let RemoteLock { client, wire, .. } = self;
        for key in keys {
            wire.renew(*key, &mut client.request);
        }
        let whole = client.exchange(call, false, keys.len(), |nth, input| {
            let Some((reply, length)) = wire.decode(input, call)? else {
                return Ok(None);
            };
            if !wire.renewed(keys[nth], reply)? {
                lapsed.push(keys[nth]);
            }
            Ok(Some(length))
        })?;
        whole
            .then_some(true)
            .ok_or(CallError::new(call, Errno::INTR))
    }

    fn is_cut_off(&self) -> bool {
        self.wire.cancels() && self.client.stream.has_ended()
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

    /// Ends the session, where it has one, and waits until the server has.
    fn part(&mut self) -> Result<(), CallError> {
        let name = self.wire.names()[1];
        if !self.wire.farewell(&mut self.client.request) {
            return self.client.part(name);
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

    fn batch(&mut self, calls: Calls, _wait: Wait) -> Result<Outcome, CallError> {
        let RemoteLock { client, wire, .. } = self;
        let out = &mut client.request;
        for key in (0..calls.count).map(|nth| calls.key(nth)) {
            if calls.kind != BatchKind::Releases {
                wire.acquire(key, Mode::Exclusive, Asking::Block, out);
            }
            if calls.kind != BatchKind::Acquires {
                wire.release(key, Mode::Exclusive, out);
            }
        }
        let name = wire.names()[0];
        let patient = wire.polls_every_ns().is_some();
        let whole = client.exchange(name, patient, calls.replies(), |nth, input| {
            let Some((reply, length)) = wire.decode(input, name)? else {
                return Ok(None);
            };
            let acquires = match calls.kind {
                BatchKind::Pairs => nth.is_multiple_of(2),
                BatchKind::Acquires => true,
                BatchKind::Releases => false,
            };
            match acquires {
                true => granted_at_once(wire, calls.key(nth), reply)?,
                false => wire.released(reply)?,
            }
            Ok(Some(length))
        })?;
        Ok(match whole {
            true => Outcome::Granted,
            false => Outcome::Interrupted,
        })
    }
}

/// Reads an acquisition's reply among pipelined requests, which rely on the grant.
///
/// # Errors
/// EAGAIN where the lock was taken.
#[inline]
pub fn granted_at_once(
    wire: &mut (impl Wire + ?Sized),
    key: usize,
    reply: Reply<'_>,
) -> Result<(), CallError> {
    match wire.acquired(key, reply)? {
        Answer::Granted => Ok(()),
        Answer::Taken => Err(CallError::new(wire.names()[0], Errno::AGAIN)),
        Answer::Pending => Err(wrong_kind(wire.names()[0])),
    }
}
