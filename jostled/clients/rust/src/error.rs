//! Errors of the client.

use std::fmt;

/// An error of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Somebody else had the lock for the whole wait.
    NotGranted(String),
    /// The daemon did not answer in time, or could not be reached. The connection
    /// is closed, which takes the request out of the line. A lock that was granted
    /// in that moment ends with the connection; a lease, after four timeouts at most,
    /// since it gets its length only when its grant is known.
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
