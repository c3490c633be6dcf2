//! One trial of a row, and the words that rows share.

use jostle_model::record::{Reason, Run};
use jostle_report::ResultSet;
use jostle_report::format::significant;
use jostle_stats::intervals::median;

/// The outcome of a trial.
#[derive(Clone, Debug, Default)]
pub(super) struct Trial {
    /// As the specimen recorded it.
    pub truth: String,
    /// Jostle's finding.
    pub found: String,
    /// Its finding without the planted fault.
    pub control: String,
    /// Whether these agree.
    pub said: Agreement,
}

/// Whether jostle told the truth.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Agreement {
    /// It did.
    #[default]
    Agrees,
    /// It did not: what is wrong.
    Differs(String),
    /// Nothing to judge by: why.
    CannotTell(String),
}

impl Trial {
    /// Without anything to show.
    pub(super) fn cannot_tell(why: String) -> Trial {
        Trial {
            said: Agreement::CannotTell(why),
            ..Trial::default()
        }
    }
}

/// A disagreement, with its reason.
pub(super) fn differs(what: impl Into<String>) -> Agreement {
    Agreement::Differs(what.into())
}

/// Why there is nothing to judge by.
pub(super) fn cannot_tell(why: impl Into<String>) -> Agreement {
    Agreement::CannotTell(why.into())
}

/// The first of these that is wrong; agreement if none is.
pub(super) fn all_of<const N: usize>(claims: [(bool, &str); N]) -> Agreement {
    match claims.iter().find(|(holds, _)| !holds) {
        None => Agreement::Agrees,
        Some((_, what)) => Agreement::Differs((*what).to_owned()),
    }
}

/// The runs of one target.
pub(super) fn runs_of<'a>(set: &'a ResultSet, target: &str) -> Vec<&'a Run> {
    let runs = set.runs.iter();
    runs.filter(|run| run.target == target).collect()
}

/// A check's reason about a run.
pub(super) fn reason<'a>(run: &'a Run, check: &str) -> Option<&'a Reason> {
    let mut reasons = run.verdict.reasons.iter();
    reasons.find(|reason| reason.check == check)
}

/// A figure that the specimen noted; 0 where it noted none.
pub(super) fn noted(run: &Run, name: &str) -> f64 {
    run.around.truth.get(name).copied().unwrap_or(0.0)
}

/// Summed over the runs.
pub(super) fn total(runs: &[&Run], figure: impl Fn(&Run) -> f64) -> f64 {
    runs.iter().map(|run| figure(run)).sum()
}

/// Unit and its size for so many nanoseconds.
fn unit(nanos: f64) -> (f64, &'static str) {
    match nanos.abs() {
        ns if ns < 1e3 => (1.0, "ns"),
        ns if ns < 1e6 => (1e3, "us"),
        ns if ns < 1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

fn digits(nanos: f64, scale: f64) -> String {
    significant(nanos / scale, if scale == 1.0 { 2 } else { 4 })
}

/// Nanoseconds with four digits in a unit that keeps them short.
pub(super) fn span(nanos: f64) -> String {
    let (scale, unit) = unit(nanos);
    format!("{} {unit}", digits(nanos, scale))
}

/// The median, and the lowest and highest: `20.05 us (20.04 to 20.07)`.
pub(super) fn spans(values: &[f64]) -> String {
    let Some(middle) = median(values) else {
        return "nothing".to_owned();
    };
    let (scale, _) = unit(middle);
    let low = digits(values.iter().copied().fold(f64::INFINITY, f64::min), scale);
    let high = digits(
        values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        scale,
    );
    match low == high {
        true => span(middle),
        false => format!("{} ({low} to {high})", span(middle)),
    }
}

/// A share with one decimal; a dash where there is none.
pub(super) fn percent(share: f64) -> String {
    match share.is_finite() {
        true => format!("{:.1} %", 100.0 * share),
        false => "-".to_owned(),
    }
}

/// Helpers for the tests of rows.
#[cfg(test)]
pub(super) mod planted {
    use super::Agreement;
    use jostle_model::record::{Circumstances, Reason, Status, Verdict};

    impl Agreement {
        pub(crate) fn is_wrong(&self) -> bool {
            matches!(self, Agreement::Differs(_))
        }

        pub(crate) fn is_open(&self) -> bool {
            matches!(self, Agreement::CannotTell(_))
        }
    }

    /// A record with the facts that a specimen noted.
    pub(crate) fn noting(notes: &[(&str, f64)]) -> Circumstances {
        let notes = notes
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value));
        Circumstances {
            truth: notes.collect(),
            ..Circumstances::default()
        }
    }

    /// One reason.
    pub(crate) fn flagged(check: &str, is: Status) -> Verdict {
        Verdict::of(vec![Reason {
            check: check.to_owned(),
            is,
            ..Reason::default()
        }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_four_digits() {
        for (nanos, text) in [
            (0.0, "0 ns"),
            (19.6, "20 ns"),
            (20_048.0, "20.05 us"),
            (5e6, "5.000 ms"),
        ] {
            assert_eq!(span(nanos), text);
        }
        assert_eq!([percent(0.5), percent(f64::NAN)], ["50.0 %", "-"]);
        assert_eq!(spans(&[1e3, 3e3, 2e3]), "2.000 us (1.000 to 3.000)");
        assert_eq!(spans(&[]), "nothing");
    }

    #[test]
    fn the_first_claim_that_fails_is_named() {
        assert_eq!(all_of([(true, "a"), (true, "b")]), Agreement::Agrees);
        assert_eq!(
            all_of([(true, "a"), (false, "b")]),
            Agreement::Differs("b".to_owned())
        );
    }
}
