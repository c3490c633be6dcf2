//! `jostle compare`: two results, or two targets of one, as text, Markdown or JSON Lines.
//! The finding for each figure comes from `jostle-stats`.
//!
//! Experiments of the same workload are matched in the order of the files,
//! points by target and swept values.

mod context;
mod lines;
mod text;

pub(crate) use text::{closing, floor_note, place, table};

use crate::ResultSet;
use crate::format::each_once;
use jostle_model::record::At;
use jostle_stats::comparison::{self, Change, Compared, How};
use jostle_stats::summary::{PointSummary, summarize};

/// The results to compare.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The name of BASE.
    pub base_name: &'a str,
    /// Its experiments.
    pub base: &'a [ResultSet],
    /// The name of NEW.
    pub new_name: &'a str,
    /// Its experiments; None: two targets of BASE.
    pub new: Option<&'a [ResultSet]>,
    /// The target of BASE and that of NEW, where they have different names.
    pub targets: Option<[&'a str; 2]>,
    /// Differences up to this share count as equal.
    pub within: f64,
    /// Every figure, not only the headline.
    pub all: bool,
    /// Whether what is undecided or INVALID counts as a failure.
    pub strict: bool,
}

/// The result.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The description of BASE.
    pub base: String,
    /// The description of NEW.
    pub new: String,
    /// The threshold.
    pub within: f64,
    /// Whether runs of a block are pairs, and no anchor is needed.
    pub paired: bool,
    /// Differences in environment and plan, one sentence each.
    pub context: Vec<String>,
    /// Each figure of each point in both, behind the number of its experiment
    /// in BASE, from 1.
    pub rows: Vec<(usize, Compared)>,
    /// Points in only one of them, one sentence each.
    pub only: Vec<String>,
    /// Whether what is undecided or INVALID counts as a failure.
    pub strict: bool,
}

/// Why two results cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// Nothing to compare with.
    #[error("with one result, name two of its targets (--targets A,B), or a second result")]
    OneResult,
    /// A name that no experiment has.
    #[error("{file} has no target `{target}`; its targets are: {there}")]
    NoTarget {
        /// The file's name.
        file: String,
        /// As typed.
        target: String,
        /// The targets that it has.
        there: String,
    },
    /// Different things were measured.
    #[error("{base} and {new} have no point in common{only}")]
    NothingInCommon {
        /// The name of the first file.
        base: String,
        /// The name of the second.
        new: String,
        /// The targets of each, in words.
        only: String,
    },
}

/// Exit code: a figure got worse; stronger than [`UNDECIDED`].
const REGRESSION: u8 = 4;

/// Exit code: nothing could be decided.
const UNDECIDED: u8 = 3;

/// The ways to print a comparison, the default first.
pub static COMPARE_FORMATS: &[(&str, &str)] = &[
    ("text", "a row for each point, for a terminal"),
    ("markdown", "the same for a page or an issue"),
    ("json", "a record a line"),
];

impl Comparison {
    /// For scripts: 4 if a figure got worse; 3 if no figure could be decided, and with
    /// `strict` if one could not, or is of a point that is INVALID; otherwise 0.
    pub fn exit_code(&self) -> u8 {
        let open = |row: &Compared| row.said == Change::Undecided;
        let rows = || self.rows.iter().map(|(_, row)| row);
        if rows().any(|row| row.said == Change::Worse) {
            REGRESSION
        } else if rows().all(open) || self.strict && rows().any(|row| open(row) || row.invalid) {
            UNDECIDED
        } else {
            0
        }
    }

    /// In the format of this name; as the first of [`COMPARE_FORMATS`] where
    /// there is none.
    pub fn render(&self, format: &str) -> String {
        match format {
            "json" => lines::render(self),
            "markdown" => text::markdown(self),
            _ => text::text(self),
        }
    }
}

/// Compares.
///
/// # Errors
/// Where there is nothing that both have.
pub fn compare(input: &Input<'_>) -> Result<Comparison, CompareError> {
    if input.new.is_none() && input.targets.is_none() {
        return Err(CompareError::OneResult);
    }
    let new = input.new.unwrap_or(input.base);
    if let Some([base_target, new_target]) = input.targets {
        must_have(input.base_name, input.base, base_target)?;
        must_have(input.new_name, new, new_target)?;
    }
    let mut comparison = Comparison {
        base: context::name(input.base_name, input.base, input.targets.map(|t| t[0])),
        new: context::name(input.new_name, new, input.targets.map(|t| t[1])),
        within: input.within,
        paired: input.new.is_none(),
        context: Vec::new(),
        rows: Vec::new(),
        only: Vec::new(),
        strict: input.strict,
    };
    for (number, (base, new)) in (1..).zip(matched(input.base, new)) {
        add(&mut comparison, input, number, base, new);
    }
    // Experiments of one file have one environment.
    comparison.context = each_once(comparison.context);
    let only = comparison.only.iter().map(|only| format!("; {only}"));
    match comparison.rows.is_empty() {
        true => Err(CompareError::NothingInCommon {
            base: input.base_name.to_owned(),
            new: input.new_name.to_owned(),
            only: only.collect(),
        }),
        false => Ok(comparison),
    }
}

fn must_have(file: &str, sets: &[ResultSet], target: &str) -> Result<(), CompareError> {
    let all = || sets.iter().flat_map(|set| &set.experiment.plan.targets);
    if all().any(|there| there == target) {
        return Ok(());
    }
    let mut there: Vec<&str> = all().map(String::as_str).collect();
    there.dedup();
    Err(CompareError::NoTarget {
        file: file.to_owned(),
        target: target.to_owned(),
        there: there.join(", "),
    })
}

/// Pairs each experiment of BASE with the next unpaired one of NEW that has the same
/// workload. The rest stays unpaired.
fn matched<'a>(
    base: &'a [ResultSet],
    new: &'a [ResultSet],
) -> Vec<(Option<&'a ResultSet>, Option<&'a ResultSet>)> {
    let mut left: Vec<&ResultSet> = new.iter().collect();
    let mut pairs = Vec::new();
    for set in base {
        let workload = set.experiment.plan.workload;
        let partner = left
            .iter()
            .position(|other| other.experiment.plan.workload == workload);
        pairs.push((Some(set), partner.map(|at| left.remove(at))));
    }
    pairs.extend(left.into_iter().map(|set| (None, Some(set))));
    pairs
}

fn add(
    comparison: &mut Comparison,
    input: &Input<'_>,
    number: usize,
    base: Option<&ResultSet>,
    new: Option<&ResultSet>,
) {
    let has = |set: Option<&ResultSet>, target: &str| {
        set.is_some_and(|set| set.experiment.plan.targets.iter().any(|t| t == target))
    };
    if let Some([base_target, new_target]) = input.targets
        && !(has(base, base_target) && has(new, new_target))
    {
        return;
    }
    let (Some(base_set), Some(new_set)) = (base, new) else {
        let only = [("BASE", points_of(base)), ("NEW", points_of(new))];
        comparison.only.extend(only_in(&only));
        return;
    };
    if input.new.is_some() {
        comparison
            .context
            .extend(context::differences(base_set, new_set));
    }
    let base_points = summarize(&base_set.experiment, &base_set.runs);
    let new_points = summarize(&new_set.experiment, &new_set.runs);
    let how = How {
        within: input.within,
        all: input.all,
        paired: input.new.is_none(),
    };
    let partner = |point: &PointSummary<'_>| -> Option<String> {
        match input.targets {
            None => Some(point.target.to_owned()),
            Some([base, new]) => (point.target == base).then(|| new.to_owned()),
        }
    };
    let (mut alone, mut met) = (Vec::new(), Vec::new());
    for point in &base_points {
        let Some(target) = partner(point) else {
            continue;
        };
        let other = new_points
            .iter()
            .find(|other| other.target == target && other.at == point.at);
        match other {
            Some(other) => {
                met.push((other.target.to_owned(), other.at));
                let rows = compared([(base_set, point), (new_set, other)], how);
                comparison.rows.extend(rows.map(|row| (number, row)));
            }
            None => alone.push((point.target.to_owned(), point.at)),
        }
    }
    let wanted = |target: &str| input.targets.is_none_or(|[_, new]| new == target);
    let unmet = new_points
        .iter()
        .filter(|point| wanted(point.target))
        .map(|point| (point.target.to_owned(), point.at))
        .filter(|point| !met.contains(point));
    comparison
        .only
        .extend(only_in(&[("BASE", alone), ("NEW", unmet.collect())]));
}

fn points_of(set: Option<&ResultSet>) -> Vec<(String, At)> {
    set.map_or(Vec::new(), |set| {
        let points = summarize(&set.experiment, &set.runs);
        points.iter().map(|p| (p.target.to_owned(), p.at)).collect()
    })
}

/// The rows of a point that both sides have.
fn compared(
    [base, new]: [(&ResultSet, &PointSummary<'_>); 2],
    how: How,
) -> impl Iterator<Item = Compared> {
    let both = [(base.0, base.1.target), (new.0, new.1.target)];
    let same = is_same_file(both).then_some(SAME_FILE);
    let rows = comparison::compare(&base.0.experiment.plan, base.1, new.1, how).into_iter();
    rows.map(move |row| Compared {
        why: match (same, row.why) {
            (Some(same), Some(why)) => Some(format!("{same}; {why}")),
            (same, why) => why.or(same.map(str::to_owned)),
        },
        ..row
    })
}

/// The reason where a difference cannot be the program's.
const SAME_FILE: &str = "both are the same file";

fn is_same_file(both: [(&ResultSet, &str); 2]) -> bool {
    let [base, new] = both.map(|(set, target)| set.experiment.environment.programs.get(target));
    base.is_some() && base == new
}

fn only_in(sides: &[(&str, Vec<(String, At)>)]) -> Vec<String> {
    let each = sides.iter().filter(|(_, points)| !points.is_empty());
    each.map(|(side, points)| {
        let names: Vec<String> = points
            .iter()
            .map(|(target, at)| format!("{target} {}", text::place(*at)))
            .collect();
        format!("only in {side}: {}", names.join(", "))
    })
    .collect()
}

#[cfg(test)]
pub(crate) mod tests;
