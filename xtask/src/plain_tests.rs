//! `cargo xtask test`: the tests that need nothing but the Rust toolchain, as any user and in
//! a container too: all pure ones, and of the live ones those that start nothing but jostle,
//! on locks that need neither a network nor a privilege.
//!
//! It takes no packages, writes to no file of the repository, and says what it leaves out.

use crate::test_runs::{self, ALONE, LONGEST};
use anyhow::ensure;
use jostle_testbed::test_programs::{self, LIVE_TESTS, TestProgram};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The modules of the live program of `jostle` that are wholly of this kind, but for tests
/// that need to be the next start of jostle as another user.
const PLAIN: [&str; 4] = ["faults::", "growth::", "own_lib::", "readme::"];

/// How many test programs run at a time, and with how many threads each.
const AT_ONCE: usize = 2;
const THREADS: &str = "3";

/// What a program's tests are chosen by, in libtest's words; none if it is left out.
fn chosen(program: &TestProgram) -> Option<Vec<&'static str>> {
    let name = program.to_string();
    match program.is_live() {
        false => Some(vec!["--skip", LIVE_TESTS]),
        true if name == LONGEST => Some([&PLAIN[..], &["--skip", ALONE]].concat()),
        true => None,
    }
}

/// Compiles and runs them; or compiles only, or runs only what was compiled last.
pub(crate) fn run(only_compile: bool, compiled: bool) -> anyhow::Result<()> {
    let programs = match compiled {
        true => test_programs::kept()?,
        false => test_programs::build(&["--workspace"])?,
    };
    if only_compile {
        return test_programs::keep(&programs);
    }
    let (some, none): (Vec<_>, Vec<_>) = programs
        .iter()
        .map(|program| (program, chosen(program)))
        .partition(|(_, tests)| tests.is_some());
    let next = AtomicUsize::new(0);
    let one_after_the_other = || {
        let mut outcomes = Vec::new();
        while let Some((program, tests)) = some.get(next.fetch_add(1, Ordering::Relaxed)) {
            let tests = tests.as_deref().unwrap_or_default();
            outcomes.push(test_runs::run_apart(program, tests, THREADS));
        }
        outcomes
    };
    let outcomes = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE)
            .map(|_| scope.spawn(one_after_the_other))
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended
            .flat_map(|outcomes| outcomes.expect("a thread that runs tests"))
            .collect::<Vec<_>>()
    });
    let failures: Vec<String> = outcomes
        .into_iter()
        .filter_map(Result::err)
        .map(|error| format!("{error:#}"))
        .collect();
    println!("{}", left_out(&some, &none)?);
    ensure!(failures.is_empty(), "{}", failures.join("\n\n"));
    Ok(())
}

type Choice<'a> = (&'a TestProgram, Option<Vec<&'static str>>);

/// What was left out, and why.
fn left_out(some: &[Choice<'_>], none: &[Choice<'_>]) -> anyhow::Result<String> {
    let mut ran = 0;
    let mut all = 0;
    for (program, tests) in some.iter().chain(none) {
        all += program.list(&[])?.len();
        if let Some(tests) = tests {
            ran += program.list(tests)?.len();
        }
    }
    Ok(format!(
        "test: {ran} of {all} tests; left out: those that start servers, use the network, need \
         root or Debian packages, take minutes, or judge figures, and all of jostle-mpi.\n\
         `cargo xtask ci` runs them (as root, on Debian), `cargo xtask long` those that take \
         minutes, `cargo xtask validate figures` those that judge figures."
    ))
}
