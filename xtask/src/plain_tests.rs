//! `cargo xtask test`: the tests that need nothing but the Rust toolchain, as any user and in
//! a container too: all pure ones, and of the live ones those that start nothing but jostle,
//! on locks that need neither a network nor a privilege.
//!
//! It takes no packages, writes to no file of the repository, and says what it leaves out.

use crate::test_runs::{self, ALONE, Chosen, LONGEST};
use anyhow::ensure;
use jostle_testbed::test_programs::{self, LIVE_TESTS, TestProgram};

/// The modules of the live program of `jostle` that are wholly of this kind, but for tests
/// that need to be the next start of jostle as another user.
const PLAIN: [&str; 4] = ["faults::", "growth::", "own_lib::", "readme::"];

/// With how many threads each runs.
const THREADS: &str = "3";

/// The words of libtest that choose a program's tests; none if it is left out.
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
    let some = programs
        .iter()
        .filter_map(|program| Some((program, chosen(program)?, THREADS)));
    let some: Vec<Chosen<'_>> = some.collect();
    let failures = test_runs::run_all(&some);
    println!("{}", left_out(&programs, &some)?);
    ensure!(failures.is_empty(), "{}", failures.join("\n\n"));
    Ok(())
}

/// The programs left out, and why.
fn left_out(programs: &[TestProgram], some: &[Chosen<'_>]) -> anyhow::Result<String> {
    let (mut ran, mut all) = (0, 0);
    for program in programs {
        all += program.list(&[])?.len();
    }
    for (program, tests, _) in some {
        ran += program.list(tests)?.len();
    }
    Ok(format!(
        "test: {ran} of {all} tests; left out: those that start servers, use the network, need \
         root or Debian packages, take minutes, or judge figures, and all of jostle-mpi.\n\
         `cargo xtask ci` runs them (as root, on Debian), `cargo xtask long` those that take \
         minutes, `cargo xtask validate figures` those that judge figures."
    ))
}
