//! Workers that take locks: the target, and which workload they follow. Its counterpart
//! for workers that send requests is `requests`.

use crate::order::ContendOrder;
use crate::recording::tally::Counted;
use jostle_sys::signal;
use jostle_targets::CallError;

/// A lock, and what its workers do with it.
#[derive(Debug)]
pub(crate) struct Locking<'a, T> {
    /// The lock.
    pub target: T,
    /// What is done.
    pub does: Does<'a>,
}

/// By workload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Does<'a> {
    /// `contend`.
    Contend(&'a ContendOrder),
    /// `stream` or `hold`.
    Counted(Counted<'a>),
}

/// Whether a release was answered; false if the keeper ended the wait for the answer of a
/// server, which the worker then leaves. A lock of the user's own may return EINTR by
/// itself, which is an error.
///
/// # Errors
/// The lock's call that failed.
#[inline(always)]
pub(crate) fn is_answered(released: Result<(), CallError>) -> Result<bool, CallError> {
    match released {
        Ok(()) => Ok(true),
        Err(error) if error.is_interrupted() && signal::interrupted() => Ok(false),
        Err(error) => Err(error),
    }
}
