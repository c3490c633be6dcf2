//! `jostle run FILE --resume`: what is missing in a result file, and whether it may be measured
//! now. The decisions are pure; `measure.rs` acts on them.

use crate::Failure;
use crate::measure::{rfc3339, surroundings};
use anyhow::anyhow;
use jostle_engine::experiment::{Earlier, Session};
use jostle_engine::resolve::Resolved;
use jostle_model::options::OPTIONS;
use jostle_model::plan::{Plan, Workload};
use jostle_model::record::{At, BROKE_OFF, Environment, Record, Resumed, Run, Scheduled};
use jostle_model::serial::record_from_json;
use jostle_model::text::quoted;
use jostle_report::ResultSet;
use jostle_sys::limits::Machine;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The rest of a measurement, and the part that is there already.
#[derive(Debug)]
pub(crate) struct Rest {
    /// The result file.
    pub path: PathBuf,
    /// Its lines that stay.
    pub bytes: Vec<u8>,
    /// The experiments that are complete.
    pub finished: Vec<ResultSet>,
    /// The experiment that is not, if there is one: the first of `plans`.
    pub broken: Option<ResultSet>,
    /// The plans that are missing, in part or as a whole.
    pub plans: Vec<Plan>,
}

/// The conditions that must be as they were.
#[derive(Debug)]
pub(crate) struct Now<'a> {
    /// This boot, and jostle's program.
    pub session: &'a Scheduled,
    /// The machine, with the programs of the targets.
    pub environment: &'a Environment,
    /// The plan as it is resolved today.
    pub plan: &'a Plan,
    /// Its points.
    pub points: &'a [(&'a str, At)],
}

/// This command's session: its boot and its program.
pub(crate) fn this_session() -> Scheduled {
    let program = std::fs::metadata("/proc/self/exe").map(|found| {
        let (size, seconds, ns) = (found.len(), found.mtime(), found.mtime_nsec());
        format!("{size}-{seconds}.{ns:09}")
    });
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    Scheduled {
        boot: boot.unwrap_or_default().trim().to_owned(),
        program: program.unwrap_or_default(),
        ..Scheduled::default()
    }
}

/// A session of one experiment.
pub(crate) fn only_this() -> Session {
    Session {
        started_at: rfc3339(SystemTime::now()),
        scheduled: this_session(),
        earlier: None,
    }
}

/// The part of the first experiment that the file has.
pub(crate) fn earlier_of(
    rest: &mut Rest,
    resolved: &Resolved,
    machine: &Machine,
    session: &Scheduled,
) -> Result<Option<Earlier>, Failure> {
    let points = resolved.points();
    let named = points.iter().map(|(target, at)| {
        let spec = &resolved.specs[*target];
        (spec.typed.as_str(), *at)
    });
    let points: Vec<(&str, At)> = named.collect();
    let now = Now {
        session,
        environment: &surroundings(resolved, machine),
        plan: &resolved.plan.clone().redacted(),
        points: &points,
    };
    let at = rfc3339(SystemTime::now());
    rest.earlier(&now, at)
        .map_err(|text| Failure::Failed(anyhow!(text)))
}

impl Rest {
    /// The rest of this file; None if it is complete.
    pub(crate) fn from_sets(path: &Path, mut sets: Vec<ResultSet>, bytes: Vec<u8>) -> Option<Rest> {
        let last = sets.last()?;
        let is_whole = last.end.as_ref().is_some_and(|end| end.error.is_none());
        let then = last.scheduled.iter().flat_map(|known| known.then.clone());
        let plan = (!is_whole).then(|| last.experiment.plan.clone());
        let plans: Vec<Plan> = plan.into_iter().chain(then).collect();
        let broken = if is_whole { None } else { sets.pop() };
        (!plans.is_empty()).then(|| Rest {
            path: path.to_owned(),
            bytes,
            finished: sets,
            broken,
            plans,
        })
    }

    /// Takes the experiment that goes on; None if the first plan begins anew.
    ///
    /// # Errors
    /// For the user: what differs from when the file was written, and what to do.
    pub(crate) fn earlier(&mut self, now: &Now<'_>, at: String) -> Result<Option<Earlier>, String> {
        let known = self.broken.as_ref().or(self.finished.last());
        let differs = match known {
            Some(set) => differs(set, now, self.broken.is_some()),
            None => None,
        };
        if let Some(differs) = differs {
            let file = self.path.display().to_string();
            return Err(format!(
                "jostle cannot resume {file}: {differs}; measure all of it again: jostle run {} -o \
                 NEW.jsonl",
                quoted(&file)
            ));
        }
        let earlier = self.broken.take().map(|set| earlier(set, now, at));
        let block = earlier.iter().flat_map(|part| part.resumed.last());
        if let Some(Resumed { block, .. }) = block.last() {
            self.bytes.truncate(before_block(&self.bytes, *block));
        }
        Ok(earlier)
    }
}

/// A difference, in words; None if the figures of then and now belong together.
fn differs(set: &ResultSet, now: &Now<'_>, is_broken: bool) -> Option<String> {
    let Some(known) = &set.scheduled else {
        return Some("it lacks what --resume needs".to_owned());
    };
    let environment = &set.experiment.environment;
    if known.boot.is_empty() || known.boot != now.session.boot {
        return Some("the machine has restarted, or is another one".to_owned());
    }
    if known.program != now.session.program || environment.jostle != now.environment.jostle {
        return Some("jostle is another program than the one that wrote it".to_owned());
    }
    if environment.cores != now.environment.cores {
        let (then, now) = (environment.cores, now.environment.cores);
        return Some(format!("jostle had {then} CPUs and has {now} now"));
    }
    if !is_broken {
        return None;
    }
    if !environment.hosts.is_empty() {
        return Some("several hosts measured it".to_owned());
    }
    let mut programs = environment.programs.iter();
    if let Some((target, _)) = programs.find(|p| now.environment.programs.get(p.0) != Some(p.1)) {
        return Some(format!("the program of {target} has changed"));
    }
    let plan = &set.experiment.plan;
    if plan.targets.iter().any(|target| target.contains(":***@")) {
        return Some("it lacks the password of a target".to_owned());
    }
    if let Some(differs) = plan_differs(plan, now.plan) {
        return Some(differs);
    }
    // A search decides by its runs which come next.
    let finds = plan.find.is_some();
    let planned = |run: &Run| finds || now.points.contains(&(run.target.as_str(), run.at));
    let foreign = set.runs.iter().find(|run| !planned(run));
    let lacks = known.blocks > 0 && known.times.len() != now.points.len();
    (foreign.is_some() || lacks).then(|| "its runs are not those of its plan".to_owned())
}

fn plan_differs(then: &Plan, now: &Plan) -> Option<String> {
    let shown = |value: Option<String>| value.unwrap_or_else(|| "absent".to_owned());
    let differing = OPTIONS.iter().find(|o| o.get(then) != o.get(now));
    let option = differing.map(|option| {
        let (then, now) = (shown(option.get(then)), shown(option.get(now)));
        format!("{} was {then} and would be {now}", option.flag())
    });
    option.or_else(|| (then != now).then(|| "its plan has other targets today".to_owned()))
}

fn earlier(set: ResultSet, now: &Now<'_>, at: String) -> Earlier {
    let block = first_missing(&set, now.points);
    let (kept, left): (Vec<Run>, Vec<Run>) =
        set.runs.into_iter().partition(|run| run.block < block);
    let measured = || {
        kept.iter()
            .map(|run| run.window.window_s + run.window.ramp_s)
            .sum()
    };
    let elapsed_s = set.end.map_or_else(measured, |end| end.elapsed_s);
    let mut resumed = set.resumed;
    resumed.push(Resumed {
        started_at: at,
        block,
        left_out: left.len() as u64,
    });
    Earlier {
        experiment: set.experiment,
        scheduled: set.scheduled.unwrap_or_default(),
        runs: kept,
        resumed,
        elapsed: Duration::try_from_secs_f64(elapsed_s).unwrap_or_default(),
    }
}

/// How many bytes of a result file stand before the runs of this block of its last experiment.
fn before_block(bytes: &[u8], block: u32) -> usize {
    let (mut at, mut cut) = (0, None);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match record_from_json(&String::from_utf8_lossy(line)) {
            Ok(Record::Experiment(_)) => cut = None,
            Ok(Record::Run(run)) if run.block < block => {}
            Ok(Record::Run(_) | Record::Verdict(_) | Record::Fit(_) | Record::End(_)) => {
                cut = cut.or(Some(at));
            }
            _ => {}
        }
        at += line.len();
    }
    cut.unwrap_or(at)
}

/// The first block, from 1, that is not complete: a run that broke off is missing. The last
/// sweeps of `connect` may lack points for other reasons than a break, and are always repeated.
fn first_missing(set: &ResultSet, points: &[(&str, At)]) -> u32 {
    let last = set.runs.iter().map(|run| run.block).max().unwrap_or(0);
    let made = |(target, at): &(&str, At)| {
        let whole = |run: &&Run| !run.around.errors.contains_key(BROKE_OFF);
        let runs = set.runs.iter();
        let mut of_last = runs.filter(|run| run.block == last).filter(whole);
        of_last.any(|run| run.target == *target && run.at == *at)
    };
    let sweeps = set.experiment.plan.workload == Workload::Connect;
    let broke = |run: &Run| run.around.errors.contains_key(BROKE_OFF);
    let broke = set.experiment.plan.find.is_some() && set.runs.last().is_some_and(broke);
    match !sweeps && !broke && points.iter().all(made) {
        true => last + 1,
        false => last.max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jostle_model::List;
    use jostle_model::record::{Calibration, End, Experiment, Fit, RunTimes, SCHEMA, Window};
    use jostle_model::serial::record_to_json;

    const AT: &str = "2026-01-01T00:00:00Z";

    /// Two points, of which `runs` runs were made, and a plan that was to follow.
    fn broken(runs: usize) -> ResultSet {
        let mut plan = Plan::of(Workload::Contend);
        plan.targets = vec!["lib:a.so".to_owned()];
        plan.workers = Some(List(vec![1, 2]));
        let environment = Environment {
            cores: 2,
            jostle: "0.1.0".to_owned(),
            programs: [("lib:a.so".to_owned(), "1-1".to_owned())].into(),
            ..Environment::default()
        };
        let experiment = Experiment {
            schema: SCHEMA.to_owned(),
            plan,
            environment,
            calibration: Calibration::default(),
            target_facts: [].into(),
            started_at: AT.to_owned(),
        };
        let points = (0..runs).map(|nth| Run {
            target: "lib:a.so".to_owned(),
            at: at(nth as u64 % 2 + 1),
            block: nth as u32 / 2 + 1,
            window: Window {
                window_s: 2.0,
                ..Window::default()
            },
            ..Run::default()
        });
        let end = End {
            exit: 130,
            error: Some("interrupted".to_owned()),
            elapsed_s: 9.0,
        };
        let times = RunTimes {
            window_ns: 1,
            warmup_ns: 1,
            overhead_ns: 1,
        };
        ResultSet {
            scheduled: Some(Scheduled {
                boot: "b".to_owned(),
                program: "p".to_owned(),
                blocks: 6,
                times: vec![times; 2],
                then: vec![Plan::of(Workload::Rate)],
            }),
            ..ResultSet::new(experiment, points.collect(), Some(end))
        }
    }

    fn at(workers: u64) -> At {
        At {
            workers: Some(workers),
            ..At::default()
        }
    }

    fn text(set: &ResultSet) -> String {
        let lines = set.records().map(|record| record_to_json(&record) + "\n");
        lines.collect()
    }

    /// Resumes where nothing has changed but what `change` changes.
    fn resumed(
        set: ResultSet,
        change: impl Fn(&mut Scheduled, &mut Environment, &mut Plan),
    ) -> Result<(Earlier, Rest), String> {
        let mut session = set.scheduled.clone().unwrap_or_default();
        let mut environment = set.experiment.environment.clone();
        let mut plan = set.experiment.plan.clone();
        change(&mut session, &mut environment, &mut plan);
        let bytes = text(&set).into_bytes();
        let mut rest = Rest::from_sets(Path::new("a b.jsonl"), vec![set], bytes).unwrap();
        let now = Now {
            session: &session,
            environment: &environment,
            plan: &plan,
            points: &[("lib:a.so", at(1)), ("lib:a.so", at(2))],
        };
        let earlier = rest.earlier(&now, AT.to_owned())?;
        Ok((earlier.unwrap(), rest))
    }

    #[test]
    fn whole_blocks_are_kept_and_an_incomplete_one_is_repeated() {
        for (runs, block, kept, left_out) in [
            (0, 1, 0, 0),
            (1, 1, 0, 1),
            (2, 2, 2, 0),
            (3, 2, 2, 1),
            (4, 3, 4, 0),
        ] {
            let (earlier, rest) = resumed(broken(runs), |_, _, _| {}).unwrap();
            let last = earlier.resumed.last().unwrap();
            assert_eq!((last.block, last.left_out), (block, left_out), "{runs}");
            assert_eq!(earlier.runs.len(), kept, "{runs}");
            assert_eq!(earlier.elapsed, Duration::from_secs(9));
            let whole = ResultSet {
                end: None,
                ..broken(kept)
            };
            let lines = String::from_utf8(rest.bytes).unwrap();
            let verdicts = |line: &&str| !line.contains("\"verdict\",");
            let expected: Vec<_> = text(&whole)
                .lines()
                .filter(verdicts)
                .map(String::from)
                .collect();
            assert_eq!(lines.lines().collect::<Vec<_>>(), expected, "{runs}");
            assert_eq!(
                rest.plans.len(),
                2,
                "the broken plan, and the one that follows"
            );
        }
    }

    #[test]
    fn the_last_sweeps_of_connections_are_repeated() {
        let mut set = broken(4);
        set.experiment.plan.workload = Workload::Connect;
        assert_eq!(first_missing(&set, &[("lib:a.so", at(1))]), 2);
    }

    #[test]
    fn after_a_crash_the_time_that_was_measured_counts() {
        let mut set = broken(3);
        set.end = None;
        set.fits = vec![Fit::default()];
        let (earlier, _) = resumed(set, |_, _, _| {}).unwrap();
        assert_eq!(earlier.elapsed, Duration::from_secs(4));
    }

    #[test]
    fn what_differs_is_named_with_what_to_do() {
        type Change = fn(&mut Scheduled, &mut Environment, &mut Plan);
        let table: [(Change, &str); 6] = [
            (
                |s, _, _| s.boot = "c".to_owned(),
                "the machine has restarted",
            ),
            (
                |s, _, _| s.program = "q".to_owned(),
                "jostle is another program",
            ),
            (
                |_, e, _| e.jostle = "0.2.0".to_owned(),
                "jostle is another program",
            ),
            (|_, e, _| e.cores = 1, "jostle had 2 CPUs and has 1 now"),
            (
                |_, e, _| e.programs.clear(),
                "the program of lib:a.so has changed",
            ),
            (
                |_, _, p| p.workers = Some(List(vec![1])),
                "-w was 1:2 and would be 1",
            ),
        ];
        for (change, says) in table {
            let said = resumed(broken(3), change).unwrap_err();
            let begins = format!("jostle cannot resume a b.jsonl: {says}");
            assert!(said.starts_with(&begins), "{said}");
            let ends = "; measure all of it again: jostle run 'a b.jsonl' -o NEW.jsonl";
            assert!(said.ends_with(ends), "{said}");
        }
        let refused = |change: fn(&mut ResultSet)| {
            let mut set = broken(3);
            change(&mut set);
            resumed(set, |_, _, _| {}).unwrap_err()
        };
        for (said, says) in [
            (refused(|set| set.scheduled = None), "what --resume needs"),
            (
                refused(|set| set.runs[1].at = at(7)),
                "its runs are not those of its plan",
            ),
            (
                refused(|set| set.scheduled.as_mut().unwrap().times.truncate(1)),
                "its runs are not those of its plan",
            ),
            (
                refused(|set| set.experiment.plan.targets = vec!["redis://a:***@h".to_owned()]),
                "the password of a target",
            ),
        ] {
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn a_complete_file_has_no_rest_unless_a_plan_was_to_follow() {
        let mut set = broken(4);
        set.end.as_mut().unwrap().error = None;
        let path = Path::new("x");
        let rest = Rest::from_sets(path, vec![set.clone()], Vec::new()).unwrap();
        assert!(rest.broken.is_none());
        assert_eq!(rest.plans, [Plan::of(Workload::Rate)]);
        set.scheduled.as_mut().unwrap().then.clear();
        assert!(Rest::from_sets(path, vec![set], Vec::new()).is_none());
    }
}
