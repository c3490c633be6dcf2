//! Do the runs that stand for a point differ from those that were left out?

use super::{Check, Found, seen};
use crate::spoilt::ENOUGH;
use jostle_model::Remedy;
use jostle_model::record::{Claim, Reason};

/// The check. Which runs stand for a point is decided before its other checks, by
/// [`crate::spoilt`], which asks for these reasons.
pub static CHECK: Check = Check {
    name: "selection",
    asks: "Do the runs of quiet blocks stand for all?",
    unit: "blocks",
    threshold: text!(
        "of {ENOUGH} blocks or more, fewer than {ENOUGH} in which other programs and the \
         hypervisor each took at most 10 % of the CPUs, so that all are counted: SUSPECT \
         for `absolute`; so is a median of all runs outside of the quiet blocks' interval"
    ),
    source: "blocks are chosen by what others used, never by their figure; where the choice moves \
             the figure all the same, it may have been a choice among results",
    fooled_by: "a neighbour that disturbs every block by a little less",
    advice: "stop what else runs, or wait for a quiet moment",
    words: seen,
    judge: |_| None,
};

/// Too few clean blocks to represent the point.
pub fn too_few(clean: usize, all: usize) -> Reason {
    let bad = all - clean;
    reason(
        clean,
        format!(
            "other programs or the hypervisor took over 10 % of the CPUs in {bad} of {all} blocks, \
             which leaves fewer than {ENOUGH}: all are counted"
        ),
    )
}

/// The figure of all runs is `times` that of the clean ones, and lies outside of their
/// interval.
pub fn moved(clean: usize, bad: usize, times: f64) -> Reason {
    reason(
        clean,
        format!(
            "with the {bad} blocks in which others took over 10 % of the CPUs it would be \
             {times:.2} times as much, which is outside of the other {clean} blocks' interval: \
             they may have been chosen by their figure"
        ),
    )
}

fn reason(clean: usize, seen: String) -> Reason {
    let found = Found::suspect(&[Claim::Absolute], clean as f64, ENOUGH as f64);
    CHECK.reason(found.seen(seen).remedy(Remedy::wait_quiet()))
}
