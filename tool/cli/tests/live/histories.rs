//! The histories of `jostle recover` and `verify`, and what a checker of linearizability says of
//! them.

use crate::common::{Place, beside, must_have};
use jostle_stats::rng::Rng;
use jostle_stats::verify::found;
use jostle_stats::verify::history::{Entry, Facts, Kind};
use std::collections::BTreeSet;
use std::fmt::Write;
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

/// Without leases and faults, holds that certainly overlap are all that makes a history of a lock
/// not linearizable: where none do, each grant can take effect at its return, and each release at
/// its sending. So both must refuse the same histories.
#[test]
#[ignore = "cargo xtask long"]
fn porcupine_and_verify_refuse_the_same_of_a_thousand_histories() {
    const HISTORIES: u64 = 1_000;
    let _beside = beside();
    must_have("go", "golang-go");
    let (mut lines, mut ours) = (String::new(), BTreeSet::new());
    for history in 1..=HISTORIES {
        let mut rng = Rng::stream(7, history);
        let clients = 2 + rng.below(3) as u32;
        let entries: Vec<Entry> = (0..clients)
            .flat_map(|client| calls(client, &mut rng))
            .collect();
        let facts = Facts {
            ended_ns: 1_000,
            ..Facts::default()
        };
        if found(&facts, &entries).verified.overlaps > 0 {
            ours.insert(history);
        }
        for pair in entries.chunk_by(|_, end| !matches!(end.kind, Kind::Ask | Kind::Release)) {
            let (op, end) = match pair[0].kind {
                Kind::Ask => ("acquire", pair[1].at_ns.to_string()),
                _ if pair[1].kind == Kind::Released => ("release", pair[1].at_ns.to_string()),
                // It may have had no effect.
                _ => ("release", "null".to_owned()),
            };
            let (client, call) = (pair[0].client, pair[0].at_ns);
            let ok = if end == "null" { "null" } else { "true" };
            writeln!(
                lines,
                r#"{{"history":{history},"op":"{op}","client":{client},"call_ns":{call},"return_ns":{end},"ok":{ok}}}"#
            )
            .unwrap();
        }
    }
    let (_, said) = porcupine(&Place::new(), &lines);
    let refused = said
        .lines()
        .filter_map(|line| line.strip_prefix("history "));
    let number = |line: &str| line.split(' ').next()?.parse().ok();
    let theirs: BTreeSet<u64> = refused.filter_map(number).collect();
    assert!(
        said.contains(&format!("of {HISTORIES} histories")),
        "{said}"
    );
    assert!((200..=800).contains(&ours.len()), "{}", ours.len());
    assert_eq!(ours, theirs);
}

/// Holds of one client at random, whoever else has the lock. Each lasts: for `verify` one that ends
/// with its grant overlaps with nothing, for Porcupine with what lasts around it.
fn calls(client: u32, rng: &mut Rng) -> Vec<Entry> {
    let (mut entries, mut at_ns) = (Vec::new(), 0);
    for _ in 0..3 {
        let failed = rng.below(8) == 0;
        let end = [Kind::Released, Kind::ReleaseFailed][usize::from(failed)];
        let calls = [
            (Kind::Ask, 40),
            (Kind::Granted, 60),
            (Kind::Release, 6),
            (end, 10),
        ];
        for (kind, most) in calls {
            at_ns += 1 + rng.below(most);
            let (key, extra) = (0, 1);
            entries.push(Entry {
                client,
                at_ns,
                kind,
                key,
                extra,
            });
        }
    }
    entries
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
