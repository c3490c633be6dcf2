//! The closed loop: the next request as soon as the one before was answered.

use super::asking::Asking;
use crate::page::SLICES;

/// A number of requests. False if it was ended before all were made.
pub(super) fn counted(asking: &mut Asking<'_>, operations: u64) -> bool {
    for nth in 0..operations {
        let Some(made) = asking.make(nth) else {
            return false;
        };
        asking.record(&made, Some(tenth_of(nth, operations)));
    }
    true
}

/// The tenth of `operations` that number `nth` belongs to.
fn tenth_of(nth: u64, operations: u64) -> usize {
    (nth * SLICES as u64 / operations.max(1)) as usize
}
