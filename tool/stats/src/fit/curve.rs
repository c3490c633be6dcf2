//! The curves that the data allow, and those they cannot tell apart.

use super::data::Data;
use super::laws::{self, Law, Line};
use crate::beta::f_upper;

/// A curve that the data would miss by so much with less than this probability
/// is ruled out.
pub(crate) const REJECTED_BELOW: f64 = 0.01;

/// Curves whose information criterion is within this of the best are not told
/// apart (Burnham & Anderson, Model selection, 2002, section 2.6: "considerably
/// less support" begins at 4 to 7).
pub(crate) const NOT_TOLD_APART: f64 = 6.0;

/// A law, fitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fitted {
    /// The fitted law.
    pub law: Law,
    /// Its parameters.
    pub line: Line,
    /// See `Data::chi_square`.
    pub chi_square: f64,
    /// Probability of so bad a fit if the law were true: lack of fit against
    /// the error between blocks, by Fisher's F.
    pub p: f64,
}

impl Fitted {
    /// Badness of fit, and two for each parameter (Akaike 1974), with the
    /// error taken from the blocks and not from the residuals: with six points
    /// residuals say next to nothing of it, and a criterion that estimates it
    /// from them lets no curve with two parameters win over a constant.
    pub(crate) fn criterion(&self) -> f64 {
        self.chi_square + 2.0 * self.law.parameters() as f64
    }
}

/// Probability of so bad a fit by chance; with no degrees of freedom left any
/// curve fits.
pub(crate) fn lack_of_fit(chi_square: f64, data: &Data, parameters: usize) -> f64 {
    let free = data.values() as f64 - parameters as f64;
    match free > 0.0 {
        true => f_upper(chi_square / free, free, data.degrees),
        false => 1.0,
    }
}

/// Every law's fit. One may come out as the constant, with B = 0; as long as the
/// constant fits, any law with a B that is small enough does.
pub fn all(data: &Data) -> Vec<Fitted> {
    Law::ALL
        .into_iter()
        .filter_map(|law| {
            let line = laws::of_law(law, &data.n, &data.t)?;
            let chi_square = data.chi_square(|n| line.a + line.b * law.at(n));
            let p = lack_of_fit(chi_square, data, law.parameters());
            Some(Fitted {
                law,
                line,
                chi_square,
                p,
            })
        })
        .collect()
}

/// Those that the data allow and cannot tell apart; empty where they rule out
/// every one.
pub fn allowed(data: &Data) -> Vec<Fitted> {
    let mut fits = all(data);
    fits.retain(|fit| fit.p >= REJECTED_BELOW);
    let least = fits.iter().map(Fitted::criterion).fold(f64::MAX, f64::min);
    fits.retain(|fit| fit.criterion() <= least + NOT_TOLD_APART);
    fits
}

/// t = a + b N^c.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Power {
    /// Its line.
    pub line: Line,
    /// The exponent.
    pub c: f64,
    /// See `Data::chi_square`.
    pub chi_square: f64,
    /// As of a law.
    pub p: f64,
}

/// Exponents that are tried: a fall down to 1 / N^2, growth up to N^3.
const LEAST_EXPONENT: f64 = -2.0;
const GREATEST_EXPONENT: f64 = 3.0;

fn at_exponent(data: &Data, c: f64) -> Option<Power> {
    let f: Vec<f64> = data.n.iter().map(|n| n.powf(c)).collect();
    let line = laws::fit(&f, &data.t)?;
    let chi_square = data.chi_square(|n| line.a + line.b * n.powf(c));
    Some(Power {
        line,
        c,
        chi_square,
        p: lack_of_fit(chi_square, data, 3),
    })
}

/// The best exponent: the best of a coarse grid, then a finer one around it,
/// and so on; the criterion has a dent at 0, on either side of which a plain
/// search would stay.
pub fn power(data: &Data) -> Option<Power> {
    let best = |from: f64, to: f64, steps: u32| {
        let at = |step: u32| from + (to - from) * f64::from(step) / f64::from(steps);
        let tried = (0..=steps).map(at).filter(|c| c.abs() > 1e-3);
        tried
            .filter_map(|c| at_exponent(data, c))
            .min_by(|one, other| one.chi_square.total_cmp(&other.chi_square))
    };
    let mut width = 0.1;
    let mut found = best(LEAST_EXPONENT, GREATEST_EXPONENT, 50)?;
    for _ in 0..3 {
        let (from, to) = (found.c - width, found.c + width);
        let finer = best(from.max(LEAST_EXPONENT), to.min(GREATEST_EXPONENT), 10)?;
        if finer.chi_square <= found.chi_square {
            found = finer;
        }
        width /= 5.0;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six levels on a line, with an error that makes the constant miss them by
    /// this chi-square.
    fn line(missed_by: f64) -> Data {
        let n = vec![10.0, 20.0, 50.0, 100.0, 300.0, 1000.0];
        let mut data = Data {
            t: n.iter().map(|n| 100.0 + 0.02 * n).collect(),
            variance: vec![1.0; n.len()],
            n,
            degrees: 30.0,
            runs: 6,
        };
        let constant = all(&data)[0].chi_square;
        data.variance.fill(constant / missed_by);
        data
    }

    fn names(data: &Data) -> Vec<&'static str> {
        allowed(data).iter().map(|fit| fit.law.name()).collect()
    }

    #[test]
    fn what_fits_worse_by_more_than_the_criterion_allows_is_left_out() {
        // A chi-square of 7 is 7 - 2 more than the line's with its parameter.
        assert!(names(&line(7.0)).contains(&"1"));
        // 12 with five degrees has p = 6 %: not ruled out by itself.
        let twelve = line(12.0);
        assert!(all(&twelve)[0].p > 0.05);
        assert!(!names(&twelve).contains(&"1"));
        assert!(names(&twelve).contains(&"N"));
    }

    #[test]
    fn what_cannot_be_is_ruled_out_before_any_choice() {
        // Up and down: nothing fits, and the least bad is no finding.
        let mut data = line(1.0);
        data.t = vec![100.0, 200.0, 100.0, 200.0, 100.0, 200.0];
        data.variance.fill(1e-4);
        assert_eq!(names(&data), [""; 0]);
        assert!(power(&data).unwrap().p < REJECTED_BELOW);
    }

    #[test]
    fn the_exponent_of_a_power_is_found() {
        for c in [-1.0, -0.3, 0.25, 0.7, 1.0, 1.6, 2.4] {
            let mut data = line(1.0);
            data.t = data.n.iter().map(|n| 10.0 + 3.0 * n.powf(c)).collect();
            data.variance.fill(1e-4);
            let found = power(&data).unwrap();
            assert!((found.c - c).abs() < 0.06, "{c}: {found:?}");
        }
    }
}
