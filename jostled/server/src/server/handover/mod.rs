//! The handover in the event loop: the request for it, the waits for the new program,
//! and what follows a failure. [`crate::handover`] describes the steps.

#[cfg(test)]
mod live_tests;
mod pack;
mod unpack;

pub use unpack::prove;

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::life::{Handover, Stage, Successor};
use super::{ASKED, CHECKED, Server};
use crate::handover::check::Check;
use crate::handover::state::Sealed;
use crate::log::{Level, Value, audit, say, write};
use crate::systemd::Notifier;
use crate::table::{ClientId, Time};

impl Server {
    /// Lets this server be handed over to another program, by the command HANDOVER
    /// or by a signal.
    ///
    /// # Errors
    /// The system's.
    pub fn allow_handover(&mut self, successor: Successor) -> io::Result<()> {
        successor.signal.set_nonblocking(true)?;
        // Edge-triggered: nobody reads it during the drain.
        let flags = EventFlags::IN | EventFlags::ET;
        self.watch_for(ASKED, &successor.signal, flags)?;
        self.life.handover = Some(Handover {
            successor,
            stage: Stage::Idle,
            asker: None,
        });
        Ok(())
    }

    /// The signal has come.
    pub(super) fn handover_signalled(&mut self) {
        if let Some(handover) = &self.life.handover {
            let mut bytes = [0; 64];
            while let Ok(1..) = rustix::io::read(&handover.successor.signal, &mut bytes) {}
        }
        match self.begin_handover(None) {
            Ok(()) => audit("handover", &[("by", Value::Bytes(b"signal"))]),
            Err(why) => write(Level::Error, &format!("no handover: {why}")),
        }
    }

    /// Requests a handover at the end of this turn. The client that asks waits for the outcome.
    pub(super) fn begin_handover(&mut self, asker: Option<ClientId>) -> Result<(), &'static str> {
        if self.is_draining() {
            return Err("the daemon is ending");
        }
        #[cfg(feature = "ha")]
        if self.ha.is_some() {
            return Err("a group of jostleds is upgraded one by one: HA FAILOVER, then a start");
        }
        if self.leases.from.is_some() {
            return Err("leases of the program before this one may still run");
        }
        let Some(handover) = &mut self.life.handover else {
            return Err("this daemon is a part of another program");
        };
        if !matches!(handover.stage, Stage::Idle) {
            return Err("there is one in progress");
        }
        (handover.stage, handover.asker) = (Stage::Wanted, asker);
        Ok(())
    }

    /// Until when the new program has time to answer.
    pub(super) fn handover_end(&self) -> Option<Time> {
        match &self.life.handover.as_ref()?.stage {
            Stage::Checked(_, end) => Some(*end),
            _ => None,
        }
    }

    /// Does the next step of a handover, if there is one. Every connection must be in its slot.
    #[inline]
    pub(super) fn advance_handover(&mut self, stop: BorrowedFd<'_>) {
        let idle = |handover: &Handover| matches!(handover.stage, Stage::Idle);
        // A state has no half-served lines and no settings that are being read.
        let waits = self.table.is_partly_served() || self.life.reading.is_some();
        if !self.life.handover.as_ref().is_none_or(idle) && !waits {
            self.advance(stop);
        }
    }

    #[cold]
    fn advance(&mut self, stop: BorrowedFd<'_>) {
        let draining = self.is_draining();
        let Some(handover) = &mut self.life.handover else {
            return;
        };
        let outcome = match std::mem::replace(&mut handover.stage, Stage::Idle) {
            Stage::Idle => return,
            // The new program would not know of the drain, and would go on.
            _ if draining => Err("the daemon is ending".to_owned()),
            Stage::Wanted => self.ask_successor(),
            Stage::Checked(check, end) if !check.wait(Duration::ZERO) => {
                if self.clock < end {
                    handover.stage = Stage::Checked(check, end);
                    return;
                }
                Err(self.no_answer())
            }
            Stage::Checked(check, _) => match check.verdict(&handover.successor.program) {
                Ok(()) => self.hand_over(stop).map(|never| match never {}),
                Err(why) => Err(why),
            },
        };
        if let Err(why) = outcome {
            self.go_on_after(&why);
            // This turn is over, so the reply is sent here.
            self.deliver_grants();
        }
    }

    fn no_answer(&self) -> String {
        let patience = self.config.handover_timeout.as_secs();
        format!("the new program does not answer within {patience} s (--handover-timeout)")
    }

    /// Lets the new program check the current state, while clients are served.
    fn ask_successor(&mut self) -> Result<(), String> {
        let now = self.now();
        let sealed = Sealed::new(&self.state(now)).map_err(no_state)?;
        let Some(handover) = &self.life.handover else {
            return Ok(());
        };
        let program = &handover.successor.program;
        say(&format!("handover: checks {}", program.path().display()));
        let check = Check::begin(program, &sealed)?;
        if let Some(bell) = check.bell() {
            // Dropping the check closes this descriptor, which ends the watch.
            let watched = self.watch_for(CHECKED, bell, EventFlags::IN);
            watched.map_err(|error| error.to_string())?;
        }
        let patience = self.config.handover_timeout.as_nanos() as u64;
        if let Some(handover) = &mut self.life.handover {
            handover.stage = Stage::Checked(check, Time(now.0 + patience));
        }
        Ok(())
    }

    /// Stops, lets the new program check the state once more, and becomes it.
    fn hand_over(&mut self, stop: BorrowedFd<'_>) -> Result<Infallible, String> {
        self.life.notify(Notifier::reloading);
        let mut parted = Vec::new();
        let outcome = self.become_successor(stop, &mut parted);
        // This point is reached only if the handover has failed.
        if let Some(reserver) = &self.reserver {
            reserver.wake();
        }
        self.wake_store();
        for client in parted {
            if let Some(conn) = self.take_conn(client) {
                self.close(conn);
            }
        }
        self.life.notify(Notifier::ready);
        outcome
    }

    /// Becomes the new program. `parted` receives the clients whose TLS connections were ended.
    fn become_successor(
        &mut self,
        stop: BorrowedFd<'_>,
        parted: &mut Vec<ClientId>,
    ) -> Result<Infallible, String> {
        let begun = self.now();
        let files = [self.rest_tokens()?, self.rest_store()?];
        let state = self.state(begun);
        let sealed = Sealed::new(&state).map_err(no_state)?;
        let Some(handover) = &self.life.handover else {
            return Err("nothing to become".to_owned());
        };
        let program = &handover.successor.program;
        let check = Check::begin(program, &sealed)?;
        if !check.wait(self.config.handover_timeout) {
            return Err(self.no_answer());
        }
        check.verdict(program)?;
        let parcel = self
            .parcel(&sealed, &files)
            .map_err(|error| format!("cannot pack {} connections: {error}", state.conns.len()))?;
        let program = program.clone();
        let _held = jostle_sys::signal::hold_back(&handover.successor.signals)
            .map_err(|error| format!("cannot hold back signals: {error}"))?;
        if is_readable(stop) {
            return Err("the daemon is told to end".to_owned());
        }
        say(&format!(
            "handover: {} connections go on, {} with TLS end",
            state.conns.len(),
            state.lost.len()
        ));
        self.part_from_tls(parted);
        let error = program.become_it(parcel);
        Err(format!(
            "cannot start {}: {error}",
            program.path().display()
        ))
    }

    /// Ends the TLS connections, which cannot be handed over.
    fn part_from_tls(&mut self, parted: &mut Vec<ClientId>) {
        for conn in self.conns.iter_mut().flatten() {
            if conn.stream.is_tls() {
                conn.stream.close();
                parted.push(conn.id);
            }
        }
    }

    /// Continues with this program after a handover has failed.
    fn go_on_after(&mut self, why: &str) {
        self.stats.handover_failures += 1;
        write(
            Level::Error,
            &format!("no handover, this program goes on: {why}"),
        );
        let handover = self.life.handover.as_mut();
        let Some(asker) = handover.and_then(|found| found.asker.take()) else {
            return;
        };
        let why = why.replace(['\r', '\n'], " ");
        self.unblock(asker, |reply| {
            reply.error(&format!(
                "ERR no handover, the daemon goes on as it is: {why}"
            ));
        });
    }
}

fn no_state(error: io::Error) -> String {
    format!("cannot write the state: {error}")
}

pub(super) fn is_readable(fd: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
