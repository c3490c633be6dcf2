//! The most that a rule with one threshold can find in recorded sessions: an oracle that has
//! seen all of them chooses the figure and the threshold. Where it fails, equal sessions differ
//! by more than what was planted.

use super::{Case, Required, Row, of_workers};
use jostle_model::record::Run;
use jostle_report::ResultSet;
use jostle_stats::comparison::anchored::Part;
use jostle_stats::intervals::median;

/// One number for the runs of both sessions: the logarithm of NEW's figure over BASE's. None
/// without runs.
type Figure = fn(&[f64], &[f64]) -> Option<f64>;

/// By which figure sessions may be compared.
const FIGURES: [(&str, Figure); 6] = [
    ("medians", |base, new| quotient(median, base, new)),
    ("means", |base, new| quotient(mean, base, new)),
    ("means of the least half", |base, new| {
        quotient(|runs| mean(&half(runs, false)), base, new)
    }),
    ("means of the greatest half", |base, new| {
        quotient(|runs| mean(&half(runs, true)), base, new)
    }),
    ("least runs", |base, new| quotient(least, base, new)),
    ("Hodges-Lehmann", |base, new| {
        let each = base.iter();
        let each = each.flat_map(|base| new.iter().map(move |new| (new / base).ln()));
        median(&each.collect::<Vec<f64>>())
    }),
];

/// What the figure may be divided by.
const ANCHORS: [Option<Part>; 5] = [
    None,
    Some(Part::Step),
    Some(Part::Call),
    Some(Part::Wake),
    Some(Part::Line),
];

fn quotient(of: fn(&[f64]) -> Option<f64>, base: &[f64], new: &[f64]) -> Option<f64> {
    Some((of(new)? / of(base)?).ln())
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn least(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::min)
}

/// The least or the greatest half, without the middle one of an odd number.
fn half(values: &[f64], greatest: bool) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    if greatest {
        sorted.reverse();
    }
    sorted.truncate(values.len() / 2);
    sorted
}

/// The logarithms of what pairs of equal sessions differ by, in one figure.
struct Tried {
    figure: &'static str,
    anchor: Option<Part>,
    ratios: Vec<f64>,
}

/// All figures of one target, over all anchors that its runs have.
fn tried(sessions: &[Vec<ResultSet>], pairs: &[[usize; 2]], case: &Case) -> Vec<Tried> {
    let sets = sessions.iter().map(|session| {
        let mut set = of_workers(&session[case.places[0]], case.workers);
        set.runs.retain(|run| run.target == case.targets[0]);
        set.runs
    });
    let sets: Vec<Vec<Run>> = sets.collect();
    let rates = |at: usize| -> Vec<f64> {
        let runs = sets[at].iter();
        runs.map(|run| run.throughput_per_s).collect()
    };
    let slower = ANCHORS.map(|anchor| (anchor, slower(&sets, pairs, anchor)));
    let mut tried = Vec::new();
    for (name, figure) in FIGURES {
        let plain = pairs
            .iter()
            .map(|[base, new]| figure(&rates(*base), &rates(*new)));
        let Some(plain) = plain.collect::<Option<Vec<f64>>>() else {
            continue;
        };
        tried.extend(slower.iter().filter_map(|(anchor, slower)| {
            let both = plain.iter().zip(slower.as_ref()?);
            Some(Tried {
                figure: name,
                anchor: *anchor,
                ratios: both.map(|(ratio, slower)| ratio + slower).collect(),
            })
        }));
    }
    tried
}

/// By how much the machine is slower in the second session of each pair, as a logarithm: a
/// throughput is multiplied by that.
fn slower(sets: &[Vec<Run>], pairs: &[[usize; 2]], anchor: Option<Part>) -> Option<Vec<f64>> {
    let Some(part) = anchor else {
        return Some(vec![0.0; pairs.len()]);
    };
    let takes_ns = |at: usize| {
        let each: Option<Vec<f64>> = sets[at]
            .iter()
            .map(|run| part.of(&run.around.anchor?))
            .collect();
        median(&each?)
    };
    let each = pairs
        .iter()
        .map(|[base, new]| Some((takes_ns(*new)? / takes_ns(*base)?).ln()));
    each.collect()
}

/// The least threshold beyond which at most this share of the pairs lies, and how many pairs
/// lie below it if their second sessions are slower by a tenth.
fn threshold(ratios: &[f64], share: f64) -> (f64, u64) {
    let mut off: Vec<f64> = ratios.iter().map(|ratio| ratio.abs()).collect();
    off.sort_by(|one, other| other.total_cmp(one));
    let beyond = (share * off.len() as f64) as usize;
    let threshold = off.get(beyond).copied().unwrap_or(0.0);
    let slower = ratios
        .iter()
        .filter(|ratio| *ratio - 1.1_f64.ln() < -threshold);
    (threshold, slower.count() as u64)
}

/// How many pairs of what is alike an oracle finds if the second sessions are slower by a
/// tenth, with the best figure and threshold of all.
pub(super) fn row(sessions: &[Vec<ResultSet>], pairs: &[[usize; 2]], case: &Case) -> Option<Row> {
    let tried = tried(sessions, pairs, case);
    let found = |share: f64| {
        let each = tried
            .iter()
            .map(move |one| (one, threshold(&one.ratios, share)));
        // The first of several that find as many, since it is the simplest.
        each.rev().max_by_key(|(_, (_, found))| *found)
    };
    let ((best, (beyond, count)), (_, (_, stricter))) = (found(0.02)?, found(0.009)?);
    let over = best
        .anchor
        .map_or(String::new(), |part| format!(" over {part:?}"));
    Some(Row {
        what: format!("{}, divided by 1.1: an oracle's threshold finds", case.what),
        count,
        trials: best.ratios.len() as u64,
        required: Required::Nothing,
        note: format!(
            "{}{}, 2 % of equals beyond {:.1} %; with 0.9 % it finds {stricter}",
            best.figure,
            over.to_lowercase(),
            100.0 * (beyond.exp() - 1.0)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oracle_finds_a_tenth_unless_equals_differ_by_more() {
        // 100 pairs, of which two are off by a fifth and two by 7 %.
        let mut ratios = vec![0.0; 96];
        ratios.extend([0.2, -0.2, 0.07, -0.07]);
        // At 2 % only what is slower than 0.2 by more than 7 % is beyond.
        let (at, found) = threshold(&ratios, 0.02);
        assert_eq!((at, found), (0.07, 98));
        let (at, found) = threshold(&ratios, 0.01);
        assert_eq!((at, found), (0.2, 1));
        assert_eq!(threshold(&[], 0.02), (0.0, 0));
    }

    #[test]
    fn figures_are_of_the_second_session_over_the_first() {
        let (base, new) = ([4.0, 1.0, 2.0, 3.0], [8.0, 6.0, 4.0, 2.0]);
        for (name, figure) in FIGURES {
            let found = figure(&base, &new).unwrap().exp();
            assert!((found - 2.0).abs() < 1e-9, "{name}: {found}");
        }
        assert_eq!(half(&[3.0, 1.0, 2.0, 5.0, 4.0], true), [5.0, 4.0]);
        assert!(quotient(mean, &[], &new).is_none());
    }
}
