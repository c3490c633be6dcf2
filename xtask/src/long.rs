//! `cargo xtask long`: the tests that `ci` leaves out, because they take minutes: locks
//! with the libraries of other languages that they wrap (npm, Maven and Go fetch and
//! compile), the commands of pages run as they stand, lock services that are launched
//! again and again, or in a current version (etcd, which Go builds); a thousand commands under
//! a lock of jostled, with faults; and actionlint, which Go fetches.
//! The planted faults of jostled's lock table and of the checker of `verify` (`mutants`).
//! Hosts under MPI, the benchmark against peers and drawings of all records too.
//!
//! They are marked `#[ignore]` with this command's name.

use jostle_testbed::test_programs::FIGURES;
use jostle_testbed::{packages, shell};
use std::process::Command;

/// Builds the locks below `target/own-locks`.
const INSTALL: &str = "tool/own-locks/pipe/install.sh";

/// Lints action.yml and the workflow that shows its use.
const LINT: &str = "tool/ci-gate/lint";

/// Those that have such tests.
const PACKAGES: [&str; 6] = [
    "jostle",
    "jostle-lab",
    "jostle-lock-command",
    "jostle-mpi",
    "jostle-stats",
    "jostle-targets",
];

/// Installs, builds, lints and tests.
pub(crate) fn run() -> anyhow::Result<()> {
    packages::ensure_beside(packages::LIBRARIES)?;
    shell::run(&mut Command::new(shell::root().join(LINT)))?;
    shell::run(&mut Command::new(shell::root().join(INSTALL)))?;
    crate::mutants::run()?;
    let packages = PACKAGES.map(|name| format!("--package={name}"));
    let mut cargo = shell::cargo(&["test"]);
    shell::run(
        cargo
            .args(packages)
            .args(["--no-fail-fast", "--", "--ignored", "--skip", FIGURES]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// The reasons for which tests may be ignored: the commands that run them.
    const COMMANDS: [&str; 2] = ["cargo xtask long", "cargo xtask validate figures"];

    /// The name of the package that a source file belongs to.
    fn package(file: &Path) -> String {
        let mut folders = file.ancestors().skip(1);
        let manifest = folders
            .find_map(|folder| std::fs::read_to_string(folder.join("Cargo.toml")).ok())
            .unwrap();
        let mut lines = manifest.lines();
        let name = lines.find_map(|line| line.strip_prefix("name = ")).unwrap();
        name.trim_matches('"').to_owned()
    }

    /// Those of jostle-targets were left out, and so run by nobody.
    #[test]
    fn every_package_with_such_a_test_is_listed_and_no_other() {
        let line = format!("#[ignore = \"{}\"]", COMMANDS[0]);
        let files = sources::all().into_iter();
        let with = files.filter(|(_, text)| text.lines().any(|found| found.trim() == line));
        let found: BTreeSet<String> = with.map(|(file, _)| package(&file)).collect();
        assert_eq!(found, PACKAGES.map(str::to_owned).into());
    }

    /// Every ignored test names a command: one ignored for another reason is run by nobody, and one
    /// that judges figures and is not ignored fails `ci` on a busy machine.
    #[test]
    fn every_ignored_test_names_the_command_that_runs_it() {
        let mut found = [0; 2];
        for (file, text) in sources::all() {
            // A module of its own file, or in one.
            let is_of_tests = file.to_string_lossy().contains("/tests/");
            let mut in_figures = is_of_tests && file.ends_with("figures.rs");
            let mut lines = text.lines().map(str::trim).peekable();
            while let Some(line) = lines.next() {
                in_figures |= is_of_tests && line == "mod figures {";
                let is_test = line == "#[test]";
                let why = lines.peek().and_then(|next| next.strip_prefix("#[ignore"));
                let why = why.map(|rest| rest.trim_matches([' ', '=', '"', ']']));
                let file = file.display();
                match why.filter(|_| is_test) {
                    Some(why) => {
                        let at = COMMANDS.iter().position(|command| *command == why);
                        let at = at.unwrap_or_else(|| panic!("{file}: no command runs {why}"));
                        assert_eq!(in_figures, at == 1, "{file}: figures and no others");
                        found[at] += 1;
                    }
                    None if is_test => assert!(!in_figures, "{file}: a test of figures runs"),
                    None => assert!(!line.starts_with("#[ignore"), "{file}: {line}"),
                }
                // The line was seen with its test.
                if is_test && why.is_some() {
                    lines.next();
                }
            }
        }
        assert!(found.iter().all(|count| *count > 10), "{found:?}");
    }
}
