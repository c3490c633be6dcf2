//! The harmed runs, and their verdicts: a pure function of the runs.
//!
//! - A trial is a run with something planted, and its two controls. It is *harmed* if a
//!   headline moved ([`super::super::chain`]). A quota that never stopped the group was not planted, by our own reading of
//!   its cpu.stat.
//! - It is *flagged* if the verdict is against each headline that moved, or
//!   names generator or machine as the limit. `profiled` is not heard: it says that
//!   something ran along, which is how it is planted.
//! - A run that was left alone is *flagged* if the verdict names the generator as
//!   the limit, if a check of generators speaks, or if it is INVALID.
//! - Runs that the machine itself spoilt count as neither: CPU time stolen above
//!   2 %; of those left alone also where other programs used 3 % of the machine, or
//!   a canary shares the lag.

use super::Run;
use super::kinds::{Figure, Kind};
use crate::validate::chain::{self, Link, Linked, Moved};
use crate::validate::plants::{Plant, Planted};
use jostle_model::record::{
    self, Calibration, Claim, Environment, Experiment, LimitedBy, Reason, SCHEMA, Status, Verdict,
};
use jostle_stats::checks::{Evidence, verdict};

/// Share of the CPU time that was wanted.
const STOLEN: f64 = 0.02;

/// Share of all CPUs that other programs may use.
const OTHERS: f64 = 0.03;

/// Says that something ran along.
const PROFILED: &str = "profiled";

/// Speaks of other programs: what was planted as one, and what ran there anyway.
const NEIGHBOURS: &str = "neighbours";

/// Speaks of the hypervisor.
const STEAL: &str = "steal";

/// Checks of generators; a rate or percentile that they doubt is theirs.
const OF_GENERATORS: [&str; 5] = ["generator", "lag", "concurrency", "throttled", "halted"];

/// A run with its verdict.
pub(super) struct Judged<'a> {
    pub run: &'a Run,
    pub kind: Kind,
    pub verdict: Verdict,
}

/// Something planted that came to a result.
pub(super) struct Trial<'a> {
    pub judged: &'a Judged<'a>,
    pub planted: Planted,
    /// Headlines that moved, and to how much of what they were.
    pub moved: Vec<(Figure, f64)>,
    /// The checks (or the limit) that flag it; none: it was missed.
    pub by: Vec<String>,
}

impl Trial<'_> {
    pub(super) fn is_harmed(&self) -> bool {
        !self.moved.is_empty()
    }

    pub(super) fn is_flagged(&self) -> bool {
        !self.by.is_empty()
    }

    /// Whether it would be where other programs cannot be seen.
    pub(super) fn is_flagged_by_others(&self) -> bool {
        self.by.iter().any(|check| check != NEIGHBOURS)
    }
}

/// Judges the runs of sessions, given in the order in which they were made.
pub(super) fn judge(runs: &[Run]) -> Vec<Judged<'_>> {
    let mut environment = Environment::default();
    let mut judged = Vec::new();
    for run in runs {
        if let Some(of_session) = &run.environment {
            environment = of_session.clone();
        }
        let Some(kind) = Kind::named(&run.link.kind) else {
            continue;
        };
        // Facts beside the run that checks need.
        let experiment = Experiment {
            schema: SCHEMA.to_owned(),
            plan: run.plan.clone(),
            environment: environment.clone(),
            calibration: Calibration::default(),
            target_facts: Default::default(),
            started_at: String::new(),
        };
        let evidence = Evidence {
            experiment: &experiment,
            runs: &[&run.point],
        };
        judged.push(Judged {
            run,
            kind,
            verdict: verdict(&evidence),
        });
    }
    judged
}

impl Linked for Judged<'_> {
    fn link(&self) -> &Link {
        &self.run.link
    }
}

impl Judged<'_> {
    fn says(&self, check: &str) -> bool {
        let mut reasons = self.verdict.reasons.iter();
        reasons.any(|reason| reason.check == check)
    }

    /// Whether the machine itself took part.
    pub(super) fn is_spoilt(&self) -> bool {
        let foreign = self.says(NEIGHBOURS) || self.verdict.limited_by == Some(LimitedBy::Machine);
        let point = &self.run.point;
        is_stolen(point) || (self.run.link.planted.is_none() && (foreign || is_shared(point)))
    }

    /// The reason against it though it was left alone.
    pub(super) fn flag(&self) -> Option<String> {
        let limited = self.verdict.limited_by == Some(LimitedBy::Generator);
        let speaks = |reason: &&Reason| {
            let of_machine = [STEAL, NEIGHBOURS].contains(&reason.check.as_str());
            OF_GENERATORS.contains(&reason.check.as_str())
                || (reason.is == Status::Invalid && !of_machine)
        };
        let said = self.verdict.reasons.iter().find(speaks);
        match (said, limited) {
            (Some(reason), _) => Some(format!("{}: {}", reason.check, reason.text)),
            (None, true) => Some("the generator is called the limit".to_owned()),
            (None, false) => None,
        }
    }

    /// The checks that flag a headline.
    fn against(&self, figure: Figure) -> Vec<String> {
        let claim = match figure {
            Figure::Throughput => Claim::Absolute,
            Figure::P99 => Claim::Distribution,
        };
        let speaks = |reason: &&Reason| {
            let check = reason.check.as_str();
            let of_saturation = check == NEIGHBOURS || OF_GENERATORS.contains(&check);
            reason.claims.contains(&claim)
                && check != PROFILED
                && (of_saturation || reason.is == Status::Invalid)
        };
        let reasons = self.verdict.reasons.iter().filter(speaks);
        let mut by: Vec<String> = reasons.map(|reason| reason.check.clone()).collect();
        let limits = [LimitedBy::Generator, LimitedBy::Machine];
        if by.is_empty()
            && self
                .verdict
                .limited_by
                .is_some_and(|by| limits.contains(&by))
        {
            by.push("limited_by".to_owned());
        }
        by
    }
}

fn is_stolen(point: &record::Run) -> bool {
    let stolen = point.around.machine.stolen_ticks;
    let wanted = stolen + point.around.machine.busy_ticks;
    // A single tick may be the rest of one that was counted before.
    stolen > 1 && stolen as f64 > STOLEN * wanted as f64
}

/// Whether others were there, by the scheduler's clocks.
fn is_shared(point: &record::Run) -> bool {
    point.around.accounts.as_ref().is_some_and(|accounts| {
        let capacity_s = accounts.between_s * accounts.cpus as f64;
        accounts.others_s.unwrap_or(0.0) > OTHERS * capacity_s
    })
}

/// All that came to a result.
pub(super) fn trials<'a>(judged: &'a [Judged<'a>]) -> Vec<Trial<'a>> {
    let all = chain::trials(judged);
    all.filter_map(|(run, planted, beside)| trial(run, planted, beside))
        .collect()
}

fn trial<'a>(run: &'a Judged<'a>, planted: Planted, beside: [&Judged<'_>; 2]) -> Option<Trial<'a>> {
    // A machine that got slower by itself uses less than the quota.
    let is_nothing = planted.plant == Plant::Throttle && run.run.stopped == Some(0);
    if is_nothing || run.is_spoilt() || beside.iter().any(|other| other.is_spoilt()) {
        return None;
    }
    let headline = run.kind.headline();
    let moved: Vec<(Figure, f64)> = headline
        .iter()
        .filter_map(|figure| Some((*figure, moved(*figure, run, beside)?)))
        .collect();
    // Each figure that moved needs somebody who says so.
    let against: Vec<Vec<String>> = match moved.is_empty() {
        true => headline.iter().map(|figure| run.against(*figure)).collect(),
        false => moved
            .iter()
            .map(|(figure, _)| run.against(*figure))
            .collect(),
    };
    let by = match against.iter().any(Vec::is_empty) {
        true => Vec::new(),
        false => against.into_iter().flatten().collect(),
    };
    Some(Trial {
        judged: run,
        planted,
        moved,
        by,
    })
}

/// To how much of its neighbours' (their geometric mean) a figure moved, if it did.
/// One that is missing in the planted run alone moved beyond measure.
fn moved(figure: Figure, run: &Judged<'_>, beside: [&Judged<'_>; 2]) -> Option<f64> {
    let [before, after] = beside.map(|other| value(figure, &other.run.point));
    let (before, after) = (before?, after?);
    let Some(found) = value(figure, &run.run.point) else {
        return Some(f64::NAN);
    };
    let (moved, to) = chain::moved(found, [before, after]);
    (moved != Moved::Not).then_some(to)
}

/// The headline's value in a run; None where the run is too short for it.
fn value(figure: Figure, run: &record::Run) -> Option<f64> {
    match (figure, &run.spread) {
        (Figure::Throughput, _) => Some(run.throughput_per_s),
        (Figure::P99, None) => jostle_stats::open_loop::response(&[run], "p99").map(|p99| p99.ns),
        (Figure::P99, Some(spread)) => {
            let waits = spread.response_ns.as_ref()?;
            let known = waits.kaplan_meier.get("p99").or(waits.at_least.get("p99"));
            known.map(|ns| *ns as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::sides::Side;
    use jostle_model::plan::{Plan, Workload};
    use jostle_model::record::{Accounts, Circumstances, Cpu, Machine, Server, ThreadLoad, Window};

    fn run(at: u32, rate: f64, busy_share: f64) -> Run {
        let planted = Planted {
            side: Side::Generator,
            plant: Plant::Starve,
            dose: 20,
        };
        Run {
            link: Link {
                session: 1,
                at,
                kind: "stream, tasks".to_owned(),
                planted: (at % 2 == 1).then_some(planted),
            },
            environment: None,
            stopped: None,
            plan: Plan::of(Workload::Stream),
            point: record::Run {
                operations: 50_000,
                window: Window {
                    window_s: 1.0,
                    ..Window::default()
                },
                throughput_per_s: rate,
                server: Some(Server::default()),
                thread_loads: vec![ThreadLoad {
                    busy_share,
                    ..ThreadLoad::default()
                }],
                cpu: Cpu {
                    cpu_s: Some(1.0),
                    ..Cpu::default()
                },
                around: Circumstances {
                    machine: Machine {
                        ticks: 210,
                        busy_ticks: 100,
                        ticks_per_s: 100,
                        cores: 2,
                        ..Machine::default()
                    },
                    ..Circumstances::default()
                },
                ..record::Run::default()
            },
        }
    }

    /// Harmed, flagged; None: no result.
    fn said(runs: [Run; 3]) -> Option<(bool, bool)> {
        let judged = judge(&runs);
        let trials = trials(&judged);
        trials
            .first()
            .map(|trial| (trial.is_harmed(), trial.is_flagged()))
    }

    #[test]
    fn harm_is_a_headline_that_moved_against_both_neighbours() {
        let of = |before: f64, planted: f64, after: f64, busy: f64| {
            said([
                run(0, before, 0.5),
                run(1, planted, busy),
                run(2, after, 0.5),
            ])
        };
        assert_eq!(of(100.0, 50.0, 100.0, 0.5), Some((true, false)));
        assert_eq!(of(100.0, 50.0, 100.0, 0.95), Some((true, true)));
        assert_eq!(of(100.0, 89.0, 100.0, 0.5), Some((true, false)));
        assert_eq!(of(100.0, 91.0, 100.0, 0.5), Some((false, false)));
        // A machine that changed its speed meanwhile.
        assert_eq!(of(100.0, 56.0, 55.0, 0.5), Some((false, false)));
        assert_eq!(of(100.0, 120.0, 100.0, 0.5), Some((true, false)));
    }

    #[test]
    fn what_the_machine_spoilt_and_what_has_no_neighbour_is_no_trial() {
        let mut stolen = run(1, 50.0, 0.5);
        stolen.point.around.machine.stolen_ticks = 3;
        assert_eq!(said([run(0, 100.0, 0.5), stolen, run(2, 100.0, 0.5)]), None);
        let mut stolen = run(2, 100.0, 0.5);
        stolen.point.around.machine.stolen_ticks = 3;
        assert_eq!(said([run(0, 100.0, 0.5), run(1, 50.0, 0.5), stolen]), None);
        let mut shared = run(2, 100.0, 0.5);
        shared.point.around.accounts = Some(Box::new(Accounts {
            between_s: 1.0,
            cpus: 2,
            others_s: Some(0.07),
            ..Accounts::default()
        }));
        assert_eq!(said([run(0, 100.0, 0.5), run(1, 50.0, 0.5), shared]), None);
        let mut unplanted = run(1, 50.0, 0.5);
        let throttle = Planted {
            side: Side::Generator,
            plant: Plant::Throttle,
            dose: 5,
        };
        (unplanted.link.planted, unplanted.stopped) = (Some(throttle), Some(0));
        assert_eq!(
            said([run(0, 100.0, 0.5), unplanted, run(2, 100.0, 0.5)]),
            None
        );
        let mut elsewhere = run(2, 100.0, 0.5);
        elsewhere.link.session = 2;
        assert_eq!(
            said([run(0, 100.0, 0.5), run(1, 50.0, 0.5), elsewhere]),
            None
        );
    }

    #[test]
    fn a_run_left_alone_is_flagged_by_a_check_of_generators() {
        let runs = [run(0, 100.0, 0.5), run(2, 100.0, 0.95)];
        let judged = judge(&runs);
        assert_eq!(judged[0].flag(), None);
        assert!(judged[1].flag().unwrap().starts_with("generator: "));
    }

    #[test]
    fn what_ran_along_is_not_heard_and_each_figure_that_moved_needs_a_voice() {
        let mut profiled = run(1, 50.0, 0.5);
        profiled.plan.during = Some("something".to_owned());
        let trial = said([run(0, 100.0, 0.5), profiled, run(2, 100.0, 0.5)]);
        assert_eq!(trial, Some((true, false)));
        // The check `generator` says nothing of percentiles, the limit of all.
        let runs = [run(1, 50.0, 0.95)];
        let mut judged = judge(&runs);
        assert_eq!(judged[0].against(Figure::P99), ["limited_by"]);
        judged[0].verdict.limited_by = None;
        assert!(judged[0].against(Figure::P99).is_empty());
        assert_eq!(judged[0].against(Figure::Throughput), ["generator"]);
    }
}
