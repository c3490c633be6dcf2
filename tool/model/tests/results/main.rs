//! `jostle explain` has a meaning for every field that a result file can have, also for keys of maps.

#![allow(clippy::unwrap_used, reason = "every function here is of a test")]

mod full;

use full::records;
use jostle_model::record::SCHEMA;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Their keys are data (targets, times, limits, errors), not names of fields.
const KEYED_BY_DATA: [&str; 19] = [
    "faults",
    "without",
    "said",
    "codes",
    "decades",
    "errors",
    "file_systems",
    "hash_sizes",
    "histograms",
    "limits",
    "settings",
    "over",
    "own_cost",
    "programs",
    "setup",
    "slab_caches",
    "sockstat",
    "target_facts",
    "truth",
];

fn names(value: &Value, are_fields: bool, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                if are_fields {
                    into.insert(key.clone());
                }
                names(value, !KEYED_BY_DATA.contains(&key.as_str()), into);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| names(value, true, into)),
        _ => {}
    }
}

/// Keys of maps stand on the page, options on a generated one.
const PAGES: [&str; 2] = ["results.md", "options.md"];

fn page() -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    PAGES
        .iter()
        .map(|name| {
            let path = docs.join(name);
            std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        })
        .collect()
}

#[test]
fn every_field_is_described() {
    let page = page();
    let parts = jostle_model::fields::parts();
    let described: Vec<_> = parts.iter().flat_map(|part| &part.fields).collect();
    let mut fields = BTreeSet::new();
    for record in records() {
        names(&record, true, &mut fields);
    }
    assert!(fields.len() > 100, "{}", fields.len());
    let missing: Vec<_> = fields
        .iter()
        .filter(|field| {
            let word = format!("`{field}`");
            let says = |of: &&jostle_model::fields::Described| {
                of.bare_name() == *field || of.meaning.contains(&word)
            };
            !page.contains(&word) && !described.iter().any(says)
        })
        .collect();
    assert!(missing.is_empty(), "no comment describes {missing:?}");
}

#[test]
fn the_page_is_of_this_version() {
    assert!(page().contains(&format!("`schema` is `{SCHEMA}`")));
}

#[test]
fn the_example_shows_no_field_that_a_point_does_not_have() {
    let page = page();
    let (_, example) = page.split_once("```json\n").unwrap();
    let example: Value = serde_json::from_str(example.lines().next().unwrap()).unwrap();
    let [_, point, ..] = records();
    let (mut shown, mut known) = (BTreeSet::new(), BTreeSet::new());
    names(&example, true, &mut shown);
    names(&point, true, &mut known);
    assert!(shown.is_subset(&known), "{:?}", &shown - &known);
}
