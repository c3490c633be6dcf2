//! The saturated and the clean runs, and the answers of `jostle judge` about them: a pure function
//! of the runs, so that a changed judge judges kept runs anew.
//!
//! - A trial is a run with something planted, and its two controls ([`super::super::chain`]).
//!   It *moved* if the generator's own figure moved down. A quota that never stopped its group, by our own
//!   reading of cpu.stat, was not planted.
//! - A run that moved because its generator was held back was *saturated*; one that moved
//!   because its server was held back was *clean*. One that did not move is neither.
//! - A saturated run is *called clean* where the limit is `server` or `path`: the command's
//!   figures are then printed as the server's, or as its connections'. A clean run is
//!   *called saturated* where the limit is `generator`.
//! - A trial is *spoilt* where, in one of its three runs, the hypervisor took 2 % of the
//!   CPUs, or programs that were not planted used 3 % of them, the three largest together. It is
//!   counted apart.

use super::Run;
use crate::validate::chain::{self, Moved};
use crate::validate::plants::{Plant, Planted};
use crate::validate::sides::Side;
use jostle_model::judged::{Finding, Limit, Watched};
use jostle_stats::judge::find;

/// Shares of all CPUs.
const STOLEN: f64 = 0.02;
const OTHERS: f64 = 0.03;

/// A trial that moved, or did not.
pub(super) struct Trial<'a> {
    pub run: &'a Run,
    pub planted: Planted,
    /// The figure, as a share of the geometric mean of both controls.
    pub to: f64,
    pub truth: Truth,
    pub finding: Finding,
    pub spoilt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truth {
    /// Its generator's handicap moved the figure.
    Saturated,
    /// Its server's did.
    Clean,
    /// Neither.
    Unmoved,
}

impl Trial<'_> {
    pub(super) fn is_decided(&self) -> bool {
        self.finding.limit != Limit::Undecided
    }

    /// Whether it was called the opposite of what it is.
    pub(super) fn is_wrong(&self) -> bool {
        match self.truth {
            Truth::Saturated => matches!(self.finding.limit, Limit::Server | Limit::Path),
            Truth::Clean => self.finding.limit == Limit::Generator,
            Truth::Unmoved => false,
        }
    }
}

/// All trials of runs that are given in the order in which they were made.
pub(super) fn trials(runs: &[Run]) -> Vec<Trial<'_>> {
    // A side that got slower by itself uses less than its quota.
    chain::trials(runs)
        .filter(|(run, planted, _)| planted.plant != Plant::Quota || run.stopped > 0)
        .map(trial)
        .collect()
}

fn trial<'a>((run, planted, controls): (&'a Run, Planted, [&'a Run; 2])) -> Trial<'a> {
    let (moved, to) = chain::moved(run.per_s, controls.map(|control| control.per_s));
    Trial {
        run,
        planted,
        to,
        truth: match (moved == Moved::Down, planted.side) {
            (false, _) => Truth::Unmoved,
            (true, Side::Generator) => Truth::Saturated,
            (true, Side::Server) => Truth::Clean,
        },
        finding: find(&run.watched),
        spoilt: [controls[0], run, controls[1]]
            .iter()
            .any(|run| is_spoilt(&run.watched, run.hog)),
    }
}

/// Whether the machine itself took part.
pub(super) fn is_spoilt(watched: &Watched, hog: Option<u32>) -> bool {
    let all_s = watched.span_s.iter().sum::<f64>() * watched.machine.cpus.max(1) as f64;
    let stolen_s: f64 = watched.machine.stolen_s.iter().sum();
    stolen_s > STOLEN * all_s || others_s(watched, hog) > OTHERS * all_s
}

/// CPU time of the largest other programs but for the planted one. Not `others_s`: what
/// the server did before it was known to be one stands in that.
fn others_s(watched: &Watched, hog: Option<u32>) -> f64 {
    let named = watched.machine.neighbours.iter();
    let others = named.filter(|other| Some(other.pid) != hog.map(u64::from));
    others.map(|other| other.cpu_s).sum()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::validate::chain::Link;
    use crate::validate::store::Store;
    use jostle_model::judged::{Machine, Side as Watch, Thread, Traffic};
    use jostle_model::record::Neighbour;

    const LOOKS: usize = 20;

    fn side(busy: f64) -> Watch {
        let each = vec![0.1 * busy; LOOKS];
        Watch {
            cpu_s: each.clone(),
            queued_s: Some(vec![0.0; LOOKS]),
            stopped_s: vec![0.0; LOOKS],
            busiest: vec![Thread {
                cpu_s: each,
                queued_s: vec![0.0; LOOKS],
                ..Thread::default()
            }],
            ..Watch::default()
        }
    }

    /// Every second run of a session is left alone.
    pub(crate) fn run(at: u32, per_s: f64, generator: f64, server: f64) -> Run {
        let planted = Planted {
            side: Side::Generator,
            plant: Plant::Hog,
            dose: 20,
        };
        Run {
            link: Link {
                session: 1,
                at,
                kind: "wrk".to_owned(),
                planted: (at % 2 == 1).then_some(planted),
            },
            hog: None,
            stopped: 0,
            per_s,
            watched: Watched {
                end_s: (1..=LOOKS).map(|nth| 0.1 * nth as f64).collect(),
                span_s: vec![0.1; LOOKS],
                generator: side(generator),
                server: Some(side(server)),
                traffic: Some(Traffic {
                    bytes: vec![1e5; LOOKS],
                    connections: vec![8.0; LOOKS],
                    server_unread_bytes: Some(vec![0.0; LOOKS]),
                    ..Traffic::default()
                }),
                machine: Machine {
                    cpus: 2,
                    stolen_s: vec![0.0; LOOKS],
                    others_s: Some(vec![0.0; LOOKS]),
                    ..Machine::default()
                },
                ..Watched::default()
            },
        }
    }

    fn three(per_s: [f64; 3], generator: f64, server: f64) -> [Run; 3] {
        let of = |at: u32| run(at, per_s[at as usize], generator, server);
        [of(0), of(1), of(2)]
    }

    /// The series of lab/record, judged by the rules of today: no trial may be called the
    /// opposite of what it is, and no fewer may be decided than when they were recorded.
    #[test]
    fn recorded_runs_are_judged_as_they_were() {
        for (file, saturated, clean) in [
            ("validate-judge.jsonl", 360, 371),
            ("validate-judge-2.jsonl", 92, 82),
        ] {
            let path = format!("{}/../record/{file}", env!("CARGO_MANIFEST_DIR"));
            let runs = Store::<Run>::read(path.as_ref()).unwrap().lines;
            let trials = trials(&runs);
            let wrong: Vec<_> = trials.iter().filter(|trial| trial.is_wrong()).collect();
            let named = wrong
                .iter()
                .map(|trial| (trial.run.link.session, trial.run.link.at));
            assert!(wrong.is_empty(), "{file}: {:?}", named.collect::<Vec<_>>());
            let decided = |truth| {
                let of_it = trials.iter().filter(|t| t.truth == truth && !t.spoilt);
                of_it.filter(|trial| trial.is_decided()).count()
            };
            let found = [decided(Truth::Saturated), decided(Truth::Clean)];
            assert!(
                found[0] >= saturated && found[1] >= clean,
                "{file}: {found:?}"
            );
        }
    }

    #[test]
    fn truth_is_a_figure_that_fell_by_a_tenth_against_both_controls() {
        for (per_s, truth) in [
            ([100.0, 89.0, 100.0], Truth::Saturated),
            ([100.0, 91.0, 100.0], Truth::Unmoved),
            // The machine became slower in the meantime.
            ([100.0, 56.0, 55.0], Truth::Unmoved),
            ([100.0, 130.0, 100.0], Truth::Unmoved),
        ] {
            let runs = three(per_s, 0.5, 0.5);
            assert_eq!(trials(&runs)[0].truth, truth, "{per_s:?}");
            let mut runs = runs;
            if let Some(planted) = &mut runs[1].link.planted {
                planted.side = Side::Server;
            }
            let clean = match truth {
                Truth::Saturated => Truth::Clean,
                other => other,
            };
            assert_eq!(trials(&runs)[0].truth, clean, "{per_s:?}");
        }
    }

    #[test]
    fn a_saturated_run_is_wrong_as_server_or_path_and_a_clean_one_as_generator() {
        let moved = [100.0, 50.0, 100.0];
        for (generator, server, limit, wrong) in [
            (0.95, 0.5, Limit::Generator, [false, true]),
            (0.5, 0.95, Limit::Server, [true, false]),
            (0.5, 0.5, Limit::Path, [true, false]),
            (0.8, 0.8, Limit::Undecided, [false, false]),
        ] {
            let mut runs = three(moved, generator, server);
            for (side, wrong) in [Side::Generator, Side::Server].into_iter().zip(wrong) {
                if let Some(planted) = &mut runs[1].link.planted {
                    planted.side = side;
                }
                let found = &trials(&runs)[0];
                assert_eq!((found.finding.limit, found.is_wrong()), (limit, wrong));
                assert_eq!(found.is_decided(), limit != Limit::Undecided);
            }
        }
    }

    #[test]
    fn a_run_without_its_controls_or_without_its_quota_is_no_trial() {
        let mut elsewhere = three([100.0, 50.0, 100.0], 0.5, 0.5);
        elsewhere[2].link.session = 2;
        assert!(trials(&elsewhere).is_empty());
        let mut quota = three([100.0, 50.0, 100.0], 0.5, 0.5);
        if let Some(planted) = &mut quota[1].link.planted {
            planted.plant = Plant::Quota;
        }
        assert!(trials(&quota).is_empty());
        quota[1].stopped = 1;
        assert_eq!(trials(&quota).len(), 1);
    }

    #[test]
    fn other_programs_spoil_a_trial_and_the_planted_one_does_not() {
        let spoilt = |change: fn(&mut Run)| {
            let mut runs = three([100.0, 50.0, 100.0], 0.5, 0.5);
            change(&mut runs[1]);
            trials(&runs)[0].spoilt
        };
        fn ran(run: &mut Run) {
            // A fifth of two CPUs.
            run.watched.machine.neighbours = vec![Neighbour {
                name: "hog".to_owned(),
                pid: 7,
                cpu_s: 0.79,
            }];
        }
        assert!(!spoilt(|_| ()));
        assert!(spoilt(ran));
        assert!(!spoilt(|run| {
            ran(run);
            run.hog = Some(7);
        }));
        // A server that was not known yet.
        assert!(!spoilt(
            |run| run.watched.machine.others_s = Some(vec![0.04; LOOKS])
        ));
        assert!(spoilt(
            |run| run.watched.machine.stolen_s = vec![0.01; LOOKS]
        ));
    }
}
