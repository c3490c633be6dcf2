//! The verbs that measure, as clap sees them: the arguments of each are made from the
//! model's table of options, and what was typed becomes a plan.

use super::verbs::{VERBS, Verb};
use super::{Cli, Output};
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, CommandFactory, Error, FromArgMatches, Subcommand,
};
use jostle_engine::takes;
use jostle_model::options::{DefaultValue, Heading, OPTIONS, Opt, Use, ValueKind};
use jostle_model::plan::{Plan, Workload};
use jostle_targets::Spec;
use jostle_targets::table::Family;

/// The options of `-h`: those that people use, ten of a verb at most.
const COMMON: [&str; 17] = [
    "workers",
    "hold",
    "operations",
    "keys",
    "open",
    "rate",
    "find",
    "generators",
    "in-flight",
    "fault",
    "duration",
    "runs",
    "quick",
    "output",
    "html",
    "format",
    "help",
];

/// The request of a verb that measures.
#[derive(Debug)]
pub(crate) struct Measure {
    /// The plan as typed.
    pub plan: Plan,
    /// Options that `--quick` leaves out of it, as typed.
    pub left_out: Vec<String>,
    /// Where results go.
    pub output: Output,
}

impl Subcommand for Measure {
    fn augment_subcommands(command: Command) -> Command {
        command.subcommands(VERBS.iter().map(Verb::command))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Measure::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        VERBS.iter().any(|verb| verb.name == name)
    }
}

impl FromArgMatches for Measure {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Measure, Error> {
        let (name, typed) = matches
            .subcommand()
            .ok_or_else(|| Error::new(ErrorKind::MissingSubcommand))?;
        let verb = VERBS.iter().find(|verb| verb.name == name);
        let verb = verb.ok_or_else(|| Error::new(ErrorKind::InvalidSubcommand))?;
        let wrong = |text: String| Error::raw(ErrorKind::ValueValidation, text);
        let mut plan = verb.plan(typed).map_err(wrong)?;
        let left_out = match typed.get_flag("quick") {
            true => takes::quicken(std::slice::from_mut(&mut plan)),
            false => Vec::new(),
        };
        let mut output = Output::from_arg_matches(typed)?;
        output.quick = typed.get_flag("quick");
        Ok(Measure {
            plan,
            left_out,
            output,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Measure::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Verb {
    /// Its options, those of one heading together, and what each is here.
    fn options(&self) -> impl Iterator<Item = (&'static Opt, Use)> {
        let under = |heading| OPTIONS.iter().filter(move |o: &&Opt| o.heading == heading);
        let all = Heading::ALL.into_iter().flat_map(under);
        let here = all.filter(|option| !self.without.contains(&option.word));
        here.filter_map(|option| Some((option, self.used(option)?)))
    }

    /// An option's use here; None where there is none.
    fn used(&self, option: &Opt) -> Option<Use> {
        let used = option.in_workload(self.workload)?;
        let instead = self.instead.iter().find(|(word, ..)| *word == option.word);
        Some(match instead {
            Some((_, default, help)) => Use {
                default: DefaultValue::Swept(default),
                help,
                ..*used
            },
            None => Use { ..*used },
        })
    }

    fn command(&self) -> Command {
        let targets = Arg::new("targets")
            .value_name(self.placeholder)
            .help(self.target)
            .required(!self.prefix.is_empty())
            .num_args(..)
            .action(ArgAction::Append);
        let quick = Arg::new("quick")
            .long("quick")
            .help(self.workload.facts().quick)
            .help_heading(Heading::Measuring.text())
            .action(ArgAction::SetTrue);
        let command = Command::new(self.name)
            .arg(targets)
            .args(self.options().map(|(option, used)| arg(option, &used)))
            .arg(quick);
        // Behind the options of output, which bring a description of their own.
        Output::augment_args(command)
            .about(self.about)
            .long_about(None)
            .mut_args(|arg| {
                let rare = !arg.is_positional() && !COMMON.contains(&arg.get_id().as_str());
                arg.hide_short_help(rare)
            })
            .after_help(format!(
                "Example: {}\nAll options: jostle {} --help",
                self.example, self.name
            ))
            .after_long_help(format!(
                "Example: {}\n\n{}",
                self.example,
                with_braces(self.after)
            ))
    }

    fn plan(&self, typed: &ArgMatches) -> Result<Plan, String> {
        let mut plan = Plan::of(self.workload);
        let targets = typed.get_many::<String>("targets").into_iter().flatten();
        plan.targets = targets
            .map(|name| format!("{}{name}", self.prefix))
            .collect();
        for (option, used) in self.options() {
            let value = match option.is_switch(&used) {
                true => typed.get_flag(option.word).then_some("true"),
                false => typed.get_one::<String>(option.word).map(String::as_str),
            };
            let own = self.instead.iter().find(|(word, ..)| *word == option.word);
            if let Some(value) = value.or(own.map(|(_, default, _)| *default)) {
                option.set(&mut plan, value)?;
            }
        }
        Ok(plan)
    }
}

/// An option as clap sees it. What is typed is read twice: here, so that clap says what
/// is wrong with it, and into the plan.
fn arg(option: &'static Opt, used: &Use) -> Arg {
    let arg = Arg::new(option.word)
        .long(option.word)
        .short(option.short)
        .help(with_braces(&option.help(used)))
        .help_heading(option.heading.text());
    if option.is_switch(used) {
        return arg.action(ArgAction::SetTrue);
    }
    let workload = used.workloads[0];
    let arg = arg
        .value_name(option.value_name)
        .allow_hyphen_values(option.kind == ValueKind::Busy)
        // The value's own message says more of `-t -3` than clap's advice to type `-- -3`.
        .allow_negative_numbers(true)
        .value_parser(move |typed: &str| {
            let read = option.set(&mut Plan::of(workload), typed);
            read.map(|()| typed.to_owned())
        });
    match option.kind {
        ValueKind::Flag => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
        _ => arg,
    }
}

/// clap takes `{n}` in a help text for a line break. The empty style within it keeps clap
/// from seeing it, and is left out where the text is no terminal's.
fn with_braces(text: &str) -> String {
    text.replace("{n}", "{\u{1b}[0mn}")
}

/// Adds to an error what the user may have meant: of an option that the verb does not know,
/// which verbs do; of a target in the place of a verb, the verb that measures it. Hidden
/// verbs are not for users and are never suggested.
pub(super) fn explained(mut error: Error) -> Error {
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(typed))) => {
            let typed = typed.clone();
            if let Some(option) = Opt::typed_as(&typed) {
                let verbs: Vec<&str> = option.workloads().map(Workload::as_str).collect();
                let tip = format!("{typed} is an option of: {}", verbs.join(", "));
                suggest(&mut error, tip);
            }
        }
        (ErrorKind::InvalidSubcommand, _) => explain_verb(&mut error),
        _ => {}
    }
    error
}

fn suggest(error: &mut Error, tip: String) {
    let tips = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
    error.insert(ContextKind::Suggested, tips);
}

fn explain_verb(error: &mut Error) {
    if let Some(ContextValue::Strings(names)) = error.get(ContextKind::SuggestedSubcommand) {
        let cli = Cli::command();
        let is_hidden =
            |name: &&String| cli.find_subcommand(name).is_some_and(Command::is_hide_set);
        let shown: Vec<String> = names.iter().filter(|n| !is_hidden(n)).cloned().collect();
        match shown.is_empty() {
            true => drop(error.remove(ContextKind::SuggestedSubcommand)),
            false => drop(error.insert(
                ContextKind::SuggestedSubcommand,
                ContextValue::Strings(shown),
            )),
        }
    }
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else {
        return;
    };
    let typed = typed.clone();
    if let Ok(spec) = Spec::parse(&typed) {
        let verb = match spec.entry.family {
            Family::Connection => "connect",
            _ if spec.entry.is_asked() => "stream",
            _ => "contend",
        };
        error.remove(ContextKind::SuggestedSubcommand);
        suggest(error, format!("{typed} is a target: jostle {verb} {typed}"));
    }
}
