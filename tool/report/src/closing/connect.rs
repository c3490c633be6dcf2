//! The clauses of `connect`: the cost of one more connection for a number of open
//! ones, where that cost jumps, why, and how to avoid it.
//!
//! A jump is found in the medians that the table prints, and its cause in the ports that
//! the kernel assigned.

use super::{Values, View, shared};
use crate::connect::measured;
use crate::format::each_once;
use jostle_model::plan::Plan;
use jostle_model::record::At;
use jostle_stats::fairness::is_uneven;
use jostle_stats::figures::{self, Figure};
use jostle_stats::intervals::median;
use jostle_stats::numbers::{counted, grouped};
use jostle_stats::ratio::{Outcome, by_block};
use jostle_stats::summary::PointSummary;

/// A jump is a factor of at least this between neighbours: a virtual machine's own two
/// speeds can make a factor of two.
const JUMP: f64 = 3.0;

/// A curve that stays within this is called flat where no interval decides.
const FLAT: f64 = 1.5;

/// Under so many connections a median still pays for cold caches.
const WARM: u64 = 1_000;

/// What is told of each curve in answer to a question.
pub(super) fn told(view: &View<'_, '_>, question: &str) -> Vec<Values> {
    let points = view.all;
    let all = points.iter().map(|point| (point.target, rest(point.at)));
    let curves: Vec<(&str, At)> = each_once(all);
    let flat_with = |target: &str, sources: Option<u64>| {
        let mut others = curves
            .iter()
            .filter(|(other, at)| *other == target && at.sources > sources && at.sources > Some(1));
        others
            .find(|curve| is_flat(&of_curve(points, **curve)))
            .and_then(|(_, at)| at.sources)
    };
    let said = curves.iter().flat_map(|curve| {
        let flat_with = flat_with(curve.0, curve.1.sources);
        let said = answers(view.plan(), &of_curve(points, *curve), flat_with).into_iter();
        let said = said.filter(|(of, _)| *of == question);
        said.map(|(_, text)| (name(points, *curve), text))
    });
    shared(said.collect(), curves.len() > 1)
}

fn rest(at: At) -> At {
    At { open: None, ..at }
}

fn of_curve<'a, 'b>(
    points: &'b [PointSummary<'a>],
    (target, at): (&str, At),
) -> Vec<&'b PointSummary<'a>> {
    let of_it = |point: &&PointSummary<'_>| point.target == target && rest(point.at) == at;
    let mut found: Vec<&PointSummary<'_>> = points.iter().filter(of_it).collect();
    found.sort_by_key(|point| point.at.open);
    found
}

/// `tcp`, and what tells it from other curves.
fn name(points: &[PointSummary<'_>], (target, at): (&str, At)) -> String {
    let differs =
        |field: fn(At) -> Option<u64>| points.iter().any(|point| field(point.at) != field(at));
    let mut name = target.to_owned();
    if differs(|at| at.sources) {
        name += &format!(" from {}", counted(at.sources.unwrap_or(1), "source"));
    }
    if differs(|at| at.listeners) {
        name += &format!(", {} listen", grouped(at.listeners.unwrap_or(0)));
    }
    name
}

/// The median of the call that is measured, in nanoseconds, where the table
/// prints it.
fn cost(point: &PointSummary<'_>) -> Option<f64> {
    if point.verdict.is_invalid() {
        return None;
    }
    Some(measured(point)?.median)
}

const OF_RUN: Figure = Figure {
    of: |run| (figures::CONNECT_P50.of)(run).or((figures::BIND_P50.of)(run)),
    ..Figure::TIME
};

fn call(plan: &Plan) -> &'static str {
    match plan.only {
        Some(_) => "bind()",
        None => "connect()",
    }
}

/// The steepest step between neighbours that is a jump.
fn jump<'a, 'b>(
    points: &[&'b PointSummary<'a>],
) -> Option<(&'b PointSummary<'a>, &'b PointSummary<'a>, f64)> {
    let usable = points.iter().filter(|point| cost(point).is_some());
    let usable: Vec<&PointSummary<'_>> = usable.copied().collect();
    usable
        .windows(2)
        .filter_map(|pair| Some((pair[0], pair[1], cost(pair[1])? / cost(pair[0])?)))
        // If the clock's steps are longer than most calls, the quotient is infinite.
        .filter(|(.., times)| *times >= JUMP && times.is_finite())
        .max_by(|one, other| one.2.total_cmp(&other.2))
}

/// Whether all its points may be used, and none of them is a jump or has one within it.
fn is_flat(points: &[&PointSummary<'_>]) -> bool {
    let usable = points.iter().all(|point| cost(point).is_some());
    usable && jump(points).is_none() && hidden(points).is_none()
}

/// The first row whose p99 or CPU time contradicts its median, and these figures: of the
/// connections since the row before most may lie below a cliff.
fn hidden<'a, 'b>(points: &[&'b PointSummary<'a>]) -> Option<(&'b PointSummary<'a>, String)> {
    let mut usable = points.iter().filter(|point| cost(point).is_some());
    let first = *usable.clone().next()?;
    usable.find_map(|point| Some((*point, against(first, point)?)))
}

/// The contradiction between this row and its median: against the first row, or within it. In one
/// row alone a p99 may be the machine's, unless the mean follows it.
fn against(first: &PointSummary<'_>, point: &PointSummary<'_>) -> Option<String> {
    let p99 = |point: &PointSummary<'_>| point.median(figures::CONNECT_P99);
    let cpu = |point: &PointSummary<'_>| Some(1e3 * point.median(figures::CPU)?);
    let grew = |of: Option<f64>, from: Option<f64>| {
        of.zip(from).is_some_and(|(of, from)| of >= JUMP * from)
    };
    let each = point.runs.iter();
    let means = each.filter_map(|run| Some(run.times.connect_ns.as_ref()?.mean));
    let mean = median(means);
    let p50 = cost(point);
    let within =
        grew(p99(point), p50) && mean.zip(p50).is_some_and(|(mean, p50)| mean >= FLAT * p50);
    let last = point.median(figures::CONNECT_LAST_P50);
    let said = [
        (grew(last, p50), "the median of the last 100", last),
        (within || grew(p99(point), p99(first)), "p99", p99(point)),
        (within, "the mean", mean),
        (
            grew(cpu(point), cpu(first)),
            "the client's CPU time for each",
            cpu(point),
        ),
    ];
    let said = said.into_iter().filter(|(against, ..)| *against);
    let said = said.filter_map(|(_, name, ns)| Some(format!("{name} is {}", time(ns?))));
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| said.join(", "))
}

/// Questions, and what a curve answers.
fn answers(
    plan: &Plan,
    points: &[&PointSummary<'_>],
    flat_with: Option<u64>,
) -> Vec<(&'static str, String)> {
    let mut said: Vec<(&'static str, String)> = Vec::new();
    match jump(points) {
        Some((below, above, times)) => {
            said.push(("Cliff", jumped(plan, below, above, times)));
            let why = why(plan, below, above, flat_with);
            said.extend(
                why.into_iter()
                    .flat_map(|[why, avoids]| [("Why", why), ("Avoid", avoids)]),
            );
        }
        None => {
            let course = within_a_row(plan, points).or_else(|| course(plan, points));
            said.extend(course.map(|text| ("Cost", text)));
        }
    }
    said.extend(skew(points).map(|text| ("Balance", text)));
    said.extend(ended(points).map(|text| ("Limit", text)));
    said
}

fn jumped(plan: &Plan, below: &PointSummary<'_>, above: &PointSummary<'_>, times: f64) -> String {
    format!(
        "{} takes {times:.0} times as long with {} open as with {} ({} instead of {})",
        call(plan),
        grouped(above.at.open.unwrap_or(0)),
        grouped(below.at.open.unwrap_or(0)),
        time(cost(above).unwrap_or(0.0)),
        time(cost(below).unwrap_or(0.0)),
    )
}

/// In place of a sentence that the row's other figures contradict.
fn within_a_row(plan: &Plan, points: &[&PointSummary<'_>]) -> Option<String> {
    let (point, against) = hidden(points)?;
    let (cost_ns, open) = (time(cost(point)?), grouped(point.at.open?));
    let takes = match first_warm(points).filter(|first| first.at != point.at) {
        Some(first) => format!(
            "{} in the median with {} open and {cost_ns} with {open}",
            time(cost(first)?),
            grouped(first.at.open?)
        ),
        None => format!("{cost_ns} in the median up to {open} open"),
    };
    Some(format!(
        "{} takes {takes}, but {against}: some take far longer, and more values of --open show \
         from which number on",
        call(plan),
    ))
}

/// Ports of one parity were given until none was left; then the others.
fn why(
    plan: &Plan,
    below: &PointSummary<'_>,
    above: &PointSummary<'_>,
    flat_with: Option<u64>,
) -> Option<[String; 2]> {
    let of = |point: &PointSummary<'_>| -> Option<[u64; 2]> {
        let each = point.runs.iter();
        each.map(|run| run.connections.as_ref()?.parities)
            .try_fold([0, 0], |sum, one| {
                one.map(|one| [sum[0] + one[0], sum[1] + one[1]])
            })
    };
    let (before, after) = (of(below)?, of(above)?);
    let connections = above.runs.first()?.connections.as_ref()?;
    let range = connections.port_range?;
    let (even, odd) = range.parities();
    let turned =
        |one: usize, other: usize| before[one] > 10 * before[other] && after[other] >= after[one];
    let (first, second, capacity) = match () {
        () if turned(0, 1) => ("even", "odd", even),
        () if turned(1, 0) => ("odd", "even", odd),
        () => return None,
    };
    let avoids = match flat_with {
        Some(sources) => format!("bind to several source addresses: --sources {sources} has no cliff here"),
        None if plan.ports() == 1 => {
            "more source addresses (--sources), more destination ports (--ports), or a range of the \
             sockets' own (--port-range)"
                .to_owned()
        }
        None => "more source addresses (--sources) or a range of the sockets' own (--port-range)"
            .to_owned(),
    };
    let used_up = match connections.pairs {
        1 => format!(
            "the {} {first} ports of {range} are used up",
            grouped(capacity)
        ),
        pairs => format!(
            "the {first} ports of {range} are used up, {} for each of {} pairs of addresses",
            grouped(capacity),
            grouped(pairs)
        ),
    };
    let why = format!(
        "{used_up}, and each call looks at all of them again before it tries the {second} ones"
    );
    Some([why, avoids])
}

/// The first that may be used and had enough connections before it, else the first that may be
/// used.
fn first_warm<'a, 'b>(points: &[&'b PointSummary<'a>]) -> Option<&'b PointSummary<'a>> {
    let mut usable = points.iter().filter(|point| cost(point).is_some());
    let warm = |point: &&&PointSummary<'_>| {
        let before = point.runs.iter().map(|run| run.operations).min();
        before >= Some(WARM)
    };
    let found = usable.clone().find(warm).or_else(|| usable.next());
    found.copied()
}

/// From the first warm point to the last.
fn course(plan: &Plan, points: &[&PointSummary<'_>]) -> Option<String> {
    let last = points.iter().rfind(|point| cost(point).is_some())?;
    let first = first_warm(points)?;
    let (from, to) = (grouped(first.at.open?), grouped(last.at.open?));
    let (few, many) = (time(cost(first)?), time(cost(last)?));
    if first.at == last.at {
        return Some(format!("{} takes {many} up to {to} open", call(plan)));
    }
    let times = cost(last)? / cost(first)?;
    let ratio = by_block(first, last, &OF_RUN)?;
    Some(match ratio.outcome {
        Outcome::Same => format!(
            "{} takes as long with {to} open as with {from}, within 5 % ({many})",
            call(plan)
        ),
        Outcome::Differs => format!(
            "{} takes {times:.2} times as long with {to} open as with {from} ({many} instead of \
             {few})",
            call(plan)
        ),
        Outcome::Undecided if (1.0 / FLAT..FLAT).contains(&times) => format!(
            "{} has no jump from {from} to {to} open ({few} and {many})",
            call(plan)
        ),
        Outcome::Undecided => format!(
            "{} takes {times:.2} times as long with {to} open as with {from}, undecided ({many} \
             instead of {few})",
            call(plan)
        ),
    })
}

/// How evenly several acceptors were served.
fn skew(points: &[&PointSummary<'_>]) -> Option<String> {
    let usable = |p: &&&PointSummary<'_>| p.per_worker.is_some() && !p.verdict.is_invalid();
    let last = points.iter().rev().find(usable)?;
    let mut sums: Vec<u64> = Vec::new();
    for run in last.runs.iter().filter_map(|run| run.connections.as_ref()) {
        sums.resize(sums.len().max(run.accepted.len()), 0);
        for (sum, accepted) in sums.iter_mut().zip(&run.accepted) {
            *sum += accepted;
        }
    }
    let all: u64 = sums.iter().sum();
    let share = |n: Option<&u64>| 100.0 * *n.unwrap_or(&0) as f64 / all.max(1) as f64;
    let uneven = match is_uneven(&sums) {
        true => ", less even than by chance",
        false => "",
    };
    Some(format!(
        "of {} acceptors the busiest took {:.0} % and the idlest {:.0} % up to {} open{uneven}",
        sums.len(),
        share(sums.iter().max()),
        share(sums.iter().min()),
        grouped(last.at.open.unwrap_or(0))
    ))
}

/// The limit that ended it.
fn ended(points: &[&PointSummary<'_>]) -> Option<String> {
    let bad = points
        .iter()
        .find_map(|point| Some((point.at.open?, point.verdict.why_invalid()?)));
    let (open, reason) = bad?;
    let is_limit = reason.check == "limit";
    is_limit.then(|| format!("it ends before {}: {}", grouped(open), reason.text))
}

/// `3.4 us`, `290 us`, as the table has them.
pub(crate) fn time(ns: f64) -> String {
    let us = ns / 1e3;
    match us {
        ..10.0 => format!("{us:.1} us"),
        _ => format!("{us:.0} us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closing::tests::planned;
    use crate::made::run_of;
    use jostle_model::List;
    use jostle_model::connect::{Connections, Stopped};
    use jostle_model::plan::Workload;
    use jostle_model::record::{Run, Times};
    use jostle_stats::fixtures;

    /// Six sweeps of one number, give or take one in a hundred.
    fn runs(sources: u64, open: u64, us: f64, parities: [u64; 2]) -> Vec<Run> {
        let at = At {
            open: Some(open),
            sources: Some(sources),
            listeners: Some(0),
            ..At::default()
        };
        let run = |block: u32| {
            let ns = us * 1e3 * (1.0 + 0.002 * f64::from(block));
            Run {
                operations: parities.iter().sum(),
                times: Times {
                    connect_ns: Some(fixtures::distribution(1_000, ns as u64)),
                    ..Times::default()
                },
                connections: Some(Box::new(Connections {
                    opened: open,
                    parities: Some(parities),
                    port_range: "32768-60999".parse().ok(),
                    pairs: sources,
                    ..Connections::default()
                })),
                ..run_of("tcp", Workload::Connect, at, block, 1.0)
            }
        };
        (1..=6).map(run).collect()
    }

    fn said(runs: &[Run], question: &str) -> String {
        let plan = Plan {
            targets: vec!["tcp".to_owned()],
            open: Some(List(vec![1_000, 14_000, 15_000])),
            sources: Some(List(vec![1, 16])),
            listeners: Some(List(vec![0])),
            ports: Some(1),
            ..Plan::of(Workload::Connect)
        };
        planned(plan, runs, question)
    }

    #[test]
    fn a_jump_has_its_reason_and_what_avoids_it() {
        let mut all = runs(1, 1_000, 8.0, [1_000, 0]);
        all.extend(runs(1, 14_000, 9.0, [13_000, 0]));
        all.extend(runs(1, 15_000, 540.0, [116, 884]));
        assert_eq!(
            said(&all, "Cliff"),
            "connect() takes 60 times as long with 15,000 open as with 14,000 (544 us instead of \
             9.1 us)."
        );
        assert_eq!(
            said(&all, "Why"),
            "The 14,116 even ports of 32768-60999 are used up, and each call looks at all of them \
             again before it tries the odd ones."
        );
        assert_eq!(
            said(&all, "Avoid"),
            "More source addresses (--sources), more destination ports (--ports), or a range of the \
             sockets' own (--port-range)."
        );
        for (open, us) in [(1_000, 8.0), (14_000, 8.1), (15_000, 8.1)] {
            all.extend(runs(16, open, us, [1_000, 0]));
        }
        assert_eq!(
            said(&all, "Avoid"),
            "tcp from 1 source: bind to several source addresses: --sources 16 has no cliff here."
        );
        assert_eq!(
            said(&all, "Cost"),
            "tcp from 16 sources: connect() takes as long with 15,000 open as with 1,000, within 5 % \
             (8.2 us)."
        );
    }

    /// 755 of 1,000 connections were at one of four processes, without a word.
    #[test]
    fn connections_at_one_of_several_acceptors_are_told() {
        let told = |accepted: [u64; 4]| {
            let mut runs = runs(1, 1_000, 8.0, [1_000, 0]);
            for run in &mut runs {
                run.per_worker = jostle_stats::fairness::per_worker(&accepted);
                run.connections.as_mut().unwrap().accepted = accepted.to_vec();
            }
            said(&runs, "Balance")
        };
        let uneven = told([80, 755, 83, 82]);
        let expected = "Of 4 acceptors the busiest took 76 % and the idlest 8 % up to 1,000 open, \
                        less even than by chance.";
        assert_eq!(uneven, expected);
        let even = told([250, 240, 262, 248]);
        assert!(
            even.ends_with("the idlest 24 % up to 1,000 open."),
            "{even}"
        );
    }

    /// 629 us at 20,000 open were "takes 18 us": most connects since 1,000 lie below the cliff.
    #[test]
    fn a_flat_median_is_not_reported_where_p99_or_cpu_time_contradict_it() {
        let with = |p99_us: u64, mean_us: u64, cpu_us: f64| {
            let mut all = runs(1, 1_000, 18.0, [1_000, 0]);
            all.extend(runs(1, 20_000, 18.0, [13_116, 5_884]));
            for run in &mut all {
                let last = run.at.open == Some(20_000);
                let [p99_us, mean_us] = if last { [p99_us, mean_us] } else { [30, 19] };
                let connect = run.times.connect_ns.as_mut().unwrap();
                connect.percentiles.insert("p99", 1_000 * p99_us);
                connect.mean = 1e3 * mean_us as f64;
                run.cpu.cpu_us_per_operation = Some(if last { cpu_us } else { 25.0 });
            }
            (said(&all, "Cost"), all)
        };
        let (text, mut points) = with(629, 210, 220.0);
        let against = "but p99 is 629 us, the mean is 210 us, the client's CPU time for each is \
                       220 us: some take far longer, and more values of --open show from which \
                       number on.";
        let median = "connect() takes 18 us in the median with 1,000 open and 18 us with 20,000, ";
        assert_eq!(text, format!("{median}{against}"));
        // What the last connects took is no guess.
        let mut last = points.clone();
        for run in last.iter_mut().filter(|run| run.at.open == Some(20_000)) {
            run.times.connect_last_ns = Some(fixtures::distribution(100, 629_000));
        }
        let text = said(&last, "Cost");
        let with_last = format!("{median}but the median of the last 100 is 629 us, p99 is");
        assert!(text.starts_with(&with_last), "{text}");
        // One row alone has nothing to compare with but itself.
        points.retain(|point| point.at.open == Some(20_000));
        assert!(said(&points, "Cost").contains("but p99 is 629 us, the mean is 210 us: some"));
        assert!(
            with(31, 19, 76.0)
                .0
                .contains("but the client's CPU time for each is 76 us")
        );
        let (flat, mut points) = with(80, 20, 30.0);
        assert!(
            flat.starts_with("connect() takes as long with 20,000"),
            "{flat}"
        );
        // A machine's hiccups in the only row.
        points.retain(|point| point.at.open == Some(20_000));
        assert_eq!(
            said(&points, "Cost"),
            "connect() takes 18 us up to 20,000 open."
        );
    }

    #[test]
    fn a_jump_without_a_change_of_ports_has_no_reason() {
        let mut all = runs(1, 1_000, 8.0, [1_000, 0]);
        all.extend(runs(1, 14_000, 80.0, [13_000, 0]));
        assert_eq!(said(&all, "Why"), "");
        assert_eq!(
            said(&all, "Cliff"),
            "connect() takes 10 times as long with 14,000 open as with 1,000 (81 us instead of \
             8.1 us)."
        );
    }

    #[test]
    fn what_is_flat_and_what_grows_slowly_is_told_apart() {
        for (us, text) in [
            (
                8.0,
                "connect() takes as long with 14,000 open as with 1,000, within 5 % (8.1 us).",
            ),
            (
                16.0,
                "connect() takes 2.00 times as long with 14,000 open as with 1,000 (16 us instead \
                 of 8.1 us).",
            ),
        ] {
            let mut all = runs(1, 1_000, 8.0, [1_000, 0]);
            all.extend(runs(1, 14_000, us, [13_000, 0]));
            assert_eq!(said(&all, "Cost"), text);
        }
        let mut few = runs(1, 1_000, 8.0, [1_000, 0]);
        few.extend(runs(1, 14_000, 9.0, [13_000, 0]));
        few.retain(|run| run.block <= 3);
        assert_eq!(
            said(&few, "Cost"),
            "connect() has no jump from 1,000 to 14,000 open (8.0 us and 9.0 us)."
        );
    }

    #[test]
    fn the_limit_that_ended_a_sweep_is_said_with_its_remedy() {
        let mut all = runs(1, 1_000, 8.0, [1_000, 0]);
        let mut last = runs(1, 14_000, 8.0, [13_000, 0]);
        for run in &mut last {
            run.connections.as_mut().unwrap().stopped = Some(Stopped {
                text: "EADDRNOTAVAIL after 9,000 connections; --sources 2".to_owned(),
                ..Stopped::default()
            });
        }
        all.extend(last);
        assert_eq!(
            said(&all, "Limit"),
            "It ends before 14,000: EADDRNOTAVAIL after 9,000 connections; --sources 2."
        );
    }
}
