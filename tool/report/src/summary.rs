//! `--format summary`: one JSON document, a list with an object for each point: its figures
//! over the runs with their intervals, and the verdict. INVALID points have no figures.

use crate::ResultSet;
use jostle_model::record::Reason;
use jostle_stats::figures::SUMMARIZED;
use jostle_stats::summary::{Estimate, PointSummary, summarize};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The document.
pub(crate) fn render(sets: &[ResultSet]) -> String {
    let files: BTreeSet<_> = sets.iter().map(|set| &set.file).collect();
    let of_set = |set: &ResultSet| -> Vec<Value> {
        let points = summarize(&set.experiment, &set.runs);
        let file = set.file.as_ref().filter(|_| files.len() > 1);
        let objects = points.iter().map(|point| object(set, file, point));
        objects.collect()
    };
    let all: Vec<Value> = sets.iter().flat_map(of_set).collect();
    // A list of objects always has a text.
    serde_json::to_string_pretty(&all).unwrap_or_default() + "\n"
}

/// `file`: where there are several.
fn object(set: &ResultSet, file: Option<&String>, point: &PointSummary<'_>) -> Value {
    let all = SUMMARIZED.iter().filter(|_| point.is_usable());
    let known = all.filter_map(|of| Some((of.name.to_owned(), estimate(point.of(of)?))));
    let figures: Map<String, Value> = known.collect();
    let reason =
        |reason: &Reason| json!({ "is": reason.is, "check": reason.check, "text": reason.text });
    let reasons: Vec<Value> = point.verdict.reasons.iter().map(reason).collect();
    json!({
        "file": file,
        "label": set.label,
        "started_at": set.experiment.started_at,
        "workload": point.workload.as_str(),
        "target": point.target,
        "at": point.at,
        "runs": point.runs.len(),
        "figures": figures,
        "verdict": point.verdict.is,
        "reasons": reasons,
        "limited_by": point.limited_by(),
    })
}

/// `interval` is true where the ends are a 95 % interval of the median, and false where they
/// are the range of the runs.
fn estimate(of: Estimate) -> Value {
    json!({
        "median": of.median,
        "low": of.low,
        "high": of.high,
        "interval": of.interval,
        "runs": of.runs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;
    use jostle_stats::figures;

    #[test]
    fn it_is_one_document_with_the_figures_of_the_summary() {
        let set = made::set();
        let text = render(&[set.clone(), made::broken()]);
        let all: Vec<Value> = serde_json::from_str(&text).unwrap();
        let points = summarize(&set.experiment, &set.runs);
        assert_eq!(all.len(), points.len() + 1);
        for (found, point) in all.iter().zip(&points) {
            let of = point.of(figures::THROUGHPUT).unwrap();
            let figure = &found["figures"]["throughput_per_s"];
            assert_eq!(figure["median"], of.median);
            assert_eq!(
                (&figure["low"], &figure["high"]),
                (&json!(of.low), &json!(of.high))
            );
            assert_eq!(found["at"]["workers"], json!(point.at.workers));
            assert_eq!(found["target"], point.target);
        }
        let broken = &all[points.len()];
        assert_eq!(broken["verdict"], "INVALID");
        assert_eq!(broken["figures"], json!({}));
        assert!(broken["reasons"][0]["text"].is_string());
    }
}
