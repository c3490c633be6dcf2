//! Jostle's descriptions of itself and of the machine: targets, help, manual page, completions,
//! doctor.

use crate::common::{Place, flat, jostle, must_have};
use jostle_targets::TABLE;
use std::fs;
use std::path::Path;

#[test]
fn version_and_help_say_what_there_is() {
    jostle("--version")
        .exits(0)
        .prints(concat!("jostle ", env!("CARGO_PKG_VERSION")));
    let help = jostle("--help")
        .exits(0)
        .says_nothing()
        .prints("Start with: jostle contend");
    for verb in "contend run report targets doctor completions man".split(' ') {
        let is_listed = help.stdout.contains(&format!("\n  {verb} "));
        assert!(is_listed, "no {verb}: {}", help.transcript());
    }
    jostle("contend --help")
        .exits(0)
        .prints("--acquire-timeout <TIME>")
        .prints("1k..1Mx10");
}

#[test]
fn the_targets_are_listed_with_what_each_can_do() {
    let text = jostle("targets").exits(0).says_nothing().stdout;
    let markdown = jostle("targets --format markdown")
        .exits(0)
        .says_nothing()
        .stdout;
    for entry in TABLE {
        assert!(text.contains(entry.summary), "{}", entry.name);
        assert!(
            markdown.contains(&format!("### `{}`", entry.name)),
            "{}",
            entry.name
        );
    }
}

#[test]
fn one_target_is_shown_in_full() {
    jostle("targets fcntl")
        .exits(0)
        .says_nothing()
        .prints("ofd")
        .prints("It has: shared, ranges, threads, survives owner; it has not: timeout");
    jostle("targets flok")
        .exits(2)
        .prints_nothing()
        .says("did you mean `flock` (a file lock)?");
}

/// The help of `connect` and `judge` went to stderr: braces in it count as terminal control.
#[test]
fn the_help_of_every_verb_goes_to_stdout() {
    let help = jostle("--help").exits(0);
    let (_, verbs) = help.stdout.split_once("Commands:\n").unwrap();
    let (verbs, _) = verbs.split_once("\n\n").unwrap();
    // A verb stands two columns in; its explanation goes on further right.
    let names = verbs.lines().filter_map(|line| line.strip_prefix("  "));
    let names = names.filter(|line| !line.starts_with(' '));
    let names: Vec<&str> = names
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(
        names.contains(&"connect") && names.contains(&"judge"),
        "{names:?}"
    );
    for name in names.into_iter().filter(|name| *name != "help") {
        let help = jostle(&format!("{name} --help")).exits(0);
        help.says_nothing().prints("Usage:");
    }
}

/// `contend -h` had 79 lines.
#[test]
fn the_short_help_of_a_verb_has_ten_options_and_an_example() {
    for verb in "contend stream call hold churn connect rate spread recover".split(' ') {
        let help = jostle(&format!("{verb} -h")).exits(0);
        let options = help
            .stdout
            .lines()
            .filter(|line| line.trim_start().starts_with('-'));
        // With the help itself.
        let count = options.count();
        assert!((6..=11).contains(&count), "{verb}: {count}");
        help.prints(&format!("Example: jostle {verb}"));
        let long = jostle(&format!("{verb} --help")).exits(0);
        long.prints("--wait-quiet")
            .prints(&format!("Example: jostle {verb}"));
    }
}

/// clap takes `{n}` for a line break: the help spoke of the number of " and {worker}".
#[test]
fn the_place_of_a_number_stands_in_the_help() {
    for verb in ["stream", "call", "rate", "spread"] {
        let help = jostle(&format!("{verb} --help")).exits(0);
        help.prints("{n} cycles through this many numbers");
        let page = jostle(&format!("man {verb}")).exits(0);
        page.prints("{n} cycles through this many numbers");
    }
    jostle("call --help").run().prints("{n} and {worker} in it");
}

#[test]
fn the_manual_page_is_without_mistakes() {
    must_have("man", "man-db");
    let place = Place::new();
    let page = place.jostle("man").exits(0).says_nothing().stdout;
    fs::write(place.file("jostle.1"), page).unwrap();
    let (shown, warnings) = place.program(&["man", "--warnings", "-l", "jostle.1"]);
    assert_eq!(warnings, "");
    // Justified lines have several spaces between words.
    let shown = flat(&shown);
    for word in "NAME,SYNOPSIS,contend,report,doctor,Exit codes".split(',') {
        assert!(shown.contains(word), "no {word} in {shown}");
    }
}

#[test]
fn completions_are_scripts_that_their_shell_accepts() {
    must_have("bash", "bash");
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place
            .jostle(&format!("completions {shell}"))
            .exits(0)
            .says_nothing()
            .stdout;
        assert!(script.contains("JOSTLE_COMPLETE"), "{shell}");
        fs::write(place.file(shell), script).unwrap();
    }
    place.program(&["bash", "-n", "bash"]);
}

/// A real bash presses TAB: the words come from the program, the files from the directory.
#[test]
fn targets_checks_plans_and_files_are_completed() {
    must_have("bash", "bash");
    let place = Place::new();
    let script = place.jostle("completions bash").exits(0).stdout;
    fs::write(place.file("script"), script).unwrap();
    for name in ["a.jsonl", "a.toml", "a.txt", "sub/c.jsonl"] {
        fs::create_dir_all(place.file(name).parent().unwrap()).unwrap();
        fs::write(place.file(name), "").unwrap();
    }
    let program = Path::new(env!("CARGO_BIN_EXE_jostle")).parent().unwrap();
    let words = |line: &str| {
        let (before, last) = line.rsplit_once(' ').unwrap();
        let complete = format!(
            "PATH={}:$PATH; source ./script; COMP_WORDS=({before} \"$1\"); \
             COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_TYPE=9; \
             _clap_complete_jostle jostle \"$1\" \"\"; printf '%s ' \"${{COMPREPLY[@]}}\"",
            program.display()
        );
        let (printed, _) = place.program(&["bash", "-c", &complete, "bash", last]);
        printed.trim().to_owned()
    };
    for (line, expected) in [
        ("jostle cont", "contend"),
        ("jostle dist", ""),
        ("jostle contend flo", "flock"),
        ("jostle contend flock sys", "sysv sysv-undo"),
        ("jostle stream lockd mem", "memcached"),
        ("jostle contend lib", "lib:"),
        ("jostle connect tc", "tcp"),
        ("jostle rate lockd --null ex", "exec:"),
        ("jostle contend --acquire-ti", "--acquire-timeout"),
        ("jostle explain neigh", "neighbours"),
        ("jostle explain resu", "resumed"),
        ("jostle targets zoo", "zookeeper"),
        ("jostle man cal", "call calibrate"),
        ("jostle run a", "a.jsonl a.toml"),
        ("jostle run lock", "lockscale"),
        ("jostle run sub/", "sub/c.jsonl"),
        ("jostle report a", "a.jsonl"),
        ("jostle compare a.jsonl s", "sub/"),
        ("jostle report x --format summ", "summary"),
    ] {
        assert_eq!(words(line), expected, "{line}");
    }
}

#[test]
fn the_doctor_says_what_it_found_and_closes_with_a_sentence() {
    let mut done = jostle("doctor").run_cleanly().exits(0).says_nothing();
    let found = "CPUs,clock source,timer slack,processes,descriptors of a process,memory";
    for what in found.split(',') {
        done = done.prints(what);
    }
    assert!(
        done.stdout.trim_end().ends_with('.'),
        "{}",
        done.transcript()
    );
}

/// Nothing but comments and commands, which a shell can read.
#[test]
fn the_doctor_prints_commands_for_a_shell_and_runs_none() {
    let limits = "prlimit --nofile=512:600";
    let done = jostle("doctor --fix").under(limits).run_cleanly().exits(0);
    let done = done.says_nothing().prints("# jostle doctor --fix: ");
    let mends = |line: &&str| {
        line.starts_with("prlimit --pid ") && line.contains("--nofile=20000:20000  # ")
    };
    assert_eq!(
        done.stdout.lines().filter(mends).count(),
        1,
        "{}",
        done.transcript()
    );
    fs::write(done.place.file("fix.sh"), &done.stdout).unwrap();
    done.place.program(&["sh", "-n", "fix.sh"]);
}
