//! The tests of the whole workspace, from one build: those of the program `jostle`, which
//! take longest, and beside them the other test programs, one after another; then those
//! that have the machine to themselves.
//!
//! `cargo test` would run one test program at a time, and most of them wait for something
//! most of the time.

use crate::standstill;
use anyhow::{Context, Result, anyhow, ensure};
use jostle_testbed::shell;
use jostle_testbed::test_programs::{self, TestProgram};
use std::fmt::Display;
use std::io::Write;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// The part of the names of tests that have the machine to themselves: the module that they are in.
pub(crate) const ALONE: &str = "::alone::";

/// The test program that has such tests, and takes as long as all others.
pub(crate) const LONGEST: &str = "cli/live";

/// Threads of this program, and of each of the others beside it. Twice as many took as long:
/// two CPUs are in use then too.
const THREADS: [&str; 2] = ["4", "2"];

/// A test program, what its tests are chosen by in libtest's words, and with how many threads
/// they run.
pub(crate) type Chosen<'a> = (&'a TestProgram, Vec<&'static str>, &'static str);

/// How many test programs run at a time.
const AT_ONCE: usize = 2;

/// Compiles them all, and runs them.
pub(crate) fn run() -> Result<()> {
    let start = Instant::now();
    standstill::watch().context("cannot run setsid")?;
    let programs = test_programs::build(&shell::EVERYTHING)?;
    println!("== compiled in {:.1} s\n", start.elapsed().as_secs_f64());
    let mut longest = programs.iter().filter(|one| one.to_string() == LONGEST);
    let longest = longest.next().context("no test program cli/live")?;
    let others = programs.iter().filter(|one| one.to_string() != LONGEST);
    let mut all: Vec<Chosen<'_>> = vec![(longest, vec!["--skip", ALONE], THREADS[0])];
    all.extend(others.map(|other| (other, Vec::new(), THREADS[1])));
    let mut failures = run_all(&all);
    failures.extend(run_all(&[(longest, vec![ALONE], "1")]));
    ensure!(failures.is_empty(), "{}", failures.join("\n\n"));
    Ok(())
}

/// Runs them in this order. All are run whatever fails, so that one run tells of every failure;
/// what failed is printed again at the end.
pub(crate) fn run_all(programs: &[Chosen<'_>]) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let one_after_the_other = || {
        let mut failures = Vec::new();
        while let Some((program, tests, threads)) = programs.get(next.fetch_add(1, Relaxed)) {
            let failure = run_one(program, tests, threads).err();
            failures.extend(failure.map(|error| format!("{error:#}")));
        }
        failures
    };
    std::thread::scope(|scope| {
        let threads = [(); AT_ONCE].map(|()| scope.spawn(one_after_the_other));
        let ended = threads.into_iter().map(|thread| thread.join());
        ended
            .flat_map(|failures| failures.expect("a thread that runs tests"))
            .collect()
    })
}

/// A test program that failed: its name, and what it printed from its list of failures on.
fn failed(program: impl Display, status: ExitStatus, said: &str) -> anyhow::Error {
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

/// Runs these of its tests, so many at a time, and prints what it says when it has ended, in
/// one piece.
fn run_one(program: &TestProgram, tests: &[&str], threads: &str) -> Result<()> {
    let start = Instant::now();
    // Both to one file, so that they stay in their order.
    let file = tempfile::NamedTempFile::new()?;
    let mut command = program.command(tests);
    command.env("RUST_TEST_THREADS", threads);
    command.stdout(file.reopen()?).stderr(file.reopen()?);
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {program}"))?;
    let took = start.elapsed().as_secs_f64();
    let said = std::fs::read(file.path())?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "== {program}: {took:.1} s")?;
    out.write_all(&said)?;
    judged(program, start, status, &String::from_utf8_lossy(&said))
}

/// The outcome of its tests. If the machine stood still meanwhile, those that failed run once more.
fn judged(program: &TestProgram, start: Instant, status: ExitStatus, said: &str) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    let tests = failed_tests(said);
    let Some(stood) = standstill::longest_since(start).filter(|_| !tests.is_empty()) else {
        return Err(failed(program, status, said));
    };
    let seconds = stood.as_secs();
    println!("== the machine stood still for {seconds} s; what failed in {program} runs again");
    let again = program
        .command(&[&["--exact"], &tests[..]].concat())
        .status();
    let again = again.with_context(|| format!("cannot run {program}"))?;
    ensure!(again.success(), failed(program, again, said));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_failure_is_told_with_what_its_tests_printed() {
        let status = ExitStatus::from_raw(1 << 8);
        let told = |said| failed("model/results", status, said).to_string();
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
}
