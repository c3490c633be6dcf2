//! The closing sentences of `spread`: who was the limit, with how many generators.

use super::beside::targets;
use super::{Values, View, shared};
use crate::requests::short;
use jostle_model::record::LimitedBy;
use jostle_stats::figures;
use jostle_stats::spread::{IDLE_ENOUGH, MORE, Pair, SAME, busy};
use jostle_stats::summary::PointSummary;

/// The bottleneck of each target, with the numbers of generators.
pub(super) fn limit(view: &View<'_, '_>) -> Vec<Values> {
    let targets = targets(&view.points);
    let said = targets.iter().flat_map(|target| {
        let of_target = view.points.iter().copied();
        let of_target = of_target.filter(|point| point.target == *target);
        let said = sentences(&of_target.collect::<Vec<_>>()).into_iter();
        said.map(|text| (short(target), text))
    });
    shared(said.collect(), targets.len() > 1)
}

fn sentences(points: &[&PointSummary<'_>]) -> Vec<String> {
    let with = |limit: LimitedBy| -> Vec<&PointSummary<'_>> {
        let limited = |point: &&&PointSummary<'_>| point.limited_by() == Some(limit);
        points.iter().filter(limited).copied().collect()
    };
    let mut said: Vec<String> = Vec::new();
    let weak = with(LimitedBy::Generator);
    let (unclear, weak): (Vec<_>, Vec<_>) =
        weak.into_iter().partition(|point| rival(point).is_some());
    if !weak.is_empty() {
        let busiest = weak.iter().filter_map(|p| busy(p)).reduce(f64::max);
        let busy = busiest.map_or(String::new(), |busy| {
            format!(
                " (the busiest for {:.0} % of its time)",
                100.0 * busy.min(1.0)
            )
        });
        said.push(format!(
            "with {} the generators were the limit{busy}: the rates are theirs, not the server's",
            generators(&weak)
        ));
    }
    if let Some(rival) = unclear.iter().rev().find_map(|point| rival(point)) {
        said.push(format!(
            "with {} the generators lacked CPU time, but {rival}: which was the limit is not known",
            generators(&unclear)
        ));
    }
    said.extend(server_limited(&with(LimitedBy::Target)));
    let open = with(LimitedBy::Undecided);
    if !open.is_empty() {
        let why = open.iter().find_map(|point| {
            let attribution = point.attribution.as_ref()?;
            match (&attribution.not_apart, attribution.pair) {
                (Some(why), _) => Some(format!(": {why}")),
                (None, Some(pair)) if !pair.ratio.interval => Some(format!(
                    ": six blocks tell, and here {} (--runs 6)",
                    match pair.ratio.blocks {
                        1 => "is one".to_owned(),
                        n => format!("are {n}"),
                    }
                )),
                (None, Some(pair)) => Some(format!(": {}", undecided(points, &pair))),
                (None, None) => Some(": no listed number is twice another".to_owned()),
            }
        });
        said.push(format!(
            "with {} it is undecided who was the limit{}",
            generators(&open),
            why.unwrap_or_default()
        ));
    }
    said
}

/// Another possible limit where the generators had no CPU time left: the server was busy, or may
/// have used the same CPUs. None if more generators did more, or if nothing is seen.
pub(crate) fn rival(point: &PointSummary<'_>) -> Option<String> {
    let pair = point.attribution.as_ref().and_then(|found| found.pair);
    let more_did_more =
        |pair: Pair| pair.limit == LimitedBy::Generator && Some(pair.few) == point.at.generators;
    if pair.is_some_and(more_did_more) {
        return None;
    }
    let spread = point.runs.first()?.spread.as_deref()?;
    if spread.disjoint != Some(true) {
        return Some(format!(
            "may have shared it with the server ({})",
            spread.budgets
        ));
    }
    let cpus = point.median(figures::SERVER_CPU)? * point.median(figures::THROUGHPUT)? / 1e6;
    (cpus > IDLE_ENOUGH).then(|| format!("the server used {cpus:.2} CPUs"))
}

/// Why a pair of points leaves the limit open.
fn undecided(points: &[&PointSummary<'_>], pair: &Pair) -> String {
    let Pair {
        few, many, ratio, ..
    } = pair;
    let did = format!(
        "{many} generators did {:.3} to {:.3} times as much as {few}",
        ratio.low, ratio.high
    );
    if ratio.low > MORE {
        return format!("{did}, which tells nothing about {many}");
    }
    if ratio.low < SAME.0 || ratio.high > SAME.1 {
        let (low, high) = SAME;
        return format!("{did} ({low} to {high} names the server, over {MORE} the generators)");
    }
    let of_pair =
        |point: &&&PointSummary<'_>| [Some(*few), Some(*many)].contains(&point.at.generators);
    let busiest = points.iter().filter(of_pair).filter_map(|p| busy(p));
    match busiest.reduce(f64::max) {
        Some(busiest) => format!(
            "{did}, but one of them was busy for {:.0} % of its time (at most {:.0} % names the \
             server)",
            100.0 * busiest,
            100.0 * IDLE_ENOUGH
        ),
        None => format!("{did}, but how busy they were is not known"),
    }
}

fn server_limited(points: &[&PointSummary<'_>]) -> Option<String> {
    let pair = points.iter().find_map(|p| p.attribution.as_ref()?.pair)?;
    let spread = points
        .iter()
        .find_map(|p| p.runs.first()?.spread.as_deref());
    let busiest = points.iter().filter_map(|p| busy(p)).reduce(f64::max)?;
    let in_flight = spread.map_or(0, |spread| spread.in_flight);
    Some(format!(
        "with {} the server was the limit at {in_flight} in flight: {} generators did {:.2} to \
         {:.2} times as much as {}, and the busiest of all was busy for {:.0} % of its time ({})",
        generators(points),
        pair.many,
        pair.ratio.low,
        pair.ratio.high,
        pair.few,
        100.0 * busiest,
        spread.map_or("", |spread| spread.budgets.as_str())
    ))
}

/// `3 and 6 generators`.
fn generators(points: &[&PointSummary<'_>]) -> String {
    let counts = points.iter().filter_map(|point| point.at.generators);
    let counts: Vec<String> = counts.map(|k| k.to_string()).collect();
    match counts.split_last() {
        Some((last, [])) if last == "1" => "1 generator".to_owned(),
        Some((last, [])) => format!("{last} generators"),
        Some((last, others)) => format!("{} and {last} generators", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closing::tests::said as line_of;
    use jostle_model::hosts::HostPart;
    use jostle_model::plan::{Plan, Workload};
    use jostle_model::record::{
        At, Claim, Experiment, Reason, Run, Spread, Status, ThreadLoad, Verdict,
    };
    use jostle_stats::fixtures;
    use jostle_stats::summary::summarize;

    fn experiment() -> Experiment {
        let mut experiment = fixtures::experiment();
        experiment.plan = Plan {
            targets: vec!["lockd".to_owned()],
            ..Plan::of(Workload::Spread)
        };
        experiment
    }

    /// Blocks of k and 2k generators: the rate of the latter by that of the former,
    /// and how busy each were.
    fn runs(ratios: &[f64], busy: [f64; 2], change: fn(&mut Spread)) -> Vec<Run> {
        let run = |k: u64, block: usize, rate: f64, busy_share: f64| {
            let mut spread = Spread {
                in_flight: 90,
                effective: 90.0,
                disjoint: Some(true),
                budgets: "by placement: CPU 0, CPU 1".to_owned(),
                ..Spread::default()
            };
            change(&mut spread);
            Run {
                target: "lockd".to_owned(),
                at: At {
                    generators: Some(k),
                    ..At::default()
                },
                run: block as u32 + 1,
                block: block as u32 + 1,
                throughput_per_s: rate,
                spread: Some(Box::new(spread)),
                thread_loads: vec![ThreadLoad {
                    busy_share,
                    ..ThreadLoad::default()
                }],
                ..fixtures::point()
            }
        };
        let each = ratios.iter().enumerate().flat_map(|(block, ratio)| {
            // The machine drifts meanwhile.
            let rate = 1_000.0 * (1.0 + 0.08 * block as f64);
            [
                run(3, block, rate, busy[0]),
                run(6, block, rate * ratio, busy[1]),
            ]
        });
        each.collect()
    }

    fn found(runs: &[Run]) -> (Vec<Option<LimitedBy>>, String) {
        let experiment = experiment();
        let points = summarize(&experiment, runs);
        let limits = points.iter().map(|p| p.verdict.limited_by).collect();
        (limits, line_of(&experiment, runs, "Limit"))
    }

    #[test]
    fn more_generators_that_bring_more_are_the_limit_and_idle_ones_that_bring_none_are_not() {
        use LimitedBy::{Generator, Target, Undecided};
        const SAME: &[f64] = &[1.0, 1.01, 0.99, 1.0, 1.02, 0.98];
        type Case = (&'static [f64], [f64; 2], [LimitedBy; 2], &'static str);
        let table: &[Case] = &[
            (
                &[1.6; 6],
                [0.6, 0.5],
                [Generator, Undecided],
                "With 3 generators the generators were",
            ),
            (
                SAME,
                [0.5, 0.4],
                [Target, Target],
                "With 3 and 6 generators the server was the limit",
            ),
            (
                SAME,
                [0.71, 0.4],
                [Undecided, Undecided],
                "but one of them was busy for 71 % of its time",
            ),
            (SAME, [0.5, 0.71], [Undecided, Undecided], "undecided"),
            (
                &[1.06, 1.0, 1.1, 1.02, 1.2, 1.0],
                [0.5, 0.4],
                [Undecided, Undecided],
                "(0.95 to 1.05 names the server, over 1.05 the generators)",
            ),
            // Both conditions are missed: the first is told.
            (
                &[1.06, 1.0, 1.1, 1.02, 1.2, 1.0],
                [0.8, 0.4],
                [Undecided, Undecided],
                "(0.95 to 1.05 names the server, over 1.05 the generators)",
            ),
            (
                &[1.6; 6],
                [0.6, 0.5],
                [Generator, Undecided],
                "6 generators did 1.600 to 1.600 times as much as 3, which tells nothing about 6",
            ),
            (
                &[1.6; 3],
                [0.5, 0.4],
                [Undecided, Undecided],
                "six blocks tell, and here are 3",
            ),
            // Busy all the time: no pair is needed.
            (
                SAME,
                [0.95, 0.93],
                [Generator, Generator],
                "the busiest for 95 % of its time",
            ),
        ];
        for (ratios, busy, limits, text) in table {
            let (found, said) = found(&runs(ratios, *busy, |_| {}));
            assert_eq!(found, limits.map(Some), "{ratios:?} {busy:?}");
            assert!(said.contains(text), "{said}");
        }
    }

    #[test]
    fn nothing_is_attributed_where_they_share_their_cpus() {
        let shared = |spread: &mut Spread| {
            spread.disjoint = Some(false);
            spread.budgets = "both may use CPU 0,1".to_owned();
        };
        let (limits, said) = found(&runs(&[1.6; 6], [0.5, 0.4], shared));
        assert_eq!(limits, [Some(LimitedBy::Undecided); 2]);
        assert!(
            said.contains("undecided who was the limit: both may use CPU 0,1"),
            "{said}"
        );
    }

    /// 4 generators were busy for 97 % of their time, and so was the server, or both had one CPU.
    #[test]
    fn busy_generators_are_no_limit_where_the_server_is_busy_or_shares_their_cpus() {
        let pinned = |spread: &mut Spread| {
            spread.disjoint = Some(false);
            spread.budgets = "both may use CPU 0".to_owned();
        };
        let mut runs_of_busy = runs(&[1.0; 6], [0.95, 0.97], |_| {});
        for run in &mut runs_of_busy {
            run.server = Some(jostle_model::record::Server {
                cpu_us_per_operation: Some(0.95e6 / run.throughput_per_s),
                ..Default::default()
            });
        }
        for (runs, rival) in [
            (runs_of_busy, "but the server used 0.95 CPUs"),
            (
                runs(&[1.0; 6], [0.95, 0.97], pinned),
                "but may have shared it with the server (both may use CPU 0)",
            ),
        ] {
            let (limits, said) = found(&runs);
            assert_eq!(limits, [Some(LimitedBy::Generator); 2]);
            assert_eq!(
                said,
                format!(
                    "With 3 and 6 generators the generators lacked CPU time, {rival}: which was \
                     the limit is not known."
                )
            );
        }
    }

    #[test]
    fn an_address_tells_the_server_s_place_only_where_no_other_program_is_busy() {
        let by_address = |spread: &mut Spread| spread.by_address = true;
        let quiet = runs(&[1.6; 6], [0.5, 0.4], by_address);
        assert_eq!(found(&quiet).0[0], Some(LimitedBy::Generator));
        // 12 s: 40 % of the machine is nobody's; or of one host of several, as often.
        let mut busy = quiet.clone();
        for run in &mut busy {
            (
                run.cpu.cpu_s,
                run.around.machine.ticks,
                run.around.machine.busy_ticks,
            ) = (Some(0.0), 1_000, 400);
        }
        let mut on_a_host = quiet;
        for run in &mut on_a_host {
            let verdict = Verdict::of(vec![Reason {
                check: "neighbours".to_owned(),
                is: Status::Suspect,
                claims: vec![Claim::Absolute],
                text: String::new(),
                ..Reason::default()
            }]);
            run.hosts = vec![HostPart {
                verdict,
                ..HostPart::default()
            }];
        }
        for runs in [busy, on_a_host] {
            let (limits, said) = found(&runs);
            assert_eq!(limits, [Some(LimitedBy::Undecided); 2]);
            assert!(said.contains("the server may be among them"), "{said}");
        }
    }

    #[test]
    fn a_pair_whose_few_were_the_limit_is_a_reason_of_the_verdict() {
        let experiment = experiment();
        let runs = runs(&[1.6; 6], [0.6, 0.5], |_| {});
        let points = summarize(&experiment, &runs);
        let reason = &points[0].verdict.reasons[0];
        assert_eq!(
            (reason.check.as_str(), reason.is),
            ("attribution", Status::Suspect)
        );
        assert!(
            reason.text.contains("6 generators did 1.60 times"),
            "{}",
            reason.text
        );
        assert_eq!(points[0].verdict.is, Status::Suspect);
        assert_eq!(points[1].verdict.is, Status::Valid);
    }

    #[test]
    fn of_an_invalid_point_no_limit_is_told() {
        let starved = |spread: &mut Spread| spread.effective = 20.0;
        let (limits, said) = found(&runs(&[1.6; 6], [0.6, 0.5], starved));
        assert_eq!(limits, [Some(LimitedBy::Undecided); 2]);
        assert_eq!(said, "");
    }
}
