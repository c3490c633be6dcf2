//! The procedure engine as a target, run for real: over connections that are kept
//! and by its thin client, launched for the run and running already.

use crate::common::{Place, beside, first_line, flat, jostle, reason};
use jostle_model::record::{Run, Status};
use jostle_testbed::running::Running;
use jostle_testbed::shell::write_script;
use std::path::Path;
use std::process::{Command, Stdio};

/// The engine and its client are those beside jostle, which `cargo test -p jostle` does not
/// build.
fn must_have_both_programs() {
    let jostle = Path::new(env!("CARGO_BIN_EXE_jostle"));
    for program in ["procd", "jostle-call"] {
        assert!(
            jostle.with_file_name(program).exists(),
            "this test needs {program}: cargo build -p jostle-procd (`cargo test --workspace` does)"
        );
    }
}

fn measured(target: &str, options: &str) -> Run {
    let run = jostle(&format!(
        "stream -w 1 --runs 1 --quiet --format json {options}"
    ));
    run.word(target).run_cleanly().only_run()
}

#[test]
fn both_ways_to_call_are_counted_alike_by_workers_and_engine() {
    let _beside = beside();
    must_have_both_programs();
    for (target, phases) in [
        ("procd", &["send", "reply"][..]),
        ("procd:/accept", &["send", "reply"]),
        (
            "procd:/sizecheck_lua?file=message.1000&max={n}000",
            &["send", "reply"],
        ),
        ("procd-call", &["spawn", "run", "reap"]),
        ("procd-call:/accept?{worker}", &["spawn", "run", "reap"]),
    ] {
        let run = measured(target, "-n 100 --expect 0:1");
        assert_eq!(reason(&run, "errors"), None, "{target}");
        assert_eq!(run.operations, 100, "{target}");
        let server = run.server.as_ref().unwrap();
        assert_eq!((server.counted, server.difference), (Some(100), Some(0)));
        assert!(server.cpu_us_per_operation.unwrap() > 0.0, "{target}");
        let names: Vec<&str> = run.phases.iter().map(|p| p.phase.as_str()).collect();
        assert_eq!(names, phases, "{target}");
        let rejected = run.codes.get("1").copied().unwrap_or(0);
        // The file has 1000 bytes, and call 0 allows none.
        assert_eq!(rejected, u64::from(target.contains("{n}")), "{target}");
    }
}

#[test]
fn an_answer_without_a_code_is_an_error_and_no_fast_success() {
    let _beside = beside();
    must_have_both_programs();
    for (target, code) in [
        ("procd:/nothing", "HTTP 404"),
        ("procd:/sizecheck", "HTTP 400"),
        ("procd:/sizecheck_lua", "HTTP 500"),
        ("procd:/sizecheck?file=message.1000&max=1", "1"),
        ("procd-call:/nothing", "70"),
        ("procd-call:/sizecheck?file=message.1000&max=1", "1"),
    ] {
        let run = measured(target, "-n 10");
        assert_eq!(run.codes, [(code.to_owned(), 10)].into(), "{target}");
        assert_eq!(run.operations, 0, "{target}");
        assert_eq!(run.verdict.is, Status::Invalid, "{target}");
        // Refused ones are counted by both sides too.
        assert_eq!(reason(&run, "server_counts"), None, "{target}");
    }
}

/// One that runs already, as the hidden verb launches it, and where it listens.
fn engine(spool: &Path) -> (Running, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_jostle"))
        .args(["serve", &format!("procd:{}", spool.display())])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let address = first_line(&mut child);
    (Running(child), address)
}

#[test]
fn an_engine_that_runs_already_is_called_where_it_listens() {
    let _beside = beside();
    must_have_both_programs();
    let place = Place::new();
    std::fs::write(place.file("m"), "12345").unwrap();
    let (engine, address) = engine(place.path());
    for target in ["procd", "procd-call"] {
        let target = format!("{target}://{address}/sizecheck?file=m&max=4");
        let run = measured(&target, "-n 20 --expect 1");
        assert_eq!(reason(&run, "errors"), None);
        assert_eq!(run.server.unwrap().difference, Some(0));
    }
    drop(engine);
    for target in ["procd", "procd-call"] {
        let run = jostle("stream -n 20").word(&format!("{target}://{address}/accept"));
        run.run_cleanly()
            .exits(1)
            .says("is the server running there?");
    }
}

#[test]
fn an_engine_is_launched_only_of_the_same_build() {
    let _beside = beside();
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // Under a name of its own, so that no procd stands beside it.
    let jostle = place.path().join("jostle");
    std::fs::hard_link(env!("CARGO_BIN_EXE_jostle"), &jostle).unwrap();
    let refusal = || {
        let run = Command::new(&jostle)
            .args(["stream", "procd", "-w", "1", "-n", "10", "--runs", "1"])
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", place.path())
            .output()
            .unwrap();
        assert_eq!(run.status.code(), Some(1));
        flat(&String::from_utf8_lossy(&run.stderr).replace("\n ", ""))
    };
    let said = refusal();
    let makes = "`cargo build --release -p jostle-procd` makes it";
    for part in ["there is no procd beside jostle nor in $PATH", makes] {
        assert!(said.contains(part), "{said}");
    }
    let older = place.path().join("procd");
    write_script(&older, "#!/bin/sh\necho 0.0.9 abc\n").unwrap();
    let said = refusal();
    for part in ["is of another build (0.0.9 abc)", makes] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn what_cannot_be_called_is_refused() {
    let _beside = beside();
    for (target, text) in [
        ("procd:accept", "write /PROCEDURE?ARGS"),
        ("procd://127.0.0.1:1", "write /PROCEDURE?ARGS"),
        ("procd://127.0.0.1/accept", "write //HOST:PORT"),
        ("procd-call:/a b", "percent-encode"),
    ] {
        jostle("stream").word(target).exits(2).says(text);
    }
}
