//! Growth is found even above a large constant cost, and a jump is found at its place. A
//! constant cost is not reported as growing.

use crate::calibrate::bench::{Bench, Stop};
use crate::calibrate::trial::{Agreement, Trial, cannot_tell, differs, noted, span};
use jostle_model::record::Fit;
use jostle_report::ResultSet;
use jostle_stats::intervals::median;

/// The last number of locks before the cliff.
const EDGE: u64 = 3_000;

const CONTROL: &str = "delay:1us";

/// Two decades, so that laws can be told apart. Fewer locks would be acquired so quickly
/// that starting would outweigh the chains.
const LONG: [u64; 6] = [3_000, 8_000, 20_000, 50_000, 120_000, 300_000];

/// On both sides of the edge.
const SHORT: [u64; 6] = [800, 1_500, EDGE, 6_000, 12_000, 24_000];

fn sweep(bench: &mut Bench, target: &str, keys: [u64; 6]) -> Result<ResultSet, Stop> {
    let keys = keys.map(|keys| keys.to_string()).join(":");
    bench.measure(&format!(
        "hold {target} {CONTROL} --keys {keys} --runs 6 --measure counts"
    ))
}

fn fit<'a>(set: &'a ResultSet, target: &str) -> Option<&'a Fit> {
    let mut fits = set.fits.iter();
    fits.find(|fit| fit.target == target && fit.figure == "time_per_operation_ns")
}

/// A quotient of two notes, median over the runs with so many locks.
fn truth(set: &ResultSet, target: &str, keys: u64, [over, under]: [&str; 2]) -> f64 {
    let runs = set.runs.iter();
    let runs = runs.filter(|run| run.target == target && run.at.keys == Some(keys));
    median(runs.map(|run| noted(run, over) / noted(run, under))).unwrap_or(f64::NAN)
}

pub(super) fn chains(bench: &mut Bench) -> Result<Trial, Stop> {
    let target = "chained:3000";
    let set = sweep(bench, target, LONG)?;
    let looks = |keys| truth(&set, target, keys, ["looks", "searches"]);
    Ok(judge_chains(
        [looks(LONG[0]), looks(LONG[5])],
        fit(&set, target),
        fit(&set, CONTROL),
    ))
}

pub(super) fn cliff(bench: &mut Bench) -> Result<Trial, Stop> {
    let target = "cliff:3000";
    let set = sweep(bench, target, SHORT)?;
    let cost = |keys| truth(&set, target, keys, ["sum_ns", "count"]);
    Ok(judge_cliff(
        [cost(EDGE), cost(SHORT[3])],
        fit(&set, target),
        fit(&set, CONTROL),
    ))
}

/// Whether growth is reported: no constant fits, and the cost is higher at the end.
fn grows(fit: &Fit) -> bool {
    let is_constant = fit.finding == "constant" || fit.laws.iter().any(|law| law.law == "1");
    let rises = fit.ratio.is_some_and(|ratio| ratio.low > 1.0);
    !is_constant && rises && fit.finding != "too_few"
}

fn words(fit: Option<&Fit>) -> String {
    let Some(fit) = fit else {
        return "nothing".to_owned();
    };
    let ratio = fit.ratio.map_or_else(String::new, |ratio| {
        format!(
            ", {:.2} ({:.2} to {:.2})",
            ratio.estimate, ratio.low, ratio.high
        )
    });
    let bends: Vec<String> = fit
        .bends
        .iter()
        .map(|bend| format!(" {} to {}", bend.after, bend.before))
        .collect();
    format!("{}{}{ratio}", fit.finding, bends.concat())
}

fn judge(truth: String, found: Option<&Fit>, control: Option<&Fit>, right: Agreement) -> Trial {
    let said = match (found, control) {
        (Some(found), _) if found.finding == "too_few" => cannot_tell("too few runs were made"),
        (Some(_), Some(control)) if grows(control) => {
            differs("what costs the same everywhere is said to grow")
        }
        (Some(_), Some(_)) => right,
        _ => differs("nothing is said of growth"),
    };
    Trial {
        truth,
        found: words(found),
        control: format!("{CONTROL} {}", words(control)),
        said,
    }
}

/// Whether the second is so many times the first; what is missing is not.
fn exceeds([first, second]: [f64; 2], times: f64) -> bool {
    second > times * first
}

fn judge_chains(looks: [f64; 2], found: Option<&Fit>, control: Option<&Fit>) -> Trial {
    let right = match found {
        _ if !exceeds(looks, 2.0) => differs("the specimen's log is missing"),
        Some(fit) if grows(fit) => Agreement::Agrees,
        _ => differs("chains that are searched ever longer are not said to grow"),
    };
    let truth = format!("{:.1} to {:.1} looks a search", looks[0], looks[1]);
    judge(truth, found, control, right)
}

fn judge_cliff(costs: [f64; 2], found: Option<&Fit>, control: Option<&Fit>) -> Trial {
    let bends: &[_] = found.map_or(&[], |fit| &fit.bends);
    let holds = |after: u64, before: u64| after <= EDGE && before > EDGE;
    let right = match bends {
        _ if !exceeds(costs, 1.5) => differs("the specimen's log is missing"),
        [] => differs("no bend is seen where the cost jumps"),
        bends if bends.iter().any(|bend| holds(bend.after, bend.before)) => Agreement::Agrees,
        _ => differs("the bend is seen elsewhere"),
    };
    let truth = format!("{}, beyond 3,000 {}", span(costs[0]), span(costs[1]));
    judge(truth, found, control, right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::record::{FitBend, FitLaw, Interval};

    fn fit(finding: &str, laws: &[&str], ratio: [f64; 3], bends: &[[u64; 2]]) -> Fit {
        Fit {
            finding: finding.to_owned(),
            laws: laws
                .iter()
                .map(|law| FitLaw {
                    law: (*law).to_owned(),
                    ..FitLaw::default()
                })
                .collect(),
            ratio: Some(Interval {
                estimate: ratio[0],
                low: ratio[1],
                high: ratio[2],
            }),
            bends: bends
                .iter()
                .map(|[after, before]| FitBend {
                    after: *after,
                    before: *before,
                })
                .collect(),
            ..Fit::default()
        }
    }

    fn constant() -> Fit {
        fit("constant", &["1"], [1.0, 0.99, 1.01], &[])
    }

    fn growing() -> Fit {
        fit("laws", &["N", "N log N"], [2.0, 1.8, 2.2], &[])
    }

    fn differs(trial: Trial) -> bool {
        trial.said.is_wrong()
    }

    #[test]
    fn chains_must_be_seen_to_grow_and_a_constant_not() {
        let looks = [1.0, 17.0];
        let (constant, growing) = (constant(), growing());
        let open = fit("laws", &["1", "N"], [1.1, 0.9, 1.3], &[]);
        let said = |found: &Fit, control: &Fit| judge_chains(looks, Some(found), Some(control));
        assert_eq!(said(&growing, &constant).said, Agreement::Agrees);
        assert_eq!(said(&growing, &open).said, Agreement::Agrees);
        assert!(differs(said(&constant, &constant)));
        assert!(differs(said(&open, &constant)), "it does not commit itself");
        assert!(differs(said(&growing, &growing)));
        assert!(differs(judge_chains(looks, None, Some(&constant))));
        assert!(differs(judge_chains(
            [f64::NAN; 2],
            Some(&growing),
            Some(&constant)
        )));
    }

    #[test]
    fn the_cliff_must_be_seen_where_it_is() {
        let bent = |bends: &[[u64; 2]]| fit("bends", &[], [3.0, 2.9, 3.1], bends);
        let constant = constant();
        let said = |found: &Fit| judge_cliff([1e3, 3e3], Some(found), Some(&constant));
        assert_eq!(said(&bent(&[[3_000, 10_000]])).said, Agreement::Agrees);
        assert_eq!(
            said(&bent(&[[300, 1_000], [1_000, 10_000]])).said,
            Agreement::Agrees
        );
        assert!(differs(said(&bent(&[[10_000, 30_000]]))));
        assert!(differs(said(&growing())));
        let few = fit("too_few", &[], [1.0; 3], &[]);
        assert!(said(&few).said.is_open());
    }
}
