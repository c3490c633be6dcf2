//! The rows of `jostle calibrate`, one file each. tool/docs/calibrate.md has their numbers.
//!
//! A new row is a file with a [`Row`] and one line in [`ROWS`].

mod comparing;
mod contended;
mod cost;
mod delay;
mod exclusion;
mod fairness;
mod generator;
mod growth;
mod handoff;
mod server;
mod stalls;

use super::bench::{Bench, Stop};
use super::trial::Trial;

/// Something that is planted, and how it is looked for.
pub(super) struct Row {
    /// In tool/docs/calibrate.md.
    pub number: u64,
    /// What is asked of the tool.
    pub name: &'static str,
    /// What is planted.
    pub planted: &'static str,
    /// Measures and judges.
    pub trial: fn(&mut Bench) -> Result<Trial, Stop>,
}

/// Every row, in the order in which they are tried and printed.
pub(super) static ROWS: &[&Row] = &[
    &cost::ROW,
    &delay::SHORT,
    &delay::MIDDLE,
    &delay::LONG,
    &handoff::SAME,
    &handoff::CROSS,
    &contended::NEVER,
    &contended::TENTH,
    &contended::HALF,
    &contended::ALWAYS,
    &fairness::QUEUE,
    &fairness::LOTTERY,
    &fairness::TWO_TO_ONE,
    &fairness::STARVED,
    &exclusion::OFTEN,
    &exclusion::SELDOM,
    &exclusion::READERS,
    &exclusion::KILLED,
    &stalls::ROW,
    &generator::STARVED,
    &generator::PAUSED,
    &generator::THROTTLED,
    &server::SLOW,
    &server::LOSING,
    &server::DOUBLING,
    &comparing::SAME,
    &comparing::TENTH,
    &growth::CHAINS,
    &growth::CLIFF,
];

#[cfg(test)]
mod tests {
    use super::ROWS;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_says_what_it_plants_and_stands_in_order() {
        let planted: BTreeSet<_> = ROWS.iter().map(|row| row.planted).collect();
        assert_eq!(planted.len(), ROWS.len());
        assert!(
            ROWS.iter()
                .all(|row| !row.name.is_empty() && !row.planted.is_empty())
        );
        assert!(ROWS.is_sorted_by_key(|row| row.number));
    }
}
