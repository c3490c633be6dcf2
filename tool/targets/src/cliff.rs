//! `cliff`: a lock whose acquisitions cost three times as much once there are more than a
//! given number of locks. It records the delays that it added, and excludes nobody. A
//! measurement of growth must find the edge.

use crate::delay::{DelayLock, Given};
use crate::table::{Entry, LockCapabilities};
use crate::{Facts, Setup, SetupError, Target, no_memory};
use jostle_model::Nanos;

/// Without an argument.
const EDGE: usize = 3_000;

/// Each acquisition, up to the edge and beyond.
const BEFORE: Nanos = Nanos::from_micros(1);
const BEYOND: Nanos = Nanos::from_micros(3);

/// Locks that cost the same, all of them.
#[derive(Debug)]
pub struct Cliff(Given);

impl Target for Cliff {
    type Lock = DelayLock;

    const ENTRY: Entry = Entry {
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

    fn prepare(setup: &Setup<'_>) -> Result<Cliff, SetupError> {
        let edge = edge(setup.argument).map_err(SetupError)?;
        let time = if setup.keys > edge { BEYOND } else { BEFORE };
        Given::new(time, setup.workers)
            .map(Cliff)
            .map_err(no_memory)
    }

    fn join(&self, worker: usize) -> Result<DelayLock, SetupError> {
        Ok(self.0.to(worker))
    }

    fn truth(&self) -> Facts {
        self.0.truth()
    }
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
