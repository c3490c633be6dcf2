//! The tests of the whole workspace, from one build: those of the program `jostle`, which
//! take longest, and beside them the other test programs, one after another; then those
//! that have the machine to themselves.
//!
//! `cargo test` would run one test program at a time, and most of them wait for something
//! most of the time.

use crate::standstill;
use anyhow::{Context, anyhow, ensure};
use jostle_testbed::shell;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

/// What stands in the names of tests that have the machine to themselves: the module that
/// they are in.
const ALONE: &str = "::alone::";

/// The test program that has such tests, and takes as long as all others.
const LONGEST: &str = "cli/live";

/// Threads of this program, and of each of the others beside it. More at a time make the
/// machine so busy that runs have no figure to judge.
const THREADS: [&str; 2] = ["4", "2"];

/// A test program.
#[derive(Debug, PartialEq)]
struct Program {
    name: String,
    /// The folder of its package, which cargo starts it in.
    package: PathBuf,
    path: PathBuf,
}

/// Compiles them all, and runs them. All are run whatever fails, so that one run tells of
/// every failure; what failed is printed again at the end.
pub(crate) fn run() -> anyhow::Result<()> {
    let start = Instant::now();
    standstill::watch().context("cannot run setsid")?;
    let mut programs = build()?;
    println!("== compiled in {:.1} s\n", start.elapsed().as_secs_f64());
    let longest = programs
        .iter()
        .position(|program| program.to_string() == LONGEST);
    let longest = programs.remove(longest.context("no test program cli/live")?);
    let mut outcomes = std::thread::scope(|scope| {
        let beside = scope.spawn(|| longest.run_aloud(&["--skip", ALONE], THREADS[0]));
        let others: Vec<_> = programs.iter().map(Program::run_apart).collect();
        let beside = beside.join().expect("a thread that runs tests");
        others.into_iter().chain([beside]).collect::<Vec<_>>()
    });
    outcomes.push(longest.run_aloud(&[ALONE], "1"));
    let failures: Vec<String> = outcomes
        .into_iter()
        .filter_map(Result::err)
        .map(|error| format!("{error:#}"))
        .collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n\n"));
    Ok(())
}

/// A test program that failed: its name, and what it printed from its list of failures on.
fn failed(program: &Program, status: ExitStatus, said: &str) -> anyhow::Error {
    let from = said.find("\nfailures:\n").unwrap_or_default();
    anyhow!("tests of {program} failed: {status}\n{}", &said[from..])
}

/// The names of the tests that failed: the last list of that title in what a test program
/// printed.
fn failed_tests(said: &str) -> Vec<&str> {
    let list = said
        .rsplit_once("\nfailures:\n")
        .map_or("", |(_, list)| list);
    let names = list.lines().map_while(|line| line.strip_prefix("    "));
    names.collect()
}

/// Compiles what is tested, and names the test programs.
fn build() -> anyhow::Result<Vec<Program>> {
    let mut cargo = shell::cargo(&[&["test", "--no-run"][..], &shell::EVERYTHING].concat());
    cargo.arg("--message-format=json-render-diagnostics");
    let mut cargo = cargo.stdout(Stdio::piped()).spawn()?;
    let mut programs = Vec::new();
    for line in BufReader::new(cargo.stdout.take().context("no output of cargo")?).lines() {
        programs.extend(program(&serde_json::from_str(&line?)?));
    }
    let status = cargo.wait()?;
    ensure!(status.success(), "`cargo test --no-run` failed: {status}");
    Ok(programs)
}

/// The test program that cargo says it has made, if the message is about one.
/// <https://doc.rust-lang.org/cargo/reference/external-tools.html#json-messages>
fn program(message: &Value) -> Option<Program> {
    let is_test = message["profile"]["test"].as_bool()?;
    let path = message["executable"].as_str().filter(|_| is_test)?;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    Some(Program {
        name: message["target"]["name"].as_str()?.to_owned(),
        package: manifest.parent()?.to_owned(),
        path: path.into(),
    })
}

impl Program {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments).current_dir(&self.package);
        command.env("CARGO_MANIFEST_DIR", &self.package);
        command
    }

    /// Runs these of its tests, so many at a time, and prints what it says as it says it.
    fn run_aloud(&self, tests: &[&str], threads: &str) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut command = self.command(tests);
        command.env("RUST_TEST_THREADS", threads);
        let mut running = command
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {self}"))?;
        let mut said = String::new();
        for line in BufReader::new(running.stdout.take().context("no output")?).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            said += &line;
            said.push('\n');
        }
        let status = running.wait().context("cannot wait for the tests")?;
        self.judged(start, status, &said)
    }

    /// Runs it and prints what it says when it has ended, in one piece.
    fn run_apart(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        // Both to one file, so that they stay in their order.
        let file = tempfile::NamedTempFile::new()?;
        let mut command = self.command(&[]);
        command.env("RUST_TEST_THREADS", THREADS[1]);
        command.stdout(file.reopen()?).stderr(file.reopen()?);
        let status = command
            .stdin(Stdio::null())
            .status()
            .with_context(|| format!("cannot run {self}"))?;
        let took = start.elapsed().as_secs_f64();
        let said = std::fs::read(file.path())?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "== {self}: {took:.1} s")?;
        out.write_all(&said)?;
        self.judged(start, status, &String::from_utf8_lossy(&said))
    }

    /// What came of its tests. If the machine stood still meanwhile, those that failed run
    /// once more.
    fn judged(&self, start: Instant, status: ExitStatus, said: &str) -> anyhow::Result<()> {
        if status.success() {
            return Ok(());
        }
        let tests = failed_tests(said);
        let Some(stood) = standstill::longest_since(start).filter(|_| !tests.is_empty()) else {
            return Err(failed(self, status, said));
        };
        let seconds = stood.as_secs();
        println!("== the machine stood still for {seconds} s; what failed in {self} runs again");
        let again = self.command(&[&["--exact"], &tests[..]].concat()).status();
        let again = again.with_context(|| format!("cannot run {self}"))?;
        ensure!(again.success(), failed(self, again, said));
        Ok(())
    }
}

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let package = self.package.file_name().unwrap_or_default();
        write!(f, "{}/{}", package.to_string_lossy(), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_failure_is_told_with_what_its_tests_printed() {
        let program = Program {
            name: "results".to_owned(),
            package: "/j/crates/model".into(),
            path: "/bin/false".into(),
        };
        let status = ExitStatus::from_raw(1 << 8);
        let told = |said| failed(&program, status, said).to_string();
        let said = "test a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nno\n";
        let expected = "tests of model/results failed: exit status: 1\n\
                        \nfailures:\n\n---- b stdout ----\nno\n";
        assert_eq!(told(said), expected);
        let list =
            format!("{said}\nfailures:\n    a::b\n    a::c\n\ntest result: FAILED. 1 passed\n");
        assert_eq!(failed_tests(&list), ["a::b", "a::c"]);
        assert!(failed_tests(said).is_empty());
        // It was killed, or ended without a word of libtest's.
        let abrupt = "thread 'b' has overflowed its stack\n";
        assert!(told(abrupt).ends_with(abrupt));
    }

    #[test]
    fn a_test_program_is_told_from_what_it_tests() {
        let mut message = json!({
            "reason": "compiler-artifact",
            "manifest_path": "/j/crates/model/Cargo.toml",
            "target": {"name": "results", "kind": ["test"]},
            "profile": {"test": true},
            "executable": "/j/target/debug/deps/results-1",
        });
        let found = program(&message).unwrap();
        assert_eq!(found.to_string(), "model/results");
        assert_eq!(found.path, Path::new("/j/target/debug/deps/results-1"));
        message["profile"]["test"] = json!(false);
        assert_eq!(program(&message), None);
        let library = json!({"reason": "compiler-artifact", "executable": null});
        assert_eq!(program(&library), None);
        assert_eq!(program(&json!({"reason": "build-finished"})), None);
    }
}
