//! Workers that take locks: the target, and which workload they follow. Its counterpart
//! for workers that send requests is `requests`.

use crate::order::ContendOrder;
use crate::recording::tally::Counted;

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
