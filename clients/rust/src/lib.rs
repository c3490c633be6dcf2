//! Locks of jostled, on redis-rs.
//!
//! ```no_run
//! # use jostle_lock::{Locks, Settings, Wish};
//! # use std::time::Duration;
//! let locks = Locks::new("redis://127.0.0.1:2626", Settings::default())?;
//! let wish = Wish::waiting(Duration::from_secs(5)).ttl(Duration::from_secs(10));
//! let held = locks.acquire("job", &wish)?;
//! println!("write with token {}", held.token());
//! held.release()?;
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

mod held;
mod line;
mod term;

pub use held::{Held, Lost};

use line::Line;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use term::Term;

/// What can go wrong with a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Somebody else had the lock for the whole wait.
    NotGranted(String),
    /// The daemon did not answer in time, or could not be reached. The connection
    /// is closed, which takes the request out of the line. A lock that was granted
    /// in that moment ends with the connection; a lease, after the timeout, since
    /// it gets its length only when its grant is known.
    NoAnswer(String),
    /// Somebody else may hold the lock, or may have held it meanwhile.
    LockLost(String),
    /// The daemon answered with this error, or redis-rs knows no such address.
    Refused(String),
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotGranted(what) => write!(to, "not granted: {what}"),
            Error::NoAnswer(what) => write!(to, "no answer: {what}"),
            Error::LockLost(what) => write!(to, "lock lost: {what}"),
            Error::Refused(what) => write!(to, "refused: {what}"),
        }
    }
}

impl std::error::Error for Error {}

/// What holds for all locks of one daemon.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long an answer may take, beyond the wait where there is one; at least 1 ms.
    pub timeout: Duration,
    /// How often LOCK is sent again when no answer came: on a new connection, after
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

/// A lock as it is asked for.
#[derive(Clone)]
pub struct Wish {
    wait: Option<Duration>,
    ttl: Option<Duration>,
    shared: bool,
    of: u16,
    on_lost: Option<OnLost>,
}

type OnLost = Arc<dyn Fn(&Lost) + Send + Sync>;

impl Wish {
    /// An exclusive lock that belongs to a connection, which is opened for it;
    /// a wait of zero is to take it or leave it.
    pub fn waiting(wait: Duration) -> Wish {
        Wish {
            wait: Some(wait),
            ..Wish::waiting_without_limit()
        }
    }

    /// The same, however long it takes.
    pub fn waiting_without_limit() -> Wish {
        Wish {
            wait: None,
            ttl: None,
            shared: false,
            of: 1,
            on_lost: None,
        }
    }

    /// Makes it a lease, renewed at a third of this (10 ms at least).
    pub fn ttl(mut self, ttl: Duration) -> Wish {
        self.ttl = Some(ttl.max(LEAST_TTL));
        self
    }

    /// Asks for a reader's lock.
    pub fn shared(mut self) -> Wish {
        self.shared = true;
        self
    }

    /// Asks for one of so many places.
    pub fn of(mut self, places: u16) -> Wish {
        self.of = places;
        self
    }

    /// Called once, by a thread of its own, when the lock is lost before it is
    /// released: for a lease at its end at the latest, also when the daemon does not
    /// answer; without a lease at most 4/3 of the timeout after the daemon's last sign.
    pub fn on_lost(mut self, call: impl Fn(&Lost) + Send + Sync + 'static) -> Wish {
        self.on_lost = Some(Arc::new(call));
        self
    }

    fn words(&self, name: &str, first: Option<Duration>, left: Option<Duration>) -> Vec<String> {
        let mut words = vec!["LOCK".into(), name.into()];
        for (word, time) in [("TTL", first), ("WAIT", left)] {
            if let Some(time) = time {
                words.extend([word.into(), time.as_millis().to_string()]);
            }
        }
        if self.shared {
            words.push("SHARED".into());
        }
        if self.of != 1 {
            words.extend(["OF".into(), self.of.to_string()]);
        }
        words
    }
}

/// A lease can hardly be renewed in less.
const LEAST_TTL: Duration = Duration::from_millis(10);

/// Takes locks at one daemon; clones are cheap.
#[derive(Clone, Debug)]
pub struct Locks {
    client: redis::Client,
    settings: Settings,
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
        Ok(Locks { client, settings })
    }

    /// Waits for a lock.
    ///
    /// # Errors
    /// [`Error::NotGranted`], [`Error::NoAnswer`], [`Error::Refused`], or
    /// [`Error::LockLost`] if a lease ended before its grant was known.
    pub fn acquire(&self, name: &str, wish: &Wish) -> Result<Held, Error> {
        let begun = Instant::now();
        let mut left = self.settings.retries;
        loop {
            match self.attempt(name, wish, begun) {
                Err(Error::NoAnswer(_)) if left > 0 => left -= 1,
                other => return other,
            }
            // A daemon that starts again needs a moment.
            std::thread::sleep(self.settings.timeout / 4);
        }
    }

    /// One LOCK on a connection of its own, which stays open if it is granted.
    fn attempt(&self, name: &str, wish: &Wish, begun: Instant) -> Result<Held, Error> {
        let timeout = self.settings.timeout;
        let mut line = self.line();
        let sent = Instant::now();
        let left = wish.wait.map(|wait| wait.saturating_sub(sent - begun));
        // A grant whose answer does not arrive leaves a lease that nobody knows of.
        // Taken for the timeout alone, it does not keep others out for long.
        let first = wish.ttl.map(|ttl| ttl.min(timeout.max(LEAST_TTL)));
        let limit = left.map(|left| left + timeout);
        let reply = line.ask(limit, &wish.words(name, first, left))?;
        let token = match reply {
            redis::Value::Int(token) => token,
            redis::Value::Nil => {
                let waited = wish.wait.unwrap_or_default();
                return Err(Error::NotGranted(format!(
                    "{name}: taken by others for {waited:?}"
                )));
            }
            other => return Err(Error::Refused(format!("LOCK was answered {other:?}"))),
        };
        let mut term = Term::new(first, timeout, sent);
        if first != wish.ttl || term.left().is_some_and(|left| left < 2 * term.every) {
            term = self.begin(name, wish, token, &mut line)?;
        }
        Ok(Held::new(self, name, token, wish, term, line))
    }

    fn line(&self) -> Line {
        Line::new(&self.client, self.settings.timeout)
    }

    /// Gives a lease its whole length, from now on: it began at an unknown time.
    fn begin(&self, name: &str, wish: &Wish, token: i64, line: &mut Line) -> Result<Term, Error> {
        let timeout = self.settings.timeout;
        let sent = Instant::now();
        let ttl = wish.ttl.unwrap_or_default();
        match line.ask(Some(timeout), &renewal(name, token, ttl)) {
            Ok(_) => Ok(Term::new(wish.ttl, timeout, sent)),
            Err(Error::NoAnswer(why)) => {
                // Spares the next one the rest of a lease that nobody will use; where
                // that fails, it ends by itself after the timeout.
                let _ = self.line().ask(Some(timeout), &unlocking(name, token));
                Err(Error::NoAnswer(why))
            }
            Err(error) => Err(Error::LockLost(format!(
                "{name}: it ended before its grant was known: {error}"
            ))),
        }
    }
}

fn renewal(name: &str, token: i64, ttl: Duration) -> [String; 5] {
    let ttl = ttl.as_millis().to_string();
    let word = str::to_owned;
    [
        word("RENEW"),
        word(name),
        token.to_string(),
        word("TTL"),
        ttl,
    ]
}

fn unlocking(name: &str, token: i64) -> [String; 3] {
    ["UNLOCK".to_owned(), name.to_owned(), token.to_string()]
}
