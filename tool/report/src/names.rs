//! Names of targets that are too long for a line of a terminal, shortened in the middle.

use crate::ResultSet;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A wider name leaves no room for figures beside it.
pub(crate) const WIDEST: usize = 24;

/// The results with short names, and for each of them the short and the whole names of those
/// that were shortened.
pub(crate) struct Named<'a> {
    pub(crate) sets: Cow<'a, [ResultSet]>,
    pub(crate) notes: Vec<Vec<(String, String)>>,
}

/// The results with names that fit a line.
pub(crate) fn named(sets: &[ResultSet]) -> Named<'_> {
    let notes: Vec<_> = sets.iter().map(shortened_names).collect();
    if notes.iter().all(Vec::is_empty) {
        let sets = Cow::Borrowed(sets);
        return Named { sets, notes };
    }
    let renamed = sets.iter().zip(&notes).map(|(set, names)| {
        let mut set = set.clone();
        for (short, whole) in names {
            rename(&mut set, whole, short);
        }
        set
    });
    Named {
        sets: renamed.collect(),
        notes,
    }
}

/// The long names of an experiment behind what stands for them, in the order of the targets.
fn shortened_names(set: &ResultSet) -> Vec<(String, String)> {
    let mut names: Vec<(String, String)> = Vec::new();
    for whole in &set.experiment.plan.targets {
        let short = shortened(whole, WIDEST);
        if *whole == short {
            continue;
        }
        let alike = names
            .iter()
            .filter(|(_, other)| shortened(other, WIDEST) == short);
        let short = match alike.count() {
            0 => short,
            others => format!("{short}#{}", others + 1),
        };
        names.push((short, whole.clone()));
    }
    names
}

/// At most so many letters: the first and the last ones, with a mark between them.
pub(crate) fn shortened(name: &str, widest: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= widest {
        return name.to_owned();
    }
    let first = widest / 2;
    let last = letters.len() - (widest - first - 1);
    let ends = letters[..first].iter().chain(&['…']);
    ends.chain(&letters[last..]).collect()
}

fn rename(set: &mut ResultSet, whole: &str, short: &str) {
    let change = |name: &mut String| {
        if name == whole {
            short.clone_into(name);
        }
    };
    fn key<V>(map: &mut BTreeMap<String, V>, whole: &str, short: &str) {
        if let Some(value) = map.remove(whole) {
            map.insert(short.to_owned(), value);
        }
    }
    let experiment = &mut set.experiment;
    experiment.plan.targets.iter_mut().for_each(change);
    key(&mut experiment.calibration.own_cost, whole, short);
    key(&mut experiment.environment.file_systems, whole, short);
    key(&mut experiment.environment.programs, whole, short);
    key(&mut experiment.target_facts, whole, short);
    let ceilings = experiment.calibration.host_ceilings.iter_mut();
    let ceilings = ceilings.map(|ceiling| &mut ceiling.target);
    let runs = set.runs.iter_mut().map(|run| &mut run.target);
    let fits = set.fits.iter_mut().map(|fit| &mut fit.target);
    ceilings.chain(runs).chain(fits).for_each(change);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made;

    #[test]
    fn names_are_shortened_in_the_middle_and_stay_apart() {
        assert_eq!(shortened("abcdefghi", 9), "abcdefghi");
        assert_eq!(shortened("abcdefghij", 9), "abcd…ghij");
        let mut set = made::set();
        let long = |middle: &str| format!("lib:/{}/{middle}/{}", "a".repeat(30), "b".repeat(30));
        set.experiment.plan.targets = vec![long("x"), "flock".to_owned(), long("y")];
        let named = named(std::slice::from_ref(&set));
        let [first, second, third] = &named.sets[0].experiment.plan.targets[..] else {
            panic!()
        };
        assert_eq!(first.chars().count(), WIDEST);
        assert_eq!((second.as_str(), third), ("flock", &format!("{first}#2")));
        assert_eq!(named.notes[0][1], (third.clone(), long("y")));
    }

    /// Lines had 241 columns.
    #[test]
    fn a_table_with_long_names_is_as_wide_as_the_terminal() {
        let mut set = made::set();
        let whole = format!("lib:/{}.so", "long/".repeat(39));
        rename(&mut set, "sysv", &whole);
        let text = crate::table_within(std::slice::from_ref(&set), 80, false);
        let (first, _) = text.split_once("Next: ").unwrap();
        let wide: Vec<&str> = first
            .lines()
            .filter(|line| line.chars().count() > 80)
            .collect();
        assert_eq!(wide, [whole.as_str()], "{text}");
        let short = shortened(&whole, WIDEST);
        assert!(first.contains(&format!("{short} is\n{whole}\n")), "{text}");
        assert!(
            text.replace(" \\\n      ", " ")
                .contains(&format!("contend flock {whole}"))
        );
    }
}
