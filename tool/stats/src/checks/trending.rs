//! Data and words that the checks of trends share. No check by itself.

use super::{BUT_RATIO, Found, measured, percent, seen};
use crate::trend::{self, Agreed};
use jostle_model::Remedy;
use jostle_model::record::Reason;

/// The drift that enough of `judged` runs share.
pub(super) fn found(agreed: &Agreed, judged: usize, remedy: Remedy) -> Found {
    Found::suspect(BUT_RATIO, agreed.share, trend::WORTH)
        .seen(format!("in {} of {judged} runs", agreed.runs))
        .remedy(remedy)
}

/// `the rate rises by 21 % of its mean in 6 of 6 runs`; `what` is its beginning. A fall may
/// exceed the mean, so the sentence names it.
pub(super) fn words(reason: &Reason, what: &str) -> String {
    let share = measured(reason);
    let verb = if share > 0.0 { "rises" } else { "falls" };
    format!(
        "{what} {verb} by {:.0} % of its mean {}",
        100.0 * share.abs(),
        seen(reason)
    )
}

/// The drift from which both checks report it.
pub(super) fn threshold() -> String {
    format!(
        "a Theil-Sen drift above {} with Mann-Kendall p < {}, in the same direction in two thirds \
         of the runs",
        percent(trend::WORTH),
        trend::P
    )
}
