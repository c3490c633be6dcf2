//! Locks of jostled, on redis-rs.
//!
//! ```no_run
//! # use jostle_lock::{Locks, SessionWish, Settings, Wish, WishAll};
//! # use std::time::Duration;
//! let locks = Locks::new("redis://127.0.0.1:2626", Settings::default())?;
//! let wish = Wish::waiting(Duration::from_secs(5)).ttl(Duration::from_secs(10));
//! let held = locks.acquire("job", &wish)?;
//! println!("write with token {}", held.token());
//! held.release()?;
//!
//! // Several locks in one step, and a session, which owns many locks.
//! let both = locks.acquire_all(&["from", "to"], WishAll::waiting(Duration::from_secs(5)))?;
//! println!("write with tokens {:?}", both.tokens());
//! both.release()?;
//! let session = locks.session(SessionWish::ttl(Duration::from_secs(30)))?;
//! let held = session.acquire("job", &Wish::waiting(Duration::from_secs(5)))?;
//! held.release()?;
//! session.close()?;
//! # Ok::<(), jostle_lock::Error>(())
//! ```
//!
//! Four words have one meaning each:
//!
//! - *wait*: how long the daemon lets a request wait for the grant.
//! - *timeout*: how long an answer may take beyond that. When it passes, the
//!   connection is closed, so that neither a waiter nor a lock that nobody knows of
//!   stays behind.
//! - *lost*: the lock is known, or must be feared, to be somebody else's.
//! - *token*: the fencing token: hand it to whatever you write to, which refuses a
//!   token smaller than the largest it has seen.

mod error;
mod held;
mod kept;
mod known;
mod line;
mod session;
mod term;
mod wish;

pub use error::Error;
pub use held::{Held, HeldAll, Lost};
pub use session::{Session, SessionHeld, SessionWish};
pub use wish::{Wish, WishAll};

use kept::{Grant, Kept, Parts, Tell};
use line::Line;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use term::Term;

/// Settings for all locks of one daemon.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long an answer may take, beyond the wait where there is one; at least 1 ms.
    pub timeout: Duration,
    /// How often a request is sent again when no answer came: on a new connection, after
    /// the old one was closed.
    pub retries: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            timeout: Duration::from_secs(5),
            retries: 0,
        }
    }
}

/// A lease can hardly be renewed in less.
const LEAST_TTL: Duration = Duration::from_millis(10);

/// Takes locks at one daemon; clones are cheap.
#[derive(Clone, Debug)]
pub struct Locks {
    client: redis::Client,
    settings: Settings,
    silent: Arc<Mutex<Option<SocketAddr>>>,
}

impl Locks {
    /// The locks of the daemon at an address of redis-rs: an URL or a `ConnectionInfo`.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is no address.
    pub fn new(
        address: impl redis::IntoConnectionInfo,
        mut settings: Settings,
    ) -> Result<Locks, Error> {
        settings.timeout = settings.timeout.max(Duration::from_millis(1));
        let client = redis::Client::open(address);
        let client = client.map_err(|error| Error::Refused(error.to_string()))?;
        Ok(Locks {
            client,
            settings,
            silent: Arc::default(),
        })
    }

    /// Waits for a lock.
    ///
    /// # Errors
    /// [`Error::NotGranted`], [`Error::NoAnswer`], [`Error::Refused`], or
    /// [`Error::LockLost`] if a lease ended before its grant was known.
    pub fn acquire(&self, name: &str, wish: &Wish) -> Result<Held, Error> {
        let asked = Asked::new(name.to_owned(), wish.words(name), wish.wait, wish.ttl);
        let (token, parts) = self.take(&asked, |reply| {
            let redis::Value::Int(token) = reply else {
                return Err(unexpected(&reply));
            };
            let grant = Grant {
                title: format!("{name} (token {token})"),
                renewal: vec![renewal(name, token, wish.ttl)],
                ending: vec![unlocking(name, token)],
            };
            Ok((token, grant))
        })?;
        let on_lost = wish.on_lost.clone().map(|call| -> Tell {
            let name = name.to_owned();
            Box::new(move |reason| {
                call(&Lost {
                    name: name.clone(),
                    token,
                    reason: reason.to_owned(),
                });
            })
        });
        Ok(Held {
            name: name.to_owned(),
            token,
            kept: Kept::new(parts, on_lost),
        })
    }

    /// Waits for several exclusive locks, all or none. Two programs that both use it
    /// do not block each other, in whatever order they name the locks.
    ///
    /// # Errors
    /// As [`Locks::acquire`].
    pub fn acquire_all(&self, names: &[&str], wish: WishAll) -> Result<HeldAll, Error> {
        let mut words = vec!["LOCKALL".to_owned(), names.len().to_string()];
        words.extend(names.iter().map(|&name| name.to_owned()));
        let asked = Asked::new(names.join(", "), words, wish.wait, wish.ttl);
        let (tokens, parts) = self.take(&asked, |reply| {
            let tokens: Vec<i64> = redis::from_redis_value(reply)
                .map_err(|error| Error::Refused(error.to_string()))?;
            let each = || names.iter().copied().zip(tokens.iter().copied());
            let grant = Grant {
                title: format!("{} (tokens {tokens:?})", asked.name),
                renewal: match wish.ttl {
                    None => vec![vec!["PING".to_owned()]],
                    ttl => each()
                        .map(|(name, token)| renewal(name, token, ttl))
                        .collect(),
                },
                ending: each().map(|(name, token)| unlocking(name, token)).collect(),
            };
            let tokens: BTreeMap<_, _> = each()
                .map(|(name, token)| (name.to_owned(), token))
                .collect();
            Ok((tokens, grant))
        })?;
        let kept = Kept::new(parts, wish.on_lost);
        Ok(HeldAll { tokens, kept })
    }

    /// Opens a session, which owns many locks and is renewed for all of them.
    ///
    /// # Errors
    /// [`Error::NoAnswer`] or [`Error::Refused`].
    pub fn session(&self, wish: SessionWish) -> Result<Session, Error> {
        let ttl = wish.ttl.as_millis().to_string();
        let words = [
            "SESSION".to_owned(),
            "OPEN".to_owned(),
            "TTL".to_owned(),
            ttl,
            "AS".to_owned(),
            session::opener(),
        ];
        self.open_session(wish, |line| {
            let reply = line.ask(Some(self.settings.timeout), &words)?;
            redis::from_redis_value(reply).map_err(|error| Error::Refused(error.to_string()))
        })
    }

    /// Takes up a session that was opened before, by this program or by one that has
    /// ended, with the same TTL.
    ///
    /// # Errors
    /// [`Error::NoAnswer`], or [`Error::LockLost`] if it is over.
    pub fn take_up(&self, id: &str, wish: SessionWish) -> Result<Session, Error> {
        let words = session_words("RENEW", id);
        self.open_session(wish, |line| {
            match line.ask(Some(self.settings.timeout), &words) {
                Err(Error::Refused(why)) => {
                    Err(Error::LockLost(format!("{}: {why}", title_of(id))))
                }
                other => other.map(|_| id.to_owned()),
            }
        })
    }

    fn open_session(
        &self,
        wish: SessionWish,
        open: impl Fn(&mut Line) -> Result<String, Error>,
    ) -> Result<Session, Error> {
        let ttl = Some(wish.ttl);
        let (id, parts) = self.try_often(|mut line| {
            let sent = Instant::now();
            let id = open(&mut line)?;
            let grant = Grant {
                title: title_of(&id),
                renewal: vec![session_words("RENEW", &id)],
                ending: vec![session_words("CLOSE", &id)],
            };
            let term = Term::new(ttl, None, self.settings.timeout, sent);
            Ok((id, self.parts(grant, ttl, term, line)))
        })?;
        Ok(Session {
            locks: self.clone(),
            id,
            kept: Kept::new(parts, wish.on_lost),
            errands: Mutex::new(None),
            known: known::Known::default(),
        })
    }

    /// The token of a lock that belongs to a session, whatever becomes of the
    /// connection that waited for it.
    fn lock_in_session(
        &self,
        name: &str,
        wish: &Wish,
        session: &str,
        known: &known::Known,
    ) -> Result<i64, Error> {
        let mut words = wish.words(name);
        words.extend(["SESSION".to_owned(), session.to_owned()]);
        let asked = Asked::new(name.to_owned(), words, wish.wait, None);
        self.try_often(|mut line| match self.wait(&mut line, &asked, None) {
            Ok(redis::Value::Int(token)) => Ok(token),
            Ok(other) => Err(unexpected(&other)),
            Err(error) => {
                if matches!(error, Error::NoAnswer(_)) {
                    known.doubt(name);
                }
                Err(error)
            }
        })
    }

    /// The result of an attempt with a connection of its own, which is closed when it is dropped.
    fn try_often<T>(&self, attempt: impl Fn(Line) -> Result<T, Error>) -> Result<T, Error> {
        let mut left = self.settings.retries;
        loop {
            match attempt(self.line()) {
                Err(Error::NoAnswer(_)) if left > 0 => left -= 1,
                other => return other,
            }
            // A daemon that starts again needs a moment.
            std::thread::sleep(self.settings.timeout / 4);
        }
    }

    /// Sends a request on a connection of its own, which stays open if it is granted.
    fn take<T>(
        &self,
        asked: &Asked,
        granted: impl Fn(redis::Value) -> Result<(T, Grant), Error>,
    ) -> Result<(T, Parts), Error> {
        let (timeout, ttl) = (self.settings.timeout, asked.ttl);
        self.try_often(|mut line| {
            let sent = Instant::now();
            // A grant whose answer does not arrive leaves a lease that nobody knows of.
            // Taken for four timeouts at most, it does not keep others out for long; by
            // default it survives a change of the member that serves.
            let first = ttl.map(|ttl| ttl.min((4 * timeout).max(LEAST_TTL)));
            let (made, grant) = granted(self.wait(&mut line, asked, first)?)?;
            let mut term = Term::new(ttl, first, timeout, sent);
            if term.is_late() {
                term = self.begin(&grant, ttl, &mut line)?;
            }
            Ok((made, self.parts(grant, ttl, term, line)))
        })
    }

    fn parts(&self, grant: Grant, ttl: Option<Duration>, term: Term, line: Line) -> Parts {
        Parts {
            locks: self.clone(),
            grant,
            ttl,
            term,
            line,
        }
    }

    /// Sends a request with its times; the reply, once it is granted.
    fn wait(
        &self,
        line: &mut Line,
        asked: &Asked,
        first: Option<Duration>,
    ) -> Result<redis::Value, Error> {
        let left = asked
            .wait
            .map(|wait| wait.saturating_sub(asked.begun.elapsed()));
        let mut words = asked.words.clone();
        for (word, time) in [("TTL", first), ("WAIT", left)] {
            if let Some(time) = time {
                words.extend([word.into(), time.as_millis().to_string()]);
            }
        }
        let limit = left.map(|left| left + self.settings.timeout);
        match line.ask(limit, &words)? {
            redis::Value::Nil => Err(Error::NotGranted(format!(
                "{}: taken by others for {:?}",
                asked.name,
                asked.wait.unwrap_or_default()
            ))),
            reply => Ok(reply),
        }
    }

    fn line(&self) -> Line {
        Line::new(&self.client, self.settings.timeout, &self.silent)
    }

    /// Gives it its whole length, from now on: it began at an unknown time.
    fn begin(&self, grant: &Grant, ttl: Option<Duration>, line: &mut Line) -> Result<Term, Error> {
        let timeout = self.settings.timeout;
        let sent = Instant::now();
        match line.ask_all(Some(timeout), &grant.renewal) {
            Ok(_) => Ok(Term::new(ttl, None, timeout, sent)),
            Err(Error::NoAnswer(why)) if ttl.is_some() => {
                // Spares the next one the rest of a lease that nobody will use; where
                // that fails, it ends by itself, after four timeouts at most.
                let _ = self.line().ask_all(Some(timeout), &grant.ending);
                Err(Error::NoAnswer(why))
            }
            Err(Error::NoAnswer(why)) => Err(Error::NoAnswer(why)),
            Err(error) => Err(Error::LockLost(format!(
                "{} ended before its grant was known: {error}",
                grant.title
            ))),
        }
    }
}

/// A LOCK or LOCKALL without its times.
struct Asked {
    /// For errors.
    name: String,
    words: Vec<String>,
    wait: Option<Duration>,
    ttl: Option<Duration>,
    begun: Instant,
}

impl Asked {
    fn new(
        name: String,
        words: Vec<String>,
        wait: Option<Duration>,
        ttl: Option<Duration>,
    ) -> Asked {
        Asked {
            name,
            words,
            wait,
            ttl,
            begun: Instant::now(),
        }
    }
}

fn unexpected(reply: &redis::Value) -> Error {
    Error::Refused(format!("the daemon answered {reply:?}"))
}

fn renewal(name: &str, token: i64, ttl: Option<Duration>) -> Vec<String> {
    let Some(ttl) = ttl else {
        return vec!["PING".to_owned()];
    };
    let ttl = ttl.as_millis().to_string();
    ["RENEW", name, &token.to_string(), "TTL", &ttl]
        .map(str::to_owned)
        .to_vec()
}

fn unlocking(name: &str, token: i64) -> Vec<String> {
    ["UNLOCK", name, &token.to_string()]
        .map(str::to_owned)
        .to_vec()
}

fn session_words(what: &str, id: &str) -> Vec<String> {
    ["SESSION", what, id].map(str::to_owned).to_vec()
}

/// Does not let the readers of a log take the session up.
fn title_of(id: &str) -> String {
    format!("session {}...", id.get(..8).unwrap_or(id))
}
