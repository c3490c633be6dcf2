//! Figures over repeats, what is required of them, and how a row is printed.

/// Median, lowest and highest over the repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    /// Lowest.
    pub low: f64,
    /// Highest.
    pub high: f64,
}

impl Spread {
    /// None without values.
    pub(super) fn of(values: &[f64]) -> Option<Spread> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let (left, right) = ((sorted.len() - 1) / 2, sorted.len() / 2);
        Some(Spread {
            median: (sorted[left] + sorted[right]) / 2.0,
            low,
            high,
        })
    }
}

/// ours / theirs of each repeat in which theirs is not zero.
pub(super) fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    let pairs = ours.iter().zip(theirs);
    pairs
        .filter(|(_, theirs)| **theirs > 0.0)
        .map(|(ours, theirs)| ours / theirs)
        .collect()
}

/// What a figure must be; medians are judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Requirement {
    /// The ratio to the peer, of what should be little.
    RatioAtMost(f64),
    /// The ratio to the peer, of what is to be the same.
    RatioWithin(f64, f64),
    /// Nothing: printed for comparison.
    Shown,
}

impl Requirement {
    /// Whether it is met; None where nothing is required. What could not be
    /// compared is missed.
    pub(super) fn met(self, ratio: Option<Spread>) -> Option<bool> {
        let within = |range: std::ops::RangeInclusive<f64>| {
            ratio.is_some_and(|spread| range.contains(&spread.median))
        };
        match self {
            Requirement::RatioAtMost(most) => Some(within(f64::MIN..=most)),
            Requirement::RatioWithin(least, most) => Some(within(least..=most)),
            Requirement::Shown => None,
        }
    }

    fn text(self) -> String {
        match self {
            Requirement::RatioAtMost(most) => format!("ratio <= {most}"),
            Requirement::RatioWithin(least, most) => format!("ratio {least}-{most}"),
            Requirement::Shown => String::new(),
        }
    }
}

/// The line above the rows.
pub(super) fn heading() -> String {
    columns(
        "",
        ["jostle", "peer", "ratio", "requirement", ""].map(str::to_owned),
    )
}

/// One figure: what, jostle's, the peer's, their ratio, what is required, and
/// whether it is met.
pub(super) fn row(
    what: &str,
    figures: [Option<Spread>; 3],
    requirement: Requirement,
    met: Option<bool>,
) -> String {
    let [jostle, peer, ratio] = figures.map(|figure| figure.map_or_else(String::new, spread));
    let verdict = match met {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "",
    };
    columns(
        what,
        [jostle, peer, ratio, requirement.text(), verdict.to_owned()],
    )
}

fn columns(what: &str, [jostle, peer, ratio, requirement, verdict]: [String; 5]) -> String {
    format!("{what:<36} {jostle:>23} {peer:>23} {ratio:>21}  {requirement:<14} {verdict}")
        .trim_end()
        .to_owned()
}

/// `median [lowest-highest]`.
pub(super) fn spread(figure: Spread) -> String {
    let Spread { median, low, high } = figure;
    format!("{} [{}-{}]", number(median), number(low), number(high))
}

/// Three digits or so: `5.05M`, `20.1k`, `943`, `1.04`, `0.180`.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 999_950.0 => format!("{:.2}M", value / 1e6),
        v if v >= 9_999.5 => format!("{:.1}k", value / 1e3),
        v if v >= 99.95 || v.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.9995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value_or_between_the_middle_two() {
        let spread = |values: &[f64]| Spread::of(values).map(|s| (s.median, s.low, s.high));
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some((2.0, 1.0, 3.0)));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), Some((2.5, 1.0, 4.0)));
        assert_eq!(spread(&[5.0]), Some((5.0, 5.0, 5.0)));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn ratios_are_taken_within_a_repeat() {
        assert_eq!(ratios(&[1.0, 2.0], &[2.0, 1.0]), [0.5, 2.0]);
        assert_eq!(ratios(&[1.0, 2.0], &[0.0, 1.0]), [2.0]);
        assert!(ratios(&[1.0], &[]).is_empty());
    }

    #[test]
    fn requirements_judge_medians() {
        let s = |values: &[f64]| Spread::of(values);
        let (low, high) = (s(&[0.9, 0.9, 9.0]), s(&[0.1, 1.1, 1.2]));
        let table = [
            (Requirement::RatioAtMost(1.0), low, Some(true)),
            (Requirement::RatioAtMost(1.0), high, Some(false)),
            (Requirement::RatioAtMost(1.0), None, Some(false)),
            (Requirement::RatioWithin(0.9, 1.1), high, Some(true)),
            (Requirement::RatioWithin(1.0, 1.3), low, Some(false)),
            (Requirement::RatioWithin(0.95, 1.05), high, Some(false)),
            (Requirement::Shown, low, None),
        ];
        for (requirement, ratio, expected) in table {
            assert_eq!(requirement.met(ratio), expected, "{requirement:?}");
        }
    }

    #[test]
    fn numbers_keep_about_three_digits() {
        for (value, text) in [
            (5_046_120.0, "5.05M"),
            (999_960.0, "1.00M"),
            (20_090.0, "20.1k"),
            (9_999.9, "10.0k"),
            (943.2, "943"),
            (99.97, "100"),
            (14.25, "14.2"),
            (1.0412, "1.04"),
            (0.1804, "0.180"),
            (0.0, "0"),
            (3.0, "3"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_row_stands_under_its_heading() {
        let figure = Spread::of(&[0.96]);
        let row = row(
            "pairs/s",
            [figure; 3],
            Requirement::RatioAtMost(0.95),
            Some(true),
        );
        assert_eq!(row.find("ratio"), heading().find("requirement"));
        assert!(row.ends_with("ratio <= 0.95  met"), "{row}");
    }
}
