//! The course of `verify`: each target in turn; a finding is made again with the same seed.

use super::{ExperimentLoop, Limits, Progress, Stop};
use crate::keeper::KeeperError;
use crate::order::{VerifyData, VerifyOrder};
use crate::resolve::verify::{faults_of, promised, with};
use crate::takes;
use jostle_model::Nanos;
use jostle_model::plan::Workload;
use jostle_model::record::{
    At, BROKE_OFF, Circumstances, Environment, Experiment, Run, Verified, Violation, Window,
};
use jostle_targets::Spec;

/// Runs that try whether a violation comes again.
const AGAIN: u32 = 3;
/// They go on for so long beyond the time at which the first one was complete.
const BEYOND: Nanos = Nanos::from_millis(10_000);

impl ExperimentLoop<'_, '_> {
    /// As `go`, for long times of random faults.
    pub(super) fn go_verify(&mut self, environment: Environment) -> Result<(), Stop> {
        let experiment = self.begin_uncalibrated("monotonic", environment)?;
        let plan = &self.resolved.plan;
        let runs = plan.runs.unwrap_or(1);
        let left = runs.saturating_sub(self.block);
        let specs = self.resolved.specs.iter();
        let takes: u64 = specs.map(|spec| takes::verified_ns(plan, spec)).sum();
        (self.hooks.progress)(Progress::Planned {
            points: self.resolved.specs.len(),
            rounds: left as usize,
            takes: Nanos(takes * u64::from(left)),
            limits: Limits::default(),
        });
        let resolved = self.resolved;
        for block in self.block + 1..=runs {
            for spec in &resolved.specs {
                self.verify(&experiment, spec, block)?;
            }
        }
        self.conclude()
    }

    /// One run, and those that make its finding again. What was found until the user ended it is
    /// kept.
    fn verify(&mut self, experiment: &Experiment, spec: &Spec, block: u32) -> Result<(), Stop> {
        (self.hooks.progress)(Progress::Run(&spec.typed, At::default(), block));
        let order = self.verify_order(spec, block)?;
        let mut data = self.ask_to_verify(&order)?;
        let mut stop = (self.hooks.ended)().map(|_| KeeperError::Interrupted);
        if let (None, Some(kind)) = (&stop, kind(&data.verified)) {
            let tried = self.again(&order, data.found_ns, kind);
            (data.verified.again, stop) = tried;
        }
        let is_interrupted = matches!(stop, Some(KeeperError::Interrupted));
        self.finish(experiment, record(spec, block, data, is_interrupted))?;
        stop.map_or(Ok(()), |stop| Err(stop.into()))
    }

    /// How often the same kind was found in how many runs, and what ended them early.
    fn again(
        &mut self,
        first: &VerifyOrder,
        found_ns: Option<u64>,
        kind: Violation,
    ) -> (Option<(u32, u32)>, Option<KeeperError>) {
        let until = Nanos(found_ns.unwrap_or(first.lasts.0).saturating_add(BEYOND.0));
        let order = VerifyOrder {
            until: Some(until),
            history: None,
            ..first.clone()
        };
        let mut seen = 0;
        for tried in 0..AGAIN {
            match self.ask_to_verify(&order) {
                Ok(data) => seen += u32::from(data.verified.of(kind) > 0),
                Err(error) => return ((tried > 0).then_some((seen, tried)), Some(error)),
            }
            if (self.hooks.ended)().is_some() {
                return (Some((seen, tried + 1)), Some(KeeperError::Interrupted));
            }
        }
        (Some((seen, AGAIN)), None)
    }

    fn ask_to_verify(&mut self, order: &VerifyOrder) -> Result<VerifyData, KeeperError> {
        let ended = &mut self.hooks.ended;
        let keeper = self.world.keeper();
        keeper.verify(order, &mut || ended().is_some())
    }

    /// The second run has the next seed, so that each can be made again by itself.
    fn verify_order(&self, spec: &Spec, block: u32) -> Result<VerifyOrder, Stop> {
        let plan = &self.resolved.plan;
        let nth = self.made.runs.len() + self.left_out + 1;
        let numbered = |text: &str| text.replace("{run}", &nth.to_string());
        let promise = promised(plan).map_err(|error| KeeperError::Failed(error.to_string()))?;
        Ok(VerifyOrder {
            target: numbered(spec.whole()),
            clients: one(&plan.workers),
            keys: one(&plan.keys),
            lasts: plan.keep(),
            until: None,
            lease: plan.lease(),
            faults: faults_of(plan, spec),
            promise,
            with: with(plan, spec).map(str::to_owned),
            history: plan.history.as_deref().map(numbered),
            members: plan.members() as usize,
            wait_replicas: plan.wait_replicas() as usize,
            credentials: plan.credentials.clone(),
            seed: plan.seed().wrapping_add(u64::from(block - 1)),
        })
    }
}

fn one(list: &Option<jostle_model::List>) -> usize {
    let first = list.as_ref().and_then(|list| list.0.first());
    first.map_or(1, |n| *n as usize)
}

/// The kind of the first violation.
fn kind(verified: &Verified) -> Option<Violation> {
    let excerpt = verified.excerpt.as_ref().map(|excerpt| excerpt.kind);
    let mut all = Violation::ALL.into_iter();
    excerpt.or_else(|| all.find(|kind| verified.of(*kind) > 0))
}

/// The record, without its verdict. One that ended before its time is not whole, unless the user
/// ended it.
fn record(spec: &Spec, block: u32, data: VerifyData, is_interrupted: bool) -> Run {
    let window_s = data.took_ns as f64 / 1e9;
    let broke_off = data.cut_short.filter(|_| !is_interrupted);
    let operations = data.verified.grants;
    Run {
        target: spec.typed.clone(),
        workload: Workload::Verify.to_string(),
        run: block,
        block,
        window: Window {
            window_s,
            ramp_s: data.ramp_ns as f64 / 1e9,
            ..Window::default()
        },
        operations,
        throughput_per_s: match window_s > 0.0 {
            true => operations as f64 / window_s,
            false => 0.0,
        },
        placement: "none".to_owned(),
        around: Circumstances {
            deaths: data.deaths,
            setup: data.setup,
            errors: broke_off
                .iter()
                .map(|_| (BROKE_OFF.to_owned(), 1))
                .collect(),
            messages: broke_off.into_iter().collect(),
            ..Circumstances::default()
        },
        verified: Some(Box::new(data.verified)),
        ..Run::default()
    }
}
