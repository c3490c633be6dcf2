//! The console sessions of pages, run as they stand there.

use crate::common::{Place, must_have};
use std::process::Command;

#[test]
fn the_sessions_of_questions_are_true() {
    trycmd::TestCases::new().case("../docs/questions.md");
}

#[test]
fn the_sessions_of_who_are_true() {
    trycmd::TestCases::new().case("../docs/who.md");
}

/// Results of compare.in, compared as they stand in compare.md.
#[test]
fn the_sessions_of_compare_are_true() {
    trycmd::TestCases::new().case("tests/compare.md");
}

#[test]
#[ignore = "cargo xtask long"]
fn benchstat_reads_what_is_written_for_it() {
    must_have("go", "golang-go");
    let place = Place::new();
    let version = "golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da";
    let mut go = Command::new("go");
    let installed = go
        .args(["install", version])
        .env("GOBIN", place.path())
        .status();
    assert!(installed.unwrap().success());
    for name in ["base", "slower"] {
        let file = format!(
            "{}/tests/compare.in/{name}.jsonl",
            env!("CARGO_MANIFEST_DIR")
        );
        let done = place
            .jostle(&format!("report {file} --format benchstat"))
            .run();
        std::fs::write(place.file(name), done.exits(0).stdout).unwrap();
    }
    let mut benchstat = Command::new(place.file("benchstat"));
    let output = benchstat
        .args(["base", "slower"])
        .current_dir(place.path())
        .output();
    let output = output.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.stderr.is_empty(),
        "{:?}",
        String::from_utf8(output.stderr)
    );
    // Nine runs of either side, 5.5 % apart, and the unit's direction is known.
    for part in ["ops/s", "Contend/target=flock/workers=1", "+5.52%", "n=9"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}
