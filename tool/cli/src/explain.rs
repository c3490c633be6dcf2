//! `jostle explain`: the tables of checks and of causes, for people and for the pages in
//! tool/docs, and what the fields of a result file mean.

use crate::args::Explain;
use crate::{Failure, causes, print};
use jostle_model::fields::{self, Described, Part};
use jostle_report::format::wrap;
use jostle_report::words::explained;
use jostle_stats::checks::{CHECKS, Check, named};

const WIDTH: usize = 80;

/// Prints one check, the records and fields of a name, or all checks in a line each, and returns
/// the exit code.
///
/// # Errors
/// A name that neither a check nor a field has.
pub(crate) fn explain(asked: &Explain) -> Result<u8, Failure> {
    let name = asked.words.join(" ");
    let text = match (name.as_str(), asked.format.as_str()) {
        ("", "markdown") => page(),
        ("", _) => list(),
        ("causes", _) => causes::page(),
        (name, format) => {
            let check = named(name).map(|check| match format {
                "markdown" => section(check),
                _ => text(check),
            });
            let printed = printed(name);
            let others = causes::named(name).into_iter().chain(fields_of(name));
            let found: Vec<String> = printed.into_iter().chain(check).chain(others).collect();
            if found.is_empty() {
                return Err(unknown(name));
            }
            found.join("\n")
        }
    };
    print(&text)?;
    Ok(0)
}

fn unknown(name: &str) -> Failure {
    let names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
    Failure::Usage(format!(
        "no column, line, check, cause or field of a result file is called `{name}`; `jostle explain \
         run` lists the fields of a run, `jostle explain causes` the causes, the checks are: {}",
        names.join(", ")
    ))
}

/// A word of the tables and lines.
fn printed(name: &str) -> Option<String> {
    let found = explained(name).into_iter();
    let text: String = found
        .map(|word| wrap(&format!("{}: ", word.names[0]), word.means, WIDTH))
        .collect();
    Some(text).filter(|text| !text.is_empty())
}

/// The parts of a result file that have this name or place, and the fields of this name; without
/// any those whose meaning names it, such as a key of a map.
fn fields_of(name: &str) -> Option<String> {
    let parts = fields::parts();
    let is_named = |part: &&Part| part.place == name;
    let whole = parts.iter().filter(is_named).map(whole_part);
    let fields = |wanted: &dyn Fn(&Described) -> bool| -> String {
        let all = parts
            .iter()
            .flat_map(|part| part.fields.iter().map(move |field| (&part.place, field)));
        all.filter(|(_, field)| wanted(field))
            .map(|(place, field)| one_field(&format!("{place}."), field))
            .collect()
    };
    let whole: String = whole.collect();
    let found = whole + &fields(&|field| field.bare_name() == name);
    let word = format!("`{name}`");
    let or_mentioned = match found.is_empty() {
        true => fields(&|field| field.meaning.contains(&word)),
        false => found,
    };
    Some(or_mentioned).filter(|text| !text.is_empty())
}

fn whole_part(part: &Part) -> String {
    let fields = part.fields.iter().map(|field| one_field("  ", field));
    wrap(&format!("{}: ", part.place), &part.meaning, WIDTH) + &fields.collect::<String>()
}

/// A field, its values, and where the fields in it stand.
fn one_field(before: &str, field: &Described) -> String {
    let below = field.part.iter();
    let below = below.map(|part| format!(" (jostle explain {part})"));
    let meaning = field.meaning.clone() + &below.collect::<String>();
    let values = field
        .values
        .iter()
        .map(|(value, meaning)| wrap(&format!("    {value}: "), meaning, WIDTH));
    wrap(&format!("{before}{}: ", field.name), &meaning, WIDTH) + &values.collect::<String>()
}

fn list() -> String {
    let width = CHECKS.iter().map(|check| check.name.len()).max();
    let width = width.unwrap_or(0);
    let line = |check: &&Check| wrap(&format!("{:<width$}  ", check.name), check.asks, WIDTH);
    CHECKS.iter().map(line).collect()
}

/// The parts of a check with their headings.
fn parts(check: &Check) -> [(&'static str, String); 5] {
    [
        ("Threshold", sentence(&(check.threshold)())),
        ("Unit", sentence(check.unit)),
        ("Source", sentence(check.source)),
        ("What fools it", sentence(check.fooled_by)),
        ("What to do", sentence(check.advice)),
    ]
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}

fn text(check: &Check) -> String {
    let mut text = wrap(&format!("{}: ", check.name), check.asks, WIDTH);
    for (heading, part) in parts(check) {
        text += &wrap(&format!("{:<15}", format!("{heading}:")), &part, WIDTH);
    }
    text
}

/// For tool/docs/verdicts.md.
fn page() -> String {
    let sections: Vec<String> = CHECKS.iter().map(|check| section(check)).collect();
    format!("{INTRODUCTION}\n{}", sections.join("\n"))
}

const INTRODUCTION: &str = "# Verdicts

<!-- Generated by `cargo xtask docs` from the table of checks. -->

Each point has one verdict, the worst of its reasons; table, csv, json, markdown, page and
`compare` print the same one. `jostle explain CHECK` prints a section of this page.

[METHOD.md](../../METHOD.md#what-does-a-verdict-claim) states what VALID, SUSPECT and INVALID claim. From an INVALID
point no sentence, fit, knee or limit is drawn; points of the same blocks are compared all the same, where no reason
touches `ratio`. A reason touches all three claims (`absolute`, `ratio`, `distribution`) unless the check's threshold
says otherwise. `jostle explain verdict` has its fields.

The checks, the gravest first:
";

fn section(check: &Check) -> String {
    let mut text = format!("## `{}`\n\n{}\n\n", check.name, check.asks);
    for (heading, part) in parts(check) {
        text += &match heading {
            "Threshold" => format!("- *Threshold ({}):* {part}\n", check.unit),
            "Unit" => String::new(),
            _ => format!("- *{heading}:* {part}\n"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_is_listed_and_has_a_section() {
        for check in CHECKS {
            assert!(list().contains(check.asks.split(' ').next().unwrap()));
            let heading = format!("## `{}`\n", check.name);
            assert_eq!(page().matches(&heading).count(), 1, "{}", check.name);
            for (heading, part) in parts(check) {
                assert!(text(check).contains(heading), "{}", check.name);
                assert!(part.ends_with('.') && !part.ends_with(".."), "{part}");
            }
        }
    }

    #[test]
    fn the_threshold_is_the_one_of_the_rule() {
        let check = named("rotations").unwrap();
        assert!(
            text(check).contains("Under 10 rotations"),
            "{}",
            text(check)
        );
    }

    #[test]
    fn a_check_that_does_not_exist_is_refused_with_those_that_do() {
        let Failure::Usage(text) = unknown("rotation") else {
            panic!("a usage error");
        };
        assert!(text.contains("rotations"), "{text}");
    }

    #[test]
    fn a_field_is_explained_by_its_name_and_a_part_by_its_place() {
        let cases = [
            (
                "of_ideal",
                "run.of_ideal?: throughput_per_s / ceiling_per_s.\n",
            ),
            ("run.per_worker", "  jain: Jain's index"),
            ("told_by", "    release: Its release, which failed."),
            ("end", "end: How an experiment ended.\n  exit: "),
            // A key of a map.
            ("page_faults", "run.counts{}?: The kernel's counts"),
            ("p99", "(percentiles)"),
        ];
        for (name, expected) in cases {
            let text = fields_of(name).unwrap();
            assert!(text.contains(expected), "{name}: {text}");
        }
        assert_eq!(fields_of("nothing_of_it"), None);
    }
}
