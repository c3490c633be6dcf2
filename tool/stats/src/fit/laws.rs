//! The curves: t = A + B f(N), and its fit to one figure for each N.
//!
//! Costs differ by a share of themselves, so that a residual counts by its
//! share of the fitted curve: weights 1 / fitted^2, found in four rounds
//! (iteratively reweighted least squares; Green, J. R. Stat. Soc. B 46, 1984).
//! A and B are never negative: nothing costs less than nothing.

/// How many times the weights are taken anew.
const ROUNDS: usize = 4;

/// How a cost may grow with N.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Law {
    /// Not at all.
    Constant,
    /// log N
    Log,
    /// sqrt N
    Sqrt,
    /// N
    Linear,
    /// N log N
    LogLinear,
    /// N^2
    Square,
}

impl Law {
    /// The slowest first.
    pub const ALL: [Law; 6] = [
        Law::Constant,
        Law::Log,
        Law::Sqrt,
        Law::Linear,
        Law::LogLinear,
        Law::Square,
    ];

    /// As it stands in files and sentences.
    pub fn name(self) -> &'static str {
        match self {
            Law::Constant => "1",
            Law::Log => "log N",
            Law::Sqrt => "sqrt N",
            Law::Linear => "N",
            Law::LogLinear => "N log N",
            Law::Square => "N^2",
        }
    }

    /// By its name in files.
    pub fn named(name: &str) -> Option<Law> {
        Law::ALL.into_iter().find(|law| law.name() == name)
    }

    /// f(N), for N >= 1.
    pub fn at(self, n: f64) -> f64 {
        match self {
            Law::Constant => 1.0,
            Law::Log => n.ln(),
            Law::Sqrt => n.sqrt(),
            Law::Linear => n,
            Law::LogLinear => n * n.ln(),
            Law::Square => n * n,
        }
    }

    /// A, and B where there is one.
    pub fn parameters(self) -> usize {
        match self {
            Law::Constant => 1,
            _ => 2,
        }
    }
}

/// t = a + b f(N).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// A: what is there without any N.
    pub a: f64,
    /// B: what each f(N) adds.
    pub b: f64,
}

/// A and B of `t` over `f`, both at least 0. None without a value, or where
/// nothing positive fits.
pub fn fit(f: &[f64], t: &[f64]) -> Option<Line> {
    // In units of the largest f, so that N^2 loses no digits.
    let scale = f.iter().copied().fold(0.0, f64::max);
    if t.is_empty() || scale <= 0.0 || !scale.is_finite() {
        return None;
    }
    let f: Vec<f64> = f.iter().map(|f| f / scale).collect();
    let mut fitted = t.to_vec();
    let mut line = Line { a: 0.0, b: 0.0 };
    for _ in 0..=ROUNDS {
        let weights: Vec<f64> = fitted.iter().map(|t| 1.0 / (t * t)).collect();
        line = weighted(&f, t, &weights)?;
        let positive = |t: f64| t.is_finite() && t > 0.0;
        fitted = f.iter().map(|f| line.a + line.b * f).collect();
        if !fitted.iter().all(|t| positive(*t)) {
            return None;
        }
    }
    line.b /= scale;
    Some(line)
}

/// Least squares under a, b >= 0: of the free optimum and the two on the edges
/// the best that is allowed.
fn weighted(f: &[f64], t: &[f64], w: &[f64]) -> Option<Line> {
    let sum = |term: &dyn Fn(usize) -> f64| (0..t.len()).map(term).sum::<f64>();
    let (w1, wf, wff) = (
        sum(&|i| w[i]),
        sum(&|i| w[i] * f[i]),
        sum(&|i| w[i] * f[i] * f[i]),
    );
    let (wt, wft) = (sum(&|i| w[i] * t[i]), sum(&|i| w[i] * f[i] * t[i]));
    let free = w1 * wff - wf * wf;
    let candidates = [
        Line {
            a: (wff * wt - wf * wft) / free,
            b: (w1 * wft - wf * wt) / free,
        },
        Line { a: wt / w1, b: 0.0 },
        Line {
            a: 0.0,
            b: wft / wff,
        },
    ];
    let squares = |line: &Line| sum(&|i| w[i] * (t[i] - line.a - line.b * f[i]).powi(2));
    candidates
        .into_iter()
        // If all f are alike, the first line has no meaning.
        .filter(|line| free > 1e-12 * w1 * wff || line.a == 0.0 || line.b == 0.0)
        .filter(|line| line.a >= 0.0 && line.b >= 0.0)
        .min_by(|one, other| squares(one).total_cmp(&squares(other)))
}

/// A law's fit.
pub(crate) fn of_law(law: Law, n: &[f64], t: &[f64]) -> Option<Line> {
    let f: Vec<f64> = n.iter().map(|n| law.at(*n)).collect();
    let line = fit(&f, t)?;
    Some(match law {
        // One level, not two of them.
        Law::Constant => Line {
            a: line.a + line.b,
            b: 0.0,
        },
        _ => line,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: [f64; 7] = [1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6];

    #[test]
    fn every_law_finds_itself() {
        for law in Law::ALL {
            let t: Vec<f64> = N.iter().map(|n| 5.0 + 2.0 * law.at(*n)).collect();
            let line = of_law(law, &N, &t).unwrap();
            match law {
                Law::Constant => assert!((line.a - 7.0).abs() < 1e-9 && line.b == 0.0),
                _ => {
                    assert!((line.b / 2.0 - 1.0).abs() < 1e-6, "{law:?} {line:?}");
                    assert!((line.a - 5.0).abs() < 0.1, "{law:?} {line:?}");
                }
            }
        }
    }

    #[test]
    fn nothing_costs_less_than_nothing() {
        // A falling cost: B would be negative.
        let falling: Vec<f64> = N.iter().map(|n| 1e6 / n).collect();
        let line = of_law(Law::Linear, &N, &falling).unwrap();
        assert!(line.a >= 0.0 && line.b == 0.0, "{line:?}");
        // N - 500 has a negative A.
        let late: Vec<f64> = N.iter().map(|n| n - 500.0).collect();
        let line = of_law(Law::Linear, &N, &late).unwrap();
        assert!(line.a == 0.0 && line.b > 0.0, "{line:?}");
        assert_eq!(fit(&[], &[]), None);
    }

    #[test]
    fn a_residual_counts_by_its_share() {
        // One of the small figures is off by a tenth, as is one of the large:
        // by their size alone the small ones would have no say.
        let f = [1.0, 2.0, 1000.0, 2000.0];
        let line = fit(&f, &[1.1, 2.0, 1000.0, 2200.0]).unwrap();
        assert!(line.a > 0.02 && line.a < 0.2, "{line:?}");
    }
}
