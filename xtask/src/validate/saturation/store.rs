//! The file of runs: a line for each, written when it is over, so that the next
//! call goes on where this one was ended.

use super::kinds::Planted;
use anyhow::Context;
use jostle_model::plan::Plan;
use jostle_model::record::{Calibration, Environment, Experiment, Point, SCHEMA};
use jostle_report::ResultSet;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

/// What checks look at; the others are as long as all the rest.
const HISTOGRAMS: [&str; 4] = [
    "response_ns",
    "unanswered_ns",
    "generator_lag_ns",
    "canary_lag_ns",
];

/// A line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
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
    pub point: Point,
}

impl Run {
    pub fn new(session: u64, at: u32, kind: &str, planted: Option<Planted>, set: ResultSet) -> Run {
        let mut point = set.points.into_iter().next().unwrap_or_default();
        let is_open = point.open_loop.is_some();
        point
            .histograms
            .retain(|name, _| is_open && HISTOGRAMS.contains(&name.as_str()));
        point.series.clear();
        Run {
            session,
            at,
            kind: kind.to_owned(),
            planted,
            environment: (at == 0).then_some(set.experiment.environment),
            stopped: None,
            plan: set.experiment.plan,
            point,
        }
    }

    /// What checks want to know beside the run, in its session's environment.
    pub fn experiment(&self, environment: &Environment) -> Experiment {
        Experiment {
            schema: SCHEMA.to_owned(),
            plan: self.plan.clone(),
            environment: environment.clone(),
            calibration: Calibration::default(),
            started_at: String::new(),
        }
    }
}

/// The runs so far, and where more go.
pub struct Store {
    pub runs: Vec<Run>,
    file: Option<File>,
}

impl Store {
    /// Without a path nothing is kept.
    pub fn open(path: Option<&Path>) -> anyhow::Result<Store> {
        let Some(path) = path else {
            return Ok(Store {
                runs: Vec::new(),
                file: None,
            });
        };
        let said = || path.display().to_string();
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).open(path);
        let file = file.with_context(said)?;
        let runs = BufReader::new(&file).lines().map(|line| {
            let line = line?;
            serde_json::from_str(&line).map_err(anyhow::Error::from)
        });
        Ok(Store {
            runs: runs.collect::<anyhow::Result<_>>().with_context(said)?,
            file: Some(file),
        })
    }

    pub fn add(&mut self, run: Run) -> anyhow::Result<()> {
        if let Some(file) = &mut self.file {
            let line = serde_json::to_string(&run)? + "\n";
            file.write_all(line.as_bytes())?;
        }
        self.runs.push(run);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::saturation::kinds::Plant;
    use jostle_model::plan::Workload;

    #[test]
    fn the_next_call_goes_on_behind_what_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.jsonl");
        for at in 0..3 {
            let mut store = Store::open(Some(&path)).unwrap();
            assert_eq!(store.runs.len(), at as usize);
            let planted = Planted {
                plant: Plant::Pause,
                dose: 20,
            };
            let point = Point {
                throughput_per_s: f64::from(at),
                ..Point::default()
            };
            let set = ResultSet::new(experiment(), vec![point], None);
            let planted = (at == 1).then_some(planted);
            let run = Run::new(7, at, "stream, tasks", planted, set);
            store.add(run).unwrap();
        }
        let runs = Store::open(Some(&path)).unwrap().runs;
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
            point: Point::default(),
        };
        run.experiment(&Environment::default())
    }
}
