//! Sessions: many locks that are renewed together.

use crate::kept::Kept;
use crate::known::Known;
use crate::line::Line;
use crate::{Error, Locks, Wish};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Who opens a session, for people. Arguments may be secret.
pub(crate) fn opener() -> String {
    let user = std::env::var("LOGNAME").unwrap_or_else(|_| "?".to_owned());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_name().unwrap_or_default().to_string_lossy();
    let mut text = format!("{user}@{} pid {} {program}", host.trim(), std::process::id());
    text.retain(|letter| !letter.is_control());
    while text.len() > 255 {
        text.pop();
    }
    text
}

/// A session as it is asked for.
pub struct SessionWish {
    pub(crate) ttl: Duration,
    pub(crate) on_lost: Option<crate::kept::Tell>,
}

impl SessionWish {
    /// How long it lasts without a renewal (10 ms at least); it is renewed at a
    /// third of it.
    pub fn ttl(ttl: Duration) -> SessionWish {
        SessionWish {
            ttl: ttl.max(crate::LEAST_TTL),
            on_lost: None,
        }
    }

    /// Called once with the reason, by a thread of its own, when the session is lost
    /// before it is closed, as that of a lease.
    pub fn on_lost(mut self, call: impl Fn(&str) + Send + Sync + 'static) -> SessionWish {
        self.on_lost = Some(Box::new(call));
        self
    }
}

/// A session that is open: it owns many locks, and is renewed for all of them.
/// Dropping it closes it too, and tells nobody if it was lost.
pub struct Session {
    pub(crate) locks: Locks,
    pub(crate) id: String,
    pub(crate) kept: Kept,
    /// A connection for commands that do not wait; opened when needed.
    pub(crate) errands: Mutex<Option<Line>>,
    pub(crate) known: Known,
}

impl Session {
    /// The name by which [`Locks::take_up`] takes the session up again; only the same user can.
    /// Keep it secret.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether somebody else may hold its locks by now.
    pub fn is_lost(&self) -> bool {
        self.check().is_err()
    }

    /// Call it before what must not happen twice.
    ///
    /// # Errors
    /// [`Error::LockLost`] if the session is lost, and all its locks with it.
    pub fn check(&self) -> Result<(), Error> {
        self.kept.check()
    }

    /// Waits for a lock of this session; its wish has neither `ttl` nor `on_lost`,
    /// which the session has.
    ///
    /// After [`Error::NoAnswer`] the session may have the lock. Acquire it again: that
    /// gives the lock with its token if the session has it, and waits for it otherwise.
    ///
    /// # Errors
    /// [`Error::NotGranted`], [`Error::NoAnswer`], [`Error::Refused`], or
    /// [`Error::LockLost`] if the session is over.
    pub fn acquire(&self, name: &str, wish: &Wish) -> Result<SessionHeld<'_>, Error> {
        if wish.ttl.is_some() || wish.on_lost.is_some() {
            let why = "a lock of a session has no ttl and no on_lost: the session has";
            return Err(Error::Refused(why.to_owned()));
        }
        self.check()?;
        self.known.ask(name);
        let token = self.token(name, wish);
        self.known.forget(name);
        let held = SessionHeld::new(self, name, token?, true);
        held.check()?;
        Ok(held)
    }

    fn token(&self, name: &str, wish: &Wish) -> Result<i64, Error> {
        let asked = self
            .locks
            .lock_in_session(name, wish, &self.id, &self.known);
        match asked {
            Err(Error::Refused(why)) if why.contains("NOSESSION") => {
                let shared = self.kept.shared();
                let error = shared.lost(&why);
                // The callback gets a thread of its own.
                let tells = std::sync::Arc::clone(shared);
                std::thread::spawn(move || tells.lose(why));
                Err(error)
            }
            Err(Error::Refused(why)) => {
                let adopted = self.known.adopt(name, wish.mode(), &why);
                adopted.ok_or(Error::Refused(why))
            }
            // Another request was in doubt, and has taken this grant for its own.
            Ok(token) if !self.known.claim(name, token) => Err(Error::Refused(format!(
                "ALREADYHELD {token} {} by another part of this program",
                wish.mode()
            ))),
            other => other,
        }
    }

    /// A lock that this session was granted before it was taken up by its id.
    pub fn held(&self, name: &str, token: i64) -> SessionHeld<'_> {
        SessionHeld::new(self, name, token, self.known.claim(name, token))
    }

    /// Ends the session, and all locks that it still has. If it returns `Ok`, the
    /// daemon has confirmed that the session lasted until now.
    ///
    /// # Errors
    /// [`Error::LockLost`] unless it did.
    pub fn close(mut self) -> Result<(), Error> {
        self.kept.end()
    }

    fn unlock(&self, name: &str, token: i64) -> Result<(), Error> {
        let limit = Some(self.locks.settings.timeout);
        let words = ["UNLOCK".to_owned(), name.to_owned(), token.to_string()];
        let mut errands = self.errands.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = errands.as_mut() {
            match line.ask(limit, &words) {
                // The connection has ended; another one may do.
                Err(Error::NoAnswer(_)) => {}
                other => return other.map(drop),
            }
        }
        let line = errands.insert(self.locks.line());
        line.ask(limit, &words).map(drop)
    }
}

/// A lock of a session. Dropping it releases it too, and tells nobody if it was lost.
pub struct SessionHeld<'s> {
    session: &'s Session,
    name: String,
    token: i64,
    released: bool,
    /// Whether the session knows it as this one's.
    claimed: bool,
}

impl<'s> SessionHeld<'s> {
    fn new(session: &'s Session, name: &str, token: i64, claimed: bool) -> Self {
        SessionHeld {
            session,
            name: name.to_owned(),
            token,
            released: false,
            claimed,
        }
    }
}

impl SessionHeld<'_> {
    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The fencing token: larger than that of every earlier grant.
    pub fn token(&self) -> i64 {
        self.token
    }

    /// Whether somebody else may hold the lock by now: it is lost with its session.
    pub fn is_lost(&self) -> bool {
        self.session.is_lost()
    }

    /// Call it before what must not happen twice.
    ///
    /// # Errors
    /// [`Error::LockLost`] if the lock is lost.
    pub fn check(&self) -> Result<(), Error> {
        self.session.check()
    }

    /// Gives the lock back. After [`Error::NoAnswer`] the session may still have it:
    /// release [`Session::held`] with its token.
    ///
    /// # Errors
    /// [`Error::LockLost`] if it was not held until now, or [`Error::NoAnswer`].
    pub fn release(mut self) -> Result<(), Error> {
        self.released = true;
        self.check()?;
        let ended = self.unlock();
        ended.map_err(|error| match error {
            Error::Refused(why) => {
                Error::LockLost(format!("{} (token {}): {why}", self.name, self.token))
            }
            other => other,
        })
    }
}

impl Drop for SessionHeld<'_> {
    fn drop(&mut self) {
        if !self.released && !self.session.is_lost() {
            let _ = self.unlock();
        }
    }
}

impl SessionHeld<'_> {
    fn unlock(&mut self) -> Result<(), Error> {
        let ended = self.session.unlock(&self.name, self.token);
        // Without an answer the session may still have it.
        if !matches!(ended, Err(Error::NoAnswer(_))) && std::mem::take(&mut self.claimed) {
            self.session.known.forget(&self.name);
        }
        ended
    }
}
