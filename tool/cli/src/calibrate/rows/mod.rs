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

use super::bench::Attempt;

/// A question about the tool, and what is planted to answer it.
pub(super) struct Row {
    /// In tool/docs/calibrate.md.
    pub number: u64,
    /// What is asked of the tool.
    pub name: &'static str,
    /// What is planted, and what measures and judges it.
    pub cases: &'static [(&'static str, Attempt)],
}

/// Every row, in the order in which they are tried and printed.
pub(super) static ROWS: &[&Row] = &[
    &cost::ROW,
    &delay::ROW,
    &handoff::ROW,
    &contended::ROW,
    &fairness::ROW,
    &exclusion::ROW,
    &stalls::ROW,
    &generator::ROW,
    &server::SLOW,
    &server::MISCOUNTING,
    &comparing::ROW,
    &growth::ROW,
];

#[cfg(test)]
mod tests {
    use super::ROWS;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_says_what_it_plants_and_stands_in_order() {
        let cases = || ROWS.iter().flat_map(|row| row.cases);
        let planted: BTreeSet<_> = cases().map(|(planted, _)| planted).collect();
        assert_eq!(planted.len(), cases().count());
        assert!(cases().all(|(planted, _)| !planted.is_empty()));
        assert!(ROWS.iter().all(|row| !row.name.is_empty()));
        assert!(ROWS.is_sorted_by_key(|row| row.number));
    }
}
