//! `cliff`: a lock whose acquisitions cost three times as much once there are more than a
//! given number of locks. It records the delays that it added, and excludes nobody. A
//! measurement of growth must find the edge.

use crate::Setup;
use crate::delay::{CLIFF, Timed};
use crate::table::{Entry, LockCapabilities};
use jostle_model::Nanos;

/// Locks that cost the same, all of them.
pub type Cliff = Timed<CLIFF>;

/// Its line in the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "cliff",
    argument: Some("LOCKS"),
    check_argument: |argument| edge(argument).map(drop),
    summary: "each acquisition takes 1 us, or 3 us where there are more than LOCKS (default 3000)",
    details: "Spins for that time, so that the cost has one edge and is constant on either \
              side of it: `jostle hold` must find the bend. It notes the time of its own spin \
              as `delay` does.",
    lock: LockCapabilities::GRANTS_ALL,
    ..Entry::PLAIN
};

/// Without an argument.
const EDGE: usize = 3_000;

/// Of each acquisition, up to the edge or beyond.
pub(crate) fn time(setup: &Setup<'_>) -> Result<Nanos, String> {
    let is_beyond = setup.keys > edge(setup.argument)?;
    Ok(Nanos::from_micros(if is_beyond { 3 } else { 1 }))
}

fn edge(argument: Option<&str>) -> Result<usize, String> {
    match argument.map(str::parse) {
        None => Ok(EDGE),
        Some(Ok(edge)) if edge > 0 => Ok(edge),
        Some(_) => Err("write a number of locks from 1 on".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::edge;

    #[test]
    fn the_edge_is_a_number_of_locks() {
        assert_eq!(edge(None), Ok(3_000));
        assert_eq!(edge(Some("70")), Ok(70));
        for sad in ["", "0", "-1", "far"] {
            assert!(edge(Some(sad)).is_err(), "{sad}");
        }
    }
}
