//! Locks as they are asked for.

use crate::kept::Tell;
use crate::{LEAST_TTL, Lost};
use std::sync::Arc;
use std::time::Duration;

/// A lock as it is asked for.
#[derive(Clone)]
pub struct Wish {
    pub(crate) wait: Option<Duration>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) shared: bool,
    pub(crate) of: u16,
    pub(crate) on_lost: Option<OnLost>,
}

pub(crate) type OnLost = Arc<dyn Fn(&Lost) + Send + Sync>;

impl Wish {
    /// An exclusive lock that belongs to a connection, which is opened for it;
    /// a wait of zero is to take it or leave it.
    pub fn waiting(wait: Duration) -> Wish {
        Wish {
            wait: Some(wait),
            ..Wish::waiting_without_limit()
        }
    }

    /// An exclusive lock that belongs to a connection, however long it takes.
    pub fn waiting_without_limit() -> Wish {
        Wish {
            wait: None,
            ttl: None,
            shared: false,
            of: 1,
            on_lost: None,
        }
    }

    /// Makes it a lease, renewed at a third of this (10 ms at least), and every second.
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
    /// answer; without a lease at most 4/3 of the timeout after the daemon's last sign,
    /// and 8.5 s after the request for it.
    pub fn on_lost(mut self, call: impl Fn(&Lost) + Send + Sync + 'static) -> Wish {
        self.on_lost = Some(Arc::new(call));
        self
    }

    /// The daemon's word for such a hold.
    pub(crate) fn mode(&self) -> &'static str {
        match self {
            _ if self.shared => "shared",
            _ if self.of == 1 => "exclusive",
            _ => "place",
        }
    }

    /// LOCK without its times.
    pub(crate) fn words(&self, name: &str) -> Vec<String> {
        let mut words = vec!["LOCK".into(), name.into()];
        if self.shared {
            words.push("SHARED".into());
        }
        if self.of != 1 {
            words.extend(["OF".into(), self.of.to_string()]);
        }
        words
    }
}

/// Several exclusive locks as they are asked for.
pub struct WishAll {
    pub(crate) wait: Option<Duration>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) on_lost: Option<Tell>,
}

impl WishAll {
    /// Locks that belong to a connection, which is opened for them; a wait of zero
    /// is to take them or leave them.
    pub fn waiting(wait: Duration) -> WishAll {
        WishAll {
            wait: Some(wait),
            ..WishAll::waiting_without_limit()
        }
    }

    /// Locks that belong to a connection, however long it takes.
    pub fn waiting_without_limit() -> WishAll {
        WishAll {
            wait: None,
            ttl: None,
            on_lost: None,
        }
    }

    /// Makes them leases, renewed at a third of this (10 ms at least), and every second.
    pub fn ttl(mut self, ttl: Duration) -> WishAll {
        self.ttl = Some(ttl.max(LEAST_TTL));
        self
    }

    /// Called once with the reason, by a thread of its own, when one of the locks
    /// is lost before they are released.
    pub fn on_lost(mut self, call: impl Fn(&str) + Send + Sync + 'static) -> WishAll {
        self.on_lost = Some(Box::new(call));
        self
    }
}
