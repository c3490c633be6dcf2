//! The histories of `jostle recover`, and what a checker of linearizability says of them.

use crate::common::{Place, beside, must_have};
use std::process::{Command, Stdio};

/// Porcupine reads what `report` writes, and finds a double grant that was planted.
#[test]
#[ignore = "cargo xtask long"]
fn porcupine_accepts_our_histories_and_refuses_a_double_grant() {
    let _beside = beside();
    must_have("go", "golang-go");
    let place = Place::new();
    let line = "recover flock lockd redis --runs 2 --waiters 2 --lease 1s --pause 300ms";
    place.jostle(&format!("{line} -o r.jsonl")).measures();
    let report = place.jostle("report r.jsonl --format porcupine").run();
    let history = report.exits(0).stdout;
    let (code, said) = porcupine(&place, &history);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("of 20 histories"), "{said}");
    let recorded = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../lab/record/recover-zookeeper.jsonl"
    );
    let report = place.jostle("report --format porcupine").word(recorded);
    let (code, said) = porcupine(&place, &report.exits(0).stdout);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("64 of 64 histories"), "{said}");
    // A grant that comes as soon as it was asked for, while the owner owns.
    let planted: Vec<String> = history
        .lines()
        .map(|line| {
            let mut operation: serde_json::Value = serde_json::from_str(line).unwrap();
            let is = |field: &str, value| operation[field] == serde_json::json!(value);
            let first = is("history", 1) && is("client", 1);
            if first && operation["op"] == "acquire" {
                operation["return_ns"] = (operation["call_ns"].as_u64().unwrap() + 1).into();
            }
            operation.to_string()
        })
        .collect();
    let (code, said) = porcupine(&place, &(planted.join("\n") + "\n"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("history 1 ("), "{said}");
    assert!(said.contains("19 of 20 histories"), "{said}");
}

/// The answer of the checker in `porcupine/` to a history.
fn porcupine(place: &Place, history: &str) -> (Option<i32>, String) {
    let file = place.file("history.jsonl");
    std::fs::write(&file, history).unwrap();
    let output = Command::new("go")
        .args(["run", "."])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/porcupine"))
        .stdin(Stdio::from(std::fs::File::open(&file).unwrap()))
        .output()
        .unwrap();
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}
