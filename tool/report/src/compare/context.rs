//! Differences between two results other than the figures.

use crate::ResultSet;
use jostle_model::record::Environment;
use jostle_model::serial::{Value, environment_fields, plan_fields};
use jostle_model::swept::SWEPT;
use serde_json::Map;
use std::collections::BTreeSet;

/// `old.jsonl (2026-11-21T00:00:00Z, jostle 0.1.0)`.
pub(super) fn name(file: &str, sets: &[ResultSet], target: Option<&str>) -> String {
    let made = sets.first().map_or(String::new(), |set| {
        let experiment = &set.experiment;
        format!(
            " ({}, jostle {})",
            experiment.started_at, experiment.environment.jostle
        )
    });
    let target = target.map_or(String::new(), |target| format!("{target} of "));
    let cut = sets.iter().any(|set| set.end.is_none());
    let cut = if cut { ", cut short" } else { "" };
    format!("{target}{file}{made}{cut}")
}

/// One sentence for each difference of environment and plan.
pub(super) fn differences(base: &ResultSet, new: &ResultSet) -> Vec<String> {
    let environments = [base, new].map(|set| fields(&set.experiment.environment));
    let plans = [base, new].map(|set| &set.experiment.plan);
    let plans = plans.map(plan_fields);
    // Files of older versions have no settings: that is no difference.
    let known = [base, new].map(|set| !set.experiment.environment.settings.is_empty());
    let without: &[&str] = if known == [true; 2] {
        &[]
    } else {
        &["settings"]
    };
    let mut said = differing(&environments[0], &environments[1], without);
    // Leaves out swept values, which the points show, and the seed, which always differs.
    let swept = SWEPT.iter().map(|swept| swept.name);
    let without: Vec<&str> = ["seed", "targets"].into_iter().chain(swept).collect();
    said.extend(differing(&plans[0], &plans[1], &without));
    said
}

/// The environment without fields that change from minute to minute.
fn fields(environment: &Environment) -> Map<String, Value> {
    let mut fields = environment_fields(environment);
    for volatile in [
        "memory_available_bytes",
        "steal_share_since_boot",
        "programs",
    ] {
        fields.remove(volatile);
    }
    fields
}

fn differing(base: &Map<String, Value>, new: &Map<String, Value>, without: &[&str]) -> Vec<String> {
    let names: BTreeSet<&String> = base.keys().chain(new.keys()).collect();
    names
        .into_iter()
        .filter(|name| !without.contains(&name.as_str()))
        .flat_map(|name| match (base.get(name), new.get(name)) {
            (Some(Value::Object(one)), Some(Value::Object(other))) => {
                let inner = differing(one, other, &[]).into_iter();
                inner.map(|text| format!("{name}, {text}")).collect()
            }
            (one, other) if one != other => {
                vec![format!("{name}: {} -> {}", shown(one), shown(other))]
            }
            _ => Vec::new(),
        })
        .collect()
}

fn shown(value: Option<&Value>) -> String {
    match value {
        None => "none".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
