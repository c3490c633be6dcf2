//! Compares two results, or two targets of one result: which figures differ, are the same,
//! or are undecided. See tool/docs/method/comparison.md.
//!
//! Within one result runs of the same block are pairs, and need no anchor. Between two
//! results, a figure is related to the machine's own speed ([`anchored`]). Only for two
//! results, and without looking for causes.

pub mod anchored;

use crate::checks::neighbours;
use crate::figures::{Better, FIGURES, Figure, headline};
use crate::intervals::median;
use crate::ratio::{Outcome, Ratio, by_block, outcome, unpaired};
use crate::summary::PointSummary;
use jostle_model::Plan;
use jostle_model::record::{At, Claim, Status};

/// The finding for one figure of one point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It differs, for the worse.
    Worse,
    /// It differs, for the better.
    Better,
    /// It is the same, within the threshold.
    Same,
    /// The data cannot tell.
    Undecided,
}

impl Change {
    /// As it stands in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Change::Worse => "worse",
            Change::Better => "better",
            Change::Same => "same",
            Change::Undecided => "undecided",
        }
    }
}

/// One figure of one point, in BASE and in NEW.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The target in BASE.
    pub base_target: String,
    /// The target in NEW.
    pub new_target: String,
    /// The point.
    pub at: At,
    /// The figure compared.
    pub figure: &'static Figure,
    /// Median over the runs of BASE.
    pub base: f64,
    /// Median over the runs of NEW.
    pub new: f64,
    /// NEW over BASE, corrected for the machine's change; absent where nothing anchors
    /// them.
    pub ratio: Option<Ratio>,
    /// Runs that the ratio rests on.
    pub runs: [usize; 2],
    /// By how much two halves of one side's runs differ.
    pub floor: Option<f64>,
    /// The change that the machine alone may explain, between two sessions.
    pub machine: Option<[f64; 2]>,
    /// The finding.
    pub said: Change,
    /// Why nothing was decided, and what would help.
    pub why: Option<String>,
    /// Whether the point is INVALID in one of them, so that its figures must not be
    /// printed.
    pub invalid: bool,
}

impl Compared {
    /// The ratio, if it may be printed. With an INVALID point it may only if it was
    /// decided, because then the reasons against the point do not concern ratios.
    pub fn ratio_told(&self) -> Option<Ratio> {
        let spoilt = self.invalid && self.said == Change::Undecided;
        self.ratio.filter(|_| !spoilt)
    }
}

/// How to compare.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Shares up to this are of no consequence.
    pub within: f64,
    /// Every figure, not only the headline.
    pub all: bool,
    /// Whether both are of one result, so that runs of a block are pairs.
    pub paired: bool,
}

/// The figures of one point in both. `plan` is that of BASE.
pub fn compare(
    plan: &Plan,
    base: &PointSummary<'_>,
    new: &PointSummary<'_>,
    how: How,
) -> Vec<Compared> {
    let compared = FIGURES.iter().filter(|figure| !figure.compared.is_empty());
    compared
        .filter(|figure| how.all || figure.name == headline(plan).name)
        .filter_map(|figure| compare_figure(plan, figure, base, new, how))
        .collect()
}

/// One figure alone; None where it was not measured.
pub fn compare_figure(
    plan: &Plan,
    figure: &'static Figure,
    base: &PointSummary<'_>,
    new: &PointSummary<'_>,
    how: How,
) -> Option<Compared> {
    let [base_runs, new_runs] = [base, new].map(|point| point.each(figure));
    let mut compared = Compared {
        base_target: base.target.to_owned(),
        new_target: new.target.to_owned(),
        at: base.at,
        figure,
        base: median(&base_runs)?,
        new: median(&new_runs)?,
        ratio: None,
        runs: [base.runs.len(), new.runs.len()],
        floor: floor([&base_runs, &new_runs]),
        machine: None,
        said: Change::Undecided,
        why: None,
        invalid: base.verdict.is_invalid() || new.verdict.is_invalid(),
    };
    if how.paired {
        compared.ratio = by_block(base, new, figure);
        compared.ratio = compared.ratio.map(|ratio| Ratio {
            outcome: outcome(
                [ratio.nearest, ratio.low, ratio.high],
                ratio.interval,
                how.within,
            ),
            ..ratio
        });
        if let Some(ratio) = compared.ratio {
            compared.runs = [ratio.blocks; 2];
        }
    } else if let Some(found) = anchored::ratio(plan, figure, [base, new], how.within) {
        compared.ratio = Some(found.ratio);
        compared.runs = found.runs;
        compared.machine = Some(found.machine);
    }
    judge(&mut compared, base, new, how);
    Some(compared)
}

/// The A/A floor of a comparison: by how much every second run of a side differs from the
/// runs between them (Hodges-Lehmann), as a share; the larger of both sides. They are of one
/// sitting, and have half the runs. None without two runs in each half.
fn floor(sides: [&[f64]; 2]) -> Option<f64> {
    let of = |runs: &&[f64]| {
        let half = |first: usize| {
            runs.iter()
                .copied()
                .skip(first)
                .step_by(2)
                .collect::<Vec<_>>()
        };
        let ratio = (runs.len() >= 4).then(|| unpaired(&half(0), &half(1)))??;
        Some(ratio.ratio.ln().abs().exp() - 1.0)
    };
    sides.iter().filter_map(of).reduce(f64::max)
}

fn judge(compared: &mut Compared, base: &PointSummary<'_>, new: &PointSummary<'_>, how: How) {
    let invalid = [("BASE", base), ("NEW", new)]
        .into_iter()
        .find_map(|(side, point)| Some((side, invalid(point, how)?)));
    if let Some((side, text)) = invalid {
        compared.why = Some(format!("INVALID in {side}: {text}"));
        return;
    }
    let Some(ratio) = compared.ratio else {
        compared.why = Some(unanchored(base, new, how));
        return;
    };
    compared.said = match (ratio.outcome, ratio.ratio > 1.0, compared.figure.better) {
        (Outcome::Same, ..) => Change::Same,
        (Outcome::Undecided, ..) => Change::Undecided,
        (Outcome::Differs, true, Better::More) | (Outcome::Differs, false, Better::Less) => {
            Change::Better
        }
        (Outcome::Differs, ..) => Change::Worse,
    };
    if compared.said == Change::Undecided {
        compared.why = Some(match ratio.interval {
            true => undecided(compared, &ratio, how),
            false => moved(base, new).unwrap_or_else(|| undecided(compared, &ratio, how)),
        });
    }
}

/// The reason that excludes a point from this comparison: between two sessions any INVALID
/// reason but other programs, which exclude single runs; within one only a reason that
/// concerns ratios.
fn invalid(point: &PointSummary<'_>, how: How) -> Option<String> {
    let reasons = point.verdict.reasons.iter();
    reasons
        .filter(|reason| reason.is == Status::Invalid)
        .find(|reason| match how.paired {
            true => reason.claims.contains(&Claim::Ratio),
            false => reason.check != neighbours::CHECK.name,
        })
        .map(|reason| reason.text.clone())
}

/// Names the runs that other programs may have moved too far to be compared.
fn moved(base: &PointSummary<'_>, new: &PointSummary<'_>) -> Option<String> {
    let sides = [("BASE", base), ("NEW", new)].into_iter();
    let sides = sides.filter_map(|(side, point)| {
        let moved = point.narrow.iter().filter(|narrow| narrow.is_none());
        let moved = moved.count();
        (moved > 0).then(|| format!("{moved} of {} runs of {side}", point.runs.len()))
    });
    let sides: Vec<String> = sides.collect();
    (!sides.is_empty()).then(|| {
        format!(
            "other programs may have moved {} by over 3 %; measure again on a quiet machine \
             (--wait-quiet 60s)",
            sides.join(" and ")
        )
    })
}

fn unanchored(base: &PointSummary<'_>, new: &PointSummary<'_>, how: How) -> String {
    let without =
        |point: &PointSummary<'_>| point.runs.iter().all(|run| run.around.anchor.is_none());
    match (how.paired, without(base), without(new)) {
        (true, ..) => moved(base, new).unwrap_or_else(|| "no block has runs of both".to_owned()),
        (_, false, false) => moved(base, new).unwrap_or_else(|| {
            "no run of BASE had the machine in the same state as a run of NEW: measure both \
             again, in one sitting"
                .to_owned()
        }),
        (_, true, true) => "neither has an anchor".to_owned(),
        (_, true, _) => "BASE has no anchor".to_owned(),
        (_, _, true) => "NEW has no anchor".to_owned(),
    }
}

/// Fewest runs in one state that have an interval, and what usually does.
const FEWEST: usize = 4;
const ENOUGH_RUNS: u32 = 12;

fn undecided(compared: &Compared, ratio: &Ratio, how: How) -> String {
    let [base, new] = compared.runs;
    let moved = compared
        .machine
        .is_some_and(|[least, most]| most / least > 1.0 + how.within);
    if how.paired && !ratio.interval {
        format!("{base} blocks with both; an interval takes 6 (--runs {ENOUGH_RUNS})")
    } else if !ratio.interval {
        format!(
            "{base} and {new} runs in the same state of the machine; an interval takes \
             {FEWEST} of each (--runs {ENOUGH_RUNS})"
        )
    } else if moved {
        "the machine itself changed by as much; measure again, or both in one sitting".to_owned()
    } else {
        format!(
            "neither surely within {:.0} % nor surely beyond (--runs {} would narrow it)",
            100.0 * how.within,
            ENOUGH_RUNS.max(2 * base.min(new) as u32)
        )
    }
}

#[cfg(test)]
mod tests;
