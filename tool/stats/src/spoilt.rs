//! Blocks of runs that other programs or the hypervisor spoilt, and the choice of the runs
//! that represent a point with spoilt blocks.
//!
//! A block counts as a whole, so that its runs stay pairs. The choice depends on the CPU
//! time of others ([`crate::harm::is_spoilt`]), never on the figure. All runs stay in the
//! file.

use crate::checks::selection;
use crate::intervals::estimate;
use jostle_model::record::{Reason, Run};
use std::collections::BTreeSet;

/// Clean blocks that can stand for all: an interval needs as many.
pub const ENOUGH: usize = 6;

/// The blocks with a run that is marked.
pub fn blocks(runs: &[Run]) -> BTreeSet<u32> {
    let spoilt = runs.iter().filter(|point| point.spoilt);
    spoilt.map(|run| run.block).collect()
}

/// Chooses a point's runs in clean blocks, and adds a note about the choice.
pub fn choose<'a>(runs: Vec<&'a Run>, spoilt: &BTreeSet<u32>) -> (Vec<&'a Run>, Option<Reason>) {
    let is_clean = |run: &&Run| !spoilt.contains(&run.block);
    let clean: Vec<&Run> = runs.iter().copied().filter(is_clean).collect();
    if clean.len() == runs.len() {
        return (runs, None);
    }
    let bad = runs.len() - clean.len();
    if runs.len() < ENOUGH {
        // Too few runs for a choice. The check `neighbours` judges the harm separately.
        return (runs, None);
    }
    if clean.len() < ENOUGH {
        let reason = selection::too_few(clean.len(), runs.len());
        return (runs, Some(reason));
    }
    let reason = moved(&runs, &clean)
        .map(|(all, without)| selection::moved(clean.len(), bad, all / without));
    (clean, reason)
}

/// The median of all runs and that of the clean ones, where it lies outside of these.
fn moved(all: &[&Run], clean: &[&Run]) -> Option<(f64, f64)> {
    let rates =
        |runs: &[&Run]| -> Vec<f64> { runs.iter().map(|run| run.throughput_per_s).collect() };
    let all = estimate(&rates(all))?.median;
    let clean = estimate(&rates(clean))?;
    let outside = all < clean.low || all > clean.high;
    outside.then_some((all, clean.median))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs with these rates, one a block; the marked ones were spoilt.
    fn found(rates: &[(f64, bool)]) -> (usize, Option<String>) {
        let points: Vec<Run> = rates
            .iter()
            .zip(1..)
            .map(|((rate, spoilt), block)| Run {
                block,
                throughput_per_s: *rate,
                spoilt: *spoilt,
                ..Run::default()
            })
            .collect();
        let (runs, reason) = choose(points.iter().collect(), &blocks(&points));
        (runs.len(), reason.map(|reason| reason.text))
    }

    #[test]
    fn six_clean_blocks_stand_for_all_and_fewer_do_not() {
        let clean = (100.0, false);
        assert_eq!(found(&[clean; 6]), (6, None));
        let bad = (101.0, true);
        assert_eq!(
            found(&[clean, clean, clean, bad, clean, clean, clean]),
            (6, None)
        );
        let (runs, said) = found(&[clean, clean, bad, clean, clean, clean]);
        assert_eq!(runs, 6);
        assert!(said.unwrap().contains("in 1 of 6 blocks"));
    }

    #[test]
    fn a_choice_that_moves_the_figure_is_told() {
        let mut rates = vec![(100.0, false); 6];
        rates.extend([(50.0, true); 7]);
        let (runs, said) = found(&rates);
        assert_eq!(runs, 6);
        assert!(said.unwrap().contains("0.50 times"));
    }

    fn sysv_of(runs: &[Run]) -> Vec<&Run> {
        runs.iter().filter(|p| p.target == "sysv").collect()
    }

    #[test]
    fn a_block_is_left_out_as_a_whole() {
        let point = |target: &str, block, spoilt| Run {
            target: target.to_owned(),
            block,
            spoilt,
            ..Run::default()
        };
        let points = [
            point("flock", 1, true),
            point("sysv", 1, false),
            point("sysv", 2, false),
        ];
        let spoilt = blocks(&points);
        let sysv = sysv_of(&points);
        // With so few blocks none is left out, and no note is added.
        assert_eq!(choose(sysv, &spoilt), (sysv_of(&points), None));
        assert_eq!(spoilt, BTreeSet::from([1]));
    }
}
