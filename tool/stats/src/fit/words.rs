//! A record of growth in one sentence.
//!
//! The sentence uses only the record, and covers only values within the sweep.

use super::sweeps::fitted;
use super::{Finding, LEAST_RUNS, LEAST_SPAN, LEAST_VALUES};
use crate::numbers::{self, grouped};
use jostle_model::Plan;
use jostle_model::record::{At, Fit, FitLaw, FitPart, Interval};
use jostle_model::swept::{SWEPT, Swept};

/// Such as `time per lock grows like N or N log N, which these data cannot tell
/// apart, from 10 to 1,000 workers`, without an end.
pub fn sentence(plan: &Plan, fit: &Fit) -> String {
    let what = what(plan, fit);
    let range = range(fit);
    let is = |finding: Finding| fit.finding == finding.name();
    if is(Finding::TooFew) {
        too_few(fit)
    } else if is(Finding::Constant) {
        format!("{what} is constant {range}{}", times(fit.ratio))
    } else if !is_certain(fit) {
        format!(
            "whether {what} grows {range} these data cannot tell{}; more runs might (--runs {})",
            times(fit.ratio),
            2 * fit.runs.max(LEAST_RUNS as u64)
        )
    } else if is(Finding::Laws) && is_mostly_constant(fit.ratio) {
        format!(
            "{what} grows {range}{}, as a constant with a part like {}",
            times(fit.ratio),
            laws(&fit.laws)
        )
    } else if is(Finding::Laws) {
        format!(
            "{what} grows like {}{} {range}",
            laws(&fit.laws),
            exponent(fit.exponent)
        )
    } else if is(Finding::Power) {
        let c = fit
            .exponent
            .map_or(String::new(), |c| format!("^{:.2}", c.estimate));
        format!(
            "{what} grows like N{c}{}, which is none of the simple laws, {range}",
            exponent(fit.exponent)
        )
    } else if is(Finding::Falls) {
        format!("{what} falls {range}{}", times(fit.ratio))
    } else if is(Finding::Bends) {
        bends(&what, &range, fit)
    } else {
        format!("{what} follows no simple law {range}")
    }
}

/// One sentence for each target and swept value, with the others at their
/// smallest (of connections, one for each curve), and where data are lacking one for all that says what would do.
pub fn closing(fits: &[Fit]) -> Vec<(String, String)> {
    let mut said: Vec<(String, String)> = Vec::new();
    let too_few = Finding::TooFew.name();
    let mut seen: Vec<(&str, &str, At)> = Vec::new();
    for fit in fits.iter().filter(|fit| fit.finding != too_few) {
        let sweep = seen.iter().find(|(t, o, at)| {
            *t == fit.target && *o == fit.over && (fit.over != "open" || *at == fit.at)
        });
        match sweep {
            None => {
                seen.push((&fit.target, &fit.over, fit.at));
                said.push((name(fits, fit), fit.text.clone()));
            }
            // Other figures of the same points follow where they say something;
            // other points are in the file.
            Some((.., at)) if *at == fit.at && is_certain(fit) => {
                if let Some((_, text)) = said.last_mut() {
                    *text += &format!("; {}", fit.text);
                }
            }
            Some(_) => {}
        }
    }
    said.iter_mut().for_each(|(_, text)| text.push('.'));
    let lacking = fits.iter().find(|fit| fit.finding == too_few);
    if said.is_empty() {
        said.extend(lacking.map(|fit| (String::new(), capital(&fit.text))));
    }
    said
}

/// The target, and of several curves which one.
fn name(fits: &[Fit], fit: &Fit) -> String {
    let others = || fits.iter().filter(|other| other.over == "open");
    let mut name = fit.target.clone();
    if fit.over == "open" && others().any(|other| other.at.sources != fit.at.sources) {
        name += &format!(
            " from {}",
            numbers::counted(fit.at.sources.unwrap_or(1), "source")
        );
    }
    if fit.over == "open" && others().any(|other| other.at.listeners != fit.at.listeners) {
        name += &format!(", {} listen", number(fit.at.listeners.unwrap_or(0)));
    }
    name
}

/// Whether the data tell growth from none: no law of growth is told of what may not have grown.
fn is_certain(fit: &Fit) -> bool {
    let is = |finding: Finding| fit.finding == finding.name();
    let grows = is(Finding::Laws) || is(Finding::Power);
    !(is(Finding::Laws) && has_constant(&fit.laws) || grows && holds_one(fit.ratio))
}

fn holds_one(ratio: Option<Interval>) -> bool {
    ratio.is_some_and(|ratio| (ratio.low..=ratio.high).contains(&1.0))
}

/// A sentence of its own.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(letters).chain(['.']).collect()
}

/// The addition to the sentence of a throughput with a peak; empty without one.
pub fn peak(fit: &Fit) -> String {
    match (fit.peak, swept(fit)) {
        (Some(at), Some(swept)) => {
            format!("; throughput peaks at about {}", counted(at, swept))
        }
        _ => String::new(),
    }
}

fn swept(fit: &Fit) -> Option<&'static Swept> {
    SWEPT.iter().copied().find(|swept| swept.name == fit.over)
}

fn what(plan: &Plan, fit: &Fit) -> String {
    let figure = fitted().find(|figure| figure.name == fit.figure);
    let what = figure.map_or(fit.figure.as_str(), |figure| figure.grows);
    if figure.is_some_and(|figure| !figure.per_operation) {
        return what.to_owned();
    }
    let operation = plan.workload.facts().per;
    format!("{what} per {operation}")
}

fn range(fit: &Fit) -> String {
    match swept(fit) {
        Some(swept) => format!("from {} to {}", number(fit.from), counted(fit.to, swept)),
        None => format!("from {} to {}", number(fit.from), number(fit.to)),
    }
}

fn counted(n: u64, swept: &Swept) -> String {
    format!("{} {}", number(n), swept.noun[usize::from(n != 1)])
}

/// `14k`, `1M`, else with thousands set apart.
pub fn number(n: u64) -> String {
    match n {
        n if n >= 1_000_000 && n.is_multiple_of(1_000_000) => format!("{}M", n / 1_000_000),
        n if n >= 10_000 && n.is_multiple_of(1_000) => format!("{}k", n / 1_000),
        n => grouped(n),
    }
}

/// ` (0.98 to 1.03 times)`; empty without an interval.
fn times(ratio: Option<Interval>) -> String {
    ratio.map_or(String::new(), |ratio| {
        format!(" ({:.2} to {:.2} times)", ratio.low, ratio.high)
    })
}

/// Empty where it would say less than the laws do.
fn exponent(exponent: Option<Interval>) -> String {
    let narrow = exponent.filter(|c| c.high - c.low <= 1.0);
    narrow.map_or(String::new(), |c| {
        format!(" (exponent {:.2} to {:.2})", c.low, c.high)
    })
}

/// A cost that has not even doubled should not be called N^2, whatever law its growth
/// follows.
fn is_mostly_constant(ratio: Option<Interval>) -> bool {
    ratio.is_some_and(|ratio| ratio.estimate < 2.0)
}

fn has_constant(laws: &[FitLaw]) -> bool {
    laws.iter().any(|law| law.law == "1")
}

/// `N`, `N or N log N, which these data cannot tell apart`.
fn laws(laws: &[FitLaw]) -> String {
    let names: Vec<&str> = laws.iter().map(|law| law.law.as_str()).collect();
    match names.split_last() {
        Some((last, others)) if others.len() > 2 => format!(
            "anything from {} to {last}, which these data cannot tell apart",
            others[0]
        ),
        Some((last, others)) if !others.is_empty() => format!(
            "{} or {last}, which these data cannot tell apart",
            others.join(", ")
        ),
        _ => names.concat(),
    }
}

fn bends(what: &str, range: &str, fit: &Fit) -> String {
    let places: Vec<String> = fit
        .bends
        .iter()
        .map(|bend| format!("between {} and {}", number(bend.after), number(bend.before)))
        .collect();
    let mut text = format!(
        "{what} follows no simple law {range}: it bends {}",
        places.join(" and ")
    );
    for part in &fit.parts {
        text += &format!("; {}", of_part(part));
    }
    text
}

fn of_part(part: &FitPart) -> String {
    let range = format!("from {} to {}", number(part.from), number(part.to));
    match part.laws.as_slice() {
        [only] if only.law == "1" => format!("{range} it is constant"),
        [] => format!("{range} it follows no law"),
        found if has_constant(found) || holds_one(part.ratio) => {
            format!("{range} it changes little or not{}", times(part.ratio))
        }
        found if is_mostly_constant(part.ratio) => format!(
            "{range} it grows{}, as a constant with a part like {}",
            times(part.ratio),
            laws(found)
        ),
        found => format!("{range} it grows like {}", laws(found)),
    }
}

/// The data that are missing, and a plan that would give them.
fn too_few(fit: &Fit) -> String {
    let wide = fit.to as f64 / fit.from.max(1) as f64 >= LEAST_SPAN;
    let enough = fit.values >= LEAST_VALUES as u64 && wide;
    let mut would_do = Vec::new();
    if let Some(swept) = swept(fit).filter(|_| !enough) {
        let list = enough_values(fit.from, fit.to);
        let list: Vec<String> = list.iter().map(u64::to_string).collect();
        would_do.push(format!("{} {}", swept.option, list.join(":")));
    }
    if fit.runs < LEAST_RUNS as u64 {
        would_do.push(format!("--runs {LEAST_RUNS}"));
    }
    let noun = swept(fit).map_or("values", |swept| swept.noun[1]);
    format!(
        "growth takes {LEAST_VALUES} numbers of {noun} over two decades and {LEAST_RUNS} runs of \
         each ({} would do)",
        would_do.join(" ")
    )
}

/// As few values as suffice, evenly spread by ratio from the smallest to the
/// largest, or to a hundred times the smallest; two significant digits.
fn enough_values(from: u64, to: u64) -> Vec<u64> {
    let from = from.max(1);
    let to = to.max(from.saturating_mul(LEAST_SPAN as u64));
    let last = LEAST_VALUES as i32 - 1;
    let step = (to as f64 / from as f64).powf(1.0 / f64::from(last));
    let rounded = |exact: f64| {
        let unit = 10_u64.pow((exact.log10().floor() as u32).saturating_sub(1));
        (exact / unit as f64).round() as u64 * unit
    };
    let values = (1..last).map(|i| rounded(from as f64 * step.powi(i)));
    let mut values: Vec<u64> = values.collect();
    values.insert(0, from);
    values.push(to);
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::plan::Workload;

    fn fit(finding: Finding) -> Fit {
        Fit {
            figure: "time_per_operation_ns".to_owned(),
            over: "workers".to_owned(),
            values: 7,
            runs: 6,
            from: 10,
            to: 1000,
            finding: finding.name().to_owned(),
            ratio: Some(Interval {
                estimate: 1.0,
                low: 0.976,
                high: 1.031,
            }),
            ..Fit::default()
        }
    }

    fn law(name: &str) -> FitLaw {
        FitLaw {
            law: name.to_owned(),
            ..FitLaw::default()
        }
    }

    fn said(fit: &Fit) -> String {
        sentence(&Plan::of(Workload::Contend), fit)
    }

    #[test]
    fn each_finding_has_its_sentence() {
        let times = |estimate: f64| {
            Some(Interval {
                estimate,
                low: 0.976 * estimate,
                high: 1.031 * estimate,
            })
        };
        let laws = |names: &[&str]| Fit {
            ratio: times(97.0),
            laws: names.iter().map(|name| law(name)).collect(),
            exponent: Some(Interval {
                estimate: 1.02,
                low: 0.97,
                high: 1.08,
            }),
            ..fit(Finding::Laws)
        };
        let table = [
            (
                fit(Finding::Constant),
                "time per lock is constant from 10 to 1,000 workers (0.98 to 1.03 times)",
            ),
            (
                laws(&["N"]),
                "time per lock grows like N (exponent 0.97 to 1.08) from 10 to 1,000 workers",
            ),
            (
                laws(&["N", "N log N"]),
                "time per lock grows like N or N log N, which these data cannot tell apart \
                 (exponent 0.97 to 1.08) from 10 to 1,000 workers",
            ),
            (
                laws(&["log N", "sqrt N", "N", "N log N"]),
                "time per lock grows like anything from log N to N log N, which these data cannot \
                 tell apart (exponent 0.97 to 1.08) from 10 to 1,000 workers",
            ),
            (
                Fit {
                    ratio: times(1.3),
                    ..laws(&["N^2"])
                },
                "time per lock grows from 10 to 1,000 workers (1.27 to 1.34 times), as a constant \
                 with a part like N^2",
            ),
            (
                Fit {
                    ratio: times(1.0),
                    ..laws(&["1", "log N"])
                },
                "whether time per lock grows from 10 to 1,000 workers these data cannot tell \
                 (0.98 to 1.03 times); more runs might (--runs 12)",
            ),
            // "grows like N^2 (0.79 to 1.49 times)" stood in a picture of ours.
            (
                Fit {
                    ratio: times(1.0),
                    ..laws(&["N^2"])
                },
                "whether time per lock grows from 10 to 1,000 workers these data cannot tell \
                 (0.98 to 1.03 times); more runs might (--runs 12)",
            ),
            (
                fit(Finding::Falls),
                "time per lock falls from 10 to 1,000 workers (0.98 to 1.03 times)",
            ),
        ];
        for (fit, text) in table {
            assert_eq!(said(&fit), text);
        }
    }

    #[test]
    fn one_sentence_holds_what_is_certain_of_all_figures() {
        let of = |figure: &str, finding: Finding, laws: &[&str]| {
            let mut fit = Fit {
                target: "flock".to_owned(),
                figure: figure.to_owned(),
                laws: laws.iter().map(|name| law(name)).collect(),
                ..fit(finding)
            };
            fit.text = said(&fit);
            fit
        };
        let mut grown = of("cpu_us_per_operation", Finding::Laws, &["N"]);
        grown.ratio = Some(Interval {
            estimate: 1.3,
            low: 1.27,
            high: 1.34,
        });
        grown.text = said(&grown);
        let fits = [
            of("time_per_operation_ns", Finding::Constant, &["1"]),
            grown,
            of("server_cpu_us_per_operation", Finding::Laws, &["1", "N"]),
        ];
        assert_eq!(
            closing(&fits),
            [(
                "flock".to_owned(),
                "time per lock is constant from 10 to 1,000 workers (0.98 to 1.03 times); CPU per \
                 lock grows from 10 to 1,000 workers (1.27 to 1.34 times), as a constant with a \
                 part like N."
                    .to_owned()
            )]
        );
        let few = of("time_per_operation_ns", Finding::TooFew, &[]);
        let said = closing(&[few.clone(), few]);
        assert_eq!(said.len(), 1);
        assert!(said[0].1.starts_with("Growth takes 6 numbers"), "{said:?}");
    }

    #[test]
    fn a_bend_names_its_place_and_what_lies_beside_it() {
        let mut bent = fit(Finding::Bends);
        bent.bends = vec![jostle_model::record::FitBend {
            after: 14_000,
            before: 15_000,
        }];
        bent.parts = vec![FitPart {
            from: 1_000,
            to: 14_000,
            laws: vec![law("1")],
            ratio: None,
        }];
        (bent.from, bent.to) = (1_000, 28_000);
        assert_eq!(
            said(&bent),
            "time per lock follows no simple law from 1,000 to 28k workers: it bends between 14k \
             and 15k; from 1,000 to 14k it is constant"
        );
    }

    #[test]
    fn what_would_do_is_said() {
        let few = Fit {
            values: 3,
            runs: 2,
            from: 10,
            to: 1000,
            ..fit(Finding::TooFew)
        };
        assert_eq!(
            said(&few),
            "growth takes 6 numbers of workers over two decades and 6 runs of each \
             (-w 10:25:63:160:400:1000 --runs 6 would do)"
        );
        let short = Fit { runs: 3, ..few };
        assert!(said(&short).contains("--runs 6 would do"));
        let narrow = Fit {
            from: 1,
            to: 3,
            runs: 9,
            ..short
        };
        assert!(said(&narrow).contains("(-w 1:3:6:16:40:100 would do)"));
    }

    #[test]
    fn numbers_are_short() {
        for (n, text) in [
            (7, "7"),
            (1_000, "1,000"),
            (14_116, "14,116"),
            (14_000, "14k"),
            (1_000_000, "1M"),
            (1_234_567, "1,234,567"),
            (10_000_500, "10,000,500"),
        ] {
            assert_eq!(number(n), text);
        }
    }
}
