//! Confidence bounds of a probability from a number of trials.

use crate::beta::regularized;

/// The exact two-sided interval of a share (Clopper & Pearson, Biometrika 26,
/// 1934): the shares under which so many, or more, and so many, or fewer, have
/// 2.5 %.
pub fn bounds(count: u64, trials: u64) -> [f64; 2] {
    let (k, n) = (count as f64, trials as f64);
    // P(at least k of n) is I_p(k, n - k + 1), growing with p.
    let at_least = |p: f64, k: f64| regularized(p, k, n - k + 1.0);
    let low = match count {
        0 => 0.0,
        _ => root(|p| at_least(p, k) - 0.025),
    };
    let high = match count == trials {
        true => 1.0,
        false => root(|p| at_least(p, k + 1.0) - 0.975),
    };
    [low, high]
}

/// Where a growing function passes 0, between 0 and 1.
fn root(f: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        match f(middle) < 0.0 {
            true => low = middle,
            false => high = middle,
        }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::bounds;

    #[test]
    fn the_bounds_are_the_tabulated_ones() {
        let table = [
            (0, 200, 0.0, 0.0183),
            (5, 100, 0.0164, 0.1128),
            (50, 100, 0.3983, 0.6017),
            (200, 200, 0.9817, 1.0),
        ];
        for (count, trials, low, high) in table {
            let found = bounds(count, trials);
            let near = (found[0] - low).abs() < 2e-4 && (found[1] - high).abs() < 2e-4;
            assert!(near, "{count} of {trials}: {found:?}");
        }
    }
}
