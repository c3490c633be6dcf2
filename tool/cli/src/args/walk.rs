//! Walks the table of options: each is accepted by its workloads and by no other, in a plan
//! file and on the command line, which the printed command gives back, and stands in the help.

use super::verbs::VERBS;
use super::{Cli, Verb};
use crate::plan_file;
use clap::CommandFactory;
use jostle_engine::resolve::resolve;
use jostle_model::defaults;
use jostle_model::options::{DefaultValue, OPTIONS, Opt, Use, ValueKind};
use jostle_model::plan::{Plan, Workload};
use std::collections::BTreeSet;
use std::path::Path;

/// The plan of a command line without its first word.
fn typed(words: &[String]) -> Result<Plan, String> {
    let words = std::iter::once("jostle".to_owned()).chain(words.iter().cloned());
    match Cli::read(words).map_err(|error| error.to_string())?.verb {
        Verb::Measure(asked) => Ok(asked.plan),
        other => panic!("{other:?}"),
    }
}

/// The words that set an option to its example.
fn words(workload: Workload, option: &Opt, used: Option<&Use>) -> Vec<String> {
    let flag = match used.is_some_and(|used| option.is_switch(used)) {
        true => format!("--{}", option.word),
        false => format!("--{}={}", option.word, option.example),
    };
    vec![workload.as_str().to_owned(), flag]
}

fn with_example(workload: Workload, option: &Opt) -> Plan {
    let mut plan = Plan::of(workload);
    option.set(&mut plan, option.example).unwrap();
    plan
}

/// Every option with every workload, and what the one is to the other.
fn pairs() -> impl Iterator<Item = (&'static Opt, Workload, Option<&'static Use>)> {
    OPTIONS.iter().flat_map(|option| {
        let workloads = Workload::ALL.iter().copied();
        workloads.map(move |workload| (option, workload, option.in_workload(workload)))
    })
}

fn known() -> impl Iterator<Item = (&'static Opt, Workload, &'static Use)> {
    pairs().filter_map(|(option, workload, used)| Some((option, workload, used?)))
}

#[test]
fn every_option_has_a_word_and_a_letter_of_its_own_and_one_use_for_each_workload() {
    let mut flags = BTreeSet::new();
    for option in OPTIONS {
        assert!(flags.insert(option.word.to_owned()), "{}", option.word);
        let letter = option.short.map(String::from);
        assert!(
            letter.is_none_or(|letter| flags.insert(letter)),
            "{}",
            option.word
        );
        let uses = option.uses.iter().flat_map(|used| used.workloads);
        let all = uses.clone().map(|workload| workload.as_str());
        assert_eq!(
            all.collect::<BTreeSet<_>>().len(),
            uses.count(),
            "{} is there twice for a workload",
            option.word
        );
        assert_eq!(
            Opt::typed_as(&option.flag()).map(|o| o.word),
            Some(option.word)
        );
    }
}

#[test]
fn every_option_is_typed_as_it_is_read_from_a_plan_file() {
    for (option, workload, used) in known() {
        let word = option.word;
        let plan = typed(&words(workload, option, Some(used))).unwrap();
        assert_eq!(
            option.get(&plan).as_deref(),
            Some(option.example),
            "{workload} {word}"
        );
        assert_eq!(plan, with_example(workload, option), "{workload} {word}");
        let file = jostle_model::serial::plans_to_toml(std::slice::from_ref(&plan));
        assert!(file.contains(&format!("\n{word} = ")), "{file}");
        let read = crate::plans_in(Path::new("p.toml"), &file).unwrap();
        assert_eq!(read[0], plan, "{file}");
    }
}

#[test]
fn a_letter_is_as_good_as_the_word() {
    let letters = known().filter(|(option, ..)| option.short.is_some());
    for (option, workload, _) in letters {
        let words = [
            workload.to_string(),
            option.flag(),
            option.example.to_owned(),
        ];
        assert_eq!(typed(&words).unwrap(), with_example(workload, option));
    }
}

#[test]
fn the_printed_command_asks_for_the_same() {
    let filled = |mut plan: Plan| {
        plan.fill_from(defaults::options(plan.workload));
        plan.fill_from(defaults::requests(plan.workload));
        plan
    };
    for (option, workload, _) in known() {
        let plan = with_example(workload, option);
        let printed = jostle_report::command(&plan);
        let words = shlex::split(&printed).unwrap();
        assert_eq!(words[0], "jostle", "{printed}");
        let again = typed(&words[1..]).unwrap();
        assert_eq!(filled(again), filled(plan), "{printed}");
    }
}

#[test]
fn other_workloads_refuse_it_and_name_those_that_do_not() {
    let mut refused = 0;
    for (option, workload, used) in pairs() {
        if used.is_some() {
            continue;
        }
        let others: Vec<&str> = option.workloads().map(Workload::as_str).collect();
        let others = others.join(", ");
        let in_file = resolve(with_example(workload, option), 7, &[0, 1]).unwrap_err();
        let says = format!(
            "{workload} has no {}; leave it out, or use: {others}",
            option.word
        );
        assert_eq!(in_file.to_string(), says);
        let error = typed(&words(workload, option, None)).unwrap_err();
        let says = format!("--{} is an option of: {others}", option.word);
        assert!(error.contains(&says), "{error} does not say: {says}");
        refused += 1;
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn a_number_out_of_its_bounds_is_refused_with_them() {
    let bounded = known().filter_map(|(option, workload, _)| {
        let (least, most) = option.bounds?;
        Some((option, workload, [least.checked_sub(1), Some(most + 1)]))
    });
    let mut refused = 0;
    for (option, workload, numbers) in bounded {
        for number in numbers.into_iter().flatten() {
            let mut plan = Plan::of(workload);
            let typed = match option.kind {
                ValueKind::Time => format!("{number}ns"),
                _ => number.to_string(),
            };
            option.set(&mut plan, &typed).unwrap();
            let error = resolve(plan, 7, &[0, 1]).unwrap_err().to_string();
            let says = format!("{}: {}", option.flag(), option.range().unwrap());
            assert_eq!(error, says, "{workload}");
            refused += 1;
        }
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn a_value_that_it_cannot_have_is_named_with_its_field() {
    for option in OPTIONS {
        let word = option.word;
        let text = format!("[[experiment]]\nworkload = \"contend\"\n{word} = {{}}\n");
        let error = crate::plans_in(Path::new("p.toml"), &text).unwrap_err();
        let place = format!("p.toml, line 3, experiment 1, field `{word}`: ");
        assert!(error.starts_with(&place), "{error}");
    }
}

#[test]
fn every_option_stands_in_the_help_of_its_verbs_with_its_default() {
    let program = Cli::command();
    for (option, workload, used) in known() {
        let verb = program.find_subcommand(workload.as_str()).unwrap();
        let mut args = verb.get_arguments();
        let arg = args
            .find(|arg| arg.get_long() == Some(option.word))
            .unwrap();
        assert_eq!(arg.get_short(), option.short);
        assert_eq!(arg.get_help_heading(), option.heading.text());
        let help = arg.get_help().unwrap().to_string();
        assert_eq!(help.replace("{\u{1b}[0mn}", "{n}"), option.help(used));
        assert!(!used.help.is_empty() && !used.help.ends_with('.'), "{help}");
    }
}

#[test]
fn every_verb_says_what_it_does() {
    let program = Cli::command();
    for verb in VERBS {
        let command = program.find_subcommand(verb.name).unwrap();
        assert_eq!(command.get_about().unwrap().to_string(), verb.about);
        assert!(command.get_long_about().is_none(), "{}", verb.name);
        let without = verb.without.iter();
        for word in without.chain(verb.instead.iter().map(|(word, ..)| word)) {
            let mut options = OPTIONS.iter();
            assert!(options.any(|option| option.word == *word), "{word}");
        }
    }
}

#[test]
fn every_default_can_be_typed() {
    for (option, workload, used) in known() {
        let (DefaultValue::Fixed(text)
        | DefaultValue::Swept(text)
        | DefaultValue::OfRequests(text)) = used.default
        else {
            continue;
        };
        let read = option.set(&mut Plan::of(workload), text);
        assert_eq!(read, Ok(()), "{workload} --{} {text}", option.word);
    }
}

/// Options that went, or that a workload no longer knows, would make them useless.
#[test]
fn the_results_in_the_record_can_be_run_again() {
    let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/record");
    let mut read = 0;
    for entry in std::fs::read_dir(record).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_none_or(|extension| extension != "jsonl")
        {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        if !text.contains("\"record\":\"experiment\"") {
            continue; // a summary of validations, or of trials side by side
        }
        for (plan, place) in plan_file::load(&path).unwrap().plans {
            for option in OPTIONS {
                let known = option.in_workload(plan.workload).is_some();
                let value = option.get(&plan);
                assert!(known || value.is_none(), "{place}{} {value:?}", option.word);
            }
            read += 1;
        }
    }
    assert!(read > 10, "{read}");
}
