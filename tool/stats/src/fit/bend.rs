//! Where a curve that follows no law changes its course.

use super::curve::{self, NOT_TOLD_APART, REJECTED_BELOW};
use super::data::Data;

/// Fewest N that a part needs for laws of its own.
pub(crate) const LEAST_OF_A_PART: usize = 5;

/// More of them would be a list of points, not a finding.
const MOST: usize = 3;

/// Somewhere between two neighbouring N, or between two further apart where
/// the data cannot say between which.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Between {
    /// Positions among the N: after this one
    pub after: usize,
    /// and before this one.
    pub before: usize,
}

/// The bends, ascending. Empty where a law fits, or a power does.
pub fn bends(data: &Data) -> Vec<Between> {
    let mut found = Vec::new();
    search(data, 0, &mut found);
    found.sort_by_key(|bend: &Between| bend.after);
    found
}

/// The parts between bends that can be told from each other and are long
/// enough for laws of their own, as ranges of positions.
pub fn parts(len: usize, bends: &[Between]) -> Vec<std::ops::Range<usize>> {
    let starts = std::iter::once(0).chain(bends.iter().map(|bend| bend.before));
    let ends = bends.iter().map(|bend| bend.after + 1).chain([len]);
    starts
        .zip(ends)
        .map(|(start, end)| start..end)
        .filter(|part| part.len() >= LEAST_OF_A_PART)
        .collect()
}

fn search(data: &Data, offset: usize, found: &mut Vec<Between>) {
    let smooth = !curve::allowed(data).is_empty()
        || curve::power(data).is_some_and(|power| power.p >= REJECTED_BELOW);
    if smooth || data.values() < LEAST_OF_A_PART || found.len() == MOST {
        return;
    }
    let Some((split, between)) = split(data) else {
        return;
    };
    found.push(Between {
        after: between.after + offset,
        before: between.before + offset,
    });
    for part in [0..split, split..data.values()] {
        search(&data.part(part.clone()), offset + part.start, found);
    }
}

/// The cut that leaves the best two curves, and the range of cuts that are not
/// told apart from it.
fn split(data: &Data) -> Option<(usize, Between)> {
    let criteria: Vec<f64> = (1..data.values())
        .map(|cut| criterion(&data.part(0..cut)) + criterion(&data.part(cut..data.values())))
        .collect();
    let least = criteria.iter().copied().fold(f64::INFINITY, f64::min);
    let near = |criterion: &f64| *criterion <= least + NOT_TOLD_APART;
    let first = criteria.iter().position(near)?;
    let last = criteria.iter().rposition(near)?;
    let best = criteria.iter().position(|criterion| *criterion == least)?;
    Some((
        best + 1,
        Between {
            after: first,
            before: last + 1,
        },
    ))
}

/// The criterion of the best curve that so many points can carry.
fn criterion(part: &Data) -> f64 {
    let laws = curve::all(part).into_iter();
    let laws = laws.filter(|fit| fit.law.parameters() <= part.values());
    let laws = laws.map(|fit| fit.criterion());
    let power = (part.values() >= 3).then(|| curve::power(part)).flatten();
    let power = power.map(|power| power.chi_square + 6.0);
    laws.chain(power).fold(f64::INFINITY, f64::min)
}
