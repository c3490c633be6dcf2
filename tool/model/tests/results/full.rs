//! A record of every kind with every field set: nothing is taken from a default, so that a
//! new field does not compile until it stands here.

mod experiment;
mod judge;
mod run;

use experiment::{experiment, scheduled};
use jostle_model::record::*;
use judge::{doubled, judged, watched};
use run::{closing, fit, run};
use serde_json::Value;
use std::collections::BTreeMap;

fn map<V>(key: &str, value: V) -> BTreeMap<String, V> {
    BTreeMap::from([(key.to_owned(), value)])
}

/// One of each kind.
pub(crate) fn records() -> [Value; 10] {
    let end = End {
        exit: 0,
        error: Some("interrupted".to_owned()),
        elapsed_s: 1.0,
    };
    let resumed = Resumed {
        started_at: "2026-01-01T00:00:00Z".to_owned(),
        block: 2,
        left_out: 1,
    };
    [
        Record::Experiment(Box::new(experiment())),
        Record::Run(Box::new(run())),
        Record::Scheduled(Box::new(scheduled())),
        Record::Resumed(Box::new(resumed)),
        Record::Closing(Box::new(closing())),
        Record::Verdict(Box::new(judged())),
        Record::Fit(Box::new(fit())),
        Record::End(end),
        Record::Judged(Box::new(watched())),
        Record::Doubled(Box::new(doubled())),
    ]
    .map(|record| serde_json::to_value(record).unwrap())
}
