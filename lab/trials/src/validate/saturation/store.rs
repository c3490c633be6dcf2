//! What is kept of a run.

use super::kinds::Planted;
use crate::validate::store::slim;
use jostle_model::plan::Plan;
use jostle_model::record::{self, Calibration, Environment, Experiment, SCHEMA};
use jostle_report::ResultSet;
use serde::{Deserialize, Serialize};

/// A line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Run {
    /// Runs of one session are of one kind, and stand one after the other.
    pub session: u64,
    /// Its place in it; those with even numbers are left alone.
    pub at: u32,
    pub kind: String,
    /// None: left alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planted: Option<Planted>,
    /// The first of a session says where and with which jostle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<Environment>,
    /// How often its quota stopped jostle's control group, by our own reading.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stopped: Option<u64>,
    pub plan: Plan,
    /// Without slices, and without histograms that no check looks at.
    pub point: record::Run,
}

impl Run {
    pub(super) fn new(
        session: u64,
        at: u32,
        kind: &str,
        planted: Option<Planted>,
        (set, stopped): (ResultSet, u64),
    ) -> Run {
        let mut point = set.runs.into_iter().next().unwrap_or_default();
        slim(&mut point);
        Run {
            session,
            at,
            kind: kind.to_owned(),
            planted,
            environment: (at == 0).then_some(set.experiment.environment),
            stopped: Some(stopped),
            plan: set.experiment.plan,
            point,
        }
    }

    /// What checks want to know beside the run, in its session's environment.
    pub(super) fn experiment(&self, environment: &Environment) -> Experiment {
        Experiment {
            schema: SCHEMA.to_owned(),
            plan: self.plan.clone(),
            environment: environment.clone(),
            calibration: Calibration::default(),
            target_facts: Default::default(),
            started_at: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::saturation::kinds::Plant;
    use crate::validate::store::Store;
    use jostle_model::plan::Workload;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.jsonl");
        for at in 0..3 {
            let mut store: Store<Run> = Store::open(Some(&path)).unwrap();
            assert_eq!(store.lines.len(), at as usize);
            let planted = Planted {
                plant: Plant::Pause,
                dose: 20,
            };
            let point = record::Run {
                throughput_per_s: f64::from(at),
                ..record::Run::default()
            };
            let set = ResultSet::new(experiment(), vec![point], None);
            let planted = (at == 1).then_some(planted);
            let run = Run::new(7, at, "stream, tasks", planted, (set, 0));
            store.add(run).unwrap();
        }
        let runs = Store::<Run>::open(Some(&path)).unwrap().lines;
        let rates: Vec<f64> = runs.iter().map(|run| run.point.throughput_per_s).collect();
        assert_eq!(rates, [0.0, 1.0, 2.0]);
        let whole = |at: usize| (runs[at].environment.is_some(), runs[at].planted.is_some());
        assert_eq!(
            [whole(0), whole(1), whole(2)],
            [(true, false), (false, true), (false, false)]
        );
    }

    fn experiment() -> Experiment {
        let run = Run {
            session: 0,
            at: 0,
            kind: String::new(),
            planted: None,
            environment: None,
            stopped: None,
            plan: Plan::of(Workload::Stream),
            point: record::Run::default(),
        };
        run.experiment(&Environment::default())
    }
}
