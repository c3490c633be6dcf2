//! The records that every course writes: the experiment first, each run with its verdict,
//! the verdicts of points, and how it ended.

use super::{ExperimentLoop, Progress, Stop, exit};
use crate::keeper::KeeperError;
use crate::proven;
use jostle_model::plan::Plan;
use jostle_model::record::{
    Calibration, End, Environment, Experiment, Judged, Record, Run, SCHEMA, Status,
};
use jostle_stats::checks::{self, Evidence};
use jostle_stats::{find, fit, harm, summary};

impl ExperimentLoop<'_, '_> {
    /// Writes the record that opens the file.
    pub(super) fn begin(
        &mut self,
        plan: Plan,
        calibration: Calibration,
        environment: Environment,
    ) -> Result<Experiment, Stop> {
        let experiment = Experiment {
            schema: SCHEMA.to_owned(),
            plan,
            calibration: Calibration {
                specimens: proven::last(&environment),
                ..calibration
            },
            environment,
            target_facts: self
                .resolved
                .specs
                .iter()
                .filter_map(|spec| Some((spec.typed.clone(), spec.entry.facts()?)))
                .collect(),
            started_at: self.session.started_at.clone(),
        };
        self.sink(Record::Experiment(Box::new(experiment.clone())))?;
        self.made.experiment = Some(experiment.clone());
        let scheduled = self.session.scheduled.clone();
        self.sink(Record::Scheduled(Box::new(scheduled)))?;
        Ok(experiment)
    }

    /// Goes on with an experiment that an earlier command has begun; None if there is none.
    pub(super) fn take_up(&mut self) -> Result<Option<Experiment>, Stop> {
        let Some(earlier) = self.session.earlier.take() else {
            return Ok(None);
        };
        self.session.scheduled = earlier.scheduled;
        self.made.runs = earlier.runs;
        self.made.experiment = Some(earlier.experiment.clone());
        self.made.resumed = earlier.resumed;
        if let Some(last) = self.made.resumed.last().cloned() {
            self.block = last.block.saturating_sub(1);
            self.left_out = self.made.resumed.iter().map(|r| r.left_out as usize).sum();
            self.sink(Record::Resumed(Box::new(last)))?;
        }
        Ok(Some(earlier.experiment))
    }

    /// As `take_up` or `begin`, for workloads whose runs have no cycle of a lock: the tool's own cost
    /// is not measured, and the plan stays as it was resolved.
    pub(super) fn begin_uncalibrated(
        &mut self,
        clock: &str,
        environment: Environment,
    ) -> Result<Experiment, Stop> {
        if let Some(experiment) = self.take_up()? {
            return Ok(experiment);
        }
        let calibration = Calibration {
            clock: clock.to_owned(),
            stamp_ns: self.clock.cost_ns(),
            latencies: self.latencies()?,
            ..Calibration::default()
        };
        let plan = self.resolved.plan.clone().redacted();
        self.begin(plan, calibration, environment)
    }

    /// Judges a measured run, writes it and reports it as done.
    pub(super) fn finish(&mut self, experiment: &Experiment, mut run: Run) -> Result<(), Stop> {
        judge(experiment, &mut run);
        // A measured run is in the table, also where the file has failed.
        self.made.runs.push(run.clone());
        self.sink(Record::Run(Box::new(run.clone())))?;
        (self.hooks.progress)(Progress::Done(&run));
        Ok(())
    }

    pub(super) fn sink(&mut self, record: Record) -> Result<(), Stop> {
        (self.hooks.record)(&record).map_err(Stop::Sink)
    }

    /// The verdicts of the points, and how the figures grow over what was swept.
    pub(super) fn conclude(&mut self) -> Result<(), Stop> {
        let Some(experiment) = &self.made.experiment else {
            return Ok(());
        };
        let points = summary::summarize(experiment, &self.made.runs);
        self.made.fits = fit::fits(experiment, &points);
        let verdicts: Vec<Judged> = points.iter().map(|point| point.judged()).collect();
        for verdict in verdicts {
            self.sink(Record::Verdict(Box::new(verdict)))?;
        }
        for fit in self.made.fits.clone() {
            self.sink(Record::Fit(Box::new(fit)))?;
        }
        Ok(())
    }

    pub(super) fn end(&mut self, stop: Option<Stop>) -> End {
        // By the verdicts that a reader of the file will see: of all runs of a
        // point together. Of a search, whose steps beyond the limit may well be INVALID, by
        // what it found.
        let invalid = self.made.experiment.as_ref().is_some_and(|experiment| {
            if experiment.plan.find.is_some() {
                let runs: Vec<&Run> = self.made.runs.iter().collect();
                let found = find::searched(&experiment.plan, &runs);
                return found.iter().any(|one| !one.found.is_answer());
            }
            let points = summary::summarize(experiment, &self.made.runs);
            points
                .iter()
                .any(|point| point.verdict.is == Status::Invalid)
        });
        let (exit, error) = match &stop {
            None if invalid => (exit::INVALID, None),
            None => (exit::DONE, None),
            Some(Stop::Keeper(KeeperError::Interrupted)) => (
                (self.hooks.ended)().unwrap_or(exit::INTERRUPTED),
                Some("interrupted".to_owned()),
            ),
            Some(Stop::Keeper(error)) => (exit::FAILED, Some(error.to_string())),
            Some(Stop::BrokeOff(text)) => (exit::INVALID, Some(text.clone())),
            Some(Stop::Sink(text)) => (exit::FAILED, Some(text.clone())),
        };
        let end = End {
            exit,
            error,
            elapsed_s: self.started.elapsed().as_secs_f64(),
        };
        let written = self.made.experiment.is_some() && !matches!(stop, Some(Stop::Sink(_)));
        if written && let Err(text) = (self.hooks.record)(&Record::End(end.clone())) {
            return End {
                exit: exit::FAILED,
                error: Some(text),
                ..end
            };
        }
        end
    }
}

/// Gives one run its verdict.
pub(super) fn judge(experiment: &Experiment, run: &mut Run) {
    run.spoilt = run.around.accounts.as_deref().is_some_and(harm::is_spoilt);
    run.verdict = checks::verdict(&Evidence {
        experiment,
        runs: &[run],
    });
}
