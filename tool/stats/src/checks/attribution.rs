//! Would more generators have brought more?

use super::{BUT_RATIO, Check, Found, more_generators, seen};
use crate::spread::{IDLE_ENOUGH, MORE, Pair, SAME};
use jostle_model::Plan;
use jostle_model::record::{LimitedBy, Reason};

/// The check. It takes several points, and so has no rule for one: [`reason`] is asked
/// by [`crate::spread`].
pub static CHECK: Check = Check {
    name: "attribution",
    asks: "Would more generators have brought more?",
    unit: "ratio",
    threshold: text!(
        "only where generators and server have disjoint CPU budgets; of pairs of runs with k \
         and at least 2k generators, six blocks or more: a lower bound of the ratio of their \
         rates above {MORE}: SUSPECT for `absolute` and `distribution`, the generators are the \
         limit; an interval within {} to \
         {} and all generators busy at most {IDLE_ENOUGH}: the server is; otherwise undecided",
        SAME.0,
        SAME.1
    ),
    source: "twice as many generators that keep the same number in flight ask a server for \
             nothing else",
    fooled_by: "a server that gains from more connections by itself",
    advice: "more generators, until more of them bring nothing",
    words: text!(
        |reason| "{}: the generators were the limit, and the server does at least this much",
        seen(reason)
    ),
    judge: |_| None,
};

/// The reason that a pair gives against the point with fewer generators; None where they were not
/// the limit.
pub fn reason(plan: &Plan, pair: &Pair) -> Option<Reason> {
    let Pair {
        few, many, ratio, ..
    } = pair;
    let found = Found::suspect(BUT_RATIO, ratio.low, MORE)
        .at_least()
        .seen(format!(
            "{many} generators did {:.2} times as much as {few} ({:.2} to {:.2})",
            ratio.ratio, ratio.low, ratio.high
        ))
        .remedy(more_generators(plan));
    (pair.limit == LimitedBy::Generator).then(|| CHECK.reason(found))
}
