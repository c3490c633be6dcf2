//! The exponent of A + B N^c, and how sure it is.

use super::curve::{self, power};
use super::data::Data;
use super::{LEAST_RUNS, Sample, laws::Law};
use crate::rng::Rng;

/// Times that the blocks are drawn anew.
const DRAWS: usize = 400;

/// An exponent and its interval of about 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exponent {
    /// The exponent over all blocks.
    pub c: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The exponent, by drawing whole blocks with replacement (Efron & Tibshirani,
/// An introduction to the bootstrap, 1993): what a block has in common stays
/// together. None where nothing grows for sure: a constant fits, or B is 0 in
/// one draw of forty, and N^c with B = 0 is the same for every c.
pub fn exponent(samples: &[Sample], seed: u64) -> Option<Exponent> {
    let data = Data::new(samples)?;
    let allowed = curve::allowed(&data);
    let constant = allowed.iter().any(|fit| fit.law == Law::Constant);
    if constant || data.runs < LEAST_RUNS {
        return None;
    }
    let found = power(&data)?;
    let blocks = samples.iter();
    let mut blocks: Vec<u32> = blocks.flat_map(|s| s.runs.iter().map(|r| r.0)).collect();
    blocks.sort_unstable();
    blocks.dedup();
    let mut rng = Rng::new(seed);
    let mut drawn: Vec<f64> = (0..DRAWS)
        .filter_map(|_| power(&Data::new(&draw(samples, &blocks, &mut rng))?))
        .filter(|power| power.line.b > 0.0)
        .map(|power| power.c)
        .collect();
    let flat = DRAWS - drawn.len();
    if flat * 40 > DRAWS {
        return None;
    }
    drawn.sort_by(f64::total_cmp);
    // A draw of n blocks varies by n - 1 parts in n of what n blocks do.
    let widen = (blocks.len() as f64 / (blocks.len() as f64 - 1.0)).sqrt();
    let at = |share: f64| drawn[((drawn.len() - 1) as f64 * share).round() as usize];
    let from_c = |end: f64| found.c + widen * (end - found.c);
    Some(Exponent {
        c: found.c,
        low: from_c(at(0.025)).min(found.c),
        high: from_c(at(0.975)).max(found.c),
    })
}

/// As many blocks, each any of them; a block that is drawn twice counts as two.
fn draw(samples: &[Sample], blocks: &[u32], rng: &mut Rng) -> Vec<Sample> {
    let chosen: Vec<u32> = blocks
        .iter()
        .map(|_| blocks[rng.below(blocks.len() as u64) as usize])
        .collect();
    samples
        .iter()
        .map(|sample| Sample {
            n: sample.n,
            runs: (1..)
                .zip(&chosen)
                .filter_map(|(as_block, block)| {
                    let (_, x) = sample.runs.iter().find(|(b, _)| b == block)?;
                    Some((as_block, *x))
                })
                .collect(),
        })
        .collect()
}
