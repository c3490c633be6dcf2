//! Completion by the shell. The script that `jostle completions SHELL` prints asks jostle for the
//! words at each TAB, so that targets, checks and plans are those of this very program.

use crate::args::Cli;
use crate::{Failure, plan_file, print, visible};
use anyhow::{Context, anyhow};
use clap::{Arg, Command, CommandFactory};
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{CompleteEnv, Shells};
use jostle_stats::checks::CHECKS;
use jostle_targets::all;
use jostle_targets::table::Family;
use std::ffi::OsStr;

/// The shell's name in the environment asks for words.
const ASKED_BY: &str = "JOSTLE_COMPLETE";

/// Without this line zsh would only load the script at the first TAB.
const ZSH_FIRST: &str =
    "[[ \"${funcstack[1]}\" == _jostle ]] && _clap_dynamic_completer_jostle \"$@\"\n";

/// Prints the words that a shell asks for and ends; returns if none does.
pub(crate) fn answer() {
    CompleteEnv::with_factory(command).var(ASKED_BY).complete();
}

/// Prints the script for a shell.
///
/// # Errors
/// If the shell is unknown, or the script cannot be printed.
pub(crate) fn script(shell: clap_complete::Shell) -> Result<u8, Failure> {
    let name = shell.to_string();
    let known = Shells::builtins();
    let known = known.completer(&name);
    let known = known.ok_or_else(|| anyhow!("jostle has no completion for {name}"))?;
    let mut script = Vec::new();
    known
        .write_registration(ASKED_BY, "jostle", "jostle", "jostle", &mut script)
        .context("cannot make the script")?;
    let first = if name == "zsh" { ZSH_FIRST } else { "" };
    print(&format!(
        "{}\n{first}",
        String::from_utf8_lossy(&script).trim_end()
    ))?;
    Ok(0)
}

/// The command line with the words that values may be. It is for completion alone: an address
/// is a target, too.
fn command() -> Command {
    let with_words = |verb: Command| {
        let connects = verb.get_name() == "connect";
        verb.mut_args(|arg| with_words(arg, connects))
    };
    visible(Cli::command()).mut_subcommands(with_words)
}

/// An argument with its words, by what stands for its value in the help.
fn with_words(arg: Arg, connects: bool) -> Arg {
    let value = arg.get_value_names().and_then(<[_]>::first);
    let words: fn(&OsStr) -> Vec<CompletionCandidate> = match value.map(|name| name.as_str()) {
        Some("TARGET") if connects => |typed| targets(typed, |of| of == Family::Connection),
        Some("TARGET") => |typed| targets(typed, |of| of != Family::Connection),
        Some("NAME") => |typed| targets(typed, |_| true),
        Some("WORD") => |typed| {
            let checks = CHECKS.iter().map(|check| (check.name.into(), check.asks));
            let parts = jostle_model::fields::parts();
            let parts = parts.iter();
            let parts = parts.map(|part| (part.place.clone(), &*part.meaning));
            named(typed, checks.chain(parts))
        },
        Some("RESULT" | "BASE" | "NEW") => |typed| files(typed, &["jsonl"]),
        Some("PLAN") => plans,
        Some("VERB") => |typed| {
            let command = visible(Cli::command());
            let verbs = command.get_subcommands();
            named(typed, verbs.map(|verb| (verb.get_name().to_owned(), "")))
        },
        _ => return arg,
    };
    arg.add(ArgValueCompleter::new(words))
}

/// Those words that begin as typed, with a line of help.
fn named<'a>(
    typed: &OsStr,
    words: impl Iterator<Item = (String, &'a str)>,
) -> Vec<CompletionCandidate> {
    let begun = typed.to_string_lossy();
    let words = words.filter(|(word, _)| word.starts_with(&*begun));
    let candidate = |(word, help): (String, &str)| {
        let help = Some(help.to_owned().into()).filter(|_| !help.is_empty());
        CompletionCandidate::new(word).help(help)
    };
    words.map(candidate).collect()
}

fn targets(typed: &OsStr, fits: fn(Family) -> bool) -> Vec<CompletionCandidate> {
    let fitting = all().filter(|entry| fits(entry.family));
    let words = fitting.map(|entry| {
        let needs_more = (entry.check_argument)(None).is_err();
        let colon = if needs_more { ":" } else { "" };
        (format!("{}{colon}", entry.name), entry.summary)
    });
    named(typed, words)
}

fn files(typed: &OsStr, endings: &'static [&'static str]) -> Vec<CompletionCandidate> {
    let ends = |end: &OsStr| endings.iter().any(|known| *known == end);
    PathCompleter::any()
        .filter(move |path| path.is_file() && path.extension().is_some_and(ends))
        .complete(typed)
}

fn plans(typed: &OsStr) -> Vec<CompletionCandidate> {
    let built_in = plan_file::BUILT_IN.iter();
    let mut words = named(typed, built_in.map(|(name, _)| ((*name).to_owned(), "")));
    words.extend(files(typed, &["toml", "jsonl"]));
    words
}
