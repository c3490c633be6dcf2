//! Tests that judge measured figures of a live machine, each many times over. Whether one of
//! them passes depends on what else the machine does, so that it is counted and not required
//! of a single run: how often each passes, with the bounds that so many runs allow.
//!
//! They are the tests in modules `figures` of the live test programs. The rules by which
//! jostle judges such figures are tested on planted records, beside the rules.

use super::{Required, Row};
use anyhow::ensure;
use jostle_testbed::test_programs::{self, FIGURES, TestProgram};
use std::process::Stdio;

/// On a machine that does nothing else, a test that fails more often than it passes finds
/// something that is wrong with jostle or with the test.
const LEAST: f64 = 0.5;

/// Runs each test whose name contains `only` so many times, one after another.
pub(crate) fn rows(repeats: u32, only: Option<&str>) -> anyhow::Result<Vec<Row>> {
    let programs = test_programs::build(&["--workspace"])?;
    let mut rows = Vec::new();
    for program in programs.iter().filter(|program| program.is_live()) {
        for name in program.list(&["--ignored", FIGURES])? {
            if only.is_none_or(|part| name.contains(part)) {
                rows.push(counted(program, &name, repeats)?);
            }
        }
    }
    ensure!(!rows.is_empty(), "no such test");
    Ok(rows)
}

fn counted(program: &TestProgram, name: &str, repeats: u32) -> anyhow::Result<Row> {
    let mut passed = 0;
    for nth in 1..=repeats {
        let mut command = program.command(&["--ignored", "--exact", name]);
        let output = command.stdin(Stdio::null()).output()?;
        passed += u64::from(output.status.success());
        let outcome = if output.status.success() {
            "passed"
        } else {
            "failed"
        };
        println!("{name}, {nth} of {repeats}: {outcome}");
        if !output.status.success() {
            println!("{}", said(&String::from_utf8_lossy(&output.stdout)));
        }
    }
    Ok(Row::counted(
        format!("{program} {}", name.replacen(FIGURES, "::", 1)),
        passed,
        u64::from(repeats),
        Required::AtLeast(LEAST),
    ))
}

/// The output of a failed test, without libtest's frame and the backtrace.
fn said(text: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.starts_with("---- "));
    let lines = lines.take_while(|line| *line != "stack backtrace:" && *line != "failures:");
    let all = lines.skip(1).filter(|line| !line.is_empty());
    all.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_failed_test_are_kept_and_the_rest_is_not() {
        let text = "\nrunning 1 test\ntest a::figures::b ... FAILED\n\nfailures:\n\n\
                    ---- a::figures::b stdout ----\n\nthread 'b' panicked at a.rs:1:2:\n3 ns\n\
                    stack backtrace:\n   0: begin\n\nfailures:\n    a::figures::b\n";
        assert_eq!(said(text), "thread 'b' panicked at a.rs:1:2:\n3 ns");
        assert_eq!(said("killed"), "");
    }
}
