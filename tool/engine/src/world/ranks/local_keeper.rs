//! A keeper that takes part in a run of several hosts. Messages of rank 0 become requests
//! to the keeper, and its replies become messages to rank 0. Rank 0 has one for its
//! own keeper too, so that all hosts do the same.

use super::Limits;
use super::words::{FromHost, ToHost};
use crate::keeper::{Keeper, Result};
use crate::order::{Reply, Request};
use jostle_sys::waited::Waited;
use std::time::{Duration, Instant};

/// The keeper of this process; tests bring their own.
pub(super) trait Port {
    /// As [`Keeper::ask`].
    ///
    /// # Errors
    /// The keeper has gone.
    fn ask(&mut self, request: &Request) -> Result<()>;

    /// As [`Keeper::look`].
    ///
    /// # Errors
    /// The keeper has gone.
    fn look(&mut self, patience: Duration) -> Result<Option<Reply>>;

    /// Whether it stands still.
    fn is_halted(&self) -> bool;

    /// Ends it, whatever it does, and waits until it has cleaned up.
    fn end(&mut self);
}

impl Port for &mut Keeper {
    fn ask(&mut self, request: &Request) -> Result<()> {
        Keeper::ask(self, request)
    }

    fn look(&mut self, patience: Duration) -> Result<Option<Reply>> {
        Keeper::look(self, patience)
    }

    fn is_halted(&self) -> bool {
        Keeper::is_halted(self)
    }

    fn end(&mut self) {
        Keeper::end(self);
    }
}

/// A keeper and the run that it is at.
pub(super) struct LocalKeeper<P> {
    port: P,
    /// The run, until it is answered for.
    busy: Option<u64>,
    limits: Limits,
    /// Since when the keeper was found to stand still.
    halted: Option<Waited>,
    /// When that is looked at again.
    look: Instant,
}

impl<P: Port> LocalKeeper<P> {
    /// One whose keeper is idle.
    pub(super) fn new(port: P, limits: Limits) -> LocalKeeper<P> {
        LocalKeeper {
            port,
            busy: None,
            limits,
            halted: None,
            look: Instant::now(),
        }
    }

    /// Whether a run is in its hands.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.is_some()
    }

    /// Takes a message of rank 0. One about another run than the present one is late, and
    /// has no effect.
    pub(super) fn hear(&mut self, word: ToHost) -> Option<FromHost> {
        let ToHost::Ask { run, request } = word else {
            return None;
        };
        let begins = matches!(request, Request::Run(_) | Request::Sweep(_));
        if begins {
            self.busy = Some(run);
        }
        let is_present = self.busy == Some(run);
        let failed = is_present.then(|| self.ask(&request)).flatten();
        match request {
            Request::Abort => Some(failed.unwrap_or(FromHost::Aborting { run })),
            _ => failed,
        }
    }

    /// The keeper's next message within `patience`, if it works on a run.
    pub(super) fn look(&mut self, patience: Duration) -> Option<FromHost> {
        let Some(run) = self.busy else {
            std::thread::sleep(patience);
            return None;
        };
        let reply = match self.port.look(patience) {
            Ok(None) => return self.mind_standstill(run),
            Ok(Some(reply @ (Reply::Prepared | Reply::Drained | Reply::Reached(_)))) => {
                return Some(FromHost::Said { run, reply });
            }
            Ok(Some(reply @ (Reply::Closed(_) | Reply::Ran(_) | Reply::Failed(_)))) => reply,
            Ok(Some(_)) => Reply::Failed("the keeper sent an unexpected reply".to_owned()),
            Err(error) => Reply::Failed(error.to_string()),
        };
        self.busy = None;
        Some(FromHost::Said { run, reply })
    }

    /// Ends the keeper.
    pub(super) fn end(&mut self) {
        self.busy = None;
        self.port.end();
    }

    fn ask(&mut self, request: &Request) -> Option<FromHost> {
        let error = self.port.ask(request).err()?;
        Some(FromHost::Said {
            run: self.busy.take()?,
            reply: Reply::Failed(error.to_string()),
        })
    }

    /// Ends a keeper that is stopped for too long: it neither replies nor ends by itself.
    fn mind_standstill(&mut self, run: u64) -> Option<FromHost> {
        let waited = self.halted.as_mut().map(Waited::so_far);
        let now = Instant::now();
        if now < self.look {
            return None;
        }
        self.look = now + self.limits.beat;
        if !self.port.is_halted() {
            self.halted = None;
            return None;
        }
        self.halted.get_or_insert_with(Waited::begin);
        let since = waited.filter(|waited| *waited > self.limits.silence)?;
        self.end();
        let text = format!(
            "its keeper process has stood still for {} s (SIGSTOP, or a debugger)",
            since.as_secs()
        );
        Some(FromHost::Said {
            run,
            reply: Reply::Failed(text),
        })
    }
}
