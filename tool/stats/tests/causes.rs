//! The table of causes against situations: looks with the truth beside them, most of them recorded
//! on real servers. What is said of a situation is what its truth has, and no more.

#![allow(clippy::unwrap_used, reason = "every function here is of a test")]

use jostle_model::record::{Came, Look, sign};
use jostle_stats::causes::{CAUSES, Cause, Facts, Shown, Test, shown};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Situation {
    name: String,
    /// How it was made.
    #[serde(rename = "made")]
    _made: String,
    /// The checks that report it.
    checks: Vec<String>,
    /// The true state: causes by their names in the table, and others.
    truth: BTreeSet<String>,
    /// Those that are said for certain.
    #[serde(default)]
    says: BTreeSet<String>,
    /// Those that are said to be possible: nobody could tell by these looks.
    #[serde(default)]
    may: BTreeSet<String>,
    looks: Vec<Look>,
}

#[derive(Deserialize)]
struct Page {
    situation: Vec<Situation>,
}

fn situations() -> Vec<Situation> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/causes");
    let mut all = Vec::new();
    for file in std::fs::read_dir(place).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let page: Page = toml::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        all.extend(page.situation);
    }
    all
}

/// The names of the causes that these rows show like this.
fn names(rows: &[Cause], check: &str, looks: &[Look], like: Shown) -> BTreeSet<String> {
    let all = shown(rows, check, &Facts::new(looks)).into_iter();
    let like = all.filter(|(_, shown)| *shown == like);
    like.map(|(cause, _)| cause.name.to_owned()).collect()
}

/// Whether these rows say what is to be said.
fn is_right(rows: &[Cause], situation: &Situation) -> bool {
    situation.checks.iter().all(|check| {
        let of = |like| names(rows, check, &situation.looks, like);
        of(Shown::Certain) == situation.says && of(Shown::Possible) == situation.may
    })
}

#[test]
fn what_is_said_of_each_situation_is_its_truth() {
    for situation in situations() {
        let Situation { name, says, .. } = &situation;
        assert!(says.is_subset(&situation.truth), "{name}");
        for check in &situation.checks {
            let of = |like| names(CAUSES, check, &situation.looks, like);
            assert_eq!(of(Shown::Certain), *says, "{name}: {check}, certain");
            assert_eq!(
                of(Shown::Possible),
                situation.may,
                "{name}: {check}, possible"
            );
        }
    }
}

#[test]
fn situations_name_causes_and_signs_that_there_are() {
    let causes: BTreeSet<&str> = CAUSES.iter().map(|cause| cause.name).collect();
    let signs: BTreeSet<&str> = sign::ALL.iter().map(|(name, _)| *name).collect();
    assert_eq!(causes.len(), CAUSES.len());
    assert_eq!(signs.len(), sign::ALL.len());
    let mut known = BTreeSet::new();
    for situation in situations() {
        let name = &situation.name;
        assert!(known.insert(name.clone()), "{name}: twice");
        for cause in situation.says.iter().chain(&situation.may) {
            assert!(causes.contains(&**cause), "{name}: {cause}");
        }
        for sign in situation.looks.iter().flat_map(|look| look.signs.keys()) {
            assert!(signs.contains(&**sign), "{name}: {sign}");
        }
    }
}

/// A situation that has all that a cause needs, and is something else.
#[test]
fn each_cause_has_a_rival_and_is_said_of_a_situation() {
    let all = situations();
    let meets = |cause: &Cause, situation: &Situation| {
        let facts = Facts::new(&situation.looks);
        let mut needs = cause.needs.iter();
        needs.all(|test| (test.of)(&facts) == Some(true))
    };
    for cause in CAUSES {
        let name = cause.name;
        let is_rival = |one: &Situation| meets(cause, one) && !one.truth.contains(name);
        assert!(all.iter().any(is_rival), "{name}: no rival");
        let says = |one: &Situation| match cause.says {
            "" => one.may.contains(name) && one.truth.contains(name),
            _ => one.says.contains(name),
        };
        assert!(all.iter().any(says), "{name}: never said");
    }
}

type ListOf = fn(&mut Cause) -> &mut &'static [&'static Test];

/// The table without one test of one list of one row, and what that test asks.
fn without(row: usize, list: ListOf, nth: usize) -> Option<(Vec<Cause>, &'static str)> {
    let mut rows = CAUSES.to_vec();
    let list = list(&mut rows[row]);
    let mut less = list.to_vec();
    let words = list.get(nth)?.words;
    less.remove(nth);
    *list = less.leak();
    Some((rows, words))
}

#[test]
fn without_any_test_of_the_table_some_situation_is_said_wrong() {
    const LISTS: [ListOf; 3] = [
        |of| &mut of.needs,
        |of| &mut of.refuted,
        |of| &mut of.doubted,
    ];
    let all = situations();
    for (row, cause) in CAUSES.iter().enumerate() {
        for list in LISTS {
            for nth in 0.. {
                let Some((rows, words)) = without(row, list, nth) else {
                    break;
                };
                let fails = all.iter().any(|situation| !is_right(&rows, situation));
                assert!(fails, "{}: no situation needs: {words}", cause.name);
            }
        }
    }
}

/// An unknown makes nothing certain.
#[test]
fn without_any_sign_or_look_nothing_more_is_certain() {
    for situation in situations() {
        let is_no_more = |looks: &[Look], what: &str| {
            for check in &situation.checks {
                let certain = names(CAUSES, check, looks, Shown::Certain);
                let less = certain.is_subset(&situation.says);
                assert!(less, "{} without {what}: {certain:?}", situation.name);
            }
        };
        for at in 0..situation.looks.len() {
            for sign in situation.looks[at].signs.keys() {
                let mut looks = situation.looks.clone();
                looks[at].signs.remove(sign);
                is_no_more(&looks, sign);
            }
            let mut looks = situation.looks.clone();
            looks[at].came = Came::NotAsked;
            is_no_more(&looks, "an answer");
            looks.remove(at);
            is_no_more(&looks, "a look");
        }
    }
}

/// Each test of a certain cause rests on looks: without one of their signs, or without them, it
/// has no answer, and the cause is possible or not said.
#[test]
fn a_certain_cause_rests_on_looks() {
    for situation in situations() {
        let signs = situation.looks.iter().flat_map(|look| look.signs.keys());
        let signs: BTreeSet<&String> = signs.collect();
        let without_sign = signs.into_iter().map(|sign| {
            let mut looks = situation.looks.clone();
            looks
                .iter_mut()
                .for_each(|look| drop(look.signs.remove(sign)));
            looks
        });
        let without_look = (0..situation.looks.len()).map(|at| {
            let mut looks = situation.looks.clone();
            looks[at].came = Came::NotAsked;
            looks
        });
        let less: Vec<Vec<Look>> = without_sign.chain(without_look).collect();
        for name in &situation.says {
            let cause = CAUSES.iter().find(|cause| cause.name == name).unwrap();
            for test in cause.tests() {
                let is_shaken = |looks: &Vec<Look>| {
                    let facts = Facts::new(looks);
                    (test.of)(&facts).is_none() && cause.shown(&facts) != Shown::Certain
                };
                let rests = less.iter().any(is_shaken);
                assert!(rests, "{}: {name}: {}", situation.name, test.words);
            }
        }
    }
}
