//! The Rust sources of the workspace, for tests that hold its own rules.

use jostle_testbed::shell;
use std::path::{Path, PathBuf};

/// All files of the workspace, with their text.
pub(crate) fn all() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in [
        "tool",
        "jostled/lock",
        "jostled/server",
        "procd",
        "base",
        "lab",
        "xtask",
    ] {
        below(&shell::root().join(folder), "rs", &mut found);
    }
    found
}

/// Adds the files below a folder whose names end so.
pub(crate) fn below(folder: &Path, ending: &str, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            below(&path, ending, found);
        } else if path
            .extension()
            .is_some_and(|extension| extension == ending)
        {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
}

mod tests {
    use super::*;
    use jostle_testbed::test_programs::LIVE_TESTS;

    /// The words of code that starts processes, waits, or needs a network.
    const LIVE: [&str; 7] = [
        "Command::new(",
        "thread::sleep(",
        ".spawn()",
        "fork(",
        "TcpListener::bind",
        "TcpStream::connect",
        "UdpSocket::bind",
    ];

    /// The unit tests of a file that say nothing of being live; they are all of it or its last
    /// module, and a module of live ones is the last in that.
    fn pure(text: &str, is_all: bool) -> &str {
        let tests = match is_all {
            true => text,
            false => text
                .split("#[cfg(test)]\nmod tests {\n")
                .nth(1)
                .unwrap_or_default(),
        };
        tests.split("mod live_tests {\n").next().unwrap()
    }

    #[test]
    fn unit_tests_are_pure_or_in_a_module_that_says_they_are_not() {
        let mut found = Vec::new();
        let mut live = 0;
        for (file, text) in all() {
            let is_source = file.to_string_lossy().contains("/src/");
            if !is_source || file.ends_with("xtask/src/sources.rs") {
                continue;
            }
            let tests = pure(&text, file.ends_with("tests.rs"));
            let words = LIVE.iter().filter(|word| tests.contains(**word));
            found.extend(words.map(|word| format!("{}: {word}", file.display())));
            let name = LIVE_TESTS.trim_end_matches(':');
            live += usize::from(text.contains(&format!("mod {name}")));
        }
        assert!(found.is_empty(), "{found:#?}");
        assert!(live > 10, "{live}");
    }

    /// The behaviour without an option stands in the table of options alone.
    #[test]
    fn no_default_of_an_option_stands_outside_the_table() {
        let table = include_str!("../../tool/model/src/options/table.rs");
        let rows = table.lines().filter(|line| line.contains("\" else ("));
        let words = rows.map(|row| row.trim_start().split(':').next().unwrap());
        let fields: Vec<&str> = words.collect();
        assert!(fields.len() > 25, "{fields:?}");
        let mut found = Vec::new();
        for (file, text) in all() {
            let code = text.split("#[cfg(test)]").next().unwrap();
            let code: String = code.split_whitespace().collect();
            for field in &fields {
                for how in ["", ".as_ref()", ".as_deref()", ".clone()"] {
                    let second = format!("plan.{field}{how}.unwrap_or");
                    if code.contains(&second) {
                        found.push(format!("{}: {second}", file.display()));
                    }
                }
            }
        }
        assert!(found.is_empty(), "use the method of the plan: {found:#?}");
    }

    /// A file, and what it says of somebody who is late, silent or in the way.
    const IMPATIENT: &str = "\
engine/src/keeper/run/cost.rs somebody holds it already,
engine/src/keeper/run/counted.rs no worker got any further
engine/src/keeper/run/fork.rs became ready within
engine/src/keeper/run/start.rs came to the common start
engine/src/keeper/together.rs no common start was agreed
engine/src/keeper/programs.rs was not ready within
engine/src/keeper/servers.rs did not come back within
engine/src/keeper/servers.rs it said nothing within
ranks/coordinator/mod.rs have not said who they are
ranks/coordinator/mod.rs it took longer than
ranks/coordinator/mod.rs it hangs, or the way to it
ranks/coordinator/rounds.rs it does not answer any more
connections/src/crew.rs became ready in time
connections/src/crew.rs did not start in time
connections/src/lost.rs did not look in time
recover/src/fault.rs somebody holds it already;
recover/src/fault.rs not every process
targets/src/pipe/peer.rs did not answer within
targets/src/librarian.rs did not return within
harness/src/during.rs SIGINT did not end it
cli/src/messages.rs nobody reads it
sys/src/ledger.rs cannot end what an earlier run";

    /// Nobody is blamed for time in which jostle itself did not run.
    #[test]
    fn whoever_loses_patience_counts_it_by_the_one_clock() {
        let sources = all();
        for row in IMPATIENT.lines() {
            let (file, said) = row.split_once(' ').unwrap();
            let (_, text) = sources
                .iter()
                .find(|(path, _)| path.ends_with(file))
                .expect(row);
            let code = text.split("#[cfg(test)]").next().unwrap();
            let within = code
                .split("fn ")
                .find(|function| function.contains(said))
                .expect(row);
            let others = ["Instant::", "elapsed()", ".now()", "monotonic()"];
            let other = others.iter().any(|clock| within.contains(clock));
            assert!(code.contains("waited::") && !other, "{row}");
        }
    }
}
