//! `jostle who` in situations that who/plant.py plants, each with the truth that the plant wrote.

use crate::common::{Place, must_be_root, must_have, rows, until};
use jostle_targets::nats;
use jostle_testbed::fake_consul::FakeConsul;
use jostle_testbed::lock_servers as servers;
use jostle_testbed::servers::{Running, Server};
use rustix::process::Signal;
use serde::Deserialize;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SITUATIONS: &str = include_str!("who/situations.toml");
const PLANT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/who/plant.py");

#[derive(Deserialize)]
struct Table {
    situation: Vec<Situation>,
}

#[derive(Deserialize)]
struct Situation {
    name: String,
    who: String,
    plant: String,
    server: Option<String>,
    under: Option<String>,
    #[serde(default)]
    plain: bool,
    #[serde(default)]
    frees: bool,
}

fn situations() -> Vec<Situation> {
    toml::from_str::<Table>(SITUATIONS).unwrap().situation
}

/// Where a server listens, and its password.
struct Served {
    address: String,
    secret: String,
    _running: Option<Running>,
}

fn served(kind: &str) -> Served {
    let (address, secret, running) = match (kind, Server::named(kind.trim_end_matches("-own"))) {
        (_, Some(server)) => {
            let jostle = Path::new(env!("CARGO_BIN_EXE_jostle"));
            let running = server.start(jostle, None).unwrap();
            (running.address.to_string(), String::new(), Some(running))
        }
        ("nats", _) => {
            let launched = servers::followed(&nats::Launch { connections: 100 }).unwrap();
            (launched.address, launched.secret, None)
        }
        ("consul", _) => (FakeConsul::start().unwrap().address, String::new(), None),
        (other, _) => panic!("no server {other}"),
    };
    Served {
        address,
        secret,
        _running: running,
    }
}

/// A plant that stands until it is dropped.
struct Plant(Child);

impl Plant {
    fn make(situation: &Situation, place: &Place, served: Option<&Served>) -> Plant {
        let mut child = Command::new("python3")
            .args([PLANT, &situation.name])
            .current_dir(place.path())
            .env("ADDRESS", served.map_or("", |served| &served.address))
            .env("SECRET", served.map_or("", |served| &served.secret))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let plant = Plant(child);
        assert_eq!(line, "planted\n", "{}", situation.name);
        plant
    }
}

impl Drop for Plant {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

/// The differences of the answer from the truth.
fn differences(truth: &Value, found: &Value) -> Vec<String> {
    let list = |of: &Value, name: &str| of[name].as_array().cloned().unwrap_or_default();
    let mut wrong = Vec::new();
    let mut demand = |is: bool, what: String| wrong.extend((!is).then_some(what));
    demand(
        truth["state"] == found["state"],
        format!("state {}", truth["state"]),
    );
    for role in ["holders", "waiters"] {
        let (expected, mut others) = (list(truth, role), list(found, role));
        demand(
            expected.len() == others.len(),
            format!("{} {role}", expected.len()),
        );
        for one in &expected {
            let at = others.iter().position(|other| has_all(one, other));
            // Who waits is in order.
            let at = at.filter(|at| role == "holders" || *at == 0);
            match at {
                Some(at) => drop(others.remove(at)),
                None => demand(false, format!("{role}: {one}")),
            }
        }
    }
    let mut waits = list(found, "waits");
    for one in list(truth, "waits") {
        let is_it = |wait: &Value| {
            let on = one["on"].as_str().unwrap_or_default();
            wait["tid"] == one["tid"]
                && wait["kind"] == one["kind"]
                && wait["on"].as_str().unwrap_or_default().contains(on)
                && owners(wait) == numbers(&one["owners"])
        };
        match waits.iter().position(is_it) {
            Some(at) => drop(waits.remove(at)),
            None => demand(false, format!("wait {one}")),
        }
    }
    // Nobody else is said to have anything.
    waits.retain(|wait| owners(wait) != [None]);
    demand(waits.is_empty(), format!("no {waits:?}"));
    demand(
        numbers(&truth["deadlock"]) == numbers(&found["deadlock"]),
        format!("deadlock {}", truth["deadlock"]),
    );
    let notes = found["notes"].to_string();
    for note in list(truth, "notes") {
        demand(
            notes.contains(note.as_str().unwrap()),
            format!("a note {note}"),
        );
    }
    wrong
}

fn numbers(list: &Value) -> Vec<Option<u64>> {
    let list = list.as_array().into_iter().flatten();
    let mut numbers: Vec<Option<u64>> = list.map(Value::as_u64).collect();
    numbers.sort();
    numbers
}

/// Whom a wait names; one that is not known where it names nobody.
fn owners(wait: &Value) -> Vec<Option<u64>> {
    let owners = wait["owners"].as_array().into_iter().flatten();
    let mut pids: Vec<Option<u64>> = owners.map(|owner| owner["pid"].as_u64()).collect();
    pids.sort();
    match pids.is_empty() {
        true => vec![None],
        false => pids,
    }
}

fn has_all(expected: &Value, found: &Value) -> bool {
    let mut fields = expected.as_object().unwrap().iter();
    fields.all(|(name, value)| match (name.as_str(), value) {
        ("left", value) => found["left_ms"].is_u64() == (*value == Value::Bool(true)),
        (name, Value::String(part)) => found[name].as_str().is_some_and(|text| text.contains(part)),
        (name, value) => found[name] == *value || found[name].as_str() == Some(&value.to_string()),
    })
}

/// Plants each situation whose name begins so, asks, and compares.
#[track_caller]
fn are_told(kind: &str) {
    must_have("python3", "python3");
    must_be_root("plant locks of other namespaces and users");
    let mut wrong = Vec::new();
    let mut started: Vec<(String, Served)> = Vec::new();
    let all = situations().into_iter();
    let some: Vec<Situation> = all.filter(|one| one.name.starts_with(kind)).collect();
    assert!(!some.is_empty(), "{kind}");
    for situation in some {
        if let Some(kind) = &situation.server
            && started.iter().all(|(known, _)| known != kind)
        {
            started.push((kind.clone(), served(kind)));
        }
        let server = started
            .iter()
            .find(|(known, _)| Some(known) == situation.server.as_ref());
        let server = server.map(|(_, served)| served);
        let found = told(&situation, server);
        if !found.is_empty() {
            wrong.push(format!("{}: wanted {}", situation.name, found.join("; ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The faults of the answer, and of the commands that it prints.
fn told(situation: &Situation, served: Option<&Served>) -> Vec<String> {
    let place = match situation.plain {
        true => Place::of_a_plain_user(),
        false => Place::new(),
    };
    let plant = Plant::make(situation, &place, served);
    let filled = |text: &str| {
        let address = served.map_or("", |served| &served.address);
        let mut text = text.replace("{address}", address);
        text = text.replace("{place}", &place.path().display().to_string());
        for name in ["pid", "set", "port"] {
            text = text.replace(&format!("{{{name}}}"), &place.read(name));
        }
        text
    };
    let ask = || {
        let mut run = place.jostle(&format!("who {} --format json", filled(&situation.who)));
        if let Some(under) = &situation.under {
            run = run.under(&filled(under));
        }
        if let Some(served) = served.filter(|served| !served.secret.is_empty()) {
            let secret = format!("export NATS_USER=jostle NATS_PASSWORD={}", served.secret);
            run = run.after(&secret);
        }
        run.run_cleanly()
    };
    let done = ask();
    let truth: Value = serde_json::from_str(&place.read("truth.json")).unwrap();
    let found: Value = serde_json::from_str(&done.stdout).unwrap_or_default();
    let mut wrong = differences(&truth, &found);
    let code = match truth["state"].as_str() {
        Some("free") => 0,
        Some("held") => 3,
        _ => 1,
    };
    wrong.extend((done.code() != code).then(|| format!("code {code}")));
    if situation.frees && wrong.is_empty() {
        for remedy in found["free"].as_array().unwrap() {
            place.program(&["sh", "-c", remedy["command"].as_str().unwrap()]);
        }
        // A process that is told to end does so a little later.
        let is_free = || (ask().code() == 0).then_some(());
        until("the lock to be free", Duration::from_secs(120), is_free);
    }
    wrong.extend((!wrong.is_empty()).then(|| done.transcript()));
    drop(plant);
    wrong
}

/// A test for each kind, so that servers start beside each other.
macro_rules! kinds {
    ($($(#[$given:meta])* $name:ident $kind:literal)*) => {
        $($(#[$given])* #[test] fn $name() { are_told($kind); })*

        #[test]
        fn every_situation_is_of_a_kind_and_there_are_forty_at_least() {
            let kinds = [$($kind),*];
            let all = situations();
            assert!(all.len() >= 40, "{}", all.len());
            for one in &all {
                assert!(kinds.iter().any(|kind| one.name.starts_with(kind)), "{}", one.name);
                assert!(one.plant.is_ascii());
            }
        }
    };
}

kinds! {
    locks_of_open_files_are_told "flock:"
    record_locks_are_told "fcntl:"
    lock_files_are_told "lockfile:"
    semaphores_are_told "sysv:"
    values_of_redis_are_told "redis:"
    owners_of_redisson_are_told "redisson:"
    owners_of_jostled_are_told "lockd:"
    #[cfg_attr(not(feature = "services"), ignore = "--features services")]
    sessions_of_postgres_are_told "postgres:"
    connections_of_mariadb_are_told "mariadb:"
    #[cfg_attr(not(feature = "services"), ignore = "--features services")]
    leases_of_etcd_are_told "etcd:"
    sessions_of_zookeeper_are_told "zookeeper:"
    sessions_of_consul_are_told "consul:"
    values_of_nats_are_told "nats:"
    waits_of_processes_are_told "pid:"
}

/// Words after `who`, the exit code, and what is said. In braces: a Redis, nobody, long names.
const UNASKABLE: &str = "
=> 2 => required arguments were not provided
flok:lock => 2 => did you mean `flock`
flock => 2 => write flock:PATH
flock:none => 1 => cannot look at none: No such file
lockfile:. => 2 => is no file
flock:lock name => 2 => takes no name
flock:lock --memory => 2 => --memory works with pid:N only
flock:lock --watch 1ms => 2 => at least 50ms
futex => 2 => those that can be asked are
pid:0 => 2 => with the number of a process
pid:make => 2 => with the number of a process
pid:4194305 => 1 => there is no process 4194305
sysv 123456789 => 1 => there is no set of semaphores 123456789
sysv 0:x => 2 => `x` is no number of a semaphore
redis:{redis} => 2 => which lock?
redis:{redis} {5000} => 2 => that name has 5000 bytes
redis:{nobody} x => 1 => is the server running there?
lockd:{redis} x => 1 => answer to HOLDER
zookeeper:{redis} nightly => 2 => a path begins with /
nats:{redis} nightly => 2 => write BUCKET/KEY
mariadb:{redis} {65} => 2 => takes 64
";

#[test]
fn what_cannot_be_asked_is_said_in_a_sentence() {
    let place = Place::new();
    std::fs::write(place.file("lock"), "").unwrap();
    let redis = servers::argument("redis").unwrap();
    let filled = UNASKABLE
        .replace("{redis}", redis)
        .replace("{nobody}", &redis.replace("127.0.0.1", "127.0.0.2"))
        .replace("{5000}", &"x".repeat(5_000))
        .replace("{65}", &"x".repeat(65));
    for [words, code, says] in rows(&filled) {
        let done = place.jostle(&format!("who {words}")).run_cleanly();
        let done = done.exits(code.parse().unwrap()).prints_nothing();
        let done = done.says(says);
        assert!(done.stderr.lines().count() < 20, "{}", done.transcript());
    }
}

#[test]
fn a_wrong_password_is_said() {
    for address in servers::guarded("right") {
        let run = Place::new().jostle(&format!("who {address} x"));
        let run = run.after("export JOSTLED_PASSWORD=wrong REDISCLI_AUTH=wrong");
        run.run_cleanly()
            .exits(1)
            .says("WRONGPASS")
            .prints_nothing();
    }
}

#[test]
fn a_lock_is_watched_until_a_signal_comes() {
    let place = Place::new();
    std::fs::write(place.file("lock"), "").unwrap();
    let mut run = place.jostle("who flock:lock --watch 100ms").in_background();
    run.until("the first look", |run| {
        run.printed().contains("nobody holds it").then_some(())
    });
    let file = std::fs::File::open(place.file("lock")).unwrap();
    file.lock().unwrap();
    run.until("the holder", |run| {
        run.printed().contains("held by   pid ").then_some(())
    });
    file.unlock().unwrap();
    run.until("its end", |run| {
        (run.printed().matches("nobody").count() == 2).then_some(())
    });
    run.signal(Signal::INT);
    run.end().exits(130).leaves_nothing();
}
