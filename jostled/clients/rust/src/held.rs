//! Locks that were granted.

use crate::Error;
use crate::kept::Kept;
use std::collections::BTreeMap;

/// A lock that is lost.
#[derive(Clone, Debug)]
pub struct Lost {
    /// The lock's name.
    pub name: String,
    /// The token with which it was held.
    pub token: i64,
    /// How it is known.
    pub reason: String,
}

/// A lock that was granted. Dropping it releases it too, and tells nobody if it was lost.
pub struct Held {
    pub(crate) name: String,
    pub(crate) token: i64,
    pub(crate) kept: Kept,
}

impl Held {
    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The fencing token: larger than that of every earlier grant.
    pub fn token(&self) -> i64 {
        self.token
    }

    /// Whether somebody else may hold the lock by now.
    pub fn is_lost(&self) -> bool {
        self.check().is_err()
    }

    /// Call it before what must not happen twice.
    ///
    /// # Errors
    /// [`Error::LockLost`] if the lock is lost.
    pub fn check(&self) -> Result<(), Error> {
        self.kept.check()
    }

    /// Gives the lock back. If it returns `Ok`, the daemon has confirmed that the
    /// lock was held from its grant to this moment.
    ///
    /// # Errors
    /// [`Error::LockLost`] unless it was held until now.
    pub fn release(mut self) -> Result<(), Error> {
        self.kept.end()
    }
}

/// Several locks that were granted in one step, and are released together; all
/// are lost as soon as one is. Dropping them releases them too, and tells nobody
/// if they were lost.
pub struct HeldAll {
    pub(crate) tokens: BTreeMap<String, i64>,
    pub(crate) kept: Kept,
}

impl HeldAll {
    /// The fencing token of each name, larger than those of every earlier grant.
    pub fn tokens(&self) -> &BTreeMap<String, i64> {
        &self.tokens
    }

    /// Whether somebody else may hold one of the locks by now.
    pub fn is_lost(&self) -> bool {
        self.check().is_err()
    }

    /// Call it before what must not happen twice.
    ///
    /// # Errors
    /// [`Error::LockLost`] if one of the locks is lost.
    pub fn check(&self) -> Result<(), Error> {
        self.kept.check()
    }

    /// Gives the locks back, as [`Held::release`] does.
    ///
    /// # Errors
    /// [`Error::LockLost`] unless all were held until now.
    pub fn release(mut self) -> Result<(), Error> {
        self.kept.end()
    }
}
