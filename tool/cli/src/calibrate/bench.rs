//! The set-up in which rows are tried: keeper, machine and result file of one calibration.

use super::group::Group;
use super::trial::{Agreement, Trial};
use crate::args::{Calibrate, Cli, Verb};
use crate::progress::Line;
use crate::signals::Signals;
use crate::{Failure, measure, messages, resume};
use jostle_engine::experiment::exit;
use jostle_engine::keeper::Keeper;
use jostle_engine::resolve::resolve;
use jostle_engine::world::World;
use jostle_model::calibrated::Finding;
use jostle_model::plan::Plan;
use jostle_model::record::{Record, Run};
use jostle_report::{ResultSet, Writer};
use jostle_stats::checks::{Check, Evidence, interference, neighbours, steal};
use jostle_sys::clock::Clock;
use jostle_sys::limits::Machine;
use jostle_sys::limits::cpu_group::NO_QUOTA_CPUS;
use jostle_sys::{cpu, ledger};

/// Measures and judges once.
pub(super) type Attempt = fn(&mut Bench) -> Result<Trial, Stop>;

/// Why a trial has no result.
pub(super) enum Stop {
    /// The user wants to stop, with this exit code.
    Ended(u8),
    /// Nothing can be measured, or written, at all.
    Failed(String),
    /// This row cannot be tried.
    CannotTell(String),
}

pub(super) struct Bench {
    world: World,
    clock: Clock,
    machine: Machine,
    allowed: Vec<usize>,
    signals: Signals,
    line: Line,
    writer: Option<Writer>,
    /// Or why there is none.
    group: Result<Group, String>,
    /// The undisturbed measurements of the current trial.
    made: Vec<ResultSet>,
}

/// The keeper that runs the measurement.
#[derive(Clone, Copy, PartialEq)]
enum Under {
    /// The normal keeper.
    Nothing,
    /// The keeper in the control group.
    Quota,
}

impl Bench {
    /// Starts the keepers, before anything starts a thread.
    pub(super) fn set_up(writer: Option<Writer>, asked: &Calibrate) -> Result<Bench, Failure> {
        let failed = |error: String| Failure::Failed(anyhow::anyhow!(error));
        let machine = Machine::read();
        let clock = Clock::new();
        let keeper = Keeper::start(clock).map_err(|error| failed(error.to_string()))?;
        let group = Group::make(clock);
        let signals = Signals::listen().map_err(|error| failed(error.to_string()))?;
        messages::start();
        let line = Line::new(!asked.quiet && !asked.no_progress, !asked.quiet);
        if let Err(left) = ledger::sweep_dead() {
            line.note(&format!(
                "could not remove what an earlier run left: {}",
                left.join("; ")
            ));
        }
        Ok(Bench {
            world: World::alone(keeper),
            clock,
            machine,
            allowed: cpu::allowed(),
            signals,
            line,
            writer,
            group,
            made: Vec::new(),
        })
    }

    /// The machine as it was found.
    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The clock of all stamps.
    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    /// CPUs that may be used.
    pub(super) fn cpus(&self) -> &[usize] {
        &self.allowed
    }

    /// Says which row is tried.
    pub(super) fn show(&self, finding: &Finding, nth: u64, trials: u64) {
        let round = match trials {
            1 => String::new(),
            _ => format!(", trial {nth} of {trials}"),
        };
        self.line
            .pin(&format!("row {}: {}{round}", finding.row, finding.planted));
    }

    /// One trial of a case.
    pub(super) fn attempt(&mut self, attempt: Attempt) -> Result<Trial, Stop> {
        once_more(|| self.attempt_once(attempt))
    }

    /// If a finding was wrong while other programs used the machine, the trial cannot tell,
    /// because the cause is unknown.
    fn attempt_once(&mut self, attempt: Attempt) -> Result<Trial, Stop> {
        self.made.clear();
        let mut trial = attempt(self)?;
        if let Agreement::Differs(why) = &trial.said
            && let Some(disturbed) = self.disturbed()
        {
            trial.said = Agreement::CannotTell(format!("{why}; but {disturbed}"));
        }
        Ok(trial)
    }

    /// Evidence of other programs or steal in the trial's measurements.
    fn disturbed(&self) -> Option<String> {
        let first = self.made.first()?;
        let runs: Vec<&Run> = self.made.iter().flat_map(|set| &set.runs).collect();
        let evidence = Evidence {
            experiment: &first.experiment,
            runs: &runs,
        };
        let checks: [&Check; 3] = [&steal::CHECK, &neighbours::CHECK, &interference::CHECK];
        let said = checks.iter().find_map(|check| check.look(&evidence));
        said.map(|reason| reason.text)
    }

    /// Runs the measurement of this command line, given without its first word.
    pub(super) fn measure(&mut self, line: &str) -> Result<ResultSet, Stop> {
        let set = self.run(plan(line)?, Under::Nothing)?;
        self.made.push(set.clone());
        Ok(set)
    }

    /// Measures while `jostle disturb` disturbs the workers.
    pub(super) fn measure_disturbed(&mut self, line: &str, how: &str) -> Result<ResultSet, Stop> {
        let plan = Plan {
            during: Some(format!("/proc/self/exe disturb {how}")),
            ..plan(line)?
        };
        self.run(plan, Under::Nothing)
    }

    /// Measures with the keeper in the control group, whose quota of CPUs covers the server too.
    /// Also returns the kernel's count of throttled periods.
    pub(super) fn measure_throttled(
        &mut self,
        line: &str,
        cpus: f64,
    ) -> Result<(ResultSet, u64), Stop> {
        let stopped = |bench: &Bench| bench.group.as_ref().map_or(0, Group::throttled_periods);
        let set_quota = |bench: &Bench, cpus: f64| match &bench.group {
            Ok(group) => group
                .set_quota(cpus)
                .map_err(|error| Stop::CannotTell(format!("cannot set a CPU quota: {error}"))),
            Err(why) => Err(Stop::CannotTell(why.clone())),
        };
        let plan = plan(line)?;
        set_quota(self, cpus)?;
        let before = stopped(self);
        let set = self.run(plan, Under::Quota);
        let periods = stopped(self) - before;
        set_quota(self, NO_QUOTA_CPUS)?;
        Ok((set?, periods))
    }

    fn run(&mut self, plan: Plan, under: Under) -> Result<ResultSet, Stop> {
        let resolved = resolve(plan, measure::fresh_seed(), &self.allowed)
            .map_err(|error| Stop::CannotTell(error.to_string()))?;
        let world = match (under, &mut self.group) {
            (Under::Quota, Ok(group)) => group.world(),
            _ => &mut self.world,
        };
        let outcome = measure::one(
            world,
            self.clock,
            &resolved,
            &self.machine,
            measure::Sinks {
                line: Some(&self.line),
                ..measure::Sinks::default()
            },
            &self.signals,
            resume::only_this(),
        );
        if let Some(code) = self.signals.exit_code() {
            return Err(Stop::Ended(code));
        }
        let (code, error) = (outcome.end.exit, outcome.end.error.clone());
        if world.keeper().is_gone() {
            // Every later row would fail the same way, and show nothing about the tool.
            return Err(Stop::Failed(error.unwrap_or_default()));
        }
        let set = measure::result_set(outcome);
        match (code, set) {
            (exit::DONE | exit::INVALID, Some(set)) => {
                self.keep(&set)?;
                Ok(set)
            }
            _ => Err(Stop::CannotTell(
                error.unwrap_or_else(|| "nothing was measured".to_owned()),
            )),
        }
    }

    fn keep(&mut self, set: &ResultSet) -> Result<(), Stop> {
        for record in set.records() {
            self.write(&record)
                .map_err(|error| Stop::Failed(format!("{error:#}")))?;
        }
        Ok(())
    }

    /// To the result file, if there is one.
    pub(super) fn write(&mut self, record: &Record) -> anyhow::Result<()> {
        match &mut self.writer {
            Some(writer) => Ok(writer.write(record)?),
            None => Ok(()),
        }
    }
}

/// A trial that cannot tell (neighbours, chance) is repeated once, and the second one
/// counts, whatever its result. A trial that was right or wrong counts at once. One that
/// cannot be made (rights, CPUs) is not repeated.
fn once_more(mut attempt: impl FnMut() -> Result<Trial, Stop>) -> Result<Trial, Stop> {
    let first = attempt()?;
    match first.said {
        Agreement::CannotTell(_) => attempt(),
        Agreement::Agrees | Agreement::Differs(_) => Ok(first),
    }
}

/// The plan of a command line without its first word.
fn plan(line: &str) -> Result<Plan, Stop> {
    let words = std::iter::once("jostle").chain(line.split_whitespace());
    match Cli::read(words).map(|cli| cli.verb) {
        Ok(Verb::Measure(asked)) => Ok(asked.plan),
        Ok(_) => Err(Stop::Failed(format!("no measurement: jostle {line}"))),
        Err(error) => Err(Stop::Failed(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of attempts that end like this, and how many are made.
    fn attempted(attempts: Vec<Result<Agreement, &str>>) -> (Option<Agreement>, usize) {
        let all = attempts.len();
        let mut left = attempts.into_iter();
        let outcome = once_more(|| match left.next().unwrap() {
            Ok(said) => Ok(Trial {
                said,
                ..Trial::default()
            }),
            Err(why) => Err(Stop::CannotTell(why.to_owned())),
        });
        (outcome.ok().map(|trial| trial.said), all - left.len())
    }

    #[test]
    fn only_a_measurement_that_cannot_tell_is_made_once_more() {
        let untold = || Ok(Agreement::CannotTell("a neighbour".to_owned()));
        let wrong = Agreement::Differs("it lied".to_owned());
        let right = Agreement::Agrees;
        let table = [
            (vec![Ok(right.clone()), Ok(wrong.clone())], Some(&right), 1),
            // A failure is never tried away.
            (vec![Ok(wrong.clone()), Ok(right.clone())], Some(&wrong), 1),
            (vec![untold(), Ok(right.clone())], Some(&right), 2),
            (vec![untold(), Ok(wrong.clone())], Some(&wrong), 2),
            (vec![Err("no root"), Ok(right.clone())], None, 1),
        ];
        for (attempts, expected, made) in table {
            assert_eq!(attempted(attempts), (expected.cloned(), made));
        }
        let (last, made) = attempted(vec![untold(), untold(), Ok(right)]);
        assert!(matches!(last, Some(Agreement::CannotTell(_))) && made == 2);
    }
}
