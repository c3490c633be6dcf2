//! The processes of a run: who is there, and how the others ended.

use jostle_sys::process::{self, Ended};
use std::collections::BTreeMap;
use std::ops::Range;

/// The children, with how they ended.
#[derive(Default)]
pub(crate) struct Children {
    /// The workers that each process still there carries; the canary has none.
    pub(super) alive: BTreeMap<u32, Range<usize>>,
    /// How the others ended.
    pub ended: Vec<(Ended, Range<usize>)>,
    /// Workers that we killed when the run was over.
    pub killed: Vec<usize>,
    /// How many of them had not come to their end.
    pub stuck: u64,
    /// Children that carried no workers, a launched server perhaps, and how they ended.
    pub others: Vec<Ended>,
    /// Looks at which a worker was found to have been stopped or continued.
    pub halts: u64,
}

impl Children {
    pub(in crate::keeper) fn reap(&mut self) {
        while let Some(pid) = process::halted() {
            self.halts += u64::from(self.alive.contains_key(&pid));
        }
        while let Some(ended) = process::reap() {
            match self.alive.remove(&ended.pid) {
                Some(workers) => self.ended.push((ended, workers)),
                None => self.others.push(ended),
            }
        }
    }

    pub(super) fn kill_all(&self) {
        self.alive.keys().for_each(|pid| process::kill(*pid));
    }
}
