//! `cargo xtask peers --services` runs whole, in no time: the benchmark cannot
//! rot. Its figures mean nothing here and are not looked at.

use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "cargo xtask long"]
fn every_trial_runs_and_is_kept() {
    let lab = Path::new(env!("CARGO_BIN_EXE_jostle-lab"));
    let programs = lab.parent().unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args([
        "build",
        "--quiet",
        "--package",
        "jostle-lockd",
        "--package",
        "jostle",
    ]);
    assert!(build.status().unwrap().success());
    let place = tempfile::tempdir().unwrap();
    let kept = place.path().join("services.jsonl");
    let mut peers = Command::new(lab);
    peers.args(["peers", "--services", "--repeats", "1", "--save"]);
    let output = peers
        .arg(&kept)
        .arg("--smoke")
        .arg(programs)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    let trials = std::fs::read_to_string(kept).unwrap();
    let mut names = Vec::new();
    for line in trials.lines() {
        let trial: serde_json::Value = serde_json::from_str(line).unwrap();
        for row in trial["rows"].as_array().unwrap() {
            let rate = row["operations_per_s"][0].as_f64();
            assert!(rate.is_some_and(|rate| rate > 0.0), "{row}");
        }
        names.push(trial["trial"].as_str().unwrap().to_owned());
    }
    assert!(
        text.contains(&format!("{} trial(s)", names.len())),
        "{text}"
    );
    for name in ["1x1", "50x100", "in use 1x100", "held", "waiters"] {
        assert!(
            names.iter().any(|other| other == name),
            "{name} of {names:?}"
        );
    }
}
