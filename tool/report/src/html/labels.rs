//! The differences between several experiments: the labels of their series, and the table
//! of all differences.

use crate::ResultSet;
use jostle_model::serial::{Value, environment_fields, plan_fields};
use serde_json::Map;
use std::collections::{BTreeMap, BTreeSet};

/// Facts that differ between two starts on the same machine, and so are no difference.
const NOISE: [&str; 3] = ["memory_available_bytes", "steal_share_since_boot", "seed"];

/// The facts that a reader looks for first. Other facts follow, those of [`LAST`] at the end.
const FIRST: [&str; 7] = [
    "kernel",
    "file_systems",
    "jostle",
    "libc",
    "cpu_model",
    "cores",
    "host",
];
const LAST: [&str; 13] = [
    "settings",
    "limits",
    "cgroup",
    "memory_bytes",
    "targets",
    "workers",
    "operations",
    "keys",
    "runs",
    "duration",
    "warmup",
    "budget",
    "started_at",
];

/// A fact that is not the same everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// Its path in the record.
    pub name: String,
    /// In each experiment; None where it is absent.
    pub values: Vec<Option<String>>,
}

impl Difference {
    /// As a label says it: values that speak for themselves do so alone.
    fn words(&self, at: usize) -> String {
        let name = self.name.rsplit('.').next().unwrap_or(&self.name);
        let alone = ["kernel", "libc", "cpu_model", "started_at"].contains(&name)
            || self.name.starts_with("file_systems.");
        match &self.values[at] {
            None => format!("no {name}"),
            Some(value) if value == "false" => format!("no {name}"),
            Some(value) if value == "true" => name.to_owned(),
            Some(value) if alone => value.clone(),
            Some(value) if name == "cores" => format!("{value} cores"),
            Some(value) => format!("{name} {value}"),
        }
    }
}

/// All that differs, in the order in which readers ask for it.
pub(super) fn differences(sets: &[&ResultSet]) -> Vec<Difference> {
    let mut facts: Vec<BTreeMap<String, String>> = sets.iter().map(|set| facts(set)).collect();
    // Files of older versions have no settings: that is no difference.
    let unknown = |set: &&ResultSet| set.experiment.environment.settings.is_empty();
    if sets.iter().any(unknown) {
        for facts in &mut facts {
            facts.retain(|name, _| !name.starts_with("settings."));
        }
    }
    let mut names: Vec<&String> = facts.iter().flat_map(BTreeMap::keys).collect();
    names.sort_by_key(|name| (rank(name), name.as_str()));
    names.dedup();
    let of_all = |name: &String| Difference {
        name: name.clone(),
        values: facts.iter().map(|facts| facts.get(name).cloned()).collect(),
    };
    names
        .into_iter()
        .map(of_all)
        .filter(|fact| fact.values.iter().any(|value| *value != fact.values[0]))
        .collect()
}

/// A label for each experiment: the one that the user gave to its file, with what
/// tells experiments of that file apart; without one, what tells it from all others.
pub(super) fn labels(sets: &[&ResultSet]) -> Vec<String> {
    let by_differences = of_differences(sets);
    let of = |at: usize| -> String {
        let Some(given) = &sets[at].label else {
            return by_differences[at].clone();
        };
        let same = |other: &usize| sets[*other].label.as_ref() == Some(given);
        let group: Vec<usize> = (0..sets.len()).filter(same).collect();
        let members: Vec<&ResultSet> = group.iter().map(|other| sets[*other]).collect();
        let own = group.iter().position(|other| *other == at);
        let beside = own.map(|own| of_differences(&members)[own].clone());
        match beside.filter(|beside| !beside.is_empty()) {
            Some(beside) => format!("{given}, {beside}"),
            None => given.clone(),
        }
    };
    (0..sets.len()).map(of).collect()
}

/// Labels from as many differences as are needed to distinguish the experiments, the most
/// important first. Experiments without a difference are numbered. A single experiment gets
/// no label.
fn of_differences(sets: &[&ResultSet]) -> Vec<String> {
    let mut labels = vec![String::new(); sets.len()];
    if sets.len() < 2 {
        return labels;
    }
    let mut kinds = 1;
    for difference in differences(sets) {
        let longer = labels
            .iter()
            .enumerate()
            .map(|(at, so_far)| match so_far.as_str() {
                "" => difference.words(at),
                so_far => format!("{so_far}, {}", difference.words(at)),
            });
        let longer: Vec<String> = longer.collect();
        let told_apart = longer.iter().collect::<BTreeSet<_>>().len();
        if told_apart > kinds {
            (labels, kinds) = (longer, told_apart);
        }
        if kinds == sets.len() {
            return labels;
        }
    }
    let numbered = labels.iter().enumerate();
    numbered
        .map(|(at, label)| format!("{label} #{}", at + 1).trim_start().to_owned())
        .collect()
}

fn rank(name: &str) -> usize {
    let head = name.split('.').next().unwrap_or(name);
    let among = |list: &[&str]| list.iter().position(|known| *known == head);
    let of_plan = FIRST.len() + 1;
    among(&FIRST)
        .or(among(&LAST).map(|at| of_plan + at))
        .unwrap_or(FIRST.len())
}

fn facts(set: &ResultSet) -> BTreeMap<String, String> {
    let mut facts = where_and_when(set);
    facts.extend(flat(plan_fields(&set.experiment.plan)));
    facts.retain(|name, _| !NOISE.contains(&name.as_str()));
    facts
}

/// The environment of an experiment, and when it began.
pub(super) fn where_and_when(set: &ResultSet) -> BTreeMap<String, String> {
    let mut facts = flat(environment_fields(&set.experiment.environment));
    facts.insert("started_at".to_owned(), set.experiment.started_at.clone());
    facts
}

/// A record as path to text, `file_systems.flock` to `tmpfs`.
fn flat(record: Map<String, Value>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    collect("", &Value::Object(record), &mut found);
    found
}

fn collect(path: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                collect(&path, value, found);
            }
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(text).collect();
            found.insert(path.to_owned(), items.join(":"));
        }
        value => {
            found.insert(path.to_owned(), text(value));
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;
    use jostle_model::plan::Place;

    #[test]
    fn two_kernels_are_labelled_by_their_kernels() {
        let (old, mut new) = (made::set(), made::set());
        new.experiment.environment.kernel = "Linux 6.19".to_owned();
        new.experiment.environment.memory_available_bytes = 7;
        new.experiment.plan.seed = Some(7);
        new.experiment.started_at = "2026-12-01T00:00:00Z".to_owned();
        assert_eq!(labels(&[&old, &new]), ["Linux 6.18", "Linux 6.19"]);
        let names: Vec<String> = differences(&[&old, &new])
            .into_iter()
            .map(|d| d.name)
            .collect();
        assert_eq!(names, ["kernel", "started_at"]);
    }

    #[test]
    fn an_option_is_named_with_its_value() {
        let (free, mut same) = (made::set(), made::set());
        same.experiment.plan.place = Some(Place::Same);
        same.experiment.plan.runs = Some(9);
        assert_eq!(labels(&[&free, &same]), ["place none", "place same"]);
    }

    #[test]
    fn as_many_differences_as_are_needed_and_no_more() {
        let set = |host: &str, kernel: &str| {
            let mut set = made::set();
            set.experiment.environment.host = host.to_owned();
            set.experiment.environment.kernel = kernel.to_owned();
            set
        };
        let sets = [
            set("reef", "6.18"),
            set("reef", "6.19"),
            set("lagoon", "6.19"),
        ];
        let sets: Vec<&ResultSet> = sets.iter().collect();
        assert_eq!(
            labels(&sets),
            ["6.18, host reef", "6.19, host reef", "6.19, host lagoon"]
        );
        assert_eq!(labels(&sets[..2]), ["6.18", "6.19"]);
    }

    #[test]
    fn what_nothing_tells_apart_is_numbered_and_one_alone_has_no_label() {
        let set = made::set();
        assert_eq!(labels(&[&set, &set]), ["#1", "#2"]);
        assert_eq!(labels(&[&set]), [""]);
    }

    #[test]
    fn a_given_label_stands_for_its_file_and_differences_tell_its_experiments_apart() {
        let (old, mut new) = (made::set(), made::set());
        new.label = Some("new".to_owned());
        let mut other = new.clone();
        other.experiment.plan.place = Some(Place::Same);
        assert_eq!(labels(&[&new]), ["new"]);
        assert_eq!(
            labels(&[&new, &other]),
            ["new, place none", "new, place same"]
        );
        let mut named = old.clone();
        named.label = Some("old".to_owned());
        assert_eq!(labels(&[&named, &new]), ["old", "new"]);
        assert_eq!(labels(&[&old, &new]), ["#1", "new"]);
    }

    #[test]
    fn what_is_absent_is_said_to_be() {
        let (mut with, without) = (made::set(), made::set());
        with.experiment.environment.governor = Some("powersave".to_owned());
        assert_eq!(
            labels(&[&with, &without]),
            ["governor powersave", "no governor"]
        );
    }
}
