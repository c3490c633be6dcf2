//! Was the machine itself slower beside a point than in the rest of its session?
//!
//! A neighbour that takes no CPU time of ours may still take a sibling of our CPUs, their clock
//! frequency or their caches. What the anchor's acts take just before and just after each run
//! shows some of it.

use super::{BUT_RATIO, Check, Found, percent, seen};
use crate::comparison::anchored::Part;
use crate::intervals::median;
use crate::summary::PointSummary;
use jostle_model::Remedy;
use jostle_model::record::Run;

/// Each act in words, and by how much it may take longer beside a point than in the median run
/// of its file: the 99th percentiles of 421 points (161 for lines) in record/ that were measured
/// on idle machines. A test of the report finds them there again.
pub static LONGEST: [(Part, &str, f64); 4] = [
    (Part::Step, "a step of a loop", 1.06),
    (Part::Call, "a system call", 1.22),
    (Part::Wake, "a wake-up", 1.39),
    (Part::Line, "a cache line's way", 4.23),
];

/// The check. It takes all points of a file, and so has no rule for one.
pub static CHECK: Check = Check {
    name: "anchor",
    asks: "Was the machine itself slower than in the rest of the session?",
    unit: "ratio",
    threshold: || {
        let each = LONGEST.map(|(_, act, most)| format!("{act} {most:.2}"));
        format!(
            "what the acts of the anchor take beside the runs of a point, over that of all runs of \
             the file, medians of both, above: {}: SUSPECT for `absolute` and `distribution`",
            each.join(", ")
        )
    },
    source: "the 99th percentile of each act over 421 points that were recorded on idle machines; 11 \
             of them exceed one or another",
    fooled_by: "what harms the whole session alike; a hog of memory bandwidth, which the acts do \
                not need; a machine whose CPUs are moved between the points",
    advice: "run it again in a quieter hour, or on a machine of your own",
    words: seen,
    judge: |_| None,
};

/// Flags the points beside which an act took longer than it does on an idle machine.
pub(crate) fn judge(points: &mut [PointSummary<'_>]) {
    let runs: Vec<&Run> = points.iter().flat_map(|p| p.runs.clone()).collect();
    for point in points {
        let longer = LONGEST.iter().filter_map(|(part, act, most)| {
            let ratio = level(*part, &point.runs)? / level(*part, &runs)?;
            (ratio > *most).then_some((ratio, *most, *act))
        });
        let Some((ratio, most, act)) = longer.max_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)))
        else {
            continue;
        };
        let seen = format!(
            "{act} took {} longer beside these runs than in the rest of the session: the \
             machine itself was slower",
            percent(ratio - 1.0)
        );
        let found = Found::suspect(BUT_RATIO, ratio, most).seen(seen);
        let reason = CHECK.reason(found.remedy(Remedy::Again));
        point.verdict.is = point.verdict.is.max(reason.is);
        point.verdict.reasons.push(reason);
    }
}

/// The time of an act, median over runs; None where a file says that it took no time.
pub fn level(part: Part, runs: &[&Run]) -> Option<f64> {
    let each = runs.iter().filter_map(|run| part.ns(&run.around.anchor?));
    median(each).filter(|ns| *ns > 0.0)
}
