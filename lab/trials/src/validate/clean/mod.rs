//! Measurements on an idle machine: almost all of them must be VALID, and nearly nothing may be
//! blamed on neighbours or go unchecked.
//!
//! A line is one command of one point ([`mod@lines`]). The verdict of a point is the one that
//! the table prints. Whether the machine was idle is not jostle's to say: a sampler of its own
//! (`quiet`) reads what ran before, beside and after each point. Points beside which it saw
//! something are counted apart.

mod lines;

use super::bench::Bench;
use super::quiet::{Beside, Sampler};
use super::store::{Store, slim};
use super::{Required, Row, Series, machine};
use jostle_model::record::{Experiment, Reason, Run, Status};
use jostle_stats::summary::{PointSummary, summarize};
use jostle_testbed::servers::Placed;
use lines::{Line, lines};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Shares of the points beside which nothing ran: flagged at most, and VALID at least.
const FLAGGED: f64 = 0.01;
const VALID: f64 = 0.9;

/// Checks that must not speak on an idle machine.
const OF_NEIGHBOURS: [&str; 2] = ["neighbours", "unchecked"];

/// The measurements of a command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Measured {
    /// The name of its [`Line`].
    pub line: String,
    /// How long idle CPUs polled before they halted, where the machine has that.
    pub halt_poll_ns: Option<u64>,
    pub beside: Beside,
    pub experiment: Experiment,
    /// Without slices, and without histograms that no check looks at.
    pub points: Vec<Run>,
}

/// How long an idle CPU of a virtual machine polls before it halts, which moves the rates of
/// locks by a factor: with another setting all lines are measured anew.
const HALT_POLL: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";

/// Collects what is missing, as far as time allows, and judges all there is.
pub(super) fn rows(series: &Series, points: usize) -> anyhow::Result<Vec<Row>> {
    let (mut store, until) = series.collect.begin()?;
    if Instant::now() >= until {
        return Ok(report(&store.lines));
    }
    let mut lines = lines(points);
    lines.retain(|line| series.has(&line.name));
    collect(&lines, &mut store, until, series)?;
    Ok(report(&store.lines))
}

/// The lines that were not measured yet with idle CPUs as they are now.
fn missing<'a>(
    lines: &'a [Line],
    measured: &[Measured],
    halt_poll_ns: Option<u64>,
) -> Vec<&'a Line> {
    let done: BTreeSet<&str> = measured
        .iter()
        .filter(|done| done.halt_poll_ns == halt_poll_ns)
        .map(|done| done.line.as_str())
        .collect();
    let missing = lines.iter().filter(|line| !done.contains(&*line.name));
    missing.collect()
}

fn collect(
    lines: &[Line],
    store: &mut Store<Measured>,
    until: Instant,
    series: &Series,
) -> anyhow::Result<()> {
    let setting = std::fs::read_to_string(HALT_POLL);
    let halt_poll_ns = setting.ok().and_then(|ns| ns.trim().parse().ok());
    let missing = missing(lines, &store.lines, halt_poll_ns);
    if missing.is_empty() || Instant::now() >= until {
        return Ok(());
    }
    let sampler = Sampler::start()?;
    // `call` starts these, beside the servers.
    let packages = ["redis-tools", "curl", "ldap-utils"];
    let mut bench = Bench::set_up(&series.jostle()?, &packages, None)?;
    for server in missing.iter().filter_map(|line| line.server) {
        bench.serve(server, false)?;
    }
    for (nth, line) in missing.iter().enumerate() {
        if Instant::now() >= until {
            break;
        }
        eprintln!("{} of {}: {}", nth + 1, missing.len(), line.name);
        let (measured, beside) = sampler.beside(|| run(&bench, line))?;
        let (experiment, points) = match measured {
            Ok(measured) => measured,
            // The others are worth having, and the next call tries this one again.
            Err(error) => {
                eprintln!("{error:#}");
                continue;
            }
        };
        store.add(Measured {
            line: line.name.clone(),
            halt_poll_ns,
            beside,
            experiment,
            points,
        })?;
    }
    Ok(())
}

fn run(bench: &Bench, line: &Line) -> anyhow::Result<(Experiment, Vec<Run>)> {
    let server = line.server.map(|server| bench.server(server)).transpose()?;
    let mut set = bench.measure(Placed::default(), &line.words(server))?;
    set.runs.iter_mut().for_each(slim);
    Ok((set.experiment, set.runs))
}

/// A point with its verdict.
struct Judged<'a> {
    measured: &'a Measured,
    summary: PointSummary<'a>,
}

impl Judged<'_> {
    fn is(&self, is: Status) -> bool {
        self.summary.verdict.is == is
    }

    fn flags(&self) -> impl Iterator<Item = &Reason> {
        let reasons = self.summary.verdict.reasons.iter();
        reasons.filter(|reason| OF_NEIGHBOURS.contains(&&*reason.check))
    }

    fn is_flagged(&self) -> bool {
        self.flags().next().is_some()
    }
}

fn judge(measured: &[Measured]) -> Vec<Judged<'_>> {
    let each = measured.iter().flat_map(|measured| {
        let points = summarize(&measured.experiment, &measured.points);
        points
            .into_iter()
            .map(move |summary| Judged { measured, summary })
    });
    each.collect()
}

fn report(measured: &[Measured]) -> Vec<Row> {
    let judged = judge(measured);
    let mut settings: BTreeMap<Option<u64>, Vec<&Judged<'_>>> = BTreeMap::new();
    for point in &judged {
        let setting = settings.entry(point.measured.halt_poll_ns);
        setting.or_default().push(point);
    }
    let each = settings.iter().flat_map(|(halt_poll_ns, points)| {
        let setting = match halt_poll_ns {
            Some(ns) => format!("idle CPUs poll {ns} ns"),
            None => "all".to_owned(),
        };
        describe(&setting, points);
        required(&setting, points)
    });
    each.collect()
}

fn required(setting: &str, points: &[&Judged<'_>]) -> Vec<Row> {
    let [quiet, busy]: [Vec<&Judged<'_>>; 2] = [true, false].map(|quiet| {
        let each = points.iter().copied();
        each.filter(|point| point.measured.beside.is_quiet() == quiet)
            .collect()
    });
    let row = |what: &str, of: &[&Judged<'_>], is: fn(&&&Judged<'_>) -> bool, required| {
        Row::counting(format!("{setting}: {what}"), of, is, required)
    };
    let flagged = |point: &&&Judged<'_>| point.is_flagged();
    let invalid = |point: &&&Judged<'_>| point.is(Status::Invalid);
    let valid = |point: &&&Judged<'_>| point.is(Status::Valid);
    let not_quiet = |point: &&&Judged<'_>| !point.measured.beside.is_quiet();
    let (few, most) = (Required::AtMost(FLAGGED), Required::AtLeast(VALID));
    let of_neighbours = "clean, flagged for neighbours or unchecked";
    vec![
        row(of_neighbours, &quiet, flagged, few),
        row("clean, INVALID", &quiet, invalid, Required::AtMost(0.0)),
        row("clean, VALID", &quiet, valid, most),
        row("not clean", points, not_quiet, Required::Nothing),
        row("not clean, flagged", &busy, flagged, Required::Nothing),
        row("not clean, INVALID", &busy, invalid, Required::Nothing),
    ]
}

fn describe(setting: &str, points: &[&Judged<'_>]) {
    let Some(first) = points.first() else { return };
    let count = |is| points.iter().filter(|point| point.is(is)).count();
    println!(
        "{setting}: {} points of {} runs, {} VALID, {} SUSPECT, {} INVALID; {}",
        points.len(),
        points
            .iter()
            .map(|point| point.summary.runs.len())
            .sum::<usize>(),
        count(Status::Valid),
        count(Status::Suspect),
        count(Status::Invalid),
        machine(&first.measured.experiment.environment)
    );
    for (check, [suspect, invalid]) in by_check(points) {
        println!("  {check:<16}  SUSPECT {suspect:>3}  INVALID {invalid:>3}");
    }
    for point in points {
        let is_invalid = point.is(Status::Invalid);
        let reasons = point.summary.verdict.reasons.iter();
        let told = reasons
            .filter(|reason| is_invalid || OF_NEIGHBOURS.contains(&&*reason.check))
            .map(|reason| format!("{} ({}): {}", reason.check, reason.is, reason.text));
        let told: Vec<String> = told.collect();
        if !told.is_empty() {
            let beside = point.measured.beside;
            let shares = [beside.foreign, beside.stolen, beside.worst];
            let [foreign, stolen, worst] = shares.map(|share| 100.0 * share);
            println!(
                "  {}: {}; beside it {foreign:.1} % foreign, {stolen:.1} % stolen, {worst:.1} % \
                 in the worst second",
                point.measured.line,
                told.join("; ")
            );
        }
    }
    println!();
}

/// Points that each check made SUSPECT, and INVALID.
fn by_check<'a>(points: &[&'a Judged<'_>]) -> BTreeMap<&'a str, [usize; 2]> {
    let mut checks: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for point in points {
        for reason in &point.summary.verdict.reasons {
            let counts = checks.entry(&reason.check).or_default();
            counts[usize::from(reason.is == Status::Invalid)] += 1;
        }
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::super::quiet::QUIET;
    use super::*;
    use jostle_model::List;
    use jostle_model::plan::{Plan, Workload};
    use jostle_model::record::{Accounts, At, Calibration, Environment, SCHEMA, Window};

    /// A line with a point for each number of workers, each of three runs.
    fn measured(line: &str, halt_poll_ns: Option<u64>, workers: &[u64]) -> Measured {
        let mut plan = Plan::of(Workload::Contend);
        plan.targets = vec!["flock".to_owned()];
        plan.workers = Some(List(workers.to_vec()));
        let runs = workers
            .iter()
            .flat_map(|workers| (1..=3).map(move |run| (*workers, run)));
        let points = runs.map(|(workers, run)| Run {
            target: "flock".to_owned(),
            workload: "contend".to_owned(),
            at: At {
                workers: Some(workers),
                ..At::default()
            },
            run,
            block: run,
            operations: 100_000,
            window: Window {
                window_s: 1.0,
                ..Window::default()
            },
            throughput_per_s: 100_000.0,
            ..Run::default()
        });
        Measured {
            line: line.to_owned(),
            halt_poll_ns,
            beside: Beside {
                foreign: 0.002,
                stolen: 0.0,
                worst: QUIET,
            },
            points: points.collect(),
            experiment: Experiment {
                schema: SCHEMA.to_owned(),
                plan,
                environment: Environment::default(),
                calibration: Calibration::default(),
                target_facts: Default::default(),
                started_at: String::new(),
            },
        }
    }

    #[test]
    fn a_line_is_measured_once_with_each_setting() {
        let lines = lines(usize::MAX);
        let done = [
            measured(&lines[0].name, Some(0), &[1]),
            measured(&lines[1].name, Some(200_000), &[1]),
        ];
        let names = |ns| -> Vec<&str> {
            let missing = missing(&lines[..3], &done, ns);
            missing.iter().map(|line| line.name.as_str()).collect()
        };
        assert_eq!(names(Some(0)), [&lines[1].name, &lines[2].name]);
        assert_eq!(names(Some(200_000)), [&lines[0].name, &lines[2].name]);
        assert_eq!(names(None).len(), 3);
    }

    #[test]
    fn points_are_counted_by_verdict_and_by_check() {
        let mut measured = measured("contend flock, no hold", None, &[1, 2, 4]);
        // The last point: an operation that failed in each of its runs.
        for run in &mut measured.points[6..] {
            run.around.errors = [("EIO".to_owned(), 100_000)].into();
            run.around.accounts = Some(Box::new(Accounts {
                between_s: 1.0,
                cpus: 2,
                stolen_s: Some(0.1),
                ..Accounts::default()
            }));
        }
        let all = [measured];
        let judged = judge(&all);
        let points: Vec<&Judged<'_>> = judged.iter().collect();
        let counts = by_check(&points);
        assert_eq!(counts["errors"], [0, 1], "{counts:?}");
        let counts = |points: &[&Judged<'_>]| -> Vec<(u64, u64)> {
            let rows = required("all", points);
            rows.iter().map(|row| (row.count, row.trials)).collect()
        };
        // What the hypervisor took kept it from its CPUs as well.
        let none = (0, 0);
        assert_eq!(
            counts(&points),
            [(1, 3), (1, 3), (2, 3), (0, 3), none, none]
        );
        let mut busy = all;
        busy[0].beside.worst = 1.01 * QUIET;
        let judged = judge(&busy);
        let points: Vec<&Judged<'_>> = judged.iter().collect();
        assert_eq!(counts(&points), [none, none, none, (3, 3), (1, 3), (1, 3)]);
    }

    #[test]
    fn a_point_that_a_check_of_neighbours_flags_is_counted_whatever_its_verdict() {
        let all = [measured("contend flock, no hold", None, &[1, 2])];
        let mut judged = judge(&all);
        judged[1].summary.verdict.reasons.push(Reason {
            check: "unchecked".to_owned(),
            is: Status::Suspect,
            claims: Vec::new(),
            text: "unchecked: others".to_owned(),
            ..Reason::default()
        });
        let points: Vec<&Judged<'_>> = judged.iter().collect();
        assert_eq!(required("all", &points)[0].count, 1);
    }

    /// 2 of 25 clean points are flagged, and 6 of 75 that were not clean are INVALID: a changed rule
    /// may flag fewer. Two of the 6 are services beside which others ran for 3 to 4 % of the time:
    /// what that may have hastened is not bounded.
    #[test]
    fn recorded_points_of_an_idle_machine_are_judged_as_they_were() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../record/validate-clean.jsonl"
        );
        let measured = Store::<Measured>::read(file.as_ref()).unwrap().lines;
        let judged = judge(&measured);
        let points: Vec<&Judged<'_>> = judged.iter().collect();
        let rows = required("all", &points);
        let counts: Vec<(u64, u64)> = rows.iter().map(|row| (row.count, row.trials)).collect();
        let [flagged, invalid, valid, busy, busy_flagged, busy_invalid] = counts[..] else {
            panic!("{counts:?}");
        };
        assert_eq!((busy, invalid), ((75, 100), (0, 25)));
        assert!(flagged.0 <= 2 && busy_flagged.0 <= 9 && busy_invalid.0 <= 6);
        assert!(valid.0 >= 21, "{valid:?}");
    }
}
